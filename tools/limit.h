/* How fast memory lets a collective be: loops of the same shape, that is, with the same reads and writes of the same arrays by
 * the same ranks, in which nobody waits for anybody.
 *
 * What the fastest loop for a shape is depends on processor, size and how far arrays lie apart.  So there are several, the
 * library's own kernels among them, and the one to compare with is found by trying. */
#ifndef ZRO_TOOLS_LIMIT_H
#define ZRO_TOOLS_LIMIT_H

#include <stddef.h>

/* For i < count: v = by * (src[0][i] + src[1][i] + ...); dst[j][i] = v for each j.  A destination may be a source. */
typedef struct limit_shape {
    const float **src;
    float **dst;
    int n_src, n_dst;
    size_t count;
    int in_place; /* destinations are sources: storing around the caches makes no sense */
} limit_shape;

/* The number of loops there are.  name: "plain" (a register at a time), "eight" (eight of them), "library" (its kernel), each
 * with " nt" if it stores around the caches, or "memcpy".  fits: whether it is a loop for this shape. */
int limit_loops(void);
const char *limit_name(int loop);
int limit_fits(int loop, const limit_shape *shape);

void limit_run(int loop, const limit_shape *shape, float by);

#endif
