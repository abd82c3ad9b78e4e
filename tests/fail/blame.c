/* Who is to blame: the text of a verdict names the rank that keeps everybody waiting, and what it does instead; and the wait for
 * all of an operation's ranks has one deadline. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/point.h"
#include "zt/list.h"
#include "zt/zt.h"

enum { TIMEOUT_MS = 1500 };

static void pause_ms(long ms)
{
    struct timespec left = { ms / 1000, ms % 1000 * 1000000 };

    while (nanosleep(&left, &left) != 0) {
    }
}

/* ---- a call of the optimizer on one rank alone ---- */

enum { STEP, PUBLISH, CONSOLIDATE, ALONE };

static const char *const alone_names[ALONE] = { "optim_step", "optim_publish", "optim_consolidate" };

static zro_status call_alone(zro_optim *opt, int what)
{
    zro_state *state;

    return what == STEP      ? zro_optim_step(opt, NULL)
           : what == PUBLISH ? zro_optim_publish(opt)
                             : zro_optim_consolidate(opt, 0, &state);
}

/* The optimizer works on a group of its own, so the calls do not meet: each rank called another group.  All are told both
 * calls. */
static void one_rank_alone(zt_rank *t)
{
    for (int what = 0; what < ALONE; what++) {
        float x[3000] = { 0 }, grad[3000] = { 0 };
        zro_group *group = zt_group(t, TIMEOUT_MS);
        zro_param param = ZRO_PARAM_INIT;
        zro_param_group params = { .params = &param, .n = 1 };
        zro_optim *opt;

        param.shape[0] = 3000;
        param.data = x;
        zro_param_set_grad(&param, grad);
        CHECK_OK(zro_optim_create(group, &params, 1, zro_rule_sgd(), NULL, NULL, &opt));
        CHECK_STATUS(t->rank == 0 ? call_alone(opt, what) : zro_barrier(group), ZRO_ERR_TIMEOUT);
        CHECK_TEXT(alone_names[what]);
        CHECK_TEXT("barrier");
        CHECK(strstr(zro_last_error(), " of 0 ") == NULL); /* there is nothing to count */
        CHECK_TEXT(t->rank == 0 ? "rank 1 called another group" : "rank 0 called another group");
        if (t->rank == 0 && t->size > 2)
            CHECK_TEXT("rank 2 called another group");
        CHECK_TEXT(t->rank > 0 ? "(an optimizer's own): operation" : "(this one is an optimizer's own): operation");
        zt_meet(t); /* else whoever goes first is missed by the others, who are told that it is gone */
        zro_optim_destroy(opt);
        zro_group_destroy(group);
    }
}

/* ---- a long wait ---- */

typedef struct heard {
    zt_rank *t;
    int warnings;
} heard;

static void hear(void *user, zro_log_level level, const char *text)
{
    heard *h = user;

    CHECK(level == ZRO_LOG_WARN);
    CHECK(strstr(text, "barrier has waited") != NULL && strstr(text, "for rank 1; the last of rank 1 was") != NULL);
    h->warnings++;
    atomic_fetch_add(&h->t->shared->flag[0], 1);
}

/* Long before it gives up a rank says for whom it waits, and what that one does; once per call. */
static void long_wait(zt_rank *t)
{
    heard h = { t, 0 };
    zro_group_config config = zt_config();
    zro_group *group;

    config.timeout_ms = 50000;
    config.settings.log = hear;
    config.settings.log_user = &h;
    config.settings.warn_ms = 200;
    group = zt_group_with(t, &config);
    CHECK_OK(zro_barrier(group));
    if (t->rank == 1)
        zt_await(t, &t->shared->flag[0], (unsigned)t->size - 1);
    CHECK_OK(zro_barrier(group));
    CHECK(h.warnings == (t->rank != 1));
    zro_group_destroy(group);
}

/* ---- a rank that waits for another ---- */

/* The root sends to rank 1 first, which is stopped; so rank 2, which gets nothing, waits for the root.  It finds out first. */
static void blocked_root(zt_rank *t)
{
    enum { N = 4 << 20 };
    zro_group_config config = zt_config();
    zro__point_plan plan = { .name = "slot.gathered", .action = ZRO__POINT_STOP, .nth = 1 };
    float *x = calloc(N, sizeof *x);
    zro_group *group;

#ifndef ZRO__POINTS
    zt_skip(t, "the library was built without ZRO__POINTS");
#endif
    CHECK(x != NULL);
    config.timeout_ms = t->rank == 2 ? TIMEOUT_MS : 20 * TIMEOUT_MS;
    group = zt_group_with(t, &config);
    CHECK_OK(zro_barrier(group));
    atomic_store(&t->shared->number[t->rank], (unsigned long long)getpid());
    zt_meet(t);
    if (t->rank == 1)
        zro__point_plan_set(&plan);
    CHECK_STATUS(zro_broadcast(group, x, N, ZRO_F32, 0), ZRO_ERR_TIMEOUT);
    zro__point_plan_set(NULL);
    CHECK_TEXT("no answer from rank 1, for which rank 0 waits");
    while (t->rank == 2 && atomic_load(&t->shared->flag[1]) == 0) { /* SIGCONT may come before the SIGSTOP */
        kill((pid_t)atomic_load(&t->shared->number[1]), SIGCONT);
        pause_ms(1);
    }
    atomic_store(&t->shared->flag[t->rank], 1);
    zro_group_destroy(group);
    free(x);
}

/* ---- one deadline for all ---- */

/* Each rank comes within the deadline of the one before it.  Together they are late. */
static void one_after_another(zt_rank *t)
{
    zro_group *group = zt_group(t, TIMEOUT_MS);

    CHECK_OK(zro_barrier(group));
    for (int ms = 0; ms < t->rank * TIMEOUT_MS * 4 / 5 && zro_group_status(group) == ZRO_OK; ms += 10)
        pause_ms(10);
    CHECK_STATUS(zro_barrier(group), ZRO_ERR_TIMEOUT);
    zro_group_destroy(group);
}

/* ---- arrays of other groups ---- */

/* Rank 2 reaches arrays of a group that it is not in.  It keeps some of them mapped for the next time, but not all for ever. */
static void borrowed_arrays(zt_rank *t)
{
    enum { N = 5000, ROUNDS = 300 };
    int members[] = { 0, 1 };
    zro_group *pair = NULL;
    zro_memory *own;
    size_t mapped = 0;

    CHECK_OK(zro_group_create_sub(t->group, members, 2, &pair));
    CHECK_OK(zro_memory_alloc(t->group, ZRO_MEMORY_EACH, N * sizeof(float), &own));
    for (int round = 0; round < ROUNDS; round++) {
        zro_memory *memory = NULL;
        float *x = zro_memory_data(own);

        if (pair != NULL)
            CHECK_OK(zro_memory_alloc(pair, ZRO_MEMORY_EACH, N * sizeof(float), &memory));
        x = pair != NULL ? zro_memory_data(memory) : x;
        for (int i = 0; i < N; i++)
            x[i] = (float)(t->rank + i % 7);
        CHECK_OK(zro_all_reduce(t->group, x, N, ZRO_F32, ZRO_SUM));
        for (int i = 0; i < N; i++)
            CHECK(x[i] == (float)(3 + 3 * (i % 7)));
        zro_memory_free(memory);
        if (round == ROUNDS / 2)
            mapped = zt_held_now().memory_bytes;
    }
    CHECK(zt_held_now().memory_bytes <= mapped);
    zro_memory_free(own);
    zro_group_destroy(pair);
}

const zt_case cases_fail_blame[] = {
    { "S94_one_rank_alone", one_rank_alone, ZT_WORLD(2) | ZT_WORLD(3), ZT_ALL, 0, 60, 0, 0 },
    { "S94_long_wait", long_wait, ZT_WORLD(3), ZT_ALL, 0, 60, 0, 0 },
    { "blame_blocked_root", blocked_root, ZT_WORLD(3), ZT_LOCAL, ZT_KILLS, 60, 0, 0 },
    { "one_deadline", one_after_another, ZT_WORLD(4), ZT_LOCAL, 0, 60, 0, 0 },
    { "borrowed_arrays", borrowed_arrays, ZT_WORLD(3), ZT_LOCAL, 0, 60, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
