/* A link that misbehaves: it stands before the link of the harness (zt/foreign.h), and does one chosen thing wrong. */
#ifndef BAD_LINK_H
#define BAD_LINK_H

#include "zt/zt.h"

typedef enum bad_fault {
    BAD_NOTHING,
    BAD_SHORTER,    /* a message goes without its last `bytes` bytes, */
    BAD_LONGER,     /* with as many more, */
    BAD_GARBLED,    /* with its byte at `bytes` (from the end, if that is negative) inverted, */
    BAD_DROPPED,    /* not at all, */
    BAD_TWICE,      /* twice, */
    BAD_SWAPPED,    /* or after the next one */
    BAD_SEND_FAILS, /* a send fails, with the text "no such luck" */
    BAD_RECV_FAILS, /* the same of a receive */
    BAD_SEND_HELD,  /* sends are done when `released` is set, with what lies there then; they cannot be cancelled */
    BAD_RECV_HELD,  /* receives are done when `released` is set, and write then; they cannot be cancelled */
    BAD_PAUSED      /* from the first receive on, polls wait for the shared page's flag[0] */
} bad_fault;

enum { BAD_CONTROL, BAD_BODIES, BAD_PIECES, BAD_RESULTS, BAD_CHANNELS };

typedef struct bad_node bad_node;

typedef struct bad_link {
    zro_link link; /* the one behind it */
    zt_rank *t;
    bad_fault fault;
    unsigned channel; /* on which of a group's channels */
    int peer;         /* with which rank; -1: with any */
    int skip;         /* how many messages on that channel go well before */
    long bytes;
    int released, is_paused;
    int never_cancels;
    int n_wrong; /* how often it did something wrong */
    bad_node *nodes, *swapped;
} bad_link;

/* Opens one for rank t; *out is the table to pass on.  Freed when the library closes the link. */
bad_link *bad_link_open(zt_rank *t, zro_link *out);

/* Makes progress, as the library does when it waits. */
void bad_link_poll(bad_link *link);

/* A group of all ranks over such links, each on a machine of its own. */
zro_group *bad_link_group(zt_rank *t, int never_cancels, uint64_t timeout_ms, bad_link **out);

#endif
