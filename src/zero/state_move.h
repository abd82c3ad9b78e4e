/* Bytes of a state on their way between ranks: from the shards to the state of one rank or of all, or from one rank's state to a
 * shard.
 *
 * All ranks make the same moves in the same order.  They travel in batches of a bounded number of parts, from where they lie to
 * where they belong, so that no rank takes memory for them. */
#ifndef ZRO_ZERO_STATE_MOVE_H
#define ZRO_ZERO_STATE_MOVE_H

#include "zero/optim.h"

enum { ZRO__MOVE_BATCH = 4096 }; /* how many parts travel in one transfer */

typedef struct zro__moves {
    zro_optim *opt;
    zro__call call;        /* what the transfers are part of */
    zro__part *parts;      /* memory for ZRO__MOVE_BATCH of them */
    size_t n_parts, bytes; /* parts in the batch that is being filled, and their bytes */
    uint64_t n_batches;    /* how many were sent; the tag of the next one */
    int to;                /* the rank that gets the bytes, or ZRO_ALL; it may change when nothing waits */
} zro__moves;

/* Moves bytes from rank `source`.  `from` is read there alone and `to` by those who get them; both may be NULL elsewhere. */
zro_status zro__move(zro__moves *moves, int source, const void *from, void *to, size_t bytes);

enum { ZRO__DATA_SLOT = -1 }; /* in the place of a slot: the parameter's data */

/* This rank's memory for a range that it owns: its part of the array of a slot. */
char *zro__part_of(const zro_optim *optim, const zro_range *range, int slot);

/* Sends what waits. */
zro_status zro__moves_send(zro__moves *moves);

#endif
