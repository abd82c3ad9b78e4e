/* Blame: the words in which a group breaks because a rank is gone, has left, or does not come.
 *
 * The rank that a waiter waits for need not be the one to blame: it may itself wait for another, in this group or in a different
 * one.  So texts follow who waits for whom, and say what a missing rank does in the other groups that this rank shares with it. */
#ifndef ZRO_BOARD_BLAME_H
#define ZRO_BOARD_BLAME_H

#include "board/slot.h"

/* Each writes the text and breaks the group; returns the verdict that holds.
 *
 * lost: `rank` is dead (`why` is ""), or its link has failed.  deserted: it has destroyed the group.  silent: this rank has waited
 * for it for as long as it may. */
zro_status zro__blame_lost(zro__board *board, int rank, const char *why);
zro_status zro__blame_deserted(zro__board *board, int rank);
zro_status zro__blame_silent(zro__board *board, int rank);

/* Says in the log for whom this rank has waited for so long, and what that one does. */
void zro__blame_warn(const zro__board *board, int rank, uint64_t waited_ms);

/* "rank 1", or "rank 1 (3 of the first group)" where the numbers differ. */
const char *zro__rank_name(const zro__board *board, int rank, char *text, size_t bytes);

/* "operation 12: all_reduce of 1000 f32, sum". */
const char *zro__call_name(zro__call call);
const char *zro__header_text(const zro__header *header, char *text, size_t bytes);

#endif
