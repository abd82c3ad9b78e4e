/* PyTorch's state dicts against zro's states: see golden.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden.h"

/* What a schedule adds to a group: PyTorch's files may have it or not. */
static const char first_lr[] = "initial_lr";

/* ---- reading ---- */

static void read_values(golden_case *c, const zro_rule *rule, json_t *json, golden_dict_group *group)
{
    json_t *options = json_object();
    zro_value *values, *extra = golden_alloc(c, json_object_size(json) * sizeof *extra);
    size_t n, n_extra = 0;

    for (void *at = json_object_iter(json); at != NULL; at = json_object_iter_next(json, at)) {
        const char *key = json_object_iter_key(at);
        json_t *value = json_object_iter_value(at);

        if (strcmp(key, "params") == 0 || (golden_is_meaningless(key) && json_is_null(value)))
            continue;
        if (strcmp(key, first_lr) == 0) {
            extra[n_extra++] = (zro_value){ key, golden_number(c, json, key, 0) };
        } else if (golden_is_meaningless(key)) {
            if (!json_is_boolean(value))
                golden_fail(c, "the option \"%s\" of %s must be true, false or null", key, rule->torch);
            extra[n_extra++] = (zro_value){ key, json_is_true(value) };
        } else {
            json_object_set(options, key, value);
        }
    }
    values = golden_values(c, rule, options, &n);
    json_decref(options);
    group->values = golden_alloc(c, (n + n_extra) * sizeof *group->values);
    for (size_t i = 0; i < n; i++)
        group->values[i] = (zro_value){ golden_torch_name(rule, values[i].name), values[i].value };
    if (n_extra > 0)
        memcpy(group->values + n, extra, n_extra * sizeof *extra);
    group->n_values = n + n_extra;
}

static void read_groups(golden_case *c, json_t *list, golden_dict *dict)
{
    size_t next = 0;

    dict->n_groups = json_array_size(list);
    dict->groups = golden_alloc(c, dict->n_groups * sizeof *dict->groups);
    for (size_t g = 0; g < dict->n_groups; g++) {
        json_t *json = json_array_get(list, g);
        golden_counts params;

        if (!golden_object(c, "the parameter group", json))
            return;
        params = golden_read_counts(c, "params", golden_list(c, json, "params"));
        for (size_t i = 0; i < params.n; i++)
            if (params.at[i] != next++)
                golden_fail(c, "\"params\" of group %zu has %zu, must have %zu", g, params.at[i], next - 1);
        dict->groups[g].n_params = params.n;
        read_values(c, dict->rule, json, &dict->groups[g]);
    }
    if (next != dict->params->n)
        golden_fail(c, "the groups have %zu parameters, must have %zu", next, dict->params->n);
}

static void read_state(golden_case *c, json_t *state, golden_dict *dict)
{
    dict->state = golden_alloc(c, dict->params->n * sizeof *dict->state);
    if (!golden_object(c, "\"state\"", state))
        return;
    for (void *at = json_object_iter(state); at != NULL; at = json_object_iter_next(state, at)) {
        const char *key = json_object_iter_key(at);
        json_t *slots = json_object_iter_value(at);
        size_t i = strtoul(key, NULL, 10);
        char again[24];

        snprintf(again, sizeof again, "%zu", i);
        if (strcmp(again, key) != 0 || i >= dict->params->n) {
            golden_fail(c, "\"state\" has the key \"%s\", which is no parameter", key);
            return;
        }
        c->param = i;
        dict->state[i] = slots;
        if (!golden_object(c, "the state", slots))
            return;
        for (void *slot = json_object_iter(slots); slot != NULL; slot = json_object_iter_next(slots, slot))
            if (golden_find_slot(dict->rule, json_object_iter_key(slot)) == NULL)
                golden_fail(c, "the state \"%s\" is not known", json_object_iter_key(slot));
        c->param = GOLDEN_NOWHERE;
    }
}

golden_dict golden_read_dict(golden_case *c, json_t *object, const char *key, const zro_rule *rule,
                             const golden_vectors *params)
{
    golden_dict dict = { .rule = rule, .params = params };
    json_t *json = json_object_get(object, key);

    if (rule == NULL || !golden_keys(c, key, json, "state param_groups", ""))
        return dict;
    read_state(c, json_object_get(json, "state"), &dict);
    read_groups(c, golden_list(c, json, "param_groups"), &dict);
    return dict;
}

golden_extent *golden_dict_extents(golden_case *c, const golden_dict *dict)
{
    golden_extent *extents = golden_alloc(c, dict->params->n * sizeof *extents);
    size_t next = 0;

    for (size_t g = 0; g < dict->n_groups; g++) {
        double weight_decay = 0;

        for (size_t v = 0; v < dict->groups[g].n_values; v++)
            if (strcmp(dict->groups[g].values[v].name, "weight_decay") == 0)
                weight_decay = fabs(dict->groups[g].values[v].value);
        for (size_t i = 0; i < dict->groups[g].n_params; i++)
            extents[next++].weight_decay = weight_decay;
    }
    return extents;
}

/* ---- making ---- */

static void add_slot(golden_case *c, const golden_dict *dict, zro_state *state, const char *name, json_t *json)
{
    zro_dtype dtype = dict->params->dtype;
    zro_status status;

    if (json_is_array(json)) {
        golden_vector x = golden_read_vector(c, name, json, dtype);

        status = zro_state_add_slot(state, c->param, name, dtype, x.data, x.count);
    } else {
        double number = json_number_value(json);

        if (!json_is_number(json))
            golden_fail(c, "%s must be a number or a list of numbers", name);
        if (dtype == ZRO_F32)
            number = (double)(float)number;
        status = zro_state_add_slot(state, c->param, name, ZRO_F64, &number, 1);
    }
    golden_call(c, "zro_state_add_slot", status);
}

static void add_group(golden_case *c, const golden_dict *dict, size_t g, const zro_param *params, zro_state *state)
{
    const golden_dict_group *group = &dict->groups[g];

    golden_call(c, "zro_state_add_group", zro_state_add_group(state, group->values, group->n_values));
    for (size_t i = 0; i < group->n_params && golden_ok(c); i++, c->param++) {
        json_t *slots = dict->state[c->param];

        golden_call(c, "zro_state_add_param", zro_state_add_param(state, &params[c->param]));
        for (void *at = json_object_iter(slots); at != NULL && golden_ok(c); at = json_object_iter_next(slots, at))
            add_slot(c, dict, state, json_object_iter_key(at), json_object_iter_value(at));
    }
}

zro_state *golden_make_state(golden_case *c, const golden_dict *dict, const zro_param *params)
{
    zro_state *state = NULL;

    golden_call(c, "zro_state_create", zro_state_create(dict->rule->name, &state));
    c->param = 0;
    for (size_t g = 0; g < dict->n_groups && golden_ok(c); g++)
        add_group(c, dict, g, params, state);
    c->param = GOLDEN_NOWHERE;
    if (golden_ok(c))
        return state;
    zro_state_destroy(state);
    return NULL;
}

/* ---- comparing ---- */

/* A schedule's numbers are PyTorch's but for their last digits. */
static void check_values(golden_case *c, const golden_dict *dict, size_t g, const zro_state *state, size_t n)
{
    const golden_dict_group *group = &dict->groups[g];

    for (size_t i = 0; i < group->n_values; i++) {
        double x = group->values[i].value, got = NAN;
        char what[100];

        if (golden_is_meaningless(group->values[i].name))
            continue;
        snprintf(what, sizeof what, "%s of group %zu", group->values[i].name, g);
        if (golden_call(c, "zro_state_get_value", zro_state_get_value(state, g, group->values[i].name, &got)))
            golden_near(c, what, ZRO_F64, got, x, 1e-12 * fabs(x) + 1e-18);
    }
    for (size_t i = 0; i < n; i++) {
        zro_value value = { NULL, 0 };
        size_t k = 0;

        if (!golden_call(c, "zro_state_value", zro_state_value(state, g, i, &value)))
            return;
        while (k < group->n_values && strcmp(group->values[k].name, value.name) != 0)
            k++;
        if (k == group->n_values && !golden_is_meaningless(value.name) && strcmp(value.name, first_lr) != 0)
            golden_fail(c, "%s of group %zu is there, the file has none", value.name, g);
    }
}

static void check_groups(golden_case *c, const golden_dict *dict, const zro_state *state)
{
    size_t next = 0;

    golden_exact(c, "the number of groups", (double)zro_state_groups(state), (double)dict->n_groups);
    golden_exact(c, "the number of parameters", (double)zro_state_params(state), (double)dict->params->n);
    for (size_t g = 0; golden_ok(c) && g < dict->n_groups; g++) {
        size_t first = 0, n = 0, n_values = 0;

        if (!golden_call(c, "zro_state_group", zro_state_group(state, g, &first, &n, &n_values)))
            return;
        golden_exact(c, "the first parameter of a group", (double)first, (double)next);
        golden_exact(c, "the number of parameters of a group", (double)n, (double)dict->groups[g].n_params);
        check_values(c, dict, g, state, n_values);
        next += n;
    }
}

/* The slots of one parameter: every one that the rule has, and no others. */
static void check_slots(golden_case *c, const golden_dict *dict, const zro_state *state, const golden_extent *extent)
{
    size_t found = 0;

    for (size_t s = 0; s < dict->rule->n_slots; s++) {
        const char *name = dict->rule->slots[s].name;
        zro_slot slot = { 0 };

        if (!golden_call(c, "zro_state_slot", zro_state_slot(state, c->param, name, &slot)))
            return;
        found += slot.present;
        golden_check_slot(c, dict->rule, name, &slot, json_object_get(dict->state[c->param], name), dict->params->dtype,
                          dict->params->at[c->param].count, extent);
    }
    golden_exact(c, "the number of slots", (double)zro_state_slots(state, c->param), (double)found);
}

void golden_check_state(golden_case *c, const golden_dict *dict, const zro_state *state, const golden_extent *extents)
{
    check_groups(c, dict, state);
    for (c->param = 0; golden_ok(c) && c->param < dict->params->n; c->param++) {
        zro_param param = ZRO_PARAM_INIT;

        golden_call(c, "zro_state_param", zro_state_param(state, c->param, &param));
        golden_exact(c, "the number of elements", (double)zro_param_count(&param), (double)dict->params->at[c->param].count);
        check_slots(c, dict, state, &extents[c->param]);
    }
    c->param = GOLDEN_NOWHERE;
}

void golden_check_consolidated(golden_case *c, const golden_dict *dict, zro_optim *optim, const zro_group *group,
                               const golden_extent *extents)
{
    int last = group != NULL ? zro_group_size(group) - 1 : 0, rank = group != NULL ? zro_group_rank(group) : 0;
    const int to[] = { 0, last, ZRO_ALL };

    for (size_t i = 0; i < sizeof to / sizeof *to; i++) {
        zro_state *state = NULL;

        if (!golden_call(c, "zro_optim_consolidate", zro_optim_consolidate(optim, to[i], &state)))
            return;
        if (to[i] == ZRO_ALL || to[i] == rank)
            golden_check_state(c, dict, state, extents);
        else if (state != NULL)
            golden_fail(c, "it has got the state, which was for rank %d", to[i]);
        zro_state_destroy(state);
    }
}
