/* A rank dies: the others are told LOST with its number, long before the group's own deadline.
 *
 * kill_*: the victim is killed at each ZRO__POINT that it passes in an operation.  A first run lists the points; then there is
 * one run for each (point, first passing) and, where a point is passed often, one in the middle.  An operation that could
 * complete without the victim may be OK for a survivor; then its next barrier says LOST.  After each run the supervisor holds
 * nothing more than before. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/point.h"
#include "zt/job.h"
#include "zt/list.h"
#include "zt/zt.h"

enum { VICTIM = 1, RANKS = 3, LATENCIES = 20 };
/* A third of the group's deadline: who waits for that fails, and who waits for a processor does not. */
static const uint64_t TOLD_WITHIN_NS = UINT64_C(20000000000);

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

/* On the shared page: when the victim died. */
static atomic_ullong *death_of(zt_rank *t)
{
    return &t->shared->number[0];
}

/* ---- what is done when death comes ---- */

enum { SUBMITTED = ZT_CALLS, SUB, MEMBERS, DUPLICATE, DESTROY, MEMORY_EACH, MEMORY_ONCE, TICKETS, DOINGS };
enum { FAR = 100 }; /* added: ranks share no memory */

typedef struct doing {
    zt_job job;
    zro_memory *in_memory, *out_memory, *memory;
    zro_group *group;
    unsigned char tickets[RANKS * ZRO_TICKET_BYTES];
} doing;

/* How arrays lie: small own memory; group memory; own memory that needs many messages. */
enum { VARIANTS = 3 };

static void set_up(zt_rank *t, int what, int variant, doing *d)
{
    unsigned char ticket[ZRO_TICKET_BYTES];
    zro_group_config config = zt_config();
    zt_job *job = &d->job;
    size_t bytes;

    memset(d, 0, sizeof *d);
    job->group = t->group;
    job->call = what < ZT_CALLS ? (zt_call)what : ZT_ALL_REDUCE;
    job->count = variant == 2 ? 400000 : 5000;
    job->root = variant == 0 ? 0 : VICTIM;
    for (int r = 0; r < t->size; r++) {
        job->counts[r] = job->count;
        job->stream[r] = r;
    }
    if (variant == 1) {
        bytes = zt_job_room(job, t->size);
        CHECK_OK(zro_memory_alloc(t->group, ZRO_MEMORY_EACH, bytes, &d->in_memory));
        CHECK_OK(zro_memory_alloc(t->group, ZRO_MEMORY_EACH, bytes, &d->out_memory));
        job->in_room = zro_memory_data(d->in_memory);
        job->out_room = zro_memory_data(d->out_memory);
    }
    zt_job_prepare(job);
    if (what == DESTROY)
        CHECK_OK(zro_group_duplicate(t->group, &d->group));
    if (what == TICKETS) {
        CHECK_OK(zro_group_ticket(&config, t->rank, t->size, ticket));
        zt_exchange(t, ticket, sizeof ticket, d->tickets);
    }
}

static zro_status carry_out(zt_rank *t, int what, doing *d)
{
    static const int members[] = { 2, 1, 0 };
    zro_group_config config = zt_config();
    zro_work *work;
    zro_status st;

    switch (what) {
    case SUBMITTED:
        st = zro_submit(t->group, zt_job_call, &d->job, &work);
        if (st == ZRO_OK) {
            st = zro_work_wait(work);
            zro_work_destroy(work);
        }
        return st;
    case SUB:
        return zro_group_create_sub(t->group, members, RANKS, &d->group);
    case MEMBERS:
        return zro_group_create_members(t->group, members, RANKS, &d->group);
    case DUPLICATE:
        return zro_group_duplicate(t->group, &d->group);
    case DESTROY:
        zro_group_destroy(d->group);
        d->group = NULL;
        return ZRO_OK;
    case MEMORY_EACH:
        return zro_memory_alloc(t->group, ZRO_MEMORY_EACH, 1 << 20, &d->memory);
    case MEMORY_ONCE:
        return zro_memory_alloc(t->group, ZRO_MEMORY_ONCE, 1 << 20, &d->memory);
    case TICKETS:
        config.timeout_ms = 1000;
        return zro_group_create_tickets(&config, t->rank, t->size, d->tickets, &d->group);
    default:
        return zt_job_call(&d->job);
    }
}

static void tear_down(doing *d)
{
    zt_job_free(&d->job);
    zro_memory_free(d->in_memory);
    zro_memory_free(d->out_memory);
    zro_memory_free(d->memory);
    zro_group_destroy(d->group);
}

/* ---- one run ---- */

typedef struct run {
    int what, variant;
    const char *point; /* NULL: list the points */
    long nth;
} run;

static void die_now(void *user)
{
    atomic_store(death_of(user), now_ns());
    raise(SIGKILL);
}

static void victim(zt_rank *t, const run *r, doing *d)
{
    zro__point_plan plan = { .action = ZRO__POINT_LIST, .seen = zt_note_point, .user = t->shared };

    if (r->point != NULL) {
        plan.name = r->point;
        plan.action = ZRO__POINT_KILL;
        plan.nth = r->nth;
        plan.kill_rank = die_now;
        plan.user = t;
        zt_expect_lost(t, t->rank);
    }
    zro__point_plan_set(&plan);
    CHECK_OK(carry_out(t, r->what, d));
    /* Some points depend on time and were not passed as often as in the first run. */
    if (r->point != NULL)
        die_now(t);
    zro__point_plan_set(NULL);
}

static void survivor(zt_rank *t, const run *r, doing *d)
{
    zro_status st = carry_out(t, r->what, d);
    uint64_t late;

    if (r->point == NULL) {
        CHECK_OK(st);
        return;
    }
    if (st == ZRO_OK)
        st = zro_barrier(t->group);
    late = now_ns() - atomic_load(death_of(t));
    CHECK_STATUS(st, ZRO_ERR_LOST);
    CHECK_TEXT("rank 1");
    CHECK(late < TOLD_WITHIN_NS);
    /* The verdict may have been another group's; this one has the same rank, and says so at its next operation at the latest. */
    CHECK_STATUS(zro_barrier(t->group), ZRO_ERR_LOST);
    CHECK_STATUS(zro_group_status(t->group), ZRO_ERR_LOST);
    CHECK_TEXT("rank 1");
}

static void one_run(zt_rank *t)
{
    const run *r = t->user;
    doing *d = malloc(sizeof *d);

    CHECK(d != NULL);
    set_up(t, r->what, r->variant, d);
    CHECK_OK(zro_barrier(t->group));
    if (t->rank == VICTIM)
        victim(t, r, d);
    else
        survivor(t, r, d);
    tear_down(d);
    free(d);
}

static void kill_points(zt_rank *t)
{
    zro_group_config config = zt_config();
    int backend = t->arg >= FAR ? ZT_FOREIGN : ZT_LOCAL, what = (int)t->arg % FAR;
    int variants = what < SUB ? VARIANTS : 1, runs = 0, points = 0;
    zt_held before;

#ifndef ZRO__POINTS
    zt_skip(t, "the library was built without ZRO__POINTS");
#endif
    config.timeout_ms = 60000;
    for (int v = 0; v < variants; v++) {
        run r = { what, v, NULL, 0 };
        char name[64];

        memset(t->shared->text, 0, sizeof t->shared->text);
        for (int p = 0; p < ZT_MAX_POINTS; p++)
            atomic_store(&t->shared->passings[p], 0);
        before = zt_held_now();
        zt_ranks(t, backend, &config, RANKS, one_run, &r);
        for (int p = 0; p < ZT_MAX_POINTS && t->shared->text[p][0] != '\0'; p++) {
            long passings = (long)atomic_load(&t->shared->passings[p]);

            snprintf(name, sizeof name, "%s", t->shared->text[p]);
            r.point = name;
            for (r.nth = 1; r.nth <= passings; r.nth += passings < 3 ? passings : passings / 2, runs++) {
                printf("variant %d, killed at %s, passing %ld of %ld\n", v, name, r.nth, passings);
                zt_ranks(t, backend, &config, RANKS, one_run, &r);
            }
            points++;
        }
        CHECK_HELD(before);
    }
    zt_note(t, "%d kills at %d points", runs, points);
}

/* ---- death before the arrival is released ---- */

/* The header is written and not yet released: nobody may take this rank for arrived, and so no barrier ends well. */
static void dies_unreleased(zt_rank *t)
{
    zro__point_plan plan = { .name = "slot.header", .action = ZRO__POINT_KILL, .nth = 1, .kill_rank = die_now, .user = t };

    CHECK_OK(zro_barrier(t->group));
    if (t->rank == VICTIM) {
        zt_expect_lost(t, t->rank);
        zro__point_plan_set(&plan);
    }
    CHECK_STATUS(zro_barrier(t->group), ZRO_ERR_LOST);
    CHECK(t->rank != VICTIM);
    CHECK_TEXT("rank 1");
}

static void kill_unreleased(zt_rank *t)
{
    zro_group_config config = zt_config();

#ifndef ZRO__POINTS
    zt_skip(t, "the library was built without ZRO__POINTS");
#endif
    zt_ranks(t, ZT_LOCAL, &config, RANKS, dies_unreleased, NULL);
}

/* ---- death between operations, all kinds of ranks ---- */

/* A rank whose memory nobody shares is found dead by its link, or does not come: MPI may keep silent about it. */
static void check_gone(zt_rank *t, zro_status st)
{
    if (t->machines != ZT_OWN || st != ZRO_ERR_TIMEOUT)
        CHECK_STATUS(st, ZRO_ERR_LOST);
}

/* A rank that dies before an all-reduce must not hang the others: they hear of it long before the group's own deadline. */
static void survivors_hear_of_a_dead_peer(zt_rank *t)
{
    float x[1000] = { 0 };
    zro_group *g;

    CHECK_OK(zro_group_duplicate(t->group, &g));
    CHECK_OK(zro_barrier(g));
    if (t->rank == 1)
        zt_die(t); /* SIGKILL, or the end of the thread */
    check_gone(t, zro_all_reduce(g, x, 1000, ZRO_F32, ZRO_SUM));
    CHECK_TEXT("rank 1");
    check_gone(t, zro_barrier(g));
    check_gone(t, zro_group_status(g));
    CHECK_TEXT("rank 1");
    zro_group_destroy(g);
}

/* Groups without the dead rank stay whole. */
static void others_stay_whole(zt_rank *t)
{
    int members[] = { 2, 0 };
    zro_group *without;
    float x = (float)t->rank;

    CHECK_OK(zro_group_create_sub(t->group, members, 2, &without));
    if (t->rank == 1)
        zt_die(t);
    check_gone(t, zro_barrier(t->group));
    for (int i = 0; i < 100; i++)
        CHECK_OK(zro_all_reduce(without, &x, 1, ZRO_F32, ZRO_MAX));
    CHECK(x == 2);
    CHECK_OK(zro_group_status(without));
    zro_group_destroy(without);
}

/* In a sub-group the text has both numbers. */
static void text_has_the_label(zt_rank *t)
{
    int members[] = { 2, 1, 0 };
    zro_group *sub;

    CHECK_OK(zro_group_create_sub(t->group, members, 3, &sub));
    if (t->rank == 2)
        zt_die(t);
    check_gone(t, zro_barrier(sub));
    CHECK_TEXT("rank 0");
    CHECK_TEXT("2 of the first group");
    zro_group_destroy(sub);
}

/* Submitted work ends with the verdict, and its waiter has the text. */
static zro_status reduce_one(void *group)
{
    float x = 1;

    return zro_all_reduce(group, &x, 1, ZRO_F32, ZRO_SUM);
}

static void submitted_work_hears_of_it(zt_rank *t)
{
    zro_work *work[3];

    if (t->rank == 1) {
        zt_await(t, &t->shared->flag[0], (unsigned)t->size - 1);
        zt_die(t);
    }
    for (int i = 0; i < 3; i++)
        CHECK_OK(zro_submit(t->group, reduce_one, t->group, &work[i]));
    atomic_fetch_add(&t->shared->flag[0], 1);
    for (int i = 0; i < 3; i++) {
        check_gone(t, zro_work_wait(work[i]));
        CHECK_TEXT("rank 1");
        zro_work_destroy(work[i]);
    }
}

/* A rank that destroys its group leaves it; whoever calls on it then is told. */
static void leaving_is_told(zt_rank *t)
{
    zro_group *g;

    CHECK_OK(zro_group_duplicate(t->group, &g));
    CHECK_OK(zro_barrier(g));
    if (t->rank != 1)
        CHECK_STATUS(zro_barrier(g), ZRO_ERR_LOST);
    zro_group_destroy(g);
    CHECK_OK(zro_barrier(t->group));
}

static zro_status await_flag(void *user)
{
    zt_rank *t = user;

    zt_await(t, &t->shared->flag[0], 1);
    return zro_barrier(t->user);
}

/* Destroying a group with work under way cancels the work: the others are told, and other groups stay whole. */
static void destroy_cancels_work(zt_rank *t)
{
    zro_group *g;
    zro_work *work, *second;
    zro_status st;

    CHECK_OK(zro_group_duplicate(t->group, &g));
    t->user = g;
    if (t->rank == 1) {
        CHECK_OK(zro_submit(g, reduce_one, g, &work));
        CHECK_OK(zro_submit(g, reduce_one, g, &second));
        zro_work_destroy(second);
        zro_group_destroy(g);
        atomic_store(&t->shared->flag[0], 1);
        CHECK(zro_work_wait(work) != ZRO_OK); /* the handle outlives its group */
        zro_work_destroy(work);
    } else {
        st = zro_submit(g, await_flag, t, &work); /* refused if the others' end has come first */
        if (st == ZRO_OK)
            st = zro_work_wait(work);
        CHECK(st == ZRO_ERR_LOST || st == ZRO_ERR_MISMATCH);
        zro_work_destroy(work);
        CHECK(zro_group_status(g) != ZRO_OK);
        zro_group_destroy(g);
    }
    CHECK_OK(zro_barrier(t->group));
}

/* ---- the supervisor dies ---- */

static int wait_for_ever(void *user, zro_group *group)
{
    zt_rank *t = user;

    (void)group;
    atomic_fetch_add(&t->shared->flag[0], 1);
    while (pause() != 0) {
    }
    return 0;
}

/* Its ranks end with it: the runner finds no process of this instance. */
static void supervisor_dies(zt_rank *t)
{
    zro_group_config config = zt_config();
    pid_t pid = fork();
    int status;

    CHECK(pid >= 0);
    if (pid == 0)
        _exit(zro_spawn(&config, RANKS, wait_for_ever, t) == ZRO_OK);
    zt_await(t, &t->shared->flag[0], RANKS);
    kill(pid, SIGKILL);
    CHECK(waitpid(pid, &status, 0) == pid);
}

/* ---- how fast ---- */

static void waits_for_the_dead(zt_rank *t)
{
    float x[1000] = { 0 };

    CHECK_OK(zro_barrier(t->group));
    if (t->rank == VICTIM) {
        zt_await(t, &t->shared->flag[1], RANKS - 1);
        zt_expect_lost(t, VICTIM);
        die_now(t);
    }
    atomic_fetch_add(&t->shared->flag[1], 1);
    CHECK_STATUS(zro_all_reduce(t->group, x, 1000, ZRO_F32, ZRO_SUM), ZRO_ERR_LOST);
    atomic_store(&t->shared->number[100 + t->rank], now_ns() - atomic_load(death_of(t)));
}

static int compare_times(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static void kill_latency(zt_rank *t)
{
    zro_group_config config = zt_config();
    uint64_t times[LATENCIES];

    for (int i = 0; i < LATENCIES; i++) {
        atomic_store(&t->shared->flag[1], 0);
        zt_ranks(t, ZT_LOCAL, &config, RANKS, waits_for_the_dead, NULL);
        times[i] = 0;
        for (int r = 0; r < RANKS; r++)
            if (r != VICTIM && atomic_load(&t->shared->number[100 + r]) > times[i])
                times[i] = atomic_load(&t->shared->number[100 + r]);
        CHECK(times[i] < TOLD_WITHIN_NS);
    }
    qsort(times, LATENCIES, sizeof *times, compare_times);
    zt_note(t, "of %d kills the last survivor heard after %.2f ms (median), %.2f ms at most", LATENCIES,
            (double)times[LATENCIES / 2] * 1e-6, (double)times[LATENCIES - 1] * 1e-6);
}

#define KILL(name, what)                                                                                                       \
    {                                                                                                                          \
        "kill_" name, kill_points, 0, ZT_LOCAL, ZT_KILLS, 120, 0, what                                                         \
    }
#define KILL_FAR(name, what)                                                                                                   \
    {                                                                                                                          \
        "kill_far_" name, kill_points, 0, ZT_FOREIGN, ZT_KILLS, 120, 0, FAR + (what)                                           \
    }
#define SMALL_WORLDS (ZT_WORLD(2) | ZT_WORLD(3))

const zt_case cases_fail_kill[] = {
    KILL("barrier", ZT_BARRIER),
    KILL("all_reduce", ZT_ALL_REDUCE),
    KILL("all_reduce_into", ZT_ALL_REDUCE_INTO),
    KILL("reduce", ZT_REDUCE),
    KILL("reduce_scatter", ZT_REDUCE_SCATTER),
    KILL("reduce_scatter_v", ZT_REDUCE_SCATTER_V),
    KILL("broadcast", ZT_BROADCAST),
    KILL("broadcast_bytes", ZT_BROADCAST_BYTES),
    KILL("gather", ZT_GATHER),
    KILL("gather_v", ZT_GATHER_V),
    KILL("all_gather", ZT_ALL_GATHER),
    KILL("all_gather_v", ZT_ALL_GATHER_V),
    KILL("submitted", SUBMITTED),
    KILL("sub", SUB),
    KILL("members", MEMBERS),
    KILL("duplicate", DUPLICATE),
    KILL("destroy", DESTROY),
    KILL("memory_each", MEMORY_EACH),
    KILL("memory_once", MEMORY_ONCE),
    KILL("tickets", TICKETS),
    KILL_FAR("barrier", ZT_BARRIER),
    KILL_FAR("all_reduce", ZT_ALL_REDUCE),
    KILL_FAR("broadcast", ZT_BROADCAST),
    KILL_FAR("submitted", SUBMITTED),
    KILL_FAR("sub", SUB),
    KILL_FAR("members", MEMBERS),
    KILL_FAR("duplicate", DUPLICATE),
    KILL_FAR("destroy", DESTROY),
    KILL_FAR("memory_each", MEMORY_EACH),
    { "kill_unreleased", kill_unreleased, 0, ZT_LOCAL, ZT_KILLS, 0, 0, 0 },
    { "kill_supervisor", supervisor_dies, 0, ZT_LOCAL, ZT_KILLS, 0, 0, 0 },
    { "kill_latency", kill_latency, 0, ZT_LOCAL, ZT_KILLS, 60, 0, 0 },
    { "dead_peer", survivors_hear_of_a_dead_peer, SMALL_WORLDS | ZT_WORLD(7), ZT_BOTH, ZT_KILLS, 0, 0, 0 },
    { "dead_peer", survivors_hear_of_a_dead_peer, SMALL_WORLDS, ZT_LINKS, ZT_KILLS, 0, 0, 0 },
    { "dead_peer_machines", survivors_hear_of_a_dead_peer, SMALL_WORLDS, ZT_LOCAL | ZT_MPI, ZT_KILLS | ZT_OWN_MACHINES, 0, 1500,
      0 },
    { "dead_peer_two", survivors_hear_of_a_dead_peer, ZT_WORLD(4), ZT_LOCAL | ZT_LINKS, ZT_KILLS | ZT_TWO_MACHINES, 0, 0, 0 },
    { "dead_peer_elsewhere", others_stay_whole, ZT_WORLD(3), ZT_ALL, ZT_KILLS, 0, 0, 0 },
    { "dead_peer_label", text_has_the_label, ZT_WORLD(3), ZT_BOTH | ZT_FOREIGN, ZT_KILLS, 0, 0, 0 },
    { "dead_peer_submitted", submitted_work_hears_of_it, SMALL_WORLDS, ZT_ALL, ZT_KILLS, 0, 0, 0 },
    { "leaving", leaving_is_told, SMALL_WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "leaving_machines", leaving_is_told, SMALL_WORLDS, ZT_THREADS | ZT_MPI, ZT_OWN_MACHINES, 0, 0, 0 },
    { "destroy_cancels", destroy_cancels_work, SMALL_WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "destroy_cancels_machines", destroy_cancels_work, SMALL_WORLDS, ZT_THREADS | ZT_MPI, ZT_OWN_MACHINES, 0, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
