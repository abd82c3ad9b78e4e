/* The library's rules by name, and their loops by instruction set. */
#include <string.h>

#include "base/kernels.h"
#include "optim/rule.h"

#define RULES(DO)                                                                                                              \
    DO(sgd) DO(adam) DO(adamw) DO(adagrad) DO(adadelta) DO(adamax) DO(rmsprop) DO(rprop) DO(asgd) DO(nadam) DO(radam)

#define DECLARE(name) ZRO__ISA_DECLARE(zro_rule, zro__rule_##name);
#define ROW(name) &zro__rule_##name##_base,
#define GETTER(name)                                                                                                           \
    const zro_rule *zro_rule_##name(void)                                                                                      \
    {                                                                                                                          \
        return &zro__rule_##name##_base;                                                                                       \
    }                                                                                                                          \
    void zro_##name##_config_init(zro_##name##_config *config)                                                                 \
    {                                                                                                                          \
        config_init(&zro__rule_##name##_base, config);                                                                         \
    }

RULES(DECLARE)

static const zro_rule *const rules[] = { RULES(ROW) };

/* Fills a struct of values as its initializer does; the table of the rule says where each value is. */
static void config_init(const zro_rule *rule, void *config)
{
    if (config == NULL)
        return;
    memset(config, 0, rule->config_bytes);
    memcpy(config, &rule->config_bytes, sizeof rule->config_bytes);
    memcpy((char *)config + sizeof rule->config_bytes, &rule->name, sizeof rule->name);
    for (size_t i = 0; i < rule->n_hypers; i++) {
        const zro_hyper *h = &rule->hypers[i];
        const zro_switch flag = h->init != 0 ? ZRO_ON : ZRO_OFF;

        if (h->offset != 0 && h->kind == ZRO_FLAG)
            memcpy((char *)config + h->offset, &flag, sizeof flag);
        else if (h->offset != 0)
            memcpy((char *)config + h->offset, &h->init, sizeof h->init);
    }
}

RULES(GETTER)

/* It has no loop, and nothing looks into it: an optimizer without a rule keeps NULL. */
static const zro_rule none = { .struct_size = sizeof none, .name = "none" };

const zro_rule *zro_rule_none(void)
{
    return &none;
}

const zro_rule *zro_rule_find(const char *name)
{
    for (size_t i = 0; name != NULL && i < ZRO__LENGTH(rules); i++)
        if (strcmp(name, rules[i]->name) == 0 || strcmp(name, rules[i]->torch) == 0)
            return rules[i];
    return NULL;
}

#define TAKE(name)                                                                                                             \
    if (rule->f32 == zro__rule_##name##_base.f32)                                                                              \
        loops.f32 = ZRO__ISA_PICK(zro__rule_##name, kernels)->f32;                                                             \
    if (rule->f64 == zro__rule_##name##_base.f64)                                                                              \
        loops.f64 = ZRO__ISA_PICK(zro__rule_##name, kernels)->f64;

zro__loops zro__rule_loops(const zro_rule *rule, zro_kernels kernels)
{
    zro__loops loops = { rule->f32, rule->f64 };

    RULES(TAKE)
    return loops;
}
