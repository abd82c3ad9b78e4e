/* The cycle: the stages that gradients go through, and at which event each of them happens.
 *
 * The stages are: reduce (the average over ranks), decide (what must be known of all gradients first: norm, loss scale,
 * whether to skip), update (the rule, by owners), publish (to all ranks).  A row of the table says when; in this version there
 * is one, the optimizer alone: nothing is reduced, the others happen in step.
 *
 * With a group of ranks, what one of them finds wrong is voted on before anybody has changed anything; that vote is also what
 * owners wait for before they write where others may still read.  An owner says that it has begun before its first write, and
 * that it has published when everything has arrived; in between a lost rank tears the parameters. */
#ifndef ZRO_STEP_CYCLE_H
#define ZRO_STEP_CYCLE_H

#include "optim/factors.h"
#include "optim/update.h"
#include "step/deliver.h"
#include "step/norms.h"

typedef struct zro__cycle {
    zro__update update;
    zro_group *group; /* the cycle's own; NULL: one owner */
    zro__lots *lots;  /* what is delivered */
    zro__norms norms;
    double clip_norm, clip_type, clip_value; /* 0: off */
    zro_switch skips, scales;
    zro__scaler scaler;
    double norm;      /* of the last step; NaN if it was not asked for */
    uint32_t skipped; /* the last step was */
    uint64_t n_skipped, n_steps;
    uint64_t n_active;         /* parameters, or parts of them, that had a gradient in the last step */
    uint64_t begun, published; /* updates */
} zro__cycle;

/* Takes the settings, which have been checked.  `c` is zeroed but for update. */
void zro__cycle_init(zro__cycle *c, const zro_optim_config *config);
void zro__cycle_free(zro__cycle *c); /* but for the group */

/* Whether a step asks for the norm of all gradients, for which norms must have been reserved. */
int zro__cycle_measures(const zro__cycle *c);

/* OK, or why nothing can be done any more: the group is broken (its verdict), or, STATE, parameters are torn besides.  Local.
 * */
zro_status zro__cycle_check(const zro__cycle *c);

/* Decide and update.  `st` is what the caller has found already; `claim` says, in words, what all ranks must have in common.
 * Collective.  Nothing has changed if it fails.
 *
 * MISMATCH  the ranks' claims differ */
zro_status zro__cycle_step(zro__cycle *c, const char *claim, zro_status st, void *user);

/* Publishes, after a step or a look that was voted on.  Collective. */
zro_status zro__cycle_deliver(zro__cycle *c);

/* Looks at where the parameters are, votes, and publishes.  Collective. */
zro_status zro__cycle_publish(zro__cycle *c, zro_status st);

/* The gradients of this rank's shard, clipped.  norm: by the norm over all shards; `norm`, or NULL, is that before; collective,
 * norms having been reserved.  value: local. */
zro_status zro__cycle_clip_norm(zro__cycle *c, double max, double p, zro_status st, double *norm);
zro_status zro__cycle_clip_value(zro__cycle *c, double max);

#endif
