/* The whole state on one rank has an entry for each parameter; sent to all ranks it loads everywhere, and training goes on from
 * there as it would have without. */
#include <string.h>

#include "model.h"
#include "zt/list.h"
#include "zt/zt.h"

enum { STEPS = 3 }; /* before, and after */

/* Two groups: indices are those of the weights, then of the biases. */
static zro_optim *make(zro_group *g, model *m, zro_partition partition)
{
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_plan_config plan = ZRO_PLAN_CONFIG_INIT;
    zro_param_group groups[2] = { model_weights(m), model_biases(m) };
    zro_optim *opt;

    plan.partition = partition;
    config.plan = &plan;
    CHECK_OK(zro_optim_create(g, groups, 2, zro_rule_adamw(), NULL, &config, &opt));
    return opt;
}

/* The same as in the optimizer that is not sharded. */
static void check_state(const zro_state *state, const model *m, const zro_optim *alone)
{
    static const size_t in_model[MODEL_PARAMS] = { MODEL_W1, MODEL_W2, MODEL_B1, MODEL_B2 };
    static const char *const arrays[] = { "exp_avg", "exp_avg_sq" };

    CHECK(zro_state_groups(state) == 2 && zro_state_params(state) == MODEL_PARAMS);
    for (size_t i = 0; i < MODEL_PARAMS; i++) {
        const zro_param *p = &m->params[in_model[i]];
        zro_param described;
        zro_slot x, y;

        CHECK_OK(zro_state_param(state, i, &described));
        CHECK(strcmp(described.name, p->name) == 0 && zro_param_count(&described) == zro_param_count(p));
        CHECK(zro_state_slots(state, i) == 3);
        CHECK_OK(zro_state_slot(state, i, "step", &x));
        CHECK(x.present && x.count == 1 && x.dtype == ZRO_F64 && *(double *)x.data == STEPS);
        for (int s = 0; s < 2; s++) {
            CHECK_OK(zro_state_slot(state, i, arrays[s], &x));
            CHECK_OK(zro_optim_slot(alone, i, arrays[s], &y));
            CHECK(x.present && x.first == 0 && x.count == zro_param_count(p) && x.dtype == ZRO_F32);
            CHECK(memcmp(x.data, y.data, x.count * sizeof(float)) == 0);
        }
    }
}

/* A rank that has no state is told so, and what to call. */
static void check_none(const zro_state *state)
{
    zro_slot slot;
    double lr;

    CHECK(state == NULL && zro_state_params(state) == 0 && zro_state_groups(state) == 0 && zro_state_rule(state) == NULL);
    CHECK_STATUS(zro_state_slot(state, 0, "exp_avg", &slot), ZRO_ERR_STATE);
    CHECK_TEXT("broadcast");
    CHECK_STATUS(zro_state_get_value(state, 0, "lr", &lr), ZRO_ERR_STATE);
}

static void S15_consolidate(zt_rank *t)
{
    static const zro_partition partitions[] = { ZRO_PARTITION_FLAT, ZRO_PARTITION_GREEDY, ZRO_PARTITION_AUTO };
    zro_optim *x, *alone, *loaded[3];
    model m, whole, copies[3]; /* the last of which is not sharded */
    zro_state *state;

    model_init(&m);
    model_init(&whole);
    x = make(t->group, &m, ZRO_PARTITION_AUTO);
    alone = make(NULL, &whole, ZRO_PARTITION_AUTO);
    for (int s = 0; s < STEPS; s++)
        model_step_both(t->group, &m, x, &whole, alone, s);
    CHECK_OK(zro_optim_consolidate(x, 0, &state));
    if (t->rank == 0)
        check_state(state, &m, alone);
    else
        check_none(state);
    CHECK_OK(zro_state_broadcast(t->group, &state, 0));
    check_state(state, &m, alone);
    for (int i = 0; i < 3; i++) {
        model_init(&copies[i]);
        memcpy(copies[i].data, m.data, sizeof m.data);
        loaded[i] = make(i < 2 ? t->group : NULL, &copies[i], partitions[i]);
        CHECK_OK(zro_optim_load(loaded[i], state));
    }
    zro_state_destroy(state);
    for (int s = STEPS; s < 2 * STEPS; s++) {
        model_step_both(t->group, &m, x, &whole, alone, s);
        for (int i = 0; i < 3; i++) {
            model_take_gradients(&copies[i], &m);
            CHECK_OK(zro_optim_step(loaded[i], NULL));
            CHECK(model_equal(&copies[i], &m));
        }
    }
    for (int i = 0; i < 3; i++)
        zro_optim_destroy(loaded[i]);
    zro_optim_destroy(x);
    zro_optim_destroy(alone);
}

/* Loading where there is none: refused on all ranks, which stay as they were. */
static void S15_load_without(zt_rank *t)
{
    zro_state *state;
    zro_optim *opt;
    model m;

    model_init(&m);
    model_run(&m, 0, 0);
    opt = make(t->group, &m, ZRO_PARTITION_AUTO);
    CHECK_OK(zro_optim_step(opt, NULL));
    CHECK_OK(zro_optim_consolidate(opt, 0, &state));
    CHECK_STATUS(zro_optim_load(opt, state), t->rank == 0 ? ZRO_ERR_PEER : ZRO_ERR_STATE);
    CHECK_TEXT("broadcast");
    CHECK_OK(zro_state_broadcast(t->group, &state, 0));
    CHECK_OK(zro_optim_load(opt, state));
    CHECK_OK(zro_optim_step(opt, NULL));
    model_check_ranks(&m, t->group);
    zro_state_destroy(state);
    zro_optim_destroy(opt);
}

#define SEVERAL (ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4) | ZT_WORLD(7))

const zt_case cases_zero_resume[] = {
    { "S15_consolidate", S15_consolidate, ZT_WORLD(1) | SEVERAL, ZT_ALL, 0, 0, 0, 0 },
    { "S15_load_without", S15_load_without, SEVERAL, ZT_ALL, 0, 0, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
