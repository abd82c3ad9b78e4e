/* Schedules as handles on an optimizer.  The numbers are optim/lr.h's; here is where they come from and go to.
 *
 * A tree: chained and sequential ones have children, the others are leaves.  A leaf is for the groups that existed when it was
 * made.  The first lr of a group is kept by the optimizer, because all schedules made on it, also after others have changed lr,
 * begin from the same.
 *
 * A step is taken as a whole or not at all.  The handle that is stepped, the root, reads the groups' values; the tree computes
 * on its copy; then they are set.  If anything fails (a function that returns NaN, a value that the rule refuses), values and
 * states go back to what they were.
 *
 * A schedule inside another one is stepped and destroyed by that one, its owner, and cannot be taken over again. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/cpu.h"
#include "base/settings.h"
#include "base/status.h"
#include "optim/values.h"
#include "zero/optim.h"
#include "zero/schedule.h"

typedef zro__schedule_values values;

/* Arithmetic belongs between a change of the floating-point mode and the next: see cpu.h. */
#define NOINLINE __attribute__((noinline))

ZRO__DEFINE_INIT(zro_one_cycle_config, ZRO_ONE_CYCLE_CONFIG_INIT)
ZRO__DEFINE_INIT(zro_plateau_config, ZRO_PLATEAU_CONFIG_INIT)

/* ---- values ---- */

/* Where the optimizer keeps a group's learning rate as it was before the first schedule; NaN before that. */
static double *first_lr(const zro_schedule *s, size_t group)
{
    return &zro__optim_shard(s->optim)->groups[group]->first_lr;
}

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

/* Sets the values of all groups.  On failure all groups have their old values again, which the rule accepted before. */
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

/* Notes the state of a schedule and its children. */
static void note_state(zro_schedule *s)
{
    s->before = s->now;
    for (size_t i = 0; i < s->n_children; i++)
        note_state(s->children[i]);
}

static void restore_state(zro_schedule *s)
{
    s->now = s->before;
    for (size_t i = 0; i < s->n_children; i++)
        restore_state(s->children[i]);
}

/* ---- steps ---- */

/* Computes the values of a leaf in its present state. */
static void apply(const zro_schedule *s, values *v)
{
    for (size_t g = 0; g < s->n_groups; g++) {
        if (s->args.kind == ZRO__SCHEDULE_LAMBDA)
            v->lr[g] = s->base[g] * s->args.fn(s->args.user, g, s->now.t);
        else
            v->lr[g] = zro__schedule_lr(&s->args, &s->now, s->base[g], v->lr[g]);
        if (s->momentum != NULL)
            v->momentum[g] = zro__schedule_momentum(&s->args, &s->now);
    }
}

static void begin_anew(zro_schedule *s, values *v);

/* The part of a sequence that is in charge when the sequence begins.  PyTorch steps a combination to get it there: its leaves
 * come to t = 0 by a step, and a sequence in it, whose count of steps is not taken back before, is one step ahead. */
static NOINLINE void begin_part(const zro_schedule *s, zro__schedule_start start, values *v);

/* Brings a schedule to its beginning, from the present lr. */
static NOINLINE void begin(zro_schedule *s, zro__schedule_start start, values *v)
{
    const uint64_t ahead = start == ZRO__START_STEPPED && s->args.kind == ZRO__SCHEDULE_SEQUENTIAL ? s->now.t + 1 : 0;

    zro__schedule_begin(&s->args, &s->now);
    s->now.start = start;
    s->now.t = ahead;
    if (s->args.kind == ZRO__SCHEDULE_SEQUENTIAL)
        begin_part(s, start, v);
    else if (s->n_children == 0)
        apply(s, v);
    else
        for (size_t i = 0; i < s->n_children; i++)
            begin(s->children[i], start, v);
}

static NOINLINE void begin_part(const zro_schedule *s, zro__schedule_start start, values *v)
{
    const size_t i = zro__schedule_reached(&s->args, s->now.t);
    zro_schedule *part = s->children[i];

    if (start == ZRO__START_STEPPED && i > 0 && s->args.milestones[i - 1] == s->now.t)
        begin_anew(part, v);
    else
        begin(part, start == ZRO__START_MADE && part->n_children > 0 ? ZRO__START_STEPPED : start, v);
}

/* Begins when its turn in a sequence comes, from the first lr.  PyTorch cannot do this with combinations. */
static void begin_anew(zro_schedule *s, values *v)
{
    const zro_schedule *leaf = s;

    while (leaf->n_children > 0)
        leaf = leaf->children[0];
    memcpy(v->lr, leaf->base, leaf->n_groups * sizeof *v->lr);
    begin(s, ZRO__START_ANEW, v);
}

static zro_status begin_and_write(zro_schedule *s)
{
    zro__fpmode mode;

    zro__fpmode_enter(&mode);
    begin(s, ZRO__START_MADE, &s->work);
    zro__fpmode_leave(&mode);
    return write_values(s);
}

static NOINLINE zro_status advance(zro_schedule *s, double metric, values *v)
{
    zro_status st = zro__schedule_next(&s->args, &s->now, metric);

    if (st == ZRO_OK && s->args.kind == ZRO__SCHEDULE_SEQUENTIAL) {
        size_t i = zro__schedule_reached(&s->args, s->now.t);

        if (i == 0 || s->args.milestones[i - 1] != s->now.t)
            return advance(s->children[i], metric, v);
        begin_anew(s->children[i], v);
        return ZRO_OK;
    }
    if (st == ZRO_OK && s->n_children == 0)
        apply(s, v);
    for (size_t i = 0; i < s->n_children && st == ZRO_OK; i++)
        st = advance(s->children[i], metric, v);
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
    if (s->n_loads != s->optim->n_loads)
        zro__schedule_say_old(s);
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
    for (size_t i = 0; i < s->n_children; i++) {
        s->children[i]->owner = NULL;
        zro_schedule_destroy(s->children[i]);
    }
    arena = s->arena;
    optim = s->optim;
    for (zro_schedule **at = &optim->schedules; *at != NULL; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            break;
        }
    zro__arena_free(&arena);
    zro__optim_release(optim); /* last: the account of the arena is the optimizer's */
}

/* A handle with all its arrays, for a number of groups and of children. */
static zro_status make(zro_optim *optim, const zro__schedule_args *args, size_t n_groups, size_t n_children, zro_schedule **out)
{
    zro__arena arena = { 0 };
    zro_schedule **children, *s;
    uint64_t *milestones;
    double *numbers;
    const zro__array arrays[] = { { &s, 1, sizeof *s },
                                  { &numbers, n_groups, 5 * sizeof *numbers },
                                  { &children, n_children, sizeof *children },
                                  { &milestones, args->n_milestones, sizeof *milestones } };
    zro_status st = zro__arena_arrays(&arena, optim->account, "a schedule", arrays, sizeof arrays / sizeof *arrays);

    if (st != ZRO_OK)
        return st;
    s->base = numbers;
    s->work = (values){ numbers + n_groups, numbers + 2 * n_groups };
    s->values_before = (values){ numbers + 3 * n_groups, numbers + 4 * n_groups };
    s->children = children;
    if (args->n_milestones > 0)
        memcpy(milestones, args->milestones, args->n_milestones * sizeof *milestones);
    s->arena = arena;
    s->args = *args;
    s->args.milestones = milestones;
    s->n_groups = n_groups;
    s->optim = optim;
    s->n_loads = optim->n_loads;
    s->next = optim->schedules;
    optim->schedules = s;
    zro__optim_retain(optim);
    *out = s;
    return ZRO_OK;
}

/* ---- leaves ---- */

static zro_status find_momentum(zro_schedule *s)
{
    static const char *const names[] = { "momentum", "beta1" };

    if (s->args.kind != ZRO__SCHEDULE_ONE_CYCLE || !s->args.one_cycle.cycle_momentum)
        return ZRO_OK;
    for (size_t i = 0; s->momentum == NULL && s->optim->rule != NULL && i < 2; i++)
        if (zro__values_find(s->optim->rule, names[i]) >= 0)
            s->momentum = names[i];
    if (s->momentum == NULL)
        return zro__fail(ZRO_ERR_INVALID,
                         "schedule_one_cycle: cycle_momentum = on, but the rule has neither momentum nor beta1");
    return ZRO_OK;
}

/* The lr that the groups began with: the present one if this is the first schedule; one_cycle computes its own. */
static NOINLINE void find_base(zro_schedule *s)
{
    for (size_t g = 0; g < s->n_groups; g++) {
        double first = *first_lr(s, g);

        s->base[g] = isnan(first) ? s->work.lr[g] : first;
        if (s->args.kind == ZRO__SCHEDULE_ONE_CYCLE)
            s->base[g] = s->args.one_cycle.max_lr / s->args.one_cycle.div_factor;
    }
}

/* one_cycle reaches its lowest momentum only later; setting it now tells early whether the rule accepts it. */
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
    zro__fpmode_leave(&mode);
    st = begin_and_write(s);
    for (size_t g = 0; g < s->n_groups && st == ZRO_OK && s->args.kind != ZRO__SCHEDULE_PLATEAU; g++)
        *first_lr(s, g) = s->base[g];
    return st;
}

/* Creates a leaf.  `st` is the result of the checks that were made already. */
static zro_status create(zro_optim *optim, zro_status st, const zro__schedule_args *args, zro_schedule **out)
{
    const char *name = zro__schedule_name(args->kind);
    zro_schedule *s;

    if (out == NULL)
        return zro__fail(ZRO_ERR_INVALID, "schedule_%s: out is NULL", name);
    *out = NULL;
    if (st == ZRO_OK && optim == NULL)
        st = zro__fail(ZRO_ERR_INVALID, "schedule_%s: the optimizer is NULL", name);
    if (st == ZRO_OK)
        st = zro__schedule_check(args);
    if (st == ZRO_OK)
        st = make(optim, args, zro_optim_groups(optim), 0, &s);
    if (st != ZRO_OK)
        return st;
    st = start(s);
    if (st != ZRO_OK)
        zro_schedule_destroy(s);
    else
        *out = s;
    return st;
}

zro_status zro_schedule_step_lr(zro_optim *optim, uint64_t step_size, double gamma, zro_schedule **out)
{
    return create(optim, ZRO_OK, &(zro__schedule_args){ ZRO__SCHEDULE_STEP_LR, .step_size = step_size, .gamma = gamma }, out);
}

zro_status zro_schedule_multi_step(zro_optim *optim, const uint64_t *milestones, size_t n, double gamma, zro_schedule **out)
{
    const zro__schedule_args args = { ZRO__SCHEDULE_MULTI_STEP, .milestones = milestones, .n_milestones = n, .gamma = gamma };

    return create(optim, ZRO_OK, &args, out);
}

zro_status zro_schedule_exponential(zro_optim *optim, double gamma, zro_schedule **out)
{
    return create(optim, ZRO_OK, &(zro__schedule_args){ ZRO__SCHEDULE_EXPONENTIAL, .gamma = gamma }, out);
}

zro_status zro_schedule_polynomial(zro_optim *optim, uint64_t total_iters, double power, zro_schedule **out)
{
    return create(optim, ZRO_OK, &(zro__schedule_args){ ZRO__SCHEDULE_POLYNOMIAL, .total_iters = total_iters, .power = power },
                  out);
}

zro_status zro_schedule_cosine(zro_optim *optim, uint64_t t_max, double eta_min, zro_schedule **out)
{
    return create(optim, ZRO_OK, &(zro__schedule_args){ ZRO__SCHEDULE_COSINE, .t_max = t_max, .eta_min = eta_min }, out);
}

zro_status zro_schedule_cosine_restarts(zro_optim *optim, uint64_t t_0, uint64_t t_mult, double eta_min, zro_schedule **out)
{
    const zro__schedule_args args = { ZRO__SCHEDULE_COSINE_RESTARTS, .t_0 = t_0, .t_mult = t_mult, .eta_min = eta_min };

    return create(optim, ZRO_OK, &args, out);
}

zro_status zro_schedule_linear(zro_optim *optim, double start_factor, double end_factor, uint64_t total_iters,
                               zro_schedule **out)
{
    const zro__schedule_args args = { ZRO__SCHEDULE_LINEAR, .start_factor = start_factor, .end_factor = end_factor,
                                      .total_iters = total_iters };

    return create(optim, ZRO_OK, &args, out);
}

zro_status zro_schedule_constant(zro_optim *optim, double factor, uint64_t total_iters, zro_schedule **out)
{
    return create(optim, ZRO_OK, &(zro__schedule_args){ ZRO__SCHEDULE_CONSTANT, .factor = factor, .total_iters = total_iters },
                  out);
}

zro_status zro_schedule_one_cycle(zro_optim *optim, const zro_one_cycle_config *config, zro_schedule **out)
{
    zro__schedule_args args = { ZRO__SCHEDULE_ONE_CYCLE, .one_cycle = ZRO_ONE_CYCLE_CONFIG_INIT };
    zro_status st =
        zro__config_take("zro_one_cycle_config", config, offsetof(zro_one_cycle_config, final_div_factor) + sizeof(double),
                         &args.one_cycle, sizeof args.one_cycle);

    return create(optim, st, &args, out);
}

zro_status zro_schedule_plateau(zro_optim *optim, const zro_plateau_config *config, zro_schedule **out)
{
    zro__schedule_args args = { ZRO__SCHEDULE_PLATEAU, .plateau = ZRO_PLATEAU_CONFIG_INIT };
    zro_status st = zro__config_take("zro_plateau_config", config, offsetof(zro_plateau_config, eps) + sizeof(double),
                                     &args.plateau, sizeof args.plateau);

    return create(optim, st, &args, out);
}

zro_status zro_schedule_lambda(zro_optim *optim, zro_lr_fn fn, void *user, zro_schedule **out)
{
    const zro__schedule_args args = { ZRO__SCHEDULE_LAMBDA, .fn = fn, .user = user };

    return create(optim, fn != NULL ? ZRO_OK : zro__fail(ZRO_ERR_INVALID, "schedule_lambda: fn is NULL"), &args, out);
}

/* ---- chained and sequential ---- */

static zro_status check_child(const char *name, zro_schedule *const *schedules, size_t i)
{
    const zro_schedule *s = schedules[i];
    size_t at = 0;

    while (schedules[at] != s)
        at++;
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

/* Destroys each schedule of a list once, and none that another schedule has taken over.  Marks them on the way to the end of the
 * list and destroys them on the way back: when `owner` is read all still exist, also one that is listed beside its owner. */
static void drop(zro_schedule *const *schedules, size_t n)
{
    zro_schedule *s = schedules != NULL && n > 0 ? schedules[0] : NULL;
    const int ours = s != NULL && s->owner == NULL;

    if (ours)
        s->owner = s;
    if (schedules != NULL && n > 1)
        drop(schedules + 1, n - 1);
    if (!ours)
        return;
    s->owner = NULL;
    zro_schedule_destroy(s);
}

/* What the children of a sequence did to lr when they were made is undone; then the one that is in charge begins. */
static zro_status adopt(zro_schedule *s, zro_schedule *const *schedules, size_t n)
{
    zro_status st;

    s->n_children = n;
    for (size_t i = 0; i < n; i++) {
        s->children[i] = schedules[i];
        s->children[i]->owner = s;
        if (s->children[i]->momentum != NULL)
            s->momentum = s->children[i]->momentum;
    }
    if (s->args.kind != ZRO__SCHEDULE_SEQUENTIAL)
        return ZRO_OK;
    st = read_values(s);
    for (size_t g = 0; st == ZRO_OK && g < s->n_groups; g++)
        s->work.lr[g] = *first_lr(s, g);
    return st == ZRO_OK ? begin_and_write(s) : st;
}

/* `out` may be an entry of the list: nothing is written there before all is read. */
static zro_status combine(const zro__schedule_args *args, zro_schedule *const *schedules, size_t n, zro_schedule **out)
{
    const char *name = zro__schedule_name(args->kind);
    zro_schedule *s = NULL;
    size_t n_groups = 0;
    zro_status st = ZRO_OK;

    if (schedules == NULL || n == 0)
        st = zro__fail(ZRO_ERR_INVALID, "schedule_%s: there are no schedules", name);
    for (size_t i = 0; st == ZRO_OK && i < n; i++) {
        st = check_child(name, schedules, i);
        if (st == ZRO_OK && schedules[i]->n_groups > n_groups)
            n_groups = schedules[i]->n_groups;
    }
    if (st == ZRO_OK)
        st = zro__schedule_check(args);
    if (st == ZRO_OK && out == NULL)
        st = zro__fail(ZRO_ERR_INVALID, "schedule_%s: out is NULL", name);
    if (st == ZRO_OK)
        st = make(schedules[0]->optim, args, n_groups, n, &s);
    if (st != ZRO_OK)
        drop(schedules, n);
    else
        st = adopt(s, schedules, n);
    if (st != ZRO_OK) {
        zro_schedule_destroy(s);
        s = NULL;
    }
    if (out != NULL)
        *out = s;
    return st;
}

zro_status zro_schedule_chained(zro_schedule *const *schedules, size_t n, zro_schedule **out)
{
    return combine(&(zro__schedule_args){ .kind = ZRO__SCHEDULE_CHAINED }, schedules, n, out);
}

zro_status zro_schedule_sequential(zro_schedule *const *schedules, size_t n, const uint64_t *milestones, zro_schedule **out)
{
    zro__schedule_args args = { ZRO__SCHEDULE_SEQUENTIAL, .milestones = milestones, .n_milestones = n > 0 ? n - 1 : 0 };

    return combine(&args, schedules, n, out);
}
