/* States that unit tests are made of, and how two of them are compared; after <cmocka.h>. */
#ifndef ZRO_TESTS_STATE_PARTS_H
#define ZRO_TESTS_STATE_PARTS_H

#include <string.h>

#include "zro.h"

#define OK(call) assert_int_equal(call, ZRO_OK)

/* A refusal with a code and words of its text. */
#define REFUSED(call, code, words)                                                                                             \
    do {                                                                                                                       \
        assert_int_equal(call, code);                                                                                          \
        if (strstr(zro_last_error(), words) == NULL)                                                                           \
            fail_msg("the text is \"%s\", without \"%s\"", zro_last_error(), words);                                           \
    } while (0)

/* ---- building and comparing ---- */

static inline zro_param shaped(const char *name, zro_dtype dtype, uint32_t n_dims, size_t a, size_t b)
{
    zro_param p = ZRO_PARAM_INIT;

    p.name = name;
    p.dtype = dtype;
    p.n_dims = n_dims;
    p.shape[0] = a;
    p.shape[1] = b;
    return p;
}

static inline void add_param(zro_state *s, const char *name, zro_dtype dtype, uint32_t n_dims, size_t a, size_t b)
{
    zro_param p = shaped(name, dtype, n_dims, a, b);

    OK(zro_state_add_param(s, &p));
}

/* A slot with bytes that depend on where it is. */
static inline void add_slot(zro_state *s, size_t param, const char *name, zro_dtype dtype, size_t count)
{
    zro_slot slot;
    size_t n;

    OK(zro_state_add_slot(s, param, name, dtype, NULL, count));
    OK(zro_state_slot(s, param, name, &slot));
    assert_int_equal(slot.count, count);
    assert_int_equal(slot.dtype, dtype);
    assert_int_equal((uintptr_t)slot.data % 64, 0);
    n = count * zro_dtype_bytes(dtype);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(((char *)slot.data)[i], 0);
        ((char *)slot.data)[i] = (char)(i * 7 + param * 31 + (size_t)name[0]);
    }
}

static const zro_value adamw_values[] = {
    { "lr", 0.1 },    { "betas:0", 0.9 }, { "betas:1", 0.999 }, { "eps", 1e-8 }, { "weight_decay", 1e-2 },
    { "amsgrad", 0 }, { "maximize", 1 },  { "foreach", 0 },
};

static inline zro_state *make_adamw(void)
{
    zro_progress progress = { .steps = 12345678901234, .scale = 65536, .growth_tracker = 7 };
    zro_state *s;

    OK(zro_state_create("adamw", &s));
    OK(zro_state_add_group(s, adamw_values, sizeof adamw_values / sizeof *adamw_values));
    add_param(s, "layer.0/weight", ZRO_F32, 2, 3, 5);
    add_param(s, NULL, ZRO_BF16, 1, 70, 0);
    OK(zro_state_add_group(s, NULL, 0));
    add_param(s, "one", ZRO_F64, 1, 1, 0);
    add_param(s, "scalar", ZRO_F16, 0, 0, 0);
    for (size_t i = 0; i < 4; i++) {
        zro_param p;

        OK(zro_state_param(s, i, &p));
        add_slot(s, i, "exp_avg", p.dtype == ZRO_F64 ? ZRO_F64 : ZRO_F32, zro_param_count(&p));
        add_slot(s, i, "step", ZRO_F64, 1);
    }
    add_slot(s, 1, "master", ZRO_F32, 70);
    OK(zro_state_set_progress(s, &progress));
    return s;
}

static inline void same_params(const zro_state *a, const zro_state *b, size_t i)
{
    zro_param p, q;

    OK(zro_state_param(a, i, &p));
    OK(zro_state_param(b, i, &q));
    if (p.name == NULL)
        assert_null(q.name);
    else
        assert_string_equal(p.name, q.name);
    assert_int_equal(p.dtype, q.dtype);
    assert_int_equal(p.grad_dtype, q.grad_dtype);
    assert_int_equal(p.n_dims, q.n_dims);
    assert_memory_equal(p.shape, q.shape, sizeof p.shape);
    assert_int_equal(zro_state_slots(a, i), zro_state_slots(b, i));
    for (size_t k = 0; k < zro_state_slots(a, i); k++) {
        zro_slot x, y;

        OK(zro_state_slot(a, i, zro_state_slot_name(a, i, k), &x));
        OK(zro_state_slot(b, i, zro_state_slot_name(a, i, k), &y));
        assert_true(x.present && y.present);
        assert_int_equal(x.dtype, y.dtype);
        assert_int_equal(x.count, y.count);
        assert_memory_equal(x.data, y.data, x.count * zro_dtype_bytes(x.dtype));
    }
}

/* Values by name: a file may have them in another order. */
static inline void same_groups(const zro_state *a, const zro_state *b, size_t i)
{
    size_t first[2], n[2], n_values[2];

    OK(zro_state_group(a, i, &first[0], &n[0], &n_values[0]));
    OK(zro_state_group(b, i, &first[1], &n[1], &n_values[1]));
    assert_int_equal(first[0], first[1]);
    assert_int_equal(n[0], n[1]);
    assert_int_equal(n_values[0], n_values[1]);
    for (size_t k = 0; k < n_values[0]; k++) {
        zro_value v;
        double x;

        OK(zro_state_value(a, i, k, &v));
        OK(zro_state_get_value(b, i, v.name, &x));
        assert_memory_equal(&x, &v.value, sizeof x);
    }
}

static inline void same(const zro_state *a, const zro_state *b)
{
    zro_progress p, q;

    assert_string_equal(zro_state_rule(a), zro_state_rule(b));
    OK(zro_state_get_progress(a, &p));
    OK(zro_state_get_progress(b, &q));
    assert_memory_equal(&p, &q, sizeof p);
    assert_int_equal(zro_state_groups(a), zro_state_groups(b));
    assert_int_equal(zro_state_params(a), zro_state_params(b));
    assert_int_equal(zro_state_bytes(a), zro_state_bytes(b));
    for (size_t i = 0; i < zro_state_groups(a); i++)
        same_groups(a, b, i);
    for (size_t i = 0; i < zro_state_params(a); i++)
        same_params(a, b, i);
}

/* Packed, unpacked, and packed again: the same state, the same bytes.  `s` is destroyed. */
static inline void goes_round(zro_state *s)
{
    zro_state *t;
    void *bytes, *again;
    size_t n, m;

    OK(zro_state_pack(s, &bytes, &n));
    OK(zro_state_unpack(bytes, n, &t));
    same(s, t);
    OK(zro_state_pack(t, &again, &m));
    assert_int_equal(n, m);
    assert_memory_equal(bytes, again, n);
    zro_bytes_free(bytes);
    zro_bytes_free(again);
    zro_state_destroy(t);
    zro_state_destroy(s);
}

#endif
