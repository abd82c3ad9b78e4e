/* The transfer: the one loop that every collective is.
 *
 * A transfer is a list of parts.  For each part its owner takes every rank's piece in the order of the group's cells (or, with
 * no reduction, the piece of one source), may apply a function to it, and delivers the result to nobody, one rank, itself or
 * all.  The list is the same on all ranks; arrays differ. */
#ifndef ZRO_XFER_XFER_H
#define ZRO_XFER_XFER_H

#include "xfer/ranks.h"

/* Called at the owner, from any of the group's threads, for tiles of a run.  `in` has the reduced values, in the type of the
 * pieces; `out` is the owner's own array of results from the same element on, to be read and written, or a blank tile if it has
 * none. */
typedef void (*zro__apply_fn)(void *user, const zro__run *run, const void *in, void *out);

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
    int to;                      /* who gets the results: a rank, or one of the above */
    int scattered;               /* parts lie anywhere behind `in` and `out`, and the bytes between them belong to others */
    int offsets_differ;          /* this rank's parts have other offsets than its peers', so the bytes travel as messages */
    int spread;                  /* where all arrays can be reached, owners may be chosen anew so that all ranks work */
    int weighted;                /* op AVG: divided by the sum of the ranks' weights */
    double weight;               /* of this rank */
    const uint64_t *present;     /* one bit per part: this rank has a piece of it; NULL: it has all */
    zro__apply_fn apply;         /* what the owner does with the reduced pieces, or NULL */
    void *apply_user;
} zro__xfer;

/* Runs it.  Collective; called inside the lane.  INVALID (weights that add up to 0 or NaN) leaves the group whole. */
zro_status zro__xfer_run(zro__ranks *ranks, const zro__xfer *x);

#endif
