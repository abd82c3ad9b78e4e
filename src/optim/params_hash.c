/* zro_params_hash: one number over the values of parameters. */
#include <stdint.h>
#include <string.h>

#include "base/dtype.h"
#include "base/hash.h"
#include "base/isa.h"
#include "base/param.h"
#include "base/status.h"
#include "optim/random.h"

enum { LANES = 8 };

/* The bits of an element, all NaNs being equal: `infinity` has the bits of the type's infinity, or UINT64_MAX for types without
 * NaN. */
static ZRO__INLINE uint64_t bits_at(const unsigned char *data, size_t i, size_t size, uint64_t infinity)
{
    uint64_t bits = 0;

    memcpy(&bits, data + i * size, size);
    return (bits & UINT64_MAX >> (65 - 8 * size)) > infinity ? UINT64_MAX : bits;
}

/* Elements go into lanes in turn, so that one does not wait for the other.  Size and infinity are constants at each call. */
static ZRO__INLINE uint64_t hash_array(uint64_t hash, const unsigned char *data, size_t count, size_t size, uint64_t infinity)
{
    uint64_t lane[LANES];
    size_t i, l;

    for (l = 0; l < LANES; l++)
        lane[l] = zro__mix64(hash + l);
    for (i = 0; count - i >= LANES; i += LANES)
        for (l = 0; l < LANES; l++)
            lane[l] = zro__hash_word(lane[l], bits_at(data, i + l, size, infinity));
    for (l = 0; i < count; i++, l++)
        lane[l] = zro__hash_word(lane[l], bits_at(data, i, size, infinity));
    hash = zro__mix64(hash ^ count);
    for (l = 0; l < LANES; l++)
        hash = zro__mix64(hash ^ lane[l]) + UINT64_C(0x632be59bd9b4e019);
    return hash;
}

static uint64_t hash_elements(uint64_t hash, const void *data, size_t count, zro_dtype type)
{
    switch (type) {
    case ZRO_F32:
        return hash_array(hash, data, count, 4, 0x7f800000);
    case ZRO_F64:
        return hash_array(hash, data, count, 8, UINT64_C(0x7ff0000000000000));
    case ZRO_BF16:
        return hash_array(hash, data, count, 2, 0x7f80);
    case ZRO_F16:
        return hash_array(hash, data, count, 2, 0x7c00);
    default:
        return hash_array(hash, data, count, zro_dtype_bytes(type), UINT64_MAX);
    }
}

zro_status zro_params_hash(const zro_param *params, size_t n, uint64_t *hash)
{
    uint64_t sum = zro__mix64(n);

    if (hash == NULL)
        return zro__fail(ZRO_ERR_INVALID, "params_hash: hash is NULL");
    *hash = 0;
    if (params == NULL && n > 0)
        return zro__fail(ZRO_ERR_INVALID, "params_hash: params is NULL");
    for (size_t i = 0; i < n; i++) {
        size_t count = zro_param_count(&params[i]);

        if (!zro__dtype_is_known(params[i].dtype) || count == SIZE_MAX)
            return zro__param_fail(ZRO_ERR_INVALID, params[i].name, i, "its dtype is unknown, or its shape is too large");
        if (params[i].data == NULL && count > 0)
            return zro__param_fail(ZRO_ERR_INVALID, params[i].name, i, "data is NULL");
        sum = hash_elements(sum, params[i].data, count, params[i].dtype);
    }
    *hash = sum;
    return ZRO_OK;
}
