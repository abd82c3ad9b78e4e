/* Tickets.
 *
 * Without a link all ranks meet in the memory of rank 0.  With one, ranks with equal machine, user and namespaces are near each
 * other and meet in the memory of the lowest of them, here called first; what lies between is the link's.
 *
 * The first rank's memfd reaches a peer in one of two ways, which both read off the tickets: the peer opens
 * /proc/PID/fd/N, if the two have the same user and namespaces and the first rank is dumpable; otherwise the descriptor is
 * passed through a socket in the abstract name space, named by the first rank's nonce, which works wherever the network
 * name space is the same.  Neither way leaves anything in a file system.  The peer compares the memfd's name before it opens
 * (a wrong process might have a device there) and the nonce inside the memory afterwards. */
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

static const char magic[8] = "zrotick2";

typedef enum way { WAY_PROC, WAY_SOCKET, WAY_NONE } way;

/* ---- writing ---- */

static uint64_t read_boot(void)
{
    char text[64] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

    if (fd >= 0)
        close(fd);
    return n <= 0 ? 0 : zro__hash(ZRO__HASH_START, text, (size_t)n);
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

void zro__ticket_write(const zro__view *view, int rank, int size, const zro_group_config *config, uint64_t number,
                       zro__ticket *t)
{
    memset(t, 0, sizeof *t);
    memcpy(t->magic, magic, sizeof magic);
    t->rank = rank;
    t->size = size;
    t->boot = read_boot();
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
    t->view = (uint64_t)(uintptr_t)view;
    t->machine = config->machine;
    t->cells = zro__cells_hash(config->cells, size);
    t->message_bytes = config->link == NULL ? 0 : config->link->message_bytes;
    t->number = number;
    t->sum = sum_of(t);
}

/* ---- reading ---- */

/* An equivalence, so that near ranks are near to the same ones. */
static int are_near(const zro__ticket *a, const zro__ticket *b)
{
    if (a->message_bytes == 0)
        return 1;
    return a->boot == b->boot && a->machine == b->machine && a->uid == b->uid && a->user_ns == b->user_ns
           && a->pid_ns == b->pid_ns && a->net_ns == b->net_ns;
}

int zro__ticket_first_near(const void *tickets, int rank)
{
    zro__ticket own = zro__ticket_get(tickets, rank);

    for (int r = 0; r < rank; r++) {
        zro__ticket t = zro__ticket_get(tickets, r);

        if (are_near(&t, &own))
            return r;
    }
    return rank;
}

int zro__ticket_first_of_process(const void *tickets, int rank)
{
    zro__ticket own = zro__ticket_get(tickets, rank);

    for (int r = 0; r < rank; r++) {
        zro__ticket t = zro__ticket_get(tickets, r);

        if (t.boot == own.boot && t.pid_ns == own.pid_ns && t.pid == own.pid && are_near(&t, &own))
            return r;
    }
    return rank;
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

static int one_pid_ns(const void *tickets, int a, int b)
{
    return zro__ticket_get(tickets, a).pid_ns == zro__ticket_get(tickets, b).pid_ns;
}

int zro__tickets_one_pid_ns(const void *tickets, int rank, int size)
{
    int first = zro__ticket_first_near(tickets, rank);

    for (int r = 0; r < size; r++)
        if (zro__ticket_first_near(tickets, r) == first && !one_pid_ns(tickets, first, r))
            return 0;
    return 1;
}

uint64_t zro__cells_hash(const int32_t *cells, int size)
{
    return cells == NULL ? 0 : zro__hash(ZRO__HASH_START, cells, (size_t)size * sizeof *cells);
}

static int is_ticket(const zro__ticket *t)
{
    return memcmp(t->magic, magic, sizeof magic) == 0 && t->sum == sum_of(t);
}

static int is_own(const zro__ticket *t)
{
    return is_ticket(t) && t->pid == pid_in_proc() && t->pid_ns == inode_of("/proc/self/ns/pid");
}

/* A view that is freed closes its memfd: so the descriptor tells whether the address still means something. */
zro__view *zro__ticket_view(const zro__ticket *t)
{
    zro__view *view = (zro__view *)(uintptr_t)t->view;
    struct stat s;

    if (!is_own(t) || fstat(t->fd, &s) != 0 || (uint64_t)s.st_dev != t->device || (uint64_t)s.st_ino != t->inode)
        return NULL;
    return view->used ? NULL : view;
}

static way way_to(const zro__ticket *first, const zro__ticket *peer)
{
    if (first->boot != peer->boot)
        return WAY_NONE;
    if (first->pid_ns == peer->pid_ns && first->user_ns == peer->user_ns && first->uid == peer->uid && first->gid == peer->gid
        && first->dumpable)
        return WAY_PROC;
    if (first->user_ns == peer->user_ns && first->uid != peer->uid)
        return WAY_NONE;
    return first->net_ns == peer->net_ns ? WAY_SOCKET : WAY_NONE;
}

static const char *why_not(const zro__ticket *first, const zro__ticket *peer)
{
    if (first->boot != peer->boot)
        return "they are on different machines";
    if (first->user_ns == peer->user_ns && first->uid != peer->uid)
        return "they belong to different users";
    return "they are in different namespaces (containers)";
}

zro__ticket zro__ticket_get(const void *tickets, int r)
{
    zro__ticket t;

    memcpy(&t, (const char *)tickets + (size_t)r * ZRO_TICKET_BYTES, sizeof t);
    return t;
}

zro_status zro__tickets_check(const void *tickets, int rank, int size)
{
    zro__ticket first = zro__ticket_get(tickets, 0), own = zro__ticket_get(tickets, rank);

    for (int r = 0; r < size; r++) {
        zro__ticket other = zro__ticket_get(tickets, r), *t = &other;

        if (!is_ticket(t))
            return zro__fail(ZRO_ERR_INVALID, "group_create_tickets: what came from rank %d is no ticket", r);
        if (t->rank != r)
            return zro__fail(ZRO_ERR_INVALID, "group_create_tickets: the ticket at place %d is rank %d's", r, (int)t->rank);
        if (t->size != first.size)
            return zro__fail(ZRO_ERR_MISMATCH, "group_create_tickets: rank %d's ticket is for %d ranks, rank 0's for %d", r,
                             (int)t->size, (int)first.size);
        if (t->cells != first.cells)
            return zro__fail(ZRO_ERR_MISMATCH, "group_create_tickets: the cells of rank %d differ from rank 0's", r);
        if ((t->message_bytes == 0) != (first.message_bytes == 0))
            return zro__fail(ZRO_ERR_MISMATCH, "group_create_tickets: rank %d has %s link, rank 0 has %s", r,
                             t->message_bytes == 0 ? "no" : "a", t->message_bytes == 0 ? "one" : "none");
        if (t->message_bytes == 0 && way_to(&first, t) == WAY_NONE)
            return zro__fail(ZRO_ERR_UNSUPPORTED, "group_create_tickets: ranks 0 and %d cannot share memory: %s", r,
                             why_not(&first, t));
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
    char path[64], want[64] = "/memfd:zro-", name[128] = "";
    size_t at = strlen(want);

    for (size_t i = 0; i < sizeof first->nonce; i++)
        snprintf(want + at + 2 * i, 3, "%02x", first->nonce[i]);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)first->pid, (int)first->fd);
    if (readlink(path, name, sizeof name - 1) < 0 && errno != ENOENT)
        return zro__fail_errno(ZRO_ERR_SYSTEM, errno, "group_create_tickets: rank %d's memory (%s)", (int)first->rank, path);
    if (strncmp(name, want, strlen(want)) != 0)
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
    int near = zro__ticket_first_near(tickets, rank);
    zro__ticket first = zro__ticket_get(tickets, near), own = zro__ticket_get(tickets, rank);

    return rank != near && near == from && zro__ticket_first_of_process(tickets, rank) == rank
           && way_to(&first, &own) == WAY_SOCKET;
}

/* A rank that fetches and has ended, or -1. */
static int ended_fetcher(const void *tickets, int size, int from)
{
    for (int r = from + 1; r < size; r++)
        if (fetches(tickets, r, from) && one_pid_ns(tickets, from, r) && zro__process_ended(zro__ticket_get(tickets, r).pid))
            return r;
    return -1;
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
        unsigned char nonce[16];
        int peer;

        if (!wait_readable(listener, zro__now_ns(), 100) && (zro__now_ns() - start) / 1000000 < timeout_ms) {
            int gone = ended_fetcher(tickets, size, rank);

            if (gone >= 0)
                st = zro__fail(ZRO_ERR_LOST, "group_create_tickets: rank %d is gone", gone);
            continue;
        }
        if (!wait_readable(listener, start, 0)) {
            st = zro__fail(ZRO_ERR_TIMEOUT, "group_create_tickets: %d ranks did not fetch the memory within %" PRIu64 " ms",
                           left, timeout_ms);
            break;
        }
        peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (peer < 0 && errno != EINTR && errno != ECONNABORTED)
            st = zro__fail_errno(ZRO_ERR_SYSTEM, errno, "group_create_tickets: passing memory to a rank");
        if (peer < 0)
            continue;
        if (is_own_user(peer) && wait_readable(peer, start, timeout_ms) && recv(peer, nonce, sizeof nonce, 0) == sizeof nonce
            && memcmp(nonce, first.nonce, sizeof nonce) == 0 && send_descriptor(peer, first.fd))
            left--;
        close(peer);
    }
    if (listener >= 0)
        close(listener);
    return st;
}

/* The first rank listens once it is in its create, which may be after this: so a refusal is tried again, until the deadline. */
static zro_status fetch(const void *tickets, int rank, uint64_t timeout_ms, int *fd)
{
    int near = zro__ticket_first_near(tickets, rank);
    zro__ticket nearest = zro__ticket_get(tickets, near), *first = &nearest;
    struct sockaddr_un name;
    socklen_t length = socket_name(first, &name);
    uint64_t start = zro__now_ns();

    for (;;) {
        int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

        if (s < 0)
            return zro__fail_errno(ZRO_ERR_SYSTEM, errno, "group_create_tickets: a socket to fetch memory through");
        *fd = -1;
        if (connect(s, (struct sockaddr *)&name, length) == 0 && is_own_user(s)
            && send(s, first->nonce, sizeof first->nonce, MSG_NOSIGNAL) == sizeof first->nonce
            && wait_readable(s, start, timeout_ms))
            *fd = receive_descriptor(s);
        close(s);
        if (*fd >= 0)
            return ZRO_OK;
        if (one_pid_ns(tickets, near, rank) && zro__process_ended(first->pid))
            return zro__fail(ZRO_ERR_LOST, "group_create_tickets: rank %d is gone", near);
        if ((zro__now_ns() - start) / 1000000 >= timeout_ms)
            return zro__fail(ZRO_ERR_TIMEOUT, "group_create_tickets: rank %d did not pass its memory within %" PRIu64 " ms",
                             near, timeout_ms);
        poll(NULL, 0, 1);
    }
}

zro_status zro__ticket_open(const void *tickets, int rank, uint64_t timeout_ms, int *fd)
{
    zro__ticket first = zro__ticket_get(tickets, zro__ticket_first_near(tickets, rank));
    zro__ticket own = zro__ticket_get(tickets, rank);

    return way_to(&first, &own) == WAY_PROC ? open_proc(&first, fd) : fetch(tickets, rank, timeout_ms, fd);
}
