/* Loops of the shape of a step: see roof.h. */
#include "roof.h"

#include <string.h>

#include "base/cpu.h"
#include "base/kernels.h"

#define INLINE inline __attribute__((always_inline))

enum { LINE = 64, AHEAD = 512 };

#define ROOF_VALUE 0x1p-6

/* A piece of a run. */
typedef struct roof_span {
    size_t bytes; /* of each array */
    const char *grad;
    char *arrays[ROOF_ARRAYS];
    char *output;
    int n_arrays, halves;
} roof_span;

static const struct loop {
    const char *name;
    int four, ahead;
} loops[] = { { "plain", 0, 0 }, { "four", 1, 0 }, { "plain ahead", 0, 1 }, { "four ahead", 1, 1 } };

/* Prefetching behind the end does no harm. */
static INLINE void prefetch(const roof_span *s, int arrays, int halves, size_t i)
{
    for (int k = 0; k < (arrays == 0 ? s->n_arrays : arrays); k++)
        __builtin_prefetch(s->arrays[k] + i, 1, 3);
    __builtin_prefetch(s->grad + (halves ? i / 2 : i), 0, 3);
    if (halves)
        __builtin_prefetch(s->output + i / 2, 1, 3);
}

#if defined(__x86_64__)

#define NAME(x) avx512_f32_##x
#define TARGET __attribute__((target("avx512f")))
#define VECTOR 64
#define REAL float
#include "roof_loop.h"

#define NAME(x) avx512_f64_##x
#define TARGET __attribute__((target("avx512f")))
#define VECTOR 64
#define REAL double
#include "roof_loop.h"

#define NAME(x) avx2_f32_##x
#define TARGET __attribute__((target("avx2")))
#define VECTOR 32
#define REAL float
#include "roof_loop.h"

#define NAME(x) avx2_f64_##x
#define TARGET __attribute__((target("avx2")))
#define VECTOR 32
#define REAL double
#include "roof_loop.h"

#endif

#define NAME(x) base_f32_##x
#define TARGET
#define VECTOR 16
#define REAL float
#include "roof_loop.h"

#define NAME(x) base_f64_##x
#define TARGET
#define VECTOR 16
#define REAL double
#include "roof_loop.h"

typedef size_t (*span_fn)(int four, const roof_span *span, size_t ahead);

/* The widest registers that there are, whatever the optimizer uses. */
static span_fn find_loop(zro_dtype type)
{
#if defined(__x86_64__)
    switch (zro__cpu_best()) {
    case ZRO_KERNELS_AVX512:
        return type == ZRO_F64 ? avx512_f64_run : avx512_f32_run;
    case ZRO_KERNELS_AVX2:
        return type == ZRO_F64 ? avx2_f64_run : avx2_f32_run;
    default:
        break;
    }
#endif
    return type == ZRO_F64 ? base_f64_run : base_f32_run;
}

int roof_loops(void)
{
    return (int)(sizeof loops / sizeof *loops);
}

const char *roof_name(int loop)
{
    return loops[loop].name;
}

size_t roof_bytes(const roof_shape *shape)
{
    size_t size = zro_dtype_bytes(shape->type);

    return (size_t)shape->n_arrays * 2 * size + (shape->halves ? 4 : size);
}

/* ---- pieces ---- */

static void advance(roof_span *s, size_t bytes)
{
    s->bytes -= bytes;
    s->grad += s->halves ? bytes / 2 : bytes;
    if (s->halves)
        s->output += bytes / 2;
    for (int k = 0; k < s->n_arrays; k++)
        s->arrays[k] += bytes;
}

/* What is left of a register. */
static void run_rest(const roof_span *s, zro_dtype type)
{
    for (int k = 0; k < s->n_arrays; k++)
        for (size_t i = 0; i < s->bytes; i += zro_dtype_bytes(type))
            if (type == ZRO_F64)
                *(double *)(void *)(s->arrays[k] + i) = (*(double *)(void *)(s->arrays[k] + i) + ROOF_VALUE) / 2;
            else
                *(float *)(void *)(s->arrays[k] + i) = (*(float *)(void *)(s->arrays[k] + i) + (float)ROOF_VALUE) / 2;
    if (s->halves)
        memcpy(s->output, s->grad, s->bytes / 2);
}

/* One thread's part of a run of a loop. */
typedef struct job {
    const roof_shape *shape;
    int four;
    size_t ahead; /* bytes */
    size_t n_blocks, parts;
} job;

static void run_elements(const job *j, const roof_run *r, size_t from, size_t to)
{
    const roof_shape *shape = j->shape;
    span_fn fn = find_loop(shape->type);
    roof_span s = { .grad = r->grad, .output = r->output, .n_arrays = shape->n_arrays, .halves = shape->halves };

    for (int k = 0; k < shape->n_arrays; k++)
        s.arrays[k] = r->arrays[k];
    s.bytes = to * zro_dtype_bytes(shape->type);
    advance(&s, from * zro_dtype_bytes(shape->type));
    advance(&s, fn(j->four, &s, j->ahead));
    advance(&s, fn(0, &s, 0));
    run_rest(&s, shape->type);
}

static size_t blocks_of(size_t count)
{
    return count > 0 ? (count - 1) / ZRO__BLOCK + 1 : 1;
}

static size_t cut_at(const job *j, size_t k)
{
    size_t each = j->n_blocks / j->parts, more = j->n_blocks % j->parts;

    return k * each + (k < more ? k : more);
}

/* The optimizer's own division of work: blocks, counted run by run, in equal parts. */
static void run_parts(void *ctx, size_t first_part, size_t last_part)
{
    const job *j = ctx;
    size_t first = cut_at(j, first_part), last = cut_at(j, last_part), block = 0, next;

    for (size_t i = 0; i < j->shape->n_runs && block < last; i++, block = next) {
        const roof_run *r = &j->shape->runs[i];

        next = block + blocks_of(r->count);
        if (next > first)
            run_elements(j, r, first > block ? (first - block) * ZRO__BLOCK : 0,
                         last < next ? (last - block) * ZRO__BLOCK : r->count);
    }
}

void roof_run_all(int loop, const roof_shape *shape, zro__pool *pool)
{
    size_t ahead = zro__cpu_prefetch() != 0 ? zro__cpu_prefetch() : AHEAD;
    job j = { .shape = shape, .four = loops[loop].four, .parts = zro__pool_threads(pool) };

    j.ahead = loops[loop].ahead ? ahead * zro_dtype_bytes(shape->type) : 0;
    for (size_t i = 0; i < shape->n_runs; i++)
        j.n_blocks += blocks_of(shape->runs[i].count);
    zro__pool_run(pool, run_parts, &j, j.parts);
}
