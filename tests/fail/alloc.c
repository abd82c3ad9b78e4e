/* The nth allocation, or another resource, fails on one rank, for n = 1, 2, ... until all succeed: in every create this is an
 * error there and PEER with its text elsewhere, never a hang; the group that it was made from stays whole, and nothing is left. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/point.h"
#include "zt/job.h"
#include "zt/list.h"
#include "zt/zt.h"

enum { ODD = 1, MOST = 200 };

typedef enum creation { TICKETS, SUB, MEMBERS, DUPLICATE, MEMORY_EACH, MEMORY_ONCE } creation;

typedef struct made {
    zro_group *group;
    zro_memory *memory;
} made;

/* With a thread more, which may not start. */
static zro_group_config create_config(void)
{
    zro_group_config config = zt_config();

    config.settings.threads++;
    return config;
}

static zro_status create(zt_rank *t, creation what, const void *tickets, made *m)
{
    zro_group_config config = create_config();
    int members[ZT_MAX_RANKS];

    for (int r = 0; r < t->size; r++)
        members[r] = t->size - 1 - r;
    switch (what) {
    case TICKETS:
        return zro_group_create_tickets(&config, t->rank, t->size, tickets, &m->group);
    case SUB:
        return zro_group_create_sub(t->group, members, t->size, &m->group);
    case MEMBERS:
        return zro_group_create_members(t->group, members, t->size, &m->group);
    case DUPLICATE:
        return zro_group_duplicate(t->group, &m->group);
    case MEMORY_EACH:
        return zro_memory_alloc(t->group, ZRO_MEMORY_EACH, 1 << 20, &m->memory);
    case MEMORY_ONCE:
        return zro_memory_alloc(t->group, ZRO_MEMORY_ONCE, 1 << 20, &m->memory);
    }
    return ZRO_ERR_STATE;
}

/* Whether any rank says so. */
static int any(zt_rank *t, int mine)
{
    int all[ZT_MAX_RANKS], result = 0;

    zt_exchange(t, &mine, sizeof mine, all);
    for (int r = 0; r < t->size; r++)
        result |= all[r];
    return result;
}

/* MEMORY (or what the system said) on the rank itself, its text on the others, its number in the group or in the first. */
static void check_refused(zt_rank *t, int odd, zro_status st)
{
    char rank[32], label[32];

    if (t->rank == odd) {
        CHECK(st == ZRO_ERR_MEMORY || st == ZRO_ERR_SYSTEM);
        return;
    }
    CHECK_STATUS(st, ZRO_ERR_PEER);
    snprintf(rank, sizeof rank, "rank %d", odd);
    snprintf(label, sizeof label, "%d of the first group", odd);
    CHECK(strstr(zro_last_error(), rank) != NULL || strstr(zro_last_error(), label) != NULL);
    CHECK(strstr(zro_last_error(), "MEMORY") != NULL || strstr(zro_last_error(), "SYSTEM") != NULL);
}

/* The nth passing of a point fails on one rank; 1 if there was one. */
static int fail_once(zt_rank *t, int odd, const char *point, long nth, int *refused)
{
    unsigned char mine[ZRO_TICKET_BYTES], tickets[ZT_MAX_RANKS * ZRO_TICKET_BYTES];
    zro__point_plan plan = { .name = point, .action = ZRO__POINT_FAIL, .nth = nth };
    zro_group_config config = create_config();
    zt_held before = zt_held_now();
    made m = { 0 };
    zro_status st;
    int failed;

    if (t->arg == TICKETS) {
        CHECK_OK(zro_group_ticket(&config, t->rank, t->size, mine));
        zt_exchange(t, mine, sizeof mine, tickets);
    }
    if (t->rank == odd)
        zro__point_plan_set(&plan);
    st = create(t, (creation)t->arg, tickets, &m);
    zro__point_plan_set(NULL);
    failed = any(t, t->rank == odd && atomic_load(&plan.hits) >= nth);
    /* What can be done without may fail unnoticed, but then by all. */
    if (any(t, st != ZRO_OK)) {
        CHECK(failed);
        CHECK(m.group == NULL && m.memory == NULL);
        check_refused(t, odd, st);
        ++*refused;
    } else if (m.group != NULL) {
        CHECK_OK(zro_barrier(m.group));
    }
    CHECK_OK(zro_barrier(t->group));
    zro_group_destroy(m.group);
    zro_memory_free(m.memory);
    CHECK_OK(zro_barrier(t->group));
    if (!t->threads)
        CHECK_HELD(before);
    zt_meet(t);
    return failed;
}

static void failing_creates(zt_rank *t)
{
    static const char *const points[] = { "memory.alloc", "memory.region", "memory.populate", "pool.thread" };
    int failures = 0, refused = 0;

#ifndef ZRO__POINTS
    zt_skip(t, "the library was built without ZRO__POINTS");
#endif
    for (int odd = 0; odd < 2; odd++)
        for (size_t p = 0; p < sizeof points / sizeof *points; p++)
            for (int n = 1; fail_once(t, odd, points[p], n, &refused); n++) {
                CHECK(n < MOST);
                failures++;
            }
    CHECK(refused > 0);
    if (t->rank == 0)
        zt_note(t, "%d failures, %d refusals", failures, refused);
}

/* A ticket is a rank's own affair.  One that could not be written is handed on as zeros, by which all are refused. */
static void failing_ticket(zt_rank *t)
{
    unsigned char tickets[ZT_MAX_RANKS * ZRO_TICKET_BYTES];
    zro_group_config config = zt_config();
    int failed = 1;

#ifndef ZRO__POINTS
    zt_skip(t, "the library was built without ZRO__POINTS");
#endif
    for (int n = 1; failed; n++) {
        zro__point_plan plan = { .name = "memory.alloc", .action = ZRO__POINT_FAIL, .nth = n };
        unsigned char mine[ZRO_TICKET_BYTES] = { 0 };
        zt_held before = zt_held_now();
        zro_group *group;
        zro_status st;

        if (t->rank == ODD)
            zro__point_plan_set(&plan);
        st = zro_group_ticket(&config, t->rank, t->size, mine);
        zro__point_plan_set(NULL);
        failed = any(t, st != ZRO_OK);
        if (st != ZRO_OK) {
            CHECK(t->rank == ODD);
            CHECK_STATUS(st, ZRO_ERR_MEMORY);
            memset(mine, 0, sizeof mine);
        }
        zt_exchange(t, mine, sizeof mine, tickets);
        CHECK_STATUS(zro_group_create_tickets(&config, t->rank, t->size, tickets, &group), failed ? ZRO_ERR_INVALID : ZRO_OK);
        zro_group_destroy(group);
        CHECK_OK(zro_barrier(t->group));
        if (!t->threads)
            CHECK_HELD(before);
        zt_meet(t);
    }
}

static zro_status return_ok(void *user)
{
    (void)user;
    return ZRO_OK;
}

/* A submit that fails is this rank's refusal; nothing was issued, so the group stays whole. */
static void failing_submit(zt_rank *t)
{
    int failed = 1;

#ifndef ZRO__POINTS
    zt_skip(t, "the library was built without ZRO__POINTS");
#endif
    for (int n = 1; failed; n++) {
        zro__point_plan plan = { .name = "memory.alloc", .action = ZRO__POINT_FAIL, .nth = n };
        zro_group *group;
        zro_work *work;
        zro_status st;

        CHECK_OK(zro_group_duplicate(t->group, &group));
        if (t->rank == ODD)
            zro__point_plan_set(&plan);
        st = zro_submit(group, return_ok, NULL, &work);
        zro__point_plan_set(NULL);
        failed = any(t, st != ZRO_OK);
        CHECK_STATUS(st, failed && t->rank == ODD ? ZRO_ERR_MEMORY : ZRO_OK);
        CHECK((st == ZRO_OK) == (work != NULL));
        if (work != NULL)
            CHECK_OK(zro_work_wait(work));
        zro_work_destroy(work);
        CHECK_OK(zro_barrier(group));
        zro_group_destroy(group);
        CHECK(n < MOST);
    }
}

/* The first messages between two ranks take buffers.  A rank that has no memory for them breaks the group, because its peers wait
 * for what it cannot send: all hear why. */
static void messages_without_memory(zt_rank *t)
{
    static const char *const points[] = { "memory.alloc", "memory.region" };
    float *x = calloc(300000, sizeof *x);
    int failures = 0;

#ifndef ZRO__POINTS
    zt_skip(t, "the library was built without ZRO__POINTS");
#endif
    CHECK(x != NULL);
    for (int n = 0, missed = 0; missed < 2; n++) { /* until neither point is passed so often */
        zro__point_plan plan = { .name = points[n % 2], .action = ZRO__POINT_FAIL, .nth = n / 2 + 1 };
        zro_group *group;
        zro_status st;
        int hit;

        CHECK_OK(zro_group_duplicate(t->group, &group));
        if (t->rank == ODD)
            zro__point_plan_set(&plan);
        st = zro_all_reduce(group, x, 300000, ZRO_F32, ZRO_SUM);
        zro__point_plan_set(NULL);
        hit = any(t, t->rank == ODD && atomic_load(&plan.hits) >= plan.nth);
        missed = hit ? 0 : missed + 1;
        CHECK_STATUS(zro_group_status(group), any(t, st != ZRO_OK) ? ZRO_ERR_MEMORY : ZRO_OK);
        CHECK_STATUS(st, zro_group_status(group));
        CHECK(n < 2 * MOST && (hit || st == ZRO_OK));
        failures += st != ZRO_OK;
        zro_group_destroy(group);
    }
    if (t->rank == 0)
        zt_note(t, "%d calls without memory", failures);
    CHECK(failures > 0);
    free(x);
}

/* Calls allocate nothing, but the buffers of the first messages and what broadcast_bytes returns, which is refused by all if one
 * cannot. */
static void calls_allocate_nothing(zt_rank *t)
{
    zt_job first = { .group = t->group, .call = ZT_ALL_REDUCE, .count = 300000, .seed = 1 };

#ifndef ZRO__POINTS
    zt_skip(t, "the library was built without ZRO__POINTS");
#endif
    for (int r = 0; r < t->size; r++)
        first.stream[r] = r;
    zt_job_run(&first, 0);
    for (int call = 0; call < ZT_CALLS; call++)
        for (int round = 0; round < 4; round++) {
            zro__point_plan plan = { .name = "memory.alloc", .action = ZRO__POINT_FAIL, .nth = round };
            zt_job job = { .group = t->group, .call = (zt_call)call, .count = round % 2 == 0 ? 100 : 300000, .seed = 1 };
            zro_status st;

            for (int r = 0; r < t->size; r++) {
                job.counts[r] = job.count;
                job.stream[r] = r;
            }
            zt_job_prepare(&job);
            if (t->rank == ODD)
                zro__point_plan_set(&plan);
            st = zt_job_call(&job);
            zro__point_plan_set(NULL);
            if (call != ZT_BROADCAST_BYTES)
                CHECK(atomic_load(&plan.hits) == 0);
            if (any(t, st != ZRO_OK))
                check_refused(t, ODD, st);
            else
                zt_job_check(&job);
            zt_job_free(&job);
            CHECK_OK(zro_barrier(t->group));
        }
}

static int idle(void *user, zro_group *group)
{
    (void)user;
    return zro_barrier(group) != ZRO_OK;
}

/* The plan is every rank's and the supervisor's: whoever fails, zro_spawn returns. */
static void failing_spawn(zt_rank *t)
{
    zro_status (*spawn)(const zro_group_config *, int, zro_rank_fn, void *) = t->arg ? zro_spawn_threads : zro_spawn;
    zro_group_config config = zt_config();
    zro_status st = ZRO_ERR_MEMORY;
    zt_held before;
    int n = 1;

#ifndef ZRO__POINTS
    zt_skip(t, "the library was built without ZRO__POINTS");
#endif
    CHECK_OK(spawn(&config, 2, idle, NULL)); /* sanitizers start a thread of their own with the first */
    before = zt_held_now();
    for (; st != ZRO_OK; n++) {
        zro__point_plan plan = { .name = "memory.alloc", .action = ZRO__POINT_FAIL, .nth = n };

        zro__point_plan_set(&plan);
        st = spawn(&config, 2, idle, NULL);
        zro__point_plan_set(NULL);
        CHECK(st == ZRO_OK || st == ZRO_ERR_MEMORY || st == ZRO_ERR_PEER || st == ZRO_ERR_INVALID);
        CHECK_HELD(before);
        CHECK(n < MOST);
    }
    zt_note(t, "%d allocations failed", n - 2);
}

#define WORLDS (ZT_WORLD(2) | ZT_WORLD(3))

/* ---- far members ---- */

/* A region that cannot be had on one machine fails the create on all, at once, and the next one is not disturbed by it. */
static void far_region(zt_rank *t)
{
    zro__point_plan plan = { .name = "memory.region", .action = ZRO__POINT_FAIL, .nth = 1 };
    int all[ZT_MAX_RANKS];
    zro_group *group;
    zro_status st;

#ifndef ZRO__POINTS
    zt_skip(t, "the library was built without ZRO__POINTS");
#endif
    for (int r = 0; r < t->size; r++)
        all[r] = r;
    for (int odd = 0; odd < t->size; odd++) {
        atomic_store(&plan.hits, 0);
        if (t->rank == odd)
            zro__point_plan_set(&plan);
        st = zro_group_create_members(t->group, all, t->size, &group);
        zro__point_plan_set(NULL);
        if (st != ZRO_OK) {
            CHECK_STATUS(st, t->rank == odd ? ZRO_ERR_MEMORY : ZRO_ERR_PEER);
            CHECK(group == NULL);
        }
        CHECK(any(t, st != ZRO_OK) == (st != ZRO_OK));
        zro_group_destroy(group);
        CHECK_OK(zro_group_create_members(t->group, all, t->size, &group));
        CHECK_OK(zro_barrier(group));
        zro_group_destroy(group);
    }
}

const zt_case cases_fail_alloc[] = {
    { "alloc_fails_far", far_region, ZT_WORLD(2) | ZT_WORLD(3), ZT_FOREIGN, 0, 60, 0, 0 },
    { "alloc_fails_far_two", far_region, ZT_WORLD(4), ZT_LINKS, ZT_TWO_MACHINES, 60, 0, 0 },
    { "alloc_fails_tickets", failing_creates, WORLDS, ZT_BOTH, 0, 0, 0, TICKETS },
    { "alloc_fails_sub", failing_creates, WORLDS, ZT_BOTH, 0, 0, 0, SUB },
    { "alloc_fails_members", failing_creates, WORLDS, ZT_BOTH, 0, 0, 0, MEMBERS },
    { "alloc_fails_duplicate", failing_creates, WORLDS, ZT_BOTH, 0, 0, 0, DUPLICATE },
    { "alloc_fails_memory_each", failing_creates, WORLDS, ZT_BOTH, 0, 0, 0, MEMORY_EACH },
    { "alloc_fails_memory_once", failing_creates, WORLDS, ZT_BOTH, 0, 0, 0, MEMORY_ONCE },
    { "alloc_fails_ticket", failing_ticket, WORLDS, ZT_BOTH, 0, 0, 0, 0 },
    { "alloc_fails_submit", failing_submit, WORLDS, ZT_BOTH, 0, 0, 0, 0 },
    { "alloc_fails_calls", calls_allocate_nothing, WORLDS, ZT_BOTH, 0, 0, 0, 0 },
    { "alloc_fails_messages", messages_without_memory, WORLDS, ZT_BOTH | ZT_FOREIGN, 0, 0, 0, 0 },
    { "alloc_fails_spawn", failing_spawn, 0, ZT_LOCAL, 0, 0, 0, 0 },
    { "alloc_fails_spawn_threads", failing_spawn, 0, ZT_THREADS, 0, 0, 0, 1 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
