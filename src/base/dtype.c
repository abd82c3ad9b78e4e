/* The tables of element types. */
#include "base/dtype.h"

#include "base/kernels.h"
#include "base/status.h"

const uint8_t zro__dtype_sizes[ZRO__DTYPES] = {
    [ZRO_F32] = 4, [ZRO_F64] = 8, [ZRO_BF16] = 2, [ZRO_F16] = 2, [ZRO_I8] = 1, [ZRO_U8] = 1, [ZRO_I32] = 4, [ZRO_I64] = 8
};
static const char *const names[ZRO__DTYPES] = { [ZRO_F32] = "f32", [ZRO_F64] = "f64", [ZRO_BF16] = "bf16", [ZRO_F16] = "f16",
                                                [ZRO_I8] = "i8",   [ZRO_U8] = "u8",   [ZRO_I32] = "i32",   [ZRO_I64] = "i64" };

int zro__dtype_is_known(zro_dtype dtype)
{
    return (size_t)dtype < ZRO__DTYPES;
}

int zro__dtype_is_float(zro_dtype dtype)
{
    return dtype == ZRO_F32 || dtype == ZRO_F64 || dtype == ZRO_BF16 || dtype == ZRO_F16;
}

size_t zro_dtype_bytes(zro_dtype dtype)
{
    return zro__dtype_bytes(dtype);
}

const char *zro_dtype_name(zro_dtype dtype)
{
    return zro__dtype_is_known(dtype) ? names[dtype] : NULL;
}

const char *zro__dtype_text(zro_dtype dtype)
{
    return zro__dtype_is_known(dtype) ? names[dtype] : "of an unknown type";
}

zro_status zro_convert(void *to, zro_dtype to_type, const void *from, zro_dtype from_type, size_t count)
{
    if (!zro__dtype_is_float(to_type) || !zro__dtype_is_float(from_type))
        return zro__fail(ZRO_ERR_UNSUPPORTED, "convert: from %s to %s; only f32, f64, bf16 and f16 are converted",
                         zro__dtype_text(from_type), zro__dtype_text(to_type));
    if ((to == NULL || from == NULL) && count > 0)
        return zro__fail(ZRO_ERR_INVALID, "convert: %s is NULL for %zu elements", to == NULL ? "to" : "from", count);
    zro__kernels_get(ZRO_KERNELS_AUTO)->convert(to, to_type, from, from_type, count);
    return ZRO_OK;
}
