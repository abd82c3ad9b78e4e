/* Parameters for tests of optimizers: see bed.h. */
#include "bed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "settings.h"
#include "zt/zt.h"

void bed_init(bed *b, zro_dtype dtype, zro_dtype grad, const size_t *counts, size_t n)
{
    CHECK(n <= BED_MAX);
    memset(b, 0, sizeof *b);
    b->n = n;
    b->size = zro_dtype_bytes(dtype);
    b->grad_size = zro_dtype_bytes(grad);
    for (size_t i = 0; i < n; i++) {
        zro_param *p = &b->params[i];

        zro_param_init(p);
        b->count[i] = p->shape[0] = counts[i];
        p->dtype = dtype;
        p->grad_dtype = grad;
        b->blocks[2 * i] = calloc(counts[i] + 3, b->size);
        b->blocks[2 * i + 1] = calloc(counts[i] + 3, b->grad_size);
        CHECK(b->blocks[2 * i] != NULL && b->blocks[2 * i + 1] != NULL);
        p->data = b->count[i] > 0 ? (char *)b->blocks[2 * i] + b->size : NULL;
        zro_param_set_grad(p, (char *)b->blocks[2 * i + 1] + b->grad_size);
    }
}

void bed_free(bed *b)
{
    for (size_t i = 0; i < 2 * b->n; i++)
        free(b->blocks[i]);
    b->n = 0;
}

void bed_split(bed *to, const bed *from, const size_t *lengths, size_t n)
{
    size_t at = 0;

    bed_init(to, from->params[0].dtype, from->params[0].grad_dtype, lengths, n);
    for (size_t i = 0; i < n; i++) {
        if (lengths[i] == 0)
            continue;
        memcpy(to->params[i].data, (const char *)from->params[0].data + at * from->size, lengths[i] * from->size);
        memcpy(to->params[i].grad, (const char *)from->params[0].grad + at * from->grad_size, lengths[i] * from->grad_size);
        at += lengths[i];
    }
    CHECK(at == from->count[0]);
}

static double unit(uint64_t *random)
{
    return (double)(zt_next(random) >> 11) * 0x1p-53;
}

double bed_get(const void *data, zro_dtype dtype, size_t i)
{
    double d;
    float f;
    uint16_t h;

    if (dtype == ZRO_F64) {
        memcpy(&d, (const char *)data + i * sizeof d, sizeof d);
        return d;
    }
    if (dtype == ZRO_F32) {
        memcpy(&f, (const char *)data + i * sizeof f, sizeof f);
        return (double)f;
    }
    memcpy(&h, (const char *)data + i * sizeof h, sizeof h);
    return (double)(dtype == ZRO_BF16 ? zro__f32_from_bf16(h) : zro__f32_from_f16(h));
}

void bed_set(void *data, zro_dtype dtype, size_t i, double value)
{
    float f = (float)value;
    uint16_t h = dtype == ZRO_BF16 ? zro__bf16_from_f32(f) : zro__f16_from_f32(f);

    if (dtype == ZRO_F64)
        memcpy((char *)data + i * sizeof value, &value, sizeof value);
    else if (dtype == ZRO_F32)
        memcpy((char *)data + i * sizeof f, &f, sizeof f);
    else
        memcpy((char *)data + i * sizeof h, &h, sizeof h);
}

void bed_fill(bed *b, uint64_t *random)
{
    for (size_t i = 0; i < b->n; i++)
        for (size_t k = 0; k < b->count[i]; k++)
            bed_set(b->params[i].data, b->params[i].dtype, k, 4 * unit(random) - 2);
}

void bed_gradients(bed *b, uint64_t *random, double scale, int wild)
{
    static const double special[] = { 0, -0.0, INFINITY, -INFINITY, NAN, 1e-40, -1e-310, 3e38, 1 };

    for (size_t i = 0; i < b->n; i++) {
        zro_param *p = &b->params[i];

        for (size_t k = 0; k < b->count[i]; k++) {
            double g = scale * (unit(random) + unit(random) + unit(random) + unit(random) - 2);
            uint64_t bits = zt_next(random);

            if (wild && bits % 4 == 0)
                g = special[bits / 4 % (sizeof special / sizeof *special)];
            bed_set(p->grad, p->grad_dtype, k, g);
            if (wild && bits % 16 == 1)
                memcpy((char *)p->grad + k * b->grad_size, &bits, b->grad_size);
        }
    }
}

int bed_equal_arrays(const void *a, const void *b, zro_dtype dtype, size_t n)
{
    const size_t size = zro_dtype_bytes(dtype);

    for (size_t i = 0; i < n; i++)
        if (memcmp((const char *)a + i * size, (const char *)b + i * size, size) != 0
            && !(isnan(bed_get(a, dtype, i)) && isnan(bed_get(b, dtype, i))))
            return 0;
    return 1;
}

int bed_equal(const bed *a, const bed *b)
{
    zro_dtype dtype = a->params[0].dtype;
    size_t i = 0, k = 0, at = 0, in = 0; /* parameters of a and b, and elements of them */

    for (;;) {
        size_t n;

        while (i < a->n && at == a->count[i]) {
            at = 0;
            i++;
        }
        while (k < b->n && in == b->count[k]) {
            in = 0;
            k++;
        }
        if (i == a->n || k == b->n)
            return i == a->n && k == b->n;
        n = a->count[i] - at < b->count[k] - in ? a->count[i] - at : b->count[k] - in;

        if (!bed_equal_arrays((const char *)a->params[i].data + at * a->size, (const char *)b->params[k].data + in * a->size,
                              dtype, n))
            return 0;
        at += n;
        in += n;
    }
}

zro_optim *bed_optim(bed *b, const char *text, const zro_optim_config *config)
{
    zro_param_group group = { .params = b->params, .n = b->n };
    zro_optim *opt;
    setting s;

    setting_read(&s, text);
    group.values = s.values;
    group.n_values = s.n_values;
    CHECK_OK(zro_optim_create(NULL, &group, 1, s.rule, NULL, config, &opt));
    return opt;
}
