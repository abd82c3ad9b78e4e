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
#include "base/point.h"
#include "base/status.h"
#include "group/group.h"
#include "zero/optim.h"
#include "zero/state.h"

enum { BATCH = 4096 }; /* parts that travel in one transfer */

/* One consolidation on this rank. */
typedef struct gathering {
    zro_optim *opt;
    const zro_range *ranges; /* of everybody, by parameter and first element */
    size_t n_ranges;
    size_t stride;  /* numbers of a record: bits of slots that have begun, then a number for each slot */
    double *record; /* by range */
    zro__part *parts;
    size_t n_parts, bytes; /* of the batch */
    uint64_t n_batches;
    int to, gets;     /* this rank gets the state */
    zro_state *state; /* if it gets one */
} gathering;

static int is_shared(const zro_optim *opt)
{
    return zro__optim_ranks(opt) > 1;
}

static size_t n_slots_of(const zro_optim *opt)
{
    return opt->rule != NULL ? opt->rule->n_slots : 0;
}

/* ---- records ---- */

static void fill_records(gathering *g)
{
    const size_t n_slots = n_slots_of(g->opt);

    for (size_t i = 0; i < g->n_ranges; i++) {
        double *record = g->record + i * g->stride;
        zro__part_group *group = NULL;
        const zro__piece *piece;

        if (g->ranges[i].owner != zro__optim_rank(g->opt))
            continue;
        piece = zro__shard_find(&g->opt->cycle.update.shard, g->ranges[i].param, &group);
        record[0] = piece->present;
        for (size_t s = 0; s < n_slots; s++)
            record[1 + s] = group->numbers[(size_t)(piece - group->pieces) * n_slots + s];
    }
}

/* Runs of ranges with one owner are one part. */
static zro_status exchange_records(gathering *g)
{
    const size_t bytes = g->n_ranges * g->stride * sizeof *g->record;
    zro__xfer x = { .call = ZRO__CALL_CONSOLIDATE,
                    .root = -1,
                    .count = g->n_ranges * g->stride,
                    .in_type = ZRO_F64,
                    .out_type = ZRO_F64,
                    .in = g->record,
                    .out = g->record,
                    .in_bytes = bytes,
                    .out_bytes = bytes,
                    .to = ZRO__TO_ALL };
    zro_status st = ZRO_OK;
    size_t n = 0;

    x.parts = g->parts;
    for (size_t i = 0; st == ZRO_OK && i < g->n_ranges; i++) {
        size_t at = i * g->stride * sizeof *g->record;

        if (n == 0 || g->parts[n - 1].owner != g->ranges[i].owner)
            g->parts[n++] = (zro__part){ at, at, 0, g->ranges[i].owner, g->ranges[i].owner };
        g->parts[n - 1].count += g->stride;
        if (n < BATCH && i + 1 < g->n_ranges)
            continue;
        x.n_parts = n;
        x.tag = i;
        st = zro__xfer_run(g->opt->cycle.group, &x);
        n = 0;
    }
    return st;
}

static int same_number(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* Owners of one parameter have stepped it equally often, and so on.  The same answer on all ranks. */
static zro_status check_records(const gathering *g)
{
    char name[ZRO__NAME_BYTES];

    for (size_t i = 1; i < g->n_ranges; i++) {
        const double *a = g->record + (i - 1) * g->stride, *b = a + g->stride;
        const size_t param = g->ranges[i].param;

        for (size_t k = 0; g->ranges[i - 1].param == param && k < g->stride; k++)
            if (!same_number(a[k], b[k]))
                return zro__fail(
                    ZRO_ERR_STATE,
                    "consolidate: rank %d and rank %d, which share parameter %s, disagree about its %s (%g and %g): "
                    "its gradient was present on one of them alone",
                    (int)g->ranges[i - 1].owner, (int)g->ranges[i].owner,
                    zro__param_name(g->opt->params[param].name, param, name),
                    k == 0 ? "slots" : g->opt->rule->slots[k - 1].name, a[k], b[k]);
    }
    return ZRO_OK;
}

/* ---- the state ---- */

/* Whether a range has a slot (or ZRO__MASTER) of this kind. */
static int has_slot(const gathering *g, size_t range, size_t s)
{
    return ((uint32_t)g->record[range * g->stride] >> s & 1) != 0;
}

static int is_array(const zro_optim *opt, size_t s)
{
    return s == ZRO__MASTER || opt->rule->slots[s].kind == ZRO_SLOT_ARRAY;
}

static const char *slot_name(const zro_optim *opt, size_t s)
{
    return s == ZRO__MASTER ? "master" : opt->rule->slots[s].name;
}

static zro_dtype slot_type(const zro_optim *opt, size_t param, size_t s)
{
    if (!is_array(opt, s))
        return ZRO_F64;
    return s != ZRO__MASTER && opt->params[param].dtype == ZRO_F64 ? ZRO_F64 : ZRO_F32;
}

/* The slots in the order of the state: the rule's, then the master. */
static size_t next_slot(const zro_optim *opt, size_t s)
{
    return s + 1 < n_slots_of(opt) ? s + 1 : s == ZRO__MASTER ? SIZE_MAX : (size_t)ZRO__MASTER;
}

static size_t first_slot(const zro_optim *opt)
{
    return n_slots_of(opt) > 0 ? 0 : (size_t)ZRO__MASTER;
}

static zro_status add_group(zro_state *state, const zro_optim *opt, size_t k)
{
    const zro__part_group *group = opt->cycle.update.shard.groups[k];
    zro_status st = zro_state_add_group(state, NULL, 0);

    for (size_t v = 0; st == ZRO_OK && opt->rule != NULL && v < opt->rule->n_hypers; v++) {
        const zro_hyper *hyper = &opt->rule->hypers[v];

        st = zro__state_set_value(state, k, hyper->torch != NULL ? hyper->torch : hyper->name, group->values[v], hyper->kind);
    }
    if (st == ZRO_OK && !isnan(group->first_lr))
        st = zro__state_set_value(state, k, "initial_lr", group->first_lr, ZRO_REAL);
    return st;
}

static zro_status add_param(gathering *g, size_t range)
{
    const zro_optim *opt = g->opt;
    const size_t param = g->ranges[range].param;
    const zro__entry *e = &opt->params[param];
    zro_param copy = *e->param;
    zro_status st;

    copy.name = e->name;
    copy.dtype = e->dtype;
    copy.grad_dtype = e->grad_dtype;
    st = zro_state_add_param(g->state, &copy);
    for (size_t s = first_slot(opt); st == ZRO_OK && s != SIZE_MAX; s = next_slot(opt, s))
        if (has_slot(g, range, s))
            st = zro__state_plan_slot(g->state, param, slot_name(opt, s), slot_type(opt, param, s),
                                      is_array(opt, s) ? e->count : 1);
    return st;
}

/* Everything but the arrays. */
static zro_status make_state(gathering *g)
{
    const zro__cycle *c = &g->opt->cycle;
    const zro_progress progress = { .steps = c->n_steps,
                                    .scale = c->scales == ZRO_ON ? (double)c->scaler.scale : 0,
                                    .growth_tracker = c->scaler.tracker };
    size_t group = 0;
    zro_status st = zro_state_create(g->opt->rule != NULL ? g->opt->rule->name : "", &g->state);

    if (st == ZRO_OK)
        st = zro_state_set_progress(g->state, &progress);
    if (st == ZRO_OK)
        st = add_group(g->state, g->opt, 0);
    for (size_t i = 0; st == ZRO_OK && i < g->n_ranges; i++) {
        if (i > 0 && g->ranges[i].param == g->ranges[i - 1].param)
            continue;
        while (st == ZRO_OK && group < g->ranges[i].group)
            st = add_group(g->state, g->opt, ++group);
        if (st == ZRO_OK)
            st = add_param(g, i);
    }
    return st == ZRO_OK ? zro__state_take(g->state) : st;
}

/* ---- arrays ---- */

static zro_status send_batch(gathering *g)
{
    zro__xfer x = { .call = ZRO__CALL_CONSOLIDATE,
                    .root = -1,
                    .count = g->bytes,
                    .tag = g->n_batches++,
                    .parts = g->parts,
                    .n_parts = g->n_parts,
                    .in_type = ZRO_U8,
                    .out_type = ZRO_U8,
                    .to = g->to == ZRO_ALL ? ZRO__TO_ALL : g->to,
                    .scattered = 1,
                    .apart = 1 };
    const int rank = zro__optim_rank(g->opt);
    uintptr_t in = UINTPTR_MAX, out = UINTPTR_MAX, in_end = 0, out_end = 0;

    (void)ZRO__POINT("consolidate.batch");
    for (size_t i = 0; i < g->n_parts; i++) { /* addresses, until the lowest is known */
        const zro__part *p = &g->parts[i];

        if (p->owner == rank) {
            in = p->in_at < in ? p->in_at : in;
            in_end = p->in_at + p->count > in_end ? p->in_at + p->count : in_end;
        }
        out = p->out_at < out ? p->out_at : out;
        out_end = p->out_at + p->count > out_end ? p->out_at + p->count : out_end;
    }
    for (size_t i = 0; i < g->n_parts; i++) {
        g->parts[i].in_at -= g->parts[i].owner == rank ? in : 0;
        g->parts[i].out_at -= g->gets ? out : 0;
    }
    if (in_end > 0) {
        x.in = (const void *)in;
        x.in_bytes = in_end - in;
    }
    if (g->gets) {
        x.out = (void *)out;
        x.out_bytes = out_end - out;
    }
    g->n_parts = 0;
    g->bytes = 0;
    return zro__xfer_run(g->opt->cycle.group, &x);
}

/* One array of one range: from the owner's shard to the state. */
static zro_status gather_array(gathering *g, size_t range, size_t s, char *to)
{
    const zro_range *r = &g->ranges[range];
    const size_t size = zro_dtype_bytes(slot_type(g->opt, r->param, s)), bytes = r->count * size;
    zro__part_group *group = NULL;
    const zro__piece *piece =
        r->owner == zro__optim_rank(g->opt) ? zro__shard_find(&g->opt->cycle.update.shard, r->param, &group) : NULL;
    char *from = piece != NULL ? zro__shard_slot(group, piece, s) : NULL;

    to = to != NULL ? to + r->first * size : NULL;
    if (bytes == 0)
        return ZRO_OK;
    if (!is_shared(g->opt)) {
        memcpy(to, from, bytes);
        return ZRO_OK;
    }
    g->parts[g->n_parts++] = (zro__part){ (uintptr_t)from, (uintptr_t)to, bytes, r->owner, r->owner };
    g->bytes += bytes;
    return g->n_parts == BATCH ? send_batch(g) : ZRO_OK;
}

static zro_status gather_range(gathering *g, size_t range)
{
    const size_t param = g->ranges[range].param;
    zro_status st = ZRO_OK;
    size_t i = 0;

    for (size_t s = first_slot(g->opt); st == ZRO_OK && s != SIZE_MAX; s = next_slot(g->opt, s)) {
        char *data;

        if (!has_slot(g, range, s))
            continue;
        data = g->gets ? zro__state_data(g->state, param, i++) : NULL;
        if (is_array(g->opt, s))
            st = gather_array(g, range, s, data);
        else if (g->gets)
            memcpy(data, &g->record[range * g->stride + 1 + s], sizeof(double));
    }
    return st;
}

/* ---- the whole ---- */

static zro_status start(gathering *g)
{
    zro_status st = zro_plan_ranges(g->opt->plan, ZRO_ALL, &g->ranges, &g->n_ranges);

    if (st != ZRO_OK)
        return st;
    g->stride = 1 + n_slots_of(g->opt);
    g->record = zro__alloc_array(g->opt->account, ZRO__KIND_HANDLE, g->n_ranges, g->stride * sizeof *g->record);
    g->parts = zro__alloc_array(g->opt->account, ZRO__KIND_HANDLE, BATCH, sizeof *g->parts);
    if (g->record == NULL || g->parts == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "consolidate: out of memory: a list of %zu ranges", g->n_ranges);
    return ZRO_OK;
}

static zro_status vote(const gathering *g, zro_status st)
{
    return is_shared(g->opt) ? zro__vote(&g->opt->cycle.group->board, ZRO__CALL_CONSOLIDATE, st) : st;
}

/* All ranks know that the others are here, and for whom. */
static zro_status agree(const gathering *g, zro_status st)
{
    char text[40];
    uint64_t number = 0;

    snprintf(text, sizeof text, "to = %d", g->to);
    return is_shared(g->opt) ? zro__agree(&g->opt->cycle.group->board, ZRO__CALL_CONSOLIDATE,
                                          "the arguments of optim_consolidate", text, &number, st)
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
    if (is_shared(g->opt))
        st = exchange_records(g);
    if (st == ZRO_OK)
        st = check_records(g);
    if (st != ZRO_OK)
        return st;
    st = vote(g, g->gets ? make_state(g) : ZRO_OK);
    for (size_t i = 0; st == ZRO_OK && i < g->n_ranges; i++)
        st = gather_range(g, i);
    return st == ZRO_OK && g->n_parts > 0 ? send_batch(g) : st;
}

zro_status zro_optim_consolidate(zro_optim *opt, int to, zro_state **out)
{
    gathering g = { .opt = opt, .to = to };
    zro_status st = zro__optim_enter(opt), mine = ZRO_OK;

    if (out != NULL)
        *out = NULL;
    if (st != ZRO_OK)
        return st;
    if (out == NULL)
        mine = zro__fail(ZRO_ERR_INVALID, "optim_consolidate: out is NULL");
    else if (opt->cycle.group != NULL && to != ZRO_ALL && (to < 0 || to >= zro__optim_ranks(opt)))
        mine = zro__fail(ZRO_ERR_INVALID, "optim_consolidate: to = %d, must be one of %d ranks or ZRO_ALL", to,
                         zro__optim_ranks(opt));
    g.gets = !is_shared(opt) || to == ZRO_ALL || to == zro__optim_rank(opt);
    st = zro__optim_leave(opt, consolidate(&g, mine));
    zro__free(g.record);
    zro__free(g.parts);
    if (st != ZRO_OK) {
        zro_state_destroy(g.state);
        return st;
    }
    *out = g.state;
    return ZRO_OK;
}
