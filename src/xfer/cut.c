/* How parts are cut: see cut.h.  All borders are multiples of ZRO__BLOCK elements, the unit of norms, so that no later sum
 * depends on where a cut fell. */
#include "xfer/cut.h"

#include "base/kernels.h"

void zro__cut_even(size_t count, int n, int i, size_t *first, size_t *length)
{
    size_t blocks, share, rest, plain, at = (size_t)i, begin, end;

    if (count <= ZRO__BLOCK) { /* the same without divisions, which small calls would feel */
        *first = 0;
        *length = i == n - 1 ? count : 0;
        return;
    }
    blocks = count / ZRO__BLOCK + (count % ZRO__BLOCK != 0);
    share = blocks / (size_t)n;
    rest = blocks % (size_t)n;
    /* The last ranges get the blocks that are left over: the last block may be short, and so they differ by one at most. */
    plain = (size_t)n - rest;
    begin = share * at + (at > plain ? at - plain : 0);
    end = begin + share + (at >= plain);
    /* begin * BLOCK could pass the largest size if count is near it. */
    *first = begin >= blocks ? count : begin * ZRO__BLOCK;
    *length = (end >= blocks ? count : end * ZRO__BLOCK) - *first;
}

static int is_absent(const uint64_t *any, size_t part)
{
    return any != NULL && (any[part / 64] >> part % 64 & 1) == 0;
}

int zro__cursor_next(zro__cursor *c, const zro__part *parts, size_t n_parts, const uint64_t *any, int owner, size_t *left,
                     zro__run *run)
{
    size_t n, rest;

    while (c->part < n_parts
           && (parts[c->part].owner != owner || c->first == parts[c->part].count || is_absent(any, c->part))) {
        c->part++;
        c->first = 0;
    }
    if (c->part == n_parts || *left == 0)
        return 0;
    n = rest = parts[c->part].count - c->first;
    if (n > *left)
        n = *left / ZRO__BLOCK * ZRO__BLOCK;
    if (n == 0)
        return 0;
    *run = (zro__run){ c->part, c->first, n };
    c->first += n;
    *left -= n;
    return 1;
}
