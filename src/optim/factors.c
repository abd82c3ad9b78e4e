/* Clipping and loss scale: see factors.h. */
#include "optim/factors.h"

#include <math.h>

#include "base/bounds.h"

double zro__clip_factor(double max, double norm)
{
    double factor = max / (norm + 1e-6);

    return factor > 1 ? 1 : factor;
}

void zro__scaler_set(zro__scaler *s, double scale)
{
    s->scale = (float)scale;
}

double zro__scaler_inverse(const zro__scaler *s)
{
    return (double)(float)(1 / (double)s->scale);
}

void zro__scaler_update(zro__scaler *s, int found)
{
    float grown = (float)((double)s->scale * s->growth);

    if (found) {
        s->scale = (float)((double)s->scale * s->backoff);
        s->tracker = 0;
    } else if (++s->tracker == s->interval) {
        s->scale = isfinite(grown) ? grown : s->scale;
        s->tracker = 0;
    }
}

zro_status zro__check_norm_type(double p)
{
    const zro__bound bound = { "norm_type", p, 0, HUGE_VAL, ZRO_OPEN_LOW };

    return zro__bounds_check(NULL, &bound, 1);
}

zro_status zro__factors_check(const zro_optim_config *c)
{
    const zro__bound bounds[] = {
        { "clip_norm", c->clip_norm, 0, HUGE_VAL, 0 },
        { "clip_norm_type", c->clip_norm != 0 ? c->clip_norm_type : 2, 0, HUGE_VAL, ZRO_OPEN_LOW },
        { "clip_value", c->clip_value, 0, DBL_MAX, 0 },
        /* With a loss scale only.  The scale is kept as f32: what rounds to 0 or infinity is not allowed. */
        { "scale_init", c->scale_init, 0x1p-150, 0x1.ffffffp127, ZRO_OPEN_LOW | ZRO_OPEN_HIGH },
        { "scale_growth", c->scale_growth, 1, DBL_MAX, ZRO_OPEN_LOW },
        { "scale_backoff", c->scale_backoff, 0, 1, ZRO_OPEN_LOW | ZRO_OPEN_HIGH },
        { "growth_interval", c->growth_interval, 1, HUGE_VAL, 0 },
    };

    return zro__bounds_check("zro_optim_config", bounds, c->loss_scale == ZRO_ON ? 7 : 3);
}

double zro__norm_of(const double *partials, size_t n, double p)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        if (isinf(p))
            sum = ((partials[i] > sum) | (partials[i] != partials[i])) ? partials[i] : sum;
        else
            sum += partials[i];
    return isinf(p) ? sum : p == 2 ? sqrt(sum) : p == 1 ? sum : pow(sum, 1 / p);
}
