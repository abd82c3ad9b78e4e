/* The table of a backend: ordered, reliable messages between this rank and a peer, through the link's own buffers.
 *
 * Nothing here blocks, and the buffers outlive a transfer that failed: a peer that comes late finds what was sent, and what is
 * never fetched harms nobody.  At least ZRO__LINK_DEPTH messages of `chunk` bytes fit between two ranks in each direction;
 * xfer.c's schedule needs no more to be free of deadlock. */
#ifndef ZRO_GROUP_LINK_H
#define ZRO_GROUP_LINK_H

#include <stddef.h>

#include "group/slot.h"

enum { ZRO__LINK_DEPTH = 4 };

typedef struct zro__link {
    void *self;
    size_t chunk; /* largest message, in bytes; a multiple of 4096 */

    /* The buffer of the next message to `peer`, NULL while there is no room; the same again until it is sent. */
    void *(*room)(void *self, int peer);
    void (*send)(void *self, int peer, size_t bytes);

    /* The oldest message from `peer` and its length, NULL while there is none; the same again until it is released. */
    const void *(*recv)(void *self, int peer, size_t *bytes);
    void (*release)(void *self, int peer);

    /* What to wait for when room (recv) was NULL: a word that `peer` posts. */
    zro__word *(*room_word)(void *self, int peer, uint64_t *target);
    zro__word *(*recv_word)(void *self, int peer, uint64_t *target);
} zro__link;

#endif
