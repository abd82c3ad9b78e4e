/* What a program may ask for and change between steps: the groups' values, state as memory, what the last step found. */
#include <math.h>
#include <string.h>

#include "base/cpu.h"
#include "base/dtype.h"
#include "base/kernels.h"
#include "base/settings.h"
#include "base/status.h"
#include "base/text.h"
#include "group/group.h"
#include "optim/values.h"
#include "zero/optim.h"

/* ---- values ---- */

size_t zro_optim_groups(const zro_optim *opt)
{
    return opt != NULL ? zro__optim_shard(opt)->n_groups : 0;
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
    zro_status st = zro__optim_check(opt);

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

static zro_status check_array(const zro_optim *opt, size_t group, const double *values, size_t n)
{
    zro_status st = check_values_of(opt, group);

    if (st == ZRO_OK && (values == NULL || n != opt->rule->n_hypers))
        st = zro__fail(ZRO_ERR_INVALID, "%s has %zu values, not %zu", opt->rule->name, opt->rule->n_hypers,
                       values != NULL ? n : 0);
    return st;
}

zro_status zro_optim_get_value(const zro_optim *opt, size_t group, const char *name, double *value)
{
    int at = 0;
    zro_status st = find_value(opt, group, name, &at);

    if (st == ZRO_OK && value == NULL)
        st = zro__fail(ZRO_ERR_INVALID, "optim_get_value: value is NULL");
    if (st == ZRO_OK)
        *value = zro__optim_shard(opt)->groups[group]->values[at];
    return st;
}

zro_status zro_optim_get_values(const zro_optim *opt, size_t group, double *values, size_t n)
{
    zro_status st = check_array(opt, group, values, n);

    if (st == ZRO_OK)
        memcpy(values, zro__optim_shard(opt)->groups[group]->values, n * sizeof *values);
    return st;
}

zro_status zro_optim_set_values(zro_optim *opt, size_t group, const double *values, size_t n)
{
    zro_status st = check_array(opt, group, values, n);

    if (st == ZRO_OK)
        st = zro__cycle_check_idle(&opt->updater, "optim_set_value", 1);
    if (st == ZRO_OK)
        st = zro__values_check(opt->rule, values);
    if (st == ZRO_OK)
        st = zro__shard_ensure(zro__optim_shard(opt), group, values, 0);
    if (st == ZRO_OK)
        memcpy(zro__optim_shard(opt)->groups[group]->values, values, n * sizeof *values);
    return st;
}

zro_status zro_optim_set_value(zro_optim *opt, size_t group, const char *name, double value)
{
    int at = 0;
    zro_status st = find_value(opt, group, name, &at);

    if (st != ZRO_OK)
        return st;
    memcpy(opt->scratch, zro__optim_shard(opt)->groups[group]->values, opt->rule->n_hypers * sizeof *opt->scratch);
    opt->scratch[at] = value;
    return zro_optim_set_values(opt, group, opt->scratch, opt->rule->n_hypers);
}

/* ---- state ---- */

/* Masters, if there are any, come last. */
size_t zro_optim_slots(const zro_optim *opt)
{
    return opt != NULL && opt->rule != NULL ? opt->rule->n_slots + (zro__optim_shard(opt)->masters == ZRO_ON) : 0;
}

const char *zro__slot_name(const zro_optim *opt, size_t s)
{
    return s < opt->rule->n_slots ? opt->rule->slots[s].name : "master";
}

const char *zro_optim_slot_name(const zro_optim *opt, size_t i)
{
    return i < zro_optim_slots(opt) ? zro__slot_name(opt, i) : NULL;
}

int zro__optim_find_slot(const zro_optim *opt, const char *name)
{
    for (size_t i = 0; name != NULL && i < zro_optim_slots(opt); i++)
        if (strcmp(zro_optim_slot_name(opt, i), name) == 0)
            return i < opt->rule->n_slots ? (int)i : (int)ZRO__MASTER;
    return -1;
}

int zro__slot_is_array(const zro_optim *opt, size_t s)
{
    return s == ZRO__MASTER || opt->rule->slots[s].kind == ZRO_SLOT_ARRAY;
}

zro_dtype zro__slot_type(const zro_optim *opt, size_t s, zro_dtype param)
{
    return !zro__slot_is_array(opt, s) || (s != ZRO__MASTER && param == ZRO_F64) ? ZRO_F64 : ZRO_F32;
}

double *zro__slot_number(const zro_optim *opt, const zro__shard_group *group, const zro__piece *piece, size_t s)
{
    return &group->numbers[(size_t)(piece - group->pieces) * opt->rule->n_slots + s];
}

static zro_status unknown_slot(const zro_optim *opt, const char *name)
{
    char known[256] = "";
    zro__text text = { known, sizeof known, 0 };

    for (size_t i = 0; i < zro_optim_slots(opt); i++)
        zro__text_add(&text, " %.60s", zro_optim_slot_name(opt, i));
    return zro__fail(ZRO_ERR_INVALID, "%s has no slot named \"%s\"; there is:%s",
                     opt->rule != NULL ? opt->rule->name : "an optimizer without a rule", name != NULL ? name : "(null)",
                     known[0] != '\0' ? known : " none");
}

/* The number of a slot, if there are such a parameter and such a slot. */
static zro_status find_slot(const zro_optim *opt, size_t param, const char *name, int *s)
{
    if (param >= opt->n_params)
        return zro__fail(ZRO_ERR_INVALID, "there is no parameter %zu, only %zu of them", param, opt->n_params);
    *s = zro__optim_find_slot(opt, name);
    return *s >= 0 ? ZRO_OK : unknown_slot(opt, name);
}

/* Where a piece has a slot: an array, or one number. */
static void *slot_memory(const zro_optim *opt, const zro__shard_group *group, const zro__piece *piece, size_t s)
{
    return zro__slot_is_array(opt, s) ? zro__shard_slot(group, piece, s) : (void *)zro__slot_number(opt, group, piece, s);
}

zro_status zro_optim_slot(const zro_optim *opt, size_t param, const char *name, zro_slot *slot)
{
    zro__shard_group *group = NULL;
    const zro__piece *piece;
    zro_status st = zro__optim_check(opt);
    int s = 0, is_array;

    if (st == ZRO_OK && slot == NULL)
        st = zro__fail(ZRO_ERR_INVALID, "optim_slot: slot is NULL");
    if (st != ZRO_OK)
        return st;
    memset(slot, 0, sizeof *slot);
    st = find_slot(opt, param, name, &s);
    if (st != ZRO_OK)
        return st;
    piece = zro__shard_find(zro__optim_shard(opt), param, &group);
    slot->dtype = ZRO_F32;
    if (piece == NULL)
        return ZRO_OK;
    is_array = zro__slot_is_array(opt, (size_t)s);
    slot->present = piece->present >> s & 1;
    slot->dtype = zro__slot_type(opt, (size_t)s, piece->data_type);
    slot->first = is_array ? piece->first : 0;
    slot->count = is_array ? piece->count : 1;
    slot->data = slot->present ? slot_memory(opt, group, piece, (size_t)s) : NULL;
    return ZRO_OK;
}

zro_status zro_optim_set_slot(zro_optim *opt, size_t param, const char *name, zro_dtype dtype, const void *data)
{
    zro__shard_group *group = NULL;
    zro__piece *piece;
    zro__fpmode mode;
    zro_status st = zro__optim_check(opt);
    int s = 0;

    if (st == ZRO_OK)
        st = zro__cycle_check_idle(&opt->updater, "optim_set_slot", 1);
    if (st == ZRO_OK)
        st = find_slot(opt, param, name, &s);
    if (st == ZRO_OK && data != NULL && !zro__dtype_is_float(dtype))
        st = zro__fail(ZRO_ERR_UNSUPPORTED, "optim_set_slot: slot %s of %s elements, must be f32, f64, bf16 or f16", name,
                       zro_dtype_name(dtype) != NULL ? zro_dtype_name(dtype) : "unknown");
    piece = st == ZRO_OK ? zro__shard_find(zro__optim_shard(opt), param, &group) : NULL;
    if (piece == NULL || (s == ZRO__MASTER && piece->master == SIZE_MAX))
        return st;
    if (data == NULL) {
        piece->present &= ~((uint32_t)1 << s);
        return ZRO_OK;
    }
    st = zro__shard_ensure(zro__optim_shard(opt), zro__plan_table(opt->plan)[param].group, group->values, (uint32_t)1 << s);
    if (st != ZRO_OK)
        return st;
    zro__fpmode_enter(&mode);
    zro__kernels_get(ZRO_KERNELS_BASE)
        ->convert(slot_memory(opt, group, piece, (size_t)s), zro__slot_type(opt, (size_t)s, piece->data_type), data, dtype,
                  zro__slot_is_array(opt, (size_t)s) ? piece->count : 1);
    piece->present |= (uint32_t)1 << s;
    zro__fpmode_leave(&mode);
    return ZRO_OK;
}

zro_status zro_optim_info(const zro_optim *opt, zro_step_info *info)
{
    zro_step_info i = ZRO_STEP_INFO_INIT;
    zro_status st = zro__optim_check(opt);

    if (st != ZRO_OK)
        return st;
    i.scale = (double)opt->updater.scaler.scale;
    i.growth_tracker = opt->updater.scaler.tracker;
    i.skipped = opt->updater.skipped;
    i.n_skipped = opt->updater.n_skipped;
    i.n_steps = opt->updater.n_steps;
    i.n_updated = opt->updater.skipped ? 0 : opt->updater.n_active;
    i.norm = opt->updater.norm;
    i.state_bytes = zro__shard_bytes(zro__optim_shard(opt));
    return zro__config_give("zro_step_info: begin with ZRO_STEP_INFO_INIT", &i, sizeof i, info);
}

zro_status zro_optim_set_scale(zro_optim *opt, double scale, uint32_t growth_tracker)
{
    zro__fpmode mode;
    zro_status st = zro__optim_check(opt);

    if (st == ZRO_OK && opt->updater.scales != ZRO_ON)
        st = zro__fail(ZRO_ERR_STATE, "optim_set_scale: the optimizer has no loss scale");
    if (st == ZRO_OK)
        st = zro__cycle_check_idle(&opt->updater, "optim_set_scale", 1);
    if (st == ZRO_OK && !((float)scale > 0 && isfinite((float)scale)))
        st = zro__fail(ZRO_ERR_INVALID, "optim_set_scale: scale = %g, must be above 0 and finite in f32", scale);
    if (st == ZRO_OK && growth_tracker >= opt->updater.scaler.interval)
        st = zro__fail(ZRO_ERR_INVALID, "optim_set_scale: growth_tracker = %u, must be below growth_interval = %u",
                       (unsigned)growth_tracker, (unsigned)opt->updater.scaler.interval);
    if (st != ZRO_OK)
        return st;
    zro__fpmode_enter(&mode);
    zro__scaler_set(&opt->updater.scaler, scale);
    zro__fpmode_leave(&mode);
    opt->updater.scaler.tracker = growth_tracker;
    return ZRO_OK;
}

const zro_plan *zro_optim_plan(const zro_optim *opt)
{
    return opt != NULL ? opt->plan : NULL;
}

zro_status zro_optim_stats(const zro_optim *opt, zro_stats *stats)
{
    zro_stats s = ZRO_STATS_INIT;
    zro_status st = zro__optim_check(opt);

    if (st != ZRO_OK)
        return st;
    if (opt->group != NULL)
        return zro_group_stats(opt->group, stats);
    s.heap_bytes = atomic_load_explicit(&opt->account->in_use, memory_order_relaxed);
    s.heap_peak_bytes = atomic_load_explicit(&opt->account->peak, memory_order_relaxed);
    s.state_bytes = atomic_load_explicit(&opt->account->bytes[ZRO__KIND_STATE], memory_order_relaxed);
    return zro__config_give("zro_stats: begin with ZRO_STATS_INIT", &s, sizeof s, stats);
}
