/* What benchmarks of optimizers step: the rules, and parameters like those of GPT-2 124M. */
#ifndef ZRO_TOOLS_BENCH_MODEL_H
#define ZRO_TOOLS_BENCH_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "zro.h"

/* A rule with the values that make it do all of its work, and its arrays of state with them. */
typedef struct contender {
    const char *name;
    zro_value value; /* on top of the defaults; no name: none */
    int slots;
} contender;

enum { CONTENDERS = 11, GPT2_TENSORS = 148, GPT2_PARAMS = 124439808 };

extern const contender contenders[CONTENDERS];

/* The name of the i-th, for bench_read_list. */
const char *contender_name(int i);

/* How many elements each tensor has: those of GPT-2 124M, or the same list with another number of elements in all, as evenly as
 * it goes. */
void model_sizes(size_t *sizes, size_t elements);

/* Numbers between 1/128 and 3/128, neither slow to compute with nor soon out of range.  *random: any number at first. */
void model_fill(void *to, zro_dtype dtype, size_t count, uint32_t *random);

#endif
