/* The messages of transfers between this rank and the far ranks of a group: the carrier over a program's link.
 *
 * Pieces and results are held by the link until the receiver has posted their receive: so no sender runs ahead of a slow
 * receiver.  Those receives are posted by the transfer itself, which knows what comes (expect), straight into group memory where
 * the result belongs there, else into buffers.
 *
 * Memory grows with what is in flight.  A pair of ranks has its queues only while it has messages, and all pairs share the
 * buffers (buffers.h): one that comes is as long as what is expected, a result that goes to many ranks is in one buffer for all of
 * them, and a short piece is copied out of the long buffer that it was written into.
 *
 * After a transfer that failed, arrays are the program's again.  So a link that cannot cancel receives gets no arrays to receive
 * into (far_ranks.c finds out).  What cannot be cancelled is a send: whoever receives it then may find anything in it.  But the
 * sender's verdict has gone before its call returned, and nothing that comes after a verdict is handed to a transfer.
 *
 * The buffers, and everything that the link may write, is touched under the link's lock; the transfer reads only words without
 * it.  If the link cannot cancel a request, the array or buffer of its message is never freed. */
#ifndef ZRO_LINK_FAR_MESSAGES_H
#define ZRO_LINK_FAR_MESSAGES_H

#include "board/slot.h"
#include "board/world.h"
#include "link/buffers.h"
#include "link/carrier.h"
#include "link/program_link.h"

/* What this rank has for messages to and from one far rank. */
typedef struct zro__far_pair {
    int peer;                      /* its rank in the first group */
    struct zro__far_queue *queues; /* three of them (far_messages.c); NULL: it has no messages */
    const char *failure;           /* why the link has failed, "" if it did not say, or NULL */
} zro__far_pair;

typedef struct zro__far_messages {
    zro__program_link *program_link;
    zro__view *view;         /* that arrays of group memory are mapped in */
    zro__control *control;   /* of the group */
    zro__counters *counters; /* may be NULL */
    uint64_t channel;        /* the channel of pieces; that of results is the next */
    size_t chunk;            /* bytes of the longest message */
    int into_arrays;         /* whether messages may be received straight into group memory */
    zro__buffers buffers;    /* for messages and for queues */
    void *filling;           /* the buffer that ranks have asked for, and none has sent from; NULL: there is none */
    zro__far_pair *asked;    /* whose sent_word was asked for last, or NULL */
    zro__far_pair *pairs;    /* by index of far ranks */
    int n;                   /* number of far ranks */
} zro__far_messages;

/* The carrier of an object whose fields are set, but for `abandon`. */
void zro__far_messages_open(zro__far_messages *data, zro__carrier *carrier);

/* Under the lock, after a poll: posts the words of what has come or gone with the index-th far rank. */
void zro__far_messages_collect(zro__far_messages *data, int index);

/* Under the lock, after a transfer that failed.  give_up: gives up its messages.  uses_arrays: whether the link still uses arrays of
 * the program for one. */
void zro__far_messages_give_up(zro__far_messages *data);
int zro__far_messages_uses_arrays(const zro__far_messages *data);

/* Under the lock: gives up what is open and frees the rest. */
void zro__far_messages_close(zro__far_messages *data);

/* Counts one message; takes NULL. */
void zro__far_count_message(zro__counters *counters, size_t bytes);

#endif
