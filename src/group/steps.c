/* The schedule of links.
 *
 * Each owner's parts, one after another, are its stream, cut into chunks.  In step t a rank sends its
 * pieces of chunk t of every stream, then does chunk t - 1 of its own stream, sending the results, then fetches the results of
 * chunk t - 2 of the other streams.  All waits are plain ones.  This cannot deadlock with 4 messages of room between two ranks:
 * let a rank be in step s, no other in an earlier one.  What it fetches was sent in steps before s, so it is there.  Of what it
 * sends to a peer, the peer has fetched all that it needed for its steps before s, so between the two there are at most the
 * pieces of chunks s - 1 and s and the results of chunks s - 2 and s - 1.  So the rank that is furthest behind never waits for
 * long, and everybody goes on.
 *
 * A link that receives by request is told what comes two chunks ahead, and where it belongs: results straight into group
 * memory, the rest into buffers.  What goes out of group memory is not copied either.  So an array may be sent from while the
 * result for the same place is expected: the result follows from the piece, and cannot come before that has gone. */
#include "group/flow.h"

#include <string.h>

#include "base/point.h"

enum { AHEAD = 2 }; /* chunks announced before the step that sends them: at most LINK_DEPTH are announced and not taken */

/* ---- messages ---- */

static const zro__link *link_to(const zro__flow *f, int peer)
{
    return zro__is_near(&f->g->board, peer) ? &f->g->near_link : &f->g->far_link;
}

static zro_status wait_for_room(zro__flow *f, int peer)
{
    const zro__link *link = link_to(f, peer);
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
static zro_status wait_for_message(zro__flow *f, int peer, zro__stream stream, size_t bytes)
{
    const zro__link *link = link_to(f, peer);
    uint64_t target;
    zro__word *word;
    size_t got = 0;
    char name[64];
    zro_status st;

    while ((f->g->scratch.message[peer] = link->recv(link->self, peer, stream, &got)) == NULL) {
        word = link->recv_word(link->self, peer, stream, &target);
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

/* Sends what was put into the room, or, if `from` is not NULL, from group memory. */
static void send_message(zro__flow *f, int peer, zro__stream stream, const void *from, size_t bytes)
{
    const zro__link *link = link_to(f, peer);

    f->g->kernels->fence();
    if (from != NULL)
        link->send_from(link->self, peer, stream, from, bytes);
    else
        link->send(link->self, peer, stream, bytes);
    if (link == &f->g->near_link) {
        zro__count(&f->g->counters.link_messages, 1);
        zro__count(&f->g->counters.link_bytes, bytes);
    }
}

static void release(zro__flow *f, int peer, zro__stream stream)
{
    const zro__link *link = link_to(f, peer);

    link->release(link->self, peer, stream);
}

/* Bytes of the results in the chunk that begins at the cursor, and of rank's pieces. */
static size_t result_bytes(const zro__flow *f, zro__cursor at, int owner)
{
    size_t room = f->limit, bytes = 0;
    zro__run run;

    while (zro__cursor_next(&at, f->parts, f->n_parts, owner, &room, &run))
        bytes += run.count * f->out_size;
    return bytes;
}

static size_t piece_bytes(const zro__flow *f, zro__cursor at, int owner, int rank)
{
    size_t room = f->limit, bytes = 0;
    zro__run run;

    while (zro__cursor_next(&at, f->parts, f->n_parts, owner, &room, &run))
        bytes += zro__flow_has(f, rank, run.part) ? run.count * f->in_size : 0;
    return bytes;
}

static int at_end(const zro__flow *f, const zro__cursor *cursor, int owner)
{
    zro__cursor c = *cursor;
    size_t room = f->limit;
    zro__run run;

    return !zro__cursor_next(&c, f->parts, f->n_parts, owner, &room, &run);
}

/* Where the chunk at the cursor lies in an array of this rank, if it is one run of group memory, and a link to `peer` can use it
 * there; NULL otherwise. */
static char *find_chunk(const zro__flow *f, zro__cursor at, int owner, int peer, int is_out)
{
    size_t room = f->limit;
    zro__run run, next;

    if (link_to(f, peer)->send_from == NULL || !(is_out ? f->out_is_shared : f->in_is_shared)
        || !zro__cursor_next(&at, f->parts, f->n_parts, owner, &room, &run)
        || zro__cursor_next(&at, f->parts, f->n_parts, owner, &room, &next))
        return NULL;
    return is_out ? (char *)f->x->out + f->parts[run.part].out_at + run.first * f->out_size
                  : (char *)(uintptr_t)f->x->in + f->parts[run.part].in_at + run.first * f->in_size;
}

/* Where results of this owner can be sent from: its own array of results, or, if they are its pieces, of those. */
static char *find_result(const zro__flow *f, zro__cursor at, int peer)
{
    zro__cursor next = at;
    size_t room = f->limit;
    zro__run run;

    if (!zro__cursor_next(&next, f->parts, f->n_parts, f->me, &room, &run))
        return NULL;
    if (!f->x->reduces && f->x->apply == NULL && f->parts[run.part].source == f->me && f->in_is_shared)
        return find_chunk(f, at, f->me, peer, 0);
    return zro__flow_receives(f, f->me, f->me) ? find_chunk(f, at, f->me, peer, 1) : NULL;
}

static int fetches_results(const zro__flow *f, int owner)
{
    return owner != f->me && zro__flow_receives(f, owner, f->me) && zro__flow_writer(f, owner, f->me) == f->me;
}

/* Whether results go to rank by link. */
static int sends_results(const zro__flow *f, int rank)
{
    return rank != f->me && zro__flow_receives(f, f->me, rank) && zro__flow_writer(f, f->me, rank) == rank;
}

/* ---- the three things of a step ---- */

static zro_status send_pieces(zro__flow *f, zro__cursor *cursor, int owner)
{
    const char *from = f->x->present == NULL ? find_chunk(f, *cursor, owner, owner, 0) : NULL;
    size_t room = f->limit, bytes = 0;
    zro_status st = wait_for_room(f, owner);
    zro__run run;

    if (st != ZRO_OK)
        return st;
    while (zro__cursor_next(cursor, f->parts, f->n_parts, owner, &room, &run)) {
        void *dst = f->g->scratch.room[owner] + bytes;
        size_t n = run.count * f->in_size;

        if (!zro__flow_has(f, f->me, run.part))
            continue;
        if (from == NULL)
            f->g->kernels->copy(&dst, 1, (const char *)f->x->in + f->parts[run.part].in_at + run.first * f->in_size, n, 1);
        bytes += n;
    }
    (void)ZRO__POINT("xfer.piece");
    send_message(f, owner, ZRO__PIECES, from, bytes);
    return ZRO_OK;
}

static zro_status do_own_chunk(zro__flow *f, zro__cursor *cursor)
{
    zro__scratch *s = &f->g->scratch;
    zro__cursor start = *cursor;
    size_t room = f->limit, results = result_bytes(f, *cursor, f->me);
    zro__run run;
    zro_status st;

    for (int r = 0; r < f->size; r++) {
        if (f->x->reduces && s->in_of[r] == NULL) {
            st = wait_for_message(f, r, ZRO__PIECES, piece_bytes(f, *cursor, f->me, r));
            if (st != ZRO_OK)
                return st;
        }
        s->room[r] = NULL;
        if (sends_results(f, r)) {
            st = wait_for_room(f, r);
            if (st != ZRO_OK)
                return st;
            if (find_result(f, start, r) != NULL)
                s->room[r] = NULL;
        }
    }
    (void)ZRO__POINT("xfer.own");
    while (zro__cursor_next(cursor, f->parts, f->n_parts, f->me, &room, &run))
        zro__flow_do(f, &run);
    for (int r = 0; r < f->size; r++) {
        if (f->x->reduces && s->in_of[r] == NULL)
            release(f, r, ZRO__PIECES);
        if (sends_results(f, r))
            send_message(f, r, ZRO__RESULTS, find_result(f, start, r), results);
    }
    return ZRO_OK;
}

static zro_status fetch_results(zro__flow *f, zro__cursor *cursor, int owner)
{
    size_t room = f->limit;
    zro__run run;
    zro_status st = wait_for_message(f, owner, ZRO__RESULTS, result_bytes(f, *cursor, owner));

    if (st != ZRO_OK)
        return st;
    (void)ZRO__POINT("xfer.result");
    while (zro__cursor_next(cursor, f->parts, f->n_parts, owner, &room, &run)) {
        void *dst = (char *)f->x->out + f->parts[run.part].out_at + run.first * f->out_size;
        size_t n = run.count * f->out_size;

        if (dst != f->g->scratch.message[owner]) /* it may have come to where it belongs */
            f->g->kernels->copy(&dst, 1, f->g->scratch.message[owner], n, f->stream);
        f->g->scratch.message[owner] += n;
    }
    f->g->kernels->fence();
    release(f, owner, ZRO__RESULTS);
    return ZRO_OK;
}

/* Announces the next chunk of pieces from everybody, and of results from each owner, to the links that want to know. */
static void expect_pieces(zro__flow *f, zro__cursor *cursor)
{
    size_t room = f->limit;
    zro__run run;

    for (int r = 0; r < f->size && !at_end(f, cursor, f->me); r++) {
        const zro__link *link = link_to(f, r);

        if (f->x->reduces && f->g->scratch.in_of[r] == NULL && link->expect != NULL)
            link->expect(link->self, r, ZRO__PIECES, NULL, piece_bytes(f, *cursor, f->me, r));
    }
    while (zro__cursor_next(cursor, f->parts, f->n_parts, f->me, &room, &run)) {
    }
}

static void expect_results(zro__flow *f, zro__cursor *cursor, int owner)
{
    const zro__link *link = link_to(f, owner);
    size_t room = f->limit;
    zro__run run;

    if (link->expect == NULL || !fetches_results(f, owner) || at_end(f, cursor, owner))
        return;
    link->expect(link->self, owner, ZRO__RESULTS, find_chunk(f, *cursor, owner, owner, 1), result_bytes(f, *cursor, owner));
    while (zro__cursor_next(cursor, f->parts, f->n_parts, owner, &room, &run)) {
    }
}

zro_status zro__flow_steps(zro__flow *f)
{
    zro__scratch *s = &f->g->scratch;
    zro__cursor own = { 0, 0 }, expected = { 0, 0 };
    zro_status st;

    memset(s->send, 0, (size_t)f->size * sizeof *s->send);
    memset(s->recv, 0, (size_t)f->size * sizeof *s->recv);
    memset(s->post, 0, (size_t)f->size * sizeof *s->post);
    for (int t = 0;; t++) {
        int busy = 0;

        for (int k = t == 0 ? 0 : AHEAD - 1; f->g->board.wire != NULL && k < AHEAD; k++) {
            expect_pieces(f, &expected);
            for (int owner = 0; owner < f->size; owner++)
                expect_results(f, &s->post[owner], owner);
        }

        /* Ranks begin with different owners, so that not all of them feed the same one first. */
        for (int i = 1; i < f->size; i++) {
            int owner = (f->me + i) % f->size;

            if (!f->x->reduces || zro__flow_reads(f, owner, f->me) || at_end(f, &s->send[owner], owner))
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
