/* The table of a backend, as the transfer sees it: ordered, reliable messages between this rank and a peer.
 *
 * Two kinds implement it: rings in shared memory (local.c) and a program's link (wire.c).  Nothing here blocks, and the buffers
 * outlive a transfer that failed: a peer that comes late finds what was sent, and what is never fetched harms nobody.  At least
 * ZRO__LINK_DEPTH messages fit between two ranks in each direction; steps.c's schedule needs no more to be free of deadlock. */
#ifndef ZRO_GROUP_LINK_H
#define ZRO_GROUP_LINK_H

#include <stddef.h>

#include "group/slot.h"

enum { ZRO__LINK_DEPTH = 4 };

/* Pieces go to owners, results come from them.  On some links each has its own order. */
typedef enum zro__stream { ZRO__PIECES, ZRO__RESULTS, ZRO__STREAMS } zro__stream;

typedef struct zro__link {
    void *self;

    /* The buffer of the next message to `peer`, NULL while there is no room; the same again until something is sent. */
    void *(*room)(void *self, int peer);
    void (*send)(void *self, int peer, zro__stream stream, size_t bytes);

    /* The oldest message from `peer` and its length, NULL while there is none; the same again until it is released. */
    const void *(*recv)(void *self, int peer, zro__stream stream, size_t *bytes);
    void (*release)(void *self, int peer, zro__stream stream);

    /* What to wait for when room (recv) was NULL: a word that grows. */
    zro__word *(*room_word)(void *self, int peer, uint64_t *target);
    zro__word *(*recv_word)(void *self, int peer, zro__stream stream, uint64_t *target);

    /* For links that want to know beforehand; NULL on others.  The next message but those announced already will have `bytes`
     * and belongs at `into`, group memory, or anywhere if that is NULL; at most DEPTH are announced and not released. */
    void (*expect)(void *self, int peer, zro__stream stream, void *into, size_t bytes);

    /* For links that copy nothing; NULL on others.  Sends from group memory, as soon as there would be room; the memory may be
     * written again when the word is reached. */
    void (*send_from)(void *self, int peer, zro__stream stream, const void *from, size_t bytes);
    zro__word *(*sent_word)(void *self, int peer, uint64_t *target);
} zro__link;

#endif
