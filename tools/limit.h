/* How fast memory lets a collective call, or a step of an optimizer, be: loops of the same shape, that is, with the same reads
 * and writes of the same arrays by as many ranks or threads that divide them in the same way, but with next to no arithmetic,
 * and in which nobody waits for anybody.
 *
 * What the fastest loop for a shape is depends on the processor, on sizes, and on how far arrays lie apart.  So there are
 * several, and the one to compare with is found by trying. */
#ifndef ZRO_TOOLS_LIMIT_H
#define ZRO_TOOLS_LIMIT_H

#include <stddef.h>

#include "base/pool.h"
#include "zro.h"

/* ---- collective calls ---- */

/* For i < count: v = by * (src[0][i] + src[1][i] + ...); dst[j][i] = v for each j.  A destination may be a source. */
typedef struct limit_call {
    const float **src;
    float **dst;
    int n_src, n_dst;
    size_t count;
    int in_place; /* destinations are sources: storing around the caches makes no sense */
} limit_call;

/* The number of loops there are.  name: "plain" (a register at a time), "eight" (eight of them), "library" (its kernel), each
 * with " nt" if it stores around the caches, or "memcpy".  fits: whether it is a loop for this shape. */
int limit_call_loops(void);
const char *limit_call_name(int loop);
int limit_call_fits(int loop, const limit_call *shape);

void limit_call_run(int loop, const limit_call *shape, float by);

/* ---- steps ---- */

enum { LIMIT_ARRAYS = ZRO_MAX_SLOTS + 1, LIMIT_GRADS = 64 };

/* One parameter: gradients, one or one per rank, which are read; arrays, which are read and written; and, if the parameter itself
 * has 16 bits and a master among the arrays, the parameter, which is written.
 *
 * A loop leaves in each array a weighted mean of what was there and of something positive (the gradients, if they have the array's
 * type), so positive values stay positive, and none overflows or vanishes, however often it runs. */
typedef struct limit_param {
    size_t count;
    const void *const *grads;
    void *arrays[LIMIT_ARRAYS];
    void *output;
} limit_param;

typedef struct limit_step {
    zro_dtype type; /* of the arrays: F32 or F64 */
    int halves;   /* gradients and outputs have 16 bits; otherwise gradients have the arrays' type, and there are no outputs */
    int n_arrays; /* of each parameter, at least 2 */
    int n_grads;  /* of each parameter, at most LIMIT_GRADS; 1 if they have 16 bits */
    const limit_param *params;
    size_t n_params;
} limit_step;

/* The number of loops there are.  name: "plain" (a register at a time), "four" or "eight" (as many of them), the first two also
 * with " ahead": these prefetch, as far as the library does or would. */
int limit_step_loops(void);
const char *limit_step_name(int loop);

void limit_step_run(int loop, const limit_step *shape, zro__pool *pool);

/* Bytes that a loop reads and writes for each element of a parameter. */
size_t limit_step_bytes(const limit_step *shape);

#endif
