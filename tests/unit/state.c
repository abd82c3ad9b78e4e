/* States as containers and as the bytes of a file: what goes in comes out again, whatever the names and types, and what cannot
 * be is refused with a text that names it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/point.h"
#include "checkpoint/safetensors.h"
#include "state_parts.h"
#include "zero/state.h"
#include "zro.h"

static int holds(const void *bytes, size_t n, const char *words)
{
    size_t length = strlen(words), at = 0;

    while (at + length <= n && memcmp((const char *)bytes + at, words, length) != 0)
        at++;
    return at + length <= n;
}

/* ---- what goes in comes out ---- */

static void a_state_goes_round(void **state)
{
    (void)state;
    goes_round(make_adamw());
}

static void every_type_goes_round(void **state)
{
    zro_state *s;

    (void)state;
    OK(zro_state_create("a rule of mine", &s));
    OK(zro_state_add_group(s, NULL, 0));
    for (int t = ZRO_F32; t <= ZRO_I64; t++) {
        zro_param p = shaped(NULL, (zro_dtype)t, 2, (size_t)t + 1, 3);

        p.grad_dtype = (zro_dtype)(ZRO_I64 - t);
        OK(zro_state_add_param(s, &p));
        for (int k = ZRO_F32; k <= ZRO_I64; k++)
            add_slot(s, (size_t)t, zro_dtype_name((zro_dtype)k), (zro_dtype)k, k % 2 ? 1 : zro_param_count(&p));
    }
    goes_round(s);
}

static void names_of_any_kind_go_round(void **state)
{
    static const char *const names[] = { "with space",
                                         "quote\"s'",
                                         "back\\slash/es",
                                         "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80",
                                         "\xc2\x80\xe0\xa0\x80\xf0\x90\x80\x80",     /* the first of two, three, four bytes */
                                         "\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf", /* around the surrogates; the last */
                                         "new\nline\ttab\x01",
                                         "colon:0:colon",
                                         ".",
                                         "..",
                                         "0x",
                                         "__metadata__" };
    char longest[ZRO__STATE_NAME_BYTES + 1];
    zro_state *s;
    size_t n = sizeof names / sizeof *names;

    (void)state;
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    OK(zro_state_create("", &s));
    OK(zro_state_add_group(s, &(zro_value){ longest, 1 }, 1));
    for (size_t i = 0; i < n; i++) {
        add_param(s, names[i], ZRO_F32, 1, i, 0);
        add_slot(s, i, names[i][0] == 'c' ? "a slot" : names[i], ZRO_F32, i);
    }
    add_param(s, longest, ZRO_F32, 1, 2, 0);
    add_slot(s, n, longest, ZRO_I8, 2);
    goes_round(s);
}

static void empty_things_go_round(void **state)
{
    zro_state *s;
    zro_slot slot;

    (void)state;
    OK(zro_state_create("sgd", &s));
    goes_round(s);
    OK(zro_state_create("sgd", &s));
    OK(zro_state_add_group(s, NULL, 0));
    OK(zro_state_add_group(s, NULL, 0));
    add_param(s, "none", ZRO_F32, 2, 0, 7);
    OK(zro_state_add_slot(s, 0, "momentum_buffer", ZRO_F32, NULL, 0));
    OK(zro_state_add_slot(s, 0, "step", ZRO_F64, &(double){ 3 }, 1));
    OK(zro_state_slot(s, 0, "momentum_buffer", &slot));
    assert_true(slot.present && slot.data != NULL && slot.count == 0);
    OK(zro_state_slot(s, 0, "another", &slot));
    assert_true(!slot.present && slot.data == NULL && slot.count == 0);
    goes_round(s);
}

/* PyTorch's forms: lists, true and false, 17 digits, shape [] for a single number even if its parameter has one element. */
static void the_file_says_what_pytorch_says(void **state)
{
    zro_state *s = make_adamw();
    void *bytes;
    size_t n;

    (void)state;
    OK(zro_state_set_value(s, 1, "list:1", -0.0)); /* in any order */
    OK(zro_state_set_value(s, 1, "list:0", DBL_MIN / 3));
    OK(zro_state_set_value(s, 1, "whole", 3));
    OK(zro_state_pack(s, &bytes, &n));
    assert_int_equal((*(uint64_t *)bytes) % 8, 0);
    assert_true(holds(bytes, n, "\\\"betas\\\":[0.90000000000000002,0.999]"));
    assert_true(holds(bytes, n, "\\\"amsgrad\\\":false,\\\"maximize\\\":true,\\\"foreach\\\":false,\\\"params\\\":[0,1]"));
    assert_true(holds(bytes, n, "\\\"whole\\\":3.0"));
    assert_true(holds(bytes, n, ",-0.0]"));
    assert_true(holds(bytes, n, "{\\\"name\\\":null,\\\"shape\\\":[70],\\\"dtype\\\":\\\"bf16\\\"}"));
    assert_true(holds(bytes, n, "\"step:0:one\":{\"dtype\":\"F64\",\"shape\":[],"));
    assert_true(holds(bytes, n, "\"exp_avg:0:one\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]}"));
    assert_true(holds(bytes, n, "\"exp_avg:0:layer.0/weight\":{\"dtype\":\"F32\",\"shape\":[3,5],"));
    assert_true(holds(bytes, n, "\"master:0:1\":{\"dtype\":\"F32\",\"shape\":[70],"));
    zro_bytes_free(bytes);
    goes_round(s);
}

/* Where a parameter has one element, its shape does not tell arrays from single numbers. */
static zro_state *make_singles(void)
{
    zro_state *s;

    OK(zro_state_create("a rule of mine", &s));
    OK(zro_state_add_group(s, NULL, 0));
    add_param(s, "v", ZRO_F32, 1, 1, 0);
    add_slot(s, 0, "step", ZRO_F64, 1); /* what every rule has as a single number */
    add_slot(s, 0, "array", ZRO_F32, 1);
    OK(zro__state_plan_slot(s, 0, "number", ZRO_F64, 1));
    s->slots[2].single = 1;
    OK(zro__state_take(s));
    return s;
}

static void check_singles(const zro_state *s)
{
    void *bytes;
    size_t n;

    OK(zro_state_pack(s, &bytes, &n));
    assert_true(holds(bytes, n, "\"step:0:v\":{\"dtype\":\"F64\",\"shape\":[],"));
    assert_true(holds(bytes, n, "\"array:0:v\":{\"dtype\":\"F32\",\"shape\":[1],"));
    assert_true(holds(bytes, n, "\"number:0:v\":{\"dtype\":\"F64\",\"shape\":[],"));
    zro_bytes_free(bytes);
}

static void single_numbers_stay_single(void **state)
{
    zro_state *s = make_singles(), *t;
    void *bytes;
    size_t n;

    (void)state;
    check_singles(s);
    OK(zro_state_pack(s, &bytes, &n));
    OK(zro_state_unpack(bytes, n, &t));
    check_singles(t);
    zro_bytes_free(bytes);
    zro_state_destroy(t);
    zro_state_destroy(s);
}

/* A value that is a flag elsewhere may have other numbers, and stays a number. */
static void flags_are_0_or_1(void **state)
{
    zro_state *s = make_adamw();
    void *bytes;
    size_t n;

    (void)state;
    OK(zro_state_set_value(s, 0, "amsgrad", 0.5));
    OK(zro_state_pack(s, &bytes, &n));
    assert_true(holds(bytes, n, "\\\"amsgrad\\\":0.5,"));
    zro_bytes_free(bytes);
    goes_round(s);
}

static void numbers_do_not_follow_the_locale(void **state)
{
    static const char *const names[] = { "de_DE.UTF-8", "de_DE.utf8", "de_DE", "fr_FR.UTF-8", "ru_RU.UTF-8" };
    zro_state *s = make_adamw();
    void *bytes;
    size_t n;
    int found = 0;

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names && !found; i++)
        found = setlocale(LC_ALL, names[i]) != NULL;
    OK(zro_state_pack(s, &bytes, &n));
    assert_true(holds(bytes, n, "0.90000000000000002"));
    zro_bytes_free(bytes);
    goes_round(s);
    setlocale(LC_ALL, "C");
    if (!found)
        print_message("no locale with a decimal comma is installed\n");
}

/* Announced as consolidate does it: parameter after parameter. */
static zro_state *make_large(size_t n)
{
    zro_state *s;
    char name[32];

    OK(zro_state_create("adam", &s));
    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "layer.%zu.weight", i);
        if (i % 1000 == 0)
            OK(zro_state_add_group(s, adamw_values, 5));
        add_param(s, name, ZRO_F32, 1, 3, 0);
    }
    for (size_t i = 0; i < n; i++) {
        OK(zro__state_plan_slot(s, i, "step", ZRO_F64, 1));
        OK(zro__state_plan_slot(s, i, "exp_avg", ZRO_F32, 3));
        OK(zro__state_plan_slot(s, i, "exp_avg_sq", ZRO_F32, 3));
    }
    assert_null(zro__state_slot_at(s, 7, 0)->data);
    OK(zro__state_take(s));
    assert_non_null(zro__state_slot_at(s, 7, 0)->data);
    assert_null(zro__state_slot_at(s, 7, 3));
    assert_ptr_equal(s->first_block, s->last_block);
    return s;
}

/* Anything quadratic would take minutes. */
static void a_large_state_takes_no_time(void **state)
{
    uint64_t start = zro__now_ns();
    zro_state *s = make_large(100000);

    (void)state;
    print_message("100,000 parameters and 300,000 slots in %d ms\n", (int)((zro__now_ns() - start) / 1000000));
    zro_state_destroy(s);
    start = zro__now_ns();
    goes_round(make_large(20000));
    print_message("20,000 and 60,000 went round in %d ms\n", (int)((zro__now_ns() - start) / 1000000));
}

/* Bytes of slots stay where they are while others are added. */
static void slots_do_not_move(void **state)
{
    enum { PARAMS = 3000 };
    static void *where[PARAMS];
    zro_slot slot;
    zro_state *s;

    (void)state;
    OK(zro_state_create("sgd", &s));
    OK(zro_state_add_group(s, NULL, 0));
    for (size_t i = 0; i < PARAMS; i++)
        add_param(s, NULL, ZRO_F32, 1, i, 0);
    for (size_t i = 0; i < PARAMS; i++) {
        add_slot(s, PARAMS - 1 - i, "momentum_buffer", ZRO_F32, PARAMS - 1 - i);
        OK(zro_state_slot(s, PARAMS - 1 - i, "momentum_buffer", &slot));
        where[PARAMS - 1 - i] = slot.data;
    }
    for (size_t i = 0; i < PARAMS; i++) {
        OK(zro_state_slot(s, i, "momentum_buffer", &slot));
        assert_ptr_equal(slot.data, where[i]);
    }
    assert_ptr_not_equal(s->first_block, s->last_block);
    goes_round(s);
}

/* ---- refusals of the container ---- */

static void no_state_says_what_to_call(void **state)
{
    static const char *const words = "zro_state_broadcast";
    zro_progress progress;
    zro_param param;
    zro_value value;
    zro_slot slot;
    double x;
    void *bytes;
    size_t n;

    (void)state;
    assert_null(zro_state_rule(NULL));
    assert_int_equal(zro_state_groups(NULL), 0);
    assert_int_equal(zro_state_params(NULL), 0);
    assert_int_equal(zro_state_bytes(NULL), 0);
    assert_int_equal(zro_state_slots(NULL, 0), 0);
    assert_null(zro_state_slot_name(NULL, 0, 0));
    REFUSED(zro_state_group(NULL, 0, &n, &n, &n), ZRO_ERR_STATE, words);
    REFUSED(zro_state_value(NULL, 0, 0, &value), ZRO_ERR_STATE, words);
    REFUSED(zro_state_get_value(NULL, 0, "lr", &x), ZRO_ERR_STATE, words);
    REFUSED(zro_state_param(NULL, 0, &param), ZRO_ERR_STATE, words);
    REFUSED(zro_state_slot(NULL, 0, "step", &slot), ZRO_ERR_STATE, words);
    REFUSED(zro_state_get_progress(NULL, &progress), ZRO_ERR_STATE, words);
    REFUSED(zro_state_set_progress(NULL, &progress), ZRO_ERR_STATE, words);
    REFUSED(zro_state_add_group(NULL, NULL, 0), ZRO_ERR_STATE, words);
    REFUSED(zro_state_write(NULL, "x"), ZRO_ERR_STATE, words);
    REFUSED(zro_state_pack(NULL, &bytes, &n), ZRO_ERR_STATE, words);
    zro_state_destroy(NULL);
}

static void names_that_cannot_be(void **state)
{
    char longer[ZRO__STATE_NAME_BYTES + 2];
    static const char *const broken[] = { "\x80",
                                          "a\xc3",
                                          "\xc0\x80",
                                          "\xed\xa0\x80",
                                          "\xf4\x90\x80\x80",
                                          "\xff",
                                          "\xe2\x82",
                                          "\xa2\x82",
                                          "\xf8\x88\x80\x80\x80",
                                          "\xe0\x9f\xbf",
                                          "\xf0\x8f\xbf\xbf",
                                          "\xed\xbf\xbf" };
    zro_state *s;

    (void)state;
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    REFUSED(zro_state_create(NULL, &s), ZRO_ERR_INVALID, "the name of the rule is NULL");
    REFUSED(zro_state_create(longer, &s), ZRO_ERR_INVALID, "longer than 512 bytes");
    REFUSED(zro_state_create("x", NULL), ZRO_ERR_INVALID, "out is NULL");
    s = make_adamw();
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++)
        REFUSED(zro_state_set_value(s, 0, broken[i], 1), ZRO_ERR_INVALID, "is not UTF-8");
    REFUSED(zro_state_set_value(s, 0, NULL, 1), ZRO_ERR_INVALID, "the name of a value is NULL");
    REFUSED(zro_state_set_value(s, 0, "", 1), ZRO_ERR_INVALID, "the name of a value is empty");
    REFUSED(zro_state_set_value(s, 0, "params", 1), ZRO_ERR_INVALID, "list of parameters");
    REFUSED(zro_state_set_value(s, 0, "params:0", 1), ZRO_ERR_INVALID, "list of parameters");
    REFUSED(zro_state_set_value(s, 0, "a:b", 1), ZRO_ERR_INVALID, "\"a:b\"");
    REFUSED(zro_state_set_value(s, 0, "a:0b", 1), ZRO_ERR_INVALID, "\"a:0b\"");
    REFUSED(zro_state_set_value(s, 0, "a:1000", 1), ZRO_ERR_INVALID, "\"a:1000\"");
    REFUSED(zro_state_set_value(s, 0, "a:01", 1), ZRO_ERR_INVALID, "\"a:01\"");
    REFUSED(zro_state_set_value(s, 0, ":0", 1), ZRO_ERR_INVALID, "\":0\"");
    REFUSED(zro_state_add_slot(s, 0, "a:b", ZRO_F32, NULL, 1), ZRO_ERR_INVALID, "must not contain ':'");
    REFUSED(zro_state_add_slot(s, 0, NULL, ZRO_F32, NULL, 1), ZRO_ERR_INVALID, "the name of a slot is NULL");
    REFUSED(zro_state_add_slot(s, 0, longer, ZRO_F32, NULL, 1), ZRO_ERR_INVALID, "the name of a slot is longer");
    REFUSED(zro_state_add_param(s, &(zro_param){ .name = "" }), ZRO_ERR_INVALID, "the name of a parameter is empty");
    goes_round(s);
}

static void what_cannot_be_added(void **state)
{
    zro_param bad = shaped("bad", ZRO_F32, 2, SIZE_MAX / 2, 4), typeless = shaped("bad", (zro_dtype)8, 1, 1, 0);
    zro_param deep = shaped("bad", ZRO_F32, 9, 1, 1), grad = shaped("bad", ZRO_F32, 1, 1, 0),
              wide = shaped("w", ZRO_F32, 2, 0, SIZE_MAX);
    zro_value twice[] = { { "lr", NAN }, { "lr", 2 } };
    zro_state *s;
    char name[32];

    (void)state;
    OK(zro_state_create("adamw", &s));
    REFUSED(zro_state_add_param(s, &grad), ZRO_ERR_STATE, "no group yet");
    REFUSED(zro_state_add_group(s, NULL, 1), ZRO_ERR_INVALID, "values is NULL");
    REFUSED(zro_state_add_group(s, twice, 2), ZRO_ERR_INVALID, "\"lr\" is there twice");
    REFUSED(zro_state_add_group(s, (zro_value[]){ { "lr", 1 }, { NULL, 2 } }, 2), ZRO_ERR_INVALID, "a value is NULL");
    REFUSED(zro_state_set_value(s, 0, "lr", 1), ZRO_ERR_INVALID, "group = 0, the state has 0");
    OK(zro_state_add_group(s, NULL,
                           0)); /* nothing is left of those that were refused: what is not finite could not be packed */
    goes_round(s);
    s = make_adamw();
    grad.grad_dtype = (zro_dtype)99;
    REFUSED(zro_state_add_param(s, NULL), ZRO_ERR_INVALID, "param is NULL");
    REFUSED(zro_state_add_param(s, &bad), ZRO_ERR_INVALID, "parameter bad: its shape has more elements");
    REFUSED(zro_state_add_param(s, &wide), ZRO_ERR_INVALID, "parameter w: its shape has more elements");
    REFUSED(zro_state_add_param(s, &typeless), ZRO_ERR_INVALID, "parameter bad: dtype = 8");
    REFUSED(zro_state_add_param(s, &grad), ZRO_ERR_INVALID, "parameter bad: grad_dtype = 99");
    REFUSED(zro_state_add_param(s, &deep), ZRO_ERR_INVALID, "9 dimensions");
    REFUSED(zro_state_add_slot(s, 4, "step", ZRO_F32, NULL, 1), ZRO_ERR_INVALID, "parameter = 4, the state has 4");
    REFUSED(zro_state_add_slot(s, 0, "step", ZRO_F32, NULL, 1), ZRO_ERR_INVALID,
            "slot step of parameter layer.0/weight is there");
    REFUSED(zro_state_add_slot(s, 0, "new", ZRO_SAME, NULL, 1), ZRO_ERR_INVALID, "dtype is no element type");
    REFUSED(zro_state_add_slot(s, 1, "new", ZRO_F32, NULL, 2), ZRO_ERR_INVALID,
            "parameter 1: 2 elements, must be 1 or the parameter's 70");
    REFUSED(zro_state_set_progress(s, NULL), ZRO_ERR_INVALID, "progress is NULL");
    REFUSED(zro_state_set_progress(s, &(zro_progress){ .scale = NAN }), ZRO_ERR_INVALID, "scale = nan");
    REFUSED(zro_state_set_progress(s, &(zro_progress){ .scale = -1 }), ZRO_ERR_INVALID, "scale = -1");
    REFUSED(zro_state_set_progress(s, &(zro_progress){ .steps = UINT64_MAX }), ZRO_ERR_INVALID, "steps = 18446744073709551615");
    for (int i = 0; i < ZRO__STATE_MAX_SLOTS - 2; i++) {
        snprintf(name, sizeof name, "%d", i);
        OK(zro_state_add_slot(s, 0, name, ZRO_I8, NULL, 1));
    }
    REFUSED(zro_state_add_slot(s, 0, "one more", ZRO_I8, NULL, 1), ZRO_ERR_INVALID, "at most 64 slots");
    for (int i = 0; i < ZRO__STATE_MAX_VALUES; i++) {
        snprintf(name, sizeof name, "%d", i);
        OK(zro_state_set_value(s, 1, name, i));
    }
    REFUSED(zro_state_set_value(s, 1, "one more", 1), ZRO_ERR_INVALID, "at most 256 values");
    OK(zro_state_set_value(s, 1, "255", 1));
    goes_round(s);
}

static void what_cannot_be_asked(void **state)
{
    zro_state *s = make_adamw();
    zro_value value;
    zro_param param;
    zro_slot slot;
    double x;

    (void)state;
    REFUSED(zro_state_group(s, 2, NULL, NULL, NULL), ZRO_ERR_INVALID, "group = 2, the state has 2");
    OK(zro_state_group(s, 1, NULL, NULL, NULL));
    REFUSED(zro_state_value(s, 0, 8, &value), ZRO_ERR_INVALID, "value 8 of group 0: it has 8");
    REFUSED(zro_state_value(s, 0, 0, NULL), ZRO_ERR_INVALID, "value is NULL");
    REFUSED(zro_state_get_value(s, 0, "beta1", &x), ZRO_ERR_INVALID, "no value named \"beta1\"");
    REFUSED(zro_state_get_value(s, 0, NULL, &x), ZRO_ERR_INVALID, "name is NULL");
    REFUSED(zro_state_get_value(s, 0, "lr", NULL), ZRO_ERR_INVALID, "value is NULL");
    REFUSED(zro_state_param(s, 4, &param), ZRO_ERR_INVALID, "parameter = 4");
    REFUSED(zro_state_param(s, 0, NULL), ZRO_ERR_INVALID, "out is NULL");
    REFUSED(zro_state_slot(s, 4, "step", &slot), ZRO_ERR_INVALID, "parameter = 4");
    REFUSED(zro_state_slot(s, 0, NULL, &slot), ZRO_ERR_INVALID, "name is NULL");
    REFUSED(zro_state_slot(s, 0, "step", NULL), ZRO_ERR_INVALID, "slot is NULL");
    REFUSED(zro_state_get_progress(s, NULL), ZRO_ERR_INVALID, "progress is NULL");
    assert_null(zro_state_slot_name(s, 0, 2));
    assert_int_equal(zro_state_slots(s, 4), 0);
    zro_state_destroy(s);
}

/* Of any allocation that fails; the state is as before. */
static void memory_that_runs_out(void **state)
{
    enum { LARGE = (1 << 20) + 1 }; /* not a multiple of what slots are rounded up to */
    zro__point_plan plan = { .name = "memory.alloc", .action = ZRO__POINT_FAIL };
    zro_state *s, *t;
    void *bytes;
    size_t n;
    zro_status st = ZRO_ERR_MEMORY;

    (void)state;
    s = make_adamw();
    add_param(s, "large", ZRO_F32, 1, LARGE, 0);
    for (plan.nth = 1; st != ZRO_OK; plan.nth++) {
        zro__point_plan_set(&plan);
        atomic_store(&plan.hits, 0);
        st = zro_state_add_slot(s, 4, "exp_avg", ZRO_F32, NULL, LARGE);
        zro__point_plan_set(NULL);
        assert_true(st == ZRO_OK || st == ZRO_ERR_MEMORY);
        assert_int_equal(zro_state_slots(s, 4), st == ZRO_OK);
    }
    assert_true(plan.nth > 2);
    for (plan.nth = 1, st = ZRO_ERR_MEMORY; st != ZRO_OK; plan.nth++) {
        zro__point_plan_set(&plan);
        atomic_store(&plan.hits, 0);
        st = zro_state_pack(s, &bytes, &n);
        zro__point_plan_set(NULL);
        assert_true(st == ZRO_OK || st == ZRO_ERR_MEMORY);
    }
    for (plan.nth = 1, st = ZRO_ERR_MEMORY; st != ZRO_OK; plan.nth++) {
        zro__point_plan_set(&plan);
        atomic_store(&plan.hits, 0);
        st = zro_state_unpack(bytes, n, &t);
        zro__point_plan_set(NULL);
        assert_true(st == ZRO_OK ? t != NULL : st == ZRO_ERR_MEMORY && t == NULL);
    }
    same(s, t);
    zro_bytes_free(bytes);
    zro_state_destroy(s);
    zro_state_destroy(t);
}

/* Slots that are announced and get no memory get it the next time, all of it. */
static void memory_comes_later(void **state)
{
    zro__point_plan plan = { .name = "memory.alloc", .action = ZRO__POINT_FAIL, .nth = 1 };
    zro_state *s = make_adamw();

    (void)state;
    add_param(s, "large", ZRO_F32, 1, 100000, 0);
    OK(zro__state_plan_slot(s, 4, "exp_avg", ZRO_F32, 100000));
    zro__point_plan_set(&plan);
    REFUSED(zro__state_take(s), ZRO_ERR_MEMORY, "bytes of state");
    zro__point_plan_set(NULL);
    OK(zro__state_take(s));
    assert_true(s->last_block->used <= s->last_block->bytes);
    OK(zro__state_take(s)); /* there is nothing left to do */
    goes_round(s);
}

static void what_cannot_be_written(void **state)
{
    zro_state *s = make_adamw();
    void *bytes;
    size_t n;

    (void)state;
    OK(zro_state_set_value(s, 0, "nan", NAN));
    REFUSED(zro_state_pack(s, &bytes, &n), ZRO_ERR_INVALID, "group 0: nan = nan");
    OK(zro_state_set_value(s, 0, "nan", 1));
    OK(zro_state_set_value(s, 1, "list:2", 1));
    REFUSED(zro_state_pack(s, &bytes, &n), ZRO_ERR_INVALID, "group 1 has list:2, but no list:1");
    OK(zro_state_set_value(s, 1, "list:1", 1));
    REFUSED(zro_state_pack(s, &bytes, &n), ZRO_ERR_INVALID, "group 1 has list:1, but no list:0");
    OK(zro_state_set_value(s, 1, "list:0", 1));
    OK(zro_state_set_value(s, 1, "list", 1));
    REFUSED(zro_state_pack(s, &bytes, &n), ZRO_ERR_INVALID, "group 1: list is both a value and a list");
    REFUSED(zro_state_pack(s, NULL, &n), ZRO_ERR_INVALID, "bytes is NULL");
    REFUSED(zro_state_pack(s, &bytes, NULL), ZRO_ERR_INVALID, "n is NULL");
    REFUSED(zro_state_write(s, NULL), ZRO_ERR_INVALID, "path is NULL");
    REFUSED(zro_state_write(s, ""), ZRO_ERR_INVALID, "path is empty");
    zro_state_destroy(s);
    s = make_adamw();
    add_param(s, "1", ZRO_F32, 0, 0, 0); /* what the one without a name is called */
    REFUSED(zro_state_pack(s, &bytes, &n), ZRO_ERR_INVALID, "two parameters are named 1");
    assert_null(bytes);
    zro_state_destroy(s);
}

/* ---- broken files ---- */

/* A file with this header and so many bytes of data, unpacked. */
static zro_status unpack(const char *header, size_t data_bytes, zro_state **out)
{
    size_t length = strlen(header);
    char *bytes = calloc(1, 8 + length + data_bytes);
    zro_status st;

    for (int i = 0; i < 8; i++)
        bytes[i] = (char)(length >> 8 * i & 0xff);
    memcpy(bytes + 8, header, length);
    st = zro_state_unpack(bytes, 8 + length + data_bytes, out);
    free(bytes);
    return st;
}

/* A header with these tensors and a state with the parameter w of 2 x 3. */
static const char *with_tensors(const char *tensors)
{
    static char text[4096];

    snprintf(
        text, sizeof text,
        "{\"__metadata__\":{\"zro\":\"{\\\"format\\\":1,\\\"rule\\\":\\\"adam\\\",\\\"groups\\\":[{\\\"lr\\\":1,"
        "\\\"params\\\":[0]}],\\\"params\\\":[{\\\"name\\\":\\\"w\\\",\\\"shape\\\":[2,3],\\\"dtype\\\":\\\"f32\\\"}]}\"}%s%s}",
        tensors[0] != '\0' ? "," : "", tensors);
    return text;
}

/* A header with this text as metadata, in which ' stands for ". */
static const char *with_metadata(const char *json)
{
    static char text[4096];
    size_t n = (size_t)snprintf(text, sizeof text, "{\"__metadata__\":{\"zro\":\"");

    for (; *json != '\0'; json++) {
        if (*json == '\'')
            text[n++] = '\\';
        text[n++] = *json == '\'' ? '"' : *json;
    }
    strcpy(text + n, "\"}}");
    return text;
}

static void broken_tensors_are_named(void **state)
{
    static const struct {
        const char *tensors;
        size_t data_bytes;
        const char *words; /* NULL: good */
    } cases[] = {
        { "", 0, NULL },
        { "\"a:0:w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}", 24, NULL },
        { "\"b:0:w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[2,26]},"
          "\"a:0:w\":{\"dtype\":\"F16\",\"shape\":[],\"data_offsets\":[0,2]}   ",
          26, NULL },
        { "\"a:0:w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}", 25, "1 bytes follow the last tensor" },
        { "\"a:0:w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}", 23, "ends at 24, but there are 23 bytes" },
        { "\"a:0:w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[24,0]}", 24, "begins at 24, after its end 0" },
        { "\"a:0:w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[1,25]}", 25,
          "bytes 0 to 1 of the data, before tensor a:0:w, belong to no tensor" },
        { "\"a:0:w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
          "\"b:0:w\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[20,24]}",
          24, "a:0:w and b:0:w overlap" },
        { "\"a:0:w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,20]}", 20,
          "has 20 bytes, its shape and type have 24" },
        { "\"a:0:w\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}", 0,
          "more elements than memory" },
        { "\"a:0:w\":{\"dtype\":\"U8\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}", 0,
          "more elements than memory" },
        { "\"a:0:w\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}", 0,
          "more elements than memory" },
        { "\"a:0:w\":{\"dtype\":\"F8_E4M3\",\"shape\":[2,3],\"data_offsets\":[0,6]}", 6,
          "dtype is F8_E4M3, which zro does not have" },
        { "\"a:0:w\":{\"dtype\":7,\"shape\":[2,3],\"data_offsets\":[0,6]}", 6, "dtype is no text" },
        { "\"a:0:w\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,2,3],\"data_offsets\":[0,24]}", 24, "9 dimensions" },
        { "\"a:0:w\":{\"dtype\":\"F32\",\"shape\":[-2,3],\"data_offsets\":[0,24]}", 24, "shape[0] must be an integer" },
        { "\"a:0:w\":{\"dtype\":\"F32\",\"shape\":[2,3.0],\"data_offsets\":[0,24]}", 24, "shape[1] must be an integer" },
        { "\"a:0:w\":{\"dtype\":\"F32\",\"shape\":6,\"data_offsets\":[0,24]}", 24, "shape must be a list" },
        { "\"a:0:w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24,48]}", 24, "data_offsets must be two" },
        { "\"a:0:w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[-1,24]}", 24, "data_offsets must be two" },
        { "\"a:0:w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":\"all\"}", 24, "data_offsets must be two" },
        { "\"a:0:w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,99999999999999999999]}", 24, "too big integer" },
        { "\"a:0:w\":{\"dtype\":\"F32\",\"shape\":[2,3]}", 24, "must have dtype, shape, data_offsets" },
        { "\"a:0:w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24],\"x\":1}", 24, "and nothing else" },
        { "\"a:0:w\":[]", 0, "must have dtype, shape, data_offsets" },
        { "\"a:0:w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
          "\"a:0:w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[24,48]}",
          48, "duplicate object key" },
        { "\"a:0:v\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}", 24, "there is no parameter v" },
        { "\"a:1:w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}", 24, "must be <slot>:0:<parameter>" },
        { "\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}", 24, "must be <slot>:0:<parameter>" },
        { "\":0:w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}", 24, "the name of a slot is empty" },
        { "\"a:0:w\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[0,24]}", 24,
          "its shape is neither its parameter's nor []" },
        { "\"a:0:w\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0,24]}", 24,
          "its shape is neither its parameter's nor []" },
        { "\"a\\u0000:0:w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}", 24, "NUL" },
        { "\"\xff:0:w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}", 24, "unable to decode byte 0xff" },
        { "\"a:0:w\":{\"dtype\":\"F16\",\"shape\":[],\"data_offsets\":[0,2]},"
          "\"b:0:w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[2,26]}",
          25, "ends at 26, but there are 25 bytes" }, /* fewer bytes than there are, but behind the end */
        { "\"a:0:w\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,2,3],\"data_offsets\":[0,24]}", 24,
          "its shape is neither its parameter's nor []" },
        { "\"x\":[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]", 0, "nested more than 16 deep" },
        { "\"x\":[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]", 0, "must have dtype" },
        { "\"x\":\"[[[[[[[[[[[[[[[[[\"", 0, "must have dtype" },
        { "\"x\":\"\\\"[[[[[[[[[[[[[[[[[\"", 0, "must have dtype" }, /* an escaped quote does not end the text */
        { "\"x\\\\\":[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]", 0, "nested more than 16 deep" }, /* nor escapes the end of it */
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        zro_state *s = (zro_state *)1;
        zro_status st = unpack(with_tensors(cases[i].tensors), cases[i].data_bytes, &s);

        if (cases[i].words == NULL) {
            assert_int_equal(st, ZRO_OK);
            goes_round(s);
            continue;
        }
        REFUSED(st, ZRO_ERR_FORMAT, cases[i].words);
        assert_null(s);
    }
}

/* Tensors without elements take no room, wherever they begin and in whatever order they are listed. */
static void empty_tensors_lie_anywhere(void **state)
{
    static const char *const header =
        "{\"__metadata__\":{\"zro\":\"{\\\"format\\\":1,\\\"rule\\\":\\\"adam\\\",\\\"groups\\\":[{\\\"params\\\":[0,1]}],"
        "\\\"params\\\":[{\\\"name\\\":\\\"w\\\",\\\"shape\\\":[3],\\\"dtype\\\":\\\"f32\\\"},"
        "{\\\"name\\\":\\\"e\\\",\\\"shape\\\":[0],\\\"dtype\\\":\\\"f32\\\"}]}\"},"
        "\"a:0:w\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]},"
        "\"c:0:e\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[12,12]},"
        "\"b:0:e\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}";
    zro_state *s;

    (void)state;
    OK(unpack(header, 12, &s));
    assert_int_equal(zro_state_slots(s, 1), 2);
    goes_round(s);
}

/* The longest name of a slot, and one that would not fit. */
static void long_names_in_files(void **state)
{
    char tensor[700], name[ZRO__STATE_NAME_BYTES + 2];
    zro_state *s;

    (void)state;
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    for (int i = 0; i < 2; i++) {
        snprintf(tensor, sizeof tensor, "\"%s:0:w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}", name + i);
        if (i == 0)
            REFUSED(unpack(with_tensors(tensor), 24, &s), ZRO_ERR_FORMAT, "must be <slot>:0:<parameter>");
        else
            OK(unpack(with_tensors(tensor), 24, &s));
    }
    goes_round(s);
}

/* A header that no reader would take: measured, and not made. */
static void a_header_that_is_too_large(void **state)
{
    enum { TENSORS = 100, NAME_BYTES = 1000000 };
    static zro__tensor list[TENSORS];
    char *name = malloc(NAME_BYTES + 1), *header = NULL;
    size_t header_bytes, data_bytes;

    (void)state;
    memset(name, 'x', NAME_BYTES);
    name[NAME_BYTES] = '\0';
    for (int i = 0; i < TENSORS; i++)
        list[i].name = name;
    REFUSED(zro__tensors_header(list, TENSORS, "k", "v", &header, &header_bytes, &data_bytes), ZRO_ERR_UNSUPPORTED,
            "more than 100000000");
    assert_null(header);
    free(name);
}

static void broken_metadata_is_named(void **state)
{
    static const struct {
        const char *json, *words;
    } cases[] = {
        { "{'format':1,'rule':'','groups':[],'params':[]}", NULL },
        { "{'format':1,'rule':'x','groups':[{'a':null,'fused':'yes','foreach':true,'l':[],'params':[]}],'params':[],'more':{}}",
          NULL },
        { "{'format':2,'rule':'x','groups':[],'params':[]}", "format 2 is newer" },
        { "{'format':0,'rule':'x','groups':[],'params':[]}", "format 0 is unknown" },
        { "{'format':'1','rule':'x','groups':[],'params':[]}", "format is a text" },
        { "{'rule':'x','groups':[],'params':[]}", "format is missing" },
        { "[]", "format is missing" },
        { "", "byte 0" },
        { "{'format':1", "byte" },
        { "{'format':1,'format':1}", "duplicate" },
        { "{'format':1,'rule':7,'groups':[],'params':[]}", "rule is an integer" },
        { "{'format':1,'groups':[],'params':[]}", "rule is missing" },
        { "{'format':1,'rule':'x','steps':-1,'groups':[],'params':[]}", "steps must be an integer" },
        { "{'format':1,'rule':'x','steps':1.5,'groups':[],'params':[]}", "steps must be an integer" },
        { "{'format':1,'rule':'x','growth_tracker':4294967296,'groups':[],'params':[]}", "growth_tracker must be" },
        { "{'format':1,'rule':'x','scale':'1','groups':[],'params':[]}", "scale is a text" },
        { "{'format':1,'rule':'x','scale':-1,'groups':[],'params':[]}", "scale = -1" },
        { "{'format':1,'rule':'x','groups':{},'params':[]}", "groups and params must be lists" },
        { "{'format':1,'rule':'x','groups':[]}", "groups and params must be lists" },
        { "{'format':1,'rule':'x','groups':[[]],'params':[]}", "group 0 is a list" },
        { "{'format':1,'rule':'x','groups':[{}],'params':[]}", "group 0: params is missing" },
        { "{'format':1,'rule':'x','groups':[{'lr':'big','params':[]}],'params':[]}", "group 0: lr is a text" },
        { "{'format':1,'rule':'x','groups':[{'lr':{},'params':[]}],'params':[]}", "group 0: lr is an object" },
        { "{'format':1,'rule':'x','groups':[{'lr':1e999,'params':[]}],'params':[]}", "real number overflow" },
        { "{'format':1,'rule':'x','groups':[{'betas':[1,null],'params':[]}],'params':[]}", "betas:1 is null" },
        { "{'format':1,'rule':'x','groups':[{'betas:0':1,'params':[]}],'params':[]}", "must not contain ':'" },
        { "{'format':1,'rule':'x','groups':[{'':1,'params':[]}],'params':[]}", "the name of a value is empty" },
        { "{'format':1,'rule':'x','groups':[{'params':[0]}],'params':[]}", "the list of parameters ends before" },
        { "{'format':1,'rule':'x','groups':[{'params':[1]}],'params':[]}", "params[0] must be 0" },
        { "{'format':1,'rule':'x','groups':[{'params':['0']}],'params':[]}", "params[0] must be 0" },
        { "{'format':1,'rule':'x','groups':[],'params':[{'name':'w','shape':[],'dtype':'f32'}]}",
          "parameter 0 is in no group" },
        { "{'format':1,'rule':'x','groups':[{'params':[0]}],'params':[{'name':7,'shape':[],'dtype':'f32'}]}",
          "its name is an integer" },
        { "{'format':1,'rule':'x','groups':[{'params':[0]}],'params':[{'name':'','shape':[],'dtype':'f32'}]}",
          "parameter is empty" },
        { "{'format':1,'rule':'x','groups':[{'params':[0]}],'params':[{'shape':[],'dtype':'F32'}]}",
          "dtype is no element type" },
        { "{'format':1,'rule':'x','groups':[{'params':[0]}],'params':[{'shape':[],'dtype':'f32','grad_dtype':1}]}",
          "grad_dtype is no" },
        { "{'format':1,'rule':'x','groups':[{'params':[0]}],'params':[{'dtype':'f32'}]}", "shape must be a list" },
        { "{'format':1,'rule':'x','groups':[{'params':[0]}],'params':[{'shape':[1,1,1,1,1,1,1,1,1],'dtype':'f32'}]}",
          "at most 8" },
        { "{'format':1,'rule':'x','groups':[{'params':[0]}],'params':[{'shape':[-1],'dtype':'f32'}]}", "shape[0] must be" },
        { "{'format':1,'rule':'x','groups':[{'params':[0]}],'params':[{'shape':[4611686018427387904],'dtype':'f32'}]}",
          "more elements" },
        { "{'format':1,'rule':'x','groups':[{'params':[0]}],'params':[7]}", "shape must be a list" },
        { "{'format':1,'rule':'x','groups':[{'params':[0,1]}],'params':[{'name':'w','shape':[],'dtype':'f32'},"
          "{'name':'w','shape':[],'dtype':'f32'}]}",
          "two parameters are named w" },
        { "[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]", "nested more than 16 deep" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        zro_state *s = (zro_state *)1;
        zro_status st = unpack(with_metadata(cases[i].json), 0, &s);

        if (cases[i].words == NULL) {
            assert_int_equal(st, ZRO_OK);
            goes_round(s);
            continue;
        }
        REFUSED(st, ZRO_ERR_FORMAT, cases[i].words);
        assert_null(s);
    }
}

static void broken_heads_are_named(void **state)
{
    static const unsigned char too_long[16] = { 0x01, 0xe1, 0xf5, 0x05 }, longest[16] = { 0x00, 0xe1, 0xf5, 0x05 },
                               beyond[16] = { 9 }, huge[8] = { 0, 0, 0, 0, 0, 0, 0, 255 };
    zro_state *s = (zro_state *)1;

    (void)state;
    REFUSED(zro_state_unpack(NULL, 0, &s), ZRO_ERR_INVALID, "bytes is NULL");
    REFUSED(zro_state_unpack("", 0, NULL), ZRO_ERR_INVALID, "out is NULL");
    REFUSED(zro_state_unpack("", 0, &s), ZRO_ERR_FORMAT, "the bytes: empty");
    assert_null(s);
    REFUSED(zro_state_unpack("1234567", 7, &s), ZRO_ERR_FORMAT, "7 bytes, too few");
    REFUSED(zro_state_unpack(too_long, 16, &s), ZRO_ERR_FORMAT, "would have 100000001 bytes");
    REFUSED(zro_state_unpack(longest, 16, &s), ZRO_ERR_FORMAT, "has 100000000 bytes, but only 8 follow");
    REFUSED(zro_state_unpack(huge, 8, &s), ZRO_ERR_FORMAT, "no safetensors file");
    REFUSED(zro_state_unpack(beyond, 16, &s), ZRO_ERR_FORMAT, "has 9 bytes, but only 8 follow");
    REFUSED(unpack("", 0, &s), ZRO_ERR_FORMAT, "does not begin with '{'");
    REFUSED(unpack(" {}", 0, &s), ZRO_ERR_FORMAT, "does not begin with '{'");
    REFUSED(unpack("{} x", 0, &s), ZRO_ERR_FORMAT, "end of file expected");
    REFUSED(unpack("{}", 0, &s), ZRO_ERR_FORMAT, "no state of zro");
    REFUSED(unpack("{\"__metadata__\":[]}", 0, &s), ZRO_ERR_FORMAT, "__metadata__ must be an object");
    REFUSED(unpack("{\"__metadata__\":{\"zro\":1}}", 0, &s), ZRO_ERR_FORMAT, "zro must be a text");
    REFUSED(unpack("{\"__metadata__\":{\"other\":\"\"}}", 0, &s), ZRO_ERR_FORMAT, "no state of zro");
}

/* Whatever byte is flipped or cut: an answer, and no harm. */
static void flipped_and_cut_bytes(void **state)
{
    zro_state *s = make_adamw(), *t;
    unsigned char *bytes, *copy;
    void *packed;
    size_t n;

    (void)state;
    OK(zro_state_pack(s, &packed, &n));
    bytes = packed;
    for (size_t i = 0; i < n; i++) {
        copy = malloc(n); /* of its own, so that a sanitizer sees its borders */
        memcpy(copy, bytes, n);
        copy[i] ^= (unsigned char)(1 << i % 8);
        if (zro_state_unpack(copy, n, &t) == ZRO_OK)
            zro_state_destroy(t);
        assert_int_equal(zro_state_unpack(memcpy(copy, bytes, i), i, &t), ZRO_ERR_FORMAT);
        free(copy);
    }
    zro_bytes_free(packed);
    zro_state_destroy(s);
}

/* ---- between ranks ---- */

enum { RANKS = 3 };

/* What the ranks of a test do; what went wrong is text, because an assertion on a rank's thread would end the wrong one. */
typedef struct broadcast {
    const zro_state *built;
    const void *packed; /* the same as bytes */
    size_t bytes;
    int root;
    int wrong;      /* a rank that passes what it must not */
    zro_status now; /* what that rank gets, and others PEER */
    const char *words;
} broadcast;

static int is_packed_as(const zro_state *s, const broadcast *b)
{
    void *bytes = NULL;
    size_t n = 0;
    int same_bytes = zro_state_pack(s, &bytes, &n) == ZRO_OK && n == b->bytes && memcmp(bytes, b->packed, n) == 0;

    zro_bytes_free(bytes);
    return same_bytes;
}

static int receives(void *user, zro_group *group)
{
    const broadcast *b = user;
    zro_state *s = NULL;
    int wrong = 0;

    if (zro_group_rank(group) == b->root && zro_state_unpack(b->packed, b->bytes, &s) != ZRO_OK)
        return 2;
    for (int i = 0; i < 2; i++) { /* the second time to all but the root again */
        if (zro_state_broadcast(group, &s, b->root) != ZRO_OK)
            return fprintf(stderr, "%s\n", zro_last_error()), 3;
        wrong |= !is_packed_as(s, b);
        if (zro_group_rank(group) != b->root || i == 1) {
            zro_state_destroy(s);
            s = NULL;
        }
    }
    return wrong;
}

/* The root's own, in as many blocks as it has. */
static int receives_blocks(void *user, zro_group *group)
{
    const broadcast *b = user;
    zro_state *made = NULL, *s = (zro_state *)(uintptr_t)b->built;
    int failed;

    if (zro_group_rank(group) == b->root)
        return zro_state_broadcast(group, &s, b->root) != ZRO_OK;
    failed = zro_state_broadcast(group, &made, b->root) != ZRO_OK || !is_packed_as(made, b);
    zro_state_destroy(made);
    return failed;
}

static void all_ranks_get_the_state(void **state)
{
    zro_state *states[] = { make_adamw(), make_large(1000), NULL, NULL, make_singles() };
    broadcast b = { 0 };

    (void)state;
    OK(zro_state_create("", &states[2]));
    OK(zro_state_create("sgd", &states[3]));
    OK(zro_state_add_group(states[3], NULL, 0));
    for (size_t i = 0; i < 500; i++)
        add_param(states[3], NULL, ZRO_I8, 1, i * 100, 0);
    for (size_t i = 500; i-- > 0;)
        add_slot(states[3], i, "slot", ZRO_I8, i * 100);
    assert_ptr_not_equal(states[3]->first_block, states[3]->last_block);
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        void *packed;

        OK(zro_state_pack(states[i], &packed, &b.bytes));
        b.built = states[i];
        b.packed = packed;
        b.root = (int)i % RANKS;
        OK(zro_spawn_threads(NULL, RANKS, receives, &b));
        OK(zro_spawn_threads(NULL, RANKS, receives_blocks, &b));
        zro_bytes_free(packed);
        zro_state_destroy(states[i]);
    }
}

/* A rank that does something wrong, and then everybody something right. */
static int refuses(void *user, zro_group *group)
{
    const broadcast *b = user;
    int me = zro_group_rank(group), root = me == b->root, wrong = me == b->wrong;
    zro__point_plan plan = { .name = "memory.alloc", .action = ZRO__POINT_FAIL, .nth = root ? 1 : 3 };
    zro_state *s = NULL, *before;
    zro_status st;
    int failed = 0;

    if (root != (wrong && b->now != ZRO_ERR_MEMORY) && zro_state_unpack(b->packed, b->bytes, &s) != ZRO_OK)
        return 2;
    before = s;
    if (wrong && b->now == ZRO_ERR_MEMORY)
        zro__point_plan_set(&plan);
    st = zro_state_broadcast(group, &s, b->root);
    zro__point_plan_set(NULL);
    failed |= st != (wrong ? b->now : ZRO_ERR_PEER) || strstr(zro_last_error(), b->words) == NULL || s != before;
    if (failed)
        fprintf(stderr, "rank %d: %s: %s\n", me, zro_status_name(st), zro_last_error());
    if (!root) {
        zro_state_destroy(s);
        s = NULL;
    } else if (s == NULL && zro_state_unpack(b->packed, b->bytes, &s) != ZRO_OK) {
        return 2;
    }
    failed |= zro_state_broadcast(group, &s, b->root) != ZRO_OK || !is_packed_as(s, b);
    zro_state_destroy(s);
    return failed;
}

static int wrong_root(void *user, zro_group *group)
{
    zro_state *s = NULL;

    (void)user;
    return zro_state_broadcast(group, &s, RANKS) != ZRO_ERR_INVALID || zro_state_broadcast(group, &s, -1) != ZRO_ERR_INVALID;
}

static void one_rank_in_error_is_an_error_on_all(void **state)
{
    static const broadcast cases[] = {
        { .root = 1, .wrong = 1, .now = ZRO_ERR_STATE, .words = "root 1 has no state" },
        { .root = 1, .wrong = 2, .now = ZRO_ERR_INVALID, .words = "rank 2 has a state" },
        { .root = 0, .wrong = 0, .now = ZRO_ERR_MEMORY, .words = "out of memory" },
        { .root = 0, .wrong = 2, .now = ZRO_ERR_MEMORY, .words = "out of memory" },
    };
    zro_state *s = make_adamw();
    void *packed;
    size_t n;

    (void)state;
    OK(zro_state_pack(s, &packed, &n));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        broadcast b = cases[i];

        b.packed = packed;
        b.bytes = n;
        OK(zro_spawn_threads(NULL, RANKS, refuses, &b));
    }
    OK(zro_spawn_threads(NULL, RANKS, wrong_root, NULL));
    zro_bytes_free(packed);
    zro_state_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_state_goes_round),
        cmocka_unit_test(every_type_goes_round),
        cmocka_unit_test(names_of_any_kind_go_round),
        cmocka_unit_test(empty_things_go_round),
        cmocka_unit_test(the_file_says_what_pytorch_says),
        cmocka_unit_test(single_numbers_stay_single),
        cmocka_unit_test(flags_are_0_or_1),
        cmocka_unit_test(numbers_do_not_follow_the_locale),
        cmocka_unit_test(a_large_state_takes_no_time),
        cmocka_unit_test(slots_do_not_move),
        cmocka_unit_test(no_state_says_what_to_call),
        cmocka_unit_test(names_that_cannot_be),
        cmocka_unit_test(what_cannot_be_added),
        cmocka_unit_test(what_cannot_be_asked),
        cmocka_unit_test(memory_that_runs_out),
        cmocka_unit_test(memory_comes_later),
        cmocka_unit_test(what_cannot_be_written),
        cmocka_unit_test(broken_tensors_are_named),
        cmocka_unit_test(empty_tensors_lie_anywhere),
        cmocka_unit_test(long_names_in_files),
        cmocka_unit_test(a_header_that_is_too_large),
        cmocka_unit_test(broken_metadata_is_named),
        cmocka_unit_test(broken_heads_are_named),
        cmocka_unit_test(flipped_and_cut_bytes),
        cmocka_unit_test(all_ranks_get_the_state),
        cmocka_unit_test(one_rank_in_error_is_an_error_on_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
