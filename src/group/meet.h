/* The meeting table: how ranks that one program started exchange their tickets.
 *
 * A piece of memory that all of them and their supervisor have: plain memory (threads), an anonymous shared mapping (fork), or
 * a memfd that `zro run` passes on.  It serves any number of exchanges, one after another. */
#ifndef ZRO_GROUP_MEET_H
#define ZRO_GROUP_MEET_H

#include "group/slot.h"

typedef struct zro__meet zro__meet;

size_t zro__meet_bytes(int size);

/* The memory is zeroed.  check: is this a table for `size` ranks in `bytes` bytes. */
void zro__meet_init(zro__meet *meet, int size);
int zro__meet_check(const zro__meet *meet, int size, size_t bytes);

/* Brings this rank's status and ticket; gets everybody's, if all are well (`tickets` may be NULL where the status is not OK,
 * and nobody is waited for then).  A failing rank keeps its
 * status; the others get PEER with its text, LOST if a rank ended, TIMEOUT. */
zro_status zro__meet_exchange(zro__meet *meet, int rank, uint64_t timeout_ms, zro_status mine, const void *ticket,
                              void *tickets);

/* The process that now is `rank`; STATE if another one that lives is. */
zro_status zro__meet_claim(zro__meet *meet, int rank);

/* By the supervisor: this rank will not come (any more). */
void zro__meet_gone(zro__meet *meet, int rank);

/* By a rank: the code with which its function returned.  By the supervisor: whether it did, and the code. */
void zro__meet_finish(zro__meet *meet, int rank, int code);
int zro__meet_finished(const zro__meet *meet, int rank, int *code);

/* By a rank: why it ends.  By the supervisor: what it said, OK if nothing. */
void zro__meet_report(zro__meet *meet, int rank, zro_status st);
zro_status zro__meet_reported(const zro__meet *meet, int rank);

#endif
