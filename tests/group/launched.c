/* Ranks as `zro run` starts them: what they get from the launcher, and what they leave for it in the table at which they met.
 *
 * Here the test itself is the launcher: it makes the table and forks the ranks.  tests/products/command.sh runs the command
 * `launched` under `zro run` itself. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "board/meet.h"
#include "group/group.h"
#include "zt/list.h"
#include "zt/zt.h"

/* ---- a launcher ---- */

enum { MAX_LAUNCHED = 4 };

typedef struct launch {
    int size, fd;
    zro__meet *meet;
    pid_t pid[MAX_LAUNCHED];
} launch;

static void set_number(const char *name, int value)
{
    char text[16];

    snprintf(text, sizeof text, "%d", value);
    CHECK(setenv(name, text, 1) == 0);
}

static launch make_launch(int size)
{
    launch l = { .size = size, .fd = memfd_create("zro-meet", 0) };

    CHECK(l.fd >= 0 && ftruncate(l.fd, (off_t)zro__meet_bytes(size)) == 0);
    l.meet = mmap(NULL, zro__meet_bytes(size), PROT_READ | PROT_WRITE, MAP_SHARED, l.fd, 0);
    CHECK(l.meet != MAP_FAILED);
    zro__meet_init(l.meet, size);
    set_number("ZRO_SIZE", size);
    set_number("ZRO_MEET", l.fd);
    return l;
}

/* Forks the ranks, each of which calls `run` with the launch. */
static void start_launch(launch *l, void (*run)(const launch *l, int rank))
{
    for (int r = 0; r < l->size; r++) {
        l->pid[r] = fork();
        CHECK(l->pid[r] >= 0);
        if (l->pid[r] != 0)
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        set_number("ZRO_RANK", r);
        run(l, r);
        _exit(0);
    }
}

static int wait_launched(const launch *l, int rank)
{
    int status;

    CHECK(waitpid(l->pid[rank], &status, 0) == l->pid[rank]);
    return status;
}

static void end_launch(launch *l)
{
    munmap(l->meet, zro__meet_bytes(l->size));
    close(l->fd);
}

/* ---- who was lost ---- */

static zro_group *create(void)
{
    zro_group_config config = zt_config();
    zro_group *group;

    CHECK_OK(zro_group_create_env(&config, &group));
    return group;
}

/* The last rank dies; the one below it fails because of that, in a group of the two, and dies; and so on down to rank 0. */
static void fall_in_turn(const launch *l, int rank)
{
    zro_group *group = create(), *with[2] = { NULL, NULL };

    for (int low = 0; low + 1 < l->size; low++) {
        int pair[] = { low, low + 1 };

        if (rank == low || rank == low + 1)
            CHECK_OK(zro_group_create_members(group, pair, 2, &with[rank == low]));
    }
    CHECK_OK(zro_barrier(group));
    if (with[1] != NULL)
        CHECK_STATUS(zro_barrier(with[1]), ZRO_ERR_LOST);
    _exit(3);
}

static void losses_in_order(zt_rank *t)
{
    launch l = make_launch(4);
    int is_dead;

    (void)t;
    start_launch(&l, fall_in_turn);
    for (int r = 0; r < l.size; r++)
        CHECK(wait_launched(&l, r) == 3 << 8);
    CHECK(zro__meet_losses(l.meet) == 3);
    CHECK(zro__meet_loss(l.meet, 0, &is_dead) == 0);
    for (int r = 1; r < l.size; r++)
        CHECK(zro__meet_loss(l.meet, r, &is_dead) == (uint32_t)(l.size - r) && is_dead);
    end_launch(&l);
}

/* Rank 1 destroys its group, and with it what a submitted function still does there. */
static zro_status wait_in_barrier(void *group)
{
    return zro_barrier(group);
}

static void leave_at_work(const launch *l, int rank)
{
    zro_group *group = create(), *copy;
    zro_work *work;
    zro_stats stats = ZRO_STATS_INIT;

    (void)l;
    CHECK_OK(zro_group_duplicate(group, &copy));
    if (rank == 1) {
        CHECK_OK(zro_submit(copy, wait_in_barrier, copy, &work));
        do
            CHECK_OK(zro_group_stats(copy, &stats));
        while (stats.operations == 0);
        zro_group_destroy(copy);
        zro_work_destroy(work);
    }
    CHECK_OK(zro_barrier(group));
    if (rank == 0)
        CHECK_STATUS(zro_barrier(copy), ZRO_ERR_LOST);
}

/* Rank 1 is not there when the others want to make another group. */
static void leave_before_a_create(const launch *l, int rank)
{
    zro_group *group = create(), *copy, *sub;
    int both[] = { 1, 0 };

    (void)l;
    CHECK_OK(zro_group_duplicate(group, &copy));
    if (rank == 1)
        zro_group_destroy(copy);
    CHECK_OK(zro_barrier(group));
    if (rank == 0)
        CHECK_STATUS(zro_group_create_members(copy, both, 2, &sub), ZRO_ERR_LOST);
    zro_group_destroy(group);
}

static void leave_before_a_call(const launch *l, int rank)
{
    zro_group *group = create(), *copy;

    (void)l;
    CHECK_OK(zro_group_duplicate(group, &copy));
    if (rank == 1)
        zro_group_destroy(copy);
    CHECK_OK(zro_barrier(group));
    if (rank == 0)
        CHECK_STATUS(zro_barrier(copy), ZRO_ERR_LOST);
    zro_group_destroy(group);
}

static void die_before_a_create(const launch *l, int rank)
{
    zro_group *group = create(), *sub;
    int both[] = { 1, 0 };

    (void)l;
    CHECK_OK(zro_barrier(group));
    if (rank == 1)
        _exit(0);
    CHECK_STATUS(zro_group_create_members(group, both, 2, &sub), ZRO_ERR_LOST);
}

static void who_left(zt_rank *t)
{
    static const struct {
        void (*run)(const launch *, int);
        int is_dead;
    } ways[] = { { leave_at_work, 0 }, { leave_before_a_call, 0 }, { leave_before_a_create, 0 }, { die_before_a_create, 1 } };

    (void)t;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        launch l = make_launch(2);
        int is_dead;

        start_launch(&l, ways[i].run);
        CHECK(wait_launched(&l, 0) == 0);
        CHECK(wait_launched(&l, 1) == 0);
        CHECK(zro__meet_losses(l.meet) == 1);
        CHECK(zro__meet_loss(l.meet, 0, &is_dead) == 0);
        CHECK(zro__meet_loss(l.meet, 1, &is_dead) == 1 && is_dead == ways[i].is_dead);
        end_launch(&l);
    }
}

/* ---- under zro run ---- */

static void nap(void)
{
    nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
}

/* Until the launcher has seen the end of a rank. */
static void await_end(pid_t pid)
{
    while (kill(pid, 0) == 0)
        nap();
}

/* The others see this rank dead from now on, as if the kernel were still taking its memory back. */
static void look_dead(zro_group *group)
{
    zro__life_mark_dead(group->seat->life);
}

/* --command launched HOW: every rank hears of the loss of the next one and answers with 1, or as HOW2 says; the last is the cause
 * of that.  exit, kill, abort: it ends at once, with 3 or by that signal; so does slow, with much memory to be taken back.
 * seen-last: all ranks end only when those below them have been seen to end.  left, left-behind: it leaves the group, and ends
 * with 3 when the others have been seen to end, or not at all. */
int command_launched(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    zro_group *group = create(), *with[2] = { NULL, NULL };
    int rank = zro_group_rank(group), size = zro_group_size(group), is_last = rank == size - 1;
    int32_t self = (int32_t)getpid(), pids[MAX_LAUNCHED];

    CHECK(size <= MAX_LAUNCHED);
    CHECK_OK(zro_all_gather(group, &self, pids, 1, ZRO_I32));
    for (int low = 0; low + 1 < size; low++) {
        int pair[] = { low, low + 1 };

        if (rank == low || rank == low + 1)
            CHECK_OK(zro_group_create_members(group, pair, 2, &with[rank == low]));
    }
    CHECK_OK(zro_barrier(group));
    if (!is_last)
        CHECK_STATUS(zro_barrier(with[1]), ZRO_ERR_LOST);
    if (strcmp(how, "seen-last") == 0) {
        signal(SIGTERM, SIG_IGN);
        look_dead(group);
        if (rank > 0)
            await_end(pids[rank - 1]);
        if (is_last) /* longer than zro run waits for anything else before it tells a failure */
            nanosleep(&(struct timespec){ 1, 300000000 }, NULL);
    } else if (is_last && strncmp(how, "left", 4) == 0) {
        zro_group_destroy(with[0]);
        await_end(pids[rank - 1]);
        while (strcmp(how, "left-behind") == 0)
            nap();
    } else if (is_last && strcmp(how, "slow") == 0) {
        size_t bytes = (size_t)400 << 20;
        char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        CHECK(memory != MAP_FAILED);
        memset(memory, 1, bytes);
    } else if (is_last && strcmp(how, "kill") == 0) {
        raise(SIGKILL);
    } else if (is_last && strcmp(how, "abort") == 0) {
        abort();
    } else if (!is_last && argc > 2) {
        abort();
    }
    _exit(is_last ? 3 : 1);
}

const zt_case cases_group_launched[] = {
    { .name = "losses_in_order", .run = losses_in_order, .backends = ZT_LOCAL, .flags = ZT_KILLS },
    { .name = "who_left", .run = who_left, .backends = ZT_LOCAL, .flags = ZT_KILLS },
    { .name = NULL },
};
