/* The plan, which needs no ranks: properties of every partition over random parameters, PyTorch's cases, refusals, and memory
 * that runs out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/kernels.h"
#include "base/memory.h"
#include "base/point.h"
#include "plan/plan.h"

enum { MOST = 300, MOST_RANKS = 40 };

static uint64_t seed = 1;

static size_t below(size_t n)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (size_t)(seed >> 20) % n;
}

/* A model: parameters, and the groups that they are in. */
typedef struct model {
    zro_param params[MOST];
    int32_t owners[MOST];
    zro_param_group groups[8];
    size_t n, n_groups;
} model;

static void add_param(model *m, size_t count)
{
    zro_param *p = &m->params[m->n++];

    zro_param_init(p);
    p->shape[0] = count;
}

/* One group of one type. */
static model *of_sizes(const size_t *sizes, size_t n)
{
    static model m;

    memset(&m, 0, sizeof m);
    for (size_t i = 0; i < n; i++)
        add_param(&m, sizes[i]);
    m.groups[0].params = m.params;
    m.groups[0].n = n;
    m.n_groups = 1;
    return &m;
}

/* Groups of 1 to 30 parameters, with owners; how they are mixed depends on the case. */
static void randomize(model *m, int ranks)
{
    static const size_t largest[] = { 1, 20, 1024, 3000, 200000, (size_t)1 << 40 };
    size_t kind = below(7), types = 1 + below(4), tags = 1 + below(3);

    memset(m, 0, sizeof *m);
    m->n_groups = 1 + below(4);
    for (size_t g = 0; g < m->n_groups; g++) {
        zro_param_group *group = &m->groups[g];

        group->params = &m->params[m->n];
        group->n = 1 + below(below(2) == 0 ? 3 : 30);
        group->owners = &m->owners[m->n];
        for (size_t i = 0; i < group->n; i++) {
            add_param(m, below(8) == 0 ? 0 : below(largest[kind < 6 ? kind : below(6)] + 1));
            m->params[m->n - 1].dtype = (zro_dtype)below(types);
            m->params[m->n - 1].device = -(int32_t)below(tags);
            m->owners[m->n - 1] = (int32_t)below((size_t)ranks);
        }
    }
}

/* Owners are for one partition alone. */
static void use_owners(model *m, zro_partition partition)
{
    size_t first = 0;

    for (size_t g = 0; g < m->n_groups; first += m->groups[g++].n)
        m->groups[g].owners = partition == ZRO_PARTITION_GIVEN ? &m->owners[first] : NULL;
}

static zro_plan *make(const model *m, size_t n_groups, int ranks, zro_partition partition, zro_switch shard)
{
    zro_plan_config config = ZRO_PLAN_CONFIG_INIT;
    zro_plan *plan;

    config.partition = partition;
    config.shard_buckets = shard;
    assert_int_equal(zro_plan_create(m->groups, n_groups, ranks, &config, &plan), ZRO_OK);
    return plan;
}

static const zro_range *ranges_of(const zro_plan *plan, int rank, size_t *n)
{
    const zro_range *ranges;

    assert_int_equal(zro_plan_ranges(plan, rank, &ranges, n), ZRO_OK);
    return ranges;
}

static size_t groups_of(const zro_plan *plan)
{
    return zro__plan_table(plan)[zro_plan_params(plan) - 1].group + 1;
}

static int owner_of(const zro_plan *plan, size_t param, size_t element)
{
    int owner = -1;

    assert_int_equal(zro_plan_owner(plan, param, element, &owner), ZRO_OK);
    return owner;
}

/* ---- properties ---- */

/* Every element has one owner, cuts are at blocks, a rank has at most one range of a parameter, and questions agree. */
static void check_all(const zro_plan *plan, const model *m)
{
    const zro__plan_param *params = zro__plan_table(plan);
    size_t n, at = 0, total = 0;
    const zro_range *all = ranges_of(plan, ZRO_ALL, &n);

    for (size_t i = 0; i < zro_plan_params(plan); i++) {
        size_t next = 0, count = m->params[i].shape[0];
        int32_t last = -1;

        assert_true(params[i].count == count && params[i].dtype == m->params[i].dtype);
        assert_true(params[i].device == m->params[i].device && params[i].first_range == at);
        do {
            assert_true(at < n && all[at].param == i && all[at].first == next && next % ZRO__BLOCK == 0);
            assert_true(all[at].group == params[i].group && all[at].bucket == params[i].bucket);
            assert_true(all[at].owner > last && all[at].owner < zro_plan_ranks(plan));
            assert_true(all[at].count > 0 || count == 0);
            assert_int_equal(owner_of(plan, i, next), all[at].owner);
            last = all[at].owner;
            next += all[at++].count;
            if (next > 0)
                assert_int_equal(owner_of(plan, i, next - 1), last);
        } while (next < count);
        total += count;
    }
    assert_true(at == n && params[zro_plan_params(plan)].first_range == n);
    assert_true(zro_plan_elements(plan, ZRO_ALL) == total);
}

/* The ranks' lists have each of all ranges once, each with its owner, in the order of buckets or groups. */
static void check_packed(const zro_plan *plan, zro_partition partition)
{
    size_t n, together = 0;
    const zro_range *all = ranges_of(plan, ZRO_ALL, &n);
    int whole = partition == ZRO_PARTITION_GREEDY || partition == ZRO_PARTITION_GIVEN;

    for (int r = 0; r < zro_plan_ranks(plan); r++) {
        size_t k, elements = 0;
        const zro_range *mine = ranges_of(plan, r, &k);

        for (size_t i = 0; i < k; i++) {
            const zro__plan_param *p = &zro__plan_table(plan)[mine[i].param];
            size_t at = p[0].first_range;

            while (at < p[1].first_range && all[at].first != mine[i].first)
                at++;
            assert_true(at < p[1].first_range);
            assert_memory_equal(&mine[i], &all[at], sizeof *mine);
            assert_int_equal(mine[i].owner, r);
            assert_true(i == 0 || (whole ? mine[i].group >= mine[i - 1].group : mine[i].bucket >= mine[i - 1].bucket));
            elements += mine[i].count;
        }
        assert_true(elements == zro_plan_elements(plan, r));
        together += k;
    }
    assert_true(together == n);
}

/* Buckets are numbered by first parameter, and have one type and one tag; those of one call no type and tag twice. */
static void check_buckets(const zro_plan *plan, size_t first, size_t last, size_t bucket)
{
    const zro__plan_param *p = zro__plan_table(plan);

    for (size_t i = first; i < last; i++) {
        for (size_t j = first; j < i; j++)
            assert_int_equal(p[i].bucket == p[j].bucket, p[i].dtype == p[j].dtype && p[i].device == p[j].device);
        assert_true(p[i].bucket <= bucket);
        bucket += p[i].bucket == bucket;
    }
    if (last == zro_plan_params(plan))
        assert_true(zro_plan_buckets(plan) == bucket);
}

/* Shards of each bucket differ by at most a block, and follow each other by rank. */
static void check_even(const zro_plan *plan)
{
    size_t n, ranks = (size_t)zro_plan_ranks(plan);
    const zro_range *all = ranges_of(plan, ZRO_ALL, &n);

    for (size_t b = 0; b < zro_plan_buckets(plan); b++) {
        size_t *share = calloc(ranks, sizeof *share), least = SIZE_MAX, most = 0;
        int32_t last = 0;

        assert_non_null(share);
        for (size_t i = 0; i < n; i++)
            if (all[i].bucket == b) {
                assert_true(all[i].owner >= last);
                last = all[i].owner;
                share[last] += all[i].count;
            }
        for (size_t r = 0; r < ranks; r++) {
            least = share[r] < least ? share[r] : least;
            most = share[r] > most ? share[r] : most;
        }
        assert_true(most - least <= ZRO__BLOCK);
        free(share);
    }
}

static void check(const zro_plan *plan, const model *m, zro_partition partition)
{
    check_all(plan, m);
    check_packed(plan, partition);
    if (partition == ZRO_PARTITION_FLAT)
        check_even(plan);
}

static const zro_partition partitions[] = { ZRO_PARTITION_FLAT, ZRO_PARTITION_GREEDY, ZRO_PARTITION_BUCKETS,
                                            ZRO_PARTITION_GIVEN };

static void partitions_cover_everything(void **unused)
{
    static model m;

    (void)unused;
    for (int i = 0; i < 3000; i++) {
        zro_partition partition = partitions[i % 4];
        int ranks = 1 + (int)below(below(3) == 0 ? 3 : MOST_RANKS);
        zro_plan *plan;

        randomize(&m, ranks);
        use_owners(&m, partition);
        plan = make(&m, m.n_groups, ranks, partition, i % 8 == 2 ? ZRO_ON : ZRO_OFF);
        assert_int_equal(zro_plan_ranks(plan), ranks);
        assert_true(zro_plan_params(plan) == m.n);
        check(plan, &m, partition);
        check_buckets(plan, 0, m.n, 0);
        if (partition == ZRO_PARTITION_GIVEN)
            for (size_t p = 0; p < m.n; p++)
                assert_int_equal(owner_of(plan, p, 0), m.owners[p]);
        zro_plan_destroy(plan);
    }
}

static void flat_shards_are_even(void **unused)
{
    static const size_t huge[] = { (size_t)1 << 50 }, odd[] = { ((size_t)1 << 40) + 1 }, two[] = { 5, 2000 };
    static const size_t none[] = { 0, 0, 0 }, around[] = { 0, 1023, 0, 1024, 1025, 0, 1, 2047, 2049, 0 };
    static const struct {
        const size_t *sizes;
        size_t n;
    } cases[] = { { huge, 1 }, { odd, 1 }, { two, 2 }, { none, 3 }, { around, 10 } };
    static const int ranks[] = { 1, 2, 3, 7, 64, 1000, 4096 };
    size_t tiny[MOST];

    (void)unused;
    for (size_t r = 0; r < sizeof ranks / sizeof *ranks; r++) {
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
            model *m = of_sizes(cases[c].sizes, cases[c].n);
            zro_plan *plan = make(m, 1, ranks[r], ZRO_PARTITION_FLAT, ZRO_OFF);

            check(plan, m, ZRO_PARTITION_FLAT);
            zro_plan_destroy(plan);
        }
        for (size_t most = 2; most < 3000; most += 1 + most / 3) {
            model *m;
            zro_plan *plan;

            for (size_t i = 0; i < MOST; i++)
                tiny[i] = below(most);
            m = of_sizes(tiny, MOST);
            plan = make(m, 1, ranks[r], ZRO_PARTITION_FLAT, ZRO_OFF);
            check(plan, m, ZRO_PARTITION_FLAT);
            zro_plan_destroy(plan);
        }
    }
}

/* Among borders that are equally even the choice is fixed, because every rank makes it for itself: in the middle of a block the
 * lower one, and an even share is not rounded down before it is multiplied. */
static void flat_borders_are_fixed(void **unused)
{
    static const struct {
        size_t count;
        int ranks;
        size_t elements[5];
    } cases[] = { { 3072, 2, { 1024, 2048 } }, { 3843, 5, { 1024, 1024, 0, 1024, 771 } } };

    (void)unused;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        zro_plan *plan = make(of_sizes(&cases[c].count, 1), 1, cases[c].ranks, ZRO_PARTITION_FLAT, ZRO_OFF);

        for (int r = 0; r < cases[c].ranks; r++)
            assert_int_equal(zro_plan_elements(plan, r), cases[c].elements[r]);
        zro_plan_destroy(plan);
    }
}

/* Of as many parameters as there are, on as many ranks. */
static void a_large_model(void **unused)
{
    enum { N = 100000, RANKS = 1024 };
    zro_param *params = calloc(N, sizeof *params);
    zro_param_group group = { .params = params, .n = N };

    (void)unused;
    assert_non_null(params);
    for (size_t i = 0; i < N; i++) {
        zro_param_init(&params[i]);
        params[i].shape[0] = below(20000);
    }
    for (size_t i = 0; i < 3; i++) {
        zro_plan_config config = ZRO_PLAN_CONFIG_INIT;
        size_t n, found;
        zro_plan *plan;

        config.partition = partitions[i];
        assert_int_equal(zro_plan_create(&group, 1, RANKS, &config, &plan), ZRO_OK);
        if (config.partition == ZRO_PARTITION_FLAT)
            check_even(plan);
        ranges_of(plan, ZRO_ALL, &n);
        assert_true(n >= N && n < N + RANKS);
        assert_int_equal(zro_plan_find(plan, "99999", &found), ZRO_OK);
        assert_true(found == N - 1);
        zro_plan_destroy(plan);
    }
    free(params);
}

/* On one rank everything is its own; of one type, in the order of parameters. */
static void one_rank_has_everything(void **unused)
{
    static const size_t sizes[] = { 3, 5000, 0, 7, 1 << 20 };
    size_t n;

    (void)unused;
    for (size_t i = 0; i < 4; i++) {
        model *m = of_sizes(sizes, 5);
        zro_plan *plan;

        use_owners(m, partitions[i]);
        plan = make(m, 1, 1, partitions[i], ZRO_OFF);
        ranges_of(plan, 0, &n);
        assert_true(n == 5);
        if (partitions[i] != ZRO_PARTITION_GREEDY)
            assert_memory_equal(ranges_of(plan, 0, &n), ranges_of(plan, ZRO_ALL, &n), 5 * sizeof(zro_range));
        zro_plan_destroy(plan);
    }
}

/* ---- greedy ---- */

/* PyTorch's, written plainly: owners and, rank after rank, the packing order of a group. */
static void naive_greedy(const model *m, const zro_plan *plan)
{
    size_t load[MOST_RANKS] = { 0 }, next[MOST_RANKS] = { 0 }, first = 0;
    char done[MOST] = { 0 };

    for (size_t g = 0; g < m->n_groups; first += m->groups[g++].n)
        for (size_t k = 0; k < m->groups[g].n; k++) {
            const zro_range *mine;
            size_t best = SIZE_MAX, rank = 0, n;

            for (size_t i = first; i < first + m->groups[g].n; i++)
                if (!done[i] && (best == SIZE_MAX || m->params[i].shape[0] > m->params[best].shape[0]))
                    best = i;
            for (size_t r = 1; r < (size_t)zro_plan_ranks(plan); r++)
                rank = load[r] < load[rank] ? r : rank;
            done[best] = 1;
            load[rank] += m->params[best].shape[0];
            mine = ranges_of(plan, (int)rank, &n);
            assert_true(next[rank] < n && mine[next[rank]].param == best && mine[next[rank]].group == g);
            next[rank]++;
        }
}

static void greedy_is_pytorchs(void **unused)
{
    static model m;

    (void)unused;
    for (int i = 0; i < 1500; i++) {
        int ranks = 1 + (int)below(MOST_RANKS);
        size_t given;
        zro_plan *plan;

        randomize(&m, ranks);
        use_owners(&m, ZRO_PARTITION_GREEDY);
        m.params[below(m.n)].requires_grad = 0;
        given = 1 + below(m.n_groups);
        plan = make(&m, given, ranks, ZRO_PARTITION_GREEDY, ZRO_OFF);
        for (size_t g = given; g < m.n_groups; g++)
            assert_int_equal(zro_plan_add_group(plan, &m.groups[g]), ZRO_OK);
        naive_greedy(&m, plan);
        zro_plan_destroy(plan);
    }
}

static void S12_sizes_once_per_rank(void **unused)
{
    static const size_t sizes[] = { 9, 7, 5, 3 };
    size_t all[MOST];

    (void)unused;
    for (size_t ranks = 1; ranks <= MOST_RANKS; ranks++) {
        zro_plan *plan;

        for (size_t i = 0; i < 4 * ranks; i++)
            all[i] = sizes[i % 4];
        plan = make(of_sizes(all, 4 * ranks), 1, (int)ranks, ZRO_PARTITION_GREEDY, ZRO_OFF);
        for (size_t r = 0; r < ranks; r++)
            assert_true(zro_plan_elements(plan, (int)r) == 24);
        zro_plan_destroy(plan);
    }
}

static void S13_the_last_one_is_added(void **unused)
{
    static const size_t sizes[] = { 9, 7, 5, 3 };
    size_t all[MOST], n, second = 0;

    (void)unused;
    for (size_t ranks = 1; ranks <= MOST_RANKS; ranks++) {
        zro_param_group group = { .n = 1 };
        model *m;
        zro_plan *plan;

        for (size_t i = 0; i < 4 * ranks; i++)
            all[i] = sizes[i % 4];
        m = of_sizes(all, 4 * ranks);
        m->groups[0].n--;
        group.params = &m->params[4 * ranks - 1];
        plan = make(m, 1, (int)ranks, ZRO_PARTITION_GREEDY, ZRO_OFF);
        assert_int_equal(zro_plan_add_group(plan, &group), ZRO_OK);
        second = 0;
        for (size_t r = 0; r < ranks; r++) {
            const zro_range *mine = ranges_of(plan, (int)r, &n);

            assert_true(zro_plan_elements(plan, (int)r) == 24);
            for (size_t i = 0; i < n; i++)
                second += mine[i].group == 1;
        }
        assert_true(second == 1 && groups_of(plan) == 2);
        zro_plan_destroy(plan);
    }
}

static void S13_a_frozen_one_counts(void **unused)
{
    static const size_t sizes[] = { 100, 3, 5, 2, 6, 4, 3 };
    static const int owners[] = { 0, 1, 2, 1, 1, 2, 2 };
    model *m = of_sizes(sizes, 7);
    zro_param_group group = { .params = &m->params[6], .n = 1 };
    zro_plan *plan;

    (void)unused;
    m->groups[0].n = 6;
    m->params[0].requires_grad = 0;
    plan = make(m, 1, 3, ZRO_PARTITION_GREEDY, ZRO_OFF);
    assert_int_equal(zro_plan_add_group(plan, &group), ZRO_OK);
    for (size_t i = 0; i < 7; i++)
        assert_int_equal(owner_of(plan, i, 0), owners[i]);
    zro_plan_destroy(plan);
}

/* ---- buckets ---- */

typedef struct lists {
    size_t params[MOST], lengths[MOST], n;
} lists;

/* Parameters of one type in any order, in buckets of at least one. */
static void random_lists(const model *m, lists *l)
{
    for (size_t i = 0; i < m->n; i++) {
        size_t j = below(i + 1);

        l->params[i] = l->params[j];
        l->params[j] = i;
    }
    l->n = 0;
    for (size_t left = m->n; left > 0; left -= l->lengths[l->n++])
        l->lengths[l->n] = 1 + below(left < 12 ? left : 12);
}

static zro_plan *make_listed(const model *m, const lists *l, int ranks, zro_switch shard)
{
    zro_plan_config config = ZRO_PLAN_CONFIG_INIT;
    zro_plan *plan;

    config.partition = ZRO_PARTITION_BUCKETS;
    config.shard_buckets = shard;
    config.bucket_params = l->params;
    config.bucket_lengths = l->lengths;
    config.n_buckets = l->n;
    assert_int_equal(zro_plan_create(m->groups, m->n_groups, ranks, &config, &plan), ZRO_OK);
    return plan;
}

/* The members of a bucket are consecutive pieces, each a rank's that has no other; all but the last are as long as they may be,
 * unless it is the last rank. */
static void check_pieces(const zro_plan *plan, const lists *l, size_t bucket, const size_t *members, zro_switch shard)
{
    const size_t ranks = (size_t)zro_plan_ranks(plan), total = zro_plan_elements(plan, ZRO_ALL);
    const zro__plan_param *params = zro__plan_table(plan);
    char seen[MOST_RANKS] = { 0 };
    size_t pieces = 0, size = 0;
    int last = -1;

    for (size_t i = 0; i < l->lengths[bucket]; i++) {
        int owner = owner_of(plan, members[i], 0), reaches = (size + params[members[i]].count) * ranks >= total;

        assert_true(params[members[i]].bucket == bucket);
        if (owner != last) {
            assert_true(!seen[owner] && (i == 0 || reaches));
            seen[owner] = 1;
            size = 0;
            pieces++;
        } else {
            assert_true(!reaches || pieces == ranks || shard == ZRO_OFF);
        }
        size += params[members[i]].count;
        last = owner;
    }
    assert_true(pieces <= ranks);
    if (shard == ZRO_OFF)
        assert_true(pieces == 1 && last == (int)(bucket % ranks));
}

/* The lightest rank that has not been seen gets the members, which are a piece. */
static void naive_piece(const zro_plan *plan, const size_t *members, size_t n, size_t *load, char *seen)
{
    size_t rank = SIZE_MAX;

    for (size_t r = 0; r < (size_t)zro_plan_ranks(plan); r++)
        if (!seen[r] && (rank == SIZE_MAX || load[r] < load[rank]))
            rank = r;
    assert_true(rank != SIZE_MAX);
    seen[rank] = 1;
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(owner_of(plan, members[i], 0), rank);
        load[rank] += zro__plan_table(plan)[members[i]].count;
    }
}

/* Small buckets first, and of each the pieces that the plan has made one after another. */
static void naive_pieces(const zro_plan *plan, const lists *l)
{
    size_t load[MOST_RANKS] = { 0 }, sizes[MOST] = { 0 }, firsts[MOST] = { 0 };

    for (size_t b = 0; b < l->n; b++) {
        firsts[b] = b == 0 ? 0 : firsts[b - 1] + l->lengths[b - 1];
        for (size_t i = 0; i < l->lengths[b]; i++)
            sizes[b] += zro__plan_table(plan)[l->params[firsts[b] + i]].count;
    }
    for (size_t k = 0; k < l->n; k++) {
        const size_t *members;
        char seen[MOST_RANKS] = { 0 };
        size_t b = 0;

        for (size_t c = 1; c < l->n; c++)
            b = sizes[c] < sizes[b] ? c : b;
        members = &l->params[firsts[b]];
        for (size_t i = 0, end; i < l->lengths[b]; i = end) {
            for (end = i + 1; end < l->lengths[b]; end++)
                if (owner_of(plan, members[end], 0) != owner_of(plan, members[i], 0))
                    break;
            naive_piece(plan, &members[i], end - i, load, seen);
        }
        sizes[b] = SIZE_MAX;
    }
}

static void listed_buckets(void **unused)
{
    static model m;
    static lists l;

    (void)unused;
    for (int i = 0; i < 2000; i++) {
        int ranks = 1 + (int)below(below(2) == 0 ? 4 : MOST_RANKS);
        zro_switch shard = i % 2 == 0 ? ZRO_ON : ZRO_OFF;
        const size_t *members = l.params;
        zro_plan *plan;

        randomize(&m, ranks);
        use_owners(&m, ZRO_PARTITION_BUCKETS);
        for (size_t p = 0; p < m.n; p++) {
            m.params[p].dtype = ZRO_F32;
            m.params[p].device = 0;
        }
        random_lists(&m, &l);
        plan = make_listed(&m, &l, ranks, shard);
        check(plan, &m, ZRO_PARTITION_BUCKETS);
        assert_true(zro_plan_buckets(plan) == l.n);
        for (size_t b = 0; b < l.n; members += l.lengths[b++])
            check_pieces(plan, &l, b, members, shard);
        if (shard == ZRO_ON)
            naive_pieces(plan, &l);
        zro_plan_destroy(plan);
    }
}

static void check_owners(const size_t *sizes, size_t n, int ranks, const int *owners)
{
    lists l = { .lengths = { n }, .n = 1 };
    zro_plan *plan;

    for (size_t i = 0; i < n; i++)
        l.params[i] = i;
    plan = make_listed(of_sizes(sizes, n), &l, ranks, ZRO_ON);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(owner_of(plan, i, 0), owners[i]);
    zro_plan_destroy(plan);
}

static void S49_three_equal_on_two(void **unused)
{
    (void)unused;
    check_owners((const size_t[]){ 10, 10, 10 }, 3, 2, (const int[]){ 0, 1, 1 });
}

static void S49_a_small_rest_on_three(void **unused)
{
    (void)unused;
    check_owners((const size_t[]){ 60, 60, 60, 1 }, 4, 3, (const int[]){ 0, 1, 2, 2 });
}

static void S49_two_on_one(void **unused)
{
    (void)unused;
    check_owners((const size_t[]){ 10, 10 }, 2, 1, (const int[]){ 0, 0 });
}

/* ---- adding ---- */

/* Everything that can be asked of a plan, to compare with later. */
typedef struct answers {
    zro_range ranges[2][MOST + 8 * 3 * 4 * MOST_RANKS];
    size_t n, lengths[MOST_RANKS], elements[MOST_RANKS], total, params, groups, buckets;
} answers;

static void ask(const zro_plan *plan, answers *a)
{
    const zro_range *ranges = ranges_of(plan, ZRO_ALL, &a->n);
    size_t at = 0;

    memset(a->lengths, 0, sizeof a->lengths);
    memset(a->elements, 0, sizeof a->elements);
    assert_true(a->n <= sizeof a->ranges[0] / sizeof a->ranges[0][0]);
    memcpy(a->ranges[0], ranges, a->n * sizeof *ranges);
    for (int r = 0; r < zro_plan_ranks(plan); r++) {
        ranges = ranges_of(plan, r, &a->lengths[r]);
        memcpy(&a->ranges[1][at], ranges, a->lengths[r] * sizeof *ranges);
        at += a->lengths[r];
        a->elements[r] = zro_plan_elements(plan, r);
    }
    a->total = zro_plan_elements(plan, ZRO_ALL);
    a->params = zro_plan_params(plan);
    a->groups = groups_of(plan);
    a->buckets = zro_plan_buckets(plan);
}

static void check_equal(const answers *a, const answers *b)
{
    assert_true(a->n == b->n && a->total == b->total && a->params == b->params && a->groups == b->groups);
    assert_true(a->buckets == b->buckets);
    assert_memory_equal(a->lengths, b->lengths, sizeof a->lengths);
    assert_memory_equal(a->elements, b->elements, sizeof a->elements);
    for (int i = 0; i < 2; i++)
        assert_memory_equal(a->ranges[i], b->ranges[i], a->n * sizeof a->ranges[i][0]);
}

/* Earlier owners stay, the new buckets are its own, and undoing is as if nothing had been added. */
static void adding_and_undoing(void **unused)
{
    static model m;
    static answers before, after, again;

    (void)unused;
    for (int i = 0; i < 800; i++) {
        zro_partition partition = partitions[i % 4];
        int ranks = 1 + (int)below(MOST_RANKS);
        zro_plan *plan;

        randomize(&m, ranks);
        use_owners(&m, partition);
        plan = make(&m, 1, ranks, partition, ZRO_OFF);
        for (size_t g = 1; g < m.n_groups; g++) {
            ask(plan, &before);
            assert_int_equal(zro_plan_add_group(plan, &m.groups[g]), ZRO_OK);
            ask(plan, &after);
            assert_memory_equal(after.ranges[0], before.ranges[0], before.n * sizeof before.ranges[0][0]);
            check(plan, &m, partition);
            check_buckets(plan, before.params, after.params, before.buckets);
            zro__plan_undo(plan);
            ask(plan, &again);
            check_equal(&before, &again);
            check(plan, &m, partition);
            assert_int_equal(zro_plan_find(plan, "0", &again.n), ZRO_OK);
            assert_int_equal(zro_plan_add_group(plan, &m.groups[g]), ZRO_OK);
            ask(plan, &again);
            check_equal(&after, &again);
        }
        zro_plan_destroy(plan);
    }
}

/* An added bucket goes on with the numbers, and so with the ranks. */
static void added_buckets_take_turns(void **unused)
{
    static const size_t sizes[] = { 4, 4, 4 };
    model *m = of_sizes(sizes, 3);
    zro_param_group group = { .params = &m->params[1], .n = 1 };
    zro_plan *plan;

    (void)unused;
    m->groups[0].n = 1;
    plan = make(m, 1, 2, ZRO_PARTITION_BUCKETS, ZRO_ON);
    assert_int_equal(zro_plan_add_group(plan, &group), ZRO_OK);
    group.params++;
    assert_int_equal(zro_plan_add_group(plan, &group), ZRO_OK);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(owner_of(plan, i, 0), i % 2);
    zro_plan_destroy(plan);
}

/* ---- names and overlaps ---- */

static void check_find(const zro_plan *plan, const char *name, size_t want)
{
    size_t found = SIZE_MAX - 1;
    zro_status st = zro_plan_find(plan, name, &found);

    assert_int_equal(st, want == SIZE_MAX ? ZRO_ERR_INVALID : ZRO_OK);
    if (want != SIZE_MAX)
        assert_true(found == want);
    else
        assert_non_null(strstr(zro_last_error(), name));
}

static void names_are_found(void **unused)
{
    static const size_t sizes[] = { 1, 1, 1, 1, 1, 1, 1, 1, 1 };
    static const char *const names[] = { "b", "5", "a", NULL, "b", NULL, "", "aa", "3" };
    static const size_t list[] = { 6, 7, 8 };
    model *m = of_sizes(sizes, 9);
    zro_param_group group = { .params = m->params, .index = list, .n = 3 };
    zro_plan *plan;

    (void)unused;
    for (size_t i = 0; i < 9; i++)
        m->params[i].name = names[i];
    m->groups[0].n = 6;
    plan = make(m, 1, 2, ZRO_PARTITION_FLAT, ZRO_OFF);
    assert_int_equal(zro_plan_add_group(plan, &group), ZRO_OK);
    check_find(plan, "a", 2);
    check_find(plan, "b", 0); /* the first of two */
    check_find(plan, "3", 3); /* an index that is another's name */
    check_find(plan, "5", 1); /* a name that is another's index */
    check_find(plan, "", 6);
    check_find(plan, "aa", 7);
    check_find(plan, "c", SIZE_MAX);
    check_find(plan, "4", SIZE_MAX);
    zro__plan_undo(plan);
    check_find(plan, "aa", SIZE_MAX);
    check_find(plan, "b", 0);
    zro_plan_destroy(plan);
    m->groups[0].n = 2; /* the table of names is never full, so that a search for another one ends */
    plan = make(m, 1, 2, ZRO_PARTITION_FLAT, ZRO_OFF);
    check_find(plan, "c", SIZE_MAX);
    zro_plan_destroy(plan);
}

static void overlaps_cover_everything(void **unused)
{
    static zro_move out[MOST + 2 * 12 * MOST_RANKS];
    static model m;

    (void)unused;
    for (int i = 0; i < 1000; i++) {
        zro_partition from = partitions[below(3)], to = partitions[below(3)];
        size_t n, same, at = 0;
        zro_plan *a, *b;

        randomize(&m, 1);
        use_owners(&m, from);
        a = make(&m, m.n_groups, 1 + (int)below(MOST_RANKS), from, ZRO_OFF);
        b = make(&m, m.n_groups, 1 + (int)below(MOST_RANKS), to, ZRO_OFF);
        assert_int_equal(zro_plan_intersect(a, b, NULL, 1000000, &n), ZRO_OK);
        assert_true(n <= sizeof out / sizeof *out);
        memset(out, 0xff, sizeof out);
        assert_int_equal(zro_plan_intersect(a, b, out, n - 1, &same), ZRO_OK);
        assert_true(same == n && out[n - 1].param == SIZE_MAX);
        assert_int_equal(zro_plan_intersect(a, b, out, n, &same), ZRO_OK);
        for (size_t p = 0; p < m.n; p++) {
            size_t next = 0;

            do {
                const zro_move *o = &out[at++];
                size_t last = o->first + (o->count > 0 ? o->count - 1 : 0);

                assert_true(at <= n && o->param == p && o->first == next && (o->count > 0 || m.params[p].shape[0] == 0));
                assert_true(o->from == owner_of(a, p, next) && o->to == owner_of(b, p, next));
                assert_true(o->from == owner_of(a, p, last) && o->to == owner_of(b, p, last));
                next += o->count;
            } while (next < m.params[p].shape[0]);
        }
        assert_true(at == n);
        zro_plan_destroy(a);
        zro_plan_destroy(b);
    }
}

/* ---- refusals ---- */

static void check_refused(const zro_param_group *groups, size_t n, int ranks, const zro_plan_config *config, const char *text)
{
    zro_plan *plan = (zro_plan *)&seed;

    assert_int_equal(zro_plan_create(groups, n, ranks, config, &plan), ZRO_ERR_INVALID);
    assert_string_equal(zro_last_error(), text);
    assert_null(plan);
}

static void configs_are_refused(void **unused)
{
    static const size_t sizes[] = { 1, 2 };
    model *m = of_sizes(sizes, 2);
    zro_plan_config c = ZRO_PLAN_CONFIG_INIT;

    (void)unused;
    check_refused(m->groups, 1, 0, NULL, "plan: ranks = 0, must be 1 to 4096");
    check_refused(m->groups, 1, 4097, NULL, "plan: ranks = 4097, must be 1 to 4096");
    check_refused(m->groups, 0, 1, NULL, "plan: no parameter groups");
    check_refused(NULL, 1, 1, NULL, "plan: no parameter groups");
    c.struct_size = 8;
    check_refused(m->groups, 1, 1, &c, "zro_plan_config: struct_size = 8; begin with its initializer");
    zro_plan_config_init(&c);
    c.partition = (zro_partition)5;
    check_refused(m->groups, 1, 1, &c, "zro_plan_config: partition = 5 is none of auto, flat, greedy, buckets, given");
    c.partition = ZRO_PARTITION_BUCKETS;
    c.shard_buckets = (zro_switch)2;
    check_refused(m->groups, 1, 1, &c, "zro_plan_config: shard_buckets = 2, must be on or off");
    c.partition = ZRO_PARTITION_FLAT;
    c.shard_buckets = ZRO_ON;
    check_refused(m->groups, 1, 1, &c, "zro_plan_config: shard_buckets is set, but partition is not buckets");
    assert_int_equal(zro_plan_create(m->groups, 1, 1, NULL, NULL), ZRO_ERR_INVALID);
    assert_string_equal(zro_last_error(), "plan_create: out is NULL");
}

static void check_lists_refused(const zro_param_group *group, const size_t *params, const size_t *lengths, size_t n,
                                const char *text)
{
    zro_plan_config c = ZRO_PLAN_CONFIG_INIT;

    c.partition = ZRO_PARTITION_BUCKETS;
    c.bucket_params = params;
    c.bucket_lengths = lengths;
    c.n_buckets = n;
    check_refused(group, 1, 2, &c, text);
    c.partition = ZRO_PARTITION_GREEDY;
    check_refused(group, 1, 2, &c, "zro_plan_config: lists of buckets are set, but partition is neither buckets nor flat");
}

static void buckets_are_refused(void **unused)
{
    static const size_t sizes[] = { 1, 2, 3 }, in_order[] = { 0, 1, 2, 0 }, twice[] = { 0, 1, 0 }, far[] = { 0, 3, 2 };
    static const size_t one_two[] = { 1, 2 }, two_one[] = { 2, 1 }, one_one[] = { 1, 1 }, two_two[] = { 2, 2 };
    static const size_t none[] = { 3, 0 };
    static const size_t many[] = { 2, SIZE_MAX };
    model *m = of_sizes(sizes, 3);
    zro_param_group *g = m->groups;

    (void)unused;
    m->params[1].name = "w";
    check_lists_refused(g, NULL, one_two, 2,
                        "zro_plan_config: set all of bucket_params, bucket_lengths and n_buckets (2), or none");
    check_lists_refused(g, in_order, NULL, 2,
                        "zro_plan_config: set all of bucket_params, bucket_lengths and n_buckets (2), or none");
    check_lists_refused(g, in_order, one_two, 0,
                        "zro_plan_config: set all of bucket_params, bucket_lengths and n_buckets (0), or none");
    check_lists_refused(g, twice, one_two, 2, "bucket 1: parameter 0 is in bucket 0 already");
    check_lists_refused(g, far, one_two, 2, "bucket 1: there is no parameter 3; the groups have 3");
    check_lists_refused(g, in_order, one_one, 2, "parameter 2 is in no bucket");
    check_lists_refused(g, in_order, none, 2, "bucket 1 has no parameters");
    check_lists_refused(g, in_order, many, 2,
                        "bucket 1 has 18446744073709551615 parameters, and with them the buckets have more than the groups, 3");
    check_lists_refused(g, in_order, two_two, 2,
                        "bucket 1 has 2 parameters, and with them the buckets have more than the groups, 3");
    m->params[1].dtype = ZRO_BF16;
    check_lists_refused(g, in_order, two_one, 2,
                        "bucket 0: parameter 0 is f32 on device 0, and parameter w bf16 on device 0; a bucket has one type and "
                        "one device");
    m->params[1].dtype = ZRO_F32;
    m->params[1].device = 2;
    check_lists_refused(g, in_order, two_one, 2,
                        "bucket 0: parameter 0 is f32 on device 0, and parameter w f32 on device 2; a bucket has one type and "
                        "one device");
}

/* The second group is refused by create, and by a plan of the first one, which stays as it is. */
static void check_group_refused(const model *m, zro_partition partition, const char *text)
{
    static answers before, after;
    zro_plan_config c = ZRO_PLAN_CONFIG_INIT;
    zro_plan *plan = make(m, 1, 2, partition, ZRO_OFF);

    c.partition = partition;
    check_refused(m->groups, 2, 2, &c, text);
    ask(plan, &before);
    assert_int_equal(zro_plan_add_group(plan, &m->groups[1]), ZRO_ERR_INVALID);
    assert_string_equal(zro_last_error(), text);
    ask(plan, &after);
    check_equal(&before, &after);
    zro_plan_destroy(plan);
}

static void groups_are_refused(void **unused)
{
    const char *garbage = "parameter group 1 was not initialised: fields that must be zero are not; begin with zro_param_group "
                          "group = ZRO_PARAM_GROUP_INIT";
    void *const nowhere = (void *)(uintptr_t)0x1002; /* as no array of pointers or numbers can lie */
    static const size_t sizes[] = { 1, 2, 3 };
    static const int32_t owners[] = { 1, 0, 2 }, negative[] = { 0, -1 };
    model *m = of_sizes(sizes, 3);
    zro_param_group *g = m->groups;
    zro_param *p = &m->params[1];
    const zro_param_group odd[] = {
        { .params = nowhere, .n = 2 },
        { .params = p, .n = 2, .index = nowhere },
        { .params = p, .n = 2, .config = nowhere },
        { .params = p, .n = 2, .values = nowhere },
        { .params = p, .n = 2, .owners = nowhere },
        { .params = p, .n = SIZE_MAX / 64 },
    };

    (void)unused;
    g[0].n = 1;
    memset(&g[1], 0xa5, sizeof g[1]); /* as memory may be that was not initialised */
    g[1].params = p;
    g[1].n = 2;
    check_group_refused(m, ZRO_PARTITION_FLAT, garbage);
    memset(g[1].reserved, 0, sizeof g[1].reserved);
    check_group_refused(m, ZRO_PARTITION_FLAT, garbage);
    for (size_t i = 0; i < 3; i++) {
        g[1] = (zro_param_group){ .params = p, .n = 2 };
        g[1].reserved[i] = 1;
        check_group_refused(m, ZRO_PARTITION_FLAT, garbage);
    }
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        g[1] = odd[i];
        check_group_refused(m, ZRO_PARTITION_FLAT, garbage);
    }
    g[1] = (zro_param_group){ .params = NULL, .n = 2 };
    check_group_refused(m, ZRO_PARTITION_FLAT, "parameter group 1: params is NULL, but n = 2");
    g[0].n = 0;
    g[1] = (zro_param_group){ .params = p, .n = 0 };
    check_refused(g, 2, 2, NULL, "none of the 2 parameter groups has parameters; set params and n of a group");
    g[0].n = 1;
    g[1].n = 2;
    g[1].owners = owners;
    check_group_refused(m, ZRO_PARTITION_GREEDY, "parameter group 1 has owners, but the partition is not given");
    g[0].owners = owners;
    g[1].owners = owners + 1;
    check_group_refused(m, ZRO_PARTITION_GIVEN, "parameter 2: its owner is 2, must be in [0, 2)");
    g[1].owners = negative;
    check_group_refused(m, ZRO_PARTITION_GIVEN, "parameter 2: its owner is -1, must be in [0, 2)");
    g[1].owners = NULL;
    check_group_refused(m, ZRO_PARTITION_GIVEN, "parameter group 1 has no owners, but the partition is given");
    g[0].owners = NULL;
    p->dtype = (zro_dtype)99;
    p->name = "w";
    check_group_refused(m, ZRO_PARTITION_FLAT, "parameter w: dtype = 99 is no element type");
    p->dtype = ZRO_I8;
    p->n_dims = 9;
    check_group_refused(m, ZRO_PARTITION_FLAT, "parameter w: 9 dimensions, at most 8 are possible");
    p->n_dims = 2;
    p->shape[0] = p->shape[1] = SIZE_MAX / 2;
    check_group_refused(m, ZRO_PARTITION_FLAT, "parameter w: its shape has more elements than memory can hold");
    p->n_dims = 1;
    check_group_refused(m, ZRO_PARTITION_FLAT, "parameter w: shape[1] = 9223372036854775807, but n_dims = 1; set n_dims");
    p->shape[1] = 0;
    p->shape[0] = SIZE_MAX / 16;
    check_group_refused(m, ZRO_PARTITION_FLAT, "parameter w: with it there are more elements than memory can hold");
}

#define REFUSED(call, text)                                                                                                    \
    do {                                                                                                                       \
        assert_int_equal(call, ZRO_ERR_INVALID);                                                                               \
        assert_string_equal(zro_last_error(), text);                                                                           \
    } while (0)

static void questions_are_refused(void **unused)
{
    static const size_t sizes[] = { 3, 0 }, others[] = { 3, 1 };
    zro_plan *a = make(of_sizes(sizes, 2), 1, 2, ZRO_PARTITION_FLAT, ZRO_OFF);
    zro_plan *b = make(of_sizes(others, 2), 1, 2, ZRO_PARTITION_FLAT, ZRO_OFF);
    zro_plan *c = make(of_sizes(others, 1), 1, 2, ZRO_PARTITION_FLAT, ZRO_OFF), *d;
    const zro_range *ranges;
    model *m;
    size_t n;
    int owner;

    (void)unused;
    REFUSED(zro_plan_owner(a, 2, 0, &owner), "there is no parameter 2; the plan has 2");
    REFUSED(zro_plan_owner(a, 0, 3, &owner), "parameter 0 has no element 3; it has 3");
    REFUSED(zro_plan_owner(a, 1, 1, &owner), "parameter 1 has no element 1; it has 0");
    REFUSED(zro_plan_owner(a, 0, 0, NULL), "plan_owner: owner is NULL");
    REFUSED(zro_plan_owner(NULL, 0, 0, &owner), "the plan is NULL");
    REFUSED(zro_plan_ranges(a, 2, &ranges, &n), "plan_ranges: rank = 2, must be in [0, 2) or ZRO_ALL");
    REFUSED(zro_plan_ranges(a, -2, &ranges, &n), "plan_ranges: rank = -2, must be in [0, 2) or ZRO_ALL");
    REFUSED(zro_plan_ranges(a, 0, NULL, &n), "plan_ranges: ranges is NULL");
    REFUSED(zro_plan_ranges(a, 0, &ranges, NULL), "plan_ranges: n is NULL");
    REFUSED(zro_plan_ranges(NULL, 0, &ranges, &n), "the plan is NULL");
    REFUSED(zro_plan_find(a, NULL, &n), "plan_find: name is NULL");
    REFUSED(zro_plan_find(a, "0", NULL), "plan_find: param is NULL");
    REFUSED(zro_plan_find(NULL, "0", &n), "the plan is NULL");
    REFUSED(zro_plan_find(a, "w", &n), "there is no parameter named \"w\"");
    REFUSED(zro_plan_intersect(a, b, NULL, 0, &n),
            "plan_intersect: parameter 1 is 1 with 0 elements of f32 in one plan, and 1 with 1 of f32 in the other");
    m = of_sizes(others, 2);
    m->params[1].name = "w";
    d = make(m, 1, 2, ZRO_PARTITION_FLAT, ZRO_OFF);
    REFUSED(zro_plan_intersect(b, d, NULL, 0, &n),
            "plan_intersect: parameter 1 is 1 with 1 elements of f32 in one plan, and w with 1 of f32 in the other");
    zro_plan_destroy(d);
    m->params[1].name = NULL;
    m->params[1].dtype = ZRO_BF16;
    d = make(m, 1, 2, ZRO_PARTITION_FLAT, ZRO_OFF);
    REFUSED(zro_plan_intersect(b, d, NULL, 0, &n),
            "plan_intersect: parameter 1 is 1 with 1 elements of f32 in one plan, and 1 with 1 of bf16 in the other");
    zro_plan_destroy(d);
    REFUSED(zro_plan_intersect(a, c, NULL, 0, &n), "plan_intersect: one plan has 2 parameters, the other 1");
    REFUSED(zro_plan_intersect(a, a, NULL, 0, NULL), "plan_intersect: n is NULL");
    REFUSED(zro_plan_intersect(a, NULL, NULL, 0, &n), "the plan is NULL");
    REFUSED(zro_plan_intersect(NULL, a, NULL, 0, &n), "the plan is NULL");
    REFUSED(zro_plan_add_group(a, NULL), "plan_add_group: the parameter group is NULL");
    REFUSED(zro_plan_add_group(NULL, NULL), "the plan is NULL");
    assert_true(zro_plan_elements(a, 2) == 0 && zro_plan_elements(a, -2) == 0 && zro_plan_elements(NULL, 0) == 0);
    assert_true(zro_plan_ranks(NULL) == 0 && zro_plan_params(NULL) == 0 && zro_plan_buckets(NULL) == 0);
    zro_plan_destroy(NULL);
    zro_plan_destroy(a);
    zro_plan_destroy(b);
    zro_plan_destroy(c);
}

/* What stands behind the numbers of the ranks in memory is none of them. */
static void there_is_no_rank_behind_the_last(void **unused)
{
    static const size_t sizes[] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    static const char *const names[] = { "a", "b", "c", "d", "e", "f", "g", "h" };

    (void)unused;
    for (size_t n = 1; n <= 8; n++) {
        model *m = of_sizes(sizes, n);
        zro_plan *plan;

        for (size_t i = 0; i < n; i++)
            m->params[i].name = names[i];
        plan = make(m, 1, 8, ZRO_PARTITION_FLAT, ZRO_OFF);
        assert_int_equal(zro_plan_elements(plan, 8), 0);
        zro_plan_destroy(plan);
    }
}

static void whole_parameters(void **unused)
{
    static const size_t sizes[] = { 5000, 3000 };
    model *m = of_sizes(sizes, 2);
    zro_plan_config c = ZRO_PLAN_CONFIG_INIT;
    zro_plan *plan;

    (void)unused;
    assert_int_equal(zro__plan_make(NULL, m->groups, 1, 2, &c, ZRO_ON, &plan), ZRO_OK);
    assert_string_equal(zro__partition_name(plan), "greedy");
    zro_plan_destroy(plan);
    assert_int_equal(zro__plan_make(NULL, m->groups, 1, 2, &c, ZRO_OFF, &plan), ZRO_OK);
    assert_string_equal(zro__partition_name(plan), "flat");
    zro_plan_destroy(plan);
    c.partition = ZRO_PARTITION_FLAT;
    assert_int_equal(zro__plan_make(NULL, m->groups, 1, 2, &c, ZRO_ON, &plan), ZRO_ERR_UNSUPPORTED);
    assert_string_equal(zro_last_error(),
                        "zro_plan_config: partition = flat cuts parameters, and the rule needs whole ones; take greedy");
    assert_null(plan);
}

/* The nth allocation fails, for every n: MEMORY, nothing has changed, and nothing is left. */
static void memory_runs_out(void **unused)
{
    static const size_t sizes[] = { 5000, 3000, 7 };
    static answers before, after;
    zro__account account = { 0 };
    model *m = of_sizes(sizes, 3);
    zro_param_group group = { .params = &m->params[2], .n = 1 };
    zro_plan *plan = NULL;

    (void)unused;
    m->groups[0].n = 2;
    for (long nth = 1; plan == NULL; nth++) {
        zro__point_plan fail = { .name = "memory.alloc", .action = ZRO__POINT_FAIL, .nth = nth };
        zro_status st;

        zro__point_plan_set(&fail);
        st = zro__plan_make(&account, m->groups, 1, 3, NULL, ZRO_OFF, &plan);
        zro__point_plan_set(NULL);
        assert_int_equal(st, atomic_load(&fail.hits) >= nth ? ZRO_ERR_MEMORY : ZRO_OK);
        assert_true((plan == NULL) == (st != ZRO_OK));
        assert_true(plan != NULL || atomic_load(&account.in_use) == 0);
        assert_true(nth > 4 || plan == NULL);
    }
    ask(plan, &before);
    for (long nth = 1; zro_plan_params(plan) == 2; nth++) {
        zro__point_plan fail = { .name = "memory.alloc", .action = ZRO__POINT_FAIL, .nth = nth };
        size_t held = atomic_load(&account.in_use);
        zro_status st;

        zro__point_plan_set(&fail);
        st = zro_plan_add_group(plan, &group);
        zro__point_plan_set(NULL);
        assert_int_equal(st, atomic_load(&fail.hits) >= nth ? ZRO_ERR_MEMORY : ZRO_OK);
        ask(plan, &after);
        if (st != ZRO_OK)
            check_equal(&before, &after);
        assert_true((st != ZRO_OK) == (atomic_load(&account.in_use) == held));
    }
    zro_plan_destroy(plan);
    assert_true(atomic_load(&account.in_use) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(partitions_cover_everything),
        cmocka_unit_test(flat_shards_are_even),
        cmocka_unit_test(flat_borders_are_fixed),
        cmocka_unit_test(a_large_model),
        cmocka_unit_test(one_rank_has_everything),
        cmocka_unit_test(greedy_is_pytorchs),
        cmocka_unit_test(S12_sizes_once_per_rank),
        cmocka_unit_test(S13_the_last_one_is_added),
        cmocka_unit_test(S13_a_frozen_one_counts),
        cmocka_unit_test(listed_buckets),
        cmocka_unit_test(S49_three_equal_on_two),
        cmocka_unit_test(S49_a_small_rest_on_three),
        cmocka_unit_test(S49_two_on_one),
        cmocka_unit_test(adding_and_undoing),
        cmocka_unit_test(added_buckets_take_turns),
        cmocka_unit_test(names_are_found),
        cmocka_unit_test(overlaps_cover_everything),
        cmocka_unit_test(configs_are_refused),
        cmocka_unit_test(buckets_are_refused),
        cmocka_unit_test(groups_are_refused),
        cmocka_unit_test(questions_are_refused),
        cmocka_unit_test(there_is_no_rank_behind_the_last),
        cmocka_unit_test(whole_parameters),
        cmocka_unit_test(memory_runs_out),
    };

    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
