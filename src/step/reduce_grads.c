/* zro_params_all_reduce: the gradients of many parameters in one call, for programs that average by hand.
 *
 * First the ranks compare what they passed, and tell each other which gradients they have: the union of these is reduced, nothing
 * else is touched.  Then each element type is one transfer (or several, if there are very many parameters): all its elements, one
 * parameter after another, are cut evenly over the ranks at blocks, and every piece that falls into one parameter is a part.  A
 * rank without a gradient says so by a bit of the part, and counts as +0.0. */
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/param.h"
#include "group/group.h"
#include "step/claim.h"

enum { MOST_PARTS = 8 * ZRO__PAYLOAD_BYTES }; /* whose bits fit into a payload */

typedef struct call {
    zro_group *group;
    zro_param *params;
    size_t n;
    zro_op op;
    uint8_t *mine;    /* per parameter: 1 if this rank has a gradient */
    uint8_t *any;     /* per parameter: 1 if any rank has one */
    uint8_t *nowhere; /* per parameter: 1 if a rank has no memory for one; behind `any` */
    zro__part *parts; /* of one transfer */
    uint64_t *bits;   /* of these parts: which of them this rank has */
    size_t most;      /* how many parts there is memory for */
    zro__arena arena;
} call;

/* ---- what the ranks have ---- */

static zro_status check(const call *c)
{
    if (c->params == NULL && c->n > 0)
        return zro__fail(ZRO_ERR_INVALID, "params_all_reduce: params is NULL");
    if ((int)c->op < ZRO_SUM || (int)c->op > ZRO_MAX)
        return zro__fail(ZRO_ERR_INVALID, "params_all_reduce: op must be ZRO_SUM, ZRO_AVG, ZRO_MIN or ZRO_MAX");
    for (size_t i = 0; i < c->n; i++) {
        const zro_param *p = &c->params[i];
        zro_status st = zro__param_check_types(p, i);

        if (st == ZRO_OK)
            st = zro__param_check_shape(p, i);
        if (st != ZRO_OK)
            return st;
        if (zro__param_has_grad(p) && p->grad == NULL && zro_param_count(p) > 0)
            return zro__param_fail(ZRO_ERR_INVALID, p->name, i, "grad_present is set, but grad is NULL");
        if (c->op == ZRO_AVG && !zro__dtype_is_float(zro__param_grad_type(p)))
            return zro__param_fail(ZRO_ERR_UNSUPPORTED, p->name, i, "there is no average of integers; sum and divide");
    }
    return ZRO_OK;
}

static zro_status take_memory(call *c)
{
    zro_status st;

    c->most = c->n < MOST_PARTS - (size_t)zro_group_size(c->group) ? c->n + (size_t)zro_group_size(c->group) : MOST_PARTS;
    st = zro__arena_arrays(&c->arena, NULL, "the gradients of params_all_reduce",
                           (const zro__array[]){ { &c->mine, c->n, 1 },
                                                 { &c->any, 2 * c->n, 1 },
                                                 { &c->parts, c->most, sizeof *c->parts },
                                                 { &c->bits, c->most / 64 + 1, sizeof *c->bits } },
                           4);
    c->nowhere = c->any + c->n;
    return st;
}

static void describe(const void *user, size_t i, char *text, size_t bytes)
{
    const call *c = user;
    char name[ZRO__NAME_BYTES], shape[ZRO__SHAPE_BYTES];
    const zro_param *p = i == 0 ? NULL : &c->params[i - 1];

    if (i == 0)
        snprintf(text, bytes, "%zu parameters", c->n);
    else
        snprintf(text, bytes, "parameter %.100s: gradient %s, shape %s", zro__param_name(p->name, i - 1, name),
                 zro_dtype_name(zro__param_grad_type(p)), zro__param_shape(p, shape));
}

/* The ranks passed the same parameters. */
static zro_status agree(const call *c, zro_status st)
{
    zro__claim claim = { .what = "the parameters of params_all_reduce",
                         .hash = zro__hash(ZRO__HASH_START, &c->op, sizeof c->op),
                         .n = 1 + c->n,
                         .describe = describe,
                         .user = c,
                         .otherwise = "params_all_reduce: the ranks passed different operators" };

    for (size_t i = 0; st == ZRO_OK && i < c->n; i++) {
        uint64_t item[] = { zro_param_count(&c->params[i]), (uint64_t)zro__param_grad_type(&c->params[i]) };

        claim.hash = zro__hash(claim.hash, item, sizeof item);
    }
    return zro__claim_agree(&c->group->ranks.board, ZRO__CALL_PARAMS_ALL_REDUCE, &claim, st);
}

/* Which gradients there are. */
static zro_status exchange(call *c)
{
    zro_status st;

    for (size_t i = 0; i < c->n; i++) {
        c->any[i] = c->mine[i] = (uint8_t)zro__param_has_grad(&c->params[i]);
        c->nowhere[i] = c->params[i].grad == NULL && zro_param_count(&c->params[i]) > 0;
    }
    st = zro_all_reduce(c->group, c->any, 2 * c->n, ZRO_U8, ZRO_MAX);
    for (size_t i = 0; st == ZRO_OK && i < c->n; i++)
        if (c->any[i] && c->nowhere[i])
            st =
                zro__param_fail(ZRO_ERR_INVALID, c->params[i].name, i,
                                "some rank has a gradient, and on some rank grad is NULL; give it memory there, to receive the "
                                "result");
    return st;
}

/* ---- transfers ---- */

static int takes_part(const call *c, size_t i, zro_dtype type)
{
    return c->any[i] && zro__param_grad_type(&c->params[i]) == type;
}

/* How far the elements of a type have been cut into the owners' shares. */
typedef struct cutting {
    size_t total; /* elements of all parameters of the type */
    size_t at;    /* elements that are parts already, of this transfer or of one before */
    int owner;
    size_t share_end; /* where the owner's share ends */
} cutting;

static void next_share(const call *c, cutting *cut)
{
    while (cut->at == cut->share_end) {
        size_t first, length;

        zro__cut_even(cut->total, zro_group_size(c->group), ++cut->owner, &first, &length);
        cut->share_end = first + length;
    }
}

/* One transfer: parts from element *first of parameter *param on, as many as there is memory for. */
static zro_status transfer(call *c, zro_dtype type, cutting *cut, size_t *param, size_t *first)
{
    const size_t size = zro_dtype_bytes(type);
    zro__xfer x = { .call = ZRO__CALL_PARAMS_ALL_REDUCE,
                    .root = -1,
                    .parts = c->parts,
                    .reduces = 1,
                    .op = c->op,
                    .in_type = type,
                    .out_type = type,
                    .to = ZRO__TO_ALL,
                    .scattered = 1,
                    .present = c->bits };
    uintptr_t low = UINTPTR_MAX, high = 0;
    uint64_t hash = ZRO__HASH_START;
    int same;
    zro_status st;

    memset(c->bits, 0, (c->most / 64 + 1) * sizeof *c->bits);
    for (; *param < c->n && x.n_parts < c->most; ++*param, *first = 0) {
        const size_t count = takes_part(c, *param, type) ? zro_param_count(&c->params[*param]) : 0;

        while (*first < count && x.n_parts < c->most) {
            size_t n;
            uintptr_t at = (uintptr_t)c->params[*param].grad + *first * size;

            next_share(c, cut);
            n = count - *first < cut->share_end - cut->at ? count - *first : cut->share_end - cut->at;
            c->bits[x.n_parts / 64] |= (uint64_t)c->mine[*param] << (x.n_parts % 64);
            c->parts[x.n_parts++] = (zro__part){ at, 0, n, cut->owner, cut->owner };
            x.count += n;
            cut->at += n;
            *first += n;
            low = at < low ? at : low;
            high = at + n * size > high ? at + n * size : high;
        }
        if (*first < count)
            break;
    }
    for (size_t i = 0; i < x.n_parts; i++) {
        c->parts[i].out_at = c->parts[i].in_at -= low;
        hash = zro__hash(hash, &c->parts[i].in_at, sizeof c->parts[i].in_at);
    }
    if (x.n_parts == 0)
        return ZRO_OK;
    x.in = x.out = (void *)low;
    x.in_bytes = x.out_bytes = high - low;
    st = zro__is_same(&c->group->ranks.board, ZRO__CALL_PARAMS_ALL_REDUCE, hash, &same);
    x.offsets_differ = !same;
    return st == ZRO_OK ? zro__xfer_run(&c->group->ranks, &x) : st;
}

static zro_status reduce_type(call *c, zro_dtype type)
{
    cutting cut = { .owner = -1 };
    size_t param = 0, first = 0;
    zro_status st = ZRO_OK;

    for (size_t i = 0; i < c->n; i++)
        cut.total += takes_part(c, i, type) ? zro_param_count(&c->params[i]) : 0;
    while (st == ZRO_OK && cut.at < cut.total)
        st = transfer(c, type, &cut, &param, &first);
    return st;
}

/* Inside the lane. */
static zro_status reduce(call *c)
{
    zro_status st = check(c);

    if (st == ZRO_OK)
        st = take_memory(c);
    st = agree(c, st);
    if (st == ZRO_OK && c->n > 0)
        st = exchange(c);
    for (int type = ZRO_F32; st == ZRO_OK && type <= ZRO_I64; type++)
        st = reduce_type(c, (zro_dtype)type);
    for (size_t i = 0; st == ZRO_OK && i < c->n; i++)
        if (c->any[i] && c->params[i].requires_grad != 0)
            __atomic_store_n(&c->params[i].grad_present, 1, __ATOMIC_RELEASE);
    zro__arena_free(&c->arena);
    return st;
}

zro_status zro_params_all_reduce(zro_group *group, zro_param *params, size_t n, zro_op op)
{
    call c = { .group = group, .params = params, .n = n, .op = op };
    zro_status st = zro__enter(group);

    return st != ZRO_OK ? st : zro__leave(group, reduce(&c));
}
