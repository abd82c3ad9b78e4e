/* zero_grad of a sharded optimizer: all gradients, not only those of what the rank owns. */
#include "model.h"
#include "zt/list.h"
#include "zt/zt.h"

/* All of them are zeros, or none is. */
static void check_gradients(const model *m, int zeros, uint32_t present)
{
    for (size_t i = 0; i < MODEL_ELEMENTS; i++)
        CHECK((m->grad[i] == 0) == zeros);
    for (int i = 0; i < MODEL_PARAMS; i++)
        CHECK(m->params[i].grad_present == present);
}

static void S06_zero_grad(zt_rank *t)
{
    zro_param_group group;
    zro_optim *opt;
    model m;

    model_init(&m);
    group = model_group(&m);
    CHECK_OK(zro_optim_create(t->group, &group, 1, zro_rule_sgd(), NULL, NULL, &opt));
    model_run(&m, t->rank, 0);
    check_gradients(&m, 0, 1);
    CHECK_OK(zro_optim_zero_grad(opt, ZRO_ZERO_CLEAR));
    check_gradients(&m, 1, 0);
    model_run(&m, t->rank, 1);
    CHECK_OK(zro_optim_step(opt, NULL)); /* which leaves gradients as they are */
    check_gradients(&m, 0, 1);
    CHECK_OK(zro_optim_zero_grad(opt, ZRO_ZERO_LEAVE));
    check_gradients(&m, 0, 0);
    model_run(&m, t->rank, 2);
    CHECK_OK(zro_optim_zero_grad(opt, ZRO_ZERO_KEEP));
    check_gradients(&m, 1, 1);
    zro_optim_destroy(opt);
}

#define WORLDS (ZT_WORLD(1) | ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4) | ZT_WORLD(7))

const zt_case cases_zero_zero_grad[] = {
    { "S06_zero_grad", S06_zero_grad, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
