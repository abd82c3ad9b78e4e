/* What is known of all gradients decides: how much they are clipped, whether the step is skipped, how the loss scale goes on.
 * Pure. */
#ifndef ZRO_OPTIM_FACTORS_H
#define ZRO_OPTIM_FACTORS_H

#include "zro.h"

/* min(1, max / (norm + 1e-6)); NaN and 0 as they come out, as in PyTorch. */
double zro__clip_factor(double max, double norm);

/* A dynamic loss scale, as PyTorch's GradScaler has it. */
typedef struct zro__scaler {
    float scale;
    double growth, backoff;
    uint32_t interval, tracker; /* steps until it grows; steps since it last changed */
} zro__scaler;

void zro__scaler_set(zro__scaler *scaler, double scale); /* rounded to f32 */

/* What gradients are multiplied by: 1 / scale, rounded to f32 as in PyTorch. */
double zro__scaler_inverse(const zro__scaler *scaler);

/* After a step: `found`: a gradient was not finite.  A scale that would grow beyond what f32 has stays, and the count begins
 * anew. */
void zro__scaler_update(zro__scaler *scaler, int found);

/* Whether the settings are allowed.  INVALID names the first that is not, with its value. */
zro_status zro__factors_check(const zro_optim_config *config);
zro_status zro__check_norm_type(double p);

#endif
