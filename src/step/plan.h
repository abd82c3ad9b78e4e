/* The plan: which runs of which parameters a rank owns.  Pure.
 *
 * In this version there is one owner, who has every parameter whole. */
#ifndef ZRO_STEP_PLAN_H
#define ZRO_STEP_PLAN_H

#include "optim/shard.h"

/* What the one owner has of n parameters, the first of which has index `first`: n runs. */
void zro__plan_one(zro_param *const *params, size_t n, size_t first, zro__run_of *runs);

#endif
