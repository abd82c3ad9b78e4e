/* How the first group of some ranks comes about, from their tickets; sub.c has those made from it.
 *
 * The first of each set of near ranks has made a world's memory when it wrote its ticket; every process opens it
 * once, every rank takes a seat.  The region of the first group is made by that first rank, once it knows who is near, and its
 * `made` tells the others that it is there, or why not.
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

static zro_status check_numbers(const char *name, int rank, int size)
{
    if (size < 1 || size > ZRO__MAX_RANKS)
        return zro__fail(ZRO_ERR_INVALID, "%s: size = %d, must be 1 to %d", name, size, ZRO__MAX_RANKS);
    if (rank < 0 || rank >= size)
        return zro__fail(ZRO_ERR_INVALID, "%s: rank = %d, must be in [0, %d)", name, rank, size);
    return ZRO_OK;
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
    if (rank == 0 || c.link != NULL) /* whoever may turn out to be the first of those near it */
        st = zro__view_found(view, size);
    if (st != ZRO_OK) {
        zro__view_drop(view, 1);
        return st;
    }
    zro__ticket_write(view, rank, size, &c, rank == 0 && c.link != NULL ? c.link->number(c.link->self) : 0, &t);
    memset(ticket, 0, ZRO_TICKET_BYTES);
    memcpy(ticket, &t, sizeof t);
    return ZRO_OK;
}

static zro__view *view_of(const void *tickets, int rank)
{
    return (zro__view *)(uintptr_t)zro__ticket_get(tickets, rank).view;
}

/* What a rank knows of the others while it creates. */
typedef struct from_tickets {
    const void *tickets;
    const int32_t *cells;
    int rank, size;
    int first; /* of those near this rank */
    uint64_t timeout_ms;
} from_tickets;

static int near_in_tickets(void *user, int rank)
{
    from_tickets *from = user;

    return zro__ticket_first_near(from->tickets, rank) == from->first;
}

static int32_t member_in_tickets(void *user, int rank)
{
    (void)user;
    return rank;
}

static int64_t machine_in_tickets(void *user, int rank)
{
    from_tickets *from = user;
    zro__ticket t = zro__ticket_get(from->tickets, rank);

    return t.message_bytes == 0 ? t.machine : zro__ticket_first_near(from->tickets, rank);
}

static int32_t cell_in_config(void *user, int rank)
{
    return ((from_tickets *)user)->cells[rank];
}

/* The view that this rank uses is that of the lowest near rank of its process, which opens the world's memory. */
static zro_status open_view(const from_tickets *from, zro__view **view, int *sharers)
{
    int first = zro__ticket_first_of_process(from->tickets, from->rank), fd = -1;
    zro_status st;

    *sharers = 0;
    for (int r = first; r < from->size; r++)
        *sharers += zro__ticket_first_of_process(from->tickets, r) == first;
    *view = view_of(from->tickets, first);
    if (first != from->rank) {
        zro__view_drop(view_of(from->tickets, from->rank), 1);
        return zro__view_await(*view, from->timeout_ms);
    }
    if (from->rank == from->first) {
        zro__view_opened(*view, ZRO_OK);
        return zro__ticket_serve(from->tickets, from->rank, from->size, from->timeout_ms);
    }
    st = zro__ticket_open(from->tickets, from->rank, from->timeout_ms, &fd);
    if (st == ZRO_OK)
        st = zro__view_adopt(*view, from->size, fd, zro__ticket_get(from->tickets, from->first).nonce);
    zro__view_opened(*view, st);
    return st;
}

/* The first near rank: takes the region and tells the others. */
static zro_status make_first_region(from_tickets *from, zro__view *view, size_t bytes, zro__map *map)
{
    zro__world *world = view->world;
    uint64_t offset;
    zro_status st = zro__region_take(view, bytes, 1, "the slots of a group", &offset);

    if (st == ZRO_OK)
        st = zro__map_region(view, offset, bytes, map);
    if (map->base != NULL) {
        zro__control_fill(map, from->size, member_in_tickets, near_in_tickets, from);
    } else {
        world->code = (int32_t)st;
        snprintf(world->text, sizeof world->text, "%s", zro_last_error());
    }
    (void)ZRO__POINT("create.made");
    zro__post(&world->made, 1);
    return st;
}

typedef struct await_first {
    const from_tickets *from;
    zro__life *life;
} await_first;

static zro_status check_first(void *user, uint64_t waited_ms)
{
    await_first *a = user;

    if (zro__life_is_dead(a->life))
        return zro__fail(ZRO_ERR_LOST, "group_create_tickets: rank %d is gone", a->from->first);
    if (waited_ms > a->from->timeout_ms)
        return zro__fail(ZRO_ERR_TIMEOUT, "group_create_tickets: rank %d did not come within %" PRIu64 " ms", a->from->first,
                         a->from->timeout_ms);
    return ZRO_OK;
}

static zro_status find_first_region(const from_tickets *from, zro__view *view, size_t bytes, zro__map *map)
{
    zro__world *world = view->world;
    await_first a = { from, &world->lives[from->first] };
    zro_status st = zro__word_wait(&world->made, 1, check_first, &a, NULL);

    if (st != ZRO_OK)
        return st;
    if (world->code == ZRO_OK)
        return zro__map_region(view, zro__world_region(from->size), bytes, map);
    zro__fail(ZRO_ERR_PEER, "rank %d: %s: %s", from->first, zro_status_name((zro_status)world->code), world->text);
    atomic_fetch_add(&world->refused, 1);
    return ZRO_ERR_PEER;
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

/* The link becomes the seat's. */
static zro_status take_trunk(zro__seat *seat, const zro__trunk *trunk)
{
    seat->trunk = zro__alloc(&seat->account, ZRO__KIND_HANDLE, sizeof *seat->trunk);
    if (seat->trunk == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a rank's link");
    zro__trunk_init(seat->trunk, &trunk->link, trunk->message_bytes);
    return ZRO_OK;
}

/* Whether all near ranks have come, or will not. */
static int all_were_here(from_tickets *from, zro__world *world)
{
    int missing = 0;

    for (int r = 0; r < from->size; r++)
        missing += r != from->rank && near_in_tickets(from, r) && !zro__life_is_taken(&world->lives[r])
                   && !zro__life_is_dead(&world->lives[r]);
    return missing <= atomic_load(&world->refused);
}

/* A create that failed ends at once on those who were there; but whoever comes later must still find the memory, which is
 * reached through the first rank, to read in it why.  So the first rank stays for a moment. */
static void let_others_in(from_tickets *from, zro__world *world)
{
    uint64_t start = zro__now_ns(), limit_ms = from->timeout_ms < 1000 ? from->timeout_ms : 1000;

    while (!all_were_here(from, world) && (zro__now_ns() - start) / 1000000 < limit_ms)
        poll(NULL, 0, 1);
}

/* Process numbers, by which the death of a rank is seen that has not taken its life word yet. */
static void note_pids(from_tickets *from, zro__life *lives)
{
    int known = zro__tickets_one_pid_ns(from->tickets, from->rank, from->size);

    for (int r = 0; r < from->size && known; r++)
        if (near_in_tickets(from, r))
            atomic_store_explicit(&lives[r].pid, zro__ticket_get(from->tickets, r).pid, memory_order_relaxed);
}

/* The view is open.  Takes it; the trunk is taken if *b's seat has one afterwards. */
static zro_status create_in_view(const zro_group_config *config, from_tickets *from, zro__life_kind kind, int sharers,
                                 zro__blueprint *b, zro_group **out)
{
    zro__view *view = b->view;
    zro_status st;

    b->lives = view->world->lives;
    note_pids(from, b->lives);
    if (from->rank == from->first)
        st = make_first_region(from, view, b->layout.bytes, &b->map);
    else
        st = find_first_region(from, view, b->layout.bytes, &b->map);
    if (b->map.base == NULL) {
        if (st != ZRO_ERR_PEER && b->layout.n_near < from->size) /* else the first one has told them */
            zro__wire_refuse(b->trunk, b->number, from->size, member_in_tickets, near_in_tickets, from, from->rank, st);
        if (from->rank == from->first)
            let_others_in(from, view->world);
        zro__view_drop(view, sharers);
        return st;
    }
    if (st == ZRO_OK && zro__cells_hash(config->cells, from->size) != zro__ticket_get(from->tickets, from->rank).cells)
        st = zro__fail(ZRO_ERR_MISMATCH, "group_create_tickets: the cells of rank %d are not those of its ticket", from->rank);
    if (st == ZRO_OK)
        st = take_seat(view, sharers, from->rank, kind, &b->seat);
    if (st == ZRO_OK && b->trunk != NULL) /* also if all are near: it is closed with the last group */
        st = take_trunk(b->seat, b->trunk);
    if (st == ZRO_OK)
        b->trunk = b->seat->trunk;
    (void)ZRO__POINT("create.seat");
    st = zro__group_build(b, st, out);
    if (from->rank == from->first && (st == ZRO_ERR_LOST || st == ZRO_ERR_TIMEOUT))
        let_others_in(from, view->world);
    if (st != ZRO_OK)
        zro__unmap_region(view, &b->map);
    if (b->seat == NULL)
        zro__view_drop(view, sharers);
    return st;
}

static zro_status create_from_tickets(const zro_group_config *config, int rank, int size, const void *tickets,
                                      zro__life_kind kind, zro_group **out)
{
    from_tickets from = { tickets, config->cells, rank, size, zro__ticket_first_near(tickets, rank), config->timeout_ms };
    zro__trunk trunk; /* serves a vote for which there is no memory, too */
    zro__blueprint b = { .rank = rank,
                         .size = size,
                         .settings = config->settings,
                         .timeout_ms = config->timeout_ms,
                         .number = zro__ticket_get(tickets, 0).number,
                         .machine_of = machine_in_tickets,
                         .cell_of = config->cells != NULL ? cell_in_config : NULL,
                         .user = &from };
    size_t message_bytes = zro__tickets_message_bytes(tickets, size);
    int sharers, taken;
    zro_status st;

    view_of(tickets, rank)->used = 1;
    st = open_view(&from, &b.view, &sharers);
    if (config->link != NULL) {
        zro__trunk_init(&trunk, config->link, message_bytes);
        b.trunk = &trunk;
    }
    zro__group_layout(size, zro__count_near(size, near_in_tickets, &from), config->link != NULL ? message_bytes : SIZE_MAX,
                      &b.layout);
    if (st == ZRO_OK)
        st = create_in_view(config, &from, kind, sharers, &b, out);
    else
        zro__view_drop(b.view, sharers);
    taken = b.seat != NULL && b.seat->trunk != NULL;
    if (b.seat != NULL)
        zro__seat_release(b.seat);
    if (config->link != NULL && !taken)
        zro__trunk_close(&trunk);
    return st;
}

static zro_status create_checked(const zro_group_config *config, int rank, int size, const void *tickets, zro__life_kind kind,
                                 zro_group **out)
{
    zro_status st = zro__tickets_check(tickets, rank, size);

    if (st == ZRO_OK && (config->link == NULL) != (zro__ticket_get(tickets, rank).message_bytes == 0))
        st = zro__fail(ZRO_ERR_INVALID, "group_create_tickets: the ticket was written %s a link",
                       config->link ? "without" : "with");
    if (st == ZRO_OK)
        return create_from_tickets(config, rank, size, tickets, kind, out);
    /* The own ticket and the link are used up all the same. */
    zro_group_ticket_drop((const char *)tickets + (size_t)rank * ZRO_TICKET_BYTES);
    if (config->link != NULL)
        config->link->close(config->link->self);
    return st;
}

void zro_group_ticket_drop(const void *ticket)
{
    zro__ticket own;
    zro__view *view;

    if (ticket == NULL)
        return;
    own = zro__ticket_get(ticket, 0);
    view = zro__ticket_view(&own);
    if (view != NULL)
        zro__view_drop(view, 1);
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
    if (st == ZRO_OK)
        return create_checked(&c, rank, size, tickets, ZRO__LIFE_OF_PROCESS, out);
    if (c.link != NULL && c.link->struct_size == sizeof *c.link && c.link->close != NULL)
        c.link->close(c.link->self);
    return st;
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
