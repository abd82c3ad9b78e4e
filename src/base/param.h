/* Parameters: what can be said of them without an optimizer. */
#ifndef ZRO_BASE_PARAM_H
#define ZRO_BASE_PARAM_H

#include "zro.h"

enum { ZRO__NAME_BYTES = 24, ZRO__SHAPE_BYTES = 21 * ZRO_MAX_DIMS };

/* A parameter in texts: its name, or without one (NULL) its index, written into a buffer of ZRO__NAME_BYTES. */
const char *zro__param_name(const char *name, size_t index, char *buffer);

/* The same with a buffer of its own, which lasts until the end of the block of statements that this is in. */
#define ZRO__PARAM_NAME(name, index) zro__param_name(name, index, (char[ZRO__NAME_BYTES]){ "" })

/* Its shape in texts, "2x3", written into a buffer of ZRO__SHAPE_BYTES; "" if it has no dimensions. */
const char *zro__param_shape(const zro_param *param, char *buffer);

/* Fails with "parameter <name or index>: " and what the format says. */
zro_status zro__param_fail(zro_status code, const char *name, size_t index, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The element type of its gradient. */
zro_dtype zro__param_grad_type(const zro_param *param);

/* Whether it has a gradient now; the acquire pairs with the release of whoever said so: the gradient that was written before is seen.
 * mark: says that it has one, or has none. */
static inline int zro__param_has_grad(const zro_param *param)
{
    return param->requires_grad != 0 && __atomic_load_n(&param->grad_present, __ATOMIC_ACQUIRE) != 0;
}

static inline void zro__param_mark(zro_param *param, uint32_t present)
{
    __atomic_store_n(&param->grad_present, present, __ATOMIC_RELEASE);
}

/* What every handle asks of a parameter: dense, of a size that can be, with data.  INVALID names it.  shape: the size alone;
 * types: that its element types exist.  All of them refuse one that was not initialised, as far as that can be seen. */
zro_status zro__param_check(const zro_param *param, size_t index);
zro_status zro__param_check_shape(const zro_param *param, size_t index);
zro_status zro__param_check_types(const zro_param *param, size_t index);

/* An array of a parameter, its data or its gradient, with the parameter's index, for sorting. */
typedef struct zro__numbered {
    const zro_param *param;
    size_t index;
    size_t bytes; /* the size of the array */
    const void *array;
} zro__numbered;

/* Sorts the list by address, and returns the first array that shares memory with the next one, or belongs to the same parameter;
 * NULL: there is none. */
const zro__numbered *zro__params_find_shared(zro__numbered *list, size_t n);

/* Checks that no parameter is in a list of data twice or shares memory with another, which would be updated twice.  Sorts the
 * list.  INVALID names both. */
zro_status zro__params_check_apart(zro__numbered *list, size_t n);

#endif
