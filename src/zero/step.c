/* Steps: what a program calls in its loop. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "base/dtype.h"
#include "base/log.h"
#include "base/param.h"
#include "base/status.h"
#include "group/group.h"
#include "zero/optim.h"

/* ---- step ---- */

static void say_stepped(zro_optim *opt)
{
    if (opt->updater.skipped)
        zro__log(&opt->settings, ZRO_LOG_WARN, "step %" PRIu64 " skipped: a gradient is not finite; loss scale %g",
                 opt->updater.n_steps, (double)opt->updater.scaler.scale);
    if (opt->updater.n_active > 0 || zro__optim_shard(opt)->n_blocks == 0 || opt->rule == NULL || opt->said_idle)
        return;
    opt->said_idle = 1;
    zro__log(&opt->settings, ZRO_LOG_WARN,
             "step %" PRIu64 " updated nothing%s: no parameter has a gradient; after backward call zro_params_mark_grads or "
             "zro_param_set_grad, or set grad_present",
             opt->updater.n_steps, zro__optim_ranks(opt) > 1 ? " of what this rank owns" : "");
}

/* Says once that parameters were frozen, or are trained again; of several at a time it names the first. */
static void say_frozen(const zro_optim *opt, size_t index, size_t n)
{
    char more[64] = "";

    if (n == 0)
        return;
    if (n > 1)
        snprintf(more, sizeof more, " (and %zu others changed)", n - 1);
    zro__log(&opt->settings, ZRO_LOG_WARN, "parameter %s %s%s", ZRO__OPTIM_PARAM_NAME(opt, index),
             opt->params[index].trains ? "is trained again" : "was frozen: it keeps its value and its state", more);
}

/* Memory that zro handed out must still be where it was. */
static zro_status check_place(const zro__entry *e, size_t index)
{
    if (e->handed != NULL && e->param->data != e->handed)
        return zro__param_fail(ZRO_ERR_STATE, e->name, index,
                               "its data was moved from where zro had put it; put it back, and write into it there");
    return ZRO_OK;
}

zro_status zro__optim_check_data(const zro_optim *opt, size_t first, size_t end)
{
    zro_status st = ZRO_OK;

    for (size_t i = first; st == ZRO_OK && i < end; i++) {
        const zro__entry *e = &opt->params[i];

        st = check_place(e, i);
        if (st == ZRO_OK && e->param->data == NULL && e->count > 0)
            st = zro__param_fail(ZRO_ERR_INVALID, e->name, i, "data is NULL");
    }
    return st;
}

/* Checks all parameters, whoever owns them. */
static zro_status inspect(zro_optim *opt)
{
    size_t changed = 0, n_changed = 0;

    for (size_t i = 0; i < opt->n_params; i++) {
        zro__entry *e = &opt->params[i];
        zro_status st = check_place(e, i);

        if (st != ZRO_OK)
            return st;
        if (e->trains == (e->param->requires_grad != 0))
            continue;
        e->trains = !e->trains;
        changed = n_changed++ == 0 ? i : changed;
    }
    say_frozen(opt, changed, n_changed);
    return ZRO_OK;
}

zro_status zro__optim_open_step(void *optim, zro__claim *claim)
{
    zro_optim *opt = optim;
    zro_status st = zro__optim_take_values(opt);

    *claim = zro__optim_ranks(opt) > 1 ? zro__optim_claim_step(opt) : (zro__claim){ 0 };
    return st == ZRO_OK ? inspect(opt) : st;
}

/* A step that was made during backward. */
static zro_status check_made(const zro_optim *opt, const void *user, int publishes)
{
    const char *overlap = zro__overlap_name(opt->updater.overlap);

    if (!publishes)
        return zro__fail(ZRO_ERR_STATE,
                         "optim_step_local: the optimizer updates and publishes during backward (overlap %s): call "
                         "zro_optim_step, or set overlap to ZRO_OVERLAP_OFF",
                         overlap);
    if (user != NULL && user != opt->updater.user)
        return zro__fail(ZRO_ERR_STATE,
                         "optim_step: the update was made during backward (overlap %s), with another pointer for the rule: "
                         "pass it to zro_optim_set_user before zro_ddp_forward",
                         overlap);
    return ZRO_OK;
}

/* `st` is the result of the program's closure; if it failed all ranks hear of it. */
static zro_status step(zro_optim *opt, zro_status st, void *user, int publishes)
{
    const int overlaps = opt != NULL && zro__updater_overlaps(&opt->updater);
    const zro__turn turn = { .deed = publishes ? ZRO__STEP : ZRO__STEP_LOCAL };
    zro__claim claim = { 0 };
    zro_status met = zro__optim_check_threads(opt), opened;

    if (met != ZRO_OK)
        return met;
    if (overlaps)
        met = check_made(opt, user, publishes);
    if (met == ZRO_OK)
        met = zro__cycle_turn(opt->cycle, &opt->updater, turn);
    if (met == ZRO_OK && !overlaps)
        met = zro__optim_compare_first_arrays(opt);
    opt->clipped = 0;
    if (met != ZRO_OK)
        return met;
    opened = overlaps ? ZRO_OK : zro__optim_open_step(opt, &claim);
    st = zro__cycle_step(opt->cycle, &opt->updater, &claim, st == ZRO_OK ? opened : st, user != NULL ? user : opt->updater.user,
                         publishes);
    if (st == ZRO_OK)
        say_stepped(opt);
    return st;
}

zro_status zro_optim_set_user(zro_optim *opt, void *user)
{
    zro_status st = zro__optim_check_threads(opt);

    if (st == ZRO_OK)
        st = zro__cycle_check_idle(&opt->updater, "optim_set_user", 1);
    if (st == ZRO_OK)
        opt->updater.user = user;
    return st;
}

zro_status zro_optim_step_local(zro_optim *opt, void *user)
{
    return step(opt, ZRO_OK, user, 0);
}

zro_status zro_optim_publish(zro_optim *opt)
{
    zro_status st = zro__optim_check(opt);

    if (st == ZRO_OK)
        st = zro__cycle_check_idle(&opt->updater, "optim_publish", 0);
    if (st == ZRO_OK)
        st = zro__cycle_turn(opt->cycle, &opt->updater, (zro__turn){ .deed = ZRO__PUBLISH });
    return st == ZRO_OK ? zro__cycle_publish(opt->cycle, &opt->updater, inspect(opt)) : st;
}

zro_status zro_optim_step(zro_optim *opt, void *user)
{
    return step(opt, ZRO_OK, user, 1);
}

/* Calls the closure.  If it fails the error text is its own; if not, the text of an earlier failure stays. */
static zro_status call_closure(zro_closure_fn fn, void *user, double *loss)
{
    char before[ZRO__TEXT_BYTES], why[800];
    zro_status st;

    if (fn == NULL)
        return zro__fail(ZRO_ERR_INVALID, "optim_step_closure: the closure is NULL");
    snprintf(before, sizeof before, "%s", zro_last_error());
    (void)zro_error_set(ZRO_OK, "it did not say why");
    st = fn(user, loss);
    if (st == ZRO_OK)
        return zro_error_set(ZRO_OK, before);
    snprintf(why, sizeof why, "%s", zro_last_error());
    return zro__fail(st, "the closure failed: %s", why);
}

zro_status zro_optim_step_closure(zro_optim *opt, zro_closure_fn fn, void *fn_user, void *user, double *loss)
{
    double value = NAN;
    zro_status st = zro__optim_check_threads(opt);

    if (st != ZRO_OK)
        return st;
    st = call_closure(fn, fn_user, &value);
    if (zro__updater_overlaps(&opt->updater)) /* the step itself does not ask the others any more */
        st = zro__optim_vote(opt, ZRO__CLOSURE, ZRO__CALL_STEP, st);
    st = step(opt, st, user, 1);
    if (loss != NULL)
        *loss = value;
    return st;
}

/* A job of the pool: some parameters' gradients. */
typedef struct zeroing {
    const zro__entry *params;
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
    zro_status st = zro__optim_check_threads(opt);
    zeroing z;

    if (st != ZRO_OK)
        return st;
    if (how != ZRO_ZERO_CLEAR && how != ZRO_ZERO_LEAVE && how != ZRO_ZERO_KEEP)
        return zro__fail(ZRO_ERR_INVALID, "optim_zero_grad: how must be ZRO_ZERO_CLEAR, ZRO_ZERO_LEAVE or ZRO_ZERO_KEEP");
    st = zro__cycle_check_idle(&opt->updater, "optim_zero_grad", 0);
    if (st != ZRO_OK)
        return st;
    z.params = opt->params;
    z.how = how;
    zro__cycle_drop(opt->cycle, &opt->updater); /* also waits for the lane, which has the threads of the pool */
    zro__pool_run(opt->pool, zero_some, &z, opt->n_params);
    return ZRO_OK;
}

/* ---- writes of the program ---- */

/* Sets up to TILE elements of a master to the parameter's present values, but for those that it rounds to already: these the
 * program has not changed, and the master knows them better. */
enum { TILE = 256 };

static void refresh_tile(const zro__kernels *k, float *master, const char *data, zro_dtype type, size_t n)
{
    uint16_t present[TILE], rounded[TILE];
    float wide[TILE];

    memcpy(present, data, n * sizeof *present);
    k->convert(rounded, type, master, ZRO_F32, n);
    k->convert(wide, ZRO_F32, present, type, n);
    for (size_t i = 0; i < n; i++)
        master[i] = rounded[i] == present[i] ? master[i] : wide[i];
}

/* Refreshes this rank's part of a master, if it exists. */
static void refresh_master(zro_optim *opt, size_t param)
{
    zro__shard_group *group = NULL;
    const zro__piece *piece = zro__shard_find(zro__optim_shard(opt), param, &group);
    float *master = piece != NULL ? zro__shard_slot(group, piece, ZRO__MASTER) : NULL;

    if (master == NULL || (piece->present >> ZRO__MASTER & 1) == 0)
        return;
    for (size_t i = 0; i < piece->count; i += TILE)
        refresh_tile(opt->updater.update.kernels, master + i, (const char *)piece->param->data + (piece->first + i) * 2,
                     piece->data_type, piece->count - i < TILE ? piece->count - i : TILE);
}

/* Inside the lane. */
static zro_status publish_params(zro_optim *opt, size_t first, size_t end, int root, zro_status st)
{
    zro_group *g = opt->group;

    st = zro__cycle_vote(opt->cycle, ZRO__CALL_PUBLISH, st);
    for (size_t i = first; st == ZRO_OK && i < end; i++) {
        if (g != NULL)
            st = zro__deliver_param(g, opt->params[i].param, i, root);
        if (st == ZRO_OK)
            refresh_master(opt, i);
    }
    return st;
}

static zro_status check_publish(const zro_optim *opt, size_t first, size_t end, int root)
{
    if (end > opt->n_params || first >= end)
        return zro__fail(ZRO_ERR_INVALID, "param_publish: there is no parameter %zu, only %zu of them", first, opt->n_params);
    if (root < 0 || root >= zro__optim_ranks(opt))
        return zro__fail(ZRO_ERR_INVALID, "param_publish: root = %d, must be one of %d ranks", root, zro__optim_ranks(opt));
    return zro__optim_check_data(opt, first, end);
}

zro_status zro_param_publish(zro_optim *opt, size_t param, int root)
{
    const size_t first = param == ZRO_ALL_PARAMS ? 0 : param;
    zro_status st = zro__optim_enter(opt, ZRO__TURN_OF_ALL);
    size_t end;

    if (st != ZRO_OK)
        return st;
    end = param == ZRO_ALL_PARAMS ? opt->n_params : param + 1;
    st = inspect(opt);
    if (st == ZRO_OK)
        st = check_publish(opt, first, end, root);
    return zro__optim_leave(opt, publish_params(opt, first, end, root, st));
}

/* ---- clipping as a call ---- */

/* Without a rule there may be integers. */
static zro_status check_float(const zro_optim *opt)
{
    for (size_t i = 0; opt->rule == NULL && i < opt->n_params; i++)
        if (!zro__dtype_is_float(opt->params[i].grad_dtype))
            return zro__param_fail(ZRO_ERR_UNSUPPORTED, opt->params[i].name, i, "gradients of integers cannot be clipped");
    return ZRO_OK;
}

enum { MEASURE = -1 }; /* instead of a largest norm */

static zro_status check_clip_norm(const zro_optim *opt, const char *call, double max_norm, double norm_type)
{
    zro_status st = ZRO_OK;

    if (max_norm != MEASURE && !(max_norm >= 0))
        st = zro__fail(ZRO_ERR_INVALID, "%s: max_norm = %g, must not be negative", call, max_norm);
    if (st == ZRO_OK)
        st = zro__check_norm_type(norm_type);
    if (st == ZRO_OK)
        st = check_float(opt);
    return st == ZRO_OK ? zro__cycle_check_reduced(&opt->updater, call) : st;
}

/* Whether this rank has run out of inputs, and does what the others do. */
static int follows(const zro_optim *opt)
{
    return opt->cycle->join != NULL && opt->cycle->join->follows;
}

static zro_status clip_norm(zro_optim *opt, const char *call, double max_norm, double norm_type, double *norm)
{
    const zro__turn turn = { .deed = max_norm == MEASURE ? ZRO__MEASURE_NORM : ZRO__CLIP_NORM,
                             .numbers = { max_norm, norm_type } };
    zro_status st = zro__optim_enter(opt, turn);

    if (st == ZRO_OK) /* the first call takes the memory, unless the setting has */
        st = zro__optim_leave(opt, zro__optim_reserve_norms(opt));
    if (st != ZRO_OK)
        return st;
    if (!follows(opt)) /* otherwise the arguments are the others', who check them, and are told */
        st = check_clip_norm(opt, call, max_norm, norm_type);
    opt->clipped |= max_norm != MEASURE;
    return zro__updater_clip_norm(&opt->updater, max_norm, norm_type, st, norm);
}

zro_status zro_clip_grad_norm(zro_optim *opt, double max_norm, double norm_type, double *norm)
{
    return clip_norm(opt, "clip_grad_norm", max_norm == MEASURE ? -INFINITY : max_norm, norm_type, norm);
}

zro_status zro_optim_grad_norm(zro_optim *opt, double norm_type, zro_switch error_if_nonfinite, double *norm)
{
    double found = NAN;
    zro_status st = clip_norm(opt, "optim_grad_norm", MEASURE, norm_type, &found);

    if (st == ZRO_OK && norm != NULL)
        *norm = found;
    if (st == ZRO_OK && error_if_nonfinite == ZRO_ON && !isfinite(found))
        st = zro__fail(ZRO_ERR_STATE, "optim_grad_norm: the norm of all gradients is %s",
                       isnan(found) ? "not a number" : "infinite");
    return st;
}

zro_status zro_clip_grad_value(zro_optim *opt, double max_value)
{
    zro_status st = zro__optim_check_threads(opt);

    if (st == ZRO_OK && !(max_value > 0 && isfinite(max_value)))
        st = zro__fail(ZRO_ERR_INVALID, "clip_grad_value: max_value = %g, must be above 0 and finite", max_value);
    if (st == ZRO_OK)
        st = check_float(opt);
    if (st == ZRO_OK)
        st = zro__cycle_check_reduced(&opt->updater, "clip_grad_value");
    if (st == ZRO_OK) /* under a join ranks that have run out of inputs clip what they own, too */
        st = zro__cycle_turn(opt->cycle, &opt->updater, (zro__turn){ .deed = ZRO__CLIP_VALUE, .numbers = { max_value } });
    return st == ZRO_OK ? zro__updater_clip_value(&opt->updater, max_value) : st;
}
