/* schedules.json: the learning rates that schedules set, on an optimizer with one parameter.
 *
 * Where an argument is left out it is PyTorch's default, but for OneCycleLR's cycle_momentum: the vectors are those of an
 * optimizer without momentum, and learning rates do not depend on it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "golden.h"

/* Makes one from PyTorch's arguments, which have passed golden_keys.  It is only created if the case is still good. */
typedef zro_status (*make_fn)(golden_case *c, zro_optim *optim, json_t *args, zro_schedule **out);

/* What is a number, or one for each group of parameters: there is one. */
static double number_of_group(golden_case *c, json_t *args, const char *key, double otherwise)
{
    json_t *json = json_object_get(args, key);

    if (!json_is_array(json))
        return golden_number(c, args, key, otherwise);
    if (json_array_size(json) != 1 || !json_is_number(json_array_get(json, 0)))
        golden_fail(c, "\"%s\" must be a number or a list of one", key);
    return json_number_value(json_array_get(json, 0));
}

static zro_status make_step(golden_case *c, zro_optim *optim, json_t *args, zro_schedule **out)
{
    uint32_t step_size = golden_count(c, args, "step_size", 0);
    double gamma = golden_number(c, args, "gamma", 0.1);

    return golden_ok(c) ? zro_schedule_step_lr(optim, step_size, gamma, out) : ZRO_OK;
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* PyTorch takes milestones in any order. */
static zro_status make_multi_step(golden_case *c, zro_optim *optim, json_t *args, zro_schedule **out)
{
    json_t *list = golden_list(c, args, "milestones");
    golden_vector numbers = golden_read_vector(c, "milestones", list, ZRO_F64);
    uint64_t *milestones = golden_alloc(c, numbers.count * sizeof *milestones);
    double gamma = golden_number(c, args, "gamma", 0.1);

    for (size_t i = 0; i < numbers.count; i++) {
        double number = golden_element(numbers.data, ZRO_F64, i);

        if (!(number >= 0 && number <= UINT32_MAX && floor(number) == number))
            golden_fail(c, "\"milestones\" has %.17g, must be whole numbers", number);
        else
            milestones[i] = (uint64_t)number;
    }
    if (!golden_ok(c))
        return ZRO_OK;
    qsort(milestones, numbers.count, sizeof *milestones, compare_u64);
    return zro_schedule_multi_step(optim, milestones, numbers.count, gamma, out);
}

static zro_status make_exponential(golden_case *c, zro_optim *optim, json_t *args, zro_schedule **out)
{
    double gamma = golden_number(c, args, "gamma", 0);

    return golden_ok(c) ? zro_schedule_exponential(optim, gamma, out) : ZRO_OK;
}

static zro_status make_cosine(golden_case *c, zro_optim *optim, json_t *args, zro_schedule **out)
{
    uint32_t t_max = golden_count(c, args, "T_max", 0);
    double eta_min = golden_number(c, args, "eta_min", 0);

    return golden_ok(c) ? zro_schedule_cosine(optim, t_max, eta_min, out) : ZRO_OK;
}

static zro_status make_cosine_restarts(golden_case *c, zro_optim *optim, json_t *args, zro_schedule **out)
{
    uint32_t t_0 = golden_count(c, args, "T_0", 0), t_mult = golden_count(c, args, "T_mult", 1);
    double eta_min = golden_number(c, args, "eta_min", 0);

    return golden_ok(c) ? zro_schedule_cosine_restarts(optim, t_0, t_mult, eta_min, out) : ZRO_OK;
}

static zro_status make_linear(golden_case *c, zro_optim *optim, json_t *args, zro_schedule **out)
{
    double start = golden_number(c, args, "start_factor", 1.0 / 3), end = golden_number(c, args, "end_factor", 1);
    uint32_t total_iters = golden_count(c, args, "total_iters", 5);

    return golden_ok(c) ? zro_schedule_linear(optim, start, end, total_iters, out) : ZRO_OK;
}

static zro_status make_constant(golden_case *c, zro_optim *optim, json_t *args, zro_schedule **out)
{
    double factor = golden_number(c, args, "factor", 1.0 / 3);
    uint32_t total_iters = golden_count(c, args, "total_iters", 5);

    return golden_ok(c) ? zro_schedule_constant(optim, factor, total_iters, out) : ZRO_OK;
}

static zro_status make_polynomial(golden_case *c, zro_optim *optim, json_t *args, zro_schedule **out)
{
    uint32_t total_iters = golden_count(c, args, "total_iters", 5);
    double power = golden_number(c, args, "power", 1);

    return golden_ok(c) ? zro_schedule_polynomial(optim, total_iters, power, out) : ZRO_OK;
}

/* total_steps counts before epochs and steps_per_epoch. */
static uint64_t total_steps(golden_case *c, json_t *args)
{
    if (golden_given(args, "total_steps"))
        return golden_count(c, args, "total_steps", 0);
    if (!golden_given(args, "epochs") || !golden_given(args, "steps_per_epoch"))
        golden_fail(c, "\"args\" has neither total_steps nor both epochs and steps_per_epoch");
    return (uint64_t)golden_count(c, args, "epochs", 0) * golden_count(c, args, "steps_per_epoch", 0);
}

static zro_status make_one_cycle(golden_case *c, zro_optim *optim, json_t *args, zro_schedule **out)
{
    zro_one_cycle_config config = ZRO_ONE_CYCLE_CONFIG_INIT;

    config.max_lr = number_of_group(c, args, "max_lr", 0);
    config.total_steps = total_steps(c, args);
    config.pct_start = golden_number(c, args, "pct_start", 0.3);
    config.linear = golden_word(c, args, "anneal_strategy", "cos linear", 0) == 1 ? ZRO_ON : ZRO_OFF;
    config.three_phase = golden_flag(c, args, "three_phase", ZRO_OFF);
    config.cycle_momentum = golden_flag(c, args, "cycle_momentum", ZRO_OFF);
    config.base_momentum = number_of_group(c, args, "base_momentum", 0.85);
    config.max_momentum = number_of_group(c, args, "max_momentum", 0.95);
    config.div_factor = golden_number(c, args, "div_factor", 25);
    config.final_div_factor = golden_number(c, args, "final_div_factor", 1e4);
    return golden_ok(c) ? zro_schedule_one_cycle(optim, &config, out) : ZRO_OK;
}

static zro_status make_plateau(golden_case *c, zro_optim *optim, json_t *args, zro_schedule **out)
{
    zro_plateau_config config = ZRO_PLATEAU_CONFIG_INIT;

    config.maximize = golden_word(c, args, "mode", "min max", 0) == 1 ? ZRO_ON : ZRO_OFF;
    config.factor = golden_number(c, args, "factor", 0.1);
    config.patience = golden_count(c, args, "patience", 10);
    config.threshold = golden_number(c, args, "threshold", 1e-4);
    config.threshold_absolute = golden_word(c, args, "threshold_mode", "rel abs", 0) == 1 ? ZRO_ON : ZRO_OFF;
    config.cooldown = golden_count(c, args, "cooldown", 0);
    config.min_lr = number_of_group(c, args, "min_lr", 0);
    config.eps = golden_number(c, args, "eps", 1e-8);
    return golden_ok(c) ? zro_schedule_plateau(optim, &config, out) : ZRO_OK;
}

/* The chain takes over its parts; those of a chain that cannot be made are destroyed here. */
static zro_status make_chained(golden_case *c, zro_optim *optim, json_t *args, zro_schedule **out)
{
    json_t *list = golden_list(c, args, "schedulers");
    size_t n = json_array_size(list);
    zro_schedule **parts = golden_alloc(c, n * sizeof *parts);

    for (size_t i = 0; i < n; i++) {
        json_t *part = json_array_get(list, i);

        if (golden_keys(c, "the chained scheduler", part, "name args", ""))
            parts[i] = golden_make_schedule(c, optim, golden_string(c, part, "name", ""), json_object_get(part, "args"));
    }
    if (golden_ok(c))
        return zro_schedule_chained(parts, n, out);
    for (size_t i = 0; i < n; i++)
        zro_schedule_destroy(parts[i]);
    return ZRO_OK;
}

static const struct {
    const char *name, *required, *optional;
    make_fn make;
} makers[] = {
    { "StepLR", "step_size", "gamma last_epoch", make_step },
    { "MultiStepLR", "milestones", "gamma last_epoch", make_multi_step },
    { "ExponentialLR", "gamma", "last_epoch", make_exponential },
    { "CosineAnnealingLR", "T_max", "eta_min last_epoch", make_cosine },
    { "CosineAnnealingWarmRestarts", "T_0", "T_mult eta_min last_epoch", make_cosine_restarts },
    { "LinearLR", "", "start_factor end_factor total_iters last_epoch", make_linear },
    { "ConstantLR", "", "factor total_iters last_epoch", make_constant },
    { "PolynomialLR", "", "total_iters power last_epoch", make_polynomial },
    { "OneCycleLR", "max_lr",
      "total_steps epochs steps_per_epoch pct_start anneal_strategy cycle_momentum base_momentum max_momentum div_factor "
      "final_div_factor three_phase last_epoch",
      make_one_cycle },
    { "ReduceLROnPlateau", "", "mode factor patience threshold threshold_mode cooldown min_lr eps", make_plateau },
    { "ChainedScheduler", "schedulers", "", make_chained },
};

zro_schedule *golden_make_schedule(golden_case *c, zro_optim *optim, const char *name, json_t *args)
{
    zro_schedule *schedule = NULL;

    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++)
        if (strcmp(makers[i].name, name) == 0) {
            if (golden_keys(c, "\"args\"", args, makers[i].required, makers[i].optional)) {
                if (golden_number(c, args, "last_epoch", -1) != -1)
                    golden_fail(c, "\"last_epoch\" must be -1: schedules begin at their beginning");
                golden_call(c, name, makers[i].make(c, optim, args, &schedule));
            }
            return schedule;
        }
    golden_fail(c, "the schedule \"%s\" is not known", name);
    return NULL;
}

static void check_lrs(golden_case *c, zro_optim *optim, zro_schedule *schedule, const golden_vector *lrs,
                      const golden_vector *metrics, double base_lr)
{
    for (c->step = 0; c->step < lrs->count; c->step++) {
        double x = golden_element(lrs->data, ZRO_F64, c->step), lr = NAN;
        zro_status next;

        if (!golden_call(c, "zro_optim_get_value", zro_optim_get_value(optim, 0, "lr", &lr)))
            return;
        golden_near(c, "the learning rate", ZRO_F64, lr, x, 1e-12 * fabs(x) + 1e-15 * base_lr);
        if (c->step + 1 == lrs->count)
            return;
        if (!golden_call(c, "zro_optim_step", zro_optim_step(optim, NULL)))
            return;
        if (metrics->data != NULL)
            next = zro_schedule_step_metric(schedule, golden_element(metrics->data, ZRO_F64, c->step));
        else
            next = zro_schedule_step(schedule);
        if (!golden_call(c, "zro_schedule_step", next))
            return;
    }
}

void golden_schedules(golden_case *c)
{
    golden_vector lrs, metrics = { NULL, 0 };
    const char *name;
    double value = 1, grad = 0.25;
    zro_param param = ZRO_PARAM_INIT;
    zro_value lr = { "lr", 0 };
    zro_optim *optim;
    zro_schedule *schedule = NULL;

    if (!golden_keys(c, "the case", c->json, "name args base_lr metrics lrs", ""))
        return;
    name = golden_string(c, c->json, "name", "");
    golden_about(c, "%s", name);
    lr.value = golden_number(c, c->json, "base_lr", 0);
    lrs = golden_read_vector(c, "lrs", golden_list(c, c->json, "lrs"), ZRO_F64);
    if (!json_is_null(json_object_get(c->json, "metrics")))
        metrics = golden_read_vector(c, "metrics", golden_list(c, c->json, "metrics"), ZRO_F64);
    if ((metrics.data != NULL) != (strcmp(name, "ReduceLROnPlateau") == 0))
        golden_fail(c, "\"metrics\" must be given for ReduceLROnPlateau and be null for others");
    if (metrics.data != NULL && metrics.count != lrs.count)
        golden_fail(c, "\"metrics\" has %zu numbers, \"lrs\" has %zu", metrics.count, lrs.count);
    if (!golden_ok(c))
        return;
    param.dtype = ZRO_F64;
    param.shape[0] = 1;
    param.data = &value;
    param.grad = &grad;
    param.grad_present = 1;
    optim = golden_make_optim(c, &param, 1, zro_rule_sgd(), &lr, 1, NULL);
    if (optim != NULL)
        schedule = golden_make_schedule(c, optim, name, json_object_get(c->json, "args"));
    if (schedule != NULL)
        check_lrs(c, optim, schedule, &lrs, &metrics, lr.value);
    zro_schedule_destroy(schedule);
    zro_optim_destroy(optim);
}
