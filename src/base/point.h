/* Points: named lines of the library at which a test can make something happen.
 *
 * ZRO__POINT("slot.arrive") stands wherever a rank's death, stop or failure must be survivable.  In test builds
 * (ZRO__POINTS) the thread's plan, if it has one, is consulted: at the nth passing of its point it kills the rank, stops it,
 * yields, or makes what stands there fail.  In releases the macro is the constant 0.
 *
 * A plan belongs to a thread, because ranks may be threads; work that a thread hands to
 * another one of the library takes its plan along (zro__point_plan_get, zro__point_plan_set). */
#ifndef ZRO_BASE_POINT_H
#define ZRO_BASE_POINT_H

#include <stdatomic.h>

typedef enum zro__point_action {
    ZRO__POINT_KILL,  /* call `kill_rank`, or SIGKILL oneself */
    ZRO__POINT_STOP,  /* SIGSTOP oneself */
    ZRO__POINT_YIELD, /* lose the processor at every passing from the nth on */
    ZRO__POINT_FAIL,  /* the macro is 1 once */
    ZRO__POINT_LIST   /* call `seen` with each point's name at every passing; `name` and `nth` mean nothing */
} zro__point_action;

typedef struct zro__point_plan {
    const char *name; /* NULL: any point */
    zro__point_action action;
    long nth;         /* 1: the first passing */
    atomic_long hits; /* passings so far */
    void (*kill_rank)(void *user);
    void (*seen)(void *user, const char *name);
    void *user;
} zro__point_plan;

#ifdef ZRO__POINTS
#define ZRO__POINT(name) zro__point(name)
int zro__point(const char *name);
#else
#define ZRO__POINT(name) 0
#endif

/* The calling thread's plan; NULL for none.  The plan is borrowed.  In releases set does nothing and get is NULL. */
void zro__point_plan_set(zro__point_plan *plan);
zro__point_plan *zro__point_plan_get(void);

#endif
