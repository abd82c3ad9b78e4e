/* Far ranks: those with whom this rank shares no memory, seen through a link.
 *
 * A wire is what one rank has of the far ranks of one group.  It lies in the group's region (so that a create that ran out of
 * memory can still vote), in a part that this rank alone uses. */
#ifndef ZRO_GROUP_WIRE_H
#define ZRO_GROUP_WIRE_H

#include "group/link.h"
#include "group/memory.h"
#include "group/slot.h"
#include "group/trunk.h"

/* Pure: the bytes of one rank's wire to `n_far` far ranks, with messages of `chunk` bytes. */
size_t zro__wire_bytes(int n_far, size_t chunk);

/* Sets up the wire in zeroed memory and posts its first receives.  `number` is the group's. */
zro__wire *zro__wire_open(void *memory, zro__trunk *trunk, zro__view *view, const zro__control *control, uint64_t number,
                          size_t chunk, zro__link *link);

/* Cancels what is open.  If the link still uses some of the memory, that stays mapped for good. */
void zro__wire_close(zro__wire *wire);

/* After a transfer that failed: gives up its messages, and keeps the arrays that the link still uses mapped. */
void zro__wire_abandon(zro__wire *wire);

/* Progress: what has come is put where it belongs, and who waits for it is woken. */
void zro__wire_poll(zro__wire *wire);

/* Where a far rank's slot is; why it cannot be reached any more, or NULL. */
zro__slot *zro__wire_slot(zro__wire *wire, int far);
const char *zro__wire_failure(const zro__wire *wire, int far);

/* Tell all far ranks: an arrival with its payload, that the group broke, that this rank has left.  The arrival must have gone,
 * that is, each `told` have reached its number, before the next: a rank that computes next does not help its link any more. */
void zro__wire_head(zro__wire *wire, const zro__header *header, const void *payload, size_t bytes);
void zro__wire_verdict(zro__wire *wire, zro_status code, const char *text);
void zro__wire_leave(zro__wire *wire);
zro__word *zro__wire_told(zro__wire *wire, int far);

/* Tells one far rank of a new group (sub.c), or why there is none. */
void zro__wire_notice(zro__wire *wire, int far, uint64_t key, uint64_t number, zro_status code, const char *text);

/* Breaks a group that this rank, `mine` of it, has no region for, on the far ranks that wait in its vote: PEER, with `code` and
 * the text of the last error. */
void zro__wire_refuse(zro__trunk *trunk, uint64_t number, int size, int32_t (*member)(void *, int), int (*is_near)(void *, int),
                      void *user, int mine, zro_status code);

/* Counters of the messages, from now on. */
void zro__wire_count(zro__wire *wire, zro__counters *counters);

#endif
