/* The loops over vectors, as a template: lbfgs.c includes this file for f32 and for f64 by optim/loops.h, which defines NAME,
 * REAL and real.
 *
 * Sums are added in f64 in an order that the number of elements alone decides; products of two f32 are exact in it. */

/* The product of at most a block: lane l adds elements l, l + LANES, ... */
static double NAME(block_dot)(const real *a, const real *b, size_t n)
{
    double lane[LANES] = { 0 };
    size_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (size_t l = 0; l < LANES; l++)
            lane[l] += (double)a[i + l] * (double)b[i + l];
    for (size_t l = 0; i + l < n; l++)
        lane[l] += (double)a[i + l] * (double)b[i + l];
    for (size_t half = LANES / 2; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

static double NAME(dot)(const void *a, const void *b, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i += ZRO__BLOCK)
        sum += NAME(block_dot)((const real *)a + i, (const real *)b + i, n - i < ZRO__BLOCK ? n - i : ZRO__BLOCK);
    return sum;
}

static double NAME(sum_abs)(const void *a, size_t n)
{
    const real *x = a;
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += fabs((double)x[i]);
    return sum;
}

/* 0 of nothing; NaN if one is. */
static double NAME(max_abs)(const void *a, size_t n)
{
    const real *x = a;
    REAL max = 0;

    for (size_t i = 0; i < n; i++) {
        REAL v = fabs((REAL)x[i]);

        max = ((v > max) | (v != v)) ? v : max;
    }
    return (double)max;
}

/* out = s a; out may be a. */
static void NAME(scale)(void *out, const void *a, double s, size_t n)
{
    const real *x = a;
    real *o = out;
    REAL by = (REAL)s;

    for (size_t i = 0; i < n; i++)
        o[i] = by * x[i];
}

/* out = a + s b; out may be a. */
static void NAME(add_scaled)(void *out, const void *a, double s, const void *b, size_t n)
{
    const real *x = a, *y = b;
    real *o = out;
    REAL by = (REAL)s;

    for (size_t i = 0; i < n; i++)
        o[i] = x[i] + by * y[i];
}

static const loops NAME(loops) = {
    sizeof(REAL), NAME(dot), NAME(sum_abs), NAME(max_abs), NAME(scale), NAME(add_scaled),
};
