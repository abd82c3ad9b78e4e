/* The container of an optimizer's state: see state.h.
 *
 * Names are copied into blocks of text that never move, so that what asking has handed out stays until destroy.  A name that
 * was used lately is not copied again: slots and values of all parameters and groups have the same few. */
#include "zero/state.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/param.h"
#include "base/status.h"

enum { TEXT_BYTES = 64 << 10, BLOCK_BYTES = 1 << 20, FIRST_BLOCK_BYTES = 4 << 10 };

struct zro__state_texts {
    zro__state_texts *next;
    size_t used, bytes;
    char text[];
};

/* ---- names ---- */

/* The length of the UTF-8 character that begins here, 0 if there is none: no overlong forms, surrogates or numbers above
 * 10ffff. */
static size_t utf8_length(const unsigned char *s)
{
    size_t n = 0;

    if (s[0] < 0x80)
        n = 1;
    else if (s[0] >= 0xc2 && s[0] < 0xf5)
        n = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] >= 0xa0) || (s[0] == 0xf0 && s[1] < 0x90)
        || (s[0] == 0xf4 && s[1] >= 0x90))
        return 0;
    return n;
}

static int is_utf8(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;

    for (size_t n; *s != 0; s += n)
        if ((n = utf8_length(s)) == 0)
            return 0;
    return 1;
}

/* `what` is what the name is for. */
static zro_status check_name(const char *what, const char *name)
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

static zro_status check_slot_name(const char *name)
{
    zro_status st = check_name("a slot", name);

    if (st == ZRO_OK && strchr(name, ':') != NULL)
        return zro__fail(ZRO_ERR_INVALID, "slot \"%s\": its name must not contain ':'", name);
    return st;
}

/* A value's name, or "<list>:<place in it>". */
static zro_status check_value_name(const char *name)
{
    zro_status st = check_name("a value", name);
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

static char *text_room(zro_state *s, size_t bytes)
{
    zro__state_texts *t = s->texts;

    if (t == NULL || t->bytes - t->used < bytes) {
        t = zro__alloc(NULL, ZRO__KIND_HANDLE, sizeof *t + TEXT_BYTES);
        if (t == NULL)
            return NULL;
        t->bytes = TEXT_BYTES;
        t->next = s->texts;
        s->texts = t;
    }
    t->used += bytes;
    return t->text + t->used - bytes;
}

static const char *copy_name(zro_state *s, const char *name)
{
    size_t bytes = strlen(name) + 1;
    char *copy = text_room(s, bytes);

    return copy != NULL ? memcpy(copy, name, bytes) : NULL;
}

static const char *share_name(zro_state *s, const char *name)
{
    enum { RECENT = sizeof s->recent / sizeof *s->recent };
    const char *copy;

    for (unsigned i = 0; i < RECENT && s->recent[i] != NULL; i++)
        if (strcmp(s->recent[i], name) == 0)
            return s->recent[i];
    copy = copy_name(s, name);
    if (copy != NULL)
        s->recent[s->next_recent++ % RECENT] = copy;
    return copy;
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
    zro_status st = rule != NULL && rule[0] == '\0' ? ZRO_OK : check_name("the rule", rule);

    if (out == NULL)
        return zro__fail(ZRO_ERR_INVALID, "state_create: out is NULL");
    *out = NULL;
    if (st != ZRO_OK)
        return st;
    s = zro__alloc(NULL, ZRO__KIND_HANDLE, sizeof *s);
    if (s != NULL)
        s->rule = copy_name(s, rule);
    if (s == NULL || s->rule == NULL) {
        zro_state_destroy(s);
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a state");
    }
    s->table = zro_rule_find(rule);
    *out = s;
    return ZRO_OK;
}

void zro_state_destroy(zro_state *s)
{
    if (s == NULL)
        return;
    for (size_t i = 0; i < s->n_groups; i++)
        zro__free(s->groups[i].values);
    for (zro__state_block *b = s->first_block, *next; b != NULL; b = next) {
        next = b->next;
        zro__free(b->data);
        zro__free(b);
    }
    for (zro__state_texts *t = s->texts, *next; t != NULL; t = next) {
        next = t->next;
        zro__free(t);
    }
    zro__free(s->groups);
    zro__free(s->params);
    zro__free(s->slots);
    zro__free(s);
}

/* Room for one more in a list of n items; the list may move. */
static zro_status grow(void *list, size_t n, size_t *room, size_t item, const char *what)
{
    size_t more = *room < 8 ? 8 : 2 * *room;
    void *old, *larger;

    if (n < *room)
        return ZRO_OK;
    larger = zro__alloc_array(NULL, ZRO__KIND_HANDLE, more, item);
    if (larger == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a state with %zu %s", n + 1, what);
    memcpy(&old, list, sizeof old);
    if (n > 0)
        memcpy(larger, old, n * item);
    zro__free(old);
    memcpy(list, &larger, sizeof larger);
    *room = more;
    return ZRO_OK;
}

/* ---- groups and values ---- */

static zro_status check_group(const zro_state *s, size_t group)
{
    zro_status st = zro__state_check(s);

    if (st == ZRO_OK && group >= s->n_groups)
        return zro__fail(ZRO_ERR_INVALID, "group = %zu, the state has %zu", group, s->n_groups);
    return st;
}

static zro__state_value *find_value(const zro__state_group *g, const char *name)
{
    for (size_t i = 0; i < g->n_values; i++)
        if (strcmp(g->values[i].name, name) == 0)
            return &g->values[i];
    return NULL;
}

static zro_status set_value(zro_state *s, zro__state_group *g, const char *name, double value, zro_hyper_kind kind)
{
    zro__state_value *v;
    zro_status st = check_value_name(name);
    const char *copy;

    if (st != ZRO_OK)
        return st;
    v = find_value(g, name);
    if (v == NULL) {
        if (g->n_values == ZRO__STATE_MAX_VALUES)
            return zro__fail(ZRO_ERR_INVALID, "value \"%s\": a group has at most %d values", name, ZRO__STATE_MAX_VALUES);
        st = grow(&g->values, g->n_values, &g->room, sizeof *g->values, "values in a group");
        if (st != ZRO_OK)
            return st;
        copy = share_name(s, name);
        if (copy == NULL)
            return zro__fail(ZRO_ERR_MEMORY, "out of memory: value \"%s\" of a state", name);
        v = &g->values[g->n_values++];
        v->name = copy;
    }
    v->value = value;
    v->kind = value == 0 || value == 1 ? kind : ZRO_REAL;
    return ZRO_OK;
}

zro_status zro__state_set_value(zro_state *s, size_t group, const char *name, double value, zro_hyper_kind kind)
{
    zro_status st = check_group(s, group);

    return st != ZRO_OK ? st : set_value(s, &s->groups[group], name, value, kind);
}

static zro_hyper_kind kind_of(const zro_state *s, const char *name)
{
    for (size_t i = 0; s->table != NULL && name != NULL && i < s->table->n_hypers; i++) {
        const zro_hyper *h = &s->table->hypers[i];

        if (strcmp(h->name, name) == 0 || (h->torch != NULL && strcmp(h->torch, name) == 0))
            return h->kind;
    }
    return name != NULL && zro__state_is_ignored(name) ? ZRO_FLAG : ZRO_REAL;
}

zro_status zro_state_set_value(zro_state *s, size_t group, const char *name, double value)
{
    zro_status st = check_group(s, group);

    return st != ZRO_OK ? st : set_value(s, &s->groups[group], name, value, kind_of(s, name));
}

zro_status zro_state_add_group(zro_state *s, const zro_value *values, size_t n)
{
    zro__state_group group = { 0 };
    zro_status st = zro__state_check(s);

    if (st != ZRO_OK)
        return st;
    if (values == NULL && n > 0)
        return zro__fail(ZRO_ERR_INVALID, "state_add_group: values is NULL, but n = %zu", n);
    st = grow(&s->groups, s->n_groups, &s->groups_room, sizeof *s->groups, "groups");
    for (size_t i = 0; i < n && st == ZRO_OK; i++) {
        if (values[i].name != NULL && find_value(&group, values[i].name) != NULL)
            st = zro__fail(ZRO_ERR_INVALID, "value \"%s\" is there twice", values[i].name);
        else
            st = set_value(s, &group, values[i].name, values[i].value, kind_of(s, values[i].name));
    }
    if (st != ZRO_OK) {
        zro__free(group.values);
        return st;
    }
    group.first = s->n_params;
    s->groups[s->n_groups++] = group;
    return ZRO_OK;
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
        *n_values = s->groups[group].n_values;
    return ZRO_OK;
}

zro_status zro_state_value(const zro_state *s, size_t group, size_t i, zro_value *value)
{
    zro_status st = check_group(s, group);

    if (st != ZRO_OK)
        return st;
    if (value == NULL)
        return zro__fail(ZRO_ERR_INVALID, "state_value: value is NULL");
    if (i >= s->groups[group].n_values)
        return zro__fail(ZRO_ERR_INVALID, "value %zu of group %zu: it has %zu", i, group, s->groups[group].n_values);
    value->name = s->groups[group].values[i].name;
    value->value = s->groups[group].values[i].value;
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
    v = find_value(&s->groups[group], name);
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

static zro_status check_new_param(const zro_state *s, const zro_param *p)
{
    char buffer[ZRO__NAME_BYTES];
    const char *name = zro__param_name(p->name, s->n_params, buffer);
    zro_status st = check_name("a parameter", name);
    size_t count = zro_param_count(p);

    if (st != ZRO_OK)
        return st;
    if (!zro__dtype_is_known(p->dtype))
        return zro__fail(ZRO_ERR_INVALID, "parameter %s: dtype = %d is no element type", name, (int)p->dtype);
    if (p->grad_dtype != ZRO_SAME && !zro__dtype_is_known(p->grad_dtype))
        return zro__fail(ZRO_ERR_INVALID, "parameter %s: grad_dtype = %d is no element type", name, (int)p->grad_dtype);
    if (p->n_dims > ZRO_MAX_DIMS)
        return zro__fail(ZRO_ERR_INVALID, "parameter %s: %u dimensions, at most %d are possible", name, (unsigned)p->n_dims,
                         ZRO_MAX_DIMS);
    for (uint32_t i = 0; i < p->n_dims; i++)
        if (p->shape[i] > SIZE_MAX / 16)
            count = SIZE_MAX; /* also where another dimension is 0 */
    if (count > SIZE_MAX / 16)
        return zro__fail(ZRO_ERR_INVALID, "parameter %s: its shape has more elements than memory can hold", name);
    return ZRO_OK;
}

zro_status zro_state_add_param(zro_state *s, const zro_param *param)
{
    zro__state_param *p;
    zro_status st = zro__state_check(s);
    const char *name = NULL;

    if (st != ZRO_OK)
        return st;
    if (param == NULL)
        return zro__fail(ZRO_ERR_INVALID, "state_add_param: param is NULL");
    if (s->n_groups == 0)
        return zro__fail(ZRO_ERR_STATE, "state_add_param: there is no group yet; call zro_state_add_group first");
    st = check_new_param(s, param);
    if (st == ZRO_OK)
        st = grow(&s->params, s->n_params, &s->params_room, sizeof *s->params, "parameters");
    if (st == ZRO_OK && param->name != NULL && (name = copy_name(s, param->name)) == NULL)
        st = zro__fail(ZRO_ERR_MEMORY, "out of memory: parameter %s of a state", param->name);
    if (st != ZRO_OK)
        return st;
    p = &s->params[s->n_params++];
    *p = (zro__state_param){ .name = name,
                             .count = zro_param_count(param),
                             .first_slot = ZRO__STATE_NONE,
                             .last_slot = ZRO__STATE_NONE,
                             .n_dims = param->n_dims,
                             .dtype = param->dtype,
                             .grad_dtype = param->grad_dtype };
    memcpy(p->shape, param->shape, p->n_dims * sizeof *p->shape);
    s->groups[s->n_groups - 1].n++;
    return ZRO_OK;
}

zro_status zro_state_param(const zro_state *s, size_t param, zro_param *out)
{
    zro_status st = check_param(s, param);
    const zro__state_param *p;

    if (st != ZRO_OK)
        return st;
    if (out == NULL)
        return zro__fail(ZRO_ERR_INVALID, "state_param: out is NULL");
    p = &s->params[param];
    zro_param_init(out);
    out->name = p->name;
    out->dtype = p->dtype;
    out->grad_dtype = p->grad_dtype;
    out->n_dims = p->n_dims;
    memcpy(out->shape, p->shape, sizeof out->shape);
    return ZRO_OK;
}

/* ---- slots ---- */

static zro__state_slot *find_slot(const zro_state *s, size_t param, const char *name)
{
    for (size_t i = s->params[param].first_slot; i != ZRO__STATE_NONE; i = s->slots[i].next)
        if (strcmp(s->slots[i].name, name) == 0)
            return &s->slots[i];
    return NULL;
}

static zro_status check_new_slot(const zro_state *s, size_t param, const char *name, zro_dtype dtype, size_t count)
{
    zro_status st = check_param(s, param);
    char buffer[ZRO__NAME_BYTES];
    const zro__state_param *p;
    const char *of;

    if (st == ZRO_OK)
        st = check_slot_name(name);
    if (st != ZRO_OK)
        return st;
    p = &s->params[param];
    of = zro__param_name(p->name, param, buffer);
    if (!zro__dtype_is_known(dtype))
        return zro__fail(ZRO_ERR_INVALID, "slot %s of parameter %s: dtype = %d is no element type", name, of, (int)dtype);
    if (count != 1 && count != p->count)
        return zro__fail(ZRO_ERR_INVALID, "slot %s of parameter %s: %zu elements, must be 1 or the parameter's %zu", name, of,
                         count, p->count);
    if (find_slot(s, param, name) != NULL)
        return zro__fail(ZRO_ERR_INVALID, "slot %s of parameter %s is there already", name, of);
    if (p->n_slots == ZRO__STATE_MAX_SLOTS)
        return zro__fail(ZRO_ERR_INVALID, "slot %s of parameter %s: a parameter has at most %d slots", name, of,
                         ZRO__STATE_MAX_SLOTS);
    return ZRO_OK;
}

/* Whether a slot of one element is a number for the parameter, even if that has one element, too. */
static int is_single(const zro_state *s, size_t param, const char *name, size_t count)
{
    if (count != 1 || s->params[param].count != 1)
        return count != s->params[param].count;
    for (size_t i = 0; s->table != NULL && i < s->table->n_slots; i++)
        if (strcmp(s->table->slots[i].name, name) == 0)
            return s->table->slots[i].kind != ZRO_SLOT_ARRAY;
    return strcmp(name, "step") == 0;
}

zro_status zro__state_plan_slot(zro_state *s, size_t param, const char *name, zro_dtype dtype, size_t count)
{
    zro_status st = check_new_slot(s, param, name, dtype, count);
    size_t bytes = st == ZRO_OK ? count * zro_dtype_bytes(dtype) : 0, rounded, extent;
    zro__state_param *p;
    const char *copy;

    if (st == ZRO_OK)
        st = grow(&s->slots, s->n_slots, &s->slots_room, sizeof *s->slots, "slots");
    if (st != ZRO_OK)
        return st;
    copy = share_name(s, name);
    if (copy == NULL || !zro__size_round(bytes, ZRO__STATE_ALIGN, &rounded) || !zro__size_add(s->extent, rounded, &extent))
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: slot %s of %zu bytes beside %zu", name, bytes, s->extent);
    p = &s->params[param];
    s->slots[s->n_slots] = (zro__state_slot){ .name = copy,
                                              .count = count,
                                              .bytes = bytes,
                                              .next = ZRO__STATE_NONE,
                                              .dtype = dtype,
                                              .single = (uint32_t)is_single(s, param, name, count) };
    if (p->n_slots++ == 0)
        p->first_slot = s->n_slots;
    else
        s->slots[p->last_slot].next = s->n_slots;
    p->last_slot = s->n_slots++;
    s->extent = extent;
    s->bytes += bytes;
    return ZRO_OK;
}

void zro__state_set_single(zro_state *s, int single)
{
    s->slots[s->n_slots - 1].single = single != 0;
}

/* A new block for `bytes`; small ones get more than that, for those that come next. */
static zro_status add_block(zro_state *s, size_t bytes)
{
    size_t room = s->taken < FIRST_BLOCK_BYTES ? FIRST_BLOCK_BYTES : s->taken < BLOCK_BYTES ? s->taken : BLOCK_BYTES;
    zro__state_block *b = zro__alloc(NULL, ZRO__KIND_HANDLE, sizeof *b);

    room = bytes > room ? bytes : room;
    if (b != NULL)
        b->data = zro__alloc(NULL, ZRO__KIND_STATE, room);
    if (b == NULL || b->data == NULL) {
        zro__free(b);
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: %zu bytes of state", bytes);
    }
    b->bytes = room;
    if (s->last_block != NULL)
        s->last_block->next = b;
    else
        s->first_block = b;
    s->last_block = b;
    return ZRO_OK;
}

zro_status zro__state_take(zro_state *s)
{
    size_t bytes = s->extent - s->taken;
    zro__state_block *b = s->last_block;
    zro_status st = ZRO_OK;

    if (s->n_taken == s->n_slots)
        return ZRO_OK;
    if (b == NULL || b->bytes - b->used < bytes)
        st = add_block(s, bytes);
    if (st != ZRO_OK)
        return st;
    b = s->last_block;
    for (; s->n_taken < s->n_slots; s->n_taken++) {
        zro__state_slot *slot = &s->slots[s->n_taken];

        slot->data = b->data + b->used;
        b->used += (slot->bytes + ZRO__STATE_ALIGN - 1) & ~(size_t)(ZRO__STATE_ALIGN - 1);
    }
    s->taken = s->extent;
    return ZRO_OK;
}

/* Takes back what was announced last and has no memory. */
static void unplan_slot(zro_state *s, size_t param)
{
    zro__state_param *p = &s->params[param];
    size_t last = s->n_slots - 1, before = p->first_slot;

    if (--p->n_slots == 0) {
        p->first_slot = p->last_slot = ZRO__STATE_NONE;
    } else {
        while (s->slots[before].next != last)
            before = s->slots[before].next;
        s->slots[before].next = ZRO__STATE_NONE;
        p->last_slot = before;
    }
    s->bytes -= s->slots[last].bytes;
    s->extent = s->taken;
    s->n_slots--;
}

zro_status zro_state_add_slot(zro_state *s, size_t param, const char *name, zro_dtype dtype, const void *data, size_t count)
{
    zro_status st = zro__state_check(s);
    const zro__state_slot *slot;

    if (st == ZRO_OK)
        st = zro__state_take(s);
    if (st == ZRO_OK)
        st = zro__state_plan_slot(s, param, name, dtype, count);
    if (st != ZRO_OK)
        return st;
    st = zro__state_take(s);
    if (st != ZRO_OK) {
        unplan_slot(s, param);
        return st;
    }
    slot = &s->slots[s->n_slots - 1];
    if (data != NULL && slot->bytes > 0)
        memcpy(slot->data, data, slot->bytes);
    return ZRO_OK;
}

zro__state_slot *zro__state_slot_at(const zro_state *s, size_t param, size_t i)
{
    size_t at;

    if (s == NULL || param >= s->n_params || i >= s->params[param].n_slots)
        return NULL;
    for (at = s->params[param].first_slot; i > 0; i--)
        at = s->slots[at].next;
    return &s->slots[at];
}

void *zro__state_data(const zro_state *s, size_t param, size_t i)
{
    const zro__state_slot *slot = zro__state_slot_at(s, param, i);

    return slot != NULL ? slot->data : NULL;
}

size_t zro_state_slots(const zro_state *s, size_t param)
{
    return s != NULL && param < s->n_params ? s->params[param].n_slots : 0;
}

const char *zro_state_slot_name(const zro_state *s, size_t param, size_t i)
{
    const zro__state_slot *slot = zro__state_slot_at(s, param, i);

    return slot != NULL ? slot->name : NULL;
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
    s->progress =
        (zro_progress){ .steps = progress->steps, .scale = progress->scale, .growth_tracker = progress->growth_tracker };
    return ZRO_OK;
}

const char *zro_state_rule(const zro_state *s)
{
    return s != NULL ? s->rule : NULL;
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
