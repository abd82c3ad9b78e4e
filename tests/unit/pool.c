/* The pool of threads: every item once, whatever the numbers are, many times over; and its failures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <assert.h>
#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/point.h"
#include "base/pool.h"
#include "base/thread.h"

enum { ITEMS = 1000 };

typedef struct job {
    uint64_t value[ITEMS];
    uint32_t times[ITEMS]; /* that an item was done; plain, so that the thread sanitizer sees overlapping parts */
    atomic_int parts;
} job;

static void square(void *ctx, size_t first, size_t last)
{
    job *j = ctx;

    assert(first < last);
    atomic_fetch_add(&j->parts, 1);
    for (size_t i = first; i < last; i++) {
        j->value[i] = i * i;
        j->times[i]++;
    }
}

static void run_and_check(zro__pool *pool, uint32_t threads, size_t items)
{
    static job j;

    memset(&j, 0, sizeof j);
    zro__pool_run(pool, square, &j, items);
    assert_int_equal(atomic_load(&j.parts), items < threads ? items : threads);
    for (size_t i = 0; i < ITEMS; i++) {
        assert_int_equal(j.times[i], i < items);
        assert_int_equal(j.value[i], i < items ? i * i : 0);
    }
}

static void every_item_once(void **state)
{
    static const uint32_t threads[] = { 1, 2, 3, 4, 16 };
    zro__account account = { 0 };

    (void)state;
    for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
        zro__pool *pool;

        assert_int_equal(zro__pool_create(&account, threads[t], &pool), ZRO_OK);
        assert_true(atomic_load(&account.in_use) > 0);
        for (size_t items = 0; items < 40; items++)
            run_and_check(pool, threads[t], items);
        run_and_check(pool, threads[t], ITEMS);
        zro__pool_destroy(pool);
        assert_int_equal(atomic_load(&account.in_use), 0);
    }
    run_and_check(NULL, 1, 17);
    zro__pool_destroy(NULL);
}

static void add_up(void *ctx, size_t first, size_t last)
{
    uint64_t *sums = ctx;

    for (size_t i = first; i < last; i++)
        sums[i]++;
}

/* Rounds follow each other at once, and now and then after a pause in which the workers fall asleep. */
static void many_rounds(void **state)
{
    enum { MOST_ROUNDS = 20000 }; /* fewer on a busy machine, where each may cost a slice of the processor */
    const uint64_t second = UINT64_C(1000000000);
    static uint64_t sums[64];

    (void)state;
    for (uint32_t threads = 1; threads <= 4; threads *= 2) {
        uint64_t start = zro__now_ns(), round = 0;
        zro__pool *pool;

        memset(sums, 0, sizeof sums);
        assert_int_equal(zro__pool_create(NULL, threads, &pool), ZRO_OK);
        for (; round < MOST_ROUNDS && (round < 100 || zro__now_ns() - start < second); round++) {
            zro__pool_run(pool, add_up, sums, 64);
            for (int i = 0; i < 500 && round % 1000 == 0; i++)
                sched_yield();
        }
        zro__pool_destroy(pool);
        for (int i = 0; i < 64; i++)
            assert_int_equal(sums[i], round);
    }
}

static void created_and_destroyed_unused(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        zro__pool *pool;

        assert_int_equal(zro__pool_create(NULL, 4, &pool), ZRO_OK);
        zro__pool_destroy(pool);
    }
}

static int blocks(int signal)
{
    sigset_t now;

    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &now), 0);
    return sigismember(&now, signal);
}

static void note_mask(void *ctx, size_t first, size_t last)
{
    unsigned char *blocked = ctx;

    for (size_t i = first; i < last; i++)
        blocked[i] = blocks(SIGINT) && blocks(SIGUSR1);
}

/* Signals are the program's: only its own threads get them, and its mask is as it was. */
static void workers_block_signals(void **state)
{
    unsigned char blocked[3] = { 1, 0, 0 };
    zro__pool *pool;

    (void)state;
    assert_int_equal(zro__pool_create(NULL, 3, &pool), ZRO_OK);
    zro__pool_run(pool, note_mask, blocked, 3);
    zro__pool_destroy(pool);
    assert_true(blocked[0] == 0 && blocked[1] == 1 && blocked[2] == 1);
}

/* More than fits into a small stack. */
static _Thread_local char much[256 << 10];

static void *use_much(void *arg)
{
    memset(much, 1, sizeof much);
    return arg;
}

static void small_threads_of_a_program_with_much_storage(void **state)
{
    pthread_t thread;
    void *result;
    int here;

    (void)state;
    assert_int_equal(zro__thread_start(&thread, use_much, &here, 1, "a thread"), ZRO_OK);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, &here);
}

#ifdef ZRO__POINTS

static void each_thread_may_fail_to_start(void **state)
{
    (void)state;
    for (long nth = 1; nth <= 3; nth++) {
        zro__point_plan plan = { .name = "pool.thread", .action = ZRO__POINT_FAIL, .nth = nth };
        zro__account account = { 0 };
        zro__pool *pool = (void *)&plan;

        zro__point_plan_set(&plan);
        assert_int_equal(zro__pool_create(&account, 4, &pool), ZRO_ERR_SYSTEM);
        zro__point_plan_set(NULL);
        assert_null(pool);
        assert_non_null(strstr(zro_last_error(), "of 4"));
        assert_int_equal(atomic_load(&account.in_use), 0);
    }
}

static void memory_may_run_out(void **state)
{
    zro__point_plan plan = { .name = "memory.alloc", .action = ZRO__POINT_FAIL, .nth = 1 };
    zro__pool *pool = (void *)&plan;

    (void)state;
    zro__point_plan_set(&plan);
    assert_int_equal(zro__pool_create(NULL, 2, &pool), ZRO_ERR_MEMORY);
    zro__point_plan_set(NULL);
    assert_null(pool);
}

static void pass_a_point(void *ctx, size_t first, size_t last)
{
    atomic_int *failures = ctx;

    for (size_t i = first; i < last; i++)
        atomic_fetch_add(failures, ZRO__POINT("test.point"));
}

static void workers_inherit_the_plan(void **state)
{
    zro__point_plan plan = { .name = "test.point", .action = ZRO__POINT_FAIL, .nth = 8 };
    atomic_int failures = 0;
    zro__pool *pool;

    (void)state;
    zro__point_plan_set(&plan);
    assert_int_equal(zro__pool_create(NULL, 4, &pool), ZRO_OK);
    zro__pool_run(pool, pass_a_point, &failures, 8);
    zro__pool_destroy(pool);
    zro__point_plan_set(NULL);
    assert_int_equal(atomic_load(&plan.hits), 8);
    assert_int_equal(atomic_load(&failures), 1);
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_once),
        cmocka_unit_test(many_rounds),
        cmocka_unit_test(created_and_destroyed_unused),
        cmocka_unit_test(workers_block_signals),
        cmocka_unit_test(small_threads_of_a_program_with_much_storage),
#ifdef ZRO__POINTS
        cmocka_unit_test(each_thread_may_fail_to_start),
        cmocka_unit_test(memory_may_run_out),
        cmocka_unit_test(workers_inherit_the_plan),
#endif
    };

    return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
