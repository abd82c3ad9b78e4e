/* The transfer itself, beyond what the named calls use of it: a function applied at the owner, weights, presence, lists of
 * parts of any size.
 *
 * S91 is the sharded step in miniature: SGD with momentum as the function applied inside one transfer equals reducing,
 * updating and delivering done apart, bit for bit. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "group/group.h"
#include "reference.h"
#include "zt/list.h"
#include "zt/zt.h"

enum { PARTS = 13 };
static const float LR = 0.1f, MOMENTUM = 0.9f;

/* Where an array lies. */
typedef enum place { OWN, EACH, ONCE, PLACES } place;

typedef struct array {
    char *data;
    zro_memory *memory;
} array;

static array make(zro_group *g, place where, size_t bytes)
{
    array a = { NULL, NULL };

    if (where == OWN) {
        a.data = calloc(1, bytes + 1);
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

/* Parts of random sizes with random owners, one after another in both arrays. */
static size_t make_parts(uint64_t *random, int ranks, size_t in_size, size_t out_size, zro__part *parts)
{
    size_t at = 0;

    for (int p = 0; p < PARTS; p++) {
        size_t count = zt_below(random, 4) == 0 ? zt_below(random, 100000) : zt_below(random, 3000);
        int owner = (int)zt_below(random, (uint64_t)ranks);

        parts[p] = (zro__part){ at * in_size, at * out_size, count, owner, owner };
        at += count;
    }
    return at;
}

/* ---- S91 ---- */

typedef struct sgd {
    const zro__kernels *kernels;
    const zro__part *parts;
    float *momentum; /* one for each element of the model; each owner uses what it owns */
} sgd;

static void sgd_step(float *p, float *m, const float *g, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float v = MOMENTUM * m[i];

        m[i] = v + g[i];
        v = LR * m[i];
        p[i] = p[i] - v;
    }
}

static void apply_sgd(void *user, const zro__applied *a)
{
    sgd *s = user;
    float tile[ZRO__TILE];

    for (size_t at = 0; at < a->run.count; at += ZRO__TILE) {
        size_t n = a->run.count - at < ZRO__TILE ? a->run.count - at : ZRO__TILE;
        float *own = (float *)a->own + at;

        s->kernels->reduce_tile(a->reduce, a->src, at, n, tile);
        sgd_step(own, s->momentum + s->parts[a->run.part].out_at / sizeof(float) + a->run.first + at, tile, n);
        for (int k = 0; k < a->n_dst; k++)
            if ((float *)a->dst[k] + at != own)
                memcpy((float *)a->dst[k] + at, own, n * sizeof *own);
    }
}

static void one_model(zt_rank *t, zro_group *g, place gradients, place parameters, uint64_t random)
{
    zro__part parts[PARTS];
    size_t n = make_parts(&random, t->size, sizeof(float), sizeof(float), parts);
    array grad = make(g, gradients, n * sizeof(float)), param = make(g, parameters, n * sizeof(float));
    float *apart = calloc(n + 1, sizeof(float)), *sum = calloc(n + 1, sizeof(float));
    float *momentum = calloc(n + 1, sizeof(float)), *momentum_apart = calloc(n + 1, sizeof(float));
    sgd s = { g->ranks.kernels, parts, momentum };
    zro__xfer x = { .call = ZRO__CALL_TRANSFER,
                    .root = -1,
                    .count = n,
                    .parts = parts,
                    .n_parts = PARTS,
                    .reduces = 1,
                    .op = ZRO_AVG,
                    .in_type = ZRO_F32,
                    .out_type = ZRO_F32,
                    .in = grad.data,
                    .out = param.data,
                    .in_bytes = n * sizeof(float),
                    .out_bytes = n * sizeof(float),
                    .to = ZRO__TO_ALL,
                    .apply = apply_sgd,
                    .apply_user = &s };
    size_t where;

    CHECK(apart != NULL && sum != NULL && momentum != NULL && momentum_apart != NULL);
    for (int step = 0; step < 3; step++) {
        for (size_t i = 0; i < n; i++)
            ((float *)grad.data)[i] = (float)(int64_t)(zt_next(&t->random) >> 40) * 1e-6f - 8;
        /* Apart first, since a transfer consumes nothing. */
        CHECK_OK(zro_all_reduce_into(g, grad.data, sum, n, ZRO_F32, ZRO_AVG));
        sgd_step(apart, momentum_apart, sum, n);
        CHECK_OK(zro__enter(g));
        CHECK_OK(zro__leave(g, zro__xfer_run(&g->ranks, &x)));
        if (!reference_same(ZRO_F32, apart, param.data, n, &where))
            zt_fail(__FILE__, __LINE__, "gradients %d, parameters %d: element %zu of %zu differs", gradients, parameters, where,
                    n);
        CHECK_OK(zro_barrier(g)); /* nobody changes what exists once before all have compared */
    }
    drop(&grad);
    drop(&param);
    free(apart);
    free(sum);
    free(momentum);
    free(momentum_apart);
}

static void S91_sgd(zt_rank *t)
{
    for (int gradients = OWN; gradients <= EACH; gradients++)
        for (int parameters = OWN; parameters < PLACES; parameters++)
            one_model(t, t->group, (place)gradients, (place)parameters,
                      zt_mix(t->seed, (uint64_t)(gradients * 8 + parameters)));
}

/* The same without reading in place, with two threads, and with cells and machines of their own. */
static void S91_sgd_settings(zt_rank *t)
{
    int32_t cells[ZT_MAX_RANKS];

    for (int i = 0; i < 4; i++) {
        zro_group_config config = zt_config();
        zro_group *g;

        for (int r = 0; r < t->size; r++)
            cells[r] = r % 2;
        config.settings.fast = i == 0 ? ZRO_OFF : config.settings.fast;
        config.settings.threads = i == 1 ? 2 : 1;
        config.cells = i == 2 ? cells : NULL;
        config.machine = i == 2 ? t->rank / 2 : i == 3 ? t->rank : ZRO_MACHINE_AUTO;
        g = zt_group_with(t, &config);
        one_model(t, g, EACH, EACH, zt_mix(t->seed, 100 + (uint64_t)i));
        one_model(t, g, OWN, EACH, zt_mix(t->seed, 200 + (uint64_t)i));
        zro_group_destroy(g);
    }
}

/* ---- weights and presence ---- */

/* Any rank can make any rank's values. */
static void fill_of(zt_rank *t, int rank, int round, zro_dtype dtype, void *out, size_t n)
{
    uint64_t seed = zt_mix(t->seed, (uint64_t)(rank * 1000 + round));

    reference_fill(dtype, &seed, out, n);
}

static void check_part(zt_rank *t, const zro__xfer *x, size_t part, const int32_t *cells, const double *weights, int round,
                       const char *all, char *expected, const void *got)
{
    size_t n = x->parts[part].count, where;
    const void *in[ZT_MAX_RANKS];
    unsigned char present[ZT_MAX_RANKS];

    for (int r = 0; r < t->size; r++) {
        in[r] = all + (size_t)r * x->in_bytes + x->parts[part].in_at;
        present[r] = (unsigned char)(zt_mix(t->seed, (uint64_t)(round * 100 + r)) >> part & 1);
    }
    reference_reduce(x->in_type, x->op, t->size, cells, weights, present, in, expected, n);
    if (!reference_same(x->in_type, expected, got, n, &where))
        zt_fail(__FILE__, __LINE__, "round %d, %s, part %zu, element %zu of %zu differs", round, zro_dtype_name(x->in_type),
                part, where, n);
}

static void one_list(zt_rank *t, zro_group *g, const int32_t *cells, zro_dtype dtype, int round)
{
    uint64_t random = zt_mix(t->seed, (uint64_t)round), present = zt_mix(t->seed, (uint64_t)(round * 100 + t->rank));
    size_t size = zro_dtype_bytes(dtype);
    double weights[ZT_MAX_RANKS];
    zro__part parts[PARTS];
    size_t n = make_parts(&random, t->size, size, size, parts);
    array in = make(g, (place)zt_below(&random, ONCE), n * size), out = make(g, (place)zt_below(&random, ONCE), n * size);
    char *all = malloc((size_t)t->size * n * size + 1), *expected = malloc(n * size + 1);
    int weighted = round % 2;
    zro__meeting meeting = { .present = &present };
    zro__xfer x = { .call = ZRO__CALL_TRANSFER,
                    .root = -1,
                    .count = n,
                    .parts = parts,
                    .n_parts = PARTS,
                    .reduces = 1,
                    .op = weighted || round % 3 == 0 ? ZRO_AVG : ZRO_SUM,
                    .in_type = dtype,
                    .out_type = dtype,
                    .in = in.data,
                    .out = out.data,
                    .in_bytes = n * size,
                    .out_bytes = n * size,
                    .to = round % 5 == 4 ? ZRO__TO_OWNER : ZRO__TO_ALL,
                    .weighted = weighted,
                    .meeting = &meeting };

    CHECK(all != NULL && expected != NULL);
    for (int r = 0; r < t->size; r++) {
        weights[r] = (double)(zt_mix(t->seed, (uint64_t)(r + 7 * round)) % 1000) / 7 + 0.5;
        fill_of(t, r, round, dtype, all + (size_t)r * n * size, n);
    }
    x.weight = weights[t->rank];
    memcpy(in.data, all + (size_t)t->rank * n * size, n * size);
    CHECK_OK(zro__enter(g));
    CHECK_OK(zro__leave(g, zro__xfer_run(&g->ranks, &x)));
    for (size_t p = 0; p < PARTS; p++)
        if (x.to == ZRO__TO_ALL || parts[p].owner == t->rank)
            check_part(t, &x, p, cells, weighted ? weights : NULL, round, all, expected, out.data + parts[p].out_at);
    drop(&in);
    drop(&out);
    free(all);
    free(expected);
}

static void transfer_lists(zt_rank *t)
{
    static const zro_dtype types[] = { ZRO_F32, ZRO_BF16, ZRO_F64, ZRO_F16 };

    for (int i = 0; i < 4; i++) {
        zro_group_config config = zt_config();
        int32_t cells[ZT_MAX_RANKS];
        zro_group *g;

        for (int r = 0; r < t->size; r++)
            cells[r] = (int32_t)(zt_mix(t->seed, (uint64_t)(r + 50 * i)) % 3);
        config.cells = i == 0 ? NULL : cells;
        config.machine = i == 3 ? t->rank % 2 : ZRO_MACHINE_AUTO;
        g = zt_group_with(t, &config);
        for (int round = 0; round < 5; round++)
            one_list(t, g, config.cells, types[i], i * 10 + round);
        zro_group_destroy(g);
    }
}

/* Weights that add up to nothing are refused on all ranks, and the group stays whole. */
static void transfer_weights_refused(zt_rank *t)
{
    static const double bad[] = { 0.0, (double)NAN, (double)INFINITY };
    float in[4] = { 1, 2, 3, 4 }, out[4];

    for (int i = 0; i < 3; i++) {
        zro__part part = { 0, 0, 4, 0, 0 };
        zro__xfer x = { .call = ZRO__CALL_TRANSFER,
                        .root = -1,
                        .count = 4,
                        .parts = &part,
                        .n_parts = 1,
                        .reduces = 1,
                        .op = ZRO_AVG,
                        .in_type = ZRO_F32,
                        .out_type = ZRO_F32,
                        .in = in,
                        .out = out,
                        .in_bytes = sizeof in,
                        .out_bytes = sizeof out,
                        .to = ZRO__TO_ALL,
                        .weighted = 1,
                        .weight = bad[i] };

        CHECK_OK(zro__enter(t->group));
        CHECK_STATUS(zro__leave(t->group, zro__xfer_run(&t->group->ranks, &x)), ZRO_ERR_INVALID);
        CHECK_TEXT("weights");
        CHECK_OK(zro_barrier(t->group));
    }
}

#define WORLDS (ZT_WORLD(1) | ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4))
#define SMALL_WORLDS (ZT_WORLD(2) | ZT_WORLD(3))

const zt_case cases_group_transfer[] = {
    { "S91_sgd", S91_sgd, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { "S91_sgd_machines", S91_sgd, SMALL_WORLDS, ZT_THREADS | ZT_MPI, ZT_OWN_MACHINES, 60, 0, 0 },
    { "S91_sgd_two", S91_sgd, ZT_WORLD(4), ZT_ALL, ZT_TWO_MACHINES, 60, 0, 0 },
    { "S91_sgd_settings", S91_sgd_settings, SMALL_WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { "transfer_lists", transfer_lists, SMALL_WORLDS | ZT_WORLD(7), ZT_ALL, 0, 60, 0, 0 },
    { "transfer_weights_refused", transfer_weights_refused, ZT_WORLD(2), ZT_ALL, 0, 0, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
