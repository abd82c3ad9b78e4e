/* SGD: with momentum, dampening, Nesterov's momentum.  A parameter's first step copies the gradient into the buffer as it
 * is. */
#ifndef REAL
#include "base/status.h"
#include "optim/rule.h"

enum { LR, MOMENTUM, DAMPENING, WEIGHT_DECAY, NESTEROV, MAXIMIZE };
enum { BUFFER };
enum { C_GRAD = MAXIMIZE + 1, C_FIRST };

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
                         "sgd: nesterov needs momentum > 0 and dampening = 0, but momentum = %g and dampening = %g",
                         values[MOMENTUM], values[DAMPENING]);
    return ZRO_OK;
}

static void prepare(zro_rule_step *s)
{
    zro__take_values(s, MAXIMIZE);
    s->scalars[C_GRAD] = 1 - s->values[DAMPENING];
    s->scalars[C_FIRST] = (s->fresh >> BUFFER & 1) != 0;
}

const zro_rule ZRO__RULE(sgd) = ZRO__RULE_TABLE(sgd, "SGD", check, prepare);

#else

static INLINE void NAME(sgd)(const zro_rule_tile *t, int has_buffer, int first, int nesterov, int decays)
{
    const REAL *c = t->scalars;
    const REAL lr = c[LR], sign = c[MAXIMIZE], decay = c[WEIGHT_DECAY], momentum = c[MOMENTUM], share = c[C_GRAD];
    const size_t n = t->count;
    const real *restrict grad = t->grad;
    real *restrict p = t->data, *restrict buffer = t->slots[BUFFER];

    for (size_t i = 0; i < n; i++) {
        REAL g = GRADIENT(p[i]), b = g;

        if (has_buffer) {
            if (!first)
                b = momentum * buffer[i] + share * g;
            buffer[i] = b;
        }
        p[i] = p[i] - lr * (nesterov ? g + momentum * b : b);
    }
}

LOOP(c[MOMENTUM] == 0 ? CASES1(NAME(sgd), c[WEIGHT_DECAY], t, 0, 0, 0)
                      : CASES3(NAME(sgd), c[C_FIRST], c[NESTEROV], c[WEIGHT_DECAY], t, 1))

#endif
