/* Iterations: what a program calls in its loop, and what is wrong with the order in which it does.
 *
 * A gradient is final when it became ready as often as it should: once or, with a static graph, as often as in the first iteration.
 * In that one nobody knows yet, so there buckets become full when backward has ended.
 *
 * Buckets are formed once more at the second forward that syncs, in the order in which rank 0's gradients (under a join, those of the
 * lowest rank that had inputs) became ready in the first iteration.  With find_unused that order says nothing, because it may be another one each time. */
#include <string.h>

#include "base/param.h"
#include "base/point.h"
#include "base/status.h"
#include "ddp/ddp.h"
#include "group/group.h"

/* Sums of weights, and products with gradients, are made in f32, too. */
#define LEAST_WEIGHT 1e-30
#define MOST_WEIGHT 1e30

static zro_status fail(const zro_ddp *d, zro_status code, size_t i, const char *text)
{
    return zro__param_fail(code, d->names[i], i, "%s", text);
}

static int is_static(const zro_ddp *d)
{
    return d->config.static_graph == ZRO_ON;
}

/* Whether it is known how often parameters become ready. */
static int has_learned(const zro_ddp *d)
{
    return !is_static(d) || d->n_synced > 0;
}

/* How often a parameter becomes ready before its gradient is final. */
static unsigned times(const zro_ddp *d, size_t i)
{
    return is_static(d) ? d->learned[i] : 1;
}

/* ---- forward ---- */

/* Puts the parameters that never became ready behind the others, in the order of the buckets so far. */
static void complete_order(zro_ddp *d)
{
    size_t n = atomic_load_explicit(&d->n_ready, memory_order_relaxed);

    for (size_t i = 0; i < d->n; i++)
        atomic_store_explicit(&d->seen[i], 0, memory_order_relaxed);
    for (size_t i = 0; i < n; i++)
        atomic_store_explicit(&d->seen[d->ready[i]], 1, memory_order_relaxed);
    for (size_t i = 0; i < d->n; i++)
        if (atomic_load_explicit(&d->seen[d->cycle->order[i]], memory_order_relaxed) == 0)
            d->ready[n++] = d->cycle->order[i];
}

/* Forms the buckets in one rank's order. */
static zro_status regroup(zro_ddp *d)
{
    zro_status st;

    complete_order(d);
    st = zro_broadcast(d->group, d->ready, d->n, ZRO_I64, d->leader);
    if (st == ZRO_OK)
        st = zro__cycle_vote(d->cycle, ZRO__CALL_DDP_FORWARD, zro__ddp_form(d, d->ready));
    d->regrouped = st == ZRO_OK; /* otherwise some ranks may have the new buckets, and others the old ones: all try again */
    return st;
}

/* The iteration before is over, and if it has failed on any rank this one knows: by its buckets, or by the step.  So all ranks learn
 * from the same ones, and form buckets anew at the same forward.  A shadow has seen nothing, and learns from the lowest rank that has.
 * Collective if the iteration had shadows. */
static zro_status learn(zro_ddp *d)
{
    const zro__iteration *before = &d->cycle->now;
    const int counts = d->has_ended && before->failed == ZRO_OK, learns = counts && d->n_synced == 0;

    d->has_ended = 0;
    for (size_t i = 0; learns && i < d->n; i++)
        d->learned[i] = atomic_load_explicit(&d->seen[i], memory_order_relaxed);
    if (learns)
        d->leader = before->lowest;
    d->n_synced += (uint64_t)counts;
    return learns && is_static(d) && before->has_shadows ? zro_broadcast(d->group, d->learned, d->n, ZRO_I32, d->leader)
                                                         : ZRO_OK;
}

/* What ranks do together before an iteration.  Inside the lane. */
static zro_status prepare(zro_ddp *d)
{
    const int regroups = d->n_synced > 0 && !d->regrouped && (d->config.find_unused == ZRO_OFF || is_static(d));
    zro_status st = regroups ? regroup(d) : ZRO_OK;

    if (st == ZRO_OK && d->config.broadcast_buffers == ZRO_ON)
        st = zro__ddp_send_buffers(d, d->cycle->join != NULL ? d->cycle->join->highest : 0);
    return st;
}

/* An iteration, after its turn; of a shadow, too. */
static zro_status begin(zro_ddp *d, int syncs)
{
    const uint64_t begun = zro__trace_begin(zro__trace_of(d->group));
    const int synced = d->cycle->now.syncs; /* the iteration before */
    zro_status st = learn(d);

    if (st == ZRO_OK && syncs) {
        st = zro__enter(d->group);
        if (st == ZRO_OK)
            st = zro__leave(d->group, prepare(d));
    }
    (void)ZRO__POINT("ddp.forward");
    if (st == ZRO_OK)
        st = zro__cycle_open(d->cycle, syncs, d->weight);
    for (size_t i = 0; st == ZRO_OK && i < d->n; i++) {
        d->earlier[i] = !synced && (d->earlier[i] || atomic_load_explicit(&d->seen[i], memory_order_relaxed) > 0);
        atomic_store_explicit(&d->seen[i], 0, memory_order_relaxed);
    }
    if (st == ZRO_OK && d->n_synced == 0) /* the iteration before, if there was one, has failed */
        atomic_store_explicit(&d->n_ready, 0, memory_order_relaxed);
    zro__trace_end(zro__trace_of(d->group), begun, "ddp_forward", (int64_t)d->cycle->now.number, 0);
    return st;
}

zro_status zro_ddp_forward(zro_ddp *d)
{
    const int syncs = d == NULL || d->no_sync == ZRO_OFF;
    zro_status st = zro__ddp_check(d, "ddp_forward");

    if (st == ZRO_OK)
        st = zro__cycle_check_open(d->cycle);
    if (st == ZRO_OK)
        st = zro__cycle_turn(d->cycle, NULL, (zro__turn){ .deed = ZRO__FORWARD, .syncs = syncs });
    return st == ZRO_OK ? begin(d, syncs) : st;
}

/* ---- ready ---- */

static zro_status check_ready(const zro_ddp *d, size_t i)
{
    const zro_param *p;

    if (i >= d->n)
        return zro__fail(ZRO_ERR_INVALID, "ddp_grad_ready: there is no parameter %zu, only %zu of them", i, d->n);
    p = &d->params[i];
    if (!d->cycle->now.is_open)
        return fail(d, ZRO_ERR_STATE, i, "it became ready outside of an iteration: call zro_ddp_forward first");
    if (p->requires_grad == 0)
        return fail(d, ZRO_ERR_STATE, i, "it became ready although it is frozen (requires_grad is 0)");
    if (!d->cycle->awaited[i])
        return fail(d, ZRO_ERR_STATE, i, "it became ready, but was frozen at zro_ddp_forward: set requires_grad before that");
    if (p->grad == NULL && zro_param_count(p) > 0)
        return fail(d, ZRO_ERR_INVALID, i, "it became ready, but its grad is NULL");
    if (d->handed[i] != NULL && p->grad != d->handed[i])
        return fail(d, ZRO_ERR_STATE, i, "its gradient was moved from where zro had put it; write it there");
    return ZRO_OK;
}

/* Whether its gradient is present is said after the call was accepted: one that is refused has no effect; and before the bucket is
 * told, since its transfer may begin then. */
static zro_status ready(zro_ddp *d, size_t i, int present)
{
    unsigned before = atomic_fetch_add_explicit(&d->seen[i], 1, memory_order_relaxed);

    if (!is_static(d) && before > 0)
        return fail(d, ZRO_ERR_STATE, i,
                    "it became ready twice in one iteration; if several uses share it, call grad_ready after the last, or set "
                    "static_graph");
    if (is_static(d) && has_learned(d) && d->cycle->now.syncs && before >= times(d, i))
        return zro__param_fail(
            ZRO_ERR_STATE, d->names[i], i,
            "it became ready more often than in the first iteration (%u times), although the graph is static", times(d, i));
    if (before == 0 && d->n_synced == 0 && d->cycle->now.syncs)
        d->ready[atomic_fetch_add_explicit(&d->n_ready, 1, memory_order_relaxed)] = i;
    if (present)
        zro__param_mark(&d->params[i], 1);
    return has_learned(d) && before + 1 == times(d, i) ? zro__cycle_ready(d->cycle, i) : ZRO_OK;
}

static zro_status grad_ready(zro_ddp *d, size_t i)
{
    zro_status st = check_ready(d, i);

    return st == ZRO_OK ? ready(d, i, 1) : st;
}

zro_status zro_ddp_grad_ready(zro_ddp *d, size_t i)
{
    zro_status st = zro__ddp_check(d, "ddp_grad_ready");

    return st == ZRO_OK ? grad_ready(d, i) : st;
}

zro_status zro_ddp_grads_ready(zro_ddp *d, const size_t *index, size_t n)
{
    zro_status st = zro__ddp_check(d, "ddp_grads_ready");

    if (st == ZRO_OK && index == NULL && n > 0)
        st = zro__fail(ZRO_ERR_INVALID, "ddp_grads_ready: index is NULL");
    for (size_t i = 0; st == ZRO_OK && i < n; i++)
        st = grad_ready(d, index[i]);
    return st;
}

zro_status zro_ddp_unused(zro_ddp *d, size_t i)
{
    zro_status st = zro__ddp_check(d, "ddp_unused");

    if (st == ZRO_OK && i >= d->n)
        st = zro__fail(ZRO_ERR_INVALID, "ddp_unused: there is no parameter %zu, only %zu of them", i, d->n);
    if (st == ZRO_OK && (d->config.find_unused == ZRO_OFF || is_static(d)))
        st = fail(d, ZRO_ERR_STATE, i, "ddp_unused needs find_unused, and no static graph");
    if (st == ZRO_OK && !d->cycle->now.is_open)
        st = fail(d, ZRO_ERR_STATE, i, "ddp_unused was called outside of an iteration: call zro_ddp_forward first");
    return st == ZRO_OK && d->cycle->awaited[i] ? ready(d, i, 0) : st;
}

/* ---- the end of backward ---- */

/* OK, or what is wrong with the parameters that became ready. */
static zro_status check_end(const zro_ddp *d)
{
    const zro__board *board = &d->group->ranks.board;
    char rank[64];

    for (size_t i = 0; i < d->n; i++) {
        const unsigned seen = atomic_load_explicit(&d->seen[i], memory_order_relaxed);

        if (d->params[i].requires_grad == 0 || !d->cycle->awaited[i] || (is_static(d) && !has_learned(d)))
            continue;
        if (is_static(d) && seen < times(d, i)) /* what is too many was refused */
            return zro__param_fail(ZRO_ERR_STATE, d->names[i], i,
                                   "on %s it became ready %u times, and %u times in the first iteration, although the graph is "
                                   "static",
                                   zro__rank_name(board, board->rank, rank, sizeof rank), seen, times(d, i));
        if (!is_static(d) && d->config.find_unused == ZRO_OFF && seen == 0 && !d->earlier[i])
            return zro__param_fail(ZRO_ERR_STATE, d->names[i], i,
                                   "on %s it never became ready in this iteration; call zro_ddp_grad_ready for it, freeze it "
                                   "(requires_grad = 0), or set find_unused",
                                   zro__rank_name(board, board->rank, rank, sizeof rank));
    }
    return ZRO_OK;
}

static zro_status end(zro_ddp *d, zro_status st)
{
    const int syncs = d->cycle->now.is_open && d->cycle->now.syncs;
    const uint64_t begun = zro__trace_begin(zro__trace_of(d->group));

    (void)ZRO__POINT("ddp.end");
    st = zro__cycle_end(d->cycle, st);
    zro__trace_end(zro__trace_of(d->group), begun, "ddp_backward_end", (int64_t)d->cycle->now.number, 0);
    if (syncs)
        d->has_ended = st == ZRO_OK;
    return st;
}

zro_status zro_ddp_backward_end(zro_ddp *d)
{
    zro_status st = zro__ddp_check(d, "ddp_backward_end");

    if (st != ZRO_OK)
        return st;
    return end(d, d->cycle->now.is_open && d->cycle->now.syncs ? check_end(d) : ZRO_OK);
}

zro_status zro__ddp_shadow(zro_ddp *d, int syncs)
{
    zro_status st = begin(d, syncs);

    return st == ZRO_OK ? end(d, ZRO_OK) : st;
}

zro_status zro_ddp_shadow(zro_ddp *d)
{
    zro_status st = zro_ddp_forward(d);

    if (st != ZRO_OK)
        return st;
    for (size_t i = 0; i < d->n; i++)
        zro__param_mark(&d->params[i], 0);
    if (d->cycle->now.syncs && !has_learned(d))
        st = zro__fail(ZRO_ERR_STATE,
                       "ddp_shadow: the graph is static, and this is the first iteration, in which every rank must have "
                       "gradients");
    return end(d, st);
}

/* ---- settings ---- */

zro_status zro_ddp_no_sync(zro_ddp *d, zro_switch on)
{
    zro_status st = zro__ddp_check(d, "ddp_no_sync");

    if (st == ZRO_OK && on != ZRO_ON && on != ZRO_OFF)
        st = zro__fail(ZRO_ERR_INVALID, "ddp_no_sync: on must be ZRO_ON or ZRO_OFF");
    if (st == ZRO_OK)
        d->no_sync = on;
    return st;
}

zro_status zro_ddp_set_weight(zro_ddp *d, double weight)
{
    zro_status st = zro__ddp_check(d, "ddp_set_weight");

    if (st == ZRO_OK && d->config.weighted == ZRO_OFF)
        st = zro__fail(ZRO_ERR_STATE, "ddp_set_weight: averages are not weighted; set `weighted` in zro_ddp_config");
    if (st == ZRO_OK && weight != 0 && !(weight >= LEAST_WEIGHT && weight <= MOST_WEIGHT))
        st = zro__fail(ZRO_ERR_INVALID, "ddp_set_weight: weight = %g, must be 0 or from %g to %g", weight, LEAST_WEIGHT,
                       MOST_WEIGHT);
    if (st == ZRO_OK)
        d->weight = weight;
    return st;
}

zro_status zro_ddp_average(zro_ddp *d)
{
    zro_status st = zro__ddp_check(d, "ddp_average");

    if (st == ZRO_OK)
        st = zro__cycle_turn(d->cycle, NULL, (zro__turn){ .deed = ZRO__AVERAGE });
    return st == ZRO_OK ? zro__cycle_average(d->cycle) : st;
}
