/* Element types: what is known of them, and the conversions between the 16-bit types and f32.
 *
 * The conversions round to nearest even, keep subnormals, and keep a NaN a NaN (quiet).  They are plain C without branches,
 * so that loops over them vectorise with every instruction set and give the same bits with each; the processor's own bf16
 * instruction, which flushes subnormals, is never used.  They assume the default floating-point mode (base/cpu.h). */
#ifndef ZRO_BASE_DTYPE_H
#define ZRO_BASE_DTYPE_H

#include <stdint.h>
#include <string.h>

#include "zro.h"

enum { ZRO__DTYPES = 8 };
extern const uint8_t zro__dtype_sizes[ZRO__DTYPES];

/* zro_dtype_bytes, for the path of a small call: one takes 0.12 us, and asks ten times. */
static inline size_t zro__dtype_bytes(zro_dtype dtype)
{
    return (size_t)dtype < ZRO__DTYPES ? zro__dtype_sizes[dtype] : 0;
}

int zro__dtype_is_known(zro_dtype dtype);
int zro__dtype_is_float(zro_dtype dtype); /* f32, f64, bf16, f16 */

/* For error texts: "f32", ..., "of an unknown type". */
const char *zro__dtype_text(zro_dtype dtype);

/* Bytes of an element of one of the floating-point types; inlined into loops. */
static inline size_t zro__float_bytes(zro_dtype dtype)
{
    return dtype == ZRO_F32 ? 4 : dtype == ZRO_F64 ? 8 : 2;
}

/* Without the sign; signed, because that is what every vector unit compares. */
#define ZRO__MAGNITUDE(bits) ((int32_t)((bits)&0x7fffffffu))

static inline uint32_t zro__f32_bits(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float zro__f32_of_bits(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline float zro__f32_from_bf16(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;

    return zro__f32_of_bits(bits | (ZRO__MAGNITUDE(bits) > 0x7f800000 ? 0x00400000u : 0));
}

/* Of a NaN the upper half stays, made quiet; others are rounded.  Masks instead of a choice between two results, because each
 * result would be narrowed by itself. */
static inline uint16_t zro__bf16_from_f32(float x)
{
    uint32_t bits = zro__f32_bits(x), nan = -(uint32_t)(ZRO__MAGNITUDE(bits) > 0x7f800000);
    uint32_t half = 0x7fffu + (bits >> 16 & 1);

    return (uint16_t)(((bits | (nan & 0x00400000u)) + (half & ~nan)) >> 16);
}

static inline float zro__f32_from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    int32_t mag = h & 0x7fff;
    uint32_t shifted = (uint32_t)mag << 13;
    uint32_t normal = shifted + ((uint32_t)(127 - 15) << 23);
    uint32_t special = 0x7f800000u | shifted | (mag > 0x7c00 ? 0x00400000u : 0);
    uint32_t small = zro__f32_bits((float)mag * 0x1p-24f); /* exact, and a normal f32 */
    uint32_t bits = mag < 0x0400 ? small : normal;

    return zro__f32_of_bits(sign | (mag >= 0x7c00 ? special : bits));
}

static inline uint16_t zro__f16_from_f32(float x)
{
    uint32_t bits = zro__f32_bits(x), sign = bits >> 16 & 0x8000u;
    int32_t mag = ZRO__MAGNITUDE(bits);
    uint32_t normal = ((uint32_t)mag - ((uint32_t)(127 - 15) << 23) + 0xfffu + (bits >> 13 & 1)) >> 13;
    /* The last bit of 0.5 weighs what the last bit of a subnormal f16 does, so the addition rounds for us. */
    uint32_t small = zro__f32_bits(zro__f32_of_bits((uint32_t)mag) + 0.5f) - 0x3f000000u;
    uint32_t nan = 0x7e00u | (bits >> 13 & 0x3ffu);
    uint32_t h = mag < 0x38800000 ? small : normal; /* 2^-14, the least normal f16 */

    h = mag >= 0x47800000 ? 0x7c00u : h; /* 2^16; what rounds up to it is infinite by `normal` already */
    return (uint16_t)(sign | (mag > 0x7f800000 ? nan : h));
}

#endif
