/* The plan: see plan.h. */
#include "step/plan.h"

void zro__plan_one(zro_param *const *params, size_t n, size_t first, zro__run_of *runs)
{
    for (size_t i = 0; i < n; i++) {
        runs[i].param = params[i];
        runs[i].index = first + i;
        runs[i].first = 0;
        runs[i].count = zro_param_count(params[i]);
    }
}
