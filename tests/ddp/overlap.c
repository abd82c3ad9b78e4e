/* Updates that overlap with backward: the same bits as without, from the first iteration on; proofs that they happen when they should,
 * without clocks; and what a program may not do meanwhile.
 *
 *     S20  a linear model of 1000-2000-500: PyTorch's sixteen     S50  a sub-group whose ranks are renumbered
 *     S40  the first iteration moves parameters                    S51  pairs of what breaks elsewhere
 *     S41  groups, a group added later, freezing, clipping         S61  two optimizers with schedules of their own
 *     S49  buckets with more pieces than ranks                     S80, S81  when updates happen */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/point.h"
#include "course.h"
#include "ddp/ddp.h"
#include "group/group.h"
#include "pairs.h"
#include "rig.h"
#include "zt/foreign.h"
#include "zt/list.h"

static const size_t counts[] = { 700, 3000, 5, 64, 0, 1024, 70, 1 };

enum { N = sizeof counts / sizeof *counts };

static const zro_overlap modes[] = { ZRO_OVERLAP_AFTER_LAST, ZRO_OVERLAP_INTERLEAVED };

/* ---- S20 ---- */

enum { IN = 1000, HIDDEN = ZT_SANITIZED ? 200 : 2000, OUT = 500, INPUTS = 5, W1 = 0, B1, W2, B2, ARRAYS };

static const size_t sizes[ARRAYS] = { (size_t)HIDDEN * IN, HIDDEN, (size_t)OUT *HIDDEN, OUT };

/* y = W2 (W1 x + b1) + b2, and the loss is the sum of the squares of y, halved. */
typedef struct linear {
    zro_param p[ARRAYS];
    float x[IN], h[HIDDEN], y[OUT], dh[HIDDEN];
    zro_ddp *ddp;
    zro_optim *optim;
} linear;

static void linear_init(linear *m)
{
    for (int k = 0; k < ARRAYS; k++) {
        zro_param_init(&m->p[k]);
        m->p[k].shape[0] = sizes[k];
        m->p[k].data = malloc(2 * sizes[k] * sizeof(float));
        CHECK(m->p[k].data != NULL);
        m->p[k].grad = (float *)m->p[k].data + sizes[k];
        for (size_t i = 0; i < sizes[k]; i++)
            ((float *)m->p[k].data)[i] = (float)((int)((i * 2654435761u + (size_t)k) % 2001) - 1000) * 2e-5f;
    }
}

static void linear_forward(linear *m, int rank, int input)
{
    const float *w1 = m->p[W1].data, *b1 = m->p[B1].data, *w2 = m->p[W2].data, *b2 = m->p[B2].data;

    for (int i = 0; i < IN; i++)
        m->x[i] = (float)((i * 37 + rank * 11 + input * 5) % 17 - 8) / 8;
    for (int i = 0; i < HIDDEN; i++) {
        m->h[i] = b1[i];
        for (int k = 0; k < IN; k++)
            m->h[i] += w1[i * IN + k] * m->x[k];
    }
    for (int i = 0; i < OUT; i++) {
        m->y[i] = b2[i];
        for (int k = 0; k < HIDDEN; k++)
            m->y[i] += w2[i * HIDDEN + k] * m->h[k];
    }
}

static void linear_backward(linear *m)
{
    const float *w2 = m->p[W2].data;
    float *g1 = m->p[W1].grad, *g2 = m->p[W2].grad;

    memset(m->dh, 0, sizeof m->dh);
    for (int i = 0; i < OUT; i++)
        for (int k = 0; k < HIDDEN; k++) {
            m->dh[k] += m->y[i] * w2[i * HIDDEN + k];
            g2[i * HIDDEN + k] = m->y[i] * m->h[k];
        }
    memcpy(m->p[B2].grad, m->y, sizeof m->y);
    CHECK_OK(zro_ddp_grad_ready(m->ddp, B2));
    CHECK_OK(zro_ddp_grad_ready(m->ddp, W2));
    for (int i = 0; i < HIDDEN; i++)
        for (int k = 0; k < IN; k++)
            g1[i * IN + k] = m->dh[i] * m->x[k];
    memcpy(m->p[B1].grad, m->dh, sizeof m->dh);
    CHECK_OK(zro_ddp_grad_ready(m->ddp, B1));
    CHECK_OK(zro_ddp_grad_ready(m->ddp, W1));
}

static void linear_create(linear *m, zt_rank *t, const zro_optim_config *overlapped, const zro_ddp_config *config,
                          zro_switch shard_buckets)
{
    zro_sgd_config sgd = ZRO_SGD_CONFIG_INIT;
    zro_optim_config c = ZRO_OPTIM_CONFIG_INIT;
    zro_plan_config plan = ZRO_PLAN_CONFIG_INIT;
    zro_param_group group = { .params = m->p, .n = ARRAYS };

    sgd.lr = 0.01;
    sgd.momentum = 0.9;
    sgd.weight_decay = 0.001;
    CHECK_OK(zro_ddp_create(t->group, m->p, ARRAYS, config, &m->ddp));
    if (overlapped != NULL) {
        c = *overlapped;
        c.ddp = m->ddp;
        c.plan = &plan;
        plan.partition = ZRO_PARTITION_BUCKETS;
        plan.shard_buckets = shard_buckets;
        CHECK_OK(zro_ddp_buckets(m->ddp, &plan.bucket_params, &plan.bucket_lengths, &plan.n_buckets));
    }
    CHECK_OK(zro_optim_create(overlapped != NULL ? t->group : NULL, &group, 1, zro_rule_sgd(), &sgd, &c, &m->optim));
}

static void linear_train(linear *m, zt_rank *t, int input)
{
    CHECK_OK(zro_ddp_forward(m->ddp));
    linear_forward(m, t->rank, input);
    linear_backward(m);
    CHECK_OK(zro_ddp_backward_end(m->ddp));
    CHECK_OK(zro_optim_step(m->optim, NULL));
}

static void linear_free(linear *m)
{
    zro_optim_destroy(m->optim);
    zro_ddp_destroy(m->ddp);
    for (int k = 0; k < ARRAYS; k++)
        free(m->p[k].data);
    free(m);
}

/* arg: bits for interleaved, gradient_as_bucket_view, static_graph, shard_buckets. */
static void S20_overlap(zt_rank *t)
{
    zro_ddp_config config = ZRO_DDP_CONFIG_INIT;
    zro_optim_config c = ZRO_OPTIM_CONFIG_INIT;
    linear *m = calloc(1, sizeof *m), *reference = calloc(1, sizeof *reference);
    float first;

    CHECK(m != NULL && reference != NULL);
    linear_init(m);
    linear_init(reference);
    first = *(float *)m->p[W1].data;
    linear_create(reference, t, NULL, &config, ZRO_OFF);
    config.gradient_as_bucket_view = t->arg & 2 ? ZRO_ON : ZRO_OFF;
    config.static_graph = t->arg & 4 ? ZRO_ON : ZRO_OFF;
    c.overlap = modes[t->arg & 1];
    linear_create(m, t, &c, &config, t->arg & 8 ? ZRO_ON : ZRO_OFF);
    for (int input = 0; input < INPUTS; input++) {
        linear_train(m, t, input);
        linear_train(reference, t, input);
        CHECK_OK(zro_optim_zero_grad(reference->optim, ZRO_ZERO_LEAVE));
        for (int k = 0; k < ARRAYS; k++)
            CHECK(memcmp(m->p[k].data, reference->p[k].data, sizes[k] * sizeof(float)) == 0);
        CHECK(*(float *)m->p[W1].data != first); /* S40: from the first input on */
    }
    linear_free(m);
    linear_free(reference);
}

/* ---- S40, S41 ---- */

/* The first iteration, and those around it, in every place where arrays can lie. */
static void S40_first_iteration(zt_rank *t)
{
    for (int k = 0; k < 2; k++)
        for (course_mode m = COURSE_IN_PLACE; m < COURSE_MODES; m++) {
            zro_optim_config c = ZRO_OPTIM_CONFIG_INIT;
            double before;
            course r;

            c.overlap = modes[k];
            course_init(&r, t, m, COURSE_MAX);
            course_create(&r, "adamw lr=0.1", &c);
            before = *(float *)r.params[0].data;
            course_train(&r, 1);
            CHECK(*(float *)r.params[0].data != before);
            course_train(&r, 2);
            course_free(&r);
        }
}

/* Freezing and unfreezing, with and without clipping and weights; micro-batches. */
static void S41_freezing(zt_rank *t)
{
    for (int k = 0; k < 8; k++) {
        zro_optim_config c = ZRO_OPTIM_CONFIG_INIT;
        course r;

        c.overlap = modes[k % 2];
        c.clip_norm = k / 2 % 2 ? 0.5 : 0;
        course_init(&r, t, (course_mode)(COURSE_IN_PLACE + k % 4), COURSE_MAX);
        r.config.weighted = k / 4 ? ZRO_ON : ZRO_OFF;
        for (int q = 0; k / 4 && q < t->size; q++)
            r.samples[q] = q + 1;
        course_create(&r, "adam", &c);
        if (k / 4 && r.mode != COURSE_HOOK) /* hooks see no weights */
            CHECK_OK(zro_ddp_set_weight(r.ddp, t->rank + 1));
        else
            r.config.weighted = ZRO_OFF;
        for (int step = 0; step < 5; step++) {
            r.params[2].requires_grad = step != 1 && step != 2;
            r.params[7].requires_grad = step < 3;
            CHECK_OK(zro_ddp_no_sync(r.ddp, ZRO_ON));
            for (int batch = 0; batch < step % 3; batch++)
                course_backward(&r);
            CHECK_OK(zro_ddp_no_sync(r.ddp, ZRO_OFF));
            course_train(&r, 1);
        }
        course_free(&r);
    }
}

/* Two groups with values of their own, one that is added later, and state that is loaded between iterations. */
static void S41_groups(zt_rank *t)
{
    for (int k = 0; k < 4; k++) {
        rig_mode mode = {
            .memory = (rig_memory)k, .bucket_bytes = 2000, .optimizers = 1, .leaves = 3, .overlap = { modes[k % 2] }
        };
        zro_param_group rest[2] = { { 0 } };
        zro_state *state;
        rig *g = malloc(sizeof *g);

        CHECK(g != NULL);
        mode.clip_norm = k == 1 ? 0.5 : 0;
        rig_init(g, t, t->group, mode, counts, N, t->seed);
        rig_create(g);
        rig_train(g, 2);
        for (int w = 0; w < 2; w++) {
            zro_optim *optim = w == 0 ? g->optim[0] : g->reference[0];

            rest[w].params = w == 0 ? g->params : g->alone;
            rest[w].n = (size_t)mode.leaves;
            CHECK_OK(zro_optim_add_param_group(optim, &rest[w]));
            CHECK_OK(zro_optim_set_value(optim, 1, "lr", 0.25));
        }
        g->mode.leaves = 0; /* all are consumed now */
        rig_train(g, 2);
        CHECK_OK(zro_optim_consolidate_with_data(g->optim[0], ZRO_ALL, &state));
        rig_train(g, 1);
        CHECK_OK(zro_optim_load(g->optim[0], state));
        CHECK_OK(zro_optim_load(g->reference[0], state));
        zro_state_destroy(state);
        rig_check(g);
        rig_train(g, 2);
        rig_free(g);
        free(g);
    }
}

/* ---- S49 ---- */

static void S49_pieces(zt_rank *t)
{
    static const size_t pieces[3][4] = { { 10, 10, 0, 0 }, { 10, 10, 10, 0 }, { 60, 60, 60, 1 } };
    static const size_t n[3] = { 2, 3, 4 };
    const int row = t->size - 1;
    const size_t *size = pieces[row];

    for (int k = 0; k < 2; k++) {
        zro_optim_config c = ZRO_OPTIM_CONFIG_INIT;
        zro_plan_config plan = ZRO_PLAN_CONFIG_INIT;
        rig_mode mode = { .memory = RIG_EACH, .optimizers = 1, .overlap = { modes[k] } };
        zro_param_group of = { 0 };
        rig *g = malloc(sizeof *g);

        CHECK(g != NULL);
        rig_init(g, t, t->group, mode, size, n[row], t->seed);
        CHECK_OK(rig_create_ddp(g, &g->ddp));
        of.params = g->params;
        of.n = n[row];
        c.ddp = g->ddp;
        c.overlap = modes[k];
        c.plan = &plan;
        plan.partition = ZRO_PARTITION_BUCKETS;
        plan.shard_buckets = ZRO_ON;
        CHECK_OK(zro_ddp_buckets(g->ddp, &plan.bucket_params, &plan.bucket_lengths, &plan.n_buckets));
        CHECK_OK(zro_optim_create(t->group, &of, 1, zro_rule_adam(), NULL, &c, &g->optim[0]));
        rig_create_reference(g);
        rig_train(g, 3);
        rig_free(g);
        free(g);
    }
}

/* ---- S50 ---- */

static void S50_subgroup(zt_rank *t)
{
    const int odd[] = { 3, 1 };
    zro_group *sub;
    rig *g = malloc(sizeof *g);

    CHECK(g != NULL);
    CHECK_OK(zro_group_create_sub(t->group, odd, 2, &sub));
    for (int k = 0; sub != NULL && k < 2 * RIG_MEMORIES; k++) {
        rig_mode mode = { .memory = (rig_memory)(k / 2), .optimizers = 2, .bucket_bytes = 2000 };

        mode.overlap[0] = modes[k % 2];
        mode.overlap[1] = modes[1 - k % 2];
        rig_init(g, t, sub, mode, counts, N, t->seed);
        rig_create(g);
        rig_train(g, 3);
        rig_free(g);
    }
    zro_group_destroy(sub);
    free(g);
}

/* ---- S51, S61 ---- */

enum { AT_FIRST, AT_SECOND, AT_CLIP, AT_SCALE, AT_UNUSED, AT_STATIC, AT_TWO, AT_MEMORY, AT_HOOK, AT_BUCKET, AT_FACTORS };
static const int levels[AT_FACTORS] = { 3, 3, 2, 2, 2, 2, 2, RIG_MEMORIES, 2, 3 };
static const pairs_space space = { AT_FACTORS, levels, NULL };

/* An iteration in which ranks use what they like, if that is allowed; `pattern` is the same on all ranks. */
static void iterate(rig *g, uint64_t pattern, int syncs)
{
    const int may_miss = g->mode.find_unused == ZRO_ON && g->mode.static_graph == ZRO_OFF;
    const int me = zro_group_rank(g->group), ranks = zro_group_size(g->group);

    g->iteration++;
    CHECK_OK(zro_ddp_no_sync(g->ddp, syncs ? ZRO_OFF : ZRO_ON));
    CHECK_OK(zro_ddp_forward(g->ddp));
    for (size_t i = g->n; i-- > 0;) {
        unsigned char uses[ZT_MAX_RANKS];

        for (int q = 0; q < ranks; q++)
            uses[q] = !may_miss || zt_mix(pattern, i * 100 + (size_t)q) % 3 != 0;
        rig_add(g, i, uses);
        if (!uses[me])
            continue;
        rig_write(g, i);
        CHECK_OK(zro_ddp_grad_ready(g->ddp, i));
    }
    CHECK_OK(zro_ddp_backward_end(g->ddp));
}

static void step_all(rig *g)
{
    for (int k = 0; k < g->mode.optimizers; k++)
        CHECK_OK(zro_optim_step(g->optim[k], NULL));
    rig_step_reference(g);
    rig_check(g);
    rig_forget(g);
}

static void S51_pairs(zt_rank *t)
{
    enum { MOST = 200 };
    pairs_point *at = calloc(MOST, sizeof *at);
    rig *g = malloc(sizeof *g);
    uint64_t random = t->seed;
    int n;

    CHECK(g != NULL && at != NULL);
    n = pairs_sample(&space, &random, at, MOST);
    for (int i = 0; i < n; i++) {
        static const size_t bytes[] = { 0, 1, 3000 };
        const rig_mode mode = { .memory = (rig_memory)at[i][AT_MEMORY],
                                .optimizers = 1 + at[i][AT_TWO],
                                .leaves = i % 3,
                                .clip_norm = at[i][AT_CLIP] ? 0.5 : 0,
                                .bucket_bytes = bytes[at[i][AT_BUCKET]],
                                .find_unused = at[i][AT_UNUSED] ? ZRO_ON : ZRO_OFF,
                                .static_graph = at[i][AT_STATIC] ? ZRO_ON : ZRO_OFF,
                                .hook = at[i][AT_HOOK] ? rig_hook : NULL,
                                .overlap = { (zro_overlap)at[i][AT_FIRST], (zro_overlap)at[i][AT_SECOND] },
                                .loss_scale = at[i][AT_SCALE] ? ZRO_ON : ZRO_OFF };

        rig_init(g, t, t->group, mode, counts, N, zt_next(&random));
        rig_create(g);
        for (int k = 0; k < 4; k++) {
            if (k == 1)
                iterate(g, zt_next(&random), 0);
            iterate(g, zt_next(&random), 1);
            step_all(g);
        }
        CHECK_OK(zro_ddp_check(g->ddp));
        rig_free(g);
    }
    if (t->rank == 0)
        zt_note(t, "%d combinations", n);
    free(g);
    free(at);
}

static void S61_schedules(zt_rank *t)
{
    const rig_mode mode = { .memory = RIG_ONCE,
                            .optimizers = 2,
                            .bucket_bytes = 2000,
                            .overlap = { ZRO_OVERLAP_INTERLEAVED, ZRO_OVERLAP_AFTER_LAST } };
    zro_schedule *schedules[4];
    rig *g = malloc(sizeof *g);

    CHECK(g != NULL);
    rig_init(g, t, t->group, mode, counts, N, t->seed);
    rig_create(g);
    for (int k = 0; k < 2; k++) {
        CHECK_OK(zro_schedule_step_lr(k == 0 ? g->optim[0] : g->reference[0], 2, 0.5, &schedules[k]));
        CHECK_OK(zro_schedule_cosine(k == 0 ? g->optim[1] : g->reference[1], 5, 0, &schedules[2 + k]));
    }
    for (int i = 0; i < 6; i++) {
        CHECK_OK(rig_backward(g));
        CHECK_OK(rig_rest(g));
        rig_step_reference(g);
        CHECK_OK(zro_barrier(t->group)); /* parameters exist once */
        rig_check(g);
        CHECK_OK(zro_barrier(t->group));
        for (int k = 0; k < 4; k++)
            CHECK_OK(zro_schedule_step(schedules[k]));
    }
    for (int k = 0; k < 4; k++)
        zro_schedule_destroy(schedules[k]);
    rig_free(g);
    free(g);
}

/* ---- S80, S81 ---- */

/* Whether the values are what the reference has, while the library's thread may write them. */
__attribute__((no_sanitize("thread"))) static int are_updated(const rig *g, size_t i)
{
    const volatile float *now = g->params[i].data;
    const float *then = g->alone[i].data;

    for (size_t k = 0; k < g->count[i]; k++)
        if (now[k] != then[k])
            return 0;
    return 1;
}

/* All gradients are ready but that of the first parameter, which is the last bucket, from the second iteration on. */
static void withhold_last(rig *g)
{
    unsigned char uses[ZT_MAX_RANKS];

    memset(uses, 1, sizeof uses);
    g->iteration++;
    rig_forget(g);
    CHECK_OK(zro_ddp_forward(g->ddp));
    for (size_t i = g->n; i-- > 0;) {
        rig_add(g, i, uses);
        rig_write(g, i);
        if (i > 0)
            CHECK_OK(zro_ddp_grad_ready(g->ddp, i));
    }
}

static void make_proof(rig *g, zt_rank *t, zro_overlap overlap)
{
    const rig_mode mode = { .memory = (rig_memory)(t->arg), .optimizers = 1, .bucket_bytes = 256, .overlap = { overlap } };

    rig_init(g, t, t->group, mode, counts, N, t->seed);
    rig_create(g);
    rig_train(g, 1);
    CHECK_OK(zro_barrier(t->group)); /* parameters may exist once */
}

static void S80_interleaved(zt_rank *t)
{
    rig *g = malloc(sizeof *g);

    CHECK(g != NULL);
    make_proof(g, t, ZRO_OVERLAP_INTERLEAVED);
    for (int iteration = 0; iteration < 3; iteration++) {
        const size_t *order, *lengths;

        withhold_last(g);
        rig_step_reference(g);
        CHECK_OK(zro_ddp_buckets(g->ddp, &order, &lengths, NULL));
        for (size_t i = 0; i < lengths[0]; i++)
            while (!are_updated(g, order[i]))
                sched_yield();
        zt_meet(t); /* they have changed on all ranks, and nobody has said that the last gradient is ready */
        CHECK_OK(zro_ddp_grad_ready(g->ddp, 0));
        CHECK_OK(rig_rest(g));
        CHECK_OK(zro_barrier(t->group));
        rig_check(g);
        CHECK_OK(zro_barrier(t->group));
    }
    rig_free(g);
    free(g);
}

static void hold(void *user)
{
    zt_rank *t = user;

    zt_await(t, &t->shared->flag[0], 1);
}

static void S81_after_last(zt_rank *t)
{
    zro__point_plan plan = { .name = "cycle.last", .action = ZRO__POINT_KILL, .nth = 1, .kill_rank = hold, .user = t };
    uint64_t before, after;
    rig *g = malloc(sizeof *g);

#ifndef ZRO__POINTS
    zt_skip(t, "the library was built without ZRO__POINTS");
#endif
    CHECK(g != NULL);
    make_proof(g, t, ZRO_OVERLAP_AFTER_LAST);
    CHECK_OK(zro_params_hash(g->params, g->n, &before));
    zt_meet(t);
    if (t->rank == 1) /* the last bucket's reduction waits for this rank */
        zro__point_plan_set(&plan);
    withhold_last(g);
    while (zro__lane_is_busy(g->ddp->group->lane))
        sched_yield();
    zt_meet(t); /* all buckets but the last are reduced, and no parameter has changed */
    CHECK_OK(zro_params_hash(g->params, g->n, &after));
    CHECK(after == before);
    zt_meet(t);
    rig_step_reference(g);
    CHECK_OK(zro_ddp_grad_ready(g->ddp, 0));
    for (size_t i = 1; i < g->n; i++)
        while (!are_updated(g, i))
            sched_yield();
    zt_meet(t); /* all buckets but the last are updated everywhere, and the last is not reduced */
    CHECK(!are_updated(g, 0));
    zt_meet(t);
    atomic_store(&t->shared->flag[0], 1);
    CHECK_OK(rig_rest(g));
    zro__point_plan_set(NULL);
    CHECK_OK(zro_barrier(t->group));
    rig_check(g);
    CHECK_OK(zro_barrier(t->group));
    rig_free(g);
    free(g);
}

/* ---- a link that works on one thread alone ---- */

static zro_group *one_thread_group(zt_rank *t)
{
    unsigned char ticket[ZRO_TICKET_BYTES], tickets[ZT_MAX_RANKS][ZRO_TICKET_BYTES];
    zro_group_config config = zt_config();
    zro_group *group;
    zro_link link;

    zt_foreign_open(t, &link);
    link.one_thread = ZRO_ON;
    config.link = &link;
    config.machine = t->rank;
    CHECK_OK(zro_group_ticket(&config, t->rank, t->size, ticket));
    zt_exchange(t, ticket, sizeof ticket, tickets);
    CHECK_OK(zro_group_create_tickets(&config, t->rank, t->size, tickets, &group));
    return group;
}

/* No thread of the library may use it: nothing has changed when all gradients are ready, and everything when backward has ended. */
static void train_on_one_thread(zt_rank *t, zro_group *group, rig_mode mode)
{
    rig *g = malloc(sizeof *g);
    uint64_t before, after;

    CHECK(g != NULL);
    rig_init(g, t, group, mode, counts, N, t->seed);
    rig_create(g);
    rig_train(g, 1);
    for (int iteration = 0; iteration < 2; iteration++) {
        CHECK_OK(zro_params_hash(g->params, g->n, &before));
        withhold_last(g);
        CHECK_OK(zro_ddp_grad_ready(g->ddp, 0));
        CHECK(!zro__lane_is_busy(g->ddp->group->lane));
        zt_meet(t);
        CHECK_OK(zro_params_hash(g->params, g->n, &after));
        CHECK(after == before);
        CHECK_OK(zro_ddp_backward_end(g->ddp));
        rig_step_reference(g);
        for (size_t i = 0; i < g->n; i++)
            CHECK(are_updated(g, i));
        for (int k = 0; k < mode.optimizers; k++)
            CHECK_OK(zro_optim_step(g->optim[k], NULL));
        rig_check(g);
    }
    rig_free(g);
    free(g);
}

static void overlap_one_thread(zt_rank *t)
{
    const zro_overlap overlap = (zro_overlap)t->arg;
    const rig_mode each[] = {
        { .memory = RIG_OWN, .optimizers = 1, .bucket_bytes = 256, .overlap = { overlap } },
        { .memory = RIG_EACH, .optimizers = 2, .bucket_bytes = 256, .overlap = { overlap, ZRO_OVERLAP_AFTER_LAST } },
        { .memory = RIG_VIEWS, .optimizers = 1, .bucket_bytes = 256, .overlap = { overlap }, .hook = rig_hook },
        { .memory = RIG_OWN, .optimizers = 1, .bucket_bytes = 256, .overlap = { overlap }, .clip_norm = 1 },
    };
    zro_group *group = one_thread_group(t);

    for (size_t m = 0; m < sizeof each / sizeof *each; m++)
        train_on_one_thread(t, group, each[m]);
    zro_group_destroy(group);
}

#if defined(__x86_64__)
/* A hook that publishes enters the cycle once more, here on the program's thread, which gets its floating-point mode back all the
 * same. */
static zro_status publishing_hook(void *user, zro_bucket *bucket)
{
    zro_status st = zro_optim_publish(*(zro_optim **)user);

    return st == ZRO_OK ? zro_hook_all_reduce(NULL, bucket) : st;
}

static void mode_beside_hook(zt_rank *t)
{
    const rig_mode mode = { .memory = RIG_OWN, .optimizers = 1, .bucket_bytes = 256, .hook = publishing_hook };
    const unsigned before = __builtin_ia32_stmxcsr(), odd = before | 0x8040; /* subnormals are taken for 0 */
    zro_group *group = one_thread_group(t);
    rig *g = malloc(sizeof *g);

    CHECK(g != NULL);
    rig_init(g, t, group, mode, counts, N, t->seed);
    rig_create(g);
    CHECK_OK(zro_ddp_set_hook(g->ddp, publishing_hook, &g->optim[0]));
    for (int iteration = 0; iteration < 2; iteration++) {
        zro_status st;
        unsigned after;

        CHECK_OK(rig_backward(g));
        __builtin_ia32_ldmxcsr(odd);
        st = zro_ddp_backward_end(g->ddp);
        after = __builtin_ia32_stmxcsr();
        __builtin_ia32_ldmxcsr(before);
        CHECK_OK(st);
        CHECK(after == odd);
        CHECK_OK(zro_optim_step(g->optim[0], NULL));
        rig_step_reference(g);
        rig_check(g);
    }
    rig_free(g);
    free(g);
    zro_group_destroy(group);
}
#endif

/* ---- what a program may do, and what not ---- */

static zro_status whole_iteration(void *user, double *loss)
{
    rig *g = user;
    zro_status st = rig_backward(g);

    *loss = 5;
    return st == ZRO_OK ? zro_ddp_backward_end(g->ddp) : st;
}

static zro_status failing_closure(void *user, double *loss)
{
    zro_status st = whole_iteration(user, loss);

    return st == ZRO_OK && ((rig *)user)->t->rank == 0 ? zro_error_set(ZRO_ERR_INVALID, "no loss") : st;
}

static void check_refused(rig *g)
{
    zro_param_group none = ZRO_PARAM_GROUP_INIT;
    double lr = 0.5, values[16];
    zro_state *state;
    zro_optim *o = g->optim[0];

    CHECK_STATUS(zro_optim_set_value(o, 0, "lr", lr), ZRO_ERR_STATE);
    CHECK_TEXT("call it after zro_optim_step");
    CHECK_OK(zro_optim_get_values(o, 0, values, zro_optim_values(o)));
    CHECK_STATUS(zro_optim_set_values(o, 0, values, zro_optim_values(o)), ZRO_ERR_STATE);
    CHECK_STATUS(zro_optim_set_user(o, &lr), ZRO_ERR_STATE);
    CHECK_STATUS(zro_optim_step_local(o, NULL), ZRO_ERR_STATE);
    CHECK_TEXT("zro_optim_step");
    if (!g->ddp->cycle->now.is_open)
        return;
    CHECK_STATUS(zro_optim_zero_grad(o, ZRO_ZERO_CLEAR), ZRO_ERR_STATE);
    CHECK_TEXT("call it after zro_ddp_backward_end");
    CHECK_STATUS(zro_optim_publish(o), ZRO_ERR_STATE);
    CHECK_STATUS(zro_optim_add_param_group(o, &none), ZRO_ERR_STATE);
    CHECK_STATUS(zro_optim_consolidate(o, ZRO_ALL, &state), ZRO_ERR_STATE);
    CHECK_STATUS(zro_optim_step(o, NULL), ZRO_ERR_STATE);
}

static void overlap_calls(zt_rank *t)
{
    double loss = 0, norm;
    rig *g = malloc(sizeof *g);

    CHECK(g != NULL);
    for (int k = 0; k < 2; k++) {
        const rig_mode mode = { .memory = RIG_EACH, .optimizers = 1, .bucket_bytes = 2000, .overlap = { modes[k] } };
        zro_optim *o;
        size_t n_buckets;

        rig_init(g, t, t->group, mode, counts, N, t->seed);
        rig_create(g);
        o = g->optim[0];
        CHECK_OK(zro_ddp_buckets(g->ddp, NULL, NULL, &n_buckets));
        CHECK(zro_plan_buckets(zro_optim_plan(o)) == n_buckets); /* each is cut over all ranks */
        rig_train(g, 1);
        CHECK_STATUS(zro_optim_step(o, NULL), ZRO_ERR_STATE); /* not twice */
        CHECK_TEXT("no gradients to consume");
        withhold_last(g);
        check_refused(g);
        CHECK_OK(zro_ddp_grad_ready(g->ddp, 0));
        CHECK_OK(zro_ddp_backward_end(g->ddp));
        check_refused(g);
        CHECK_STATUS(zro_ddp_average(g->ddp), ZRO_ERR_STATE);
        CHECK_TEXT("during backward");
        CHECK_STATUS(zro_clip_grad_norm(o, 1, 2, NULL), ZRO_ERR_STATE);
        CHECK_TEXT("use clip_norm");
        CHECK_STATUS(zro_optim_grad_norm(o, 2, ZRO_OFF, &norm), ZRO_ERR_STATE);
        CHECK_STATUS(zro_clip_grad_value(o, 1), ZRO_ERR_STATE);
        CHECK_STATUS(zro_optim_step(o, &loss), ZRO_ERR_STATE);
        CHECK_TEXT("zro_optim_set_user");
        CHECK_OK(zro_optim_zero_grad(o, ZRO_ZERO_CLEAR)); /* they have been consumed */
        CHECK_OK(zro_optim_publish(o));
        CHECK_OK(zro_optim_step(o, NULL));
        rig_step_reference(g);
        rig_check(g);
        CHECK_OK(zro_optim_set_user(o, &loss));
        CHECK_OK(zro_optim_step_closure(o, whole_iteration, g, &loss, &loss));
        CHECK(loss == 5);
        rig_step_reference(g);
        rig_check(g);
        CHECK_STATUS(zro_optim_step_closure(o, failing_closure, g, NULL, NULL), t->rank == 0 ? ZRO_ERR_INVALID : ZRO_ERR_PEER);
        CHECK_TEXT("no loss");
        rig_step_reference(g);
        rig_check(g);
        CHECK_OK(rig_backward(g)); /* a loop without steps */
        CHECK_OK(zro_ddp_backward_end(g->ddp));
        rig_step_reference(g);
        rig_train(g, 2);
        rig_free(g);
    }
    free(g);
}

/* Refused at creation, on all ranks, and what a rank is told that has another setting. */
static void overlap_create(zt_rank *t)
{
    const rig_mode mode = { .memory = RIG_OWN, .optimizers = 1 };
    zro_optim_config c = ZRO_OPTIM_CONFIG_INIT;
    zro_plan_config plan = ZRO_PLAN_CONFIG_INIT;
    zro_param_group of = { 0 };
    zro_optim *optim;
    rig *g = malloc(sizeof *g);

    CHECK(g != NULL);
    rig_init(g, t, t->group, mode, counts, N, t->seed);
    CHECK_OK(rig_create_ddp(g, &g->ddp));
    of.params = g->params;
    of.n = N;
    c.overlap = ZRO_OVERLAP_AFTER_LAST;
    CHECK_STATUS(zro_optim_create(t->group, &of, 1, zro_rule_adam(), NULL, &c, &optim), ZRO_ERR_INVALID);
    CHECK_TEXT("set `ddp`");
    c.ddp = g->ddp;
    c.overlap = (zro_overlap)3;
    CHECK_STATUS(zro_optim_create(t->group, &of, 1, zro_rule_adam(), NULL, &c, &optim), ZRO_ERR_INVALID);
    CHECK_TEXT("ZRO_OVERLAP_INTERLEAVED");
    c.overlap = ZRO_OVERLAP_INTERLEAVED;
    plan.partition = ZRO_PARTITION_GREEDY;
    c.plan = &plan;
    CHECK_STATUS(zro_optim_create(t->group, &of, 1, zro_rule_none(), NULL, &c, &optim), ZRO_ERR_INVALID);
    CHECK_TEXT("needs a rule");
    if (t->size > 1) {
        c.overlap = t->rank == t->size - 1 ? ZRO_OVERLAP_AFTER_LAST : ZRO_OVERLAP_INTERLEAVED;
        CHECK_STATUS(zro_optim_create(t->group, &of, 1, zro_rule_adam(), NULL, &c, &optim), ZRO_ERR_MISMATCH);
        CHECK_TEXT("overlap interleaved");
        CHECK_TEXT("overlap after-last");
    }
    c.overlap = ZRO_OVERLAP_INTERLEAVED; /* in the middle of an iteration, which would count as its first step */
    CHECK_OK(zro_ddp_no_sync(g->ddp, ZRO_ON));
    CHECK_OK(zro_ddp_forward(g->ddp));
    CHECK_STATUS(zro_optim_create(t->group, &of, 1, zro_rule_adam(), NULL, &c, &optim), ZRO_ERR_STATE);
    CHECK_TEXT("in the middle of an iteration");
    CHECK_OK(zro_ddp_backward_end(g->ddp));
    CHECK_OK(zro_ddp_no_sync(g->ddp, ZRO_OFF));
    g->mode.overlap[0] = ZRO_OVERLAP_INTERLEAVED;
    CHECK_OK(rig_create_optim(g, 0, &g->optim[0]));
    rig_create_reference(g);
    rig_train(g, 2);
    rig_free(g);
    free(g);
}

static void count_warnings(void *user, zro_log_level level, const char *text)
{
    if (level == ZRO_LOG_WARN && strstr(text, "behaves as after-last") != NULL)
        ++*(int *)user;
}

/* Once, and only where it is so. */
static void overlap_warns(zt_rank *t)
{
    for (int k = 0; k < 4; k++) {
        const rig_mode mode = { .memory = RIG_OWN, .optimizers = 1, .clip_norm = k / 2 ? 1 : 0, .overlap = { modes[k % 2] } };
        zro_group_config config = zt_config();
        zro_group *group;
        int warnings = 0;
        rig *g = malloc(sizeof *g);

        CHECK(g != NULL);
        config.settings.log = count_warnings;
        config.settings.log_user = &warnings;
        config.settings.log_level = ZRO_LOG_WARN;
        group = zt_group_with(t, &config);
        rig_init(g, t, group, mode, counts, N, t->seed);
        rig_create(g);
        rig_train(g, 3);
        CHECK(warnings == (k == 3 && t->rank == 0));
        rig_free(g);
        free(g);
        zro_group_destroy(group);
    }
}

/* Values that differ are found before anything changes; then training goes on. */
static void overlap_values_differ(zt_rank *t)
{
    const int odd = t->size - 1;
    rig *g = malloc(sizeof *g);

    CHECK(g != NULL);
    for (int k = 0; k < 2; k++) {
        const rig_mode mode = { .memory = RIG_EACH, .optimizers = 1, .bucket_bytes = 2000, .overlap = { modes[k] } };
        zro_status st;

        rig_init(g, t, t->group, mode, counts, N, t->seed);
        rig_create(g);
        rig_train(g, 1);
        CHECK_OK(zro_optim_set_value(g->optim[0], 0, "lr", t->rank == odd ? 0.25 : 0.5));
        st = rig_backward(g);
        CHECK_STATUS(st == ZRO_OK ? zro_ddp_backward_end(g->ddp) : st, ZRO_ERR_MISMATCH);
        CHECK_TEXT("lr = 0.25");
        rig_check(g);
        CHECK_STATUS(zro_optim_step(g->optim[0], NULL), ZRO_ERR_STATE);
        CHECK_OK(zro_optim_set_value(g->optim[0], 0, "lr", 0.5));
        CHECK_OK(zro_optim_set_value(g->reference[0], 0, "lr", 0.5));
        rig_train(g, 2);
        rig_free(g);
    }
    free(g);
}

/* One optimizer overlaps, and the last bucket has parameters of the other alone: nothing is transferred there in backward, and still
 * all ranks hear of a rank that refuses it. */
static void overlap_refused_last(zt_rank *t)
{
    const rig_mode mode = {
        .memory = RIG_OWN, .optimizers = 2, .bucket_bytes = 256, .overlap = { ZRO_OVERLAP_OFF, ZRO_OVERLAP_INTERLEAVED }
    };
    const int odd = t->size - 1;
    rig *g = malloc(sizeof *g);

    CHECK(g != NULL);
    rig_init(g, t, t->group, mode, counts, N, t->seed);
    rig_create(g);
    rig_train(g, 1);
    withhold_last(g);
    if (t->rank != odd)
        CHECK_OK(zro_ddp_grad_ready(g->ddp, 0));
    CHECK_STATUS(zro_ddp_backward_end(g->ddp), t->rank == odd ? ZRO_ERR_STATE : ZRO_ERR_PEER);
    CHECK_TEXT("never became ready");
    for (int k = 0; k < 2; k++)
        CHECK_OK(zro_optim_zero_grad(g->optim[k], ZRO_ZERO_CLEAR));
    CHECK_OK(zro_ddp_check(g->ddp)); /* the ddp is whole */
    rig_free(g);
    free(g);
}

/* A parameter that never becomes ready on one rank, and data that was moved away: after-last has changed nothing; interleaved says how
 * many buckets were updated, on all ranks alike. */
static void overlap_refused(zt_rank *t)
{
    const int odd = t->size - 1;
    rig *g = malloc(sizeof *g);

    CHECK(g != NULL);
    for (int k = 0; k < 2; k++) {
        const rig_mode mode = { .memory = RIG_EACH, .optimizers = 1, .bucket_bytes = 256, .overlap = { modes[k] } };
        float elsewhere[700], *place;

        rig_init(g, t, t->group, mode, counts, N, t->seed);
        rig_create(g);
        rig_train(g, 2);
        withhold_last(g);
        if (t->rank != odd)
            CHECK_OK(zro_ddp_grad_ready(g->ddp, 0));
        CHECK_STATUS(zro_ddp_backward_end(g->ddp), t->rank == odd ? ZRO_ERR_STATE : ZRO_ERR_PEER);
        CHECK_TEXT("never became ready");
        CHECK((strstr(zro_last_error(), "buckets had been updated") != NULL) == (k == 1));
        CHECK_OK(zro_ddp_check(g->ddp));
        if (k == 0)
            rig_check(g);
        place = g->params[0].data;
        if (t->rank == odd)
            g->params[0].data = elsewhere;
        CHECK_OK(rig_backward(g));
        CHECK_STATUS(zro_ddp_backward_end(g->ddp), t->rank == odd ? ZRO_ERR_STATE : ZRO_ERR_PEER);
        CHECK_TEXT("was moved");
        g->params[0].data = place;
        if (k == 0) {
            rig_check(g);
            rig_train(g, 2);
        } else {
            CHECK_OK(rig_backward(g));
            CHECK_OK(rig_rest(g));
            CHECK_OK(zro_ddp_check(g->ddp));
        }
        rig_free(g);
    }
    free(g);
}

/* An optimizer that goes in the middle of an iteration takes this rank's part with it; so does one (the second) that does not overlap
 * itself, since the lane has them all in one list. */
static void overlap_destroyed(zt_rank *t)
{
    const rig_mode mode = { .memory = RIG_OWN, .optimizers = 2, .bucket_bytes = 256, .overlap = { ZRO_OVERLAP_INTERLEAVED } };
    rig *g = malloc(sizeof *g);
    zro_status st;

    CHECK(g != NULL);
    rig_init(g, t, t->group, mode, counts, N, t->seed);
    rig_create(g);
    rig_train(g, 1);
    CHECK_OK(zro_barrier(t->group));
    withhold_last(g);
    if (t->rank == 0) {
        zro_optim_destroy(g->optim[t->arg]);
        g->optim[t->arg] = NULL;
        CHECK_STATUS(zro_group_status(g->ddp->group), ZRO_ERR_LOST);
    } else {
        CHECK_OK(zro_ddp_grad_ready(g->ddp, 0));
        for (int k = 0; k < 2; k++) {
            st = k == 0 ? zro_ddp_backward_end(g->ddp) : zro_optim_step(g->optim[0], NULL);
            CHECK(st == ZRO_ERR_LOST
                  || (st == ZRO_ERR_STATE && strstr(zro_last_error(), "torn") != NULL)); /* as far as it came */
            CHECK_TEXT("destroyed an optimizer");
        }
    }
    CHECK_OK(zro_group_status(t->group));
    rig_free(g);
    free(g);
    CHECK_OK(zro_barrier(t->group));
}

/* Interleaved, gradients are read once; after-last, the average is written, and read again. */
static void overlap_passes(zt_rank *t)
{
    for (int k = 0; k < 2; k++) {
        const rig_mode mode = { .memory = RIG_ONCE, .optimizers = 1, .bucket_bytes = 256, .overlap = { modes[k] } };
        zro_stats before = ZRO_STATS_INIT, after = ZRO_STATS_INIT;
        rig *g = malloc(sizeof *g);

        CHECK(g != NULL);
        rig_init(g, t, t->group, mode, counts, N, t->seed);
        rig_create(g);
        CHECK_OK(rig_backward(g));
        CHECK_OK(rig_rest(g));
        CHECK_OK(zro_ddp_stats(g->ddp, &before));
        for (int i = 0; i < 5; i++) {
            CHECK_OK(rig_backward(g));
            CHECK_OK(rig_rest(g));
        }
        CHECK_OK(zro_ddp_stats(g->ddp, &after));
        CHECK(after.passes - before.passes == (zt_opt.fast == ZRO_OFF || k == 0 ? 10 : 5));
        rig_free(g);
        free(g);
    }
}

/* ---- a rule of the program's own ---- */

typedef struct watch {
    int begun, prepared;
} watch;

static void begin_watched(double *values, size_t group, void *user)
{
    (void)group;
    values[0] /= 2; /* each step half as long as the one before */
    ((watch *)user)->begun++;
}

static void prepare_watched(zro_rule_step *s)
{
    s->scalars[0] = s->values[0];
    ((watch *)s->user)->prepared++;
}

static void watched_f32(const zro_rule_tile *t)
{
    float *x = t->data;
    const float *g = t->grad;

    for (size_t i = 0; i < t->count; i++)
        x[i] -= *(const float *)t->scalars * g[i];
}

static const zro_hyper watched_values[] = { { "lr", ZRO_REAL, 0, 1, 0, 10, 0, NULL } };
static const zro_rule watched = { sizeof watched, "watched", NULL,          watched_values,  1,           NULL, 0, 0,
                                  ZRO_OFF,        NULL,      begin_watched, prepare_watched, watched_f32, NULL };

/* The rule's own changes of values come once per iteration, before the first bucket, and it gets the pointer that was set before. */
static void overlap_custom_rule(zt_rank *t)
{
    for (int k = 0; k < 2; k++) {
        const rig_mode mode = { .memory = RIG_EACH, .optimizers = 0, .bucket_bytes = 256 };
        zro_optim_config c = ZRO_OPTIM_CONFIG_INIT;
        zro_param_group of = { 0 };
        watch w = { 0, 0 };
        double lr;
        rig *g = malloc(sizeof *g);

        CHECK(g != NULL);
        rig_init(g, t, t->group, mode, counts, N, t->seed);
        CHECK_OK(rig_create_ddp(g, &g->ddp));
        of.params = g->params;
        of.n = N;
        c.ddp = g->ddp;
        c.overlap = modes[k];
        CHECK_OK(zro_optim_create(t->group, &of, 1, &watched, NULL, &c, &g->optim[0]));
        CHECK_OK(zro_optim_set_user(g->optim[0], &w));
        for (int i = 1; i <= 3; i++) {
            float expected[3000];

            memcpy(expected, g->params[1].data, sizeof expected);
            CHECK_OK(rig_backward(g));
            CHECK_OK(zro_ddp_backward_end(g->ddp));
            CHECK_OK(zro_optim_step(g->optim[0], i % 2 ? &w : NULL));
            CHECK(w.begun == i && (w.prepared > 0) == (zro_plan_elements(zro_optim_plan(g->optim[0]), t->rank) > 0));
            CHECK_OK(zro_optim_get_value(g->optim[0], 0, "lr", &lr));
            CHECK(lr == 1.0 / (1 << i));
            for (size_t e = 0; e < 3000; e++) {
                float sum = 0;

                for (int q = 0; q < t->size; q++)
                    sum += rig_gradient(g, q, 1, e); /* exact */
                CHECK(((float *)g->params[1].data)[e] == expected[e] - (float)lr * (sum / (float)t->size));
            }
        }
        rig_free(g);
        free(g);
    }
}

#define WORLDS (ZT_WORLD(1) | ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4))
#define FEW (ZT_WORLD(2) | ZT_WORLD(3))
#define S20(name, arg)                                                                                                         \
    {                                                                                                                          \
        "S20_" name, S20_overlap, FEW, ZT_ALL, 0, 0, 0, arg                                                                    \
    }

const zt_case cases_ddp_overlap[] = {
    S20("after_last", 0),
    S20("interleaved", 1),
    S20("after_last_view", 2),
    S20("interleaved_view", 3),
    S20("after_last_static", 4),
    S20("interleaved_static", 5),
    S20("after_last_view_static", 6),
    S20("interleaved_view_static", 7),
    S20("after_last_shards", 8),
    S20("interleaved_shards", 9),
    S20("after_last_view_shards", 10),
    S20("interleaved_view_shards", 11),
    S20("after_last_static_shards", 12),
    S20("interleaved_static_shards", 13),
    S20("after_last_view_static_shards", 14),
    S20("interleaved_view_static_shards", 15),
    { "S40_first_iteration", S40_first_iteration, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "S41_freezing", S41_freezing, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "S41_groups", S41_groups, FEW, ZT_ALL, 0, 0, 0, 0 },
    { "S49_pieces", S49_pieces, ZT_WORLD(1) | FEW, ZT_ALL, 0, 0, 0, 0 },
    { "S50_subgroup", S50_subgroup, ZT_WORLD(4), ZT_ALL, 0, 0, 0, 0 },
    { "S51_pairs", S51_pairs, FEW, ZT_ALL, 0, 0, 0, 0 },
    { "S61_schedules", S61_schedules, FEW, ZT_ALL, 0, 0, 0, 0 },
    { "S80_interleaved", S80_interleaved, FEW, ZT_ALL, 0, 60, 0, RIG_OWN },
    { "S80_interleaved_once", S80_interleaved, FEW, ZT_BOTH, 0, 0, 0, RIG_ONCE },
    { "S81_after_last", S81_after_last, FEW, ZT_ALL, 0, 60, 0, RIG_OWN },
    { "S81_after_last_once", S81_after_last, FEW, ZT_BOTH, 0, 0, 0, RIG_ONCE },
    { "overlap_one_thread_after_last", overlap_one_thread, FEW, ZT_FOREIGN, 0, 0, 0, ZRO_OVERLAP_AFTER_LAST },
    { "overlap_one_thread_interleaved", overlap_one_thread, FEW, ZT_FOREIGN, 0, 0, 0, ZRO_OVERLAP_INTERLEAVED },
#if defined(__x86_64__)
    { "ddp_mode_beside_hook", mode_beside_hook, ZT_WORLD(2), ZT_FOREIGN, 0, 0, 0, 0 },
#endif
    { "overlap_calls", overlap_calls, FEW, ZT_ALL, 0, 0, 0, 0 },
    { "overlap_create", overlap_create, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "overlap_warns", overlap_warns, FEW, ZT_BOTH, 0, 0, 0, 0 },
    { "overlap_values_differ", overlap_values_differ, FEW, ZT_ALL, 0, 0, 0, 0 },
    { "overlap_refused", overlap_refused, FEW, ZT_ALL, 0, 0, 0, 0 },
    { "overlap_refused_last", overlap_refused_last, FEW, ZT_ALL, 0, 0, 0, 0 },
    { "overlap_destroyed", overlap_destroyed, FEW, ZT_BOTH | ZT_FOREIGN, 0, 0, 0, 0 },
    { "overlap_destroyed_other", overlap_destroyed, FEW, ZT_BOTH | ZT_FOREIGN, 0, 0, 0, 1 },
    { "overlap_passes", overlap_passes, FEW, ZT_BOTH, 0, 0, 0, 0 },
    { "overlap_custom_rule", overlap_custom_rule, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
