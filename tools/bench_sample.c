/* Samples: see bench_sample.h. */
#define _GNU_SOURCE
#include "bench_sample.h"

#include <math.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/clock.h"

static const double SWITCH_US = 20000; /* a thread may lose its processor once in so long a time */

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

zro_status sample_turns(const sampler *p, int enough, int max_batch, sample *samples, turns *out)
{
    side itself = { .loop = SIDE_ITSELF, .max_batch = max_batch, .samples = samples };
    side loops[2] = { { .max_batch = max_batch, .samples = samples + 4 * enough },
                      { .max_batch = max_batch, .samples = samples + 6 * enough } };
    double us;
    zro_status st = sample_find_loops(p, loops);

    if (st == ZRO_OK)
        st = sample_try(p, &itself, &us);
    for (int n = 0; st == ZRO_OK && n < 2 * enough; n++) {
        if (n >= enough && itself.clean >= 2 * enough && loops[0].clean >= enough && loops[1].clean >= enough)
            break;
        for (int k = 0; k < 2 && st == ZRO_OK; k++) {
            st = sample_keep(p, &itself);
            if (st == ZRO_OK)
                st = sample_keep(p, &loops[k]);
        }
    }
    *out = (turns){ .loop = 0 };
    if (st == ZRO_OK) {
        out->loop = sample_limit(loops, enough, &out->disturbed, &out->limit)->loop;
        out->itself = sample_times(&itself, 2 * enough, &out->disturbed);
    }
    return st;
}

int64_t sample_switches(int who)
{
    struct rusage usage;

    return getrusage(who, &usage) == 0 ? usage.ru_nivcsw : 0;
}

int64_t sample_lost(int64_t switches, double us)
{
    int64_t lost = switches - (int64_t)(us / SWITCH_US);

    return lost > 0 ? lost : 0;
}

zro_status sample_ranks(zro_group *group, const side *s, sample_run_fn run, void *user, sample *out, uint64_t *end)
{
    zro_status st = zro_barrier(group);
    int64_t seen[3], before = sample_switches(RUSAGE_THREAD), start; /* seen: maxima over ranks of end, -start, switches */

    start = (int64_t)zro__now_ns();
    for (int i = 0; i < s->batch && st == ZRO_OK; i++)
        st = run(user, s->loop);
    seen[0] = (int64_t)zro__now_ns();
    seen[1] = -start;
    seen[2] = sample_switches(RUSAGE_THREAD) - before;
    if (st == ZRO_OK)
        st = zro_all_reduce(group, seen, 3, ZRO_I64, ZRO_MAX);
    *end = (uint64_t)seen[0];
    *out = (sample){ (double)(seen[0] + seen[1]) / 1e3 / s->batch, seen[2] };
    return st;
}
