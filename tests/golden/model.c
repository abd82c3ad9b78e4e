/* Parameters and optimizers for the modules: see golden.h. */
#include <math.h>
#include <string.h>

#include "golden.h"

zro_param *golden_params(golden_case *c, const golden_vectors *values)
{
    zro_param *params = golden_alloc(c, values->n * sizeof *params);

    for (size_t i = 0; i < values->n; i++) {
        size_t bytes = values->at[i].count * zro_dtype_bytes(values->dtype);

        zro_param_init(&params[i]);
        params[i].dtype = values->dtype;
        params[i].shape[0] = values->at[i].count;
        params[i].data = golden_alloc(c, bytes);
        params[i].grad = golden_alloc(c, bytes);
        if (bytes > 0)
            memcpy(params[i].data, values->at[i].data, bytes);
    }
    return params;
}

static void fill_with_nan(zro_param *param)
{
    for (size_t i = 0; i < param->shape[0]; i++)
        golden_put(param->grad, param->dtype, i, NAN);
}

void golden_set_grads(zro_param *params, const golden_vectors *grads)
{
    for (size_t i = 0; i < grads->n; i++) {
        params[i].grad_present = grads->at[i].data != NULL;
        if (params[i].grad_present)
            memcpy(params[i].grad, grads->at[i].data, grads->at[i].count * zro_dtype_bytes(grads->dtype));
        else
            fill_with_nan(&params[i]);
    }
}

zro_optim *golden_make_optim(golden_case *c, zro_param *params, size_t n, const zro_rule *rule, const zro_value *values,
                             size_t n_values, const zro_optim_config *config)
{
    zro_param_group group = { .params = params, .n = n, .values = values, .n_values = n_values };
    zro_optim_config own = ZRO_OPTIM_CONFIG_INIT;
    zro_optim *optim = NULL;

    if (config != NULL)
        own = *config;
    own.settings = c->options->settings;
    golden_call(c, "zro_optim_create", zro_optim_create(NULL, &group, 1, rule, NULL, &own, &optim));
    return optim;
}
