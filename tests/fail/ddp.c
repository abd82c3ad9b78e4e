/* A ddp, and optimizers attached to it, when something goes wrong.
 *
 * A rank dies, stops or is held at each ZRO__POINT that it passes in an iteration, on whichever of its threads: the others are told,
 * with its number; what would go on with parameters that may be torn between two steps says so, and otherwise they are all as before
 * or all as after the step; the survivors' own group is whole.  An allocation fails on one rank: an error on all, and the same call
 * succeeds afterwards.  Forked children. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/point.h"
#include "rig.h"
#include "victim.h"
#include "zt/list.h"

static const size_t counts[] = { 5, 3000, 64, 1024, 0, 70, 1 };

enum { N = sizeof counts / sizeof *counts };

/* By number: who consumes gradients, and where they lie. */
static const struct {
    const char *name;
    rig_mode mode;
    int can_tear; /* a step of it writes parameters */
} modes[] = {
    { "one pass", { .memory = RIG_ONCE, .optimizers = 1, .bucket_bytes = 4096 }, 1 },
    { "two passes", { .memory = RIG_ONCE, .optimizers = 1, .clip_norm = 1, .bucket_bytes = 4096 }, 1 },
    { "in place", { .memory = RIG_OWN, .optimizers = 1, .bucket_bytes = 4096 }, 1 },
    { "unattached", { .memory = RIG_EACH, .bucket_bytes = 4096 }, 0 },
    { "hook", { .memory = RIG_VIEWS, .optimizers = 1, .bucket_bytes = 4096, .hook = rig_hook }, 1 },
    { "several", { .memory = RIG_EACH, .optimizers = 2, .leaves = 2, .bucket_bytes = 1024, .find_unused = ZRO_ON }, 1 },
    { "static", { .memory = RIG_VIEWS, .optimizers = 1, .leaves = 1, .bucket_bytes = 1, .static_graph = ZRO_ON }, 1 },
    { "after last", { .memory = RIG_OWN, .optimizers = 1, .bucket_bytes = 4096, .overlap = { ZRO_OVERLAP_AFTER_LAST } }, 1 },
    { "interleaved", { .memory = RIG_ONCE, .optimizers = 1, .bucket_bytes = 4096, .overlap = { ZRO_OVERLAP_INTERLEAVED } }, 1 },
    { "own gradients", { .memory = RIG_DATA, .optimizers = 1, .bucket_bytes = 4096 }, 1 },
    { "staged gradients", { .memory = RIG_STAGED, .optimizers = 1, .bucket_bytes = 4096 }, 1 },
};

enum {
    ONE_PASS,
    TWO_PASSES,
    IN_PLACE,
    UNATTACHED,
    HOOK,
    SEVERAL,
    STATIC,
    AFTER_LAST,
    INTERLEAVED,
    OWN_GRADIENTS,
    STAGED,
    MODES
};

/* ---- failure at a point ---- */

enum { VICTIM = 1, RANKS = 3, FOUND = 128, TORN = 1, WHOLE = 2, KILL_MS = 60000, STOP_MS = 700, GRACE_MS = 20000 };

typedef struct run {
    int mode;
    victim_fate fate;
} run;

static uint64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static zro_status iterate(void *user)
{
    rig *g = user;
    zro_status st = rig_backward(g);

    return st == ZRO_OK ? rig_rest(g) : st;
}

static void victim(zt_rank *t, const run *r, rig *g)
{
    zro_status st = victim_run(t, &r->fate, iterate, g);

    if (st == ZRO_OK)
        return;
    CHECK(st == ZRO_ERR_TIMEOUT || st == ZRO_ERR_STATE);
    victim_returns(t);
}

/* A survivor that waits for rank 0, which waits for the victim in an earlier bucket, has both in a list. */
static int names_victim(void)
{
    return strstr(zro_last_error(), "rank 1") != NULL || strstr(zro_last_error(), "missing: 0, 1") != NULL;
}

/* The status of everything that would go on. */
static zro_status refused(rig *g)
{
    zro_status st = zro_ddp_average(g->ddp);
    zro_state *state = NULL;

    CHECK(st == ZRO_ERR_LOST || st == ZRO_ERR_TIMEOUT || st == ZRO_ERR_STATE);
    if (st == ZRO_ERR_STATE)
        CHECK_TEXT("torn");
    CHECK(names_victim());
    CHECK_STATUS(zro_ddp_forward(g->ddp), st);
    CHECK(st == ZRO_ERR_STATE ? strstr(zro_last_error(), "torn") != NULL : names_victim());
    for (int k = 0; k < g->mode.optimizers; k++) {
        CHECK_STATUS(zro_optim_step(g->optim[k], NULL), st);
        CHECK(st == ZRO_ERR_STATE ? strstr(zro_last_error(), "torn") != NULL : names_victim());
        CHECK_STATUS(zro_optim_publish(g->optim[k]), st);
        CHECK_STATUS(zro_optim_consolidate(g->optim[k], 0, &state), st);
        CHECK(st == ZRO_ERR_STATE ? strstr(zro_last_error(), "torn") != NULL : names_victim());
        CHECK(state == NULL);
    }
    return st;
}

/* What a survivor found, for the supervisor: hashes of the two halves of the parameters, which two optimizers have, as they were, as
 * they should be after the step, and as they are; what it was told. */
enum { BEFORE, AFTER = 2, NOW = 4, TOLD = 6, NUMBERS = 8, HALF = 4 };

static atomic_ullong *found_by(zt_rank *t, int rank)
{
    return &t->shared->number[FOUND + NUMBERS * rank];
}

static void note_hashes(zt_rank *t, int which, const zro_param *params)
{
    uint64_t hash;

    CHECK_OK(zro_params_hash(params, HALF, &hash));
    atomic_store(&found_by(t, t->rank)[which], hash);
    CHECK_OK(zro_params_hash(params + HALF, N - HALF, &hash));
    atomic_store(&found_by(t, t->rank)[which + 1], hash);
}

static void survivor(zt_rank *t, const run *r, rig *g, zro_group *others)
{
    uint64_t began = now_ms();
    float one = 1;
    zro_status st;

    note_hashes(t, BEFORE, g->params);
    st = iterate(g);
    rig_step_reference(g);
    note_hashes(t, AFTER, g->alone);
    if (st == ZRO_OK) {
        rig_check_gradients(g, 0, g->mode.optimizers > 0 ? (size_t)g->mode.leaves : g->n);
        if ((g->mode.memory != RIG_ONCE && g->mode.memory != RIG_DATA && g->mode.memory != RIG_STAGED)
            || r->fate.point == NULL) /* another survivor may be a step ahead */
            rig_check(g);
    }
    if (r->fate.point == NULL) {
        CHECK_OK(st);
        return;
    }
    if (st == ZRO_OK) { /* it could end without the victim; the next cannot, and the other survivor may have found out before */
        st = iterate(g);
        CHECK(st != ZRO_OK);
    }
    CHECK(st == (r->fate.way == KILL ? ZRO_ERR_LOST : ZRO_ERR_TIMEOUT) || st == ZRO_ERR_STATE);
    CHECK(names_victim());
    CHECK(now_ms() - began < (r->fate.way == KILL ? GRACE_MS : 3 * STOP_MS + GRACE_MS));
    st = refused(g);
    atomic_store(&found_by(t, t->rank)[TOLD], st == ZRO_ERR_STATE ? TORN : WHOLE);
    if (st != ZRO_ERR_STATE) /* otherwise the victim may still write them */
        note_hashes(t, NOW, g->params);
    for (int i = 0; i < 3; i++, one = 1) {
        CHECK_OK(zro_all_reduce(others, &one, 1, ZRO_F32, ZRO_SUM));
        CHECK(one == RANKS - 1);
    }
    CHECK_OK(zro_group_status(others));
    victim_release(t, &r->fate, RANKS - 1);
}

static void one_run(zt_rank *t)
{
    const run *r = t->user;
    const int survivors[] = { 2, 0 };
    zro_group *others;
    rig *g = malloc(sizeof *g);

    CHECK(g != NULL);
    CHECK_OK(zro_group_create_sub(t->group, survivors, 2, &others));
    rig_init(g, t, t->group, modes[r->mode].mode, counts, N, 1);
    rig_create(g);
    rig_train(g, 1);
    CHECK_OK(zro_barrier(t->group));
    if (r->fate.way != KILL && r->fate.point != NULL)
        rig_set_timeout(g, STOP_MS);
    if (t->rank == VICTIM)
        victim(t, r, g);
    else
        survivor(t, r, g, others);
    if (r->fate.way == HOLD)
        zt_meet(t); /* the victim is a thread, and looks at the same page */
    rig_free(g);
    free(g);
    zro_group_destroy(others);
}

/* Whether a failure there must tear the parameters: between the victim's own first write and the end of its delivery. */
static int is_torn_at(const run *r, int *known)
{
    static const char *const torn[] = { "cycle.begun", "cycle.fused", "cycle.updated", "deliver.batch" };
    static const char *const whole[] = {
        "ddp.forward", "ddp.end", "ddp.hook", "staging.copy", "cycle.bucket", "cycle.measured"
    };

    *known = !modes[r->mode].can_tear;
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        *known |= strcmp(r->fate.point, whole[i]) == 0;
    if (modes[r->mode].mode.overlap[0]
        != ZRO_OVERLAP_OFF) /* updates begin during backward: in its first bucket, or when the last one is ready */
        *known = strcmp(r->fate.point, "ddp.forward") == 0 || (strcmp(r->fate.point, "cycle.bucket") == 0 && r->fate.nth == 1);
    for (size_t i = 0; i < sizeof torn / sizeof *torn; i++)
        if (strcmp(r->fate.point, torn[i]) == 0)
            return *known = 1;
    return 0;
}

/* All as before the step, or all as after it; of two optimizers one may have stepped before the failure, and the other not. */
static void check_whole(const atomic_ullong *f, int n_optimizers)
{
    int before[2], after[2];

    for (int i = 0; i < 2; i++) {
        before[i] = atomic_load(&f[NOW + i]) == atomic_load(&f[BEFORE + i]);
        after[i] = atomic_load(&f[NOW + i]) == atomic_load(&f[AFTER + i]);
        CHECK(before[i] || after[i]);
    }
    CHECK((before[0] && before[1]) || (after[0] && after[1]) || n_optimizers > 1);
}

/* Who shares no memory knows only what it has itself: one survivor may have everything while another has not. */
static void check_survivors(zt_rank *t, const run *r, int backend, int *n_torn)
{
    int known, torn = is_torn_at(r, &known);
    const atomic_ullong *first = found_by(t, 0), *last = found_by(t, 2);

    for (int i = 0; i < RANKS; i += 2) {
        const unsigned long long told = atomic_load(&found_by(t, i)[TOLD]);

        CHECK(told == TORN || told == WHOLE);
        if (known && (backend != ZT_FOREIGN || !torn))
            CHECK((told == TORN) == torn);
        if (told == WHOLE)
            check_whole(found_by(t, i), modes[r->mode].mode.optimizers);
    }
    if (known && torn)
        CHECK(atomic_load(&first[TOLD]) == TORN || atomic_load(&last[TOLD]) == TORN);
    /* Of two optimizers one survivor may fail in the second step while the other still ends the first: then it sees that one begun,
     * and not published. */
    CHECK(atomic_load(&first[TOLD]) == atomic_load(&last[TOLD]) || backend == ZT_FOREIGN || modes[r->mode].mode.optimizers > 1);
    if (atomic_load(&first[TOLD]) == WHOLE && atomic_load(&last[TOLD]) == WHOLE)
        CHECK(atomic_load(&first[NOW]) == atomic_load(&last[NOW])
              && atomic_load(&first[NOW + 1]) == atomic_load(&last[NOW + 1]));
    *n_torn += atomic_load(&first[TOLD]) == TORN || atomic_load(&last[TOLD]) == TORN;
}

static void need_points(zt_rank *t)
{
#ifndef ZRO__POINTS
    zt_skip(t, "the library was built without ZRO__POINTS");
#endif
    (void)t;
}

/* stride: every so many points; 0: each of them, in the first passing and in the middle. */
static void fail_run(zt_rank *t, run r, int backend, long stride)
{
    zro_group_config config = zt_config();
    int runs = 0, points = 0, torn = 0;
    zt_held before;
    char name[64];

    need_points(t);
    config.timeout_ms = KILL_MS;
    zt_ranks(t, backend, &config, RANKS, one_run, &r); /* sanitizers start a thread of their own with the first */
    before = zt_held_now();
    for (int p = 0; p < ZT_MAX_POINTS && t->shared->text[p][0] != '\0'; p++) {
        long passings = (long)atomic_load(&t->shared->passings[p]);

        points++;
        if (stride > 0 && (p + r.mode) % stride != 0)
            continue;
        snprintf(name, sizeof name, "%s", t->shared->text[p]);
        r.fate.point = name;
        for (r.fate.nth = 1; r.fate.nth <= passings;
             r.fate.nth += passings < 3 || stride > 0 ? passings : passings / 2, runs++) {
            printf("%s: %s at %s, passing %ld of %ld\n", modes[r.mode].name, victim_ways[r.fate.way], name, r.fate.nth,
                   passings);
            for (int i = VICTIM_RETURNED; i <= VICTIM_GO_ON; i++)
                atomic_store(&t->shared->flag[i], 0);
            zt_ranks(t, backend, &config, RANKS, one_run, &r);
            check_survivors(t, &r, backend, &torn);
        }
    }
    CHECK_HELD(before);
    if (stride == 0)
        CHECK(torn < runs && (torn > 0) == modes[r.mode].can_tear);
    zt_note(t, "%s %d times, at some of %d points; %d of them tore the parameters", victim_ways[r.fate.way], runs, points,
            torn);
}

/* arg: mode + 10 * way + 100 * (1: far ranks) + 1000 * stride. */
static void fail_at_points(zt_rank *t)
{
    const run r = { (int)(t->arg % 10), { (victim_way)(t->arg / 10 % 10), NULL, 0 } };

    fail_run(t, r, r.fate.way == HOLD ? ZT_THREADS : t->arg / 100 % 10 == 1 ? ZT_FOREIGN : ZT_LOCAL, t->arg / 1000);
}

/* arg: the way. */
static void fail_staged(zt_rank *t)
{
    const run r = { STAGED, { (victim_way)t->arg, NULL, 0 } };

    fail_run(t, r, r.fate.way == HOLD ? ZT_THREADS : ZT_LOCAL, r.fate.way == KILL ? 0 : 1);
}

/* A rank dies between two calls; all kinds of ranks. */
static void killed_between(zt_rank *t)
{
    zro_status st = ZRO_OK;
    rig *g = malloc(sizeof *g);

    CHECK(g != NULL);
    rig_init(g, t, t->group, modes[t->arg % 10].mode, counts, N, 1);
    rig_create(g);
    rig_train(g, 2);
    CHECK_OK(zro_barrier(t->group));
    if (t->rank == VICTIM && t->arg / 10 == 0)
        zt_die(t);
    st = rig_backward(g);
    if (t->rank == VICTIM && t->arg / 10 == 1)
        zt_die(t);
    if (st == ZRO_OK)
        st = zro_ddp_backward_end(g->ddp);
    if (t->rank == VICTIM)
        zt_die(t);
    for (int k = 0; st == ZRO_OK && k < g->mode.optimizers; k++)
        st = zro_optim_step(g->optim[k], NULL);
    if (st == ZRO_OK)
        st = rig_backward(g);
    if (st == ZRO_OK)
        st = zro_ddp_backward_end(g->ddp);
    if (t->machines != ZT_OWN || st != ZRO_ERR_TIMEOUT)
        CHECK_STATUS(st, ZRO_ERR_LOST);
    CHECK(names_victim());
    CHECK(strstr(zro_last_error(), "torn") == NULL);
    CHECK(refused(g) != ZRO_ERR_STATE);
    rig_check(g); /* between steps nothing is torn */
    rig_free(g);
    free(g);
}

/* ---- allocations ---- */

typedef enum making { CREATE, ATTACH, ADD, FORWARD, SET_HOOK } making;
static const char *const points[] = { "memory.alloc", "memory.region", "memory.populate" };

typedef struct trial {
    making what;
    int odd;
    const char *point;
    int refused;
} trial;

static int any(zt_rank *t, int mine)
{
    int all[ZT_MAX_RANKS], result = 0;

    zt_exchange(t, &mine, sizeof mine, all);
    for (int r = 0; r < t->size; r++)
        result |= all[r];
    return result;
}

static zro_status make(rig *g, making what)
{
    zro_param_group rest = { .params = g->params, .n = (size_t)g->mode.leaves };

    switch (what) {
    case CREATE:
        return rig_create_ddp(g, &g->ddp);
    case ATTACH:
        return rig_create_optim(g, 0, &g->optim[0]);
    case ADD:
        return zro_optim_add_param_group(g->optim[0], &rest);
    case FORWARD:
        return zro_ddp_forward(g->ddp);
    case SET_HOOK:
        return zro_ddp_set_hook(g->ddp, rig_hook, NULL);
    }
    return ZRO_ERR_STATE;
}

/* Without memory for the first messages that bring rank 0's values, the ddp's own group breaks, with the same status on all. */
static void check_told(zt_rank *t, const trial *x, zro_status st)
{
    const int odd = x->odd;
    char rank[32];

    if (t->rank == odd) {
        CHECK(st == ZRO_ERR_MEMORY || st == ZRO_ERR_SYSTEM);
        return;
    }
    CHECK(st == ZRO_ERR_PEER || (x->what == CREATE && st == ZRO_ERR_MEMORY));
    snprintf(rank, sizeof rank, "rank %d", odd);
    CHECK_TEXT(rank);
}

/* Up to the call that is to fail. */
static void set_up(rig *g, zt_rank *t, int mode, making what)
{
    rig_mode m = modes[mode].mode;

    m.leaves = what == ADD ? 2 : m.leaves;
    m.optimizers = what == ATTACH || what == ADD ? 1 : m.optimizers;
    rig_init(g, t, t->group, m, counts, N, 1);
    if (what == CREATE)
        return;
    CHECK_OK(rig_create_ddp(g, &g->ddp));
    for (int k = 0; k < m.optimizers && what != ATTACH; k++)
        CHECK_OK(rig_create_optim(g, k, &g->optim[k]));
    rig_create_reference(g);
    if (what != ATTACH)
        rig_train(g, what == FORWARD ? 1 : 2); /* the second forward forms buckets anew */
}

/* As if nothing had failed: what is still to be made is made, and the model is trained. */
static void go_on(rig *g, making what)
{
    zro_param_group rest = { .params = g->alone, .n = (size_t)g->mode.leaves };

    if (what == CREATE) {
        for (int k = 0; k < g->mode.optimizers; k++)
            CHECK_OK(rig_create_optim(g, k, &g->optim[k]));
        rig_create_reference(g);
    }
    if (what == ADD) {
        CHECK_OK(zro_optim_add_param_group(g->reference[0], &rest));
        g->mode.leaves = 0;
    }
    if (what == FORWARD) { /* the iteration is open */
        unsigned char uses[ZT_MAX_RANKS];

        memset(uses, 1, sizeof uses);
        g->iteration++;
        rig_forget(g);
        for (size_t i = 0; i < N; i++) {
            rig_add(g, i, uses);
            rig_write(g, i);
            CHECK_OK(zro_ddp_grad_ready(g->ddp, i));
        }
        CHECK_OK(rig_rest(g));
        rig_step_reference(g);
        rig_check(g);
    }
    rig_train(g, 2);
}

/* The nth passing of a point fails on one rank; then the same call succeeds, and the model is trained.  1 if there was such a
 * passing. */
static int fail_once(zt_rank *t, trial *x, int mode, long nth)
{
    zro__point_plan plan = { .name = x->point, .action = ZRO__POINT_FAIL, .nth = nth };
    zro_stats before = ZRO_STATS_INIT, after = ZRO_STATS_INIT;
    rig *g = malloc(sizeof *g);
    zro_status st;
    int failed;

    CHECK(g != NULL);
    CHECK_OK(zro_group_stats(t->group, &before));
    set_up(g, t, mode, x->what);
    if (t->rank == x->odd)
        zro__point_plan_set(&plan);
    st = make(g, x->what);
    zro__point_plan_set(NULL);
    failed = any(t, t->rank == x->odd && atomic_load(&plan.hits) >= nth);
    if (any(t, st != ZRO_OK)) {
        CHECK(failed);
        CHECK((g->ddp == NULL) == (x->what == CREATE));
        CHECK(x->what != ATTACH || g->optim[0] == NULL);
        check_told(t, x, st);
        x->refused++;
        CHECK_OK(zro_group_status(t->group));
        if (x->what == SET_HOOK || x->what == ADD)
            rig_train(g, 1); /* as before */
        CHECK_OK(make(g, x->what));
    }
    go_on(g, x->what);
    rig_free(g);
    free(g);
    CHECK_OK(zro_barrier(t->group));
    CHECK_OK(zro_group_stats(t->group, &after));
    CHECK(after.heap_bytes == before.heap_bytes && after.shared_bytes == before.shared_bytes);
    return failed;
}

/* arg: mode + 10 * what fails. */
static void failing(zt_rank *t)
{
    trial x = { .what = (making)(t->arg / 10) };
    int failures = 0;

    need_points(t);
    for (x.odd = 0; x.odd < 2; x.odd++)
        for (size_t p = 0; p < sizeof points / sizeof *points; p++) {
            x.point = points[p];
            for (long n = 1; fail_once(t, &x, (int)(t->arg % 10), n); n++, failures++)
                CHECK(n < 500);
        }
    CHECK(x.refused > 0);
    if (t->rank == 0)
        zt_note(t, "%d failures, %d refusals", failures, x.refused);
}

/* ---- what a program did wrong can be mended ---- */

/* A parameter that never becomes ready on one rank fails the iteration on all, again and again, also before the first one that ends
 * well; then training goes on. */
static void missing_again_and_again(zt_rank *t)
{
    const int odd = t->size - 1;
    rig *g = malloc(sizeof *g);

    CHECK(g != NULL);
    rig_init(g, t, t->group, modes[t->arg].mode, counts, N, 1);
    rig_create(g);
    for (int round = 0; round < 2; round++) {
        for (int k = 0; k < 20; k++) {
            zro_status st;

            CHECK_OK(zro_ddp_forward(g->ddp));
            rig_forget(g);
            for (size_t i = N; i-- > 0;)
                if (i != 3 || t->rank != odd)
                    CHECK_OK(zro_ddp_grad_ready(g->ddp, i));
            st = rig_rest(g);
            CHECK_STATUS(st, t->rank == odd ? ZRO_ERR_STATE : ZRO_ERR_PEER);
            CHECK_TEXT("never became ready");
        }
        rig_train(g, 3);
    }
    rig_free(g);
    free(g);
}

/* ---- forked children ---- */

static _Noreturn void child_uses(rig *g)
{
    const size_t index = 0, *order;
    zro_stats stats = ZRO_STATS_INIT;
    zro_joinable joinable;
    zro_optim *optim;
    zro_ddp *ddp;
    int ok = zro_ddp_forward(g->ddp) == ZRO_ERR_STATE && zro_ddp_grad_ready(g->ddp, 0) == ZRO_ERR_STATE;

    ok &= zro_ddp_grads_ready(g->ddp, &index, 1) == ZRO_ERR_STATE && zro_ddp_unused(g->ddp, 0) == ZRO_ERR_STATE;
    ok &= zro_ddp_backward_end(g->ddp) == ZRO_ERR_STATE && zro_ddp_average(g->ddp) == ZRO_ERR_STATE;
    ok &= zro_ddp_no_sync(g->ddp, ZRO_ON) == ZRO_ERR_STATE && zro_ddp_set_weight(g->ddp, 2) == ZRO_ERR_STATE;
    ok &= zro_ddp_check(g->ddp) == ZRO_ERR_STATE && zro_ddp_set_hook(g->ddp, rig_hook, NULL) == ZRO_ERR_STATE;
    ok &= zro_ddp_buckets(g->ddp, &order, NULL, NULL) == ZRO_ERR_STATE && zro_ddp_stats(g->ddp, &stats) == ZRO_ERR_STATE;
    ok &= rig_create_ddp(g, &ddp) == ZRO_ERR_STATE && ddp == NULL;
    ok &= zro_ddp_joinable(g->ddp, &joinable) == ZRO_ERR_STATE;
    for (int k = 0; k < g->mode.optimizers; k++) {
        ok &= zro_optim_step(g->optim[k], NULL) == ZRO_ERR_STATE && zro_optim_publish(g->optim[k]) == ZRO_ERR_STATE;
        ok &= zro_optim_zero_grad(g->optim[k], ZRO_ZERO_CLEAR) == ZRO_ERR_STATE;
        ok &= zro_optim_set_user(g->optim[k], g) == ZRO_ERR_STATE;
        ok &= zro_optim_joinable(g->optim[k], &joinable) == ZRO_ERR_STATE;
        ok &= rig_create_optim(g, k, &optim) == ZRO_ERR_STATE && optim == NULL;
    }
    if (g->iteration % 2 == 0)
        zro_ddp_destroy(g->ddp);
    for (int k = 0; k < g->mode.optimizers; k++)
        zro_optim_destroy(g->optim[k]);
    if (g->iteration % 2 != 0)
        zro_ddp_destroy(g->ddp);
    zro_group_destroy(g->group);
    _exit(ok ? 0 : 1);
}

static void fork_child(rig *g)
{
    int status = 1;
    pid_t child = fork();

    if (child == 0)
        child_uses(g);
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

/* A child has no part in the group: what it does ends nobody, between iterations and in the middle of one. */
static void forked_child(zt_rank *t)
{
    rig *g = malloc(sizeof *g);

    CHECK(g != NULL);
    for (int mode = 0; mode < MODES; mode++) {
        rig_init(g, t, t->group, modes[mode].mode, counts, N, 1);
        rig_create(g);
        rig_train(g, 1);
        fork_child(g);
        CHECK_OK(rig_backward(g));
        fork_child(g);
        CHECK_OK(zro_ddp_backward_end(g->ddp));
        fork_child(g);
        for (int k = 0; k < g->mode.optimizers; k++)
            CHECK_OK(zro_optim_step(g->optim[k], NULL));
        rig_step_reference(g);
        rig_check(g);
        rig_train(g, 1);
        rig_free(g);
    }
    free(g);
}

#define SEVERAL_RANKS (ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4))
#define FEW (ZT_WORLD(2) | ZT_WORLD(3))

#define AT(way, mode) ((way)*10 + (mode))
#define FAR 100
#define EVERY(n) ((n)*1000)

const zt_case cases_fail_ddp[] = {
    { "ddp_kill_one_pass", fail_at_points, 0, ZT_LOCAL, ZT_KILLS, 240, 0, AT(KILL, ONE_PASS) },
    { "ddp_kill_two_passes", fail_at_points, 0, ZT_LOCAL, ZT_KILLS, 240, 0, AT(KILL, TWO_PASSES) },
    { "ddp_kill_in_place", fail_at_points, 0, ZT_LOCAL, ZT_KILLS, 240, 0, AT(KILL, IN_PLACE) },
    { "ddp_kill_own_gradients", fail_at_points, 0, ZT_LOCAL, ZT_KILLS, 240, 0, AT(KILL, OWN_GRADIENTS) },
    { "ddp_kill_staged", fail_staged, 0, ZT_LOCAL, ZT_KILLS, 240, 0, KILL },
    { "ddp_held_staged", fail_staged, 0, ZT_THREADS, ZT_REST, 400, 0, HOLD },
    { "ddp_kill_unattached", fail_at_points, 0, ZT_LOCAL, ZT_KILLS, 240, 0, AT(KILL, UNATTACHED) },
    { "ddp_kill_hook", fail_at_points, 0, ZT_LOCAL, ZT_KILLS, 240, 0, AT(KILL, HOOK) },
    { "ddp_kill_several", fail_at_points, 0, ZT_LOCAL, ZT_KILLS | ZT_REST, 240, 0, AT(KILL, SEVERAL) },
    { "ddp_kill_far", fail_at_points, 0, ZT_FOREIGN, ZT_KILLS, 240, 0, FAR + EVERY(3) + AT(KILL, IN_PLACE) },
    { "ddp_kill_far_clip", fail_at_points, 0, ZT_FOREIGN, ZT_KILLS | ZT_REST, 240, 0, FAR + AT(KILL, TWO_PASSES) },
    { "ddp_kill_far_hook", fail_at_points, 0, ZT_FOREIGN, ZT_KILLS | ZT_REST, 240, 0, FAR + AT(KILL, HOOK) },
    { "ddp_kill_far_unattached", fail_at_points, 0, ZT_FOREIGN, ZT_KILLS | ZT_REST, 240, 0, FAR + AT(KILL, UNATTACHED) },
    { "ddp_stop", fail_at_points, 0, ZT_LOCAL, ZT_KILLS, 240, 0, EVERY(8) + AT(STOP, ONE_PASS) },
    { "ddp_stop_one_pass", fail_at_points, 0, ZT_LOCAL, ZT_KILLS | ZT_REST, 400, 0, EVERY(1) + AT(STOP, ONE_PASS) },
    { "ddp_stop_two_passes", fail_at_points, 0, ZT_LOCAL, ZT_KILLS | ZT_REST, 400, 0, EVERY(1) + AT(STOP, TWO_PASSES) },
    { "ddp_stop_in_place", fail_at_points, 0, ZT_LOCAL, ZT_KILLS | ZT_REST, 400, 0, EVERY(1) + AT(STOP, IN_PLACE) },
    { "ddp_stop_unattached", fail_at_points, 0, ZT_LOCAL, ZT_KILLS | ZT_REST, 400, 0, EVERY(1) + AT(STOP, UNATTACHED) },
    { "ddp_stop_hook", fail_at_points, 0, ZT_LOCAL, ZT_KILLS | ZT_REST, 400, 0, EVERY(1) + AT(STOP, HOOK) },
    { "ddp_stop_far", fail_at_points, 0, ZT_FOREIGN, ZT_KILLS | ZT_REST, 400, 0, FAR + EVERY(3) + AT(STOP, IN_PLACE) },
    { "ddp_held", fail_at_points, 0, ZT_THREADS, 0, 240, 0, EVERY(8) + AT(HOLD, ONE_PASS) },
    { "ddp_held_one_pass", fail_at_points, 0, ZT_THREADS, ZT_REST, 400, 0, EVERY(1) + AT(HOLD, ONE_PASS) },
    { "ddp_held_two_passes", fail_at_points, 0, ZT_THREADS, ZT_REST, 400, 0, EVERY(1) + AT(HOLD, TWO_PASSES) },
    { "ddp_held_in_place", fail_at_points, 0, ZT_THREADS, ZT_REST, 400, 0, EVERY(1) + AT(HOLD, IN_PLACE) },
    { "ddp_held_unattached", fail_at_points, 0, ZT_THREADS, ZT_REST, 400, 0, EVERY(1) + AT(HOLD, UNATTACHED) },
    { "ddp_held_hook", fail_at_points, 0, ZT_THREADS, ZT_REST, 400, 0, EVERY(1) + AT(HOLD, HOOK) },
    { "ddp_kill_after_last", fail_at_points, 0, ZT_LOCAL, ZT_KILLS, 240, 0, EVERY(2) + AT(KILL, AFTER_LAST) },
    { "ddp_kill_interleaved", fail_at_points, 0, ZT_LOCAL, ZT_KILLS, 240, 0, AT(KILL, INTERLEAVED) },
    { "ddp_kill_after_last_all", fail_at_points, 0, ZT_LOCAL, ZT_KILLS | ZT_REST, 240, 0, AT(KILL, AFTER_LAST) },
    { "ddp_kill_far_interleaved", fail_at_points, 0, ZT_FOREIGN, ZT_KILLS | ZT_REST, 240, 0, FAR + AT(KILL, INTERLEAVED) },
    { "ddp_stop_after_last", fail_at_points, 0, ZT_LOCAL, ZT_KILLS | ZT_REST, 400, 0, EVERY(1) + AT(STOP, AFTER_LAST) },
    { "ddp_stop_interleaved", fail_at_points, 0, ZT_LOCAL, ZT_KILLS | ZT_REST, 400, 0, EVERY(1) + AT(STOP, INTERLEAVED) },
    { "ddp_held_after_last", fail_at_points, 0, ZT_THREADS, ZT_REST, 400, 0, EVERY(1) + AT(HOLD, AFTER_LAST) },
    { "ddp_held_interleaved", fail_at_points, 0, ZT_THREADS, ZT_REST, 400, 0, EVERY(1) + AT(HOLD, INTERLEAVED) },
    { "ddp_killed_before_forward", killed_between, SEVERAL_RANKS, ZT_ALL, ZT_KILLS, 60, 0, ONE_PASS },
    { "ddp_killed_before_end", killed_between, SEVERAL_RANKS, ZT_ALL, ZT_KILLS, 60, 0, 10 + IN_PLACE },
    { "ddp_killed_before_step", killed_between, SEVERAL_RANKS, ZT_ALL, ZT_KILLS, 60, 0, 20 + ONE_PASS },
    { "ddp_killed_before_step_hook", killed_between, SEVERAL_RANKS, ZT_ALL, ZT_KILLS, 60, 0, 20 + HOOK },
    { "ddp_alloc_create", failing, FEW, ZT_BOTH, 0, 120, 0, 10 * CREATE + ONE_PASS },
    { "ddp_alloc_create_views", failing, FEW, ZT_BOTH, ZT_REST, 120, 0, 10 * CREATE + STATIC },
    { "ddp_alloc_create_hook", failing, FEW, ZT_BOTH, 0, 120, 0, 10 * CREATE + HOOK },
    { "ddp_alloc_create_own", failing, FEW, ZT_BOTH, ZT_REST, 120, 0, 10 * CREATE + IN_PLACE },
    { "ddp_alloc_attach", failing, FEW, ZT_BOTH, 0, 120, 0, 10 * ATTACH + ONE_PASS },
    { "ddp_alloc_attach_clip", failing, FEW, ZT_BOTH, ZT_REST, 120, 0, 10 * ATTACH + TWO_PASSES },
    { "ddp_alloc_attach_own", failing, FEW, ZT_BOTH, ZT_REST, 120, 0, 10 * ATTACH + IN_PLACE },
    { "ddp_alloc_add", failing, FEW, ZT_BOTH, 0, 120, 0, 10 * ADD + ONE_PASS },
    { "ddp_alloc_add_own", failing, FEW, ZT_BOTH, ZT_REST, 120, 0, 10 * ADD + IN_PLACE },
    { "ddp_alloc_forward", failing, FEW, ZT_BOTH, 0, 120, 0, 10 * FORWARD + ONE_PASS },
    { "ddp_alloc_forward_own", failing, FEW, ZT_BOTH, ZT_REST, 120, 0, 10 * FORWARD + IN_PLACE },
    { "ddp_alloc_forward_hook", failing, FEW, ZT_BOTH, 0, 120, 0, 10 * FORWARD + HOOK },
    { "ddp_alloc_forward_static", failing, FEW, ZT_BOTH, 0, 120, 0, 10 * FORWARD + STATIC },
    { "ddp_alloc_forward_overlap", failing, FEW, ZT_BOTH, 0, 120, 0, 10 * FORWARD + INTERLEAVED },
    { "ddp_alloc_set_hook", failing, FEW, ZT_BOTH, 0, 120, 0, 10 * SET_HOOK + IN_PLACE },
    { "ddp_alloc_set_hook_again", failing, FEW, ZT_BOTH, 0, 120, 0, 10 * SET_HOOK + HOOK },
    { "ddp_missing_again", missing_again_and_again, SEVERAL_RANKS, ZT_ALL, 0, 60, 0, ONE_PASS },
    { "ddp_missing_again_own", missing_again_and_again, SEVERAL_RANKS, ZT_ALL, 0, 60, 0, IN_PLACE },
    { "ddp_missing_again_after_last", missing_again_and_again, SEVERAL_RANKS, ZT_ALL, 0, 60, 0, AFTER_LAST },
    { "ddp_forked_child", forked_child, FEW, ZT_LOCAL | ZT_FOREIGN, 0, 60, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
