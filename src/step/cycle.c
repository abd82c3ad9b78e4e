/* The cycle: see cycle.h. */
#include "step/cycle.h"

#include <math.h>

#include "base/cpu.h"

void zro__cycle_init(zro__cycle *c, const zro_optim_config *config)
{
    c->clip_norm = config->clip_norm;
    c->clip_type = config->clip_norm_type;
    c->clip_value = config->clip_value;
    c->scales = config->loss_scale;
    c->skips = config->skip_non_finite == ZRO_ON || config->loss_scale == ZRO_ON ? ZRO_ON : ZRO_OFF;
    c->scaler.scale = config->loss_scale == ZRO_ON ? (float)config->scale_init : 1;
    c->scaler.growth = config->scale_growth;
    c->scaler.backoff = config->scale_backoff;
    c->scaler.interval = config->growth_interval;
    c->norm = NAN;
}

/* Looks at all gradients if anything depends on that; 0: the step is skipped.  The norm is that of unscaled gradients. */
static int decide(zro__cycle *c, zro__factors *f, double *norm)
{
    int measures = c->clip_norm != 0 || c->skips == ZRO_ON;
    zro__measured m = { 1, NAN };

    f->unscale = zro__scaler_inverse(&c->scaler);
    f->clip = 1;
    f->value = c->clip_value;
    if (measures)
        m = zro__update_measure(&c->update, c->clip_norm != 0 ? c->clip_type : 0, c->skips == ZRO_ON);
    *norm = m.norm * f->unscale;
    if (c->clip_norm != 0 && !isinf(c->clip_norm)) /* infinite: only measured */
        f->clip = zro__clip_factor(c->clip_norm, *norm);
    return m.finite;
}

static __attribute__((noinline)) zro_status step(zro__cycle *c, void *user)
{
    zro__factors factors;
    zro_status st = zro__shard_look(&c->update.shard);
    double norm;
    int goes_on;

    if (st != ZRO_OK)
        return st;
    goes_on = decide(c, &factors, &norm);
    if (goes_on)
        st = zro__update_run(&c->update, &factors, user);
    if (st != ZRO_OK)
        return st;
    if (c->scales == ZRO_ON)
        zro__scaler_update(&c->scaler, !goes_on);
    c->norm = norm;
    c->n_active = c->update.shard.n_active;
    c->skipped = !goes_on;
    c->n_skipped += c->skipped;
    c->n_steps++;
    return ZRO_OK;
}

zro_status zro__cycle_step(zro__cycle *c, void *user)
{
    zro__fpmode mode;
    zro_status st;

    zro__fpmode_enter(&mode);
    st = step(c, user);
    zro__fpmode_leave(&mode);
    return st;
}

static __attribute__((noinline)) double clip(zro__cycle *c, double max, double p)
{
    zro__factors factors = { 1, 1, 0 };
    double norm = zro__update_measure(&c->update, p, 0).norm;

    factors.clip = zro__clip_factor(max, norm);
    zro__update_grads(&c->update, &factors);
    return norm;
}

zro_status zro__cycle_clip_norm(zro__cycle *c, double max, double p, double *norm)
{
    zro_status st = zro__shard_look(&c->update.shard);
    zro__fpmode mode;
    double found;

    if (st != ZRO_OK)
        return st;
    zro__fpmode_enter(&mode);
    found = clip(c, max, p);
    zro__fpmode_leave(&mode);
    if (norm != NULL)
        *norm = found;
    return ZRO_OK;
}

zro_status zro__cycle_clip_value(zro__cycle *c, double max)
{
    zro__factors factors = { 1, 1, max };
    zro_status st = zro__shard_look(&c->update.shard);

    if (st == ZRO_OK)
        zro__update_grads(&c->update, &factors);
    return st;
}
