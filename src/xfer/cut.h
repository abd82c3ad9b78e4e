/* Parts of a transfer and how they are cut: pure arithmetic. */
#ifndef ZRO_XFER_CUT_H
#define ZRO_XFER_CUT_H

#include <stddef.h>
#include <stdint.h>

typedef struct zro__part {
    size_t in_at, out_at; /* where its piece begins, in bytes from the transfer's `in` and `out` */
    size_t count;         /* elements */
    int owner;
    int source; /* without reduction: whose piece it is; the owner, unless all arrays are in group memory */
} zro__part;

/* A run of elements of a part: [first, first + count); first is a multiple of ZRO__TILE. */
typedef struct zro__run {
    size_t part, first, count;
} zro__run;

/* The i-th of n even ranges of `count` elements, cut at multiples of ZRO__BLOCK. */
void zro__cut_even(size_t count, int n, int i, size_t *first, size_t *length);

/* A cursor in an owner's stream, that is, its parts one after another, which chunks cut at multiples of ZRO__BLOCK. */
typedef struct zro__cursor {
    size_t part, first;
} zro__cursor;

/* The next run of a chunk that can take *left elements more; 0 at the end of the chunk or of the stream.  Parts whose bit in `any`
 * is 0 are passed over; NULL: none is. */
int zro__cursor_next(zro__cursor *cursor, const zro__part *parts, size_t n_parts, const uint64_t *any, int owner, size_t *left,
                     zro__run *run);

#endif
