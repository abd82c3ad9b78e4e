/* Life words: how a rank's death is seen by the others.
 *
 * Each rank of a world has one life in shared memory.  Its word is a robust futex held by a small thread of the rank's
 * process: when the process dies, however it dies, the kernel sets FUTEX_OWNER_DIED in it within a fraction of a millisecond,
 * long before the process can be reaped.  A rank that is a thread of zro_spawn_threads holds no futex; the thread's end marks
 * the word by itself (zro__life_mark_dead).
 *
 * A rank that dies before it has taken its word is found by its process number, which everybody has from its ticket.
 *
 * Only the owner writes `link`; `word` is written by the owner and the kernel; everybody reads `word`, and writes the same
 * number to `pid`. */
#ifndef ZRO_BOARD_LIFE_H
#define ZRO_BOARD_LIFE_H

#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>

#include "zro.h"

typedef struct zro__life {
    _Alignas(64) struct robust_list link; /* an address of the owner's process: nobody else follows it */
    _Atomic uint32_t word; /* 0: not taken yet; a thread id: the rank lives; FUTEX_OWNER_DIED: it died; LEFT: it left */
    _Atomic int32_t pid;   /* the process number as /proc shows it; 0: not known */
    _Atomic int32_t came;  /* 1: the rank has read whether the first group's memory is there */
} zro__life;

enum { ZRO__LIFE_LEFT = FUTEX_TID_MASK };

/* The thread that holds a life word; process-local. */
typedef struct zro__holder {
    pthread_t thread;
    struct robust_list_head list; /* that the kernel walks when the thread dies: `life` alone is on it */
    zro__life *life;
    sem_t held;  /* posted once the thread holds the word */
    sem_t end;   /* posted when the thread is to let go */
    int started; /* 1: there is a thread */
} zro__holder;

/* Takes the life word; returns when it is held. */
zro_status zro__life_hold(zro__holder *holder, zro__life *life);

/* Lets go in an orderly way.  Takes a holder that holds nothing. */
void zro__life_release(zro__holder *holder);

/* For ranks that are threads, and have no holder. */
void zro__life_mark_alive(zro__life *life);
void zro__life_mark_dead(zro__life *life);

/* Whether the rank is dead: its word says so, or it has not taken its word and its process has ended. */
int zro__life_is_dead(zro__life *life);

/* Whether a process is gone, or dead and not yet reaped, by its number in /proc; without /proc none is. */
int zro__process_ended(int32_t pid);

#endif
