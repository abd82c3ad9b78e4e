/* Rprop: every element has a step of its own, which grows while the sign of the gradient stays and shrinks when it turns.  The
 * learning rate is the first step and is not read again. */
#ifndef REAL
#include "base/status.h"
#include "optim/rule.h"

enum { LR, ETA_MINUS, ETA_PLUS, STEP_MIN, STEP_MAX, MAXIMIZE };
enum { STEP, PREV, SIZE };

#define SELF "optim/rule_rprop.c"
#include "optim/loops.h"

static const zro_hyper values_of_rprop[] = {
    [LR] = ZRO__AT_LEAST_0(rprop, lr, 1e-2),
    [ETA_MINUS] = ZRO__BOUNDED(rprop, eta_minus, 0.5, 0, 1, ZRO_OPEN_LOW | ZRO_OPEN_HIGH, "etas:0"),
    [ETA_PLUS] = ZRO__BOUNDED(rprop, eta_plus, 1.2, 1, DBL_MAX, ZRO_OPEN_LOW, "etas:1"),
    [STEP_MIN] = ZRO__BOUNDED(rprop, step_min, 1e-6, 0, DBL_MAX, 0, "step_sizes:0"),
    [STEP_MAX] = ZRO__BOUNDED(rprop, step_max, 50, 0, DBL_MAX, 0, "step_sizes:1"),
    [MAXIMIZE] = ZRO__FLAG(rprop, maximize),
};

static const zro_slot_spec slots[] = {
    [STEP] = ZRO__COUNT("step"),
    [PREV] = ZRO__ARRAY("prev", NULL),
    [SIZE] = { "step_size", ZRO_SLOT_ARRAY, ZRO_OFF, 0, "lr", NULL },
};

static zro_status check(const double *values)
{
    if (values[STEP_MIN] > values[STEP_MAX])
        return zro__fail(ZRO_ERR_INVALID, "rprop: step_min = %g is larger than step_max = %g", values[STEP_MIN],
                         values[STEP_MAX]);
    return ZRO_OK;
}

static void prepare(zro_rule_step *s)
{
    ++s->numbers[STEP];
    zro__take_values(s, MAXIMIZE);
}

const zro_rule ZRO__RULE(rprop) = ZRO__RULE_TABLE(rprop, "Rprop", check, prepare);

#else

/* A NaN has no sign, as in PyTorch: the element stays, and its step too. */
static void NAME(loop)(const zro_rule_tile *t)
{
    const REAL *c = t->scalars;
    const REAL sign = c[MAXIMIZE], minus = c[ETA_MINUS], plus = c[ETA_PLUS], min = c[STEP_MIN], max = c[STEP_MAX];
    const size_t n = t->count;
    const real *restrict grad = t->grad;
    real *restrict p = t->data, *restrict prev = t->slots[PREV], *restrict size = t->slots[SIZE];

    for (size_t i = 0; i < n; i++) {
        REAL g = sign * grad[i], turn = g * prev[i], s = size[i], way;

        s = s * (turn > 0 ? plus : turn < 0 ? minus : 1);
        s = s < min ? min : s;
        s = s > max ? max : s;
        g = turn < 0 ? 0 : g;
        way = g > 0 ? (REAL)1 : g < 0 ? (REAL)-1 : (REAL)0;
        size[i] = s;
        prev[i] = g;
        p[i] = p[i] - way * s;
    }
}

#endif
