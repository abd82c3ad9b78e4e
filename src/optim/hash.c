/* zro_params_hash: one number over the values of parameters. */
#include <stdint.h>
#include <string.h>

#include "base/dtype.h"
#include "base/param.h"
#include "base/status.h"
#include "optim/random.h"

#define INLINE inline __attribute__((always_inline))

/* The bits of an element, all NaNs being equal.  The type is a constant at each call. */
static INLINE uint64_t bits_at(const unsigned char *data, size_t i, zro_dtype type, size_t size)
{
    uint64_t bits = 0;
    int is_nan;

    memcpy(&bits, data + i * size, size);
    is_nan = type == ZRO_F32    ? (bits & INT32_MAX) > 0x7f800000
             : type == ZRO_F64  ? (bits & INT64_MAX) > UINT64_C(0x7ff0000000000000)
             : type == ZRO_BF16 ? (bits & INT16_MAX) > 0x7f80
             : type == ZRO_F16  ? (bits & INT16_MAX) > 0x7c00
                                : 0;
    return is_nan ? UINT64_MAX : bits;
}

static INLINE uint64_t add(uint64_t lane, uint64_t bits)
{
    lane = (lane ^ bits) * UINT64_C(0x9e3779b97f4a7c15);
    return lane ^ lane >> 29;
}

enum { LANES = 8 };

/* Elements go into lanes in turn, so that one does not wait for the other. */
static INLINE uint64_t hash_run(uint64_t hash, const unsigned char *data, size_t count, zro_dtype type, size_t size)
{
    uint64_t lane[LANES];
    size_t i, l;

    for (l = 0; l < LANES; l++)
        lane[l] = zro__mix64(hash + l);
    for (i = 0; count - i >= LANES; i += LANES)
        for (l = 0; l < LANES; l++)
            lane[l] = add(lane[l], bits_at(data, i + l, type, size));
    for (l = 0; i < count; i++, l++)
        lane[l] = add(lane[l], bits_at(data, i, type, size));
    hash = zro__mix64(hash ^ count);
    for (l = 0; l < LANES; l++)
        hash = zro__mix64(hash ^ lane[l]) + UINT64_C(0x632be59bd9b4e019);
    return hash;
}

static uint64_t hash_elements(uint64_t hash, const void *data, size_t count, zro_dtype type)
{
    switch (type) {
    case ZRO_F32:
        return hash_run(hash, data, count, ZRO_F32, 4);
    case ZRO_F64:
        return hash_run(hash, data, count, ZRO_F64, 8);
    case ZRO_BF16:
        return hash_run(hash, data, count, ZRO_BF16, 2);
    case ZRO_F16:
        return hash_run(hash, data, count, ZRO_F16, 2);
    default:
        return hash_run(hash, data, count, ZRO_I8, zro_dtype_bytes(type));
    }
}

zro_status zro_params_hash(const zro_param *params, size_t n, uint64_t *hash)
{
    uint64_t sum = zro__mix64(n);
    char name[ZRO__NAME_BYTES];

    if (hash == NULL)
        return zro__fail(ZRO_ERR_INVALID, "params_hash: hash is NULL");
    *hash = 0;
    if (params == NULL && n > 0)
        return zro__fail(ZRO_ERR_INVALID, "params is NULL");
    for (size_t i = 0; i < n; i++) {
        size_t count = zro_param_count(&params[i]);

        if (!zro__dtype_is_known(params[i].dtype) || count == SIZE_MAX)
            return zro__fail(ZRO_ERR_INVALID, "parameter %s has no type or size", zro__param_name(params[i].name, i, name));
        if (params[i].data == NULL && count > 0)
            return zro__fail(ZRO_ERR_INVALID, "parameter %s: data is NULL", zro__param_name(params[i].name, i, name));
        sum = hash_elements(sum, params[i].data, count, params[i].dtype);
    }
    *hash = sum;
    return ZRO_OK;
}
