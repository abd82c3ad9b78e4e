/* Kernels: each table that this processor has against the pure reference, bit by bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fenv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/dtype.h"
#include "base/kernels.h"
#include "reference.h"

enum { MAX_N = 9, MAX_COUNT = 4097, EXTRA = 3, SLACK = 64, GUARD = 0xa5 };

static const size_t counts[] = { 0, 1, 3, 63, 64, 65, 1000, MAX_COUNT };
static const zro_kernels all_kernels[] = { ZRO_KERNELS_BASE, ZRO_KERNELS_AVX2, ZRO_KERNELS_AVX512 };
static const zro_dtype float_types[] = { ZRO_F32, ZRO_F64, ZRO_BF16, ZRO_F16 };

static uint64_t seed = 20240607;
static long cases;

static unsigned below(unsigned n)
{
    return (unsigned)(reference_random(&seed) >> 16) % n;
}

/* The caller's floating-point mode: 0 the default, 1 flushing subnormals, 2 rounding upwards. */
static void set_mode(int mode)
{
    fesetround(mode == 2 ? FE_UPWARD : FE_TONEAREST);
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr((__builtin_ia32_stmxcsr() & ~0x8040u) | (mode == 1 ? 0x8040u : 0)); /* FTZ, DAZ */
#endif
}

static unsigned control_bits(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_stmxcsr() & ~0x3fu;
#else
    return (unsigned)fegetround();
#endif
}

/* One reduction: `ranks` inputs in rank order, and the same in the order of addition, as the kernels take it. */
typedef struct problem {
    zro_dtype dtype;
    zro_op op;
    int ranks;
    size_t count;
    int32_t cells[MAX_N];
    double weights[MAX_N], ordered_weights[MAX_N];
    unsigned char present[MAX_N];
    int order[MAX_N], cell[MAX_N];
    const double *use_weights; /* `weights` or NULL */
    zro__reduce reduce;
    unsigned char in[MAX_N][MAX_COUNT * 8], expected[MAX_COUNT * 8];
} problem;

/* Cells with any numbers, in any mixture, become a list of ranks, cell after cell, and the lengths. */
static void order_ranks(problem *p)
{
    int n = 0;

    p->reduce.n_cells = 0;
    for (int first = 0; first < p->ranks; first++) {
        int earlier = 0, length = 0;

        for (int r = 0; r < first; r++)
            earlier |= p->cells[r] == p->cells[first];
        for (int r = first; r < p->ranks && !earlier; r++)
            if (p->cells[r] == p->cells[first]) {
                p->ordered_weights[n] = p->weights[r];
                p->order[n++] = r;
                length++;
            }
        if (length > 0)
            p->cell[p->reduce.n_cells++] = length;
    }
    assert_int_equal(n, p->ranks);
}

static void make_problem(problem *p, zro_dtype dtype, zro_op op, int ranks, size_t count)
{
    const void *in[MAX_N];
    int one_cell = below(2) == 0, may_be_absent = op != ZRO_MIN && op != ZRO_MAX && below(2) == 0;
    double divisor = 0;

    p->dtype = dtype;
    p->op = op;
    p->ranks = ranks;
    p->count = count;
    p->use_weights = op == ZRO_AVG && below(2) == 0 ? p->weights : NULL;
    for (int r = 0; r < ranks; r++) {
        p->cells[r] = one_cell ? 5 : (int32_t)below(4) * 1000 - 1000;
        p->weights[r] = (below(1000) - 200.3) / 7.0;
        p->present[r] = !may_be_absent || below(3) != 0;
        reference_fill(dtype, &seed, p->in[r], count);
        in[r] = p->present[r] ? p->in[r] : NULL;
        divisor += p->use_weights != NULL ? p->weights[r] : 1;
    }
    order_ranks(p);
    p->reduce.dtype = dtype;
    p->reduce.op = op;
    p->reduce.n = ranks;
    p->reduce.cell = p->cell;
    p->reduce.weight = p->use_weights != NULL ? p->ordered_weights : NULL;
    p->reduce.divisor = divisor;
    reference_reduce(dtype, op, ranks, p->cells, p->use_weights, p->present, in, p->expected, count);
}

/* How a problem is solved: none of this may change a bit. */
typedef struct way {
    int n_dst, in_place; /* destinations, of which the first `in_place` are sources */
    int stream, mode;
    size_t shift[MAX_N + EXTRA]; /* bytes by which each array is off a line of the caches */
} way;

static void check_guard(const unsigned char *array, size_t shift, size_t bytes)
{
    for (size_t i = 0; i < shift; i++)
        assert_int_equal(array[i], GUARD);
    for (size_t i = 0; i < SLACK; i++)
        assert_int_equal(array[shift + bytes + i], GUARD);
}

static void solve(const zro__kernels *k, const problem *p, const way *w)
{
    static _Alignas(64) unsigned char memory[MAX_N + EXTRA][MAX_COUNT * 8 + 3 * SLACK];
    const void *src[MAX_N];
    void *dst[MAX_N + EXTRA];
    size_t bytes = p->count * zro_dtype_bytes(p->dtype), where;
    int n_in_place = 0;
    unsigned control;

    for (int i = 0; i < p->ranks + w->n_dst; i++)
        memset(memory[i], GUARD, w->shift[i] + bytes + SLACK);
    for (int i = 0; i < p->ranks; i++) {
        int r = p->order[i];

        src[i] = p->present[r] ? memory[i] + w->shift[i] : NULL;
        if (p->present[r]) {
            memcpy(memory[i] + w->shift[i], p->in[r], bytes);
            if (n_in_place < w->in_place)
                dst[n_in_place++] = memory[i] + w->shift[i];
        }
    }
    for (int j = n_in_place; j < w->n_dst; j++)
        dst[j] = memory[p->ranks + j] + w->shift[p->ranks + j];

    set_mode(w->mode);
    control = control_bits();
    k->reduce(&p->reduce, src, dst, w->n_dst, p->count, w->stream);
    k->fence();
    assert_int_equal(control_bits(), control);
    set_mode(0);

    for (int j = 0; j < w->n_dst; j++)
        if (!reference_same(p->dtype, dst[j], p->expected, p->count, &where))
            fail_msg("%s: %s op %d, %d ranks in %d cells, weights %d, %zu elements: destination %d of %d differs at %zu "
                     "(in place %d, stream %d, mode %d)",
                     k->name, zro_dtype_name(p->dtype), p->op, p->ranks, p->reduce.n_cells, p->use_weights != NULL, p->count, j,
                     w->n_dst, where, w->in_place, w->stream, w->mode);
    for (int i = 0; i < p->ranks + w->n_dst; i++)
        if (i >= p->ranks || src[i] != NULL)
            check_guard(memory[i], w->shift[i], i >= p->ranks && i - p->ranks < n_in_place ? 0 : bytes);
    cases++;
}

static void solve_all_ways(const zro__kernels *k, const problem *p)
{
    for (int n_dst = 1; n_dst <= EXTRA; n_dst++)
        for (int stream = 0; stream < 2; stream++) {
            way w = { .n_dst = n_dst, .in_place = (int)below(3), .stream = stream, .mode = (int)below(3) };
            unsigned kind = below(3);

            /* On a line; off it by whole elements; off it by any bytes. */
            if (w.in_place > n_dst)
                w.in_place = n_dst;
            for (int i = 0; i < p->ranks + n_dst; i++)
                w.shift[i] = kind == 0 ? 0 : kind == 1 ? zro_dtype_bytes(p->dtype) * below(8) : below(SLACK);
            solve(k, p, &w);
        }
}

static void each_table_is_the_reference(void **state)
{
    static const int ranks[] = { 1, 2, 3, 4, 5, 7, 9 };
    static problem p;
    const size_t rounds = 4; /* of random cells, weights and absences */

    (void)state;
    for (int dtype = 0; dtype < 8; dtype++)
        for (int op = 0; op < 4; op++)
            for (size_t n = 0; n < sizeof ranks / sizeof *ranks; n++)
                for (size_t c = 0; c < rounds * (sizeof counts / sizeof *counts); c++) {
                    if (op == ZRO_AVG && !zro__dtype_is_float((zro_dtype)dtype))
                        continue;
                    make_problem(&p, (zro_dtype)dtype, (zro_op)op, ranks[n], counts[c / rounds]);
                    for (size_t k = 0; k < sizeof all_kernels / sizeof *all_kernels; k++)
                        if (zro__kernels_get(all_kernels[k]) != NULL)
                            solve_all_ways(zro__kernels_get(all_kernels[k]), &p);
                }
    print_message("           %ld reductions\n", cases);
}

/* The sign of zero tells +0.0 from nothing and from -0.0 = -3 * 0.0. */
static void an_absent_rank_adds_plus_zero(void **state)
{
    static const double weights[] = { 1, -3 };
    float minus_zero[100], out[100];
    const void *src[2] = { minus_zero, NULL };
    void *dst[1] = { out };
    const int cell = 2;
    const zro__reduce sum = { ZRO_F32, ZRO_SUM, 2, &cell, 1, NULL, 0 };
    const zro__reduce weighted = { ZRO_F32, ZRO_AVG, 2, &cell, 1, weights, 4 };

    (void)state;
    for (int i = 0; i < 100; i++)
        minus_zero[i] = -0.0f;
    for (size_t k = 0; k < sizeof all_kernels / sizeof *all_kernels; k++)
        for (int w = 0; w < 2 && zro__kernels_get(all_kernels[k]) != NULL; w++) {
            zro__kernels_get(all_kernels[k])->reduce(w ? &weighted : &sum, src, dst, 1, 100, 0);
            for (int i = 0; i < 100; i++)
                assert_int_equal(zro__f32_bits(out[i]), 0);
        }
}

/* More destinations than the mask of those that are sources has bits. */
static void many_destinations(void **state)
{
    enum { N = 70, COUNT = 130 };
    static float out[N][COUNT + 2];
    float a[COUNT], b[COUNT];
    const void *src[2] = { a, b };
    void *dst[N];
    const int cell = 2;
    const zro__reduce r = { ZRO_F32, ZRO_SUM, 2, &cell, 1, NULL, 0 };

    (void)state;
    for (size_t k = 0; k < sizeof all_kernels / sizeof *all_kernels; k++) {
        const zro__kernels *kernels = zro__kernels_get(all_kernels[k]);

        for (int j = 0; j < N && kernels != NULL; j++)
            dst[j] =
                j == 66 ? (void *)b : (void *)(out[j] + (j >= 64)); /* the last ones are not aligned as the first ones are */
        for (int i = 0; i < COUNT && kernels != NULL; i++) {
            a[i] = (float)i;
            b[i] = 1;
        }
        if (kernels != NULL)
            kernels->reduce(&r, src, dst, N, COUNT, 1);
        for (int j = 0; j < N && kernels != NULL; j++)
            for (int i = 0; i < COUNT; i++)
                assert_true(((float *)dst[j])[i] == (float)i + 1);
    }
}

static void check_copy(const zro__kernels *k, size_t bytes, int n_dst, int stream)
{
    static unsigned char src[20000], out[4][20000 + 2 * SLACK];
    size_t shift[4];
    void *dst[4];
    int self = (int)below(4); /* if there is such a destination, it is the source */

    for (size_t i = 0; i < bytes; i++)
        src[i] = (unsigned char)reference_random(&seed);
    for (int j = 0; j < n_dst; j++) {
        shift[j] = below(2) == 0 ? 0 : below(SLACK);
        memset(out[j], GUARD, sizeof out[j]);
        dst[j] = j == self ? src : out[j] + shift[j];
    }
    k->copy(dst, n_dst, src, bytes, stream);
    k->fence();
    for (int j = 0; j < n_dst; j++) {
        assert_memory_equal(dst[j], src, bytes);
        if (j != self)
            check_guard(out[j], shift[j], bytes);
    }
}

static void copies(void **state)
{
    static const size_t sizes[] = { 0, 1, 31, 64, 65, 1023, 1024, 4100, 19999 };

    (void)state;
    for (size_t k = 0; k < sizeof all_kernels / sizeof *all_kernels; k++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (int n_dst = 0; n_dst <= 4; n_dst++)
                for (int stream = 0; stream < 2; stream++)
                    if (zro__kernels_get(all_kernels[k]) != NULL)
                        check_copy(zro__kernels_get(all_kernels[k]), sizes[s], n_dst, stream);
}

/* Between f64 values that lie at and beside the middle of two 16-bit ones a second rounding would show. */
static void fill_doubles(double *x, size_t count)
{
    reference_fill(ZRO_F64, &seed, x, count);
    for (size_t i = 0; i < count; i += 2) {
        zro_dtype near = below(2) == 0 ? ZRO_BF16 : ZRO_F16;
        uint16_t h = (uint16_t)reference_random(&seed), next = (uint16_t)(h + 1);
        double middle = (reference_get(near, &h, 0) + reference_get(near, &next, 0)) / 2;

        x[i] = below(3) == 0 ? middle : nextafter(middle, below(2) == 0 ? -(double)INFINITY : (double)INFINITY);
    }
}

static void check_convert(const zro__kernels *k, zro_dtype to, zro_dtype from, size_t count, int mode)
{
    static double src[MAX_COUNT], out[MAX_COUNT + 1], expected[MAX_COUNT];
    unsigned char *dst = (unsigned char *)out + below(8);
    size_t where;

    if (from == ZRO_F64)
        fill_doubles(src, count);
    else
        reference_fill(from, &seed, src, count);
    for (size_t i = 0; i < count; i++)
        reference_put(to, expected, i, reference_get(from, src, i));
    set_mode(mode);
    k->convert(dst, to, src, from, count);
    set_mode(0);
    if (!reference_same(to, dst, expected, count, &where))
        fail_msg("%s: %s to %s differs at %zu of %zu", k->name, zro_dtype_name(from), zro_dtype_name(to), where, count);
}

static void conversions_round_once(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof all_kernels / sizeof *all_kernels; k++)
        for (int pair = 0; pair < 16; pair++)
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
                for (int mode = 0; mode < 3; mode++)
                    if (zro__kernels_get(all_kernels[k]) != NULL)
                        check_convert(zro__kernels_get(all_kernels[k]), float_types[pair / 4], float_types[pair % 4], counts[c],
                                      mode);
}

/* ---- halves: every bit, those of NaN included, is that of the plain code in base/dtype.h ---- */

static void check_widened(const zro__kernels *k)
{
    static uint16_t half[0x10000];
    static float wide[0x10000], expected[0x10000];

    for (uint32_t i = 0; i <= 0xffff; i++) {
        half[i] = (uint16_t)i;
        expected[i] = zro__f32_from_f16(half[i]);
    }
    k->convert(wide, ZRO_F32, half, ZRO_F16, 0x10000);
    assert_memory_equal(wide, expected, sizeof wide);
}

static void check_narrowed(const zro__kernels *k, const uint32_t *bits, size_t count)
{
    uint16_t half[MAX_COUNT];

    k->convert(half, ZRO_F16, bits, ZRO_F32, count);
    for (size_t i = 0; i < count; i++) {
        uint16_t expected = zro__f16_from_f32(zro__f32_of_bits(bits[i]));

        if (half[i] != expected)
            fail_msg("%s: f16 of %08x is %04x, by plain code %04x", k->name, bits[i], half[i], expected);
    }
}

/* Each half and the middle to the next one, and a few f32 on either side of both; then patterns spread over all of f32. */
static void check_narrow_of(const zro__kernels *k)
{
    enum { AROUND = 3, CHUNK = 4096, STRIDE = 1021 };
    uint32_t bits[CHUNK];
    size_t n = 0;

    for (uint32_t i = 0; i < 0xffff; i++) {
        uint32_t a = zro__f32_bits(zro__f32_from_f16((uint16_t)i)), b = zro__f32_bits(zro__f32_from_f16((uint16_t)(i + 1)));

        for (int d = -AROUND; d <= AROUND; d++) {
            bits[n++] = a + (uint32_t)d;
            bits[n++] = a + (b - a) / 2 + (uint32_t)d;
        }
        if (n > CHUNK - 4 * AROUND - 2) {
            check_narrowed(k, bits, n);
            n = 0;
        }
    }
    check_narrowed(k, bits, n);
    for (uint64_t u = 0; u <= UINT32_MAX;) {
        for (n = 0; n < CHUNK && u <= UINT32_MAX; u += STRIDE)
            bits[n++] = (uint32_t)u;
        check_narrowed(k, bits, n);
    }
}

static void halves_are_those_of_plain_code(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof all_kernels / sizeof *all_kernels; i++) {
        const zro__kernels *k = zro__kernels_get(all_kernels[i]);

        if (k == NULL)
            continue;
        check_widened(k);
        check_narrow_of(k);
    }
}

static double plain_norm(zro_dtype dtype, const void *src, size_t count, int squares)
{
    double lane[16] = { 0 };

    for (size_t i = 0; i < count; i++) {
        double x = reference_get(dtype, src, i), *l = &lane[i % 16];

        if (squares)
            *l += x * x;
        else if (!isnan(*l) && !(fabs(x) <= *l))
            *l = fabs(x);
    }
    for (int half = 8; half > 0; half /= 2)
        for (int l = 0; l < half; l++) {
            double a = lane[l], b = lane[l + half];

            lane[l] = squares ? a + b : isnan(a) || a > b ? a : b;
        }
    return lane[0];
}

static void check_norm(const zro__kernels *k, zro_dtype dtype, size_t count, int ordinary, int mode)
{
    static double src[ZRO__BLOCK];

    reference_fill(dtype, &seed, src, count);
    for (size_t i = 0; i < count && ordinary; i++)
        reference_put(dtype, src, i, ((double)below(2000) - 1000) / 7);
    for (int squares = 0; squares < 2; squares++) {
        double expected = plain_norm(dtype, src, count, squares), norm;

        set_mode(mode);
        norm = k->block_norm(src, dtype, count, squares ? 2 : (double)INFINITY);
        set_mode(0);
        assert_true(reference_same(ZRO_F64, &norm, &expected, 1, NULL));
    }
}

static void norms_of_blocks(void **state)
{
    static const size_t sizes[] = { 0, 1, 15, 16, 17, 1000, ZRO__BLOCK };

    (void)state;
    for (size_t k = 0; k < sizeof all_kernels / sizeof *all_kernels; k++)
        for (int d = 0; d < 4; d++)
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
                for (int round = 0; round < 8; round++)
                    if (zro__kernels_get(all_kernels[k]) != NULL)
                        check_norm(zro__kernels_get(all_kernels[k]), float_types[d], sizes[s], round % 2, round % 3);
}

static void tables_are_what_they_say(void **state)
{
    static const char *const names[] = { "", "base", "avx2", "avx512" };

    (void)state;
    assert_non_null(zro__kernels_get(ZRO_KERNELS_BASE));
    assert_ptr_equal(zro__kernels_get(ZRO_KERNELS_AUTO), zro__kernels_get(zro__cpu_best()));
    assert_null(zro__kernels_get((zro_kernels)4));
    assert_null(zro__kernels_get((zro_kernels)-1));
    for (size_t k = 0; k < sizeof all_kernels / sizeof *all_kernels; k++) {
        const zro__kernels *kernels = zro__kernels_get(all_kernels[k]);

        if (kernels == NULL) {
            print_message("********** SKIPPED: this processor has no %s; its kernels are NOT tested here\n",
                          names[all_kernels[k]]);
            continue;
        }
        assert_string_equal(kernels->name, names[all_kernels[k]]);
        assert_int_equal(kernels->which, all_kernels[k]);
    }
}

/* The exception flags belong to the mode: a program that looks for overflows must not see ours. */
static void exception_flags_are_the_callers(void **state)
{
    float big = 3e38f, out;
    const void *src[2] = { &big, &big };
    void *dst[1] = { &out };
    const int cell = 2;
    const zro__reduce r = { ZRO_F32, ZRO_SUM, 2, &cell, 1, NULL, 0 };

    (void)state;
    feclearexcept(FE_ALL_EXCEPT);
    zro__kernels_get(ZRO_KERNELS_AUTO)->reduce(&r, src, dst, 1, 1, 0);
    assert_true(isinf(out));
    assert_int_equal(fetestexcept(FE_ALL_EXCEPT), 0);
}

#if defined(__x86_64__)
/* Each bit of the caller's mode is seen by itself, and comes back. */
static void every_mode_becomes_the_default(void **state)
{
    const unsigned normal = 0x1f80;

    (void)state;
    for (int bit = 0; bit < 16; bit++) {
        unsigned mode = normal ^ 1u << bit, before = __builtin_ia32_stmxcsr(), inside, after;
        zro__fpmode saved;

        if ((normal >> bit & 1) != 0)
            continue; /* an exception that is not masked would end us */
        __builtin_ia32_ldmxcsr(mode);
        zro__fpmode_enter(&saved);
        inside = __builtin_ia32_stmxcsr();
        zro__fpmode_leave(&saved);
        after = __builtin_ia32_stmxcsr();
        __builtin_ia32_ldmxcsr(before);
        assert_int_equal(inside & ~0x3fu, normal);
        assert_int_equal(after, mode);
    }
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_are_what_they_say),
        cmocka_unit_test(each_table_is_the_reference),
        cmocka_unit_test(an_absent_rank_adds_plus_zero),
        cmocka_unit_test(many_destinations),
        cmocka_unit_test(copies),
        cmocka_unit_test(conversions_round_once),
        cmocka_unit_test(halves_are_those_of_plain_code),
        cmocka_unit_test(norms_of_blocks),
        cmocka_unit_test(exception_flags_are_the_callers),
#if defined(__x86_64__)
        cmocka_unit_test(every_mode_becomes_the_default),
#endif
    };

    return cmocka_run_group_tests_name("kernels", tests, NULL, NULL);
}
