/* What ranks must agree about once an optimizer is made, and where memory of one does not lie like that of the others. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "twin.h"
#include "zt/list.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define SEVERAL (ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4) | ZT_WORLD(7))

/* Cut in the middle by a flat plan, whatever the number of ranks. */
static const twin_spec specs[] = { { 12000, ZRO_F32, ZRO_F32, 0 },
                                   { 700, ZRO_F32, ZRO_F32, 0 },
                                   { 8192, ZRO_BF16, ZRO_F32, 0 } };

enum { N = COUNT(specs) };

static const twin_mode flat = { TWIN_OWN, ZRO_PARTITION_FLAT, ZRO_OFF };

/* ---- disagreeing ---- */

static int is_last(const zt_rank *t)
{
    return t->rank == t->size - 1;
}

/* A value that one rank alone has changed, and a gradient that one rank alone lacks: found before anything is stepped. */
static void different_steps(zt_rank *t)
{
    zro_optim_config clipped = ZRO_OPTIM_CONFIG_INIT;
    double lr;

    clipped.clip_norm = 1;
    for (int k = 0; k < 2; k++) {
        twin w;

        twin_init(&w, t, flat, specs, N);
        twin_create(&w, zro_rule_adamw(), NULL, k == 0 ? NULL : &clipped, 0);
        twin_train(&w, 2);
        CHECK_OK(zro_optim_get_value(w.optim, 0, "lr", &lr));
        if (is_last(t))
            CHECK_OK(zro_optim_set_value(w.optim, 0, "lr", 2 * lr));
        CHECK_STATUS(zro_optim_step(w.optim, NULL), ZRO_ERR_MISMATCH);
        CHECK_TEXT("parameter group 0: lr = ");
        CHECK_OK(zro_optim_set_value(w.optim, 0, "lr", lr));
        twin_gradients(&w, 1);
        w.sharded[0].grad_present = !is_last(t);
        w.sharded[2].grad_present = !is_last(t);
        CHECK_STATUS(zro_optim_step(w.optim, NULL), ZRO_ERR_MISMATCH);
        CHECK_TEXT("no gradient");
        w.sharded[0].grad_present = w.sharded[2].grad_present = 1;
        twin_check(&w);
        twin_step(&w);
        twin_check_slots(&w);
        twin_gradients(&w, 1);
        w.sharded[0].requires_grad = w.alone[0].requires_grad = 0; /* whether a frozen one has a gradient does not matter */
        w.sharded[0].grad_present = !is_last(t);
        twin_step(&w);
        twin_free(&w);
    }
}

/* One of a thousand parameters, each cut over several owners, has a gradient on all ranks but one: found, named, and nothing is
 * updated. */
enum { MANY = 1000, CUT = 1500 /* elements: two blocks */, ODD = 777 };

static void one_of_many(zt_rank *t)
{
    zro_param *params = malloc(MANY * sizeof *params);
    float *data = malloc(2 * (size_t)MANY * CUT * sizeof *data);
    zro_param_group group = { .params = params, .n = MANY };
    zro_optim *opt;

    CHECK(params != NULL && data != NULL);
    for (size_t i = 0; i < 2 * (size_t)MANY * CUT; i++)
        data[i] = 1;
    for (int i = 0; i < MANY; i++) {
        static const zro_param empty = ZRO_PARAM_INIT;

        params[i] = empty;
        params[i].shape[0] = CUT;
        params[i].device = i; /* a bucket of its own, so that it is cut */
        params[i].data = data + (size_t)i * CUT;
        params[i].grad = data + (size_t)(MANY + i) * CUT;
        params[i].grad_present = i != ODD || !is_last(t);
    }
    CHECK_OK(zro_optim_create(t->group, &group, 1, zro_rule_sgd(), NULL, NULL, &opt));
    CHECK_STATUS(zro_optim_step(opt, NULL), ZRO_ERR_MISMATCH);
    CHECK_TEXT("parameter 777: a gradient");
    CHECK_TEXT("parameter 777: no gradient");
    for (size_t i = 0; i < (size_t)MANY * CUT; i++)
        CHECK(data[i] == 1);
    params[ODD].grad_present = 1;
    CHECK_OK(zro_optim_step(opt, NULL));
    for (size_t i = 0; i < (size_t)MANY * CUT; i++)
        CHECK(data[i] != 1);
    zro_optim_destroy(opt);
    free(params);
    free(data);
}

/* Parameters that begin with different values: told once, by rank 0, with the first such parameter and the rank. */
static void keep_warning(void *user, zro_log_level level, const char *text)
{
    if (level == ZRO_LOG_WARN)
        snprintf(user, 1024, "%s", text);
}

static void first_values(zt_rank *t)
{
    for (int odd = 0; odd < 2; odd++) {
        float data[3][2000], grad[3][2000] = { { 0 } };
        char warning[1024] = "", expected[100];
        zro_group_config config = zt_config();
        zro_param params[3];
        zro_param_group list = { .params = params, .n = 3 };
        zro_group *group;
        zro_optim *opt;

        config.settings.log = keep_warning;
        config.settings.log_user = warning;
        group = zt_group_with(t, &config);
        for (int i = 0; i < 3; i++) {
            zro_param_init(&params[i]);
            params[i].shape[0] = 2000;
            params[i].data = data[i];
            zro_param_set_grad(&params[i], grad[i]);
            for (int k = 0; k < 2000; k++)
                data[i][k] = (float)k;
        }
        params[1].name = "bias";
        if (odd && is_last(t))
            data[1][1999] = data[2][0] = -1;
        CHECK_OK(zro_optim_create(group, &list, 1, zro_rule_sgd(), NULL, NULL, &opt));
        CHECK_OK(zro_optim_step(opt, NULL));
        snprintf(expected, sizeof expected, "parameter bias has other values on rank %d than on rank 0", t->size - 1);
        CHECK(odd && t->rank == 0 ? strstr(warning, expected) != NULL : warning[0] == '\0');
        warning[0] = '\0';
        zro_optim_destroy(opt);
        grad[0][7] = (float)t->rank; /* not averaged: told by another optimizer, whose first step it is */
        CHECK_OK(zro_optim_create(group, &list, 1, zro_rule_sgd(), NULL, NULL, &opt));
        CHECK_OK(zro_optim_step(opt, NULL));
        CHECK((strstr(warning, "the gradient of parameter 0 is another one on rank 1") != NULL) == (t->rank == 0));
        warning[0] = '\0';
        if (is_last(t))
            data[1][0] = -1;
        CHECK_OK(zro_optim_step(opt, NULL));
        CHECK(warning[0] == '\0');
        zro_optim_destroy(opt);
        grad[0][7] = 0;
        data[1][0] = (float)t->rank; /* a program that updates parameters itself has begun with that before its step */
        CHECK_OK(zro_optim_create(group, &list, 1, zro_rule_none(), NULL, NULL, &opt));
        CHECK_OK(zro_optim_step(opt, NULL));
        CHECK(warning[0] == '\0');
        zro_optim_destroy(opt);
        zro_group_destroy(group);
    }
}

/* Gradients that differ only later: told at step 10 or 100, once, and not where they are the same there. */
static void later_gradients(zt_rank *t)
{
    static const int firsts[] = { 1, 10, 11, 101 }; /* the step from which on they differ */
    static const int tells[] = { 1, 10, 100, 0 };   /* and the one that says so */

    for (size_t k = 0; k < sizeof firsts / sizeof *firsts; k++) {
        float data[2][600] = { { 0 } }, grad[2][600] = { { 0 } };
        char warning[1024] = "";
        zro_group_config config = zt_config();
        zro_param params[2];
        zro_param_group list = { .params = params, .n = 2 };
        zro_group *group;
        zro_optim *opt;
        int told = 0;

        config.settings.log = keep_warning;
        config.settings.log_user = warning;
        group = zt_group_with(t, &config);
        for (size_t i = 0; i < 2; i++)
            zro_param_make(&params[i], i == 0 ? "w" : "b", ZRO_F32, data[i], grad[i], 1, (size_t[]){ i == 0 ? 600 : 200 });
        CHECK_OK(zro_optim_create(group, &list, 1, zro_rule_sgd(), NULL, NULL, &opt));
        for (int s = 1; s <= 110; s++) {
            for (int i = 0; i < 600; i++)
                grad[k % 2][i] = s < firsts[k] ? 1 : (float)t->rank;
            CHECK_OK(zro_optim_step(opt, NULL));
            if (warning[0] == '\0')
                continue;
            CHECK(t->rank == 0 && told++ == 0 && s == tells[k]);
            CHECK(strstr(warning, k % 2 == 0 ? "the gradient of parameter w is" : "the gradient of parameter b is") != NULL);
            CHECK(strstr(warning, s == 1 ? "at the first step," : s == 10 ? "at step 10," : "at step 100,") != NULL);
            warning[0] = '\0';
        }
        CHECK(told == (t->rank == 0 && tells[k] > 0));
        zro_optim_destroy(opt);
        zro_group_destroy(group);
    }
}

static void different_arguments(zt_rank *t)
{
    zro_state *state;
    double norm;
    twin w;

    twin_init(&w, t, flat, specs, N);
    twin_create(&w, zro_rule_adamw(), NULL, NULL, 0);
    twin_train(&w, 1);
    CHECK_STATUS(zro_optim_consolidate(w.optim, is_last(t) ? ZRO_ALL : 0, &state), ZRO_ERR_MISMATCH);
    CHECK_TEXT("to = 0");
    CHECK(state == NULL);
    CHECK_STATUS(zro_clip_grad_norm(w.optim, 1, is_last(t) ? 1 : 2, &norm), ZRO_ERR_MISMATCH);
    CHECK_TEXT("norm_type = 1");
    state = NULL;
    CHECK_OK(zro_optim_consolidate(w.optim, 0, &state));
    CHECK_STATUS(zro_state_broadcast(t->group, &state, is_last(t) ? 99 : 0), is_last(t) ? ZRO_ERR_INVALID : ZRO_ERR_PEER);
    CHECK_TEXT("root = 99");
    zro_state_destroy(state);
    twin_train(&w, 1);
    twin_free(&w);
}

/* Different things at the same time: what breaks the optimizer's own group leaves the program's whole. */
static void different_calls(zt_rank *t)
{
    for (int k = 0; k < 2; k++) {
        twin w;

        twin_init(&w, t, flat, specs, N);
        twin_create(&w, zro_rule_adamw(), NULL, NULL, 0);
        twin_train(&w, 1);
        if (k == 0)
            CHECK_STATUS(is_last(t) ? zro_optim_publish(w.optim) : zro_optim_step(w.optim, NULL), ZRO_ERR_MISMATCH);
        else
            CHECK_STATUS(zro_param_publish(w.optim, is_last(t) ? 1 : 0, 0), ZRO_ERR_MISMATCH);
        CHECK_OK(zro_barrier(t->group));
        twin_free(&w);
    }
}

/* Ways in which one rank's state can differ from the others' besides its arrays. */
enum { SCALE, TRACKER, PROGRESS_STEPS, VALUE, FIRST_LR, NUMBER, FEWER_SLOTS, NAMES, WAYS };

/* The same state, or one that differs in some way. */
static zro_state *state_of(const zro_state *from, int way)
{
    zro_state *s;

    CHECK_OK(zro_state_create("adamw", &s));
    CHECK_OK(zro_state_add_group(s, NULL, 0));
    for (size_t i = 0; i < N; i++) {
        zro_param p;

        CHECK_OK(zro_state_param(from, i, &p));
        CHECK_OK(zro_state_add_param(s, &p));
        for (size_t k = 0; k < zro_state_slots(from, i); k++) {
            const char *name = zro_state_slot_name(from, i, k);
            zro_slot slot;

            CHECK_OK(zro_state_slot(from, i, name, &slot));
            if (way == FEWER_SLOTS && i == N - 1)
                continue;
            if (way == NAMES && strcmp(name, "master") == 0) /* a slot of the same size and type */
                name = "max_exp_avg_sq";
            CHECK_OK(zro_state_add_slot(s, i, name, slot.dtype, slot.data, slot.count));
            CHECK_OK(zro_state_slot(s, i, name, &slot));
            if (way == NUMBER && i == N - 1 && slot.count == 1)
                *(double *)slot.data += 1;
        }
    }
    CHECK_OK(zro_state_set_value(s, 0, "lr", way == VALUE ? 0.75 : 0.5));
    CHECK_OK(zro_state_set_value(s, 0, "initial_lr", way == FIRST_LR ? 0.75 : 0.5));
    CHECK_OK(zro_state_set_progress(s, &(zro_progress){ .steps = way == PROGRESS_STEPS ? 2 : 1,
                                                        .scale = way == SCALE ? 2 : 4,
                                                        .growth_tracker = way == TRACKER ? 8 : 7 }));
    return s;
}

/* States that differ in more than arrays; nothing is loaded then. */
static void different_states(zt_rank *t)
{
    zro_optim_config scaled = ZRO_OPTIM_CONFIG_INIT;
    zro_state *state, *other;
    double before, after;
    twin w;

    scaled.loss_scale = ZRO_ON;
    twin_init(&w, t, flat, specs, N);
    twin_create(&w, zro_rule_adamw(), NULL, &scaled, 0);
    twin_train(&w, 1);
    CHECK_OK(zro_optim_consolidate(w.optim, ZRO_ALL, &state));
    CHECK_OK(zro_optim_get_value(w.optim, 0, "lr", &before));
    for (int way = 0; way < WAYS; way++) {
        other = state_of(state, is_last(t) ? way : WAYS);
        CHECK_STATUS(zro_optim_load(w.optim, other), ZRO_ERR_MISMATCH);
        CHECK_TEXT("load the same state on all ranks");
        zro_state_destroy(other);
    }
    CHECK_OK(zro_optim_get_value(w.optim, 0, "lr", &after));
    CHECK(before == after);
    twin_train(&w, 1);
    other = state_of(state, WAYS); /* the same on all */
    CHECK_OK(zro_optim_load(w.optim, other));
    CHECK(twin_info(w.optim).scale == 4 && twin_info(w.optim).growth_tracker == 7);
    zro_state_destroy(other);
    CHECK_OK(zro_state_set_progress(state, &(zro_progress){ .scale = 1e300 }));
    CHECK_STATUS(zro_optim_load(w.optim, state), ZRO_ERR_INVALID);
    CHECK_TEXT("1e+300");
    zro_state_destroy(state);
    twin_free(&w);
}

/* A single number that owners of one parameter have differently, because a program wrote it: the state has one place for it. */
static void different_numbers(zt_rank *t)
{
    zro_state *state;
    zro_slot slot;
    twin w;

    twin_init(&w, t, flat, specs, 1);
    twin_create(&w, zro_rule_adamw(), NULL, NULL, 0);
    twin_train(&w, 2);
    CHECK_OK(zro_optim_slot(w.optim, 0, "step", &slot));
    if (is_last(t))
        *(double *)slot.data += 1;
    CHECK_STATUS(zro_optim_consolidate(w.optim, ZRO_ALL, &state), ZRO_ERR_STATE);
    CHECK_TEXT("its step (2 and 3)");
    *(double *)slot.data = is_last(t) ? 2 : NAN;
    CHECK_STATUS(zro_optim_consolidate(w.optim, ZRO_ALL, &state), ZRO_ERR_STATE);
    CHECK_TEXT("disagree about its step");
    *(double *)slot.data = NAN; /* all have the same, though NaN is not equal to itself */
    CHECK_OK(zro_optim_consolidate(w.optim, ZRO_ALL, &state));
    CHECK_OK(zro_state_slot(state, 0, "step", &slot));
    CHECK(isnan(*(double *)slot.data));
    zro_state_destroy(state);
    twin_free(&w);
}

/* ---- memory ---- */

/* One rank moves a parameter inside its group memory, which others could reach, or out of it. */
static void moved_alone(zt_rank *t)
{
    for (int k = 0; k < 2; k++) {
        float *elsewhere;
        zro_memory *more;
        twin_mode mode = { TWIN_GROUP, k == 0 ? ZRO_PARTITION_GREEDY : ZRO_PARTITION_FLAT, ZRO_OFF };
        twin w;

        twin_init(&w, t, mode, specs, N);
        twin_create(&w, zro_rule_adamw(), NULL, NULL, 0);
        twin_train(&w, 2);
        CHECK_OK(zro_memory_alloc(t->group, ZRO_MEMORY_EACH, 12000 * sizeof *elsewhere, &more));
        elsewhere = k == 0 ? zro_memory_data(more) : malloc(12000 * sizeof *elsewhere);
        CHECK(elsewhere != NULL);
        if (is_last(t)) {
            memcpy(elsewhere, w.sharded[0].data, 12000 * sizeof *elsewhere);
            w.sharded[0].data = elsewhere;
        }
        twin_train(&w, 3);
        twin_free(&w);
        zro_memory_free(more);
        if (k == 1)
            free(elsewhere);
    }
}

/* Memory that exists once, but for other ranks than those of the optimizer. */
static void once_for_others(zt_rank *t)
{
    float grads[3000], alone[3000] = { 0 };
    zro_param p = ZRO_PARAM_INIT, q = ZRO_PARAM_INIT;
    zro_param_group group = { .params = &p, .n = 1 }, single = { .params = &q, .n = 1 };
    zro_optim *optim, *reference;
    zro_group *self;
    int me = t->rank;

    CHECK_OK(zro_group_create_members(t->group, &me, 1, &self));
    p.shape[0] = q.shape[0] = 3000;
    CHECK_OK(zro_params_alloc(self, &p, 1, NULL));
    for (int i = 0; i < 3000; i++)
        grads[i] = (float)(i % 7) - 3;
    memcpy(p.grad, grads, sizeof grads);
    p.grad_present = 1;
    q.data = alone;
    zro_param_set_grad(&q, grads);
    CHECK_OK(zro_optim_create(t->group, &group, 1, zro_rule_adamw(), NULL, NULL, &optim));
    CHECK_OK(zro_optim_create(NULL, &single, 1, zro_rule_adamw(), NULL, NULL, &reference));
    for (int i = 0; i < 3; i++) {
        CHECK_OK(zro_optim_step(optim, NULL));
        CHECK_OK(zro_optim_step(reference, NULL));
        CHECK(memcmp(p.data, alone, sizeof alone) == 0);
    }
    zro_optim_destroy(optim);
    zro_optim_destroy(reference);
    zro_params_free(&p, 1);
    zro_group_destroy(self);
}

/* Parameters of two allocations may be freed in any order, some at a time. */
static void freed_apart(zt_rank *t)
{
    zro_param p[4];

    for (int i = 0; i < 4; i++) {
        zro_param_init(&p[i]);
        p[i].shape[0] = 100;
    }
    CHECK_OK(zro_params_alloc(t->group, &p[0], 2, NULL));
    CHECK_OK(zro_params_alloc(t->group, &p[2], 2, NULL));
    zro_params_free(&p[1], 2);
    CHECK(p[1].data == NULL && p[2].grad == NULL && p[0].data != NULL && p[3].data != NULL);
    memset(p[0].grad, 1, 100 * sizeof(float));
    memset(p[3].grad, 1, 100 * sizeof(float));
    zro_params_free(p, 4);
    zro_params_free(p, 4);
    CHECK(p[0].data == NULL && p[3].memory == NULL);
}

const zt_case cases_zero_agree[] = {
    { "S95_first_values", first_values, ZT_WORLD(2) | ZT_WORLD(3), ZT_ALL, 0, 0, 0, 0 },
    { "S95_later_gradients", later_gradients, ZT_WORLD(2) | ZT_WORLD(3), ZT_ALL, 0, 60, 0, 0 },
    { "S96_one_of_many", one_of_many, ZT_WORLD(2) | ZT_WORLD(7), ZT_ALL, 0, 60, 0, 0 },
    { "zero_different_steps", different_steps, SEVERAL, ZT_ALL, 0, 60, 0, 0 },
    { "zero_different_arguments", different_arguments, SEVERAL, ZT_ALL, 0, 60, 0, 0 },
    { "zero_different_calls", different_calls, SEVERAL, ZT_ALL, 0, 60, 0, 0 },
    { "zero_different_numbers", different_numbers, SEVERAL, ZT_ALL, 0, 60, 0, 0 },
    { "zero_different_states", different_states, SEVERAL, ZT_ALL, 0, 60, 0, 0 },
    { "zero_moved_alone", moved_alone, SEVERAL, ZT_ALL, 0, 60, 0, 0 },
    { "zero_once_for_others", once_for_others, SEVERAL, ZT_ALL, 0, 60, 0, 0 },
    { "zero_freed_apart", freed_apart, SEVERAL, ZT_ALL, 0, 60, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
