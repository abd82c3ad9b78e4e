/* The shared-memory protocol of a group.
 *
 * Words.  A group has one control block in the world's memfd: the verdict, the members, and a slot for each rank.  A slot is
 * written by its rank alone and read by all; the verdict is written once, by whoever claims it.  All waiting is for a
 * zro__word: a 64-bit number that only grows, beside a count of sleepers.
 *
 * Arriving.  Operations of a group are numbered from 1, in the same order on all ranks.  A rank begins operation k by writing
 * its header to arrived[k % 2] (and, for texts, to ring[k % 256]), its payload, if it has one, to payload[k % 2], and then
 * releasing k in arrived[k % 2], the header's own cache line.  It goes on when it has seen k or more there of every rank, and
 * compares the headers.  So every operation contains one full barrier, which is what makes headers and payloads safe without
 * further words: whoever writes arrived[k % 2] or payload[k % 2] again, for k + 2, has seen everybody arrive at k + 1, that is,
 * finish reading k.  No rank is ever more than one operation ahead, so of the ring's 256 entries the newest 255 of every
 * rank are stable for error texts.
 *
 * Departing.  Where ranks touch each other's arrays (xfer.c) a rank releases done = k after its last access, and whoever owns
 * an array that was touched waits for that.
 *
 * Orders.  Release of arrived or done pairs with the acquire of the same word in zro__word_wait; header, payload and array
 * contents travel under it.  Before it sleeps, a waiter raises `sleepers` and looks again; a poster stores and then looks at
 * `sleepers`; both are sequentially consistent, so one of them sees the other and no wake-up is lost.
 *
 * Death.  A rank may die at any instruction.  Before its release of arrived = k: the others find its life word marked while
 * arrived < k, and the first to see it breaks the group: LOST.  After it: the others complete what they can; who needs more
 * from it (its part of a transfer) finds the mark while it waits for that word and breaks the group; who needs nothing returns
 * OK and hears of it in operation k + 1.  Dead while it claims the verdict (BREAKING): readers wait for the text for 100 ms
 * and then say what they know.  Sleeping: `sleepers` stays too large, which costs posters a system call.  No lock is ever held
 * in shared memory, so nothing has to be recovered.
 *
 * Leaving.  A rank that destroys the group releases left = 1 after its last word.  Who waits at an operation that it has not
 * arrived at is told LOST; others are not disturbed.
 *
 * Far ranks, with whom no memory is shared, have a copy of their slot in this rank's own memory, kept by messages (wire.c). */
#define _GNU_SOURCE
#include "group/slot.h"

#include <inttypes.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/point.h"
#include "group/wire.h"

enum {
    SPINS = 100,
    POLLS = 10,
    YIELDS = 1000,
    YIELDS_A_CHECK = 64,
    SLEEP_MS = 50,
    COUNTED_MS = 100,
    BREAKING_MS = 100,
    PREFETCH_BYTES = 2048
};

/* ---- layout ---- */

static size_t slots_offset(int size)
{
    return (sizeof(zro__control) + 2 * (size_t)size * sizeof(int32_t) + 63) & ~(size_t)63;
}

size_t zro__board_bytes(int size, int n_near)
{
    return slots_offset(size) + (size_t)n_near * sizeof(zro__slot);
}

zro__slot *zro__board_slots(zro__control *control)
{
    return (zro__slot *)(void *)((char *)control + slots_offset(control->size));
}

int zro__is_near(const zro__board *board, int rank)
{
    return board->wire == NULL || zro__place_of(board->control, rank) >= 0;
}

int zro__first_near(const zro__board *board)
{
    int r = 0;

    while (!zro__is_near(board, r))
        r++;
    return r;
}

zro__slot *zro__far_slot_of(const zro__board *board, int rank)
{
    int place = zro__place_of(board->control, rank);

    return place >= 0 ? &board->slots[place] : zro__wire_slot(board->wire, ~place);
}

/* ---- words ---- */

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* The futex is the low half of the value: it differs after any growth that could have been missed. */
static uint32_t *futex_of(zro__word *word)
{
    return (uint32_t *)(void *)&word->value + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
}

void zro__post(zro__word *word, uint64_t value)
{
    /* Release for the data, sequentially consistent for the sleepers; pairs with zro__word_wait. */
    atomic_store_explicit(&word->value, value, memory_order_seq_cst);
    if (atomic_load_explicit(&word->sleepers, memory_order_seq_cst) != 0)
        syscall(SYS_futex, futex_of(word), FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static int reached(zro__word *word, uint64_t target)
{
    return atomic_load_explicit(&word->value, memory_order_acquire) >= target;
}

/* Sleeps for at most so long, or until the word grows. */
static void sleep_on(zro__word *word, uint64_t target, uint64_t us)
{
    struct timespec limit = { 0, (long)us * 1000 };
    uint64_t value;

    atomic_fetch_add_explicit(&word->sleepers, 1, memory_order_seq_cst);
    value = atomic_load_explicit(&word->value, memory_order_seq_cst);
    if (value < target)
        syscall(SYS_futex, futex_of(word), FUTEX_WAIT, (uint32_t)value, &limit, NULL, 0);
    atomic_fetch_sub_explicit(&word->sleepers, 1, memory_order_relaxed);
}

/* With a wire each look polls it: fewer of them before yielding, and short sleeps, for its messages wake nobody. */
static zro_status wait_for_word(zro__word *word, uint64_t target, zro__check_fn check, void *user, zro__counters *counters,
                                zro__wire *wire, uint64_t sleep_us)
{
    uint64_t start, last, now, counted = 0;
    zro_status st;

    for (int i = 0; i < (wire == NULL ? SPINS : POLLS); i++) {
        if (reached(word, target))
            return ZRO_OK;
        if (wire != NULL)
            zro__wire_poll(wire);
        else
            relax();
    }
    if (counters != NULL)
        zro__count(&counters->waits, 1);
    start = last = zro__now_ns();
    for (int i = 0;; i++) {
        if (i < YIELDS) {
            sched_yield();
        } else {
            sleep_on(word, target, sleep_us);
            if (counters != NULL)
                zro__count(&counters->sleeps, 1);
        }
        if (wire != NULL)
            zro__wire_poll(wire);
        if (reached(word, target)) {
            st = ZRO_OK;
            break;
        }
        if (i < YIELDS && i % YIELDS_A_CHECK != 0)
            continue;
        now = zro__now_ns();
        /* A job that was stopped and continued must not find its deadline passed: one wake-up counts little. */
        counted += now - last < COUNTED_MS * UINT64_C(1000000) ? now - last : COUNTED_MS * UINT64_C(1000000);
        last = now;
        st = check(user, counted / 1000000);
        if (st != ZRO_OK) {
            /* The last thing that a dead or leaving rank did may have been to post. */
            if (reached(word, target))
                st = ZRO_OK;
            break;
        }
    }
    if (counters != NULL)
        zro__count(&counters->wait_ns, zro__now_ns() - start);
    return st;
}

zro_status zro__word_wait(zro__word *word, uint64_t target, zro__check_fn check, void *user, zro__counters *counters)
{
    return wait_for_word(word, target, check, user, counters, NULL, SLEEP_MS * 1000);
}

zro_status zro__board_wait(zro__board *board, zro__word *word, uint64_t target, zro__check_fn check, void *user)
{
    uint64_t sleep_us = board->wire == NULL ? SLEEP_MS * 1000 : board->nap_us;

    return wait_for_word(word, target, check, user, board->counters, board->wire, sleep_us);
}

/* ---- texts ---- */

static const char *const call_names[ZRO__CALL_COUNT] = {
    [ZRO__CALL_NONE] = "nothing",
    [ZRO__CALL_CREATE] = "group_create",
    [ZRO__CALL_MEMORY] = "memory_alloc",
    [ZRO__CALL_BARRIER] = "barrier",
    [ZRO__CALL_ALL_REDUCE] = "all_reduce",
    [ZRO__CALL_REDUCE] = "reduce",
    [ZRO__CALL_REDUCE_SCATTER] = "reduce_scatter",
    [ZRO__CALL_BROADCAST] = "broadcast",
    [ZRO__CALL_BROADCAST_BYTES] = "broadcast_bytes",
    [ZRO__CALL_GATHER] = "gather",
    [ZRO__CALL_ALL_GATHER] = "all_gather",
    [ZRO__CALL_STOP_REQUESTED] = "stop_requested",
    [ZRO__CALL_TRANSFER] = "transfer",
    [ZRO__CALL_PARAMS_ALLOC] = "params_alloc",
    [ZRO__CALL_OPTIM_CREATE] = "optim_create",
    [ZRO__CALL_ADD_PARAM_GROUP] = "optim_add_param_group",
    [ZRO__CALL_STEP] = "optim_step",
    [ZRO__CALL_NORM] = "norm of gradients",
    [ZRO__CALL_PUBLISH] = "optim_publish",
    [ZRO__CALL_CONSOLIDATE] = "optim_consolidate",
    [ZRO__CALL_LOAD] = "optim_load",
};

static const char *const op_names[] = { [ZRO_SUM] = "sum", [ZRO_AVG] = "avg", [ZRO_MIN] = "min", [ZRO_MAX] = "max" };

const char *zro__header_text(const zro__header *h, char *text, size_t bytes)
{
    const char *type = zro_dtype_name((zro_dtype)h->dtype);
    int reduces = h->call == ZRO__CALL_ALL_REDUCE || h->call == ZRO__CALL_REDUCE || h->call == ZRO__CALL_REDUCE_SCATTER;
    int n = 0;

    if (h->number == 0)
        return "nothing yet";
    n = snprintf(text, bytes, "operation %" PRIu64 ": %s", h->number, h->call < ZRO__CALL_COUNT ? call_names[h->call] : "?");
    if (h->call >= ZRO__CALL_ALL_REDUCE && (h->call != ZRO__CALL_BROADCAST_BYTES || h->root >= 0) && n > 0 && (size_t)n < bytes)
        n += snprintf(text + n, bytes - (size_t)n, " of %" PRIu64 " %s%s%s", h->count, type != NULL ? type : "?",
                      reduces ? ", " : "", reduces && h->op <= ZRO_MAX ? op_names[h->op] : "");
    if (h->root >= 0 && n > 0 && (size_t)n < bytes)
        snprintf(text + n, bytes - (size_t)n, ", root %d", (int)h->root);
    return text;
}

const char *zro__rank_name(const zro__board *board, int rank, char *text, size_t bytes)
{
    int label = board->control->member[rank];

    if (label == rank)
        snprintf(text, bytes, "rank %d", rank);
    else
        snprintf(text, bytes, "rank %d (%d of the first group)", rank, label);
    return text;
}

static uint64_t hash_word(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}

uint64_t zro__hash(uint64_t hash, const void *bytes, size_t n)
{
    const char *p = bytes;
    uint64_t word;
    size_t at = 0;

    hash ^= n;
    for (; n - at >= sizeof word; at += sizeof word) {
        memcpy(&word, p + at, sizeof word);
        hash = hash_word(hash, word);
    }
    for (; at < n; at++)
        hash = hash_word(hash, (unsigned char)p[at]);
    return hash;
}

/* ---- verdict ---- */

zro_status zro__verdict_get(const zro__control *control)
{
    zro__control *c = (zro__control *)(uintptr_t)control; /* atomics take no const */
    uint64_t start = 0;

    for (;;) {
        switch (atomic_load_explicit(&c->verdict, memory_order_acquire)) { /* pairs with the release in zro__break */
        case ZRO__WHOLE:
            return ZRO_OK;
        case ZRO__BROKEN:
            return zro__fail((zro_status)c->code, "%s", c->text);
        default:
            if (start == 0)
                start = zro__now_ns();
            else if (zro__now_ns() - start > BREAKING_MS * UINT64_C(1000000))
                return zro__fail(ZRO_ERR_LOST, "the group is broken; the rank that found out died before it could say why");
            sched_yield();
        }
    }
}

int zro__control_break(zro__control *c, zro_status code, const char *text)
{
    uint32_t whole = ZRO__WHOLE;

    if (!atomic_compare_exchange_strong_explicit(&c->verdict, &whole, ZRO__BREAKING, memory_order_acq_rel,
                                                 memory_order_acquire))
        return 0;
    (void)ZRO__POINT("slot.break");
    c->code = (int32_t)code;
    snprintf(c->text, sizeof c->text, "%s", text);
    atomic_store_explicit(&c->verdict, ZRO__BROKEN, memory_order_release); /* pairs with the acquire in zro__verdict_get */
    return 1;
}

zro_status zro__break(zro__board *board, zro_status code)
{
    if (!zro__control_break(board->control, code, zro_last_error()))
        return zro__verdict_get(board->control);
    if (board->wire != NULL)
        zro__wire_verdict(board->wire, code, zro_last_error());
    return code;
}

/* ---- waiting for a rank ---- */

typedef struct wait_for {
    zro__board *board;
    int rank;
} wait_for;

static uint64_t arrived_of(const zro__board *board, int rank)
{
    return zro__slot_arrived(zro__slot_of(board, rank));
}

static const zro__header *last_header_of(const zro__board *board, int rank)
{
    return &zro__slot_of(board, rank)->ring[arrived_of(board, rank) % ZRO__RING];
}

/* `why`: of a link that failed; "" for a rank that is dead. */
static zro_status lost(zro__board *board, int rank, const char *why)
{
    char name[64], mine[160], last[160];

    zro__fail(ZRO_ERR_LOST, "%s %s%.300s; this was %s; its last was %s", zro__rank_name(board, rank, name, sizeof name),
              *why == '\0' ? "is gone" : "cannot be reached: ", why,
              zro__header_text(zro__header_of(board, board->rank), mine, sizeof mine),
              zro__header_text(last_header_of(board, rank), last, sizeof last));
    return zro__break(board, ZRO_ERR_LOST);
}

static zro_status deserted(zro__board *board, int rank)
{
    char name[64], mine[160], last[160];

    zro__fail(ZRO_ERR_LOST, "%s has destroyed this group; this was %s; its last was %s",
              zro__rank_name(board, rank, name, sizeof name),
              zro__header_text(zro__header_of(board, board->rank), mine, sizeof mine),
              zro__header_text(last_header_of(board, rank), last, sizeof last));
    return zro__break(board, ZRO_ERR_LOST);
}

/* Appends the numbers of the ranks that have (not) arrived at this rank's operation; returns how many there are. */
static int list_ranks(const zro__board *board, int arrived, char *text, size_t bytes)
{
    size_t at = 0;
    int n = 0;

    text[0] = '\0';
    for (int r = 0; r < board->size; r++) {
        if ((arrived_of(board, r) >= board->number) != arrived)
            continue;
        if (at + 16 < bytes)
            at += (size_t)snprintf(text + at, bytes - at, "%s%d", n == 0 ? "" : ", ", r);
        else if (at + 4 < bytes)
            at += (size_t)snprintf(text + at, bytes - at, " ...") + bytes;
        n++;
    }
    return n;
}

static zro_status late(zro__board *board, int rank)
{
    char name[64], mine[160], last[160], here[160], missing[160];
    int n_missing = list_ranks(board, 0, missing, sizeof missing);

    list_ranks(board, 1, here, sizeof here);
    zro__fail(ZRO_ERR_TIMEOUT, "%s: no answer from %s within %" PRIu64 " ms; arrived: %s; missing: %s; the last of %s was %s",
              zro__header_text(zro__header_of(board, board->rank), mine, sizeof mine),
              zro__rank_name(board, rank, name, sizeof name), board->timeout_ms, here,
              n_missing == 0 ? "none (it has not finished its part)" : missing, name,
              zro__header_text(last_header_of(board, rank), last, sizeof last));
    return zro__break(board, ZRO_ERR_TIMEOUT);
}

const char *zro__gone(const zro__board *board, int rank)
{
    if (!zro__is_near(board, rank))
        return zro__wire_failure(board->wire, ~zro__place_of(board->control, rank));
    return zro__life_is_dead(&board->lives[board->control->member[rank]]) ? "" : NULL;
}

/* Ends a wait when the group is broken, somebody whom this operation needs is gone, or time is up. */
static zro_status check_peers(void *user, uint64_t waited_ms)
{
    wait_for *w = user;
    zro__board *board = w->board;
    zro_status st = zro__verdict_get(board->control);

    if (st != ZRO_OK)
        return st;
    for (int r = 0; r < board->size; r++) {
        int needed = r == w->rank || arrived_of(board, r) < board->number;
        const char *why = needed ? zro__gone(board, r) : NULL;

        /* It may have arrived between the two looks; then it is needed only if it is the one waited for. */
        if (why != NULL && (r == w->rank || arrived_of(board, r) < board->number))
            return lost(board, r, why);
    }
    /* Who leaves after it has arrived has done its part, and what it sent may come after the word that it left.
     * pairs with zro_group_destroy */
    if (atomic_load_explicit(&zro__slot_of(board, w->rank)->left, memory_order_acquire)
        && arrived_of(board, w->rank) < board->number)
        return deserted(board, w->rank);
    return waited_ms > board->timeout_ms ? late(board, w->rank) : ZRO_OK;
}

zro_status zro__wait(zro__board *board, zro__word *word, uint64_t target, int rank)
{
    wait_for w = { board, rank };

    return zro__board_wait(board, word, target, check_peers, &w);
}

/* ---- arriving ---- */

void *zro__payload(zro__board *board)
{
    return zro__slot_of(board, board->rank)->payload[(board->number + 1) % 2];
}

const zro__header *zro__header_of(const zro__board *board, int rank)
{
    return &zro__slot_of(board, rank)->arrived[board->number % 2].header;
}

const void *zro__payload_of(const zro__board *board, int rank)
{
    return zro__slot_of(board, rank)->payload[board->number % 2];
}

uint64_t zro__slot_arrived(zro__slot *slot)
{
    uint64_t even = atomic_load_explicit(&slot->arrived[0].word.value, memory_order_acquire);
    uint64_t odd = atomic_load_explicit(&slot->arrived[1].word.value, memory_order_acquire);

    return even > odd ? even : odd;
}

zro__word *zro__slot_write(zro__slot *slot, const zro__header *header)
{
    enum { OWN = offsetof(zro__header, flags) }; /* number and sleepers are the word's */
    zro__arrival *arrival = &slot->arrived[header->number % 2];

    slot->ring[header->number % ZRO__RING] = *header;
    memcpy((char *)arrival + OWN, (const char *)header + OWN, sizeof *header - OWN);
    return &arrival->word;
}

zro_status zro__arrive(zro__board *board, zro__header *header, size_t payload_bytes)
{
    zro_status st = zro__verdict_get(board->control);
    zro__word *word;

    if (st != ZRO_OK)
        return st;
    (void)ZRO__POINT("slot.arrive");
    header->number = ++board->number;
    word = zro__slot_write(zro__slot_of(board, board->rank), header);
    (void)ZRO__POINT("slot.header");
    zro__post(word, header->number);
    if (board->wire != NULL)
        zro__wire_head(board->wire, header, zro__payload_of(board, board->rank), payload_bytes);
    (void)ZRO__POINT("slot.arrived");
    if (board->counters != NULL)
        zro__count(&board->counters->operations, 1);
    return ZRO_OK;
}

static int same_operation(const zro__header *a, const zro__header *b)
{
    return a->call == b->call && a->dtype == b->dtype && a->op == b->op && a->root == b->root && a->count == b->count
           && a->tag == b->tag;
}

/* The first rank that differs from rank 0 is the same for everybody, so all ranks find the same words. */
static zro_status compare_headers(zro__board *board)
{
    const zro__header *first = zro__header_of(board, 0);
    char name[64], zero[64], a[160], b[160];

    for (int r = 1; r < board->size; r++) {
        const zro__header *other = zro__header_of(board, r);

        if (same_operation(first, other))
            continue;
        zro__header_text(first, a, sizeof a);
        zro__header_text(other, b, sizeof b);
        zro__fail(ZRO_ERR_MISMATCH, "the ranks called different things: %s %s; %s %s%s",
                  zro__rank_name(board, 0, zero, sizeof zero), a, zro__rank_name(board, r, name, sizeof name), b,
                  strcmp(a, b) == 0 ? " with other counts or settings" : "");
        return zro__break(board, ZRO_ERR_MISMATCH);
    }
    return ZRO_OK;
}

zro_status zro__gather_arrivals(zro__board *board, size_t payload_bytes)
{
    const char *next = zro__payload(board);
    zro_status st;

    for (int r = 0; r < board->size; r++) {
        if (r == board->rank)
            continue;
        st = zro__wait(board, &zro__slot_of(board, r)->arrived[board->number % 2].word, board->number, r);
        if (st != ZRO_OK)
            return st;
    }
    for (int r = 0; r < board->size && board->wire != NULL; r++) {
        if (zro__is_near(board, r))
            continue;
        st = zro__wait(board, zro__wire_told(board->wire, ~zro__place_of(board->control, r)), board->number, r);
        if (st != ZRO_OK)
            return st;
    }
    /* All have finished the operation before this one.  What they read of it the next one writes: fetch it back meanwhile. */
    for (size_t b = 0; b < payload_bytes && b < PREFETCH_BYTES; b += 64)
        __builtin_prefetch(next + b, 1, 3);
    (void)ZRO__POINT("slot.gathered");
    return board->size > 1 ? compare_headers(board) : ZRO_OK;
}

/* ---- votes ---- */

typedef struct ballot {
    uint64_t number;
    int32_t code;
    char text[ZRO__TEXT_BYTES];
    char description[4096];
} ballot;

_Static_assert(sizeof(ballot) <= ZRO__PAYLOAD_BYTES, "a ballot is a payload");

enum { BALLOT_VOTE = 1, BALLOT_AGREE = 2 }; /* the header's tag */

static zro_status cast_ballots(zro__board *board, zro__call call, uint64_t tag, zro_status mine, const char *description,
                               uint64_t number)
{
    zro__header header = { .call = (uint16_t)call, .root = -1, .tag = tag };
    ballot *b = zro__payload(board);
    zro_status st = zro__verdict_get(board->control);

    if (st != ZRO_OK) /* others may still read what this rank wrote there two operations ago */
        return st;
    b->number = number;
    b->code = (int32_t)mine;
    snprintf(b->text, sizeof b->text, "%s", mine == ZRO_OK ? "" : zro_last_error());
    snprintf(b->description, sizeof b->description, "%s", description);
    st = zro__arrive(board, &header, offsetof(ballot, description) + strlen(b->description) + 1);
    return st != ZRO_OK ? st : zro__gather_arrivals(board, 0);
}

/* After cast_ballots: the lowest failing rank's word. */
static zro_status count_ballots(zro__board *board, zro_status mine)
{
    char name[64];

    for (int r = 0; r < board->size; r++) {
        const ballot *b = zro__payload_of(board, r);

        if (b->code == ZRO_OK)
            continue;
        if (mine != ZRO_OK) /* a failing rank keeps its own; the text was built before the ballots were cast */
            return zro__fail(mine, "%s", ((const ballot *)zro__payload_of(board, board->rank))->text);
        zro__rank_name(board, r, name, sizeof name);
        return zro__fail(b->code == ZRO_ERR_MISMATCH ? ZRO_ERR_MISMATCH : ZRO_ERR_PEER, "%s: %s: %s", name,
                         zro_status_name((zro_status)b->code), b->text);
    }
    return ZRO_OK;
}

zro_status zro__vote(zro__board *board, zro__call call, zro_status mine)
{
    zro_status st = cast_ballots(board, call, BALLOT_VOTE, mine, "", 0);

    return st != ZRO_OK ? st : count_ballots(board, mine);
}

/* The part of a description that begins where it differs from another, and what it is about: what stands before a colon. */
static const char *difference(const char *mine, const char *other, char *text, size_t bytes)
{
    const char *colon = strchr(mine, ':');
    size_t same = 0, from = 0;

    while (mine[same] != '\0' && mine[same] == other[same])
        same++;
    for (size_t i = 0; i + 1 < same; i++)
        from = mine[i] == ',' && mine[i + 1] == ' ' ? i + 2 : from;
    if (colon != NULL && (size_t)(colon - mine) < from)
        snprintf(text, bytes, "%.*s: %.200s", (int)(colon - mine < 150 ? colon - mine : 150), mine, mine + from);
    else
        snprintf(text, bytes, "%.300s", mine + from);
    return text;
}

zro_status zro__agree(zro__board *board, zro__call call, const char *what, const char *description, uint64_t *number,
                      zro_status mine)
{
    const ballot *first, *other;
    char name[64], zero[64], left[400], right[400];
    zro_status st = cast_ballots(board, call, BALLOT_AGREE, mine, description, *number);

    if (st == ZRO_OK)
        st = count_ballots(board, mine);
    if (st != ZRO_OK)
        return st;
    *number = ((const ballot *)zro__payload_of(board, zro__first_near(board)))->number;
    first = zro__payload_of(board, 0);
    for (int r = 1; r < board->size; r++) {
        other = zro__payload_of(board, r);
        if (strcmp(first->description, other->description) != 0)
            return zro__fail(ZRO_ERR_MISMATCH, "%s differ: %s has %s; %s has %s", what,
                             zro__rank_name(board, 0, zero, sizeof zero),
                             difference(first->description, other->description, left, sizeof left),
                             zro__rank_name(board, r, name, sizeof name),
                             difference(other->description, first->description, right, sizeof right));
    }
    return ZRO_OK;
}

/* ---- steps ---- */

/* Release: who sees the number sees what was written before it, and so may trust a pair of equal ones. */
void zro__step_begin(zro__board *board, uint64_t steps)
{
    atomic_store_explicit(&zro__slot_of(board, board->rank)->begun, steps, memory_order_release);
}

void zro__step_publish(zro__board *board, uint64_t steps)
{
    atomic_store_explicit(&zro__slot_of(board, board->rank)->published, steps, memory_order_release);
}

int zro__step_torn(const zro__board *board, int *rank, uint64_t *begun, uint64_t *published)
{
    *begun = 0;
    *published = UINT64_MAX;
    for (int r = 0; r < board->size; r++) {
        const zro__slot *slot = zro__slot_of(board, r);
        uint64_t first, last;

        if (!zro__is_near(board, r)) /* what it has begun cannot be seen; what did not come from there shows here */
            continue;
        first = atomic_load_explicit(&slot->begun, memory_order_acquire); /* pairs with the release above, and so below */
        last = atomic_load_explicit(&slot->published, memory_order_acquire);
        *begun = first > *begun ? first : *begun;
        if (last < *published) {
            *published = last;
            *rank = r;
        }
    }
    return *begun != *published;
}
