/* The transfer.
 *
 * After all ranks have arrived, and so know where each other's arrays lie, a piece travels in one of three ways:
 * - small transfers: every rank brought its piece in its slot, and each computes what it needs by itself, unless some rank would
 *   rather be read in place;
 * - in place: an array in group memory of the same machine is read, and written, where it lies, by the owner; where a rank lends a
 *   copy of its pieces, peers read that, and itself does not;
 * - by message: any other piece is sent to the owner, any other result sent back, in chunks.
 * Which of the last two holds between an owner and a rank follows from headers that both have, so they never disagree.
 *
 * In place there is nothing to schedule: an owner does its chunks, releases `done`, and whoever's array it touched waits for
 * that.  So pieces must not change, nor results be used, before the call returns.
 *
 * When the group breaks, owners leave off in the middle, and everybody waits until they have (board/late.h), so that nobody writes
 * into an array that its program uses again.  A rank that the others have given up may have read pieces that their programs
 * have changed since; so everybody looks last whether a rank has given up this transfer, and OK means that none had when the work
 * was done.  (Pieces that travel in slots are copies, and do not change.) */
#include "xfer/xfer.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/point.h"
#include "xfer/progress.h"

enum {
    PAYLOAD_MAX = 4096,            /* pieces up to this travel with the arrival, */
    PAYLOAD_BEST = 2048,           /* but above this they are read in place in less time */
    DIRECT_CHUNK_BYTES = 16 << 20, /* of a chunk where no messages are needed */
    CACHED_BYTES = 32 << 20        /* results of transfers that touch more would not stay in the caches anyway */
};

/* ---- arriving ---- */

enum { ANYONE = -1 };

/* Whether rank brings a piece for the parts of `owner`, or of anyone. */
static int brings(const zro__progress *f, int owner, int rank)
{
    if (f->x->reduces)
        return 1;
    for (size_t p = 0; p < f->n_parts; p++)
        if ((owner == ANYONE || f->parts[p].owner == owner) && f->parts[p].source == rank && f->parts[p].count > 0)
            return 1;
    return 0;
}

static int owns_something(const zro__progress *f, int owner)
{
    for (size_t p = 0; p < f->n_parts; p++)
        if (f->parts[p].owner == owner && f->parts[p].count > 0)
            return 1;
    return 0;
}

/* Whether the largest piece of any rank can travel in a slot; the same on all ranks.  In large groups with far ranks
 * only payloads that fit beside a header do: every rank would get every piece, and sending each piece to its owner alone moves
 * fewer bytes.  Sets small_bytes to the length of the largest piece. */
static int fits_payload(zro__progress *f)
{
    const zro__xfer *x = f->x;
    const zro__far_table *far = f->ranks->board.far;
    size_t most = far == NULL || far->short_bytes > PAYLOAD_MAX ? PAYLOAD_MAX : far->short_bytes;

    if (!(f->ranks->one_machine || f->ranks->board.far != NULL) || x->apply != NULL || x->meeting != NULL || x->scattered
        || x->n_parts > (size_t)f->size)
        return 0;
    for (size_t p = 0; p < x->n_parts && f->small_bytes <= most; p++) {
        size_t end = x->parts[p].in_at + x->parts[p].count * f->in_size;

        f->small_bytes = end > f->small_bytes ? end : f->small_bytes;
    }
    return f->small_bytes <= most;
}

/* Whether ranks say where their arrays lie, so that others may touch them; the same on all ranks. */
static int offers(const zro__progress *f, int fits)
{
    return !fits || f->small_bytes > PAYLOAD_BEST;
}

/* Whether this rank brings no payload, though it would fit, because all that others need of it can be touched in place.  (Where one
 * rank alone gets the result nothing is gained.) */
static int prefers_place(const zro__progress *f, const zro__header *h)
{
    const zro__xfer *x = f->x;

    return f->size > 1 && f->ranks->one_machine && x->to < 0 && h->flags == 0 && f->small_bytes > PAYLOAD_BEST
           && (x->in_bytes == 0 || h->in != ZRO__NOWHERE) && (x->out_bytes == 0 || h->out != ZRO__NOWHERE);
}

/* A rank that refuses keeps its own status, the others get PEER; the group stays whole. */
static zro_status count_refusals(const zro__progress *f, zro_status mine)
{
    char name[64];

    if (!(f->ranks->board.flags & ZRO__HEADER_REFUSES))
        return ZRO_OK;
    for (int r = 0; r < f->size && mine == ZRO_OK; r++)
        if (zro__reach_header(f, r)->flags & ZRO__HEADER_REFUSES)
            return zro__fail(ZRO_ERR_PEER, "%s: %s: %.900s", zro__rank_name(&f->ranks->board, r, name, sizeof name),
                             zro_status_name((zro_status)zro__reach_header(f, r)->weight),
                             (const char *)zro__payload_of(&f->ranks->board, r));
    if (mine != ZRO_OK) /* the text stands in the payload: others may have been made since */
        zro__fail(mine, "%s", (const char *)zro__payload_of(&f->ranks->board, f->me));
    return mine;
}

/* ---- meetings ---- */

static size_t words_of(size_t bits)
{
    return (bits + 63) / 64;
}

/* Bits that do not fit into a payload are gathered by a transfer of their own. */
static zro_status gather_bits(zro__progress *f)
{
    const zro__meeting *m = f->x->meeting;
    const size_t bytes = f->n_words * sizeof *m->gathered;
    zro__xfer x = { .call = f->x->call,
                    .root = -1,
                    .count = f->n_words,
                    .parts = f->ranks->scratch.parts,
                    .n_parts = (size_t)f->size,
                    .in_type = ZRO_I64,
                    .out_type = ZRO_I64,
                    .in = m->present,
                    .in_bytes = bytes,
                    .out = m->gathered,
                    .out_bytes = bytes * (size_t)f->size,
                    .to = ZRO__TO_ALL };

    for (int r = 0; r < f->size; r++)
        f->ranks->scratch.parts[r] = (zro__part){ 0, (size_t)r * bytes, f->n_words, r, r };
    f->bits = m->gathered;
    return zro__xfer_run(f->ranks, &x);
}

/* Writes the claim, and the bits unless they were gathered, into the payload, and returns how many bytes these are. */
static size_t bring(const zro__progress *f, void *payload)
{
    const zro__meeting *m = f->x->meeting;
    const size_t bytes = f->bits == NULL ? f->n_words * sizeof(uint64_t) : 0;

    memcpy(payload, &m->claim, sizeof m->claim);
    if (bytes > 0)
        memcpy((char *)payload + sizeof m->claim, m->present, bytes);
    return sizeof m->claim + bytes;
}

/* What the others have brought.  If any two claims differ, each rank sees one that is not its own. */
static zro_status learn(zro__progress *f)
{
    zro__meeting *m = f->x->meeting;

    for (int r = 0; r < f->size; r++) {
        uint64_t claim;

        memcpy(&claim, zro__payload_of(&f->ranks->board, r), sizeof claim);
        m->claims_differ |= claim != m->claim;
    }
    if (m->claims_differ)
        return zro__fail(ZRO_ERR_MISMATCH, "the ranks' claims differ");
    if (m->any != NULL) {
        for (size_t i = 0; i < f->n_words; i++) {
            m->any[i] = 0;
            for (int r = 0; r < f->size; r++)
                m->any[i] |= zro__reach_bits(f, r)[i];
        }
        f->any = m->any;
    }
    if (m->arrived != NULL)
        m->arrived(m->user);
    return ZRO_OK;
}

/* Says in the header where this rank's arrays lie, and whether others may touch them. */
static void offer_arrays(zro__progress *f, zro__header *h)
{
    const zro__xfer *x = f->x;
    zro__view *view = f->ranks->view;

    h->flags |= x->slow; /* it would not find the others' parts either */
    if (f->size > 1 && x->lent != NULL)
        h->in = zro__locate(view, x->lent, x->lent_bytes);
    else if (f->size > 1 && x->lent_at == NULL && !(x->slow & ZRO__HEADER_IN_SLOW) && x->in != NULL && x->in_bytes > 0)
        h->in = zro__locate(view, x->in, x->in_bytes);
    if (f->size > 1 && !(x->slow & ZRO__HEADER_OUT_SLOW) && x->out != NULL && x->out_bytes > 0)
        h->out = x->out == x->in && x->out_bytes == x->in_bytes && x->lent_at == NULL ? h->in
                                                                                      : zro__locate(view, x->out, x->out_bytes);
    if (f->ranks->fast == ZRO_OFF)
        h->flags |= ZRO__HEADER_SLOW;
    f->in_is_shared = h->in != ZRO__NOWHERE && x->lent_at == NULL && !(h->flags & ZRO__HEADER_IN_SLOW);
    f->out_is_shared = h->out != ZRO__NOWHERE && !(h->flags & ZRO__HEADER_OUT_SLOW);
}

static zro_status arrive(zro__progress *f, int fits)
{
    const zro__xfer *x = f->x;
    zro__view *view = f->ranks->view;
    zro__header h = { .call = (uint8_t)x->call,
                      .dtype = (uint8_t)x->in_type,
                      .op = (uint8_t)x->op,
                      .root = x->root,
                      .count = x->count,
                      .tag = x->tag,
                      .in = ZRO__NOWHERE,
                      .out = ZRO__NOWHERE,
                      .weight = x->weight };
    size_t bytes = 0; /* of the payload */
    zro_status refused = ZRO_OK, st = zro__verdict_get(f->ranks->board.control);

    if (st != ZRO_OK) /* peers may still read the payload that this rank wrote two operations ago */
        return st;
    if (x->meeting != NULL && x->meeting->refusal != ZRO_OK)
        refused = zro__fail(x->meeting->refusal, "%s", x->meeting->why);
    if (refused == ZRO_OK)
        refused = zro__late_check(view, x->in, x->in_bytes);
    if (refused == ZRO_OK)
        refused = zro__late_check(view, x->out, x->out_bytes);
    if (refused != ZRO_OK) { /* the others get the text instead of a piece */
        h.flags |= ZRO__HEADER_REFUSES;
        h.weight = (double)refused;
        bytes = strlen(zro_last_error()) + 1;
        memcpy(zro__payload(&f->ranks->board), zro_last_error(), bytes);
    } else {
        if (offers(f, fits))
            offer_arrays(f, &h);
        if (!fits)
            bytes = x->meeting == NULL ? 0 : bring(f, zro__payload(&f->ranks->board));
        else if (prefers_place(f, &h))
            h.flags |= ZRO__HEADER_NO_PAYLOAD;
        else if (brings(f, ANYONE, f->me) && x->in_bytes > 0) /* an array without elements may be NULL */
            memcpy(zro__payload(&f->ranks->board), x->in, bytes = x->in_bytes);
    }
    st = zro__arrive(&f->ranks->board, &h, bytes);
    if (st == ZRO_OK)
        st = zro__gather_arrivals(&f->ranks->board, fits ? bytes : 0);
    return st != ZRO_OK ? st : count_refusals(f, refused);
}

/* ---- small transfers ---- */

static void do_in_payloads(zro__progress *f)
{
    zro__scratch *s = &f->ranks->scratch;

    for (size_t p = 0; p < f->n_parts; p++) {
        const zro__part *part = &f->parts[p];
        void *dst = part->count == 0 || !zro__reach_receives(f, part->owner, f->me) ? NULL : (char *)f->x->out + part->out_at;

        if (dst == NULL)
            continue;
        if (!f->x->reduces) {
            const char *from = zro__payload_of(&f->ranks->board, part->source);

            f->ranks->kernels->copy(&dst, 1, from + part->in_at, part->count * f->in_size, 0);
            continue;
        }
        for (int k = 0; k < f->size; k++)
            s->src[k] = (const char *)zro__payload_of(&f->ranks->board, f->ranks->order[k]) + part->in_at;
        f->ranks->kernels->reduce(&f->reduce, s->src, &dst, 1, part->count, 0);
    }
}

/* ---- the whole ---- */

/* Every piece and every result can be reached by everybody. */
static int all_in_place(const zro__progress *f)
{
    if (!f->ranks->one_machine)
        return 0;
    for (int r = 0; r < f->size; r++) {
        const zro__header *h = zro__reach_header(f, r);
        int gets = f->x->to == ZRO__TO_ALL || f->x->to == r || (f->x->to == ZRO__TO_OWNER && owns_something(f, r));

        if ((h->flags & ZRO__HEADER_SLOW) || (h->in == ZRO__NOWHERE && brings(f, ANYONE, r))
            || (h->out == ZRO__NOWHERE && gets))
            return 0;
    }
    return 1;
}

/* One part for each rank, instead of the one part of one owner. */
static void spread(zro__progress *f)
{
    zro__part whole = f->parts[0], *parts = f->ranks->scratch.parts;

    for (int r = 0; r < f->size; r++) {
        size_t first, length;

        zro__cut_even(whole.count, f->size, r, &first, &length);
        parts[r] = (zro__part){ whole.in_at + first * f->in_size, whole.out_at + first * f->out_size, length, r, whole.source };
    }
    f->parts = parts;
    f->n_parts = (size_t)f->size;
}

/* Whether the ranks together touch more memory than the caches hold: what they bring (each an array if these are reduced, else one
 * together) and the results (one, or one per rank), where a rank that has both uses one array for them.  What just fits is worth it for
 * sums, and not for copies.  The same on all ranks, wherever their arrays lie. */
static int touches_more_than_caches(const zro__progress *f, size_t bytes)
{
    const zro__xfer *x = f->x;
    const size_t brought = x->reduces ? (size_t)f->size : 1, results = x->to == ZRO__TO_ALL ? (size_t)f->size : 1;
    const size_t shared = x->to != ZRO__TO_ALL ? 0 : x->reduces ? (size_t)f->size : x->root >= 0;

    const size_t limit = CACHED_BYTES / (brought + results - shared);

    return x->reduces ? bytes > limit : bytes >= limit;
}

/* Whether results should come back in the messages that brought the pieces, which two ranks can do with ordinary stores: what was
 * measured as the fastest way for arrays that fit the caches.  What does not fit goes around them. */
static int pays_to_answer(const zro__progress *f)
{
    const zro__xfer *x = f->x;

    return f->size == 2 && !f->bypass_caches && f->ranks->board.far == NULL && x->reduces && x->to == ZRO__TO_ALL
           && x->apply == NULL && x->meeting == NULL && !zro__reach_reads(f, 0, 1) && !zro__reach_reads(f, 1, 0)
           && zro__reach_writer(f, 0, 1) == 1 && zro__reach_writer(f, 1, 0) == 0;
}

static void find_twins(zro__progress *f)
{
    int *twin = f->ranks->scratch.twin;

    for (int r = 0; r < f->size; r++) {
        uint64_t out = zro__reach_header(f, r)->out;

        twin[r] = r;
        for (int q = 0; q < r && out != ZRO__NOWHERE && twin[r] == r; q++)
            if (f->ranks->machine[q] == f->ranks->machine[r] && zro__reach_header(f, q)->out == out)
                twin[r] = q;
    }
}

/* The address of a peer's array, of which this rank touches the first `bytes`; *out stays NULL where a link carries it. */
static zro_status find_array(zro__progress *f, int rank, uint32_t slow, uint64_t offset, size_t bytes, char **out,
                             zro__map *borrowed)
{
    char name[64];

    if (offset == ZRO__NOWHERE || bytes == 0 || !zro__reach_shares(f, f->me, rank, slow))
        return ZRO_OK;
    *out = zro__address(f->ranks->view, offset, bytes, borrowed);
    if (*out != NULL)
        return ZRO_OK;
    zro__fail(ZRO_ERR_MEMORY, "an array of %s could not be mapped: out of memory or address space",
              zro__rank_name(&f->ranks->board, rank, name, sizeof name));
    return zro__break(&f->ranks->board, ZRO_ERR_MEMORY, -1);
}

static void give_back(zro__progress *f)
{
    for (int i = 0; i < 2 * f->size; i++)
        zro__unmap_region(f->ranks->view, &f->ranks->scratch.borrowed[i]);
}

/* Finds the arrays that this rank, as an owner, touches in place. */
static zro_status find_arrays(zro__progress *f)
{
    zro__scratch *s = &f->ranks->scratch;
    zro_status st = ZRO_OK;

    for (int r = 0; r < f->size && st == ZRO_OK; r++) {
        size_t in_bytes = 0, out_bytes = 0;

        s->in_of[r] = r == f->me ? (char *)(uintptr_t)f->x->in : NULL;
        s->out_of[r] = r == f->me ? f->x->out : NULL;
        if (r == f->me)
            continue;
        for (size_t p = 0; p < f->n_parts; p++) {
            const zro__part *part = &f->parts[p];
            size_t in_end = zro__reach_piece_at(f, r, p) + part->count * f->in_size;
            size_t out_end = part->out_at + part->count * f->out_size;

            if (part->owner != f->me || part->count == 0)
                continue;
            if ((f->x->reduces || part->source == r) && in_end > in_bytes)
                in_bytes = in_end;
            if (zro__reach_receives(f, f->me, r) && out_end > out_bytes)
                out_bytes = out_end;
        }
        st = find_array(f, r, ZRO__HEADER_IN_SLOW, zro__reach_header(f, r)->in, in_bytes, &s->in_of[r], &s->borrowed[2 * r]);
        if (st == ZRO_OK)
            st = find_array(f, r, ZRO__HEADER_OUT_SLOW, zro__reach_header(f, r)->out, out_bytes, &s->out_of[r],
                            &s->borrowed[2 * r + 1]);
    }
    return st;
}

/* Until everybody is done who reads or writes this rank's arrays. */
static zro_status wait_for_owners(zro__progress *f)
{
    zro__board *board = &f->ranks->board;
    zro_status st;

    for (int o = 0; o < f->size; o++) {
        int writer = zro__reach_receives(f, o, f->me) ? zro__reach_writer(f, o, f->me) : f->me;

        if (!owns_something(f, o))
            continue;
        st = ZRO_OK;
        if (o != f->me && brings(f, o, f->me) && zro__reach_reads(f, o, f->me))
            st = zro__wait(board, &zro__slot_of(board, o)->done, board->number, o, &board->waited_ms);
        if (st == ZRO_OK && writer != f->me)
            st = zro__wait(board, &zro__slot_of(board, writer)->done, board->number, writer, &board->waited_ms);
        if (st != ZRO_OK)
            return st;
    }
    (void)ZRO__POINT("xfer.owners");
    return zro__is_given_up(board) ? zro__verdict_get(board->control) : ZRO_OK;
}

/* What was sent must be gone: the arrays are the program's again, and a link may need this rank to get on with it. */
static zro_status wait_for_links(zro__progress *f)
{
    const zro__carrier *far = &f->ranks->far;
    uint64_t target;
    zro_status st = ZRO_OK;

    for (int r = 0; r < f->size && st == ZRO_OK; r++) {
        zro__word *word;

        if (zro__is_near(&f->ranks->board, r))
            continue;
        word = far->sent_word(far->self, r, &target);
        st = zro__wait(&f->ranks->board, word, target, r, NULL);
    }
    return st;
}

static zro_status prepare_reduction(zro__progress *f)
{
    zro__ranks *ranks = f->ranks;

    f->reduce = (zro__reduce){ .dtype = f->x->in_type,
                               .op = f->x->op,
                               .n = f->size,
                               .cell = ranks->cell_lengths,
                               .n_cells = ranks->n_cells,
                               .divisor = f->x->divisor != 0 ? f->x->divisor : f->size };
    if (!f->x->weighted)
        return ZRO_OK;
    f->reduce.weight = ranks->scratch.weight;
    f->reduce.divisor = 0;
    for (int r = 0; r < f->size; r++)
        f->reduce.divisor += zro__reach_header(f, r)->weight;
    for (int k = 0; k < f->size; k++)
        ranks->scratch.weight[k] = zro__reach_header(f, ranks->order[k])->weight;
    if (!(f->reduce.divisor != 0) || !isfinite(f->reduce.divisor))
        return zro__fail(ZRO_ERR_INVALID, "the ranks' weights add up to %g", f->reduce.divisor);
    return ZRO_OK;
}

/* After a verdict.  Whoever called the transfer waits then until nobody uses this rank's array any more (board/late.h). */
static void leave_broken(zro__progress *f)
{
    zro__ranks *ranks = f->ranks;

    zro__give_up(&ranks->board);
    zro__late_used(ranks->view, ranks->late, f->x->out, f->x->out_bytes);
    if (ranks->board.far != NULL)
        ranks->far.abandon(ranks->far.self);
}

/* All that is not done by payloads, once everybody has arrived. */
static zro_status carry_out(zro__progress *f)
{
    zro__board *board = &f->ranks->board;
    zro_status st = find_arrays(f);

    zro__touch_begin(board);
    if (st == ZRO_OK && zro__is_given_up(board))
        st = zro__verdict_get(board->control);
    (void)ZRO__POINT("xfer.touching");
    if (st == ZRO_OK)
        st = zro__messages_run(f);
    if (st != ZRO_OK) /* before this rank says that it touches nothing: receives may lead into memory that others have, too */
        leave_broken(f);
    f->ranks->kernels->fence();
    (void)ZRO__POINT("xfer.done");
    zro__touch_end(board);
    if (st == ZRO_OK) {
        st = wait_for_owners(f);
        if (st == ZRO_OK && board->far != NULL)
            st = wait_for_links(f);
        if (st != ZRO_OK)
            leave_broken(f);
    }
    give_back(f);
    return st;
}

zro_status zro__xfer_run(zro__ranks *ranks, const zro__xfer *x)
{
    zro__progress f = { .ranks = ranks,
                        .x = x,
                        .parts = x->parts,
                        .n_parts = x->n_parts,
                        .to = x->to,
                        .in_size = zro__dtype_bytes(x->in_type),
                        .out_size = zro__dtype_bytes(x->out_type),
                        .me = ranks->board.rank,
                        .size = ranks->board.size };
    size_t larger = f.in_size > f.out_size ? f.in_size : f.out_size;
    uint64_t before = ranks->board.number;
    int fits = fits_payload(&f), direct;
    zro_status st;

    assert(!x->spread || x->n_parts == 1);
    if (x->meeting != NULL && x->meeting->present != NULL) {
        f.n_words = words_of(x->n_parts);
        st = x->n_parts > ZRO__MEETING_PARTS ? gather_bits(&f) : ZRO_OK;
        if (st != ZRO_OK)
            return st;
        before = ranks->board.number;
    }
    st = arrive(&f, fits);
    if (st != ZRO_OK && offers(&f, fits) && ranks->board.number != before && zro__is_broken(ranks->board.control))
        leave_broken(&f); /* this rank has arrived, and others may have gone on with its arrays */
    if (st == ZRO_OK && x->reduces)
        st = prepare_reduction(&f);
    if (st == ZRO_OK && x->meeting != NULL)
        st = learn(&f);
    if (st != ZRO_OK || x->n_parts == 0)
        return st;
    if (fits && !(ranks->board.flags & ZRO__HEADER_NO_PAYLOAD)) { /* where one rank has brought none, nobody's is used */
        do_in_payloads(&f);
        return ZRO_OK;
    }
    f.bypass_caches = touches_more_than_caches(&f, x->count * larger);
    find_twins(&f);
    direct = all_in_place(&f);
    if (direct && x->spread)
        spread(&f);
    f.answers = !direct && pays_to_answer(&f);
    f.limit = (direct ? DIRECT_CHUNK_BYTES : ranks->near.chunk) / larger;
    return carry_out(&f);
}
