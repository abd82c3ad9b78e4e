/* The state of an optimizer on one rank, taken out and loaded: x = 1, gradient 1, SGD with momentum. */
#include <math.h>
#include <string.h>

#include "zt/list.h"
#include "zt/zt.h"

typedef struct scalar {
    float x, grad;
    zro_param param;
} scalar;

static zro_optim *make(zro_group *g, scalar *s, double lr, double momentum)
{
    zro_sgd_config sgd = ZRO_SGD_CONFIG_INIT;
    zro_param_group group = { .params = &s->param, .n = 1 };
    zro_optim *opt;

    zro_param_init(&s->param);
    s->grad = 1;
    s->param.shape[0] = 1;
    s->param.data = &s->x;
    zro_param_set_grad(&s->param, &s->grad);
    sgd.lr = lr;
    sgd.momentum = momentum;
    CHECK_OK(zro_optim_create(g, &group, 1, zro_rule_sgd(), &sgd, NULL, &opt));
    return opt;
}

static float buffer_of(const zro_optim *opt)
{
    zro_slot slot;

    CHECK_OK(zro_optim_slot(opt, 0, "momentum_buffer", &slot));
    CHECK(slot.present && slot.count == 1 && slot.dtype == ZRO_F32);
    return *(float *)slot.data;
}

static double value_of(const zro_state *state, const char *name)
{
    double value = NAN;

    CHECK_OK(zro_state_get_value(state, 0, name, &value));
    return value;
}

/* Its groups are the optimizer's, value by value. */
static void check_groups(const zro_state *state, const zro_optim *opt)
{
    size_t first, n, n_values;

    CHECK(zro_state_groups(state) == 1 && zro_state_params(state) == 1);
    CHECK_OK(zro_state_group(state, 0, &first, &n, &n_values));
    CHECK(first == 0 && n == 1 && n_values >= zro_optim_values(opt));
    for (size_t i = 0; i < zro_optim_values(opt); i++) {
        double mine;

        CHECK_OK(zro_optim_get_value(opt, 0, zro_optim_value_name(opt, i), &mine));
        CHECK(value_of(state, zro_optim_value_name(opt, i)) == mine);
    }
    CHECK(value_of(state, "lr") == 0.1 && value_of(state, "momentum") == 0.9 && value_of(state, "nesterov") == 0);
    CHECK(value_of(state, "weight_decay") == 0 && value_of(state, "dampening") == 0);
}

static void check_slot(const zro_state *state)
{
    zro_progress progress;
    zro_slot slot;

    CHECK(strcmp(zro_state_rule(state), "sgd") == 0);
    CHECK_OK(zro_state_slot(state, 0, "momentum_buffer", &slot));
    CHECK(slot.present && slot.count == 1 && slot.dtype == ZRO_F32 && *(float *)slot.data == 1);
    CHECK_OK(zro_state_get_progress(state, &progress));
    CHECK(progress.steps == 1);
}

static void load_into(zro_group *g, const zro_state *state, double momentum)
{
    scalar s = { .x = 0.9f };
    zro_optim *opt = make(g, &s, 0.01, momentum);
    double lr;

    CHECK_OK(zro_optim_load(opt, state));
    CHECK_OK(zro_optim_get_value(opt, 0, "lr", &lr));
    CHECK(buffer_of(opt) == 1 && lr == 0.1);
    CHECK_OK(zro_optim_step(opt, NULL));
    CHECK(fabs((double)s.x - 0.71) < 1e-6 && fabs((double)buffer_of(opt) - 1.9) < 1e-6);
    zro_optim_destroy(opt);
}

static void S01_state_dict(zt_rank *t)
{
    zro_group *const of[] = { t->group, NULL };

    for (int i = 0; i < 2; i++) {
        scalar s = { .x = 1 };
        zro_optim *opt = make(of[i], &s, 0.1, 0.9);
        zro_state *state;

        CHECK_OK(zro_optim_step(opt, NULL));
        CHECK(s.x == 0.9f && buffer_of(opt) == 1);
        CHECK_OK(zro_optim_consolidate(opt, 0, &state));
        check_groups(state, opt);
        check_slot(state);
        zro_optim_destroy(opt); /* the state is a copy */
        load_into(t->group, state, 0.9);
        load_into(NULL, state, 0.9);
        load_into(t->group, state, 0); /* momentum comes with the state */
        check_slot(state);             /* which loading leaves as it is */
        zro_state_destroy(state);
    }
}

const zt_case cases_zero_state_dict[] = {
    { "S01_state_dict", S01_state_dict, ZT_WORLD(1), ZT_ALL, 0, 0, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
