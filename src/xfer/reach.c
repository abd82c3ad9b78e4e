/* Who reaches what: see progress.h. */
#include "xfer/progress.h"

int zro__reach_shares(const zro__progress *f, int a, int b, uint32_t slow)
{
    return f->ranks->machine[a] == f->ranks->machine[b]
           && !((zro__reach_header(f, a)->flags | zro__reach_header(f, b)->flags) & slow);
}

int zro__reach_reads(const zro__progress *f, int owner, int rank)
{
    return owner == rank
           || (zro__reach_shares(f, owner, rank, ZRO__HEADER_IN_SLOW) && zro__reach_header(f, rank)->in != ZRO__NOWHERE);
}

int zro__reach_writes(const zro__progress *f, int owner, int rank)
{
    return owner == rank
           || (zro__reach_shares(f, owner, rank, ZRO__HEADER_OUT_SLOW) && zro__reach_header(f, rank)->out != ZRO__NOWHERE);
}

int zro__reach_receives(const zro__progress *f, int owner, int rank)
{
    return f->to == ZRO__TO_ALL || f->to == rank || (f->to == ZRO__TO_OWNER && owner == rank);
}

int zro__reach_writer(const zro__progress *f, int owner, int rank)
{
    const int *twin = f->ranks->scratch.twin;

    if (zro__reach_writes(f, owner, rank) || (twin[owner] == twin[rank] && zro__reach_receives(f, owner, owner)))
        return owner;
    return twin[rank];
}

int zro__reach_has(const zro__progress *f, int rank, size_t part)
{
    const uint64_t *bits = f->n_words == 0 ? NULL : zro__reach_bits(f, rank);

    return bits == NULL || (bits[part / 64] >> (part % 64) & 1);
}

const uint64_t *zro__reach_bits(const zro__progress *f, int rank)
{
    return f->bits != NULL ? f->bits + (size_t)rank * f->n_words
                           : (const uint64_t *)zro__payload_of(&f->ranks->board, rank) + 1; /* behind the claim */
}
