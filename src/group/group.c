/* The group handle: what it consists of, how it is built and how it ends.
 *
 * A handle is built on a region of the world's memory that is mapped already (create.c says how that comes about): the board
 * is there, the rest is tables.  Building ends in a vote on the board, so that a handle that cannot be built on one rank is not
 * built on any. */
#define _GNU_SOURCE
#include "group/group.h"

#include <inttypes.h>

#include "base/log.h"
#include "base/point.h"
#include "base/settings.h"

/* ---- configuration ---- */

ZRO__DEFINE_INIT(zro_group_config, ZRO_GROUP_CONFIG_INIT)
ZRO__DEFINE_INIT(zro_stats, ZRO_STATS_INIT)

zro_status zro__config_read(const zro_group_config *config, zro_group_config *out)
{
    zro_status st;

    zro_group_config_init(out);
    st = zro__config_take("zro_group_config", config, offsetof(zro_group_config, settings) + sizeof(zro_settings), out,
                          sizeof *out);
    if (st != ZRO_OK)
        return st;
    if (out->timeout_ms == 0)
        return zro__fail(ZRO_ERR_INVALID, "zro_group_config: timeout_ms = 0, must be positive");
    st = out->link != NULL ? zro__program_link_check_table(out->link) : ZRO_OK;
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
        return zro__fail(ZRO_ERR_STATE, "a child forked by a rank is not a rank; call zro in the process that made the group");
    return ZRO_OK;
}

zro_status zro__check_group(const zro_group *g)
{
    zro_status st = check_handle(g);

    return st != ZRO_OK ? st : zro__verdict_get(g->ranks.board.control);
}

void zro__group_settle(zro_group *g)
{
    if (g->ranks.board.size < 2 || !zro__is_broken(g->ranks.board.control))
        return;
    zro__settle(&g->ranks.board, g->ranks.view, g->ranks.late);
    (void)zro__trace_flush(g->ranks.board.trace); /* a program may end now without destroying anything */
}

/* Calls come from one thread at a time, and beside it from the lane's.  Each of the two has a count of its own, so neither needs a
 * locked addition. */
static inline void count_call(zro_group *g, int on_lane, int by, memory_order order)
{
    atomic_int *calls = &g->calls[on_lane];

    atomic_store_explicit(calls, atomic_load_explicit(calls, memory_order_relaxed) + by, order);
}

/* 1 on the lane's own thread, for calls that a submitted function makes. */
static inline int is_on_lane(zro_group *g)
{
    return zro__lane_is_busy(g->lane) && zro__lane_is_mine(g->lane);
}

/* After zro__group_die the lane's thread still leaves the call that it was in, so its count may be below 0. */
static int is_called(zro_group *g)
{
    /* pairs with zro__leave */
    return atomic_load_explicit(&g->calls[0], memory_order_acquire) > 0
           || atomic_load_explicit(&g->calls[1], memory_order_acquire) > 0;
}

zro_status zro__enter(zro_group *g)
{
    zro_status st = check_handle(g);
    int on_lane;

    if (st != ZRO_OK)
        return st;
    st = zro__verdict_get(g->ranks.board.control);
    if (st != ZRO_OK)
        zro__group_settle(g);
    else if (g->ranks.board.far != NULL)
        st = zro__program_link_check_thread(g->seat->program_link);
    if (st != ZRO_OK)
        return st;
    on_lane = is_on_lane(g);
    count_call(g, on_lane, 1, memory_order_relaxed);
    if (!on_lane)
        zro__lane_enter(g->lane);
    if (zro__is_broken(g->ranks.board.control)) /* while it waited */
        return zro__leave(g, zro__verdict_get(g->ranks.board.control));
    if (g->ranks.board.far != NULL)
        g->ranks.board.far->poller.nap_us = zro__lane_is_busy(g->lane) ? ZRO__LANE_NAP_US : ZRO__NAP_US;
    return ZRO_OK;
}

/* The count is the last access: a destroy that waits for it frees the handle then. */
zro_status zro__leave(zro_group *g, zro_status st)
{
    if (st != ZRO_OK)
        zro__group_settle(g);
    count_call(g, is_on_lane(g), -1, memory_order_release); /* pairs with zro_group_destroy */
    return st;
}

/* ---- the handle ---- */

static size_t round_line(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

void zro__group_layout(int size, int n_near, size_t message_bytes, zro__layout *out)
{
    size_t chunk = zro__rings_chunk(size);

    out->n_near = n_near;
    out->chunk = chunk < message_bytes ? chunk : message_bytes / 4096 * 4096;
    out->rings = round_line(zro__board_bytes(size, n_near));
    out->fars = out->rings + zro__rings_bytes(n_near);
    out->far_bytes = round_line(zro__far_bytes(size, size - n_near));
    out->bytes = out->fars + (size_t)n_near * out->far_bytes;
}

void zro__region_leave(zro__view *view, const zro__map *map, const zro__layout *layout)
{
    zro__control *control = (zro__control *)(void *)map->base;

    /* Sequentially consistent: who counts last comes after all others' reading. */
    if (atomic_fetch_add(&control->leavers, 1) + 1 != layout->n_near)
        return;
    zro__rings_punch(view, map->base + layout->rings, layout->n_near, layout->chunk);
    if (!atomic_load(&control->pinned))
        zro__region_punch(view, map->offset, layout->bytes);
}

static zro_status make_tables(zro_group *g, int size)
{
    zro__array arrays[ZRO__RANKS_ARRAYS + ZRO__RINGS_ARRAYS + 3], *own = arrays + ZRO__RANKS_ARRAYS + ZRO__RINGS_ARRAYS;
    zro_status st;

    zro__ranks_list(&g->ranks, size, arrays);
    zro__rings_list(&g->rings, size, arrays + ZRO__RANKS_ARRAYS);
    own[0] = (zro__array){ &g->cell, (size_t)size, sizeof *g->cell };
    own[1] = (zro__array){ &g->everybody, (size_t)size, sizeof *g->everybody };
    own[2] = (zro__array){ &g->met, (size_t)size, sizeof *g->met };
    st = zro__arena_arrays(&g->arena, &g->seat->account, "the tables of a group", arrays, sizeof arrays / sizeof *arrays);
    for (int r = 0; r < size && st == ZRO_OK; r++)
        g->everybody[r] = r;
    return st;
}

static void free_group(zro_group *g)
{
    zro__seat *seat;

    if (g == NULL)
        return;
    seat = g->seat;
    zro__lane_destroy(g->lane);
    zro__pool_destroy(g->ranks.pool);
    zro__late_drop(seat->view, g->ranks.late);
    zro__rings_close(&g->rings);
    zro__unmap_region(seat->view, &g->map);
    zro__arena_free(&g->arena);
    zro__free(g);
    zro__seat_release(seat);
}

static void fill_members(zro_group *g, const zro__formation *f)
{
    g->ranks.one_machine = 1;
    for (int r = 0; r < f->size; r++) {
        zro__member m = f->member(f, r);

        g->ranks.machine[r] = m.machine;
        g->ranks.one_machine &= m.machine == g->ranks.machine[0];
        g->cell[r] = m.cell;
    }
    zro__ranks_order(&g->ranks, g->cell, f->size);
}

/* *out is set even if this fails half-way; free_group takes it. */
static zro_status build(const zro__formation *f, zro_group **out)
{
    zro_group *g = zro__alloc(&f->seat->account, ZRO__KIND_HANDLE, sizeof *g);
    zro_status st;

    *out = g;
    if (g == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a group handle");
    g->seat = f->seat;
    zro__seat_retain(g->seat);
    g->layout = f->layout;
    g->settings = f->settings;
    g->ranks.view = f->view;
    g->ranks.kernels = zro__kernels_get(f->settings.kernels);
    g->ranks.threads = f->settings.threads;
    g->ranks.fast = f->settings.fast;
    st = make_tables(g, f->size);
    if (st == ZRO_OK)
        st = zro__late_make(f->size, &g->ranks.late);
    if (st != ZRO_OK)
        return st;
    zro__rings_init(&g->rings, f->map.base + g->layout.rings, (zro__control *)(void *)f->map.base, g->ranks.view, f->rank,
                    g->layout.n_near, g->layout.chunk, &g->ranks.near);
    fill_members(g, f);
    st = zro__lane_create(g->seat->trace, &g->lane);
    if (st == ZRO_OK && g->settings.threads > 1)
        st = zro__pool_create(&g->seat->account, g->settings.threads, &g->ranks.pool);
    return st;
}

zro_status zro__group_build(const zro__formation *f, zro_status st, zro_group **out)
{
    zro__control *control = (zro__control *)(void *)f->map.base;
    zro__board board = { .control = control,
                         .slots = zro__board_slots(control),
                         .lives = f->lives,
                         .meet = f->meet,
                         .rank = f->rank,
                         .size = f->size,
                         .timeout_ms = f->timeout_ms,
                         .boards = f->seat != NULL ? &f->seat->boards : NULL,
                         .trace = f->seat != NULL ? f->seat->trace : NULL };
    char *fars = f->map.base + f->layout.fars;
    zro__carrier carrier = { 0 };
    zro__far *far = NULL;
    zro_group *g = NULL;

    if (f->layout.n_near < f->size) {
        zro__far_config config = {
            .program_link = f->program_link, .view = f->view, .control = control, .number = f->number, .chunk = f->layout.chunk
        };

        far = zro__far_open(fars + (size_t)zro__slot_index(control, f->rank) * f->layout.far_bytes, &config, &carrier);
        board.far = zro__far_board(far);
    }
    if (st == ZRO_OK)
        st = build(f, &g);
    (void)ZRO__POINT("group.vote");
    st = zro__vote(&board, ZRO__CALL_CREATE, st);
    if (st != ZRO_OK) {
        if (far != NULL)
            zro__far_close(far);
        free_group(g);
        return st;
    }
    g->map = f->map;
    g->far = far;
    g->ranks.far = carrier;
    g->ranks.board = board;
    g->ranks.board.counters = &g->ranks.counters;
    g->ranks.board.settings = &g->settings;
    zro__board_join(&g->ranks.board);
    if (far != NULL)
        zro__far_count(far, &g->ranks.counters);
    *out = g;
    zro__log(&g->settings, ZRO_LOG_DEBUG,
             "rank %d of a group of %d, %d on this machine: kernels %s, threads %u, cells %d, %zu bytes of slots and links",
             f->rank, f->size, f->layout.n_near, g->ranks.kernels->name, (unsigned)g->settings.threads, g->ranks.n_cells,
             g->layout.bytes);
    return ZRO_OK;
}

/* ---- the end ---- */

/* A program that makes a group and gives it to nobody trains each rank by itself; that it runs well is the trap. */
static void say_unused(const zro_group *g)
{
    if (!g->is_expected || g->ranks.board.size < 2 || g->ranks.board.rank != 0
        || atomic_load_explicit(&g->ranks.counters.operations, memory_order_relaxed) > 0)
        return;
    zro__log(&g->settings, ZRO_LOG_WARN,
             "the group of %d ranks was made and never used, so each rank worked by itself; pass it to zro_optim_create, and "
             "average gradients over it: zro_params_all_reduce(group, params, n, ZRO_AVG)",
             g->ranks.board.size);
}

void zro_group_destroy(zro_group *g)
{
    zro__slot *slot;

    /* In a forked child the handle stays: what it holds is the parent's. */
    if (g == NULL || !zro__view_is_alive(g->seat->view) || zro__lane_is_mine(g->lane))
        return;
    say_unused(g);
    slot = zro__slot_of(&g->ranks.board, g->ranks.board.rank);
    if (zro__lane_is_busy(g->lane) || is_called(g)) {
        char name[64];

        zro__fail(ZRO_ERR_LOST, "%s destroyed the group before its work on it had finished",
                  zro__rank_name(&g->ranks.board, g->ranks.board.rank, name, sizeof name));
        zro__meet_lost(g->ranks.board.meet, zro_group_label(g, g->ranks.board.rank), 0);
        (void)zro__break(&g->ranks.board, ZRO_ERR_LOST, g->ranks.board.rank);
        zro__lane_stop(g->lane);
        while (is_called(g))
            zro__nap();
    }
    zro__board_quit(&g->ranks.board);
    atomic_store_explicit(&slot->left, 1, memory_order_release); /* pairs with the acquire in zro__has_left */
    (void)ZRO__POINT("group.leave");
    if (g->far != NULL) {
        zro__far_leave(g->far);
        zro__far_close(g->far);
    }
    zro__region_leave(g->seat->view, &g->map, &g->layout);
    (void)zro__trace_flush(g->ranks.board.trace); /* an array may keep the seat */
    free_group(g);
}

void zro__group_die(zro_group *g)
{
    zro__life_mark_dead(g->seat->life);
    /* The thread may have ended inside a call, which nobody will leave any more. */
    for (int i = 0; i < 2; i++)
        atomic_store_explicit(&g->calls[i], 0, memory_order_relaxed);
    zro_group_destroy(g);
}

void zro__group_end(zro_group *g)
{
    zro__boards *boards = &g->seat->boards;
    int has_others;

    pthread_mutex_lock(&boards->lock);
    has_others = boards->first != NULL && boards->first->next != NULL;
    pthread_mutex_unlock(&boards->lock);
    if (has_others)
        zro__group_die(g);
    else
        zro_group_destroy(g);
}

/* ---- questions ---- */

int zro_group_rank(const zro_group *g)
{
    return g == NULL ? -1 : g->ranks.board.rank;
}

int zro_group_size(const zro_group *g)
{
    return g == NULL ? 0 : g->ranks.board.size;
}

int zro_group_label(const zro_group *g, int rank)
{
    if (g == NULL || rank < 0 || rank >= g->ranks.board.size || !zro__view_is_alive(g->seat->view))
        return -1;
    return g->ranks.board.control->member[rank];
}

zro_status zro_group_status(const zro_group *g)
{
    return zro__check_group(g);
}

static uint64_t get(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)counter, memory_order_relaxed);
}

zro_status zro_group_stats(const zro_group *g, zro_stats *stats)
{
    zro_stats s = ZRO_STATS_INIT;
    zro_status st = check_handle(g);

    if (st != ZRO_OK)
        return st;
    s.operations = get(&g->ranks.counters.operations);
    s.direct_bytes = get(&g->ranks.counters.direct_bytes);
    s.link_bytes = get(&g->ranks.counters.link_bytes);
    s.link_messages = get(&g->ranks.counters.link_messages);
    s.waits = get(&g->ranks.counters.waits);
    s.sleeps = get(&g->ranks.counters.sleeps);
    s.wait_ns = get(&g->ranks.counters.wait_ns);
    s.heap_bytes = atomic_load_explicit(&g->seat->account.in_use, memory_order_relaxed);
    s.heap_peak_bytes = atomic_load_explicit(&g->seat->account.peak, memory_order_relaxed);
    s.shared_bytes = get(&g->seat->shared_bytes);
    s.control_bytes = g->layout.bytes + get(&g->ranks.board.control->buffer_bytes);
    s.deliveries = get(&g->ranks.counters.deliveries);
    s.passes = get(&g->ranks.counters.passes);
    s.allocations = atomic_load_explicit(&g->seat->account.allocations, memory_order_relaxed);
    s.state_bytes = atomic_load_explicit(&g->seat->account.bytes[ZRO__KIND_STATE], memory_order_relaxed);
    return zro__config_give("group_stats: stats is NULL, or was not begun with ZRO_STATS_INIT", &s, sizeof s, stats);
}

uint64_t zro_trace_begin(const zro_group *g)
{
    return g == NULL || !zro__view_is_alive(g->seat->view) ? 0 : zro__trace_begin(g->ranks.board.trace);
}

void zro_trace_end(const zro_group *g, uint64_t mark, const char *name)
{
    if (g != NULL && g->ranks.board.trace != NULL && zro__view_is_alive(g->seat->view))
        zro__trace_end(g->ranks.board.trace, mark, name != NULL ? name : "", -1, 0);
}

zro_status zro_trace_flush(const zro_group *g)
{
    zro_status st = check_handle(g);

    if (st == ZRO_OK && !zro__trace_flush(g->ranks.board.trace))
        st = zro__fail(ZRO_ERR_SYSTEM, "trace_flush: %s cannot be written; a warning has said why",
                       zro__trace_path(g->ranks.board.trace));
    return st;
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
    if (st == ZRO_OK && g->ranks.board.far != NULL && g->seat->program_link->link.one_thread == ZRO_ON)
        st = zro__fail(
            ZRO_ERR_UNSUPPORTED,
            "submit: the group's link works on one thread alone, so nothing can run on the group's own (MPI: initialise "
            "with MPI_THREAD_SERIALIZED or more)");
    return st != ZRO_OK ? st : zro__lane_submit(g->lane, fn, user, out);
}
