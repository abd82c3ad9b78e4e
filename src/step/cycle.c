/* The cycle: see cycle.h. */
#include "step/cycle.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/cpu.h"
#include "base/point.h"
#include "group/group.h"

void zro__cycle_init(zro__cycle *c, const zro_optim_config *config)
{
    c->clip_norm = config->clip_norm;
    c->clip_type = config->clip_norm_type;
    c->clip_value = config->clip_value;
    c->scales = config->loss_scale;
    c->skips = config->skip_non_finite == ZRO_ON || config->loss_scale == ZRO_ON ? ZRO_ON : ZRO_OFF;
    c->scaler.scale = config->loss_scale == ZRO_ON ? (float)config->scale_init : 1;
    c->scaler.growth = config->scale_growth;
    c->scaler.backoff = config->scale_backoff;
    c->scaler.interval = config->growth_interval;
    c->norm = NAN;
}

void zro__cycle_free(zro__cycle *c)
{
    zro__batches_free(c->batches);
    zro__norms_free(&c->norms);
    zro__update_free(&c->update);
}

int zro__cycle_measures(const zro__cycle *c)
{
    return c->clip_norm != 0;
}

/* ---- ranks ---- */

int zro__cycle_is_shared(const zro__cycle *c)
{
    return c->group != NULL && c->group->ranks.board.size > 1;
}

zro_status zro__cycle_check(const zro__cycle *c)
{
    zro_status st = c->group != NULL ? zro__check_group(c->group) : ZRO_OK;
    uint64_t begun, published;
    char name[64], why[ZRO__TEXT_BYTES];
    int rank = 0;

    if ((st != ZRO_ERR_LOST && st != ZRO_ERR_TIMEOUT) || !zro__step_torn(&c->group->ranks.board, &rank, &begun, &published))
        return st;
    snprintf(why, sizeof why, "%.600s", zro_last_error());
    return zro__fail(ZRO_ERR_STATE,
                     "the parameters are torn: %s has published %" PRIu64 " steps, and %" PRIu64
                     " were begun; load a checkpoint into a new group (%s)",
                     zro__rank_name(&c->group->ranks.board, rank, name, sizeof name), published, begun, why);
}

zro_status zro__cycle_vote(const zro__cycle *c, zro__call call, zro_status st)
{
    return zro__cycle_is_shared(c) ? zro__vote(&c->group->ranks.board, call, st) : st;
}

/* The first vote of a step, which also compares what the ranks claim. */
static zro_status agree(zro__cycle *c, const zro__claim *claim, zro_status st)
{
    return zro__cycle_is_shared(c) ? zro__claim_agree(&c->group->ranks.board, ZRO__CALL_STEP, claim, st) : st;
}

/* A failure in the middle of an update keeps its code, and gets a text that says whether parameters are torn. */
static zro_status explain(const zro__cycle *c, zro_status st)
{
    if (st == ZRO_ERR_LOST || st == ZRO_ERR_TIMEOUT)
        (void)zro__cycle_check(c);
    return st;
}

/* ---- decide ---- */

/* Measures all gradients if anything depends on that. */
static zro_status measure(zro__cycle *c, double p, int ask_finite, int *finite, double *norm)
{
    double infinite;
    zro_status st = ZRO_OK;

    *norm = NAN;
    *finite = zro__update_measure(&c->update, c->norms.partials, p, ask_finite);
    infinite = !*finite;
    (void)ZRO__POINT("cycle.measured");
    if (zro__cycle_is_shared(c) && ask_finite)
        st = zro_all_reduce(c->group, &infinite, 1, ZRO_F64, ZRO_MAX);
    *finite = infinite == 0;
    if (st == ZRO_OK && zro__cycle_is_shared(c) && p != 0)
        st = zro__norms_exchange(&c->norms, c->group);
    if (st == ZRO_OK && p != 0)
        *norm = zro__norm_of(c->norms.partials, c->norms.n, p);
    return st;
}

/* Whether something must be known of all gradients before any of them is used. */
static int measures_first(const zro__cycle *c)
{
    return c->clip_norm != 0 || c->skips == ZRO_ON;
}

/* *goes_on = 0: the step is skipped.  The norm is that of unscaled gradients. */
static zro_status decide(zro__cycle *c, zro__factors *f, double *norm, int *goes_on)
{
    zro_status st = measure(c, c->clip_norm != 0 ? c->clip_type : 0, c->skips == ZRO_ON, goes_on, norm);

    *norm *= f->unscale;
    if (c->clip_norm != 0 && !isinf(c->clip_norm)) /* infinite: only measured */
        f->clip = zro__clip_factor(c->clip_norm, *norm);
    return st;
}

/* ---- step ---- */

static zro_status inspect(zro__cycle *c, zro_status st)
{
    if (st == ZRO_OK)
        st = zro__shard_scan(&c->update.shard);
    return st == ZRO_OK ? zro__batches_inspect(c->group, c->batches) : st;
}

/* From here on parameters change. */
static void begin(zro__cycle *c)
{
    if (c->begun == c->published)
        c->begun++;
    if (c->group != NULL)
        zro__step_begin(&c->group->ranks.board, c->begun);
    (void)ZRO__POINT("cycle.begun");
}

/* Parameters that exist once are memory of all ranks. */
static zro_status update(zro__cycle *c, const zro__factors *factors, void *user)
{
    zro__board *board = zro__cycle_is_shared(c) ? &c->group->ranks.board : NULL;
    zro_status st = ZRO_OK;

    if (board != NULL)
        zro__touch_begin(board);
    if (board != NULL && zro__is_broken(board->control))
        st = zro__verdict_get(board->control);
    if (st == ZRO_OK) {
        begin(c);
        c->update.steps = c->n_steps;
        zro__update_run(&c->update, factors, user);
        (void)ZRO__POINT("cycle.updated");
    }
    if (board != NULL)
        zro__touch_end(board);
    /* The others may have given this rank up, and used the parameters for something else, while it updated them. */
    return st == ZRO_OK && board != NULL && zro__is_broken(board->control) ? zro__verdict_get(board->control) : st;
}

static __attribute__((noinline)) zro_status step(zro__cycle *c, const zro__claim *claim, zro_status st, void *user)
{
    zro__factors factors = { zro__scaler_inverse(&c->scaler), 1, c->clip_value };
    double norm = NAN;
    int goes_on = 1;

    st = inspect(c, st);
    if (measures_first(c)) {
        st = agree(c, claim, st);
        if (st == ZRO_OK)
            st = decide(c, &factors, &norm, &goes_on);
        if (st != ZRO_OK)
            return st;
    }
    if (goes_on) {
        if (st == ZRO_OK)
            st = zro__update_begin(&c->update, user);
        st = measures_first(c) ? zro__cycle_vote(c, ZRO__CALL_STEP, st) : agree(c, claim, st);
    }
    if (st == ZRO_OK && goes_on)
        st = update(c, &factors, user);
    if (st != ZRO_OK)
        return st;
    if (c->scales == ZRO_ON)
        zro__scaler_update(&c->scaler, !goes_on);
    c->norm = norm;
    c->n_active = c->update.shard.n_active;
    c->skipped = !goes_on;
    c->n_skipped += c->skipped;
    c->n_steps++;
    return ZRO_OK;
}

/* Every call enters and leaves the cycle here: enter checks the group, takes its lane and sets the floating-point mode. */
static zro_status enter(zro__cycle *c, zro__fpmode *mode)
{
    zro_status st = zro__cycle_check(c);

    if (st == ZRO_OK && c->group != NULL)
        st = zro__enter(c->group);
    else if (c->group != NULL)
        zro__group_settle(c->group);
    if (st == ZRO_OK)
        zro__fpmode_enter(mode);
    return st;
}

static zro_status leave(zro__cycle *c, zro__fpmode *mode, zro_status st)
{
    zro__fpmode_leave(mode);
    return explain(c, c->group != NULL ? zro__leave(c->group, st) : st);
}

zro_status zro__cycle_step(zro__cycle *c, const zro__claim *claim, zro_status st, void *user)
{
    zro__fpmode mode;
    zro_status entered = enter(c, &mode);

    return entered != ZRO_OK ? entered : leave(c, &mode, step(c, claim, st, user));
}

/* ---- publish ---- */

static zro_status deliver(zro__cycle *c)
{
    zro_status st = ZRO_OK;

    if (zro__cycle_is_shared(c))
        st = zro__batches_deliver(c->group, c->batches);
    if (st == ZRO_OK)
        c->published = c->begun;
    if (st == ZRO_OK && c->group != NULL)
        zro__step_publish(&c->group->ranks.board, c->published);
    return st;
}

zro_status zro__cycle_deliver(zro__cycle *c)
{
    zro__fpmode mode;
    zro_status st = c->group != NULL ? zro__enter(c->group) : ZRO_OK;

    if (st != ZRO_OK) /* in the middle of a step: it keeps the code of what happened */
        return explain(c, st);
    zro__fpmode_enter(&mode);
    return leave(c, &mode, deliver(c));
}

zro_status zro__cycle_publish(zro__cycle *c, zro_status st)
{
    zro__fpmode mode;
    zro_status entered = enter(c, &mode);

    if (entered != ZRO_OK)
        return entered;
    if (st == ZRO_OK)
        st = zro__batches_inspect(c->group, c->batches);
    st = zro__cycle_vote(c, ZRO__CALL_PUBLISH, st);
    if (st == ZRO_OK) {
        begin(c);
        st = deliver(c);
    }
    return leave(c, &mode, st);
}

/* ---- clipping as a call ---- */

static __attribute__((noinline)) zro_status clip(zro__cycle *c, double max, double p, zro_status st, double *norm)
{
    zro__factors factors = { 1, 1, 0 };
    char arguments[80];
    uint64_t number = 0;
    int finite;

    snprintf(arguments, sizeof arguments, "max_norm = %.17g, norm_type = %.17g", max, p);
    if (st == ZRO_OK)
        st = zro__shard_scan(&c->update.shard);
    if (zro__cycle_is_shared(c))
        st = zro__agree(&c->group->ranks.board, ZRO__CALL_NORM, "the arguments of clip_grad_norm", arguments, &number, st);
    if (st == ZRO_OK)
        st = measure(c, p, 0, &finite, norm);
    if (st != ZRO_OK)
        return st;
    factors.clip = zro__clip_factor(max, *norm);
    if (max >= 0)
        zro__update_grads(&c->update, &factors);
    return ZRO_OK;
}

zro_status zro__cycle_clip_value(zro__cycle *c, double max)
{
    zro__factors factors = { 1, 1, max };
    zro_status st = zro__shard_scan(&c->update.shard);

    if (st == ZRO_OK)
        zro__update_grads(&c->update, &factors);
    return st;
}

zro_status zro__cycle_clip_norm(zro__cycle *c, double max, double p, zro_status st, double *norm)
{
    double found = NAN;
    zro__fpmode mode;
    zro_status entered = enter(c, &mode);

    if (entered != ZRO_OK)
        return entered;
    st = leave(c, &mode, clip(c, max, p, st, &found));
    if (st == ZRO_OK && norm != NULL)
        *norm = found;
    return st;
}
