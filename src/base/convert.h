/* Conversions among f32, f64, bf16 and f16, rounded once: the loop, for files that are compiled once per instruction set
 * (base/isa.h).  In the default floating-point mode. */
#ifndef ZRO_BASE_CONVERT_H
#define ZRO_BASE_CONVERT_H

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/isa.h"

/* f64 to f32 such that a second rounding, to 16 bits, gives what one would have: towards zero, and the last bit says whether
 * anything was cut off. */
static ZRO__INLINE float zro__f32_to_odd(double x)
{
    float near = (float)x;
    uint32_t bits = zro__f32_bits(near);

    bits -= fabs((double)near) > fabs(x);
    return zro__f32_of_bits(bits | ((double)near != x));
}

#define ZRO__PAIR(from, to) ((int)(from)*16 + (int)(to))
#define ZRO__CONVERT(from, S, to, D, value)                                                                                    \
    case ZRO__PAIR(from, to): {                                                                                                \
        const S *restrict s = src;                                                                                             \
        D *restrict d = dst;                                                                                                   \
        for (size_t i = 0; i < count; i++)                                                                                     \
            d[i] = value;                                                                                                      \
        return;                                                                                                                \
    }

static __attribute__((noinline)) void zro__convert(void *dst, zro_dtype to, const void *src, zro_dtype from, size_t count)
{
    switch (ZRO__PAIR(from, to)) {
        ZRO__CONVERT(ZRO_F32, zro__f32, ZRO_F64, zro__f64, (double)s[i])
        ZRO__CONVERT(ZRO_F32, zro__f32, ZRO_BF16, zro__h16, zro__bf16_from_f32(s[i]))
        ZRO__CONVERT(ZRO_F32, zro__f32, ZRO_F16, zro__h16, zro__f16_from_f32(s[i]))
        ZRO__CONVERT(ZRO_F64, zro__f64, ZRO_F32, zro__f32, (float)s[i])
        ZRO__CONVERT(ZRO_F64, zro__f64, ZRO_BF16, zro__h16, zro__bf16_from_f32(zro__f32_to_odd(s[i])))
        ZRO__CONVERT(ZRO_F64, zro__f64, ZRO_F16, zro__h16, zro__f16_from_f32(zro__f32_to_odd(s[i])))
        ZRO__CONVERT(ZRO_BF16, zro__h16, ZRO_F32, zro__f32, zro__f32_from_bf16(s[i]))
        ZRO__CONVERT(ZRO_BF16, zro__h16, ZRO_F64, zro__f64, (double)zro__f32_from_bf16(s[i]))
        ZRO__CONVERT(ZRO_BF16, zro__h16, ZRO_F16, zro__h16, zro__f16_from_f32(zro__f32_from_bf16(s[i])))
        ZRO__CONVERT(ZRO_F16, zro__h16, ZRO_F32, zro__f32, zro__f32_from_f16(s[i]))
        ZRO__CONVERT(ZRO_F16, zro__h16, ZRO_F64, zro__f64, (double)zro__f32_from_f16(s[i]))
        ZRO__CONVERT(ZRO_F16, zro__h16, ZRO_BF16, zro__h16, zro__bf16_from_f32(zro__f32_from_f16(s[i])))
    default:
        assert(to == from);
        memcpy(dst, src, count * zro_dtype_bytes(to));
    }
}

#undef ZRO__PAIR
#undef ZRO__CONVERT

#endif
