/* Making and ending groups where something is odd: descriptors that must be passed, calls that are still running, arguments
 * that changed between ticket and create, creates that fail again and again, programs that close what is not theirs. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/point.h"
#include "zt/list.h"
#include "zt/zt.h"

static void sum_ranks(zt_rank *t)
{
    int32_t x = t->rank;

    CHECK_OK(zro_all_reduce(t->group, &x, 1, ZRO_I32, ZRO_SUM));
    CHECK(x == t->size * (t->size - 1) / 2);
}

/* The first rank's /proc entries belong to root then, and its memory is passed through a socket; of each process once. */
static void not_dumpable(zt_rank *t)
{
    zro_group_config config = zt_config();

    CHECK(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0);
    zt_ranks(t, ZT_LOCAL, &config, 3, sum_ranks, NULL);
    zt_ranks(t, ZT_THREADS, &config, 3, sum_ranks, NULL);
}

/* The first rank waits in vain for a rank to fetch its memory.  A rank that has it hears of that, long before its deadline. */
static void nobody_fetches(zt_rank *t)
{
    unsigned char ticket[ZRO_TICKET_BYTES], tickets[ZT_MAX_RANKS * ZRO_TICKET_BYTES];
    zro_group_config config = zt_config();
    zro_group *g;

    config.timeout_ms = t->rank == 0 ? 300 : 600000;
    CHECK(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0);
    CHECK_OK(zro_group_ticket(&config, t->rank, t->size, ticket));
    zt_exchange(t, ticket, sizeof ticket, tickets);
    if (t->rank == 2) {
        zro_group_ticket_drop(ticket);
        zt_await(t, &t->shared->flag[0], 2); /* alive until the others are done */
        return;
    }
    CHECK_STATUS(zro_group_create_tickets(&config, t->rank, t->size, tickets, &g),
                 t->rank == 0 ? ZRO_ERR_TIMEOUT : ZRO_ERR_PEER);
    CHECK_TEXT("missing: 1");
    CHECK(g == NULL);
    atomic_fetch_add(&t->shared->flag[0], 1);
}

static void *block_in_barrier(void *group)
{
    CHECK_STATUS(zro_barrier(group), ZRO_ERR_LOST);
    CHECK_TEXT("destroyed");
    return NULL;
}

/* A call that waits for a peer ends when another thread destroys the group; so does the peer's. */
static void destroyed_in_a_call(zt_rank *t)
{
    zro_group *g;
    zro_stats stats = ZRO_STATS_INIT;
    pthread_t thread;

    CHECK_OK(zro_group_duplicate(t->group, &g));
    if (t->rank == 0) {
        CHECK(pthread_create(&thread, NULL, block_in_barrier, g) == 0);
        do
            CHECK_OK(zro_group_stats(g, &stats));
        while (stats.operations == 0 || stats.sleeps == 0);
        zro_group_destroy(g);
        CHECK(pthread_join(thread, NULL) == 0);
        atomic_store(&t->shared->flag[0], 1);
        return;
    }
    zt_await(t, &t->shared->flag[0], 1);
    CHECK_STATUS(zro_barrier(g), ZRO_ERR_LOST);
    zro_group_destroy(g);
}

static void end_thread(void *rank)
{
    zt_die(rank);
}

/* A thread rank that ends in the middle of a call is lost, and takes nothing with it. */
static void dies_in_a_call(zt_rank *t)
{
    zro__point_plan plan = { .name = "slot.header", .action = ZRO__POINT_KILL, .nth = 1, .kill_rank = end_thread, .user = t };

    zt_expect_lost(t, 1);
    CHECK_OK(zro_barrier(t->group));
    if (t->rank == 1)
        zro__point_plan_set(&plan);
    CHECK_STATUS(zro_barrier(t->group), ZRO_ERR_LOST);
    CHECK_TEXT("rank 1");
}

static zro_status meet(void *group)
{
    return zro_barrier(group);
}

/* A thread rank that ends while the lane's thread is in a call waits for that call, and for no other. */
static void dies_beside_a_call(zt_rank *t)
{
    zro_stats before = ZRO_STATS_INIT, now = ZRO_STATS_INIT;
    zro_work *work;

    zt_expect_lost(t, 1);
    if (t->rank == 1) {
        CHECK_OK(zro_group_stats(t->group, &before));
        CHECK_OK(zro_submit(t->group, meet, t->group, &work));
        do
            CHECK_OK(zro_group_stats(t->group, &now));
        while (now.operations == before.operations);
        zro_work_destroy(work);
        zt_die(t);
    }
    while (zro_group_status(t->group) == ZRO_OK)
        sched_yield();
    CHECK_STATUS(zro_barrier(t->group), ZRO_ERR_LOST);
    CHECK_TEXT("rank 1");
}

/* What a rank says about cells in its ticket is what it must say in the create. */
static void other_cells(zt_rank *t)
{
    unsigned char ticket[ZRO_TICKET_BYTES], tickets[ZT_MAX_RANKS * ZRO_TICKET_BYTES];
    zro_group_config config = zt_config();
    int32_t cells[ZT_MAX_RANKS] = { 0 };
    zro_group *g;

    config.cells = cells;
    CHECK_OK(zro_group_ticket(&config, t->rank, t->size, ticket));
    zt_exchange(t, ticket, sizeof ticket, tickets);
    cells[0] = t->rank == t->size - 1;
    CHECK_STATUS(zro_group_create_tickets(&config, t->rank, t->size, tickets, &g), ZRO_ERR_MISMATCH);
    CHECK_TEXT("cells");
    CHECK(g == NULL);
}

/* The pages of the world's memory, as its file has them. */
static long long world_blocks(void)
{
    long long blocks = 0;

    for (int fd = 0; fd < 1024; fd++) {
        char path[64], name[128] = "";
        struct stat s;

        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (readlink(path, name, sizeof name - 1) > 0 && strncmp(name, "/memfd:zro-", 11) == 0 && fstat(fd, &s) == 0)
            blocks += (long long)s.st_blocks;
    }
    return blocks;
}

static void failures_leave_nothing(zt_rank *t)
{
    long long before;
    zro_group *g;

    CHECK_OK(zro_barrier(t->group));
    before = world_blocks();
    for (int i = 0; i < 20; i++) {
        zro__point_plan plan = { .name = "memory.alloc", .action = ZRO__POINT_FAIL, .nth = 1 + i % 3 };

        if (t->rank == t->size - 1)
            zro__point_plan_set(&plan);
        CHECK(zro_group_duplicate(t->group, &g) != ZRO_OK);
        zro__point_plan_set(NULL);
        CHECK(g == NULL);
    }
    CHECK_OK(zro_barrier(t->group));
    CHECK(world_blocks() <= before);
    CHECK_OK(zro_group_duplicate(t->group, &g));
    CHECK_OK(zro_barrier(g));
    zro_group_destroy(g);
}

/* A sub-group for which a member came too late can be made at the next try. */
static void late_member(zt_rank *t)
{
    static const int both[] = { 0, 1 };
    zro_group *g, *parent = zt_group(t, 1500); /* long enough for a busy machine, in which all else must be in time */

    if (t->rank == 0) {
        CHECK_STATUS(zro_group_create_members(parent, both, 2, &g), ZRO_ERR_TIMEOUT);
        atomic_store(&t->shared->flag[0], 1);
    }
    zt_await(t, &t->shared->flag[0], 1);
    zt_meet(t);
    CHECK_OK(zro_group_create_members(parent, both, 2, &g));
    CHECK_OK(zro_barrier(g));
    zro_group_destroy(g);
    CHECK_OK(zro_barrier(parent));
    zro_group_destroy(parent);
}

/* A program that closes all descriptors and opens files of its own finds nothing of ours in them. */
static void closed_descriptors(zt_rank *t)
{
    char name[] = "/tmp/zro-test-XXXXXX";
    struct stat s;
    zro_memory *m;
    int files[64] = { 0 }, n = 0;

    if (t->rank == 1) {
        for (int fd = 3; fd < 1024; fd++)
            close(fd);
        files[n++] = mkstemp(name);
        CHECK(files[0] >= 0 && unlink(name) == 0);
        while (n < 64)
            files[n] = dup(files[0]), n++;
    }
    CHECK(zro_memory_alloc(t->group, ZRO_MEMORY_EACH, 1 << 20, &m) != ZRO_OK);
    CHECK_TEXT("closed descriptor");
    CHECK_OK(zro_barrier(t->group));
    if (t->rank == 1)
        CHECK(fstat(files[0], &s) == 0 && s.st_size == 0);
}

static int return_seven(void *user, zro_group *group)
{
    (void)user;
    return zro_group_rank(group) == 1 ? 7 : 0;
}

static void ignored_children(zt_rank *t)
{
    (void)t;
    CHECK(signal(SIGCHLD, SIG_IGN) != SIG_ERR);
    CHECK_STATUS(zro_spawn(NULL, 2, return_seven, NULL), ZRO_ERR_PEER);
    CHECK_TEXT("rank 1 exited with 7");
}

const zt_case cases_group_create[] = {
    { .name = "not_dumpable", .run = not_dumpable, .backends = ZT_LOCAL },
    { .name = "nobody_fetches", .run = nobody_fetches, .worlds = ZT_WORLD(3), .backends = ZT_LOCAL },
    { .name = "destroyed_in_a_call",
      .run = destroyed_in_a_call,
      .worlds = ZT_WORLD(2),
      .backends = ZT_BOTH,
      .flags = ZT_KILLS },
    { .name = "dies_in_a_call", .run = dies_in_a_call, .worlds = ZT_WORLD(2), .backends = ZT_BOTH, .flags = ZT_KILLS },
    { .name = "dies_beside_a_call",
      .run = dies_beside_a_call,
      .worlds = ZT_WORLD(2),
      .backends = ZT_THREADS,
      .flags = ZT_KILLS },
    { .name = "other_cells", .run = other_cells, .worlds = ZT_WORLD(2) | ZT_WORLD(3), .backends = ZT_BOTH },
    { .name = "failures_leave_nothing",
      .run = failures_leave_nothing,
      .worlds = ZT_WORLD(2) | ZT_WORLD(3),
      .backends = ZT_LOCAL },
    { .name = "late_member", .run = late_member, .worlds = ZT_WORLD(2), .backends = ZT_BOTH },
    { .name = "closed_descriptors", .run = closed_descriptors, .worlds = ZT_WORLD(2), .backends = ZT_LOCAL, .flags = ZT_KILLS },
    { .name = "ignored_children", .run = ignored_children, .backends = ZT_LOCAL },
    { .name = NULL },
};
