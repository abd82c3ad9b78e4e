/* The zro_optim handle: checks what it is given, keeps the list of parameters, and leaves the step to the cycle.
 *
 * Sharded and not are the same handle; in this version the plan has one owner.  A group of parameters is checked and all
 * memory for it is taken before anything changes, so that a failed create or add leaves nothing behind. */
#include "zero/optim.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/dtype.h"
#include "base/log.h"
#include "base/param.h"
#include "base/settings.h"
#include "base/status.h"
#include "optim/values.h"
#include "step/cycle.h"
#include "step/plan.h"

/* A parameter as it was when it came: name, size and types do not change. */
typedef struct entry {
    zro_param *param;
    size_t count;
    const char *name; /* or NULL */
    zro_dtype dtype, grad_dtype;
} entry;

/* Names of a group's parameters, one after another. */
typedef struct names {
    struct names *next;
    char text[];
} names;

struct zro_optim {
    zro__account account;
    atomic_int refs;
    const zro_rule *rule;    /* or NULL */
    double *defaults, *room; /* values of groups that say nothing else; room for a group's */
    zro_settings settings;
    zro__pool *pool;
    pid_t process; /* that has the pool's threads */
    int said_idle; /* that a step found nothing to do */
    zro__cycle cycle;
    entry *params; /* by index */
    size_t n_params, n_room;
    names *names;
};

/* ---- settings ---- */

static const zro_optim_config default_config = ZRO_OPTIM_CONFIG_INIT;

void zro_optim_config_init(zro_optim_config *config)
{
    if (config != NULL)
        *config = default_config;
}

void zro_step_info_init(zro_step_info *info)
{
    static const zro_step_info init = ZRO_STEP_INFO_INIT;

    if (info != NULL)
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
    zro_status st;

    *out = default_config;
    st = zro__config_take("zro_optim_config", config, offsetof(zro_optim_config, settings) + sizeof(zro_settings), out,
                          sizeof *out);
    return st == ZRO_OK ? check_config(out, rule) : st;
}

/* ---- parameters ---- */

static zro_param *param_of(const zro_param_group *group, size_t i)
{
    return &group->params[group->index != NULL ? group->index[i] : i];
}

static zro_status check_type(const zro_rule *rule, const zro_param *p, size_t index)
{
    zro_dtype grad = p->grad_dtype == ZRO_SAME ? p->dtype : p->grad_dtype;
    char buffer[ZRO__NAME_BYTES];
    const char *name = zro__param_name(p->name, index, buffer);

    if (!zro__dtype_is_known(p->dtype) || !zro__dtype_is_known(grad))
        return zro__fail(ZRO_ERR_INVALID, "parameter %s: %s = %d is no element type", name,
                         zro__dtype_is_known(p->dtype) ? "grad_dtype" : "dtype",
                         (int)(zro__dtype_is_known(p->dtype) ? grad : p->dtype));
    if (rule == NULL)
        return ZRO_OK;
    if (!zro__dtype_is_float(p->dtype) || !zro__dtype_is_float(grad))
        return zro__fail(ZRO_ERR_UNSUPPORTED, "parameter %s: %s = %s, must be f32, f64, bf16 or f16", name,
                         zro__dtype_is_float(p->dtype) ? "grad_dtype" : "dtype",
                         zro_dtype_name(zro__dtype_is_float(p->dtype) ? grad : p->dtype));
    if ((p->dtype == ZRO_F64 ? rule->f64 : rule->f32) == NULL)
        return zro__fail(ZRO_ERR_UNSUPPORTED, "parameter %s: rule %s has no loop for %s", name, rule->name,
                         zro_dtype_name(p->dtype));
    return ZRO_OK;
}

static zro_status check_group(const zro_optim *opt, const zro_param_group *group)
{
    const size_t number = zro_optim_groups(opt);
    zro_status st = ZRO_OK;

    if (group->params == NULL)
        return zro__fail(ZRO_ERR_INVALID, "parameter group %zu: params is NULL", number);
    if (group->n == 0)
        return zro__fail(ZRO_ERR_INVALID, "parameter group %zu has no parameters", number);
    if (opt->rule == NULL && (group->config != NULL || group->n_values > 0))
        return zro__fail(ZRO_ERR_INVALID, "parameter group %zu: without a rule there are no values", number);
    for (size_t i = 0; st == ZRO_OK && i < group->n; i++) {
        st = zro__param_check(param_of(group, i), opt->n_params + i);
        if (st == ZRO_OK)
            st = check_type(opt->rule, param_of(group, i), opt->n_params + i);
    }
    return st;
}

/* That none of the first n parameters is there twice or shares memory with another. */
static zro_status check_apart(zro_optim *opt, size_t n)
{
    const entry *params = opt->params;
    zro__numbered *list = zro__alloc_array(&opt->account, ZRO__KIND_HANDLE, n, sizeof *list);
    zro_status st;

    if (list == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: comparing %zu parameters", n);
    for (size_t i = 0; i < n; i++)
        list[i] = (zro__numbered){ params[i].param, i, params[i].count * zro_dtype_bytes(params[i].dtype) };
    st = zro__params_check_apart(list, n);
    zro__free(list);
    return st;
}

/* Room for n more, where the list is or, grown, elsewhere. */
static zro_status reserve(zro_optim *opt, size_t n)
{
    size_t need = opt->n_params + n, wanted = need > 2 * opt->n_room ? need : 2 * opt->n_room;
    entry *more;

    if (need <= opt->n_room)
        return ZRO_OK;
    more = zro__alloc_array(&opt->account, ZRO__KIND_HANDLE, wanted, sizeof *more);
    if (more == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a list of %zu parameters", wanted);
    if (opt->n_params > 0)
        memcpy(more, opt->params, opt->n_params * sizeof *more);
    zro__free(opt->params);
    opt->params = more;
    opt->n_room = wanted;
    return ZRO_OK;
}

/* Fills in entries for the group behind those that count, with copies of the names. */
static zro_status describe_params(zro_optim *opt, const zro_param_group *group, names **copies)
{
    size_t bytes = 0;
    char *at;

    for (size_t i = 0; i < group->n; i++)
        bytes += param_of(group, i)->name != NULL ? strlen(param_of(group, i)->name) + 1 : 0;
    *copies = zro__alloc(&opt->account, ZRO__KIND_HANDLE, sizeof **copies + bytes);
    if (*copies == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: names of parameters");
    at = (*copies)->text;
    for (size_t i = 0; i < group->n; i++) {
        zro_param *p = param_of(group, i);
        zro_dtype grad = p->grad_dtype == ZRO_SAME ? p->dtype : p->grad_dtype;

        opt->params[opt->n_params + i] = (entry){ p, zro_param_count(p), p->name != NULL ? at : NULL, p->dtype, grad };
        if (p->name != NULL)
            at = stpcpy(at, p->name) + 1;
    }
    return ZRO_OK;
}

/* Gives the engine what this rank owns of the entries behind those that count. */
static zro_status add_runs(zro_optim *opt, const zro_param_group *group)
{
    zro__run_of *runs = zro__alloc_array(&opt->account, ZRO__KIND_HANDLE, group->n, sizeof *runs);
    zro_status st = ZRO_OK;

    if (runs == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a list of %zu parameters", group->n);
    for (size_t i = 0; i < group->n; i++) {
        const entry *e = &opt->params[opt->n_params + i];

        runs[i] = (zro__run_of){ e->param, opt->n_params + i, 0, e->count, e->name };
    }
    if (opt->rule != NULL)
        st = zro__values_read(opt->rule, group->config == NULL ? opt->defaults : NULL, group->config, group->values,
                              group->n_values, opt->room);
    if (st == ZRO_OK)
        st = zro__update_add(&opt->cycle.update, opt->room, opt->n_params, runs, zro__plan_one(runs, group->n));
    zro__free(runs);
    return st;
}

/* `apart`: those that came before are compared with these, too. */
static __attribute__((noinline)) zro_status add_group(zro_optim *opt, const zro_param_group *group, int apart)
{
    names *copies = NULL;
    zro_status st = check_group(opt, group);

    if (st == ZRO_OK)
        st = reserve(opt, group->n);
    if (st == ZRO_OK)
        st = describe_params(opt, group, &copies);
    if (st == ZRO_OK && apart)
        st = check_apart(opt, opt->n_params + group->n);
    if (st == ZRO_OK)
        st = add_runs(opt, group);
    if (st != ZRO_OK) {
        zro__free(copies);
        return st;
    }
    opt->n_params += group->n;
    copies->next = opt->names;
    opt->names = copies;
    return ZRO_OK;
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
    if (getpid() == opt->process) /* a forked child has no threads to join */
        zro__pool_destroy(opt->pool);
    while (opt->names != NULL) {
        names *next = opt->names->next;

        zro__free(opt->names);
        opt->names = next;
    }
    zro__free(opt->defaults);
    zro__free(opt->room);
    zro__free(opt->params);
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
static __attribute__((noinline)) zro_status build(zro_optim *opt, const zro_rule *rule, const void *rule_config,
                                                  const zro_optim_config *config)
{
    const size_t n_values = rule != NULL ? rule->n_hypers : 0;
    zro_status st;

    opt->rule = rule;
    opt->settings = config->settings;
    opt->defaults = zro__alloc_array(&opt->account, ZRO__KIND_HANDLE, n_values, sizeof *opt->defaults);
    opt->room = zro__alloc_array(&opt->account, ZRO__KIND_HANDLE, n_values, sizeof *opt->room);
    if (opt->defaults == NULL || opt->room == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: an optimizer");
    st = rule != NULL ? zro__values_read(rule, NULL, rule_config, NULL, 0, opt->defaults) : ZRO_OK;
    opt->process = getpid();
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
        elements += (double)opt->params[i].count;
    zro__log(&opt->settings, ZRO_LOG_INFO,
             "optimizer %s: %zu parameters in %zu groups, %.0f elements, %.1f MiB of state; kernels %s, threads %u",
             opt->rule != NULL ? opt->rule->name : "without a rule", opt->n_params, shard->n_groups, elements,
             (double)zro__shard_bytes(shard) / 0x1p20, opt->cycle.update.kernels->name, (unsigned)opt->settings.threads);
}

zro_status zro_optim_create(zro_group *group, const zro_param_group *groups, size_t n_groups, const zro_rule *rule,
                            const void *rule_config, const zro_optim_config *config, zro_optim **out)
{
    zro_optim_config c;
    zro__fpmode mode;
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
    zro__fpmode_enter(&mode);
    st = build(opt, rule, rule_config, &c);
    for (size_t i = 0; st == ZRO_OK && i < n_groups; i++)
        st = add_group(opt, &groups[i], 0);
    if (st == ZRO_OK)
        st = check_apart(opt, opt->n_params);
    zro__fpmode_leave(&mode);
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

/* For what uses threads: a forked child does not have them. */
static zro_status check_threads(const zro_optim *opt)
{
    zro_status st = check_handle(opt);

    if (st == ZRO_OK && opt->pool != NULL && getpid() != opt->process)
        st = zro__fail(ZRO_ERR_STATE, "an optimizer with %u threads cannot be used in a forked child, which does not have them",
                       (unsigned)opt->settings.threads);
    return st;
}

zro_status zro_optim_add_param_group(zro_optim *opt, const zro_param_group *group)
{
    zro__fpmode mode;
    zro_status st = check_handle(opt);

    if (st == ZRO_OK && group == NULL)
        st = zro__fail(ZRO_ERR_INVALID, "optim_add_param_group: the parameter group is NULL");
    if (st != ZRO_OK)
        return st;
    zro__fpmode_enter(&mode);
    st = add_group(opt, group, 1);
    zro__fpmode_leave(&mode);
    return st;
}

/* ---- step ---- */

static void say_stepped(zro_optim *opt)
{
    if (opt->cycle.skipped)
        zro__log(&opt->settings, ZRO_LOG_WARN, "step %" PRIu64 " skipped: a gradient is not finite; loss scale %g",
                 opt->cycle.n_steps, (double)opt->cycle.scaler.scale);
    if (opt->cycle.n_active > 0 || opt->rule == NULL || opt->said_idle)
        return;
    opt->said_idle = 1;
    zro__log(&opt->settings, ZRO_LOG_WARN,
             "step %" PRIu64 " updated nothing: no parameter has a gradient (grad_present, zro_param_set_grad)",
             opt->cycle.n_steps);
}

zro_status zro_optim_step_local(zro_optim *opt, void *user)
{
    zro_status st = check_threads(opt);

    if (st == ZRO_OK)
        st = zro__cycle_step(&opt->cycle, user);
    if (st == ZRO_OK)
        say_stepped(opt);
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
    const entry *params;
    zro_zero_grad how;
} zeroing;

static void zero_some(void *ctx, size_t first, size_t last)
{
    const zeroing *z = ctx;

    for (size_t i = first; i < last; i++) {
        zro_param *p = z->params[i].param;

        if (z->how != ZRO_ZERO_LEAVE && p->grad != NULL)
            memset(p->grad, 0, z->params[i].count * zro_dtype_bytes(z->params[i].grad_dtype));
        if (z->how != ZRO_ZERO_KEEP)
            __atomic_store_n(&p->grad_present, 0, __ATOMIC_RELEASE);
    }
}

zro_status zro_optim_zero_grad(zro_optim *opt, zro_zero_grad how)
{
    zro_status st = check_threads(opt);
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
    return *at >= 0 ? ZRO_OK : zro__values_unknown(opt->rule, name);
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

    if (st == ZRO_OK && value == NULL)
        st = zro__fail(ZRO_ERR_INVALID, "optim_get_value: value is NULL");
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

    if (st != ZRO_OK)
        return st;
    memcpy(opt->room, opt->cycle.update.shard.groups[group]->values, opt->rule->n_hypers * sizeof *opt->room);
    opt->room[at] = value;
    return zro_optim_set_values(opt, group, opt->room, opt->rule->n_hypers);
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

static zro_status unknown_slot(const zro_optim *opt, const char *name)
{
    char known[256] = "";

    for (size_t i = 0; i < zro_optim_slots(opt) && strlen(known) < sizeof known - 64; i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), " %.60s", zro_optim_slot_name(opt, i));
    return zro__fail(ZRO_ERR_INVALID, "%s has no slot named \"%s\"; there is:%s",
                     opt->rule != NULL ? opt->rule->name : "an optimizer without a rule", name != NULL ? name : "(null)",
                     known[0] != '\0' ? known : " none");
}

zro_status zro_optim_slot(const zro_optim *opt, size_t param, const char *name, zro_slot *slot)
{
    zro__part_group *group = NULL;
    const zro__piece *piece;
    zro_status st = check_handle(opt);
    int s;

    if (st == ZRO_OK && slot == NULL)
        st = zro__fail(ZRO_ERR_INVALID, "optim_slot: slot is NULL");
    if (st != ZRO_OK)
        return st;
    memset(slot, 0, sizeof *slot);
    if (param >= opt->n_params)
        return zro__fail(ZRO_ERR_INVALID, "there is no parameter %zu, only %zu of them", param, opt->n_params);
    s = find_slot(opt, name);
    if (s < 0)
        return unknown_slot(opt, name);
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
    i.n_updated = opt->cycle.skipped ? 0 : opt->cycle.n_active;
    i.norm = opt->cycle.norm;
    i.state_bytes = zro__shard_bytes(&opt->cycle.update.shard);
    memcpy(info, &i, size < sizeof i ? size : sizeof i);
    info->struct_size = size;
    return ZRO_OK;
}

zro_status zro_optim_set_scale(zro_optim *opt, double scale, uint32_t growth_tracker)
{
    zro__fpmode mode;
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
    zro__fpmode_enter(&mode);
    zro__scaler_set(&opt->cycle.scaler, scale);
    zro__fpmode_leave(&mode);
    opt->cycle.scaler.tracker = growth_tracker;
    return ZRO_OK;
}

/* ---- clipping as a call ---- */

/* Without a rule there may be integers. */
static zro_status check_float(const zro_optim *opt)
{
    char name[ZRO__NAME_BYTES];

    for (size_t i = 0; opt->rule == NULL && i < opt->n_params; i++) {
        if (!zro__dtype_is_float(opt->params[i].grad_dtype))
            return zro__fail(ZRO_ERR_UNSUPPORTED, "parameter %s: gradients of integers cannot be clipped",
                             zro__param_name(opt->params[i].name, i, name));
    }
    return ZRO_OK;
}

zro_status zro_clip_grad_norm(zro_optim *opt, double max_norm, double norm_type, double *norm)
{
    zro_status st = check_threads(opt);

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
    zro_status st = check_threads(opt);

    if (st == ZRO_OK && !(max_value > 0 && isfinite(max_value)))
        st = zro__fail(ZRO_ERR_INVALID, "clip_grad_value: max_value = %g, must be above 0 and finite", max_value);
    if (st == ZRO_OK)
        st = check_float(opt);
    return st == ZRO_OK ? zro__cycle_clip_value(&opt->cycle, max_value) : st;
}
