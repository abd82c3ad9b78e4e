/* The engine: takes a shard's gradients through the rule.
 *
 * A step is: scan which pieces have a gradient (zro__shard_scan); measure, if something must be known of all gradients first;
 * begin, in which the rule may propose other values; run.  Nothing has changed before run, and run cannot fail.
 *
 * Pieces are taken in rounds.  For a round the caller's thread calls the rule's `prepare`, once for neighbouring pieces whose
 * single numbers are equal; then the threads divide the round's blocks among them and run the loop. */
#ifndef ZRO_OPTIM_UPDATE_H
#define ZRO_OPTIM_UPDATE_H

#include "base/kernels.h"
#include "base/pool.h"
#include "optim/drive.h"
#include "optim/rule.h"
#include "optim/shard.h"

typedef struct zro__update {
    zro__shard shard;
    const zro__kernels *kernels;
    zro__pool *pool;
    zro__loops loops;
    zro__drive_fn drive;
    zro_rounding rounding;
    uint64_t seed;         /* of the random numbers for stochastic rounding */
    uint64_t steps;        /* how many steps there were so far, skipped ones included; set by the caller */
    struct zro__set *sets; /* prepared scalars */
    size_t n_fused;        /* in a transfer: how many of them there are */
    void *scratch;         /* two arrays of n_scratch elements, for rules that need whole parameters */
    size_t n_scratch;      /* elements of the largest parameter that needs it */
    int has_factors;       /* gradients may be unscaled or clipped on their way to the rule */
} zro__update;

/* Takes a rule (or NULL) that has been checked.  `u` is zeroed; pool and account are the caller's. */
zro_status zro__update_init(zro__update *u, const zro_rule *rule, const zro__kernels *kernels, zro__pool *pool,
                            zro__account *account, const zro_optim_config *config);

/* Takes half-built engines. */
void zro__update_free(zro__update *u);

/* Adds a group: zro__shard_add and what the engine itself needs for it. */
zro_status zro__update_add(zro__update *u, const double *values, size_t first_index, const zro__owned_range *ranges, size_t n);

/* Lets the rule say how it would change values.  Nothing has changed yet, whether it fails or not. */
zro_status zro__update_begin(zro__update *u, void *user);

/* After begin: takes the changed values, then updates all active pieces (zro__shard_scan). */
void zro__update_run(zro__update *u, const zro__factors *factors, void *user);

/* The same inside a transfer that brings the gradients of several ranks, in one pass over memory.  After begin: `take` takes the
 * changed values; `prepare`, on one thread, comes before the first elements of a piece; then `apply`, from any thread, takes its
 * elements [from, from + count) through sum, factors and rule. */
void zro__update_take(zro__update *u);
void zro__update_prepare(zro__update *u, zro__shard_group *g, zro__piece *p, void *user);
void zro__update_apply(zro__update *u, zro__shard_group *g, zro__piece *p, size_t from, size_t count,
                       const zro__sources *sources, const zro__factors *factors, void *user);

/* Whether the gradients of all active pieces are finite (if `ask_finite`).  Besides (if p != 0), their p-norm: `partials` has one
 * element for each block of all parameters of the optimizer, and gets, for each block of this shard, that block's part of the
 * norm, 0 if its piece is not active. */
int zro__update_measure(zro__update *u, double *partials, double p, int ask_finite);

/* The same inside a transfer: adds up the sources of elements [from, from + count) of a piece into its gradient, and measures that
 * while it is in the caches.  1 if it is finite, or that is not asked for.  From any thread; `partials` must be 0 at first. */
int zro__update_measure_sources(const zro__update *u, const zro__piece *p, size_t from, size_t count,
                                const zro__sources *sources, double *partials, double norm, int ask_finite);
void zro__update_clear_partials(const zro__update *u, double *partials);

/* Applies factors to the gradients themselves. */
void zro__update_grads(zro__update *u, const zro__factors *factors);

#endif
