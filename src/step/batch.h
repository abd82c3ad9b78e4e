/* Batches: arrays of parameters that travel in one transfer, whoever owns which range of them.
 *
 * A list of batches has ranges of parameters with their owners, and says which array of a parameter is read and which is written:
 * data to data publishes what owners have updated, gradients to gradients averages, gradients to data is a step in one pass.  A
 * batch has the ranges whose arrays have the same types and device tag; data that exist once are not in one batch with others.
 *
 * - From data to data, where zro handed the memory out (place.h), parts are relative to its start, so they are the same on all
 *   ranks, and neighbours of one owner are one part.  If there is one machine and the memory exists once there, nothing is
 *   delivered.
 * - All other arrays are found anew before every transfer, because the program may move its own.  Parts are relative to the lowest
 *   address.  If those offsets were the same on all ranks when the batch was made, a rank whose arrays are still where they were can
 *   be reached in place, if they are group memory; all others get messages, in which many parts travel together.  That is decided
 *   for what is read and for what is written by itself.  A gradient that is absent may be NULL: nobody reads it.
 *
 * Where gradients are read, each part has a bit that says whether this rank has a gradient. */
#ifndef ZRO_STEP_BATCH_H
#define ZRO_STEP_BATCH_H

#include "base/memory.h"
#include "step/claim.h"
#include "step/place.h"
#include "step/staging.h"
#include "xfer/xfer.h"

/* A transfer without reduction in one array per rank: each part goes from its owner to all.  `count`: elements of all parts. */
zro__xfer zro__delivery(zro__call call, zro_dtype type, void *array, size_t bytes, const zro__part *parts, size_t n_parts,
                        size_t count);

/* Adds `count` elements at this byte to a list of parts, as a part of their own or, if those before them have the same owner,
 * to that part. */
void zro__parts_append(zro__part *parts, size_t *n, size_t at, size_t count, int owner);

/* A part of a batch whose arrays are found anew. */
typedef struct zro__batch_item {
    zro_param *param;
    size_t index;         /* of the parameter in the list that it is from */
    size_t first;         /* the first element of the parameter that the part has */
    const char *name;     /* the parameter's name, or NULL */
    size_t in_at, out_at; /* the offsets that the part had when the batch was made */
} zro__batch_item;

typedef struct zro__batch {
    zro_dtype in_type, out_type;
    int32_t device;
    zro__place *place; /* of data that zro handed out; NULL: arrays are found anew, by the items */
    zro__place *once;  /* while the batch is made: the place of its data, if they exist once; else NULL */
    int exists_once;   /* all ranks have the same memory, so there is nothing to deliver */
    uint32_t
        disagreed; /* ZRO__HEADER_IN_SLOW, _OUT_SLOW: where the parts' offsets were not the same on all ranks from the start */
    uint32_t slow; /* the same, and where this rank's arrays have moved since: those parts travel as messages */
    zro__part *parts;
    zro__batch_item *items;
    size_t n_parts;
    size_t n_owners;    /* ranks that own at least one part */
    size_t count;       /* elements of all parts */
    char *in, *out;     /* what the parts' offsets are relative to */
    size_t in_bytes;    /* from there to the end of the last part */
    size_t out_bytes;   /* the same where results go */
    uint64_t *present;  /* of gradients: one bit per part, as of the last inspection */
    uint64_t *any;      /* of gradients: which parts some rank had in the last transfer */
    uint64_t *gathered; /* the bits of all ranks, where there are too many for a payload; else NULL */
    size_t *lent_at;    /* staged gradients: by part, where it begins in the arrays that ranks lend; else NULL */
} zro__batch;

typedef struct zro__batches {
    struct zro__batches *next; /* those of a group that was added later */
    zro__side from, to;
    zro__batch *list;
    size_t n;                    /* batches in this list */
    uint64_t tag;                /* a hash of what all ranks must agree about */
    const zro__staging *staging; /* whose copies of gradients peers read; NULL: the gradients themselves */
    zro__arena arena, lent;
} zro__batches;

/* A range and the parameter it is of. */
typedef struct zro__owned {
    zro_param *param;
    const char *name; /* or NULL; outlives the batches */
    const zro_range *range;
} zro__owned;

/* Cuts the elements of n parameters, one after another, evenly over the ranks: as many ranges as there are parameters, and at most
 * one more per rank.  Returns how many. */
size_t zro__cut_ranges(const zro_param *params, const size_t *index, size_t n, int ranks, zro_range *out);

/* Makes the batches of these ranges.  The ranges are used in this call alone;
 * the parameters and names must outlive the batches.  compare: finds out what the ranks agree about; collective, `st` being
 * voted on. */
zro_status zro__batches_make(zro_group *group, zro__account *account, zro__side from, zro__side to, const zro__owned *ranges,
                             size_t n, zro__batches **out);
zro_status zro__batches_compare(zro_group *group, zro__batches *batches, zro__call call, zro_status st);
void zro__batches_free(zro__batches *batches); /* frees the whole list; takes NULL */

/* How many parts these have, without the lists behind them. */
size_t zro__batches_count(const zro__batches *batches);

/* From now on peers read copies of the gradients of this list, which is from gradients, as far as there are any.  NULL: there is
 * no staging.  Local; the same on all ranks. */
zro_status zro__batches_lend(zro__batches *batches, zro__account *account, const zro__staging *staging);

/* Finds the arrays where they are now, and which gradients this rank has.  Local.  INVALID: an array that is needed is NULL; the text
 * names the parameter.  STATE: a late rank of a broken group may still write into one. */
zro_status zro__batches_inspect(zro_group *group, zro__batches *batches);

/* Brings the parts of a batch, as they were found by an inspection, from their owners to all ranks, unless these have them
 * already.  Collective, inside the lane. */
zro_status zro__batch_send(zro_group *group, const zro__batches *batches, zro__batch *batch, zro__call call);

/* How a list of gradients is reduced, as a rule averaged: who gets it, and what owners do with it on the way. */
typedef struct zro__reduction {
    zro_group *group;
    zro__call call;
    zro_op op;
    int to;                  /* as in zro__xfer */
    int weighted;            /* by `weight` of each rank */
    double weight;           /* of this rank */
    double divisor;          /* as in zro__xfer */
    const zro__claim *claim; /* what all ranks must have in common, or NULL */
    zro__apply_fn apply;     /* as in zro__xfer, or NULL; the next four, too, get the user */
    void (*next)(void *user, const zro__run *run);
    void (*arrived)(void *user); /* once, when the ranks have met, and agree */
    void (*done)(void *user);    /* after each batch */
    void *user;
    const zro__batch *batch; /* out: the one under way */
} zro__reduction;

/* Reduces the gradients of a list, after an inspection whose result is `st`.  The ranks meet over `st` and the claim in the first
 * transfer: what is wrong on one of them is an error on all, nothing has changed then, and the group is whole.  Where gradients are
 * written, those that any rank had are present afterwards, unless they are frozen.  Collective, inside the lane. */
zro_status zro__batches_reduce(zro__reduction *r, zro__batches *batches, zro_status st);

/* No gradient is present any more. */
void zro__batches_consume(const zro__batches *batches);

/* Delivers data, after an inspection.  Collective, inside the lane.  Also a barrier: all owners have updated what exists once.
 * *moved, if anything had to travel, becomes 1. */
zro_status zro__batches_deliver(zro_group *group, zro__batches *batches, int *moved);

/* Brings root's values of the parameter with this index to all ranks: like a broadcast, but memory that exists once is not
 * written by every rank.  Collective, inside the lane. */
zro_status zro__deliver_param(zro_group *group, const zro_param *param, size_t index, int root);

#endif
