/* The same bits with a ddp, however gradients travel and whoever updates (S47).
 *
 * A course is one training: first values, and each rank's gradients of each step.  What must come out is computed without ranks:
 * the pure reference averages the gradients, in cells, and an optimizer alone with the base instruction set takes them.  A run is
 * the same training by a ddp and an optimizer that is attached to it, beside it, or not sharded.  After each step all parameters
 * are compared with the course, by their hash, and what the step found; averages are compared where a run has them.  Gradients that
 * a rank does not have are filled with NaN, so that whoever reads them is noticed.
 *
 *     S47_ddp    one rule: optimizer (attached ones in every overlap mode) x buckets x partition x memory x fast x threads x kernels x
 *                hook x factors x types x presence x staged gradients
 *     ddp_rules  the fused step: setting of a rule x element types x memory
 *
 * The normal run takes a sample in which every pair of levels occurs.  Instances of S47 of one world show the same hash. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kernels.h"
#include "bed.h"
#include "pairs.h"
#include "reference.h"
#include "settings.h"
#include "zt/list.h"
#include "zt/zt.h"

enum { N = 8, FIRST = 4 /* of the second group */, STEPS = 4, LARGE = 2, LARGE_COUNT = 60000, MOST_POINTS = 20000 };
enum { OVERFLOW_STEP = 1 };
static const float LR = 0.125f;

/* ---- what can differ ---- */

typedef enum kind { F32, MIXED, F64, BF16, F32_BF16, STOCHASTIC, KINDS } kind;

static const struct {
    const char *name;
    zro_dtype dtype, grad;
} kinds[KINDS] = {
    [F32] = { "f32", ZRO_F32, ZRO_F32 },
    [MIXED] = { "several types", ZRO_SAME, ZRO_SAME },
    [F64] = { "f64", ZRO_F64, ZRO_F64 },
    [BF16] = { "bf16 with masters", ZRO_BF16, ZRO_BF16 },
    [F32_BF16] = { "f32 with bf16 gradients", ZRO_F32, ZRO_BF16 },
    [STOCHASTIC] = { "bf16 rounded by chance", ZRO_BF16, ZRO_BF16 },
};
/* By parameter. */
static const zro_dtype mixed_types[N] = { ZRO_F32, ZRO_F64, ZRO_F32, ZRO_BF16, ZRO_F32, ZRO_BF16, ZRO_F64, ZRO_F16 };
static const zro_dtype mixed_grads[N] = { ZRO_F32, ZRO_F64, ZRO_F32, ZRO_BF16, ZRO_BF16, ZRO_F32, ZRO_F64, ZRO_F16 };

typedef enum who { ATTACHED, AFTER_LAST, INTERLEAVED, BESIDE, UNSHARDED, WHOS } who;
static const char *const who_names[WHOS] = { "attached", "overlap after last", "overlap interleaved", "beside the ddp",
                                             "not sharded" };

typedef enum partition { FLAT, GREEDY, BUCKETS, LISTS, GIVEN, PARTITIONS } partition;
static const char *const partition_names[PARTITIONS] = { "flat", "greedy", "buckets", "sharded lists of buckets", "given" };

typedef enum place { IN_PLACE, ONCE, EACH, GRADS, DATA, DATA_VIEWS, GRAD_VIEWS, VIEWS, HALF, PLACES } place;
static const char *const place_names[PLACES] = {
    "in place",      "handed out, once", "handed out, each", "gradients handed out", "data handed out",
    "views of data", "views of grads",   "views of both",    "half handed out"
};

typedef enum extra { PLAIN, CLIP_NORM, CLIP_VALUE, SCALED, EXTRAS } extra;
static const char *const extra_names[EXTRAS] = { "plain", "clip_norm", "clip_value", "loss scale" };

/* Whether some data do. */
static int exists_once(place where)
{
    return where == ONCE || where == DATA || where == HALF;
}

static const size_t bucket_bytes[] = { 0, 8192, 64 };

/* ---- courses ---- */

typedef struct course {
    zt_rank *t;
    kind kind;
    int sparse; /* ranks do not have all gradients */
    uint64_t seed;
    size_t counts[N];
    zro_param params[N]; /* shapes, types and tags */
    void *first[N], *mine[STEPS][N], *average[STEPS][N];
} course;

static size_t bytes_of(const course *c, zro_dtype dtype, size_t i)
{
    return c->counts[i] * zro_dtype_bytes(dtype);
}

/* NULL if there are no elements, NaN otherwise. */
static void *new_array(const course *c, zro_dtype dtype, size_t i)
{
    void *data = c->counts[i] > 0 ? malloc(bytes_of(c, dtype, i)) : NULL;

    CHECK(data != NULL || c->counts[i] == 0);
    if (data != NULL)
        memset(data, 0xff, bytes_of(c, dtype, i));
    return data;
}

static void copy(const course *c, zro_dtype dtype, size_t i, void *to, const void *from)
{
    if (c->counts[i] > 0)
        memcpy(to, from, bytes_of(c, dtype, i));
}

static int is_frozen(int step, size_t i)
{
    return i == 5 && (step == 1 || step == 2);
}

/* Whether a rank has a gradient: of the large one all do, of one in each step nobody does. */
static int has(const course *c, int rank, int step, size_t i)
{
    if (is_frozen(step, i) || (c->sparse && i == (size_t)(4 + step % 3)))
        return 0;
    return !c->sparse || i == LARGE || zt_mix(c->seed, (uint64_t)(rank * 1000 + step * 10) + i) % 3 != 0;
}

static int anybody_has(const course *c, int step, size_t i)
{
    int any = 0;

    for (int r = 0; r < c->t->size; r++)
        any |= has(c, r, step, i);
    return any;
}

static void fill(const course *c, void *data, zro_dtype dtype, size_t i, uint64_t random)
{
    for (size_t k = 0; k < c->counts[i]; k++)
        bed_set(data, dtype, k, (double)(zt_next(&random) >> 11) * 0x1p-52 - 1);
}

static int32_t cell_of(int rank)
{
    return rank % 2;
}

/* Averages of step `s`, on every rank by itself. */
static void make_averages(course *c, int s, size_t i)
{
    const zro_dtype type = c->params[i].grad_dtype;
    void *in[ZT_MAX_RANKS];
    unsigned char present[ZT_MAX_RANKS];
    int32_t cells[ZT_MAX_RANKS];

    c->average[s][i] = new_array(c, type, i);
    for (int r = 0; r < c->t->size; r++) {
        in[r] = new_array(c, type, i);
        fill(c, in[r], type, i, zt_mix(c->seed, (uint64_t)(r * 1000 + s * 10) + i + 500));
        present[r] = (unsigned char)has(c, r, s, i);
        cells[r] = cell_of(r);
    }
    reference_reduce(type, ZRO_AVG, c->t->size, cells, NULL, present, (const void *const *)in, c->average[s][i], c->counts[i]);
    for (int r = 0; r < c->t->size; r++)
        if (r == c->t->rank)
            c->mine[s][i] = in[r];
        else
            free(in[r]);
}

static void course_init(course *c, zt_rank *t, kind k, int sparse, size_t large)
{
    const size_t counts[N] = { 1025, 0, large, 1, 3000, 300, 2049, 17 };

    memset(c, 0, sizeof *c);
    c->t = t;
    c->kind = k;
    c->sparse = sparse;
    c->seed = zt_mix(zt_opt.seed, 2 * (uint64_t)k + (uint64_t)sparse); /* whatever the case is called */
    memcpy(c->counts, counts, sizeof counts);
    for (size_t i = 0; i < N; i++) {
        zro_param *p = &c->params[i];

        zro_param_init(p);
        p->shape[0] = counts[i];
        p->dtype = k == MIXED ? mixed_types[i] : kinds[k].dtype;
        p->grad_dtype = k == MIXED ? mixed_grads[i] : kinds[k].grad;
        p->device = i == N - 1;
        c->first[i] = new_array(c, p->dtype, i);
        fill(c, c->first[i], p->dtype, i, zt_mix(c->seed, 100 + i));
        for (int s = 0; s < STEPS; s++)
            make_averages(c, s, i);
    }
}

static void course_free(course *c)
{
    for (size_t i = 0; i < N; i++) {
        free(c->first[i]);
        for (int s = 0; s < STEPS; s++) {
            free(c->mine[s][i]);
            free(c->average[s][i]);
        }
    }
}

/* A gradient, or an average, of a step; with a loss scale one element of one step is infinite on rank 0. */
static void put_gradient(const course *c, extra e, int step, size_t i, int average, void *out)
{
    const zro_dtype type = c->params[i].grad_dtype;

    copy(c, type, i, out, average ? c->average[step][i] : c->mine[step][i]);
    if (e == SCALED && step == OVERFLOW_STEP && i == LARGE && (average || c->t->rank == 0))
        bed_set(out, type, c->counts[i] - 3, (double)INFINITY);
}

/* ---- what must come out ---- */

typedef struct outcome {
    int made;
    uint64_t hash[STEPS];
    zro_step_info info[STEPS];
} outcome;

static zro_optim_config config_of(const course *c, extra e)
{
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;

    config.settings.kernels = ZRO_KERNELS_BASE;
    config.settings.log_level = ZRO_LOG_OFF;
    config.masters = c->kind == STOCHASTIC ? ZRO_OFF : ZRO_ON;
    config.rounding = c->kind == STOCHASTIC ? ZRO_STOCHASTIC : ZRO_NEAREST;
    config.seed = c->seed;
    config.clip_norm = e == CLIP_NORM ? 3 : 0;
    config.clip_value = e == CLIP_VALUE ? 0.05 : 0;
    if (e == SCALED) {
        config.loss_scale = ZRO_ON;
        config.scale_init = 4;
        config.growth_interval = 2;
    }
    return config;
}

static void groups_of(zro_param *params, const setting *s, const int32_t *owners, zro_param_group groups[2])
{
    memset(groups, 0, 2 * sizeof *groups);
    for (int k = 0; k < 2; k++) {
        groups[k].params = params + k * FIRST;
        groups[k].n = k == 0 ? FIRST : N - FIRST;
        groups[k].values = s->values;
        groups[k].n_values = s->n_values;
        groups[k].owners = owners != NULL ? owners + k * FIRST : NULL;
    }
}

static void slow_down(zro_optim *optim)
{
    double lr;

    CHECK_OK(zro_optim_get_value(optim, 1, "lr", &lr));
    CHECK_OK(zro_optim_set_value(optim, 1, "lr", lr / 3));
}

static zro_step_info info_of(const zro_optim *optim)
{
    zro_step_info info = ZRO_STEP_INFO_INIT;

    CHECK_OK(zro_optim_info(optim, &info));
    return info;
}

static void take_alone(const course *c, const setting *s, extra e, outcome *out)
{
    zro_optim_config config = config_of(c, e);
    zro_param params[N];
    zro_param_group groups[2];
    zro_optim *optim;

    for (size_t i = 0; i < N; i++) {
        params[i] = c->params[i];
        params[i].data = new_array(c, params[i].dtype, i);
        copy(c, params[i].dtype, i, params[i].data, c->first[i]);
        params[i].grad = new_array(c, params[i].grad_dtype, i);
    }
    groups_of(params, s, NULL, groups);
    CHECK_OK(zro_optim_create(NULL, groups, 2, s->rule, NULL, &config, &optim));
    slow_down(optim);
    for (int step = 0; step < STEPS; step++) {
        for (size_t i = 0; i < N; i++) {
            params[i].requires_grad = !is_frozen(step, i);
            params[i].grad_present = (uint32_t)anybody_has(c, step, i);
            put_gradient(c, e, step, i, 1, params[i].grad);
        }
        CHECK_OK(zro_optim_step(optim, NULL));
        CHECK_OK(zro_params_hash(params, N, &out->hash[step]));
        out->info[step] = info_of(optim);
    }
    out->made = 1;
    zro_optim_destroy(optim);
    for (size_t i = 0; i < N; i++) {
        free(params[i].data);
        free(params[i].grad);
    }
}

/* ---- runs ---- */

typedef struct mode {
    who who;
    int bucket; /* of bucket_bytes */
    partition partition;
    place place;
    int hook;
    extra extra;
    int staged;
} mode;

typedef struct run {
    const course *c;
    const setting *setting;
    mode mode;
    zro_group *group;
    char name[256];
    zro_param params[N];
    int32_t owners[N];
    void *blocks[2 * N];
    size_t n_handed; /* parameters from the first on that zro_params_alloc got */
    zro_ddp *ddp;
    zro_optim *optim;
} run;

static int attaches(const run *r)
{
    return r->mode.who <= INTERLEAVED;
}

static int overlaps(const run *r)
{
    return attaches(r) && r->mode.who != ATTACHED;
}

static void ok(const run *r, zro_status st, const char *what)
{
    if (st != ZRO_OK)
        zt_fail(__FILE__, __LINE__, "%s: %s is %s", r->name, what, zro_status_name(st));
}

/* Values of ranks other than 0 do not count. */
static void place_params(run *r)
{
    const course *c = r->c;
    const place where = r->mode.place;
    zro_alloc_config config = ZRO_ALLOC_CONFIG_INIT;

    config.data_kind = exists_once(where) ? ZRO_MEMORY_ONCE : ZRO_MEMORY_EACH;
    config.data = where == GRADS ? ZRO_OFF : ZRO_ON;
    config.grads = where == DATA ? ZRO_OFF : ZRO_ON;
    r->n_handed = where == ONCE || where == EACH || where == GRADS || where == DATA ? N : where == HALF ? N / 2 : 0;
    for (size_t i = 0; i < N; i++) {
        if (i >= r->n_handed || where == GRADS)
            r->params[i].data = r->blocks[2 * i] = new_array(c, r->params[i].dtype, i);
        if (i >= r->n_handed || where == DATA)
            r->params[i].grad = r->blocks[2 * i + 1] = new_array(c, r->params[i].grad_dtype, i);
    }
    if (r->n_handed > 0)
        ok(r, zro_params_alloc(r->group, r->params, r->n_handed, &config), "params_alloc");
    for (size_t i = 0; i < N && c->t->rank == 0; i++)
        copy(c, r->params[i].dtype, i, r->params[i].data, c->first[i]);
}

static void create_ddp(run *r)
{
    zro_ddp_config config = ZRO_DDP_CONFIG_INIT;

    config.bucket_bytes = bucket_bytes[r->mode.bucket];
    config.find_unused = r->c->sparse ? ZRO_ON : ZRO_OFF;
    config.gradient_as_bucket_view = r->mode.place == GRAD_VIEWS || r->mode.place == VIEWS ? ZRO_ON : ZRO_OFF;
    config.hook = r->mode.hook ? zro_hook_all_reduce : NULL;
    config.stage_grads = r->mode.staged ? ZRO_ON : ZRO_OFF;
    ok(r, zro_ddp_create(r->group, r->params, N, &config, &r->ddp), "ddp_create");
}

static void create_optim(run *r)
{
    static const zro_partition partitions[PARTITIONS] = { ZRO_PARTITION_FLAT, ZRO_PARTITION_GREEDY, ZRO_PARTITION_BUCKETS,
                                                          ZRO_PARTITION_BUCKETS, ZRO_PARTITION_GIVEN };
    zro_optim_config config = config_of(r->c, r->mode.extra);
    zro_plan_config plan = ZRO_PLAN_CONFIG_INIT;
    const int sharded = r->mode.who != UNSHARDED;
    zro_param_group groups[2];

    groups_of(r->params, r->setting, sharded && r->mode.partition == GIVEN ? r->owners : NULL, groups);
    if (sharded) {
        plan.partition = partitions[r->mode.partition];
        config.plan = &plan;
        config.parameters_as_bucket_view = r->mode.place == DATA_VIEWS || r->mode.place == VIEWS ? ZRO_ON : ZRO_OFF;
        config.ddp = attaches(r) ? r->ddp : NULL;
        config.overlap = overlaps(r) ? (zro_overlap)(r->mode.who - ATTACHED) : ZRO_OVERLAP_OFF;
    }
    if (sharded && r->mode.partition == LISTS) {
        plan.shard_buckets = ZRO_ON;
        ok(r, zro_ddp_buckets(r->ddp, &plan.bucket_params, &plan.bucket_lengths, &plan.n_buckets), "ddp_buckets");
    }
    ok(r, zro_optim_create(sharded ? r->group : NULL, groups, 2, r->setting->rule, NULL, &config, &r->optim), "optim_create");
    slow_down(r->optim);
}

static void run_init(run *r, const course *c, const setting *s, zro_group *group, mode m)
{
    memset(r, 0, sizeof *r);
    r->c = c;
    r->setting = s;
    r->mode = m;
    r->group = group;
    snprintf(r->name, sizeof r->name, "%s, %s, %s, %s, %s, buckets of %zu bytes, %s hook, %s, %s, %s", s->from,
             kinds[c->kind].name, who_names[m.who], partition_names[m.partition], place_names[m.place], bucket_bytes[m.bucket],
             m.hook ? "a" : "no", extra_names[m.extra], c->sparse ? "some absent" : "all present",
             m.staged ? "staged" : "not staged");
    for (size_t i = 0; i < N; i++) {
        r->params[i] = c->params[i];
        r->owners[i] = (int32_t)((i * 5 + 1) % (size_t)c->t->size);
    }
    place_params(r);
    create_ddp(r);
    create_optim(r);
}

/* The handles go in either order. */
static void run_destroy(run *r)
{
    if (r->mode.bucket == 1)
        zro_ddp_destroy(r->ddp);
    zro_optim_destroy(r->optim);
    if (r->mode.bucket != 1)
        zro_ddp_destroy(r->ddp);
}

static void run_free(run *r)
{
    if (r->n_handed > 0)
        zro_params_free(r->params, r->n_handed);
    for (size_t i = 0; i < 2 * N; i++)
        free(r->blocks[i]);
}

static void backward(run *r, int step)
{
    size_t several[N], n_several = 0;

    for (size_t i = N; i-- > 0;) {
        zro_param *p = &r->params[i];

        if (is_frozen(step, i))
            continue;
        if (has(r->c, r->c->t->rank, step, i)) {
            put_gradient(r->c, r->mode.extra, step, i, 0, p->grad);
            if (i % 3 == 0)
                several[n_several++] = i;
            else
                ok(r, zro_ddp_grad_ready(r->ddp, i), "grad_ready");
            continue;
        }
        if (p->grad != NULL)
            memset(p->grad, 0xff, bytes_of(r->c, p->grad_dtype, i));
        if (i % 2 == 0) /* the others backward_end finds */
            ok(r, zro_ddp_unused(r->ddp, i), "unused");
    }
    ok(r, zro_ddp_grads_ready(r->ddp, several, n_several), "grads_ready");
}

/* Averages, where all ranks have them. */
static void check_averages(const run *r, int step)
{
    for (size_t i = 0; i < N; i++) {
        const zro_param *p = &r->params[i];
        void *expected = new_array(r->c, p->grad_dtype, i);
        size_t where;

        put_gradient(r->c, r->mode.extra, step, i, 1, expected);
        if ((int)p->grad_present != anybody_has(r->c, step, i))
            zt_fail(__FILE__, __LINE__, "%s: step %d: gradient %zu is %s after the average", r->name, step, i,
                    p->grad_present ? "present" : "absent");
        if (p->grad_present && !reference_same(p->grad_dtype, expected, p->grad, r->c->counts[i], &where))
            zt_fail(__FILE__, __LINE__, "%s: step %d: gradient %zu, element %zu differs", r->name, step, i, where);
        free(expected);
    }
}

static void take_step(run *r, int step)
{
    for (size_t i = 0; i < N; i++)
        r->params[i].requires_grad = !is_frozen(step, i);
    ok(r, zro_ddp_forward(r->ddp), "forward");
    backward(r, step);
    ok(r, zro_ddp_backward_end(r->ddp), "backward_end");
    if (r->mode.who == ATTACHED && step == STEPS - 1)
        ok(r, zro_ddp_average(r->ddp), "average");
    if (!attaches(r) || (!overlaps(r) && step == STEPS - 1))
        check_averages(r, step);
    if (step == 2 && !overlaps(r)) {
        ok(r, zro_optim_step_local(r->optim, NULL), "step_local");
        ok(r, zro_optim_publish(r->optim), "publish");
    } else {
        ok(r, zro_optim_step(r->optim, NULL), "step");
    }
    if (!attaches(r))
        ok(r, zro_optim_zero_grad(r->optim, ZRO_ZERO_LEAVE), "zero_grad");
    for (size_t i = 0; i < N; i++)
        if (r->params[i].grad_present)
            zt_fail(__FILE__, __LINE__, "%s: step %d: gradient %zu was not consumed", r->name, step, i);
}

static uint64_t hash_of(const run *r)
{
    uint64_t hash;

    ok(r, zro_params_hash(r->params, N, &hash), "hash");
    return hash;
}

/* Names the first parameter that differs between two ranks, or says that all are wrong alike. */
static void check_step(const run *r, int step, const outcome *expected)
{
    const zro_step_info info = info_of(r->optim), *alone = &expected->info[step];

    if (hash_of(r) != expected->hash[step])
        zt_fail(__FILE__, __LINE__, "%s: step %d: parameters differ", r->name, step);
    if (info.scale != alone->scale || info.growth_tracker != alone->growth_tracker || info.skipped != alone->skipped
        || info.n_skipped != alone->n_skipped || info.n_steps != alone->n_steps
        || !bed_equal_arrays(&info.norm, &alone->norm, ZRO_F64, 1))
        zt_fail(__FILE__, __LINE__, "%s: step %d: norm %a and scale %g, alone %a and %g, or counts differ", r->name, step,
                info.norm, info.scale, alone->norm, alone->scale);
}

static void take(const course *c, const setting *s, zro_group *group, mode m, const outcome *expected)
{
    run r;

    run_init(&r, c, s, group, m);
    for (int step = 0; step < STEPS; step++) {
        take_step(&r, step);
        check_step(&r, step, expected);
        if (exists_once(m.place))
            ok(&r, zro_barrier(group), "barrier"); /* nobody changes what exists once before all have looked */
    }
    run_destroy(&r);
    if (hash_of(&r) != expected->hash[STEPS - 1])
        zt_fail(__FILE__, __LINE__, "%s: what destroy left differs", r.name);
    if (exists_once(m.place))
        ok(&r, zro_barrier(group), "barrier");
    run_free(&r);
}

/* ---- samples ---- */

typedef struct sample {
    int n;
    pairs_point at[MOST_POINTS];
} sample;

static sample *sample_pairs(zt_rank *t, const pairs_space *space)
{
    uint64_t random = zt_mix(t->seed, (uint64_t)(t->size * 2 + t->threads));
    sample *s = calloc(1, sizeof *s);

    CHECK(s != NULL);
    s->n = pairs_sample(space, &random, s->at, MOST_POINTS);
    return s;
}

/* A sanitizer makes a run several times as slow, and gets a third of them. */
static int is_left_out(int i)
{
    return ZT_SANITIZED && i % 3 != 0;
}

/* ---- S47 ---- */

enum { AT_WHO, AT_BUCKET, AT_PARTITION, AT_PLACE, AT_FAST, AT_THREADS, AT_KERNELS, AT_HOOK, AT_PRODUCT };
enum { AT_EXTRA = AT_PRODUCT, AT_KIND, AT_SPARSE, AT_STAGED, AT_FACTORS };
enum { S47_KINDS = 2 }; /* F32 and MIXED */
static const int S47_levels[AT_FACTORS] = { WHOS, 3, PARTITIONS, PLACES, 2, 2, 3, 2, EXTRAS, S47_KINDS, 2, 2 };

/* What exists once cannot have an optimizer on each rank that updates it. */
static int is_allowed(const unsigned char *at)
{
    return !(at[AT_WHO] == UNSHARDED && exists_once((place)at[AT_PLACE]));
}

static const pairs_space S47_space = { AT_FACTORS, S47_levels, is_allowed };

/* The whole product up to AT_PRODUCT; the factors behind it are taken in turn. */
static sample *sample_all(void)
{
    sample *s = calloc(1, sizeof *s);
    int n = 1;

    CHECK(s != NULL);
    for (int f = 0; f < AT_PRODUCT; f++)
        n *= S47_levels[f];
    for (int i = 0; i < n; i++) {
        pairs_point point = { 0 };
        uint64_t turn = zt_mix(1, (uint64_t)i);
        int rest = i;

        for (int f = 0; f < AT_PRODUCT; rest /= S47_levels[f++])
            point[f] = (unsigned char)(rest % S47_levels[f]);
        for (int f = AT_PRODUCT; f < AT_FACTORS; turn /= (uint64_t)S47_levels[f++])
            point[f] = (unsigned char)(turn % (uint64_t)S47_levels[f]);
        CHECK(s->n < MOST_POINTS);
        if (is_allowed(point))
            memcpy(s->at[s->n++], point, sizeof point);
    }
    return s;
}

static int group_number(const unsigned char *at)
{
    return (at[AT_FAST] * 2 + at[AT_THREADS]) * 3 + at[AT_KERNELS];
}

static zro_group *new_group(zt_rank *t, const unsigned char *at)
{
    static const zro_kernels kernels[] = { ZRO_KERNELS_BASE, ZRO_KERNELS_AVX2, ZRO_KERNELS_AVX512 };
    int32_t cells[ZT_MAX_RANKS];
    zro_group_config config = zt_config();

    for (int r = 0; r < t->size; r++)
        cells[r] = cell_of(r);
    config.cells = cells;
    config.settings.log_level = ZRO_LOG_OFF; /* it says what was frozen */
    config.settings.fast = at[AT_FAST] ? ZRO_OFF : config.settings.fast;
    config.settings.threads = 1 + at[AT_THREADS];
    if (zro__kernels_get(kernels[at[AT_KERNELS]]) != NULL)
        config.settings.kernels = kernels[at[AT_KERNELS]];
    return zt_group_with(t, &config);
}

typedef struct S47 {
    setting setting;
    course courses[S47_KINDS][2];
    outcome expected[S47_KINDS][2][EXTRAS];
} S47;

/* All of the sample on one group. */
static void S47_on_group(zt_rank *t, S47 *x, const sample *all, int number)
{
    zro_group *group = NULL;

    for (int i = 0; i < all->n; i++) {
        const unsigned char *at = all->at[i];
        course *c = &x->courses[at[AT_KIND]][at[AT_SPARSE]];
        outcome *expected = &x->expected[at[AT_KIND]][at[AT_SPARSE]][at[AT_EXTRA]];
        const mode m = { (who)at[AT_WHO],     at[AT_BUCKET], (partition)at[AT_PARTITION], (place)at[AT_PLACE], at[AT_HOOK],
                         (extra)at[AT_EXTRA], at[AT_STAGED] };

        if (group_number(at) != number || is_left_out(i))
            continue;
        if (group == NULL)
            group = new_group(t, at);
        if (c->t == NULL)
            course_init(c, t, (kind)at[AT_KIND], at[AT_SPARSE], LARGE_COUNT);
        if (!expected->made)
            take_alone(c, &x->setting, m.extra, expected);
        take(c, &x->setting, group, m, expected);
    }
    zro_group_destroy(group);
}

/* arg: 1 for the whole product. */
static void S47_ddp(zt_rank *t)
{
    sample *all = t->arg ? sample_all() : sample_pairs(t, &S47_space);
    S47 *x = calloc(1, sizeof *x);

    CHECK(x != NULL);
    setting_read(&x->setting, "adam amsgrad=1 weight_decay=0.1");
    course_init(&x->courses[F32][0], t, F32, 0, LARGE_COUNT);
    take_alone(&x->courses[F32][0], &x->setting, PLAIN, &x->expected[F32][0][PLAIN]);
    for (int number = 0; number < 2 * 2 * 3; number++)
        S47_on_group(t, x, all, number);
    if (t->rank == 0)
        zt_note(t, "%d combinations, %016" PRIx64, all->n, x->expected[F32][0][PLAIN].hash[STEPS - 1]);
    for (int k = 0; k < S47_KINDS; k++)
        for (int s = 0; s < 2; s++)
            if (x->courses[k][s].t != NULL)
                course_free(&x->courses[k][s]);
    free(x);
    free(all);
}

/* ---- every rule ---- */

enum { RULE_KIND, RULE_SETTING, RULE_PLACE, RULE_FACTORS };
static const place rule_places[] = { ONCE, EACH, VIEWS, DATA, IN_PLACE };
static const int rule_levels[RULE_FACTORS] = { KINDS, SETTINGS, 5 };
static const pairs_space rule_space = { RULE_FACTORS, rule_levels, NULL };

static void rules_of(course *c, zro_group *group, int number, const sample *all)
{
    outcome expected = { 0 };
    setting s;

    setting_read(&s, settings[number]);
    for (int i = 0; i < all->n; i++) {
        const unsigned char *at = all->at[i];
        const mode m = { number % 5 == 4 ? INTERLEAVED : ATTACHED, number % 3, FLAT, rule_places[at[RULE_PLACE]], 0,
                         number % 4 == 3 ? CLIP_VALUE : PLAIN,     number % 2 };

        if (at[RULE_KIND] != c->kind || at[RULE_SETTING] != number || is_left_out(i))
            continue;
        if (!expected.made)
            take_alone(c, &s, m.extra, &expected);
        take(c, &s, group, m, &expected);
    }
}

static void ddp_rules(zt_rank *t)
{
    sample *all = sample_pairs(t, &rule_space);
    const unsigned char fast[AT_FACTORS] = { 0 };
    zro_group *group;

    for (int k = 0; k < KINDS; k++) {
        unsigned char at[AT_FACTORS];
        course c;

        memcpy(at, fast, sizeof at);
        at[AT_KERNELS] = 2;
        group = new_group(t, at);
        course_init(&c, t, (kind)k, 1, 2500);
        for (int number = 0; number < SETTINGS; number++)
            rules_of(&c, group, number, all);
        course_free(&c);
        zro_group_destroy(group);
    }
    if (t->rank == 0)
        zt_note(t, "%d combinations", all->n);
    free(all);
}

/* ---- a rule that needs whole parameters, and none ---- */

static const zro_hyper whole_values[] = { { "lr", ZRO_REAL, 0, 0.1, 0, 10, 0, NULL } };

static void whole_prepare(zro_rule_step *s)
{
    s->scalars[0] = s->values[0];
}

/* Every step has the same length in the largest element of the parameter. */
static void whole_f32(const zro_rule_tile *t)
{
    const float *g = t->grad, lr = *(const float *)t->scalars;
    float most = 0, *x = t->data;

    for (size_t i = 0; i < t->count; i++)
        most = fabsf(g[i]) > most ? fabsf(g[i]) : most;
    for (size_t i = 0; i < t->count && most > 0; i++) {
        const float part = g[i] / most, step = lr * part;

        x[i] = x[i] - step;
    }
}

static void whole_f64(const zro_rule_tile *t)
{
    const double *g = t->grad, lr = *(const double *)t->scalars;
    double most = 0, *x = t->data;

    for (size_t i = 0; i < t->count; i++)
        most = fabs(g[i]) > most ? fabs(g[i]) : most;
    for (size_t i = 0; i < t->count && most > 0; i++) {
        const double part = g[i] / most, step = lr * part;

        x[i] = x[i] - step;
    }
}

static const zro_rule whole = { sizeof whole, "whole", NULL, whole_values,  1,         NULL,     0, 0,
                                ZRO_ON,       NULL,    NULL, whole_prepare, whole_f32, whole_f64 };

/* Attached in every place, with the partitions that leave parameters whole. */
static void ddp_whole_rule(zt_rank *t)
{
    static const unsigned char at[AT_FACTORS] = { [AT_KERNELS] = 2 };
    const setting s = { .from = "a rule that needs whole parameters", .rule = &whole };
    zro_group *group = new_group(t, at);
    outcome expected[EXTRAS] = { 0 };
    course c;

    course_init(&c, t, MIXED, 1, 5000);
    for (int k = 0; k < 3 * PLACES; k++) {
        const int p = k % PLACES;
        const extra e = (extra)(p % EXTRAS);
        const mode m = { (who)(k / PLACES), k % 3, p % 2 ? GREEDY : GIVEN, (place)p, 0, e, k / 2 % 2 };

        if (!expected[e].made)
            take_alone(&c, &s, e, &expected[e]);
        take(&c, &s, group, m, &expected[e]);
    }
    course_free(&c);
    zro_group_destroy(group);
}

/* What an owner has after backward: the average.  The program updates it and publishes. */
static void descend(run *r, int step)
{
    const zro_range *ranges;
    size_t n, where;

    CHECK_OK(zro_plan_ranges(zro_optim_plan(r->optim), r->c->t->rank, &ranges, &n));
    for (size_t i = 0; i < n; i++) {
        const zro_param *p = &r->params[ranges[i].param];
        float *data = p->data;
        const float *grad = p->grad, *expected = r->c->average[step][ranges[i].param];

        if (!p->grad_present)
            continue;
        CHECK(reference_same(ZRO_F32, expected, grad, r->c->counts[ranges[i].param], &where));
        for (size_t k = 0; k < ranges[i].count; k++)
            data[k] -= LR * grad[k];
    }
}

static void ddp_no_rule(zt_rank *t)
{
    static const unsigned char at[AT_FACTORS] = { 0 };
    const setting none = { .from = "no rule", .rule = zro_rule_none() };
    zro_group *group = new_group(t, at);
    course c;

    course_init(&c, t, F32, 1, 5000);
    for (int place_number = 0; place_number < PLACES; place_number++) {
        zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
        zro_plan_config plan = ZRO_PLAN_CONFIG_INIT;
        zro_param_group groups[2];
        run r = { .c = &c, .setting = &none, .group = group, .name = "no rule" };

        r.mode = (mode){ ATTACHED, place_number % 3, GREEDY, (place)place_number, 0, PLAIN, place_number % 4 == 0 };
        memcpy(r.params, c.params, sizeof r.params);
        place_params(&r);
        create_ddp(&r);
        groups_of(r.params, &none, NULL, groups);
        plan.partition = ZRO_PARTITION_GREEDY;
        config.plan = &plan;
        config.parameters_as_bucket_view = r.mode.place == DATA_VIEWS || r.mode.place == VIEWS ? ZRO_ON : ZRO_OFF;
        config.ddp = r.ddp;
        CHECK_OK(zro_optim_create(group, groups, 2, zro_rule_none(), NULL, &config, &r.optim));
        for (int step = 0; step < STEPS; step++) {
            for (size_t i = 0; i < N; i++)
                r.params[i].requires_grad = !is_frozen(step, i);
            CHECK_OK(zro_ddp_forward(r.ddp));
            backward(&r, step);
            CHECK_OK(zro_ddp_backward_end(r.ddp));
            descend(&r, step);
            CHECK_OK(zro_optim_publish(r.optim));
            CHECK_OK(zro_ddp_check(r.ddp));
        }
        for (size_t i = 0; i < N; i++)
            for (size_t k = 0; k < c.counts[i]; k++) {
                float x = ((float *)c.first[i])[k];

                for (int step = 0; step < STEPS; step++)
                    x -= anybody_has(&c, step, i) ? LR * ((float *)c.average[step][i])[k] : 0;
                CHECK(((float *)r.params[i].data)[k] == x);
            }
        CHECK_OK(zro_barrier(group));
        run_destroy(&r);
        run_free(&r);
    }
    course_free(&c);
    zro_group_destroy(group);
}

#define WORLDS (ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4))
#define NEAR (ZT_BOTH | ZT_MPI) /* what can pretend machines; with a foreign link each rank has its own anyway */

const zt_case cases_ddp_bits[] = {
    { "S47_ddp", S47_ddp, WORLDS | ZT_WORLD(1), ZT_BOTH, 0, 240, 0, 0 },
    { "S47_ddp", S47_ddp, ZT_WORLD(2) | ZT_WORLD(3), ZT_LINKS, 0, 240, 0, 0 },
    { "S47_ddp_two", S47_ddp, ZT_WORLD(4), NEAR, ZT_TWO_MACHINES, 240, 0, 0 },
    { "S47_ddp_own", S47_ddp, ZT_WORLD(3), NEAR, ZT_OWN_MACHINES, 240, 0, 0 },
    { "ddp_rules", ddp_rules, WORLDS, ZT_BOTH, 0, 240, 0, 0 },
    { "ddp_rules", ddp_rules, ZT_WORLD(3), ZT_LINKS, 0, 240, 0, 0 },
    { "ddp_whole_rule", ddp_whole_rule, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { "ddp_no_rule", ddp_no_rule, WORLDS, ZT_ALL, 0, 60, 0, 0 },
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) /* ten times slower: the sample is enough */
    { "S47_ddp_all", S47_ddp, ZT_WORLD(2) | ZT_WORLD(3), ZT_LOCAL, ZT_LONG, 2400, 0, 1 },
    { "S47_ddp_all", S47_ddp, ZT_WORLD(3), ZT_OPENMPI | ZT_FOREIGN, ZT_LONG, 3600, 0, 1 },
#endif
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
