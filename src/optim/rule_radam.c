/* RAdam: Adam that does without its second average until that has seen enough gradients to be trusted. */
#ifndef REAL
#include "optim/rule.h"

enum { LR, BETA1, BETA2, EPS, WEIGHT_DECAY, DECOUPLED, MAXIMIZE };
enum { STEP, AVG, SQ };

#include "optim/moments.h"

#define SELF "optim/rule_radam.c"
#include "optim/loops.h"

static const zro_hyper values_of_radam[] = {
    ZRO__ADAM_VALUES(radam, 1e-3, 0),
    [DECOUPLED] = ZRO__FLAG(radam, decoupled_weight_decay),
    [MAXIMIZE] = ZRO__FLAG(radam, maximize),
};

static const zro_slot_spec slots[] = {
    [STEP] = ZRO__COUNT("step"),
    [AVG] = ZRO__ARRAY("exp_avg", NULL),
    [SQ] = ZRO__ARRAY("exp_avg_sq", NULL),
};

/* The corrections of both averages are in the length of the step; C_CORRECT = 0 says that the second average is not used. */
static void prepare(zro_rule_step *s)
{
    const double *v = s->values, step = begin_moments(s);
    double power = pow(v[BETA2], step), correct2 = 1 - power, step_size = v[LR] / (1 - pow(v[BETA1], step));
    double longest = 2 / (1 - v[BETA2]) - 1, length = longest - 2 * step * power / correct2; /* of the average */

    s->scalars[C_CORRECT] = length > 5;
    if (length > 5)
        step_size *= sqrt(correct2) * sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length));
    s->scalars[C_STEP] = step_size;
}

const zro_rule ZRO__RULE(radam) = ZRO__RULE_TABLE(radam, "RAdam", NULL, prepare);

#else
#include "optim/moments.h"

LOOP(c[C_CORRECT] != 0 ? CASES1(NAME(moments), c[WEIGHT_DECAY], t, DIVIDED)
                       : CASES1(NAME(moments), c[WEIGHT_DECAY], t, UNDIVIDED))

#endif
