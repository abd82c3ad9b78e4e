/* zero_train.json: a sharded training.
 *
 * Every rank has parameters of its own and its gradients of the file, which are averaged over the ranks before each step.  What
 * PyTorch computed does not depend on who owns what nor on where parameters lie, so each case is gone through in several
 * ways. */
#include <math.h>
#include <string.h>

#include "golden.h"

typedef struct iteration {
    golden_vectors *grads; /* by rank */
    golden_vectors params; /* after it */
} iteration;

typedef struct train {
    int world_size;
    const zro_rule *rule;
    zro_value *values;
    size_t n_values;
    zro_switch view;
    json_t *schedule, *shapes; /* schedule: NULL if there is none */
    golden_vectors params0;
    golden_vector lrs;
    iteration *iterations;
    size_t n;
    golden_dict dict;
    golden_extent *extents;
} train;

typedef enum place { AS_THE_CASE_SAYS, HANDED_OUT } place;

static const struct way {
    const char *name;
    zro_partition partition;
    place place;
} ways[] = {
    { "flat", ZRO_PARTITION_AUTO, AS_THE_CASE_SAYS },
    { "greedy", ZRO_PARTITION_GREEDY, AS_THE_CASE_SAYS },
    { "flat, handed out", ZRO_PARTITION_AUTO, HANDED_OUT },
    { "greedy, handed out", ZRO_PARTITION_GREEDY, HANDED_OUT },
};

/* ---- reading ---- */

int golden_ranks_of_zero_train(json_t *json)
{
    double size = json_number_value(json_object_get(json, "world_size"));

    return size >= 1 && size <= GOLDEN_MAX_RANKS ? (int)size : 1;
}

static void read_iterations(golden_case *c, train *t)
{
    json_t *grads = golden_list(c, c->json, "grads"), *params = golden_list(c, c->json, "params");

    t->lrs = golden_read_vector(c, "lrs", golden_list(c, c->json, "lrs"), ZRO_F64);
    t->n = t->lrs.count;
    if (json_array_size(grads) != t->n || json_array_size(params) != t->n)
        golden_fail(c, "\"grads\" has %zu iterations and \"params\" has %zu, \"lrs\" has %zu", json_array_size(grads),
                    json_array_size(params), t->n);
    t->iterations = golden_alloc(c, t->n * sizeof *t->iterations);
    for (c->step = 0; golden_ok(c) && c->step < t->n; c->step++) {
        iteration *it = &t->iterations[c->step];
        json_t *of_ranks = json_array_get(grads, c->step);

        it->params = golden_read_vector_list(c, "params", json_array_get(params, c->step), t->params0.dtype, GOLDEN_NO_NULL,
                                             &t->params0);
        it->grads = golden_alloc(c, (size_t)t->world_size * sizeof *it->grads);
        if (json_array_size(of_ranks) != (size_t)t->world_size)
            golden_fail(c, "\"grads\" has %zu ranks, must have %d", json_array_size(of_ranks), t->world_size);
        for (size_t r = 0; golden_ok(c) && r < (size_t)t->world_size; r++)
            it->grads[r] = golden_read_vector_list(c, "grads", json_array_get(of_ranks, r), t->params0.dtype,
                                                   GOLDEN_NULL_IS_ABSENT, &t->params0);
    }
    c->step = GOLDEN_NOWHERE;
}

static void read_train(golden_case *c, train *t)
{
    zro_dtype dtype = golden_dtype(c, c->json);

    t->world_size = golden_world_size(c, c->json);
    t->rule = golden_rule(c, golden_string(c, c->json, "optimizer", ""));
    t->values = golden_values(c, t->rule, json_object_get(c->json, "options"), &t->n_values);
    t->view = golden_flag(c, c->json, "parameters_as_bucket_view", ZRO_OFF);
    t->shapes = golden_list(c, c->json, "shapes");
    t->params0 = golden_read_vectors(c, c->json, "params0", dtype, GOLDEN_NO_NULL, NULL);
    if (golden_given(c->json, "lr_schedule")) {
        t->schedule = json_object_get(c->json, "lr_schedule");
        golden_keys(c, "\"lr_schedule\"", t->schedule, "name args", "");
    }
    read_iterations(c, t);
    t->dict = golden_read_dict(c, c->json, "state_dict", t->rule, &t->params0);
    if (golden_ok(c) && t->dict.n_groups != 1)
        golden_fail(c, "\"param_groups\" has %zu entries, must have 1", t->dict.n_groups);
    if (!golden_ok(c))
        return;
    t->extents = golden_dict_extents(c, &t->dict);
    golden_extend(t->extents, NULL, &t->params0);
    for (size_t k = 0; k < t->n; k++) {
        golden_extend(t->extents, NULL, &t->iterations[k].params);
        for (int r = 0; r < t->world_size; r++)
            golden_extend(t->extents, &t->iterations[k].grads[r], NULL);
    }
}

/* ---- on a rank ---- */

typedef struct run {
    const train *t;
    zro_group *group;
    zro_param *params;
    void **addresses; /* of the parameters before there was an optimizer */
    zro_optim *optim;
    zro_schedule *schedule;
} run;

/* A gradient that is absent on some ranks is zero there. */
static int average_grads(golden_case *c, run *r, const iteration *it)
{
    int rank = zro_group_rank(r->group), size = zro_group_size(r->group);
    zro_dtype dtype = r->t->params0.dtype;

    golden_set_grads(r->params, &it->grads[rank]);
    for (size_t i = 0; i < r->t->params0.n; i++) {
        size_t count = r->t->params0.at[i].count;
        int present = 0;

        for (int k = 0; k < size; k++)
            present |= it->grads[k].at[i].data != NULL;
        if (present && !r->params[i].grad_present && count > 0)
            memset(r->params[i].grad, 0, count * zro_dtype_bytes(dtype));
        r->params[i].grad_present = (uint32_t)present;
        c->param = i;
        if (present && !golden_call(c, "zro_all_reduce", zro_all_reduce(r->group, r->params[i].grad, count, dtype, ZRO_AVG)))
            return 0;
    }
    c->param = GOLDEN_NOWHERE;
    return 1;
}

/* Parameters that were handed out may exist once: the first rank writes them, and publishing makes them known. */
static int make(golden_case *c, run *r, const struct way *way)
{
    const train *t = r->t;
    zro_plan_config plan = ZRO_PLAN_CONFIG_INIT;
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_param_group group = { .n = t->params0.n, .values = t->values, .n_values = t->n_values };

    plan.partition = way->partition;
    config.plan = &plan;
    r->addresses = golden_alloc(c, t->params0.n * sizeof *r->addresses);
    if (way->place == HANDED_OUT) {
        r->params = golden_describe(c, &t->params0, t->shapes);
        if (!golden_call(c, "zro_params_alloc", zro_params_alloc(r->group, r->params, t->params0.n, NULL)))
            return 0;
        if (zro_group_rank(r->group) == 0)
            golden_set_params(r->params, &t->params0);
    } else {
        r->params = golden_params(c, &t->params0, t->shapes);
        config.parameters_as_bucket_view = t->view;
    }
    for (size_t i = 0; i < t->params0.n; i++)
        r->addresses[i] = r->params[i].data;
    group.params = r->params;
    r->optim = golden_make_sharded(c, r->group, &group, 1, t->rule, &config);
    if (r->optim == NULL)
        return 0;
    if (t->schedule != NULL)
        r->schedule =
            golden_make_schedule(c, r->optim, golden_string(c, t->schedule, "name", ""), json_object_get(t->schedule, "args"));
    if (way->place == HANDED_OUT)
        golden_call(c, "zro_param_publish", zro_param_publish(r->optim, ZRO_ALL_PARAMS, 0));
    return golden_ok(c);
}

static int step_schedule(golden_case *c, const run *r)
{
    return r->schedule == NULL || golden_call(c, "zro_schedule_step", zro_schedule_step(r->schedule));
}

/* Whether the file's state is that after the last iteration's step of the schedule: then lr has gone on. */
static int ends_with_schedule(const train *t)
{
    double last = golden_element(t->lrs.data, ZRO_F64, t->n - 1);

    for (size_t i = 0; i < t->dict.groups[0].n_values; i++)
        if (strcmp(t->dict.groups[0].values[i].name, "lr") == 0)
            return t->dict.groups[0].values[i].value != last;
    return 1;
}

static int go_through(golden_case *c, run *r)
{
    const train *t = r->t;

    for (c->step = 0; c->step < t->n; c->step++) {
        const iteration *it = &t->iterations[c->step];
        double x = golden_element(t->lrs.data, ZRO_F64, c->step), lr = NAN;

        if (c->step > 0 && !step_schedule(c, r))
            return 0;
        if (!golden_call(c, "zro_optim_get_value", zro_optim_get_value(r->optim, 0, "lr", &lr)))
            return 0;
        golden_near(c, "the learning rate", ZRO_F64, lr, x, 1e-12 * fabs(x) + 1e-18);
        if (!average_grads(c, r, it) || !golden_call(c, "zro_optim_step", zro_optim_step(r->optim, NULL)))
            return 0;
        golden_check_params(c, r->params, &it->params, t->extents);
    }
    c->step = GOLDEN_NOWHERE;
    return !ends_with_schedule(t) || step_schedule(c, r);
}

/* The optimizer gives parameters back where they were, with the values that they have now. */
static void check_given_back(golden_case *c, const run *r)
{
    for (c->param = 0; c->param < r->t->params0.n; c->param++)
        if (r->params[c->param].data != r->addresses[c->param])
            golden_fail(c, "its data has not come back to where it was");
    c->param = GOLDEN_NOWHERE;
    golden_check_params(c, r->params, &r->t->iterations[r->t->n - 1].params, r->t->extents);
}

static void go(golden_case *c, zro_group *group, const train *t, const struct way *way)
{
    run r = { .t = t, .group = group };
    int through = make(c, &r, way) && go_through(c, &r);

    if (through)
        golden_check_consolidated(c, &t->dict, r.optim, group, t->extents);
    zro_schedule_destroy(r.schedule);
    zro_optim_destroy(r.optim);
    if (through)
        check_given_back(c, &r);
    if (way->place == HANDED_OUT && r.params != NULL)
        zro_params_free(r.params, t->params0.n);
}

static void train_on_rank(golden_case *c, zro_group *group, const void *user)
{
    for (size_t w = 0; golden_ok(c) && w < sizeof ways / sizeof *ways; w++) {
        c->how = ways[w].name;
        go(c, group, user, &ways[w]);
    }
}

void golden_zero_train(golden_case *c)
{
    train t = { 0 };

    if (!golden_keys(c, "the case", c->json,
                     "world_size dtype optimizer options shapes parameters_as_bucket_view lr_schedule params0 grads lrs params "
                     "state_dict",
                     ""))
        return;
    golden_about(c, "%s %s", golden_string(c, c->json, "optimizer", ""), golden_string(c, c->json, "dtype", ""));
    read_train(c, &t);
    if (!golden_ok(c))
        return;
    golden_about(c, "%s %s, %d ranks%s", t.rule->torch, golden_string(c, c->json, "dtype", ""), t.world_size,
                 t.view ? ", bucket view" : "");
    golden_describe(c, &t.params0, t.shapes);
    golden_on_ranks(c, t.world_size, train_on_rank, &t);
}
