/* S48: the whole state on one rank or on all, nothing growing elsewhere.  S62: consolidated on a rank in the middle, loaded
 * there and elsewhere, also by optimizers that are sharded otherwise.  S84: how much memory that takes on those who only
 * send. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/point.h"
#include "twin.h"
#include "zt/list.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const twin_spec specs[] = {
    { 5, ZRO_F32, ZRO_F32, 0 },    { 3000, ZRO_F32, ZRO_F32, 0 }, { 2050, ZRO_BF16, ZRO_F32, 0 }, { 0, ZRO_F32, ZRO_F32, 0 },
    { 1024, ZRO_F64, ZRO_F64, 1 }, { 70, ZRO_F32, ZRO_F32, 0 },   { 1, ZRO_F16, ZRO_F16, 0 },
};

enum { N = COUNT(specs), NEVER = 5, ROOM = 1 << 20 };

/* Some steps, in which one parameter never has a gradient and one is frozen in the end. */
static void train(twin *w, const char *rule)
{
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;

    config.loss_scale = ZRO_ON;
    twin_create(w, zro_rule_find(rule), NULL, &config, 4);
    twin_train(w, 1);
    twin_add_rest(w);
    for (int s = 0; s < 3; s++) {
        twin_gradients(w, 1);
        w->sharded[NEVER].grad_present = w->alone[NEVER].grad_present = 0;
        w->sharded[0].requires_grad = w->alone[0].requires_grad = s < 2;
        twin_step(w);
    }
    CHECK_OK(zro_optim_set_value(w->optim, 1, "lr", 0.25));
    CHECK_OK(zro_optim_set_value(w->reference, 1, "lr", 0.25));
}

/* ---- comparing ---- */

static void same_slot(const zro_state *a, const zro_state *b, size_t param, const char *name)
{
    zro_slot x, y;

    CHECK_OK(zro_state_slot(a, param, name, &x));
    CHECK_OK(zro_state_slot(b, param, name, &y));
    CHECK(x.present == 1 && y.present == 1 && x.count == y.count && x.dtype == y.dtype && x.first == 0);
    CHECK(x.count == 0 || memcmp(x.data, y.data, x.count * zro_dtype_bytes(x.dtype)) == 0);
}

static void same_values(const zro_state *a, const zro_state *b, size_t group)
{
    size_t first[2], n[2], values[2];

    CHECK_OK(zro_state_group(a, group, &first[0], &n[0], &values[0]));
    CHECK_OK(zro_state_group(b, group, &first[1], &n[1], &values[1]));
    CHECK(first[0] == first[1] && n[0] == n[1] && values[0] == values[1] && values[0] > 0);
    for (size_t i = 0; i < values[0]; i++) {
        zro_value x, y;

        CHECK_OK(zro_state_value(a, group, i, &x));
        CHECK_OK(zro_state_value(b, group, i, &y));
        CHECK(strcmp(x.name, y.name) == 0 && x.value == y.value);
    }
}

static void same_state(const zro_state *a, const zro_state *b)
{
    zro_progress x, y;

    CHECK(strcmp(zro_state_rule(a), zro_state_rule(b)) == 0 && zro_state_bytes(a) == zro_state_bytes(b));
    CHECK(zro_state_groups(a) == zro_state_groups(b) && zro_state_params(a) == zro_state_params(b));
    for (size_t k = 0; k < zro_state_groups(a); k++)
        same_values(a, b, k);
    for (size_t i = 0; i < zro_state_params(a); i++) {
        CHECK(zro_state_slots(a, i) == zro_state_slots(b, i));
        for (size_t k = 0; k < zro_state_slots(a, i); k++) {
            CHECK(strcmp(zro_state_slot_name(a, i, k), zro_state_slot_name(b, i, k)) == 0);
            same_slot(a, b, i, zro_state_slot_name(a, i, k));
        }
    }
    CHECK_OK(zro_state_get_progress(a, &x));
    CHECK_OK(zro_state_get_progress(b, &y));
    CHECK(x.steps == y.steps && x.scale == y.scale && x.growth_tracker == y.growth_tracker);
}

/* ---- S48 ---- */

/* A rank that has no state is told what to call. */
static void check_none(const zro_state *state)
{
    zro_slot slot;
    double value;

    CHECK(state == NULL && zro_state_rule(state) == NULL && zro_state_params(state) == 0 && zro_state_bytes(state) == 0);
    CHECK_STATUS(zro_state_slot(state, 0, "exp_avg", &slot), ZRO_ERR_STATE);
    CHECK_TEXT("zro_state_broadcast");
    CHECK_STATUS(zro_state_get_value(state, 0, "lr", &value), ZRO_ERR_STATE);
    CHECK_TEXT("zro_optim_consolidate");
}

static void consolidate_to(twin *w, int to)
{
    zro_stats before = twin_stats(w->optim), after;
    zro_state *state, *alone;

    CHECK_OK(zro_optim_consolidate(w->optim, to, &state));
    after = twin_stats(w->optim);
    CHECK(after.heap_bytes == before.heap_bytes && after.shared_bytes == before.shared_bytes);
    CHECK(after.heap_peak_bytes <= before.heap_peak_bytes || after.heap_peak_bytes - before.heap_bytes < ROOM);
    if (to != ZRO_ALL && to != w->t->rank) {
        check_none(state);
        return;
    }
    CHECK_OK(zro_optim_consolidate(w->reference, to == ZRO_ALL ? 0 : to, &alone));
    same_state(state, alone);
    CHECK((zro_state_slots(state, NEVER) == 0) == (strcmp(zro_state_rule(state), "adagrad") != 0));
    CHECK(zro_state_slots(state, 1) > 0);
    zro_state_destroy(alone);
    zro_state_destroy(state);
}

static void consolidate(zt_rank *t)
{
    static const char *const rules[] = { "adam", "asgd", "adagrad", "nadam", "rprop" };

    for (int k = -1; (k = twin_next_mode(t, k)) < TWIN_MODES;) {
        twin w;

        twin_init(&w, t, twin_mode_at(k), specs, N);
        train(&w, rules[k % 5]);
        consolidate_to(&w, 0);
        consolidate_to(&w, t->size - 1);
        consolidate_to(&w, ZRO_ALL);
        twin_gradients(&w, 1);
        twin_step(&w); /* it was only looked at */
        twin_free(&w);
    }
}

/* Before the first step there are groups, values and parameters, but slots only of those that are there from creation. */
static void consolidate_new(zt_rank *t)
{
    static const char *const rules[] = { "adam", "adagrad" };

    for (int k = 0; k < 2; k++) {
        zro_state *state, *alone;
        twin w;

        twin_init(&w, t, twin_mode_at(0), specs, N);
        twin_create(&w, zro_rule_find(rules[k]), NULL, NULL, 0);
        CHECK_OK(zro_optim_consolidate(w.optim, ZRO_ALL, &state));
        CHECK_OK(zro_optim_consolidate(w.reference, 0, &alone));
        same_state(state, alone);
        CHECK((zro_state_bytes(state) > 0) == (k == 1));
        CHECK_OK(zro_optim_load(w.optim, state));
        zro_state_destroy(alone);
        zro_state_destroy(state);
        twin_train(&w, 2);
        if (t->size > 1)
            CHECK_STATUS(zro_optim_consolidate(w.optim, t->size, &state), ZRO_ERR_INVALID);
        CHECK(t->size == 1 || state == NULL);
        CHECK_OK(zro_barrier(t->group));
        twin_free(&w);
    }
}

/* One array and nothing else: with one owner it is all that travels. */
static void consolidate_lone(zt_rank *t)
{
    zro_sgd_config sgd = ZRO_SGD_CONFIG_INIT;
    zro_state *state, *alone;
    twin w;

    sgd.momentum = 0.9;
    twin_init(&w, t, twin_mode_at(0), specs, 1);
    twin_create(&w, zro_rule_sgd(), &sgd, NULL, 0);
    twin_train(&w, 2);
    CHECK_OK(zro_optim_consolidate(w.optim, ZRO_ALL, &state));
    CHECK_OK(zro_optim_consolidate(w.reference, 0, &alone));
    CHECK(zro_state_slots(state, 0) == 1);
    same_state(state, alone);
    zro_state_destroy(alone);
    zro_state_destroy(state);
    twin_free(&w);
}

/* More arrays than travel at once: slots are counted, and each has the bytes of its parameter. */
static void consolidate_many(zt_rank *t)
{
    enum { MANY = 2100 }; /* of which each has two arrays, and a batch has 4096 */
    static const char *const names[] = { "exp_avg", "exp_avg_sq" };
    float *data = calloc(2 * MANY, sizeof *data);
    zro_param *params = calloc(MANY, sizeof *params);
    zro_param_group group = { .params = params, .n = MANY };
    zro_plan_config greedy = ZRO_PLAN_CONFIG_INIT;
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_optim *optim;
    zro_state *state;

    greedy.partition = ZRO_PARTITION_GREEDY;
    config.plan = &greedy;
    for (size_t i = 0; i < MANY; i++) {
        zro_param_init(&params[i]);
        params[i].shape[0] = 1;
        params[i].data = &data[i];
        data[MANY + i] = (float)i + 1;
        zro_param_set_grad(&params[i], &data[MANY + i]);
    }
    CHECK_OK(zro_optim_create(t->group, &group, 1, zro_rule_adam(), NULL, &config, &optim));
    CHECK_OK(zro_optim_step(optim, NULL));
    CHECK_OK(zro_optim_consolidate(optim, 0, &state));
    for (size_t i = 0; t->rank == 0 && i < MANY; i++)
        for (int k = 0; k < 2; k++) {
            zro_slot slot;
            float g = (float)i + 1, want = k == 0 ? g : g * g;

            CHECK_OK(zro_state_slot(state, i, names[k], &slot));
            want *= k == 0 ? 0.1f : 0.001f;
            CHECK(slot.count == 1 && fabsf(*(float *)slot.data - want) <= 1e-5f * want);
        }
    zro_state_destroy(state);
    zro_optim_destroy(optim);
    free(params);
    free(data);
}

/* ---- S62 ---- */

/* The same values as another twin has. */
static void take_values(twin *w, const twin *from)
{
    CHECK_OK(zro_barrier(w->t->group));
    for (size_t i = 0; i < N; i++) {
        size_t bytes = w->count[i] * zro_dtype_bytes(w->alone[i].dtype);

        if (bytes > 0)
            memcpy(w->alone[i].data, from->alone[i].data, bytes);
        if (bytes > 0 && w->t->rank == 0)
            memcpy(w->sharded[i].data, from->alone[i].data, bytes);
    }
    CHECK_OK(zro_barrier(w->t->group));
}

/* Both go on with the same gradients. */
static void go_on(twin *w, twin *old)
{
    uint64_t mine, other;

    twin_gradients(w, 1);
    for (size_t i = 0; i < N; i++) {
        memcpy(old->alone[i].grad, w->alone[i].grad, w->count[i] * zro_dtype_bytes(w->alone[i].grad_dtype));
        old->alone[i].grad_present = 1;
        old->alone[i].requires_grad = 1;
    }
    twin_step(w);
    CHECK_OK(zro_optim_step(old->reference, NULL));
    CHECK_OK(zro_params_hash(w->sharded, N, &mine));
    CHECK_OK(zro_params_hash(old->alone, N, &other));
    CHECK(mine == other);
}

static void load_elsewhere(twin *old, int k, const zro_state *state)
{
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    double lr;
    twin w;

    config.loss_scale = ZRO_ON;
    twin_init(&w, old->t, twin_mode_at(k), specs, N);
    take_values(&w, old);
    twin_create(&w, zro_rule_adam(), NULL, &config, 4);
    twin_add_rest(&w);
    CHECK_OK(zro_optim_load(w.optim, state));
    CHECK_OK(zro_optim_load(w.reference, state));
    CHECK_OK(zro_optim_get_value(w.optim, 1, "lr", &lr));
    CHECK(lr == 0.25 && twin_info(w.optim).n_steps == 4);
    twin_check_slots(&w);
    go_on(&w, old);
    go_on(&w, old);
    twin_free(&w);
}

static void load(zt_rank *t)
{
    const int to = t->size > 1 ? 1 : 0;

    for (int k = -1; (k = twin_next_mode(t, k)) < TWIN_MODES;) {
        zro_state *state;
        twin w;

        twin_init(&w, t, twin_mode_at(k), specs, N);
        train(&w, "adam");
        CHECK_OK(zro_optim_consolidate(w.optim, to, &state));
        if (t->rank != to)
            check_none(state);
        CHECK_OK(zro_state_broadcast(t->group, &state, to));
        CHECK_OK(zro_optim_load(w.optim, state));
        twin_check_slots(&w);
        load_elsewhere(&w, (k + 7) % TWIN_MODES, state);
        zro_state_destroy(state);
        twin_free(&w);
    }
}

/* A root whose library lays out a state otherwise. */
static void state_other_build(zt_rank *t)
{
    zro__point_plan other = { .name = "state.layout", .action = ZRO__POINT_FAIL, .nth = 2 /* it is measured first */ };
    const int root = 1;
    zro_state *state;
    zro_status st;
    twin w;

    twin_init(&w, t, twin_mode_at(0), specs, N);
    train(&w, "adam");
    CHECK_OK(zro_optim_consolidate(w.optim, root, &state));
    if (t->rank == root)
        zro__point_plan_set(&other);
    st = zro_state_broadcast(t->group, &state, root);
    zro__point_plan_set(NULL);
    CHECK_STATUS(st, ZRO_ERR_FORMAT);
    CHECK_TEXT("use one build of libzro for all ranks");
    CHECK((state != NULL) == (t->rank == root));
    CHECK_OK(zro_barrier(t->group));
    zro_state_destroy(state);
    twin_free(&w);
}

/* What does not fit is refused, by all if by one, and nothing has changed. */
static void load_refuses(zt_rank *t)
{
    zro_state *state, *none = NULL;
    zro_status st;
    twin w, other;

    twin_init(&w, t, twin_mode_at(0), specs, N);
    twin_init(&other, t, twin_mode_at(0), specs, N - 1);
    train(&w, "adam");
    twin_create(&other, zro_rule_adam(), NULL, NULL, 0);
    twin_train(&other, 1);
    CHECK_OK(zro_optim_consolidate(w.optim, ZRO_ALL, &state));
    CHECK_STATUS(zro_optim_load(other.optim, state), ZRO_ERR_INVALID);
    st = zro_optim_load(w.optim, t->rank == 0 ? none : state);
    CHECK_STATUS(st, t->rank == 0 ? ZRO_ERR_STATE : ZRO_ERR_PEER);
    twin_train(&other, 1);
    twin_gradients(&w, 1);
    twin_step(&w);
    zro_state_destroy(state);
    twin_free(&other);
    twin_free(&w);
}

/* Values differ: the ranks' states are not the same. */
static void load_mismatch(zt_rank *t)
{
    zro_state *state;
    twin w;

    twin_init(&w, t, twin_mode_at(0), specs, N);
    train(&w, "adam");
    CHECK_OK(zro_optim_consolidate(w.optim, ZRO_ALL, &state));
    CHECK_OK(zro_state_set_value(state, 0, "lr", t->rank == 0 ? 0.5 : 0.75));
    CHECK_STATUS(zro_optim_load(w.optim, state), ZRO_ERR_MISMATCH);
    zro_state_destroy(state);
    twin_free(&w);
}

/* ---- S84 ---- */

/* The state is 4 MiB; who only sends takes next to nothing for it. */
static void memory_of_senders(zt_rank *t)
{
    const twin_spec large[] = { { 500000, ZRO_F32, ZRO_F32, 0 }, { 24288, ZRO_F32, ZRO_F32, 0 } };
    twin_mode mode = { TWIN_OWN, ZRO_PARTITION_FLAT, ZRO_OFF };
    zro_stats before, after;
    zro_state *state;
    twin w;

    if (zt_opt.max_count < large[0].count)
        zt_skip(t, "a state of 4 MiB is more than --max-count allows");
    mode.partition = t->arg != 0 ? ZRO_PARTITION_GREEDY : ZRO_PARTITION_FLAT;
    twin_init(&w, t, mode, large, COUNT(large));
    twin_create(&w, zro_rule_adam(), NULL, NULL, 0);
    twin_train(&w, 1);
    before = twin_stats(w.optim);
    CHECK_OK(zro_optim_consolidate(w.optim, t->size - 1, &state));
    after = twin_stats(w.optim);
    CHECK(after.heap_bytes == before.heap_bytes);
    CHECK(after.heap_peak_bytes <= before.heap_peak_bytes || after.heap_peak_bytes - before.heap_bytes < ROOM);
    CHECK((state != NULL) == (t->rank == t->size - 1) && (state == NULL || zro_state_bytes(state) >= 2 * 4 * 524288));
    zro_state_destroy(state);
    twin_free(&w);
}

#define WORLDS (ZT_WORLD(1) | ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4) | ZT_WORLD(7))
#define SEVERAL (ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4))

const zt_case cases_zero_consolidate[] = {
    { "S48_consolidate", consolidate, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { "S48_consolidate_new", consolidate_new, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { "S48_consolidate_lone", consolidate_lone, SEVERAL, ZT_ALL, 0, 60, 0, 0 },
    { "S48_consolidate_many", consolidate_many, ZT_WORLD(2), ZT_ALL, 0, 60, 0, 0 },
    { "S62_load", load, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { "state_other_build", state_other_build, SEVERAL, ZT_ALL, 0, 60, 0, 0 },
    { "S62_load_refuses", load_refuses, SEVERAL, ZT_ALL, 0, 60, 0, 0 },
    { "S62_load_mismatch", load_mismatch, SEVERAL, ZT_ALL, 0, 60, 0, 0 },
    { "S84_memory_of_senders", memory_of_senders, SEVERAL, ZT_ALL, 0, 60, 0, 0 },
    { "S84_memory_of_senders_greedy", memory_of_senders, ZT_WORLD(3), ZT_BOTH, 0, 60, 0, 1 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
