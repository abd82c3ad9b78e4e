/* Placement: see place.h. */
#include "step/place.h"

#include <stdio.h>
#include <string.h>

#include "base/bounds.h"
#include "base/dtype.h"
#include "base/hash.h"
#include "base/param.h"
#include "base/settings.h"
#include "base/status.h"
#include "group/group.h"
#include "step/claim.h"

enum { BORDER = 64 };

ZRO__DEFINE_INIT(zro_alloc_config, ZRO_ALLOC_CONFIG_INIT)

/* ---- places ---- */

zro_dtype zro__side_type(const zro_param *p, zro__side side)
{
    return side == ZRO__DATA ? p->dtype : zro__param_grad_type(p);
}

void **zro__side_array(zro_param *p, zro__side side)
{
    return side == ZRO__DATA ? &p->data : &p->grad;
}

void zro__place_retain(zro__place *place)
{
    atomic_fetch_add_explicit(&place->refs, 1, memory_order_relaxed);
}

/* Whoever releases it last frees it; acquire and release let that one see what the others did. */
void zro__place_release(zro__place *place)
{
    if (place == NULL || atomic_fetch_sub_explicit(&place->refs, 1, memory_order_acq_rel) > 1)
        return;
    zro_memory_free(place->data);
    zro_memory_free(place->grads);
    zro__free(place);
}

zro__place *zro__param_place(const zro_param *param)
{
    zro__place *place = param->memory;

    return place != NULL && place->data != NULL ? place : NULL;
}

static zro__place *new_place(zro_memory_kind kind)
{
    zro__place *place = zro__alloc(NULL, ZRO__KIND_HANDLE, sizeof *place);

    if (place != NULL) {
        atomic_init(&place->refs, 1);
        place->kind = kind;
    }
    return place;
}

int zro__place_put(size_t bytes, size_t *total, size_t *offset)
{
    *offset = *total;
    return zro__size_round(bytes, BORDER, &bytes) && zro__size_add(*total, bytes, total);
}

/* ---- handing out ---- */

/* One call of params_alloc. */
typedef struct layout {
    const zro_param *params;
    size_t n;
    zro_alloc_config config;
    size_t *data, *grad; /* offsets by parameter */
    size_t data_bytes, grad_bytes;
} layout;

#define NOT_YET SIZE_MAX

/* Lays arrays out in reverse order, those of one type and device tag together: what a backward pass finishes first comes
 * first.  0 if the sum of the sizes does not fit into a size_t. */
static int lay_out(const layout *l, zro__side side, size_t *offsets, size_t *total)
{
    int fits = 1;

    for (size_t i = 0; i < l->n; i++)
        offsets[i] = NOT_YET;
    for (size_t i = l->n; i-- > 0;) {
        const zro_param *like = &l->params[i];

        for (size_t k = offsets[i] == NOT_YET ? i + 1 : 0; k-- > 0;) {
            const zro_param *p = &l->params[k];

            if (offsets[k] == NOT_YET && zro__side_type(p, side) == zro__side_type(like, side) && p->device == like->device)
                fits &= zro__place_put(zro_param_count(p) * zro_dtype_bytes(zro__side_type(p, side)), total, &offsets[k]);
        }
    }
    return fits;
}

static zro_status check_config(const zro_alloc_config *c)
{
    const zro__bound switches[] = { { "data", c->data, 0, 1, ZRO__SWITCH }, { "grads", c->grads, 0, 1, ZRO__SWITCH } };
    zro_status st = zro__bounds_check("params_alloc", switches, 2);

    if (st == ZRO_OK && c->data == ZRO_OFF && c->grads == ZRO_OFF)
        st = zro__fail(ZRO_ERR_INVALID, "params_alloc: data and grads are both off");
    if (st == ZRO_OK && c->data_kind != ZRO_MEMORY_ONCE && c->data_kind != ZRO_MEMORY_EACH)
        st = zro__fail(ZRO_ERR_INVALID, "params_alloc: data_kind = %d is neither each nor once", (int)c->data_kind);
    return st;
}

static zro_status check(layout *l, const zro_alloc_config *given)
{
    zro_alloc_config *c = &l->config;
    zro_status st;

    zro_alloc_config_init(c);
    st = zro__config_take("zro_alloc_config", given, offsetof(zro_alloc_config, data_kind), c, sizeof *c);
    if (st != ZRO_OK)
        return st;
    if (l->params == NULL || l->n == 0)
        return zro__fail(ZRO_ERR_INVALID, "params_alloc: no parameters");
    st = check_config(c);
    for (size_t i = 0; st == ZRO_OK && i < l->n; i++) {
        const zro_param *p = &l->params[i];

        st = zro__param_check_types(p, i);
        if (st == ZRO_OK
            && (p->memory != NULL || (c->data == ZRO_ON && p->data != NULL) || (c->grads == ZRO_ON && p->grad != NULL)))
            st = zro__param_fail(ZRO_ERR_INVALID, p->name, i,
                                 "it already has memory; call zro_params_alloc while data and grad are NULL, "
                                 "and write its first values, on one rank, into what it hands out");
        if (st == ZRO_OK)
            st = zro__param_check_shape(p, i);
    }
    return st;
}

static zro_status make_layout(layout *l)
{
    l->data = zro__alloc_array(NULL, ZRO__KIND_HANDLE, l->n, 2 * sizeof *l->data);
    if (l->data == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "params_alloc: out of memory: a list of %zu parameters", l->n);
    l->grad = l->data + l->n;
    if ((l->config.data == ZRO_ON && !lay_out(l, ZRO__DATA, l->data, &l->data_bytes))
        || (l->config.grads == ZRO_ON && !lay_out(l, ZRO__GRADS, l->grad, &l->grad_bytes)))
        return zro__fail(ZRO_ERR_MEMORY, "params_alloc: %zu parameters need more bytes than memory can hold", l->n);
    return ZRO_OK;
}

/* What the ranks compare: everything that decides where arrays lie. */
static void describe(const void *user, size_t i, char *text, size_t bytes)
{
    const layout *l = user;
    char name[ZRO__NAME_BYTES], shape[ZRO__SHAPE_BYTES];

    if (i == 0)
        snprintf(text, bytes, "%zu parameters, %zu bytes of data (%s), %zu of gradients", l->n, l->data_bytes,
                 l->config.data_kind == ZRO_MEMORY_ONCE ? "once" : "each", l->grad_bytes);
    else
        snprintf(text, bytes, "parameter %.100s: data at byte %zu, gradient at byte %zu, shape %s",
                 zro__param_name(l->params[i - 1].name, i - 1, name), l->data[i - 1], l->grad[i - 1],
                 zro__param_shape(&l->params[i - 1], shape));
}

static zro_status agree(zro_group *group, const layout *l, zro_status mine)
{
    zro__claim claim = { .what = "the arguments of params_alloc",
                         .n = 1 + l->n,
                         .describe = describe,
                         .user = l,
                         .otherwise = "the arguments of params_alloc differ in something too long to show" };
    char text[ZRO__CLAIM_BYTES];
    zro_status st = zro__enter(group);

    if (st != ZRO_OK)
        return st;
    if (mine == ZRO_OK) {
        describe(l, 0, text, sizeof text);
        claim.hash = zro__hash(ZRO__HASH_START, text, strlen(text));
        claim.hash = zro__hash(claim.hash, l->data, 2 * l->n * sizeof *l->data);
        for (size_t i = 0; i < l->n; i++)
            claim.hash = zro__hash(claim.hash, l->params[i].shape, l->params[i].n_dims * sizeof l->params[i].shape[0]);
    }
    return zro__leave(group, zro__claim_agree(&group->ranks.board, ZRO__CALL_PARAMS_ALLOC, &claim, mine));
}

static zro_status take(zro_group *group, zro__place *place, const layout *l)
{
    zro_status st = ZRO_OK;

    if (l->data_bytes > 0)
        st = zro_memory_alloc(group, place->kind, l->data_bytes, &place->data);
    if (st == ZRO_OK && l->grad_bytes > 0)
        st = zro_memory_alloc(group, ZRO_MEMORY_EACH, l->grad_bytes, &place->grads);
    return st;
}

zro_status zro_params_alloc(zro_group *group, zro_param *params, size_t n, const zro_alloc_config *config)
{
    layout l = { .params = params, .n = n };
    zro__place *place = NULL;
    zro_status st = zro__check_group(group);

    if (st != ZRO_OK)
        return st;
    st = check(&l, config);
    if (st == ZRO_OK)
        st = make_layout(&l);
    if (st == ZRO_OK && (place = new_place(l.config.data_kind)) == NULL)
        st = zro__fail(ZRO_ERR_MEMORY, "params_alloc: out of memory");
    st = agree(group, &l, st);
    if (st == ZRO_OK)
        st = take(group, place, &l);
    for (size_t i = 0; st == ZRO_OK && i < n; i++) { /* each parameter keeps the place alive */
        zro__place_retain(place);
        params[i].memory = place;
        if (place->data != NULL && zro_param_count(&params[i]) > 0)
            params[i].data = (char *)zro_memory_data(place->data) + l.data[i];
        if (place->grads != NULL)
            params[i].grad = (char *)zro_memory_data(place->grads) + l.grad[i];
    }
    zro__free(l.data);
    zro__place_release(place);
    return st;
}

void zro_params_free(zro_param *params, size_t n)
{
    for (size_t i = 0; params != NULL && i < n; i++) {
        zro__place *place = params[i].memory;

        if (place == NULL || place->is_view)
            continue;
        if (place->data != NULL)
            params[i].data = NULL;
        if (place->grads != NULL) {
            params[i].grad = NULL;
            __atomic_store_n(&params[i].grad_present, 0, __ATOMIC_RELEASE);
        }
        params[i].memory = NULL;
        zro__place_release(place);
    }
}

/* ---- views ---- */

/* Whether zro has handed the array out already. */
static int is_handed(const zro_param *p, zro__side side)
{
    const zro__place *place = p->memory;

    return place != NULL && (side == ZRO__DATA || place->grads != NULL);
}

static zro_status measure(zro__views *v, zro_param *const *params, size_t n, size_t *total)
{
    size_t offset;

    for (size_t i = 0; i < n; i++) {
        zro_param *p = params[i];
        size_t bytes = zro_param_count(p) * zro_dtype_bytes(zro__side_type(p, v->side));

        if (is_handed(p, v->side) || bytes == 0)
            continue;
        if (!zro__place_put(bytes, total, &offset))
            return zro__fail(ZRO_ERR_MEMORY, "bucket views: %zu parameters need more bytes than memory can hold", n);
        v->of[v->n++] = (struct zro__view_of){ p, *zro__side_array(p, v->side), NULL, offset, bytes };
    }
    return ZRO_OK;
}

zro_status zro__views_make(zro_group *group, zro__account *account, zro__side side, zro_param *const *params, size_t n,
                           zro__call call, zro_status st, zro__views **out)
{
    zro__views *v = zro__alloc(account, ZRO__KIND_HANDLE, sizeof *v + n * sizeof v->of[0]);
    zro_memory **memory = NULL;
    size_t total = 0;

    *out = NULL;
    if (v != NULL)
        v->side = side;
    if (st == ZRO_OK && v != NULL)
        st = measure(v, params, n, &total);
    if (st == ZRO_OK && (v == NULL || (v->place = new_place(ZRO_MEMORY_EACH)) == NULL))
        st = zro__fail(ZRO_ERR_MEMORY, "out of memory: views of %zu parameters", n);
    if (st == ZRO_OK) {
        v->place->is_view = 1;
        memory = side == ZRO__DATA ? &v->place->data : &v->place->grads;
    }
    st = zro__vote(&group->ranks.board, call, st);
    if (st == ZRO_OK && total > 0)
        st = zro_memory_alloc(group, ZRO_MEMORY_EACH, total, memory);
    if (st != ZRO_OK) {
        zro__place_release(v != NULL ? v->place : NULL);
        zro__free(v);
        return st;
    }
    for (size_t i = 0; i < v->n; i++) {
        struct zro__view_of *of = &v->of[i];

        of->view = (char *)zro_memory_data(*memory) + of->at;
        if (of->own != NULL)
            memcpy(of->view, of->own, of->bytes);
        *zro__side_array(of->param, side) = of->view;
        if (side == ZRO__DATA) /* which may have its gradient elsewhere */
            of->param->memory = v->place;
    }
    *out = v;
    return ZRO_OK;
}

/* Gives a parameter its own array back, unless the program has given it another one. */
static void undo(const zro__views *v, const struct zro__view_of *of)
{
    zro_param *p = of->param;

    if (v->side == ZRO__DATA && p->memory != v->place)
        return;
    if (v->side == ZRO__DATA)
        p->memory = NULL;
    if (*zro__side_array(p, v->side) != of->view)
        return;
    if (of->own != NULL)
        memcpy(of->own, of->view, of->bytes);
    *zro__side_array(p, v->side) = of->own;
}

void zro__views_undo(zro__views *v, int is_alive)
{
    while (v != NULL) {
        zro__views *next = v->next;

        for (size_t i = 0; is_alive && i < v->n; i++)
            undo(v, &v->of[i]);
        zro__place_release(v->place);
        zro__free(v);
        v = next;
    }
}
