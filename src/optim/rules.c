/* The library's rules by name, and their loops by instruction set. */
#include <string.h>

#include "base/kernels.h"
#include "optim/rule.h"

#define RULES(DO)                                                                                                              \
    DO(sgd) DO(adam) DO(adamw) DO(adagrad) DO(adadelta) DO(adamax) DO(rmsprop) DO(rprop) DO(asgd) DO(nadam) DO(radam)

#if defined(__x86_64__)
#define DECLARE(name) extern const zro_rule zro__rule_##name##_base, zro__rule_##name##_avx2, zro__rule_##name##_avx512;
#define ROW(name)                                                                                                              \
    { [ZRO_KERNELS_BASE] = &zro__rule_##name##_base,                                                                           \
      [ZRO_KERNELS_AVX2] = &zro__rule_##name##_avx2,                                                                           \
      [ZRO_KERNELS_AVX512] = &zro__rule_##name##_avx512 },
#else
#define DECLARE(name) extern const zro_rule zro__rule_##name##_base;
#define ROW(name) { [ZRO_KERNELS_BASE] = &zro__rule_##name##_base },
#endif
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

static const zro_rule *const rules[][ZRO_KERNELS_AVX512 + 1] = { RULES(ROW) };

enum { COUNT = sizeof rules / sizeof *rules };

/* The struct as the initializer's constant has it: the table says where each value is. */
static void config_init(const zro_rule *rule, void *config)
{
    if (config == NULL)
        return;
    memset(config, 0, rule->config_bytes);
    memcpy(config, &rule->config_bytes, sizeof rule->config_bytes);
    memcpy((char *)config + sizeof rule->config_bytes, &rule->name, sizeof rule->name);
    for (size_t i = 0; i < rule->n_hypers; i++) {
        const zro_hyper *h = &rule->hypers[i];
        zro_switch flag = h->init != 0 ? ZRO_ON : ZRO_OFF;

        if (h->offset == 0)
            continue;
        if (h->kind == ZRO_FLAG)
            memcpy((char *)config + h->offset, &flag, sizeof flag);
        else
            memcpy((char *)config + h->offset, &h->init, sizeof h->init);
    }
}

RULES(GETTER)

const zro_rule *zro_rule_find(const char *name)
{
    for (size_t i = 0; name != NULL && i < COUNT; i++)
        if (strcmp(name, rules[i][ZRO_KERNELS_BASE]->name) == 0 || strcmp(name, rules[i][ZRO_KERNELS_BASE]->torch) == 0)
            return rules[i][ZRO_KERNELS_BASE];
    return NULL;
}

zro__loops zro__rule_loops(const zro_rule *rule, zro_kernels kernels)
{
    zro__loops loops = { rule->f32, rule->f64 };

    for (size_t i = 0; i < COUNT; i++) {
        const zro_rule *base = rules[i][ZRO_KERNELS_BASE], *best = rules[i][kernels];

        if (loops.f32 == base->f32)
            loops.f32 = best->f32;
        if (loops.f64 == base->f64)
            loops.f64 = best->f64;
    }
    return loops;
}
