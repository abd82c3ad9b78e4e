/* L-BFGS: PyTorch's numbers, the line search by itself, what a step leaves when the closure fails, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fenv.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/point.h"
#include "optim/wolfe.h"
#include "zro.h"

enum { N = 4 };

/* Rosenbrock's function of N variables, cut into parameters anywhere, as f64 or f32. */
typedef struct problem {
    zro_param params[3];
    size_t n;
    double x[N], g[N];
    float xf[N], gf[N];
    int calls, fail_at;       /* 0: never */
    int fault_from, fault_to; /* calls [from, to) have this loss */
    double fault;
    int rounding; /* that the closure must see */
    zro_lbfgs *inner;
} problem;

static const double start[N] = { -1.2, 1, 0.5, -0.4 };

static double value_at(const problem *p, size_t i)
{
    return p->params[0].dtype == ZRO_F32 ? (double)p->xf[i] : p->x[i];
}

static double rosenbrock(const problem *p, double *g)
{
    double f = 0;

    memset(g, 0, N * sizeof *g);
    for (size_t i = 0; i + 1 < N; i++) {
        double x = value_at(p, i), d = value_at(p, i + 1) - x * x, e = 1 - x;

        f += 100 * d * d + e * e;
        g[i + 1] += 200 * d;
        g[i] += -400 * d * x - 2 * e;
    }
    return f;
}

/* What sums are rounded to; fegetround asks another unit of the processor. */
static int rounding_now(void)
{
    volatile double one = 1, tiny = 1e-30;

    return one + tiny > 1 ? FE_UPWARD : one - tiny < 1 ? FE_TOWARDZERO : FE_TONEAREST;
}

static zro_status closure(void *user, double *loss)
{
    problem *p = user;

    p->calls++;
    assert_int_equal(rounding_now(), p->rounding);
    if (p->inner != NULL)
        return zro_lbfgs_step(p->inner, closure, user, NULL);
    if (p->calls == p->fail_at)
        return zro_error_set(ZRO_ERR_SYSTEM, "no more data");
    fesetround(FE_TONEAREST);
    *loss = rosenbrock(p, p->g);
    fesetround(p->rounding);
    for (size_t i = 0; i < N; i++)
        p->gf[i] = (float)p->g[i];
    if (p->calls >= p->fault_from && p->calls < p->fault_to)
        *loss = p->fault;
    return ZRO_OK;
}

/* One parameter of N elements, or two or three parts of it. */
static void set_up(problem *p, zro_dtype dtype, size_t n)
{
    static const size_t cuts[3][4] = { { 0, N }, { 0, 1, N }, { 0, 2, 2, N } };

    memset(p, 0, sizeof *p);
    p->n = n;
    p->rounding = FE_TONEAREST;
    for (size_t i = 0; i < N; i++) {
        p->x[i] = start[i];
        p->xf[i] = (float)start[i];
    }
    for (size_t i = 0; i < n; i++) {
        zro_param init = ZRO_PARAM_INIT;
        size_t first = cuts[n - 1][i];

        init.dtype = dtype;
        init.shape[0] = cuts[n - 1][i + 1] - first;
        init.data = init.shape[0] == 0 ? NULL : dtype == ZRO_F32 ? (void *)(p->xf + first) : p->x + first;
        init.grad = dtype == ZRO_F32 ? (void *)(p->gf + first) : p->g + first;
        init.grad_present = 1;
        p->params[i] = init;
    }
}

static zro_lbfgs *create(problem *p, const zro_lbfgs_config *config)
{
    zro_lbfgs *l;

    assert_int_equal(zro_lbfgs_create(p->params, p->n, config, &l), ZRO_OK);
    return l;
}

static zro_lbfgs_config wolfe_config(uint32_t max_iter)
{
    zro_lbfgs_config c = ZRO_LBFGS_CONFIG_INIT;

    c.strong_wolfe = ZRO_ON;
    c.max_iter = max_iter;
    return c;
}

/* ---- PyTorch's numbers ---- */

typedef struct row {
    double lr;
    uint32_t max_iter, max_eval;
    double tolerance_grad, tolerance_change;
    uint32_t history_size;
    zro_switch strong_wolfe;
    uint64_t evaluations, iterations; /* after three steps */
    double loss, x[N];
} row;

/* clang-format off */
static const row expected[] = {
    { 0.01, 5, 0, 1e-7, 1e-9, 100, ZRO_OFF, 15, 15, 77.70907076455228,
      { -1.1626987974046528, 0.9711732646180341, 0.50000950205657935, -0.31822828910567591 } },
    { 0.002, 30, 0, 1e-7, 1e-9, 3, ZRO_OFF, 90, 90, 74.006025358149884,
      { -1.1569689101719443, 0.97081320088238066, 0.5093526883315056, -0.28140104918564768 } },
    { 1, 20, 3, 1e-7, 1e-9, 100, ZRO_OFF, 9, 6, 3.7043903139283678,
      { -0.7444542480824532, 0.56604958367495817, 0.32686777481377843, 0.10661740744450372 } },
    { 1, 6, 0, 1e-7, 1e-9, 2, ZRO_ON, 22, 16, 3.7026812880852784,
      { -0.77368600514919972, 0.60995560551749284, 0.37811581982461118, 0.14283312427544759 } },
    { 0.02, 8, 4, 1e-7, 1e-9, 100, ZRO_ON, 15, 6, 32.671331553208518,
      { -0.97359162211936867, 0.80846989741122433, 0.45165001211154315, -0.048125898253931668 } },
    { 1, 50, 0, 1e-7, 1e-9, 100, ZRO_ON, 25, 24, 3.7014286104327203,
      { -0.77565872550360448, 0.6130927139781488, 0.38206209253450374, 0.14597153050458236 } },
    { 1, 50, 0, 1e-7, 1e-2, 100, ZRO_ON, 6, 6, 3.7101444312727683,
      { -0.749988594754742, 0.56617196216257437, 0.32410460284022846, 0.10548016945407451 } },
    { 1, 50, 0, 1, 1e-9, 100, ZRO_ON, 7, 4, 3.7043903139283678,
      { -0.74717246879818744, 0.56701210559551918, 0.32536337354603817, 0.10534257550826305 } },
    { 5, 3, 0, 1e-7, 1e-9, 1, ZRO_ON, 9, 3, 10.114794400610316,
      { -0.061538585138592283, 0.0010238525949614647, -0.054190701350579601, 0.007807072313633665 } },
    { 1, 1, 0, 1e-7, 1e-9, 100, ZRO_ON, 6, 3, 5.2658842153519831,
      { -0.749988594754742, 0.56617196216257437, 0.32410460284022846, 0.10548016945407451 } },
    /* Changes too small for the history. */
    { 1e-9, 4, 0, 1e-7, 0, 100, ZRO_OFF, 12, 12, 91.699462466290512,
      { -1.1999976279697449, 0.99999876777090679, 0.49999968094042468, -0.39999856973458991 } },
    /* Ends by the change of the loss; by that of the parameters. */
    { 0.5, 50, 0, 1e-7, 3e-4, 100, ZRO_OFF, 14, 13, 3.7015301106613734,
      { -0.7785572980675789, 0.617346815867716, 0.38663344545142403, 0.14881120319765498 } },
    { 1, 50, 0, 1e-7, 0.3, 100, ZRO_OFF, 6, 4, 3.7101444312727683,
      { -0.749988594754742, 0.56617196216257437, 0.32410460284022846, 0.10548016945407451 } },
};
/* clang-format on */

static void check_row(const row *r, zro_dtype dtype, size_t parts)
{
    zro_lbfgs_config c = ZRO_LBFGS_CONFIG_INIT;
    double rel = dtype == ZRO_F32 ? 1e-4 : 1e-10, abs = rel / 10, loss = 0;
    zro_lbfgs *l;
    problem p;

    c.lr = r->lr;
    c.max_iter = r->max_iter;
    c.max_eval = r->max_eval;
    c.tolerance_grad = r->tolerance_grad;
    c.tolerance_change = r->tolerance_change;
    c.history_size = r->history_size;
    c.strong_wolfe = r->strong_wolfe;
    set_up(&p, dtype, parts);
    l = create(&p, &c);
    for (int step = 0; step < 3; step++)
        assert_int_equal(zro_lbfgs_step(l, closure, &p, &loss), ZRO_OK);
    assert_int_equal(zro_lbfgs_evaluations(l), p.calls);
    assert_int_equal(zro_lbfgs_evaluations(l), r->evaluations);
    assert_int_equal(zro_lbfgs_iterations(l), r->iterations);
    assert_true(fabs(loss - r->loss) <= rel * r->loss + abs);
    for (size_t i = 0; i < N; i++)
        assert_true(fabs(value_at(&p, i) - r->x[i]) <= rel * fabs(r->x[i]) + abs);
    zro_lbfgs_destroy(l);
}

static void numbers_are_pytorchs(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        for (size_t parts = 1; parts <= 3; parts++)
            check_row(&expected[i], ZRO_F64, parts);
}

/* Where it does not go on after the function has no more digits. */
static void f32_is_close(void **state)
{
    (void)state;
    check_row(&expected[0], ZRO_F32, 1);
    check_row(&expected[2], ZRO_F32, 2);
    check_row(&expected[4], ZRO_F32, 3);
    check_row(&expected[6], ZRO_F32, 1);
    check_row(&expected[9], ZRO_F32, 1);
}

/* A step ends with a move that is as long as the tolerance, too; the most evaluations are counted beyond 32 bits. */
static zro_status slide(void *user, double *loss)
{
    problem *p = user;

    *loss = p->x[0];
    p->g[0] = 1;
    return ZRO_OK;
}

static void steps_end_where_they_should(void **state)
{
    zro_lbfgs_config c = ZRO_LBFGS_CONFIG_INIT;
    zro_lbfgs *l;
    problem p;

    (void)state;
    set_up(&p, ZRO_F64, 2);
    c.lr = c.tolerance_change = 0.5;
    assert_int_equal(zro_lbfgs_create(p.params, 1, &c, &l), ZRO_OK); /* the first element alone */
    assert_int_equal(zro_lbfgs_step(l, slide, &p, NULL), ZRO_OK);
    assert_int_equal(zro_lbfgs_iterations(l), 1);
    zro_lbfgs_destroy(l);
    c = wolfe_config(858993460); /* times 5 is 4 modulo 2^32 */
    l = create(&p, &c);
    assert_int_equal(zro_lbfgs_step(l, closure, &p, NULL), ZRO_OK);
    assert_true(zro_lbfgs_evaluations(l) > 5);
    zro_lbfgs_destroy(l);
}

static void config_has_its_defaults(void **state)
{
    zro_lbfgs_config c;
    problem a, b;
    zro_lbfgs *l;

    (void)state;
    zro_lbfgs_config_init(NULL);
    zro_lbfgs_config_init(&c);
    set_up(&a, ZRO_F64, 1);
    set_up(&b, ZRO_F64, 1);
    l = create(&a, &c);
    assert_int_equal(zro_lbfgs_step(l, closure, &a, NULL), ZRO_OK);
    zro_lbfgs_destroy(l);
    l = create(&b, NULL);
    assert_int_equal(zro_lbfgs_step(l, closure, &b, NULL), ZRO_OK);
    zro_lbfgs_destroy(l);
    assert_memory_equal(a.x, b.x, sizeof a.x);
    assert_int_equal(a.calls, 20);
}

/* A sum of w (x - 1)^2 over many elements, in any order. */
typedef struct long_problem {
    zro_param param;
    double x[2500], g[2500];
    int reverse;
} long_problem;

static double weight_of(const long_problem *p, size_t i)
{
    return (double)(1 + (p->reverse ? p->param.shape[0] - 1 - i : i) % 7);
}

static zro_status sum_of_squares(void *user, double *loss)
{
    long_problem *p = user;

    *loss = 0;
    for (size_t i = 0; i < p->param.shape[0]; i++) {
        double e = p->x[i] - 1;

        p->g[i] = 2 * weight_of(p, i) * e;
        *loss += weight_of(p, i) * e * e;
    }
    return ZRO_OK;
}

static zro_lbfgs *set_up_long(long_problem *p, size_t count, int reverse, const zro_lbfgs_config *c)
{
    zro_param init = ZRO_PARAM_INIT;
    zro_lbfgs *l;

    memset(p, 0, sizeof *p);
    p->reverse = reverse;
    p->param = init;
    p->param.dtype = ZRO_F64;
    p->param.shape[0] = count;
    p->param.data = p->x;
    zro_param_set_grad(&p->param, p->g);
    assert_int_equal(zro_lbfgs_create(&p->param, 1, c, &l), ZRO_OK);
    return l;
}

/* Sums go over more than one block, and the last lanes and blocks are short: no element is left out or counted twice, or the other
 * order would come to something else. */
static void long_vectors(void **state)
{
    static const size_t counts[] = { 1, 15, 16, 17, 1024, 1025, 1041, 2500 };
    static long_problem a, b;
    zro_lbfgs_config c = wolfe_config(4);

    (void)state;
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        zro_lbfgs *l = set_up_long(&a, counts[k], 0, &c), *m = set_up_long(&b, counts[k], 1, &c);

        assert_int_equal(zro_lbfgs_step(l, sum_of_squares, &a, NULL), ZRO_OK);
        assert_int_equal(zro_lbfgs_step(m, sum_of_squares, &b, NULL), ZRO_OK);
        for (size_t i = 0; i < counts[k]; i++)
            assert_true(fabs(a.x[i] - b.x[counts[k] - 1 - i]) < 1e-12);
        zro_lbfgs_destroy(l);
        zro_lbfgs_destroy(m);
    }
}

/* It is lr in length by the sum of |gradient|, but lr times the gradient where that is less. */
static void the_first_move(void **state)
{
    zro_lbfgs_config c = ZRO_LBFGS_CONFIG_INIT;
    static long_problem p;
    zro_lbfgs *l;

    (void)state;
    c.lr = 0.25;
    c.max_iter = 1;
    l = set_up_long(&p, 1, 0, &c);
    p.x[0] = 1.125;
    assert_int_equal(zro_lbfgs_step(l, sum_of_squares, &p, NULL), ZRO_OK);
    assert_true(p.x[0] == 1.125 - 0.25 * 0.25);
    zro_lbfgs_destroy(l);
    l = set_up_long(&p, 1, 0, &c);
    p.x[0] = 9;
    assert_int_equal(zro_lbfgs_step(l, sum_of_squares, &p, NULL), ZRO_OK);
    assert_true(p.x[0] == 9 - 0.25);
    zro_lbfgs_destroy(l);
}

/* ---- parameters ---- */

/* Elements without a gradient stay: absent, frozen, and zero are the same. */
static void absent_gradients_are_zero(void **state)
{
    zro_lbfgs_config c = wolfe_config(5);
    problem p[3];

    (void)state;
    for (int i = 0; i < 3; i++) {
        static double zero[N];
        zro_lbfgs *l;

        set_up(&p[i], ZRO_F64, 2);
        if (i == 0)
            p[i].params[1].grad_present = 0;
        else if (i == 1)
            p[i].params[1].requires_grad = 0;
        else
            p[i].params[1].grad = zero;
        if (i < 2)
            p[i].params[1].grad = NULL;
        l = create(&p[i], &c);
        assert_int_equal(zro_lbfgs_step(l, closure, &p[i], NULL), ZRO_OK);
        zro_lbfgs_destroy(l);
        assert_memory_equal(p[i].x + 1, start + 1, (N - 1) * sizeof *start);
        assert_true(p[i].x[0] != start[0]);
        assert_memory_equal(p[i].x, p[0].x, sizeof p[0].x);
    }
}

typedef struct moving {
    problem p;
    char bytes[3][2][N * sizeof(double) + 1]; /* data and gradients, at odd addresses */
    int place;
} moving;

/* The gradient appears at a new address in every call. */
static zro_status moving_closure(void *user, double *loss)
{
    moving *m = user;
    zro_status st;

    memcpy(m->p.x, m->p.params[0].data, sizeof m->p.x);
    st = closure(&m->p, loss);
    m->place = (m->place + 1) % 3;
    memcpy(m->bytes[m->place][1] + 1, m->p.g, sizeof m->p.g);
    zro_param_set_grad(&m->p.params[0], m->bytes[m->place][1] + 1);
    return st;
}

static void addresses_are_read_afresh(void **state)
{
    zro_lbfgs_config c = wolfe_config(3);
    zro_lbfgs *l, *k;
    problem still;
    moving m;

    (void)state;
    memset(&m, 0, sizeof m);
    set_up(&still, ZRO_F64, 1);
    set_up(&m.p, ZRO_F64, 1);
    l = create(&still, &c);
    k = create(&m.p, &c);
    for (int step = 0; step < 3; step++) {
        memcpy(m.bytes[step][0] + 1, m.p.params[0].data, sizeof start);
        m.p.params[0].data = m.bytes[step][0] + 1;
        assert_int_equal(zro_lbfgs_step(l, closure, &still, NULL), ZRO_OK);
        assert_int_equal(zro_lbfgs_step(k, moving_closure, &m, NULL), ZRO_OK);
        assert_memory_equal(m.p.params[0].data, still.x, sizeof still.x);
    }
    zro_lbfgs_destroy(l);
    zro_lbfgs_destroy(k);
}

static zro_status taking_closure(void *user, double *loss)
{
    problem *p = user;
    zro_status st = closure(p, loss);

    p->params[1].data = NULL;
    return st;
}

/* Data that the closure takes away are missed before they are used; the other parameters go back. */
static void data_taken_away(void **state)
{
    (void)state;
    for (int search = 0; search < 2; search++) {
        zro_lbfgs_config c = ZRO_LBFGS_CONFIG_INIT;
        zro_lbfgs *l;
        problem p;

        c.strong_wolfe = search ? ZRO_ON : ZRO_OFF;
        set_up(&p, ZRO_F64, 2);
        l = create(&p, &c);
        assert_int_equal(zro_lbfgs_step(l, taking_closure, &p, NULL), ZRO_ERR_INVALID);
        assert_non_null(strstr(zro_last_error(), "parameter 1: data is NULL"));
        zro_lbfgs_destroy(l);
    }
}

static void nothing_to_move(void **state)
{
    zro_param p = ZRO_PARAM_INIT;
    problem unused;
    double loss = 0;
    zro_lbfgs *l;

    (void)state;
    set_up(&unused, ZRO_F64, 1);
    assert_int_equal(zro_lbfgs_create(&p, 1, NULL, &l), ZRO_OK);
    assert_int_equal(zro_lbfgs_step(l, closure, &unused, &loss), ZRO_OK);
    assert_true(loss > 1);
    assert_int_equal(zro_lbfgs_evaluations(l), 1);
    assert_int_equal(zro_lbfgs_iterations(l), 0);
    zro_lbfgs_destroy(l);
}

/* ---- failures in a step ---- */

/* Wherever the closure fails, the parameters are those of the step's beginning, and the next steps find the minimum. */
static void check_failure(zro_switch strong_wolfe, int fail_at)
{
    zro_lbfgs_config c = wolfe_config(10);
    double before[N] = { 0 }, loss;
    zro_status st = ZRO_OK;
    zro_lbfgs *l;
    problem p;

    c.strong_wolfe = strong_wolfe;
    c.lr = strong_wolfe ? 1 : 0.2;
    set_up(&p, ZRO_F64, 2);
    p.fail_at = fail_at;
    l = create(&p, &c);
    for (int step = 0; step < 10 && st == ZRO_OK; step++) {
        memcpy(before, p.x, sizeof before);
        st = zro_lbfgs_step(l, closure, &p, &loss);
    }
    assert_int_equal(st, ZRO_ERR_SYSTEM);
    assert_string_equal(zro_last_error(), "no more data");
    assert_memory_equal(p.x, before, sizeof before);
    for (int step = 0; step < 60; step++)
        assert_int_equal(zro_lbfgs_step(l, closure, &p, &loss), ZRO_OK);
    assert_true(loss < (strong_wolfe ? 3.70142861043272 + 1e-6 : 10));
    zro_lbfgs_destroy(l);
}

static void parameters_survive_a_failure(void **state)
{
    (void)state;
    for (int fail_at = 1; fail_at < 25; fail_at++) {
        check_failure(ZRO_ON, fail_at);
        check_failure(ZRO_OFF, fail_at);
    }
}

/* If the first evaluation fails, nothing has happened: the repeated step is the same to the bit. */
static void a_step_that_did_not_begin(void **state)
{
    zro_lbfgs_config c = wolfe_config(4);
    zro_lbfgs *l, *k;
    problem a, b;

    (void)state;
    set_up(&a, ZRO_F64, 1);
    set_up(&b, ZRO_F64, 1);
    l = create(&a, &c);
    k = create(&b, &c);
    for (int step = 0; step < 4; step++) {
        b.fail_at = b.calls + 1;
        assert_int_equal(zro_lbfgs_step(k, closure, &b, NULL), ZRO_ERR_SYSTEM);
        assert_int_equal(zro_lbfgs_step(k, closure, &b, NULL), ZRO_OK);
        assert_int_equal(zro_lbfgs_step(l, closure, &a, NULL), ZRO_OK);
        assert_memory_equal(a.x, b.x, sizeof a.x);
        assert_int_equal(zro_lbfgs_evaluations(l), zro_lbfgs_evaluations(k));
        assert_int_equal(zro_lbfgs_iterations(l), zro_lbfgs_iterations(k));
    }
    zro_lbfgs_destroy(l);
    zro_lbfgs_destroy(k);
}

/* If the first iteration fails, its direction and length are forgotten: the next one is a first one again. */
static void the_first_iteration_fails(void **state)
{
    (void)state;
    for (int wolfe = 0; wolfe <= 1; wolfe++) {
        zro_lbfgs_config c = wolfe_config(4);
        zro_lbfgs *l, *k;
        problem a, b;

        c.strong_wolfe = wolfe ? ZRO_ON : ZRO_OFF;
        set_up(&a, ZRO_F64, 1);
        set_up(&b, ZRO_F64, 1);
        l = create(&a, &c);
        k = create(&b, &c);
        b.fail_at = 2;
        assert_int_equal(zro_lbfgs_step(k, closure, &b, NULL), ZRO_ERR_SYSTEM);
        for (int step = 0; step < 3; step++) {
            assert_int_equal(zro_lbfgs_step(l, closure, &a, NULL), ZRO_OK);
            assert_int_equal(zro_lbfgs_step(k, closure, &b, NULL), ZRO_OK);
            assert_memory_equal(a.x, b.x, sizeof a.x);
        }
        zro_lbfgs_destroy(l);
        zro_lbfgs_destroy(k);
    }
}

/* Takes the second parameter's gradient away in the third call. */
static zro_status forgetful(void *user, double *loss)
{
    problem *p = user;
    zro_status st = closure(user, loss);

    p->params[1].grad = p->calls == 3 ? NULL : p->g + 1;
    return st;
}

static void refused_in_a_step(void **state)
{
    zro_lbfgs_config c = wolfe_config(10);
    char name[] = "bias";
    zro_lbfgs *l;
    problem p;

    (void)state;
    set_up(&p, ZRO_F64, 2);
    p.params[1].name = name;
    l = create(&p, &c);
    p.params[1].name = NULL;
    memset(name, '?', sizeof name - 1); /* it was copied */
    assert_int_equal(zro_lbfgs_step(l, forgetful, &p, NULL), ZRO_ERR_INVALID);
    assert_non_null(strstr(zro_last_error(), "parameter bias: grad_present"));
    assert_memory_equal(p.x, start, sizeof start);
    p.params[1].grad = p.g + 1;
    p.params[0].data = NULL;
    assert_int_equal(zro_lbfgs_step(l, closure, &p, NULL), ZRO_ERR_INVALID);
    assert_non_null(strstr(zro_last_error(), "parameter 0: data"));
    p.params[0].data = p.x;
    assert_int_equal(zro_lbfgs_step(l, NULL, &p, NULL), ZRO_ERR_INVALID);
    assert_int_equal(zro_lbfgs_step(NULL, closure, &p, NULL), ZRO_ERR_INVALID);
    p.inner = l;
    assert_int_equal(zro_lbfgs_step(l, closure, &p, NULL), ZRO_ERR_STATE);
    p.inner = NULL;
    assert_int_equal(zro_lbfgs_step(l, closure, &p, NULL), ZRO_OK);
    zro_lbfgs_destroy(l);
    assert_int_equal(zro_lbfgs_evaluations(NULL), 0);
    assert_int_equal(zro_lbfgs_iterations(NULL), 0);
    zro_lbfgs_destroy(NULL);
}

/* ---- numbers that are none ---- */

static void no_loss_keeps_it_going(void **state)
{
    static const double faults[] = { NAN, INFINITY, -INFINITY };

    (void)state;
    for (size_t k = 0; k < 3; k++)
        for (int from = 1; from < 6; from++)
            for (int wolfe = 0; wolfe <= 1; wolfe++) {
                zro_lbfgs_config c = wolfe_config(10);
                zro_lbfgs *l;
                problem p;

                c.strong_wolfe = wolfe ? ZRO_ON : ZRO_OFF;
                c.lr = 0.1;
                set_up(&p, ZRO_F64, 1);
                p.fault_from = from;
                p.fault_to = INT_MAX;
                p.fault = faults[k];
                l = create(&p, &c);
                for (int step = 0; step < 3; step++)
                    assert_int_equal(zro_lbfgs_step(l, closure, &p, NULL), ZRO_OK);
                assert_true(p.calls <= 3 * 14);
                zro_lbfgs_destroy(l);
            }
}

/* As in PyTorch: the cubic through an infinite loss has no least point, and where it leads there are no numbers any more. */
static void an_infinite_loss_spreads(void **state)
{
    zro_lbfgs_config c = wolfe_config(5);
    double loss = 0;
    zro_lbfgs *l;
    problem p;

    (void)state;
    set_up(&p, ZRO_F64, 1);
    p.fault_from = 2;
    p.fault_to = 3;
    p.fault = INFINITY;
    l = create(&p, &c);
    assert_int_equal(zro_lbfgs_step(l, closure, &p, &loss), ZRO_OK);
    assert_true(loss < 1e6);
    for (size_t i = 0; i < N; i++)
        assert_true(isnan(p.x[i]));
    zro_lbfgs_destroy(l);
}

static zro_status says_nothing(void *user, double *loss)
{
    (void)user;
    (void)loss;
    return ZRO_OK;
}

/* A gradient that is no number is no small one, and a loss that is not said is none. */
static void nan_is_not_the_end(void **state)
{
    zro_lbfgs_config c = wolfe_config(5);
    static long_problem p;
    double loss = 0;
    zro_lbfgs *l = set_up_long(&p, 3, 0, &c);

    (void)state;
    p.x[0] = p.x[2] = 1;
    p.x[1] = NAN;
    assert_int_equal(zro_lbfgs_step(l, sum_of_squares, &p, &loss), ZRO_OK);
    assert_true(isnan(loss));
    assert_true(zro_lbfgs_iterations(l) > 0);
    loss = 0;
    assert_int_equal(zro_lbfgs_step(l, says_nothing, &p, &loss), ZRO_OK);
    assert_true(isnan(loss));
    zro_lbfgs_destroy(l);
}

/* ---- bits ---- */

/* The closure has the program's rounding, the library its own. */
static void rounding_of_the_program(void **state)
{
    static const int modes[] = { FE_TONEAREST, FE_UPWARD, FE_TOWARDZERO };
    zro_lbfgs_config c = wolfe_config(8);
    problem p[3];

    (void)state;
    for (int k = 0; k < 3; k++) {
        zro_lbfgs *l;

        set_up(&p[k], ZRO_F64, 1);
        p[k].rounding = modes[k];
        l = create(&p[k], &c);
        fesetround(modes[k]);
        for (int step = 0; step < 3; step++)
            assert_int_equal(zro_lbfgs_step(l, closure, &p[k], NULL), ZRO_OK);
        assert_int_equal(rounding_now(), modes[k]);
        fesetround(FE_TONEAREST);
        assert_memory_equal(p[k].x, p[0].x, sizeof p[0].x);
        zro_lbfgs_destroy(l);
    }
}

/* ---- the line search ---- */

/* A polynomial, and the t whose gradient a buffer has. */
typedef struct curve {
    double c[7];
    double longest;
    zro_dtype dtype;
    int calls, fail_at;
    double at[ZRO__WOLFE_BUFFERS];
} curve;

static void polynomial(const double *c, double t, double *f, double *slope)
{
    *f = *slope = 0;
    for (int k = 6; k >= 0; k--)
        *f = *f * t + c[k];
    for (int k = 6; k > 0; k--)
        *slope = *slope * t + k * c[k];
}

static zro_status evaluate(void *user, zro__wolfe_point *p)
{
    curve *k = user;

    k->calls++;
    assert_in_range(p->buffer, 1, ZRO__WOLFE_BUFFERS - 1); /* 0 is the start's */
    assert_true(k->dtype == ZRO_F64 || p->t == (double)(float)p->t);
    k->at[p->buffer] = p->t;
    if (k->calls == k->fail_at)
        return zro_error_set(ZRO_ERR_PEER, "elsewhere");
    polynomial(k->c, p->t, &p->f, &p->slope);
    p->f = zro__rounded(k->dtype, p->f);
    return ZRO_OK;
}

static zro_status search(curve *k, double t, uint64_t max_steps, zro__wolfe_point *found)
{
    zro__wolfe w = { evaluate, k, k->longest, max_steps, k->dtype };
    zro__wolfe_point from = { .t = 0 };
    zro_status st;

    polynomial(k->c, 0, &from.f, &from.slope);
    st = zro__wolfe_search(&w, &from, t, found);
    if (st == ZRO_OK)
        assert_true(k->at[found->buffer] == found->t); /* nothing was written over */
    return st;
}

/* What PyTorch's search finds on polynomials that bend both ways. */
static void search_is_pytorchs(void **state)
{
    static const struct {
        double c[7], first;
        uint64_t max_steps;
        double longest, t, f;
        int calls;
    } rows[] = {
        { { 5, -0.5, 0, -2.7, 0.1, 0, 0 }, 0.5, 24, 1e-8, 20.249222479864432, -5610.1663585378328, 10 },
        { { 5, -1, -1.4, 0, 0.1, 0, 0 }, 0.01, 3, 1e-9, 0, 5, 4 },
        { { 1, -0.5, 0.3, -1.8, 1, 0, 0 }, 0.3, 10, 1, 1.2435509825459725, -0.22792957476686482, 3 },
        { { 1, -0.5, -2, -1.5, 0.1, 0, 0 }, 1, 24, 1e-8, 12.082171809286404, -811.6284079849388, 10 },
        { { 0, -1, 2.1, -0.7, 0.5, 0, 0 }, 0.5, 2, 1e-8, 0.5, -0.03125, 1 },
        { { 1, -1, 0.6, -1.7, -2, -1.8, 0.1 }, 0.5, 24, 1, 15.873249334485656, -347942.09115677746, 9 },
        { { 1, -1, 1.5429, -2.1428, 0.6568, -0.0569, 0 }, 1, 3, 1, 5.5505005, 0.19736690945786872, 4 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        curve k = { .longest = rows[i].longest, .dtype = ZRO_F64 };
        zro__wolfe_point p;

        memcpy(k.c, rows[i].c, sizeof k.c);
        assert_int_equal(search(&k, rows[i].first, rows[i].max_steps, &p), ZRO_OK);
        assert_int_equal(k.calls, rows[i].calls);
        assert_true(fabs(p.t - rows[i].t) <= 1e-10 * rows[i].t);
        assert_true(fabs(p.f - rows[i].f) <= 1e-10 * fabs(rows[i].f));
    }
}

static void conditions_hold(void **state)
{
    static const double first[] = { 1e-6, 0.01, 0.5, 1, 3, 100, 1e8 };

    (void)state;
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        for (int dtype = ZRO_F32; dtype <= ZRO_F64; dtype++) {
            curve k = { .c = { 4.5, -6, 2, 0, 0.3 }, .longest = 1, .dtype = (zro_dtype)dtype };
            zro__wolfe_point p;

            assert_int_equal(search(&k, first[i], 60, &p), ZRO_OK);
            assert_true(p.t > 0 && p.f <= 4.5 - 1e-4 * p.t * 6);
            assert_true(fabs(p.slope) <= 0.9 * 6);
            assert_true(k.calls <= 61);
        }
}

static void search_ends(void **state)
{
    zro__wolfe_point p;

    (void)state;
    for (uint64_t max_steps = 0; max_steps < 8; max_steps++) {
        curve far = { .c = { 0, -2e6, 1 }, .longest = 1, .dtype = ZRO_F64 };
        curve none = { .c = { NAN, NAN }, .longest = 1, .dtype = ZRO_F64 };

        assert_int_equal(search(&far, 1e-3, max_steps, &p), ZRO_OK);
        assert_int_equal(far.calls, max_steps + 1);
        assert_int_equal(search(&none, 1, max_steps, &p), ZRO_OK);
        assert_int_equal(none.calls, max_steps + 1);
        for (int fail_at = 1; fail_at <= (int)max_steps + 1; fail_at++) {
            far.calls = 0;
            far.fail_at = fail_at;
            assert_int_equal(search(&far, 1e-3, max_steps, &p), ZRO_ERR_PEER);
            assert_int_equal(far.calls, fail_at);
        }
    }
}

/* A direction along which the function rises: it stays where it is. */
static void uphill(void **state)
{
    curve k = { .c = { 1, 2, 1 }, .longest = 1, .dtype = ZRO_F64 };
    zro__wolfe_point p;

    (void)state;
    assert_int_equal(search(&k, 1, 25, &p), ZRO_OK);
    assert_int_equal(p.buffer, 0);
    assert_true(p.t == 0);
}

/* A function of 2^24 cannot show a gain of 5e-4 in f32: it counts as one. */
static void no_digits_are_left(void **state)
{
    curve k = { .c = { 0x1p24, -1e-3, 5e-4 }, .longest = 1, .dtype = ZRO_F32 };
    zro__wolfe_point p;

    (void)state;
    assert_int_equal(search(&k, 1, 25, &p), ZRO_OK);
    assert_int_equal(k.calls, 1);
}

/* ---- refused at creation ---- */

static void refuse(zro_param *params, size_t n, const zro_lbfgs_config *c, zro_status status, const char *text)
{
    zro_lbfgs *l = (void *)params;

    assert_int_equal(zro_lbfgs_create(params, n, c, &l), status);
    assert_null(l);
    if (strstr(zro_last_error(), text) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", text, zro_last_error());
}

static void configs_refused(void **state)
{
    static const struct {
        size_t offset;
        double value;
        const char *text;
    } reals[] = {
        { offsetof(zro_lbfgs_config, lr), 0, "lr = 0" },
        { offsetof(zro_lbfgs_config, lr), -1, "lr = -1" },
        { offsetof(zro_lbfgs_config, lr), NAN, "lr = " },
        { offsetof(zro_lbfgs_config, lr), INFINITY, "lr = inf" },
        { offsetof(zro_lbfgs_config, tolerance_grad), -1, "tolerance_grad = -1" },
        { offsetof(zro_lbfgs_config, tolerance_grad), NAN, "tolerance_grad = " },
        { offsetof(zro_lbfgs_config, tolerance_change), -1e-300, "tolerance_change = -1e-300" },
        { offsetof(zro_lbfgs_config, tolerance_change), NAN, "tolerance_change = " },
    };
    const zro_lbfgs_config good = ZRO_LBFGS_CONFIG_INIT;
    zro_lbfgs_config c;
    problem p;

    (void)state;
    set_up(&p, ZRO_F64, 1);
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        c = good;
        memcpy((char *)&c + reals[i].offset, &reals[i].value, sizeof reals[i].value);
        refuse(p.params, 1, &c, ZRO_ERR_INVALID, reals[i].text);
    }
    c = good, c.struct_size = 8;
    refuse(p.params, 1, &c, ZRO_ERR_INVALID, "struct_size = 8");
    c = good, c.max_iter = 0;
    refuse(p.params, 1, &c, ZRO_ERR_INVALID, "max_iter = 0");
    c = good, c.history_size = 0;
    refuse(p.params, 1, &c, ZRO_ERR_INVALID, "history_size = 0");
    c = good, c.strong_wolfe = (zro_switch)7;
    refuse(p.params, 1, &c, ZRO_ERR_INVALID, "strong_wolfe = 7");
    c = good, c.settings.threads = 0;
    refuse(p.params, 1, &c, ZRO_ERR_INVALID, "threads = 0");
    c = good, c.settings.kernels = (zro_kernels)9;
    refuse(p.params, 1, &c, ZRO_ERR_INVALID, "kernels = 9");
    assert_int_equal(zro_lbfgs_create(p.params, 1, NULL, NULL), ZRO_ERR_INVALID);
}

static void params_refused(void **state)
{
    problem p;

    (void)state;
    set_up(&p, ZRO_F64, 2);
    refuse(NULL, 1, NULL, ZRO_ERR_INVALID, "no parameters");
    refuse(p.params, 0, NULL, ZRO_ERR_INVALID, "no parameters");
    p.params[1].data = NULL;
    refuse(p.params, 2, NULL, ZRO_ERR_INVALID, "parameter 1: data");
    p.params[1].data = p.x;
    p.params[1].name = "twin";
    refuse(p.params, 2, NULL, ZRO_ERR_INVALID, "twin");
    set_up(&p, ZRO_F64, 2);
    p.params[1].data = (char *)p.x + 4; /* not the same address, but some of the same bytes */
    refuse(p.params, 2, NULL, ZRO_ERR_INVALID, "parameters 0 and 1");
    set_up(&p, ZRO_F64, 3);
    p.params[2].data = p.x + 1;
    refuse(p.params, 3, NULL, ZRO_ERR_INVALID, "parameters 0 and 2");
    set_up(&p, ZRO_F64, 2);
    p.params[1].layout = ZRO_LAYOUT_SPARSE;
    refuse(p.params, 2, NULL, ZRO_ERR_INVALID, "parameter 1: its layout");
    set_up(&p, ZRO_F64, 2);
    p.params[1].n_dims = ZRO_MAX_DIMS + 1;
    refuse(p.params, 2, NULL, ZRO_ERR_INVALID, "parameter 1: 9 dimensions");
    set_up(&p, ZRO_F64, 2);
    p.params[1].dtype = ZRO_F32;
    refuse(p.params, 2, NULL, ZRO_ERR_UNSUPPORTED, "parameter 1: it is f32, but the first one is f64");
    p.params[1].dtype = ZRO_BF16;
    refuse(p.params, 2, NULL, ZRO_ERR_UNSUPPORTED, "parameter 1: it is bf16, must be f32 or f64");
    p.params[1].dtype = (zro_dtype)99;
    refuse(p.params, 2, NULL, ZRO_ERR_UNSUPPORTED, "parameter 1: it is of an unknown type, must be f32 or f64");
    set_up(&p, ZRO_F64, 2);
    p.params[1].grad_dtype = ZRO_F32;
    refuse(p.params, 2, NULL, ZRO_ERR_UNSUPPORTED, "parameter 1: it is f64, but its gradient is f32");
}

/* ---- memory ---- */

static void more_than_there_is(void **state)
{
    static const size_t counts[] = { SIZE_MAX / 17, SIZE_MAX / 80, SIZE_MAX / 800 };
    zro_lbfgs_config c = wolfe_config(1);
    problem p;

    (void)state;
    c.history_size = UINT32_MAX;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        set_up(&p, ZRO_F64, 1);
        p.params[0].shape[0] = counts[i];
        refuse(p.params, 1, &c, ZRO_ERR_MEMORY, "history_size = 4294967295");
    }
}

#ifdef ZRO__POINTS

static void memory_may_run_out(void **state)
{
    problem p;

    (void)state;
    set_up(&p, ZRO_F64, 2);
    for (long nth = 1;; nth++) {
        zro__point_plan plan = { .name = "memory.alloc", .action = ZRO__POINT_FAIL, .nth = nth };
        zro_lbfgs *l = NULL;
        zro_status st;

        zro__point_plan_set(&plan);
        st = zro_lbfgs_create(p.params, 2, NULL, &l);
        zro__point_plan_set(NULL);
        if (st == ZRO_OK) {
            assert_true(nth > 3);
            zro_lbfgs_destroy(l);
            return;
        }
        assert_int_equal(st, ZRO_ERR_MEMORY);
        assert_null(l);
        assert_non_null(strstr(zro_last_error(), "out of memory"));
    }
}

static void steps_allocate_nothing(void **state)
{
    zro__point_plan plan = { .name = "memory.alloc", .action = ZRO__POINT_FAIL, .nth = 1 };
    zro_lbfgs_config c = wolfe_config(20);
    zro_lbfgs *l;
    problem p;

    (void)state;
    c.history_size = 3;
    set_up(&p, ZRO_F64, 3);
    l = create(&p, &c);
    zro__point_plan_set(&plan);
    for (int step = 0; step < 4; step++)
        assert_int_equal(zro_lbfgs_step(l, closure, &p, NULL), ZRO_OK);
    zro__point_plan_set(NULL);
    assert_int_equal(atomic_load(&plan.hits), 0);
    zro_lbfgs_destroy(l);
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_pytorchs),
        cmocka_unit_test(f32_is_close),
        cmocka_unit_test(config_has_its_defaults),
        cmocka_unit_test(steps_end_where_they_should),
        cmocka_unit_test(long_vectors),
        cmocka_unit_test(the_first_move),
        cmocka_unit_test(absent_gradients_are_zero),
        cmocka_unit_test(addresses_are_read_afresh),
        cmocka_unit_test(data_taken_away),
        cmocka_unit_test(nothing_to_move),
        cmocka_unit_test(parameters_survive_a_failure),
        cmocka_unit_test(a_step_that_did_not_begin),
        cmocka_unit_test(the_first_iteration_fails),
        cmocka_unit_test(refused_in_a_step),
        cmocka_unit_test(no_loss_keeps_it_going),
        cmocka_unit_test(an_infinite_loss_spreads),
        cmocka_unit_test(nan_is_not_the_end),
        cmocka_unit_test(rounding_of_the_program),
        cmocka_unit_test(search_is_pytorchs),
        cmocka_unit_test(conditions_hold),
        cmocka_unit_test(search_ends),
        cmocka_unit_test(uphill),
        cmocka_unit_test(no_digits_are_left),
        cmocka_unit_test(configs_refused),
        cmocka_unit_test(params_refused),
        cmocka_unit_test(more_than_there_is),
#ifdef ZRO__POINTS
        cmocka_unit_test(memory_may_run_out),
        cmocka_unit_test(steps_allocate_nothing),
#endif
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
