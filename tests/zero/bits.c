/* The same bits, sharded or not: every rule, partition, place of the parameters, element type and number of ranks.
 *
 * A course is one training: first values, and the gradients of each step as averages over the ranks.  Its parameters have no
 * elements, few, or as many as are around the borders of blocks; gradients are absent now and then, parameters frozen and freed
 * again, values change; and there may be clipping, a loss scale and a step that overflows, a group added on the way.  An
 * optimizer alone takes it first, with the base instruction set on one thread.  Then sharded ones do, and are compared with it
 * on every rank: after each step the hash of all parameters and what the step found, at the end every slot.
 *
 *     zero_bits  setting of a rule x element types x partition x place
 *     S47        one course: partition x place x fast x threads x kernels, with the cells given, over backends and machines
 *
 * The normal run takes a sample in which every pair of levels occurs, the full run the whole product.  Instances of S47 of one
 * world show the same hash. */
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

enum { N = 7, FIRST = 4 /* of the second group */, STEPS = 5, MOST_POINTS = 1024 };
static const size_t counts[N] = { 1025, 0, 5000, 1, 1024, 1023, 300 };

/* ---- what can differ ---- */

typedef enum kind { F32, F64, BF16, F16, BF16_F32, STOCHASTIC, MIXED, KINDS } kind;

static const struct {
    const char *name;
    zro_dtype dtype, grad;
} kinds[KINDS] = {
    [F32] = { "f32", ZRO_F32, ZRO_F32 },
    [F64] = { "f64", ZRO_F64, ZRO_F64 },
    [BF16] = { "bf16", ZRO_BF16, ZRO_BF16 },
    [F16] = { "f16", ZRO_F16, ZRO_F16 },
    [BF16_F32] = { "bf16 with f32 gradients", ZRO_BF16, ZRO_F32 },
    [STOCHASTIC] = { "bf16 rounded by chance", ZRO_BF16, ZRO_BF16 },
    [MIXED] = { "all types", ZRO_SAME, ZRO_SAME }, /* of those with masters */
};

typedef enum partition { FLAT, GREEDY, BUCKETS, LISTS, GIVEN, PARTITIONS } partition;
static const char *const partition_names[PARTITIONS] = { "flat", "greedy", "buckets", "sharded lists of buckets", "given" };

typedef enum place { ARRAYS, BUFFER, GROUP_MEMORY, ONCE, EACH, VIEWS, PLACES } place;
static const char *const place_names[PLACES] = { "own arrays",       "one buffer",       "group memory",
                                                 "handed out, once", "handed out, each", "bucket views" };

typedef enum extra { PLAIN, CLIPPED, SCALED, LATE, EXTRAS } extra;
static const char *const extra_names[EXTRAS] = { "plain", "clipped", "loss scale", "group added" };

/* ---- courses ---- */

typedef struct course {
    zt_rank *t;
    kind kind;
    extra extra;
    uint64_t seed;
    zro_param params[N]; /* shapes, types and tags */
    void *first[N], *grads[STEPS][N];
    void *overflow; /* gradient OVERFLOW_PARAM of step OVERFLOW_STEP */
} course;

enum { OVERFLOW_PARAM = 2, OVERFLOW_STEP = 2, OVERFLOW_ELEMENT = 4097 };

static size_t bytes_of(zro_dtype dtype, size_t i)
{
    return counts[i] * zro_dtype_bytes(dtype);
}

static void *new_array(zro_dtype dtype, size_t i)
{
    void *data = malloc(bytes_of(dtype, i) + 1);

    CHECK(data != NULL);
    return data;
}

static void fill(void *data, zro_dtype dtype, size_t i, uint64_t random)
{
    for (size_t k = 0; k < counts[i]; k++)
        bed_set(data, dtype, k, (double)(zt_next(&random) >> 11) * 0x1p-52 - 1);
}

/* A rank's gradient before it is averaged: any rank can make any rank's. */
static void fill_gradient(const course *c, int rank, int step, size_t i, void *data)
{
    fill(data, c->params[i].grad_dtype, i, zt_mix(c->seed, (uint64_t)(rank * 1000 + step * 10) + i));
}

/* Collective: gradients are averaged over the group. */
static void course_init(course *c, zt_rank *t, zro_group *group, kind k)
{
    memset(c, 0, sizeof *c);
    c->t = t;
    c->kind = k;
    c->seed = zt_mix(zt_opt.seed, (uint64_t)k); /* whatever the case is called */
    for (size_t i = 0; i < N; i++) {
        const int type = k == MIXED ? (int)(i % STOCHASTIC) : (int)k;
        zro_param *p = &c->params[i];

        zro_param_init(p);
        p->shape[0] = counts[i];
        p->dtype = kinds[type].dtype;
        p->grad_dtype = kinds[type].grad;
        p->device = i == N - 1;
        c->first[i] = new_array(p->dtype, i);
        fill(c->first[i], p->dtype, i, zt_mix(c->seed, 100 + i));
        for (int s = 0; s < STEPS; s++) {
            c->grads[s][i] = new_array(p->grad_dtype, i);
            fill_gradient(c, t->rank, s, i, c->grads[s][i]);
            CHECK_OK(zro_all_reduce(group, c->grads[s][i], counts[i], p->grad_dtype, ZRO_AVG));
        }
    }
    c->overflow = new_array(c->params[OVERFLOW_PARAM].grad_dtype, OVERFLOW_PARAM);
    memcpy(c->overflow, c->grads[OVERFLOW_STEP][OVERFLOW_PARAM],
           bytes_of(c->params[OVERFLOW_PARAM].grad_dtype, OVERFLOW_PARAM));
    bed_set(c->overflow, c->params[OVERFLOW_PARAM].grad_dtype, OVERFLOW_ELEMENT, (double)INFINITY);
}

static void course_free(course *c)
{
    for (size_t i = 0; i < N; i++) {
        free(c->first[i]);
        for (int s = 0; s < STEPS; s++)
            free(c->grads[s][i]);
    }
    free(c->overflow);
}

/* One in each step. */
static int is_absent(int step, size_t i)
{
    return (i + 2 * (size_t)step) % N == 3;
}

static int is_frozen(int step, size_t i)
{
    return i == 5 ? step < 2 : i == 0 && step == 2;
}

static void *gradient_of(const course *c, int step, size_t i)
{
    if (c->extra == SCALED && step == OVERFLOW_STEP && i == OVERFLOW_PARAM)
        return c->overflow;
    return c->grads[step][i];
}

/* ---- runs ---- */

/* An optimizer that takes the course. */
typedef struct run {
    const course *course;
    const setting *setting;
    zro_group *group; /* NULL: alone */
    partition partition;
    place place;
    char name[256];
    zro_param params[N];
    size_t n; /* parameters that the optimizer has */
    int32_t owners[N];
    zro_optim *optim;
    zro_memory *memory;
    void *blocks[N];
} run;

static void ok(const run *r, zro_status st, const char *what)
{
    if (st != ZRO_OK)
        zt_fail(__FILE__, __LINE__, "%s: %s is %s", r->name, what, zro_status_name(st));
}

static int is_handed_out(const run *r)
{
    return r->place == ONCE || r->place == EACH;
}

/* One after another, each as aligned as its elements must be. */
static void put_into(run *r, char *base)
{
    size_t at = 0;

    for (size_t i = 0; i < N; i++) {
        const size_t size = zro_dtype_bytes(r->params[i].dtype);

        at = (at + size - 1) / size * size;
        r->params[i].data = zro_param_count(&r->params[i]) > 0 ? base + at : NULL;
        at += bytes_of(r->params[i].dtype, i);
    }
}

/* Arrays with the first values: of those handed out, only rank 0's. */
static void place_params(run *r)
{
    zro_alloc_config config = ZRO_ALLOC_CONFIG_INIT;
    size_t bytes = 0;

    for (size_t i = 0; i < N; i++)
        bytes += bytes_of(ZRO_F64, i) + sizeof(double);
    if (is_handed_out(r)) {
        config.data_kind = r->place == ONCE ? ZRO_MEMORY_ONCE : ZRO_MEMORY_EACH;
        config.grads = r->place == ONCE ? ZRO_ON : ZRO_OFF;
        ok(r, zro_params_alloc(r->group, r->params, N, &config), "params_alloc");
    } else if (r->place == GROUP_MEMORY) {
        ok(r, zro_memory_alloc(r->group, ZRO_MEMORY_EACH, bytes, &r->memory), "memory_alloc");
        put_into(r, zro_memory_data(r->memory));
    } else if (r->place == BUFFER) {
        r->blocks[0] = malloc(bytes);
        CHECK(r->blocks[0] != NULL);
        put_into(r, r->blocks[0]);
    } else {
        for (size_t i = 0; i < N; i++)
            if (counts[i] > 0)
                r->params[i].data = r->blocks[i] = new_array(r->params[i].dtype, i);
    }
    for (size_t i = 0; i < N; i++)
        if (counts[i] > 0 && (!is_handed_out(r) || r->course->t->rank == 0))
            memcpy(r->params[i].data, r->course->first[i], bytes_of(r->params[i].dtype, i));
}

/* Buckets of two parameters of one type and tag, from the last to the first. */
static size_t list_buckets(const run *r, size_t *members, size_t *lengths)
{
    int is_listed[N] = { 0 };
    size_t n = 0, at = 0;

    for (size_t k = r->n; k-- > 0;) {
        if (is_listed[k])
            continue;
        lengths[n] = 0;
        for (size_t i = k + 1; i-- > 0 && lengths[n] < 2;)
            if (!is_listed[i] && r->params[i].dtype == r->params[k].dtype && r->params[i].device == r->params[k].device) {
                is_listed[i] = 1;
                members[at++] = i;
                lengths[n]++;
            }
        n++;
    }
    return n;
}

static zro_optim_config config_of(const course *c)
{
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;

    config.settings.kernels = ZRO_KERNELS_BASE;
    config.masters = c->kind == STOCHASTIC ? ZRO_OFF : ZRO_ON;
    config.rounding = c->kind == STOCHASTIC ? ZRO_STOCHASTIC : ZRO_NEAREST;
    config.seed = c->seed;
    if (c->extra == CLIPPED)
        config.clip_norm = 2;
    if (c->extra == SCALED) {
        config.loss_scale = ZRO_ON;
        config.scale_init = 4;
        config.growth_interval = 2;
        config.clip_value = 0.05;
    }
    if (c->extra == LATE) {
        config.clip_norm = 0.1;
        config.clip_norm_type = (double)INFINITY;
    }
    return config;
}

static zro_param_group group_of(run *r, size_t first, size_t end)
{
    zro_param_group group = { 0 };

    group.params = r->params + first;
    group.n = end - first;
    group.values = r->setting->values;
    group.n_values = r->setting->n_values;
    group.owners = r->group != NULL && r->partition == GIVEN ? r->owners + first : NULL;
    return group;
}

/* Parameters from `first` on are new: what only rank 0 has becomes everybody's, and the second group goes more slowly. */
static void welcome(run *r, size_t first)
{
    for (size_t i = first; is_handed_out(r) && i < r->n; i++)
        ok(r, zro_param_publish(r->optim, i, 0), "publish");
    if (r->n == N) {
        double lr;

        ok(r, zro_optim_get_value(r->optim, 1, "lr", &lr), "get_value");
        ok(r, zro_optim_set_value(r->optim, 1, "lr", lr / 3), "set_value");
    }
}

static void create(run *r)
{
    static const zro_partition partitions[] = { ZRO_PARTITION_FLAT, ZRO_PARTITION_GREEDY, ZRO_PARTITION_BUCKETS,
                                                ZRO_PARTITION_BUCKETS, ZRO_PARTITION_GIVEN };
    zro_optim_config config = config_of(r->course);
    zro_plan_config plan = ZRO_PLAN_CONFIG_INIT;
    size_t members[N], lengths[N];
    zro_param_group groups[] = { group_of(r, 0, FIRST), group_of(r, FIRST, N) };

    r->n = r->course->extra == LATE ? FIRST : N;
    if (r->group != NULL) {
        plan.partition = partitions[r->partition];
        config.plan = &plan;
        config.parameters_as_bucket_view = r->place == VIEWS ? ZRO_ON : ZRO_OFF;
    }
    if (r->group != NULL && r->partition == LISTS) {
        plan.shard_buckets = ZRO_ON;
        plan.n_buckets = list_buckets(r, members, lengths);
        plan.bucket_params = members;
        plan.bucket_lengths = lengths;
    }
    ok(r, zro_optim_create(r->group, groups, r->n == N ? 2 : 1, r->setting->rule, NULL, &config, &r->optim), "create");
    welcome(r, 0);
}

/* group NULL: alone. */
static void run_init(run *r, const course *c, const setting *s, zro_group *group, partition p, place where)
{
    memset(r, 0, sizeof *r);
    r->course = c;
    r->setting = s;
    r->group = group;
    r->partition = p;
    r->place = where;
    snprintf(r->name, sizeof r->name, "%s, %s, %s, %s, %s", s->from, kinds[c->kind].name,
             group == NULL ? "alone" : partition_names[p], place_names[where], extra_names[c->extra]);
    for (size_t i = 0; i < N; i++) {
        r->params[i] = c->params[i];
        r->params[i].requires_grad = !is_frozen(0, i);
        r->owners[i] = (int32_t)((i * 5 + 1) % (size_t)c->t->size);
    }
    place_params(r);
    create(r);
}

static void run_free(run *r)
{
    zro_optim_destroy(r->optim);
    if (is_handed_out(r))
        zro_params_free(r->params, N);
    zro_memory_free(r->memory);
    for (size_t i = 0; i < N; i++)
        free(r->blocks[i]);
}

static void set_gradients(run *r, int step)
{
    for (size_t i = 0; i < r->n; i++) {
        zro_param *p = &r->params[i];
        void *grad = gradient_of(r->course, step, i);

        p->requires_grad = !is_frozen(step, i);
        if (r->place == ONCE) {
            memcpy(p->grad, grad, bytes_of(p->grad_dtype, i));
            p->grad_present = !is_absent(step, i);
        } else {
            zro_param_set_grad(p, is_absent(step, i) ? NULL : grad);
        }
    }
}

static void take_step(run *r, int step)
{
    double lr;

    if (step == 2 && r->n < N) {
        zro_param_group group = group_of(r, FIRST, N);

        ok(r, zro_optim_add_param_group(r->optim, &group), "add_param_group");
        r->n = N;
        welcome(r, FIRST);
    }
    set_gradients(r, step);
    if (step != 3) {
        ok(r, zro_optim_step(r->optim, NULL), "step");
        return;
    }
    ok(r, zro_optim_get_value(r->optim, 0, "lr", &lr), "get_value");
    ok(r, zro_optim_set_value(r->optim, 0, "lr", lr / 2), "set_value");
    ok(r, zro_optim_step_local(r->optim, NULL), "step_local");
    ok(r, zro_optim_publish(r->optim), "publish");
}

/* ---- what comes out ---- */

typedef struct outcome {
    uint64_t hash[STEPS];
    zro_step_info info[STEPS];
    zro_state *state;
} outcome;

static uint64_t hash_of(const run *r)
{
    uint64_t hash;

    ok(r, zro_params_hash(r->params, r->n, &hash), "hash");
    return hash;
}

/* But for n_updated, which counts what this rank owns. */
static int is_same_info(const zro_step_info *a, const zro_step_info *b)
{
    return a->scale == b->scale && a->growth_tracker == b->growth_tracker && a->skipped == b->skipped
           && a->n_skipped == b->n_skipped && a->n_steps == b->n_steps && bed_equal_arrays(&a->norm, &b->norm, ZRO_F64, 1);
}

static void check_param_state(const run *r, const zro_state *mine, const zro_state *other, size_t i)
{
    if (zro_state_slots(mine, i) != zro_state_slots(other, i))
        zt_fail(__FILE__, __LINE__, "%s: parameter %zu has %zu slots, alone %zu", r->name, i, zro_state_slots(mine, i),
                zro_state_slots(other, i));
    for (size_t k = 0; k < zro_state_slots(other, i); k++) {
        const char *name = zro_state_slot_name(other, i, k);
        zro_slot a, b;

        ok(r, zro_state_slot(mine, i, name, &a), name);
        ok(r, zro_state_slot(other, i, name, &b), name);
        if (a.present != b.present || a.dtype != b.dtype || a.count != b.count)
            zt_fail(__FILE__, __LINE__, "%s: slot %s of parameter %zu: %u, %s, %zu elements; alone %u, %s, %zu", r->name, name,
                    i, a.present, zro_dtype_name(a.dtype), a.count, b.present, zro_dtype_name(b.dtype), b.count);
        if (a.present && memcmp(a.data, b.data, a.count * zro_dtype_bytes(a.dtype)) != 0)
            zt_fail(__FILE__, __LINE__, "%s: slot %s of parameter %zu differs", r->name, name, i);
    }
}

static void check_state(const run *r, const zro_state *mine, const zro_state *other)
{
    zro_progress a, b;

    CHECK(zro_state_params(mine) == N && zro_state_params(other) == N);
    for (size_t i = 0; i < N; i++)
        check_param_state(r, mine, other, i);
    ok(r, zro_state_get_progress(mine, &a), "get_progress");
    ok(r, zro_state_get_progress(other, &b), "get_progress");
    CHECK(a.steps == b.steps && a.scale == b.scale && a.growth_tracker == b.growth_tracker);
    for (size_t g = 0; g < 2; g++)
        for (size_t k = 0; k < zro_optim_values(r->optim); k++) {
            zro_value x, y;

            ok(r, zro_state_value(mine, g, k, &x), "value");
            ok(r, zro_state_value(other, g, k, &y), "value");
            CHECK(strcmp(x.name, y.name) == 0 && x.value == y.value);
        }
}

/* The whole course; `alone` is what must come out, NULL for the first. */
static void take(run *r, outcome *mine, const outcome *alone)
{
    for (int s = 0; s < STEPS; s++) {
        zro_step_info *info = &mine->info[s];

        take_step(r, s);
        mine->hash[s] = hash_of(r);
        zro_step_info_init(info);
        ok(r, zro_optim_info(r->optim, info), "info");
        if (alone != NULL && mine->hash[s] != alone->hash[s])
            zt_fail(__FILE__, __LINE__, "%s: step %d: parameters differ", r->name, s);
        if (alone != NULL && !is_same_info(info, &alone->info[s]))
            zt_fail(__FILE__, __LINE__, "%s: step %d: norm %a and scale %g, alone %a and %g, or counts differ", r->name, s,
                    info->norm, info->scale, alone->info[s].norm, alone->info[s].scale);
        if (r->place == ONCE)
            ok(r, zro_barrier(r->group), "barrier"); /* nobody changes what exists once before all have looked */
    }
    ok(r, zro_optim_consolidate(r->optim, ZRO_ALL, &mine->state), "consolidate");
    if (alone != NULL)
        check_state(r, mine->state, alone->state);
}

static void take_alone(const course *c, const setting *s, outcome *out)
{
    run r;

    run_init(&r, c, s, NULL, FLAT, ARRAYS);
    take(&r, out, NULL);
    run_free(&r);
}

static void take_sharded(const course *c, const setting *s, zro_group *group, partition p, place where, const outcome *alone)
{
    outcome mine;
    run r;

    run_init(&r, c, s, group, p, where);
    take(&r, &mine, alone);
    zro_state_destroy(mine.state);
    if (where == VIEWS) {
        zro_optim_destroy(r.optim);
        r.optim = NULL;
        if (hash_of(&r) != alone->hash[STEPS - 1])
            zt_fail(__FILE__, __LINE__, "%s: what destroy put back differs", r.name);
    }
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

/* The whole product, of one factor only a level (factor -1: all of all). */
static sample *sample_all(const pairs_space *space, int factor, int level)
{
    sample *s = calloc(1, sizeof *s);
    int n = 1;

    CHECK(s != NULL);
    for (int f = 0; f < space->factors; f++)
        n *= space->levels[f];
    for (int i = 0; i < n; i++) {
        pairs_point point = { 0 };
        int rest = i;

        for (int f = 0; f < space->factors; rest /= space->levels[f++])
            point[f] = (unsigned char)(rest % space->levels[f]);
        if (factor >= 0 && point[factor] != level)
            continue;
        CHECK(s->n < MOST_POINTS);
        memcpy(s->at[s->n++], point, sizeof point);
    }
    return s;
}

/* ---- zero_bits ---- */

enum { BITS_KIND, BITS_SETTING, BITS_PARTITION, BITS_PLACE, BITS_FACTORS };
static const int bits_levels[BITS_FACTORS] = { KINDS, SETTINGS, PARTITIONS, PLACES };
static const pairs_space bits_space = { BITS_FACTORS, bits_levels, NULL };

/* All of the sample with one kind and one setting. */
static void bits_of(course *c, int number, const sample *all)
{
    outcome alone = { 0 };
    setting s;

    setting_read(&s, settings[number]);
    c->extra = (extra)((number + (int)c->kind) % EXTRAS);
    for (int i = 0; i < all->n; i++) {
        const unsigned char *at = all->at[i];

        if (at[BITS_KIND] != c->kind || at[BITS_SETTING] != number)
            continue;
        if (alone.state == NULL)
            take_alone(c, &s, &alone);
        take_sharded(c, &s, c->t->group, (partition)at[BITS_PARTITION], (place)at[BITS_PLACE], &alone);
    }
    zro_state_destroy(alone.state);
}

/* arg: a kind; or all kinds, and the sample. */
static void bits(zt_rank *t)
{
    const int sampled = t->arg == KINDS;
    sample *all = sampled ? sample_pairs(t, &bits_space) : sample_all(&bits_space, BITS_KIND, (int)t->arg);

    for (int k = sampled ? 0 : (int)t->arg; k < KINDS && (sampled || k == t->arg); k++) {
        course c;

        course_init(&c, t, t->group, (kind)k);
        for (int number = 0; number < SETTINGS; number++)
            bits_of(&c, number, all);
        course_free(&c);
    }
    if (t->rank == 0)
        zt_note(t, "%d combinations", all->n);
    free(all);
}

/* ---- S47 ---- */

enum { S47_PARTITION, S47_PLACE, S47_FAST, S47_THREADS, S47_KERNELS, S47_FACTORS };
static const int S47_levels[S47_FACTORS] = { PARTITIONS, PLACES, 2, 2, 3 };
static const pairs_space S47_space = { S47_FACTORS, S47_levels, NULL };

/* Gradients are the same on every backend and for all settings: what they are by hand. */
static void check_gradients(const course *c)
{
    const int ranks = c->t->size;

    for (size_t i = 0; i < N; i++)
        for (int s = 0; s < STEPS; s++) {
            const zro_dtype dtype = c->params[i].grad_dtype;
            void *in[ZT_MAX_RANKS], *out = new_array(dtype, i);

            for (int r = 0; r < ranks; r++) {
                in[r] = new_array(dtype, i);
                fill_gradient(c, r, s, i, in[r]);
            }
            reference_reduce(dtype, ZRO_AVG, ranks, NULL, NULL, NULL, (const void *const *)in, out, counts[i]);
            CHECK(reference_same(dtype, out, c->grads[s][i], counts[i], NULL));
            for (int r = 0; r < ranks; r++)
                free(in[r]);
            free(out);
        }
}

static zro_group *S47_group(zt_rank *t, const unsigned char *at)
{
    static const zro_kernels kernels[] = { ZRO_KERNELS_BASE, ZRO_KERNELS_AVX2, ZRO_KERNELS_AVX512 };
    static const int32_t cells[ZT_MAX_RANKS] = { 0 };
    zro_group_config config = zt_config();

    config.cells = cells;
    config.settings.fast = at[S47_FAST] ? ZRO_OFF : config.settings.fast;
    config.settings.threads = 1 + at[S47_THREADS];
    if (zro__kernels_get(kernels[at[S47_KERNELS]]) != NULL)
        config.settings.kernels = kernels[at[S47_KERNELS]];
    return zt_group_with(t, &config);
}

static int S47_setting_of(const unsigned char *at)
{
    return (at[S47_FAST] * 2 + at[S47_THREADS]) * 3 + at[S47_KERNELS];
}

/* All of the sample on one group; `alone` is made where it is still missing. */
static void S47_on_group(zt_rank *t, const sample *all, int number, outcome *alone)
{
    zro_group *group = NULL;
    setting s;
    course c;

    setting_read(&s, "adam amsgrad=1 weight_decay=0.1");
    for (int i = 0; i < all->n; i++) {
        if (S47_setting_of(all->at[i]) != number)
            continue;
        if (group == NULL) {
            group = S47_group(t, all->at[i]);
            course_init(&c, t, group, MIXED);
            c.extra = CLIPPED;
            check_gradients(&c);
        }
        if (alone->state == NULL)
            take_alone(&c, &s, alone);
        take_sharded(&c, &s, group, (partition)all->at[i][S47_PARTITION], (place)all->at[i][S47_PLACE], alone);
    }
    if (group != NULL)
        course_free(&c);
    zro_group_destroy(group);
}

/* arg: 1 for the whole product. */
static void S47_hash(zt_rank *t)
{
    sample *all = t->arg ? sample_all(&S47_space, -1, 0) : sample_pairs(t, &S47_space);
    outcome alone = { 0 };

    for (int number = 0; number < 2 * 2 * 3; number++)
        S47_on_group(t, all, number, &alone);
    if (t->rank == 0)
        zt_note(t, "%d combinations, %016" PRIx64, all->n, alone.hash[STEPS - 1]);
    zro_state_destroy(alone.state);
    free(all);
}

#define WORLDS (ZT_WORLD(1) | ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4) | ZT_WORLD(7))
#define S47_WORLDS (ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4))
#define NEAR (ZT_BOTH | ZT_MPI) /* what can pretend machines; with a foreign link each rank has its own anyway */

const zt_case cases_zero_bits[] = {
    { "zero_bits", bits, WORLDS, ZT_BOTH, 0, 120, 0, KINDS },
    { "zero_bits", bits, ZT_WORLD(3), ZT_LINKS, 0, 120, 0, KINDS },
    { "S47_hash", S47_hash, S47_WORLDS, ZT_ALL, 0, 120, 0, 0 },
    { "S47_hash_two", S47_hash, ZT_WORLD(4), ZT_BOTH, ZT_TWO_MACHINES, 120, 0, 0 },
    { "S47_hash_two", S47_hash, ZT_WORLD(3), NEAR, ZT_TWO_MACHINES, 120, 0, 0 },
    { "S47_hash_own", S47_hash, ZT_WORLD(3), ZT_BOTH, ZT_OWN_MACHINES, 120, 0, 0 },
    { "S47_hash_own", S47_hash, S47_WORLDS & ~ZT_WORLD(3), NEAR, ZT_OWN_MACHINES, 120, 0, 0 },
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) /* ten times slower: the sample is enough */
    { "zero_bits_f32", bits, WORLDS, ZT_LOCAL, ZT_LONG, 300, 0, F32 },
    { "zero_bits_f64", bits, WORLDS, ZT_LOCAL, ZT_LONG, 300, 0, F64 },
    { "zero_bits_bf16", bits, WORLDS, ZT_LOCAL, ZT_LONG, 300, 0, BF16 },
    { "zero_bits_f16", bits, WORLDS, ZT_LOCAL, ZT_LONG, 300, 0, F16 },
    { "zero_bits_bf16_f32", bits, WORLDS, ZT_LOCAL, ZT_LONG, 300, 0, BF16_F32 },
    { "zero_bits_stochastic", bits, WORLDS, ZT_LOCAL, ZT_LONG, 300, 0, STOCHASTIC },
    { "zero_bits_mixed", bits, WORLDS, ZT_LOCAL, ZT_LONG, 300, 0, MIXED },
    { "S47_all", S47_hash, S47_WORLDS, ZT_LOCAL, ZT_LONG, 300, 0, 1 },
    { "S47_all", S47_hash, ZT_WORLD(3), ZT_LINKS, ZT_LONG, 300, 0, 1 },
    { "S47_all_two", S47_hash, ZT_WORLD(4), ZT_LOCAL | ZT_OPENMPI, ZT_LONG | ZT_TWO_MACHINES, 300, 0, 1 },
    { "S47_all_own", S47_hash, ZT_WORLD(3), ZT_LOCAL | ZT_OPENMPI, ZT_LONG | ZT_OWN_MACHINES, 300, 0, 1 },
#endif
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
