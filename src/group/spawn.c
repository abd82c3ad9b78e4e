/* Ranks as forked processes or as threads, supervised by the caller, who is no rank.
 *
 * Each rank meets the others at a table that all share, runs the program's function on the group made there, and ends.  A rank
 * that fails does not take the others along: they hear of it from the group.  A forked rank dies with its supervisor. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/settings.h"
#include "group/create_first.h"
#include "group/env.h"
#include "group/group.h"

typedef struct job job;

/* One rank, as its supervisor sees it. */
typedef struct rank {
    job *job;
    int number;
    zro_group *group; /* while the program's function runs */
    pid_t pid;        /* of a process; 0: it has ended */
    pthread_t thread;
    int code; /* what the program's function returned in a thread */
} rank;

struct job {
    const char *name; /* of the call, for error texts */
    zro_group_config config;
    int size;
    zro_rank_fn fn;
    void *user;
    zro__meet *meet;
    rank *ranks;
    struct pollfd *pidfds; /* per rank; -1 if the rank has ended, or the kernel has no pidfds */
    int without_pidfds;    /* 1: the kernel has none, so the ranks must be polled */
    int lost;              /* the first rank that was lost, or -1 */
    int signal;            /* the signal that killed it; 0: it is a thread that ended */
    int failed;            /* the first rank that ended with another code than 0, or -1 */
    int code;              /* that code */
};

static zro_status check_job(job *j, const char *name, const zro_group_config *config, int size, zro_rank_fn fn, void *user)
{
    zro_status st;

    *j = (job){ .name = name, .size = size, .fn = fn, .user = user, .lost = -1, .failed = -1 };
    st = zro__config_read(config, &j->config);
    if (st != ZRO_OK)
        return st;
    if (size < 1 || size > ZRO__MAX_RANKS)
        return zro__fail(ZRO_ERR_INVALID, "%s: size = %d, must be 1 to %d", name, size, ZRO__MAX_RANKS);
    if (fn == NULL)
        return zro__fail(ZRO_ERR_INVALID, "%s: fn is NULL", name);
    if (j->config.link != NULL)
        return zro__fail(ZRO_ERR_INVALID, "%s: config.link is one rank's; use it with zro_group_create_tickets", name);
    return ZRO_OK;
}

/* On the rank itself. */
static int run_rank(rank *r, zro__life_kind kind)
{
    job *j = r->job;
    zro_status st = zro__group_create_at(j->meet, &j->config, r->number, j->size, kind, ZRO_OK, &r->group);
    zro_group *g = r->group;
    int code = 1;

    if (st == ZRO_OK) {
        code = j->fn(j->user, g);
        r->group = NULL;
        if (kind == ZRO__LIFE_OF_THREAD)
            zro__group_end(g);
        else
            zro_group_destroy(g);
    }
    zro__meet_finish(j->meet, r->number, st, code);
    return code;
}

static void note_end(job *j, int r, int is_lost, int signal, int code)
{
    if (is_lost && j->lost < 0) {
        j->lost = r;
        j->signal = signal;
    } else if (!is_lost && code != 0 && j->failed < 0) {
        j->failed = r;
        j->code = code;
    }
}

/* The worst that happened: first comes a rank that was lost, then one that could not create its group, then one that returned
 * a code. */
static zro_status tell_worst(const job *j)
{
    if (j->lost >= 0 && j->signal != 0)
        return zro__fail(ZRO_ERR_LOST, "rank %d was killed by signal %d (%s)", j->lost, j->signal, strsignal(j->signal));
    if (j->lost >= 0)
        return zro__fail(ZRO_ERR_LOST, "rank %d ended by pthread_exit", j->lost);
    for (int r = 0; r < j->size; r++) {
        zro_status st = zro__meet_status(j->meet, r);

        if (st != ZRO_OK && st != ZRO_ERR_PEER)
            return st;
    }
    if (j->failed >= 0)
        return zro__fail(ZRO_ERR_PEER, "rank %d exited with %d", j->failed, j->code);
    return ZRO_OK;
}

/* Starts the ranks, waits for those that could be started, and tells how it went. */
static zro_status run_job(job *j, zro_status (*start)(rank *), void (*wait)(job *, int n))
{
    size_t bytes = zro__meet_bytes(j->size);
    zro_status st = ZRO_OK;
    int n = 0;

    j->ranks = zro__alloc_array(NULL, ZRO__KIND_HANDLE, (size_t)j->size, sizeof *j->ranks);
    j->pidfds = zro__alloc_array(NULL, ZRO__KIND_HANDLE, (size_t)j->size, sizeof *j->pidfds);
    j->meet = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (j->ranks == NULL || j->pidfds == NULL || j->meet == MAP_FAILED) {
        st = zro__fail(ZRO_ERR_MEMORY, "%s: out of memory: a table for %d ranks", j->name, j->size);
        goto done;
    }
    zro__meet_init(j->meet, j->size);
    for (; n < j->size && st == ZRO_OK; n += st == ZRO_OK) {
        j->ranks[n] = (rank){ .job = j, .number = n };
        st = start(&j->ranks[n]);
    }
    for (int r = n; r < j->size; r++)
        zro__meet_gone(j->meet, r);
    wait(j, n);
    if (st == ZRO_OK)
        st = tell_worst(j);
done:
    if (j->meet != MAP_FAILED)
        munmap(j->meet, bytes);
    zro__free(j->pidfds);
    zro__free(j->ranks);
    return st;
}

/* ---- processes ---- */

/* Other threads would not exist in the children, but their locks would. */
static zro_status check_one_thread(void)
{
    struct stat tasks; /* a folder with one folder per thread: each is one link more than the two that every folder has */
    const char *mpi;

    if (stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink > 3)
        return zro__fail(ZRO_ERR_STATE,
                         "spawn: the process has %d threads, and only one of them would live on in a forked rank; "
                         "use zro_spawn_threads or `zro run`",
                         (int)tasks.st_nlink - 2);
    if (zro__env_mpi_tasks(&mpi) != 1)
        return zro__fail(ZRO_ERR_STATE, "spawn: the process was started by an MPI launcher (%s)", mpi);
    return ZRO_OK;
}

static zro_status start_process(rank *r)
{
    job *j = r->job;
    pid_t self = getpid();
    int code;

    r->pid = fork();
    if (r->pid < 0)
        return zro__fail_errno(ZRO_ERR_SYSTEM, errno, "spawn: fork of rank %d", r->number);
    if (r->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != self)
            _exit(1); /* the supervisor died in between */
        code = run_rank(r, ZRO__LIFE_OF_PROCESS);
        fflush(NULL);
        _exit(code);
    }
    j->pidfds[r->number] = (struct pollfd){ .fd = (int)syscall(SYS_pidfd_open, r->pid, 0), .events = POLLIN };
    j->without_pidfds |= j->pidfds[r->number].fd < 0;
    return ZRO_OK;
}

/* 1 if the process has ended. */
static int reap(rank *r)
{
    job *j = r->job;
    pid_t got;
    int status, code;

    do
        got = waitpid(r->pid, &status, WNOHANG);
    while (got < 0 && errno == EINTR);
    if (got == 0)
        return 0;
    if (got < 0) /* SIGCHLD is ignored, or somebody else reaped it: how it ended is known from itself alone */
        status = zro__meet_finished(j->meet, r->number, &code) ? code << 8 : SIGKILL;
    note_end(j, r->number, WIFSIGNALED(status), WTERMSIG(status), WEXITSTATUS(status));
    r->pid = 0;
    if (j->pidfds[r->number].fd >= 0)
        close(j->pidfds[r->number].fd);
    j->pidfds[r->number].fd = -1;
    zro__meet_gone(j->meet, r->number);
    return 1;
}

/* Ranks must be noticed in the order in which they end, since others may wait for one that never comes; only own children are
 * reaped.  Without pidfds (old kernels) all are tested every 10 ms. */
static void wait_processes(job *j, int n)
{
    for (int left = n; left > 0;) {
        poll(j->pidfds, (nfds_t)n, j->without_pidfds ? 10 : -1);
        for (int r = 0; r < n; r++)
            left -= j->ranks[r].pid != 0 && reap(&j->ranks[r]);
    }
}

zro_status zro_spawn(const zro_group_config *config, int size, zro_rank_fn fn, void *user)
{
    job j;
    zro_status st = check_job(&j, "spawn", config, size, fn, user);

    if (st == ZRO_OK)
        st = check_one_thread();
    if (st != ZRO_OK)
        return st;
    fflush(NULL); /* or every rank would write what is buffered now */
    return run_job(&j, start_process, wait_processes);
}

/* ---- threads ---- */

/* The thread ends before the program's function has returned. */
static void rank_died(void *arg)
{
    rank *r = arg;

    if (r->group != NULL)
        zro__group_die(r->group);
    zro__meet_gone(r->job->meet, r->number);
}

static void *run_thread(void *arg)
{
    rank *r = arg;

    pthread_cleanup_push(rank_died, r);
    r->code = run_rank(r, ZRO__LIFE_OF_THREAD);
    pthread_cleanup_pop(0);
    zro__meet_gone(r->job->meet, r->number);
    return r;
}

static zro_status start_thread(rank *r)
{
    int err = pthread_create(&r->thread, NULL, run_thread, r);

    return err == 0 ? ZRO_OK : zro__fail_errno(ZRO_ERR_SYSTEM, err, "spawn_threads: the thread of rank %d", r->number);
}

static void wait_threads(job *j, int n)
{
    for (int r = 0; r < n; r++) {
        void *returned = NULL;

        pthread_join(j->ranks[r].thread, &returned);
        note_end(j, r, returned != &j->ranks[r], 0, j->ranks[r].code); /* pthread_exit returns something else */
    }
}

zro_status zro_spawn_threads(const zro_group_config *config, int size, zro_rank_fn fn, void *user)
{
    job j;
    zro_status st = check_job(&j, "spawn_threads", config, size, fn, user);

    return st != ZRO_OK ? st : run_job(&j, start_thread, wait_threads);
}
