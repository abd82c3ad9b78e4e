/* The group handle: what it consists of, how it is built and how it ends.
 *
 * A handle is built on a region of the world's memory that is mapped already (create.c says how that comes about): the board
 * is there, the rest is tables.  Building ends in a vote on the board, so that a handle that cannot be built on one rank is not
 * built on any. */
#define _GNU_SOURCE
#include "group/group.h"

#include <inttypes.h>
#include <poll.h>
#include <string.h>

#include "base/log.h"
#include "base/point.h"
#include "base/settings.h"

/* ---- configuration ---- */

static const zro_group_config defaults = ZRO_GROUP_CONFIG_INIT;

void zro_group_config_init(zro_group_config *config)
{
    if (config != NULL)
        *config = defaults;
}

zro_status zro__config_read(const zro_group_config *config, zro_group_config *out)
{
    zro_status st;

    *out = defaults;
    st = zro__config_take("zro_group_config", config, offsetof(zro_group_config, settings) + sizeof(zro_settings), out,
                          sizeof *out);
    if (st != ZRO_OK)
        return st;
    if (out->timeout_ms == 0)
        return zro__fail(ZRO_ERR_INVALID, "zro_group_config: timeout_ms = 0, must be positive");
    st = out->link != NULL ? zro__link_check(out->link) : ZRO_OK;
    if (st != ZRO_OK)
        return st;
    if (out->machine < ZRO_MACHINE_AUTO)
        return zro__fail(ZRO_ERR_INVALID, "zro_group_config: machine = %" PRId64 ", must not be negative", out->machine);
    return zro__settings_check(&out->settings);
}

/* ---- what every call checks ---- */

static zro_status check_handle(const zro_group *g)
{
    if (g == NULL)
        return zro__fail(ZRO_ERR_INVALID, "the group is NULL");
    if (!zro__view_is_alive(g->seat->view))
        return zro__fail(ZRO_ERR_STATE, "a child forked by a rank is not a rank");
    return ZRO_OK;
}

zro_status zro__check_group(const zro_group *g)
{
    zro_status st = check_handle(g);

    return st != ZRO_OK ? st : zro__verdict_get(g->board.control);
}

zro_status zro__enter(zro_group *g)
{
    zro_status st = zro__check_group(g);

    if (st != ZRO_OK)
        return st;
    if (g->board.wire != NULL)
        st = zro__trunk_check_thread(g->seat->trunk);
    if (st != ZRO_OK)
        return st;
    atomic_fetch_add_explicit(&g->calls, 1, memory_order_relaxed);
    zro__lane_enter(g->lane);
    if (g->board.wire != NULL)
        g->board.nap_us = zro__lane_is_busy(g->lane) ? ZRO__LANE_NAP_US : ZRO__NAP_US;
    return ZRO_OK;
}

/* The subtraction is the last access: a destroy that waits for it frees the handle then. */
zro_status zro__leave(zro_group *g, zro_status st)
{
    atomic_fetch_sub_explicit(&g->calls, 1, memory_order_release); /* pairs with zro_group_destroy */
    return st;
}

/* ---- the handle ---- */

static size_t round_page(size_t bytes)
{
    return (bytes + 4095) & ~(size_t)4095;
}

void zro__group_layout(int size, int n_near, size_t message_bytes, zro__layout *out)
{
    size_t chunk = zro__local_chunk(size);

    out->n_near = n_near;
    out->chunk = chunk < message_bytes ? chunk : message_bytes / 4096 * 4096;
    out->rings = round_page(zro__board_bytes(size, n_near));
    out->wires = out->rings + zro__local_bytes(n_near, out->chunk);
    out->wire_bytes = round_page(zro__wire_bytes(size - n_near, out->chunk));
    out->bytes = out->wires + (size_t)n_near * out->wire_bytes;
}

void zro__region_leave(zro__view *view, const zro__map *map, const zro__layout *layout)
{
    zro__control *control = (zro__control *)(void *)map->base;

    /* Sequentially consistent: who counts last comes after all others' reading. */
    if (atomic_fetch_add(&control->leavers, 1) + 1 == layout->n_near && !atomic_load(&control->pinned))
        zro__region_punch(view, map->offset, layout->bytes);
}

void zro__control_fill(const zro__map *map, int size, int32_t (*member)(void *, int), int (*is_near)(void *, int), void *user)
{
    zro__control *control = (zro__control *)(void *)map->base;
    int32_t near = 0, far = 0;

    control->size = size;
    for (int r = 0; r < size; r++) {
        control->member[r] = member(user, r);
        control->member[size + r] = is_near(user, r) ? near++ : ~far++;
    }
}

int zro__count_near(int size, int (*is_near)(void *, int), void *user)
{
    int n = 0;

    for (int r = 0; r < size; r++)
        n += is_near(user, r);
    return n;
}

/* Ranks cell after cell, cells by their lowest rank; returns the number of cells. */
static int order_cells(const int32_t *cell, int size, int *order, int *lengths)
{
    int n = 0, cells = 0;

    for (int r = 0; r < size; r++) {
        int seen = 0;

        for (int q = 0; q < r; q++)
            seen |= cell[q] == cell[r];
        if (seen)
            continue;
        lengths[cells] = 0;
        for (int q = r; q < size; q++) {
            if (cell[q] == cell[r]) {
                order[n++] = q;
                lengths[cells]++;
            }
        }
        cells++;
    }
    return cells;
}

static void plan_arena(zro__arena *a, int size, uint32_t threads)
{
    size_t n = (size_t)size;

    zro__local_plan(a, size);
    zro__arena_plan(a, n, sizeof(int64_t));   /* machine */
    zro__arena_plan(a, n, sizeof(int32_t));   /* cell */
    zro__arena_plan(a, n, sizeof(int));       /* order */
    zro__arena_plan(a, n, sizeof(int));       /* cell_of */
    zro__arena_plan(a, n, sizeof(int));       /* everybody */
    zro__arena_plan(a, n, sizeof(uint64_t));  /* met */
    zro__arena_plan(a, n, sizeof(zro__part)); /* scratch, from here on */
    for (int i = 0; i < 3; i++)
        zro__arena_plan(a, n, sizeof(zro__cursor));
    for (int i = 0; i < 4; i++)
        zro__arena_plan(a, n, sizeof(char *));
    zro__arena_plan(a, n, sizeof(int));
    zro__arena_plan(a, n, sizeof(double));
    zro__arena_plan(a, n * (1 + threads), sizeof(void *));
    zro__arena_plan(a, n * (1 + threads), sizeof(void *));
}

static void take_arena(zro_group *g, const zro__map *map, int rank, int size)
{
    zro__arena *a = &g->arena;
    zro__scratch *s = &g->scratch;
    size_t n = (size_t)size, lists = n * (1 + g->settings.threads);

    zro__local_init(&g->local, a, map->base + g->layout.rings, (const zro__control *)(void *)map->base, rank, g->layout.n_near,
                    g->layout.chunk, &g->near_link);
    g->machine = zro__arena_take(a, n, sizeof *g->machine);
    g->cell = zro__arena_take(a, n, sizeof *g->cell);
    g->order = zro__arena_take(a, n, sizeof *g->order);
    g->cell_of = zro__arena_take(a, n, sizeof *g->cell_of);
    g->everybody = zro__arena_take(a, n, sizeof *g->everybody);
    for (int r = 0; r < size; r++)
        g->everybody[r] = r;
    g->met = zro__arena_take(a, n, sizeof *g->met);
    s->parts = zro__arena_take(a, n, sizeof *s->parts);
    s->send = zro__arena_take(a, n, sizeof *s->send);
    s->recv = zro__arena_take(a, n, sizeof *s->recv);
    s->post = zro__arena_take(a, n, sizeof *s->post);
    s->in_of = zro__arena_take(a, n, sizeof *s->in_of);
    s->out_of = zro__arena_take(a, n, sizeof *s->out_of);
    s->message = zro__arena_take(a, n, sizeof *s->message);
    s->room = zro__arena_take(a, n, sizeof *s->room);
    s->twin = zro__arena_take(a, n, sizeof *s->twin);
    s->weight = zro__arena_take(a, n, sizeof *s->weight);
    s->src = zro__arena_take(a, lists, sizeof *s->src);
    s->dst = zro__arena_take(a, lists, sizeof *s->dst);
}

static void free_group(zro_group *g)
{
    zro__seat *seat;

    if (g == NULL)
        return;
    seat = g->seat;
    zro__lane_destroy(g->lane);
    zro__pool_destroy(g->pool);
    zro__unmap_region(seat->view, &g->map);
    zro__arena_free(&g->arena);
    zro__free(g);
    zro__seat_release(seat);
}

/* The lowest rank of the same machine: what a rank's cell is by default. */
static int32_t first_of_machine(const int64_t *machine, int rank)
{
    int32_t r = 0;

    while (machine[r] != machine[rank])
        r++;
    return r;
}

static void fill_places(zro_group *g, const zro__blueprint *b)
{
    g->one_machine = 1;
    for (int r = 0; r < b->size; r++) {
        g->machine[r] = b->machine_of(b->user, r);
        g->one_machine &= g->machine[r] == g->machine[0];
    }
    for (int r = 0; r < b->size; r++)
        g->cell[r] = b->cell_of != NULL ? b->cell_of(b->user, r) : first_of_machine(g->machine, r);
    g->n_cells = order_cells(g->cell, b->size, g->order, g->cell_of);
}

/* *out is set even if this fails half-way; free_group takes it. */
static zro_status build(const zro__blueprint *b, zro_group **out)
{
    zro_group *g = zro__alloc(&b->seat->account, ZRO__KIND_HANDLE, sizeof *g);
    zro_status st;

    *out = g;
    if (g == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a group handle");
    g->seat = b->seat;
    zro__seat_retain(g->seat);
    g->layout = b->layout;
    g->settings = b->settings;
    g->kernels = zro__kernels_get(b->settings.kernels);
    plan_arena(&g->arena, b->size, g->settings.threads);
    st = zro__arena_init(&g->arena, &g->seat->account, "the tables of a group");
    if (st != ZRO_OK)
        return st;
    take_arena(g, &b->map, b->rank, b->size);
    fill_places(g, b);
    st = zro__lane_create(&g->lane);
    if (st == ZRO_OK && g->settings.threads > 1)
        st = zro__pool_create(&g->seat->account, g->settings.threads, &g->pool);
    return st;
}

zro_status zro__group_build(const zro__blueprint *b, zro_status st, zro_group **out)
{
    zro__control *control = (zro__control *)(void *)b->map.base;
    zro__board board = { .control = control,
                         .slots = zro__board_slots(control),
                         .lives = b->lives,
                         .rank = b->rank,
                         .size = b->size,
                         .timeout_ms = b->timeout_ms,
                         .nap_us = ZRO__NAP_US };
    char *wires = b->map.base + b->layout.wires;
    zro__link far_link = { 0 };
    zro_group *g = NULL;

    if (b->layout.n_near < b->size)
        board.wire = zro__wire_open(wires + (size_t)zro__place_of(control, b->rank) * b->layout.wire_bytes, b->trunk, b->view,
                                    control, b->number, b->layout.chunk, &far_link);
    if (st == ZRO_OK)
        st = build(b, &g);
    (void)ZRO__POINT("group.vote");
    st = zro__vote(&board, ZRO__CALL_CREATE, st);
    if (st != ZRO_OK) {
        if (board.wire != NULL)
            zro__wire_close(board.wire);
        free_group(g);
        return st;
    }
    g->map = b->map;
    g->far_link = far_link;
    g->board = board;
    g->board.counters = &g->counters;
    if (board.wire != NULL)
        zro__wire_count(board.wire, &g->counters);
    *out = g;
    zro__log(&g->settings, ZRO_LOG_DEBUG,
             "rank %d of a group of %d, %d on this machine: kernels %s, threads %u, cells %d, %zu bytes of slots and links",
             b->rank, b->size, b->layout.n_near, g->kernels->name, (unsigned)g->settings.threads, g->n_cells, g->layout.bytes);
    return ZRO_OK;
}

/* ---- the end ---- */

void zro_group_destroy(zro_group *g)
{
    zro__slot *slot;

    /* In a forked child the handle stays: what it holds is the parent's. */
    if (g == NULL || !zro__view_is_alive(g->seat->view) || zro__lane_is_mine(g->lane))
        return;
    slot = zro__slot_of(&g->board, g->board.rank);
    if (zro__lane_is_busy(g->lane) || atomic_load_explicit(&g->calls, memory_order_acquire) > 0) {
        char name[64];

        zro__fail(ZRO_ERR_LOST, "%s destroyed the group before its work on it had finished",
                  zro__rank_name(&g->board, g->board.rank, name, sizeof name));
        (void)zro__break(&g->board, ZRO_ERR_LOST);
        zro__lane_stop(g->lane);
        while (atomic_load_explicit(&g->calls, memory_order_acquire) > 0) /* pairs with zro__leave */
            poll(NULL, 0, 1);
    }
    atomic_store_explicit(&slot->left, 1, memory_order_release); /* pairs with the acquire in slot.c's check_peers */
    (void)ZRO__POINT("group.leave");
    if (g->board.wire != NULL) {
        zro__wire_leave(g->board.wire);
        zro__wire_close(g->board.wire);
    }
    zro__region_leave(g->seat->view, &g->map, &g->layout);
    free_group(g);
}

void zro__group_die(zro_group *g)
{
    zro__life_mark_dead(g->seat->life);
    /* The thread may have ended inside a call, which nobody will leave any more. */
    atomic_store_explicit(&g->calls, 0, memory_order_relaxed);
    zro_group_destroy(g);
}

/* ---- questions ---- */

int zro_group_rank(const zro_group *g)
{
    return g == NULL ? -1 : g->board.rank;
}

int zro_group_size(const zro_group *g)
{
    return g == NULL ? 0 : g->board.size;
}

int zro_group_label(const zro_group *g, int rank)
{
    if (g == NULL || rank < 0 || rank >= g->board.size || !zro__view_is_alive(g->seat->view))
        return -1;
    return g->board.control->member[rank];
}

zro_status zro_group_status(const zro_group *g)
{
    return zro__check_group(g);
}

void zro_stats_init(zro_stats *stats)
{
    static const zro_stats empty = ZRO_STATS_INIT;

    if (stats != NULL)
        *stats = empty;
}

static uint64_t get(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)counter, memory_order_relaxed);
}

zro_status zro_group_stats(const zro_group *g, zro_stats *stats)
{
    zro_stats s = ZRO_STATS_INIT;
    size_t size;
    zro_status st = check_handle(g);

    if (st != ZRO_OK)
        return st;
    if (stats == NULL)
        return zro__fail(ZRO_ERR_INVALID, "group_stats: stats is NULL");
    size = stats->struct_size;
    if (size < sizeof(size_t) || size > 4096)
        return zro__fail(ZRO_ERR_INVALID, "zro_stats: struct_size = %zu; begin with ZRO_STATS_INIT", size);
    s.operations = get(&g->counters.operations);
    s.direct_bytes = get(&g->counters.direct_bytes);
    s.link_bytes = get(&g->counters.link_bytes);
    s.link_messages = get(&g->counters.link_messages);
    s.waits = get(&g->counters.waits);
    s.sleeps = get(&g->counters.sleeps);
    s.wait_ns = get(&g->counters.wait_ns);
    s.heap_bytes = atomic_load_explicit(&g->seat->account.in_use, memory_order_relaxed);
    s.heap_peak_bytes = atomic_load_explicit(&g->seat->account.peak, memory_order_relaxed);
    s.shared_bytes = get(&g->seat->shared_bytes);
    s.control_bytes = g->layout.bytes;
    s.deliveries = get(&g->counters.deliveries);
    s.state_bytes = atomic_load_explicit(&g->seat->account.bytes[ZRO__KIND_STATE], memory_order_relaxed);
    memcpy(stats, &s, size < sizeof s ? size : sizeof s);
    stats->struct_size = size;
    return ZRO_OK;
}

zro_status zro_submit(zro_group *g, zro_work_fn fn, void *user, zro_work **out)
{
    zro_status st;

    if (out == NULL)
        return zro__fail(ZRO_ERR_INVALID, "submit: out is NULL");
    *out = NULL;
    if (fn == NULL)
        return zro__fail(ZRO_ERR_INVALID, "submit: fn is NULL");
    st = zro__check_group(g);
    if (st == ZRO_OK && g->board.wire != NULL && g->seat->trunk->link.one_thread == ZRO_ON)
        st = zro__fail(
            ZRO_ERR_UNSUPPORTED,
            "submit: the group's link works on one thread alone, so nothing can run on the group's own (MPI: initialise "
            "with MPI_THREAD_SERIALIZED or more)");
    return st != ZRO_OK ? st : zro__lane_submit(g->lane, fn, user, out);
}
