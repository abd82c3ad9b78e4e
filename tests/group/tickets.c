/* S53: ranks that zro did not start; handles that go in any order; children that ranks fork.
 *
 * The strangers are this test program, started by posix_spawn from a process that has threads, as another program's
 * launcher would.  They write their tickets into one pipe each and read all tickets from another. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/build.h"
#include "base/hash.h"
#include "zt/job.h"
#include "zt/list.h"
#include "zt/zt.h"

extern char **environ;

enum { STRANGERS = 5, FROM_LAUNCHER = 3, TO_LAUNCHER = 4 };

/* Several checked calls, each drawn from a seed that the ranks share. */
static void run_jobs(zro_group *group, uint64_t seed, int jobs)
{
    uint64_t own = zt_mix(seed, (uint64_t)zro_group_rank(group));

    for (int j = 0; j < jobs; j++) {
        zt_job job = { .group = group, .context = "S53" };

        zt_job_random(&job, &seed, &own, 500);
        zt_job_run(&job, j % 2);
    }
}

/* ---- strangers ---- */

static void read_all(int fd, void *out, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        ssize_t n = read(fd, (char *)out + at, bytes - at);

        CHECK(n > 0);
        at += (size_t)n;
    }
}

static void write_all(int fd, const void *in, size_t bytes)
{
    CHECK(write(fd, in, bytes) == (ssize_t)bytes); /* less than a pipe holds */
}

/* What the launcher of `strangers` tells them to end with. */
enum ending { ENDS_WELL, ENDS_WITHOUT_DESTROY };

/* --command stranger RANK SIZE ENDING */
int command_stranger(int argc, char **argv)
{
    unsigned char mine[ZRO_TICKET_BYTES], all[ZT_MAX_RANKS * ZRO_TICKET_BYTES];
    zro_group_config config = zt_config();
    int rank, size, evens[STRANGERS], n = 0;
    zro_group *group, *even;
    char go;

    CHECK(argc == 4);
    rank = atoi(argv[1]);
    size = atoi(argv[2]);
    CHECK_OK(zro_group_ticket(&config, rank, size, mine));
    write_all(TO_LAUNCHER, mine, sizeof mine);
    read_all(FROM_LAUNCHER, all, sizeof mine * (size_t)size);
    CHECK_OK(zro_group_create_tickets(&config, rank, size, all, &group));
    run_jobs(group, zt_opt.seed, 6);
    if (atoi(argv[3]) == ENDS_WITHOUT_DESTROY) {
        if (rank == 1)
            _exit(0);
        CHECK_STATUS(zro_barrier(group), ZRO_ERR_LOST);
        CHECK_TEXT("rank 1");
        zro_group_destroy(group);
        return 0;
    }
    if (rank % 2 == 1) {
        zro_group_destroy(group);
        return 0;
    }
    read_all(FROM_LAUNCHER, &go, 1); /* the odd ones are gone */
    for (int r = 0; r < size; r += 2)
        evens[n++] = r;
    CHECK_OK(zro_group_create_members(group, evens, n, &even));
    CHECK(zro_group_size(even) == n && zro_group_rank(even) == rank / 2 && zro_group_label(even, n - 1) == evens[n - 1]);
    zro_group_destroy(group);
    run_jobs(even, zt_opt.seed + 1, 6);
    zro_group_destroy(even);
    return 0;
}

typedef struct stranger {
    pid_t pid;
    int to, from;
} stranger;

static stranger start_stranger(int rank, int size, enum ending ending)
{
    char text[5][32];
    char *const argv[] = { "zro-tests",
                           "--seed",
                           text[3],
                           "--kernels",
                           (char *const[]){ "auto", "base", "avx2", "avx512" }[zt_opt.kernels],
                           "--fast",
                           zt_opt.fast == ZRO_OFF ? "off" : "on",
                           "--command",
                           "stranger",
                           text[0],
                           text[1],
                           text[2],
                           NULL };
    posix_spawn_file_actions_t actions;
    int down[2], up[2];
    stranger s;

    snprintf(text[0], sizeof text[0], "%d", rank);
    snprintf(text[1], sizeof text[1], "%d", size);
    snprintf(text[2], sizeof text[2], "%d", (int)ending);
    snprintf(text[3], sizeof text[3], "%" PRIu64, zt_opt.seed);
    CHECK(pipe2(down, O_CLOEXEC) == 0 && pipe2(up, O_CLOEXEC) == 0);
    CHECK(down[0] > TO_LAUNCHER && up[1] > TO_LAUNCHER); /* else dup2 would keep close-on-exec */
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, down[0], FROM_LAUNCHER);
    posix_spawn_file_actions_adddup2(&actions, up[1], TO_LAUNCHER);
    CHECK(posix_spawn(&s.pid, "/proc/self/exe", &actions, NULL, argv, environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    close(down[0]);
    close(up[1]);
    s.to = down[1];
    s.from = up[0];
    return s;
}

static void end_stranger(const stranger *s)
{
    int status;

    CHECK(waitpid(s->pid, &status, 0) == s->pid);
    CHECK(status == 0);
    close(s->to);
    close(s->from);
}

static void *idle(void *until)
{
    char byte;

    CHECK(read(*(int *)until, &byte, 1) == 0);
    return NULL;
}

static void strangers(zt_rank *t)
{
    enum ending ending = (enum ending)t->arg;
    unsigned char tickets[STRANGERS][ZRO_TICKET_BYTES];
    stranger s[STRANGERS];
    pthread_t thread;
    int until[2];

    /* Descriptors 3 and 4 are the strangers'. */
    while (open("/dev/null", O_RDONLY | O_CLOEXEC) < TO_LAUNCHER) {
    }
    CHECK(pipe2(until, O_CLOEXEC) == 0);
    CHECK(pthread_create(&thread, NULL, idle, &until[0]) == 0);
    for (int r = 0; r < STRANGERS; r++)
        s[r] = start_stranger(r, STRANGERS, ending);
    for (int r = 0; r < STRANGERS; r++)
        read_all(s[r].from, tickets[r], ZRO_TICKET_BYTES);
    for (int r = 0; r < STRANGERS; r++)
        write_all(s[r].to, tickets, sizeof tickets);
    for (int r = 1; r < STRANGERS; r += 2)
        end_stranger(&s[r]);
    for (int r = 0; r < STRANGERS; r += 2) {
        if (ending == ENDS_WELL)
            write_all(s[r].to, "g", 1);
    }
    for (int r = 0; r < STRANGERS; r += 2)
        end_stranger(&s[r]);
    close(until[1]);
    pthread_join(thread, NULL);
}

/* ---- the even ranks, when the odd ones have left ---- */

static void evens_after_odds(zt_rank *t)
{
    zro_group *group = zt_group(t, 20000), *even;
    int members[ZT_MAX_RANKS], n = 0;

    run_jobs(group, t->seed, 2);
    if (t->rank % 2 == 1) {
        zro_group_destroy(group);
        zt_meet(t);
        return;
    }
    zt_meet(t);
    for (int r = t->size - 1; r >= 0; r--) /* renumbered: the last becomes 0 */
        if (r % 2 == 0)
            members[n++] = r;
    CHECK_OK(zro_group_create_members(group, members, n, &even));
    CHECK(zro_group_label(even, 0) == members[0] && members[zro_group_rank(even)] == t->rank);
    run_jobs(even, t->seed, 4);
    CHECK_OK(zro_group_status(group));
    zro_group_destroy(group);
    zro_group_destroy(even);
}

/* ---- handles destroyed in different orders ---- */

static void destroy_orders(zt_rank *t)
{
    for (unsigned order = 0; order < 24; order++) {
        zro_group *group = zt_group(t, 20000), *sub, *copy;
        zro_memory *memory, *sub_memory;
        int members[ZT_MAX_RANKS], gone[4] = { 0 };
        /* Every rank has an order of its own. */
        unsigned left = (order + (unsigned)t->rank * 7) % 24;
        float *data;

        for (int r = 0; r < t->size; r++)
            members[r] = t->size - 1 - r;
        CHECK_OK(zro_group_create_sub(group, members, t->size, &sub));
        CHECK_OK(zro_group_duplicate(group, &copy));
        CHECK_OK(zro_memory_alloc(group, ZRO_MEMORY_EACH, 4000, &memory));
        CHECK_OK(zro_memory_alloc(sub, ZRO_MEMORY_ONCE, 4000, &sub_memory));
        data = zro_memory_data(memory);
        for (int step = 4; step > 0; step--) {
            int pick = (int)(left % (unsigned)step), which = 0;

            left /= (unsigned)step;
            while (gone[which] || pick-- > 0)
                which++;
            gone[which] = 1;
            if (which == 0)
                zro_group_destroy(group);
            else if (which == 1)
                zro_group_destroy(sub);
            else if (which == 2)
                zro_memory_free(memory);
            else
                zro_memory_free(sub_memory);
            if (!gone[2])
                data[999] = 1; /* alive as long as its handle */
        }
        run_jobs(copy, t->seed + order, 2); /* outlives its parent and what was made from it */
        zro_group_destroy(copy);
    }
}

/* Memory is there until the last rank has freed it. */
static void memory_outlives_group(zt_rank *t)
{
    zro_group *group = zt_group(t, 20000);
    int left = (t->rank + 1) % t->size;
    zro_memory *memory;

    CHECK_OK(zro_memory_alloc(group, ZRO_MEMORY_EACH, sizeof(int) * 1000, &memory));
    ((int *)zro_memory_data(memory))[999] = t->rank + 1;
    CHECK_OK(zro_barrier(group));
    zro_group_destroy(group);
    if (t->rank == 0)
        zro_memory_free(memory);
    zt_meet(t);
    if (t->rank != 0) {
        CHECK(zro_memory_peer(memory, left) != NULL);
        CHECK(((int *)zro_memory_peer(memory, left))[999] == left + 1);
        zro_memory_free(memory);
    }
}

/* ---- a child forked by a rank ---- */

static zro_status return_ok(void *user)
{
    (void)user;
    return ZRO_OK;
}

/* In the child every call is STATE, queries answer, and the ends of handles do nothing. */
static void forked_child(zro_group *group, zro_group *copy, zro_memory *memory, zro_work *work)
{
    zro_stats stats = ZRO_STATS_INIT;
    zro_group *made;
    zro_memory *made_memory;
    zro_work *made_work;
    float x[4] = { 0 }, y[64];
    size_t counts[ZT_MAX_RANKS] = { 0 }, bytes;
    int zero = 0, done;
    void *out;

    CHECK_STATUS(zro_barrier(group), ZRO_ERR_STATE);
    CHECK_STATUS(zro_all_reduce(group, x, 4, ZRO_F32, ZRO_SUM), ZRO_ERR_STATE);
    CHECK_STATUS(zro_all_reduce_into(group, x, y, 4, ZRO_F32, ZRO_SUM), ZRO_ERR_STATE);
    CHECK_STATUS(zro_reduce(group, x, y, 4, ZRO_F32, ZRO_SUM, 0), ZRO_ERR_STATE);
    CHECK_STATUS(zro_reduce_scatter(group, y, x, 1, ZRO_F32, ZRO_SUM), ZRO_ERR_STATE);
    CHECK_STATUS(zro_reduce_scatter_v(group, y, x, counts, ZRO_F32, ZRO_SUM), ZRO_ERR_STATE);
    CHECK_STATUS(zro_broadcast(group, x, 4, ZRO_F32, 0), ZRO_ERR_STATE);
    CHECK_STATUS(zro_broadcast_bytes(group, x, 4, 0, &out, &bytes), ZRO_ERR_STATE);
    CHECK_STATUS(zro_gather(group, x, y, 4, ZRO_F32, 0), ZRO_ERR_STATE);
    CHECK_STATUS(zro_gather_v(group, x, y, counts, ZRO_F32, 0), ZRO_ERR_STATE);
    CHECK_STATUS(zro_all_gather(group, x, y, 4, ZRO_F32), ZRO_ERR_STATE);
    CHECK_STATUS(zro_all_gather_v(group, x, y, counts, ZRO_F32), ZRO_ERR_STATE);
    CHECK_STATUS(zro_submit(group, return_ok, NULL, &made_work), ZRO_ERR_STATE);
    CHECK_STATUS(zro_work_test(work, &done), ZRO_ERR_STATE);
    CHECK_STATUS(zro_work_wait(work), ZRO_ERR_STATE);
    CHECK_STATUS(zro_group_duplicate(group, &made), ZRO_ERR_STATE);
    CHECK_STATUS(zro_group_create_sub(group, &zero, 1, &made), ZRO_ERR_STATE);
    CHECK_STATUS(zro_group_create_members(group, &zero, 1, &made), ZRO_ERR_STATE);
    CHECK_STATUS(zro_memory_alloc(group, ZRO_MEMORY_EACH, 64, &made_memory), ZRO_ERR_STATE);
    CHECK_STATUS(zro_group_status(group), ZRO_ERR_STATE);
    CHECK(zro_group_label(group, 0) == -1);
    CHECK_STATUS(zro_group_stats(group, &stats), ZRO_ERR_STATE);
    zro_work_destroy(work);
    zro_memory_free(memory);
    zro_group_destroy(group);
    zro_group_destroy(copy);
}

static void fork_of_a_rank(zt_rank *t)
{
    zro_group *copy;
    zro_memory *memory;
    zro_work *work;
    pid_t pid;
    int status;

    CHECK_OK(zro_group_duplicate(t->group, &copy));
    CHECK_OK(zro_memory_alloc(copy, ZRO_MEMORY_EACH, 4096, &memory));
    CHECK_OK(zro_submit(copy, return_ok, NULL, &work)); /* so that the lane has a thread, which the child has not */
    CHECK_OK(zro_work_wait(work));
    run_jobs(t->group, t->seed, 2);
    if (t->rank % 2 == 1) {
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            forked_child(t->group, copy, memory, work);
            _exit(0);
        }
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(status == 0);
    }
    run_jobs(t->group, t->seed + 1, 4);
    run_jobs(copy, t->seed + 2, 4);
    zro_work_destroy(work);
    zro_memory_free(memory);
    zro_group_destroy(copy);
}

/* A child that lives on and then dies by a signal while its parent works. */
static void fork_killed_meanwhile(zt_rank *t)
{
    pid_t pid = 0;
    int status;

    if (t->rank == 0) {
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            for (;;)
                pause();
    }
    run_jobs(t->group, t->seed, 2);
    if (t->rank == 0) {
        kill(pid, SIGKILL);
        CHECK(waitpid(pid, &status, 0) == pid);
    }
    run_jobs(t->group, t->seed + 1, 4);
}

/* ---- something else where a ticket says that memory is ---- */

/* The descriptor of the only world's memory that this process has. */
static int find_memory(void)
{
    for (int fd = 0; fd < 1024; fd++) {
        char path[64], name[128] = "";

        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (readlink(path, name, sizeof name - 1) > 0 && strncmp(name, "/memfd:zro-world", 16) == 0)
            return fd;
    }
    return -1;
}

enum { A_FIFO, A_DEVICE, A_MEMFD, N_OTHERS };

static int open_other(int what)
{
    int ends[2], fd;

    if (what == A_FIFO) {
        CHECK(pipe(ends) == 0);
        close(ends[1]);
        return ends[0];
    }
    fd = what == A_DEVICE ? open("/dev/null", O_RDWR) : memfd_create("zro-world", 0);
    CHECK(fd >= 0);
    return fd;
}

/* Rank 0 is a process of its own that has put something else there; the memory itself is still mapped.  Nobody may open that. */
static void wrong_descriptor(zt_rank *t)
{
    unsigned char tickets[2][ZRO_TICKET_BYTES];

    for (int what = 0; what < N_OTHERS; what++) {
        int to_child[2], from_child[2], status, fd, other;
        zro_group_config config = zt_config();
        zro_group *group;
        char byte;
        pid_t pid;

        CHECK(pipe(to_child) == 0 && pipe(from_child) == 0);
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            close(to_child[1]);
            if (zro_group_ticket(&config, 0, 2, tickets[0]) != ZRO_OK)
                _exit(1);
            fd = find_memory();
            other = open_other(what);
            if (fd < 0 || dup2(other, fd) != fd || write(from_child[1], tickets[0], ZRO_TICKET_BYTES) != ZRO_TICKET_BYTES)
                _exit(2);
            _exit(read(to_child[0], &byte, 1) == 0 ? 0 : 3);
        }
        close(to_child[0]);
        CHECK(read(from_child[0], tickets[0], ZRO_TICKET_BYTES) == ZRO_TICKET_BYTES);
        CHECK_OK(zro_group_ticket(&config, 1, 2, tickets[1]));
        CHECK_STATUS(zro_group_create_tickets(&config, 1, 2, tickets, &group), ZRO_ERR_LOST);
        CHECK_TEXT("rank 0 is gone");
        CHECK(group == NULL);
        close(to_child[1]);
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
        close(from_child[0]);
        close(from_child[1]);
    }
    (void)t;
}

/* ---- ranks with another build of the library ---- */

/* Of a ticket of another build nothing but the head is known; the rest must not be looked at. */
static void forge_ticket(void *ticket, const char *version)
{
    zro__build build;

    memcpy(&build, ticket, sizeof build);
    memset(ticket, 0x55, ZRO_TICKET_BYTES);
    snprintf(build.version, sizeof build.version, "%s", version);
    build.layout++;
    build.sum = zro__hash(ZRO__HASH_START, &build, offsetof(zro__build, sum));
    memcpy(ticket, &build, sizeof build);
}

static void other_builds(zt_rank *t)
{
    static const struct {
        int rank;
        const char *version, *text;
    } all[] = { { 1, "9.8.7", "rank 1 has zro 9.8.7, but rank 0 has zro " ZRO_VERSION "; use one build of libzro" },
                { 0, "9.8.7", "rank 1 has zro " ZRO_VERSION ", but rank 0 has zro 9.8.7; use one build of libzro" },
                { 1, ZRO_VERSION, "rank 1 has another build of zro " ZRO_VERSION " than rank 0; use one build of libzro" } };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        unsigned char ticket[ZRO_TICKET_BYTES], own[ZRO_TICKET_BYTES], tickets[ZT_MAX_RANKS * ZRO_TICKET_BYTES];
        zro_group_config config = zt_config();
        zro_group *group;

        CHECK_OK(zro_group_ticket(&config, t->rank, t->size, ticket));
        memcpy(own, ticket, sizeof own);
        if (t->rank == all[i].rank)
            forge_ticket(ticket, all[i].version);
        zt_exchange(t, ticket, sizeof ticket, tickets);
        CHECK_STATUS(zro_group_create_tickets(&config, t->rank, t->size, tickets, &group), ZRO_ERR_MISMATCH);
        CHECK_TEXT(all[i].text);
        CHECK(group == NULL);
        if (t->rank == all[i].rank)
            zro_group_ticket_drop(own);
        zt_meet(t);
    }
}

/* ---- what a ticket tells ---- */

/* Whether a number is an address at which this process has memory.  Small ones are not counted, as they may be anything, nor is
 * what a sanitizer reserves, which is nearly everything. */
static int is_address(uint64_t number)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    uint64_t begin, end;
    char line[512];
    int found = 0;

    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps) != NULL)
        if (sscanf(line, "%" SCNx64 "-%" SCNx64, &begin, &end) == 2 && begin >> 32 != 0 && end - begin < UINT64_C(1) << 32)
            found |= number >= begin && number < end;
    fclose(maps);
    return found;
}

static void no_address(zt_rank *t)
{
    unsigned char ticket[ZRO_TICKET_BYTES];
    uint64_t number;

    CHECK(is_address((uint64_t)(uintptr_t)ticket));
    CHECK_OK(zro_group_ticket(NULL, 0, 1, ticket));
    for (size_t b = 0; b + sizeof number <= sizeof ticket; b++) {
        memcpy(&number, ticket + b, sizeof number);
        CHECK(!is_address(number));
    }
    zro_group_ticket_drop(ticket);
    (void)t;
}

#define WORLDS (ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4))

const zt_case cases_group_tickets[] = {
    { "S53_strangers", strangers, 0, ZT_LOCAL, 0, 0, 0, ENDS_WELL },
    { "S53_strangers_leave", strangers, 0, ZT_LOCAL, ZT_KILLS, 0, 0, ENDS_WITHOUT_DESTROY },
    { "S53_wrong_descriptor", wrong_descriptor, 0, ZT_LOCAL, 0, 0, 0, 0 },
    { "S53_other_builds", other_builds, ZT_WORLD(2) | ZT_WORLD(3), ZT_BOTH, 0, 0, 0, 0 },
    { "S53_no_address", no_address, 0, ZT_LOCAL, 0, 0, 0, 0 },
    { "S53_evens_after_odds", evens_after_odds, ZT_WORLD(3) | ZT_WORLD(4) | ZT_WORLD(7), ZT_BOTH, 0, 0, 0, 0 },
    { "S53_destroy_orders", destroy_orders, WORLDS, ZT_BOTH, 0, 0, 0, 0 },
    { "S53_memory_outlives_group", memory_outlives_group, WORLDS, ZT_BOTH, 0, 0, 0, 0 },
    { "S53_fork", fork_of_a_rank, WORLDS, ZT_LOCAL, 0, 0, 0, 0 },
    { "S53_fork_killed", fork_killed_meanwhile, WORLDS, ZT_LOCAL, 0, 0, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
