/* The pure reference: what a reduction is, in scalar C that shares nothing with the library.  Every path of the library is
 * compared with it bit by bit.  It expects the default floating-point mode and must be compiled without contraction to fma. */
#ifndef ZRO_TESTS_REFERENCE_H
#define ZRO_TESTS_REFERENCE_H

#include <stddef.h>
#include <stdint.h>

#include "zro.h"

/* out[i] = op over in[0..ranks)[i].
 *
 * cells: one number a rank, ranks of one number forming a cell; NULL: one cell.  Ranks are added in order inside a cell,
 * starting with the first one's value; then the cells' sums, in order of their lowest rank.
 * weights: one a rank, only with AVG, which then divides by their sum (in double, in rank order); NULL: none.
 * present: 0 for a rank that has no value and adds +0.0 (its in[] is not read); NULL: all are. */
void reference_reduce(zro_dtype dtype, zro_op op, int ranks, const int32_t *cells, const double *weights,
                      const unsigned char *present, const void *const *in, void *out, size_t count);

/* 1 if the arrays are the same bytes, a NaN being equal to a NaN; otherwise 0 and *where, if not NULL, is the first element
 * that differs. */
int reference_same(zro_dtype dtype, const void *a, const void *b, size_t count, size_t *where);

/* Random elements: ordinary numbers, and all that is special: zeros of both signs, subnormals, infinities, NaN, extremes. */
void reference_fill(zro_dtype dtype, uint64_t *seed, void *out, size_t count);

/* The next number of a generator that is the same on every machine. */
uint64_t reference_random(uint64_t *seed);

/* Element i of a floating-point array as the number it is; and set to the nearest one, ties to even. */
double reference_get(zro_dtype dtype, const void *array, size_t i);
void reference_put(zro_dtype dtype, void *array, size_t i, double x);

#endif
