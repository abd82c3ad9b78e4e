/* Settings of the rules as text, "rule name=value name=value ...": at least one for each way that a rule can take. */
#ifndef SETTINGS_H
#define SETTINGS_H

#include "zro.h"

enum { SETTINGS = 26, SETTING_VALUES = 16, ELEMENT_TYPES = 11 };
extern const char *const settings[SETTINGS];

/* Element types of parameter and gradient, and how 16-bit parameters are kept: with masters, or rounded in place. */
typedef struct element_type {
    zro_dtype dtype, grad;
    zro_switch masters;
    zro_rounding rounding;
} element_type;

extern const element_type element_types[ELEMENT_TYPES];

typedef struct setting {
    const char *from; /* the text that was read */
    const zro_rule *rule;
    zro_value values[SETTING_VALUES]; /* their names are in copy */
    size_t n_values;
    char copy[256];
} setting;

/* A check fails if it is none. */
void setting_read(setting *s, const char *text);

#endif
