/* The loops of both shapes, as a template: limit.c includes this file once for each instruction set and type, having defined
 *
 *   NAME(x)   the functions' names      TARGET        the attribute that allows the instructions
 *   VECTOR    bytes of a register       REAL          the type of the arrays
 *   STREAM(p, v)  a store around the caches, to an aligned address: for f32 only, as collective calls are measured with f32
 *
 * `plain` takes a register at a time.  `eight` of a call loads eight of a source together and stores them together; `four` and
 * `eight` of a step load as many of one gradient after another, then read and write as many of each array. */

typedef REAL NAME(reg) __attribute__((vector_size(VECTOR)));
typedef REAL NAME(mem) __attribute__((vector_size(VECTOR), aligned(1), may_alias));
typedef char NAME(half) __attribute__((vector_size(VECTOR / 2), aligned(1), may_alias));

#define LOAD(p) (*(const NAME(mem) *)(const void *)(p))

/* ---- collective calls ---- */

#ifdef STREAM

#define AT(p) ((p) + i)
#define PUT(p, v)                                                                                                              \
    do {                                                                                                                       \
        if (stream)                                                                                                            \
            STREAM(p, v);                                                                                                      \
        else                                                                                                                   \
            *(NAME(mem) *)(void *)(p) = (v);                                                                                   \
    } while (0)

/* All numbers but `by` are constants at each call; 0 sources or destinations: as many as the shape has. */
static INLINE TARGET size_t NAME(call_plain)(const limit_call *s, float by, int n_src, int n_dst, int stream)
{
    enum { STEP = VECTOR / sizeof(float) };
    const float *a = s->src[0], *b = s->n_src > 1 ? s->src[1] : NULL;
    float *c = s->dst[0], *d = s->n_dst > 1 ? s->dst[1] : NULL;
    size_t i;

    for (i = 0; s->count - i >= STEP; i += STEP) {
        NAME(reg) v = LOAD(AT(a));

        if (n_src == 2)
            v += LOAD(AT(b));
        for (int k = 1; n_src == 0 && k < s->n_src; k++)
            v += LOAD(AT(s->src[k]));
        if (n_src != 1)
            v *= by;
        PUT(AT(c), v);
        if (n_dst == 2)
            PUT(AT(d), v);
        for (int k = 1; n_dst == 0 && k < s->n_dst; k++)
            PUT(AT(s->dst[k]), v);
    }
    return i;
}

#define EACH(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)
#define NTH(n) (i + (n) * (VECTOR / sizeof(float)))
#define DO_LOAD(n) NAME(reg) v##n = LOAD(from + NTH(n));
#define DO_ADD(n) v##n += LOAD(from + NTH(n));
#define DO_SCALE(n) v##n *= by;
#define DO_PUT(n) PUT(to + NTH(n), v##n);

static INLINE TARGET size_t NAME(call_eight)(const limit_call *s, float by, int n_src, int n_dst, int stream)
{
    enum { STEP = 8 * VECTOR / sizeof(float) };
    size_t i;

    for (i = 0; s->count - i >= STEP; i += STEP) {
        const float *from = s->src[0];
        EACH(DO_LOAD)

        for (int k = 1; k < (n_src == 0 ? s->n_src : n_src); k++) {
            from = s->src[k];
            EACH(DO_ADD)
        }
        if (n_src != 1) {
            EACH(DO_SCALE)
        }
        for (int k = 0; k < (n_dst == 0 ? s->n_dst : n_dst); k++) {
            float *to = s->dst[k];

            EACH(DO_PUT)
        }
    }
    return i;
}

/* The loop for the shape's numbers; returns how far it went. */
#define SPECIALISED(loop, stream)                                                                                              \
    (s->n_src == 1 && s->n_dst == 1   ? NAME(loop)(s, by, 1, 1, stream)                                                        \
     : s->n_src == 2 && s->n_dst == 1 ? NAME(loop)(s, by, 2, 1, stream)                                                        \
     : s->n_src == 2 && s->n_dst == 2 ? NAME(loop)(s, by, 2, 2, stream)                                                        \
                                      : NAME(loop)(s, by, 0, 0, stream))

static TARGET size_t NAME(call)(int eight, int stream, const limit_call *s, float by)
{
    if (eight)
        return stream ? SPECIALISED(call_eight, 1) : SPECIALISED(call_eight, 0);
    return stream ? SPECIALISED(call_plain, 1) : SPECIALISED(call_plain, 0);
}

#endif

/* ---- steps ---- */

/* Positions are bytes in the arrays; those in 16-bit arrays are half of that, since their arrays are f32. */
#define MIX(p, g) (*(NAME(mem) *)(void *)(p) = (LOAD(p) + (g)) * by)
#define COPY(at) (*(NAME(half) *)(void *)(s->output + (at) / 2) = *(const NAME(half) *)(const void *)(s->grads[0] + (at) / 2))

/* What makes the sum of an array and of the gradients a mean: of 16-bit gradients the values do not count. */
static INLINE TARGET REAL NAME(weight)(const step_span *s, int halves)
{
    return (REAL)1 / (REAL)(1 + (halves ? 1 : s->n_grads));
}

/* What arrays are mixed with: the first gradient, to which the others are added. */
static INLINE TARGET NAME(reg) NAME(other)(const step_span *s, size_t i, int halves)
{
    NAME(reg) zero = { 0 };

    if (halves)
        return zero + (REAL)STEP_VALUE;
    return LOAD(s->grads[0] + i);
}

/* All numbers but the span are constants at each call; 0 arrays or gradients: as many as the span has. */
static INLINE TARGET size_t NAME(step_plain)(const step_span *s, int arrays, int grads, int halves, size_t ahead)
{
    char *a = s->arrays[0], *b = s->arrays[1], *c = s->n_arrays > 2 ? s->arrays[2] : NULL;
    const REAL by = NAME(weight)(s, halves);
    size_t i;

    for (i = 0; s->bytes - i >= VECTOR; i += VECTOR) {
        NAME(reg) g = NAME(other)(s, i, halves);

        for (int k = 1; k < (grads == 0 ? s->n_grads : grads); k++)
            g += LOAD(s->grads[k] + i);
        if (ahead != 0 && i % LINE == 0)
            prefetch(s, arrays, grads, halves, i + ahead);
        MIX(a + i, g);
        MIX(b + i, g);
        if (arrays == 3)
            MIX(c + i, g);
        for (int k = 2; arrays == 0 && k < s->n_arrays; k++)
            MIX(s->arrays[k] + i, g);
        if (halves)
            COPY(i);
    }
    return i;
}

#define EACH4(DO) DO(0) DO(1) DO(2) DO(3)
#define EACH8(DO) EACH4(DO) DO(4) DO(5) DO(6) DO(7)
#define BYTES(n) (i + (n)*VECTOR)
#define DO_READ(n) NAME(reg) g##n = NAME(other)(s, BYTES(n), halves);
#define DO_SUM(n) g##n += LOAD(from + BYTES(n));
#define DO_MIX(n) MIX(to + BYTES(n), g##n);
#define DO_COPY(n) COPY(BYTES(n));

#define STEP_MANY(name, n, EACH_OF)                                                                                            \
    static INLINE TARGET size_t NAME(name)(const step_span *s, int arrays, int grads, int halves, size_t ahead)                \
    {                                                                                                                          \
        const REAL by = NAME(weight)(s, halves);                                                                               \
        size_t i;                                                                                                              \
                                                                                                                               \
        for (i = 0; s->bytes - i >= (n)*VECTOR; i += (n)*VECTOR) {                                                             \
            EACH_OF(DO_READ)                                                                                                   \
                                                                                                                               \
            for (int k = 1; k < (grads == 0 ? s->n_grads : grads); k++) {                                                      \
                const char *from = s->grads[k];                                                                                \
                                                                                                                               \
                EACH_OF(DO_SUM)                                                                                                \
            }                                                                                                                  \
            for (size_t l = 0; ahead != 0 && l < (n)*VECTOR; l += LINE)                                                        \
                prefetch(s, arrays, grads, halves, i + ahead + l);                                                             \
            for (int k = 0; k < (arrays == 0 ? s->n_arrays : arrays); k++) {                                                   \
                char *to = s->arrays[k];                                                                                       \
                                                                                                                               \
                EACH_OF(DO_MIX)                                                                                                \
            }                                                                                                                  \
            if (halves) {                                                                                                      \
                EACH_OF(DO_COPY)                                                                                               \
            }                                                                                                                  \
        }                                                                                                                      \
        return i;                                                                                                              \
    }

STEP_MANY(step_four, 4, EACH4)
STEP_MANY(step_eight, 8, EACH8)

/* The loop for the shape's numbers; returns how far it went.  Shapes that no benchmark has take the general one: arrays of f64 have
 * neither 16-bit gradients nor several. */
#ifdef STREAM
#define GRADS(loop, arrays, ahead)                                                                                             \
    (s->halves         ? NAME(loop)(s, arrays, 1, 1, ahead)                                                                    \
     : s->n_grads == 1 ? NAME(loop)(s, arrays, 1, 0, ahead)                                                                    \
     : s->n_grads == 2 ? NAME(loop)(s, arrays, 2, 0, ahead)                                                                    \
                       : NAME(loop)(s, arrays, 0, 0, ahead))
#define ARRAYS(loop, ahead)                                                                                                    \
    (s->n_arrays == 2   ? GRADS(loop, 2, ahead)                                                                                \
     : s->n_arrays == 3 ? GRADS(loop, 3, ahead)                                                                                \
     : s->halves        ? NAME(loop)(s, 0, 1, 1, ahead)                                                                        \
                        : NAME(loop)(s, 0, 0, 0, ahead))
#else
#define ARRAYS(loop, ahead)                                                                                                    \
    (s->n_arrays == 2 && s->n_grads == 1   ? NAME(loop)(s, 2, 1, 0, ahead)                                                     \
     : s->n_arrays == 3 && s->n_grads == 1 ? NAME(loop)(s, 3, 1, 0, ahead)                                                     \
                                           : NAME(loop)(s, 0, 0, 0, ahead))
#endif

/* `registers`: 1, 4 or 8 at a time; with 8, which would prefetch more lines at once than a core can wait for, none are prefetched. */
static TARGET size_t NAME(step)(int registers, const step_span *span, size_t ahead)
{
    const step_span own = *span, *s = &own; /* which no store to the arrays can change */

    if (registers == 8)
        return ARRAYS(step_eight, 0);
    if (registers == 4)
        return ahead != 0 ? ARRAYS(step_four, ahead) : ARRAYS(step_four, 0);
    return ahead != 0 ? ARRAYS(step_plain, ahead) : ARRAYS(step_plain, 0);
}

#undef LOAD
#undef AT
#undef PUT
#undef EACH
#undef NTH
#undef DO_LOAD
#undef DO_ADD
#undef DO_SCALE
#undef DO_PUT
#undef SPECIALISED
#undef MIX
#undef COPY
#undef EACH4
#undef EACH8
#undef STEP_MANY
#undef BYTES
#undef DO_READ
#undef DO_SUM
#undef DO_MIX
#undef DO_COPY
#undef GRADS
#undef ARRAYS
#undef NAME
#undef REAL
#undef STREAM
