/* The log of a training, read: one row per step, and what the first line says about the run.
 *
 * A log is what `zro train --log` writes: lines of JSON, each with the keys `step`, `loss`, `val_loss`, `norm`, `lr`, `ms`,
 * `tokens_per_s` and `comm`; the first line of each run has `run`, too.  A killed run leaves half a line, and a resumed one may make steps
 * again that the log has already: then the later ones count. */
#ifndef ZRO_TOOLS_REPORT_LOG_H
#define ZRO_TOOLS_REPORT_LOG_H

#include <jansson.h>
#include <stddef.h>

#include "tool.h"

/* What is plotted over the steps; NaN where it was not measured. */
typedef enum report_column {
    REPORT_LOSS,
    REPORT_VAL_LOSS,
    REPORT_NORM,
    REPORT_LR,
    REPORT_MS,
    REPORT_SPEED,
    REPORT_COMM, /* percent of the step */
    REPORT_COLUMNS
} report_column;

typedef struct report_log {
    size_t n;                        /* steps, ascending */
    double *steps;                   /* [n] */
    double *columns[REPORT_COLUMNS]; /* [n] each */
    size_t room;                     /* of the arrays */
    json_t *run;                     /* of the last run that told; or NULL */
    double bytes, bytes_unsharded;   /* memory of the rank that has most, by the last step; 0: not told */
    size_t damaged, first_damaged;   /* lines that are no steps, and the number of the first of them */
} report_log;

/* Reads a log.  Returns 0, or 1 with a message; warns of lines that are damaged.  destroy takes what either left. */
int report_log_read(const tool *t, const char *path, report_log *log);
void report_log_destroy(report_log *log);

#endif
