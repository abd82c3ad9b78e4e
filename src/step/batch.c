/* Batches: see batch.h. */
#include "step/batch.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/param.h"
#include "base/point.h"
#include "base/search.h"
#include "group/group.h"
#include "step/claim.h"

enum { GAP = 63 }; /* at most so many bytes lie between neighbours in memory that zro handed out */

#define BOTH (ZRO__HEADER_IN_SLOW | ZRO__HEADER_OUT_SLOW)

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

/* ---- ranges ---- */

size_t zro__cut_ranges(const zro_param *params, const size_t *index, size_t n, int ranks, zro_range *out)
{
    size_t total = 0, at = 0, end = 0, first, length, n_out = 0;
    int owner = -1;

    for (size_t i = 0; i < n; i++)
        total += zro_param_count(&params[index[i]]);
    for (size_t i = 0; i < n; i++) {
        const size_t count = zro_param_count(&params[index[i]]);
        size_t done = 0;

        do {
            size_t some;

            while (at == end && owner < ranks - 1) {
                zro__cut_even(total, ranks, ++owner, &first, &length);
                end = first + length;
            }
            some = count - done < end - at ? count - done : end - at;
            out[n_out++] = (zro_range){ .param = index[i], .first = done, .count = some, .owner = owner };
            done += some;
            at += some;
        } while (done < count);
    }
    return n_out;
}

/* ---- making ---- */

/* A batch for a parameter, without parts.  Where gradients are read, `place` is NULL: they are found anew before each transfer.
 * `once` keeps data that exist once apart from others: else every rank would write them. */
static zro__batch batch_for(const zro__batches *l, const zro_param *p)
{
    zro__place *place = l->to == ZRO__DATA ? zro__param_place(p) : NULL;

    return (zro__batch){ .in_type = zro__side_type(p, l->from),
                         .out_type = zro__side_type(p, l->to),
                         .device = p->device,
                         .place = l->from == ZRO__DATA ? place : NULL,
                         .once = place != NULL && place->kind == ZRO_MEMORY_ONCE ? place : NULL };
}

static int is_alike(const zro__batch *a, const zro__batch *b)
{
    return a->in_type == b->in_type && a->out_type == b->out_type && a->device == b->device && a->place == b->place
           && a->once == b->once;
}

/* Data without elements need not travel; gradients without elements have a bit all the same. */
static int takes_part(const zro__batches *l, const zro__owned *o)
{
    return o->range->count > 0 || l->from == ZRO__GRADS;
}

/* The batch of each range; returns how many batches there are. */
static size_t sort_out(const zro__batches *l, const zro__owned *ranges, size_t n, zro__batch *batches, size_t *batch_of)
{
    size_t n_batches = 0, last = 0;

    for (size_t i = 0; i < n; i++) {
        const zro__batch like = batch_for(l, ranges[i].param);

        if (n_batches == 0 || !is_alike(&batches[last], &like))
            for (last = 0; last < n_batches && !is_alike(&batches[last], &like);)
                last++;
        if (last == n_batches)
            batches[n_batches++] = like;
        batches[last].n_parts += (size_t)takes_part(l, &ranges[i]);
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
    const size_t size = zro_dtype_bytes(b->in_type);
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

        while (i < b->n_parts && (b->parts[i].owner != r || b->parts[i].count == 0))
            i++;
        b->n_owners += i < b->n_parts;
    }
}

/* Memory that zro handed out: parts are relative to its start. */
static void lay_out(zro__batch *b)
{
    const size_t size = zro_dtype_bytes(b->in_type);
    const uintptr_t base = (uintptr_t)zro_memory_data(b->place->data);

    b->in = b->out = (char *)base;
    for (size_t i = 0; i < b->n_parts; i++) {
        size_t end;

        b->parts[i].out_at = b->parts[i].in_at -= base;
        end = b->parts[i].in_at + b->parts[i].count * size;
        b->in_bytes = b->out_bytes = end > b->in_bytes ? end : b->in_bytes;
    }
}

/* Finds one side of the arrays where they are now.  1 if their offsets are those of when the batch was made; otherwise, and when it is
 * being made, the parts get other offsets, from the lowest address on. */
static int find_side(zro__batch *b, zro__side side, uint32_t slow, int making)
{
    const int is_in = slow == ZRO__HEADER_IN_SLOW;
    const size_t size = zro_dtype_bytes(is_in ? b->in_type : b->out_type);
    uintptr_t base = 0, low = UINTPTR_MAX, high = 0;
    int same = !making;

    for (size_t i = 0; i < b->n_parts; i++) {
        const zro__batch_item *item = &b->items[i];
        const size_t at = is_in ? item->in_at : item->out_at;
        uintptr_t here = (uintptr_t)*zro__side_array(item->param, side);

        if (here == 0 || b->parts[i].count == 0)
            continue;
        here += item->first * size;
        base = base == 0 ? here - at : base;
        same &= here == base + at;
        low = here < low ? here : low;
        high = here + b->parts[i].count * size > high ? here + b->parts[i].count * size : high;
    }
    base = same ? base : high > 0 ? low : 0;
    for (size_t i = 0; (!same || b->slow & slow) && i < b->n_parts; i++) { /* otherwise they are what they were */
        const zro__batch_item *item = &b->items[i];
        uintptr_t here = (uintptr_t)*zro__side_array(item->param, side);
        size_t at = same                                 ? (is_in ? item->in_at : item->out_at)
                    : here != 0 && b->parts[i].count > 0 ? here + item->first * size - base
                                                         : 0;

        *(is_in ? &b->parts[i].in_at : &b->parts[i].out_at) = at;
    }
    *(is_in ? &b->in : &b->out) = (char *)base;
    *(is_in ? &b->in_bytes : &b->out_bytes) = high > 0 ? high - base : 0;
    return same;
}

/* Returns the sides whose offsets are others than when the batch was made. */
static uint32_t find_arrays(const zro__batches *l, zro__batch *b, int making)
{
    const int same_in = find_side(b, l->from, ZRO__HEADER_IN_SLOW, making);
    const uint32_t moved = same_in ? 0 : ZRO__HEADER_IN_SLOW;

    if (l->to != l->from)
        return moved | (find_side(b, l->to, ZRO__HEADER_OUT_SLOW, making) ? 0 : ZRO__HEADER_OUT_SLOW);
    b->out = b->in;
    b->out_bytes = b->in_bytes;
    for (size_t i = 0; (!same_in || b->slow != 0) && i < b->n_parts; i++)
        b->parts[i].out_at = b->parts[i].in_at;
    return same_in ? 0 : BOTH;
}

static void fill(const zro__batches *l, const zro__owned *ranges, size_t n, zro__batch *batches, const size_t *batch_of)
{
    for (size_t i = 0; i < n; i++) {
        const zro_range *r = ranges[i].range;
        zro__batch *b = &batches[batch_of[i]];

        if (!takes_part(l, &ranges[i]))
            continue;
        b->count += r->count;
        b->parts[b->n_parts] = (zro__part){ 0, 0, r->count, r->owner, r->owner };
        if (b->place != NULL)
            b->parts[b->n_parts].in_at = (uintptr_t)ranges[i].param->data + r->first * zro_dtype_bytes(b->in_type);
        else
            b->items[b->n_parts] = (zro__batch_item){ ranges[i].param, r->param, r->first, ranges[i].name, 0, 0 };
        b->n_parts++;
    }
}

static void finish(const zro__batches *l, zro__batch *b, int ranks)
{
    if (b->place != NULL) {
        zro__place_retain(b->place);
        lay_out(b);
        merge(b);
    } else {
        (void)find_arrays(l, b, 1);
        for (size_t i = 0; i < b->n_parts; i++) {
            b->items[i].in_at = b->parts[i].in_at;
            b->items[i].out_at = b->parts[i].out_at;
        }
    }
    count_owners(b, ranks);
}

static uint64_t hash_offsets(uint64_t hash, const zro__batch *b, uint32_t side)
{
    for (size_t i = 0; i < b->n_parts; i++) {
        uint64_t item[] = { side == ZRO__HEADER_IN_SLOW ? b->parts[i].in_at : b->parts[i].out_at, b->parts[i].count,
                            (uint64_t)b->parts[i].owner };

        hash = zro__hash(hash, item, sizeof item);
    }
    return hash;
}

static uint64_t tag_of(const zro__batches *l)
{
    uint64_t tag = zro__hash(ZRO__HASH_START, &l->n, sizeof l->n);

    for (size_t k = 0; k < l->n; k++) {
        const zro__batch *b = &l->list[k];
        uint64_t head[] = { (uint64_t)b->in_type, (uint64_t)b->out_type, (uint64_t)(int64_t)b->device, b->place != NULL,
                            b->n_parts };

        tag = zro__hash(tag, head, sizeof head);
        tag = b->place != NULL ? hash_offsets(tag, b, ZRO__HEADER_IN_SLOW) : tag;
    }
    return tag;
}

static size_t words_of(const zro__batches *l, const zro__batch *b)
{
    return l->from == ZRO__GRADS ? (b->n_parts + 63) / 64 : 0;
}

/* Words for the bits of all ranks, where there are too many for a payload. */
static size_t gathered_of(const zro__batches *l, const zro__batch *b, size_t ranks)
{
    return b->n_parts > ZRO__MEETING_PARTS ? ranks * words_of(l, b) : 0;
}

static zro_status build(zro_group *group, zro__account *account, const zro__owned *ranges, size_t n, zro__batch *found,
                        size_t *batch_of, zro__batches *l)
{
    const size_t ranks = (size_t)group->ranks.board.size;
    zro__part *parts = NULL;
    zro__batch_item *items = NULL;
    uint64_t *words = NULL;
    size_t n_parts = 0, n_items = 0, n_words = 0;
    zro_status st;

    l->n = sort_out(l, ranges, n, found, batch_of);
    for (size_t k = 0; k < l->n; k++) {
        n_parts += found[k].n_parts;
        n_items += found[k].place == NULL ? found[k].n_parts : 0;
        n_words += 2 * words_of(l, &found[k]) + gathered_of(l, &found[k], ranks);
    }
    st = zro__arena_arrays(&l->arena, account, "lists of what is delivered",
                           (const zro__array[]){ { &l->list, l->n, sizeof *l->list },
                                                 { &parts, n_parts, sizeof *parts },
                                                 { &items, n_items, sizeof *items },
                                                 { &words, n_words, sizeof *words } },
                           4);
    if (st != ZRO_OK)
        return st;
    for (size_t k = 0; k < l->n; k++) {
        zro__batch *b = &l->list[k];

        *b = found[k];
        b->parts = parts;
        b->items = items;
        b->present = words;
        b->any = b->present + words_of(l, b);
        b->gathered = gathered_of(l, b, ranks) > 0 ? b->any + words_of(l, b) : NULL;
        parts += b->n_parts;
        items += b->place == NULL ? b->n_parts : 0;
        words = b->any + words_of(l, b) + gathered_of(l, b, ranks);
        b->n_parts = 0; /* counted again as they are filled in */
    }
    fill(l, ranges, n, l->list, batch_of);
    for (size_t k = 0; k < l->n; k++) {
        zro__batch *b = &l->list[k];

        finish(l, b, (int)ranks);
        if (b->place != NULL && b->place->kind == ZRO_MEMORY_ONCE) /* owners update it, and others have it */
            zro__late_own(group->ranks.view, group->ranks.late, b->out, b->out_bytes);
    }
    l->tag = tag_of(l);
    return ZRO_OK;
}

zro_status zro__batches_make(zro_group *group, zro__account *account, zro__side from, zro__side to, const zro__owned *ranges,
                             size_t n, zro__batches **out)
{
    zro__batch *found = NULL;
    size_t *batch_of = NULL;
    const zro__array arrays[] = { { &found, n, sizeof *found }, { &batch_of, n, sizeof *batch_of } };
    zro__arena scratch = { 0 };
    zro_status st = zro__arena_arrays(&scratch, account, "lists of what is delivered", arrays, 2);

    *out = zro__alloc(account, ZRO__KIND_HANDLE, sizeof **out);
    if (st == ZRO_OK && *out == NULL)
        st = zro__fail(ZRO_ERR_MEMORY, "out of memory: lists of what is delivered");
    if (st == ZRO_OK) {
        (*out)->from = from;
        (*out)->to = to;
        st = build(group, account, ranges, n, found, batch_of, *out);
    }
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
        zro__arena_free(&l->lent);
        zro__free(l);
        l = next;
    }
}

size_t zro__batches_count(const zro__batches *l)
{
    size_t n_parts = 0;

    for (size_t k = 0; k < l->n; k++)
        n_parts += l->list[k].n_parts;
    return n_parts;
}

zro_status zro__batches_lend(zro__batches *l, zro__account *account, const zro__staging *staging)
{
    for (; staging != NULL && l != NULL; l = l->next) {
        size_t *at = NULL;
        const zro__array array = { &at, zro__batches_count(l) + 1, sizeof *at };
        zro_status st;

        if (l->staging != NULL)
            continue;
        st = zro__arena_arrays(&l->lent, account, "where staged gradients lie", &array, 1);
        if (st != ZRO_OK)
            return st;
        for (size_t k = 0; k < l->n; k++) {
            zro__batch *b = &l->list[k];

            b->lent_at = at;
            for (size_t i = 0; i < b->n_parts; i++)
                *at++ = staging->at[zro__staging_index(staging, b->items[i].param)]
                        + b->items[i].first * zro_dtype_bytes(b->in_type);
        }
        l->staging = staging;
    }
    return ZRO_OK;
}

/* ---- what the ranks agree about ---- */

static zro_status compare_offsets(zro_group *group, const zro__batches *l, zro__batch *b, zro__call call)
{
    int in = 0, out = 0;
    zro_status st = zro__is_same(&group->ranks.board, call, hash_offsets(ZRO__HASH_START, b, ZRO__HEADER_IN_SLOW), &in);

    out = in;
    if (st == ZRO_OK && l->to != l->from)
        st = zro__is_same(&group->ranks.board, call, hash_offsets(ZRO__HASH_START, b, ZRO__HEADER_OUT_SLOW), &out);
    b->slow = b->disagreed = (in ? 0 : ZRO__HEADER_IN_SLOW) | (out ? 0 : ZRO__HEADER_OUT_SLOW);
    return st;
}

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
            st = compare_offsets(group, l, b, call);
        } else if (b->place->kind == ZRO_MEMORY_ONCE) { /* it may exist once for other ranks than these */
            st = zro__is_same(&group->ranks.board, call, zro__locate(group->seat->view, b->out, b->out_bytes), &b->exists_once);
            b->exists_once &= group->ranks.one_machine;
        }
    }
    return st;
}

/* ---- before a transfer ---- */

/* What the arrays of an item must have, and that no late rank writes into them. */
static zro_status inspect_item(zro_group *group, const zro__batches *l, const zro__batch *b, size_t i)
{
    const zro__batch_item *item = &b->items[i];
    const zro_param *p = item->param;
    const size_t count = b->parts[i].count;
    zro_status st = ZRO_OK;

    if (l->to == ZRO__DATA && p->data == NULL && count > 0)
        return zro__param_fail(ZRO_ERR_INVALID, item->name, item->index, "data is NULL");
    if (l->from == ZRO__GRADS && p->grad == NULL && count > 0 && zro__param_has_grad(p))
        return zro__param_fail(ZRO_ERR_INVALID, item->name, item->index, "grad_present is set, but grad is NULL");
    if (l->to == ZRO__GRADS && p->grad == NULL && count > 0 && p->requires_grad != 0)
        return zro__param_fail(ZRO_ERR_INVALID, item->name, item->index,
                               "grad is NULL; give it memory, since the average of all ranks is written there");
    for (int side = ZRO__DATA; side <= ZRO__GRADS && st == ZRO_OK; side++) {
        const char *array = *zro__side_array(item->param, (zro__side)side);
        const size_t size = zro_dtype_bytes(zro__side_type(p, (zro__side)side));

        if (array != NULL && (l->from == (zro__side)side || l->to == (zro__side)side))
            st = zro__late_check(group->ranks.view, array + item->first * size, count * size);
    }
    return st;
}

static void find_present(const zro__batches *l, zro__batch *b)
{
    if (l->from != ZRO__GRADS)
        return;
    memset(b->present, 0, words_of(l, b) * sizeof *b->present);
    for (size_t i = 0; i < b->n_parts; i++)
        b->present[i / 64] |= (uint64_t)zro__param_has_grad(b->items[i].param) << i % 64;
}

static zro_status inspect(zro_group *group, const zro__batches *l, zro__batch *b)
{
    zro_status st = ZRO_OK;

    if (b->place != NULL)
        return zro__late_check(group->ranks.view, b->out, b->out_bytes);
    for (size_t i = 0; i < b->n_parts && st == ZRO_OK; i++)
        st = inspect_item(group, l, b, i);
    if (st != ZRO_OK)
        return st;
    b->slow = b->disagreed | find_arrays(l, b, 0);
    find_present(l, b);
    return ZRO_OK;
}

zro_status zro__batches_inspect(zro_group *group, zro__batches *l)
{
    zro_status st = ZRO_OK;

    for (; l != NULL; l = l->next)
        for (size_t k = 0; k < l->n && st == ZRO_OK; k++)
            st = inspect(group, l, &l->list[k]);
    return st;
}

/* A hash of which gradients are NULL.  Where gradients are written, all ranks must have the same: a frozen one may be NULL. */
static uint64_t hash_nowhere(const zro__batches *l)
{
    uint64_t hash = ZRO__HASH_START;

    for (; l != NULL; l = l->next)
        for (size_t k = 0; k < l->n; k++)
            for (size_t i = 0; i < l->list[k].n_parts; i++)
                if (l->list[k].items[i].param->grad == NULL && l->list[k].parts[i].count > 0)
                    hash = zro__hash(hash, &l->list[k].items[i].index, sizeof(size_t));
    return hash;
}

/* ---- transfers of a batch ---- */

/* `meeting`, if it is not NULL, gets the bits of the gradients. */
static zro__xfer transfer(const zro__batches *l, zro__batch *b, zro__call call, zro__meeting *meeting)
{
    zro__xfer x = zro__delivery(call, b->in_type, b->in, b->in_bytes, b->parts, b->n_parts, b->count);

    x.out_type = b->out_type;
    x.out = b->out;
    x.out_bytes = b->out_bytes;
    x.tag = l->tag;
    x.scattered = b->place == NULL || b->place->kind == ZRO_MEMORY_ONCE;
    x.slow = b->slow;
    x.meeting = meeting;
    if (meeting != NULL) {
        meeting->present = b->present;
        meeting->any = b->any;
        meeting->gathered = b->gathered;
    }
    return x;
}

zro_status zro__batch_send(zro_group *group, const zro__batches *l, zro__batch *b, zro__call call)
{
    zro__meeting m = { 0 };
    zro__xfer x;

    if (b->exists_once || b->n_parts == 0)
        return ZRO_OK;
    x = transfer(l, b, call, l->from == ZRO__GRADS ? &m : NULL);
    return zro__xfer_run(&group->ranks, &x);
}

static void mark_present(const zro__batch *b)
{
    for (size_t i = 0; i < b->n_parts; i++)
        if ((b->any[i / 64] >> i % 64 & 1) != 0 && b->items[i].param->requires_grad != 0)
            zro__param_mark(b->items[i].param, 1);
}

/* Whether everything that others own of this rank's gradients was copied. */
static int is_staged(const zro__staging *staging, const zro__batch *b, int rank)
{
    for (size_t i = 0; i < b->n_parts; i++)
        if ((b->present[i / 64] >> i % 64 & 1) != 0 && b->parts[i].owner != rank && b->parts[i].count > 0
            && !zro__staging_has(staging, b->items[i].param))
            return 0;
    return 1;
}

/* Offsets of what ranks lend are the same on all of them, wherever the gradients are. */
static void lend(zro__xfer *x, const zro__staging *staging, const zro__batch *b, int rank)
{
    x->slow &= ~(uint32_t)ZRO__HEADER_IN_SLOW;
    x->lent_at = b->lent_at;
    if (!is_staged(staging, b, rank))
        return;
    x->lent = zro_memory_data(staging->memory);
    x->lent_bytes = staging->bytes;
}

static zro_status reduce_batch(zro__reduction *r, zro__batches *l, zro__batch *b, int is_first, zro_status st)
{
    char why[ZRO__TEXT_BYTES];
    zro__meeting m = { .refusal = st, .why = why, .arrived = is_first ? r->arrived : NULL, .user = r->user };
    zro__xfer x = transfer(l, b, r->call, &m);

    if (st != ZRO_OK)
        snprintf(why, sizeof why, "%s", zro_last_error());
    if (st == ZRO_OK && is_first && r->claim != NULL)
        m.claim = r->claim->hash;
    if (st == ZRO_OK && is_first && l->to == ZRO__GRADS)
        m.claim ^= hash_nowhere(l);
    if (st == ZRO_OK && l->staging != NULL)
        lend(&x, l->staging, b, r->group->ranks.board.rank);
    x.reduces = 1;
    x.op = r->op;
    x.weighted = r->weighted;
    x.weight = r->weight;
    x.divisor = r->divisor;
    x.to = r->to;
    x.apply = r->apply;
    x.next = r->next;
    x.apply_user = r->user;
    r->batch = b;
    st = zro__xfer_run(&r->group->ranks, &x);
    if (!m.claims_differ)
        return st;
    /* All ranks are here, and search together. */
    st = r->claim != NULL ? zro__claim_agree(&r->group->ranks.board, r->call, r->claim, ZRO_OK) : ZRO_OK;
    return st != ZRO_OK
               ? st
               : zro__fail(ZRO_ERR_MISMATCH, "the gradients of frozen parameters are NULL on some ranks and have memory "
                                             "on others; give them memory on all ranks or on none");
}

zro_status zro__batches_reduce(zro__reduction *r, zro__batches *l, zro_status st)
{
    int is_first = 1;

    for (; l != NULL; l = l->next)
        for (size_t k = 0; k < l->n; k++, is_first = 0) {
            st = reduce_batch(r, l, &l->list[k], is_first, st);
            if (st != ZRO_OK)
                return st;
            if (l->to == ZRO__GRADS)
                mark_present(&l->list[k]);
            if (r->done != NULL)
                r->done(r->user);
        }
    return st;
}

void zro__batches_consume(const zro__batches *l)
{
    for (; l != NULL; l = l->next)
        for (size_t k = 0; k < l->n; k++)
            for (size_t i = 0; i < l->list[k].n_parts; i++)
                zro__param_mark(l->list[k].items[i].param, 0);
}

zro_status zro__batches_deliver(zro_group *group, zro__batches *l, int *moved)
{
    zro_status st = ZRO_OK;

    *moved = 0;
    for (; st == ZRO_OK && l != NULL; l = l->next)
        for (size_t k = 0; st == ZRO_OK && k < l->n; k++) {
            zro__batch *b = &l->list[k];

            if (b->exists_once || b->n_parts == 0)
                continue;
            (void)ZRO__POINT("deliver.batch");
            zro__count(&group->ranks.counters.deliveries, b->n_owners);
            st = zro__batch_send(group, l, b, ZRO__CALL_PUBLISH);
            *moved = 1;
        }
    return st == ZRO_OK && !*moved ? zro__vote(&group->ranks.board, ZRO__CALL_PUBLISH, ZRO_OK) : st;
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
