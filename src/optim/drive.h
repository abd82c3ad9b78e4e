/* Drives a rule's loop over a run of elements of one parameter: whatever their types are, the loop sees f32 or f64.
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

/* A run.  Addresses are those of its first element. */
typedef struct zro__drive {
    void (*loop)(const zro_rule_tile *tile);
    size_t count, first, param; /* elements; where they begin, and in which parameter */
    zro_dtype type;             /* of loop and slots: F32 or F64 */
    zro_dtype data_type, grad_type;
    const void *grad;
    void *data;
    void *master;               /* f32 beside 16-bit data, or NULL */
    void *slots[ZRO_MAX_SLOTS]; /* NULL: none */
    size_t n_slots;
    uint32_t fill;        /* bits: slots that begin here */
    uint32_t fill_master; /* the master begins here */
    const double *begin;  /* by slot: what such a slot begins with */
    const void *scalars;  /* in the loop's type */
    void *user;
    const zro__factors *factors;
    size_t ahead;   /* elements: how far to prefetch; 0: not at all */
    int stochastic; /* bf16 data without master: rounded by chance */
    uint64_t key;
    int whole;     /* the loop wants all of it at once */
    void *scratch; /* then: room for twice as many elements in the loop's type, or NULL where memory is worked on itself */
} zro__drive;

typedef void (*zro__drive_fn)(const zro__drive *d);

/* The driver for an instruction set.  The floating-point mode must be the default (zro__fpmode_enter). */
zro__drive_fn zro__drive_get(zro_kernels kernels);

#endif
