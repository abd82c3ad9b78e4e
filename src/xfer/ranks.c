/* The ranks of a group: see ranks.h. */
#include "xfer/ranks.h"

#include <string.h>

void zro__ranks_list(zro__ranks *ranks, int size, zro__array *out)
{
    zro__scratch *s = &ranks->scratch;
    size_t n = (size_t)size, lists = n * (1 + ranks->threads);
    const zro__array arrays[ZRO__RANKS_ARRAYS] = {
        { &ranks->machine, n, sizeof *ranks->machine },
        { &ranks->order, n, sizeof *ranks->order },
        { &ranks->cell_lengths, n, sizeof *ranks->cell_lengths },
        { &s->parts, n, sizeof *s->parts },
        { &s->send, n, sizeof *s->send },
        { &s->recv, n, sizeof *s->recv },
        { &s->expect, n, sizeof *s->expect },
        { &s->in_of, n, sizeof *s->in_of },
        { &s->out_of, n, sizeof *s->out_of },
        { &s->borrowed, 2 * n, sizeof *s->borrowed },
        { &s->incoming, n, sizeof *s->incoming },
        { &s->outgoing, n, sizeof *s->outgoing },
        { &s->twin, n, sizeof *s->twin },
        { &s->weight, n, sizeof *s->weight },
        { &s->src, lists, sizeof *s->src },
        { &s->dst, lists, sizeof *s->dst },
    };

    memcpy(out, arrays, sizeof arrays);
}

void zro__ranks_order(zro__ranks *ranks, const int32_t *cell, int size)
{
    int n = 0;

    ranks->n_cells = 0;
    for (int r = 0; r < size; r++) {
        int *length = &ranks->cell_lengths[ranks->n_cells], seen = 0;

        for (int q = 0; q < r; q++)
            seen |= cell[q] == cell[r];
        if (seen)
            continue;
        *length = 0;
        for (int q = r; q < size; q++) {
            if (cell[q] == cell[r]) {
                ranks->order[n++] = q;
                ++*length;
            }
        }
        ranks->n_cells++;
    }
}
