/* The lane: a queue, a thread, and a count of things that have not finished.
 *
 * `pending` is the fast way in: a call that finds it 0 runs at once.  It becomes 0 only after the last function's effects
 * (release in finish, acquire in zro__lane_enter), and only the group's one issuer makes it grow, so a caller that saw 0 is not
 * overtaken. */
#include "group/lane.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/point.h"
#include "base/status.h"
#include "base/thread.h"

struct zro_work {
    zro__lane *lane;
    zro_work_fn fn;
    void *user;
    zro_work *next;
    int done;  /* under the lane's lock, as everything below */
    int holds; /* of the handle and of the queue */
    zro_status status;
    char text[ZRO__TEXT_BYTES];
};

struct zro__lane {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    zro__point_plan *plan;
    zro_work *first, *last;
    pid_t process; /* whose threads run here: not those of a forked child */
    int started, stop;
    int holds; /* of the group and of each work */
    atomic_int pending;
};

/* Under the lock; returns 1 if the lane is to be freed after unlocking. */
static int drop_work(zro_work *work)
{
    zro__lane *lane = work->lane;

    if (--work->holds > 0)
        return 0;
    zro__free(work);
    return --lane->holds == 0;
}

static void free_lane(zro__lane *lane)
{
    pthread_cond_destroy(&lane->changed);
    pthread_mutex_destroy(&lane->lock);
    zro__free(lane);
}

zro_status zro__lane_create(zro__lane **out)
{
    zro__lane *lane = zro__alloc(NULL, ZRO__KIND_HANDLE, sizeof *lane);

    *out = lane;
    if (lane == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a group's lane");
    pthread_mutex_init(&lane->lock, NULL);
    pthread_cond_init(&lane->changed, NULL);
    lane->process = getpid();
    lane->holds = 1;
    return ZRO_OK;
}

/* Under the lock. */
static void finish(zro__lane *lane, zro_work *work, zro_status status, const char *text)
{
    work->status = status;
    snprintf(work->text, sizeof work->text, "%s", text);
    work->done = 1;
    drop_work(work);
    atomic_fetch_sub_explicit(&lane->pending, 1, memory_order_release); /* pairs with zro__lane_enter */
    pthread_cond_broadcast(&lane->changed);
}

static void *run(void *user)
{
    zro__lane *lane = user;

    zro__point_plan_set(lane->plan);
    pthread_mutex_lock(&lane->lock);
    for (;;) {
        zro_work *work;
        zro_status st;

        while (lane->first == NULL && !lane->stop)
            pthread_cond_wait(&lane->changed, &lane->lock);
        if (lane->stop)
            break;
        work = lane->first;
        lane->first = work->next;
        pthread_mutex_unlock(&lane->lock);
        st = work->fn(work->user);
        pthread_mutex_lock(&lane->lock);
        finish(lane, work, st, st == ZRO_OK ? "" : zro_last_error());
    }
    while (lane->first != NULL) {
        zro_work *work = lane->first;

        lane->first = work->next;
        finish(lane, work, ZRO_ERR_STATE, "the group was destroyed before this work began");
    }
    pthread_mutex_unlock(&lane->lock);
    return NULL;
}

/* Under the lock. */
static zro_status start(zro__lane *lane)
{
    zro_status st;

    if (lane->started)
        return ZRO_OK;
    lane->plan = zro__point_plan_get();
    st = zro__thread_start(&lane->thread, run, lane, 0, "a group's thread");
    lane->started = st == ZRO_OK;
    return st;
}

int zro__lane_is_busy(const zro__lane *lane)
{
    return atomic_load_explicit(&((zro__lane *)(uintptr_t)lane)->pending, memory_order_acquire) != 0;
}

int zro__lane_is_mine(zro__lane *lane)
{
    int mine;

    pthread_mutex_lock(&lane->lock);
    mine = lane->started && pthread_equal(lane->thread, pthread_self());
    pthread_mutex_unlock(&lane->lock);
    return mine;
}

void zro__lane_enter(zro__lane *lane)
{
    if (!zro__lane_is_busy(lane) || zro__lane_is_mine(lane))
        return;
    pthread_mutex_lock(&lane->lock);
    while (zro__lane_is_busy(lane))
        pthread_cond_wait(&lane->changed, &lane->lock);
    pthread_mutex_unlock(&lane->lock);
}

zro_status zro__lane_submit(zro__lane *lane, zro_work_fn fn, void *user, zro_work **out)
{
    zro_work *work = zro__alloc(NULL, ZRO__KIND_HANDLE, sizeof *work);
    zro_status st;

    *out = NULL;
    if (work == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: submitted work");
    pthread_mutex_lock(&lane->lock);
    st = lane->stop ? zro__fail(ZRO_ERR_STATE, "submit: the group is being destroyed") : start(lane);
    if (st != ZRO_OK) {
        pthread_mutex_unlock(&lane->lock);
        zro__free(work);
        return st;
    }
    work->lane = lane;
    work->fn = fn;
    work->user = user;
    work->holds = 2;
    lane->holds++;
    if (lane->first == NULL)
        lane->first = work;
    else
        lane->last->next = work;
    lane->last = work;
    atomic_fetch_add_explicit(&lane->pending, 1, memory_order_relaxed);
    pthread_cond_broadcast(&lane->changed);
    pthread_mutex_unlock(&lane->lock);
    *out = work;
    return ZRO_OK;
}

void zro__lane_stop(zro__lane *lane)
{
    int join;

    pthread_mutex_lock(&lane->lock);
    join = lane->started && !lane->stop;
    lane->stop = 1;
    pthread_cond_broadcast(&lane->changed);
    pthread_mutex_unlock(&lane->lock);
    if (join)
        pthread_join(lane->thread, NULL);
}

void zro__lane_destroy(zro__lane *lane)
{
    int last;

    if (lane == NULL)
        return;
    zro__lane_stop(lane);
    pthread_mutex_lock(&lane->lock);
    last = --lane->holds == 0;
    pthread_mutex_unlock(&lane->lock);
    if (last)
        free_lane(lane);
}

/* A forked child has the memory of the lock, but not the threads. */
static zro_status check_process(const zro__lane *lane)
{
    return lane->process == getpid() ? ZRO_OK : zro__fail(ZRO_ERR_STATE, "a child forked by a rank is not a rank");
}

zro_status zro_work_test(const zro_work *work, int *done)
{
    zro_status st;

    if (work == NULL || done == NULL)
        return zro__fail(ZRO_ERR_INVALID, "work_test: NULL argument");
    st = check_process(work->lane);
    if (st != ZRO_OK)
        return st;
    pthread_mutex_lock(&work->lane->lock);
    *done = work->done;
    pthread_mutex_unlock(&work->lane->lock);
    return ZRO_OK;
}

zro_status zro_work_wait(zro_work *work)
{
    zro__lane *lane;
    zro_status st;

    if (work == NULL)
        return zro__fail(ZRO_ERR_INVALID, "work_wait: NULL argument");
    lane = work->lane;
    st = check_process(lane);
    if (st != ZRO_OK)
        return st;
    pthread_mutex_lock(&lane->lock);
    if (!work->done && lane->started && pthread_equal(lane->thread, pthread_self())) {
        pthread_mutex_unlock(&lane->lock);
        return zro__fail(ZRO_ERR_STATE, "work_wait: called inside a submitted function for work that comes after it");
    }
    while (!work->done)
        pthread_cond_wait(&lane->changed, &lane->lock);
    st = work->status;
    if (st != ZRO_OK)
        zro__fail(st, "%s", work->text);
    pthread_mutex_unlock(&lane->lock);
    return st;
}

void zro_work_destroy(zro_work *work)
{
    zro__lane *lane;
    int last;

    if (work == NULL || work->lane->process != getpid())
        return;
    lane = work->lane;
    pthread_mutex_lock(&lane->lock);
    last = drop_work(work);
    pthread_mutex_unlock(&lane->lock);
    if (last)
        free_lane(lane);
}
