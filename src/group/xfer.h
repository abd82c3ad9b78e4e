/* The transfer: the one loop that every collective is.
 *
 * A transfer is a list of parts.  For each part its owner takes every rank's piece in the order of the group's cells (or, with
 * no reduction, the piece of one source), may apply a function to it, and delivers the result to nobody, one rank, itself or
 * all.  The list is the same on all ranks; arrays differ. */
#ifndef ZRO_GROUP_XFER_H
#define ZRO_GROUP_XFER_H

#include "group/cut.h"
#include "group/slot.h"

/* Called at the owner, from any of the group's threads, for tiles of a run: `in` is the reduced value in the gradient's type,
 * `out` the owner's own array at this place, to be read and written, or a blank tile if it has none. */
typedef void (*zro__apply_fn)(void *user, const zro__run *run, const void *in, void *out);

enum { ZRO__TO_ALL = -1, ZRO__TO_OWNER = -2, ZRO__TO_NOBODY = -3 };

typedef struct zro__xfer {
    zro__call call; /* call, root, count and tag: for comparison and for texts */
    int root;
    size_t count;
    uint64_t tag;
    const zro__part *parts;
    size_t n_parts;
    int reduces;                 /* 0: the source's own piece */
    zro_op op;                   /* where it reduces */
    zro_dtype in_type, out_type; /* the same without `apply` */
    const void *in;              /* this rank's arrays; not looked at where this rank has no part in it */
    void *out;
    size_t in_bytes, out_bytes; /* of this rank's arrays */
    int to;                     /* a rank, or one of the above */
    int scattered;              /* parts lie anywhere from `in` and `out` on, and what is between them is not the transfer's */
    int apart;                  /* this rank's parts begin elsewhere than the others': neither reaches the other's in place */
    int spread;                 /* where all arrays can be reached, owners may be chosen anew so that all ranks work */
    int weighted;               /* op AVG: divided by the sum of the ranks' weights */
    double weight;              /* this rank's */
    const uint64_t *present;    /* a bit for each part: this rank has a piece; NULL: all of them */
    zro__apply_fn apply;        /* or NULL */
    void *apply_user;
} zro__xfer;

/* Runs it.  Collective; called inside the lane.  INVALID (weights that add up to 0 or NaN) leaves the group whole. */
zro_status zro__xfer_run(zro_group *group, const zro__xfer *x);

#endif
