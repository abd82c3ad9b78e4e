/* Adam and AdamW, whose decay does not go through the moving averages. */
#ifndef REAL
#include "optim/rule.h"

enum { LR, BETA1, BETA2, EPS, WEIGHT_DECAY, AMSGRAD, DECOUPLED, MAXIMIZE };
enum { STEP, AVG, SQ, MAX_SQ };

#include "optim/moments.h"

#define SELF "optim/rule_adam.c"
#include "optim/loops.h"

static const zro_hyper values_of_adam[] = {
    ZRO__ADAM_VALUES(adam, 1e-3, 0),
    [AMSGRAD] = ZRO__FLAG(adam, amsgrad),
    [DECOUPLED] = ZRO__FLAG(adam, decoupled_weight_decay),
    [MAXIMIZE] = ZRO__FLAG(adam, maximize),
};

/* AdamW is Adam with one value fixed, which is part of its state in PyTorch, too. */
static const zro_hyper values_of_adamw[] = {
    ZRO__ADAM_VALUES(adamw, 1e-3, 1e-2),
    [AMSGRAD] = ZRO__FLAG(adamw, amsgrad),
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
    const double *v = s->values, step = begin_moments(s);

    s->scalars[C_STEP] = v[LR] / (1 - pow(v[BETA1], step));
    s->scalars[C_CORRECT] = 1 / sqrt(1 - pow(v[BETA2], step));
}

const zro_rule ZRO__RULE(adam) = ZRO__RULE_TABLE(adam, "Adam", NULL, prepare);
const zro_rule ZRO__RULE(adamw) = ZRO__RULE_TABLE(adamw, "AdamW", NULL, prepare);

#else
#include "optim/moments.h"

LOOP(c[AMSGRAD] != 0 ? CASES1(NAME(moments), c[WEIGHT_DECAY], t, LARGEST) : CASES1(NAME(moments), c[WEIGHT_DECAY], t, DIVIDED))

#endif
