/* Shared memory as a link: for arrays that peers cannot reach (the caller's own) and for ranks that pretend to be on other
 * machines. */
#ifndef ZRO_GROUP_LOCAL_H
#define ZRO_GROUP_LOCAL_H

#include "base/memory.h"
#include "group/link.h"

/* Pure: the size of a message and of all rings of a group of `size`. */
size_t zro__local_chunk(int size);
size_t zro__local_bytes(int size);

typedef struct zro__local {
    char *rings; /* zro__local_bytes(size) of shared memory, zero before the first use */
    int rank, size;
    size_t chunk;
    uint64_t *sent, *received; /* by peer: messages so far; process-local */
} zro__local;

/* Announces what init will take from the arena. */
void zro__local_plan(zro__arena *arena, int size);
void zro__local_init(zro__local *local, zro__arena *arena, void *rings, int rank, int size, zro__link *link);

#endif
