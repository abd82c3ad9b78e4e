/* clip.json: gradients clipped by norm or by value, by the call and by the setting of a step.
 *
 * The step is one of SGD with lr 1 on parameters that are zero: what it leaves there is the clipped gradient with its sign
 * turned, and it must be the same number as the call's, to the last bit.  Absent gradients are NaNs, which nobody may count or
 * touch. */
#include <math.h>
#include <string.h>

#include "golden.h"

enum { ABSENT_COUNT = 3 }; /* the file does not say how many elements a parameter without a gradient has */

typedef struct clip {
    int by_norm;
    double max, norm_type, total_norm;
    golden_vectors grads, clipped;
    golden_vectors zeros; /* values of the parameters */
} clip;

static void read_clip(golden_case *c, clip *p)
{
    zro_dtype dtype = golden_dtype(c, c->json);
    json_t *norm_type = json_object_get(c->json, "norm_type"), *total_norm = json_object_get(c->json, "total_norm");

    p->by_norm = golden_word(c, c->json, "kind", "norm value", 0) == 0;
    p->max = golden_number(c, c->json, "max", 0);
    p->grads = golden_read_vectors(c, c->json, "grads", dtype, GOLDEN_NULL_IS_ABSENT, NULL);
    p->clipped = golden_read_vectors(c, c->json, "clipped", dtype, GOLDEN_NULL_IS_ABSENT, &p->grads);
    if (!p->by_norm) {
        if (!json_is_null(norm_type) || !json_is_null(total_norm))
            golden_fail(c, "\"norm_type\" and \"total_norm\" must be null where \"kind\" is \"value\"");
        return;
    }
    if (json_is_string(norm_type))
        p->norm_type = golden_word(c, c->json, "norm_type", "inf", 0) == 0 ? INFINITY : 0;
    else
        p->norm_type = golden_number(c, c->json, "norm_type", 0);
    p->total_norm = golden_number(c, c->json, "total_norm", 0);
    if (dtype == ZRO_F32)
        p->total_norm = (double)(float)p->total_norm;
}

/* Zeros that are as long as the gradients; and what is absent in one list is so in the other. */
static void make_zeros(golden_case *c, clip *p)
{
    p->zeros = (golden_vectors){ golden_alloc(c, p->grads.n * sizeof *p->zeros.at), p->grads.n, p->grads.dtype };
    for (size_t i = 0; i < p->grads.n; i++) {
        golden_vector *zeros = &p->zeros.at[i];

        c->param = i;
        if ((p->grads.at[i].data == NULL) != (p->clipped.at[i].data == NULL))
            golden_fail(c, "only one of \"grads\" and \"clipped\" is null");
        zeros->count = p->grads.at[i].data == NULL ? ABSENT_COUNT : p->grads.at[i].count;
        zeros->data = golden_alloc(c, zeros->count * zro_dtype_bytes(p->grads.dtype));
    }
    c->param = GOLDEN_NOWHERE;
}

/* Returns the parameters, in whose gradients the call has left its result. */
static zro_param *check_call(golden_case *c, const clip *p, double *norm)
{
    zro_param *params = golden_params(c, &p->zeros, NULL);
    zro_optim *optim = golden_make_optim(c, params, p->zeros.n, zro_rule_sgd(), NULL, 0, NULL);
    zro_dtype dtype = p->grads.dtype;
    double R = golden_r(dtype);

    golden_set_grads(params, &p->grads);
    if (optim != NULL && p->by_norm)
        golden_call(c, "zro_clip_grad_norm", zro_clip_grad_norm(optim, p->max, p->norm_type, norm));
    else if (optim != NULL)
        golden_call(c, "zro_clip_grad_value", zro_clip_grad_value(optim, p->max));
    zro_optim_destroy(optim);
    if (!golden_ok(c))
        return params;
    if (p->by_norm)
        golden_near(c, "total_norm", dtype, *norm, p->total_norm, R * fabs(p->total_norm));
    for (size_t i = 0; i < p->clipped.n; i++) {
        c->param = i;
        golden_near_all(c, "the clipped gradient", dtype, params[i].grad, &p->clipped.at[i], R, 0);
        for (size_t k = 0; p->clipped.at[i].data == NULL && k < ABSENT_COUNT; k++)
            if (!isnan(golden_element(params[i].grad, dtype, k)))
                golden_fail(c, "its gradient is absent and has been written");
        if (params[i].grad_present != (p->clipped.at[i].data != NULL))
            golden_fail(c, "grad_present has become %u", (unsigned)params[i].grad_present);
    }
    c->param = GOLDEN_NOWHERE;
    return params;
}

static void compare_with_call(golden_case *c, const clip *p, const zro_param *step, const zro_param *call)
{
    for (size_t i = 0; i < p->grads.n; i++) {
        int absent = p->grads.at[i].data == NULL;

        c->param = i;
        for (c->element = 0; c->element < p->zeros.at[i].count; c->element++) {
            double x = absent ? 0 : -golden_element(call[i].grad, p->grads.dtype, c->element);

            golden_exact(c, "what SGD with the clip setting leaves", golden_element(step[i].data, p->grads.dtype, c->element),
                         x);
        }
        c->element = GOLDEN_NOWHERE;
    }
    c->param = GOLDEN_NOWHERE;
}

static void check_setting(golden_case *c, const clip *p, const zro_param *call, double norm)
{
    zro_param *params = golden_params(c, &p->zeros, NULL);
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_step_info info = ZRO_STEP_INFO_INIT;
    zro_value lr = { "lr", 1 };
    zro_optim *optim;

    if (p->by_norm) {
        config.clip_norm = p->max;
        config.clip_norm_type = p->norm_type;
    } else {
        config.clip_value = p->max;
    }
    optim = golden_make_optim(c, params, p->zeros.n, zro_rule_sgd(), &lr, 1, &config);
    golden_set_grads(params, &p->grads);
    if (optim != NULL && golden_call(c, "zro_optim_step", zro_optim_step(optim, NULL))
        && golden_call(c, "zro_optim_info", zro_optim_info(optim, &info))) {
        compare_with_call(c, p, params, call);
        if (p->by_norm)
            golden_exact(c, "the norm in zro_step_info", info.norm, norm);
    }
    zro_optim_destroy(optim);
}

void golden_clip(golden_case *c)
{
    const zro_param *call;
    double norm = NAN;
    clip p = { 0 };

    if (!golden_keys(c, "the case", c->json, "kind dtype norm_type max grads total_norm clipped", ""))
        return;
    golden_about(c, "%s %s", golden_string(c, c->json, "kind", ""), golden_string(c, c->json, "dtype", ""));
    read_clip(c, &p);
    if (!golden_ok(c))
        return;
    make_zeros(c, &p);
    if (!golden_ok(c))
        return;
    call = check_call(c, &p, &norm);
    if (golden_ok(c) && p.max > 0) /* as a setting, 0 is off */
        check_setting(c, &p, call, norm);
}
