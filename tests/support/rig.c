/* Rigs: see rig.h. */
#include "rig.h"

#include <stdlib.h>
#include <string.h>

#include "ddp/ddp.h"
#include "reference.h"
#include "trials.h"

/* ---- arrays ---- */

static void *take(rig *r, size_t i, size_t which, size_t elements)
{
    void *block = calloc(elements + 1, sizeof(float));

    CHECK(block != NULL);
    r->blocks[5 * i + which] = block;
    return block;
}

/* Data once, and gradients of the program's own. */
static int is_data_alone(rig_memory memory)
{
    return memory == RIG_DATA || memory == RIG_STAGED;
}

static int is_handed_out(rig_memory memory)
{
    return memory == RIG_ONCE || memory == RIG_EACH || is_data_alone(memory);
}

static void place(rig *r)
{
    zro_alloc_config config = ZRO_ALLOC_CONFIG_INIT;

    if (!is_handed_out(r->mode.memory))
        return;
    config.data_kind = r->mode.memory == RIG_EACH ? ZRO_MEMORY_EACH : ZRO_MEMORY_ONCE;
    config.grads = is_data_alone(r->mode.memory) ? ZRO_OFF : ZRO_ON;
    CHECK_OK(zro_params_alloc(r->group, r->params, r->n, &config));
}

void rig_init(rig *r, zt_rank *t, zro_group *group, rig_mode mode, const size_t *counts, size_t n, uint64_t seed)
{
    const size_t ranks = (size_t)zro_group_size(group);
    uint64_t random = zt_mix(seed, 1);

    CHECK(n <= RIG_MAX);
    memset(r, 0, sizeof *r);
    r->t = t;
    r->group = group;
    r->mode = mode;
    r->n = n;
    r->seed = seed;
    for (size_t i = 0; i < n; i++) {
        zro_param p = ZRO_PARAM_INIT;

        r->count[i] = p.shape[0] = counts[i];
        r->params[i] = r->alone[i] = p;
        r->alone[i].data = counts[i] > 0 ? take(r, i, 0, counts[i]) : NULL;
        r->sum[i] = take(r, i, 1, ranks * counts[i]);
        r->average[i] = r->alone[i].grad = take(r, i, 2, counts[i]);
        if (!is_handed_out(mode.memory) && counts[i] > 0)
            r->params[i].data = take(r, i, 3, counts[i]);
        if (!is_handed_out(mode.memory) || is_data_alone(mode.memory))
            r->params[i].grad = take(r, i, 4, counts[i]);
        for (size_t k = 0; k < counts[i]; k++)
            ((float *)r->alone[i].data)[k] = (float)(4 * (double)(zt_next(&random) >> 11) * 0x1p-53 - 2);
    }
    place(r);
    for (size_t i = 0; zro_group_rank(group) == 0 && i < n; i++)
        if (counts[i] > 0)
            memcpy(r->params[i].data, r->alone[i].data, counts[i] * sizeof(float));
    CHECK_OK(zro_barrier(group));
}

void rig_free(rig *r)
{
    for (int k = 0; k < 2; k++) {
        zro_optim_destroy(r->optim[k]);
        zro_optim_destroy(r->reference[k]);
    }
    zro_ddp_destroy(r->ddp);
    if (is_handed_out(r->mode.memory))
        zro_params_free(r->params, r->n);
    for (size_t i = 0; i < 5 * r->n; i++)
        free(r->blocks[i]);
    memset(r, 0, sizeof *r);
}

/* ---- handles ---- */

/* The parameters [*first, *first + *n) of optimizer k. */
static void part_of(const rig *r, int k, size_t *first, size_t *n)
{
    const size_t left = (size_t)r->mode.leaves, half = r->mode.optimizers == 2 ? (r->n - left) / 2 : r->n - left;

    *first = k == 0 ? left : left + half;
    *n = k == 0 ? half : r->n - left - half;
}

zro_status rig_create_ddp(rig *r, zro_ddp **out)
{
    zro_ddp_config config = ZRO_DDP_CONFIG_INIT;

    config.bucket_bytes = r->mode.bucket_bytes;
    config.find_unused = r->mode.find_unused;
    config.static_graph = r->mode.static_graph;
    config.gradient_as_bucket_view = r->mode.memory == RIG_VIEWS ? ZRO_ON : ZRO_OFF;
    config.hook = r->mode.hook;
    config.stage_grads = r->mode.memory == RIG_STAGED ? ZRO_ON : ZRO_OFF;
    return zro_ddp_create(r->group, r->params, r->n, &config, out);
}

static zro_status create_optim(rig *r, int k, zro_param *params, zro_group *group, zro_ddp *ddp, zro_optim **out)
{
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_param_group of = { 0 };
    size_t first;

    part_of(r, k, &first, &of.n);
    of.params = params + first;
    config.clip_norm = r->mode.clip_norm;
    config.loss_scale = r->mode.loss_scale;
    config.ddp = ddp;
    config.overlap = ddp != NULL ? r->mode.overlap[k] : ZRO_OVERLAP_OFF;
    if (group == NULL)
        config.settings = zt_config().settings;
    return zro_optim_create(group, &of, 1, zro_rule_adam(), NULL, &config, out);
}

zro_status rig_create_optim(rig *r, int k, zro_optim **out)
{
    return create_optim(r, k, r->params, r->group, r->ddp, out);
}

void rig_create_reference(rig *r)
{
    for (int k = 0; k < r->mode.optimizers; k++)
        CHECK_OK(create_optim(r, k, r->alone, NULL, NULL, &r->reference[k]));
}

void rig_create(rig *r)
{
    CHECK_OK(rig_create_ddp(r, &r->ddp));
    for (int k = 0; k < r->mode.optimizers; k++)
        CHECK_OK(rig_create_optim(r, k, &r->optim[k]));
    rig_create_reference(r);
    rig_check(r);
}

void rig_set_timeout(rig *r, uint64_t ms)
{
    trials_set_timeout(r->ddp->group, ms);
}

/* ---- gradients ---- */

float rig_gradient(const rig *r, int rank, size_t i, size_t k)
{
    const uint64_t salt = r->seed + 1000003 * r->iteration + 101 * (uint64_t)rank + i;

    return (float)((int)((uint32_t)(salt * 0x9e3779b9 + k * 2654435761U) >> 22) - 512) / 64;
}

void rig_add(rig *r, size_t i, const unsigned char *uses)
{
    const int ranks = zro_group_size(r->group);

    for (int q = 0; q < ranks; q++) {
        float *sum = r->sum[i] + (size_t)q * r->count[i];

        if (!uses[q])
            continue;
        for (size_t k = 0; k < r->count[i]; k++)
            sum[k] = (r->present[i][q] ? sum[k] : 0) + rig_gradient(r, q, i, k);
        r->present[i][q] = 1;
    }
}

void rig_write(rig *r, size_t i)
{
    const float *sum = r->sum[i] + (size_t)zro_group_rank(r->group) * r->count[i];

    if (r->count[i] > 0)
        memcpy(r->params[i].grad, sum, r->count[i] * sizeof(float));
}

int rig_has(const rig *r, size_t i)
{
    int has = 0;

    for (int q = 0; q < zro_group_size(r->group); q++)
        has |= r->present[i][q];
    return has;
}

static void find_average(rig *r, size_t i)
{
    const int ranks = zro_group_size(r->group);
    const void *in[ZT_MAX_RANKS];

    for (int q = 0; q < ranks; q++)
        in[q] = r->sum[i] + (size_t)q * r->count[i];
    reference_reduce(ZRO_F32, ZRO_AVG, ranks, NULL, NULL, r->present[i], in, r->average[i], r->count[i]);
}

void rig_check_gradients(rig *r, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++) {
        const zro_param *p = &r->params[i];

        CHECK((__atomic_load_n(&p->grad_present, __ATOMIC_ACQUIRE) != 0) == rig_has(r, i));
        if (!rig_has(r, i))
            continue;
        find_average(r, i);
        for (size_t k = 0; k < r->count[i]; k++)
            if (((const float *)p->grad)[k] != r->average[i][k])
                zt_fail(__FILE__, __LINE__, "element %zu of the average of parameter %zu is %g, not %g", k, i,
                        (double)((const float *)p->grad)[k], (double)r->average[i][k]);
    }
}

void rig_step_reference(rig *r)
{
    for (size_t i = 0; i < r->n; i++) {
        find_average(r, i);
        zro_param_set_grad(&r->alone[i], r->average[i]);
        r->alone[i].grad_present = (uint32_t)rig_has(r, i);
    }
    for (int k = 0; k < r->mode.optimizers; k++)
        CHECK_OK(zro_optim_step(r->reference[k], NULL));
}

void rig_check(const rig *r)
{
    for (size_t i = 0; i < r->n; i++)
        for (size_t k = 0; k < r->count[i]; k++)
            if (((const float *)r->params[i].data)[k] != ((const float *)r->alone[i].data)[k])
                zt_fail(__FILE__, __LINE__, "iteration %llu: element %zu of parameter %zu is %g, not %g",
                        (unsigned long long)r->iteration, k, i, (double)((const float *)r->params[i].data)[k],
                        (double)((const float *)r->alone[i].data)[k]);
}

void rig_forget(rig *r)
{
    for (size_t i = 0; i < r->n; i++)
        __atomic_store_n(&r->params[i].grad_present, 0, __ATOMIC_RELEASE);
    memset(r->present, 0, sizeof r->present);
}

/* ---- plain iterations ---- */

zro_status rig_backward(rig *r)
{
    unsigned char uses[ZT_MAX_RANKS];
    zro_status st = zro_ddp_forward(r->ddp);

    memset(uses, 1, sizeof uses);
    r->iteration++;
    rig_forget(r);
    for (size_t i = r->n; i-- > 0;) {
        rig_add(r, i, uses);
        if (st != ZRO_OK)
            continue;
        rig_write(r, i);
        st = zro_ddp_grad_ready(r->ddp, i);
    }
    return st;
}

zro_status rig_rest(rig *r)
{
    zro_status st = zro_ddp_backward_end(r->ddp);

    for (int k = 0; st == ZRO_OK && k < r->mode.optimizers; k++)
        st = zro_optim_step(r->optim[k], NULL);
    return st;
}

void rig_train(rig *r, int iterations)
{
    for (int i = 0; i < iterations; i++) {
        CHECK_OK(rig_backward(r));
        CHECK_OK(rig_rest(r));
        rig_check_gradients(r, 0, r->mode.optimizers > 0 ? (size_t)r->mode.leaves : r->n);
        rig_step_reference(r);
        rig_check(r);
    }
}

/* ---- a hook ---- */

zro_status rig_hook(void *user, zro_bucket *bucket)
{
    zro_dtype dtype;
    size_t count;
    float *buffer = zro_bucket_buffer(bucket, &count, &dtype), ranks = 1;
    zro_status st = zro_all_reduce(zro_bucket_group(bucket), &ranks, 1, ZRO_F32, ZRO_SUM);

    (void)user;
    if (st == ZRO_OK)
        st = zro_all_reduce(zro_bucket_group(bucket), buffer, count, dtype, ZRO_SUM);
    for (size_t i = 0; st == ZRO_OK && i < count; i++)
        buffer[i] /= ranks;
    return st;
}
