/* The plan: which rank owns which elements.  Pure; any thread may ask while nobody changes it.
 *
 * Its ranges stand there twice: all of them by parameter and first element, and once more rank after rank in packing order.
 * Groups that are added later come behind in both, so that adding takes tables that are larger, and undoing only shortens
 * them. */
#ifndef ZRO_STEP_PLAN_H
#define ZRO_STEP_PLAN_H

#include "base/memory.h"
#include "step/partition.h"
#include "zro.h"

/* Makes a plan on an account (or NULL).  whole = ON: parameters must not be cut, so AUTO is greedy, and flat UNSUPPORTED. */
zro_status zro__plan_make(zro__account *account, const zro_param_group *groups, size_t n_groups, int ranks,
                          const zro_plan_config *config, zro_switch whole, zro_plan **out);

/* A group more; on failure nothing has changed.  Undo takes back the one that was added last, not those of make. */
zro_status zro__plan_add(zro_plan *plan, const zro_param_group *group);
void zro__plan_undo(zro_plan *plan);

size_t zro__plan_groups(const zro_plan *plan);
zro_partition zro__plan_partition(const zro_plan *plan); /* never AUTO */

/* The parameters, until the plan is changed; one more than there are, so that the i-th has the ranges from its first_range to
 * that of the next in the list of all (zro_plan_ranges). */
const zro__plan_param *zro__plan_table(const zro_plan *plan);

#endif
