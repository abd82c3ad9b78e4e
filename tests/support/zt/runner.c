/* The test program: chooses instances, runs each in a fresh process, tells how it went.
 *
 * An instance is a process group of its own with its output in a memory file.  At its end, or at its deadline, the whole group
 * is killed; a process that was still there at the end is a failure of its own.  Orphans come to the runner, which is a
 * subreaper, so none escapes into the machine.  Signals are taken synchronously: there is no handler.
 *
 * A backend is a row of `backends`.  The ranks of MPI come from launchers: one launch runs many instances of a world size, one
 * after another, each with its own deadline (launch.h).  The runner gives the orders and reads the outcome from the page; when
 * an instance has failed the launch is ended, and another goes on with the rest.  Cases that kill have a launch of their own.
 * There is one launch at a time, because ranks of MPI may spin; the other jobs go on beside it. */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "zt/foreign.h"
#include "zt/launch.h"
#include "zt/zt.h"

enum { DEADLINE_FACTOR = ZT_SANITIZED ? 8 : 1 };

enum { MAX_INSTANCES = 8192, MAX_JOBS = 64, LAUNCH_DEADLINE_S = 120, FAULT_S = 3 };
static const uint64_t LEFTOVER_GRACE_NS = UINT64_C(2000000000);

zt_options zt_opt = { .seed = 1, .max_count = SIZE_MAX, .fast = ZRO_ON, .threads = 1 };

static const struct backend {
    const char *name;
    int bit;
    int sampled_size; /* the world size of the one launch that a sample has; 0: any, and without a launch */
} backends[] = { { "local", ZT_LOCAL, 0 },
                 { "threads", ZT_THREADS, 0 },
                 { "foreign", ZT_FOREIGN, 0 },
                 { "openmpi", ZT_OPENMPI, 3 },
                 { "mpich", ZT_MPICH, 2 } };
enum { BACKENDS = sizeof backends / sizeof *backends };

typedef struct instance {
    const zt_case *c;
    int table, row; /* where c stands */
    int backend, size;
    int begun, sampled;
    char name[96];
} instance;

typedef struct running {
    const instance *what;
    pid_t pid; /* and its process group; 0: free place */
    int output, status, exited, expired;
    char left[256]; /* processes that outlived it */
    uint64_t began, deadline, ended;
    zt_shared *shared;
    int launched;    /* an instance of the launch ... */
    uint64_t end_at; /* ... which has failed and will be ended then; 0: has not */
} running;

/* The launch, and the instances that it is to run. */
static struct {
    zt_launch launch;
    instance *queue[MAX_INSTANCES];
    int count, at;
    enum { STARTING, RUNNING, LEAVING } phase;
} mpi;

static struct {
    const char *only, *backend, *room, *tally, *times, *worker;
    int list, jobs, first;
    unsigned deadline_s; /* of no instance more; 0: as the cases say */
    enum { EVERYTHING, SAMPLE, REST } part;
    char **argv;
} args = { .jobs = 2 };

static instance instances[MAX_INSTANCES];
static int instance_count;
static struct {
    int passed, failed, skipped;
} total;
static int on_terminal;

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

/* Whether a name is chosen by a list with commas of globs and parts of names; NULL chooses all. */
static int chosen(const char *list, const char *name)
{
    char item[128];

    if (list == NULL)
        return 1;
    for (const char *p = list; *p != '\0'; p += strcspn(p, ","), p += *p == ',') {
        snprintf(item, sizeof item, "%.*s", (int)strcspn(p, ","), p);
        if (item[0] != '\0' && (strstr(name, item) != NULL || fnmatch(item, name, 0) == 0))
            return 1;
    }
    return 0;
}

static void add_instance(int table, int row, const struct backend *backend, int size)
{
    const zt_case *c = &zt_tables[table].cases[row];
    instance *i = &instances[instance_count];

    if (instance_count == MAX_INSTANCES) {
        fprintf(stderr, "zro-tests: more than %d instances\n", MAX_INSTANCES);
        exit(2);
    }
    *i = (instance){ .c = c, .table = table, .row = row, .size = size };
    if (backend == NULL)
        snprintf(i->name, sizeof i->name, "%s.solo", c->name);
    else
        snprintf(i->name, sizeof i->name, "%s.%s.%d", c->name, backend->name, size);
    i->backend = backend != NULL ? backend->bit : 0;
    instance_count++;
}

static int is_selected(const zt_case *c)
{
    return ((c->flags & ZT_LONG) == 0 || zt_opt.long_too) && ((c->flags & ZT_BIG) != 0) == zt_opt.big
           && ((c->flags & ZT_HOSTS) == 0 || zt_opt.hosts)
           && ((c->flags & ZT_TWO_MACHINES) == 0 || !zt_opt.hosts); /* they cannot pretend other machines than they are on */
}

static int can_run(const zt_case *c, const struct backend *backend)
{
    if (backend->bit == ZT_FOREIGN && (c->flags & ZT_KILLS) != 0 && zt_foreign_is_threads())
        return 0;
    return (c->backends & (unsigned)backend->bit) != 0;
}

/* On the backends that are asked for.  A solo case is one instance, if one of its backends is. */
static void add_case(int table, int row)
{
    const zt_case *c = &zt_tables[table].cases[row];
    int is_asked_for = 0;

    for (int b = 0; b < BACKENDS; b++) {
        if (!can_run(c, &backends[b]) || !chosen(args.backend, backends[b].name))
            continue;
        is_asked_for = 1;
        for (int n = 1; n < ZT_MAX_RANKS; n++)
            if ((c->worlds & ZT_WORLD(n)) != 0)
                add_instance(table, row, &backends[b], n);
    }
    if (c->worlds == 0 && is_asked_for)
        add_instance(table, row, NULL, 0);
}

/* ---- the sample ---- */

/* `make check` runs a sample, `make check-full` the rest.  The sample has every case once, on backends and
 * world sizes that take turns; then every backend in every room: of an MPI, whose ranks all come from one
 * launch, some of the cases of that world size.  It depends on the list of cases and on --backend alone. */
enum { SAMPLED_OF_MPI = 4 }; /* one of so many cases */

static const struct backend *backend_of(const instance *i)
{
    for (int b = 0; b < BACKENDS; b++)
        if (backends[b].bit == i->backend)
            return &backends[b];
    return NULL;
}

/* Whether an instance shares the one launch of its MPI. */
static int fits_launch(const instance *i)
{
    const struct backend *backend = backend_of(i);

    return backend != NULL && backend->sampled_size == i->size && (i->c->flags & ZT_KILLS) == 0;
}

/* How much an instance is not what the `turn`-th case should run as. */
static int dislike(const instance *i, int turn)
{
    static const int near[] = { ZT_LOCAL, ZT_THREADS, ZT_FOREIGN }, sizes[] = { 2, 3, 4, 1, 3, 2, 7 };
    const int size = sizes[turn % 7];

    if (i->backend == 0)
        return 0;
    if ((i->backend & ZT_MPI) != 0)
        return fits_launch(i) ? 100 : 1000;
    return (i->backend != near[turn % 3]) * 8 + (i->size != size) + (i->size > size) * 2;
}

static int is_same_case(const instance *a, const instance *b)
{
    return a->table == b->table && strcmp(a->c->name, b->c->name) == 0;
}

static void sample_each_case(void)
{
    int turn = 0;

    for (int i = 0; i < instance_count; turn++) {
        instance *best = &instances[i];
        int k = i;

        for (; k < instance_count && is_same_case(&instances[k], &instances[i]); k++)
            if (dislike(&instances[k], turn) < dislike(best, turn))
                best = &instances[k];
        best->sampled = (best->c->flags & ZT_REST) == 0;
        i = k;
    }
}

/* What a room has on a backend: at least one instance; of an MPI one of SAMPLED_OF_MPI that fit its launch. */
static void sample_backend(const char *room, const struct backend *backend)
{
    int seen = 0, sampled = 0;
    instance *first = NULL;

    for (instance *i = instances; i < instances + instance_count; i++) {
        if (strcmp(zt_tables[i->table].room, room) != 0 || i->backend != backend->bit || (i->c->flags & ZT_REST) != 0)
            continue;
        if ((backend->bit & ZT_MPI) != 0) {
            if (!fits_launch(i))
                continue;
            i->sampled |= seen++ % SAMPLED_OF_MPI == 0;
        }
        first = first == NULL ? i : first;
        sampled += i->sampled;
    }
    if (sampled == 0 && first != NULL)
        first->sampled = 1;
}

static void choose_sample(void)
{
    sample_each_case();
    for (int table = 0; zt_tables[table].room != NULL; table++)
        for (int b = 0; b < BACKENDS; b++)
            if (table == 0 || strcmp(zt_tables[table].room, zt_tables[table - 1].room) != 0)
                sample_backend(zt_tables[table].room, &backends[b]);
}

/* All instances, then the part of them that is asked for. */
static void choose_instances(void)
{
    int count = 0;

    for (int table = 0; zt_tables[table].room != NULL; table++)
        for (int row = 0; zt_tables[table].cases[row].name != NULL; row++)
            if (is_selected(&zt_tables[table].cases[row]))
                add_case(table, row);
    choose_sample();
    for (int i = 0; i < instance_count; i++) {
        if (chosen(args.only, instances[i].name) && chosen(args.room, zt_tables[instances[i].table].room)
            && (args.part == EVERYTHING || (args.part == SAMPLE) == instances[i].sampled))
            instances[count++] = instances[i];
    }
    instance_count = count;
}

/* Instances of a backend that is not there are skipped, and it is said once why. */
static void skip_missing(void)
{
    for (int b = 0; b < BACKENDS; b++) {
        const char *why = (backends[b].bit & ZT_MPI) != 0       ? zt_launch_missing(backends[b].bit)
                          : (backends[b].bit & ZT_FOREIGN) != 0 ? zt_foreign_missing()
                                                                : NULL;
        int n = 0;

        for (int i = 0; why != NULL && i < instance_count; i++)
            if (instances[i].backend == backends[b].bit) {
                instances[i].begun = 1;
                n++;
            }
        if (n > 0)
            printf("SKIP %d of %s: %s\n", n, backends[b].name, why);
        total.skipped += n;
    }
}

static const char *missing_kernels(void)
{
#if defined(__x86_64__)
    if (zt_opt.kernels == ZRO_KERNELS_AVX2 && !__builtin_cpu_supports("avx2"))
        return "this processor has no AVX2";
    if (zt_opt.kernels == ZRO_KERNELS_AVX512 && !__builtin_cpu_supports("avx512f"))
        return "this processor has no AVX-512";
#else
    if (zt_opt.kernels > ZRO_KERNELS_BASE)
        return "this processor has no such kernels";
#endif
    return NULL;
}

static void run_child(running *r, const sigset_t *mask)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigprocmask(SIG_SETMASK, mask, NULL);
    if (freopen("/dev/null", "r", stdin) == NULL || dup2(r->output, STDOUT_FILENO) < 0 || dup2(r->output, STDERR_FILENO) < 0)
        _exit(1);
    setvbuf(stdout, NULL, _IOLBF, 0);
    close(r->output);
    zt_run(r->what->c, r->what->backend, r->what->size, r->shared);
    exit(0);
}

static uint64_t deadline_after(uint64_t now, unsigned seconds)
{
    if (seconds == 0)
        seconds = ZT_DEADLINE_S;
    seconds += zt_opt.faults * FAULT_S;
    if (args.deadline_s != 0 && seconds > args.deadline_s)
        seconds = args.deadline_s;
    return now + (uint64_t)seconds * DEADLINE_FACTOR * UINT64_C(1000000000);
}

static void begin(running *r, instance *what, const sigset_t *mask)
{
    memset(r, 0, sizeof *r);
    r->what = what;
    what->begun = 1;
    r->output = memfd_create("output", MFD_CLOEXEC);
    r->shared = mmap(NULL, sizeof *r->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    r->began = now_ns();
    r->deadline = deadline_after(r->began, what->c->deadline_s);
    fflush(NULL);
    r->pid = r->output < 0 || r->shared == MAP_FAILED ? -1 : fork();
    if (r->pid == 0)
        run_child(r, mask);
    if (r->pid < 0) {
        perror("zro-tests");
        exit(2);
    }
    setpgid(r->pid, r->pid);
}

/* What is left of a process group, as "12345 name state, ...". */
static void list_processes(pid_t group, char *text, size_t bytes)
{
    DIR *dir = opendir("/proc");
    struct dirent *entry;
    size_t used = 0;

    text[0] = '\0';
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        char path[300], line[256] = "", *end;
        int of = 0, pid = atoi(entry->d_name);
        char state = '?';
        FILE *stat;

        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
        stat = fopen(path, "re");
        if (stat == NULL)
            continue;
        if (fgets(line, sizeof line, stat) != NULL && (end = strrchr(line, ')')) != NULL
            && sscanf(end + 1, " %c %*d %d", &state, &of) == 2 && of == (int)group && used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "%s%d (%c)", used > 0 ? ", " : "", pid, state);
        fclose(stat);
    }
    if (dir != NULL)
        closedir(dir);
}

/* Lines of an instance's output, indented below its name. */
static void show_output(int fd)
{
    FILE *in = fdopen(dup(fd), "r");
    char line[1024];

    if (in == NULL)
        return;
    rewind(in);
    while (fgets(line, sizeof line, in) != NULL)
        printf("    %s%s", line, strchr(line, '\n') == NULL ? "\n" : "");
    fclose(in);
}

/* Appends to the file that --times names. */
static void note_time(const char *name, double seconds)
{
    FILE *f = args.times != NULL ? fopen(args.times, "ae") : NULL;

    if (f == NULL)
        return;
    fprintf(f, "%.1f %s\n", seconds, name);
    fclose(f);
}

static void report(running *r)
{
    double seconds = (double)(r->ended - r->began) * 1e-9;
    int signal_number = WIFSIGNALED(r->status) ? WTERMSIG(r->status) : 0;
    int skipped = r->shared->skip[0] != '\0' && !r->expired && !atomic_load(&r->shared->failed);
    int failed = !skipped && (r->status != 0 || r->expired || r->left[0] != '\0');

    if (on_terminal)
        printf("\r\033[K");
    if (failed) {
        printf("FAIL %s (%.1f s)", r->what->name, seconds);
        if (r->expired && r->launched && mpi.phase != RUNNING)
            printf(": its launch did not %s in time", mpi.phase == STARTING ? "start" : "end");
        else if (r->expired)
            printf(": not done at its deadline%s%s", r->left[0] != '\0' ? "; running: " : "", r->left);
        else if (signal_number != 0)
            printf(": signal %d (%s)", signal_number, strsignal(signal_number));
        else if (r->left[0] != '\0')
            printf(": left processes: %s", r->left);
        else if (r->launched)
            printf(": its launch ended with status %d", WEXITSTATUS(r->status));
        printf("\n");
    } else if (skipped) {
        printf("SKIP %s: %s\n", r->what->name, r->shared->skip);
    } else if (zt_opt.verbose || r->shared->note[0] != '\0') {
        printf("ok   %s (%.1f s)%s%s\n", r->what->name, seconds, r->shared->note[0] != '\0' ? ": " : "", r->shared->note);
    }
    if (failed || zt_opt.verbose)
        show_output(r->output);
    total.failed += failed;
    total.skipped += skipped;
    total.passed += !failed && !skipped;
    note_time(r->what->name, seconds);
    if (on_terminal)
        printf("[%d of %d]", total.passed + total.failed + total.skipped, instance_count);
    fflush(stdout);
}

/* Looks after one instance; 1 if it is over. */
static int attend(running *r)
{
    uint64_t now = now_ns();

    if (!r->exited && waitpid(r->pid, &r->status, WNOHANG) == r->pid) {
        r->exited = 1;
        r->ended = now_ns();
    }
    if (!r->exited && !r->expired && now > r->deadline) {
        r->expired = 1;
        list_processes(r->pid, r->left, sizeof r->left);
        kill(-r->pid, SIGKILL);
    }
    if (!r->exited)
        return 0;
    while (waitpid(-r->pid, NULL, WNOHANG) > 0) {
    }
    if (kill(-r->pid, 0) != 0 && errno == ESRCH)
        return 1;
    if (r->expired || (r->what->c->flags & ZT_LEAVES) != 0 || r->status != 0) {
        kill(-r->pid, SIGKILL);
    } else if (now > r->ended + LEFTOVER_GRACE_NS && r->left[0] == '\0') {
        list_processes(r->pid, r->left, sizeof r->left);
        kill(-r->pid, SIGKILL);
    }
    return 0;
}

static void finish(running *r)
{
    report(r);
    close(r->output);
    munmap(r->shared, sizeof *r->shared);
    r->pid = 0;
}

/* ---- launches ---- */

/* The next that needs a launch, or that needs none. */
static instance *next_waiting(int launched)
{
    for (int i = 0; i < instance_count; i++)
        if (!instances[i].begun && ((instances[i].backend & ZT_MPI) != 0) == launched)
            return &instances[i];
    return NULL;
}

/* A launch for `first` and, unless one of them kills, for all that wait for the same ranks. */
static void begin_launch(running *r, instance *first, const sigset_t *mask)
{
    int kills = (first->c->flags & ZT_KILLS) != 0;

    memset(r, 0, sizeof *r);
    mpi.count = mpi.at = 0;
    mpi.phase = STARTING;
    for (instance *i = first; i < instances + instance_count; i++)
        if (!i->begun && i->backend == first->backend && i->size == first->size
            && (i == first || (!kills && (i->c->flags & ZT_KILLS) == 0))) {
            i->begun = 1;
            mpi.queue[mpi.count++] = i;
        }
    fflush(NULL);
    if (zt_launch_begin(&mpi.launch, first->backend, first->size, kills, args.argv, mask) != 0) {
        perror("zro-tests: launch");
        zt_launch_free(&mpi.launch);
        exit(2);
    }
    setpgid(mpi.launch.pid, mpi.launch.pid);
    r->launched = 1;
    r->what = first;
    r->pid = mpi.launch.pid;
    r->output = mpi.launch.output;
    r->shared = &mpi.launch.page->shared;
    r->began = now_ns();
    r->deadline = deadline_after(r->began, LAUNCH_DEADLINE_S);
}

static void order_next(running *r)
{
    const instance *next = mpi.queue[mpi.at];

    mpi.phase = RUNNING;
    r->what = next;
    r->began = now_ns();
    r->deadline = deadline_after(r->began, next->c->deadline_s);
    if (ftruncate(r->output, 0) != 0)
        perror("zro-tests: output");
    zt_launch_order(&mpi.launch, next->table, next->row);
}

/* A case that has lost ranks, or left MPI in pieces: it cannot be finalised, and the launcher's status says nothing.  Nor can
 * MPICH over TCP: its Finalize hangs in one of ten runs, whatever the program did. */
static int has_torn(const running *r)
{
    return atomic_load(&r->shared->lost) != 0 || (r->what->c->flags & ZT_LEAVES) != 0
           || (zt_opt.hosts && r->what->backend == ZT_MPICH);
}

/* The instance is over on all ranks that live.  The last one also answers for the end of the launch. */
static void go_on(running *r)
{
    if (mpi.at + 1 == mpi.count) {
        mpi.phase = LEAVING;
        zt_launch_order(&mpi.launch, has_torn(r) ? ZT_LEAVE_AT_ONCE : ZT_LEAVE, 0);
        return;
    }
    r->ended = now_ns();
    report(r);
    mpi.at++;
    order_next(r);
}

/* Looks after the launch; 1 if it is over, and then its last instance is to be reported. */
static int attend_launch(running *r)
{
    zt_shared *shared = r->shared;
    unsigned long long all = (1ULL << r->what->size) - 1;
    uint64_t now = now_ns();

    if (waitpid(r->pid, &r->status, WNOHANG) == r->pid) {
        r->ended = now;
        if (mpi.phase != LEAVING && r->status == 0)
            r->status = 1 << 8;
        if (mpi.phase == LEAVING && has_torn(r) && r->status != ZT_LAUNCH_ENDED << 8 && r->status != ZT_LAUNCH_LEFT << 8)
            r->status = 0;
        return 1;
    }
    if (r->end_at == 0 && now > r->deadline) {
        r->expired = 1;
        r->end_at = now;
    } else if (r->end_at == 0 && (atomic_load(&shared->failed) || shared->skip[0] != '\0')) {
        r->end_at = now + LEFTOVER_GRACE_NS; /* the other ranks, too, may have something to say */
    }
    if (r->end_at != 0) {
        if (now >= r->end_at)
            kill(r->pid, SIGTERM);
        return 0;
    }
    if (mpi.phase == STARTING && atomic_load(&mpi.launch.page->here) == all) {
        zt_launch_forget(&mpi.launch);
        order_next(r);
    } else if (mpi.phase == RUNNING && atomic_load(&shared->finished) == (all & ~atomic_load(&shared->lost))) {
        go_on(r);
    }
    return 0;
}

static void finish_launch(running *r)
{
    report(r);
    for (int i = mpi.at + 1; i < mpi.count; i++)
        if (mpi.phase != STARTING) {
            mpi.queue[i]->begun = 0;
        } else {
            printf("FAIL %s: no launch of its kind starts\n", mpi.queue[i]->name);
            total.failed++;
        }
    zt_launch_free(&mpi.launch);
    r->pid = 0;
}

/* ---- all ---- */

/* Orphans of a killed process come to the runner, too: nobody is left when it ends. */
static void kill_all(const running *runs)
{
    for (int j = 0; j < args.jobs; j++)
        if (runs[j].pid > 0)
            kill(runs[j].launched ? runs[j].pid : -runs[j].pid, runs[j].launched ? SIGTERM : SIGKILL);
    while (wait(NULL) > 0) {
    }
    zt_launch_free(&mpi.launch);
}

/* Gives the free places work; 1 if anything is running. */
static int begin_some(running *runs, const sigset_t *mask)
{
    int busy = 0;

    for (int j = 0; j < args.jobs; j++) {
        instance *launched = mpi.launch.pid == 0 ? next_waiting(1) : NULL, *alone = next_waiting(0);

        if (runs[j].pid == 0 && launched != NULL)
            begin_launch(&runs[j], launched, mask);
        else if (runs[j].pid == 0 && alone != NULL)
            begin(&runs[j], alone, mask);
        busy |= runs[j].pid > 0;
    }
    return busy;
}

static void run_all(void)
{
    static const struct timespec tick = { 0, 10000000 };
    running runs[MAX_JOBS] = { 0 };
    sigset_t awaited, before;
    int got;

    sigemptyset(&awaited);
    sigaddset(&awaited, SIGCHLD);
    sigaddset(&awaited, SIGINT);
    sigaddset(&awaited, SIGTERM);
    sigaddset(&awaited, SIGHUP);
    sigprocmask(SIG_BLOCK, &awaited, &before);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    while (begin_some(runs, &before)) {
        got = sigtimedwait(&awaited, NULL, &tick);
        if (got > 0 && got != SIGCHLD) {
            kill_all(runs);
            fprintf(stderr, "\nzro-tests: ended by signal %d\n", got);
            exit(128 + got);
        }
        for (int j = 0; j < args.jobs; j++) {
            if (runs[j].pid > 0 && !runs[j].launched && attend(&runs[j]))
                finish(&runs[j]);
            if (runs[j].pid > 0 && runs[j].launched && attend_launch(&runs[j]))
                finish_launch(&runs[j]);
        }
        if (args.first && total.failed > 0) {
            kill_all(runs);
            break;
        }
    }
    if (on_terminal)
        printf("\r\033[K");
}

static _Noreturn void usage(int code)
{
    fprintf(
        code == 0 ? stdout : stderr,
        "usage: zro-tests [--list] [--sample | --rest] [--only PATTERN,...] [--room ROOM,...] [--backend BACKEND,...]\n"
        "                 [--long] [--big] [--hosts] [--jobs N] [--kernels base|avx2|avx512] [--fast on|off] [--threads N]\n"
        "                 [--max-count N] [--seed N] [--faults N] [--deadline SECONDS] [--first] [--tally FILE] [--times "
        "FILE]\n"
        "                 [--verbose]\n"
        "A pattern is a glob or a part of a name as --list prints it; backends: local, threads, foreign, openmpi, mpich.\n"
        "--sample: every case somewhere, every backend in every room; --rest: what the sample leaves out; --first: ends\n"
        "at the first failure; --faults: so many trials in each case that makes random faults; --tally appends\n"
        "`passed failed skipped`, --times `seconds name` of each instance.\n");
    exit(code);
}

static uint64_t number(const char *text)
{
    char *end;
    uint64_t n;

    errno = 0;
    n = strtoull(text, &end, 0);
    if (errno != 0 || end == text || *end != '\0' || text[0] == '-') {
        fprintf(stderr, "zro-tests: %s is not a number\n", text);
        exit(2);
    }
    return n;
}

static zro_kernels kernels_of(const char *name)
{
    static const char *const names[] = { "auto", "base", "avx2", "avx512" };

    for (int k = 0; k < 4; k++)
        if (strcmp(name, names[k]) == 0)
            return (zro_kernels)k;
    usage(2);
}

static int run_command(int argc, char **argv)
{
    for (const zt_command *c = zt_commands; c->name != NULL; c++)
        if (argc > 0 && strcmp(argv[0], c->name) == 0)
            return c->run(argc, argv);
    usage(2);
}

/* Returns the place of a command in argv, or argc. */
static int parse(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;

        if (strcmp(name, "--help") == 0)
            usage(0);
        if (strcmp(name, "--command") == 0)
            return i + 1;
        if (strcmp(name, "--list") == 0)
            args.list = 1;
        else if (strcmp(name, "--sample") == 0)
            args.part = SAMPLE;
        else if (strcmp(name, "--first") == 0)
            args.first = 1;
        else if (strcmp(name, "--rest") == 0)
            args.part = REST;
        else if (strcmp(name, "--long") == 0)
            zt_opt.long_too = 1;
        else if (strcmp(name, "--big") == 0)
            zt_opt.big = 1;
        else if (strcmp(name, "--hosts") == 0)
            zt_opt.hosts = 1;
        else if (strcmp(name, "--verbose") == 0)
            zt_opt.verbose = 1;
        else if (value == NULL)
            usage(2);
        else if (strcmp(name, "--only") == 0)
            args.only = argv[++i];
        else if (strcmp(name, "--room") == 0)
            args.room = argv[++i];
        else if (strcmp(name, "--backend") == 0)
            args.backend = argv[++i];
        else if (strcmp(name, "--tally") == 0)
            args.tally = argv[++i];
        else if (strcmp(name, "--times") == 0)
            args.times = argv[++i];
        else if (strcmp(name, "--worker") == 0)
            args.worker = argv[++i];
        else if (strcmp(name, "--jobs") == 0)
            args.jobs = (int)number(argv[++i]);
        else if (strcmp(name, "--deadline") == 0)
            args.deadline_s = (unsigned)number(argv[++i]);
        else if (strcmp(name, "--seed") == 0)
            zt_opt.seed = number(argv[++i]);
        else if (strcmp(name, "--faults") == 0)
            zt_opt.faults = (uint32_t)number(argv[++i]);
        else if (strcmp(name, "--max-count") == 0)
            zt_opt.max_count = (size_t)number(argv[++i]);
        else if (strcmp(name, "--threads") == 0)
            zt_opt.threads = (uint32_t)number(argv[++i]);
        else if (strcmp(name, "--kernels") == 0)
            zt_opt.kernels = kernels_of(argv[++i]);
        else if (strcmp(name, "--fast") == 0)
            zt_opt.fast = strcmp(argv[++i], "off") == 0 ? ZRO_OFF : ZRO_ON;
        else
            usage(2);
    }
    if (args.jobs < 1 || args.jobs > MAX_JOBS)
        usage(2);
    return argc;
}

static void write_tally(void)
{
    FILE *f = fopen(args.tally, "a");

    if (f == NULL || fprintf(f, "%d %d %d\n", total.passed, total.failed, total.skipped) < 0 || fclose(f) != 0) {
        perror(args.tally);
        exit(2);
    }
}

int main(int argc, char **argv)
{
    int command = parse(argc, argv);
    const char *missing = missing_kernels();

    args.argv = argv + 1;
    if (command < argc)
        return run_command(argc - command, argv + command);
    if (args.worker != NULL)
        return zt_worker(args.worker);
    choose_instances();
    if (args.list) {
        for (int i = 0; i < instance_count; i++)
            printf("%s\n", instances[i].name);
        return 0;
    }
    on_terminal = isatty(STDOUT_FILENO);
    if (missing != NULL) {
        printf("SKIP all: %s\n", missing);
        total.skipped = instance_count;
    } else {
        skip_missing();
        run_all();
    }
    printf("%d passed, %d failed, %d skipped\n", total.passed, total.failed, total.skipped);
    if (args.tally != NULL)
        write_tally();
    return total.failed > 0 || total.passed == 0;
}
