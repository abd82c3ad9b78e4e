/* The zro_schedule handle, for schedule.c, which makes and steps it, and schedule_state.c, which takes its position out and puts it
 * back. */
#ifndef ZRO_ZERO_SCHEDULE_H
#define ZRO_ZERO_SCHEDULE_H

#include "base/memory.h"
#include "optim/lr.h"
#include "zro.h"

/* One number per parameter group. */
typedef struct zro__schedule_values {
    double *lr, *momentum;
} zro__schedule_values;

struct zro_schedule {
    zro__arena arena; /* the memory of this handle and its arrays */
    zro__schedule_args args;
    zro__schedule_state now, before; /* before: the state that a step which fails goes back to */
    zro_optim *optim;                /* retained */
    zro_schedule *next;              /* in the optimizer's list */
    zro_schedule *owner;             /* the schedule that has taken this one over, or NULL */
    const char *momentum;            /* the value that one_cycle, here or in a child, cycles; or NULL */
    size_t n_groups;
    double *base;                             /* of a leaf: the first lr of each group */
    zro__schedule_values work, values_before; /* of a root: the values that are computed, and those that the groups had */
    uint64_t n_loads; /* of the optimizer when the schedule was made, or put to the position of the state that was loaded */
    size_t n_children;
    zro_schedule **children;
};

/* The position of a schedule that was just found to be older than the state that was loaded: says so in the log. */
void zro__schedule_say_old(zro_schedule *schedule);

/* Checks that schedules of this optimizer (NULL: of any) can be put to the positions that the state has.  Local. */
zro_status zro__schedules_check(zro_schedule *const *schedules, size_t n, const zro_optim *optim, const zro_state *state);

/* Checks the list alone. */
zro_status zro__schedules_check_list(zro_schedule *const *schedules, size_t n, const zro_optim *optim);

/* Puts the schedules of an optimizer to the positions that root's have.  Collective, over a group of all ranks.
 *
 * MISMATCH  the ranks have made different schedules */
zro_status zro__schedules_take(zro_optim *optim, zro_group *group, int root);

#endif
