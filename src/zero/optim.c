/* The zro_optim handle: checks what it is given, keeps the list of parameters, and leaves the step to the cycle.
 *
 * Sharded and not are the same handle; in this version the plan has one owner.  A group of parameters is checked and all memory for
 * it is taken before anything changes, so that a failed create or add leaves nothing behind. */
#include "zero/optim.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/log.h"
#include "base/param.h"
#include "base/settings.h"
#include "base/status.h"
#include "optim/values.h"
#include "step/cycle.h"
#include "step/plan.h"

struct zro_optim {
    zro__account account;
    atomic_int refs;
    const zro_rule *rule; /* or NULL */
    double *defaults;     /* values of groups that say nothing else */
    zro_settings settings;
    zro__pool *pool;
    zro__cycle cycle;
    zro_param **params; /* by index */
    zro_param **sorted; /* by address, to find what is there twice */
    size_t n_params;
};

/* ---- settings ---- */

static const zro_optim_config default_config = ZRO_OPTIM_CONFIG_INIT;

void zro_optim_config_init(zro_optim_config *config)
{
    *config = default_config;
}

void zro_step_info_init(zro_step_info *info)
{
    static const zro_step_info init = ZRO_STEP_INFO_INIT;

    *info = init;
}

static zro_status check_switch(const char *name, zro_switch s)
{
    return s == ZRO_ON || s == ZRO_OFF ? ZRO_OK : zro__fail(ZRO_ERR_INVALID, "%s = %d, must be on or off", name, (int)s);
}

static zro_status check_config(const zro_optim_config *c, const zro_rule *rule)
{
    zro_status st = check_switch("masters", c->masters);

    if (st == ZRO_OK)
        st = check_switch("skip_non_finite", c->skip_non_finite);
    if (st == ZRO_OK)
        st = check_switch("loss_scale", c->loss_scale);
    if (st == ZRO_OK && c->rounding != ZRO_NEAREST && c->rounding != ZRO_STOCHASTIC)
        st = zro__fail(ZRO_ERR_INVALID, "rounding = %d, must be nearest or stochastic", (int)c->rounding);
    if (st == ZRO_OK && c->rounding == ZRO_STOCHASTIC && c->masters == ZRO_ON)
        st = zro__fail(ZRO_ERR_INVALID, "rounding = stochastic is for parameters without masters: set masters = off");
    if (st == ZRO_OK)
        st = zro__factors_check(c);
    if (st == ZRO_OK && rule == NULL
        && (c->clip_norm != 0 || c->clip_value != 0 || c->skip_non_finite == ZRO_ON || c->loss_scale == ZRO_ON))
        st = zro__fail(ZRO_ERR_INVALID,
                       "clipping, skipping and loss scale are settings of a step, and without a rule there is none");
    return st != ZRO_OK ? st : zro__settings_check(&c->settings);
}

static zro_status read_config(const zro_optim_config *config, const zro_rule *rule, zro_optim_config *out)
{
    *out = default_config;
    if (config == NULL)
        return ZRO_OK;
    if (config->struct_size < offsetof(zro_optim_config, settings) + sizeof(zro_settings) || config->struct_size > 4096)
        return zro__fail(ZRO_ERR_INVALID, "zro_optim_config: struct_size = %zu; begin with ZRO_OPTIM_CONFIG_INIT",
                         config->struct_size);
    memcpy(out, config, config->struct_size < sizeof *out ? config->struct_size : sizeof *out);
    out->struct_size = sizeof *out;
    return check_config(out, rule);
}

/* ---- parameters ---- */

static zro_param *param_of(const zro_param_group *group, size_t i)
{
    return &group->params[group->index != NULL ? group->index[i] : i];
}

static zro_status check_type(const zro_rule *rule, const zro_param *p, const char *name)
{
    zro_dtype grad = p->grad_dtype == ZRO_SAME ? p->dtype : p->grad_dtype;

    if (!zro__dtype_is_known(p->dtype) || !zro__dtype_is_known(grad))
        return zro__fail(ZRO_ERR_INVALID, "parameter %s: %d is no element type", name,
                         (int)(zro__dtype_is_known(p->dtype) ? grad : p->dtype));
    if (rule == NULL)
        return ZRO_OK;
    if (!zro__dtype_is_float(p->dtype) || !zro__dtype_is_float(grad))
        return zro__fail(ZRO_ERR_UNSUPPORTED, "parameter %s: %s has no fractions", name,
                         zro_dtype_name(zro__dtype_is_float(p->dtype) ? grad : p->dtype));
    if ((p->dtype == ZRO_F64 ? rule->f64 : rule->f32) == NULL)
        return zro__fail(ZRO_ERR_UNSUPPORTED, "parameter %s: rule %s has no loop for %s", name, rule->name,
                         zro_dtype_name(p->dtype));
    return ZRO_OK;
}

static zro_status check_param(const zro_rule *rule, const zro_param *p, size_t index)
{
    char buffer[ZRO__NAME_BYTES];
    const char *name = zro__param_name(p, index, buffer);
    size_t count = zro_param_count(p);

    if (p->layout != ZRO_LAYOUT_DENSE)
        return zro__fail(ZRO_ERR_INVALID, "parameter %s: its layout is %s, only dense ones can be updated", name,
                         p->layout == ZRO_LAYOUT_SPARSE    ? "sparse"
                         : p->layout == ZRO_LAYOUT_STRIDED ? "strided"
                                                           : "unknown");
    if (p->n_dims > ZRO_MAX_DIMS)
        return zro__fail(ZRO_ERR_INVALID, "parameter %s: %u dimensions, at most %d are possible", name, (unsigned)p->n_dims,
                         ZRO_MAX_DIMS);
    if (count > SIZE_MAX / 16)
        return zro__fail(ZRO_ERR_INVALID, "parameter %s: its shape has more elements than memory can hold", name);
    if (p->data == NULL && count > 0)
        return zro__fail(ZRO_ERR_INVALID, "parameter %s: data is NULL", name);
    return check_type(rule, p, name);
}

static int by_address(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t) * (zro_param *const *)a, y = (uintptr_t) * (zro_param *const *)b;

    return (x > y) - (x < y);
}

/* The parameters of a group that is to be added, and the lists as they will be then. */
typedef struct addition {
    zro_param **params, **sorted, **fresh;
    zro__run_of *runs;
    double *values;
} addition;

static void free_addition(addition *a)
{
    zro__free(a->params);
    zro__free(a->sorted);
    zro__free(a->fresh);
    zro__free(a->runs);
    zro__free(a->values);
}

static zro_status take_addition(zro_optim *opt, size_t n, addition *a)
{
    zro__account *account = &opt->account;

    a->params = zro__alloc_array(account, ZRO__KIND_HANDLE, opt->n_params + n, sizeof(zro_param *));
    a->sorted = zro__alloc_array(account, ZRO__KIND_HANDLE, opt->n_params + n, sizeof(zro_param *));
    a->fresh = zro__alloc_array(account, ZRO__KIND_HANDLE, n, sizeof(zro_param *));
    a->runs = zro__alloc_array(account, ZRO__KIND_HANDLE, n, sizeof *a->runs);
    a->values = zro__alloc_array(account, ZRO__KIND_HANDLE, opt->rule != NULL ? opt->rule->n_hypers : 0, sizeof *a->values);
    if (a->params == NULL || a->sorted == NULL || a->fresh == NULL || a->runs == NULL || a->values == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a list of %zu parameters", opt->n_params + n);
    return ZRO_OK;
}

/* Merges the new ones into the list by address. */
static zro_status find_twice(const zro_optim *opt, addition *a, size_t n)
{
    size_t i = 0, k = 0;
    char name[ZRO__NAME_BYTES];

    qsort(a->fresh, n, sizeof(zro_param *), by_address);
    for (size_t m = 0; m < opt->n_params + n; m++) {
        int old = k == n || (i < opt->n_params && (uintptr_t)opt->sorted[i] < (uintptr_t)a->fresh[k]);

        a->sorted[m] = old ? opt->sorted[i++] : a->fresh[k++];
        if (m == 0 || a->sorted[m] != a->sorted[m - 1])
            continue;
        for (i = 0; a->params[i] != a->sorted[m]; i++) {
        }
        return zro__fail(ZRO_ERR_INVALID, "parameter %s is there twice", zro__param_name(a->sorted[m], i, name));
    }
    return ZRO_OK;
}

static zro_status check_group(const zro_optim *opt, const zro_param_group *group)
{
    const size_t number = opt->cycle.update.shard.n_groups;

    if (group->params == NULL)
        return zro__fail(ZRO_ERR_INVALID, "parameter group %zu: params is NULL", number);
    if (group->n == 0)
        return zro__fail(ZRO_ERR_INVALID, "parameter group %zu has no parameters", number);
    if (opt->rule == NULL && (group->config != NULL || group->n_values > 0))
        return zro__fail(ZRO_ERR_INVALID, "parameter group %zu: without a rule there are no values", number);
    for (size_t i = 0; i < group->n; i++) {
        zro_status st = check_param(opt->rule, param_of(group, i), opt->n_params + i);

        if (st != ZRO_OK)
            return st;
    }
    return ZRO_OK;
}

static zro_status add_group(zro_optim *opt, const zro_param_group *group)
{
    addition a = { NULL, NULL, NULL, NULL, NULL };
    zro_status st = check_group(opt, group);

    if (st == ZRO_OK)
        st = take_addition(opt, group->n, &a);
    if (st == ZRO_OK && opt->rule != NULL)
        st = zro__values_read(opt->rule, group->config == NULL ? opt->defaults : NULL, group->config, group->values,
                              group->n_values, a.values);
    if (st != ZRO_OK)
        goto end;
    if (opt->n_params > 0)
        memcpy(a.params, opt->params, opt->n_params * sizeof(zro_param *));
    for (size_t i = 0; i < group->n; i++)
        a.fresh[i] = a.params[opt->n_params + i] = param_of(group, i);
    st = find_twice(opt, &a, group->n);
    if (st != ZRO_OK)
        goto end;
    zro__plan_one(a.params + opt->n_params, group->n, opt->n_params, a.runs);
    st = zro__update_add(&opt->cycle.update, a.values, a.runs, group->n);
    if (st != ZRO_OK)
        goto end;
    zro__free(opt->params);
    zro__free(opt->sorted);
    opt->params = a.params;
    opt->sorted = a.sorted;
    opt->n_params += group->n;
    a.params = a.sorted = NULL;
end:
    free_addition(&a);
    return st;
}

/* ---- create and destroy ---- */

void zro__optim_retain(zro_optim *opt)
{
    atomic_fetch_add_explicit(&opt->refs, 1, memory_order_relaxed);
}

/* The last one frees; acquire and release so that it sees what the others did. */
void zro__optim_release(zro_optim *opt)
{
    if (atomic_fetch_sub_explicit(&opt->refs, 1, memory_order_acq_rel) > 1)
        return;
    zro__update_free(&opt->cycle.update);
    zro__pool_destroy(opt->pool);
    zro__free(opt->defaults);
    zro__free(opt->params);
    zro__free(opt->sorted);
    zro__free(opt);
}

zro__account *zro__optim_account(zro_optim *opt)
{
    return &opt->account;
}

double *zro__optim_first_lr(zro_optim *opt, size_t group)
{
    return &opt->cycle.update.shard.groups[group]->first_lr;
}

void zro_optim_destroy(zro_optim *opt)
{
    if (opt != NULL)
        zro__optim_release(opt);
}

static zro_status check_create(zro_group *group, const zro_param_group *groups, size_t n_groups, const zro_rule *rule,
                               const void *rule_config)
{
    if (group != NULL)
        return zro__fail(ZRO_ERR_UNSUPPORTED, "optim_create: this version has no sharded optimizer; the group must be NULL");
    if (groups == NULL || n_groups == 0)
        return zro__fail(ZRO_ERR_INVALID, "optim_create: no parameter groups");
    if (rule == NULL && rule_config != NULL)
        return zro__fail(ZRO_ERR_INVALID, "optim_create: without a rule there are no values");
    return rule != NULL ? zro__rule_check(rule) : ZRO_OK;
}

/* Everything but the groups. */
static zro_status build(zro_optim *opt, const zro_rule *rule, const void *rule_config, const zro_optim_config *config)
{
    const size_t n_values = rule != NULL ? rule->n_hypers : 0;
    zro_status st;

    opt->rule = rule;
    opt->settings = config->settings;
    opt->defaults = zro__alloc_array(&opt->account, ZRO__KIND_HANDLE, n_values, sizeof *opt->defaults);
    if (opt->defaults == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: an optimizer");
    st = rule != NULL ? zro__values_read(rule, NULL, rule_config, NULL, 0, opt->defaults) : ZRO_OK;
    if (st == ZRO_OK && opt->settings.threads > 1)
        st = zro__pool_create(&opt->account, opt->settings.threads, &opt->pool);
    if (st != ZRO_OK)
        return st;
    zro__cycle_init(&opt->cycle, config);
    return zro__update_init(&opt->cycle.update, rule, zro__kernels_get(opt->settings.kernels), opt->pool, &opt->account,
                            config);
}

static void say_created(const zro_optim *opt)
{
    const zro__shard *shard = &opt->cycle.update.shard;
    double elements = 0;

    for (size_t i = 0; i < opt->n_params; i++)
        elements += (double)zro_param_count(opt->params[i]);
    zro__log(&opt->settings, ZRO_LOG_INFO,
             "optimizer %s: %zu parameters in %zu groups, %.0f elements, %.1f MiB of state; kernels %s, threads %u",
             opt->rule != NULL ? opt->rule->name : "without a rule", opt->n_params, shard->n_groups, elements,
             (double)zro__shard_bytes(shard) / 0x1p20, opt->cycle.update.kernels->name, (unsigned)opt->settings.threads);
}

zro_status zro_optim_create(zro_group *group, const zro_param_group *groups, size_t n_groups, const zro_rule *rule,
                            const void *rule_config, const zro_optim_config *config, zro_optim **out)
{
    zro_optim_config c;
    zro_optim *opt;
    zro_status st;

    if (out == NULL)
        return zro__fail(ZRO_ERR_INVALID, "optim_create: out is NULL");
    *out = NULL;
    st = check_create(group, groups, n_groups, rule, rule_config);
    if (st == ZRO_OK)
        st = read_config(config, rule, &c);
    if (st != ZRO_OK)
        return st;
    opt = zro__alloc(NULL, ZRO__KIND_HANDLE, sizeof *opt);
    if (opt == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: an optimizer");
    atomic_init(&opt->refs, 1);
    st = build(opt, rule, rule_config, &c);
    for (size_t i = 0; st == ZRO_OK && i < n_groups; i++)
        st = add_group(opt, &groups[i]);
    if (st != ZRO_OK) {
        zro__optim_release(opt);
        return st;
    }
    say_created(opt);
    *out = opt;
    return ZRO_OK;
}

static zro_status check_handle(const zro_optim *opt)
{
    return opt != NULL ? ZRO_OK : zro__fail(ZRO_ERR_INVALID, "the optimizer is NULL");
}

zro_status zro_optim_add_param_group(zro_optim *opt, const zro_param_group *group)
{
    zro_status st = check_handle(opt);

    if (st == ZRO_OK && group == NULL)
        st = zro__fail(ZRO_ERR_INVALID, "optim_add_param_group: the parameter group is NULL");
    return st == ZRO_OK ? add_group(opt, group) : st;
}

/* ---- step ---- */

zro_status zro_optim_step_local(zro_optim *opt, void *user)
{
    zro_status st = check_handle(opt);

    if (st != ZRO_OK)
        return st;
    st = zro__cycle_step(&opt->cycle, user);
    if (st == ZRO_OK && opt->cycle.skipped)
        zro__log(&opt->settings, ZRO_LOG_WARN, "step %llu skipped: a gradient is not finite; loss scale %g",
                 (unsigned long long)opt->cycle.n_steps, (double)opt->cycle.scaler.scale);
    return st;
}

zro_status zro_optim_publish(zro_optim *opt)
{
    return check_handle(opt);
}

zro_status zro_optim_step(zro_optim *opt, void *user)
{
    zro_status st = zro_optim_step_local(opt, user);

    return st == ZRO_OK ? zro_optim_publish(opt) : st;
}

zro_status zro_optim_step_closure(zro_optim *opt, zro_closure_fn fn, void *fn_user, void *user, double *loss)
{
    double value = NAN;
    zro_status st = check_handle(opt);

    if (st == ZRO_OK && fn == NULL)
        st = zro__fail(ZRO_ERR_INVALID, "optim_step_closure: the closure is NULL");
    if (st == ZRO_OK)
        st = fn(fn_user, &value);
    if (st == ZRO_OK)
        st = zro_optim_step(opt, user);
    if (loss != NULL)
        *loss = value;
    return st;
}

/* A job of the pool: some parameters' gradients. */
typedef struct zeroing {
    zro_param **params;
    zro_zero_grad how;
} zeroing;

static void zero_some(void *ctx, size_t first, size_t last)
{
    const zeroing *z = ctx;

    for (size_t i = first; i < last; i++) {
        zro_param *p = z->params[i];
        zro_dtype type = p->grad_dtype == ZRO_SAME ? p->dtype : p->grad_dtype;

        if (z->how != ZRO_ZERO_LEAVE && p->grad != NULL)
            memset(p->grad, 0, zro_param_count(p) * zro_dtype_bytes(type));
        if (z->how != ZRO_ZERO_KEEP)
            __atomic_store_n(&p->grad_present, 0, __ATOMIC_RELEASE);
    }
}

zro_status zro_optim_zero_grad(zro_optim *opt, zro_zero_grad how)
{
    zro_status st = check_handle(opt);
    zeroing z;

    if (st != ZRO_OK)
        return st;
    if (how != ZRO_ZERO_CLEAR && how != ZRO_ZERO_LEAVE && how != ZRO_ZERO_KEEP)
        return zro__fail(ZRO_ERR_INVALID, "optim_zero_grad: %d is none of clear, leave, keep", (int)how);
    z.params = opt->params;
    z.how = how;
    zro__pool_run(opt->pool, zero_some, &z, opt->n_params);
    return ZRO_OK;
}

/* ---- values ---- */

size_t zro_optim_groups(const zro_optim *opt)
{
    return opt != NULL ? opt->cycle.update.shard.n_groups : 0;
}

size_t zro_optim_params(const zro_optim *opt)
{
    return opt != NULL ? opt->n_params : 0;
}

size_t zro_optim_values(const zro_optim *opt)
{
    return opt != NULL && opt->rule != NULL ? opt->rule->n_hypers : 0;
}

const char *zro_optim_value_name(const zro_optim *opt, size_t i)
{
    return i < zro_optim_values(opt) ? opt->rule->hypers[i].name : NULL;
}

static zro_status check_values_of(const zro_optim *opt, size_t group)
{
    zro_status st = check_handle(opt);

    if (st == ZRO_OK && group >= zro_optim_groups(opt))
        st = zro__fail(ZRO_ERR_INVALID, "there is no parameter group %zu, only %zu of them", group, zro_optim_groups(opt));
    if (st == ZRO_OK && opt->rule == NULL)
        st = zro__fail(ZRO_ERR_INVALID, "without a rule there are no values");
    return st;
}

static zro_status find_value(const zro_optim *opt, size_t group, const char *name, int *at)
{
    zro_status st = check_values_of(opt, group);

    if (st != ZRO_OK)
        return st;
    *at = zro__values_find(opt->rule, name);
    return *at >= 0
               ? ZRO_OK
               : zro__fail(ZRO_ERR_INVALID, "%s has no value named \"%s\"", opt->rule->name, name != NULL ? name : "(null)");
}

static zro_status check_count(const zro_optim *opt, const double *values, size_t n)
{
    if (values == NULL || n != opt->rule->n_hypers)
        return zro__fail(ZRO_ERR_INVALID, "%s has %zu values, not %zu", opt->rule->name, opt->rule->n_hypers,
                         values != NULL ? n : 0);
    return ZRO_OK;
}

zro_status zro_optim_get_value(const zro_optim *opt, size_t group, const char *name, double *value)
{
    int at = 0;
    zro_status st = find_value(opt, group, name, &at);

    if (st == ZRO_OK)
        *value = opt->cycle.update.shard.groups[group]->values[at];
    return st;
}

zro_status zro_optim_get_values(const zro_optim *opt, size_t group, double *values, size_t n)
{
    zro_status st = check_values_of(opt, group);

    if (st == ZRO_OK)
        st = check_count(opt, values, n);
    if (st == ZRO_OK)
        memcpy(values, opt->cycle.update.shard.groups[group]->values, n * sizeof *values);
    return st;
}

/* update.values is free between steps. */
zro_status zro_optim_set_values(zro_optim *opt, size_t group, const double *values, size_t n)
{
    zro_status st = check_values_of(opt, group);

    if (st == ZRO_OK)
        st = check_count(opt, values, n);
    if (st == ZRO_OK)
        st = zro__values_check(opt->rule, values);
    if (st == ZRO_OK)
        st = zro__shard_ensure(&opt->cycle.update.shard, group, values);
    if (st == ZRO_OK)
        memcpy(opt->cycle.update.shard.groups[group]->values, values, n * sizeof *values);
    return st;
}

zro_status zro_optim_set_value(zro_optim *opt, size_t group, const char *name, double value)
{
    int at = 0;
    zro_status st = find_value(opt, group, name, &at);
    double *room;

    if (st != ZRO_OK)
        return st;
    room = opt->cycle.update.values;
    memcpy(room, opt->cycle.update.shard.groups[group]->values, opt->rule->n_hypers * sizeof *room);
    room[at] = value;
    return zro_optim_set_values(opt, group, room, opt->rule->n_hypers);
}

/* ---- state ---- */

static int has_masters(const zro_optim *opt)
{
    return opt->rule != NULL && opt->cycle.update.shard.masters == ZRO_ON;
}

size_t zro_optim_slots(const zro_optim *opt)
{
    return opt != NULL && opt->rule != NULL ? opt->rule->n_slots + (size_t)has_masters(opt) : 0;
}

const char *zro_optim_slot_name(const zro_optim *opt, size_t i)
{
    if (i >= zro_optim_slots(opt))
        return NULL;
    return i < opt->rule->n_slots ? opt->rule->slots[i].name : "master";
}

/* Its place among the slots, ZRO__MASTER for masters, or -1. */
static int find_slot(const zro_optim *opt, const char *name)
{
    for (size_t i = 0; name != NULL && i < zro_optim_slots(opt); i++)
        if (strcmp(zro_optim_slot_name(opt, i), name) == 0)
            return i < opt->rule->n_slots ? (int)i : (int)ZRO__MASTER;
    return -1;
}

zro_status zro_optim_slot(const zro_optim *opt, size_t param, const char *name, zro_slot *slot)
{
    zro__part_group *group = NULL;
    const zro__piece *piece;
    zro_status st = check_handle(opt);
    int s;

    if (st != ZRO_OK)
        return st;
    memset(slot, 0, sizeof *slot);
    if (param >= opt->n_params)
        return zro__fail(ZRO_ERR_INVALID, "there is no parameter %zu, only %zu of them", param, opt->n_params);
    s = find_slot(opt, name);
    if (s < 0)
        return zro__fail(ZRO_ERR_INVALID, "%s has no slot named \"%s\"",
                         opt->rule != NULL ? opt->rule->name : "an optimizer without a rule", name != NULL ? name : "(null)");
    piece = zro__shard_find(&opt->cycle.update.shard, param, &group);
    slot->dtype = ZRO_F32;
    if (piece == NULL)
        return ZRO_OK;
    slot->present = piece->present >> s & 1;
    if (s != ZRO__MASTER && opt->rule->slots[s].kind != ZRO_SLOT_ARRAY) {
        slot->count = 1;
        slot->dtype = ZRO_F64;
        slot->data = slot->present ? &group->numbers[(size_t)(piece - group->pieces) * opt->rule->n_slots + (size_t)s] : NULL;
        return ZRO_OK;
    }
    slot->first = piece->first;
    slot->count = piece->count;
    slot->dtype = s == ZRO__MASTER ? ZRO_F32 : piece->type;
    slot->data = slot->present ? zro__shard_slot(group, piece, (size_t)s) : NULL;
    return ZRO_OK;
}

zro_status zro_optim_info(const zro_optim *opt, zro_step_info *info)
{
    zro_step_info i = ZRO_STEP_INFO_INIT;
    zro_status st = check_handle(opt);
    size_t size;

    if (st != ZRO_OK)
        return st;
    if (info == NULL || info->struct_size < sizeof(size_t) || info->struct_size > 4096)
        return zro__fail(ZRO_ERR_INVALID, "zro_step_info: begin with ZRO_STEP_INFO_INIT");
    size = info->struct_size;
    i.scale = (double)opt->cycle.scaler.scale;
    i.growth_tracker = opt->cycle.scaler.tracker;
    i.skipped = opt->cycle.skipped;
    i.n_skipped = opt->cycle.n_skipped;
    i.n_steps = opt->cycle.n_steps;
    i.norm = opt->cycle.norm;
    i.state_bytes = zro__shard_bytes(&opt->cycle.update.shard);
    memcpy(info, &i, size < sizeof i ? size : sizeof i);
    info->struct_size = size;
    return ZRO_OK;
}

zro_status zro_optim_set_scale(zro_optim *opt, double scale, uint32_t growth_tracker)
{
    zro_status st = check_handle(opt);

    if (st == ZRO_OK && opt->cycle.scales != ZRO_ON)
        st = zro__fail(ZRO_ERR_STATE, "optim_set_scale: the optimizer has no loss scale");
    if (st == ZRO_OK && !((float)scale > 0 && isfinite((float)scale)))
        st = zro__fail(ZRO_ERR_INVALID, "optim_set_scale: scale = %g, must be above 0 and finite in f32", scale);
    if (st == ZRO_OK && growth_tracker >= opt->cycle.scaler.interval)
        st = zro__fail(ZRO_ERR_INVALID, "optim_set_scale: growth_tracker = %u, must be below growth_interval = %u",
                       (unsigned)growth_tracker, (unsigned)opt->cycle.scaler.interval);
    if (st != ZRO_OK)
        return st;
    opt->cycle.scaler.scale = (float)scale;
    opt->cycle.scaler.tracker = growth_tracker;
    return ZRO_OK;
}

/* ---- clipping as a call ---- */

/* Without a rule there may be integers. */
static zro_status check_float(const zro_optim *opt)
{
    char name[ZRO__NAME_BYTES];

    for (size_t i = 0; opt->rule == NULL && i < opt->n_params; i++) {
        const zro_param *p = opt->params[i];

        if (!zro__dtype_is_float(p->grad_dtype == ZRO_SAME ? p->dtype : p->grad_dtype))
            return zro__fail(ZRO_ERR_UNSUPPORTED, "parameter %s: gradients of integers cannot be clipped",
                             zro__param_name(p, i, name));
    }
    return ZRO_OK;
}

zro_status zro_clip_grad_norm(zro_optim *opt, double max_norm, double norm_type, double *norm)
{
    zro_status st = check_handle(opt);

    if (st == ZRO_OK && !(max_norm >= 0))
        st = zro__fail(ZRO_ERR_INVALID, "clip_grad_norm: max_norm = %g, must not be negative", max_norm);
    if (st == ZRO_OK)
        st = zro__check_norm_type(norm_type);
    if (st == ZRO_OK)
        st = check_float(opt);
    return st == ZRO_OK ? zro__cycle_clip_norm(&opt->cycle, max_norm, norm_type, norm) : st;
}

zro_status zro_clip_grad_value(zro_optim *opt, double max_value)
{
    zro_status st = check_handle(opt);

    if (st == ZRO_OK && !(max_value > 0 && isfinite(max_value)))
        st = zro__fail(ZRO_ERR_INVALID, "clip_grad_value: max_value = %g, must be above 0 and finite", max_value);
    if (st == ZRO_OK)
        st = check_float(opt);
    return st == ZRO_OK ? zro__cycle_clip_value(&opt->cycle, max_value) : st;
}
