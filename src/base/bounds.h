/* The bounds of configuration values.
 *
 * A module lists its values with the interval that each must lie in; one function checks the list and writes the error text,
 * so that all texts about bounds read alike: "zro_lbfgs_config: lr = -1, must be finite and > 0". */
#ifndef ZRO_BASE_BOUNDS_H
#define ZRO_BASE_BOUNDS_H

#include <float.h>
#include <math.h>
#include <stddef.h>

#include "zro.h"

/* Flags of a bound, beside ZRO_OPEN_LOW and ZRO_OPEN_HIGH, which say that the bound itself is not allowed. */
enum { ZRO__SWITCH = 4 }; /* a zro_switch: 0 or 1, nothing between them, and in the interval */

/* A value with the interval that it must lie in.  NaN lies in no interval.  The widest are [-DBL_MAX, DBL_MAX], all finite
 * numbers, and [-INFINITY, INFINITY].  Whole numbers are converted to double, which keeps their order. */
typedef struct zro__bound {
    const char *name;
    double value, low, high;
    int flags;
} zro__bound;

/* INVALID if a value lies outside of its interval.  The text begins with `what`, unless that is NULL, and names the first such
 * value, the number that it has and the interval. */
zro_status zro__bounds_check(const char *what, const zro__bound *bounds, size_t n);

#endif
