/* An updater: see updater.h. */
#include "step/updater.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/point.h"
#include "group/group.h"
#include "step/cycle.h"

void zro__updater_init(zro__updater *u, const zro_optim_config *config)
{
    u->clip_norm = config->clip_norm;
    u->clip_type = config->clip_norm_type;
    u->clip_value = config->clip_value;
    u->scales = config->loss_scale;
    u->skips = config->skip_non_finite == ZRO_ON || config->loss_scale == ZRO_ON ? ZRO_ON : ZRO_OFF;
    u->scaler.scale = config->loss_scale == ZRO_ON ? (float)config->scale_init : 1;
    u->scaler.growth = config->scale_growth;
    u->scaler.backoff = config->scale_backoff;
    u->scaler.interval = config->growth_interval;
    u->norm = NAN;
    u->overlap = config->overlap;
}

const char *zro__overlap_name(zro_overlap overlap)
{
    return overlap == ZRO_OVERLAP_AFTER_LAST ? "after-last" : overlap == ZRO_OVERLAP_INTERLEAVED ? "interleaved" : "off";
}

void zro__updater_free(zro__updater *u)
{
    zro__batches_free(u->publish);
    zro__batches_free(u->average);
    zro__batches_free(u->fused);
    zro__norms_free(&u->norms);
    zro__update_free(&u->update);
}

int zro__updater_measures_norm(const zro__updater *u)
{
    return u->clip_norm != 0;
}

int zro__updater_measures_first(const zro__updater *u)
{
    return u->clip_norm != 0 || u->skips == ZRO_ON;
}

static zro__board *board_of(const zro__updater *u)
{
    return zro__cycle_is_shared(u->cycle) ? &u->cycle->group->ranks.board : NULL;
}

static void count_passes(const zro__updater *u, uint64_t n)
{
    if (u->cycle->group != NULL)
        zro__count(&u->cycle->group->ranks.counters.passes, n);
}

void zro__updater_open(zro__updater *u, const zro__claim *claim, void *user)
{
    u->claim = *claim;
    u->rule_user = user;
    u->has_met = u->has_begun = u->passes = 0;
}

/* A vote, in which the ranks also compare their claims if they have not done so in this step. */
static zro_status meet(zro__updater *u, zro_status st)
{
    const int has_met = u->has_met;
    zro__board *board = board_of(u);

    u->has_met = 1;
    if (board == NULL)
        return st;
    return has_met ? zro__vote(board, ZRO__CALL_STEP, st) : zro__claim_agree(board, ZRO__CALL_STEP, &u->claim, st);
}

/* ---- decide ---- */

/* What a step asks of all gradients. */
typedef struct question {
    double p;       /* which norm; 0: none */
    int ask_finite; /* whether all are finite */
    int finite;     /* the answer of this rank's shard; then of all */
} question;

static question ask(const zro__updater *u)
{
    return (question){ u->clip_norm != 0 ? u->clip_type : 0, u->skips == ZRO_ON, 1 };
}

static void measure(zro__updater *u, question *q)
{
    q->finite = zro__update_measure(&u->update, u->norms.partials, q->p, q->ask_finite);
    count_passes(u, 1);
}

/* From this rank's answers to those of all. */
static zro_status exchange(zro__updater *u, question *q, double *norm)
{
    zro_group *group = u->cycle->group;
    const int shared = zro__cycle_is_shared(u->cycle);
    double infinite = !q->finite;
    zro_status st = ZRO_OK;

    *norm = NAN;
    (void)ZRO__POINT("cycle.measured");
    if (shared && q->ask_finite)
        st = zro_all_reduce(group, &infinite, 1, ZRO_F64, ZRO_MAX);
    q->finite = infinite == 0;
    if (st == ZRO_OK && shared && q->p != 0)
        st = zro__norms_exchange(&u->norms, group);
    if (st == ZRO_OK && q->p != 0)
        *norm = zro__norm_of(u->norms.partials, u->norms.n, q->p);
    return st;
}

/* The norm is that of unscaled gradients. */
static zro_status decide(zro__updater *u, question *q, zro__factors *f, double *norm)
{
    const uint64_t begun = zro__trace_begin(zro__trace_of(u->cycle->group));
    zro_status st = exchange(u, q, norm);

    zro__trace_end(zro__trace_of(u->cycle->group), begun, "norm", -1, 0);
    *norm *= f->unscale;
    if (u->clip_norm != 0 && !isinf(u->clip_norm)) /* infinite: only measured */
        f->clip = zro__clip_factor(u->clip_norm, *norm);
    return st;
}

/* ---- update ---- */

void zro__updater_begin(const zro__updater *u)
{
    zro__cycle *c = u->cycle;

    if (c->begun == c->published)
        c->begun++;
    if (c->group != NULL)
        zro__step_begin(&c->group->ranks.board, c->begun);
    (void)ZRO__POINT("cycle.begun");
}

/* All ranks have what changed. */
static void end(const zro__updater *u)
{
    zro__cycle *c = u->cycle;

    c->published = c->begun;
    if (c->group != NULL)
        zro__step_publish(&c->group->ranks.board, c->published);
}

/* The ranks meet, and owners update.  Parameters that exist once are memory of all ranks. */
static zro_status update(zro__updater *u, const zro__factors *factors, zro_status st)
{
    zro__board *board = board_of(u);
    uint64_t begun;

    if (st == ZRO_OK && !u->has_begun)
        st = zro__update_begin(&u->update, u->rule_user);
    st = meet(u, st);
    if (st != ZRO_OK)
        return st;
    u->has_begun = 1;
    if (board != NULL)
        zro__touch_begin(board);
    if (board != NULL && zro__is_broken(board->control))
        st = zro__verdict_get(board->control);
    if (st == ZRO_OK) {
        zro__updater_begin(u);
        u->update.steps = u->n_steps;
        begun = zro__trace_begin(zro__trace_of(u->cycle->group));
        zro__update_run(&u->update, factors, u->rule_user);
        zro__trace_end(zro__trace_of(u->cycle->group), begun, "update", -1, 0);
        (void)ZRO__POINT("cycle.updated");
    }
    if (board != NULL)
        zro__touch_end(board);
    /* The others may have given this rank up, and used the parameters for something else, while it updated them. */
    return st == ZRO_OK && board != NULL && zro__is_broken(board->control) ? zro__verdict_get(board->control) : st;
}

/* Brings what owners have to all ranks; *moved: whether there were any others. */
static zro_status deliver(const zro__updater *u, zro__batches *publish, int *moved)
{
    const uint64_t begun = zro__trace_begin(zro__trace_of(u->cycle->group));
    zro_status st = zro__cycle_is_shared(u->cycle) ? zro__batches_deliver(u->cycle->group, publish, moved) : ZRO_OK;

    zro__trace_end(zro__trace_of(u->cycle->group), begun, "publish", -1, 0);
    return st;
}

static void finish(zro__updater *u, double norm, int goes_on)
{
    if (u->scales == ZRO_ON)
        zro__scaler_update(&u->scaler, !goes_on);
    u->norm = norm;
    u->skipped = !goes_on;
    u->n_skipped += u->skipped;
    u->n_steps++;
}

/* Owners have the average.  If something is asked of all gradients, the ranks have met, and each has measured its shard. */
static zro_status decide_and_update(zro__updater *u, question *q, zro_status st)
{
    zro__factors factors = { zro__scaler_inverse(&u->scaler), 1, u->clip_value };
    double norm = NAN;

    if (st == ZRO_OK && zro__updater_measures_first(u))
        st = decide(u, q, &factors, &norm);
    if (st != ZRO_OK && u->has_met)
        return st;
    if (q->finite)
        st = update(u, &factors, st);
    if (st != ZRO_OK)
        return st;
    if (q->finite)
        count_passes(u, 1);
    u->n_active = u->update.shard.n_active;
    finish(u, norm, q->finite);
    return ZRO_OK;
}

zro_status zro__updater_step(zro__updater *u, zro_status st)
{
    question q = ask(u);

    if (st == ZRO_OK)
        st = zro__shard_scan(&u->update.shard);
    if (st == ZRO_OK)
        st = zro__batches_inspect(u->cycle->group, u->publish);
    if (zro__updater_measures_first(u)) {
        st = meet(u, st);
        if (st == ZRO_OK)
            measure(u, &q);
    }
    return decide_and_update(u, &q, st);
}

/* ---- transfers of gradients ---- */

/* Gradients that are being reduced, and what the owner does with them. */
typedef struct passing {
    zro__updater *u;
    zro__reduction reduction;
    zro__factors factors;
    question *question; /* or NULL: nothing is measured */
    zro__shard_group *group;
    zro__piece *piece; /* that the run under way is of */
    atomic_int found;  /* a gradient is not finite */
} passing;

/* A part is a piece, whole. */
static void find_piece(passing *w, size_t part)
{
    w->piece = zro__shard_find(&w->u->update.shard, w->reduction.batch->items[part].index, &w->group);
}

static zro__sources sources_of(const zro__applied *a)
{
    return (zro__sources){ a->reduce, a->src, a->dst, a->n_dst, a->stream };
}

static void next_fused(void *user, const zro__run *run)
{
    passing *w = user;

    find_piece(w, run->part);
    if (run->first == 0)
        zro__update_prepare(&w->u->update, w->group, w->piece, w->u->rule_user);
    (void)ZRO__POINT("cycle.fused");
}

static void apply_fused(void *user, const zro__applied *a)
{
    passing *w = user;
    const zro__sources sources = sources_of(a);

    zro__update_apply(&w->u->update, w->group, w->piece, a->run.first, a->run.count, &sources, &w->factors, w->u->rule_user);
}

static void arrived_fused(void *user)
{
    passing *w = user;

    zro__updater_begin(w->u);
    w->u->update.steps = w->u->n_steps;
    w->u->has_met = w->u->has_begun = 1;
    zro__update_take(&w->u->update);
}

/* Counts what this rank has updated.  Gradients without elements have a rule's single numbers all the same. */
static void done_fused(void *user)
{
    passing *w = user;
    const zro__batch *b = w->reduction.batch;

    for (size_t i = 0; i < b->n_parts; i++) {
        if (b->parts[i].owner != w->reduction.group->ranks.board.rank || (b->any[i / 64] >> i % 64 & 1) == 0)
            continue;
        w->u->n_active++;
        if (b->parts[i].count > 0)
            continue;
        find_piece(w, i);
        zro__update_prepare(&w->u->update, w->group, w->piece, w->u->rule_user);
    }
}

static void next_measured(void *user, const zro__run *run)
{
    find_piece(user, run->part);
}

static void apply_measured(void *user, const zro__applied *a)
{
    passing *w = user;
    const zro__sources sources = sources_of(a);

    if (!zro__update_measure_sources(&w->u->update, w->piece, a->run.first, a->run.count, &sources, w->u->norms.partials,
                                     w->question->p, w->question->ask_finite))
        atomic_store_explicit(&w->found, 1, memory_order_relaxed); /* read after the pool's own barrier */
}

/* The ranks compare their claims in the first transfer of a step. */
static passing start(zro__updater *u, zro__call call, int to)
{
    passing w = { .u = u, .reduction = zro__cycle_reduction(u->cycle, call, to), .factors = { 1, 1, u->clip_value } };

    w.reduction.claim = u->has_begun ? NULL : &u->claim;
    return w;
}

/* Replicas that get an owner's results in the same pass are deliveries, too. */
static void count_deliveries(const zro__updater *u, const zro__batches *l)
{
    for (; l != NULL; l = l->next)
        for (size_t k = 0; k < l->n; k++)
            zro__count(&u->cycle->group->ranks.counters.deliveries, l->list[k].exists_once ? 0 : l->list[k].n_owners);
}

/* What no part of the step has done yet is done with the first one: the ranks compare their claims, and the rule may change values. */
zro_status zro__updater_fuse_part(zro__updater *u, zro__batches *fused, const zro__batches *publish, zro_status st)
{
    passing w = start(u, zro__updater_overlaps(u) ? ZRO__CALL_DDP_BUCKET : ZRO__CALL_STEP, ZRO__TO_ALL);
    uint64_t begun;

    w.reduction.apply = apply_fused;
    w.reduction.next = next_fused;
    w.reduction.arrived = arrived_fused;
    w.reduction.done = done_fused;
    w.reduction.user = &w;
    if (st == ZRO_OK)
        st = zro__batches_inspect(u->cycle->group, fused);
    if (st == ZRO_OK && !u->has_begun)
        st = zro__update_begin(&u->update, u->rule_user);
    begun = zro__trace_begin(zro__trace_of(u->cycle->group));
    st = zro__batches_reduce(&w.reduction, fused, st);
    zro__trace_end(zro__trace_of(u->cycle->group), begun, "reduce+update+publish", -1, 0);
    if (st == ZRO_OK && zro__cycle_is_shared(u->cycle))
        count_deliveries(u, publish);
    return st;
}

zro_status zro__updater_fuse(zro__updater *u, zro_status st)
{
    u->n_active = 0;
    u->passes = 1;
    st = zro__updater_fuse_part(u, u->fused, u->publish, st);
    if (st == ZRO_OK)
        zro__updater_end_parts(u);
    return st;
}

zro_status zro__updater_reduce_and_step(zro__updater *u, zro_status st)
{
    question q = ask(u);
    passing w = start(u, ZRO__CALL_STEP, ZRO__TO_OWNER);
    uint64_t begun;

    w.question = &q;
    w.reduction.user = &w;
    if (zro__updater_measures_first(u)) {
        w.reduction.apply = apply_measured;
        w.reduction.next = next_measured;
    }
    if (st == ZRO_OK)
        st = zro__batches_inspect(u->cycle->group, u->average);
    if (st == ZRO_OK)
        st = zro__batches_inspect(u->cycle->group, u->publish);
    if (q.p != 0)
        zro__update_clear_partials(&u->update, u->norms.partials);
    begun = zro__trace_begin(zro__trace_of(u->cycle->group));
    st = zro__batches_reduce(&w.reduction, u->average, st);
    zro__trace_end(zro__trace_of(u->cycle->group), begun, "reduce", -1, 0);
    if (st != ZRO_OK)
        return st;
    count_passes(u, 1);
    u->stage = ZRO__REDUCED;
    u->has_met = 1;
    q.finite = !atomic_load_explicit(&w.found, memory_order_relaxed);
    return decide_and_update(u, &q, zro__shard_scan(&u->update.shard));
}

zro_status zro__updater_average(zro__updater *u)
{
    zro__reduction r = zro__cycle_reduction(u->cycle, ZRO__CALL_DDP_AVERAGE, ZRO__TO_ALL);
    zro_status st = zro__batches_inspect(u->cycle->group, u->average);

    if (u->stage == ZRO__READY)
        st = zro__batches_reduce(&r, u->average, st);
    else /* owners have it */
        st = zro__cycle_vote(u->cycle, ZRO__CALL_DDP_AVERAGE, st);
    for (zro__batches *l = u->average; u->stage == ZRO__REDUCED && st == ZRO_OK && l != NULL; l = l->next)
        for (size_t k = 0; st == ZRO_OK && k < l->n; k++)
            st = zro__batch_send(u->cycle->group, l, &l->list[k], ZRO__CALL_DDP_AVERAGE);
    if (st != ZRO_OK)
        return st;
    count_passes(u, 1);
    u->stage = ZRO__AVERAGED;
    return ZRO_OK;
}

/* ---- a step in parts ---- */

/* Finds out which of this rank's pieces in a list have a gradient. */
static zro_status scan_part(zro__updater *u, const zro__batches *l)
{
    zro_status st = ZRO_OK;

    zro__shard_scan_none(&u->update.shard);
    for (; l != NULL; l = l->next)
        for (size_t k = 0; k < l->n; k++)
            for (size_t i = 0; st == ZRO_OK && i < l->list[k].n_parts; i++)
                if (l->list[k].parts[i].owner == u->cycle->group->ranks.board.rank)
                    st = zro__shard_scan_one(&u->update.shard, l->list[k].items[i].index);
    return st;
}

zro_status zro__updater_step_part(zro__updater *u, const zro__batches *fused, zro__batches *publish, zro_status st)
{
    const zro__factors factors = { 1, 1, u->clip_value };
    int moved = 0;

    if (st == ZRO_OK)
        st = zro__batches_inspect(u->cycle->group, publish);
    if (st == ZRO_OK)
        st = scan_part(u, fused);
    st = update(u, &factors, st);
    if (st != ZRO_OK)
        return st;
    u->n_active += u->update.shard.n_active;
    st = deliver(u, publish, &moved);
    u->passes = u->passes > 1 + moved ? u->passes : 1 + moved;
    return st;
}

void zro__updater_end_parts(zro__updater *u)
{
    count_passes(u, (uint64_t)u->passes);
    end(u);
    finish(u, NAN, 1);
}

/* ---- publish ---- */

zro_status zro__updater_deliver(zro__updater *u)
{
    int moved = 0;
    zro_status st = deliver(u, u->publish, &moved);

    count_passes(u, (uint64_t)moved);
    if (st == ZRO_OK)
        end(u);
    return st;
}

zro_status zro__updater_publish(zro__updater *u, zro_status st)
{
    if (st == ZRO_OK)
        st = zro__batches_inspect(u->cycle->group, u->publish);
    st = zro__cycle_vote(u->cycle, ZRO__CALL_PUBLISH, st);
    if (st != ZRO_OK)
        return st;
    zro__updater_begin(u);
    return zro__updater_deliver(u);
}

/* ---- clipping as a call ---- */

static __attribute__((noinline)) zro_status clip(zro__updater *u, double max, double p, zro_status st, double *norm)
{
    zro__factors factors = { 1, 1, 0 };
    question q = { p, 0, 1 };
    char arguments[80];
    uint64_t number = 0;

    snprintf(arguments, sizeof arguments, "max_norm = %.17g, norm_type = %.17g", max, p);
    if (st == ZRO_OK)
        st = zro__shard_scan(&u->update.shard);
    if (board_of(u) != NULL)
        st = zro__agree(board_of(u), ZRO__CALL_NORM, "the arguments of clip_grad_norm", arguments, &number, st);
    if (st == ZRO_OK) {
        measure(u, &q);
        st = exchange(u, &q, norm);
    }
    if (st != ZRO_OK)
        return st;
    factors.clip = zro__clip_factor(max, *norm);
    if (max >= 0)
        zro__update_grads(&u->update, &factors);
    return ZRO_OK;
}

zro_status zro__updater_clip_value(zro__updater *u, double max)
{
    zro__factors factors = { 1, 1, max };
    zro_status st = zro__shard_scan(&u->update.shard);

    if (st == ZRO_OK)
        zro__update_grads(&u->update, &factors);
    return st;
}

zro_status zro__updater_clip_norm(zro__updater *u, double max, double p, zro_status st, double *norm)
{
    double found = NAN;
    zro_status entered = zro__cycle_enter(u->cycle, u);

    if (entered != ZRO_OK)
        return entered;
    st = zro__cycle_leave(u->cycle, clip(u, max, p, st, &found));
    if (st == ZRO_OK && norm != NULL)
        *norm = found;
    return st;
}
