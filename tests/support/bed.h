/* Parameters for tests of optimizers: arrays with guards around them, random values, and comparisons. */
#ifndef BED_H
#define BED_H

#include "zro.h"

enum { BED_MAX = 64 };

typedef struct bed {
    size_t n;
    zro_param params[BED_MAX];
    size_t count[BED_MAX];
    size_t size, grad_size; /* bytes of an element */
    void *blocks[2 * BED_MAX];
} bed;

/* n one-dimensional parameters of `dtype`, all zeros, with gradients of `grad` present.  They begin at odd multiples of their
 * element. */
void bed_init(bed *b, zro_dtype dtype, zro_dtype grad, const size_t *counts, size_t n);
void bed_free(bed *b);

/* One parameter's elements as others: cut into `n` parameters at the borders given by lengths that add up to count. */
void bed_split(bed *to, const bed *from, const size_t *lengths, size_t n);

/* Random numbers: data in [-2, 2), gradients about normal times `scale`; wild: one in four is a special value or random
 * bits. */
void bed_fill(bed *b, uint64_t *random);
void bed_gradients(bed *b, uint64_t *random, double scale, int wild);

/* As a double, and back (rounded). */
double bed_get(const void *data, zro_dtype dtype, size_t i);
void bed_set(void *data, zro_dtype dtype, size_t i, double value);

/* Equal bits, a NaN being equal to a NaN; the elements one after another, whatever parameters they belong to. */
int bed_equal(const bed *a, const bed *b);
int bed_equal_arrays(const void *a, const void *b, zro_dtype dtype, size_t n);

/* An optimizer over all of them in one group, made with "name=value name=value ..." */
zro_optim *bed_optim(bed *b, const char *rule_and_values, const zro_optim_config *config);

#endif
