/* Words: numbers in shared memory that only grow, and the one way to wait for them.
 *
 * A word is written by one rank (a few, by zro__word_add, by several); others wait until it has reached a number.  Whatever was
 * written before the word was posted can be read by whoever has seen the new number.  All waiting for other ranks comes down to
 * zro__word_wait: inside operations through zro__wait (slot.h), directly only while a group is being formed. */
#ifndef ZRO_BOARD_WORD_H
#define ZRO_BOARD_WORD_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/status.h"

typedef struct zro__word {
    _Alignas(64) _Atomic uint64_t value;
    _Atomic uint32_t
        sleepers; /* waiters that may be in the kernel; stays too large after a waiter's death, which costs posters a
                                  system call each */
} zro__word;

/* Counters of one rank in one group; atomic, because another thread may ask for them. */
typedef struct zro__counters {
    _Atomic uint64_t operations, direct_bytes, link_bytes, link_messages, waits, sleeps, wait_ns, deliveries, passes;
} zro__counters;

/* A group does one thing at a time, so each counter has one writer, and needs no locked addition. */
static inline void zro__count(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n, memory_order_relaxed);
}

/* Releases `value` to those who wait for it.  add: one more, to a word that several ranks write. */
void zro__post(zro__word *word, uint64_t value);
void zro__word_add(zro__word *word);

/* Whether the word has reached `target`. */
static inline int zro__reached(const zro__word *word, uint64_t target)
{
    /* pairs with the store in zro__post; atomics take no const */
    return atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)&word->value, memory_order_acquire) >= target;
}

/* A program's link: its messages wake no sleeper, so whoever waits polls it. */
typedef struct zro__poller {
    void (*poll)(void *self);
    void *self;
    uint64_t nap_us; /* how long a waiter sleeps between two polls */
} zro__poller;

/* Waits until the word has reached `target`: spins, then yields, then sleeps.  `check` is called now and then with the time
 * waited so far in ms and ends the wait by returning something else than OK.  One wake-up counts for at most 100 ms of that time:
 * a job that was stopped and continued does not find its deadline passed.  `counters` and `poller` may be NULL. */
typedef zro_status (*zro__check_fn)(void *user, uint64_t waited_ms);
zro_status zro__word_wait(zro__word *word, uint64_t target, zro__check_fn check, void *user, zro__counters *counters,
                          const zro__poller *poller);

/* Sleeps for about a millisecond.  For the few places that wait for something outside of shared memory and have no word. */
void zro__nap(void);

#endif
