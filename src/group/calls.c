/* The named calls: rows of one table over the transfer.
 *
 *   call             op       owner of a part       to
 *   barrier          no parts
 *   broadcast        none     root                  all
 *   gather           none     each its own          root
 *   all_gather       none     each its own          all
 *   reduce           sum ...  root                  root
 *   reduce_scatter   sum ...  each its piece        owner
 *   all_reduce       sum ...  cut evenly at blocks  all
 *
 * A call with arguments that cannot be right is refused before anything is issued: the group stays whole, and the other
 * ranks, if they passed something better, wait for this one. */
#include <inttypes.h>
#include <string.h>

#include "base/dtype.h"
#include "group/group.h"

/* ---- arguments ---- */

static zro_status check_types(const char *name, zro_dtype dtype, int reduces, zro_op op)
{
    if (zro_dtype_bytes(dtype) == 0)
        return zro__fail(ZRO_ERR_INVALID, "%s: dtype = %d is no element type", name, (int)dtype);
    if (!reduces)
        return ZRO_OK;
    if ((int)op < ZRO_SUM || (int)op > ZRO_MAX)
        return zro__fail(ZRO_ERR_INVALID, "%s: op = %d is none of sum, avg, min, max", name, (int)op);
    if (op == ZRO_AVG && !zro__dtype_is_float(dtype))
        return zro__fail(ZRO_ERR_UNSUPPORTED, "%s: no average of %s; sum and divide", name, zro_dtype_name(dtype));
    return ZRO_OK;
}

static zro_status check_root(const zro_group *g, const char *name, int root)
{
    if (root < 0 || root >= g->board.size)
        return zro__fail(ZRO_ERR_INVALID, "%s: root = %d, must be a rank of this group of %d", name, root, g->board.size);
    return ZRO_OK;
}

static zro_status check_size(const char *name, size_t count, zro_dtype dtype)
{
    size_t bytes;

    if (!zro__size_mul(count, zro_dtype_bytes(dtype), &bytes) || bytes > SIZE_MAX / 2)
        return zro__fail(ZRO_ERR_INVALID, "%s: %zu elements of %s do not fit into memory", name, count, zro_dtype_name(dtype));
    return ZRO_OK;
}

static zro_status check_array(const char *name, const char *which, const void *array, size_t count, zro_dtype dtype)
{
    if (array == NULL && count > 0)
        return zro__fail(ZRO_ERR_INVALID, "%s: %s is NULL for %zu elements", name, which, count);
    return check_size(name, count, dtype);
}

/* `in` may overlap `out` only by being `same`, its place in it (or out's in `in`). */
static zro_status check_apart(const char *name, const void *in, size_t in_bytes, const void *out, size_t out_bytes, int same)
{
    uintptr_t a = (uintptr_t)in, b = (uintptr_t)out;

    if (same || in_bytes == 0 || out_bytes == 0 || a + in_bytes <= b || b + out_bytes <= a)
        return ZRO_OK;
    return zro__fail(ZRO_ERR_INVALID, "%s: in and out overlap", name);
}

/* The sum of one count a rank, and the hash that the ranks compare. */
static zro_status add_counts(const zro_group *g, const char *name, const size_t *counts, size_t *total, uint64_t *hash)
{
    *total = 0;
    if (counts == NULL)
        return zro__fail(ZRO_ERR_INVALID, "%s: counts is NULL", name);
    for (int r = 0; r < g->board.size; r++)
        if (!zro__size_add(*total, counts[r], total))
            return zro__fail(ZRO_ERR_INVALID, "%s: the counts add up to more than a size_t", name);
    *hash = zro__hash(ZRO__HASH_START, counts, (size_t)g->board.size * sizeof *counts);
    return ZRO_OK;
}

/* Where this rank's piece begins among those of all ranks. */
static const void *own_place(const zro_group *g, const void *array, const size_t *counts, size_t count, zro_dtype dtype)
{
    size_t at = 0;

    for (int r = 0; r < g->board.rank; r++)
        at += counts != NULL ? counts[r] : count;
    return (const char *)array + at * zro_dtype_bytes(dtype);
}

/* ---- rows ---- */

/* One part a rank; `in_step` and `out_step` say whether the parts follow each other there or each begin at 0. */
static void set_pieces(zro_group *g, zro__xfer *x, const size_t *counts, size_t count, int in_step, int out_step)
{
    zro__part *parts = g->scratch.parts;
    size_t at = 0, size = zro_dtype_bytes(x->in_type);

    for (int r = 0; r < g->board.size; r++) {
        size_t n = counts != NULL ? counts[r] : count;

        parts[r] = (zro__part){ in_step ? at : 0, out_step ? at : 0, n, r, r };
        at += n * size;
    }
    x->parts = parts;
    x->n_parts = (size_t)g->board.size;
}

static zro__xfer describe(zro__call call, size_t count, zro_dtype dtype, int root)
{
    return (zro__xfer){ .call = call, .root = root, .count = count, .in_type = dtype, .out_type = dtype, .to = root };
}

zro_status zro_barrier(zro_group *g)
{
    zro__xfer x = describe(ZRO__CALL_BARRIER, 0, ZRO_U8, -1);
    zro_status st = zro__enter(g);

    return st != ZRO_OK ? st : zro__leave(g, zro__xfer_run(g, &x));
}

zro_status zro_all_reduce_into(zro_group *g, const void *in, void *out, size_t count, zro_dtype dtype, zro_op op)
{
    const char *name = "all_reduce";
    zro__xfer x = describe(ZRO__CALL_ALL_REDUCE, count, dtype, -1);
    zro_status st = check_types(name, dtype, 1, op);

    if (st == ZRO_OK)
        st = check_array(name, in == out ? "data" : "in", in, count, dtype);
    if (st == ZRO_OK)
        st = check_array(name, "out", out, count, dtype);
    x.in_bytes = x.out_bytes = count * zro_dtype_bytes(dtype);
    if (st == ZRO_OK)
        st = check_apart(name, in, x.in_bytes, out, x.out_bytes, in == out);
    if (st == ZRO_OK)
        st = zro__enter(g);
    if (st != ZRO_OK)
        return st;
    x.reduces = 1;
    x.op = op;
    x.in = in;
    x.out = out;
    x.to = ZRO__TO_ALL;
    x.parts = g->scratch.parts;
    x.n_parts = (size_t)g->board.size;
    for (int r = 0; r < g->board.size; r++) {
        zro__part *part = &g->scratch.parts[r];
        size_t first;

        zro__cut_even(count, g->board.size, r, &first, &part->count);
        part->in_at = part->out_at = first * zro_dtype_bytes(dtype);
        part->owner = part->source = r;
    }
    return zro__leave(g, zro__xfer_run(g, &x));
}

zro_status zro_all_reduce(zro_group *g, void *data, size_t count, zro_dtype dtype, zro_op op)
{
    return zro_all_reduce_into(g, data, data, count, dtype, op);
}

zro_status zro_reduce(zro_group *g, const void *in, void *out, size_t count, zro_dtype dtype, zro_op op, int root)
{
    const char *name = "reduce";
    zro__xfer x = describe(ZRO__CALL_REDUCE, count, dtype, root);
    zro__part part = { 0, 0, count, root, root };
    zro_status st = check_types(name, dtype, 1, op);

    if (st == ZRO_OK)
        st = zro__check_group(g);
    if (st == ZRO_OK)
        st = check_root(g, name, root);
    if (st == ZRO_OK)
        st = check_array(name, "in", in, count, dtype);
    if (st == ZRO_OK && g->board.rank == root)
        st = check_array(name, "out", out, count, dtype);
    x.in_bytes = count * zro_dtype_bytes(dtype);
    if (st == ZRO_OK && g->board.rank == root)
        st = check_apart(name, in, x.in_bytes, out, x.in_bytes, in == out);
    if (st == ZRO_OK)
        st = zro__enter(g);
    if (st != ZRO_OK)
        return st;
    x.reduces = 1;
    x.op = op;
    x.in = in;
    x.out = g->board.rank == root ? out : NULL;
    x.out_bytes = g->board.rank == root ? x.in_bytes : 0;
    x.spread = 1;
    x.parts = &part;
    x.n_parts = 1;
    return zro__leave(g, zro__xfer_run(g, &x));
}

static zro_status reduce_scatter(zro_group *g, const void *in, void *out, const size_t *counts, size_t count, size_t total,
                                 uint64_t tag, zro_dtype dtype, zro_op op)
{
    const char *name = "reduce_scatter";
    zro__xfer x = describe(ZRO__CALL_REDUCE_SCATTER, total, dtype, -1);
    size_t mine = counts != NULL ? counts[g->board.rank] : count;
    zro_status st = check_types(name, dtype, 1, op);

    if (st == ZRO_OK)
        st = check_array(name, "in", in, total, dtype);
    if (st == ZRO_OK)
        st = check_array(name, "out", out, mine, dtype);
    x.in_bytes = total * zro_dtype_bytes(dtype);
    x.out_bytes = mine * zro_dtype_bytes(dtype);
    if (st == ZRO_OK)
        st = check_apart(name, in, x.in_bytes, out, x.out_bytes, out == own_place(g, in, counts, count, dtype));
    if (st == ZRO_OK)
        st = zro__enter(g);
    if (st != ZRO_OK)
        return st;
    x.reduces = 1;
    x.op = op;
    x.tag = tag;
    x.in = in;
    x.out = out;
    x.to = ZRO__TO_OWNER;
    set_pieces(g, &x, counts, count, 1, 0);
    return zro__leave(g, zro__xfer_run(g, &x));
}

zro_status zro_reduce_scatter(zro_group *g, const void *in, void *out, size_t count, zro_dtype dtype, zro_op op)
{
    size_t total;
    zro_status st = zro__check_group(g);

    if (st != ZRO_OK)
        return st;
    if (!zro__size_mul(count, (size_t)g->board.size, &total))
        return zro__fail(ZRO_ERR_INVALID, "reduce_scatter: %zu elements for each of %d ranks", count, g->board.size);
    return reduce_scatter(g, in, out, NULL, count, total, 0, dtype, op);
}

zro_status zro_reduce_scatter_v(zro_group *g, const void *in, void *out, const size_t *counts, zro_dtype dtype, zro_op op)
{
    size_t total;
    uint64_t hash;
    zro_status st = zro__check_group(g);

    if (st == ZRO_OK)
        st = add_counts(g, "reduce_scatter_v", counts, &total, &hash);
    return st != ZRO_OK ? st : reduce_scatter(g, in, out, counts, 0, total, hash, dtype, op);
}

/* Inside the lane. */
static zro_status broadcast(zro_group *g, zro__call call, void *data, size_t count, zro_dtype dtype, int root)
{
    zro__xfer x = describe(call, count, dtype, root);
    zro__part part = { 0, 0, count, root, root };

    x.in = g->board.rank == root ? data : NULL;
    x.out = data;
    x.out_bytes = count * zro_dtype_bytes(dtype);
    x.in_bytes = g->board.rank == root ? x.out_bytes : 0;
    x.to = ZRO__TO_ALL;
    x.spread = 1;
    x.parts = &part;
    x.n_parts = 1;
    return zro__xfer_run(g, &x);
}

zro_status zro_broadcast(zro_group *g, void *data, size_t count, zro_dtype dtype, int root)
{
    const char *name = "broadcast";
    zro_status st = check_types(name, dtype, 0, ZRO_SUM);

    if (st == ZRO_OK)
        st = zro__check_group(g);
    if (st == ZRO_OK)
        st = check_root(g, name, root);
    if (st == ZRO_OK)
        st = check_array(name, "data", data, count, dtype);
    if (st == ZRO_OK)
        st = zro__enter(g);
    return st != ZRO_OK ? st : zro__leave(g, broadcast(g, ZRO__CALL_BROADCAST, data, count, dtype, root));
}

/* Inside the lane: first the length, then a vote that all have memory for it, then the bytes. */
static zro_status broadcast_bytes(zro_group *g, const void *in, size_t bytes, int root, void **out, size_t *out_bytes)
{
    const char *name = "broadcast_bytes";
    uint64_t length = bytes;
    char *copy;
    zro_status st = broadcast(g, ZRO__CALL_BROADCAST_BYTES, &length, 1, ZRO_I64, root);

    if (st != ZRO_OK)
        return st;
    copy = zro__alloc(NULL, ZRO__KIND_BUFFER, length < SIZE_MAX ? (size_t)length + 1 : SIZE_MAX);
    if (copy == NULL)
        st = zro__fail(ZRO_ERR_MEMORY, "%s: out of memory: %" PRIu64 " bytes", name, length);
    st = zro__vote(&g->board, ZRO__CALL_BROADCAST_BYTES, st);
    if (st == ZRO_OK) {
        if (g->board.rank == root && length > 0)
            memcpy(copy, in, length);
        st = broadcast(g, ZRO__CALL_BROADCAST_BYTES, copy, (size_t)length, ZRO_U8, root);
    }
    if (st != ZRO_OK) {
        zro__free(copy);
        return st;
    }
    *out = copy;
    *out_bytes = (size_t)length;
    return ZRO_OK;
}

zro_status zro_broadcast_bytes(zro_group *g, const void *in, size_t bytes, int root, void **out, size_t *out_bytes)
{
    const char *name = "broadcast_bytes";
    zro_status st;

    if (out == NULL || out_bytes == NULL)
        return zro__fail(ZRO_ERR_INVALID, "%s: out is NULL", name);
    *out = NULL;
    *out_bytes = 0;
    st = zro__check_group(g);
    if (st == ZRO_OK)
        st = check_root(g, name, root);
    if (st == ZRO_OK && g->board.rank == root)
        st = check_array(name, "in", in, bytes, ZRO_U8);
    if (st == ZRO_OK)
        st = zro__enter(g);
    return st != ZRO_OK ? st : zro__leave(g, broadcast_bytes(g, in, bytes, root, out, out_bytes));
}

void zro_bytes_free(void *bytes)
{
    zro__free(bytes);
}

/* root < 0: to all. */
static zro_status gather(zro_group *g, const char *name, const void *in, void *out, const size_t *counts, size_t count,
                         size_t total, uint64_t tag, zro_dtype dtype, int root)
{
    zro__xfer x = describe(root < 0 ? ZRO__CALL_ALL_GATHER : ZRO__CALL_GATHER, total, dtype, root);
    size_t mine = counts != NULL ? counts[g->board.rank] : count;
    int gets = root < 0 || root == g->board.rank;
    zro_status st = check_types(name, dtype, 0, ZRO_SUM);

    if (st == ZRO_OK)
        st = check_array(name, "in", in, mine, dtype);
    if (st == ZRO_OK)
        st = check_size(name, total, dtype); /* on all ranks alike */
    if (st == ZRO_OK && gets)
        st = check_array(name, "out", out, total, dtype);
    x.in_bytes = mine * zro_dtype_bytes(dtype);
    x.out_bytes = gets ? total * zro_dtype_bytes(dtype) : 0;
    if (st == ZRO_OK && gets)
        st = check_apart(name, in, x.in_bytes, out, x.out_bytes, in == own_place(g, out, counts, count, dtype));
    if (st == ZRO_OK)
        st = zro__enter(g);
    if (st != ZRO_OK)
        return st;
    x.tag = tag;
    x.in = in;
    x.out = gets ? out : NULL;
    x.to = root < 0 ? ZRO__TO_ALL : root;
    set_pieces(g, &x, counts, count, 0, 1);
    return zro__leave(g, zro__xfer_run(g, &x));
}

static zro_status gather_even(zro_group *g, const char *name, const void *in, void *out, size_t count, zro_dtype dtype,
                              int root)
{
    size_t total;

    if (!zro__size_mul(count, (size_t)g->board.size, &total))
        return zro__fail(ZRO_ERR_INVALID, "%s: %zu elements from each of %d ranks", name, count, g->board.size);
    return gather(g, name, in, out, NULL, count, total, 0, dtype, root);
}

static zro_status gather_uneven(zro_group *g, const char *name, const void *in, void *out, const size_t *counts,
                                zro_dtype dtype, int root)
{
    size_t total;
    uint64_t hash;
    zro_status st = add_counts(g, name, counts, &total, &hash);

    return st != ZRO_OK ? st : gather(g, name, in, out, counts, 0, total, hash, dtype, root);
}

zro_status zro_gather(zro_group *g, const void *in, void *out, size_t count, zro_dtype dtype, int root)
{
    zro_status st = zro__check_group(g);

    if (st == ZRO_OK)
        st = check_root(g, "gather", root);
    return st != ZRO_OK ? st : gather_even(g, "gather", in, out, count, dtype, root);
}

zro_status zro_gather_v(zro_group *g, const void *in, void *out, const size_t *counts, zro_dtype dtype, int root)
{
    zro_status st = zro__check_group(g);

    if (st == ZRO_OK)
        st = check_root(g, "gather_v", root);
    return st != ZRO_OK ? st : gather_uneven(g, "gather_v", in, out, counts, dtype, root);
}

zro_status zro_all_gather(zro_group *g, const void *in, void *out, size_t count, zro_dtype dtype)
{
    zro_status st = zro__check_group(g);

    return st != ZRO_OK ? st : gather_even(g, "all_gather", in, out, count, dtype, -1);
}

zro_status zro_all_gather_v(zro_group *g, const void *in, void *out, const size_t *counts, zro_dtype dtype)
{
    zro_status st = zro__check_group(g);

    return st != ZRO_OK ? st : gather_uneven(g, "all_gather_v", in, out, counts, dtype, -1);
}
