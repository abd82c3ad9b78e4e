/* What creating a sharded optimizer refuses: on all ranks alike (S07, S08), on one rank alone, and between ranks.
 *
 * Each refusal is a twist of arguments that are right.  Whoever passes it, all ranks hear the same reason, nothing is left
 * behind, and the group of ranks stays whole. */
#include <stdio.h>
#include <string.h>

#include "bed.h"
#include "zt/list.h"
#include "zt/zt.h"

/* ---- arguments ---- */

enum { N = 6 };

/* Two groups of AdamW. */
typedef struct args {
    bed bed;
    zro_param_group groups[2], *list;
    size_t n_groups;
    zro_value values[2];
    const zro_rule *rule;
    zro_adamw_config adamw;
    zro_sgd_config sgd;
    const void *rule_config;
    zro_optim_config config;
    zro_plan_config plan;
    int32_t owners[N];
    size_t buckets[N], lengths[2];
} args;

static void args_init(args *a)
{
    static const size_t counts[N] = { 5, 2500, 70, 3000, 1, 64 };
    static const char *const names[N] = { "a", "b", "c", "d", "e", "f" };

    memset(a, 0, sizeof *a);
    bed_init(&a->bed, ZRO_F32, ZRO_F32, counts, N);
    for (size_t i = 0; i < N; i++) {
        a->bed.params[i].name = names[i];
        a->buckets[i] = i;
    }
    a->list = a->groups;
    a->n_groups = 2;
    a->groups[0] = (zro_param_group){ .params = a->bed.params, .n = N / 2, .values = &a->values[0], .n_values = 1 };
    a->groups[1] = (zro_param_group){ .params = &a->bed.params[N / 2], .n = N / 2, .values = &a->values[1], .n_values = 1 };
    a->values[0] = (zro_value){ "weight_decay", 0 };
    a->values[1] = (zro_value){ "weight_decay", 0.01 };
    a->rule = zro_rule_adamw();
    a->adamw = (zro_adamw_config)ZRO_ADAMW_CONFIG_INIT;
    a->sgd = (zro_sgd_config)ZRO_SGD_CONFIG_INIT;
    a->rule_config = &a->adamw;
    a->config = (zro_optim_config)ZRO_OPTIM_CONFIG_INIT;
    a->plan = (zro_plan_config)ZRO_PLAN_CONFIG_INIT;
    a->config.plan = &a->plan;
    a->lengths[0] = 2;
    a->lengths[1] = N - 2;
}

static void use_owners(args *a)
{
    a->plan.partition = ZRO_PARTITION_GIVEN;
    a->groups[0].owners = a->owners;
    a->groups[1].owners = &a->owners[N / 2];
}

static void use_buckets(args *a)
{
    a->plan.partition = ZRO_PARTITION_BUCKETS;
    a->plan.bucket_params = a->buckets;
    a->plan.bucket_lengths = a->lengths;
    a->plan.n_buckets = 2;
}

static zro_status create(zt_rank *t, args *a, zro_optim **out)
{
    zro_status st;

    *out = (zro_optim *)a; /* which a failure replaces by NULL */
    st = zro_optim_create(t->group, a->list, a->n_groups, a->rule, a->rule_config, &a->config, out);
    CHECK((st == ZRO_OK) == (*out != NULL));
    return st;
}

typedef struct twist {
    void (*apply)(args *a);
    zro_status status;
    const char *text;
} twist;

static uint64_t heap_bytes(const zro_group *g)
{
    zro_stats stats = ZRO_STATS_INIT;

    CHECK_OK(zro_group_stats(g, &stats));
    return stats.heap_bytes;
}

/* Creates, with the twist on some ranks; `base` prepares all of them. */
static void refused(zt_rank *t, void (*base)(args *a), const twist *w, int is_mine, zro_status status)
{
    uint64_t before = heap_bytes(t->group);
    zro_optim *opt;
    zro_status st;
    args a;

    args_init(&a);
    if (base != NULL)
        base(&a);
    if (is_mine)
        w->apply(&a);
    st = create(t, &a, &opt);
    if (st != status || strstr(zro_last_error(), w->text) == NULL)
        zt_fail(__FILE__, __LINE__, "%s, not %s with \"%s\"", zro_status_name(st), zro_status_name(status), w->text);
    CHECK_OK(zro_barrier(t->group));
    CHECK(heap_bytes(t->group) == before);
    bed_free(&a.bed);
}

/* Everything is right: it is made, and steps. */
static void accepted(zt_rank *t, void (*base)(args *a))
{
    zro_optim *opt;
    args a;

    args_init(&a);
    if (base != NULL)
        base(&a);
    CHECK_OK(create(t, &a, &opt));
    CHECK(zro_optim_groups(opt) == 2 && zro_optim_params(opt) == N);
    CHECK_OK(zro_optim_step(opt, NULL));
    zro_optim_destroy(opt);
    bed_free(&a.bed);
}

/* ---- what one rank can know by itself ---- */

static void no_groups(args *a)
{
    a->n_groups = 0;
}

static void null_groups(args *a)
{
    a->list = NULL;
}

static void empty_groups(args *a)
{
    a->groups[0].n = a->groups[1].n = 0;
}

static void null_params(args *a)
{
    a->groups[1].params = NULL;
}

static void null_data(args *a)
{
    a->bed.params[4].data = NULL;
}

static void twice_in_a_group(args *a)
{
    static const size_t index[] = { 0, 1, 0 };

    a->groups[0].index = index;
}

static void twice_in_two(args *a)
{
    a->groups[1].params = a->bed.params;
}

static void shared_memory(args *a)
{
    a->bed.params[4].data = (float *)a->bed.params[3].data + 2999;
}

static void sparse(args *a)
{
    a->bed.params[4].layout = ZRO_LAYOUT_SPARSE;
}

static void strided(args *a)
{
    a->bed.params[0].layout = ZRO_LAYOUT_STRIDED;
}

static void integers(args *a)
{
    a->bed.params[4].dtype = ZRO_I32;
}

static void no_type(args *a)
{
    a->bed.params[4].dtype = (zro_dtype)77;
}

static void negative_lr(args *a)
{
    a->adamw.lr = -1;
}

static void unknown_value(args *a)
{
    a->values[1].name = "wait_decay";
}

static void other_config(args *a)
{
    a->rule_config = &a->sgd;
}

static void negative_clip(args *a)
{
    a->config.clip_norm = -1;
}

static void unknown_partition(args *a)
{
    a->plan.partition = (zro_partition)77;
}

static void no_owners(args *a)
{
    use_owners(a);
    a->groups[1].owners = NULL;
}

static void owner_is_no_rank(args *a)
{
    use_owners(a);
    a->owners[4] = 1000;
}

static void bucket_twice(args *a)
{
    use_buckets(a);
    a->buckets[3] = 2;
}

static void no_loop(const zro_rule_tile *tile)
{
    (void)tile;
}

static const zro_rule whole = { sizeof whole, "whole", NULL, NULL, 0, NULL, 0, 0, ZRO_ON, NULL, NULL, NULL, no_loop, NULL };

static void flat_for_whole(args *a)
{
    a->rule = &whole;
    a->rule_config = NULL;
    a->groups[0].n_values = a->groups[1].n_values = 0;
    a->plan.partition = ZRO_PARTITION_FLAT;
}

static const twist wrong[] = {
    { no_groups, ZRO_ERR_INVALID, "no parameter groups" },
    { null_groups, ZRO_ERR_INVALID, "no parameter groups" },
    { empty_groups, ZRO_ERR_INVALID, "none of the 2 parameter groups has parameters" },
    { null_params, ZRO_ERR_INVALID, "parameter group 1: params is NULL" },
    { null_data, ZRO_ERR_INVALID, "parameter e: data is NULL" },
    { twice_in_a_group, ZRO_ERR_INVALID, "parameter a is there twice" },
    { twice_in_two, ZRO_ERR_INVALID, "is there twice" },
    { shared_memory, ZRO_ERR_INVALID, "parameters d and e share memory" },
    { integers, ZRO_ERR_UNSUPPORTED, "parameter e: dtype = i32" },
    { no_type, ZRO_ERR_INVALID, "parameter e: dtype = 77" },
    { negative_lr, ZRO_ERR_INVALID, "lr = -1" },
    { unknown_value, ZRO_ERR_INVALID, "wait_decay" },
    { other_config, ZRO_ERR_INVALID, "rule sgd" },
    { negative_clip, ZRO_ERR_INVALID, "clip_norm = -1" },
    { unknown_partition, ZRO_ERR_INVALID, "partition" },
    { no_owners, ZRO_ERR_INVALID, "owners" },
    { owner_is_no_rank, ZRO_ERR_INVALID, "1000" },
    { bucket_twice, ZRO_ERR_INVALID, "parameter c is in bucket" },
    { flat_for_whole, ZRO_ERR_UNSUPPORTED, "whole" },
};

static const twist not_dense[] = {
    { sparse, ZRO_ERR_INVALID, "parameter e: its layout is sparse" },
    { strided, ZRO_ERR_INVALID, "parameter a: its layout is strided" },
};

/* On all ranks; then on one, which keeps its code while the others get its text. */
static void refused_by_each(zt_rank *t, const twist *list, size_t n)
{
    char who[32];

    for (size_t i = 0; i < n; i++) {
        const twist *w = &list[i];

        refused(t, NULL, w, 1, w->status);
        for (int r = 0; t->size > 1 && r < t->size; r += t->size - 1) {
            refused(t, NULL, w, t->rank == r, t->rank == r ? w->status : ZRO_ERR_PEER);
            snprintf(who, sizeof who, "rank %d", r);
            if (t->rank != r)
                CHECK_TEXT(who);
        }
    }
    accepted(t, NULL);
}

static void S07_refused(zt_rank *t)
{
    refused_by_each(t, wrong, sizeof wrong / sizeof *wrong);
}

static void S08_not_dense(zt_rank *t)
{
    refused_by_each(t, not_dense, sizeof not_dense / sizeof *not_dense);
}

/* Different mistakes at once: each rank is told its own. */
static void S07_refused_differently(zt_rank *t)
{
    const twist *w = &wrong[2 + t->rank % 3];

    refused(t, NULL, w, 1, w->status);
    accepted(t, NULL);
}

/* ---- what only a comparison shows ---- */

static void fewer_params(args *a)
{
    a->groups[1].n--;
}

static void fewer_groups(args *a)
{
    a->groups[0].n = N;
    a->n_groups = 1;
}

static void other_split(args *a)
{
    a->groups[0].n++;
    a->groups[1].params++;
    a->groups[1].n--;
}

static void other_name(args *a)
{
    a->bed.params[4].name = "epsilon";
}

static void no_name(args *a)
{
    a->bed.params[4].name = NULL;
}

static void other_shape(args *a)
{
    a->bed.params[5].shape[0] = 63;
}

static void other_dims(args *a)
{
    a->bed.params[5].n_dims = 2;
    a->bed.params[5].shape[0] = a->bed.params[5].shape[1] = 8;
}

static void other_type(args *a)
{
    a->bed.params[4].dtype = ZRO_BF16;
}

static void other_grad_type(args *a)
{
    a->bed.params[4].grad_dtype = ZRO_BF16;
}

static void other_device(args *a)
{
    a->bed.params[4].device = 3;
}

static void other_rule(args *a)
{
    a->rule = zro_rule_adam();
    a->rule_config = NULL;
}

/* It has another number of values, too. */
static void longer_rule(args *a)
{
    a->rule = zro_rule_sgd();
    a->rule_config = NULL;
}

static void other_lr(args *a)
{
    a->adamw.lr = 0.5;
}

static void other_decay(args *a)
{
    a->values[1].value = 0.02;
}

static void other_clip(args *a)
{
    a->config.clip_norm = 2.5;
}

static void other_clip_value(args *a)
{
    a->config.clip_value = 2.5;
}

static void other_norm_type(args *a)
{
    a->config.clip_norm = 1;
    a->config.clip_norm_type = 3;
}

static void clips(args *a)
{
    a->config.clip_norm = 1;
}

static void skips(args *a)
{
    a->config.skip_non_finite = ZRO_ON;
}

static void scales(args *a)
{
    a->config.loss_scale = ZRO_ON;
}

static void other_interval(args *a)
{
    scales(a);
    a->config.growth_interval = 1234;
}

static void other_backoff(args *a)
{
    scales(a);
    a->config.scale_backoff = 0.25;
}

static void other_scale(args *a)
{
    scales(a);
    a->config.scale_init = 4;
}

static void no_masters(args *a)
{
    a->config.masters = ZRO_OFF;
}

static void stochastic(args *a)
{
    no_masters(a);
    a->config.rounding = ZRO_STOCHASTIC;
}

static void other_seed(args *a)
{
    stochastic(a);
    a->config.seed = 77;
}

static void views(args *a)
{
    a->config.parameters_as_bucket_view = ZRO_ON;
}

static void greedy(args *a)
{
    a->plan.partition = ZRO_PARTITION_GREEDY;
}

static void other_owner(args *a)
{
    use_owners(a);
    a->owners[4] = 1;
}

static void other_buckets(args *a)
{
    use_buckets(a);
    a->lengths[0]++;
    a->lengths[1]--;
}

typedef struct difference {
    void (*base)(args *a);
    twist twist;
} difference;

static const difference differences[] = {
    { NULL, { fewer_params, ZRO_ERR_MISMATCH, "5 parameters" } },
    { NULL, { fewer_groups, ZRO_ERR_MISMATCH, "in 1 groups" } },
    { NULL, { other_split, ZRO_ERR_MISMATCH, "parameter d: group" } },
    { NULL, { other_name, ZRO_ERR_MISMATCH, "parameter epsilon" } },
    { NULL, { no_name, ZRO_ERR_MISMATCH, "parameter 4" } },
    { NULL, { other_shape, ZRO_ERR_MISMATCH, "shape 63" } },
    { NULL, { other_dims, ZRO_ERR_MISMATCH, "shape 8x8" } },
    { NULL, { other_type, ZRO_ERR_MISMATCH, "bf16, gradient f32" } },
    { NULL, { other_grad_type, ZRO_ERR_MISMATCH, "gradient bf16" } },
    { NULL, { other_device, ZRO_ERR_MISMATCH, "device 3" } },
    { NULL, { other_rule, ZRO_ERR_MISMATCH, "rule adam" } },
    { NULL, { longer_rule, ZRO_ERR_MISMATCH, "rule sgd" } },
    { NULL, { other_lr, ZRO_ERR_MISMATCH, "lr = 0.5" } },
    { NULL, { other_decay, ZRO_ERR_MISMATCH, "weight_decay = 0.02" } },
    { NULL, { other_clip, ZRO_ERR_MISMATCH, "clip_norm 2.5" } },
    { NULL, { other_clip_value, ZRO_ERR_MISMATCH, "clip_value 2.5" } },
    { clips, { other_norm_type, ZRO_ERR_MISMATCH, "of type 3" } },
    { NULL, { skips, ZRO_ERR_MISMATCH, "skip_non_finite on" } },
    { NULL, { scales, ZRO_ERR_MISMATCH, "loss_scale on" } },
    { scales, { other_interval, ZRO_ERR_MISMATCH, "1234" } },
    { scales, { other_backoff, ZRO_ERR_MISMATCH, "backoff 0.25" } },
    { scales, { other_scale, ZRO_ERR_MISMATCH, "scale 4" } },
    { NULL, { no_masters, ZRO_ERR_MISMATCH, "masters off" } },
    { no_masters, { stochastic, ZRO_ERR_MISMATCH, "rounding stochastic" } },
    { stochastic, { other_seed, ZRO_ERR_MISMATCH, "seed 77" } },
    { NULL, { views, ZRO_ERR_MISMATCH, "parameters_as_bucket_view on" } },
    { NULL, { greedy, ZRO_ERR_MISMATCH, "partition greedy" } },
    { use_owners, { other_owner, ZRO_ERR_MISMATCH, "owner 1" } },
    { use_buckets, { other_buckets, ZRO_ERR_MISMATCH, "own" } },
};

static void S07_ranks_differ(zt_rank *t)
{
    for (size_t i = 0; i < sizeof differences / sizeof *differences; i++) {
        const difference *d = &differences[i];

        refused(t, d->base, &d->twist, t->rank == t->size - 1, ZRO_ERR_MISMATCH);
        CHECK_TEXT("rank 0");
        refused(t, d->base, &d->twist, t->rank == 0, ZRO_ERR_MISMATCH);
        accepted(t, d->base);
    }
}

/* ---- what is accepted ---- */

static size_t ranges_in(const zro_plan *plan, int rank, size_t group)
{
    const zro_range *ranges;
    size_t n, found = 0;

    CHECK_OK(zro_plan_ranges(plan, rank, &ranges, &n));
    for (size_t i = 0; i < n; i++)
        found += ranges[i].group == group;
    return found;
}

/* One list; then two groups with a decay of their own, in each of which every rank has something. */
static void S07_accepted(zt_rank *t)
{
    size_t counts[2 * ZT_MAX_RANKS];
    const size_t n = (size_t)t->size;
    zro_value decay[2] = { { "weight_decay", 0 }, { "weight_decay", 0.01 } };
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_plan_config plan = ZRO_PLAN_CONFIG_INIT;
    zro_param_group groups[2];
    zro_optim *opt;
    double value;
    bed b;

    for (size_t i = 0; i < 2 * n; i++)
        counts[i] = i < n ? 20 : 30;
    bed_init(&b, ZRO_F32, ZRO_F32, counts, 2 * n);
    groups[0] = (zro_param_group){ .params = b.params, .n = 2 * n };
    CHECK_OK(zro_optim_create(t->group, groups, 1, zro_rule_adamw(), NULL, NULL, &opt));
    CHECK(zro_optim_groups(opt) == 1 && zro_optim_params(opt) == 2 * n);
    zro_optim_destroy(opt);
    plan.partition = ZRO_PARTITION_GREEDY;
    config.plan = &plan;
    for (size_t i = 0; i < 2; i++)
        groups[i] = (zro_param_group){ .params = &b.params[i * n], .n = n, .values = &decay[i], .n_values = 1 };
    CHECK_OK(zro_optim_create(t->group, groups, 2, zro_rule_adamw(), NULL, &config, &opt));
    CHECK(zro_optim_groups(opt) == 2 && zro_optim_params(opt) == 2 * n);
    for (size_t i = 0; i < 2; i++) {
        CHECK_OK(zro_optim_get_value(opt, i, "weight_decay", &value));
        CHECK(value == decay[i].value && ranges_in(zro_optim_plan(opt), t->rank, i) == 1);
    }
    zro_optim_destroy(opt);
    bed_free(&b);
}

/* ---- groups without parameters ---- */

enum { EMPTY = 8, LATER = 3 };

/* Each group has an lr of its own; the last three are added later. */
static void groups_with_empty(args *a, zro_value *lr, zro_param_group *groups)
{
    static const size_t lengths[EMPTY] = { 0, 2, 0, 0, 3, 0, 1, 0 };
    size_t at = 0;

    for (size_t k = 0; k < EMPTY; at += lengths[k++]) {
        lr[k] = (zro_value){ "lr", 0.01 * (double)(k + 1) };
        groups[k] =
            (zro_param_group){ .params = lengths[k] > 0 ? &a->bed.params[at] : NULL,
                               .n = lengths[k],
                               .values = &lr[k],
                               .n_values = 1,
                               .owners = a->plan.partition == ZRO_PARTITION_GIVEN && lengths[k] > 0 ? &a->owners[at] : NULL };
    }
}

/* The state has all groups, and so has what is made of its bytes; an optimizer that is not sharded takes it. */
static void check_empty_in_state(const zro_state *state, const zro_param_group *groups, zro_optim *opt)
{
    zro_state *again;
    void *bytes;
    size_t n_bytes, first, n, n_values, at = 0;
    double lr;

    CHECK_OK(zro_state_pack(state, &bytes, &n_bytes));
    CHECK_OK(zro_state_unpack(bytes, n_bytes, &again));
    zro_bytes_free(bytes);
    CHECK(zro_state_groups(again) == EMPTY && zro_state_params(again) == N);
    for (size_t k = 0; k < EMPTY; at += groups[k++].n) {
        CHECK_OK(zro_state_group(again, k, &first, &n, &n_values));
        CHECK(first == at && n == groups[k].n);
    }
    CHECK_OK(zro_optim_set_value(opt, 3, "lr", 9));
    CHECK_OK(zro_optim_load(opt, again));
    CHECK_OK(zro_optim_get_value(opt, 3, "lr", &lr));
    CHECK(lr == groups[3].values->value);
    zro_state_destroy(again);
}

/* Empty groups anywhere, with every partition, with views and without; made at creation, added later; in states. */
static void S07_empty_groups(zt_rank *t)
{
    for (int how = 0; how < 8; how++) {
        zro_param_group groups[EMPTY];
        zro_value lr[EMPTY];
        zro_state *state = NULL;
        zro_optim *opt, *reference;
        uint64_t random = 7;
        args a, alone;

        args_init(&a);
        args_init(&alone);
        for (size_t i = 0; i < N; i++)
            a.owners[i] = (int32_t)(i % (size_t)t->size);
        a.plan.partition = (zro_partition)(ZRO_PARTITION_FLAT + how / 2);
        a.config.parameters_as_bucket_view = how % 2 == 1 ? ZRO_ON : ZRO_OFF;
        groups_with_empty(&alone, lr, groups);
        CHECK_OK(zro_optim_create(NULL, groups, EMPTY, zro_rule_adamw(), NULL, NULL, &reference));
        for (size_t i = 0; i < N; i++)
            for (size_t k = 0; k < a.bed.count[i]; k++)
                bed_set(alone.bed.params[i].data, ZRO_F32, k, 1);
        groups_with_empty(&a, lr, groups);
        for (size_t i = 0; i < N; i++)
            memcpy(a.bed.params[i].data, alone.bed.params[i].data, a.bed.count[i] * a.bed.size);
        CHECK_OK(zro_optim_create(t->group, groups, EMPTY - LATER, zro_rule_adamw(), NULL, &a.config, &opt));
        for (size_t k = EMPTY - LATER; k < EMPTY; k++)
            CHECK_OK(zro_optim_add_param_group(opt, &groups[k]));
        CHECK(zro_optim_groups(opt) == EMPTY && zro_optim_params(opt) == N);
        bed_gradients(&a.bed, &random, 1, 0);
        for (size_t i = 0; i < N; i++)
            memcpy(alone.bed.params[i].grad, a.bed.params[i].grad, a.bed.count[i] * a.bed.grad_size);
        CHECK_OK(zro_optim_step(opt, NULL));
        CHECK_OK(zro_optim_step(reference, NULL));
        CHECK(bed_equal(&a.bed, &alone.bed));
        CHECK_OK(zro_optim_consolidate(opt, 0, &state));
        CHECK_OK(zro_state_broadcast(t->group, &state, 0));
        CHECK_OK(zro_optim_load(opt, state));
        check_empty_in_state(state, groups, reference);
        zro_state_destroy(state);
        zro_optim_destroy(opt);
        zro_optim_destroy(reference);
        CHECK_OK(zro_barrier(t->group));
        bed_free(&a.bed);
        bed_free(&alone.bed);
    }
}

/* ---- groups added later ---- */

static zro_status add_twisted(zro_optim *opt, args *a, int how)
{
    if (how == 0)
        negative_lr(a);
    else if (how == 1)
        null_params(a);
    else if (how == 2)
        other_decay(a);
    else if (how == 3)
        other_device(a);
    else if (how == 4)
        a->groups[1].n = 0;
    a->groups[1].config = &a->adamw;
    return zro_optim_add_param_group(opt, &a->groups[1]);
}

/* The second group is wrong on one rank, or differs: refused, nothing has changed, and the right one can be added. */
static void S07_add_refused(zt_rank *t)
{
    static const char *const texts[] = { "lr = -1", "params is NULL", "weight_decay = 0.02", "device 3", "has 0 parameters" };
    const int last = t->size - 1;

    for (int how = 0; how < 5; how++) {
        zro_status expected = how >= 2 ? ZRO_ERR_MISMATCH : t->rank == last ? ZRO_ERR_INVALID : ZRO_ERR_PEER;
        args right, twisted;
        zro_optim *opt;

        args_init(&right);
        args_init(&twisted);
        right.n_groups = 1;
        CHECK_OK(create(t, &right, &opt));
        CHECK_STATUS(add_twisted(opt, &twisted, t->rank == last ? how : -1), expected);
        CHECK_TEXT(texts[how]);
        CHECK(zro_optim_groups(opt) == 1 && zro_optim_params(opt) == N / 2);
        CHECK(zro_plan_params(zro_optim_plan(opt)) == N / 2);
        CHECK_OK(zro_optim_step(opt, NULL));
        CHECK_OK(zro_optim_add_param_group(opt, &right.groups[1]));
        CHECK(zro_optim_groups(opt) == 2 && zro_optim_params(opt) == N);
        CHECK_OK(zro_optim_step(opt, NULL));
        zro_optim_destroy(opt);
        CHECK_OK(zro_barrier(t->group));
        bed_free(&right.bed);
        bed_free(&twisted.bed);
    }
}

#define SEVERAL (ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4) | ZT_WORLD(7))

const zt_case cases_zero_create[] = {
    { "S07_refused", S07_refused, ZT_WORLD(1) | SEVERAL, ZT_ALL, 0, 0, 0, 0 },
    { "S07_refused_differently", S07_refused_differently, SEVERAL, ZT_ALL, 0, 0, 0, 0 },
    { "S07_ranks_differ", S07_ranks_differ, SEVERAL, ZT_ALL, 0, 0, 0, 0 },
    { "S07_accepted", S07_accepted, ZT_WORLD(1) | SEVERAL, ZT_ALL, 0, 0, 0, 0 },
    { "S07_empty_groups", S07_empty_groups, ZT_WORLD(1) | ZT_WORLD(2) | ZT_WORLD(3), ZT_BOTH, 0, 0, 0, 0 },
    { "S07_add_refused", S07_add_refused, SEVERAL, ZT_ALL, 0, 0, 0, 0 },
    { "S08_not_dense", S08_not_dense, ZT_WORLD(1) | SEVERAL, ZT_ALL, 0, 0, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
