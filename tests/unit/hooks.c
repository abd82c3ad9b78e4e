/* Hooks, with buckets made by hand: what a hook can ask, and the library's hooks on ranks that are threads, compared bit by bit
 * with the reference: round, average, round again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ddp/hook.h"
#include "reference.h"

enum { MOST = 5000, MOST_RANKS = 4, MARGIN = 16, BYTES = 8 * MOST };

/* An assertion on a rank's thread would end the wrong one: it says where it failed and returns 1. */
#define CHECK(condition)                                                                                                       \
    do {                                                                                                                       \
        if (!(condition))                                                                                                      \
            return fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, zro_last_error()), 1;                   \
    } while (0)

static zro_bucket bucket_of(zro_group *group, void *buffer, size_t count, zro_dtype dtype)
{
    return (zro_bucket){ .index = 3, .buffer = buffer, .count = count, .dtype = dtype, .group = group };
}

/* ---- what a hook asks ---- */

static void buckets_answer(void **unused)
{
    static const size_t params[] = { 7, 2, 5 }, first[] = { 0, 4, 4, 10 };
    float data[10];
    uint16_t other[10];
    zro_group *group = (zro_group *)data; /* only its address counts */
    zro_bucket b = { 6, 1, data, 10, ZRO_F32, group, params, first, 3, 0 };
    zro_dtype dtype;
    size_t count;

    (void)unused;
    assert_int_equal(zro_bucket_index(&b), 6);
    assert_int_equal(zro_bucket_is_last(&b), 1);
    assert_ptr_equal(zro_bucket_buffer(&b, &count, &dtype), data);
    assert_true(count == 10 && dtype == ZRO_F32);
    assert_ptr_equal(zro_bucket_buffer(&b, NULL, NULL), data);
    assert_ptr_equal(zro_bucket_group(&b), group);
    assert_int_equal(zro_bucket_params(&b), 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(zro_bucket_param(&b, i), params[i]);
        assert_ptr_equal(zro_bucket_grad(&b, i, &count), data + first[i]);
        assert_int_equal(count, first[i + 1] - first[i]);
    }
    assert_ptr_equal(zro_bucket_grad(&b, 2, NULL), data + 4);
    assert_true(zro_bucket_param(&b, 3) == SIZE_MAX);
    assert_null(zro_bucket_grad(&b, 3, &count));
    assert_int_equal(count, 0);
    zro_bucket_set_buffer(&b, other, ZRO_BF16);
    assert_ptr_equal(zro_bucket_buffer(&b, &count, &dtype), other);
    assert_true(count == 10 && dtype == ZRO_BF16);
    assert_ptr_equal(zro_bucket_grad(&b, 2, &count), other + 4);
    assert_int_equal(count, 6);
}

static void no_bucket_answers(void **unused)
{
    zro_hook_inner inner = { zro_hook_none, NULL };
    size_t count = 7;

    (void)unused;
    assert_true(zro_bucket_index(NULL) == SIZE_MAX && zro_bucket_is_last(NULL) == 0 && zro_bucket_params(NULL) == 0);
    assert_true(zro_bucket_param(NULL, 0) == SIZE_MAX && zro_bucket_group(NULL) == NULL);
    assert_true(zro_bucket_grad(NULL, 0, &count) == NULL && count == 0);
    count = 7;
    assert_true(zro_bucket_buffer(NULL, &count, NULL) == NULL && count == 0);
    zro_bucket_set_buffer(NULL, &count, ZRO_F32);
    assert_int_equal(zro_hook_none(NULL, NULL), ZRO_ERR_INVALID);
    assert_int_equal(zro_hook_all_reduce(NULL, NULL), ZRO_ERR_INVALID);
    assert_int_equal(zro_hook_bf16(NULL, NULL), ZRO_ERR_INVALID);
    assert_int_equal(zro_hook_f16_wrap(&inner, NULL), ZRO_ERR_INVALID);
    assert_non_null(strstr(zro_last_error(), "hook_f16_wrap: the bucket is NULL"));
}

/* ---- averages ---- */

static const zro_dtype dtypes[] = { ZRO_F32, ZRO_F64, ZRO_BF16, ZRO_F16 };

/* A hook with its user, and the types that its values are rounded to one after another. */
typedef struct way {
    zro_hook_fn hook;
    void *user;
    zro_dtype types[2];
    int n_types;
} way;

typedef struct trial {
    const way *way;
    zro_dtype dtype;
    size_t count, offset; /* elements of the buffer, and before it */
    uint64_t seed;
} trial;

/* Converts element by element. */
static void convert(void *to, zro_dtype to_type, const void *from, zro_dtype from_type, size_t count)
{
    for (size_t i = 0; i < count; i++)
        reference_put(to_type, to, i, reference_get(from_type, from, i));
}

/* What all ranks must have, computed from the arrays of all of them.  `memory` has two arrays per rank. */
static void expect(const trial *t, int ranks, char *memory, void *out)
{
    const void *in[MOST_RANKS];
    const int n = t->way->n_types;
    zro_dtype type = t->dtype;

    for (int r = 0; r < ranks; r++) {
        char *now = memory + 2 * r * BYTES, *other = now + BYTES;
        uint64_t seed = t->seed + (uint64_t)r;

        reference_fill(t->dtype, &seed, now, t->count);
        type = t->dtype;
        for (int i = 0; i < n; i++) {
            char *swap = now;

            convert(other, t->way->types[i], now, type, t->count);
            type = t->way->types[i];
            now = other;
            other = swap;
        }
        in[r] = now;
    }
    reference_reduce(type, ZRO_AVG, ranks, NULL, NULL, NULL, in, out, t->count);
    for (int i = n - 1; i >= 0; i--) {
        zro_dtype wider = i > 0 ? t->way->types[i - 1] : t->dtype;

        convert(memory, wider, out, type, t->count);
        memcpy(out, memory, t->count * zro_dtype_bytes(wider));
        type = wider;
    }
}

/* One rank of a trial; what stands before and behind the buffer must stay. */
static int is_averaged(void *user, zro_group *group)
{
    const trial *t = user;
    const size_t bytes = zro_dtype_bytes(t->dtype), before = t->offset * bytes, used = t->count * bytes;
    const int ranks = zro_group_size(group);
    char *memory = malloc((2 * MOST_RANKS + 1) * BYTES), *out = memory + 2 * MOST_RANKS * BYTES;
    char *array = malloc(BYTES + 2 * MARGIN * sizeof(double)), *buffer = array + before;
    uint64_t seed = t->seed + (uint64_t)zro_group_rank(group);
    zro_bucket b = bucket_of(group, buffer, t->count, t->dtype);
    size_t where = 0;

    CHECK(memory != NULL && array != NULL);
    expect(t, ranks, memory, out);
    memset(array, 0x5a, before + used + MARGIN);
    reference_fill(t->dtype, &seed, buffer, t->count);
    CHECK(t->way->hook(t->way->user, &b) == ZRO_OK);
    CHECK(b.buffer == buffer && b.dtype == t->dtype && b.count == t->count);
    if (!reference_same(t->dtype, buffer, out, t->count, &where))
        fprintf(stderr, "%s, %d types, %zu elements, %d ranks: element %zu is %g, must be %g\n", zro_dtype_name(t->dtype),
                t->way->n_types, t->count, ranks, where, reference_get(t->dtype, buffer, where),
                reference_get(t->dtype, out, where));
    CHECK(reference_same(t->dtype, buffer, out, t->count, NULL));
    for (size_t i = 0; i < before; i++)
        CHECK(array[i] == 0x5a);
    for (size_t i = 0; i < MARGIN; i++)
        CHECK(buffer[used + i] == 0x5a);
    free(memory);
    free(array);
    return 0;
}

static zro_hook_inner plain = { zro_hook_all_reduce, NULL }, inner_bf16 = { zro_hook_bf16, NULL };
static zro_hook_inner wrapped = { zro_hook_bf16_wrap, &plain };

static const way ways[] = {
    { zro_hook_all_reduce, NULL, { ZRO_F32, ZRO_F32 }, 0 },    { zro_hook_bf16, NULL, { ZRO_BF16, ZRO_F32 }, 1 },
    { zro_hook_f16, NULL, { ZRO_F16, ZRO_F32 }, 1 },           { zro_hook_bf16_wrap, &plain, { ZRO_BF16, ZRO_F32 }, 1 },
    { zro_hook_f16_wrap, &plain, { ZRO_F16, ZRO_F32 }, 1 },    { zro_hook_f16_wrap, &inner_bf16, { ZRO_F16, ZRO_BF16 }, 2 },
    { zro_hook_f16_wrap, &wrapped, { ZRO_F16, ZRO_BF16 }, 2 },
};

/* Every hook and type on so many ranks, each with one of the sizes, which are around the pieces in which buffers are converted;
 * `shift` says with which one. */
static void average_on(int ranks, size_t shift)
{
    static const size_t counts[] = { 1, 2, 1023, 1024, 1025, 2048, 3073, MOST, 0 };
    trial t = { .seed = shift };

    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
        for (size_t d = 0; d < 4; d++) {
            t.way = &ways[w];
            t.dtype = dtypes[d];
            t.count = counts[(w + 3 * d + shift) % 9];
            t.offset = (w + d) % 4;
            t.seed += MOST_RANKS;
            assert_int_equal(zro_spawn_threads(NULL, ranks, is_averaged, &t), ZRO_OK);
        }
}

static void averages_of_one(void **unused)
{
    (void)unused;
    for (size_t shift = 0; shift < 9; shift++)
        average_on(1, shift);
}

static void averages_of_several(void **unused)
{
    (void)unused;
    for (int ranks = 2; ranks <= MOST_RANKS; ranks++)
        average_on(ranks, (size_t)ranks);
}

/* Each size with each type, where elements become shorter and longer, or only change. */
static void every_size(void **unused)
{
    trial t = { .seed = 1 };

    (void)unused;
    for (size_t d = 0; d < 4; d++)
        for (size_t count = 0; count < MOST; count += 1 + count / 7) {
            t.way = &ways[1 + count % 2];
            t.dtype = dtypes[d];
            t.count = count;
            t.seed++;
            assert_int_equal(zro_spawn_threads(NULL, 1, is_averaged, &t), ZRO_OK);
        }
}

static int is_left_alone(void *user, zro_group *group)
{
    float x[3] = { 1, 2.00001f, (float)zro_group_rank(group) }, y[3];
    zro_bucket b = bucket_of(group, x, 3, ZRO_F32);

    memcpy(y, x, sizeof x);
    CHECK(zro_hook_none(user, &b) == ZRO_OK);
    CHECK(memcmp(x, y, sizeof x) == 0 && b.buffer == x && b.dtype == ZRO_F32);
    return 0;
}

static void none_does_nothing(void **unused)
{
    (void)unused;
    assert_int_equal(zro_spawn_threads(NULL, 2, is_left_alone, NULL), ZRO_OK);
}

/* ---- inner hooks ---- */

enum { COUNT = 2500 };

/* What an inner hook does with the bucket, and what it saw. */
typedef struct inner {
    void *data; /* where it leaves its result */
    zro_dtype type;
    zro_status status;
    void *saw;
    zro_dtype saw_type;
    void *saw_grad;
} inner;

/* Leaves twice what it gets. */
static zro_status doubles(void *user, zro_bucket *bucket)
{
    inner *in = user;
    size_t count;
    double *x = malloc(COUNT * sizeof *x);

    if (x == NULL)
        return zro_error_set(ZRO_ERR_MEMORY, "out of memory");
    in->saw = zro_bucket_buffer(bucket, &count, &in->saw_type);
    in->saw_grad = zro_bucket_grad(bucket, 1, NULL);
    for (size_t i = 0; i < count; i++)
        x[i] = 2 * reference_get(in->saw_type, in->saw, i);
    if (in->data != NULL)
        for (size_t i = 0; i < count && zro_dtype_bytes(in->type) > 0; i++)
            reference_put(in->type, in->data, i, x[i]);
    free(x);
    zro_bucket_set_buffer(bucket, in->data, in->type);
    return in->status == ZRO_OK ? ZRO_OK : zro_error_set(in->status, "the inner hook says no");
}

/* A buffer of a type, with two gradients and numbers that bf16 holds. */
typedef struct holder {
    double memory[COUNT];
    zro_bucket bucket;
} holder;

static void hold(holder *h, zro_dtype dtype)
{
    static const size_t params[] = { 0, 1 }, first[] = { 0, 100, COUNT };

    h->bucket = bucket_of(NULL, h->memory, COUNT, dtype);
    h->bucket.params = params;
    h->bucket.first = first;
    h->bucket.n_params = 2;
    for (size_t i = 0; i < COUNT; i++)
        reference_put(dtype, h->memory, i, (double)(i % 200));
}

static int is_doubled(const holder *h, zro_dtype dtype)
{
    if (h->bucket.buffer != h->memory || h->bucket.dtype != dtype)
        return 0;
    for (size_t i = 0; i < COUNT; i++)
        if (reference_get(dtype, h->memory, i) != 2 * (double)(i % 200))
            return 0;
    return 1;
}

/* Wherever an inner hook leaves its result, and whatever its type is, it ends up in the buffer, in the buffer's type. */
static void results_come_back(void **unused)
{
    static double other[COUNT];
    static holder h;

    (void)unused;
    for (size_t d = 0; d < 4; d++)
        for (size_t t = 0; t < 4; t++)
            for (int apart = 0; apart < 2; apart++) {
                inner in = { .data = apart ? other : h.memory, .type = dtypes[t] };
                zro_hook_inner user = { doubles, &in };

                if (!apart && zro_dtype_bytes(dtypes[t]) > zro_dtype_bytes(dtypes[d]))
                    continue;
                hold(&h, dtypes[d]);
                assert_int_equal(zro_hook_bf16_wrap(&user, &h.bucket), ZRO_OK);
                assert_true(in.saw == h.memory && in.saw_type == ZRO_BF16);
                assert_ptr_equal(in.saw_grad, (char *)h.memory + 2 * 100);
                assert_true(is_doubled(&h, dtypes[d]));
            }
}

/* While gradients are 16-bit numbers, the second half of a buffer is free, and an inner hook may leave its result there. */
static void results_come_from_the_second_half(void **unused)
{
    static holder h;

    (void)unused;
    for (size_t d = 0; d < 2; d++) {
        inner in = { .data = (char *)h.memory + COUNT * zro_dtype_bytes(dtypes[d]) / 2, .type = ZRO_F16 };
        zro_hook_inner user = { doubles, &in };

        hold(&h, dtypes[d]);
        assert_int_equal(zro_hook_f16_wrap(&user, &h.bucket), ZRO_OK);
        assert_true(is_doubled(&h, dtypes[d]));
    }
}

static void inner_failures_are_passed_on(void **unused)
{
    static holder h;
    inner in = { .data = &in, .type = (zro_dtype)100, .status = ZRO_ERR_STATE };
    zro_hook_inner user = { doubles, &in };

    (void)unused;
    hold(&h, ZRO_F64);
    assert_int_equal(zro_hook_f16_wrap(&user, &h.bucket), ZRO_ERR_STATE);
    assert_string_equal(zro_last_error(), "the inner hook says no");
    assert_true(h.bucket.buffer == h.memory && h.bucket.dtype == ZRO_F64);
}

/* ---- refusals ---- */

static void is_refused(inner *in, zro_dtype dtype, zro_status status, const char *words)
{
    static holder h;
    zro_hook_inner user = { doubles, in };

    hold(&h, dtype);
    assert_int_equal(zro_hook_bf16_wrap(in != NULL ? &user : NULL, &h.bucket), status);
    assert_non_null(strstr(zro_last_error(), words));
    assert_true(h.bucket.buffer == h.memory && h.bucket.dtype == dtype);
}

static void what_an_inner_hook_leaves_is_checked(void **unused)
{
    static double other[COUNT];

    (void)unused;
    is_refused(&(inner){ .data = NULL, .type = ZRO_F32 }, ZRO_F32, ZRO_ERR_INVALID,
               "bucket 3: the hook set a buffer that is NULL, for 2500 elements");
    is_refused(&(inner){ .data = other, .type = (zro_dtype)100 }, ZRO_F32, ZRO_ERR_UNSUPPORTED,
               "bucket 3: the hook set a buffer that is of an unknown type, and the gradients are f32");
    is_refused(NULL, ZRO_F32, ZRO_ERR_INVALID, "hook_bf16_wrap: user is NULL");
}

static void wrong_uses_are_refused(void **unused)
{
    zro_hook_inner nothing = { NULL, NULL };
    int32_t whole[2] = { 1, 2 };
    zro_bucket b = bucket_of(NULL, whole, 2, ZRO_I32);

    (void)unused;
    assert_int_equal(zro_hook_f16_wrap(&nothing, &b), ZRO_ERR_INVALID);
    assert_non_null(strstr(zro_last_error(), "hook_f16_wrap: the hook in user is NULL"));
    assert_int_equal(zro_hook_f16(NULL, &b), ZRO_ERR_UNSUPPORTED);
    assert_non_null(strstr(zro_last_error(), "hook_f16: the gradients of bucket 3 are i32"));
    assert_true(whole[0] == 1 && whole[1] == 2 && b.buffer == whole && b.dtype == ZRO_I32);
    b.dtype = ZRO_F32;
    assert_int_equal(zro_hook_all_reduce(NULL, &b), ZRO_ERR_INVALID); /* no group */
}

/* A result that overlaps the buffer and does not fit into it would be written behind it. */
static void longer_overlapping_results_are_refused(void **unused)
{
    double memory[4] = { 0 };
    zro_bucket b = bucket_of(NULL, memory, 4, ZRO_F64);

    (void)unused;
    assert_int_equal(zro__bucket_bring_back(&b, (char *)memory + 4, ZRO_F32), ZRO_ERR_INVALID);
    assert_non_null(strstr(zro_last_error(), "bucket 3: the hook set a buffer of 32 bytes that overlaps the one it was given, "
                                             "of 16 bytes"));
    assert_true(b.buffer == (char *)memory + 4 && b.dtype == ZRO_F32);
}

/* Integers are copied, and nothing is done for a bucket without elements. */
static void integers_and_nothing_come_back(void **unused)
{
    int32_t from[3] = { 1, -2, 3 }, to[3] = { 0 };
    zro_bucket b = bucket_of(NULL, from, 3, ZRO_I32);

    (void)unused;
    assert_int_equal(zro__bucket_bring_back(&b, to, ZRO_I32), ZRO_OK);
    assert_memory_equal(from, to, sizeof to);
    b = bucket_of(NULL, NULL, 0, ZRO_BF16);
    assert_int_equal(zro__bucket_bring_back(&b, NULL, ZRO_F32), ZRO_OK);
    assert_true(b.buffer == NULL && b.dtype == ZRO_F32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_answer),
        cmocka_unit_test(no_bucket_answers),
        cmocka_unit_test(averages_of_one),
        cmocka_unit_test(averages_of_several),
        cmocka_unit_test(every_size),
        cmocka_unit_test(none_does_nothing),
        cmocka_unit_test(results_come_back),
        cmocka_unit_test(results_come_from_the_second_half),
        cmocka_unit_test(inner_failures_are_passed_on),
        cmocka_unit_test(what_an_inner_hook_leaves_is_checked),
        cmocka_unit_test(wrong_uses_are_refused),
        cmocka_unit_test(longer_overlapping_results_are_refused),
        cmocka_unit_test(integers_and_nothing_come_back),
    };

    return cmocka_run_group_tests_name("hooks", tests, NULL, NULL);
}
