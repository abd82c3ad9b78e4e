/* Starting a rank. */
#ifndef ZRO_TOOLS_RUN_START_H
#define ZRO_TOOLS_RUN_START_H

#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "run_cpus.h"
#include "zro.h"

typedef struct run_start {
    char **argv;
    int size;
    int restart; /* how often the job was started before */
    int meet;    /* descriptor of the meeting table */
    int bind;
    int is_dumb; /* ranks have a terminal, but what they write there does not go to one */
    run_cpus cpus;
    /* What zro run found and has changed for itself. */
    sigset_t mask;
    struct sigaction pipe_action;
    struct rlimit files;
} run_start;

/* Starts a rank whose standard output and error are `ends`, or ours if that is NULL.  OK when it runs the program; otherwise
 * nothing is left, and *code is the exit status that says why. */
zro_status start_rank(const run_start *s, int rank, const int *ends, pid_t *pid, int *code);

#endif
