/* The cycle: the stages that gradients go through, and at which event each of them happens.
 *
 * The stages are: reduce (the average over ranks), decide (what must be known of all gradients first: norm, loss scale,
 * whether to skip), update (the rule), publish (to all ranks).  A row of the table says when; in this version there is one,
 * the optimizer alone: nothing is reduced, the others happen in step, and with one owner there is nobody to publish to. */
#ifndef ZRO_STEP_CYCLE_H
#define ZRO_STEP_CYCLE_H

#include "optim/factors.h"
#include "optim/update.h"

typedef struct zro__cycle {
    zro__update update;
    double clip_norm, clip_type, clip_value; /* 0: off */
    zro_switch skips, scales;
    zro__scaler scaler;
    double norm;      /* of the last step; NaN if it was not asked for */
    uint32_t skipped; /* the last step was */
    uint64_t n_skipped, n_steps;
    uint64_t n_active; /* parameters, or parts of them, that had a gradient in the last step */
} zro__cycle;

/* Takes the settings, which have been checked.  `c` is zeroed but for update. */
void zro__cycle_init(zro__cycle *c, const zro_optim_config *config);

/* Decide and update.  Nothing has changed if it fails. */
zro_status zro__cycle_step(zro__cycle *c, void *user);

/* The gradients themselves, clipped; `norm`, or NULL, is that before. */
zro_status zro__cycle_clip_norm(zro__cycle *c, double max, double p, double *norm);
zro_status zro__cycle_clip_value(zro__cycle *c, double max);

#endif
