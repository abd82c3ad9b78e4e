/* Element types: the table, every 16-bit pattern, and the borders at which f32 rounds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "reference.h"

static void the_table_is_complete(void **state)
{
    static const char *const names[] = { "f32", "f64", "bf16", "f16", "i8", "u8", "i32", "i64" };
    static const size_t bytes[] = { 4, 8, 2, 2, 1, 1, 4, 8 };

    (void)state;
    for (int i = 0; i < 8; i++) {
        assert_string_equal(zro_dtype_name((zro_dtype)i), names[i]);
        assert_int_equal(zro_dtype_bytes((zro_dtype)i), bytes[i]);
        assert_true(zro__dtype_is_known((zro_dtype)i));
        assert_int_equal(zro__dtype_is_float((zro_dtype)i), i < 4);
    }
    for (int i = -1; i < 10; i += 9) {
        assert_null(zro_dtype_name((zro_dtype)i));
        assert_int_equal(zro_dtype_bytes((zro_dtype)i), 0);
        assert_false(zro__dtype_is_known((zro_dtype)i));
        assert_false(zro__dtype_is_float((zro_dtype)i));
    }
}

static int is_quiet(float x)
{
    return (zro__f32_bits(x) & 0x7fc00000u) == 0x7fc00000u;
}

/* To f32 every pattern is exact, and back again it is itself; NaN is quiet. */
static void every_16_bit_pattern(zro_dtype dtype, float (*widen)(uint16_t), uint16_t (*narrow)(float))
{
    for (uint32_t i = 0; i <= 0xffff; i++) {
        uint16_t h = (uint16_t)i;
        float x = widen(h), expected = (float)reference_get(dtype, &h, 0);

        if (isnan(expected)) {
            assert_true(is_quiet(x));
            assert_true(isnan(reference_get(dtype, &(uint16_t){ narrow(x) }, 0)));
        } else {
            assert_int_equal(zro__f32_bits(x), zro__f32_bits(expected));
            assert_int_equal(narrow(x), h);
        }
    }
}

static void check_narrow(zro_dtype dtype, uint16_t (*narrow)(float), uint32_t bits)
{
    float x = zro__f32_of_bits(bits);
    uint16_t h = narrow(x), expected;

    reference_put(dtype, &expected, 0, (double)x);
    if (!reference_same(dtype, &h, &expected, 1, NULL))
        fail_msg("%s of %08x is %04x, expected %04x", zro_dtype_name(dtype), bits, h, expected);
}

/* Around every value of the type and around the middle to its neighbour; then patterns spread over all of f32. */
static void every_border(zro_dtype dtype, float (*widen)(uint16_t), uint16_t (*narrow)(float))
{
    for (uint32_t i = 0; i <= 0xfffe; i++) {
        uint32_t a = zro__f32_bits(widen((uint16_t)i)), b = zro__f32_bits(widen((uint16_t)(i + 1))), middle = a + (b - a) / 2;

        for (uint32_t d = 0; d < 5; d++) {
            check_narrow(dtype, narrow, a + d - 2);
            check_narrow(dtype, narrow, middle + d - 2);
        }
    }
    for (uint64_t u = 0; u <= 0xffffffff; u += 4099)
        check_narrow(dtype, narrow, (uint32_t)u);
    check_narrow(dtype, narrow, 0x7f800001u); /* the least NaN, whose payload is in the bits that are cut off */
    check_narrow(dtype, narrow, 0xff800001u);
}

static float widen_bf16(uint16_t h)
{
    return zro__f32_from_bf16(h);
}

static uint16_t narrow_bf16(float x)
{
    return zro__bf16_from_f32(x);
}

static float widen_f16(uint16_t h)
{
    return zro__f32_from_f16(h);
}

static uint16_t narrow_f16(float x)
{
    return zro__f16_from_f32(x);
}

static void bf16_to_f32_is_exact(void **state)
{
    (void)state;
    every_16_bit_pattern(ZRO_BF16, widen_bf16, narrow_bf16);
}

static void f16_to_f32_is_exact(void **state)
{
    (void)state;
    every_16_bit_pattern(ZRO_F16, widen_f16, narrow_f16);
}

static void f32_to_bf16_rounds_to_even(void **state)
{
    (void)state;
    every_border(ZRO_BF16, widen_bf16, narrow_bf16);
}

static void f32_to_f16_rounds_to_even(void **state)
{
    (void)state;
    every_border(ZRO_F16, widen_f16, narrow_f16);
}

static void arrays_are_converted(void **state)
{
    static const zro_dtype types[] = { ZRO_F32, ZRO_F64, ZRO_BF16, ZRO_F16 };
    double values[100], back[100];
    unsigned char other[sizeof values];

    (void)state;
    for (int i = 0; i < 100; i++)
        values[i] = (i - 50) / 4.0;
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) { /* all types have these values */
        memset(back, 0, sizeof back);
        assert_int_equal(zro_convert(other, types[k], values, ZRO_F64, 100), ZRO_OK);
        assert_int_equal(zro_convert(back, ZRO_F64, other, types[k], 100), ZRO_OK);
        assert_memory_equal(back, values, sizeof values);
    }
    assert_int_equal(zro_convert(NULL, ZRO_F32, NULL, ZRO_F64, 0), ZRO_OK);
    assert_int_equal(zro_convert(NULL, ZRO_F32, values, ZRO_F64, 1), ZRO_ERR_INVALID);
    assert_int_equal(zro_convert(other, ZRO_F32, NULL, ZRO_F64, 1), ZRO_ERR_INVALID);
    assert_int_equal(zro_convert(other, ZRO_I32, values, ZRO_F64, 1), ZRO_ERR_UNSUPPORTED);
    assert_int_equal(zro_convert(other, ZRO_F32, values, (zro_dtype)99, 1), ZRO_ERR_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_complete),     cmocka_unit_test(bf16_to_f32_is_exact),
        cmocka_unit_test(f16_to_f32_is_exact),       cmocka_unit_test(f32_to_bf16_rounds_to_even),
        cmocka_unit_test(f32_to_f16_rounds_to_even), cmocka_unit_test(arrays_are_converted),
    };

    return cmocka_run_group_tests_name("dtype", tests, NULL, NULL);
}
