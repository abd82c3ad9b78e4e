/* Comparing the ranks when parameter groups are added: the same rule, settings, values and parameters, and the same owners.
 *
 * A few lines are compared as text, everything else as one hash.  Only if that differs, and then on all ranks, items are
 * compared one after another, so that the text can say which. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/param.h"
#include "base/status.h"
#include "group/group.h"
#include "zero/optim.h"

enum { ITEM_BYTES = 280 }; /* of a description, as much as a text shows of it */

/* The settings, which are the same for all groups. */
static void describe_settings(const zro_optim *opt, size_t first, char *text, size_t bytes)
{
    const zro__cycle *c = &opt->cycle;

    snprintf(text, bytes,
             "%s, %zu parameters in %zu groups, partition %d, views %d, masters %d, rounding %d, seed %" PRIu64
             ", clip norm %.17g (%g), clip value %.17g, skip %d, loss scale %d (%.9g, %.17g, %.17g, %u)",
             opt->rule != NULL ? opt->rule->name : "no rule", opt->n_params - first, c->update.shard.n_groups,
             (int)zro__plan_partition(opt->plan), (int)opt->bucket_views, (int)c->update.shard.masters, (int)c->update.rounding,
             c->update.seed, c->clip_norm, c->clip_type, c->clip_value, (int)c->skips, (int)c->scales, (double)c->scaler.scale,
             c->scaler.growth, c->scaler.backoff, (unsigned)c->scaler.interval);
}

/* The i-th of all groups, as far as it fits; then parameters. */
static void describe_group(const zro_optim *opt, size_t i, char *text, size_t bytes)
{
    size_t at = (size_t)snprintf(text, bytes, "parameter group %zu:", i);

    for (size_t v = 0; opt->rule != NULL && v < opt->rule->n_hypers && at < bytes; v++)
        at += (size_t)snprintf(text + at, bytes - at, " %s=%.17g", opt->rule->hypers[v].name,
                               opt->cycle.update.shard.groups[i]->values[v]);
}

static void describe_param(const zro_optim *opt, size_t i, char *text, size_t bytes)
{
    const zro__entry *e = &opt->params[i];
    const zro__place *place = zro__param_place(e->param);
    char name[ZRO__NAME_BYTES];
    int owner = -1;
    size_t at;

    if (zro_plan_owner(opt->plan, i, 0, &owner) != ZRO_OK)
        owner = -1;
    at = (size_t)snprintf(text, bytes,
                          "parameter %.100s: group %zu, %s, gradient %s, device %d, %s memory, first owner %d, shape",
                          zro__param_name(e->name, i, name), zro__plan_table(opt->plan)[i].group, zro_dtype_name(e->dtype),
                          zro_dtype_name(e->grad_dtype), (int)e->param->device,
                          place == NULL                    ? "the program's"
                          : place->kind == ZRO_MEMORY_ONCE ? "zro's one"
                                                           : "zro's",
                          owner);
    for (uint32_t d = 0; d < e->param->n_dims && at < bytes; d++)
        at += (size_t)snprintf(text + at, bytes - at, "%s%zu", d == 0 ? " " : "x", e->param->shape[d]);
}

/* Items are the groups, then the parameters from `first` on. */
static size_t count_items(const zro_optim *opt, size_t first)
{
    return zro_optim_groups(opt) + opt->n_params - first;
}

static void describe_item(const zro_optim *opt, size_t first, size_t i, char *text)
{
    const size_t n = zro_optim_groups(opt);

    if (i < n)
        describe_group(opt, i, text, ITEM_BYTES);
    else
        describe_param(opt, first + i - n, text, ITEM_BYTES);
}

/* The same things as the texts have, without the texts.  Most plans follow from these; not those that the program has a hand
 * in. */
static uint64_t hash_of(const zro_optim *opt, size_t first)
{
    const size_t n_values = opt->rule != NULL ? opt->rule->n_hypers : 0;
    const zro_range *ranges = NULL;
    uint64_t hash = ZRO__HASH_START;
    size_t n = 0;

    for (size_t k = 0; k < zro_optim_groups(opt); k++)
        hash = zro__hash(hash, opt->cycle.update.shard.groups[k]->values, n_values * sizeof(double));
    for (size_t i = first; i < opt->n_params; i++) {
        const zro__entry *e = &opt->params[i];
        const zro__place *place = zro__param_place(e->param);
        uint64_t item[] = { zro__plan_table(opt->plan)[i].group,
                            (uint64_t)e->dtype,
                            (uint64_t)e->grad_dtype,
                            (uint64_t)(int64_t)e->param->device,
                            place != NULL ? 1 + (uint64_t)place->kind : 0,
                            e->param->n_dims };

        hash = zro__hash(hash, item, sizeof item);
        hash = zro__hash(hash, e->param->shape, e->param->n_dims * sizeof e->param->shape[0]);
        hash = zro__hash(hash, e->name != NULL ? e->name : "", e->name != NULL ? strlen(e->name) : 0);
    }
    if (zro__plan_partition(opt->plan) == ZRO_PARTITION_FLAT || zro__plan_partition(opt->plan) == ZRO_PARTITION_GREEDY
        || zro_plan_ranges(opt->plan, ZRO_ALL, &ranges, &n) != ZRO_OK)
        n = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t item[] = { ranges[i].param, ranges[i].first, (uint64_t)ranges[i].owner };

        hash = zro__hash(hash, item, sizeof item);
    }
    return hash;
}

static zro_status find_difference(const zro_optim *opt, zro_group *group, size_t first, zro__call call)
{
    char text[ITEM_BYTES];
    uint64_t number = 0;
    zro_status st = ZRO_OK;

    for (size_t i = 0; st == ZRO_OK && i < count_items(opt, first); i++) {
        describe_item(opt, first, i, text);
        st = zro__agree(&group->board, call, "the ranks' optimizers", text, &number, ZRO_OK);
    }
    return st != ZRO_OK
               ? st
               : zro__fail(ZRO_ERR_MISMATCH, "the ranks' optimizers differ in who owns what, or in something too long to show");
}

zro_status zro__optim_compare(const zro_optim *opt, zro_group *group, size_t first, zro__call call, zro_status st)
{
    char text[512] = "";
    uint64_t number = 0;
    int same = 1;
    zro_status entered = zro__enter(group);

    if (entered != ZRO_OK)
        return entered;
    if (st == ZRO_OK)
        describe_settings(opt, first, text, sizeof text);
    st = zro__agree(&group->board, call, "the ranks' optimizers", text, &number, st);
    if (st == ZRO_OK)
        st = zro__is_same(group, hash_of(opt, first), &same);
    if (st == ZRO_OK && !same)
        st = find_difference(opt, group, first, call);
    return zro__leave(group, st);
}
