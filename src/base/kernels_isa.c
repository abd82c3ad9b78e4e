/* Kernels: see kernels.h.  This file is compiled once per instruction set (base/isa.h) and defines the table
 * zro__kernels_<isa>. The only intrinsics here are stores, because C cannot say "around the caches".
 *
 * A reduction goes through tiles of 64 elements: the sum of the sources into a tile that stays in the first-level cache, from
 * there to every destination.  Larger tiles are slower: their phases no longer overlap in the processor.  Sums of f32 and f64
 * in one cell keep what they have in registers instead. */
#include "base/kernels.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "base/convert.h"
#include "base/cpu.h"
#include "base/dtype.h"
#include "base/isa.h"

#define QUOTE_(a) #a
#define QUOTE(a) QUOTE_(a)

#define INLINE ZRO__INLINE
#define NOINLINE __attribute__((noinline))
#define ALIGNED __attribute__((aligned(64)))

typedef zro__f32 f32;
typedef zro__f64 f64;
typedef zro__h16 bf16;
typedef zro__h16 f16;
typedef int8_t i8 ZRO__ELEMENT;
typedef uint8_t u8 ZRO__ELEMENT;
typedef int32_t i32 ZRO__ELEMENT;
typedef int64_t i64 ZRO__ELEMENT;

static const double zeros[ZRO__TILE] ALIGNED; /* the values of an absent source, in every type */

/* Stores around the caches: of a whole vector, to an address aligned to one. */
#if defined(__AVX512F__)
#include <immintrin.h>
#define STREAM(p, v) _mm512_stream_si512((vector *)(void *)(p), (__m512i)(v))
enum { VECTOR = 64 };
#elif defined(__AVX2__)
#include <immintrin.h>
#define STREAM(p, v) _mm256_stream_si256((vector *)(void *)(p), (__m256i)(v))
enum { VECTOR = 32 };
#elif defined(__SSE2__)
#include <emmintrin.h>
#define STREAM(p, v) _mm_stream_si128((vector *)(void *)(p), (__m128i)(v))
enum { VECTOR = 16 };
#else
#define STREAM(p, v) (*(vector_at *)(void *)(p) = (vector_at)(v))
enum { VECTOR = 16 };
#endif

/* A register, and one anywhere in memory. */
typedef long long vector __attribute__((vector_size(VECTOR), may_alias));
typedef long long vector_at __attribute__((vector_size(VECTOR), aligned(1), may_alias));

/* stream: `dst` is aligned to a vector. */
static INLINE void store(unsigned char *dst, const unsigned char *src, size_t bytes, int stream)
{
    size_t whole = bytes - bytes % VECTOR, i;

    if (stream)
        for (i = 0; i < whole; i += VECTOR)
            STREAM(dst + i, *(const vector_at *)(src + i));
    else
        for (i = 0; i < whole; i += VECTOR)
            *(vector_at *)(dst + i) = *(const vector_at *)(src + i);
    if (whole < bytes)
        memcpy(dst + whole, src + whole, bytes - whole);
}

static void fence(void)
{
#if defined(__SSE2__)
    _mm_sfence();
#else
    atomic_thread_fence(memory_order_release);
#endif
}

/* Bytes from `p` to the next line of the caches. */
static size_t to_line(const void *p)
{
    return -(uintptr_t)p & 63;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Destinations as bits.  Those from the 64th on have none, and are stored to in the ordinary way without prefetching. */
static INLINE int has_bit(uint64_t mask, int j)
{
    return j < 64 && (mask >> j & 1) != 0;
}

static uint64_t find_sources(const zro__reduce *r, const void *const *src, void *const *dst, int n_dst)
{
    uint64_t mask = 0;

    for (int j = 0; j < n_dst && j < 64; j++)
        for (int k = 0; k < r->n; k++)
            if (dst[j] == src[k])
                mask |= (uint64_t)1 << j;
    return mask;
}

static uint64_t find_aligned(void *const *dst, int n_dst, size_t offset)
{
    uint64_t mask = 0;

    for (int j = 0; j < n_dst && j < 64; j++)
        if (((uintptr_t)dst[j] + offset) % VECTOR == 0)
            mask |= (uint64_t)1 << j;
    return mask;
}

/* A reduction under way. */
typedef struct job {
    const zro__reduce *r;
    const void *const *src;
    void *const *dst;
    int n_dst;
    uint64_t in_place; /* bit j: destination j is also a source */
    uint64_t streamed; /* bit j: stores to destination j go around the caches */
    size_t count;      /* elements */
    size_t ahead;      /* how many elements ahead to prefetch; 0: not at all */
    int only_in_place; /* 1: nothing but destinations that are sources is prefetched */
} job;

/* Brings what the m elements of `size` bytes at `at`, plus the distance, need into the caches. */
static INLINE void prefetch(const job *j, size_t at, size_t m, size_t size)
{
    size_t from, to;

    if (j->ahead == 0 || j->count - at <= j->ahead)
        return;
    from = (at + j->ahead) * size;
    to = from + least(m, j->count - at - j->ahead) * size;
    for (int d = 0; d < j->n_dst; d++)
        if (has_bit(j->in_place, d))
            zro__prefetch(j->dst[d], from, to, 1);
    for (int k = 0; k < j->r->n && !j->only_in_place; k++)
        if (j->src[k] != NULL)
            zro__prefetch(j->src[k], from, to, 0);
}

/* The registers that a sum is kept in: 256 bytes, or eight registers where that would be more.  More loads that stand together
 * would be more instructions for the processor's prefetchers to follow: with 512 bytes they were measured to lose track of
 * some, and which ones depended on the addresses of the code (Zen 5; up to a third of the speed). */
#if defined(__AVX512F__)
#define EACH(DO) DO(0) DO(1) DO(2) DO(3)
enum { AT_ONCE = 4 };
#else
#define EACH(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)
enum { AT_ONCE = 8 };
#endif
#define DO_LOAD(i) reg v##i = s[i];
#define DO_ADD(i) v##i += s[i];
#define DO_MULTIPLY(i) v##i *= by;
#define DO_DIVIDE(i) v##i /= by;
#define DO_STORE(i) d[i] = v##i;
#define DO_STREAM(i) STREAM(d + i, v##i);

#define FLOATING 1

#define T f32
#define PLAIN float
#include "base/kernels_tile.h"

#define T f64
#define PLAIN double
#include "base/kernels_tile.h"

/* A NaN need not be made quiet on its way in: it is on the way out. */
static INLINE float bf16_wide(uint16_t h)
{
    return zro__f32_of_bits((uint32_t)h << 16);
}

#define T bf16
#define A f32
#define GET bf16_wide
#define PUT zro__bf16_from_f32
#include "base/kernels_tile.h"

#define T f16
#define A f32
#define GET zro__f32_from_f16
#define PUT zro__f16_from_f32
#include "base/kernels_tile.h"

#undef FLOATING
#define FLOATING 0

/* Integers wrap around, which in C only unsigned ones do. */
#define T i8
#define ADD(a, b) ((int8_t)(uint8_t)((uint8_t)(a) + (uint8_t)(b)))
#include "base/kernels_tile.h"

#define T u8
#define ADD(a, b) ((uint8_t)((a) + (b)))
#include "base/kernels_tile.h"

#define T i32
#define ADD(a, b) ((int32_t)((uint32_t)(a) + (uint32_t)(b)))
#include "base/kernels_tile.h"

#define T i64
#define ADD(a, b) ((int64_t)((uint64_t)(a) + (uint64_t)(b)))
#include "base/kernels_tile.h"

typedef void (*tile_fn)(const zro__reduce *r, const void *const *src, size_t at, size_t m, void *restrict out);

static const tile_fn tile_of[] = {
    [ZRO_F32] = f32_tile, [ZRO_F64] = f64_tile, [ZRO_BF16] = bf16_tile, [ZRO_F16] = f16_tile,
    [ZRO_I8] = i8_tile,   [ZRO_U8] = u8_tile,   [ZRO_I32] = i32_tile,   [ZRO_I64] = i64_tile,
};

/* Whether a sum needs no more than registers: one cell, without weights. */
static INLINE int is_plain(const zro__reduce *r)
{
    return r->n_cells == 1 && r->weight == NULL && (r->op == ZRO_SUM || r->op == ZRO_AVG);
}

static void reduce_tile(const zro__reduce *r, const void *const *src, size_t at, size_t m, void *out)
{
    if (m == ZRO__TILE && r->dtype == ZRO_F32 && is_plain(r))
        f32_quick(r, src, at, out);
    else if (m == ZRO__TILE && r->dtype == ZRO_F64 && is_plain(r))
        f64_quick(r, src, at, out);
    else
        tile_of[r->dtype](r, src, at, m, out);
}

/* Goes as far as it can without a tile in memory, and returns how far. */
static size_t direct(const job *j, size_t at)
{
    if (!is_plain(j->r))
        return at;
    return j->r->dtype == ZRO_F32 ? f32_direct(j, at) : j->r->dtype == ZRO_F64 ? f64_direct(j, at) : at;
}

static NOINLINE void reduce_all(job *j, int stream)
{
    enum { FEW_BYTES = 4096 };
    unsigned char out[ZRO__TILE * sizeof(double)] ALIGNED;
    size_t size = zro_dtype_bytes(j->r->dtype), at = 0, head = 0, m;
    tile_fn tile = tile_of[j->r->dtype];

    /* The first tile is cut so that the others begin at a line of the first destination, if there are enough to gain by it. */
    if (j->n_dst > 0 && (stream || j->count * size > FEW_BYTES) && to_line(j->dst[0]) % size == 0)
        head = least(to_line(j->dst[0]) / size, j->count);
    if (stream)
        j->streamed = find_aligned(j->dst, j->n_dst, head * size) & ~j->in_place;
    if (head == 0)
        at = direct(j, at);
    while (at < j->count) {
        m = at < head ? head : least(ZRO__TILE, j->count - at);
        prefetch(j, at, m, size);
        tile(j->r, j->src, at, m, out);
        for (int d = 0; d < j->n_dst; d++)
            store((unsigned char *)j->dst[d] + at * size, out, m * size, at >= head && has_bit(j->streamed, d));
        at += m;
        if (at == head)
            at = direct(j, at);
    }
}

enum {
    SHARED_AHEAD = 512,
    SHARED_MOST = 128 << 10 /* bytes; of more it was measured to be worth less than nothing (Zen 5) */
};

static void reduce(const zro__reduce *r, const void *const *src, void *const *dst, int n_dst, size_t count, int stream)
{
    job j = { r, src, dst, n_dst, find_sources(r, src, dst, n_dst), 0, count, zro__cpu_prefetch(), 0 };
    zro__fpmode mode;

    /* What a peer has just written lies in its caches: a line that is asked for to be written is asked for once, not twice.  The first
     * lines, too, are asked for all at once: of the 32 KB of each of two ranks that add up 64 KB they are a sixteenth. */
    if (j.ahead == 0 && j.in_place != 0 && count > SHARED_AHEAD && count <= SHARED_MOST / zro_dtype_bytes(r->dtype)) {
        j.ahead = SHARED_AHEAD;
        j.only_in_place = 1;
        for (int d = 0; d < n_dst; d++)
            if (has_bit(j.in_place, d))
                zro__prefetch(dst[d], 0, SHARED_AHEAD * zro_dtype_bytes(r->dtype), 1);
    }

    assert(r->n >= 1 && r->n_cells >= 1);
    assert(r->op != ZRO_AVG || zro__dtype_is_float(r->dtype));
    assert(r->op == ZRO_AVG || r->weight == NULL);
    zro__fpmode_enter(&mode);
    reduce_all(&j, stream);
    zro__fpmode_leave(&mode);
}

static void copy(void *const *dst, int n_dst, const void *src, size_t bytes, int stream)
{
    enum { PIECE = 1024 }; /* small enough to be in the first-level cache for the second destination */
    size_t at, m, head;
    uint64_t aligned;

    if (n_dst == 1 && !stream && dst[0] != src) {
        memcpy(dst[0], src, bytes);
        return;
    }
    head = n_dst > 0 ? least(to_line(dst[0]), bytes) : 0;
    aligned = find_aligned(dst, n_dst, head);
    for (at = 0; at < bytes; at += m) {
        m = at < head ? head : least(PIECE, bytes - at);
        for (int j = 0; j < n_dst; j++)
            if (dst[j] != src)
                store((unsigned char *)dst[j] + at, (const unsigned char *)src + at, m,
                      stream && at >= head && has_bit(aligned, j));
    }
}

static void convert(void *dst, zro_dtype to, const void *src, zro_dtype from, size_t count)
{
    zro__fpmode mode;

    assert(zro__dtype_is_float(to) && zro__dtype_is_float(from));
    zro__fpmode_enter(&mode);
    zro__convert(dst, to, src, from, count);
    zro__fpmode_leave(&mode);
}

enum { LANES = 16 };

static double larger(double a, double b)
{
    return ((a > b) | (a != a)) ? a : b;
}

/* Each lane takes every sixteenth element, whatever the width of the registers is. */
static NOINLINE double norm_lanes(const double *x, size_t count, double p)
{
    const int largest = p == (double)INFINITY;
    double lane[LANES] = { 0 };
    size_t l, i;

    if (p == 2)
        for (i = 0; i < count; i += LANES)
            for (l = 0; l < LANES; l++)
                lane[l] += x[i + l] * x[i + l];
    else if (largest)
        for (i = 0; i < count; i += LANES)
            for (l = 0; l < LANES; l++)
                lane[l] = larger(lane[l], fabs(x[i + l]));
    else if (p == 1)
        for (i = 0; i < count; i += LANES)
            for (l = 0; l < LANES; l++)
                lane[l] += fabs(x[i + l]);
    else
        for (i = 0; i < count; i += LANES)
            for (l = 0; l < LANES; l++)
                lane[l] += pow(fabs(x[i + l]), p);
    for (size_t half = LANES / 2; half > 0; half /= 2)
        for (l = 0; l < half; l++)
            lane[l] = largest ? larger(lane[l], lane[l + half]) : lane[l] + lane[l + half];
    return lane[0];
}

static double block_norm(const void *src, zro_dtype dtype, size_t count, double p)
{
    double x[ZRO__BLOCK] ALIGNED, norm;
    size_t padded = (count + LANES - 1) / LANES * LANES;
    zro__fpmode mode;

    assert(count <= ZRO__BLOCK && zro__dtype_is_float(dtype) && p > 0);
    zro__fpmode_enter(&mode);
    zro__convert(x, ZRO_F64, src, dtype, count);
    memset(x + count, 0, (padded - count) * sizeof *x); /* zeros change neither sums nor the maximum */
    norm = norm_lanes(x, padded, p);
    zro__fpmode_leave(&mode);
    return norm;
}

enum { which_base = ZRO_KERNELS_BASE, which_avx2 = ZRO_KERNELS_AVX2, which_avx512 = ZRO_KERNELS_AVX512 };

const zro__kernels ZRO__OF_ISA(zro__kernels_) = {
    QUOTE(ZRO__ISA), (zro_kernels)ZRO__OF_ISA(which_), reduce, reduce_tile, copy, fence, convert, block_norm,
};
