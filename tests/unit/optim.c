/* What a program sets in an optimizer and asks of it: what is refused is named and changes nothing, and every answer is looked
 * at.  Most of it needs no ranks; where it does, they are threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "state_parts.h"
#include "zro.h"

/* ---- parameters ---- */

enum { F, B, D, PARAMS, COUNT = 5 };

/* f: f32, b: bf16 (with a master), d: f64, of COUNT elements each, all gradients 1 */
typedef struct model {
    float f[COUNT], f_grad[COUNT];
    uint16_t b[COUNT], b_grad[COUNT];
    double d[COUNT], d_grad[COUNT];
    zro_param params[PARAMS];
    zro_param_group group;
} model;

static void model_make(model *m)
{
    *m = (model){ 0 };
    m->params[F] = shaped("f", ZRO_F32, 1, COUNT, 0);
    m->params[B] = shaped("b", ZRO_BF16, 1, COUNT, 0);
    m->params[D] = shaped("d", ZRO_F64, 1, COUNT, 0);
    m->params[F].data = m->f;
    m->params[B].data = m->b;
    m->params[D].data = m->d;
    for (int i = 0; i < COUNT; i++) {
        m->f_grad[i] = 1;
        m->b_grad[i] = 0x3f80;
        m->d_grad[i] = 1;
    }
    zro_param_set_grad(&m->params[F], m->f_grad);
    zro_param_set_grad(&m->params[B], m->b_grad);
    zro_param_set_grad(&m->params[D], m->d_grad);
    m->group = (zro_param_group){ .params = m->params, .n = PARAMS };
}

static zro_optim *create(model *m, const zro_rule *rule, const zro_optim_config *config)
{
    zro_optim *opt;

    model_make(m);
    OK(zro_optim_create(NULL, &m->group, 1, rule, NULL, config, &opt));
    return opt;
}

static zro_step_info info_of(const zro_optim *opt)
{
    zro_step_info info = ZRO_STEP_INFO_INIT;

    OK(zro_optim_info(opt, &info));
    return info;
}

/* ---- settings ---- */

typedef enum twist {
    MASTERS,
    SKIP,
    SCALE,
    VIEWS,
    ROUNDING,
    STOCHASTIC_WITH_MASTERS,
    THREADS,
    CLIP_NORM,
    CLIP_VALUE,
    SKIPS,
    SCALES,
    TWISTS
} twist;

static zro_optim_config twisted(twist t)
{
    zro_optim_config c = ZRO_OPTIM_CONFIG_INIT;
    zro_switch *const switches[] = { &c.masters, &c.skip_non_finite, &c.loss_scale, &c.parameters_as_bucket_view };

    if (t <= VIEWS)
        *switches[t] = (zro_switch)2;
    c.rounding = t == ROUNDING ? (zro_rounding)2 : t == STOCHASTIC_WITH_MASTERS ? ZRO_STOCHASTIC : ZRO_NEAREST;
    c.settings.threads = t == THREADS ? 0 : 1;
    c.clip_norm = t == CLIP_NORM ? 1 : 0;
    c.clip_value = t == CLIP_VALUE ? 1 : 0;
    if (t == SKIPS)
        c.skip_non_finite = ZRO_ON;
    if (t == SCALES)
        c.loss_scale = ZRO_ON;
    return c;
}

static void settings_are_checked(void **state)
{
    static const char *const words[] = { "masters",          "skip_non_finite",   "loss_scale", "parameters_as_bucket_view",
                                         "rounding must be", "set masters = off", "threads" };
    zro_optim *opt;
    model m;

    (void)state;
    model_make(&m);
    for (twist t = MASTERS; t < TWISTS; t++) {
        zro_optim_config c = twisted(t);

        opt = (zro_optim *)1;
        if (t <= THREADS) {
            REFUSED(zro_optim_create(NULL, &m.group, 1, zro_rule_adam(), NULL, &c, &opt), ZRO_ERR_INVALID, words[t]);
        } else { /* a step without a rule does none of it */
            REFUSED(zro_optim_create(NULL, &m.group, 1, zro_rule_none(), NULL, &c, &opt), ZRO_ERR_INVALID,
                    "without a rule there is none");
            assert_null(opt);
            OK(zro_optim_create(NULL, &m.group, 1, zro_rule_adam(), NULL, &c, &opt));
            zro_optim_destroy(opt);
            opt = NULL;
        }
        assert_null(opt);
    }
}

static void arguments_are_checked(void **state)
{
    zro_adam_config adam = ZRO_ADAM_CONFIG_INIT;
    const zro_value value = { "lr", 1 };
    zro_param_group groups[2];
    zro_rule half = *zro_rule_adam();
    zro_optim *opt;
    model m;

    (void)state;
    model_make(&m);
    REFUSED(zro_optim_create(NULL, &m.group, 1, zro_rule_adam(), NULL, NULL, NULL), ZRO_ERR_INVALID, "out is NULL");
    REFUSED(zro_optim_create(NULL, NULL, 1, zro_rule_adam(), NULL, NULL, &opt), ZRO_ERR_INVALID, "no parameter groups");
    REFUSED(zro_optim_create(NULL, &m.group, 0, zro_rule_adam(), NULL, NULL, &opt), ZRO_ERR_INVALID, "no parameter groups");
    REFUSED(zro_optim_create(NULL, &m.group, 1, zro_rule_none(), &adam, NULL, &opt), ZRO_ERR_INVALID,
            "optim_create: without a rule");
    for (int i = 0; i < 2; i++) {
        groups[0] = groups[1] = m.group;
        groups[0].n = 1;
        groups[1].params = m.params + 1;
        groups[1].n = 1;
        groups[1].config = i == 0 ? &adam : NULL;
        groups[1].values = &value;
        groups[1].n_values = (size_t)i;
        REFUSED(zro_optim_create(NULL, groups, 2, zro_rule_none(), NULL, NULL, &opt), ZRO_ERR_INVALID,
                "group 1: without a rule");
    }
    OK(zro_optim_create(NULL, groups, 1, zro_rule_none(), NULL, NULL, &opt));
    REFUSED(zro_optim_add_param_group(opt, &groups[1]), ZRO_ERR_INVALID, "group 1: without a rule");
    zro_optim_destroy(opt);
    half.f64 = NULL;
    REFUSED(zro_optim_create(NULL, &m.group, 1, &half, NULL, NULL, &opt), ZRO_ERR_UNSUPPORTED,
            "d: rule adam has no loop for f64");
    half = *zro_rule_adam();
    half.f32 = NULL;
    REFUSED(zro_optim_create(NULL, &m.group, 1, &half, NULL, NULL, &opt), ZRO_ERR_UNSUPPORTED,
            "f: rule adam has no loop for f32");
    m.params[F].grad_dtype = ZRO_I32;
    REFUSED(zro_optim_create(NULL, &m.group, 1, zro_rule_adam(), NULL, NULL, &opt), ZRO_ERR_UNSUPPORTED, "f: grad_dtype = i32");
    m.params[F].dtype = ZRO_I8;
    REFUSED(zro_optim_create(NULL, &m.group, 1, zro_rule_adam(), NULL, NULL, &opt), ZRO_ERR_UNSUPPORTED, "f: dtype = i8");
}

/* ---- values ---- */

static void values_are_checked(void **state)
{
    double values[16], value;
    uint64_t bytes;
    size_t n;
    model m;
    zro_optim *opt = create(&m, zro_rule_adam(), NULL), *plain = create(&m, zro_rule_none(), NULL);

    (void)state;
    n = zro_optim_values(opt);
    REFUSED(zro_optim_get_value(opt, 1, "lr", &value), ZRO_ERR_INVALID, "no parameter group 1, only 1");
    REFUSED(zro_optim_set_value(opt, 1, "lr", 1), ZRO_ERR_INVALID, "no parameter group 1, only 1");
    REFUSED(zro_optim_get_value(opt, 0, "lr", NULL), ZRO_ERR_INVALID, "value is NULL");
    REFUSED(zro_optim_get_values(opt, 1, values, n), ZRO_ERR_INVALID, "no parameter group 1");
    REFUSED(zro_optim_get_values(opt, 0, NULL, n), ZRO_ERR_INVALID, "not 0");
    OK(zro_optim_get_values(opt, 0, values, n));
    for (int more = -1; more <= 1; more += 2) {
        REFUSED(zro_optim_get_values(opt, 0, values, n + (size_t)more), ZRO_ERR_INVALID, "adam has 8 values");
        REFUSED(zro_optim_set_values(opt, 0, values, n + (size_t)more), ZRO_ERR_INVALID, "adam has 8 values");
    }
    values[0] = -1;
    REFUSED(zro_optim_set_values(opt, 0, values, n), ZRO_ERR_INVALID, "lr = -1");
    OK(zro_optim_get_value(opt, 0, "lr", &value));
    assert_true(value == 1e-3);
    assert_null(zro_optim_value_name(opt, n));
    bytes = info_of(opt).state_bytes;
    OK(zro_optim_set_value(opt, 0, "amsgrad", 1)); /* what it needs is taken now, because a step takes nothing */
    assert_true(info_of(opt).state_bytes > bytes);
    REFUSED(zro_optim_get_values(plain, 0, values, 0), ZRO_ERR_INVALID, "without a rule there are no values");
    zro_optim_destroy(opt);
    zro_optim_destroy(plain);
}

/* ---- slots ---- */

static void slots_are_told(void **state)
{
    zro_optim_config no_masters = ZRO_OPTIM_CONFIG_INIT;
    zro_slot slot;
    model m, n;
    zro_optim *opt = create(&m, zro_rule_adam(), NULL), *without;

    (void)state;
    no_masters.masters = ZRO_OFF;
    without = create(&n, zro_rule_adam(), &no_masters);
    assert_int_equal(zro_optim_slots(opt), zro_rule_adam()->n_slots + 1);
    assert_int_equal(zro_optim_slots(without), zro_rule_adam()->n_slots);
    assert_string_equal(zro_optim_slot_name(opt, zro_rule_adam()->n_slots), "master");
    assert_null(zro_optim_slot_name(without, zro_rule_adam()->n_slots));
    REFUSED(zro_optim_slot(without, B, "master", &slot), ZRO_ERR_INVALID, "adam has no slot named \"master\"; there is: ");
    REFUSED(zro_optim_slot(opt, B, NULL, &slot), ZRO_ERR_INVALID, "(null)");
    REFUSED(zro_optim_slot(opt, PARAMS, "step", &slot), ZRO_ERR_INVALID, "no parameter 3, only 3");
    REFUSED(zro_optim_slot(opt, F, "step", NULL), ZRO_ERR_INVALID, "slot is NULL");
    OK(zro_optim_step(opt, NULL));
    OK(zro_optim_slot(opt, B, "master", &slot));
    assert_true(slot.present && slot.dtype == ZRO_F32 && slot.count == COUNT && slot.first == 0 && slot.data != NULL);
    OK(zro_optim_slot(opt, D, "master", &slot)); /* one that it does not have */
    assert_true(!slot.present && slot.dtype == ZRO_F32 && slot.data == NULL);
    OK(zro_optim_slot(opt, D, "exp_avg", &slot));
    assert_true(slot.present && slot.dtype == ZRO_F64 && slot.count == COUNT);
    OK(zro_optim_slot(opt, F, "step", &slot));
    assert_true(slot.present && slot.dtype == ZRO_F64 && slot.count == 1 && *(double *)slot.data == 1);
    zro_optim_destroy(opt);
    zro_optim_destroy(without);
}

/* ---- what a step found ---- */

static void steps_are_told(void **state)
{
    zro_optim_config c = ZRO_OPTIM_CONFIG_INIT;
    zro_stats stats = ZRO_STATS_INIT;
    zro_step_info info;
    zro_optim *opt;
    model m;

    (void)state;
    c.loss_scale = ZRO_ON;
    c.scale_init = 2;
    c.clip_norm = INFINITY;
    opt = create(&m, zro_rule_adam(), &c);
    m.params[D].grad_present = 0;
    OK(zro_optim_step(opt, NULL));
    info = info_of(opt);
    assert_true(info.n_steps == 1 && info.n_updated == 2 && !info.skipped && info.n_skipped == 0 && info.growth_tracker == 1);
    assert_true(info.scale == 2 && fabs(info.norm - sqrt(2 * COUNT) / 2) < 1e-6);
    assert_true(info.state_bytes >= 2 * (4 * COUNT + 4 * COUNT) + 4 * COUNT + 2 * 8 * COUNT);
    OK(zro_optim_stats(opt, &stats));
    assert_true(stats.state_bytes > 0 && stats.state_bytes < info.state_bytes); /* arrays alone, and single numbers too */
    assert_true(stats.heap_bytes > stats.state_bytes);
    assert_true(stats.heap_peak_bytes >= stats.heap_bytes);
    m.f_grad[0] = INFINITY;
    OK(zro_optim_step(opt, NULL));
    info = info_of(opt);
    assert_true(info.n_steps == 2 && info.n_updated == 0 && info.skipped && info.n_skipped == 1 && info.growth_tracker == 0);
    assert_true(info.scale == 1);
    REFUSED(zro_optim_stats(NULL, &stats), ZRO_ERR_INVALID, "the optimizer is NULL");
    zro_optim_destroy(opt);
}

static void scales_are_checked(void **state)
{
    static const double bad[] = { 0, -1, NAN, INFINITY, 1e-60, 1e60 };
    zro_optim_config c = ZRO_OPTIM_CONFIG_INIT;
    model m;
    zro_optim *opt = create(&m, zro_rule_adam(), NULL);

    (void)state;
    REFUSED(zro_optim_set_scale(opt, 4, 0), ZRO_ERR_STATE, "no loss scale");
    zro_optim_destroy(opt);
    c.loss_scale = ZRO_ON;
    c.growth_interval = 10;
    opt = create(&m, zro_rule_adam(), &c);
    OK(zro_optim_set_scale(opt, 4, 9));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        REFUSED(zro_optim_set_scale(opt, bad[i], 1), ZRO_ERR_INVALID, "must be above 0 and finite in f32");
    REFUSED(zro_optim_set_scale(opt, 8, 10), ZRO_ERR_INVALID, "growth_tracker = 10, must be below growth_interval = 10");
    assert_true(info_of(opt).scale == 4 && info_of(opt).growth_tracker == 9);
    OK(zro_optim_step(opt, NULL)); /* the tenth in a row */
    assert_true(info_of(opt).scale == 8 && info_of(opt).growth_tracker == 0);
    zro_optim_destroy(opt);
}

/* A group that is refused leaves nothing behind, and one that is added counts in the norm. */
static void norms_of_added_groups(void **state)
{
    zro_optim_config c = ZRO_OPTIM_CONFIG_INIT;
    zro_param_group first, rest, wrong;
    zro_optim *opt;
    model m;

    (void)state;
    c.clip_norm = INFINITY;
    model_make(&m);
    first = rest = wrong = m.group;
    first.n = wrong.n = 1;
    rest.params = m.params + 1;
    rest.n = PARAMS - 1;
    OK(zro_optim_create(NULL, &first, 1, zro_rule_adam(), NULL, &c, &opt));
    REFUSED(zro_optim_add_param_group(opt, &wrong), ZRO_ERR_INVALID, "twice");
    REFUSED(zro_optim_add_param_group(opt, NULL), ZRO_ERR_INVALID, "the parameter group is NULL");
    OK(zro_optim_step(opt, NULL));
    assert_true(fabs(info_of(opt).norm - sqrt(COUNT)) < 1e-6);
    OK(zro_optim_add_param_group(opt, &rest));
    assert_int_equal(zro_optim_params(opt), PARAMS);
    OK(zro_optim_step(opt, NULL));
    assert_true(fabs(info_of(opt).norm - sqrt(PARAMS * COUNT)) < 1e-6);
    assert_int_equal(info_of(opt).n_updated, PARAMS);
    zro_optim_destroy(opt);
}

/* ---- describing ---- */

static void passes_are_told(void **state)
{
    static const struct {
        double clip_norm;
        zro_switch skips;
        const char *passes;
    } cases[] = {
        { 0, ZRO_OFF, "passes over gradients: 1;" },
        { 1, ZRO_OFF, "passes over gradients: 2;" },
        { 0, ZRO_ON, "passes over gradients: 2;" },
        { 1, ZRO_ON, "passes over gradients: 2;" }, /* one pass asks for both */
    };
    char text[2048], part[8];
    model m;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        zro_optim_config c = ZRO_OPTIM_CONFIG_INIT;
        zro_optim *opt;
        size_t n;

        c.clip_norm = cases[i].clip_norm;
        c.skip_non_finite = cases[i].skips;
        opt = create(&m, zro_rule_adam(), &c);
        n = zro_optim_describe(opt, text, sizeof text);
        assert_int_equal(n, strlen(text));
        assert_non_null(strstr(text, "optimizer adam, rank 0 of 1: 3 parameters in 1 groups, 15 elements\n"));
        assert_non_null(strstr(text, cases[i].passes));
        assert_int_equal(strstr(text, "after one exchange") != NULL, i > 0);
        assert_non_null(strstr(text, "rank 0 owns 15 elements in 3 ranges, 0.0 MiB of state here\n"));
        assert_null(strstr(text, "shards have"));
        assert_null(strstr(text, "a step makes"));
        assert_int_equal(zro_optim_describe(opt, NULL, sizeof text), n);
        assert_int_equal(zro_optim_describe(opt, part, sizeof part), n);
        assert_string_equal(part, "optimiz");
        zro_optim_destroy(opt);
    }
    strcpy(part, "before");
    assert_int_equal(zro_optim_describe(NULL, part, sizeof part), 0);
    assert_string_equal(part, "");
}

typedef struct lines {
    char text[4096];
    int n;
} lines;

static void note_line(void *user, zro_log_level level, const char *text)
{
    lines *l = user;
    size_t at = strlen(l->text);

    if (level != ZRO_LOG_INFO)
        return;
    snprintf(l->text + at, sizeof l->text - at, "%s\n", text);
    l->n++;
}

/* The log has a line about this rank, then the description; at a lower level nothing. */
static void the_log_has_the_description(void **state)
{
    char expected[4096];
    size_t n;

    (void)state;
    for (int told = 0; told < 2; told++) {
        zro_optim_config c = ZRO_OPTIM_CONFIG_INIT;
        static lines l;
        zro_optim *opt;
        model m;

        l = (lines){ 0 };
        c.settings.log = note_line;
        c.settings.log_user = &l;
        c.settings.log_level = told ? ZRO_LOG_INFO : ZRO_LOG_WARN;
        opt = create(&m, zro_rule_adam(), &c);
        n = (size_t)snprintf(expected, sizeof expected, "rank 0: 15 of 15 elements, 0.0 MiB of state\n");
        zro_optim_describe(opt, expected + n, sizeof expected - n);
        if (told)
            assert_string_equal(l.text, expected);
        else
            assert_int_equal(l.n, 0);
        zro_optim_destroy(opt);
    }
}

static void note_warning(void *user, zro_log_level level, const char *text)
{
    lines *l = user;

    if (level == ZRO_LOG_WARN && l->n++ == 0)
        snprintf(l->text, sizeof l->text, "%s", text);
}

/* Makes an optimizer of the model, with its last parameter added later if `later`, and expects one warning, or none. */
static void check_warning(model *m, int later, const char *expected)
{
    zro_optim_config c = ZRO_OPTIM_CONFIG_INIT;
    zro_param_group last = { .params = &m->params[PARAMS - 1], .n = 1 };
    static lines l;
    zro_optim *opt;

    l = (lines){ 0 };
    c.settings.log = note_warning;
    c.settings.log_user = &l;
    m->group.n = later ? PARAMS - 1 : PARAMS;
    OK(zro_optim_create(NULL, &m->group, 1, zro_rule_adam(), NULL, &c, &opt));
    if (later)
        OK(zro_optim_add_param_group(opt, &last));
    assert_int_equal(l.n, expected[0] != '\0');
    assert_string_equal(l.text, expected);
    zro_optim_destroy(opt);
}

static void equal_names_are_told(void **state)
{
    model m;

    (void)state;
    for (int later = 0; later < 2; later++) {
        model_make(&m);
        check_warning(&m, later, "");
        m.params[D].name = "f";
        check_warning(&m, later,
                      "parameters 0 and 2 are both named f; a state of them cannot be saved to a file: give each parameter a "
                      "name of its own");
        m.params[D].name = m.params[F].name = NULL;
        check_warning(&m, later, "");
    }
    model_make(&m);
    m.params[B].name = "f";
    check_warning(&m, 1, /* and not once more for the one that is added */
                  "parameters 0 and 1 are both named f; a state of them cannot be saved to a file: give each parameter a name "
                  "of its own");
}

static void shared_gradients_are_told(void **state)
{
    model m;

    (void)state;
    for (int later = 0; later < 2; later++) {
        model_make(&m);
        m.params[D].grad = (char *)m.f_grad + sizeof m.f_grad - 8;
        check_warning(&m, later,
                      "the gradients of parameters f and d share memory, so one overwrites the other; give each parameter a "
                      "gradient of its own, or clear grad_present of those that are not there");
        m.params[D].grad_present = 0; /* one after another they may have the same array */
        check_warning(&m, later, "");
        m.params[D].grad_present = 1;
        m.params[D].requires_grad = 0;
        check_warning(&m, later, "");
    }
}

/* Zeroed memory is no parameter: it would be frozen, silently.  One that was frozen on purpose is. */
static void zeroed_parameters_are_told(void **state)
{
    model m;

    (void)state;
    for (int later = 0; later < 2; later++) {
        model_make(&m);
        m.params[D].requires_grad = 0;
        check_warning(&m, later, "");
        m.params[D] = (zro_param){ .data = m.d, .grad = m.d_grad, .grad_present = 1, .name = "d", .n_dims = 1, .shape = { 4 } };
        check_warning(
            &m, later,
            "parameter d has a gradient, but requires_grad is 0, so it is never updated; begin with zro_param_make, or "
            "with zro_param p = ZRO_PARAM_INIT");
        m.params[D].requires_grad = 1;
        check_warning(&m, later, "");
    }
}

/* More ranks than are listed; what is wrong is text, because an assertion on a rank's thread would end the wrong one. */
enum { RANKS = 18 };

static int is_described(void *user, zro_group *group)
{
    static const size_t sizes[] = { 4096, 1024 };
    static const int32_t owners[] = { RANKS - 1, 0 };
    float data[5120] = { 0 };
    zro_param params[2] = { ZRO_PARAM_INIT, ZRO_PARAM_INIT };
    zro_param_group g = { .params = params, .n = 2, .owners = owners };
    zro_plan_config given = ZRO_PLAN_CONFIG_INIT;
    zro_optim_config c = ZRO_OPTIM_CONFIG_INIT;
    char text[8192];
    zro_optim *opt;
    int wrong;

    (void)user;
    given.partition = ZRO_PARTITION_GIVEN;
    c.plan = &given;
    for (int i = 0; i < 2; i++) {
        params[i].shape[0] = sizes[i];
        params[i].data = data + i * 4096;
    }
    if (zro_optim_create(group, &g, 1, zro_rule_sgd(), NULL, &c, &opt) != ZRO_OK)
        return fprintf(stderr, "%s\n", zro_last_error()), 2;
    zro_optim_describe(opt, text, sizeof text);
    wrong = strstr(text, "rank 0 owns 1024 elements in 1 ranges") == NULL
            || strstr(text, "rank 15 owns 0 elements in 0 ranges") == NULL || strstr(text, "rank 16 owns") != NULL
            || strstr(text, "shards have 0 to 4096 elements\n") == NULL
            || strstr(text, "f32, device 0: 0.0 MiB in 2 parts of 2 owners; the program's own arrays") == NULL
            || strstr(text, "a step makes 2 deliveries, 0.0 MiB\n") == NULL;
    if (wrong)
        fprintf(stderr, "%s", text);
    zro_optim_destroy(opt);
    return wrong;
}

static void many_ranks_are_not_listed(void **state)
{
    (void)state;
    OK(zro_spawn_threads(NULL, RANKS, is_described, NULL));
}

/* Parameters that exist once on the one machine that there is are not delivered. */
static int is_not_delivered(void *user, zro_group *group)
{
    zro_param p = ZRO_PARAM_INIT;
    zro_param_group g = { .params = &p, .n = 1 };
    char text[4096];
    zro_optim *opt;
    int wrong;

    (void)user;
    p.shape[0] = 1 << 18; /* 1 MiB */
    if (zro_params_alloc(group, &p, 1, NULL) != ZRO_OK
        || zro_optim_create(group, &g, 1, zro_rule_sgd(), NULL, NULL, &opt) != ZRO_OK)
        return fprintf(stderr, "%s\n", zro_last_error()), 2;
    zro_optim_describe(opt, text, sizeof text);
    wrong = strstr(text, "shards have 131072 to 131072 elements\n") == NULL || strstr(text, "1.0 MiB in ") == NULL
            || strstr(text, "exist once: not delivered\n") == NULL
            || strstr(text, "a step makes 0 deliveries, 0.0 MiB\n") == NULL;
    if (wrong)
        fprintf(stderr, "%s", text);
    zro_optim_destroy(opt);
    zro_params_free(&p, 1);
    return wrong;
}

static void what_exists_once_is_not_delivered(void **state)
{
    (void)state;
    OK(zro_spawn_threads(NULL, 2, is_not_delivered, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_are_checked),
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(values_are_checked),
        cmocka_unit_test(slots_are_told),
        cmocka_unit_test(steps_are_told),
        cmocka_unit_test(scales_are_checked),
        cmocka_unit_test(norms_of_added_groups),
        cmocka_unit_test(passes_are_told),
        cmocka_unit_test(the_log_has_the_description),
        cmocka_unit_test(equal_names_are_told),
        cmocka_unit_test(shared_gradients_are_told),
        cmocka_unit_test(zeroed_parameters_are_told),
        cmocka_unit_test(many_ranks_are_not_listed),
        cmocka_unit_test(what_exists_once_is_not_delivered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
