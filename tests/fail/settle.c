/* What each protection against a late rank does by itself (board/late.h): a rank is held at a point until the others have given
 * up, and then the one thing is looked at that would go wrong without that protection. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/point.h"
#include "zt/list.h"
#include "zt/zt.h"

enum { RANKS = 3, LATE = 2, VICTIM = 1, N = 1 << 20, FEW = 256, TIMEOUT_MS = 400 };
enum { HELD, GAVE_UP, LET_GO, RETURNED }; /* flags of the shared page */

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * 1000000 }, NULL);
}

/* ---- what is looked at ---- */

static float *fill(const zt_rank *t, zro_memory *memory)
{
    float *x = zro_memory_data(memory);

    for (int i = 0; i < N; i++)
        x[i] = (float)(t->rank + i % 5);
    return x;
}

/* The late rank goes on when the others have written into their arrays again. */
static void hold(void *user)
{
    zt_rank *t = user;

    atomic_store(&t->shared->flag[HELD], 1);
    zt_await(t, &t->shared->flag[GAVE_UP], RANKS - 1);
}

typedef struct trial {
    const char *point;
    long nth;
} trial;

/* An all-reduce in place.  The late rank's call is not OK, and it writes nothing of what it had not begun to write. */
static void held_in_call(zt_rank *t)
{
    const trial *what = t->user;
    zro__point_plan plan = { .name = what->point, .action = ZRO__POINT_KILL, .nth = what->nth, .kill_rank = hold, .user = t };
    zro_memory *memory;
    float *x;

    CHECK_OK(zro_memory_alloc(t->group, ZRO_MEMORY_EACH, N * sizeof(float), &memory));
    x = fill(t, memory);
    CHECK_OK(zro_barrier(t->group));
    if (t->rank == LATE)
        zro__point_plan_set(&plan);
    CHECK_STATUS(zro_all_reduce(t->group, x, N, ZRO_F32, ZRO_SUM), ZRO_ERR_TIMEOUT);
    zro__point_plan_set(NULL);
    if (t->rank == LATE) {
        CHECK(atomic_load(&t->shared->flag[HELD]) == 1);
        atomic_store(&t->shared->flag[RETURNED], 1);
    } else {
        for (int i = 0; i < N; i++)
            x[i] = -7;
        atomic_fetch_add(&t->shared->flag[GAVE_UP], 1);
        zt_await(t, &t->shared->flag[RETURNED], 1);
        for (int i = 0; i < N; i++)
            CHECK(x[i] == -7);
    }
    zro_memory_free(memory);
}

/* A step of parameters that exist once: a rank that comes late to its update leaves it. */
static void held_in_step(zt_rank *t)
{
    const trial *what = t->user;
    zro__point_plan plan = { .name = what->point, .action = ZRO__POINT_KILL, .nth = what->nth, .kill_rank = hold, .user = t };
    zro_param p;
    zro_param_group list = ZRO_PARAM_GROUP_INIT;
    zro_optim *opt;
    uint64_t before, after;

    zro_param_make(&p, NULL, ZRO_F32, NULL, NULL, 1, (const size_t[]){ N });
    CHECK_OK(zro_params_alloc(t->group, &p, 1, NULL));
    for (int i = 0; i < N; i++)
        ((float *)p.grad)[i] = 1;
    zro_params_mark_grads(&p, 1);
    list.params = &p;
    list.n = 1;
    CHECK_OK(zro_optim_create(t->group, &list, 1, zro_rule_sgd(), NULL, NULL, &opt));
    CHECK_OK(zro_optim_step(opt, NULL));
    CHECK_OK(zro_barrier(t->group));
    if (t->rank == LATE)
        zro__point_plan_set(&plan);
    CHECK_STATUS(zro_optim_step(opt, NULL), ZRO_ERR_TIMEOUT);
    zro__point_plan_set(NULL);
    if (t->rank == LATE) {
        atomic_store(&t->shared->flag[RETURNED], 1);
    } else {
        CHECK_OK(zro_params_hash(&p, 1, &before));
        atomic_fetch_add(&t->shared->flag[GAVE_UP], 1);
        zt_await(t, &t->shared->flag[RETURNED], 1);
        CHECK_OK(zro_params_hash(&p, 1, &after));
        CHECK(before == after);
    }
    zro_optim_destroy(opt);
    zro_params_free(&p, 1);
}

/* The root waits for a late rank, which gathers into its array.  Another rank has gone on to a call whose pieces travel with the
 * arrivals: nobody could write into its array, which is not refused. */
static void held_in_gather(zt_rank *t)
{
    zro__point_plan plan = { .name = "owner.piece", .action = ZRO__POINT_KILL, .nth = 1, .kill_rank = hold, .user = t };
    const int members[] = { 0, VICTIM };
    const size_t piece = N / RANKS;
    zro_memory *memory, *few;
    zro_group *pair;
    float *x, *y;

    CHECK_OK(zro_group_create_sub(t->group, members, 2, &pair));
    CHECK_OK(zro_memory_alloc(t->group, ZRO_MEMORY_EACH, N * sizeof(float), &memory));
    CHECK_OK(zro_memory_alloc(t->group, ZRO_MEMORY_EACH, FEW * sizeof(float), &few));
    x = fill(t, memory);
    y = zro_memory_data(few);
    CHECK_OK(zro_barrier(t->group));
    if (t->rank == LATE)
        zro__point_plan_set(&plan);
    if (t->rank == VICTIM)
        CHECK_OK(zro_gather(t->group, x, NULL, piece, ZRO_F32, 0));
    if (t->rank == VICTIM)
        CHECK_STATUS(zro_all_reduce(t->group, y, FEW, ZRO_F32, ZRO_SUM), ZRO_ERR_TIMEOUT);
    else
        CHECK_STATUS(zro_gather(t->group, x + (size_t)t->rank * piece, x, piece, ZRO_F32, 0), ZRO_ERR_TIMEOUT);
    zro__point_plan_set(NULL);
    if (t->rank != LATE) {
        atomic_fetch_add(&t->shared->flag[LET_GO], 1);
        zt_await(t, &t->shared->flag[LET_GO], RANKS - 1);
        for (int i = 0; i < FEW; i++)
            y[i] = (float)i;
        CHECK_OK(zro_all_reduce(pair, y, FEW, ZRO_F32, ZRO_SUM));
        for (int i = 0; i < FEW; i++)
            CHECK(y[i] == (float)(2 * i));
        CHECK_STATUS(zro_all_reduce(pair, x, N, ZRO_F32, ZRO_SUM), t->rank == 0 ? ZRO_ERR_STATE : ZRO_ERR_PEER);
        atomic_fetch_add(&t->shared->flag[GAVE_UP], 1);
    }
    zro_memory_free(few);
    zro_memory_free(memory);
    zro_group_destroy(pair);
}

static void late_alone(zt_rank *t)
{
    static const trial calls[] = { { "slot.gathered", 1 }, { "owner.piece", 1 }, { "owner.piece", 2 }, { "xfer.done", 1 } };
    static const trial steps[] = { { "slot.gathered", 1 } }; /* the vote after which updates begin */
    zro_group_config config = zt_config();

#ifndef ZRO__POINTS
    zt_skip(t, "the library was built without ZRO__POINTS");
#endif
    config.timeout_ms = TIMEOUT_MS;
    for (size_t i = 0; i < sizeof calls / sizeof *calls + sizeof steps / sizeof *steps; i++) {
        const int is_step = i >= sizeof calls / sizeof *calls;
        trial what = is_step ? steps[i - sizeof calls / sizeof *calls] : calls[i];

        printf("%s held at %s, passing %ld\n", is_step ? "step" : "all_reduce", what.point, what.nth);
        for (int k = 0; k < 4; k++)
            atomic_store(&t->shared->flag[k], 0);
        zt_ranks(t, ZT_LOCAL, &config, RANKS, is_step ? held_in_step : held_in_call, &what);
    }
    for (int k = 0; k < 4; k++)
        atomic_store(&t->shared->flag[k], 0);
    zt_ranks(t, ZT_LOCAL, &config, RANKS, held_in_gather, NULL);
}

/* ---- settling ---- */

/* The late rank goes on a little after it was given up: it can be waited for. */
static void hold_briefly(void *user)
{
    zt_rank *t = user;

    atomic_store(&t->shared->flag[HELD], 1);
    while (zro_group_status(t->group) == ZRO_OK)
        pause_ms(1);
    pause_ms(20);
    atomic_store(&t->shared->flag[LET_GO], 1);
}

static void die_then(void *user)
{
    zt_rank *t = user;

    zt_await(t, &t->shared->flag[HELD], 1);
    raise(SIGKILL);
}

/* Rank 1 dies.  Rank 0 returns when rank 2 has left, or refuses the array afterwards; mostly the former. */
static void waits_for_the_living(zt_rank *t)
{
    zro__point_plan plan = { .name = "owner.piece", .action = ZRO__POINT_KILL, .nth = 1, .user = t };
    int members[] = { 0, LATE };
    zro_group *pair;
    zro_memory *memory;
    zro_status st;
    float *x;
    int left;

    CHECK_OK(zro_group_create_sub(t->group, members, 2, &pair));
    CHECK_OK(zro_memory_alloc(t->group, ZRO_MEMORY_EACH, N * sizeof(float), &memory));
    x = fill(t, memory);
    CHECK_OK(zro_barrier(t->group));
    plan.kill_rank = t->rank == LATE ? hold_briefly : die_then;
    if (t->rank == VICTIM)
        zt_expect_lost(t, VICTIM);
    if (t->rank != 0)
        zro__point_plan_set(&plan);
    CHECK_STATUS(zro_all_reduce(t->group, x, N, ZRO_F32, ZRO_SUM), ZRO_ERR_LOST);
    zro__point_plan_set(NULL);
    left = (int)atomic_load(&t->shared->flag[LET_GO]);
    x = fill(t, memory);
    st = zro_all_reduce(pair, x, N, ZRO_F32, ZRO_SUM);
    CHECK(left || st != ZRO_OK);
    for (int i = 0; st == ZRO_OK && i < N; i++)
        CHECK(x[i] == (float)(2 + 2 * (i % 5)));
    zro_memory_free(memory);
    zro_group_destroy(pair);
}

static void settles(zt_rank *t)
{
    zro_group_config config = zt_config();

#ifndef ZRO__POINTS
    zt_skip(t, "the library was built without ZRO__POINTS");
#endif
    zt_ranks(t, ZT_LOCAL, &config, RANKS, waits_for_the_living, NULL);
}

const zt_case cases_fail_settle[] = {
    { "late_alone", late_alone, 0, ZT_LOCAL, 0, 60, 0, 0 },
    { "late_settles", settles, 0, ZT_LOCAL, ZT_KILLS, 60, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
