/* Buffers on the heap for the messages of one rank in one group, whatever peer they go to or come from.
 *
 * A buffer belongs to a class of sizes, so that what is taken follows what is in flight and not the longest message.  It may
 * have several users: one result goes to many peers.  When the last one has given it back it waits for the next message, unless
 * so many bytes wait already that it is better freed: in a large group the buffers of all ranks would add up.
 *
 * Whoever uses them has a lock.  A buffer that a failed link may still write is never given back: it stays for good. */
#ifndef ZRO_LINK_BUFFERS_H
#define ZRO_LINK_BUFFERS_H

#include "base/memory.h"

enum { ZRO__BUFFER_CLASSES = 24 };

typedef struct zro__buffer zro__buffer;

typedef struct zro__buffers {
    size_t most_idle;          /* bytes of buffers without a user that are not freed */
    size_t idle;               /* bytes of those that there are */
    _Atomic uint64_t *counter; /* of the bytes that were taken from the heap */
    zro__buffer *unused[ZRO__BUFFER_CLASSES];
} zro__buffers;

/* Pure: how many bytes of unused buffers a rank in a group of `size` keeps. */
size_t zro__buffers_most_idle(int size);

/* A buffer of at least `bytes`, aligned to 64, for one user; NULL if there is no memory. */
void *zro__buffers_take(zro__buffers *buffers, size_t bytes);

/* One more user.  give: one less. */
void zro__buffers_share(void *buffer);
void zro__buffers_give(zro__buffers *buffers, void *buffer);

int zro__buffer_users(const void *buffer);

/* Frees the buffers that have no user. */
void zro__buffers_close(zro__buffers *buffers);

#endif
