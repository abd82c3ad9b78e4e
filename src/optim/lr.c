/* Learning-rate schedules as numbers: see lr.h.  Operations are in PyTorch's order, so that results differ by no more
 * than the C library's cos and pow do.
 *
 * Where PyTorch's arithmetic breaks down at a border (a division by 0, a negative lr) the nearest sensible number is taken:
 * factors that rounding makes negative are 0, phases of length 0 are over, and what one_cycle leaves behind can be set. */
#include "optim/lr.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/status.h"

static const double pi = 3.14159265358979323846;

const char *zro__schedule_name(zro__schedule_kind kind)
{
    static const char *const names[] = {
        [ZRO__SCHEDULE_STEP_LR] = "step_lr",         [ZRO__SCHEDULE_MULTI_STEP] = "multi_step",
        [ZRO__SCHEDULE_EXPONENTIAL] = "exponential", [ZRO__SCHEDULE_POLYNOMIAL] = "polynomial",
        [ZRO__SCHEDULE_COSINE] = "cosine",           [ZRO__SCHEDULE_COSINE_RESTARTS] = "cosine_restarts",
        [ZRO__SCHEDULE_LINEAR] = "linear",           [ZRO__SCHEDULE_CONSTANT] = "constant",
        [ZRO__SCHEDULE_ONE_CYCLE] = "one_cycle",     [ZRO__SCHEDULE_PLATEAU] = "plateau",
        [ZRO__SCHEDULE_LAMBDA] = "lambda",           [ZRO__SCHEDULE_CHAINED] = "chained",
        [ZRO__SCHEDULE_SEQUENTIAL] = "sequential",
    };

    return names[kind];
}

static zro_status check_milestones(const zro__schedule_args *a)
{
    const char *name = zro__schedule_name(a->kind);

    if (a->milestones == NULL && a->n_milestones > 0)
        return zro__fail(ZRO_ERR_INVALID, "schedule_%s: milestones is NULL", name);
    for (size_t i = 1; i < a->n_milestones; i++)
        if (a->milestones[i] < a->milestones[i - 1])
            return zro__fail(ZRO_ERR_INVALID,
                             "schedule_%s: milestones[%zu] = %" PRIu64 ", must be at least the one before it, %" PRIu64, name,
                             i, a->milestones[i], a->milestones[i - 1]);
    return ZRO_OK;
}

int zro__schedule_argument(const zro__schedule_args *a, size_t i, zro__bound *out)
{
    const zro_one_cycle_config *o = &a->one_cycle;
    const zro_plateau_config *p = &a->plateau;
    const double any = HUGE_VAL, max = DBL_MAX;
    const struct {
        zro__schedule_kind kind;
        zro__bound bound;
    } rows[] = {
        { ZRO__SCHEDULE_STEP_LR, { "step_size", (double)a->step_size, 1, any, 0 } },
        { ZRO__SCHEDULE_STEP_LR, { "gamma", a->gamma, 0, max, 0 } },
        { ZRO__SCHEDULE_MULTI_STEP, { "gamma", a->gamma, 0, max, 0 } },
        { ZRO__SCHEDULE_EXPONENTIAL, { "gamma", a->gamma, 0, max, 0 } },
        { ZRO__SCHEDULE_POLYNOMIAL, { "total_iters", (double)a->total_iters, 0, any, 0 } },
        { ZRO__SCHEDULE_POLYNOMIAL, { "power", a->power, 0, max, 0 } },
        { ZRO__SCHEDULE_COSINE, { "t_max", (double)a->t_max, 1, any, 0 } },
        { ZRO__SCHEDULE_COSINE, { "eta_min", a->eta_min, 0, max, 0 } },
        { ZRO__SCHEDULE_COSINE_RESTARTS, { "t_0", (double)a->t_0, 1, any, 0 } },
        { ZRO__SCHEDULE_COSINE_RESTARTS, { "t_mult", (double)a->t_mult, 1, any, 0 } },
        { ZRO__SCHEDULE_COSINE_RESTARTS, { "eta_min", a->eta_min, 0, max, 0 } },
        { ZRO__SCHEDULE_LINEAR, { "start_factor", a->start_factor, 0, 1, ZRO_OPEN_LOW } },
        { ZRO__SCHEDULE_LINEAR, { "end_factor", a->end_factor, 0, 1, 0 } },
        { ZRO__SCHEDULE_LINEAR, { "total_iters", (double)a->total_iters, 0, any, 0 } },
        { ZRO__SCHEDULE_CONSTANT, { "factor", a->factor, 0, 1, 0 } },
        { ZRO__SCHEDULE_CONSTANT, { "total_iters", (double)a->total_iters, 0, any, 0 } },
        { ZRO__SCHEDULE_ONE_CYCLE, { "max_lr", o->max_lr, 0, max, ZRO_OPEN_LOW } },
        { ZRO__SCHEDULE_ONE_CYCLE, { "total_steps", (double)o->total_steps, 1, any, 0 } },
        { ZRO__SCHEDULE_ONE_CYCLE, { "pct_start", o->pct_start, 0, 1, 0 } },
        { ZRO__SCHEDULE_ONE_CYCLE, { "linear", o->linear, 0, 1, ZRO__SWITCH } },
        { ZRO__SCHEDULE_ONE_CYCLE, { "three_phase", o->three_phase, 0, 1, ZRO__SWITCH } },
        { ZRO__SCHEDULE_ONE_CYCLE, { "cycle_momentum", o->cycle_momentum, 0, 1, ZRO__SWITCH } },
        { ZRO__SCHEDULE_ONE_CYCLE, { "base_momentum", o->base_momentum, 0, max, 0 } },
        { ZRO__SCHEDULE_ONE_CYCLE, { "max_momentum", o->max_momentum, 0, max, 0 } },
        { ZRO__SCHEDULE_ONE_CYCLE, { "div_factor", o->div_factor, 0, max, ZRO_OPEN_LOW } },
        { ZRO__SCHEDULE_ONE_CYCLE, { "final_div_factor", o->final_div_factor, 0, max, ZRO_OPEN_LOW } },
        { ZRO__SCHEDULE_PLATEAU, { "maximize", p->maximize, 0, 1, ZRO__SWITCH } },
        { ZRO__SCHEDULE_PLATEAU, { "factor", p->factor, 0, 1, ZRO_OPEN_LOW | ZRO_OPEN_HIGH } },
        { ZRO__SCHEDULE_PLATEAU, { "patience", (double)p->patience, 0, any, 0 } },
        { ZRO__SCHEDULE_PLATEAU, { "threshold", p->threshold, -max, max, 0 } },
        { ZRO__SCHEDULE_PLATEAU, { "threshold_absolute", p->threshold_absolute, 0, 1, ZRO__SWITCH } },
        { ZRO__SCHEDULE_PLATEAU, { "cooldown", (double)p->cooldown, 0, any, 0 } },
        { ZRO__SCHEDULE_PLATEAU, { "min_lr", p->min_lr, 0, max, 0 } },
        { ZRO__SCHEDULE_PLATEAU, { "eps", p->eps, 0, max, 0 } },
    };

    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        if (rows[k].kind == a->kind && i-- == 0) {
            *out = rows[k].bound;
            return 1;
        }
    return 0;
}

zro_status zro__schedule_check(const zro__schedule_args *args)
{
    zro__schedule_args a = *args;
    zro__bound bound;
    char what[40];
    zro_status st = check_milestones(&a);

    if (!a.one_cycle.cycle_momentum) /* then they mean nothing */
        a.one_cycle.base_momentum = a.one_cycle.max_momentum = 0;
    snprintf(what, sizeof what, "schedule_%s", zro__schedule_name(a.kind));
    for (size_t i = 0; st == ZRO_OK && zro__schedule_argument(&a, i, &bound); i++)
        st = zro__bounds_check(what, &bound, 1);
    return st;
}

size_t zro__schedule_reached(const zro__schedule_args *a, uint64_t t)
{
    size_t n = 0;

    while (n < a->n_milestones && a->milestones[n] <= t)
        n++;
    return n;
}

void zro__schedule_begin(const zro__schedule_args *a, zro__schedule_state *s)
{
    *s = (zro__schedule_state){ .t_i = a->t_0, .best = a->plateau.maximize ? -INFINITY : INFINITY };
}

static int is_better(const zro_plateau_config *c, double metric, double best)
{
    if (c->maximize)
        return metric > (c->threshold_absolute ? best + c->threshold : best * (c->threshold + 1));
    return metric < (c->threshold_absolute ? best - c->threshold : best * (1 - c->threshold));
}

static void note_metric(const zro_plateau_config *c, zro__schedule_state *s, double metric)
{
    if (is_better(c, metric, s->best)) {
        s->best = metric;
        s->bad = 0;
    } else {
        s->bad++;
    }
    if (s->cooldown > 0) {
        s->cooldown--;
        s->bad = 0;
    }
    s->reduce = s->bad > c->patience;
    if (s->reduce) {
        s->cooldown = c->cooldown;
        s->bad = 0;
    }
}

zro_status zro__schedule_next(const zro__schedule_args *a, zro__schedule_state *s, double metric)
{
    if (a->kind == ZRO__SCHEDULE_ONE_CYCLE && s->t >= a->one_cycle.total_steps)
        return zro__fail(ZRO_ERR_STATE, "schedule_one_cycle: there is no step after total_steps = %" PRIu64,
                         a->one_cycle.total_steps);
    s->t++;
    if (a->kind == ZRO__SCHEDULE_PLATEAU)
        note_metric(&a->plateau, s, metric);
    if (a->kind == ZRO__SCHEDULE_COSINE_RESTARTS && ++s->t_cur >= s->t_i) {
        s->t_cur = 0;
        s->t_i = s->t_i <= UINT64_MAX / a->t_mult ? s->t_i * a->t_mult : UINT64_MAX;
    }
    return ZRO_OK;
}

static double multi_step(const zro__schedule_args *a, uint64_t t, double lr)
{
    size_t here = zro__schedule_reached(a, t) - (t > 0 ? zro__schedule_reached(a, t - 1) : 0);

    return here > 0 ? lr * pow(a->gamma, (double)here) : lr;
}

/* Whether a factor per step counts: not where a schedule begins, unless it was stepped to get there. */
static int is_step(const zro__schedule_state *s)
{
    return s->t > 0 || s->start == ZRO__START_STEPPED;
}

static double polynomial(const zro__schedule_args *a, const zro__schedule_state *s, double lr)
{
    double total = (double)a->total_iters, t = (double)s->t;

    if (!is_step(s) || s->t > a->total_iters || a->total_iters == 0)
        return lr;
    return lr * pow((1 - t / total) / (1 - (t - 1) / total), a->power);
}

/* The lowest point cannot be left by a factor: the step after it adds what the first one took away. */
static double cosine(const zro__schedule_args *a, const zro__schedule_state *s, double base, double lr)
{
    double t = (double)s->t, t_max = (double)a->t_max, eta_min = a->eta_min;
    int lowest = s->t > 0 ? (s->t - 1) % a->t_max == 0 && (s->t - 1) / a->t_max % 2 == 1 : a->t_max == 1;

    if (!is_step(s))
        return lr;
    if (lowest)
        return lr + (base - eta_min) * (1 - cos(pi / t_max)) / 2;
    return (1 + cos(pi * t / t_max)) / (1 + cos(pi * (t - 1) / t_max)) * (lr - eta_min) + eta_min;
}

static double linear(const zro__schedule_args *a, uint64_t t, double lr)
{
    double change = a->end_factor - a->start_factor, factor;

    if (t == 0)
        return lr * a->start_factor;
    if (t > a->total_iters)
        return lr;
    factor = 1 + change / ((double)a->total_iters * a->start_factor + (double)(t - 1) * change);
    return lr * (factor > 0 ? factor : 0);
}

/* With a factor of 0 the present lr is 0, and only the first lr is left to return to.  If it is made with total_iters 0 its end
 * has passed, and lr stays; if its turn in a sequence comes, it is over. */
static double constant(const zro__schedule_args *a, const zro__schedule_state *s, double base, double lr)
{
    if (s->t == 0)
        return s->start == ZRO__START_ANEW && a->total_iters == 0 ? lr : lr * a->factor;
    if (s->t != a->total_iters)
        return lr;
    return a->factor > 0 ? lr * (1 / a->factor) : base;
}

/* One cycle: phase i goes from points[i] to points[i + 1]. */
static double one_cycle(const zro_one_cycle_config *c, uint64_t t, const double *points)
{
    double total = (double)c->total_steps, begin = 0, ends[3], share;
    int last = c->three_phase ? 2 : 1, i = 0;

    ends[0] = c->pct_start * total - 1;
    ends[1] = 2 * c->pct_start * total - 2;
    ends[last] = total - 1;
    while (i < last && (double)t > ends[i])
        begin = ends[i++];
    share = ends[i] != begin ? ((double)t - begin) / (ends[i] - begin) : 1;
    if (c->linear)
        return (points[i + 1] - points[i]) * share + points[i];
    return points[i + 1] + (points[i] - points[i + 1]) / 2 * (cos(pi * share) + 1);
}

/* The step after the last one overshoots the end, and a linear end by so much that lr may be below 0: 0 is taken then. */
static double one_cycle_lr(const zro_one_cycle_config *c, uint64_t t)
{
    double first = c->max_lr / c->div_factor, end = first / c->final_div_factor, lr;
    double points[] = { first, c->max_lr, c->three_phase ? first : end, end };

    lr = one_cycle(c, t, points);
    return lr > 0 ? lr : 0;
}

double zro__schedule_momentum(const zro__schedule_args *a, const zro__schedule_state *s)
{
    const zro_one_cycle_config *c = &a->one_cycle;
    double points[] = { c->max_momentum, c->base_momentum, c->max_momentum, c->max_momentum };
    double momentum = one_cycle(c, s->t, points);

    return s->t < c->total_steps || (momentum >= 0 && momentum < 1) ? momentum : c->max_momentum;
}

double zro__schedule_lr(const zro__schedule_args *a, const zro__schedule_state *s, double base, double lr)
{
    double reduced;

    switch (a->kind) {
    case ZRO__SCHEDULE_STEP_LR:
        return s->t > 0 && s->t % a->step_size == 0 ? lr * a->gamma : lr;
    case ZRO__SCHEDULE_MULTI_STEP:
        return multi_step(a, s->t, lr);
    case ZRO__SCHEDULE_EXPONENTIAL:
        return is_step(s) ? lr * a->gamma : lr;
    case ZRO__SCHEDULE_POLYNOMIAL:
        return polynomial(a, s, lr);
    case ZRO__SCHEDULE_COSINE:
        return cosine(a, s, base, lr);
    case ZRO__SCHEDULE_COSINE_RESTARTS:
        return a->eta_min + (base - a->eta_min) * (1 + cos(pi * (double)s->t_cur / (double)s->t_i)) / 2;
    case ZRO__SCHEDULE_LINEAR:
        return linear(a, s->t, lr);
    case ZRO__SCHEDULE_CONSTANT:
        return constant(a, s, base, lr);
    case ZRO__SCHEDULE_ONE_CYCLE:
        return one_cycle_lr(&a->one_cycle, s->t);
    case ZRO__SCHEDULE_PLATEAU:
        reduced = fmax(lr * a->plateau.factor, a->plateau.min_lr);
        return s->reduce && lr - reduced > a->plateau.eps ? reduced : lr;
    case ZRO__SCHEDULE_LAMBDA:
    case ZRO__SCHEDULE_CHAINED:
    case ZRO__SCHEDULE_SEQUENTIAL:
        break;
    }
    return lr;
}
