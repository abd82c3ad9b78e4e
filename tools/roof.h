/* How fast memory lets a step of an optimizer be: loops of the same shape, that is, with the same reads and writes of the same
 * arrays by as many threads that divide them in the same way, but with next to no arithmetic.
 *
 * What the fastest loop is depends on processor and arrays.  So there are several, and the one to compare with is found by trying.
 *
 * A loop leaves in each array the mean of what was there and of something positive (the gradient, if it has the array's type), so
 * positive values stay positive, and none overflows or vanishes, however often it runs. */
#ifndef ZRO_TOOLS_ROOF_H
#define ZRO_TOOLS_ROOF_H

#include <stddef.h>

#include "base/pool.h"
#include "zro.h"

enum { ROOF_ARRAYS = ZRO_MAX_SLOTS + 1 };

/* One parameter: a gradient, which is read; arrays, which are read and written; and, if the parameter itself has 16 bits and a
 * master among the arrays, the parameter, which is written. */
typedef struct roof_run {
    size_t count;
    const void *grad;
    void *arrays[ROOF_ARRAYS];
    void *output;
} roof_run;

typedef struct roof_shape {
    zro_dtype type; /* of the arrays: F32 or F64 */
    int halves;   /* gradients and outputs have 16 bits; otherwise gradients have the arrays' type, and there are no outputs */
    int n_arrays; /* of a run, at least 2 */
    const roof_run *runs;
    size_t n_runs;
} roof_shape;

/* The number of loops there are.  name: "plain" (a register at a time) or "four" (four of them), each with " ahead" if it
 * prefetches, as far as the library does or would. */
int roof_loops(void);
const char *roof_name(int loop);

void roof_run_all(int loop, const roof_shape *shape, zro__pool *pool);

/* Bytes that a run reads and writes for each of its elements. */
size_t roof_bytes(const roof_shape *shape);

#endif
