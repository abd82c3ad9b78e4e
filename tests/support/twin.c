/* Twins: see twin.h. */
#include "twin.h"

#include <stdlib.h>
#include <string.h>

#include "bed.h"

twin_mode twin_mode_at(int i)
{
    static const zro_partition partitions[] = { ZRO_PARTITION_FLAT, ZRO_PARTITION_GREEDY, ZRO_PARTITION_BUCKETS,
                                                ZRO_PARTITION_BUCKETS, ZRO_PARTITION_GIVEN };
    const int k = i % TWIN_PARTITIONS;

    return (twin_mode){ (twin_place)(i / TWIN_PARTITIONS), partitions[k], k == 3 ? ZRO_ON : ZRO_OFF };
}

int twin_next_mode(const zt_rank *t, int i)
{
    const int all = zt_opt.long_too || (t->size <= 2 && (t->backend & ZT_BOTH) != 0);

    for (i++; i < TWIN_MODES && !all; i++)
        if ((i / TWIN_PARTITIONS + i + t->size) % TWIN_PARTITIONS == 0)
            break;
    return i;
}

/* ---- arrays ---- */

/* The sharded copy's data. */
static void place_data(twin *w)
{
    zro_alloc_config config = ZRO_ALLOC_CONFIG_INIT;
    size_t at = 0;
    char *base;

    if (w->mode.place == TWIN_ONCE || w->mode.place == TWIN_EACH) {
        config.grads = ZRO_OFF;
        config.data_kind = w->mode.place == TWIN_ONCE ? ZRO_MEMORY_ONCE : ZRO_MEMORY_EACH;
        CHECK_OK(zro_params_alloc(w->t->group, w->sharded, w->n, &config));
        return;
    }
    for (size_t i = 0; i < w->n; i++)
        at += (w->count[i] + 1) * 8;
    if (w->mode.place == TWIN_GROUP) {
        CHECK_OK(zro_memory_alloc(w->t->group, ZRO_MEMORY_EACH, at, &w->memory));
        base = zro_memory_data(w->memory);
    } else {
        base = w->copies = calloc(1, at);
        CHECK(base != NULL);
    }
    at = 0;
    for (size_t i = 0; i < w->n; i++) {
        w->sharded[i].data = w->count[i] > 0 ? base + at : NULL;
        at += (w->count[i] + 1) * 8;
    }
}

static void fill(twin *w)
{
    uint64_t random = zt_mix(w->t->seed, 1);

    for (size_t i = 0; i < w->n; i++)
        for (size_t k = 0; k < w->count[i]; k++)
            bed_set(w->alone[i].data, w->alone[i].dtype, k, 4 * (double)(zt_next(&random) >> 11) * 0x1p-53 - 2);
    for (size_t i = 0; w->t->rank == 0 && i < w->n; i++)
        if (w->count[i] > 0)
            memcpy(w->sharded[i].data, w->alone[i].data, w->count[i] * zro_dtype_bytes(w->alone[i].dtype));
}

void twin_init(twin *w, zt_rank *t, twin_mode mode, const twin_spec *specs, size_t n)
{
    CHECK(n <= TWIN_MAX);
    memset(w, 0, sizeof *w);
    w->t = t;
    w->mode = mode;
    w->n = n;
    for (size_t i = 0; i < n; i++) {
        zro_param p = ZRO_PARAM_INIT;
        size_t bytes = (specs[i].count + 1) * zro_dtype_bytes(specs[i].grad);

        w->count[i] = p.shape[0] = specs[i].count;
        p.dtype = specs[i].dtype;
        p.grad_dtype = specs[i].grad;
        p.device = specs[i].device;
        w->sharded[i] = w->alone[i] = p;
        w->blocks[2 * i] = calloc(specs[i].count + 1, zro_dtype_bytes(specs[i].dtype));
        w->alone[i].data = specs[i].count > 0 ? w->blocks[2 * i] : NULL;
        w->blocks[2 * i + 1] = calloc(2, bytes);
        CHECK(w->blocks[2 * i] != NULL && w->blocks[2 * i + 1] != NULL);
        w->alone[i].grad = w->blocks[2 * i + 1];
        w->sharded[i].grad = (char *)w->blocks[2 * i + 1] + bytes;
        w->owners[i] = (int32_t)((i * 5 + 1) % (size_t)t->size);
    }
    place_data(w);
    fill(w);
    CHECK_OK(zro_barrier(t->group));
}

void twin_free(twin *w)
{
    zro_optim_destroy(w->optim);
    zro_optim_destroy(w->reference);
    if (w->mode.place == TWIN_ONCE || w->mode.place == TWIN_EACH)
        zro_params_free(w->sharded, w->n);
    zro_memory_free(w->memory);
    free(w->copies);
    for (size_t i = 0; i < 2 * w->n; i++)
        free(w->blocks[i]);
    memset(w, 0, sizeof *w);
}

/* ---- optimizers ---- */

zro_optim_config twin_config(const twin *w, const zro_optim_config *config, zro_plan_config *plan)
{
    zro_optim_config c = ZRO_OPTIM_CONFIG_INIT;

    if (config != NULL)
        c = *config;
    zro_plan_config_init(plan);
    plan->partition = w->mode.partition;
    plan->shard_buckets = w->mode.shard_buckets;
    c.plan = plan;
    c.parameters_as_bucket_view = w->mode.place == TWIN_VIEWS ? ZRO_ON : ZRO_OFF;
    return c;
}

zro_param_group twin_group_of(const twin *w, zro_param *params, size_t first, size_t n)
{
    zro_param_group group = { 0 };

    group.params = params + first;
    group.n = n;
    group.owners = params == w->sharded && w->mode.partition == ZRO_PARTITION_GIVEN ? w->owners + first : NULL;
    return group;
}

void twin_create(twin *w, const zro_rule *rule, const void *rule_config, const zro_optim_config *config, size_t n_used)
{
    zro_optim_config c = ZRO_OPTIM_CONFIG_INIT;
    zro_plan_config plan;
    zro_param_group group;

    w->n_used = n_used > 0 ? n_used : w->n;
    if (config != NULL)
        c = *config;
    c.settings = zt_config().settings;
    group = twin_group_of(w, w->alone, 0, w->n_used);
    CHECK_OK(zro_optim_create(NULL, &group, 1, rule, rule_config, &c, &w->reference));
    c = twin_config(w, config, &plan);
    group = twin_group_of(w, w->sharded, 0, w->n_used);
    CHECK_OK(zro_optim_create(w->t->group, &group, 1, rule, rule_config, &c, &w->optim));
    CHECK_OK(zro_param_publish(w->optim, ZRO_ALL_PARAMS, 0));
    twin_check(w);
}

void twin_add_rest(twin *w)
{
    const size_t first = w->n_used;
    zro_param_group group = twin_group_of(w, w->alone, first, w->n - first);

    CHECK_OK(zro_optim_add_param_group(w->reference, &group));
    group = twin_group_of(w, w->sharded, first, w->n - first);
    CHECK_OK(zro_optim_add_param_group(w->optim, &group));
    w->n_used = w->n;
    for (size_t i = first; i < w->n; i++)
        CHECK_OK(zro_param_publish(w->optim, i, 0));
    twin_check(w);
}

/* ---- training ---- */

void twin_gradients(twin *w, double scale)
{
    for (size_t i = 0; i < w->n_used; i++) {
        zro_param *p = &w->sharded[i];

        for (size_t k = 0; k < w->count[i]; k++)
            bed_set(p->grad, p->grad_dtype, k, scale * ((double)(zt_next(&w->t->random) >> 11) * 0x1p-52 - 1));
        CHECK_OK(zro_all_reduce(w->t->group, p->grad, w->count[i], p->grad_dtype, ZRO_AVG));
        memcpy(w->alone[i].grad, p->grad, w->count[i] * zro_dtype_bytes(p->grad_dtype));
        zro_param_set_grad(p, p->grad);
        zro_param_set_grad(&w->alone[i], w->alone[i].grad);
    }
}

void twin_check(const twin *w)
{
    uint64_t mine, other;

    for (size_t i = 0; i < w->n_used; i++)
        if (w->count[i] > 0)
            CHECK(memcmp(w->sharded[i].data, w->alone[i].data, w->count[i] * zro_dtype_bytes(w->alone[i].dtype)) == 0);
    CHECK_OK(zro_params_hash(w->sharded, w->n_used, &mine));
    CHECK_OK(zro_params_hash(w->alone, w->n_used, &other));
    CHECK(mine == other);
}

static void check_slot(const twin *w, size_t param, const char *name)
{
    zro_slot mine, other;
    size_t size;

    CHECK_OK(zro_optim_slot(w->optim, param, name, &mine));
    CHECK_OK(zro_optim_slot(w->reference, param, name, &other));
    if (!mine.present)
        return; /* not this rank's, or absent on both: what the owner has decides */
    size = zro_dtype_bytes(mine.dtype);
    CHECK(other.present && mine.dtype == other.dtype && mine.first + mine.count <= other.count);
    CHECK(memcmp(mine.data, (char *)other.data + mine.first * size, mine.count * size) == 0);
}

/* The number of elements of a slot over all ranks is what it is alone. */
static void check_whole(const twin *w, size_t param, const char *name)
{
    zro_slot mine, other;
    int64_t elements;

    CHECK_OK(zro_optim_slot(w->optim, param, name, &mine));
    CHECK_OK(zro_optim_slot(w->reference, param, name, &other));
    if (other.count == 1 && other.dtype == ZRO_F64)
        return; /* may be a single number, which every owner has */
    elements = mine.present ? (int64_t)mine.count : 0;
    CHECK_OK(zro_all_reduce(w->t->group, &elements, 1, ZRO_I64, ZRO_SUM));
    CHECK(elements == (other.present ? (int64_t)other.count : 0));
}

void twin_check_slots(const twin *w)
{
    for (size_t i = 0; i < w->n_used; i++)
        for (size_t k = 0; k < zro_optim_slots(w->reference); k++) {
            check_slot(w, i, zro_optim_slot_name(w->reference, k));
            check_whole(w, i, zro_optim_slot_name(w->reference, k));
        }
}

void twin_step(twin *w)
{
    CHECK_OK(zro_optim_step(w->reference, NULL));
    CHECK_OK(zro_optim_step(w->optim, NULL));
    twin_check(w);
}

void twin_train(twin *w, int steps)
{
    for (int k = 0; k < steps; k++) {
        twin_gradients(w, 1);
        twin_step(w);
    }
    twin_check_slots(w);
}

zro_step_info twin_info(const zro_optim *optim)
{
    zro_step_info info = ZRO_STEP_INFO_INIT;

    CHECK_OK(zro_optim_info(optim, &info));
    return info;
}

zro_stats twin_stats(const zro_optim *optim)
{
    zro_stats stats = ZRO_STATS_INIT;

    CHECK_OK(zro_optim_stats(optim, &stats));
    return stats;
}
