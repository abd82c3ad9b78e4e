/* A model whose layers have different device tags: equal to one that has one tag, and no bucket mixes them. */
#include "model.h"
#include "zt/list.h"
#include "zt/zt.h"

enum { STEPS = 4, SECOND = 7 /* the second layer's tag */ };

static void check_buckets(const model *m, const zro_plan *plan)
{
    int32_t tags[MODEL_PARAMS * 2] = { 0 };
    const zro_range *ranges;
    size_t n;

    CHECK(zro_plan_buckets(plan) == 2);
    CHECK_OK(zro_plan_ranges(plan, ZRO_ALL, &ranges, &n));
    for (size_t i = 0; i < n; i++)
        tags[ranges[i].bucket] = m->params[ranges[i].param].device;
    for (size_t i = 0; i < n; i++)
        CHECK(tags[ranges[i].bucket] == m->params[ranges[i].param].device);
}

static void two_devices(zt_rank *t, zro_partition partition, zro_switch views)
{
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_plan_config plan = ZRO_PLAN_CONFIG_INIT;
    zro_param_group group;
    zro_optim *opt[3];
    model m[3]; /* two tags; one tag; one tag, not sharded */

    plan.partition = partition;
    config.plan = &plan;
    config.parameters_as_bucket_view = views;
    for (int i = 0; i < 3; i++) {
        model_init(&m[i]);
        if (i == 0)
            m[i].params[MODEL_W2].device = m[i].params[MODEL_B2].device = SECOND;
        group = model_group(&m[i]);
        CHECK_OK(zro_optim_create(i < 2 ? t->group : NULL, &group, 1, zro_rule_adamw(), NULL, &config, &opt[i]));
    }
    if (partition == ZRO_PARTITION_FLAT)
        check_buckets(&m[0], zro_optim_plan(opt[0]));
    for (int s = 0; s < STEPS; s++) {
        model_step_both(t->group, &m[0], opt[0], &m[2], opt[2], s);
        model_take_gradients(&m[1], &m[0]);
        CHECK_OK(zro_optim_step(opt[1], NULL));
        CHECK(model_equal(&m[0], &m[1]));
    }
    for (int i = 0; i < 3; i++)
        zro_optim_destroy(opt[i]);
    CHECK(model_equal(&m[0], &m[2]));
}

static void S19_devices(zt_rank *t)
{
    for (int views = ZRO_OFF; views <= ZRO_ON; views++) {
        two_devices(t, ZRO_PARTITION_FLAT, (zro_switch)views);
        two_devices(t, ZRO_PARTITION_GREEDY, (zro_switch)views);
    }
}

const zt_case cases_zero_devices[] = {
    { "S19_devices", S19_devices, ZT_WORLD(2) | ZT_WORLD(4), ZT_ALL, 0, 0, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
