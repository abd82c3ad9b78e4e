/* The engine: see update.h. */
#include "optim/update.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/cpu.h"
#include "base/dtype.h"
#include "base/status.h"
#include "optim/random.h"
#include "optim/values.h"

/* ---- drivers ---- */

extern const zro__drive_fn zro__drive_base, zro__drive_avx2, zro__drive_avx512;

zro__drive_fn zro__drive_get(zro_kernels kernels)
{
#if defined(__x86_64__)
    if (kernels == ZRO_KERNELS_AVX512)
        return zro__drive_avx512;
    if (kernels == ZRO_KERNELS_AVX2)
        return zro__drive_avx2;
#endif
    (void)kernels;
    return zro__drive_base;
}

zro_status zro__update_init(zro__update *u, const zro_rule *rule, const zro__kernels *kernels, zro__pool *pool,
                            zro__account *account, const zro_optim_config *config)
{
    u->shard.rule = rule;
    u->shard.account = account;
    u->shard.masters = config->masters;
    u->kernels = kernels;
    u->pool = pool;
    u->drive = zro__drive_get(kernels->which);
    u->rounding = config->rounding;
    u->seed = config->seed;
    if (rule == NULL)
        return ZRO_OK;
    u->loops = zro__rule_loops(rule, kernels->which);
    u->values = zro__alloc_array(account, ZRO__KIND_HANDLE, rule->n_hypers, sizeof *u->values);
    return u->values != NULL ? ZRO_OK : zro__fail(ZRO_ERR_MEMORY, "out of memory: the values of rule %s", rule->name);
}

void zro__update_free(zro__update *u)
{
    zro__shard_free(&u->shard);
    zro__free(u->partials);
    zro__free(u->values);
    zro__free(u->scratch);
    memset(u, 0, sizeof *u);
}

/* ---- groups ---- */

/* Room for the largest run twice, if the rule needs it whole and cannot work on memory itself. */
static zro_status take_scratch(zro__update *u, const zro__run_of *runs, size_t n)
{
    size_t largest = u->shard.largest, bytes;
    void *more;

    if (u->shard.rule == NULL || u->shard.rule->whole != ZRO_ON)
        return ZRO_OK;
    for (size_t i = 0; i < n; i++)
        largest = runs[i].count > largest ? runs[i].count : largest;
    more = zro__size_mul(largest, 2 * sizeof(double), &bytes) ? zro__alloc(u->shard.account, ZRO__KIND_HANDLE, bytes) : NULL;
    if (more == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a whole parameter of %zu elements", largest);
    zro__free(u->scratch);
    u->scratch = more;
    return ZRO_OK;
}

zro_status zro__update_add(zro__update *u, const double *values, const zro__run_of *runs, size_t n)
{
    size_t blocks = u->shard.n_blocks;
    double *more;
    zro_status st;

    for (size_t i = 0; i < n; i++)
        blocks += runs[i].count / ZRO__BLOCK + 1;
    more = zro__alloc_array(u->shard.account, ZRO__KIND_HANDLE, blocks, sizeof *more);
    if (more == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: norms of %zu blocks", blocks);
    st = take_scratch(u, runs, n);
    if (st == ZRO_OK)
        st = zro__shard_add(&u->shard, values, runs, n);
    if (st != ZRO_OK) {
        zro__free(more);
        return st;
    }
    zro__free(u->partials);
    u->partials = more;
    return ZRO_OK;
}

/* ---- a step ---- */

static zro_status begin_group(zro__update *u, size_t group, void *user)
{
    const zro_rule *rule = u->shard.rule;
    double *values = u->shard.groups[group]->values;
    zro_status st;

    memcpy(u->values, values, rule->n_hypers * sizeof *values);
    rule->begin(u->values, group, user);
    st = zro__values_check(rule, u->values);
    if (st == ZRO_OK)
        st = zro__shard_ensure(&u->shard, group, u->values);
    if (st == ZRO_OK)
        memcpy(values, u->values, rule->n_hypers * sizeof *values);
    return st;
}

zro_status zro__update_begin(zro__update *u, void *user)
{
    const zro_rule *rule = u->shard.rule;
    zro_status st = zro__shard_look(&u->shard);

    for (size_t k = 0; st == ZRO_OK && rule != NULL && rule->begin != NULL && k < u->shard.n_groups; k++)
        st = begin_group(u, k, user);
    return st;
}

/* Scalars, and for which numbers they hold. */
typedef struct prepared {
    const zro__part_group *group; /* NULL: nothing is prepared */
    zro_dtype type;
    uint32_t needed, fresh;
    double before[ZRO_MAX_SLOTS], after[ZRO_MAX_SLOTS], begin[ZRO_MAX_SLOTS];
    float f32[ZRO_MAX_SCALARS];
    double f64[ZRO_MAX_SCALARS];
} prepared;

/* One thread's part of a step. */
typedef struct part {
    zro__update *u;
    void *user;
    prepared now;
    zro__drive drive;
} part;

/* What all threads share. */
typedef struct step {
    zro__update *u;
    const zro__factors *factors;
    void *user;
} step;

static double *numbers_of(const zro__update *u, const zro__part_group *g, const zro__piece *p)
{
    return &g->numbers[(size_t)(p - g->pieces) * u->shard.rule->n_slots];
}

/* Those of the piece before its step: what has not begun yet has its first value. */
static void numbers_before(const zro_rule *rule, const double *numbers, const prepared *now, double *before)
{
    for (size_t s = 0; s < rule->n_slots; s++)
        before[s] = (now->fresh >> s & 1) != 0 ? now->begin[s] : numbers[s];
}

static void prepare(part *w, const zro__part_group *g, const zro__piece *p, const double *numbers)
{
    const zro_rule *rule = w->u->shard.rule;
    prepared *now = &w->now;
    zro_rule_step s = { g->values, now->after, 0, 0, w->user, now->f64 };

    now->group = g;
    now->type = p->type;
    now->needed = zro__values_slots(rule, g->values);
    now->fresh = now->needed & ~p->present;
    s.fresh = now->fresh;
    for (size_t i = 0; i < rule->n_slots; i++)
        now->begin[i] = zro__values_init(rule, i, g->values);
    memcpy(now->before, numbers, rule->n_slots * sizeof *numbers);
    numbers_before(rule, numbers, now, now->after);
    memset(now->f64, 0, sizeof now->f64);
    if (rule->prepare != NULL)
        rule->prepare(&s);
    for (size_t i = 0; i < rule->n_slots; i++)
        if (rule->slots[i].kind == ZRO_SLOT_NUMBER && p->type == ZRO_F32)
            now->after[i] = (double)(float)now->after[i];
    for (size_t i = 0; i < ZRO_MAX_SCALARS; i++)
        now->f32[i] = (float)now->f64[i];
}

static int is_prepared(const part *w, const zro__part_group *g, const zro__piece *p, const double *numbers)
{
    const prepared *now = &w->now;

    if (now->group != g || now->type != p->type || now->fresh != (now->needed & ~p->present))
        return 0;
    for (size_t i = 0; i < w->u->shard.rule->n_slots; i++)
        if (now->before[i] != numbers[i])
            return 0;
    return 1;
}

static void commit(const part *w, zro__piece *p, double *numbers)
{
    for (size_t i = 0; i < w->u->shard.rule->n_slots; i++)
        numbers[i] = w->now.after[i];
    p->present |= w->now.needed | (w->drive.master != NULL ? (uint32_t)1 << ZRO__MASTER : 0);
}

static void *element(const void *base, size_t i, zro_dtype type)
{
    return (char *)(uintptr_t)base + i * zro__float_bytes(type);
}

static void run_elements(part *w, const zro__part_group *g, const zro__piece *p, size_t from, size_t to)
{
    zro__update *u = w->u;
    zro__drive *d = &w->drive;

    d->count = to - from;
    d->first = p->first + from;
    d->param = p->index;
    d->type = p->type;
    d->loop = p->type == ZRO_F64 ? u->loops.f64 : u->loops.f32;
    d->data_type = p->data_type;
    d->grad_type = p->grad_type;
    d->grad = element(p->param->grad, d->first, p->grad_type);
    d->data = element(p->param->data, d->first, p->data_type);
    d->master = zro__piece_has_master(&u->shard, p) ? element(zro__shard_slot(g, p, ZRO__MASTER), from, ZRO_F32) : NULL;
    for (size_t s = 0; s < u->shard.rule->n_slots; s++)
        d->slots[s] =
            (w->now.needed >> s & 1) != 0 && g->slots[s] != NULL ? element(zro__shard_slot(g, p, s), from, p->type) : NULL;
    d->fill = w->now.fresh;
    d->fill_master = d->master != NULL && (p->present >> ZRO__MASTER & 1) == 0;
    d->scalars = p->type == ZRO_F64 ? (const void *)w->now.f64 : w->now.f32;
    if (d->stochastic)
        d->key = zro__random_key(u->seed, u->steps, p->index);
    u->drive(d);
}

/* A piece that is not all of it in this part is left to the caller to commit: another thread may still read its numbers. */
static void run_piece(void *ctx, zro__part_group *g, zro__piece *p, size_t from, size_t to, size_t block)
{
    part *w = ctx;
    double *numbers = numbers_of(w->u, g, p);

    (void)block;
    if (!is_prepared(w, g, p, numbers))
        prepare(w, g, p, numbers);
    run_elements(w, g, p, from, to);
    if (from == 0 && to == p->count)
        commit(w, p, numbers);
}

static int is_whole(const zro__update *u)
{
    return u->shard.rule != NULL && u->shard.rule->whole == ZRO_ON;
}

/* Each thread has one part.  Whole parameters are not cut, and have one scratch. */
static size_t parts_of(const zro__update *u)
{
    return is_whole(u) ? 1 : zro__pool_threads(u->pool);
}

/* The border between part k - 1 and part k. */
static size_t cut_at(const zro__update *u, size_t k)
{
    size_t parts = parts_of(u), each = u->shard.n_blocks / parts, more = u->shard.n_blocks % parts;

    return k * each + (k < more ? k : more);
}

static void part_init(part *w, const step *s)
{
    memset(w, 0, sizeof *w);
    w->u = s->u;
    w->user = s->user;
    w->drive.user = s->user;
    w->drive.factors = s->factors;
    w->drive.ahead = zro__cpu_prefetch();
    w->drive.begin = w->now.begin;
    w->drive.whole = is_whole(s->u);
    w->drive.scratch = s->u->scratch;
    w->drive.stochastic = s->u->rounding == ZRO_STOCHASTIC;
}

static void run_part(void *ctx, size_t first, size_t last)
{
    const step *s = ctx;
    zro__fpmode mode;
    part w;

    zro__fpmode_enter(&mode);
    part_init(&w, s);
    zro__shard_walk(&s->u->shard, cut_at(s->u, first), cut_at(s->u, last), run_piece, &w);
    zro__fpmode_leave(&mode);
}

/* Pieces that no part had all of. */
typedef struct cut_piece {
    part w;
    const zro__piece *done;
} cut_piece;

static void commit_cut(void *ctx, zro__part_group *g, zro__piece *p, size_t from, size_t to, size_t block)
{
    cut_piece *c = ctx;
    double *numbers = numbers_of(c->w.u, g, p);

    (void)to;
    (void)block;
    if (from == 0 || p == c->done)
        return;
    prepare(&c->w, g, p, numbers);
    c->w.drive.master = zro__piece_has_master(&c->w.u->shard, p) ? zro__shard_slot(g, p, ZRO__MASTER) : NULL;
    commit(&c->w, p, numbers);
    c->done = p;
}

void zro__update_run(zro__update *u, const zro__factors *factors, void *user)
{
    size_t parts = parts_of(u);
    step s = { u, factors, user };
    cut_piece c;

    if (u->shard.rule == NULL)
        return;
    zro__pool_run(u->pool, run_part, &s, parts);
    part_init(&c.w, &s);
    c.done = NULL;
    for (size_t k = 1; k < parts; k++)
        if (cut_at(u, k) < u->shard.n_blocks)
            zro__shard_walk(&u->shard, cut_at(u, k), cut_at(u, k) + 1, commit_cut, &c);
    u->steps++;
}

/* ---- gradients ---- */

typedef struct measure {
    zro__update *u;
    double p;
    int ask_finite;
    atomic_int infinite;
} measure;

static void measure_piece(void *ctx, zro__part_group *g, zro__piece *p, size_t from, size_t to, size_t block)
{
    measure *m = ctx;
    const zro__kernels *kernels = m->u->kernels;

    (void)g;
    for (size_t at = from; at < to; at += ZRO__BLOCK, block++) {
        const void *grad = element(p->param->grad, p->first + at, p->grad_type);
        size_t n = to - at < ZRO__BLOCK ? to - at : ZRO__BLOCK;

        if (m->ask_finite && !isfinite(kernels->block_norm(grad, p->grad_type, n, (double)INFINITY)))
            atomic_store_explicit(&m->infinite, 1, memory_order_relaxed); /* read after the pool's own barrier */
        if (m->p != 0)
            m->u->partials[block] = kernels->block_norm(grad, p->grad_type, n, m->p);
    }
}

static void measure_part(void *ctx, size_t first, size_t last)
{
    measure *m = ctx;

    zro__shard_walk(&m->u->shard, cut_at(m->u, first), cut_at(m->u, last), measure_piece, m);
}

/* The blocks' parts in order, whoever computed them. */
static double add_up(const double *partials, size_t n, double p)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        if (isinf(p))
            sum = ((partials[i] > sum) | (partials[i] != partials[i])) ? partials[i] : sum;
        else
            sum += partials[i];
    return isinf(p) ? sum : p == 2 ? sqrt(sum) : p == 1 ? sum : pow(sum, 1 / p);
}

zro__measured zro__update_measure(zro__update *u, double p, int ask_finite)
{
    measure m = { u, p, ask_finite, 0 };
    zro__measured result = { 1, NAN };

    memset(u->partials, 0, u->shard.n_blocks * sizeof *u->partials);
    zro__pool_run(u->pool, measure_part, &m, parts_of(u));
    result.finite = !atomic_load_explicit(&m.infinite, memory_order_relaxed);
    if (p != 0)
        result.norm = add_up(u->partials, u->shard.n_blocks, p);
    return result;
}

static void assign_f32(const zro_rule_tile *t)
{
    memcpy(t->data, t->grad, t->count * sizeof(float));
}

static void assign_f64(const zro_rule_tile *t)
{
    memcpy(t->data, t->grad, t->count * sizeof(double));
}

/* A step whose rule is "the parameter becomes the gradient", and whose parameter is the gradient. */
static void grads_piece(void *ctx, zro__part_group *g, zro__piece *p, size_t from, size_t to, size_t block)
{
    part *w = ctx;
    zro__drive *d = &w->drive;

    (void)g;
    (void)block;
    d->count = to - from;
    d->data_type = d->grad_type = p->grad_type;
    d->type = p->grad_type == ZRO_F64 ? ZRO_F64 : ZRO_F32;
    d->loop = d->type == ZRO_F64 ? assign_f64 : assign_f32;
    d->data = element(p->param->grad, p->first + from, p->grad_type);
    d->grad = d->data;
    w->u->drive(d);
}

static void grads_part(void *ctx, size_t first, size_t last)
{
    const step *s = ctx;
    zro__fpmode mode;
    part w;

    zro__fpmode_enter(&mode);
    part_init(&w, s);
    w.drive.whole = w.drive.stochastic = 0;
    zro__shard_walk(&s->u->shard, cut_at(s->u, first), cut_at(s->u, last), grads_piece, &w);
    zro__fpmode_leave(&mode);
}

void zro__update_grads(zro__update *u, const zro__factors *factors)
{
    step s = { u, factors, NULL };

    if (factors->unscale != 1 || factors->clip != 1 || factors->value != 0)
        zro__pool_run(u->pool, grads_part, &s, parts_of(u));
}
