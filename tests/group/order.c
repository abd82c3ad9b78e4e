/* S43: no order of calls that is the same on all ranks hangs.
 *
 * A sequence is drawn from a seed that all ranks have, so that each knows what all do: calls, submitted calls, submitted
 * functions of several calls, also on a second group that is lent to the function meanwhile; sub-groups, duplicates, their end.
 * Where a rank waits for its work is its own affair and differs between ranks, and so is the order in which handles go at the
 * end.  Every result is checked. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "zt/job.h"
#include "zt/zt.h"

enum { GROUPS = 6, WORKS = 8, JOBS = 4, STEPS = 30, MOST = 300 };

/* A group as every rank knows it; `group` is NULL where this rank is no member. */
typedef struct member_group {
    zro_group *group;
    int size;                  /* 0: free place */
    int members[ZT_MAX_RANKS]; /* ranks of t->group */
    int lent, works;           /* functions that use it; works issued on it and not known to be over */
} member_group;

typedef struct issued {
    int on;     /* index of its group, -1: free place */
    int lent;   /* index of the group that it uses too, -1: none */
    int waited; /* by this rank */
    zro_work *work;
    int jobs;
    zt_job job[JOBS];
    int inner_duplicate; /* makes and ends a group of its own */
} issued;

typedef struct sequence {
    zt_rank *t;
    uint64_t state; /* the same on all ranks */
    member_group groups[GROUPS];
    issued works[WORKS];
    char context[96];
} sequence;

static uint64_t choose(sequence *s, uint64_t n)
{
    return zt_below(&s->state, n);
}

/* Everybody draws alike; members alone get a job. */
static void draw_job(sequence *s, const member_group *g, zt_job *job)
{
    uint64_t seed = zt_next(&s->state);

    memset(job, 0, sizeof *job);
    if (g->group == NULL)
        return;
    job->group = g->group;
    job->context = s->context;
    zt_job_random(job, &seed, &s->t->random, MOST);
    zt_job_cells(job, s->t);
}

static zro_status run_function(void *user)
{
    issued *w = user;
    zro_group *inner;
    zro_status st = ZRO_OK;

    for (int j = 0; j < w->jobs && st == ZRO_OK; j++)
        if (w->job[j].group != NULL)
            st = zt_job_call(&w->job[j]);
    if (st == ZRO_OK && w->inner_duplicate) {
        st = zro_group_duplicate(w->job[0].group, &inner);
        if (st == ZRO_OK)
            st = zro_barrier(inner);
        zro_group_destroy(inner);
    }
    return st;
}

/* This rank waits; what others know of the work does not change. */
static void wait_here(issued *w)
{
    if (w->waited)
        return;
    w->waited = 1;
    if (w->work == NULL)
        return;
    CHECK_OK(zro_work_wait(w->work));
    zro_work_destroy(w->work);
    for (int j = 0; j < w->jobs; j++)
        if (w->job[j].group != NULL) {
            zt_job_check(&w->job[j]);
            zt_job_free(&w->job[j]);
        }
}

/* All ranks wait: the groups are free again. */
static void wait_everywhere(sequence *s, issued *w)
{
    wait_here(w);
    s->groups[w->on].works--;
    if (w->lent >= 0)
        s->groups[w->lent].lent--;
    w->on = -1;
}

static issued *free_work(sequence *s)
{
    issued *w = &s->works[choose(s, WORKS)];

    if (w->on >= 0)
        wait_everywhere(s, w);
    memset(w, 0, sizeof *w);
    w->on = w->lent = -1;
    return w;
}

static int any_group(sequence *s)
{
    int g;

    do
        g = (int)choose(s, GROUPS);
    while (s->groups[g].size == 0 || s->groups[g].lent > 0);
    return g;
}

static int is_inside(const member_group *inner, const member_group *outer)
{
    for (int i = 0; i < inner->size; i++) {
        int found = 0;

        for (int o = 0; o < outer->size; o++)
            found |= inner->members[i] == outer->members[o];
        if (!found)
            return 0;
    }
    return 1;
}

static void step_call(sequence *s)
{
    int g = any_group(s);
    zt_job job;

    draw_job(s, &s->groups[g], &job);
    if (job.group != NULL)
        zt_job_run(&job, 0);
}

static void step_submit(sequence *s, int is_function)
{
    issued *w = free_work(s);
    int on = any_group(s), second = any_group(s);
    member_group *g = &s->groups[on];

    w->on = on;
    g->works++;
    w->jobs = is_function ? 1 + (int)choose(s, JOBS) : 1;
    if (is_function && second != on && is_inside(&s->groups[second], g)) {
        w->lent = second;
        s->groups[second].lent++;
    }
    w->inner_duplicate = is_function && choose(s, 8) == 0;
    for (int j = 0; j < w->jobs; j++)
        draw_job(s, j % 2 == 1 && w->lent >= 0 ? &s->groups[second] : g, &w->job[j]);
    if (g->group == NULL)
        return;
    for (int j = 0; j < w->jobs; j++)
        if (w->job[j].group != NULL)
            zt_job_prepare(&w->job[j]);
    CHECK_OK(zro_submit(g->group, run_function, w, &w->work));
}

static void step_create(sequence *s)
{
    member_group *parent = &s->groups[any_group(s)], *made = NULL, fresh = { 0 };
    int how = (int)choose(s, 3), ranks[ZT_MAX_RANKS], mine = -1;

    for (int g = 0; g < GROUPS && made == NULL; g++)
        if (s->groups[g].size == 0)
            made = &s->groups[g];
    if (made == NULL)
        return;
    if (how == 0) { /* duplicate */
        fresh = *parent;
        fresh.group = NULL;
        fresh.lent = fresh.works = 0;
        if (parent->group != NULL)
            CHECK_OK(zro_group_duplicate(parent->group, &fresh.group));
        *made = fresh;
        return;
    }
    for (int r = 0; r < parent->size; r++)
        ranks[r] = r;
    for (int r = parent->size - 1; r > 0; r--) {
        int other = (int)choose(s, (uint64_t)r + 1), swapped = ranks[r];

        ranks[r] = ranks[other];
        ranks[other] = swapped;
    }
    fresh.size = 1 + (int)choose(s, (uint64_t)parent->size);
    for (int r = 0; r < fresh.size; r++) {
        fresh.members[r] = parent->members[ranks[r]];
        if (fresh.members[r] == s->t->rank)
            mine = r;
    }
    if (parent->group != NULL && how == 1)
        CHECK_OK(zro_group_create_sub(parent->group, ranks, fresh.size, &fresh.group));
    if (parent->group != NULL && how == 2 && mine >= 0)
        CHECK_OK(zro_group_create_members(parent->group, ranks, fresh.size, &fresh.group));
    CHECK((fresh.group != NULL) == (mine >= 0));
    if (mine >= 0)
        CHECK(zro_group_rank(fresh.group) == mine && zro_group_label(fresh.group, mine) == s->t->rank);
    *made = fresh;
}

static void step_destroy(sequence *s)
{
    member_group *g = &s->groups[1 + choose(s, GROUPS - 1)];

    if (g->size == 0 || g->lent > 0 || g->works > 0)
        return;
    zro_group_destroy(g->group);
    memset(g, 0, sizeof *g);
}

/* Each rank looks at or waits for whatever it likes. */
static void own_waits(sequence *s)
{
    uint64_t *own = &s->t->random;
    int done;

    for (int i = 0; i < WORKS; i++) {
        issued *w = &s->works[i];

        if (w->on < 0 || w->waited || w->work == NULL)
            continue;
        if (zt_below(own, 4) == 0)
            CHECK_OK(zro_work_test(w->work, &done));
        if (zt_below(own, 16) == 0)
            wait_here(w);
    }
}

static void finish(sequence *s)
{
    int first = (int)zt_below(&s->t->random, GROUPS);

    for (int i = 0; i < WORKS; i++)
        if (s->works[i].on >= 0)
            wait_everywhere(s, &s->works[i]);
    for (int i = 0; i < GROUPS; i++)
        if ((first + i) % GROUPS != 0)
            zro_group_destroy(s->groups[(first + i) % GROUPS].group);
}

static void run_sequence(zt_rank *t, int number)
{
    sequence s = { .t = t, .state = zt_mix(t->seed, (uint64_t)number) };

    snprintf(s.context, sizeof s.context, "sequence %d, --seed %" PRIu64, number, zt_opt.seed);
    for (int i = 0; i < WORKS; i++)
        s.works[i].on = s.works[i].lent = -1;
    s.groups[0].group = t->group;
    s.groups[0].size = t->size;
    for (int r = 0; r < t->size; r++)
        s.groups[0].members[r] = r;
    for (int i = 0; i < STEPS; i++) {
        uint64_t what = choose(&s, 100);

        if (what < 35)
            step_call(&s);
        else if (what < 55)
            step_submit(&s, 0);
        else if (what < 75)
            step_submit(&s, 1);
        else if (what < 87)
            step_create(&s);
        else if (what < 92)
            step_destroy(&s);
        else if (s.works[what % WORKS].on >= 0)
            wait_everywhere(&s, &s.works[what % WORKS]);
        own_waits(&s);
    }
    finish(&s);
}

static void order(zt_rank *t)
{
    for (int i = 0; i < (int)t->arg; i++)
        run_sequence(t, i);
    if (t->rank == 0)
        zt_note(t, "%ld sequences, seed %" PRIu64, t->arg, zt_opt.seed);
}

#define WORLDS (ZT_WORLD(1) | ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4))
#define LONG_WORLDS (ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4))

const zt_case cases_group_order[] = {
    { "S43_order", order, WORLDS, ZT_BOTH, 0, 60, 20000, 12 },
    { "S43_order", order, ZT_WORLD(3), ZT_LINKS, 0, 60, 20000, 12 },
    { "S43_order_machines", order, ZT_WORLD(2) | ZT_WORLD(4), ZT_MPI, ZT_OWN_MACHINES, 60, 20000, 12 },
    { "S43_order_two", order, ZT_WORLD(4), ZT_LINKS | ZT_THREADS, ZT_TWO_MACHINES, 60, 20000, 12 },
    { "S43_order_long", order, LONG_WORLDS, ZT_BOTH, ZT_LONG, 400, 20000, 600 },
    { "S43_order_long", order, LONG_WORLDS, ZT_LINKS, ZT_LONG, 400, 20000, 100 },
    { "S43_order_machines_long", order, LONG_WORLDS, ZT_MPI, ZT_LONG | ZT_OWN_MACHINES, 400, 20000, 100 },
    { "S43_order_two_long", order, LONG_WORLDS, ZT_LINKS, ZT_LONG | ZT_TWO_MACHINES, 400, 20000, 100 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
