/* The plan: see plan.h.  Who gets what is partition.c's; here are checks, tables and questions. */
#include "step/plan.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/param.h"
#include "base/settings.h"
#include "base/status.h"
#include "group/slot.h"

typedef struct tables {
    zro__plan_param *params; /* n_params + 1 */
    zro_range *all, *packed; /* n_ranges */
    size_t *firsts;          /* ranks + 1: where each rank's begin in packed */
    size_t *elements;        /* ranks: that each owns */
    size_t *names;           /* a hash table of parameters by name: index + 1, or 0 */
    size_t n_names;          /* its size, a power of two */
    zro__arena arena;
} tables;

/* What make or an add brought: the names, and how much there was before. */
typedef struct addition {
    struct addition *before;
    size_t n_params, n_groups, n_buckets, n_ranges;
    char text[];
} addition;

struct zro_plan {
    zro__account *account;
    zro_partition partition;
    int ranks;
    size_t n_params, n_groups, n_buckets, n_ranges, total;
    tables t;
    addition *last;
};

void zro_plan_config_init(zro_plan_config *config)
{
    static const zro_plan_config init = ZRO_PLAN_CONFIG_INIT;

    if (config != NULL)
        *config = init;
}

/* ---- checks ---- */

static zro_status check_config(const zro_plan_config *c, zro_switch whole)
{
    const int lists = (c->bucket_params != NULL) + (c->bucket_lengths != NULL) + (c->n_buckets > 0);

    if ((int)c->partition < ZRO_PARTITION_AUTO || (int)c->partition > ZRO_PARTITION_GIVEN)
        return zro__fail(ZRO_ERR_INVALID, "zro_plan_config: partition = %d is none of auto, flat, greedy, buckets, given",
                         (int)c->partition);
    if (c->shard_buckets != ZRO_ON && c->shard_buckets != ZRO_OFF)
        return zro__fail(ZRO_ERR_INVALID, "zro_plan_config: shard_buckets = %d, must be on or off", (int)c->shard_buckets);
    if (c->partition != ZRO_PARTITION_BUCKETS && (c->shard_buckets == ZRO_ON || lists > 0))
        return zro__fail(ZRO_ERR_INVALID, "zro_plan_config: %s for a partition that is not buckets",
                         lists > 0 ? "lists of buckets" : "shard_buckets");
    if (lists != 0 && lists != 3)
        return zro__fail(ZRO_ERR_INVALID, "zro_plan_config: bucket_params, bucket_lengths and n_buckets (%zu) need each other",
                         c->n_buckets);
    if (c->partition == ZRO_PARTITION_FLAT && whole == ZRO_ON)
        return zro__fail(ZRO_ERR_UNSUPPORTED,
                         "zro_plan_config: partition = flat cuts parameters, which must stay whole here; take greedy");
    return ZRO_OK;
}

static const zro_param *param_of(const zro_param_group *group, size_t i)
{
    return &group->params[group->index != NULL ? group->index[i] : i];
}

/* Adds what the parameter has to *total. */
static zro_status check_param(const zro_param *p, size_t index, size_t *total)
{
    char name[ZRO__NAME_BYTES];
    zro_status st = zro__param_check_shape(p, index);

    if (st != ZRO_OK)
        return st;
    if (zro_param_count(p) > SIZE_MAX / 16 - *total)
        return zro__fail(ZRO_ERR_INVALID, "parameter %s: with it there are more elements than memory can hold",
                         zro__param_name(p->name, index, name));
    if (!zro__dtype_is_known(p->dtype))
        return zro__fail(ZRO_ERR_INVALID, "parameter %s: dtype = %d is no element type", zro__param_name(p->name, index, name),
                         (int)p->dtype);
    *total += zro_param_count(p);
    return ZRO_OK;
}

static zro_status check_owners(const zro_plan *plan, const zro_param_group *group, size_t number, size_t first)
{
    char buffer[ZRO__NAME_BYTES];

    if (plan->partition != ZRO_PARTITION_GIVEN)
        return group->owners == NULL
                   ? ZRO_OK
                   : zro__fail(ZRO_ERR_INVALID, "parameter group %zu has owners, but the partition is not given", number);
    if (group->owners == NULL)
        return zro__fail(ZRO_ERR_INVALID, "parameter group %zu has no owners, but the partition is given", number);
    for (size_t i = 0; i < group->n; i++)
        if (group->owners[i] < 0 || group->owners[i] >= plan->ranks)
            return zro__fail(ZRO_ERR_INVALID, "parameter %s: its owner is %d, must be in [0, %d)",
                             zro__param_name(param_of(group, i)->name, first + i, buffer), (int)group->owners[i], plan->ranks);
    return ZRO_OK;
}

/* Checks one group and adds to what there is: parameters to *index, elements to *total, bytes of names to *bytes. */
static zro_status check_group(const zro_plan *plan, const zro_param_group *group, size_t number, size_t *index, size_t *total,
                              size_t *bytes)
{
    zro_status st = ZRO_OK;

    if (group->params == NULL)
        return zro__fail(ZRO_ERR_INVALID, "parameter group %zu: params is NULL", number);
    if (group->n == 0)
        return zro__fail(ZRO_ERR_INVALID, "parameter group %zu has no parameters", number);
    for (size_t i = 0; st == ZRO_OK && i < group->n; i++) {
        st = check_param(param_of(group, i), *index + i, total);
        *bytes += param_of(group, i)->name != NULL ? strlen(param_of(group, i)->name) + 1 : 0;
    }
    if (st == ZRO_OK)
        st = check_owners(plan, group, number, *index);
    *index += group->n;
    return st;
}

/* ---- adding ---- */

/* The parameters with copies of their names, which are in no bucket yet. */
static void take_params(zro__division *d, const zro_param_group *groups, size_t n_groups, size_t first_group, char *text)
{
    zro__plan_param *to = d->params;

    for (size_t g = 0; g < n_groups; g++)
        for (size_t i = 0; i < groups[g].n; i++, to++) {
            const zro_param *p = param_of(&groups[g], i);

            to->name = p->name != NULL ? text : NULL;
            text = p->name != NULL ? stpcpy(text, p->name) + 1 : text;
            to->count = zro_param_count(p);
            to->group = first_group + g;
            to->bucket = SIZE_MAX;
            to->dtype = p->dtype;
            to->device = p->device;
        }
}

static const char *name_of(const zro__division *d, const zro__plan_param *p, char *buffer)
{
    return zro__param_name(p->name, d->first_param + (size_t)(p - d->params), buffer);
}

/* Puts a parameter into the bucket, as its next member. */
static zro_status take_member(zro__division *d, size_t bucket, size_t param)
{
    char name[ZRO__NAME_BYTES], other[ZRO__NAME_BYTES];
    const size_t at = d->firsts[bucket + 1];
    zro__plan_param *p = &d->params[param];
    const zro__plan_param *leader = at == d->firsts[bucket] ? p : &d->params[d->members[d->firsts[bucket]]];

    if (p->bucket != SIZE_MAX)
        return zro__fail(ZRO_ERR_INVALID, "bucket %zu: parameter %s is in bucket %zu already", bucket, name_of(d, p, name),
                         p->bucket);
    if (p->dtype != leader->dtype || p->device != leader->device)
        return zro__fail(ZRO_ERR_INVALID,
                         "bucket %zu: parameter %s is %s on device %d, and parameter %s %s on device %d; a bucket has one type "
                         "and one device",
                         bucket, name_of(d, leader, other), zro_dtype_name(leader->dtype), (int)leader->device,
                         name_of(d, p, name), zro_dtype_name(p->dtype), (int)p->device);
    p->bucket = bucket;
    d->members[at] = param;
    d->firsts[bucket + 1] = at + 1;
    return ZRO_OK;
}

/* The buckets of the configuration. */
static zro_status take_buckets(zro__division *d, const zro_plan_config *c)
{
    char name[ZRO__NAME_BYTES];
    size_t sum = 0;

    for (size_t b = 0; b < c->n_buckets; b++) {
        if (c->bucket_lengths[b] == 0)
            return zro__fail(ZRO_ERR_INVALID, "bucket %zu has no parameters", b);
        if (c->bucket_lengths[b] > d->n - sum)
            return zro__fail(ZRO_ERR_INVALID,
                             "bucket %zu: with its %zu parameters the buckets have more than the %zu of the groups", b,
                             c->bucket_lengths[b], d->n);
        sum += c->bucket_lengths[b];
    }
    d->n_buckets = c->n_buckets;
    for (size_t b = 0, at = 0; b < d->n_buckets; b++) {
        d->firsts[b + 1] = at;
        for (size_t end = at + c->bucket_lengths[b]; at < end; at++) {
            zro_status st;

            if (c->bucket_params[at] >= d->n)
                return zro__fail(ZRO_ERR_INVALID, "bucket %zu: there is no parameter %zu, only %zu of them", b,
                                 c->bucket_params[at], d->n);
            st = take_member(d, b, c->bucket_params[at]);
            if (st != ZRO_OK)
                return st;
        }
    }
    for (size_t i = 0; i < d->n; i++)
        if (d->params[i].bucket == SIZE_MAX)
            return zro__fail(ZRO_ERR_INVALID, "parameter %s is in no bucket", name_of(d, &d->params[i], name));
    return ZRO_OK;
}

/* `config` is that of make, and NULL for what comes later. */
static zro_status divide(const zro_plan *plan, zro__division *d, const zro_param_group *groups, size_t n_groups,
                         const zro_plan_config *config)
{
    const int listed = config != NULL && config->n_buckets > 0;
    zro_status st = ZRO_OK;
    size_t most, first = 0;

    if (listed)
        st = take_buckets(d, config);
    else
        zro__division_form(d);
    if (st != ZRO_OK)
        return st;
    most = zro__division_most(d, plan->partition);
    d->ranges = zro__alloc_array(plan->account, ZRO__KIND_HANDLE, most, sizeof *d->ranges);
    if (d->ranges == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a list of %zu ranges", most);
    if (plan->partition == ZRO_PARTITION_FLAT)
        zro__divide_flat(d);
    else if (plan->partition == ZRO_PARTITION_BUCKETS && config != NULL && config->shard_buckets == ZRO_ON)
        zro__divide_pieces(d);
    else if (plan->partition == ZRO_PARTITION_BUCKETS)
        zro__divide_buckets(d);
    else
        for (size_t g = 0; g < n_groups; first += groups[g++].n)
            if (plan->partition == ZRO_PARTITION_GREEDY)
                zro__divide_greedy(d, first, first + groups[g].n);
            else
                zro__divide_given(d, first, first + groups[g].n, groups[g].owners);
    return ZRO_OK;
}

/* ---- tables ---- */

static zro_status tables_init(tables *t, zro__account *account, size_t ranks, size_t n_params, size_t n_ranges)
{
    zro_status st;

    t->n_names = 2;
    while (t->n_names < 2 * n_params)
        t->n_names *= 2;
    zro__arena_plan(&t->arena, n_params + 1, sizeof *t->params);
    zro__arena_plan(&t->arena, n_ranges, sizeof *t->all);
    zro__arena_plan(&t->arena, n_ranges, sizeof *t->packed);
    zro__arena_plan(&t->arena, ranks + 1, sizeof *t->firsts);
    zro__arena_plan(&t->arena, ranks, sizeof *t->elements);
    zro__arena_plan(&t->arena, t->n_names, sizeof *t->names);
    st = zro__arena_init(&t->arena, account, "the tables of a plan");
    if (st != ZRO_OK)
        return st;
    t->params = zro__arena_take(&t->arena, n_params + 1, sizeof *t->params);
    t->all = zro__arena_take(&t->arena, n_ranges, sizeof *t->all);
    t->packed = zro__arena_take(&t->arena, n_ranges, sizeof *t->packed);
    t->firsts = zro__arena_take(&t->arena, ranks + 1, sizeof *t->firsts);
    t->elements = zro__arena_take(&t->arena, ranks, sizeof *t->elements);
    t->names = zro__arena_take(&t->arena, t->n_names, sizeof *t->names);
    return ZRO_OK;
}

static void copy(void *to, const void *from, size_t count, size_t bytes)
{
    if (count > 0)
        memcpy(to, from, count * bytes);
}

/* Parameters, and all ranges by parameter: sorted by counting. */
static void fill_params(const zro_plan *plan, zro__division *d, tables *t)
{
    zro__plan_param *params = t->params + plan->n_params;
    size_t *at = d->starts, sum = plan->n_ranges;

    copy(t->params, plan->t.params, plan->n_params, sizeof *params);
    copy(params, d->params, d->n, sizeof *params);
    copy(t->all, plan->t.all, plan->n_ranges, sizeof *t->all);
    memset(at, 0, d->n * sizeof *at);
    for (size_t i = 0; i < d->n_ranges; i++)
        at[d->ranges[i].param - d->first_param]++;
    for (size_t i = 0; i < d->n; i++) {
        params[i].first_range = sum;
        sum += at[i];
        at[i] = params[i].first_range;
    }
    params[d->n].first_range = sum;
    for (size_t i = 0; i < d->n_ranges; i++)
        t->all[at[d->ranges[i].param - d->first_param]++] = d->ranges[i];
}

/* Ranges by rank: what it had, then what it gets. */
static void fill_packed(const zro_plan *plan, zro__division *d, tables *t)
{
    const size_t ranks = (size_t)plan->ranks, *old = plan->t.firsts;
    size_t *at = d->borders;

    memset(at, 0, ranks * sizeof *at);
    for (size_t i = 0; i < d->n_ranges; i++)
        at[d->ranges[i].owner]++;
    for (size_t r = 0; r < ranks; r++) {
        size_t had = old != NULL ? old[r + 1] - old[r] : 0;

        if (had > 0)
            memcpy(t->packed + t->firsts[r], plan->t.packed + old[r], had * sizeof *t->packed);
        t->firsts[r + 1] = t->firsts[r] + had + at[r];
        at[r] = t->firsts[r] + had;
    }
    for (size_t i = 0; i < d->n_ranges; i++)
        t->packed[at[d->ranges[i].owner]++] = d->ranges[i];
    memcpy(t->elements, d->loads, ranks * sizeof *t->elements);
}

/* Where a name is in the hash table, or where it would have to be put. */
static size_t *find_name(const tables *t, const char *name)
{
    size_t at = zro__hash(ZRO__HASH_START, name, strlen(name)) & (t->n_names - 1);

    while (t->names[at] != 0 && strcmp(t->params[t->names[at] - 1].name, name) != 0)
        at = (at + 1) & (t->n_names - 1);
    return &t->names[at];
}

/* Of the first n parameters, but for those whose name is their index; of those with the same name the first counts. */
static void fill_names(tables *t, size_t n)
{
    memset(t->names, 0, t->n_names * sizeof *t->names);
    for (size_t i = 0; i < n; i++)
        if (t->params[i].name != NULL) {
            size_t *place = find_name(t, t->params[i].name);

            *place = *place == 0 ? i + 1 : *place;
        }
}

/* Takes the new tables for the old ones, and remembers what there was. */
static void commit(zro_plan *plan, const zro__division *d, const tables *t, addition *added)
{
    added->before = plan->last;
    added->n_params = plan->n_params;
    added->n_groups = plan->n_groups;
    added->n_buckets = plan->n_buckets;
    added->n_ranges = plan->n_ranges;
    plan->last = added;
    zro__arena_free(&plan->t.arena);
    plan->t = *t;
    plan->n_params += d->n;
    plan->n_buckets += d->n_buckets;
    plan->n_ranges += d->n_ranges;
}

/* Everything that can fail comes before the plan is changed. */
static zro_status extend(zro_plan *plan, const zro_param_group *groups, size_t n_groups, const zro_plan_config *config)
{
    zro__division d = { .ranks = plan->ranks, .first_param = plan->n_params, .first_bucket = plan->n_buckets };
    size_t index = plan->n_params, total = plan->total, bytes = 0;
    addition *added = NULL;
    tables t = { 0 };
    zro_status st = ZRO_OK;

    for (size_t g = 0; st == ZRO_OK && g < n_groups; g++)
        st = check_group(plan, &groups[g], plan->n_groups + g, &index, &total, &bytes);
    if (st != ZRO_OK)
        return st;
    st = zro__division_init(&d, plan->account, index - plan->n_params);
    if (st != ZRO_OK)
        return st;
    added = zro__alloc(plan->account, ZRO__KIND_HANDLE, sizeof *added + bytes);
    if (added == NULL) {
        st = zro__fail(ZRO_ERR_MEMORY, "out of memory: %zu bytes for names of parameters", bytes);
        goto end;
    }
    take_params(&d, groups, n_groups, plan->n_groups, added->text);
    copy(d.loads, plan->t.elements, plan->t.elements != NULL ? (size_t)plan->ranks : 0, sizeof *d.loads);
    st = divide(plan, &d, groups, n_groups, config);
    if (st == ZRO_OK)
        st = tables_init(&t, plan->account, (size_t)plan->ranks, index, plan->n_ranges + d.n_ranges);
    if (st != ZRO_OK)
        goto end;
    fill_params(plan, &d, &t);
    fill_packed(plan, &d, &t);
    fill_names(&t, index);
    commit(plan, &d, &t, added);
    plan->n_groups += n_groups;
    plan->total = total;
    added = NULL;
end:
    zro__free(added);
    zro__division_free(&d);
    return st;
}

/* Later groups stand behind the earlier ones in every list, so those only become shorter. */
void zro__plan_undo(zro_plan *plan)
{
    addition *last = plan->last;
    tables *t = &plan->t;
    size_t to = 0;

    assert(last->before != NULL);
    for (size_t i = last->n_ranges; i < plan->n_ranges; i++) {
        t->elements[t->all[i].owner] -= t->all[i].count;
        plan->total -= t->all[i].count;
    }
    for (size_t r = 0, from = 0; r < (size_t)plan->ranks; r++) {
        for (; from < t->firsts[r + 1]; from++)
            if (t->packed[from].param < last->n_params)
                t->packed[to++] = t->packed[from];
        t->firsts[r + 1] = to;
    }
    fill_names(t, last->n_params);
    plan->n_params = last->n_params;
    plan->n_groups = last->n_groups;
    plan->n_buckets = last->n_buckets;
    plan->n_ranges = last->n_ranges;
    plan->last = last->before;
    zro__free(last);
}

/* ---- life ---- */

zro_status zro__plan_make(zro__account *account, const zro_param_group *groups, size_t n_groups, int ranks,
                          const zro_plan_config *config, zro_switch whole, zro_plan **out)
{
    zro_plan_config c = ZRO_PLAN_CONFIG_INIT;
    zro_plan *plan;
    zro_status st;

    *out = NULL;
    st = zro__config_take("zro_plan_config", config, sizeof c, &c, sizeof c);
    if (st == ZRO_OK)
        st = check_config(&c, whole);
    if (st != ZRO_OK)
        return st;
    if (ranks < 1 || ranks > ZRO__MAX_RANKS)
        return zro__fail(ZRO_ERR_INVALID, "plan: ranks = %d, must be 1 to %d", ranks, ZRO__MAX_RANKS);
    if (groups == NULL || n_groups == 0)
        return zro__fail(ZRO_ERR_INVALID, "plan: no parameter groups");
    plan = zro__alloc(account, ZRO__KIND_HANDLE, sizeof *plan);
    if (plan == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a plan");
    plan->account = account;
    plan->ranks = ranks;
    plan->partition = c.partition != ZRO_PARTITION_AUTO ? c.partition
                      : whole == ZRO_ON                 ? ZRO_PARTITION_GREEDY
                                                        : ZRO_PARTITION_FLAT;
    st = extend(plan, groups, n_groups, &c);
    if (st != ZRO_OK) {
        zro_plan_destroy(plan);
        return st;
    }
    *out = plan;
    return ZRO_OK;
}

zro_status zro__plan_add(zro_plan *plan, const zro_param_group *group)
{
    return extend(plan, group, 1, NULL);
}

zro_status zro_plan_create(const zro_param_group *groups, size_t n_groups, int ranks, const zro_plan_config *config,
                           zro_plan **out)
{
    if (out == NULL)
        return zro__fail(ZRO_ERR_INVALID, "plan_create: out is NULL");
    return zro__plan_make(NULL, groups, n_groups, ranks, config, ZRO_OFF, out);
}

static zro_status check_plan(const zro_plan *plan)
{
    return plan != NULL ? ZRO_OK : zro__fail(ZRO_ERR_INVALID, "the plan is NULL");
}

zro_status zro_plan_add_group(zro_plan *plan, const zro_param_group *group)
{
    zro_status st = check_plan(plan);

    if (st == ZRO_OK && group == NULL)
        st = zro__fail(ZRO_ERR_INVALID, "plan_add_group: the parameter group is NULL");
    return st == ZRO_OK ? zro__plan_add(plan, group) : st;
}

void zro_plan_destroy(zro_plan *plan)
{
    if (plan == NULL)
        return;
    while (plan->last != NULL) {
        addition *last = plan->last;

        plan->last = last->before;
        zro__free(last);
    }
    zro__arena_free(&plan->t.arena);
    zro__free(plan);
}

/* ---- questions ---- */

size_t zro__plan_groups(const zro_plan *plan)
{
    return plan->n_groups;
}

zro_partition zro__plan_partition(const zro_plan *plan)
{
    return plan->partition;
}

const zro__plan_param *zro__plan_table(const zro_plan *plan)
{
    return plan->t.params;
}

int zro_plan_ranks(const zro_plan *plan)
{
    return plan != NULL ? plan->ranks : 0;
}

size_t zro_plan_params(const zro_plan *plan)
{
    return plan != NULL ? plan->n_params : 0;
}

size_t zro_plan_buckets(const zro_plan *plan)
{
    return plan != NULL ? plan->n_buckets : 0;
}

size_t zro_plan_elements(const zro_plan *plan, int rank)
{
    if (plan == NULL)
        return 0;
    if (rank == ZRO_ALL)
        return plan->total;
    return rank >= 0 && rank < plan->ranks ? plan->t.elements[rank] : 0;
}

zro_status zro_plan_owner(const zro_plan *plan, size_t param, size_t element, int *owner)
{
    zro_status st = check_plan(plan);
    char name[ZRO__NAME_BYTES];
    const zro__plan_param *p;
    size_t low, high;

    if (st != ZRO_OK)
        return st;
    if (owner == NULL)
        return zro__fail(ZRO_ERR_INVALID, "plan_owner: owner is NULL");
    if (param >= plan->n_params)
        return zro__fail(ZRO_ERR_INVALID, "there is no parameter %zu, only %zu of them", param, plan->n_params);
    p = &plan->t.params[param];
    if (element >= p->count && element > 0)
        return zro__fail(ZRO_ERR_INVALID, "parameter %s has no element %zu, only %zu of them",
                         zro__param_name(p->name, param, name), element, p->count);
    low = p[0].first_range;
    high = p[1].first_range;
    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;

        if (plan->t.all[mid].first <= element)
            low = mid;
        else
            high = mid;
    }
    *owner = plan->t.all[low].owner;
    return ZRO_OK;
}

zro_status zro_plan_ranges(const zro_plan *plan, int rank, const zro_range **ranges, size_t *n)
{
    zro_status st = check_plan(plan);

    if (st != ZRO_OK)
        return st;
    if (ranges == NULL || n == NULL)
        return zro__fail(ZRO_ERR_INVALID, "plan_ranges: %s is NULL", ranges == NULL ? "ranges" : "n");
    if (rank == ZRO_ALL) {
        *ranges = plan->t.all;
        *n = plan->n_ranges;
        return ZRO_OK;
    }
    if (rank < 0 || rank >= plan->ranks)
        return zro__fail(ZRO_ERR_INVALID, "plan_ranges: rank = %d, must be in [0, %d) or ZRO_ALL", rank, plan->ranks);
    *ranges = plan->t.packed + plan->t.firsts[rank];
    *n = plan->t.firsts[rank + 1] - plan->t.firsts[rank];
    return ZRO_OK;
}

zro_status zro_plan_find(const zro_plan *plan, const char *name, size_t *param)
{
    zro_status st = check_plan(plan);
    char buffer[ZRO__NAME_BYTES];
    size_t found, number;

    if (st != ZRO_OK)
        return st;
    if (name == NULL || param == NULL)
        return zro__fail(ZRO_ERR_INVALID, "plan_find: %s is NULL", name == NULL ? "name" : "param");
    found = *find_name(&plan->t, name);
    number = strtoul(name, NULL, 10);
    if (number < plan->n_params && plan->t.params[number].name == NULL
        && strcmp(zro__param_name(NULL, number, buffer), name) == 0 && (found == 0 || number < found - 1))
        found = number + 1;
    if (found == 0)
        return zro__fail(ZRO_ERR_INVALID, "there is no parameter named \"%s\"", name);
    *param = found - 1;
    return ZRO_OK;
}

static zro_status check_same(const zro_plan *from, const zro_plan *to)
{
    char left[ZRO__NAME_BYTES], right[ZRO__NAME_BYTES];

    if (from->n_params != to->n_params)
        return zro__fail(ZRO_ERR_INVALID, "plan_intersect: one plan has %zu parameters, the other %zu", from->n_params,
                         to->n_params);
    for (size_t i = 0; i < from->n_params; i++) {
        const zro__plan_param *a = &from->t.params[i], *b = &to->t.params[i];
        const char *first = zro__param_name(a->name, i, left), *second = zro__param_name(b->name, i, right);

        if (strcmp(first, second) != 0 || a->count != b->count || a->dtype != b->dtype)
            return zro__fail(
                ZRO_ERR_INVALID,
                "plan_intersect: parameter %zu is %s with %zu of %s in one plan, and %s with %zu of %s in the other", i, first,
                a->count, zro_dtype_name(a->dtype), second, b->count, zro_dtype_name(b->dtype));
    }
    return ZRO_OK;
}

/* Both lists of all ranges in step: each run begins where either has a border. */
zro_status zro_plan_intersect(const zro_plan *from, const zro_plan *to, zro_overlap *out, size_t room, size_t *n)
{
    zro_status st = from != NULL ? check_plan(to) : check_plan(from);
    size_t a = 0, b = 0;

    if (st == ZRO_OK && n == NULL)
        st = zro__fail(ZRO_ERR_INVALID, "plan_intersect: n is NULL");
    if (st == ZRO_OK)
        st = check_same(from, to);
    if (st != ZRO_OK)
        return st;
    for (*n = 0; a < from->n_ranges; ++*n) {
        const zro_range *x = &from->t.all[a], *y = &to->t.all[b];
        size_t first = x->first > y->first ? x->first : y->first;
        size_t x_end = x->first + x->count, y_end = y->first + y->count, end = x_end < y_end ? x_end : y_end;

        if (out != NULL && *n < room)
            out[*n] =
                (zro_overlap){ .param = x->param, .first = first, .count = end - first, .from = x->owner, .to = y->owner };
        a += x_end == end;
        b += y_end == end;
    }
    return ZRO_OK;
}
