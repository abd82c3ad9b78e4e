/* The engine: takes a shard's gradients through the rule.
 *
 * A step is: look which pieces have a gradient, measure if anything must be known of all gradients first, run.  Nothing has
 * changed before run, and once run has found the rule's own changes of values to be good it cannot fail.
 *
 * The rule's functions but for the loop are called on the caller's thread, before the loops that depend on them: pieces are
 * taken in rounds, for each of which scalars are prepared, one set for all pieces in a row that have the same numbers; then
 * the threads divide the round's blocks among them. */
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
    uint64_t seed, steps;  /* of random numbers; steps so far, skipped ones included: set by the caller */
    double *values;        /* what the rule makes of all groups' values */
    size_t n_values;       /* room */
    struct zro__set *sets; /* prepared scalars */
    void *scratch;         /* for rules that need whole parameters */
    size_t n_scratch;      /* elements that it has room for */
    int has_factors;       /* gradients may be changed on their way */
} zro__update;

/* Takes a rule (or NULL) that has been checked.  `u` is zeroed; pool and account are the caller's. */
zro_status zro__update_init(zro__update *u, const zro_rule *rule, const zro__kernels *kernels, zro__pool *pool,
                            zro__account *account, const zro_optim_config *config);

/* Takes half-built ones. */
void zro__update_free(zro__update *u);

/* Adds a group: zro__shard_add and what the engine itself needs for it. */
zro_status zro__update_add(zro__update *u, const double *values, size_t first_index, const zro__run_of *runs, size_t n);

/* Removes the group that was added last. */
void zro__update_drop(zro__update *u);

/* Lets the rule say how it would change values.  Nothing has changed yet, whether it fails or not. */
zro_status zro__update_begin(zro__update *u, void *user);

/* After begin: takes the changed values, then updates all active pieces (zro__shard_look). */
void zro__update_run(zro__update *u, const zro__factors *factors, void *user);

/* Whether the gradients of all active pieces are finite (if asked for); and the parts of their norm (p != 0), one for each
 * block of a piece, 0 for those that are not active, into the places of an array that has one for each block of all parameters.
 * In the default floating-point mode. */
int zro__update_measure(zro__update *u, double *partials, double p, int ask_finite);

/* The norm that such an array adds up to: in order, whoever computed what.  NaN and infinity as they come. */
double zro__norm_of(const double *partials, size_t n, double p);

/* Applies factors to the gradients themselves. */
void zro__update_grads(zro__update *u, const zro__factors *factors);

#endif
