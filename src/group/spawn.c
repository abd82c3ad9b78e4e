/* Ranks as forked processes or as threads, supervised by the caller, who is no rank.
 *
 * Each rank meets the others at a table that all share, runs the program's function on the group made there, and ends.  A rank
 * that fails does not take the others along: they hear of it from the group.  A forked rank dies with its supervisor. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "group/create.h"
#include "group/env.h"
#include "group/group.h"

static zro_status check_spawn(const char *name, const zro_group_config *config, int size, zro_rank_fn fn, zro_group_config *c)
{
    zro_status st = zro__config_read(config, c);

    if (st != ZRO_OK)
        return st;
    if (size < 1 || size > ZRO__MAX_RANKS)
        return zro__fail(ZRO_ERR_INVALID, "%s: size = %d, must be 1 to %d", name, size, ZRO__MAX_RANKS);
    if (fn == NULL)
        return zro__fail(ZRO_ERR_INVALID, "%s: fn is NULL", name);
    if (c->link != NULL)
        return zro__fail(ZRO_ERR_INVALID, "%s: config.link is one rank's; use it with zro_group_create_tickets", name);
    return ZRO_OK;
}

/* ---- processes ---- */

/* Other threads would not exist in the children, but their locks would. */
static zro_status check_one_thread(void)
{
    DIR *tasks = opendir("/proc/self/task");
    const char *mpi;
    int n = 0;

    while (tasks != NULL && readdir(tasks) != NULL)
        n++;
    if (tasks != NULL)
        closedir(tasks);
    if (n > 3) /* ".", ".." and the calling thread */
        return zro__fail(ZRO_ERR_STATE,
                         "spawn: the process has %d threads, and only one of them would live on in a forked rank; "
                         "use zro_spawn_threads or `zro run`",
                         n - 2);
    if (zro__env_mpi_tasks(&mpi) != 1)
        return zro__fail(ZRO_ERR_STATE, "spawn: the process was started by an MPI launcher (%s)", mpi);
    return ZRO_OK;
}

static _Noreturn void run_rank(zro__meet *meet, const zro_group_config *c, int rank, int size, zro_rank_fn fn, void *user)
{
    zro_group *g;
    zro_status st = zro__group_create_at(meet, c, rank, size, ZRO__LIFE_OF_PROCESS, ZRO_OK, &g);
    int code = 1;

    if (st == ZRO_OK) {
        code = fn(user, g);
        zro_group_destroy(g);
        zro__meet_finish(meet, rank, code);
    } else {
        zro__meet_report(meet, rank, st);
    }
    fflush(NULL);
    _exit(code);
}

typedef struct children {
    pid_t *pid;
    int *fd;     /* pidfds, -1 where the kernel has none */
    int *status; /* as of waitpid */
    int *ended;  /* ranks in the order in which they were seen to end */
    int n, left, n_ended;
} children;

static void reap(children *c, zro__meet *meet, int rank)
{
    pid_t got;
    int code;

    do
        got = waitpid(c->pid[rank], &c->status[rank], WNOHANG);
    while (got < 0 && errno == EINTR);
    if (got == 0)
        return;
    if (got < 0) /* SIGCHLD is ignored, or somebody else reaped it: how it ended is known from itself alone */
        c->status[rank] = zro__meet_finished(meet, rank, &code) ? code << 8 : SIGKILL;
    c->pid[rank] = 0;
    c->ended[c->n_ended++] = rank;
    c->left--;
    if (c->fd[rank] >= 0)
        close(c->fd[rank]);
    c->fd[rank] = -1;
    zro__meet_gone(meet, rank);
}

/* Ranks must be noticed in the order in which they end, since others may wait for one that never comes; only own children are
 * reaped.  Without pidfds (old kernels) they are looked at every 10 ms. */
static void reap_all(children *c, zro__meet *meet, struct pollfd *polls)
{
    while (c->left > 0) {
        int n = 0;

        for (int r = 0; r < c->n; r++)
            if (c->pid[r] != 0 && c->fd[r] >= 0)
                polls[n++] = (struct pollfd){ .fd = c->fd[r], .events = POLLIN };
        poll(polls, (nfds_t)n, n == c->left ? -1 : 10);
        for (int r = 0; r < c->n; r++)
            if (c->pid[r] != 0)
                reap(c, meet, r);
    }
}

/* The worst that happened: a rank that was killed before one that returned a code. */
static zro_status tell_children(const children *c, const zro__meet *meet)
{
    for (int i = 0; i < c->n_ended; i++) {
        int r = c->ended[i];

        if (WIFSIGNALED(c->status[r]))
            return zro__fail(ZRO_ERR_LOST, "rank %d was killed by signal %d (%s)", r, WTERMSIG(c->status[r]),
                             strsignal(WTERMSIG(c->status[r])));
    }
    for (int r = 0; r < c->n; r++) {
        zro_status st = zro__meet_reported(meet, r);

        if (st != ZRO_OK && st != ZRO_ERR_PEER)
            return st;
    }
    for (int i = 0; i < c->n_ended; i++) {
        int r = c->ended[i];

        if (WIFEXITED(c->status[r]) && WEXITSTATUS(c->status[r]) != 0)
            return zro__fail(ZRO_ERR_PEER, "rank %d exited with %d", r, WEXITSTATUS(c->status[r]));
    }
    return ZRO_OK;
}

zro_status zro_spawn(const zro_group_config *config, int size, zro_rank_fn fn, void *user)
{
    zro_group_config c;
    children kids = { .n = size };
    zro__arena arena = { 0 };
    struct pollfd *polls;
    zro__meet *meet;
    pid_t self = getpid();
    zro_status st = check_spawn("spawn", config, size, fn, &c);

    if (st == ZRO_OK)
        st = check_one_thread();
    if (st != ZRO_OK)
        return st;
    zro__arena_plan(&arena, (size_t)size, sizeof *kids.pid);
    zro__arena_plan(&arena, (size_t)size, sizeof *kids.fd);
    zro__arena_plan(&arena, (size_t)size, sizeof *kids.status);
    zro__arena_plan(&arena, (size_t)size, sizeof *kids.ended);
    zro__arena_plan(&arena, (size_t)size, sizeof *polls);
    st = zro__arena_init(&arena, NULL, "the table of forked ranks");
    if (st != ZRO_OK)
        return st;
    kids.pid = zro__arena_take(&arena, (size_t)size, sizeof *kids.pid);
    kids.fd = zro__arena_take(&arena, (size_t)size, sizeof *kids.fd);
    kids.status = zro__arena_take(&arena, (size_t)size, sizeof *kids.status);
    kids.ended = zro__arena_take(&arena, (size_t)size, sizeof *kids.ended);
    polls = zro__arena_take(&arena, (size_t)size, sizeof *polls);
    meet = mmap(NULL, zro__meet_bytes(size), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (meet == MAP_FAILED) {
        st = zro__fail_errno(ZRO_ERR_MEMORY, errno, "spawn: a table for %d ranks", size);
        goto done;
    }
    zro__meet_init(meet, size);
    fflush(NULL); /* or every rank would write what is buffered now */
    for (int r = 0; r < size; r++) {
        pid_t pid = fork();

        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != self)
                _exit(1); /* the supervisor died in between */
            run_rank(meet, &c, r, size, fn, user);
        }
        if (pid < 0) {
            st = zro__fail_errno(ZRO_ERR_SYSTEM, errno, "spawn: fork of rank %d", r);
            for (int q = r; q < size; q++)
                zro__meet_gone(meet, q);
            break;
        }
        kids.pid[r] = pid;
        kids.fd[r] = (int)syscall(SYS_pidfd_open, pid, 0);
        kids.left++;
    }
    reap_all(&kids, meet, polls);
    if (st == ZRO_OK)
        st = tell_children(&kids, meet);
    munmap(meet, zro__meet_bytes(size));
done:
    zro__arena_free(&arena);
    return st;
}

/* ---- threads ---- */

typedef struct thread_rank {
    zro__meet *meet;
    const zro_group_config *config;
    zro_rank_fn fn;
    void *user;
    zro_group *group;
    pthread_t thread;
    int rank, size;
    int started, code, died;
} thread_rank;

/* The thread ends in the middle of things. */
static void rank_died(void *arg)
{
    thread_rank *t = arg;

    t->died = 1;
    if (t->group != NULL)
        zro__group_die(t->group);
    zro__meet_gone(t->meet, t->rank);
}

static void *run_thread(void *arg)
{
    thread_rank *t = arg;
    zro_status st;

    pthread_cleanup_push(rank_died, t);
    t->code = 1;
    st = zro__group_create_at(t->meet, t->config, t->rank, t->size, ZRO__LIFE_OF_THREAD, ZRO_OK, &t->group);
    if (st == ZRO_OK)
        t->code = t->fn(t->user, t->group);
    else
        zro__meet_report(t->meet, t->rank, st);
    pthread_cleanup_pop(0);
    zro_group_destroy(t->group);
    zro__meet_gone(t->meet, t->rank);
    return NULL;
}

static zro_status tell_threads(const thread_rank *ranks, int size, const zro__meet *meet)
{
    for (int r = 0; r < size; r++)
        if (ranks[r].died)
            return zro__fail(ZRO_ERR_LOST, "rank %d ended by pthread_exit", r);
    for (int r = 0; r < size; r++) {
        zro_status st = zro__meet_reported(meet, r);

        if (st != ZRO_OK && st != ZRO_ERR_PEER)
            return st;
    }
    for (int r = 0; r < size; r++)
        if (ranks[r].code != 0)
            return zro__fail(ZRO_ERR_PEER, "rank %d returned %d", r, ranks[r].code);
    return ZRO_OK;
}

zro_status zro_spawn_threads(const zro_group_config *config, int size, zro_rank_fn fn, void *user)
{
    zro_group_config c;
    thread_rank *ranks = NULL;
    zro__meet *meet = NULL;
    zro_status st = check_spawn("spawn_threads", config, size, fn, &c);

    if (st != ZRO_OK)
        return st;
    ranks = zro__alloc_array(NULL, ZRO__KIND_HANDLE, (size_t)size, sizeof *ranks);
    meet = zro__alloc(NULL, ZRO__KIND_HANDLE, zro__meet_bytes(size));
    if (ranks == NULL || meet == NULL) {
        st = zro__fail(ZRO_ERR_MEMORY, "out of memory: a table for %d ranks", size);
        goto done;
    }
    zro__meet_init(meet, size);
    for (int r = 0; r < size; r++) {
        int err;

        ranks[r] = (thread_rank){ .meet = meet, .config = &c, .fn = fn, .user = user, .rank = r, .size = size };
        err = pthread_create(&ranks[r].thread, NULL, run_thread, &ranks[r]);
        if (err != 0) {
            st = zro__fail_errno(ZRO_ERR_SYSTEM, err, "spawn_threads: the thread of rank %d", r);
            for (int q = r; q < size; q++)
                zro__meet_gone(meet, q);
            break;
        }
        ranks[r].started = 1;
    }
    for (int r = 0; r < size; r++)
        if (ranks[r].started)
            pthread_join(ranks[r].thread, NULL);
    if (st == ZRO_OK)
        st = tell_threads(ranks, size, meet);
done:
    zro__free(meet);
    zro__free(ranks);
    return st;
}
