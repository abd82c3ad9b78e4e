/* Points in test builds: see point.h. */
#include "base/point.h"

#include <stddef.h>

#ifdef ZRO__POINTS

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* Test builds only: the release library has no such state. */
static _Thread_local zro__point_plan *thread_plan;

void zro__point_plan_set(zro__point_plan *plan)
{
    thread_plan = plan;
}

zro__point_plan *zro__point_plan_get(void)
{
    return thread_plan;
}

int zro__point(const char *name)
{
    zro__point_plan *plan = thread_plan;
    long hit;

    if (plan == NULL)
        return 0;
    if (plan->action == ZRO__POINT_LIST) {
        plan->seen(plan->user, name);
        return 0;
    }
    if (plan->name != NULL && strcmp(plan->name, name) != 0)
        return 0;
    hit = atomic_fetch_add(&plan->hits, 1) + 1;
    if (plan->action == ZRO__POINT_YIELD && hit >= plan->nth)
        usleep(0);
    if (hit != plan->nth)
        return 0;
    if (plan->action == ZRO__POINT_KILL && plan->kill_rank != NULL)
        plan->kill_rank(plan->user);
    else if (plan->action == ZRO__POINT_KILL)
        raise(SIGKILL);
    else if (plan->action == ZRO__POINT_STOP)
        raise(SIGSTOP);
    return plan->action == ZRO__POINT_FAIL;
}

#else

void zro__point_plan_set(zro__point_plan *plan)
{
    (void)plan;
}

zro__point_plan *zro__point_plan_get(void)
{
    return NULL;
}

#endif
