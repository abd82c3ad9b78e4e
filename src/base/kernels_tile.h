/* One tile of a reduction, as a template: kernels_isa.c includes this file once for each element type, having defined
 *
 *   T         the element type                 FLOATING  1, or 0 for integers
 *
 * and, where they are not what stands below,
 *
 *   A         the type of sums: T              GET(x)    T to A
 *   ADD(a, b) in A                             PUT(x)    A to T; undefined where they are the same
 *   PLAIN     the C type of T, where sums of it can do without a tile; undefined elsewhere
 *
 * Every loop runs over a whole tile, so that it unrolls without remainders.  A shorter tile is copied beside zeros first. */
#define NAME(x) ZRO__PASTE(T, _##x)
#ifndef A
#define A T
#endif
#ifndef GET
#define GET(x) (x)
#endif
#ifndef ADD
#define ADD(a, b) ((a) + (b))
#endif
#define IS_NAN(x) (FLOATING && (x) != (x))

/* acc + s[0] + ... + s[n - 1] from left to right, without acc if `first`.  `first` and `n` are constants at each call. */
static INLINE void NAME(add)(A *restrict acc, const T *const *s, int first, int n)
{
    const T *a = s[0], *b = s[1], *c = s[2], *d = s[3];

    for (size_t i = 0; i < ZRO__TILE; i++) {
        A v = first ? GET(a[i]) : ADD(acc[i], GET(a[i]));
        if (n > 1)
            v = ADD(v, GET(b[i]));
        if (n > 2)
            v = ADD(v, GET(c[i]));
        if (n > 3)
            v = ADD(v, GET(d[i]));
        acc[i] = v;
    }
}

static INLINE void NAME(add_some)(A *restrict acc, const T *const *s, int first, int n)
{
    n == 1   ? NAME(add)(acc, s, first, 1)
    : n == 2 ? NAME(add)(acc, s, first, 2)
    : n == 3 ? NAME(add)(acc, s, first, 3)
             : NAME(add)(acc, s, first, 4);
}

static INLINE const T *NAME(fetch)(const void *source, size_t at, size_t m, T *pad)
{
    if (source == NULL)
        return (const T *)zeros;
    if (m == ZRO__TILE)
        return (const T *)source + at;
    memset(pad, 0, ZRO__TILE * sizeof(T));
    memcpy(pad, (const T *)source + at, m * sizeof(T));
    return pad;
}

/* Sums, four sources at a time. */
static INLINE void NAME(sum)(A *restrict acc, const void *const *src, int n, size_t at, size_t m)
{
    T pad[4][ZRO__TILE];
    const T *s[4] = { NULL, NULL, NULL, NULL };

    for (int done = 0; done < n; done += 4) {
        int some = n - done < 4 ? n - done : 4;

        for (int k = 0; k < some; k++)
            s[k] = NAME(fetch)(src[done + k], at, m, pad[k]);
        if (done == 0)
            NAME(add_some)(acc, s, 1, some);
        else
            NAME(add_some)(acc, s, 0, some);
    }
}

/* acc = acc op next */
static void NAME(merge)(A *restrict acc, const A *restrict next, zro_op op)
{
    size_t i;

    if (op == ZRO_MIN)
        for (i = 0; i < ZRO__TILE; i++)
            acc[i] = ((acc[i] < next[i]) | IS_NAN(acc[i])) ? acc[i] : next[i];
    else if (op == ZRO_MAX)
        for (i = 0; i < ZRO__TILE; i++)
            acc[i] = ((acc[i] > next[i]) | IS_NAN(acc[i])) ? acc[i] : next[i];
    else
        for (i = 0; i < ZRO__TILE; i++)
            acc[i] = ADD(acc[i], next[i]);
}

/* Minima, maxima and weighted sums: one source at a time. */
static void NAME(fold)(A *restrict acc, const zro__reduce *r, const void *const *src, const double *weight, int n, size_t at,
                       size_t m)
{
    T pad[ZRO__TILE];
    A next[ZRO__TILE] ALIGNED;

    for (int k = 0; k < n; k++) {
        const T *s = NAME(fetch)(src[k], at, m, pad);
        A *to = k == 0 ? acc : next;

#if FLOATING
        /* A rank without a value adds +0.0 whatever its weight is. */
        A w = weight != NULL && src[k] != NULL ? (A)weight[k] : 1;

        for (size_t i = 0; i < ZRO__TILE; i++)
            to[i] = w * GET(s[i]);
#else
        (void)weight;
        memcpy(to, s, ZRO__TILE * sizeof(T));
#endif
        if (k > 0)
            NAME(merge)(acc, next, r->op);
    }
}

#if FLOATING
static void NAME(divide)(A *acc, double divisor)
{
    A by = (A)divisor;
    size_t i;

    if (zro__is_power_of_two(divisor)) { /* the same bits, sooner */
        by = 1 / by;
        for (i = 0; i < ZRO__TILE; i++)
            acc[i] *= by;
    } else {
        for (i = 0; i < ZRO__TILE; i++)
            acc[i] /= by;
    }
}
#endif

/* The m <= ZRO__TILE elements from `at` on, and values without meaning up to a whole tile, into `out`. */
static void NAME(tile)(const zro__reduce *r, const void *const *src, size_t at, size_t m, void *restrict out)
{
    A cell[ZRO__TILE] ALIGNED;
#ifdef PUT
    A sum[ZRO__TILE] ALIGNED, *acc = sum;
    T *result = out;
#else
    A *acc = out;
#endif
    const double *weight = r->weight;

    for (int c = 0; c < r->n_cells; c++) {
        A *to = c == 0 ? acc : cell;

        if (weight == NULL && (r->op == ZRO_SUM || r->op == ZRO_AVG))
            NAME(sum)(to, src, r->cell[c], at, m);
        else
            NAME(fold)(to, r, src, weight, r->cell[c], at, m);
        if (c > 0)
            NAME(merge)(acc, cell, r->op);
        src += r->cell[c];
        weight = weight != NULL ? weight + r->cell[c] : NULL;
    }
#if FLOATING
    if (r->op == ZRO_AVG)
        NAME(divide)(acc, r->divisor);
#endif
#ifdef PUT
    for (size_t i = 0; i < ZRO__TILE; i++)
        result[i] = PUT(sum[i]);
#endif
}

#ifdef PLAIN
/* What a sum is divided by (*divides) or multiplied by: by 1 unless it becomes an average. */
static INLINE PLAIN NAME(scale)(const zro__reduce *r, int *divides)
{
    *divides = r->op == ZRO_AVG && !zro__is_power_of_two(r->divisor);
    return r->op != ZRO_AVG ? 1 : *divides ? (PLAIN)r->divisor : 1 / (PLAIN)r->divisor;
}

/* One whole tile of one cell, summed in registers. */
static INLINE void NAME(quick)(const zro__reduce *r, const void *const *src, size_t at, void *out)
{
    typedef PLAIN reg __attribute__((vector_size(VECTOR)));
    typedef PLAIN mem __attribute__((vector_size(VECTOR), aligned(1), may_alias));
    int divides;
    const PLAIN by = NAME(scale)(r, &divides);

    for (size_t v = 0; v < ZRO__TILE * sizeof(T) / VECTOR; v += AT_ONCE) {
        const mem *s = (const mem *)NAME(fetch)(src[0], at, ZRO__TILE, NULL) + v;
        mem *d = (mem *)out + v;
        EACH(DO_LOAD)

        for (int k = 1; k < r->n; k++) {
            s = (const mem *)NAME(fetch)(src[k], at, ZRO__TILE, NULL) + v;
            EACH(DO_ADD)
        }
        if (divides) {
            EACH(DO_DIVIDE)
        } else {
            EACH(DO_MULTIPLY)
        }
        EACH(DO_STORE)
    }
}

/* Sums of one cell, which is what training does, without a tile in memory: registers hold it.  Begins at `at` and returns where it
 * ended, with less than its step left.
 *
 * All loads of a source stand together, and all stores to a destination.  With loads and stores taking turns, two arrays
 * 256 MiB apart were measured at a third of the speed and less (Zen 3; from 32 to 255 MiB apart there was no such drop; the
 * cause is not known).  This order does not have that weakness, and costs up to a tenth elsewhere on one core.
 *
 * n_src, n_dst: as in the job, or 0 if the compiler need not know them; streamed: 1 or 0 if all stores are alike, otherwise -1.
 * These three are constants at each call. */
static INLINE size_t NAME(sum_direct)(const job *j, size_t at, int n_src, int n_dst, int streamed)
{
    typedef PLAIN reg __attribute__((vector_size(VECTOR)));
    typedef PLAIN mem __attribute__((vector_size(VECTOR), aligned(1), may_alias));
    const job own = *j; /* which no store can change */
    const void *src[2] = { own.src[0], n_src > 1 ? own.src[1] : NULL };
    void *dst[2] = { n_dst > 0 ? own.dst[0] : NULL, n_dst > 1 ? own.dst[1] : NULL };
    const size_t step = AT_ONCE * VECTOR / sizeof(T);
    int divides;
    const PLAIN by = NAME(scale)(own.r, &divides);

    for (; own.count - at >= step; at += step) {
        const mem *s = (const mem *)(n_src == 0 ? NAME(fetch)(own.src[0], at, ZRO__TILE, NULL) : (const T *)src[0] + at);
        EACH(DO_LOAD)

        prefetch(&own, at, step, sizeof(T));
        for (int k = 1; k < (n_src == 0 ? own.r->n : n_src); k++) {
            s = (const mem *)(n_src == 0 ? NAME(fetch)(own.src[k], at, ZRO__TILE, NULL) : (const T *)src[k] + at);
            EACH(DO_ADD)
        }
        if (divides) {
            EACH(DO_DIVIDE)
        } else {
            EACH(DO_MULTIPLY)
        }
        for (int k = 0; k < (n_dst == 0 ? own.n_dst : n_dst); k++) {
            mem *d = (mem *)((T *)(n_dst == 0 ? own.dst[k] : dst[k]) + at);

            if (streamed < 0 ? has_bit(own.streamed, k) : streamed) {
                EACH(DO_STREAM)
            } else {
                EACH(DO_STORE)
            }
        }
    }
    return at;
}

/* Two ranks have loops of their own. */
static size_t NAME(direct)(const job *j, size_t at)
{
    const int two = j->r->n == 2 && j->src[0] != NULL && j->src[1] != NULL;

    if (two && j->n_dst == 1)
        return j->streamed != 0 ? NAME(sum_direct)(j, at, 2, 1, 1) : NAME(sum_direct)(j, at, 2, 1, 0);
    if (two && j->n_dst == 2 && j->streamed == 0)
        return NAME(sum_direct)(j, at, 2, 2, 0);
    return NAME(sum_direct)(j, at, 0, 0, -1);
}
#endif

#undef NAME
#undef T
#undef A
#undef GET
#undef PUT
#undef ADD
#undef PLAIN
#undef IS_NAN
