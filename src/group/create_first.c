/* How the first group of some ranks comes about, from their tickets.
 *
 * The first of each set of near ranks has made a world's memory when it wrote its ticket; every process opens it once, every
 * rank takes a seat.  Between that the group is formed as all groups are (create.c). */
#include "group/create_first.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/point.h"
#include "base/settings.h"
#include "group/create.h"
#include "group/ticket.h"

/* What both calls check: the config, whose copy is *c, the numbers, and the memory of the tickets, which texts call `what`. */
static zro_status read_arguments(const char *call, const zro_group_config *config, int rank, int size, const char *what,
                                 const void *tickets, zro_group_config *c)
{
    zro_status st = zro__config_read(config, c);

    if (st != ZRO_OK)
        return st;
    if (size < 1 || size > ZRO__MAX_RANKS)
        return zro__fail(ZRO_ERR_INVALID, "%s: size = %d, must be 1 to %d", call, size, ZRO__MAX_RANKS);
    if (rank < 0 || rank >= size)
        return zro__fail(ZRO_ERR_INVALID, "%s: rank = %d, must be in [0, %d)", call, rank, size);
    return tickets != NULL ? ZRO_OK : zro__fail(ZRO_ERR_INVALID, "%s: %s is NULL", call, what);
}

zro_status zro_group_ticket(const zro_group_config *config, int rank, int size, void *ticket)
{
    zro_group_config c;
    zro__ticket t;
    zro__view *view;
    zro_status st = read_arguments("group_ticket", config, rank, size, "ticket", ticket, &c);

    if (st == ZRO_OK)
        st = zro__view_create(&view);
    if (st != ZRO_OK)
        return st;
    if (rank == 0 || c.link != NULL) /* every rank that may turn out to be the first of its near ranks */
        st = zro__view_make_world(view, size);
    if (st == ZRO_OK)
        st = zro__ticket_write(view, rank, size, &c, &t);
    if (st != ZRO_OK) {
        zro__view_drop(view, 1);
        return st;
    }
    memset(ticket, 0, ZRO_TICKET_BYTES);
    memcpy(ticket, &t, sizeof t);
    return ZRO_OK;
}

/* Of a rank of this process, as long as one of its ranks has not dropped it. */
static zro__view *view_of(const void *tickets, int rank)
{
    return zro__view_find(zro__ticket_get(tickets, rank).nonce);
}

static zro__member member_of_world(const zro__formation *f, int rank)
{
    int machine = zro__ticket_first(f->tickets, ZRO__MACHINE, rank);

    return (zro__member){ .label = rank,
                          .cell = f->cells != NULL ? f->cells[rank] : machine,
                          .machine = machine,
                          .is_near = zro__ticket_has(f->tickets, ZRO__NEAR, f->rank, rank) };
}

/* Once per process, by the rank of it that comes first; the others wait for it here, at most for its deadline. */
static zro_status adopt_world(const zro__formation *f, int near)
{
    zro__view *view = f->view;
    zro_status st;
    int fd = -1;

    pthread_mutex_lock(&view->opening);
    if (view->opened) {
        st = view->failure == ZRO_OK ? ZRO_OK
                                     : zro__fail(ZRO_ERR_PEER, "group_create_tickets: %s on another rank of this process",
                                                 zro_status_text(view->failure));
    } else {
        st = zro__ticket_open(f->tickets, f->rank, f->timeout_ms, &fd);
        if (st == ZRO_OK)
            st = zro__view_adopt(view, f->size, fd, zro__ticket_get(f->tickets, near).nonce);
        view->opened = 1;
        view->failure = st;
    }
    pthread_mutex_unlock(&view->opening);
    return st;
}

/* Opens the world's memory in the view that the ranks of this process use: that of the lowest of them. */
static zro_status open_view(zro__formation *f, int *sharers)
{
    int first = zro__ticket_first(f->tickets, ZRO__PROCESS, f->rank), near = zro__ticket_first(f->tickets, ZRO__NEAR, f->rank);

    *sharers = 0;
    for (int r = first; r < f->size; r++)
        *sharers += zro__ticket_first(f->tickets, ZRO__PROCESS, r) == first;
    f->view = view_of(f->tickets, first);
    if (first == f->rank)
        f->view->sharers = *sharers;
    if (first != f->rank)
        zro__view_drop(view_of(f->tickets, f->rank), 1);
    if (f->rank == near)
        return zro__ticket_serve(f->tickets, f->rank, f->size, f->timeout_ms);
    return first == near ? ZRO_OK : adopt_world(f, near);
}

/* The near ranks trace to one file, which they recognise by the number of their world.  Other machines may see the same folder, so
 * their files have other names. */
static zro_status open_trace(const zro__formation *f, zro__seat *seat)
{
    const int near = zro__ticket_first(f->tickets, ZRO__NEAR, f->rank);
    const zro__ticket first = zro__ticket_get(f->tickets, near);
    char path[4096];

    if (f->trace == NULL)
        return ZRO_OK;
    snprintf(path, sizeof path, near == 0 ? "%s" : "%s.%d", f->trace, near);
    return zro__trace_open(&seat->account, &f->settings, path, zro__hash(ZRO__HASH_START, first.nonce, sizeof first.nonce),
                           f->rank, &seat->trace);
}

/* The link becomes the seat's.  On failure there is no seat, and view and link are still the caller's. */
static zro_status take_seat(zro__formation *f, int sharers, zro__life_kind kind)
{
    zro__seat *seat = zro__alloc(NULL, ZRO__KIND_HANDLE, sizeof *seat);
    zro_status st;

    if (seat == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a rank's seat");
    st = open_trace(f, seat);
    seat->view = f->view;
    seat->sharers = sharers;
    seat->life = &f->lives[f->rank];
    atomic_init(&seat->refs, 1);
    if (st == ZRO_OK && kind == ZRO__LIFE_OF_THREAD)
        zro__life_mark_alive(seat->life);
    else if (st == ZRO_OK)
        st = zro__life_hold(&seat->holder, seat->life);
    if (st != ZRO_OK) {
        zro__trace_close(seat->trace);
        zro__free(seat);
        return st;
    }
    if (f->program_link != NULL) { /* also if all ranks are near: it is closed with the last group */
        seat->program_link = &seat->own_link;
        zro__program_link_init(seat->program_link, &f->program_link->link, f->program_link->message_bytes);
        f->program_link = seat->program_link;
    }
    pthread_mutex_init(&seat->boards.lock, NULL);
    f->seat = seat;
    return ZRO_OK;
}

static zro_status check_others(void *user, uint64_t waited_ms)
{
    const zro__formation *f = user;
    int missing = 0;

    for (int r = 0; r < f->size; r++)
        missing += f->member(f, r).is_near && !atomic_load(&f->lives[r].came) && !zro__life_is_dead(&f->lives[r]);
    return missing == 0 || waited_ms >= 1000 || waited_ms >= f->timeout_ms ? ZRO_ERR_LOST : ZRO_OK;
}

/* Notes process numbers, by which the death of a rank is seen that has not taken its life word yet.  They mean the same to all
 * near ranks only in one namespace. */
static void note_pids(const zro__formation *f)
{
    uint64_t pid_ns = zro__ticket_get(f->tickets, f->rank).pid_ns;

    for (int r = 0; r < f->size; r++)
        if (zro__ticket_has(f->tickets, ZRO__NEAR, f->rank, r) && zro__ticket_get(f->tickets, r).pid_ns != pid_ns)
            return;
    for (int r = 0; r < f->size; r++)
        if (zro__ticket_has(f->tickets, ZRO__NEAR, f->rank, r))
            atomic_store_explicit(&f->lives[r].pid, zro__ticket_get(f->tickets, r).pid, memory_order_relaxed);
}

/* The view is open, or `st` says why not.  If there is a seat afterwards, it has the view; otherwise the view is still the
 * caller's. */
static zro_status create_in_view(zro__formation *f, zro_status st, int sharers, zro__life_kind kind, zro_group **out)
{
    /* The first near rank has made the world itself, and failed to pass it on: it can tell those who got it. */
    zro__world *world = st == ZRO_OK || zro__ticket_first(f->tickets, ZRO__NEAR, f->rank) == f->rank ? f->view->world : NULL;

    if (world != NULL) {
        f->lives = world->lives;
        note_pids(f);
    }
    st = zro__form_region(f, st);
    if (world != NULL) {
        atomic_store(&f->lives[f->rank].came, 1);
        zro__word_add(&world->came);
    }
    if (st == ZRO_OK) {
        if (zro__cells_hash(f->cells, f->size) != zro__ticket_get(f->tickets, f->rank).cells)
            st = zro__fail(ZRO_ERR_MISMATCH,
                           "group_create_tickets: config.cells of rank %d is not what it was when the rank wrote its ticket",
                           f->rank);
        if (st == ZRO_OK)
            st = take_seat(f, sharers, kind);
        (void)ZRO__POINT("create.seat");
        st = zro__form_group(f, st, out);
    }
    /* A create that failed ends at once on those who were there; but whoever comes later must still find the memory, which is
     * reached through the first near rank, to read in it why.  So that rank stays until all have come, but not for long. */
    if (st != ZRO_OK && f->rank == f->first_near)
        (void)zro__word_wait(&f->view->world->came, (uint64_t)f->layout.n_near, check_others, f, NULL, NULL);
    return st;
}

/* The rank's own ticket and its link are used up, whatever happens. */
static zro_status create_from_tickets(const zro_group_config *config, int rank, int size, const void *tickets, zro__meet *meet,
                                      zro__life_kind kind, zro_group **out)
{
    zro__program_link program_link; /* also serves a vote when there is no memory for a seat */
    zro__formation f = { .call = "group_create_tickets",
                         .tickets = tickets,
                         .cells = config->cells,
                         .member = member_of_world,
                         .rank = rank,
                         .size = size,
                         .number = zro__ticket_get(tickets, 0).number,
                         .meet = meet,
                         .program_link = config->link != NULL ? &program_link : NULL,
                         .settings = config->settings,
                         .timeout_ms = config->timeout_ms,
                         .trace = config->trace };
    int sharers;
    zro_status st = zro__tickets_check(tickets, rank, size);

    if (st == ZRO_OK && (config->link == NULL) != (zro__ticket_get(tickets, rank).message_bytes == 0))
        st = zro__fail(ZRO_ERR_INVALID, "group_create_tickets: the ticket was written %s a link",
                       config->link ? "without" : "with");
    if (config->link != NULL)
        zro__program_link_init(&program_link, config->link, zro__tickets_message_bytes(tickets, size));
    if (st == ZRO_OK) {
        view_of(tickets, rank)->used = 1;
        st = open_view(&f, &sharers);
        st = create_in_view(&f, st, sharers, kind, out);
        if (f.seat == NULL)
            zro__view_drop(f.view, sharers);
    } else {
        zro_group_ticket_drop((const char *)tickets + (size_t)rank * ZRO_TICKET_BYTES);
    }
    if (f.seat == NULL && config->link != NULL)
        zro__program_link_close(&program_link);
    zro__seat_release(f.seat);
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
    st = read_arguments("group_create_tickets", config, rank, size, "tickets", tickets, &c);
    if (st == ZRO_OK)
        return create_from_tickets(&c, rank, size, tickets, NULL, ZRO__LIFE_OF_PROCESS, out);
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
    /* A table of threads is their supervisor's, and may end before a group of theirs. */
    if (met == ZRO_OK)
        met = create_from_tickets(config, rank, size, tickets, kind == ZRO__LIFE_OF_PROCESS ? meet : NULL, kind, out);
    else if (st == ZRO_OK)
        zro_group_ticket_drop(ticket);
    zro__free(tickets);
    return met;
}
