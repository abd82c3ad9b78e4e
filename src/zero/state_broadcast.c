/* zro_state_broadcast: one rank's state on all ranks; or its description alone, for a load in which that rank then sends each
 * rank what it owns.
 *
 * Two things travel.  First a description: the handle, its tables, the sizes of its blocks and its text, as they lie in the
 * root's memory (all ranks run the same library).  The others go through the rows with the functions that build a state by
 * hand, so that each is checked as everything else is; addresses, and the lists that connect rows, are not read.  Then the
 * slots' bytes, block by block as the root has them; the others have one block for all.  Where the description alone is sent, the
 * slots of one element are part of it.
 *
 * Before each of the two there is a vote, so that a rank that has no memory, or passed the wrong thing, is an error on all and
 * never a hang. */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "group/group.h"
#include "zero/state.h"

/* A state, perhaps another rank's, whose tables lie in the bytes that came.  These bytes begin with it. */
typedef struct description {
    zro_state state;
    size_t n_small;       /* slots of one element whose data are in the description */
    const double *small;  /* their data, each in the bytes of a double, which is the largest element */
    const size_t *blocks; /* bytes of each */
    const char *text;
} description;

static int is_small(const zro__state_slot *slot)
{
    return slot->name != ZRO__STATE_NONE && slot->count == 1;
}

static size_t count_small(const zro_state *s)
{
    size_t n = 0;

    for (size_t i = 0; i < s->n_slots; i++)
        n += (size_t)is_small(&s->slots[i]);
    return n;
}

static size_t description_bytes(const description *d)
{
    const zro_state *s = &d->state;

    return sizeof *d + s->n_groups * sizeof *s->groups + s->n_values * sizeof *s->values + s->n_params * sizeof *s->params
           + s->n_slots * sizeof *s->slots + s->n_schedules * sizeof *s->schedules + s->n_positions * sizeof *s->positions
           + s->n_numbers * sizeof *s->numbers + d->n_small * sizeof *d->small + s->n_blocks * sizeof *d->blocks + s->text_end;
}

/* ---- writing ---- */

static char *put(char *at, const void *rows, size_t bytes)
{
    if (bytes > 0)
        memcpy(at, rows, bytes);
    return at + bytes;
}

/* The bytes of a description, to be freed by zro__free. */
static zro_status describe(const zro_state *s, int whole, char **out, size_t *bytes)
{
    const description d = { .state = *s, .n_small = whole ? 0 : count_small(s) };
    char *at;

    *bytes = description_bytes(&d);
    *out = at = zro__alloc(NULL, ZRO__KIND_HANDLE, *bytes);
    if (at == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "state_broadcast: out of memory: a description of %zu bytes", *bytes);
    at = put(at, &d, sizeof d);
    at = put(at, s->groups, s->n_groups * sizeof *s->groups);
    at = put(at, s->values, s->n_values * sizeof *s->values);
    at = put(at, s->params, s->n_params * sizeof *s->params);
    at = put(at, s->slots, s->n_slots * sizeof *s->slots);
    at = put(at, s->schedules, s->n_schedules * sizeof *s->schedules);
    at = put(at, s->positions, s->n_positions * sizeof *s->positions);
    at = put(at, s->numbers, s->n_numbers * sizeof *s->numbers);
    for (size_t i = 0; !whole && i < s->n_slots; i++)
        if (is_small(&s->slots[i]))
            at = put(at, s->slots[i].data, s->slots[i].bytes) + sizeof *d.small - s->slots[i].bytes;
    for (const zro__state_block *b = s->first_block; b != NULL; b = b->next)
        at = put(at, &b->used, sizeof b->used);
    for (size_t i = 0; i < s->n_texts; i++) {
        size_t left = s->text_end - i * ZRO__STATE_TEXT_BYTES;

        at = put(at, s->texts[i], left < ZRO__STATE_TEXT_BYTES ? left : ZRO__STATE_TEXT_BYTES);
    }
    return ZRO_OK;
}

/* ---- reading ---- */

/* Finds the tables in the bytes, which must be just those and end with the end of a name. */
static zro_status open_description(description *d, void *bytes, size_t n)
{
    zro_state *s = &d->state;
    int good = n >= sizeof *d;

    if (good) {
        memcpy(d, bytes, sizeof *d);
        good = s->n_groups <= n && s->n_values <= n && s->n_params <= n && s->n_slots <= n && s->n_schedules <= n
               && s->n_positions <= n && s->n_numbers <= n && d->n_small <= n && s->n_blocks <= n && s->text_end > 0
               && s->text_end <= n; /* so that the sum of the tables fits into a size_t */
    }
    if (!good || description_bytes(d) != n || ((const char *)bytes)[n - 1] != '\0')
        return zro__fail(ZRO_ERR_FORMAT, "state_broadcast: a description of %zu bytes is broken", n);
    s->groups = (void *)((description *)bytes + 1);
    s->values = (void *)(s->groups + s->n_groups);
    s->params = (void *)(s->values + s->n_values);
    s->slots = (void *)(s->params + s->n_params);
    s->schedules = (void *)(s->slots + s->n_slots);
    s->positions = (void *)(s->schedules + s->n_schedules);
    s->numbers = (void *)(s->positions + s->n_positions);
    d->small = (void *)(s->numbers + s->n_numbers);
    d->blocks = (void *)(d->small + d->n_small);
    d->text = (const void *)(d->blocks + s->n_blocks);
    return ZRO_OK;
}

static const char *text_at(const description *d, size_t name)
{
    return name < d->state.text_end ? d->text + name : NULL;
}

static zro_status add_groups(const description *d, zro_state *s)
{
    const zro_state *from = &d->state;
    zro_status st = ZRO_OK;

    for (size_t g = 0; g < from->n_groups && st == ZRO_OK; g++) {
        st = zro_state_add_group(s, NULL, 0);
        for (size_t i = 0; st == ZRO_OK && i < from->groups[g].n && s->n_params < from->n_params; i++) {
            const zro__state_param *row = &from->params[s->n_params];
            const zro_param p = zro__state_param_of(row, text_at(d, row->name));

            st = zro_state_add_param(s, &p);
        }
    }
    for (size_t i = 0; i < from->n_values && st == ZRO_OK; i++) {
        const zro__state_value *v = &from->values[i];

        st = zro__state_set_value(s, v->group, text_at(d, v->name), v->value, v->kind);
    }
    return st;
}

static zro_status add_slots(const description *d, zro_state *s)
{
    zro_status st = ZRO_OK;

    for (size_t i = 0; i < d->state.n_slots && st == ZRO_OK; i++) {
        const zro__state_slot *slot = &d->state.slots[i];

        if (slot->name == ZRO__STATE_NONE)
            st = zro__state_plan_data(s, slot->param);
        else
            st = zro__state_plan_slot(s, slot->param, text_at(d, slot->name), slot->dtype, slot->count);
        if (st == ZRO_OK)
            s->slots[i].single = slot->single != 0;
    }
    return st;
}

static zro_status add_numbers(const description *d, zro_state *s)
{
    const zro_state *from = &d->state;
    zro_status st = ZRO_OK;

    for (size_t i = 0; i < from->n_schedules && st == ZRO_OK; i++) {
        const zro__state_schedule *row = &from->schedules[i];

        st = zro__state_add_schedule(s, text_at(d, row->kind), row->n_children);
        for (size_t k = 0; st == ZRO_OK && k < row->n && row->first + k < from->n_positions; k++)
            st = zro__state_add_position(s, text_at(d, from->positions[row->first + k].name),
                                         from->positions[row->first + k].value);
    }
    for (size_t i = 0; i < from->n_numbers && st == ZRO_OK; i++)
        st = zro_state_set_number(s, text_at(d, from->numbers[i].name), from->numbers[i].value);
    return st == ZRO_OK ? zro__state_check_schedules(s) : st;
}

/* Memory for the slots of one element alone, with their data. */
static zro_status take_small(const description *d, zro_state *s)
{
    zro__state_block *b = s->first_block = s->last_block = zro__alloc(NULL, ZRO__KIND_HANDLE, sizeof *b);
    size_t bytes = d->n_small * sizeof *d->small;

    if (count_small(s) != d->n_small)
        return zro__fail(ZRO_ERR_FORMAT, "state_broadcast: %zu single numbers for %zu slots", d->n_small, count_small(s));
    if (b == NULL || (b->data = zro__alloc(NULL, ZRO__KIND_COPY, bytes)) == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "state_broadcast: out of memory: %zu single numbers", d->n_small);
    b->used = b->bytes = bytes;
    (void)put(b->data, d->small, bytes);
    for (size_t i = 0, at = 0; i < s->n_slots; i++)
        if (is_small(&s->slots[i])) {
            s->slots[i].data = b->data + at;
            at += sizeof *d->small;
        }
    return ZRO_OK;
}

/* A state as described, with memory for its slots. */
static zro_status build(const description *d, int whole, zro_state **out)
{
    zro_status st = zro_state_create(text_at(d, d->state.rule), out);
    size_t sum = 0;

    if (st == ZRO_OK)
        st = zro_state_set_progress(*out, &d->state.progress);
    if (st == ZRO_OK)
        st = add_groups(d, *out);
    if (st == ZRO_OK)
        st = add_numbers(d, *out);
    if (st == ZRO_OK)
        st = add_slots(d, *out);
    for (size_t i = 0; st == ZRO_OK && i < d->state.n_blocks; i++)
        if (!zro__size_add(sum, d->blocks[i], &sum))
            sum = SIZE_MAX;
    if (st == ZRO_OK && sum != (*out)->extent)
        st = zro__fail(ZRO_ERR_FORMAT, "state_broadcast: the blocks have %zu bytes, the slots %zu", sum, (*out)->extent);
    if (st != ZRO_OK)
        return st;
    return whole ? zro__state_take(*out) : take_small(d, *out);
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
static zro_status send_blocks(zro_group *g, const zro_state *s, const description *d, int root)
{
    const zro__state_block *b = s->first_block;
    zro_status st = ZRO_OK;
    size_t at = 0;

    for (size_t i = 0; st == ZRO_OK && i < d->state.n_blocks; i++) {
        st = zro_broadcast(g, b != NULL ? b->data + at : NULL, d->blocks[i], ZRO_U8, root);
        at += d->blocks[i];
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
    description d;
    char *mine = NULL;
    void *bytes = NULL;
    size_t n = 0;

    if (st == ZRO_OK && gives)
        st = describe(*state, whole, &mine, &n);
    st = zro__vote(&g->ranks.board, ZRO__CALL_BROADCAST_BYTES, st);
    if (st == ZRO_OK)
        st = zro_broadcast_bytes(g, mine, n, root, &bytes, &n);
    zro__free(mine);
    if (st != ZRO_OK)
        return st;
    st = open_description(&d, bytes, n);
    if (st == ZRO_OK && !gives)
        st = build(&d, whole, state);
    st = zro__vote(&g->ranks.board, ZRO__CALL_BROADCAST_BYTES, st);
    if (st == ZRO_OK && whole)
        st = send_blocks(g, *state, &d, root);
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
