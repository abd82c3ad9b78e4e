/* How a group comes about.
 *
 * From tickets: the first rank has made the world's memory, with the region of the first group in it, when it wrote its
 * ticket; every process opens it once, every rank maps the region and takes a seat.
 * From a parent: the first member makes the region and writes a notice, with a hash of the members, into its slot of the
 * parent; the other members wait for a notice with that hash.  So only members take part, and nothing is written to the
 * parent's order of operations.
 *
 * Then all build their handles and vote (group.c).  Whatever goes wrong before that is brought to the vote; only a rank that
 * cannot even map the region leaves the others to their deadline. */
#include "group/create.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/point.h"
#include "group/group.h"
#include "group/ticket.h"

static zro__control *control_of(const zro__map *map)
{
    return (zro__control *)(void *)map->base;
}

/* ---- from tickets ---- */

static zro_status check_numbers(const char *name, int rank, int size)
{
    if (size < 1 || size > ZRO__MAX_RANKS)
        return zro__fail(ZRO_ERR_INVALID, "%s: size = %d, must be 1 to %d", name, size, ZRO__MAX_RANKS);
    if (rank < 0 || rank >= size)
        return zro__fail(ZRO_ERR_INVALID, "%s: rank = %d, must be in [0, %d)", name, rank, size);
    return ZRO_OK;
}

/* The first rank makes the world before anybody can look for it. */
static zro_status make_world(zro__view *view, int size)
{
    zro__control *control;
    zro__map map;
    zro_status st = zro__view_found(view, size, zro__group_region_bytes(size));

    if (st != ZRO_OK)
        return st;
    st = zro__map_region(view, zro__world_region(size), zro__group_region_bytes(size), &map);
    if (st == ZRO_OK) {
        control = control_of(&map);
        control->size = size;
        for (int r = 0; r < size; r++)
            control->member[r] = r;
        zro__view_opened(view, ZRO_OK);
    }
    zro__unmap_region(view, &map);
    return st;
}

zro_status zro_group_ticket(const zro_group_config *config, int rank, int size, void *ticket)
{
    zro_group_config c;
    zro__ticket t;
    zro__view *view;
    zro_status st = zro__config_read(config, &c);

    if (st == ZRO_OK)
        st = check_numbers("group_ticket", rank, size);
    if (st == ZRO_OK && ticket == NULL)
        st = zro__fail(ZRO_ERR_INVALID, "group_ticket: ticket is NULL");
    if (st == ZRO_OK)
        st = zro__view_create(&view);
    if (st != ZRO_OK)
        return st;
    if (rank == 0)
        st = make_world(view, size);
    if (st != ZRO_OK) {
        zro__view_drop(view, 1);
        return st;
    }
    zro__ticket_write(view, rank, size, &c, &t);
    memset(ticket, 0, ZRO_TICKET_BYTES);
    memcpy(ticket, &t, sizeof t);
    return ZRO_OK;
}

static zro__view *view_of(const void *tickets, int rank)
{
    return (zro__view *)(uintptr_t)zro__ticket_get(tickets, rank).view;
}

/* The view that this rank uses is that of the lowest rank of its process, which opens the world's memory. */
static zro_status open_view(const void *tickets, int rank, int size, uint64_t timeout_ms, zro__view **view, int *sharers)
{
    int first = zro__ticket_first_of_process(tickets, rank), fd = -1;
    zro_status st;

    *sharers = 0;
    for (int r = first; r < size; r++)
        *sharers += zro__ticket_first_of_process(tickets, r) == first;
    *view = view_of(tickets, first);
    if (first != rank) {
        zro__view_drop(view_of(tickets, rank), 1);
        return zro__view_await(*view, timeout_ms);
    }
    if (rank == 0)
        return zro__ticket_serve(tickets, size, timeout_ms);
    st = zro__ticket_open(tickets, rank, timeout_ms, &fd);
    if (st == ZRO_OK)
        st = zro__view_adopt(*view, size, fd, zro__ticket_get(tickets, 0).nonce);
    zro__view_opened(*view, st);
    return st;
}

/* On failure *out is NULL, and the view is still the caller's. */
static zro_status take_seat(zro__view *view, int sharers, int rank, zro__life_kind kind, zro__seat **out)
{
    zro__seat *seat = zro__alloc(NULL, ZRO__KIND_HANDLE, sizeof *seat);
    zro_status st = ZRO_OK;

    *out = NULL;
    if (seat == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a rank's seat");
    seat->view = view;
    seat->sharers = sharers;
    seat->rank = rank;
    seat->life = &view->world->lives[rank];
    atomic_init(&seat->refs, 1);
    if (kind == ZRO__LIFE_OF_THREAD)
        zro__life_mark_alive(seat->life);
    else
        st = zro__life_hold(&seat->holder, seat->life);
    if (st != ZRO_OK) {
        zro__free(seat);
        return st;
    }
    *out = seat;
    return ZRO_OK;
}

typedef struct from_tickets {
    const void *tickets;
    const int32_t *cells;
} from_tickets;

static int64_t machine_in_ticket(void *user, int rank)
{
    return zro__ticket_get(((from_tickets *)user)->tickets, rank).machine;
}

static int32_t cell_in_config(void *user, int rank)
{
    return ((from_tickets *)user)->cells[rank];
}

/* A create that failed because a rank is gone ends at once on those who were there; but whoever comes later must still find the
 * memory, which is reached through the first rank, to read the verdict in it.  So the first rank stays for a moment. */
static void let_others_in(zro__life *lives, int size, uint64_t timeout_ms)
{
    uint64_t start = zro__now_ns(), limit_ms = timeout_ms < 1000 ? timeout_ms : 1000;

    for (int r = 1; r < size; r++)
        while (!zro__life_is_taken(&lives[r]) && !zro__life_is_dead(&lives[r]) && (zro__now_ns() - start) / 1000000 < limit_ms)
            poll(NULL, 0, 1);
}

static zro_status create_from_tickets(const zro_group_config *config, int rank, int size, const void *tickets,
                                      zro__life_kind kind, zro_group **out)
{
    from_tickets from = { tickets, config->cells };
    zro__blueprint b = { .rank = rank,
                         .size = size,
                         .settings = config->settings,
                         .timeout_ms = config->timeout_ms,
                         .machine_of = machine_in_ticket,
                         .cell_of = config->cells != NULL ? cell_in_config : NULL,
                         .user = &from };
    zro__view *view;
    int sharers;
    zro_status st = open_view(tickets, rank, size, config->timeout_ms, &view, &sharers);

    if (st == ZRO_OK)
        st = zro__map_region(view, zro__world_region(size), zro__group_region_bytes(size), &b.map);
    if (b.map.base == NULL) {
        zro__view_drop(view, sharers);
        return st;
    }
    if (st == ZRO_OK && zro__cells_hash(config->cells, size) != zro__ticket_get(tickets, rank).cells)
        st = zro__fail(ZRO_ERR_MISMATCH, "group_create_tickets: the cells of rank %d are not those of its ticket", rank);
    if (st == ZRO_OK)
        st = take_seat(view, sharers, rank, kind, &b.seat);
    b.lives = view->world->lives;
    for (int r = 0; r < size && zro__tickets_one_pid_ns(tickets, size); r++)
        atomic_store_explicit(&b.lives[r].pid, zro__ticket_get(tickets, r).pid, memory_order_relaxed);
    (void)ZRO__POINT("create.seat");
    st = zro__group_build(&b, st, out);
    if (rank == 0 && (st == ZRO_ERR_LOST || st == ZRO_ERR_TIMEOUT))
        let_others_in(b.lives, size, config->timeout_ms);
    if (st != ZRO_OK)
        zro__unmap_region(view, &b.map);
    if (b.seat != NULL)
        zro__seat_release(b.seat);
    else
        zro__view_drop(view, sharers);
    return st;
}

static zro_status create_checked(const zro_group_config *config, int rank, int size, const void *tickets, zro__life_kind kind,
                                 zro_group **out)
{
    zro_status st = zro__tickets_check(tickets, rank, size);

    if (st == ZRO_OK)
        return create_from_tickets(config, rank, size, tickets, kind, out);
    /* The own ticket is used up all the same, if it is one. */
    zro_group_ticket_drop((const char *)tickets + (size_t)rank * ZRO_TICKET_BYTES);
    return st;
}

void zro_group_ticket_drop(const void *ticket)
{
    zro__ticket own;

    if (ticket == NULL)
        return;
    own = zro__ticket_get(ticket, 0);
    if (zro__ticket_is_own(&own))
        zro__view_drop(view_of(ticket, 0), 1);
}

zro_status zro_group_create_tickets(const zro_group_config *config, int rank, int size, const void *tickets, zro_group **out)
{
    zro_group_config c;
    zro_status st;

    if (out == NULL)
        return zro__fail(ZRO_ERR_INVALID, "group_create_tickets: out is NULL");
    *out = NULL;
    st = zro__config_read(config, &c);
    if (st == ZRO_OK)
        st = check_numbers("group_create_tickets", rank, size);
    if (st == ZRO_OK && tickets == NULL)
        st = zro__fail(ZRO_ERR_INVALID, "group_create_tickets: tickets is NULL");
    return st != ZRO_OK ? st : create_checked(&c, rank, size, tickets, ZRO__LIFE_OF_PROCESS, out);
}

zro_status zro__group_create_at(zro__meet *meet, const zro_group_config *config, int rank, int size, zro__life_kind kind,
                                zro_status st, zro_group **out)
{
    unsigned char ticket[ZRO_TICKET_BYTES] = { 0 };
    unsigned char *tickets = zro__alloc_array(NULL, ZRO__KIND_HANDLE, (size_t)size, ZRO_TICKET_BYTES);
    zro_status met;

    *out = NULL;
    if (st == ZRO_OK && tickets == NULL)
        st = zro__fail(ZRO_ERR_MEMORY, "out of memory: the tickets of %d ranks", size);
    if (st == ZRO_OK)
        st = zro_group_ticket(config, rank, size, ticket);
    met = zro__meet_exchange(meet, rank, config->timeout_ms, st, ticket, tickets);
    if (met == ZRO_OK)
        met = create_checked(config, rank, size, tickets, kind, out);
    else if (st == ZRO_OK)
        zro_group_ticket_drop(ticket);
    zro__free(tickets);
    return met;
}

/* ---- from a parent ---- */

typedef struct from_parent {
    const zro_group *parent;
    const int *ranks;
} from_parent;

static int64_t machine_in_parent(void *user, int rank)
{
    from_parent *from = user;

    return from->parent->machine[from->ranks[rank]];
}

static int32_t cell_in_parent(void *user, int rank)
{
    from_parent *from = user;

    return from->parent->cell[from->ranks[rank]];
}

/* The ranks are different ranks of the parent; *mine is the caller's place among them, or -1. */
static zro_status check_members(const zro_group *parent, const int *ranks, int n, int *mine)
{
    *mine = -1;
    if (ranks == NULL || n < 1 || n > parent->board.size)
        return zro__fail(ZRO_ERR_INVALID, "sub-group: n = %d, must be 1 to %d, with a list of ranks", n, parent->board.size);
    for (int i = 0; i < n; i++) {
        if (ranks[i] < 0 || ranks[i] >= parent->board.size)
            return zro__fail(ZRO_ERR_INVALID, "sub-group: ranks[%d] = %d is no rank of a group of %d", i, ranks[i],
                             parent->board.size);
        for (int k = 0; k < i; k++)
            if (ranks[k] == ranks[i])
                return zro__fail(ZRO_ERR_INVALID, "sub-group: rank %d is listed twice", ranks[i]);
        if (ranks[i] == parent->board.rank)
            *mine = i;
    }
    return ZRO_OK;
}

static zro_status map_new_region(zro_group *parent, const int *ranks, int n, zro__map *map)
{
    zro__view *view = parent->seat->view;
    size_t bytes = zro__group_region_bytes(n);
    uint64_t offset;
    zro__control *control;
    zro_status st = zro__region_take(view, bytes, 1, "the slots of a group", &offset);

    if (st == ZRO_OK)
        st = zro__map_region(view, offset, bytes, map);
    if (map->base == NULL)
        return st;
    control = control_of(map);
    control->size = n;
    for (int r = 0; r < n; r++)
        control->member[r] = parent->board.control->member[ranks[r]];
    return st;
}

/* This rank's newest notice; `next`: the place of the one after it. */
static zro__notice *own_notice(zro_group *parent, int next)
{
    zro__slot *slot = &parent->board.slots[parent->board.rank];
    uint64_t number = atomic_load_explicit(&slot->noticed.value, memory_order_relaxed);

    return &slot->notices[(number + (uint64_t)next) % ZRO__NOTICES];
}

/* The first member tells the others where the region is, or why there is none.  Atomics pair with map_noticed_region. */
static void give_notice(zro_group *parent, uint64_t key, const zro__map *map, zro_status st)
{
    zro__slot *slot = &parent->board.slots[parent->board.rank];
    uint64_t number = atomic_load_explicit(&slot->noticed.value, memory_order_relaxed) + 1;
    zro__notice *notice = own_notice(parent, 1);
    int made = map->base != NULL;

    atomic_store(&notice->number, 0);
    atomic_store(&notice->key, key);
    atomic_store(&notice->offset, map->offset);
    atomic_store(&notice->code, made ? ZRO_OK : (int32_t)st);
    if (!made)
        snprintf(notice->text, sizeof notice->text, "%s", zro_last_error());
    atomic_store(&notice->number, number);
    (void)ZRO__POINT("create.notice");
    zro__post(&slot->noticed, number);
}

typedef struct await {
    const zro_group *parent;
    int leader;
} await;

/* Ends the wait for a notice without breaking the parent, whose operations are not concerned. */
static zro_status check_leader(void *user, uint64_t waited_ms)
{
    await *a = user;
    const zro__board *board = &a->parent->board;
    char name[64];
    zro_status st = zro__verdict_get(board->control);

    if (st != ZRO_OK)
        return st;
    zro__rank_name(board, a->leader, name, sizeof name);
    if (zro__life_is_dead(&board->lives[board->control->member[a->leader]]))
        return zro__fail(ZRO_ERR_LOST, "sub-group: %s, its first member, is gone", name);
    if (atomic_load_explicit(&board->slots[a->leader].left, memory_order_acquire)) /* pairs with zro_group_destroy */
        return zro__fail(ZRO_ERR_LOST, "sub-group: %s, its first member, has destroyed the parent group", name);
    if (waited_ms > board->timeout_ms)
        return zro__fail(ZRO_ERR_TIMEOUT,
                         "sub-group: %s, its first member, did not come within %" PRIu64 " ms with these members", name,
                         board->timeout_ms);
    return ZRO_OK;
}

static zro_status map_noticed_region(zro_group *parent, int leader, int n, uint64_t key, zro__map *map)
{
    zro__slot *slot = &parent->board.slots[leader];
    await a = { parent, leader };

    for (;;) {
        uint64_t number = parent->met[leader] + 1, offset;
        zro__notice *notice = &slot->notices[number % ZRO__NOTICES];
        char name[64];
        int32_t code;
        int mine;
        zro_status st = zro__word_wait(&slot->noticed, number, check_leader, &a, &parent->counters);

        if (st != ZRO_OK)
            return st;
        parent->met[leader] = number;
        mine = atomic_load(&notice->number) == number && atomic_load(&notice->key) == key;
        offset = atomic_load(&notice->offset);
        code = atomic_load(&notice->code);
        if (!mine || atomic_load(&notice->number) != number)
            continue; /* for others, or overwritten since: the first member does not go on before it has all members of a group */
        if (code != ZRO_OK)
            return zro__fail(ZRO_ERR_PEER, "%s: %s: %s", zro__rank_name(&parent->board, leader, name, sizeof name),
                             zro_status_name((zro_status)code), notice->text);
        return zro__map_region(parent->seat->view, offset, zro__group_region_bytes(n), map);
    }
}

/* The new group's region, made by its first member and found by the others. */
static zro_status map_member_region(zro_group *parent, const int *ranks, int n, int mine, zro__map *map)
{
    uint64_t key = zro__hash(ZRO__HASH_START, ranks, (size_t)n * sizeof *ranks);
    zro_status st;

    if (mine != 0)
        return map_noticed_region(parent, ranks[0], n, key, map);
    st = map_new_region(parent, ranks, n, map);
    give_notice(parent, key, map, st);
    return st;
}

/* Gives up a group that did not come about: the last member gives the memory back. */
static void drop_member_region(zro_group *parent, int n, int mine, zro__map *map)
{
    if (mine == 0) /* who comes too late must not take it for a new one */
        atomic_store(&own_notice(parent, 0)->key, 0);
    if (map->base == NULL)
        return;
    /* Sequentially consistent, as in zro_group_destroy: who counts last comes after all others' reading. */
    if (atomic_fetch_add(&control_of(map)->leavers, 1) + 1 == n)
        zro__region_punch(parent->seat->view, map->offset, zro__group_region_bytes(n));
    zro__unmap_region(parent->seat->view, map);
}

/* Builds on a mapped region; takes it in any case. */
static zro_status build_from_parent(zro_group *parent, const int *ranks, int n, int mine, zro__map *map, zro_status st,
                                    zro_group **out)
{
    from_parent from = { parent, ranks };
    zro__blueprint b = { .seat = parent->seat,
                         .lives = parent->board.lives,
                         .map = *map,
                         .rank = mine,
                         .size = n,
                         .settings = parent->settings,
                         .timeout_ms = parent->board.timeout_ms,
                         .machine_of = machine_in_parent,
                         .cell_of = cell_in_parent,
                         .user = &from };

    st = zro__group_build(&b, st, out);
    if (st != ZRO_OK)
        drop_member_region(parent, n, mine, map);
    return st;
}

static zro_status create_members(zro_group *parent, const int *ranks, int n, zro_group **out)
{
    zro__map map = { 0 };
    int mine;
    zro_status st = check_members(parent, ranks, n, &mine);

    if (st == ZRO_OK && mine < 0)
        st =
            zro__fail(ZRO_ERR_INVALID, "group_create_members: rank %d calls, but is not among the members", parent->board.rank);
    if (st != ZRO_OK)
        return st;
    st = map_member_region(parent, ranks, n, mine, &map);
    if (map.base == NULL)
        return st;
    return build_from_parent(parent, ranks, n, mine, &map, st, out);
}

zro_status zro_group_create_members(zro_group *parent, const int *ranks, int n, zro_group **out)
{
    zro_status st;

    if (out == NULL)
        return zro__fail(ZRO_ERR_INVALID, "group_create_members: out is NULL");
    *out = NULL;
    st = zro__enter(parent);
    return st != ZRO_OK ? st : zro__leave(parent, create_members(parent, ranks, n, out));
}

static void list_members(const int *ranks, int n, char *text, size_t bytes)
{
    size_t at = (size_t)snprintf(text, bytes, "%d ranks (%016" PRIx64 "):", n,
                                 zro__hash(ZRO__HASH_START, ranks, (size_t)n * sizeof *ranks));

    for (int i = 0; i < n && at + 16 < bytes; i++)
        at += (size_t)snprintf(text + at, bytes - at, " %d", ranks[i]);
}

/* Three votes on the parent: on the members, on their having the region, on the group. */
static zro_status create_sub(zro_group *parent, const int *ranks, int n, zro_group **out)
{
    zro__map map = { 0 };
    char text[512] = "";
    uint64_t number = 0;
    int mine;
    zro_status st = check_members(parent, ranks, n, &mine);

    if (st == ZRO_OK)
        list_members(ranks, n, text, sizeof text);
    st = zro__agree(&parent->board, ZRO__CALL_CREATE, "the members of a sub-group", text, &number, st);
    if (st != ZRO_OK)
        return st;
    if (mine >= 0)
        st = map_member_region(parent, ranks, n, mine, &map);
    st = zro__vote(&parent->board, ZRO__CALL_CREATE, st);
    if (st != ZRO_OK) {
        if (mine >= 0)
            drop_member_region(parent, n, mine, &map);
        return st;
    }
    if (mine >= 0)
        st = build_from_parent(parent, ranks, n, mine, &map, ZRO_OK, out);
    st = zro__vote(&parent->board, ZRO__CALL_CREATE, st);
    if (st != ZRO_OK) {
        zro_group_destroy(*out);
        *out = NULL;
    }
    return st;
}

zro_status zro_group_create_sub(zro_group *parent, const int *ranks, int n, zro_group **out)
{
    zro_status st;

    if (out == NULL)
        return zro__fail(ZRO_ERR_INVALID, "group_create_sub: out is NULL");
    *out = NULL;
    st = zro__enter(parent);
    return st != ZRO_OK ? st : zro__leave(parent, create_sub(parent, ranks, n, out));
}

zro_status zro_group_duplicate(zro_group *g, zro_group **out)
{
    zro_status st;

    if (out == NULL)
        return zro__fail(ZRO_ERR_INVALID, "group_duplicate: out is NULL");
    *out = NULL;
    st = zro__check_group(g);
    return st != ZRO_OK ? st : zro_group_create_sub(g, g->everybody, g->board.size, out);
}
