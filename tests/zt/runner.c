/* The test program: chooses instances, runs each in a fresh process, tells how it went.
 *
 * An instance is a process group of its own with its output in a memory file.  At its end, or at its deadline, the whole group
 * is killed; a process that was still there at the end is a failure of its own.  Orphans come to the runner, which is a
 * subreaper, so none escapes into the machine.  Signals are taken synchronously: there is no handler.
 *
 * A backend is a row of `backends`.  One whose ranks come from a launcher of its own (MPI) gets a row whose processes are
 * launches that run many instances of one world size, the shared page telling which is on. */
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

#include "zt/zt.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifdef SANITIZED
enum { DEADLINE_FACTOR = 8 };
#else
enum { DEADLINE_FACTOR = 1 };
#endif

enum { MAX_INSTANCES = 4096, MAX_JOBS = 64, DEFAULT_DEADLINE_S = 30 };
static const uint64_t LEFTOVER_GRACE_NS = UINT64_C(2000000000);

zt_options zt_opt = { .seed = 1, .max_count = SIZE_MAX, .fast = ZRO_ON, .threads = 1 };

static const struct backend {
    const char *name;
    int bit;
} backends[] = { { "local", ZT_LOCAL }, { "threads", ZT_THREADS } };
enum { BACKENDS = sizeof backends / sizeof *backends };

typedef struct instance {
    const zt_case *c;
    int backend, size;
    char name[96];
} instance;

typedef struct running {
    const instance *what;
    pid_t pid; /* and its process group; 0: free place */
    int output, status, exited, expired;
    char left[256]; /* processes that outlived it */
    uint64_t began, deadline, ended;
    zt_shared *shared;
} running;

static struct {
    const char *only, *backend, *tally;
    int list, jobs;
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

static void add_instance(const zt_case *c, const struct backend *backend, int size)
{
    instance *i = &instances[instance_count];

    if (instance_count == MAX_INSTANCES) {
        fprintf(stderr, "zro-tests: more than %d instances\n", MAX_INSTANCES);
        exit(2);
    }
    i->c = c;
    i->size = size;
    if (backend == NULL)
        snprintf(i->name, sizeof i->name, "%s.solo", c->name);
    else
        snprintf(i->name, sizeof i->name, "%s.%s.%d", c->name, backend->name, size);
    i->backend = backend != NULL ? backend->bit : 0;
    instance_count += chosen(args.only, i->name);
}

static void choose_instances(void)
{
    for (const zt_case *const *table = zt_tables; *table != NULL; table++)
        for (const zt_case *c = *table; c->name != NULL; c++) {
            if (((c->flags & ZT_FULL) != 0 && !zt_opt.full) || ((c->flags & ZT_BIG) != 0) != zt_opt.big)
                continue;
            for (int b = 0; b < BACKENDS; b++) {
                if ((c->backends & (unsigned)backends[b].bit) == 0 || !chosen(args.backend, backends[b].name))
                    continue;
                if (c->worlds == 0)
                    add_instance(c, NULL, 0);
                for (int n = 1; n < ZT_MAX_RANKS; n++)
                    if ((c->worlds & ZT_WORLD(n)) != 0)
                        add_instance(c, &backends[b], n);
            }
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

static void begin(running *r, const instance *what, const sigset_t *mask)
{
    unsigned seconds = what->c->deadline_s != 0 ? what->c->deadline_s : DEFAULT_DEADLINE_S;

    memset(r, 0, sizeof *r);
    r->what = what;
    r->output = memfd_create("output", MFD_CLOEXEC);
    r->shared = mmap(NULL, sizeof *r->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    r->began = now_ns();
    r->deadline = r->began + (uint64_t)seconds * DEADLINE_FACTOR * UINT64_C(1000000000);
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
    FILE *in = fdopen(fd, "r");
    char line[1024];

    if (in == NULL)
        return;
    rewind(in);
    while (fgets(line, sizeof line, in) != NULL)
        printf("    %s%s", line, strchr(line, '\n') == NULL ? "\n" : "");
    fclose(in);
}

static void report(running *r)
{
    double seconds = (double)(r->ended - r->began) * 1e-9;
    int signal_number = WIFSIGNALED(r->status) ? WTERMSIG(r->status) : 0;
    int skipped = r->shared->skip[0] != '\0' && !r->expired;
    int failed = !skipped && (r->status != 0 || r->expired || r->left[0] != '\0');

    if (on_terminal)
        printf("\r\033[K");
    if (failed) {
        printf("FAIL %s (%.1f s)", r->what->name, seconds);
        if (r->expired)
            printf(": not done at its deadline; running: %s", r->left);
        else if (signal_number != 0)
            printf(": signal %d (%s)", signal_number, strsignal(signal_number));
        else if (r->left[0] != '\0')
            printf(": left processes: %s", r->left);
        printf("\n");
    } else if (skipped) {
        printf("SKIP %s: %s\n", r->what->name, r->shared->skip);
    } else if (zt_opt.verbose || r->shared->note[0] != '\0') {
        printf("ok   %s (%.1f s)%s%s\n", r->what->name, seconds, r->shared->note[0] != '\0' ? ": " : "", r->shared->note);
    }
    if (failed || zt_opt.verbose)
        show_output(r->output);
    else
        close(r->output);
    total.failed += failed;
    total.skipped += skipped;
    total.passed += !failed && !skipped;
    if (on_terminal)
        printf("[%d of %d]", total.passed + total.failed + total.skipped, instance_count);
    fflush(stdout);
    munmap(r->shared, sizeof *r->shared);
    r->pid = 0;
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

/* Orphans of a killed process come to the runner, too: nobody is left when it ends. */
static void kill_all(const running *runs)
{
    for (int j = 0; j < args.jobs; j++)
        if (runs[j].pid > 0)
            kill(-runs[j].pid, SIGKILL);
    while (wait(NULL) > 0) {
    }
}

static void run_all(void)
{
    static const struct timespec tick = { 0, 20000000 };
    running runs[MAX_JOBS] = { 0 };
    sigset_t awaited, before;
    int next = 0, busy = 0, got;

    sigemptyset(&awaited);
    sigaddset(&awaited, SIGCHLD);
    sigaddset(&awaited, SIGINT);
    sigaddset(&awaited, SIGTERM);
    sigaddset(&awaited, SIGHUP);
    sigprocmask(SIG_BLOCK, &awaited, &before);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    while (next < instance_count || busy > 0) {
        for (int j = 0; j < args.jobs && next < instance_count; j++)
            if (runs[j].pid == 0) {
                begin(&runs[j], &instances[next++], &before);
                busy++;
            }
        got = sigtimedwait(&awaited, NULL, &tick);
        if (got > 0 && got != SIGCHLD) {
            kill_all(runs);
            fprintf(stderr, "\nzro-tests: ended by signal %d\n", got);
            exit(128 + got);
        }
        for (int j = 0; j < args.jobs; j++)
            if (runs[j].pid > 0 && attend(&runs[j])) {
                report(&runs[j]);
                busy--;
            }
    }
    if (on_terminal)
        printf("\r\033[K");
}

static _Noreturn void usage(int code)
{
    fprintf(code == 0 ? stdout : stderr,
            "usage: zro-tests [--list] [--only PATTERN,...] [--backend local,threads] [--full] [--big] [--jobs N]\n"
            "                 [--kernels base|avx2|avx512] [--fast on|off] [--threads N] [--max-count N] [--seed N]\n"
            "                 [--tally FILE] [--verbose]\n"
            "A pattern is a glob or a part of a name as --list prints it.  --tally appends `passed failed skipped`.\n");
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
        else if (strcmp(name, "--full") == 0)
            zt_opt.full = 1;
        else if (strcmp(name, "--big") == 0)
            zt_opt.big = 1;
        else if (strcmp(name, "--verbose") == 0)
            zt_opt.verbose = 1;
        else if (value == NULL)
            usage(2);
        else if (strcmp(name, "--only") == 0)
            args.only = argv[++i];
        else if (strcmp(name, "--backend") == 0)
            args.backend = argv[++i];
        else if (strcmp(name, "--tally") == 0)
            args.tally = argv[++i];
        else if (strcmp(name, "--jobs") == 0)
            args.jobs = (int)number(argv[++i]);
        else if (strcmp(name, "--seed") == 0)
            zt_opt.seed = number(argv[++i]);
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

    if (command < argc)
        return run_command(argc - command, argv + command);
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
        run_all();
    }
    printf("%d passed, %d failed, %d skipped\n", total.passed, total.failed, total.skipped);
    if (args.tally != NULL)
        write_tally();
    return total.failed > 0 || total.passed == 0;
}
