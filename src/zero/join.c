/* An optimizer under a join: what a rank does that has run out of inputs, and what all ranks have in the end.
 *
 * A shadow makes the same calls as the others, on the same handle.  What the program changes by itself, it cannot know: values of
 * groups and the loss scale come from the lowest rank that has inputs before they are used, and in the end, with the positions of
 * schedules, from the highest one that was among the last. */
#include <string.h>

#include "base/status.h"
#include "group/group.h"
#include "zero/optim.h"
#include "zero/schedule.h"

/* What this rank refuses, or has no memory for, is its own failure in *mine, and the transfers go on. */
static zro_status take_group(zro_optim *opt, const zro__join *join, size_t g, int root, zro_status *mine)
{
    const size_t n = zro_optim_values(opt);
    zro_status st;

    memcpy(opt->scratch, zro__optim_shard(opt)->groups[g]->values, n * sizeof *opt->scratch);
    st = zro_broadcast(join->group, opt->scratch, n, ZRO_F64, root);
    if (st == ZRO_OK && *mine == ZRO_OK && join->follows)
        *mine = zro_optim_set_values(opt, g, opt->scratch, n);
    return st;
}

static zro_status take_scale(zro_optim *opt, const zro__join *join, int root, zro_status *mine)
{
    double scale[] = { (double)opt->updater.scaler.scale, opt->updater.scaler.tracker };
    zro_status st = zro_broadcast(join->group, scale, 2, ZRO_F64, root);

    if (st == ZRO_OK && *mine == ZRO_OK && join->follows)
        *mine = zro_optim_set_scale(opt, scale[0], (uint32_t)scale[1]);
    return st;
}

/* Ranks that have inputs keep their own, and their step finds out if these differ. */
static zro_status take(zro_optim *opt, int root)
{
    const zro__join *join = opt->cycle->join;
    zro_status st = ZRO_OK, mine = ZRO_OK;

    for (size_t g = 0; st == ZRO_OK && opt->rule != NULL && g < zro_optim_groups(opt); g++)
        st = take_group(opt, join, g, root, &mine);
    if (st == ZRO_OK && opt->updater.scales == ZRO_ON)
        st = take_scale(opt, join, root, &mine);
    return st == ZRO_OK ? mine : st;
}

zro_status zro__optim_take_values(zro_optim *opt)
{
    const zro__join *join = opt->cycle->join;

    return join != NULL && zro__join_has_shadows(join) ? take(opt, join->lowest) : ZRO_OK;
}

static zro_status finish(void *handle, int root)
{
    zro_optim *opt = handle;
    zro_status st = take(opt, root);

    return st == ZRO_OK ? zro__schedules_take(opt, opt->cycle->join->group, root) : st;
}

static zro_status follow(void *handle, const zro__turn *turn)
{
    zro_optim *opt = handle;

    switch (turn->deed) {
    case ZRO__STEP:
        return zro_optim_step(opt, NULL);
    case ZRO__CLOSURE:
        return zro__optim_vote(opt, ZRO__CLOSURE, ZRO__CALL_STEP, ZRO_OK);
    case ZRO__STEP_LOCAL:
        return zro_optim_step_local(opt, NULL);
    case ZRO__PUBLISH:
        return zro_optim_publish(opt);
    case ZRO__CLIP_NORM:
        return zro_clip_grad_norm(opt, turn->numbers[0], turn->numbers[1], NULL);
    case ZRO__MEASURE_NORM:
        return zro_optim_grad_norm(opt, turn->numbers[1], ZRO_OFF, NULL);
    case ZRO__CLIP_VALUE:
        return zro_clip_grad_value(opt, turn->numbers[0]);
    default:
        return ZRO_OK;
    }
}

static zro__cycle *cycle_of(void *handle)
{
    return ((zro_optim *)handle)->cycle;
}

const zro__joiner zro__optim_joiner = { "optimizer", cycle_of, follow, finish };

zro_status zro_optim_joinable(zro_optim *opt, zro_joinable *out)
{
    zro_status st = zro__optim_check_threads(opt);

    if (st == ZRO_OK && out == NULL)
        st = zro__fail(ZRO_ERR_INVALID, "optim_joinable: out is NULL");
    if (st != ZRO_OK)
        return st;
    zro_joinable_init(out);
    out->user = opt;
    out->joiner = &zro__optim_joiner;
    return ZRO_OK;
}
