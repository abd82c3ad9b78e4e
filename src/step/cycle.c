/* The cycle: see cycle.h. */
#include "step/cycle.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/param.h"
#include "base/point.h"
#include "group/group.h"

const zro__row zro__row_ddp = { "averaged for all ranks as buckets become ready", ZRO__AT_BUCKET, ZRO__NEVER };
const zro__row zro__row_alone = { "updated and published at step", ZRO__NEVER, ZRO__AT_STEP };
const zro__row zro__row_one_pass = { "reduced, updated and published at step, in one pass", ZRO__AT_STEP, ZRO__AT_STEP };
const zro__row zro__row_attached = { "reduced for owners as buckets become ready, updated and published at step",
                                     ZRO__AT_BUCKET, ZRO__AT_STEP };
const zro__row zro__row_after_last = { "reduced for owners as buckets become ready, updated and published when the last one is",
                                       ZRO__AT_BUCKET, ZRO__AT_LAST };
const zro__row zro__row_interleaved = { "reduced, updated and published as buckets become ready", ZRO__AT_BUCKET,
                                        ZRO__AT_BUCKET };

/* ---- create and release ---- */

zro_status zro__cycle_create(zro_group *group, zro__account *account, zro__cycle **out)
{
    zro__cycle *c = *out = zro__alloc(NULL, ZRO__KIND_HANDLE, sizeof *c);

    if (c == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: the cycle of a training step");
    atomic_init(&c->refs, 1);
    pthread_mutex_init(&c->lock, NULL);
    c->group = group;
    c->account = account;
    c->now.weight = 1;
    return ZRO_OK;
}

void zro__cycle_retain(zro__cycle *c)
{
    atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
}

static void free_buckets(zro__cycle *c)
{
    zro__lists_free(c);
    for (size_t k = 0; k < c->n_buckets; k++)
        zro_work_destroy(c->buckets[k].work);
    c->n_buckets = 0;
    zro__arena_free(&c->arena);
}

/* The last one frees; acquire and release so that it sees what the others did.  The lane must have ended before the buckets go, and
 * the group's account must outlive them. */
void zro__cycle_release(zro__cycle *c)
{
    zro__seat *seat = c != NULL && c->group != NULL ? c->group->seat : NULL;

    if (c == NULL || atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) > 1)
        return;
    if (seat != NULL && !zro__view_is_alive(seat->view))
        return; /* a forked child: what it has is the parent's */
    if (seat != NULL)
        zro__seat_retain(seat);
    zro_group_destroy(c->group);
    free_buckets(c);
    pthread_mutex_destroy(&c->lock);
    zro__free(c);
    if (seat != NULL)
        zro__seat_release(seat);
}

void zro__cycle_cancel(zro__cycle *c, const char *what)
{
    zro__board *board = &c->group->ranks.board;
    char name[64];

    if (!c->now.is_open || !c->now.syncs || c->n_params == 0)
        return;
    zro__fail(ZRO_ERR_LOST, "%s destroyed %s in the middle of an iteration",
              zro__rank_name(board, board->rank, name, sizeof name), what);
    (void)zro__break(board, ZRO_ERR_LOST, board->rank);
}

void zro__cycle_close(zro__cycle *c)
{
    zro__lane_enter(c->group->lane);
    free_buckets(c);
    c->n_params = 0;
    c->now.is_open = 0;
    c->is_closed = 1;
}

/* ---- ranks ---- */

int zro__cycle_is_shared(const zro__cycle *c)
{
    return c->group != NULL && c->group->ranks.board.size > 1;
}

zro_status zro__cycle_check(const zro__cycle *c)
{
    zro_status st = c->group != NULL ? zro__check_group(c->group) : ZRO_OK;
    uint64_t begun, published;
    char name[64], why[ZRO__TEXT_BYTES];
    int rank = 0;

    if ((st != ZRO_ERR_LOST && st != ZRO_ERR_TIMEOUT) || !zro__step_torn(&c->group->ranks.board, &rank, &begun, &published))
        return st;
    snprintf(why, sizeof why, "%.600s", zro_last_error());
    return zro__fail(ZRO_ERR_STATE,
                     "the parameters are torn: %s has published %" PRIu64 " steps, and %" PRIu64
                     " were begun; load a checkpoint into a new group (%s)",
                     zro__rank_name(&c->group->ranks.board, rank, name, sizeof name), published, begun, why);
}

zro_status zro__cycle_vote(const zro__cycle *c, zro__call call, zro_status st)
{
    return zro__cycle_is_shared(c) ? zro__vote(&c->group->ranks.board, call, st) : st;
}

void zro__cycle_serve(zro__cycle *c, const zro__updater *u)
{
    if (c->group != NULL)
        zro__board_serve(&c->group->ranks.board, u != NULL && u->is_attached ? u->number : -1);
}

zro_status zro__cycle_enter(zro__cycle *c, const zro__updater *u)
{
    zro_status st = zro__cycle_check(c);

    if (st == ZRO_OK && c->group != NULL)
        st = zro__enter(c->group);
    else if (c->group != NULL)
        zro__group_settle(c->group);
    if (st != ZRO_OK)
        return st;
    zro__cycle_serve(c, u);
    if (c->depth++ == 0)
        zro__fpmode_enter(&c->mode);
    return ZRO_OK;
}

/* A failure in the middle of an update keeps its code, and gets a text that says whether parameters are torn. */
zro_status zro__cycle_leave(zro__cycle *c, zro_status st)
{
    if (--c->depth == 0)
        zro__fpmode_leave(&c->mode);
    zro__cycle_serve(c, NULL);
    if (c->group != NULL)
        st = zro__leave(c->group, st);
    if (st == ZRO_ERR_LOST || st == ZRO_ERR_TIMEOUT)
        (void)zro__cycle_check(c);
    return st;
}

zro__reduction zro__cycle_reduction(const zro__cycle *c, zro__call call, int to)
{
    return (zro__reduction){
        .group = c->group,
        .call = call,
        .op = ZRO_AVG,
        .to = to,
        .weighted = c->weighted,
        .weight = c->now.weight,
        .divisor = c->now.divisor,
    };
}

/* ---- optimizers ---- */

size_t zro__cycle_index(const zro__cycle *c, const zro_param *p)
{
    uintptr_t at = (uintptr_t)p, first = (uintptr_t)c->params;

    return at >= first && at < first + c->n_params * sizeof *p ? (at - first) / sizeof *p : SIZE_MAX;
}

void zro__cycle_attach(zro__cycle *c, zro__updater *u)
{
    c->stale = 1;
    if (u->is_attached)
        return;
    u->next = c->updaters;
    c->updaters = u;
    u->is_attached = 1;
    u->number = c->n_attached++;
}

/* Where any updater overlaps, the lane goes through the list of them all. */
void zro__cycle_detach(zro__cycle *c, zro__updater *u)
{
    if (u->is_attached && c->overlaps && zro__view_is_alive(c->group->seat->view)) {
        zro__cycle_cancel(c, "an optimizer");
        zro__lane_enter(c->group->lane);
    }
    for (zro__updater **at = &c->updaters; u->is_attached && *at != NULL; at = &(*at)->next)
        if (*at == u) {
            *at = u->next;
            u->is_attached = 0;
            c->stale = 1;
            return;
        }
}

zro__updater *zro__cycle_find(const zro__cycle *c, int32_t number)
{
    zro__updater *u = c->updaters;

    while (u != NULL && u->number != number)
        u = u->next;
    return u;
}

/* A ddp begins with its cycle. */
zro__cycle *zro__cycle_of_ddp(const zro_ddp *ddp)
{
    return ddp != NULL ? *(zro__cycle *const *)(const void *)ddp : NULL;
}

const zro__row *zro__cycle_row(const zro__cycle *c, const zro__updater *u)
{
    const zro_rule *rule = u->update.shard.rule;

    if (!u->is_attached)
        return &zro__row_alone;
    if (zro__updater_overlaps(u))
        return u->overlap == ZRO_OVERLAP_INTERLEAVED && !zro__updater_measures_first(u) ? &zro__row_interleaved
                                                                                        : &zro__row_after_last;
    return c->hook == NULL && u->merges && rule != NULL && rule->whole == ZRO_OFF ? &zro__row_one_pass : &zro__row_attached;
}

/* Whether the last iteration has gradients of all ranks. */
static zro_status check_synced(const zro__cycle *c)
{
    if (c->now.failed != ZRO_OK)
        return zro__fail(ZRO_ERR_STATE, "there is nothing to consume, because the iteration failed: %.900s", c->now.text);
    if (c->now.number > 0 && !c->now.syncs)
        return zro__fail(ZRO_ERR_STATE,
                         "the last backward was under no_sync, so its gradients were not averaged: switch it off "
                         "before the last micro-batch");
    return ZRO_OK;
}

/* An attached updater consumes gradients of an iteration that has ended. */
static zro_status check_stage(const zro__cycle *c, const zro__updater *u)
{
    zro_status st;

    if (!u->is_attached)
        return ZRO_OK;
    if (c->n_params == 0)
        return zro__fail(ZRO_ERR_STATE, "the ddp that this optimizer is attached to was destroyed");
    if (c->now.is_open)
        return zro__fail(ZRO_ERR_STATE, "the iteration has not ended: call zro_ddp_backward_end before the step");
    st = check_synced(c);
    if (st != ZRO_OK)
        return st;
    if (u->stage == ZRO__EMPTY)
        return zro__fail(ZRO_ERR_STATE, "there are no gradients to consume: call zro_ddp_forward, backward, and "
                                        "zro_ddp_backward_end before each step");
    return ZRO_OK;
}

/* Whether the last iteration has something to average. */
static zro_status check_average(const zro__cycle *c)
{
    zro_status st;

    if (c->now.is_open || c->now.number == 0)
        return zro__fail(ZRO_ERR_STATE, "ddp_average: call it after zro_ddp_backward_end");
    st = zro__cycle_check(c); /* a verdict comes first */
    if (st == ZRO_OK)
        st = check_synced(c);
    for (const zro__updater *u = c->updaters; st == ZRO_OK && u != NULL; u = u->next)
        if (zro__updater_overlaps(u))
            st = zro__cycle_check_reduced(u, "ddp_average");
    return st;
}

/* What this rank would refuse by itself must not become a turn: ranks that have run out would do it. */
static zro_status check_turn(const zro__cycle *c, const zro__updater *u, zro__deed deed)
{
    zro_status st = zro__cycle_check(c); /* a verdict, which the others have, too, comes first */

    if (st == ZRO_OK && (deed == ZRO__STEP || deed == ZRO__STEP_LOCAL))
        st = check_stage(c, u);
    return st == ZRO_OK && deed == ZRO__AVERAGE ? check_average(c) : st;
}

static void fail_iteration(zro__cycle *c, zro_status st);

zro_status zro__cycle_turn(zro__cycle *c, const zro__updater *u, zro__turn turn)
{
    zro_status st;

    if (c->join == NULL || c->join->follows)
        return ZRO_OK;
    turn.joinable = c->joinable;
    turn.updater = u != NULL && u->is_attached ? u->number : -1;
    st = check_turn(c, u, turn.deed);
    if (st != ZRO_OK) {
        if (c->group != NULL)
            zro__group_settle(c->group);
        return st;
    }
    st = zro__join_turn(c->join, &turn, &turn);
    if (st == ZRO_ERR_PEER && turn.joinable == c->joinable)
        fail_iteration(c, st);
    return st;
}

static void consume(zro__updater *u)
{
    if (!u->is_attached)
        return;
    zro__batches_consume(u->average);
    u->stage = ZRO__EMPTY;
}

/* Inside the lane. */
static __attribute__((noinline)) zro_status step(zro__updater *u, zro__stage stage, zro_status st, int publishes)
{
    if (stage == ZRO__READY && publishes && !zro__updater_measures_first(u))
        return zro__updater_fuse(u, st);
    st = stage == ZRO__READY ? zro__updater_reduce_and_step(u, st) : zro__updater_step(u, st);
    return st == ZRO_OK && publishes && !u->skipped ? zro__updater_deliver(u) : st;
}

zro_status zro__cycle_step(zro__cycle *c, zro__updater *u, const zro__claim *claim, zro_status st, void *user, int publishes)
{
    uint64_t begun;
    zro_status entered = zro__cycle_check(c); /* a verdict is more than a gradient that is not there */

    if (entered == ZRO_OK)
        entered = check_stage(c, u);
    if (entered == ZRO_OK && zro__updater_overlaps(u)) {
        u->stage = ZRO__EMPTY;
        return st;
    }
    if (entered == ZRO_OK)
        entered = zro__cycle_enter(c, u);
    if (entered != ZRO_OK)
        return entered;
    begun = zro__trace_begin(zro__trace_of(c->group));
    zro__updater_open(u, claim, user);
    st = step(u, u->stage, st, publishes);
    zro__trace_end(zro__trace_of(c->group), begun, "step", (int64_t)u->n_steps, 0);
    if (st == ZRO_OK)
        consume(u);
    else if (u->is_attached && st != ZRO_ERR_MISMATCH) { /* values that differ can be set right, and the step be made again */
        c->now.failed = st;
        snprintf(c->now.text, sizeof c->now.text, "%s", zro_last_error());
    }
    return zro__cycle_leave(c, st);
}

zro_status zro__cycle_publish(zro__cycle *c, zro__updater *u, zro_status st)
{
    zro_status entered = zro__cycle_enter(c, u);

    if (entered != ZRO_OK)
        return entered;
    st = zro__updater_publish(u, st);
    if (st == ZRO_OK && u->update.shard.rule == NULL) /* then that was the step */
        consume(u);
    return zro__cycle_leave(c, st);
}

void zro__cycle_drop(zro__cycle *c, zro__updater *u)
{
    if (c->group != NULL)
        zro__lane_enter(c->group->lane);
    if (u->stage != ZRO__STEPPED) /* those have been consumed */
        u->stage = ZRO__EMPTY;
}

zro_status zro__cycle_check_idle(const zro__updater *u, const char *call, int after_step)
{
    const int is_open = u->cycle->now.is_open, follows = u->cycle->join != NULL && u->cycle->join->follows;

    if (!u->is_attached || follows || !zro__updater_overlaps(u) || (!is_open && !(after_step && u->stage == ZRO__STEPPED)))
        return ZRO_OK;
    return zro__fail(ZRO_ERR_STATE,
                     "%s: the optimizer updates parameters during backward (overlap %s), and an iteration is under way: call "
                     "it after %s, or before zro_ddp_forward",
                     call, zro__overlap_name(u->overlap), after_step ? "zro_optim_step" : "zro_ddp_backward_end");
}

zro_status zro__cycle_check_reduced(const zro__updater *u, const char *call)
{
    if (!u->is_attached || u->stage == ZRO__AVERAGED)
        return ZRO_OK;
    if (zro__updater_overlaps(u))
        return zro__fail(ZRO_ERR_STATE,
                         "%s: the optimizer consumes gradients during backward (overlap %s); use clip_norm and clip_value of "
                         "zro_optim_config, and the norm in zro_step_info, or set overlap to ZRO_OVERLAP_OFF",
                         call, zro__overlap_name(u->overlap));
    return zro__fail(
        ZRO_ERR_STATE,
        "%s: the optimizer is attached to a ddp, and averages gradients in its step; call zro_ddp_average first, or "
        "use clip_norm and clip_value of zro_optim_config",
        call);
}

/* ---- buckets ---- */

static zro_status do_bucket(void *user);

zro_status zro__cycle_form(zro__cycle *c, zro_param *params, const char *const *names, size_t n, const size_t *order,
                           const size_t *lengths, size_t n_buckets)
{
    /* A link that works on one thread alone leaves everything to the program's thread. */
    const int has_lane = c->group->ranks.board.far == NULL || c->group->seat->program_link->link.one_thread != ZRO_ON;
    zro__cycle next = { 0 };
    size_t at = 0;
    zro_status st = zro__arena_arrays(&next.arena, c->account, "the buckets of a ddp",
                                      (const zro__array[]){ { &next.order, n, sizeof *next.order },
                                                            { &next.lengths, n_buckets, sizeof *next.lengths },
                                                            { &next.bucket_of, n, sizeof *next.bucket_of },
                                                            { &next.awaited, n, sizeof *next.awaited },
                                                            { &next.buckets, n_buckets, sizeof *next.buckets } },
                                      5);

    for (size_t k = 0; st == ZRO_OK && k < n_buckets; k++) {
        zro__bucket *b = &next.buckets[k];

        b->cycle = c;
        b->index = next.n_buckets++;
        b->params = next.order + at;
        b->n = next.lengths[k] = lengths[k];
        for (size_t i = 0; i < lengths[k]; i++, at++) {
            next.order[at] = order[at];
            next.bucket_of[order[at]] = k;
        }
        if (has_lane)
            st = zro__lane_prepare(c->group->lane, do_bucket, b, &b->work);
    }
    if (st != ZRO_OK) {
        free_buckets(&next);
        return st;
    }
    free_buckets(c);
    c->params = params;
    c->names = names;
    c->n_params = n;
    c->order = next.order;
    c->lengths = next.lengths;
    c->bucket_of = next.bucket_of;
    c->awaited = next.awaited;
    c->buckets = next.buckets;
    c->n_buckets = n_buckets;
    c->arena = next.arena;
    c->stale = 1;
    return ZRO_OK;
}

/* ---- iterations ---- */

static zro_status reduce_list(zro__cycle *c, zro__batches *l, int to, zro_status st)
{
    zro__reduction r = zro__cycle_reduction(c, ZRO__CALL_DDP_BUCKET, to);

    if (l == NULL)
        return st;
    if (st == ZRO_OK)
        st = zro__batches_inspect(c->group, l);
    return zro__batches_reduce(&r, l, st);
}

/* The gradients of a bucket, by the hook or by the lists of what is not updated in the same pass. */
static zro_status reduce(zro__cycle *c, zro__bucket *b, zro_status st)
{
    if (c->hook != NULL) {
        st = zro__cycle_vote(c, ZRO__CALL_DDP_BUCKET, st);
        return st == ZRO_OK ? c->hook(c->hook_user, b) : st;
    }
    st = reduce_list(c, b->to_all, ZRO__TO_ALL, st);
    return reduce_list(c, b->to_owners, ZRO__TO_OWNER, st);
}

static zro_status update_share(zro__cycle *c, const zro__bucket *b, const zro__share *s, zro_status st)
{
    const uint64_t begun = zro__trace_begin(zro__trace_of(c->group));

    (void)ZRO__POINT("cycle.share");
    if (zro__bucket_merges(b, s->updater))
        st = zro__updater_fuse_part(s->updater, s->fused, s->publish, st);
    else
        st = zro__updater_step_part(s->updater, s->fused, s->publish, st);
    zro__trace_end(zro__trace_of(c->group), begun, "bucket_step", (int64_t)b->index, 0);
    if (st != ZRO_OK)
        return st;
    zro__batches_consume(s->fused);
    c->now.n_updated = b->index + 1;
    return ZRO_OK;
}

/* What has waited for the last bucket: it is updated while that bucket is still on its way. */
static zro_status update_earlier(zro__cycle *c, const zro__bucket *last, zro_status st)
{
    for (size_t k = 0; k < last->index; k++)
        for (const zro__share *s = c->buckets[k].shares; s != NULL; s = s->next)
            if (zro__cycle_row(c, s->updater)->update == ZRO__AT_LAST)
                st = update_share(c, &c->buckets[k], s, st);
    return st;
}

/* The updates that overlap with backward end with the last bucket. */
static zro_status end_updates(zro__cycle *c, zro_status st)
{
    for (zro__updater *u = c->updaters; u != NULL; u = u->next)
        if (zro__updater_overlaps(u) && zro__updater_measures_first(u)) {
            st = step(u, u->stage, st, 1);
            if (st == ZRO_OK)
                zro__batches_consume(u->average);
        }
    for (zro__updater *u = c->updaters; st == ZRO_OK && u != NULL; u = u->next)
        if (zro__updater_overlaps(u) && !zro__updater_measures_first(u))
            zro__updater_end_parts(u);
    return st;
}

/* All of a bucket, inside the lane.  What this rank refuses it refuses in the first transfer.  After a failure, which all ranks
 * see in the same transfer, all of them refuse what follows. */
static __attribute__((noinline)) zro_status work(zro__cycle *c, zro__bucket *b)
{
    const int is_last = zro__bucket_is_last(b);
    zro_status st = ZRO_OK;

    (void)ZRO__POINT("cycle.bucket");
    if (b->index >= c->now.refuse_from)
        st = zro__fail(c->now.refusal, "%s", c->now.text);
    if (is_last)
        st = update_earlier(c, b, st);
    (void)ZRO__POINT(is_last ? "cycle.last" : "cycle.reduce");
    st = reduce(c, b, st);
    if (is_last && !zro__bucket_meets(b)) /* else a refusal of this bucket would be told to nobody */
        st = zro__cycle_vote(c, ZRO__CALL_DDP_BUCKET, st);
    if (st != ZRO_OK && zro__is_broken(c->group->ranks.board.control)) /* nothing follows, and only this tells why */
        return st;
    for (const zro__share *s = b->shares; s != NULL; s = s->next)
        if (zro__cycle_row(c, s->updater)->update == ZRO__AT_BUCKET || is_last)
            st = update_share(c, b, s, st);
    return is_last && c->overlaps ? end_updates(c, st) : st;
}

/* Keeps why the iteration has failed.  Where the group is whole, and so torn parameters are not spoken of, the program must know
 * which parameters have changed. */
static void fail_iteration(zro__cycle *c, zro_status st)
{
    const char *why = zro_last_error();

    c->now.failed = st;
    if (c->now.n_updated == 0 || zro__is_broken(c->group->ranks.board.control))
        snprintf(c->now.text, sizeof c->now.text, "%s", why);
    else
        snprintf(c->now.text, sizeof c->now.text,
                 "%.850s (the first %zu of %zu buckets had been updated by then, on all ranks: overlap)", why, c->now.n_updated,
                 c->n_buckets);
}

static uint64_t bytes_of(const zro__bucket *b)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < b->n; i++) {
        const zro_param *p = &b->cycle->params[b->params[i]];

        bytes += zro_param_count(p) * zro_dtype_bytes(zro__param_grad_type(p));
    }
    return bytes;
}

/* A bucket, on the lane's thread or, without one, on the program's.  After a failure, which all ranks see at the same bucket, the
 * others are left out. */
static zro_status do_bucket(void *user)
{
    zro__bucket *b = user;
    zro__cycle *c = b->cycle;
    const uint64_t begun = zro__trace_begin(zro__trace_of(c->group));
    zro_status st;

    if (c->now.failed != ZRO_OK)
        return ZRO_OK;
    st = zro__cycle_enter(c, NULL);
    if (st == ZRO_OK)
        st = zro__cycle_leave(c, work(c, b));
    if (begun != 0)
        zro__trace_record(zro__trace_of(c->group), begun, "bucket", (int64_t)b->index, bytes_of(b));
    if (st != ZRO_OK)
        fail_iteration(c, st);
    return ZRO_OK;
}

/* Issues the buckets that are full, in order; under the lock, so that no other thread's comes before. */
static zro_status issue(zro__cycle *c)
{
    zro_status st = ZRO_OK;

    for (; st == ZRO_OK && c->next < c->n_buckets; c->next++) {
        zro__bucket *b = &c->buckets[c->next];

        /* acquire: pairs with the release of the thread that completed it, whose gradients must be seen */
        if (atomic_load_explicit(&b->missing, memory_order_acquire) > 0)
            break;
        if (zro__bucket_has_work(b) && b->work != NULL)
            st = zro__lane_resubmit(b->work);
    }
    return st;
}

zro_status zro__cycle_check_open(const zro__cycle *c)
{
    zro_status st = zro__cycle_check(c);

    if (st != ZRO_OK)
        return st;
    if (c->now.is_open)
        return zro__fail(ZRO_ERR_STATE, "ddp_forward: the iteration before has not ended: call zro_ddp_backward_end");
    for (const zro__updater *u = c->updaters; u != NULL && c->now.failed == ZRO_OK; u = u->next)
        if (u->stage == ZRO__READY || u->stage == ZRO__REDUCED)
            return zro__fail(
                ZRO_ERR_STATE,
                "ddp_forward: the gradients of the iteration before were not consumed: call zro_optim_step on every "
                "attached optimizer, or zro_ddp_average, or drop them by zro_optim_zero_grad");
    return ZRO_OK;
}

/* What an optimizer finds wrong before its update begins is told to the others in the first bucket. */
static void open_update(zro__cycle *c, zro__updater *u)
{
    zro__claim claim = { 0 };
    zro_status st = u->open(u->optim, &claim);

    zro__updater_open(u, &claim, u->user);
    u->n_active = 0;
    if (st == ZRO_OK || c->now.refusal != ZRO_OK)
        return;
    c->now.refuse_from = 0;
    c->now.refusal = st;
    snprintf(c->now.text, sizeof c->now.text, "%s", zro_last_error());
}

/* What the ranks that have inputs have done with their gradients of the iteration before, this rank does not know. */
static void shed(zro__cycle *c)
{
    for (size_t i = 0; i < c->n_params; i++)
        zro__param_mark(&c->params[i], 0);
    for (zro__updater *u = c->updaters; u != NULL; u = u->next)
        u->stage = ZRO__EMPTY;
}

/* Shadows train what the others train: these may have frozen parameters since.  Inside the lane. */
static zro_status share_frozen(zro__cycle *c)
{
    enum { WORDS = 64, MOST = 64 * WORDS };
    uint64_t trains[WORDS];
    zro_status st = ZRO_OK;

    for (size_t first = 0; st == ZRO_OK && first < c->n_params; first += MOST) {
        const size_t n = c->n_params - first < MOST ? c->n_params - first : MOST;

        memset(trains, 0, sizeof trains);
        for (size_t i = 0; i < n; i++)
            trains[i / 64] |= (uint64_t)(c->params[first + i].requires_grad != 0) << i % 64;
        st = zro_broadcast(c->group, trains, (n + 63) / 64, ZRO_I64, c->join->lowest);
        for (size_t i = 0; st == ZRO_OK && c->join->follows && i < n; i++)
            if ((c->params[first + i].requires_grad != 0) != (trains[i / 64] >> i % 64 & 1))
                c->params[first + i].requires_grad = trains[i / 64] >> i % 64 & 1;
    }
    return st;
}

/* What ranks do together before gradients travel. */
static zro_status prepare(zro__cycle *c, int has_shadows)
{
    zro_status st = zro__cycle_enter(c, NULL);

    if (st != ZRO_OK)
        return st;
    if (has_shadows)
        st = share_frozen(c);
    if (st == ZRO_OK && c->stale)
        st = zro__lists_make(c);
    return zro__cycle_leave(c, st);
}

zro_status zro__cycle_open(zro__cycle *c, int syncs, double weight)
{
    const zro__join *join = c->join;
    const int is_shadow = join != NULL && join->follows, has_shadows = join != NULL && zro__join_has_shadows(join);
    zro_status st;

    if (is_shadow)
        shed(c);
    st = zro__cycle_check_open(c);
    if (st == ZRO_OK && syncs && (c->stale || has_shadows))
        st = prepare(c, has_shadows);
    if (st != ZRO_OK)
        return st;
    c->now = (zro__iteration){
        .number = c->now.number + 1,
        .is_open = 1,
        .syncs = syncs,
        .weight = is_shadow ? 0 : weight,
        .divisor = join != NULL && join->divides_by_rest ? join->n_active : 0,
        .is_shadow = is_shadow,
        .has_shadows = has_shadows,
        .lowest = join != NULL ? join->lowest : 0,
        .refuse_from = SIZE_MAX,
    };
    for (zro__updater *u = c->updaters; u != NULL; u = u->next) {
        u->stage = ZRO__EMPTY;
        if (syncs && zro__updater_overlaps(u))
            open_update(c, u);
    }
    if (c->staging != NULL)
        zro__staging_open(c->staging);
    c->next = 0;
    for (size_t k = 0; k < c->n_buckets; k++) {
        size_t missing = 0;

        for (size_t i = 0; i < c->buckets[k].n; i++) {
            const size_t param = c->buckets[k].params[i];

            c->awaited[param] = c->params[param].requires_grad != 0;
            missing += c->awaited[param];
        }
        atomic_store_explicit(&c->buckets[k].missing, missing, memory_order_relaxed);
    }
    return ZRO_OK;
}

zro_status zro__cycle_ready(zro__cycle *c, size_t i)
{
    zro__bucket *b = &c->buckets[c->bucket_of[i]];
    zro_status st;

    if (!c->now.syncs)
        return ZRO_OK;
    if (c->staging != NULL && c->hook == NULL && zro__param_has_grad(&c->params[i]))
        zro__staging_copy(c->staging, i);
    if (atomic_fetch_sub_explicit(&b->missing, 1, memory_order_acq_rel) != 1)
        return ZRO_OK;
    pthread_mutex_lock(&c->lock);
    st = issue(c);
    pthread_mutex_unlock(&c->lock);
    return st;
}

/* Nothing is missing any more; what has not become ready is absent. */
static zro_status issue_all(zro__cycle *c)
{
    zro_status st;

    pthread_mutex_lock(&c->lock);
    for (size_t k = 0; k < c->n_buckets; k++)
        atomic_store_explicit(&c->buckets[k].missing, 0, memory_order_relaxed);
    st = issue(c);
    pthread_mutex_unlock(&c->lock);
    for (size_t k = 0; st == ZRO_OK && k < c->n_buckets; k++)
        if (zro__bucket_has_work(&c->buckets[k]) && c->buckets[k].work == NULL)
            st = do_bucket(&c->buckets[k]);
    zro__lane_enter(c->group->lane);
    return st;
}

/* This rank refuses the buckets that it has not issued.  The others it does with its peers first, since the lane reads and writes
 * what is set here; after a failure in one of them there is nothing left to refuse. */
static void refuse(zro__cycle *c, zro_status st)
{
    char why[ZRO__TEXT_BYTES];

    snprintf(why, sizeof why, "%s", zro_last_error());
    zro__lane_enter(c->group->lane);
    if (c->now.failed != ZRO_OK)
        return;
    c->now.refuse_from = c->next;
    c->now.refusal = st;
    snprintf(c->now.text, sizeof c->now.text, "%s", why);
}

/* Tells the others in their step, where no bucket could. */
static void refuse_step(zro__cycle *c, zro_status st)
{
    zro__updater *first = NULL;

    for (zro__updater *u = c->updaters; u != NULL; u = u->next) /* the one that was attached first */
        first = zro__cycle_row(c, u) == &zro__row_one_pass ? u : first;
    if (first == NULL)
        return;
    st = zro__fail(st, "%s", c->now.text);
    if (c->join != NULL) { /* they come to a turn first */
        (void)zro__join_refuse(c->join, c->joinable, st);
        return;
    }
    if (zro__cycle_enter(c, NULL) != ZRO_OK)
        return;
    (void)zro__cycle_leave(c, step(first, ZRO__READY, st, 1));
}

zro_status zro__cycle_end(zro__cycle *c, zro_status st)
{
    zro_status issued;
    int moved = 0;

    if (!c->now.is_open)
        return zro__fail(ZRO_ERR_STATE, "ddp_backward_end: there is no iteration: call zro_ddp_forward first");
    c->now.is_open = 0;
    if (!c->now.syncs)
        return st;
    if (st != ZRO_OK)
        refuse(c, st);
    issued = issue_all(c);
    if (issued != ZRO_OK)
        return issued;
    for (size_t k = 0; k < c->n_buckets; k++)
        moved |= zro__bucket_has_work(&c->buckets[k]);
    zro__count(&c->group->ranks.counters.passes, (uint64_t)moved);
    if (c->now.failed == ZRO_OK && st != ZRO_OK) {
        refuse_step(c, st);
        c->now.failed = st;
    }
    if (c->now.failed != ZRO_OK)
        return zro__fail(c->now.failed, "%s", c->now.text);
    for (zro__updater *u = c->updaters; u != NULL; u = u->next) {
        const zro__row *row = zro__cycle_row(c, u);

        u->stage = row->update != ZRO__AT_STEP ? ZRO__STEPPED : row->reduce == ZRO__AT_STEP ? ZRO__READY : ZRO__REDUCED;
    }
    return ZRO_OK;
}

zro_status zro__cycle_average(zro__cycle *c)
{
    zro_status st = check_average(c);

    if (st == ZRO_OK)
        st = zro__cycle_enter(c, NULL);
    if (st != ZRO_OK)
        return st;
    for (zro__updater *u = c->updaters; st == ZRO_OK && u != NULL; u = u->next)
        if (u->stage == ZRO__READY || u->stage == ZRO__REDUCED)
            st = zro__updater_average(u);
    return zro__cycle_leave(c, st);
}
