/* Which build of the library wrote something: see build.h. */
#include "base/build.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"

static uint64_t sum_of(const zro__build *build)
{
    return zro__hash(ZRO__HASH_START, build, offsetof(zro__build, sum));
}

void zro__build_write(zro__build *build, const char *magic, uint64_t layout)
{
    memset(build, 0, sizeof *build);
    memcpy(build->magic, magic, sizeof build->magic);
    snprintf(build->version, sizeof build->version, "%s", zro_version());
    build->layout = layout;
    build->sum = sum_of(build);
}

int zro__build_check(const zro__build *build, const char *magic)
{
    return memcmp(build->magic, magic, sizeof build->magic) == 0 && build->sum == sum_of(build);
}

zro_status zro__build_differs(const char *call, int rank, const char *version, const char *other, const char *other_version)
{
    if (strncmp(version, other_version, sizeof((zro__build *)0)->version) == 0)
        return zro__fail(ZRO_ERR_MISMATCH,
                         "%s: rank %d has another build of zro %.15s than %s; use one build of libzro for all ranks", call,
                         rank, version, other);
    return zro__fail(ZRO_ERR_MISMATCH, "%s: rank %d has zro %.15s, but %s has zro %.15s; use one build of libzro for all ranks",
                     call, rank, version, other, other_version);
}
