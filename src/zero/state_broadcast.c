/* zro_state_broadcast: one rank's state on all ranks.
 *
 * Two things travel.  First a description: everything but the slots' bytes, as a sequence of numbers and texts, which the
 * others read back with the functions that build a state by hand, so that it is checked as everything else is.  Then the bytes,
 * block by block as the root has them; the others have one block for all.  Before each of the two there is a vote, so that a
 * rank that has no memory, or passed the wrong thing, is an error on all and never a hang.
 *
 * A description is: rule, progress, numbers of groups, slots and blocks; each group's number of values and of parameters, these
 * values (name, value, kind) and parameters (name, types, shape); each slot's parameter, name, type, count; each block's bytes.
 * Numbers have 8 bytes; a text is its length and its bytes, and an absent one has the length NONE. */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "group/group.h"
#include "zero/state.h"

/* ---- writing ---- */

/* Bytes that are counted first (data NULL) and written in a second pass. */
typedef struct writer {
    char *data;
    size_t at;
} writer;

static void put(writer *w, const void *bytes, size_t n)
{
    if (w->data != NULL && n > 0)
        memcpy(w->data + w->at, bytes, n);
    w->at += n;
}

static void put_number(writer *w, uint64_t x)
{
    put(w, &x, sizeof x);
}

static void put_real(writer *w, double x)
{
    put(w, &x, sizeof x);
}

static void put_text(writer *w, const char *text)
{
    put_number(w, text != NULL ? strlen(text) : ZRO__STATE_NONE);
    if (text != NULL)
        put(w, text, strlen(text));
}

static void put_param(writer *w, const zro__state_param *p)
{
    put_text(w, p->name);
    put_number(w, (uint64_t)(int64_t)p->dtype);
    put_number(w, (uint64_t)(int64_t)p->grad_dtype);
    put_number(w, p->n_dims);
    for (uint32_t i = 0; i < p->n_dims; i++)
        put_number(w, p->shape[i]);
}

static void put_group(writer *w, const zro_state *s, const zro__state_group *g)
{
    put_number(w, g->n_values);
    put_number(w, g->n);
    for (size_t i = 0; i < g->n_values; i++) {
        put_text(w, g->values[i].name);
        put_real(w, g->values[i].value);
        put_number(w, (uint64_t)g->values[i].kind);
    }
    for (size_t i = 0; i < g->n; i++)
        put_param(w, &s->params[g->first + i]);
}

static size_t count_blocks(const zro_state *s)
{
    size_t n = 0;

    for (const zro__state_block *b = s->first_block; b != NULL; b = b->next)
        n++;
    return n;
}

/* Slots in the order in which they were announced, which their parameters' lists do not say; hence the owners. */
static void put_slots(writer *w, const zro_state *s, const size_t *owner)
{
    for (size_t i = 0; i < s->n_slots; i++) {
        put_number(w, owner != NULL ? owner[i] : 0);
        put_text(w, s->slots[i].name);
        put_number(w, (uint64_t)s->slots[i].dtype);
        put_number(w, s->slots[i].count);
        put_number(w, s->slots[i].single);
    }
}

static void put_state(writer *w, const zro_state *s, const size_t *owner)
{
    put_text(w, s->rule);
    put_number(w, s->progress.steps);
    put_real(w, s->progress.scale);
    put_number(w, s->progress.growth_tracker);
    put_number(w, s->n_groups);
    put_number(w, s->n_slots);
    put_number(w, count_blocks(s));
    for (size_t i = 0; i < s->n_groups; i++)
        put_group(w, s, &s->groups[i]);
    put_slots(w, s, owner);
    for (const zro__state_block *b = s->first_block; b != NULL; b = b->next)
        put_number(w, b->used);
}

/* The description, to be freed by zro__free. */
static zro_status describe(const zro_state *s, char **out, size_t *bytes)
{
    size_t *owner = zro__alloc_array(NULL, ZRO__KIND_HANDLE, s->n_slots, sizeof *owner);
    writer count = { NULL, 0 }, w = { NULL, 0 };

    put_state(&count, s, NULL);
    if (owner != NULL)
        w.data = zro__alloc(NULL, ZRO__KIND_HANDLE, count.at);
    if (w.data == NULL) {
        zro__free(owner);
        return zro__fail(ZRO_ERR_MEMORY, "state_broadcast: out of memory: a description of %zu bytes", count.at);
    }
    for (size_t p = 0; p < s->n_params; p++)
        for (size_t i = s->params[p].first_slot; i != ZRO__STATE_NONE; i = s->slots[i].next)
            owner[i] = p;
    put_state(&w, s, owner);
    zro__free(owner);
    *out = w.data;
    *bytes = w.at;
    return ZRO_OK;
}

/* ---- reading ---- */

typedef struct reader {
    const char *data;
    size_t at, bytes;
    int ended; /* something was beyond the end, or too long */
} reader;

static void get(reader *r, void *out, size_t n)
{
    if (r->bytes - r->at < n) {
        r->ended = 1;
        memset(out, 0, n);
        return;
    }
    memcpy(out, r->data + r->at, n);
    r->at += n;
}

static size_t get_number(reader *r)
{
    uint64_t x;

    get(r, &x, sizeof x);
    return (size_t)x;
}

static double get_real(reader *r)
{
    double x;

    get(r, &x, sizeof x);
    return x;
}

/* Into a buffer of ZRO__STATE_NAME_BYTES + 1; NULL if it is absent. */
static const char *get_text(reader *r, char *buffer)
{
    size_t n = get_number(r);

    if (n == ZRO__STATE_NONE)
        return NULL;
    if (n > ZRO__STATE_NAME_BYTES) {
        r->ended = 1;
        n = 0;
    }
    get(r, buffer, n);
    buffer[n] = '\0';
    return buffer;
}

static zro_status check_reader(const reader *r)
{
    return r->ended
               ? zro__fail(ZRO_ERR_FORMAT, "state_broadcast: the description of %zu bytes is broken at %zu", r->bytes, r->at)
               : ZRO_OK;
}

static zro_status get_value(reader *r, zro_state *s)
{
    char buffer[ZRO__STATE_NAME_BYTES + 1];
    const char *name = get_text(r, buffer);
    double value = get_real(r);
    zro_hyper_kind kind = get_number(r) == ZRO_FLAG ? ZRO_FLAG : ZRO_REAL;
    zro_status st = check_reader(r);

    return st != ZRO_OK ? st : zro__state_set_value(s, s->n_groups - 1, name, value, kind);
}

static zro_status get_param(reader *r, zro_state *s)
{
    char buffer[ZRO__STATE_NAME_BYTES + 1];
    zro_param p = ZRO_PARAM_INIT;
    zro_status st;
    size_t n_dims;

    p.name = get_text(r, buffer);
    p.dtype = (zro_dtype)(int64_t)get_number(r);
    p.grad_dtype = (zro_dtype)(int64_t)get_number(r);
    n_dims = get_number(r);
    for (size_t i = 0; i < n_dims && i < ZRO_MAX_DIMS; i++)
        p.shape[i] = get_number(r);
    p.n_dims = n_dims > ZRO_MAX_DIMS ? ZRO_MAX_DIMS + 1 : (uint32_t)n_dims;
    st = check_reader(r);
    return st != ZRO_OK ? st : zro_state_add_param(s, &p);
}

static zro_status get_group(reader *r, zro_state *s)
{
    size_t n_values = get_number(r), n_params = get_number(r);
    zro_status st = check_reader(r);

    if (st == ZRO_OK)
        st = zro_state_add_group(s, NULL, 0);
    for (size_t i = 0; i < n_values && st == ZRO_OK; i++)
        st = get_value(r, s);
    for (size_t i = 0; i < n_params && st == ZRO_OK; i++)
        st = get_param(r, s);
    return st;
}

static zro_status get_slot(reader *r, zro_state *s)
{
    char buffer[ZRO__STATE_NAME_BYTES + 1];
    size_t param = get_number(r);
    const char *name = get_text(r, buffer);
    zro_dtype dtype = (zro_dtype)(int64_t)get_number(r);
    size_t count = get_number(r), single = get_number(r);
    zro_status st = check_reader(r);

    if (st == ZRO_OK)
        st = zro__state_plan_slot(s, param, name, dtype, count);
    if (st == ZRO_OK)
        zro__state_set_single(s, single != 0);
    return st;
}

static zro_status get_head(reader *r, zro_state **out)
{
    char rule[ZRO__STATE_NAME_BYTES + 1];
    const char *name = get_text(r, rule);
    zro_progress progress = { .steps = get_number(r) };
    zro_status st;

    progress.scale = get_real(r);
    progress.growth_tracker = (uint32_t)get_number(r);
    st = check_reader(r);
    if (st == ZRO_OK)
        st = zro_state_create(name, out);
    return st != ZRO_OK ? st : zro_state_set_progress(*out, &progress);
}

/* A state as described, with memory for its slots; the reader stands at the bytes of the n_blocks blocks. */
static zro_status build(reader *r, zro_state **out, size_t *n_blocks)
{
    size_t n_groups, n_slots;
    zro_status st = get_head(r, out);

    n_groups = get_number(r);
    n_slots = get_number(r);
    *n_blocks = get_number(r);
    for (size_t i = 0; i < n_groups && st == ZRO_OK; i++)
        st = get_group(r, *out);
    for (size_t i = 0; i < n_slots && st == ZRO_OK; i++)
        st = get_slot(r, *out);
    return st != ZRO_OK ? st : zro__state_take(*out);
}

/* ---- the call ---- */

static zro_status check_arguments(const zro_group *g, zro_state *const *state, int root)
{
    if (state == NULL)
        return zro__fail(ZRO_ERR_INVALID, "state_broadcast: state is NULL");
    if (root < 0 || root >= g->board.size)
        return zro__fail(ZRO_ERR_INVALID, "state_broadcast: root = %d, must be a rank of this group of %d", root,
                         g->board.size);
    if (g->board.rank == root && *state == NULL)
        return zro__fail(ZRO_ERR_STATE, "state_broadcast: root %d has no state: consolidate to it, or name a root that has one",
                         root);
    if (g->board.rank != root && *state != NULL)
        return zro__fail(ZRO_ERR_INVALID, "state_broadcast: rank %d has a state, and is not root %d; destroy it, and pass NULL",
                         g->board.rank, root);
    return ZRO_OK;
}

/* That the blocks' sizes, which the reader has before it, are what was taken for them. */
static zro_status check_blocks(reader r, size_t n_blocks, const zro_state *s)
{
    size_t sum = 0;

    for (size_t i = 0; i < n_blocks && !r.ended; i++)
        if (!zro__size_add(sum, get_number(&r), &sum))
            r.ended = 1;
    if (sum != s->extent || r.at != r.bytes)
        r.ended = 1;
    return check_reader(&r);
}

static zro_status send_blocks(zro_group *g, const zro_state *s, int root)
{
    zro_status st = ZRO_OK;

    for (const zro__state_block *b = s->first_block; b != NULL && st == ZRO_OK; b = b->next)
        st = zro_broadcast(g, b->data, b->used, ZRO_U8, root);
    return st;
}

static zro_status receive_blocks(zro_group *g, reader *r, size_t n_blocks, const zro_state *s, int root)
{
    char *at = s->first_block != NULL ? s->first_block->data : NULL;
    zro_status st = ZRO_OK;

    for (size_t i = 0; i < n_blocks && st == ZRO_OK; i++) {
        size_t bytes = get_number(r);

        st = zro_broadcast(g, at, bytes, ZRO_U8, root);
        at += bytes;
    }
    return st;
}

/* Inside the lane, on the root. */
static zro_status give(zro_group *g, const zro_state *s, int root, zro_status st)
{
    char *description = NULL;
    void *copy = NULL;
    size_t bytes = 0;

    if (st == ZRO_OK)
        st = describe(s, &description, &bytes);
    st = zro__vote(&g->board, ZRO__CALL_BROADCAST_BYTES, st);
    if (st == ZRO_OK)
        st = zro_broadcast_bytes(g, description, bytes, root, &copy, &bytes);
    zro_bytes_free(copy);
    zro__free(description);
    if (st == ZRO_OK)
        st = zro__vote(&g->board, ZRO__CALL_BROADCAST_BYTES, ZRO_OK);
    return st != ZRO_OK ? st : send_blocks(g, s, root);
}

/* Inside the lane, on the others; *out is destroyed by the caller if this fails. */
static zro_status receive(zro_group *g, zro_state **out, int root, zro_status st)
{
    reader r = { NULL, 0, 0, 0 };
    void *description = NULL;
    size_t n_blocks = 0;

    st = zro__vote(&g->board, ZRO__CALL_BROADCAST_BYTES, st);
    if (st == ZRO_OK)
        st = zro_broadcast_bytes(g, NULL, 0, root, &description, &r.bytes);
    if (st != ZRO_OK)
        return st;
    r.data = description;
    st = build(&r, out, &n_blocks);
    if (st == ZRO_OK)
        st = check_blocks(r, n_blocks, *out);
    st = zro__vote(&g->board, ZRO__CALL_BROADCAST_BYTES, st);
    if (st == ZRO_OK)
        st = receive_blocks(g, &r, n_blocks, *out, root);
    zro_bytes_free(description);
    return st;
}

zro_status zro_state_broadcast(zro_group *g, zro_state **state, int root)
{
    zro_state *made = NULL;
    zro_status st = zro__enter(g);

    if (st != ZRO_OK)
        return st;
    st = check_arguments(g, state, root);
    if (g->board.rank == root)
        return zro__leave(g, give(g, st == ZRO_OK ? *state : NULL, root, st));
    st = receive(g, &made, root, st);
    if (st == ZRO_OK)
        *state = made;
    else
        zro_state_destroy(made);
    return zro__leave(g, st);
}
