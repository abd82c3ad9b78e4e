/* Steps of a sharded optimizer beside those of one that is not, and who owns what.
 *
 * Gradients are averaged by hand, the unsharded optimizer gets the same ones; equal means bit for bit. */
#include <stdio.h>
#include <string.h>

#include "bed.h"
#include "model.h"
#include "zt/list.h"
#include "zt/zt.h"

enum { STEPS = 4 };

/* ---- S09 ---- */

typedef enum memory { OWN, VIEWS, EACH, ONCE, MEMORIES } memory;

typedef struct way {
    zro_partition partition;
    zro_switch shard_buckets;
} way;

static const way ways[] = { { ZRO_PARTITION_AUTO, ZRO_OFF },    { ZRO_PARTITION_FLAT, ZRO_OFF },
                            { ZRO_PARTITION_GREEDY, ZRO_OFF },  { ZRO_PARTITION_GIVEN, ZRO_OFF },
                            { ZRO_PARTITION_BUCKETS, ZRO_OFF }, { ZRO_PARTITION_BUCKETS, ZRO_ON } };

/* Each rank has its own part of the state and no more: the parts of all ranks are the parameter. */
static void check_state_is_sharded(zro_group *g, const zro_optim *opt, const char *name)
{
    for (size_t p = 0; p < MODEL_PARAMS; p++) {
        int64_t all = 0, owned = 0;
        const zro_range *ranges;
        zro_slot slot;
        size_t n;

        CHECK_OK(zro_optim_slot(opt, p, name, &slot));
        CHECK_OK(zro_plan_ranges(zro_optim_plan(opt), zro_group_rank(g), &ranges, &n));
        for (size_t i = 0; i < n; i++)
            owned += ranges[i].param == p ? (int64_t)ranges[i].count : 0;
        CHECK((int64_t)slot.count == owned && slot.present == (owned > 0));
        CHECK_OK(zro_all_reduce(g, &owned, 1, ZRO_I64, ZRO_SUM));
        CHECK_OK(zro_plan_ranges(zro_optim_plan(opt), ZRO_ALL, &ranges, &n));
        for (size_t i = 0; i < n; i++)
            all += ranges[i].param == p ? (int64_t)ranges[i].count : 0;
        CHECK(owned == all);
    }
}

static void one_way(zt_rank *t, const zro_rule *rule, const way *w, memory where)
{
    static const size_t bucket_params[] = { MODEL_B2, MODEL_W2, MODEL_B1, MODEL_W1 }, bucket_lengths[] = { 3, 1 };
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_plan_config plan = ZRO_PLAN_CONFIG_INIT;
    int32_t owners[MODEL_PARAMS];
    zro_param_group group;
    zro_optim *opt, *alone;
    model m, whole;

    model_init(&whole);
    if (where == OWN || where == VIEWS)
        model_init(&m);
    else
        model_init_in(&m, t->group, where == EACH ? ZRO_MEMORY_EACH : ZRO_MEMORY_ONCE);
    plan.partition = w->partition;
    plan.shard_buckets = w->shard_buckets;
    if (w->partition == ZRO_PARTITION_BUCKETS) {
        plan.bucket_params = bucket_params;
        plan.bucket_lengths = bucket_lengths;
        plan.n_buckets = 2;
    }
    config.plan = &plan;
    config.parameters_as_bucket_view = where == VIEWS ? ZRO_ON : ZRO_OFF;
    for (int i = 0; i < MODEL_PARAMS; i++)
        owners[i] = (5 * i + 2) % t->size;
    group = model_group(&whole);
    CHECK_OK(zro_optim_create(NULL, &group, 1, rule, NULL, NULL, &alone));
    group = model_group(&m);
    group.owners = w->partition == ZRO_PARTITION_GIVEN ? owners : NULL;
    CHECK_OK(zro_optim_create(t->group, &group, 1, rule, NULL, &config, &opt));
    CHECK_OK(zro_param_publish(opt, ZRO_ALL_PARAMS, 0));
    CHECK(model_equal(&m, &whole) && zro_plan_ranks(zro_optim_plan(opt)) == t->size);
    for (int s = 0; s < STEPS; s++)
        model_step_both(t->group, &m, opt, &whole, alone, s);
    if (strcmp(rule->name, "adamw") == 0)
        check_state_is_sharded(t->group, opt, "exp_avg");
    zro_optim_destroy(opt);
    zro_optim_destroy(alone);
    CHECK(model_equal(&m, &whole)); /* with the program's own pointers again */
    CHECK(where != VIEWS || m.params[MODEL_W1].data == m.data);
    CHECK_OK(zro_barrier(t->group));
    model_free(&m);
}

static void S09_step(zt_rank *t)
{
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
        for (int where = OWN; where < MEMORIES; where++)
            one_way(t, zro_rule_adamw(), &ways[w], (memory)where);
}

static void S09_step_rules(zt_rank *t)
{
    static const char *const names[] = { "sgd",     "adam",  "adamw", "adagrad", "adadelta", "adamax",
                                         "rmsprop", "rprop", "asgd",  "nadam",   "radam" };

    for (size_t r = 0; r < sizeof names / sizeof *names; r++)
        one_way(t, zro_rule_find(names[r]), &ways[r % 3], (memory)(r % MEMORIES));
}

/* A rank that owns none of what has gradients, a step without any, one whose gradient only the owner has; and what a rank gets
 * wrong in a step: the others hear of it, nothing has changed, and it goes on. */
static void S09_step_absent(zt_rank *t)
{
    const int last = t->size - 1;
    zro_param_group group;
    zro_optim *opt, *alone;
    model m, whole;
    int owner;

    model_init(&m);
    model_init(&whole);
    group = model_group(&whole);
    CHECK_OK(zro_optim_create(NULL, &group, 1, zro_rule_adam(), NULL, NULL, &alone));
    group = model_group(&m);
    CHECK_OK(zro_optim_create(t->group, &group, 1, zro_rule_adam(), NULL, NULL, &opt));
    for (int s = 0; s < STEPS; s++) {
        (void)model_run(&m, t->rank, s);
        model_average(&m, t->group);
        model_take_gradients(&whole, &m);
        for (int i = 0; i < MODEL_PARAMS; i++)
            m.params[i].grad_present = whole.params[i].grad_present = s != 1 && i % 2 == s % 2;
        CHECK_OK(zro_plan_owner(zro_optim_plan(opt), MODEL_B2, 0, &owner));
        whole.params[MODEL_B2].grad_present = s == 3;
        m.params[MODEL_B2].grad_present = s == 3 && t->rank == owner;
        CHECK_OK(zro_optim_step(opt, NULL));
        CHECK_OK(zro_optim_step(alone, NULL));
        CHECK(model_equal(&m, &whole));
    }
    model_run(&m, 0, STEPS); /* the same on all ranks */
    if (t->rank == last)
        m.params[MODEL_W1].data = NULL;
    CHECK_STATUS(zro_optim_step(opt, NULL), t->rank == last ? ZRO_ERR_INVALID : ZRO_ERR_PEER);
    CHECK_TEXT("one.weight");
    m.params[MODEL_W1].data = m.data;
    CHECK(model_equal(&m, &whole));
    model_step_both(t->group, &m, opt, &whole, alone, STEPS);
    zro_optim_destroy(opt);
    zro_optim_destroy(alone);
}

/* ---- S10 ---- */

/* y = w x + b with x = rank + 1, target x + 3, the loss |y - target|. */
typedef struct line {
    float w, b, grad_w, grad_b;
    zro_param params[2];
    int rank, fails;
} line;

static void line_init(line *l, int rank)
{
    memset(l, 0, sizeof *l);
    l->w = 1;
    l->b = 2;
    l->rank = rank;
    for (int i = 0; i < 2; i++)
        zro_param_init(&l->params[i]);
    l->params[0].n_dims = l->params[1].n_dims = 0;
    l->params[0].data = &l->w;
    l->params[1].data = &l->b;
}

static zro_status line_closure(void *user, double *loss)
{
    line *l = user;
    float x = (float)(l->rank + 1);
    float error = *(float *)l->params[0].data * x + *(float *)l->params[1].data - (x + 3);
    float sign = (float)((error > 0) - (error < 0));

    if (l->fails)
        return zro_error_set(ZRO_ERR_SYSTEM, "no data today");
    l->grad_w = sign * x;
    l->grad_b = sign;
    zro_param_set_grad(&l->params[0], &l->grad_w);
    zro_param_set_grad(&l->params[1], &l->grad_b);
    *loss = error < 0 ? (double)-error : (double)error;
    return ZRO_OK;
}

static zro_optim *line_optim(zt_rank *t, line *l, zro_switch views)
{
    zro_param_group group = { .params = l->params, .n = 2 };
    zro_sgd_config sgd = ZRO_SGD_CONFIG_INIT;
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_plan_config plan = ZRO_PLAN_CONFIG_INIT;
    zro_optim *opt;

    sgd.lr = 0.1;
    plan.partition = ZRO_PARTITION_GREEDY;
    config.plan = &plan;
    config.parameters_as_bucket_view = views;
    CHECK_OK(zro_optim_create(t->group, &group, 1, zro_rule_sgd(), &sgd, &config, &opt));
    return opt;
}

static void S10_closure(zt_rank *t)
{
    for (int views = ZRO_OFF; views <= ZRO_ON; views++) {
        double loss = 0;
        zro_optim *opt;
        line l;

        line_init(&l, t->rank);
        opt = line_optim(t, &l, (zro_switch)views);
        CHECK_OK(zro_optim_step_closure(opt, line_closure, &l, NULL, &loss));
        CHECK(loss == 1);
        CHECK(*(float *)l.params[0].data == 1.1f && *(float *)l.params[1].data == 2.1f);
        CHECK((l.params[0].data == &l.w) == (views == ZRO_OFF));
        zro_optim_destroy(opt);
        CHECK(l.w == 1.1f && l.b == 2.1f && l.params[0].data == &l.w && l.params[1].data == &l.b);
    }
}

/* A closure that fails: its status is returned and nothing is stepped. */
static void S10_closure_fails(zt_rank *t)
{
    double loss = 0;
    zro_optim *opt;
    line l;

    line_init(&l, t->rank);
    opt = line_optim(t, &l, ZRO_OFF);
    l.fails = 1;
    CHECK_STATUS(zro_optim_step_closure(opt, line_closure, &l, NULL, &loss), ZRO_ERR_SYSTEM);
    CHECK_TEXT("no data today");
    CHECK(l.w == 1 && l.b == 2);
    l.fails = 0;
    CHECK_OK(zro_optim_step_closure(opt, line_closure, &l, NULL, &loss));
    CHECK(loss == 1 && l.w == 1.1f && l.b == 2.1f);
    zro_optim_destroy(opt);
}

/* One that fails on one rank alone: the others do not wait for it. */
static void S10_closure_fails_on_one(zt_rank *t)
{
    double loss = 0;
    zro_optim *opt;
    line l;

    line_init(&l, t->rank);
    opt = line_optim(t, &l, ZRO_OFF);
    l.fails = t->rank == 1;
    CHECK_STATUS(zro_optim_step_closure(opt, line_closure, &l, NULL, &loss), t->rank == 1 ? ZRO_ERR_SYSTEM : ZRO_ERR_PEER);
    CHECK_TEXT("no data today");
    CHECK(l.w == 1 && l.b == 2);
    l.fails = 0;
    CHECK_OK(zro_optim_step_closure(opt, line_closure, &l, NULL, &loss));
    CHECK(loss == 1 && l.w == 1.1f && l.b == 2.1f);
    zro_optim_destroy(opt);
}

/* ---- S12, S13 ---- */

static zro_optim *greedy(zt_rank *t, const zro_param_group *group)
{
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_plan_config plan = ZRO_PLAN_CONFIG_INIT;
    zro_optim *opt;

    plan.partition = ZRO_PARTITION_GREEDY;
    config.plan = &plan;
    CHECK_OK(zro_optim_create(t->group, group, 1, zro_rule_sgd(), NULL, &config, &opt));
    return opt;
}

static size_t elements_of(const zro_optim *opt, int rank, size_t group)
{
    const zro_range *ranges;
    size_t n, sum = 0;

    CHECK_OK(zro_plan_ranges(zro_optim_plan(opt), rank, &ranges, &n));
    for (size_t i = 0; i < n; i++)
        sum += ranges[i].group == group && ranges[i].owner == rank ? ranges[i].count : 0;
    return sum;
}

/* 9, 7, 5, 3 once for each rank; returns how many. */
static size_t repeated_sizes(zt_rank *t, size_t *counts)
{
    static const size_t sizes[] = { 9, 7, 5, 3 };
    size_t n = 4 * (size_t)t->size;

    for (size_t i = 0; i < n; i++)
        counts[i] = sizes[i % 4];
    return n;
}

static void S12_sizes(zt_rank *t)
{
    size_t counts[BED_MAX], n = repeated_sizes(t, counts);
    zro_param_group group;
    zro_optim *opt;
    bed b;

    bed_init(&b, ZRO_F32, ZRO_F32, counts, n);
    group = (zro_param_group){ .params = b.params, .n = n };
    opt = greedy(t, &group);
    for (int r = 0; r < t->size; r++)
        CHECK(zro_plan_elements(zro_optim_plan(opt), r) == 24 && elements_of(opt, r, 0) == 24);
    zro_optim_destroy(opt);
    bed_free(&b);
}

static void S13_add_group(zt_rank *t)
{
    size_t counts[BED_MAX], n = repeated_sizes(t, counts), elsewhere = 0;
    zro_param_group group, more;
    zro_optim *opt;
    int owner;
    bed b;

    bed_init(&b, ZRO_F32, ZRO_F32, counts, n);
    group = (zro_param_group){ .params = b.params, .n = n - 1 };
    more = (zro_param_group){ .params = &b.params[n - 1], .n = 1 };
    opt = greedy(t, &group);
    CHECK(zro_optim_groups(opt) == 1);
    CHECK_OK(zro_optim_add_param_group(opt, &more));
    CHECK(zro_optim_groups(opt) == 2 && zro_optim_params(opt) == n);
    CHECK_OK(zro_plan_owner(zro_optim_plan(opt), n - 1, 0, &owner));
    for (int r = 0; r < t->size; r++) {
        CHECK(zro_plan_elements(zro_optim_plan(opt), r) == 24);
        CHECK(elements_of(opt, r, 1) == (r == owner ? 3 : 0));
        elsewhere += elements_of(opt, r, 0);
    }
    CHECK(elsewhere == 24 * (size_t)t->size - 3);
    zro_optim_destroy(opt);
    bed_free(&b);
}

/* A large parameter that is not trained comes first: it is counted, keeps its value, and the others are trained. */
static void S13_add_group_frozen(zt_rank *t)
{
    static const size_t counts[] = { 100, 3, 5, 2, 6, 4, 3 };
    size_t total = 0;
    uint64_t random = t->seed;
    zro_param_group group, more;
    zro_optim *opt, *alone;
    bed a, b;

    bed_init(&a, ZRO_F32, ZRO_F32, counts, 7);
    bed_init(&b, ZRO_F32, ZRO_F32, counts, 7);
    a.params[0].requires_grad = b.params[0].requires_grad = 0;
    group = (zro_param_group){ .params = a.params, .n = 6 };
    more = (zro_param_group){ .params = &a.params[6], .n = 1 };
    opt = greedy(t, &group);
    CHECK_OK(zro_optim_add_param_group(opt, &more));
    group.params = b.params;
    more.params = &b.params[6];
    CHECK_OK(zro_optim_create(NULL, &group, 1, zro_rule_sgd(), NULL, NULL, &alone));
    CHECK_OK(zro_optim_add_param_group(alone, &more));
    CHECK(zro_optim_groups(opt) == 2 && zro_optim_groups(alone) == 2);
    for (int r = 0; r < t->size; r++)
        total += elements_of(opt, r, 0) + elements_of(opt, r, 1);
    CHECK(total == 123 && (t->size != 2 || elements_of(opt, 1, 1) == 3));
    for (int s = 0; s < STEPS; s++) {
        uint64_t again = random;

        bed_gradients(&a, &random, 1, 0);
        bed_gradients(&b, &again, 1, 0);
        CHECK_OK(zro_optim_step(opt, NULL));
        CHECK_OK(zro_optim_step(alone, NULL));
        CHECK(bed_equal(&a, &b));
    }
    CHECK(bed_get(a.params[0].data, ZRO_F32, 99) == 0 && bed_get(a.params[6].data, ZRO_F32, 2) != 0);
    zro_optim_destroy(opt);
    zro_optim_destroy(alone);
    bed_free(&a);
    bed_free(&b);
}

/* ---- S14 ---- */

/* Weights and biases with a decay of their own: both given at once, the second added later, and not sharded. */
static void groups_of_each_kind(zt_rank *t, zro_partition partition, zro_switch views)
{
    static const zro_value none = { "weight_decay", 0 }, some = { "weight_decay", 0.01 };
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_plan_config plan = ZRO_PLAN_CONFIG_INIT;
    zro_optim *opt[3];
    model m[3]; /* at once, later, alone */

    plan.partition = partition;
    config.plan = &plan;
    config.parameters_as_bucket_view = views;
    for (int i = 0; i < 3; i++) {
        zro_param_group groups[2];

        model_init(&m[i]);
        groups[0] = model_weights(&m[i]);
        groups[1] = model_biases(&m[i]);
        groups[0].values = &none;
        groups[1].values = &some;
        groups[0].n_values = groups[1].n_values = 1;
        CHECK_OK(zro_optim_create(i < 2 ? t->group : NULL, groups, i == 1 ? 1 : 2, zro_rule_adamw(), NULL, &config, &opt[i]));
        if (i == 1)
            CHECK_OK(zro_optim_add_param_group(opt[i], &groups[1]));
        CHECK(zro_optim_groups(opt[i]) == 2 && zro_optim_params(opt[i]) == MODEL_PARAMS);
    }
    for (int s = 0; s < STEPS; s++) {
        model_step_both(t->group, &m[0], opt[0], &m[2], opt[2], s);
        model_take_gradients(&m[1], &m[0]);
        CHECK_OK(zro_optim_step(opt[1], NULL));
        CHECK(model_equal(&m[0], &m[1]));
    }
    for (int i = 0; i < 3; i++)
        zro_optim_destroy(opt[i]);
    CHECK(model_equal(&m[0], &m[1]) && model_equal(&m[0], &m[2]));
}

static void S14_groups(zt_rank *t)
{
    for (int views = ZRO_OFF; views <= ZRO_ON; views++) {
        groups_of_each_kind(t, ZRO_PARTITION_FLAT, (zro_switch)views);
        groups_of_each_kind(t, ZRO_PARTITION_GREEDY, (zro_switch)views);
    }
}

#define WORLDS (ZT_WORLD(1) | ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4) | ZT_WORLD(7))

const zt_case cases_zero_step[] = {
    { "S09_step", S09_step, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "S09_step_two", S09_step, ZT_WORLD(4), ZT_ALL, ZT_TWO_MACHINES, 0, 0, 0 },
    { "S09_step_rules", S09_step_rules, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "S09_step_absent", S09_step_absent, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "S10_closure", S10_closure, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "S10_closure_fails", S10_closure_fails, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "S10_closure_fails_on_one", S10_closure_fails_on_one, WORLDS & ~ZT_WORLD(1), ZT_ALL, 0, 0, 0, 0 },
    { "S12_sizes", S12_sizes, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "S13_add_group", S13_add_group, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "S13_add_group_frozen", S13_add_group_frozen, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "S14_groups", S14_groups, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
