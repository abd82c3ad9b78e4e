/* S61: two sharded optimizers on disjoint parameters of one model, each with a rule, a partition and a schedule of its own. */
#include <string.h>

#include "twin.h"
#include "zt/list.h"

static const twin_spec specs[] = {
    { 5, ZRO_F32, ZRO_F32, 0 },    { 3000, ZRO_F32, ZRO_F32, 0 }, { 1, ZRO_BF16, ZRO_F32, 0 },  { 1024, ZRO_F32, ZRO_F32, 0 },
    { 70, ZRO_BF16, ZRO_BF16, 0 }, { 2049, ZRO_F32, ZRO_F32, 1 }, { 100, ZRO_F64, ZRO_F64, 0 }, { 33, ZRO_F32, ZRO_F32, 0 },
};

enum { N = sizeof specs / sizeof *specs };

static const size_t halves[2][N / 2] = { { 0, 2, 4, 6 }, { 7, 5, 3, 1 } }; /* in another order */

/* One of the two: sharded, and alone. */
typedef struct half {
    zro_optim *optim[2];
    zro_schedule *schedule[2];
} half;

static void make_half(twin *w, int which, half *h)
{
    const zro_rule *rule = which == 0 ? zro_rule_adam() : zro_rule_sgd();
    zro_sgd_config sgd = ZRO_SGD_CONFIG_INIT;

    sgd.momentum = 0.9;
    for (int k = 0; k < 2; k++) {
        zro_param_group group = { 0 };
        zro_plan_config plan;
        zro_optim_config c = twin_config(w, NULL, &plan);

        if (which == 1)
            plan.partition = ZRO_PARTITION_GREEDY;
        if (k == 1)
            c = (zro_optim_config)ZRO_OPTIM_CONFIG_INIT;
        group.params = k == 0 ? w->sharded : w->alone;
        group.index = halves[which];
        group.n = N / 2;
        CHECK_OK(zro_optim_create(k == 0 ? w->t->group : NULL, &group, 1, rule, which == 1 ? &sgd : NULL, &c, &h->optim[k]));
        if (which == 0)
            CHECK_OK(zro_schedule_step_lr(h->optim[k], 2, 0.5, &h->schedule[k]));
        else
            CHECK_OK(zro_schedule_cosine(h->optim[k], 5, 0, &h->schedule[k]));
    }
    CHECK_OK(zro_param_publish(h->optim[0], ZRO_ALL_PARAMS, 0));
}

static void step_half(const half *h)
{
    for (int k = 0; k < 2; k++) {
        CHECK_OK(zro_optim_step(h->optim[k], NULL));
        CHECK_OK(zro_schedule_step(h->schedule[k]));
    }
}

static void free_half(half *h)
{
    for (int k = 0; k < 2; k++) {
        zro_optim_destroy(h->optim[k]);
        zro_schedule_destroy(h->schedule[k]);
    }
}

static void two_optimizers(zt_rank *t)
{
    for (int place = 0; place < TWIN_PLACES; place++) {
        twin_mode mode = { (twin_place)place, ZRO_PARTITION_FLAT, ZRO_OFF };
        half h[2];
        twin w;

        twin_init(&w, t, mode, specs, N);
        w.n_used = N;
        make_half(&w, 0, &h[0]);
        make_half(&w, 1, &h[1]);
        twin_check(&w);
        for (int s = 0; s < 6; s++) {
            twin_gradients(&w, 1);
            step_half(&h[s % 2]);
            if (s % 3 != 0) /* not always both */
                step_half(&h[1 - s % 2]);
            twin_check(&w);
        }
        free_half(&h[0]);
        twin_gradients(&w, 1);
        step_half(&h[1]);
        twin_check(&w);
        free_half(&h[1]);
        twin_check(&w); /* views have gone; the values are where they were */
        twin_free(&w);
    }
}

#define WORLDS (ZT_WORLD(1) | ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4) | ZT_WORLD(7))

const zt_case cases_zero_two_optimizers[] = {
    { "S61_two_optimizers", two_optimizers, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
