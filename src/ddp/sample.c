/* Which samples are a rank's: PyTorch's DistributedSampler as a pure function.
 *
 * The samples stand in an order: as they are numbered, or shuffled.  Position i of that order, taken modulo n where it is longer than
 * there are samples, belongs to rank i mod size.
 *
 * A shuffled order is a permutation that can be asked for any position by itself, so nobody keeps a list: a Feistel network of six
 * rounds over the smallest even number of bits, six or more, that n fits into.  Such a network is a permutation whatever its
 * rounds compute; here they are the random numbers of random.h, whose key is made of seed, epoch and round.  Where it leads out of the samples it is
 * applied again: that walks along a cycle of the permutation, which comes back to the samples.  The network covers fewer than four
 * times as many numbers as there are samples (but for a handful of samples), so a walk takes four applications on average at most. */
#include "base/memory.h"
#include "base/settings.h"
#include "base/status.h"
#include "optim/random.h"

ZRO__DEFINE_INIT(zro_sample_config, ZRO_SAMPLE_CONFIG_INIT)

enum { ROUNDS = 6, LEAST_HALF = 3 };

typedef struct order {
    uint64_t n;
    uint64_t keys[ROUNDS];
    unsigned half; /* half of the bits; 0: the order is that of the numbers */
} order;

static order make_order(const zro_sample_config *c, uint64_t n)
{
    order o = { .n = n };

    if (c->shuffle == ZRO_OFF)
        return o;
    o.half = LEAST_HALF;
    while (o.half < 32 && (n - 1) >> 2 * o.half != 0)
        o.half++;
    for (unsigned r = 0; r < ROUNDS; r++)
        o.keys[r] = zro__random_key(c->seed, c->epoch, r);
    return o;
}

static uint64_t network(const order *o, uint64_t x)
{
    const uint64_t mask = (UINT64_C(1) << o->half) - 1;
    uint64_t left = x >> o->half, right = x & mask;

    for (unsigned r = 0; r < ROUNDS; r++) {
        const uint64_t next = left ^ (zro__random_at(o->keys[r], right) & mask);

        left = right;
        right = next;
    }
    return left << o->half | right;
}

/* The sample at a position below n. */
static uint64_t sample_at(const order *o, uint64_t position)
{
    if (o->half == 0)
        return position;
    do
        position = network(o, position);
    while (position >= o->n);
    return position;
}

size_t zro_sample_count(size_t n, int size, zro_switch drop_last)
{
    if (size < 1)
        return 0;
    return n / (size_t)size + (drop_last == ZRO_OFF && n % (size_t)size != 0);
}

static zro_status check(const zro_sample_config *c, size_t n, int rank, int size, size_t first, size_t count, const size_t *out)
{
    const size_t all = zro_sample_count(n, size, c->drop_last);
    size_t end, positions;

    if (size < 1 || size > ZRO__MAX_RANKS)
        return zro__fail(ZRO_ERR_INVALID, "sample_indices: size = %d, must be 1 to %d", size, ZRO__MAX_RANKS);
    if (rank < 0 || rank >= size)
        return zro__fail(ZRO_ERR_INVALID, "sample_indices: rank = %d, must be in [0, %d)", rank, size);
    if ((c->drop_last != ZRO_ON && c->drop_last != ZRO_OFF) || (c->shuffle != ZRO_ON && c->shuffle != ZRO_OFF))
        return zro__fail(ZRO_ERR_INVALID, "sample_indices: drop_last and shuffle must be ZRO_ON or ZRO_OFF");
    if (!zro__size_mul(all, (size_t)size, &positions))
        return zro__fail(ZRO_ERR_INVALID, "sample_indices: %zu samples for each of %d ranks are more than a size_t", all, size);
    if (!zro__size_add(first, count, &end) || end > all)
        return zro__fail(ZRO_ERR_INVALID, "sample_indices: %zu samples from %zu on, but each rank has %zu of them", count,
                         first, all);
    if (out == NULL && count > 0)
        return zro__fail(ZRO_ERR_INVALID, "sample_indices: out is NULL for %zu samples", count);
    return ZRO_OK;
}

zro_status zro_sample_indices(size_t n, int rank, int size, const zro_sample_config *config, size_t first, size_t count,
                              size_t *out)
{
    zro_sample_config c = ZRO_SAMPLE_CONFIG_INIT;
    zro_status st = zro__config_take("zro_sample_config", config, sizeof c, &c, sizeof c);
    order o;

    if (st == ZRO_OK)
        st = check(&c, n, rank, size, first, count, out);
    if (st != ZRO_OK || count == 0)
        return st;
    o = make_order(&c, n);
    for (size_t k = 0; k < count; k++)
        out[k] = (size_t)sample_at(&o, ((first + k) * (size_t)size + (size_t)rank) % n);
    return ZRO_OK;
}
