/* A parameter group's values: see values.h. */
#include "optim/values.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bounds.h"
#include "base/status.h"

int zro__values_find(const zro_rule *rule, const char *name)
{
    for (size_t i = 0; name != NULL && i < rule->n_hypers; i++)
        if (strcmp(rule->hypers[i].name, name) == 0)
            return (int)i;
    return -1;
}

zro_status zro__values_unknown(const zro_rule *rule, const char *name)
{
    char known[256] = "";

    for (size_t i = 0; i < rule->n_hypers && strlen(known) < sizeof known - 64; i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), " %.60s", rule->hypers[i].name);
    return zro__fail(ZRO_ERR_INVALID, "%s has no value named \"%s\"; it has:%s", rule->name, name != NULL ? name : "(null)",
                     known);
}

zro_status zro__values_check(const zro_rule *rule, const double *values)
{
    for (size_t i = 0; i < rule->n_hypers; i++) {
        const zro_hyper *h = &rule->hypers[i];
        const int flags = h->kind == ZRO_FLAG ? ZRO__SWITCH : (int)h->open;
        const zro__bound bound = { h->name, values[i], fmax(h->low, -DBL_MAX), fmin(h->high, DBL_MAX), flags };
        zro_status st = zro__bounds_check(rule->name, &bound, 1);

        if (st != ZRO_OK)
            return st;
    }
    return rule->check != NULL ? rule->check(values) : ZRO_OK;
}

/* What every rule's struct begins with. */
typedef struct head {
    size_t struct_size;
    const char *rule;
} head;

/* A struct that is no rule's has anything there: the kernel is asked whether it can be read. */
static int is_text(const char *text)
{
    return text == NULL || access(text, F_OK) == 0 || errno != EFAULT;
}

static size_t field_bytes(const zro_hyper *h)
{
    return h->kind == ZRO_FLAG ? sizeof(zro_switch) : sizeof(double);
}

/* The fields of the rule's struct, as far as the caller's version of it has them. */
static zro_status read_config(const zro_rule *rule, const void *config, double *out)
{
    head h0;

    memcpy(&h0, config, sizeof h0.struct_size);
    if (rule->config_bytes == 0)
        return zro__fail(ZRO_ERR_INVALID, "%s: the rule has no struct of values", rule->name);
    if (h0.struct_size < sizeof h0 || h0.struct_size > 4096)
        return zro__fail(ZRO_ERR_INVALID, "%s: the struct of values has struct_size = %zu; begin with its initializer",
                         rule->name, h0.struct_size);
    memcpy(&h0, config, sizeof h0);
    if (!is_text(h0.rule))
        return zro__fail(ZRO_ERR_INVALID,
                         "%s: the struct of values is none; begin with the initializer of the rule's own struct", rule->name);
    if (h0.rule == NULL || strcmp(h0.rule, rule->name) != 0)
        return zro__fail(ZRO_ERR_INVALID, "%s: the struct of values is that of rule %s; begin with the initializer of %s",
                         rule->name, h0.rule != NULL ? h0.rule : "(null)", rule->name);
    for (size_t i = 0; i < rule->n_hypers; i++) {
        const zro_hyper *h = &rule->hypers[i];
        zro_switch flag;

        if (h->offset == 0 || h->offset + field_bytes(h) > h0.struct_size)
            continue;
        if (h->kind == ZRO_FLAG) {
            memcpy(&flag, (const char *)config + h->offset, sizeof flag);
            out[i] = (double)flag;
        } else {
            memcpy(&out[i], (const char *)config + h->offset, sizeof out[i]);
        }
    }
    return ZRO_OK;
}

zro_status zro__values_read(const zro_rule *rule, const double *base, const void *config, const zro_value *values, size_t n,
                            double *out)
{
    zro_status st = ZRO_OK;

    for (size_t i = 0; i < rule->n_hypers; i++)
        out[i] = base != NULL ? base[i] : rule->hypers[i].init;
    if (config != NULL)
        st = read_config(rule, config, out);
    if (st != ZRO_OK)
        return st;
    if (values == NULL && n > 0)
        return zro__fail(ZRO_ERR_INVALID, "%s: values is NULL, but n_values = %zu", rule->name, n);
    for (size_t i = 0; i < n; i++) {
        int at = zro__values_find(rule, values[i].name);

        if (at < 0)
            return zro__values_unknown(rule, values[i].name);
        out[at] = values[i].value;
    }
    return zro__values_check(rule, out);
}

uint32_t zro__values_slots(const zro_rule *rule, const double *values)
{
    uint32_t needed = 0;

    for (size_t i = 0; i < rule->n_slots; i++) {
        const char *name = rule->slots[i].only_with;

        if (name == NULL || values[zro__values_find(rule, name)] != 0)
            needed |= (uint32_t)1 << i;
    }
    return needed;
}

double zro__values_init(const zro_rule *rule, size_t slot, const double *values)
{
    const zro_slot_spec *s = &rule->slots[slot];

    return s->init_value != NULL ? values[zro__values_find(rule, s->init_value)] : s->init;
}

static zro_status check_hypers(const zro_rule *rule)
{
    for (size_t i = 0; i < rule->n_hypers; i++) {
        const zro_hyper *h = &rule->hypers[i];
        size_t bytes = field_bytes(h);

        if (h->name == NULL || h->name[0] == '\0')
            return zro__fail(ZRO_ERR_INVALID, "rule %s: value %zu has no name", rule->name, i);
        if (zro__values_find(rule, h->name) != (int)i)
            return zro__fail(ZRO_ERR_INVALID, "rule %s: two values are named \"%s\"", rule->name, h->name);
        if (h->kind != ZRO_REAL && h->kind != ZRO_FLAG)
            return zro__fail(ZRO_ERR_INVALID, "rule %s: value \"%s\" is neither a number nor a flag", rule->name, h->name);
        if (h->offset != 0
            && (h->offset < sizeof(head) || rule->config_bytes < bytes || h->offset > rule->config_bytes - bytes))
            return zro__fail(ZRO_ERR_INVALID, "rule %s: \"%s\" lies outside of the struct of values", rule->name, h->name);
    }
    return ZRO_OK;
}

static zro_status check_slots(const zro_rule *rule)
{
    if (rule->n_slots > ZRO_MAX_SLOTS)
        return zro__fail(ZRO_ERR_INVALID, "rule %s: %zu slots, at most %d are possible", rule->name, rule->n_slots,
                         ZRO_MAX_SLOTS);
    for (size_t i = 0; i < rule->n_slots; i++) {
        const zro_slot_spec *s = &rule->slots[i];

        if (s->name == NULL || s->name[0] == '\0' || strcmp(s->name, "master") == 0)
            return zro__fail(ZRO_ERR_INVALID, "rule %s: slot %zu has no name of its own (\"master\" is taken)", rule->name, i);
        for (size_t k = 0; k < i; k++)
            if (strcmp(rule->slots[k].name, s->name) == 0)
                return zro__fail(ZRO_ERR_INVALID, "rule %s: two slots are named \"%s\"", rule->name, s->name);
        if (s->kind != ZRO_SLOT_ARRAY && s->kind != ZRO_SLOT_NUMBER && s->kind != ZRO_SLOT_COUNT)
            return zro__fail(ZRO_ERR_INVALID, "rule %s: slot \"%s\" is no array, number or count", rule->name, s->name);
        if ((s->init_value != NULL && zro__values_find(rule, s->init_value) < 0)
            || (s->only_with != NULL && zro__values_find(rule, s->only_with) < 0))
            return zro__fail(ZRO_ERR_INVALID, "rule %s: slot \"%s\" refers to a value that does not exist", rule->name,
                             s->name);
    }
    return ZRO_OK;
}

zro_status zro__rule_check(const zro_rule *rule)
{
    zro_status st;

    if (rule->struct_size != sizeof *rule)
        return zro__fail(ZRO_ERR_INVALID, "the rule's struct_size is %zu, must be %zu", rule->struct_size, sizeof *rule);
    if (rule->name == NULL || rule->name[0] == '\0')
        return zro__fail(ZRO_ERR_INVALID, "the rule has no name");
    if ((rule->hypers == NULL && rule->n_hypers > 0) || (rule->slots == NULL && rule->n_slots > 0))
        return zro__fail(ZRO_ERR_INVALID, "rule %s: its list of values or slots is NULL", rule->name);
    if (rule->f32 == NULL && rule->f64 == NULL)
        return zro__fail(ZRO_ERR_INVALID, "rule %s: it has no loop", rule->name);
    st = check_hypers(rule);
    return st == ZRO_OK ? check_slots(rule) : st;
}
