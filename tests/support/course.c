/* A ddp beside its reference: see course.h. */
#include "course.h"

#include <stdlib.h>
#include <string.h>

#include "bed.h"
#include "reference.h"
#include "settings.h"

/* A parameter of every kind: without elements, with one, in f64 (a bucket of its own), longer than a block. */
static const struct {
    const char *name;
    size_t count;
    zro_dtype dtype;
} kinds[COURSE_MAX] = {
    { "a", 300, ZRO_F32 }, { "b", 5, ZRO_F32 },  { "c", 2200, ZRO_F32 }, { "d", 0, ZRO_F32 },
    { "e", 70, ZRO_F64 },  { "f", 1, ZRO_F32 },  { NULL, 129, ZRO_F32 }, { "h", 64, ZRO_F32 },
    { "i", 300, ZRO_F64 }, { "j", 17, ZRO_F32 }, { "k", 1100, ZRO_F32 }, { "l", 3, ZRO_F32 },
};

int course_attaches(const course *r)
{
    return r->mode >= COURSE_IN_PLACE;
}

static size_t bytes_of(const zro_param *p)
{
    return zro_param_count(p) * zro_dtype_bytes(p->dtype);
}

static double unit(uint64_t bits)
{
    return (double)(int64_t)bits * 0x1p-63;
}

double course_sample(const course *r, int rank, int batch, int sample, size_t param, size_t element)
{
    const uint64_t where = zt_mix(zt_mix((uint64_t)rank, (uint64_t)batch), zt_mix((uint64_t)sample, param));

    return (double)(float)unit(zt_mix(zt_mix(r->t->seed, where), element));
}

/* ---- making ---- */

static void place(course *r)
{
    char *at = r->memory;

    for (size_t i = 0; i < r->n; i++) {
        const size_t bytes = bytes_of(&r->copy[i]);
        void **arrays[] = { &r->copy[i].data, &r->copy[i].grad, &r->params[i].data, &r->params[i].grad };

        for (size_t k = 0; k < (r->mode == COURSE_HANDED ? 2 : 4); k++, at += bytes)
            *arrays[k] = bytes > 0 ? at : NULL;
        for (int k = 0; k < r->t->size; k++, at += bytes)
            r->sum[k][i] = at;
    }
    if (r->mode == COURSE_HANDED)
        CHECK_OK(zro_params_alloc(r->t->group, r->params, r->n, NULL));
}

static void fill(course *r)
{
    for (size_t i = 0; i < r->n; i++) {
        for (size_t k = 0; k < kinds[i].count; k++)
            bed_set(r->copy[i].data, kinds[i].dtype, k, unit(zt_mix(zt_mix(r->t->seed, i), k)));
        if (r->t->rank == 0 && kinds[i].count > 0)
            memcpy(r->params[i].data, r->copy[i].data, bytes_of(&r->copy[i]));
    }
}

void course_init(course *r, zt_rank *t, course_mode mode, size_t n)
{
    size_t bytes = 0;

    CHECK(n <= COURSE_MAX && t->size <= COURSE_RANKS);
    memset(r, 0, sizeof *r);
    r->t = t;
    r->mode = mode;
    r->n = n;
    zro_ddp_config_init(&r->config);
    r->config.bucket_bytes = 1024;
    for (size_t i = 0; i < n; i++) {
        zro_param_init(&r->copy[i]);
        r->copy[i].name = kinds[i].name;
        r->copy[i].shape[0] = kinds[i].count;
        r->copy[i].dtype = kinds[i].dtype;
        r->params[i] = r->copy[i];
        r->order[i] = n - 1 - i;
        bytes += bytes_of(&r->copy[i]) * (size_t)(4 + t->size);
    }
    memset(r->uses, 1, sizeof r->uses);
    for (int k = 0; k < COURSE_RANKS; k++)
        r->samples[k] = 1;
    r->memory = calloc(1, bytes);
    CHECK(r->memory != NULL);
    place(r);
    fill(r);
}

void course_create(course *r, const char *text, const zro_optim_config *config)
{
    zro_optim_config c = ZRO_OPTIM_CONFIG_INIT;
    zro_param_group group = ZRO_PARAM_GROUP_INIT;
    setting s;

    if (config != NULL)
        c = *config;
    setting_read(&s, text);
    group.n = r->n;
    group.values = s.values;
    group.n_values = s.n_values;
    group.params = r->copy;
    c.settings = zt_config().settings;
    c.overlap = ZRO_OVERLAP_OFF;
    CHECK_OK(zro_optim_create(NULL, &group, 1, s.rule, NULL, &c, &r->reference));
    r->config.gradient_as_bucket_view = r->mode == COURSE_VIEWS ? ZRO_ON : ZRO_OFF;
    if (r->mode == COURSE_HOOK && r->config.hook == NULL)
        r->config.hook = zro_hook_all_reduce;
    CHECK_OK(zro_ddp_create(r->t->group, r->params, r->n, &r->config, &r->ddp));
    group.params = r->params;
    c.ddp = course_attaches(r) ? r->ddp : NULL;
    c.overlap = config != NULL ? config->overlap : ZRO_OVERLAP_OFF;
    CHECK_OK(zro_optim_create(r->mode == COURSE_ALONE ? NULL : r->t->group, &group, 1, s.rule, NULL, &c, &r->optim));
    course_check(r);
}

void course_free(course *r)
{
    zro_optim_destroy(r->optim);
    zro_optim_destroy(r->reference);
    zro_ddp_destroy(r->ddp);
    if (r->mode == COURSE_HANDED)
        zro_params_free(r->params, r->n);
    free(r->memory);
    memset(r, 0, sizeof *r);
}

/* ---- an iteration ---- */

/* The average of a rank's samples. */
static double gradient(const course *r, int rank, size_t i, size_t k)
{
    double sum = 0;

    for (int s = 0; s < r->samples[rank]; s++)
        sum += course_sample(r, rank, r->batch, s, i, k);
    return sum / r->samples[rank];
}

static void add(void *array, zro_dtype dtype, size_t k, double value, int adds)
{
    char rounded[8];

    bed_set(rounded, dtype, 0, value);
    value = bed_get(rounded, dtype, 0);
    bed_set(array, dtype, k, adds ? bed_get(array, dtype, k) + value : value);
}

void course_batch(course *r)
{
    for (int rank = 0; rank < r->t->size; rank++)
        for (size_t i = 0; i < r->n; i++) {
            zro_param *p = &r->params[i];

            if (!r->uses[rank][i] || p->requires_grad == 0)
                continue;
            for (size_t k = 0; k < zro_param_count(p); k++) {
                const double g = gradient(r, rank, i, k);

                add(r->sum[rank][i], p->dtype, k, g, r->has[rank][i]);
                if (rank == r->t->rank)
                    add(p->grad, p->dtype, k, g, r->has[rank][i]);
            }
            r->has[rank][i] = 1;
        }
    r->batch++;
}

void course_ready(course *r)
{
    for (size_t k = 0; k < r->n; k++) {
        const size_t i = r->order[k];

        if (r->uses[r->t->rank][i] && r->params[i].requires_grad != 0)
            CHECK_OK(zro_ddp_grad_ready(r->ddp, i));
    }
}

void course_expect(course *r)
{
    int32_t cells[COURSE_RANKS];
    double weights[COURSE_RANKS];

    for (int k = 0; k < r->t->size; k++) {
        cells[k] = (int32_t)zt_machine(r->t, r->t->machines, k);
        weights[k] = r->joined[k] ? 0 : r->config.weighted == ZRO_ON ? r->samples[k] : 1;
    }
    for (size_t i = 0; i < r->n; i++) {
        unsigned char present[COURSE_RANKS];
        const void *in[COURSE_RANKS];
        int any = 0;

        for (int k = 0; k < r->t->size; k++) {
            present[k] = r->has[k][i] && !r->joined[k];
            in[k] = r->sum[k][i];
            any |= present[k];
        }
        r->copy[i].requires_grad = r->params[i].requires_grad;
        r->copy[i].grad_present = (uint32_t)any;
        if (any)
            reference_reduce(r->copy[i].dtype, ZRO_AVG, r->t->size, cells,
                             r->config.weighted == ZRO_ON || r->divides_by_rest ? weights : NULL, present, in, r->copy[i].grad,
                             zro_param_count(&r->copy[i]));
    }
}

void course_backward(course *r)
{
    CHECK_OK(zro_ddp_forward(r->ddp));
    course_batch(r);
    course_ready(r);
    CHECK_OK(zro_ddp_backward_end(r->ddp));
}

void course_step(course *r)
{
    CHECK_OK(zro_optim_step(r->reference, NULL));
    CHECK_OK(zro_optim_step(r->optim, NULL));
    course_check(r);
    CHECK_OK(zro_optim_zero_grad(r->reference, ZRO_ZERO_LEAVE));
    for (size_t i = 0; course_attaches(r) && i < r->n; i++)
        CHECK(r->params[i].grad_present == 0);
    if (!course_attaches(r))
        CHECK_OK(zro_optim_zero_grad(r->optim, ZRO_ZERO_LEAVE));
    memset(r->has, 0, sizeof r->has);
}

void course_train(course *r, int iterations)
{
    for (int k = 0; k < iterations; k++) {
        course_backward(r);
        course_expect(r);
        course_step(r);
    }
}

/* ---- comparison ---- */

static void check_slot(const course *r, size_t i, const char *name)
{
    zro_slot mine, other;
    size_t size;

    CHECK_OK(zro_optim_slot(r->optim, i, name, &mine));
    CHECK_OK(zro_optim_slot(r->reference, i, name, &other));
    CHECK(!mine.present || other.present);
    if (!mine.present)
        return; /* absent on both, or not this rank's */
    size = zro_dtype_bytes(mine.dtype);
    CHECK(mine.dtype == other.dtype && mine.first + mine.count <= other.count);
    CHECK(memcmp(mine.data, (char *)other.data + mine.first * size, mine.count * size) == 0);
}

void course_check(const course *r)
{
    for (size_t i = 0; i < r->n; i++) {
        const zro_param *p = &r->params[i];

        CHECK(bytes_of(p) == 0 || memcmp(p->data, r->copy[i].data, bytes_of(p)) == 0);
        for (size_t k = 0; k < zro_optim_slots(r->reference); k++)
            check_slot(r, i, zro_optim_slot_name(r->reference, k));
    }
}
