/* The transfer.
 *
 * After all ranks have arrived, and so know where each other's arrays lie, a piece travels in one of three ways:
 * - small transfers on one machine: every rank brought its piece in its slot, and each computes what it needs by itself;
 * - in place: an array in group memory of the same machine is read, and written, where it lies, by the owner;
 * - by link: any other piece is sent to the owner, any other result sent back, in chunks.
 * Which of the last two holds between an owner and a rank follows from headers that both have, so they never disagree.
 *
 * The schedule of links.  Each owner's parts, one after another, are its stream, cut into chunks.  In step t a rank sends its
 * pieces of chunk t of every stream, then does chunk t - 1 of its own stream, sending the results, then fetches the results of
 * chunk t - 2 of the other streams.  All waits are plain ones.  This cannot deadlock with 4 messages of room between two ranks:
 * let a rank be in step s, no other in an earlier one.  What it fetches was sent in steps before s, so it is there.  Of what it
 * sends to a peer, the peer has fetched all that it needed for its steps before s, so between the two there are at most the
 * pieces of chunks s - 1 and s and the results of chunks s - 2 and s - 1.  So the rank that is furthest behind never waits for
 * long, and everybody goes on.
 *
 * In place there is nothing to schedule: an owner does its chunks, releases `done`, and whoever's array it touched waits for
 * that.  So pieces must not change, nor results be used, before the call returns. */
#include "group/xfer.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/point.h"
#include "group/group.h"

enum {
    PAYLOAD_MAX = 4096,            /* pieces up to this travel with the arrival: larger ones are read in place as fast */
    DIRECT_CHUNK_BYTES = 16 << 20, /* of a stream that no link carries */
    STREAM_BYTES = 16 << 20,       /* from here on results would not stay in the caches anyway */
    POOL_BYTES = 128 << 10         /* less than this is not worth waking threads for */
};

/* One transfer in progress on this rank. */
typedef struct flow {
    zro_group *g;
    const zro__xfer *x;
    const zro__part *parts;
    size_t n_parts;
    size_t in_size, out_size; /* bytes of an element */
    size_t limit;             /* elements of a chunk */
    int me, size, stream;
    zro__reduce reduce;
} flow;

/* ---- who reaches what ---- */

static const zro__header *header_of(const flow *f, int rank)
{
    return zro__header_of(&f->g->board, rank);
}

static int shares_memory(const flow *f, int a, int b)
{
    return f->g->machine[a] == f->g->machine[b] && !((header_of(f, a)->flags | header_of(f, b)->flags) & ZRO__HEADER_SLOW);
}

/* Whether `owner` reads rank's piece, or writes rank's result, in place. */
static int reads_in_place(const flow *f, int owner, int rank)
{
    return owner == rank || (shares_memory(f, owner, rank) && header_of(f, rank)->in != ZRO__NOWHERE);
}

static int writes_in_place(const flow *f, int owner, int rank)
{
    return owner == rank || (shares_memory(f, owner, rank) && header_of(f, rank)->out != ZRO__NOWHERE);
}

/* Whether rank gets the results of owner's parts. */
static int receives(const flow *f, int owner, int rank)
{
    return f->x->to == ZRO__TO_ALL || f->x->to == rank || (f->x->to == ZRO__TO_OWNER && owner == rank);
}

enum { ANYONE = -1 };

/* Whether rank brings a piece for the parts of `owner`, or of anyone. */
static int brings(const flow *f, int owner, int rank)
{
    if (f->x->reduces)
        return 1;
    for (size_t p = 0; p < f->n_parts; p++)
        if ((owner == ANYONE || f->parts[p].owner == owner) && f->parts[p].source == rank && f->parts[p].count > 0)
            return 1;
    return 0;
}

static int owns_something(const flow *f, int owner)
{
    for (size_t p = 0; p < f->n_parts; p++)
        if (f->parts[p].owner == owner && f->parts[p].count > 0)
            return 1;
    return 0;
}

static int is_present(const flow *f, int rank, size_t part)
{
    const uint64_t *bits = f->x->present == NULL ? NULL : zro__payload_of(&f->g->board, rank);

    return bits == NULL || (bits[part / 64] >> (part % 64) & 1);
}

/* ---- arriving ---- */

/* The largest piece of any rank, as far as it could travel in a slot; the same on all ranks. */
static int fits_payload(const flow *f)
{
    const zro__xfer *x = f->x;

    if (!f->g->one_machine || x->apply != NULL || x->present != NULL || x->n_parts > (size_t)f->size)
        return 0;
    for (size_t p = 0; p < x->n_parts; p++)
        if (x->parts[p].in_at + x->parts[p].count * f->in_size > PAYLOAD_MAX)
            return 0;
    return 1;
}

static zro_status arrive(flow *f, int in_payload)
{
    const zro__xfer *x = f->x;
    zro__view *view = f->g->seat->view;
    zro__header h = { .call = (uint16_t)x->call,
                      .dtype = (uint8_t)x->in_type,
                      .op = (uint8_t)x->op,
                      .root = x->root,
                      .count = x->count,
                      .tag = x->tag,
                      .in = ZRO__NOWHERE,
                      .out = ZRO__NOWHERE,
                      .weight = x->weight };
    zro_status st;

    if (in_payload) {
        if (brings(f, ANYONE, f->me) && x->in_bytes > 0)
            memcpy(zro__payload(&f->g->board), x->in, x->in_bytes);
    } else {
        if (x->present != NULL)
            memcpy(zro__payload(&f->g->board), x->present, (x->n_parts + 63) / 64 * sizeof(uint64_t));
        if (f->g->settings.fast == ZRO_OFF) {
            h.flags |= ZRO__HEADER_SLOW;
        } else if (f->size > 1) {
            if (x->in != NULL && x->in_bytes > 0)
                h.in = zro__locate(view, x->in, x->in_bytes);
            if (x->out != NULL && x->out_bytes > 0)
                h.out = x->out == x->in && x->out_bytes == x->in_bytes ? h.in : zro__locate(view, x->out, x->out_bytes);
        }
    }
    st = zro__arrive(&f->g->board, &h);
    return st != ZRO_OK ? st : zro__gather_arrivals(&f->g->board);
}

/* ---- small transfers ---- */

static void do_in_payloads(flow *f)
{
    zro__scratch *s = &f->g->scratch;

    for (size_t p = 0; p < f->n_parts; p++) {
        const zro__part *part = &f->parts[p];
        void *dst = part->count == 0 || !receives(f, part->owner, f->me) ? NULL : (char *)f->x->out + part->out_at;

        if (dst == NULL)
            continue;
        if (!f->x->reduces) {
            const char *from = zro__payload_of(&f->g->board, part->source);

            f->g->kernels->copy(&dst, 1, from + part->in_at, part->count * f->in_size, 0);
            continue;
        }
        for (int k = 0; k < f->size; k++)
            s->src[k] = (const char *)zro__payload_of(&f->g->board, f->g->order[k]) + part->in_at;
        f->g->kernels->reduce(&f->reduce, s->src, &dst, 1, part->count, 0);
    }
}

/* ---- the owner's work ---- */

/* The pieces and destinations of one run, set up for tiles of it to be done by any thread. */
typedef struct job {
    flow *f;
    zro__run run;
    int n_dst;
    const void **src; /* by order of addition; without reduction the one source */
    void **dst;
} job;

/* Elements [from, from + n) of the run. */
static void do_tiles(const job *j, const void **src, void **dst, size_t from, size_t n)
{
    flow *f = j->f;
    const zro__xfer *x = f->x;
    const zro__kernels *kernels = f->g->kernels;
    int n_src = x->reduces ? f->size : 1;

    for (int k = 0; k < n_src; k++)
        src[k] = j->src[k] == NULL ? NULL : (const char *)j->src[k] + from * f->in_size;
    for (int k = 0; k < j->n_dst; k++)
        dst[k] = (char *)j->dst[k] + from * f->out_size;
    if (x->apply == NULL && x->reduces)
        kernels->reduce(&f->reduce, src, dst, j->n_dst, n, f->stream);
    else if (x->apply == NULL)
        kernels->copy(dst, j->n_dst, src[0], n * f->in_size, f->stream);
    if (x->apply == NULL)
        return;

    for (size_t at = 0; at < n; at += ZRO__TILE) {
        _Alignas(64) char tile[ZRO__TILE * sizeof(double)], blank[ZRO__TILE * sizeof(double)];
        zro__run piece = { j->run.part, j->run.first + from + at, n - at < ZRO__TILE ? n - at : ZRO__TILE };
        const void *in = tile;
        void *tile_dst[1] = { tile }, *own;

        if (x->reduces)
            kernels->reduce(&f->reduce, src, tile_dst, 1, piece.count, 0);
        else
            in = src[0];
        own = x->out != NULL ? (char *)x->out + f->parts[piece.part].out_at + piece.first * f->out_size : (void *)blank;
        x->apply(x->apply_user, &piece, in, own);
        kernels->copy(dst, j->n_dst, own, piece.count * f->out_size, f->stream);
        for (int k = 0; k < n_src; k++)
            src[k] = src[k] == NULL ? NULL : (const char *)src[k] + piece.count * f->in_size;
        for (int k = 0; k < j->n_dst; k++)
            dst[k] = (char *)dst[k] + piece.count * f->out_size;
    }
}

/* Items are even shares of the run, one for each thread, so that each has arrays of pointers of its own. */
static void do_shares(void *ctx, size_t first_share, size_t last_share)
{
    const job *j = ctx;
    flow *f = j->f;

    for (size_t i = first_share; i < last_share; i++) {
        size_t first, length;

        zro__cut_even(j->run.count, (int)f->g->settings.threads, (int)i, &first, &length);
        do_tiles(j, f->g->scratch.src + (i + 1) * (size_t)f->size, f->g->scratch.dst + (i + 1) * (size_t)f->size, first,
                 length);
        f->g->kernels->fence(); /* each thread orders its own streamed stores */
    }
}

static void do_run(flow *f, const zro__run *run)
{
    zro__scratch *s = &f->g->scratch;
    const zro__part *part = &f->parts[run->part];
    size_t in_bytes = run->count * f->in_size, out_bytes = run->count * f->out_size;
    size_t in_at = part->in_at + run->first * f->in_size, out_at = part->out_at + run->first * f->out_size;
    job j = { f, *run, 0, s->src, s->dst };
    uint64_t in_place = 0;

    for (int k = 0; k < (f->x->reduces ? f->size : 1); k++) {
        int r = f->x->reduces ? f->g->order[k] : part->source;

        if (!is_present(f, r, run->part)) {
            s->src[k] = NULL;
        } else if (s->in_of[r] != NULL) {
            s->src[k] = s->in_of[r] + in_at;
            in_place += r == f->me ? 0 : in_bytes;
        } else {
            s->src[k] = s->message[r];
            s->message[r] += in_bytes;
        }
    }
    for (int r = 0; r < f->size; r++) {
        if (!receives(f, f->me, r))
            continue;
        if (s->out_of[r] != NULL) {
            s->dst[j.n_dst++] = s->out_of[r] + out_at;
            in_place += r == f->me ? 0 : out_bytes;
        } else {
            s->dst[j.n_dst++] = s->room[r];
            s->room[r] += out_bytes;
        }
    }
    atomic_fetch_add_explicit(&f->g->counters.direct_bytes, in_place, memory_order_relaxed);
    if (f->g->pool != NULL && in_bytes + out_bytes >= POOL_BYTES)
        zro__pool_run(f->g->pool, do_shares, &j, f->g->settings.threads);
    else
        do_tiles(&j, s->src + f->size, s->dst + f->size, 0, run->count);
}

/* ---- messages ---- */

static zro_status wait_for_room(flow *f, int peer)
{
    const zro__link *link = &f->g->link;
    uint64_t target;
    zro__word *word;
    zro_status st;

    while ((f->g->scratch.room[peer] = link->room(link->self, peer)) == NULL) {
        word = link->room_word(link->self, peer, &target);
        st = zro__wait(&f->g->board, word, target, peer);
        if (st != ZRO_OK)
            return st;
    }
    return ZRO_OK;
}

/* `bytes` is what the schedule says must come. */
static zro_status wait_for_message(flow *f, int peer, size_t bytes)
{
    const zro__link *link = &f->g->link;
    uint64_t target;
    zro__word *word;
    size_t got = 0;
    char name[64];
    zro_status st;

    while ((f->g->scratch.message[peer] = link->recv(link->self, peer, &got)) == NULL) {
        word = link->recv_word(link->self, peer, &target);
        st = zro__wait(&f->g->board, word, target, peer);
        if (st != ZRO_OK)
            return st;
    }
    if (got != bytes) {
        zro__fail(ZRO_ERR_MISMATCH, "%s sent %zu bytes where %zu were due: the ranks run different transfers",
                  zro__rank_name(&f->g->board, peer, name, sizeof name), got, bytes);
        return zro__break(&f->g->board, ZRO_ERR_MISMATCH);
    }
    return ZRO_OK;
}

static void send_message(flow *f, int peer, size_t bytes)
{
    const zro__link *link = &f->g->link;

    f->g->kernels->fence();
    link->send(link->self, peer, bytes);
    atomic_fetch_add_explicit(&f->g->counters.link_messages, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&f->g->counters.link_bytes, bytes, memory_order_relaxed);
}

/* Bytes of the results in the chunk that begins at the cursor, and of rank's pieces. */
static size_t result_bytes(const flow *f, zro__cursor at, int owner)
{
    size_t room = f->limit, bytes = 0;
    zro__run run;

    while (zro__cursor_next(&at, f->parts, f->n_parts, owner, &room, &run))
        bytes += run.count * f->out_size;
    return bytes;
}

static size_t piece_bytes(const flow *f, zro__cursor at, int owner, int rank)
{
    size_t room = f->limit, bytes = 0;
    zro__run run;

    while (zro__cursor_next(&at, f->parts, f->n_parts, owner, &room, &run))
        bytes += is_present(f, rank, run.part) ? run.count * f->in_size : 0;
    return bytes;
}

static int at_end(const flow *f, const zro__cursor *cursor, int owner)
{
    zro__cursor c = *cursor;
    size_t room = f->limit;
    zro__run run;

    return !zro__cursor_next(&c, f->parts, f->n_parts, owner, &room, &run);
}

/* ---- the three things of a step ---- */

static zro_status send_pieces(flow *f, zro__cursor *cursor, int owner)
{
    size_t room = f->limit, bytes = 0;
    zro_status st = wait_for_room(f, owner);
    zro__run run;

    if (st != ZRO_OK)
        return st;
    while (zro__cursor_next(cursor, f->parts, f->n_parts, owner, &room, &run)) {
        void *dst = f->g->scratch.room[owner] + bytes;
        size_t n = run.count * f->in_size;

        if (!is_present(f, f->me, run.part))
            continue;
        f->g->kernels->copy(&dst, 1, (const char *)f->x->in + f->parts[run.part].in_at + run.first * f->in_size, n, 1);
        bytes += n;
    }
    (void)ZRO__POINT("xfer.piece");
    send_message(f, owner, bytes);
    return ZRO_OK;
}

static zro_status do_own_chunk(flow *f, zro__cursor *cursor)
{
    zro__scratch *s = &f->g->scratch;
    size_t room = f->limit, results = result_bytes(f, *cursor, f->me);
    zro__run run;
    zro_status st;

    for (int r = 0; r < f->size; r++) {
        if (f->x->reduces && s->in_of[r] == NULL) {
            st = wait_for_message(f, r, piece_bytes(f, *cursor, f->me, r));
            if (st != ZRO_OK)
                return st;
        }
        if (receives(f, f->me, r) && s->out_of[r] == NULL) {
            st = wait_for_room(f, r);
            if (st != ZRO_OK)
                return st;
        }
    }
    (void)ZRO__POINT("xfer.own");
    while (zro__cursor_next(cursor, f->parts, f->n_parts, f->me, &room, &run))
        do_run(f, &run);
    for (int r = 0; r < f->size; r++) {
        if (f->x->reduces && s->in_of[r] == NULL)
            f->g->link.release(f->g->link.self, r);
        if (receives(f, f->me, r) && s->out_of[r] == NULL)
            send_message(f, r, results);
    }
    return ZRO_OK;
}

static zro_status fetch_results(flow *f, zro__cursor *cursor, int owner)
{
    size_t room = f->limit;
    zro__run run;
    zro_status st = wait_for_message(f, owner, result_bytes(f, *cursor, owner));

    if (st != ZRO_OK)
        return st;
    (void)ZRO__POINT("xfer.result");
    while (zro__cursor_next(cursor, f->parts, f->n_parts, owner, &room, &run)) {
        void *dst = (char *)f->x->out + f->parts[run.part].out_at + run.first * f->out_size;
        size_t n = run.count * f->out_size;

        f->g->kernels->copy(&dst, 1, f->g->scratch.message[owner], n, f->stream);
        f->g->scratch.message[owner] += n;
    }
    f->g->kernels->fence();
    f->g->link.release(f->g->link.self, owner);
    return ZRO_OK;
}

static zro_status run_steps(flow *f)
{
    zro__scratch *s = &f->g->scratch;
    zro__cursor own = { 0, 0 };
    zro_status st;

    memset(s->send, 0, (size_t)f->size * sizeof *s->send);
    memset(s->recv, 0, (size_t)f->size * sizeof *s->recv);
    for (int t = 0;; t++) {
        int busy = 0;

        /* Ranks begin with different owners, so that not all of them feed the same one first. */
        for (int i = 1; i < f->size; i++) {
            int owner = (f->me + i) % f->size;

            if (!f->x->reduces || reads_in_place(f, owner, f->me) || at_end(f, &s->send[owner], owner))
                continue;
            busy = 1;
            st = send_pieces(f, &s->send[owner], owner);
            if (st != ZRO_OK)
                return st;
        }
        if (t >= 1 && !at_end(f, &own, f->me)) {
            busy = 1;
            st = do_own_chunk(f, &own);
            if (st != ZRO_OK)
                return st;
        }
        for (int i = 1; t >= 2 && i < f->size; i++) {
            int owner = (f->me + i) % f->size;

            if (!receives(f, owner, f->me) || writes_in_place(f, owner, f->me) || at_end(f, &s->recv[owner], owner))
                continue;
            busy = 1;
            st = fetch_results(f, &s->recv[owner], owner);
            if (st != ZRO_OK)
                return st;
        }
        if (t >= 2 && !busy)
            return ZRO_OK;
    }
}

/* ---- the whole ---- */

/* Every piece and every result can be reached by everybody. */
static int all_in_place(const flow *f)
{
    if (!f->g->one_machine)
        return 0;
    for (int r = 0; r < f->size; r++) {
        const zro__header *h = header_of(f, r);
        int gets = f->x->to == ZRO__TO_ALL || f->x->to == r || (f->x->to == ZRO__TO_OWNER && owns_something(f, r));

        if ((h->flags & ZRO__HEADER_SLOW) || (h->in == ZRO__NOWHERE && brings(f, ANYONE, r))
            || (h->out == ZRO__NOWHERE && gets))
            return 0;
    }
    return 1;
}

/* One part for each rank, instead of the one part of one owner. */
static void spread(flow *f)
{
    zro__part whole = f->parts[0], *parts = f->g->scratch.parts;

    for (int r = 0; r < f->size; r++) {
        size_t first, length;

        zro__cut_even(whole.count, f->size, r, &first, &length);
        parts[r] = (zro__part){ whole.in_at + first * f->in_size, whole.out_at + first * f->out_size, length, r, whole.source };
    }
    f->parts = parts;
    f->n_parts = (size_t)f->size;
}

/* The address of a peer's array, of which this rank touches the first `bytes`; *out stays NULL where a link carries it. */
static zro_status find_array(flow *f, int rank, uint64_t place, size_t bytes, char **out)
{
    char name[64];

    if (place == ZRO__NOWHERE || bytes == 0 || !shares_memory(f, f->me, rank))
        return ZRO_OK;
    *out = zro__address(f->g->seat->view, place, bytes);
    if (*out != NULL)
        return ZRO_OK;
    zro__fail(ZRO_ERR_MEMORY, "an array of %s could not be mapped: out of memory or address space",
              zro__rank_name(&f->g->board, rank, name, sizeof name));
    return zro__break(&f->g->board, ZRO_ERR_MEMORY);
}

/* Finds the arrays that this rank, as an owner, touches in place. */
static zro_status find_arrays(flow *f)
{
    zro__scratch *s = &f->g->scratch;
    zro_status st = ZRO_OK;

    for (int r = 0; r < f->size && st == ZRO_OK; r++) {
        size_t in_bytes = 0, out_bytes = 0;

        s->in_of[r] = r == f->me ? (char *)(uintptr_t)f->x->in : NULL;
        s->out_of[r] = r == f->me ? f->x->out : NULL;
        if (r == f->me)
            continue;
        for (size_t p = 0; p < f->n_parts; p++) {
            const zro__part *part = &f->parts[p];
            size_t in_end = part->in_at + part->count * f->in_size, out_end = part->out_at + part->count * f->out_size;

            if (part->owner != f->me || part->count == 0)
                continue;
            if ((f->x->reduces || part->source == r) && in_end > in_bytes)
                in_bytes = in_end;
            if (receives(f, f->me, r) && out_end > out_bytes)
                out_bytes = out_end;
        }
        st = find_array(f, r, header_of(f, r)->in, in_bytes, &s->in_of[r]);
        if (st == ZRO_OK)
            st = find_array(f, r, header_of(f, r)->out, out_bytes, &s->out_of[r]);
    }
    return st;
}

static zro_status wait_for_owners(flow *f)
{
    zro__board *board = &f->g->board;
    zro_status st;

    f->g->kernels->fence();
    (void)ZRO__POINT("xfer.done");
    zro__post(&board->slots[f->me].done, board->number);
    for (int o = 0; o < f->size; o++) {
        int touches;

        if (o == f->me || !owns_something(f, o))
            continue;
        touches =
            (brings(f, o, f->me) && reads_in_place(f, o, f->me)) || (receives(f, o, f->me) && writes_in_place(f, o, f->me));
        if (!touches)
            continue;
        st = zro__wait(board, &board->slots[o].done, board->number, o);
        if (st != ZRO_OK)
            return st;
    }
    return ZRO_OK;
}

static zro_status prepare_reduction(flow *f)
{
    zro_group *g = f->g;

    f->reduce = (zro__reduce){
        .dtype = f->x->in_type, .op = f->x->op, .n = f->size, .cell = g->cell_of, .n_cells = g->n_cells, .divisor = f->size
    };
    if (!f->x->weighted)
        return ZRO_OK;
    f->reduce.weight = g->scratch.weight;
    f->reduce.divisor = 0;
    for (int r = 0; r < f->size; r++)
        f->reduce.divisor += header_of(f, r)->weight;
    for (int k = 0; k < f->size; k++)
        g->scratch.weight[k] = header_of(f, g->order[k])->weight;
    if (!(f->reduce.divisor != 0) || !isfinite(f->reduce.divisor))
        return zro__fail(ZRO_ERR_INVALID, "the ranks' weights add up to %g", f->reduce.divisor);
    return ZRO_OK;
}

zro_status zro__xfer_run(zro_group *g, const zro__xfer *x)
{
    flow f = { .g = g,
               .x = x,
               .parts = x->parts,
               .n_parts = x->n_parts,
               .in_size = zro_dtype_bytes(x->in_type),
               .out_size = zro_dtype_bytes(x->out_type),
               .me = g->board.rank,
               .size = g->board.size };
    size_t larger = f.in_size > f.out_size ? f.in_size : f.out_size;
    int in_payload = fits_payload(&f), direct;
    zro_status st;

    if (x->present != NULL && x->n_parts > 8 * (size_t)ZRO__PAYLOAD_BYTES)
        return zro__fail(ZRO_ERR_UNSUPPORTED, "a transfer of %zu parts with presence; %zu fit", x->n_parts,
                         8 * (size_t)ZRO__PAYLOAD_BYTES);
    assert(!x->spread || x->n_parts == 1);
    st = arrive(&f, in_payload);
    if (st == ZRO_OK && x->reduces)
        st = prepare_reduction(&f);
    if (st != ZRO_OK || x->n_parts == 0)
        return st;
    if (in_payload) {
        do_in_payloads(&f);
        return ZRO_OK;
    }
    direct = all_in_place(&f);
    if (direct && x->spread)
        spread(&f);
    f.limit = (direct ? DIRECT_CHUNK_BYTES : g->link.chunk) / larger;
    f.stream = x->count * larger >= STREAM_BYTES;
    st = find_arrays(&f);
    if (st == ZRO_OK)
        st = run_steps(&f);
    return st == ZRO_OK ? wait_for_owners(&f) : st;
}
