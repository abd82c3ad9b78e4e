/* Adam and AdamW: two moving averages, of the gradient and of its square; AdamW's decay does not go through them.  One loop
 * with one division and one square root: the correction of the second average is a multiplication. */
#ifndef REAL
#include "optim/rule.h"

enum { LR, BETA1, BETA2, EPS, WEIGHT_DECAY, AMSGRAD, DECOUPLED, MAXIMIZE };
enum { STEP, AVG, SQ, MAX_SQ };
enum { C_SIGN, C_DECAY, C_KEEP, C_LATE, C_BY, C_BETA2, C_REST2, C_STEP, C_CORRECT, C_EPS, C_AMSGRAD };

#define SELF "optim/rule_adam.c"
#include "optim/loops.h"

#define VALUES(config, decay)                                                                                                  \
    [LR] = ZRO__AT_LEAST_0(config, lr, 1e-3), [BETA1] = ZRO__BETA(config, beta1, 0.9, "betas:0"),                              \
    [BETA2] = ZRO__BETA(config, beta2, 0.999, "betas:1"), [EPS] = ZRO__AT_LEAST_0(config, eps, 1e-8),                          \
    [WEIGHT_DECAY] = ZRO__AT_LEAST_0(config, weight_decay, decay), [AMSGRAD] = ZRO__FLAG(config, amsgrad)

static const zro_hyper values_of_adam[] = {
    VALUES(adam, 0),
    [DECOUPLED] = ZRO__FLAG(adam, decoupled_weight_decay),
    [MAXIMIZE] = ZRO__FLAG(adam, maximize),
};

/* AdamW is Adam with one value fixed, which is part of its state in PyTorch, too. */
static const zro_hyper values_of_adamw[] = {
    VALUES(adamw, 1e-2),
    [DECOUPLED] = { "decoupled_weight_decay", ZRO_FLAG, 0, 1, 1, 1, 0, NULL },
    [MAXIMIZE] = ZRO__FLAG(adamw, maximize),
};

static const zro_slot_spec slots[] = {
    [STEP] = ZRO__COUNT("step"),
    [AVG] = ZRO__ARRAY("exp_avg", NULL),
    [SQ] = ZRO__ARRAY("exp_avg_sq", NULL),
    [MAX_SQ] = ZRO__ARRAY("max_exp_avg_sq", "amsgrad"),
};

static void prepare(zro_rule_step *s)
{
    const double *v = s->values;
    const int decoupled = v[DECOUPLED] != 0;
    double step = ++s->numbers[STEP], *c = s->scalars;

    c[C_SIGN] = v[MAXIMIZE] != 0 ? -1 : 1;
    c[C_DECAY] = decoupled ? 0 : v[WEIGHT_DECAY];
    c[C_KEEP] = decoupled ? 1 - v[LR] * v[WEIGHT_DECAY] : 1;
    zro__lerp(1 - v[BETA1], &c[C_LATE], &c[C_BY]);
    c[C_BETA2] = v[BETA2];
    c[C_REST2] = 1 - v[BETA2];
    c[C_STEP] = v[LR] / (1 - pow(v[BETA1], step));
    c[C_CORRECT] = 1 / sqrt(1 - pow(v[BETA2], step));
    c[C_EPS] = v[EPS];
    c[C_AMSGRAD] = v[AMSGRAD];
}

const zro_rule ZRO__RULE(adam) = ZRO__RULE_TABLE(adam, "Adam", NULL, prepare);
const zro_rule ZRO__RULE(adamw) = ZRO__RULE_TABLE(adamw, "AdamW", NULL, prepare);

#else

static INLINE void NAME(adam)(const zro_rule_tile *t, int decays, int amsgrad)
{
    const REAL *c = t->scalars;
    const REAL sign = c[C_SIGN], decay = c[C_DECAY], keep = c[C_KEEP], by = c[C_BY], beta2 = c[C_BETA2], rest2 = c[C_REST2];
    const REAL step = c[C_STEP], correct = c[C_CORRECT], eps = c[C_EPS];
    const int late = c[C_LATE] != 0;
    const size_t n = t->count;
    const real *restrict grad = t->grad;
    real *restrict p = t->data, *restrict avg = t->slots[AVG], *restrict sq = t->slots[SQ], *restrict max = t->slots[MAX_SQ];

    for (size_t i = 0; i < n; i++) {
        REAL g = sign * grad[i], x = keep * p[i], m = avg[i], v = sq[i];

        if (decays)
            g = g + decay * x;
        m = (late ? g : m) + by * (g - m);
        v = beta2 * v + rest2 * g * g;
        avg[i] = m;
        sq[i] = v;
        if (amsgrad)
            max[i] = v = LARGER(max[i], v);
        p[i] = x - step * m / (SQRT(v) * correct + eps);
    }
}

static void NAME(loop)(const zro_rule_tile *t)
{
    const REAL *c = t->scalars;

    if (c[C_AMSGRAD] != 0)
        c[C_DECAY] != 0 ? NAME(adam)(t, 1, 1) : NAME(adam)(t, 0, 1);
    else
        c[C_DECAY] != 0 ? NAME(adam)(t, 1, 0) : NAME(adam)(t, 0, 0);
}

#endif
