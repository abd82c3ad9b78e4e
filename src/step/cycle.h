/* The cycle: the stages that gradients go through, and at which event each of them happens.
 *
 * The stages are: reduce (the average over ranks), decide (what must be known of all gradients first: norm, loss scale,
 * whether to skip), update (the rule, by owners), publish (to all ranks).  In this version
 * nothing is reduced here (the program does that); decide, update and publish all happen in zro_optim_step.
 *
 * With a group of ranks, what one of them finds wrong is voted on before anybody has changed anything; that vote is also what
 * owners wait for before they write where others may still read.  An owner says that it has begun before its first write, and
 * that it has published when everything has arrived; in between a lost rank tears the parameters. */
#ifndef ZRO_STEP_CYCLE_H
#define ZRO_STEP_CYCLE_H

#include "optim/factors.h"
#include "optim/update.h"
#include "step/claim.h"
#include "step/deliver.h"
#include "step/norms.h"

typedef struct zro__cycle {
    zro__update update;
    zro_group *group;      /* a group that only this cycle uses; NULL: there is one owner */
    zro__batches *batches; /* what is delivered */
    zro__norms norms;
    double clip_norm;  /* the largest norm; 0: no clipping by norm */
    double clip_type;  /* which norm that is */
    double clip_value; /* the largest value; 0: no clipping by value */
    zro_switch skips;  /* steps whose gradients are not finite are skipped */
    zro_switch scales; /* there is a loss scale */
    zro__scaler scaler;
    double norm;      /* the norm of all gradients in the last step; NaN if it was not asked for */
    uint32_t skipped; /* whether the last step was skipped */
    uint64_t n_skipped, n_steps;
    uint64_t n_active;         /* parameters, or parts of them, that had a gradient in the last step */
    uint64_t begun, published; /* how many updates have begun and have been published; they differ while one is under way */
} zro__cycle;

/* Takes the settings, which have been checked.  `c` is zeroed but for update. */
void zro__cycle_init(zro__cycle *c, const zro_optim_config *config);
void zro__cycle_free(zro__cycle *c); /* frees everything but the group */

/* Whether a step asks for the norm of all gradients, for which norms must have been reserved. */
int zro__cycle_measures(const zro__cycle *c);

/* Whether there are several ranks.  vote: they vote on `st`, which is also a barrier; one rank alone keeps its `st`. */
int zro__cycle_is_shared(const zro__cycle *c);
zro_status zro__cycle_vote(const zro__cycle *c, zro__call call, zro_status st);

/* OK, or why no step is possible any more: the verdict of the group or, if an update was not published everywhere, STATE: the
 * parameters are torn.  Local. */
zro_status zro__cycle_check(const zro__cycle *c);

/* Decide and update.  `st` is what the caller has found already; `claim` says what all ranks must have in common.  Collective.
 * Nothing has changed if it fails.
 *
 * MISMATCH  the ranks' claims differ */
zro_status zro__cycle_step(zro__cycle *c, const zro__claim *claim, zro_status st, void *user);

/* Publishes, after a step or an inspection that was voted on.  Collective. */
zro_status zro__cycle_deliver(zro__cycle *c);

/* Finds out where the parameters are now, votes, and publishes.  Collective. */
zro_status zro__cycle_publish(zro__cycle *c, zro_status st);

/* Clip the gradients of this rank's shard.  norm: by the norm over all shards, which is returned in *norm unless that is NULL;
 * with a negative `max` it is only measured; collective, and norms must have been reserved.  value: local. */
zro_status zro__cycle_clip_norm(zro__cycle *c, double max, double p, zro_status st, double *norm);
zro_status zro__cycle_clip_value(zro__cycle *c, double max);

#endif
