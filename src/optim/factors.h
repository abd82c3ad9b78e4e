/* What depends on all gradients together: how much they are clipped, and how the loss scale changes.  Pure functions. */
#ifndef ZRO_OPTIM_FACTORS_H
#define ZRO_OPTIM_FACTORS_H

#include "zro.h"

/* The norm from its parts, one per block, which are added in the order of blocks, whoever computed them.  NaN and infinity as
 * they come. */
double zro__norm_of(const double *partials, size_t n, double p);

/* min(1, max / (norm + 1e-6)); NaN and 0 as they come out, as in PyTorch. */
double zro__clip_factor(double max, double norm);

/* A dynamic loss scale, as PyTorch's GradScaler has it. */
typedef struct zro__scaler {
    float scale;
    double growth, backoff; /* what the scale is multiplied by when it grows, and when a gradient was not finite */
    uint32_t interval;      /* steps in a row without such a gradient after which it grows */
    uint32_t tracker;       /* how many such steps in a row there were so far */
} zro__scaler;

void zro__scaler_set(zro__scaler *scaler, double scale); /* rounded to f32 */

/* What gradients are multiplied by: 1 / scale, rounded to f32 as in PyTorch. */
double zro__scaler_inverse(const zro__scaler *scaler);

/* To be called after each step; found = 1: a gradient was not finite.  A scale that would grow beyond the largest f32 stays as
 * it is, and the count begins anew. */
void zro__scaler_update(zro__scaler *scaler, int found);

/* Whether the settings for clipping and for the loss scale are allowed.  INVALID names the first that is not, with its value. */
zro_status zro__factors_check(const zro_optim_config *config);
zro_status zro__check_norm_type(double p);

#endif
