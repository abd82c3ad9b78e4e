/* The loops of a shape, as a template: roof.c includes this file once for each instruction set and type, having defined
 *
 *   NAME(x)   the functions' names            TARGET  the attribute that allows the instructions
 *   VECTOR    bytes of a register             REAL    the type of the arrays
 *
 * `plain` takes a register at a time; `four` loads four of the gradient together, then reads and writes four of each array.
 * Positions are bytes in the arrays; those in 16-bit arrays are half of that, since their arrays are f32. */

typedef REAL NAME(reg) __attribute__((vector_size(VECTOR)));
typedef REAL NAME(mem) __attribute__((vector_size(VECTOR), aligned(1), may_alias));
typedef char NAME(half) __attribute__((vector_size(VECTOR / 2), aligned(1), may_alias));

#define LOAD(p) (*(const NAME(mem) *)(const void *)(p))
#define MIX(p, g) (*(NAME(mem) *)(void *)(p) = (LOAD(p) + (g)) * (REAL)0.5)
#define COPY(at) (*(NAME(half) *)(void *)(s->output + (at) / 2) = *(const NAME(half) *)(const void *)(s->grad + (at) / 2))

static INLINE TARGET NAME(reg) NAME(other)(const roof_span *s, size_t i, int halves)
{
    NAME(reg) zero = { 0 };

    if (halves)
        return zero + (REAL)ROOF_VALUE;
    return LOAD(s->grad + i);
}

/* All numbers but the span are constants at each call; 0 arrays: as many as the span has. */
static INLINE TARGET size_t NAME(plain)(const roof_span *s, int arrays, int halves, size_t ahead)
{
    char *a = s->arrays[0], *b = s->arrays[1], *c = s->n_arrays > 2 ? s->arrays[2] : NULL;
    size_t i;

    for (i = 0; s->bytes - i >= VECTOR; i += VECTOR) {
        NAME(reg) g = NAME(other)(s, i, halves);

        if (ahead != 0 && i % LINE == 0)
            prefetch(s, arrays, halves, i + ahead);
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

#define EACH(DO) DO(0) DO(1) DO(2) DO(3)
#define NTH(n) (i + (n)*VECTOR)
#define DO_LOAD(n) NAME(reg) g##n = NAME(other)(s, NTH(n), halves);
#define DO_MIX(n) MIX(to + NTH(n), g##n);
#define DO_COPY(n) COPY(NTH(n));

static INLINE TARGET size_t NAME(four)(const roof_span *s, int arrays, int halves, size_t ahead)
{
    size_t i;

    for (i = 0; s->bytes - i >= 4 * VECTOR; i += 4 * VECTOR) {
        EACH(DO_LOAD)

        for (size_t l = 0; ahead != 0 && l < 4 * VECTOR; l += LINE)
            prefetch(s, arrays, halves, i + ahead + l);
        for (int k = 0; k < (arrays == 0 ? s->n_arrays : arrays); k++) {
            char *to = s->arrays[k];

            EACH(DO_MIX)
        }
        if (halves) {
            EACH(DO_COPY)
        }
    }
    return i;
}

/* The loop for the shape's numbers; returns how far it went. */
#define HALVES(loop, arrays, ahead) (s->halves ? NAME(loop)(s, arrays, 1, ahead) : NAME(loop)(s, arrays, 0, ahead))
#define ARRAYS(loop, ahead)                                                                                                    \
    (s->n_arrays == 2 ? HALVES(loop, 2, ahead) : s->n_arrays == 3 ? HALVES(loop, 3, ahead) : HALVES(loop, 0, ahead))

static TARGET size_t NAME(run)(int four, const roof_span *span, size_t ahead)
{
    const roof_span own = *span, *s = &own; /* which no store to the arrays can change */

    if (four)
        return ahead != 0 ? ARRAYS(four, ahead) : ARRAYS(four, 0);
    return ahead != 0 ? ARRAYS(plain, ahead) : ARRAYS(plain, 0);
}

#undef LOAD
#undef MIX
#undef COPY
#undef EACH
#undef NTH
#undef DO_LOAD
#undef DO_MIX
#undef DO_COPY
#undef HALVES
#undef ARRAYS
#undef NAME
#undef TARGET
#undef VECTOR
#undef REAL
