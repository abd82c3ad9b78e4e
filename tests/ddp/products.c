/* Transfers in which ranks meet and owners apply a function: what a training step in one pass is made of.
 *
 * Lists of parts are random, with gaps between them; each rank has some of the parts, and nobody has some.  The pure reference adds
 * up, a scalar function applies, and then all bytes of the results are compared: parts that nobody has and what lies between
 * parts must be as before.  Pieces that a rank does not have are NaN, so that whoever reads them is noticed.
 *
 *     meeting_lists     presence x owners x memory x types x cells x fast x threads x machines x offsets
 *     meeting_claims    claims that differ are noticed by all, and the group stays whole
 *     meeting_refusals  who refuses keeps its status, and the others get its text
 *     meeting_many      more parts than have their bits in one payload */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "group/group.h"
#include "reference.h"
#include "zt/list.h"
#include "zt/zt.h"

enum { PARTS = 70 }; /* more than one word of bits */

typedef enum place { OWN, EACH, ONCE } place;

typedef struct array {
    char *data;
    zro_memory *memory;
} array;

static array make(zro_group *g, place where, size_t bytes)
{
    array a = { NULL, NULL };

    if (where == OWN) {
        a.data = malloc(bytes + 1);
        CHECK(a.data != NULL);
        return a;
    }
    CHECK_OK(zro_memory_alloc(g, where == EACH ? ZRO_MEMORY_EACH : ZRO_MEMORY_ONCE, bytes, &a.memory));
    a.data = zro_memory_data(a.memory);
    return a;
}

static void drop(array *a)
{
    if (a->memory == NULL)
        free(a->data);
    zro_memory_free(a->memory);
}

/* ---- one transfer ---- */

typedef struct setup {
    zt_rank *t;
    zro_group *g;
    const int32_t *cells;
    uint64_t seed;
    size_t n_parts, longest;
    place in_place, out_place;
    zro_dtype in_type, out_type; /* out: f32 or f64 */
    int to;
    int shifted; /* rank 1's offsets are others */
    int lacking; /* rank 1 has no piece at all, and no array */
    int writes;  /* this rank fills what exists once on its machine */
} setup;

typedef struct meet {
    const setup *s;
    zro__part *parts;
    size_t n_words, in_bytes, out_bytes; /* of one rank */
    uint64_t *present, *any, *gathered;
    array in, out;
    atomic_size_t applied; /* elements */
    size_t told, begun;    /* elements that `next` has told of; calls of `arrived` */
    zro__meeting meeting;
    zro__xfer x;
} meet;

static int has(const setup *s, int rank, size_t part)
{
    const uint64_t coin = zt_mix(s->seed, part);

    if (coin % 4 == 0 || (s->lacking && rank == 1))
        return 0; /* nobody; this rank has nothing */
    return coin % 4 == 1 || zt_mix(s->seed, (uint64_t)rank * 1000003 + part) % 2 == 0;
}

static int anybody_has(const setup *s, size_t part)
{
    int any = 0;

    for (int r = 0; r < s->t->size; r++)
        any |= has(s, r, part);
    return any;
}

/* Owners at random, or one for all, or in even ranges. */
static int owner_of(const setup *s, size_t part, uint64_t *random)
{
    const int any = (int)zt_below(random, (uint64_t)s->t->size);

    if (s->seed % 4 == 0)
        return s->t->size - 1;
    return s->seed % 4 == 1 ? (int)(part * (size_t)s->t->size / s->n_parts) : any;
}

static void make_parts(meet *m)
{
    const setup *s = m->s;
    const size_t in_size = zro_dtype_bytes(s->in_type), out_size = zro_dtype_bytes(s->out_type);
    const size_t shift = s->shifted && s->t->rank == 1 ? 37 : 0;
    uint64_t random = s->seed;
    size_t in_at = shift, out_at = 2 * shift;

    for (size_t p = 0; p < s->n_parts; p++) {
        const size_t count =
            zt_below(&random, 10) == 0 ? zt_below(&random, s->longest) : zt_below(&random, s->longest / 20 + 3);
        const int owner = owner_of(s, p, &random);

        in_at += zt_below(&random, 5);
        out_at += zt_below(&random, 5);
        m->parts[p] = (zro__part){ in_at * in_size, out_at * out_size, count, owner, owner };
        m->x.count += count;
        in_at += count;
        out_at += count;
    }
    m->in_bytes = (in_at + 80) * in_size; /* the same on all ranks */
    m->out_bytes = (out_at + 80) * out_size;
    if (s->shifted && s->t->rank == 1) {
        m->in_bytes -= shift * in_size;
        m->out_bytes -= 2 * shift * out_size;
    }
}

/* Any rank can make any rank's pieces, and the values that results had before. */
static void fill_piece(const setup *s, int rank, size_t part, void *out, size_t n)
{
    uint64_t random = zt_mix(s->seed + 1, (uint64_t)rank * 1000003 + part);

    reference_fill(s->in_type, &random, out, n);
}

static double before(const setup *s, size_t part, size_t element)
{
    return (double)(zt_mix(s->seed + 2, part * 65599 + element) >> 44) - 1e5;
}

static double combined(zro_dtype type, double old, double gradient)
{
    if (type == ZRO_F64)
        return old * 0.5 + gradient;
    return (double)((float)old * 0.5f + (float)gradient);
}

static void apply(void *user, const zro__applied *a)
{
    meet *m = user;
    const size_t out_size = zro_dtype_bytes(m->s->out_type);

    CHECK(a->run.first % ZRO__BLOCK == 0 && a->reduce != NULL);
    for (size_t at = 0; at < a->run.count; at += ZRO__TILE) {
        const size_t n = a->run.count - at < ZRO__TILE ? a->run.count - at : ZRO__TILE;
        double tile[ZRO__TILE];
        char *own = (char *)a->own + at * out_size;

        m->s->g->ranks.kernels->reduce_tile(a->reduce, a->src, at, n, tile);
        for (size_t i = 0; i < n; i++)
            reference_put(
                m->s->out_type, own, i,
                combined(m->s->out_type, reference_get(m->s->out_type, own, i), reference_get(m->s->in_type, tile, i)));
        for (int k = 0; k < a->n_dst; k++)
            if ((char *)a->dst[k] + at * out_size != own)
                memcpy((char *)a->dst[k] + at * out_size, own, n * out_size);
    }
    atomic_fetch_add(&m->applied, a->run.count);
}

/* Runs are told of one after another: all elements of the one before must have been applied. */
static void next(void *user, const zro__run *run)
{
    meet *m = user;

    CHECK(m->parts[run->part].owner == m->s->t->rank && anybody_has(m->s, run->part));
    m->told += run->count;
}

static void arrived(void *user)
{
    meet *m = user;

    m->begun++;
    CHECK(atomic_load(&m->applied) == 0);
    for (size_t p = 0; p < m->s->n_parts; p++)
        CHECK((int)(m->any[p / 64] >> p % 64 & 1) == anybody_has(m->s, p));
}

static void fill_in(meet *m)
{
    const setup *s = m->s;

    memset(m->in.data, 0xff, m->in_bytes);
    for (size_t p = 0; p < s->n_parts; p++) {
        m->present[p / 64] |= (uint64_t)has(s, s->t->rank, p) << p % 64;
        if (has(s, s->t->rank, p))
            fill_piece(s, s->t->rank, p, m->in.data + m->parts[p].in_at, m->parts[p].count);
    }
}

static void fill_out(meet *m)
{
    const setup *s = m->s;

    if (s->out_place != ONCE || s->writes) {
        memset(m->out.data, 0x5a, m->out_bytes);
        for (size_t p = 0; p < s->n_parts; p++)
            for (size_t i = 0; i < m->parts[p].count; i++)
                reference_put(s->out_type, m->out.data + m->parts[p].out_at, i, before(s, p, i));
    }
    CHECK_OK(zro_barrier(s->g));
}

static void meet_init(meet *m, const setup *s)
{
    memset(m, 0, sizeof *m);
    m->s = s;
    m->n_words = (s->n_parts + 63) / 64;
    m->parts = calloc(s->n_parts, sizeof *m->parts);
    m->present = calloc(m->n_words, sizeof *m->present);
    m->any = malloc(m->n_words * sizeof *m->any);
    m->gathered = malloc((size_t)s->t->size * m->n_words * sizeof *m->gathered);
    CHECK(m->parts != NULL && m->present != NULL && m->any != NULL && m->gathered != NULL);
    memset(m->any, 0xa5, m->n_words * sizeof *m->any);
    make_parts(m);
    m->in = make(s->g, s->in_place, m->in_bytes);
    m->out = make(s->g, s->out_place, m->out_bytes);
    fill_in(m);
    fill_out(m);
    m->meeting = (zro__meeting){
        .present = m->present, .any = m->any, .gathered = m->gathered, .claim = 42, .arrived = arrived, .user = m
    };
    m->x.call = ZRO__CALL_TRANSFER;
    m->x.root = -1;
    m->x.parts = m->parts;
    m->x.n_parts = s->n_parts;
    m->x.reduces = 1;
    m->x.op = ZRO_AVG;
    m->x.in_type = s->in_type;
    m->x.out_type = s->out_type;
    m->x.in = s->lacking && s->t->rank == 1 ? NULL : m->in.data;
    m->x.in_bytes = s->lacking && s->t->rank == 1 ? 0 : m->in_bytes;
    m->x.out = m->out.data;
    m->x.out_bytes = m->out_bytes;
    m->x.to = s->to;
    m->x.scattered = 1;
    m->x.slow = s->shifted && s->t->rank == 1 ? ZRO__HEADER_IN_SLOW | ZRO__HEADER_OUT_SLOW : 0;
    m->x.meeting = &m->meeting;
    m->x.apply = apply;
    m->x.next = next;
    m->x.apply_user = m;
}

static void meet_free(meet *m)
{
    CHECK_OK(zro_barrier(m->s->g)); /* all have compared what exists once */
    drop(&m->in);
    drop(&m->out);
    free(m->parts);
    free(m->present);
    free(m->any);
    free(m->gathered);
}

static zro_status meet_run(meet *m)
{
    CHECK_OK(zro__enter(m->s->g));
    return zro__leave(m->s->g, zro__xfer_run(&m->s->g->ranks, &m->x));
}

/* ---- what must come out ---- */

static void expect_part(const setup *s, const zro__part *part, size_t p, char *out)
{
    const size_t size = zro_dtype_bytes(s->in_type);
    char *pieces = malloc((size_t)(s->t->size + 1) * part->count * size + 1), *sum = pieces;
    const void *in[ZT_MAX_RANKS];
    unsigned char present[ZT_MAX_RANKS];

    CHECK(pieces != NULL);
    for (int r = 0; r < s->t->size; r++) {
        char *piece = pieces + (size_t)(r + 1) * part->count * size;

        fill_piece(s, r, p, piece, part->count);
        in[r] = piece;
        present[r] = (unsigned char)has(s, r, p);
    }
    reference_reduce(s->in_type, ZRO_AVG, s->t->size, s->cells, NULL, present, in, sum, part->count);
    for (size_t i = 0; i < part->count; i++)
        reference_put(s->out_type, out, i, combined(s->out_type, before(s, p, i), reference_get(s->in_type, sum, i)));
    free(pieces);
}

static const char *text_of(const setup *s, char *text, size_t bytes)
{
    static const char *const places[] = { "own", "each", "once" };

    snprintf(text, bytes, "%s (%s) to %s (%s) %s%s%s", zro_dtype_name(s->in_type), places[s->in_place],
             zro_dtype_name(s->out_type), places[s->out_place], s->to == ZRO__TO_ALL ? "of all" : "of owners",
             s->shifted ? ", rank 1 elsewhere" : "", s->lacking ? ", rank 1 without pieces" : "");
    return text;
}

/* All bytes, gaps included.  is_done = 0: nothing must have changed. */
static void check(const meet *m, int is_done)
{
    const setup *s = m->s;
    char *expected = malloc(m->out_bytes + 1);
    const size_t size = zro_dtype_bytes(s->out_type);
    size_t at = 0, mine = 0, where;
    char text[160];

    CHECK(expected != NULL);
    memset(expected, 0x5a, m->out_bytes);
    for (size_t p = 0; p < s->n_parts; p++) {
        const zro__part *part = &m->parts[p];
        char *out = expected + part->out_at;

        for (size_t i = 0; i < part->count; i++)
            reference_put(s->out_type, out, i, before(s, p, i));
        mine += part->owner == s->t->rank && anybody_has(s, p) ? part->count : 0;
        if (is_done && anybody_has(s, p) && (s->to == ZRO__TO_ALL || part->owner == s->t->rank))
            expect_part(s, part, p, out);
        if (memcmp(expected + at, m->out.data + at, part->out_at - at) != 0)
            zt_fail(__FILE__, __LINE__, "%s: before part %zu of %zu: the bytes between parts changed",
                    text_of(s, text, sizeof text), p, s->n_parts);
        if (!reference_same(s->out_type, out, m->out.data + part->out_at, part->count, &where))
            zt_fail(__FILE__, __LINE__, "%s: part %zu of %zu (%s), element %zu of %zu differs", text_of(s, text, sizeof text),
                    p, s->n_parts, anybody_has(s, p) ? "present" : "absent", where, part->count);
        at = part->out_at + part->count * size;
    }
    CHECK(memcmp(expected + at, m->out.data + at, m->out_bytes - at) == 0);
    CHECK(atomic_load(&m->applied) == (is_done ? mine : 0) && m->told == atomic_load(&m->applied));
    CHECK(m->begun == (size_t)is_done);
    free(expected);
}

static void one(const setup *s)
{
    meet m;

    meet_init(&m, s);
    CHECK_OK(meet_run(&m));
    check(&m, 1);
    CHECK(!m.meeting.claims_differ);
    meet_free(&m);
}

/* Whether no lower rank is on the same machine. */
static int is_first(const zt_rank *t, zt_machines machines)
{
    int first = 1;

    for (int r = 0; r < t->rank; r++)
        first &= zt_machine(t, machines, r) != zt_machine(t, machines, t->rank);
    return first;
}

/* ---- lists ---- */

static setup draw(zt_rank *t, zro_group *g, const int32_t *cells, int round)
{
    static const struct {
        zro_dtype in, out;
    } types[] = {
        { ZRO_F32, ZRO_F32 }, { ZRO_BF16, ZRO_F32 }, { ZRO_F64, ZRO_F64 }, { ZRO_F32, ZRO_F64 }, { ZRO_F16, ZRO_F32 }
    };
    setup s = { .t = t, .g = g, .cells = cells, .n_parts = PARTS, .longest = 2000 };
    uint64_t random = zt_mix(t->seed, 77 + (uint64_t)round);
    const size_t type = zt_below(&random, 5);

    s.seed = zt_next(&random) / 4 * 4 + (uint64_t)round % 4;
    s.in_type = types[type].in;
    s.out_type = types[type].out;
    s.in_place = zt_below(&random, 3) == 0 ? OWN : EACH;
    s.out_place = (place)zt_below(&random, 3);
    s.to = s.out_place != ONCE && zt_below(&random, 4) == 0 ? ZRO__TO_OWNER : ZRO__TO_ALL;
    s.shifted = s.out_place != ONCE && zt_below(&random, 4) == 0;
    s.lacking = zt_below(&random, 4) == 0;
    if (zt_below(&random, 5) == 0) { /* worth waking threads for, and more than a message */
        s.n_parts = 12;
        s.longest = 60000;
    }
    return s;
}

static void meeting_lists(zt_rank *t)
{
    int32_t cells[ZT_MAX_RANKS];

    for (int i = 0; i < 5; i++) {
        const zt_machines machines = i == 4 ? ZT_TWO : t->machines;
        zro_group_config config = zt_config();
        zro_group *g;

        for (int r = 0; r < t->size; r++)
            cells[r] = (int32_t)(zt_mix(t->seed, (uint64_t)(r + 50 * i)) % 3);
        config.settings.fast = i == 1 ? ZRO_OFF : config.settings.fast;
        config.settings.threads = i == 2 ? 2 : 1;
        config.cells = i >= 3 ? cells : NULL;
        config.machine = zt_config_machine(t, machines, t->rank);
        g = zt_group_with(t, &config);
        if (config.cells == NULL) /* by default ranks of a machine are one */
            for (int r = 0; r < t->size; r++)
                cells[r] = zt_machine(t, t->machines, r);
        for (int round = 0; round < 8; round++) {
            setup s = draw(t, g, cells, i * 8 + round);

            s.writes = is_first(t, machines);
            one(&s);
        }
        zro_group_destroy(g);
    }
}

/* ---- claims and refusals ---- */

static setup small(zt_rank *t, size_t n_parts, place in, place out)
{
    static const int32_t cells[ZT_MAX_RANKS] = { 0 };

    return (setup){ .t = t,
                    .g = t->group,
                    .cells = cells,
                    .seed = zt_mix(t->seed, n_parts),
                    .n_parts = n_parts,
                    .longest = 60,
                    .in_place = in,
                    .out_place = out,
                    .in_type = ZRO_F32,
                    .out_type = ZRO_F32,
                    .to = ZRO__TO_ALL,
                    .writes = is_first(t, t->machines) };
}

static void claims_of(zt_rank *t, size_t n_parts, place in, place out)
{
    const setup s = small(t, n_parts, in, out);

    for (int odd = 0; odd < t->size; odd++) {
        meet m;

        meet_init(&m, &s);
        m.meeting.claim += t->rank == odd;
        CHECK_STATUS(meet_run(&m), ZRO_ERR_MISMATCH);
        CHECK(m.meeting.claims_differ);
        check(&m, 0);
        m.meeting.claim = 43;
        m.meeting.claims_differ = 0;
        CHECK_OK(meet_run(&m));
        CHECK(m.begun == 1 && !m.meeting.claims_differ);
        meet_free(&m);
    }
}

static void meeting_claims(zt_rank *t)
{
    claims_of(t, PARTS, EACH, EACH);
    claims_of(t, PARTS, OWN, ONCE);
    claims_of(t, ZRO__MEETING_PARTS + 1, EACH, OWN);
}

static void refusals_of(zt_rank *t, size_t n_parts, place in, place out)
{
    const setup s = small(t, n_parts, in, out);

    for (int odd = 0; odd < t->size; odd++) {
        char why[64], name[32];
        const int too = (odd + 1) % t->size; /* in the end two ranks refuse */
        meet m;

        meet_init(&m, &s);
        snprintf(why, sizeof why, "rank %d has no bread", t->rank);
        m.meeting.why = why;
        for (int two = 0; two < 2; two++) {
            const int refuses = t->rank == odd || (two && t->rank == too);
            const int first = two && too < odd ? too : odd;

            m.meeting.refusal = !refuses ? ZRO_OK : t->rank == odd ? ZRO_ERR_STATE : ZRO_ERR_INVALID;
            m.meeting.claim = (uint64_t)t->rank; /* does not count then */
            CHECK_STATUS(meet_run(&m), !refuses ? ZRO_ERR_PEER : t->rank == odd ? ZRO_ERR_STATE : ZRO_ERR_INVALID);
            snprintf(name, sizeof name, "rank %d has no bread", refuses ? t->rank : first);
            CHECK_TEXT(name);
            check(&m, 0);
            CHECK(!m.meeting.claims_differ);
        }
        m.meeting.refusal = ZRO_OK;
        m.meeting.claim = 5;
        CHECK_OK(meet_run(&m));
        CHECK(m.begun == 1);
        meet_free(&m);
    }
}

static void meeting_refusals(zt_rank *t)
{
    refusals_of(t, PARTS, EACH, EACH);
    refusals_of(t, PARTS, OWN, ONCE);
    refusals_of(t, ZRO__MEETING_PARTS + 1, OWN, EACH);
}

/* ---- many parts ---- */

static void meeting_many(zt_rank *t)
{
    static const size_t counts[] = { ZRO__MEETING_PARTS - 1, ZRO__MEETING_PARTS, ZRO__MEETING_PARTS + 1, 100000 };
    int32_t cells[ZT_MAX_RANKS];

    for (int r = 0; r < t->size; r++)
        cells[r] = zt_machine(t, t->machines, r);
    for (int i = 0; i < 4; i++) {
        setup s = small(t, counts[i], i % 2 ? OWN : EACH, i < 2 ? EACH : OWN);

        s.cells = cells;
        s.longest = 4;
        s.seed = s.seed / 4 * 4 + 1 + (uint64_t)i % 3;
        one(&s);
    }
}

#define SEVERAL (ZT_WORLD(2) | ZT_WORLD(3))

const zt_case cases_ddp_products[] = {
    { "meeting_lists", meeting_lists, SEVERAL | ZT_WORLD(1) | ZT_WORLD(5), ZT_ALL, 0, 60, 0, 0 },
    { "meeting_claims", meeting_claims, SEVERAL, ZT_ALL, 0, 60, 0, 0 },
    { "meeting_claims_two", meeting_claims, ZT_WORLD(3), ZT_BOTH | ZT_MPI, ZT_TWO_MACHINES, 60, 0, 0 },
    { "meeting_refusals", meeting_refusals, SEVERAL, ZT_ALL, 0, 60, 0, 0 },
    { "meeting_refusals_two", meeting_refusals, ZT_WORLD(3), ZT_BOTH | ZT_MPI, ZT_TWO_MACHINES, 60, 0, 0 },
    { "meeting_many", meeting_many, SEVERAL, ZT_ALL, 0, 60, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
