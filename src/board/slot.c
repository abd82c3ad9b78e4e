/* The shared-memory protocol of a group.
 *
 * Words.  A group has one control block in the world's memfd: the verdict, the members, and a slot for each rank.  A slot is
 * written by its rank alone (but for the counts of sleepers in it) and read by all.  The verdict is set by one rank, the first to
 * take it: to BREAKING, and when the text is there to BROKEN.  All waiting is for a zro__word: a 64-bit number that only grows,
 * beside a count of sleepers.
 *
 * Arriving.  Operations of a group are numbered from 1, in the same order on all ranks.  A rank begins operation k by writing
 * its header to arrived[k % 2] (and, for texts and for itself, to ring[k % 16]), its payload, if it has one, to payload[k % 2], and then
 * releasing k in arrived[k % 2], the header's own cache line.  It goes on when it has seen k or more there of every rank, and
 * compares the headers.  So every operation contains one full barrier, which is what makes headers and payloads safe without
 * further words: whoever writes arrived[k % 2] or payload[k % 2] again, for k + 2, has seen everybody arrive at k + 1, that is,
 * finish reading k.  No rank is ever more than one operation ahead, so of the ring's 16 entries the newest 15 of every
 * rank are stable for error texts.
 *
 * Touching.  Where ranks touch each other's arrays (xfer/xfer.c) a rank sets touching = k before its first access and releases
 * done = k after its last one, and whoever owns an array that was touched waits for that.
 *
 * Breaking.  When the group is broken a rank that touches memory leaves off, says that it gives up operation k, and releases
 * done = k, though its part is not done: so whoever has seen done = k looks whether k was given up before it returns OK.  Whoever
 * returns the verdict waits for those who still touch memory (late.c).
 *
 * Memory order.  Release of arrived or done pairs with the acquire of the same word in zro__word_wait; header, payload and array
 * contents travel under it.
 *
 * Death.  A rank may die at any instruction.  Before its release of arrived = k: the others find its life word (life.h),
 * which the kernel marks when the process dies, marked while arrived < k, and the first to see it breaks the group: LOST.  After
 * it: the others complete what they can; who needs more from it (its share of a transfer) finds the mark while it waits for that
 * word and breaks the group; who needs nothing returns OK and hears of it in operation k + 1.  If it dies while it sets the
 * verdict (BREAKING), readers wait for the text for 100 ms and then say what they know.  If it dies asleep, `sleepers` stays too
 * large, which costs posters a system call.  No lock is ever held in shared memory, so nothing has to be recovered.
 *
 * Leaving.  A rank that destroys the group releases left = 1 after its last post.  Who waits at an operation that it has not
 * arrived at is told LOST; others are not disturbed.
 *
 * Far ranks, with whom no memory is shared, have a mirror in this rank's own memory: a copy of those fields of their slots
 * that are read, updated by messages (link/far_ranks.c). */
#include "board/slot.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/point.h"
#include "board/blame.h"

enum { BREAKING_MS = 100, PREFETCH_BYTES = 2048 };

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
    return board->far == NULL || zro__slot_index(board->control, rank) >= 0;
}

int zro__first_near(const zro__board *board)
{
    int r = 0;

    while (!zro__is_near(board, r))
        r++;
    return r;
}

static zro__mirror *mirror_of(const zro__board *board, int rank)
{
    return board->far->mirror(board->far->poller.self, ~zro__slot_index(board->control, rank));
}

zro__arrival *zro__arrivals_seen(const zro__board *board, int rank)
{
    return zro__is_near(board, rank) ? zro__slot_of(board, rank)->arrived : mirror_of(board, rank)->arrived;
}

int zro__has_left(const zro__board *board, int rank)
{
    _Atomic uint32_t *left = zro__is_near(board, rank) ? &zro__slot_of(board, rank)->left : &mirror_of(board, rank)->left;

    return atomic_load_explicit(left, memory_order_acquire) != 0; /* pairs with zro_group_destroy */
}

zro__word *zro__noticed_of(const zro__board *board, int rank)
{
    return zro__is_near(board, rank) ? &zro__slot_of(board, rank)->noticed : &mirror_of(board, rank)->noticed;
}

zro__notice *zro__notice_of(const zro__board *board, int rank, uint64_t number)
{
    zro__notice *notices = zro__is_near(board, rank) ? zro__slot_of(board, rank)->notices : mirror_of(board, rank)->notices;

    return &notices[number % ZRO__NOTICES];
}

/* ---- verdict ---- */

static zro_status check_breaking(void *user, uint64_t waited_ms)
{
    (void)user;
    if (waited_ms > BREAKING_MS)
        return zro__fail(ZRO_ERR_LOST, "the group is broken; the rank that found out died before it could say why");
    return ZRO_OK;
}

zro_status zro__verdict_text(const zro__control *control)
{
    zro__control *c = (zro__control *)(uintptr_t)control; /* atomics take no const */
    zro_status st = zro__word_wait(&c->verdict, ZRO__BROKEN, check_breaking, NULL, NULL, NULL);
    return st != ZRO_OK ? st : zro__fail((zro_status)c->code, "%s", c->text);
}

int zro__control_break(zro__control *c, zro_status code, int culprit, const char *text)
{
    uint64_t whole = ZRO__WHOLE;

    if (!atomic_compare_exchange_strong(&c->verdict.value, &whole, ZRO__BREAKING)) /* sequentially consistent: late.c */
        return 0;
    (void)ZRO__POINT("slot.break");
    c->code = (int32_t)code;
    c->culprit = culprit;
    snprintf(c->text, sizeof c->text, "%s", text);
    zro__post(&c->verdict, ZRO__BROKEN);
    return 1;
}

zro_status zro__break(zro__board *board, zro_status code, int culprit)
{
    char name[64], why[ZRO__TEXT_BYTES];

    /* What failed on this rank alone is read on others, too. */
    if (code != ZRO_ERR_LOST && code != ZRO_ERR_TIMEOUT && code != ZRO_ERR_MISMATCH) {
        snprintf(why, sizeof why, "%s", zro_last_error());
        zro__fail(code, "%s: %.900s", zro__rank_name(board, board->rank, name, sizeof name), why);
    }
    if (!zro__control_break(board->control, code, culprit, zro_last_error()))
        return zro__verdict_get(board->control);
    if (board->far != NULL)
        board->far->send_verdict(board->far->poller.self, code, culprit, zro_last_error());
    return code;
}

/* ---- waiting for a rank ---- */

enum { TRACED_WAIT_NS = 5000 }; /* shorter waits are not worth a slice */

typedef struct wait_for {
    zro__board *board;
    int rank;                   /* that is waited for; -1: this rank's arrival must go to all far ranks */
    uint64_t before_ms, now_ms; /* how long the operation had waited before, and how long this wait has taken */
    int noted;                  /* 1: this rank's slot says for whom it waits */
    int warned;                 /* 1: the log has been told */
} wait_for;

const char *zro__gone(const zro__board *board, int rank)
{
    if (!zro__is_near(board, rank))
        return mirror_of(board, rank)->failure;
    return zro__life_is_dead(&board->lives[board->control->member[rank]]) ? "" : NULL;
}

/* Says for whom this rank waits, for the texts of those who wait for it. */
static void note_wait(wait_for *w, int32_t waits_for)
{
    w->noted = waits_for != 0;
    atomic_store_explicit(&zro__slot_of(w->board, w->board->rank)->waits_for, waits_for, memory_order_relaxed);
}

/* Whether time is up for `rank`.  A long wait is told to the log, once per operation. */
static int is_late(wait_for *w, int rank, uint64_t waited_ms)
{
    const zro__board *board = w->board;
    const uint64_t warn_ms = board->settings != NULL ? board->settings->warn_ms : 0;
    uint64_t all_ms = w->before_ms + waited_ms;

    w->now_ms = waited_ms;
    if (!w->warned && warn_ms > 0 && w->before_ms < warn_ms && all_ms >= warn_ms) {
        w->warned = 1;
        zro__blame_warn(board, rank, all_ms);
    }
    return all_ms > board->timeout_ms;
}

/* Ends a wait when the group is broken, somebody whom this operation needs is gone, or time is up. */
static zro_status check_peers(void *user, uint64_t waited_ms)
{
    wait_for *w = user;
    zro__board *board = w->board;
    zro_status st = zro__verdict_get(board->control);

    if (st != ZRO_OK)
        return st;
    if (!w->noted)
        note_wait(w, 1 + w->rank);
    for (int r = 0; r < board->size; r++) {
        int needed = r == w->rank || zro__arrived_of(board, r) < board->number;
        const char *why = needed ? zro__gone(board, r) : NULL;

        /* It may have arrived between the two looks; then it is needed only if it is the one waited for. */
        if (why != NULL && (r == w->rank || zro__arrived_of(board, r) < board->number))
            return zro__blame_lost(board, r, why);
    }
    /* Who leaves after it has arrived has done its part, and what it sent may come after the word that it left. */
    if (zro__has_left(board, w->rank) && zro__arrived_of(board, w->rank) < board->number)
        return zro__blame_deserted(board, w->rank);
    return is_late(w, w->rank, waited_ms) ? zro__blame_silent(board, w->rank) : ZRO_OK;
}

/* Ends the wait for this rank's arrival to go to all far ranks.  Who has it is not needed any more: it may have done everything,
 * left, and closed its end of the link. */
static zro_status check_told(void *user, uint64_t waited_ms)
{
    wait_for *w = user;
    zro__board *board = w->board;
    zro_status st = zro__verdict_get(board->control);
    int slowest = -1;

    for (int r = board->size - 1; r >= 0 && st == ZRO_OK; r--) {
        if (zro__is_near(board, r) || mirror_of(board, r)->told >= board->number)
            continue;
        slowest = r;
        st = zro__gone(board, r) != NULL ? zro__blame_lost(board, r, zro__gone(board, r)) : ZRO_OK;
    }
    return st == ZRO_OK && slowest >= 0 && is_late(w, slowest, waited_ms) ? zro__blame_silent(board, slowest) : st;
}

zro_status zro__board_wait(zro__board *board, zro__word *word, uint64_t target, zro__check_fn check, void *user)
{
    return zro__word_wait(word, target, check, user, board->counters, board->far == NULL ? NULL : &board->far->poller);
}

static void trace_wait(const zro__board *board, uint64_t begun, int rank)
{
    char name[32];

    if (zro__now_ns() - begun < TRACED_WAIT_NS)
        return;
    snprintf(name, sizeof name, rank < 0 ? "wait for the link" : "wait for rank %d",
             rank < 0 ? 0 : board->control->member[rank]);
    zro__trace_record(board->trace, begun, name, -1, 0);
}

static zro_status wait_with(zro__board *board, zro__word *word, uint64_t target, zro__check_fn check, int rank,
                            uint64_t *waited_ms)
{
    wait_for w = { .board = board, .rank = rank, .before_ms = waited_ms != NULL ? *waited_ms : 0 };
    const uint64_t begun = zro__trace_begin(board->trace);
    zro_status st = zro__board_wait(board, word, target, check, &w);

    if (begun != 0)
        trace_wait(board, begun, rank);
    if (w.noted)
        note_wait(&w, 0);
    if (waited_ms != NULL)
        *waited_ms += w.now_ms;
    return st;
}

zro_status zro__wait(zro__board *board, zro__word *word, uint64_t target, int rank, uint64_t *waited_ms)
{
    return wait_with(board, word, target, check_peers, rank, waited_ms);
}

/* ---- the boards of a rank ---- */

void zro__board_join(zro__board *board)
{
    if (board->boards == NULL)
        return;
    pthread_mutex_lock(&board->boards->lock);
    board->next = board->boards->first;
    board->boards->first = board;
    pthread_mutex_unlock(&board->boards->lock);
}

void zro__board_quit(zro__board *board)
{
    zro__board **at;

    if (board->boards == NULL)
        return;
    pthread_mutex_lock(&board->boards->lock);
    for (at = &board->boards->first; *at != NULL && *at != board;)
        at = &(*at)->next;
    if (*at == board)
        *at = board->next;
    pthread_mutex_unlock(&board->boards->lock);
}

/* ---- arriving ---- */

void *zro__payload(zro__board *board)
{
    return zro__slot_of(board, board->rank)->payload[(board->number + 1) % 2];
}

const void *zro__payload_of(const zro__board *board, int rank)
{
    return zro__is_near(board, rank) ? zro__slot_of(board, rank)->payload[board->number % 2]
                                     : mirror_of(board, rank)->payload[board->number % 2];
}

zro_status zro__refusal_of(const zro__board *board, int rank)
{
    const zro__header *header = zro__header_of(board, rank);

    return header->flags & ZRO__HEADER_REFUSES ? (zro_status)header->weight : ZRO_OK;
}

uint64_t zro__arrived_of(const zro__board *board, int rank)
{
    return zro__arrived(zro__arrivals_of(board, rank));
}

uint64_t zro__arrived(zro__arrival *arrived)
{
    uint64_t even = atomic_load_explicit(&arrived[0].word.value, memory_order_acquire);
    uint64_t odd = atomic_load_explicit(&arrived[1].word.value, memory_order_acquire);

    return even > odd ? even : odd;
}

zro__word *zro__arrival_write(zro__arrival *arrived, const zro__header *header)
{
    enum { OWN = offsetof(zro__header, flags) }; /* number and sleepers are the word's */
    zro__arrival *arrival = &arrived[header->number % 2];

    memcpy((char *)arrival + OWN, (const char *)header + OWN, sizeof *header - OWN);
    return &arrival->word;
}

void zro__board_serve(zro__board *board, int32_t number)
{
    board->handle = (uint8_t)(number < 0 ? 0 : 1 + number % UINT8_MAX);
}

zro_status zro__arrive(zro__board *board, zro__header *header, size_t payload_bytes)
{
    zro_status st = zro__verdict_get(board->control);
    zro__slot *slot = zro__slot_of(board, board->rank);
    zro__word *word;

    if (st != ZRO_OK)
        return st;
    (void)ZRO__POINT("slot.arrive");
    header->number = ++board->number;
    header->handle = board->handle;
    board->waited_ms = 0;
    slot->ring[header->number % ZRO__RING] = *header;
    word = zro__arrival_write(slot->arrived, header);
    (void)ZRO__POINT("slot.header");
    zro__post(word, header->number);
    if (board->far != NULL)
        board->far->send_arrival(board->far->poller.self, header, zro__payload_of(board, board->rank), payload_bytes);
    (void)ZRO__POINT("slot.arrived");
    if (board->counters != NULL)
        zro__count(&board->counters->operations, 1);
    return ZRO_OK;
}

static int same_call(const zro__header *a, const zro__header *b)
{
    return a->call == b->call && a->dtype == b->dtype && a->op == b->op && a->root == b->root && a->count == b->count
           && a->tag == b->tag;
}

/* A rank that refuses an iteration of a ddp does so in the step of any of its optimizers. */
static int same_operation(const zro__header *a, const zro__header *b)
{
    return same_call(a, b) && (a->handle == b->handle || ((a->flags | b->flags) & ZRO__HEADER_REFUSES) != 0);
}

/* What a rank has called and, where it refuses that, why: often it would have called the same as the others, had it not failed. */
static const char *describe(const zro__board *board, int rank, char *text, size_t bytes)
{
    const zro_status refusal = zro__refusal_of(board, rank);
    char what[160];

    zro__header_text(zro__header_of(board, rank), what, sizeof what);
    if (refusal == ZRO_OK)
        snprintf(text, bytes, "%s", what);
    else
        snprintf(text, bytes, "%s, which failed there: %s: %s", what, zro_status_name(refusal),
                 (const char *)zro__payload_of(board, rank));
    return text;
}

/* The first rank that differs from rank 0 is the same for everybody, so all ranks find the same words.  (If there is none, some ranks
 * were called for different handles, and that is excused by a refusal of rank 0.) */
static zro_status tell_difference(zro__board *board)
{
    const zro__header *first = zro__header_of(board, 0);
    char name[64], zero[64], a[400], b[400];

    for (int r = 1; r < board->size; r++) {
        if (same_operation(first, zro__header_of(board, r)))
            continue;
        describe(board, 0, a, sizeof a);
        describe(board, r, b, sizeof b);
        zro__fail(ZRO_ERR_MISMATCH, "the ranks called different things: %s %s; %s %s%s",
                  zro__rank_name(board, 0, zero, sizeof zero), a, zro__rank_name(board, r, name, sizeof name), b,
                  strcmp(a, b) == 0 ? " with other counts or settings" : "");
        return zro__break(board, ZRO_ERR_MISMATCH, -1);
    }
    return ZRO_OK;
}

/* Each rank compares with its own header.  A refusal excuses nothing here: else the rank that refuses would not see that two others
 * differ. */
static zro_status compare_headers(zro__board *board)
{
    const zro__header *mine = zro__header_of(board, board->rank);
    int differ = 0;

    board->flags = 0;
    for (int r = 0; r < board->size; r++) {
        const zro__header *h = zro__header_of(board, r);

        board->flags |= h->flags;
        differ |= !same_call(mine, h) || h->handle != mine->handle;
    }
    return differ ? tell_difference(board) : ZRO_OK;
}

zro_status zro__gather_arrivals(zro__board *board, size_t payload_bytes)
{
    const char *next = zro__payload(board);
    zro_status st;

    for (int r = 0; r < board->size; r++) {
        if (r == board->rank)
            continue;
        st = zro__wait(board, &zro__arrivals_of(board, r)[board->number % 2].word, board->number, r, &board->waited_ms);
        if (st != ZRO_OK)
            return st;
    }
    /* A rank that computes next does not help its link any more: so its own arrival must have gone to all. */
    st = board->far == NULL ? ZRO_OK : wait_with(board, &board->far->told, board->number, check_told, -1, &board->waited_ms);
    if (st != ZRO_OK)
        return st;
    /* All have finished the operation before this one.  What they read of it the next one writes: fetch it back meanwhile. */
    for (size_t b = 0; b < payload_bytes && b < PREFETCH_BYTES; b += 64)
        __builtin_prefetch(next + b, 1, 3);
    (void)ZRO__POINT("slot.gathered");
    return compare_headers(board);
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
        /* Survivors have not published either: the one that broke the group comes first. */
        if (last < *published || (last == *published && r == board->control->culprit)) {
            *published = last;
            *rank = r;
        }
    }
    return *begun != *published;
}
