/* The plan: which runs of which parameters a rank owns.  Pure.
 *
 * In this version there is one owner, who has every parameter whole. */
#ifndef ZRO_STEP_PLAN_H
#define ZRO_STEP_PLAN_H

#include "optim/shard.h"

/* Keeps of n runs, which are whole parameters, what this rank owns, and returns how many those are: with one owner, all. */
size_t zro__plan_one(zro__run_of *runs, size_t n);

#endif
