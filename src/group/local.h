/* Shared memory as a link between near ranks: for arrays that peers cannot reach (the caller's own) and for ranks that pretend to
 * be on other machines. */
#ifndef ZRO_GROUP_LOCAL_H
#define ZRO_GROUP_LOCAL_H

#include "base/memory.h"
#include "group/link.h"

/* Pure: the size of a message in a group of `size`, and of all rings between `n` ranks. */
size_t zro__local_chunk(int size);
size_t zro__local_bytes(int n, size_t chunk);

typedef struct zro__local {
    char *rings; /* zro__local_bytes of shared memory, zero before the first use */
    const zro__control *control;
    int place, n; /* this rank's among the near ones; how many they are */
    size_t chunk;
    uint64_t *sent, *received; /* by peer: messages so far; process-local */
} zro__local;

/* Announces what init will take from the arena. */
void zro__local_plan(zro__arena *arena, int size);
void zro__local_init(zro__local *local, zro__arena *arena, void *rings, const zro__control *control, int rank, int n,
                     size_t chunk, zro__link *link);

#endif
