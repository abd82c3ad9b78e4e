/* S92: the gradients of all parameters averaged in one call. */
#include <stdlib.h>
#include <string.h>

#include "bed.h"
#include "zt/list.h"
#include "zt/zt.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define WORLDS (ZT_WORLD(1) | ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4) | ZT_WORLD(7))

typedef struct spec {
    size_t count;
    zro_dtype dtype, grad;
} spec;

static const spec specs[] = {
    { 5, ZRO_F32, ZRO_F32 },     { 3000, ZRO_F32, ZRO_F32 }, { 2050, ZRO_BF16, ZRO_F32 }, { 20000, ZRO_F32, ZRO_F32 },
    { 70, ZRO_F16, ZRO_F16 },    { 1, ZRO_F64, ZRO_F64 },    { 0, ZRO_F32, ZRO_F32 },     { 5000, ZRO_BF16, ZRO_BF16 },
    { 40000, ZRO_F64, ZRO_F64 }, { 33, ZRO_F32, ZRO_F32 },   { 7, ZRO_F32, ZRO_F32 },     { 1024, ZRO_F32, ZRO_F32 },
};

enum { N = COUNT(specs) };
enum { OWN, GROUP, PLACES }; /* where gradients lie */

/* Who has a gradient of a parameter: nobody, some, or all ranks; the same function on all ranks. */
static int has(uint64_t seed, size_t param, int rank)
{
    uint64_t kind = zt_mix(seed, param) % 4;

    return kind == 0 ? 0 : kind == 1 ? (zt_mix(seed, param * 100 + (size_t)rank) & 1) != 0 : 1;
}

static int any_has(uint64_t seed, size_t param, int size)
{
    int any = 0;

    for (int r = 0; r < size; r++)
        any |= has(seed, param, r);
    return any;
}

/* Gradients of this rank, and what one all-reduce per parameter makes of them. */
static void one_round(zt_rank *t, zro_param *params, zro_op op, uint64_t seed)
{
    void *expected[N];

    for (size_t i = 0; i < N; i++) {
        for (size_t k = 0; k < specs[i].count; k++)
            bed_set(params[i].grad, specs[i].grad, k, (double)(int64_t)zt_next(&t->random) * 0x1p-62);
        params[i].grad_present = (uint32_t)has(seed, i, t->rank);
    }
    for (size_t i = 0; i < N; i++) {
        const size_t bytes = specs[i].count * zro_dtype_bytes(specs[i].grad);

        expected[i] = calloc(1, bytes + 1);
        CHECK(expected[i] != NULL);
        if (params[i].grad_present)
            memcpy(expected[i], params[i].grad, bytes);
        if (any_has(seed, i, t->size))
            CHECK_OK(zro_all_reduce(t->group, expected[i], specs[i].count, specs[i].grad, op));
        else
            memcpy(expected[i], params[i].grad, bytes); /* not touched */
    }
    CHECK_OK(zro_params_all_reduce(t->group, params, N, op));
    for (size_t i = 0; i < N; i++) {
        CHECK(params[i].grad_present == (uint32_t)any_has(seed, i, t->size));
        CHECK(bed_equal_arrays(params[i].grad, expected[i], specs[i].grad, specs[i].count));
        free(expected[i]);
    }
}

static void averages_all(zt_rank *t)
{
    static const zro_param empty = ZRO_PARAM_INIT;
    static const zro_op ops[] = { ZRO_AVG, ZRO_SUM, ZRO_MIN, ZRO_MAX };

    for (int place = OWN; place < PLACES; place++) {
        zro_param params[N];
        void *blocks[N] = { NULL };
        zro_alloc_config config = ZRO_ALLOC_CONFIG_INIT;

        config.data = ZRO_OFF;
        for (size_t i = 0; i < N; i++) {
            params[i] = empty;
            params[i].dtype = specs[i].dtype;
            params[i].grad_dtype = specs[i].grad;
            params[i].shape[0] = specs[i].count;
            if (place == OWN) { /* in memory that lies differently on each rank */
                blocks[i] = malloc(specs[i].count * 8 + 8 * (size_t)(t->rank + 1));
                CHECK(blocks[i] != NULL);
                params[i].grad = (char *)blocks[i] + 8 * t->rank;
            }
        }
        if (place == GROUP)
            CHECK_OK(zro_params_alloc(t->group, params, N, &config));
        for (size_t k = 0; k < 2 * COUNT(ops); k++)
            one_round(t, params, ops[k % COUNT(ops)], zt_mix(t->seed, k));
        if (place == GROUP)
            zro_params_free(params, N);
        for (size_t i = 0; i < N; i++)
            free(blocks[i]);
    }
}

/* More parameters than fit into one transfer. */
static void averages_many(zt_rank *t)
{
    enum { MANY = 70000 };
    zro_param *params = malloc(MANY * sizeof *params);
    float *grads = malloc(3 * MANY * sizeof *grads);

    CHECK(params != NULL && grads != NULL);
    for (size_t i = 0; i < MANY; i++) {
        zro_param_init(&params[i]);
        params[i].shape[0] = 3;
        params[i].grad = grads + 3 * i;
        params[i].grad_present = t->rank == 0 || i % 3 != 0;
        for (size_t k = 0; k < 3; k++)
            grads[3 * i + k] = (float)(t->rank + 1) * (float)(i % 100);
    }
    CHECK_OK(zro_params_all_reduce(t->group, params, MANY, ZRO_SUM));
    for (size_t i = 0; i < 3 * MANY; i++) {
        int all = t->size * (t->size + 1) / 2, n = i / 3 % 3 != 0 ? all : 1;

        CHECK(grads[i] == (float)n * (float)(i / 3 % 100));
    }
    free(params);
    free(grads);
}

static void refuses(zt_rank *t)
{
    const int last = t->rank == t->size - 1;
    float a[3] = { 1, 2, 3 }, b[3] = { 4, 5, 6 };
    int32_t whole[3] = { 0, 0, 0 };
    zro_param p[2];

    for (int i = 0; i < 2; i++) {
        zro_param_init(&p[i]);
        p[i].shape[0] = 3;
        zro_param_set_grad(&p[i], i == 0 ? a : b);
    }
    p[1].name = "bias";
    CHECK_OK(zro_params_all_reduce(t->group, p, 0, ZRO_AVG));
    CHECK_STATUS(zro_params_all_reduce(t->group, p, last ? 1 : 2, ZRO_AVG), ZRO_ERR_MISMATCH);
    CHECK_TEXT("2 parameters");
    CHECK_STATUS(zro_params_all_reduce(t->group, p, 2, last ? ZRO_SUM : ZRO_AVG), ZRO_ERR_MISMATCH);
    p[1].shape[0] = last ? 2 : 3;
    CHECK_STATUS(zro_params_all_reduce(t->group, p, 2, ZRO_AVG), ZRO_ERR_MISMATCH);
    CHECK_TEXT("bias");
    p[1].shape[0] = 3;
    if (last)
        zro_param_set_grad(&p[1], NULL);
    CHECK_STATUS(zro_params_all_reduce(t->group, p, 2, ZRO_AVG), ZRO_ERR_INVALID);
    CHECK_TEXT("bias");
    p[1].grad_present = 1;
    CHECK_STATUS(zro_params_all_reduce(t->group, p, 2, ZRO_AVG), last ? ZRO_ERR_INVALID : ZRO_ERR_PEER);
    CHECK_TEXT("bias");
    zro_param_set_grad(&p[1], whole);
    p[1].dtype = ZRO_I32;
    CHECK_STATUS(zro_params_all_reduce(t->group, p, 2, ZRO_AVG), ZRO_ERR_UNSUPPORTED);
    CHECK_OK(zro_params_all_reduce(t->group, p, 2, ZRO_SUM));
    /* What was refused changed nothing. */
    CHECK(a[1] == 2 * (float)t->size && b[1] == 5);
}

const zt_case cases_zero_reduce_grads[] = {
    { "S92_averages_all", averages_all, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { "S92_averages_many", averages_many, ZT_WORLD(2), ZT_ALL, 0, 60, 0, 0 },
    { "S92_refuses", refuses, ZT_WORLD(2) | ZT_WORLD(3), ZT_ALL, 0, 0, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
