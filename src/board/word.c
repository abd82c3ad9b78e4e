/* Words: see word.h.
 *
 * Before it sleeps, a waiter raises `sleepers` and looks at the value again; a poster stores the value and then looks at
 * `sleepers`.  All four accesses are sequentially consistent, so at least one of the two sees the other and no wake-up is lost. */
#define _GNU_SOURCE
#include "board/word.h"

#include <linux/futex.h>
#include <sched.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cpu.h"

enum { SPINS = 100, POLLS = 10, YIELDS = 1000, YIELDS_PER_CHECK = 64, SLEEP_US = 50000, COUNTED_NS = 100000000 };

/* The futex is the low half of the value: it differs after any growth that could have been missed. */
static uint32_t *futex_of(zro__word *word)
{
    return (uint32_t *)(void *)&word->value + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
}

static void wake_sleepers(zro__word *word)
{
    if (atomic_load_explicit(&word->sleepers, memory_order_seq_cst) != 0)
        syscall(SYS_futex, futex_of(word), FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* Release for the data, sequentially consistent for the sleepers; both pair with zro__word_wait. */
void zro__post(zro__word *word, uint64_t value)
{
    atomic_store_explicit(&word->value, value, memory_order_seq_cst);
    wake_sleepers(word);
}

void zro__word_add(zro__word *word)
{
    atomic_fetch_add_explicit(&word->value, 1, memory_order_seq_cst);
    wake_sleepers(word);
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

/* A poll takes longer than a spin, so with a poller there are fewer of them before the first yield. */
static int spin(zro__word *word, uint64_t target, const zro__poller *poller)
{
    for (int i = 0; i < (poller == NULL ? SPINS : POLLS); i++) {
        if (zro__reached(word, target))
            return 1;
        if (poller != NULL)
            poller->poll(poller->self);
        else
            zro__cpu_relax();
    }
    return 0;
}

zro_status zro__word_wait(zro__word *word, uint64_t target, zro__check_fn check, void *user, zro__counters *counters,
                          const zro__poller *poller)
{
    uint64_t start, last, now, counted = 0;
    zro_status st;

    if (spin(word, target, poller))
        return ZRO_OK;
    if (counters != NULL)
        zro__count(&counters->waits, 1);
    start = last = zro__now_ns();
    for (int i = 0;; i++) {
        if (i < YIELDS) {
            sched_yield();
        } else {
            sleep_on(word, target, poller == NULL ? SLEEP_US : poller->nap_us);
            if (counters != NULL)
                zro__count(&counters->sleeps, 1);
        }
        if (poller != NULL)
            poller->poll(poller->self);
        if (zro__reached(word, target)) {
            st = ZRO_OK;
            break;
        }
        if (i < YIELDS && i % YIELDS_PER_CHECK != 0)
            continue;
        now = zro__now_ns();
        counted += now - last < COUNTED_NS ? now - last : COUNTED_NS;
        last = now;
        st = check(user, counted / 1000000);
        if (st != ZRO_OK) {
            /* The last thing that a dead or leaving rank did may have been to post. */
            if (zro__reached(word, target))
                st = ZRO_OK;
            break;
        }
    }
    if (counters != NULL)
        zro__count(&counters->wait_ns, zro__now_ns() - start);
    return st;
}

void zro__nap(void)
{
    nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
}
