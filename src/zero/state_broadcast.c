/* zro_state_broadcast: one rank's state on all ranks; or its description alone, for a load in which that rank then sends each
 * rank what it owns.
 *
 * Two things travel.  First a description: the handle, the sizes of its blocks, its tables, its text and the slots of one
 * element, as they lie in the root's memory.  A number before it says how that build of the library lays out rows; ranks of
 * another build refuse it.  The others take the rows as they are; addresses are not read.  Then the slots' bytes, block by block as
 * the root has them; the others have one block for all.  Where the description alone is sent, the others have memory for the slots
 * of one element, which are part of it.
 *
 * Before each of the two there is a vote, so that a rank that has no memory, or passed the wrong thing, is an error on all and
 * never a hang. */
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "base/point.h"
#include "base/status.h"
#include "group/group.h"
#include "zero/state.h"

enum { SMALL_BYTES = sizeof(double) }; /* of a slot of one element in a description: those of the largest element type */

static int is_small(const zro__state_slot *slot)
{
    return slot->name != ZRO__STATE_NONE && slot->count == 1;
}

/* How much of the text, of which `left` bytes are left, is in the next of its blocks. */
static size_t text_bytes(size_t left)
{
    return left < ZRO__STATE_TEXT_BYTES ? left : ZRO__STATE_TEXT_BYTES;
}

/* How this build lays out the rows of a description.  To be made another number where rows of the same sizes mean other things. */
static uint64_t layout_of_build(void)
{
    const zro_state none = { 0 };
    const size_t sizes[] = { 1, sizeof none, ZRO__STATE_TEXT_BYTES, SMALL_BYTES };
    uint64_t hash = zro__hash(ZRO__HASH_START, sizes, sizeof sizes);
    size_t n, row_bytes;

    for (zro__state_table t = 0; t < ZRO__STATE_TEXTS; t++) {
        (void)zro__state_rows(&none, t, &n, &row_bytes);
        hash = zro__hash(hash, &row_bytes, sizeof row_bytes);
    }
    return hash;
}

/* ---- writing ---- */

/* Puts n bytes behind the first `at` of a description, which is only measured if `to` is NULL; returns how many there are then. */
static size_t put(char *to, size_t at, const void *bytes, size_t n)
{
    if (to != NULL && n > 0)
        memcpy(to + at, bytes, n);
    return at + n;
}

static size_t describe(const zro_state *s, char *to)
{
    const uint64_t layout = layout_of_build() + (uint64_t)ZRO__POINT("state.layout");
    size_t at = put(to, 0, &layout, sizeof layout), n, row_bytes;

    at = put(to, at, s, sizeof *s);
    for (const zro__state_block *b = s->first_block; b != NULL; b = b->next)
        at = put(to, at, &b->used, sizeof b->used);
    for (zro__state_table t = 0; t < ZRO__STATE_TEXTS; t++) {
        const void *rows = zro__state_rows(s, t, &n, &row_bytes);

        at = put(to, at, rows, n * row_bytes);
    }
    for (size_t i = 0; i < s->n_texts; i++)
        at = put(to, at, s->texts[i], text_bytes(s->text_end - i * ZRO__STATE_TEXT_BYTES));
    for (size_t i = 0; i < s->n_slots; i++)
        if (is_small(&s->slots[i])) /* it has memory of SMALL_BYTES at least: ZRO__STATE_ALIGN */
            at = put(to, at, s->slots[i].data, SMALL_BYTES);
    return at;
}

/* ---- reading ---- */

/* What of a description is not read yet. */
typedef struct rest {
    const char *at, *end;
} rest;

/* The next n rows. */
static zro_status take(rest *r, size_t n, size_t row_bytes, const void **rows)
{
    *rows = NULL;
    if (n > (size_t)(r->end - r->at) / row_bytes)
        return zro__fail(ZRO_ERR_FORMAT, "state_broadcast: the description of the root's state ends too early");
    *rows = r->at;
    r->at += n * row_bytes;
    return ZRO_OK;
}

/* What ranks compare when they meet says nothing of states: so a description of another build is found here. */
static zro_status take_layout(rest *r)
{
    const void *layout;
    zro_status st = take(r, 1, sizeof(uint64_t), &layout);

    if (st != ZRO_OK || *(const uint64_t *)layout == layout_of_build())
        return st;
    return zro__fail(ZRO_ERR_FORMAT,
                     "state_broadcast: the root's libzro has other tables of a state than this rank's; use one build of libzro "
                     "for all ranks");
}

/* Adds the tables and the text of a described state, and goes on to what follows them. */
static zro_status read_tables(zro_state *s, const zro_state *from, rest *r)
{
    const void *rows;
    zro_status st = ZRO_OK;
    size_t n, row_bytes;

    for (zro__state_table t = 0; st == ZRO_OK && t < ZRO__STATE_TEXTS; t++) {
        (void)zro__state_rows(from, t, &n, &row_bytes);
        st = take(r, n, row_bytes, &rows);
        if (st == ZRO_OK)
            st = zro__state_append(s, t, rows, n);
    }
    for (size_t i = 0; i < s->n_slots; i++)
        s->slots[i].data = NULL;
    for (; st == ZRO_OK && s->text_end < from->text_end; s->text_end += n) {
        n = text_bytes(from->text_end - s->text_end);
        st = take(r, n, 1, &rows);
        if (st == ZRO_OK)
            st = zro__state_add_text(s);
        if (st == ZRO_OK)
            memcpy(s->texts[s->n_texts - 1], rows, n);
    }
    return st;
}

/* Memory for the slots of one element alone, with their data. */
static zro_status take_small(zro_state *s, rest *r)
{
    zro__state_block *b;
    const void *data;
    size_t n = 0;
    zro_status st;

    for (size_t i = 0; i < s->n_slots; i++)
        n += (size_t)is_small(&s->slots[i]);
    st = take(r, n, SMALL_BYTES, &data);
    if (st == ZRO_OK)
        st = zro__state_reserve(s, n * SMALL_BYTES);
    b = s->last_block;
    for (size_t i = 0; st == ZRO_OK && i < s->n_slots; i++)
        if (is_small(&s->slots[i])) {
            s->slots[i].data = b->data + b->used;
            b->used = put(b->data, b->used, (const char *)data + b->used, SMALL_BYTES);
        }
    return st;
}

/* A state as described, with memory for its slots. */
static zro_status build(const zro_state *from, rest *r, int whole, zro_state **out)
{
    zro_state *s = *out = zro__alloc(NULL, ZRO__KIND_HANDLE, sizeof *s);
    zro_status st;

    if (s == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "state_broadcast: out of memory: a state");
    st = read_tables(s, from, r);
    if (st != ZRO_OK)
        return st;
    s->rule = from->rule;
    s->table = zro_rule_find(zro__state_text(s, s->rule));
    s->progress = from->progress;
    s->extent = from->extent;
    s->bytes = from->bytes;
    return whole ? zro__state_take(s) : take_small(s, r);
}

/* ---- the call ---- */

static zro_status check_arguments(const zro_group *g, zro_state *const *state, int root)
{
    if (state == NULL)
        return zro__fail(ZRO_ERR_INVALID, "state_broadcast: state is NULL");
    if (root < 0 || root >= g->ranks.board.size)
        return zro__fail(ZRO_ERR_INVALID, "state_broadcast: root = %d, must be a rank of this group of %d", root,
                         g->ranks.board.size);
    if (g->ranks.board.rank == root && *state == NULL)
        return zro__fail(ZRO_ERR_STATE, "state_broadcast: root %d has no state: consolidate to it, or name a root that has one",
                         root);
    if (g->ranks.board.rank != root && *state != NULL)
        return zro__fail(ZRO_ERR_INVALID, "state_broadcast: rank %d has a state, and is not root %d; destroy it, and pass NULL",
                         g->ranks.board.rank, root);
    return ZRO_OK;
}

/* Sends the slots' bytes block by block as the root has them; the others' one block is filled piece by piece. */
static zro_status send_blocks(zro_group *g, const zro_state *s, const size_t *blocks, size_t n_blocks, int root)
{
    const zro__state_block *b = s->first_block;
    zro_status st = ZRO_OK;
    size_t at = 0;

    for (size_t i = 0; st == ZRO_OK && i < n_blocks; i++) {
        st = zro_broadcast(g, b != NULL ? b->data + at : NULL, blocks[i], ZRO_U8, root);
        at += blocks[i];
        if (b != NULL && at == b->used && b->next != NULL) {
            b = b->next;
            at = 0;
        }
    }
    return st;
}

/* Inside the lane; *state is the root's, or becomes this rank's. */
static zro_status exchange(zro_group *g, zro_state **state, int root, int whole, zro_status st)
{
    const int gives = g->ranks.board.rank == root;
    size_t n = st == ZRO_OK && gives ? describe(*state, NULL) : 0;
    char *mine = n > 0 ? zro__alloc(NULL, ZRO__KIND_HANDLE, n) : NULL;
    const void *from = NULL, *blocks = NULL; /* parts of `bytes` */
    size_t n_blocks = 0;
    void *bytes = NULL;
    rest r;

    if (mine != NULL)
        (void)describe(*state, mine);
    else if (n > 0)
        st = zro__fail(ZRO_ERR_MEMORY, "state_broadcast: out of memory: a description of %zu bytes", n);
    st = zro__vote(&g->ranks.board, ZRO__CALL_BROADCAST_BYTES, st);
    if (st == ZRO_OK)
        st = zro_broadcast_bytes(g, mine, n, root, &bytes, &n);
    zro__free(mine);
    if (st != ZRO_OK)
        return st;
    r = (rest){ bytes, (const char *)bytes + n };
    st = take_layout(&r);
    if (st == ZRO_OK)
        st = take(&r, 1, sizeof(zro_state), &from);
    if (st == ZRO_OK) {
        n_blocks = ((const zro_state *)from)->n_blocks;
        st = take(&r, n_blocks, sizeof(size_t), &blocks);
    }
    if (st == ZRO_OK && !gives)
        st = build(from, &r, whole, state);
    st = zro__vote(&g->ranks.board, ZRO__CALL_BROADCAST_BYTES, st);
    if (st == ZRO_OK && whole)
        st = send_blocks(g, *state, blocks, n_blocks, root);
    zro_bytes_free(bytes);
    return st;
}

zro_status zro__state_broadcast(zro_group *g, zro_state **state, int root, int whole)
{
    zro_state *made = NULL;
    zro_status st = zro__enter(g);

    if (st != ZRO_OK)
        return st;
    st = check_arguments(g, state, root);
    if (g->ranks.board.rank == root)
        return zro__leave(g, exchange(g, state, root, whole, st));
    st = exchange(g, &made, root, whole, st);
    if (st == ZRO_OK)
        *state = made;
    else
        zro_state_destroy(made);
    return zro__leave(g, st);
}

zro_status zro_state_broadcast(zro_group *g, zro_state **state, int root)
{
    return zro__state_broadcast(g, state, root, 1);
}
