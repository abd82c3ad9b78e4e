/* Buckets: gradients that travel together, and the lists of what is done with them.
 *
 * What no optimizer consumes is averaged for all ranks.  What an attached one consumes is reduced for the ranges' owners.  What an
 * updater updates before its step (overlap) is its share of the bucket: it has lists of its own, because an updater applies its rule
 * to its own parameters alone.
 *
 * Lists are made anew whenever buckets, updaters or the hook have changed; owners do not change by that. */
#ifndef ZRO_STEP_BUCKET_H
#define ZRO_STEP_BUCKET_H

#include <stdatomic.h>

#include "step/batch.h"
#include "step/updater.h"

/* What an updater updates of one bucket. */
typedef struct zro__share {
    struct zro__share *next;
    zro__updater *updater;
    zro__batches *fused;   /* gradients to data, in one pass; where stages do not merge it says only what the share has */
    zro__batches *publish; /* data to data, where they do not */
} zro__share;

typedef struct zro__bucket {
    struct zro__cycle *cycle;
    size_t index;
    const size_t *params; /* indices of the cycle's parameters */
    size_t n;
    atomic_size_t missing;   /* how many are not ready yet */
    zro__batches *to_all;    /* what no optimizer consumes, averaged for all ranks; or NULL */
    zro__batches *to_owners; /* what attached optimizers consume, averaged for owners; or NULL */
    zro__share *shares;      /* what optimizers update before their step */
    zro_work *work;
} zro__bucket;

/* Makes the lists of all buckets anew.  Collective, inside the lane. */
zro_status zro__lists_make(struct zro__cycle *cycle);
void zro__lists_free(struct zro__cycle *cycle);

/* Whether ranks meet for something in the bucket itself; and whether there is anything to do when it is full. */
int zro__bucket_meets(const zro__bucket *bucket);
int zro__bucket_has_work(const zro__bucket *bucket);

int zro__bucket_is_last(const zro__bucket *bucket);

/* Whether an updater reduces and updates its share of the bucket in one pass: both happen at the same event, and nothing comes
 * between them. */
int zro__bucket_merges(const zro__bucket *bucket, const zro__updater *updater);

#endif
