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
    ZRO__CALL_TRANSFER,
    ZRO__CALL_COUNT
} zro__call;

/* One operation of one rank: a cache line. */
typedef struct zro__header {
    uint64_t number; /* set by zro__arrive */
    uint16_t call;
    uint8_t dtype, op;
    int32_t root; /* -1: none */
    uint64_t count;
    uint64_t tag;     /* hash of whatever else the ranks must agree about */
    uint64_t in, out; /* where this rank's arrays lie in the memfd, or NOWHERE; differs between ranks */
    double weight;    /* differs between ranks */
    uint64_t flags;   /* differs between ranks */
} zro__header;

#define ZRO__HEADER_SLOW UINT64_C(1) /* this rank neither reads nor is read in place */

_Static_assert(sizeof(zro__header) == 64, "a header is a cache line");

/* A number that only grows, written by one rank, waited for by others. */
typedef struct zro__word {
    _Alignas(64) _Atomic uint64_t value;
    _Atomic uint32_t
        sleepers; /* waiters that may be in the kernel; too large after a waiter's death, which costs a system call */
} zro__word;

/* A notice to future members of a group (create.c): where its control block lies, or why it could not be made.  Its writer does
 * not wait for readers, and overwrites: a reader that is not a member of the newer groups must look at `number` before and
 * after (0 while it is written). */
typedef struct zro__notice {
    _Atomic uint64_t number, key, offset;
    _Atomic int32_t code;
    char text[ZRO__TEXT_BYTES]; /* of a failure */
} zro__notice;

enum { ZRO__NOTICES = 4 }; /* that a slot remembers */

typedef struct zro__slot {
    zro__word arrived;                  /* number of the last operation arrived at */
    zro__word done;                     /* number of the last transfer whose direct accesses are over */
    _Alignas(64) _Atomic uint32_t left; /* 1: this rank destroyed the group */
    zro__word noticed;                  /* number of notices so far; notice n is notices[n % NOTICES] */
    zro__notice notices[ZRO__NOTICES];
    _Alignas(64) zro__header ring[ZRO__RING];
    _Alignas(64) char payload[2][ZRO__PAYLOAD_BYTES];
} zro__slot;

typedef enum zro__verdict { ZRO__WHOLE = 0, ZRO__BREAKING = 1, ZRO__BROKEN = 2 } zro__verdict;

typedef struct zro__control {
    _Alignas(64) _Atomic uint32_t verdict;
    int32_t code;
    char text[ZRO__TEXT_BYTES];
    _Atomic int32_t leavers; /* ranks that have destroyed the group; the last one gives the memory back */
    int32_t size;
    int32_t member[]; /* the members' ranks in the world; `size` of them; then the slots, then the links */
} zro__control;

/* Counters of one rank; relaxed, because another thread may ask for them. */
typedef struct zro__counters {
    _Atomic uint64_t operations, direct_bytes, link_bytes, link_messages, waits, sleeps, wait_ns;
} zro__counters;

typedef struct zro__board {
    zro__control *control;
    zro__slot *slots; /* size of them */
    zro__life *lives; /* of the world, indexed by member */
    int rank, size;
    uint64_t timeout_ms;
    uint64_t number; /* operations that this rank has begun */
    zro__counters *counters;
} zro__board;

/* Bytes of control block and slots; where the slots begin. */
size_t zro__board_bytes(int size);
zro__slot *zro__board_slots(zro__control *control, int size);

/* What `arrive` and `gather_arrivals` do is one barrier that carries a header and up to ZRO__PAYLOAD_BYTES.
 *
 * payload: this rank's buffer for the operation about to begin, to be filled before `arrive`.
 * arrive: begins the operation; refuses if the group is broken.
 * gather_arrivals: waits for all and compares their headers with rank 0's; a difference breaks the group.
 * After it, header_of and payload_of any rank may be read until this rank arrives again. */
void *zro__payload(zro__board *board);
zro_status zro__arrive(zro__board *board, zro__header *header);
zro_status zro__gather_arrivals(zro__board *board);
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

/* OK, or the verdict with its text. */
zro_status zro__verdict_get(const zro__control *control);

/* Breaks the group with the calling thread's error text, unless it is broken already; returns the verdict that holds. */
zro_status zro__break(zro__board *board, zro_status code);

/* Both are part of `call`, whose name texts give.
 *
 * Every rank brings its status; all leave with the same answer: OK, or on a failing rank its own status and on the others
 * PEER (MISMATCH, if it is that) with the text of the lowest failing rank.  Collective. */
zro_status zro__vote(zro__board *board, zro__call call, zro_status mine);

/* Compares descriptions; a difference is MISMATCH on all, naming the first rank that differs from rank 0.  `mine` is voted on
 * with it, and rank 0's `number` is given to all.  Descriptions longer than a few thousand characters are cut.  Collective. */
zro_status zro__agree(zro__board *board, zro__call call, const char *what, const char *description, uint64_t *number,
                      zro_status mine);

/* "rank 1", or "rank 1 (3 of the first group)" where the numbers differ. */
const char *zro__rank_name(const zro__board *board, int rank, char *text, size_t bytes);

/* "operation 12: all_reduce of 1000 f32 (sum)". */
const char *zro__header_text(const zro__header *header, char *text, size_t bytes);

/* 64-bit FNV-1a, to be chained; start with ZRO__HASH_START. */
#define ZRO__HASH_START UINT64_C(14695981039346656037)
uint64_t zro__hash(uint64_t hash, const void *bytes, size_t n);

#endif
