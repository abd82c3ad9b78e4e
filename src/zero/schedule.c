/* Schedules as handles on an optimizer.  The numbers are optim/schedule.h's; here is where they come from and go to.
 *
 * A tree: chained and sequential ones have parts, the others are leaves.  A leaf is for the groups that existed when it was
 * made. The first lr of a group is kept by the optimizer, because all schedules made on it, also after others have changed lr,
 * begin from the same.
 *
 * A step is taken as a whole or not at all.  The handle that is stepped, the root, reads the groups' values; the tree computes
 * on its copy; then they are set.  If anything fails (a function that returns NaN, a value that the rule refuses), values and
 * states go back to what they were.
 *
 * Who has an owner is a part of it: it cannot be stepped, taken over again or destroyed but with the owner. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/cpu.h"
#include "base/memory.h"
#include "base/settings.h"
#include "base/status.h"
#include "optim/schedule.h"
#include "zero/optim.h"

/* By group. */
typedef struct values {
    double *lr, *momentum;
} values;

struct zro_schedule {
    zro__arena arena; /* that this handle and its arrays are in */
    zro__schedule_args args;
    zro__schedule_state now, before; /* before: what a step that fails goes back to */
    zro_optim *optim;                /* retained */
    zro_schedule *owner, *next;      /* next: in a list of those that are to be destroyed */
    zro_lr_fn fn;                    /* lambda */
    void *user;
    const char *momentum; /* the value that one_cycle, here or in a part, cycles; or NULL */
    size_t n_groups;
    double *base;               /* of a leaf, by group: the first lr */
    values work, values_before; /* of a root */
    size_t n_parts;
    zro_schedule **parts;
};

/* Arithmetic belongs between a change of the floating-point mode and the next: see cpu.h. */
#define NOINLINE __attribute__((noinline))

static const zro_one_cycle_config one_cycle_defaults = ZRO_ONE_CYCLE_CONFIG_INIT;
static const zro_plateau_config plateau_defaults = ZRO_PLATEAU_CONFIG_INIT;

void zro_one_cycle_config_init(zro_one_cycle_config *config)
{
    if (config != NULL)
        *config = one_cycle_defaults;
}

void zro_plateau_config_init(zro_plateau_config *config)
{
    if (config != NULL)
        *config = plateau_defaults;
}

/* ---- values ---- */

static zro_status read_values(zro_schedule *s)
{
    for (size_t g = 0; g < s->n_groups; g++) {
        zro_status st = zro_optim_get_value(s->optim, g, "lr", &s->work.lr[g]);

        if (st == ZRO_OK && s->momentum != NULL)
            st = zro_optim_get_value(s->optim, g, s->momentum, &s->work.momentum[g]);
        if (st != ZRO_OK)
            return st;
        s->values_before.lr[g] = s->work.lr[g];
        s->values_before.momentum[g] = s->work.momentum[g];
    }
    return ZRO_OK;
}

static zro_status set_group(zro_schedule *s, size_t g, const values *v)
{
    zro_status st = zro_optim_set_value(s->optim, g, "lr", v->lr[g]);

    if (st == ZRO_OK && s->momentum != NULL)
        st = zro_optim_set_value(s->optim, g, s->momentum, v->momentum[g]);
    return st;
}

/* On failure all of them are what they were; they were the optimizer's, so it takes them back. */
static zro_status write_values(zro_schedule *s)
{
    for (size_t g = 0; g < s->n_groups; g++) {
        zro_status st = set_group(s, g, &s->work);

        if (st == ZRO_OK)
            continue;
        st = zro__fail(st, "schedule_%s: group %zu after %" PRIu64 " steps: %s", zro__schedule_name(s->args.kind), g, s->now.t,
                       zro_last_error());
        for (g = 0; g < s->n_groups; g++)
            if (set_group(s, g, &s->values_before) != ZRO_OK)
                break;
        return st;
    }
    return ZRO_OK;
}

static void note_state(zro_schedule *s)
{
    s->before = s->now;
    for (size_t i = 0; i < s->n_parts; i++)
        note_state(s->parts[i]);
}

static void restore_state(zro_schedule *s)
{
    s->now = s->before;
    for (size_t i = 0; i < s->n_parts; i++)
        restore_state(s->parts[i]);
}

/* ---- steps ---- */

/* What a leaf says at its present state. */
static void apply(const zro_schedule *s, values *v)
{
    for (size_t g = 0; g < s->n_groups; g++) {
        if (s->args.kind == ZRO__SCHEDULE_LAMBDA)
            v->lr[g] = s->base[g] * s->fn(s->user, g, s->now.t);
        else
            v->lr[g] = zro__schedule_lr(&s->args, &s->now, s->base[g], v->lr[g]);
        if (s->momentum != NULL)
            v->momentum[g] = zro__schedule_momentum(&s->args, &s->now);
    }
}

/* As if just made, on the lr that is there. */
static NOINLINE void begin(zro_schedule *s, values *v)
{
    zro__schedule_begin(&s->args, &s->now);
    if (s->args.kind == ZRO__SCHEDULE_SEQUENTIAL)
        begin(s->parts[zro__schedule_reached(&s->args, 0)], v);
    else if (s->n_parts == 0)
        apply(s, v);
    else
        for (size_t i = 0; i < s->n_parts; i++)
            begin(s->parts[i], v);
}

/* The same on the first lr. */
static void begin_anew(zro_schedule *s, values *v)
{
    const zro_schedule *leaf = s;

    while (leaf->n_parts > 0)
        leaf = leaf->parts[0];
    memcpy(v->lr, leaf->base, leaf->n_groups * sizeof *v->lr);
    begin(s, v);
}

static NOINLINE zro_status advance(zro_schedule *s, double metric, values *v)
{
    zro_status st = zro__schedule_next(&s->args, &s->now, metric);

    if (st == ZRO_OK && s->args.kind == ZRO__SCHEDULE_SEQUENTIAL) {
        size_t i = zro__schedule_reached(&s->args, s->now.t);

        if (i == 0 || s->args.milestones[i - 1] != s->now.t)
            return advance(s->parts[i], metric, v);
        begin_anew(s->parts[i], v);
        return ZRO_OK;
    }
    if (st == ZRO_OK && s->n_parts == 0)
        apply(s, v);
    for (size_t i = 0; i < s->n_parts && st == ZRO_OK; i++)
        st = advance(s->parts[i], metric, v);
    return st;
}

static zro_status step(zro_schedule *s, int has_metric, double metric)
{
    zro__fpmode mode;
    zro_status st;

    if (s == NULL)
        return zro__fail(ZRO_ERR_INVALID, "schedule_step: the schedule is NULL");
    if (s->owner != NULL)
        return zro__fail(ZRO_ERR_STATE, "schedule_step: a %s schedule has taken over this %s one and steps it",
                         zro__schedule_name(s->owner->args.kind), zro__schedule_name(s->args.kind));
    if (s->args.kind == ZRO__SCHEDULE_PLATEAU && !has_metric)
        return zro__fail(ZRO_ERR_STATE, "schedule_step: plateau needs a metric; call zro_schedule_step_metric");
    if (s->args.kind != ZRO__SCHEDULE_PLATEAU && has_metric)
        return zro__fail(ZRO_ERR_STATE, "schedule_step_metric: %s has no metric; call zro_schedule_step",
                         zro__schedule_name(s->args.kind));
    st = read_values(s);
    if (st != ZRO_OK)
        return st;
    note_state(s);
    zro__fpmode_enter(&mode);
    st = advance(s, metric, &s->work);
    zro__fpmode_leave(&mode);
    if (st == ZRO_OK)
        st = write_values(s);
    if (st != ZRO_OK)
        restore_state(s);
    return st;
}

zro_status zro_schedule_step(zro_schedule *schedule)
{
    return step(schedule, 0, 0);
}

zro_status zro_schedule_step_metric(zro_schedule *schedule, double metric)
{
    return step(schedule, 1, metric);
}

/* ---- the handle ---- */

void zro_schedule_destroy(zro_schedule *s)
{
    zro__arena arena;
    zro_optim *optim;

    if (s == NULL || s->owner != NULL)
        return;
    for (size_t i = 0; i < s->n_parts; i++) {
        s->parts[i]->owner = NULL;
        zro_schedule_destroy(s->parts[i]);
    }
    arena = s->arena;
    optim = s->optim;
    zro__arena_free(&arena);
    zro__optim_release(optim); /* last: the account of the arena is the optimizer's */
}

/* A handle with all its arrays, for a number of groups and of parts. */
static zro_status make(zro_optim *optim, const zro__schedule_args *args, size_t n_groups, size_t n_parts, zro_schedule **out)
{
    zro__arena arena = { 0 };
    uint64_t *milestones;
    zro_schedule *s;
    zro_status st;

    zro__arena_plan(&arena, 1, sizeof *s);
    zro__arena_plan(&arena, n_groups, 5 * sizeof *s->base);
    zro__arena_plan(&arena, n_parts, sizeof *s->parts);
    zro__arena_plan(&arena, args->n_milestones, sizeof *milestones);
    st = zro__arena_init(&arena, zro__optim_account(optim), "a schedule");
    if (st != ZRO_OK)
        return st;
    s = zro__arena_take(&arena, 1, sizeof *s);
    s->base = zro__arena_take(&arena, n_groups, 5 * sizeof *s->base);
    s->work = (values){ s->base + n_groups, s->base + 2 * n_groups };
    s->values_before = (values){ s->base + 3 * n_groups, s->base + 4 * n_groups };
    s->parts = zro__arena_take(&arena, n_parts, sizeof *s->parts);
    milestones = zro__arena_take(&arena, args->n_milestones, sizeof *milestones);
    if (args->n_milestones > 0)
        memcpy(milestones, args->milestones, args->n_milestones * sizeof *milestones);
    s->arena = arena;
    s->args = *args;
    s->args.milestones = milestones;
    s->n_groups = n_groups;
    s->optim = optim;
    zro__optim_retain(optim);
    *out = s;
    return ZRO_OK;
}

/* ---- leaves ---- */

static int has_value(const zro_optim *optim, const char *name)
{
    const char *there;

    for (size_t i = 0; (there = zro_optim_value_name(optim, i)) != NULL; i++)
        if (strcmp(there, name) == 0)
            return 1;
    return 0;
}

static zro_status find_momentum(zro_schedule *s)
{
    if (s->args.kind != ZRO__SCHEDULE_ONE_CYCLE || !s->args.one_cycle.cycle_momentum)
        return ZRO_OK;
    if (has_value(s->optim, "momentum"))
        s->momentum = "momentum";
    else if (has_value(s->optim, "beta1"))
        s->momentum = "beta1";
    else
        return zro__fail(ZRO_ERR_INVALID,
                         "schedule_one_cycle: cycle_momentum = on, but the rule has neither momentum nor beta1");
    return ZRO_OK;
}

/* What the groups began with: the present lr if this is the first schedule; one_cycle brings its own. */
static NOINLINE void find_base(zro_schedule *s)
{
    for (size_t g = 0; g < s->n_groups; g++) {
        double first = *zro__optim_first_lr(s->optim, g);

        s->base[g] = isnan(first) ? s->work.lr[g] : first;
        if (s->args.kind == ZRO__SCHEDULE_ONE_CYCLE)
            s->base[g] = s->args.one_cycle.max_lr / s->args.one_cycle.div_factor;
    }
}

/* Momentum is at one_cycle's low end only later: the rule is asked now. */
static zro_status try_momentum(zro_schedule *s)
{
    if (s->momentum == NULL)
        return ZRO_OK;
    for (size_t g = 0; g < s->n_groups; g++)
        s->work.momentum[g] = s->args.one_cycle.base_momentum;
    return write_values(s);
}

static zro_status start(zro_schedule *s)
{
    zro__fpmode mode;
    zro_status st = find_momentum(s);

    if (st == ZRO_OK)
        st = read_values(s);
    if (st == ZRO_OK)
        st = try_momentum(s);
    if (st != ZRO_OK)
        return st;
    zro__fpmode_enter(&mode);
    find_base(s);
    begin(s, &s->work);
    zro__fpmode_leave(&mode);
    st = write_values(s);
    for (size_t g = 0; g < s->n_groups && st == ZRO_OK && s->args.kind != ZRO__SCHEDULE_PLATEAU; g++)
        *zro__optim_first_lr(s->optim, g) = s->base[g];
    return st;
}

static zro_status create(zro_optim *optim, const zro__schedule_args *args, zro_lr_fn fn, void *user, zro_schedule **out)
{
    const char *name = zro__schedule_name(args->kind);
    zro_schedule *s;
    zro_status st;

    if (out == NULL)
        return zro__fail(ZRO_ERR_INVALID, "schedule_%s: out is NULL", name);
    *out = NULL;
    if (optim == NULL)
        return zro__fail(ZRO_ERR_INVALID, "schedule_%s: the optimizer is NULL", name);
    st = zro__schedule_check(args);
    if (st == ZRO_OK)
        st = make(optim, args, zro_optim_groups(optim), 0, &s);
    if (st != ZRO_OK)
        return st;
    s->fn = fn;
    s->user = user;
    st = start(s);
    if (st != ZRO_OK)
        zro_schedule_destroy(s);
    else
        *out = s;
    return st;
}

zro_status zro_schedule_step_lr(zro_optim *optim, uint64_t step_size, double gamma, zro_schedule **out)
{
    zro__schedule_args args = { .kind = ZRO__SCHEDULE_STEP_LR, .step_size = step_size, .gamma = gamma };

    return create(optim, &args, NULL, NULL, out);
}

zro_status zro_schedule_multi_step(zro_optim *optim, const uint64_t *milestones, size_t n, double gamma, zro_schedule **out)
{
    zro__schedule_args args = { .kind = ZRO__SCHEDULE_MULTI_STEP, .milestones = milestones, .n_milestones = n, .gamma = gamma };

    return create(optim, &args, NULL, NULL, out);
}

zro_status zro_schedule_exponential(zro_optim *optim, double gamma, zro_schedule **out)
{
    zro__schedule_args args = { .kind = ZRO__SCHEDULE_EXPONENTIAL, .gamma = gamma };

    return create(optim, &args, NULL, NULL, out);
}

zro_status zro_schedule_polynomial(zro_optim *optim, uint64_t total_iters, double power, zro_schedule **out)
{
    zro__schedule_args args = { .kind = ZRO__SCHEDULE_POLYNOMIAL, .total_iters = total_iters, .power = power };

    return create(optim, &args, NULL, NULL, out);
}

zro_status zro_schedule_cosine(zro_optim *optim, uint64_t t_max, double eta_min, zro_schedule **out)
{
    zro__schedule_args args = { .kind = ZRO__SCHEDULE_COSINE, .t_max = t_max, .eta_min = eta_min };

    return create(optim, &args, NULL, NULL, out);
}

zro_status zro_schedule_cosine_restarts(zro_optim *optim, uint64_t t_0, uint64_t t_mult, double eta_min, zro_schedule **out)
{
    zro__schedule_args args = { .kind = ZRO__SCHEDULE_COSINE_RESTARTS, .t_0 = t_0, .t_mult = t_mult, .eta_min = eta_min };

    return create(optim, &args, NULL, NULL, out);
}

zro_status zro_schedule_linear(zro_optim *optim, double start_factor, double end_factor, uint64_t total_iters,
                               zro_schedule **out)
{
    zro__schedule_args args = {
        .kind = ZRO__SCHEDULE_LINEAR, .start_factor = start_factor, .end_factor = end_factor, .total_iters = total_iters
    };

    return create(optim, &args, NULL, NULL, out);
}

zro_status zro_schedule_constant(zro_optim *optim, double factor, uint64_t total_iters, zro_schedule **out)
{
    zro__schedule_args args = { .kind = ZRO__SCHEDULE_CONSTANT, .factor = factor, .total_iters = total_iters };

    return create(optim, &args, NULL, NULL, out);
}

zro_status zro_schedule_one_cycle(zro_optim *optim, const zro_one_cycle_config *config, zro_schedule **out)
{
    zro__schedule_args args = { .kind = ZRO__SCHEDULE_ONE_CYCLE, .one_cycle = one_cycle_defaults };
    zro_status st =
        zro__config_take("zro_one_cycle_config", config, offsetof(zro_one_cycle_config, final_div_factor) + sizeof(double),
                         &args.one_cycle, sizeof args.one_cycle);

    if (out != NULL)
        *out = NULL;
    return st != ZRO_OK ? st : create(optim, &args, NULL, NULL, out);
}

zro_status zro_schedule_plateau(zro_optim *optim, const zro_plateau_config *config, zro_schedule **out)
{
    zro__schedule_args args = { .kind = ZRO__SCHEDULE_PLATEAU, .plateau = plateau_defaults };
    zro_status st = zro__config_take("zro_plateau_config", config, offsetof(zro_plateau_config, eps) + sizeof(double),
                                     &args.plateau, sizeof args.plateau);

    if (out != NULL)
        *out = NULL;
    return st != ZRO_OK ? st : create(optim, &args, NULL, NULL, out);
}

zro_status zro_schedule_lambda(zro_optim *optim, zro_lr_fn fn, void *user, zro_schedule **out)
{
    zro__schedule_args args = { .kind = ZRO__SCHEDULE_LAMBDA };

    if (out != NULL)
        *out = NULL;
    if (fn == NULL)
        return zro__fail(ZRO_ERR_INVALID, "schedule_lambda: fn is NULL");
    return create(optim, &args, fn, user, out);
}

/* ---- chained and sequential ---- */

/* The place of the first entry that is schedules[i]. */
static size_t first_place(zro_schedule *const *schedules, size_t i)
{
    size_t at = 0;

    while (schedules[at] != schedules[i])
        at++;
    return at;
}

static zro_status check_part(const char *name, zro_schedule *const *schedules, size_t i)
{
    const zro_schedule *s = schedules[i];
    size_t at = first_place(schedules, i);

    if (s == NULL)
        return zro__fail(ZRO_ERR_INVALID, "schedule_%s: schedules[%zu] is NULL", name, i);
    if (at != i)
        return zro__fail(ZRO_ERR_INVALID, "schedule_%s: schedules[%zu] is schedules[%zu] again", name, i, at);
    if (s->owner != NULL)
        return zro__fail(ZRO_ERR_INVALID, "schedule_%s: schedules[%zu] has been taken over by another schedule", name, i);
    if (s->args.kind == ZRO__SCHEDULE_PLATEAU)
        return zro__fail(ZRO_ERR_INVALID, "schedule_%s: schedules[%zu] is a plateau, which needs a metric", name, i);
    if (s->optim != schedules[0]->optim)
        return zro__fail(ZRO_ERR_INVALID, "schedule_%s: schedules[%zu] has another optimizer than schedules[0]", name, i);
    return ZRO_OK;
}

static zro_status check_parts(const zro__schedule_args *args, zro_schedule *const *schedules, size_t n)
{
    const char *name = zro__schedule_name(args->kind);
    zro_status st = ZRO_OK;

    if (schedules == NULL || n == 0)
        return zro__fail(ZRO_ERR_INVALID, "schedule_%s: there are no schedules", name);
    for (size_t i = 0; i < n && st == ZRO_OK; i++)
        st = check_part(name, schedules, i);
    return st != ZRO_OK ? st : zro__schedule_check(args);
}

/* Each once, and none that somebody else has: all that are ours are linked before the first is destroyed, with its parts. */
static void drop(zro_schedule *const *schedules, size_t n)
{
    zro_schedule *list = NULL;

    for (size_t i = 0; schedules != NULL && i < n; i++) {
        zro_schedule *s = schedules[i];

        if (s == NULL || s->owner != NULL)
            continue;
        s->owner = s;
        s->next = list;
        list = s;
    }
    while (list != NULL) {
        zro_schedule *s = list;

        list = s->next;
        s->owner = NULL;
        zro_schedule_destroy(s);
    }
}

/* What the parts did to lr when they were made is undone; then the one that runs begins. */
static zro_status start_sequence(zro_schedule *s)
{
    zro__fpmode mode;
    zro_status st = read_values(s);

    if (st != ZRO_OK)
        return st;
    for (size_t g = 0; g < s->n_groups; g++)
        s->work.lr[g] = *zro__optim_first_lr(s->optim, g);
    zro__fpmode_enter(&mode);
    begin(s, &s->work);
    zro__fpmode_leave(&mode);
    return write_values(s);
}

static zro_status take_over(const zro__schedule_args *args, zro_schedule *const *schedules, size_t n, zro_schedule **out)
{
    zro_schedule *s;
    size_t n_groups = 0;
    zro_status st;

    for (size_t i = 0; i < n; i++)
        n_groups = schedules[i]->n_groups > n_groups ? schedules[i]->n_groups : n_groups;
    st = make(schedules[0]->optim, args, n_groups, n, &s);
    if (st != ZRO_OK) {
        drop(schedules, n);
        return st;
    }
    s->n_parts = n;
    for (size_t i = 0; i < n; i++) {
        s->parts[i] = schedules[i];
        s->parts[i]->owner = s;
        if (s->parts[i]->momentum != NULL)
            s->momentum = s->parts[i]->momentum;
    }
    if (args->kind == ZRO__SCHEDULE_SEQUENTIAL)
        st = start_sequence(s);
    if (st != ZRO_OK)
        zro_schedule_destroy(s);
    else
        *out = s;
    return st;
}

/* `out` may be a place of the list: nothing is written there before all is read. */
static zro_status combine(const zro__schedule_args *args, zro_schedule *const *schedules, size_t n, zro_schedule **out)
{
    zro_schedule *s = NULL;
    zro_status st = check_parts(args, schedules, n);

    if (st == ZRO_OK && out == NULL)
        st = zro__fail(ZRO_ERR_INVALID, "schedule_%s: out is NULL", zro__schedule_name(args->kind));
    if (st == ZRO_OK)
        st = take_over(args, schedules, n, &s);
    else
        drop(schedules, n);
    if (out != NULL)
        *out = s;
    return st;
}

zro_status zro_schedule_chained(zro_schedule *const *schedules, size_t n, zro_schedule **out)
{
    zro__schedule_args args = { .kind = ZRO__SCHEDULE_CHAINED };

    return combine(&args, schedules, n, out);
}

zro_status zro_schedule_sequential(zro_schedule *const *schedules, size_t n, const uint64_t *milestones, zro_schedule **out)
{
    zro__schedule_args args = { .kind = ZRO__SCHEDULE_SEQUENTIAL, .milestones = milestones, .n_milestones = n > 0 ? n - 1 : 0 };

    return combine(&args, schedules, n, out);
}
