/* Buckets: which gradients travel together, as PyTorch's DistributedDataParallel forms them.  Pure but for the memory that
 * forming works in.
 *
 * Parameters are of the same kind if gradient type, element type and device tag are equal.  They are taken one after another in
 * a given order.  Each kind has at most one open bucket, which takes the next parameter of that kind, and is closed when the
 * bytes of its gradients have reached its limit.  Each kind counts its own buckets: its first one has the first limit, its
 * second the second, and so on; the last limit is that of all later ones.
 *
 * A bucket gets its number when it is opened.  So buckets are numbered by the first parameter of each in the given order,
 * without sorting; and all of it takes O(n). */
#ifndef ZRO_PLAN_BUCKETS_H
#define ZRO_PLAN_BUCKETS_H

#include "base/memory.h"
#include "zro.h"

/* zro_buckets_form with an account (or NULL) for the memory that it works in, which is freed before it returns. */
zro_status zro__buckets_form(zro__account *account, const zro_param *params, const size_t *order, size_t n,
                             const size_t *limits, size_t n_limits, size_t *bucket_params, size_t *bucket_lengths,
                             size_t *bucket_limits, size_t *n_buckets);

/* The limits that PyTorch takes for a bucket size in bytes, in `limits`, and how many they are.  0 means the defaults, 1 MiB for
 * the first bucket and 25 MiB for the others; any other size is the limit of all buckets. */
size_t zro__bucket_limits(size_t bucket_bytes, size_t limits[2]);

/* Reverses the list of buckets; inside each bucket the order of parameters stays.  Gradients become ready roughly from the last
 * parameter to the first, and buckets that were formed forward should be reduced in that order. */
void zro__buckets_reverse(size_t *bucket_params, size_t *bucket_lengths, size_t n_buckets);

#endif
