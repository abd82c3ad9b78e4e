/* Parameters: see param.h. */
#include "base/param.h"

#include <stdint.h>
#include <stdio.h>

#include "base/memory.h"

void zro_param_init(zro_param *param)
{
    static const zro_param init = ZRO_PARAM_INIT;

    *param = init;
}

size_t zro_param_count(const zro_param *param)
{
    size_t count = 1;

    if (param->n_dims > ZRO_MAX_DIMS)
        return SIZE_MAX;
    for (uint32_t i = 0; i < param->n_dims; i++)
        if (param->shape[i] == 0)
            return 0;
    for (uint32_t i = 0; i < param->n_dims; i++)
        if (!zro__size_mul(count, param->shape[i], &count))
            return SIZE_MAX;
    return count;
}

void zro_param_set_grad(zro_param *param, void *grad)
{
    param->grad = grad;
    __atomic_store_n(&param->grad_present, grad != NULL, __ATOMIC_RELEASE); /* pairs with the look at the start of a step */
}

const char *zro__param_name(const zro_param *param, size_t index, char *buffer)
{
    if (param->name != NULL)
        return param->name;
    snprintf(buffer, ZRO__NAME_BYTES, "%zu", index);
    return buffer;
}
