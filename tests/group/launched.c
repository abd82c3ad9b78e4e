/* Ranks as `zro run` starts them: what they get from the launcher, and what they leave for it in the table at which they met.
 *
 * Here the test itself is the launcher: it makes the table and forks the ranks.  tests/products/command.sh runs the command
 * `launched` under `zro run` itself. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/build.h"
#include "base/hash.h"
#include "base/point.h"
#include "board/meet.h"
#include "group/group.h"
#include "zt/list.h"
#include "zt/zt.h"

extern char **environ;

/* ---- a launcher ---- */

enum { MAX_LAUNCHED = 4 };

typedef struct launch {
    int size, fd;
    zro__meet *meet;
    pid_t pid[MAX_LAUNCHED];
    int number;                 /* for the case */
    atomic_uint *flag, *forged; /* on the shared page, for the case */
} launch;

static void nap(void)
{
    nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
}

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

static zro_status try_to_create(zro_group **group)
{
    zro_group_config config = zt_config();

    config.timeout_ms = 20000;
    return zro_group_create_env(&config, group);
}

static zro_group *create(void)
{
    zro_group *group;

    CHECK_OK(try_to_create(&group));
    return group;
}

/* ---- other builds ---- */

/* Makes the table that of another build.  Its head is the same in all builds, and so it is known here. */
static void forge_build(zro__meet *meet, const char *version)
{
    zro__build *build = (zro__build *)(void *)meet;

    snprintf(build->version, sizeof build->version, "%s", version);
    build->layout++;
    build->sum = zro__hash(ZRO__HASH_START, build, offsetof(zro__build, sum));
}

static void raise_flag(void *flag, const char *point)
{
    if (strcmp(point, "meet.come") == 0)
        atomic_store((atomic_uint *)flag, 1);
}

static void meets_a_stranger(const launch *l, int rank)
{
    zro__point_plan plan = { .action = ZRO__POINT_LIST, .seen = raise_flag, .user = l->flag };
    zro_group *group;

    if (rank == 1)
        while (atomic_load(l->forged) == 0)
            nap();
    else
        zro__point_plan_set(&plan);
    CHECK_STATUS(try_to_create(&group), ZRO_ERR_MISMATCH);
    CHECK(group == NULL);
    CHECK_TEXT("rank 1 has zro " ZRO_VERSION ", but `zro run` has zro 9.8.7; use one build of libzro");
}

/* Rank 0 waits already when rank 1 finds that its tables are others: both are told at once. */
static void rank_of_another_build(zt_rank *t)
{
    launch l = make_launch(2);

    l.flag = &t->shared->flag[0];
    l.forged = &t->shared->flag[1];
    start_launch(&l, meets_a_stranger);
    zt_await(t, l.flag, 1);
    forge_build(l.meet, "9.8.7");
    atomic_store(l.forged, 1);
    for (int r = 0; r < l.size; r++)
        CHECK(wait_launched(&l, r) == 0);
    end_launch(&l);
}

static void finds_another_table(const launch *l, int rank)
{
    zro_group *group;

    (void)l, (void)rank;
    CHECK_STATUS(try_to_create(&group), ZRO_ERR_MISMATCH);
    CHECK_TEXT("has another build of zro " ZRO_VERSION " than `zro run`; use one build of libzro");
}

/* Also that of a launcher whose table is smaller than this build's. */
static void launcher_of_another_build(zt_rank *t)
{
    launch l = make_launch(2);

    (void)t;
    forge_build(l.meet, ZRO_VERSION);
    CHECK(ftruncate(l.fd, 4096) == 0);
    start_launch(&l, finds_another_table);
    for (int r = 0; r < l.size; r++)
        CHECK(wait_launched(&l, r) == 0);
    end_launch(&l);
}

/* ---- what is no table, and who does not come ---- */

static void refuse_table(int fd, const char *text)
{
    zro_group *group;

    set_number("ZRO_MEET", fd);
    CHECK_STATUS(try_to_create(&group), ZRO_ERR_INVALID);
    CHECK_TEXT(text);
    CHECK(group == NULL);
}

static void no_table(zt_rank *t)
{
    launch l = make_launch(2);
    int null = open("/dev/null", O_RDWR), zeros = memfd_create("zeros", 0);

    (void)t;
    CHECK(null >= 0 && zeros >= 0 && ftruncate(zeros, 1 << 20) == 0);
    set_number("ZRO_RANK", 0);
    refuse_table(999, "no descriptor of `zro run`");
    refuse_table(null, "no descriptor of `zro run`");
    refuse_table(zeros, "no meeting table for 2 ranks");
    CHECK((fcntl(zeros, F_GETFD) & FD_CLOEXEC) == 0); /* it is the program's */
    CHECK(setenv("ZRO_CELLS", ",1", 1) == 0);
    refuse_table(l.fd, "ZRO_CELLS");
    unsetenv("ZRO_CELLS");
    set_number("ZRO_SIZE", 3);
    refuse_table(l.fd, "no meeting table for 3 ranks");
    set_number("ZRO_SIZE", 2);
    CHECK(ftruncate(l.fd, (off_t)zro__meet_bytes(2) - 1) == 0);
    refuse_table(l.fd, "no meeting table for 2 ranks");
    end_launch(&l);
}

/* The deadline of the environment counts; the rank that does not come is named. */
static void does_not_come(zt_rank *t)
{
    launch l = make_launch(2);
    zro_group *group;

    (void)t;
    set_number("ZRO_RANK", 0);
    CHECK(setenv("ZRO_TIMEOUT_MS", "30", 1) == 0);
    CHECK_STATUS(zro_group_create_env(NULL, &group), ZRO_ERR_TIMEOUT);
    CHECK_TEXT("rank 1 did not come within 30 ms");
    end_launch(&l);
}

/* ---- descriptors ---- */

/* --command has_nothing: whether no descriptor of the library was inherited. */
int command_has_nothing(int argc, char **argv)
{
    (void)argc, (void)argv;
    for (int fd = 0; fd < 1024; fd++) {
        char path[64], name[128] = "";

        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (readlink(path, name, sizeof name - 1) > 0 && strncmp(name, "/memfd:zro-", 11) == 0)
            return 1;
    }
    return 0;
}

static int start_program(void)
{
    char *const argv[] = { "zro-tests", "--command", "has_nothing", NULL };
    int status;
    pid_t pid;

    CHECK(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ) == 0);
    CHECK(waitpid(pid, &status, 0) == pid);
    return status;
}

/* A program that a rank starts inherits nothing of the library's; a child that it forks is no rank, and does no harm. */
static void starts_a_program(const launch *l, int rank)
{
    zro_group *group = create(), *again;
    int status;
    pid_t pid;

    (void)l;
    CHECK(start_program() == 0);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK_STATUS(try_to_create(&again), ZRO_ERR_STATE);
        CHECK_TEXT("already");
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK_OK(zro_barrier(group));
    if (rank == 0)
        zro_group_destroy(group);
    again = create(); /* the table serves once more, whatever became of the first group */
    CHECK_OK(zro_barrier(again));
    zro_group_destroy(again);
    if (rank != 0)
        zro_group_destroy(group);
}

static void table_stays_with_ranks(zt_rank *t)
{
    launch l = make_launch(2);

    (void)t;
    CHECK(start_program() != 0); /* it would be seen */
    start_launch(&l, starts_a_program);
    for (int r = 0; r < l.size; r++)
        CHECK(wait_launched(&l, r) == 0);
    CHECK(zro__meet_losses(l.meet) == 0);
    end_launch(&l);
}

/* What a rank maps of the table goes with its last group, and with a create that fails. */
static void comes_and_goes(const launch *l, int rank)
{
    zt_held before = zt_held_now();
    zro_group *group;

    zro_group_destroy(create());
    CHECK_HELD(before);
    if (rank == 1)
        CHECK(setenv("ZRO_THREADS", "none", 1) == 0);
    CHECK(try_to_create(&group) == (rank == 1 ? ZRO_ERR_INVALID : ZRO_ERR_PEER));
    CHECK_TEXT("ZRO_THREADS");
    CHECK_HELD(before);
    (void)l;
}

static void table_is_unmapped(zt_rank *t)
{
    launch l = make_launch(2);

    (void)t;
    start_launch(&l, comes_and_goes);
    for (int r = 0; r < l.size; r++)
        CHECK(wait_launched(&l, r) == 0);
    end_launch(&l);
}

/* Leaves the process `free` descriptors. */
static void keep_descriptors(int free)
{
    struct rlimit limit = { 64, 64 };
    int last = -1, fd;

    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    while ((fd = dup(0)) >= 0)
        last = fd;
    CHECK(last == 63);
    for (int i = 0; i < free; i++)
        close(last - i);
}

enum { ENOUGH_DESCRIPTORS = 3 };

/* Rank 1, or both, cannot open as many files as a group needs: then both hear why, and otherwise there is a group. */
static void few_descriptors_on(const launch *l, int rank)
{
    int is_short = rank == 1 || l->number >= 2 * (ENOUGH_DESCRIPTORS + 1);
    int free = l->number / 2 % (ENOUGH_DESCRIPTORS + 1);
    zro_group *group;
    zro_status st;

    if (l->number % 2 == 1)
        CHECK(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0); /* so that the memory is passed through a socket */
    if (is_short)
        keep_descriptors(free);
    st = try_to_create(&group);
    if (free >= ENOUGH_DESCRIPTORS) {
        CHECK_OK(st);
        CHECK_OK(zro_barrier(group));
        zro_group_destroy(group);
        return;
    }
    CHECK(st == (is_short ? ZRO_ERR_SYSTEM : ZRO_ERR_PEER));
    CHECK_TEXT("Too many open files");
    CHECK(group == NULL);
}

static void few_descriptors(zt_rank *t)
{
    (void)t;
    for (int i = 0; i < 4 * (ENOUGH_DESCRIPTORS + 1); i++) {
        launch l = make_launch(2);

        l.number = i;
        start_launch(&l, few_descriptors_on);
        for (int r = 0; r < l.size; r++)
            CHECK(wait_launched(&l, r) == 0);
        end_launch(&l);
    }
}

/* ---- who was lost ---- */

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
    { .name = "rank_of_another_build", .run = rank_of_another_build, .backends = ZT_LOCAL },
    { .name = "launcher_of_another_build", .run = launcher_of_another_build, .backends = ZT_LOCAL },
    { .name = "no_table", .run = no_table, .backends = ZT_LOCAL },
    { .name = "does_not_come", .run = does_not_come, .backends = ZT_LOCAL },
    { .name = "table_stays_with_ranks", .run = table_stays_with_ranks, .backends = ZT_LOCAL },
    { .name = "table_is_unmapped", .run = table_is_unmapped, .backends = ZT_LOCAL },
    { .name = "few_descriptors", .run = few_descriptors, .backends = ZT_LOCAL },
    { .name = "losses_in_order", .run = losses_in_order, .backends = ZT_LOCAL, .flags = ZT_KILLS },
    { .name = "who_left", .run = who_left, .backends = ZT_LOCAL, .flags = ZT_KILLS },
    { .name = NULL },
};
