/* The zro_optim handle, for what stands on it. */
#ifndef ZRO_ZERO_OPTIM_H
#define ZRO_ZERO_OPTIM_H

#include "base/memory.h"
#include "zro.h"

/* A handle that was destroyed lives until the last of those who retained it has released it. */
void zro__optim_retain(zro_optim *optim);
void zro__optim_release(zro_optim *optim);

zro__account *zro__optim_account(zro_optim *optim);

/* Where schedules keep a group's learning rate as it was before the first of them; NaN before that. */
double *zro__optim_first_lr(zro_optim *optim, size_t group);

#endif
