/* Loading: an optimizer takes over a state, each rank what it owns of it.
 *
 * Everything is checked, the ranks are compared and all memory is taken before anything changes.  Either every rank has the whole
 * state and copies what it owns, or one rank has it and sends its arrays to their owners. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/param.h"
#include "base/point.h"
#include "base/status.h"
#include "group/group.h"
#include "optim/values.h"
#include "zero/optim.h"
#include "zero/state.h"
#include "zero/state_move.h"

/* One load on this rank. */
typedef struct loading {
    zro_optim *opt;
    const zro_state *state;
    double *values;                   /* of all groups, as they will be after the load */
    double *first_lr;                 /* one per group; NaN: the state does not have it */
    uint32_t *needed;                 /* one per group: bit s is set if the state has slot s */
    const zro__state_value *left_out; /* the first value that the rule does not have, or NULL */
    size_t n_left_out;                /* how many of them there are */
    int has_data;                     /* the state has the data of a parameter */
    int root;                         /* the rank that has the arrays of the state, or ZRO__EVERY_RANK */
    zro__moves moves;                 /* of these arrays */
    zro__arena arena;
} loading;

/* The text begins with the call that the program has made: zro_optim_load or zro_optim_resume. */
static __attribute__((format(printf, 2, 3))) zro_status refuse(const loading *l, const char *format, ...)
{
    char why[ZRO__TEXT_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    return zro__fail(ZRO_ERR_INVALID, "%s: %s", zro__call_name(l->moves.call), why);
}

/* ---- checks ---- */

/* Whether a rule of the library takes the state of another one: both keep the same slots, as adam and adamw do, whose values
 * have the same names. */
static int takes_other(const zro_optim *opt, const zro_state *state)
{
    return opt->rule != NULL && state->table != NULL && state->table != opt->rule && state->table->slots == opt->rule->slots
           && zro_rule_find(opt->rule->name) == opt->rule;
}

/* The rule, and which parameters are in which group. */
static zro_status check_groups(const loading *l)
{
    const zro_optim *opt = l->opt;
    const zro_state *state = l->state;
    const char *mine = opt->rule != NULL ? opt->rule->name : "", *theirs = zro_state_rule(state);

    if (theirs[0] != '\0' && strcmp(mine, theirs) != 0 && !takes_other(opt, state))
        return refuse(l, "the state is that of rule %s, the optimizer has %s", theirs, opt->rule != NULL ? mine : "no rule");
    if (zro_state_groups(state) != zro_optim_groups(opt) || zro_state_params(state) != opt->n_params)
        return refuse(l, "the state has %zu parameters in %zu groups, the optimizer %zu parameters in %zu groups",
                      zro_state_params(state), zro_state_groups(state), opt->n_params, zro_optim_groups(opt));
    for (size_t k = 0; k < zro_optim_groups(opt); k++)
        if (state->groups[k].first != zro__optim_shard(opt)->groups[k]->first_index)
            return refuse(l, "parameter group %zu begins with parameter %zu in the state, with %zu in the optimizer", k,
                          state->groups[k].first, zro__optim_shard(opt)->groups[k]->first_index);
    return ZRO_OK;
}

static zro_status check_shape(const loading *l, size_t i)
{
    const zro__entry *e = &l->opt->params[i];
    const zro__state_param *p = &l->state->params[i];
    const char *name = zro__state_text(l->state, p->name);

    if (name != NULL && e->name != NULL && strcmp(name, e->name) != 0)
        return refuse(l, "parameter %zu is %s in the state, %s in the optimizer", i, name, e->name);
    if (p->n_dims != e->param->n_dims || memcmp(p->shape, e->param->shape, p->n_dims * sizeof *p->shape) != 0)
        return refuse(l, "parameter %s has another shape in the state: %zu elements, not %zu", ZRO__OPTIM_PARAM_NAME(l->opt, i),
                      p->count, e->count);
    if (p->dtype != e->dtype)
        return refuse(l, "parameter %s is %s in the state, %s in the optimizer", ZRO__OPTIM_PARAM_NAME(l->opt, i),
                      zro_dtype_name(p->dtype), zro_dtype_name(e->dtype));
    return ZRO_OK;
}

/* Checks that a slot of the state has the size and type of the optimizer's slot s; s is -1 if the optimizer has none of this
 * name. */
static zro_status check_slot(const loading *l, const zro__state_slot *slot, const char *slot_name, int s)
{
    const zro_optim *opt = l->opt;
    const zro__entry *e = &opt->params[slot->param];
    const char *name = ZRO__OPTIM_PARAM_NAME(opt, slot->param);
    const int is_array = s >= 0 && zro__slot_is_array(opt, (size_t)s);
    zro_dtype type;

    if (s < 0 || (s == ZRO__MASTER && e->dtype != ZRO_BF16 && e->dtype != ZRO_F16))
        return refuse(l, "the state has a slot %s for parameter %s, but the optimizer has none", slot_name, name);
    type = zro__slot_type(opt, (size_t)s, e->dtype);
    if (slot->count != (is_array ? e->count : 1))
        return refuse(l, "slot %s of parameter %s has %zu elements, must have %zu", slot_name, name, slot->count,
                      is_array ? e->count : 1);
    if (is_array ? slot->dtype != type : !zro__dtype_is_float(slot->dtype))
        return refuse(l, "slot %s of parameter %s is %s, must be %s", slot_name, name, zro_dtype_name(slot->dtype),
                      is_array ? zro_dtype_name(type) : "a floating-point number");
    return ZRO_OK;
}

static zro_status check_slots(loading *l, size_t param, size_t group)
{
    const zro_optim *opt = l->opt;
    const zro_state *state = l->state;
    uint32_t bits = 0, rest;
    zro_status st = ZRO_OK;

    for (size_t i = state->params[param].slots.first; st == ZRO_OK && i != ZRO__STATE_NONE; i = state->slots[i].next) {
        const char *name = zro__state_text(state, state->slots[i].name);
        int s = zro__optim_find_slot(opt, name);

        st = check_slot(l, &state->slots[i], name, s);
        bits |= st == ZRO_OK ? (uint32_t)1 << s : 0;
    }
    l->needed[group] |= bits;
    rest = bits & ~((uint32_t)1 << ZRO__MASTER);
    for (size_t s = 0; st == ZRO_OK && rest != 0 && s < opt->rule->n_slots; s++)
        if ((rest >> s & 1) == 0 && opt->rule->slots[s].only_with == NULL)
            st = refuse(l, "the state of parameter %s has no %s", ZRO__OPTIM_PARAM_NAME(opt, param), opt->rule->slots[s].name);
    return st;
}

/* ---- values ---- */

/* Values that PyTorch's schedules keep in parameter groups, and zro's do not. */
static int is_of_schedule(const char *name)
{
    static const char *const names[] = { "max_lr", "min_lr", "base_momentum", "max_momentum" };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0)
            return 1;
    return 0;
}

/* A value for which the two rules have different bounds (adamw fixes decoupled_weight_decay) says which of them it is.  If the
 * state does not have it, the default of the state's rule holds. */
static void take_other_rule(const zro_rule *mine, const zro_rule *theirs, double *values)
{
    for (size_t v = 0; v < mine->n_hypers; v++)
        if (mine->hypers[v].low != theirs->hypers[v].low || mine->hypers[v].high != theirs->hypers[v].high)
            values[v] = theirs->hypers[v].init;
}

static zro_status check_values(const loading *l, size_t group, const double *values)
{
    zro_status st = l->opt->rule != NULL ? zro__values_check(l->opt->rule, values) : ZRO_OK;

    if (st != ZRO_OK && takes_other(l->opt, l->state))
        return refuse(l, "the state is that of rule %s, and its parameter group %zu does not fit: %s", zro_state_rule(l->state),
                      group, zro_last_error());
    return st;
}

/* Reads the values that a group will have: its present ones, replaced by those that the state has. */
static zro_status read_values(loading *l, size_t group)
{
    const zro_rule *rule = l->opt->rule;
    const zro__state_group *from = &l->state->groups[group];
    double *values = rule != NULL ? l->values + group * rule->n_hypers : NULL;

    if (rule != NULL)
        memcpy(values, zro__optim_shard(l->opt)->groups[group]->values, rule->n_hypers * sizeof *values);
    if (takes_other(l->opt, l->state))
        take_other_rule(rule, l->state->table, values);
    l->first_lr[group] = NAN;
    for (size_t i = from->values.first; i != ZRO__STATE_NONE; i = l->state->values[i].next) {
        const zro__state_value *value = &l->state->values[i];
        const char *name = zro__state_text(l->state, value->name);
        int v = zro__state_find_hyper(rule, name);

        if (v >= 0)
            values[v] = value->value;
        else if (strcmp(name, "initial_lr") == 0)
            l->first_lr[group] = value->value;
        else if (!zro__state_is_ignored(name) && !is_of_schedule(name) && l->n_left_out++ == 0)
            l->left_out = value;
    }
    return check_values(l, group, values);
}

/* Programs keep values of their own in PyTorch's groups; what they mean is theirs to know. */
static void say_left_out(const loading *l)
{
    char more[64] = "";

    if (l->n_left_out == 0 || zro__optim_rank(l->opt) != 0)
        return;
    if (l->n_left_out > 1)
        snprintf(more, sizeof more, " (and %zu others)", l->n_left_out - 1);
    zro__log(&l->opt->settings, ZRO_LOG_WARN,
             "%s: value %s of parameter group %zu of the state%s is left out: %s has none of this name",
             zro__call_name(l->moves.call), zro__state_text(l->state, l->left_out->name), l->left_out->group, more,
             l->opt->rule != NULL ? l->opt->rule->name : "an optimizer without a rule");
}

static zro_status check_all(loading *l)
{
    const float scale = (float)l->state->progress.scale;
    zro_status st = check_groups(l);

    if (st == ZRO_OK && l->opt->updater.scales == ZRO_ON && l->state->progress.scale != 0 && !(scale > 0 && isfinite(scale)))
        st = refuse(l, "loss scale %g, must be above 0 and finite in f32", l->state->progress.scale);
    for (size_t k = 0; st == ZRO_OK && k < zro_optim_groups(l->opt); k++)
        st = read_values(l, k);
    for (size_t i = 0; st == ZRO_OK && i < l->opt->n_params; i++) {
        st = check_shape(l, i);
        if (st == ZRO_OK)
            st = check_slots(l, i, zro__plan_table(l->opt->plan)[i].group);
        l->has_data |= l->state->params[i].data != ZRO__STATE_NONE;
    }
    if (st == ZRO_OK && l->has_data) /* finds where the parameters are, which will be written and delivered */
        st = zro__optim_check_data(l->opt, 0, l->opt->n_params);
    return st == ZRO_OK && l->has_data && l->opt->group != NULL ? zro__batches_inspect(l->opt->group, l->opt->updater.publish)
                                                                : st;
}

/* ---- preparing ---- */

/* Takes memory for slots that do not exist on this rank yet.  It is kept even if the load fails, and means nothing until it is
 * filled. */
static zro_status ensure(loading *l)
{
    const zro_rule *rule = l->opt->rule;
    zro_status st = ZRO_OK;

    for (size_t k = 0; st == ZRO_OK && rule != NULL && k < zro_optim_groups(l->opt); k++)
        st = zro__shard_ensure(zro__optim_shard(l->opt), k, l->values + k * rule->n_hypers, l->needed[k]);
    return st;
}

/* A hash of everything that the ranks must have in common but the arrays, which are too large to compare. */
static uint64_t hash_of(const loading *l)
{
    const size_t n_values = zro_optim_groups(l->opt) * zro_optim_values(l->opt);
    uint64_t hash = zro__hash(ZRO__HASH_START, l->values, n_values * sizeof *l->values);

    hash = zro__hash(hash, l->first_lr, zro_optim_groups(l->opt) * sizeof *l->first_lr);
    hash = zro__hash(hash, &l->state->progress, sizeof l->state->progress);
    for (size_t i = 0; i < l->opt->n_params; i++) {
        hash = zro__hash(hash, &l->state->params[i].has_data, sizeof l->state->params[i].has_data);
        for (size_t k = l->state->params[i].slots.first; k != ZRO__STATE_NONE; k = l->state->slots[k].next) {
            const zro__state_slot *slot = &l->state->slots[k];
            const char *name = zro__state_text(l->state, slot->name);
            uint64_t what[] = { i, (uint64_t)slot->dtype };

            hash = zro__hash(hash, what, sizeof what);
            hash = zro__hash(hash, name, strlen(name));
            if (slot->count == 1)
                hash = zro__hash(hash, slot->data, slot->bytes);
        }
    }
    return hash;
}

static zro_status agree(loading *l, zro_status st)
{
    zro_group *g = l->opt->group;
    const zro__claim claim = { .what = "the ranks' states",
                               .hash = st == ZRO_OK ? hash_of(l) : 0,
                               .otherwise = "the ranks' states differ in values, slots, steps or loss scale; load "
                                            "the same state on all ranks (zro_state_broadcast)" };

    return g != NULL ? zro__claim_agree(&g->ranks.board, l->moves.call, &claim, st) : st;
}

/* ---- taking over ---- */

/* Whether a slot's elements are taken over by `load_arrays`; a single element is there on all ranks. */
static int is_moved(const zro__state_slot *slot)
{
    return slot->name == ZRO__STATE_NONE || slot->count > 1;
}

static void load_piece(loading *l, zro__shard_group *g, zro__piece *p)
{
    p->present = 0;
    for (size_t i = l->state->params[p->index].slots.first; i != ZRO__STATE_NONE; i = l->state->slots[i].next) {
        const zro__state_slot *slot = &l->state->slots[i];
        const size_t s = (size_t)zro__optim_find_slot(l->opt, zro__state_text(l->state, slot->name));

        p->present |= (uint32_t)1 << s;
        if (!zro__slot_is_array(l->opt, s))
            zro__kernels_get(ZRO_KERNELS_BASE)->convert(zro__slot_number(l->opt, g, p, s), ZRO_F64, slot->data, slot->dtype, 1);
        else if (p->count > 0 && !is_moved(slot))
            memcpy(zro__shard_slot(g, p, s), slot->data, slot->bytes);
    }
}

/* ---- arrays ---- */

static zro_status load_array(loading *l, const zro_range *r, const zro__state_slot *slot)
{
    const size_t size = zro_dtype_bytes(slot->dtype), bytes = r->count * size;
    const int rank = zro__optim_rank(l->opt), mine = r->owner == rank;
    const char *from = l->root == ZRO__EVERY_RANK || l->root == rank ? (const char *)slot->data + r->first * size : NULL;
    const char *name = zro__state_text(l->state, slot->name);
    char *to =
        mine && bytes > 0 ? zro__part_of(l->opt, r, name != NULL ? zro__optim_find_slot(l->opt, name) : ZRO__DATA_SLOT) : NULL;

    if (l->root != ZRO__EVERY_RANK && l->root != r->owner)
        return zro__move(&l->moves, l->root, from, to, bytes);
    if (to != NULL)
        memcpy(to, from, bytes);
    return ZRO_OK;
}

static zro_status load_range(loading *l, const zro_range *r)
{
    const zro__state_slot *data = zro__state_data(l->state, r->param);
    zro_status st = ZRO_OK;

    for (size_t i = l->state->params[r->param].slots.first; st == ZRO_OK && i != ZRO__STATE_NONE; i = l->state->slots[i].next)
        if (is_moved(&l->state->slots[i]))
            st = load_array(l, r, &l->state->slots[i]);
    return st == ZRO_OK && data != NULL ? load_array(l, r, data) : st;
}

static zro_status load_ranges(loading *l, int rank)
{
    size_t n;
    const zro_range *ranges = zro__plan_owned(l->opt->plan, rank, &n);
    zro_status st = ZRO_OK;

    l->moves.to = rank;
    for (size_t i = 0; st == ZRO_OK && i < n; i++)
        st = load_range(l, &ranges[i]);
    return st == ZRO_OK ? zro__moves_send(&l->moves) : st;
}

/* What this rank owns, without a transfer: it says that it touches data that others may have, too. */
static zro_status copy_ranges(loading *l, int rank)
{
    zro__board *board = zro__cycle_is_shared(l->opt->cycle) ? &l->opt->group->ranks.board : NULL;
    zro_status st = ZRO_OK;

    if (board != NULL)
        zro__touch_begin(board);
    if (board != NULL && zro__is_broken(board->control))
        st = zro__verdict_get(board->control);
    if (st == ZRO_OK)
        st = load_ranges(l, rank);
    if (board != NULL)
        zro__touch_end(board);
    return st;
}

/* What each rank owns, one rank after another, because bytes under way go to one rank at a time. */
static zro_status load_arrays(loading *l)
{
    const int me = zro__optim_rank(l->opt);
    zro_status st = ZRO_OK;

    if (l->root == ZRO__EVERY_RANK)
        return copy_ranges(l, me);
    for (int rank = 0; st == ZRO_OK && rank < zro__optim_ranks(l->opt); rank++)
        if (rank != l->root)
            st = load_ranges(l, rank);
        else if (rank == me)
            st = copy_ranges(l, me);
    return st;
}

/* Owners write what they own of the data, as in a step: so a parameter that exists once is written by one rank, and one that lies
 * elsewhere on each rank is delivered.  A rank that is lost on the way leaves torn parameters, and they are marked as in a step. */
static zro_status write_arrays(loading *l)
{
    zro_status st;

    if (!l->has_data)
        return load_arrays(l);
    zro__updater_begin(&l->opt->updater);
    (void)ZRO__POINT("load.begun");
    st = load_arrays(l);
    return st == ZRO_OK ? zro__updater_deliver(&l->opt->updater) : st;
}

/* ---- the whole ---- */

static void load(loading *l)
{
    const zro_rule *rule = l->opt->rule;
    zro__updater *u = &l->opt->updater;
    const zro__shard *shard = zro__updater_shard(u);
    const zro_progress *progress = &l->state->progress;

    for (size_t k = 0; k < shard->n_groups; k++) {
        zro__shard_group *g = shard->groups[k];

        if (rule != NULL)
            memcpy(g->values, l->values + k * rule->n_hypers, rule->n_hypers * sizeof *g->values);
        if (!isnan(l->first_lr[k]))
            g->first_lr = l->first_lr[k];
        for (size_t i = 0; i < g->n; i++)
            load_piece(l, g, &g->pieces[i]);
    }
    l->opt->n_loads++;
    l->opt->loaded_steps = progress->steps;
    u->n_steps = progress->steps;
    u->n_skipped = progress->n_skipped;
    if (u->scales == ZRO_ON && progress->scale > 0) {
        zro__scaler_set(&u->scaler, progress->scale);
        u->scaler.tracker = progress->growth_tracker < u->scaler.interval ? progress->growth_tracker : 0;
    }
}

zro_status zro__optim_load_from(zro_optim *opt, const zro_state *state, int root, zro__call call)
{
    loading l = { .opt = opt, .state = state, .root = root, .moves = { .opt = opt, .call = call } };
    const size_t n = zro_optim_groups(opt);
    const zro__array arrays[] = { { &l.values, n * zro_optim_values(opt), sizeof *l.values },
                                  { &l.first_lr, n, sizeof *l.first_lr },
                                  { &l.needed, n, sizeof *l.needed },
                                  { &l.moves.parts, root != ZRO__EVERY_RANK ? ZRO__MOVE_BATCH : 0, sizeof *l.moves.parts } };
    zro_status st = zro__optim_enter(opt, ZRO__TURN_OF_ALL);

    if (st != ZRO_OK)
        return st;
    st = zro__state_check(state);
    if (st == ZRO_OK)
        st = zro__arena_arrays(&l.arena, opt->account, "values of the groups of a state", arrays, 4);
    if (st == ZRO_OK)
        st = check_all(&l);
    if (st == ZRO_OK)
        st = ensure(&l);
    st = agree(&l, st);
    if (st == ZRO_OK)
        st = write_arrays(&l);
    if (st == ZRO_OK) {
        load(&l);
        say_left_out(&l);
    }
    zro__arena_free(&l.arena);
    return zro__optim_leave(opt, st);
}

zro_status zro_optim_load(zro_optim *opt, const zro_state *state)
{
    return zro__optim_load_from(opt, state, ZRO__EVERY_RANK, ZRO__CALL_LOAD);
}
