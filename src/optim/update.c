/* The engine: see update.h. */
#include "optim/update.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/cpu.h"
#include "base/dtype.h"
#include "base/isa.h"
#include "base/status.h"
#include "optim/random.h"
#include "optim/values.h"

enum {
    SETS = 64,
    ROUND = 4096
}; /* of a round: different scalars; pieces, few enough to be in the caches when their turn comes */

/* Scalars, and for which pieces they hold. */
typedef struct zro__set {
    zro__part_group *group;
    zro_dtype type;
    uint32_t needed, fresh;       /* bits: slots that the group has; that begin now */
    uint32_t has_master, present; /* the piece's, before */
    double before[ZRO_MAX_SLOTS], after[ZRO_MAX_SLOTS], begin[ZRO_MAX_SLOTS];
    float f32[ZRO_MAX_SCALARS];
    double f64[ZRO_MAX_SCALARS];
} zro__set;

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
    u->has_factors = config->clip_norm != 0 || config->clip_value != 0 || config->loss_scale == ZRO_ON;
    u->sets = zro__alloc_array(account, ZRO__KIND_HANDLE, SETS, sizeof *u->sets);
    return u->sets != NULL ? ZRO_OK : zro__fail(ZRO_ERR_MEMORY, "out of memory: the scalars of rule %s", rule->name);
}

void zro__update_free(zro__update *u)
{
    zro__shard_free(&u->shard);
    zro__free(u->values);
    zro__free(u->sets);
    zro__free(u->scratch);
    memset(u, 0, sizeof *u);
}

/* ---- groups ---- */

/* Makes room for `need` elements in an array that may move, twice as much as before at least. */
static zro_status reserve(const zro__update *u, void **array, size_t *room, size_t need, size_t bytes, const char *what)
{
    size_t wanted = need > 2 * *room ? need : 2 * *room;
    void *more;

    if (need <= *room)
        return ZRO_OK;
    more = zro__alloc_array(u->shard.account, ZRO__KIND_HANDLE, wanted, bytes);
    if (more == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: %s", what);
    zro__free(*array);
    *array = more;
    *room = wanted;
    return ZRO_OK;
}

static int is_whole(const zro__update *u)
{
    return u->shard.rule != NULL && u->shard.rule->whole == ZRO_ON;
}

/* Elements for which a rule that needs whole parameters cannot work on memory itself. */
static size_t needs_scratch(const zro__update *u, const zro__run_of *run)
{
    const zro_param *p = run->param;
    zro_dtype grad = p->grad_dtype == ZRO_SAME ? p->dtype : p->grad_dtype;
    int direct = !u->has_factors && grad == p->dtype && (p->dtype == ZRO_F32 || p->dtype == ZRO_F64);

    return is_whole(u) && !direct ? run->count : 0;
}

zro_status zro__update_add(zro__update *u, const double *values, size_t first_index, const zro__run_of *runs, size_t n)
{
    const size_t n_values = u->shard.rule != NULL ? u->shard.rule->n_hypers : 0;
    size_t scratch = 0;
    void *array;
    zro_status st;

    for (size_t i = 0; i < n; i++)
        scratch = needs_scratch(u, &runs[i]) > scratch ? needs_scratch(u, &runs[i]) : scratch;
    array = u->values;
    st = reserve(u, &array, &u->n_values, (u->shard.n_groups + 1) * n_values, sizeof *u->values, "values of groups");
    u->values = array;
    if (st == ZRO_OK)
        st = reserve(u, &u->scratch, &u->n_scratch, scratch, 2 * sizeof(double), "a whole parameter");
    return st == ZRO_OK ? zro__shard_add(&u->shard, values, first_index, runs, n) : st;
}

void zro__update_drop(zro__update *u)
{
    zro__shard_drop(&u->shard);
}

/* ---- values ---- */

static int has_begin(const zro__update *u)
{
    return u->shard.rule != NULL && u->shard.rule->begin != NULL;
}

zro_status zro__update_begin(zro__update *u, void *user)
{
    const zro_rule *rule = u->shard.rule;
    zro_status st = ZRO_OK;

    for (size_t k = 0; has_begin(u) && st == ZRO_OK && k < u->shard.n_groups; k++) {
        double *values = u->values + k * rule->n_hypers;

        memcpy(values, u->shard.groups[k]->values, rule->n_hypers * sizeof *values);
        rule->begin(values, k, user);
        st = zro__values_check(rule, values);
        if (st == ZRO_OK)
            st = zro__shard_ensure(&u->shard, k, values, 0);
    }
    return st;
}

/* All of them are good, or none would be taken. */
static void take_values(zro__update *u)
{
    const size_t n = u->shard.rule->n_hypers;

    for (size_t k = 0; has_begin(u) && k < u->shard.n_groups; k++)
        memcpy(u->shard.groups[k]->values, u->values + k * n, n * sizeof *u->values);
}

/* ---- scalars ---- */

static double *numbers_of(const zro__update *u, const zro__part_group *g, const zro__piece *p)
{
    return &g->numbers[(size_t)(p - g->pieces) * u->shard.rule->n_slots];
}

static int fits(const zro__update *u, const zro__set *set, const zro__part_group *g, const zro__piece *p, const double *numbers)
{
    if (set->group != g || set->type != p->type || set->present != p->present || set->has_master != (p->master != SIZE_MAX))
        return 0;
    for (size_t i = 0; i < u->shard.rule->n_slots; i++)
        if (set->before[i] != numbers[i])
            return 0;
    return 1;
}

static void prepare(zro__update *u, zro__set *set, zro__part_group *g, const zro__piece *p, const double *numbers, void *user)
{
    const zro_rule *rule = u->shard.rule;
    zro_rule_step s = { g->values, set->after, 0, p->type, user, set->f64 };

    set->group = g;
    set->type = p->type;
    set->present = p->present;
    set->has_master = p->master != SIZE_MAX;
    set->needed = zro__values_slots(rule, g->values);
    set->fresh = s.fresh = set->needed & ~p->present;
    for (size_t i = 0; i < rule->n_slots; i++) {
        set->begin[i] = zro__values_init(rule, i, g->values);
        set->before[i] = numbers[i];
        set->after[i] = (set->fresh >> i & 1) != 0 ? set->begin[i] : numbers[i];
    }
    memset(set->f64, 0, sizeof set->f64);
    if (rule->prepare != NULL)
        rule->prepare(&s);
    for (size_t i = 0; i < rule->n_slots; i++)
        if (rule->slots[i].kind == ZRO_SLOT_NUMBER && p->type == ZRO_F32)
            set->after[i] = (double)(float)set->after[i];
    for (size_t i = 0; i < ZRO_MAX_SCALARS; i++)
        set->f32[i] = (float)set->f64[i];
}

/* Where in the shard a step is. */
typedef struct place {
    size_t group, piece;
} place;

static size_t block_of(const zro__shard *shard, place at)
{
    return at.group < shard->n_groups ? shard->groups[at.group]->blocks[at.piece] : shard->n_blocks;
}

/* Gives a piece its set, and its numbers what they are after the step; 0 if there is no set left. */
static int prepare_piece(zro__update *u, zro__part_group *g, zro__piece *p, size_t *n_sets, void *user)
{
    double *numbers = numbers_of(u, g, p);
    const zro__set *set;

    if (*n_sets == 0 || !fits(u, &u->sets[*n_sets - 1], g, p, numbers)) {
        if (*n_sets == SETS)
            return 0;
        prepare(u, &u->sets[(*n_sets)++], g, p, numbers, user);
    }
    p->set = (uint32_t)(*n_sets - 1);
    set = &u->sets[p->set];
    for (size_t i = 0; i < u->shard.rule->n_slots; i++)
        numbers[i] = set->after[i];
    p->present |= set->needed | (uint32_t)(p->master != SIZE_MAX) << ZRO__MASTER;
    return 1;
}

/* Prepares pieces from a place on until the round is full, and returns where it ends. */
static place prepare_round(zro__update *u, place at, void *user)
{
    size_t n_sets = 0, n_pieces = 0;

    for (; at.group < u->shard.n_groups; at.group++, at.piece = 0) {
        zro__part_group *g = u->shard.groups[at.group];

        for (; at.piece < g->n; at.piece++) {
            if (!zro__piece_is_active(g, at.piece))
                continue;
            if (n_pieces++ == ROUND || !prepare_piece(u, g, &g->pieces[at.piece], &n_sets, user))
                return at;
        }
    }
    return at;
}

/* ---- loops ---- */

/* What all threads share: the blocks [first, last) of a round. */
typedef struct step {
    zro__update *u;
    const zro__factors *factors;
    void *user;
    size_t first, last;
} step;

/* One thread's part of it. */
typedef struct part {
    zro__update *u;
    const zro__set *set; /* that the drive is set up for */
    zro__drive drive;
} part;

static void *element(const void *base, size_t i, zro_dtype type)
{
    return (char *)(uintptr_t)base + i * zro__float_bytes(type);
}

/* For random numbers: the parameter's own count if the rule has one, which goes on where loaded state ended; else the
 * engine's. */
static uint64_t step_number(const zro__update *u, const zro__set *set)
{
    for (size_t i = 0; i < u->shard.rule->n_slots; i++)
        if (u->shard.rule->slots[i].kind == ZRO_SLOT_COUNT && set->after[i] >= 0 && set->after[i] < 0x1p63)
            return (uint64_t)set->after[i];
    return u->steps;
}

/* The processor does not see small parameters coming, which lie anywhere: their addresses are known a few pieces ahead. */
static ZRO__INLINE void look_ahead(const zro__part_group *g, const zro__piece *p, size_t n_slots)
{
    enum { NEXT = 3, FAR = 8, SMALL = 1024 };

    if (g->n - (size_t)(p - g->pieces) <= FAR)
        return;
    __builtin_prefetch(p[FAR].param, 0, 3);
    p += NEXT;
    if (p->count > SMALL || p->param->grad == NULL)
        return;
    zro__prefetch(element(p->param->grad, p->first, p->grad_type), 0, p->count * zro__float_bytes(p->grad_type), 0);
    zro__prefetch(element(p->param->data, p->first, p->data_type), 0, p->count * zro__float_bytes(p->data_type), 1);
    for (size_t s = 0; s < n_slots; s++)
        if (g->slots[s] != NULL)
            zro__prefetch((char *)g->slots[s] + p->offset, 0, p->count * zro__float_bytes(p->type), 1);
}

/* What all pieces of a set have in common. */
static void begin_set(part *w, const zro__set *set)
{
    zro__drive *d = &w->drive;

    w->set = set;
    d->type = set->type;
    d->loop = set->type == ZRO_F64 ? w->u->loops.f64 : w->u->loops.f32;
    d->n_slots = w->u->shard.rule->n_slots;
    d->fill = set->fresh;
    d->fill_master = set->has_master && (set->present >> ZRO__MASTER & 1) == 0;
    d->begin = set->begin;
    d->scalars = set->type == ZRO_F64 ? (const void *)set->f64 : set->f32;
    memset(d->slots, 0, sizeof d->slots);
}

static void run_piece(void *ctx, zro__part_group *g, zro__piece *p, size_t from, size_t to, size_t block)
{
    part *w = ctx;
    zro__update *u = w->u;
    const zro__set *set = &u->sets[p->set];
    zro__drive *d = &w->drive;

    (void)block;
    if (set != w->set)
        begin_set(w, set);
    look_ahead(g, p, d->n_slots);
    d->count = to - from;
    d->first = p->first + from;
    d->param = p->index;
    d->data_type = p->data_type;
    d->grad_type = p->grad_type;
    d->grad = element(p->param->grad, d->first, p->grad_type);
    d->data = element(p->param->data, d->first, p->data_type);
    d->master = set->has_master ? element(zro__shard_slot(g, p, ZRO__MASTER), from, ZRO_F32) : NULL;
    for (size_t s = 0; s < d->n_slots; s++)
        if ((set->needed >> s & 1) != 0 && g->slots[s] != NULL)
            d->slots[s] = element((char *)g->slots[s] + p->offset, from, set->type);
    if (d->stochastic)
        d->key = zro__random_key(u->seed, step_number(u, set), p->index);
    u->drive(d);
}

/* Each thread has one part.  Whole parameters are not cut, and have one scratch. */
static size_t parts_of(const zro__update *u)
{
    return is_whole(u) ? 1 : zro__pool_threads(u->pool);
}

/* The border between part k - 1 and part k of the blocks [first, last). */
static size_t cut_at(const zro__update *u, size_t first, size_t last, size_t k)
{
    size_t parts = parts_of(u), each = (last - first) / parts, more = (last - first) % parts;

    return first + k * each + (k < more ? k : more);
}

/* The blocks of the parts [first, last), with `fn` for their pieces. */
static void walk_parts(const step *s, size_t first, size_t last, zro__walk_fn fn, void *ctx)
{
    zro__shard_walk(&s->u->shard, cut_at(s->u, s->first, s->last, first), cut_at(s->u, s->first, s->last, last), fn, ctx);
}

static void part_init(part *w, const step *s)
{
    memset(w, 0, sizeof *w);
    w->u = s->u;
    w->drive.user = s->user;
    w->drive.factors = s->factors;
    w->drive.ahead = zro__cpu_prefetch();
}

static void run_part(void *ctx, size_t first, size_t last)
{
    const step *s = ctx;
    zro__fpmode mode;
    part w;

    zro__fpmode_enter(&mode);
    part_init(&w, s);
    w.drive.whole = is_whole(s->u);
    w.drive.scratch = s->u->scratch;
    w.drive.stochastic = s->u->rounding == ZRO_STOCHASTIC;
    walk_parts(s, first, last, run_piece, &w);
    zro__fpmode_leave(&mode);
}

void zro__update_run(zro__update *u, const zro__factors *factors, void *user)
{
    step s = { u, factors, user, 0, 0 };
    place at = { 0, 0 };

    if (u->shard.rule == NULL)
        return;
    take_values(u);
    while (s.first < u->shard.n_blocks) {
        at = prepare_round(u, at, user);
        s.last = block_of(&u->shard, at);
        zro__pool_run(u->pool, run_part, &s, parts_of(u));
        s.first = s.last;
    }
}

/* ---- gradients ---- */

typedef struct measure {
    step all;
    double *partials;
    double p;
    int ask_finite;
    atomic_int infinite;
} measure;

/* As the rule will see it: f64 gradients may be too large for it. */
static int is_finite(double largest, zro_dtype type)
{
    return type == ZRO_F64 ? isfinite(largest) : isfinite((float)largest);
}

static void measure_piece(void *ctx, zro__part_group *g, zro__piece *p, size_t from, size_t to, size_t block)
{
    measure *m = ctx;
    const zro__update *u = m->all.u;

    (void)g;
    (void)block;
    for (size_t at = from; at < to; at += ZRO__BLOCK) {
        const void *grad = element(p->param->grad, p->first + at, p->grad_type);
        size_t n = to - at < ZRO__BLOCK ? to - at : ZRO__BLOCK;

        if (m->ask_finite && !is_finite(u->kernels->block_norm(grad, p->grad_type, n, (double)INFINITY), p->type))
            atomic_store_explicit(&m->infinite, 1, memory_order_relaxed); /* read after the pool's own barrier */
        if (m->p != 0)
            m->partials[p->block + at / ZRO__BLOCK] = u->kernels->block_norm(grad, p->grad_type, n, m->p);
    }
}

static void measure_part(void *ctx, size_t first, size_t last)
{
    measure *m = ctx;

    walk_parts(&m->all, first, last, measure_piece, m);
}

double zro__norm_of(const double *partials, size_t n, double p)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        if (isinf(p))
            sum = ((partials[i] > sum) | (partials[i] != partials[i])) ? partials[i] : sum;
        else
            sum += partials[i];
    return isinf(p) ? sum : p == 2 ? sqrt(sum) : p == 1 ? sum : pow(sum, 1 / p);
}

/* Pieces that are not active, and those without elements, add nothing. */
static void clear_partials(const zro__update *u, double *partials)
{
    for (size_t k = 0; k < u->shard.n_groups; k++) {
        const zro__part_group *g = u->shard.groups[k];

        for (size_t i = 0; i < g->n; i++)
            memset(partials + g->pieces[i].block, 0, zro__blocks_of(g->pieces[i].count) * sizeof *partials);
    }
}

int zro__update_measure(zro__update *u, double *partials, double p, int ask_finite)
{
    measure m = { { u, NULL, NULL, 0, u->shard.n_blocks }, partials, p, ask_finite, 0 };

    if (p != 0)
        clear_partials(u, partials);
    zro__pool_run(u->pool, measure_part, &m, parts_of(u));
    return !atomic_load_explicit(&m.infinite, memory_order_relaxed);
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
    walk_parts(s, first, last, grads_piece, &w);
    zro__fpmode_leave(&mode);
}

void zro__update_grads(zro__update *u, const zro__factors *factors)
{
    step s = { u, factors, NULL, 0, u->shard.n_blocks };

    if (factors->unscale != 1 || factors->clip != 1 || factors->value != 0)
        zro__pool_run(u->pool, grads_part, &s, parts_of(u));
}
