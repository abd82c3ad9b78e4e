/* A shard: see shard.h. */
#include "optim/shard.h"

#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/kernels.h"
#include "base/param.h"
#include "base/search.h"
#include "base/status.h"
#include "optim/values.h"

void *zro__shard_slot(const zro__shard_group *group, const zro__piece *piece, size_t slot)
{
    size_t offset = slot == ZRO__MASTER ? piece->master : piece->offset;

    return group->slots[slot] != NULL && offset != SIZE_MAX ? (char *)group->slots[slot] + offset : NULL;
}

size_t zro__blocks_of(size_t count)
{
    return count > 0 ? (count - 1) / ZRO__BLOCK + 1 : 1;
}

/* ---- groups ---- */

/* Adds the bytes of n elements, rounded up to a line of the caches; 0 if a size does not fit. */
static int add_bytes(size_t *total, size_t n, zro_dtype type)
{
    size_t bytes;

    return zro__size_mul(n, zro_dtype_bytes(type), &bytes) && zro__size_round(bytes, 64, &bytes)
           && zro__size_add(*total, bytes, total);
}

/* Fills in the pieces and what follows from their sizes; 0 if a size does not fit. */
static int lay_out(const zro__shard *shard, zro__shard_group *g, const zro__owned_range *ranges)
{
    g->blocks[0] = shard->n_blocks;
    for (size_t i = 0; i < g->n; i++) {
        const zro__owned_range *r = &ranges[i];
        zro_dtype dtype = r->param->dtype;
        zro__piece *p = &g->pieces[i];

        *p = (zro__piece){
            .param = r->param,
            .index = r->index,
            .first = r->first,
            .count = r->count,
            .offset = g->bytes,
            .master = SIZE_MAX,
            .block = r->block,
            .name = r->name,
            .type = dtype == ZRO_F64 ? ZRO_F64 : ZRO_F32,
            .data_type = dtype,
            .grad_type = r->param->grad_dtype == ZRO_SAME ? dtype : r->param->grad_dtype,
        };
        g->blocks[i + 1] = g->blocks[i] + zro__blocks_of(p->count);
        if (!add_bytes(&g->bytes, p->count, p->type))
            return 0;
        if (shard->rule == NULL || shard->masters != ZRO_ON || zro_dtype_bytes(dtype) != 2)
            continue;
        p->master = g->master_bytes;
        if (!add_bytes(&g->master_bytes, p->count, ZRO_F32))
            return 0;
    }
    return 1;
}

/* Gives the slots that exist before the first step their first values. */
static void begin_from_creation(const zro__shard *shard, zro__shard_group *g)
{
    const zro_rule *rule = shard->rule;

    for (size_t s = 0; s < rule->n_slots; s++) {
        double init = zro__values_init(rule, s, g->values);

        if (rule->slots[s].from_creation != ZRO_ON || (zro__values_slots(rule, g->values) >> s & 1) == 0)
            continue;
        for (size_t i = 0; i < g->n; i++) {
            zro__piece *p = &g->pieces[i];
            void *to = zro__shard_slot(g, p, s);

            p->present |= (uint32_t)1 << s;
            if (rule->slots[s].kind != ZRO_SLOT_ARRAY)
                g->numbers[i * rule->n_slots + s] = init;
            for (size_t k = 0; to != NULL && init != 0 && k < p->count; k++)
                if (p->type == ZRO_F64)
                    ((double *)to)[k] = init;
                else
                    ((float *)to)[k] = (float)init;
        }
    }
}

static void free_group(zro__shard_group *g)
{
    for (size_t s = 0; s <= ZRO__MASTER; s++)
        zro__free(g->slots[s]);
    zro__arena_free(&g->arena);
    zro__free(g);
}

static size_t bytes_of(const zro__shard_group *g, size_t slot)
{
    return slot == ZRO__MASTER ? g->master_bytes : g->bytes;
}

zro_status zro__shard_ensure(zro__shard *shard, size_t group, const double *values, uint32_t more)
{
    const zro_rule *rule = shard->rule;
    zro__shard_group *g = shard->groups[group];
    uint32_t needed = 0;

    if (rule == NULL)
        return ZRO_OK;
    for (size_t s = 0; s < rule->n_slots; s++)
        if (rule->slots[s].kind == ZRO_SLOT_ARRAY)
            needed |= (zro__values_slots(rule, values) | more) & (uint32_t)1 << s;
    if (g->master_bytes > 0)
        needed |= (uint32_t)1 << ZRO__MASTER;
    for (size_t s = 0; s <= ZRO__MASTER; s++) {
        if ((needed >> s & 1) == 0 || g->slots[s] != NULL)
            continue;
        g->slots[s] = zro__alloc(shard->account, ZRO__KIND_STATE, bytes_of(g, s));
        if (g->slots[s] == NULL)
            return zro__fail(ZRO_ERR_MEMORY, "out of memory: %zu bytes of state (%s)", bytes_of(g, s),
                             s == ZRO__MASTER ? "master" : rule->slots[s].name);
        zro__populate_block(g->slots[s], bytes_of(g, s));
    }
    return ZRO_OK;
}

/* Takes the tables of a group, fills in its pieces, and puts it at the end of the list. */
static zro_status append(zro__shard *shard, zro__shard_group *g, const zro__owned_range *ranges)
{
    const size_t n_values = shard->rule != NULL ? shard->rule->n_hypers : 0;
    const size_t n_slots = shard->rule != NULL ? shard->rule->n_slots : 0;
    const zro__array tables[] = {
        { &g->values, n_values, sizeof *g->values }, { &g->next_values, n_values, sizeof *g->next_values },
        { &g->pieces, g->n, sizeof *g->pieces },     { &g->numbers, g->n, n_slots * sizeof *g->numbers },
        { &g->blocks, g->n + 1, sizeof *g->blocks }, { &g->active, g->n / 64 + 1, sizeof *g->active },
    };
    zro_status st = zro__arena_arrays(&g->arena, shard->account, "a parameter group", tables, sizeof tables / sizeof *tables);

    if (st != ZRO_OK)
        return st;
    if (!lay_out(shard, g, ranges))
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: the state of a parameter group has more bytes than memory can hold");
    if (!zro__grow(shard->account, &shard->groups, &shard->capacity, shard->n_groups + 1, sizeof *shard->groups))
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a list of %zu parameter groups", shard->n_groups + 1);
    shard->groups[shard->n_groups++] = g;
    shard->n_blocks = g->blocks[g->n];
    return ZRO_OK;
}

zro_status zro__shard_add(zro__shard *shard, const double *values, size_t first_index, const zro__owned_range *ranges, size_t n)
{
    zro__shard_group *g = zro__alloc(shard->account, ZRO__KIND_HANDLE, sizeof *g);
    zro_status st;

    if (g == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a parameter group");
    g->n = n;
    g->first_index = first_index;
    g->first_lr = NAN;
    st = append(shard, g, ranges);
    if (st != ZRO_OK) {
        free_group(g);
        return st;
    }
    if (shard->rule == NULL)
        return ZRO_OK;
    memcpy(g->values, values, shard->rule->n_hypers * sizeof *values);
    st = zro__shard_ensure(shard, shard->n_groups - 1, values, 0);
    if (st == ZRO_OK)
        begin_from_creation(shard, g);
    else
        zro__shard_drop(shard);
    return st;
}

void zro__shard_drop(zro__shard *shard)
{
    zro__shard_group *g = shard->groups[--shard->n_groups];

    shard->n_blocks = g->blocks[0];
    free_group(g);
}

void zro__shard_free(zro__shard *shard)
{
    for (size_t i = 0; i < shard->n_groups; i++)
        free_group(shard->groups[i]);
    zro__free(shard->groups);
    memset(shard, 0, sizeof *shard);
}

/* The last group that does not begin after the parameter; a group without parameters begins where the next one does. */
static size_t find_group(const zro__shard *shard, size_t index)
{
    size_t low = 0, high = shard->n_groups;

    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;

        if (shard->groups[mid]->first_index <= index)
            low = mid;
        else
            high = mid;
    }
    return low;
}

zro__piece *zro__shard_find(const zro__shard *shard, size_t index, zro__shard_group **group)
{
    zro__shard_group *g = *group = shard->n_groups > 0 ? shard->groups[find_group(shard, index)] : NULL;
    zro__piece *p;

    if (g == NULL || g->n == 0)
        return NULL;
    p = &g->pieces[zro__find_last(&g->pieces->index, sizeof *g->pieces, g->n, index)];
    return p->index == index ? p : NULL;
}

uint64_t zro__shard_bytes(const zro__shard *shard)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < shard->n_groups; i++) {
        const zro__shard_group *g = shard->groups[i];

        for (size_t s = 0; s <= ZRO__MASTER; s++)
            bytes += g->slots[s] != NULL ? bytes_of(g, s) : 0;
        bytes += shard->rule != NULL ? g->n * shard->rule->n_slots * sizeof *g->numbers : 0;
    }
    return bytes;
}

/* ---- steps ---- */

static zro_status scan(zro__shard *shard, zro__shard_group *g, const zro__piece *p)
{
    const size_t i = (size_t)(p - g->pieces);
    char name[ZRO__NAME_BYTES];

    if (!zro__param_has_grad(p->param))
        return ZRO_OK;
    if (p->count > 0 && (p->param->grad == NULL || p->param->data == NULL))
        return zro__fail(ZRO_ERR_INVALID, "parameter %s has a gradient, but its %s is NULL",
                         zro__param_name(p->name, p->index, name), p->param->grad == NULL ? "grad" : "data");
    g->active[i / 64] |= (uint64_t)1 << i % 64;
    shard->n_active++;
    return ZRO_OK;
}

void zro__shard_scan_none(zro__shard *shard)
{
    shard->n_active = 0;
    for (size_t k = 0; k < shard->n_groups; k++)
        memset(shard->groups[k]->active, 0, (shard->groups[k]->n + 63) / 64 * sizeof *shard->groups[k]->active);
}

zro_status zro__shard_scan_one(zro__shard *shard, size_t index)
{
    zro__shard_group *group = NULL;
    const zro__piece *piece = zro__shard_find(shard, index, &group);

    return scan(shard, group, piece);
}

zro_status zro__shard_scan(zro__shard *shard)
{
    zro_status st = ZRO_OK;

    zro__shard_scan_none(shard);
    for (size_t k = 0; st == ZRO_OK && k < shard->n_groups; k++)
        for (size_t i = 0; st == ZRO_OK && i < shard->groups[k]->n; i++)
            st = scan(shard, shard->groups[k], &shard->groups[k]->pieces[i]);
    return st;
}

void zro__shard_walk(const zro__shard *shard, size_t first, size_t last, zro__walk_fn fn, void *ctx)
{
    for (size_t k = 0; k < shard->n_groups; k++) {
        zro__shard_group *g = shard->groups[k];
        size_t i = zro__find_last(g->blocks, sizeof *g->blocks, g->n, first);

        if (g->n == 0 || g->blocks[g->n] <= first)
            continue;
        for (; i < g->n && g->blocks[i] < last; i++) {
            zro__piece *p = &g->pieces[i];
            size_t from = first > g->blocks[i] ? (first - g->blocks[i]) * ZRO__BLOCK : 0;
            size_t to = last < g->blocks[i + 1] ? (last - g->blocks[i]) * ZRO__BLOCK : p->count;

            if (zro__piece_is_active(g, i))
                fn(ctx, g, p, from, to);
        }
        if (g->blocks[g->n] >= last)
            return;
    }
}
