/* The side of zt that runs inside an instance: checks, meeting places, groups, and the start of ranks.  See zt.h. */
#define _GNU_SOURCE
#include "zt/zt.h"
#include "base/point.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "zt/foreign.h"
#include "zt/launch.h"

enum { EXIT_SKIPPED = 77 };

/* Who is running: the thread's rank; where ranks are processes also for threads that the library started. */
static _Thread_local const zt_rank *thread_rank;
static const zt_rank *process_rank;

static const zt_rank *current(void)
{
    return thread_rank != NULL ? thread_rank : process_rank;
}

void zt_fail(const char *file, int line, const char *format, ...)
{
    const zt_rank *t = current();
    char what[1024], who[64] = "";
    va_list args;

    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (t != NULL && t->size > 0)
        snprintf(who, sizeof who, "rank %d of %d: ", t->rank, t->size);
    /* One write, because ranks fail together. */
    dprintf(STDERR_FILENO, "%s:%d: %s%s\n    last error: \"%s\"\n", file, line, who, what, zro_last_error());
    if (t != NULL)
        atomic_store(&t->shared->failed, 1);
    _exit(1);
}

void zt_check_status(const char *file, int line, const char *call, zro_status got, zro_status expected)
{
    if (got != expected)
        zt_fail(file, line, "%s is %s, not %s", call, zro_status_name(got), zro_status_name(expected));
}

void zt_check_text(const char *file, int line, const char *part)
{
    if (strstr(zro_last_error(), part) == NULL)
        zt_fail(file, line, "the error text has no \"%s\"", part);
}

static long count_entries(const char *folder)
{
    DIR *dir = opendir(folder);
    long n = 0;

    CHECK(dir != NULL);
    while (readdir(dir) != NULL)
        n++;
    closedir(dir);
    return n;
}

zt_held zt_held_now(void)
{
    zt_held held = { count_entries("/proc/self/fd"), count_entries("/proc/self/task"), 0 };
    FILE *maps = fopen("/proc/self/maps", "re");
    unsigned long from, to;
    char line[512];

    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps) != NULL)
        if (strstr(line, "memfd:") != NULL && sscanf(line, "%lx-%lx", &from, &to) == 2)
            held.memory_bytes += to - from;
    fclose(maps);
    return held;
}

static void nap(unsigned *tries)
{
    static const struct timespec pause = { 0, 200000 };

    if (++*tries < 200)
        sched_yield();
    else
        nanosleep(&pause, NULL);
}

void zt_check_held(const char *file, int line, zt_held before)
{
    zt_held now = zt_held_now();
    unsigned tries = 0;

    while (memcmp(&now, &before, sizeof now) != 0 && tries < 5000) {
        nap(&tries);
        now = zt_held_now();
    }
    if (now.descriptors != before.descriptors || now.threads != before.threads || now.memory_bytes != before.memory_bytes)
        zt_fail(file, line, "held before and now: %ld, %ld descriptors; %ld, %ld threads; %zu, %zu bytes of memory objects",
                before.descriptors, now.descriptors, before.threads, now.threads, before.memory_bytes, now.memory_bytes);
}

void zt_skip(zt_rank *t, const char *reason)
{
    snprintf(t->shared->skip, sizeof t->shared->skip, "%s", reason);
    _exit(EXIT_SKIPPED);
}

void zt_note(zt_rank *t, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(t->shared->note, sizeof t->shared->note, format, args);
    va_end(args);
}

void zt_expect_lost(zt_rank *t, int rank)
{
    atomic_fetch_or(&t->shared->lost, 1ULL << rank);
}

void zt_expect_anything(zt_rank *t, int rank)
{
    atomic_fetch_or(&t->shared->strays, 1ULL << rank);
}

void zt_die(zt_rank *t)
{
    zt_expect_lost(t, t->rank);
    zro__point_plan_set(
        NULL); /* it lies in a frame that a thread leaves now, and the library passes more points on its way out */
    if (t->threads)
        pthread_exit(NULL);
    /* MPICH's launcher lets others outlive a rank that exits, but not one that is killed. */
    if (t->backend != ZT_MPICH)
        raise(SIGKILL);
    _exit(7);
}

void zt_note_point(void *user, const char *name)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    zt_shared *shared = user;
    int p = 0;

    pthread_mutex_lock(&lock);
    while (p < ZT_MAX_POINTS && shared->text[p][0] != '\0' && strcmp(shared->text[p], name) != 0)
        p++;
    if (p < ZT_MAX_POINTS) {
        snprintf(shared->text[p], sizeof shared->text[p], "%s", name);
        atomic_fetch_add(&shared->passings[p], 1);
    }
    pthread_mutex_unlock(&lock);
}

uint64_t zt_next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t zt_below(uint64_t *state, uint64_t n)
{
    return zt_next(state) % n;
}

uint64_t zt_mix(uint64_t a, uint64_t b)
{
    uint64_t state = a;

    state = zt_next(&state) + b;
    return zt_next(&state);
}

void zt_await(zt_rank *t, const atomic_uint *flag, unsigned value)
{
    unsigned tries = 0;

    while (atomic_load(flag) < value) {
        if (atomic_load(&t->shared->failed))
            zt_fail(__FILE__, __LINE__, "gives up waiting, because another rank failed");
        nap(&tries);
    }
}

void zt_meet(zt_rank *t)
{
    unsigned size = (unsigned)t->size, arrived = atomic_fetch_add(&t->shared->met, 1);

    zt_await(t, &t->shared->met, (arrived / size + 1) * size);
}

void zt_exchange(zt_rank *t, const void *mine, size_t bytes, void *all)
{
    CHECK(bytes <= sizeof t->shared->parcels[0]);
    memcpy(t->shared->parcels[t->rank], mine, bytes);
    zt_meet(t);
    for (int r = 0; r < t->size; r++)
        memcpy((char *)all + (size_t)r * bytes, t->shared->parcels[r], bytes);
    zt_meet(t);
}

static void log_line(void *user, zro_log_level level, const char *text)
{
    (void)user;
    dprintf(STDERR_FILENO, "log %d: %s\n", (int)level, text);
}

zro_group_config zt_config(void)
{
    zro_group_config config = ZRO_GROUP_CONFIG_INIT;

    config.settings.threads = zt_opt.threads;
    config.settings.kernels = zt_opt.kernels;
    config.settings.fast = zt_opt.fast;
    config.settings.log = log_line;
    return config;
}

static zro_group *group_by_tickets(zt_rank *t, const zro_group_config *config)
{
    unsigned char mine[ZRO_TICKET_BYTES], all[ZT_MAX_RANKS * ZRO_TICKET_BYTES];
    zro_group *group;

    CHECK_OK(zro_group_ticket(config, t->rank, t->size, mine));
    zt_exchange(t, mine, sizeof mine, all);
    CHECK_OK(zro_group_create_tickets(config, t->rank, t->size, all, &group));
    return group;
}

int zt_machine(const zt_rank *t, zt_machines machines, int rank)
{
    switch (machines) {
    case ZT_TWO:
        return rank % 2;
    case ZT_OWN:
        return rank;
    case ZT_HALVES:
        return rank >= (t->size + 1) / 2;
    default:
        return 0;
    }
}

int64_t zt_config_machine(const zt_rank *t, zt_machines machines, int rank)
{
    return machines == ZT_TWO || machines == ZT_OWN ? zt_machine(t, machines, rank) : ZRO_MACHINE_AUTO;
}

zro_group *zt_group_with(zt_rank *t, const zro_group_config *config)
{
    zro_group_config c = *config;
    zro_link link;

    if (c.machine == ZRO_MACHINE_AUTO)
        c.machine = zt_config_machine(t, t->machines, t->rank);
    if ((t->backend & ZT_MPI) != 0)
        return zt_mpi_group(&c);
    if (t->backend == ZT_FOREIGN) {
        zt_foreign_open(t, &link);
        c.link = &link;
    }
    return group_by_tickets(t, &c);
}

zro_group *zt_group(zt_rank *t, uint64_t timeout_ms)
{
    zro_group_config config = zt_config();

    config.timeout_ms = timeout_ms;
    return zt_group_with(t, &config);
}

/* ---- ranks ---- */

/* From here on this thread is the rank. */
static void enter_rank(zt_rank *t)
{
    t->random = zt_mix(t->seed, (uint64_t)t->rank + 1);
    thread_rank = t;
    if (!t->threads)
        process_rank = t;
}

/* Touches the page for the last time: for the next case it is cleared. */
static void leave_rank(zt_rank *t)
{
    thread_rank = NULL;
    if (!t->threads)
        process_rank = NULL;
    atomic_fetch_or(&t->shared->finished, 1ULL << t->rank);
}

typedef struct start {
    zt_rank common;
    zt_fn run;
    const zro_group_config *config;
} start;

/* A rank that makes its group itself. */
static void run_with_group(zt_rank *t, const zro_group_config *config, zt_fn run)
{
    enter_rank(t);
    t->group = zt_group_with(t, config);
    run(t);
    zro_group_destroy(t->group);
    leave_rank(t);
}

static int rank_main(void *user, zro_group *group)
{
    const start *s = user;
    zt_rank t = s->common;

    t.group = group;
    t.rank = zro_group_rank(group);
    t.size = zro_group_size(group);
    if (t.machines != ZT_ONE) {
        run_with_group(&t, s->config, s->run);
        return 0;
    }
    enter_rank(&t);
    s->run(&t);
    leave_rank(&t);
    return 0;
}

/* What zro_spawn and zro_spawn_threads do, for ranks whose group has a link. */
static zro_status fork_ranks(const start *s, int size)
{
    pid_t pids[ZT_MAX_RANKS];
    zro_status st = ZRO_OK;
    int status;

    fflush(NULL);
    for (int r = 0; r < size; r++) {
        pids[r] = fork();
        CHECK(pids[r] >= 0);
        if (pids[r] == 0) {
            zt_rank t = s->common;

            t.rank = r;
            t.size = size;
            run_with_group(&t, s->config, s->run);
            exit(0);
        }
    }
    for (int r = 0; r < size; r++) {
        CHECK(waitpid(pids[r], &status, 0) == pids[r]);
        if (status != 0)
            st = WIFSIGNALED(status) ? ZRO_ERR_LOST : st == ZRO_OK ? ZRO_ERR_PEER : st;
    }
    return st;
}

typedef struct thread_start {
    const start *s;
    int rank, size;
} thread_start;

static void *thread_main(void *user)
{
    const thread_start *a = user;
    zt_rank t = a->s->common;

    t.rank = a->rank;
    t.size = a->size;
    run_with_group(&t, a->s->config, a->s->run);
    return NULL;
}

static zro_status thread_ranks(const start *s, int size)
{
    thread_start starts[ZT_MAX_RANKS];
    pthread_t threads[ZT_MAX_RANKS];

    for (int r = 0; r < size; r++) {
        starts[r] = (thread_start){ s, r, size };
        CHECK(pthread_create(&threads[r], NULL, thread_main, &starts[r]) == 0);
    }
    for (int r = 0; r < size; r++)
        CHECK(pthread_join(threads[r], NULL) == 0);
    return ZRO_OK;
}

static zro_status start_ranks(int size, start *s)
{
    switch (s->common.backend) {
    case ZT_THREADS:
        return zro_spawn_threads(s->config, size, rank_main, s);
    case ZT_FOREIGN:
        return s->common.threads ? thread_ranks(s, size) : fork_ranks(s, size);
    default:
        return zro_spawn(s->config, size, rank_main, s);
    }
}

void zt_ranks(zt_rank *t, int backend, const zro_group_config *config, int size, zt_fn fn, void *user)
{
    start s = { *t, fn, config };
    unsigned long long all = size < 64 ? (1ULL << size) - 1 : ~0ULL, lost, finished, strays;
    zro_status st;

    s.common.user = user;
    s.common.backend = backend;
    s.common.threads = backend == ZT_THREADS || (backend == ZT_FOREIGN && zt_foreign_is_threads());
    if (backend == ZT_FOREIGN && t->machines == ZT_ONE)
        s.common.machines = ZT_OWN;
    atomic_store(&t->shared->finished, 0);
    atomic_store(&t->shared->lost, 0);
    atomic_store(&t->shared->strays, 0);
    atomic_store(&t->shared->met, 0);
    st = start_ranks(size, &s);
    if (t->shared->skip[0] != '\0')
        _exit(EXIT_SKIPPED);
    lost = atomic_load(&t->shared->lost);
    finished = atomic_load(&t->shared->finished);
    strays = atomic_load(&t->shared->strays);
    if ((strays == 0 ? st != (lost != 0 ? ZRO_ERR_LOST : ZRO_OK) : atomic_load(&t->shared->failed))
        || (finished & ~strays) != (all & ~lost & ~strays))
        zt_fail(__FILE__, __LINE__, "%d ranks: %s; at their end: %#llx, expected to be lost: %#llx", size, zro_status_name(st),
                finished, lost);
}

/* ---- instances ---- */

static zt_rank rank_of_case(const zt_case *c, zt_shared *shared)
{
    zt_rank t = { .arg = c->arg, .shared = shared, .seed = zt_opt.seed };

    t.machines = (c->flags & ZT_TWO_MACHINES) != 0   ? ZT_TWO
                 : (c->flags & ZT_OWN_MACHINES) != 0 ? ZT_OWN
                 : zt_opt.hosts                      ? ZT_HALVES
                                                     : ZT_ONE;
    for (const char *p = c->name; *p != '\0'; p++)
        t.seed = zt_mix(t.seed, (unsigned char)*p);
    t.random = t.seed;
    return t;
}

static zro_group_config config_of_case(const zt_case *c)
{
    zro_group_config config = zt_config();

    config.timeout_ms =
        c->timeout_ms != 0 ? c->timeout_ms : (c->deadline_s != 0 ? c->deadline_s : ZT_DEADLINE_S) * UINT64_C(750);
    return config;
}

void zt_run(const zt_case *c, int backend, int size, zt_shared *shared)
{
    zro_group_config config = config_of_case(c);
    zt_rank t = rank_of_case(c, shared);

    thread_rank = &t;
    if (size == 0)
        c->run(&t);
    else
        zt_ranks(&t, backend, &config, size, c->run, NULL);
    /* A dead thread frees nothing; a look for leaks would find what it held. */
    if (backend == ZT_THREADS && atomic_load(&shared->lost) != 0)
        _exit(0);
    thread_rank = NULL;
}

void zt_run_rank(const zt_case *c, int backend, int rank, int size, zt_shared *shared)
{
    zro_group_config config = config_of_case(c);
    zt_rank t = rank_of_case(c, shared);

    t.backend = backend;
    t.rank = rank;
    t.size = size;
    run_with_group(&t, &config, c->run);
}
