/* A job: ranks that are started, supervised, and ended together. */
#ifndef ZRO_TOOLS_RUN_JOB_H
#define ZRO_TOOLS_RUN_JOB_H

#include <stdint.h>
#include <sys/types.h>

#include "board/meet.h"
#include "run_leftover.h"
#include "run_output.h"
#include "run_result.h"
#include "run_start.h"

typedef struct run_config {
    char **argv;
    int size;       /* ranks */
    int bind;       /* each rank keeps to its share of the processors */
    int prefix;     /* lines of output begin with the rank */
    int pipe;       /* then: standard output of ranks is a pipe, not a pseudo-terminal */
    int restarts;   /* how often the job may be started again after a failure */
    double timeout; /* seconds after which the job is ended; 0: never */
    double grace;   /* seconds from SIGTERM to SIGKILL */
} run_config;

typedef struct job {
    const run_config *config;
    run_start start;
    run_leftover leftover;
    int signals;         /* a signalfd */
    uint64_t timeout_at; /* when the timeout is over; 0: never.  Times are those of zro__now_ns */
    uint64_t wake_at;    /* the next deadline */

    /* What follows is about one start of the job. */
    pid_t *pid;    /* by rank; 0: it was not started, or has ended */
    int left;      /* how many ranks live */
    int well;      /* how many ranks exited with 0 */
    int childless; /* no child is left, neither a rank nor a process that one left behind */
    zro__meet *meet;
    run_output *output;      /* NULL: ranks write to where zro run does */
    int ended_by;            /* the signal that told zro run to end, or 0 */
    int timed_out;           /* the timeout ended the job */
    uint64_t interrupted_at; /* when the first SIGINT came; 0: none came */
    uint64_t alone_at;       /* when it was first seen that no rank is left; 0: some are */
    uint64_t tell_at;        /* when the failure is told even if not all ranks have ended */
    uint64_t kill_at;        /* when the grace is over; 0: the ranks have not been told to end */
    int killed;              /* the grace was over, and ranks got SIGKILL */
    int bad_rank;            /* the rank whose failure is told; -1: none has failed */
    int bad;                 /* how it ended, as of waitpid */
    int is_cause;            /* how sure it is that this was not caused by another rank's failure: see is_cause() */
    uint32_t losses;         /* how many losses the table had when the first failure was seen: those ranks are suspects */
    int spares;              /* suspects have not been told to end yet */
    uint32_t bad_place;      /* the place of bad_rank among the suspects: see place_of() */
    int told;                /* the failure has been told */
    uint64_t drain_by;       /* until when the reader of our output is waited for; 0: as long as it likes */
    int hurry;               /* Ctrl-C was pressed again: nothing is waited for any more */
    int dropped;             /* output was dropped, because its reader did not come in time */
} job;

/* Takes over the signals of this process; from now on, whatever it starts is ended before it ends. */
zro_status job_init(job *j, const run_config *config);

/* Starts all ranks and comes back when everything has ended, and what went wrong is told. */
run_result job_run(job *j, int restart);

/* Takes a job whose init failed. */
void job_free(job *j);

#endif
