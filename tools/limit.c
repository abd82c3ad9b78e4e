/* Loops of the shape of a collective call or of a step: see limit.h. */
#include "limit.h"

#include <stdint.h>
#include <string.h>

#include "base/cpu.h"
#include "base/isa.h"
#include "base/kernels.h"
#include "optim/shard.h"

#define INLINE ZRO__INLINE

enum { LINE = 64, AHEAD = 512 };

#define STEP_VALUE 0x1p-6

/* What a thread does of one parameter. */
typedef struct step_span {
    size_t bytes; /* of each array */
    const char *grads[LIMIT_GRADS];
    char *arrays[LIMIT_ARRAYS];
    char *output;
    int n_arrays, n_grads, halves;
} step_span;

/* Prefetching behind the end does no harm. */
static INLINE void prefetch(const step_span *s, int arrays, int grads, int halves, size_t i)
{
    for (int k = 0; k < (arrays == 0 ? s->n_arrays : arrays); k++)
        __builtin_prefetch(s->arrays[k] + i, 1, 3);
    for (int k = 0; k < (grads == 0 ? s->n_grads : grads); k++)
        __builtin_prefetch(s->grads[k] + (halves ? i / 2 : i), 0, 3);
    if (halves)
        __builtin_prefetch(s->output + i / 2, 1, 3);
}

/* ---- instruction sets ---- */

typedef size_t (*call_fn)(int eight, int stream, const limit_call *shape, float by);
typedef size_t (*span_fn)(int registers, const step_span *span, size_t ahead);

typedef struct isa {
    call_fn call;
    span_fn step[2]; /* f32, f64 */
} isa;

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx512f")))
#define VECTOR 64
#define NAME(x) avx512_f32_##x
#define REAL float
#define STREAM(p, v) _mm512_stream_ps((p), (v))
#include "limit_loops.h"
#define NAME(x) avx512_f64_##x
#define REAL double
#include "limit_loops.h"
#undef TARGET
#undef VECTOR

#define TARGET __attribute__((target("avx2")))
#define VECTOR 32
#define NAME(x) avx2_f32_##x
#define REAL float
#define STREAM(p, v) _mm256_stream_ps((p), (v))
#include "limit_loops.h"
#define NAME(x) avx2_f64_##x
#define REAL double
#include "limit_loops.h"
#undef TARGET
#undef VECTOR

#define BASE_STREAM(p, v) _mm_stream_ps((p), (v))
#else
#define BASE_STREAM(p, v) (*(base_f32_mem *)(void *)(p) = (v))
#endif

#define TARGET
#define VECTOR 16
#define NAME(x) base_f32_##x
#define REAL float
#define STREAM(p, v) BASE_STREAM(p, v)
#include "limit_loops.h"
#define NAME(x) base_f64_##x
#define REAL double
#include "limit_loops.h"

/* The widest registers that there are, whatever the library uses. */
static const isa *best_isa(void)
{
    static const isa isas[] = {
        [ZRO_KERNELS_BASE] = { base_f32_call, { base_f32_step, base_f64_step } },
#if defined(__x86_64__)
        [ZRO_KERNELS_AVX2] = { avx2_f32_call, { avx2_f32_step, avx2_f64_step } },
        [ZRO_KERNELS_AVX512] = { avx512_f32_call, { avx512_f32_step, avx512_f64_step } },
#endif
    };

    return &isas[zro__cpu_best()];
}

/* ---- collective calls ---- */

typedef enum loop_kind { PLAIN, EIGHT, LIBRARY, MEMCPY } loop_kind;

static const struct call_loop {
    const char *name;
    loop_kind kind;
    int stream;
} call_loops[] = {
    { "plain", PLAIN, 0 },    { "eight", EIGHT, 0 },        { "library", LIBRARY, 0 }, { "plain nt", PLAIN, 1 },
    { "eight nt", EIGHT, 1 }, { "library nt", LIBRARY, 1 }, { "memcpy", MEMCPY, 0 },
};

int limit_call_loops(void)
{
    return (int)(sizeof call_loops / sizeof *call_loops);
}

const char *limit_call_name(int loop)
{
    return call_loops[loop].name;
}

int limit_call_fits(int loop, const limit_call *s)
{
    if (s->in_place && s->n_src == 1 && call_loops[loop].kind >= LIBRARY)
        return 0; /* these know that there is nothing to do */
    if (call_loops[loop].kind == MEMCPY)
        return s->n_src == 1 && s->n_dst == 1;
    if (!call_loops[loop].stream)
        return 1;
    for (int k = 0; k < s->n_dst; k++)
        if ((uintptr_t)s->dst[k] % 64 != 0)
            return 0;
    return !s->in_place;
}

static void run_own(int eight, int stream, const limit_call *s, float by)
{
    size_t done = best_isa()->call(eight, stream, s, by);

    for (size_t i = done; i < s->count; i++) {
        float v = s->src[0][i];

        for (int k = 1; k < s->n_src; k++)
            v += s->src[k][i];
        for (int k = 0; k < s->n_dst; k++)
            s->dst[k][i] = s->n_src == 1 ? v : v * by;
    }
}

static void run_library(int stream, const limit_call *s, float by)
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

void limit_call_run(int loop, const limit_call *s, float by)
{
    const struct call_loop *l = &call_loops[loop];

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

/* ---- steps ---- */

static const struct step_loop {
    const char *name;
    int registers, ahead;
} step_loops[] = { { "plain", 1, 0 }, { "four", 4, 0 }, { "eight", 8, 0 }, { "plain ahead", 1, 1 }, { "four ahead", 4, 1 } };

int limit_step_loops(void)
{
    return (int)(sizeof step_loops / sizeof *step_loops);
}

const char *limit_step_name(int loop)
{
    return step_loops[loop].name;
}

size_t limit_step_bytes(const limit_step *shape)
{
    size_t size = zro_dtype_bytes(shape->type);

    return (size_t)shape->n_arrays * 2 * size + (shape->halves ? 4 : (size_t)shape->n_grads * size);
}

static void advance(step_span *s, size_t bytes)
{
    s->bytes -= bytes;
    for (int k = 0; k < s->n_grads; k++)
        s->grads[k] += s->halves ? bytes / 2 : bytes;
    if (s->halves)
        s->output += bytes / 2;
    for (int k = 0; k < s->n_arrays; k++)
        s->arrays[k] += bytes;
}

/* What is left of a register. */
static void run_rest(const step_span *s, zro_dtype type)
{
    for (int k = 0; k < s->n_arrays; k++)
        for (size_t i = 0; i < s->bytes; i += zro_dtype_bytes(type))
            if (type == ZRO_F64)
                *(double *)(void *)(s->arrays[k] + i) = (*(double *)(void *)(s->arrays[k] + i) + STEP_VALUE) / 2;
            else
                *(float *)(void *)(s->arrays[k] + i) = (*(float *)(void *)(s->arrays[k] + i) + (float)STEP_VALUE) / 2;
    if (s->halves)
        memcpy(s->output, s->grads[0], s->bytes / 2);
}

/* What the threads share. */
typedef struct job {
    const limit_step *shape;
    int registers; /* at a time */
    size_t ahead;  /* bytes */
} job;

static void run_elements(const job *j, const limit_param *r, size_t from, size_t to)
{
    const limit_step *shape = j->shape;
    span_fn fn = best_isa()->step[shape->type == ZRO_F64];
    step_span s = { .output = r->output, .n_arrays = shape->n_arrays, .n_grads = shape->n_grads, .halves = shape->halves };

    for (int k = 0; k < shape->n_grads; k++)
        s.grads[k] = r->grads[k];
    for (int k = 0; k < shape->n_arrays; k++)
        s.arrays[k] = r->arrays[k];
    s.bytes = to * zro_dtype_bytes(shape->type);
    advance(&s, from * zro_dtype_bytes(shape->type));
    advance(&s, fn(j->registers, &s, j->ahead));
    advance(&s, fn(1, &s, 0));
    run_rest(&s, shape->type);
}

/* The optimizer's own division of work: blocks, counted parameter by parameter, in equal shares. */
static void run_blocks(void *ctx, size_t first, size_t last)
{
    const job *j = ctx;
    size_t block = 0, next;

    for (size_t i = 0; i < j->shape->n_params && block < last; i++, block = next) {
        const limit_param *r = &j->shape->params[i];

        next = block + zro__blocks_of(r->count);
        if (next > first)
            run_elements(j, r, first > block ? (first - block) * ZRO__BLOCK : 0,
                         last < next ? (last - block) * ZRO__BLOCK : r->count);
    }
}

void limit_step_run(int loop, const limit_step *shape, zro__pool *pool)
{
    size_t ahead = zro__cpu_prefetch() != 0 ? zro__cpu_prefetch() : AHEAD, n_blocks = 0;
    job j = { .shape = shape, .registers = step_loops[loop].registers };

    j.ahead = step_loops[loop].ahead ? ahead * zro_dtype_bytes(shape->type) : 0;
    for (size_t i = 0; i < shape->n_params; i++)
        n_blocks += zro__blocks_of(shape->params[i].count);
    zro__pool_run(pool, run_blocks, &j, n_blocks);
}
