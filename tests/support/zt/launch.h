/* Ranks that a launcher of their own starts (mpirun), for runner.c and mpi.c.
 *
 * One launch runs many instances of a world size.  Its ranks wait for orders on a page that the runner and all of them have
 * mapped: a file in a temporary folder, because launchers pass no descriptors, and beside it the file that their output goes to.
 * Both lose their names as soon as every rank is there, so nothing is left of them whatever happens.
 *
 * Launchers put their ranks into process groups and sessions of their own.  So each launch has a supervisor, a child of the
 * runner that is a subreaper: what descends from it is the launch.  It waits until all of that is gone, ends what outlives the
 * launcher, and on SIGTERM (also when the runner dies) ends everything. */
#ifndef ZT_LAUNCH_H
#define ZT_LAUNCH_H

#include <signal.h>
#include <sys/types.h>

#include "zt/zt.h"

enum { ZT_LEAVE = -1, ZT_LEAVE_AT_ONCE = -2 }; /* orders: with and without MPI_Finalize */

typedef struct zt_page {
    atomic_ullong here; /* bits of ranks that are ready for orders */
    atomic_uint orders; /* given so far */
    int table, row;     /* the last order: a case of zt_tables, or table ZT_LEAVE... */
    zt_shared shared;
} zt_page;

typedef struct zt_launch {
    pid_t pid; /* of the supervisor, which is also a process group */
    int output;
    zt_page *page;
    char folder[64]; /* "" once it has gone */
} zt_launch;

/* How the supervisor ends if not as the launcher did. */
enum { ZT_LAUNCH_ENDED = 121, ZT_LAUNCH_LEFT = 122 };

/* Why launches of a backend are not possible here, or NULL. */
const char *zt_launch_missing(int backend);

/* Starts `size` ranks, which get `argv` (ended by NULL) and the mask of signals; `survivors` says that the death of one is not
 * to be the death of all.  The caller has SIGCHLD and SIGTERM blocked.  0, or -1 and errno. */
int zt_launch_begin(zt_launch *l, int backend, int size, int survivors, char **argv, const sigset_t *mask);

/* Gives an order; a case gets a clean page. */
void zt_launch_order(zt_launch *l, int table, int row);

/* All ranks are there: the files need no names any more. */
void zt_launch_forget(zt_launch *l);

/* After the supervisor's end. */
void zt_launch_free(zt_launch *l);

/* In the programs that are built with MPI: the life of a rank of a launch; a group of all its ranks. */
int zt_worker(const char *folder);
zro_group *zt_mpi_group(const zro_group_config *config);

#endif
