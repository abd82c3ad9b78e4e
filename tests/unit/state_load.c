/* States that an optimizer without ranks takes over: all of what it should have, nothing of what does not fit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "state_parts.h"
#include "zro.h"

/* ---- an optimizer ---- */

enum { W, H, D, E, PARAMS, INTERVAL = 10 };

/* w: f32, 2 x 3; h: bf16, 4 (with a master); in a group of its own d: f64, 2, and e: f16, 1 (with a master). */
typedef struct model {
    float w[6], w_grad[6];
    uint16_t h[4], h_grad[4], e[1], e_grad[1];
    double d[2], d_grad[2];
    zro_param params[PARAMS];
    zro_param_group groups[2];
    zro_optim *optim;
} model;

static void model_make(model *m, const zro_rule *rule, zro_switch loss_scale)
{
    static const char *const names[] = { "w", "h", "d", "e" };
    static const zro_dtype types[] = { ZRO_F32, ZRO_BF16, ZRO_F64, ZRO_F16 };
    static const size_t counts[] = { 2, 4, 2, 1 };
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;

    *m = (model){ 0 };
    for (int i = 0; i < PARAMS; i++)
        m->params[i] = shaped(names[i], types[i], i == W ? 2 : 1, counts[i], i == W ? 3 : 0);
    m->params[W].data = m->w;
    m->params[H].data = m->h;
    m->params[D].data = m->d;
    m->params[E].data = m->e;
    zro_param_set_grad(&m->params[W], m->w_grad);
    zro_param_set_grad(&m->params[H], m->h_grad);
    zro_param_set_grad(&m->params[D], m->d_grad);
    zro_param_set_grad(&m->params[E], m->e_grad);
    m->groups[0] = (zro_param_group){ .params = m->params, .n = 2 };
    m->groups[1] = (zro_param_group){ .params = m->params + 2, .n = 2 };
    config.loss_scale = loss_scale;
    config.growth_interval = INTERVAL;
    OK(zro_optim_create(NULL, m->groups, 2, rule, NULL, &config, &m->optim));
}

static void model_free(model *m)
{
    zro_optim_destroy(m->optim);
}

static void model_train(model *m, int steps)
{
    for (int s = 0; s < steps; s++) {
        for (int i = 0; i < 6; i++)
            m->w_grad[i] = (float)(i - 2 + s);
        for (int i = 0; i < 2; i++)
            m->d_grad[i] = i - 0.25 * s;
        m->h_grad[s % 4] = m->e_grad[0] = 0x3c00; /* 1 in f16, small in bf16 */
        OK(zro_optim_step(m->optim, NULL));
    }
}

static zro_step_info info_of(const model *m)
{
    zro_step_info info = ZRO_STEP_INFO_INIT;

    OK(zro_optim_info(m->optim, &info));
    return info;
}

static zro_state *state_of(const model *m)
{
    zro_state *s;

    OK(zro_optim_consolidate(m->optim, 0, &s));
    return s;
}

/* ---- states made by hand ---- */

typedef enum twist {
    NOTHING,
    NO_RULE,
    OTHER_RULE,
    ONE_GROUP,
    GROUPS_DIVIDED_OTHERWISE,
    ONE_PARAM_LESS,
    OTHER_NAME,
    NO_NAME,
    OTHER_SHAPE,
    OTHER_DIMS,
    OTHER_TYPE,
    UNKNOWN_SLOT,
    MASTER_OF_F32,
    MASTER_OF_F64,
    NUMBER_AS_ARRAY,
    ARRAY_AS_NUMBER,
    ARRAY_OF_F64,
    STEP_OF_F32,
    STEP_OF_I64,
    SLOT_MISSING,
    NO_SLOTS,
    OPTIONAL_SLOT_ON_FIRST,
    UNKNOWN_VALUE,
    BAD_VALUE,
    VALUES_OF_OTHERS,
    SCALE_TOO_SMALL,
    SCALE_TOO_LARGE,
    NO_SCALE,
    TRACKER_TOO_LARGE
} twist;

enum { STEPS = 7 };

static void add_params(zro_state *s, twist t)
{
    const char *name = t == OTHER_NAME ? "x" : t == NO_NAME ? NULL : "w";

    add_param(s, name, t == OTHER_TYPE ? ZRO_F16 : ZRO_F32, t == OTHER_DIMS ? 1 : 2, t == OTHER_SHAPE ? 3 : 2,
              t == OTHER_SHAPE  ? 2
              : t == OTHER_DIMS ? 0
                                : 3);
    if (t == GROUPS_DIVIDED_OTHERWISE)
        OK(zro_state_add_group(s, NULL, 0));
    add_param(s, "h", ZRO_BF16, 1, 4, 0);
    if (t != GROUPS_DIVIDED_OTHERWISE && t != ONE_GROUP)
        OK(zro_state_add_group(s, NULL, 0));
    add_param(s, "d", ZRO_F64, 1, 2, 0);
    if (t != ONE_PARAM_LESS)
        add_param(s, "e", ZRO_F16, 1, 1, 0);
}

static void add_slots(zro_state *s, size_t i, twist t)
{
    static const size_t counts[] = { 6, 4, 2, 1 };
    const zro_dtype type = i == D ? ZRO_F64 : ZRO_F32;
    const int twisted = i == W;

    add_slot(s, i, "exp_avg", twisted && t == ARRAY_OF_F64 ? ZRO_F64 : type, twisted && t == ARRAY_AS_NUMBER ? 1 : counts[i]);
    if (!twisted || t != SLOT_MISSING)
        add_slot(s, i, "exp_avg_sq", type, counts[i]);
    if (t == OPTIONAL_SLOT_ON_FIRST && twisted)
        add_slot(s, i, "max_exp_avg_sq", type, counts[i]);
    if (twisted && t == NUMBER_AS_ARRAY)
        add_slot(s, i, "step", ZRO_F64, counts[i]);
    else if (t == STEP_OF_F32)
        OK(zro_state_add_slot(s, i, "step", ZRO_F32, &(float){ STEPS }, 1));
    else if (t == STEP_OF_I64)
        OK(zro_state_add_slot(s, i, "step", ZRO_I64, &(int64_t){ STEPS }, 1));
    else
        OK(zro_state_add_slot(s, i, "step", ZRO_F64, &(double){ STEPS }, 1));
    if (i == H || i == E || (i == W && t == MASTER_OF_F32) || (i == D && t == MASTER_OF_F64))
        add_slot(s, i, "master", ZRO_F32, counts[i]);
    if (twisted && t == UNKNOWN_SLOT)
        add_slot(s, i, "momentum_buffer", ZRO_F32, counts[i]);
}

static zro_state *build(twist t)
{
    static const zro_value others[] = {
        { "foreach", 0 }, { "max_lr", 1 }, { "min_lr", 2 }, { "base_momentum", 3 }, { "max_momentum", 4 }
    };
    zro_progress progress = { .steps = STEPS, .scale = 512, .growth_tracker = 3 };
    zro_state *s;

    progress.scale = t == SCALE_TOO_SMALL ? 1e-60 : t == SCALE_TOO_LARGE ? 1e60 : t == NO_SCALE ? 0 : 512;
    progress.growth_tracker = t == TRACKER_TOO_LARGE ? INTERVAL : 3;
    OK(zro_state_create(t == NO_RULE ? "" : t == OTHER_RULE ? "sgd" : "adam", &s));
    OK(zro_state_add_group(s, others, t == VALUES_OF_OTHERS ? 5 : 0));
    add_params(s, t);
    OK(zro_state_set_value(s, 0, "lr", t == BAD_VALUE ? -1 : 0.5));
    if (t == UNKNOWN_VALUE)
        OK(zro_state_set_value(s, 0, "momentum", 0.5));
    OK(zro_state_set_progress(s, &progress));
    for (size_t i = 0; t != NO_SLOTS && i < zro_state_params(s); i++)
        if (t != OTHER_SHAPE && t != OTHER_DIMS)
            add_slots(s, i, t);
    return s;
}

/* ---- what fits ---- */

static double number_of(const model *m, size_t param, const char *name)
{
    zro_slot slot;

    OK(zro_optim_slot(m->optim, param, name, &slot));
    assert_true(slot.present && slot.count == 1 && slot.dtype == ZRO_F64);
    return *(double *)slot.data;
}

static double value_of(const model *m, size_t group, const char *name)
{
    double value;

    OK(zro_optim_get_value(m->optim, group, name, &value));
    return value;
}

static void everything_is_taken_over(void **state)
{
    static const twist fits[] = { NOTHING, NO_RULE, NO_NAME, STEP_OF_F32, OPTIONAL_SLOT_ON_FIRST, VALUES_OF_OTHERS };

    (void)state;
    for (size_t k = 0; k < sizeof fits / sizeof *fits; k++) {
        zro_state *s = build(fits[k]), *t;
        model m;

        model_make(&m, zro_rule_adam(), ZRO_ON);
        model_train(&m, 2);
        OK(zro_optim_load(m.optim, s));
        t = state_of(&m);
        assert_int_equal(info_of(&m).n_steps, STEPS);
        assert_int_equal(info_of(&m).growth_tracker, 3);
        assert_true(info_of(&m).scale == 512 && value_of(&m, 0, "lr") == 0.5 && value_of(&m, 1, "lr") == 1e-3);
        for (size_t i = 0; i < PARAMS; i++) {
            assert_true(number_of(&m, i, "step") == STEPS);
            assert_int_equal(zro_state_slots(s, i), zro_state_slots(t, i));
            for (size_t j = 0; j < zro_state_slots(s, i); j++) {
                const char *name = zro_state_slot_name(s, i, j);
                zro_slot x, y;

                OK(zro_state_slot(s, i, name, &x));
                OK(zro_state_slot(t, i, name, &y));
                assert_int_equal(x.count, y.count);
                if (strcmp(name, "step") != 0)
                    assert_memory_equal(x.data, y.data, x.count * zro_dtype_bytes(x.dtype));
            }
        }
        model_train(&m, 1);
        assert_true(number_of(&m, W, "step") == STEPS + 1);
        zro_state_destroy(s);
        zro_state_destroy(t);
        model_free(&m);
    }
}

/* A state of before the first step takes away what there is. */
static void slots_that_the_state_lacks_are_gone(void **state)
{
    zro_state *s = build(NO_SLOTS);
    zro_slot slot;
    model m;

    (void)state;
    model_make(&m, zro_rule_adam(), ZRO_ON);
    model_train(&m, 2);
    OK(zro_optim_load(m.optim, s));
    for (size_t i = 0; i < PARAMS; i++) {
        OK(zro_optim_slot(m.optim, i, "exp_avg", &slot));
        assert_false(slot.present);
    }
    zro_state_destroy(s);
    model_free(&m);
}

static void loss_scales(void **state)
{
    zro_state *without = build(NO_SCALE), *beyond = build(TRACKER_TOO_LARGE), *wild = build(SCALE_TOO_LARGE), *s;
    zro_progress progress;
    model m, plain;

    (void)state;
    model_make(&m, zro_rule_adam(), ZRO_ON);
    model_make(&plain, zro_rule_adam(), ZRO_OFF);
    OK(zro_optim_set_scale(m.optim, 64, 5));
    OK(zro_optim_load(m.optim, without)); /* a state without a scale leaves the optimizer's */
    assert_true(info_of(&m).scale == 64 && info_of(&m).growth_tracker == 5);
    s = state_of(&m);
    OK(zro_state_get_progress(s, &progress));
    assert_true(progress.scale == 64 && progress.growth_tracker == 5 && progress.steps == STEPS);
    zro_state_destroy(s);
    OK(zro_optim_load(m.optim, beyond)); /* as many steps as this optimizer never counts to */
    assert_true(info_of(&m).scale == 512 && info_of(&m).growth_tracker == 0);
    OK(zro_optim_load(plain.optim, wild)); /* means nothing to an optimizer without a scale, whose state has none */
    s = state_of(&plain);
    OK(zro_state_get_progress(s, &progress));
    assert_true(progress.scale == 0 && progress.steps == STEPS);
    zro_state_destroy(s);
    zro_state_destroy(without);
    zro_state_destroy(beyond);
    zro_state_destroy(wild);
    model_free(&m);
    model_free(&plain);
}

/* The first lr of a group, which schedules begin from. */
static void first_learning_rates(void **state)
{
    zro_state *s = build(NOTHING), *t;
    zro_schedule *schedule;
    double first;
    model m;

    (void)state;
    model_make(&m, zro_rule_adam(), ZRO_ON);
    t = state_of(&m);
    REFUSED(zro_state_get_value(t, 0, "initial_lr", &first), ZRO_ERR_INVALID, "no value named");
    zro_state_destroy(t);
    OK(zro_schedule_exponential(m.optim, 0.5, &schedule));
    OK(zro_state_set_value(s, 1, "initial_lr", 0.25));
    OK(zro_optim_load(m.optim, s));
    t = state_of(&m);
    OK(zro_state_get_value(t, 0, "initial_lr", &first));
    assert_true(first == 1e-3); /* the state has none: as before */
    OK(zro_state_get_value(t, 1, "initial_lr", &first));
    assert_true(first == 0.25);
    zro_state_destroy(s);
    zro_state_destroy(t);
    zro_schedule_destroy(schedule);
    model_free(&m);
}

/* Names and types are those of the creation; what the program does to its structs after that means nothing. */
static void names_and_types_are_the_optimizers(void **state)
{
    char name[] = "its name";
    double beta;
    zro_state *s;
    zro_param p;
    model m;

    (void)state;
    model_make(&m, zro_rule_adam(), ZRO_ON);
    zro_optim_destroy(m.optim);
    m.params[W].name = name;
    OK(zro_optim_create(NULL, m.groups, 2, zro_rule_adam(), NULL, NULL, &m.optim));
    strcpy(name, "another");
    m.params[D].grad_dtype = ZRO_BF16;
    s = state_of(&m);
    OK(zro_state_param(s, W, &p));
    assert_string_equal(p.name, "its name");
    OK(zro_state_param(s, D, &p));
    assert_int_equal(p.grad_dtype, ZRO_F64);
    OK(zro_state_get_value(s, 1, "betas:1", &beta)); /* PyTorch's name for beta2 */
    assert_true(beta == 0.999);
    zro_state_destroy(s);
    model_free(&m);
}

/* A program may write what it likes into single numbers. */
static void numbers_that_are_none(void **state)
{
    zro_state *s;
    zro_slot slot;
    model m, n;

    (void)state;
    model_make(&m, zro_rule_adam(), ZRO_ON);
    model_make(&n, zro_rule_adam(), ZRO_ON);
    model_train(&m, 1);
    OK(zro_optim_slot(m.optim, W, "step", &slot));
    *(double *)slot.data = NAN;
    s = state_of(&m);
    OK(zro_optim_load(n.optim, s));
    assert_true(isnan(number_of(&n, W, "step")) && number_of(&n, D, "step") == 1);
    zro_state_destroy(s);
    model_free(&m);
    model_free(&n);
}

/* ---- what does not fit ---- */

static void what_does_not_fit_changes_nothing(void **state)
{
    static const struct {
        twist t;
        const char *words;
    } cases[] = {
        { OTHER_RULE, "the state is that of rule sgd, the optimizer has adam" },
        { ONE_GROUP, "the state has 4 parameters in 1 groups, the optimizer 4 parameters in 2 groups" },
        { ONE_PARAM_LESS, "the state has 3 parameters in 2 groups" },
        { GROUPS_DIVIDED_OTHERWISE, "group 1 begins with parameter 1 in the state, with 2 in the optimizer" },
        { OTHER_NAME, "parameter 0 is x in the state, w in the optimizer" },
        { OTHER_SHAPE, "parameter w has another shape" },
        { OTHER_DIMS, "parameter w has another shape" },
        { OTHER_TYPE, "parameter w is f16 in the state, f32 in the optimizer" },
        { UNKNOWN_SLOT, "a slot momentum_buffer for parameter w, but the optimizer has none" },
        { MASTER_OF_F32, "a slot master for parameter w, but the optimizer has none" },
        { MASTER_OF_F64, "a slot master for parameter d, but the optimizer has none" },
        { NUMBER_AS_ARRAY, "slot step of parameter w has 6 elements, must have 1" },
        { ARRAY_AS_NUMBER, "slot exp_avg of parameter w has 1 elements, must have 6" },
        { ARRAY_OF_F64, "slot exp_avg of parameter w is f64, must be f32" },
        { STEP_OF_I64, "slot step of parameter w is i64, must be a floating-point number" },
        { SLOT_MISSING, "the state of parameter w has no exp_avg_sq" },
        { BAD_VALUE, "lr = -1" },
        { SCALE_TOO_SMALL, "loss scale 1e-60" },
        { SCALE_TOO_LARGE, "loss scale 1e+60" },
    };
    zro_state *before, *after;
    void *bytes[2];
    size_t n[2];
    model m;

    (void)state;
    model_make(&m, zro_rule_adam(), ZRO_ON);
    model_train(&m, 2);
    before = state_of(&m);
    OK(zro_state_pack(before, &bytes[0], &n[0]));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        zro_state *s = build(cases[i].t);

        REFUSED(zro_optim_load(m.optim, s), ZRO_ERR_INVALID, cases[i].words);
        zro_state_destroy(s);
        after = state_of(&m);
        OK(zro_state_pack(after, &bytes[1], &n[1]));
        assert_int_equal(n[0], n[1]);
        assert_memory_equal(bytes[0], bytes[1], n[0]);
        zro_bytes_free(bytes[1]);
        zro_state_destroy(after);
    }
    REFUSED(zro_optim_load(m.optim, NULL), ZRO_ERR_STATE, "zro_state_broadcast");
    REFUSED(zro_optim_load(NULL, before), ZRO_ERR_INVALID, "the optimizer is NULL");
    zro_bytes_free(bytes[0]);
    zro_state_destroy(before);
    before = build(UNKNOWN_VALUE); /* left out, with a warning */
    OK(zro_optim_load(m.optim, before));
    zro_state_destroy(before);
    model_free(&m);
}

/* An optimizer without a rule has no values and no slots; its parameters and steps are compared and counted all the same. */
static void without_a_rule(void **state)
{
    zro_state *s = build(NO_SLOTS), *plain, *t;
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    model m;

    (void)state;
    model_make(&m, zro_rule_adam(), ZRO_OFF);
    zro_optim_destroy(m.optim);
    OK(zro_optim_create(NULL, m.groups, 2, zro_rule_none(), NULL, &config, &m.optim));
    REFUSED(zro_optim_load(m.optim, s), ZRO_ERR_INVALID, "the state is that of rule adam, the optimizer has no rule");
    model_train(&m, 3);
    plain = state_of(&m);
    assert_string_equal(zro_state_rule(plain), "");
    assert_int_equal(zro_state_bytes(plain), 0);
    OK(zro_optim_load(m.optim, plain));
    t = state_of(&m);
    same(plain, t);
    OK(zro_state_set_value(plain, 0, "lr", 1));
    OK(zro_optim_load(m.optim, plain)); /* a value that nobody has is left out, with a warning */
    zro_state_destroy(s);
    zro_state_destroy(t);
    zro_state_destroy(plain);
    model_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_is_taken_over),
        cmocka_unit_test(slots_that_the_state_lacks_are_gone),
        cmocka_unit_test(loss_scales),
        cmocka_unit_test(first_learning_rates),
        cmocka_unit_test(names_and_types_are_the_optimizers),
        cmocka_unit_test(numbers_that_are_none),
        cmocka_unit_test(what_does_not_fit_changes_nothing),
        cmocka_unit_test(without_a_rule),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
