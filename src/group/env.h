/* The environment: read here and nowhere else in the library. */
#ifndef ZRO_GROUP_ENV_H
#define ZRO_GROUP_ENV_H

#include "zro.h"

/* How many tasks an MPI launcher says it started: 1 without one, 0 if it does not say; *name is the variable that tells. */
int zro__env_mpi_tasks(const char **name);

#endif
