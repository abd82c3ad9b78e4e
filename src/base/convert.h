/* Conversions among f32, f64, bf16 and f16, rounded once: the loop, for files that are compiled once per instruction set
 * (base/isa.h).  In the default floating-point mode.
 *
 * Between f32 and f16 the processor's own instructions are used where there are any, because plain C takes ten times as many.  They
 * give the same bits as base/dtype.h, those of NaN included. */
#ifndef ZRO_BASE_CONVERT_H
#define ZRO_BASE_CONVERT_H

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/isa.h"

#if defined(__F16C__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

/* f64 to f32 such that a second rounding, to 16 bits, gives what one would have: towards zero, and the last bit says whether
 * anything was cut off. */
static ZRO__INLINE float zro__f32_to_odd(double x)
{
    float near = (float)x;
    uint32_t bits = zro__f32_bits(near);

    bits -= fabs((double)near) > fabs(x);
    return zro__f32_of_bits(bits | ((double)near != x));
}

/* A register of ZRO__HALVES elements, between f16 and f32. */
#if defined(__AVX512F__)
#define ZRO__HALVES 16
#define ZRO__WIDEN(d, s) _mm512_storeu_ps((d), _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(s))))
#define ZRO__NARROW(d, s) _mm256_storeu_si256((void *)(d), _mm512_cvtps_ph(_mm512_loadu_ps(s), _MM_FROUND_TO_NEAREST_INT))
#elif defined(__F16C__)
#define ZRO__HALVES 8
#define ZRO__WIDEN(d, s) _mm256_storeu_ps((void *)(d), _mm256_cvtph_ps(_mm_loadu_si128((const void *)(s))))
#define ZRO__NARROW(d, s)                                                                                                      \
    _mm_storeu_si128((void *)(d), _mm256_cvtps_ph(_mm256_loadu_ps((const void *)(s)), _MM_FROUND_TO_NEAREST_INT))
#else
#define ZRO__HALVES SIZE_MAX
#define ZRO__WIDEN(d, s) ((void)(d), (void)(s))
#define ZRO__NARROW(d, s) ((void)(d), (void)(s))
#endif

/* The whole registers of an array; return how many elements they are. */
static ZRO__INLINE size_t zro__widen_registers(zro__f32 *d, const zro__h16 *s, size_t count)
{
    size_t i = 0;

    for (; count - i >= ZRO__HALVES; i += ZRO__HALVES)
        ZRO__WIDEN(d + i, s + i);
    return i;
}

static ZRO__INLINE size_t zro__narrow_registers(zro__h16 *d, const zro__f32 *s, size_t count)
{
    size_t i = 0;

    for (; count - i >= ZRO__HALVES; i += ZRO__HALVES)
        ZRO__NARROW(d + i, s + i);
    return i;
}

#define ZRO__PAIR(from, to) ((int)(from)*16 + (int)(to))
#define ZRO__CONVERT(from, S, to, D, value) ZRO__CONVERT_FROM(0, from, S, to, D, value)
#define ZRO__CONVERT_FROM(first, from, S, to, D, value)                                                                        \
    case ZRO__PAIR(from, to): {                                                                                                \
        const S *restrict s = src;                                                                                             \
        D *restrict d = dst;                                                                                                   \
        for (size_t i = (first); i < count; i++)                                                                               \
            d[i] = value;                                                                                                      \
        return;                                                                                                                \
    }

static __attribute__((noinline)) void zro__convert(void *dst, zro_dtype to, const void *src, zro_dtype from, size_t count)
{
    switch (ZRO__PAIR(from, to)) {
        ZRO__CONVERT(ZRO_F32, zro__f32, ZRO_F64, zro__f64, (double)s[i])
        ZRO__CONVERT(ZRO_F32, zro__f32, ZRO_BF16, zro__h16, zro__bf16_from_f32(s[i]))
        ZRO__CONVERT_FROM(zro__narrow_registers(d, s, count), ZRO_F32, zro__f32, ZRO_F16, zro__h16, zro__f16_from_f32(s[i]))
        ZRO__CONVERT(ZRO_F64, zro__f64, ZRO_F32, zro__f32, (float)s[i])
        ZRO__CONVERT(ZRO_F64, zro__f64, ZRO_BF16, zro__h16, zro__bf16_from_f32(zro__f32_to_odd(s[i])))
        ZRO__CONVERT(ZRO_F64, zro__f64, ZRO_F16, zro__h16, zro__f16_from_f32(zro__f32_to_odd(s[i])))
        ZRO__CONVERT(ZRO_BF16, zro__h16, ZRO_F32, zro__f32, zro__f32_from_bf16(s[i]))
        ZRO__CONVERT(ZRO_BF16, zro__h16, ZRO_F64, zro__f64, (double)zro__f32_from_bf16(s[i]))
        ZRO__CONVERT(ZRO_BF16, zro__h16, ZRO_F16, zro__h16, zro__f16_from_f32(zro__f32_from_bf16(s[i])))
        ZRO__CONVERT_FROM(zro__widen_registers(d, s, count), ZRO_F16, zro__h16, ZRO_F32, zro__f32, zro__f32_from_f16(s[i]))
        ZRO__CONVERT(ZRO_F16, zro__h16, ZRO_F64, zro__f64, (double)zro__f32_from_f16(s[i]))
        ZRO__CONVERT(ZRO_F16, zro__h16, ZRO_BF16, zro__h16, zro__bf16_from_f32(zro__f32_from_f16(s[i])))
    default:
        assert(to == from);
        memcpy(dst, src, count * zro_dtype_bytes(to));
    }
}

#undef ZRO__HALVES
#undef ZRO__WIDEN
#undef ZRO__NARROW
#undef ZRO__PAIR
#undef ZRO__CONVERT
#undef ZRO__CONVERT_FROM

#endif
