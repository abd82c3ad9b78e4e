/* Delivery: see deliver.h. */
#include "step/deliver.h"

#include "base/hash.h"
#include "base/param.h"
#include "base/point.h"
#include "base/search.h"
#include "group/group.h"
#include "step/claim.h"

typedef struct zro__batch_item {
    const zro_param *param;
    size_t index;     /* of the parameter in the optimizer */
    size_t first;     /* the first element of the parameter that the part has */
    const char *name; /* the parameter's name, or NULL */
    size_t at;        /* the offset that the part had when the batch was made */
} zro__batch_item;

enum { GAP = 63 }; /* at most so many bytes lie between neighbours in memory that zro handed out */

/* ---- transfers ---- */

zro__xfer zro__delivery(zro__call call, zro_dtype type, void *array, size_t bytes, const zro__part *parts, size_t n_parts,
                        size_t count)
{
    return (zro__xfer){ .call = call,
                        .root = -1,
                        .count = count,
                        .parts = parts,
                        .n_parts = n_parts,
                        .in_type = type,
                        .out_type = type,
                        .in = array,
                        .out = array,
                        .in_bytes = bytes,
                        .out_bytes = bytes,
                        .to = ZRO__TO_ALL };
}

void zro__parts_append(zro__part *parts, size_t *n, size_t at, size_t count, int owner)
{
    if (*n == 0 || parts[*n - 1].owner != owner)
        parts[(*n)++] = (zro__part){ at, at, 0, owner, owner };
    parts[*n - 1].count += count;
}

/* ---- making ---- */

static int is_of(const zro__batch *b, const zro_param *p)
{
    return b->type == p->dtype && b->device == p->device && b->place == zro__param_place(p);
}

/* The batch of each range; returns how many batches there are. */
static size_t sort_out(const zro__owned *ranges, size_t n, zro__batch *batches, size_t *batch_of)
{
    size_t n_batches = 0, last = 0;

    for (size_t i = 0; i < n; i++) {
        const zro_param *p = ranges[i].param;

        if (n_batches == 0 || !is_of(&batches[last], p))
            for (last = 0; last < n_batches && !is_of(&batches[last], p);)
                last++;
        if (last == n_batches)
            batches[n_batches++] = (zro__batch){ .type = p->dtype, .device = p->device, .place = zro__param_place(p) };
        batches[last].n_parts += ranges[i].range->count > 0;
        batch_of[i] = last;
    }
    return n_batches;
}

static int by_place(const void *a, const void *b)
{
    size_t x = ((const zro__part *)a)->in_at, y = ((const zro__part *)b)->in_at;

    return (x > y) - (x < y);
}

/* Neighbours of one owner are one part; what is between them is padding. */
static void merge(zro__batch *b)
{
    const size_t size = zro_dtype_bytes(b->type);
    size_t n = 0;

    zro__sort(b->parts, b->n_parts, sizeof *b->parts, by_place);
    for (size_t i = 0; i < b->n_parts; i++) {
        const zro__part *next = &b->parts[i];
        zro__part *last = n > 0 ? &b->parts[n - 1] : NULL;

        if (last != NULL && last->owner == next->owner && next->in_at - (last->in_at + last->count * size) <= GAP)
            last->count = (next->in_at - last->in_at) / size + next->count;
        else
            b->parts[n++] = *next;
    }
    b->n_parts = n;
}

static void count_owners(zro__batch *b, int ranks)
{
    for (int r = 0; r < ranks; r++) {
        size_t i = 0;

        while (i < b->n_parts && b->parts[i].owner != r)
            i++;
        b->n_owners += i < b->n_parts;
    }
}

/* Turns the addresses of the parts, which stand in in_at, into offsets: from the start of the memory that zro handed out or,
 * for the program's arrays, from the lowest of them.  1 if the offsets are those of when the batch was made. */
static int make_relative(zro__batch *b)
{
    const size_t size = zro_dtype_bytes(b->type);
    uintptr_t low = b->place != NULL ? (uintptr_t)zro_memory_data(b->place->data) : UINTPTR_MAX, high = 0;
    int same = 1;

    for (size_t i = 0; i < b->n_parts; i++) {
        uintptr_t at = b->parts[i].in_at;

        low = at < low ? at : low;
        high = at + b->parts[i].count * size > high ? at + b->parts[i].count * size : high;
    }
    b->base = (char *)low;
    b->bytes = b->n_parts > 0 ? high - low : 0;
    for (size_t i = 0; i < b->n_parts; i++) {
        b->parts[i].in_at -= low;
        b->parts[i].out_at = b->parts[i].in_at;
        same &= b->place != NULL || b->parts[i].in_at == b->items[i].at;
    }
    return same;
}

/* Finds out where the program's arrays lie now; 1 if their offsets are those of when the batch was made. */
static int find_items(zro__batch *b)
{
    const size_t size = zro_dtype_bytes(b->type);

    for (size_t i = 0; i < b->n_parts; i++)
        b->parts[i].in_at = (uintptr_t)b->items[i].param->data + b->items[i].first * size;
    return make_relative(b);
}

static void fill(const zro__owned *ranges, size_t n, zro__batch *batches, const size_t *batch_of)
{
    for (size_t i = 0; i < n; i++) {
        const zro_range *r = ranges[i].range;
        zro__batch *b = &batches[batch_of[i]];
        const char *data = (const char *)ranges[i].param->data + r->first * zro_dtype_bytes(b->type);

        if (r->count == 0)
            continue;
        b->count += r->count;
        b->parts[b->n_parts] = (zro__part){ (uintptr_t)data, 0, r->count, r->owner, r->owner };
        if (b->place == NULL)
            b->items[b->n_parts] = (zro__batch_item){ ranges[i].param, r->param, r->first, ranges[i].name, 0 };
        b->n_parts++;
    }
}

static void finish(zro__batch *b, int ranks)
{
    (void)make_relative(b);
    for (size_t i = 0; b->place == NULL && i < b->n_parts; i++)
        b->items[i].at = b->parts[i].in_at;
    if (b->place != NULL) {
        zro__place_retain(b->place);
        b->offsets_agreed = 1;
        merge(b);
    }
    count_owners(b, ranks);
}

static uint64_t hash_offsets(uint64_t hash, const zro__batch *b)
{
    for (size_t i = 0; i < b->n_parts; i++) {
        uint64_t item[] = { b->parts[i].in_at, b->parts[i].count, (uint64_t)b->parts[i].owner };

        hash = zro__hash(hash, item, sizeof item);
    }
    return hash;
}

static uint64_t tag_of(const zro__batches *l)
{
    uint64_t tag = zro__hash(ZRO__HASH_START, &l->n, sizeof l->n);

    for (size_t k = 0; k < l->n; k++) {
        const zro__batch *b = &l->list[k];
        uint64_t head[] = { (uint64_t)b->type, (uint64_t)(int64_t)b->device, b->place != NULL, b->n_parts };

        tag = zro__hash(tag, head, sizeof head);
        tag = b->place != NULL ? hash_offsets(tag, b) : tag;
    }
    return tag;
}

static zro_status build(zro_group *group, zro__account *account, const zro__owned *ranges, size_t n, zro__batch *found,
                        size_t *batch_of, zro__batches *l)
{
    zro__part *parts = NULL;
    zro__batch_item *items = NULL;
    size_t n_parts = 0, n_items = 0;
    zro_status st;

    l->n = sort_out(ranges, n, found, batch_of);
    for (size_t k = 0; k < l->n; k++) {
        n_parts += found[k].n_parts;
        n_items += found[k].place == NULL ? found[k].n_parts : 0;
    }
    st = zro__arena_arrays(&l->arena, account, "lists of what is delivered",
                           (const zro__array[]){ { &l->list, l->n, sizeof *l->list },
                                                 { &parts, n_parts, sizeof *parts },
                                                 { &items, n_items, sizeof *items } },
                           3);
    if (st != ZRO_OK)
        return st;
    for (size_t k = 0; k < l->n; k++) {
        l->list[k] = found[k];
        l->list[k].parts = parts;
        l->list[k].items = items;
        l->list[k].n_parts = 0; /* counted again as they are filled in */
        parts += found[k].n_parts;
        items += found[k].place == NULL ? found[k].n_parts : 0;
    }
    fill(ranges, n, l->list, batch_of);
    for (size_t k = 0; k < l->n; k++) {
        finish(&l->list[k], group->ranks.board.size);
        if (l->list[k].place != NULL && l->list[k].place->kind == ZRO_MEMORY_ONCE) /* owners update it, and others have it */
            zro__late_own(group->ranks.view, group->ranks.late, l->list[k].base, l->list[k].bytes);
    }
    l->tag = tag_of(l);
    return ZRO_OK;
}

zro_status zro__batches_make(zro_group *group, zro__account *account, const zro__owned *ranges, size_t n, zro__batches **out)
{
    zro__batch *found = NULL;
    size_t *batch_of = NULL;
    const zro__array arrays[] = { { &found, n, sizeof *found }, { &batch_of, n, sizeof *batch_of } };
    zro__arena scratch = { 0 };
    zro_status st = zro__arena_arrays(&scratch, account, "lists of what is delivered", arrays, 2);

    *out = zro__alloc(account, ZRO__KIND_HANDLE, sizeof **out);
    if (st == ZRO_OK && *out == NULL)
        st = zro__fail(ZRO_ERR_MEMORY, "out of memory: lists of what is delivered");
    if (st == ZRO_OK)
        st = build(group, account, ranges, n, found, batch_of, *out);
    zro__arena_free(&scratch);
    return st;
}

void zro__batches_free(zro__batches *l)
{
    while (l != NULL) {
        zro__batches *next = l->next;

        for (size_t k = 0; l->list != NULL && k < l->n; k++)
            zro__place_release(l->list[k].place);
        zro__arena_free(&l->arena);
        zro__free(l);
        l = next;
    }
}

/* ---- what the ranks agree about ---- */

zro_status zro__batches_compare(zro_group *group, zro__batches *l, zro__call call, zro_status st)
{
    const zro__claim claim = { .what = "where the parameters lie",
                               .hash = st == ZRO_OK ? l->tag : 0,
                               .otherwise = "parameters lie at different places of the memory that zro handed out: call "
                                            "zro_params_alloc with the same lists of parameters on all ranks" };

    st = zro__claim_agree(&group->ranks.board, call, &claim, st);
    for (size_t k = 0; st == ZRO_OK && k < l->n; k++) {
        zro__batch *b = &l->list[k];

        if (b->place == NULL) {
            st = zro__is_same(&group->ranks.board, call, hash_offsets(ZRO__HASH_START, b), &b->offsets_agreed);
            b->offsets_differ = !b->offsets_agreed;
        } else if (b->place->kind == ZRO_MEMORY_ONCE) { /* it may exist once for other ranks than these */
            st = zro__is_same(&group->ranks.board, call, zro__locate(group->seat->view, b->base, b->bytes), &b->exists_once);
            b->exists_once &= group->ranks.one_machine;
        }
    }
    return st;
}

/* ---- delivering ---- */

static zro_status inspect(zro_group *group, zro__batch *b)
{
    const size_t size = zro_dtype_bytes(b->type);
    zro_status st = ZRO_OK;

    if (b->place != NULL)
        return zro__late_check(group->ranks.view, b->base, b->bytes);
    for (size_t i = 0; i < b->n_parts && st == ZRO_OK; i++) {
        const zro__batch_item *item = &b->items[i];

        if (item->param->data == NULL)
            st = zro__param_fail(ZRO_ERR_INVALID, item->name, item->index, "data is NULL");
        else
            st = zro__late_check(group->ranks.view, (const char *)item->param->data + item->first * size,
                                 b->parts[i].count * size);
    }
    if (st == ZRO_OK)
        b->offsets_differ = !find_items(b) || !b->offsets_agreed;
    return st;
}

zro_status zro__batches_inspect(zro_group *group, zro__batches *l)
{
    zro_status st = ZRO_OK;

    for (; l != NULL; l = l->next)
        for (size_t k = 0; k < l->n && st == ZRO_OK; k++)
            st = inspect(group, &l->list[k]);
    return st;
}

static zro_status deliver(zro_group *group, const zro__batch *b, uint64_t tag)
{
    zro__xfer x = zro__delivery(ZRO__CALL_PUBLISH, b->type, b->base, b->bytes, b->parts, b->n_parts, b->count);

    x.tag = tag;
    x.scattered = b->place == NULL || b->place->kind == ZRO_MEMORY_ONCE;
    x.offsets_differ = b->offsets_differ;
    (void)ZRO__POINT("deliver.batch");
    zro__count(&group->ranks.counters.deliveries, b->n_owners);
    return zro__xfer_run(&group->ranks, &x);
}

zro_status zro__batches_deliver(zro_group *group, zro__batches *l)
{
    zro_status st = ZRO_OK;
    int met = 0;

    for (; st == ZRO_OK && l != NULL; l = l->next)
        for (size_t k = 0; st == ZRO_OK && k < l->n; k++)
            if (!l->list[k].exists_once && l->list[k].n_parts > 0) {
                st = deliver(group, &l->list[k], l->tag);
                met = 1;
            }
    return st == ZRO_OK && !met ? zro__vote(&group->ranks.board, ZRO__CALL_PUBLISH, ZRO_OK) : st;
}

zro_status zro__deliver_param(zro_group *group, const zro_param *param, size_t index, int root)
{
    const zro__part part = { 0, 0, zro_param_count(param), root, root };
    zro__xfer x = zro__delivery(ZRO__CALL_PUBLISH, param->dtype, param->data, part.count * zro_dtype_bytes(param->dtype), &part,
                                1, part.count);

    x.root = root;
    x.tag = index;
    x.scattered = 1;
    return part.count > 0 ? zro__xfer_run(&group->ranks, &x) : ZRO_OK;
}
