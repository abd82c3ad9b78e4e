/* The board: a group as its ranks see it in shared memory, with one slot per rank (not the slots of update rules,
 * which are state of an optimizer).  The protocol stands at the head of slot.c.
 *
 * A board needs no memory of its own besides the mapping, so that a create that ran out of memory can still vote. */
#ifndef ZRO_BOARD_SLOT_H
#define ZRO_BOARD_SLOT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/trace.h"
#include "board/life.h"
#include "board/word.h"

enum {
    ZRO__RING = 16,           /* headers that a slot remembers */
    ZRO__PAYLOAD_BYTES = 8192 /* that can travel with an arrival */
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
    ZRO__CALL_PARAMS_ALL_REDUCE,
    ZRO__CALL_OPTIM_CREATE,
    ZRO__CALL_ADD_PARAM_GROUP,
    ZRO__CALL_STEP,
    ZRO__CALL_NORM,
    ZRO__CALL_PUBLISH,
    ZRO__CALL_CONSOLIDATE,
    ZRO__CALL_LOAD,
    ZRO__CALL_DDP_CREATE,
    ZRO__CALL_DDP_FORWARD,
    ZRO__CALL_DDP_BUCKET,
    ZRO__CALL_DDP_AVERAGE,
    ZRO__CALL_DDP_CHECK,
    ZRO__CALL_JOIN,
    ZRO__CALL_SAVE,
    ZRO__CALL_RESUME,
    ZRO__CALL_COUNT
} zro__call;

/* One operation of one rank: a cache line. */
typedef struct zro__header {
    uint64_t number;   /* set by zro__arrive */
    uint32_t sleepers; /* in an arrival, which shares its bytes with a word: how many waiters sleep on that */
    uint32_t flags;    /* may differ between ranks */
    uint8_t call;
    uint8_t handle; /* set by zro__arrive: the board's */
    uint8_t dtype;  /* ZRO__HEADER_NO_DTYPE: there is nothing to count */
    uint8_t op;
    int32_t root; /* -1: none */
    uint64_t count;
    uint64_t tag;     /* hash of whatever else the ranks must agree about */
    uint64_t in, out; /* where this rank's arrays lie in the memfd, or NOWHERE; may differ between ranks */
    double weight;    /* may differ between ranks; of a rank that refuses: its status */
} zro__header;

#define ZRO__HEADER_IN_SLOW UINT32_C(1)  /* this rank neither reads pieces in place, nor are its own read so */
#define ZRO__HEADER_OUT_SLOW UINT32_C(2) /* the same of results, and of writing */
#define ZRO__HEADER_SLOW (ZRO__HEADER_IN_SLOW | ZRO__HEADER_OUT_SLOW)
#define ZRO__HEADER_REFUSES UINT32_C(4)    /* this rank refuses the operation; its payload begins with the reason */
#define ZRO__HEADER_NO_PAYLOAD UINT32_C(8) /* this rank brings no piece, though it would fit: it is to be read in place */
#define ZRO__HEADER_NO_DTYPE UINT8_MAX

_Static_assert(sizeof(zro__header) == 64, "a header is a cache line");

/* The word and the header of an operation in one cache line, so that only that crosses.  The word is the header's number. */
typedef union zro__arrival {
    zro__word word;
    zro__header header;
} zro__arrival;

_Static_assert(sizeof(zro__arrival) == 64, "an arrival is a cache line");

/* A notice to future members of a group (group/create.c): where its control block lies, or why it could not be made.  Its writer does
 * not wait for readers, and overwrites: a reader that is not a member of the newer groups must look at `number` before and
 * after (0 while it is written). */
typedef struct zro__notice {
    _Atomic uint64_t number, key, offset, channel;
    _Atomic int32_t code;
    char text[ZRO__TEXT_BYTES]; /* of a failure */
} zro__notice;

enum { ZRO__NOTICES = 4 }; /* that a slot remembers */

typedef struct zro__slot {
    zro__arrival arrived[2]; /* the last two operations arrived at: k is arrived[k % 2] */
    zro__word done;          /* number of the last operation in which this rank touched memory of others, and does so no more */
    _Alignas(64) _Atomic uint32_t left; /* 1: this rank destroyed the group */
    _Atomic int32_t waits_for;          /* 1 + the rank that this one waits for, once that takes long; 0: none */
    _Atomic uint64_t begun, published;  /* steps of an optimizer: owners set one before and the other after their part */
    zro__word noticed;                  /* number of notices so far; notice n is notices[n % NOTICES] */
    zro__notice notices[ZRO__NOTICES];

    /* Number of the last operation in which this rank began to touch memory of others.  Far from what others read in every
     * operation: beside `done`, their prefetchers would fetch its line, too, and each store would have to get it back. */
    _Alignas(64) _Atomic uint64_t touching;
    _Alignas(64) zro__header ring[ZRO__RING]; /* for texts, and for the rank itself */
    _Alignas(64) char payload[2][ZRO__PAYLOAD_BYTES];
} zro__slot;

enum { ZRO__WHOLE = 0, ZRO__BREAKING = 1, ZRO__BROKEN = 2 }; /* a verdict */

typedef struct zro__control {
    zro__word verdict; /* BREAKING: somebody has claimed it and writes code and text */
    int32_t code;
    int32_t culprit;           /* the rank whose death or silence broke the group, or -1 */
    _Atomic uint64_t given_up; /* ~ the number of the first transfer that a rank has given up; 0: none */
    char text[ZRO__TEXT_BYTES];
    _Atomic int32_t leavers;       /* ranks that have destroyed the group; the last one gives the memory back, */
    _Atomic int32_t pinned;        /* unless a link still uses it */
    _Atomic uint64_t buffer_bytes; /* that near ranks have taken for messages since the group was made */
    int32_t size;
    int32_t member[]; /* the members' ranks in the world, `size` of them, then their indices; then come the slots */
} zro__control;

/* The index of a near rank's slot, or, for a far rank, ~ the index of its mirror. */
static inline int zro__slot_index(const zro__control *control, int rank)
{
    return control->member[control->size + rank];
}

/* What this rank knows of a far one, with whom it shares no memory: those parts of its slot that are read, kept by messages. */
typedef struct zro__mirror {
    zro__arrival arrived[2];
    zro__word noticed;
    zro__notice *notices;   /* ZRO__NOTICES of them; NULL before the first */
    const void *payload[2]; /* of the last two arrivals */
    const char *failure;    /* why it cannot be reached any more, or NULL */
    uint64_t told;          /* number of the last arrival of this rank that has gone to it */
    _Atomic uint32_t left;
} zro__mirror;

/* The far ranks of a group as the board uses them; link/far_ranks.c stands behind it. */
typedef struct zro__far_table {
    zro__poller poller;
    zro__word told;     /* the least of the mirrors' */
    size_t short_bytes; /* the longest payload that travels with its header */
    zro__mirror *(*mirror)(void *self, int index);
    void (*send_arrival)(void *self, const zro__header *header, const void *payload, size_t bytes);
    void (*send_verdict)(void *self, zro_status code, int culprit, const char *text);
} zro__far_table;

/* The boards of all groups that a rank is in.  A rank that is missed in one group may wait in another: so texts look there. */
typedef struct zro__boards {
    pthread_mutex_t lock;
    struct zro__board *first;
} zro__boards;

typedef struct zro__board {
    zro__control *control;
    zro__slot *slots;    /* of the near ranks, by index */
    zro__life *lives;    /* of the world, indexed by member */
    zro__far_table *far; /* NULL if there are no far ranks */
    int rank, size;
    uint64_t timeout_ms;
    uint64_t number;    /* operations that this rank has begun */
    uint64_t waited_ms; /* how long this one has waited for ranks to arrive and to finish */
    uint32_t flags;     /* those that any rank has set in its header of this operation; from gather_arrivals on */
    uint8_t handle;     /* for which of the handles that share the group operations are made: 0, or that of an optimizer */
    atomic_int settled; /* 1: the group is broken, and this rank has waited for those who touched its memory */
    zro__counters *counters;
    zro__boards *boards;          /* of this rank; NULL: not known yet */
    const zro_settings *settings; /* for warnings; NULL: none are said */
    zro__trace *trace;            /* of this rank; NULL: it is not traced */
    struct zro__meet *meet;       /* where a rank that is lost is noted for `zro run` (board/meet.h); NULL: nobody asks */
    struct zro__board *next;
} zro__board;

enum {
    ZRO__NAP_US = 50,
    ZRO__LANE_NAP_US = 1000
}; /* of a far table's poller; short naps beside a computing program cost it dearly */

/* Bytes of control block and slots; where the slots begin. */
size_t zro__board_bytes(int size, int n_near);
zro__slot *zro__board_slots(zro__control *control);

/* Ranks that share memory are near each other. */
int zro__is_near(const zro__board *board, int rank);
int zro__first_near(const zro__board *board);

/* The slot of a near rank. */
static inline zro__slot *zro__slot_of(const zro__board *board, int rank)
{
    /* without far ranks all are near, in order */
    return &board->slots[board->far == NULL ? rank : zro__slot_index(board->control, rank)];
}

/* What can be seen of any rank, near or far: its last two arrivals, whether it has left, its notices. */
zro__arrival *zro__arrivals_seen(const zro__board *board, int rank);
static inline zro__arrival *zro__arrivals_of(const zro__board *board, int rank)
{
    return board->far == NULL ? board->slots[rank].arrived : zro__arrivals_seen(board, rank);
}
int zro__has_left(const zro__board *board, int rank);
zro__word *zro__noticed_of(const zro__board *board, int rank);
zro__notice *zro__notice_of(const zro__board *board, int rank, uint64_t number);

/* What `arrive` and `gather_arrivals` do is one barrier that carries a header and up to ZRO__PAYLOAD_BYTES.
 *
 * payload: this rank's buffer for the operation about to begin, to be filled before `arrive`.
 * arrive: begins the operation; refuses if the group is broken.
 * gather_arrivals: waits for all and compares their headers with rank 0's; a difference breaks the group.
 * After it, header_of and payload_of any rank may be read until this rank arrives again. */
void *zro__payload(zro__board *board);
zro_status zro__arrive(zro__board *board, zro__header *header, size_t payload_bytes);
zro_status zro__gather_arrivals(zro__board *board, size_t payload_bytes);

/* Operations from now on are made for the optimizer that was attached to a ddp as this number, or, if it is below 0, for no particular
 * one.  Ranks that make the same call for different optimizers make different calls.  Inside the lane. */
void zro__board_serve(zro__board *board, int32_t number);

/* The number of the last operation that a rank has arrived at. */
uint64_t zro__arrived_of(const zro__board *board, int rank);

/* The number of the last of two arrivals.  write: all of an arrival but the post of its word, which is returned. */
uint64_t zro__arrived(zro__arrival *arrived);
zro__word *zro__arrival_write(zro__arrival *arrived, const zro__header *header);

/* This rank's own is read from the ring: its arrival is in the others' caches by now, and to load that from there takes as long as a
 * rank takes to hear of another's arrival. */
static inline const zro__header *zro__header_of(const zro__board *board, int rank)
{
    return rank == board->rank ? &zro__slot_of(board, rank)->ring[board->number % ZRO__RING]
                               : &zro__arrivals_of(board, rank)[board->number % 2].header;
}
const void *zro__payload_of(const zro__board *board, int rank);

/* After gather_arrivals: OK, or the status with which a rank refuses the operation. */
zro_status zro__refusal_of(const zro__board *board, int rank);

/* Waits until the word, which `rank` posts, has reached `target`.  The only wait for peers inside operations.  Several waits that
 * are one to the program share a deadline: *waited_ms is what they have taken so far; NULL: this one has a deadline of its own.
 *
 * LOST, TIMEOUT (both break the group), or the verdict of a group that broke meanwhile. */
zro_status zro__wait(zro__board *board, zro__word *word, uint64_t target, int rank, uint64_t *waited_ms);

/* The same with another check of when to give up. */
zro_status zro__board_wait(zro__board *board, zro__word *word, uint64_t target, zro__check_fn check, void *user);

/* Whether there is a verdict.  text: waits for its text, and returns it.  get: OK, or the verdict with its text. */
zro_status zro__verdict_text(const zro__control *control);
static inline int zro__is_broken(const zro__control *control)
{
    /* Sequentially consistent: see "Breaking" at the head of slot.c.  Atomics take no const. */
    return atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)&control->verdict.value, memory_order_seq_cst) != ZRO__WHOLE;
}
static inline zro_status zro__verdict_get(const zro__control *control)
{
    return zro__is_broken(control) ? zro__verdict_text(control) : ZRO_OK;
}

/* Breaks the group with the calling thread's error text, unless it is broken already; returns the verdict that holds.  `culprit`
 * is the rank that is gone or does not come, or -1. */
zro_status zro__break(zro__board *board, zro_status code, int culprit);

/* The same for what a far rank told: it has told all others itself. */
int zro__control_break(zro__control *control, zro_status code, int culprit, const char *text);

/* Puts a board among the others of its rank, or takes it out; nothing happens where these are not known. */
void zro__board_join(zro__board *board);
void zro__board_quit(zro__board *board);

/* Why a rank cannot be waited for any more (it is dead, or its link has failed), or NULL. */
const char *zro__gone(const zro__board *board, int rank);

/* Says that this rank has begun, or published, so many steps.  torn: of a broken group, whether ranks that can be seen have
 * begun and published different numbers; *rank is one that has not published what another has begun. */
void zro__step_begin(zro__board *board, uint64_t steps);
void zro__step_publish(zro__board *board, uint64_t steps);
int zro__step_torn(const zro__board *board, int *rank, uint64_t *begun, uint64_t *published);

#endif
