/* Staged gradients: see staging.h. */
#include "step/staging.h"

#include <string.h>

#include "base/dtype.h"
#include "base/param.h"
#include "base/point.h"
#include "board/vote.h"
#include "group/group.h"
#include "step/place.h"

/* ---- making ---- */

/* Puts the gradients one after another; 0 if the sum does not fit into a size_t. */
static int lay_out(zro__staging *s)
{
    int fits = 1;

    for (size_t i = 0; i < s->n && fits; i++)
        fits = zro__place_put(zro_param_count(&s->params[i]) * zro_dtype_bytes(zro__param_grad_type(&s->params[i])), &s->bytes,
                              &s->at[i]);
    return fits;
}

static zro_status take(zro__account *account, const zro_param *params, size_t n, zro__staging **out)
{
    zro__staging *s = *out = zro__alloc(account, ZRO__KIND_HANDLE, sizeof *s);
    zro_status st;

    if (s == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: staged gradients of %zu parameters", n);
    s->params = params;
    s->n = n;
    st = zro__arena_arrays(&s->arena, account, "staged gradients",
                           (const zro__array[]){ { &s->at, n, sizeof *s->at }, { &s->from, n, sizeof *s->from } }, 2);
    if (st == ZRO_OK && !lay_out(s))
        st = zro__fail(ZRO_ERR_MEMORY, "staged gradients of %zu parameters need more bytes than memory can hold", n);
    return st;
}

zro_status zro__staging_make(zro_group *group, zro__account *account, const zro_param *params, size_t n, int has_own,
                             zro__call call, zro__staging **out)
{
    uint8_t some[] = { has_own != 0, group->ranks.fast == ZRO_OFF }; /* which ranks may have set differently */
    zro_status st;

    *out = NULL;
    if (group->ranks.board.size == 1 || !group->ranks.one_machine)
        return ZRO_OK;
    st = zro_all_reduce(group, some, 2, ZRO_U8, ZRO_MAX);
    if (st != ZRO_OK || !some[0] || some[1])
        return st;
    st = zro__vote(&group->ranks.board, call, take(account, params, n, out));
    if (st == ZRO_OK && (*out)->bytes > 0)
        st = zro_memory_alloc(group, ZRO_MEMORY_EACH, (*out)->bytes, &(*out)->memory);
    if (st == ZRO_OK && (*out)->bytes > 0) {
        (*out)->kernels = group->ranks.kernels;
        (*out)->rank = group->ranks.board.rank;
        return ZRO_OK;
    }
    zro__staging_free(*out);
    *out = NULL;
    return st;
}

void zro__staging_free(zro__staging *s)
{
    if (s == NULL)
        return;
    zro_memory_free(s->memory);
    zro__arena_free(&s->owned.arena);
    zro__arena_free(&s->arena);
    zro__free(s);
}

void zro__staging_own(zro__staging *s, zro__staged_ranges *ranges)
{
    zro__arena_free(&s->owned.arena);
    s->owned = *ranges;
    *ranges = (zro__staged_ranges){ 0 };
}

/* ---- iterations ---- */

void zro__staging_open(zro__staging *s)
{
    memset(s->from, 0, s->n * sizeof *s->from);
}

/* What is noted here is read after the buckets were issued, which the thread that completes them does later. */
void zro__staging_copy(zro__staging *s, size_t i)
{
    const zro_param *p = &s->params[i];
    const size_t size = zro_dtype_bytes(zro__param_grad_type(p));

    (void)ZRO__POINT("staging.copy");
    for (size_t r = s->owned.first[i]; r < s->owned.first[i + 1]; r++) {
        const zro_range *range = &s->owned.ranges[r];
        void *to = (char *)zro_memory_data(s->memory) + s->at[i] + range->first * size;

        if (range->owner != s->rank)
            s->kernels->copy(&to, 1, (const char *)p->grad + range->first * size, range->count * size, 1);
    }
    s->kernels->fence(); /* before the peers are told, by whichever thread */
    s->from[i] = p->grad;
}
