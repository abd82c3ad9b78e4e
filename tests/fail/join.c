/* A join when a rank fails: one that has run out of inputs, or one that has some while another has not.
 *
 * The rank dies, stops or is held at each ZRO__POINT that it passes from its last input to the end of the join.  The others are told,
 * with its number, whether they have inputs or shadow; nobody waits for it for ever; their own group is whole. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ddp/ddp.h"
#include "rig.h"
#include "trials.h"
#include "victim.h"
#include "zt/list.h"

static const size_t counts[] = { 5, 3000, 64, 1024, 0, 70, 1 };

enum { N = sizeof counts / sizeof *counts };

static const struct {
    const char *name;
    rig_mode mode;
} modes[] = {
    { "one pass", { .memory = RIG_ONCE, .optimizers = 1, .bucket_bytes = 4096 } },
    { "in place, clipped", { .memory = RIG_OWN, .optimizers = 1, .clip_norm = 1, .bucket_bytes = 4096 } },
    { "interleaved", { .memory = RIG_ONCE, .optimizers = 1, .bucket_bytes = 4096, .overlap = { ZRO_OVERLAP_INTERLEAVED } } },
};

enum { ONE_PASS, CLIPPED, INTERLEAVED };
enum { VICTIM = 1, RANKS = 3, KILL_MS = 60000, STOP_MS = 700 };

typedef struct run {
    int mode;
    int shadow; /* the rank that has no inputs */
    victim_fate fate;
} run;

typedef struct rank_run {
    const run *run;
    rig *rig;
    zro_join *join;
} rank_run;

/* One input, unless this rank has none; then the end of the join. */
static zro_status go(void *user)
{
    const rank_run *it = user;
    zro_status st = ZRO_OK;

    if (it->rig->t->rank != it->run->shadow) {
        st = rig_backward(it->rig);
        if (st == ZRO_OK)
            st = rig_rest(it->rig);
    }
    return st == ZRO_OK ? zro_join_run(it->join) : st;
}

static void victim(zt_rank *t, rank_run *it)
{
    zro_status st = victim_run(t, &it->run->fate, go, it);

    if (st == ZRO_OK)
        return;
    CHECK(st == ZRO_ERR_TIMEOUT || st == ZRO_ERR_STATE || st == ZRO_ERR_LOST);
    victim_returns(t);
}

/* A survivor may wait for another one that waits for the victim. */
static int names_victim(void)
{
    return strstr(zro_last_error(), "rank 1") != NULL || strstr(zro_last_error(), "missing: 0, 1") != NULL
           || strstr(zro_last_error(), "missing: 1") != NULL;
}

static void survivor(zt_rank *t, rank_run *it, zro_group *others)
{
    const run *r = it->run;
    zro_status st = go(it);
    float one = 1;

    if (r->fate.point == NULL) {
        CHECK_OK(st);
        return;
    }
    for (int i = 0; i < 2 && st == ZRO_OK; i++) /* it could end without the victim; the next cannot */
        st = go(it);
    CHECK(st == (r->fate.way == KILL ? ZRO_ERR_LOST : ZRO_ERR_TIMEOUT) || st == ZRO_ERR_STATE);
    CHECK(names_victim());
    if (st == ZRO_ERR_STATE)
        CHECK_TEXT("torn");
    CHECK(go(it) != ZRO_OK);
    CHECK_OK(zro_all_reduce(others, &one, 1, ZRO_F32, ZRO_SUM));
    CHECK(one == RANKS - 1);
    victim_release(t, &r->fate, RANKS - 1);
}

static void one_run(zt_rank *t)
{
    const run *r = t->user;
    const int survivors[] = { 2, 0 };
    zro_group *others;
    zro_joinable joinable;
    zro_join *join;
    rig *g = malloc(sizeof *g);

    CHECK(g != NULL);
    CHECK_OK(zro_group_create_sub(t->group, survivors, 2, &others));
    rig_init(g, t, t->group, modes[r->mode].mode, counts, N, 1);
    rig_create(g);
    CHECK_OK(zro_ddp_joinable(g->ddp, &joinable));
    CHECK_OK(zro_join_create(t->group, &joinable, 1, NULL, &join));
    rig_train(g, 2);
    CHECK_OK(zro_join_run(join));
    CHECK_OK(zro_barrier(t->group));
    if (r->fate.way != KILL && r->fate.point != NULL) {
        rig_set_timeout(g, STOP_MS);
        trials_set_timeout(g->ddp->cycle->join->group, STOP_MS);
    }
    if (t->rank == VICTIM)
        victim(t, &(rank_run){ r, g, join });
    else
        survivor(t, &(rank_run){ r, g, join }, others);
    if (r->fate.way == HOLD)
        zt_meet(t); /* the victim is a thread, and looks at the same page */
    zro_join_destroy(join);
    rig_free(g);
    free(g);
    zro_group_destroy(others);
}

/* arg: mode + 10 * way + 100 * (1: far ranks) + 1000 * (1: the victim is the shadow; otherwise rank 2 is) + 10000 * (every so many
 * points). */
static void fail_at_points(zt_rank *t)
{
    run r = { (int)(t->arg % 10), t->arg / 1000 % 10 == 1 ? VICTIM : 2, { (victim_way)(t->arg / 10 % 10), NULL, 0 } };
    const int backend = r.fate.way == HOLD ? ZT_THREADS : t->arg / 100 % 10 == 1 ? ZT_FOREIGN : ZT_LOCAL;
    const long stride = t->arg / 10000;
    zro_group_config config = zt_config();
    int runs = 0, points = 0;
    zt_held before;
    char name[64];

#ifndef ZRO__POINTS
    zt_skip(t, "the library was built without ZRO__POINTS");
#endif
    config.timeout_ms = KILL_MS;
    zt_ranks(t, backend, &config, RANKS, one_run, &r); /* sanitizers start a thread of their own with the first */
    before = zt_held_now();
    for (int p = 0; p < ZT_MAX_POINTS && t->shared->text[p][0] != '\0'; p++, points++) {
        if (p % stride != 0 && strncmp(t->shared->text[p], "join.", 5) != 0)
            continue;
        snprintf(name, sizeof name, "%s", t->shared->text[p]);
        r.fate.point = name;
        r.fate.nth = ((long)atomic_load(&t->shared->passings[p]) + 1) / 2;
        printf("%s: %s at %s, passing %ld\n", modes[r.mode].name, victim_ways[r.fate.way], name, r.fate.nth);
        for (int i = VICTIM_RETURNED; i <= VICTIM_GO_ON; i++)
            atomic_store(&t->shared->flag[i], 0);
        zt_ranks(t, backend, &config, RANKS, one_run, &r);
        runs++;
    }
    CHECK_HELD(before);
    zt_note(t, "%s %d times, at some of %d points", victim_ways[r.fate.way], runs, points);
}

#define AT(way, mode) (10 * (way) + (mode))
#define EVERY(n) (10000 * (n))
enum { FAR = 100, SHADOW = 1000 };

const zt_case cases_fail_join[] = {
    { "join_kill_shadow", fail_at_points, 0, ZT_LOCAL, ZT_KILLS, 240, 0, EVERY(1) + SHADOW + AT(KILL, ONE_PASS) },
    { "join_kill_shadow_clipped", fail_at_points, 0, ZT_LOCAL, ZT_KILLS, 240, 0, EVERY(1) + SHADOW + AT(KILL, CLIPPED) },
    { "join_kill_shadow_overlap", fail_at_points, 0, ZT_LOCAL, ZT_KILLS, 240, 0, EVERY(1) + SHADOW + AT(KILL, INTERLEAVED) },
    { "join_kill_shadow_far", fail_at_points, 0, ZT_FOREIGN, ZT_KILLS, 240, 0, FAR + EVERY(1) + SHADOW + AT(KILL, CLIPPED) },
    { "join_kill_active", fail_at_points, 0, ZT_LOCAL, ZT_KILLS, 240, 0, EVERY(1) + AT(KILL, CLIPPED) },
    { "join_kill_active_overlap", fail_at_points, 0, ZT_LOCAL, ZT_KILLS, 240, 0, EVERY(1) + AT(KILL, INTERLEAVED) },
    { "join_stop_shadow", fail_at_points, 0, ZT_LOCAL, ZT_KILLS | ZT_REST, 400, 0, EVERY(3) + SHADOW + AT(STOP, ONE_PASS) },
    { "join_stop_active", fail_at_points, 0, ZT_LOCAL, ZT_KILLS | ZT_REST, 400, 0, EVERY(4) + AT(STOP, ONE_PASS) },
    { "join_held_shadow", fail_at_points, 0, ZT_THREADS, 0, 240, 0, EVERY(40) + SHADOW + AT(HOLD, ONE_PASS) },
    { "join_held_shadow_clipped", fail_at_points, 0, ZT_THREADS, ZT_REST, 400, 0, EVERY(3) + SHADOW + AT(HOLD, CLIPPED) },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
