/* Buckets of gradients: the properties that determine them over random parameters, chosen cases, refusals, and memory that runs
 * out.  PyTorch's own results are in tests/golden. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/param.h"
#include "base/point.h"
#include "plan/buckets.h"

enum { MOST = 200 };

static uint64_t seed = 1;

static size_t below(size_t n)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (size_t)(seed >> 20) % n;
}

typedef struct lists {
    size_t params[MOST], lengths[MOST], limits[MOST];
    size_t n;
    int has_limits; /* limits was passed */
} lists;

static lists form(const zro_param *params, const size_t *order, size_t n, const size_t *limits, size_t n_limits)
{
    lists l = { .has_limits = below(4) != 0 };

    assert_int_equal(
        zro_buckets_form(params, order, n, limits, n_limits, l.params, l.lengths, l.has_limits ? l.limits : NULL, &l.n),
        ZRO_OK);
    return l;
}

/* Parameters of f32 with these sizes. */
static zro_param *of_sizes(const size_t *sizes, size_t n)
{
    static zro_param params[MOST];

    for (size_t i = 0; i < n; i++) {
        zro_param_init(&params[i]);
        params[i].shape[0] = sizes[i];
    }
    return params;
}

static void is_formed(const lists *l, size_t n_buckets, const size_t *lengths, const size_t *params)
{
    size_t sum = 0;

    assert_int_equal(l->n, n_buckets);
    for (size_t b = 0; b < n_buckets; b++) {
        assert_int_equal(l->lengths[b], lengths[b]);
        sum += lengths[b];
    }
    for (size_t i = 0; i < sum; i++)
        assert_int_equal(l->params[i], params[i]);
}

/* ---- properties ---- */

typedef struct input {
    zro_param params[MOST];
    size_t order[MOST], place[MOST]; /* place: where each parameter is in the order */
    size_t n;
    size_t limits[4], n_limits;
} input;

static void randomize(input *in)
{
    const size_t types = 1 + below(4), tags = 1 + below(3), largest = 1 + below(100);

    in->n = below(4) == 0 ? below(5) : below(MOST + 1);
    for (size_t i = 0; i < in->n; i++) {
        zro_param *p = &in->params[i];
        size_t j = below(i + 1);

        zro_param_init(p);
        p->shape[0] = below(8) == 0 ? 0 : below(largest + 1);
        p->dtype = (zro_dtype)below(types);
        p->grad_dtype = below(3) == 0 ? (zro_dtype)below(types) : ZRO_SAME;
        p->device = 1 - (int32_t)below(tags);
        in->order[i] = in->order[j];
        in->order[j] = i;
    }
    in->n_limits = 1 + below(4);
    for (size_t i = 0; i < in->n_limits; i++)
        in->limits[i] = below(10) == 0 ? SIZE_MAX : below(2000);
}

static size_t bytes_of(const zro_param *p)
{
    return p->shape[0] * zro_dtype_bytes(zro__param_grad_type(p));
}

static int same_kind(const zro_param *p, const zro_param *q)
{
    return zro__param_grad_type(p) == zro__param_grad_type(q) && p->dtype == q->dtype && p->device == q->device;
}

/* Every parameter is in one bucket.  Buckets follow each other by the places of their first parameters. */
static void check_places(const input *in, const lists *l)
{
    char seen[MOST] = { 0 };
    size_t at = 0;

    for (size_t b = 0; b < l->n; b++) {
        const size_t *members = l->params + at;

        assert_true(l->lengths[b] > 0 && l->lengths[b] <= in->n - at);
        for (size_t i = 0; i < l->lengths[b]; i++) {
            assert_true(members[i] < in->n && !seen[members[i]]);
            seen[members[i]] = 1;
        }
        assert_true(b == 0 || in->place[members[0]] > in->place[members[-(ptrdiff_t)l->lengths[b - 1]]]);
        at += l->lengths[b];
    }
    assert_int_equal(at, in->n);
}

/* A bucket's parameters are of one kind; together with what is said below of the buckets of that kind, this leaves no choice:
 * taken together they are the parameters of the kind in the given order; the k-th has the k-th limit, or the last one; each
 * reaches its limit with its last parameter and not before, but for the last bucket, which may fall short of it. */
static void check_kind(const input *in, const lists *l, const zro_param *kind)
{
    size_t at = 0, number = 0, next = 0;
    int is_full = 1;

    for (size_t b = 0; b < l->n; at += l->lengths[b++]) {
        size_t limit = in->limits[number < in->n_limits ? number : in->n_limits - 1], bytes = 0;

        if (!same_kind(&in->params[l->params[at]], kind))
            continue;
        assert_true(is_full);
        for (size_t i = at; i < at + l->lengths[b]; i++) {
            const zro_param *p = &in->params[l->params[i]];

            while (next < in->n && !same_kind(&in->params[in->order[next]], kind))
                next++;
            assert_true(next < in->n && l->params[i] == in->order[next++]);
            assert_true(same_kind(p, kind) && (i == at || bytes < limit));
            bytes += bytes_of(p);
        }
        is_full = bytes >= limit;
        assert_true(!l->has_limits || l->limits[b] == limit);
        number++;
    }
}

static void buckets_are_determined(void **unused)
{
    static input in;

    (void)unused;
    for (int run = 0; run < 3000; run++) {
        const int is_ordered = run % 2;
        lists l;

        randomize(&in);
        for (size_t k = 0; k < in.n; k++) {
            in.order[k] = is_ordered ? in.order[k] : k;
            in.place[in.order[k]] = k;
        }
        l = form(in.params, is_ordered ? in.order : NULL, in.n, in.limits, in.n_limits);
        check_places(&in, &l);
        for (size_t i = 0; i < in.n; i++)
            check_kind(&in, &l, &in.params[i]);
    }
}

/* ---- cases ---- */

/* A bucket that has reached its limit exactly is closed; one without bytes is, if the limit is 0. */
static void limits_are_reached(void **unused)
{
    static const size_t sizes[] = { 10, 15, 25, 1, 24, 0, 100 }, limits[] = { 40, 100 }, none[] = { 0 };
    static const size_t lengths[] = { 1, 2, 2, 2 }, all[] = { 0, 1, 2, 3, 4, 5, 6 }, ones[] = { 1, 1, 1, 1, 1, 1, 1 };
    lists l = form(of_sizes(sizes, 7), NULL, 7, limits, 2);

    (void)unused;
    is_formed(&l, 4, lengths, all);
    l = form(of_sizes(sizes, 7), NULL, 7, none, 1);
    is_formed(&l, 7, ones, all);
}

/* Limits count the bytes of gradients, and a gradient of another type travels apart. */
static void gradients_count(void **unused)
{
    static const size_t sizes[] = { 10, 10, 10, 10, 10 }, limits[] = { 40 };
    static const size_t lengths[] = { 1, 2, 2 }, members[] = { 0, 1, 3, 2, 4 };
    zro_param *params = of_sizes(sizes, 5);
    lists l;

    (void)unused;
    for (size_t i = 1; i < 5; i++)
        params[i].grad_dtype = i % 2 == 1 ? ZRO_BF16 : ZRO_F16;
    l = form(params, NULL, 5, limits, 1);
    is_formed(&l, 3, lengths, members);
    params[3].dtype = ZRO_F64;
    l = form(params, NULL, 5, limits, 1);
    is_formed(&l, 4, (size_t[]){ 1, 1, 2, 1 }, (size_t[]){ 0, 1, 2, 4, 3 });
}

static void sums_do_not_wrap(void **unused)
{
    static const size_t huge = SIZE_MAX / 16, limits[] = { SIZE_MAX };
    zro_param *params = of_sizes((size_t[]){ huge, huge, huge, huge, huge }, 5);
    lists l;

    (void)unused;
    for (size_t i = 0; i < 5; i++)
        params[i].dtype = ZRO_F64;
    l = form(params, NULL, 5, limits, 1);
    is_formed(&l, 2, (size_t[]){ 3, 2 }, (size_t[]){ 0, 1, 2, 3, 4 });
}

static void no_parameters(void **unused)
{
    static const size_t limits[] = { 1 };
    size_t n_buckets = 7;

    (void)unused;
    assert_int_equal(zro_buckets_form(NULL, NULL, 0, limits, 1, NULL, NULL, NULL, &n_buckets), ZRO_OK);
    assert_int_equal(n_buckets, 0);
}

/* Of as many parameters as there are, of one kind and all of different kinds. */
static void a_large_model(void **unused)
{
    enum { N = 100000 };
    static const size_t limits[] = { 1 << 20, 25 << 20 };
    zro_param *params = calloc(N, sizeof *params);
    size_t *members = calloc(N, sizeof *members), *lengths = calloc(N, sizeof *lengths), n_buckets;

    (void)unused;
    assert_true(params != NULL && members != NULL && lengths != NULL);
    for (size_t i = 0; i < N; i++) {
        zro_param_init(&params[i]);
        params[i].shape[0] = 1 << 15;
    }
    assert_int_equal(zro_buckets_form(params, NULL, N, limits, 2, members, lengths, NULL, &n_buckets), ZRO_OK);
    assert_int_equal(n_buckets, 1 + (N - 8 + 199) / 200);
    for (size_t i = 0; i < N; i++)
        params[i].device = (int32_t)(i * 4096);
    assert_int_equal(zro_buckets_form(params, NULL, N, limits, 2, members, lengths, NULL, &n_buckets), ZRO_OK);
    assert_int_equal(n_buckets, N);
    for (size_t i = 0; i < N; i++)
        assert_true(members[i] == i && lengths[i] == 1);
    free(params);
    free(members);
    free(lengths);
}

static void default_limits(void **unused)
{
    size_t limits[2];

    (void)unused;
    assert_int_equal(zro__bucket_limits(0, limits), 2);
    assert_true(limits[0] == 1048576 && limits[1] == 26214400);
    assert_int_equal(zro__bucket_limits(5000, limits), 1);
    assert_int_equal(limits[0], 5000);
}

/* Only the list is turned round; doing it twice changes nothing. */
static void buckets_are_reversed(void **unused)
{
    static const size_t sizes[] = { 3, 3, 3, 3, 3, 3 }, limits[] = { 12, 36, 24 };
    static const size_t lengths[] = { 2, 3, 1 }, members[] = { 4, 5, 1, 2, 3, 0 };
    lists l = form(of_sizes(sizes, 6), NULL, 6, limits, 3), before = l;

    (void)unused;
    zro__buckets_reverse(l.params, l.lengths, l.n);
    is_formed(&l, 3, lengths, members);
    zro__buckets_reverse(l.params, l.lengths, l.n);
    is_formed(&l, before.n, before.lengths, before.params);
    zro__buckets_reverse(NULL, NULL, 0);
}

/* ---- refusals ---- */

/* The call is refused with a text that has these words, and writes nothing but the number of buckets. */
static void is_refused(const zro_param *params, const size_t *order, size_t n, const size_t *limits, size_t n_limits,
                       const char *words)
{
    static const lists clean;
    lists l = { .n = 7 };

    assert_int_equal(zro_buckets_form(params, order, n, limits, n_limits, l.params, l.lengths, l.limits, &l.n),
                     ZRO_ERR_INVALID);
    assert_non_null(strstr(zro_last_error(), words));
    assert_memory_equal(&l, &clean, sizeof l);
}

static void arguments_are_refused(void **unused)
{
    static const size_t sizes[] = { 1, 2, 3 }, limits[] = { 8 }, large[] = { 0, 3, 1 }, twice[] = { 2, 0, 2 };
    zro_param *params = of_sizes(sizes, 3);
    size_t array[3], n;

    (void)unused;
    is_refused(NULL, NULL, 3, limits, 1, "params is NULL");
    is_refused(params, NULL, 3, NULL, 1, "limits is NULL");
    is_refused(params, NULL, 3, limits, 0, "n_limits is 0");
    is_refused(params, large, 3, limits, 1, "order[1] = 3, but there are only 3 parameters");
    is_refused(params, twice, 3, limits, 1, "parameter 2: buckets_form has it twice: order[0] and order[2] are 2");
    params[2].name = "bias";
    is_refused(params, twice, 3, limits, 1, "parameter bias: buckets_form has it twice");
    assert_int_equal(zro_buckets_form(params, NULL, 3, limits, 1, NULL, array, NULL, &n), ZRO_ERR_INVALID);
    assert_non_null(strstr(zro_last_error(), "bucket_params is NULL"));
    assert_int_equal(zro_buckets_form(params, NULL, 3, limits, 1, array, NULL, NULL, &n), ZRO_ERR_INVALID);
    assert_non_null(strstr(zro_last_error(), "bucket_lengths is NULL"));
    assert_int_equal(zro_buckets_form(params, NULL, 3, limits, 1, array, array, NULL, NULL), ZRO_ERR_INVALID);
    assert_non_null(strstr(zro_last_error(), "n_buckets is NULL"));
}

static void parameters_are_refused(void **unused)
{
    static const size_t sizes[] = { 1, 2 }, limits[] = { 8 };
    zro_param *params = of_sizes(sizes, 2);

    (void)unused;
    params[1].shape[0] = SIZE_MAX / 8;
    is_refused(params, NULL, 2, limits, 1, "parameter 1: its shape has more elements than memory can hold");
    params[1].shape[0] = 2;
    params[1].grad_dtype = (zro_dtype)100;
    is_refused(params, NULL, 2, limits, 1, "parameter 1: grad_dtype = 100");
    params[1].grad_dtype = ZRO_SAME;
    params[0].dtype = ZRO_SAME;
    is_refused(params, NULL, 2, limits, 1, "parameter 0: dtype = -1");
}

static void memory_runs_out(void **unused)
{
    static const size_t sizes[] = { 1, 2, 3 }, limits[] = { 8 }, order[] = { 2, 1, 0 }, twice[] = { 1, 1, 0 };
    zro__point_plan fail = { .name = "memory.alloc", .action = ZRO__POINT_FAIL, .nth = 1 };
    zro_param *params = of_sizes(sizes, 3);
    zro__account account = { 0 };
    lists l = { .n = 7 };
    zro_status st;

    (void)unused;
    zro__point_plan_set(&fail);
    st = zro__buckets_form(&account, params, order, 3, limits, 1, l.params, l.lengths, l.limits, &l.n);
    zro__point_plan_set(NULL);
    assert_int_equal(st, ZRO_ERR_MEMORY);
    assert_true(l.n == 0 && atomic_load(&account.in_use) == 0);
    assert_int_equal(zro__buckets_form(&account, params, twice, 3, limits, 1, l.params, l.lengths, l.limits, &l.n),
                     ZRO_ERR_INVALID);
    assert_true(l.n == 0 && atomic_load(&account.in_use) == 0);
    assert_int_equal(zro__buckets_form(&account, params, order, 3, limits, 1, l.params, l.lengths, l.limits, &l.n), ZRO_OK);
    assert_true(l.n == 3 && atomic_load(&account.in_use) == 0 && atomic_load(&account.peak) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_are_determined), cmocka_unit_test(limits_are_reached),
        cmocka_unit_test(gradients_count),        cmocka_unit_test(sums_do_not_wrap),
        cmocka_unit_test(no_parameters),          cmocka_unit_test(a_large_model),
        cmocka_unit_test(default_limits),         cmocka_unit_test(buckets_are_reversed),
        cmocka_unit_test(arguments_are_refused),  cmocka_unit_test(parameters_are_refused),
        cmocka_unit_test(memory_runs_out),
    };

    return cmocka_run_group_tests_name("buckets", tests, NULL, NULL);
}
