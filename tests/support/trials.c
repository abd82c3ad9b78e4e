/* Trials: see trials.h. */
#define _GNU_SOURCE
#include "trials.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "group/group.h"

enum { AT_ONCE = 4, DEADLINE_S = ZT_SANITIZED ? 400 : 100, EVERY = ZT_SANITIZED ? 8 : 1 };

typedef struct child {
    pid_t pid; /* 0: a free place */
    uint64_t number;
    time_t began;
    zt_shared *page;
} child;

static time_t now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec;
}

int trials_fork(void)
{
    pid_t parent = getpid(), pid;

    fflush(NULL);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
    }
    return pid;
}

void trials_set_timeout(zro_group *group, uint64_t ms)
{
    group->ranks.board.timeout_ms = ms;
}

static void begin(zt_rank *t, trial_fn fn, child *c, uint64_t number)
{
    memset(c->page, 0, sizeof *c->page);
    c->number = number;
    c->began = now_s();
    c->pid = trials_fork();
    if (c->pid == 0) {
        zt_rank own = *t;

        own.shared = c->page;
        own.user = t->shared;
        own.seed = own.random = zt_mix(number, 0x7261696c);
        fn(&own, number);
        fflush(NULL);
        _exit(0);
    }
}

/* 1 if it is over and has failed. */
static int attend(child *c, const char *name)
{
    int status;

    if (c->pid == 0)
        return 0;
    if (now_s() - c->began > DEADLINE_S) {
        dprintf(STDERR_FILENO, "trial %" PRIu64 " does not end\n", c->number);
        kill(c->pid, SIGKILL);
        c->began = now_s();
    }
    if (waitpid(c->pid, &status, WNOHANG) != c->pid)
        return 0;
    c->pid = 0;
    if (status != 0)
        dprintf(STDERR_FILENO, "trial %" PRIu64 " failed; alone: FAULTS=1 SEED=%" PRIu64 " make check ONLY=%s.solo\n",
                c->number, c->number, name);
    return status != 0;
}

void trials_run(zt_rank *t, const char *name, trial_fn fn, int count)
{
    static const struct timespec pause = { 0, 2000000 };
    int begun = 0, running = 0, failed = 0;
    child children[AT_ONCE] = { 0 };

    count = zt_opt.faults != 0 ? (int)zt_opt.faults : (count + EVERY - 1) / EVERY;
    for (int i = 0; i < AT_ONCE; i++) {
        children[i].page = mmap(NULL, sizeof(zt_shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        CHECK(children[i].page != MAP_FAILED);
    }
    do {
        running = 0;
        for (int i = 0; i < AT_ONCE; i++) {
            failed += attend(&children[i], name);
            if (children[i].pid == 0 && begun < count)
                begin(t, fn, &children[i], zt_opt.seed + EVERY * (uint64_t)begun++);
            running += children[i].pid != 0;
        }
        nanosleep(&pause, NULL);
    } while (running > 0);
    for (int i = 0; i < AT_ONCE; i++)
        munmap(children[i].page, sizeof(zt_shared));
    if (failed > 0)
        zt_fail(__FILE__, __LINE__, "%d of %d trials failed", failed, count);
}
