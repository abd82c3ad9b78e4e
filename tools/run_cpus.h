/* Which processors a rank gets. */
#ifndef ZRO_TOOLS_RUN_CPUS_H
#define ZRO_TOOLS_RUN_CPUS_H

#include <sched.h>

typedef struct run_cpu {
    int number, package;
    int core; /* the lowest number of the processors that share the core */
} run_cpu;

/* The processors that this process may use.  Neighbours in the list are close to each other. */
typedef struct run_cpus {
    int n, cores;
    run_cpu cpu[CPU_SETSIZE];
} run_cpus;

void cpus_read(run_cpus *c);

/* The processors of one rank: equally many per rank, whole cores if there are enough.  Returns how many; 0: there are too few. */
int cpus_share(const run_cpus *c, int ranks, int rank, cpu_set_t *set);

#endif
