/* Parameters: see param.h. */
#include "base/param.h"

#include <stdint.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/status.h"

void zro_param_init(zro_param *param)
{
    static const zro_param init = ZRO_PARAM_INIT;

    if (param != NULL)
        *param = init;
}

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

void zro_param_set_grad(zro_param *param, void *grad)
{
    if (param == NULL)
        return;
    param->grad = grad;
    __atomic_store_n(&param->grad_present, grad != NULL, __ATOMIC_RELEASE); /* pairs with the look at the start of a step */
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

zro_status zro__param_check_shape(const zro_param *p, size_t index)
{
    char name[ZRO__NAME_BYTES];

    if (p->n_dims > ZRO_MAX_DIMS)
        return zro__fail(ZRO_ERR_INVALID, "parameter %s: %u dimensions, at most %d are possible",
                         zro__param_name(p->name, index, name), (unsigned)p->n_dims, ZRO_MAX_DIMS);
    if (zro_param_count(p) > SIZE_MAX / 16)
        return zro__fail(ZRO_ERR_INVALID, "parameter %s: its shape has more elements than memory can hold",
                         zro__param_name(p->name, index, name));
    return ZRO_OK;
}

zro_status zro__param_check(const zro_param *p, size_t index)
{
    char name[ZRO__NAME_BYTES];
    zro_status st;

    if (p->layout != ZRO_LAYOUT_DENSE)
        return zro__fail(ZRO_ERR_INVALID, "parameter %s: its layout is %s, must be dense",
                         zro__param_name(p->name, index, name),
                         p->layout == ZRO_LAYOUT_SPARSE    ? "sparse"
                         : p->layout == ZRO_LAYOUT_STRIDED ? "strided"
                                                           : "unknown");
    st = zro__param_check_shape(p, index);
    if (st == ZRO_OK && p->data == NULL && zro_param_count(p) > 0)
        st = zro__fail(ZRO_ERR_INVALID, "parameter %s: data is NULL", zro__param_name(p->name, index, name));
    return st;
}

/* By data, and what has none or the same by its own address. */
static int by_address(const void *a, const void *b)
{
    const zro__numbered *p = a, *q = b;
    uintptr_t x = (uintptr_t)p->param->data, y = (uintptr_t)q->param->data;

    if (x == y) {
        x = (uintptr_t)p->param;
        y = (uintptr_t)q->param;
    }
    return x != y ? (x > y) - (x < y) : (p->index > q->index) - (p->index < q->index);
}

/* They often are. */
static int is_sorted(const zro__numbered *list, size_t n)
{
    size_t i = 1;

    while (i < n && by_address(&list[i - 1], &list[i]) < 0)
        i++;
    return i >= n;
}

zro_status zro__params_check_apart(zro__numbered *list, size_t n)
{
    char first[ZRO__NAME_BYTES], second[ZRO__NAME_BYTES];

    if (!is_sorted(list, n))
        qsort(list, n, sizeof *list, by_address);
    for (size_t i = 1; i < n; i++) {
        const zro__numbered *a = &list[i - 1], *b = &list[i];

        if (a->param == b->param)
            return zro__fail(ZRO_ERR_INVALID, "parameter %s is there twice", zro__param_name(a->param->name, a->index, first));
        if (b->bytes > 0 && (uintptr_t)b->param->data - (uintptr_t)a->param->data < a->bytes)
            return zro__fail(ZRO_ERR_INVALID, "parameters %s and %s share memory",
                             zro__param_name(a->param->name, a->index, first),
                             zro__param_name(b->param->name, b->index, second));
    }
    return ZRO_OK;
}
