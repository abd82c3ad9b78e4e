/* The pure reference: see reference.h.  Numbers of any floating-point type are kept in a double, which holds all of them; only
 * the operations know the accumulation type.  Slow on purpose, and written differently from the library's conversions. */
#include "reference.h"

#include <math.h>
#include <string.h>

/* A 16-bit format: bits of its exponent and of its mantissa. */
typedef struct format {
    int exponent, mantissa;
} format;

static const format bf16 = { 8, 7 }, f16 = { 5, 10 };

static double decode(format f, uint16_t h)
{
    int top = (1 << f.exponent) - 1, bias = top / 2;
    int e = h >> f.mantissa & top, m = h & ((1 << f.mantissa) - 1);
    double x;

    if (e == top)
        x = m != 0 ? (double)NAN : (double)INFINITY;
    else if (e == 0)
        x = ldexp(m, 1 - bias - f.mantissa);
    else
        x = ldexp(m + (1 << f.mantissa), e - bias - f.mantissa);
    return h >> 15 != 0 ? -x : x;
}

static uint16_t encode(format f, double x)
{
    int top = (1 << f.exponent) - 1, bias = top / 2, e;
    unsigned sign = signbit(x) ? 0x8000u : 0, infinite = (unsigned)top << f.mantissa;
    double steps;

    if (isnan(x))
        return (uint16_t)(sign | infinite | 1u << (f.mantissa - 1));
    if (isinf(x) || x == 0)
        return (uint16_t)(sign | (x == 0 ? 0 : infinite));
    frexp(x, &e);
    e = e - 1 < 1 - bias ? 1 - bias : e - 1;           /* of the leading bit; subnormals share the least one */
    steps = nearbyint(ldexp(fabs(x), f.mantissa - e)); /* in units of the last place, at most twice 2^mantissa */
    steps += ldexp(e + bias - 1, f.mantissa);          /* a carry out of the mantissa goes into the exponent */
    return (uint16_t)(sign | (steps >= infinite ? infinite : (unsigned)steps));
}

double reference_get(zro_dtype dtype, const void *array, size_t i)
{
    const char *at = (const char *)array + i * zro_dtype_bytes(dtype);
    double d = 0;
    float f;
    uint16_t h;

    if (dtype == ZRO_F64) {
        memcpy(&d, at, sizeof d);
    } else if (dtype == ZRO_F32) {
        memcpy(&f, at, sizeof f);
        d = f;
    } else {
        memcpy(&h, at, sizeof h);
        d = decode(dtype == ZRO_BF16 ? bf16 : f16, h);
    }
    return d;
}

void reference_put(zro_dtype dtype, void *array, size_t i, double x)
{
    char *at = (char *)array + i * zro_dtype_bytes(dtype);

    if (dtype == ZRO_F64) {
        memcpy(at, &x, sizeof x);
    } else if (dtype == ZRO_F32) {
        float f = (float)x;

        memcpy(at, &f, sizeof f);
    } else {
        uint16_t h = encode(dtype == ZRO_BF16 ? bf16 : f16, x);

        memcpy(at, &h, sizeof h);
    }
}

/* Rounded to the accumulation type. */
static double acc(zro_dtype dtype, double x)
{
    return dtype == ZRO_F64 ? x : (double)(float)x;
}

/* For f32 the operation in double and then the rounding to float are together one correct rounding. */
static double combine(zro_dtype dtype, zro_op op, double a, double b)
{
    if (op == ZRO_MIN)
        return isnan(a) || a < b ? a : b;
    if (op == ZRO_MAX)
        return isnan(a) || a > b ? a : b;
    return acc(dtype, a + b);
}

static void reduce_float(zro_dtype dtype, zro_op op, int ranks, const int32_t *cells, const double *weights,
                         const unsigned char *present, const void *const *in, void *out, size_t i)
{
    double total = 0, divisor = 0;

    for (int first = 0, n_cells = 0; first < ranks; first++) {
        double sum = 0;
        int earlier = 0, n = 0;

        for (int r = 0; r < first; r++)
            earlier |= cells == NULL || cells[r] == cells[first];
        if (earlier)
            continue;
        for (int r = first; r < ranks; r++) {
            if (cells != NULL && cells[r] != cells[first])
                continue;
            double x = present == NULL || present[r] ? reference_get(dtype, in[r], i) : 0.0;

            if (weights != NULL && (present == NULL || present[r]))
                x = acc(dtype, acc(dtype, weights[r]) * x);
            sum = n++ == 0 ? x : combine(dtype, op, sum, x);
        }
        total = n_cells++ == 0 ? sum : combine(dtype, op, total, sum);
    }
    for (int r = 0; r < ranks; r++)
        divisor += weights != NULL ? weights[r] : 1;
    reference_put(dtype, out, i, op == ZRO_AVG ? acc(dtype, total / acc(dtype, divisor)) : total);
}

static int64_t get_integer(zro_dtype dtype, const void *array, size_t i)
{
    switch (dtype) {
    case ZRO_I8:
        return ((const int8_t *)array)[i];
    case ZRO_U8:
        return ((const uint8_t *)array)[i];
    case ZRO_I32: {
        int32_t x;

        memcpy(&x, (const char *)array + 4 * i, 4);
        return x;
    }
    default: {
        int64_t x;

        memcpy(&x, (const char *)array + 8 * i, 8);
        return x;
    }
    }
}

/* Sums wrap, so neither cells nor the order matter; the low bytes of the sum are the sum of the low bytes. */
static void reduce_integer(zro_dtype dtype, zro_op op, int ranks, const unsigned char *present, const void *const *in,
                           void *out, size_t i)
{
    size_t bytes = zro_dtype_bytes(dtype);
    uint64_t v = 0;

    for (int r = 0; r < ranks; r++) {
        int64_t x = present == NULL || present[r] ? get_integer(dtype, in[r], i) : 0;

        if (op == ZRO_SUM)
            v += (uint64_t)x;
        else if (r == 0 || (op == ZRO_MIN ? x < (int64_t)v : x > (int64_t)v))
            v = (uint64_t)x;
    }
    for (size_t b = 0; b < bytes; b++)
        ((unsigned char *)out)[i * bytes + b] = (unsigned char)(v >> 8 * b); /* little-endian machines */
}

static int is_float(zro_dtype dtype)
{
    return dtype == ZRO_F32 || dtype == ZRO_F64 || dtype == ZRO_BF16 || dtype == ZRO_F16;
}

void reference_reduce(zro_dtype dtype, zro_op op, int ranks, const int32_t *cells, const double *weights,
                      const unsigned char *present, const void *const *in, void *out, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (is_float(dtype))
            reduce_float(dtype, op, ranks, cells, weights, present, in, out, i);
        else
            reduce_integer(dtype, op, ranks, present, in, out, i);
    }
}

int reference_same(zro_dtype dtype, const void *a, const void *b, size_t count, size_t *where)
{
    size_t bytes = zro_dtype_bytes(dtype);

    if (count == 0 || memcmp(a, b, count * bytes) == 0)
        return 1;
    for (size_t i = 0; i < count; i++) {
        if (memcmp((const char *)a + i * bytes, (const char *)b + i * bytes, bytes) == 0)
            continue;
        if (is_float(dtype) && isnan(reference_get(dtype, a, i)) && isnan(reference_get(dtype, b, i)))
            continue;
        if (where != NULL)
            *where = i;
        return 0;
    }
    return 1;
}

/* splitmix64 */
uint64_t reference_random(uint64_t *seed)
{
    uint64_t z = *seed += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Half the numbers are ordinary, so that sums round; the rest is every pattern of bits, which has it all, with zeros,
 * subnormals and infinities made frequent. */
static void fill_float(zro_dtype dtype, uint64_t random, char *at, uint64_t bits)
{
    static const double special[] = { 0.0, -0.0, (double)INFINITY, -(double)INFINITY, (double)NAN, 1.0, -1.0, 65504.0 };
    size_t bytes = zro_dtype_bytes(dtype);
    unsigned kind = (unsigned)(random >> 32) % 32;

    if (kind < 16) {
        reference_put(dtype, at, 0, ldexp((double)(int64_t)random, -60));
    } else if (kind < 24) {
        memcpy(at, &bits, bytes);
    } else if (kind < 28) { /* the exponent is gone: a subnormal number, of either sign */
        uint64_t sign = UINT64_C(1) << (8 * bytes - 1);

        bits &= sign | (bytes == 8 ? 0xfffffffffffff : bytes == 4 ? 0x7fffff : dtype == ZRO_BF16 ? 0x7f : 0x3ff);
        memcpy(at, &bits, bytes);
    } else {
        reference_put(dtype, at, 0, special[random % 8]);
    }
}

void reference_fill(zro_dtype dtype, uint64_t *seed, void *out, size_t count)
{
    size_t bytes = zro_dtype_bytes(dtype);

    for (size_t i = 0; i < count; i++) {
        uint64_t random = reference_random(seed), bits = reference_random(seed);

        if (is_float(dtype))
            fill_float(dtype, random, (char *)out + i * bytes, bits);
        else
            memcpy((char *)out + i * bytes, &bits, bytes);
    }
}
