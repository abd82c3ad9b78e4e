/* Threads over items: see pool.h.
 *
 * Two words carry the protocol.  `round` counts jobs: the caller writes the job, then adds one; a worker that sees a new
 * number reads the job and does its share.  `busy` counts workers that have not finished the current round: each takes one
 * away after its share, and the caller returns when none is left, so the job is never rewritten while somebody reads it.
 *
 * Whoever waits spins a little, yields a little, and then sleeps on the word, having counted itself in `sleepers` first.  Whoever
 * changes the word reads `sleepers` afterwards.  All four accesses are sequentially consistent, so either the
 * sleeper sees the new word (the kernel compares it once more) or the other sees the sleeper: no wake-up is lost, and none is
 * paid for when nobody sleeps. */
#include "base/pool.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/point.h"
#include "base/status.h"
#include "base/thread.h"

enum { SPINS = 300, YIELDS = 30 };

typedef struct worker {
    zro__pool *pool;
    pthread_t thread;
    uint32_t index; /* which share of a job it does */
} worker;

/* What never changes, what the caller writes, and what workers write stand on different cache lines. */
struct zro__pool {
    uint32_t threads; /* shares of a job, the caller's included */
    uint32_t started; /* workers that exist */
    zro__point_plan *plan;
    _Alignas(64) _Atomic uint32_t round;
    _Atomic uint32_t round_sleepers;
    zro__pool_fn fn; /* NULL: end */
    void *ctx;
    size_t items;
    _Alignas(64) _Atomic uint32_t busy;
    _Atomic uint32_t busy_sleepers;
    _Alignas(64) worker workers[]; /* threads - 1 */
};

/* Waits until *word is not `old` any more. */
static void wait_change(_Atomic uint32_t *word, _Atomic uint32_t *sleepers, uint32_t old)
{
    for (int i = 0; i < SPINS + YIELDS; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != old) /* pairs with start_round and work */
            return;
        if (i < SPINS)
            zro__cpu_relax();
        else
            sched_yield();
    }
    atomic_fetch_add(sleepers, 1);
    while (atomic_load(word) == old)
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
    atomic_fetch_sub(sleepers, 1);
}

static void wake(_Atomic uint32_t *word, _Atomic uint32_t *sleepers)
{
    if (atomic_load(sleepers) > 0)
        syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void do_share(const zro__pool *pool, uint32_t index)
{
    size_t each = pool->items / pool->threads, more = pool->items % pool->threads;
    size_t first = index * each + (index < more ? index : more), last = first + each + (index < more);

    if (first < last)
        pool->fn(pool->ctx, first, last);
}

static void *work(void *arg)
{
    worker *self = arg;
    zro__pool *pool = self->pool;

    zro__point_plan_set(pool->plan);
    for (uint32_t seen = 0;; seen++) {
        wait_change(&pool->round, &pool->round_sleepers, seen);
        if (pool->fn == NULL)
            return NULL;
        do_share(pool, self->index);
        if (atomic_fetch_sub(&pool->busy, 1) == 1) /* pairs with the caller's acquire: what we wrote is its then */
            wake(&pool->busy, &pool->busy_sleepers);
    }
}

static void start_round(zro__pool *pool, zro__pool_fn fn, void *ctx, size_t items)
{
    pool->fn = fn;
    pool->ctx = ctx;
    pool->items = items;
    atomic_store_explicit(&pool->busy, pool->started, memory_order_relaxed); /* released by the next line */
    atomic_fetch_add(&pool->round, 1);                                       /* pairs with the workers' acquire */
    wake(&pool->round, &pool->round_sleepers);
}

static zro_status start_worker(zro__pool *pool, worker *w)
{
    zro_status st;

    if (ZRO__POINT("pool.thread"))
        return zro__fail(ZRO_ERR_SYSTEM, "cannot start thread %u of %u", w->index + 1, pool->threads);
    st = zro__thread_start(&w->thread, work, w, 0, "a thread of a pool");
    pool->started += st == ZRO_OK;
    return st;
}

zro_status zro__pool_create(zro__account *account, uint32_t threads, zro__pool **out)
{
    zro__pool *pool;
    zro_status st;

    assert(threads >= 1);
    *out = NULL;
    pool = zro__alloc(account, ZRO__KIND_HANDLE, sizeof *pool + (threads - 1) * sizeof *pool->workers);
    if (pool == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a pool of %u threads", threads);
    pool->threads = threads;
    pool->plan = zro__point_plan_get();
    for (uint32_t i = 1; i < threads; i++) {
        pool->workers[i - 1] = (worker){ .pool = pool, .index = i };
        st = start_worker(pool, &pool->workers[i - 1]);
        if (st != ZRO_OK) {
            zro__pool_destroy(pool);
            return st;
        }
    }
    *out = pool;
    return ZRO_OK;
}

void zro__pool_run(zro__pool *pool, zro__pool_fn fn, void *ctx, size_t items)
{
    uint32_t busy;

    if (pool == NULL || pool->threads == 1 || items <= 1) {
        if (items > 0)
            fn(ctx, 0, items);
        return;
    }
    start_round(pool, fn, ctx, items);
    do_share(pool, 0);
    while ((busy = atomic_load(&pool->busy)) != 0)
        wait_change(&pool->busy, &pool->busy_sleepers, busy);
}

void zro__pool_destroy(zro__pool *pool)
{
    if (pool == NULL)
        return;
    start_round(pool, NULL, NULL, 0);
    for (uint32_t i = 0; i < pool->started; i++)
        pthread_join(pool->workers[i].thread, NULL);
    zro__free(pool);
}
