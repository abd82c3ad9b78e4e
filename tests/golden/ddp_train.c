/* ddp_train.json: data-parallel training with prescribed gradients.
 *
 * In each iteration every rank adds up the gradients of its micro-batches, all but the last of which are under no_sync.  The
 * sums are averaged over the ranks, clipped where the case says so, and used in a step.  What PyTorch computed does not depend
 * on who averages, who owns what nor on where arrays lie, so each case is gone through in several ways: with an optimizer beside
 * the ddp, which sees averaged gradients, and with one that is attached to it and consumes them.  In cases without ddp the
 * gradients are averaged by hand; then the same is done by a ddp that finds unused parameters, which promises the same numbers.
 *
 * Gradients that are absent are NaNs, and all ranks but the first start with parameters that are NaNs: nobody may use them. */
#include <math.h>
#include <string.h>

#include "golden.h"

typedef struct param_group {
    golden_counts params; /* indices in params0 */
    zro_value *options;
    size_t n_options;
} param_group;

typedef struct iteration {
    size_t n_groups;    /* how many groups the optimizer has, the one included that is added at the start */
    zro_value **values; /* by group: what is set at the start; other values stay as they are */
    size_t *n_values;
    uint32_t *frozen;       /* by parameter */
    uint32_t *present;      /* by parameter: a rank has its gradient in a micro-batch */
    golden_vectors **grads; /* by rank and micro-batch */
    size_t n_micro;
    double total_norm;     /* NaN: it is not clipped */
    golden_vectors params; /* after it */
} iteration;

typedef struct train {
    int world_size;
    const zro_rule *rule;
    zro_switch view;
    json_t *shapes;
    golden_vectors params0;
    int has_ddp;           /* 0: gradients are averaged by hand */
    zro_ddp_config ddp;    /* of the ways with a ddp */
    double clip_norm;      /* 0: no clipping */
    double clip_norm_type; /* 2, INFINITY, ... */
    param_group *groups;   /* those that are added included, in this order */
    size_t n_first;        /* how many groups the optimizer is created with */
    iteration *iterations;
    size_t n;
    golden_vectors in_groups; /* params0 in the order of the groups, which is that of the state */
    golden_dict dict;
    golden_extent *extents;         /* by parameter */
    golden_extent *extents_of_dict; /* the same in the order of the groups */
} train;

typedef enum place { AS_THE_CASE_SAYS, HANDED_OUT } place;

typedef enum averager {
    BY_HAND,        /* zro_params_all_reduce */
    BESIDE,         /* a ddp alone; the optimizer does not know of it */
    ATTACHED,       /* the optimizer's step, which may overlap with backward, consumes the gradients of the ddp */
    ATTACHED_LATER, /* the same, without overlap, and zro_ddp_average is called first */
} averager;

static const struct way {
    const char *name;
    averager averager;
    place place;
    zro_partition partition;
    int is_unsharded;
} ways[] = {
    { "by hand", BY_HAND, AS_THE_CASE_SAYS, ZRO_PARTITION_AUTO, 0 },
    { "by hand, handed out", BY_HAND, HANDED_OUT, ZRO_PARTITION_GREEDY, 0 },
    { "beside", BESIDE, AS_THE_CASE_SAYS, ZRO_PARTITION_AUTO, 0 },
    { "beside, not sharded", BESIDE, AS_THE_CASE_SAYS, ZRO_PARTITION_AUTO, 1 },
    { "beside, handed out", BESIDE, HANDED_OUT, ZRO_PARTITION_GREEDY, 0 },
    { "attached", ATTACHED, AS_THE_CASE_SAYS, ZRO_PARTITION_AUTO, 0 },
    { "attached, greedy", ATTACHED, AS_THE_CASE_SAYS, ZRO_PARTITION_GREEDY, 0 },
    { "attached, buckets", ATTACHED, AS_THE_CASE_SAYS, ZRO_PARTITION_BUCKETS, 0 },
    { "attached, handed out", ATTACHED, HANDED_OUT, ZRO_PARTITION_AUTO, 0 },
    { "attached, handed out, greedy", ATTACHED, HANDED_OUT, ZRO_PARTITION_GREEDY, 0 },
    { "attached and averaged", ATTACHED_LATER, AS_THE_CASE_SAYS, ZRO_PARTITION_AUTO, 0 },
    { "attached and averaged, handed out", ATTACHED_LATER, HANDED_OUT, ZRO_PARTITION_AUTO, 0 },
};

/* ---- reading ---- */

static void read_ddp(golden_case *c, train *t)
{
    json_t *ddp = json_object_get(c->json, "ddp");

    zro_ddp_config_init(&t->ddp);
    t->has_ddp = golden_given(c->json, "ddp");
    if (!t->has_ddp) {
        t->ddp.find_unused = ZRO_ON;
        return;
    }
    if (!golden_keys(c, "\"ddp\"", ddp, "find_unused_parameters static_graph gradient_as_bucket_view bucket_cap_bytes", ""))
        return;
    t->ddp.find_unused = golden_flag(c, ddp, "find_unused_parameters", ZRO_OFF);
    t->ddp.static_graph = golden_flag(c, ddp, "static_graph", ZRO_OFF);
    t->ddp.gradient_as_bucket_view = golden_flag(c, ddp, "gradient_as_bucket_view", ZRO_OFF);
    if (golden_given(ddp, "bucket_cap_bytes"))
        t->ddp.bucket_bytes = golden_count(c, ddp, "bucket_cap_bytes", 0);
}

static void read_clip(golden_case *c, train *t)
{
    json_t *clip = json_object_get(c->json, "clip");

    if (!golden_given(c->json, "clip") || !golden_keys(c, "\"clip\"", clip, "max_norm norm_type", ""))
        return;
    t->clip_norm = golden_number(c, clip, "max_norm", 0);
    if (json_is_string(json_object_get(clip, "norm_type")))
        t->clip_norm_type = golden_word(c, clip, "norm_type", "inf", 0) == 0 ? INFINITY : 0;
    else
        t->clip_norm_type = golden_number(c, clip, "norm_type", 0);
    if (!(t->clip_norm > 0))
        golden_fail(c, "\"max_norm\" is %g, must be positive", t->clip_norm);
}

static golden_counts read_indices(golden_case *c, const train *t, const char *what, json_t *json)
{
    golden_counts indices = golden_read_counts(c, what, json);

    for (size_t i = 0; i < indices.n; i++)
        if (indices.at[i] >= t->params0.n) {
            golden_fail(c, "\"%s\" has %zu, which is no parameter", what, indices.at[i]);
            indices.at[i] = 0;
        }
    return indices;
}

static void read_group(golden_case *c, const train *t, json_t *json, param_group *group)
{
    if (!golden_keys(c, "the group", json, "params options", ""))
        return;
    group->params = read_indices(c, t, "params", json_object_get(json, "params"));
    group->options = golden_values(c, t->rule, json_object_get(json, "options"), &group->n_options);
}

static void read_values(golden_case *c, const train *t, json_t *list, iteration *it)
{
    it->values = golden_alloc(c, it->n_groups * sizeof *it->values);
    it->n_values = golden_alloc(c, it->n_groups * sizeof *it->n_values);
    if (json_array_size(list) != it->n_groups)
        golden_fail(c, "\"values\" has %zu groups, must have %zu", json_array_size(list), it->n_groups);
    for (size_t g = 0; golden_ok(c) && g < it->n_groups; g++)
        it->values[g] = golden_values(c, t->rule, json_array_get(list, g), &it->n_values[g]);
}

/* Parameters that do not require gradients have none. */
static void note_presence(golden_case *c, const golden_vectors *grads, iteration *it)
{
    for (c->param = 0; golden_ok(c) && c->param < grads->n; c->param++) {
        if (grads->at[c->param].data == NULL)
            continue;
        it->present[c->param] = 1;
        if (it->frozen[c->param])
            golden_fail(c, "it is frozen and has a gradient");
    }
    c->param = GOLDEN_NOWHERE;
}

static void read_grads(golden_case *c, const train *t, json_t *of_ranks, iteration *it)
{
    it->present = golden_alloc(c, t->params0.n * sizeof *it->present);
    it->grads = golden_alloc(c, (size_t)t->world_size * sizeof *it->grads);
    it->n_micro = json_array_size(json_array_get(of_ranks, 0));
    if (json_array_size(of_ranks) != (size_t)t->world_size)
        golden_fail(c, "\"grads\" has %zu ranks, must have %d", json_array_size(of_ranks), t->world_size);
    if (it->n_micro == 0)
        golden_fail(c, "\"grads\" has no micro-batches");
    for (size_t r = 0; golden_ok(c) && r < (size_t)t->world_size; r++) {
        json_t *of_micro = json_array_get(of_ranks, r);

        if (json_array_size(of_micro) != it->n_micro)
            golden_fail(c, "\"grads\" has %zu micro-batches on rank %zu, %zu on rank 0", json_array_size(of_micro), r,
                        it->n_micro);
        it->grads[r] = golden_alloc(c, it->n_micro * sizeof *it->grads[r]);
        for (size_t m = 0; golden_ok(c) && m < it->n_micro; m++) {
            it->grads[r][m] = golden_read_vector_list(c, "grads", json_array_get(of_micro, m), t->params0.dtype,
                                                      GOLDEN_NULL_IS_ABSENT, &t->params0);
            note_presence(c, &it->grads[r][m], it);
        }
    }
}

static void read_iteration(golden_case *c, train *t, json_t *json, size_t n_groups, iteration *it)
{
    golden_counts frozen;

    if (!golden_keys(c, "the iteration", json, "add_group frozen values grads total_norm params", ""))
        return;
    it->n_groups = n_groups;
    if (golden_given(json, "add_group"))
        read_group(c, t, json_object_get(json, "add_group"), &t->groups[it->n_groups++]);
    it->frozen = golden_alloc(c, t->params0.n * sizeof *it->frozen);
    frozen = read_indices(c, t, "frozen", json_object_get(json, "frozen"));
    for (size_t i = 0; i < frozen.n; i++)
        it->frozen[frozen.at[i]] = 1;
    read_values(c, t, json_object_get(json, "values"), it);
    if (golden_ok(c))
        read_grads(c, t, json_object_get(json, "grads"), it);
    it->params = golden_read_vectors(c, json, "params", t->params0.dtype, GOLDEN_NO_NULL, &t->params0);
    it->total_norm = NAN;
    if (golden_given(json, "total_norm") != (t->clip_norm > 0))
        golden_fail(c, "\"total_norm\" must be given where there is \"clip\", and only there");
    else if (t->clip_norm > 0)
        it->total_norm = golden_number(c, json, "total_norm", 0);
    if (t->params0.dtype == ZRO_F32)
        it->total_norm = (double)(float)it->total_norm;
}

static void read_iterations(golden_case *c, train *t)
{
    json_t *groups = golden_list(c, c->json, "groups"), *list = golden_list(c, c->json, "iterations");
    size_t n_groups = json_array_size(groups);

    t->n_first = n_groups;
    t->n = json_array_size(list);
    t->groups = golden_alloc(c, (n_groups + t->n) * sizeof *t->groups);
    t->iterations = golden_alloc(c, t->n * sizeof *t->iterations);
    for (size_t g = 0; golden_ok(c) && g < n_groups; g++)
        read_group(c, t, json_array_get(groups, g), &t->groups[g]);
    for (c->step = 0; golden_ok(c) && c->step < t->n; c->step++) {
        read_iteration(c, t, json_array_get(list, c->step), n_groups, &t->iterations[c->step]);
        n_groups = t->iterations[c->step].n_groups;
    }
    c->step = GOLDEN_NOWHERE;
}

static void find_extents(golden_case *c, train *t)
{
    size_t next = 0;

    t->extents = golden_alloc(c, t->params0.n * sizeof *t->extents);
    golden_extend(t->extents, NULL, &t->params0);
    for (size_t k = 0; k < t->n; k++) {
        const iteration *it = &t->iterations[k];

        golden_extend(t->extents, NULL, &it->params);
        for (int r = 0; r < t->world_size; r++)
            for (size_t m = 0; m < it->n_micro; m++)
                golden_extend(t->extents, &it->grads[r][m], NULL);
    }
    t->extents_of_dict = golden_dict_extents(c, &t->dict);
    for (size_t g = 0; g < t->iterations[t->n - 1].n_groups; g++)
        for (size_t i = 0; i < t->groups[g].params.n; i++, next++) {
            const golden_extent *extent = &t->extents[t->groups[g].params.at[i]];

            t->extents_of_dict[next].grad = extent->grad;
            t->extents_of_dict[next].value = extent->value;
        }
}

static void read_train(golden_case *c, train *t)
{
    zro_dtype dtype = golden_dtype(c, c->json);

    t->world_size = golden_world_size(c, c->json);
    t->rule = golden_rule(c, golden_string(c, c->json, "optimizer", ""));
    t->view = golden_flag(c, c->json, "parameters_as_bucket_view", ZRO_OFF);
    t->shapes = golden_list(c, c->json, "shapes");
    t->params0 = golden_read_vectors(c, c->json, "params0", dtype, GOLDEN_NO_NULL, NULL);
    read_ddp(c, t);
    read_clip(c, t);
    if (!golden_ok(c))
        return;
    read_iterations(c, t);
    if (!golden_ok(c))
        return;
    t->in_groups = (golden_vectors){ golden_alloc(c, t->params0.n * sizeof *t->in_groups.at), 0, dtype };
    for (size_t g = 0; g < t->iterations[t->n - 1].n_groups; g++)
        for (size_t i = 0; i < t->groups[g].params.n; i++) {
            if (t->in_groups.n == t->params0.n) {
                golden_fail(c, "the groups have more than %zu parameters", t->params0.n);
                return;
            }
            t->in_groups.at[t->in_groups.n++] = t->params0.at[t->groups[g].params.at[i]];
        }
    t->dict = golden_read_dict(c, c->json, "state_dict", t->rule, &t->in_groups);
    if (golden_ok(c))
        find_extents(c, t);
}

/* ---- on a rank ---- */

typedef struct run {
    const train *t;
    const struct way *way;
    zro_group *group;
    zro_param *params;
    void **data, **grads; /* addresses before there was a ddp or an optimizer */
    zro_ddp *ddp;         /* NULL: averaged by hand */
    zro_optim *optim;
    size_t *ready; /* room for a list of parameters */
} run;

static zro_param_group describe_group(const run *r, size_t g)
{
    const param_group *from = &r->t->groups[g];

    return (zro_param_group){
        .params = r->params, .index = from->params.at, .n = from->params.n, .values = from->options, .n_values = from->n_options
    };
}

static void fill_with_nan(const run *r)
{
    for (size_t i = 0; i < r->t->params0.n; i++)
        for (size_t k = 0; k < r->t->params0.at[i].count; k++)
            golden_put(r->params[i].data, r->t->params0.dtype, k, NAN);
}

/* Only the first rank's parameters have values: memory that was handed out may exist once, and the ddp brings them to all
 * ranks.  Where gradients are averaged by hand, publishing does that, or all ranks have the values. */
static int make_params(golden_case *c, run *r)
{
    const train *t = r->t;

    r->data = golden_alloc(c, t->params0.n * sizeof *r->data);
    r->grads = golden_alloc(c, t->params0.n * sizeof *r->grads);
    r->ready = golden_alloc(c, t->params0.n * sizeof *r->ready);
    if (r->way->place == HANDED_OUT) {
        r->params = golden_describe(c, &t->params0, t->shapes);
        if (!golden_call(c, "zro_params_alloc", zro_params_alloc(r->group, r->params, t->params0.n, NULL)))
            return 0;
        if (zro_group_rank(r->group) == 0)
            golden_set_params(r->params, &t->params0);
    } else {
        r->params = golden_params(c, &t->params0, t->shapes);
        if (r->way->averager != BY_HAND && zro_group_rank(r->group) != 0)
            fill_with_nan(r);
    }
    for (size_t i = 0; i < t->params0.n; i++) {
        r->params[i].requires_grad = !t->iterations[0].frozen[i];
        r->data[i] = r->params[i].data;
        r->grads[i] = r->params[i].grad;
    }
    return 1;
}

static int make_ddp(golden_case *c, run *r)
{
    zro_ddp_config config = r->t->ddp;

    if (r->way->averager == BY_HAND)
        return 1;
    if (r->way->place == HANDED_OUT)
        config.gradient_as_bucket_view = ZRO_OFF;
    return golden_call(c, "zro_ddp_create", zro_ddp_create(r->group, r->params, r->t->params0.n, &config, &r->ddp));
}

static int make_optim(golden_case *c, run *r)
{
    const train *t = r->t;
    zro_plan_config plan = ZRO_PLAN_CONFIG_INIT;
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_param_group *groups = golden_alloc(c, t->n_first * sizeof *groups);

    plan.partition = r->way->partition;
    config.plan = &plan;
    if (r->way->place == AS_THE_CASE_SAYS && !r->way->is_unsharded)
        config.parameters_as_bucket_view = t->view;
    if (r->way->averager == ATTACHED) {
        config.clip_norm = t->clip_norm;
        if (t->clip_norm > 0)
            config.clip_norm_type = t->clip_norm_type;
    }
    if (r->way->averager == ATTACHED || r->way->averager == ATTACHED_LATER)
        config.ddp = r->ddp;
    if (r->way->averager == ATTACHED)
        config.overlap = c->options->overlap;
    for (size_t g = 0; g < t->n_first; g++)
        groups[g] = describe_group(r, g);
    r->optim = golden_make_sharded(c, r->way->is_unsharded ? NULL : r->group, groups, t->n_first, t->rule, &config);
    return r->optim != NULL;
}

static int make(golden_case *c, run *r)
{
    if (!make_params(c, r) || !make_ddp(c, r) || !make_optim(c, r))
        return 0;
    return r->ddp != NULL || r->way->place != HANDED_OUT
           || golden_call(c, "zro_param_publish", zro_param_publish(r->optim, ZRO_ALL_PARAMS, 0));
}

/* Whether the bits of the optimizer's parameters are these; NULL: none is set. */
static void check_presence(golden_case *c, const run *r, const iteration *it, const uint32_t *present, const char *when)
{
    for (size_t g = 0; g < it->n_groups; g++)
        for (size_t i = 0; i < r->t->groups[g].params.n; i++) {
            c->param = r->t->groups[g].params.at[i];
            if (r->params[c->param].grad_present != (present != NULL && present[c->param]))
                golden_fail(c, "grad_present is %u %s", (unsigned)r->params[c->param].grad_present, when);
        }
    c->param = GOLDEN_NOWHERE;
}

/* All values of a group in one call, because some of them are allowed only together. */
static int set_values(golden_case *c, const run *r, const iteration *it)
{
    size_t n = zro_optim_values(r->optim);
    double *values = golden_alloc(c, n * sizeof *values);

    for (size_t g = 0; g < it->n_groups; g++) {
        if (!golden_call(c, "zro_optim_get_values", zro_optim_get_values(r->optim, g, values, n)))
            return 0;
        for (size_t v = 0; v < n; v++)
            for (size_t k = 0; k < it->n_values[g]; k++)
                if (strcmp(it->values[g][k].name, zro_optim_value_name(r->optim, v)) == 0)
                    values[v] = it->values[g][k].value;
        if (!golden_call(c, "zro_optim_set_values", zro_optim_set_values(r->optim, g, values, n)))
            return 0;
    }
    return 1;
}

/* Adds a group, freezes, sets values; all gradients are absent then. */
static int begin_iteration(golden_case *c, run *r, const iteration *it, size_t n_groups)
{
    golden_vectors none = { golden_alloc(c, r->t->params0.n * sizeof *none.at), r->t->params0.n, r->t->params0.dtype };

    if (r->way->averager != ATTACHED && r->way->averager != ATTACHED_LATER
        && !golden_call(c, "zro_optim_zero_grad", zro_optim_zero_grad(r->optim, ZRO_ZERO_LEAVE)))
        return 0;
    if (it->n_groups > n_groups) {
        zro_param_group group = describe_group(r, n_groups);

        if (!golden_call(c, "zro_optim_add_param_group", zro_optim_add_param_group(r->optim, &group)))
            return 0;
    }
    check_presence(c, r, it, NULL, "at the start of an iteration");
    golden_set_grads(r->params, &none);
    for (size_t i = 0; i < r->t->params0.n; i++)
        r->params[i].requires_grad = !it->frozen[i];
    return set_values(c, r, it);
}

/* Backward of one micro-batch: adds its gradients to those that are there.  Lists the parameters in `ready`, from the last to
 * the first, and returns how many they are. */
static size_t backward(run *r, const golden_vectors *grads)
{
    size_t n = 0;

    for (size_t i = grads->n; i-- > 0;) {
        const golden_vector *from = &grads->at[i];

        for (size_t k = 0; k < from->count; k++) {
            double old = r->params[i].grad_present ? golden_element(r->params[i].grad, grads->dtype, k) : 0;

            golden_put(r->params[i].grad, grads->dtype, k, old + golden_element(from->data, grads->dtype, k));
        }
        if (from->data != NULL)
            r->ready[n++] = i;
    }
    return n;
}

/* Odd ranks tell of all gradients in one call; in every other iteration, unused parameters are told of, too. */
static int tell(golden_case *c, run *r, const iteration *it, const golden_vectors *grads, size_t n)
{
    int says_unused = r->t->ddp.find_unused && !r->t->ddp.static_graph && c->step % 2 == 1;

    if (zro_group_rank(r->group) % 2 == 1) {
        if (!golden_call(c, "zro_ddp_grads_ready", zro_ddp_grads_ready(r->ddp, r->ready, n)))
            return 0;
    } else {
        for (size_t i = 0; i < n; i++)
            if (!golden_call(c, "zro_ddp_grad_ready", zro_ddp_grad_ready(r->ddp, r->ready[i])))
                return 0;
    }
    for (size_t i = 0; says_unused && i < grads->n; i++)
        if (grads->at[i].data == NULL && !it->frozen[i] && !golden_call(c, "zro_ddp_unused", zro_ddp_unused(r->ddp, i)))
            return 0;
    return 1;
}

static int run_micro_batch(golden_case *c, run *r, const iteration *it, size_t m)
{
    const golden_vectors *grads = &it->grads[zro_group_rank(r->group)][m];
    size_t n;

    if (r->ddp == NULL) {
        n = backward(r, grads);
        for (size_t i = 0; i < n; i++)
            zro_param_set_grad(&r->params[r->ready[i]], r->params[r->ready[i]].grad);
        return 1;
    }
    if (m == 0 && it->n_micro > 1 && !golden_call(c, "zro_ddp_no_sync", zro_ddp_no_sync(r->ddp, ZRO_ON)))
        return 0;
    if (m > 0 && m == it->n_micro - 1 && !golden_call(c, "zro_ddp_no_sync", zro_ddp_no_sync(r->ddp, ZRO_OFF)))
        return 0;
    if (!golden_call(c, "zro_ddp_forward", zro_ddp_forward(r->ddp)))
        return 0;
    n = backward(r, grads);
    return tell(c, r, it, grads, n) && golden_call(c, "zro_ddp_backward_end", zro_ddp_backward_end(r->ddp));
}

/* Brings the average to all ranks, except where the step of an attached optimizer does without. */
static int average(golden_case *c, run *r, const iteration *it)
{
    if (r->way->averager == ATTACHED)
        return 1;
    if (r->way->averager == BY_HAND
        && !golden_call(c, "zro_params_all_reduce", zro_params_all_reduce(r->group, r->params, r->t->params0.n, ZRO_AVG)))
        return 0;
    if (r->way->averager == ATTACHED_LATER && !golden_call(c, "zro_ddp_average", zro_ddp_average(r->ddp)))
        return 0;
    check_presence(c, r, it, it->present, "after the average");
    return 1;
}

/* Clipped by the call, where the average is there, or by the setting. */
static int clip_and_step(golden_case *c, run *r, const iteration *it)
{
    const train *t = r->t;
    int by_call = t->clip_norm > 0 && r->way->averager != ATTACHED;
    zro_step_info info = ZRO_STEP_INFO_INIT;
    double norm = NAN;

    if (by_call && !golden_call(c, "zro_clip_grad_norm", zro_clip_grad_norm(r->optim, t->clip_norm, t->clip_norm_type, &norm)))
        return 0;
    if (!golden_call(c, "zro_optim_step", zro_optim_step(r->optim, NULL))
        || !golden_call(c, "zro_optim_info", zro_optim_info(r->optim, &info)))
        return 0;
    if (t->clip_norm > 0)
        golden_near(c, "total_norm", t->params0.dtype, by_call ? norm : info.norm, it->total_norm,
                    golden_r(t->params0.dtype) * fabs(it->total_norm));
    return 1;
}

static int go_through(golden_case *c, run *r)
{
    size_t n_groups = r->t->n_first;

    for (c->step = 0; c->step < r->t->n; c->step++) {
        const iteration *it = &r->t->iterations[c->step];

        if (!begin_iteration(c, r, it, n_groups))
            return 0;
        n_groups = it->n_groups;
        for (size_t m = 0; m < it->n_micro; m++)
            if (!run_micro_batch(c, r, it, m))
                return 0;
        if (!average(c, r, it) || !clip_and_step(c, r, it))
            return 0;
        golden_check_params(c, r->params, &it->params, r->t->extents);
    }
    c->step = GOLDEN_NOWHERE;
    return r->ddp == NULL || golden_call(c, "zro_ddp_check", zro_ddp_check(r->ddp));
}

/* Arrays are back where they were, and the parameters have the values that they have now. */
static void check_given_back(golden_case *c, const run *r)
{
    for (c->param = 0; c->param < r->t->params0.n; c->param++) {
        if (r->params[c->param].data != r->data[c->param])
            golden_fail(c, "its data has not come back to where it was");
        if (r->params[c->param].grad != r->grads[c->param])
            golden_fail(c, "its gradient has not come back to where it was");
    }
    c->param = GOLDEN_NOWHERE;
    golden_check_params(c, r->params, &r->t->iterations[r->t->n - 1].params, r->t->extents);
}

/* Handles may be destroyed in any order. */
static void go(golden_case *c, zro_group *group, const train *t, const struct way *way)
{
    run r = { .t = t, .way = way, .group = group };
    int through = make(c, &r) && go_through(c, &r);

    if (through)
        golden_check_consolidated(c, &t->dict, r.optim, way->is_unsharded ? NULL : group, t->extents_of_dict);
    if (way->place == HANDED_OUT)
        zro_ddp_destroy(r.ddp);
    zro_optim_destroy(r.optim);
    if (way->place != HANDED_OUT)
        zro_ddp_destroy(r.ddp);
    if (through)
        check_given_back(c, &r);
    if (way->place == HANDED_OUT && r.params != NULL)
        zro_params_free(r.params, t->params0.n);
}

static void train_on_rank(golden_case *c, zro_group *group, const void *user)
{
    const train *t = user;

    for (size_t w = 0; golden_ok(c) && w < sizeof ways / sizeof *ways; w++) {
        if ((ways[w].averager == BY_HAND && t->has_ddp)
            || (ways[w].averager == ATTACHED_LATER && c->options->overlap != ZRO_OVERLAP_OFF))
            continue;
        c->how = ways[w].name;
        go(c, group, t, &ways[w]);
    }
}

void golden_ddp_train(golden_case *c)
{
    train t = { 0 };

    if (!golden_keys(c, "the case", c->json,
                     "what world_size dtype shapes params0 optimizer groups parameters_as_bucket_view ddp clip iterations "
                     "state_dict",
                     ""))
        return;
    golden_about(c, "%s: %s %s", golden_string(c, c->json, "what", ""), golden_string(c, c->json, "optimizer", ""),
                 golden_string(c, c->json, "dtype", ""));
    read_train(c, &t);
    if (!golden_ok(c))
        return;
    golden_about(c, "%s: %s %s, %d ranks", golden_string(c, c->json, "what", ""), t.rule->torch,
                 golden_string(c, c->json, "dtype", ""), t.world_size);
    golden_describe(c, &t.params0, t.shapes);
    golden_on_ranks(c, t.world_size, train_on_rank, &t);
}
