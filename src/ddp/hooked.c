/* Buckets with a hook: from gradients to the buffer that the hook sees, and back.
 *
 * Ranks first tell each other which gradients they have: what no rank has stays absent, and what this rank does not have is zeros in
 * the buffer.  If the gradients of a bucket lie next to each other, they are the buffer; otherwise they are copied, into memory for
 * the largest bucket.  A hook that fails on one rank fails the iteration on all, and that rank keeps its status and text. */
#include <stdio.h>
#include <string.h>

#include "base/param.h"
#include "base/point.h"
#include "base/status.h"
#include "ddp/ddp.h"
#include "ddp/hook.h"
#include "group/group.h"

static size_t grad_bytes(const zro_param *p)
{
    return zro_param_count(p) * zro_dtype_bytes(zro__param_grad_type(p));
}

zro_status zro__ddp_prepare_hook(zro_ddp *d)
{
    size_t bytes = 0, most = 0, *first = NULL;
    char *packed = NULL;
    uint8_t *any = NULL;
    zro__arena arena = { 0 };
    zro_status st;

    for (size_t k = 0; k < d->cycle->n_buckets; k++) {
        const zro__bucket *b = &d->cycle->buckets[k];
        size_t sum = 0;

        for (size_t i = 0; i < b->n; i++)
            sum += grad_bytes(&d->params[b->params[i]]);
        bytes = sum > bytes ? sum : bytes;
        most = b->n > most ? b->n : most;
    }
    st = zro__arena_arrays(
        &arena, d->account, "the buffer of a hook",
        (const zro__array[]){ { &packed, bytes, 1 }, { &first, most + 1, sizeof *first }, { &any, most, sizeof *any } }, 3);
    if (st != ZRO_OK)
        return st; /* with the memory of before, which is that of the buckets and the hook of before */
    zro__arena_free(&d->hooked);
    d->hooked = arena;
    d->packed = packed;
    d->first = first;
    d->any = any;
    return ZRO_OK;
}

/* Which gradients some rank has. */
static zro_status exchange(zro_ddp *d, const zro__bucket *b)
{
    zro_status st = ZRO_OK;

    for (size_t i = 0; i < b->n && st == ZRO_OK; i++) {
        const zro_param *p = &d->params[b->params[i]];

        d->any[i] = (uint8_t)zro__param_has_grad(p);
        if (p->grad == NULL && p->requires_grad != 0 && zro_param_count(p) > 0)
            st = zro__param_fail(ZRO_ERR_INVALID, d->names[b->params[i]], b->params[i],
                                 "grad is NULL; give it memory, since the result of the hook is written there");
    }
    st = zro__cycle_vote(d->cycle, ZRO__CALL_DDP_BUCKET, st);
    return st == ZRO_OK ? zro_all_reduce(d->group, d->any, b->n, ZRO_U8, ZRO_MAX) : st;
}

/* The gradients one after another, as they lie or copied. */
static char *pack(zro_ddp *d, const zro__bucket *b)
{
    const size_t size = zro_dtype_bytes(zro__param_grad_type(&d->params[b->params[0]]));
    char *base = d->params[b->params[0]].grad;
    int adjacent = base != NULL;

    d->first[0] = 0;
    for (size_t i = 0; i < b->n; i++) {
        const zro_param *p = &d->params[b->params[i]];

        adjacent &= p->grad != NULL && (char *)p->grad == base + d->first[i] * size;
        d->first[i + 1] = d->first[i] + zro_param_count(p);
    }
    base = adjacent ? base : d->packed;
    for (size_t i = 0; i < b->n; i++) {
        const zro_param *p = &d->params[b->params[i]];
        char *to = base + d->first[i] * size;

        if (!zro__param_has_grad(p))
            memset(to, 0, grad_bytes(p));
        else if (!adjacent && grad_bytes(p) > 0) /* without elements it may be NULL */
            memcpy(to, p->grad, grad_bytes(p));
    }
    return base;
}

static void unpack(zro_ddp *d, const zro__bucket *b, const char *base)
{
    const size_t size = zro_dtype_bytes(zro__param_grad_type(&d->params[b->params[0]]));

    for (size_t i = 0; i < b->n; i++) {
        zro_param *p = &d->params[b->params[i]];

        if (!d->any[i] || p->requires_grad == 0)
            continue;
        if (p->grad != base + d->first[i] * size && grad_bytes(p) > 0)
            memcpy(p->grad, base + d->first[i] * size, grad_bytes(p));
        zro__param_mark(p, 1);
    }
}

/* The ranks vote on what their hooks returned.  A hook that fails before a collective call leaves the others in that call, and the vote
 * breaks the group with a verdict; its own rank must still learn what has failed. */
static zro_status vote(const zro_ddp *d, zro_status mine)
{
    char why[ZRO__TEXT_BYTES], verdict[ZRO__TEXT_BYTES];
    zro_status st;

    snprintf(why, sizeof why, "%s", mine != ZRO_OK ? zro_last_error() : "");
    st = zro__cycle_vote(d->cycle, ZRO__CALL_DDP_BUCKET, mine);
    if (mine == ZRO_OK || st == mine)
        return st;
    snprintf(verdict, sizeof verdict, "%s", zro_last_error());
    return zro__fail(mine, "%.500s (and the ddp is broken: %.450s)", why, verdict);
}

zro_status zro__ddp_run_hook(void *user, zro__bucket *b)
{
    zro_ddp *d = user;
    const zro_dtype type = zro__param_grad_type(&d->params[b->params[0]]);
    zro_bucket seen = { .index = b->index,
                        .is_last = b->index + 1 == d->cycle->n_buckets,
                        .dtype = type,
                        .group = d->group,
                        .params = b->params,
                        .first = d->first,
                        .n_params = b->n,
                        .divisor = b->cycle->now.divisor };
    char *buffer;
    zro_status st = exchange(d, b);

    if (st != ZRO_OK)
        return st;
    buffer = pack(d, b);
    seen.buffer = buffer;
    seen.count = d->first[b->n];
    (void)ZRO__POINT("ddp.hook");
    st = d->hook(d->hook_user, &seen);
    if (st == ZRO_OK)
        st = zro__bucket_bring_back(&seen, buffer, type);
    st = vote(d, st);
    if (st == ZRO_OK)
        unpack(d, b, buffer);
    return st;
}

zro_status zro_ddp_set_hook(zro_ddp *d, zro_hook_fn hook, void *user)
{
    zro_status mine = zro__ddp_check(d, "ddp_set_hook"), st;
    zro_hook_fn before;

    if (mine == ZRO_OK && d->cycle->now.is_open) /* not told to the others, who have buckets under way */
        mine = zro__fail(ZRO_ERR_STATE, "ddp_set_hook: the iteration has not ended: call zro_ddp_backward_end");
    if (mine == ZRO_OK)
        mine = zro__cycle_turn(d->cycle, NULL, ZRO__TURN_OF_ALL);
    if (mine != ZRO_OK)
        return mine;
    st = zro__enter(d->group);
    if (st != ZRO_OK)
        return st;
    mine = zro__cycle_check_open(d->cycle);
    before = d->hook;
    d->hook = hook;
    if (mine == ZRO_OK && hook != NULL)
        mine = zro__ddp_prepare_hook(d);
    st = zro__agree(&d->group->ranks.board, ZRO__CALL_DDP_CREATE, "the arguments of ddp_set_hook",
                    hook != NULL ? "a hook" : "no hook", &(uint64_t){ 0 }, mine);
    if (st != ZRO_OK) {
        d->hook = before;
        return zro__leave(d->group, st);
    }
    d->hook_user = user;
    d->cycle->hook = hook != NULL ? zro__ddp_run_hook : NULL;
    d->cycle->hook_user = d;
    d->cycle->stale = 1;
    return zro__leave(d->group, ZRO_OK);
}
