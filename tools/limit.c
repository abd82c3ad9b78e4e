/* Loops of the shape of a collective: see limit.h. */
#include "limit.h"

#include <stdint.h>
#include <string.h>

#include "base/kernels.h"

#define INLINE inline __attribute__((always_inline))

#if defined(__x86_64__)
#include <immintrin.h>

#define NAME(x) avx512_##x
#define TARGET __attribute__((target("avx512f")))
#define VECTOR 64
#define STREAM(p, v) _mm512_stream_ps((p), (v))
#include "limit_loop.h"

#define NAME(x) avx2_##x
#define TARGET __attribute__((target("avx2")))
#define VECTOR 32
#define STREAM(p, v) _mm256_stream_ps((p), (v))
#include "limit_loop.h"

#define NAME(x) base_##x
#define TARGET
#define VECTOR 16
#define STREAM(p, v) _mm_stream_ps((p), (v))
#include "limit_loop.h"

#else

#define NAME(x) base_##x
#define TARGET
#define VECTOR 16
#define STREAM(p, v) (*(base_mem *)(void *)(p) = (v))
#include "limit_loop.h"

#endif

typedef enum loop_kind { PLAIN, EIGHT, LIBRARY, MEMCPY } loop_kind;

static const struct loop {
    const char *name;
    loop_kind kind;
    int stream;
} loops[] = {
    { "plain", PLAIN, 0 },    { "eight", EIGHT, 0 },        { "library", LIBRARY, 0 }, { "plain nt", PLAIN, 1 },
    { "eight nt", EIGHT, 1 }, { "library nt", LIBRARY, 1 }, { "memcpy", MEMCPY, 0 },
};

int limit_loops(void)
{
    return (int)(sizeof loops / sizeof *loops);
}

const char *limit_name(int loop)
{
    return loops[loop].name;
}

int limit_fits(int loop, const limit_shape *s)
{
    if (s->in_place && s->n_src == 1 && loops[loop].kind >= LIBRARY)
        return 0; /* these know that there is nothing to do */
    if (loops[loop].kind == MEMCPY)
        return s->n_src == 1 && s->n_dst == 1;
    if (!loops[loop].stream)
        return 1;
    for (int k = 0; k < s->n_dst; k++)
        if ((uintptr_t)s->dst[k] % 64 != 0)
            return 0;
    return !s->in_place;
}

static void run_own(int eight, int stream, const limit_shape *s, float by)
{
    size_t done = 0;

#if defined(__x86_64__)
    switch (zro__kernels_get(ZRO_KERNELS_AUTO)->which) {
    case ZRO_KERNELS_AVX512:
        done = avx512_run(eight, stream, s, by);
        break;
    case ZRO_KERNELS_AVX2:
        done = avx2_run(eight, stream, s, by);
        break;
    default:
        done = base_run(eight, stream, s, by);
    }
#else
    done = base_run(eight, stream, s, by);
#endif
    for (size_t i = done; i < s->count; i++) {
        float v = s->src[0][i];

        for (int k = 1; k < s->n_src; k++)
            v += s->src[k][i];
        for (int k = 0; k < s->n_dst; k++)
            s->dst[k][i] = s->n_src == 1 ? v : v * by;
    }
}

static void run_library(int stream, const limit_shape *s, float by)
{
    const zro__kernels *kernels = zro__kernels_get(ZRO_KERNELS_AUTO);
    zro__reduce r = { .dtype = ZRO_F32,
                      .op = by == 1 ? ZRO_SUM : ZRO_AVG,
                      .n = s->n_src,
                      .cell = &s->n_src,
                      .n_cells = 1,
                      .divisor = 1 / (double)by };

    if (s->n_src > 1)
        kernels->reduce(&r, (const void *const *)s->src, (void *const *)s->dst, s->n_dst, s->count, stream);
    else
        kernels->copy((void *const *)s->dst, s->n_dst, s->src[0], s->count * sizeof(float), stream);
}

void limit_run(int loop, const limit_shape *s, float by)
{
    const struct loop *l = &loops[loop];

    if (s->n_dst == 0 || s->count == 0)
        return;
    if (l->kind == MEMCPY)
        memcpy(s->dst[0], s->src[0], s->count * sizeof(float));
    else if (l->kind == LIBRARY)
        run_library(l->stream, s, by);
    else
        run_own(l->kind == EIGHT, l->stream, s, by);
    if (l->stream)
        zro__kernels_get(ZRO_KERNELS_AUTO)->fence();
}
