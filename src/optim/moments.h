/* What Adam, AdamW, NAdam and RAdam have in common: two moving averages, of the gradient and of its square, from which each of
 * them computes its step in a form of its own.
 *
 * A part of their files rule_*.c, which include it twice, as they are themselves: for their scalars, after the names of their
 * values and slots, and for their loops.  One loop has one division and one square root: the correction of the second average
 * is a multiplication. */
#ifndef REAL

/* Scalars, behind the values themselves.  What a rule does not set is 0, and its form does not read it. */
enum { C_KEEP = MAXIMIZE + 1, C_LATE, C_BY, C_REST2, C_STEP, C_CORRECT, C_GRAD };

/* Forms of the step. */
enum {
    DIVIDED,   /* the first average, divided by the root of the second */
    LARGEST,   /* divided by the root of the largest second average so far, which is the slot behind the second average */
    LOOKAHEAD, /* the first average and the gradient, both divided */
    UNDIVIDED  /* the first average alone */
};

/* Counts the step, sets the scalars that all of them share, and returns the number of the step.  A decoupled decay makes the
 * parameter smaller (C_KEEP) and stays out of the gradient. */
static double begin_moments(zro_rule_step *s)
{
    const double *v = s->values;
    double *c = s->scalars;
    const int decoupled = v[DECOUPLED] != 0;

    zro__take_values(s, MAXIMIZE);
    c[WEIGHT_DECAY] = decoupled ? 0 : v[WEIGHT_DECAY];
    c[C_KEEP] = decoupled ? 1 - v[LR] * v[WEIGHT_DECAY] : 1;
    zro__lerp(1 - v[BETA1], &c[C_LATE], &c[C_BY]);
    c[C_REST2] = 1 - v[BETA2];
    return ++s->numbers[STEP];
}

#else

static INLINE void NAME(moments)(const zro_rule_tile *t, int form, int decays)
{
    const REAL *c = t->scalars;
    const REAL sign = c[MAXIMIZE], decay = c[WEIGHT_DECAY], keep = c[C_KEEP], by = c[C_BY], beta2 = c[BETA2];
    const REAL rest2 = c[C_REST2], step = c[C_STEP], correct = c[C_CORRECT], eps = c[EPS], of_grad = c[C_GRAD];
    const int late = c[C_LATE] != 0;
    const size_t n = t->count;
    const real *restrict grad = t->grad;
    real *restrict p = t->data, *restrict avg = t->slots[AVG], *restrict sq = t->slots[SQ];
    real *restrict max = form == LARGEST ? t->slots[SQ + 1] : NULL;

    for (size_t i = 0; i < n; i++) {
        REAL x = keep * p[i], g = GRADIENT(x), m = avg[i], v = sq[i];

        m = (late ? g : m) + by * (g - m);
        v = beta2 * v + rest2 * g * g;
        avg[i] = m;
        sq[i] = v;
        if (form == LARGEST)
            max[i] = v = LARGER(max[i], v);
        if (form == LOOKAHEAD)
            p[i] = x - (of_grad * g + step * m) / (sqrt(v * correct) + eps);
        else if (form == UNDIVIDED)
            p[i] = x - step * m;
        else
            p[i] = x - step * m / (sqrt(v) * correct + eps);
    }
}

#endif
