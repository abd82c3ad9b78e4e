/* A transfer in progress on this rank, for the modules that carry it out: xfer.c (the whole), flow.c (who reaches what, the
 * owner's work), steps.c (what goes by link). */
#ifndef ZRO_GROUP_FLOW_H
#define ZRO_GROUP_FLOW_H

#include "group/group.h"

/* One transfer in progress on this rank. */
typedef struct zro__flow {
    zro_group *g;
    const zro__xfer *x;
    const zro__part *parts;
    size_t n_parts;
    size_t in_size, out_size; /* bytes of an element */
    size_t limit;             /* elements of a chunk */
    int me, size, stream;
    int in_is_shared, out_is_shared; /* this rank's arrays are group memory, and may be used as such */
    zro__reduce reduce;
} zro__flow;

/* The header with which a rank arrived. */
const zro__header *zro__flow_header(const zro__flow *f, int rank);

/* Two ranks reach each other's group memory. */
int zro__flow_shares(const zro__flow *f, int a, int b);

/* Whether `owner` reads rank's piece, or writes rank's result, in place. */
int zro__flow_reads(const zro__flow *f, int owner, int rank);
int zro__flow_writes(const zro__flow *f, int owner, int rank);

/* Who writes the results of owner's parts to rank's array: the owner, rank itself (then a link carries them), or another rank
 * whose array is the same memory: what exists once on a machine is written once. */
int zro__flow_writer(const zro__flow *f, int owner, int rank);

/* Whether rank gets the results of owner's parts; whether it has a piece of a part. */
int zro__flow_receives(const zro__flow *f, int owner, int rank);
int zro__flow_has(const zro__flow *f, int rank, size_t part);

/* Takes the pieces of a run of this owner, from arrays and current messages, to all who get the result. */
void zro__flow_do(zro__flow *f, const zro__run *run);

/* Everything that owners do, in chunks, with the messages that it takes. */
zro_status zro__flow_steps(zro__flow *f);

#endif
