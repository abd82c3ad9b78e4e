/* Bytes of a state on their way between ranks: see state_move.h. */
#include "zero/state_move.h"

#include <string.h>

#include "base/point.h"
#include "group/group.h"

zro_status zro__moves_send(zro__moves *m)
{
    zro__xfer x = zro__delivery(m->call, ZRO_U8, NULL, 0, m->parts, m->n_parts, m->bytes);
    const int rank = zro__optim_rank(m->opt), gets = m->to == ZRO_ALL || m->to == rank;
    uintptr_t in = UINTPTR_MAX, out = UINTPTR_MAX, in_end = 0, out_end = 0;

    if (m->n_parts == 0)
        return ZRO_OK;
    (void)ZRO__POINT("consolidate.batch");
    x.tag = m->n_batches++;
    x.to = m->to == ZRO_ALL ? ZRO__TO_ALL : m->to;
    x.scattered = 1;
    x.slow = ZRO__HEADER_IN_SLOW | ZRO__HEADER_OUT_SLOW;
    for (size_t i = 0; i < m->n_parts; i++) { /* addresses, until the lowest is known */
        const zro__part *p = &m->parts[i];

        if (p->owner == rank) {
            in = p->in_at < in ? p->in_at : in;
            in_end = p->in_at + p->count > in_end ? p->in_at + p->count : in_end;
        }
        out = p->out_at < out ? p->out_at : out;
        out_end = p->out_at + p->count > out_end ? p->out_at + p->count : out_end;
    }
    for (size_t i = 0; i < m->n_parts; i++) {
        m->parts[i].in_at -= m->parts[i].owner == rank ? in : 0;
        m->parts[i].out_at -= gets ? out : 0;
    }
    if (in_end > 0) {
        x.in = (const void *)in;
        x.in_bytes = in_end - in;
    }
    if (gets) {
        x.out = (void *)out;
        x.out_bytes = out_end - out;
    }
    m->n_parts = 0;
    m->bytes = 0;
    return zro__xfer_run(&m->opt->group->ranks, &x);
}

zro_status zro__move(zro__moves *m, int source, const void *from, void *to, size_t bytes)
{
    if (bytes == 0)
        return ZRO_OK;
    if (!zro__cycle_is_shared(m->opt->cycle)) {
        memcpy(to, from, bytes);
        return ZRO_OK;
    }
    m->parts[m->n_parts++] = (zro__part){ (uintptr_t)from, (uintptr_t)to, bytes, source, source };
    m->bytes += bytes;
    return m->n_parts == ZRO__MOVE_BATCH ? zro__moves_send(m) : ZRO_OK;
}

char *zro__part_of(const zro_optim *opt, const zro_range *r, int slot)
{
    zro__shard_group *group = NULL;
    const zro__entry *e = &opt->params[r->param];
    const zro__piece *piece = slot != ZRO__DATA_SLOT ? zro__shard_find(zro__optim_shard(opt), r->param, &group) : NULL;

    if (slot != ZRO__DATA_SLOT)
        return zro__shard_slot(group, piece, (size_t)slot);
    return e->param->data != NULL ? (char *)e->param->data + r->first * zro_dtype_bytes(e->dtype) : NULL;
}
