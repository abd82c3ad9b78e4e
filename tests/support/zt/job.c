/* One collective call with known inputs: see job.h.
 *
 * An array lies between two guards of GUARD bytes.  In place means: the output is the input (all_reduce, reduce at its root),
 * or the place of the own piece in the larger of the two. */
#include "zt/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference.h"

enum { GUARD = 64, GUARD_BYTE = 0xa5, GARBAGE = 0x5a, CHUNK = 16384 };

static const struct {
    const char *name;
    int reduces, apart, rooted, uneven;
} calls[] = {
    [ZT_BARRIER] = { "barrier", 0, 0, 0, 0 },
    [ZT_ALL_REDUCE] = { "all_reduce", 1, 0, 0, 0 },
    [ZT_ALL_REDUCE_INTO] = { "all_reduce_into", 1, 1, 0, 0 },
    [ZT_REDUCE] = { "reduce", 1, 1, 1, 0 },
    [ZT_REDUCE_SCATTER] = { "reduce_scatter", 1, 1, 0, 0 },
    [ZT_REDUCE_SCATTER_V] = { "reduce_scatter_v", 1, 1, 0, 1 },
    [ZT_BROADCAST] = { "broadcast", 0, 0, 1, 0 },
    [ZT_BROADCAST_BYTES] = { "broadcast_bytes", 0, 0, 1, 0 },
    [ZT_GATHER] = { "gather", 0, 1, 1, 0 },
    [ZT_GATHER_V] = { "gather_v", 0, 1, 1, 1 },
    [ZT_ALL_GATHER] = { "all_gather", 0, 1, 0, 0 },
    [ZT_ALL_GATHER_V] = { "all_gather_v", 0, 1, 0, 1 },
};

int zt_call_reduces(zt_call call)
{
    return calls[call].reduces;
}

int zt_call_is_apart(zt_call call)
{
    return calls[call].apart;
}

int zt_call_is_rooted(zt_call call)
{
    return calls[call].rooted;
}

int zt_call_is_uneven(zt_call call)
{
    return calls[call].uneven;
}

const char *zt_call_name(zt_call call)
{
    return calls[call].name;
}

void zt_job_cells(zt_job *job, const zt_rank *t)
{
    for (int r = 0; r < zro_group_size(job->group); r++)
        job->cells[r] = zt_machine(t, t->machines, zro_group_label(job->group, r));
}

void zt_counts_random(uint64_t *state, size_t *counts, int n, size_t total)
{
    for (int r = 0; r < n; r++) {
        counts[r] = r == n - 1 || zt_below(state, 4) == 0 ? total : zt_below(state, total + 1);
        if (zt_below(state, 4) == 0)
            counts[r] = 0;
        total -= counts[r];
    }
}

void zt_job_random(zt_job *job, uint64_t *state, uint64_t *own, size_t most)
{
    int n = zro_group_size(job->group);
    uint64_t r = zt_next(state);

    job->call = (zt_call)(r % ZT_CALLS);
    job->dtype = (zro_dtype)(r >> 8 & 7);
    job->op = (zro_op)(r >> 16 & 3);
    if (job->op == ZRO_AVG && job->dtype >= ZRO_I8)
        job->op = ZRO_SUM;
    job->root = (int)((r >> 24) % (unsigned)n);
    job->count = zt_below(state, most + 1);
    zt_counts_random(state, job->counts, n, job->count * (size_t)n);
    job->in_place = (int)(zt_next(state) & 1);
    job->seed = zt_next(state);
    job->in_shift = (unsigned)zt_below(own, 8);
    job->out_shift = (unsigned)zt_below(own, 8);
    for (int i = 0; i < n; i++) {
        job->cells[i] = 0;
        job->stream[i] = i;
    }
}

static int is_even_pieces(zt_call call)
{
    return call == ZT_REDUCE_SCATTER || call == ZT_GATHER || call == ZT_ALL_GATHER;
}

static size_t piece(const zt_job *job, int rank)
{
    return calls[job->call].uneven ? job->counts[rank] : job->count;
}

static size_t piece_start(const zt_job *job, int rank)
{
    size_t at = 0;

    for (int r = 0; r < rank; r++)
        at += piece(job, r);
    return at;
}

/* Elements of the whole: all pieces, or the one array that the call is about. */
static size_t whole(const zt_job *job, int ranks)
{
    if (calls[job->call].uneven || is_even_pieces(job->call))
        return piece_start(job, ranks);
    return job->call == ZT_BARRIER ? 0 : job->count;
}

static int is_scatter(zt_call call)
{
    return call == ZT_REDUCE_SCATTER || call == ZT_REDUCE_SCATTER_V;
}

static int is_gather(zt_call call)
{
    return call == ZT_GATHER || call == ZT_GATHER_V || call == ZT_ALL_GATHER || call == ZT_ALL_GATHER_V;
}

static int has_out(const zt_job *job)
{
    return !calls[job->call].rooted || zro_group_rank(job->group) == job->root;
}

static size_t width(const zt_job *job)
{
    return zro_dtype_bytes(job->dtype);
}

static _Noreturn void bad(const zt_job *job, const char *what)
{
    int n = zro_group_size(job->group);
    char ranks[1024] = "";
    size_t used = 0;

    for (int r = 0; r < n && used < sizeof ranks; r++)
        used += (size_t)snprintf(ranks + used, sizeof ranks - used, " %d:%zu", job->cells[r], piece(job, r));
    zt_fail(__FILE__, __LINE__,
            "%s\n    %s %s %s, root %d, count %zu%s%s, in %s, out %s, shifts %u %u, seed %#" PRIx64
            "%s%s\n    cell and count of each rank:%s",
            what, calls[job->call].name, zro_dtype_name(job->dtype),
            (const char *const[]){ "sum", "avg", "min", "max" }[job->op], job->root, job->count,
            job->in_place ? ", in place" : "", job->keeps_input ? ", input of a peer" : "",
            job->in_room != NULL ? "group" : "own", job->out_room != NULL ? "group" : "own", job->in_shift, job->out_shift,
            job->seed, job->context != NULL ? ", " : "", job->context != NULL ? job->context : "", ranks);
}

static void *need(size_t bytes)
{
    void *p = malloc(bytes > 0 ? bytes : 1);

    CHECK(p != NULL);
    return p;
}

/* Always in chunks from the array's start, as the checks do, whatever the generator makes of a count. */
static void fill(const zt_job *job, int stream, void *out, size_t count)
{
    uint64_t state = zt_mix(job->seed, (uint64_t)stream);

    for (size_t at = 0; at < count; at += CHUNK)
        reference_fill(job->dtype, &state, (char *)out + at * width(job), count - at < CHUNK ? count - at : CHUNK);
}

size_t zt_job_room(const zt_job *job, int ranks)
{
    return whole(job, ranks) * width(job) + ZT_ROOM_MARGIN;
}

/* Where ranks share an input, it is as long as the longest of them needs. */
static size_t laid_input(const zt_job *job)
{
    size_t most = job->in_count;

    for (int r = 0; job->once && is_gather(job->call) && r < zro_group_size(job->group); r++)
        most = piece(job, r) > most ? piece(job, r) : most;
    return most;
}

/* An array of `count` elements between guards, in a room or in own memory; which = 0 for the input's side. */
static void *lay_out(zt_job *job, int which, size_t count)
{
    char *at = which == 0 ? job->in_room : job->out_room;

    if (at == NULL)
        at = job->laid[which].own = need(count * width(job) + ZT_ROOM_MARGIN);
    at += GUARD + (which == 0 ? job->in_shift : job->out_shift) * width(job);
    job->laid[which].array = at;
    job->laid[which].count = count;
    if (which == 1 || !job->keeps_input) {
        memset(at - GUARD, GUARD_BYTE, GUARD);
        memset(at, GARBAGE, count * width(job));
        memset(at + count * width(job), GUARD_BYTE, GUARD);
    }
    return at;
}

static void check_guards(const zt_job *job)
{
    for (int which = 0; which < 2; which++) {
        const unsigned char *before = job->laid[which].array, *after = before;

        if (before == NULL)
            continue;
        before -= GUARD;
        after += job->laid[which].count * width(job);
        for (size_t i = 0; i < GUARD; i++)
            if (before[i] != GUARD_BYTE || after[i] != GUARD_BYTE)
                bad(job, which == 0 ? "written beside the input" : "written beside the output");
    }
}

void zt_job_prepare(zt_job *job)
{
    int rank = zro_group_rank(job->group), is_in_place = job->in_place && has_out(job);
    size_t own_at = piece_start(job, rank) * width(job), all = whole(job, zro_group_size(job->group));

    memset(job->laid, 0, sizeof job->laid);
    job->made_bytes = 0;
    job->in_count = is_gather(job->call) ? piece(job, rank) : all;
    job->out_count = is_scatter(job->call) ? piece(job, rank) : all;
    if (is_gather(job->call) && is_in_place) {
        job->out = lay_out(job, 1, job->out_count);
        job->in = (char *)job->out + own_at;
    } else {
        job->in = lay_out(job, 0, laid_input(job));
        if (!calls[job->call].apart || is_in_place)
            job->out = (char *)job->in + (is_scatter(job->call) ? own_at : 0);
        else
            job->out = lay_out(job, 1, job->out_count);
    }
    if (!job->keeps_input && (job->call != ZT_BROADCAST || rank == job->root))
        fill(job, job->stream[rank], job->in, job->once ? laid_input(job) : job->in_count);
}

/* Whoever is not the root passes an array that must stay untouched, or nothing. */
static void *given_out(const zt_job *job)
{
    return has_out(job) || job->out_shift % 2 == 0 ? job->out : NULL;
}

zro_status zt_job_call(void *user)
{
    zt_job *job = user;
    size_t bytes;
    zro_status st;

    switch (job->call) {
    case ZT_BARRIER:
        return zro_barrier(job->group);
    case ZT_ALL_REDUCE:
        return zro_all_reduce(job->group, job->in, job->count, job->dtype, job->op);
    case ZT_ALL_REDUCE_INTO:
        return zro_all_reduce_into(job->group, job->in, job->out, job->count, job->dtype, job->op);
    case ZT_REDUCE:
        return zro_reduce(job->group, job->in, given_out(job), job->count, job->dtype, job->op, job->root);
    case ZT_REDUCE_SCATTER:
        return zro_reduce_scatter(job->group, job->in, job->out, job->count, job->dtype, job->op);
    case ZT_REDUCE_SCATTER_V:
        return zro_reduce_scatter_v(job->group, job->in, job->out, job->counts, job->dtype, job->op);
    case ZT_BROADCAST:
        return zro_broadcast(job->group, job->in, job->count, job->dtype, job->root);
    case ZT_BROADCAST_BYTES:
        /* Only the root's arguments count. */
        bytes = zro_group_rank(job->group) == job->root ? job->count * width(job) : 0;
        st = zro_broadcast_bytes(job->group, bytes > 0 ? job->in : NULL, bytes, job->root, &job->out, &bytes);
        job->made_bytes = st == ZRO_OK;
        job->out_count = bytes / width(job);
        return st;
    case ZT_GATHER:
        return zro_gather(job->group, job->in, given_out(job), job->count, job->dtype, job->root);
    case ZT_GATHER_V:
        return zro_gather_v(job->group, job->in, given_out(job), job->counts, job->dtype, job->root);
    case ZT_ALL_GATHER:
        return zro_all_gather(job->group, job->in, job->out, job->count, job->dtype);
    case ZT_ALL_GATHER_V:
        return zro_all_gather_v(job->group, job->in, job->out, job->counts, job->dtype);
    case ZT_CALLS:
        break;
    }
    bad(job, "no such call");
}

/* The first difference, in words. */
static _Noreturn void bad_element(const zt_job *job, const char *what, size_t at, const void *expected, const void *got)
{
    char text[160], *p = text;
    const unsigned char *sides[2] = { expected, got };

    p += snprintf(p, 80, "%s: element %zu", what, at);
    for (int s = 0; s < 2; s++) {
        p += snprintf(p, 24, s == 0 ? ", expected 0x" : ", got 0x");
        for (size_t b = width(job); b > 0; b--)
            p += snprintf(p, 3, "%02x", sides[s][b - 1]);
    }
    bad(job, text);
}

/* That elements [from, to) of a stream are at `at`, byte for byte. */
static void check_copy(const zt_job *job, int stream, size_t from, size_t to, const void *at, const char *what)
{
    uint64_t state = zt_mix(job->seed, (uint64_t)stream);
    size_t w = width(job);
    char *chunk = need(CHUNK * w);

    for (size_t c = 0; c < to; c += CHUNK) {
        size_t n = to - c < CHUNK ? to - c : CHUNK;

        reference_fill(job->dtype, &state, chunk, n);
        for (size_t i = c < from ? from - c : 0; i < n; i++) {
            const char *got = (const char *)at + (c + i - from) * w;

            /* Whole chunks in one go, element by element only where they differ. */
            if (c >= from && i == 0 && memcmp(chunk, got, n * w) == 0)
                break;
            if (memcmp(chunk + i * w, got, w) != 0)
                bad_element(job, what, c + i, chunk + i * w, got);
        }
    }
    free(chunk);
}

/* That elements [from, to) of the reduction are at `at`. */
static void check_reduced(const zt_job *job, size_t from, size_t to, const char *at)
{
    int n = zro_group_size(job->group);
    uint64_t state[ZT_MAX_RANKS];
    const void *in[ZT_MAX_RANKS];
    size_t w = width(job), where;
    char *chunks = need((size_t)(n + 1) * CHUNK * w), *expected = chunks + (size_t)n * CHUNK * w;

    for (int r = 0; r < n; r++) {
        state[r] = zt_mix(job->seed, (uint64_t)job->stream[r]);
        in[r] = chunks + (size_t)r * CHUNK * w;
    }
    for (size_t c = 0; c < to; c += CHUNK) {
        size_t count = to - c < CHUNK ? to - c : CHUNK, skip = c < from ? from - c : 0;

        for (int r = 0; r < n; r++)
            reference_fill(job->dtype, &state[r], chunks + (size_t)r * CHUNK * w, count);
        if (skip >= count)
            continue;
        reference_reduce(job->dtype, job->op, n, job->cells, NULL, NULL, in, expected, count);
        if (!reference_same(job->dtype, expected + skip * w, at + (c + skip - from) * w, count - skip, &where))
            bad_element(job, "wrong result", c + skip + where, expected + (skip + where) * w,
                        at + (c + skip + where - from) * w);
    }
    free(chunks);
}

static void check_result(const zt_job *job)
{
    int n = zro_group_size(job->group), rank = zro_group_rank(job->group);

    if (is_gather(job->call)) {
        for (int r = 0; r < n; r++)
            check_copy(job, job->stream[r], 0, piece(job, r), (char *)job->out + piece_start(job, r) * width(job),
                       "wrong result");
    } else if (is_scatter(job->call)) {
        check_reduced(job, piece_start(job, rank), piece_start(job, rank) + piece(job, rank), job->out);
    } else if (zt_call_reduces(job->call)) {
        check_reduced(job, 0, job->count, job->out);
    } else if (job->call == ZT_BROADCAST || job->call == ZT_BROADCAST_BYTES) {
        if (job->out_count != job->count)
            bad(job, "another number of bytes");
        check_copy(job, job->stream[job->root], 0, job->count, job->out, "wrong result");
    }
}

/* Inputs that are not outputs too are what they were; so is the output of whoever gets none. */
static void check_untouched(const zt_job *job)
{
    int rank = zro_group_rank(job->group);
    size_t own_at = piece_start(job, rank), after = own_at + piece(job, rank);

    if (is_scatter(job->call) && job->in_place) {
        check_copy(job, job->stream[rank], 0, own_at, job->in, "input before the own piece changed");
        check_copy(job, job->stream[rank], after, job->in_count, (char *)job->in + after * width(job),
                   "input after the own piece changed");
    } else if (calls[job->call].apart && !(job->in_place && has_out(job))) {
        check_copy(job, job->stream[rank], 0, job->in_count, job->in, "the input changed");
    }
    if (!has_out(job) && calls[job->call].apart)
        for (size_t i = 0; i < job->out_count * width(job); i++)
            if (((const unsigned char *)job->out)[i] != GARBAGE)
                bad(job, "the output of a rank that is not the root was written");
}

void zt_job_check(const zt_job *job)
{
    if (job->call == ZT_BARRIER)
        return;
    if (has_out(job) || !calls[job->call].apart)
        check_result(job);
    check_untouched(job);
    check_guards(job);
}

void zt_job_free(zt_job *job)
{
    free(job->laid[0].own);
    free(job->laid[1].own);
    if (job->made_bytes)
        zro_bytes_free(job->out);
    memset(job->laid, 0, sizeof job->laid);
    job->made_bytes = 0;
}

void zt_job_run(zt_job *job, int submitted)
{
    zro_work *work;

    zt_job_prepare(job);
    if (submitted) {
        CHECK_OK(zro_submit(job->group, zt_job_call, job, &work));
        CHECK_OK(zro_work_wait(work));
        zro_work_destroy(work);
    } else {
        CHECK_OK(zt_job_call(job));
    }
    zt_job_check(job);
    zt_job_free(job);
}
