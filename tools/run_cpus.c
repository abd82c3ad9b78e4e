/* Which processors a rank gets: see run_cpus.h.
 *
 * Numbers of processors say little: often 0 and 64 are the two threads of one core.  So the list is sorted by socket and core,
 * and cut into equal pieces.  What is left over stays idle: ranks wait for the slowest, and libraries whose results depend on
 * the number of threads shall give the same on every rank. */
#define _GNU_SOURCE
#include "run_cpus.h"

#include <stdio.h>
#include <stdlib.h>

/* The first number of a file of the kernel about a processor. */
static int read_topology(int cpu, const char *name, int otherwise)
{
    char path[96];
    FILE *file;
    int value;

    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, name);
    file = fopen(path, "re");
    if (file == NULL)
        return otherwise;
    if (fscanf(file, "%d", &value) != 1)
        value = otherwise;
    fclose(file);
    return value;
}

static int compare(const void *a, const void *b)
{
    const run_cpu *x = a, *y = b;

    if (x->package != y->package)
        return x->package < y->package ? -1 : 1;
    if (x->core != y->core)
        return x->core < y->core ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

static int begins_core(const run_cpus *c, int i)
{
    return i == 0 || c->cpu[i].package != c->cpu[i - 1].package || c->cpu[i].core != c->cpu[i - 1].core;
}

void cpus_read(run_cpus *c)
{
    cpu_set_t set;

    c->n = c->cores = 0;
    /* Fails only where a machine has more processors than the set has bits. */
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return;
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET((size_t)i, &set))
            c->cpu[c->n++] =
                (run_cpu){ i, read_topology(i, "physical_package_id", 0), read_topology(i, "thread_siblings_list", i) };
    qsort(c->cpu, (size_t)c->n, sizeof *c->cpu, compare);
    for (int i = 0; i < c->n; i++)
        c->cores += begins_core(c, i);
}

int cpus_share(const run_cpus *c, int ranks, int rank, cpu_set_t *set)
{
    int whole = ranks <= c->cores, each = (whole ? c->cores : c->n) / ranks, unit = -1, n = 0;

    CPU_ZERO(set);
    for (int i = 0; i < c->n && each > 0; i++) {
        unit += !whole || begins_core(c, i);
        if (unit / each != rank)
            continue;
        CPU_SET((size_t)c->cpu[i].number, set);
        n++;
    }
    return n;
}
