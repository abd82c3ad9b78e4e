/* Far ranks: see far_ranks.h.
 *
 * Mirrors.  Whoever arrives sends its header and payload to all far ranks; this rank's poll writes them into the sender's mirror
 * and posts its words, so that the board waits for far ranks and reads them as it does near ones.  The argument at the head of
 * board/slot.c, that two payloads suffice, holds for mirrors too: a far rank sends its arrival at k + 2 only after it got ours at
 * k + 1.
 *
 * Channels.  Each pair of ranks has the group's four channels: control, bodies, and the two of data (far_messages.c).
 *
 * A control message (an arrival, a notice, a verdict, leaving) is a head and a body.  A short body travels with its head; a longer
 * one follows on the channel of bodies, for which the receiver posts a receive when it has seen the head.  So the receive that is
 * always posted for each far rank needs little memory.  How long a short body may be follows from the size of the group: in
 * small groups everything is short.  Control messages are few and bounded by the protocol, so they need not be held.
 *
 * Memory.  Long bodies, notices and copies of error texts are on the heap, and counted in the control block for all near ranks together,
 * not in the rank's account: how much there is depends on how fast peers are.
 *
 * Everything that the link may write, and everything that is derived from it, is touched under the link's lock; only words are
 * read without it.  Polling only tries the lock, and stands back when somebody wants to send.
 *
 * If the link cannot cancel a request, its memory is never freed: the region that the far rank lies in, or a body. */
#include "link/far_ranks.h"

#include <stdio.h>
#include <string.h>

#include "base/point.h"
#include "link/far_messages.h"

enum { CONTROL, BODIES, PIECES /* and results */, LAST_POLLS = 64, VERDICT_NAPS = 100 };

enum { SHORT_MIN = 64, SHORT_BUDGET = 1 << 22 };

enum { KIND_ARRIVAL = 0x7a726f01, KIND_NOTICE, KIND_VERDICT, KIND_LEFT };

/* The head of a control message.  Its body has `bytes`, and lies behind it, or travels on the channel of bodies. */
typedef struct message {
    uint32_t kind, bytes;
    zro__header header; /* of an arrival; elsewhere root is a status, of a notice tag is the key and count the number, and of a
                          verdict count is the culprit */
} message;

/* A long body that has come, or will. */
typedef struct body {
    size_t bytes;
    _Alignas(64) char data[];
} body;

/* A message with a text. */
typedef struct letter {
    message head;
    char text[ZRO__TEXT_BYTES];
} letter;

_Static_assert((int)ZRO__TEXT_BYTES <= (int)ZRO__PAYLOAD_BYTES, "a text is a body");

/* A control message on its way: its head, or all of it, and its body if that is long. */
typedef struct parcel {
    zro_link_request head, body;
} parcel;

static const parcel done = { { .state = ZRO_LINK_DONE }, { .state = ZRO_LINK_DONE } };

/* A notice on its way to one far rank. */
typedef struct notice {
    struct notice *next;
    parcel parcel;
    letter letter;
} notice;

typedef struct far_rank {
    zro__mirror mirror;
    zro__far_pair *pair; /* what it has for data, and its rank in the first group */
    parcel incoming;     /* the control message that is expected next; its long body, while `long_body` is not NULL */
    body *long_body;
    body *long_payload[2]; /* of the last two arrivals, where they were long and may still be read */
    parcel arrival;        /* this rank's last arrival, on its way to it */
    parcel last;           /* the verdict, or that this rank has left */
    notice *notices;       /* the last one, and those before it that are still on their way */
    char *why;             /* a copy of the link's text, which may not last, if it has failed */
} far_rank;

struct zro__far {
    zro__far_config config;
    const zro_link *link; /* the functions of config.program_link, called under its lock */
    zro__far_table table;
    zro__far_messages data;
    uint64_t channel;    /* the first of the group's */
    uint64_t last_head;  /* number of the last arrival that was sent */
    message *arrival;    /* that one, with a short body */
    letter verdict;      /* or left */
    char *inboxes;       /* per far rank: a message with a short body, then two short payloads */
    size_t inbox_stride; /* from one far rank's to the next */
    int n_far;
    int tried_cancel;              /* whether the link was asked to cancel a receive */
    far_rank *cancelled_for;       /* whose receive that was, while the link may still do so; or NULL */
    _Alignas(64) far_rank ranks[]; /* n_far; then as many pairs; then this rank's arrival; then the inboxes */
};

/* ---- layout ---- */

/* Every rank of the group computes the same.  The square keeps what all pairs of a large group need together within bounds. */
static size_t short_bytes(int size)
{
    size_t bytes = SHORT_BUDGET / ((size_t)size * (size_t)size) & ~(size_t)7;

    return bytes < SHORT_MIN ? SHORT_MIN : bytes > ZRO__PAYLOAD_BYTES ? ZRO__PAYLOAD_BYTES : bytes;
}

static size_t message_bytes(int size)
{
    return (sizeof(message) + short_bytes(size) + 7) & ~(size_t)7;
}

static size_t inbox_bytes(int size)
{
    return message_bytes(size) + 2 * short_bytes(size);
}

static size_t arrival_offset(int n_far)
{
    return sizeof(zro__far) + (size_t)n_far * (sizeof(far_rank) + sizeof(zro__far_pair));
}

size_t zro__far_bytes(int size, int n_far)
{
    return n_far == 0 ? 0 : arrival_offset(n_far) + message_bytes(size) + (size_t)n_far * inbox_bytes(size);
}

static char *body_of(message *m)
{
    return (char *)(m + 1);
}

static message *inbox_of(const zro__far *far, const far_rank *f)
{
    return (message *)(void *)(far->inboxes + (size_t)(f - far->ranks) * far->inbox_stride);
}

/* ---- under the lock ---- */

/* Memory on the heap, NULL if there is none. */
static void *take(zro__far *far, size_t bytes)
{
    void *memory = zro__alloc(NULL, ZRO__KIND_HANDLE, bytes);

    if (memory != NULL)
        atomic_fetch_add_explicit(&far->config.control->buffer_bytes, bytes, memory_order_relaxed);
    return memory;
}

/* Takes NULL. */
static void give_back(zro__far *far, void *memory, size_t bytes)
{
    if (memory == NULL)
        return;
    atomic_fetch_sub_explicit(&far->config.control->buffer_bytes, bytes, memory_order_relaxed);
    zro__free(memory);
}

/* Takes NULL. */
static void drop_body(zro__far *far, body *b)
{
    if (b != NULL)
        give_back(far, b, sizeof *b + b->bytes);
}

/* Nothing comes from this rank any more; returns 0. */
static int fail(zro__far *far, far_rank *f, const char *why)
{
    if (f->mirror.failure != NULL)
        return 0;
    f->mirror.failure = "its link failed";
    f->why = why == NULL || *why == '\0' ? NULL : take(far, ZRO__TEXT_BYTES);
    if (f->why != NULL) {
        snprintf(f->why, ZRO__TEXT_BYTES, "%s", why);
        f->mirror.failure = f->why;
    }
    return 0;
}

/* Whether a request has ended well.  If it failed, so has the link to that rank. */
static int is_done(zro__far *far, far_rank *f, const zro_link_request *request)
{
    const zro_link_state state = zro__request_state(request);

    return state == ZRO_LINK_FAILED ? fail(far, f, request->text) : state == ZRO_LINK_DONE;
}

static void post_receive(zro__far *far, far_rank *f)
{
    if (f == far->cancelled_for)
        far->cancelled_for = NULL;
    f->incoming = (parcel){ .body.state = ZRO_LINK_DONE };
    far->link->recv(far->link->self, f->pair->peer, far->channel + CONTROL, inbox_of(far, f),
                    sizeof(message) + far->table.short_bytes, &f->incoming.head);
    if (far->tried_cancel || !zro__request_is_open(&f->incoming.head))
        return;
    /* The first receive that finds no message shows whether the link can cancel one.  If it cannot, it has what it needs. */
    far->link->cancel(far->link->self, &f->incoming.head);
    far->tried_cancel = zro__request_state(&f->incoming.head) != ZRO_LINK_DONE;
    far->cancelled_for = far->tried_cancel ? f : NULL;
}

/* `data` is the body: it lies behind the head, or, if it is longer than `most`, anywhere. */
static void post_parcel(const zro_link *link, int peer, uint64_t channel, size_t most, const message *m, const void *data,
                        parcel *p)
{
    int is_long = m->bytes > most;

    *p = (parcel){ .body.state = is_long ? ZRO_LINK_OPEN : ZRO_LINK_DONE };
    link->send(link->self, peer, channel + CONTROL, m, sizeof *m + (is_long ? 0 : m->bytes), ZRO_OFF, &p->head);
    if (is_long)
        link->send(link->self, peer, channel + BODIES, data, m->bytes, ZRO_OFF, &p->body);
}

static void send_parcel(zro__far *far, far_rank *f, const message *m, const void *data, parcel *p)
{
    post_parcel(far->link, f->pair->peer, far->channel, far->table.short_bytes, m, data, p);
    zro__far_count_message(far->data.counters, sizeof *m + m->bytes);
}

static void write_letter(letter *l, uint32_t kind, zro_status code, uint64_t tag, uint64_t count, const char *text)
{
    const size_t bytes = strnlen(text, sizeof l->text - 1) + 1;

    l->head = (message){ kind, (uint32_t)bytes, { .root = (int32_t)code, .tag = tag, .count = count } };
    snprintf(l->text, sizeof l->text, "%s", text);
}

/* ---- what has come ---- */

static void take_arrival(zro__far *far, far_rank *f, const message *m, const void *payload)
{
    uint64_t number = zro__arrived(f->mirror.arrived) + 1;
    char *short_payload = (char *)inbox_of(far, f) + far->inbox_stride - (2 - number % 2) * far->table.short_bytes;

    if (m->header.number != number) {
        fail(far, f, "it sent an arrival out of turn");
        return;
    }
    f->mirror.payload[number % 2] = f->long_body != NULL ? payload : memcpy(short_payload, payload, m->bytes);
    f->long_payload[number % 2] = f->long_body;
    f->long_body = NULL;
    zro__post(zro__arrival_write(f->mirror.arrived, &m->header), number);
}

static void take_notice(zro__far *far, far_rank *f, const message *m, const char *text)
{
    uint64_t number = atomic_load_explicit(&f->mirror.noticed.value, memory_order_relaxed) + 1;
    zro__notice *n;

    if (f->mirror.notices == NULL)
        f->mirror.notices = take(far, ZRO__NOTICES * sizeof *f->mirror.notices);
    if (f->mirror.notices == NULL) {
        fail(far, f, "out of memory: a notice from it");
        return;
    }
    n = &f->mirror.notices[number % ZRO__NOTICES];
    atomic_store(&n->key, m->header.tag);
    atomic_store(&n->channel, m->header.count);
    atomic_store(&n->code, m->header.root);
    snprintf(n->text, sizeof n->text, "%s", text);
    atomic_store(&n->number, number);
    zro__post(&f->mirror.noticed, number);
}

static void take_message(zro__far *far, far_rank *f, const message *m, const char *data)
{
    if (m->kind == KIND_ARRIVAL)
        take_arrival(far, f, m, data);
    else if (m->kind == KIND_NOTICE)
        take_notice(far, f, m, data);
    else if (m->kind == KIND_VERDICT)
        zro__control_break(far->config.control, (zro_status)m->header.root, (int)(int64_t)m->header.count, data);
    else if (m->kind == KIND_LEFT)
        atomic_store_explicit(&f->mirror.left, 1, memory_order_release); /* pairs with the acquire in zro__has_left */
    else
        fail(far, f, "it sent a message of unknown kind");
}

/* Whether the long body of a message has come.  The first time its receive is posted. */
static int has_body(zro__far *far, far_rank *f, const message *m)
{
    if (f->long_body == NULL) {
        f->long_body = take(far, sizeof(body) + m->bytes);
        if (f->long_body == NULL)
            return fail(far, f, "out of memory: a message from it");
        f->long_body->bytes = m->bytes;
        f->incoming.body = (zro_link_request){ .state = ZRO_LINK_OPEN };
        far->link->recv(far->link->self, f->pair->peer, far->channel + BODIES, f->long_body->data, m->bytes, &f->incoming.body);
    }
    if (!is_done(far, f, &f->incoming.body))
        return 0;
    return f->incoming.body.bytes == m->bytes ? 1 : fail(far, f, "it sent a message without its end");
}

/* Whether a control message has come as a whole: its body is *data then. */
static int has_message(zro__far *far, far_rank *f, message *m, const char **data)
{
    const size_t most = far->table.short_bytes;
    size_t bytes;

    if (f == far->cancelled_for && zro__request_state(&f->incoming.head) == ZRO_LINK_FAILED) {
        /* The link has cancelled the receive, at once or later.  If it failed for another reason, so will the next one. */
        far->data.into_arrays = 1;
        post_receive(far, f);
    }
    if (f->mirror.failure != NULL || !is_done(far, f, &f->incoming.head))
        return 0;
    bytes = f->incoming.head.bytes;
    if (bytes < sizeof *m || m->bytes > ZRO__PAYLOAD_BYTES || bytes != sizeof *m + (m->bytes > most ? 0 : m->bytes))
        return fail(far, f, "it sent what is no message of this library");
    if (m->bytes > most && !has_body(far, f, m))
        return 0;
    *data = m->bytes > most ? f->long_body->data : body_of(m);
    /* Texts must end, whatever was sent; payloads of arrivals are not texts. */
    if (m->kind != KIND_ARRIVAL && (m->bytes == 0 || (*data)[m->bytes - 1] != '\0'))
        return fail(far, f, "it sent what is no message of this library");
    return 1;
}

static void collect_control(zro__far *far, far_rank *f)
{
    message *m = inbox_of(far, f);
    const char *data;

    while (has_message(far, f, m, &data)) {
        take_message(far, f, m, data);
        drop_body(far, f->long_body); /* unless an arrival has kept it */
        f->long_body = NULL;
        if (f->mirror.failure == NULL)
            post_receive(far, f);
    }
}

static void poll_all(void *self)
{
    zro__far *far = self;
    zro__program_link *link = far->config.program_link;
    int told = 1;

    if (zro__program_link_is_elsewhere(link)) /* texts of another group look here, too (board/blame.c) */
        return;
    if (atomic_load_explicit(&link->want, memory_order_relaxed) > 0 || pthread_mutex_trylock(&link->lock) != 0)
        return;
    far->link->poll(far->link->self);
    for (int i = 0; i < far->n_far; i++) {
        far_rank *f = &far->ranks[i];
        int has_head;

        collect_control(far, f);
        zro__far_messages_collect(&far->data, i);
        if (f->pair->failure != NULL)
            fail(far, f, f->pair->failure);
        /* This rank's last arrival has gone to it when head and body have.  Both are asked: either may show that the link failed. */
        has_head = is_done(far, f, &f->arrival.head);
        if (is_done(far, f, &f->arrival.body) && has_head)
            f->mirror.told = far->last_head;
        told &= f->mirror.told == far->last_head;
    }
    if (told && !zro__reached(&far->table.told, far->last_head))
        zro__post(&far->table.told, far->last_head);
    zro__program_link_unlock(link);
}

/* ---- telling far ranks ---- */

static zro__mirror *mirror(void *self, int index)
{
    zro__far *far = self;

    return &far->ranks[index].mirror;
}

zro__far_table *zro__far_board(zro__far *far)
{
    return &far->table;
}

void zro__far_count(zro__far *far, zro__counters *counters)
{
    far->data.counters = counters;
}

/* A long payload is sent from where it lies: it stays there until this rank's arrival has gone to all. */
static void send_arrival(void *self, const zro__header *header, const void *payload, size_t bytes)
{
    zro__far *far = self;
    message *m = far->arrival;

    m->kind = KIND_ARRIVAL;
    m->bytes = (uint32_t)bytes;
    m->header = *header;
    if (bytes <= far->table.short_bytes)
        memcpy(body_of(m), payload, bytes);
    (void)ZRO__POINT("far.arrival");
    zro__program_link_lock(far->config.program_link);
    far->last_head = header->number;
    for (int i = 0; i < far->n_far; i++) {
        body **old = &far->ranks[i].long_payload[(header->number - 1) % 2]; /* of the last operation, which is over */

        drop_body(far, *old);
        *old = NULL;
        if (far->ranks[i].mirror.failure == NULL)
            send_parcel(far, &far->ranks[i], m, payload, &far->ranks[i].arrival);
    }
    zro__program_link_unlock(far->config.program_link);
}

/* Whether it is still on its way. */
static int is_open(const parcel *p)
{
    return zro__request_is_open(&p->head) || zro__request_is_open(&p->body);
}

/* Whether one of n parcels is, of which each is `stride` bytes behind the one before it. */
static int any_is_open(const parcel *first, size_t stride, int n)
{
    int open = 0;

    for (int i = 0; i < n; i++)
        open |= is_open((const void *)((const char *)first + (size_t)i * stride));
    return open;
}

/* Polls until none of them is, a few times at once and then once in each of `naps` milliseconds. */
static void poll_until_gone(const zro_link *link, const parcel *first, size_t stride, int n, int naps)
{
    for (int tries = 0; any_is_open(first, stride, n) && tries < LAST_POLLS + naps; tries++) {
        link->poll(link->self);
        if (tries >= LAST_POLLS)
            zro__nap();
    }
}

/* The last thing that this rank says to the group, after which it may not come here any more: so the link gets a few chances to
 * be done with it.  It is said to ranks with a failed link, too: perhaps only what came from there was wrong.  Who has sent a verdict
 * need not say that it leaves. */
static void tell_all(zro__far *far, uint32_t kind, zro_status code, int culprit, const char *text, int naps)
{
    zro__program_link *link = far->config.program_link;

    if (zro__program_link_is_elsewhere(link))
        return;
    zro__program_link_lock(link);
    if (far->verdict.head.kind == 0) {
        write_letter(&far->verdict, kind, code, 0, (uint64_t)(int64_t)culprit, text);
        for (int i = 0; i < far->n_far; i++)
            send_parcel(far, &far->ranks[i], &far->verdict.head, far->verdict.text, &far->ranks[i].last);
    }
    poll_until_gone(far->link, &far->ranks[0].last, sizeof *far->ranks, far->n_far, naps);
    zro__program_link_unlock(link);
}

/* Others wait for what this rank will not do any more, and must hear why before they find it gone. */
static void send_verdict(void *self, zro_status code, int culprit, const char *text)
{
    tell_all(self, KIND_VERDICT, code, culprit, text, VERDICT_NAPS);
}

/* A send from an array of the program that cannot be cancelled may be received when the program has written there again.  So
 * its receiver must hear before that the group is broken, and from this rank: another one's verdict might come later. */
static void abandon(void *self)
{
    zro__far_messages *data = self;
    zro__far *far = (zro__far *)(void *)((char *)data - offsetof(zro__far, data));
    zro__program_link *link = far->config.program_link;
    const zro__control *control = far->config.control;

    if (zro__program_link_is_elsewhere(link))
        return;
    zro__program_link_lock(link);
    zro__far_messages_give_up(data);
    for (int tries = 0; zro__far_messages_uses_arrays(data) && tries < LAST_POLLS; tries++)
        far->link->poll(far->link->self);
    zro__program_link_unlock(link);
    if (!zro__far_messages_uses_arrays(data))
        return;
    if (zro__reached(&control->verdict, ZRO__BROKEN))
        tell_all(far, KIND_VERDICT, (zro_status)control->code, control->culprit, control->text, 0);
    else /* whoever found out has not said why, and never may */
        tell_all(far, KIND_VERDICT, ZRO_ERR_LOST, -1, zro_last_error(), 0);
}

void zro__far_leave(zro__far *far)
{
    tell_all(far, KIND_LEFT, ZRO_OK, -1, "", 0);
}

/* Gives up what is open; 1 if the link uses it no more. */
static int settle(const zro_link *link, parcel *p)
{
    return zro__request_settle(link, &p->head) & zro__request_settle(link, &p->body);
}

/* Frees the notices that have gone; with `give_up`, all that the link uses no more then. */
static void drop_notices(zro__far *far, far_rank *f, int give_up)
{
    for (notice **at = &f->notices; *at != NULL;) {
        notice *n = *at;

        if (give_up ? !settle(far->link, &n->parcel) : is_open(&n->parcel)) {
            at = &n->next;
            continue;
        }
        *at = n->next;
        give_back(far, n, sizeof *n);
    }
}

/* The last notice was read when its group was made; after a group that was given up it may still be on its way.  It is not called
 * back: its head may have gone, and then its body must follow. */
void zro__far_notice(zro__far *far, int index, uint64_t key, uint64_t number, zro_status code, const char *text)
{
    far_rank *f = &far->ranks[index];
    notice *n;

    zro__program_link_lock(far->config.program_link);
    drop_notices(far, f, 0);
    n = take(far, sizeof *n);
    if (n != NULL) {
        write_letter(&n->letter, KIND_NOTICE, code, key, number, text);
        n->parcel = done;
        n->next = f->notices;
        f->notices = n;
        if (f->mirror.failure == NULL)
            send_parcel(far, f, &n->letter.head, n->letter.text, &n->parcel);
        if (code != ZRO_OK)
            poll_until_gone(far->link, &n->parcel, sizeof n->parcel, 1, VERDICT_NAPS);
    } else {
        fail(far, f, "out of memory: a notice to it");
    }
    zro__program_link_unlock(far->config.program_link);
}

/* What is needed to tell others of a group that this rank has no region for. */
typedef struct refusal {
    letter letter;
    parcel parcels[];
} refusal;

void zro__far_refuse(zro__program_link *program_link, uint64_t number, int size, int32_t (*far_label)(void *, int), void *user,
                     int mine, zro_status code)
{
    const zro_link *link = &program_link->link;
    refusal *r = zro__alloc(NULL, ZRO__KIND_HANDLE, sizeof *r + (size_t)size * sizeof *r->parcels);
    char text[ZRO__TEXT_BYTES];

    if (r == NULL)
        return;
    snprintf(text, sizeof text, "rank %d: %s: %.900s", mine, zro_status_name(code), zro_last_error());
    write_letter(&r->letter, KIND_VERDICT, ZRO_ERR_PEER, 0, (uint64_t)mine, text);
    zro__program_link_lock(program_link);
    for (int i = 0; i < size; i++) {
        r->parcels[i] = done;
        if (far_label(user, i) >= 0)
            post_parcel(link, far_label(user, i), number * ZRO__CHANNELS, short_bytes(size), &r->letter.head, r->letter.text,
                        &r->parcels[i]);
    }
    poll_until_gone(link, r->parcels, sizeof *r->parcels, size, VERDICT_NAPS);
    for (int i = 0; i < size; i++)
        (void)settle(link, &r->parcels[i]);
    if (!any_is_open(r->parcels, sizeof *r->parcels, size)) /* else the link has it for good */
        zro__free(r);
    zro__program_link_unlock(program_link);
}

/* ---- the beginning and the end ---- */

zro__far *zro__far_open(void *memory, const zro__far_config *config, zro__carrier *carrier)
{
    const zro__control *control = config->control;
    zro__far *far = memory;

    far->config = *config;
    far->link = &config->program_link->link;
    far->channel = config->number * ZRO__CHANNELS;
    for (int r = 0; r < control->size; r++)
        far->n_far += zro__slot_index(control, r) < 0;
    far->arrival = (message *)(void *)((char *)memory + arrival_offset(far->n_far));
    far->inboxes = (char *)far->arrival + message_bytes(control->size);
    far->inbox_stride = inbox_bytes(control->size);
    far->data = (zro__far_messages){ .program_link = config->program_link,
                                     .view = config->view,
                                     .control = config->control,
                                     .channel = far->channel + PIECES,
                                     .chunk = config->chunk,
                                     .buffers = { .most_idle = zro__buffers_most_idle(control->size),
                                                  .counter = &config->control->buffer_bytes },
                                     .pairs = (zro__far_pair *)(void *)&far->ranks[far->n_far],
                                     .n = far->n_far };
    zro__far_messages_open(&far->data, carrier);
    carrier->abandon = abandon;
    far->table.poller = (zro__poller){ poll_all, far, ZRO__NAP_US };
    far->table.short_bytes = short_bytes(control->size);
    far->table.mirror = mirror;
    far->table.send_arrival = send_arrival;
    far->table.send_verdict = send_verdict;
    zro__program_link_lock(config->program_link);
    for (int r = 0, i = 0; r < control->size; r++)
        if (zro__slot_index(control, r) < 0) {
            far->ranks[i].pair = &far->data.pairs[i];
            far->ranks[i].pair->peer = control->member[r];
            far->ranks[i].arrival = far->ranks[i].last = done;
            post_receive(far, &far->ranks[i++]);
        }
    zro__program_link_unlock(config->program_link);
    return far;
}

/* Frees what a far rank has on the heap; returns whether the link still uses some of what is in the region. */
static int close_rank(zro__far *far, far_rank *f)
{
    int settled = settle(far->link, &f->incoming) & settle(far->link, &f->arrival) & settle(far->link, &f->last);

    drop_notices(far, f, 1);
    if (!zro__request_is_open(&f->incoming.body))
        drop_body(far, f->long_body);
    drop_body(far, f->long_payload[0]);
    drop_body(far, f->long_payload[1]);
    give_back(far, f->mirror.notices, ZRO__NOTICES * sizeof *f->mirror.notices);
    give_back(far, f->why, ZRO__TEXT_BYTES);
    return !settled;
}

void zro__far_close(zro__far *far)
{
    int open = zro__program_link_is_elsewhere(far->config.program_link); /* then nothing can be cancelled */

    if (!open) {
        zro__program_link_lock(far->config.program_link);
        for (int i = 0; i < far->n_far; i++)
            open |= close_rank(far, &far->ranks[i]);
        zro__far_messages_close(&far->data);
        zro__program_link_unlock(far->config.program_link);
    }
    if (open) { /* the region must stay, in this process and in the file */
        atomic_store(&far->config.control->pinned, 1);
        zro__pin(far->config.view, far);
    }
}
