/* A state's groups, parameters and progress as JSON: see state_json.h.
 *
 *   {"format": 1, "rule": "adamw", "steps": 7, "scale": 65536.0, "growth_tracker": 3,
 *    "groups": [{"lr": 0.1, "betas": [0.9, 0.999], "amsgrad": false, "params": [0, 1]}],
 *    "params": [{"name": "w", "shape": [2, 3], "dtype": "f32"},
 *               {"name": null, "shape": [], "dtype": "bf16", "grad_dtype": "f32"}]}
 *
 * The keys of groups are PyTorch's; the values "betas:0" and "betas:1" of a state are a list here.  Parameters are numbered
 * over all groups, in order.  Numbers have 17 digits, enough for every double, and do not follow the locale.
 *
 * Reading passes over what it does not know beside these keys, null among the values, and whatever is no number where PyTorch
 * says how it computes (foreach, ...).  A newer format is refused. */
#include "checkpoint/state_json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/status.h"
#include "zero/state.h"

enum { FORMAT = 1 };

/* ---- writing ---- */

static zro_status no_memory(const zro_state *s)
{
    return zro__fail(ZRO_ERR_MEMORY, "out of memory: a description of %zu parameters", s->n_params);
}

static const zro__state_value *find_value(const zro__state_group *g, const char *base, size_t bytes, size_t place)
{
    char name[ZRO__STATE_NAME_BYTES + 32];

    snprintf(name, sizeof name, "%.*s:%zu", (int)bytes, base, place);
    for (size_t i = 0; i < g->n_values; i++)
        if (strcmp(g->values[i].name, name) == 0)
            return &g->values[i];
    return NULL;
}

static json_t *json_of_value(const zro__state_value *v)
{
    return v->kind == ZRO_FLAG ? json_boolean(v->value != 0) : json_real(v->value);
}

/* The list whose first value is `v`. */
static json_t *json_of_list(const zro__state_group *g, const zro__state_value *v, size_t base_bytes)
{
    json_t *list = json_array();

    for (size_t i = 0; v != NULL; v = find_value(g, v->name, base_bytes, ++i))
        if (json_array_append_new(list, json_of_value(v)) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

/* Adds a value, or the list that it is the first of; the others of a list have come with that. */
static zro_status put_value(const zro_state *s, size_t group, const zro__state_value *v, json_t *out)
{
    const zro__state_group *g = &s->groups[group];
    const char *colon = strchr(v->name, ':');
    size_t base_bytes = colon != NULL ? (size_t)(colon - v->name) : strlen(v->name), place = 0;
    char base[ZRO__STATE_NAME_BYTES + 1];

    if (!isfinite(v->value))
        return zro__fail(ZRO_ERR_INVALID, "group %zu: %s = %g, a file has finite values alone", group, v->name, v->value);
    if (colon != NULL && sscanf(colon, ":%zu", &place) == 1 && place > 0) {
        if (find_value(g, v->name, base_bytes, place - 1) == NULL)
            return zro__fail(ZRO_ERR_INVALID, "group %zu: %s is there, but no %.*s:%zu", group, v->name, (int)base_bytes,
                             v->name, place - 1);
        return ZRO_OK;
    }
    memcpy(base, v->name, base_bytes);
    base[base_bytes] = '\0';
    if (json_object_get(out, base) != NULL)
        return zro__fail(ZRO_ERR_INVALID, "group %zu: %s is both a value and a list", group, base);
    return json_object_set_new(out, base, colon != NULL ? json_of_list(g, v, base_bytes) : json_of_value(v)) != 0 ? no_memory(s)
                                                                                                                  : ZRO_OK;
}

static zro_status put_group(const zro_state *s, size_t group, json_t *out)
{
    const zro__state_group *g = &s->groups[group];
    json_t *params = json_array();
    zro_status st = ZRO_OK;

    for (size_t i = 0; i < g->n_values && st == ZRO_OK; i++)
        st = put_value(s, group, &g->values[i], out);
    for (size_t i = 0; i < g->n && st == ZRO_OK; i++)
        if (json_array_append_new(params, json_integer((json_int_t)(g->first + i))) != 0)
            st = no_memory(s);
    if (json_object_set_new(out, "params", params) != 0 && st == ZRO_OK)
        st = no_memory(s);
    return st;
}

static json_t *json_of_param(const zro__state_param *p)
{
    json_t *out = json_object(), *shape = json_array();
    int failed = json_object_set_new(out, "name", p->name != NULL ? json_string(p->name) : json_null());

    for (uint32_t i = 0; i < p->n_dims; i++)
        failed |= json_array_append_new(shape, json_integer((json_int_t)p->shape[i]));
    failed |= json_object_set_new(out, "shape", shape);
    failed |= json_object_set_new(out, "dtype", json_string(zro_dtype_name(p->dtype)));
    if (p->grad_dtype != ZRO_SAME && p->grad_dtype != p->dtype)
        failed |= json_object_set_new(out, "grad_dtype", json_string(zro_dtype_name(p->grad_dtype)));
    if (failed) {
        json_decref(out);
        return NULL;
    }
    return out;
}

static zro_status put_lists(const zro_state *s, json_t *groups, json_t *params)
{
    zro_status st = ZRO_OK;

    for (size_t i = 0; i < s->n_groups && st == ZRO_OK; i++) {
        json_t *group = json_object();

        st = put_group(s, i, group);
        if (json_array_append_new(groups, group) != 0 && st == ZRO_OK)
            st = no_memory(s);
    }
    for (size_t i = 0; i < s->n_params && st == ZRO_OK; i++)
        if (json_array_append_new(params, json_of_param(&s->params[i])) != 0)
            st = no_memory(s);
    return st;
}

zro_status zro__state_to_json(const zro_state *s, json_t **out)
{
    json_t *json = json_object(), *groups = json_array(), *params = json_array();
    int failed = json_object_set_new(json, "format", json_integer(FORMAT));
    zro_status st;

    failed |= json_object_set_new(json, "rule", json_string(s->rule));
    failed |= json_object_set_new(json, "steps", json_integer((json_int_t)s->progress.steps));
    failed |= json_object_set_new(json, "scale", json_real(s->progress.scale));
    failed |= json_object_set_new(json, "growth_tracker", json_integer(s->progress.growth_tracker));
    st = failed ? no_memory(s) : put_lists(s, groups, params);
    failed |= json_object_set_new(json, "groups", groups);
    failed |= json_object_set_new(json, "params", params);
    if (failed && st == ZRO_OK)
        st = no_memory(s);
    if (st != ZRO_OK) {
        json_decref(json);
        json = NULL;
    }
    *out = json;
    return st;
}

/* ---- reading ---- */

static const char *type_name(const json_t *json)
{
    static const char *const names[] = { "an object", "a list", "a text", "an integer", "a number", "true", "false", "null" };

    return json == NULL ? "missing" : names[json_typeof(json)];
}

/* What building by hand refuses is the file's fault here. */
static zro_status blame(const char *where, zro_status st)
{
    char text[ZRO__TEXT_BYTES];

    if (st != ZRO_ERR_INVALID)
        return st;
    snprintf(text, sizeof text, "%s", zro_last_error());
    return zro__fail(ZRO_ERR_FORMAT, "%s: %s", where, text);
}

static zro_status check_format(const char *where, const json_t *json)
{
    const json_t *format = json_object_get(json, "format");

    if (!json_is_integer(format))
        return zro__fail(ZRO_ERR_FORMAT, "%s: format is %s, must be an integer", where, type_name(format));
    if (json_integer_value(format) > FORMAT)
        return zro__fail(ZRO_ERR_FORMAT, "%s: format %lld is newer than this version of zro, which knows %d", where,
                         (long long)json_integer_value(format), FORMAT);
    if (json_integer_value(format) != FORMAT)
        return zro__fail(ZRO_ERR_FORMAT, "%s: there is no format %lld", where, (long long)json_integer_value(format));
    return ZRO_OK;
}

/* An absent one is 0. */
static zro_status get_integer(const char *where, const json_t *json, const char *key, json_int_t most, json_int_t *out)
{
    const json_t *value = json_object_get(json, key);

    *out = json_integer_value(value);
    if (value != NULL && (!json_is_integer(value) || *out < 0 || *out > most))
        return zro__fail(ZRO_ERR_FORMAT, "%s: %s must be an integer, at least 0 and at most %lld", where, key, (long long)most);
    return ZRO_OK;
}

static zro_status get_progress(const char *where, const json_t *json, zro_state *s)
{
    const json_t *scale = json_object_get(json, "scale");
    json_int_t steps, tracker = 0;
    zro_status st = get_integer(where, json, "steps", INT64_MAX, &steps);
    zro_progress progress = { .scale = json_number_value(scale) };

    if (st == ZRO_OK)
        st = get_integer(where, json, "growth_tracker", UINT32_MAX, &tracker);
    if (st != ZRO_OK)
        return st;
    if (scale != NULL && !json_is_number(scale))
        return zro__fail(ZRO_ERR_FORMAT, "%s: scale is %s, must be a number", where, type_name(scale));
    progress.steps = (uint64_t)steps;
    progress.growth_tracker = (uint32_t)tracker;
    return blame(where, zro_state_set_progress(s, &progress));
}

static zro_status get_number(const char *where, zro_state *s, const char *name, const json_t *json)
{
    size_t group = s->n_groups - 1;

    if (json_is_boolean(json))
        return blame(where, zro__state_set_value(s, group, name, json_is_true(json), ZRO_FLAG));
    if (json_is_number(json))
        return blame(where, zro__state_set_value(s, group, name, json_number_value(json), ZRO_REAL));
    return zro__fail(ZRO_ERR_FORMAT, "%s: group %zu: %.100s is %s, must be a number, true or false", where, group, name,
                     type_name(json));
}

static zro_status get_value(const char *where, zro_state *s, const char *name, const json_t *json)
{
    char element[ZRO__STATE_NAME_BYTES + 32];
    zro_status st = ZRO_OK;

    if (json_is_null(json) || (zro__state_is_ignored(name) && !json_is_number(json) && !json_is_boolean(json)))
        return ZRO_OK;
    if (strchr(name, ':') != NULL)
        return zro__fail(ZRO_ERR_FORMAT, "%s: group %zu: the name %.100s must not contain ':'", where, s->n_groups - 1, name);
    if (!json_is_array(json))
        return get_number(where, s, name, json);
    for (size_t i = 0; i < json_array_size(json) && st == ZRO_OK; i++) {
        snprintf(element, sizeof element, "%.*s:%zu", ZRO__STATE_NAME_BYTES, name, i);
        st = get_number(where, s, element, json_array_get(json, i));
    }
    return st;
}

static zro_dtype dtype_of(const json_t *json)
{
    const char *text = json_string_value(json);

    for (int i = 0; text != NULL && zro__dtype_is_known((zro_dtype)i); i++)
        if (strcmp(zro_dtype_name((zro_dtype)i), text) == 0)
            return (zro_dtype)i;
    return ZRO_SAME;
}

static zro_status get_types(const char *where, size_t index, const json_t *json, zro_param *p)
{
    const json_t *grad = json_object_get(json, "grad_dtype");

    p->dtype = dtype_of(json_object_get(json, "dtype"));
    p->grad_dtype = dtype_of(grad);
    if (p->dtype == ZRO_SAME)
        return zro__fail(ZRO_ERR_FORMAT, "%s: parameter %zu: dtype is no element type", where, index);
    if (grad != NULL && p->grad_dtype == ZRO_SAME)
        return zro__fail(ZRO_ERR_FORMAT, "%s: parameter %zu: grad_dtype is no element type", where, index);
    return ZRO_OK;
}

static zro_status get_param(const char *where, zro_state *s, const json_t *json)
{
    const json_t *name = json_object_get(json, "name"), *shape = json_object_get(json, "shape");
    zro_param p = ZRO_PARAM_INIT;
    zro_status st;

    if (name != NULL && !json_is_null(name) && !json_is_string(name))
        return zro__fail(ZRO_ERR_FORMAT, "%s: parameter %zu: its name is %s, must be a text or null", where, s->n_params,
                         type_name(name));
    if (!json_is_array(shape) || json_array_size(shape) > ZRO_MAX_DIMS)
        return zro__fail(ZRO_ERR_FORMAT, "%s: parameter %zu: shape must be a list of at most %d", where, s->n_params,
                         ZRO_MAX_DIMS);
    p.name = json_string_value(name);
    p.n_dims = (uint32_t)json_array_size(shape);
    for (size_t i = 0; i < p.n_dims; i++) {
        const json_t *dim = json_array_get(shape, i);

        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return zro__fail(ZRO_ERR_FORMAT, "%s: parameter %zu: shape[%zu] must be an integer >= 0", where, s->n_params, i);
        p.shape[i] = (size_t)json_integer_value(dim);
    }
    st = get_types(where, s->n_params, json, &p);
    return st != ZRO_OK ? st : blame(where, zro_state_add_param(s, &p));
}

/* A group's parameters: the next ones. */
static zro_status get_params(const char *where, zro_state *s, const json_t *indices, const json_t *params)
{
    zro_status st = ZRO_OK;

    if (!json_is_array(indices))
        return zro__fail(ZRO_ERR_FORMAT, "%s: group %zu: params is %s, must be a list", where, s->n_groups - 1,
                         type_name(indices));
    for (size_t i = 0; i < json_array_size(indices) && st == ZRO_OK; i++) {
        const json_t *index = json_array_get(indices, i);

        if (!json_is_integer(index) || json_integer_value(index) != (json_int_t)s->n_params)
            return zro__fail(ZRO_ERR_FORMAT, "%s: group %zu: params[%zu] must be %zu: parameters are numbered over all groups",
                             where, s->n_groups - 1, i, s->n_params);
        if (s->n_params >= json_array_size(params))
            return zro__fail(ZRO_ERR_FORMAT, "%s: group %zu has parameter %zu, but the list of parameters ends before", where,
                             s->n_groups - 1, s->n_params);
        st = get_param(where, s, json_array_get(params, s->n_params));
    }
    return st;
}

static zro_status get_group(const char *where, zro_state *s, json_t *json, const json_t *params)
{
    zro_status st = zro_state_add_group(s, NULL, 0);
    const char *name;
    json_t *value;

    if (st == ZRO_OK && !json_is_object(json))
        return zro__fail(ZRO_ERR_FORMAT, "%s: group %zu is %s, must be an object", where, s->n_groups - 1, type_name(json));
    json_object_foreach(json, name, value)
    {
        if (st == ZRO_OK && strcmp(name, "params") != 0)
            st = get_value(where, s, name, value);
    }
    return st != ZRO_OK ? st : get_params(where, s, json_object_get(json, "params"), params);
}

static zro_status fill(const char *where, const json_t *json, zro_state *s)
{
    const json_t *groups = json_object_get(json, "groups"), *params = json_object_get(json, "params");
    zro_status st = get_progress(where, json, s);

    if (st != ZRO_OK)
        return st;
    if (!json_is_array(groups) || !json_is_array(params))
        return zro__fail(ZRO_ERR_FORMAT, "%s: groups and params must be lists", where);
    for (size_t i = 0; i < json_array_size(groups) && st == ZRO_OK; i++)
        st = get_group(where, s, json_array_get(groups, i), params);
    if (st == ZRO_OK && s->n_params != json_array_size(params))
        return zro__fail(ZRO_ERR_FORMAT, "%s: parameter %zu is in no group", where, s->n_params);
    return st;
}

zro_status zro__state_from_json(const char *where, const json_t *json, zro_state **out)
{
    const json_t *rule = json_object_get(json, "rule");
    zro_status st = check_format(where, json);

    *out = NULL;
    if (st != ZRO_OK)
        return st;
    if (!json_is_string(rule))
        return zro__fail(ZRO_ERR_FORMAT, "%s: rule is %s, must be a text", where, type_name(rule));
    st = blame(where, zro_state_create(json_string_value(rule), out));
    if (st == ZRO_OK)
        st = fill(where, json, *out);
    if (st != ZRO_OK) {
        zro_state_destroy(*out);
        *out = NULL;
    }
    return st;
}
