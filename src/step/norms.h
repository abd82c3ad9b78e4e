/* Norms over the gradients of all ranks.
 *
 * A norm is added up from the parts of blocks, in the order of all parameters' blocks, whoever computed them: so it has the
 * same bits on any number of ranks.  The parts stand in one array, one for each block; each owner fills in its own, and a
 * transfer without reduction brings them to all.  On one machine the array exists once, and nothing has to travel. */
#ifndef ZRO_STEP_NORMS_H
#define ZRO_STEP_NORMS_H

#include "base/memory.h"
#include "xfer/xfer.h"

typedef struct zro__norms {
    double *partials;   /* one for each block of all parameters */
    size_t n;           /* blocks */
    zro_memory *memory; /* the group memory that has the partials; NULL: they are on the heap, because there is one owner */
    zro__part *parts;   /* consecutive blocks with one owner */
    size_t n_parts;
} zro__norms;

/* Takes memory for the blocks of all ranges of a plan, sorted by parameter and first element; what there was stays if it is
 * enough, and nothing has changed if it fails.  Collective unless the group is NULL. */
zro_status zro__norms_reserve(zro__norms *norms, zro_group *group, zro__account *account, const zro_range *ranges, size_t n);
void zro__norms_free(zro__norms *norms);

/* Brings the partials of each owner to all ranks.  Collective, inside the lane. */
zro_status zro__norms_exchange(const zro__norms *norms, zro_group *group);

#endif
