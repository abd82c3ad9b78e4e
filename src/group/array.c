/* Group memory: arrays that ranks of one machine can reach.
 *
 * An array is a region of the memory of each set of near ranks: one line with the number of ranks that have freed it, then one
 * piece for each of them (EACH) or for each machine (ONCE).  Pieces begin at different places in a page and in different pages of 64 KiB, so that
 * loops over the same element of all of them do not meet in the same lines of a cache: pieces exactly 256 MiB apart make a
 * plain loop three times slower on some processors.  Every rank of a machine maps the whole region and populates what it
 * writes, in parallel with the others; then, after a vote that all have their pages, what it reads. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/point.h"
#include "group/group.h"

enum { HEAD_BYTES = 64, STAGGER_BYTES = 65536 + 17 * 64 };

typedef struct head {
    _Atomic uint32_t freed;
} head;

struct zro_memory {
    zro__seat *seat;
    zro__map map;
    size_t bytes;  /* of a piece */
    size_t total;  /* of the region */
    size_t stride; /* from piece to piece */
    size_t share;  /* counted for this rank */
    int rank, size, n_near;
    int *piece; /* by rank: its piece, -1 on another machine */
    zro__arena arena;
};

static head *head_of(const zro_memory *m)
{
    return (head *)(void *)m->map.base;
}

static char *piece_of(const zro_memory *m, int rank)
{
    return m->piece[rank] < 0 ? NULL : m->map.base + HEAD_BYTES + (size_t)m->piece[rank] * m->stride;
}

/* Numbers the pieces; returns how many there are. */
static int number_pieces(const zro_group *g, zro_memory_kind kind, int *piece)
{
    int n = 0;

    for (int r = 0; r < g->board.size; r++) {
        int same = -1;

        for (int q = 0; kind == ZRO_MEMORY_ONCE && q < r && same < 0; q++)
            same = g->machine[q] == g->machine[r] ? piece[q] : -1;
        piece[r] = same >= 0 ? same : zro__is_near(&g->board, r) ? n++ : -1;
    }
    for (int r = 0; r < g->board.size; r++)
        if (g->machine[r] != g->machine[g->board.rank])
            piece[r] = -1;
    return n;
}

/* This rank's part of the pages that it is the one to populate: of an array that exists once, an even share. */
static void own_share(const zro_memory *m, zro_memory_kind kind, size_t *first, size_t *length)
{
    int ranks = 0, place = 0;

    for (int r = 0; r < m->size; r++) {
        place += m->piece[r] >= 0 && r < m->rank;
        ranks += m->piece[r] >= 0;
    }
    *first = 0;
    *length = m->bytes;
    if (kind == ZRO_MEMORY_ONCE)
        zro__cut_even(m->bytes, ranks, place, first, length);
}

static void free_handle(zro_memory *m)
{
    zro__seat *seat;

    if (m == NULL)
        return;
    seat = m->seat;
    zro__unmap_region(seat->view, &m->map);
    zro__arena_free(&m->arena);
    zro__free(m);
    zro__seat_release(seat);
}

static zro_status make_handle(zro_group *g, zro_memory_kind kind, size_t bytes, zro_memory **out)
{
    zro_memory *m = zro__alloc(&g->seat->account, ZRO__KIND_HANDLE, sizeof *m);
    size_t pieces, rounded;
    zro_status st;

    *out = m;
    if (m == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a handle of group memory");
    m->seat = g->seat;
    zro__seat_retain(m->seat);
    m->bytes = bytes;
    m->rank = g->board.rank;
    m->size = g->board.size;
    m->n_near = g->layout.n_near;
    zro__arena_plan(&m->arena, (size_t)m->size, sizeof *m->piece);
    st = zro__arena_init(&m->arena, &g->seat->account, "a handle of group memory");
    if (st != ZRO_OK)
        return st;
    m->piece = zro__arena_take(&m->arena, (size_t)m->size, sizeof *m->piece);
    pieces = (size_t)number_pieces(g, kind, m->piece);
    if (!zro__size_round(bytes, 64, &rounded) || !zro__size_add(rounded, STAGGER_BYTES, &m->stride)
        || !zro__size_mul(m->stride, pieces, &m->total) || !zro__size_add(m->total, HEAD_BYTES, &m->total))
        return zro__fail(ZRO_ERR_MEMORY, "memory_alloc: %zu bytes for %zu pieces are too many", bytes, pieces);
    return ZRO_OK;
}

static zro_status populate_own(zro_memory *m, zro_memory_kind kind)
{
    size_t first, length;

    own_share(m, kind, &first, &length);
    m->share = length;
    return zro__populate(piece_of(m, m->rank) + first, length, 1, "group memory");
}

static zro_status populate_others(zro_memory *m)
{
    zro_status st = ZRO_OK;

    for (int r = 0; r < m->size && st == ZRO_OK; r++)
        if (m->piece[r] >= 0)
            st = zro__populate(piece_of(m, r), m->bytes, 0, "group memory of the peers");
    return st;
}

/* Inside the lane. */
static zro_status alloc(zro_group *g, zro_memory_kind kind, size_t bytes, zro_memory **out)
{
    int is_first = g->board.rank == zro__first_near(&g->board);
    char text[64];
    uint64_t offset = 0;
    zro_memory *m = NULL;
    zro_status st = make_handle(g, kind, bytes, &m);

    /* Ranks may be in different control groups: each looks at its own share, the first at all of it. */
    if (st == ZRO_OK)
        st = zro__check_room(kind == ZRO_MEMORY_EACH ? bytes : bytes / (size_t)m->n_near, 0,
                             "this rank's share of group memory");
    if (st == ZRO_OK && is_first)
        st = zro__region_take(g->seat->view, m->total, 0, "group memory for all ranks", &offset);
    snprintf(text, sizeof text, "%s %zu bytes", kind == ZRO_MEMORY_EACH ? "each" : "once", bytes);
    st = zro__agree(&g->board, ZRO__CALL_MEMORY, "the arguments of memory_alloc", text, &offset, st);
    if (st != ZRO_OK) {
        if (is_first && offset != 0)
            zro__region_punch(g->seat->view, offset, m->total);
        free_handle(m);
        return st;
    }
    st = zro__map_region(g->seat->view, offset, m->total, &m->map);
    if (st == ZRO_OK)
        st = populate_own(m, kind);
    st = zro__vote(&g->board, ZRO__CALL_MEMORY, st);
    if (st == ZRO_OK)
        st = zro__vote(&g->board, ZRO__CALL_MEMORY, populate_others(m));
    if (st != ZRO_OK) {
        if (is_first)
            zro__region_punch(g->seat->view, offset, m->total);
        free_handle(m);
        return st;
    }
    atomic_fetch_add_explicit(&g->seat->shared_bytes, m->share, memory_order_relaxed);
    *out = m;
    return ZRO_OK;
}

zro_status zro_memory_alloc(zro_group *g, zro_memory_kind kind, size_t bytes, zro_memory **out)
{
    zro_status st;

    if (out == NULL)
        return zro__fail(ZRO_ERR_INVALID, "memory_alloc: out is NULL");
    *out = NULL;
    if (kind != ZRO_MEMORY_EACH && kind != ZRO_MEMORY_ONCE)
        return zro__fail(ZRO_ERR_INVALID, "memory_alloc: kind = %d is neither EACH nor ONCE", (int)kind);
    st = zro__enter(g);
    return st != ZRO_OK ? st : zro__leave(g, alloc(g, kind, bytes, out));
}

void *zro_memory_data(const zro_memory *m)
{
    return m == NULL ? NULL : piece_of(m, m->rank);
}

void *zro_memory_peer(const zro_memory *m, int rank)
{
    return m == NULL || rank < 0 || rank >= m->size ? NULL : piece_of(m, rank);
}

void zro_memory_free(zro_memory *m)
{
    if (m == NULL || !zro__view_is_alive(m->seat->view))
        return;
    (void)ZRO__POINT("memory.free");
    atomic_fetch_sub_explicit(&m->seat->shared_bytes, m->share, memory_order_relaxed);
    /* Sequentially consistent: who counts last comes after all others' accesses. */
    if (atomic_fetch_add(&head_of(m)->freed, 1) + 1 == (uint32_t)m->n_near)
        zro__region_punch(m->seat->view, m->map.offset, m->total);
    free_handle(m);
}
