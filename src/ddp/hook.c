/* Hooks: see hook.h. */
#include "ddp/hook.h"

#include <stdint.h>
#include <string.h>

#include "base/dtype.h"
#include "base/status.h"
#include "group/group.h"

enum { PIECE = 1024 }; /* elements that are converted at a time where a buffer is converted in place */

/* ---- what a hook asks ---- */

size_t zro_bucket_index(const zro_bucket *bucket)
{
    return bucket != NULL ? bucket->index : SIZE_MAX;
}

int zro_bucket_is_last(const zro_bucket *bucket)
{
    return bucket != NULL && bucket->is_last;
}

void *zro_bucket_buffer(const zro_bucket *bucket, size_t *count, zro_dtype *dtype)
{
    if (count != NULL)
        *count = bucket != NULL ? bucket->count : 0;
    if (dtype != NULL && bucket != NULL)
        *dtype = bucket->dtype;
    return bucket != NULL ? bucket->buffer : NULL;
}

size_t zro_bucket_params(const zro_bucket *bucket)
{
    return bucket != NULL ? bucket->n_params : 0;
}

size_t zro_bucket_param(const zro_bucket *bucket, size_t i)
{
    return i < zro_bucket_params(bucket) ? bucket->params[i] : SIZE_MAX;
}

void *zro_bucket_grad(const zro_bucket *bucket, size_t i, size_t *count)
{
    const int is_there = i < zro_bucket_params(bucket);

    if (count != NULL)
        *count = is_there ? bucket->first[i + 1] - bucket->first[i] : 0;
    if (!is_there || bucket->buffer == NULL)
        return NULL;
    return (char *)bucket->buffer + bucket->first[i] * zro_dtype_bytes(bucket->dtype);
}

void zro_bucket_set_buffer(zro_bucket *bucket, void *data, zro_dtype dtype)
{
    if (bucket == NULL)
        return;
    bucket->buffer = data;
    bucket->dtype = dtype;
}

double zro_bucket_divisor(const zro_bucket *bucket)
{
    return bucket == NULL ? 0 : bucket->divisor != 0 ? bucket->divisor : zro_group_size(bucket->group);
}

zro_group *zro_bucket_group(const zro_bucket *bucket)
{
    return bucket != NULL ? bucket->group : NULL;
}

/* ---- conversion ---- */

static int overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    return (uintptr_t)a < (uintptr_t)b + b_bytes && (uintptr_t)b < (uintptr_t)a + a_bytes;
}

/* Converts elements [first, first + n) of an array to where they belong in an array of the other type that begins at the same
 * address.  Only near the beginning do old and new elements overlap, and take a way round. */
static zro_status convert_piece(char *array, zro_dtype to, zro_dtype from, size_t first, size_t n)
{
    const size_t old_bytes = zro_dtype_bytes(from), new_bytes = zro_dtype_bytes(to);
    const char *old = array + first * old_bytes;
    double apart[PIECE]; /* wide enough for every type */

    if (overlap(old, n * old_bytes, array + first * new_bytes, n * new_bytes)) {
        memcpy(apart, old, n * old_bytes);
        old = (const char *)apart;
    }
    return zro_convert(array + first * new_bytes, to, old, from, n);
}

/* Converts an array, which has memory for both types, in place.  A piece must not be written over elements that are still to be
 * read: those are behind it where elements become shorter, and before it where they become longer. */
static zro_status convert_in_place(void *array, zro_dtype to, zro_dtype from, size_t count)
{
    const int is_forward = zro_dtype_bytes(to) <= zro_dtype_bytes(from);
    const size_t n_pieces = to == from ? 0 : count / PIECE + (count % PIECE != 0);
    zro_status st = ZRO_OK;

    for (size_t i = 0; st == ZRO_OK && i < n_pieces; i++) {
        const size_t first = (is_forward ? i : n_pieces - 1 - i) * PIECE;

        st = convert_piece(array, to, from, first, count - first < PIECE ? count - first : PIECE);
    }
    return st;
}

zro_status zro__bucket_bring_back(zro_bucket *bucket, void *buffer, zro_dtype dtype)
{
    const void *left = bucket->buffer;
    const zro_dtype type = bucket->dtype;
    const size_t count = bucket->count, bytes = count * zro_dtype_bytes(dtype), left_bytes = count * zro_dtype_bytes(type);

    bucket->buffer = buffer;
    bucket->dtype = dtype;
    if (count == 0)
        return ZRO_OK;
    if (left == NULL)
        return zro__fail(ZRO_ERR_INVALID, "bucket %zu: the hook set a buffer that is NULL, for %zu elements", bucket->index,
                         count);
    if (type != dtype && (!zro__dtype_is_float(type) || !zro__dtype_is_float(dtype)))
        return zro__fail(ZRO_ERR_UNSUPPORTED,
                         "bucket %zu: the hook set a buffer that is %s, and the gradients are %s; only f32, f64, bf16 and f16 "
                         "are converted",
                         bucket->index, zro__dtype_text(type), zro__dtype_text(dtype));
    if (!overlap(buffer, bytes, left, left_bytes) && type != dtype)
        return zro_convert(buffer, dtype, left, type, count);
    if (left_bytes > bytes)
        return zro__fail(ZRO_ERR_INVALID,
                         "bucket %zu: the hook set a buffer of %zu bytes that overlaps the one it was given, of %zu bytes; set "
                         "one that lies inside of it, or apart",
                         bucket->index, left_bytes, bytes);
    if (left != buffer)
        memmove(buffer, left, left_bytes);
    return convert_in_place(buffer, dtype, type, count);
}

/* ---- hooks ---- */

static zro_status check_bucket(const char *name, const zro_bucket *bucket)
{
    return bucket != NULL ? ZRO_OK : zro__fail(ZRO_ERR_INVALID, "%s: the bucket is NULL", name);
}

zro_status zro_hook_all_reduce(void *user, zro_bucket *bucket)
{
    zro_status st = check_bucket("hook_all_reduce", bucket);

    (void)user;
    return st == ZRO_OK ? zro__all_average(bucket->group, bucket->buffer, bucket->count, bucket->dtype, bucket->divisor) : st;
}

zro_status zro_hook_none(void *user, zro_bucket *bucket)
{
    (void)user;
    return check_bucket("hook_none", bucket);
}

/* Lets a hook work on the buffer converted to a 16-bit type. */
static zro_status wrap(const char *name, zro_dtype type, const zro_hook_inner *inner, zro_bucket *bucket)
{
    zro_status st = check_bucket(name, bucket);
    zro_dtype dtype;
    void *buffer;

    if (st != ZRO_OK)
        return st;
    if (inner == NULL || inner->hook == NULL)
        return zro__fail(ZRO_ERR_INVALID, "%s: %s is NULL; its user must be a zro_hook_inner with the hook to call", name,
                         inner == NULL ? "user" : "the hook in user");
    buffer = bucket->buffer;
    dtype = bucket->dtype;
    if (!zro__dtype_is_float(dtype))
        return zro__fail(ZRO_ERR_UNSUPPORTED, "%s: the gradients of bucket %zu are %s, must be f32, f64, bf16 or f16", name,
                         bucket->index, zro__dtype_text(dtype));
    st = convert_in_place(buffer, type, dtype, bucket->count);
    if (st != ZRO_OK)
        return st;
    zro_bucket_set_buffer(bucket, buffer, type);
    st = inner->hook(inner->user, bucket);
    if (st == ZRO_OK)
        return zro__bucket_bring_back(bucket, buffer, dtype);
    zro_bucket_set_buffer(bucket, buffer, dtype);
    return st;
}

static const zro_hook_inner averaging = { zro_hook_all_reduce, NULL };

zro_status zro_hook_bf16(void *user, zro_bucket *bucket)
{
    (void)user;
    return wrap("hook_bf16", ZRO_BF16, &averaging, bucket);
}

zro_status zro_hook_f16(void *user, zro_bucket *bucket)
{
    (void)user;
    return wrap("hook_f16", ZRO_F16, &averaging, bucket);
}

zro_status zro_hook_bf16_wrap(void *user, zro_bucket *bucket)
{
    return wrap("hook_bf16_wrap", ZRO_BF16, user, bucket);
}

zro_status zro_hook_f16_wrap(void *user, zro_bucket *bucket)
{
    return wrap("hook_f16_wrap", ZRO_F16, user, bucket);
}
