/* Learning-rate schedules: the numbers of each kind, PyTorch's where they come from there; what is refused; who owns whom. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/point.h"
#include "optim/lr.h"
#include "zero/optim.h"

enum { MAX_GROUPS = 3 };

#define LENGTH(array) (sizeof(array) / sizeof *(array))
#define OK(call) assert_int_equal(call, ZRO_OK)

static float data[MAX_GROUPS];
static zro_param params[MAX_GROUPS];

static zro_param_group one_group(size_t i, const zro_value *lr)
{
    zro_param_group group = { .params = &params[i], .n = 1, .values = lr, .n_values = 1 };

    zro_param_init(&params[i]);
    params[i].data = &data[i];
    params[i].shape[0] = 1;
    return group;
}

/* `n` groups of one parameter with an lr each. */
static zro_optim *make_optim(const zro_rule *rule, size_t n, const double *lr)
{
    zro_value values[MAX_GROUPS];
    zro_param_group groups[MAX_GROUPS];
    zro_optim *optim;

    for (size_t i = 0; i < n; i++) {
        values[i] = (zro_value){ "lr", lr[i] };
        groups[i] = one_group(i, &values[i]);
    }
    OK(zro_optim_create(NULL, groups, n, rule, NULL, NULL, &optim));
    return optim;
}

static zro_optim *sgd(double lr)
{
    return make_optim(zro_rule_sgd(), 1, &lr);
}

static double value_of(const zro_optim *optim, size_t group, const char *name)
{
    double value;

    OK(zro_optim_get_value(optim, group, name, &value));
    return value;
}

static double lr_of(const zro_optim *optim)
{
    return value_of(optim, 0, "lr");
}

static void check_near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-12 * fabs(want) + 1e-16))
        fail_msg("%.17g, must be %.17g", got, want);
}

/* The lr of each of the first steps; destroys both. */
static void check_lrs(zro_optim *optim, zro_schedule *s, const double *want, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        check_near(lr_of(optim), want[i]);
        OK(zro_schedule_step(s));
    }
    zro_schedule_destroy(s);
    zro_optim_destroy(optim);
}

static void check_refused(zro_status got, zro_status want, const char *in_text)
{
    assert_int_equal(got, want);
    if (strstr(zro_last_error(), in_text) == NULL)
        fail_msg("\"%s\" has no \"%s\"", zro_last_error(), in_text);
}

static size_t bytes_of(zro_optim *optim)
{
    return atomic_load(&optim->account->in_use);
}

/* ---- the kinds ---- */

static void step_lr_multiplies_every_step_size(void **state)
{
    zro_optim *optim = sgd(0.5);
    zro_schedule *s;

    (void)state;
    OK(zro_schedule_step_lr(optim, 3, 0.1, &s));
    for (int t = 0; t < 20; t++) {
        check_near(lr_of(optim), 0.5 * pow(0.1, t / 3));
        OK(zro_schedule_step(s));
    }
    zro_schedule_destroy(s);
    zro_optim_destroy(optim);
}

/* A milestone may be there twice, or be 0: that is the first step. */
static void multi_step_multiplies_at_milestones(void **state)
{
    static const uint64_t milestones[] = { 0, 2, 5, 5, 9 };
    static const double want[] = { 0.5, 0.5, 0.25, 0.25, 0.25, 0.0625, 0.0625, 0.0625, 0.0625, 0.03125, 0.03125 };
    zro_optim *optim = sgd(1);
    zro_schedule *s;

    (void)state;
    OK(zro_schedule_multi_step(optim, milestones, LENGTH(milestones), 0.5, &s));
    check_lrs(optim, s, want, LENGTH(want));
    optim = sgd(1);
    OK(zro_schedule_multi_step(optim, NULL, 0, 0.5, &s));
    OK(zro_schedule_step(s));
    check_near(lr_of(optim), 1);
    zro_schedule_destroy(s);
    zro_optim_destroy(optim);
}

static void exponential_multiplies_every_step(void **state)
{
    zro_optim *optim = sgd(0.5);
    zro_schedule *s;

    (void)state;
    OK(zro_schedule_exponential(optim, 0.9, &s));
    for (int t = 0; t < 50; t++) {
        check_near(lr_of(optim), 0.5 * pow(0.9, t));
        OK(zro_schedule_step(s));
    }
    zro_schedule_destroy(s);
    zro_optim_destroy(optim);
}

static void polynomial_ends_at_zero(void **state)
{
    static const double want[] = { 0.1, 0.05625, 0.025, 0.00625, 0, 0, 0 };
    zro_optim *optim = sgd(0.1);
    zro_schedule *s;

    (void)state;
    OK(zro_schedule_polynomial(optim, 4, 2, &s));
    check_lrs(optim, s, want, LENGTH(want));
}

/* The recursion stays on the closed form, down to eta_min and back, again and again. */
static void cosine_goes_down_and_up(void **state)
{
    static const uint64_t t_maxs[] = { 1, 2, 3, 8, 25 };

    (void)state;
    for (size_t i = 0; i < LENGTH(t_maxs); i++) {
        zro_optim *optim = sgd(0.1);
        zro_schedule *s;

        OK(zro_schedule_cosine(optim, t_maxs[i], 0.01, &s));
        for (int t = 0; t < 60; t++) {
            double want = 0.01 + 0.09 * (1 + cos(acos(-1) * t / (double)t_maxs[i])) / 2;

            assert_true(fabs(lr_of(optim) - want) < 1e-13);
            OK(zro_schedule_step(s));
        }
        zro_schedule_destroy(s);
        zro_optim_destroy(optim);
    }
}

static void cosine_restarts_take_longer_each_time(void **state)
{
    zro_optim *optim = sgd(0.1);
    zro_schedule *s;
    int length = 2, at = 0;

    (void)state;
    OK(zro_schedule_cosine_restarts(optim, 2, 3, 0.01, &s));
    for (int t = 0; t < 60; t++) {
        check_near(lr_of(optim), 0.01 + 0.09 * (1 + cos(acos(-1) * at / length)) / 2);
        OK(zro_schedule_step(s));
        if (++at == length) {
            at = 0;
            length *= 3;
        }
    }
    zro_schedule_destroy(s);
    zro_optim_destroy(optim);
}

/* A length that no number can hold is as good as for ever. */
static void restarts_may_be_far_away(void **state)
{
    zro_optim *optim = sgd(0.1);
    zro_schedule *s;

    (void)state;
    OK(zro_schedule_cosine_restarts(optim, 4, UINT64_C(1) << 62, 0, &s));
    for (int t = 0; t < 10; t++)
        OK(zro_schedule_step(s));
    check_near(lr_of(optim), 0.1);
    zro_schedule_destroy(s);
    zro_optim_destroy(optim);
}

static void linear_goes_from_start_to_end(void **state)
{
    zro_optim *optim = sgd(0.1);
    zro_schedule *s;

    (void)state;
    OK(zro_schedule_linear(optim, 0.25, 0.75, 5, &s));
    for (int t = 0; t < 10; t++) {
        check_near(lr_of(optim), 0.1 * (0.25 + 0.5 * (t < 5 ? t : 5) / 5));
        OK(zro_schedule_step(s));
    }
    zro_schedule_destroy(s);
    zro_optim_destroy(optim);
}

/* The last factor is 0 but for rounding, which must not make lr negative: for some of these it would. */
static void linear_may_end_at_zero(void **state)
{
    (void)state;
    for (uint64_t total = 1; total < 40; total++) {
        zro_optim *optim = sgd(0.3);
        zro_schedule *s;

        OK(zro_schedule_linear(optim, 1. / 3, 0, total, &s));
        for (uint64_t t = 0; t < total + 2; t++)
            OK(zro_schedule_step(s));
        assert_true(lr_of(optim) >= 0 && lr_of(optim) < 1e-14);
        zro_schedule_destroy(s);
        zro_optim_destroy(optim);
    }
}

static void constant_is_undone_at_the_end(void **state)
{
    static const double want[] = { 0.025, 0.025, 0.025, 0.1, 0.1, 0.1 }, from_zero[] = { 0, 0, 0.1, 0.1 };
    zro_optim *optim = sgd(0.1);
    zro_schedule *s;

    (void)state;
    OK(zro_schedule_constant(optim, 0.25, 3, &s));
    check_lrs(optim, s, want, LENGTH(want));
    optim = sgd(0.1);
    OK(zro_schedule_constant(optim, 0, 2, &s));
    check_lrs(optim, s, from_zero, LENGTH(from_zero));
}

static void one_cycle_is_pytorchs(void **state)
{
    static const double lr[] = { 0.04,
                                 0.52,
                                 1.0,
                                 0.9504846320134737,
                                 0.8117456539497631,
                                 0.6112620219362893,
                                 0.38874197806371075,
                                 0.18825834605023697,
                                 0.049519367986526286,
                                 4e-06,
                                 0.04951936798652623 };
    static const double momentum[] = { 0.95,
                                       0.9,
                                       0.85,
                                       0.854951556604879,
                                       0.8688255099070633,
                                       0.8888739533021842,
                                       0.9111260466978157,
                                       0.9311744900929366,
                                       0.945048443395121,
                                       0.95,
                                       0.945048443395121 };
    const zro_rule *rules[] = { zro_rule_sgd(), zro_rule_adam() };
    const char *names[] = { "momentum", "beta1" };

    (void)state;
    for (size_t r = 0; r < LENGTH(rules); r++) {
        zro_one_cycle_config config = ZRO_ONE_CYCLE_CONFIG_INIT;
        zro_optim *optim = make_optim(rules[r], 1, &(double){ 0.1 });
        zro_schedule *s;

        config.max_lr = 1;
        config.total_steps = 10;
        OK(zro_schedule_one_cycle(optim, &config, &s));
        for (size_t t = 0;; t++) {
            check_near(lr_of(optim), lr[t]);
            check_near(value_of(optim, 0, names[r]), momentum[t]);
            if (t == 10)
                break;
            OK(zro_schedule_step(s));
        }
        check_refused(zro_schedule_step(s), ZRO_ERR_STATE, "total_steps = 10");
        check_near(lr_of(optim), lr[10]);
        zro_schedule_destroy(s);
        zro_optim_destroy(optim);
    }
}

static void one_cycle_in_three_phases(void **state)
{
    static const double lr[] = { 0.1, 0.4, 0.7, 1.0, 0.7, 0.4, 0.1, 0.067, 0.034, 0.001 };
    zro_one_cycle_config config = ZRO_ONE_CYCLE_CONFIG_INIT;
    zro_optim *optim = make_optim(zro_rule_adadelta(), 1, &(double){ 0.1 });
    zro_schedule *s;

    (void)state;
    config.max_lr = 1;
    config.total_steps = 10;
    config.pct_start = 0.4;
    config.three_phase = config.linear = ZRO_ON;
    config.div_factor = 10;
    config.final_div_factor = 100;
    check_refused(zro_schedule_one_cycle(optim, &config, &s), ZRO_ERR_INVALID, "cycle_momentum");
    assert_null(s);
    config.cycle_momentum = ZRO_OFF;
    OK(zro_schedule_one_cycle(optim, &config, &s));
    check_lrs(optim, s, lr, LENGTH(lr));
}

/* Phases of length 0, and the value after the last step, which nobody uses but every loop sets. */
static void one_cycle_has_no_bad_borders(void **state)
{
    static const double starts[] = { 0, 0.1, 0.25, 0.5, 0.55, 0.6, 1 };

    (void)state;
    for (size_t i = 0; i < LENGTH(starts); i++)
        for (int form = 0; form < 4; form++)
            for (uint64_t total = 1; total <= 10; total++) {
                zro_one_cycle_config config = ZRO_ONE_CYCLE_CONFIG_INIT;
                zro_optim *optim = make_optim(zro_rule_adam(), 1, &(double){ 0.1 });
                zro_schedule *s;

                config.max_lr = 1;
                config.total_steps = total;
                config.pct_start = starts[i];
                config.linear = form % 2 != 0 ? ZRO_ON : ZRO_OFF;
                config.three_phase = form / 2 != 0 ? ZRO_ON : ZRO_OFF;
                OK(zro_schedule_one_cycle(optim, &config, &s));
                for (uint64_t t = 0; t < total; t++) {
                    assert_true(lr_of(optim) <= 1 && value_of(optim, 0, "beta1") > 0.849);
                    OK(zro_schedule_step(s));
                }
                check_refused(zro_schedule_step(s), ZRO_ERR_STATE, "one_cycle");
                zro_schedule_destroy(s);
                zro_optim_destroy(optim);
            }
}

/* A momentum that the rule would refuse in the middle of the cycle is refused at once, and nothing has changed. */
static void one_cycle_asks_for_both_ends(void **state)
{
    static const double lr[] = { 0.1, 0.2 };
    zro_one_cycle_config config = ZRO_ONE_CYCLE_CONFIG_INIT;
    zro_optim *optim = make_optim(zro_rule_adam(), 2, lr);
    size_t bytes = bytes_of(optim);
    zro_schedule *s;

    (void)state;
    config.max_lr = 1;
    config.total_steps = 10;
    config.base_momentum = 1.5;
    check_refused(zro_schedule_one_cycle(optim, &config, &s), ZRO_ERR_INVALID, "1.5");
    config.base_momentum = 0.8;
    config.max_momentum = 1;
    check_refused(zro_schedule_one_cycle(optim, &config, &s), ZRO_ERR_INVALID, "beta1");
    assert_null(s);
    assert_int_equal(bytes_of(optim), bytes);
    for (size_t g = 0; g < 2; g++) {
        check_near(value_of(optim, g, "lr"), lr[g]);
        check_near(value_of(optim, g, "beta1"), 0.9);
    }
    OK(zro_schedule_constant(optim, 0.5, 2, &s)); /* and the first lr is still the optimizer's own */
    check_near(lr_of(optim), 0.05);
    zro_schedule_destroy(s);
    zro_optim_destroy(optim);
}

static void check_plateau(const zro_plateau_config *config, const double *metrics, const double *lrs, size_t n)
{
    zro_optim *optim = sgd(1);
    zro_schedule *s;

    OK(zro_schedule_plateau(optim, config, &s));
    check_near(lr_of(optim), 1);
    for (size_t i = 0; i < n; i++) {
        OK(zro_schedule_step_metric(s, metrics[i]));
        check_near(lr_of(optim), lrs[i]);
    }
    zro_schedule_destroy(s);
    zro_optim_destroy(optim);
}

static void plateau_waits_for_patience_and_cooldown(void **state)
{
    static const double same[] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 }, less[] = { 1, 1, 0.5, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25 };
    static const double slowly[] = { 5, 4.9, 4.8, 4.7, 4.6, NAN, NAN }, rel[] = { 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25 };
    zro_plateau_config config = ZRO_PLATEAU_CONFIG_INIT;

    (void)state;
    config.factor = 0.5;
    config.patience = 1;
    config.cooldown = 3;
    check_plateau(&config, same, less, LENGTH(same));
    config.cooldown = 0;
    config.threshold = 0.05; /* 4.9 and 4.8 are not enough, 4.7 is; 4.6 is not */
    check_plateau(&config, slowly, rel, LENGTH(slowly));
    config.threshold = 0.15;
    config.threshold_absolute = ZRO_ON; /* 4.8 is enough, 4.7 not, 4.6 is */
    check_plateau(&config, slowly, (const double[]){ 1, 1, 1, 1, 1, 1, 0.5 }, LENGTH(slowly));
}

static void plateau_maximizes(void **state)
{
    static const double metrics[] = { 1, 2, 2, 4, 4, 4.1, 4.5 };
    zro_plateau_config config = ZRO_PLATEAU_CONFIG_INIT;

    (void)state;
    config.maximize = ZRO_ON;
    config.factor = 0.5;
    config.patience = 0;
    config.threshold = 0.05;
    check_plateau(&config, metrics, (const double[]){ 1, 1, 0.5, 0.5, 0.25, 0.125, 0.125 }, LENGTH(metrics));
    config.threshold_absolute = ZRO_ON;
    check_plateau(&config, metrics, (const double[]){ 1, 1, 0.5, 0.5, 0.25, 0.25, 0.25 }, LENGTH(metrics));
}

static void plateau_stops_at_min_lr(void **state)
{
    static const double same[] = { 1, 1, 1, 1, 1, 1 };
    zro_plateau_config config = ZRO_PLATEAU_CONFIG_INIT;

    (void)state;
    config.factor = 0.5;
    config.patience = 0;
    config.min_lr = 0.2;
    check_plateau(&config, same, (const double[]){ 1, 0.5, 0.25, 0.2, 0.2, 0.2 }, LENGTH(same));
    config.eps = 0.25; /* from 0.5 to 0.25 is not more */
    check_plateau(&config, same, (const double[]){ 1, 0.5, 0.5, 0.5, 0.5, 0.5 }, LENGTH(same));
    config.eps = 0.1; /* from 0.25 to 0.2 is less */
    check_plateau(&config, same, (const double[]){ 1, 0.5, 0.25, 0.25, 0.25, 0.25 }, LENGTH(same));
    config.min_lr = 5; /* never makes lr larger */
    check_plateau(&config, same, (const double[]){ 1, 1, 1, 1, 1, 1 }, LENGTH(same));
}

static double by_group(void *user, size_t group, uint64_t steps)
{
    return *(double *)user * (double)(group + 1) / (double)(steps + 1);
}

static void lambda_knows_group_and_steps(void **state)
{
    double scale = 0.5, lr[] = { 0.1, 0.3 };
    zro_optim *optim = make_optim(zro_rule_sgd(), 2, lr);
    zro_schedule *s;

    (void)state;
    OK(zro_schedule_lambda(optim, by_group, &scale, &s));
    for (int t = 0; t < 10; t++) {
        check_near(value_of(optim, 0, "lr"), 0.1 * 0.5 / (t + 1));
        check_near(value_of(optim, 1, "lr"), 0.3 * 1 / (t + 1));
        OK(zro_schedule_step(s));
    }
    zro_schedule_destroy(s);
    zro_optim_destroy(optim);
}

/* ---- chained and sequential ---- */

static void chained_is_pytorchs(void **state)
{
    static const double want[] = { 0.05,
                                   0.07125,
                                   0.09025,
                                   0.0857375,
                                   0.081450625,
                                   0.07737809375,
                                   0.07350918906249998,
                                   0.06983372960937498,
                                   0.03317102156445311,
                                   0.03151247048623045 };
    zro_optim *optim = sgd(0.1);
    zro_schedule *parts[3], *s;

    (void)state;
    OK(zro_schedule_linear(optim, 0.5, 1, 2, &parts[0]));
    OK(zro_schedule_exponential(optim, 0.95, &parts[1]));
    OK(zro_schedule_step_lr(optim, 8, 0.5, &parts[2]));
    OK(zro_schedule_chained(parts, 3, &s));
    check_lrs(optim, s, want, LENGTH(want));
}

static void warm_up_then_cosine(void **state)
{
    static const double want[] = { 0.01,    0.0325,
                                   0.055,   0.0775,
                                   0.1,     0.09336825748732973,
                                   0.07525, 0.0505,
                                   0.02575, 0.007631742512670284,
                                   0.001,   0.007631742512670284 };
    static const uint64_t milestones[] = { 4 };
    zro_optim *optim = sgd(0.1);
    zro_schedule *parts[2], *s;

    (void)state;
    OK(zro_schedule_linear(optim, 0.1, 1, 4, &parts[0]));
    OK(zro_schedule_cosine(optim, 6, 0.001, &parts[1]));
    OK(zro_schedule_sequential(parts, 2, milestones, &s));
    check_lrs(optim, s, want, LENGTH(want));
}

static void three_in_sequence(void **state)
{
    static const double want[] = { 0.025, 0.025, 0.1, 0.1, 0.09, 0.081, 0.0729, 0.1, 0.1, 0.05, 0.05, 0.025 };
    static const uint64_t milestones[] = { 3, 7 };
    zro_optim *optim = sgd(0.1);
    zro_schedule *parts[3], *s;

    (void)state;
    OK(zro_schedule_constant(optim, 0.25, 2, &parts[0]));
    OK(zro_schedule_exponential(optim, 0.9, &parts[1]));
    OK(zro_schedule_step_lr(optim, 2, 0.5, &parts[2]));
    OK(zro_schedule_sequential(parts, 3, milestones, &s));
    check_lrs(optim, s, want, LENGTH(want));
}

/* A milestone at 0: the first one never runs.  Two that are equal: the one between does not. */
static void parts_may_never_run(void **state)
{
    static const double want[] = { 0.1, 0.05, 0.025, 0.0125, 0.1, 0.02, 0.004 };
    static const uint64_t milestones[] = { 0, 4, 4 };
    zro_optim *optim = sgd(0.1);
    zro_schedule *parts[4], *s;

    (void)state;
    OK(zro_schedule_linear(optim, 0.1, 1, 4, &parts[0]));
    OK(zro_schedule_exponential(optim, 0.5, &parts[1]));
    OK(zro_schedule_constant(optim, 0.3, 9, &parts[2]));
    OK(zro_schedule_exponential(optim, 0.2, &parts[3]));
    OK(zro_schedule_sequential(parts, 4, milestones, &s));
    check_lrs(optim, s, want, LENGTH(want));
    optim = sgd(0.1);
    OK(zro_schedule_exponential(optim, 0.5, &parts[0]));
    OK(zro_schedule_sequential(parts, 1, NULL, &s));
    check_lrs(optim, s, want, 4);
}

/* one_cycle says where lr begins, for what stands before it in the sequence too. */
static void one_cycle_in_sequence(void **state)
{
    static const double lr[] = { 0.02,
                                 0.026666666666666665,
                                 0.03333333333333333,
                                 0.04,
                                 0.04,
                                 0.819275104892192,
                                 0.9719417773875232,
                                 0.811745653949763,
                                 0.5559840141227016 };
    static const double momentum[] = {
        0.95, 0.95, 0.95, 0.95, 0.95, 0.8688255099070633, 0.8528058334845816, 0.8688255099070633, 0.8944017761948346
    };
    static const uint64_t milestones[] = { 4 };
    zro_one_cycle_config config = ZRO_ONE_CYCLE_CONFIG_INIT;
    zro_optim *optim = sgd(0.1);
    zro_schedule *parts[2], *s;

    (void)state;
    config.max_lr = 1;
    config.total_steps = 8;
    OK(zro_schedule_linear(optim, 0.5, 1, 3, &parts[0]));
    OK(zro_schedule_one_cycle(optim, &config, &parts[1]));
    OK(zro_schedule_sequential(parts, 2, milestones, &s));
    for (size_t i = 0; i < LENGTH(lr); i++) {
        check_near(lr_of(optim), lr[i]);
        check_near(value_of(optim, 0, "momentum"), momentum[i]);
        OK(zro_schedule_step(s));
    }
    zro_schedule_destroy(s);
    zro_optim_destroy(optim);
}

static double reciprocal(void *user, size_t group, uint64_t steps)
{
    (void)user;
    (void)group;
    return 1 / (double)(steps + 1);
}

static void restarts_and_lambda_in_sequence(void **state)
{
    static const double want[] = { 0.1, 0.05, 0.025, 0.1, 0.055, 0.1, 0.08681980515339464, 0.055, 0.1, 0.05, 0.1 / 3, 0.025 };
    static const uint64_t milestones[] = { 3, 8 };
    zro_optim *optim = sgd(0.1);
    zro_schedule *parts[3], *s;

    (void)state;
    OK(zro_schedule_exponential(optim, 0.5, &parts[0]));
    OK(zro_schedule_cosine_restarts(optim, 2, 2, 0.01, &parts[1]));
    OK(zro_schedule_lambda(optim, reciprocal, NULL, &parts[2]));
    OK(zro_schedule_sequential(parts, 3, milestones, &s));
    check_lrs(optim, s, want, LENGTH(want));
}

/* A chained part of a sequence begins anew as a whole, and a sequence may be chained; `out` may be a place of the list. */
static void trees(void **state)
{
    static const double want[] = { 0.1, 0.02, 0.05, 0.045, 0.081, 0.0729, 0.1, 0.05 };
    static const uint64_t milestones[] = { 2, 6 };
    zro_optim *optim = sgd(0.1);
    zro_schedule *inner[2], *parts[3], *s;

    (void)state;
    OK(zro_schedule_exponential(optim, 0.2, &parts[0]));
    OK(zro_schedule_constant(optim, 0.5, 2, &inner[0]));
    OK(zro_schedule_exponential(optim, 0.9, &inner[1]));
    OK(zro_schedule_chained(inner, 2, &parts[1]));
    OK(zro_schedule_exponential(optim, 0.5, &parts[2]));
    OK(zro_schedule_sequential(parts, 3, milestones, &parts[0]));
    OK(zro_schedule_chained(parts, 1, &s));
    check_lrs(optim, s, want, LENGTH(want));
}

/* A constant one with total_iters 0 is over when its turn comes; alone it stays at its factor. */
static void constant_over_in_sequence(void **state)
{
    static const double want[] = { 0.1, 0.05, 0.1, 0.1, 0.025, 0.1, 0.1, 0.1 }, alone[] = { 0.025, 0.025, 0.025 };
    zro_optim *optim = sgd(0.1);
    zro_schedule *parts[3], *s;

    (void)state;
    OK(zro_schedule_exponential(optim, 0.5, &parts[0]));
    OK(zro_schedule_constant(optim, 0.25, 0, &parts[1]));
    OK(zro_schedule_constant(optim, 0.25, 1, &parts[2]));
    OK(zro_schedule_sequential(parts, 3, (const uint64_t[]){ 2, 4 }, &s));
    check_lrs(optim, s, want, LENGTH(want));
    optim = sgd(0.1);
    OK(zro_schedule_constant(optim, 0.25, 0, &s));
    check_lrs(optim, s, alone, LENGTH(alone));
}

/* PyTorch steps a combination that begins a sequence once more: its factors count at once. */
static void chained_begins_a_sequence(void **state)
{
    static const double powers[] = { 0.032, 0.009, 0.002, 0.1, 0.05, 0.025 };
    static const double cosines[] = { 0.065, 0.076875, 0.04305555555555557, 0.01, 0.0325, 0.1, 0.05, 0.025 };
    static const double short_cosine[] = { 0.19, 0.01, 0.1, 0.1, 0.05 };
    zro_optim *optim = sgd(0.1);
    zro_schedule *inner[2], *parts[2], *s;

    (void)state;
    OK(zro_schedule_exponential(optim, 0.5, &inner[0]));
    OK(zro_schedule_polynomial(optim, 4, 2, &inner[1]));
    OK(zro_schedule_chained(inner, 2, &parts[0]));
    OK(zro_schedule_step_lr(optim, 1, 0.5, &parts[1]));
    OK(zro_schedule_sequential(parts, 2, (const uint64_t[]){ 3 }, &s));
    check_lrs(optim, s, powers, LENGTH(powers));
    optim = sgd(0.1);
    OK(zro_schedule_cosine(optim, 3, 0.01, &inner[0]));
    OK(zro_schedule_linear(optim, 0.5, 1, 2, &inner[1]));
    OK(zro_schedule_chained(inner, 2, &parts[0]));
    OK(zro_schedule_step_lr(optim, 1, 0.5, &parts[1]));
    OK(zro_schedule_sequential(parts, 2, (const uint64_t[]){ 5 }, &s));
    check_lrs(optim, s, cosines, LENGTH(cosines));
    optim = sgd(0.1);
    OK(zro_schedule_cosine(optim, 1, 0.01, &inner[0]));
    OK(zro_schedule_chained(inner, 1, &parts[0]));
    OK(zro_schedule_step_lr(optim, 1, 0.5, &parts[1]));
    OK(zro_schedule_sequential(parts, 2, (const uint64_t[]){ 3 }, &s));
    check_lrs(optim, s, short_cosine, LENGTH(short_cosine));
}

/* A sequence that begins a sequence is one step ahead, and two if that begins a third one. */
static void sequences_begin_sequences(void **state)
{
    static const double two[] = { 0.05, 0.025, 0.1, 0.09, 0.081, 0.05, 0.1, 0.1 };
    static const double at_once[] = { 0.1, 0.09, 0.081, 0.0729, 0.025, 0.1, 0.1 };
    static const double three[] = { 0.05, 0.1, 0.09, 0.081, 0.0729, 0.05, 0.1, 0.1 };
    zro_optim *optim = sgd(0.1);
    zro_schedule *inner[2], *parts[2], *s;

    (void)state;
    OK(zro_schedule_exponential(optim, 0.5, &inner[0]));
    OK(zro_schedule_step_lr(optim, 1, 0.9, &inner[1]));
    OK(zro_schedule_sequential(inner, 2, (const uint64_t[]){ 3 }, &parts[0]));
    OK(zro_schedule_constant(optim, 0.5, 1, &parts[1]));
    OK(zro_schedule_sequential(parts, 2, (const uint64_t[]){ 5 }, &s));
    check_lrs(optim, s, two, LENGTH(two));
    optim = sgd(0.1);
    OK(zro_schedule_constant(optim, 0.5, 4, &inner[0]));
    OK(zro_schedule_exponential(optim, 0.9, &inner[1]));
    OK(zro_schedule_sequential(inner, 2, (const uint64_t[]){ 1 }, &parts[0]));
    OK(zro_schedule_constant(optim, 0.25, 1, &parts[1]));
    OK(zro_schedule_sequential(parts, 2, (const uint64_t[]){ 4 }, &s));
    check_lrs(optim, s, at_once, LENGTH(at_once));
    optim = sgd(0.1);
    OK(zro_schedule_exponential(optim, 0.5, &inner[0]));
    OK(zro_schedule_step_lr(optim, 1, 0.9, &inner[1]));
    OK(zro_schedule_sequential(inner, 2, (const uint64_t[]){ 3 }, &parts[0]));
    OK(zro_schedule_constant(optim, 0.5, 1, &parts[1]));
    OK(zro_schedule_sequential(parts, 2, (const uint64_t[]){ 6 }, &s));
    OK(zro_schedule_sequential(&s, 1, NULL, &s));
    check_lrs(optim, s, three, LENGTH(three));
}

/* ---- groups, and what else changes lr ---- */

/* The second one begins from the lr that the first one found, not from the one that it made. */
static void schedules_share_the_first_lr(void **state)
{
    static const double want[] = { 0.1, 0.075, 0.025, 0.1, 0.075, 0.025 };
    zro_optim *optim = sgd(0.1);
    zro_schedule *a, *b;

    (void)state;
    OK(zro_schedule_linear(optim, 0.1, 1, 4, &a));
    check_near(lr_of(optim), 0.01);
    OK(zro_schedule_cosine_restarts(optim, 3, 1, 0, &b));
    zro_schedule_destroy(a);
    check_lrs(optim, b, want, LENGTH(want));
}

/* Plateau changes nothing when it is made, and so says nothing about the first lr. */
static void plateau_has_no_first_lr(void **state)
{
    zro_optim *optim = sgd(0.1);
    zro_schedule *a, *b;

    (void)state;
    OK(zro_schedule_plateau(optim, NULL, &a));
    OK(zro_optim_set_value(optim, 0, "lr", 0.4));
    OK(zro_schedule_lambda(optim, reciprocal, NULL, &b));
    OK(zro_schedule_step(b));
    check_near(lr_of(optim), 0.2);
    zro_schedule_destroy(a);
    zro_schedule_destroy(b);
    zro_optim_destroy(optim);
}

static void two_on_one_optimizer_multiply_up(void **state)
{
    static const double want[] = { 0.1,   0.04282411613907042,  0.012957106781186549, 0.002604631137012218,
                                   0.001, 0.014998214331265896, 0.023189339828220183, 0.01908623285481044 };
    zro_optim *optim = sgd(0.1);
    zro_schedule *a, *b;

    (void)state;
    OK(zro_schedule_exponential(optim, 0.5, &a));
    OK(zro_schedule_cosine(optim, 4, 0.001, &b));
    for (size_t i = 0; i < LENGTH(want); i++) {
        check_near(lr_of(optim), want[i]);
        OK(zro_schedule_step(a));
        OK(zro_schedule_step(b));
    }
    zro_schedule_destroy(a);
    zro_schedule_destroy(b);
    zro_optim_destroy(optim);
}

static void a_change_by_the_program_stays(void **state)
{
    zro_optim *optim = sgd(0.1);
    zro_schedule *s;

    (void)state;
    OK(zro_schedule_linear(optim, 0.5, 1, 10, &s));
    OK(zro_schedule_step(s));
    OK(zro_optim_set_value(optim, 0, "lr", 2 * lr_of(optim)));
    for (int t = 1; t < 15; t++) {
        check_near(lr_of(optim), 0.2 * (0.5 + 0.5 * (t < 10 ? t : 10) / 10));
        OK(zro_schedule_step(s));
    }
    zro_schedule_destroy(s);
    zro_optim_destroy(optim);
}

static void groups_have_their_own_lr(void **state)
{
    static const double lr[] = { 0.1, 0.02 };
    const zro_value added = { "lr", 0.7 };
    zro_optim *optim = make_optim(zro_rule_sgd(), 2, lr);
    zro_param_group group = one_group(2, &added);
    zro_schedule *parts[2], *s;

    (void)state;
    OK(zro_schedule_exponential(optim, 0.5, &parts[0]));
    OK(zro_optim_add_param_group(optim, &group));
    OK(zro_schedule_step(parts[0]));
    check_near(value_of(optim, 0, "lr"), 0.05);
    check_near(value_of(optim, 1, "lr"), 0.01);
    check_near(value_of(optim, 2, "lr"), 0.7);
    OK(zro_schedule_constant(optim, 0.5, 3, &parts[1])); /* for all three */
    OK(zro_schedule_chained(parts, 2, &s));
    OK(zro_schedule_step(s));
    check_near(value_of(optim, 0, "lr"), 0.0125);
    check_near(value_of(optim, 1, "lr"), 0.0025);
    check_near(value_of(optim, 2, "lr"), 0.35);
    OK(zro_schedule_step(s));
    OK(zro_schedule_step(s)); /* the constant ends, also for the group that one part does not know */
    check_near(value_of(optim, 0, "lr"), 0.00625);
    check_near(value_of(optim, 1, "lr"), 0.00125);
    check_near(value_of(optim, 2, "lr"), 0.7);
    zro_schedule_destroy(s);
    zro_optim_destroy(optim);
}

/* The second part of a sequence begins from the first lr of each group. */
static void groups_in_sequence(void **state)
{
    static const double lr[] = { 0.1, 0.02 };
    zro_optim *optim = make_optim(zro_rule_sgd(), 2, lr);
    zro_schedule *parts[2], *s;

    (void)state;
    OK(zro_schedule_exponential(optim, 0.5, &parts[0]));
    OK(zro_schedule_exponential(optim, 0.1, &parts[1]));
    OK(zro_schedule_sequential(parts, 2, (const uint64_t[]){ 2 }, &s));
    OK(zro_schedule_step(s));
    check_near(value_of(optim, 0, "lr"), 0.05);
    check_near(value_of(optim, 1, "lr"), 0.01);
    OK(zro_schedule_step(s));
    check_near(value_of(optim, 0, "lr"), 0.1);
    check_near(value_of(optim, 1, "lr"), 0.02);
    OK(zro_schedule_step(s));
    check_near(value_of(optim, 0, "lr"), 0.01);
    check_near(value_of(optim, 1, "lr"), 0.002);
    zro_schedule_destroy(s);
    zro_optim_destroy(optim);
}

/* ---- failures ---- */

typedef struct trap {
    size_t group;
    uint64_t steps;
    double value;
} trap;

static double fall_into(void *user, size_t group, uint64_t steps)
{
    const trap *t = user;

    return group == t->group && steps == t->steps ? t->value : 0.5;
}

/* The second group's lr cannot be set: the first one's, the momentum and all parts are as before, and the step can be retried. */
static void a_failed_step_changes_nothing(void **state)
{
    static const double lr[] = { 0.1, 0.2 };
    zro_one_cycle_config config = ZRO_ONE_CYCLE_CONFIG_INIT;
    trap t = { 1, 3, -1 };
    zro_optim *optim = make_optim(zro_rule_sgd(), 2, lr);
    zro_schedule *parts[3], *s;
    double momentum;

    (void)state;
    config.max_lr = 1;
    config.total_steps = 20;
    OK(zro_schedule_one_cycle(optim, &config, &parts[0]));
    OK(zro_schedule_lambda(optim, fall_into, &t, &parts[1]));
    OK(zro_schedule_multi_step(optim, (const uint64_t[]){ 3 }, 1, 0.25, &parts[2]));
    OK(zro_schedule_chained(parts, 3, &s));
    OK(zro_schedule_step(s));
    OK(zro_schedule_step(s));
    momentum = value_of(optim, 0, "momentum");
    for (int i = 0; i < 3; i++) {
        t.value = i == 0 ? -1 : i == 1 ? NAN : INFINITY;
        check_refused(zro_schedule_step(s), ZRO_ERR_INVALID, "group 1 after 3 steps: ");
        assert_non_null(strstr(zro_last_error(), "lr"));
        check_near(value_of(optim, 0, "lr"), 0.02);
        check_near(value_of(optim, 1, "lr"), 0.02);
        assert_true(value_of(optim, 0, "momentum") == momentum && value_of(optim, 1, "momentum") == momentum);
    }
    t.value = 1;
    OK(zro_schedule_step(s));
    check_near(value_of(optim, 0, "lr"), 0.04 * 0.5 * 0.25);
    check_near(value_of(optim, 1, "lr"), 0.04 * 0.25);
    zro_schedule_destroy(s);
    zro_optim_destroy(optim);
}

static void a_failed_create_changes_nothing(void **state)
{
    static const double lr[] = { 0.1, 0.2 };
    trap t = { 1, 0, NAN };
    zro_optim *optim = make_optim(zro_rule_sgd(), 2, lr);
    size_t bytes = bytes_of(optim);
    zro_schedule *parts[2], *s = (zro_schedule *)&t;

    (void)state;
    check_refused(zro_schedule_lambda(optim, fall_into, &t, &s), ZRO_ERR_INVALID, "schedule_lambda: group 1");
    assert_null(s);
    assert_int_equal(bytes_of(optim), bytes);
    check_near(value_of(optim, 0, "lr"), 0.1);
    t.value = 1;
    OK(zro_schedule_lambda(optim, fall_into, &t, &parts[0]));
    OK(zro_schedule_exponential(optim, 0.5, &parts[1]));
    t.value = NAN;
    s = parts[0];
    check_refused(zro_schedule_sequential(parts, 2, (const uint64_t[]){ 5 }, &s), ZRO_ERR_INVALID,
                  "schedule_sequential: group 1");
    assert_null(s);
    assert_int_equal(bytes_of(optim), bytes);
    check_near(value_of(optim, 0, "lr"), 0.05);
    check_near(value_of(optim, 1, "lr"), 0.2);
    zro_optim_destroy(optim);
}

static void bad_numbers_are_named(void **state)
{
    static const uint64_t falling[] = { 1, 5, 4 };
    zro_optim *o = sgd(0.1);
    size_t bytes = bytes_of(o);
    zro_schedule *s;

    (void)state;
    check_refused(zro_schedule_step_lr(o, 0, 0.1, &s), ZRO_ERR_INVALID, "schedule_step_lr: step_size = 0");
    check_refused(zro_schedule_step_lr(o, 1, -0.1, &s), ZRO_ERR_INVALID, "gamma = -0.1");
    check_refused(zro_schedule_multi_step(o, falling, 3, 0.1, &s), ZRO_ERR_INVALID, "milestones[2] = 4");
    check_refused(zro_schedule_multi_step(o, NULL, 3, 0.1, &s), ZRO_ERR_INVALID, "milestones is NULL");
    check_refused(zro_schedule_multi_step(o, falling, 2, NAN, &s), ZRO_ERR_INVALID, "gamma = nan");
    check_refused(zro_schedule_exponential(o, INFINITY, &s), ZRO_ERR_INVALID, "gamma = inf");
    check_refused(zro_schedule_polynomial(o, 5, -1, &s), ZRO_ERR_INVALID, "power = -1");
    check_refused(zro_schedule_cosine(o, 0, 0, &s), ZRO_ERR_INVALID, "t_max = 0");
    check_refused(zro_schedule_cosine(o, 5, -1, &s), ZRO_ERR_INVALID, "eta_min = -1");
    check_refused(zro_schedule_cosine_restarts(o, 0, 1, 0, &s), ZRO_ERR_INVALID, "t_0 = 0");
    check_refused(zro_schedule_cosine_restarts(o, 1, 0, 0, &s), ZRO_ERR_INVALID, "t_mult = 0");
    check_refused(zro_schedule_cosine_restarts(o, 1, 1, NAN, &s), ZRO_ERR_INVALID, "eta_min = nan");
    check_refused(zro_schedule_cosine_restarts(o, 1, 1, -0.5, &s), ZRO_ERR_INVALID, "eta_min = -0.5");
    check_refused(zro_schedule_linear(o, 0, 1, 5, &s), ZRO_ERR_INVALID, "start_factor = 0");
    check_refused(zro_schedule_linear(o, 1, 1.5, 5, &s), ZRO_ERR_INVALID, "end_factor = 1.5");
    check_refused(zro_schedule_constant(o, -0.5, 5, &s), ZRO_ERR_INVALID, "factor = -0.5");
    check_refused(zro_schedule_lambda(o, NULL, NULL, &s), ZRO_ERR_INVALID, "fn is NULL");
    check_refused(zro_schedule_exponential(NULL, 1, &s), ZRO_ERR_INVALID, "optimizer is NULL");
    check_refused(zro_schedule_exponential(o, 1, NULL), ZRO_ERR_INVALID, "out is NULL");
    assert_null(s);
    check_near(lr_of(o), 0.1);
    assert_int_equal(bytes_of(o), bytes);
    zro_optim_destroy(o);
}

static void check_bad_cycle(zro_optim *o, const zro_one_cycle_config *config, const char *text)
{
    zro_schedule *s = (zro_schedule *)o;

    check_refused(zro_schedule_one_cycle(o, config, &s), ZRO_ERR_INVALID, text);
    assert_null(s);
}

static void bad_fields_of_one_cycle_are_named(void **state)
{
    zro_one_cycle_config good = ZRO_ONE_CYCLE_CONFIG_INIT, c;
    zro_optim *o = sgd(0.1);
    zro_schedule *s;

    (void)state;
    zro_one_cycle_config_init(&c);
    assert_true(c.struct_size == sizeof c && c.pct_start == 0.3 && c.cycle_momentum == ZRO_ON && c.final_div_factor == 1e4);
    check_bad_cycle(o, NULL, "max_lr = 0");
    good.max_lr = 1;
    check_bad_cycle(o, &good, "total_steps = 0");
    good.total_steps = 10;
    c = good, c.pct_start = 1.5;
    check_bad_cycle(o, &c, "pct_start = 1.5");
    c = good, c.div_factor = 0;
    check_bad_cycle(o, &c, "div_factor = 0");
    c = good, c.final_div_factor = -1;
    check_bad_cycle(o, &c, "final_div_factor = -1");
    c = good, c.base_momentum = -1;
    check_bad_cycle(o, &c, "base_momentum = -1");
    c = good, c.max_momentum = INFINITY;
    check_bad_cycle(o, &c, "max_momentum = inf");
    c = good, c.linear = (zro_switch)7;
    check_bad_cycle(o, &c, "linear = 7");
    c = good, c.three_phase = (zro_switch)7;
    check_bad_cycle(o, &c, "three_phase = 7");
    c = good, c.cycle_momentum = (zro_switch)7;
    check_bad_cycle(o, &c, "cycle_momentum = 7");
    c = good, c.struct_size = 0;
    check_bad_cycle(o, &c, "struct_size = 0");
    c = good, c.cycle_momentum = ZRO_OFF, c.base_momentum = c.max_momentum = -1; /* which are not used then */
    assert_int_equal(zro_schedule_one_cycle(o, &c, &s), ZRO_OK);
    zro_schedule_destroy(s);
    zro_optim_destroy(o);
}

static void check_bad_plateau(zro_optim *o, const zro_plateau_config *config, const char *text)
{
    zro_schedule *s = (zro_schedule *)o;

    check_refused(zro_schedule_plateau(o, config, &s), ZRO_ERR_INVALID, text);
    assert_null(s);
}

static void bad_fields_of_plateau_are_named(void **state)
{
    zro_plateau_config good = ZRO_PLATEAU_CONFIG_INIT, c;
    zro_optim *o = sgd(0.1);

    (void)state;
    zro_plateau_config_init(&c);
    assert_true(c.struct_size == sizeof c && c.factor == 0.1 && c.patience == 10 && c.threshold == 1e-4 && c.eps == 1e-8);
    c = good, c.factor = 1;
    check_bad_plateau(o, &c, "factor = 1");
    c = good, c.threshold = NAN;
    check_bad_plateau(o, &c, "threshold = nan");
    c = good, c.min_lr = -1;
    check_bad_plateau(o, &c, "min_lr = -1");
    c = good, c.eps = -1;
    check_bad_plateau(o, &c, "eps = -1");
    c = good, c.maximize = (zro_switch)2;
    check_bad_plateau(o, &c, "maximize = 2");
    c = good, c.threshold_absolute = (zro_switch)2;
    check_bad_plateau(o, &c, "threshold_absolute = 2");
    c = good, c.struct_size = 8;
    check_bad_plateau(o, &c, "struct_size = 8");
    zro_optim_destroy(o);
}

static void metrics_are_plateaus(void **state)
{
    zro_optim *optim = sgd(0.1);
    zro_schedule *s;

    (void)state;
    OK(zro_schedule_plateau(optim, NULL, &s));
    check_refused(zro_schedule_step(s), ZRO_ERR_STATE, "plateau");
    zro_schedule_destroy(s);
    OK(zro_schedule_exponential(optim, 0.5, &s));
    check_refused(zro_schedule_step_metric(s, 1), ZRO_ERR_STATE, "exponential");
    check_near(lr_of(optim), 0.1);
    zro_schedule_destroy(s);
    check_refused(zro_schedule_step(NULL), ZRO_ERR_INVALID, "NULL");
    check_refused(zro_schedule_step_metric(NULL, 1), ZRO_ERR_INVALID, "NULL");
    zro_optim_destroy(optim);
}

/* ---- who owns whom ---- */

static void destroyed_in_any_order(void **state)
{
    (void)state;
    for (int order = 0; order < 4; order++) {
        zro_optim *optim = sgd(0.1);
        zro_schedule *parts[2], *chained, *alone;

        OK(zro_schedule_exponential(optim, 0.5, &parts[0]));
        OK(zro_schedule_step_lr(optim, 1, 0.5, &parts[1]));
        OK(zro_schedule_chained(parts, 2, &chained));
        OK(zro_schedule_linear(optim, 0.5, 1, 4, &alone));
        if (order % 2 == 0)
            zro_optim_destroy(optim);
        zro_schedule_destroy(order / 2 == 0 ? alone : chained);
        zro_schedule_destroy(order / 2 == 0 ? chained : alone);
        if (order % 2 != 0)
            zro_optim_destroy(optim);
    }
    zro_schedule_destroy(NULL);
}

static void what_is_taken_over_is_its_owners(void **state)
{
    zro_optim *optim = sgd(0.1);
    size_t bytes = bytes_of(optim);
    zro_schedule *parts[2], *other, *s, *t;

    (void)state;
    OK(zro_schedule_exponential(optim, 0.5, &parts[0]));
    OK(zro_schedule_step_lr(optim, 1, 0.5, &parts[1]));
    OK(zro_schedule_chained(parts, 2, &s));
    check_refused(zro_schedule_step(parts[0]), ZRO_ERR_STATE, "chained");
    check_refused(zro_schedule_step_metric(parts[0], 1), ZRO_ERR_STATE, "chained");
    zro_schedule_destroy(parts[1]); /* nothing happens */
    OK(zro_schedule_step(s));
    check_near(lr_of(optim), 0.025);
    OK(zro_schedule_constant(optim, 1, 1, &other)); /* is lost below; the others are not */
    check_refused(zro_schedule_chained((zro_schedule *[]){ other, parts[0] }, 2, &t), ZRO_ERR_INVALID, "schedules[1]");
    OK(zro_schedule_step(s));
    check_near(lr_of(optim), 0.00625);
    zro_schedule_destroy(s);
    assert_int_equal(bytes_of(optim), bytes);
    zro_optim_destroy(optim);
}

static void check_bad_list(zro_schedule *const *list, size_t n, const char *text)
{
    static const uint64_t milestones[] = { 1, 2, 3 };
    zro_schedule *s = list[0];

    check_refused(zro_schedule_sequential(list, n, milestones, &s), ZRO_ERR_INVALID, text);
    assert_null(s);
}

/* Whatever is wrong with a list, all in it that were nobody's are destroyed, once. */
static void bad_lists(void **state)
{
    zro_optim *optim = sgd(0.1), *second = sgd(0.1);
    size_t bytes = bytes_of(optim), bytes_second = bytes_of(second);
    zro_schedule *s, *list[4];

    (void)state;
    check_refused(zro_schedule_chained(NULL, 1, &s), ZRO_ERR_INVALID, "no schedules");
    check_refused(zro_schedule_sequential(NULL, 0, NULL, &s), ZRO_ERR_INVALID, "no schedules");
    OK(zro_schedule_exponential(optim, 0.5, &list[0]));
    list[1] = NULL;
    check_bad_list(list, 2, "schedules[1] is NULL");
    OK(zro_schedule_exponential(optim, 0.5, &list[0]));
    OK(zro_schedule_exponential(optim, 0.5, &list[1]));
    list[2] = list[0];
    list[3] = list[0];
    check_bad_list(list, 4, "schedules[2] is schedules[0] again");
    OK(zro_schedule_exponential(optim, 0.5, &list[0]));
    OK(zro_schedule_exponential(second, 0.5, &list[1]));
    check_bad_list(list, 2, "schedules[1] has another optimizer");
    OK(zro_schedule_exponential(optim, 0.5, &list[0]));
    OK(zro_schedule_plateau(optim, NULL, &list[1]));
    check_bad_list(list, 2, "schedules[1] is a plateau");
    OK(zro_schedule_exponential(optim, 0.5, &list[0]));
    OK(zro_schedule_chained(list, 1, &list[1])); /* list[0] goes with it */
    check_bad_list(list, 2, "schedules[0] has been taken over");
    OK(zro_schedule_exponential(optim, 0.5, &list[0]));
    OK(zro_schedule_exponential(optim, 0.5, &list[1]));
    check_refused(zro_schedule_sequential(list, 2, NULL, &s), ZRO_ERR_INVALID, "milestones is NULL");
    OK(zro_schedule_exponential(optim, 0.5, &list[0]));
    check_refused(zro_schedule_chained(list, 1, NULL), ZRO_ERR_INVALID, "out is NULL");
    assert_int_equal(bytes_of(optim), bytes);
    assert_int_equal(bytes_of(second), bytes_second);
    zro_optim_destroy(optim);
    zro_optim_destroy(second);
}

static void milestones_must_not_fall(void **state)
{
    zro_optim *optim = sgd(0.1);
    size_t bytes = bytes_of(optim);
    zro_schedule *list[3], *s;

    (void)state;
    for (size_t i = 0; i < 3; i++)
        OK(zro_schedule_exponential(optim, 0.5, &list[i]));
    check_refused(zro_schedule_sequential(list, 3, (const uint64_t[]){ 5, 4 }, &s), ZRO_ERR_INVALID, "milestones[1] = 4");
    assert_int_equal(bytes_of(optim), bytes);
    zro_optim_destroy(optim);
}

#ifdef ZRO__POINTS

static void memory_may_run_out(void **state)
{
    zro__point_plan plan = { .name = "memory.alloc", .action = ZRO__POINT_FAIL, .nth = 1 };
    zro_optim *optim = sgd(0.1);
    size_t bytes = bytes_of(optim);
    zro_schedule *parts[2], *s = (void *)&plan;

    (void)state;
    zro__point_plan_set(&plan);
    assert_int_equal(zro_schedule_constant(optim, 0.5, 3, &s), ZRO_ERR_MEMORY);
    zro__point_plan_set(NULL);
    assert_null(s);
    check_near(lr_of(optim), 0.1);
    OK(zro_schedule_exponential(optim, 0.5, &parts[0]));
    OK(zro_schedule_exponential(optim, 0.5, &parts[1]));
    atomic_store(&plan.hits, 0);
    zro__point_plan_set(&plan);
    assert_int_equal(zro_schedule_chained(parts, 2, &s), ZRO_ERR_MEMORY);
    zro__point_plan_set(NULL);
    assert_null(s);
    assert_int_equal(bytes_of(optim), bytes);
    zro_optim_destroy(optim);
}

#endif

/* A step takes no memory. */
static void steps_allocate_nothing(void **state)
{
    zro_optim *optim = sgd(0.1);
    zro_schedule *parts[2], *s;
    size_t bytes;

    (void)state;
    OK(zro_schedule_linear(optim, 0.1, 1, 4, &parts[0]));
    OK(zro_schedule_cosine(optim, 6, 0, &parts[1]));
    OK(zro_schedule_sequential(parts, 2, (const uint64_t[]){ 4 }, &s));
    bytes = atomic_load(&optim->account->peak);
    for (int t = 0; t < 10; t++)
        OK(zro_schedule_step(s));
    assert_int_equal(atomic_load(&optim->account->peak), bytes);
    zro_schedule_destroy(s);
    zro_optim_destroy(optim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(step_lr_multiplies_every_step_size),
        cmocka_unit_test(multi_step_multiplies_at_milestones),
        cmocka_unit_test(exponential_multiplies_every_step),
        cmocka_unit_test(polynomial_ends_at_zero),
        cmocka_unit_test(cosine_goes_down_and_up),
        cmocka_unit_test(cosine_restarts_take_longer_each_time),
        cmocka_unit_test(restarts_may_be_far_away),
        cmocka_unit_test(linear_goes_from_start_to_end),
        cmocka_unit_test(linear_may_end_at_zero),
        cmocka_unit_test(constant_is_undone_at_the_end),
        cmocka_unit_test(one_cycle_is_pytorchs),
        cmocka_unit_test(one_cycle_in_three_phases),
        cmocka_unit_test(one_cycle_has_no_bad_borders),
        cmocka_unit_test(one_cycle_asks_for_both_ends),
        cmocka_unit_test(plateau_waits_for_patience_and_cooldown),
        cmocka_unit_test(plateau_maximizes),
        cmocka_unit_test(plateau_stops_at_min_lr),
        cmocka_unit_test(lambda_knows_group_and_steps),
        cmocka_unit_test(chained_is_pytorchs),
        cmocka_unit_test(warm_up_then_cosine),
        cmocka_unit_test(three_in_sequence),
        cmocka_unit_test(parts_may_never_run),
        cmocka_unit_test(one_cycle_in_sequence),
        cmocka_unit_test(restarts_and_lambda_in_sequence),
        cmocka_unit_test(trees),
        cmocka_unit_test(constant_over_in_sequence),
        cmocka_unit_test(chained_begins_a_sequence),
        cmocka_unit_test(sequences_begin_sequences),
        cmocka_unit_test(schedules_share_the_first_lr),
        cmocka_unit_test(plateau_has_no_first_lr),
        cmocka_unit_test(two_on_one_optimizer_multiply_up),
        cmocka_unit_test(a_change_by_the_program_stays),
        cmocka_unit_test(groups_have_their_own_lr),
        cmocka_unit_test(groups_in_sequence),
        cmocka_unit_test(a_failed_step_changes_nothing),
        cmocka_unit_test(a_failed_create_changes_nothing),
        cmocka_unit_test(bad_numbers_are_named),
        cmocka_unit_test(bad_fields_of_one_cycle_are_named),
        cmocka_unit_test(bad_fields_of_plateau_are_named),
        cmocka_unit_test(metrics_are_plateaus),
        cmocka_unit_test(destroyed_in_any_order),
        cmocka_unit_test(what_is_taken_over_is_its_owners),
        cmocka_unit_test(bad_lists),
        cmocka_unit_test(milestones_must_not_fall),
        cmocka_unit_test(steps_allocate_nothing),
#ifdef ZRO__POINTS
        cmocka_unit_test(memory_may_run_out),
#endif
    };

    return cmocka_run_group_tests_name("schedule", tests, NULL, NULL);
}
