/* Parameters: see param.h. */
#include "base/param.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/search.h"
#include "base/settings.h"
#include "base/status.h"

ZRO__DEFINE_INIT(zro_param, ZRO_PARAM_INIT)

size_t zro_param_count(const zro_param *param)
{
    size_t count = 1;

    if (param == NULL)
        return 0;
    if (param->n_dims > ZRO_MAX_DIMS)
        return SIZE_MAX;
    if (param->n_dims == 1)
        return param->shape[0];
    for (uint32_t i = 0; i < param->n_dims; i++)
        if (param->shape[i] == 0)
            return 0;
    for (uint32_t i = 0; i < param->n_dims; i++)
        if (!zro__size_mul(count, param->shape[i], &count))
            return SIZE_MAX;
    return count;
}

void zro_param_make(zro_param *param, const char *name, zro_dtype dtype, void *data, void *grad, uint32_t n_dims,
                    const size_t *shape)
{
    zro_param_init(param);
    if (param == NULL)
        return;
    param->name = name;
    param->dtype = dtype;
    param->data = data;
    param->n_dims = n_dims; /* too many are refused by whoever takes the parameter */
    for (uint32_t i = 0; i < n_dims && i < ZRO_MAX_DIMS; i++)
        param->shape[i] = shape[i];
    zro_param_set_grad(param, grad);
}

void zro_params_mark_grads(zro_param *params, size_t n)
{
    for (size_t i = 0; params != NULL && i < n; i++)
        zro_param_set_grad(&params[i], params[i].grad);
}

void zro_param_set_grad(zro_param *param, void *grad)
{
    if (param == NULL)
        return;
    param->grad = grad;
    __atomic_store_n(&param->grad_present, grad != NULL, __ATOMIC_RELEASE); /* pairs with the acquire in zro__shard_scan */
}

const char *zro__param_name(const char *name, size_t index, char *buffer)
{
    char *at = buffer + ZRO__NAME_BYTES - 1;

    if (name != NULL)
        return name;
    *at = '\0';
    do
        *--at = (char)('0' + index % 10);
    while ((index /= 10) != 0);
    return at;
}

const char *zro__param_shape(const zro_param *p, char *buffer)
{
    char *at = buffer;

    *at = '\0';
    for (uint32_t d = 0; d < p->n_dims && d < ZRO_MAX_DIMS; d++)
        at += sprintf(at, "%s%zu", d == 0 ? "" : "x", p->shape[d]);
    return buffer;
}

zro_status zro__param_fail(zro_status code, const char *name, size_t index, const char *format, ...)
{
    char buffer[ZRO__NAME_BYTES], why[ZRO__TEXT_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    return zro__fail(code, "parameter %s: %s", zro__param_name(name, index, buffer), why);
}

zro_dtype zro__param_grad_type(const zro_param *p)
{
    return p->grad_dtype == ZRO_SAME ? p->dtype : p->grad_dtype;
}

/* A parameter has no struct_size, but fields that its initializer sets to zero. */
static int is_initialised(const zro_param *p)
{
    return p->reserved32 == 0 && (p->reserved[0] | p->reserved[1] | p->reserved[2]) == 0;
}

/* Without its name, which is as little initialised as the rest. */
static zro_status not_initialised(size_t index)
{
    return zro__param_fail(ZRO_ERR_INVALID, NULL, index,
                           "it was not initialised: fields that must be zero are not; begin with zro_param_make, or with "
                           "zro_param p = ZRO_PARAM_INIT");
}

zro_status zro__param_check_shape(const zro_param *p, size_t index)
{
    const size_t most = SIZE_MAX / 16;
    int is_large = zro_param_count(p) > most;

    if (!is_initialised(p))
        return not_initialised(index);
    if (p->n_dims > ZRO_MAX_DIMS)
        return zro__param_fail(ZRO_ERR_INVALID, p->name, index, "%u dimensions, at most %d are possible", (unsigned)p->n_dims,
                               ZRO_MAX_DIMS);
    for (uint32_t i = 0; i < p->n_dims; i++)
        is_large |= p->shape[i] > most; /* also where another dimension is 0 */
    for (uint32_t i = p->n_dims; i < ZRO_MAX_DIMS; i++)
        if (p->shape[i] != 0)
            return zro__param_fail(ZRO_ERR_INVALID, p->name, index, "shape[%u] = %zu, but n_dims = %u; set n_dims", (unsigned)i,
                                   p->shape[i], (unsigned)p->n_dims);
    if (is_large)
        return zro__param_fail(ZRO_ERR_INVALID, p->name, index, "its shape has more elements than memory can hold");
    return ZRO_OK;
}

zro_status zro__param_check_types(const zro_param *p, size_t index)
{
    if (!is_initialised(p))
        return not_initialised(index);
    if (!zro__dtype_is_known(p->dtype))
        return zro__param_fail(ZRO_ERR_INVALID, p->name, index, "dtype = %d is no element type", (int)p->dtype);
    if (!zro__dtype_is_known(zro__param_grad_type(p)))
        return zro__param_fail(ZRO_ERR_INVALID, p->name, index, "grad_dtype = %d is no element type", (int)p->grad_dtype);
    return ZRO_OK;
}

zro_status zro__param_check(const zro_param *p, size_t index)
{
    zro_status st = zro__param_check_shape(p, index);

    if (st != ZRO_OK)
        return st;
    if (p->layout != ZRO_LAYOUT_DENSE)
        return zro__param_fail(ZRO_ERR_INVALID, p->name, index, "its layout is %s, must be dense",
                               p->layout == ZRO_LAYOUT_SPARSE    ? "sparse"
                               : p->layout == ZRO_LAYOUT_STRIDED ? "strided"
                                                                 : "unknown");
    if (p->data == NULL && zro_param_count(p) > 0)
        return zro__param_fail(ZRO_ERR_INVALID, p->name, index,
                               "data is NULL; point it at its values, or let zro_params_alloc hand out memory");
    if (p->data != NULL && zro_param_count(p) == 0)
        return zro__param_fail(ZRO_ERR_INVALID, p->name, index,
                               "it has data, but its shape has no elements; set the shape, or data to NULL");
    if (p->data != NULL && p->data == p->grad)
        return zro__param_fail(ZRO_ERR_INVALID, p->name, index, "data and grad are the same array; a gradient needs its own");
    return ZRO_OK;
}

/* Sorts by the address of the array; where there is none, or it is the same, by the parameter's own address. */
static int by_address(const void *a, const void *b)
{
    const zro__numbered *p = a, *q = b;
    uintptr_t x = (uintptr_t)p->array, y = (uintptr_t)q->array;

    if (x == y) {
        x = (uintptr_t)p->param;
        y = (uintptr_t)q->param;
    }
    return x != y ? (x > y) - (x < y) : (p->index > q->index) - (p->index < q->index);
}

const zro__numbered *zro__params_find_shared(zro__numbered *list, size_t n)
{
    zro__sort(list, n, sizeof *list, by_address);
    for (size_t i = 1; i < n; i++) {
        const zro__numbered *a = &list[i - 1], *b = &list[i];

        if (a->param == b->param || (b->bytes > 0 && (uintptr_t)b->array - (uintptr_t)a->array < a->bytes))
            return a;
    }
    return NULL;
}

zro_status zro__params_check_apart(zro__numbered *list, size_t n)
{
    const zro__numbered *a = zro__params_find_shared(list, n);
    char first[ZRO__NAME_BYTES], second[ZRO__NAME_BYTES];

    if (a == NULL)
        return ZRO_OK;
    if (a[0].param == a[1].param)
        return zro__fail(ZRO_ERR_INVALID, "parameter %s is there twice", zro__param_name(a->param->name, a->index, first));
    return zro__fail(ZRO_ERR_INVALID, "parameters %s and %s share memory; weights that are tied are one parameter",
                     zro__param_name(a[0].param->name, a[0].index, first),
                     zro__param_name(a[1].param->name, a[1].index, second));
}
