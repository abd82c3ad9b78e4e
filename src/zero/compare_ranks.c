/* What the ranks must have in common: when parameter groups are added the same rule, settings, values and parameters, and the
 * same owners; in a step the same values, and gradients of the same parameters. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/param.h"
#include "group/group.h"
#include "zero/optim.h"

/* The index of an attached optimizer's parameter in the ddp's list, which tells parameters without names apart; 0 without a ddp. */
static size_t index_in_ddp(const zro_optim *opt, size_t i)
{
    return opt->attaches ? zro__cycle_index(opt->cycle, opt->params[i].param) : 0;
}

/* ---- words ---- */

static const char *on_off(zro_switch s)
{
    return s == ZRO_ON ? "on" : "off";
}

enum { SETTINGS = 15 };

/* All settings, one per line; a setting that follows from another comes after it (a loss scale turns on skip_non_finite). */
static void describe_settings(const zro_optim *opt, size_t n_params, char *text, size_t bytes)
{
    const zro__updater *u = &opt->updater;
    const zro__shard *shard = zro__updater_shard(u);

    snprintf(text, bytes,
             "%zu parameters in %zu groups\nrule %s\npartition %s\noverlap %s\nparameters_as_bucket_view %s\nmasters "
             "%s\nrounding %s\n"
             "seed %" PRIu64 "\nclip_norm %.17g of type %g\nclip_value %.17g\nloss_scale %s\nskip_non_finite %s\n"
             "scale %.9g\ngrowth %.17g, backoff %.17g\ngrowth_interval %u",
             n_params, shard->n_groups, opt->rule != NULL ? opt->rule->name : "none", zro__partition_name(opt->plan),
             zro__overlap_name(u->overlap), on_off(opt->bucket_views), on_off(shard->masters),
             u->update.rounding == ZRO_STOCHASTIC ? "stochastic" : "nearest", u->update.seed, u->clip_norm, u->clip_type,
             u->clip_value, on_off(u->scales), on_off(u->skips), (double)u->scaler.scale, u->scaler.growth, u->scaler.backoff,
             (unsigned)u->scaler.interval);
}

static void describe_setting(const zro_optim *opt, size_t n_params, size_t i, char *text, size_t bytes)
{
    char all[ZRO__CLAIM_BYTES], *rest = all, *line = NULL;

    describe_settings(opt, n_params, all, sizeof all);
    for (size_t k = 0; k <= i; k++)
        line = strsep(&rest, "\n");
    snprintf(text, bytes, "%s", line != NULL ? line : "");
}

/* The i-th of all groups' values, with as few digits as tell it from any other number. */
static void describe_value(const zro_optim *opt, size_t i, char *text, size_t bytes)
{
    const size_t n = zro_optim_values(opt);
    const double value = zro__optim_shard(opt)->groups[i / n]->values[i % n];
    char number[40];
    int digits = 15;

    do
        snprintf(number, sizeof number, "%.*g", digits, value);
    while (strtod(number, NULL) != value && ++digits <= 17);
    snprintf(text, bytes, "parameter group %zu: %s = %s", i / n, zro_optim_value_name(opt, i % n), number);
}

static void describe_param(const zro_optim *opt, size_t i, char *text, size_t bytes)
{
    const zro__entry *e = &opt->params[i];
    const zro__place *place = zro__param_place(e->param);
    char shape[ZRO__SHAPE_BYTES], in_ddp[64] = "";
    size_t n;
    const int owner = zro__plan_ranges(opt->plan, i, i + 1, &n)->owner;

    if (opt->attaches)
        snprintf(in_ddp, sizeof in_ddp, "number %zu of the ddp's, ", index_in_ddp(opt, i));
    snprintf(text, bytes, "parameter %.100s: %sgroup %zu, %s, gradient %s, device %d, %s memory, first owner %d, shape %s",
             ZRO__OPTIM_PARAM_NAME(opt, i), in_ddp, zro__plan_table(opt->plan)[i].group, zro_dtype_name(e->dtype),
             zro_dtype_name(e->grad_dtype), (int)e->param->device,
             place == NULL                    ? "the program's"
             : place->kind == ZRO_MEMORY_ONCE ? "once-per-machine"
                                              : "group",
             owner, zro__param_shape(e->param, shape));
}

static uint64_t hash_values(const zro_optim *opt)
{
    uint64_t hash = ZRO__HASH_START;

    for (size_t k = 0; k < zro_optim_groups(opt); k++)
        hash = zro__hash(hash, zro__optim_shard(opt)->groups[k]->values, zro_optim_values(opt) * sizeof(double));
    return hash;
}

/* ---- adding parameter groups ---- */

typedef struct addition {
    const zro_optim *opt;
    size_t first; /* of the parameters that are added */
} addition;

/* The settings, then the groups' values, then the parameters. */
static void describe_addition(const void *user, size_t i, char *text, size_t bytes)
{
    const addition *a = user;
    const size_t n_values = zro_optim_groups(a->opt) * zro_optim_values(a->opt);

    if (i < SETTINGS)
        describe_setting(a->opt, a->opt->n_params - a->first, i, text, bytes);
    else if (i < SETTINGS + n_values)
        describe_value(a->opt, i - SETTINGS, text, bytes);
    else
        describe_param(a->opt, a->first + i - SETTINGS - n_values, text, bytes);
}

/* The same things as the texts have, but only the settings as a text; and who owns what, because the program may decide that. */
static uint64_t hash_addition(const zro_optim *opt, size_t first)
{
    uint64_t hash = hash_values(opt);
    char text[ZRO__CLAIM_BYTES];
    size_t n;
    const zro_range *ranges = zro__plan_ranges(opt->plan, first, opt->n_params, &n);

    describe_settings(opt, opt->n_params - first, text, sizeof text);
    hash = zro__hash(hash, text, strlen(text));
    for (size_t i = first; i < opt->n_params; i++) {
        const zro__entry *e = &opt->params[i];
        const zro__place *place = zro__param_place(e->param);
        uint64_t item[] = { zro__plan_table(opt->plan)[i].group,
                            (uint64_t)e->dtype,
                            (uint64_t)e->grad_dtype,
                            (uint64_t)(int64_t)e->param->device,
                            place != NULL ? 1 + (uint64_t)place->kind : 0,
                            e->param->n_dims,
                            index_in_ddp(opt, i) };

        hash = zro__hash(hash, item, sizeof item);
        hash = zro__hash(hash, e->param->shape, e->param->n_dims * sizeof e->param->shape[0]);
        hash = zro__hash(hash, e->name != NULL ? e->name : "", e->name != NULL ? strlen(e->name) : 0);
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t item[] = { ranges[i].param, ranges[i].first, (uint64_t)ranges[i].owner };

        hash = zro__hash(hash, item, sizeof item);
    }
    return hash;
}

zro_status zro__optim_compare(zro_optim *opt, zro_group *group, size_t first, zro__call call, zro_status st)
{
    const addition a = { opt, first };
    zro__claim claim = { .what = "the ranks' optimizers",
                         .describe = describe_addition,
                         .user = &a,
                         .otherwise = "the ranks' optimizers differ in who owns what, or in something too long to show" };
    zro_status entered = zro__enter(group);

    if (entered != ZRO_OK)
        return entered;
    if (opt != NULL)
        zro__cycle_serve(opt->cycle, &opt->updater);
    if (st == ZRO_OK) {
        claim.hash = hash_addition(opt, first);
        claim.n = SETTINGS + zro_optim_groups(opt) * zro_optim_values(opt) + opt->n_params - first;
    }
    st = zro__claim_agree(&group->ranks.board, call, &claim, st);
    return opt != NULL ? zro__optim_leave(opt, st) : zro__leave(group, st);
}

/* ---- arrays that should be the same on all ranks ----
 *
 * Values and gradients are compared whole before the first step.  A program that forgets later to average its gradients is found
 * at step 10, 100, 1000 and so on, by samples of them: that costs nothing that could be measured, and each thing is said once. */

enum { SAMPLE = 128 }; /* elements of a gradient that are compared after the first step */

/* What is compared: arrays that every rank has, and that should be the same on all of them. */
typedef struct common_arrays {
    const zro_optim *opt;
    int gradients; /* 0: the parameters' values */
    int sampled;   /* 1: only some elements of each array */
} common_arrays;

/* The array of a parameter as if it were a parameter's data, for its hash; 0 if it is not there, or exists once and so cannot
 * differ. */
static int find_array(const common_arrays *c, size_t i, zro_param *array)
{
    const zro_param *p = c->opt->params[i].param;
    const zro__place *place = zro__param_place(p);

    *array = *p;
    if (c->gradients) {
        array->data = p->grad;
        array->dtype = c->opt->params[i].grad_dtype;
    }
    if (array->data == NULL || (c->gradients ? !zro__param_has_grad(p) : place != NULL && place->kind == ZRO_MEMORY_ONCE))
        return 0;
    if (c->sampled && c->opt->params[i].count > 2 * SAMPLE) { /* from the middle */
        array->data = (char *)array->data + c->opt->params[i].count / 2 * zro_dtype_bytes(array->dtype);
        array->n_dims = 1;
        memset(array->shape, 0, sizeof array->shape);
        array->shape[0] = SAMPLE;
    }
    return 1;
}

/* The hash of the arrays [first, end) that there are. */
static uint64_t hash_arrays(const void *user, size_t first, size_t end)
{
    uint64_t hash = ZRO__HASH_START, one = 0;

    for (size_t i = first; i < end; i++) {
        zro_param array;

        if (find_array(user, i, &array) && zro_params_hash(&array, 1, &one) == ZRO_OK)
            hash = zro__hash(hash, &one, sizeof one);
    }
    return hash;
}

/* Rank 0 tells; the program has made `steps` steps before this one. */
static void say_odd(const common_arrays *c, size_t param, int odd, uint64_t steps)
{
    char when[40] = "the first step";

    if (c->sampled)
        snprintf(when, sizeof when, "step %" PRIu64, steps + 1);
    if (zro__optim_rank(c->opt) != 0)
        return;
    if (c->gradients)
        zro__log(&c->opt->settings, ZRO_LOG_WARN,
                 "the gradient of parameter %s is another one on rank %d than on rank 0 at %s, and each rank uses its own for "
                 "what it owns; average gradients before each step: zro_params_all_reduce(group, params, n, ZRO_AVG)",
                 ZRO__OPTIM_PARAM_NAME(c->opt, param), odd, when);
    else
        zro__log(&c->opt->settings, ZRO_LOG_WARN,
                 "parameter %s has other values on rank %d than on rank 0 before the first step, and each rank keeps those of "
                 "what it owns; begin with zro_param_publish(optim, ZRO_ALL_PARAMS, 0), or set the same values on all ranks",
                 ZRO__OPTIM_PARAM_NAME(c->opt, param), odd);
}

/* Inside the lane.  All ranks learn whether something differs, and so agree about what need not be compared any more. */
static zro_status compare_arrays(zro_optim *opt, zro_group *group, const common_arrays *c)
{
    size_t param = 0;
    int32_t odd;
    zro_status st = zro__find_odd(group, ZRO__CALL_STEP, opt->n_params, hash_arrays, c, &param, &odd);

    if (st != ZRO_OK || odd == group->ranks.board.size)
        return st;
    opt->said_gradients |= c->gradients;
    say_odd(c, param, odd, opt->updater.n_steps);
    return ZRO_OK;
}

/* Steps are the same on all ranks, so all of them come to the same answer. */
static int is_due(const zro_optim *opt)
{
    uint64_t step = opt->updater.n_steps + 1;

    while (step % 10 == 0)
        step /= 10;
    return !opt->said_first || (step == 1 && opt->updater.n_steps > 0 && !opt->said_gradients);
}

zro_status zro__optim_compare_first_arrays(zro_optim *opt)
{
    zro_group *group = opt->group;
    const int first = !opt->said_first;
    zro_status st;

    if (zro__optim_ranks(opt) < 2 || opt->attaches || !is_due(opt)) /* a ddp sees to both */
        return ZRO_OK;
    st = zro__enter(group);
    if (st != ZRO_OK)
        return st;
    opt->said_first = 1;
    if (first && zro__optim_shard(opt)->rule != NULL) /* without a rule the program has updated what it owns by now */
        st = compare_arrays(opt, group, &(common_arrays){ opt, 0, 0 });
    if (st == ZRO_OK && !opt->clipped)
        st = compare_arrays(opt, group, &(common_arrays){ opt, 1, !first });
    return zro__leave(group, st);
}

/* ---- a step ---- */

/* A parameter's owners must agree whether it has a gradient: each of them updates its own part.  Attached to a ddp they do, because
 * what any rank has counts. */
static int must_agree(const zro_optim *opt, size_t param)
{
    const zro__plan_param *row = &zro__plan_table(opt->plan)[param];

    return !opt->attaches && row[1].first_range - row[0].first_range > 1;
}

/* The groups' values, then whether the parameters that have several owners have a gradient. */
static void describe_step(const void *user, size_t i, char *text, size_t bytes)
{
    const zro_optim *opt = user;
    const size_t n_values = zro_optim_groups(opt) * zro_optim_values(opt), param = i - n_values;

    if (i < n_values)
        describe_value(opt, i, text, bytes);
    else
        snprintf(text, bytes, "parameter %.100s: %s gradient", ZRO__OPTIM_PARAM_NAME(opt, param),
                 !must_agree(opt, param)                         ? "not compared"
                 : zro__param_has_grad(opt->params[param].param) ? "a"
                                                                 : "no");
}

zro__claim zro__optim_claim_step(const zro_optim *opt)
{
    uint64_t hash = hash_values(opt);

    for (size_t i = 0; i < opt->n_params; i++)
        if (must_agree(opt, i)) {
            const char present = (char)zro__param_has_grad(opt->params[i].param);

            hash = zro__hash(hash, &present, 1);
        }
    return (zro__claim){ .what = "values or gradients, which all ranks must set alike,",
                         .hash = hash,
                         .n = zro_optim_groups(opt) * zro_optim_values(opt) + opt->n_params,
                         .describe = describe_step,
                         .user = opt,
                         .otherwise = "values or gradients differ, which all ranks must set alike" };
}
