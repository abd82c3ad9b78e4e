/* Rings in shared memory.
 *
 * Each ordered pair of near ranks has a ring of ZRO__CARRIER_DEPTH messages.  The sender notes where message m lies and how long it
 * is (in entry m % DEPTH), and releases head = m + 1; the receiver reads it where it lies and releases tail = m + 1, which gives its
 * memory back.  So head is written by the sender alone, tail by the receiver alone, and an entry and its message by the sender
 * while head - tail < DEPTH.  A rank that dies leaves its ring as it is: complete messages can still be read, an incomplete
 * one was never announced.
 *
 * A message that is lent comes back: the receiver overwrites it with the answer and then releases tail = m + 1, and the sender reads
 * the answer before it uses the memory again.  So each line goes there and back once; an answer in the receiver's own outbox would
 * have to be fetched there, and the lines that it overwrites be asked for first.
 *
 * The rings of all pairs lie in the group's region.  The messages do not: most groups never send one between near ranks.  They lie
 * in the sender's outbox, a sparse region that it takes when it first sends, and whose offset it notes beside the rings before it
 * releases a head; a receiver maps it when it finds the first message.  The last rank that leaves the group gives all
 * outboxes back.
 *
 * An outbox is a row of cells, which the sender alone gives out: a buffer is as many as the longest message needs, the
 * lowest that are free, and a message keeps those that it fills.  A result that goes to many ranks lies there once.  Cells get
 * their memory when they are first given out, so an outbox grows with what is in flight.  It cannot overflow: when a buffer is
 * looked for, fewer than DEPTH messages per peer are in flight, or one that has DEPTH for all peers but one, each of at most c cells,
 * c being those of a buffer; each of them makes fewer than 2 c cells useless as the first one of a buffer, and there are 2 c for
 * each of DEPTH messages per peer. */
#include "link/rings.h"

#include <assert.h>

#include "base/point.h"

enum { OUTBOX_BYTES = 2 << 20, CHUNK_MAX = 256 << 10, CHUNK_MIN = 8 << 10, PAGE = 4096, CELLS = 8 };

/* Head and what it announces in one cache line, so that only that crosses. */
typedef union announced {
    zro__word head;
    struct {
        uint64_t value; /* these two are the word's */
        uint32_t sleepers;
        uint32_t bytes[ZRO__CARRIER_DEPTH]; /* lengths of the messages */
        uint32_t cell[ZRO__CARRIER_DEPTH];  /* where they begin in the sender's outbox */
    } entries;
} announced;

_Static_assert(sizeof(announced) == 64, "what is announced is a cache line");

typedef struct ring {
    announced sent;
    zro__word tail;
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

/* Bytes of a cell: whole pages, and few for a message, because they are counted one by one. */
static size_t cell_bytes(size_t chunk)
{
    return (chunk + CELLS * PAGE - 1) / (CELLS * PAGE) * PAGE;
}

static size_t cells_of(size_t chunk, size_t bytes)
{
    return (bytes + cell_bytes(chunk) - 1) / cell_bytes(chunk);
}

static size_t outbox_cells(int n, size_t chunk)
{
    return 2 * (size_t)(n - 1) * ZRO__CARRIER_DEPTH * cells_of(chunk, chunk);
}

static size_t outbox_bytes(int n, size_t chunk)
{
    return outbox_cells(n, chunk) * cell_bytes(chunk);
}

static outbox *outbox_of(void *memory, int index)
{
    return (outbox *)memory + index;
}

/* n - 1 rings begin at each slot. */
static ring *ring_between(const zro__rings *rings, int from, int to)
{
    ring *first = (ring *)(void *)(rings->memory + (size_t)rings->n * sizeof(outbox));

    return &first[(size_t)from * (size_t)(rings->n - 1) + (size_t)(to - (to > from))];
}

static ring *ring_to(const zro__rings *rings, int peer)
{
    return ring_between(rings, rings->index, zro__slot_index(rings->control, peer));
}

static ring *ring_from(const zro__rings *rings, int peer)
{
    return ring_between(rings, zro__slot_index(rings->control, peer), rings->index);
}

static zro_status map_outbox(zro__rings *rings, int index, uint64_t offset)
{
    if (rings->outboxes[index].base != NULL)
        return ZRO_OK;
    return zro__map_region(rings->view, offset, outbox_bytes(rings->n, rings->chunk), &rings->outboxes[index]);
}

static zro_status take_outbox(zro__rings *rings)
{
    uint64_t offset;
    zro_status st = zro__region_take(rings->view, outbox_bytes(rings->n, rings->chunk), 0, "buffers for messages", &offset);

    if (st != ZRO_OK)
        return st;
    /* released by the first post of a head */
    atomic_store_explicit(&outbox_of(rings->memory, rings->index)->offset, offset, memory_order_relaxed);
    return map_outbox(rings, rings->index, offset);
}

/* ---- the cells of this rank's outbox ---- */

static char *cell_at(const zro__rings *rings, int index, size_t cell)
{
    return rings->outboxes[index].base + cell * cell_bytes(rings->chunk);
}

static void free_cells(zro__rings *rings, size_t first, size_t n)
{
    for (size_t c = first; c < first + n; c++)
        rings->users[c]--;
    if (first < rings->first_free)
        rings->first_free = first;
}

/* Frees the cells of what a peer has read, but not of an answer that was not taken. */
static void free_read(zro__rings *rings, int peer)
{
    ring *r = ring_to(rings, peer);
    uint64_t tail = atomic_load_explicit(&r->tail.value, memory_order_acquire); /* pairs with the post in release_message */

    if (rings->lent[peer] != 0 && tail >= rings->lent[peer])
        tail = rings->lent[peer] - 1;
    for (; rings->freed[peer] < tail; rings->freed[peer]++) {
        int i = (int)(rings->freed[peer] % ZRO__CARRIER_DEPTH);

        free_cells(rings, r->sent.entries.cell[i], cells_of(rings->chunk, r->sent.entries.bytes[i]));
    }
}

/* The first `n` free cells in a row before `end`; `end` if there are none. */
static size_t find_cells(zro__rings *rings, size_t n, size_t end)
{
    size_t run = 0;

    while (rings->first_free < end && rings->users[rings->first_free] > 0)
        rings->first_free++;
    for (size_t c = rings->first_free; c < end; c++) {
        run = rings->users[c] == 0 ? run + 1 : 0;
        if (run == n)
            return c + 1 - n;
    }
    return end;
}

/* Makes sure that cells before `end` have memory. */
static zro_status take_cells(zro__rings *rings, size_t end)
{
    size_t bytes = end > rings->taken ? (end - rings->taken) * cell_bytes(rings->chunk) : 0;
    zro_status st = zro__populate(cell_at(rings, rings->index, rings->taken), bytes, 1, "buffers for messages");

    if (st != ZRO_OK || bytes == 0)
        return st;
    rings->taken = end;
    atomic_fetch_add_explicit(&rings->control->buffer_bytes, bytes, memory_order_relaxed);
    return ZRO_OK;
}

/* Finds the buffer to be filled next, which nobody uses yet: among the cells that have memory, if it can. */
static zro_status find_buffer(zro__rings *rings)
{
    size_t n = cells_of(rings->chunk, rings->chunk), cell;
    zro_status st = rings->outboxes[rings->index].base != NULL ? ZRO_OK : take_outbox(rings);

    if (st != ZRO_OK)
        return st;
    cell = find_cells(rings, n, rings->taken);
    if (cell == rings->taken) {
        for (int r = 0; r < rings->control->size; r++)
            if (zro__slot_index(rings->control, r) >= 0 && zro__slot_index(rings->control, r) != rings->index)
                free_read(rings, r);
        cell = find_cells(rings, n, outbox_cells(rings->n, rings->chunk));
        assert(cell + n <= outbox_cells(rings->n, rings->chunk));
        st = take_cells(rings, cell + n);
    }
    rings->filling = st == ZRO_OK ? cell + 1 : 0;
    return st;
}

/* ---- the carrier ---- */

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
    return &ring_from(rings, peer)->sent.head;
}

/* All who ask before one of them sends get the same buffer, because they send the same. */
static zro_status next_buffer(void *self, int peer, void **out)
{
    zro__rings *rings = self;
    zro_status st;

    free_read(rings, peer);
    st = rings->asked[peer] == 0 && rings->filling == 0 ? find_buffer(rings) : ZRO_OK;
    if (st != ZRO_OK)
        return st;
    if (rings->asked[peer] == 0) {
        rings->asked[peer] = rings->filling;
        for (size_t i = 0; i < cells_of(rings->chunk, rings->chunk); i++)
            rings->users[rings->filling - 1 + i]++;
    }
    *out = cell_at(rings, rings->index, rings->asked[peer] - 1);
    return ZRO_OK;
}

static void send_message(void *self, int peer, zro__stream stream, size_t bytes)
{
    zro__rings *rings = self;
    ring *r = ring_to(rings, peer);
    size_t cell = rings->asked[peer] - 1, i = rings->sent[peer] % ZRO__CARRIER_DEPTH, kept = cells_of(rings->chunk, bytes);

    (void)stream;
    (void)ZRO__POINT("ring.send");
    if (rings->filling == rings->asked[peer])
        rings->filling = 0;
    rings->asked[peer] = 0;
    free_cells(rings, cell + kept, cells_of(rings->chunk, rings->chunk) - kept);
    r->sent.entries.bytes[i] = (uint32_t)bytes;
    r->sent.entries.cell[i] = (uint32_t)cell;
    zro__post(&r->sent.head, ++rings->sent[peer]);
}

static void lend_message(void *self, int peer, zro__stream stream, size_t bytes)
{
    zro__rings *rings = self;

    if (rings->lent[peer] == 0)
        rings->lent[peer] = rings->sent[peer] + 1;
    send_message(self, peer, stream, bytes);
}

static zro__word *answer_word(void *self, int peer, uint64_t *target)
{
    zro__rings *rings = self;

    *target = rings->lent[peer];
    return &ring_to(rings, peer)->tail;
}

static const void *find_answer(void *self, int peer)
{
    const zro__rings *rings = self;

    return cell_at(rings, rings->index, ring_to(rings, peer)->sent.entries.cell[(rings->lent[peer] - 1) % ZRO__CARRIER_DEPTH]);
}

static void take_answer(void *self, int peer)
{
    zro__rings *rings = self;

    rings->lent[peer] = rings->lent[peer] < rings->sent[peer] ? rings->lent[peer] + 1 : 0;
}

static zro_status recv_message(void *self, int peer, zro__stream stream, const void **out, size_t *bytes)
{
    zro__rings *rings = self;
    const ring *r = ring_from(rings, peer);
    uint64_t message = rings->received[peer];
    int from = zro__slot_index(rings->control, peer);
    zro_status st =
        map_outbox(rings, from, atomic_load_explicit(&outbox_of(rings->memory, from)->offset, memory_order_relaxed));

    (void)stream;
    if (st != ZRO_OK)
        return st;
    *bytes = r->sent.entries.bytes[message % ZRO__CARRIER_DEPTH];
    *out = cell_at(rings, from, r->sent.entries.cell[message % ZRO__CARRIER_DEPTH]);
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
    out[2] = (zro__array){ &rings->freed, (size_t)size, sizeof *rings->freed };
    out[3] = (zro__array){ &rings->asked, (size_t)size, sizeof *rings->asked };
    out[4] = (zro__array){ &rings->users, outbox_cells(size, zro__rings_chunk(size)), sizeof *rings->users };
    out[5] = (zro__array){ &rings->outboxes, (size_t)size, sizeof *rings->outboxes };
    out[6] = (zro__array){ &rings->lent, (size_t)size, sizeof *rings->lent };
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
                               .lend = lend_message,
                               .answer_word = answer_word,
                               .answer = find_answer,
                               .taken = take_answer,
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
