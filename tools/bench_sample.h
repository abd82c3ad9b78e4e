/* Samples: how the benchmarks measure.
 *
 * Times on a shared or virtual machine are not comparable from one second to the next.  So what is measured and its limit take
 * turns, and the ratio of their medians counts.  They are called sides: one is the thing itself, two are the loops of the same
 * shape that were the fastest in a trial; the faster of them is the limit.
 *
 * What is too short to be timed is repeated in a sample.  Of samples in which a thread lost its processor only as many count as
 * are needed to have enough, the least disturbed first. */
#ifndef ZRO_TOOLS_BENCH_SAMPLE_H
#define ZRO_TOOLS_BENCH_SAMPLE_H

#include <stdint.h>

#include "zro.h"

typedef struct sample {
    double us;        /* of one run */
    int64_t switches; /* how often a thread lost its processor in it */
} sample;

/* Microseconds of one run: the median and the quartiles. */
typedef struct times {
    double median, low, high;
} times;

enum { SIDE_ITSELF = -1 };

typedef struct side {
    int loop;        /* number of a loop, or SIDE_ITSELF: what is measured */
    int max_batch;   /* runs that a sample may have */
    int batch;       /* runs that a sample has; set by a trial */
    sample *samples; /* those that were kept */
    int n;           /* samples that were kept */
    int clean;       /* samples that were kept and in which no thread lost its processor */
} side;

/* What the benchmarks do differently. */
typedef struct sampler {
    void *user;
    zro_status (*take)(void *user, const side *s, sample *out); /* one sample of s->batch runs */
    zro_status (*fits)(void *user, int loop, int *fits);        /* whether there is such a loop for the shape; NULL: always */
    int n_loops;
    double sample_us; /* microseconds that a sample should take at least */
} sampler;

/* A few samples, which are not kept: sets the batch.  *best: the shortest time of a run. */
zro_status sample_try(const sampler *p, side *s, double *best);

/* A trial of all loops: the two that were the fastest become `loops`. */
zro_status sample_find_loops(const sampler *p, side loops[2]);

/* Takes a sample and keeps it. */
zro_status sample_keep(const sampler *p, side *s);

/* Of the undisturbed samples or, if they are fewer than `enough`, of the least disturbed ones; then *disturbed is set.  Sorts
 * the samples. */
times sample_times(side *s, int enough, int *disturbed);

/* The faster of two loops, and its times. */
const side *sample_limit(side loops[2], int enough, int *disturbed, times *out);

/* What is measured against its limit, in turns: itself, one loop, itself, the other loop, ... */
typedef struct turns {
    times itself, limit;
    int loop;      /* the loop that was the limit */
    int disturbed; /* in too many samples a thread lost its processor */
} turns;

enum { SAMPLES_PER_TURN = 8 };

/* Finds the loops, tries what is measured, and takes `enough` turns, or up to twice as many until there are enough undisturbed
 * samples.  `samples` is long enough for SAMPLES_PER_TURN * enough; the first of them are those of what is measured. */
zro_status sample_turns(const sampler *p, int enough, int max_batch, sample *samples, turns *out);

/* How often threads lost their processors so far; `who` is an argument of getrusage. */
int64_t sample_switches(int who);

/* How many of them count as a disturbance in a sample that took so long: on an idle machine, too, a thread may lose its processor
 * now and then. */
int64_t sample_lost(int64_t switches, double us);

/* One sample of s->batch runs by all ranks of a group.  It begins for all at a barrier and lasts from the first rank's beginning
 * to the last one's end.  All ranks get the same one, with the switches of the rank that had the most.  *end: the time at its end. */
typedef zro_status (*sample_run_fn)(void *user, int loop);
zro_status sample_ranks(zro_group *group, const side *s, sample_run_fn run, void *user, sample *out, uint64_t *end);

#endif
