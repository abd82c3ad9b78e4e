/* A sharded optimizer on some of the ranks: parameters are equal over them after each step, the others take no part. */
#include "model.h"
#include "zt/list.h"
#include "zt/zt.h"

enum { EPOCHS = 5 };

static void train(zro_group *even, zro_switch views)
{
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_sgd_config sgd = ZRO_SGD_CONFIG_INIT;
    zro_param_group group;
    zro_optim *x, *y;
    model m, alone;

    sgd.lr = 0.01;
    sgd.momentum = 0.9;
    config.parameters_as_bucket_view = views;
    model_init(&m);
    model_init(&alone);
    group = model_group(&m);
    CHECK_OK(zro_optim_create(even, &group, 1, zro_rule_sgd(), &sgd, &config, &x));
    CHECK(zro_plan_ranks(zro_optim_plan(x)) == 2);
    group = model_group(&alone);
    CHECK_OK(zro_optim_create(NULL, &group, 1, zro_rule_sgd(), &sgd, NULL, &y));
    for (int s = 0; s < EPOCHS; s++) {
        model_step_both(even, &m, x, &alone, y, s);
        model_check_ranks(&m, even);
    }
    zro_optim_destroy(x);
    zro_optim_destroy(y);
}

static void S16_even_ranks(zt_rank *t)
{
    static const int ranks[] = { 0, 2 };

    for (int views = ZRO_OFF; views <= ZRO_ON; views++) {
        zro_group *even = NULL;

        if (views == ZRO_OFF)
            CHECK_OK(zro_group_create_sub(t->group, ranks, 2, &even));
        else if (t->rank % 2 == 0)
            CHECK_OK(zro_group_create_members(t->group, ranks, 2, &even));
        CHECK((even != NULL) == (t->rank % 2 == 0));
        if (even != NULL)
            train(even, (zro_switch)views);
        zro_group_destroy(even);
    }
    CHECK_OK(zro_barrier(t->group));
}

const zt_case cases_zero_subgroup[] = {
    { "S16_even_ranks", S16_even_ranks, ZT_WORLD(4), ZT_ALL, 0, 0, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
