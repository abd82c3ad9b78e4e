/* A schedule on the sharded optimizer: steps equal the unsharded ones, on one rank (S02) and on several (S11). */
#include "model.h"
#include "zt/list.h"
#include "zt/zt.h"

enum { STEPS = 5 };

static double lr_of(const zro_optim *opt)
{
    double lr;

    CHECK_OK(zro_optim_get_value(opt, 0, "lr", &lr));
    return lr;
}

static void step_schedule(zt_rank *t)
{
    zro_sgd_config sgd = ZRO_SGD_CONFIG_INIT;
    zro_schedule *on_x, *on_y;
    zro_param_group group;
    zro_optim *x, *y;
    model m, alone;

    sgd.lr = 0.01;
    model_init(&m);
    model_init(&alone);
    group = model_group(&m);
    CHECK_OK(zro_optim_create(t->group, &group, 1, zro_rule_sgd(), &sgd, NULL, &x));
    group = model_group(&alone);
    CHECK_OK(zro_optim_create(NULL, &group, 1, zro_rule_sgd(), &sgd, NULL, &y));
    CHECK_OK(zro_schedule_step_lr(x, 1, 0.5, &on_x));
    CHECK_OK(zro_schedule_step_lr(y, 1, 0.5, &on_y));
    for (int s = 0; s < STEPS; s++) {
        CHECK(lr_of(x) == lr_of(y));
        model_step_both(t->group, &m, x, &alone, y, s);
        CHECK_OK(zro_schedule_step(on_x));
        CHECK_OK(zro_schedule_step(on_y));
    }
    CHECK(lr_of(x) == 0.01 / 32);
    model_check_ranks(&m, t->group);
    zro_optim_destroy(x);
    zro_schedule_destroy(on_x);
    zro_schedule_destroy(on_y);
    zro_optim_destroy(y);
}

const zt_case cases_zero_schedule[] = {
    { "S02_schedule", step_schedule, ZT_WORLD(1), ZT_ALL, 0, 0, 0, 0 },
    { "S11_schedule", step_schedule, ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4) | ZT_WORLD(7), ZT_ALL, 0, 0, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
