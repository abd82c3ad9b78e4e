/* ASGD: SGD whose parameters are averaged on the side (slot "ax").  The step length `eta` and the weight `mu` are computed at
 * the end of a step, so a changed learning rate acts one step late, as in PyTorch. */
#ifndef REAL
#include "optim/rule.h"

enum { LR, LAMBD, ALPHA, T0, WEIGHT_DECAY, MAXIMIZE };
enum { STEP, ETA, MU, AX };
enum { C_KEEP = MAXIMIZE + 1, C_ETA, C_MU };

#define SELF "optim/rule_asgd.c"
#include "optim/loops.h"

static const zro_hyper values_of_asgd[] = {
    [LR] = ZRO__AT_LEAST_0(asgd, lr, 1e-2),
    [LAMBD] = ZRO__ANY(asgd, lambd, 1e-4),
    [ALPHA] = ZRO__ANY(asgd, alpha, 0.75),
    [T0] = ZRO__ANY(asgd, t0, 1e6),
    [WEIGHT_DECAY] = ZRO__AT_LEAST_0(asgd, weight_decay, 0),
    [MAXIMIZE] = ZRO__FLAG(asgd, maximize),
};

static const zro_slot_spec slots[] = {
    [STEP] = ZRO__COUNT("step"),
    [ETA] = { "eta", ZRO_SLOT_NUMBER, ZRO_OFF, 0, "lr", NULL },
    [MU] = { "mu", ZRO_SLOT_NUMBER, ZRO_OFF, 1, NULL, NULL },
    [AX] = ZRO__ARRAY("ax", NULL),
};

static void prepare(zro_rule_step *s)
{
    const double *v = s->values;
    double step = ++s->numbers[STEP], *c = s->scalars;

    zro__take_values(s, MAXIMIZE);
    c[C_KEEP] = 1 - v[LAMBD] * s->numbers[ETA];
    c[C_ETA] = s->numbers[ETA];
    c[C_MU] = s->numbers[MU];
    s->numbers[ETA] = v[LR] / pow(1 + v[LAMBD] * v[LR] * step, v[ALPHA]);
    s->numbers[MU] = 1 / (step - v[T0] > 1 ? step - v[T0] : 1);
}

const zro_rule ZRO__RULE(asgd) = ZRO__RULE_TABLE(asgd, "ASGD", NULL, prepare);

#else

static INLINE void NAME(asgd)(const zro_rule_tile *t, int decays, int averages)
{
    const REAL *c = t->scalars;
    const REAL sign = c[MAXIMIZE], decay = c[WEIGHT_DECAY], keep = c[C_KEEP], eta = c[C_ETA], mu = c[C_MU];
    const size_t n = t->count;
    const real *restrict grad = t->grad;
    real *restrict p = t->data, *restrict ax = t->slots[AX];

    for (size_t i = 0; i < n; i++) {
        REAL x = keep * p[i] - eta * GRADIENT(p[i]);

        p[i] = x;
        ax[i] = averages ? ax[i] + (x - ax[i]) * mu : x;
    }
}

LOOP(CASES2(NAME(asgd), c[WEIGHT_DECAY], c[C_MU] != 1, t))

#endif
