/* Kernels: the loops over elements, compiled once per instruction set from the same C source and chosen at run time.
 *
 * All tables give the same bits (NaNs may differ in sign and payload).  The rules that make it so: accumulation in f32 for
 * f32, bf16 and f16, in f64 for f64, wrap-around for integers; a fixed order of additions; products rounded before they are
 * added (never fma); results rounded once to their type; the default floating-point mode inside, the caller's afterwards.
 *
 * Arrays need no alignment, not even that of their elements. */
#ifndef ZRO_BASE_KERNELS_H
#define ZRO_BASE_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "zro.h"

enum {
    ZRO__TILE = 64,   /* elements that go through the registers at a time */
    ZRO__BLOCK = 1024 /* elements whose part of a norm is one number; work is divided by blocks, too */
};

/* How several arrays become one.  Inside a cell sources are added in order, starting with the first one's value; then the
 * cells' sums are, in order.  MIN and MAX take the same way; they propagate NaN, and of equal values the last one stays. */
typedef struct zro__reduce {
    zro_dtype dtype;
    zro_op op;
    int n;                /* sources, in order of addition: cell after cell; at least 1 */
    const int *cell;      /* how many sources each cell has; they sum up to n */
    int n_cells;          /* at least 1 */
    const double *weight; /* AVG: n weights in the order of the sources, or NULL */
    double divisor;       /* AVG: number of ranks, or the sum of weights */
} zro__reduce;

/* Whether a divisor is a power of two that can be a number of ranks: its inverse is exact in every type. */
static inline int zro__is_power_of_two(double divisor)
{
    uint32_t whole = divisor >= 1 && divisor <= 0x1p30 ? (uint32_t)divisor : 0;

    return whole != 0 && (double)whole == divisor && (whole & (whole - 1)) == 0;
}

typedef struct zro__kernels {
    const char *name; /* "base", "avx2", "avx512" */
    zro_kernels which;

    /* For i < count: v = r over src[0..n)[i]; dst[j][i] = v for each j < n_dst.  A source that is NULL is a rank without a
     * value: it adds +0.0 (SUM, AVG only).  AVG is for floating-point types only.  A destination may be a source; otherwise
     * they do not overlap.
     * stream: stores to destinations that are no sources bypass the caches where alignment allows it; `fence` before the
     * release that lets others read them. */
    void (*reduce)(const zro__reduce *r, const void *const *src, void *const *dst, int n_dst, size_t count, int stream);

    /* The same for one tile of elements [at, at + m) of the sources, m <= ZRO__TILE, into `out`, which has room for a whole tile; in
     * the default floating-point mode already. */
    void (*reduce_tile)(const zro__reduce *r, const void *const *src, size_t at, size_t m, void *out);

    /* One source to several destinations, read from memory once.  A destination that is the source is skipped. */
    void (*copy)(void *const *dst, int n_dst, const void *src, size_t bytes, int stream);

    /* Orders streamed stores before later stores. */
    void (*fence)(void);

    /* Among f32, f64, bf16 and f16, rounded once; the arrays do not overlap. */
    void (*convert)(void *dst, zro_dtype to, const void *src, zro_dtype from, size_t count);

    /* The part of a norm that one block (count <= ZRO__BLOCK, floating-point) adds to it, in f64.  p = 2: the sum of squares
     * over 16 lanes (lane l adds elements l, l + 16, ...) and a fixed tree; p = infinity: max |x|, propagating NaN; other
     * p > 0: the sum of |x|^p in the same order, with the C library's pow. */
    double (*block_norm)(const void *src, zro_dtype dtype, size_t count, double p);
} zro__kernels;

/* What is compiled once per instruction set (base/isa.h): ZRO__ISA_DECLARE declares the constants name_base, name_avx2 and
 * name_avx512 as far as the build has them; ZRO__ISA_PICK is the address of the one for an instruction set. */
#if defined(__x86_64__)
#define ZRO__ISA_DECLARE(type, name) extern const type name##_base, name##_avx2, name##_avx512
#define ZRO__ISA_PICK(name, kernels)                                                                                           \
    ((kernels) == ZRO_KERNELS_AVX512 ? &name##_avx512 : (kernels) == ZRO_KERNELS_AVX2 ? &name##_avx2 : &name##_base)
#else
#define ZRO__ISA_DECLARE(type, name) extern const type name##_base
#define ZRO__ISA_PICK(name, kernels) ((void)(kernels), &name##_base)
#endif

ZRO__ISA_DECLARE(zro__kernels, zro__kernels);

/* The table by name, AUTO being the best; NULL if this processor or this build has no such. */
const zro__kernels *zro__kernels_get(zro_kernels which);

#endif
