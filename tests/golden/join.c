/* join.json: a linear model on inputs of which ranks have different numbers.
 *
 * Every rank trains as long as it has inputs, and then shadows the others.  The file has the losses that each rank sees, and the
 * parameters that all ranks have in the end.  Who owns what, and who averages, does not matter: each case is gone through in several
 * ways, with optimizers that are sharded and with one that is not. */
#include <string.h>

#include "golden.h"

enum { MOST_LAYERS = 8 };
#define RELATIVE 5e-6
#define ABSOLUTE 5e-7

typedef struct training {
    int world_size;
    const zro_rule *rule;
    zro_value *values;
    size_t n_values;
    golden_counts dims, counts; /* of the layers; inputs of each rank */
    size_t n_layers, batch, accumulate;
    zro_divide_by divide_by;
    json_t *shapes;
    golden_vectors params0, params; /* a weight and a bias for each layer */
    golden_vector labels;
    golden_vectors *inputs; /* by rank */
    golden_vector *losses;  /* by rank */
} training;

typedef enum consumer { UNSHARDED, UNSHARDED_UNLISTED, BESIDE, ATTACHED } consumer;

static const struct way {
    const char *name;
    consumer consumer;
    int handed_out;
    zro_partition partition;
} ways[] = {
    { "not sharded", UNSHARDED, 0, ZRO_PARTITION_AUTO },
    { "not sharded, not listed", UNSHARDED_UNLISTED, 0, ZRO_PARTITION_AUTO },
    { "beside", BESIDE, 0, ZRO_PARTITION_AUTO },
    { "beside, greedy", BESIDE, 1, ZRO_PARTITION_GREEDY },
    { "attached", ATTACHED, 0, ZRO_PARTITION_AUTO },
    { "attached, greedy", ATTACHED, 0, ZRO_PARTITION_GREEDY },
    { "attached, handed out", ATTACHED, 1, ZRO_PARTITION_AUTO },
};

/* ---- reading ---- */

/* The shapes that the dimensions of the layers say. */
static void read_shapes(golden_case *c, training *t)
{
    t->dims = golden_read_counts(c, "dims", json_object_get(c->json, "dims"));
    t->n_layers = t->dims.n > 0 ? t->dims.n - 1 : 0;
    t->shapes = json_array();
    if (t->n_layers < 1 || t->n_layers > MOST_LAYERS)
        golden_fail(c, "\"dims\" has %zu numbers, must have 2 to %d", t->dims.n, MOST_LAYERS + 1);
    for (size_t l = 0; golden_ok(c) && l < t->n_layers; l++) {
        const json_int_t in = (json_int_t)t->dims.at[l], out = (json_int_t)t->dims.at[l + 1];

        json_array_append_new(t->shapes, json_pack("[II]", out, in));
        json_array_append_new(t->shapes, json_pack("[I]", out));
    }
}

static void check_counts(golden_case *c, const training *t, const char *what, json_t *list)
{
    if (json_array_size(list) != (size_t)t->world_size || t->counts.n != (size_t)t->world_size)
        golden_fail(c, "\"%s\" has %zu ranks and \"counts\" has %zu, must have %d", what, json_array_size(list), t->counts.n,
                    t->world_size);
    for (size_t r = 0; golden_ok(c) && r < (size_t)t->world_size; r++)
        if (json_array_size(json_array_get(list, r)) != t->counts.at[r])
            golden_fail(c, "\"%s\" has %zu inputs on rank %zu, \"counts\" says %zu", what,
                        json_array_size(json_array_get(list, r)), r, t->counts.at[r]);
}

static void read_inputs(golden_case *c, training *t)
{
    json_t *inputs = golden_list(c, c->json, "inputs"), *losses = golden_list(c, c->json, "losses");

    check_counts(c, t, "inputs", inputs);
    check_counts(c, t, "losses", losses);
    t->inputs = golden_alloc(c, (size_t)t->world_size * sizeof *t->inputs);
    t->losses = golden_alloc(c, (size_t)t->world_size * sizeof *t->losses);
    for (size_t r = 0; golden_ok(c) && r < (size_t)t->world_size; r++) {
        if (t->counts.at[r] == 0)
            continue;
        t->inputs[r] = golden_read_vector_list(c, "inputs", json_array_get(inputs, r), ZRO_F32, GOLDEN_NO_NULL, NULL);
        t->losses[r] = golden_read_vector(c, "losses", json_array_get(losses, r), ZRO_F32);
        for (size_t k = 0; golden_ok(c) && k < t->inputs[r].n; k++)
            if (t->inputs[r].at[k].count != t->batch * t->dims.at[0])
                golden_fail(c, "an input has %zu numbers, must have %zu", t->inputs[r].at[k].count, t->batch * t->dims.at[0]);
    }
}

static void read_params(golden_case *c, training *t)
{
    t->params0 = golden_read_vectors(c, c->json, "params0", ZRO_F32, GOLDEN_NO_NULL, NULL);
    t->params = golden_read_vectors(c, c->json, "params", ZRO_F32, GOLDEN_NO_NULL, &t->params0);
    t->labels = golden_read_vector(c, "labels", golden_list(c, c->json, "labels"), ZRO_F32);
    if (golden_ok(c) && t->params0.n != 2 * t->n_layers)
        golden_fail(c, "\"params0\" has %zu parameters, must have %zu", t->params0.n, 2 * t->n_layers);
    if (golden_ok(c) && t->labels.count != t->batch * t->dims.at[t->n_layers])
        golden_fail(c, "\"labels\" has %zu numbers, must have %zu", t->labels.count, t->batch * t->dims.at[t->n_layers]);
}

static void read_training(golden_case *c, training *t)
{
    t->world_size = golden_world_size(c, c->json);
    t->rule = golden_rule(c, golden_string(c, c->json, "optimizer", ""));
    t->values = golden_values(c, t->rule, json_object_get(c->json, "options"), &t->n_values);
    t->batch = golden_count(c, c->json, "batch", 1);
    t->accumulate = golden_count(c, c->json, "accumulate", 1);
    if (t->batch == 0 || t->accumulate == 0)
        golden_fail(c, "\"batch\" is %zu and \"accumulate\" is %zu, must be above 0", t->batch, t->accumulate);
    t->divide_by =
        golden_flag(c, c->json, "divide_by_initial_world_size", ZRO_ON) == ZRO_ON ? ZRO_INITIAL_RANKS : ZRO_REMAINING_RANKS;
    t->counts = golden_read_counts(c, "counts", json_object_get(c->json, "counts"));
    read_shapes(c, t);
    if (golden_ok(c))
        read_params(c, t);
    if (golden_ok(c))
        read_inputs(c, t);
}

/* ---- the model ---- */

/* y = x W^T + b. */
static void forward(const training *t, const zro_param *params, size_t l, const float *x, float *y)
{
    const size_t in = t->dims.at[l], out = t->dims.at[l + 1];
    const float *w = params[2 * l].data, *b = params[2 * l + 1].data;

    for (size_t k = 0; k < t->batch; k++)
        for (size_t o = 0; o < out; o++) {
            double sum = b[o];

            for (size_t i = 0; i < in; i++)
                sum += (double)w[o * in + i] * x[k * in + i];
            y[k * out + o] = (float)sum;
        }
}

static void add_to(zro_param *p, size_t i, double g)
{
    ((float *)p->grad)[i] = (float)((p->grad_present ? ((float *)p->grad)[i] : 0) + g);
}

/* Adds to the gradients of a layer; dx, unless it is NULL, gets the gradient of what it got. */
static void backward(const training *t, zro_param *params, size_t l, const float *x, const float *dy, float *dx)
{
    const size_t in = t->dims.at[l], out = t->dims.at[l + 1];
    const float *w = params[2 * l].data;

    for (size_t o = 0; o < out; o++) {
        double bias = 0;

        for (size_t k = 0; k < t->batch; k++)
            bias += dy[k * out + o];
        add_to(&params[2 * l + 1], o, bias);
        for (size_t i = 0; i < in; i++) {
            double sum = 0;

            for (size_t k = 0; k < t->batch; k++)
                sum += (double)dy[k * out + o] * x[k * in + i];
            add_to(&params[2 * l], o * in + i, sum);
        }
    }
    for (size_t k = 0; dx != NULL && k < t->batch; k++)
        for (size_t i = 0; i < in; i++) {
            double sum = 0;

            for (size_t o = 0; o < out; o++)
                sum += (double)dy[k * out + o] * w[o * in + i];
            dx[k * in + i] = (float)sum;
        }
}

/* ---- on a rank ---- */

typedef struct run {
    const training *t;
    const struct way *way;
    zro_group *group;
    zro_param *params;
    zro_ddp *ddp;
    zro_optim *optim;
    zro_join *join;
    float *x[MOST_LAYERS + 1], *d[MOST_LAYERS + 1]; /* what layers get and give, and the gradients of that */
} run;

static int make_params(golden_case *c, run *r)
{
    const training *t = r->t;

    for (size_t l = 0; l <= t->n_layers; l++) {
        r->x[l] = golden_alloc(c, t->batch * t->dims.at[l] * sizeof(float));
        r->d[l] = golden_alloc(c, t->batch * t->dims.at[l] * sizeof(float));
    }
    if (!r->way->handed_out) {
        r->params = golden_params(c, &t->params0, t->shapes);
        return golden_ok(c);
    }
    r->params = golden_describe(c, &t->params0, t->shapes);
    if (!golden_call(c, "zro_params_alloc", zro_params_alloc(r->group, r->params, t->params0.n, NULL)))
        return 0;
    if (zro_group_rank(r->group) == 0)
        golden_set_params(r->params, &t->params0);
    return 1;
}

static int make_join(golden_case *c, run *r)
{
    zro_join_config config = ZRO_JOIN_CONFIG_INIT;
    zro_joinable list[2];
    const size_t n = r->way->consumer == UNSHARDED_UNLISTED ? 1 : 2;

    config.divide_by = r->t->divide_by;
    return golden_call(c, "zro_ddp_joinable", zro_ddp_joinable(r->ddp, &list[0]))
           && golden_call(c, "zro_optim_joinable", zro_optim_joinable(r->optim, &list[1]))
           && golden_call(c, "zro_join_create", zro_join_create(r->group, list, n, &config, &r->join));
}

static int make(golden_case *c, run *r)
{
    const training *t = r->t;
    zro_plan_config plan = ZRO_PLAN_CONFIG_INIT;
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_param_group group = { .n = t->params0.n, .values = t->values, .n_values = t->n_values };
    const int is_sharded = r->way->consumer == BESIDE || r->way->consumer == ATTACHED;

    if (!make_params(c, r)
        || !golden_call(c, "zro_ddp_create", zro_ddp_create(r->group, r->params, t->params0.n, NULL, &r->ddp)))
        return 0;
    plan.partition = r->way->partition;
    config.plan = &plan;
    if (r->way->consumer == ATTACHED) {
        config.ddp = r->ddp;
        config.overlap = c->options->overlap;
    }
    group.params = r->params;
    r->optim = golden_make_sharded(c, is_sharded ? r->group : NULL, &group, 1, t->rule, &config);
    return r->optim != NULL && make_join(c, r);
}

static double compute_loss(const run *r)
{
    const training *t = r->t;
    const size_t n = t->labels.count;
    const float *labels = t->labels.data, *y = r->x[t->n_layers];
    double loss = 0;

    for (size_t i = 0; i < n; i++) {
        const double error = (double)y[i] - labels[i];

        loss += error * error / (double)n;
        r->d[t->n_layers][i] = (float)(2 * error / (double)n);
    }
    return loss;
}

static int train_on(golden_case *c, run *r, size_t k)
{
    const training *t = r->t;
    const size_t rank = (size_t)zro_group_rank(r->group);
    const int steps = (k + 1) % t->accumulate == 0;
    double x;

    if (!golden_call(c, "zro_ddp_no_sync", zro_ddp_no_sync(r->ddp, steps ? ZRO_OFF : ZRO_ON))
        || !golden_call(c, "zro_ddp_forward", zro_ddp_forward(r->ddp)))
        return 0;
    memcpy(r->x[0], t->inputs[rank].at[k].data, t->inputs[rank].at[k].count * sizeof(float));
    for (size_t l = 0; l < t->n_layers; l++)
        forward(t, r->params, l, r->x[l], r->x[l + 1]);
    x = golden_element(t->losses[rank].data, ZRO_F32, k);
    golden_near(c, "the loss", ZRO_F32, compute_loss(r), x, RELATIVE * x + ABSOLUTE);
    for (size_t l = t->n_layers; l-- > 0;) {
        backward(t, r->params, l, r->x[l], r->d[l + 1], l > 0 ? r->d[l] : NULL);
        if (!golden_call(c, "zro_ddp_grads_ready", zro_ddp_grads_ready(r->ddp, (size_t[]){ 2 * l + 1, 2 * l }, 2)))
            return 0;
    }
    if (!golden_call(c, "zro_ddp_backward_end", zro_ddp_backward_end(r->ddp)))
        return 0;
    return !steps
           || (golden_call(c, "zro_optim_step", zro_optim_step(r->optim, NULL))
               && (r->way->consumer == ATTACHED
                   || golden_call(c, "zro_optim_zero_grad", zro_optim_zero_grad(r->optim, ZRO_ZERO_LEAVE))));
}

static int go_through(golden_case *c, run *r)
{
    const training *t = r->t;

    for (c->step = 0; c->step < t->counts.at[zro_group_rank(r->group)]; c->step++)
        if (!train_on(c, r, c->step))
            return 0;
    c->step = GOLDEN_NOWHERE;
    if (!golden_call(c, "zro_join_run", zro_join_run(r->join)))
        return 0;
    for (c->param = 0; c->param < t->params.n; c->param++)
        golden_near_all(c, "the parameter", ZRO_F32, r->params[c->param].data, &t->params.at[c->param], RELATIVE, ABSOLUTE);
    c->param = GOLDEN_NOWHERE;
    return golden_call(c, "zro_ddp_check", zro_ddp_check(r->ddp));
}

static void train_on_rank(golden_case *c, zro_group *group, const void *user)
{
    for (size_t w = 0; golden_ok(c) && w < sizeof ways / sizeof *ways; w++) {
        run r = { .t = user, .way = &ways[w], .group = group };

        c->how = ways[w].name;
        if (make(c, &r))
            (void)go_through(c, &r);
        zro_join_destroy(r.join);
        zro_optim_destroy(r.optim);
        zro_ddp_destroy(r.ddp);
        if (r.way->handed_out && r.params != NULL)
            zro_params_free(r.params, r.t->params0.n);
    }
}

void golden_join(golden_case *c)
{
    training t = { 0 };

    if (!golden_keys(c, "the case", c->json,
                     "world_size counts dims batch accumulate optimizer options divide_by_initial_world_size params0 inputs "
                     "labels losses params",
                     ""))
        return;
    golden_about(c, "%s", golden_string(c, c->json, "optimizer", ""));
    read_training(c, &t);
    if (golden_ok(c)) {
        golden_about(c, "%s, %d ranks, accumulates %zu, divides by %s", t.rule->torch, t.world_size, t.accumulate,
                     t.divide_by == ZRO_INITIAL_RANKS ? "all" : "those that remain");
        golden_on_ranks(c, t.world_size, train_on_rank, &t);
    }
    json_decref(t.shapes);
}
