/* L-BFGS with PyTorch's numbers.
 *
 * All parameters one after another are one vector.  An iteration takes the change of position s and of gradient y since the
 * last one into a history of pairs, computes the direction from them (the two-loop recursion), and moves along it: by lr, or
 * as far as the line search says (wolfe.c).  A step is up to max_iter iterations.
 *
 * Vectors have the parameters' type and are all there from creation on.  Scalars that PyTorch holds in that type are doubles
 * rounded to it; sums have an order of their own, so they differ from PyTorch's in the last digits, but never between builds.
 *
 * A step that fails puts the parameters back.  The history stays, but a pair must not span the gap: has_last says whether
 * position and gradient of the last iteration are those that the parameters come from.
 *
 * The library computes in its own floating-point mode, the closure in the program's: call_closure is the only way out of
 * `minimize`, and neither is inlined (base/cpu.h says why). */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/isa.h"
#include "base/kernels.h"
#include "base/memory.h"
#include "base/param.h"
#include "base/settings.h"
#include "base/status.h"
#include "optim/wolfe.h"

#define NOINLINE __attribute__((noinline))

enum { LANES = 16 };

/* ---- vectors ---- */

typedef struct loops {
    size_t bytes; /* of an element */
    double (*dot)(const void *a, const void *b, size_t n);
    double (*sum_abs)(const void *a, size_t n);
    double (*max_abs)(const void *a, size_t n);
    void (*subtract)(void *out, const void *a, const void *b, size_t n);
    void (*scale)(void *out, const void *a, double s, size_t n);
    void (*add_scaled)(void *out, const void *a, double s, const void *b, size_t n);
} loops;

#define REAL float
#define real zro__f32
#define NAME(x) x##_f32
#include "optim/lbfgs_loops.h"
#undef REAL
#undef real
#undef NAME
#define REAL double
#define real zro__f64
#define NAME(x) x##_f64
#include "optim/lbfgs_loops.h"
#undef REAL
#undef real
#undef NAME

/* ---- the handle ---- */

/* A parameter's part of a vector. */
typedef struct part {
    size_t first, count;
    const char *name;
} part;

typedef struct pair {
    void *s, *y;
    double rho, alpha; /* 1 / (s y); of the recursion */
} pair;

struct zro_lbfgs {
    zro_lbfgs_config config;
    uint64_t max_eval;
    zro_dtype dtype;
    const loops *loops;
    zro_param *params;
    part *parts;
    size_t n, count; /* parameters; elements of a vector */
    zro__arena arena;

    /* A ring, one longer than the history: the oldest pair stays until a new one has proved good. */
    pair *pairs;
    size_t n_slots, n_pairs, oldest;

    void *grads[ZRO__WOLFE_PLACES]; /* two without line search */
    int grad, last_grad;            /* which of them is that of the parameters as they are; of the last iteration's beginning */
    void *direction;
    void *begin, *from; /* parameters at the beginning of the step; of the line search */
    double t, diagonal; /* the last iteration moved by t direction; scale of the first approximation */
    int has_last, is_stepping;
    uint64_t evaluations, iterations;
};

/* One call of step. */
typedef struct job {
    zro_lbfgs *l;
    zro_closure_fn fn;
    void *user;
    zro__fpmode *mode;
    double loss;
    uint64_t evaluations;
} job;

static const zro_lbfgs_config defaults = ZRO_LBFGS_CONFIG_INIT;

static double rounded(const zro_lbfgs *l, double x)
{
    return zro__rounded(l->dtype, x);
}

static double dot(const zro_lbfgs *l, const void *a, const void *b)
{
    return rounded(l, l->loops->dot(a, b, l->count));
}

/* ---- parameters and vectors ---- */

static char *at(const zro_lbfgs *l, const void *vector, size_t i)
{
    return (char *)vector + l->parts[i].first * l->loops->bytes;
}

static size_t bytes_of(const zro_lbfgs *l, size_t i)
{
    return l->parts[i].count * l->loops->bytes;
}

static void save_params(const zro_lbfgs *l, void *vector)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->parts[i].count > 0)
            memcpy(at(l, vector, i), l->params[i].data, bytes_of(l, i));
}

static void restore_params(const zro_lbfgs *l, const void *vector)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->parts[i].count > 0)
            memcpy(l->params[i].data, at(l, vector, i), bytes_of(l, i));
}

/* To t times the direction from `from`; NULL: from where they are. */
static void move_params(const zro_lbfgs *l, const void *from, double t)
{
    for (size_t i = 0; i < l->n; i++) {
        void *data = l->params[i].data;

        l->loops->add_scaled(data, from == NULL ? data : at(l, from, i), t, at(l, l->direction, i), l->parts[i].count);
    }
}

static zro_status gather_grads(const zro_lbfgs *l, void *vector)
{
    for (size_t i = 0; i < l->n; i++) {
        const zro_param *p = &l->params[i];

        if (l->parts[i].count == 0)
            continue;
        if (p->requires_grad == 0 || __atomic_load_n(&p->grad_present, __ATOMIC_ACQUIRE) == 0)
            memset(at(l, vector, i), 0, bytes_of(l, i));
        else if (p->grad == NULL)
            return zro__fail(ZRO_ERR_INVALID, "lbfgs: parameter %s: grad_present is set, but grad is NULL", l->parts[i].name);
        else
            memcpy(at(l, vector, i), p->grad, bytes_of(l, i));
    }
    return ZRO_OK;
}

static NOINLINE zro_status call_closure(const job *j, double *loss)
{
    zro_status st;

    zro__fpmode_leave(j->mode);
    st = j->fn(j->user, loss);
    zro__fpmode_enter(j->mode);
    return st;
}

/* Loss and gradient of the parameters as they are. */
static zro_status evaluate(job *j, void *grad, double *loss)
{
    zro_status st;

    *loss = NAN; /* what a closure that does not say gets */
    st = call_closure(j, loss);
    if (st != ZRO_OK)
        return st;
    st = gather_grads(j->l, grad);
    if (st != ZRO_OK)
        return st;
    j->evaluations++;
    j->l->evaluations++;
    return ZRO_OK;
}

/* ---- the direction ---- */

static pair *pair_at(const zro_lbfgs *l, size_t i)
{
    return &l->pairs[(l->oldest + i) % l->n_slots];
}

/* Takes what the last iteration has changed into the history, unless the function bends the wrong way there. */
static void add_pair(zro_lbfgs *l)
{
    pair *p = pair_at(l, l->n_pairs);
    double product;

    l->loops->subtract(p->y, l->grads[l->grad], l->grads[l->last_grad], l->count);
    l->loops->scale(p->s, l->direction, l->t, l->count);
    product = dot(l, p->y, p->s);
    if (!(product > rounded(l, 1e-10)))
        return;
    p->rho = rounded(l, 1 / product);
    l->diagonal = rounded(l, product / dot(l, p->y, p->y));
    if (l->n_pairs + 1 < l->n_slots)
        l->n_pairs++;
    else
        l->oldest = (l->oldest + 1) % l->n_slots;
}

/* The approximate inverse of the second derivatives, times the negative gradient. */
static void find_direction(zro_lbfgs *l)
{
    const loops *v = l->loops;
    void *d = l->direction;

    v->scale(d, l->grads[l->grad], -1, l->count);
    for (size_t i = l->n_pairs; i-- > 0;) {
        pair *p = pair_at(l, i);

        p->alpha = rounded(l, dot(l, p->s, d) * p->rho);
        v->add_scaled(d, d, -p->alpha, p->y, l->count);
    }
    v->scale(d, d, l->diagonal, l->count);
    for (size_t i = 0; i < l->n_pairs; i++) {
        pair *p = pair_at(l, i);
        double beta = rounded(l, dot(l, p->y, d) * p->rho);

        v->add_scaled(d, d, rounded(l, p->alpha - beta), p->s, l->count);
    }
}

/* Nothing is known of the function yet: lr in length, measured by the sum of |gradient|, but at most lr times the gradient. */
static double first_length(const zro_lbfgs *l, double lr)
{
    double inverse = rounded(l, 1 / rounded(l, l->loops->sum_abs(l->grads[l->grad], l->count)));

    return inverse < 1 ? rounded(l, inverse * lr) : lr;
}

/* Direction and first t of an iteration. */
static void begin_iteration(zro_lbfgs *l)
{
    double lr = rounded(l, l->config.lr);
    int is_first = !l->has_last && l->n_pairs == 0;

    l->iterations++;
    if (l->has_last)
        add_pair(l);
    if (is_first)
        l->diagonal = 1;
    find_direction(l);
    l->t = is_first ? first_length(l, lr) : lr;
    l->last_grad = l->grad;
    l->has_last = 1;
}

/* ---- the step ---- */

static zro_status evaluate_point(void *user, zro__wolfe_point *point)
{
    job *j = user;
    zro_lbfgs *l = j->l;
    zro_status st;

    move_params(l, l->from, point->t);
    st = evaluate(j, l->grads[point->place], &point->f);
    if (st == ZRO_OK)
        point->slope = dot(l, l->grads[point->place], l->direction);
    return st;
}

static zro_status move_by_search(job *j, double slope, double longest)
{
    zro_lbfgs *l = j->l;
    zro__wolfe w = { evaluate_point, j, longest, l->max_eval - j->evaluations, l->dtype };
    zro__wolfe_point start = { 0, j->loss, slope, l->grad }, found;
    zro_status st;

    save_params(l, l->from);
    st = zro__wolfe_search(&w, &start, l->t, &found);
    if (st != ZRO_OK)
        return st;
    move_params(l, l->from, found.t);
    l->t = found.t;
    l->grad = found.place;
    j->loss = found.f;
    return ZRO_OK;
}

/* The last iteration leaves the evaluation to the next step. */
static zro_status move_by_lr(job *j, int is_last)
{
    zro_lbfgs *l = j->l;

    move_params(l, NULL, l->t);
    if (is_last)
        return ZRO_OK;
    l->grad = !l->last_grad;
    return evaluate(j, l->grads[l->grad], &j->loss);
}

static int is_optimal(const zro_lbfgs *l)
{
    return l->loops->max_abs(l->grads[l->grad], l->count) <= rounded(l, l->config.tolerance_grad);
}

static NOINLINE zro_status minimize(job *j, double *loss)
{
    zro_lbfgs *l = j->l;
    double change = rounded(l, l->config.tolerance_change);
    zro_status st;

    l->grad = l->has_last && l->last_grad == 0;
    st = evaluate(j, l->grads[l->grad], &j->loss);
    if (st != ZRO_OK)
        return st;
    *loss = j->loss;
    if (is_optimal(l))
        return ZRO_OK;
    for (uint32_t i = 1;; i++) {
        double before = j->loss, slope, longest;

        begin_iteration(l);
        slope = dot(l, l->grads[l->grad], l->direction);
        if (slope > -change)
            return ZRO_OK;
        longest = l->loops->max_abs(l->direction, l->count);
        st = l->config.strong_wolfe ? move_by_search(j, slope, longest) : move_by_lr(j, i == l->config.max_iter);
        if (st != ZRO_OK)
            return st;
        if (i == l->config.max_iter || j->evaluations >= l->max_eval || is_optimal(l)
            || rounded(l, longest * fabs(l->t)) <= change || fabs(j->loss - before) < l->config.tolerance_change)
            return ZRO_OK;
    }
}

/* The parameters go back.  If already the first evaluation failed, the state is what it was; otherwise the last iteration is
 * one that the parameters do not come from any more. */
static void undo(const job *j)
{
    restore_params(j->l, j->l->begin);
    if (j->evaluations > 0)
        j->l->has_last = 0;
}

static zro_status check_data(const zro_lbfgs *l)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->parts[i].count > 0 && l->params[i].data == NULL)
            return zro__fail(ZRO_ERR_INVALID, "lbfgs: parameter %s: data is NULL", l->parts[i].name);
    return ZRO_OK;
}

zro_status zro_lbfgs_step(zro_lbfgs *lbfgs, zro_closure_fn fn, void *user, double *loss)
{
    zro__fpmode mode;
    job j = { .l = lbfgs, .fn = fn, .user = user, .mode = &mode };
    double first;
    zro_status st;

    if (lbfgs == NULL || fn == NULL)
        return zro__fail(ZRO_ERR_INVALID, "lbfgs: %s is NULL", lbfgs == NULL ? "the handle" : "the function");
    if (lbfgs->is_stepping)
        return zro__fail(ZRO_ERR_STATE, "lbfgs: a step inside a step");
    st = check_data(lbfgs);
    if (st != ZRO_OK)
        return st;
    lbfgs->is_stepping = 1;
    save_params(lbfgs, lbfgs->begin);
    zro__fpmode_enter(&mode);
    st = minimize(&j, &first);
    zro__fpmode_leave(&mode);
    if (st != ZRO_OK)
        undo(&j);
    else if (loss != NULL)
        *loss = first;
    lbfgs->is_stepping = 0;
    return st;
}

uint64_t zro_lbfgs_evaluations(const zro_lbfgs *lbfgs)
{
    return lbfgs == NULL ? 0 : lbfgs->evaluations;
}

uint64_t zro_lbfgs_iterations(const zro_lbfgs *lbfgs)
{
    return lbfgs == NULL ? 0 : lbfgs->iterations;
}

/* ---- creation ---- */

void zro_lbfgs_config_init(zro_lbfgs_config *config)
{
    if (config != NULL)
        *config = defaults;
}

static zro_status read_config(const zro_lbfgs_config *config, zro_lbfgs_config *out)
{
    zro_status st;

    *out = defaults;
    st = zro__config_take("zro_lbfgs_config", config, offsetof(zro_lbfgs_config, settings) + sizeof(zro_settings), out,
                          sizeof *out);
    if (st != ZRO_OK)
        return st;
    if (!(out->lr > 0 && out->lr <= DBL_MAX))
        return zro__fail(ZRO_ERR_INVALID, "zro_lbfgs_config: lr = %g, must be positive and finite", out->lr);
    if (out->max_iter == 0)
        return zro__fail(ZRO_ERR_INVALID, "zro_lbfgs_config: max_iter = 0, must be positive");
    if (!(out->tolerance_grad >= 0))
        return zro__fail(ZRO_ERR_INVALID, "zro_lbfgs_config: tolerance_grad = %g, must not be negative", out->tolerance_grad);
    if (!(out->tolerance_change >= 0))
        return zro__fail(ZRO_ERR_INVALID, "zro_lbfgs_config: tolerance_change = %g, must not be negative",
                         out->tolerance_change);
    if (out->history_size == 0)
        return zro__fail(ZRO_ERR_INVALID, "zro_lbfgs_config: history_size = 0, must be positive");
    if (out->strong_wolfe != ZRO_ON && out->strong_wolfe != ZRO_OFF)
        return zro__fail(ZRO_ERR_INVALID, "zro_lbfgs_config: strong_wolfe = %d, must be on or off", (int)out->strong_wolfe);
    return zro__settings_check(&out->settings);
}

static zro_status check_param(const zro_param *p, size_t index, zro_dtype dtype)
{
    char buffer[ZRO__NAME_BYTES];
    const char *name = zro__param_name(p->name, index, buffer);
    zro_status st = zro__param_check(p, index);

    if (st != ZRO_OK)
        return st;
    if (p->dtype != ZRO_F32 && p->dtype != ZRO_F64)
        return zro__fail(ZRO_ERR_UNSUPPORTED, "lbfgs: parameter %s: dtype = %d, must be f32 or f64", name, (int)p->dtype);
    if (p->dtype != dtype)
        return zro__fail(ZRO_ERR_UNSUPPORTED, "lbfgs: parameter %s is %s, but the first one is %s", name,
                         zro_dtype_name(p->dtype), zro_dtype_name(dtype));
    if (p->grad_dtype != ZRO_SAME && p->grad_dtype != dtype)
        return zro__fail(ZRO_ERR_UNSUPPORTED, "lbfgs: parameter %s: grad_dtype = %d, must be that of the parameter", name,
                         (int)p->grad_dtype);
    return ZRO_OK;
}

static zro_status check_params(const zro_param *params, size_t n)
{
    zro__numbered *list;
    zro_status st;

    if (params == NULL || n == 0)
        return zro__fail(ZRO_ERR_INVALID, "lbfgs: there are no parameters");
    for (size_t i = 0; i < n; i++) {
        st = check_param(&params[i], i, params[0].dtype);
        if (st != ZRO_OK)
            return st;
    }
    list = zro__alloc_array(NULL, ZRO__KIND_HANDLE, n, sizeof *list);
    if (list == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: comparing %zu parameters", n);
    for (size_t i = 0; i < n; i++)
        list[i] = (zro__numbered){ &params[i], i, zro_param_count(&params[i]) * zro_dtype_bytes(params[i].dtype) };
    st = zro__params_check_apart(list, n);
    zro__free(list);
    return st;
}

/* Elements in all, and the bytes of all names. */
static void measure(zro_lbfgs *l, size_t *names)
{
    char buffer[ZRO__NAME_BYTES];

    *names = 0;
    for (size_t i = 0; i < l->n; i++) {
        l->arena.overflow |= !zro__size_add(l->count, zro_param_count(&l->params[i]), &l->count);
        *names += strlen(zro__param_name(l->params[i].name, i, buffer)) + 1;
    }
}

static void set_parts(zro_lbfgs *l, char *names)
{
    char buffer[ZRO__NAME_BYTES];
    size_t first = 0;

    for (size_t i = 0; i < l->n; i++) {
        l->parts[i] = (part){ first, zro_param_count(&l->params[i]), names };
        first += l->parts[i].count;
        strcpy(names, zro__param_name(l->params[i].name, i, buffer));
        names += strlen(names) + 1;
    }
}

static void plan_memory(zro_lbfgs *l, size_t n_grads, size_t names, size_t *vector)
{
    zro__arena *arena = &l->arena;

    arena->overflow |= !zro__size_add(l->config.history_size, 1, &l->n_slots);
    arena->overflow |= !zro__size_mul(l->count, l->loops->bytes, vector) || !zro__size_round(*vector, 64, vector);
    zro__arena_plan(arena, l->n, sizeof *l->parts);
    zro__arena_plan(arena, names, 1);
    zro__arena_plan(arena, l->n_slots, sizeof *l->pairs);
    zro__arena_plan(arena, n_grads + 3, *vector); /* gradients; direction, begin, from */
    zro__arena_plan(arena, l->n_slots, *vector);
    zro__arena_plan(arena, l->n_slots, *vector);
}

static zro_status take_memory(zro_lbfgs *l)
{
    zro__arena *arena = &l->arena;
    size_t names, vector = 0, n_grads = l->config.strong_wolfe ? ZRO__WOLFE_PLACES : 2;
    char what[96];
    zro_status st;

    measure(l, &names);
    plan_memory(l, n_grads, names, &vector);
    snprintf(what, sizeof what, "lbfgs with history_size = %u and %zu elements", (unsigned)l->config.history_size, l->count);
    st = zro__arena_init(arena, NULL, what);
    if (st != ZRO_OK)
        return st;
    l->parts = zro__arena_take(arena, l->n, sizeof *l->parts);
    set_parts(l, zro__arena_take(arena, names, 1));
    l->pairs = zro__arena_take(arena, l->n_slots, sizeof *l->pairs);
    for (size_t i = 0; i < n_grads; i++)
        l->grads[i] = zro__arena_take(arena, vector, 1);
    l->direction = zro__arena_take(arena, vector, 1);
    l->begin = zro__arena_take(arena, vector, 1);
    l->from = zro__arena_take(arena, vector, 1);
    for (size_t i = 0; i < l->n_slots; i++) {
        l->pairs[i].s = zro__arena_take(arena, vector, 1);
        l->pairs[i].y = zro__arena_take(arena, vector, 1);
    }
    return ZRO_OK;
}

zro_status zro_lbfgs_create(zro_param *params, size_t n, const zro_lbfgs_config *config, zro_lbfgs **out)
{
    zro_lbfgs_config c;
    zro_lbfgs *l;
    zro_status st;

    if (out == NULL)
        return zro__fail(ZRO_ERR_INVALID, "lbfgs: out is NULL");
    *out = NULL;
    st = read_config(config, &c);
    if (st != ZRO_OK)
        return st;
    st = check_params(params, n);
    if (st != ZRO_OK)
        return st;
    l = zro__alloc(NULL, ZRO__KIND_HANDLE, sizeof *l);
    if (l == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: an lbfgs handle");
    l->config = c;
    l->max_eval = c.max_eval > 0 ? c.max_eval : (uint64_t)c.max_iter * 5 / 4;
    l->dtype = params[0].dtype;
    l->loops = l->dtype == ZRO_F32 ? &loops_f32 : &loops_f64;
    l->params = params;
    l->n = n;
    st = take_memory(l);
    if (st != ZRO_OK) {
        zro_lbfgs_destroy(l);
        return st;
    }
    *out = l;
    return ZRO_OK;
}

void zro_lbfgs_destroy(zro_lbfgs *lbfgs)
{
    if (lbfgs == NULL)
        return;
    zro__arena_free(&lbfgs->arena);
    zro__free(lbfgs);
}
