/* zro_params_all_reduce: the gradients of many parameters in one call, for programs that average by hand.
 *
 * First the ranks compare what they passed, and tell each other which gradients they have: the union of these is reduced, nothing
 * else is touched.  Then the elements of each type, one parameter after another, are cut evenly over the ranks, and what belongs
 * together is one transfer (batch.h). */
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/param.h"
#include "group/group.h"
#include "step/batch.h"
#include "step/claim.h"

typedef struct call {
    zro_group *group;
    zro_param *params;
    size_t n;
    zro_op op;
    uint8_t *any;     /* per parameter: 1 if any rank has one */
    uint8_t *nowhere; /* per parameter: 1 if a rank has no memory for one; behind `any` */
    size_t *index;    /* of the parameters of one type */
    zro_range *ranges;
    zro__owned *owned; /* the ranges with their parameters */
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
    const size_t most = c->n + (size_t)(ZRO_I64 + 1) * (size_t)zro_group_size(c->group);
    zro_status st = zro__arena_arrays(&c->arena, NULL, "the gradients of params_all_reduce",
                                      (const zro__array[]){ { &c->any, 2 * c->n, 1 },
                                                            { &c->index, c->n, sizeof *c->index },
                                                            { &c->ranges, most, sizeof *c->ranges },
                                                            { &c->owned, most, sizeof *c->owned } },
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
        c->any[i] = (uint8_t)zro__param_has_grad(&c->params[i]);
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

/* ---- the reduction ---- */

/* The ranges of what some rank has, each element type cut evenly over the ranks; returns how many there are. */
static size_t cut(const call *c)
{
    const int ranks = zro_group_size(c->group);
    size_t n = 0;

    for (int type = ZRO_F32; type <= ZRO_I64; type++) {
        size_t n_index = 0;

        for (size_t i = 0; i < c->n; i++)
            if (c->any[i] && zro__param_grad_type(&c->params[i]) == (zro_dtype)type)
                c->index[n_index++] = i;
        n += zro__cut_ranges(c->params, c->index, n_index, ranks, c->ranges + n);
    }
    for (size_t i = 0; i < n; i++)
        c->owned[i] = (zro__owned){ &c->params[c->ranges[i].param], c->params[c->ranges[i].param].name, &c->ranges[i] };
    return n;
}

static zro_status reduce_union(call *c)
{
    zro__reduction r = { .group = c->group, .call = ZRO__CALL_PARAMS_ALL_REDUCE, .op = c->op, .to = ZRO__TO_ALL };
    zro__batches *batches = NULL;
    zro_status st = zro__batches_make(c->group, NULL, ZRO__GRADS, ZRO__GRADS, c->owned, cut(c), &batches);

    st = zro__batches_compare(c->group, batches, r.call, st);
    if (st == ZRO_OK)
        st = zro__batches_reduce(&r, batches, zro__batches_inspect(c->group, batches));
    zro__batches_free(batches);
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
    if (st == ZRO_OK)
        st = reduce_union(c);
    zro__arena_free(&c->arena);
    return st;
}

zro_status zro_params_all_reduce(zro_group *group, zro_param *params, size_t n, zro_op op)
{
    call c = { .group = group, .params = params, .n = n, .op = op };
    zro_status st = zro__enter(group);

    return st != ZRO_OK ? st : zro__leave(group, reduce(&c));
}
