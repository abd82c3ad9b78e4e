/* Adding parameter groups, at creation and later.
 *
 * Everything is checked and all memory is taken before anything counts.  With a group of ranks every path leads to the votes,
 * so that all ranks add the groups or none does: memory can run out on one rank alone, and were that rank to return at once,
 * the others would wait for it. */
#include <string.h>

#include "base/dtype.h"
#include "base/param.h"
#include "base/status.h"
#include "group/group.h"
#include "optim/values.h"
#include "zero/optim.h"

/* ---- checks ---- */

static zro_param *param_of(const zro_param_group *group, size_t i)
{
    return &group->params[group->index != NULL ? group->index[i] : i];
}

static zro_status check_type(const zro_rule *rule, const zro_param *p, size_t index)
{
    zro_dtype grad = p->grad_dtype == ZRO_SAME ? p->dtype : p->grad_dtype;
    char name[ZRO__NAME_BYTES];

    if (!zro__dtype_is_known(p->dtype) || !zro__dtype_is_known(grad))
        return zro__fail(ZRO_ERR_INVALID, "parameter %s: %s = %d is no element type", zro__param_name(p->name, index, name),
                         zro__dtype_is_known(p->dtype) ? "grad_dtype" : "dtype",
                         (int)(zro__dtype_is_known(p->dtype) ? grad : p->dtype));
    if (rule == NULL)
        return ZRO_OK;
    if (!zro__dtype_is_float(p->dtype) || !zro__dtype_is_float(grad))
        return zro__fail(ZRO_ERR_UNSUPPORTED, "parameter %s: %s = %s, must be f32, f64, bf16 or f16",
                         zro__param_name(p->name, index, name), zro__dtype_is_float(p->dtype) ? "grad_dtype" : "dtype",
                         zro_dtype_name(zro__dtype_is_float(p->dtype) ? grad : p->dtype));
    if ((p->dtype == ZRO_F64 ? rule->f64 : rule->f32) == NULL)
        return zro__fail(ZRO_ERR_UNSUPPORTED, "parameter %s: rule %s has no loop for %s", zro__param_name(p->name, index, name),
                         rule->name, zro_dtype_name(p->dtype));
    return ZRO_OK;
}

/* The number-th group, whose parameters begin at index `first`; *name_bytes becomes the length of their names. */
static zro_status check_group(const zro_optim *opt, const zro_param_group *group, size_t number, size_t first,
                              size_t *name_bytes)
{
    zro_status st = ZRO_OK;

    if (group->params == NULL)
        return zro__fail(ZRO_ERR_INVALID, "parameter group %zu: params is NULL", number);
    if (group->n == 0)
        return zro__fail(ZRO_ERR_INVALID, "parameter group %zu has no parameters", number);
    if (opt->rule == NULL && (group->config != NULL || group->n_values > 0))
        return zro__fail(ZRO_ERR_INVALID, "parameter group %zu: without a rule there are no values", number);
    for (size_t i = 0; st == ZRO_OK && i < group->n; i++) {
        const zro_param *p = param_of(group, i);

        st = zro__param_check(p, first + i);
        if (st == ZRO_OK)
            st = check_type(opt->rule, p, first + i);
        *name_bytes += p->name != NULL ? strlen(p->name) + 1 : 0;
    }
    return st;
}

/* That none of the first n parameters is there twice or shares memory with another. */
static zro_status check_apart(zro_optim *opt, size_t n)
{
    const zro__entry *params = opt->params;
    zro__numbered *list = zro__alloc_array(opt->account, ZRO__KIND_HANDLE, n, sizeof *list);
    zro_status st;

    if (list == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: comparing %zu parameters", n);
    for (size_t i = 0; i < n; i++)
        list[i] = (zro__numbered){ params[i].param, i, params[i].count * zro_dtype_bytes(params[i].dtype) };
    st = zro__params_check_apart(list, n);
    zro__free(list);
    return st;
}

/* ---- parameters ---- */

/* Room for n entries, where the list is or, grown, elsewhere. */
static zro_status reserve(zro_optim *opt, size_t n)
{
    size_t wanted = n > 2 * opt->n_room ? n : 2 * opt->n_room;
    zro__entry *more;

    if (n <= opt->n_room)
        return ZRO_OK;
    more = zro__alloc_array(opt->account, ZRO__KIND_HANDLE, wanted, sizeof *more);
    if (more == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a list of %zu parameters", wanted);
    if (opt->n_params > 0)
        memcpy(more, opt->params, opt->n_params * sizeof *more);
    zro__free(opt->params);
    opt->params = more;
    opt->n_room = wanted;
    return ZRO_OK;
}

/* Appends a group's parameters, with copies of their names, which have so many bytes. */
static zro_status append(zro_optim *opt, const zro_param_group *group, size_t bytes)
{
    zro__names *copies;
    char *at;
    zro_status st = reserve(opt, opt->n_params + group->n);

    if (st != ZRO_OK)
        return st;
    copies = zro__alloc(opt->account, ZRO__KIND_HANDLE, sizeof *copies + bytes);
    if (copies == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: names of parameters");
    copies->next = opt->names;
    opt->names = copies;
    at = copies->text;
    for (size_t i = 0; i < group->n; i++) {
        zro_param *p = param_of(group, i);
        zro__entry *e = &opt->params[opt->n_params++];

        *e = (zro__entry){ .param = p,
                           .count = zro_param_count(p),
                           .block = opt->n_blocks,
                           .name = p->name != NULL ? at : NULL,
                           .dtype = p->dtype,
                           .grad_dtype = p->grad_dtype == ZRO_SAME ? p->dtype : p->grad_dtype,
                           .trains = p->requires_grad != 0 };
        opt->n_blocks += zro__blocks_of(e->count);
        if (p->name != NULL)
            at = stpcpy(at, p->name) + 1;
    }
    return ZRO_OK;
}

/* ---- ranges ---- */

/* All ranges of the parameters [first, end), sorted by parameter and first element. */
static const zro_range *ranges_of(const zro_optim *opt, size_t first, size_t end, size_t *n)
{
    const zro__plan_param *table = zro__plan_table(opt->plan);
    const zro_range *all = NULL;

    *n = 0;
    if (zro_plan_ranges(opt->plan, ZRO_ALL, &all, n) != ZRO_OK)
        return NULL;
    *n = table[end].first_range - table[first].first_range;
    return all + table[first].first_range;
}

/* Gives the engine what this rank owns of a group whose parameters are [first, end). */
static zro_status add_runs(zro_optim *opt, const zro_param_group *group, size_t first, size_t end)
{
    size_t n = 0, n_ranges;
    const zro_range *ranges = ranges_of(opt, first, end, &n_ranges);
    zro__run_of *runs = zro__alloc_array(opt->account, ZRO__KIND_HANDLE, n_ranges, sizeof *runs);
    zro_status st = ZRO_OK;

    if (runs == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a list of %zu parameters", end - first);
    for (size_t i = 0; i < n_ranges; i++) {
        const zro__entry *e = &opt->params[ranges[i].param];

        if (ranges[i].owner == zro__optim_rank(opt))
            runs[n++] = (zro__run_of){
                e->param, ranges[i].param, ranges[i].first, ranges[i].count, e->block + ranges[i].first / ZRO__BLOCK, e->name
            };
    }
    if (opt->rule != NULL)
        st = zro__values_read(opt->rule, group->config == NULL ? opt->defaults : NULL, group->config, group->values,
                              group->n_values, opt->room);
    if (st == ZRO_OK)
        st = zro__update_add(&opt->cycle.update, opt->room, first, runs, n);
    zro__free(runs);
    return st;
}

/* Finds the parameters that have several owners. */
static zro_status find_cut(zro_optim *opt)
{
    const zro__plan_param *table = zro__plan_table(opt->plan);
    size_t n = 0, *cut;

    for (size_t i = 0; i < opt->n_params; i++)
        n += table[i + 1].first_range - table[i].first_range > 1;
    cut = zro__alloc_array(opt->account, ZRO__KIND_HANDLE, n, sizeof *cut);
    if (cut == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a list of %zu parameters", n);
    zro__free(opt->cut);
    opt->cut = cut;
    opt->n_cut = 0;
    for (size_t i = 0; i < opt->n_params; i++)
        if (table[i + 1].first_range - table[i].first_range > 1)
            cut[opt->n_cut++] = i;
    return ZRO_OK;
}

/* ---- where things lie ---- */

/* The parameters from `first` on as they are packed: type and tag together, and there owner after owner. */
static size_t packing_order(const zro_optim *opt, size_t first, zro_param **order, uint8_t *done)
{
    size_t n = 0;

    for (size_t i = first; i < opt->n_params; i++) {
        const zro__entry *like = &opt->params[i];
        const int ranks = done[i - first] ? 0 : zro__optim_ranks(opt);

        for (int r = 0; r < ranks; r++) {
            const zro_range *ranges = NULL;
            size_t n_ranges = 0;

            if (zro_plan_ranges(opt->plan, r, &ranges, &n_ranges) != ZRO_OK)
                n_ranges = 0;
            for (size_t k = 0; k < n_ranges; k++) {
                const zro__entry *e = &opt->params[ranges[k].param];

                if (ranges[k].param < first || ranges[k].first > 0 || e->dtype != like->dtype
                    || e->param->device != like->param->device)
                    continue;
                done[ranges[k].param - first] = 1;
                order[n++] = e->param;
            }
        }
    }
    return n;
}

/* Moves the parameters from `first` on into group memory. */
static zro_status make_views(zro_optim *opt, size_t first, zro__call call)
{
    size_t n = opt->n_params - first;
    zro_param **order = zro__alloc_array(opt->account, ZRO__KIND_HANDLE, n, sizeof(zro_param *));
    uint8_t *done = zro__alloc_array(opt->account, ZRO__KIND_HANDLE, n, sizeof *done);
    zro__views *views = NULL;
    zro_status st = ZRO_OK;

    if (order == NULL || done == NULL)
        st = zro__fail(ZRO_ERR_MEMORY, "out of memory: a list of %zu parameters", n);
    else
        n = packing_order(opt, first, order, done);
    st = zro__views_make(opt->cycle.group, opt->account, order, n, call, st, &views);
    zro__free(order);
    zro__free(done);
    if (st != ZRO_OK)
        return st;
    zro__views_show(views);
    views->next = opt->views;
    opt->views = views;
    return ZRO_OK;
}

/* Lists of what is delivered, for the parameters from `first` on. */
static zro_status make_lots(zro_optim *opt, size_t first, zro__call call)
{
    size_t n;
    const zro_range *ranges = ranges_of(opt, first, opt->n_params, &n);
    zro__owned *owned = zro__alloc_array(opt->account, ZRO__KIND_HANDLE, n, sizeof *owned);
    zro__lots *lots = NULL;
    zro_status st = ZRO_OK;

    if (owned == NULL)
        st = zro__fail(ZRO_ERR_MEMORY, "out of memory: a list of %zu ranges", n);
    for (size_t i = 0; st == ZRO_OK && i < n; i++) {
        zro__entry *e = &opt->params[ranges[i].param];

        e->handed = zro__param_place(e->param) != NULL ? e->param->data : NULL;
        owned[i] = (zro__owned){ e->param, e->name, &ranges[i] };
    }
    if (st == ZRO_OK)
        st = zro__lots_make(opt->cycle.group, opt->account, owned, n, &lots);
    zro__free(owned);
    st = zro__lots_compare(opt->cycle.group, lots, call, st);
    if (st != ZRO_OK) {
        zro__lots_free(lots);
        return st;
    }
    lots->next = opt->cycle.lots;
    opt->cycle.lots = lots;
    return ZRO_OK;
}

zro_status zro__optim_reserve_norms(zro_optim *opt)
{
    size_t n;
    const zro_range *ranges = ranges_of(opt, 0, opt->n_params, &n);

    return zro__norms_reserve(&opt->cycle.norms, opt->cycle.group, opt->account, ranges, n);
}

/* ---- the whole ---- */

/* What there was before. */
typedef struct mark {
    size_t n_params, n_blocks, n_groups;
    zro__names *names;
    zro__views *views;
    zro__lots *lots;
    int planned;
} mark;

static void undo(zro_optim *opt, const mark *m)
{
    zro__cycle *c = &opt->cycle;

    while (c->update.shard.n_groups > m->n_groups)
        zro__update_drop(&c->update);
    while (opt->names != m->names) {
        zro__names *next = opt->names->next;

        zro__free(opt->names);
        opt->names = next;
    }
    if (c->lots != m->lots) {
        c->lots->next = NULL;
        zro__lots_free(c->lots);
        c->lots = m->lots;
    }
    if (opt->views != m->views) {
        opt->views->next = NULL;
        zro__views_undo(opt->views, 1);
        opt->views = m->views;
    }
    if (m->planned)
        zro__plan_undo(opt->plan);
    opt->n_params = m->n_params;
    opt->n_blocks = m->n_blocks;
    while (opt->n_cut > 0 && opt->cut[opt->n_cut - 1] >= opt->n_params)
        opt->n_cut--;
}

/* What this rank can do by itself. */
static __attribute__((noinline)) zro_status add(zro_optim *opt, const zro_param_group *groups, size_t n_groups,
                                                const zro_plan_config *plan, mark *m)
{
    const zro_switch whole = opt->rule == NULL || opt->rule->whole == ZRO_ON ? ZRO_ON : ZRO_OFF;
    zro_status st = ZRO_OK;

    for (size_t k = 0; st == ZRO_OK && k < n_groups; k++) {
        size_t name_bytes = 0;

        st = check_group(opt, &groups[k], m->n_groups + k, opt->n_params, &name_bytes);
        if (st == ZRO_OK)
            st = append(opt, &groups[k], name_bytes);
    }
    if (st == ZRO_OK)
        st = check_apart(opt, opt->n_params);
    if (st != ZRO_OK)
        return st;
    if (opt->plan == NULL)
        return zro__plan_make(opt->account, groups, n_groups, zro__optim_ranks(opt), plan, whole, &opt->plan);
    st = zro__plan_add(opt->plan, groups);
    m->planned = st == ZRO_OK;
    return st;
}

/* What takes all ranks. */
static zro_status settle(zro_optim *opt, size_t first, zro__call call)
{
    zro_status st = zro__enter(opt->cycle.group);

    if (st != ZRO_OK)
        return st;
    if (opt->bucket_views == ZRO_ON)
        st = make_views(opt, first, call);
    if (st == ZRO_OK)
        st = make_lots(opt, first, call);
    if (st == ZRO_OK && zro__cycle_measures(&opt->cycle))
        st = zro__optim_reserve_norms(opt);
    return zro__leave(opt->cycle.group, st);
}

zro_status zro__optim_extend(zro_optim *opt, zro_group *group, const zro_param_group *groups, size_t n_groups,
                             const zro_plan_config *plan, zro__call call, zro_status st)
{
    mark m = { 0 };
    size_t at;

    if (opt != NULL)
        m = (mark){
            opt->n_params, opt->n_blocks, opt->cycle.update.shard.n_groups, opt->names, opt->views, opt->cycle.lots, 0
        };
    if (st == ZRO_OK)
        st = add(opt, groups, n_groups, plan, &m);
    at = m.n_params;
    for (size_t k = 0; st == ZRO_OK && k < n_groups; at += groups[k++].n)
        st = add_runs(opt, &groups[k], at, at + groups[k].n);
    if (st == ZRO_OK)
        st = find_cut(opt);
    if (group != NULL)
        st = zro__optim_compare(opt, group, m.n_params, call, st);
    if (st == ZRO_OK && group != NULL)
        st = settle(opt, m.n_params, call);
    if (st == ZRO_OK && group == NULL && zro__cycle_measures(&opt->cycle))
        st = zro__optim_reserve_norms(opt);
    if (st != ZRO_OK && opt != NULL)
        undo(opt, &m);
    return st;
}
