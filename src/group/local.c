/* Shared memory as a link.
 *
 * Each ordered pair of ranks has a ring of ZRO__LINK_DEPTH buffers.  The sender fills the buffer of message m (m % DEPTH) and
 * releases head = m + 1; the receiver reads it in place and releases tail = m + 1, which gives the buffer back.  So head is
 * written by the sender alone, tail by the receiver alone, and a buffer by the sender while head - tail < DEPTH.  A rank that
 * dies leaves its ring as it is: complete messages can still be read, an incomplete one was never announced. */
#include "group/local.h"

#include "base/point.h"

enum { OUTBOX_BYTES = 2 << 20, CHUNK_MAX = 256 << 10, CHUNK_MIN = 8 << 10 };

typedef struct ring {
    zro__word head, tail;
    _Alignas(64) uint64_t bytes[ZRO__LINK_DEPTH];
} ring;

enum { RING_HEAD_BYTES = 4096 };
_Static_assert(sizeof(ring) <= RING_HEAD_BYTES, "a ring's head is a page");

/* What a rank sends must stay in its cache whatever the number of peers, so the messages shrink as peers become more. */
size_t zro__local_chunk(int size)
{
    size_t chunk = CHUNK_MAX;

    while (chunk > CHUNK_MIN && chunk * ZRO__LINK_DEPTH * (size_t)(size - 1) > OUTBOX_BYTES)
        chunk /= 2;
    return chunk;
}

static size_t ring_bytes(size_t chunk)
{
    return RING_HEAD_BYTES + ZRO__LINK_DEPTH * chunk;
}

size_t zro__local_bytes(int n, size_t chunk)
{
    return (size_t)n * (size_t)(n - 1) * ring_bytes(chunk);
}

/* Between places. */
static ring *ring_of(const zro__local *local, int from, int to)
{
    size_t index = (size_t)from * (size_t)(local->n - 1) + (size_t)(to - (to > from));

    return (ring *)(void *)(local->rings + index * ring_bytes(local->chunk));
}

static ring *ring_to(const zro__local *local, int peer)
{
    return ring_of(local, local->place, zro__place_of(local->control, peer));
}

static ring *ring_from(const zro__local *local, int peer)
{
    return ring_of(local, zro__place_of(local->control, peer), local->place);
}

static char *buffer_of(const zro__local *local, ring *r, uint64_t message)
{
    return (char *)r + RING_HEAD_BYTES + message % ZRO__LINK_DEPTH * local->chunk;
}

static zro__word *room_word(void *self, int peer, uint64_t *target)
{
    zro__local *local = self;

    *target = local->sent[peer] < ZRO__LINK_DEPTH ? 0 : local->sent[peer] - ZRO__LINK_DEPTH + 1;
    return &ring_to(local, peer)->tail;
}

/* Pieces and results are one order here: the schedule makes them alternate alike on both sides. */
static zro__word *recv_word(void *self, int peer, zro__stream stream, uint64_t *target)
{
    zro__local *local = self;

    (void)stream;
    *target = local->received[peer] + 1;
    return &ring_from(local, peer)->head;
}

static void *room(void *self, int peer)
{
    zro__local *local = self;
    uint64_t target;
    zro__word *tail = room_word(self, peer, &target);

    /* pairs with the release in `release`: the receiver has read what the buffer held */
    if (atomic_load_explicit(&tail->value, memory_order_acquire) < target)
        return NULL;
    return buffer_of(local, ring_to(local, peer), local->sent[peer]);
}

static void send_message(void *self, int peer, zro__stream stream, size_t bytes)
{
    zro__local *local = self;
    ring *r = ring_to(local, peer);

    (void)stream;
    (void)ZRO__POINT("local.send");
    r->bytes[local->sent[peer] % ZRO__LINK_DEPTH] = bytes;
    zro__post(&r->head, ++local->sent[peer]);
}

static const void *recv_message(void *self, int peer, zro__stream stream, size_t *bytes)
{
    zro__local *local = self;
    uint64_t target;
    zro__word *head = recv_word(self, peer, stream, &target);
    ring *r = ring_from(local, peer);

    /* pairs with the post in `send_message` */
    if (atomic_load_explicit(&head->value, memory_order_acquire) < target)
        return NULL;
    *bytes = r->bytes[local->received[peer] % ZRO__LINK_DEPTH];
    return buffer_of(local, r, local->received[peer]);
}

static void release_message(void *self, int peer, zro__stream stream)
{
    zro__local *local = self;

    (void)stream;
    (void)ZRO__POINT("local.release");
    zro__post(&ring_from(local, peer)->tail, ++local->received[peer]);
}

void zro__local_plan(zro__arena *arena, int size)
{
    zro__arena_plan(arena, (size_t)size, sizeof(uint64_t));
    zro__arena_plan(arena, (size_t)size, sizeof(uint64_t));
}

void zro__local_init(zro__local *local, zro__arena *arena, void *rings, const zro__control *control, int rank, int n,
                     size_t chunk, zro__link *link)
{
    local->rings = rings;
    local->control = control;
    local->place = zro__place_of(control, rank);
    local->n = n;
    local->chunk = chunk;
    local->sent = zro__arena_take(arena, (size_t)control->size, sizeof(uint64_t));
    local->received = zro__arena_take(arena, (size_t)control->size, sizeof(uint64_t));
    *link = (zro__link){ .self = local,
                         .room = room,
                         .send = send_message,
                         .recv = recv_message,
                         .release = release_message,
                         .room_word = room_word,
                         .recv_word = recv_word };
}
