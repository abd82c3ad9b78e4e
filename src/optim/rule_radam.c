/* RAdam: Adam that does without its second average until that has seen enough to be trusted. */
#ifndef REAL
#include "optim/rule.h"

enum { LR, BETA1, BETA2, EPS, WEIGHT_DECAY, DECOUPLED, MAXIMIZE };
enum { STEP, AVG, SQ };
enum { C_SIGN, C_DECAY, C_KEEP, C_LATE, C_BY, C_BETA2, C_REST2, C_STEP, C_EPS, C_RECTIFIED };

#define SELF "optim/rule_radam.c"
#include "optim/loops.h"

static const zro_hyper values_of_radam[] = {
    [LR] = ZRO__AT_LEAST_0(radam, lr, 1e-3),
    [BETA1] = ZRO__BETA(radam, beta1, 0.9, "betas:0"),
    [BETA2] = ZRO__BETA(radam, beta2, 0.999, "betas:1"),
    [EPS] = ZRO__AT_LEAST_0(radam, eps, 1e-8),
    [WEIGHT_DECAY] = ZRO__AT_LEAST_0(radam, weight_decay, 0),
    [DECOUPLED] = ZRO__FLAG(radam, decoupled_weight_decay),
    [MAXIMIZE] = ZRO__FLAG(radam, maximize),
};

static const zro_slot_spec slots[] = {
    [STEP] = ZRO__COUNT("step"),
    [AVG] = ZRO__ARRAY("exp_avg", NULL),
    [SQ] = ZRO__ARRAY("exp_avg_sq", NULL),
};

static void prepare(zro_rule_step *s)
{
    const double *v = s->values;
    double step = ++s->numbers[STEP], *c = s->scalars;
    double power = pow(v[BETA2], step), correct2 = 1 - power, step_size = v[LR] / (1 - pow(v[BETA1], step));
    double longest = 2 / (1 - v[BETA2]) - 1, length = longest - 2 * step * power / correct2; /* of the average */

    c[C_SIGN] = v[MAXIMIZE] != 0 ? -1 : 1;
    c[C_DECAY] = v[DECOUPLED] != 0 ? 0 : v[WEIGHT_DECAY];
    c[C_KEEP] = v[DECOUPLED] != 0 ? 1 - v[LR] * v[WEIGHT_DECAY] : 1;
    zro__lerp(1 - v[BETA1], &c[C_LATE], &c[C_BY]);
    c[C_BETA2] = v[BETA2];
    c[C_REST2] = 1 - v[BETA2];
    c[C_EPS] = v[EPS];
    c[C_RECTIFIED] = length > 5;
    if (length > 5)
        step_size *= sqrt(correct2) * sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length));
    c[C_STEP] = step_size;
}

const zro_rule ZRO__RULE(radam) = ZRO__RULE_TABLE(radam, "RAdam", NULL, prepare);

#else

static INLINE void NAME(radam)(const zro_rule_tile *t, int decays, int rectified)
{
    const REAL *c = t->scalars;
    const REAL sign = c[C_SIGN], decay = c[C_DECAY], keep = c[C_KEEP], by = c[C_BY], beta2 = c[C_BETA2], rest2 = c[C_REST2];
    const REAL step = c[C_STEP], eps = c[C_EPS];
    const int late = c[C_LATE] != 0;
    const size_t n = t->count;
    const real *restrict grad = t->grad;
    real *restrict p = t->data, *restrict avg = t->slots[AVG], *restrict sq = t->slots[SQ];

    for (size_t i = 0; i < n; i++) {
        REAL g = sign * grad[i], x = keep * p[i], m = avg[i], v = sq[i];

        if (decays)
            g = g + decay * x;
        m = (late ? g : m) + by * (g - m);
        v = beta2 * v + rest2 * g * g;
        avg[i] = m;
        sq[i] = v;
        p[i] = x - (rectified ? step * m / (SQRT(v) + eps) : step * m);
    }
}

static void NAME(loop)(const zro_rule_tile *t)
{
    const REAL *c = t->scalars;

    if (c[C_RECTIFIED] != 0)
        c[C_DECAY] != 0 ? NAME(radam)(t, 1, 1) : NAME(radam)(t, 0, 1);
    else
        c[C_DECAY] != 0 ? NAME(radam)(t, 1, 0) : NAME(radam)(t, 0, 0);
}

#endif
