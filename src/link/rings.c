/* Rings in shared memory.
 *
 * Each ordered pair of near ranks has a ring of ZRO__CARRIER_DEPTH buffers.  The sender fills the buffer of message m (m % DEPTH)
 * and releases head = m + 1; the receiver reads it where it lies and releases tail = m + 1, which gives the buffer back.  So head
 * is written by the sender alone, tail by the receiver alone, and a buffer by the sender while head - tail < DEPTH.  A rank that
 * dies leaves its ring as it is: complete messages can still be read, an incomplete one was never announced.
 *
 * The heads and tails of all pairs lie in the group's region.  The buffers do not: most groups never send a message between near
 * ranks.  A rank takes the buffers of all its rings, its outbox, when it first sends, and notes the offset of that region beside
 * the rings before it releases a head; a receiver maps it when it finds the first message.  The last rank that leaves the group
 * gives all outboxes back. */
#include "link/rings.h"

#include "base/point.h"

enum { OUTBOX_BYTES = 2 << 20, CHUNK_MAX = 256 << 10, CHUNK_MIN = 8 << 10 };

typedef struct ring {
    zro__word head, tail;
    _Alignas(64) uint64_t bytes[ZRO__CARRIER_DEPTH]; /* lengths of the messages in the buffers */
} ring;

/* At the start of the memory, one per near rank; then the rings, by sender and receiver. */
typedef struct outbox {
    _Alignas(64) _Atomic uint64_t offset; /* of its region; 0: not taken yet */
} outbox;

/* What a rank sends must stay in its cache whatever the number of peers, so the messages shrink as peers become more. */
size_t zro__rings_chunk(int size)
{
    size_t chunk = CHUNK_MAX;

    while (chunk > CHUNK_MIN && chunk * ZRO__CARRIER_DEPTH * (size_t)(size - 1) > OUTBOX_BYTES)
        chunk /= 2;
    return chunk;
}

size_t zro__rings_bytes(int n)
{
    return (size_t)n * (sizeof(outbox) + (size_t)(n - 1) * sizeof(ring));
}

static size_t outbox_bytes(int n, size_t chunk)
{
    return (size_t)(n - 1) * ZRO__CARRIER_DEPTH * chunk;
}

static outbox *outbox_of(void *memory, int index)
{
    return (outbox *)memory + index;
}

/* Which of the n - 1 rings that begin, or end, at slot `one` leads to slot `other`. */
static size_t ring_number(int one, int other)
{
    return (size_t)(other - (other > one));
}

static ring *ring_between(const zro__rings *rings, int from, int to)
{
    ring *first = (ring *)(void *)(rings->memory + (size_t)rings->n * sizeof(outbox));

    return &first[(size_t)from * (size_t)(rings->n - 1) + ring_number(from, to)];
}

static ring *ring_to(const zro__rings *rings, int peer)
{
    return ring_between(rings, rings->index, zro__slot_index(rings->control, peer));
}

static ring *ring_from(const zro__rings *rings, int peer)
{
    return ring_between(rings, zro__slot_index(rings->control, peer), rings->index);
}

/* The buffer of a message between two slots, whose sender's outbox is mapped. */
static char *buffer_of(const zro__rings *rings, int from, int to, uint64_t message)
{
    return rings->outboxes[from].base
           + (ring_number(from, to) * ZRO__CARRIER_DEPTH + message % ZRO__CARRIER_DEPTH) * rings->chunk;
}

static zro_status map_outbox(zro__rings *rings, int index, uint64_t offset)
{
    if (rings->outboxes[index].base != NULL)
        return ZRO_OK;
    return zro__map_region(rings->view, offset, outbox_bytes(rings->n, rings->chunk), &rings->outboxes[index]);
}

static zro_status take_outbox(zro__rings *rings)
{
    size_t bytes = outbox_bytes(rings->n, rings->chunk);
    uint64_t offset = atomic_load_explicit(&outbox_of(rings->memory, rings->index)->offset, memory_order_relaxed);
    zro_status st;

    if (offset == 0) {
        st = zro__region_take(rings->view, bytes, 1, "buffers for messages", &offset);
        if (st != ZRO_OK)
            return st;
        /* released by the first post of a head */
        atomic_store_explicit(&outbox_of(rings->memory, rings->index)->offset, offset, memory_order_relaxed);
        atomic_fetch_add_explicit(&rings->control->buffer_bytes, bytes, memory_order_relaxed);
    }
    return map_outbox(rings, rings->index, offset);
}

static zro__word *buffer_word(void *self, int peer, uint64_t *target)
{
    zro__rings *rings = self;

    *target = rings->sent[peer] < ZRO__CARRIER_DEPTH ? 0 : rings->sent[peer] - ZRO__CARRIER_DEPTH + 1;
    return &ring_to(rings, peer)->tail;
}

/* Pieces and results are one order here: the schedule makes them alternate alike on both sides. */
static zro__word *recv_word(void *self, int peer, zro__stream stream, uint64_t *target)
{
    zro__rings *rings = self;

    (void)stream;
    *target = rings->received[peer] + 1;
    return &ring_from(rings, peer)->head;
}

static zro_status next_buffer(void *self, int peer, void **out)
{
    zro__rings *rings = self;
    zro_status st = rings->outboxes[rings->index].base != NULL ? ZRO_OK : take_outbox(rings);

    if (st == ZRO_OK)
        *out = buffer_of(rings, rings->index, zro__slot_index(rings->control, peer), rings->sent[peer]);
    return st;
}

static void send_message(void *self, int peer, zro__stream stream, size_t bytes)
{
    zro__rings *rings = self;
    ring *r = ring_to(rings, peer);

    (void)stream;
    (void)ZRO__POINT("ring.send");
    r->bytes[rings->sent[peer] % ZRO__CARRIER_DEPTH] = bytes;
    zro__post(&r->head, ++rings->sent[peer]);
}

static zro_status recv_message(void *self, int peer, zro__stream stream, const void **out, size_t *bytes)
{
    zro__rings *rings = self;
    uint64_t message = rings->received[peer];
    int from = zro__slot_index(rings->control, peer);
    zro_status st =
        map_outbox(rings, from, atomic_load_explicit(&outbox_of(rings->memory, from)->offset, memory_order_relaxed));

    (void)stream;
    if (st != ZRO_OK)
        return st;
    *bytes = ring_from(rings, peer)->bytes[message % ZRO__CARRIER_DEPTH];
    *out = buffer_of(rings, from, rings->index, message);
    return ZRO_OK;
}

static void release_message(void *self, int peer, zro__stream stream)
{
    zro__rings *rings = self;

    (void)stream;
    (void)ZRO__POINT("ring.release");
    zro__post(&ring_from(rings, peer)->tail, ++rings->received[peer]);
}

void zro__rings_list(zro__rings *rings, int size, zro__array *out)
{
    out[0] = (zro__array){ &rings->sent, (size_t)size, sizeof *rings->sent };
    out[1] = (zro__array){ &rings->received, (size_t)size, sizeof *rings->received };
    out[2] = (zro__array){ &rings->outboxes, (size_t)size, sizeof *rings->outboxes };
}

void zro__rings_init(zro__rings *rings, void *memory, zro__control *control, zro__view *view, int rank, int n, size_t chunk,
                     zro__carrier *carrier)
{
    rings->memory = memory;
    rings->control = control;
    rings->view = view;
    rings->index = zro__slot_index(control, rank);
    rings->n = n;
    rings->chunk = chunk;
    *carrier = (zro__carrier){ .self = rings,
                               .chunk = chunk,
                               .buffer = next_buffer,
                               .send = send_message,
                               .recv = recv_message,
                               .release = release_message,
                               .buffer_word = buffer_word,
                               .recv_word = recv_word };
}

void zro__rings_close(zro__rings *rings)
{
    for (int i = 0; rings->outboxes != NULL && i < rings->n; i++)
        zro__unmap_region(rings->view, &rings->outboxes[i]);
}

void zro__rings_punch(zro__view *view, void *memory, int n, size_t chunk)
{
    for (int i = 0; i < n; i++) {
        uint64_t offset = atomic_load_explicit(&outbox_of(memory, i)->offset, memory_order_relaxed);

        if (offset != 0)
            zro__region_punch(view, offset, outbox_bytes(n, chunk));
    }
}
