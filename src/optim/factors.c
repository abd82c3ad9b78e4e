/* Clipping and loss scale: see factors.h. */
#include "optim/factors.h"

#include <math.h>

#include "base/status.h"

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
    if (!(p > 0)) /* NaN too */
        return zro__fail(ZRO_ERR_INVALID, "norm type %g, must be above 0 or infinite", p);
    return ZRO_OK;
}

/* NaN is never allowed. */
static zro_status check(const char *name, double x, int allowed, const char *must)
{
    return allowed && !isnan(x) ? ZRO_OK : zro__fail(ZRO_ERR_INVALID, "%s = %g, must be %s", name, x, must);
}

zro_status zro__factors_check(const zro_optim_config *c)
{
    zro_status st = check("clip_norm", c->clip_norm, c->clip_norm >= 0, "above 0, or 0 for none");

    if (st == ZRO_OK && c->clip_norm != 0)
        st = zro__check_norm_type(c->clip_norm_type);
    if (st == ZRO_OK)
        st = check("clip_value", c->clip_value, c->clip_value >= 0 && isfinite(c->clip_value),
                   "finite and above 0, or 0 for none");
    if (st != ZRO_OK || c->loss_scale != ZRO_ON)
        return st;
    st = check("scale_init", c->scale_init, (float)c->scale_init > 0 && isfinite((float)c->scale_init),
               "above 0 and finite in f32");
    if (st == ZRO_OK)
        st = check("scale_growth", c->scale_growth, c->scale_growth > 1 && isfinite(c->scale_growth), "above 1 and finite");
    if (st == ZRO_OK)
        st = check("scale_backoff", c->scale_backoff, c->scale_backoff > 0 && c->scale_backoff < 1, "in (0, 1)");
    if (st == ZRO_OK && c->growth_interval == 0)
        st = zro__fail(ZRO_ERR_INVALID, "growth_interval = 0, must be above 0");
    return st;
}
