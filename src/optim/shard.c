/* A shard: see shard.h. */
#include "optim/shard.h"

#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/kernels.h"
#include "base/param.h"
#include "base/status.h"
#include "optim/values.h"

static int has_16_bits(zro_dtype type)
{
    return type == ZRO_BF16 || type == ZRO_F16;
}

void *zro__shard_slot(const zro__part_group *group, const zro__piece *piece, size_t slot)
{
    size_t offset = slot == ZRO__MASTER ? piece->master : piece->offset;

    return group->slots[slot] != NULL && offset != SIZE_MAX ? (char *)group->slots[slot] + offset : NULL;
}

size_t zro__blocks_of(size_t count)
{
    return count > 0 ? (count - 1) / ZRO__BLOCK + 1 : 1;
}

/* ---- groups ---- */

/* Adds room for n elements at a border of a line of the caches; 0 if a size does not fit. */
static int add_bytes(size_t *total, size_t n, zro_dtype type)
{
    size_t bytes;

    return zro__size_mul(n, zro_dtype_bytes(type), &bytes) && zro__size_round(bytes, 64, &bytes)
           && zro__size_add(*total, bytes, total);
}

/* Fills in the pieces and what follows from their sizes; 0 if a size does not fit. */
static int lay_out(const zro__shard *shard, zro__part_group *g, const zro__run_of *runs)
{
    g->blocks[0] = shard->n_blocks;
    for (size_t i = 0; i < g->n; i++) {
        zro__piece *p = &g->pieces[i];

        p->param = runs[i].param;
        p->index = runs[i].index;
        p->first = runs[i].first;
        p->count = runs[i].count;
        p->block = runs[i].block;
        p->name = runs[i].name;
        p->offset = g->bytes;
        p->master = SIZE_MAX;
        p->data_type = p->param->dtype;
        p->grad_type = p->param->grad_dtype == ZRO_SAME ? p->data_type : p->param->grad_dtype;
        p->type = p->data_type == ZRO_F64 ? ZRO_F64 : ZRO_F32;
        g->blocks[i + 1] = g->blocks[i] + zro__blocks_of(p->count);
        if (!add_bytes(&g->bytes, p->count, p->type))
            return 0;
        if (shard->rule == NULL || shard->masters != ZRO_ON || !has_16_bits(p->data_type))
            continue;
        p->master = g->master_bytes;
        if (!add_bytes(&g->master_bytes, p->count, ZRO_F32))
            return 0;
    }
    return 1;
}

/* Slots that exist before the first step. */
static void begin_from_creation(const zro__shard *shard, zro__part_group *g)
{
    const zro_rule *rule = shard->rule;

    for (size_t s = 0; s < rule->n_slots; s++) {
        double init = zro__values_init(rule, s, g->values);

        if (rule->slots[s].from_creation != ZRO_ON || (zro__values_slots(rule, g->values) >> s & 1) == 0)
            continue;
        for (size_t i = 0; i < g->n; i++) {
            zro__piece *p = &g->pieces[i];
            char *to = zro__shard_slot(g, p, s);
            float init32 = (float)init;

            p->present |= (uint32_t)1 << s;
            if (rule->slots[s].kind != ZRO_SLOT_ARRAY)
                g->numbers[i * rule->n_slots + s] = init;
            for (size_t k = 0; to != NULL && init != 0 && k < p->count; k++)
                if (p->type == ZRO_F64)
                    memcpy(to + k * sizeof init, &init, sizeof init);
                else
                    memcpy(to + k * sizeof init32, &init32, sizeof init32);
        }
    }
}

static void free_group(zro__part_group *g)
{
    if (g == NULL)
        return;
    for (size_t s = 0; s <= ZRO__MASTER; s++)
        zro__free(g->slots[s]);
    zro__arena_free(&g->arena);
    zro__free(g);
}

static size_t bytes_of(const zro__part_group *g, size_t slot)
{
    return slot == ZRO__MASTER ? g->master_bytes : g->bytes;
}

static zro_status ensure(const zro__shard *shard, zro__part_group *g, const double *values, uint32_t more)
{
    uint32_t needed = 0;

    if (shard->rule == NULL)
        return ZRO_OK;
    for (size_t s = 0; s < shard->rule->n_slots; s++)
        if (shard->rule->slots[s].kind == ZRO_SLOT_ARRAY)
            needed |= (zro__values_slots(shard->rule, values) | more) & (uint32_t)1 << s;
    if (g->master_bytes > 0)
        needed |= (uint32_t)1 << ZRO__MASTER;
    for (size_t s = 0; s <= ZRO__MASTER; s++) {
        if ((needed >> s & 1) == 0 || g->slots[s] != NULL)
            continue;
        g->slots[s] = zro__alloc(shard->account, ZRO__KIND_STATE, bytes_of(g, s));
        if (g->slots[s] == NULL)
            return zro__fail(ZRO_ERR_MEMORY, "out of memory: %zu bytes of state (%s)", bytes_of(g, s),
                             s == ZRO__MASTER ? "master" : shard->rule->slots[s].name);
    }
    return ZRO_OK;
}

/* The group's tables, in one arena. */
static zro_status take_tables(const zro__shard *shard, zro__part_group *g)
{
    const size_t n_values = shard->rule != NULL ? shard->rule->n_hypers : 0;
    const size_t n_slots = shard->rule != NULL ? shard->rule->n_slots : 0;
    zro_status st;

    zro__arena_plan(&g->arena, n_values, sizeof *g->values);
    zro__arena_plan(&g->arena, g->n, sizeof *g->pieces);
    zro__arena_plan(&g->arena, g->n, n_slots * sizeof *g->numbers);
    zro__arena_plan(&g->arena, g->n + 1, sizeof *g->blocks);
    zro__arena_plan(&g->arena, g->n / 64 + 1, sizeof *g->active);
    st = zro__arena_init(&g->arena, shard->account, "a parameter group");
    if (st != ZRO_OK)
        return st;
    g->values = zro__arena_take(&g->arena, n_values, sizeof *g->values);
    g->pieces = zro__arena_take(&g->arena, g->n, sizeof *g->pieces);
    g->numbers = zro__arena_take(&g->arena, g->n, n_slots * sizeof *g->numbers);
    g->blocks = zro__arena_take(&g->arena, g->n + 1, sizeof *g->blocks);
    g->active = zro__arena_take(&g->arena, g->n / 64 + 1, sizeof *g->active);
    return ZRO_OK;
}

/* Room for one more in the list. */
static zro_status append(zro__shard *shard, zro__part_group *g)
{
    if (shard->n_groups == shard->room) {
        size_t room = 2 * shard->room + 4;
        zro__part_group **more = zro__alloc_array(shard->account, ZRO__KIND_HANDLE, room, sizeof(zro__part_group *));

        if (more == NULL)
            return zro__fail(ZRO_ERR_MEMORY, "out of memory: a list of %zu parameter groups", room);
        if (shard->n_groups > 0)
            memcpy(more, shard->groups, shard->n_groups * sizeof(zro__part_group *));
        zro__free(shard->groups);
        shard->groups = more;
        shard->room = room;
    }
    shard->groups[shard->n_groups++] = g;
    shard->n_blocks = g->blocks[g->n];
    return ZRO_OK;
}

zro_status zro__shard_add(zro__shard *shard, const double *values, size_t first_index, const zro__run_of *runs, size_t n)
{
    zro__part_group *g = zro__alloc(shard->account, ZRO__KIND_HANDLE, sizeof *g);
    zro_status st;

    if (g == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a parameter group");
    g->n = n;
    g->first_index = first_index;
    g->first_lr = NAN;
    st = take_tables(shard, g);
    if (st != ZRO_OK)
        goto fail;
    if (!lay_out(shard, g, runs)) {
        st = zro__fail(ZRO_ERR_MEMORY, "out of memory: the state of a parameter group is larger than memory can be");
        goto fail;
    }
    if (shard->rule != NULL) {
        memcpy(g->values, values, shard->rule->n_hypers * sizeof *values);
        st = ensure(shard, g, values, 0);
        if (st != ZRO_OK)
            goto fail;
        begin_from_creation(shard, g);
    }
    st = append(shard, g);
    if (st == ZRO_OK)
        return ZRO_OK;
fail:
    free_group(g);
    return st;
}

void zro__shard_drop(zro__shard *shard)
{
    zro__part_group *g = shard->groups[--shard->n_groups];

    shard->n_blocks = g->blocks[0];
    free_group(g);
}

zro_status zro__shard_ensure(zro__shard *shard, size_t group, const double *values, uint32_t more)
{
    return ensure(shard, shard->groups[group], values, more);
}

void zro__shard_free(zro__shard *shard)
{
    for (size_t i = 0; i < shard->n_groups; i++)
        free_group(shard->groups[i]);
    zro__free(shard->groups);
    memset(shard, 0, sizeof *shard);
}

/* The last group that does not begin behind the parameter; groups without pieces begin where the next one does. */
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

zro__piece *zro__shard_find(const zro__shard *shard, size_t index, zro__part_group **group)
{
    zro__part_group *g = shard->n_groups > 0 ? shard->groups[find_group(shard, index)] : NULL;
    size_t low = 0, high = g != NULL ? g->n : 0;

    while (low < high) { /* the first piece of this parameter or of a later one */
        size_t mid = low + (high - low) / 2;

        if (g->pieces[mid].index < index)
            low = mid + 1;
        else
            high = mid;
    }
    *group = g;
    return g != NULL && low < g->n && g->pieces[low].index == index ? &g->pieces[low] : NULL;
}

uint64_t zro__shard_bytes(const zro__shard *shard)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < shard->n_groups; i++) {
        const zro__part_group *g = shard->groups[i];

        for (size_t s = 0; s <= ZRO__MASTER; s++)
            bytes += g->slots[s] != NULL ? bytes_of(g, s) : 0;
        bytes += shard->rule != NULL ? g->n * shard->rule->n_slots * sizeof *g->numbers : 0;
    }
    return bytes;
}

/* ---- steps ---- */

/* Pairs with whoever says that a gradient is there: what it wrote before is seen. */
static int has_gradient(const zro_param *p)
{
    return p->requires_grad != 0 && __atomic_load_n(&p->grad_present, __ATOMIC_ACQUIRE) != 0;
}

zro_status zro__shard_look(zro__shard *shard)
{
    char name[ZRO__NAME_BYTES];

    shard->n_active = 0;
    for (size_t k = 0; k < shard->n_groups; k++) {
        zro__part_group *g = shard->groups[k];

        for (size_t i = 0; i < g->n; i++) {
            const zro__piece *p = &g->pieces[i];
            uint64_t bit = (uint64_t)1 << i % 64;

            if (i % 64 == 0)
                g->active[i / 64] = 0;
            if (!has_gradient(p->param))
                continue;
            if (p->count > 0 && (p->param->grad == NULL || p->param->data == NULL))
                return zro__fail(ZRO_ERR_INVALID, "parameter %s has a gradient, but its %s is NULL",
                                 zro__param_name(p->name, p->index, name), p->param->grad == NULL ? "grad" : "data");
            g->active[i / 64] |= bit;
            shard->n_active++;
        }
    }
    return ZRO_OK;
}

/* The last of blocks[0..n] that is not behind `block`. */
static size_t find_block(const size_t *blocks, size_t n, size_t block)
{
    size_t low = 0, high = n;

    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;

        if (blocks[mid] <= block)
            low = mid;
        else
            high = mid;
    }
    return low;
}

void zro__shard_walk(const zro__shard *shard, size_t first, size_t last, zro__walk_fn fn, void *ctx)
{
    for (size_t k = 0; k < shard->n_groups; k++) {
        zro__part_group *g = shard->groups[k];
        size_t i;

        if (g->n == 0 || g->blocks[g->n] <= first)
            continue;
        for (i = find_block(g->blocks, g->n, first); i < g->n && g->blocks[i] < last; i++) {
            zro__piece *p = &g->pieces[i];
            size_t from = first > g->blocks[i] ? (first - g->blocks[i]) * ZRO__BLOCK : 0;
            size_t to = last < g->blocks[i + 1] ? (last - g->blocks[i]) * ZRO__BLOCK : p->count;

            if (zro__piece_is_active(g, i))
                fn(ctx, g, p, from, to, g->blocks[i] + from / ZRO__BLOCK);
        }
        if (g->blocks[g->n] >= last)
            return;
    }
}
