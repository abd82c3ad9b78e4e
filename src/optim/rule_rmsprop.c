/* RMSprop: divides by the root of a moving average of squares, less the squared average if centered, with or without
 * momentum. */
#ifndef REAL
#include "optim/rule.h"

enum { LR, ALPHA, EPS, WEIGHT_DECAY, MOMENTUM, CENTERED, MAXIMIZE };
enum { STEP, SQ, BUFFER, AVG };
enum { C_REST = MAXIMIZE + 1, C_LATE, C_BY };

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
    ++s->numbers[STEP];
    zro__take_values(s, MAXIMIZE);
    s->scalars[C_REST] = 1 - s->values[ALPHA];
    zro__lerp(1 - s->values[ALPHA], &s->scalars[C_LATE], &s->scalars[C_BY]);
}

const zro_rule ZRO__RULE(rmsprop) = ZRO__RULE_TABLE(rmsprop, "RMSprop", NULL, prepare);

#else

/* A v beyond the type's range stays infinite, as in PyTorch, where m * m is not rounded: the element keeps its value.  With
 * m * m infinite, too, the difference would be NaN.  Only an infinite m, after an infinite gradient, makes NaN. */
#define LARGEST (sizeof(REAL) == sizeof(float) ? (REAL)FLT_MAX : (REAL)DBL_MAX)

static INLINE void NAME(rmsprop)(const zro_rule_tile *t, int decays, int has_buffer, int centered)
{
    const REAL *c = t->scalars;
    const REAL sign = c[MAXIMIZE], decay = c[WEIGHT_DECAY], lr = c[LR], alpha = c[ALPHA], rest = c[C_REST], by = c[C_BY];
    const REAL eps = c[EPS], momentum = c[MOMENTUM];
    const int late = c[C_LATE] != 0;
    const size_t n = t->count;
    const real *restrict grad = t->grad;
    real *restrict p = t->data, *restrict sq = t->slots[SQ];
    real *restrict buffer = t->slots[BUFFER], *restrict avg = t->slots[AVG];

    for (size_t i = 0; i < n; i++) {
        REAL x = p[i], g = GRADIENT(x), v, m, b, root;

        v = alpha * sq[i] + rest * g * g;
        sq[i] = v;
        if (centered) {
            m = avg[i];
            m = (late ? g : m) + by * (g - m);
            avg[i] = m;
            v = v > LARGEST && fabs(m) <= LARGEST ? v : v - m * m;
        }
        root = sqrt(v) + eps;
        if (has_buffer) {
            b = momentum * buffer[i] + g / root;
            buffer[i] = b;
            p[i] = x - lr * b;
        } else {
            p[i] = x - lr * g / root;
        }
    }
}

#undef LARGEST

LOOP(CASES3(NAME(rmsprop), c[WEIGHT_DECAY], c[MOMENTUM], c[CENTERED], t))

#endif
