/* Samples: see bench_sample.h. */
#include "bench_sample.h"

#include <math.h>
#include <stdlib.h>

static int batch_for(const sampler *p, const side *s, double us)
{
    return (int)fmax(1, fmin(ceil(p->sample_us / fmax(us, 1e-3)), s->max_batch));
}

/* First one run for each sample and, if that is too short to be timed, several. */
zro_status sample_try(const sampler *p, side *s, double *best)
{
    zro_status st = ZRO_OK;
    sample now;

    s->batch = 1;
    *best = INFINITY;
    for (int i = 0; i < 4 && st == ZRO_OK; i++) {
        st = p->take(p->user, s, &now);
        *best = fmin(*best, now.us);
        if (i == 1 && *best < p->sample_us) {
            s->batch = batch_for(p, s, *best);
            *best = INFINITY;
        }
    }
    s->batch = batch_for(p, s, *best);
    return st;
}

zro_status sample_find_loops(const sampler *p, side loops[2])
{
    double us = 0, best[2] = { INFINITY, INFINITY };
    zro_status st = ZRO_OK;

    for (int l = 0; l < p->n_loops && st == ZRO_OK; l++) {
        side trial = { .loop = l, .max_batch = loops[0].max_batch };
        int fits = 1, at;

        if (p->fits != NULL)
            st = p->fits(p->user, l, &fits);
        if (st == ZRO_OK && fits)
            st = sample_try(p, &trial, &us);
        if (st != ZRO_OK || !fits || us >= best[1])
            continue;
        at = us >= best[0];
        if (at == 0) {
            best[1] = best[0];
            loops[1].loop = loops[0].loop;
            loops[1].batch = loops[0].batch;
        }
        best[at] = us;
        loops[at].loop = l;
        loops[at].batch = trial.batch;
    }
    return st;
}

zro_status sample_keep(const sampler *p, side *s)
{
    zro_status st = p->take(p->user, s, &s->samples[s->n]);

    s->clean += s->samples[s->n].switches == 0;
    s->n++;
    return st;
}

static int by_time(const void *a, const void *b)
{
    const sample *x = a, *y = b;

    return (x->us > y->us) - (x->us < y->us);
}

static int by_switches(const void *a, const void *b)
{
    const sample *x = a, *y = b;

    return (x->switches > y->switches) - (x->switches < y->switches);
}

/* Between two samples if need be. */
static double quantile(const sample *s, int n, double q)
{
    double at = q * (n - 1), part = at - floor(at);
    int i = (int)at;

    return i + 1 < n ? s[i].us * (1 - part) + s[i + 1].us * part : s[i].us;
}

times sample_times(side *s, int enough, int *disturbed)
{
    sample *all = s->samples;
    int kept = 0;

    qsort(all, (size_t)s->n, sizeof *all, by_switches);
    while (kept < s->n && (kept < enough || all[kept].switches == 0))
        kept++;
    *disturbed |= all[kept - 1].switches != 0;
    qsort(all, (size_t)kept, sizeof *all, by_time);
    return (times){ quantile(all, kept, 0.5), quantile(all, kept, 0.25), quantile(all, kept, 0.75) };
}

const side *sample_limit(side loops[2], int enough, int *disturbed, times *out)
{
    times first = sample_times(&loops[0], enough, disturbed), second = sample_times(&loops[1], enough, disturbed);
    int is_second = second.median < first.median;

    *out = is_second ? second : first;
    return &loops[is_second];
}
