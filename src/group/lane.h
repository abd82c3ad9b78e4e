/* The lane: the order in which a group does things.
 *
 * One thing at a time, in the order of issue.  Submitted functions run on the lane's thread, which the first one starts; calls
 * run on their caller's thread, after everything submitted before them.  A call made by a submitted function on its own group
 * is part of that function and runs at once.
 *
 * The lane and its works share a life: a work may be waited for after its group is gone. */
#ifndef ZRO_GROUP_LANE_H
#define ZRO_GROUP_LANE_H

#include "base/trace.h"
#include "zro.h"

typedef struct zro__lane zro__lane;

/* trace: where its thread is named, or NULL. */
zro_status zro__lane_create(zro__trace *trace, zro__lane **out);

/* Returns when the lane is idle, at once on the lane's own thread. */
void zro__lane_enter(zro__lane *lane);

zro_status zro__lane_submit(zro__lane *lane, zro_work_fn fn, void *user, zro_work **out);

/* The same in two halves, of which the second, which may be repeated when the work has finished, takes no memory.  The first
 * starts the lane's thread. */
zro_status zro__lane_prepare(zro__lane *lane, zro_work_fn fn, void *user, zro_work **out);
zro_status zro__lane_resubmit(zro_work *work);

/* 1 if something is running or waiting to run. */
int zro__lane_is_busy(const zro__lane *lane);

/* 1 on the lane's own thread. */
int zro__lane_is_mine(zro__lane *lane);

/* Ends the thread after the function that is running; those that have not begun are STATE.  Not on the lane's own thread. */
void zro__lane_stop(zro__lane *lane);

/* The same, and drops the caller's hold.  Takes NULL. */
void zro__lane_destroy(zro__lane *lane);

#endif
