/* S85: all-reduce sends at most 2(N-1)/N of the buffer, plus headers and one block a peer, per rank, when every rank is a
 * machine of its own: each owner gets the others' pieces of its part and sends the result back. */
#include <stdlib.h>
#include <string.h>

#include "base/kernels.h"
#include "zt/list.h"
#include "zt/zt.h"

enum { HEADER_BYTES = 256, LEAST_MESSAGE = 32 << 10 };

static void one_size(zt_rank *t, void *data, size_t count, zro_dtype dtype)
{
    zro_stats before = ZRO_STATS_INIT, after = ZRO_STATS_INIT;
    size_t bytes = count * zro_dtype_bytes(dtype), peers = (size_t)t->size - 1;
    size_t most_bytes, most_messages, sent, messages;

    /* Pieces and results to each peer, cut into messages, and a few that say what is done. */
    most_messages = peers * (4 + 2 * (bytes / (size_t)t->size / LEAST_MESSAGE + 1));
    most_bytes = 2 * peers * bytes / (size_t)t->size + peers * ZRO__BLOCK * zro_dtype_bytes(dtype);
    CHECK_OK(zro_group_stats(t->group, &before));
    CHECK_OK(zro_all_reduce(t->group, data, count, dtype, ZRO_SUM));
    CHECK_OK(zro_group_stats(t->group, &after));
    sent = after.link_bytes - before.link_bytes;
    messages = after.link_messages - before.link_messages;
    if (after.direct_bytes != before.direct_bytes || messages > most_messages || sent > most_bytes + messages * HEADER_BYTES
        || sent < bytes / (size_t)t->size)
        zt_fail(__FILE__, __LINE__, "%zu %s: %zu bytes in %zu messages; at most %zu and headers in %zu", count,
                zro_dtype_name(dtype), sent, messages, most_bytes, most_messages);
}

static void S85_bytes(zt_rank *t)
{
    static const size_t counts[] = { 1, 1000, 65537, 1000000, (4 << 20) + 5 };
    const size_t most = ((size_t)4 << 20) + 5;
    zro_memory *memory;
    float *own = calloc(most, sizeof *own);

    CHECK(own != NULL);
    CHECK_OK(zro_memory_alloc(t->group, ZRO_MEMORY_EACH, most * sizeof *own, &memory));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        one_size(t, own, counts[i], ZRO_F32);
        one_size(t, zro_memory_data(memory), counts[i], ZRO_F32);
        one_size(t, own, counts[i], ZRO_BF16);
    }
    zro_memory_free(memory);
    free(own);
}

const zt_case cases_group_bytes[] = {
    { "S85_bytes", S85_bytes, ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4) | ZT_WORLD(7), ZT_ALL, ZT_OWN_MACHINES, 60, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
