/* Drives a rule's loop over consecutive elements of one parameter: whatever their types are, the loop sees f32 or f64.
 *
 * Where gradient, parameter and loop have the same type and nothing is done to the gradient, the loop works on memory itself.
 * Otherwise a tile at a time is brought into the loop's type, unscaled, clipped, updated and brought back.  Compiled once per
 * instruction set. */
#ifndef ZRO_OPTIM_DRIVE_H
#define ZRO_OPTIM_DRIVE_H

#include <stddef.h>
#include <stdint.h>

#include "base/kernels.h"
#include "zro.h"

/* What happens to a gradient before the rule sees it: g = g * unscale, g = g * clip, |g| <= value. */
typedef struct zro__factors {
    double unscale, clip; /* 1: nothing */
    double value;         /* 0: nothing */
} zro__factors;

/* Gradients of several ranks that become one, and where the new data belongs besides the arrays of the owner; as in
 * zro__kernels.reduce. */
typedef struct zro__sources {
    const zro__reduce *reduce;
    const void *const *src;
    void *const *dst; /* the owner's own array may be among them */
    int n_dst;
    int stream; /* stores to the others go around the caches */
} zro__sources;

/* Consecutive elements of one parameter.  Addresses are those of the first of them. */
typedef struct zro__drive {
    void (*loop)(const zro_rule_tile *tile);
    size_t count;   /* elements */
    size_t first;   /* index of the first of them in the parameter */
    size_t param;   /* index of the parameter in the optimizer */
    zro_dtype type; /* the type of the loop and the slots: F32 or F64 */
    zro_dtype data_type, grad_type;
    const void *grad; /* not used with sources */
    void *data;
    void *master;               /* f32 copy of 16-bit data, or NULL */
    void *slots[ZRO_MAX_SLOTS]; /* NULL: the rule has no such array with these values */
    size_t n_slots;
    uint32_t fill;        /* bit s: slot s gets its first values before the loop runs */
    uint32_t fill_master; /* the master gets its first values before the loop runs */
    const double *begin;  /* begin[s]: the first value of the elements of slot s */
    const void *scalars;  /* in the loop's type */
    void *user;
    const zro__factors *factors;
    size_t ahead;   /* how many elements ahead to prefetch; 0: not at all */
    int stochastic; /* bf16 data are rounded up or down by chance; there are no masters then */
    uint64_t key;   /* which random numbers decide that */
    int whole;      /* the loop wants all elements in one call */
    void *scratch;  /* if so: memory for 2 * count elements of the loop's type; NULL if the loop can work on the arrays */
    const zro__kernels *kernels;
    const zro__sources *sources; /* the gradient is reduced from these, tile by tile; NULL: it is `grad` */
} zro__drive;

typedef void (*zro__drive_fn)(const zro__drive *d);

/* The drivers, to be taken by ZRO__ISA_PICK.  The floating-point mode must be the default (zro__fpmode_enter). */
ZRO__ISA_DECLARE(zro__drive_fn, zro__drive);

#endif
