/* The named calls: rows of one table over the transfer.
 *
 * A call with arguments that cannot be right is refused before anything is issued: the group stays whole, and the other
 * ranks, if they passed something better, wait for this one. */
#include <inttypes.h>
#include <string.h>

#include "base/dtype.h"
#include "base/hash.h"
#include "group/group.h"

/* How much of an array a rank passes. */
typedef enum extent {
    NOTHING,
    ALL_OF_IT,
    OWN_PIECE,
    AT_ROOT /* all of it, on the root alone */
} extent;

/* Who owns what. */
typedef enum cut {
    NO_PARTS,
    EVENLY, /* each rank a range, cut at blocks */
    PIECES, /* each rank its own piece */
    ROOT    /* the root everything, unless all arrays can be reached: then the work is spread */
} cut;

typedef struct row {
    const char *name;
    int reduces;
    extent in, out;
    cut cut;
    int to; /* ZRO__TO_..., or 0: the root */
} row;

static const row rows[] = {
    [ZRO__CALL_BARRIER] = { "barrier", 0, NOTHING, NOTHING, NO_PARTS, ZRO__TO_NOBODY },
    [ZRO__CALL_ALL_REDUCE] = { "all_reduce", 1, ALL_OF_IT, ALL_OF_IT, EVENLY, ZRO__TO_ALL },
    [ZRO__CALL_REDUCE] = { "reduce", 1, ALL_OF_IT, AT_ROOT, ROOT, 0 },
    [ZRO__CALL_REDUCE_SCATTER] = { "reduce_scatter", 1, ALL_OF_IT, OWN_PIECE, PIECES, ZRO__TO_OWNER },
    [ZRO__CALL_BROADCAST] = { "broadcast", 0, AT_ROOT, ALL_OF_IT, ROOT, ZRO__TO_ALL },
    [ZRO__CALL_BROADCAST_BYTES] = { "broadcast_bytes", 0, AT_ROOT, ALL_OF_IT, ROOT, ZRO__TO_ALL },
    [ZRO__CALL_GATHER] = { "gather", 0, OWN_PIECE, AT_ROOT, PIECES, 0 },
    [ZRO__CALL_ALL_GATHER] = { "all_gather", 0, OWN_PIECE, ALL_OF_IT, PIECES, ZRO__TO_ALL },
    [ZRO__CALL_JOIN] = { "join", 0, OWN_PIECE, ALL_OF_IT, PIECES, ZRO__TO_ALL },
    [ZRO__CALL_STOP_REQUESTED] = { "stop_requested", 1, ALL_OF_IT, ALL_OF_IT, EVENLY, ZRO__TO_ALL },
};

/* What a caller passed. */
typedef struct arguments {
    const void *in;
    void *out;
    size_t count;         /* elements of the array, or of each piece where there are pieces */
    const size_t *counts; /* elements of each piece, if `uneven` */
    zro_dtype dtype;
    zro_op op;
    int root; /* -1: none */
    int uneven;
    double divisor; /* AVG: 0: the number of ranks */
} arguments;

/* ---- arguments ---- */

static zro_status check_types(const zro_group *g, const row *r, const arguments *a)
{
    int size = g->ranks.board.size, has_root = r->in == AT_ROOT || r->out == AT_ROOT;

    if (zro__dtype_bytes(a->dtype) == 0)
        return zro__fail(ZRO_ERR_INVALID, "%s: dtype = %d is no element type", r->name, (int)a->dtype);
    if (r->reduces && ((int)a->op < ZRO_SUM || (int)a->op > ZRO_MAX))
        return zro__fail(ZRO_ERR_INVALID, "%s: op = %d is none of sum, avg, min, max", r->name, (int)a->op);
    if (r->reduces && a->op == ZRO_AVG && !zro__dtype_is_float(a->dtype))
        return zro__fail(ZRO_ERR_UNSUPPORTED, "%s: no average of %s; sum and divide", r->name, zro_dtype_name(a->dtype));
    if (has_root && (a->root < 0 || a->root >= size))
        return zro__fail(ZRO_ERR_INVALID, "%s: root = %d, must be a rank of this group of %d", r->name, a->root, size);
    return ZRO_OK;
}

static size_t piece(const arguments *a, int rank)
{
    return a->uneven ? a->counts[rank] : a->count;
}

/* Elements of everything; the same on all ranks, and so is its refusal. */
static zro_status add_up(const zro_group *g, const row *r, const arguments *a, size_t *total)
{
    size_t bytes;

    *total = r->cut == PIECES ? 0 : a->count;
    if (a->uneven && a->counts == NULL)
        return zro__fail(ZRO_ERR_INVALID, "%s: counts is NULL", r->name);
    for (int i = 0; r->cut == PIECES && i < g->ranks.board.size; i++)
        if (!zro__size_add(*total, piece(a, i), total))
            return zro__fail(ZRO_ERR_INVALID, "%s: the counts of %d ranks add up to more than a size_t", r->name,
                             g->ranks.board.size);
    if (!zro__size_mul(*total, zro__dtype_bytes(a->dtype), &bytes) || bytes > SIZE_MAX / 2)
        return zro__fail(ZRO_ERR_INVALID, "%s: %zu elements of %s do not fit into memory", r->name, *total,
                         zro_dtype_name(a->dtype));
    return ZRO_OK;
}

/* Elements of an array that this rank passes. */
static size_t count_of(const zro_group *g, const arguments *a, extent e, size_t total)
{
    if (e == OWN_PIECE)
        return piece(a, g->ranks.board.rank);
    return e == ALL_OF_IT || (e == AT_ROOT && g->ranks.board.rank == a->root) ? total : 0;
}

/* Where this rank's piece begins in an array of all ranks' pieces. */
static const void *own_piece(const zro_group *g, const arguments *a, const void *array)
{
    size_t at = 0;

    for (int r = 0; r < g->ranks.board.rank; r++)
        at += piece(a, r);
    return (const char *)array + at * zro__dtype_bytes(a->dtype);
}

/* The arrays may share memory only if they are the same, or if one is this rank's piece of the other. */
static zro_status check_apart(const zro_group *g, const row *r, const arguments *a, const zro__xfer *x)
{
    uintptr_t in = (uintptr_t)x->in, out = (uintptr_t)x->out;
    int same = r->in == OWN_PIECE    ? x->in == own_piece(g, a, x->out)
               : r->out == OWN_PIECE ? x->out == own_piece(g, a, x->in)
                                     : x->in == x->out;

    if (same || x->in_bytes == 0 || x->out_bytes == 0 || in + x->in_bytes <= out || out + x->out_bytes <= in)
        return ZRO_OK;
    return zro__fail(ZRO_ERR_INVALID, "%s: in and out overlap", r->name);
}

/* Checks everything, and describes the transfer but for its parts. */
static zro_status describe(const zro_group *g, const row *r, const arguments *a, zro__xfer *x)
{
    size_t total, in_count, out_count;
    zro_status st = check_types(g, r, a);

    if (st == ZRO_OK)
        st = add_up(g, r, a, &total);
    if (st != ZRO_OK)
        return st;
    in_count = count_of(g, a, r->in, total);
    out_count = count_of(g, a, r->out, total);
    if (a->in == NULL && in_count > 0)
        return zro__fail(ZRO_ERR_INVALID, "%s: %s is NULL for %zu elements", r->name, a->out == NULL ? "data" : "in", in_count);
    if (a->out == NULL && out_count > 0)
        return zro__fail(ZRO_ERR_INVALID, "%s: %s is NULL for %zu elements", r->name, a->in == NULL ? "data" : "out",
                         out_count);
    *x = (zro__xfer){ .call = (zro__call)(r - rows),
                      .root = a->root,
                      .count = total,
                      .tag = a->uneven ? zro__hash(ZRO__HASH_START, a->counts, (size_t)g->ranks.board.size * sizeof *a->counts)
                                       : 0,
                      .reduces = r->reduces,
                      .op = a->op,
                      .divisor = a->divisor,
                      .in_type = a->dtype,
                      .out_type = a->dtype,
                      .in = in_count > 0 ? a->in : NULL,
                      .out = out_count > 0 ? a->out : NULL,
                      .in_bytes = in_count * zro__dtype_bytes(a->dtype),
                      .out_bytes = out_count * zro__dtype_bytes(a->dtype),
                      .to = r->to != 0 ? r->to : a->root };
    return check_apart(g, r, a, x);
}

/* ---- the transfer ---- */

static void set_parts(zro_group *g, const row *r, const arguments *a, zro__xfer *x)
{
    zro__part *parts = g->ranks.scratch.parts;
    size_t at = 0, bytes = zro__dtype_bytes(a->dtype);
    int n = r->cut == NO_PARTS ? 0 : r->cut == ROOT ? 1 : g->ranks.board.size;

    x->parts = parts;
    x->n_parts = (size_t)n;
    x->spread = r->cut == ROOT;
    for (int i = 0; i < n; i++) {
        size_t first = at, count = piece(a, i);
        int owner = r->cut == ROOT ? a->root : i;

        if (r->cut == EVENLY)
            zro__cut_even(a->count, n, i, &first, &count);
        parts[i] =
            (zro__part){ r->in == OWN_PIECE ? 0 : first * bytes, r->out == OWN_PIECE ? 0 : first * bytes, count, owner, owner };
        at += count;
    }
}

/* Inside the lane. */
static zro_status issue(zro_group *g, zro__call call, const arguments *a)
{
    zro__xfer x;
    zro_status st = describe(g, &rows[call], a, &x);

    if (st != ZRO_OK)
        return st;
    set_parts(g, &rows[call], a, &x);
    return zro__xfer_run(&g->ranks, &x);
}

static zro_status run(zro_group *g, zro__call call, const arguments *a)
{
    zro_status st = zro__enter(g);
    uint64_t begun;

    if (st != ZRO_OK)
        return st;
    begun = zro__trace_begin(g->ranks.board.trace);
    st = issue(g, call, a);
    zro__trace_end(g->ranks.board.trace, begun, rows[call].name, -1, a->count * zro__dtype_bytes(a->dtype));
    return zro__leave(g, st);
}

/* ---- the calls ---- */

zro_status zro_barrier(zro_group *g)
{
    return run(g, ZRO__CALL_BARRIER, &(arguments){ .dtype = ZRO_U8, .root = -1 });
}

zro_status zro_all_reduce_into(zro_group *g, const void *in, void *out, size_t count, zro_dtype dtype, zro_op op)
{
    return run(g, ZRO__CALL_ALL_REDUCE,
               &(arguments){ .in = in, .out = out, .count = count, .dtype = dtype, .op = op, .root = -1 });
}

zro_status zro_all_reduce(zro_group *g, void *data, size_t count, zro_dtype dtype, zro_op op)
{
    return zro_all_reduce_into(g, data, data, count, dtype, op);
}

zro_status zro__all_average(zro_group *g, void *data, size_t count, zro_dtype dtype, double divisor)
{
    return run(
        g, ZRO__CALL_ALL_REDUCE,
        &(arguments){ .in = data, .out = data, .count = count, .dtype = dtype, .op = ZRO_AVG, .root = -1, .divisor = divisor });
}

zro_status zro_reduce(zro_group *g, const void *in, void *out, size_t count, zro_dtype dtype, zro_op op, int root)
{
    return run(g, ZRO__CALL_REDUCE,
               &(arguments){ .in = in, .out = out, .count = count, .dtype = dtype, .op = op, .root = root });
}

zro_status zro_reduce_scatter(zro_group *g, const void *in, void *out, size_t count, zro_dtype dtype, zro_op op)
{
    return run(g, ZRO__CALL_REDUCE_SCATTER,
               &(arguments){ .in = in, .out = out, .count = count, .dtype = dtype, .op = op, .root = -1 });
}

zro_status zro_reduce_scatter_v(zro_group *g, const void *in, void *out, const size_t *counts, zro_dtype dtype, zro_op op)
{
    return run(g, ZRO__CALL_REDUCE_SCATTER,
               &(arguments){ .in = in, .out = out, .counts = counts, .uneven = 1, .dtype = dtype, .op = op, .root = -1 });
}

zro_status zro_broadcast(zro_group *g, void *data, size_t count, zro_dtype dtype, int root)
{
    return run(g, ZRO__CALL_BROADCAST, &(arguments){ .in = data, .out = data, .count = count, .dtype = dtype, .root = root });
}

zro_status zro_gather(zro_group *g, const void *in, void *out, size_t count, zro_dtype dtype, int root)
{
    return run(g, ZRO__CALL_GATHER, &(arguments){ .in = in, .out = out, .count = count, .dtype = dtype, .root = root });
}

zro_status zro_gather_v(zro_group *g, const void *in, void *out, const size_t *counts, zro_dtype dtype, int root)
{
    return run(g, ZRO__CALL_GATHER,
               &(arguments){ .in = in, .out = out, .counts = counts, .uneven = 1, .dtype = dtype, .root = root });
}

zro_status zro__all_gather_as(zro_group *g, zro__call call, const void *in, void *out, size_t count, zro_dtype dtype)
{
    return run(g, call, &(arguments){ .in = in, .out = out, .count = count, .dtype = dtype, .root = -1 });
}

zro_status zro_all_gather(zro_group *g, const void *in, void *out, size_t count, zro_dtype dtype)
{
    return zro__all_gather_as(g, ZRO__CALL_ALL_GATHER, in, out, count, dtype);
}

zro_status zro_all_gather_v(zro_group *g, const void *in, void *out, const size_t *counts, zro_dtype dtype)
{
    return run(g, ZRO__CALL_ALL_GATHER,
               &(arguments){ .in = in, .out = out, .counts = counts, .uneven = 1, .dtype = dtype, .root = -1 });
}

zro_status zro_group_stop_requested(zro_group *g, int mine, int *any)
{
    uint8_t flag = mine != 0;
    zro_status st;

    if (any == NULL)
        return zro__fail(ZRO_ERR_INVALID, "stop_requested: any is NULL");
    *any = 0;
    st = run(g, ZRO__CALL_STOP_REQUESTED,
             &(arguments){ .in = &flag, .out = &flag, .count = 1, .dtype = ZRO_U8, .op = ZRO_MAX, .root = -1 });
    *any = st == ZRO_OK && flag != 0;
    return st;
}

/* ---- bytes ---- */

/* Inside the lane: first the length, then a vote that all have memory for it, then the bytes. */
static zro_status broadcast_bytes(zro_group *g, const void *in, size_t bytes, int root, void **out, size_t *out_bytes)
{
    zro__call call = ZRO__CALL_BROADCAST_BYTES;
    uint64_t length = bytes;
    char *copy;
    zro_status st = ZRO_OK;

    if (root == g->ranks.board.rank && in == NULL && bytes > 0)
        return zro__fail(ZRO_ERR_INVALID, "broadcast_bytes: in is NULL for %zu bytes", bytes);
    st = issue(g, call, &(arguments){ .in = &length, .out = &length, .count = 1, .dtype = ZRO_I64, .root = root });
    if (st != ZRO_OK)
        return st;
    copy = zro__alloc(NULL, ZRO__KIND_BUFFER, length < SIZE_MAX ? (size_t)length + 1 : SIZE_MAX);
    if (copy == NULL)
        st = zro__fail(ZRO_ERR_MEMORY, "broadcast_bytes: out of memory: %" PRIu64 " bytes", length);
    st = zro__vote(&g->ranks.board, call, st);
    if (st == ZRO_OK) {
        if (g->ranks.board.rank == root && length > 0)
            memcpy(copy, in, length);
        st = issue(g, call, &(arguments){ .in = copy, .out = copy, .count = (size_t)length, .dtype = ZRO_U8, .root = root });
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
    zro_status st;

    if (out == NULL || out_bytes == NULL)
        return zro__fail(ZRO_ERR_INVALID, "broadcast_bytes: out is NULL");
    *out = NULL;
    *out_bytes = 0;
    st = zro__enter(g);
    return st != ZRO_OK ? st : zro__leave(g, broadcast_bytes(g, in, bytes, root, out, out_bytes));
}

void zro_bytes_free(void *bytes)
{
    zro__free(bytes);
}
