/* Adadelta: steps as large as the averages of past steps and past gradients say. */
#ifndef REAL
#include "optim/rule.h"

enum { LR, RHO, EPS, WEIGHT_DECAY, MAXIMIZE };
enum { STEP, SQ, DELTA };
enum { C_REST = MAXIMIZE + 1 };

#define SELF "optim/rule_adadelta.c"
#include "optim/loops.h"

static const zro_hyper values_of_adadelta[] = {
    [LR] = ZRO__AT_LEAST_0(adadelta, lr, 1),      [RHO] = ZRO__BOUNDED(adadelta, rho, 0.9, 0, 1, 0, NULL),
    [EPS] = ZRO__AT_LEAST_0(adadelta, eps, 1e-6), [WEIGHT_DECAY] = ZRO__AT_LEAST_0(adadelta, weight_decay, 0),
    [MAXIMIZE] = ZRO__FLAG(adadelta, maximize),
};

static const zro_slot_spec slots[] = {
    [STEP] = ZRO__COUNT("step"),
    [SQ] = ZRO__ARRAY("square_avg", NULL),
    [DELTA] = ZRO__ARRAY("acc_delta", NULL),
};

static void prepare(zro_rule_step *s)
{
    ++s->numbers[STEP];
    zro__take_values(s, MAXIMIZE);
    s->scalars[C_REST] = 1 - s->values[RHO];
}

const zro_rule ZRO__RULE(adadelta) = ZRO__RULE_TABLE(adadelta, "Adadelta", NULL, prepare);

#else

static INLINE void NAME(adadelta)(const zro_rule_tile *t, int decays)
{
    const REAL *c = t->scalars;
    const REAL sign = c[MAXIMIZE], decay = c[WEIGHT_DECAY], lr = c[LR], rho = c[RHO], rest = c[C_REST], eps = c[EPS];
    const size_t n = t->count;
    const real *restrict grad = t->grad;
    real *restrict p = t->data, *restrict sq = t->slots[SQ], *restrict acc = t->slots[DELTA];

    for (size_t i = 0; i < n; i++) {
        REAL x = p[i], g = GRADIENT(x), v, d;

        v = rho * sq[i] + rest * g * g;
        d = sqrt(acc[i] + eps) / sqrt(v + eps) * g;
        sq[i] = v;
        acc[i] = rho * acc[i] + rest * d * d;
        p[i] = x - lr * d;
    }
}

LOOP(CASES1(NAME(adadelta), c[WEIGHT_DECAY], t))

#endif
