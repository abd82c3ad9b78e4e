/* Tickets.
 *
 * Without a link all ranks use the memory of rank 0.  With one, ranks with equal machine, user and namespaces are near each
 * other and use the memory of the lowest of them, here called first; all other ranks are reached through the link.
 *
 * The first rank's memfd reaches a peer in one of two ways, which both read off the tickets: the peer opens
 * /proc/PID/fd/N, if the two have the same user and namespaces and the first rank is dumpable; otherwise the descriptor is
 * passed through a socket in the abstract name space, named by the first rank's nonce, which works wherever the network
 * name space is the same.  Neither way leaves anything in a file system.  The peer compares device and inode before it
 * opens (another process may have something else there by then, a device or a FIFO) and afterwards (it may have come between),
 * and then the nonce inside the memory.  A process recognises the tickets that it wrote by their nonces, too: a ticket may go
 * over a network, so it contains no address. */
#define _GNU_SOURCE
#include "group/ticket.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "group/group.h"

static const char magic[8] = "zrotick3";

/* Grows when ranks must agree about something new that neither the version nor the numbers below show. */
enum { PROTOCOL = 2 };

/* What the ranks of a group must have in common to read each other's memory and messages: sizes, offsets, and the layout of a
 * group with near and far ranks. */
static uint64_t layout_of_build(void)
{
    zro__layout group;

    zro__group_layout(7, 3, 1 << 20, &group);
    {
        const uint64_t numbers[] = {
            PROTOCOL,
            sizeof(zro__ticket),
            offsetof(zro__ticket, sum),
            sizeof(zro__world),
            offsetof(zro__world, notice),
            offsetof(zro__world, next),
            offsetof(zro__world, lives),
            sizeof(zro__life),
            offsetof(zro__life, word),
            offsetof(zro__life, came),
            sizeof(zro__notice),
            offsetof(zro__notice, text),
            sizeof(zro__control),
            offsetof(zro__control, code),
            offsetof(zro__control, text),
            offsetof(zro__control, leavers),
            offsetof(zro__control, member),
            sizeof(zro__header),
            offsetof(zro__header, flags),
            offsetof(zro__header, handle),
            offsetof(zro__header, count),
            offsetof(zro__header, in),
            sizeof(zro__slot),
            offsetof(zro__slot, done),
            offsetof(zro__slot, begun),
            offsetof(zro__slot, noticed),
            offsetof(zro__slot, ring),
            offsetof(zro__slot, payload),
            ZRO__RING,
            ZRO__NOTICES,
            ZRO__CALL_COUNT,
            ZRO__CARRIER_DEPTH,
            zro__rings_chunk(2),
            zro__rings_chunk(64),
            group.chunk,
            group.rings,
            group.fars,
            group.far_bytes,
            group.bytes,
        };

        return zro__hash(zro__hash(ZRO__HASH_START, zro_version(), strlen(zro_version())), numbers, sizeof numbers);
    }
}

/* ---- writing ---- */

/* Without /proc it stays 0: then nothing tells this machine from others. */
static zro_status read_boot(uint64_t *boot)
{
    const char *path = "/proc/sys/kernel/random/boot_id";
    char text[64] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC), err = errno;
    ssize_t n;

    if (fd < 0)
        return err == ENOENT || err == EACCES ? ZRO_OK : zro__fail_errno(ZRO_ERR_SYSTEM, err, "group_ticket: opening %s", path);
    n = read(fd, text, sizeof text - 1);
    close(fd);
    *boot = n <= 0 ? 0 : zro__hash(ZRO__HASH_START, text, (size_t)n);
    return ZRO_OK;
}

/* A create opens up to two descriptors more, a socket and what comes through it.  That they are missing must be found out now: in
 * the create the others could not be told any more. */
static zro_status check_descriptors(int fd)
{
    int one = fcntl(fd, F_DUPFD_CLOEXEC, 0), two = fcntl(fd, F_DUPFD_CLOEXEC, 0), err = errno;

    if (one >= 0)
        close(one);
    if (two >= 0)
        close(two);
    return two >= 0 ? ZRO_OK : zro__fail_errno(ZRO_ERR_SYSTEM, err, "group_ticket: a group needs two free descriptors more");
}

static uint64_t inode_of(const char *path)
{
    struct stat s;

    return stat(path, &s) == 0 ? (uint64_t)s.st_ino : 0;
}

static int32_t pid_in_proc(void)
{
    char text[32] = "";
    ssize_t n = readlink("/proc/self", text, sizeof text - 1);

    return n > 0 ? (int32_t)strtol(text, NULL, 10) : (int32_t)getpid();
}

static uint64_t sum_of(const zro__ticket *t)
{
    return zro__hash(ZRO__HASH_START, t, offsetof(zro__ticket, sum));
}

zro_status zro__ticket_write(const zro__view *view, int rank, int size, const zro_group_config *config, zro__ticket *t)
{
    const zro_link *link = config->link;
    zro_status st = check_descriptors(view->fd);

    memset(t, 0, sizeof *t);
    if (st == ZRO_OK)
        st = read_boot(&t->boot);
    if (st != ZRO_OK)
        return st;
    zro__build_write(&t->build, magic, layout_of_build());
    t->rank = rank;
    t->size = size;
    t->pid_ns = inode_of("/proc/self/ns/pid");
    t->net_ns = inode_of("/proc/self/ns/net");
    t->user_ns = inode_of("/proc/self/ns/user");
    t->uid = (uint32_t)geteuid();
    t->gid = (uint32_t)getegid();
    t->pid = pid_in_proc();
    t->fd = view->fd;
    t->device = view->device;
    t->inode = view->inode;
    t->dumpable = prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 1;
    memcpy(t->nonce, view->nonce, sizeof t->nonce);
    t->machine = config->machine;
    t->cells = zro__cells_hash(config->cells, size);
    t->message_bytes = link == NULL ? 0 : link->message_bytes;
    t->number = link == NULL || rank != 0 ? 0 : link->number(link->self);
    t->sum = sum_of(t);
    return ZRO_OK;
}

/* ---- reading ---- */

/* Each is an equivalence, so that all near ranks are near to the same ones. */
int zro__ticket_has(const void *tickets, zro__common what, int rank, int other)
{
    zro__ticket a = zro__ticket_get(tickets, rank), b = zro__ticket_get(tickets, other);
    int one_kernel = a.boot == b.boot && a.pid_ns == b.pid_ns;
    int is_near = a.message_bytes == 0
                  || (one_kernel && a.machine == b.machine && a.uid == b.uid && a.user_ns == b.user_ns && a.net_ns == b.net_ns);

    return is_near && (what != ZRO__MACHINE || a.machine == b.machine)
           && (what != ZRO__PROCESS || (one_kernel && a.pid == b.pid));
}

int zro__ticket_first(const void *tickets, zro__common what, int rank)
{
    int r = 0;

    while (r < rank && !zro__ticket_has(tickets, what, r, rank))
        r++;
    return r;
}

size_t zro__tickets_message_bytes(const void *tickets, int size)
{
    uint64_t least = UINT64_MAX;

    for (int r = 0; r < size; r++) {
        uint64_t bytes = zro__ticket_get(tickets, r).message_bytes;

        least = bytes < least ? bytes : least;
    }
    return (size_t)least;
}

uint64_t zro__cells_hash(const int32_t *cells, int size)
{
    return cells == NULL ? 0 : zro__hash(ZRO__HASH_START, cells, (size_t)size * sizeof *cells);
}

static int is_ticket(const zro__ticket *t)
{
    return zro__build_check(&t->build, magic) && t->sum == sum_of(t);
}

static int is_own(const zro__ticket *t)
{
    return is_ticket(t) && t->pid == pid_in_proc() && t->pid_ns == inode_of("/proc/self/ns/pid");
}

/* Whether this file is the memfd of a ticket. */
static int is_memfd_of(const struct stat *s, const zro__ticket *t)
{
    return (uint64_t)s->st_dev == t->device && (uint64_t)s->st_ino == t->inode;
}

zro__view *zro__ticket_view(const zro__ticket *t)
{
    zro__view *view = is_own(t) ? zro__view_find(t->nonce) : NULL;

    return view == NULL || view->used ? NULL : view;
}

/* Whether a rank can open the first rank's memory in /proc; otherwise it gets it through a socket. */
static int opens_proc(const zro__ticket *first, const zro__ticket *peer)
{
    return first->pid_ns == peer->pid_ns && first->user_ns == peer->user_ns && first->uid == peer->uid
           && first->gid == peer->gid && first->dumpable;
}

/* Why two ranks cannot share memory, or NULL. */
static const char *why_apart(const zro__ticket *first, const zro__ticket *peer)
{
    if (first->boot != peer->boot)
        return "they are on different machines";
    if (first->user_ns == peer->user_ns && first->uid != peer->uid)
        return "they belong to different users";
    if (!opens_proc(first, peer) && first->net_ns != peer->net_ns)
        return "they are in different namespaces (containers)";
    return NULL;
}

zro__ticket zro__ticket_get(const void *tickets, int r)
{
    zro__ticket t;

    memcpy(&t, (const char *)tickets + (size_t)r * ZRO_TICKET_BYTES, sizeof t);
    return t;
}

static zro_status no_ticket(int r)
{
    return zro__fail(ZRO_ERR_INVALID, "group_create_tickets: tickets[%d] is not a ticket, or was changed on its way", r);
}

/* Nothing but the heads is read here: in the ticket of another build the rest may stand elsewhere. */
static zro_status check_builds(const void *tickets, int size)
{
    zro__build first = zro__ticket_get(tickets, 0).build;

    for (int r = 0; r < size; r++) {
        zro__build build = zro__ticket_get(tickets, r).build;

        if (!zro__build_check(&build, magic))
            return no_ticket(r);
        if (build.layout != first.layout)
            return zro__build_differs("group_create_tickets", r, build.version, "rank 0", first.version);
    }
    return ZRO_OK;
}

zro_status zro__tickets_check(const void *tickets, int rank, int size)
{
    zro__ticket first = zro__ticket_get(tickets, 0), own = zro__ticket_get(tickets, rank);
    zro_status st = check_builds(tickets, size);

    if (st != ZRO_OK)
        return st;
    for (int r = 0; r < size; r++) {
        zro__ticket other = zro__ticket_get(tickets, r), *t = &other;

        if (!is_ticket(t))
            return no_ticket(r);
        if (t->rank != r)
            return zro__fail(ZRO_ERR_INVALID, "group_create_tickets: tickets[%d] is rank %d's, must be rank %d's", r,
                             (int)t->rank, r);
        if (t->size != first.size)
            return zro__fail(ZRO_ERR_MISMATCH, "group_create_tickets: rank %d's ticket is for %d ranks, rank 0's for %d", r,
                             (int)t->size, (int)first.size);
        if (t->cells != first.cells)
            return zro__fail(
                ZRO_ERR_MISMATCH,
                "group_create_tickets: the cells of rank %d differ from rank 0's; set config.cells on all ranks alike", r);
        if ((t->message_bytes == 0) != (first.message_bytes == 0))
            return zro__fail(ZRO_ERR_MISMATCH, "group_create_tickets: rank %d has %s link, rank 0 has %s", r,
                             t->message_bytes == 0 ? "no" : "a", t->message_bytes == 0 ? "one" : "none");
        if (t->message_bytes == 0 && why_apart(&first, t) != NULL)
            return zro__fail(ZRO_ERR_UNSUPPORTED, "group_create_tickets: ranks 0 and %d cannot share memory: %s", r,
                             why_apart(&first, t));
    }
    if (first.size != size)
        return zro__fail(ZRO_ERR_INVALID, "group_create_tickets: size = %d, but the tickets are for %d ranks", size,
                         (int)first.size);
    if (!is_own(&own))
        return zro__fail(ZRO_ERR_STATE, "group_create_tickets: rank %d's ticket was written by another process", rank);
    if (zro__ticket_view(&own) == NULL)
        return zro__fail(ZRO_ERR_STATE, "group_create_tickets: rank %d's ticket was used before, or dropped", rank);
    return ZRO_OK;
}

/* ---- through /proc ---- */

static zro_status open_proc(const zro__ticket *first, int *fd)
{
    char path[64];
    struct stat s;
    int gone;

    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)first->pid, (int)first->fd);
    gone = stat(path, &s) == 0 ? !is_memfd_of(&s, first) : errno == ENOENT;
    if (gone)
        return zro__fail(ZRO_ERR_LOST, "group_create_tickets: rank %d is gone, or has given up: its memory (%s) is not there",
                         (int)first->rank, path);
    *fd = open(path, O_RDWR | O_CLOEXEC);
    if (*fd < 0)
        return zro__fail_errno(ZRO_ERR_SYSTEM, errno, "group_create_tickets: opening rank %d's memory (%s)", (int)first->rank,
                               path);
    return ZRO_OK;
}

/* ---- through a socket ---- */

static socklen_t socket_name(const zro__ticket *first, struct sockaddr_un *name)
{
    memset(name, 0, sizeof *name);
    name->sun_family = AF_UNIX;
    memcpy(name->sun_path, "\0zro-", 5);
    memcpy(name->sun_path + 5, first->nonce, sizeof first->nonce);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 5 + sizeof first->nonce);
}

static int is_own_user(int fd)
{
    struct ucred peer;
    socklen_t n = sizeof peer;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 && peer.uid == geteuid();
}

/* One byte, and a descriptor with it. */
static int send_descriptor(int socket, int fd)
{
    char byte = 0;
    struct iovec io = { &byte, 1 };
    _Alignas(struct cmsghdr) char space[CMSG_SPACE(sizeof(int))] = { 0 };
    struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space };
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    return sendmsg(socket, &m, MSG_NOSIGNAL) == 1;
}

static int receive_descriptor(int socket)
{
    char byte;
    struct iovec io = { &byte, 1 };
    _Alignas(struct cmsghdr) char space[CMSG_SPACE(sizeof(int))];
    struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space };
    struct cmsghdr *c;
    int fd = -1;

    if (recvmsg(socket, &m, MSG_CMSG_CLOEXEC) != 1)
        return -1;
    c = CMSG_FIRSTHDR(&m);
    if (c != NULL && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return fd;
}

/* Waits until there is something to read, for 100 ms at least. */
static int wait_readable(int fd, uint64_t start, uint64_t timeout_ms)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    uint64_t waited;

    do {
        waited = (zro__now_ns() - start) / 1000000;
        if (poll(&p, 1, 100) == 1)
            return 1;
    } while (waited < timeout_ms);
    return 0;
}

/* Whether this rank, for its process, gets the memory of rank `from` through the socket. */
static int fetches(const void *tickets, int rank, int from)
{
    zro__ticket first = zro__ticket_get(tickets, from), own = zro__ticket_get(tickets, rank);

    return rank != from && zro__ticket_first(tickets, ZRO__NEAR, rank) == from
           && zro__ticket_first(tickets, ZRO__PROCESS, rank) == rank && !opens_proc(&first, &own);
}

/* Whether the process of a rank has ended, as far as rank `from` can know. */
static int has_ended(const void *tickets, int rank, int from)
{
    zro__ticket t = zro__ticket_get(tickets, rank);

    return t.pid_ns == zro__ticket_get(tickets, from).pid_ns && zro__process_ended(t.pid);
}

/* Passes the memory to the next rank that connects, if one does within 100 ms; *left then counts one less. */
static zro_status serve_one(int listener, int fd, int *left)
{
    int peer;

    if (!wait_readable(listener, 0, 0))
        return ZRO_OK;
    peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (peer < 0)
        return errno == EINTR || errno == ECONNABORTED
                   ? ZRO_OK
                   : zro__fail_errno(ZRO_ERR_SYSTEM, errno, "group_create_tickets: passing memory to a rank");
    *left -= is_own_user(peer) && send_descriptor(peer, fd);
    close(peer);
    return ZRO_OK;
}

zro_status zro__ticket_serve(const void *tickets, int rank, int size, uint64_t timeout_ms)
{
    zro__ticket first = zro__ticket_get(tickets, rank);
    struct sockaddr_un name;
    socklen_t length = socket_name(&first, &name);
    uint64_t start = zro__now_ns();
    zro_status st = ZRO_OK;
    int left = 0, listener;

    for (int r = rank + 1; r < size; r++)
        left += fetches(tickets, r, rank);
    if (left == 0)
        return ZRO_OK;
    listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&name, length) != 0 || listen(listener, 64) != 0)
        st = zro__fail_errno(ZRO_ERR_SYSTEM, errno, "group_create_tickets: a socket to pass memory through");
    while (st == ZRO_OK && left > 0) {
        int before = left;

        st = serve_one(listener, first.fd, &left);
        for (int r = rank + 1; r < size && st == ZRO_OK && left == before; r++)
            if (fetches(tickets, r, rank) && has_ended(tickets, r, rank))
                st = zro__fail(ZRO_ERR_LOST, "group_create_tickets: rank %d is gone", r);
        if (st == ZRO_OK && left == before && (zro__now_ns() - start) / 1000000 >= timeout_ms)
            st = zro__fail(ZRO_ERR_TIMEOUT,
                           "group_create_tickets: not all ranks fetched the memory within %" PRIu64 " ms, missing: %d",
                           timeout_ms, left);
    }
    if (listener >= 0)
        close(listener);
    return st;
}

/* The first rank listens once it is in its create, which may be after this: so a refusal is tried again, until the deadline. */
static zro_status fetch(const void *tickets, int rank, const zro__ticket *first, uint64_t timeout_ms, int *fd)
{
    struct sockaddr_un name;
    socklen_t length = socket_name(first, &name);
    uint64_t start = zro__now_ns();

    for (;;) {
        int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

        if (s < 0)
            return zro__fail_errno(ZRO_ERR_SYSTEM, errno, "group_create_tickets: a socket to fetch memory through");
        *fd = -1;
        if (connect(s, (struct sockaddr *)&name, length) == 0 && is_own_user(s) && wait_readable(s, start, timeout_ms))
            *fd = receive_descriptor(s);
        close(s);
        if (*fd >= 0)
            return ZRO_OK;
        if (has_ended(tickets, first->rank, rank))
            return zro__fail(ZRO_ERR_LOST, "group_create_tickets: rank %d is gone", (int)first->rank);
        if ((zro__now_ns() - start) / 1000000 >= timeout_ms)
            return zro__fail(ZRO_ERR_TIMEOUT, "group_create_tickets: rank %d did not pass its memory within %" PRIu64 " ms",
                             (int)first->rank, timeout_ms);
        zro__nap();
    }
}

zro_status zro__ticket_open(const void *tickets, int rank, uint64_t timeout_ms, int *fd)
{
    zro__ticket first = zro__ticket_get(tickets, zro__ticket_first(tickets, ZRO__NEAR, rank));
    zro__ticket own = zro__ticket_get(tickets, rank);
    struct stat s;
    zro_status st = opens_proc(&first, &own) ? open_proc(&first, fd) : fetch(tickets, rank, &first, timeout_ms, fd);

    /* Another process may have taken its place before the opening. */
    if (st != ZRO_OK || (fstat(*fd, &s) == 0 && is_memfd_of(&s, &first)))
        return st;
    close(*fd);
    *fd = -1;
    return zro__fail(ZRO_ERR_LOST, "group_create_tickets: rank %d is gone: what was found is not its memory", (int)first.rank);
}
