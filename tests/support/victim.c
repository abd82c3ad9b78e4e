/* Victims: see victim.h. */
#define _GNU_SOURCE
#include "victim.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "base/point.h"

const char *const victim_ways[] = { "killed", "stopped", "held" };

static void die_now(void *user)
{
    (void)user;
    raise(SIGKILL);
}

static void hold(void *user)
{
    zt_rank *t = user;

    zt_await(t, &t->shared->flag[VICTIM_GO_ON], 1);
}

zro_status victim_run(zt_rank *t, const victim_fate *fate, victim_fn fn, void *user)
{
    zro__point_plan plan = { .action = ZRO__POINT_LIST, .seen = zt_note_point, .user = t->shared };
    zro_status st;

    if (fate->point != NULL) {
        plan.name = fate->point;
        plan.action = fate->way == STOP ? ZRO__POINT_STOP : ZRO__POINT_KILL;
        plan.nth = fate->nth;
        plan.kill_rank = fate->way == KILL ? die_now : hold;
        plan.user = t;
        atomic_store(&t->shared->number[VICTIM_PROCESS], (unsigned long long)getpid());
    }
    if (fate->point != NULL && fate->way == KILL)
        zt_expect_lost(t, t->rank);
    zro__point_plan_set(&plan);
    st = fn(user);
    zro__point_plan_set(NULL);
    if (fate->point == NULL) {
        CHECK_OK(st);
        return st;
    }
    if (fate->way == KILL) /* some points depend on time */
        die_now(t);
    hold(t);             /* the same */
    while (st == ZRO_OK) /* it had done its part before it stopped */
        st = fn(user);
    return st;
}

void victim_returns(zt_rank *t)
{
    atomic_store(&t->shared->flag[VICTIM_RETURNED], 1);
}

void victim_release(zt_rank *t, const victim_fate *fate, int survivors)
{
    atomic_fetch_add(&t->shared->flag[VICTIM_GAVE_UP], 1);
    zt_await(t, &t->shared->flag[VICTIM_GAVE_UP], (unsigned)survivors);
    atomic_store(&t->shared->flag[VICTIM_GO_ON], 1);
    while (fate->way == STOP && atomic_load(&t->shared->flag[VICTIM_RETURNED]) == 0) {
        kill((pid_t)atomic_load(&t->shared->number[VICTIM_PROCESS]),
             SIGCONT); /* it may come before the stop that it is meant for */
        nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
    }
}
