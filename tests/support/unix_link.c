/* A link over Unix sockets, as a program of somebody else would bring it: it knows the installed header and nothing more.
 *
 * Every rank listens on a name in the abstract name space and connects to the ranks below it, trying again in each poll until
 * they are there; the name of the connecting end says which rank it is.  On a connection travel frames: a head, then the bytes
 * of a message.  A message that arrives before its receive waits in memory, so that no channel holds up another.  A held send
 * carries a number; it is done when a frame of kind ACK brings that number back, which the receiver sends when a receive takes
 * the message.
 *
 * Everything that waits is a node in one of a peer's four queues, in order: out (frames to be written), unacked (held sends
 * that were written), posted (receives without a message), arrived (messages without a receive).  Never are a posted and an
 * arrived node of one channel there at once.
 *
 * A peer is gone when its end of the connection is closed and everything that it had sent was read.  Then what is open with it
 * fails; what has arrived can still be received. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <zro.h>

enum { MESSAGE_BYTES = 1 << 20, READ_BYTES_PER_POLL = 8 << 20 };

enum { MESSAGE = 1, ACK = 2, RECEIVE = 3 /* of a node in `posted`; never sent */ };

typedef struct head {
    uint64_t channel;
    uint64_t number; /* of a held message, to be sent back; 0: not held */
    uint32_t bytes;
    uint32_t kind;
} head;

typedef struct node {
    struct node *next;
    head head;                 /* of a posted receive: the channel and the room */
    zro_link_request *request; /* NULL: nobody waits for it */
    char *data;                /* the library's, or `copy` */
    size_t done;               /* of head and data: written or read so far */
    char *copy;                /* freed with the node */
} node;

typedef struct queue {
    node *first, **end;
} queue;

typedef struct peer {
    int rank, fd; /* -1: not connected */
    int connecting, gone;
    queue out, unacked, posted, arrived;
    node *reading; /* the frame that is being read, or NULL */
    char text[64];
} peer;

typedef struct unix_link {
    int rank, size, listener;
    uint64_t numbers, held; /* given out so far */
    char key[64];
    peer peers[];
} unix_link;

int unix_link_open(const char *key, int rank, int size, zro_link *out);

/* ---- queues ---- */

static void push(queue *q, node *n)
{
    n->next = NULL;
    *q->end = n;
    q->end = &n->next;
}

static void unlink_node(queue *q, node *n)
{
    node **at = &q->first;

    while (*at != n)
        at = &(*at)->next;
    *at = n->next;
    if (n->next == NULL)
        q->end = at;
}

static node *find(const queue *q, uint64_t channel)
{
    node *n = q->first;

    while (n != NULL && n->head.channel != channel)
        n = n->next;
    return n;
}

static node *new_node(head h, zro_link_request *request, const void *data)
{
    node *n = calloc(1, sizeof *n);

    if (n == NULL)
        return NULL;
    n->head = h;
    n->request = request;
    n->data = (char *)(uintptr_t)data;
    return n;
}

static void free_node(node *n)
{
    if (n != NULL)
        free(n->copy);
    free(n);
}

static void settle(zro_link_request *request, zro_link_state state, const char *text)
{
    request->text = text;
    request->state = state;
}

/* Ends a node of queue q, and the request that waits for it. */
static void finish(queue *q, node *n, zro_link_state state, const char *text)
{
    unlink_node(q, n);
    if (n->request != NULL)
        settle(n->request, state, text);
    free_node(n);
}

static void fail_all(queue *q, const char *text)
{
    while (q->first != NULL)
        finish(q, q->first, ZRO_LINK_FAILED, text);
}

static void lose(peer *p, const char *why)
{
    if (p->gone)
        return;
    snprintf(p->text, sizeof p->text, "rank %d %s", p->rank, why);
    close(p->fd);
    p->fd = -1;
    p->gone = 1;
    free_node(p->reading);
    p->reading = NULL;
    fail_all(&p->out, p->text);
    fail_all(&p->unacked, p->text);
    fail_all(&p->posted, p->text);
}

/* ---- connections ---- */

/* The name of a listener (to < 0), or of the end at rank `from` of the connection to rank `to`. */
static socklen_t name_of(const unix_link *l, int from, int to, struct sockaddr_un *name)
{
    int n;

    memset(name, 0, sizeof *name);
    name->sun_family = AF_UNIX;
    if (to < 0)
        n = snprintf(name->sun_path + 1, sizeof name->sun_path - 1, "zro-%s-%d", l->key, from);
    else
        n = snprintf(name->sun_path + 1, sizeof name->sun_path - 1, "zro-%s-%d-%d", l->key, from, to);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/* A non-blocking socket with that name, or -1. */
static int named_socket(const unix_link *l, int from, int to)
{
    struct sockaddr_un name;
    socklen_t bytes = name_of(l, from, to, &name);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd >= 0 && bind(fd, (struct sockaddr *)&name, bytes) != 0) {
        int error = errno;

        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

/* Names are for everybody on the machine; only the same user is answered. */
static int is_own_user(int fd)
{
    struct ucred who;
    socklen_t bytes = sizeof who;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0 && who.uid == geteuid();
}

static void accept_peers(unix_link *l)
{
    struct sockaddr_un from, name;
    socklen_t bytes = sizeof from;
    int fd;

    while ((fd = accept4(l->listener, (struct sockaddr *)&from, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        int r = l->rank + 1;

        while (r < l->size && (name_of(l, r, l->rank, &name) != bytes || memcmp(&name, &from, bytes) != 0))
            r++;
        if (r < l->size && l->peers[r].fd < 0 && !l->peers[r].gone && is_own_user(fd))
            l->peers[r].fd = fd;
        else
            close(fd);
        bytes = sizeof from;
    }
}

/* A rank that does not listen yet is tried again in the next poll. */
static void connect_peer(unix_link *l, peer *p)
{
    struct sockaddr_un name;
    socklen_t bytes = name_of(l, p->rank, -1, &name);

    if (connect(p->fd, (struct sockaddr *)&name, bytes) != 0)
        return;
    p->connecting = 0;
    if (!is_own_user(p->fd))
        lose(p, "is another user's");
}

/* ---- frames ---- */

/* A message meets its receive. */
static void deliver(peer *p, node *message, void *data, size_t room, zro_link_request *request)
{
    if (message->head.bytes > room) {
        settle(request, ZRO_LINK_FAILED, "a message is longer than its receive");
    } else {
        if (message->head.bytes > 0)
            memcpy(data, message->data, message->head.bytes);
        request->bytes = message->head.bytes;
        settle(request, ZRO_LINK_DONE, NULL);
    }
    if (message->head.number == 0 || p->gone) {
        free_node(message);
        return;
    }
    message->head = (head){ 0, message->head.number, 0, ACK }; /* the same node: an answer must not need memory */
    message->done = 0;
    free(message->copy);
    message->data = message->copy = NULL;
    push(&p->out, message);
}

/* Writes what the socket takes.  Errors are left to `pull`, which finds them after the peer's last words. */
static void flush(peer *p)
{
    node *n;

    while (p->fd >= 0 && !p->connecting && (n = p->out.first) != NULL) {
        size_t in_head = n->done < sizeof n->head ? n->done : sizeof n->head, in_data = n->done - in_head;
        struct iovec v[2] = { { (char *)&n->head + in_head, sizeof n->head - in_head },
                              { n->head.bytes > 0 ? n->data + in_data : NULL, n->head.bytes - in_data } };
        struct msghdr m = { .msg_iov = v, .msg_iovlen = n->head.bytes > 0 ? 2 : 1 };
        ssize_t done = sendmsg(p->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (done < 0)
            return;
        n->done += (size_t)done;
        if (n->done < sizeof n->head + n->head.bytes)
            return;
        if (n->head.kind == MESSAGE && n->head.number != 0 && n->request != NULL) {
            unlink_node(&p->out, n);
            push(&p->unacked, n);
        } else {
            finish(&p->out, n, ZRO_LINK_DONE, NULL);
        }
    }
}

/* Takes a frame that was read whole. */
static void take(peer *p, node *frame)
{
    node *n;

    if (frame->head.kind == MESSAGE) {
        n = find(&p->posted, frame->head.channel);
        if (n == NULL) {
            push(&p->arrived, frame);
            return;
        }
        unlink_node(&p->posted, n);
        deliver(p, frame, n->data, n->head.bytes, n->request);
        free_node(n);
        return;
    }
    for (n = p->unacked.first; n != NULL && n->head.number != frame->head.number; n = n->next)
        continue;
    if (n != NULL) /* otherwise it was cancelled meanwhile */
        finish(&p->unacked, n, ZRO_LINK_DONE, NULL);
    free_node(frame);
}

/* Whether the frame whose head was read can be; makes room for its bytes. */
static int prepare(node *frame)
{
    if (frame->head.bytes > MESSAGE_BYTES || (frame->head.kind != MESSAGE && frame->head.kind != ACK))
        return 0;
    frame->data = frame->copy = malloc(frame->head.bytes + 1);
    return frame->copy != NULL;
}

static void pull(peer *p)
{
    for (size_t got = 0; p->fd >= 0 && !p->connecting && got < READ_BYTES_PER_POLL;) {
        node *n = p->reading != NULL ? p->reading : (p->reading = new_node((head){ 0, 0, 0, 0 }, NULL, NULL));
        char *at;
        size_t want;
        ssize_t bytes;

        if (n == NULL) {
            lose(p, "cannot be read: out of memory");
            return;
        }
        at = n->done < sizeof n->head ? (char *)&n->head + n->done : n->data + (n->done - sizeof n->head);
        want = (n->done < sizeof n->head ? 0 : n->head.bytes) + sizeof n->head - n->done;
        bytes = recv(p->fd, at, want, MSG_DONTWAIT);
        if (bytes < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (bytes <= 0) {
            lose(p, "has closed its end of the link");
            return;
        }
        got += (size_t)bytes;
        n->done += (size_t)bytes;
        if (n->done == sizeof n->head && !prepare(n)) {
            lose(p, "sent what is no frame, or there is no memory for it");
            return;
        }
        if (n->done == sizeof n->head + n->head.bytes) {
            p->reading = NULL;
            take(p, n);
        }
    }
}

/* ---- the table ---- */

static peer *peer_of(unix_link *l, int rank, zro_link_request *request)
{
    if (rank >= 0 && rank < l->size && rank != l->rank)
        return &l->peers[rank];
    settle(request, ZRO_LINK_FAILED, "there is no link to that rank");
    return NULL;
}

static void begin(peer *p, head h, const void *data, zro_link_request *request)
{
    node *n = p->gone ? NULL : new_node(h, request, data);

    if (n == NULL) {
        settle(request, ZRO_LINK_FAILED, p->gone ? p->text : "out of memory");
        return;
    }
    request->own[0] = n;
    request->own[1] = p;
    settle(request, ZRO_LINK_OPEN, NULL);
    push(h.kind == RECEIVE ? &p->posted : &p->out, n);
}

static void link_send(void *self, int rank, uint64_t channel, const void *data, size_t bytes, zro_switch held,
                      zro_link_request *request)
{
    unix_link *l = self;
    peer *p = peer_of(l, rank, request);

    if (p == NULL)
        return;
    if (bytes > MESSAGE_BYTES)
        settle(request, ZRO_LINK_FAILED, "a message is longer than message_bytes");
    else
        begin(p, (head){ channel, held == ZRO_ON ? ++l->held : 0, (uint32_t)bytes, MESSAGE }, data, request);
}

static void link_recv(void *self, int rank, uint64_t channel, void *data, size_t bytes, zro_link_request *request)
{
    peer *p = peer_of(self, rank, request);
    size_t room = bytes < MESSAGE_BYTES ? bytes : MESSAGE_BYTES;
    node *n;

    if (p == NULL)
        return;
    n = find(&p->arrived, channel);
    if (n != NULL) {
        unlink_node(&p->arrived, n);
        deliver(p, n, data, room, request);
    } else {
        begin(p, (head){ channel, 0, (uint32_t)room, RECEIVE }, data, request);
    }
}

static void link_poll(void *self)
{
    unix_link *l = self;

    accept_peers(l);
    for (int r = 0; r < l->size; r++) {
        peer *p = &l->peers[r];

        if (p->connecting)
            connect_peer(l, p);
        pull(p);
        flush(p);
    }
}

/* A frame of which a part was written must be written whole; the rest of it is copied. */
static void link_cancel(void *self, zro_link_request *request)
{
    node *n = request->own[0];
    peer *p = request->own[1];

    (void)self;
    if (request->state != ZRO_LINK_OPEN)
        return;
    if (n->head.kind == RECEIVE) {
        finish(&p->posted, n, ZRO_LINK_FAILED, "cancelled");
    } else if (n->done == sizeof n->head + n->head.bytes) {
        finish(&p->unacked, n, ZRO_LINK_FAILED, "cancelled");
    } else if (n->done == 0) {
        finish(&p->out, n, ZRO_LINK_FAILED, "cancelled");
    } else {
        n->copy = malloc(n->head.bytes + 1);
        if (n->copy == NULL)
            return;
        if (n->head.bytes > 0)
            memcpy(n->copy, n->data, n->head.bytes);
        n->data = n->copy;
        n->request = NULL;
        settle(request, ZRO_LINK_FAILED, "cancelled");
    }
}

static uint64_t link_number(void *self)
{
    unix_link *l = self;

    return l->numbers++ * (uint64_t)l->size + (uint64_t)l->rank;
}

static void free_queue(queue *q)
{
    while (q->first != NULL) {
        node *n = q->first;

        q->first = n->next;
        free_node(n);
    }
}

/* Requests that are still open are the library's, and perhaps no more there: they are not touched. */
static void link_close(void *self)
{
    unix_link *l = self;

    for (int r = 0; r < l->size; r++) {
        peer *p = &l->peers[r];

        for (node *n = p->out.first; n != NULL; n = n->next)
            n->request = NULL;
        flush(p); /* the last acknowledgements: without them the peer would take what has arrived for lost */
        free_queue(&p->out);
        free_queue(&p->unacked);
        free_queue(&p->posted);
        free_queue(&p->arrived);
        free_node(p->reading);
        if (p->fd >= 0)
            close(p->fd);
    }
    if (l->listener >= 0)
        close(l->listener);
    free(l);
}

/* Fills *out with a link of rank `rank` among `size`, all of whom pass the same `key`, which no other group on the machine
 * uses.  Returns 0 or an error number.  Waits for nobody; the ranks may open in any order. */
int unix_link_open(const char *key, int rank, int size, zro_link *out)
{
    unix_link *l = calloc(1, sizeof *l + (size_t)size * sizeof l->peers[0]);
    int error;

    if (l == NULL)
        return ENOMEM;
    l->rank = rank;
    l->size = size;
    for (int r = 0; r < size; r++) {
        peer *p = &l->peers[r];

        p->rank = r;
        p->fd = -1;
        p->out.end = &p->out.first;
        p->unacked.end = &p->unacked.first;
        p->posted.end = &p->posted.first;
        p->arrived.end = &p->arrived.first;
    }
    l->listener = -1;
    if ((size_t)snprintf(l->key, sizeof l->key, "%s", key) >= sizeof l->key) {
        errno = ENAMETOOLONG;
        goto fail;
    }
    l->listener = named_socket(l, rank, -1);
    if (l->listener < 0 || listen(l->listener, size) != 0)
        goto fail;
    for (int r = 0; r < rank; r++) {
        l->peers[r].fd = named_socket(l, rank, r);
        if (l->peers[r].fd < 0)
            goto fail;
        l->peers[r].connecting = 1;
    }
    *out = (zro_link)ZRO_LINK_INIT;
    out->self = l;
    out->message_bytes = MESSAGE_BYTES;
    out->channels = UINT64_C(1) << 62;
    out->send = link_send;
    out->recv = link_recv;
    out->poll = link_poll;
    out->cancel = link_cancel;
    out->number = link_number;
    out->close = link_close;
    return 0;
fail:
    error = errno;
    link_close(l);
    return error;
}
