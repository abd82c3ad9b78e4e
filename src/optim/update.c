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
    MAX_SETS = 64,    /* the most sets of a round */
    MAX_PIECES = 4096 /* the most pieces of a round: few enough to be in the caches still when their loop runs */
};

/* Prepared scalars, and the properties of a piece for which they hold. */
typedef struct zro__set {
    zro__shard_group *group;
    zro_dtype type;
    uint32_t has_master;
    uint32_t present;             /* bit s: slot s had its first values before this step */
    uint32_t needed;              /* bit s: the group's values need slot s */
    uint32_t fresh;               /* bit s: slot s gets its first values in this step */
    double before[ZRO_MAX_SLOTS]; /* single numbers before the step */
    double after[ZRO_MAX_SLOTS];  /* single numbers after the step */
    double begin[ZRO_MAX_SLOTS];  /* what the elements of a fresh slot are set to */
    double f64[ZRO_MAX_SCALARS];
    float f32[ZRO_MAX_SCALARS];
} zro__set;

zro_status zro__update_init(zro__update *u, const zro_rule *rule, const zro__kernels *kernels, zro__pool *pool,
                            zro__account *account, const zro_optim_config *config)
{
    u->shard.rule = rule;
    u->shard.account = account;
    u->shard.masters = config->masters;
    u->kernels = kernels;
    u->pool = pool;
    u->drive = *ZRO__ISA_PICK(zro__drive, kernels->which);
    u->rounding = config->rounding;
    u->seed = config->seed;
    if (rule == NULL)
        return ZRO_OK;
    u->loops = zro__rule_loops(rule, kernels->which);
    u->has_factors = config->clip_norm != 0 || config->clip_value != 0 || config->loss_scale == ZRO_ON;
    u->sets = zro__alloc_array(account, ZRO__KIND_HANDLE, MAX_SETS, sizeof *u->sets);
    return u->sets != NULL ? ZRO_OK : zro__fail(ZRO_ERR_MEMORY, "out of memory: the scalars of rule %s", rule->name);
}

void zro__update_free(zro__update *u)
{
    zro__shard_free(&u->shard);
    zro__free(u->sets);
    zro__free(u->scratch);
    memset(u, 0, sizeof *u);
}

/* ---- groups ---- */

static int is_whole(const zro__update *u)
{
    return u->shard.rule != NULL && u->shard.rule->whole == ZRO_ON;
}

/* Whether a rule that needs whole parameters can work on this one in its own memory. */
static int is_direct(const zro__update *u, const zro_param *p)
{
    int same = p->grad_dtype == ZRO_SAME || p->grad_dtype == p->dtype;

    return !u->has_factors && same && (p->dtype == ZRO_F32 || p->dtype == ZRO_F64);
}

zro_status zro__update_add(zro__update *u, const double *values, size_t first_index, const zro__owned_range *ranges, size_t n)
{
    size_t scratch = 0;

    for (size_t i = 0; i < n && is_whole(u); i++)
        if (!is_direct(u, ranges[i].param) && ranges[i].count > scratch)
            scratch = ranges[i].count;
    if (!zro__grow(u->shard.account, &u->scratch, &u->n_scratch, scratch, 2 * sizeof(double)))
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a copy of a parameter of %zu elements", scratch);
    return zro__shard_add(&u->shard, values, first_index, ranges, n);
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
        const zro__shard_group *g = u->shard.groups[k];

        memcpy(g->next_values, g->values, rule->n_hypers * sizeof *g->values);
        rule->begin(g->next_values, k, user);
        st = zro__values_check(rule, g->next_values);
        if (st == ZRO_OK)
            st = zro__shard_ensure(&u->shard, k, g->next_values, 0);
    }
    return st;
}

void zro__update_take(zro__update *u)
{
    u->n_fused = 0;
    for (size_t k = 0; has_begin(u) && k < u->shard.n_groups; k++) {
        const zro__shard_group *g = u->shard.groups[k];

        memcpy(g->values, g->next_values, u->shard.rule->n_hypers * sizeof *g->values);
    }
}

/* ---- scalars ---- */

static int fits(const zro__update *u, const zro__set *set, const zro__shard_group *g, const zro__piece *p,
                const double *numbers)
{
    if (set->group != g || set->type != p->type || set->present != p->present || set->has_master != (p->master != SIZE_MAX))
        return 0;
    for (size_t i = 0; i < u->shard.rule->n_slots; i++)
        if (set->before[i] != numbers[i])
            return 0;
    return 1;
}

static void prepare(zro__update *u, zro__set *set, zro__shard_group *g, const zro__piece *p, const double *numbers, void *user)
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

/* How far a step has come. */
typedef struct position {
    size_t group, piece;
} position;

/* Gives a piece its set, and its numbers what they are after the step; 0 if there is no set left. */
static int prepare_piece(zro__update *u, zro__shard_group *g, zro__piece *p, size_t *n_sets, void *user)
{
    double *numbers = &g->numbers[(size_t)(p - g->pieces) * u->shard.rule->n_slots];
    const zro__set *set;

    if (*n_sets == 0 || !fits(u, &u->sets[*n_sets - 1], g, p, numbers)) {
        if (*n_sets == MAX_SETS)
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

/* Prepares pieces from a position on until the round is full, and returns the position where it ends. */
static position prepare_round(zro__update *u, position at, void *user)
{
    size_t n_sets = 0, n_pieces = 0;

    for (; at.group < u->shard.n_groups; at.group++, at.piece = 0) {
        zro__shard_group *g = u->shard.groups[at.group];

        for (; at.piece < g->n; at.piece++) {
            if (!zro__piece_is_active(g, at.piece))
                continue;
            if (n_pieces++ == MAX_PIECES || !prepare_piece(u, g, &g->pieces[at.piece], &n_sets, user))
                return at;
        }
    }
    return at;
}

/* ---- a pass over the shard ---- */

/* One pass: what the threads share. */
typedef struct pass {
    zro__update *u;
    zro__walk_fn visit; /* called for the pieces, with a worker as context */
    size_t first, last; /* the blocks of the pass */
    const zro__factors *factors;
    void *user;
    double *partials; /* measure: where the blocks' parts of the norm go */
    double p;         /* measure: which norm; 0: none */
    int ask_finite;   /* measure: whether all gradients are finite is asked for */
    atomic_int found; /* measure: a gradient is not finite */
} pass;

/* What each thread has for itself. */
typedef struct worker {
    pass *pass;
    const zro__set *set; /* the set that the drive is prepared for */
    zro__drive drive;
} worker;

static void run_piece(void *ctx, zro__shard_group *g, zro__piece *p, size_t from, size_t to);

static worker new_worker(pass *s)
{
    worker w = { .pass = s };

    w.drive.user = s->user;
    w.drive.factors = s->factors;
    w.drive.ahead = zro__cpu_prefetch();
    w.drive.kernels = s->u->kernels;
    if (s->visit == run_piece) {
        w.drive.whole = is_whole(s->u);
        w.drive.scratch = s->u->scratch;
        w.drive.stochastic = s->u->rounding == ZRO_STOCHASTIC;
    }
    return w;
}

/* One share of the pass: the blocks [first, last), counted from the first of the pass. */
static void run_share(void *ctx, size_t first, size_t last)
{
    pass *s = ctx;
    worker w = new_worker(s);
    zro__fpmode mode;

    zro__fpmode_enter(&mode);
    zro__shard_walk(&s->u->shard, s->first + first, s->first + last, s->visit, &w);
    zro__fpmode_leave(&mode);
}

/* Whole parameters are not divided over threads, and have one scratch. */
static void run_pass(pass *s)
{
    zro__pool_run(is_whole(s->u) ? NULL : s->u->pool, run_share, s, s->last - s->first);
}

/* ---- the update ---- */

static void *element(const void *base, size_t i, zro_dtype type)
{
    return (char *)(uintptr_t)base + i * zro__float_bytes(type);
}

/* The number of the step for random numbers: the parameter's own count of steps if the rule keeps one, which goes on where a
 * loaded state ended; else the engine's. */
static uint64_t step_number(const zro__update *u, const zro__set *set)
{
    for (size_t i = 0; i < u->shard.rule->n_slots; i++)
        if (u->shard.rule->slots[i].kind == ZRO_SLOT_COUNT && set->after[i] >= 0 && set->after[i] < 0x1p63)
            return (uint64_t)set->after[i];
    return u->steps;
}

/* The processor does not see small parameters coming, which lie anywhere: their addresses are known a few pieces ahead. */
static ZRO__INLINE void prefetch_next(const zro__shard_group *g, const zro__piece *p, size_t n_slots)
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
static void begin_set(worker *w, const zro__set *set)
{
    const zro__update *u = w->pass->u;
    zro__drive *d = &w->drive;

    w->set = set;
    d->type = set->type;
    d->loop = set->type == ZRO_F64 ? u->loops.f64 : u->loops.f32;
    d->n_slots = u->shard.rule->n_slots;
    d->fill = set->fresh;
    d->fill_master = set->has_master && (set->present >> ZRO__MASTER & 1) == 0;
    d->begin = set->begin;
    d->scalars = set->type == ZRO_F64 ? (const void *)set->f64 : set->f32;
    memset(d->slots, 0, sizeof d->slots);
}

static void run_piece(void *ctx, zro__shard_group *g, zro__piece *p, size_t from, size_t to)
{
    worker *w = ctx;
    zro__update *u = w->pass->u;
    const zro__set *set = &u->sets[p->set];
    zro__drive *d = &w->drive;

    if (set != w->set)
        begin_set(w, set);
    prefetch_next(g, p, d->n_slots);
    d->count = to - from;
    d->first = p->first + from;
    d->param = p->index;
    d->data_type = p->data_type;
    d->grad_type = p->grad_type;
    d->grad = d->sources == NULL ? element(p->param->grad, d->first, p->grad_type) : NULL;
    d->data = element(p->param->data, d->first, p->data_type);
    d->master = set->has_master ? element(zro__shard_slot(g, p, ZRO__MASTER), from, ZRO_F32) : NULL;
    for (size_t s = 0; s < d->n_slots; s++)
        if ((set->needed >> s & 1) != 0 && g->slots[s] != NULL)
            d->slots[s] = element((char *)g->slots[s] + p->offset, from, set->type);
    if (d->stochastic)
        d->key = zro__random_key(u->seed, step_number(u, set), p->index);
    u->drive(d);
}

void zro__update_run(zro__update *u, const zro__factors *factors, void *user)
{
    pass s = { .u = u, .visit = run_piece, .factors = factors, .user = user };
    position at = { 0, 0 };

    if (u->shard.rule == NULL)
        return;
    zro__update_take(u);
    while (s.first < u->shard.n_blocks) {
        at = prepare_round(u, at, user);
        s.last = at.group < u->shard.n_groups ? u->shard.groups[at.group]->blocks[at.piece] : u->shard.n_blocks;
        run_pass(&s);
        s.first = s.last;
    }
}

void zro__update_prepare(zro__update *u, zro__shard_group *g, zro__piece *p, void *user)
{
    size_t n_sets = u->n_fused;

    if (!prepare_piece(u, g, p, &n_sets, user)) {
        n_sets = 0;
        (void)prepare_piece(u, g, p, &n_sets, user);
    }
    u->n_fused = n_sets;
}

static __attribute__((noinline)) void apply(worker *w, zro__shard_group *g, zro__piece *p, size_t from, size_t count)
{
    run_piece(w, g, p, from, from + count);
}

void zro__update_apply(zro__update *u, zro__shard_group *g, zro__piece *p, size_t from, size_t count,
                       const zro__sources *sources, const zro__factors *factors, void *user)
{
    pass s = { .u = u, .visit = run_piece, .factors = factors, .user = user };
    worker w = new_worker(&s);
    zro__fpmode mode;

    w.drive.sources = sources;
    w.drive.ahead = zro__cpu_prefetch_fused();
    zro__fpmode_enter(&mode);
    apply(&w, g, p, from, count);
    zro__fpmode_leave(&mode);
}

/* ---- gradients ---- */

/* Whether it is finite in the type that the rule computes with: an f64 gradient may be too large for f32. */
static int is_finite(double largest, zro_dtype type)
{
    return type == ZRO_F64 ? isfinite(largest) : isfinite((float)largest);
}

/* Up to a block of a piece; 1 if it is finite, or that is not asked for. */
static int measure_block(const zro__kernels *kernels, const zro__piece *p, size_t at, size_t n, double *partials, double norm,
                         int ask_finite)
{
    const void *grad = element(p->param->grad, p->first + at, p->grad_type);

    if (norm != 0)
        partials[p->block + at / ZRO__BLOCK] = kernels->block_norm(grad, p->grad_type, n, norm);
    return !ask_finite || is_finite(kernels->block_norm(grad, p->grad_type, n, (double)INFINITY), p->type);
}

static void measure_piece(void *ctx, zro__shard_group *g, zro__piece *p, size_t from, size_t to)
{
    pass *s = ((worker *)ctx)->pass;

    (void)g;
    for (size_t at = from; at < to; at += ZRO__BLOCK)
        if (!measure_block(s->u->kernels, p, at, to - at < ZRO__BLOCK ? to - at : ZRO__BLOCK, s->partials, s->p, s->ask_finite))
            atomic_store_explicit(&s->found, 1, memory_order_relaxed); /* read after the pool's own barrier */
}

static __attribute__((noinline)) int measure_sources(const zro__update *u, const zro__piece *p, size_t from, size_t count,
                                                     const zro__sources *sources, double *partials, double norm, int ask_finite)
{
    const size_t size = zro__float_bytes(p->grad_type);
    int finite = 1;

    for (size_t at = 0; at < count; at += ZRO__BLOCK) {
        const size_t n = count - at < ZRO__BLOCK ? count - at : ZRO__BLOCK;
        char *block = element(p->param->grad, p->first + from + at, p->grad_type);

        for (size_t t = 0; t < n; t += ZRO__TILE) {
            double tile[ZRO__TILE] __attribute__((aligned(64)));
            const size_t m = n - t < ZRO__TILE ? n - t : ZRO__TILE;

            u->kernels->reduce_tile(sources->reduce, sources->src, at + t, m, tile);
            memcpy(block + t * size, tile, m * size);
        }
        finite &= measure_block(u->kernels, p, from + at, n, partials, norm, ask_finite);
    }
    return finite;
}

int zro__update_measure_sources(const zro__update *u, const zro__piece *p, size_t from, size_t count,
                                const zro__sources *sources, double *partials, double norm, int ask_finite)
{
    zro__fpmode mode;
    int finite;

    zro__fpmode_enter(&mode);
    finite = measure_sources(u, p, from, count, sources, partials, norm, ask_finite);
    zro__fpmode_leave(&mode);
    return finite;
}

/* Pieces that are not active, and those without elements, add nothing to the norm. */
void zro__update_clear_partials(const zro__update *u, double *partials)
{
    for (size_t k = 0; k < u->shard.n_groups; k++) {
        const zro__shard_group *g = u->shard.groups[k];

        for (size_t i = 0; i < g->n; i++)
            memset(partials + g->pieces[i].block, 0, zro__blocks_of(g->pieces[i].count) * sizeof *partials);
    }
}

int zro__update_measure(zro__update *u, double *partials, double p, int ask_finite)
{
    pass s = {
        .u = u, .visit = measure_piece, .last = u->shard.n_blocks, .partials = partials, .p = p, .ask_finite = ask_finite
    };

    if (p != 0)
        zro__update_clear_partials(u, partials);
    run_pass(&s);
    return !atomic_load_explicit(&s.found, memory_order_relaxed);
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
static void scale_piece(void *ctx, zro__shard_group *g, zro__piece *p, size_t from, size_t to)
{
    worker *w = ctx;
    zro__drive *d = &w->drive;

    (void)g;
    d->count = to - from;
    d->data_type = d->grad_type = p->grad_type;
    d->type = p->grad_type == ZRO_F64 ? ZRO_F64 : ZRO_F32;
    d->loop = d->type == ZRO_F64 ? assign_f64 : assign_f32;
    d->data = element(p->param->grad, p->first + from, p->grad_type);
    d->grad = d->data;
    w->pass->u->drive(d);
}

void zro__update_grads(zro__update *u, const zro__factors *factors)
{
    pass s = { .u = u, .visit = scale_piece, .last = u->shard.n_blocks, .factors = factors };

    if (factors->unscale != 1 || factors->clip != 1 || factors->value != 0)
        run_pass(&s);
}
