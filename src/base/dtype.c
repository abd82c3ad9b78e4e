/* The table of element types. */
#include "base/dtype.h"

static const struct {
    const char *name;
    size_t bytes;
} types[] = {
    [ZRO_F32] = { "f32", 4 }, [ZRO_F64] = { "f64", 8 }, [ZRO_BF16] = { "bf16", 2 }, [ZRO_F16] = { "f16", 2 },
    [ZRO_I8] = { "i8", 1 },   [ZRO_U8] = { "u8", 1 },   [ZRO_I32] = { "i32", 4 },   [ZRO_I64] = { "i64", 8 },
};

int zro__dtype_is_known(zro_dtype dtype)
{
    return (size_t)dtype < sizeof types / sizeof *types;
}

int zro__dtype_is_float(zro_dtype dtype)
{
    return dtype == ZRO_F32 || dtype == ZRO_F64 || dtype == ZRO_BF16 || dtype == ZRO_F16;
}

size_t zro_dtype_bytes(zro_dtype dtype)
{
    return zro__dtype_is_known(dtype) ? types[dtype].bytes : 0;
}

const char *zro_dtype_name(zro_dtype dtype)
{
    return zro__dtype_is_known(dtype) ? types[dtype].name : NULL;
}

const char *zro__dtype_text(zro_dtype dtype)
{
    return zro__dtype_is_known(dtype) ? types[dtype].name : "of an unknown type";
}
