/* A pool of buffers of one size: it grows with what is in use at the same time, and keeps what is given back.
 *
 * Whoever uses it has a lock.  A buffer that a failed link may still write is never given back: it stays for good. */
#ifndef ZRO_LINK_BUFFERS_H
#define ZRO_LINK_BUFFERS_H

#include "base/memory.h"

typedef struct zro__buffers {
    size_t bytes;              /* of each buffer */
    _Atomic uint64_t *counter; /* of the bytes that were taken from the heap */
    void *unused;              /* a list of buffers, linked through their first bytes */
} zro__buffers;

/* A buffer, aligned to 64 bytes; NULL if there is no memory. */
void *zro__buffers_take(zro__buffers *buffers);
void zro__buffers_give(zro__buffers *buffers, void *buffer);

/* Frees the buffers that are not in use. */
void zro__buffers_close(zro__buffers *buffers);

#endif
