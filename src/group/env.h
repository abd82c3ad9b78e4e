/* The environment: read here and nowhere else in the library. */
#ifndef ZRO_GROUP_ENV_H
#define ZRO_GROUP_ENV_H

#include "zro.h"

/* How many tasks an MPI launcher says it started, 1 without one; *name is the variable that says so. */
int zro__env_mpi_tasks(const char **name);

#endif
