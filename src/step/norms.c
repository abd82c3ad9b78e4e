/* Norms over the gradients of all ranks: see norms.h. */
#include "step/norms.h"

#include "group/group.h"
#include "optim/shard.h"

/* How many runs of blocks with one owner there are; into `parts` if that is not NULL. */
static size_t find_parts(const zro_range *ranges, size_t n, zro__part *parts, size_t *blocks)
{
    size_t n_parts = 0;
    int owner = -1;

    *blocks = 0;
    for (size_t i = 0; i < n; i++) {
        size_t count = zro__blocks_of(ranges[i].count);

        n_parts += ranges[i].owner != owner;
        owner = ranges[i].owner;
        if (parts != NULL) {
            zro__part *p = &parts[n_parts - 1];

            if (p->count == 0)
                *p = (zro__part){ *blocks * sizeof(double), *blocks * sizeof(double), 0, owner, owner };
            p->count += count;
        }
        *blocks += count;
    }
    return n_parts;
}

zro_status zro__norms_reserve(zro__norms *norms, zro_group *group, zro__account *account, const zro_range *ranges, size_t n)
{
    zro__norms next = { 0 };
    zro_status st = ZRO_OK;

    next.n_parts = find_parts(ranges, n, NULL, &next.n);
    if (next.n == norms->n)
        return ZRO_OK;
    if (group == NULL) {
        next.partials = zro__alloc_array(account, ZRO__KIND_HANDLE, next.n, sizeof *next.partials);
        st = next.partials != NULL ? ZRO_OK : zro__fail(ZRO_ERR_MEMORY, "out of memory: norms of %zu blocks", next.n);
    } else {
        next.parts = zro__alloc_array(account, ZRO__KIND_HANDLE, next.n_parts, sizeof *next.parts);
        if (next.parts == NULL)
            st = zro__fail(ZRO_ERR_MEMORY, "out of memory: norms of %zu blocks", next.n);
        st = zro__vote(&group->board, ZRO__CALL_NORM, st);
        if (st == ZRO_OK)
            st = zro_memory_alloc(group, ZRO_MEMORY_ONCE, next.n * sizeof *next.partials, &next.memory);
        next.partials = zro_memory_data(next.memory);
    }
    if (st != ZRO_OK) {
        zro__norms_free(&next);
        return st;
    }
    if (next.parts != NULL)
        (void)find_parts(ranges, n, next.parts, &next.n);
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
    const size_t bytes = norms->n * sizeof *norms->partials;
    const zro__xfer x = { .call = ZRO__CALL_NORM,
                          .root = -1,
                          .count = norms->n,
                          .parts = norms->parts,
                          .n_parts = norms->n_parts,
                          .in_type = ZRO_F64,
                          .out_type = ZRO_F64,
                          .in = norms->partials,
                          .out = norms->partials,
                          .in_bytes = bytes,
                          .out_bytes = bytes,
                          .to = ZRO__TO_ALL,
                          .scattered = 1 /* others may still fill in theirs */ };

    return zro__xfer_run(group, &x);
}
