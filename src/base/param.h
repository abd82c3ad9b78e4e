/* Parameters: what can be said of them without an optimizer. */
#ifndef ZRO_BASE_PARAM_H
#define ZRO_BASE_PARAM_H

#include "zro.h"

enum { ZRO__NAME_BYTES = 24 };

/* Its name, or the index as a number, written into a buffer of ZRO__NAME_BYTES. */
const char *zro__param_name(const zro_param *param, size_t index, char *buffer);

#endif
