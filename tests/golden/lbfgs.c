/* lbfgs.json: L-BFGS on f(x) = sum over i of a_i (x_i - b_i)^2 + c (x_i - b_i)^4, computed in the type of the case. */
#include <math.h>

#include "golden.h"

typedef struct function {
    golden_vectors a, b;
    double c;
    zro_param *params;
} function;

static double add_f32(const function *f, size_t p)
{
    const float *a = f->a.at[p].data, *b = f->b.at[p].data, *x = f->params[p].data, c = (float)f->c;
    float *grad = f->params[p].grad;
    double sum = 0;

    for (size_t i = 0; i < f->a.at[p].count; i++) {
        float d = x[i] - b[i], d2 = d * d;

        sum += (double)(a[i] * d2 + c * d2 * d2);
        grad[i] = 2 * a[i] * d + 4 * c * d2 * d;
    }
    return sum;
}

static double add_f64(const function *f, size_t p)
{
    const double *a = f->a.at[p].data, *b = f->b.at[p].data, *x = f->params[p].data, c = f->c;
    double *grad = f->params[p].grad;
    double sum = 0;

    for (size_t i = 0; i < f->a.at[p].count; i++) {
        double d = x[i] - b[i], d2 = d * d;

        sum += a[i] * d2 + c * d2 * d2;
        grad[i] = 2 * a[i] * d + 4 * c * d2 * d;
    }
    return sum;
}

static zro_status evaluate(void *user, double *loss)
{
    function *f = user;
    double sum = 0;

    for (size_t p = 0; p < f->a.n; p++) {
        sum += f->a.dtype == ZRO_F64 ? add_f64(f, p) : add_f32(f, p);
        f->params[p].grad_present = 1;
    }
    *loss = f->a.dtype == ZRO_F64 ? sum : (double)(float)sum;
    return ZRO_OK;
}

static void read_options(golden_case *c, json_t *o, zro_lbfgs_config *config)
{
    if (!golden_keys(c, "\"options\"", o, "",
                     "lr max_iter max_eval tolerance_grad tolerance_change history_size line_search_fn"))
        return;
    config->lr = golden_number(c, o, "lr", 1);
    config->max_iter = golden_count(c, o, "max_iter", 20);
    config->max_eval = golden_given(o, "max_eval") ? golden_count(c, o, "max_eval", 0) : 0;
    config->tolerance_grad = golden_number(c, o, "tolerance_grad", 1e-7);
    config->tolerance_change = golden_number(c, o, "tolerance_change", 1e-9);
    config->history_size = golden_count(c, o, "history_size", 100);
    if (golden_given(o, "line_search_fn") && golden_word(c, o, "line_search_fn", "strong_wolfe", 1) == 0)
        config->strong_wolfe = ZRO_ON;
}

static void check_step(golden_case *c, function *f, zro_lbfgs *lbfgs, json_t *step)
{
    zro_dtype dtype = f->a.dtype;
    double relative = dtype == ZRO_F64 ? 1e-10 : 1e-4, absolute = dtype == ZRO_F64 ? 1e-11 : 1e-5, loss = 0, x;
    golden_vectors params;
    uint32_t evaluations, iterations;

    if (!golden_keys(c, "the step", step, "loss func_evals n_iter params", ""))
        return;
    params = golden_read_vectors(c, step, "params", dtype, GOLDEN_NO_NULL, &f->a);
    x = golden_number(c, step, "loss", 0);
    evaluations = golden_count(c, step, "func_evals", 0);
    iterations = golden_count(c, step, "n_iter", 0);
    if (!golden_ok(c) || !golden_call(c, "zro_lbfgs_step", zro_lbfgs_step(lbfgs, evaluate, f, &loss)))
        return;
    if (dtype == ZRO_F32)
        x = (double)(float)x;
    golden_near(c, "the loss", dtype, loss, x, relative * fabs(x) + absolute);
    for (size_t p = 0; p < params.n; p++) {
        c->param = p;
        golden_near_all(c, "the parameter", dtype, f->params[p].data, &params.at[p], relative, absolute);
    }
    c->param = GOLDEN_NOWHERE;
    if (dtype == ZRO_F64) {
        golden_exact(c, "func_evals", (double)zro_lbfgs_evaluations(lbfgs), evaluations);
        golden_exact(c, "n_iter", (double)zro_lbfgs_iterations(lbfgs), iterations);
    }
}

void golden_lbfgs(golden_case *c)
{
    zro_lbfgs_config config = ZRO_LBFGS_CONFIG_INIT;
    zro_lbfgs *lbfgs = NULL;
    golden_vectors start;
    zro_dtype dtype;
    function f = { 0 };
    json_t *steps;

    if (!golden_keys(c, "the case", c->json, "options dtype a b c params0 steps", ""))
        return;
    golden_about(c, "LBFGS %s", golden_string(c, c->json, "dtype", ""));
    dtype = golden_dtype(c, c->json);
    start = golden_read_vectors(c, c->json, "params0", dtype, GOLDEN_NO_NULL, NULL);
    f.a = golden_read_vectors(c, c->json, "a", dtype, GOLDEN_NO_NULL, &start);
    f.b = golden_read_vectors(c, c->json, "b", dtype, GOLDEN_NO_NULL, &start);
    f.c = golden_number(c, c->json, "c", 0);
    steps = golden_list(c, c->json, "steps");
    read_options(c, json_object_get(c->json, "options"), &config);
    if (!golden_ok(c))
        return;
    f.params = golden_params(c, &start, NULL);
    config.settings = c->options->settings;
    if (!golden_call(c, "zro_lbfgs_create", zro_lbfgs_create(f.params, start.n, &config, &lbfgs)))
        return;
    for (c->step = 0; c->step < json_array_size(steps); c->step++)
        check_step(c, &f, lbfgs, json_array_get(steps, c->step));
    zro_lbfgs_destroy(lbfgs);
}
