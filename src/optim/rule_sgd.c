/* SGD: with momentum, dampening, Nesterov's momentum.  A parameter's first step copies the gradient into the buffer as it
 * is. */
#ifndef REAL
#include "base/status.h"
#include "optim/rule.h"

enum { LR, MOMENTUM, DAMPENING, WEIGHT_DECAY, NESTEROV, MAXIMIZE };
enum { BUFFER };
enum { C_LR, C_SIGN, C_DECAY, C_MOMENTUM, C_GRAD, C_FIRST, C_NESTEROV };

#define SELF "optim/rule_sgd.c"
#include "optim/loops.h"

static const zro_hyper values_of_sgd[] = {
    [LR] = ZRO__AT_LEAST_0(sgd, lr, 1e-3),     [MOMENTUM] = ZRO__AT_LEAST_0(sgd, momentum, 0),
    [DAMPENING] = ZRO__ANY(sgd, dampening, 0), [WEIGHT_DECAY] = ZRO__AT_LEAST_0(sgd, weight_decay, 0),
    [NESTEROV] = ZRO__FLAG(sgd, nesterov),     [MAXIMIZE] = ZRO__FLAG(sgd, maximize),
};

static const zro_slot_spec slots[] = { [BUFFER] = ZRO__ARRAY("momentum_buffer", "momentum") };

static zro_status check(const double *values)
{
    if (values[NESTEROV] != 0 && (values[MOMENTUM] <= 0 || values[DAMPENING] != 0))
        return zro__fail(ZRO_ERR_INVALID,
                         "sgd: nesterov = 1 needs momentum > 0 and dampening = 0, not momentum = %g and dampening = %g",
                         values[MOMENTUM], values[DAMPENING]);
    return ZRO_OK;
}

static void prepare(zro_rule_step *s)
{
    const double *v = s->values;

    s->scalars[C_LR] = v[LR];
    s->scalars[C_SIGN] = v[MAXIMIZE] != 0 ? -1 : 1;
    s->scalars[C_DECAY] = v[WEIGHT_DECAY];
    s->scalars[C_MOMENTUM] = v[MOMENTUM];
    s->scalars[C_GRAD] = 1 - v[DAMPENING];
    s->scalars[C_FIRST] = (s->fresh >> BUFFER & 1) != 0;
    s->scalars[C_NESTEROV] = v[NESTEROV];
}

const zro_rule ZRO__RULE(sgd) = ZRO__RULE_TABLE(sgd, "SGD", check, prepare);

#else

static INLINE void NAME(sgd)(const zro_rule_tile *t, int decays, int has_buffer, int first, int nesterov)
{
    const REAL *c = t->scalars;
    const REAL lr = c[C_LR], sign = c[C_SIGN], decay = c[C_DECAY], momentum = c[C_MOMENTUM], share = c[C_GRAD];
    const size_t n = t->count;
    const real *restrict grad = t->grad;
    real *restrict p = t->data, *restrict buffer = t->slots[BUFFER];

    for (size_t i = 0; i < n; i++) {
        REAL g = sign * grad[i], b = g;

        if (decays)
            b = g = g + decay * p[i];
        if (has_buffer) {
            if (!first)
                b = momentum * buffer[i] + share * g;
            buffer[i] = b;
        }
        p[i] = p[i] - lr * (nesterov ? g + momentum * b : b);
    }
}

static void NAME(loop)(const zro_rule_tile *t)
{
    const REAL *c = t->scalars;
    int decays = c[C_DECAY] != 0, first = c[C_FIRST] != 0, nesterov = c[C_NESTEROV] != 0;

    if (c[C_MOMENTUM] == 0)
        decays ? NAME(sgd)(t, 1, 0, 0, 0) : NAME(sgd)(t, 0, 0, 0, 0);
    else if (nesterov && first)
        decays ? NAME(sgd)(t, 1, 1, 1, 1) : NAME(sgd)(t, 0, 1, 1, 1);
    else if (nesterov)
        decays ? NAME(sgd)(t, 1, 1, 0, 1) : NAME(sgd)(t, 0, 1, 0, 1);
    else if (first)
        decays ? NAME(sgd)(t, 1, 1, 1, 0) : NAME(sgd)(t, 0, 1, 1, 0);
    else
        decays ? NAME(sgd)(t, 1, 1, 0, 0) : NAME(sgd)(t, 0, 1, 0, 0);
}

#endif
