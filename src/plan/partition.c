/* Partitions: see partition.h. */
#include "plan/partition.h"

#include <stdint.h>
#include <string.h>

#include "base/kernels.h"
#include "base/search.h"

zro_status zro__division_init(zro__division *d, zro__account *account, size_t n)
{
    const size_t ranks = (size_t)d->ranks;
    const zro__array arrays[] = {
        { &d->params, n, sizeof *d->params },
        { &d->members, n, sizeof *d->members },
        { &d->firsts, n + 1, sizeof *d->firsts },
        { &d->loads, ranks, sizeof *d->loads },
        { &d->sized, n, sizeof *d->sized },
        { &d->starts, n + 1, sizeof *d->starts },
        { &d->low, ranks + 1, sizeof *d->low },
        { &d->high, ranks + 1, sizeof *d->high },
        { &d->borders, ranks + 1, sizeof *d->borders },
        { &d->heap, ranks, sizeof *d->heap },
        { &d->owners, n, sizeof *d->owners },
    };

    d->n = n;
    return zro__arena_arrays(&d->arena, account, "dividing parameters", arrays, sizeof arrays / sizeof *arrays);
}

void zro__division_free(zro__division *d)
{
    zro__free(d->ranges);
    zro__arena_free(&d->arena);
    memset(d, 0, sizeof *d);
}

/* Writes a range of the i-th parameter. */
static void put(zro__division *d, size_t i, size_t first, size_t count, int32_t owner)
{
    d->ranges[d->n_ranges++] = (zro_range){ .param = d->first_param + i,
                                            .first = first,
                                            .count = count,
                                            .group = d->params[i].group,
                                            .bucket = d->params[i].bucket,
                                            .owner = owner };
    d->loads[owner] += count;
}

/* ---- buckets ---- */

void zro__division_form(zro__division *d)
{
    size_t *leaders = d->starts, *at = d->firsts;

    d->n_buckets = 0;
    for (size_t i = 0; i < d->n; i++) {
        zro__plan_param *p = &d->params[i];
        size_t b = 0;

        while (b < d->n_buckets && (d->params[leaders[b]].dtype != p->dtype || d->params[leaders[b]].device != p->device))
            b++;
        if (b == d->n_buckets)
            leaders[d->n_buckets++] = i;
        p->bucket = d->first_bucket + b;
    }
    /* Sorted by counting: at[b + 1] is where the next member of b goes, and in the end where b + 1 begins. */
    memset(at, 0, (d->n_buckets + 1) * sizeof *at);
    for (size_t i = 0; i < d->n; i++)
        if (d->params[i].bucket - d->first_bucket + 2 <= d->n_buckets)
            at[d->params[i].bucket - d->first_bucket + 2]++;
    for (size_t b = 2; b <= d->n_buckets; b++)
        at[b] += at[b - 1];
    for (size_t i = 0; i < d->n; i++)
        d->members[at[d->params[i].bucket - d->first_bucket + 1]++] = i;
}

size_t zro__division_most(const zro__division *d, zro_partition partition)
{
    const size_t cuts = (size_t)d->ranks - 1;
    size_t most = d->n;

    if (partition != ZRO_PARTITION_FLAT)
        return most;
    for (size_t b = 0; b < d->n_buckets; b++) {
        size_t blocks = 0;

        for (size_t m = d->firsts[b]; m < d->firsts[b + 1]; m++)
            blocks += d->params[d->members[m]].count / ZRO__BLOCK;
        most += blocks < cuts ? blocks : cuts;
    }
    return most;
}

/* ---- flat ---- */

/* The last place at or before x, and the first at or after it, where the stream may be cut: a multiple of the block from a
 * parameter's start, or its end.  Two of them are at most a block apart. */
static size_t border_down(const size_t *starts, size_t n, size_t x)
{
    return x >= starts[n] ? starts[n] : x - (x - starts[zro__find_last(starts, sizeof *starts, n, x)]) % ZRO__BLOCK;
}

static size_t border_up(const size_t *starts, size_t n, size_t x)
{
    size_t p, past, up;

    if (x >= starts[n])
        return starts[n];
    p = zro__find_last(starts, sizeof *starts, n, x); /* the parameter that has element x */
    past = (x - starts[p]) % ZRO__BLOCK;
    up = past == 0 ? x : x - past + ZRO__BLOCK;
    return up < starts[p + 1] ? up : starts[p + 1];
}

/* Whether shards of at least s each leave enough: low[i] is the first border that i of them can end at. */
static int fits(zro__division *d, size_t n, size_t s)
{
    const size_t *starts = d->starts;

    d->low[0] = 0;
    for (int i = 1; i <= d->ranks; i++) {
        if (d->low[i - 1] + s > starts[n])
            return 0;
        d->low[i] = border_up(starts, n, d->low[i - 1] + s);
    }
    return 1;
}

/* Cuts a stream of n parameters, which begin at `starts`: borders[i] is where shard i begins.
 *
 * Every shard will have s to s + BLOCK elements, s being the largest that fits.  Let low[i] and high[i] be the first and the
 * last border where i such shards can end.  Because borders are at most a block apart, every border between those two can be
 * reached (one step of s to s + BLOCK back there is always one between low[i - 1] and high[i - 1]), and low[i] for s + 1 is at
 * most high[i] for s, by induction: the first border at or after x + s + 1 is at most x + s + BLOCK.  s + 1 not fitting, high
 * is the end of the stream for s: it can be reached, and the way back finds the borders. */
static void cut_stream(zro__division *d, size_t n)
{
    const size_t *starts = d->starts, total = starts[n], ranks = (size_t)d->ranks, share = total / ranks;
    size_t s = share < ZRO__BLOCK ? 0 : share - ZRO__BLOCK + 1, above = share + 1; /* s fits, above does not */

    while (above - s > 1) {
        size_t mid = s + (above - s) / 2;

        if (fits(d, n, mid))
            s = mid;
        else
            above = mid;
    }
    fits(d, n, s);
    d->high[0] = 0;
    for (size_t i = 1; i <= ranks; i++)
        d->high[i] = border_down(starts, n, d->high[i - 1] + s + ZRO__BLOCK);
    d->borders[ranks] = total;
    for (size_t i = ranks - 1; i < ranks; i--) {
        size_t next = d->borders[i + 1], even = share * i + total % ranks * i / ranks, down, up;
        size_t from = next > s + ZRO__BLOCK ? next - s - ZRO__BLOCK : 0, to = next - s;

        from = from > d->low[i] ? from : d->low[i];
        to = to < d->high[i] ? to : d->high[i];
        even = even < from ? from : even > to ? to : even;
        down = border_down(starts, n, even);
        up = border_up(starts, n, even);
        d->borders[i] = down >= from && (up > to || even - down <= up - even) ? down : up;
    }
}

/* A parameter without elements goes to the rank that the one before it ends in. */
void zro__divide_flat(zro__division *d)
{
    for (size_t b = 0; b < d->n_buckets; b++) {
        const size_t *members = d->members + d->firsts[b], n = d->firsts[b + 1] - d->firsts[b];
        int32_t rank = 0;

        d->starts[0] = 0;
        for (size_t m = 0; m < n; m++)
            d->starts[m + 1] = d->starts[m] + d->params[members[m]].count;
        cut_stream(d, n);
        for (size_t m = 0; m < n; m++) {
            size_t at = d->starts[m];

            if (at == d->starts[m + 1])
                put(d, members[m], 0, 0, rank);
            while (at < d->starts[m + 1]) {
                size_t end = d->starts[m + 1];

                while (d->borders[rank + 1] <= at)
                    rank++;
                end = end < d->borders[rank + 1] ? end : d->borders[rank + 1];
                put(d, members[m], at - d->starts[m], end - at, rank);
                at = end;
            }
        }
    }
}

/* ---- whole parameters ---- */

static int lighter(const size_t *loads, int32_t a, int32_t b)
{
    return loads[a] != loads[b] ? loads[a] < loads[b] : a < b;
}

/* A heap of n ranks, the lightest first.  sift_down repairs it after its i-th rank has become heavier, sift_up after that has
 * become lighter. */
static void sift_down(int32_t *heap, int n, const size_t *loads, int i)
{
    for (;;) {
        int child = 2 * i + 1;
        int32_t rank = heap[i];

        if (child + 1 < n && lighter(loads, heap[child + 1], heap[child]))
            child++;
        if (child >= n || lighter(loads, rank, heap[child]))
            return;
        heap[i] = heap[child];
        heap[child] = rank;
        i = child;
    }
}

static void sift_up(int32_t *heap, const size_t *loads, int i)
{
    while (i > 0 && lighter(loads, heap[i], heap[(i - 1) / 2])) {
        int32_t rank = heap[i];

        heap[i] = heap[(i - 1) / 2];
        heap[(i - 1) / 2] = rank;
        i = (i - 1) / 2;
    }
}

static void make_heap(zro__division *d, const size_t *loads)
{
    for (int32_t r = 0; r < d->ranks; r++) {
        d->heap[r] = r;
        sift_up(d->heap, loads, r);
    }
}

static int by_size(const void *a, const void *b)
{
    const zro__sized *p = a, *q = b;

    return p->size != q->size ? (p->size > q->size) - (p->size < q->size) : (p->index > q->index) - (p->index < q->index);
}

void zro__divide_greedy(zro__division *d, size_t first, size_t last)
{
    for (size_t i = first; i < last; i++)
        d->sized[i] = (zro__sized){ SIZE_MAX - d->params[i].count, i }; /* the largest come first */
    zro__sort(d->sized + first, last - first, sizeof *d->sized, by_size);
    make_heap(d, d->loads);
    for (size_t i = first; i < last; i++) {
        put(d, d->sized[i].index, 0, d->params[d->sized[i].index].count, d->heap[0]);
        sift_down(d->heap, d->ranks, d->loads, 0);
    }
}

void zro__divide_given(zro__division *d, size_t first, size_t last, const int32_t *owners)
{
    for (size_t i = first; i < last; i++)
        put(d, i, 0, d->params[i].count, owners[i - first]);
}

void zro__divide_buckets(zro__division *d)
{
    for (size_t m = 0; m < d->n; m++) {
        const zro__plan_param *p = &d->params[d->members[m]];

        put(d, d->members[m], 0, p->count, (int32_t)(p->bucket % (size_t)d->ranks));
    }
}

/* Gives a bucket's members [first, last) to the lightest of the ranks that are left in the heap, and takes it from there. */
static void give_piece(zro__division *d, size_t *loads, int *left, size_t first, size_t last, size_t size)
{
    int32_t rank = d->heap[0];

    d->heap[0] = d->heap[--*left];
    d->heap[*left] = rank;
    sift_down(d->heap, *left, loads, 0);
    loads[rank] += size;
    for (size_t m = first; m < last; m++)
        d->owners[m] = rank;
}

static void cut_bucket(zro__division *d, size_t *loads, size_t bucket, size_t threshold)
{
    size_t first = d->firsts[bucket], last = d->firsts[bucket + 1], size = 0;
    int left = d->ranks;

    for (size_t m = first; m < last; m++) {
        size_t count = d->params[d->members[m]].count;

        if (m > first && left > 1 && size + count >= threshold) {
            give_piece(d, loads, &left, first, m, size);
            first = m;
            size = 0;
        }
        size += count;
    }
    give_piece(d, loads, &left, first, last, size);
    for (; left < d->ranks; left++)
        sift_up(d->heap, loads, left);
}

void zro__divide_pieces(zro__division *d)
{
    const size_t ranks = (size_t)d->ranks;
    size_t *loads = d->borders, total = 0, threshold;

    for (size_t b = 0; b < d->n_buckets; b++) {
        d->sized[b] = (zro__sized){ 0, b };
        for (size_t m = d->firsts[b]; m < d->firsts[b + 1]; m++)
            d->sized[b].size += d->params[d->members[m]].count;
        total += d->sized[b].size;
    }
    threshold = total / ranks + (total % ranks != 0);
    zro__sort(d->sized, d->n_buckets, sizeof *d->sized, by_size);
    memset(loads, 0, ranks * sizeof *loads);
    make_heap(d, loads);
    for (size_t b = 0; b < d->n_buckets; b++)
        cut_bucket(d, loads, d->sized[b].index, threshold);
    for (size_t m = 0; m < d->n; m++)
        put(d, d->members[m], 0, d->params[d->members[m]].count, d->owners[m]);
}
