/* The line search: see wolfe.h.
 *
 * First t grows until an interval is known to hold what is sought: the function has risen or turned upwards, or is flat enough
 * at once.  Then that interval shrinks around the lower of its ends.  New points come from the cubic through both ends' values
 * and slopes, held between bounds.
 *
 * Comparisons are written as PyTorch has them: which way one goes with NaN decides where the search ends. */
#include "optim/wolfe.h"

#include <math.h>

static const double DECREASE = 1e-4, CURVATURE = 0.9, SHORTEST = 1e-9;

typedef struct search {
    const zro__wolfe *w;
    const zro__wolfe_point *start;
    zro__wolfe_point end[2]; /* the ends of the interval */
    uint64_t steps;
    int done; /* the point that was sought is found: both ends are that point */
} search;

/* A buffer that is neither the start's nor that of `a` or `b`. */
static int free_buffer(const search *s, const zro__wolfe_point *a, const zro__wolfe_point *b)
{
    int buffer = 0;

    while (buffer == s->start->buffer || buffer == a->buffer || buffer == b->buffer)
        buffer++;
    return buffer;
}

static zro_status evaluate(const search *s, double t, int buffer, zro__wolfe_point *point)
{
    *point = (zro__wolfe_point){ zro__rounded(s->w->dtype, t), 0, 0, buffer };
    return s->w->evaluate(s->w->user, point);
}

/* With f32 the function itself has no more digits: near the end a step changes it by less than its last one, and must still
 * count as a decrease. */
static int is_too_high(const search *s, const zro__wolfe_point *p)
{
    zro_dtype dtype = s->w->dtype;
    double gain = zro__rounded(dtype, zro__rounded(dtype, DECREASE * p->t) * s->start->slope);

    return zro__rounded(dtype, p->f) > zro__rounded(dtype, zro__rounded(dtype, s->start->f) + gain);
}

static int is_flat(const search *s, const zro__wolfe_point *p)
{
    return fabs(p->slope) <= zro__rounded(s->w->dtype, -CURVATURE * s->start->slope);
}

/* Where the cubic through a and b is least, within [low, high]; their middle if it is least nowhere. */
static double interpolate(const zro__wolfe_point *a, const zro__wolfe_point *b, double low, double high)
{
    double d1 = a->slope + b->slope - 3 * (a->f - b->f) / (a->t - b->t);
    double square = d1 * d1 - a->slope * b->slope, d2, t;

    if (!(square >= 0))
        return (low + high) / 2;
    d2 = sqrt(square);
    if (a->t <= b->t)
        t = b->t - (b->t - a->t) * ((b->slope + d2 - d1) / (b->slope - a->slope + 2 * d2));
    else
        t = a->t - (a->t - b->t) * ((a->slope + d2 - d1) / (a->slope - b->slope + 2 * d2));
    t = low > t ? low : t;
    return high < t ? high : t;
}

static zro_status find_interval(search *s, double t)
{
    zro__wolfe_point last = *s->start, now;
    zro_status st = evaluate(s, t, free_buffer(s, &last, &last), &now);

    for (; st == ZRO_OK && s->steps < s->w->max_steps; s->steps++) {
        int risen = is_too_high(s, &now) || (s->steps > 1 && now.f >= last.f);

        s->done = !risen && is_flat(s, &now);
        if (s->done || risen || now.slope >= 0) {
            s->end[0] = s->done ? now : last;
            s->end[1] = now;
            return ZRO_OK;
        }
        t = interpolate(&last, &now, now.t + 0.01 * (now.t - last.t), now.t * 10);
        last = now;
        st = evaluate(s, t, free_buffer(s, &last, &last), &now);
    }
    s->end[0] = *s->start;
    s->end[1] = now;
    return st;
}

/* The next point inside the interval.  One close to an end is taken once; if that is where it lies again, or it is the end
 * itself, it is moved inwards by a tenth. */
static double choose_inside(const search *s, int *close)
{
    int up = s->end[0].t <= s->end[1].t;
    double low = s->end[!up].t, high = s->end[up].t, tenth = 0.1 * (high - low);
    double t = interpolate(&s->end[0], &s->end[1], low, high);
    int was_close = *close;

    *close = high - t < tenth || t - low < tenth;
    if (!*close || !(was_close || t >= high || t <= low))
        return t;
    *close = 0;
    return fabs(t - high) < fabs(t - low) ? high - tenth : low + tenth;
}

static int lower_end(const search *s)
{
    return s->end[0].f <= s->end[1].f ? 0 : 1;
}

/* Replaces one of the ends by a new point. */
static void shrink(search *s, const zro__wolfe_point *now, int *low)
{
    zro__wolfe_point *lower = &s->end[*low], *higher = &s->end[!*low];

    if (is_too_high(s, now) || now->f >= lower->f) {
        *higher = *now;
        *low = lower_end(s);
        return;
    }
    s->done = is_flat(s, now);
    if (now->slope * (higher->t - lower->t) >= 0)
        *higher = *lower;
    *lower = *now;
}

zro_status zro__wolfe_search(const zro__wolfe *w, const zro__wolfe_point *start, double t, zro__wolfe_point *found)
{
    search s = { .w = w, .start = start };
    int low, close = 0;
    zro_status st = find_interval(&s, t);

    if (st != ZRO_OK)
        return st;
    low = lower_end(&s);
    while (!s.done && s.steps < w->max_steps && !(fabs(s.end[1].t - s.end[0].t) * w->longest < SHORTEST)) {
        zro__wolfe_point now;

        t = choose_inside(&s, &close);
        st = evaluate(&s, t, free_buffer(&s, &s.end[0], &s.end[1]), &now);
        if (st != ZRO_OK)
            return st;
        s.steps++;
        shrink(&s, &now, &low);
    }
    *found = s.end[low];
    return ZRO_OK;
}
