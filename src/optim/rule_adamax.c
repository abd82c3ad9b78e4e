/* Adamax: Adam with the largest gradient of late in the place of the average of squares. */
#ifndef REAL
#include "optim/rule.h"

enum { LR, BETA1, BETA2, EPS, WEIGHT_DECAY, MAXIMIZE };
enum { STEP, AVG, INF };
enum { C_SIGN, C_DECAY, C_LATE, C_BY, C_BETA2, C_STEP, C_EPS };

#define SELF "optim/rule_adamax.c"
#include "optim/loops.h"

static const zro_hyper values_of_adamax[] = {
    [LR] = ZRO__AT_LEAST_0(adamax, lr, 2e-3),
    [BETA1] = ZRO__BETA(adamax, beta1, 0.9, "betas:0"),
    [BETA2] = ZRO__BETA(adamax, beta2, 0.999, "betas:1"),
    [EPS] = ZRO__AT_LEAST_0(adamax, eps, 1e-8),
    [WEIGHT_DECAY] = ZRO__AT_LEAST_0(adamax, weight_decay, 0),
    [MAXIMIZE] = ZRO__FLAG(adamax, maximize),
};

static const zro_slot_spec slots[] = {
    [STEP] = ZRO__COUNT("step"),
    [AVG] = ZRO__ARRAY("exp_avg", NULL),
    [INF] = ZRO__ARRAY("exp_inf", NULL),
};

static void prepare(zro_rule_step *s)
{
    const double *v = s->values;
    double step = ++s->numbers[STEP], *c = s->scalars;

    c[C_SIGN] = v[MAXIMIZE] != 0 ? -1 : 1;
    c[C_DECAY] = v[WEIGHT_DECAY];
    zro__lerp(1 - v[BETA1], &c[C_LATE], &c[C_BY]);
    c[C_BETA2] = v[BETA2];
    c[C_STEP] = v[LR] / (1 - pow(v[BETA1], step));
    c[C_EPS] = v[EPS];
}

const zro_rule ZRO__RULE(adamax) = ZRO__RULE_TABLE(adamax, "Adamax", NULL, prepare);

#else

static INLINE void NAME(adamax)(const zro_rule_tile *t, int decays)
{
    const REAL *c = t->scalars;
    const REAL sign = c[C_SIGN], decay = c[C_DECAY], by = c[C_BY], beta2 = c[C_BETA2], step = c[C_STEP], eps = c[C_EPS];
    const int late = c[C_LATE] != 0;
    const size_t n = t->count;
    const real *restrict grad = t->grad;
    real *restrict p = t->data, *restrict avg = t->slots[AVG], *restrict inf = t->slots[INF];

    for (size_t i = 0; i < n; i++) {
        REAL g = sign * grad[i], x = p[i], m = avg[i], old = beta2 * inf[i], now, u;

        if (decays)
            g = g + decay * x;
        m = (late ? g : m) + by * (g - m);
        now = ABS(g) + eps;
        u = LARGER(old, now);
        avg[i] = m;
        inf[i] = u;
        p[i] = x - step * m / u;
    }
}

static void NAME(loop)(const zro_rule_tile *t)
{
    ((const REAL *)t->scalars)[C_DECAY] != 0 ? NAME(adamax)(t, 1) : NAME(adamax)(t, 0);
}

#endif
