/* The cycle: see cycle.h. */
#include "step/cycle.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/param.h"
#include "base/point.h"
#include "group/group.h"

const zro__row zro__row_ddp = { "averaged for all ranks as buckets become ready", ZRO__AT_BUCKET, ZRO__NEVER };
const zro__row zro__row_alone = { "updated and published at step", ZRO__NEVER, ZRO__AT_STEP };
const zro__row zro__row_one_pass = { "reduced, updated and published at step, in one pass", ZRO__AT_STEP, ZRO__AT_STEP };
const zro__row zro__row_attached = { "reduced for owners as buckets become ready, updated and published at step",
                                     ZRO__AT_BUCKET, ZRO__AT_STEP };

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

static void free_lists(zro__cycle *c)
{
    for (size_t k = 0; k < c->n_buckets; k++) {
        zro__batches_free(c->buckets[k].to_all);
        zro__batches_free(c->buckets[k].to_owners);
        c->buckets[k].to_all = c->buckets[k].to_owners = NULL;
    }
}

static void free_buckets(zro__cycle *c)
{
    free_lists(c);
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

void zro__cycle_close(zro__cycle *c)
{
    zro__lane_enter(c->group->lane);
    free_buckets(c);
    c->n_params = 0;
    c->now.is_open = 0;
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

/* A failure in the middle of an update keeps its code, and gets a text that says whether parameters are torn. */
static zro_status explain(const zro__cycle *c, zro_status st)
{
    if (st == ZRO_ERR_LOST || st == ZRO_ERR_TIMEOUT)
        (void)zro__cycle_check(c);
    return st;
}

zro_status zro__cycle_enter(zro__cycle *c, zro__fpmode *mode)
{
    zro_status st = zro__cycle_check(c);

    if (st == ZRO_OK && c->group != NULL)
        st = zro__enter(c->group);
    else if (c->group != NULL)
        zro__group_settle(c->group);
    if (st == ZRO_OK)
        zro__fpmode_enter(mode);
    return st;
}

zro_status zro__cycle_leave(zro__cycle *c, const zro__fpmode *mode, zro_status st)
{
    zro__fpmode_leave(mode);
    return explain(c, c->group != NULL ? zro__leave(c->group, st) : st);
}

zro__reduction zro__cycle_reduction(const zro__cycle *c, zro__call call, int to)
{
    return (zro__reduction){
        .group = c->group, .call = call, .op = ZRO_AVG, .to = to, .weighted = c->weighted, .weight = c->now.weight
    };
}

/* ---- optimizers ---- */

/* The index of a parameter in the ddp's list; SIZE_MAX if it is not there. */
static size_t index_of(const zro__cycle *c, const zro_param *p)
{
    uintptr_t at = (uintptr_t)p, first = (uintptr_t)c->params;

    return at >= first && at < first + c->n_params * sizeof *p ? (at - first) / sizeof *p : SIZE_MAX;
}

static zro_status check_params(const zro__cycle *c, const zro__updater *u)
{
    for (const zro__batches *l = u->average; l != NULL; l = l->next)
        for (size_t k = 0; k < l->n; k++)
            for (size_t i = 0; i < l->list[k].n_parts; i++) {
                const zro__batch_item *item = &l->list[k].items[i];

                if (index_of(c, item->param) == SIZE_MAX)
                    return zro__param_fail(ZRO_ERR_INVALID, item->name, item->index,
                                           "it is not among the parameters of the ddp that the optimizer is attached to");
            }
    return ZRO_OK;
}

zro_status zro__cycle_attach(zro__cycle *c, zro__updater *u)
{
    zro_status st = check_params(c, u);

    c->stale = 1; /* also if it is refused, which other ranks may not */
    if (st != ZRO_OK)
        return st;
    if (!u->is_attached) {
        u->next = c->updaters;
        c->updaters = u;
        u->is_attached = 1;
    }
    return ZRO_OK;
}

void zro__cycle_detach(zro__cycle *c, zro__updater *u)
{
    for (zro__updater **at = &c->updaters; u->is_attached && *at != NULL; at = &(*at)->next)
        if (*at == u) {
            *at = u->next;
            u->is_attached = 0;
            c->stale = 1;
            return;
        }
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
    return c->hook == NULL && u->reachable && rule != NULL && rule->whole == ZRO_OFF ? &zro__row_one_pass : &zro__row_attached;
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

static void consume(zro__updater *u)
{
    if (!u->is_attached)
        return;
    zro__batches_consume(u->average);
    u->stage = ZRO__EMPTY;
}

/* Inside the lane. */
static __attribute__((noinline)) zro_status step(zro__updater *u, const zro__claim *claim, zro_status st, void *user,
                                                 int publishes)
{
    if (u->stage == ZRO__READY && publishes && !zro__updater_measures_first(u))
        return zro__updater_fuse(u, claim, st, user);
    st = u->stage == ZRO__READY ? zro__updater_reduce_and_step(u, claim, st, user) : zro__updater_step(u, claim, st, user);
    return st == ZRO_OK && publishes && !u->skipped ? zro__updater_deliver(u) : st;
}

zro_status zro__cycle_step(zro__cycle *c, zro__updater *u, const zro__claim *claim, zro_status st, void *user, int publishes)
{
    zro__fpmode mode;
    zro_status entered = zro__cycle_check(c); /* a verdict is more than a gradient that is not there */

    if (entered == ZRO_OK)
        entered = check_stage(c, u);
    if (entered == ZRO_OK)
        entered = zro__cycle_enter(c, &mode);
    if (entered != ZRO_OK)
        return entered;
    st = step(u, claim, st, user, publishes);
    if (st == ZRO_OK)
        consume(u);
    else if (u->is_attached && st != ZRO_ERR_MISMATCH) { /* values that differ can be set right, and the step be made again */
        c->now.failed = st;
        snprintf(c->now.text, sizeof c->now.text, "%s", zro_last_error());
    }
    return zro__cycle_leave(c, &mode, st);
}

zro_status zro__cycle_publish(zro__cycle *c, zro__updater *u, zro_status st)
{
    zro__fpmode mode;
    zro_status entered = zro__cycle_enter(c, &mode);

    if (entered != ZRO_OK)
        return entered;
    st = zro__updater_publish(u, st);
    if (st == ZRO_OK && u->update.shard.rule == NULL) /* then that was the step */
        consume(u);
    return zro__cycle_leave(c, &mode, st);
}

void zro__cycle_drop(zro__cycle *c, zro__updater *u)
{
    if (c->group != NULL)
        zro__lane_enter(c->group->lane);
    u->stage = ZRO__EMPTY;
}

zro_status zro__cycle_check_reduced(const zro__updater *u, const char *call)
{
    if (!u->is_attached || u->stage == ZRO__AVERAGED)
        return ZRO_OK;
    return zro__fail(
        ZRO_ERR_STATE,
        "%s: the optimizer is attached to a ddp, and averages gradients in its step; call zro_ddp_average first, or "
        "use clip_norm and clip_value of zro_optim_config",
        call);
}

/* ---- buckets ---- */

static zro_status do_bucket(void *user);

/* A link that works on one thread alone leaves everything to the program's thread. */
static int has_lane(const zro__cycle *c)
{
    return c->group->ranks.board.far == NULL || c->group->seat->program_link->link.one_thread != ZRO_ON;
}

zro_status zro__cycle_form(zro__cycle *c, zro_param *params, const char *const *names, size_t n, const size_t *order,
                           const size_t *lengths, size_t n_buckets)
{
    zro__cycle next = { .n_buckets = n_buckets };
    size_t at = 0;
    zro_status st = zro__arena_arrays(&next.arena, c->account, "the buckets of a ddp",
                                      (const zro__array[]){ { &next.order, n, sizeof *next.order },
                                                            { &next.lengths, n_buckets, sizeof *next.lengths },
                                                            { &next.bucket_of, n, sizeof *next.bucket_of },
                                                            { &next.buckets, n_buckets, sizeof *next.buckets } },
                                      4);

    for (size_t k = 0; st == ZRO_OK && k < n_buckets; k++) {
        zro__bucket *b = &next.buckets[k];

        b->cycle = c;
        b->index = k;
        b->params = next.order + at;
        b->n = next.lengths[k] = lengths[k];
        for (size_t i = 0; i < lengths[k]; i++, at++) {
            next.order[at] = order[at];
            next.bucket_of[order[at]] = k;
        }
        if (has_lane(c))
            st = zro__lane_prepare(c->group->lane, do_bucket, b, &b->work);
    }
    if (st != ZRO_OK) {
        if (next.buckets != NULL)
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
    c->buckets = next.buckets;
    c->n_buckets = n_buckets;
    c->arena = next.arena;
    c->stale = 1;
    return ZRO_OK;
}

/* Ranges of parameters and their owners, while lists are made. */
typedef struct owners {
    zro__updater **updater; /* by parameter: who consumes it, or NULL */
    size_t *first;          /* by parameter, and one behind the last: where its ranges begin */
    zro_range *ranges;      /* of parameters that attached updaters consume, by parameter */
    size_t *index;          /* of a bucket: what no updater consumes */
    zro_range *cut;         /* the same, cut evenly */
    zro__owned *owned;      /* of one list */
    size_t most;            /* how many ranges a list can have */
    zro__arena arena;
} owners;

/* Calls for each range of each attached updater: twice, once to count and once to fill in. */
static void list_ranges(const zro__cycle *c, owners *o, int counts)
{
    for (zro__updater *u = c->updaters; u != NULL; u = u->next)
        for (const zro__batches *l = u->average; l != NULL; l = l->next)
            for (size_t k = 0; k < l->n; k++)
                for (size_t i = 0; i < l->list[k].n_parts; i++) {
                    const zro__batch_item *item = &l->list[k].items[i];
                    const zro__part *part = &l->list[k].parts[i];
                    const size_t p = index_of(c, item->param);

                    o->updater[p] = u;
                    if (counts)
                        o->first[p + 1]++;
                    else
                        o->ranges[o->first[p]++] =
                            (zro_range){ .param = p, .first = item->first, .count = part->count, .owner = part->owner };
                }
}

static zro_status find_owners(const zro__cycle *c, owners *o)
{
    const size_t n = c->n_params;
    size_t total = 0;
    zro_status st = zro__arena_arrays(&o->arena, c->account, "who owns the parameters of a ddp",
                                      (const zro__array[]){ { &o->updater, n, sizeof *o->updater },
                                                            { &o->first, n + 2, sizeof *o->first },
                                                            { &o->index, n, sizeof *o->index } },
                                      3);

    if (st != ZRO_OK)
        return st;
    list_ranges(c, o, 1);
    for (size_t i = 0; i <= n; i++)
        total += o->first[i];
    o->most = total + n + (size_t)c->group->ranks.board.size;
    o->ranges = zro__alloc_array(c->account, ZRO__KIND_HANDLE, total + 1, sizeof *o->ranges);
    o->cut = zro__alloc_array(c->account, ZRO__KIND_HANDLE, o->most, sizeof *o->cut);
    o->owned = zro__alloc_array(c->account, ZRO__KIND_HANDLE, o->most, sizeof *o->owned);
    if (o->ranges == NULL || o->cut == NULL || o->owned == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: who owns %zu parameters", n);
    for (size_t i = 0; i < n; i++)
        o->first[i + 1] += o->first[i];
    list_ranges(c, o, 0); /* moves first[p] to where the next one's begin */
    for (size_t i = n; i > 0; i--)
        o->first[i] = o->first[i - 1];
    o->first[0] = 0;
    return ZRO_OK;
}

static void free_owners(owners *o)
{
    zro__free(o->ranges);
    zro__free(o->cut);
    zro__free(o->owned);
    zro__arena_free(&o->arena);
}

/* What no updater consumes, cut evenly over the ranks. */
static size_t list_even(const zro__cycle *c, const zro__bucket *b, owners *o)
{
    size_t n = 0;

    for (size_t i = 0; i < b->n; i++)
        if (o->updater[b->params[i]] == NULL)
            o->index[n++] = b->params[i];
    n = zro__cut_ranges(c->params, o->index, n, c->group->ranks.board.size, o->cut);
    for (size_t i = 0; i < n; i++)
        o->owned[i] = (zro__owned){ &c->params[o->cut[i].param], c->names[o->cut[i].param], &o->cut[i] };
    return n;
}

static size_t list_owned(const zro__cycle *c, const zro__bucket *b, owners *o)
{
    size_t n = 0;

    for (size_t i = 0; i < b->n; i++) {
        const size_t p = b->params[i];

        if (o->updater[p] == NULL || zro__cycle_row(c, o->updater[p])->reduce != ZRO__AT_BUCKET)
            continue;
        for (size_t r = o->first[p]; r < o->first[p + 1]; r++)
            o->owned[n++] = (zro__owned){ &c->params[p], c->names[p], &o->ranges[r] };
    }
    return n;
}

static zro_status make_list(zro__cycle *c, const owners *o, size_t n, zro_status st, zro__batches **out)
{
    if (st == ZRO_OK)
        st = zro__batches_make(c->group, c->account, ZRO__GRADS, ZRO__GRADS, o->owned, n, out);
    return zro__batches_compare(c->group, *out, ZRO__CALL_DDP_FORWARD, st);
}

/* Makes the lists of what buckets move, after something has changed.  Collective, inside the lane.  With a hook there are none. */
static zro_status make_lists(zro__cycle *c)
{
    owners o = { 0 };
    zro_status st = find_owners(c, &o);

    free_lists(c);
    st = zro__cycle_vote(c, ZRO__CALL_DDP_FORWARD, st);
    for (size_t k = 0; st == ZRO_OK && c->hook == NULL && k < c->n_buckets; k++) {
        zro__bucket *b = &c->buckets[k];
        size_t n = list_even(c, b, &o);

        if (n > 0)
            st = make_list(c, &o, n, st, &b->to_all);
        n = st == ZRO_OK ? list_owned(c, b, &o) : 0;
        if (n > 0)
            st = make_list(c, &o, n, st, &b->to_owners);
    }
    free_owners(&o);
    c->stale = st != ZRO_OK;
    return st;
}

/* ---- iterations ---- */

static int has_work(const zro__bucket *b)
{
    return b->cycle->hook != NULL || b->to_all != NULL || b->to_owners != NULL;
}

static zro_status reduce_list(zro__cycle *c, zro__batches *l, int to, zro_status st)
{
    zro__reduction r = zro__cycle_reduction(c, ZRO__CALL_DDP_BUCKET, to);

    if (l == NULL)
        return st;
    if (st == ZRO_OK)
        st = zro__batches_inspect(c->group, l);
    return zro__batches_reduce(&r, l, st);
}

/* Inside the lane.  A bucket with both lists refuses in the first of them. */
static zro_status reduce(zro__cycle *c, zro__bucket *b)
{
    zro_status st = ZRO_OK;

    (void)ZRO__POINT("cycle.bucket");
    if (b->index >= c->now.refuse_from)
        st = zro__fail(c->now.refusal, "%s", c->now.text);
    if (c->hook != NULL) {
        st = zro__cycle_vote(c, ZRO__CALL_DDP_BUCKET, st);
        return st == ZRO_OK ? c->hook(c->hook_user, b) : st;
    }
    if (b->to_all != NULL)
        st = reduce_list(c, b->to_all, ZRO__TO_ALL, st);
    return st == ZRO_OK || b->to_all == NULL ? reduce_list(c, b->to_owners, ZRO__TO_OWNER, st) : st;
}

/* A bucket, on the lane's thread or, without one, on the program's.  After a failure, which all ranks see at the same bucket, the
 * others are left out. */
static zro_status do_bucket(void *user)
{
    zro__bucket *b = user;
    zro__cycle *c = b->cycle;
    zro__fpmode mode;
    zro_status st;

    if (c->now.failed != ZRO_OK)
        return ZRO_OK;
    st = zro__cycle_enter(c, &mode);
    if (st == ZRO_OK)
        st = zro__cycle_leave(c, &mode, reduce(c, b));
    if (st != ZRO_OK) {
        c->now.failed = st;
        snprintf(c->now.text, sizeof c->now.text, "%s", zro_last_error());
    }
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
        if (has_work(b) && b->work != NULL)
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

zro_status zro__cycle_open(zro__cycle *c, int syncs, double weight)
{
    zro_status st = zro__cycle_check_open(c);
    zro__fpmode mode;

    if (st != ZRO_OK)
        return st;
    if (syncs && c->stale) {
        st = zro__cycle_enter(c, &mode);
        if (st == ZRO_OK)
            st = zro__cycle_leave(c, &mode, make_lists(c));
        if (st != ZRO_OK)
            return st;
    }
    c->now = (zro__iteration){
        .number = c->now.number + 1, .is_open = 1, .syncs = syncs, .weight = weight, .refuse_from = SIZE_MAX
    };
    for (zro__updater *u = c->updaters; u != NULL; u = u->next)
        u->stage = ZRO__EMPTY;
    c->next = 0;
    for (size_t k = 0; k < c->n_buckets; k++) {
        size_t missing = 0;

        for (size_t i = 0; i < c->buckets[k].n; i++)
            missing += c->params[c->buckets[k].params[i]].requires_grad != 0;
        atomic_store_explicit(&c->buckets[k].missing, missing, memory_order_relaxed);
    }
    return ZRO_OK;
}

zro_status zro__cycle_ready(zro__cycle *c, size_t i)
{
    zro__bucket *b = &c->buckets[c->bucket_of[i]];
    zro_status st;

    if (!c->now.syncs || atomic_fetch_sub_explicit(&b->missing, 1, memory_order_acq_rel) != 1)
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
        if (has_work(&c->buckets[k]) && c->buckets[k].work == NULL)
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
    zro__fpmode mode;

    for (zro__updater *u = c->updaters; u != NULL; u = u->next) /* the one that was attached first */
        first = zro__cycle_row(c, u) == &zro__row_one_pass ? u : first;
    if (first == NULL || zro__cycle_enter(c, &mode) != ZRO_OK)
        return;
    st = zro__fail(st, "%s", c->now.text);
    (void)zro__cycle_leave(c, &mode, zro__updater_refuse(first, st));
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
        moved |= has_work(&c->buckets[k]);
    zro__count(&c->group->ranks.counters.passes, (uint64_t)moved);
    if (c->now.failed == ZRO_OK && st != ZRO_OK) {
        refuse_step(c, st);
        c->now.failed = st;
    }
    if (c->now.failed != ZRO_OK)
        return zro__fail(c->now.failed, "%s", c->now.text);
    for (zro__updater *u = c->updaters; u != NULL; u = u->next)
        u->stage = zro__cycle_row(c, u) == &zro__row_one_pass ? ZRO__READY : ZRO__REDUCED;
    return ZRO_OK;
}

zro_status zro__cycle_average(zro__cycle *c)
{
    zro__fpmode mode;
    zro_status st;

    if (c->now.is_open || c->now.number == 0)
        return zro__fail(ZRO_ERR_STATE, "ddp_average: call it after zro_ddp_backward_end");
    st = zro__cycle_check(c); /* a verdict comes first */
    if (st == ZRO_OK)
        st = check_synced(c);
    if (st == ZRO_OK)
        st = zro__cycle_enter(c, &mode);
    if (st != ZRO_OK)
        return st;
    for (zro__updater *u = c->updaters; st == ZRO_OK && u != NULL; u = u->next)
        if (u->stage == ZRO__READY || u->stage == ZRO__REDUCED)
            st = zro__updater_average(u);
    return zro__cycle_leave(c, &mode, st);
}
