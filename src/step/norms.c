/* Norms over the gradients of all ranks: see norms.h. */
#include "step/norms.h"

#include "group/group.h"
#include "optim/shard.h"
#include "step/batch.h"

zro_status zro__norms_reserve(zro__norms *norms, zro_group *group, zro__account *account, const zro_range *ranges, size_t n)
{
    zro__norms next = { 0 };
    zro_status st = ZRO_OK;

    for (size_t i = 0; i < n; i++)
        next.n += zro__blocks_of(ranges[i].count);
    if (next.n == norms->n)
        return ZRO_OK;
    if (group == NULL)
        next.partials = zro__alloc_array(account, ZRO__KIND_HANDLE, next.n, sizeof *next.partials);
    else
        next.parts = zro__alloc_array(account, ZRO__KIND_HANDLE, n, sizeof *next.parts);
    if (next.partials == NULL && next.parts == NULL)
        st = zro__fail(ZRO_ERR_MEMORY, "out of memory: norms of %zu blocks", next.n);
    if (group != NULL)
        st = zro__vote(&group->ranks.board, ZRO__CALL_NORM, st);
    if (group != NULL && st == ZRO_OK) {
        st = zro_memory_alloc(group, ZRO_MEMORY_ONCE, next.n * sizeof *next.partials, &next.memory);
        next.partials = zro_memory_data(next.memory);
    }
    if (st != ZRO_OK) {
        zro__norms_free(&next);
        return st;
    }
    for (size_t i = 0, at = 0; next.parts != NULL && i < n; at += zro__blocks_of(ranges[i++].count))
        zro__parts_append(next.parts, &next.n_parts, at * sizeof *next.partials, zro__blocks_of(ranges[i].count),
                          ranges[i].owner);
    zro__norms_free(norms);
    *norms = next;
    return ZRO_OK;
}

void zro__norms_free(zro__norms *norms)
{
    if (norms->memory == NULL)
        zro__free(norms->partials);
    zro_memory_free(norms->memory);
    zro__free(norms->parts);
    *norms = (zro__norms){ 0 };
}

zro_status zro__norms_exchange(const zro__norms *norms, zro_group *group)
{
    zro__xfer x = zro__delivery(ZRO__CALL_NORM, ZRO_F64, norms->partials, norms->n * sizeof *norms->partials, norms->parts,
                                norms->n_parts, norms->n);

    x.scattered = 1; /* others may still fill in theirs */
    return zro__xfer_run(&group->ranks, &x);
}
