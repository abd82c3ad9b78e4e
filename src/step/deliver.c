/* Delivery: see deliver.h. */
#include "step/deliver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/param.h"
#include "base/point.h"
#include "group/group.h"

typedef struct zro__lot_item {
    const zro_param *param;
    size_t index, first; /* of the parameter; elements */
    const char *name;    /* of the parameter, or NULL */
    size_t at;           /* bytes from the lot's start, as of its making */
} zro__lot_item;

enum { GAP = 63 }; /* bytes between neighbours in handed out memory */

/* ---- making ---- */

static int is_of(const zro__lot *lot, const zro_param *p)
{
    return lot->type == p->dtype && lot->device == p->device && lot->place == zro__param_place(p);
}

/* The lot of each range; returns how many lots there are. */
static size_t sort_out(const zro__owned *ranges, size_t n, zro__lot *lots, size_t *lot_of)
{
    size_t n_lots = 0, last = 0;

    for (size_t i = 0; i < n; i++) {
        const zro_param *p = ranges[i].param;

        if (n_lots == 0 || !is_of(&lots[last], p))
            for (last = 0; last < n_lots && !is_of(&lots[last], p);)
                last++;
        if (last == n_lots) {
            lots[n_lots] = (zro__lot){ .type = p->dtype, .device = p->device, .place = zro__param_place(p) };
            n_lots++;
        }
        lots[last].n_parts += ranges[i].range->count > 0;
        lot_of[i] = last;
    }
    return n_lots;
}

static int by_place(const void *a, const void *b)
{
    size_t x = ((const zro__part *)a)->in_at, y = ((const zro__part *)b)->in_at;

    return (x > y) - (x < y);
}

/* Neighbours of one owner are one part; what is between them is padding. */
static void merge(zro__lot *lot)
{
    const size_t size = zro_dtype_bytes(lot->type);
    size_t n = 0, sorted = 1; /* they often are */

    while (sorted < lot->n_parts && lot->parts[sorted - 1].in_at < lot->parts[sorted].in_at)
        sorted++;
    if (sorted < lot->n_parts)
        qsort(lot->parts, lot->n_parts, sizeof *lot->parts, by_place);
    for (size_t i = 0; i < lot->n_parts; i++) {
        const zro__part *next = &lot->parts[i];
        zro__part *last = n > 0 ? &lot->parts[n - 1] : NULL;

        if (last != NULL && last->owner == next->owner && next->in_at - (last->in_at + last->count * size) <= GAP)
            last->count = (next->in_at - last->in_at) / size + next->count;
        else
            lot->parts[n++] = *next;
    }
    lot->n_parts = n;
}

static void count_owners(zro__lot *lot, int ranks)
{
    for (int r = 0; r < ranks; r++) {
        size_t i = 0;

        while (i < lot->n_parts && lot->parts[i].owner != r)
            i++;
        lot->n_owners += i < lot->n_parts;
    }
}

/* Makes the parts' addresses, which stand in in_at, relative to the lowest; 1 if they are as when the lot was made. */
static int make_relative(zro__lot *lot)
{
    const size_t size = zro_dtype_bytes(lot->type);
    uintptr_t low = UINTPTR_MAX, high = 0;
    int same = 1;

    for (size_t i = 0; i < lot->n_parts; i++) {
        uintptr_t at = lot->parts[i].in_at;

        low = at < low ? at : low;
        high = at + lot->parts[i].count * size > high ? at + lot->parts[i].count * size : high;
    }
    lot->base = (char *)low;
    lot->bytes = high - low;
    for (size_t i = 0; i < lot->n_parts; i++) {
        lot->parts[i].in_at -= low;
        lot->parts[i].out_at = lot->parts[i].in_at;
        same &= lot->parts[i].in_at == lot->items[i].at;
    }
    return same;
}

/* Where a lot's arrays lie now. */
static int find_items(zro__lot *lot)
{
    const size_t size = zro_dtype_bytes(lot->type);

    for (size_t i = 0; i < lot->n_parts; i++)
        lot->parts[i].in_at = (uintptr_t)lot->items[i].param->data + lot->items[i].first * size;
    return make_relative(lot);
}

/* Parts of the memory that zro handed out. */
static void finish_placed(zro__lot *lot)
{
    const size_t size = zro_dtype_bytes(lot->type);

    zro__place_retain(lot->place);
    lot->base = zro_memory_data(lot->place->data);
    lot->agreed = 1;
    merge(lot);
    for (size_t i = 0; i < lot->n_parts; i++) {
        size_t end = lot->parts[i].in_at + lot->parts[i].count * size;

        lot->parts[i].out_at = lot->parts[i].in_at;
        lot->bytes = end > lot->bytes ? end : lot->bytes;
    }
}

static void fill(const zro__owned *ranges, size_t n, zro__lot *lots, const size_t *lot_of)
{
    for (size_t i = 0; i < n; i++) {
        const zro_range *r = ranges[i].range;
        zro__lot *lot = &lots[lot_of[i]];
        const size_t size = zro_dtype_bytes(lot->type);
        const char *data = (const char *)ranges[i].param->data + r->first * size;
        size_t k = lot->n_parts;

        if (r->count == 0)
            continue;
        lot->count += r->count;
        lot->parts[k] = (zro__part){ (uintptr_t)data, 0, r->count, r->owner, r->owner };
        if (lot->place != NULL)
            lot->parts[k].in_at -= (uintptr_t)zro_memory_data(lot->place->data);
        else
            lot->items[k] = (zro__lot_item){ ranges[i].param, r->param, r->first, ranges[i].name, 0 };
        lot->n_parts++;
    }
}

static uint64_t tag_of(const zro__lots *l)
{
    uint64_t tag = zro__hash(ZRO__HASH_START, &l->n, sizeof l->n);

    for (size_t k = 0; k < l->n; k++) {
        const zro__lot *lot = &l->lots[k];
        uint64_t head[] = { (uint64_t)lot->type, (uint64_t)(int64_t)lot->device, lot->place != NULL, lot->n_parts };

        tag = zro__hash(tag, head, sizeof head);
        for (size_t i = 0; lot->place != NULL && i < lot->n_parts; i++)
            tag = zro__hash(tag, &lot->parts[i].in_at, sizeof lot->parts[i].in_at);
    }
    return tag;
}

static zro_status build(zro_group *group, zro__account *account, const zro__owned *ranges, size_t n, zro__lot *lots,
                        size_t *lot_of, zro__lots *l)
{
    zro_status st;

    l->n = sort_out(ranges, n, lots, lot_of);
    zro__arena_plan(&l->arena, l->n, sizeof *l->lots);
    for (size_t k = 0; k < l->n; k++) {
        zro__arena_plan(&l->arena, lots[k].n_parts, sizeof *lots[k].parts);
        zro__arena_plan(&l->arena, lots[k].place == NULL ? lots[k].n_parts : 0, sizeof *lots[k].items);
    }
    st = zro__arena_init(&l->arena, account, "lists of what is delivered");
    if (st != ZRO_OK)
        return st;
    l->lots = zro__arena_take(&l->arena, l->n, sizeof *l->lots);
    for (size_t k = 0; k < l->n; k++) {
        zro__lot *lot = &l->lots[k];

        *lot = lots[k];
        lot->parts = zro__arena_take(&l->arena, lots[k].n_parts, sizeof *lot->parts);
        lot->items = zro__arena_take(&l->arena, lots[k].place == NULL ? lots[k].n_parts : 0, sizeof *lot->items);
        lot->n_parts = 0;
    }
    fill(ranges, n, l->lots, lot_of);
    for (size_t k = 0; k < l->n; k++) {
        zro__lot *lot = &l->lots[k];

        if (lot->place != NULL)
            finish_placed(lot);
        else
            (void)make_relative(lot);
        for (size_t i = 0; lot->place == NULL && i < lot->n_parts; i++)
            lot->items[i].at = lot->parts[i].in_at;
        count_owners(lot, group->board.size);
    }
    l->tag = tag_of(l);
    return ZRO_OK;
}

zro_status zro__lots_make(zro_group *group, zro__account *account, const zro__owned *ranges, size_t n, zro__lots **out)
{
    zro__lots *l = zro__alloc(account, ZRO__KIND_HANDLE, sizeof *l);
    zro__lot *lots = zro__alloc_array(account, ZRO__KIND_HANDLE, n, sizeof *lots);
    size_t *lot_of = zro__alloc_array(account, ZRO__KIND_HANDLE, n, sizeof *lot_of);
    zro_status st;

    *out = l;
    if (l == NULL || lots == NULL || lot_of == NULL)
        st = zro__fail(ZRO_ERR_MEMORY, "out of memory: lists of what is delivered");
    else
        st = build(group, account, ranges, n, lots, lot_of, l);
    zro__free(lots);
    zro__free(lot_of);
    return st;
}

void zro__lots_free(zro__lots *l)
{
    while (l != NULL) {
        zro__lots *next = l->next;

        for (size_t k = 0; l->lots != NULL && k < l->n; k++)
            zro__place_release(l->lots[k].place);
        zro__arena_free(&l->arena);
        zro__free(l);
        l = next;
    }
}

/* ---- what the ranks agree about ---- */

static uint64_t hash_of_offsets(const zro__lot *lot)
{
    uint64_t hash = ZRO__HASH_START;

    for (size_t i = 0; i < lot->n_parts; i++)
        hash = zro__hash(hash, &lot->parts[i].in_at, sizeof lot->parts[i].in_at);
    return hash;
}

zro_status zro__lots_compare(zro_group *group, zro__lots *l, zro__call call, zro_status st)
{
    char text[80] = "";
    uint64_t number = 0;

    if (st == ZRO_OK)
        snprintf(text, sizeof text, "%zu lots arranged as %016llx", l->n, (unsigned long long)l->tag);
    st = zro__agree(&group->board, call, "where the parameters lie", text, &number, st);
    for (size_t k = 0; st == ZRO_OK && k < l->n; k++) {
        zro__lot *lot = &l->lots[k];

        if (lot->place == NULL) {
            st = zro__is_same(group, hash_of_offsets(lot), &lot->agreed);
            lot->apart = !lot->agreed;
        } else if (lot->place->kind == ZRO_MEMORY_ONCE) { /* but perhaps for other ranks than these */
            st = zro__is_same(group, zro__locate(group->seat->view, lot->base, lot->bytes), &lot->once);
            lot->once &= group->one_machine;
        }
    }
    return st;
}

/* ---- delivering ---- */

zro_status zro__lots_look(zro__lots *l)
{
    char name[ZRO__NAME_BYTES];

    for (; l != NULL; l = l->next)
        for (size_t k = 0; k < l->n; k++) {
            zro__lot *lot = &l->lots[k];

            if (lot->place != NULL)
                continue;
            for (size_t i = 0; i < lot->n_parts; i++)
                if (lot->items[i].param->data == NULL)
                    return zro__fail(ZRO_ERR_INVALID, "parameter %s: data is NULL",
                                     zro__param_name(lot->items[i].name, lot->items[i].index, name));
            lot->apart = !find_items(lot) || !lot->agreed;
        }
    return ZRO_OK;
}

static zro_status deliver(zro_group *group, const zro__lot *lot, uint64_t tag)
{
    const zro__xfer x = { .call = ZRO__CALL_PUBLISH,
                          .root = -1,
                          .count = lot->count,
                          .tag = tag,
                          .parts = lot->parts,
                          .n_parts = lot->n_parts,
                          .in_type = lot->type,
                          .out_type = lot->type,
                          .in = lot->base,
                          .out = lot->base,
                          .in_bytes = lot->bytes,
                          .out_bytes = lot->bytes,
                          .to = ZRO__TO_ALL,
                          .scattered = lot->place == NULL || lot->place->kind == ZRO_MEMORY_ONCE,
                          .apart = lot->apart };

    (void)ZRO__POINT("deliver.lot");
    zro__count(&group->counters.deliveries, lot->n_owners);
    return zro__xfer_run(group, &x);
}

zro_status zro__lots_deliver(zro_group *group, zro__lots *l)
{
    zro_status st = ZRO_OK;
    int met = 0;

    for (; st == ZRO_OK && l != NULL; l = l->next)
        for (size_t k = 0; st == ZRO_OK && k < l->n; k++)
            if (!l->lots[k].once && l->lots[k].n_parts > 0) {
                st = deliver(group, &l->lots[k], l->tag);
                met = 1;
            }
    return st == ZRO_OK && !met ? zro__vote(&group->board, ZRO__CALL_PUBLISH, ZRO_OK) : st;
}
