/* What a step with a ddp costs, by the library's own counters, wherever arrays lie: passes over memory (S90), deliveries (S87),
 * allocations, meetings of the ranks; and the same bits all along. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bed.h"
#include "zt/list.h"
#include "zt/zt.h"

enum { MOST = 8, WARM = 3, STEADY = 2, LINE = 64 };

/* ---- one training ---- */

typedef struct spec {
    size_t count;
    zro_dtype dtype, grad;
    int32_t device;
} spec;

typedef enum place { IN_PLACE, ONCE, EACH, GRADS, DATA, DATA_VIEWS, GRAD_VIEWS, VIEWS, PLACES } place;
static const char *const place_names[PLACES] = { "in place",         "handed out, once",
                                                 "handed out, each", "gradients handed out",
                                                 "data handed out",  "views of data",
                                                 "views of grads",   "views of both" };

static int exists_once(place where)
{
    return where == ONCE || where == DATA;
}

static int is_handed_out(place where)
{
    return where == ONCE || where == EACH || where == GRADS || where == DATA;
}

typedef enum who { ATTACHED, BESIDE, UNSHARDED, WHOS } who;

typedef struct training {
    zt_rank *t;
    zro_group *group;
    place place;
    who who;
    size_t n;
    size_t n_own; /* parameters from the last on that are not handed out, whatever the place */
    int staged;   /* gradients are copied for their owners as they become ready */
    zro_param params[MOST];
    void *blocks[2 * MOST];
    zro_ddp *ddp;
    zro_optim *optim;
} training;

static size_t bytes_of(zro_dtype dtype, size_t count)
{
    return count * zro_dtype_bytes(dtype) + 1;
}

static void place_params(training *w, const spec *specs)
{
    const size_t n_handed = w->n - w->n_own;
    zro_alloc_config config = ZRO_ALLOC_CONFIG_INIT;
    uint64_t random = 5;

    for (size_t i = 0; i < w->n; i++) {
        zro_param *p = &w->params[i];

        zro_param_init(p);
        p->shape[0] = specs[i].count;
        p->dtype = specs[i].dtype;
        p->grad_dtype = specs[i].grad;
        p->device = specs[i].device;
        if (specs[i].count == 0)
            continue;
        if ((w->place != ONCE && w->place != EACH && w->place != DATA) || i >= n_handed)
            p->data = w->blocks[2 * i] = calloc(1, bytes_of(p->dtype, specs[i].count));
        if (w->place != ONCE && w->place != EACH && w->place != GRADS)
            p->grad = w->blocks[2 * i + 1] =
                calloc(1, bytes_of(p->grad_dtype, specs[i].count) + (size_t)w->t->size * MOST * LINE);
        if (w->place == DATA) /* gradients have other offsets on each rank */
            p->grad = (char *)p->grad + (size_t)w->t->rank * i * LINE;
    }
    config.data = w->place == GRADS ? ZRO_OFF : ZRO_ON;
    config.grads = w->place == DATA ? ZRO_OFF : ZRO_ON;
    config.data_kind = exists_once(w->place) ? ZRO_MEMORY_ONCE : ZRO_MEMORY_EACH;
    if (is_handed_out(w->place))
        CHECK_OK(zro_params_alloc(w->group, w->params, n_handed, &config));
    for (size_t i = 0; i < w->n && w->t->rank == 0; i++)
        for (size_t k = 0; k < specs[i].count; k++)
            bed_set(w->params[i].data, specs[i].dtype, k, (double)(zt_next(&random) >> 11) * 0x1p-52 - 1);
}

static void begin_with(training *w, zt_rank *t, zro_group *group, place where, who attached, const spec *specs, size_t n,
                       size_t n_own, int staged, zro_hook_fn hook, const zro_optim_config *base)
{
    zro_ddp_config config = ZRO_DDP_CONFIG_INIT;
    zro_optim_config optim = ZRO_OPTIM_CONFIG_INIT;
    zro_param_group all = ZRO_PARAM_GROUP_INIT;

    memset(w, 0, sizeof *w);
    w->t = t;
    w->group = group;
    w->place = where;
    w->who = attached;
    w->n = n;
    w->n_own = n_own;
    w->staged = staged;
    place_params(w, specs);
    config.bucket_bytes = 4096;
    config.gradient_as_bucket_view = where == GRAD_VIEWS || where == VIEWS ? ZRO_ON : ZRO_OFF;
    config.hook = hook;
    config.stage_grads = staged ? ZRO_ON : ZRO_OFF;
    CHECK_OK(zro_ddp_create(group, w->params, n, &config, &w->ddp));
    if (base != NULL)
        optim = *base;
    optim.ddp = attached == ATTACHED ? w->ddp : NULL;
    optim.parameters_as_bucket_view = attached != UNSHARDED && (where == DATA_VIEWS || where == VIEWS) ? ZRO_ON : ZRO_OFF;
    all.params = w->params;
    all.n = n;
    CHECK_OK(zro_optim_create(attached == UNSHARDED ? NULL : group, &all, 1, zro_rule_adam(), NULL, &optim, &w->optim));
}

static void begin(training *w, zt_rank *t, zro_group *group, place where, who attached, const spec *specs, size_t n,
                  zro_hook_fn hook, const zro_optim_config *base)
{
    begin_with(w, t, group, where, attached, specs, n, 0, 0, hook, base);
}

static void end(training *w)
{
    CHECK_OK(zro_barrier(w->group)); /* all have looked at what exists once */
    zro_optim_destroy(w->optim);
    zro_ddp_destroy(w->ddp);
    if (is_handed_out(w->place))
        zro_params_free(w->params, w->n - w->n_own);
    for (size_t i = 0; i < 2 * w->n; i++)
        free(w->blocks[i]);
}

static void iterate(training *w, int step)
{
    uint64_t random = zt_mix((uint64_t)w->t->rank + 1, (uint64_t)step);

    CHECK_OK(zro_ddp_forward(w->ddp));
    for (size_t i = w->n; i-- > 0;) {
        for (size_t k = 0; k < zro_param_count(&w->params[i]); k++)
            bed_set(w->params[i].grad, w->params[i].grad_dtype, k, (double)(zt_next(&random) >> 11) * 0x1p-52 - 1);
        CHECK_OK(zro_ddp_grad_ready(w->ddp, i));
    }
    CHECK_OK(zro_ddp_backward_end(w->ddp));
    CHECK_OK(zro_optim_step(w->optim, NULL));
    if (w->who != ATTACHED)
        CHECK_OK(zro_optim_zero_grad(w->optim, ZRO_ZERO_LEAVE));
    if (exists_once(w->place))
        CHECK_OK(zro_barrier(w->group)); /* counts for the program's group, not for the ddp's */
}

static zro_stats stats_of(const training *w)
{
    zro_stats stats = ZRO_STATS_INIT;

    CHECK_OK(zro_ddp_stats(w->ddp, &stats));
    return stats;
}

static uint64_t hash_of(const training *w)
{
    uint64_t hash;

    CHECK_OK(zro_params_hash(w->params, w->n, &hash));
    return hash;
}

/* What steady iterations cost, each. */
typedef struct cost {
    uint64_t passes, deliveries, allocations, operations, hash;
} cost;

static cost measure(training *w)
{
    zro_stats before, after;
    cost c;

    for (int step = 0; step < WARM; step++)
        iterate(w, step);
    before = stats_of(w);
    for (int step = 0; step < STEADY; step++)
        iterate(w, WARM + step);
    after = stats_of(w);
    c.passes = (after.passes - before.passes) / STEADY;
    c.deliveries = (after.deliveries - before.deliveries) / STEADY;
    c.allocations = after.allocations - before.allocations;
    c.operations = (after.operations - before.operations) / STEADY;
    c.hash = hash_of(w);
    return c;
}

/* ---- S90 ---- */

static const spec plain_specs[] = {
    { 3000, ZRO_F32, ZRO_F32, 0 }, { 0, ZRO_F32, ZRO_F32, 0 }, { 5000, ZRO_F32, ZRO_F32, 0 }, { 5, ZRO_F32, ZRO_F32, 0 }
};
enum { N_PLAIN = 4 };

typedef enum factor { PLAIN, CLIP_NORM, SCALE, CLIP_VALUE, FACTORS } factor;
static const char *const factor_names[FACTORS] = { "plain", "clip_norm", "loss scale", "clip_value" };

static zro_optim_config config_with(factor f)
{
    zro_optim_config c = ZRO_OPTIM_CONFIG_INIT;

    c.clip_norm = f == CLIP_NORM ? 0.5 : 0;
    c.clip_value = f == CLIP_VALUE ? 0.1 : 0;
    c.loss_scale = f == SCALE ? ZRO_ON : ZRO_OFF;
    c.scale_init = 8;
    return c;
}

/* Passes of an attached step: gradients are added up, parameters updated and stored at once, wherever they lie; what must be known of
 * all gradients first makes it two, and a third where parameters must be brought to replicas afterwards.  If passes are not
 * merged, the buckets have been one before. */
static uint64_t expected_passes(const zt_rank *t, place where, factor f, int fast)
{
    const uint64_t delivers = !exists_once(where) && t->size > 1;
    const int first = f == CLIP_NORM || f == SCALE;

    if (fast)
        return first ? 2 + delivers : 1;
    return 2 + (uint64_t)first + delivers;
}

static zro_group *new_group(zt_rank *t, int fast)
{
    zro_group_config config = zt_config();

    config.settings.fast = fast ? config.settings.fast : ZRO_OFF;
    return zt_group_with(t, &config);
}

static void S90_passes(zt_rank *t)
{
    uint64_t hash[FACTORS] = { 0 };

    for (int fast = 1; fast >= 0; fast--) {
        zro_group *group = new_group(t, fast);

        for (int f = 0; f < FACTORS; f++)
            for (int where = 0; where < PLACES; where++) {
                const zro_optim_config config = config_with((factor)f);
                const uint64_t expected = expected_passes(t, (place)where, (factor)f, fast && zt_opt.fast == ZRO_ON);
                training w;
                cost c;

                begin(&w, t, group, (place)where, ATTACHED, plain_specs, N_PLAIN, NULL, &config);
                c = measure(&w);
                if (c.passes != expected)
                    zt_fail(__FILE__, __LINE__, "%s, %s, fast %d: %d passes, not %d", place_names[where], factor_names[f], fast,
                            (int)c.passes, (int)expected);
                if (c.allocations != 0)
                    zt_fail(__FILE__, __LINE__, "%s, %s, fast %d: %d allocations", place_names[where], factor_names[f], fast,
                            (int)c.allocations);
                if (expected == 1 && c.operations != 1)
                    zt_fail(__FILE__, __LINE__, "%s, %s: the ranks met %d times in a step of one pass", place_names[where],
                            factor_names[f], (int)c.operations);
                hash[f] = fast && where == 0 ? c.hash : hash[f];
                if (c.hash != hash[f])
                    zt_fail(__FILE__, __LINE__, "%s, %s, fast %d: other bits than in place", place_names[where],
                            factor_names[f], fast);
                end(&w);
            }
        zro_group_destroy(group);
    }
}

/* In a step of one pass over the program's own gradients each element travels once to its owner, and once more from there to those
 * who have data of their own; data that exist once are written by the owner alone, whatever else is in the step. */
static void data_once_written_once(zt_rank *t)
{
    for (size_t n_own = 0; n_own < N_PLAIN;
         n_own += N_PLAIN / 2) { /* parameters from the last on whose data are the program's */
        uint64_t expected = 0;
        zro_stats before, after;
        const zro_range *ranges;
        training w;
        size_t n;

        begin_with(&w, t, t->group, DATA, ATTACHED, plain_specs, N_PLAIN, n_own, 0, NULL, NULL);
        CHECK_OK(zro_plan_ranges(zro_optim_plan(w.optim), ZRO_ALL, &ranges, &n));
        for (size_t i = 0; i < n; i++) {
            const uint64_t bytes = ranges[i].count * sizeof(float);

            if (ranges[i].owner != t->rank)
                expected += bytes;
            else if (ranges[i].param >= N_PLAIN - n_own)
                expected += bytes * (uint64_t)(t->size - 1);
        }
        for (int step = 0; step < WARM; step++)
            iterate(&w, step);
        before = stats_of(&w);
        iterate(&w, WARM);
        after = stats_of(&w);
        if (zt_opt.fast == ZRO_ON)
            CHECK(after.link_bytes - before.link_bytes == expected);
        end(&w);
    }
}

/* Gradients in own memory that are staged are read where they lie, as if they had been handed out: no message is sent for them, in one pass
 * or in two, and their memory is counted.  Data that is not handed out travels as ever. */
static void staged_in_place(zt_rank *t)
{
    for (int f = 0; f < FACTORS; f++)
        for (int where = IN_PLACE; where <= DATA; where += DATA - IN_PLACE) {
            const zro_optim_config config = config_with((factor)f);
            const int fast = zt_opt.fast == ZRO_ON;
            zro_stats before, after;
            uint64_t shared, hash[2];
            const char *text;
            char said[4096];
            training w;
            cost c;

            begin_with(&w, t, t->group, (place)where, ATTACHED, plain_specs, N_PLAIN, 0, 0, NULL, &config);
            hash[0] = measure(&w).hash;
            shared = stats_of(&w).shared_bytes;
            end(&w);
            begin_with(&w, t, t->group, (place)where, ATTACHED, plain_specs, N_PLAIN, 0, 1, NULL, &config);
            c = measure(&w);
            hash[1] = c.hash;
            CHECK(hash[0] == hash[1]);
            CHECK(c.passes == expected_passes(t, (place)where, (factor)f, fast));
            CHECK(c.allocations == 0);
            before = stats_of(&w);
            iterate(&w, WARM + STEADY);
            after = stats_of(&w);
            if (fast && where == DATA)
                CHECK(after.link_messages == before.link_messages && after.direct_bytes > before.direct_bytes);
            CHECK(after.shared_bytes - shared
                  == (fast ? (3000 + 16 - 3000 % 16 + 5000 + 16 - 5000 % 16 + 16) * sizeof(float) : 0));
            (void)zro_optim_describe(w.optim, said, sizeof said);
            text = strstr(said, "gradients are staged");
            CHECK((text != NULL) == fast);
            end(&w);
        }
}

/* A gradient that was moved after it became ready, or that is left from an earlier micro-batch, was not copied from where it is: its batch
 * travels in messages, and the result is the same. */
static void staged_elsewhere(zt_rank *t)
{
    uint64_t hash[2];

    for (int staged = 0; staged < 2; staged++) {
        float *other = calloc(5000, sizeof *other);
        zro_stats before, after;
        training w;
        void *own;

        CHECK(other != NULL);
        begin_with(&w, t, t->group, DATA, ATTACHED, plain_specs, N_PLAIN, 0, staged, NULL, NULL);
        iterate(&w, 0);
        own = w.params[2].grad;
        before = stats_of(&w);
        CHECK_OK(zro_ddp_forward(w.ddp));
        for (size_t i = w.n; i-- > 0;) {
            for (size_t k = 0; k < zro_param_count(&w.params[i]); k++)
                ((float *)w.params[i].grad)[k] = (float)(k % 17) - (float)t->rank;
            CHECK_OK(zro_ddp_grad_ready(w.ddp, i));
        }
        for (size_t k = 0; k < 5000; k++)
            other[k] = (float)(k % 5) + (float)t->rank;
        w.params[2].grad = other;
        CHECK_OK(zro_ddp_backward_end(w.ddp));
        CHECK_OK(zro_optim_step(w.optim, NULL));
        after = stats_of(&w);
        if (zt_opt.fast == ZRO_ON)
            CHECK(after.link_messages > before.link_messages);
        w.params[2].grad = own;
        CHECK_OK(zro_barrier(t->group));
        CHECK_OK(zro_ddp_no_sync(w.ddp, ZRO_ON));
        CHECK_OK(zro_ddp_forward(w.ddp));
        memset(w.params[0].grad, 0, 3000 * sizeof(float));
        ((float *)w.params[0].grad)[2999 - t->rank] = 1;
        CHECK_OK(zro_ddp_grad_ready(w.ddp, 0));
        CHECK_OK(zro_ddp_backward_end(w.ddp));
        CHECK_OK(zro_ddp_no_sync(w.ddp, ZRO_OFF));
        CHECK_OK(zro_ddp_forward(w.ddp));
        for (size_t i = 1; i < w.n; i++) /* the first one has its gradient already */
            CHECK_OK(zro_ddp_grad_ready(w.ddp, i));
        CHECK_OK(zro_ddp_backward_end(w.ddp));
        CHECK_OK(zro_optim_step(w.optim, NULL));
        CHECK_OK(zro_barrier(t->group));
        hash[staged] = hash_of(&w);
        end(&w);
        free(other);
    }
    CHECK(hash[0] == hash[1]);
}

/* Nothing is allocated in a steady step, whoever updates, with and without a hook. */
static void S90_allocations(zt_rank *t)
{
    uint64_t hash = 0;

    for (int who_number = 0; who_number < WHOS; who_number++)
        for (int where = 0; where < PLACES; where++)
            for (int hook = 0; hook < 2; hook++) {
                training w;
                cost c;

                if ((who_number == UNSHARDED && exists_once((place)where)) || (hook && where != IN_PLACE && where != EACH))
                    continue; /* each rank would update it; where a hook has its buffer depends on the gradients alone */
                begin(&w, t, t->group, (place)where, (who)who_number, plain_specs, N_PLAIN, hook ? zro_hook_all_reduce : NULL,
                      NULL);
                c = measure(&w);
                if (c.allocations != 0)
                    zt_fail(__FILE__, __LINE__, "%s, who %d, hook %d: %d allocations", place_names[where], who_number, hook,
                            (int)c.allocations);
                hash = hash == 0 ? c.hash : hash;
                if (c.hash != hash)
                    zt_fail(__FILE__, __LINE__, "%s, who %d, hook %d: other bits", place_names[where], who_number, hook);
                end(&w);
            }
}

/* ---- S87 ---- */

static const spec tagged_specs[] = {
    { 3000, ZRO_F32, ZRO_F32, 0 },  { 70, ZRO_BF16, ZRO_F32, 0 },   { 5000, ZRO_F32, ZRO_F32, 1 }, { 5, ZRO_F32, ZRO_F32, 0 },
    { 2050, ZRO_BF16, ZRO_F32, 1 }, { 1025, ZRO_BF16, ZRO_F32, 0 }, { 1, ZRO_F32, ZRO_F32, 1 },    { 0, ZRO_F64, ZRO_F64, 0 },
};
enum { N_TAGGED = 8, TAGS = 2, TYPES = 2 };

/* Owners with at least an element, over all types and tags. */
static uint64_t count_owners(const training *w)
{
    char seen[TAGS][TYPES][ZT_MAX_RANKS] = { 0 };
    const zro_range *ranges;
    uint64_t all = 0;
    size_t n;

    CHECK_OK(zro_plan_ranges(zro_optim_plan(w->optim), ZRO_ALL, &ranges, &n));
    for (size_t i = 0; i < n; i++) {
        const zro_param *p = &w->params[ranges[i].param];
        char *at = &seen[p->device][p->dtype == ZRO_BF16][ranges[i].owner];

        if (ranges[i].count > 0 && *at == 0)
            all += (uint64_t)++ * at;
    }
    return all;
}

static void S87_deliveries(zt_rank *t)
{
    for (int clips = 0; clips < 2; clips++)
        for (int where = 0; where < PLACES; where++) {
            const zro_optim_config config = config_with(clips ? CLIP_NORM : PLAIN);
            training w;
            uint64_t expected;
            cost c;

            begin(&w, t, t->group, (place)where, ATTACHED, tagged_specs, N_TAGGED, NULL, &config);
            expected = t->size == 1 || (exists_once((place)where) && t->machines == ZT_ONE) ? 0 : count_owners(&w);
            c = measure(&w);
            if (c.deliveries != expected)
                zt_fail(__FILE__, __LINE__, "%s, clips %d: %d deliveries, not %d", place_names[where], clips, (int)c.deliveries,
                        (int)expected);
            end(&w);
        }
}

/* At first, and when they have been formed anew. */
static void S87_tags_apart(zt_rank *t)
{
    training w;

    begin(&w, t, t->group, IN_PLACE, ATTACHED, tagged_specs, N_TAGGED, NULL, NULL);
    for (int step = 0; step < 3; step++) {
        const size_t *params, *lengths;
        size_t n, at = 0;

        iterate(&w, step);
        CHECK_OK(zro_ddp_buckets(w.ddp, &params, &lengths, &n));
        for (size_t k = 0; k < n; at += lengths[k++])
            for (size_t i = at; i < at + lengths[k]; i++)
                CHECK(w.params[params[i]].device == w.params[params[at]].device
                      && w.params[params[i]].dtype == w.params[params[at]].dtype
                      && w.params[params[i]].grad_dtype == w.params[params[at]].grad_dtype);
        CHECK(at == N_TAGGED);
    }
    end(&w);
}

/* PyTorch's bucket_cap_mb_list: the i-th bucket has the i-th limit, all later ones the last, at first and when they are formed anew. */
static void bucket_limits(zt_rank *t)
{
    enum { COUNT = 10, N = 5, BUCKETS = 3 };
    static const size_t limits[] = { COUNT * 4, COUNT * 8 }, first[BUCKETS] = { 2, 2, 1 }, later[BUCKETS] = { 1, 2, 2 };
    const size_t *params, *lengths;
    float data[N][COUNT] = { { 0 } }, grads[N][COUNT] = { { 0 } };
    zro_ddp_config config = ZRO_DDP_CONFIG_INIT;
    zro_param p[N];
    zro_ddp *ddp;
    size_t n;

    for (size_t i = 0; i < N; i++)
        zro_param_make(&p[i], NULL, ZRO_F32, data[i], grads[i], 1, (size_t[]){ COUNT });
    config.n_bucket_limits = 2;
    CHECK_STATUS(zro_ddp_create(t->group, p, N, &config, &ddp), ZRO_ERR_INVALID);
    CHECK_TEXT("bucket_limits is NULL");
    config.bucket_limits = limits;
    config.bucket_bytes = 1;
    CHECK_STATUS(zro_ddp_create(t->group, p, N, &config, &ddp), ZRO_ERR_INVALID);
    CHECK_TEXT("bucket_bytes is set, too");
    config.bucket_bytes = 0;
    CHECK_OK(zro_ddp_create(t->group, p, N, &config, &ddp));
    for (int step = 0; step < 3; step++) {
        CHECK_OK(zro_ddp_forward(ddp));
        CHECK_OK(zro_ddp_buckets(ddp, &params, &lengths, &n));
        CHECK(n == BUCKETS && memcmp(lengths, step == 0 ? first : later, sizeof first) == 0);
        CHECK(params[0] == (step == 0 ? 3 : 0) && params[N - 1] == (step == 0 ? 0 : 4));
        for (size_t i = 0; i < N; i++)
            CHECK_OK(zro_ddp_grad_ready(ddp, i));
        CHECK_OK(zro_ddp_backward_end(ddp));
    }
    zro_ddp_destroy(ddp);
}

static void S87_tags_differ(zt_rank *t)
{
    float data[2][10] = { { 0 } }, grads[2][10];
    zro_param params[2];
    zro_ddp *ddp = NULL;

    for (int i = 0; i < 2; i++) {
        zro_param_init(&params[i]);
        params[i].name = i == 0 ? "the first" : "the odd one";
        params[i].shape[0] = 10;
        params[i].data = data[i];
        params[i].grad = grads[i];
    }
    params[1].device = t->rank == t->size - 1;
    CHECK_STATUS(zro_ddp_create(t->group, params, 2, NULL, &ddp), ZRO_ERR_MISMATCH);
    CHECK(ddp == NULL);
    CHECK_TEXT("the odd one");
    params[1].device = 0;
    CHECK_OK(zro_ddp_create(t->group, params, 2, NULL, &ddp)); /* the group is whole */
    zro_ddp_destroy(ddp);
}

/* ---- 100,000 tiny tensors ---- */

enum { MANY = 100000, MANY_STEPS = 3 };

typedef struct many {
    zro_param params[MANY];
    float data[3 * MANY], grads[3 * MANY];
} many;

static int many_has(int rank, int step, size_t i)
{
    return (i + (size_t)step) % 7 != 0 && (i * 31 + (size_t)rank + (size_t)step) % 3 != 0;
}

static uint64_t train_many(zt_rank *t, place where, who attached)
{
    many *m = calloc(1, sizeof *m);
    zro_ddp_config config = ZRO_DDP_CONFIG_INIT;
    zro_optim_config optim = ZRO_OPTIM_CONFIG_INIT;
    zro_alloc_config alloc = ZRO_ALLOC_CONFIG_INIT;
    zro_param_group all = ZRO_PARAM_GROUP_INIT;
    zro_optim *opt;
    zro_ddp *ddp;
    uint64_t hash;

    CHECK(m != NULL);
    for (size_t i = 0; i < MANY; i++) {
        zro_param *p = &m->params[i];

        zro_param_init(p);
        p->shape[0] = i % 4;
        if (where == IN_PLACE && i % 4 > 0) {
            p->data = m->data + i * 7919 % MANY * 3; /* anywhere in the buffer */
            p->grad = m->grads + i * 7919 % MANY * 3;
        }
    }
    if (where != IN_PLACE)
        CHECK_OK(zro_params_alloc(t->group, m->params, MANY, &alloc));
    config.find_unused = ZRO_ON;
    CHECK_OK(zro_ddp_create(t->group, m->params, MANY, &config, &ddp));
    optim.ddp = attached == ATTACHED ? ddp : NULL;
    all.params = m->params;
    all.n = MANY;
    CHECK_OK(zro_optim_create(t->group, &all, 1, zro_rule_adam(), NULL, &optim, &opt));
    for (int step = 0; step < MANY_STEPS; step++) {
        CHECK_OK(zro_ddp_forward(ddp));
        for (size_t i = 0; i < MANY; i++) {
            for (size_t k = 0; k < m->params[i].shape[0]; k++)
                ((float *)m->params[i].grad)[k] = (float)((i * 7 + k + (size_t)step) % 101) - 50 * (float)t->rank;
            if (many_has(t->rank, step, i))
                CHECK_OK(zro_ddp_grad_ready(ddp, i));
        }
        CHECK_OK(zro_ddp_backward_end(ddp));
        CHECK_OK(zro_optim_step(opt, NULL));
        if (attached != ATTACHED)
            CHECK_OK(zro_optim_zero_grad(opt, ZRO_ZERO_LEAVE));
        CHECK_OK(zro_barrier(t->group));
    }
    CHECK_OK(zro_params_hash(m->params, MANY, &hash));
    CHECK_OK(zro_barrier(t->group));
    zro_optim_destroy(opt);
    zro_ddp_destroy(ddp);
    if (where != IN_PLACE)
        zro_params_free(m->params, MANY);
    free(m);
    return hash;
}

static void S87_many(zt_rank *t)
{
    const uint64_t expected = train_many(t, IN_PLACE, BESIDE);

    CHECK(train_many(t, IN_PLACE, ATTACHED) == expected);
    CHECK(train_many(t, ONCE, ATTACHED) == expected);
}

#define WORLDS (ZT_WORLD(1) | ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4))
#define SEVERAL (ZT_WORLD(2) | ZT_WORLD(3))
#define ONE_MACHINE (ZT_BOTH | ZT_MPI) /* with a foreign link each rank has a machine of its own */

const zt_case cases_ddp_passes[] = {
    { "S90_passes", S90_passes, WORLDS, ONE_MACHINE, 0, 120, 0, 0 },
    { "ddp_staged_in_place", staged_in_place, SEVERAL, ZT_BOTH, 0, 60, 0, 0 },
    { "ddp_staged_elsewhere", staged_elsewhere, SEVERAL, ZT_BOTH, 0, 60, 0, 0 },
    { "data_once_written_once", data_once_written_once, SEVERAL, ZT_BOTH, 0, 60, 0, 0 },
    { "S90_allocations", S90_allocations, SEVERAL, ZT_ALL, 0, 120, 0, 0 },
    { "S90_allocations_two", S90_allocations, ZT_WORLD(3), ONE_MACHINE, ZT_TWO_MACHINES, 120, 0, 0 },
    { "S87_ddp_deliveries", S87_deliveries, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { "S87_ddp_deliveries_two", S87_deliveries, ZT_WORLD(4), ZT_LOCAL | ZT_MPI, ZT_TWO_MACHINES, 60, 0, 0 },
    { "S87_ddp_tags_apart", S87_tags_apart, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { "ddp_bucket_limits", bucket_limits, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { "S87_ddp_tags_differ", S87_tags_differ, SEVERAL, ZT_ALL, 0, 60, 0, 0 },
    { "S87_ddp_many", S87_many, SEVERAL, ZT_ALL, 0, 120, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
