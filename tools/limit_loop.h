/* Two loops of a shape, as a template: limit.c includes this file once for each instruction set, having defined
 *
 *   NAME(x)   the functions' names      TARGET        the attribute that allows the instructions
 *   VECTOR    bytes of a register       STREAM(p, v)  a store around the caches, to an aligned address
 *
 * `plain` takes a register at a time; `eight` loads eight of a source together and stores them together. */

typedef float NAME(reg) __attribute__((vector_size(VECTOR)));
typedef float NAME(mem) __attribute__((vector_size(VECTOR), aligned(4), may_alias));

#define AT(p) ((p) + i)
#define LOAD(p) (*(const NAME(mem) *)(const void *)(p))
#define PUT(p, v)                                                                                                              \
    do {                                                                                                                       \
        if (stream)                                                                                                            \
            STREAM(p, v);                                                                                                      \
        else                                                                                                                   \
            *(NAME(mem) *)(void *)(p) = (v);                                                                                   \
    } while (0)

/* All numbers but `by` are constants at each call; 0 sources or destinations: as many as the shape has. */
static INLINE TARGET size_t NAME(plain)(const limit_shape *s, float by, int n_src, int n_dst, int stream)
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

static INLINE TARGET size_t NAME(eight)(const limit_shape *s, float by, int n_src, int n_dst, int stream)
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

static TARGET size_t NAME(run)(int eight, int stream, const limit_shape *s, float by)
{
    if (eight)
        return stream ? SPECIALISED(eight, 1) : SPECIALISED(eight, 0);
    return stream ? SPECIALISED(plain, 1) : SPECIALISED(plain, 0);
}

#undef AT
#undef LOAD
#undef PUT
#undef EACH
#undef NTH
#undef DO_LOAD
#undef DO_ADD
#undef DO_SCALE
#undef DO_PUT
#undef SPECIALISED
#undef NAME
#undef TARGET
#undef VECTOR
#undef STREAM
