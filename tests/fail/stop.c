/* Ranks that stop: TIMEOUT says what was waited for and by whom it was kept waiting; a job that is stopped and continued as a
 * whole does not expire, because a waiter counts only the time in which it ran. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/point.h"
#include "zt/job.h"
#include "zt/list.h"
#include "zt/zt.h"

enum { TIMEOUT_MS = 1500, PAUSE_MS = 4000, SHORT_MS = 500, POINTS_MS = 1000, LATE = 1 };

static void pause_ms(long ms)
{
    struct timespec left = { ms / 1000, ms % 1000 * 1000000 };

    while (nanosleep(&left, &left) != 0) {
    }
}

/* The number after the nth "operation " of the error text. */
static long operation_number(int nth)
{
    const char *p = zro_last_error();
    long number = -1;

    for (int i = 0; i <= nth && p != NULL; i++) {
        p = strstr(p, "operation ");
        if (p != NULL)
            p += strlen("operation ");
    }
    CHECK(p != NULL && sscanf(p, "%ld", &number) == 1);
    return number;
}

static pid_t pid_of(zt_rank *t, int rank)
{
    return (pid_t)atomic_load(&t->shared->number[rank]);
}

/* SIGCONT may come before the SIGSTOP that it is meant for. */
static void continue_rank(zt_rank *t, int rank)
{
    while (atomic_load(&t->shared->flag[rank]) == 0) {
        kill(pid_of(t, rank), SIGCONT);
        pause_ms(1);
    }
}

static void stopped_rank(zt_rank *t)
{
    float x[1000] = { 0 };
    zro_status st;

    CHECK_OK(zro_all_reduce(t->group, x, 777, ZRO_F32, ZRO_MIN));
    if (t->rank == 1) {
        atomic_store(&t->shared->number[1], (unsigned long long)getpid());
        if (t->threads)
            zt_await(t, &t->shared->flag[0], (unsigned)t->size - 1);
        else
            raise(SIGSTOP);
        atomic_store(&t->shared->flag[1], 1);
        /* What the others sent before they gave up is there: the verdict may come with the next call. */
        st = zro_broadcast(t->group, x, 10, ZRO_F32, 0);
        CHECK_STATUS(st != ZRO_OK || t->machines == ZT_ONE ? st : zro_barrier(t->group), ZRO_ERR_TIMEOUT);
        return;
    }
    CHECK_STATUS(zro_broadcast(t->group, x, 10, ZRO_F32, 0), ZRO_ERR_TIMEOUT);
    CHECK_TEXT("broadcast of 10 f32, root 0");
    CHECK_TEXT("missing: 1");
    CHECK_TEXT("rank 1");
    CHECK_TEXT("all_reduce of 777 f32, min");
    CHECK(operation_number(0) == operation_number(1) + 1);
    CHECK_STATUS(zro_barrier(t->group), ZRO_ERR_TIMEOUT);
    CHECK_STATUS(zro_group_status(t->group), ZRO_ERR_TIMEOUT);
    atomic_fetch_add(&t->shared->flag[0], 1);
    if (t->rank == 0 && !t->threads) {
        zt_await(t, &t->shared->flag[0], (unsigned)t->size - 1);
        continue_rank(t, 1);
    }
}

/* ---- stopped at each point of an all-reduce ---- */

static void note_point(void *user, const char *name)
{
    zt_shared *shared = user;
    int p = 0;

    while (p < 63 && shared->text[p][0] != '\0' && strcmp(shared->text[p], name) != 0)
        p++;
    snprintf(shared->text[p], sizeof shared->text[p], "%s", name);
}

static zro_status reduce_and_meet(zro_group *group)
{
    static float x[100000];
    zro_status st = zro_all_reduce(group, x, 100000, ZRO_F32, ZRO_SUM);

    return st == ZRO_OK ? zro_barrier(group) : st;
}

static void stopped_at(zt_rank *t)
{
    const char *point = t->user;
    zro__point_plan plan = { .name = point, .action = ZRO__POINT_STOP, .nth = 1 };

    CHECK_OK(zro_barrier(t->group));
    if (t->rank != 1) {
        CHECK_STATUS(reduce_and_meet(t->group), point != NULL ? ZRO_ERR_TIMEOUT : ZRO_OK);
        if (t->rank == 0 && point != NULL)
            continue_rank(t, 1);
        return;
    }
    if (point == NULL) {
        plan.action = ZRO__POINT_LIST;
        plan.seen = note_point;
        plan.user = t->shared;
    }
    atomic_store(&t->shared->number[1], (unsigned long long)getpid());
    zro__point_plan_set(&plan);
    CHECK_STATUS(reduce_and_meet(t->group), point != NULL ? ZRO_ERR_TIMEOUT : ZRO_OK);
    zro__point_plan_set(NULL);
    atomic_store(&t->shared->flag[1], 1);
}

static void stop_points(zt_rank *t)
{
    zro_group_config config = zt_config();
    int points = 0;

    config.timeout_ms = POINTS_MS;
    zt_ranks(t, ZT_LOCAL, &config, 3, stopped_at, NULL);
    for (; points < 64 && t->shared->text[points][0] != '\0'; points++) {
        /* Where one rank waits for another in vain depends on who comes first, so not every point is passed each time. */
        if (strncmp(t->shared->text[points], "slot.", 5) != 0)
            continue;
        printf("stopped at %s\n", t->shared->text[points]);
        atomic_store(&t->shared->flag[1], 0);
        zt_ranks(t, ZT_LOCAL, &config, 3, stopped_at, t->shared->text[points]);
    }
    if (points == 0)
        zt_skip(t, "the library was built without ZRO__POINTS");
}

/* ---- stopped and continued ---- */

/* How often the process has gone to sleep of its own accord; -1 if it is gone. */
static long sleeps_of(pid_t pid)
{
    char path[64], line[128];
    long n = -1;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        sscanf(line, "voluntary_ctxt_switches: %ld", &n);
    if (file != NULL)
        fclose(file);
    return n;
}

/* Until a waiting rank has gone to sleep three times more: then it sleeps between two looks at its deadline, and has looked.
 * One that gives up ends, and sleeps no more; one that hardly gets the processor is not waited for. */
static void await_more_sleep(pid_t pid)
{
    long before = sleeps_of(pid);

    for (int ms = 0; ms < SHORT_MS && sleeps_of(pid) >= 0 && sleeps_of(pid) < before + 3; ms++)
        pause_ms(1);
}

/* Stops the ranks of `mask` when all are where they should be, for longer than their deadline, and lets the late one go. */
static _Noreturn void stopper(zt_rank *t, int size, unsigned mask, long ms)
{
    for (int r = 0; r < size; r++)
        zt_await(t, &t->shared->flag[r], 1);
    for (int r = 0; r < size; r++)
        if (r != LATE)
            await_more_sleep(pid_of(t, r));
    for (int r = 0; r < size; r++)
        if ((mask >> r & 1) != 0)
            kill(pid_of(t, r), SIGSTOP);
    pause_ms(ms);
    for (int r = 0; r < size; r++)
        kill(pid_of(t, r), SIGCONT);
    for (int r = 0; r < size; r++)
        if (r != LATE)
            await_more_sleep(pid_of(t, r));
    atomic_store(&t->shared->flag[size], 1);
    _exit(0);
}

static void goes_on(zt_rank *t)
{
    float x = 1;

    CHECK_OK(zro_barrier(t->group));
    atomic_store(&t->shared->number[t->rank], (unsigned long long)getpid());
    atomic_store(&t->shared->flag[t->rank], 1);
    if (t->rank == LATE)
        zt_await(t, &t->shared->flag[t->size], 1);
    CHECK_OK(zro_all_reduce(t->group, &x, 1, ZRO_F32, ZRO_SUM));
    CHECK(x == (float)t->size);
}

static void stop_and_continue(zt_rank *t)
{
    zro_group_config config = zt_config();
    unsigned mask = t->arg == 0 ? 7 : 2;
    int status;
    pid_t pid;

    config.timeout_ms = t->arg == 0 ? 2 * TIMEOUT_MS : 20000;
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        stopper(t, 3, mask, t->arg == 0 ? PAUSE_MS + SHORT_MS : SHORT_MS);
    zt_ranks(t, ZT_LOCAL, &config, 3, goes_on, NULL);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(status == 0);
}

#define SMALL_WORLDS (ZT_WORLD(2) | ZT_WORLD(3))

const zt_case cases_fail_stop[] = {
    { "stopped_rank", stopped_rank, SMALL_WORLDS, ZT_ALL, 0, 30, TIMEOUT_MS, 0 },
    { "stopped_rank_machines", stopped_rank, ZT_WORLD(2), ZT_MPI, ZT_OWN_MACHINES, 30, TIMEOUT_MS, 0 },
    { "stopped_rank_machines", stopped_rank, ZT_WORLD(3), ZT_THREADS | ZT_MPI, ZT_OWN_MACHINES, 30, TIMEOUT_MS, 0 },
    { "stopped_rank_two", stopped_rank, ZT_WORLD(4), ZT_LINKS, ZT_TWO_MACHINES, 30, TIMEOUT_MS, 0 },
    { "stop_points", stop_points, 0, ZT_LOCAL, ZT_KILLS, 60, 0, 0 },
    { "stop_all_and_continue", stop_and_continue, 0, ZT_LOCAL, 0, 30, 0, 0 },
    { "stop_one_and_continue", stop_and_continue, 0, ZT_LOCAL, 0, 30, 0, 1 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
