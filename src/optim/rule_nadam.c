/* NAdam: Adam with Nesterov's momentum.  Both parts of the step share one division. */
#ifndef REAL
#include "optim/rule.h"

enum { LR, BETA1, BETA2, EPS, WEIGHT_DECAY, MOMENTUM_DECAY, DECOUPLED, MAXIMIZE };
enum { STEP, MU_PRODUCT, AVG, SQ };

#include "optim/moments.h"

#define SELF "optim/rule_nadam.c"
#include "optim/loops.h"

static const zro_hyper values_of_nadam[] = {
    ZRO__ADAM_VALUES(nadam, 2e-3, 0),
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
    const double *v = s->values, step = begin_moments(s);
    double *c = s->scalars, mu, mu_next, product;

    mu = v[BETA1] * (1 - 0.5 * pow(0.96, step * v[MOMENTUM_DECAY]));
    mu_next = v[BETA1] * (1 - 0.5 * pow(0.96, (step + 1) * v[MOMENTUM_DECAY]));
    product = s->numbers[MU_PRODUCT] * mu;
    product = s->dtype == ZRO_F32 ? (double)(float)product : product; /* as PyTorch keeps it */
    s->numbers[MU_PRODUCT] = product;
    c[C_CORRECT] = 1 / (1 - pow(v[BETA2], step));
    c[C_GRAD] = v[LR] * (1 - mu) / (1 - product);
    c[C_STEP] = v[LR] * mu_next / (1 - product * mu_next);
}

const zro_rule ZRO__RULE(nadam) = ZRO__RULE_TABLE(nadam, "NAdam", NULL, prepare);

#else
#include "optim/moments.h"

LOOP(CASES1(NAME(moments), c[WEIGHT_DECAY], t, LOOKAHEAD))

#endif
