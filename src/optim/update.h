/* The engine: takes a shard's gradients through the rule.
 *
 * A step is: begin (the rule may change values), look which pieces have a gradient, measure if anything must be known of all
 * gradients first, run.  Nothing has changed before run, and run cannot fail.
 *
 * Work is divided over threads by blocks.  Scalars are prepared where they are used, once for all pieces in a row that have the
 * same numbers; a piece's numbers are written when all of it is done. */
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
    uint64_t seed, steps; /* of random numbers; steps run so far */
    double *partials;     /* one a block: parts of a norm */
    double *values;       /* room for a group's */
    void *scratch;        /* for rules that need whole parameters */
} zro__update;

/* Takes a rule (or NULL) that has been checked.  `u` is zeroed; pool and account are the caller's. */
zro_status zro__update_init(zro__update *u, const zro_rule *rule, const zro__kernels *kernels, zro__pool *pool,
                            zro__account *account, const zro_optim_config *config);

/* Takes half-built ones. */
void zro__update_free(zro__update *u);

/* Adds a group: zro__shard_add and what the engine itself needs for it. */
zro_status zro__update_add(zro__update *u, const double *values, const zro__run_of *runs, size_t n);

/* Lets the rule change values, and looks which pieces have a gradient. */
zro_status zro__update_begin(zro__update *u, void *user);

/* Updates all pieces that have one. */
void zro__update_run(zro__update *u, const zro__factors *factors, void *user);

/* Over all gradients: whether they are finite (if asked for), and their norm (p != 0), NaN and infinity as they come.  In the default
 * floating-point mode. */
typedef struct zro__measured {
    int finite;
    double norm;
} zro__measured;
zro__measured zro__update_measure(zro__update *u, double p, int ask_finite);

/* Applies factors to the gradients themselves. */
void zro__update_grads(zro__update *u, const zro__factors *factors);

#endif
