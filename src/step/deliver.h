/* Delivery: how parameters come from their owners to all ranks.
 *
 * Parameters are delivered in lots: those of one type, one device tag and one place.  A lot is one transfer without reduction,
 * whose parts are the owners' ranges.
 *
 * - Where zro handed the memory out, parts are relative to its start, so they are the same on all ranks, and neighbours of one
 *   owner are one part.  What exists once on the only machine is not delivered at all.
 * - The program's own arrays lie anywhere, and may lie elsewhere in the next step.  Their parts are relative to the lowest of
 *   them.  If those offsets are the same on all ranks when the lot is made, a rank whose arrays are still where they were can
 *   be reached in place, if they are group memory; all others get messages, in which many parts travel together. */
#ifndef ZRO_STEP_DELIVER_H
#define ZRO_STEP_DELIVER_H

#include "base/memory.h"
#include "group/xfer.h"
#include "step/place.h"

typedef struct zro__lot {
    zro_dtype type;
    int32_t device;
    zro__place *place; /* NULL: the program's own arrays */
    int once;          /* nothing to deliver */
    int agreed;        /* the parts' offsets are the same on all ranks */
    int apart;         /* this rank's are others, as of the last look */
    zro__part *parts;
    struct zro__lot_item *items; /* of the program's arrays: where the parts come from */
    size_t n_parts, n_owners, count;
    char *base; /* of the parts' offsets, and how far they go */
    size_t bytes;
} zro__lot;

typedef struct zro__lots {
    struct zro__lots *next;
    zro__lot *lots;
    size_t n;
    uint64_t tag; /* of what all ranks must agree about */
    zro__arena arena;
} zro__lots;

/* A range and the parameter it is of. */
typedef struct zro__owned {
    zro_param *param;
    const char *name; /* or NULL; stays */
    const zro_range *range;
} zro__owned;

/* Makes the lots of these ranges, which are sorted by parameter and first element.  The ranges are looked at in this call
 * alone; the parameters and names stay.  compare: finds out what the ranks agree about; collective, `st` being voted on. */
zro_status zro__lots_make(zro_group *group, zro__account *account, const zro__owned *ranges, size_t n, zro__lots **out);
zro_status zro__lots_compare(zro_group *group, zro__lots *lots, zro__call call, zro_status st);
void zro__lots_free(zro__lots *lots); /* those behind it, too; takes NULL */

/* Finds the program's arrays where they are now.  Local.  INVALID: one is NULL; the text names the parameter. */
zro_status zro__lots_look(zro__lots *lots);

/* Delivers, after a look.  Collective, inside the lane.  Also a barrier: all owners have updated what exists once. */
zro_status zro__lots_deliver(zro_group *group, zro__lots *lots);

#endif
