/* Far ranks: those with whom this rank shares no memory, reached through a program's link.
 *
 * A zro__far is what one rank has of the far ranks of one group: their mirrors, which the board reads, and a carrier for the
 * messages of transfers.  Its fixed part lies in the group's region (so that a create that ran out of memory can still vote), in
 * a piece that this rank alone uses; buffers for messages come from the heap, as many as are in flight at the same time. */
#ifndef ZRO_LINK_FAR_RANKS_H
#define ZRO_LINK_FAR_RANKS_H

#include "base/memory.h"
#include "board/slot.h"
#include "board/world.h"
#include "link/carrier.h"
#include "link/program_link.h"

typedef struct zro__far zro__far;

/* Pure: bytes of the fixed part for `n_far` far ranks in a group of `size`. */
size_t zro__far_bytes(int size, int n_far);

/* What far ranks are opened with. */
typedef struct zro__far_config {
    zro__program_link *program_link;
    zro__view *view;       /* that arrays of group memory are mapped in */
    zro__control *control; /* of the group */
    uint64_t number;       /* of the group on the link */
    size_t chunk;          /* bytes of a transfer's longest message */
} zro__far_config;

/* Sets everything up in zeroed memory and posts the first receives. */
zro__far *zro__far_open(void *memory, const zro__far_config *config, zro__carrier *carrier);

/* Cancels what is open.  If the link still uses some of the memory, that stays mapped for good. */
void zro__far_close(zro__far *far);

/* What the board uses of it. */
zro__far_table *zro__far_board(zro__far *far);

/* Tells all far ranks that this rank has left. */
void zro__far_leave(zro__far *far);

/* Tells the far rank with this index of a new group (group/create.c), or why there is none. */
void zro__far_notice(zro__far *far, int index, uint64_t key, uint64_t number, zro_status code, const char *text);

/* Breaks a group that this rank, `mine` of it, has no region for, on the far ranks that wait in its vote: PEER, with `code` and
 * the text of the last error.  far_label: the label of a member that is far, or -1. */
void zro__far_refuse(zro__program_link *link, uint64_t number, int size, int32_t (*far_label)(void *, int), void *user,
                     int mine, zro_status code);

/* Counters of the messages, from now on. */
void zro__far_count(zro__far *far, zro__counters *counters);

#endif
