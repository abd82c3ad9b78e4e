/* What a training tells: a line per step, on a terminal with a bar, and a log for programs. */
#ifndef GPT_PROGRESS_H
#define GPT_PROGRESS_H

#include <stdint.h>
#include <stdio.h>

#include "zro.h"

/* What is not measured is NaN. */
typedef struct gpt_step {
    uint64_t step; /* from 1 on */
    double loss, val_loss, norm, lr;
    double ms;           /* of the step, without validation and saves */
    double tokens_per_s; /* of all ranks */
    double comm;         /* the part of the step that this rank spent in averaging, updating and waiting for others, 0 to 1 */
    double beyond_ms;    /* of the step, without the forward and backward of the rank that took longest for them */
    double bytes;        /* memory of the rank that has most */
    double bytes_unsharded;
    uint64_t hash; /* of all parameters */
    int has_hash;
} gpt_step;

typedef struct gpt_progress {
    int bar;               /* standard output is a terminal */
    uint64_t first, steps; /* steps made before this run, and the last one */
    double began;          /* seconds */
    FILE *log;             /* or NULL */
    char *run;             /* what the run is made of, as JSON, until the first line of the log has it; or NULL */
} gpt_progress;

/* Seconds since some moment. */
double gpt_now(void);

/* log: a path, or "" for none; `append` to what it has, on a new line. */
ZRO_MUST zro_status gpt_progress_open(gpt_progress *progress, const char *log, zro_switch append, uint64_t first,
                                      uint64_t steps);
void gpt_progress_step(gpt_progress *progress, const gpt_step *step);

/* A line that stays, above the bar. */
void gpt_progress_say(gpt_progress *progress, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* SYSTEM  the log could not be written */
ZRO_MUST zro_status gpt_progress_close(gpt_progress *progress);

#endif
