/* A job: ranks that are started, looked after, and ended together. */
#ifndef ZRO_TOOLS_RUN_JOB_H
#define ZRO_TOOLS_RUN_JOB_H

#include <stdint.h>
#include <sys/types.h>

#include "group/meet.h"
#include "run_leftover.h"
#include "run_output.h"
#include "run_result.h"
#include "run_start.h"

typedef struct run_config {
    char **argv;
    int size;
    int bind, prefix;
    int restarts;
    double timeout, grace; /* seconds; no timeout: 0 */
} run_config;

typedef struct job {
    const run_config *config;
    run_start start;
    run_leftover leftover;
    int signals;         /* signalfd */
    uint64_t timeout_at; /* 0: never */
    uint64_t wake_at;    /* when to look at the clock again */

    /* Of one start. */
    pid_t *pid; /* by rank; 0: not started or ended */
    int left;   /* ranks that live */
    int well;   /* ranks that exited with 0 */
    int childless;
    zro__meet *meet;
    run_output *output; /* NULL: ranks write to where we do */
    int ended_by;       /* the signal that ended zro run, 0 if none did */
    int timed_out;
    uint64_t interrupted_at; /* by the first SIGINT */
    uint64_t alone_at;       /* since when no rank is left */
    uint64_t tell_at;        /* when the failure is told although not all have ended */
    uint64_t kill_at;        /* when the grace is over; 0: nobody has been told to end */
    int killed;              /* it was over */
    int bad_rank;            /* whose failure to tell about; -1: none */
    int bad, is_cause;       /* as of waitpid; it cannot be an answer to the failure of another */
    int told;
    uint64_t drain_by; /* when waiting for the reader of our output is over */
    int hurry;         /* somebody pressed Ctrl-C again: nothing is waited for */
    int dropped;       /* output was */
} job;

/* Takes over the signals of this process; from now on, whatever it starts is ended before it ends. */
zro_status job_init(job *j, const run_config *config);

/* Starts all ranks and comes back when everything has ended, and what went wrong is told. */
run_result job_run(job *j, int restart);

/* Takes a job whose init failed. */
void job_free(job *j);

#endif
