/* A parameter group's values: doubles in the order of the rule's list, wherever they came from.  Pure functions over one
 * array. */
#ifndef ZRO_OPTIM_VALUES_H
#define ZRO_OPTIM_VALUES_H

#include "zro.h"

/* Checks a rule that a program has made: that its table can be worked with.  INVALID says why not. */
zro_status zro__rule_check(const zro_rule *rule);

/* The index of a name in the list, or -1. */
int zro__values_find(const zro_rule *rule, const char *name);

/* INVALID: there is no value of this name; the text has those that there are. */
zro_status zro__values_unknown(const zro_rule *rule, const char *name);

/* `base` (NULL: the rule's defaults), the fields of the struct (or NULL) on top of it, values by name on top of that; all
 * checked. `out` has rule->n_hypers of them. */
zro_status zro__values_read(const zro_rule *rule, const double *base, const void *config, const zro_value *values, size_t n,
                            double *out);

/* Whether all of them are allowed.  INVALID names the first that is not, with its value. */
zro_status zro__values_check(const zro_rule *rule, const double *values);

/* Bit s: with these values the rule keeps slot s. */
uint32_t zro__values_slots(const zro_rule *rule, const double *values);

/* The first value of the elements of a slot. */
double zro__values_init(const zro_rule *rule, size_t slot, const double *values);

#endif
