/* torch_state.json: a training of PyTorch's goes on from its state dict, on one rank, on two, and without ranks.
 *
 * The optimizer that loads it was made with other values, which must leave no trace. */
#include <string.h>

#include "golden.h"

typedef struct step {
    golden_vectors grads, params;
} step;

typedef struct resumed {
    const zro_rule *rule;
    json_t *shapes;
    golden_vectors params;
    step *steps;
    size_t n_steps;
    golden_dict before, after;
    golden_extent *extents;
} resumed;

enum { MOST_RANKS = 2 };

int golden_ranks_of_torch_state(json_t *json)
{
    (void)json;
    return MOST_RANKS;
}

static void read_steps(golden_case *c, resumed *r)
{
    json_t *list = golden_list(c, c->json, "steps");

    r->n_steps = json_array_size(list);
    r->steps = golden_alloc(c, r->n_steps * sizeof *r->steps);
    for (c->step = 0; golden_ok(c) && c->step < r->n_steps; c->step++) {
        json_t *json = json_array_get(list, c->step);
        step *s = &r->steps[c->step];

        if (!golden_keys(c, "the step", json, "grads params", ""))
            return;
        s->grads = golden_read_vectors(c, json, "grads", r->params.dtype, GOLDEN_NULL_IS_ABSENT, &r->params);
        s->params = golden_read_vectors(c, json, "params", r->params.dtype, GOLDEN_NO_NULL, &r->params);
    }
    c->step = GOLDEN_NOWHERE;
}

static void read_resumed(golden_case *c, resumed *r)
{
    zro_dtype dtype = golden_dtype(c, c->json);

    r->rule = golden_rule(c, golden_string(c, c->json, "optimizer", ""));
    r->shapes = golden_list(c, c->json, "shapes");
    r->params = golden_read_vectors(c, c->json, "params", dtype, GOLDEN_NO_NULL, NULL);
    read_steps(c, r);
    r->before = golden_read_dict(c, c->json, "state_dict", r->rule, &r->params);
    r->after = golden_read_dict(c, c->json, "state_dict_after", r->rule, &r->params);
    if (golden_ok(c) && r->before.n_groups != r->after.n_groups)
        golden_fail(c, "\"state_dict\" has %zu groups, \"state_dict_after\" has %zu", r->before.n_groups, r->after.n_groups);
    if (!golden_ok(c))
        return;
    r->extents = golden_dict_extents(c, &r->after);
    golden_extend(r->extents, NULL, &r->params);
    for (size_t k = 0; k < r->n_steps; k++)
        golden_extend(r->extents, &r->steps[k].grads, &r->steps[k].params);
}

/* An optimizer with the dict's groups and the rule's own values, but for lr. */
static zro_optim *make(golden_case *c, const resumed *r, zro_group *ranks, zro_param *params, zro_partition partition)
{
    zro_param_group *groups = golden_alloc(c, r->before.n_groups * sizeof *groups);
    zro_plan_config plan = ZRO_PLAN_CONFIG_INIT;
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_value lr = { "lr", 0.75 };

    plan.partition = partition;
    config.plan = &plan;
    for (size_t g = 0; g < r->before.n_groups; g++) {
        groups[g] = (zro_param_group){ .params = params, .n = r->before.groups[g].n_params, .values = &lr, .n_values = 1 };
        params += groups[g].n;
    }
    return golden_make_sharded(c, ranks, groups, r->before.n_groups, r->rule, &config);
}

static int load(golden_case *c, const resumed *r, zro_optim *optim, const zro_param *params)
{
    zro_state *state = golden_make_state(c, &r->before, params);
    int loaded = state != NULL && golden_call(c, "zro_optim_load", zro_optim_load(optim, state));

    zro_state_destroy(state);
    return loaded;
}

static void resume(golden_case *c, const resumed *r, zro_group *ranks, zro_partition partition)
{
    zro_param *params = golden_params(c, &r->params, r->shapes);
    zro_optim *optim = make(c, r, ranks, params, partition);
    int going = optim != NULL && load(c, r, optim, params);

    if (going)
        golden_check_consolidated(c, &r->before, optim, ranks, r->extents);
    for (c->step = 0; going && c->step < r->n_steps; c->step++) {
        golden_set_grads(params, &r->steps[c->step].grads);
        going = golden_call(c, "zro_optim_step", zro_optim_step(optim, NULL));
        if (going)
            golden_check_params(c, params, &r->steps[c->step].params, r->extents);
    }
    c->step = GOLDEN_NOWHERE;
    if (going)
        golden_check_consolidated(c, &r->after, optim, ranks, r->extents);
    zro_optim_destroy(optim);
}

static void resume_alone(golden_case *c, zro_group *group, const void *user)
{
    (void)group;
    c->how = "not sharded";
    resume(c, user, NULL, ZRO_PARTITION_AUTO);
}

static void resume_sharded(golden_case *c, zro_group *group, const void *user)
{
    int one = zro_group_size(group) == 1;

    c->how = one ? "1 rank, flat" : "2 ranks, flat";
    resume(c, user, group, ZRO_PARTITION_AUTO);
    c->how = one ? "1 rank, greedy" : "2 ranks, greedy";
    if (golden_ok(c))
        resume(c, user, group, ZRO_PARTITION_GREEDY);
}

void golden_torch_state(golden_case *c)
{
    resumed r = { 0 };

    if (!golden_keys(c, "the case", c->json, "optimizer dtype shapes params state_dict steps state_dict_after", ""))
        return;
    golden_about(c, "%s %s", golden_string(c, c->json, "optimizer", ""), golden_string(c, c->json, "dtype", ""));
    read_resumed(c, &r);
    golden_describe(c, &r.params, r.shapes);
    golden_on_ranks(c, 1, resume_alone, &r);
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++)
        golden_on_ranks(c, ranks, resume_sharded, &r);
}
