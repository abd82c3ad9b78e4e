/* Delivery: how parameters come from their owners to all ranks.
 *
 * Parameters are delivered in batches: those of one type, one device tag and one place (memory that zro handed out:
 * place.h).  A batch is one transfer without
 * reduction, whose parts are the owners' ranges.
 *
 * - Where zro handed the memory out, parts are relative to its start, so they are the same on all ranks, and neighbours of one
 *   owner are one part.  If there is one machine and the memory exists once there, nothing is delivered.
 * - The program's own arrays lie anywhere, and may lie elsewhere in the next step.  Their parts are relative to the
 *   lowest address among them.  If those offsets are the same on all ranks when the batch is made, a rank whose arrays are still where they were can
 *   be reached in place, if they are group memory; all others get messages, in which many parts travel together. */
#ifndef ZRO_STEP_DELIVER_H
#define ZRO_STEP_DELIVER_H

#include "base/memory.h"
#include "step/place.h"
#include "xfer/xfer.h"

/* A transfer without reduction in one array per rank: each part goes from its owner to all.  `count`: elements of all parts. */
zro__xfer zro__delivery(zro__call call, zro_dtype type, void *array, size_t bytes, const zro__part *parts, size_t n_parts,
                        size_t count);

/* Adds `count` elements at this byte to a list of parts, as a part of their own or, if those before them have the same owner,
 * to that part. */
void zro__parts_append(zro__part *parts, size_t *n, size_t at, size_t count, int owner);

/* Parameters that travel in one transfer. */
typedef struct zro__batch {
    zro_dtype type;
    int32_t device;
    zro__place *place;  /* NULL: the program's own arrays */
    int exists_once;    /* all ranks have the same memory, so there is nothing to deliver */
    int offsets_agreed; /* the parts' offsets were the same on all ranks when the batch was made */
    int offsets_differ; /* this rank's offsets differ from its peers', so the bytes travel as messages */
    zro__part *parts;
    struct zro__batch_item *items; /* for the program's arrays: which parameter each part is of */
    size_t n_parts;
    size_t n_owners; /* ranks that own at least one part */
    size_t count;    /* elements of all parts */
    char *base;      /* what the parts' offsets are relative to */
    size_t bytes;    /* from there to the end of the last part */
} zro__batch;

typedef struct zro__batches {
    struct zro__batches *next; /* those of a group that was added later */
    zro__batch *list;
    size_t n;     /* batches in this list */
    uint64_t tag; /* a hash of what all ranks must agree about */
    zro__arena arena;
} zro__batches;

/* A range and the parameter it is of. */
typedef struct zro__owned {
    zro_param *param;
    const char *name; /* or NULL; outlives the batches */
    const zro_range *range;
} zro__owned;

/* Makes the batches of these ranges, which are sorted by parameter and first element.  The ranges are used in this call alone;
 * the parameters and names must outlive the batches.  compare: finds out what the ranks agree about; collective, `st` being
 * voted on. */
zro_status zro__batches_make(zro_group *group, zro__account *account, const zro__owned *ranges, size_t n, zro__batches **out);
zro_status zro__batches_compare(zro_group *group, zro__batches *batches, zro__call call, zro_status st);
void zro__batches_free(zro__batches *batches); /* frees the whole list; takes NULL */

/* Finds the program's arrays where they are now.  Local.  INVALID: one is NULL; the text names the parameter.  STATE: a late rank of
 * a broken group may still write into one. */
zro_status zro__batches_inspect(zro_group *group, zro__batches *batches);

/* Delivers, after an inspection.  Collective, inside the lane.  Also a barrier: all owners have updated what exists once. */
zro_status zro__batches_deliver(zro_group *group, zro__batches *batches);

/* Brings root's values of the parameter with this index to all ranks: like a broadcast, but memory that exists once is not
 * written by every rank.  Collective, inside the lane. */
zro_status zro__deliver_param(zro_group *group, const zro_param *param, size_t index, int root);

#endif
