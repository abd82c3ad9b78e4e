/* The ranks of a group as a transfer needs them: where they are, in which order their values are added, how messages reach
 * them, and memory for the transfer's own lists.  A group has one of these and hands it to every transfer (group/group.h). */
#ifndef ZRO_XFER_RANKS_H
#define ZRO_XFER_RANKS_H

#include "base/kernels.h"
#include "base/memory.h"
#include "base/pool.h"
#include "board/blame.h"
#include "board/late.h"
#include "board/slot.h"
#include "board/world.h"
#include "link/carrier.h"
#include "xfer/cut.h"

/* Made with the group, so that nothing is allocated in a step. */
typedef struct zro__scratch {
    zro__part *parts;         /* size: for the named calls and for spread owners */
    zro__cursor *send, *recv; /* by owner */
    zro__cursor *expect;      /* by owner: which of its results the carrier has been told to expect */
    char **in_of, **out_of;   /* by rank: its arrays where this rank reaches them in place, else NULL */
    zro__map *borrowed;       /* two per rank: mappings of its arrays that are given back after the transfer */
    const char **incoming;    /* by rank: the rest of its current message */
    char **outgoing;          /* by rank: the rest of the current message to it */
    int *twin;                /* by rank: the lowest one whose array of results is the same memory */
    double *weight;           /* in the order of addition */
    const void **src;         /* (1 + threads) x size */
    void **dst;               /* (1 + threads) x size */
} zro__scratch;

typedef struct zro__ranks {
    zro__board board;
    zro__counters counters;
    zro__view *view;
    zro__late_note *late; /* for arrays that a late rank may still write when the group has broken */
    const zro__kernels *kernels;
    zro__pool *pool;  /* NULL with one thread */
    uint32_t threads; /* of the pool */
    zro_switch fast;  /* OFF: peers' arrays are not touched in place */
    int64_t *machine; /* by rank; ranks of one number share memory */
    int one_machine;
    int *order;        /* ranks in the order of addition, cell after cell */
    int *cell_lengths; /* n_cells: how many ranks of `order` each cell has */
    int n_cells;
    zro__carrier near, far; /* of messages to near and to far ranks */
    zro__scratch scratch;
} zro__ranks;

/* Lists the ZRO__RANKS_ARRAYS arrays above for the group's arena; `threads` is set already. */
enum { ZRO__RANKS_ARRAYS = 16 };
void zro__ranks_list(zro__ranks *ranks, int size, zro__array *out);

/* Fills order and cell_lengths: ranks cell after cell, cells by their lowest rank. */
void zro__ranks_order(zro__ranks *ranks, const int32_t *cell, int size);

#endif
