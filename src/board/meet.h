/* The meeting table: how ranks that one program started exchange their tickets.
 *
 * A piece of memory that all of them and their supervisor have: plain memory (threads), an anonymous shared mapping (fork), or
 * a memfd that `zro run` passes on.  It serves any number of exchanges, one after another. */
#ifndef ZRO_BOARD_MEET_H
#define ZRO_BOARD_MEET_H

#include "board/slot.h"

typedef struct zro__meet zro__meet;

size_t zro__meet_bytes(int size);

/* The memory is zeroed. */
void zro__meet_init(zro__meet *meet, int size);

/* By a rank, before anything else: INVALID if this is no table for `size` ranks in `bytes` bytes; MISMATCH, on this rank and on
 * those that wait for it, if it was made by a build of the library that has other tables. */
zro_status zro__meet_check(zro__meet *meet, int rank, int size, size_t bytes);

/* Brings this rank's status and ticket, and gets the tickets of all ranks.  A rank that brings a failure keeps its status and
 * waits for nobody (`tickets` may be NULL then); the others get PEER with its text.  LOST if a rank ended; TIMEOUT. */
zro_status zro__meet_exchange(zro__meet *meet, int rank, uint64_t timeout_ms, zro_status mine, const void *ticket,
                              void *tickets);

/* This process is `rank` from now on; STATE if another one is that still lives. */
zro_status zro__meet_claim(zro__meet *meet, int rank);

/* By the supervisor: whether any rank has come to the table so far, if only to be refused. */
int zro__meet_used(const zro__meet *meet);

/* By the supervisor: this rank will not come (any more). */
void zro__meet_gone(zro__meet *meet, int rank);

/* By a rank whose group breaks because another one is dead or has left; not NULL only where a supervisor asks for it.  This is
 * noted before the group's verdict can be seen: so whoever fails because of a loss ends after it was noted, and the first rank
 * that was noted is the cause of the others' ends.
 *
 * By the supervisor: how many losses were noted so far; the place of this rank among them, or 0. */
void zro__meet_lost(zro__meet *meet, int rank, int is_dead);
uint32_t zro__meet_losses(const zro__meet *meet);
uint32_t zro__meet_loss(const zro__meet *meet, int rank, int *is_dead);

/* By a rank, when it ends: how its create went, and the code that it returns.  By the supervisor: whether it came to that, and
 * the code; how its create went. */
void zro__meet_finish(zro__meet *meet, int rank, zro_status st, int code);
int zro__meet_finished(const zro__meet *meet, int rank, int *code);
zro_status zro__meet_status(const zro__meet *meet, int rank);

#endif
