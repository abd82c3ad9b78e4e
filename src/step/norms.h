/* Norms over the gradients of all ranks.
 *
 * A norm is added up from the parts of blocks, in the order of all parameters' blocks, whoever computed them: so it has the
 * same bits on any number of ranks.  The parts stand in one array, one for each block; each owner fills in its own, and a
 * transfer without reduction brings them to all.  Between ranks of a machine the array exists once, and nothing has to travel.
 * */
#ifndef ZRO_STEP_NORMS_H
#define ZRO_STEP_NORMS_H

#include "base/memory.h"
#include "group/xfer.h"

typedef struct zro__norms {
    double *partials; /* one for each block of all parameters */
    size_t n;
    zro_memory *memory; /* NULL: they are on the heap, because there is one owner */
    zro__part *parts;   /* runs of blocks with one owner */
    size_t n_parts;
} zro__norms;

/* Makes room for the blocks of all ranges of a plan, sorted by parameter and first element; those that were there stay good,
 * and nothing has changed if it fails.  Collective unless the group is NULL. */
zro_status zro__norms_reserve(zro__norms *norms, zro_group *group, zro__account *account, const zro_range *ranges, size_t n);
void zro__norms_free(zro__norms *norms);

/* Everybody's partials to everybody.  Collective, inside the lane. */
zro_status zro__norms_exchange(const zro__norms *norms, zro_group *group);

#endif
