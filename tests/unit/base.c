/* Status, memory, settings, parameters, texts, points, log and clock: the rest of the base. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bounds.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/param.h"
#include "base/point.h"
#include "base/settings.h"
#include "base/status.h"
#include "base/text.h"

static void every_code_has_name_and_text(void **state)
{
    static const char *const names[] = { "OK",          "INVALID",  "STATE", "MEMORY", "SYSTEM", "FORMAT",
                                         "UNSUPPORTED", "MISMATCH", "PEER",  "LOST",   "TIMEOUT" };

    (void)state;
    for (int i = 0; i < 11; i++) {
        assert_string_equal(zro_status_name((zro_status)i), names[i]);
        assert_true(strlen(zro_status_text((zro_status)i)) > 0);
    }
    assert_string_equal(zro_status_name((zro_status)11), "UNKNOWN");
    assert_string_equal(zro_status_name((zro_status)-1), "UNKNOWN");
    assert_non_null(zro_status_text((zro_status)99));
    assert_int_equal(zro_error_set(ZRO_ERR_LOST, NULL), ZRO_ERR_LOST);
    assert_string_equal(zro_last_error(), "a rank is gone");
}

static void fail_writes_the_text(void **state)
{
    char long_text[2 * ZRO__TEXT_BYTES];

    (void)state;
    assert_int_equal(zro__fail(ZRO_ERR_INVALID, "beta = %g", 1.5), ZRO_ERR_INVALID);
    assert_string_equal(zro_last_error(), "beta = 1.5");
    assert_int_equal(zro__fail(ZRO_ERR_STATE, "wrapped (%s)", zro_last_error()), ZRO_ERR_STATE);
    assert_string_equal(zro_last_error(), "wrapped (beta = 1.5)");
    assert_int_equal(zro__fail_errno(ZRO_ERR_SYSTEM, ENOENT, "open"), ZRO_ERR_SYSTEM);
    assert_string_equal(zro_last_error(), "open: No such file or directory");
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = 0;
    assert_int_equal(zro__fail_errno(ZRO_ERR_PEER, ENOENT, "%s", long_text), ZRO_ERR_PEER);
    assert_int_equal(strlen(zro_last_error()), ZRO__TEXT_BYTES - 1);
}

/* Inside: "".  Outside: the text. */
static void check_bound(double value, double low, double high, int flags, const char *text)
{
    const zro__bound bounds[] = { { "first", 1, 0, 2, 0 }, { "x", value, low, high, flags } };

    if (*text == '\0') {
        assert_int_equal(zro__bounds_check("it", bounds, 2), ZRO_OK);
        return;
    }
    assert_int_equal(zro__bounds_check("it", bounds, 2), ZRO_ERR_INVALID);
    assert_string_equal(zro_last_error(), text);
}

static void bounds_are_checked(void **state)
{
    const zro__bound alone = { "x", 3, 0, 2, 0 };

    (void)state;
    check_bound(0, 0, 1, ZRO_OPEN_HIGH, "");
    check_bound(1, 0, 1, ZRO_OPEN_LOW, "");
    check_bound(1, 0, 1, ZRO_OPEN_HIGH, "it: x = 1, must be in [0, 1)");
    check_bound(0, 0, 1, ZRO_OPEN_LOW, "it: x = 0, must be in (0, 1]");
    check_bound((double)NAN, 0, 1, 0, "it: x = nan, must be in [0, 1]");
    check_bound(0, 1, DBL_MAX, 0, "it: x = 0, must be finite and >= 1");
    check_bound((double)INFINITY, 1, DBL_MAX, ZRO_OPEN_LOW, "it: x = inf, must be finite and > 1");
    check_bound((double)INFINITY, 0, (double)INFINITY, 0, "");
    check_bound(-1, 0, (double)INFINITY, 0, "it: x = -1, must be >= 0");
    check_bound((double)INFINITY, -DBL_MAX, DBL_MAX, 0, "it: x = inf, must be finite");
    check_bound((double)NAN, (double)-INFINITY, (double)INFINITY, 0, "it: x = nan, must be a number");
    check_bound(1, 0, 1, ZRO__SWITCH, "");
    check_bound(0.5, 0, 1, ZRO__SWITCH, "it: x = 0.5, must be on or off");
    check_bound(0, 1, 1, ZRO__SWITCH, "it: x = 0, must be on");
    assert_int_equal(zro__bounds_check(NULL, &alone, 1), ZRO_ERR_INVALID);
    assert_string_equal(zro_last_error(), "x = 3, must be in [0, 2]");
}

static void *fail_elsewhere(void *arg)
{
    (void)arg;
    if (strcmp(zro_last_error(), "") != 0)
        return "the text of a new thread is not empty";
    zro__fail(ZRO_ERR_STATE, "elsewhere");
    return NULL;
}

static void texts_belong_to_threads(void **state)
{
    pthread_t thread;
    void *complaint;

    (void)state;
    zro__fail(ZRO_ERR_STATE, "here");
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
    assert_int_equal(pthread_join(thread, &complaint), 0);
    assert_null(complaint);
    assert_string_equal(zro_last_error(), "here");
}

static void sizes_are_checked(void **state)
{
    size_t out = 7;

    (void)state;
    assert_true(zro__size_add(SIZE_MAX - 1, 1, &out));
    assert_int_equal(out, SIZE_MAX);
    assert_false(zro__size_add(SIZE_MAX, 1, &out));
    assert_true(zro__size_mul(SIZE_MAX / 2, 2, &out));
    assert_int_equal(out, SIZE_MAX - 1);
    assert_false(zro__size_mul(SIZE_MAX / 2 + 1, 2, &out));
    assert_true(zro__size_mul(0, SIZE_MAX, &out));
    assert_int_equal(out, 0);
    assert_true(zro__size_round(65, 64, &out));
    assert_int_equal(out, 128);
    assert_true(zro__size_round(128, 64, &out));
    assert_int_equal(out, 128);
    assert_true(zro__size_round(0, 64, &out));
    assert_int_equal(out, 0);
    assert_false(zro__size_round(SIZE_MAX - 62, 64, &out));
}

static void accounts_count(void **state)
{
    zro__account account = { 0 };
    char *a, *b, *c;

    (void)state;
    a = zro__alloc(&account, ZRO__KIND_HANDLE, 100);
    b = zro__alloc_array(&account, ZRO__KIND_BUFFER, 10, 20);
    assert_true(a != NULL && b != NULL);
    assert_int_equal((uintptr_t)a % 64, 0);
    assert_int_equal((uintptr_t)b % 64, 0);
    for (int i = 0; i < 200; i++)
        assert_true((i >= 100 || a[i] == 0) && b[i] == 0);
    assert_int_equal(atomic_load(&account.bytes[ZRO__KIND_HANDLE]), 100);
    assert_int_equal(atomic_load(&account.bytes[ZRO__KIND_BUFFER]), 200);
    assert_int_equal(atomic_load(&account.in_use), 300);
    zro__free(a);
    c = zro__alloc(&account, ZRO__KIND_HANDLE, 50);
    assert_non_null(c);
    assert_int_equal(atomic_load(&account.in_use), 250);
    assert_int_equal(atomic_load(&account.peak), 300);
    zro__free(b);
    zro__free(c);
    zro__free(NULL);
    assert_int_equal(atomic_load(&account.in_use), 0);
    assert_int_equal(atomic_load(&account.bytes[ZRO__KIND_HANDLE]), 0);
    assert_int_equal(atomic_load(&account.bytes[ZRO__KIND_BUFFER]), 0);
    assert_null(zro__alloc(&account, ZRO__KIND_HANDLE, SIZE_MAX - 10));
    assert_null(zro__alloc_array(&account, ZRO__KIND_HANDLE, SIZE_MAX / 8 + 2, 8));
    assert_int_equal(atomic_load(&account.peak), 300);
    a = zro__alloc(NULL, ZRO__KIND_HANDLE, 0);
    assert_non_null(a);
    zro__free(a);
}

static void arenas_hand_out_arrays(void **state)
{
    zro__account account = { 0 };
    zro__arena arena = { 0 };
    char *a, *b, *c;

    (void)state;
    assert_int_equal(
        zro__arena_arrays(&arena, &account, "three", (zro__array[]){ { &a, 3, 7 }, { &b, 0, 8 }, { &c, 100, 8 } }, 3), ZRO_OK);
    assert_int_equal(atomic_load(&account.in_use), 64 + 832);
    assert_true(b == a + 64 && c == b && (uintptr_t)c % 64 == 0);
    memset(c, 1, 800);
    zro__arena_free(&arena);
    assert_null(arena.base);
    assert_int_equal(atomic_load(&account.in_use), 0);
    assert_int_equal(zro__arena_arrays(&arena, &account, "too much", (zro__array[]){ { &a, SIZE_MAX / 2, 3 } }, 1),
                     ZRO_ERR_MEMORY);
    assert_non_null(strstr(zro_last_error(), "too much"));
    arena.overflow = 1;
    assert_int_equal(zro__arena_arrays(&arena, &account, "what did not fit", (zro__array[]){ { &a, 1, 1 } }, 1),
                     ZRO_ERR_MEMORY);
    zro__arena_free(&arena);
}

static void arrays_grow(void **state)
{
    zro__account account = { 0 };
    int *array = NULL;
    size_t capacity = 0;

    (void)state;
    assert_true(zro__grow(&account, &array, &capacity, 10, sizeof *array) && capacity == 10);
    assert_true(zro__grow(&account, &array, &capacity, 11, sizeof *array) && capacity == 20);
    zro__free(array);
    array = NULL;
    capacity = 0;
    for (size_t n = 0; n < 1000; n++) {
        assert_true(zro__grow(&account, &array, &capacity, n + 1, sizeof *array));
        assert_true(capacity > n && capacity <= 2 * n + 1);
        array[n] = (int)n;
    }
    for (int n = 0; n < 1000; n++)
        assert_int_equal(array[n], n);
    assert_false(zro__grow(&account, &array, &capacity, SIZE_MAX / 2, sizeof *array));
    assert_true(capacity < 2000 && array[999] == 999);
    zro__free(array);
    assert_int_equal(atomic_load(&account.in_use), 0);
}

#define REFUSED(call, status, text)                                                                                            \
    do {                                                                                                                       \
        assert_int_equal(call, status);                                                                                        \
        assert_string_equal(zro_last_error(), text);                                                                           \
    } while (0)

static void settings_are_checked(void **state)
{
    const zro_settings good = ZRO_SETTINGS_INIT;
    zro_settings s = good;

    (void)state;
    assert_int_equal(zro__settings_check(&s), ZRO_OK);
    s.threads = 256;
    s.fast = ZRO_OFF;
    s.log_level = ZRO_LOG_DEBUG;
    s.kernels = ZRO_KERNELS_BASE;
    assert_int_equal(zro__settings_check(&s), ZRO_OK);
    s.threads = 257;
    REFUSED(zro__settings_check(&s), ZRO_ERR_INVALID, "settings: threads = 257, must be in [1, 256]");
    s.threads = 0;
    REFUSED(zro__settings_check(&s), ZRO_ERR_INVALID, "settings: threads = 0, must be in [1, 256]");
    s = good;
    s.fast = (zro_switch)2;
    REFUSED(zro__settings_check(&s), ZRO_ERR_INVALID, "settings: fast = 2, must be on or off");
    s = good;
    for (int k = -1; k <= 4; k += 5) {
        char text[80];

        s.kernels = (zro_kernels)k;
        snprintf(text, sizeof text, "settings: kernels = %d is none of auto, base, avx2, avx512", k);
        REFUSED(zro__settings_check(&s), ZRO_ERR_INVALID, text);
        s.kernels = ZRO_KERNELS_AUTO;
        s.log_level = (zro_log_level)k;
        snprintf(text, sizeof text, "settings: log_level = %d is none of off, warn, info, debug", k);
        REFUSED(zro__settings_check(&s), ZRO_ERR_INVALID, text);
        s.log_level = ZRO_LOG_OFF;
    }
    assert_int_equal(zro__settings_check(&s), ZRO_OK);
}

/* A struct of the library's version, and of an older and a newer one, whose programs know fewer and more fields. */
typedef struct sized {
    size_t struct_size;
    int known, added, later;
} sized;

static void structs_have_versions(void **state)
{
    enum { OLD = offsetof(sized, added), OURS = offsetof(sized, later) };
    const sized defaults = { OURS, 1, 2, 3 };
    sized given = { OLD, 5, 6, 7 }, taken = defaults;

    (void)state;
    assert_int_equal(zro__config_take("sized", NULL, OLD, &taken, OURS), ZRO_OK);
    assert_true(taken.known == 1 && taken.added == 2);
    assert_int_equal(zro__config_take("sized", &given, OLD, &taken, OURS), ZRO_OK);
    assert_true(taken.struct_size == OURS && taken.known == 5 && taken.added == 2 && taken.later == 3);
    given.struct_size = sizeof given;
    assert_int_equal(zro__config_take("sized", &given, OLD, &taken, OURS), ZRO_OK);
    assert_true(taken.struct_size == OURS && taken.known == 5 && taken.added == 6 && taken.later == 3);
    given.struct_size = OLD - 1;
    REFUSED(zro__config_take("sized", &given, OLD, &taken, OURS), ZRO_ERR_INVALID,
            "sized: struct_size = 11; begin with its initializer");
    given.struct_size = 4097;
    REFUSED(zro__config_take("sized", &given, OLD, &taken, OURS), ZRO_ERR_INVALID,
            "sized: struct_size = 4097; begin with its initializer");

    given = (sized){ OLD, 5, 6, 7 };
    assert_int_equal(zro__config_give("no size", &defaults, OURS, &given), ZRO_OK);
    assert_true(given.struct_size == OLD && given.known == 1 && given.added == 6 && given.later == 7);
    given.struct_size = sizeof given;
    assert_int_equal(zro__config_give("no size", &defaults, OURS, &given), ZRO_OK);
    assert_true(given.struct_size == sizeof given && given.known == 1 && given.added == 2 && given.later == 7);
    given.struct_size = 7;
    REFUSED(zro__config_give("no size", &defaults, OURS, &given), ZRO_ERR_INVALID, "no size");
    given.struct_size = 4097;
    REFUSED(zro__config_give("no size", &defaults, OURS, &given), ZRO_ERR_INVALID, "no size");
    REFUSED(zro__config_give("no size", &defaults, OURS, NULL), ZRO_ERR_INVALID, "no size");
}

static zro_param param_of(void *data, size_t count)
{
    zro_param p = ZRO_PARAM_INIT;

    p.data = data;
    p.shape[0] = count;
    return p;
}

static void params_are_counted(void **state)
{
    zro_param p = param_of(NULL, 7);
    char shape[ZRO__SHAPE_BYTES];

    (void)state;
    assert_int_equal(zro_param_count(NULL), 0);
    assert_int_equal(zro_param_count(&p), 7);
    p.n_dims = 0;
    assert_int_equal(zro_param_count(&p), 1);
    assert_string_equal(zro__param_shape(&p, shape), "");
    p.n_dims = 3;
    p.shape[1] = p.shape[2] = SIZE_MAX / 4;
    assert_true(zro_param_count(&p) == SIZE_MAX);
    p.shape[0] = SIZE_MAX / 4;
    p.shape[2] = 0; /* counted before the product overflows */
    assert_int_equal(zro_param_count(&p), 0);
    p.n_dims = ZRO_MAX_DIMS + 1;
    assert_true(zro_param_count(&p) == SIZE_MAX);
    for (int i = 0; i < ZRO_MAX_DIMS; i++)
        p.shape[i] = 2;
    assert_string_equal(zro__param_shape(&p, shape), "2x2x2x2x2x2x2x2");
    zro_param_set_grad(&p, shape);
    assert_true(p.grad == shape && p.grad_present == 1);
    zro_param_set_grad(&p, NULL);
    assert_true(p.grad == NULL && p.grad_present == 0);
    zro_param_set_grad(NULL, shape);
}

static void params_are_checked(void **state)
{
    float x[2];
    zro_param p = param_of(x, 2);

    (void)state;
    assert_int_equal(zro__param_check(&p, 3), ZRO_OK);
    p.grad = x;
    REFUSED(zro__param_check(&p, 3), ZRO_ERR_INVALID,
            "parameter 3: data and grad are the same array; a gradient needs its own");
    p.grad = NULL;
    p.data = NULL;
    REFUSED(zro__param_check(&p, 3), ZRO_ERR_INVALID,
            "parameter 3: data is NULL; point it at its values, or let zro_params_alloc hand out memory");
    p.shape[0] = 0;
    assert_int_equal(zro__param_check(&p, 3), ZRO_OK);
    p.name = "w";
    p.layout = ZRO_LAYOUT_SPARSE;
    REFUSED(zro__param_check(&p, 3), ZRO_ERR_INVALID, "parameter w: its layout is sparse, must be dense");
    p.layout = ZRO_LAYOUT_STRIDED;
    REFUSED(zro__param_check(&p, 3), ZRO_ERR_INVALID, "parameter w: its layout is strided, must be dense");
    p.layout = (zro_layout)9;
    REFUSED(zro__param_check(&p, 3), ZRO_ERR_INVALID, "parameter w: its layout is unknown, must be dense");
    p.layout = ZRO_LAYOUT_DENSE;
    p.shape[0] = SIZE_MAX / 16;
    assert_int_equal(zro__param_check_shape(&p, 3), ZRO_OK);
    p.shape[0]++;
    REFUSED(zro__param_check_shape(&p, 3), ZRO_ERR_INVALID, "parameter w: its shape has more elements than memory can hold");
    p.n_dims = 2;
    p.shape[0] = p.shape[1] = (size_t)1 << 31; /* neither is too large by itself, and their product can be counted */
    REFUSED(zro__param_check_shape(&p, 3), ZRO_ERR_INVALID, "parameter w: its shape has more elements than memory can hold");
    p.shape[0] = SIZE_MAX / 16 + 1;
    p.shape[1] = 0; /* no elements, and yet a shape that cannot be */
    REFUSED(zro__param_check_shape(&p, 3), ZRO_ERR_INVALID, "parameter w: its shape has more elements than memory can hold");
    p.n_dims = 9;
    REFUSED(zro__param_check_shape(&p, 3), ZRO_ERR_INVALID, "parameter w: 9 dimensions, at most 8 are possible");
    p = param_of(x, 2);
    assert_int_equal(zro__param_check_types(&p, 3), ZRO_OK);
    p.grad_dtype = (zro_dtype)-2;
    REFUSED(zro__param_check_types(&p, 3), ZRO_ERR_INVALID, "parameter 3: grad_dtype = -2 is no element type");
    p.dtype = (zro_dtype)8;
    REFUSED(zro__param_check_types(&p, 3), ZRO_ERR_INVALID, "parameter 3: dtype = 8 is no element type");
}

/* Its name cannot be read: memory that was not initialised has anything there. */
static void params_are_initialised(void **state)
{
    const char *text =
        "parameter 3: it was not initialised: fields that must be zero are not; begin with zro_param_make, or with "
        "zro_param p = ZRO_PARAM_INIT";
    float x[2];
    zro_param p;

    (void)state;
    memset(&p, 0xa5, sizeof p);
    p.data = x;
    p.n_dims = 1;
    REFUSED(zro__param_check(&p, 3), ZRO_ERR_INVALID, text);
    REFUSED(zro__param_check_types(&p, 3), ZRO_ERR_INVALID, text);
    for (size_t i = 0; i < 4; i++) {
        p = param_of(x, 2);
        if (i == 3)
            p.reserved32 = 1;
        else
            p.reserved[i] = 1;
        REFUSED(zro__param_check_shape(&p, 3), ZRO_ERR_INVALID, text);
    }
}

static void params_lie_apart(void **state)
{
    float x[8];
    zro_param p[] = { param_of(x + 4, 4), param_of(x, 4), param_of(NULL, 0), param_of(NULL, 0), param_of(x + 2, 0) };
    zro__numbered list[5];

    (void)state;
    for (int overlap = 0; overlap < 2; overlap++) {
        for (size_t i = 0; i < 5; i++)
            list[i] = (zro__numbered){ &p[i], i, zro_param_count(&p[i]) * sizeof(float), p[i].data };
        if (overlap == 0) {
            assert_int_equal(zro__params_check_apart(list, 5), ZRO_OK);
            p[1].shape[0] = 5;
            p[1].name = "w";
        } else {
            REFUSED(zro__params_check_apart(list, 4), ZRO_ERR_INVALID,
                    "parameters w and 0 share memory; weights that are tied are one parameter");
        }
    }
    list[0] = list[2] = (zro__numbered){ &p[0], 0, 16, p[0].data };
    list[1] = (zro__numbered){ &p[2], 1, 0, NULL };
    list[2].index = 2;
    REFUSED(zro__params_check_apart(list, 3), ZRO_ERR_INVALID, "parameter 0 is there twice");
    list[0] = list[2] = (zro__numbered){ &p[2], 0, 0, NULL };
    list[1] = (zro__numbered){ &p[3], 1, 0, NULL };
    list[2].index = 2;
    REFUSED(zro__params_check_apart(list, 3), ZRO_ERR_INVALID, "parameter 0 is there twice");
}

static void texts_are_cut_and_measured(void **state)
{
    char buffer[] = "........guard";
    zro__text text = { buffer, 8, 0 }, nowhere = { NULL, 0, 0 };

    (void)state;
    zro__text_add(&text, "%d", 12345);
    assert_string_equal(buffer, "12345");
    zro__text_add(&text, "%s", "abcdef");
    assert_string_equal(buffer, "12345ab");
    assert_int_equal(text.at, 11);
    zro__text_add(&text, "more");
    assert_string_equal(buffer, "12345ab");
    assert_string_equal(buffer + 8, "guard");
    assert_int_equal(text.at, 15);
    zro__text_add(&nowhere, "%s", "abcdef");
    zro__text_add(&nowhere, "%s", "g");
    assert_int_equal(nowhere.at, 7);
}

/* Every byte counts, and so does where one piece ends and the next begins. */
static void hashes_see_every_byte(void **state)
{
    char bytes[20] = "";

    (void)state;
    for (size_t n = 0; n < sizeof bytes; n++) {
        uint64_t before = zro__hash(ZRO__HASH_START, bytes, n);

        for (size_t i = 0; i < n; i++)
            assert_true(before != zro__hash(ZRO__HASH_START, bytes, i));
        for (size_t i = 0; i < n; i++) {
            bytes[i] ^= 1;
            assert_true(before != zro__hash(ZRO__HASH_START, bytes, n));
            bytes[i] ^= 1;
        }
    }
}

#ifdef ZRO__POINTS

static void note(void *user, const char *name)
{
    strcat(user, name);
}

static void ended(void *user)
{
    ++*(int *)user;
}

static void points_fail_at_the_nth_passing(void **state)
{
    zro__point_plan plan = { .name = "memory.alloc", .action = ZRO__POINT_FAIL, .nth = 2 };
    void *a, *b, *c;

    (void)state;
    zro__point_plan_set(&plan);
    assert_ptr_equal(zro__point_plan_get(), &plan);
    assert_int_equal(ZRO__POINT("another"), 0);
    a = zro__alloc(NULL, ZRO__KIND_HANDLE, 1);
    b = zro__alloc(NULL, ZRO__KIND_HANDLE, 1);
    c = zro__alloc(NULL, ZRO__KIND_HANDLE, 1);
    zro__point_plan_set(NULL);
    assert_true(a != NULL && b == NULL && c != NULL);
    assert_int_equal(atomic_load(&plan.hits), 3);
    zro__free(a);
    zro__free(c);
    assert_int_equal(ZRO__POINT("memory.alloc"), 0);
}

static void points_list_kill_and_yield(void **state)
{
    char seen[64] = "";
    int deaths = 0;
    zro__point_plan list = { .action = ZRO__POINT_LIST, .seen = note, .user = seen };
    zro__point_plan death = { .action = ZRO__POINT_KILL, .nth = 2, .kill_rank = ended, .user = &deaths };
    zro__point_plan yield = { .action = ZRO__POINT_YIELD, .nth = 1 };

    (void)state;
    zro__point_plan_set(&list);
    assert_int_equal(ZRO__POINT("a.") | ZRO__POINT("b."), 0);
    zro__point_plan_set(&death);
    assert_int_equal(ZRO__POINT("a.") | ZRO__POINT("b.") | ZRO__POINT("c."), 0);
    zro__point_plan_set(&yield);
    assert_int_equal(ZRO__POINT("a.") | ZRO__POINT("b."), 0);
    zro__point_plan_set(NULL);
    assert_string_equal(seen, "a.b.");
    assert_int_equal(deaths, 1);
}

#endif

static void take_line(void *user, zro_log_level level, const char *text)
{
    snprintf(user, 100, "%d %s", (int)level, text);
}

static void the_log_filters(void **state)
{
    char line[100] = "";
    zro_settings settings = ZRO_SETTINGS_INIT;

    int output = dup(2), pipe_ends[2];
    ssize_t n;

    (void)state;
    /* Without a callback it goes to standard error, unless nothing is to be said at all. */
    assert_int_equal(pipe(pipe_ends), 0);
    fflush(stderr);
    dup2(pipe_ends[1], 2);
    zro__log(&settings, ZRO_LOG_WARN, "to everybody");
    zro__log(&settings, ZRO_LOG_INFO, "too quiet");
    settings.log_level = ZRO_LOG_OFF;
    zro__log(&settings, ZRO_LOG_WARN, "nothing");
    settings.log_level = ZRO_LOG_WARN;
    fflush(stderr);
    dup2(output, 2);
    close(output);
    close(pipe_ends[1]);
    n = read(pipe_ends[0], line, sizeof line - 1);
    close(pipe_ends[0]);
    assert_int_equal(n, 26);
    assert_string_equal(line, "zro warning: to everybody\n");
    memset(line, 0, sizeof line);
    settings.log = take_line;
    settings.log_user = line;
    zro__log(&settings, ZRO_LOG_INFO, "too quiet");
    assert_string_equal(line, "");
    zro__log(&settings, ZRO_LOG_WARN, "rank %d", 3);
    assert_string_equal(line, "1 rank 3");
}

/* It ends the process, with the text on standard error. */
static void must_ends_the_process(void **state)
{
    char text[200] = "";
    int ends[2], status;
    pid_t pid;

    (void)state;
    zro_must(ZRO_OK);
    assert_int_equal(pipe(ends), 0);
    pid = fork();
    if (pid == 0) {
        dup2(ends[1], 2);
        zro_must(zro__fail(ZRO_ERR_STATE, "not now"));
        _exit(0);
    }
    close(ends[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    assert_true(read(ends[0], text, sizeof text - 1) > 0);
    close(ends[0]);
    assert_string_equal(text, "zro: STATE: not now\n");
}

static void the_clock_goes_on(void **state)
{
    uint64_t before = zro__now_ns(), after = before;

    (void)state;
    while (after == before)
        after = zro__now_ns();
    assert_true(after > before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_name_and_text),
        cmocka_unit_test(fail_writes_the_text),
        cmocka_unit_test(texts_belong_to_threads),
        cmocka_unit_test(bounds_are_checked),
        cmocka_unit_test(sizes_are_checked),
        cmocka_unit_test(accounts_count),
        cmocka_unit_test(arenas_hand_out_arrays),
        cmocka_unit_test(arrays_grow),
        cmocka_unit_test(settings_are_checked),
        cmocka_unit_test(structs_have_versions),
        cmocka_unit_test(params_are_counted),
        cmocka_unit_test(params_are_checked),
        cmocka_unit_test(params_are_initialised),
        cmocka_unit_test(params_lie_apart),
        cmocka_unit_test(texts_are_cut_and_measured),
        cmocka_unit_test(hashes_see_every_byte),
#ifdef ZRO__POINTS
        cmocka_unit_test(points_fail_at_the_nth_passing),
        cmocka_unit_test(points_list_kill_and_yield),
#endif
        cmocka_unit_test(the_log_filters),
        cmocka_unit_test(must_ends_the_process),
        cmocka_unit_test(the_clock_goes_on),
    };

    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
