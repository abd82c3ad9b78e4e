/* Hooks, and the buckets that they see. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bed.h"
#include "course.h"
#include "reference.h"
#include "zt/list.h"

static const char momentum[] = "sgd lr=0.1 momentum=0.9 weight_decay=0.01";

/* ---- expected results ---- */

/* The copy's gradients as if what ranks have had travelled, and been averaged, as elements of `type`. */
static void expect_through(course *r, zro_dtype type)
{
    static _Thread_local double in[COURSE_RANKS][COURSE_ELEMENTS], out[COURSE_ELEMENTS];
    const void *arrays[COURSE_RANKS];
    int32_t cells[COURSE_RANKS];

    course_expect(r); /* what is present */
    for (int k = 0; k < r->t->size; k++) {
        cells[k] = (int32_t)zt_machine(r->t, r->t->machines, k);
        arrays[k] = in[k];
    }
    for (size_t i = 0; i < r->n; i++) {
        const zro_param *p = &r->copy[i];

        for (int k = 0; k < r->t->size; k++)
            for (size_t e = 0; e < zro_param_count(p); e++)
                reference_put(type, in[k], e, r->has[k][i] ? reference_get(p->dtype, r->sum[k][i], e) : 0);
        reference_reduce(type, ZRO_AVG, r->t->size, cells, NULL, NULL, arrays, out, zro_param_count(p));
        for (size_t e = 0; e < zro_param_count(p); e++)
            reference_put(p->dtype, p->grad, e, reference_get(type, out, e));
    }
}

static double largest(zro_dtype dtype, const void *array, size_t count)
{
    double most = 0;

    for (size_t e = 0; e < count; e++)
        most = fmax(most, fabs(bed_get(array, dtype, e)));
    return most;
}

static void scale(zro_dtype dtype, void *array, size_t count, double factor, int divides)
{
    for (size_t e = 0; e < count; e++)
        bed_set(array, dtype, e, divides ? bed_get(array, dtype, e) / factor : bed_get(array, dtype, e) * factor);
}

/* What `two_reductions` does. */
static void expect_scaled(course *r)
{
    double most[COURSE_MAX] = { 0 };

    for (size_t i = 0; i < r->n; i++) {
        for (int k = 0; k < r->t->size; k++)
            most[i] = fmax(most[i], largest(r->copy[i].dtype, r->sum[k][i], zro_param_count(&r->copy[i])));
        for (int k = 0; most[i] > 0 && k < r->t->size; k++)
            scale(r->copy[i].dtype, r->sum[k][i], zro_param_count(&r->copy[i]), most[i], 1);
    }
    course_expect(r);
    for (size_t i = 0; i < r->n; i++)
        if (most[i] > 0)
            scale(r->copy[i].dtype, r->copy[i].grad, zro_param_count(&r->copy[i]), most[i], 0);
}

/* ---- hooks ---- */

/* What a hook has seen in an iteration. */
typedef struct seen {
    course *r;
    size_t buckets, params, elements;
    int fails_at; /* the bucket at which this rank fails; -1: it does not */
    double own[COURSE_MAX * COURSE_ELEMENTS];
} seen;

/* Buckets come in order, and are those that the ddp has. */
static void look(seen *s, const zro_bucket *b)
{
    const size_t *params = NULL, *lengths = NULL;
    size_t count, n_buckets, sum = 0;
    zro_dtype dtype;
    const char *buffer = zro_bucket_buffer(b, &count, &dtype);

    CHECK_OK(zro_ddp_buckets(s->r->ddp, &params, &lengths, &n_buckets));
    CHECK(zro_bucket_index(b) == s->buckets && zro_bucket_params(b) == lengths[s->buckets]);
    CHECK(zro_bucket_is_last(b) == (s->buckets + 1 == n_buckets));
    CHECK(zro_group_size(zro_bucket_group(b)) == s->r->t->size);
    for (size_t i = 0; i < zro_bucket_params(b); i++) {
        size_t elements;

        CHECK(zro_bucket_param(b, i) == params[s->params + i]);
        CHECK((const char *)zro_bucket_grad(b, i, &elements) == buffer + sum * zro_dtype_bytes(dtype));
        CHECK(elements == zro_param_count(&s->r->params[zro_bucket_param(b, i)]));
        sum += elements;
    }
    CHECK(sum == count && zro_bucket_param(b, zro_bucket_params(b)) == SIZE_MAX);
    s->buckets++;
    s->params += zro_bucket_params(b);
    s->elements += count;
}

/* The shape of PowerSGD: a reduction, work that needs its result, another one. */
static zro_status two_reductions(void *user, zro_bucket *b)
{
    double most[COURSE_MAX] = { 0 };
    size_t count, n = zro_bucket_params(b);
    zro_dtype dtype;
    void *buffer = zro_bucket_buffer(b, &count, &dtype);
    zro_status st;

    look(user, b);
    for (size_t i = 0; i < n; i++) {
        size_t elements;
        void *grad = zro_bucket_grad(b, i, &elements);

        most[i] = largest(dtype, grad, elements);
    }
    st = zro_all_reduce(zro_bucket_group(b), most, n, ZRO_F64, ZRO_MAX);
    for (int back = 0; st == ZRO_OK && back < 2; back++) {
        for (size_t i = 0; i < n; i++) {
            size_t elements;
            void *grad = zro_bucket_grad(b, i, &elements);

            if (most[i] > 0)
                scale(dtype, grad, elements, most[i], !back);
        }
        if (!back)
            st = zro_all_reduce(zro_bucket_group(b), buffer, count, dtype, ZRO_AVG);
    }
    return st;
}

/* Leaves its result in a buffer of its own, of another type. */
static zro_status own_buffer(void *user, zro_bucket *b)
{
    seen *s = user;
    size_t count;
    zro_dtype dtype;
    const void *buffer = zro_bucket_buffer(b, &count, &dtype);
    double *own = s->own + s->elements;
    zro_status st = zro_convert(own, ZRO_F64, buffer, dtype, count);

    look(s, b);
    if (st == ZRO_OK)
        st = zro_all_reduce(zro_bucket_group(b), own, count, ZRO_F64, ZRO_AVG);
    zro_bucket_set_buffer(b, own, ZRO_F64);
    return st;
}

static zro_status failing(void *user, zro_bucket *b)
{
    seen *s = user;
    const int at = s->fails_at, now = (int)zro_bucket_index(b);
    zro_status st = zro_hook_all_reduce(NULL, b);

    return st == ZRO_OK && at == now ? zro_error_set(ZRO_ERR_UNSUPPORTED, "the hook of the test fails") : st;
}

/* Fails before the collective call that the others make. */
static zro_status failing_first(void *user, zro_bucket *b)
{
    const seen *s = user;

    if (s->fails_at == (int)zro_bucket_index(b))
        return zro_error_set(ZRO_ERR_UNSUPPORTED, "the hook of the test fails first");
    return zro_hook_all_reduce(NULL, b);
}

/* ---- cases ---- */

enum { TWO, OWN, BF16, F16, KINDS };

static void train_hooked(course *r, seen *s, int kind)
{
    static const zro_dtype through[KINDS] = { [OWN] = ZRO_F64, [BF16] = ZRO_BF16, [F16] = ZRO_F16 };

    for (int k = 0; k < 3; k++) {
        s->buckets = s->params = s->elements = 0;
        for (int rank = 0; rank < r->t->size; rank++)
            r->uses[rank][2] = (unsigned char)(k != 1 && rank == 0);
        course_backward(r);
        if (kind == TWO)
            expect_scaled(r);
        else
            expect_through(r, through[kind]);
        CHECK(kind > OWN || (s->params == r->n && s->buckets > 2));
        course_step(r);
    }
}

static void hooks(zt_rank *t)
{
    static const zro_hook_fn functions[KINDS] = { two_reductions, own_buffer, zro_hook_bf16, zro_hook_f16 };
    static const course_mode modes[] = { COURSE_SHARDED, COURSE_IN_PLACE, COURSE_HANDED };
    seen *s = malloc(sizeof *s);

    CHECK(s != NULL);
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t m = 0; m < 3; m++) {
            course r;

            memset(s, 0, sizeof *s);
            s->r = &r;
            course_init(&r, t, modes[m], COURSE_MAX);
            r.config.find_unused = ZRO_ON;
            r.config.hook = functions[kind];
            r.config.hook_user = s;
            course_create(&r, momentum, NULL);
            train_hooked(&r, s, kind);
            course_free(&r);
        }
    free(s);
}

/* Between iterations a hook comes, goes, and is another one; ranks must agree. */
static void hook_changes(zt_rank *t)
{
    for (int mode = COURSE_SHARDED; mode < COURSE_MODES; mode++) {
        const int is_last = t->rank == t->size - 1;
        course r;

        course_init(&r, t, (course_mode)mode, COURSE_MAX);
        course_create(&r, momentum, NULL);
        course_train(&r, 2);
        CHECK_OK(zro_ddp_set_hook(r.ddp, zro_hook_all_reduce, NULL));
        course_train(&r, 2);
        if (t->size > 1)
            CHECK_STATUS(zro_ddp_set_hook(r.ddp, is_last ? NULL : zro_hook_none, NULL), ZRO_ERR_MISMATCH);
        course_train(&r, 1);
        CHECK_OK(zro_ddp_set_hook(r.ddp, NULL, NULL));
        course_train(&r, 2);
        CHECK_OK(zro_ddp_set_hook(r.ddp, zro_hook_none, NULL));
        course_backward(&r);
        for (size_t i = 0; i < r.n; i++)
            CHECK(reference_same(r.params[i].dtype, r.params[i].grad, r.sum[t->rank][i], zro_param_count(&r.params[i]), NULL));
        course_free(&r);
    }
}

/* On one rank, at the first or at a later bucket. */
static void hook_fails(zt_rank *t)
{
    static const course_mode modes[] = { COURSE_SHARDED, COURSE_IN_PLACE, COURSE_HANDED };
    seen *s = malloc(sizeof *s);

    CHECK(s != NULL);
    for (size_t m = 0; m < 3; m++) {
        const int is_last = t->rank == t->size - 1;
        course r;

        memset(s, 0, sizeof *s);
        s->r = &r;
        s->fails_at = -1;
        course_init(&r, t, modes[m], COURSE_MAX);
        r.config.hook = failing;
        r.config.hook_user = s;
        course_create(&r, momentum, NULL);
        for (int k = 0; k < 3; k++) {
            CHECK_OK(zro_ddp_forward(r.ddp));
            course_batch(&r);
            s->fails_at = is_last ? k : -1;
            course_ready(&r);
            CHECK_STATUS(zro_ddp_backward_end(r.ddp), is_last ? ZRO_ERR_UNSUPPORTED : ZRO_ERR_PEER);
            CHECK_TEXT("the hook of the test fails");
            CHECK(!course_attaches(&r) || zro_optim_step(r.optim, NULL) == ZRO_ERR_STATE);
            CHECK_OK(zro_optim_zero_grad(r.optim, ZRO_ZERO_LEAVE));
            memset(r.has, 0, sizeof r.has);
            s->fails_at = -1;
            course_train(&r, 1);
        }
        course_free(&r);
    }
    free(s);
}

/* On the last rank, while the others are in a collective call of the hook: the ddp breaks.  That rank keeps its status and text; the
 * others are told who has failed, and why. */
static void hook_fails_first(zt_rank *t)
{
    const int is_last = t->rank == t->size - 1;
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    seen *s = malloc(sizeof *s);
    char who[64];
    course r;

    CHECK(s != NULL);
    memset(s, 0, sizeof *s);
    snprintf(who, sizeof who, "rank %d operation", t->size - 1);
    s->r = &r;
    s->fails_at = -1;
    course_init(&r, t, COURSE_HANDED, COURSE_MAX);
    r.config.hook = failing_first;
    r.config.hook_user = s;
    config.overlap = (zro_overlap)t->arg;
    course_create(&r, momentum, &config);
    course_train(&r, 2);
    CHECK_OK(zro_ddp_forward(r.ddp));
    course_batch(&r);
    s->fails_at = is_last ? 1 : -1;
    course_ready(&r);
    CHECK_STATUS(zro_ddp_backward_end(r.ddp), is_last ? ZRO_ERR_UNSUPPORTED : ZRO_ERR_MISMATCH);
    CHECK_TEXT("the hook of the test fails first");
    CHECK_TEXT(is_last ? "the ddp is broken" : who);
    CHECK_STATUS(zro_optim_step(r.optim, NULL), ZRO_ERR_MISMATCH);
    CHECK_TEXT("a bucket of a ddp, which failed there: UNSUPPORTED: the hook of the test fails first");
    CHECK_OK(zro_barrier(t->group));
    course_free(&r);
    free(s);
}

/* The buckets are these: in `order`, or as at creation. */
static void check_buckets(const course *r, const size_t *order)
{
    const size_t limit = r->config.bucket_bytes, *params, *lengths;
    size_t mine[COURSE_MAX], count[COURSE_MAX], n = 0, n_buckets, at = 0, end = r->n;

    CHECK_OK(zro_ddp_buckets(r->ddp, &params, &lengths, &n_buckets));
    CHECK_OK(zro_buckets_form(r->params, order, r->n, &limit, 1, mine, count, NULL, &n));
    CHECK(n == n_buckets && n > 2);
    for (size_t k = 0; k < n; k++) { /* at creation the list is reversed */
        const size_t length = count[order != NULL ? k : n - 1 - k];

        end -= length;
        CHECK(lengths[k] == length && memcmp(params + at, mine + (order != NULL ? at : end), length * sizeof *mine) == 0);
        at += length;
    }
}

/* At the second forward that syncs, in the order in which rank 0's gradients became ready; never with find_unused. */
static void buckets(zt_rank *t)
{
    for (int mode = 0; mode < COURSE_MODES; mode++)
        for (int finds = 0; finds < 2; finds++) {
            size_t zeros[COURSE_MAX];
            course r;

            course_init(&r, t, (course_mode)mode, COURSE_MAX);
            r.config.find_unused = (zro_switch)finds;
            for (size_t i = 0; i < r.n; i++) {
                r.order[i] = (5 * i + 7 * (size_t)t->rank + 2) % r.n; /* another one on each rank */
                zeros[i] = (5 * i + 2) % r.n;
            }
            course_create(&r, momentum, NULL);
            check_buckets(&r, NULL);
            CHECK_OK(zro_ddp_no_sync(r.ddp, ZRO_ON));
            course_backward(&r);
            CHECK_OK(zro_ddp_no_sync(r.ddp, ZRO_OFF));
            course_train(&r, 1);
            check_buckets(&r, NULL);
            for (size_t i = 0; i < r.n; i++)
                r.order[i] = i;
            course_train(&r, 1);
            check_buckets(&r, finds ? NULL : zeros);
            course_train(&r, 2);
            check_buckets(&r, finds ? NULL : zeros);
            course_free(&r);
        }
}

#define SEVERAL (ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4))
#define WORLDS (ZT_WORLD(1) | SEVERAL)

const zt_case cases_ddp_hooks[] = {
    { "ddp_hooks", hooks, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "ddp_hooks_two", hooks, ZT_WORLD(4), ZT_ALL, ZT_TWO_MACHINES, 0, 0, 0 },
    { "ddp_hook_changes", hook_changes, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "ddp_hook_fails", hook_fails, SEVERAL, ZT_ALL, 0, 0, 0, 0 },
    { "ddp_hook_fails_first", hook_fails_first, SEVERAL, ZT_ALL, 0, 0, 0, ZRO_OVERLAP_OFF },
    { "ddp_hook_fails_first_overlap", hook_fails_first, SEVERAL, ZT_ALL, 0, 0, 0, ZRO_OVERLAP_INTERLEAVED },
    { "ddp_buckets", buckets, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
