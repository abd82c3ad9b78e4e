/* S44: element types side by side in one optimizer.  S45: one parameter with more than half of everything.  S46: fewer
 * parameters than ranks.  Each in every place and with every partition, equal to the optimizer alone. */
#include <string.h>

#include "twin.h"
#include "zt/list.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const twin_spec mixed[] = {
    { 3000, ZRO_F32, ZRO_F32, 0 }, { 7, ZRO_F64, ZRO_F64, 0 },    { 2050, ZRO_BF16, ZRO_BF16, 0 }, { 1, ZRO_BF16, ZRO_F32, 0 },
    { 1024, ZRO_F64, ZRO_F32, 0 }, { 513, ZRO_F16, ZRO_F16, 0 },  { 0, ZRO_F32, ZRO_F32, 0 },      { 5, ZRO_F32, ZRO_BF16, 0 },
    { 1025, ZRO_F32, ZRO_F32, 1 }, { 33, ZRO_BF16, ZRO_BF16, 1 },
};

/* The largest has 40000 of 73000 elements. */
static const twin_spec uneven[] = {
    { 1024, ZRO_F32, ZRO_F32, 0 },   { 40000, ZRO_F32, ZRO_F32, 0 }, { 5, ZRO_F32, ZRO_F32, 0 },
    { 10000, ZRO_BF16, ZRO_F32, 0 }, { 3000, ZRO_F32, ZRO_F32, 0 },  { 19000, ZRO_F64, ZRO_F64, 0 },
};

static const twin_spec few[] = { { 3, ZRO_F32, ZRO_F32, 0 }, { 1, ZRO_F64, ZRO_F64, 0 } };

static void train(zt_rank *t, twin_mode mode, const twin_spec *specs, size_t n, const char *rule)
{
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    twin w;

    twin_init(&w, t, mode, specs, n);
    if (t->arg == 1)
        config.masters = ZRO_OFF;
    twin_create(&w, zro_rule_find(rule), NULL, &config, 0);
    twin_train(&w, 3);
    twin_free(&w);
}

static void types(zt_rank *t)
{
    static const char *const rules[] = { "adam", "sgd", "adagrad", "rprop", "asgd" };

    for (int i = -1; (i = twin_next_mode(t, i)) < TWIN_MODES;)
        train(t, twin_mode_at(i), mixed, COUNT(mixed), rules[i % (int)COUNT(rules)]);
}

/* ---- sizes ---- */

static void check_even(const twin *w)
{
    const zro_plan *plan = zro_optim_plan(w->optim);
    size_t least = SIZE_MAX, most = 0, all = 0;

    for (int r = 0; r < w->t->size; r++) {
        size_t n = zro_plan_elements(plan, r);

        least = n < least ? n : least;
        most = n > most ? n : most;
        all += n;
    }
    CHECK(zro_plan_buckets(plan) == 3 && all == zro_plan_elements(plan, ZRO_ALL));
    CHECK(most - least <= 3 * 1024);
}

static void largest(zt_rank *t)
{
    for (int place = 0; place < TWIN_PLACES; place++) {
        twin_mode mode = { (twin_place)place, ZRO_PARTITION_FLAT, ZRO_OFF };
        twin w;

        twin_init(&w, t, mode, uneven, COUNT(uneven));
        twin_create(&w, zro_rule_adamw(), NULL, NULL, 0);
        check_even(&w);
        twin_train(&w, 2);
        twin_free(&w);
    }
}

/* One with a gradient more than the others must not wait for those that own nothing; a group is added whose only parameter is
 * one element; then the state is taken out and put into another, from which training goes on. */
static void empty_shards(zt_rank *t)
{
    for (int i = -1; (i = twin_next_mode(t, i)) < TWIN_MODES;) {
        zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
        zro_state *state;
        twin w;

        twin_init(&w, t, twin_mode_at(i), few, COUNT(few));
        config.clip_norm = 0.5;
        config.skip_non_finite = ZRO_ON;
        twin_create(&w, zro_rule_adam(), NULL, &config, 1);
        twin_train(&w, 2);
        twin_add_rest(&w);
        twin_train(&w, 2);
        CHECK_OK(zro_optim_consolidate(w.optim, ZRO_ALL, &state));
        CHECK(zro_state_params(state) == COUNT(few) && zro_state_groups(state) == 2);
        CHECK_OK(zro_optim_load(w.optim, state));
        CHECK_OK(zro_optim_load(w.reference, state));
        zro_state_destroy(state);
        twin_train(&w, 2);
        twin_free(&w);
    }
}

#define WORLDS (ZT_WORLD(1) | ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4) | ZT_WORLD(7))

const zt_case cases_zero_types[] = {
    { "S44_types", types, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { "S44_types_without_masters", types, ZT_WORLD(3), ZT_BOTH, 0, 60, 0, 1 },
    { "S44_types_two_machines", types, ZT_WORLD(4), ZT_LOCAL | ZT_MPI, ZT_TWO_MACHINES, 60, 0, 0 },
    { "S45_largest", largest, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { "S46_empty_shards", empty_shards, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
