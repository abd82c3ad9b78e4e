/* The transfer: the one loop that every collective is.
 *
 * A transfer is a list of parts.  For each part its owner takes every rank's piece in the order of the group's cells (or, with
 * no reduction, the piece of one source), may apply a function to it, and delivers the result to nobody, one rank, itself or
 * all.  The list is the same on all ranks; arrays differ. */
#ifndef ZRO_XFER_XFER_H
#define ZRO_XFER_XFER_H

#include "xfer/ranks.h"

/* What a function applied at the owner works on: some elements of a part.  Addresses are those of the first of them. */
typedef struct zro__applied {
    zro__run run;
    const zro__reduce *reduce; /* how the sources become one value; NULL: src[0] is the value */
    const void *const *src;    /* in the order of addition; NULL: that rank has none */
    void *own;                 /* the owner's own array of results, to be read and written */
    void *const *dst;          /* where the results belong, `own` perhaps among them */
    int n_dst;
    int stream; /* stores to the others go around the caches */
} zro__applied;

/* Called from any of the group's threads, for pieces of a run that begin at multiples of ZRO__BLOCK. */
typedef void (*zro__apply_fn)(void *user, const zro__applied *a);

/* What ranks bring to the arrival besides their arrays, and what each learns of the others there, before anything is touched: a
 * transfer that needs an agreement first has it at no further meeting. */
typedef struct zro__meeting {
    const uint64_t *present; /* one bit per part: this rank has a piece of it; NULL: it has all */
    uint64_t *any;      /* out, as many bits: some rank has a piece; the other parts are left alone by all.  NULL: not asked */
    uint64_t *gathered; /* memory for the bits of all ranks, needed if those of one do not fit into a payload */
    uint64_t claim;     /* a hash of what all ranks must have in common */
    int claims_differ;  /* out, then the transfer is MISMATCH, nothing has happened, and the group is whole */
    zro_status refusal; /* not OK: this rank cannot take part, and the transfer is refused on all ranks; */
    const char *why;    /* the text that goes with it */

    /* Called on every rank, on the calling thread, when all have arrived and nobody refuses; or NULL. */
    void (*arrived)(void *user);
    void *user;
} zro__meeting;

/* The longest list of parts whose bits travel with the arrival. */
enum { ZRO__MEETING_PARTS = 8 * (ZRO__PAYLOAD_BYTES - 8) };

enum { ZRO__TO_ALL = -1, ZRO__TO_OWNER = -2, ZRO__TO_NOBODY = -3 };

typedef struct zro__xfer {
    zro__call call;         /* compared between ranks, and named in texts; so are root, count and tag */
    int root;               /* -1: none */
    size_t count;           /* elements of all parts together */
    uint64_t tag;           /* a hash of whatever else the ranks must agree about */
    const zro__part *parts; /* the same on all ranks */
    size_t n_parts;
    int reduces;                 /* 0: the result is the source's own piece */
    zro_op op;                   /* how pieces are added, if it reduces */
    zro_dtype in_type, out_type; /* of pieces and of results; the same unless there is an `apply` */
    const void *in;              /* this rank's array of pieces; may be NULL if it has none */
    void *out;                   /* this rank's array of results; may be NULL if it gets none */
    size_t in_bytes, out_bytes;  /* of this rank's arrays */
    const size_t
        *lent_at; /* by part: where pieces begin in the arrays that ranks lend; NULL: nobody lends, and `in` is read in place */
    const void *lent; /* with lent_at: a copy of this rank's pieces of what others own, for them to read; NULL: it has none */
    size_t lent_bytes;
    int to;        /* who gets the results: a rank, or one of the above */
    int scattered; /* parts lie anywhere behind `in` and `out`, and the bytes between them belong to others */
    uint32_t
        slow;   /* the header's flags of those sides on which this rank's parts have other offsets than its peers': messages */
    int spread; /* where all arrays can be reached, owners may be chosen anew so that all ranks work */
    int weighted;          /* op AVG: divided by the sum of the ranks' weights */
    double weight;         /* of this rank */
    double divisor;        /* op AVG without weights; 0: the number of ranks */
    zro__meeting *meeting; /* or NULL */
    zro__apply_fn apply;   /* what the owner does with the pieces instead of adding and storing them, or NULL */
    void (*next)(void *user, const zro__run *run); /* told on the calling thread before a run is applied; or NULL */
    void *apply_user;                              /* handed to both */
} zro__xfer;

/* Runs it.  Collective; called inside the lane.  INVALID (weights that add up to 0 or NaN), a refusal, and claims that differ leave
 * the group whole, and nothing has been touched. */
zro_status zro__xfer_run(zro__ranks *ranks, const zro__xfer *x);

#endif
