/* Adamax: Adam with the largest recent gradient instead of the average of squares. */
#ifndef REAL
#include "optim/rule.h"

enum { LR, BETA1, BETA2, EPS, WEIGHT_DECAY, MAXIMIZE };
enum { STEP, AVG, INF };
enum { C_LATE = MAXIMIZE + 1, C_BY, C_STEP };

#define SELF "optim/rule_adamax.c"
#include "optim/loops.h"

static const zro_hyper values_of_adamax[] = {
    ZRO__ADAM_VALUES(adamax, 2e-3, 0),
    [MAXIMIZE] = ZRO__FLAG(adamax, maximize),
};

static const zro_slot_spec slots[] = {
    [STEP] = ZRO__COUNT("step"),
    [AVG] = ZRO__ARRAY("exp_avg", NULL),
    [INF] = ZRO__ARRAY("exp_inf", NULL),
};

static void prepare(zro_rule_step *s)
{
    const double *v = s->values;
    double step = ++s->numbers[STEP], *c = s->scalars;

    zro__take_values(s, MAXIMIZE);
    zro__lerp(1 - v[BETA1], &c[C_LATE], &c[C_BY]);
    c[C_STEP] = v[LR] / (1 - pow(v[BETA1], step));
}

const zro_rule ZRO__RULE(adamax) = ZRO__RULE_TABLE(adamax, "Adamax", NULL, prepare);

#else

static INLINE void NAME(adamax)(const zro_rule_tile *t, int decays)
{
    const REAL *c = t->scalars;
    const REAL sign = c[MAXIMIZE], decay = c[WEIGHT_DECAY], by = c[C_BY], beta2 = c[BETA2], step = c[C_STEP], eps = c[EPS];
    const int late = c[C_LATE] != 0;
    const size_t n = t->count;
    const real *restrict grad = t->grad;
    real *restrict p = t->data, *restrict avg = t->slots[AVG], *restrict inf = t->slots[INF];

    for (size_t i = 0; i < n; i++) {
        REAL x = p[i], g = GRADIENT(x), m = avg[i], old = beta2 * inf[i], now, u;

        m = (late ? g : m) + by * (g - m);
        now = fabs(g) + eps;
        u = LARGER(old, now);
        avg[i] = m;
        inf[i] = u;
        p[i] = x - step * m / u;
    }
}

LOOP(CASES1(NAME(adamax), c[WEIGHT_DECAY], t))

#endif
