/* A line search: given the point where a direction begins, finds a t > 0 at which the strong Wolfe conditions hold,
 *
 *   f(t) <= f(0) + 1e-4 t f'(0)   and   |f'(t)| <= 0.9 |f'(0)|,
 *
 * or the lowest point that it has seen when its steps are used up.  It knows the function along the direction alone; vectors
 * are the caller's, who keeps the gradients of the points in ZRO__WOLFE_BUFFERS buffers and is told which of them to use.
 *
 * The search is PyTorch's step by step, for infinite and NaN values too: a NaN ends it at a NaN, and never keeps it going. */
#ifndef ZRO_OPTIM_WOLFE_H
#define ZRO_OPTIM_WOLFE_H

#include <stdint.h>

#include "zro.h"

enum { ZRO__WOLFE_BUFFERS = 4 };

typedef struct zro__wolfe_point {
    double t;     /* how far along the direction */
    double f;     /* the function there */
    double slope; /* its derivative by t */
    int buffer;   /* which buffer has the gradient, 0 to ZRO__WOLFE_BUFFERS - 1 */
} zro__wolfe_point;

typedef struct zro__wolfe {
    /* Fills in f and slope at point->t and puts the gradient into the buffer point->buffer.  If it fails, so does the search. */
    zro_status (*evaluate)(void *user, zro__wolfe_point *point);
    void *user;
    double longest;     /* largest |element| of the direction: intervals shorter than 1e-9 in every element are not searched */
    uint64_t max_steps; /* there is one evaluation more than steps */
    zro_dtype dtype;    /* F32 or F64: t is rounded to it, and functions are compared in it */
} zro__wolfe;

/* Begins at `start`, whose t is 0, and tries t first.  The buffer of `start` is never written; `found` may be `start` again. */
zro_status zro__wolfe_search(const zro__wolfe *w, const zro__wolfe_point *start, double t, zro__wolfe_point *found);

/* A number as an array of that type holds it. */
static inline double zro__rounded(zro_dtype dtype, double x)
{
    return dtype == ZRO_F32 ? (double)(float)x : x;
}

#endif
