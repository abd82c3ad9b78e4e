/* The plan: see plan.h.  Who gets what is partition.c's; here are checks, tables and questions. */
#include "plan/plan.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/hash.h"
#include "base/param.h"
#include "base/search.h"
#include "base/settings.h"
#include "base/status.h"

typedef struct tables {
    zro__plan_param *params; /* n_params + 1 */
    zro_range *all, *packed; /* n_ranges */
    size_t *firsts;          /* ranks + 1: where the ranges of each rank begin in packed */
    size_t *elements;        /* ranks: how many elements each rank owns */
    size_t *names;           /* a hash table of parameters by name: index + 1, or 0 */
    size_t n_names;          /* its size, a power of two */
    size_t namesakes[2];     /* the first two parameters that have one name; both 0: there are none */
    zro__arena arena;
} tables;

/* How many of each a plan has. */
typedef struct amounts {
    size_t params, groups, buckets, ranges, elements;
} amounts;

/* What a make or an add has added: copies of the names, and the amounts before it, for undo. */
typedef struct addition {
    struct addition *before;
    amounts had;
    char text[];
} addition;

struct zro_plan {
    zro__account *account;
    zro_partition partition;
    int ranks;
    amounts n;
    tables t;
    addition *last;
};

ZRO__DEFINE_INIT(zro_plan_config, ZRO_PLAN_CONFIG_INIT)
ZRO__DEFINE_INIT(zro_param_group, ZRO_PARAM_GROUP_INIT)

/* ---- checks ---- */

static zro_status check_config(const zro_plan_config *c, zro_switch whole)
{
    const int lists = (c->bucket_params != NULL) + (c->bucket_lengths != NULL) + (c->n_buckets > 0);

    if ((int)c->partition < ZRO_PARTITION_AUTO || (int)c->partition > ZRO_PARTITION_GIVEN)
        return zro__fail(ZRO_ERR_INVALID, "zro_plan_config: partition = %d is none of auto, flat, greedy, buckets, given",
                         (int)c->partition);
    if (c->shard_buckets != ZRO_ON && c->shard_buckets != ZRO_OFF)
        return zro__fail(ZRO_ERR_INVALID, "zro_plan_config: shard_buckets = %d, must be on or off", (int)c->shard_buckets);
    if (c->partition != ZRO_PARTITION_BUCKETS && c->shard_buckets == ZRO_ON)
        return zro__fail(ZRO_ERR_INVALID, "zro_plan_config: shard_buckets is set, but partition is not buckets");
    if (c->partition != ZRO_PARTITION_BUCKETS && c->partition != ZRO_PARTITION_FLAT && lists > 0)
        return zro__fail(ZRO_ERR_INVALID,
                         "zro_plan_config: lists of buckets are set, but partition is neither buckets nor flat");
    if (lists != 0 && lists != 3)
        return zro__fail(ZRO_ERR_INVALID,
                         "zro_plan_config: set all of bucket_params, bucket_lengths and n_buckets (%zu), or none",
                         c->n_buckets);
    if (c->partition == ZRO_PARTITION_FLAT && whole == ZRO_ON)
        return zro__fail(ZRO_ERR_UNSUPPORTED,
                         "zro_plan_config: partition = flat cuts parameters, and the rule needs whole ones; take greedy");
    return ZRO_OK;
}

zro_param *zro__param_of(const zro_param_group *group, size_t i)
{
    return &group->params[group->index != NULL ? group->index[i] : i];
}

/* Checks one parameter and adds its elements to *total. */
static zro_status check_param(const zro_param *p, size_t index, size_t *total)
{
    zro_status st = zro__param_check_shape(p, index);

    if (st == ZRO_OK)
        st = zro__param_check_types(p, index);
    if (st == ZRO_OK && zro_param_count(p) > SIZE_MAX / 16 - *total)
        st = zro__param_fail(ZRO_ERR_INVALID, p->name, index, "with it there are more elements than memory can hold");
    *total += st == ZRO_OK ? zro_param_count(p) : 0;
    return st;
}

static zro_status check_owners(const zro_plan *plan, const zro_param_group *group, size_t number, size_t first)
{
    if (plan->partition != ZRO_PARTITION_GIVEN)
        return group->owners == NULL
                   ? ZRO_OK
                   : zro__fail(ZRO_ERR_INVALID, "parameter group %zu has owners, but the partition is not given", number);
    if (group->owners == NULL && group->n > 0)
        return zro__fail(ZRO_ERR_INVALID, "parameter group %zu has no owners, but the partition is given", number);
    for (size_t i = 0; i < group->n; i++)
        if (group->owners[i] < 0 || group->owners[i] >= plan->ranks)
            return zro__param_fail(ZRO_ERR_INVALID, zro__param_of(group, i)->name, first + i,
                                   "its owner is %d, must be in [0, %d)", (int)group->owners[i], plan->ranks);
    return ZRO_OK;
}

/* A group has no struct_size.  One that was not initialised usually has something in the reserved fields, or a pointer that can be
 * none: so most of them are refused instead of followed. */
static int is_initialised(const zro_param_group *group)
{
    const uintptr_t bits =
        (uintptr_t)group->params | (uintptr_t)group->index | (uintptr_t)group->config | (uintptr_t)group->values;

    return (group->reserved[0] | group->reserved[1] | group->reserved[2]) == 0 && bits % _Alignof(void *) == 0
           && (uintptr_t)group->owners % _Alignof(int32_t) == 0 && group->n <= SIZE_MAX / sizeof(zro_param);
}

/* Checks one group and adds it to the amounts, and the bytes of its names to *bytes. */
static zro_status check_group(const zro_plan *plan, const zro_param_group *group, amounts *n, size_t *bytes)
{
    zro_status st = ZRO_OK;

    if (!is_initialised(group))
        return zro__fail(ZRO_ERR_INVALID,
                         "parameter group %zu was not initialised: fields that must be zero are not; begin with "
                         "zro_param_group group = ZRO_PARAM_GROUP_INIT",
                         n->groups);
    if (group->params == NULL && group->n > 0)
        return zro__fail(ZRO_ERR_INVALID, "parameter group %zu: params is NULL, but n = %zu", n->groups, group->n);
    for (size_t i = 0; st == ZRO_OK && i < group->n; i++) {
        const zro_param *p = zro__param_of(group, i);

        st = check_param(p, n->params + i, &n->elements);
        *bytes += p->name != NULL ? strlen(p->name) + 1 : 0;
    }
    if (st == ZRO_OK)
        st = check_owners(plan, group, n->groups, n->params);
    n->params += group->n;
    n->groups++;
    return st;
}

/* ---- adding ---- */

/* The parameters with copies of their names, which are in no bucket yet. */
static void take_params(zro__division *d, const zro_param_group *groups, size_t n_groups, size_t first_group, char *text)
{
    zro__plan_param *to = d->params;

    for (size_t g = 0; g < n_groups; g++)
        for (size_t i = 0; i < groups[g].n; i++, to++) {
            const zro_param *p = zro__param_of(&groups[g], i);

            to->name = p->name != NULL ? text : NULL;
            text = p->name != NULL ? stpcpy(text, p->name) + 1 : text;
            to->count = zro_param_count(p);
            to->group = first_group + g;
            to->bucket = SIZE_MAX;
            to->dtype = p->dtype;
            to->device = p->device;
        }
}

/* A parameter of a division in texts. */
#define NAME_OF(d, p) ZRO__PARAM_NAME((p)->name, (d)->first_param + (size_t)((p) - (d)->params))

/* Puts a parameter into the bucket, as its next member. */
static zro_status take_member(zro__division *d, size_t bucket, size_t param)
{
    const size_t at = d->firsts[bucket + 1];
    zro__plan_param *p = &d->params[param];
    const zro__plan_param *leader = at == d->firsts[bucket] ? p : &d->params[d->members[d->firsts[bucket]]];

    if (p->bucket != SIZE_MAX)
        return zro__fail(ZRO_ERR_INVALID, "bucket %zu: parameter %s is in bucket %zu already", bucket, NAME_OF(d, p),
                         p->bucket);
    if (p->dtype != leader->dtype || p->device != leader->device)
        return zro__fail(ZRO_ERR_INVALID,
                         "bucket %zu: parameter %s is %s on device %d, and parameter %s %s on device %d; a bucket has one type "
                         "and one device",
                         bucket, NAME_OF(d, leader), zro_dtype_name(leader->dtype), (int)leader->device, NAME_OF(d, p),
                         zro_dtype_name(p->dtype), (int)p->device);
    p->bucket = bucket;
    d->members[at] = param;
    d->firsts[bucket + 1] = at + 1;
    return ZRO_OK;
}

/* Forms the buckets that the configuration lists. */
static zro_status take_buckets(zro__division *d, const zro_plan_config *c)
{
    d->n_buckets = c->n_buckets;
    for (size_t b = 0, at = 0; b < d->n_buckets; b++) {
        if (c->bucket_lengths[b] == 0)
            return zro__fail(ZRO_ERR_INVALID, "bucket %zu has no parameters", b);
        if (c->bucket_lengths[b] > d->n - at)
            return zro__fail(ZRO_ERR_INVALID,
                             "bucket %zu has %zu parameters, and with them the buckets have more than the groups, %zu", b,
                             c->bucket_lengths[b], d->n);
        d->firsts[b + 1] = at;
        for (size_t end = at + c->bucket_lengths[b]; at < end; at++) {
            zro_status st;

            if (c->bucket_params[at] >= d->n)
                return zro__fail(ZRO_ERR_INVALID, "bucket %zu: there is no parameter %zu; the groups have %zu", b,
                                 c->bucket_params[at], d->n);
            st = take_member(d, b, c->bucket_params[at]);
            if (st != ZRO_OK)
                return st;
        }
    }
    for (size_t i = 0; i < d->n; i++)
        if (d->params[i].bucket == SIZE_MAX)
            return zro__fail(ZRO_ERR_INVALID, "parameter %s is in no bucket", NAME_OF(d, &d->params[i]));
    return ZRO_OK;
}

/* `config` is that of make, and NULL for groups that are added later. */
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

static zro_status tables_init(tables *t, zro__account *account, size_t ranks, const amounts *n)
{
    const zro__array arrays[] = {
        { &t->params, n->params + 1, sizeof *t->params }, { &t->all, n->ranges, sizeof *t->all },
        { &t->packed, n->ranges, sizeof *t->packed },     { &t->firsts, ranks + 1, sizeof *t->firsts },
        { &t->elements, ranks, sizeof *t->elements },     { &t->names, t->n_names, sizeof *t->names },
    };

    return zro__arena_arrays(&t->arena, account, "the tables of a plan", arrays, sizeof arrays / sizeof *arrays);
}

static void copy(void *to, const void *from, size_t count, size_t bytes)
{
    if (count > 0)
        memcpy(to, from, count * bytes);
}

/* Parameters, and all ranges by parameter: sorted by counting. */
static void fill_params(const zro_plan *plan, zro__division *d, tables *t)
{
    zro__plan_param *params = t->params + plan->n.params;
    size_t *at = d->starts, sum = plan->n.ranges;

    copy(t->params, plan->t.params, plan->n.params, sizeof *params);
    copy(params, d->params, d->n, sizeof *params);
    copy(t->all, plan->t.all, plan->n.ranges, sizeof *t->all);
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

/* Ranges by rank: those that a rank had, then those that it gets. */
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

/* Enters the names of the first n parameters; of several with the same name the first counts.  Those without a name are found
 * by their index. */
static void fill_names(tables *t, size_t n)
{
    memset(t->names, 0, t->n_names * sizeof *t->names);
    memset(t->namesakes, 0, sizeof t->namesakes);
    for (size_t i = 0; i < n; i++)
        if (t->params[i].name != NULL) {
            size_t *entry = find_name(t, t->params[i].name);

            if (*entry != 0 && t->namesakes[1] == 0) {
                t->namesakes[0] = *entry - 1;
                t->namesakes[1] = i;
            }
            *entry = *entry == 0 ? i + 1 : *entry;
        }
}

/* Everything that can fail comes before the plan is changed. */
static zro_status extend(zro_plan *plan, const zro_param_group *groups, size_t n_groups, const zro_plan_config *config)
{
    zro__division d = { .ranks = plan->ranks, .first_param = plan->n.params, .first_bucket = plan->n.buckets };
    amounts n = plan->n;
    size_t bytes = 0;
    addition *added = NULL;
    tables t = { .n_names = 2 };
    zro_status st = ZRO_OK;

    for (size_t g = 0; st == ZRO_OK && g < n_groups; g++)
        st = check_group(plan, &groups[g], &n, &bytes);
    if (st == ZRO_OK && n.params == 0)
        st = zro__fail(ZRO_ERR_INVALID, "none of the %zu parameter groups has parameters; set params and n of a group",
                       n.groups);
    if (st == ZRO_OK)
        st = zro__division_init(&d, plan->account, n.params - plan->n.params);
    if (st != ZRO_OK)
        return st;
    added = zro__alloc(plan->account, ZRO__KIND_HANDLE, sizeof *added + bytes);
    if (added == NULL) {
        st = zro__fail(ZRO_ERR_MEMORY, "out of memory: %zu bytes for names of parameters", bytes);
        goto end;
    }
    take_params(&d, groups, n_groups, plan->n.groups, added->text);
    copy(d.loads, plan->t.elements, plan->t.elements != NULL ? (size_t)plan->ranks : 0, sizeof *d.loads);
    st = divide(plan, &d, groups, n_groups, config);
    n.buckets += d.n_buckets;
    n.ranges += d.n_ranges;
    while (t.n_names < 2 * n.params)
        t.n_names *= 2;
    if (st == ZRO_OK)
        st = tables_init(&t, plan->account, (size_t)plan->ranks, &n);
    if (st != ZRO_OK)
        goto end;
    fill_params(plan, &d, &t);
    fill_packed(plan, &d, &t);
    fill_names(&t, n.params);
    added->before = plan->last;
    added->had = plan->n;
    plan->last = added;
    added = NULL;
    zro__arena_free(&plan->t.arena);
    plan->t = t;
    plan->n = n;
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
    for (size_t i = last->had.ranges; i < plan->n.ranges; i++)
        t->elements[t->all[i].owner] -= t->all[i].count;
    for (size_t r = 0, from = 0; r < (size_t)plan->ranks; r++) {
        for (; from < t->firsts[r + 1]; from++)
            if (t->packed[from].param < last->had.params)
                t->packed[to++] = t->packed[from];
        t->firsts[r + 1] = to;
    }
    fill_names(t, last->had.params);
    plan->n = last->had;
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
    return st == ZRO_OK ? extend(plan, group, 1, NULL) : st;
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

const char *zro__partition_name(const zro_plan *plan)
{
    static const char *const names[] = { "auto", "flat", "greedy", "buckets", "given" };

    return names[plan->partition];
}

const zro__plan_param *zro__plan_table(const zro_plan *plan)
{
    return plan->t.params;
}

const zro_range *zro__plan_ranges(const zro_plan *plan, size_t first, size_t end, size_t *n)
{
    const size_t from = plan->t.params[first].first_range;

    *n = plan->t.params[end].first_range - from;
    return plan->t.all + from;
}

const zro_range *zro__plan_owned(const zro_plan *plan, int rank, size_t *n)
{
    if (rank == ZRO_ALL) {
        *n = plan->n.ranges;
        return plan->t.all;
    }
    *n = plan->t.firsts[rank + 1] - plan->t.firsts[rank];
    return plan->t.packed + plan->t.firsts[rank];
}

int zro__plan_namesakes(const zro_plan *plan, size_t *first, size_t *second)
{
    *first = plan->t.namesakes[0];
    *second = plan->t.namesakes[1];
    return *second > 0;
}

int zro_plan_ranks(const zro_plan *plan)
{
    return plan != NULL ? plan->ranks : 0;
}

size_t zro_plan_params(const zro_plan *plan)
{
    return plan != NULL ? plan->n.params : 0;
}

size_t zro_plan_buckets(const zro_plan *plan)
{
    return plan != NULL ? plan->n.buckets : 0;
}

size_t zro_plan_elements(const zro_plan *plan, int rank)
{
    if (plan == NULL)
        return 0;
    if (rank == ZRO_ALL)
        return plan->n.elements;
    return rank >= 0 && rank < plan->ranks ? plan->t.elements[rank] : 0;
}

zro_status zro_plan_owner(const zro_plan *plan, size_t param, size_t element, int *owner)
{
    zro_status st = check_plan(plan);
    const zro__plan_param *p;
    const zro_range *ranges;
    size_t n;

    if (st != ZRO_OK)
        return st;
    if (owner == NULL)
        return zro__fail(ZRO_ERR_INVALID, "plan_owner: owner is NULL");
    if (param >= plan->n.params)
        return zro__fail(ZRO_ERR_INVALID, "there is no parameter %zu; the plan has %zu", param, plan->n.params);
    p = &plan->t.params[param];
    if (element >= p->count && element > 0)
        return zro__fail(ZRO_ERR_INVALID, "parameter %s has no element %zu; it has %zu", ZRO__PARAM_NAME(p->name, param),
                         element, p->count);
    ranges = zro__plan_ranges(plan, param, param + 1, &n);
    *owner = ranges[zro__find_last(&ranges->first, sizeof *ranges, n, element)].owner;
    return ZRO_OK;
}

zro_status zro_plan_ranges(const zro_plan *plan, int rank, const zro_range **ranges, size_t *n)
{
    zro_status st = check_plan(plan);

    if (st != ZRO_OK)
        return st;
    if (ranges == NULL || n == NULL)
        return zro__fail(ZRO_ERR_INVALID, "plan_ranges: %s is NULL", ranges == NULL ? "ranges" : "n");
    if (rank != ZRO_ALL && (rank < 0 || rank >= plan->ranks))
        return zro__fail(ZRO_ERR_INVALID, "plan_ranges: rank = %d, must be in [0, %d) or ZRO_ALL", rank, plan->ranks);
    *ranges = zro__plan_owned(plan, rank, n);
    return ZRO_OK;
}

zro_status zro_plan_find(const zro_plan *plan, const char *name, size_t *param)
{
    zro_status st = check_plan(plan);
    size_t found, number;

    if (st != ZRO_OK)
        return st;
    if (name == NULL || param == NULL)
        return zro__fail(ZRO_ERR_INVALID, "plan_find: %s is NULL", name == NULL ? "name" : "param");
    found = *find_name(&plan->t, name);
    number = strtoul(name, NULL, 10);
    if (number < plan->n.params && plan->t.params[number].name == NULL && strcmp(ZRO__PARAM_NAME(NULL, number), name) == 0
        && (found == 0 || number < found - 1))
        found = number + 1;
    if (found == 0)
        return zro__fail(ZRO_ERR_INVALID, "there is no parameter named \"%s\"", name);
    *param = found - 1;
    return ZRO_OK;
}

static zro_status check_same(const zro_plan *from, const zro_plan *to)
{
    if (from->n.params != to->n.params)
        return zro__fail(ZRO_ERR_INVALID, "plan_intersect: one plan has %zu parameters, the other %zu", from->n.params,
                         to->n.params);
    for (size_t i = 0; i < from->n.params; i++) {
        const zro__plan_param *a = &from->t.params[i], *b = &to->t.params[i];
        const char *first = ZRO__PARAM_NAME(a->name, i), *second = ZRO__PARAM_NAME(b->name, i);

        if (strcmp(first, second) != 0 || a->count != b->count || a->dtype != b->dtype)
            return zro__fail(
                ZRO_ERR_INVALID,
                "plan_intersect: parameter %zu is %s with %zu elements of %s in one plan, and %s with %zu of %s in the other",
                i, first, a->count, zro_dtype_name(a->dtype), second, b->count, zro_dtype_name(b->dtype));
    }
    return ZRO_OK;
}

/* Walks through the ranges of both plans together: each move begins where a range of either plan begins. */
zro_status zro_plan_intersect(const zro_plan *from, const zro_plan *to, zro_move *out, size_t capacity, size_t *n)
{
    zro_status st = from != NULL ? check_plan(to) : check_plan(from);
    size_t a = 0, b = 0;

    if (st == ZRO_OK && n == NULL)
        st = zro__fail(ZRO_ERR_INVALID, "plan_intersect: n is NULL");
    if (st == ZRO_OK)
        st = check_same(from, to);
    if (st != ZRO_OK)
        return st;
    for (*n = 0; a < from->n.ranges; ++*n) {
        const zro_range *x = &from->t.all[a], *y = &to->t.all[b];
        size_t first = x->first > y->first ? x->first : y->first;
        size_t x_end = x->first + x->count, y_end = y->first + y->count, end = x_end < y_end ? x_end : y_end;

        if (out != NULL && *n < capacity)
            out[*n] = (zro_move){ .param = x->param, .first = first, .count = end - first, .from = x->owner, .to = y->owner };
        a += x_end == end;
        b += y_end == end;
    }
    return ZRO_OK;
}
