/* The plan: which rank owns which elements.  Pure; any thread may ask while nobody changes it.
 *
 * It keeps its ranges in two lists: one by parameter and first element, and one by rank, in the order in which a rank's elements
 * are packed.  Parameter groups that are added later are appended to both, so that adding takes larger tables, and undoing only
 * shortens them. */
#ifndef ZRO_PLAN_PLAN_H
#define ZRO_PLAN_PLAN_H

#include "base/memory.h"
#include "plan/partition.h"
#include "zro.h"

/* Makes a plan on an account (or NULL).  whole = ON: parameters must not be cut, so AUTO is greedy, and flat UNSUPPORTED. */
zro_status zro__plan_make(zro__account *account, const zro_param_group *groups, size_t n_groups, int ranks,
                          const zro_plan_config *config, zro_switch whole, zro_plan **out);

/* Takes back the group that zro_plan_add_group added last; groups given to zro__plan_make cannot be taken back. */
void zro__plan_undo(zro_plan *plan);

/* The i-th parameter of a group. */
zro_param *zro__param_of(const zro_param_group *group, size_t i);

const char *zro__partition_name(const zro_plan *plan);

/* One row per parameter, and one more that closes the last: parameter i has the ranges [row[i].first_range,
 * row[i + 1].first_range) of all ranges (zro_plan_ranges).  Valid until the plan changes. */
const zro__plan_param *zro__plan_table(const zro_plan *plan);

/* The ranges of the parameters [first, end), sorted by parameter and first element; every parameter has at least one.  owned: those
 * of a rank, or of ZRO_ALL, as zro_plan_ranges lists them.  *n: how many there are. */
const zro_range *zro__plan_ranges(const zro_plan *plan, size_t first, size_t end, size_t *n);
const zro_range *zro__plan_owned(const zro_plan *plan, int rank, size_t *n);

/* The first two parameters that have the same name; 0 if there are none. */
int zro__plan_namesakes(const zro_plan *plan, size_t *first, size_t *second);

#endif
