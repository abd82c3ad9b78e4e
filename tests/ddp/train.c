/* S17: a small model trained under a ddp by a sharded optimizer, attached and not, equals the same by one that is not sharded. */
#include <string.h>

#include "model.h"
#include "zt/list.h"
#include "zt/zt.h"

enum { BATCHES = 20 };
enum { HANDED, IN_PLACE, SHARDED, ALONE, KINDS }; /* attached, attached, not attached, neither attached nor sharded */
enum { ADAM, ADAMW, SGD };

/* One of the models with what trains it. */
typedef struct trainee {
    model m;
    float running[8]; /* a buffer of the model */
    zro_param buffer;
    zro_ddp *ddp;
    zro_optim *optim;
    int attaches;
} trainee;

static void create(trainee *e, zt_rank *t, int kind, int rule, zro_switch maximize)
{
    zro_ddp_config config = ZRO_DDP_CONFIG_INIT;
    zro_optim_config c = ZRO_OPTIM_CONFIG_INIT;
    zro_adam_config adam = ZRO_ADAM_CONFIG_INIT;
    zro_adamw_config adamw = ZRO_ADAMW_CONFIG_INIT;
    zro_sgd_config sgd = ZRO_SGD_CONFIG_INIT;
    const void *const values[] = { &adam, &adamw, &sgd };
    const zro_rule *const rules[] = { zro_rule_adam(), zro_rule_adamw(), zro_rule_sgd() };
    zro_param_group group;

    adam.maximize = adamw.maximize = sgd.maximize = maximize;
    sgd.lr = 0.01;
    sgd.momentum = 0.9;
    memset(e, 0, sizeof *e);
    if (kind == HANDED)
        model_init_in(&e->m, t->group, ZRO_MEMORY_ONCE);
    else
        model_init(&e->m);
    if (kind != HANDED && t->rank != 0)
        memset(e->m.data, 0, sizeof e->m.data);
    zro_param_init(&e->buffer);
    e->buffer.data = e->running;
    e->buffer.shape[0] = 8;
    config.buffers = &e->buffer;
    config.n_buffers = 1;
    config.find_unused = ZRO_ON;
    config.bucket_bytes = 4000;
    CHECK_OK(zro_ddp_create(t->group, e->m.params, MODEL_PARAMS, &config, &e->ddp));
    e->attaches = kind == HANDED || kind == IN_PLACE;
    c.ddp = e->attaches ? e->ddp : NULL;
    group = model_group(&e->m);
    CHECK_OK(zro_optim_create(kind == ALONE ? NULL : t->group, &group, 1, rules[rule], values[rule], &c, &e->optim));
}

/* The last bias is unused on some ranks, or on all of them. */
static int is_used(zt_rank *t, int batch, size_t i)
{
    return i != MODEL_B2 || (batch % 5 != 4 && (batch % 3 != 2 || t->rank == 0));
}

static void train(trainee *e, zt_rank *t, int batch)
{
    for (size_t k = 0; k < 8; k++)
        e->running[k] = (float)(100 * t->rank + batch);
    CHECK_OK(zro_ddp_forward(e->ddp));
    for (size_t k = 0; k < 8; k++)
        CHECK(e->running[k] == (float)batch);
    (void)model_run(&e->m, t->rank, batch);
    for (size_t i = MODEL_PARAMS; i-- > 0;)
        if (!is_used(t, batch, i))
            e->m.params[i].grad_present = 0;
        else if (e->m.params[i].requires_grad != 0)
            CHECK_OK(zro_ddp_grad_ready(e->ddp, i));
    CHECK_OK(zro_ddp_backward_end(e->ddp));
    CHECK_OK(zro_optim_step(e->optim, NULL));
    if (!e->attaches)
        CHECK_OK(zro_optim_zero_grad(e->optim, ZRO_ZERO_CLEAR));
}

static void train_all(trainee *e, zt_rank *t, int batch)
{
    for (int k = 0; k < KINDS; k++)
        train(&e[k], t, batch);
    for (int k = 1; k < KINDS; k++)
        CHECK(model_equal(&e[0].m, &e[k].m));
    model_check_ranks(&e[0].m, t->group);
}

static void S17(zt_rank *t)
{
    for (int maximize = 0; maximize < 2; maximize++) {
        zro_state *states[KINDS];
        trainee e[KINDS];

        for (int k = 0; k < KINDS; k++)
            create(&e[k], t, k, (int)t->arg, (zro_switch)maximize);
        for (int b = 0; b < BATCHES; b++) {
            for (int k = 0; k < KINDS && b >= BATCHES / 2; k++)
                e[k].m.params[0].requires_grad ^= 1;
            train_all(e, t, b);
        }
        for (int k = 0; k < KINDS; k++)
            CHECK_OK(zro_optim_consolidate(e[k].optim, ZRO_ALL, &states[k]));
        for (int k = 0; k < KINDS; k++)
            CHECK_OK(zro_optim_load(e[k].optim, states[(k + 1) % KINDS]));
        train_all(e, t, BATCHES);
        for (int k = 0; k < KINDS; k++)
            CHECK_OK(zro_optim_load(e[k].optim, states[k]));
        train_all(e, t, BATCHES + 1);
        for (int k = 0; k < KINDS; k++) {
            zro_state_destroy(states[k]);
            zro_optim_destroy(e[k].optim);
            zro_ddp_destroy(e[k].ddp);
        }
        CHECK_OK(zro_barrier(t->group));
        model_free(&e[HANDED].m);
    }
}

#define WORLDS (ZT_WORLD(1) | ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4))

const zt_case cases_ddp_train[] = {
    { "S17_adam", S17, WORLDS, ZT_ALL, 0, 0, 0, ADAM },
    { "S17_adamw", S17, WORLDS, ZT_ALL, 0, 0, 0, ADAMW },
    { "S17_sgd", S17, WORLDS, ZT_ALL, 0, 0, 0, SGD },
    { "S17_adam_two", S17, ZT_WORLD(4), ZT_ALL, ZT_TWO_MACHINES, 0, 0, ADAM },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
