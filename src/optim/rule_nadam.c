/* NAdam: Adam with Nesterov's momentum.  Both parts of the step share one division. */
#ifndef REAL
#include "optim/rule.h"

enum { LR, BETA1, BETA2, EPS, WEIGHT_DECAY, MOMENTUM_DECAY, DECOUPLED, MAXIMIZE };
enum { STEP, MU_PRODUCT, AVG, SQ };
enum { C_SIGN, C_DECAY, C_KEEP, C_LATE, C_BY, C_BETA2, C_REST2, C_CORRECT, C_EPS, C_GRAD, C_AVG };

#define SELF "optim/rule_nadam.c"
#include "optim/loops.h"

static const zro_hyper values_of_nadam[] = {
    [LR] = ZRO__AT_LEAST_0(nadam, lr, 2e-3),
    [BETA1] = ZRO__BETA(nadam, beta1, 0.9, "betas:0"),
    [BETA2] = ZRO__BETA(nadam, beta2, 0.999, "betas:1"),
    [EPS] = ZRO__AT_LEAST_0(nadam, eps, 1e-8),
    [WEIGHT_DECAY] = ZRO__AT_LEAST_0(nadam, weight_decay, 0),
    [MOMENTUM_DECAY] = ZRO__AT_LEAST_0(nadam, momentum_decay, 4e-3),
    [DECOUPLED] = ZRO__FLAG(nadam, decoupled_weight_decay),
    [MAXIMIZE] = ZRO__FLAG(nadam, maximize),
};

static const zro_slot_spec slots[] = {
    [STEP] = ZRO__COUNT("step"),
    [MU_PRODUCT] = { "mu_product", ZRO_SLOT_NUMBER, ZRO_OFF, 1, NULL, NULL },
    [AVG] = ZRO__ARRAY("exp_avg", NULL),
    [SQ] = ZRO__ARRAY("exp_avg_sq", NULL),
};

static void prepare(zro_rule_step *s)
{
    const double *v = s->values;
    double step = ++s->numbers[STEP], *c = s->scalars, mu, mu_next, product;

    mu = v[BETA1] * (1 - 0.5 * pow(0.96, step * v[MOMENTUM_DECAY]));
    mu_next = v[BETA1] * (1 - 0.5 * pow(0.96, (step + 1) * v[MOMENTUM_DECAY]));
    product = s->numbers[MU_PRODUCT] * mu;
    product = s->dtype == ZRO_F32 ? (double)(float)product : product; /* as PyTorch keeps it */
    s->numbers[MU_PRODUCT] = product;
    c[C_SIGN] = v[MAXIMIZE] != 0 ? -1 : 1;
    c[C_DECAY] = v[DECOUPLED] != 0 ? 0 : v[WEIGHT_DECAY];
    c[C_KEEP] = v[DECOUPLED] != 0 ? 1 - v[LR] * v[WEIGHT_DECAY] : 1;
    zro__lerp(1 - v[BETA1], &c[C_LATE], &c[C_BY]);
    c[C_BETA2] = v[BETA2];
    c[C_REST2] = 1 - v[BETA2];
    c[C_CORRECT] = 1 / (1 - pow(v[BETA2], step));
    c[C_EPS] = v[EPS];
    c[C_GRAD] = v[LR] * (1 - mu) / (1 - product);
    c[C_AVG] = v[LR] * mu_next / (1 - product * mu_next);
}

const zro_rule ZRO__RULE(nadam) = ZRO__RULE_TABLE(nadam, "NAdam", NULL, prepare);

#else

static INLINE void NAME(nadam)(const zro_rule_tile *t, int decays)
{
    const REAL *c = t->scalars;
    const REAL sign = c[C_SIGN], decay = c[C_DECAY], keep = c[C_KEEP], by = c[C_BY], beta2 = c[C_BETA2], rest2 = c[C_REST2];
    const REAL correct = c[C_CORRECT], eps = c[C_EPS], of_grad = c[C_GRAD], of_avg = c[C_AVG];
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
        p[i] = x - (of_grad * g + of_avg * m) / (SQRT(v * correct) + eps);
    }
}

static void NAME(loop)(const zro_rule_tile *t)
{
    ((const REAL *)t->scalars)[C_DECAY] != 0 ? NAME(nadam)(t, 1) : NAME(nadam)(t, 0);
}

#endif
