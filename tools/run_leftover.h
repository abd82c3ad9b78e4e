/* Processes that ranks leave behind.
 *
 * A child of a rank that ends before it would go to init; zro run asks for it instead (it is a subreaper), so that at the end
 * everything a job has started is a child of zro run, or below one, and can be ended. */
#ifndef ZRO_TOOLS_RUN_LEFTOVER_H
#define ZRO_TOOLS_RUN_LEFTOVER_H

#include <sys/types.h>

enum { LEFTOVER_LIST = 256 };

typedef struct run_leftover {
    int n_strangers, n_told;
    int refused;                   /* how many processes the last call was not allowed to signal */
    pid_t stranger[LEFTOVER_LIST]; /* children that we had before the job: a shell that became zro run by exec had them */
    pid_t told[LEFTOVER_LIST];     /* processes that have got SIGTERM */
    char name[32];                 /* the name of the first of those */
} run_leftover;

/* Before the first rank.  next: before the ranks are started again. */
void leftover_init(run_leftover *l);
void leftover_next(run_leftover *l);

/* When no rank is left: sends SIGTERM (once to each), SIGKILL, or nothing (0).  Returns how many there are.  To be repeated:
 * whoever ends leaves its own children to us. */
int leftover_signal(run_leftover *l, int signal);

#endif
