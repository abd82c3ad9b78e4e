/* The messages of transfers with far ranks: see far_messages.h. */
#include "link/far_messages.h"

#include <string.h>

#include "base/point.h"

/* A pair of ranks has three queues: one per stream for what comes, and one for all that goes. */
enum { DEPTH = ZRO__CARRIER_DEPTH, OUT = ZRO__STREAMS, QUEUES, SHORT_BYTES = 4096 };

/* Messages that follow each other. */
typedef struct zro__far_queue {
    zro__word over; /* how many the link is done with, in order */
    uint64_t begun; /* how many it was given */
    uint64_t freed; /* how many need their memory no more: of those that came the transfer has read them, of those that went the
                       link has sent them */
    zro_link_request request[DEPTH];
    void *at[DEPTH];      /* where each lies */
    char buffered[DEPTH]; /* whether that is a buffer */
    void *next;           /* of those that go: the buffer of the next one, if it was asked for */
} queue;

/* Without messages there is nothing to wait for: these words have reached every target.  Never written. */
static queue none[QUEUES];

static zro__far_pair *pair_of(const zro__far_messages *d, int rank)
{
    return &d->pairs[~zro__slot_index(d->control, rank)];
}

static queue *queues_of(const zro__far_messages *d, int rank)
{
    return pair_of(d, rank)->queues != NULL ? pair_of(d, rank)->queues : none;
}

static zro_status no_memory(void)
{
    return zro__fail(ZRO_ERR_MEMORY, "out of memory: buffers for messages");
}

void zro__far_count_message(zro__counters *counters, size_t bytes)
{
    if (counters == NULL)
        return;
    zro__count(&counters->link_messages, 1);
    zro__count(&counters->link_bytes, bytes);
}

/* ---- under the lock ---- */

/* The queues of a pair, which gets them now if it has none; NULL if there is no memory for them. */
static queue *take_queues(zro__far_messages *d, zro__far_pair *pair)
{
    queue *q = pair->queues;

    if (q != NULL)
        return q;
    q = zro__buffers_take(&d->buffers, QUEUES * sizeof *q);
    if (q == NULL)
        return NULL;
    memset(q, 0, QUEUES * sizeof *q);
    for (int i = 0; i < QUEUES; i++)
        for (int k = 0; k < DEPTH; k++)
            q[i].request[k].state = ZRO_LINK_DONE;
    pair->queues = q;
    return q;
}

/* Gives the queues of a pair without messages back; takes NULL.  Nobody may wait for their words. */
static void drop_queues(zro__far_messages *d, zro__far_pair *pair)
{
    if (pair == NULL || pair->queues == NULL)
        return;
    for (const queue *q = pair->queues; q < pair->queues + QUEUES; q++)
        if (q->freed != q->begun || q->next != NULL)
            return;
    zro__buffers_give(&d->buffers, pair->queues);
    pair->queues = NULL;
}

/* Messages before `end` need their memory no more. */
static void free_until(zro__far_messages *d, queue *q, uint64_t end)
{
    for (; q->freed < end; q->freed++)
        if (q->buffered[q->freed % DEPTH])
            zro__buffers_give(&d->buffers, q->at[q->freed % DEPTH]);
}

/* The request of the queue's next message, which lies `at`. */
static zro_link_request *begin(queue *q, void *at, int buffered)
{
    int i = (int)(q->begun++ % DEPTH);

    q->at[i] = at;
    q->buffered[i] = (char)buffered;
    memset(&q->request[i], 0, sizeof q->request[i]);
    return &q->request[i];
}

static void collect(zro__far_pair *pair, queue *q)
{
    uint64_t n = atomic_load_explicit(&q->over.value, memory_order_relaxed), before = n;
    const zro_link_request *open;

    while (n < q->begun && zro__request_state(&q->request[n % DEPTH]) == ZRO_LINK_DONE)
        n++;
    open = &q->request[n % DEPTH];
    if (n < q->begun && zro__request_state(open) == ZRO_LINK_FAILED)
        pair->failure = open->text != NULL ? open->text : "";
    if (n > before)
        zro__post(&q->over, n);
}

void zro__far_messages_collect(zro__far_messages *d, int index)
{
    zro__far_pair *pair = &d->pairs[index];
    queue *q = pair->queues;

    if (q == NULL || zro__reached(&d->control->verdict, ZRO__BREAKING)) /* what comes after a verdict may be anything */
        return;
    for (int i = 0; i < QUEUES; i++)
        collect(pair, &q[i]);
    free_until(d, &q[OUT], atomic_load_explicit(&q[OUT].over.value, memory_order_relaxed));
}

static void post_send(zro__far_messages *d, zro__far_pair *pair, zro__stream stream, void *from, int buffered, size_t bytes)
{
    const zro_link *link = &d->program_link->link;
    queue *out = &pair->queues[OUT];

    free_until(d, out, atomic_load_explicit(&out->over.value, memory_order_relaxed)); /* before its entry is used again */
    link->send(link->self, pair->peer, d->channel + stream, from, bytes, ZRO_ON, begin(out, from, buffered));
    zro__far_count_message(d->counters, bytes);
}

/* ---- the carrier ---- */

static zro__word *buffer_word(void *self, int peer, uint64_t *target)
{
    queue *out = &queues_of(self, peer)[OUT];

    *target = out->begun < DEPTH ? 0 : out->begun - DEPTH + 1;
    return &out->over;
}

/* Asked at the end of a transfer, for one far rank after another.  Whoever waited for the last one does not any more. */
static zro__word *sent_word(void *self, int peer, uint64_t *target)
{
    zro__far_messages *d = self;
    zro__far_pair *pair = pair_of(d, peer);
    queue *out;

    if (pair->queues != NULL || d->asked != NULL) {
        zro__program_link_lock(d->program_link);
        drop_queues(d, d->asked);
        drop_queues(d, pair);
        d->asked = pair->queues != NULL ? pair : NULL;
        zro__program_link_unlock(d->program_link);
    }
    out = &queues_of(d, peer)[OUT];
    *target = out->begun;
    return &out->over;
}

static zro__word *recv_word(void *self, int peer, zro__stream stream, uint64_t *target)
{
    queue *in = &queues_of(self, peer)[stream];

    *target = in->freed + 1;
    return &in->over;
}

/* All who ask before one of them sends get the same buffer, because they send the same. */
static zro_status next_buffer(void *self, int peer, void **out)
{
    zro__far_messages *d = self;
    queue *q;

    zro__program_link_lock(d->program_link);
    q = take_queues(d, pair_of(d, peer));
    if (q != NULL && q[OUT].next == NULL && d->filling != NULL)
        zro__buffers_share(q[OUT].next = d->filling);
    else if (q != NULL && q[OUT].next == NULL)
        q[OUT].next = d->filling = zro__buffers_take(&d->buffers, d->chunk);
    *out = q != NULL ? q[OUT].next : NULL;
    zro__program_link_unlock(d->program_link);
    return *out != NULL ? ZRO_OK : no_memory();
}

static zro_status send_from(void *self, int peer, zro__stream stream, const void *from, size_t bytes)
{
    zro__far_messages *d = self;
    zro__far_pair *pair = pair_of(d, peer);
    int ok;

    (void)ZRO__POINT("far.send");
    zro__program_link_lock(d->program_link);
    ok = take_queues(d, pair) != NULL;
    if (ok)
        post_send(d, pair, stream, (void *)(uintptr_t)from, 0, bytes);
    zro__program_link_unlock(d->program_link);
    return ok ? ZRO_OK : no_memory();
}

/* A short message that goes to one rank alone does not keep a long buffer until it is gone. */
static void *shorten(zro__far_messages *d, void *buffer, size_t bytes)
{
    void *copy = bytes > SHORT_BYTES || zro__buffer_users(buffer) > 1 ? NULL : zro__buffers_take(&d->buffers, bytes);

    if (copy == NULL)
        return buffer;
    memcpy(copy, buffer, bytes);
    zro__buffers_give(&d->buffers, buffer);
    return copy;
}

static void send_message(void *self, int peer, zro__stream stream, size_t bytes)
{
    zro__far_messages *d = self;
    zro__far_pair *pair = pair_of(d, peer);
    void *buffer = pair->queues[OUT].next;

    (void)ZRO__POINT("far.send");
    zro__program_link_lock(d->program_link);
    if (buffer == d->filling)
        d->filling = NULL;
    pair->queues[OUT].next = NULL;
    post_send(d, pair, stream, shorten(d, buffer, bytes), 1, bytes);
    zro__program_link_unlock(d->program_link);
}

static zro_status expect(void *self, int peer, zro__stream stream, void *into, size_t bytes)
{
    zro__far_messages *d = self;
    const zro_link *link = &d->program_link->link;
    zro__far_pair *pair = pair_of(d, peer);
    int buffered = into == NULL || !d->into_arrays, ok;

    zro__program_link_lock(d->program_link);
    ok = take_queues(d, pair) != NULL;
    if (ok && buffered) {
        bytes = bytes < d->chunk ? bytes + 1 : d->chunk; /* so that what is too long is seen to be */
        into = zro__buffers_take(&d->buffers, bytes);
        ok = into != NULL;
    }
    if (ok)
        link->recv(link->self, pair->peer, d->channel + stream, into, bytes, begin(&pair->queues[stream], into, buffered));
    zro__program_link_unlock(d->program_link);
    return ok ? ZRO_OK : no_memory();
}

static zro_status recv_message(void *self, int peer, zro__stream stream, const void **out, size_t *bytes)
{
    const queue *in = &queues_of(self, peer)[stream];

    *out = in->at[in->freed % DEPTH];
    *bytes = in->request[in->freed % DEPTH].bytes;
    return ZRO_OK;
}

static void release_message(void *self, int peer, zro__stream stream)
{
    zro__far_messages *d = self;
    zro__far_pair *pair = pair_of(d, peer);
    queue *in = &pair->queues[stream];

    zro__program_link_lock(d->program_link);
    free_until(d, in, in->freed + 1);
    drop_queues(d, pair);
    zro__program_link_unlock(d->program_link);
}

/* ---- the end ---- */

/* Gives up what is open.  Arrays of group memory that the link still uses stay mapped, buffers stay taken; returns whether there
 * are such. */
static int give_up_pair(zro__far_messages *d, zro__far_pair *pair)
{
    int kept = 0;

    for (queue *q = pair->queues; q != NULL && q < pair->queues + QUEUES; q++)
        for (int i = 0; i < DEPTH; i++) {
            if (zro__request_settle(&d->program_link->link, &q->request[i]))
                continue;
            kept = 1;
            if (!q->buffered[i])
                zro__pin(d->view, q->at[i]);
        }
    return kept;
}

void zro__far_messages_give_up(zro__far_messages *d)
{
    for (int i = 0; i < d->n; i++)
        (void)give_up_pair(d, &d->pairs[i]);
}

int zro__far_messages_uses_arrays(const zro__far_messages *d)
{
    int uses = 0;

    for (const zro__far_pair *pair = d->pairs; pair < d->pairs + d->n; pair++)
        for (const queue *q = pair->queues; q != NULL && q < pair->queues + QUEUES; q++)
            for (int i = 0; i < DEPTH; i++)
                uses |= !q->buffered[i] && zro__request_is_open(&q->request[i]);
    return uses;
}

void zro__far_messages_close(zro__far_messages *d)
{
    for (zro__far_pair *pair = d->pairs; pair < d->pairs + d->n; pair++) {
        if (give_up_pair(d, pair))
            continue;
        for (queue *q = pair->queues; q != NULL && q < pair->queues + QUEUES; q++) {
            free_until(d, q, q->begun);
            if (q->next != NULL)
                zro__buffers_give(&d->buffers, q->next);
            q->next = NULL;
        }
        drop_queues(d, pair);
    }
    zro__buffers_close(&d->buffers);
}

void zro__far_messages_open(zro__far_messages *d, zro__carrier *carrier)
{
    *carrier = (zro__carrier){ .self = d,
                               .chunk = d->chunk,
                               .buffer = next_buffer,
                               .send = send_message,
                               .recv = recv_message,
                               .release = release_message,
                               .buffer_word = buffer_word,
                               .recv_word = recv_word,
                               .expect = expect,
                               .send_from = send_from,
                               .sent_word = sent_word };
}
