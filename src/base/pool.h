/* A pool of threads that share out the items of one job at a time.
 *
 * One thread, that of the caller, is part of the pool, so a pool of one has no threads of its own.  The split is even and
 * depends on nothing but the numbers of items and threads.  A pool has one caller at a time. */
#ifndef ZRO_BASE_POOL_H
#define ZRO_BASE_POOL_H

#include <stddef.h>

#include "base/memory.h"

typedef struct zro__pool zro__pool;

/* Works on the items [first, last), of which there is at least one. */
typedef void (*zro__pool_fn)(void *ctx, size_t first, size_t last);

/* `threads` >= 1, the caller's included.  The workers block all signals and inherit the creator's point plan.
 *
 * MEMORY  no memory for the handle
 * SYSTEM  a thread could not be started */
zro_status zro__pool_create(zro__account *account, uint32_t threads, zro__pool **out);

/* Calls fn for shares of [0, items), the first one on the calling thread, and returns when all are done; what they wrote is
 * visible then.  A NULL pool is a pool of one. */
void zro__pool_run(zro__pool *pool, zro__pool_fn fn, void *ctx, size_t items);

/* Takes NULL. */
void zro__pool_destroy(zro__pool *pool);

#endif
