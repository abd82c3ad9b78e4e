/* Victims: a rank that dies, stops or is held at a ZRO__POINT while it does something with the others.
 *
 * A first run lists the points that it passes; each of the others makes it fail at one of them.  A rank that is stopped or held goes on
 * when all survivors have given up, and must then learn that it was given up. */
#ifndef VICTIM_H
#define VICTIM_H

#include "zt/zt.h"

/* Flags of the shared page: the victim is through; survivors that are through; the victim may go on.  Numbers: its process. */
enum { VICTIM_RETURNED, VICTIM_GAVE_UP, VICTIM_GO_ON, VICTIM_PROCESS = 0 };

typedef enum victim_way { KILL, STOP, HOLD } victim_way;

extern const char *const victim_ways[]; /* "killed", ... */

typedef struct victim_fate {
    victim_way way;
    const char *point; /* NULL: list the points */
    long nth;          /* its passing */
} victim_fate;

/* What a rank of a test does; returns what it was told. */
typedef zro_status (*victim_fn)(void *user);

/* The victim: calls fn, in which it fails, and again until that returns an error.  Returns it; OK: the points were listed. */
zro_status victim_run(zt_rank *t, const victim_fate *fate, victim_fn fn, void *user);

/* The victim has checked what it was told. */
void victim_returns(zt_rank *t);

/* A survivor has given up, and lets the victim go on when all have.  Returns when a victim that was stopped is through. */
void victim_release(zt_rank *t, const victim_fate *fate, int survivors);

#endif
