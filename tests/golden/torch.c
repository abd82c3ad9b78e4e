/* PyTorch's names for what zro calls by its own: see golden.h.  The rules' tables know them; nothing is listed here. */
#include <stdlib.h>
#include <string.h>

#include "golden.h"

const zro_rule *golden_rule(golden_case *c, const char *name)
{
    const zro_rule *rule = zro_rule_find(name);

    if (rule != NULL && rule->torch != NULL && strcmp(rule->torch, name) == 0)
        return rule;
    golden_fail(c, "the optimizer \"%s\" is not known", name);
    return NULL;
}

#define SCALAR SIZE_MAX

/* Whether PyTorch has a hyper-parameter under this key: as the i-th of a list, or as a SCALAR. */
static int is_called(const zro_hyper *hyper, const char *key, size_t i)
{
    const char *torch = hyper->torch != NULL ? hyper->torch : hyper->name, *colon = strchr(torch, ':');
    size_t length = colon != NULL ? (size_t)(colon - torch) : strlen(torch);
    size_t place = colon != NULL ? strtoul(colon + 1, NULL, 10) : SCALAR;

    return strlen(key) == length && memcmp(torch, key, length) == 0 && place == i;
}

static const zro_hyper *find_hyper(const zro_rule *rule, const char *key, size_t i)
{
    for (size_t h = 0; h < rule->n_hypers; h++)
        if (is_called(&rule->hypers[h], key, i))
            return &rule->hypers[h];
    return NULL;
}

/* One value, if the option has the type that the hyper-parameter has. */
static void convert(golden_case *c, const char *key, const zro_hyper *hyper, json_t *json, zro_value *value)
{
    int fits = hyper->kind == ZRO_FLAG ? json_is_boolean(json) : json_is_number(json);

    if (!fits)
        golden_fail(c, "the option \"%s\" must be %s", key, hyper->kind == ZRO_FLAG ? "true or false" : "a number");
    value->name = hyper->name;
    value->value = json_is_true(json) ? 1 : json_number_value(json);
}

zro_value *golden_values(golden_case *c, const zro_rule *rule, json_t *options, size_t *n)
{
    zro_value *values;

    *n = 0;
    if (rule == NULL || !golden_object(c, "\"options\"", options))
        return NULL;
    values = golden_alloc(c, rule->n_hypers * sizeof *values);
    for (void *at = json_object_iter(options); at != NULL; at = json_object_iter_next(options, at)) {
        const char *key = json_object_iter_key(at);
        json_t *json = json_object_iter_value(at);
        size_t length = json_is_array(json) ? json_array_size(json) : 0;
        const zro_hyper *hyper = find_hyper(rule, key, SCALAR);

        if (hyper != NULL) {
            convert(c, key, hyper, json, &values[(*n)++]);
            continue;
        }
        if (find_hyper(rule, key, 0) == NULL)
            golden_fail(c, "the option \"%s\" of %s is not known", key, rule->torch);
        else if (length == 0 || find_hyper(rule, key, length - 1) == NULL || find_hyper(rule, key, length) != NULL)
            golden_fail(c, "the option \"%s\" of %s must be a list of another length", key, rule->torch);
        for (size_t i = 0; golden_ok(c) && i < length; i++)
            convert(c, key, find_hyper(rule, key, i), json_array_get(json, i), &values[(*n)++]);
    }
    return values;
}

const zro_slot_spec *golden_find_slot(const zro_rule *rule, const char *name)
{
    for (size_t s = 0; s < rule->n_slots; s++)
        if (strcmp(rule->slots[s].name, name) == 0)
            return &rule->slots[s];
    return NULL;
}

const char *golden_torch_name(const zro_rule *rule, const char *value)
{
    for (size_t h = 0; h < rule->n_hypers; h++)
        if (strcmp(rule->hypers[h].name, value) == 0 && rule->hypers[h].torch != NULL)
            return rule->hypers[h].torch;
    return value;
}

int golden_is_meaningless(const char *key)
{
    static const char *const keys[] = { "foreach", "fused", "capturable", "differentiable" };

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(keys[i], key) == 0)
            return 1;
    return 0;
}
