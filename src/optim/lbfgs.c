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
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bounds.h"
#include "base/cpu.h"
#include "base/dtype.h"
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
    size_t bytes; /* size of an element */
    double (*dot)(const void *a, const void *b, size_t n);
    double (*sum_abs)(const void *a, size_t n);
    double (*max_abs)(const void *a, size_t n);
    void (*scale)(void *out, const void *a, double s, size_t n);
    void (*add_scaled)(void *out, const void *a, double s, const void *b, size_t n);
} loops;

#define SELF "optim/lbfgs_loops.h"
#include "optim/loops.h"

/* ---- the handle ---- */

/* Where the elements of a parameter stand in a vector. */
typedef struct segment {
    zro_param *param;
    size_t at, bytes; /* in the vector */
    size_t count;     /* elements */
    size_t index;     /* of the parameter in the list */
    const char *name; /* a copy of its name, or NULL */
} segment;

typedef struct pair {
    void *s, *y;  /* vectors: the change of position and of gradient */
    double rho;   /* 1 / (s y) */
    double alpha; /* between the two loops of the recursion */
} pair;

struct zro_lbfgs {
    zro_lbfgs_config config;
    uint64_t max_eval;
    zro_dtype dtype;
    const loops *loops;
    segment *segments; /* of the parameters that have elements */
    size_t n;          /* segments */
    size_t count;      /* elements of a vector */
    zro__arena arena;

    /* A ring, one longer than the history: the oldest pair stays until a new one has proved good. */
    pair *pairs;
    size_t n_slots; /* length of the ring */
    size_t n_pairs; /* pairs in the history */
    size_t oldest;  /* where in the ring the history begins */

    void *grads[ZRO__WOLFE_BUFFERS]; /* gradients; two of them without line search */
    int grad;                        /* which of grads belongs to the parameters as they are */
    int last_grad;                   /* which of grads belongs to the beginning of the last iteration */
    void *direction;
    void *begin;     /* the parameters at the beginning of the step */
    void *from;      /* the parameters at the beginning of the line search */
    double t;        /* the last iteration moved the parameters by t times the direction */
    double diagonal; /* the inverse of the second derivatives is first taken for this number times the identity */
    int has_last;    /* direction, t and last_grad are those that led to the parameters as they are */
    int is_stepping;
    uint64_t evaluations, iterations; /* how many there were in all steps together */
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

static double rounded(const zro_lbfgs *l, double x)
{
    return zro__rounded(l->dtype, x);
}

static double dot(const zro_lbfgs *l, const void *a, const void *b)
{
    return rounded(l, l->loops->dot(a, b, l->count));
}

/* ---- parameters and vectors ---- */

static char *at(const void *vector, const segment *s)
{
    return (char *)(uintptr_t)vector + s->at;
}

/* The program may move the data of a parameter, before a step and in the closure, but there must be some. */
static zro_status check_data(const zro_lbfgs *l)
{
    for (const segment *s = l->segments; s < l->segments + l->n; s++)
        if (s->param->data == NULL)
            return zro__param_fail(ZRO_ERR_INVALID, s->name, s->index, "data is NULL");
    return ZRO_OK;
}

static void save_params(const zro_lbfgs *l, void *vector)
{
    for (const segment *s = l->segments; s < l->segments + l->n; s++)
        memcpy(at(vector, s), s->param->data, s->bytes);
}

/* After a failure, which may be that data are NULL. */
static void restore_params(const zro_lbfgs *l, const void *vector)
{
    for (const segment *s = l->segments; s < l->segments + l->n; s++)
        if (s->param->data != NULL)
            memcpy(s->param->data, at(vector, s), s->bytes);
}

/* Moves the parameters to `from` plus t times the direction; NULL: from where they are. */
static void move_params(const zro_lbfgs *l, const void *from, double t)
{
    for (const segment *s = l->segments; s < l->segments + l->n; s++) {
        void *data = s->param->data;

        l->loops->add_scaled(data, from == NULL ? data : at(from, s), t, at(l->direction, s), s->count);
    }
}

static zro_status gather_grads(const zro_lbfgs *l, void *vector)
{
    for (const segment *s = l->segments; s < l->segments + l->n; s++)
        if (!zro__param_has_grad(s->param))
            memset(at(vector, s), 0, s->bytes);
        else if (s->param->grad == NULL)
            return zro__param_fail(ZRO_ERR_INVALID, s->name, s->index, "grad_present is set, but grad is NULL");
        else
            memcpy(at(vector, s), s->param->grad, s->bytes);
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

    *loss = NAN; /* for closures that do not set it */
    st = call_closure(j, loss);
    if (st == ZRO_OK)
        st = check_data(j->l);
    if (st == ZRO_OK)
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

    l->loops->add_scaled(p->y, l->grads[l->grad], -1, l->grads[l->last_grad], l->count);
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
    st = evaluate(j, l->grads[point->buffer], &point->f);
    if (st == ZRO_OK)
        point->slope = dot(l, l->grads[point->buffer], l->direction);
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
    l->grad = found.buffer;
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

zro_status zro_lbfgs_step(zro_lbfgs *lbfgs, zro_closure_fn fn, void *user, double *loss)
{
    zro__fpmode mode;
    job j = { .l = lbfgs, .fn = fn, .user = user, .mode = &mode };
    double first;
    zro_status st;

    if (lbfgs == NULL || fn == NULL)
        return zro__fail(ZRO_ERR_INVALID, "lbfgs: %s is NULL", lbfgs == NULL ? "the handle" : "the function");
    if (lbfgs->is_stepping)
        return zro__fail(ZRO_ERR_STATE, "lbfgs: the closure of a step has called step for the same handle");
    st = check_data(lbfgs);
    if (st != ZRO_OK)
        return st;
    lbfgs->is_stepping = 1;
    save_params(lbfgs, lbfgs->begin);
    zro__fpmode_enter(&mode);
    st = minimize(&j, &first);
    zro__fpmode_leave(&mode);
    if (st != ZRO_OK) {
        restore_params(lbfgs, lbfgs->begin);
        if (j.evaluations > 0) /* else nothing but the parameters has changed */
            lbfgs->has_last = 0;
    } else if (loss != NULL) {
        *loss = first;
    }
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

ZRO__DEFINE_INIT(zro_lbfgs_config, ZRO_LBFGS_CONFIG_INIT)

static zro_status check_config(const zro_lbfgs_config *c)
{
    const zro__bound bounds[] = {
        { "lr", c->lr, 0, DBL_MAX, ZRO_OPEN_LOW },
        { "max_iter", c->max_iter, 1, HUGE_VAL, 0 },
        { "tolerance_grad", c->tolerance_grad, 0, HUGE_VAL, 0 },
        { "tolerance_change", c->tolerance_change, 0, HUGE_VAL, 0 },
        { "history_size", c->history_size, 1, HUGE_VAL, 0 },
        { "strong_wolfe", c->strong_wolfe, 0, 1, ZRO__SWITCH },
    };
    zro_status st = zro__bounds_check("zro_lbfgs_config", bounds, sizeof bounds / sizeof *bounds);

    return st == ZRO_OK ? zro__settings_check(&c->settings) : st;
}

static zro_status check_param(const zro_param *p, size_t index, zro_dtype dtype)
{
    const char *type = zro__dtype_text(p->dtype), *grad_type = zro__dtype_text(zro__param_grad_type(p));
    zro_status st = zro__param_check(p, index);

    if (st != ZRO_OK)
        return st;
    if (p->dtype != ZRO_F32 && p->dtype != ZRO_F64)
        return zro__param_fail(ZRO_ERR_UNSUPPORTED, p->name, index, "it is %s, must be f32 or f64", type);
    if (p->dtype != dtype)
        return zro__param_fail(ZRO_ERR_UNSUPPORTED, p->name, index, "it is %s, but the first one is %s", type,
                               zro__dtype_text(dtype));
    if (zro__param_grad_type(p) != dtype)
        return zro__param_fail(ZRO_ERR_UNSUPPORTED, p->name, index, "it is %s, but its gradient is %s", type, grad_type);
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
        list[i] =
            (zro__numbered){ &params[i], i, zro_param_count(&params[i]) * zro_dtype_bytes(params[i].dtype), params[i].data };
    st = zro__params_check_apart(list, n);
    zro__free(list);
    return st;
}

static size_t name_bytes(const zro_param *p)
{
    return p->name != NULL ? strlen(p->name) + 1 : 0;
}

/* Where each parameter stands in the vectors, and its name, which is copied. */
static void set_segments(zro_lbfgs *l, zro_param *params, size_t n, char *names)
{
    size_t at = 0;

    for (size_t i = 0; i < n; i++) {
        const size_t count = zro_param_count(&params[i]), bytes = count * l->loops->bytes;

        if (count == 0)
            continue;
        l->segments[l->n++] =
            (segment){ &params[i], at, bytes, count, i, params[i].name != NULL ? strcpy(names, params[i].name) : NULL };
        at += bytes;
        names += name_bytes(&params[i]);
    }
}

/* Counts the elements of a vector; returns the bytes of one, and in *names those of all names. */
static size_t measure(zro_lbfgs *l, const zro_param *params, size_t n, size_t *names)
{
    size_t bytes = 0;

    for (size_t i = 0; i < n; i++) {
        l->arena.overflow |= !zro__size_add(l->count, zro_param_count(&params[i]), &l->count);
        *names += name_bytes(&params[i]);
    }
    l->arena.overflow |= !zro__size_mul(l->count, l->loops->bytes, &bytes) || !zro__size_round(bytes, 64, &bytes);
    return bytes;
}

static zro_status take_memory(zro_lbfgs *l, zro_param *params, size_t n)
{
    size_t all_names = 0;
    const size_t bytes = measure(l, params, n, &all_names), more = l->config.strong_wolfe; /* gradients, for the line search */
    char *names, *vectors, what[96];
    const zro__array arrays[] = {
        { &l->segments, n, sizeof *l->segments },
        { &l->pairs, l->n_slots, sizeof *l->pairs },
        { &names, all_names, 1 },
        { &vectors, 2 * l->n_slots, bytes },
        { &l->direction, 1, bytes },
        { &l->begin, 1, bytes },
        { &l->from, 1, bytes },
        { &l->grads[0], 1, bytes },
        { &l->grads[1], 1, bytes },
        { &l->grads[2], more, bytes },
        { &l->grads[3], more, bytes },
    };
    zro_status st;

    snprintf(what, sizeof what, "lbfgs with history_size = %u and %zu elements", (unsigned)l->config.history_size, l->count);
    st = zro__arena_arrays(&l->arena, NULL, what, arrays, sizeof arrays / sizeof *arrays);
    if (st != ZRO_OK)
        return st;
    set_segments(l, params, n, names);
    for (size_t i = 0; i < l->n_slots; i++) {
        l->pairs[i].s = vectors + 2 * i * bytes;
        l->pairs[i].y = vectors + (2 * i + 1) * bytes;
    }
    return ZRO_OK;
}

zro_status zro_lbfgs_create(zro_param *params, size_t n, const zro_lbfgs_config *config, zro_lbfgs **out)
{
    zro_lbfgs_config c = ZRO_LBFGS_CONFIG_INIT;
    zro_lbfgs *l;
    zro_status st;

    if (out == NULL)
        return zro__fail(ZRO_ERR_INVALID, "lbfgs: out is NULL");
    *out = NULL;
    st =
        zro__config_take("zro_lbfgs_config", config, offsetof(zro_lbfgs_config, settings) + sizeof(zro_settings), &c, sizeof c);
    if (st == ZRO_OK)
        st = check_config(&c);
    if (st == ZRO_OK)
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
    l->n_slots = (size_t)c.history_size + 1;
    st = take_memory(l, params, n);
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
