/* Trials: a case that is many short runs with random faults.
 *
 * Trial n depends on n alone, and the first one is number --seed, so a trial that failed is run again, alone, by
 * `--faults 1 --seed n`.  Trials mostly wait for deadlines, so some of them run at once.  Each has a process of its own, which may
 * start ranks, and a shared page of its own; a failed check ends its trial, and the case fails after the last one. */
#ifndef TRIALS_H
#define TRIALS_H

#include "zt/zt.h"

/* t->shared is the trial's own page; t->user is the page of the case, on which trials may count things. */
typedef void (*trial_fn)(zt_rank *t, uint64_t number);

/* `count` trials, unless --faults says how many; with a sanitizer every eighth.  `name`: the case that repeats one of them. */
void trials_run(zt_rank *t, const char *name, trial_fn fn, int count);

/* Starts a process that ends with its parent. */
int trials_fork(void);

/* The deadline of the calls that break a group, and of nothing else that is made from the same first group. */
void trials_set_timeout(zro_group *group, uint64_t ms);

#endif
