/* A state's groups, parameters and progress as JSON: see state_json.h.
 *
 *   {"format": 1, "rule": "adamw", "steps": 7, "scale": 65536.0, "growth_tracker": 3, "n_skipped": 1,
 *    "groups": [{"lr": 0.1, "betas": [0.9, 0.999], "amsgrad": false, "params": [0, 1]}],
 *    "params": [{"name": "w", "shape": [2, 3], "dtype": "f32", "data": true},
 *               {"name": null, "shape": [], "dtype": "bf16", "grad_dtype": "f32"}],
 *    "schedules": [{"kind": "sequential", "children": 2, "milestones": [10], "steps": 12}, {"kind": "linear", ...}, ...],
 *    "numbers": {"epoch": 3}}
 *
 * "data": there is a tensor with the parameter's data.  The children of a schedule come after it; all its other keys are numbers
 * and lists of numbers.  In schedules and numbers, what is not finite is a text: "inf", "-inf", "nan".  These keys may be missing.
 *
 * The keys of groups are PyTorch's; the values "betas:0" and "betas:1" of a state are a list here.  Parameters are numbered
 * over all groups, in order.  Numbers have 17 digits, enough for every double, and do not follow the locale.
 *
 * Reading passes over what it does not know beside these keys, null among the values, and whatever is no number where PyTorch
 * says how it computes (foreach, ...).  A newer format is refused. */
#include "checkpoint/state_json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/safetensors.h"
#include "zero/state.h"

enum { FORMAT = 1 };

/* ---- writing ---- */

/* A value that JSON can say: finite and, in a list, behind all elements with smaller numbers. */
static zro_status check_value(const zro_state *s, const zro__state_value *v)
{
    const char *name = zro__state_text(s, v->name), *colon = strchr(name, ':');
    char list[ZRO__STATE_NAME_BYTES + 1], before[ZRO__STATE_NAME_BYTES + 32];
    size_t number = 0;

    if (!isfinite(v->value))
        return zro__fail(ZRO_ERR_INVALID, "group %zu: %s = %g, but a file can only hold finite values", v->group, name,
                         v->value);
    if (colon == NULL)
        return ZRO_OK;
    snprintf(list, sizeof list, "%.*s", (int)(colon - name), name);
    if (zro__state_find_value(s, v->group, list) != NULL)
        return zro__fail(ZRO_ERR_INVALID, "group %zu: %s is both a value and a list", v->group, list);
    if (sscanf(colon, ":%zu", &number) != 1 || number == 0)
        return ZRO_OK;
    snprintf(before, sizeof before, "%s:%zu", list, number - 1);
    if (zro__state_find_value(s, v->group, before) == NULL)
        return zro__fail(ZRO_ERR_INVALID, "group %zu has %s, but no %s", v->group, name, before);
    return ZRO_OK;
}

/* From here on nothing fails but memory, of which NULL tells: jansson takes it as an argument, and fails in turn. */
static json_t *whole_or_null(json_t *json, int failed)
{
    if (!failed)
        return json;
    json_decref(json);
    return NULL;
}

static json_t *json_of_value(const zro__state_value *v)
{
    return v->kind == ZRO_FLAG ? json_boolean(v->value != 0) : json_real(v->value);
}

/* Puts a value under its name; "betas:1" is the second element of the list "betas". */
static int put(json_t *out, const char *name, json_t *value)
{
    const size_t bytes = strcspn(name, ":");
    const size_t number = name[bytes] == ':' ? strtoul(name + bytes + 1, NULL, 10) : 0;
    char key[ZRO__STATE_NAME_BYTES + 1];
    int failed = 0;

    if (name[bytes] == '\0')
        return json_object_set_new(out, name, value);
    snprintf(key, sizeof key, "%.*s", (int)bytes, name);
    if (json_object_get(out, key) == NULL)
        failed = json_object_set_new(out, key, json_array());
    while (!failed && json_array_size(json_object_get(out, key)) <= number)
        failed = json_array_append_new(json_object_get(out, key), json_null());
    return failed | json_array_set_new(json_object_get(out, key), number, value);
}

static json_t *json_of_group(const zro_state *s, const zro__state_group *g)
{
    json_t *out = json_object(), *params = json_array();
    int failed = 0;

    for (size_t i = g->values.first; i != ZRO__STATE_NONE; i = s->values[i].next)
        failed |= put(out, zro__state_text(s, s->values[i].name), json_of_value(&s->values[i]));
    for (size_t i = 0; i < g->n; i++)
        failed |= json_array_append_new(params, json_integer((json_int_t)(g->first + i)));
    failed |= json_object_set_new(out, "params", params);
    return whole_or_null(out, failed);
}

static json_t *json_of_param(const zro_state *s, const zro__state_param *p)
{
    json_t *out =
        json_pack("{s:s?, s:[], s:s}", "name", zro__state_text(s, p->name), "shape", "dtype", zro_dtype_name(p->dtype));
    int failed = 0;

    for (uint32_t i = 0; i < p->n_dims; i++)
        failed |= json_array_append_new(json_object_get(out, "shape"), json_integer((json_int_t)p->shape[i]));
    if (p->has_data)
        failed |= json_object_set_new(out, "data", json_true());
    if (p->grad_dtype != ZRO_SAME && p->grad_dtype != p->dtype)
        failed |= json_object_set_new(out, "grad_dtype", json_string(zro_dtype_name(p->grad_dtype)));
    return whole_or_null(out, failed);
}

/* A number that may be anything; integers without a point. */
static json_t *json_of_number(double value)
{
    if (!isfinite(value))
        return json_string(isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
    if (!signbit(value) && value < 0x1p53 && value == floor(value))
        return json_integer((json_int_t)value);
    return json_real(value);
}

static json_t *json_of_schedule(const zro_state *s, const zro__state_schedule *row)
{
    json_t *out = json_pack("{s:s}", "kind", zro__state_text(s, row->kind));
    int failed = 0;

    if (row->n_children > 0)
        failed |= json_object_set_new(out, "children", json_integer((json_int_t)row->n_children));
    for (size_t i = row->first; i < row->first + row->n && !failed; i++)
        failed |= put(out, zro__state_text(s, s->positions[i].name), json_of_number(s->positions[i].value));
    return whole_or_null(out, failed);
}

/* Adds a part to the list under a key. */
static int add(json_t *out, const char *key, json_t *part)
{
    return json_array_append_new(json_object_get(out, key), part);
}

/* Schedules and numbers are there only if there is something to say. */
static json_t *json_of_state(const zro_state *s)
{
    json_t *out = json_pack("{s:i, s:s, s:I, s:f, s:I, s:I, s:[], s:[], s:[], s:{}}", "format", FORMAT, "rule",
                            zro_state_rule(s), "steps", (json_int_t)s->progress.steps, "scale", s->progress.scale,
                            "growth_tracker", (json_int_t)s->progress.growth_tracker, "n_skipped",
                            (json_int_t)s->progress.n_skipped, "groups", "params", "schedules", "numbers");
    int failed = 0;

    for (size_t i = 0; i < s->n_groups; i++)
        failed |= add(out, "groups", json_of_group(s, &s->groups[i]));
    for (size_t i = 0; i < s->n_params && !failed; i++)
        failed |= add(out, "params", json_of_param(s, &s->params[i]));
    for (size_t i = 0; i < s->n_schedules && !failed; i++)
        failed |= add(out, "schedules", json_of_schedule(s, &s->schedules[i]));
    for (size_t i = 0; i < s->n_numbers; i++)
        failed |= json_object_set_new(json_object_get(out, "numbers"), zro__state_text(s, s->numbers[i].name),
                                      json_of_number(s->numbers[i].value));
    if (s->n_schedules == 0)
        json_object_del(out, "schedules");
    if (s->n_numbers == 0)
        json_object_del(out, "numbers");
    return whole_or_null(out, failed);
}

zro_status zro__state_to_json(const zro_state *s, char **text)
{
    const size_t flags = JSON_COMPACT | JSON_REAL_PRECISION(17);
    zro_status st = ZRO_OK;
    json_t *json;
    size_t bytes;

    *text = NULL;
    for (size_t i = 0; i < s->n_values && st == ZRO_OK; i++)
        st = check_value(s, &s->values[i]);
    if (st != ZRO_OK)
        return st;
    json = json_of_state(s);
    bytes = json_dumpb(json, NULL, 0, flags);
    *text = bytes > 0 ? zro__alloc(NULL, ZRO__KIND_BUFFER, bytes + 1) : NULL;
    if (*text == NULL)
        st = zro__fail(ZRO_ERR_MEMORY, "out of memory: a description of %zu parameters", s->n_params);
    else
        json_dumpb(json, *text, bytes, flags);
    json_decref(json);
    return st;
}

/* ---- reading ---- */

static const char *type_name(const json_t *json)
{
    static const char *const names[] = { "an object", "a list", "a text", "an integer", "a number", "true", "false", "null" };

    return json == NULL ? "missing" : names[json_typeof(json)];
}

static zro_status check_format(const json_t *json)
{
    const json_t *format = json_object_get(json, "format");

    if (!json_is_integer(format))
        return zro__fail(ZRO_ERR_INVALID, "format is %s, must be an integer", type_name(format));
    if (json_integer_value(format) != FORMAT)
        return zro__fail(ZRO_ERR_INVALID, "format %lld is %s; this version of zro reads format %d",
                         (long long)json_integer_value(format),
                         json_integer_value(format) > FORMAT ? "newer than this library" : "unknown", FORMAT);
    return ZRO_OK;
}

/* Reads an integer; one that is absent is 0. */
static zro_status get_integer(const json_t *json, const char *key, json_int_t most, json_int_t *out)
{
    const json_t *value = json_object_get(json, key);

    *out = json_integer_value(value);
    if (value != NULL && (!json_is_integer(value) || *out < 0 || *out > most))
        return zro__fail(ZRO_ERR_INVALID, "%s must be an integer, at least 0 and at most %lld", key, (long long)most);
    return ZRO_OK;
}

static zro_status get_progress(const json_t *json, zro_state *s)
{
    const json_t *scale = json_object_get(json, "scale");
    json_int_t steps, tracker = 0, skipped = 0;
    zro_status st = get_integer(json, "steps", INT64_MAX, &steps);
    zro_progress progress = { .scale = json_number_value(scale) };

    if (st == ZRO_OK)
        st = get_integer(json, "growth_tracker", UINT32_MAX, &tracker);
    if (st == ZRO_OK)
        st = get_integer(json, "n_skipped", INT64_MAX, &skipped);
    if (st != ZRO_OK)
        return st;
    if (scale != NULL && !json_is_number(scale))
        return zro__fail(ZRO_ERR_INVALID, "scale is %s, must be a number", type_name(scale));
    progress.steps = (uint64_t)steps;
    progress.growth_tracker = (uint32_t)tracker;
    progress.n_skipped = (uint64_t)skipped;
    return zro_state_set_progress(s, &progress);
}

/* Takes a number of this name; `of` says in texts what it belongs to. */
typedef zro_status (*number_fn)(zro_state *s, const char *of, const char *name, const json_t *json);

/* A number, or a list of them, whose names get ":0", ":1" and so on. */
static zro_status get_numbered(zro_state *s, const char *of, const char *name, const json_t *json, number_fn get)
{
    char element[ZRO__STATE_NAME_BYTES + 32];
    zro_status st = ZRO_OK;

    if (strchr(name, ':') != NULL)
        return zro__fail(ZRO_ERR_INVALID, "%s: the name %.100s must not contain ':'", of, name);
    if (!json_is_array(json))
        return get(s, of, name, json);
    for (size_t i = 0; i < json_array_size(json) && st == ZRO_OK; i++) {
        snprintf(element, sizeof element, "%.*s:%zu", ZRO__STATE_NAME_BYTES, name, i);
        st = get(s, of, element, json_array_get(json, i));
    }
    return st;
}

static zro_status get_value(zro_state *s, const char *of, const char *name, const json_t *json)
{
    if (!json_is_boolean(json) && !json_is_number(json))
        return zro__fail(ZRO_ERR_INVALID, "%s: %.100s is %s, must be a number, true or false", of, name, type_name(json));
    return zro__state_set_value(s, s->n_groups - 1, name, json_is_number(json) ? json_number_value(json) : json_is_true(json),
                                json_is_number(json) ? ZRO_REAL : ZRO_FLAG);
}

/* Whether a value of a group says nothing. */
static int is_left_out(const char *name, const json_t *json)
{
    return strcmp(name, "params") == 0 || json_is_null(json)
           || (zro__state_is_ignored(name) && !json_is_number(json) && !json_is_boolean(json));
}

static zro_dtype dtype_of(const json_t *json)
{
    const char *text = json_string_value(json);

    for (int i = 0; text != NULL && zro__dtype_is_known((zro_dtype)i); i++)
        if (strcmp(zro_dtype_name((zro_dtype)i), text) == 0)
            return (zro_dtype)i;
    return ZRO_SAME;
}

static zro_status get_param(zro_state *s, const json_t *json)
{
    const json_t *name = json_object_get(json, "name"), *grad = json_object_get(json, "grad_dtype");
    const json_t *data = json_object_get(json, "data");
    zro_param p = ZRO_PARAM_INIT;
    char of[40];
    zro_status st;

    snprintf(of, sizeof of, "parameter %zu", s->n_params);
    if (name != NULL && !json_is_null(name) && !json_is_string(name))
        return zro__fail(ZRO_ERR_INVALID, "%s: its name is %s, must be a text or null", of, type_name(name));
    p.name = json_string_value(name);
    p.dtype = dtype_of(json_object_get(json, "dtype"));
    p.grad_dtype = dtype_of(grad);
    st = zro__json_shape(of, json_object_get(json, "shape"), p.shape, &p.n_dims);
    if (st == ZRO_OK && (p.dtype == ZRO_SAME || (grad != NULL && p.grad_dtype == ZRO_SAME)))
        st = zro__fail(ZRO_ERR_INVALID, "%s: %s is no element type", of, p.dtype == ZRO_SAME ? "dtype" : "grad_dtype");
    if (st == ZRO_OK && data != NULL && !json_is_boolean(data))
        st = zro__fail(ZRO_ERR_INVALID, "%s: data is %s, must be true or false", of, type_name(data));
    if (st == ZRO_OK)
        st = zro_state_add_param(s, &p);
    if (st == ZRO_OK)
        s->params[s->n_params - 1].has_data = json_is_true(data);
    return st;
}

/* Reads a group's parameters, which must be the next ones in the list of all. */
static zro_status get_params(zro_state *s, const json_t *indices, const json_t *params)
{
    zro_status st = ZRO_OK;

    if (!json_is_array(indices))
        return zro__fail(ZRO_ERR_INVALID, "group %zu: params is %s, must be a list", s->n_groups - 1, type_name(indices));
    for (size_t i = 0; i < json_array_size(indices) && st == ZRO_OK; i++) {
        const json_t *index = json_array_get(indices, i);

        if (!json_is_integer(index) || json_integer_value(index) != (json_int_t)s->n_params)
            return zro__fail(ZRO_ERR_INVALID, "group %zu: params[%zu] must be %zu: parameters are numbered over all groups",
                             s->n_groups - 1, i, s->n_params);
        if (s->n_params >= json_array_size(params))
            return zro__fail(ZRO_ERR_INVALID, "group %zu has parameter %zu, but the list of parameters ends before",
                             s->n_groups - 1, s->n_params);
        st = get_param(s, json_array_get(params, s->n_params));
    }
    return st;
}

static zro_status get_group(zro_state *s, json_t *json, const json_t *params)
{
    zro_status st = zro_state_add_group(s, NULL, 0);
    const char *name;
    json_t *value;
    char of[40];

    snprintf(of, sizeof of, "group %zu", s->n_groups - 1);
    if (st == ZRO_OK && !json_is_object(json))
        return zro__fail(ZRO_ERR_INVALID, "%s is %s, must be an object", of, type_name(json));
    json_object_foreach(json, name, value)
    {
        if (st == ZRO_OK && !is_left_out(name, value))
            st = get_numbered(s, of, name, value, get_value);
    }
    return st != ZRO_OK ? st : get_params(s, json_object_get(json, "params"), params);
}

/* ---- reading schedules and numbers ---- */

static zro_status number_of(const char *of, const char *name, const json_t *json, double *out)
{
    static const struct {
        const char *text;
        double value;
    } special[] = { { "inf", HUGE_VAL }, { "-inf", -HUGE_VAL }, { "nan", NAN } };
    const char *text = json_string_value(json);

    *out = json_number_value(json);
    if (json_is_number(json))
        return ZRO_OK;
    for (size_t i = 0; text != NULL && i < sizeof special / sizeof *special; i++)
        if (strcmp(text, special[i].text) == 0) {
            *out = special[i].value;
            return ZRO_OK;
        }
    return zro__fail(ZRO_ERR_INVALID, "%s: %.100s is %s, must be a number, \"inf\", \"-inf\" or \"nan\"", of, name,
                     type_name(json));
}

static zro_status get_position(zro_state *s, const char *of, const char *name, const json_t *json)
{
    double value;
    zro_status st = number_of(of, name, json, &value);

    return st == ZRO_OK ? zro__state_add_position(s, name, value) : st;
}

static zro_status get_schedule(zro_state *s, json_t *json)
{
    const json_t *kind = json_object_get(json, "kind");
    json_int_t children = 0;
    const char *name;
    json_t *value;
    char of[40];
    zro_status st = get_integer(json, "children", INT32_MAX, &children);

    snprintf(of, sizeof of, "schedule %zu", s->n_schedules);
    if (st == ZRO_OK && !json_is_string(kind))
        st = zro__fail(ZRO_ERR_INVALID, "%s: kind is %s, must be a text", of, type_name(kind));
    if (st == ZRO_OK)
        st = zro__state_add_schedule(s, json_string_value(kind), (size_t)children);
    json_object_foreach(json, name, value)
    {
        if (st == ZRO_OK && strcmp(name, "kind") != 0 && strcmp(name, "children") != 0)
            st = get_numbered(s, of, name, value, get_position);
    }
    return st;
}

static zro_status get_schedules(zro_state *s, const json_t *json)
{
    zro_status st = ZRO_OK;

    if (json != NULL && !json_is_array(json))
        return zro__fail(ZRO_ERR_INVALID, "schedules is %s, must be a list", type_name(json));
    for (size_t i = 0; i < json_array_size(json) && st == ZRO_OK; i++)
        st = get_schedule(s, json_array_get(json, i));
    return st == ZRO_OK ? zro__state_check_schedules(s) : st;
}

static zro_status get_numbers(zro_state *s, json_t *json)
{
    zro_status st = ZRO_OK;
    const char *name;
    json_t *value;
    double number;

    if (json != NULL && !json_is_object(json))
        return zro__fail(ZRO_ERR_INVALID, "numbers is %s, must be an object", type_name(json));
    json_object_foreach(json, name, value)
    {
        if (st == ZRO_OK)
            st = number_of("numbers", name, value, &number);
        if (st == ZRO_OK)
            st = zro_state_set_number(s, name, number);
    }
    return st;
}

static zro_status fill(const json_t *json, zro_state *s)
{
    const json_t *groups = json_object_get(json, "groups"), *params = json_object_get(json, "params");
    zro_status st = get_progress(json, s);

    if (st != ZRO_OK)
        return st;
    if (!json_is_array(groups) || !json_is_array(params))
        return zro__fail(ZRO_ERR_INVALID, "groups and params must be lists");
    for (size_t i = 0; i < json_array_size(groups) && st == ZRO_OK; i++)
        st = get_group(s, json_array_get(groups, i), params);
    if (st == ZRO_OK && s->n_params != json_array_size(params))
        return zro__fail(ZRO_ERR_INVALID, "parameter %zu is in no group", s->n_params);
    if (st == ZRO_OK)
        st = get_schedules(s, json_object_get(json, "schedules"));
    return st == ZRO_OK ? get_numbers(s, json_object_get(json, "numbers")) : st;
}

zro_status zro__state_from_json(const json_t *json, zro_state **out)
{
    const json_t *rule = json_object_get(json, "rule");
    zro_status st = check_format(json);

    if (st == ZRO_OK && !json_is_string(rule))
        st = zro__fail(ZRO_ERR_INVALID, "rule is %s, must be a text", type_name(rule));
    if (st == ZRO_OK)
        st = zro_state_create(json_string_value(rule), out);
    return st == ZRO_OK ? fill(json, *out) : st;
}
