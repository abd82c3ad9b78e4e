/* S93: everything saved in one call and resumed in another, on the same ranks or on fewer, with other places and partitions: the
 * next ten steps are those of the training that was never interrupted, bit for bit, because gradients do not depend on ranks
 * here.  Parameters of several types, masters, a loss scale in the middle of its growth interval, a plateau in the middle of its
 * patience beside a tree of schedules.  What fails on one rank fails on all, and changes nothing. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/point.h"
#include "zt/list.h"
#include "zt/zt.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

typedef enum place { OWN, ONCE, EACH, VIEWS, PLACES } place;

static const zro_partition partitions[] = { ZRO_PARTITION_FLAT, ZRO_PARTITION_GREEDY, ZRO_PARTITION_BUCKETS };

enum { PARTITIONS = COUNT(partitions), MODES = PLACES * PARTITIONS, BEFORE = 7, AFTER = 10, N = 6 };

static const struct {
    const char *name;
    size_t count;
    zro_dtype dtype;
    size_t group;
} specs[N] = { { "w", 3000, ZRO_F32, 0 }, { "half", 2050, ZRO_BF16, 0 }, { NULL, 5, ZRO_F32, 0 },
               { "none", 0, ZRO_F32, 1 }, { "f16", 70, ZRO_F16, 1 },     { "double", 1024, ZRO_F64, 1 } };

/* A training on a group of ranks, or on none. */
typedef struct training {
    zro_group *group;
    zro_param params[N];
    void *own[N], *grads[N]; /* the program's memory */
    zro_optim *optim;
    zro_schedule *schedules[2];
    zro_value numbers[2];
    zro_save_config save;
} training;

/* What a step leaves behind. */
typedef struct trace {
    uint64_t hash;
    double lr[2], scale;
    uint32_t tracker;
} trace;

static void fill(void *data, zro_dtype dtype, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        const double x = (double)(zt_mix(seed, i) >> 11) / 0x1p52 - 1;

        CHECK_OK(zro_convert((char *)data + i * zro_dtype_bytes(dtype), dtype, &x, ZRO_F64, 1));
    }
}

static void make_params(training *t, place where, uint64_t seed)
{
    zro_alloc_config alloc = ZRO_ALLOC_CONFIG_INIT;

    alloc.grads = ZRO_OFF;
    alloc.data_kind = where == EACH ? ZRO_MEMORY_EACH : ZRO_MEMORY_ONCE;
    for (size_t i = 0; i < N; i++) {
        const size_t bytes = (specs[i].count + 1) * sizeof(double);

        t->own[i] = malloc(bytes);
        t->grads[i] = calloc(1, bytes);
        CHECK(t->own[i] != NULL && t->grads[i] != NULL);
        zro_param_make(&t->params[i], specs[i].name, specs[i].dtype, NULL, t->grads[i], 1, &specs[i].count);
    }
    if (t->group != NULL && (where == ONCE || where == EACH))
        CHECK_OK(zro_params_alloc(t->group, t->params, N, &alloc));
    for (size_t i = 0; i < N; i++) {
        if (t->params[i].memory == NULL && specs[i].count > 0)
            t->params[i].data = t->own[i];
        if (t->group == NULL || where != ONCE || zro_group_rank(t->group) == 0)
            fill(t->params[i].data, specs[i].dtype, specs[i].count, seed + i);
    }
}

/* A plateau, and linear before a chain. */
static void make_schedules(training *t)
{
    zro_plateau_config plateau = ZRO_PLATEAU_CONFIG_INIT;
    zro_schedule *chain[2], *parts[2];

    plateau.patience = 3;
    plateau.factor = 0.5;
    plateau.cooldown = 1;
    CHECK_OK(zro_schedule_linear(t->optim, 0.5, 1, 6, &parts[0]));
    CHECK_OK(zro_schedule_exponential(t->optim, 0.9, &chain[0]));
    CHECK_OK(zro_schedule_step_lr(t->optim, 4, 0.7, &chain[1]));
    CHECK_OK(zro_schedule_chained(chain, 2, &parts[1]));
    CHECK_OK(zro_schedule_sequential(parts, 2, (const uint64_t[]){ 5 }, &t->schedules[0]));
    CHECK_OK(zro_schedule_plateau(t->optim, &plateau, &t->schedules[1]));
}

static void begin(training *t, zro_group *group, int mode, uint64_t seed)
{
    const place where = (place)(mode % PLACES);
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_plan_config plan = ZRO_PLAN_CONFIG_INIT;
    zro_adam_config adam = ZRO_ADAM_CONFIG_INIT;
    zro_param_group groups[2] = { ZRO_PARAM_GROUP_INIT, ZRO_PARAM_GROUP_INIT };

    memset(t, 0, sizeof *t);
    t->group = group;
    make_params(t, where, seed);
    for (size_t i = 0; i < N; i++) {
        groups[specs[i].group].params = specs[i].group == 0 ? t->params : t->params + 3;
        groups[specs[i].group].n++;
    }
    adam.lr = 0.01;
    plan.partition = partitions[mode / PLACES % PARTITIONS];
    config.plan = &plan;
    config.loss_scale = ZRO_ON;
    config.scale_init = 1024;
    config.growth_interval = 5;
    config.parameters_as_bucket_view = where == VIEWS && group != NULL ? ZRO_ON : ZRO_OFF;
    CHECK_OK(zro_optim_create(group, groups, 2, zro_rule_adam(), &adam, &config, &t->optim));
    CHECK_OK(zro_param_publish(t->optim, ZRO_ALL_PARAMS, 0)); /* there may be several machines */
    make_schedules(t);
    t->numbers[0] = (zro_value){ "epoch", 0 };
    t->numbers[1] = (zro_value){ "position", 0 };
    zro_save_config_init(&t->save);
    t->save.schedules = t->schedules;
    t->save.n_schedules = 2;
    t->save.numbers = t->numbers;
    t->save.n_numbers = 2;
}

static void end(training *t)
{
    zro_schedule_destroy(t->schedules[0]);
    zro_schedule_destroy(t->schedules[1]);
    zro_optim_destroy(t->optim);
    if (t->group != NULL)
        CHECK_OK(zro_barrier(t->group)); /* others may still read what exists once */
    zro_params_free(t->params, N);
    for (size_t i = 0; i < N; i++) {
        free(t->own[i]);
        free(t->grads[i]);
    }
}

static double scale_of(const training *t)
{
    zro_step_info info = ZRO_STEP_INFO_INIT;

    CHECK_OK(zro_optim_info(t->optim, &info));
    return info.scale;
}

static void set_gradients(training *t, int step)
{
    const double scale = scale_of(t);

    for (size_t i = 0; i < N; i++) {
        const zro_dtype dtype = specs[i].dtype;

        for (size_t k = 0; k < specs[i].count; k++) {
            const double x = ((double)(zt_mix((uint64_t)step * 64 + i, k) >> 11) / 0x1p52 - 1) * scale / 64;

            CHECK_OK(zro_convert((char *)t->grads[i] + k * zro_dtype_bytes(dtype), dtype, &x, ZRO_F64, 1));
        }
        t->params[i].grad_present = i != 2 || step > 3; /* one has no state for a while */
    }
    if (step == BEFORE - 3 || step == BEFORE + 3) { /* skipped: the loss scale goes down, and must be there again */
        const float infinite = INFINITY;

        memcpy(t->grads[0], &infinite, sizeof infinite);
    }
}

static void step_schedules(training *t, int step)
{
    static const double metrics[] = { 9, 8, 7, 7.5, 7.5, 7.5, 7.5, 7.5, 7.5, 7.5, 6, 6.5, 6.5, 6.5, 6.5, 6.5, 6.5 };

    CHECK_OK(zro_schedule_step(t->schedules[0]));
    CHECK_OK(zro_schedule_step_metric(t->schedules[1], metrics[step % (int)COUNT(metrics)]));
}

static trace look(const training *t)
{
    zro_step_info info = ZRO_STEP_INFO_INIT;
    trace out = { 0 };

    CHECK_OK(zro_params_hash(t->params, N, &out.hash));
    CHECK_OK(zro_optim_info(t->optim, &info));
    CHECK_OK(zro_optim_get_value(t->optim, 0, "lr", &out.lr[0]));
    CHECK_OK(zro_optim_get_value(t->optim, 1, "lr", &out.lr[1]));
    out.scale = info.scale;
    out.tracker = info.growth_tracker;
    return out;
}

static trace step(training *t, int s)
{
    set_gradients(t, s);
    CHECK_OK(zro_optim_step(t->optim, NULL));
    step_schedules(t, s);
    return look(t);
}

static int same(const trace *a, const trace *b)
{
    return a->hash == b->hash && a->lr[0] == b->lr[0] && a->lr[1] == b->lr[1] && a->scale == b->scale
           && a->tracker == b->tracker;
}

/* ---- files ---- */

/* A path that all ranks know; the first rank removes the file at the end. */
static const char *path_of(zt_rank *t)
{
    if (t->rank == 0)
        snprintf(t->shared->text[0], sizeof t->shared->text[0], "/tmp/zro-S93-%ld-%lx", (long)getpid(),
                 (long)(uintptr_t)t & 0xffffff);
    zt_meet(t);
    return t->shared->text[0];
}

static void remove_file(zt_rank *t, const char *path)
{
    zt_meet(t);
    if (t->rank == 0)
        CHECK(unlink(path) == 0);
    zt_meet(t);
}

/* ---- going on ---- */

/* Resumes with other initial values, and makes the steps that the trace says. */
static void go_on(zro_group *group, int mode, const char *path, const trace *want)
{
    training t;
    trace now;

    begin(&t, group, mode, 999);
    CHECK_OK(zro_optim_resume(t.optim, path, &t.save));
    now = look(&t);
    CHECK(same(&now, &want[0]));
    CHECK(t.numbers[0].value == 3 && t.numbers[1].value == 12345678901.0);
    for (int s = 0; s < AFTER; s++) {
        now = step(&t, BEFORE + s);
        if (!same(&now, &want[1 + s]))
            zt_fail(__FILE__, __LINE__,
                    "mode %d, step %d after the resume: lr %g, scale %g, must be %g and %g, or other values", mode, s,
                    now.lr[0], now.scale, want[1 + s].lr[0], want[1 + s].scale);
    }
    end(&t);
}

/* On the first n ranks. */
static void go_on_with(zt_rank *t, int n, int mode, const char *path, const trace *want)
{
    static const int ranks[] = { 0, 1, 2, 3 };
    zro_group *sub;

    CHECK_OK(zro_group_create_sub(t->group, ranks, n, &sub));
    if (sub != NULL)
        go_on(sub, mode, path, want);
    zro_group_destroy(sub);
}

static void resume(zt_rank *t)
{
    const char *path = path_of(t);
    const int stride = (t->backend & ZT_BOTH) != 0 && t->size <= 2 ? 1 : 5; /* each place and partition at least once */

    for (int mode = 0; mode < MODES; mode += stride) {
        trace want[1 + AFTER];
        training a;

        begin(&a, t->group, mode, 5);
        for (int s = 0; s < BEFORE; s++)
            want[0] = step(&a, s);
        CHECK(want[0].tracker > 0); /* in the middle of the interval */
        a.numbers[0].value = 3;
        a.numbers[1].value = 12345678901.0;
        CHECK_OK(zro_optim_save(a.optim, path, &a.save));
        a.numbers[0].value = 4;
        for (int s = 0; s < AFTER; s++)
            want[1 + s] = step(&a, BEFORE + s);
        end(&a);
        CHECK(want[AFTER].lr[0] < want[0].lr[0]);
        go_on(t->group, (mode + 5) % MODES, path, want);
        go_on_with(t, t->size > 1 ? t->size - 1 : 1, (mode + 7) % MODES, path, want);
        if (t->rank == 0)
            go_on(NULL, mode, path, want);
    }
    remove_file(t, path);
}

/* From one rank to all, and by parts of the two calls. */
static void by_parts(zt_rank *t)
{
    const char *path = path_of(t);
    trace want[1 + AFTER], now;
    zro_state *state = NULL;
    training a;

    if (t->rank == 0) {
        begin(&a, NULL, 0, 5);
        for (int s = 0; s < BEFORE; s++)
            (void)step(&a, s);
        a.numbers[0].value = 3;
        a.numbers[1].value = 12345678901.0;
        CHECK_OK(zro_optim_save(a.optim, path, &a.save));
        end(&a);
    }
    zt_meet(t);
    begin(&a, t->group, 1, 5);
    for (int s = 0; s < BEFORE; s++)
        want[0] = step(&a, s);
    for (int s = 0; s < AFTER; s++)
        want[1 + s] = step(&a, BEFORE + s);
    end(&a);
    go_on(t->group, 2, path, want);
    begin(&a, t->group, 3, 17);
    if (t->rank == 0)
        CHECK_OK(zro_state_read(path, &state));
    CHECK_OK(zro_state_broadcast(t->group, &state, 0));
    CHECK(zro_state_schedules(state) == 2);
    CHECK_OK(zro_optim_load(a.optim, state));
    CHECK_OK(zro_schedules_load(a.schedules, 2, state));
    zro_state_destroy(state);
    for (int s = 0; s < AFTER; s++) {
        now = step(&a, BEFORE + s);
        CHECK(same(&now, &want[1 + s]));
    }
    end(&a);
    remove_file(t, path);
}

/* What the owners have and nobody else knows yet is saved, too, and is what a state has. */
static void unpublished(zt_rank *t)
{
    const char *path = path_of(t);
    zro_state *state;
    training a, b;
    trace x, y;

    begin(&a, t->group, 0, 5);
    (void)step(&a, 0);
    set_gradients(&a, 1);
    CHECK_OK(zro_optim_step_local(a.optim, NULL));
    CHECK_OK(zro_optim_save(a.optim, path, &a.save));
    CHECK_OK(zro_optim_consolidate_with_data(a.optim, ZRO_ALL, &state));
    CHECK_OK(zro_optim_publish(a.optim));
    x = look(&a);
    for (size_t i = 0; i < N; i++) {
        zro_param p;

        CHECK_OK(zro_state_param(state, i, &p));
        CHECK(p.data != NULL);
        CHECK(specs[i].count == 0 || memcmp(p.data, a.params[i].data, specs[i].count * zro_dtype_bytes(specs[i].dtype)) == 0);
    }
    zro_state_destroy(state);
    begin(&b, t->group, 4, 6);
    CHECK_OK(zro_optim_resume(b.optim, path, &b.save));
    y = look(&b);
    CHECK(same(&x, &y));
    end(&b);
    end(&a);
    remove_file(t, path);
}

/* ---- what is refused ---- */

/* The last rank hears its own error, the others PEER; `all`: everybody's own. */
#define REFUSED(call, code, words)                                                                                             \
    do {                                                                                                                       \
        CHECK_STATUS(call, t->rank == t->size - 1 ? (code) : ZRO_ERR_PEER);                                                    \
        CHECK_TEXT(words);                                                                                                     \
    } while (0)

/* What a rank passes that is different on the last one. */
static zro_save_config odd(const zt_rank *t, const training *a, zro_save_config other)
{
    return t->rank == t->size - 1 ? other : a->save;
}

/* A file that the first rank can read, but all must refuse. */
static void refuse_file(zt_rank *t, training *a, const char *path, zro_status status, const char *words)
{
    CHECK_STATUS(zro_optim_resume(a->optim, path, &a->save), t->rank == 0 ? status : ZRO_ERR_PEER);
    CHECK_TEXT(words);
}

/* Writes a part of the file, or one byte of it changed. */
static void damage(zt_rank *t, const char *from, const char *to, long keep, long flip)
{
    static char bytes[1 << 18];
    FILE *in, *out;
    size_t n;

    if (t->rank != 0)
        return;
    in = fopen(from, "rb");
    out = fopen(to, "wb");
    CHECK(in != NULL && out != NULL);
    n = fread(bytes, 1, sizeof bytes, in);
    CHECK(n > 20000 && n < sizeof bytes);
    if (flip >= 0)
        bytes[flip] ^= 4;
    n = keep > 0 ? (size_t)keep : (size_t)((long)n + keep);
    CHECK(fwrite(bytes, 1, n, out) == n);
    fclose(in);
    fclose(out);
}

/* Everything that a file or the arguments of one rank can have wrong: an error on all, and a training that was not touched. */
static void refused(zt_rank *t)
{
    const char *path = path_of(t);
    char other[80];
    zro_schedule *plain, *list[2];
    zro_value unknown[1] = { { "unknown", 0 } };
    zro_state *state;
    trace before, now;
    training a, b;

    snprintf(other, sizeof other, "%s-other", path);
    begin(&a, t->group, 1, 5);
    for (int s = 0; s < BEFORE; s++)
        (void)step(&a, s);
    CHECK_OK(zro_optim_save(a.optim, path, &a.save));
    begin(&b, t->group, 0, 77);
    before = step(&b, 0);
    CHECK_OK(zro_schedule_exponential(b.optim, 1, &plain));
    list[0] = b.schedules[0];
    list[1] = plain;
    {
        zro_save_config none = ZRO_SAVE_CONFIG_INIT, wrong = b.save, numbers = b.save, foreign = b.save, null = b.save;

        wrong.schedules = list;
        wrong = odd(t, &b, wrong);
        numbers.numbers = unknown;
        numbers.n_numbers = 1;
        numbers = odd(t, &b, numbers);
        foreign.schedules = a.schedules;
        foreign = odd(t, &b, foreign);
        null.numbers = NULL;
        null = odd(t, &b, null);
        none = odd(t, &b, none);
        REFUSED(zro_optim_resume(b.optim, path, &wrong), ZRO_ERR_INVALID,
                "schedule_exponential: in its place the state has plateau");
        REFUSED(zro_optim_resume(b.optim, path, &none), ZRO_ERR_INVALID, "positions of 2 schedules, but there are 0");
        REFUSED(zro_optim_resume(b.optim, path, &numbers), ZRO_ERR_INVALID, "no number named \"unknown\"");
        REFUSED(zro_optim_resume(b.optim, path, &foreign), ZRO_ERR_INVALID, "belongs to another optimizer");
        REFUSED(zro_optim_resume(b.optim, path, &null), ZRO_ERR_INVALID, "numbers is NULL, but n_numbers = 2");
        REFUSED(zro_optim_save(b.optim, path, &foreign), ZRO_ERR_INVALID, "belongs to another optimizer");
        REFUSED(zro_optim_save(b.optim, t->rank == t->size - 1 ? NULL : path, &b.save), ZRO_ERR_INVALID,
                "optim_save: path is NULL");
        REFUSED(zro_optim_resume(b.optim, t->rank == t->size - 1 ? "" : path, &b.save), ZRO_ERR_INVALID, "path is empty");
    }
    refuse_file(t, &b, "/nowhere/at/all", ZRO_ERR_SYSTEM, "/nowhere/at/all");
    damage(t, path, other, -1, -1);
    refuse_file(t, &b, other, ZRO_ERR_FORMAT, "bytes");
    damage(t, path, other, 400, -1);
    refuse_file(t, &b, other, ZRO_ERR_FORMAT, "but only");
    damage(t, path, other, 0, 20);
    refuse_file(t, &b, other, ZRO_ERR_FORMAT, other);
    CHECK_STATUS(t->rank == 0 ? zro_optim_consolidate(a.optim, 0, &state) : zro_optim_consolidate_with_data(a.optim, 0, &state),
                 ZRO_ERR_MISMATCH);
    CHECK_TEXT("with data");
    CHECK_OK(zro_optim_consolidate(a.optim, 0, &state)); /* a state alone is not enough */
    if (t->rank == 0) {
        CHECK_OK(zro_state_set_schedules(state, a.schedules, 2));
        CHECK_OK(zro_state_set_number(state, "epoch", 1));
        CHECK_OK(zro_state_set_number(state, "position", 1));
        CHECK_OK(zro_state_write(state, other));
    }
    zro_state_destroy(state);
    CHECK_STATUS(zro_optim_resume(b.optim, other, &b.save), ZRO_ERR_INVALID);
    CHECK_TEXT("parameter w: the file does not have its data");
    CHECK_STATUS(zro_optim_save(a.optim, "/nowhere/at/all", &a.save), t->rank == 0 ? ZRO_ERR_SYSTEM : ZRO_ERR_PEER);
    b.params[1].data = NULL;
    CHECK_STATUS(zro_optim_resume(b.optim, path, &b.save), ZRO_ERR_INVALID);
    CHECK_TEXT("parameter half: data is NULL");
    CHECK_STATUS(zro_optim_save(b.optim, path, &b.save), ZRO_ERR_INVALID);
    CHECK_TEXT("parameter half: data is NULL");
    b.params[1].data = b.own[1];
    now = look(&b);
    CHECK(same(&before, &now) && b.numbers[0].value == 0);
    CHECK_OK(zro_optim_resume(b.optim, path, &b.save)); /* which would not be, had it been written over */
    before = look(&a);
    now = look(&b);
    CHECK(same(&before, &now));
    before = step(&a, BEFORE);
    now = step(&b, BEFORE);
    CHECK(same(&before, &now));
    zro_schedule_destroy(plain);
    end(&b);
    end(&a);
    if (t->rank == 0)
        unlink(other);
    remove_file(t, path);
}

/* A file of another model is refused, whatever is different. */
static void other_model(zt_rank *t)
{
    const char *path = path_of(t);
    training a, b;
    trace before, now;
    uint64_t hash, again;

    begin(&a, t->group, 0, 5);
    before = step(&a, 0);
    for (int k = 0; k < 3; k++) {
        zro_param_group group = ZRO_PARAM_GROUP_INIT;
        zro_optim *optim;

        begin(&b, t->group, 0, 6);
        if (k == 0)
            b.params[0].name = "v";
        else if (k == 1)
            b.params[0].shape[0]--;
        else
            b.params[5].shape[0]--; /* in the second half */
        group.params = b.params;
        group.n = k == 2 ? N : 3;
        CHECK_OK(zro_params_hash(b.params, N, &hash));
        CHECK_OK(zro_optim_create(t->group, &group, 1, zro_rule_adam(), NULL, NULL, &optim));
        CHECK_OK(zro_optim_save(optim, path, NULL));
        CHECK_STATUS(zro_optim_resume(a.optim, path, NULL), ZRO_ERR_INVALID);
        CHECK_TEXT("optim_resume: the state has"); /* not load, which the program did not call */
        now = look(&a);
        CHECK(same(&before, &now));
        CHECK_OK(zro_optim_resume(optim, path, NULL));
        CHECK_OK(zro_params_hash(b.params, N, &again));
        CHECK(hash == again);
        zro_optim_destroy(optim);
        end(&b);
    }
    end(&a);
    remove_file(t, path);
}

/* ---- memory ---- */

enum { ROOM = 1 << 20, LARGE = 1 << 20 };

/* 4 MiB of parameters and 8 MiB of state: who only sends takes next to nothing for them. */
static void memory_of_senders(zt_rank *t)
{
    const char *path = path_of(t);
    zro_param_group group = ZRO_PARAM_GROUP_INIT;
    zro_stats before = ZRO_STATS_INIT, after = ZRO_STATS_INIT;
    zro_optim *optim;
    zro_param param;
    float *data, *grad;

    if (zt_opt.max_count < LARGE)
        zt_skip(t, "4 MiB of parameters are more than --max-count allows");
    data = calloc(LARGE, sizeof *data);
    grad = calloc(LARGE, sizeof *grad);
    CHECK(data != NULL && grad != NULL);
    zro_param_make(&param, "w", ZRO_F32, data, grad, 1, (const size_t[]){ LARGE });
    group.params = &param;
    group.n = 1;
    CHECK_OK(zro_optim_create(t->group, &group, 1, zro_rule_adam(), NULL, NULL, &optim));
    CHECK_OK(zro_optim_step(optim, NULL));
    CHECK_OK(zro_optim_stats(optim, &before));
    CHECK_OK(zro_optim_save(optim, path, NULL));
    CHECK_OK(zro_optim_stats(optim, &after));
    CHECK(after.heap_bytes == before.heap_bytes && after.shared_bytes == before.shared_bytes);
    CHECK(after.heap_peak_bytes <= before.heap_peak_bytes || after.heap_peak_bytes - before.heap_bytes < ROOM);
    zro_optim_destroy(optim);
    free(data);
    free(grad);
    remove_file(t, path);
}

/* 16 MiB of parameters and 32 MiB of state, of which each of two ranks owns one half: the whole is in the memory of the first
 * rank alone. */
static void memory_of_receivers(zt_rank *t)
{
    const size_t n = 4 * LARGE;
    const char *path = path_of(t);
    zro_param_group group = ZRO_PARAM_GROUP_INIT;
    struct rusage before, after;
    zro_optim *optim;
    zro_param param;
    float *data, *grad;

    if (zt_opt.max_count < n)
        zt_skip(t, "16 MiB of parameters are more than --max-count allows");
    data = calloc(n, sizeof *data);
    grad = calloc(n, sizeof *grad);
    CHECK(data != NULL && grad != NULL);
    zro_param_make(&param, "w", ZRO_F32, data, grad, 1, &n);
    group.params = &param;
    group.n = 1;
    memset(data, 1, n * sizeof *data); /* pages that are there before */
    CHECK_OK(zro_optim_create(t->group, &group, 1, zro_rule_adam(), NULL, NULL, &optim));
    CHECK_OK(zro_optim_step(optim, NULL));
    CHECK_OK(zro_optim_save(optim, path, NULL));
    CHECK(getrusage(RUSAGE_SELF, &before) == 0);
    CHECK_OK(zro_optim_resume(optim, path, NULL));
    CHECK(getrusage(RUSAGE_SELF, &after) == 0);
    if (t->rank > 0)
        CHECK(after.ru_maxrss - before.ru_maxrss < 8 << 10); /* KiB */
    zro_optim_destroy(optim);
    free(data);
    free(grad);
    remove_file(t, path);
}

/* ---- failures ---- */

static int any(zt_rank *t, int mine)
{
    int all[ZT_MAX_RANKS], result = 0;

    zt_exchange(t, &mine, sizeof mine, all);
    for (int r = 0; r < t->size; r++)
        result |= all[r];
    return result;
}

/* The nth allocation fails on one rank: an error on all, and nothing has changed; 0 if there are no more. */
static int fail_once(zt_rank *t, training *b, const char *path, int odd, int saves, long nth)
{
    zro__point_plan plan = { .name = "memory.alloc", .action = ZRO__POINT_FAIL, .nth = nth };
    trace before = look(b), now;
    zro_status st;

    if (t->rank == odd)
        zro__point_plan_set(&plan);
    st = saves ? zro_optim_save(b->optim, path, &b->save) : zro_optim_resume(b->optim, path, &b->save);
    zro__point_plan_set(NULL);
    if (!any(t, st != ZRO_OK))
        return any(t, t->rank == odd && atomic_load(&plan.hits) >= nth); /* some do without */
    CHECK_STATUS(st, t->rank == odd ? ZRO_ERR_MEMORY : ZRO_ERR_PEER);
    now = look(b);
    CHECK(same(&before, &now));
    return 1;
}

static void memory_runs_out(zt_rank *t)
{
    const char *path = path_of(t);
    training a, b;
    trace x, y;

#ifndef ZRO__POINTS
    zt_skip(t, "the library was built without ZRO__POINTS");
#endif
    begin(&a, t->group, 0, 5);
    (void)step(&a, 0);
    (void)step(&a, 1);
    begin(&b, t->group, 5, 6);
    (void)step(&b, 0);
    for (int odd = 0; odd < t->size; odd++) {
        long nth = 1;

        while (fail_once(t, &a, path, odd, 1, nth))
            nth++;
        CHECK(nth > 1);
    }
    x = look(&a);
    for (int odd = 0; odd < t->size; odd++) {
        long nth = 1;

        (void)step(&b, 1); /* to be seen */
        while (fail_once(t, &b, path, odd, 0, nth))
            nth++;
        y = look(&b);
        CHECK(nth > 1 && same(&x, &y));
    }
    end(&b);
    end(&a);
    remove_file(t, path);
}

static void die_now(void *user)
{
    zt_die(user);
}

/* A rank dies after data may have been written: the others are told that their parameters are torn. */
static void death(zt_rank *t)
{
    zro__point_plan plan = { .name = "load.begun", .action = ZRO__POINT_KILL, .nth = 1, .kill_rank = die_now, .user = t };
    const char *path = path_of(t);
    zro_save_config none = ZRO_SAVE_CONFIG_INIT;
    training a;

#ifndef ZRO__POINTS
    zt_skip(t, "the library was built without ZRO__POINTS");
#endif
    begin(&a, t->group, (int)t->arg, 5);
    (void)step(&a, 0);
    CHECK_OK(zro_optim_save(a.optim, path, &a.save));
    if (t->rank == 0)
        zt_expect_lost(t, 1);
    CHECK_OK(zro_barrier(t->group));
    if (t->rank == 1)
        zro__point_plan_set(&plan);
    CHECK_STATUS(zro_optim_resume(a.optim, path, &a.save), ZRO_ERR_LOST);
    CHECK_TEXT("rank 1");
    CHECK_STATUS(zro_optim_save(a.optim, path, &none), ZRO_ERR_STATE);
    CHECK_TEXT("torn: rank 1 has published");
    CHECK_STATUS(zro_optim_resume(a.optim, path, &none), ZRO_ERR_STATE);
    CHECK_TEXT("torn: rank 1 has published");
    if (t->rank == 0)
        CHECK(unlink(path) == 0);
}

#define WORLDS (ZT_WORLD(1) | ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4))
#define SEVERAL (ZT_WORLD(2) | ZT_WORLD(3))

const zt_case cases_zero_save[] = {
    { "S93_resume", resume, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { "S93_by_parts", by_parts, SEVERAL, ZT_ALL, 0, 60, 0, 0 },
    { "S93_unpublished", unpublished, SEVERAL, ZT_ALL, 0, 0, 0, 0 },
    { "S93_refused", refused, SEVERAL, ZT_ALL, 0, 60, 0, 0 },
    { "S93_other_model", other_model, ZT_WORLD(1) | ZT_WORLD(2), ZT_BOTH, 0, 0, 0, 0 },
    { "S93_memory_of_senders", memory_of_senders, SEVERAL, ZT_ALL, 0, 60, 0, 0 },
    { "S93_memory_of_receivers", memory_of_receivers, ZT_WORLD(2), ZT_LOCAL, 0, 60, 0, 0 },
    { "S93_memory_runs_out", memory_runs_out, ZT_WORLD(2), ZT_LOCAL, 0, 60, 0, 0 },
    { "S93_death", death, ZT_WORLD(3), ZT_LOCAL, ZT_KILLS, 0, 0, OWN },
    { "S93_death_once", death, ZT_WORLD(3), ZT_LOCAL, ZT_KILLS, 0, 0, ONCE },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
