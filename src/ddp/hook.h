/* Hooks: what is done with a full bucket instead of averaging it; the bucket as a hook sees it, and the hooks of the library.
 *
 * A hook runs on the group's thread, between the ddp's filling a bucket and its handing out the result.  The ddp fills in a
 * zro_bucket, which is plain memory that lives for this one call, and calls the hook.  When that has returned OK, the result is
 * `count` elements of `dtype` in `buffer`, as these fields are then: zro_bucket_set_buffer may have changed both.
 * zro__bucket_bring_back takes the result to where the ddp wants it.  When a hook has failed, the buffer's elements are undefined.
 *
 * The hooks of the library leave their result in the buffer and in the type that they were given, and allocate nothing.  A 16-bit
 * copy of the gradients lies in the first part of their own buffer while it travels: the buffer is converted in place, in small
 * pieces, forward where elements become shorter, and backward where they become longer. */
#ifndef ZRO_DDP_HOOK_H
#define ZRO_DDP_HOOK_H

#include "zro.h"

struct zro_bucket {
    size_t index;         /* the bucket's number */
    int is_last;          /* 1: it is the last one of the iteration */
    void *buffer;         /* its gradients, one after another */
    size_t count;         /* elements of the buffer */
    zro_dtype dtype;      /* their type */
    zro_group *group;     /* for the hook's calls */
    const size_t *params; /* n_params: the indices of its parameters */
    const size_t *first;  /* n_params + 1: the element in the buffer with which each gradient begins; the last is count */
    size_t n_params;
    double divisor; /* of averages; 0: the number of ranks */
};

/* Brings what a hook left in the bucket into `buffer`, as elements of `dtype`, which are the bucket's buffer and type again when
 * this returns, also if it fails.  Does nothing else if they were so already.
 *
 * INVALID      the hook set a buffer that is NULL, or one that overlaps `buffer` and is longer
 * UNSUPPORTED  the hook set another type, and one of the two is not a floating-point type */
zro_status zro__bucket_bring_back(zro_bucket *bucket, void *buffer, zro_dtype dtype);

#endif
