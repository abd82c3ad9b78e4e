/* Far ranks: see wire.h.
 *
 * A far rank's slot is a copy in this rank's own memory.  Whoever arrives sends its header and payload to all far ranks; this
 * rank's poll writes them into the copy and posts its words, so that slot.c and create.c wait for far ranks and read them as
 * they do near ones.  The argument at slot.c's head, that two payload buffers suffice, holds for copies too: a far rank sends
 * its arrival at k + 2 only after it got ours at k + 1.
 *
 * Each pair has three of the group's four channels: control (arrivals, notices, verdicts, leaving), pieces and results.
 * Control messages are few and bounded by the protocol, so they need not be held, and two receives for each far rank are always
 * posted.  Data messages are held by the link until the receiver has posted their receive: so no sender runs ahead of a slow
 * receiver.  Those receives are posted by the transfer itself, which knows what comes (expect), straight into group memory
 * where the result belongs there.  Everything else goes through buffers of the wire.
 *
 * Everything that the link may write, and everything that is derived from it, is written under the trunk's lock; the words are
 * what others may look at without it.  Polling only tries the lock, and stands back when somebody wants to send.
 *
 * A request that the link does not give up keeps its memory: the region that the wire lies in, or an array, stays mapped. */
#include "group/wire.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/point.h"

enum { CONTROL, PIECES, RESULTS, INBOX = 2, DEPTH = ZRO__LINK_DEPTH, LAST_POLLS = 64, VERDICT_NAPS = 100 };

enum { KIND_HEAD = 0x7a726f01, KIND_NOTICE, KIND_VERDICT, KIND_LEFT };

/* A control message; `bytes` of the body travel. */
typedef struct message {
    uint32_t kind, bytes;
    uint64_t key, number; /* of a notice */
    int32_t code, reserved;
    zro__header header; /* of an arrival */
    char body[ZRO__PAYLOAD_BYTES];
} message;

enum { MESSAGE_HEAD = offsetof(message, body) };
_Static_assert((int)ZRO__TEXT_BYTES <= (int)ZRO__PAYLOAD_BYTES, "a text is a body");

/* Messages that follow each other: those that come in one of the two streams, or all that go. */
typedef struct queue {
    zro__word over;  /* how many the link is done with, in order */
    uint64_t begun;  /* how many it was given */
    uint64_t served; /* how many of those that came the transfer is done with */
    zro_link_request request[DEPTH];
    const void *at[DEPTH]; /* where each lies */
} queue;

typedef struct far {
    zro__slot slot;
    int peer; /* its rank in the first group */
    int failed;
    char why[ZRO__TEXT_BYTES];
    uint64_t taken; /* control messages */
    zro__word told; /* number of the last arrival that the link has sent */
    zro_link_request control[INBOX], head, notice, verdict, left;
    queue in_of[ZRO__STREAMS], out;
    char *buffers; /* DEPTH for what goes, then DEPTH for each stream that comes */
    message inbox[INBOX], note;
} far;

typedef void (*request_fn)(zro__wire *wire, far *f, zro_link_request *request, const void *data);

struct zro__wire {
    zro__trunk *trunk;
    zro__view *view;
    zro__control *control;
    zro__counters *counters;
    uint64_t channel; /* the first of the group's */
    size_t chunk;
    int n_far;
    uint64_t last_head; /* number of the last arrival that was sent */
    message head, verdict, left;
    _Alignas(64) far far[]; /* n_far; then the buffers */
};

/* ---- under the lock ---- */

static char *buffer_of(const zro__wire *wire, const far *f, int row, uint64_t message_number)
{
    return f->buffers + ((size_t)row * DEPTH + message_number % DEPTH) * wire->chunk;
}

static void fail(far *f, const char *why)
{
    if (f->failed)
        return;
    f->failed = 1;
    snprintf(f->why, sizeof f->why, "%s", why != NULL ? why : "its link failed");
}

static void post_control(zro__wire *wire, far *f, int i)
{
    const zro_link *link = &wire->trunk->link;

    memset(&f->control[i], 0, sizeof f->control[i]);
    link->recv(link->self, f->peer, wire->channel + CONTROL, &f->inbox[i], sizeof f->inbox[i], &f->control[i]);
}

static void add(const zro__wire *wire, size_t bytes)
{
    if (wire->counters == NULL)
        return;
    zro__count(&wire->counters->link_messages, 1);
    zro__count(&wire->counters->link_bytes, bytes);
}

static void send_control(zro__wire *wire, far *f, const message *m, zro_link_request *request)
{
    const zro_link *link = &wire->trunk->link;
    size_t bytes = MESSAGE_HEAD + m->bytes;

    if (f->failed)
        return;
    memset(request, 0, sizeof *request);
    link->send(link->self, f->peer, wire->channel + CONTROL, m, bytes, ZRO_OFF, request);
    add(wire, bytes);
}

/* A link that serves several creates may set it while it polls for another; then this is what makes the rest visible. */
static zro_link_state state_of(const zro_link_request *request)
{
    return __atomic_load_n(&request->state, __ATOMIC_ACQUIRE);
}

static int is_open(const zro_link_request *request)
{
    return state_of(request) == ZRO_LINK_OPEN;
}

/* ---- what has come ---- */

static int reached(const zro__word *word, uint64_t target)
{
    return atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)&word->value, memory_order_acquire) >= target;
}

static void take_head(far *f, const message *m)
{
    uint64_t number = zro__slot_arrived(&f->slot) + 1;

    if (m->header.number != number) {
        fail(f, "it sent an arrival out of turn");
        return;
    }
    memcpy(f->slot.payload[number % 2], m->body, m->bytes);
    zro__post(zro__slot_write(&f->slot, &m->header), number);
}

static void take_notice(far *f, const message *m)
{
    uint64_t number = atomic_load_explicit(&f->slot.noticed.value, memory_order_relaxed) + 1;
    zro__notice *notice = &f->slot.notices[number % ZRO__NOTICES];

    atomic_store(&notice->key, m->key);
    atomic_store(&notice->channel, m->number);
    atomic_store(&notice->code, m->code);
    memcpy(notice->text, m->body, sizeof notice->text);
    notice->text[sizeof notice->text - 1] = '\0';
    atomic_store(&notice->number, number);
    zro__post(&f->slot.noticed, number);
}

static void take_message(zro__wire *wire, far *f, const message *m, size_t bytes)
{
    if (bytes < MESSAGE_HEAD || bytes - MESSAGE_HEAD != m->bytes) {
        fail(f, "it sent what is no message of this library");
        return;
    }
    switch (m->kind) {
    case KIND_HEAD:
        take_head(f, m);
        break;
    case KIND_NOTICE:
        take_notice(f, m);
        break;
    case KIND_VERDICT:
        zro__control_break(wire->control, (zro_status)m->code, m->body);
        break;
    case KIND_LEFT:
        atomic_store_explicit(&f->slot.left, 1, memory_order_release); /* pairs with the acquire in slot.c's check_peers */
        break;
    default:
        fail(f, "it sent a message of unknown kind");
    }
}

static void collect_control(zro__wire *wire, far *f)
{
    int i = (int)(f->taken % INBOX);

    while (!f->failed && !is_open(&f->control[i])) {
        if (state_of(&f->control[i]) == ZRO_LINK_FAILED) {
            fail(f, f->control[i].text);
            return;
        }
        f->inbox[i].body[ZRO__PAYLOAD_BYTES - 1] = '\0'; /* texts end, whatever was sent */
        take_message(wire, f, &f->inbox[i], f->control[i].bytes);
        if (!f->failed)
            post_control(wire, f, i);
        i = (int)(++f->taken % INBOX);
    }
}

static void collect_queue(far *f, queue *q)
{
    uint64_t n = atomic_load_explicit(&q->over.value, memory_order_relaxed), before = n;

    while (n < q->begun && state_of(&q->request[n % DEPTH]) == ZRO_LINK_DONE)
        n++;
    if (n < q->begun && state_of(&q->request[n % DEPTH]) == ZRO_LINK_FAILED)
        fail(f, q->request[n % DEPTH].text);
    if (n > before)
        zro__post(&q->over, n);
}

static void collect_head(zro__wire *wire, far *f)
{
    if (reached(&f->told, wire->last_head))
        return;
    if (state_of(&f->head) == ZRO_LINK_DONE)
        zro__post(&f->told, wire->last_head);
    else if (state_of(&f->head) == ZRO_LINK_FAILED)
        fail(f, f->head.text);
}

void zro__wire_poll(zro__wire *wire)
{
    zro__trunk *trunk = wire->trunk;

    if (atomic_load_explicit(&trunk->want, memory_order_relaxed) > 0 || pthread_mutex_trylock(&trunk->lock) != 0)
        return;
    trunk->link.poll(trunk->link.self);
    for (int i = 0; i < wire->n_far; i++) {
        far *f = &wire->far[i];

        collect_control(wire, f);
        collect_queue(f, &f->in_of[ZRO__PIECES]);
        collect_queue(f, &f->in_of[ZRO__RESULTS]);
        collect_queue(f, &f->out);
        collect_head(wire, f);
    }
    zro__trunk_unlock(trunk);
}

/* ---- telling far ranks ---- */

zro__slot *zro__wire_slot(zro__wire *wire, int i)
{
    return &wire->far[i].slot;
}

const char *zro__wire_failure(const zro__wire *wire, int i)
{
    return wire->far[i].failed ? wire->far[i].why : NULL;
}

zro__word *zro__wire_told(zro__wire *wire, int i)
{
    return &wire->far[i].told;
}

void zro__wire_count(zro__wire *wire, zro__counters *counters)
{
    wire->counters = counters;
}

void zro__wire_head(zro__wire *wire, const zro__header *header, const void *payload, size_t bytes)
{
    message *m = &wire->head;

    m->kind = KIND_HEAD;
    m->bytes = (uint32_t)bytes;
    m->header = *header;
    memcpy(m->body, payload, bytes);
    (void)ZRO__POINT("wire.head");
    zro__trunk_lock(wire->trunk);
    wire->last_head = header->number;
    for (int i = 0; i < wire->n_far; i++)
        send_control(wire, &wire->far[i], m, &wire->far[i].head);
    zro__trunk_unlock(wire->trunk);
}

static zro_link_request *request_at(far *f, size_t offset)
{
    return (zro_link_request *)(void *)((char *)f + offset);
}

static void write_message(message *m, uint32_t kind, zro_status code, const char *text)
{
    m->kind = kind;
    m->code = (int32_t)code;
    m->bytes = (uint32_t)strnlen(text, ZRO__TEXT_BYTES - 1) + 1;
    snprintf(m->body, ZRO__TEXT_BYTES, "%s", text);
}

static int any_open(zro__wire *wire, size_t request)
{
    int open = 0;

    for (int i = 0; i < wire->n_far; i++)
        open |= is_open(request_at(&wire->far[i], request));
    return open;
}

/* A message that is sent once in the life of a wire, after which this rank may not come here any more: so the link gets a few
 * chances, and `naps` of 1 ms, to be done with it. */
static void tell_all(zro__wire *wire, message *m, size_t request, int naps)
{
    const zro_link *link = &wire->trunk->link;

    for (int i = 0; i < wire->n_far; i++)
        send_control(wire, &wire->far[i], m, request_at(&wire->far[i], request));
    for (int tries = 0; any_open(wire, request) && tries < LAST_POLLS + naps; tries++) {
        link->poll(link->self);
        if (tries >= LAST_POLLS)
            poll(NULL, 0, 1);
    }
}

/* Others wait for what this rank will not do any more, and must hear why before they find it gone. */
void zro__wire_verdict(zro__wire *wire, zro_status code, const char *text)
{
    if (zro__trunk_is_elsewhere(wire->trunk))
        return;
    zro__trunk_lock(wire->trunk);
    write_message(&wire->verdict, KIND_VERDICT, code, text);
    tell_all(wire, &wire->verdict, offsetof(far, verdict), VERDICT_NAPS);
    zro__trunk_unlock(wire->trunk);
}

void zro__wire_leave(zro__wire *wire)
{
    if (zro__trunk_is_elsewhere(wire->trunk))
        return;
    zro__trunk_lock(wire->trunk);
    write_message(&wire->left, KIND_LEFT, ZRO_OK, "");
    tell_all(wire, &wire->left, offsetof(far, left), 0);
    zro__trunk_unlock(wire->trunk);
}

void zro__wire_notice(zro__wire *wire, int i, uint64_t key, uint64_t number, zro_status code, const char *text)
{
    const zro_link *link = &wire->trunk->link;
    far *f = &wire->far[i];
    message *m = &f->note;

    zro__trunk_lock(wire->trunk);
    /* The last one was read when its group was made; after a group that was given up it may still be on its way. */
    if (is_open(&f->notice))
        link->poll(link->self);
    if (is_open(&f->notice))
        link->cancel(link->self, &f->notice);
    if (is_open(&f->notice)) {
        fail(f, "a notice to it could not be sent");
    } else {
        write_message(m, KIND_NOTICE, code, text);
        m->key = key;
        m->number = number;
        send_control(wire, f, m, &f->notice);
        for (int tries = 0; code != ZRO_OK && is_open(&f->notice) && tries < LAST_POLLS + VERDICT_NAPS; tries++) {
            link->poll(link->self);
            if (tries >= LAST_POLLS)
                poll(NULL, 0, 1);
        }
    }
    zro__trunk_unlock(wire->trunk);
}

/* What is needed to tell others of a group that this rank has no region for. */
typedef struct refusal {
    message message;
    zro_link_request request[];
} refusal;

void zro__wire_refuse(zro__trunk *trunk, uint64_t number, int size, int32_t (*member)(void *, int), int (*is_near)(void *, int),
                      void *user, int mine, zro_status code)
{
    const zro_link *link = &trunk->link;
    refusal *r = zro__alloc(NULL, ZRO__KIND_HANDLE, sizeof *r + (size_t)size * sizeof *r->request);
    char text[ZRO__TEXT_BYTES];
    int open = 0;

    if (r == NULL)
        return;
    snprintf(text, sizeof text, "rank %d: %s: %.900s", mine, zro_status_name(code), zro_last_error());
    write_message(&r->message, KIND_VERDICT, ZRO_ERR_PEER, text);
    zro__trunk_lock(trunk);
    for (int i = 0; i < size; i++) {
        if (is_near(user, i))
            r->request[i].state = ZRO_LINK_DONE;
        else
            link->send(link->self, member(user, i), number * ZRO__CHANNELS + CONTROL, &r->message,
                       MESSAGE_HEAD + r->message.bytes, ZRO_OFF, &r->request[i]);
    }
    for (int tries = 0; tries <= LAST_POLLS + VERDICT_NAPS; tries++) {
        link->poll(link->self);
        open = 0;
        for (int i = 0; i < size; i++) {
            if (is_open(&r->request[i]) && tries == LAST_POLLS + VERDICT_NAPS)
                link->cancel(link->self, &r->request[i]);
            open |= is_open(&r->request[i]);
        }
        if (!open)
            break;
        if (tries >= LAST_POLLS)
            poll(NULL, 0, 1);
    }
    zro__trunk_unlock(trunk);
    if (!open) /* else the link has it for good */
        zro__free(r);
}

/* ---- messages of transfers ---- */

static far *far_of(const zro__wire *wire, int peer)
{
    return (far *)(uintptr_t)&wire->far[~zro__place_of(wire->control, peer)];
}

static zro__word *room_word(void *self, int peer, uint64_t *target)
{
    queue *out = &far_of(self, peer)->out;

    *target = out->begun < DEPTH ? 0 : out->begun - DEPTH + 1;
    return &out->over;
}

static zro__word *sent_word(void *self, int peer, uint64_t *target)
{
    queue *out = &far_of(self, peer)->out;

    *target = out->begun;
    return &out->over;
}

static zro__word *recv_word(void *self, int peer, zro__stream stream, uint64_t *target)
{
    queue *in = &far_of(self, peer)->in_of[stream];

    *target = in->served + 1;
    return &in->over;
}

static void *room(void *self, int peer)
{
    far *f = far_of(self, peer);
    uint64_t target;
    zro__word *over = room_word(self, peer, &target);

    return reached(over, target) ? buffer_of(self, f, 0, f->out.begun) : NULL;
}

static uint64_t channel_of(const zro__wire *wire, zro__stream stream)
{
    return wire->channel + (stream == ZRO__PIECES ? PIECES : RESULTS);
}

/* Under the lock: the request of the queue's next message, which lies `at`. */
static zro_link_request *begin(queue *q, const void *at)
{
    int i = (int)(q->begun++ % DEPTH);

    q->at[i] = at;
    memset(&q->request[i], 0, sizeof q->request[i]);
    return &q->request[i];
}

static void send_from(void *self, int peer, zro__stream stream, const void *from, size_t bytes)
{
    zro__wire *wire = self;
    const zro_link *link = &wire->trunk->link;
    far *f = far_of(wire, peer);

    (void)ZRO__POINT("wire.send");
    zro__trunk_lock(wire->trunk);
    link->send(link->self, f->peer, channel_of(wire, stream), from, bytes, ZRO_ON, begin(&f->out, from));
    add(wire, bytes);
    zro__trunk_unlock(wire->trunk);
}

static void send_message(void *self, int peer, zro__stream stream, size_t bytes)
{
    far *f = far_of(self, peer);

    send_from(self, peer, stream, buffer_of(self, f, 0, f->out.begun), bytes);
}

static void expect(void *self, int peer, zro__stream stream, void *into, size_t bytes)
{
    zro__wire *wire = self;
    const zro_link *link = &wire->trunk->link;
    far *f = far_of(wire, peer);
    queue *in = &f->in_of[stream];

    if (into == NULL) {
        into = buffer_of(wire, f, 1 + (int)stream, in->begun);
        bytes = wire->chunk; /* so that what is too long is seen to be */
    }
    zro__trunk_lock(wire->trunk);
    link->recv(link->self, f->peer, channel_of(wire, stream), into, bytes, begin(in, into));
    zro__trunk_unlock(wire->trunk);
}

static const void *recv_message(void *self, int peer, zro__stream stream, size_t *bytes)
{
    queue *in = &far_of(self, peer)->in_of[stream];
    int i = (int)(in->served % DEPTH);

    if (!reached(&in->over, in->served + 1))
        return NULL;
    *bytes = in->request[i].bytes;
    return in->at[i];
}

static void release_message(void *self, int peer, zro__stream stream)
{
    far_of(self, peer)->in_of[stream].served++;
}

/* ---- the beginning and the end ---- */

static size_t buffers_offset(int n_far)
{
    return (sizeof(zro__wire) + (size_t)n_far * sizeof(far) + 4095) & ~(size_t)4095;
}

size_t zro__wire_bytes(int n_far, size_t chunk)
{
    return n_far == 0 ? 0 : buffers_offset(n_far) + (size_t)n_far * (1 + ZRO__STREAMS) * DEPTH * chunk;
}

/* Calls fn for every request of a far rank, with the program's memory that it uses, or NULL if that is the wire's. */
static void each_request(zro__wire *wire, far *f, int control, request_fn fn)
{
    for (int i = 0; i < DEPTH; i++) {
        for (int s = 0; s < ZRO__STREAMS; s++)
            fn(wire, f, &f->in_of[s].request[i], f->in_of[s].at[i]);
        fn(wire, f, &f->out.request[i], f->out.at[i]);
    }
    if (!control)
        return;
    for (int i = 0; i < INBOX; i++)
        fn(wire, f, &f->control[i], NULL);
    fn(wire, f, &f->head, NULL);
    fn(wire, f, &f->notice, NULL);
    fn(wire, f, &f->verdict, NULL);
    fn(wire, f, &f->left, NULL);
}

static void rest(zro__wire *wire, far *f, zro_link_request *request, const void *data)
{
    (void)wire;
    (void)f;
    (void)data;
    request->state = ZRO_LINK_DONE;
}

zro__wire *zro__wire_open(void *memory, zro__trunk *trunk, zro__view *view, const zro__control *control, uint64_t number,
                          size_t chunk, zro__link *link)
{
    zro__wire *wire = memory;
    char *buffers;

    wire->trunk = trunk;
    wire->view = view;
    wire->control = (zro__control *)(uintptr_t)control;
    wire->channel = number * ZRO__CHANNELS;
    wire->chunk = chunk;
    for (int r = 0; r < control->size; r++)
        wire->n_far += zro__place_of(control, r) < 0;
    buffers = (char *)memory + buffers_offset(wire->n_far);
    zro__trunk_lock(trunk);
    for (int r = 0; r < control->size; r++) {
        far *f;

        if (zro__place_of(control, r) >= 0)
            continue;
        f = far_of(wire, r);
        f->peer = control->member[r];
        f->buffers = buffers;
        buffers += (1 + ZRO__STREAMS) * DEPTH * chunk;
        each_request(wire, f, 1, rest);
        for (int i = 0; i < INBOX; i++)
            post_control(wire, f, i);
    }
    zro__trunk_unlock(trunk);
    *link = (zro__link){ .self = wire,
                         .room = room,
                         .send = send_message,
                         .recv = recv_message,
                         .release = release_message,
                         .room_word = room_word,
                         .recv_word = recv_word,
                         .expect = expect,
                         .send_from = send_from,
                         .sent_word = sent_word };
    return wire;
}

static void give_up(zro__wire *wire, far *f, zro_link_request *request, const void *data)
{
    const zro_link *link = &wire->trunk->link;

    (void)f;
    (void)data;
    if (is_open(request))
        link->cancel(link->self, request);
}

static void give_up_and_pin(zro__wire *wire, far *f, zro_link_request *request, const void *data)
{
    give_up(wire, f, request, data);
    if (is_open(request))
        zro__pin(wire->view, data);
}

/* The region must stay, in this process and in the file. */
static void pin_wire(zro__wire *wire)
{
    atomic_store(&wire->control->pinned, 1);
    zro__pin(wire->view, wire);
}

void zro__wire_abandon(zro__wire *wire)
{
    if (zro__trunk_is_elsewhere(wire->trunk))
        return;
    zro__trunk_lock(wire->trunk);
    for (int i = 0; i < wire->n_far; i++)
        each_request(wire, &wire->far[i], 0, give_up_and_pin);
    zro__trunk_unlock(wire->trunk);
}

static void give_up_or_pin_wire(zro__wire *wire, far *f, zro_link_request *request, const void *data)
{
    give_up(wire, f, request, data);
    if (is_open(request))
        pin_wire(wire);
}

void zro__wire_close(zro__wire *wire)
{
    if (zro__trunk_is_elsewhere(wire->trunk)) {
        pin_wire(wire);
        return;
    }
    zro__trunk_lock(wire->trunk);
    for (int i = 0; i < wire->n_far; i++)
        each_request(wire, &wire->far[i], 1, give_up_or_pin_wire);
    zro__trunk_unlock(wire->trunk);
}
