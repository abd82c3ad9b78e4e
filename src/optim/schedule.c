/* Learning-rate schedules as numbers: see schedule.h.  Operations are in PyTorch's order, so that results differ by no more
 * than the C library's cos and pow do.
 *
 * Where PyTorch's arithmetic breaks down at a border (a division by 0, a negative lr) the nearest sensible number is taken:
 * factors that rounding makes negative are 0, phases of length 0 are over, and what one_cycle leaves behind can be set. */
#include "optim/schedule.h"

#include <inttypes.h>
#include <math.h>

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

static zro_status need_count(const zro__schedule_args *a, const char *name, uint64_t count)
{
    if (count > 0)
        return ZRO_OK;
    return zro__fail(ZRO_ERR_INVALID, "schedule_%s: %s = 0, must be at least 1", zro__schedule_name(a->kind), name);
}

/* In [low, high], or with ( and ) between them; NaN is not. */
static zro_status need_real(const zro__schedule_args *a, const char *name, double x, char left, double low, double high,
                            char right)
{
    if ((x > low || (left == '[' && x == low)) && (x < high || (right == ']' && x == high)))
        return ZRO_OK;
    return zro__fail(ZRO_ERR_INVALID, "schedule_%s: %s = %g, must be in %c%g, %g%c", zro__schedule_name(a->kind), name, x, left,
                     low, high, right);
}

static zro_status need_switch(const zro__schedule_args *a, const char *name, zro_switch value)
{
    if (value == ZRO_ON || value == ZRO_OFF)
        return ZRO_OK;
    return zro__fail(ZRO_ERR_INVALID, "schedule_%s: %s = %d, must be on or off", zro__schedule_name(a->kind), name, (int)value);
}

static zro_status check_milestones(const zro__schedule_args *a)
{
    const char *name = zro__schedule_name(a->kind);

    if (a->milestones == NULL && a->n_milestones > 0)
        return zro__fail(ZRO_ERR_INVALID, "schedule_%s: milestones is NULL", name);
    for (size_t i = 1; i < a->n_milestones; i++)
        if (a->milestones[i] < a->milestones[i - 1])
            return zro__fail(ZRO_ERR_INVALID,
                             "schedule_%s: milestones[%zu] = %" PRIu64 " comes after %" PRIu64 ", must increase", name, i,
                             a->milestones[i], a->milestones[i - 1]);
    return ZRO_OK;
}

static zro_status check_one_cycle(const zro__schedule_args *a)
{
    const zro_one_cycle_config *c = &a->one_cycle;
    zro_status st = need_real(a, "max_lr", c->max_lr, '(', 0, INFINITY, ')');

    if (st == ZRO_OK)
        st = need_count(a, "total_steps", c->total_steps);
    if (st == ZRO_OK)
        st = need_real(a, "pct_start", c->pct_start, '[', 0, 1, ']');
    if (st == ZRO_OK)
        st = need_switch(a, "linear", c->linear);
    if (st == ZRO_OK)
        st = need_switch(a, "three_phase", c->three_phase);
    if (st == ZRO_OK)
        st = need_switch(a, "cycle_momentum", c->cycle_momentum);
    if (st == ZRO_OK && c->cycle_momentum)
        st = need_real(a, "base_momentum", c->base_momentum, '[', 0, INFINITY, ')');
    if (st == ZRO_OK && c->cycle_momentum)
        st = need_real(a, "max_momentum", c->max_momentum, '[', 0, INFINITY, ')');
    if (st == ZRO_OK)
        st = need_real(a, "div_factor", c->div_factor, '(', 0, INFINITY, ')');
    if (st == ZRO_OK)
        st = need_real(a, "final_div_factor", c->final_div_factor, '(', 0, INFINITY, ')');
    return st;
}

static zro_status check_plateau(const zro__schedule_args *a)
{
    const zro_plateau_config *c = &a->plateau;
    zro_status st = need_switch(a, "maximize", c->maximize);

    if (st == ZRO_OK)
        st = need_real(a, "factor", c->factor, '(', 0, 1, ')');
    if (st == ZRO_OK)
        st = need_real(a, "threshold", c->threshold, '(', -INFINITY, INFINITY, ')');
    if (st == ZRO_OK)
        st = need_switch(a, "threshold_absolute", c->threshold_absolute);
    if (st == ZRO_OK)
        st = need_real(a, "min_lr", c->min_lr, '[', 0, INFINITY, ')');
    if (st == ZRO_OK)
        st = need_real(a, "eps", c->eps, '[', 0, INFINITY, ')');
    return st;
}

static zro_status check_linear(const zro__schedule_args *a)
{
    zro_status st = need_real(a, "start_factor", a->start_factor, '(', 0, 1, ']');

    if (st == ZRO_OK)
        st = need_real(a, "end_factor", a->end_factor, '[', 0, 1, ']');
    return st;
}

static zro_status check_restarts(const zro__schedule_args *a)
{
    zro_status st = need_count(a, "t_0", a->t_0);

    if (st == ZRO_OK)
        st = need_count(a, "t_mult", a->t_mult);
    return st != ZRO_OK ? st : need_real(a, "eta_min", a->eta_min, '[', 0, INFINITY, ')');
}

zro_status zro__schedule_check(const zro__schedule_args *a)
{
    zro_status st = ZRO_OK;

    switch (a->kind) {
    case ZRO__SCHEDULE_STEP_LR:
        st = need_count(a, "step_size", a->step_size);
        return st != ZRO_OK ? st : need_real(a, "gamma", a->gamma, '[', 0, INFINITY, ')');
    case ZRO__SCHEDULE_MULTI_STEP:
        st = check_milestones(a);
        return st != ZRO_OK ? st : need_real(a, "gamma", a->gamma, '[', 0, INFINITY, ')');
    case ZRO__SCHEDULE_EXPONENTIAL:
        return need_real(a, "gamma", a->gamma, '[', 0, INFINITY, ')');
    case ZRO__SCHEDULE_POLYNOMIAL:
        return need_real(a, "power", a->power, '[', 0, INFINITY, ')');
    case ZRO__SCHEDULE_COSINE:
        st = need_count(a, "t_max", a->t_max);
        return st != ZRO_OK ? st : need_real(a, "eta_min", a->eta_min, '[', 0, INFINITY, ')');
    case ZRO__SCHEDULE_COSINE_RESTARTS:
        return check_restarts(a);
    case ZRO__SCHEDULE_LINEAR:
        return check_linear(a);
    case ZRO__SCHEDULE_CONSTANT:
        return need_real(a, "factor", a->factor, '[', 0, 1, ']');
    case ZRO__SCHEDULE_ONE_CYCLE:
        return check_one_cycle(a);
    case ZRO__SCHEDULE_PLATEAU:
        return check_plateau(a);
    case ZRO__SCHEDULE_SEQUENTIAL:
        return check_milestones(a);
    case ZRO__SCHEDULE_LAMBDA:
    case ZRO__SCHEDULE_CHAINED:
        break;
    }
    return ZRO_OK;
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

static void look_at_metric(const zro_plateau_config *c, zro__schedule_state *s, double metric)
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
        return zro__fail(ZRO_ERR_STATE, "schedule_one_cycle: it is over after total_steps = %" PRIu64,
                         a->one_cycle.total_steps);
    s->t++;
    if (a->kind == ZRO__SCHEDULE_PLATEAU)
        look_at_metric(&a->plateau, s, metric);
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

static double polynomial(const zro__schedule_args *a, uint64_t t, double lr)
{
    double total = (double)a->total_iters;

    if (t == 0 || t > a->total_iters)
        return lr;
    return lr * pow((1 - (double)t / total) / (1 - (double)(t - 1) / total), a->power);
}

/* The lowest point cannot be left by a factor: the step after it adds what the first one took away. */
static double cosine(const zro__schedule_args *a, uint64_t t, double base, double lr)
{
    double t_max = (double)a->t_max, eta_min = a->eta_min;

    if (t == 0)
        return lr;
    if ((t - 1) % a->t_max == 0 && (t - 1) / a->t_max % 2 == 1)
        return lr + (base - eta_min) * (1 - cos(pi / t_max)) / 2;
    return (1 + cos(pi * (double)t / t_max)) / (1 + cos(pi * (double)(t - 1) / t_max)) * (lr - eta_min) + eta_min;
}

static double cosine_restarts(const zro__schedule_args *a, const zro__schedule_state *s, double base)
{
    return a->eta_min + (base - a->eta_min) * (1 + cos(pi * (double)s->t_cur / (double)s->t_i)) / 2;
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

/* A factor of 0 leaves nothing to go on with but the first lr. */
static double constant(const zro__schedule_args *a, uint64_t t, double base, double lr)
{
    if (t == 0)
        return lr * a->factor;
    if (t != a->total_iters)
        return lr;
    return a->factor > 0 ? lr * (1 / a->factor) : base;
}

/* One cycle: in phase i from points[i] to points[i + 1]. */
static double one_cycle(const zro_one_cycle_config *c, uint64_t t, const double *points)
{
    double total = (double)c->total_steps, begin = 0, ends[3], part;
    int last = c->three_phase ? 2 : 1, i = 0;

    ends[0] = c->pct_start * total - 1;
    ends[1] = 2 * c->pct_start * total - 2;
    ends[last] = total - 1;
    while (i < last && (double)t > ends[i])
        begin = ends[i++];
    part = ends[i] != begin ? ((double)t - begin) / (ends[i] - begin) : 1;
    if (c->linear)
        return (points[i + 1] - points[i]) * part + points[i];
    return points[i + 1] + (points[i] - points[i + 1]) / 2 * (cos(pi * part) + 1);
}

/* What the step after the last one would use overshoots the end: if that is linear, by so much that it may be below 0. */
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

static double plateau(const zro_plateau_config *c, const zro__schedule_state *s, double lr)
{
    double next = fmax(lr * c->factor, c->min_lr);

    return s->reduce && lr - next > c->eps ? next : lr;
}

double zro__schedule_lr(const zro__schedule_args *a, const zro__schedule_state *s, double base, double lr)
{
    switch (a->kind) {
    case ZRO__SCHEDULE_STEP_LR:
        return s->t > 0 && s->t % a->step_size == 0 ? lr * a->gamma : lr;
    case ZRO__SCHEDULE_MULTI_STEP:
        return multi_step(a, s->t, lr);
    case ZRO__SCHEDULE_EXPONENTIAL:
        return s->t > 0 ? lr * a->gamma : lr;
    case ZRO__SCHEDULE_POLYNOMIAL:
        return polynomial(a, s->t, lr);
    case ZRO__SCHEDULE_COSINE:
        return cosine(a, s->t, base, lr);
    case ZRO__SCHEDULE_COSINE_RESTARTS:
        return cosine_restarts(a, s, base);
    case ZRO__SCHEDULE_LINEAR:
        return linear(a, s->t, lr);
    case ZRO__SCHEDULE_CONSTANT:
        return constant(a, s->t, base, lr);
    case ZRO__SCHEDULE_ONE_CYCLE:
        return one_cycle_lr(&a->one_cycle, s->t);
    case ZRO__SCHEDULE_PLATEAU:
        return plateau(&a->plateau, s, lr);
    case ZRO__SCHEDULE_LAMBDA:
    case ZRO__SCHEDULE_CHAINED:
    case ZRO__SCHEDULE_SEQUENTIAL:
        break;
    }
    return lr;
}
