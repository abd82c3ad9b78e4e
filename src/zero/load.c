/* Loading: an optimizer takes over a state, each rank what it owns of it.
 *
 * Everything is checked, the ranks are compared and all memory is taken before anything changes. */
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/param.h"
#include "base/status.h"
#include "group/group.h"
#include "optim/values.h"
#include "zero/optim.h"
#include "zero/state.h"

/* One load on this rank. */
typedef struct loading {
    zro_optim *opt;
    const zro_state *state;
    double *values;   /* of all groups, as they will be */
    double *first_lr; /* by group; NaN: the state does not say */
    uint32_t *needed; /* bits by group: slots that the state has */
} loading;

static const char *name_of(const zro_optim *opt, size_t param, char *buffer)
{
    return zro__param_name(opt->params[param].name, param, buffer);
}

/* ---- checks ---- */

static zro_status check_rule(const zro_optim *opt, const zro_state *state)
{
    const char *mine = opt->rule != NULL ? opt->rule->name : "", *theirs = zro_state_rule(state);

    if (theirs[0] != '\0' && strcmp(mine, theirs) != 0)
        return zro__fail(ZRO_ERR_INVALID, "optim_load: the state is that of rule %s, the optimizer has %s", theirs,
                         opt->rule != NULL ? mine : "none");
    if (zro_state_groups(state) != zro_optim_groups(opt) || zro_state_params(state) != opt->n_params)
        return zro__fail(ZRO_ERR_INVALID,
                         "optim_load: the state has %zu parameters in %zu groups, the optimizer %zu parameters in %zu groups",
                         zro_state_params(state), zro_state_groups(state), opt->n_params, zro_optim_groups(opt));
    return ZRO_OK;
}

static zro_status check_groups(const zro_optim *opt, const zro_state *state)
{
    for (size_t k = 0; k < zro_optim_groups(opt); k++) {
        size_t first = opt->cycle.update.shard.groups[k]->first_index;

        if (state->groups[k].first != first)
            return zro__fail(
                ZRO_ERR_INVALID,
                "optim_load: parameter group %zu begins with parameter %zu in the state, with %zu in the optimizer", k,
                state->groups[k].first, first);
    }
    return ZRO_OK;
}

static zro_status check_shape(const zro_optim *opt, const zro_state *state, size_t i)
{
    const zro__entry *e = &opt->params[i];
    const zro__state_param *p = &state->params[i];
    char buffer[ZRO__NAME_BYTES];
    int same = p->n_dims == e->param->n_dims;

    for (uint32_t d = 0; same && d < p->n_dims; d++)
        same = p->shape[d] == e->param->shape[d];
    if (p->name != NULL && e->name != NULL && strcmp(p->name, e->name) != 0)
        return zro__fail(ZRO_ERR_INVALID, "optim_load: parameter %zu is %s in the state, %s in the optimizer", i, p->name,
                         e->name);
    if (!same)
        return zro__fail(ZRO_ERR_INVALID, "optim_load: parameter %s has another shape in the state: %zu elements, not %zu",
                         name_of(opt, i, buffer), p->count, e->count);
    if (p->dtype != e->dtype)
        return zro__fail(ZRO_ERR_INVALID, "optim_load: parameter %s is %s in the state, %s in the optimizer",
                         name_of(opt, i, buffer), zro_dtype_name(p->dtype), zro_dtype_name(e->dtype));
    return ZRO_OK;
}

/* A slot of the state: the optimizer has one of this name, size and type. */
static zro_status check_slot(const zro_optim *opt, size_t param, const zro__state_slot *slot, int s)
{
    const zro__entry *e = &opt->params[param];
    char buffer[ZRO__NAME_BYTES];
    const char *name = name_of(opt, param, buffer);
    int is_array = s == ZRO__MASTER || (s >= 0 && opt->rule->slots[s].kind == ZRO_SLOT_ARRAY);
    zro_dtype type = e->dtype == ZRO_F64 && s != ZRO__MASTER ? ZRO_F64 : ZRO_F32;

    if (s < 0 || (s == ZRO__MASTER && e->dtype != ZRO_BF16 && e->dtype != ZRO_F16))
        return zro__fail(ZRO_ERR_INVALID, "optim_load: the state has a slot %s for parameter %s, which the optimizer has not",
                         slot->name, name);
    if (slot->count != (is_array ? e->count : 1))
        return zro__fail(ZRO_ERR_INVALID, "optim_load: slot %s of parameter %s has %zu elements, must have %zu", slot->name,
                         name, slot->count, is_array ? e->count : 1);
    if (is_array ? slot->dtype != type : !zro__dtype_is_float(slot->dtype))
        return zro__fail(ZRO_ERR_INVALID, "optim_load: slot %s of parameter %s is %s, must be %s", slot->name, name,
                         zro_dtype_name(slot->dtype), is_array ? zro_dtype_name(type) : "a floating-point number");
    return ZRO_OK;
}

/* The group of a parameter. */
static size_t group_of(const zro_state *state, size_t param, size_t from)
{
    while (from + 1 < state->n_groups && state->groups[from + 1].first <= param)
        from++;
    return from;
}

static zro_status check_slots(loading *l, size_t param, size_t group)
{
    const zro_optim *opt = l->opt;
    uint32_t bits = 0, rest;
    char buffer[ZRO__NAME_BYTES];
    zro_status st = ZRO_OK;

    for (size_t i = 0; st == ZRO_OK && i < l->state->params[param].n_slots; i++) {
        const zro__state_slot *slot = zro__state_slot_at(l->state, param, i);
        int s = zro__optim_find_slot(opt, slot->name);

        st = check_slot(opt, param, slot, s);
        bits |= st == ZRO_OK ? (uint32_t)1 << s : 0;
    }
    l->needed[group] |= bits;
    rest = bits & ~((uint32_t)1 << ZRO__MASTER);
    for (size_t s = 0; st == ZRO_OK && rest != 0 && s < opt->rule->n_slots; s++)
        if ((rest >> s & 1) == 0 && opt->rule->slots[s].only_with == NULL)
            st = zro__fail(ZRO_ERR_INVALID, "optim_load: the state of parameter %s has no %s", name_of(opt, param, buffer),
                           opt->rule->slots[s].name);
    return st;
}

/* ---- values ---- */

static int find_hyper(const zro_rule *rule, const char *name)
{
    for (size_t v = 0; rule != NULL && v < rule->n_hypers; v++)
        if (strcmp(rule->hypers[v].name, name) == 0
            || (rule->hypers[v].torch != NULL && strcmp(rule->hypers[v].torch, name) == 0))
            return (int)v;
    return -1;
}

/* What PyTorch's schedules keep in groups, and zro's do not. */
static int is_of_schedule(const char *name)
{
    static const char *const names[] = { "max_lr", "min_lr", "base_momentum", "max_momentum" };
    size_t i = 0;

    while (i < sizeof names / sizeof *names && strcmp(names[i], name) != 0)
        i++;
    return i < sizeof names / sizeof *names;
}

/* The state's values on top of those that the group has. */
static zro_status read_values(loading *l, size_t group)
{
    const zro_rule *rule = l->opt->rule;
    const zro__state_group *from = &l->state->groups[group];
    double *values = rule != NULL ? l->values + group * rule->n_hypers : NULL;

    if (rule != NULL)
        memcpy(values, l->opt->cycle.update.shard.groups[group]->values, rule->n_hypers * sizeof *values);
    l->first_lr[group] = NAN;
    for (size_t i = 0; i < from->n_values; i++) {
        const zro__state_value *value = &from->values[i];
        int v = find_hyper(rule, value->name);

        if (v >= 0)
            values[v] = value->value;
        else if (strcmp(value->name, "initial_lr") == 0)
            l->first_lr[group] = value->value;
        else if (!zro__state_is_ignored(value->name) && !is_of_schedule(value->name))
            return zro__fail(ZRO_ERR_INVALID, "optim_load: parameter group %zu has a value %s in the state, which %s has not",
                             group, value->name, rule != NULL ? rule->name : "an optimizer without a rule");
    }
    return rule != NULL ? zro__values_check(rule, values) : ZRO_OK;
}

static zro_status check_progress(const loading *l)
{
    const double scale = l->state->progress.scale;

    if (l->opt->cycle.scales == ZRO_ON && scale != 0 && !((float)scale > 0 && isfinite((float)scale)))
        return zro__fail(ZRO_ERR_INVALID, "optim_load: loss scale %g, must be above 0 and finite in f32", scale);
    return ZRO_OK;
}

static zro_status check_all(loading *l)
{
    zro_status st = check_rule(l->opt, l->state);
    size_t group = 0;

    if (st == ZRO_OK)
        st = check_groups(l->opt, l->state);
    if (st == ZRO_OK)
        st = check_progress(l);
    for (size_t k = 0; st == ZRO_OK && k < zro_optim_groups(l->opt); k++)
        st = read_values(l, k);
    for (size_t i = 0; st == ZRO_OK && i < l->opt->n_params; i++) {
        group = group_of(l->state, i, group);
        st = check_shape(l->opt, l->state, i);
        if (st == ZRO_OK)
            st = check_slots(l, i, group);
    }
    return st;
}

/* ---- preparing ---- */

static zro_status take(loading *l)
{
    const size_t n = zro_optim_groups(l->opt), n_values = l->opt->rule != NULL ? l->opt->rule->n_hypers : 0;

    l->values = zro__alloc_array(l->opt->account, ZRO__KIND_HANDLE, n, (n_values + 1) * sizeof *l->values);
    l->first_lr = zro__alloc_array(l->opt->account, ZRO__KIND_HANDLE, n, sizeof *l->first_lr);
    l->needed = zro__alloc_array(l->opt->account, ZRO__KIND_HANDLE, n, sizeof *l->needed);
    if (l->values == NULL || l->first_lr == NULL || l->needed == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "optim_load: out of memory: values of %zu groups", n);
    return ZRO_OK;
}

/* Memory for slots that have not begun here.  What is taken stays, and is as good as none until it is filled. */
static zro_status ensure(loading *l)
{
    const zro_rule *rule = l->opt->rule;
    zro_status st = ZRO_OK;

    for (size_t k = 0; st == ZRO_OK && rule != NULL && k < zro_optim_groups(l->opt); k++)
        st = zro__shard_ensure(&l->opt->cycle.update.shard, k, l->values + k * rule->n_hypers, l->needed[k]);
    return st;
}

/* Of what the state describes; the arrays themselves are too much to compare. */
static uint64_t hash_of(const loading *l)
{
    const size_t n_values = l->opt->rule != NULL ? l->opt->rule->n_hypers : 0;
    uint64_t hash = zro__hash(ZRO__HASH_START, l->values, zro_optim_groups(l->opt) * n_values * sizeof *l->values);

    hash = zro__hash(hash, l->first_lr, zro_optim_groups(l->opt) * sizeof *l->first_lr);
    hash = zro__hash(hash, &l->state->progress, sizeof l->state->progress);
    for (size_t i = 0; i < l->opt->n_params; i++)
        for (size_t k = 0; k < l->state->params[i].n_slots; k++) {
            const zro__state_slot *slot = zro__state_slot_at(l->state, i, k);
            uint64_t what[] = { i, (uint64_t)slot->dtype };

            hash = zro__hash(hash, what, sizeof what);
            hash = zro__hash(hash, slot->name, strlen(slot->name));
            if (slot->count == 1)
                hash = zro__hash(hash, slot->data, slot->bytes);
        }
    return hash;
}

static zro_status agree(loading *l, zro_status st)
{
    zro_group *g = l->opt->cycle.group;
    int same = 1;

    if (g == NULL)
        return st;
    st = zro__vote(&g->board, ZRO__CALL_LOAD, st);
    if (st == ZRO_OK)
        st = zro__is_same(g, hash_of(l), &same);
    if (st == ZRO_OK && !same)
        st = zro__fail(ZRO_ERR_MISMATCH, "optim_load: the ranks' states differ in values, slots or steps");
    return st;
}

/* ---- taking over ---- */

static double number_of(const zro__state_slot *slot)
{
    double x = 0;

    zro__kernels_get(ZRO_KERNELS_BASE)->convert(&x, ZRO_F64, slot->data, slot->dtype, 1);
    return x;
}

static void load_piece(loading *l, zro__part_group *g, zro__piece *p)
{
    const zro_rule *rule = l->opt->rule;

    p->present = 0;
    for (size_t i = 0; i < l->state->params[p->index].n_slots; i++) {
        const zro__state_slot *slot = zro__state_slot_at(l->state, p->index, i);
        const size_t s = (size_t)zro__optim_find_slot(l->opt, slot->name), size = zro_dtype_bytes(slot->dtype);

        p->present |= (uint32_t)1 << s;
        if (s != ZRO__MASTER && rule->slots[s].kind != ZRO_SLOT_ARRAY)
            g->numbers[(size_t)(p - g->pieces) * rule->n_slots + s] = number_of(slot);
        else if (p->count > 0)
            memcpy(zro__shard_slot(g, p, s), (const char *)slot->data + p->first * size, p->count * size);
    }
}

static void load(loading *l)
{
    const zro_rule *rule = l->opt->rule;
    zro__cycle *c = &l->opt->cycle;
    const zro_progress *progress = &l->state->progress;

    for (size_t k = 0; k < c->update.shard.n_groups; k++) {
        zro__part_group *g = c->update.shard.groups[k];

        if (rule != NULL)
            memcpy(g->values, l->values + k * rule->n_hypers, rule->n_hypers * sizeof *g->values);
        if (!isnan(l->first_lr[k]))
            g->first_lr = l->first_lr[k];
        for (size_t i = 0; i < g->n; i++)
            load_piece(l, g, &g->pieces[i]);
    }
    c->n_steps = progress->steps;
    if (c->scales == ZRO_ON && progress->scale > 0) {
        zro__scaler_set(&c->scaler, progress->scale);
        c->scaler.tracker = progress->growth_tracker < c->scaler.interval ? progress->growth_tracker : 0;
    }
}

zro_status zro_optim_load(zro_optim *opt, const zro_state *state)
{
    loading l = { .opt = opt, .state = state };
    zro_status st = zro__optim_enter(opt);

    if (st != ZRO_OK)
        return st;
    st = zro__state_check(state);
    if (st == ZRO_OK)
        st = take(&l);
    if (st == ZRO_OK)
        st = check_all(&l);
    if (st == ZRO_OK)
        st = ensure(&l);
    st = agree(&l, st);
    if (st == ZRO_OK)
        load(&l);
    zro__free(l.values);
    zro__free(l.first_lr);
    zro__free(l.needed);
    return zro__optim_leave(opt, st);
}
