/* The table of a carrier: how a transfer's messages travel between this rank and a peer, in order and reliably.
 *
 * Two modules implement it: rings in shared memory (rings.c) for near ranks, and a program's link (far_messages.c) for
 * far ones.  Nothing here blocks.  The buffers of messages are the carrier's own, are taken with the first message, and outlive
 * a transfer that failed: a peer that comes late finds what was sent, and what is never fetched harms nobody.  At least
 * ZRO__CARRIER_DEPTH messages fit between two ranks in each direction; the schedule of xfer/messages.c needs no more to be free
 * of deadlock. */
#ifndef ZRO_LINK_CARRIER_H
#define ZRO_LINK_CARRIER_H

#include <stddef.h>

#include "board/word.h"

enum { ZRO__CARRIER_DEPTH = 4 };

/* Pieces go to owners, results come from them.  On some carriers each has an order of its own. */
typedef enum zro__stream { ZRO__PIECES, ZRO__RESULTS, ZRO__STREAMS } zro__stream;

/* Functions that return a status fail with MEMORY alone. */
typedef struct zro__carrier {
    void *self;
    size_t chunk; /* bytes of the longest message */

    /* A word, and the number at which it says that a message can be sent to `peer`, or has come from it. */
    zro__word *(*buffer_word)(void *self, int peer, uint64_t *target);
    zro__word *(*recv_word)(void *self, int peer, zro__stream stream, uint64_t *target);

    /* Once buffer_word has been reached: the buffer for the next message; the same again until something is sent.  All peers for
     * whom it is asked before the next send get the same message, and so may get the same buffer. */
    zro_status (*buffer)(void *self, int peer, void **out);
    void (*send)(void *self, int peer, zro__stream stream, size_t bytes);

    /* Once recv_word has been reached: the oldest message and its length; the same again until it is released. */
    zro_status (*recv)(void *self, int peer, zro__stream stream, const void **out, size_t *bytes);
    void (*release)(void *self, int peer, zro__stream stream);

    /* For carriers whose receivers can write where a message lies; NULL on others.  lend: sends a message that comes back; its receiver
     * writes the answer over it before it releases it.  answer_word: says that the oldest one is back; answer: where it lies;
     * taken: gives its memory back.  At most DEPTH messages are lent and not taken, and no others are sent meanwhile. */
    void (*lend)(void *self, int peer, zro__stream stream, size_t bytes);
    zro__word *(*answer_word)(void *self, int peer, uint64_t *target);
    const void *(*answer)(void *self, int peer);
    void (*taken)(void *self, int peer);

    /* The rest is for carriers that are told what comes, and that send without copying; NULL on others. */

    /* The next message, besides those announced already, will have `bytes` and belongs at `into`, group memory, or anywhere if
     * that is NULL.  At most DEPTH messages are announced and not released. */
    zro_status (*expect)(void *self, int peer, zro__stream stream, void *into, size_t bytes);

    /* Sends from group memory, once buffer_word has been reached; the memory may be written again when sent_word is.  A transfer
     * that went well ends by asking for the sent_word of each peer. */
    zro_status (*send_from)(void *self, int peer, zro__stream stream, const void *from, size_t bytes);
    zro__word *(*sent_word)(void *self, int peer, uint64_t *target);

    /* After a transfer that failed: gives up its messages; memory that is still in use stays mapped. */
    void (*abandon)(void *self);
} zro__carrier;

#endif
