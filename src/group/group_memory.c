/* Group memory: arrays that ranks of one machine can reach.
 *
 * An array is a region of the memory of each set of near ranks: one cache line with the number of ranks that have freed it,
 * then one piece for each of them (EACH) or for each machine (ONCE).  Pieces begin at different offsets within a page, and
 * within 64 KiB, so that the same element of all pieces does not fall into the same set of a cache: pieces exactly 256 MiB
 * apart make a plain loop three times slower on some processors.  Every near rank maps the whole region and populates what
 * it writes, in parallel with the others; then, after a vote that all have their pages, what it reads. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/point.h"
#include "group/group.h"

enum { HEAD_BYTES = 64, STAGGER_BYTES = 65536 + 17 * 64 };

struct zro_memory {
    zro__seat *seat;
    zro__map map;
    size_t bytes;           /* of a piece */
    size_t total;           /* bytes of the region */
    size_t stride;          /* from the start of a piece to that of the next */
    size_t share;           /* how many bytes are counted as this rank's */
    int rank, size, n_near; /* this rank; how many ranks the group has, and how many are near */
    int piece[];            /* per rank: the number of its piece, -1 if it is on another machine */
};

static char *piece_of(const zro_memory *m, int rank)
{
    return m->piece[rank] < 0 ? NULL : m->map.base + HEAD_BYTES + (size_t)m->piece[rank] * m->stride;
}

/* Numbers the pieces; returns how many there are. */
static int number_pieces(const zro_group *g, zro_memory_kind kind, int *piece)
{
    int n = 0;

    for (int r = 0; r < g->ranks.board.size; r++) {
        int same = -1;

        for (int q = 0; kind == ZRO_MEMORY_ONCE && q < r && same < 0; q++)
            same = g->ranks.machine[q] == g->ranks.machine[r] ? piece[q] : -1;
        piece[r] = same >= 0 ? same : zro__is_near(&g->ranks.board, r) ? n++ : -1;
    }
    for (int r = 0; r < g->ranks.board.size; r++)
        if (g->ranks.machine[r] != g->ranks.machine[g->ranks.board.rank])
            piece[r] = -1;
    return n;
}

static void free_handle(zro_memory *m)
{
    zro__seat *seat;

    if (m == NULL)
        return;
    seat = m->seat;
    zro__unmap_region(seat->view, &m->map);
    zro__free(m);
    zro__seat_release(seat);
}

static zro_status make_handle(zro_group *g, zro_memory_kind kind, size_t bytes, zro_memory **out)
{
    int size = g->ranks.board.size;
    zro_memory *m = zro__alloc(&g->seat->account, ZRO__KIND_HANDLE, sizeof *m + (size_t)size * sizeof *m->piece);
    size_t pieces, rounded;

    *out = m;
    if (m == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a handle of group memory");
    m->seat = g->seat;
    zro__seat_retain(m->seat);
    m->bytes = bytes;
    m->rank = g->ranks.board.rank;
    m->size = size;
    m->n_near = g->layout.n_near;
    pieces = (size_t)number_pieces(g, kind, m->piece);
    if (!zro__size_round(bytes, 64, &rounded) || !zro__size_add(rounded, STAGGER_BYTES, &m->stride)
        || !zro__size_mul(m->stride, pieces, &m->total) || !zro__size_add(m->total, HEAD_BYTES, &m->total))
        return zro__fail(ZRO_ERR_MEMORY, "memory_alloc: %zu bytes for %zu pieces are too many", bytes, pieces);
    return ZRO_OK;
}

/* This rank populates all of its piece, or an even share where the piece exists once for its machine. */
static zro_status populate_own(zro_memory *m, zro_memory_kind kind)
{
    size_t first = 0;
    int ranks = 0, index = 0;

    for (int r = 0; r < m->size; r++) {
        index += m->piece[r] >= 0 && r < m->rank;
        ranks += m->piece[r] >= 0;
    }
    m->share = m->bytes;
    if (kind == ZRO_MEMORY_ONCE)
        zro__cut_even(m->bytes, ranks, index, &first, &m->share);
    return zro__populate(piece_of(m, m->rank) + first, m->share, 1, "group memory");
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
    int is_first = g->ranks.board.rank == zro__first_near(&g->ranks.board);
    char text[64];
    uint64_t offset = 0;
    zro_memory *m = NULL;
    zro_status st = make_handle(g, kind, bytes, &m);

    /* Ranks may be in different control groups: each checks its own share, the first near rank all of the memory. */
    if (st == ZRO_OK)
        st = zro__check_memory_left(kind == ZRO_MEMORY_EACH ? bytes : bytes / (size_t)m->n_near, 0,
                                    "this rank's share of group memory");
    if (st == ZRO_OK && is_first)
        st = zro__region_take(g->seat->view, m->total, 0, "group memory for all ranks", &offset);
    snprintf(text, sizeof text, "%zu bytes %s", bytes, kind == ZRO_MEMORY_EACH ? "for each rank" : "once per machine");
    st = zro__agree(&g->ranks.board, ZRO__CALL_MEMORY, "the arguments of memory_alloc", text, &offset, st);
    if (st == ZRO_OK) {
        st = zro__map_region(g->seat->view, offset, m->total, &m->map);
        if (st == ZRO_OK)
            st = populate_own(m, kind);
        st = zro__vote(&g->ranks.board, ZRO__CALL_MEMORY, st);
    }
    if (st == ZRO_OK)
        st = zro__vote(&g->ranks.board, ZRO__CALL_MEMORY, populate_others(m));
    if (st != ZRO_OK) {
        if (is_first && offset != 0)
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
    if (atomic_fetch_add((_Atomic uint32_t *)(void *)m->map.base, 1) + 1 == (uint32_t)m->n_near)
        zro__region_punch(m->seat->view, m->map.offset, m->total);
    free_handle(m);
}
