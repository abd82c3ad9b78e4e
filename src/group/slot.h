/* The board: a group as its ranks see it in shared memory, one slot a rank.  The protocol stands at the head of slot.c.
 *
 * A board needs no memory of its own besides the mapping, so that a create that ran out of memory can still vote. */
#ifndef ZRO_GROUP_SLOT_H
#define ZRO_GROUP_SLOT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "group/life.h"

enum {
    ZRO__RING = 256,           /* headers that a slot remembers */
    ZRO__PAYLOAD_BYTES = 8192, /* that can travel with an arrival */
    ZRO__MAX_RANKS = 4096
};

#define ZRO__NOWHERE UINT64_MAX

/* What an operation is, for comparison and for texts. */
typedef enum zro__call {
    ZRO__CALL_NONE,
    ZRO__CALL_CREATE,
    ZRO__CALL_MEMORY,
    ZRO__CALL_BARRIER,
    ZRO__CALL_ALL_REDUCE,
    ZRO__CALL_REDUCE,
    ZRO__CALL_REDUCE_SCATTER,
    ZRO__CALL_BROADCAST,
    ZRO__CALL_BROADCAST_BYTES,
    ZRO__CALL_GATHER,
    ZRO__CALL_ALL_GATHER,
    ZRO__CALL_STOP_REQUESTED,
    ZRO__CALL_TRANSFER,
    ZRO__CALL_PARAMS_ALLOC,
    ZRO__CALL_OPTIM_CREATE,
    ZRO__CALL_ADD_PARAM_GROUP,
    ZRO__CALL_STEP,
    ZRO__CALL_NORM,
    ZRO__CALL_PUBLISH,
    ZRO__CALL_CONSOLIDATE,
    ZRO__CALL_LOAD,
    ZRO__CALL_COUNT
} zro__call;

/* One operation of one rank: a cache line. */
typedef struct zro__header {
    uint64_t number;   /* set by zro__arrive */
    uint32_t reserved; /* in an arrival: the word's sleepers */
    uint32_t flags;    /* differs between ranks */
    uint16_t call;
    uint8_t dtype, op;
    int32_t root; /* -1: none */
    uint64_t count;
    uint64_t tag;     /* hash of whatever else the ranks must agree about */
    uint64_t in, out; /* where this rank's arrays lie in the memfd, or NOWHERE; differs between ranks */
    double weight;    /* differs between ranks */
} zro__header;

#define ZRO__HEADER_SLOW UINT32_C(1) /* this rank neither reads nor is read in place */

_Static_assert(sizeof(zro__header) == 64, "a header is a cache line");

/* A number that only grows, written by one rank, waited for by others. */
typedef struct zro__word {
    _Alignas(64) _Atomic uint64_t value;
    _Atomic uint32_t
        sleepers; /* waiters that may be in the kernel; too large after a waiter's death, which costs a system call */
} zro__word;

/* The word and the header of an operation in one cache line, so that only that crosses.  The word is the header's number. */
typedef union zro__arrival {
    zro__word word;
    zro__header header;
} zro__arrival;

_Static_assert(sizeof(zro__arrival) == 64, "an arrival is a cache line");

/* A notice to future members of a group (sub.c): where its control block lies, or why it could not be made.  Its writer does
 * not wait for readers, and overwrites: a reader that is not a member of the newer groups must look at `number` before and
 * after (0 while it is written). */
typedef struct zro__notice {
    _Atomic uint64_t number, key, offset, channel;
    _Atomic int32_t code;
    char text[ZRO__TEXT_BYTES]; /* of a failure */
} zro__notice;

enum { ZRO__NOTICES = 4 }; /* that a slot remembers */

typedef struct zro__slot {
    zro__arrival arrived[2];            /* the last two operations arrived at: k is arrived[k % 2] */
    zro__word done;                     /* number of the last transfer whose direct accesses are over */
    _Alignas(64) _Atomic uint32_t left; /* 1: this rank destroyed the group */
    _Atomic uint64_t begun, published;  /* steps of an optimizer: owners set one before and the other after their part */
    zro__word noticed;                  /* number of notices so far; notice n is notices[n % NOTICES] */
    zro__notice notices[ZRO__NOTICES];
    _Alignas(64) zro__header ring[ZRO__RING]; /* for texts */
    _Alignas(64) char payload[2][ZRO__PAYLOAD_BYTES];
} zro__slot;

typedef enum zro__verdict { ZRO__WHOLE = 0, ZRO__BREAKING = 1, ZRO__BROKEN = 2 } zro__verdict;

typedef struct zro__control {
    _Alignas(64) _Atomic uint32_t verdict;
    int32_t code;
    char text[ZRO__TEXT_BYTES];
    _Atomic int32_t leavers; /* ranks that have destroyed the group; the last one gives the memory back, */
    _Atomic int32_t pinned;  /* unless a link still uses it */
    int32_t size;
    int32_t member[]; /* the members' ranks in the world, `size` of them, then their places; then the slots, then the links */
} zro__control;

/* Where a rank's slot is: the place-th here, or, for a far rank, the ~place-th of the wire. */
static inline int zro__place_of(const zro__control *control, int rank)
{
    return control->member[control->size + rank];
}

/* Counters of one rank in one group; atomic, because another thread may ask for them. */
typedef struct zro__counters {
    _Atomic uint64_t operations, direct_bytes, link_bytes, link_messages, waits, sleeps, wait_ns, deliveries;
} zro__counters;

/* A group does one thing at a time, so each counter has one writer, and needs no locked addition. */
static inline void zro__count(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n, memory_order_relaxed);
}

typedef struct zro__wire zro__wire;

typedef struct zro__board {
    zro__control *control;
    zro__slot *slots; /* of the near ranks, by place */
    zro__life *lives; /* of the world, indexed by member */
    zro__wire *wire;  /* to the far ranks; NULL if there are none */
    int rank, size;
    uint64_t timeout_ms;
    uint64_t nap_us; /* how long a wait with a wire sleeps between two polls */
    uint64_t number; /* operations that this rank has begun */
    zro__counters *counters;
} zro__board;

enum { ZRO__NAP_US = 50, ZRO__LANE_NAP_US = 1000 }; /* short naps beside a computing program would cost it dearly */

/* Bytes of control block and slots; where the slots begin. */
size_t zro__board_bytes(int size, int n_near);
zro__slot *zro__board_slots(zro__control *control);

/* Ranks that share memory are near each other. */
int zro__is_near(const zro__board *board, int rank);
int zro__first_near(const zro__board *board);
zro__slot *zro__far_slot_of(const zro__board *board, int rank); /* where there are far ranks */
static inline zro__slot *zro__slot_of(const zro__board *board, int rank)
{
    return board->wire == NULL ? &board->slots[rank] : zro__far_slot_of(board, rank); /* all are near, in order */
}

/* What `arrive` and `gather_arrivals` do is one barrier that carries a header and up to ZRO__PAYLOAD_BYTES.
 *
 * payload: this rank's buffer for the operation about to begin, to be filled before `arrive`.
 * arrive: begins the operation; refuses if the group is broken.
 * gather_arrivals: waits for all and compares their headers with rank 0's; a difference breaks the group.
 * After it, header_of and payload_of any rank may be read until this rank arrives again. */
void *zro__payload(zro__board *board);
zro_status zro__arrive(zro__board *board, zro__header *header, size_t payload_bytes);
zro_status zro__gather_arrivals(zro__board *board, size_t payload_bytes);

/* The number of the last operation that the slot's rank arrived at.  write: all of an arrival but its post. */
uint64_t zro__slot_arrived(zro__slot *slot);
zro__word *zro__slot_write(zro__slot *slot, const zro__header *header);
const zro__header *zro__header_of(const zro__board *board, int rank);
const void *zro__payload_of(const zro__board *board, int rank);

/* Releases `value` to those who wait for it. */
void zro__post(zro__word *word, uint64_t value);

/* Waits until the word, which `rank` posts, has reached `target`.  The only wait for peers.
 *
 * LOST, TIMEOUT (both break the group), or the verdict of a group that broke meanwhile. */
zro_status zro__wait(zro__board *board, zro__word *word, uint64_t target, int rank);

/* The same ladder of spins, yields and sleeps for words outside a board: `check` is called now and then with the time waited
 * so far in ms (as zro__wait counts it) and ends the wait by returning something else than OK. */
typedef zro_status (*zro__check_fn)(void *user, uint64_t waited_ms);
zro_status zro__word_wait(zro__word *word, uint64_t target, zro__check_fn check, void *user, zro__counters *counters);

/* The same while a board's wire is polled, if it has one. */
zro_status zro__board_wait(zro__board *board, zro__word *word, uint64_t target, zro__check_fn check, void *user);

/* OK, or the verdict with its text. */
zro_status zro__verdict_get(const zro__control *control);

/* Breaks the group with the calling thread's error text, unless it is broken already; returns the verdict that holds. */
zro_status zro__break(zro__board *board, zro_status code);

/* The same for what a far rank told: it has told all others itself. */
int zro__control_break(zro__control *control, zro_status code, const char *text);

/* Why a rank cannot be waited for any more (it is dead, or its link has failed), or NULL. */
const char *zro__gone(const zro__board *board, int rank);

/* Both are part of `call`, whose name texts give.
 *
 * Every rank brings its status; all leave with the same answer: OK, or on a failing rank its own status and on the others
 * PEER (MISMATCH, if it is that) with the text of the lowest failing rank.  Collective. */
zro_status zro__vote(zro__board *board, zro__call call, zro_status mine);

/* Compares descriptions; a difference is MISMATCH on all, naming the first rank that differs from rank 0.  `mine` is voted on
 * with it, and the `number` of the first near rank is given to all near it.  Descriptions longer than a few thousand characters
 * are cut.  Collective. */
zro_status zro__agree(zro__board *board, zro__call call, const char *what, const char *description, uint64_t *number,
                      zro_status mine);

/* Says that this rank has begun, or published, so many steps.  torn: of a broken group, whether ranks that can be seen have
 * begun and published different numbers; *rank is one that has not published what another has begun. */
void zro__step_begin(zro__board *board, uint64_t steps);
void zro__step_publish(zro__board *board, uint64_t steps);
int zro__step_torn(const zro__board *board, int *rank, uint64_t *begun, uint64_t *published);

/* "rank 1", or "rank 1 (3 of the first group)" where the numbers differ. */
const char *zro__rank_name(const zro__board *board, int rank, char *text, size_t bytes);

/* "operation 12: all_reduce of 1000 f32 (sum)". */
const char *zro__header_text(const zro__header *header, char *text, size_t bytes);

/* A hash of words, to be chained; start with ZRO__HASH_START.  Ranks compare it, so all of them have the same library. */
#define ZRO__HASH_START UINT64_C(14695981039346656037)
uint64_t zro__hash(uint64_t hash, const void *bytes, size_t n);

#endif
