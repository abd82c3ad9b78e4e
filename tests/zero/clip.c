/* S60: clipping by the norm over all ranks' gradients.  S68: 16-bit parameters with masters.  S69: an overflow on one rank.
 * All of it with ranks, equal to the same done alone. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bed.h"
#include "twin.h"
#include "zt/list.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const twin_spec kinds[][5] = {
    { { 5, ZRO_F32, ZRO_F32, 0 },
      { 3000, ZRO_F32, ZRO_F32, 0 },
      { 1, ZRO_F32, ZRO_F32, 0 },
      { 1024, ZRO_F32, ZRO_F32, 1 },
      { 70, ZRO_F64, ZRO_F64, 0 } },
    { { 5, ZRO_BF16, ZRO_BF16, 0 },
      { 3000, ZRO_BF16, ZRO_BF16, 0 },
      { 1, ZRO_BF16, ZRO_F32, 0 },
      { 1024, ZRO_F16, ZRO_F16, 1 },
      { 70, ZRO_BF16, ZRO_F32, 0 } },
};

enum { N = 5 };

static const double norm_types[] = { 2, INFINITY, 1, 3.5 };

/* ---- S60 ---- */

static void same_norm(double a, double b)
{
    CHECK(isfinite(a) && a > 0 && memcmp(&a, &b, sizeof a) == 0);
}

static void clip_setting(zt_rank *t)
{
    for (int k = -1; (k = twin_next_mode(t, k)) < TWIN_MODES;) {
        zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
        twin w;

        config.clip_norm = k % 3 == 0 ? INFINITY : 0.25; /* INFINITY: only measured */
        config.clip_norm_type = norm_types[(size_t)k % COUNT(norm_types)];
        config.clip_value = k % 2 == 0 ? 0.125 : 0;
        twin_init(&w, t, twin_mode_at(k), kinds[t->arg], N);
        twin_create(&w, zro_rule_adam(), NULL, &config, 3);
        for (int s = 0; s < 4; s++) {
            if (s == 2)
                twin_add_rest(&w);
            twin_gradients(&w, 1);
            if (s == 3)
                w.sharded[1].grad_present = w.alone[1].grad_present = 0;
            twin_step(&w);
            same_norm(twin_info(w.optim).norm, twin_info(w.reference).norm);
        }
        twin_free(&w);
    }
}

/* What this rank owns of the gradients is as alone, and the rest is as it was. */
static void check_gradients(const twin *w, char *const *before)
{
    const zro_range *ranges;
    size_t n;

    CHECK_OK(zro_plan_ranges(zro_optim_plan(w->optim), ZRO_ALL, &ranges, &n));
    for (size_t i = 0; i < n; i++) {
        const zro_range *r = &ranges[i];
        const size_t size = zro_dtype_bytes(w->sharded[r->param].grad_dtype);
        const char *mine = (char *)w->sharded[r->param].grad + r->first * size;
        const char *other = (char *)w->alone[r->param].grad + r->first * size;

        CHECK(memcmp(mine, r->owner == w->t->rank ? other : before[r->param] + r->first * size, r->count * size) == 0);
    }
}

static void clip_call(zt_rank *t)
{
    for (int k = -1; (k = twin_next_mode(t, k)) < TWIN_MODES;) {
        char *before[N];
        twin w;

        twin_init(&w, t, twin_mode_at(k), kinds[t->arg], N);
        twin_create(&w, zro_rule_sgd(), NULL, NULL, 0);
        for (size_t s = 0; s < COUNT(norm_types); s++) {
            double mine, other;

            twin_gradients(&w, 1);
            for (size_t i = 0; i < N; i++) {
                size_t bytes = w.count[i] * zro_dtype_bytes(w.sharded[i].grad_dtype);

                before[i] = malloc(bytes + 1);
                CHECK(before[i] != NULL);
                memcpy(before[i], w.sharded[i].grad, bytes);
            }
            CHECK_OK(zro_clip_grad_norm(w.reference, 0.5, norm_types[s], &other));
            CHECK_OK(zro_clip_grad_norm(w.optim, 0.5, norm_types[s], &mine));
            same_norm(mine, other);
            check_gradients(&w, before);
            CHECK_OK(zro_clip_grad_value(w.reference, 0.001));
            CHECK_OK(zro_clip_grad_value(w.optim, 0.001));
            check_gradients(&w, before);
            twin_step(&w);
            for (size_t i = 0; i < N; i++)
                free(before[i]);
        }
        CHECK_STATUS(zro_clip_grad_norm(w.optim, 1, -1, NULL), ZRO_ERR_INVALID);
        CHECK_OK(zro_barrier(t->group));
        twin_free(&w);
    }
}

/* A norm of nothing, and one that is no number. */
static void clip_odd(zt_rank *t)
{
    double mine = 1, other = 1;
    twin w;

    twin_init(&w, t, twin_mode_at(0), kinds[0], N);
    twin_create(&w, zro_rule_sgd(), NULL, NULL, 0);
    CHECK_OK(zro_clip_grad_norm(w.optim, 1, 2, &mine)); /* nothing has a gradient */
    CHECK_OK(zro_clip_grad_norm(w.reference, 1, 2, &other));
    CHECK(mine == 0 && other == 0);
    twin_gradients(&w, 1);
    bed_set(w.sharded[1].grad, ZRO_F32, 2999, NAN);
    bed_set(w.alone[1].grad, ZRO_F32, 2999, NAN);
    CHECK_OK(zro_clip_grad_norm(w.optim, 1, 2, &mine));
    CHECK_OK(zro_clip_grad_norm(w.reference, 1, 2, &other));
    CHECK(isnan(mine) && isnan(other));
    CHECK_OK(zro_optim_step(w.optim, NULL));
    for (size_t i = 0; i < w.count[0]; i++)
        CHECK(isnan(bed_get(w.sharded[0].data, ZRO_F32, i)));
    twin_free(&w);
}

/* ---- S68 ---- */

/* Steps far below half a unit in the last place: masters are the f32 run, whose rounded values the parameters have. */
static void masters(zt_rank *t)
{
    static const twin_spec one[] = { { 3000, ZRO_BF16, ZRO_F32, 0 }, { 70, ZRO_BF16, ZRO_F32, 0 } };
    static const size_t sizes[] = { 3000, 70 };

    for (int k = -1; (k = twin_next_mode(t, k)) < TWIN_MODES;) {
        zro_sgd_config sgd = ZRO_SGD_CONFIG_INIT;
        zro_param_group group = { 0 };
        zro_optim *opt;
        twin w;
        bed b;

        twin_init(&w, t, twin_mode_at(k), one, 2);
        bed_init(&b, ZRO_F32, ZRO_F32, sizes, 2);
        sgd.lr = 1e-4;
        twin_create(&w, zro_rule_sgd(), &sgd, NULL, 0);
        group.params = b.params;
        group.n = 2;
        CHECK_OK(zro_optim_create(NULL, &group, 1, zro_rule_sgd(), &sgd, NULL, &opt));
        for (size_t i = 0; i < 2; i++)
            for (size_t e = 0; e < sizes[i]; e++)
                bed_set(b.params[i].data, ZRO_F32, e, bed_get(w.sharded[i].data, ZRO_BF16, e));
        for (int s = 0; s < 20; s++) {
            twin_gradients(&w, 1);
            for (size_t i = 0; i < 2; i++)
                memcpy(b.params[i].grad, w.sharded[i].grad, sizes[i] * sizeof(float));
            twin_step(&w);
            CHECK_OK(zro_optim_step(opt, NULL));
            for (size_t i = 0; i < 2; i++)
                for (size_t e = 0; e < sizes[i]; e++) {
                    uint16_t rounded;

                    bed_set(&rounded, ZRO_BF16, 0, bed_get(b.params[i].data, ZRO_F32, e));
                    CHECK(memcmp(&rounded, (uint16_t *)w.sharded[i].data + e, sizeof rounded) == 0);
                }
        }
        twin_check_slots(&w);
        zro_optim_destroy(opt);
        bed_free(&b);
        twin_free(&w);
    }
}

/* Chance depends on the element and the step, not on who owns it. */
static void stochastic(zt_rank *t)
{
    for (int k = -1; (k = twin_next_mode(t, k)) < TWIN_MODES;) {
        zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
        twin w;

        config.masters = ZRO_OFF;
        config.rounding = ZRO_STOCHASTIC;
        config.seed = 7;
        twin_init(&w, t, twin_mode_at(k), kinds[1], N);
        twin_create(&w, zro_rule_adam(), NULL, &config, 2);
        twin_train(&w, 2);
        twin_add_rest(&w);
        twin_train(&w, 2);
        twin_free(&w);
    }
}

/* ---- S69 ---- */

static void count_skips(void *user, zro_log_level level, const char *text)
{
    if (level == ZRO_LOG_WARN && strstr(text, "skipped") != NULL)
        ++*(int *)user;
}

static void check_scale(const twin *w, double scale, int skipped, int all)
{
    zro_step_info mine = twin_info(w->optim), other = twin_info(w->reference);

    CHECK(mine.scale == scale && other.scale == scale && mine.growth_tracker == other.growth_tracker);
    CHECK(mine.skipped == (uint32_t)skipped && mine.n_skipped == (uint64_t)all && mine.n_steps == other.n_steps);
}

/* Infinite in one element on its owner alone, the others not knowing. */
static void overflow(twin *w, size_t param, size_t element, double value)
{
    int owner;

    CHECK_OK(zro_plan_owner(zro_optim_plan(w->optim), param, element, &owner));
    if (owner == w->t->rank)
        bed_set(w->sharded[param].grad, w->sharded[param].grad_dtype, element, value);
    bed_set(w->alone[param].grad, w->alone[param].grad_dtype, element, value);
}

static void scale_once(zt_rank *t, int k, int *skips)
{
    static const double bad[] = { INFINITY, NAN, -INFINITY };
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    twin w;

    *skips = 0;
    config.loss_scale = ZRO_ON;
    config.scale_init = 1024;
    config.growth_interval = 3;
    config.clip_norm = k % 2 == 0 ? 0.5 : 0;
    twin_init(&w, t, twin_mode_at(k), kinds[t->arg], N);
    twin_create(&w, zro_rule_adam(), NULL, &config, 0);
    for (int s = 0; s < 3; s++) {
        twin_gradients(&w, 1);
        overflow(&w, s == 0 ? 4 : 1, (size_t)s * 20, bad[s]);
        twin_step(&w);
        check_scale(&w, 1024 / (double)(2 << s), 1, s + 1);
        CHECK(*skips == s + 1);
    }
    for (int s = 0; s < 7; s++) {
        twin_gradients(&w, 128);
        twin_step(&w);
        check_scale(&w, 128 * (double)(1 << (s + 1) / 3), 0, 3);
    }
    twin_check_slots(&w);
    twin_free(&w);
}

/* Skipped on all ranks, halved, counted and logged on each; then it grows back. */
static void loss_scale(zt_rank *t)
{
    zro_group_config config = zt_config();
    zt_rank u = *t;
    int skips = 0;

    config.settings.log = count_skips;
    config.settings.log_user = &skips;
    config.settings.log_level = ZRO_LOG_WARN;
    u.group = zt_group_with(t, &config);
    for (int k = -1; (k = twin_next_mode(t, k)) < TWIN_MODES;)
        scale_once(&u, k, &skips);
    zro_group_destroy(u.group);
}

#define WORLDS (ZT_WORLD(1) | ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4) | ZT_WORLD(7))

const zt_case cases_zero_clip[] = {
    { "S60_clip_setting", clip_setting, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { "S60_clip_setting_16", clip_setting, WORLDS, ZT_BOTH, 0, 60, 0, 1 },
    { "S60_clip_call", clip_call, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { "S60_clip_call_16", clip_call, WORLDS, ZT_BOTH, 0, 60, 0, 1 },
    { "S60_clip_odd", clip_odd, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { "S68_masters", masters, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { "S68_stochastic", stochastic, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { "S69_loss_scale", loss_scale, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { "S69_loss_scale_16", loss_scale, WORLDS, ZT_BOTH, 0, 60, 0, 1 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
