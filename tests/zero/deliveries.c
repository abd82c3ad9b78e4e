/* S87: what a step delivers: one transfer for each type, tag and owner; nothing where parameters exist once; and of ten
 * thousand tiny parameters no more bytes and messages than they amount to. */
#include <stdlib.h>
#include <string.h>

#include "twin.h"
#include "zt/list.h"

static const twin_spec specs[] = {
    { 3000, ZRO_F32, ZRO_F32, 0 },  { 70, ZRO_BF16, ZRO_F32, 0 },   { 5000, ZRO_F32, ZRO_F32, 1 }, { 5, ZRO_F32, ZRO_F32, 0 },
    { 2050, ZRO_BF16, ZRO_F32, 1 }, { 1025, ZRO_BF16, ZRO_F32, 0 }, { 1, ZRO_F32, ZRO_F32, 1 },    { 0, ZRO_F64, ZRO_F64, 0 },
};

enum { N = sizeof specs / sizeof *specs, TAGS = 2, TYPES = 2 };

/* Owners with at least an element, over all types and tags. */
static uint64_t count_owners(const twin *w)
{
    char seen[TAGS][TYPES][ZT_MAX_RANKS] = { 0 };
    const zro_range *ranges;
    uint64_t all = 0;
    size_t n;

    CHECK_OK(zro_plan_ranges(zro_optim_plan(w->optim), ZRO_ALL, &ranges, &n));
    for (size_t i = 0; i < n; i++) {
        const zro_param *p = &w->sharded[ranges[i].param];
        char *at = &seen[p->device][p->dtype == ZRO_BF16][ranges[i].owner];

        if (ranges[i].count > 0 && *at == 0)
            all += (uint64_t)++ * at;
    }
    return all;
}

static uint64_t expected(const twin *w)
{
    if (w->t->size == 1 || (w->mode.place == TWIN_ONCE && w->t->machines == ZT_ONE))
        return 0;
    return count_owners(w);
}

static void deliveries(zt_rank *t)
{
    for (int k = -1; (k = twin_next_mode(t, k)) < TWIN_MODES;) {
        uint64_t before;
        twin w;

        twin_init(&w, t, twin_mode_at(k), specs, N);
        twin_create(&w, zro_rule_sgd(), NULL, NULL, 0);
        twin_gradients(&w, 1);
        before = twin_stats(w.optim).deliveries;
        for (int s = 0; s < 3; s++)
            twin_step(&w);
        CHECK(twin_stats(w.optim).deliveries - before == 3 * expected(&w));
        CHECK_OK(zro_optim_step_local(w.optim, NULL));
        CHECK(twin_stats(w.optim).deliveries - before == 3 * expected(&w));
        CHECK_OK(zro_optim_publish(w.optim));
        CHECK(twin_stats(w.optim).deliveries - before == 4 * expected(&w));
        CHECK_OK(zro_optim_step(w.reference, NULL));
        twin_check(&w);
        twin_free(&w);
    }
}

/* ---- tags ---- */

/* What shares a bucket has one type and one tag. */
static void tags_apart(zt_rank *t)
{
    static const zro_partition partitions[] = { ZRO_PARTITION_FLAT, ZRO_PARTITION_GREEDY, ZRO_PARTITION_BUCKETS };

    for (int k = 0; k < 3; k++) {
        twin_mode mode = { TWIN_OWN, partitions[k], ZRO_OFF };
        const zro_range *ranges;
        size_t n;
        twin w;

        twin_init(&w, t, mode, specs, N);
        twin_create(&w, zro_rule_sgd(), NULL, NULL, 0);
        CHECK_OK(zro_plan_ranges(zro_optim_plan(w.optim), ZRO_ALL, &ranges, &n));
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < i; j++)
                CHECK(ranges[i].bucket != ranges[j].bucket
                      || (specs[ranges[i].param].device == specs[ranges[j].param].device
                          && specs[ranges[i].param].dtype == specs[ranges[j].param].dtype));
        twin_free(&w);
    }
}

static void tags_differ(zt_rank *t)
{
    twin_mode mode = { (twin_place)t->arg, ZRO_PARTITION_GREEDY, ZRO_OFF };
    zro_optim *opt = NULL;
    zro_optim_config c;
    zro_plan_config plan;
    zro_param_group group;
    twin w;

    twin_init(&w, t, mode, specs, N);
    w.sharded[3].name = "the odd one";
    w.sharded[3].device = t->rank == 1;
    c = twin_config(&w, NULL, &plan);
    group = twin_group_of(&w, w.sharded, 0, N);
    CHECK_STATUS(zro_optim_create(t->group, &group, 1, zro_rule_sgd(), NULL, &c, &opt), ZRO_ERR_MISMATCH);
    CHECK(opt == NULL);
    CHECK_TEXT("the odd one");
    twin_free(&w);
}

/* Of three equal parameters that zro handed out, rank 1 gives its optimizer other ones: they lie elsewhere. */
static void places_differ(zt_rank *t)
{
    zro_alloc_config alloc = ZRO_ALLOC_CONFIG_INIT;
    zro_param params[3];
    zro_param_group group = { 0 };
    zro_optim *opt = NULL;

    for (int i = 0; i < 3; i++) {
        zro_param_init(&params[i]);
        params[i].shape[0] = 2000;
    }
    alloc.data_kind = ZRO_MEMORY_EACH;
    CHECK_OK(zro_params_alloc(t->group, params, 3, &alloc));
    for (int k = 0; k < 2; k++) { /* the next ones, or the same ones in another order: then other ranks own them */
        const size_t swapped[] = { 1, 0 };

        group.params = params + (k == 0 && t->rank == 1);
        group.index = k == 1 && t->rank == 1 ? swapped : NULL;
        group.n = 2;
        CHECK_STATUS(zro_optim_create(t->group, &group, 1, zro_rule_sgd(), NULL, NULL, &opt), ZRO_ERR_MISMATCH);
        CHECK(opt == NULL);
        CHECK_TEXT("parameters lie at different places");
    }
    zro_params_free(params, 3);
}

/* ---- many ---- */

enum { MANY = 10000, MESSAGE_BYTES = 64 << 10, PEER_BYTES = 2048 };

typedef struct many {
    zro_param params[MANY];
    float data[3 * MANY], grads[3 * MANY];
} many;

/* What may be sent: this rank's part to each of the others, in full messages, and one that is not full; headers and a vote. */
static void check_sent(const zro_optim *opt, const zt_rank *t, zro_stats before, zro_stats after)
{
    uint64_t bytes = zro_plan_elements(zro_optim_plan(opt), t->rank) * sizeof(float) * (uint64_t)(t->size - 1);
    uint64_t messages = after.link_messages - before.link_messages;

    CHECK(messages <= bytes / MESSAGE_BYTES + 8 * (uint64_t)t->size);
    CHECK(after.link_bytes - before.link_bytes <= bytes + (uint64_t)(t->size - 1) * PEER_BYTES);
    CHECK(after.operations - before.operations <= 8);
}

static void many_tiny(zt_rank *t)
{
    many *m = calloc(1, sizeof *m);
    zro_param_group group = { 0 };
    zro_sgd_config sgd = ZRO_SGD_CONFIG_INIT;
    zro_optim *opt;

    CHECK(m != NULL);
    for (size_t i = 0; i < MANY; i++) {
        size_t at = i * 7919 % MANY * 3; /* anywhere in the buffer */

        zro_param_init(&m->params[i]);
        m->params[i].shape[0] = 1 + i % 3;
        m->params[i].data = m->data + at;
        zro_param_set_grad(&m->params[i], m->grads + at);
    }
    for (size_t i = 0; i < 3 * (size_t)MANY; i++)
        m->grads[i] = (float)(i % 100);
    group.params = m->params;
    group.n = MANY;
    sgd.lr = 1;
    CHECK_OK(zro_optim_create(t->group, &group, 1, zro_rule_sgd(), &sgd, NULL, &opt));
    for (int s = 1; s < 4; s++) {
        zro_stats before = twin_stats(opt);

        CHECK_OK(zro_optim_step(opt, NULL));
        check_sent(opt, t, before, twin_stats(opt));
        CHECK(twin_stats(opt).deliveries - before.deliveries <= (uint64_t)t->size);
        for (size_t i = 0; i < MANY; i++)
            for (size_t e = 0; e < m->params[i].shape[0]; e++)
                CHECK(((float *)m->params[i].data)[e] == -(float)s * ((float *)m->params[i].grad)[e]);
    }
    zro_optim_destroy(opt);
    free(m);
}

#define WORLDS (ZT_WORLD(1) | ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4) | ZT_WORLD(7))
#define SEVERAL (ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4))

const zt_case cases_zero_deliveries[] = {
    { "S87_deliveries", deliveries, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { "S87_deliveries_two_machines", deliveries, ZT_WORLD(4), ZT_LOCAL | ZT_MPI, ZT_TWO_MACHINES, 60, 0, 0 },
    { "S87_tags_apart", tags_apart, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { "S87_tags_differ", tags_differ, SEVERAL, ZT_ALL, 0, 60, 0, TWIN_OWN },
    { "S87_tags_differ_once", tags_differ, SEVERAL, ZT_ALL, 0, 60, 0, TWIN_ONCE },
    { "S87_places_differ", places_differ, ZT_WORLD(2) | ZT_WORLD(3), ZT_ALL, 0, 0, 0, 0 },
    { "S87_many_tiny", many_tiny, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
