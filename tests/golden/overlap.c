/* overlap.json: PyTorch's partition by buckets, whole ones or cut; a pure function.
 *
 * The parameters are numbered from the last place of the last bucket on, as in a backward pass, so that numbers and places are
 * not the same. */
#include <stdlib.h>
#include <string.h>

#include "golden.h"

enum { BUCKET, FIRST, LENGTH, NUMBERS };

typedef struct overlap {
    int world_size;
    zro_switch shard_buckets;
    golden_count_lists buckets; /* sizes of their parameters */
    size_t *begin;              /* the place of each bucket's first parameter */
    size_t n_params;
} overlap;

static void read_overlap(golden_case *c, overlap *o)
{
    o->world_size = golden_world_size(c, c->json);
    o->shard_buckets = golden_flag(c, c->json, "shard_buckets", ZRO_OFF);
    o->buckets = golden_read_count_lists(c, c->json, "buckets");
    o->begin = golden_alloc(c, o->buckets.n * sizeof *o->begin);
    for (size_t b = 0; b < o->buckets.n; b++) {
        o->begin[b] = o->n_params;
        o->n_params += o->buckets.at[b].n;
    }
}

static size_t number_of(const overlap *o, size_t place)
{
    return o->n_params - 1 - place;
}

static zro_plan *make_plan(golden_case *c, const overlap *o)
{
    zro_plan_config config = ZRO_PLAN_CONFIG_INIT;
    zro_param_group group = { .params = golden_alloc(c, o->n_params * sizeof *group.params), .n = o->n_params };
    size_t *numbers = golden_alloc(c, o->n_params * sizeof *numbers);
    size_t *lengths = golden_alloc(c, o->buckets.n * sizeof *lengths);
    zro_plan *plan = NULL;

    for (size_t b = 0; b < o->buckets.n; b++) {
        lengths[b] = o->buckets.at[b].n;
        for (size_t i = 0; i < lengths[b]; i++) {
            zro_param *param = &group.params[number_of(o, o->begin[b] + i)];

            zro_param_init(param);
            param->shape[0] = o->buckets.at[b].at[i];
            numbers[o->begin[b] + i] = number_of(o, o->begin[b] + i);
        }
    }
    config.partition = ZRO_PARTITION_BUCKETS;
    config.shard_buckets = o->shard_buckets;
    config.bucket_params = numbers;
    config.bucket_lengths = lengths;
    config.n_buckets = o->buckets.n;
    golden_call(c, "zro_plan_create", zro_plan_create(&group, 1, o->world_size, &config, &plan));
    return plan;
}

/* A rank's ranges, those that are consecutive in a bucket as one piece; returns how many there are. */
static size_t collect(golden_case *c, const overlap *o, const zro_range *ranges, size_t n, size_t (*pieces)[NUMBERS])
{
    size_t n_pieces = 0;

    for (size_t k = 0; k < n; k++) {
        const zro_range *range = &ranges[k];
        size_t place, *piece = n_pieces > 0 ? pieces[n_pieces - 1] : NULL;

        if (range->bucket >= o->buckets.n || range->param >= o->n_params || range->first != 0) {
            golden_fail(c, "a range is parameter %zu from %zu on in bucket %zu", range->param, range->first, range->bucket);
            return 0;
        }
        place = number_of(o, range->param) - o->begin[range->bucket];
        if (place >= o->buckets.at[range->bucket].n || range->count != o->buckets.at[range->bucket].at[place])
            golden_fail(c, "a range has %zu elements of parameter %zu in bucket %zu, which are not all of it", range->count,
                        range->param, range->bucket);
        if (piece != NULL && piece[BUCKET] == range->bucket && piece[FIRST] + piece[LENGTH] == place)
            piece[LENGTH]++;
        else
            memcpy(pieces[n_pieces++], (size_t[]){ range->bucket, place, 1 }, sizeof *pieces);
    }
    return n_pieces;
}

static int compare_pieces(const void *a, const void *b)
{
    const size_t *x = a, *y = b;

    for (int i = 0; i < NUMBERS; i++)
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
    return 0;
}

static size_t read_pieces(golden_case *c, json_t *list, size_t (**pieces)[NUMBERS])
{
    size_t n = json_array_size(list);

    if (!json_is_array(list))
        golden_fail(c, "\"assignments\" must be a list of lists");
    *pieces = golden_alloc(c, n * sizeof **pieces);
    for (size_t i = 0; i < n; i++) {
        golden_counts numbers = golden_read_counts(c, "assignments", json_array_get(list, i));

        if (golden_ok(c) && numbers.n != NUMBERS)
            golden_fail(c, "\"assignments\" has %zu numbers, must have %d", numbers.n, NUMBERS);
        if (!golden_ok(c))
            return 0;
        memcpy((*pieces)[i], numbers.at, sizeof **pieces);
    }
    qsort(*pieces, n, sizeof **pieces, compare_pieces);
    return n;
}

static void check_rank(golden_case *c, const overlap *o, const zro_plan *plan, int rank, json_t *list)
{
    size_t(*pieces)[NUMBERS], (*got)[NUMBERS] = golden_alloc(c, o->n_params * sizeof *got);
    size_t n = read_pieces(c, list, &pieces), n_got, n_ranges = 0;
    const zro_range *ranges = NULL;

    if (!golden_call(c, "zro_plan_ranges", zro_plan_ranges(plan, rank, &ranges, &n_ranges)) || !golden_ok(c))
        return;
    n_got = collect(c, o, ranges, n_ranges, got);
    for (size_t i = 0; i < n_got && i < n; i++)
        if (compare_pieces(got[i], pieces[i]) != 0)
            golden_fail(c, "its piece %zu is [%zu, %zu, %zu], must be [%zu, %zu, %zu]", i, got[i][BUCKET], got[i][FIRST],
                        got[i][LENGTH], pieces[i][BUCKET], pieces[i][FIRST], pieces[i][LENGTH]);
    if (n_got != n)
        golden_fail(c, "it has %zu pieces, must have %zu", n_got, n);
}

void golden_overlap(golden_case *c)
{
    json_t *assignments;
    overlap o = { 0 };
    zro_plan *plan;

    if (!golden_keys(c, "the case", c->json, "world_size buckets shard_buckets assignments", ""))
        return;
    read_overlap(c, &o);
    assignments = golden_list(c, c->json, "assignments");
    if (golden_ok(c) && json_array_size(assignments) != (size_t)o.world_size)
        golden_fail(c, "\"assignments\" has %zu ranks, must have %d", json_array_size(assignments), o.world_size);
    if (!golden_ok(c))
        return;
    golden_about(c, "%d ranks, %zu buckets%s", o.world_size, o.buckets.n, o.shard_buckets ? ", sharded" : "");
    plan = make_plan(c, &o);
    for (int r = 0; plan != NULL && r < o.world_size; r++) {
        c->rank = (size_t)r;
        check_rank(c, &o, plan, r, json_array_get(assignments, (size_t)r));
    }
    zro_plan_destroy(plan);
}
