/* Adagrad: divides by the root of the sum of all squares so far.  Its state exists from creation on. */
#ifndef REAL
#include "optim/rule.h"

enum { LR, LR_DECAY, WEIGHT_DECAY, INITIAL, EPS, MAXIMIZE };
enum { STEP, SUM };

#define SELF "optim/rule_adagrad.c"
#include "optim/loops.h"

static const zro_hyper values_of_adagrad[] = {
    [LR] = ZRO__AT_LEAST_0(adagrad, lr, 1e-2),
    [LR_DECAY] = ZRO__AT_LEAST_0(adagrad, lr_decay, 0),
    [WEIGHT_DECAY] = ZRO__AT_LEAST_0(adagrad, weight_decay, 0),
    [INITIAL] = ZRO__AT_LEAST_0(adagrad, initial_accumulator_value, 0),
    [EPS] = ZRO__AT_LEAST_0(adagrad, eps, 1e-10),
    [MAXIMIZE] = ZRO__FLAG(adagrad, maximize),
};

static const zro_slot_spec slots[] = {
    [STEP] = { "step", ZRO_SLOT_COUNT, ZRO_ON, 0, NULL, NULL },
    [SUM] = { "sum", ZRO_SLOT_ARRAY, ZRO_ON, 0, "initial_accumulator_value", NULL },
};

static void prepare(zro_rule_step *s)
{
    double step = ++s->numbers[STEP];

    zro__take_values(s, MAXIMIZE);
    s->scalars[LR] = s->values[LR] / (1 + (step - 1) * s->values[LR_DECAY]);
}

const zro_rule ZRO__RULE(adagrad) = ZRO__RULE_TABLE(adagrad, "Adagrad", NULL, prepare);

#else

static INLINE void NAME(adagrad)(const zro_rule_tile *t, int decays)
{
    const REAL *c = t->scalars;
    const REAL sign = c[MAXIMIZE], decay = c[WEIGHT_DECAY], lr = c[LR], eps = c[EPS];
    const size_t n = t->count;
    const real *restrict grad = t->grad;
    real *restrict p = t->data, *restrict sum = t->slots[SUM];

    for (size_t i = 0; i < n; i++) {
        REAL x = p[i], g = GRADIENT(x), total = sum[i] + g * g;

        sum[i] = total;
        p[i] = x - lr * g / (sqrt(total) + eps);
    }
}

LOOP(CASES1(NAME(adagrad), c[WEIGHT_DECAY], t))

#endif
