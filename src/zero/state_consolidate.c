/* Consolidating: a sharded optimizer's state in one piece, on one rank or on all.
 *
 * First every rank learns what there is of each range: which slots have begun, and the single numbers.  From that all compute
 * the same list of arrays, and those who get the state take memory for it.  Then the arrays travel, each once, from where they
 * lie in the shard to where they belong in the state, in batches of a bounded number of parts; who only sends takes no memory
 * for them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/param.h"
#include "base/status.h"
#include "group/group.h"
#include "zero/optim.h"
#include "zero/state.h"
#include "zero/state_move.h"

/* One consolidation on this rank. */
typedef struct gathering {
    zro_optim *opt;
    const zro_range *ranges; /* of all ranks, sorted by parameter and first element */
    size_t n_ranges;
    size_t stride;    /* numbers per record: the bits of slots that exist, then one number per slot of the rule */
    double *record;   /* one record per range */
    zro__part *parts; /* memory for as many parts as there are ranges, and at least for a batch */
    zro__moves moves; /* the arrays under way, which use `parts`, too */
    int to;           /* the rank that gets the state, or ZRO_ALL */
    int gets;         /* this rank gets the state */
    int with_data;    /* the state gets the data of the parameters, too */
    zro__call call;   /* what the program has called */
    zro_state *state; /* NULL if it does not */
    zro__arena arena;
} gathering;

/* ---- records ---- */

static void fill_records(gathering *g)
{
    for (size_t i = 0; i < g->n_ranges; i++) {
        double *record = g->record + i * g->stride;
        zro__shard_group *group = NULL;
        const zro__piece *piece;

        if (g->ranges[i].owner != zro__optim_rank(g->opt))
            continue;
        piece = zro__shard_find(zro__optim_shard(g->opt), g->ranges[i].param, &group);
        record[0] = piece->present;
        for (size_t s = 0; 1 + s < g->stride; s++)
            record[1 + s] = *zro__slot_number(g->opt, group, piece, s);
    }
}

/* Records of one owner that follow each other are one part. */
static zro_status exchange_records(gathering *g)
{
    const size_t bytes = g->n_ranges * g->stride * sizeof *g->record;
    size_t n = 0;
    zro__xfer x;

    for (size_t i = 0; i < g->n_ranges; i++)
        zro__parts_append(g->parts, &n, i * g->stride * sizeof *g->record, g->stride, g->ranges[i].owner);
    x = zro__delivery(g->call, ZRO_F64, g->record, bytes, g->parts, n, g->n_ranges * g->stride);
    return zro__xfer_run(&g->opt->group->ranks, &x);
}

/* Two owners of one parameter differ in number k of their records. */
static zro_status records_differ(const gathering *g, size_t range, size_t k)
{
    const zro_range *r = &g->ranges[range];
    const double *mine = g->record + range * g->stride, *theirs = mine - g->stride;
    char what[120] = "which slots it has";

    if (k > 0)
        snprintf(what, sizeof what, "its %.60s (%g and %g)", g->opt->rule->slots[k - 1].name, theirs[k], mine[k]);
    return zro__fail(ZRO_ERR_STATE,
                     "%s: rank %d and rank %d, which share parameter %s, disagree about %s; "
                     "its gradient was present on only one of them",
                     zro__call_name(g->call), (int)r[-1].owner, (int)r->owner, ZRO__OPTIM_PARAM_NAME(g->opt, r->param), what);
}

/* The owners of one parameter must have the same slots and numbers, such as step.  All ranks get the same answer. */
static zro_status check_records(const gathering *g)
{
    for (size_t i = 1; i < g->n_ranges; i++) {
        const double *a = g->record + (i - 1) * g->stride, *b = a + g->stride;

        for (size_t k = 0; g->ranges[i - 1].param == g->ranges[i].param && k < g->stride; k++)
            if (a[k] != b[k] && !(isnan(a[k]) && isnan(b[k])))
                return records_differ(g, i, k);
    }
    return ZRO_OK;
}

/* ---- the state ---- */

/* Whether a range has a slot: one of the rule's, or ZRO__MASTER, which comes last in a state. */
static int has_slot(const gathering *g, size_t range, size_t s)
{
    return ((uint32_t)g->record[range * g->stride] >> s & 1) != 0;
}

static zro_status add_group(zro_state *state, const zro_optim *opt, size_t k)
{
    const zro__shard_group *group = zro__optim_shard(opt)->groups[k];
    zro_status st = zro_state_add_group(state, NULL, 0);

    for (size_t v = 0; st == ZRO_OK && opt->rule != NULL && v < opt->rule->n_hypers; v++) {
        const zro_hyper *hyper = &opt->rule->hypers[v];

        st = zro__state_set_value(state, k, hyper->torch != NULL ? hyper->torch : hyper->name, group->values[v], hyper->kind);
    }
    if (st == ZRO_OK && !isnan(group->first_lr))
        st = zro__state_set_value(state, k, "initial_lr", group->first_lr, ZRO_REAL);
    return st;
}

/* `range` is the parameter's first one. */
static zro_status add_param(gathering *g, size_t param, size_t range)
{
    const zro_optim *opt = g->opt;
    const zro__entry *e = &opt->params[param];
    zro_param copy = *e->param;
    zro_status st;

    copy.name = e->name;
    copy.dtype = e->dtype;
    copy.grad_dtype = e->grad_dtype;
    st = zro_state_add_param(g->state, &copy);
    if (st == ZRO_OK && g->with_data)
        st = zro__state_plan_data(g->state, param);
    for (size_t s = 0; st == ZRO_OK && s <= ZRO__MASTER; s++)
        if (has_slot(g, range, s))
            st = zro__state_plan_slot(g->state, param, zro__slot_name(opt, s), zro__slot_type(opt, s, e->dtype),
                                      zro__slot_is_array(opt, s) ? e->count : 1);
    return st;
}

/* Everything but the arrays. */
static zro_status make_state(gathering *g)
{
    const zro__updater *u = &g->opt->updater;
    const zro_progress progress = { .steps = u->n_steps,
                                    .scale = u->scales == ZRO_ON ? (double)u->scaler.scale : 0,
                                    .growth_tracker = u->scaler.tracker,
                                    .n_skipped = u->n_skipped };
    const zro__plan_param *params = zro__plan_table(g->opt->plan);
    size_t i = 0;
    zro_status st = zro_state_create(g->opt->rule != NULL ? g->opt->rule->name : "", &g->state);

    if (st == ZRO_OK)
        st = zro_state_set_progress(g->state, &progress);
    for (size_t k = 0; st == ZRO_OK && k < zro_optim_groups(g->opt); k++) {
        st = add_group(g->state, g->opt, k);
        for (; st == ZRO_OK && i < g->opt->n_params && params[i].group == k; i++)
            st = add_param(g, i, params[i].first_range);
    }
    return st == ZRO_OK ? zro__state_take(g->state) : st;
}

/* ---- arrays ---- */

/* One array of one range, of a slot or of the parameter's data: from its owner to the state.  All ranks may have the data; the
 * owner's is what the last step has made. */
static zro_status gather_array(gathering *g, const zro_range *r, int s, char *to)
{
    const zro_dtype dtype = g->opt->params[r->param].dtype;
    const size_t size = zro_dtype_bytes(s == ZRO__DATA_SLOT ? dtype : zro__slot_type(g->opt, (size_t)s, dtype));

    return zro__move(&g->moves, r->owner, r->owner == zro__optim_rank(g->opt) ? zro__part_of(g->opt, r, s) : NULL,
                     to != NULL ? to + r->first * size : NULL, r->count * size);
}

static zro_status gather_range(gathering *g, size_t range)
{
    const zro_range *r = &g->ranges[range];
    zro_status st = ZRO_OK;
    size_t i = 0;

    for (size_t s = 0; st == ZRO_OK && s <= ZRO__MASTER; s++) {
        char *data;

        if (!has_slot(g, range, s))
            continue;
        data = g->gets ? zro__state_slot_at(g->state, r->param, i++)->data : NULL;
        if (zro__slot_is_array(g->opt, s))
            st = gather_array(g, r, (int)s, data);
        else if (g->gets)
            memcpy(data, &g->record[range * g->stride + 1 + s], sizeof(double));
    }
    if (st == ZRO_OK && g->with_data)
        st = gather_array(g, r, ZRO__DATA_SLOT, g->gets ? zro__state_data(g->state, r->param)->data : NULL);
    return st;
}

/* ---- the whole ---- */

static zro_status start(gathering *g)
{
    zro_status st;

    g->ranges = zro__plan_ranges(g->opt->plan, 0, g->opt->n_params, &g->n_ranges);
    g->stride = 1 + (g->opt->rule != NULL ? g->opt->rule->n_slots : 0);
    st = zro__arena_arrays(
        &g->arena, g->opt->account, "a list of what there is to consolidate",
        (const zro__array[]){ { &g->record, g->n_ranges, g->stride * sizeof *g->record },
                              { &g->parts, g->n_ranges > ZRO__MOVE_BATCH ? g->n_ranges : ZRO__MOVE_BATCH, sizeof *g->parts } },
        2);
    g->moves = (zro__moves){ .opt = g->opt, .call = g->call, .parts = g->parts, .to = g->to };
    return st;
}

/* Every rank learns that the others are in this call, with the same `to`. */
static zro_status agree(const gathering *g, zro_status st)
{
    char to[20], text[60];
    uint64_t number = 0;

    snprintf(to, sizeof to, g->to == ZRO_ALL ? "ZRO_ALL" : "%d", g->to);
    snprintf(text, sizeof text, "to = %s%s", to, g->with_data ? ", with data" : "");
    return zro__cycle_is_shared(g->opt->cycle)
               ? zro__agree(&g->opt->group->ranks.board, g->call, "the arguments of optim_consolidate", text, &number, st)
               : st;
}

/* Inside the lane. */
static zro_status consolidate(gathering *g, zro_status st)
{
    if (st == ZRO_OK)
        st = start(g);
    st = agree(g, st);
    if (st != ZRO_OK)
        return st;
    fill_records(g);
    if (zro__cycle_is_shared(g->opt->cycle))
        st = exchange_records(g);
    if (st == ZRO_OK)
        st = check_records(g);
    if (st != ZRO_OK)
        return st;
    st = zro__cycle_vote(g->opt->cycle, g->call, g->gets ? make_state(g) : ZRO_OK);
    for (size_t i = 0; st == ZRO_OK && i < g->n_ranges; i++)
        st = gather_range(g, i);
    return st == ZRO_OK ? zro__moves_send(&g->moves) : st;
}

zro_status zro__optim_gather_to(zro_optim *opt, zro__call call, int to, int with_data, zro_state **out)
{
    gathering g = { .opt = opt, .call = call, .to = to, .with_data = with_data };
    zro_status st = zro__optim_enter(opt, ZRO__TURN_OF_ALL), mine = ZRO_OK;
    uint64_t begun;

    if (out != NULL)
        *out = NULL;
    if (st != ZRO_OK)
        return st;
    begun = zro__trace_begin(zro__trace_of(opt->group));
    if (out == NULL)
        mine = zro__fail(ZRO_ERR_INVALID, "optim_consolidate: out is NULL");
    else if (opt->group != NULL && to != ZRO_ALL && (to < 0 || to >= zro__optim_ranks(opt)))
        mine = zro__fail(ZRO_ERR_INVALID, "optim_consolidate: to = %d, must be one of %d ranks or ZRO_ALL", to,
                         zro__optim_ranks(opt));
    if (mine == ZRO_OK && with_data)
        mine = zro__optim_check_data(opt, 0, opt->n_params);
    g.gets = !zro__cycle_is_shared(opt->cycle) || to == ZRO_ALL || to == zro__optim_rank(opt);
    st = zro__optim_leave(opt, consolidate(&g, mine));
    zro__trace_end(zro__trace_of(opt->group), begun, "consolidate", -1, 0);
    zro__arena_free(&g.arena);
    if (st != ZRO_OK) {
        zro_state_destroy(g.state);
        return st;
    }
    *out = g.state;
    return ZRO_OK;
}

zro_status zro_optim_consolidate(zro_optim *opt, int to, zro_state **out)
{
    return zro__optim_gather_to(opt, ZRO__CALL_CONSOLIDATE, to, 0, out);
}

zro_status zro_optim_consolidate_with_data(zro_optim *opt, int to, zro_state **out)
{
    return zro__optim_gather_to(opt, ZRO__CALL_CONSOLIDATE, to, 1, out);
}
