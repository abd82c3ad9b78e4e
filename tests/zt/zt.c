/* The side of zt that runs inside an instance: checks, meeting places, groups, and the start of ranks.  See zt.h. */
#define _GNU_SOURCE
#include "zt/zt.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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

void zt_die(zt_rank *t)
{
    zt_expect_lost(t, t->rank);
    if (t->threads)
        pthread_exit(NULL);
    raise(SIGKILL);
    _exit(1);
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

zro_group *zt_group_with(zt_rank *t, const zro_group_config *config)
{
    unsigned char mine[ZRO_TICKET_BYTES], all[ZT_MAX_RANKS * ZRO_TICKET_BYTES];
    zro_group *group;

    CHECK_OK(zro_group_ticket(config, t->rank, t->size, mine));
    zt_exchange(t, mine, sizeof mine, all);
    CHECK_OK(zro_group_create_tickets(config, t->rank, t->size, all, &group));
    return group;
}

zro_group *zt_group(zt_rank *t, uint64_t timeout_ms)
{
    zro_group_config config = zt_config();

    config.timeout_ms = timeout_ms;
    return zt_group_with(t, &config);
}

typedef struct start {
    zt_rank common;
    zt_fn run;
} start;

static int rank_main(void *user, zro_group *group)
{
    const start *s = user;
    zt_rank t = s->common;

    t.group = group;
    t.rank = zro_group_rank(group);
    t.size = zro_group_size(group);
    t.random = zt_mix(t.seed, (uint64_t)t.rank + 1);
    thread_rank = &t;
    if (!t.threads)
        process_rank = &t;
    s->run(&t);
    atomic_fetch_or(&t.shared->finished, 1ULL << t.rank);
    thread_rank = NULL;
    if (!t.threads)
        process_rank = NULL;
    return 0;
}

void zt_ranks(zt_rank *t, int backend, const zro_group_config *config, int size, zt_fn fn, void *user)
{
    start s = { *t, fn };
    unsigned long long all = size < 64 ? (1ULL << size) - 1 : ~0ULL, lost, finished;
    zro_status st;

    s.common.user = user;
    s.common.threads = backend == ZT_THREADS;
    atomic_store(&t->shared->finished, 0);
    atomic_store(&t->shared->lost, 0);
    atomic_store(&t->shared->met, 0);
    st = (backend == ZT_THREADS ? zro_spawn_threads : zro_spawn)(config, size, rank_main, &s);
    if (t->shared->skip[0] != '\0')
        _exit(EXIT_SKIPPED);
    lost = atomic_load(&t->shared->lost);
    finished = atomic_load(&t->shared->finished);
    if (st != (lost != 0 ? ZRO_ERR_LOST : ZRO_OK) || finished != (all & ~lost))
        zt_fail(__FILE__, __LINE__, "%d ranks: %s; at their end: %#llx, expected to be lost: %#llx", size, zro_status_name(st),
                finished, lost);
}

void zt_run(const zt_case *c, int backend, int size, zt_shared *shared)
{
    zro_group_config config = zt_config();
    zt_rank t = { .arg = c->arg, .shared = shared, .seed = zt_opt.seed };

    for (const char *p = c->name; *p != '\0'; p++)
        t.seed = zt_mix(t.seed, (unsigned char)*p);
    t.random = t.seed;
    config.timeout_ms = c->timeout_ms != 0 ? c->timeout_ms : (c->deadline_s != 0 ? c->deadline_s : 30) * UINT64_C(750);
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
