/* Adding parameter groups, at creation and later.
 *
 * Everything is checked and all memory is taken before anything counts.  With a group of ranks every path leads to the votes,
 * so that all ranks add the groups or none does: memory can run out on one rank alone, and were that rank to return at once,
 * the others would wait for it. */
#include <stdint.h>
#include <string.h>

#include "base/dtype.h"
#include "base/log.h"
#include "base/param.h"
#include "base/status.h"
#include "group/group.h"
#include "optim/values.h"
#include "zero/optim.h"

/* ---- checks ---- */

static zro_status check_type(const zro_rule *rule, const zro_param *p, size_t index)
{
    const zro_dtype grad = zro__param_grad_type(p);

    if (rule == NULL)
        return ZRO_OK;
    if (!zro__dtype_is_float(p->dtype) || !zro__dtype_is_float(grad))
        return zro__param_fail(ZRO_ERR_UNSUPPORTED, p->name, index, "%s = %s, must be f32, f64, bf16 or f16",
                               zro__dtype_is_float(p->dtype) ? "grad_dtype" : "dtype",
                               zro_dtype_name(zro__dtype_is_float(p->dtype) ? grad : p->dtype));
    if ((p->dtype == ZRO_F64 ? rule->f64 : rule->f32) == NULL)
        return zro__param_fail(ZRO_ERR_UNSUPPORTED, p->name, index, "rule %s has no loop for %s", rule->name,
                               zro_dtype_name(p->dtype));
    return ZRO_OK;
}

/* What is doubtful about the parameters that were added, and said when all ranks have taken them. */
typedef struct doubts {
    size_t gradients[2]; /* two parameters whose gradients share memory; equal: there are none */
    size_t frozen;       /* a parameter that has a gradient and is not trained, as in zeroed memory; SIZE_MAX: there is none */
} doubts;

/* Gradients may be moved and their presence may change, so this is a doubt and no error.  Only those that count as present are
 * looked at: a program may use one array for many parameters, one after another. */
static void find_doubts(const zro_optim *opt, size_t first, zro__numbered *list, doubts *d)
{
    const zro__numbered *found;
    size_t n = 0, is_new = 0;

    for (size_t i = 0; i < opt->n_params; i++) {
        const zro__entry *e = &opt->params[i];

        if (i >= first && i < d->frozen && !e->trains && e->param->grad_present && e->param->grad_dtype != ZRO_SAME)
            d->frozen = i; /* the initializer sets ZRO_SAME: this one was not begun with it, and nobody froze it on purpose */
        if (e->param->grad == NULL || !zro__param_has_grad(e->param))
            continue;
        is_new |= i >= first;
        list[n++] = (zro__numbered){ e->param, i, e->count * zro_dtype_bytes(e->grad_dtype), e->param->grad };
    }
    found = is_new ? zro__params_find_shared(list, n) : NULL;
    if (found != NULL && (found[0].index >= first || found[1].index >= first)) {
        d->gradients[0] = found[0].index;
        d->gradients[1] = found[1].index;
    }
}

/* Checks that no parameter is there twice or shares memory with another. */
static zro_status check_apart(zro_optim *opt, size_t first, doubts *d)
{
    const zro__entry *params = opt->params;
    const size_t n = opt->n_params;
    zro__numbered *list = zro__alloc_array(opt->account, ZRO__KIND_HANDLE, n, sizeof *list);
    zro_status st;

    if (list == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: comparing %zu parameters", n);
    for (size_t i = 0; i < n; i++)
        list[i] =
            (zro__numbered){ params[i].param, i, params[i].count * zro_dtype_bytes(params[i].dtype), params[i].param->data };
    st = zro__params_check_apart(list, n);
    if (st == ZRO_OK)
        find_doubts(opt, first, list, d);
    zro__free(list);
    return st;
}

/* ---- parameters ---- */

/* Appends a group's parameters, which the plan has already: it has checked their number, shapes and types, and copied their
 * names. */
static zro_status append(zro_optim *opt, const zro_param_group *group, size_t number)
{
    zro_status st = ZRO_OK;

    if (opt->rule == NULL && (group->config != NULL || group->n_values > 0))
        return zro__fail(ZRO_ERR_INVALID, "parameter group %zu: without a rule there are no values", number);
    for (size_t i = 0; st == ZRO_OK && i < group->n; i++) {
        const zro__plan_param *planned = &zro__plan_table(opt->plan)[opt->n_params];
        zro_param *p = zro__param_of(group, i);

        st = zro__param_check(p, opt->n_params);
        if (st == ZRO_OK)
            st = check_type(opt->rule, p, opt->n_params);
        if (st == ZRO_OK && opt->attaches && zro__cycle_index(opt->cycle, p) == SIZE_MAX)
            st = zro__param_fail(ZRO_ERR_INVALID, planned->name, opt->n_params,
                                 "it is not among the parameters of the ddp that the optimizer is attached to");
        if (st != ZRO_OK)
            return st;
        opt->params[opt->n_params++] = (zro__entry){ .param = p,
                                                     .count = planned->count,
                                                     .block = opt->n_blocks,
                                                     .name = planned->name,
                                                     .dtype = p->dtype,
                                                     .grad_dtype = zro__param_grad_type(p),
                                                     .trains = p->requires_grad != 0 };
        opt->n_blocks += zro__blocks_of(planned->count);
    }
    return ZRO_OK;
}

/* Gives the engine what this rank owns of a group whose parameters are [first, end). */
static zro_status add_runs(zro_optim *opt, const zro_param_group *group, size_t first, size_t end)
{
    size_t n = 0, n_ranges;
    const zro_range *ranges = zro__plan_ranges(opt->plan, first, end, &n_ranges);
    zro__owned_range *runs = zro__alloc_array(opt->account, ZRO__KIND_HANDLE, n_ranges, sizeof *runs);
    zro_status st = ZRO_OK;

    if (runs == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a list of %zu parameters", end - first);
    for (size_t i = 0; i < n_ranges; i++) {
        const zro__entry *e = &opt->params[ranges[i].param];

        if (ranges[i].owner == zro__optim_rank(opt))
            runs[n++] = (zro__owned_range){
                e->param, ranges[i].param, ranges[i].first, ranges[i].count, e->block + ranges[i].first / ZRO__BLOCK, e->name
            };
    }
    if (opt->rule != NULL)
        st = zro__values_read(opt->rule, group->config == NULL ? opt->defaults : NULL, group->config, group->values,
                              group->n_values, opt->scratch);
    if (st == ZRO_OK)
        st = zro__update_add(&opt->updater.update, opt->scratch, first, runs, n);
    zro__free(runs);
    return st;
}

/* ---- where things lie ---- */

/* The parameters from `first` on in the order in which views pack them: those of one type and device together, sorted by
 * owner. */
static size_t packing_order(const zro_optim *opt, size_t first, zro_param **order, uint8_t *done)
{
    size_t n = 0;

    for (size_t i = first; i < opt->n_params; i++) {
        const zro__entry *like = &opt->params[i];
        const int ranks = done[i - first] ? 0 : zro__optim_ranks(opt);

        for (int r = 0; r < ranks; r++) {
            size_t n_ranges;
            const zro_range *ranges = zro__plan_owned(opt->plan, r, &n_ranges);

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
    zro_param **order = NULL;
    uint8_t *done;
    zro__arena arena = { 0 };
    zro__views *views = NULL;
    zro_status st = zro__arena_arrays(&arena, opt->account, "a list of parameters",
                                      (const zro__array[]){ { &order, n, sizeof *order }, { &done, n, sizeof *done } }, 2);

    if (st == ZRO_OK)
        n = packing_order(opt, first, order, done);
    st = zro__views_make(opt->group, opt->account, ZRO__DATA, order, n, call, st, &views);
    zro__arena_free(&arena);
    if (st != ZRO_OK)
        return st;
    views->next = opt->views;
    opt->views = views;
    return ZRO_OK;
}

/* Makes one list of what travels, from one array of each parameter to one of each, and puts it before `head`. */
static zro_status make_list(zro_optim *opt, zro__side from, zro__side to, const zro__owned *owned, size_t n, zro__call call,
                            zro_status st, zro__batches **head)
{
    zro__batches *batches = NULL;

    if (st == ZRO_OK)
        st = zro__batches_make(opt->group, opt->account, from, to, owned, n, &batches);
    st = zro__batches_compare(opt->group, batches, call, st);
    if (st != ZRO_OK) {
        zro__batches_free(batches);
        return st;
    }
    batches->next = *head;
    *head = batches;
    return ZRO_OK;
}

/* Finds out, for all ranks alike, whether a step may be one pass: that does not pay where gradients go to other machines, which can
 * be done while backward goes on. */
static zro_status find_merging(zro_optim *opt, zro__call call)
{
    uint64_t can = opt->group->ranks.one_machine && opt->group->ranks.fast == ZRO_ON;
    int same = 0;
    zro_status st = zro__is_same(&opt->group->ranks.board, call, can, &same);

    opt->updater.merges = same && can;
    return st;
}

/* Makes the lists of what a step delivers and, in an attached optimizer, of what it averages, for the parameters from `first` on. */
static zro_status make_lists(zro_optim *opt, size_t first, zro__call call)
{
    size_t n;
    const zro_range *ranges = zro__plan_ranges(opt->plan, first, opt->n_params, &n);
    zro__owned *owned = zro__alloc_array(opt->account, ZRO__KIND_HANDLE, n, sizeof *owned);
    zro_status st = ZRO_OK;

    if (owned == NULL)
        st = zro__fail(ZRO_ERR_MEMORY, "out of memory: a list of %zu ranges", n);
    for (size_t i = 0; st == ZRO_OK && i < n; i++) {
        zro__entry *e = &opt->params[ranges[i].param];

        e->handed = zro__param_place(e->param) != NULL ? e->param->data : NULL;
        owned[i] = (zro__owned){ e->param, e->name, &ranges[i] };
    }
    st = make_list(opt, ZRO__DATA, ZRO__DATA, owned, n, call, st, &opt->updater.publish);
    if (st == ZRO_OK && opt->attaches) {
        st = make_list(opt, ZRO__GRADS, ZRO__GRADS, owned, n, call, st, &opt->updater.average);
        if (st == ZRO_OK)
            st = make_list(opt, ZRO__GRADS, ZRO__DATA, owned, n, call, st, &opt->updater.fused);
        if (st == ZRO_OK)
            st = find_merging(opt, call);
        if (st == ZRO_OK)
            zro__cycle_attach(opt->cycle, &opt->updater);
    }
    zro__free(owned);
    return st;
}

zro_status zro__optim_reserve_norms(zro_optim *opt)
{
    size_t n;
    const zro_range *ranges = zro__plan_ranges(opt->plan, 0, opt->n_params, &n);

    return zro__norms_reserve(&opt->updater.norms, opt->group, opt->account, ranges, n);
}

/* ---- the whole ---- */

/* What the handle had before groups were added. */
typedef struct mark {
    size_t n_params, n_blocks, n_groups;
    zro__views *views;
    zro__batches *publish, *average, *fused;
    int planned; /* 1: the plan has the groups that are added */
} mark;

/* Frees the lists that came since. */
static void drop_lists(zro__batches **now, zro__batches *before)
{
    if (*now == before)
        return;
    (*now)->next = NULL;
    zro__batches_free(*now);
    *now = before;
}

static void undo(zro_optim *opt, const mark *m)
{
    zro__shard *shard = zro__optim_shard(opt);

    while (shard->n_groups > m->n_groups)
        zro__shard_drop(shard);
    drop_lists(&opt->updater.publish, m->publish);
    drop_lists(&opt->updater.average, m->average);
    drop_lists(&opt->updater.fused, m->fused);
    if (opt->views != m->views) {
        opt->views->next = NULL;
        zro__views_undo(opt->views, 1);
        opt->views = m->views;
    }
    if (m->planned)
        zro__plan_undo(opt->plan);
    opt->n_params = m->n_params;
    opt->n_blocks = m->n_blocks;
}

/* Which parameters of an optimizer the buckets of its ddp have, while a plan is made. */
typedef struct bucket_lists {
    size_t *number;  /* by parameter of the ddp: its index in the optimizer; SIZE_MAX: it is not there, or has been taken */
    size_t *params;  /* indices in the optimizer, bucket after bucket */
    size_t *lengths; /* of the buckets */
    size_t n_params, n_buckets;
    zro__arena arena;
} bucket_lists;

/* 0 if something is wrong with the groups, which the plan will say better. */
static int number_params(const zro__cycle *c, const zro_param_group *groups, size_t n_groups, bucket_lists *l)
{
    size_t n = 0;

    for (size_t i = 0; i < c->n_params; i++)
        l->number[i] = SIZE_MAX;
    for (size_t k = 0; k < n_groups; k++)
        for (size_t i = 0; i < groups[k].n; i++, n++) {
            const zro_param *p = groups[k].params != NULL ? zro__param_of(&groups[k], i) : NULL;
            const size_t at = p != NULL ? zro__cycle_index(c, p) : SIZE_MAX;

            if (at == SIZE_MAX || l->number[at] != SIZE_MAX)
                return 0;
            l->number[at] = n;
        }
    return n > 0;
}

/* Takes the parameters of a bucket: those of one type and device tag, which is what a bucket of a plan has, at a time. */
static void take_bucket(const zro__cycle *c, const zro__bucket *b, bucket_lists *l)
{
    for (size_t i = 0; i < b->n; i++) {
        const zro_param *first = &c->params[b->params[i]];
        const size_t before = l->n_params;

        for (size_t k = i; k < b->n; k++) {
            const zro_param *p = &c->params[b->params[k]];
            size_t *number = &l->number[b->params[k]];

            if (*number == SIZE_MAX || p->dtype != first->dtype || p->device != first->device)
                continue;
            l->params[l->n_params++] = *number;
            *number = SIZE_MAX;
        }
        if (l->n_params > before)
            l->lengths[l->n_buckets++] = l->n_params - before;
    }
}

/* Where buckets are updated one by one, each of them is cut over the ranks, so that all of them work on it. */
static zro_status plan_by_buckets(zro_optim *opt, const zro_param_group *groups, size_t n_groups, const zro_plan_config *given)
{
    const zro__cycle *c = opt->cycle;
    zro_plan_config config = ZRO_PLAN_CONFIG_INIT;
    bucket_lists l = { 0 };
    zro_status st = zro__arena_arrays(&l.arena, opt->account, "the buckets of a plan",
                                      (const zro__array[]){ { &l.number, c->n_params, sizeof *l.number },
                                                            { &l.params, c->n_params, sizeof *l.params },
                                                            { &l.lengths, c->n_params, sizeof *l.lengths } },
                                      3);

    if (st == ZRO_OK && number_params(c, groups, n_groups, &l)) {
        for (size_t k = 0; k < c->n_buckets; k++)
            take_bucket(c, &c->buckets[k], &l);
        config.partition = ZRO_PARTITION_FLAT;
        config.bucket_params = l.params;
        config.bucket_lengths = l.lengths;
        config.n_buckets = l.n_buckets;
        given = &config;
    }
    if (st == ZRO_OK)
        st = zro__plan_make(opt->account, groups, n_groups, zro__optim_ranks(opt), given, ZRO_OFF, &opt->plan);
    zro__arena_free(&l.arena);
    return st;
}

/* Whether an optimizer takes the buckets of its ddp. */
static int takes_buckets(const zro_optim *opt, const zro_plan_config *plan, zro_switch whole)
{
    return opt->attaches && zro__updater_overlaps(&opt->updater) && whole == ZRO_OFF
           && (plan == NULL
               || ((plan->partition == ZRO_PARTITION_AUTO || plan->partition == ZRO_PARTITION_FLAT) && plan->n_buckets == 0));
}

/* The part that this rank does by itself.  The plan comes first: it checks what can be checked without an optimizer. */
static __attribute__((noinline)) zro_status add(zro_optim *opt, const zro_param_group *groups, size_t n_groups,
                                                const zro_plan_config *plan, mark *m, doubts *d)
{
    const zro_switch whole = opt->rule == NULL || opt->rule->whole == ZRO_ON ? ZRO_ON : ZRO_OFF;
    zro_status st;

    if (opt->plan == NULL && takes_buckets(opt, plan, whole)) {
        st = plan_by_buckets(opt, groups, n_groups, plan);
    } else if (opt->plan == NULL) {
        st = zro__plan_make(opt->account, groups, n_groups, zro__optim_ranks(opt), plan, whole, &opt->plan);
    } else {
        st = zro_plan_add_group(opt->plan, groups);
        m->planned = st == ZRO_OK;
    }
    if (st == ZRO_OK && !zro__grow(opt->account, &opt->params, &opt->capacity, zro_plan_params(opt->plan), sizeof *opt->params))
        st = zro__fail(ZRO_ERR_MEMORY, "out of memory: a list of %zu parameters", zro_plan_params(opt->plan));
    for (size_t k = 0; st == ZRO_OK && k < n_groups; k++)
        st = append(opt, &groups[k], m->n_groups + k);
    return st == ZRO_OK ? check_apart(opt, m->n_params, d) : st;
}

/* The part that all ranks do together; where no parameters were added there is nothing to do. */
static zro_status settle(zro_optim *opt, size_t first, zro__call call)
{
    zro_status st = first < opt->n_params ? zro__enter(opt->group) : ZRO_OK;

    if (st != ZRO_OK || first == opt->n_params)
        return st;
    zro__cycle_serve(opt->cycle, &opt->updater);
    if (opt->bucket_views == ZRO_ON)
        st = make_views(opt, first, call);
    if (st == ZRO_OK)
        st = make_lists(opt, first, call);
    if (st == ZRO_OK && zro__updater_measures_norm(&opt->updater))
        st = zro__optim_reserve_norms(opt);
    return zro__optim_leave(opt, st);
}

/* Rank 0 says it of names, which are the same on all ranks; of gradients each rank says what it has. */
static void say_doubts(const zro_optim *opt, size_t first_new, const doubts *d)
{
    size_t first, second;

    if (zro__plan_namesakes(opt->plan, &first, &second) && second >= first_new && zro__optim_rank(opt) == 0)
        zro__log(&opt->settings, ZRO_LOG_WARN,
                 "parameters %zu and %zu are both named %s; a state of them cannot be saved to a file: give each parameter a "
                 "name of its own",
                 first, second, opt->params[second].name);
    first = d->gradients[0];
    second = d->gradients[1];
    if (d->frozen != SIZE_MAX)
        zro__log(&opt->settings, ZRO_LOG_WARN,
                 "parameter %s has a gradient, but requires_grad is 0, so it is never updated; begin with zro_param_make, or "
                 "with zro_param p = ZRO_PARAM_INIT",
                 ZRO__OPTIM_PARAM_NAME(opt, d->frozen));
    if (first != second)
        zro__log(&opt->settings, ZRO_LOG_WARN,
                 "the gradients of parameters %s and %s share memory, so one overwrites the other; give each parameter a "
                 "gradient of its own, or clear grad_present of those that are not there",
                 ZRO__OPTIM_PARAM_NAME(opt, first), ZRO__OPTIM_PARAM_NAME(opt, second));
}

zro_status zro__optim_extend(zro_optim *opt, zro_group *group, const zro_param_group *groups, size_t n_groups,
                             const zro_plan_config *plan, zro__call call, zro_status st)
{
    mark m = { 0 };
    doubts d = { .frozen = SIZE_MAX };
    size_t first = opt != NULL ? opt->n_params : 0, at = first;

    if (opt != NULL)
        m = (mark){ .n_params = opt->n_params,
                    .n_blocks = opt->n_blocks,
                    .n_groups = zro__optim_shard(opt)->n_groups,
                    .views = opt->views,
                    .publish = opt->updater.publish,
                    .average = opt->updater.average,
                    .fused = opt->updater.fused };
    if (st == ZRO_OK)
        st = add(opt, groups, n_groups, plan, &m, &d);
    for (size_t k = 0; st == ZRO_OK && k < n_groups; at += groups[k++].n)
        st = add_runs(opt, &groups[k], at, at + groups[k].n);
    if (group != NULL)
        st = zro__optim_compare(opt, group, first, call, st);
    if (st == ZRO_OK && group != NULL)
        st = settle(opt, first, call);
    if (st == ZRO_OK && group == NULL && zro__updater_measures_norm(&opt->updater))
        st = zro__optim_reserve_norms(opt);
    if (st != ZRO_OK && opt != NULL)
        undo(opt, &m);
    if (st == ZRO_OK)
        say_doubts(opt, first, &d);
    return st;
}
