/* Update rules: what the files rule_*.c are written with.
 *
 * A rule is one file: its values, its slots, its per-step scalars and its loop over elements.  The file is compiled once per
 * instruction set, like the kernels, and each time defines the rule's whole table as zro__rule_<name>_<isa>; what the program
 * sees is the table of the base, and the engine takes the loops of the one that it computes with.  The loop itself is a
 * template at the end of the file, for f32 and f64: loops.h includes the file once more for each.
 *
 * The rules of arithmetic: add, subtract, multiply, divide, square root, compare and select, each rounded by itself, and in an
 * order that stands in the file, so that every build gives the same bits.  Scalars are computed in double, in PyTorch's order,
 * and rounded once to the loop's type. */
#ifndef ZRO_OPTIM_RULE_H
#define ZRO_OPTIM_RULE_H

#include <float.h>
#include <math.h>
#include <stddef.h>

#include "base/isa.h"
#include "zro.h"

#define ZRO__RULE(name) ZRO__OF_ISA(zro__rule_##name##_)

/* Rows of a rule's list of values.  A value lies in [low, high]; `open` says which of the two bounds are not allowed themselves.
 * All values are finite. */
#define ZRO__VALUE(config, field, kind, open, init, low, high, torch)                                                          \
    {                                                                                                                          \
#field, kind, open, init, low, high, offsetof(zro_##config##_config, field), torch                                     \
    }
#define ZRO__BOUNDED(config, field, init, low, high, open, torch)                                                              \
    ZRO__VALUE(config, field, ZRO_REAL, open, init, low, high, torch)
#define ZRO__ANY(config, field, init) ZRO__BOUNDED(config, field, init, -DBL_MAX, DBL_MAX, 0, NULL)
#define ZRO__AT_LEAST_0(config, field, init) ZRO__BOUNDED(config, field, init, 0, DBL_MAX, 0, NULL)
#define ZRO__BETA(config, field, init, torch) ZRO__BOUNDED(config, field, init, 0, 1, ZRO_OPEN_HIGH, torch)
#define ZRO__FLAG(config, field) ZRO__VALUE(config, field, ZRO_FLAG, 0, 0, 0, 1, NULL)

/* The five values that Adam and all that came after it begin with. */
#define ZRO__ADAM_VALUES(config, rate, decay)                                                                                  \
    [LR] = ZRO__AT_LEAST_0(config, lr, rate), [BETA1] = ZRO__BETA(config, beta1, 0.9, "betas:0"),                              \
    [BETA2] = ZRO__BETA(config, beta2, 0.999, "betas:1"), [EPS] = ZRO__AT_LEAST_0(config, eps, 1e-8),                          \
    [WEIGHT_DECAY] = ZRO__AT_LEAST_0(config, weight_decay, decay)

/* Rows of its list of slots. */
#define ZRO__SLOT(name, kind, only_with)                                                                                       \
    {                                                                                                                          \
        name, kind, ZRO_OFF, 0, NULL, only_with                                                                                \
    }
#define ZRO__COUNT(name) ZRO__SLOT(name, ZRO_SLOT_COUNT, NULL)
#define ZRO__ARRAY(name, only_with) ZRO__SLOT(name, ZRO_SLOT_ARRAY, only_with)

#define ZRO__LENGTH(array) (sizeof(array) / sizeof *(array))

/* A table: values and slots are arrays of that name in the file, loops those that loops.h has made. */
#define ZRO__RULE_TABLE(rule, torch, check, prepare)                                                                           \
    {                                                                                                                          \
        sizeof(zro_rule), #rule, torch, values_of_##rule, ZRO__LENGTH(values_of_##rule), slots, ZRO__LENGTH(slots),            \
            sizeof(zro_##rule##_config), ZRO_OFF, check, NULL, prepare, loop_f32, loop_f64                                     \
    }

/* The weights of a moving average x = lerp(x, g, weight) as a loop computes it: (late ? g : x) + by * (g - x), which is exact
 * at both ends, also where g is infinite. */
static inline void zro__lerp(double weight, double *late, double *by)
{
    *late = weight >= 0.5;
    *by = weight < 0.5 ? weight : -(1 - weight);
}

/* A rule's scalars begin with its values, in their order; but where `maximize` stands, which is the last of them, the loop
 * finds the sign that gradients are multiplied by. */
static inline void zro__take_values(const zro_rule_step *s, size_t maximize)
{
    for (size_t i = 0; i < maximize; i++)
        s->scalars[i] = s->values[i];
    s->scalars[maximize] = s->values[maximize] != 0 ? -1 : 1;
}

/* The loops of a rule for an instruction set: those of the rule's own table unless they are the library's. */
typedef struct zro__loops {
    void (*f32)(const zro_rule_tile *tile);
    void (*f64)(const zro_rule_tile *tile);
} zro__loops;

zro__loops zro__rule_loops(const zro_rule *rule, zro_kernels kernels);

#endif
