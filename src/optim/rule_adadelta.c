/* Adadelta: steps as large as the averages of past steps and past gradients say. */
#ifndef REAL
#include "optim/rule.h"

enum { LR, RHO, EPS, WEIGHT_DECAY, MAXIMIZE };
enum { STEP, SQ, DELTA };
enum { C_SIGN, C_DECAY, C_LR, C_RHO, C_REST, C_EPS };

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
    const double *v = s->values;
    double *c = s->scalars;

    ++s->numbers[STEP];
    c[C_SIGN] = v[MAXIMIZE] != 0 ? -1 : 1;
    c[C_DECAY] = v[WEIGHT_DECAY];
    c[C_LR] = v[LR];
    c[C_RHO] = v[RHO];
    c[C_REST] = 1 - v[RHO];
    c[C_EPS] = v[EPS];
}

const zro_rule ZRO__RULE(adadelta) = ZRO__RULE_TABLE(adadelta, "Adadelta", NULL, prepare);

#else

static INLINE void NAME(adadelta)(const zro_rule_tile *t, int decays)
{
    const REAL *c = t->scalars;
    const REAL sign = c[C_SIGN], decay = c[C_DECAY], lr = c[C_LR], rho = c[C_RHO], rest = c[C_REST], eps = c[C_EPS];
    const size_t n = t->count;
    const real *restrict grad = t->grad;
    real *restrict p = t->data, *restrict sq = t->slots[SQ], *restrict acc = t->slots[DELTA];

    for (size_t i = 0; i < n; i++) {
        REAL g = sign * grad[i], x = p[i], v, d;

        if (decays)
            g = g + decay * x;
        v = rho * sq[i] + rest * g * g;
        d = SQRT(acc[i] + eps) / SQRT(v + eps) * g;
        sq[i] = v;
        acc[i] = rho * acc[i] + rest * d * d;
        p[i] = x - lr * d;
    }
}

static void NAME(loop)(const zro_rule_tile *t)
{
    ((const REAL *)t->scalars)[C_DECAY] != 0 ? NAME(adadelta)(t, 1) : NAME(adadelta)(t, 0);
}

#endif
