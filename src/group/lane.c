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
    zro__point_plan *plan; /* the plan of failures of the thread that submitted it (tests) */
    /* Protected by the lane's lock: */
    int done;                   /* 1: the function has returned, or never will be called */
    int holds;                  /* one for the program's handle, one for the queue */
    zro_status status;          /* what the function returned */
    char text[ZRO__TEXT_BYTES]; /* why it failed */
};

struct zro__lane {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    zro_work *first, *last; /* the queue */
    pid_t process;          /* the process that the thread is in: a forked child has none */
    int started;            /* 1: there is a thread */
    int stop;               /* 1: the thread is to end */
    int holds;              /* one for the group, one for each work */
    atomic_int pending;     /* number of works that have not finished */
    zro__trace *trace;      /* of the rank, or NULL; used while the group lives */
};

/* Under the lock; returns 1 if that was the last hold of the lane. */
static int drop_work(zro_work *work)
{
    zro__lane *lane = work->lane;

    if (--work->holds > 0)
        return 0;
    zro__free(work);
    return --lane->holds == 0;
}

static void unlock(zro__lane *lane, int is_last)
{
    pthread_mutex_unlock(&lane->lock);
    if (!is_last)
        return;
    pthread_cond_destroy(&lane->changed);
    pthread_mutex_destroy(&lane->lock);
    zro__free(lane);
}

zro_status zro__lane_create(zro__trace *trace, zro__lane **out)
{
    zro__lane *lane = zro__alloc(NULL, ZRO__KIND_HANDLE, sizeof *lane);

    *out = lane;
    if (lane == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a group's lane");
    pthread_mutex_init(&lane->lock, NULL);
    pthread_cond_init(&lane->changed, NULL);
    lane->process = getpid();
    lane->trace = trace;
    lane->holds = 1;
    return ZRO_OK;
}

/* Under the lock. */
static void finish(zro__lane *lane, zro_work *work, zro_status status)
{
    work->status = status;
    snprintf(work->text, sizeof work->text, "%s", status == ZRO_OK ? "" : zro_last_error());
    work->done = 1;
    drop_work(work);
    atomic_fetch_sub_explicit(&lane->pending, 1, memory_order_release); /* pairs with zro__lane_enter */
    pthread_cond_broadcast(&lane->changed);
}

/* A lane that was stopped gives back what has not begun. */
static void *run(void *user)
{
    zro__lane *lane = user;
    zro_work *work;

    zro__trace_thread(lane->trace, "lane");
    pthread_mutex_lock(&lane->lock);
    for (;;) {
        zro_status st = ZRO_ERR_STATE;

        while (lane->first == NULL && !lane->stop)
            pthread_cond_wait(&lane->changed, &lane->lock);
        work = lane->first;
        if (work == NULL)
            break;
        lane->first = work->next;
        if (!lane->stop) {
            pthread_mutex_unlock(&lane->lock);
            zro__point_plan_set(work->plan);
            st = work->fn(work->user);
            pthread_mutex_lock(&lane->lock);
        } else {
            zro__fail(st, "the group was destroyed before this work began");
        }
        finish(lane, work, st);
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
    st = zro__thread_start(&lane->thread, run, lane, 0, "a group's thread");
    lane->started = st == ZRO_OK;
    return st;
}

int zro__lane_is_busy(const zro__lane *lane)
{
    return atomic_load_explicit(&((zro__lane *)(uintptr_t)lane)->pending, memory_order_acquire) != 0;
}

/* Under the lock. */
static int runs_here(const zro__lane *lane)
{
    return lane->started && pthread_equal(lane->thread, pthread_self());
}

int zro__lane_is_mine(zro__lane *lane)
{
    int mine;

    pthread_mutex_lock(&lane->lock);
    mine = runs_here(lane);
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

zro_status zro__lane_prepare(zro__lane *lane, zro_work_fn fn, void *user, zro_work **out)
{
    zro_work *work = *out = zro__alloc(NULL, ZRO__KIND_HANDLE, sizeof *work);
    zro_status st;

    if (work == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: submitted work");
    pthread_mutex_lock(&lane->lock);
    st = lane->stop ? zro__fail(ZRO_ERR_STATE, "submit: the group is being destroyed") : start(lane);
    work->lane = lane;
    work->fn = fn;
    work->user = user;
    work->done = 1;
    work->holds = 1;
    lane->holds += st == ZRO_OK;
    pthread_mutex_unlock(&lane->lock);
    if (st == ZRO_OK)
        return ZRO_OK;
    zro__free(work);
    *out = NULL;
    return st;
}

zro_status zro__lane_resubmit(zro_work *work)
{
    zro__lane *lane = work->lane;
    zro_status st = ZRO_OK;

    pthread_mutex_lock(&lane->lock);
    if (lane->stop) {
        st = zro__fail(ZRO_ERR_STATE, "submit: the group is being destroyed");
    } else {
        work->done = 0;
        work->next = NULL;
        work->plan = zro__point_plan_get();
        work->holds++;
        if (lane->first == NULL)
            lane->first = work;
        else
            lane->last->next = work;
        lane->last = work;
        atomic_fetch_add_explicit(&lane->pending, 1, memory_order_relaxed);
        pthread_cond_broadcast(&lane->changed);
    }
    pthread_mutex_unlock(&lane->lock);
    return st;
}

zro_status zro__lane_submit(zro__lane *lane, zro_work_fn fn, void *user, zro_work **out)
{
    zro_status st = zro__lane_prepare(lane, fn, user, out);

    if (st == ZRO_OK)
        st = zro__lane_resubmit(*out);
    if (st != ZRO_OK) {
        zro_work_destroy(*out);
        *out = NULL;
    }
    return st;
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
    if (lane == NULL)
        return;
    zro__lane_stop(lane);
    pthread_mutex_lock(&lane->lock);
    unlock(lane, --lane->holds == 0);
}

/* A forked child has the memory of the lock, but not the threads. */
static zro_status check_work(const char *name, const zro_work *work)
{
    if (work == NULL)
        return zro__fail(ZRO_ERR_INVALID, "%s: the work is NULL", name);
    if (work->lane->process != getpid())
        return zro__fail(ZRO_ERR_STATE, "%s: a child forked by a rank is not a rank", name);
    return ZRO_OK;
}

zro_status zro_work_test(const zro_work *work, int *done)
{
    zro_status st = check_work("work_test", work);

    if (st != ZRO_OK)
        return st;
    if (done == NULL)
        return zro__fail(ZRO_ERR_INVALID, "work_test: done is NULL");
    pthread_mutex_lock(&work->lane->lock);
    *done = work->done;
    pthread_mutex_unlock(&work->lane->lock);
    return ZRO_OK;
}

zro_status zro_work_wait(zro_work *work)
{
    zro_status st = check_work("work_wait", work);

    if (st != ZRO_OK)
        return st;
    pthread_mutex_lock(&work->lane->lock);
    while (!work->done && !runs_here(work->lane))
        pthread_cond_wait(&work->lane->changed, &work->lane->lock);
    if (!work->done)
        st = zro__fail(ZRO_ERR_STATE, "work_wait: called inside a submitted function for work that comes after it");
    else if (work->status != ZRO_OK)
        st = zro__fail(work->status, "%s", work->text);
    pthread_mutex_unlock(&work->lane->lock);
    return st;
}

void zro_work_destroy(zro_work *work)
{
    zro__lane *lane;

    if (work == NULL || work->lane->process != getpid())
        return;
    lane = work->lane;
    pthread_mutex_lock(&lane->lock);
    unlock(lane, drop_work(work));
}
