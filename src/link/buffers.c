/* A pool of buffers: see buffers.h. */
#include "link/buffers.h"

#include <string.h>

void *zro__buffers_take(zro__buffers *b)
{
    void *buffer = b->unused;

    if (buffer != NULL) {
        memcpy(&b->unused, buffer, sizeof b->unused);
        return buffer;
    }
    buffer = zro__alloc(NULL, ZRO__KIND_HANDLE, b->bytes);
    if (buffer != NULL)
        atomic_fetch_add_explicit(b->counter, b->bytes, memory_order_relaxed);
    return buffer;
}

void zro__buffers_give(zro__buffers *b, void *buffer)
{
    memcpy(buffer, &b->unused, sizeof b->unused);
    b->unused = buffer;
}

void zro__buffers_close(zro__buffers *b)
{
    while (b->unused != NULL) {
        void *buffer = b->unused;

        memcpy(&b->unused, buffer, sizeof b->unused);
        zro__free(buffer);
    }
}
