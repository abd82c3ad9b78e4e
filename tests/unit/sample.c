/* Samples: each rank's are those of PyTorch's DistributedSampler, and a shuffled order is a permutation, another one for each seed
 * and epoch, and a fair one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "zro.h"

enum { MOST = 5000 };

static uint64_t random_state = 4711;

static size_t below(size_t n)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (size_t)(random_state >> 33) % n;
}

static zro_sample_config shuffled(uint64_t seed, uint64_t epoch)
{
    zro_sample_config c = ZRO_SAMPLE_CONFIG_INIT;

    c.shuffle = ZRO_ON;
    c.seed = seed;
    c.epoch = epoch;
    return c;
}

/* The order of all n samples: what a single rank has. */
static void order_of(size_t n, const zro_sample_config *c, size_t *order)
{
    assert_int_equal(zro_sample_indices(n, 0, 1, c, 0, n, order), ZRO_OK);
}

static void orders_are_permutations(void **unused)
{
    static size_t order[MOST], seen[MOST];

    (void)unused;
    for (size_t n = 1; n < MOST; n += 1 + n / 8) {
        zro_sample_config c = shuffled(n, n % 3);

        order_of(n, &c, order);
        memset(seen, 0, sizeof seen);
        for (size_t i = 0; i < n; i++) {
            assert_true(order[i] < n);
            assert_int_equal(seen[order[i]]++, 0);
        }
    }
}

/* What PyTorch does: the order, extended by its own beginning, as often as needed, or cut; every size-th is a rank's. */
static void ranks_share_one_order(void **unused)
{
    static size_t order[MOST], got[MOST];

    (void)unused;
    for (int trial = 0; trial < 300; trial++) {
        const size_t n = 1 + below(trial % 2 ? 20 : MOST / 2);
        const int size = 1 + (int)below(17);
        zro_sample_config c = shuffled(below(100), below(10));
        size_t count, first;

        c.shuffle = below(3) > 0 ? ZRO_ON : ZRO_OFF;
        c.drop_last = below(2) ? ZRO_ON : ZRO_OFF;
        count = zro_sample_count(n, size, c.drop_last);
        assert_int_equal(count, c.drop_last == ZRO_ON ? n / (size_t)size : (n + (size_t)size - 1) / (size_t)size);
        order_of(n, &c, order);
        first = below(count + 1);
        for (int r = 0; r < size; r++) {
            assert_int_equal(zro_sample_indices(n, r, size, &c, first, count - first, got), ZRO_OK);
            for (size_t k = first; k < count; k++)
                assert_int_equal(got[k - first], order[(k * (size_t)size + (size_t)r) % n]);
        }
    }
}

static void seeds_and_epochs_differ(void **unused)
{
    static size_t a[1000], b[1000];
    zro_sample_config one = shuffled(0, 0), others[] = { shuffled(1, 0), shuffled(0, 1), ZRO_SAMPLE_CONFIG_INIT };

    (void)unused;
    order_of(1000, &one, a);
    order_of(1000, &one, b);
    assert_memory_equal(a, b, sizeof a);
    for (int i = 0; i < 3; i++) {
        int equal = 0;

        order_of(1000, &others[i], b);
        for (int k = 0; k < 1000; k++)
            equal += a[k] == b[k];
        assert_true(equal < 20);
    }
}

/* All orders of four samples come, about equally often; and of more of them every sample comes to every place. */
static void orders_are_fair(void **unused)
{
    enum { EPOCHS = 24000, N = 37 };
    static int orders[256], places[N][N];
    int n_orders = 0;

    (void)unused;
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        zro_sample_config c = shuffled(5, epoch);
        size_t order[N];

        order_of(4, &c, order);
        orders[order[0] * 64 + order[1] * 16 + order[2] * 4 + order[3]]++;
        order_of(N, &c, order);
        for (size_t i = 0; i < N; i++)
            places[i][order[i]]++;
    }
    for (int i = 0; i < 256; i++) {
        n_orders += orders[i] > 0;
        assert_true(orders[i] == 0 || (orders[i] > EPOCHS / 24 * 8 / 10 && orders[i] < EPOCHS / 24 * 12 / 10));
    }
    assert_int_equal(n_orders, 24);
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++)
            assert_true(places[i][k] > EPOCHS / N * 8 / 10 && places[i][k] < EPOCHS / N * 12 / 10);
}

/* Numbers that do not fit into the memory of a list. */
static void huge(void **unused)
{
    const size_t n = SIZE_MAX / 4096 * 4096;
    zro_sample_config c = shuffled(1, 2);
    size_t got[8];

    (void)unused;
    assert_int_equal(zro_sample_indices(n, 4095, 4096, &c, zro_sample_count(n, 4096, ZRO_OFF) - 8, 8, got), ZRO_OK);
    for (int i = 0; i < 8; i++)
        assert_true(got[i] < n && (i == 0 || got[i] != got[i - 1]));
    c.shuffle = ZRO_OFF;
    assert_int_equal(zro_sample_indices(n, 4095, 4096, &c, zro_sample_count(n, 4096, ZRO_OFF) - 1, 1, got), ZRO_OK);
    assert_int_equal(got[0], n - 1);
}

static void refused(size_t n, int rank, int size, const zro_sample_config *c, size_t first, size_t count, const char *text)
{
    size_t out[64];

    assert_int_equal(zro_sample_indices(n, rank, size, c, first, count, out), ZRO_ERR_INVALID);
    assert_non_null(strstr(zro_last_error(), text));
}

static void wrong_arguments(void **unused)
{
    zro_sample_config c = ZRO_SAMPLE_CONFIG_INIT, by_function;

    (void)unused;
    zro_sample_config_init(&by_function);
    assert_memory_equal(&c, &by_function, sizeof c);
    assert_int_equal(zro_sample_count(10, 0, ZRO_OFF), 0);
    assert_int_equal(zro_sample_indices(0, 0, 3, NULL, 0, 0, NULL), ZRO_OK);
    assert_int_equal(zro_sample_indices(10, 0, 1, NULL, 0, 10, NULL), ZRO_ERR_INVALID);
    refused(10, 0, 0, NULL, 0, 1, "size = 0");
    refused(10, 0, 4097, NULL, 0, 1, "size = 4097");
    refused(10, 3, 3, NULL, 0, 1, "rank = 3, must be in [0, 3)");
    refused(10, -1, 3, NULL, 0, 1, "rank = -1");
    refused(10, 0, 3, NULL, 2, 3, "3 samples from 2 on, but each rank has 4");
    refused(10, 0, 3, NULL, 2, SIZE_MAX, "but each rank has 4");
    refused(0, 0, 3, NULL, 0, 1, "each rank has 0");
    refused(SIZE_MAX, 0, 4096, NULL, 0, 1, "more than a size_t");
    c.drop_last = (zro_switch)2;
    refused(10, 0, 3, &c, 0, 1, "drop_last");
    c.drop_last = ZRO_ON;
    refused(10, 0, 3, &c, 3, 1, "each rank has 3");
    c.struct_size = 1;
    refused(10, 0, 3, &c, 0, 1, "struct_size");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orders_are_permutations),
        cmocka_unit_test(ranks_share_one_order),
        cmocka_unit_test(seeds_and_epochs_differ),
        cmocka_unit_test(orders_are_fair),
        cmocka_unit_test(huge),
        cmocka_unit_test(wrong_arguments),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
