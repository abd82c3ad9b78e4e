/* The schedule of messages: what is sent, computed and received in which order.
 *
 * Each owner's parts, one after another, are its stream, cut into chunks.  In step t a rank sends its pieces of chunk t of every
 * stream, then does chunk t - 1 of its own stream, sending the results, then fetches the results of chunk t - 2 of the other
 * streams.  Every send and every fetch simply waits until it can be done.  This cannot deadlock if 4 messages fit between two ranks
 * in each direction: let a rank be in step s, no other in an earlier one.  What it fetches was sent in steps before s, so it is there.  Of what it
 * sends to a peer, the peer has fetched all that it needed for its steps before s, so between the two there are at most the
 * pieces of chunks s - 1 and s and the results of chunks s - 2 and s - 1.  So the rank that is furthest behind never waits for
 * long, and everybody goes on.
 *
 * Where results are answers, they come back in the memory of the pieces, and no message brings them: three chunks of pieces are between
 * two ranks at most.
 *
 * A carrier with an `expect` function is told two chunks ahead what comes, and where it belongs: results straight into group memory, the
 * rest into buffers.  What is sent from group memory is not copied either.  So a piece may still be leaving an array while
 * its result is expected in the same array; that is safe, because the owner computes the result from the piece. */
#include "xfer/progress.h"

#include <string.h>

#include "base/point.h"

enum {
    AHEAD = 2
}; /* chunks announced before the step that sends them: at most ZRO__CARRIER_DEPTH are announced and not taken */

/* ---- messages ---- */

static const zro__carrier *carrier_to(const zro__progress *f, int peer)
{
    return zro__is_near(&f->ranks->board, peer) ? &f->ranks->near : &f->ranks->far;
}

/* What a carrier cannot do for want of memory breaks the group: peers wait for it. */
static zro_status done_by_carrier(const zro__progress *f, zro_status st)
{
    return st == ZRO_OK ? ZRO_OK : zro__break(&f->ranks->board, st, -1);
}

/* Waits until a message can be sent to `peer`, and finds a buffer for it unless it is sent `from` elsewhere. */
static zro_status wait_for_buffer(zro__progress *f, int peer, const void *from)
{
    const zro__carrier *carrier = carrier_to(f, peer);
    uint64_t target;
    zro__word *word = carrier->buffer_word(carrier->self, peer, &target);
    void *buffer = NULL;
    zro_status st = zro__wait(&f->ranks->board, word, target, peer, NULL);

    if (st == ZRO_OK && from == NULL)
        st = done_by_carrier(f, carrier->buffer(carrier->self, peer, &buffer));
    f->ranks->scratch.outgoing[peer] = buffer;
    return st;
}

/* `bytes` is what the schedule says must come. */
static zro_status wait_for_message(zro__progress *f, int peer, zro__stream stream, size_t bytes)
{
    const zro__carrier *carrier = carrier_to(f, peer);
    uint64_t target;
    zro__word *word = carrier->recv_word(carrier->self, peer, stream, &target);
    const void *message = NULL;
    size_t got = 0;
    char name[64];
    zro_status st = zro__wait(&f->ranks->board, word, target, peer, NULL);

    if (st == ZRO_OK)
        st = done_by_carrier(f, carrier->recv(carrier->self, peer, stream, &message, &got));
    if (st != ZRO_OK)
        return st;
    f->ranks->scratch.incoming[peer] = message;
    if (got != bytes) {
        zro__fail(ZRO_ERR_MISMATCH, "%s sent %zu bytes where %zu were due: the ranks run different transfers",
                  zro__rank_name(&f->ranks->board, peer, name, sizeof name), got, bytes);
        return zro__break(&f->ranks->board, ZRO_ERR_MISMATCH, -1);
    }
    return ZRO_OK;
}

static void count_message(zro__progress *f, size_t bytes)
{
    zro__count(&f->ranks->counters.link_messages, 1);
    zro__count(&f->ranks->counters.link_bytes, bytes);
}

/* Sends what was put into the buffer, or, if `from` is not NULL, from group memory. */
static zro_status send_message(zro__progress *f, int peer, zro__stream stream, const void *from, size_t bytes)
{
    const zro__carrier *carrier = carrier_to(f, peer);
    zro_status st = ZRO_OK;

    f->ranks->kernels->fence();
    if (from != NULL)
        st = done_by_carrier(f, carrier->send_from(carrier->self, peer, stream, from, bytes));
    else if (f->answers)
        carrier->lend(carrier->self, peer, stream, bytes);
    else
        carrier->send(carrier->self, peer, stream, bytes);
    if (carrier == &f->ranks->near)
        count_message(f, bytes);
    return st;
}

static void release(zro__progress *f, int peer, zro__stream stream)
{
    const zro__carrier *carrier = carrier_to(f, peer);

    carrier->release(carrier->self, peer, stream);
}

/* Bytes of the results in the chunk that begins at the cursor, and of rank's pieces. */
static size_t result_bytes(const zro__progress *f, zro__cursor at, int owner)
{
    size_t left = f->limit, bytes = 0;
    zro__run run;

    while (zro__cursor_next(&at, f->parts, f->n_parts, f->any, owner, &left, &run))
        bytes += run.count * f->out_size;
    return bytes;
}

static size_t piece_bytes(const zro__progress *f, zro__cursor at, int owner, int rank)
{
    size_t left = f->limit, bytes = 0;
    zro__run run;

    while (zro__cursor_next(&at, f->parts, f->n_parts, f->any, owner, &left, &run))
        bytes += zro__reach_has(f, rank, run.part) ? run.count * f->in_size : 0;
    return bytes;
}

static int at_end(const zro__progress *f, const zro__cursor *cursor, int owner)
{
    zro__cursor c = *cursor;
    size_t left = f->limit;
    zro__run run;

    return !zro__cursor_next(&c, f->parts, f->n_parts, f->any, owner, &left, &run);
}

/* Where the chunk at the cursor lies in an array of this rank, if it is one run of group memory, and a link to `peer` can use it
 * there; NULL otherwise. */
static char *find_chunk(const zro__progress *f, zro__cursor at, int owner, int peer, int is_out)
{
    size_t left = f->limit;
    zro__run run, next;

    if (carrier_to(f, peer)->send_from == NULL || !(is_out ? f->out_is_shared : f->in_is_shared)
        || !zro__cursor_next(&at, f->parts, f->n_parts, f->any, owner, &left, &run)
        || zro__cursor_next(&at, f->parts, f->n_parts, f->any, owner, &left, &next))
        return NULL;
    return is_out ? (char *)f->x->out + f->parts[run.part].out_at + run.first * f->out_size
                  : (char *)(uintptr_t)f->x->in + f->parts[run.part].in_at + run.first * f->in_size;
}

/* Where results of this owner can be sent from: its array of results or, where nothing is computed, its array of
 * pieces. */
static char *find_result(const zro__progress *f, zro__cursor at, int peer)
{
    zro__cursor next = at;
    size_t left = f->limit;
    zro__run run;

    if (!zro__cursor_next(&next, f->parts, f->n_parts, f->any, f->me, &left, &run))
        return NULL;
    if (!f->x->reduces && f->x->apply == NULL && f->parts[run.part].source == f->me && f->in_is_shared)
        return find_chunk(f, at, f->me, peer, 0);
    return zro__reach_receives(f, f->me, f->me) ? find_chunk(f, at, f->me, peer, 1) : NULL;
}

static int fetches_results(const zro__progress *f, int owner)
{
    return owner != f->me && zro__reach_receives(f, owner, f->me) && zro__reach_writer(f, owner, f->me) == f->me;
}

/* Whether results go to rank by link. */
static int sends_results(const zro__progress *f, int rank)
{
    return rank != f->me && zro__reach_receives(f, f->me, rank) && zro__reach_writer(f, f->me, rank) == rank;
}

/* Whether rank's pieces come to this owner by link.  Its own do not, not even if it has none and no array. */
static int receives_pieces(const zro__progress *f, int rank)
{
    return f->x->reduces && rank != f->me && f->ranks->scratch.in_of[rank] == NULL;
}

/* ---- the three things of a step ---- */

static zro_status send_pieces(zro__progress *f, zro__cursor *cursor, int owner)
{
    const char *from = f->n_words == 0 ? find_chunk(f, *cursor, owner, owner, 0) : NULL;
    size_t left = f->limit, bytes = 0;
    zro_status st = wait_for_buffer(f, owner, from);
    zro__run run;

    if (st != ZRO_OK)
        return st;
    while (zro__cursor_next(cursor, f->parts, f->n_parts, f->any, owner, &left, &run)) {
        void *dst = f->ranks->scratch.outgoing[owner] + bytes;
        size_t n = run.count * f->in_size;

        if (!zro__reach_has(f, f->me, run.part))
            continue;
        if (from == NULL)
            f->ranks->kernels->copy(&dst, 1, (const char *)f->x->in + f->parts[run.part].in_at + run.first * f->in_size, n,
                                    !f->answers);
        bytes += n;
    }
    (void)ZRO__POINT("xfer.piece");
    return send_message(f, owner, ZRO__PIECES, from, bytes);
}

static zro_status do_own_chunk(zro__progress *f, zro__cursor *cursor)
{
    zro__scratch *s = &f->ranks->scratch;
    zro__cursor start = *cursor;
    size_t left = f->limit, results = result_bytes(f, *cursor, f->me);
    zro__run run;
    zro_status st;

    for (int r = 0; r < f->size; r++) {
        if (receives_pieces(f, r)) {
            st = wait_for_message(f, r, ZRO__PIECES, piece_bytes(f, *cursor, f->me, r));
            if (st != ZRO_OK)
                return st;
        }
        s->outgoing[r] = NULL;
        if (f->answers && r != f->me) {
            s->outgoing[r] = (char *)(uintptr_t)s->incoming[r];
        } else if (sends_results(f, r)) {
            st = wait_for_buffer(f, r, find_result(f, start, r));
            if (st != ZRO_OK)
                return st;
        }
    }
    (void)ZRO__POINT("xfer.own");
    while (zro__cursor_next(cursor, f->parts, f->n_parts, f->any, f->me, &left, &run))
        zro__owner_do(f, &run);
    if (zro__is_given_up(&f->ranks->board)) /* then something of the chunk was left out */
        return zro__verdict_get(f->ranks->board.control);
    f->ranks->kernels->fence();
    for (int r = 0; r < f->size; r++) {
        if (receives_pieces(f, r))
            release(f, r, ZRO__PIECES);
        if (f->answers && r != f->me)
            count_message(f, results);
        st = !f->answers && sends_results(f, r) ? send_message(f, r, ZRO__RESULTS, find_result(f, start, r), results) : ZRO_OK;
        if (st != ZRO_OK)
            return st;
    }
    return ZRO_OK;
}

/* Until the oldest message that was lent to this owner is back. */
static zro_status wait_for_answer(zro__progress *f, int owner)
{
    const zro__carrier *carrier = &f->ranks->near;
    uint64_t target;
    zro__word *word = carrier->answer_word(carrier->self, owner, &target);
    zro_status st = zro__wait(&f->ranks->board, word, target, owner, NULL);

    if (st == ZRO_OK)
        f->ranks->scratch.incoming[owner] = carrier->answer(carrier->self, owner);
    return st;
}

static zro_status fetch_results(zro__progress *f, zro__cursor *cursor, int owner)
{
    size_t left = f->limit;
    zro__run run;
    zro_status st =
        f->answers ? wait_for_answer(f, owner) : wait_for_message(f, owner, ZRO__RESULTS, result_bytes(f, *cursor, owner));

    if (st != ZRO_OK)
        return st;
    (void)ZRO__POINT("xfer.result");
    while (zro__cursor_next(cursor, f->parts, f->n_parts, f->any, owner, &left, &run)) {
        void *dst = (char *)f->x->out + f->parts[run.part].out_at + run.first * f->out_size;
        size_t n = run.count * f->out_size;

        if (dst != f->ranks->scratch.incoming[owner]) /* it may have come to where it belongs */
            f->ranks->kernels->copy(&dst, 1, f->ranks->scratch.incoming[owner], n, f->bypass_caches);
        f->ranks->scratch.incoming[owner] += n;
    }
    f->ranks->kernels->fence();
    if (f->answers)
        f->ranks->near.taken(f->ranks->near.self, owner);
    else
        release(f, owner, ZRO__RESULTS);
    return ZRO_OK;
}

/* Announce the next chunk, of pieces from everybody and of results from an owner, to the carriers that want to know. */
static zro_status expect_pieces(zro__progress *f, zro__cursor *cursor)
{
    size_t left = f->limit;
    zro_status st = ZRO_OK;
    zro__run run;

    for (int r = 0; r < f->size && st == ZRO_OK && !at_end(f, cursor, f->me); r++) {
        const zro__carrier *carrier = carrier_to(f, r);

        if (receives_pieces(f, r) && carrier->expect != NULL)
            st = done_by_carrier(f, carrier->expect(carrier->self, r, ZRO__PIECES, NULL, piece_bytes(f, *cursor, f->me, r)));
    }
    while (zro__cursor_next(cursor, f->parts, f->n_parts, f->any, f->me, &left, &run)) {
    }
    return st;
}

static zro_status expect_results(zro__progress *f, zro__cursor *cursor, int owner)
{
    const zro__carrier *carrier = carrier_to(f, owner);
    size_t left = f->limit;
    zro__cursor start = *cursor;
    zro__run run;

    if (carrier->expect == NULL || !fetches_results(f, owner) || at_end(f, cursor, owner))
        return ZRO_OK;
    while (zro__cursor_next(cursor, f->parts, f->n_parts, f->any, owner, &left, &run)) {
    }
    return done_by_carrier(f, carrier->expect(carrier->self, owner, ZRO__RESULTS, find_chunk(f, start, owner, owner, 1),
                                              result_bytes(f, start, owner)));
}

static zro_status expect_chunk(zro__progress *f, zro__cursor *pieces)
{
    zro_status st = expect_pieces(f, pieces);

    for (int owner = 0; owner < f->size && st == ZRO_OK; owner++)
        st = expect_results(f, &f->ranks->scratch.expect[owner], owner);
    return st;
}

zro_status zro__messages_run(zro__progress *f)
{
    zro__scratch *s = &f->ranks->scratch;
    zro__cursor own = { 0, 0 }, expected = { 0, 0 };
    zro_status st;

    memset(s->send, 0, (size_t)f->size * sizeof *s->send);
    memset(s->recv, 0, (size_t)f->size * sizeof *s->recv);
    memset(s->expect, 0, (size_t)f->size * sizeof *s->expect);
    for (int t = 0;; t++) {
        int busy = 0;

        for (int k = t == 0 ? 0 : AHEAD - 1; f->ranks->board.far != NULL && k < AHEAD; k++) {
            st = expect_chunk(f, &expected);
            if (st != ZRO_OK)
                return st;
        }

        /* Ranks begin with different owners, so that not all of them feed the same one first. */
        for (int i = 1; i < f->size; i++) {
            int owner = (f->me + i) % f->size;

            if (!f->x->reduces || zro__reach_reads(f, owner, f->me) || at_end(f, &s->send[owner], owner))
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

            if (!fetches_results(f, owner) || at_end(f, &s->recv[owner], owner))
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
