/* A transfer in progress on this rank, for the files that carry it out: xfer.c (the whole), reach.c (who reaches what), owner_work.c
 * (what an owner does with its parts), messages.c (what travels in messages, and when). */
#ifndef ZRO_XFER_PROGRESS_H
#define ZRO_XFER_PROGRESS_H

#include "xfer/xfer.h"

typedef struct zro__progress {
    zro__ranks *ranks;
    const zro__xfer *x;
    const zro__part *parts; /* those of x, or one part per rank where the work is spread or every rank does all of it */
    size_t n_parts;
    int to;                          /* who gets the results, as in x */
    size_t in_size, out_size;        /* bytes of an element */
    size_t limit;                    /* elements of a chunk */
    int me, size;                    /* this rank, and how many there are */
    size_t small_bytes;              /* of the largest piece of a transfer that may travel with the arrivals */
    int bypass_caches;               /* results are written by non-temporal stores, because they would not stay in the caches */
    int answers;                     /* results come back in the messages that brought the pieces */
    int in_is_shared, out_is_shared; /* whether this rank's arrays are group memory, and may be used as such */
    zro__reduce reduce;              /* how pieces are added */
    const uint64_t *any;             /* bits of the parts that some rank has; NULL: all */
    const uint64_t *bits; /* those of all ranks one after another, if they were gathered; NULL: they are in payloads */
    size_t n_words;       /* of one rank's bits; 0: there are none, and every rank has all parts */
} zro__progress;

/* The header with which a rank arrived. */
static inline const zro__header *zro__reach_header(const zro__progress *f, int rank)
{
    return zro__header_of(&f->ranks->board, rank);
}

/* Whether two ranks reach each other's group memory; `slow` is the header's flag of the side that is asked about. */
int zro__reach_shares(const zro__progress *f, int a, int b, uint32_t slow);

/* Whether `owner` reads rank's piece, or writes rank's result, in place. */
int zro__reach_reads(const zro__progress *f, int owner, int rank);
int zro__reach_writes(const zro__progress *f, int owner, int rank);

/* Who writes the results of owner's parts to rank's array: the owner, rank itself (then a message brings them), or another rank
 * whose array is the same memory: what exists once per machine is written once. */
int zro__reach_writer(const zro__progress *f, int owner, int rank);

/* Whether rank gets the results of owner's parts; whether it has a piece of a part. */
int zro__reach_receives(const zro__progress *f, int owner, int rank);
int zro__reach_has(const zro__progress *f, int rank, size_t part);

/* Where rank's piece of a part begins in its array that this rank reads: `in`, or what a peer lends. */
static inline size_t zro__reach_piece_at(const zro__progress *f, int rank, size_t part)
{
    return f->x->lent_at != NULL && rank != f->me ? f->x->lent_at[part] : f->parts[part].in_at;
}

/* rank's bits of presence, where there are any. */
const uint64_t *zro__reach_bits(const zro__progress *f, int rank);

/* Reduces a run that this rank owns, from arrays and from messages that have come, and writes the result to all who get it.  When
 * the group breaks meanwhile something may be left out. */
void zro__owner_do(zro__progress *f, const zro__run *run);

/* Does everything that owners do, chunk by chunk, with the messages that it takes. */
zro_status zro__messages_run(zro__progress *f);

#endif
