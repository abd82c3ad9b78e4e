/* Claims: what all ranks must have in common, compared at the cost of one vote however long it is.
 *
 * A claim is a hash of everything, and a list of short texts that say the same in words.  Ranks compare the hashes; only if
 * those differ, and then on all ranks, texts are made, and the first one that differs is searched for by halves of the list, so
 * that the error shows that, with both values, and never a hash. */
#ifndef ZRO_STEP_CLAIM_H
#define ZRO_STEP_CLAIM_H

#include "board/vote.h"

enum { ZRO__CLAIM_BYTES = 512 }; /* the longest text, its NUL included; a longer one is cut */

typedef struct zro__claim {
    const char *what; /* in texts: "<what> differ: rank 0 has ...; rank 2 has ..." */
    uint64_t hash;
    size_t n; /* how many texts there are: another number on each rank, if need be */
    void (*describe)(const void *user, size_t i, char *text, size_t bytes);
    const void *user;
    const char *otherwise; /* the whole error if no text shows the difference */
} zro__claim;

/* Votes on `mine` and compares; where `mine` is not OK the claim is not looked at.  Collective.
 *
 * MISMATCH  the claims differ, on all ranks */
zro_status zro__claim_agree(zro__board *board, zro__call call, const zro__claim *claim, zro_status mine);

/* The same, with the hash of all texts as the claim's, which is set; enters and leaves the group. */
zro_status zro__claim_agree_texts(zro_group *group, zro__call call, zro__claim *claim, zro_status mine);

/* Finds the first of n items, the same number on all ranks, in which ranks differ, by comparing hashes of runs of them: its index
 * in *item, and in *odd the first rank whose item differs from rank 0's; the number of ranks if there is no difference.
 * Collective. */
zro_status zro__find_odd(zro_group *group, zro__call call, size_t n,
                         uint64_t (*hash)(const void *user, size_t first, size_t end), const void *user, size_t *item,
                         int32_t *odd);

#endif
