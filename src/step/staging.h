/* Staged gradients: copies of what other ranks own, where those can read them.
 *
 * Peers cannot read gradients that lie in the program's own memory, so a transfer brings them in messages, which costs a copy inside
 * the step.  With staging that copy is made earlier: when a gradient becomes final, on the thread that says so, while it is in the
 * caches.  Its ranges that other ranks own are copied by non-temporal stores into group memory, one array per rank, in which each
 * gradient has the same offset on all ranks.  Transfers lend that array to the peers (zro__xfer.lent), and read this rank's own ranges where
 * the program has them.  That is all: who reduces what, when and in which order does not change.
 *
 * What a rank has not copied it cannot lend: a gradient of an earlier micro-batch, one of the first iteration of a static graph, or one
 * that was moved since.  Its pieces of that batch travel in messages then. */
#ifndef ZRO_STEP_STAGING_H
#define ZRO_STEP_STAGING_H

#include "base/kernels.h"
#include "base/memory.h"
#include "board/slot.h"
#include "zro.h"

/* Ranges by parameter: those of parameter i are ranges[first[i]] to ranges[first[i + 1]]. */
typedef struct zro__staged_ranges {
    size_t *first;
    zro_range *ranges;
    zro__arena arena;
} zro__staged_ranges;

typedef struct zro__staging {
    const zro__kernels *kernels;
    int rank;                /* this one */
    const zro_param *params; /* of the ddp */
    size_t n;
    zro_memory *memory;       /* one array per rank */
    size_t bytes;             /* of an array */
    size_t *at;               /* by parameter: where its gradient begins in an array */
    const void **from;        /* by parameter: the gradient that was copied in this iteration; NULL: none was */
    zro__arena arena;         /* these two */
    zro__staged_ranges owned; /* the ranges of all ranks; what this rank owns itself is not copied */
} zro__staging;

/* Takes the memory for the gradients of n parameters, which must outlive it.  *out is NULL if nothing is to be gained: there is one rank,
 * ranks do not share memory, or no rank has a gradient in its own memory (has_own = 0 on all).  Collective, inside the lane. */
zro_status zro__staging_make(zro_group *group, zro__account *account, const zro_param *params, size_t n, int has_own,
                             zro__call call, zro__staging **out);
void zro__staging_free(zro__staging *staging); /* takes NULL */

/* Takes over the ranges of all ranks, of which those of others are copied from now on.  Between iterations; local. */
void zro__staging_own(zro__staging *staging, zro__staged_ranges *ranges);

/* An iteration begins. */
void zro__staging_open(zro__staging *staging);

/* The gradient of parameter i is final: copies what others own of it.  Any thread; local. */
void zro__staging_copy(zro__staging *staging, size_t i);

/* The index of a parameter in the ddp's list, and whether its gradient was copied from where it is now. */
static inline size_t zro__staging_index(const zro__staging *staging, const zro_param *param)
{
    return (size_t)(param - staging->params);
}

static inline int zro__staging_has(const zro__staging *staging, const zro_param *param)
{
    return staging->from[zro__staging_index(staging, param)] == param->grad;
}

#endif
