/* Several groups of the same ranks at once: called from the main thread while functions submitted to others run, made and
 * ended meanwhile.  Nobody hangs, and every result is right, whichever way the messages go. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "zt/job.h"
#include "zt/list.h"
#include "zt/zt.h"

enum { LANES = 3, JOBS = 12, MOST = 20000 };

/* A group with calls for it. */
typedef struct lane {
    zro_group *group;
    zt_job job[JOBS];
    zro_work *work;
} lane;

static zro_status run_lane(void *user)
{
    lane *l = user;
    zro_status st = ZRO_OK;

    for (int j = 0; j < JOBS && st == ZRO_OK; j++)
        st = zt_job_call(&l->job[j]);
    return st;
}

/* `group` may be NULL: this rank is no member. */
static void prepare(zt_rank *t, lane *l, zro_group *group, uint64_t seed)
{
    memset(l, 0, sizeof *l);
    l->group = group;
    for (int j = 0; group != NULL && j < JOBS; j++) {
        l->job[j].group = group;
        l->job[j].context = "several groups";
        zt_job_random(&l->job[j], &seed, &t->random, MOST);
        zt_job_cells(&l->job[j], t);
        zt_job_prepare(&l->job[j]);
    }
}

static void submit(lane *l)
{
    if (l->group != NULL)
        CHECK_OK(zro_submit(l->group, run_lane, l, &l->work));
}

static void check(lane *l)
{
    if (l->work != NULL)
        CHECK_OK(zro_work_wait(l->work));
    zro_work_destroy(l->work);
    for (int j = 0; l->group != NULL && j < JOBS; j++) {
        zt_job_check(&l->job[j]);
        zt_job_free(&l->job[j]);
    }
}

/* This rank and every second one of the others, over the members alone: with machines that alternate or are all different, some
 * of them are on one and some are not. */
static zro_group *half(zt_rank *t)
{
    int members[ZT_MAX_RANKS], n = 0;
    zro_group *group;

    for (int r = t->size - 1; r >= 0; r--)
        if (r / 2 % 2 == t->rank / 2 % 2)
            members[n++] = r;
    CHECK_OK(zro_group_create_members(t->group, members, n, &group));
    CHECK(zro_group_size(group) == n && members[zro_group_rank(group)] == t->rank);
    return group;
}

static void one_round(zt_rank *t, uint64_t seed)
{
    lane *lanes = calloc(LANES + 1, sizeof *lanes);
    zro_group *groups[LANES];
    float x = 1;

    CHECK(lanes != NULL);
    CHECK_OK(zro_group_duplicate(t->group, &groups[0]));
    CHECK_OK(zro_group_duplicate(groups[0], &groups[1]));
    groups[2] = half(t);
    for (int i = 0; i < LANES; i++)
        prepare(t, &lanes[i], groups[i], zt_mix(seed, i == 2 ? (uint64_t)(10 + t->rank / 2 % 2) : (uint64_t)i));
    prepare(t, &lanes[LANES], t->group, zt_mix(seed, 99));
    /* Each rank submits in an order of its own; groups do not wait for each other. */
    for (int i = 0; i < LANES; i++)
        submit(&lanes[(i + t->rank) % LANES]);
    CHECK_OK(run_lane(&lanes[LANES]));
    for (int i = 0; i < LANES + 1; i++)
        check(&lanes[(i + t->rank) % (LANES + 1)]);
    for (int i = 0; i < LANES; i++)
        CHECK_OK(zro_all_reduce(groups[i], &x, 1, ZRO_F32, ZRO_MAX));
    for (int i = 0; i < LANES; i++)
        zro_group_destroy(groups[i]);
    free(lanes);
}

static void several_groups(zt_rank *t)
{
    for (long round = 0; round < t->arg; round++)
        one_round(t, zt_mix(t->seed, (uint64_t)round));
}

/* A function that makes a group, uses it and ends it, while the main thread does the same. */
static zro_status make_and_use(void *user)
{
    zro_group *made, *group = user;
    float x[3000];
    zro_status st = ZRO_OK;

    for (int i = 0; i < 5 && st == ZRO_OK; i++) {
        for (int k = 0; k < 3000; k++)
            x[k] = 1;
        st = zro_group_duplicate(group, &made);
        if (st == ZRO_OK)
            st = zro_all_reduce(made, x, 3000, ZRO_F32, ZRO_SUM);
        if (st == ZRO_OK && (x[0] != (float)zro_group_size(group) || x[2999] != x[0]))
            st = ZRO_ERR_FORMAT;
        zro_group_destroy(made);
    }
    return st;
}

static void made_at_once(zt_rank *t)
{
    zro_group *copies[2];
    zro_work *work[2];

    for (int i = 0; i < 2; i++)
        CHECK_OK(zro_group_duplicate(t->group, &copies[i]));
    for (int i = 0; i < 2; i++)
        CHECK_OK(zro_submit(copies[i], make_and_use, copies[i], &work[i]));
    CHECK_OK(make_and_use(t->group));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(zro_work_wait(work[i]));
        zro_work_destroy(work[i]);
        zro_group_destroy(copies[i]);
    }
}

/* Two members alone at a time, all pairs, while the others do something else. */
static void pairs_alone(zt_rank *t)
{
    for (int a = 0; a < t->size; a++)
        for (int b = 0; b < t->size; b++) {
            int pair[] = { a, b };
            zro_group *group;
            float x = (float)(t->rank + 1);

            if (a == b || (t->rank != a && t->rank != b))
                continue;
            CHECK_OK(zro_group_create_members(t->group, pair, 2, &group));
            CHECK(zro_group_label(group, 0) == a && zro_group_label(group, 1) == b);
            CHECK_OK(zro_all_reduce(group, &x, 1, ZRO_F32, ZRO_SUM));
            CHECK(x == (float)(a + b + 2));
            zro_group_destroy(group);
        }
    CHECK_OK(zro_barrier(t->group));
}

#define WORLDS (ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4))

const zt_case cases_group_several_groups[] = {
    { "several_groups", several_groups, WORLDS, ZT_ALL, 0, 60, 20000, 3 },
    { "several_groups_machines", several_groups, WORLDS, ZT_THREADS | ZT_MPI, ZT_OWN_MACHINES, 60, 20000, 3 },
    { "several_groups_two", several_groups, ZT_WORLD(4), ZT_ALL, ZT_TWO_MACHINES, 60, 20000, 3 },
    { "several_groups_long", several_groups, WORLDS | ZT_WORLD(7), ZT_ALL, ZT_LONG | ZT_OWN_MACHINES, 300, 20000, 40 },
    { "groups_at_once", made_at_once, WORLDS, ZT_ALL, 0, 60, 20000, 0 },
    { "groups_at_once_machines", made_at_once, WORLDS, ZT_THREADS | ZT_MPI, ZT_OWN_MACHINES, 60, 20000, 0 },
    { "pairs_alone", pairs_alone, WORLDS, ZT_ALL, 0, 60, 20000, 0 },
    { "pairs_alone_machines", pairs_alone, WORLDS, ZT_THREADS | ZT_MPI, ZT_OWN_MACHINES, 60, 20000, 0 },
    { "pairs_alone_two", pairs_alone, ZT_WORLD(4), ZT_ALL, ZT_TWO_MACHINES, 60, 20000, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
