/* Placement: see place.h. */
#include "step/place.h"

#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/param.h"
#include "base/settings.h"
#include "base/status.h"
#include "group/group.h"

enum { BORDER = 64 };

void zro_alloc_config_init(zro_alloc_config *config)
{
    static const zro_alloc_config init = ZRO_ALLOC_CONFIG_INIT;

    if (config != NULL)
        *config = init;
}

/* ---- places ---- */

void zro__place_retain(zro__place *place)
{
    atomic_fetch_add_explicit(&place->refs, 1, memory_order_relaxed);
}

/* The last one frees; acquire and release so that it sees what the others did. */
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

/* Puts an array behind those before it; 0 if the sum does not fit. */
static int put(size_t bytes, size_t *total, size_t *offset)
{
    *offset = *total;
    return zro__size_round(bytes, BORDER, &bytes) && zro__size_add(*total, bytes, total);
}

/* ---- handing out ---- */

static zro_dtype grad_type(const zro_param *p)
{
    return p->grad_dtype == ZRO_SAME ? p->dtype : p->grad_dtype;
}

typedef struct layout {
    size_t *data, *grad; /* offsets by parameter */
    size_t data_bytes, grad_bytes;
    int fits;
} layout;

#define NOT_YET SIZE_MAX

/* In reverse order, each type and device tag together: what a backward pass finishes first comes first. */
static void lay_out(const zro_param *params, size_t n, int is_grad, size_t *offsets, size_t *total, int *fits)
{
    for (size_t i = 0; i < n; i++)
        offsets[i] = NOT_YET;
    for (size_t i = n; i-- > 0;) {
        zro_dtype type = is_grad ? grad_type(&params[i]) : params[i].dtype;
        size_t k = offsets[i] == NOT_YET ? i + 1 : 0;

        while (k-- > 0)
            if (offsets[k] == NOT_YET && (is_grad ? grad_type(&params[k]) : params[k].dtype) == type
                && params[k].device == params[i].device)
                *fits &= put(zro_param_count(&params[k]) * zro_dtype_bytes(type), total, &offsets[k]);
    }
}

static zro_status check_param(const zro_param *p, size_t i, const zro_alloc_config *config)
{
    char name[ZRO__NAME_BYTES];

    if (!zro__dtype_is_known(p->dtype) || !zro__dtype_is_known(grad_type(p)))
        return zro__fail(ZRO_ERR_INVALID, "params_alloc: parameter %s: dtype = %d or grad_dtype = %d is no element type",
                         zro__param_name(p->name, i, name), (int)p->dtype, (int)p->grad_dtype);
    if (p->memory != NULL || (config->data == ZRO_ON && p->data != NULL) || (config->grads == ZRO_ON && p->grad != NULL))
        return zro__fail(ZRO_ERR_INVALID, "params_alloc: parameter %s already has memory", zro__param_name(p->name, i, name));
    return zro__param_check_shape(p, i);
}

static zro_status check(const zro_param *params, size_t n, const zro_alloc_config *given, zro_alloc_config *config)
{
    zro_status st;

    zro_alloc_config_init(config);
    st = zro__config_take("zro_alloc_config", given, offsetof(zro_alloc_config, data_kind), config, sizeof *config);
    if (st != ZRO_OK)
        return st;
    if (params == NULL || n == 0)
        return zro__fail(ZRO_ERR_INVALID, "params_alloc: no parameters");
    if ((config->data != ZRO_ON && config->data != ZRO_OFF) || (config->grads != ZRO_ON && config->grads != ZRO_OFF)
        || (config->data == ZRO_OFF && config->grads == ZRO_OFF))
        return zro__fail(ZRO_ERR_INVALID, "params_alloc: data = %d, grads = %d, must be on or off, and not both off",
                         (int)config->data, (int)config->grads);
    if (config->data_kind != ZRO_MEMORY_ONCE && config->data_kind != ZRO_MEMORY_EACH)
        return zro__fail(ZRO_ERR_INVALID, "params_alloc: data_kind = %d is neither EACH nor ONCE", (int)config->data_kind);
    for (size_t i = 0; st == ZRO_OK && i < n; i++)
        st = check_param(&params[i], i, config);
    return st;
}

static zro_status make_layout(const zro_param *params, size_t n, const zro_alloc_config *config, layout *l)
{
    l->fits = 1;
    l->data = zro__alloc_array(NULL, ZRO__KIND_HANDLE, n, 2 * sizeof *l->data);
    if (l->data == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "params_alloc: out of memory: a list of %zu parameters", n);
    l->grad = l->data + n;
    if (config->data == ZRO_ON)
        lay_out(params, n, 0, l->data, &l->data_bytes, &l->fits);
    if (config->grads == ZRO_ON)
        lay_out(params, n, 1, l->grad, &l->grad_bytes, &l->fits);
    return l->fits ? ZRO_OK : zro__fail(ZRO_ERR_MEMORY, "params_alloc: %zu parameters need more bytes than there can be", n);
}

/* Everything that fixes where things lie. */
static zro_status agree(zro_group *group, const zro_param *params, const zro_alloc_config *config, const layout *l, size_t n,
                        zro_status mine)
{
    char text[200] = "";
    uint64_t hash, number = 0;
    zro_status st = zro__enter(group);

    if (st != ZRO_OK)
        return st;
    if (mine == ZRO_OK) {
        hash = zro__hash(ZRO__HASH_START, l->data, 2 * n * sizeof *l->data);
        for (size_t i = 0; i < n; i++)
            hash = zro__hash(hash, params[i].shape, params[i].n_dims * sizeof params[i].shape[0]);
        snprintf(text, sizeof text, "%zu parameters, %zu bytes of data (%s), %zu of gradients, arranged as %016llx", n,
                 l->data_bytes, config->data_kind == ZRO_MEMORY_ONCE ? "once" : "each", l->grad_bytes,
                 (unsigned long long)hash);
    }
    return zro__leave(group,
                      zro__agree(&group->board, ZRO__CALL_PARAMS_ALLOC, "the arguments of params_alloc", text, &number, mine));
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

zro_status zro_params_alloc(zro_group *group, zro_param *params, size_t n, const zro_alloc_config *given)
{
    layout l = { NULL, NULL, 0, 0, 1 };
    zro_alloc_config config;
    zro__place *place = NULL;
    zro_status st = zro__check_group(group);

    if (st != ZRO_OK)
        return st;
    st = check(params, n, given, &config);
    if (st == ZRO_OK)
        st = make_layout(params, n, &config, &l);
    if (st == ZRO_OK && (place = new_place(config.data_kind)) == NULL)
        st = zro__fail(ZRO_ERR_MEMORY, "params_alloc: out of memory");
    st = agree(group, params, &config, &l, n, st);
    if (st == ZRO_OK)
        st = take(group, place, &l);
    for (size_t i = 0; st == ZRO_OK && i < n; i++) { /* each holds on to it */
        zro__place_retain(place);
        params[i].memory = place;
        if (place->data != NULL)
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

static zro_status measure(zro__views *v, zro_param *const *params, size_t n, size_t *total)
{
    size_t offset;

    for (size_t i = 0; i < n; i++) {
        zro_param *p = params[i];
        size_t bytes = zro_param_count(p) * zro_dtype_bytes(p->dtype);

        if (p->memory != NULL || bytes == 0)
            continue;
        if (!put(bytes, total, &offset))
            return zro__fail(ZRO_ERR_MEMORY, "bucket views: %zu parameters need more bytes than there can be", n);
        v->of[v->n++] = (struct zro__view_of){ p, p->data, NULL, offset, bytes };
    }
    return ZRO_OK;
}

zro_status zro__views_make(zro_group *group, zro__account *account, zro_param *const *params, size_t n, zro__call call,
                           zro_status st, zro__views **out)
{
    zro__views *v = zro__alloc(account, ZRO__KIND_HANDLE, sizeof *v + n * sizeof v->of[0]);
    size_t total = 0;

    *out = NULL;
    if (st == ZRO_OK && v != NULL)
        st = measure(v, params, n, &total);
    if (st == ZRO_OK && (v == NULL || (v->place = new_place(ZRO_MEMORY_EACH)) == NULL))
        st = zro__fail(ZRO_ERR_MEMORY, "out of memory: views of %zu parameters", n);
    if (st == ZRO_OK)
        v->place->is_view = 1;
    st = zro__vote(&group->board, call, st);
    if (st == ZRO_OK && total > 0)
        st = zro_memory_alloc(group, ZRO_MEMORY_EACH, total, &v->place->data);
    if (st != ZRO_OK) {
        zro__place_release(v != NULL ? v->place : NULL);
        zro__free(v);
        return st;
    }
    for (size_t i = 0; i < v->n; i++) {
        v->of[i].view = (char *)zro_memory_data(v->place->data) + v->of[i].at;
        memcpy(v->of[i].view, v->of[i].own, v->of[i].bytes);
    }
    *out = v;
    return ZRO_OK;
}

void zro__views_show(zro__views *v)
{
    for (size_t i = 0; i < v->n; i++) {
        v->of[i].param->data = v->of[i].view;
        v->of[i].param->memory = v->place;
    }
}

void zro__views_undo(zro__views *v, int is_alive)
{
    while (v != NULL) {
        zro__views *next = v->next;

        for (size_t i = 0; is_alive && i < v->n; i++) {
            zro_param *p = v->of[i].param;

            if (p->memory != v->place) /* never shown */
                continue;
            p->memory = NULL;
            if (p->data != v->of[i].view) /* moved by the program */
                continue;
            memcpy(v->of[i].own, v->of[i].view, v->of[i].bytes);
            p->data = v->of[i].own;
        }
        zro__place_release(v->place);
        zro__free(v);
        v = next;
    }
}
