/* Parameters and optimizers for the modules: see golden.h. */
#include <math.h>
#include <string.h>

#include "golden.h"

static void set_shape(golden_case *c, zro_param *param, json_t *json, size_t count)
{
    golden_counts shape = golden_read_counts(c, "shapes", json);

    if (shape.n > ZRO_MAX_DIMS) {
        golden_fail(c, "\"shapes\" has %zu dimensions, must have at most %d", shape.n, ZRO_MAX_DIMS);
        return;
    }
    param->n_dims = (uint32_t)shape.n;
    for (size_t d = 0; d < shape.n; d++)
        param->shape[d] = shape.at[d];
    if (zro_param_count(param) != count)
        golden_fail(c, "\"shapes\" has %zu elements, its values are %zu", zro_param_count(param), count);
}

zro_param *golden_describe(golden_case *c, const golden_vectors *values, json_t *shapes)
{
    zro_param *params = golden_alloc(c, values->n * sizeof *params);

    if (shapes != NULL && json_array_size(shapes) != values->n)
        golden_fail(c, "\"shapes\" has %zu entries, must have %zu", json_array_size(shapes), values->n);
    for (size_t i = 0; i < values->n; i++) {
        c->param = i;
        zro_param_init(&params[i]);
        params[i].dtype = values->dtype;
        if (shapes != NULL)
            set_shape(c, &params[i], json_array_get(shapes, i), values->at[i].count);
        else
            params[i].shape[0] = values->at[i].count;
    }
    c->param = GOLDEN_NOWHERE;
    return params;
}

void golden_set_params(zro_param *params, const golden_vectors *values)
{
    for (size_t i = 0; i < values->n; i++)
        if (values->at[i].count > 0)
            memcpy(params[i].data, values->at[i].data, values->at[i].count * zro_dtype_bytes(values->dtype));
}

zro_param *golden_params(golden_case *c, const golden_vectors *values, json_t *shapes)
{
    zro_param *params = golden_describe(c, values, shapes);

    for (size_t i = 0; i < values->n; i++) {
        size_t bytes = values->at[i].count * zro_dtype_bytes(values->dtype);

        params[i].data = golden_alloc(c, bytes);
        params[i].grad = golden_alloc(c, bytes);
    }
    golden_set_params(params, values);
    return params;
}

static void fill_with_nan(zro_param *param)
{
    for (size_t i = 0; i < zro_param_count(param); i++)
        golden_put(param->grad, param->dtype, i, NAN);
}

void golden_set_grads(zro_param *params, const golden_vectors *grads)
{
    for (size_t i = 0; i < grads->n; i++) {
        params[i].grad_present = grads->at[i].data != NULL;
        if (params[i].grad_present && grads->at[i].count > 0)
            memcpy(params[i].grad, grads->at[i].data, grads->at[i].count * zro_dtype_bytes(grads->dtype));
        else if (!params[i].grad_present)
            fill_with_nan(&params[i]);
    }
}

zro_optim *golden_make_sharded(golden_case *c, zro_group *ranks, const zro_param_group *groups, size_t n_groups,
                               const zro_rule *rule, const zro_optim_config *config)
{
    zro_optim_config own = ZRO_OPTIM_CONFIG_INIT;
    zro_optim *optim = NULL;

    if (config != NULL)
        own = *config;
    own.settings = c->options->settings;
    golden_call(c, "zro_optim_create", zro_optim_create(ranks, groups, n_groups, rule, NULL, &own, &optim));
    return optim;
}

zro_optim *golden_make_optim(golden_case *c, zro_param *params, size_t n, const zro_rule *rule, const zro_value *values,
                             size_t n_values, const zro_optim_config *config)
{
    zro_param_group group = { .params = params, .n = n, .values = values, .n_values = n_values };

    return golden_make_sharded(c, NULL, &group, 1, rule, config);
}
