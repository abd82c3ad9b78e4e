/* Random schedules of gradients: each rank has several threads, which finish gradients in orders of their own, different on each rank
 * and in each iteration, one by one, several at once, or as unused; under no_sync, with a static graph, with hooks, attached or not,
 * in every overlap mode, whatever the buckets are.  One schedule is one iteration.  The results are those of the reference. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "rig.h"
#include "zt/list.h"

enum { MOST_THREADS = 4, MOST_USES = 3, ITERATIONS = 8, MOST_ELEMENTS = 400 };

/* What a thread does in an iteration. */
typedef struct worker {
    rig *g;
    pthread_t thread;
    uint64_t random;
    size_t index[RIG_MAX]; /* its parameters, in its order */
    size_t n;
    const unsigned char (*uses)[ZT_MAX_RANKS]; /* by parameter and rank: how often it becomes ready */
} worker;

/* The first n - 1 times a gradient is not what it will be. */
static void use_often(rig *g, size_t i, unsigned n)
{
    for (unsigned k = 1; k < n; k++) {
        for (size_t e = 0; e < g->count[i]; e++)
            ((float *)g->params[i].grad)[e] = 777;
        CHECK_OK(zro_ddp_grad_ready(g->ddp, i));
    }
    rig_write(g, i);
    CHECK_OK(zro_ddp_grad_ready(g->ddp, i));
}

static void *work(void *user)
{
    worker *w = user;
    rig *g = w->g;
    const int me = zro_group_rank(g->group);
    size_t several[RIG_MAX], n = 0;

    for (size_t k = 0; k < w->n; k++) {
        const size_t i = w->index[k];
        const unsigned uses = w->uses[i][me];

        if (uses == 0 && g->mode.find_unused == ZRO_ON && g->mode.static_graph == ZRO_OFF && zt_below(&w->random, 2) == 0)
            CHECK_OK(zro_ddp_unused(g->ddp, i));
        else if (uses == 1 && zt_below(&w->random, 3) == 0)
            rig_write(g, several[n++] = i);
        else if (uses > 0)
            use_often(g, i, uses);
        if (n > 0 && (k + 1 == w->n || zt_below(&w->random, 3) == 0)) {
            CHECK_OK(zro_ddp_grads_ready(g->ddp, several, n));
            n = 0;
        }
    }
    return NULL;
}

/* All parameters in a random order, divided among the threads. */
static void backward(rig *g, uint64_t *random, const unsigned char (*uses)[ZT_MAX_RANKS])
{
    const size_t n_threads = 1 + zt_below(random, MOST_THREADS);
    worker workers[MOST_THREADS];
    size_t order[RIG_MAX];

    for (size_t i = 0; i < g->n; i++) {
        const size_t k = zt_below(random, i + 1);

        order[i] = order[k];
        order[k] = i;
    }
    for (size_t k = 0; k < n_threads; k++)
        workers[k] = (worker){ .g = g, .random = zt_next(random), .uses = uses };
    for (size_t i = 0; i < g->n; i++) {
        worker *w = &workers[zt_below(random, n_threads)];

        if (g->params[order[i]].requires_grad != 0)
            w->index[w->n++] = order[i];
    }
    for (size_t k = 1; k < n_threads; k++)
        CHECK(pthread_create(&workers[k].thread, NULL, work, &workers[k]) == 0);
    work(&workers[0]);
    for (size_t k = 1; k < n_threads; k++)
        CHECK(pthread_join(workers[k].thread, NULL) == 0);
}

/* How often each parameter is used, on all ranks. */
static void choose_uses(const rig *g, uint64_t *random, unsigned char (*uses)[ZT_MAX_RANKS])
{
    for (size_t i = 0; i < g->n; i++)
        for (int q = 0; q < zro_group_size(g->group); q++)
            uses[i][q] = g->params[i].requires_grad == 0  ? 0
                         : g->mode.static_graph == ZRO_ON ? (unsigned char)zt_below(random, MOST_USES + 1)
                         : g->mode.find_unused == ZRO_ON  ? (unsigned char)zt_below(random, 2)
                                                          : 1;
}

static void one_iteration(rig *g, uint64_t *shared, uint64_t *own, const unsigned char (*uses)[ZT_MAX_RANKS], int syncs)
{
    const size_t first = g->mode.optimizers > 0 ? (size_t)g->mode.leaves : g->n;
    const int overlaps = g->mode.overlap[0] != ZRO_OVERLAP_OFF || g->mode.overlap[1] != ZRO_OVERLAP_OFF;
    const int averages = zt_below(shared, 4) == 0 && !overlaps, backwards = (int)zt_below(shared, 2);

    g->iteration++;
    CHECK_OK(zro_ddp_no_sync(g->ddp, syncs ? ZRO_OFF : ZRO_ON));
    CHECK_OK(zro_ddp_forward(g->ddp));
    for (size_t i = 0; i < g->n; i++)
        rig_add(g, i, uses[i]);
    backward(g, own, uses);
    CHECK_OK(zro_ddp_backward_end(g->ddp));
    if (!syncs)
        return;
    if (averages) {
        CHECK_OK(zro_ddp_average(g->ddp));
        rig_check_gradients(g, 0, g->n);
    }
    rig_check_gradients(g, 0, first);
    for (int k = 0; k < g->mode.optimizers; k++)
        CHECK_OK(zro_optim_step(g->optim[backwards ? g->mode.optimizers - 1 - k : k], NULL));
    rig_step_reference(g);
    rig_check(g);
    rig_forget(g);
}

static rig_mode choose_mode(uint64_t *random, size_t n)
{
    static const size_t bytes[] = { 0, 1, 64, 400, 1600, 5000 };
    const unsigned graph = (unsigned)zt_below(random, 4);
    rig_mode mode = { .memory = (rig_memory)zt_below(random, RIG_MEMORIES) };

    mode.optimizers = n > 3 ? (int)zt_below(random, 3) : (int)zt_below(random, 2);
    mode.leaves = mode.optimizers > 0 && n > 3 ? (int)zt_below(random, 3) : 0;
    mode.clip_norm = zt_below(random, 3) == 0 ? 0.5 : 0;
    mode.bucket_bytes = bytes[zt_below(random, 6)];
    mode.find_unused = graph == 1 || graph == 3 ? ZRO_ON : ZRO_OFF;
    mode.static_graph = graph >= 2 ? ZRO_ON : ZRO_OFF;
    mode.hook = zt_below(random, 4) == 0 ? (zt_below(random, 2) == 0 ? rig_hook : zro_hook_all_reduce) : NULL;
    for (int k = 0; k < mode.optimizers; k++)
        mode.overlap[k] = (zro_overlap)zt_below(random, 3);
    return mode;
}

static void schedules(zt_rank *t)
{
    zro_stats before = ZRO_STATS_INIT, after = ZRO_STATS_INIT;
    rig *g = malloc(sizeof *g);
    uint64_t own = t->random;

    CHECK(g != NULL);
    CHECK_OK(zro_group_stats(t->group, &before));
    for (long round = 0; round < t->arg / ITERATIONS; round++) {
        uint64_t shared = zt_mix(zt_mix(t->seed, zt_opt.seed), (uint64_t)round);
        const size_t n = 1 + zt_below(&shared, RIG_MAX);
        unsigned char uses[RIG_MAX][ZT_MAX_RANKS];
        size_t counts[RIG_MAX];

        for (size_t i = 0; i < n; i++)
            counts[i] = zt_below(&shared, 5) == 0 ? zt_below(&shared, 2) : zt_below(&shared, MOST_ELEMENTS);
        rig_init(g, t, t->group, choose_mode(&shared, n), counts, n, zt_next(&shared));
        for (size_t i = 0; i < n; i++)
            if (zt_below(&shared, 10) == 0)
                g->params[i].requires_grad = g->alone[i].requires_grad = 0;
        rig_create(g);
        memset(uses, 0, sizeof uses);
        choose_uses(g, &shared, uses);
        for (int k = 0; k < ITERATIONS; k++) {
            if (g->mode.static_graph == ZRO_OFF)
                choose_uses(g, &shared, uses);
            one_iteration(g, &shared, &own, (const unsigned char(*)[ZT_MAX_RANKS])uses, zt_below(&shared, 4) > 0);
        }
        CHECK_OK(zro_ddp_check(g->ddp));
        rig_free(g);
    }
    free(g);
    CHECK_OK(zro_barrier(t->group));
    CHECK_OK(zro_group_stats(t->group, &after));
    CHECK(after.heap_bytes == before.heap_bytes && after.shared_bytes == before.shared_bytes);
    if (t->rank == 0)
        zt_note(t, "%ld schedules", t->arg);
}

#define SEVERAL (ZT_WORLD(1) | ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4))

const zt_case cases_fail_schedules[] = {
    { "ddp_schedules", schedules, SEVERAL, ZT_ALL, 0, 120, 0, 160 },
    { "ddp_schedules_more", schedules, ZT_WORLD(3), ZT_BOTH, ZT_REST, 600, 0, 2400 },
    { "ddp_schedules_long", schedules, SEVERAL, ZT_BOTH, ZT_LONG, 4000, 0, 20000 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
