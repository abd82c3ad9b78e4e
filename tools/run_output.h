/* What ranks write, passed on line by line.
 *
 * The standard output of a rank is a pseudo-terminal, or a pipe if it shall not be one or there is none; its standard error is
 * a pipe.  Whole lines go to our standard output and standard error, with "[r] " before them.  Lines of different ranks are never
 * mixed.  Nothing here blocks, whoever reads our output, and memory is bounded: where the reader does not come along, ranks wait
 * in their writes. */
#ifndef ZRO_TOOLS_RUN_OUTPUT_H
#define ZRO_TOOLS_RUN_OUTPUT_H

#include <poll.h>
#include <sys/types.h>

#include "zro.h"

typedef struct run_output run_output;

enum { OUTPUT_POLLS = 2, OUTPUT_LINE_BYTES = 65536 /* longer lines are cut into several */ };

/* `pid`, by rank, is borrowed and read later; 0: that rank does not live.  `terminals`: 1, or 0 for pipes alone. */
zro_status output_create(int size, const pid_t *pid, int terminals, run_output **out);

/* Makes the streams of a rank; its ends, for standard output and standard error, are the caller's to close. */
zro_status output_open(run_output *o, int rank, int ends[2]);

/* What to wait for before calling pump again. */
void output_polls(const run_output *o, struct pollfd polls[OUTPUT_POLLS]);

/* Passes on what there is, up to a limit. */
void output_pump(run_output *o);

/* When all writers have ended: passes on all there is, also lines without an end.  1: all is written; 0: call it again when
 * the polls say so.  A process that could still write is not waited for. */
int output_finish(run_output *o);

/* A line of our own on standard error, between those of the ranks.  0: not now. */
int output_say(run_output *o, const char *text);

/* OK, or what could not be written, unless nobody wanted to read it. */
zro_status output_check(const run_output *o);

/* Takes NULL.  A process that still writes gets SIGPIPE or, from a terminal, EIO. */
void output_destroy(run_output *o);

#endif
