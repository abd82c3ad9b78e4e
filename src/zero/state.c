/* The container of an optimizer's state: see state.h. */
#include "zero/state.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/param.h"
#include "base/status.h"

enum { BLOCK_BYTES = 1 << 20, FIRST_BLOCK_BYTES = 4 << 10 };

/* ---- tables ---- */

/* Where a state keeps the pointer to the rows of each table and their number, how large a row is, and what the rows are. */
static const struct {
    size_t rows, n, row_bytes;
    const char *what;
} tables[] = {
#define TABLE(name, what)                                                                                                      \
    {                                                                                                                          \
        offsetof(zro_state, name), offsetof(zro_state, n_##name), sizeof *((zro_state *)0)->name, what                         \
    }
    [ZRO__STATE_GROUPS] = TABLE(groups, "groups"),          [ZRO__STATE_VALUES] = TABLE(values, "values"),
    [ZRO__STATE_PARAMS] = TABLE(params, "parameters"),      [ZRO__STATE_SLOTS] = TABLE(slots, "slots"),
    [ZRO__STATE_SCHEDULES] = TABLE(schedules, "schedules"), [ZRO__STATE_POSITIONS] = TABLE(positions, "numbers of schedules"),
    [ZRO__STATE_NUMBERS] = TABLE(numbers, "numbers"),       [ZRO__STATE_TEXTS] = TABLE(texts, "blocks of names"),
#undef TABLE
};

void *zro__state_rows(const zro_state *s, zro__state_table table, size_t *n, size_t *row_bytes)
{
    void *rows;

    memcpy(&rows, (const char *)s + tables[table].rows, sizeof rows);
    memcpy(n, (const char *)s + tables[table].n, sizeof *n);
    *row_bytes = tables[table].row_bytes;
    return rows;
}

zro_status zro__state_append(zro_state *s, zro__state_table table, const void *rows, size_t n)
{
    size_t had, bytes, now;

    (void)zro__state_rows(s, table, &had, &bytes);
    now = had + n;
    if (!zro__grow(NULL, (char *)s + tables[table].rows, &s->capacity[table], now, bytes))
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a state with %zu %s", now, tables[table].what);
    if (n > 0)
        memcpy((char *)zro__state_rows(s, table, &had, &bytes) + had * bytes, rows, n * bytes);
    memcpy((char *)s + tables[table].n, &now, sizeof now);
    return ZRO_OK;
}

/* ---- names ---- */

/* No overlong forms, surrogates or numbers above 10ffff. */
static int is_utf8(const char *text)
{
    static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 }; /* by the number of bytes */
    const unsigned char *s = (const unsigned char *)text;

    for (size_t n; *s != 0; s += n) {
        uint32_t code;

        n = *s < 0x80 ? 1 : *s < 0xe0 ? 2 : *s < 0xf0 ? 3 : 4;
        code = n == 1 ? *s : *s & (0x7fU >> (n == 4 ? 3 : n));
        for (size_t i = 1; i < n; i++) {
            if ((s[i] & 0xc0) != 0x80)
                return 0;
            code = code << 6 | (s[i] & 0x3f);
        }
        if ((*s & 0xc0) == 0x80 || code < least[n] || (code >= 0xd800 && code < 0xe000) || code > 0x10ffff)
            return 0;
    }
    return 1;
}

zro_status zro__state_check_name(const char *what, const char *name)
{
    if (name == NULL)
        return zro__fail(ZRO_ERR_INVALID, "the name of %s is NULL", what);
    if (name[0] == '\0')
        return zro__fail(ZRO_ERR_INVALID, "the name of %s is empty", what);
    if (strnlen(name, ZRO__STATE_NAME_BYTES + 1) > ZRO__STATE_NAME_BYTES)
        return zro__fail(ZRO_ERR_INVALID, "the name of %s is longer than %d bytes: %.60s...", what, ZRO__STATE_NAME_BYTES,
                         name);
    if (!is_utf8(name))
        return zro__fail(ZRO_ERR_INVALID, "the name of %s is not UTF-8", what);
    return ZRO_OK;
}

/* A value's name, or "<list>:<place in it>". */
static zro_status check_value_name(const char *name)
{
    zro_status st = zro__state_check_name("a value", name);
    const char *colon = st == ZRO_OK ? strchr(name, ':') : NULL;
    size_t digits = colon != NULL ? strspn(colon + 1, "0123456789") : 0;

    if (st != ZRO_OK)
        return st;
    if (strcmp(name, "params") == 0 || strncmp(name, "params:", 7) == 0)
        return zro__fail(ZRO_ERR_INVALID, "no value can be named \"%s\": it is the list of parameters", name);
    if (colon != NULL
        && (colon == name || digits == 0 || digits > 3 || colon[1 + digits] != '\0' || (digits > 1 && colon[1] == '0')))
        return zro__fail(ZRO_ERR_INVALID, "value \"%s\": after ':' comes the place in a list, as in \"betas:0\"", name);
    return ZRO_OK;
}

const char *zro__state_text(const zro_state *s, size_t name)
{
    return name != ZRO__STATE_NONE ? s->texts[name / ZRO__STATE_TEXT_BYTES] + name % ZRO__STATE_TEXT_BYTES : NULL;
}

zro_status zro__state_add_text(zro_state *s)
{
    char *text = zro__alloc(NULL, ZRO__KIND_HANDLE, ZRO__STATE_TEXT_BYTES);
    zro_status st = text != NULL ? zro__state_append(s, ZRO__STATE_TEXTS, &text, 1)
                                 : zro__fail(ZRO_ERR_MEMORY, "out of memory: the names of a state");

    if (st != ZRO_OK)
        zro__free(text);
    return st;
}

/* Copies a name to the end of the text; a name never spans two blocks. */
zro_status zro__state_copy_name(zro_state *s, const char *name, size_t *out)
{
    const size_t bytes = strlen(name) + 1;

    if (s->n_texts * ZRO__STATE_TEXT_BYTES - s->text_end < bytes) {
        zro_status st = zro__state_add_text(s);

        if (st != ZRO_OK)
            return st;
        s->text_end = (s->n_texts - 1) * ZRO__STATE_TEXT_BYTES;
    }
    *out = s->text_end;
    s->text_end += bytes;
    memcpy(s->texts[s->n_texts - 1] + *out % ZRO__STATE_TEXT_BYTES, name, bytes);
    return ZRO_OK;
}

int zro__state_is_ignored(const char *name)
{
    static const char *const names[] = { "foreach", "fused", "capturable", "differentiable" };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return 1;
    return 0;
}

/* ---- life ---- */

zro_status zro__state_check(const zro_state *s)
{
    if (s == NULL)
        return zro__fail(
            ZRO_ERR_STATE,
            "this rank has no state: call zro_optim_consolidate to this rank or to ZRO_ALL, or zro_state_broadcast");
    return ZRO_OK;
}

zro_status zro_state_create(const char *rule, zro_state **out)
{
    zro_state *s;
    zro_status st = rule != NULL && rule[0] == '\0' ? ZRO_OK : zro__state_check_name("the rule", rule);

    if (out == NULL)
        return zro__fail(ZRO_ERR_INVALID, "state_create: out is NULL");
    *out = NULL;
    if (st != ZRO_OK)
        return st;
    s = zro__alloc(NULL, ZRO__KIND_HANDLE, sizeof *s);
    st = s != NULL ? zro__state_copy_name(s, rule, &s->rule) : zro__fail(ZRO_ERR_MEMORY, "out of memory: a state");
    if (st != ZRO_OK) {
        zro_state_destroy(s);
        return st;
    }
    s->table = zro_rule_find(rule);
    *out = s;
    return ZRO_OK;
}

void zro_state_destroy(zro_state *s)
{
    if (s == NULL)
        return;
    for (zro__state_block *b = s->first_block, *next; b != NULL; b = next) {
        next = b->next;
        zro__free(b);
    }
    for (size_t i = 0; i < s->n_texts; i++)
        zro__free(s->texts[i]);
    for (zro__state_table t = 0; t < ZRO__STATE_TABLES; t++) {
        size_t n, bytes;

        zro__free(zro__state_rows(s, t, &n, &bytes));
    }
    zro__free(s);
}

/* Puts row number `row` at the end of a list; next_of_last is the field `next` of the row that was the last. */
static void append(zro__state_list *list, size_t row, size_t *next_of_last)
{
    if (list->n++ == 0)
        list->first = row;
    else
        *next_of_last = row;
    list->last = row;
}

/* ---- groups and values ---- */

static zro_status check_group(const zro_state *s, size_t group)
{
    zro_status st = zro__state_check(s);

    if (st == ZRO_OK && group >= s->n_groups)
        return zro__fail(ZRO_ERR_INVALID, "group = %zu, the state has %zu", group, s->n_groups);
    return st;
}

zro__state_value *zro__state_find_value(const zro_state *s, size_t group, const char *name)
{
    for (size_t i = s->groups[group].values.first; i != ZRO__STATE_NONE; i = s->values[i].next)
        if (strcmp(zro__state_text(s, s->values[i].name), name) == 0)
            return &s->values[i];
    return NULL;
}

static zro_status add_value(zro_state *s, size_t group, const char *name)
{
    zro__state_list *list = &s->groups[group].values;
    zro__state_value value = { .group = group, .next = ZRO__STATE_NONE };
    zro_status st;

    if (list->n == ZRO__STATE_MAX_VALUES)
        return zro__fail(ZRO_ERR_INVALID, "value \"%s\": a group has at most %d values", name, ZRO__STATE_MAX_VALUES);
    st = zro__state_copy_name(s, name, &value.name);
    if (st == ZRO_OK)
        st = zro__state_append(s, ZRO__STATE_VALUES, &value, 1);
    if (st == ZRO_OK)
        append(list, s->n_values - 1, list->n > 0 ? &s->values[list->last].next : NULL);
    return st;
}

zro_status zro__state_set_value(zro_state *s, size_t group, const char *name, double value, zro_hyper_kind kind)
{
    zro_status st = check_group(s, group);
    zro__state_value *v;

    if (st == ZRO_OK)
        st = check_value_name(name);
    if (st == ZRO_OK && zro__state_find_value(s, group, name) == NULL)
        st = add_value(s, group, name);
    if (st != ZRO_OK)
        return st;
    v = zro__state_find_value(s, group, name);
    v->value = value;
    v->kind = kind == ZRO_FLAG && (value == 0 || value == 1) ? ZRO_FLAG : ZRO_REAL;
    return ZRO_OK;
}

int zro__state_find_hyper(const zro_rule *rule, const char *name)
{
    for (size_t i = 0; rule != NULL && i < rule->n_hypers; i++)
        if (strcmp(rule->hypers[i].name, name) == 0
            || (rule->hypers[i].torch != NULL && strcmp(rule->hypers[i].torch, name) == 0))
            return (int)i;
    return -1;
}

zro_status zro_state_set_value(zro_state *s, size_t group, const char *name, double value)
{
    zro_hyper_kind kind = ZRO_REAL;
    int i = s != NULL && name != NULL ? zro__state_find_hyper(s->table, name) : -1;

    if (i >= 0)
        kind = s->table->hypers[i].kind;
    else if (name != NULL && zro__state_is_ignored(name))
        kind = ZRO_FLAG;
    return zro__state_set_value(s, group, name, value, kind);
}

zro_status zro_state_add_group(zro_state *s, const zro_value *values, size_t n)
{
    zro_status st = zro__state_check(s);
    zro__state_group row;
    size_t n_values, group;

    if (st != ZRO_OK)
        return st;
    if (values == NULL && n > 0)
        return zro__fail(ZRO_ERR_INVALID, "state_add_group: values is NULL, but n = %zu", n);
    n_values = s->n_values;
    group = s->n_groups;
    row = (zro__state_group){ .first = s->n_params, .values = { .first = ZRO__STATE_NONE, .last = ZRO__STATE_NONE } };
    st = zro__state_append(s, ZRO__STATE_GROUPS, &row, 1);
    for (size_t i = 0; i < n && st == ZRO_OK; i++) {
        if (values[i].name != NULL && zro__state_find_value(s, group, values[i].name) != NULL)
            st = zro__fail(ZRO_ERR_INVALID, "value \"%s\" is there twice", values[i].name);
        else
            st = zro_state_set_value(s, group, values[i].name, values[i].value);
    }
    if (st != ZRO_OK) { /* group and values are the last rows of their tables */
        s->n_groups = group;
        s->n_values = n_values;
    }
    return st;
}

zro_status zro_state_group(const zro_state *s, size_t group, size_t *first, size_t *n, size_t *n_values)
{
    zro_status st = check_group(s, group);

    if (st != ZRO_OK)
        return st;
    if (first != NULL)
        *first = s->groups[group].first;
    if (n != NULL)
        *n = s->groups[group].n;
    if (n_values != NULL)
        *n_values = s->groups[group].values.n;
    return ZRO_OK;
}

zro_status zro_state_value(const zro_state *s, size_t group, size_t i, zro_value *value)
{
    zro_status st = check_group(s, group);
    size_t row;

    if (st != ZRO_OK)
        return st;
    if (value == NULL)
        return zro__fail(ZRO_ERR_INVALID, "state_value: value is NULL");
    if (i >= s->groups[group].values.n)
        return zro__fail(ZRO_ERR_INVALID, "value %zu of group %zu: it has %zu", i, group, s->groups[group].values.n);
    for (row = s->groups[group].values.first; i > 0; i--)
        row = s->values[row].next;
    *value = (zro_value){ .name = zro__state_text(s, s->values[row].name), .value = s->values[row].value };
    return ZRO_OK;
}

zro_status zro_state_get_value(const zro_state *s, size_t group, const char *name, double *value)
{
    zro_status st = check_group(s, group);
    const zro__state_value *v;

    if (st != ZRO_OK)
        return st;
    if (name == NULL || value == NULL)
        return zro__fail(ZRO_ERR_INVALID, "state_get_value: %s is NULL", name == NULL ? "name" : "value");
    v = zro__state_find_value(s, group, name);
    if (v == NULL)
        return zro__fail(ZRO_ERR_INVALID, "group %zu of the state has no value named \"%s\"", group, name);
    *value = v->value;
    return ZRO_OK;
}

/* ---- parameters ---- */

static zro_status check_param(const zro_state *s, size_t param)
{
    zro_status st = zro__state_check(s);

    if (st == ZRO_OK && param >= s->n_params)
        return zro__fail(ZRO_ERR_INVALID, "parameter = %zu, the state has %zu", param, s->n_params);
    return st;
}

zro_status zro_state_add_param(zro_state *s, const zro_param *param)
{
    zro__state_param row;
    zro_status st = zro__state_check(s);

    if (st != ZRO_OK)
        return st;
    if (param == NULL)
        return zro__fail(ZRO_ERR_INVALID, "state_add_param: param is NULL");
    if (s->n_groups == 0)
        return zro__fail(ZRO_ERR_STATE, "state_add_param: there is no group yet; call zro_state_add_group first");
    st = zro__state_check_name("a parameter", ZRO__PARAM_NAME(param->name, s->n_params));
    if (st == ZRO_OK)
        st = zro__param_check_types(param, s->n_params);
    if (st == ZRO_OK)
        st = zro__param_check_shape(param, s->n_params);
    if (st != ZRO_OK)
        return st;
    row = (zro__state_param){ .name = ZRO__STATE_NONE,
                              .count = zro_param_count(param),
                              .slots = { .first = ZRO__STATE_NONE, .last = ZRO__STATE_NONE },
                              .data = ZRO__STATE_NONE,
                              .n_dims = param->n_dims,
                              .dtype = param->dtype,
                              .grad_dtype = param->grad_dtype };
    memcpy(row.shape, param->shape, row.n_dims * sizeof *row.shape);
    if (param->name != NULL)
        st = zro__state_copy_name(s, param->name, &row.name);
    if (st == ZRO_OK)
        st = zro__state_append(s, ZRO__STATE_PARAMS, &row, 1);
    s->groups[s->n_groups - 1].n += st == ZRO_OK;
    return st;
}

zro_status zro_state_param(const zro_state *s, size_t param, zro_param *out)
{
    zro_status st = check_param(s, param);
    const zro__state_param *row;

    if (st == ZRO_OK && out == NULL)
        st = zro__fail(ZRO_ERR_INVALID, "state_param: out is NULL");
    if (st != ZRO_OK)
        return st;
    zro_param_init(out);
    row = &s->params[param];
    out->name = zro__state_text(s, row->name);
    out->data = zro__state_data(s, param) != NULL ? zro__state_data(s, param)->data : NULL;
    out->dtype = row->dtype;
    out->grad_dtype = row->grad_dtype;
    out->n_dims = row->n_dims;
    memcpy(out->shape, row->shape, sizeof out->shape);
    return ZRO_OK;
}

/* ---- slots ---- */

static zro__state_slot *find_slot(const zro_state *s, size_t param, const char *name)
{
    for (size_t i = s->params[param].slots.first; i != ZRO__STATE_NONE; i = s->slots[i].next)
        if (strcmp(zro__state_text(s, s->slots[i].name), name) == 0)
            return &s->slots[i];
    return NULL;
}

static zro_status check_new_slot(const zro_state *s, size_t param, const char *name, zro_dtype dtype, size_t count)
{
    zro_status st = check_param(s, param);
    const zro__state_param *p;
    const char *of;

    if (st == ZRO_OK)
        st = zro__state_check_name("a slot", name);
    if (st == ZRO_OK && strchr(name, ':') != NULL)
        st = zro__fail(ZRO_ERR_INVALID, "slot \"%s\": its name must not contain ':'", name);
    if (st != ZRO_OK)
        return st;
    p = &s->params[param];
    of = ZRO__STATE_PARAM_NAME(s, param);
    if (!zro__dtype_is_known(dtype))
        return zro__fail(ZRO_ERR_INVALID, "slot %s of parameter %s: dtype is no element type", name, of);
    if (count != 1 && count != p->count)
        return zro__fail(ZRO_ERR_INVALID, "slot %s of parameter %s: %zu elements, must be 1 or the parameter's %zu", name, of,
                         count, p->count);
    if (find_slot(s, param, name) != NULL)
        return zro__fail(ZRO_ERR_INVALID, "slot %s of parameter %s is there already", name, of);
    if (p->slots.n == ZRO__STATE_MAX_SLOTS)
        return zro__fail(ZRO_ERR_INVALID, "slot %s of parameter %s: a parameter has at most %d slots", name, of,
                         ZRO__STATE_MAX_SLOTS);
    return ZRO_OK;
}

/* Whether a slot is one number for the whole parameter.  If both have one element their sizes do not tell; the rule does. */
static int is_single(const zro_state *s, size_t param, const char *name, size_t count)
{
    if (count != 1 || s->params[param].count != 1)
        return count != s->params[param].count;
    for (size_t i = 0; s->table != NULL && i < s->table->n_slots; i++)
        if (strcmp(s->table->slots[i].name, name) == 0)
            return s->table->slots[i].kind != ZRO_SLOT_ARRAY;
    return strcmp(name, "step") == 0;
}

/* Adds a row to the table of slots, as announced; the caller has checked it. */
static zro_status announce(zro_state *s, zro__state_slot slot)
{
    size_t rounded, extent;
    zro_status st;

    slot.next = ZRO__STATE_NONE;
    slot.bytes = slot.count * zro_dtype_bytes(slot.dtype);
    if (!zro__size_round(slot.bytes, ZRO__STATE_ALIGN, &rounded) || !zro__size_add(s->extent, rounded, &extent))
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: %zu bytes of state beside %zu", slot.bytes, s->extent);
    st = zro__state_append(s, ZRO__STATE_SLOTS, &slot, 1);
    if (st == ZRO_OK) {
        s->extent = extent;
        s->bytes += slot.bytes;
    }
    return st;
}

zro_status zro__state_plan_slot(zro_state *s, size_t param, const char *name, zro_dtype dtype, size_t count)
{
    zro__state_slot slot = { .param = param, .count = count, .dtype = dtype };
    zro_status st = check_new_slot(s, param, name, dtype, count);
    zro__state_list *list;

    if (st == ZRO_OK)
        st = zro__state_copy_name(s, name, &slot.name);
    if (st != ZRO_OK)
        return st;
    slot.single = (uint32_t)is_single(s, param, name, count);
    st = announce(s, slot);
    if (st != ZRO_OK)
        return st;
    list = &s->params[param].slots;
    append(list, s->n_slots - 1, list->n > 0 ? &s->slots[list->last].next : NULL);
    return ZRO_OK;
}

/* ---- the data of parameters ---- */

static zro_status check_new_data(const zro_state *s, size_t param)
{
    zro_status st = check_param(s, param);

    if (st == ZRO_OK && s->params[param].data != ZRO__STATE_NONE)
        st = zro__fail(ZRO_ERR_INVALID, "the state has the data of parameter %s already", ZRO__STATE_PARAM_NAME(s, param));
    return st;
}

zro_status zro__state_plan_data(zro_state *s, size_t param)
{
    zro_status st = check_new_data(s, param);

    if (st == ZRO_OK)
        st = announce(
            s, (zro__state_slot){
                   .name = ZRO__STATE_NONE, .param = param, .count = s->params[param].count, .dtype = s->params[param].dtype });
    if (st != ZRO_OK)
        return st;
    s->params[param].data = s->n_slots - 1;
    s->params[param].has_data = 1;
    return ZRO_OK;
}

zro__state_slot *zro__state_data(const zro_state *s, size_t param)
{
    return s->params[param].data != ZRO__STATE_NONE ? &s->slots[s->params[param].data] : NULL;
}

/* ---- memory ---- */

/* A new block gets more than a few bytes, for the slots that come next. */
zro_status zro__state_reserve(zro_state *s, size_t bytes)
{
    size_t capacity = s->taken < FIRST_BLOCK_BYTES ? FIRST_BLOCK_BYTES : s->taken < BLOCK_BYTES ? s->taken : BLOCK_BYTES, total;
    zro__state_block *b = s->last_block;

    if (b != NULL && b->bytes - b->used >= bytes)
        return ZRO_OK;
    capacity = bytes > capacity ? bytes : capacity;
    b = zro__size_add(capacity, ZRO__STATE_ALIGN, &total) ? zro__alloc(NULL, ZRO__KIND_COPY, total) : NULL;
    if (b == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: %zu bytes of state", bytes);
    _Static_assert(sizeof *b <= ZRO__STATE_ALIGN, "the data of a block follow it");
    *b = (zro__state_block){ .data = (char *)b + ZRO__STATE_ALIGN, .bytes = capacity };
    if (s->last_block != NULL)
        s->last_block->next = b;
    else
        s->first_block = b;
    s->last_block = b;
    s->n_blocks++;
    return ZRO_OK;
}

zro_status zro__state_take(zro_state *s)
{
    zro_status st = s->n_taken < s->n_slots ? zro__state_reserve(s, s->extent - s->taken) : ZRO_OK;

    for (; st == ZRO_OK && s->n_taken < s->n_slots; s->n_taken++) {
        zro__state_slot *slot = &s->slots[s->n_taken];
        zro__state_block *b = s->last_block;

        slot->data = b->data + b->used;
        b->used += (slot->bytes + ZRO__STATE_ALIGN - 1) & ~(size_t)(ZRO__STATE_ALIGN - 1);
    }
    s->taken = st == ZRO_OK ? s->extent : s->taken;
    return st;
}

/* Announces a slot or, without a name, a parameter's data, and gives it memory and data, if there is some.  Memory comes first:
 * once the row is announced nothing can fail. */
static zro_status add(zro_state *s, size_t param, const char *slot, zro_dtype dtype, const void *data, size_t count)
{
    const zro__state_slot *row;
    zro_status st = zro__state_take(s);

    if (st == ZRO_OK)
        st = zro__state_reserve(s, count * zro_dtype_bytes(dtype) + ZRO__STATE_ALIGN);
    if (st == ZRO_OK)
        st = slot != NULL ? zro__state_plan_slot(s, param, slot, dtype, count) : zro__state_plan_data(s, param);
    if (st == ZRO_OK)
        st = zro__state_take(s);
    row = st == ZRO_OK ? &s->slots[s->n_slots - 1] : NULL;
    if (row != NULL && data != NULL && row->bytes > 0)
        memcpy(row->data, data, row->bytes);
    return st;
}

zro_status zro_state_add_slot(zro_state *s, size_t param, const char *name, zro_dtype dtype, const void *data, size_t count)
{
    zro_status st = check_new_slot(s, param, name, dtype, count);

    return st == ZRO_OK ? add(s, param, name, dtype, data, count) : st;
}

zro_status zro_state_add_data(zro_state *s, size_t param, const void *data)
{
    zro_status st = check_new_data(s, param);

    return st == ZRO_OK ? add(s, param, NULL, s->params[param].dtype, data, s->params[param].count) : st;
}

/* ---- asking for slots ---- */

zro__state_slot *zro__state_slot_at(const zro_state *s, size_t param, size_t i)
{
    size_t at;

    if (s == NULL || param >= s->n_params || i >= s->params[param].slots.n)
        return NULL;
    for (at = s->params[param].slots.first; i > 0; i--)
        at = s->slots[at].next;
    return &s->slots[at];
}

size_t zro_state_slots(const zro_state *s, size_t param)
{
    return s != NULL && param < s->n_params ? s->params[param].slots.n : 0;
}

const char *zro_state_slot_name(const zro_state *s, size_t param, size_t i)
{
    const zro__state_slot *slot = zro__state_slot_at(s, param, i);

    return slot != NULL ? zro__state_text(s, slot->name) : NULL;
}

zro_status zro_state_slot(const zro_state *s, size_t param, const char *name, zro_slot *slot)
{
    zro_status st = check_param(s, param);
    const zro__state_slot *found;

    if (slot != NULL)
        *slot = (zro_slot){ .dtype = ZRO_F32 };
    if (st != ZRO_OK)
        return st;
    if (name == NULL || slot == NULL)
        return zro__fail(ZRO_ERR_INVALID, "state_slot: %s is NULL", name == NULL ? "name" : "slot");
    found = find_slot(s, param, name);
    if (found != NULL)
        *slot = (zro_slot){ .data = found->data, .count = found->count, .dtype = found->dtype, .present = 1 };
    return ZRO_OK;
}

/* ---- the whole ---- */

zro_status zro_state_get_progress(const zro_state *s, zro_progress *progress)
{
    zro_status st = zro__state_check(s);

    if (st == ZRO_OK && progress == NULL)
        return zro__fail(ZRO_ERR_INVALID, "state_get_progress: progress is NULL");
    if (st == ZRO_OK)
        *progress = s->progress;
    return st;
}

zro_status zro_state_set_progress(zro_state *s, const zro_progress *progress)
{
    zro_status st = zro__state_check(s);

    if (st != ZRO_OK)
        return st;
    if (progress == NULL)
        return zro__fail(ZRO_ERR_INVALID, "state_set_progress: progress is NULL");
    if (!isfinite(progress->scale) || progress->scale < 0)
        return zro__fail(ZRO_ERR_INVALID, "scale = %g, must be finite and > 0, or 0 for none", progress->scale);
    if (progress->steps > INT64_MAX)
        return zro__fail(ZRO_ERR_INVALID, "steps = %" PRIu64 ", must be at most %" PRId64, progress->steps, INT64_MAX);
    if (progress->n_skipped > progress->steps)
        return zro__fail(ZRO_ERR_INVALID, "n_skipped = %" PRIu64 ", must be at most steps, %" PRIu64, progress->n_skipped,
                         progress->steps);
    s->progress = (zro_progress){ .steps = progress->steps,
                                  .scale = progress->scale,
                                  .growth_tracker = progress->growth_tracker,
                                  .n_skipped = progress->n_skipped };
    return ZRO_OK;
}

const char *zro_state_rule(const zro_state *s)
{
    return s != NULL ? zro__state_text(s, s->rule) : NULL;
}

size_t zro_state_groups(const zro_state *s)
{
    return s != NULL ? s->n_groups : 0;
}

size_t zro_state_params(const zro_state *s)
{
    return s != NULL ? s->n_params : 0;
}

uint64_t zro_state_bytes(const zro_state *s)
{
    return s != NULL ? s->bytes : 0;
}
