/* Rings in shared memory: the carrier between near ranks, for arrays that peers cannot reach (the caller's own) and for ranks
 * that pretend to be on other machines without a link. */
#ifndef ZRO_LINK_RINGS_H
#define ZRO_LINK_RINGS_H

#include "base/memory.h"
#include "board/slot.h"
#include "board/world.h"
#include "link/carrier.h"

/* Pure: the size of a message in a group of `size` ranks; the fixed part of all rings between `n` near ranks. */
size_t zro__rings_chunk(int size);
size_t zro__rings_bytes(int n);

typedef struct zro__rings {
    char *memory;          /* zro__rings_bytes of shared memory, zero before the first use */
    zro__control *control; /* of the group */
    zro__view *view;       /* that buffers are taken from */
    int index, n;          /* of this rank's slot among the near ones; how many they are */
    size_t chunk;          /* bytes of the longest message */
    uint64_t *sent;        /* by rank: messages to it so far */
    uint64_t *received;    /* by rank: messages from it so far */
    uint64_t *freed;       /* by rank: messages to it so far whose cells are free again */
    uint64_t *lent;        /* by rank: 1 + the oldest message to it that was lent, and whose answer was not taken; 0: none */
    size_t *asked;         /* by rank: 1 + the first cell of the buffer that was asked for; 0: none was */
    size_t filling;        /* the same of the buffer that peers have asked for, and none was sent from; 0: there is none */
    uint16_t *users;       /* by cell of this rank's outbox: messages and buffers that it belongs to */
    size_t taken;          /* cells from the outbox's start on that have memory */
    size_t first_free;     /* all cells before this one have users */
    zro__map *outboxes;    /* by index of slots: the outbox of that rank, if it is mapped here */
} zro__rings;

/* Lists the ZRO__RINGS_ARRAYS arrays above for the group's arena, which comes before init. */
enum { ZRO__RINGS_ARRAYS = 7 };
void zro__rings_list(zro__rings *rings, int size, zro__array *out);
void zro__rings_init(zro__rings *rings, void *memory, zro__control *control, zro__view *view, int rank, int n, size_t chunk,
                     zro__carrier *carrier);

/* Unmaps the buffers.  Takes rings that were never set up. */
void zro__rings_close(zro__rings *rings);

/* Gives the buffers of all near ranks back; for the last one that leaves the group. */
void zro__rings_punch(zro__view *view, void *memory, int n, size_t chunk);

#endif
