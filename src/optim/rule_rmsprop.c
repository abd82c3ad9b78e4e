/* RMSprop: divides by the root of a moving average of squares, less the squared average if centered, with or without
 * momentum. */
#ifndef REAL
#include "optim/rule.h"

enum { LR, ALPHA, EPS, WEIGHT_DECAY, MOMENTUM, CENTERED, MAXIMIZE };
enum { STEP, SQ, BUFFER, AVG };
enum { C_SIGN, C_DECAY, C_LR, C_ALPHA, C_REST, C_LATE, C_BY, C_EPS, C_MOMENTUM, C_CENTERED };

#define SELF "optim/rule_rmsprop.c"
#include "optim/loops.h"

static const zro_hyper values_of_rmsprop[] = {
    [LR] = ZRO__AT_LEAST_0(rmsprop, lr, 1e-2),          [ALPHA] = ZRO__AT_LEAST_0(rmsprop, alpha, 0.99),
    [EPS] = ZRO__AT_LEAST_0(rmsprop, eps, 1e-8),        [WEIGHT_DECAY] = ZRO__AT_LEAST_0(rmsprop, weight_decay, 0),
    [MOMENTUM] = ZRO__AT_LEAST_0(rmsprop, momentum, 0), [CENTERED] = ZRO__FLAG(rmsprop, centered),
    [MAXIMIZE] = ZRO__FLAG(rmsprop, maximize),
};

static const zro_slot_spec slots[] = {
    [STEP] = ZRO__COUNT("step"),
    [SQ] = ZRO__ARRAY("square_avg", NULL),
    [BUFFER] = ZRO__ARRAY("momentum_buffer", "momentum"),
    [AVG] = ZRO__ARRAY("grad_avg", "centered"),
};

static void prepare(zro_rule_step *s)
{
    const double *v = s->values;
    double *c = s->scalars;

    ++s->numbers[STEP];
    c[C_SIGN] = v[MAXIMIZE] != 0 ? -1 : 1;
    c[C_DECAY] = v[WEIGHT_DECAY];
    c[C_LR] = v[LR];
    c[C_ALPHA] = v[ALPHA];
    c[C_REST] = 1 - v[ALPHA];
    zro__lerp(1 - v[ALPHA], &c[C_LATE], &c[C_BY]);
    c[C_EPS] = v[EPS];
    c[C_MOMENTUM] = v[MOMENTUM];
    c[C_CENTERED] = v[CENTERED];
}

const zro_rule ZRO__RULE(rmsprop) = ZRO__RULE_TABLE(rmsprop, "RMSprop", NULL, prepare);

#else

static INLINE void NAME(rmsprop)(const zro_rule_tile *t, int decays, int has_buffer, int centered)
{
    const REAL *c = t->scalars;
    const REAL sign = c[C_SIGN], decay = c[C_DECAY], lr = c[C_LR], alpha = c[C_ALPHA], rest = c[C_REST], by = c[C_BY];
    const REAL eps = c[C_EPS], momentum = c[C_MOMENTUM];
    const int late = c[C_LATE] != 0;
    const size_t n = t->count;
    const real *restrict grad = t->grad;
    real *restrict p = t->data, *restrict sq = t->slots[SQ];
    real *restrict buffer = t->slots[BUFFER], *restrict avg = t->slots[AVG];

    for (size_t i = 0; i < n; i++) {
        REAL g = sign * grad[i], x = p[i], v, m, b, root;

        if (decays)
            g = g + decay * x;
        v = alpha * sq[i] + rest * g * g;
        sq[i] = v;
        if (centered) {
            m = avg[i];
            m = (late ? g : m) + by * (g - m);
            avg[i] = m;
            v = v - m * m;
        }
        root = SQRT(v) + eps;
        if (has_buffer) {
            b = momentum * buffer[i] + g / root;
            buffer[i] = b;
            p[i] = x - lr * b;
        } else {
            p[i] = x - lr * g / root;
        }
    }
}

static void NAME(loop)(const zro_rule_tile *t)
{
    const REAL *c = t->scalars;
    int decays = c[C_DECAY] != 0, centered = c[C_CENTERED] != 0;

    if (c[C_MOMENTUM] != 0 && centered)
        decays ? NAME(rmsprop)(t, 1, 1, 1) : NAME(rmsprop)(t, 0, 1, 1);
    else if (c[C_MOMENTUM] != 0)
        decays ? NAME(rmsprop)(t, 1, 1, 0) : NAME(rmsprop)(t, 0, 1, 0);
    else if (centered)
        decays ? NAME(rmsprop)(t, 1, 0, 1) : NAME(rmsprop)(t, 0, 0, 1);
    else
        decays ? NAME(rmsprop)(t, 1, 0, 0) : NAME(rmsprop)(t, 0, 0, 0);
}

#endif
