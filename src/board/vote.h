/* Votes: how the ranks of a group come to one verdict, or compare what they have, in one operation.
 *
 * All of these are collective, and part of `call`, whose name texts give. */
#ifndef ZRO_BOARD_VOTE_H
#define ZRO_BOARD_VOTE_H

#include "board/slot.h"

/* Every rank brings its status; all leave with the same answer: OK, or on a failing rank its own status and on the others
 * PEER (MISMATCH, if it is that) with the text of the lowest failing rank. */
zro_status zro__vote(zro__board *board, zro__call call, zro_status mine);

/* Compares descriptions; a difference is MISMATCH on all, naming the first rank that differs from rank 0.  `mine` is voted on
 * with it, and the `number` of the first near rank is given to all near it.  Descriptions longer than 4,095 characters are cut. */
zro_status zro__agree(zro__board *board, zro__call call, const char *what, const char *description, uint64_t *number,
                      zro_status mine);

/* Whether all ranks passed the same number. */
zro_status zro__is_same(zro__board *board, zro__call call, uint64_t number, int *same);

#endif
