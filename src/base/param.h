/* Parameters: what can be said of them without an optimizer. */
#ifndef ZRO_BASE_PARAM_H
#define ZRO_BASE_PARAM_H

#include "zro.h"

enum { ZRO__NAME_BYTES = 24 };

/* A parameter in texts: its name, or without one (NULL) its index, written into a buffer of ZRO__NAME_BYTES. */
const char *zro__param_name(const char *name, size_t index, char *buffer);

/* What every handle asks of a parameter: dense, of a size that can be, with data.  INVALID names it.  shape: the size alone. */
zro_status zro__param_check(const zro_param *param, size_t index);
zro_status zro__param_check_shape(const zro_param *param, size_t index);

/* A parameter with its index, for sorting. */
typedef struct zro__numbered {
    const zro_param *param;
    size_t index, bytes; /* of its data */
} zro__numbered;

/* That none of them is there twice or shares memory with another, which would be updated twice.  Sorts the list.  INVALID names
 * both. */
zro_status zro__params_check_apart(zro__numbered *list, size_t n);

#endif
