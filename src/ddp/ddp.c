/* The zro_ddp handle: how it is made, compared over ranks, and how it ends.
 *
 * Whatever is wrong on one rank is voted on before anything counts, so that a create fails on all ranks or on none. */
#include "ddp/ddp.h"

#include <stdio.h>
#include <string.h>

#include "base/bounds.h"
#include "base/dtype.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/param.h"
#include "base/settings.h"
#include "base/status.h"
#include "group/group.h"
#include "plan/buckets.h"

ZRO__DEFINE_INIT(zro_ddp_config, ZRO_DDP_CONFIG_INIT)

/* ---- arguments ---- */

static zro_status check_config(const zro_ddp_config *c)
{
    const zro__bound switches[] = {
        { "find_unused", (double)c->find_unused, 0, 1, ZRO__SWITCH },
        { "static_graph", (double)c->static_graph, 0, 1, ZRO__SWITCH },
        { "gradient_as_bucket_view", (double)c->gradient_as_bucket_view, 0, 1, ZRO__SWITCH },
        { "broadcast", (double)c->broadcast, 0, 1, ZRO__SWITCH },
        { "broadcast_buffers", (double)c->broadcast_buffers, 0, 1, ZRO__SWITCH },
        { "weighted", (double)c->weighted, 0, 1, ZRO__SWITCH },
        { "stage_grads", (double)c->stage_grads, 0, 1, ZRO__SWITCH },
    };
    zro_status st = zro__bounds_check("zro_ddp_config", switches, sizeof switches / sizeof *switches);

    if (st == ZRO_OK && c->n_buffers > 0 && c->buffers == NULL)
        st = zro__fail(ZRO_ERR_INVALID, "zro_ddp_config: n_buffers = %zu, but buffers is NULL", c->n_buffers);
    if (st == ZRO_OK && c->n_bucket_limits > 0 && (c->bucket_limits == NULL || c->bucket_bytes != 0))
        st = zro__fail(ZRO_ERR_INVALID, "zro_ddp_config: n_bucket_limits = %zu, but %s", c->n_bucket_limits,
                       c->bucket_limits == NULL ? "bucket_limits is NULL" : "bucket_bytes is set, too");
    for (size_t i = 0; st == ZRO_OK && i < c->n_buffers; i++)
        st = zro__param_check(&c->buffers[i], i);
    return st;
}

/* All gradients of an iteration are there at the same time, so none may share memory with another. */
static zro_status check_gradients(zro__numbered *list, const zro_param *params, size_t n)
{
    const zro__numbered *found;
    char a[ZRO__NAME_BYTES], b[ZRO__NAME_BYTES];
    size_t n_grads = 0;

    for (size_t i = 0; i < n; i++)
        if (params[i].grad != NULL)
            list[n_grads++] =
                (zro__numbered){ &params[i], i, zro_param_count(&params[i]) * zro_dtype_bytes(zro__param_grad_type(&params[i])),
                                 params[i].grad };
    found = zro__params_find_shared(list, n_grads);
    return found == NULL ? ZRO_OK
                         : zro__fail(ZRO_ERR_INVALID, "ddp_create: the gradients of parameters %s and %s share memory",
                                     zro__param_name(found[0].param->name, found[0].index, a),
                                     zro__param_name(found[1].param->name, found[1].index, b));
}

static zro_status check_params(zro__account *account, const zro_param *params, size_t n)
{
    zro__numbered *list;
    zro_status st = ZRO_OK;

    if (params == NULL || n == 0)
        return zro__fail(ZRO_ERR_INVALID, "ddp_create: no parameters");
    list = zro__alloc_array(account, ZRO__KIND_HANDLE, n, sizeof *list);
    if (list == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: comparing %zu parameters", n);
    for (size_t i = 0; st == ZRO_OK && i < n; i++) {
        st = zro__param_check(&params[i], i);
        if (st == ZRO_OK && !zro__dtype_is_float(zro__param_grad_type(&params[i])))
            st = zro__param_fail(ZRO_ERR_UNSUPPORTED, params[i].name, i,
                                 "its gradient is %s; averages are of f32, f64, bf16 or f16",
                                 zro_dtype_name(zro__param_grad_type(&params[i])));
        list[i] =
            (zro__numbered){ &params[i], i, zro_param_count(&params[i]) * zro_dtype_bytes(params[i].dtype), params[i].data };
    }
    if (st == ZRO_OK)
        st = zro__params_check_apart(list, n);
    if (st == ZRO_OK)
        st = check_gradients(list, params, n);
    zro__free(list);
    return st;
}

/* ---- what the ranks compare ---- */

enum { SETTINGS = 10 };

static void describe_array(const char *what, const zro_param *p, const char *given, size_t i, char *text, size_t bytes)
{
    char name[ZRO__NAME_BYTES], shape[ZRO__SHAPE_BYTES];

    snprintf(text, bytes, "%s %.100s: %s, gradient %s, device %d, shape %s", what, zro__param_name(given, i, name),
             zro_dtype_name(p->dtype), zro_dtype_name(zro__param_grad_type(p)), (int)p->device, zro__param_shape(p, shape));
}

/* How many there are of everything, which must come first (claim.h), the settings, the parameters, the buffers, the limits. */
static void describe(const void *user, size_t i, char *text, size_t bytes)
{
    const zro_ddp *d = user;
    const zro_ddp_config *c = &d->config;
    const struct {
        const char *name;
        size_t value;
    } settings[SETTINGS] = { { "numbers", 0 },
                             { "bucket_bytes", c->bucket_bytes },
                             { "find_unused", (size_t)c->find_unused },
                             { "static_graph", (size_t)c->static_graph },
                             { "gradient_as_bucket_view", (size_t)c->gradient_as_bucket_view },
                             { "broadcast", (size_t)c->broadcast },
                             { "broadcast_buffers", (size_t)c->broadcast_buffers },
                             { "weighted", (size_t)c->weighted },
                             { "stage_grads", (size_t)c->stage_grads },
                             { "hook", d->hook != NULL } };

    if (i == 0)
        snprintf(text, bytes, "%zu parameters, %zu buffers and %zu bucket_limits", d->n, d->n_buffers, c->n_bucket_limits);
    else if (i == 1)
        snprintf(text, bytes, "%s %zu", settings[i].name, settings[i].value);
    else if (i < SETTINGS)
        snprintf(text, bytes, "%s %s", settings[i].name, settings[i].value ? "on" : "off");
    else if (i < SETTINGS + d->n)
        describe_array("parameter", &d->params[i - SETTINGS], d->names[i - SETTINGS], i - SETTINGS, text, bytes);
    else if (i < SETTINGS + d->n + d->n_buffers)
        describe_array("buffer", &d->buffers[i - SETTINGS - d->n], d->buffers[i - SETTINGS - d->n].name, i - SETTINGS - d->n,
                       text, bytes);
    else
        snprintf(text, bytes, "bucket_limits[%zu] = %zu", i - SETTINGS - d->n - d->n_buffers,
                 d->limits[i - SETTINGS - d->n - d->n_buffers]);
}

static zro_status agree(zro_ddp *d, zro_group *group, zro_status st)
{
    zro__claim claim = { .what = "the ranks' arguments of ddp_create",
                         .describe = describe,
                         .user = d,
                         .otherwise = "the ranks' arguments of ddp_create differ in something too long to show" };

    if (st == ZRO_OK)
        claim.n = SETTINGS + d->n + d->n_buffers + d->config.n_bucket_limits;
    return zro__claim_agree_texts(group, ZRO__CALL_DDP_CREATE, &claim, st);
}

/* ---- making ---- */

static size_t name_bytes(const zro_param *list, size_t n)
{
    size_t bytes = 0;

    for (size_t i = 0; i < n; i++)
        bytes += list[i].name != NULL ? strlen(list[i].name) + 1 : 0;
    return bytes;
}

static const char *copy_name(const char *name, char **to)
{
    char *copy = *to;

    if (name == NULL)
        return NULL;
    *to = stpcpy(copy, name) + 1;
    return copy;
}

static zro_status take_memory(zro_ddp *d)
{
    const zro_ddp_config *c = &d->config;
    char *text = NULL;
    zro_status st = zro__arena_arrays(&d->arena, d->account, "a ddp",
                                      (const zro__array[]){
                                          { &d->names, d->n, sizeof *d->names },
                                          { &d->handed, d->n, sizeof *d->handed },
                                          { &d->buffers, d->n_buffers, sizeof *d->buffers },
                                          { &d->limits, c->n_bucket_limits + 2, sizeof *d->limits },
                                          { &d->seen, d->n, sizeof *d->seen },
                                          { &d->earlier, d->n, sizeof *d->earlier },
                                          { &d->learned, d->n, sizeof *d->learned },
                                          { &d->ready, d->n, sizeof *d->ready },
                                          { &text, name_bytes(d->params, d->n) + name_bytes(c->buffers, c->n_buffers), 1 },
                                      },
                                      9);

    if (st != ZRO_OK)
        return st;
    d->n_limits = c->n_bucket_limits > 0 ? c->n_bucket_limits : zro__bucket_limits(c->bucket_bytes, d->limits);
    for (size_t i = 0; i < c->n_bucket_limits; i++)
        d->limits[i] = c->bucket_limits[i];
    for (size_t i = 0; i < d->n; i++)
        d->names[i] = copy_name(d->params[i].name, &text);
    for (size_t i = 0; i < d->n_buffers; i++) {
        d->buffers[i] = c->buffers[i];
        d->buffers[i].name = copy_name(c->buffers[i].name, &text);
    }
    return ZRO_OK;
}

zro_status zro__ddp_form(zro_ddp *d, const size_t *order)
{
    size_t n_buckets = 0, *params = NULL, *lengths = NULL;
    zro__arena arena = { 0 };
    zro_status st =
        zro__arena_arrays(&arena, d->account, "the buckets of a ddp",
                          (const zro__array[]){ { &params, d->n, sizeof *params }, { &lengths, d->n, sizeof *lengths } }, 2);

    if (st == ZRO_OK)
        st = zro__buckets_form(d->account, d->params, order, d->n, d->limits, d->n_limits, params, lengths, NULL, &n_buckets);
    if (st == ZRO_OK && order == NULL)
        zro__buckets_reverse(params, lengths, n_buckets);
    if (st == ZRO_OK)
        st = zro__cycle_form(d->cycle, d->params, d->names, d->n, params, lengths, n_buckets);
    zro__arena_free(&arena);
    return st == ZRO_OK && d->hook != NULL ? zro__ddp_prepare_hook(d) : st;
}

zro_status zro__ddp_send_buffers(zro_ddp *d, int root)
{
    zro_status st = ZRO_OK;

    for (size_t i = 0; st == ZRO_OK && i < d->n_buffers; i++)
        st = zro__deliver_param(d->group, &d->buffers[i], d->n + i, root);
    return st;
}

/* Root's values of all parameters on all ranks: as few transfers as there are types and tags, since there may be 100,000
 * parameters.  Inside the lane. */
static zro_status send_params(zro_ddp *d, zro__call call, int root)
{
    zro_range *ranges = NULL;
    zro__owned *owned = NULL;
    zro__batches *l = NULL;
    zro__arena arena = { 0 };
    zro_status st =
        zro__arena_arrays(&arena, d->account, "a list of parameters",
                          (const zro__array[]){ { &ranges, d->n, sizeof *ranges }, { &owned, d->n, sizeof *owned } }, 2);

    for (size_t i = 0; st == ZRO_OK && i < d->n; i++) {
        ranges[i] = (zro_range){ .param = i, .count = zro_param_count(&d->params[i]), .owner = root };
        owned[i] = (zro__owned){ &d->params[i], d->names[i], &ranges[i] };
    }
    if (st == ZRO_OK)
        st = zro__batches_make(d->group, d->account, ZRO__DATA, ZRO__DATA, owned, d->n, &l);
    st = zro__batches_compare(d->group, l, call, st);
    for (size_t k = 0; st == ZRO_OK && k < l->n; k++)
        st = zro__batch_send(d->group, l, &l->list[k], call);
    zro__batches_free(l);
    zro__arena_free(&arena);
    return st;
}

zro_status zro__ddp_send_values(zro_ddp *d, zro__call call, int root)
{
    zro_status st = send_params(d, call, root);

    return st == ZRO_OK ? zro__ddp_send_buffers(d, root) : st;
}

/* Moves gradients into group memory, in reverse order, as they become ready.  Inside the lane. */
static zro_status make_views(zro_ddp *d)
{
    zro_param **order = zro__alloc_array(d->account, ZRO__KIND_HANDLE, d->n, sizeof *order);
    zro_status st = order != NULL ? ZRO_OK : zro__fail(ZRO_ERR_MEMORY, "out of memory: a list of %zu parameters", d->n);

    for (size_t i = 0; st == ZRO_OK && i < d->n; i++)
        order[i] = &d->params[d->n - 1 - i];
    st = zro__views_make(d->group, d->account, ZRO__GRADS, order, d->n, ZRO__CALL_DDP_CREATE, st, &d->views);
    zro__free(order);
    return st;
}

/* What all ranks do together, once they agree.  Inside the lane. */
static zro_status settle(zro_ddp *d)
{
    zro_status st = d->config.gradient_as_bucket_view == ZRO_ON ? make_views(d) : ZRO_OK;
    int has_own = 0;

    if (st == ZRO_OK)
        st = zro__vote(&d->group->ranks.board, ZRO__CALL_DDP_CREATE, zro__ddp_form(d, NULL));
    if (st == ZRO_OK && d->config.broadcast == ZRO_ON)
        st = zro__ddp_send_values(d, ZRO__CALL_DDP_CREATE, 0);
    for (size_t i = 0; st == ZRO_OK && i < d->n; i++) {
        const zro__place *place = d->params[i].memory;

        if (d->config.gradient_as_bucket_view == ZRO_ON || (place != NULL && place->grads != NULL))
            d->handed[i] = d->params[i].grad;
        has_own |= d->handed[i] == NULL && zro_param_count(&d->params[i]) > 0;
    }
    if (st == ZRO_OK && d->config.stage_grads == ZRO_ON && d->hook == NULL)
        st = zro__staging_make(d->group, d->account, d->params, d->n, has_own, ZRO__CALL_DDP_CREATE, &d->cycle->staging);
    return st;
}

static zro_status build(zro_ddp *d, zro_param *params, size_t n, const zro_ddp_config *config)
{
    zro_status st;

    zro_ddp_config_init(&d->config);
    st = zro__config_take("zro_ddp_config", config, offsetof(zro_ddp_config, hook_user), &d->config, sizeof d->config);
    if (st == ZRO_OK)
        st = check_config(&d->config);
    if (st == ZRO_OK)
        st = check_params(d->account, params, n);
    if (st != ZRO_OK)
        return st;
    d->params = params;
    d->n = n;
    d->n_buffers = d->config.n_buffers;
    d->weight = 1;
    d->hook = d->config.hook;
    d->hook_user = d->config.hook_user;
    d->cycle->weighted = d->config.weighted == ZRO_ON;
    if (d->hook != NULL) {
        d->cycle->hook = zro__ddp_run_hook;
        d->cycle->hook_user = d;
    }
    return take_memory(d);
}

zro_status zro_ddp_create(zro_group *group, zro_param *params, size_t n, const zro_ddp_config *config, zro_ddp **out)
{
    zro_group *own = NULL;
    zro_ddp *d = zro__alloc(NULL, ZRO__KIND_HANDLE, sizeof *d);
    zro_status st = zro_group_duplicate(group, &own);

    if (out != NULL)
        *out = NULL;
    if (st != ZRO_OK) {
        zro__free(d);
        return st;
    }
    if (out == NULL)
        st = zro__fail(ZRO_ERR_INVALID, "ddp_create: out is NULL");
    else if (d == NULL)
        st = zro__fail(ZRO_ERR_MEMORY, "out of memory: a ddp");
    if (d != NULL) {
        d->group = own;
        d->account = &own->seat->account;
    }
    if (st == ZRO_OK)
        st = zro__cycle_create(own, d->account, &d->cycle);
    if (st == ZRO_OK)
        st = build(d, params, n, config);
    st = agree(d, own, st);
    if (st == ZRO_OK)
        st = zro__enter(own);
    if (st == ZRO_OK)
        st = zro__leave(own, settle(d));
    if (st == ZRO_OK) {
        for (size_t i = 0; i < n; i++) /* what backward has not computed yet is no gradient */
            zro__param_mark(&params[i], 0);
        *out = d;
        return ZRO_OK;
    }
    if (d == NULL || d->cycle == NULL)
        zro_group_destroy(own);
    zro_ddp_destroy(d);
    return st;
}

/* ---- the end ---- */

void zro_ddp_destroy(zro_ddp *d)
{
    zro__seat *seat = d != NULL && d->cycle != NULL ? d->group->seat : NULL;
    const int is_alive = seat == NULL || zro__view_is_alive(seat->view);

    if (d == NULL)
        return;
    if (seat != NULL && is_alive) {
        zro__seat_retain(seat); /* its account counts what is freed here */
        zro__cycle_cancel(d->cycle, "its ddp");
        zro__cycle_close(d->cycle);
    }
    zro__views_undo(d->views, is_alive);
    if (d->cycle != NULL) {
        zro__staging_free(d->cycle->staging);
        d->cycle->staging = NULL;
    }
    zro__arena_free(&d->hooked);
    zro__arena_free(&d->arena);
    zro__cycle_release(d->cycle);
    zro__free(d);
    if (seat != NULL && is_alive)
        zro__seat_release(seat);
}

/* ---- questions ---- */

zro_status zro__ddp_check(const zro_ddp *d, const char *call)
{
    if (d == NULL)
        return zro__fail(ZRO_ERR_INVALID, "%s: the ddp is NULL", call);
    if (!zro__view_is_alive(d->group->seat->view))
        return zro__fail(ZRO_ERR_STATE, "%s: a child forked by a rank is not a rank", call);
    return ZRO_OK;
}

zro_status zro_ddp_buckets(const zro_ddp *d, const size_t **bucket_params, const size_t **bucket_lengths, size_t *n_buckets)
{
    zro_status st = zro__ddp_check(d, "ddp_buckets");

    if (st != ZRO_OK)
        return st;
    if (bucket_params != NULL)
        *bucket_params = d->cycle->order;
    if (bucket_lengths != NULL)
        *bucket_lengths = d->cycle->lengths;
    if (n_buckets != NULL)
        *n_buckets = d->cycle->n_buckets;
    return ZRO_OK;
}

zro_status zro_ddp_stats(const zro_ddp *d, zro_stats *stats)
{
    zro_status st = zro__ddp_check(d, "ddp_stats");

    return st == ZRO_OK ? zro_group_stats(d->group, stats) : st;
}

static const zro_param *array_at(const zro_ddp *d, size_t i)
{
    return i < d->n ? &d->params[i] : &d->buffers[i - d->n];
}

static uint64_t hash_arrays(const void *user, size_t first, size_t end)
{
    const zro_ddp *d = user;
    uint64_t hash = ZRO__HASH_START, one = 0;

    for (size_t i = first; i < end; i++)
        if (zro_params_hash(array_at(d, i), 1, &one) == ZRO_OK)
            hash = zro__hash(hash, &one, sizeof one);
    return hash;
}

zro_status zro_ddp_check(zro_ddp *d)
{
    char name[ZRO__NAME_BYTES];
    size_t at = 0;
    int32_t odd = 0;
    zro_status st = zro__ddp_check(d, "ddp_check");

    if (st == ZRO_OK)
        st = zro__cycle_turn(d->cycle, NULL, ZRO__TURN_OF_ALL);
    if (st == ZRO_OK)
        st = zro__enter(d->group);
    if (st != ZRO_OK)
        return st;
    st = zro__find_odd(d->group, ZRO__CALL_DDP_CHECK, d->n + d->n_buffers, hash_arrays, d, &at, &odd);
    if (st == ZRO_OK && odd < d->group->ranks.board.size)
        st = zro__fail(
            ZRO_ERR_MISMATCH, "ddp_check: %s %s has other values on rank %d than on rank 0", at < d->n ? "parameter" : "buffer",
            zro__param_name(at < d->n ? d->names[at] : d->buffers[at - d->n].name, at < d->n ? at : at - d->n, name), (int)odd);
    return zro__leave(d->group, st);
}
