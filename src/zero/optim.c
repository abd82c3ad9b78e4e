/* The zro_optim handle: how it is made and how it ends.
 *
 * Sharded and not are the same handle; without a group of ranks the plan has one owner.  A sharded one works on a duplicate of
 * the group that it was given: so it has an order of calls and a fate of its own, and outlives the program's handle.  Whatever
 * is wrong on one rank is voted on before anything counts (extend.c), and a failed create leaves nothing behind. */
#include "zero/optim.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bounds.h"
#include "base/cpu.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/status.h"
#include "group/group.h"
#include "optim/values.h"

/* ---- settings ---- */

ZRO__DEFINE_INIT(zro_optim_config, ZRO_OPTIM_CONFIG_INIT)
ZRO__DEFINE_INIT(zro_step_info, ZRO_STEP_INFO_INIT)

static zro_status check_overlap(const zro_optim_config *c, const zro_rule *rule)
{
    if (c->overlap == ZRO_OVERLAP_OFF)
        return ZRO_OK;
    if (c->overlap != ZRO_OVERLAP_AFTER_LAST && c->overlap != ZRO_OVERLAP_INTERLEAVED)
        return zro__fail(ZRO_ERR_INVALID, "overlap must be ZRO_OVERLAP_OFF, ZRO_OVERLAP_AFTER_LAST or ZRO_OVERLAP_INTERLEAVED");
    if (c->ddp == NULL)
        return zro__fail(ZRO_ERR_INVALID,
                         "overlap = %s is for an optimizer that is attached to a ddp: set `ddp` in zro_optim_config",
                         zro__overlap_name(c->overlap));
    return rule != NULL
               ? ZRO_OK
               : zro__fail(ZRO_ERR_INVALID, "overlap = %s needs a rule: without one the program updates parameters itself",
                           zro__overlap_name(c->overlap));
}

static zro_status check_config(const zro_optim_config *c, const zro_rule *rule)
{
    const zro__bound switches[] = {
        { "masters", (double)c->masters, 0, 1, ZRO__SWITCH },
        { "skip_non_finite", (double)c->skip_non_finite, 0, 1, ZRO__SWITCH },
        { "loss_scale", (double)c->loss_scale, 0, 1, ZRO__SWITCH },
        { "parameters_as_bucket_view", (double)c->parameters_as_bucket_view, 0, 1, ZRO__SWITCH },
    };
    zro_status st = zro__bounds_check(NULL, switches, sizeof switches / sizeof *switches);

    if (st == ZRO_OK && c->rounding != ZRO_NEAREST && c->rounding != ZRO_STOCHASTIC)
        st = zro__fail(ZRO_ERR_INVALID, "rounding must be ZRO_NEAREST or ZRO_STOCHASTIC");
    if (st == ZRO_OK && c->rounding == ZRO_STOCHASTIC && c->masters == ZRO_ON)
        st = zro__fail(ZRO_ERR_INVALID, "rounding = stochastic is for parameters without masters: set masters = off");
    if (st == ZRO_OK)
        st = zro__factors_check(c);
    if (st == ZRO_OK && rule == NULL
        && (c->clip_norm != 0 || c->clip_value != 0 || c->skip_non_finite == ZRO_ON || c->loss_scale == ZRO_ON))
        st = zro__fail(ZRO_ERR_INVALID,
                       "clipping, skipping and loss scale are settings of a step, and without a rule there is none");
    if (st == ZRO_OK)
        st = check_overlap(c, rule);
    return st != ZRO_OK ? st : zro__settings_check(&c->settings);
}

static zro_status read_config(const zro_optim_config *config, const zro_rule *rule, zro_optim_config *out)
{
    zro_status st;

    zro_optim_config_init(out);
    st = zro__config_take("zro_optim_config", config, offsetof(zro_optim_config, settings) + sizeof(zro_settings), out,
                          sizeof *out);
    return st == ZRO_OK ? check_config(out, rule) : st;
}

/* ---- create and destroy ---- */

void zro__optim_retain(zro_optim *opt)
{
    atomic_fetch_add_explicit(&opt->refs, 1, memory_order_relaxed);
}

static int is_alive(const zro_optim *opt)
{
    return opt->group == NULL || zro__view_is_alive(opt->group->seat->view);
}

/* The last one frees; acquire and release so that it sees what the others did. */
void zro__optim_release(zro_optim *opt)
{
    if (atomic_fetch_sub_explicit(&opt->refs, 1, memory_order_acq_rel) > 1)
        return;
    zro__views_undo(opt->views, is_alive(opt));
    if (opt->cycle != NULL)
        zro__cycle_detach(opt->cycle, &opt->updater);
    if (opt->cycle != NULL && !opt->attaches)
        opt->cycle->is_closed = 1;
    zro__updater_free(&opt->updater);
    zro_plan_destroy(opt->plan);                        /* after what has its names */
    if (opt->group == NULL && getpid() == opt->process) /* a forked child has no threads to join */
        zro__pool_destroy(opt->pool);
    zro__free(opt->defaults);
    zro__free(opt->scratch);
    zro__free(opt->params);
    zro__cycle_release(opt->cycle); /* last: its group keeps the account */
    zro__free(opt);
}

int zro__optim_rank(const zro_optim *opt)
{
    return opt->group != NULL ? opt->group->ranks.board.rank : 0;
}

int zro__optim_ranks(const zro_optim *opt)
{
    return opt->group != NULL ? opt->group->ranks.board.size : 1;
}

void zro_optim_destroy(zro_optim *opt)
{
    if (opt != NULL)
        zro__optim_release(opt);
}

static zro_status check_create(const zro_param_group *groups, size_t n_groups, const zro_rule *rule, const void *rule_config,
                               zro_optim **out)
{
    if (out == NULL)
        return zro__fail(ZRO_ERR_INVALID, "optim_create: out is NULL");
    if (groups == NULL || n_groups == 0)
        return zro__fail(ZRO_ERR_INVALID, "optim_create: no parameter groups");
    if (rule == NULL)
        return zro__fail(ZRO_ERR_INVALID, "optim_create: the rule is NULL, as zro_rule_find returns it for a name that no rule "
                                          "has; if the program updates parameters itself, pass zro_rule_none()");
    if (rule == zro_rule_none())
        return rule_config == NULL ? ZRO_OK : zro__fail(ZRO_ERR_INVALID, "optim_create: without a rule there are no values");
    return zro__rule_check(rule);
}

/* Everything but the groups. */
static __attribute__((noinline)) zro_status build(zro_optim *opt, const zro_rule *rule, const void *rule_config,
                                                  const zro_optim_config *config)
{
    const size_t n_values = rule != NULL ? rule->n_hypers : 0;
    zro_status st;

    opt->rule = rule;
    opt->bucket_views = config->parameters_as_bucket_view;
    opt->defaults = zro__alloc_array(opt->account, ZRO__KIND_HANDLE, n_values, sizeof *opt->defaults);
    opt->scratch = zro__alloc_array(opt->account, ZRO__KIND_HANDLE, n_values, sizeof *opt->scratch);
    if (opt->defaults == NULL || opt->scratch == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: an optimizer");
    st = rule != NULL ? zro__values_read(rule, NULL, rule_config, NULL, 0, opt->defaults) : ZRO_OK;
    if (st == ZRO_OK && opt->group == NULL && opt->settings.threads > 1)
        st = zro__pool_create(opt->account, opt->settings.threads, &opt->pool);
    if (st != ZRO_OK)
        return st;
    zro__updater_init(&opt->updater, config);
    return zro__update_init(&opt->updater.update, rule, zro__kernels_get(opt->settings.kernels), opt->pool, opt->account,
                            config);
}

/* A handle that can be released, or NULL; takes the cycle. */
static zro_optim *new_handle(zro__cycle *cycle, const zro_settings *settings)
{
    zro_group *group = cycle->group;
    zro_optim *opt = zro__alloc(NULL, ZRO__KIND_HANDLE, sizeof *opt);

    if (opt == NULL)
        return NULL;
    atomic_init(&opt->refs, 1);
    opt->process = getpid();
    opt->cycle = opt->updater.cycle = cycle;
    opt->updater.open = zro__optim_open_step;
    opt->updater.optim = opt;
    opt->updater.joiner = &zro__optim_joiner;
    opt->group = group;
    opt->account = group != NULL ? &group->seat->account : &opt->own;
    opt->settings = group != NULL ? group->settings : *settings;
    opt->pool = group != NULL ? group->ranks.pool : NULL;
    return opt;
}

/* The ddp in a config that may be of an older program, which has no such field. */
static zro_ddp *ddp_of(const zro_optim_config *config)
{
    const size_t end = offsetof(zro_optim_config, ddp) + sizeof config->ddp;

    return config != NULL && config->struct_size >= end ? config->ddp : NULL;
}

/* A cycle of its own, which takes the duplicate of the group, or that of a ddp, which has been made of the same ranks. */
static zro_status take_cycle(zro_group *own, const zro_optim_config *config, zro__cycle **out)
{
    *out = zro__cycle_of_ddp(ddp_of(config));
    if (*out == NULL)
        return zro__cycle_create(own, own != NULL ? &own->seat->account : NULL, out);
    zro__cycle_retain(*out);
    return ZRO_OK;
}

static zro_status check_ddp(const zro__cycle *cycle, const zro_group *group, int attaches)
{
    int same = !attaches || (group != NULL && zro_group_size(group) == zro_group_size(cycle->group));

    for (int r = 0; attaches && same && r < zro_group_size(group); r++)
        same = zro_group_label(group, r) == zro_group_label(cycle->group, r);
    if (!same)
        return zro__fail(ZRO_ERR_INVALID,
                         "optim_create: an optimizer that is attached to a ddp is sharded over its ranks: pass the group that "
                         "the ddp was made with");
    if (attaches && cycle->now.is_open)
        return zro__fail(ZRO_ERR_STATE, "optim_create: the ddp that the optimizer is to be attached to is in the middle of an "
                                        "iteration, which would miss it: create it before zro_ddp_forward, or after "
                                        "zro_ddp_backward_end");
    return ZRO_OK;
}

static void say_overlap(const zro_optim *opt)
{
    if (opt->updater.overlap == ZRO_OVERLAP_INTERLEAVED && zro__updater_measures_first(&opt->updater)
        && zro__optim_rank(opt) == 0)
        zro__log(&opt->settings, ZRO_LOG_WARN,
                 "overlap = interleaved behaves as after-last: clipping by norm, loss scale and skip_non_finite need all "
                 "gradients before the first parameter is updated");
}

zro_status zro_optim_create(zro_group *group, const zro_param_group *groups, size_t n_groups, const zro_rule *rule,
                            const void *rule_config, const zro_optim_config *config, zro_optim **out)
{
    zro_optim_config c = ZRO_OPTIM_CONFIG_INIT;
    zro__cycle *cycle = NULL;
    zro_optim *opt = NULL;
    zro__fpmode mode;
    const int attaches = ddp_of(config) != NULL;
    zro_group *own = NULL;
    zro_status st = group != NULL && !attaches ? zro_group_duplicate(group, &own) : ZRO_OK;

    if (out != NULL)
        *out = NULL;
    if (st != ZRO_OK)
        return st;
    st = take_cycle(own, config, &cycle);
    if (attaches)
        own = cycle->group;
    if (st == ZRO_OK)
        st = check_ddp(cycle, group, attaches);
    if (st == ZRO_OK)
        st = check_create(groups, n_groups, rule, rule_config, out);
    if (rule == zro_rule_none())
        rule = NULL; /* inside the library there is none */
    if (st == ZRO_OK)
        st = read_config(config, rule, &c);
    if (st == ZRO_OK && (opt = new_handle(cycle, &c.settings)) == NULL)
        st = zro__fail(ZRO_ERR_MEMORY, "out of memory: an optimizer");
    if (opt != NULL)
        opt->attaches = attaches;
    zro__fpmode_enter(&mode);
    if (st == ZRO_OK)
        st = build(opt, rule, rule_config, &c);
    st = zro__optim_extend(opt, own, groups, n_groups, c.plan, ZRO__CALL_OPTIM_CREATE, st);
    zro__fpmode_leave(&mode);
    if (st != ZRO_OK) {
        if (opt == NULL && cycle == NULL)
            zro_group_destroy(own);
        if (opt == NULL)
            zro__cycle_release(cycle);
        zro_optim_destroy(opt);
        return st;
    }
    zro__optim_say_plan(opt);
    say_overlap(opt);
    *out = opt;
    return ZRO_OK;
}

zro_status zro__optim_check(const zro_optim *opt)
{
    return opt != NULL ? ZRO_OK : zro__fail(ZRO_ERR_INVALID, "the optimizer is NULL");
}

zro_status zro__optim_check_threads(const zro_optim *opt)
{
    zro_status st = zro__optim_check(opt);

    if (st == ZRO_OK && !is_alive(opt))
        st = zro__fail(ZRO_ERR_STATE, "a child forked by a rank is not a rank");
    if (st == ZRO_OK && opt->pool != NULL && getpid() != opt->process)
        st = zro__fail(ZRO_ERR_STATE, "an optimizer with %u threads cannot be used in a forked child, which does not have them",
                       (unsigned)opt->settings.threads);
    return st;
}

static zro_status check_whole(const zro_optim *opt)
{
    zro_status st = zro__optim_check_threads(opt);

    if (st == ZRO_OK)
        st = zro__cycle_check(opt->cycle);
    return st == ZRO_OK ? zro__cycle_check_idle(&opt->updater, "collective call on an optimizer", 0) : st;
}

zro_status zro__optim_enter(zro_optim *opt, zro__turn turn)
{
    zro_status st = check_whole(opt);

    if (st == ZRO_OK)
        st = zro__cycle_turn(opt->cycle, &opt->updater, turn);
    if (st == ZRO_OK && opt->group != NULL)
        st = zro__enter(opt->group);
    if (st == ZRO_OK)
        zro__cycle_serve(opt->cycle, &opt->updater);
    return st;
}

zro_status zro__optim_leave(zro_optim *opt, zro_status st)
{
    zro__cycle_serve(opt->cycle, NULL);
    return opt->group != NULL ? zro__leave(opt->group, st) : st;
}

zro_status zro__optim_vote(zro_optim *opt, zro__deed deed, zro__call call, zro_status st)
{
    zro_status entered = zro__optim_enter(opt, (zro__turn){ .deed = deed });

    return entered == ZRO_OK ? zro__optim_leave(opt, zro__cycle_vote(opt->cycle, call, st)) : entered;
}

zro_status zro_optim_add_param_group(zro_optim *opt, const zro_param_group *group)
{
    zro__fpmode mode;
    zro_status st = check_whole(opt);

    if (st == ZRO_OK)
        st = zro__cycle_turn(opt->cycle, &opt->updater, ZRO__TURN_OF_ALL);
    if (st != ZRO_OK)
        return st;
    if (group == NULL)
        st = zro__fail(ZRO_ERR_INVALID, "optim_add_param_group: the parameter group is NULL");
    zro__fpmode_enter(&mode);
    st = zro__optim_extend(opt, opt->group, group, 1, NULL, ZRO__CALL_ADD_PARAM_GROUP, st);
    zro__fpmode_leave(&mode);
    if (st == ZRO_OK)
        zro__optim_say_plan(opt);
    return st;
}
