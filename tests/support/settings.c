/* Settings of the rules: see settings.h. */
#include "settings.h"

#include <stdlib.h>
#include <string.h>

#include "zt/zt.h"

const char *const settings[SETTINGS] = {
    "sgd lr=0.1",
    "sgd lr=0.1 momentum=0.9 weight_decay=0.01",
    "sgd lr=0.1 momentum=0.9 dampening=0.3 maximize=1",
    "sgd lr=0.1 momentum=0.9 nesterov=1",
    "adam",
    "adam beta1=0.3 weight_decay=0.1",
    "adam amsgrad=1 maximize=1 weight_decay=0.1 decoupled_weight_decay=1",
    "adamw",
    "adamw amsgrad=1",
    "adagrad lr_decay=0.1 initial_accumulator_value=0.1",
    "adagrad weight_decay=0.1",
    "adadelta",
    "adadelta weight_decay=0.1",
    "adamax",
    "adamax weight_decay=0.1 maximize=1",
    "rmsprop",
    "rmsprop momentum=0.9 weight_decay=0.1",
    "rmsprop centered=1",
    "rmsprop centered=1 momentum=0.5",
    "rprop",
    "asgd",
    "asgd t0=0 weight_decay=0.1",
    "nadam",
    "nadam weight_decay=0.1 decoupled_weight_decay=1",
    "radam",
    "radam beta2=0.5 weight_decay=0.1",
};

const element_type element_types[ELEMENT_TYPES] = {
    { ZRO_F32, ZRO_F32, ZRO_ON, ZRO_NEAREST },      { ZRO_F64, ZRO_F64, ZRO_ON, ZRO_NEAREST },
    { ZRO_BF16, ZRO_BF16, ZRO_ON, ZRO_NEAREST },    { ZRO_F16, ZRO_F16, ZRO_ON, ZRO_NEAREST },
    { ZRO_BF16, ZRO_F32, ZRO_ON, ZRO_NEAREST },     { ZRO_BF16, ZRO_BF16, ZRO_OFF, ZRO_NEAREST },
    { ZRO_F16, ZRO_F32, ZRO_OFF, ZRO_NEAREST },     { ZRO_F32, ZRO_BF16, ZRO_ON, ZRO_NEAREST },
    { ZRO_F64, ZRO_F32, ZRO_ON, ZRO_NEAREST },      { ZRO_F32, ZRO_F64, ZRO_ON, ZRO_NEAREST },
    { ZRO_BF16, ZRO_F32, ZRO_OFF, ZRO_STOCHASTIC },
};

void setting_read(setting *s, const char *text)
{
    char *word, *rest;

    memset(s, 0, sizeof *s);
    s->from = text;
    CHECK(strlen(text) < sizeof s->copy);
    strcpy(s->copy, text);
    word = strtok_r(s->copy, " ", &rest);
    s->rule = zro_rule_find(word);
    CHECK(s->rule != NULL);
    while ((word = strtok_r(NULL, " ", &rest)) != NULL) {
        char *equals = strchr(word, '=');

        CHECK(equals != NULL && s->n_values < SETTING_VALUES);
        *equals = '\0';
        s->values[s->n_values].name = word;
        s->values[s->n_values++].value = strtod(equals + 1, NULL);
    }
}
