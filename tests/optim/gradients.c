/* What is done to gradients before the rule: loss scale, clipping by norm and by value; gradients beyond the range; and 16-bit parameters: masters,
 * stochastic rounding; and the hash by which runs are compared. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/kernels.h"
#include "bed.h"
#include "zt/list.h"
#include "zt/zt.h"

static const size_t sizes[] = { 5, 3000, 1, 0, 1024, 70 };

enum { N = sizeof sizes / sizeof *sizes };

static zro_step_info info_of(const zro_optim *opt)
{
    zro_step_info info = ZRO_STEP_INFO_INIT;

    CHECK_OK(zro_optim_info(opt, &info));
    return info;
}

/* ---- loss scale ---- */

static void count_warning(void *user, zro_log_level level, const char *text)
{
    if (level == ZRO_LOG_WARN && strstr(text, "skipped") != NULL)
        ++*(int *)user;
}

/* An overflow skips the step, halves the scale, is counted and logged; the scale grows back. */
static void loss_scale(zt_rank *t)
{
    static const double bad[] = { INFINITY, NAN, -INFINITY };
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    int warnings = 0;
    uint64_t before, after;
    zro_optim *opt;
    bed b;

    config.loss_scale = ZRO_ON;
    config.scale_init = 1024;
    config.growth_interval = 3;
    config.settings.log = count_warning;
    config.settings.log_user = &warnings;
    bed_init(&b, ZRO_F32, ZRO_F32, sizes, N);
    bed_fill(&b, &t->random);
    opt = bed_optim(&b, "adam", &config);
    for (int k = 0; k < 3; k++) {
        bed_gradients(&b, &t->random, 1, 0);
        bed_set(b.params[1].grad, ZRO_F32, 2999, bad[k]);
        CHECK_OK(zro_params_hash(b.params, b.n, &before));
        CHECK_OK(zro_optim_step(opt, NULL));
        CHECK_OK(zro_params_hash(b.params, b.n, &after));
        CHECK(before == after && info_of(opt).skipped && info_of(opt).n_skipped == (uint64_t)k + 1);
        CHECK(info_of(opt).scale == 1024 / (double)(2 << k) && warnings == k + 1);
    }
    for (int k = 0; k < 7; k++) {
        bed_gradients(&b, &t->random, 1, 0);
        CHECK_OK(zro_optim_step(opt, NULL));
        CHECK(!info_of(opt).skipped && info_of(opt).growth_tracker == (uint32_t)(k + 1) % 3);
        CHECK(info_of(opt).scale == 128 * (double)(1 << (k + 1) / 3));
    }
    CHECK(info_of(opt).n_steps == 10 && warnings == 3);
    b.params[1].grad_present = 0; /* an absent gradient cannot overflow */
    bed_set(b.params[1].grad, ZRO_F32, 0, NAN);
    CHECK_OK(zro_optim_step(opt, NULL));
    CHECK(!info_of(opt).skipped);
    CHECK_STATUS(zro_optim_set_scale(opt, -1, 0), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_optim_set_scale(opt, 64, 3), ZRO_ERR_INVALID);
    CHECK_OK(zro_optim_set_scale(opt, 64, 2));
    CHECK_OK(zro_optim_step(opt, NULL));
    CHECK(info_of(opt).scale == 128 && info_of(opt).growth_tracker == 0);
    zro_optim_destroy(opt);
    opt = bed_optim(&b, "adam", NULL);
    CHECK_STATUS(zro_optim_set_scale(opt, 64, 0), ZRO_ERR_STATE);
    CHECK(info_of(opt).scale == 1);
    zro_optim_destroy(opt);
    bed_free(&b);
}

/* Gradients of a loss that was multiplied by the scale, a power of two, give the same bits as those of the loss itself. */
static void scaled_is_unscaled(zt_rank *t)
{
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_optim *plain, *scaled;
    bed a, b;

    config.clip_norm = 0.5;
    bed_init(&a, ZRO_F32, ZRO_F32, sizes, N);
    bed_init(&b, ZRO_F32, ZRO_F32, sizes, N);
    plain = bed_optim(&a, "adamw", &config);
    config.loss_scale = ZRO_ON;
    scaled = bed_optim(&b, "adamw", &config);
    for (int s = 0; s < 3; s++) {
        uint64_t x = t->seed + (uint64_t)s, y = x;

        bed_gradients(&a, &x, 1, 0);
        bed_gradients(&b, &y, 65536, 0);
        CHECK_OK(zro_optim_step(plain, NULL));
        CHECK_OK(zro_optim_step(scaled, NULL));
        CHECK(bed_equal(&a, &b) && info_of(plain).norm == info_of(scaled).norm && info_of(plain).norm > 1);
    }
    zro_optim_destroy(plain);
    zro_optim_destroy(scaled);
    bed_free(&a);
    bed_free(&b);
}

static void skips_without_scale(zt_rank *t)
{
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_optim *opt;
    bed b;

    config.skip_non_finite = ZRO_ON;
    bed_init(&b, ZRO_F64, ZRO_F64, sizes, N);
    bed_gradients(&b, &t->random, 1e200, 0); /* finite, although its square is not */
    opt = bed_optim(&b, "sgd lr=1", &config);
    CHECK_OK(zro_optim_step(opt, NULL));
    CHECK(!info_of(opt).skipped && bed_get(b.params[1].data, ZRO_F64, 1) != 0);
    bed_set(b.params[5].grad, ZRO_F64, 69, NAN);
    CHECK_OK(zro_optim_step(opt, NULL));
    CHECK(info_of(opt).skipped && info_of(opt).scale == 1);
    zro_optim_destroy(opt);
    bed_free(&b);
    bed_init(&b, ZRO_F32, ZRO_F64, sizes, N);
    bed_gradients(&b, &t->random, 1e200, 0); /* too large for the parameter's type */
    opt = bed_optim(&b, "sgd lr=1", &config);
    CHECK_OK(zro_optim_step(opt, NULL));
    CHECK(info_of(opt).skipped && info_of(opt).n_updated == 0);
    zro_optim_destroy(opt);
    bed_free(&b);
}

/* ---- clipping ---- */

/* In long double, one after another. */
static double plain_norm(const bed *b, double p)
{
    long double sum = 0;

    for (size_t i = 0; i < b->n; i++)
        for (size_t e = 0; b->params[i].grad_present && e < b->count[i]; e++) {
            long double x = fabsl((long double)bed_get(b->params[i].grad, b->params[i].grad_dtype, e));

            sum = isinf(p) ? (x > sum ? x : sum) : sum + powl(x, (long double)p);
        }
    return (double)(isinf(p) ? sum : powl(sum, 1 / (long double)p));
}

/* The norm does not depend on instruction set, threads or order of memory, and is right; the gradients become what the setting
 * of a step would make of them, bit for bit. */
static void clips_by_norm(zt_rank *t)
{
    static const double types[] = { 2, INFINITY, 1, 3, 0.5 };
    static const zro_dtype grads[] = { ZRO_F32, ZRO_F64, ZRO_BF16, ZRO_F16 };

    for (size_t g = 0; g < 4; g++) {
        for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
            zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
            double norm[4], max = k % 2 == 0 ? 0.7 : 1e9;
            uint64_t seed = zt_next(&t->random);
            zro_optim *opt;
            bed b, s;

            bed_init(&s, grads[g] == ZRO_F64 ? ZRO_F64 : ZRO_F32, grads[g], sizes, N);
            config.clip_norm = max;
            config.clip_norm_type = types[k];
            opt = bed_optim(&s, "sgd lr=1", &config);
            bed_gradients(&s, &(uint64_t){ seed }, 1, 0);
            s.params[4].grad_present = 0;
            CHECK_OK(zro_optim_step(opt, NULL));
            norm[0] = info_of(opt).norm;
            CHECK(fabs(norm[0] - plain_norm(&s, types[k])) <= 1e-12 * norm[0]);
            zro_optim_destroy(opt);
            for (uint32_t threads = 1; threads <= 3; threads++) {
                config = (zro_optim_config)ZRO_OPTIM_CONFIG_INIT;
                config.settings.threads = threads;
                config.settings.kernels = threads == 2 ? ZRO_KERNELS_BASE : ZRO_KERNELS_AUTO;
                bed_init(&b, s.params[0].dtype, grads[g], sizes, N);
                bed_gradients(&b, &(uint64_t){ seed }, 1, 0);
                b.params[4].grad_present = 0;
                opt = bed_optim(&b, "sgd", &config);
                CHECK_OK(zro_clip_grad_norm(opt, max, types[k], &norm[threads]));
                CHECK(norm[threads] == norm[0]);
                CHECK(plain_norm(&b, types[k]) <= max * 1.01 || max == 1e9);
                for (size_t i = 0; i < b.n && g < 2; i++) /* what SGD has subtracted from zero */
                    for (size_t e = 0; e < b.count[i] && i != 4; e++)
                        CHECK(bed_get(b.params[i].grad, grads[g], e) == -bed_get(s.params[i].data, grads[g], e));
                CHECK(bed_get(b.params[4].grad, grads[g], 3) == bed_get(s.params[4].grad, grads[g], 3));
                zro_optim_destroy(opt);
                bed_free(&b);
            }
            bed_free(&s);
        }
    }
}

static void clips_by_value(zt_rank *t)
{
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_optim *opt, *by_setting;
    bed b, s;

    bed_init(&b, ZRO_F32, ZRO_F32, sizes, N);
    bed_init(&s, ZRO_F32, ZRO_F32, sizes, N);
    bed_gradients(&b, &(uint64_t){ t->seed }, 3, 1);
    bed_gradients(&s, &(uint64_t){ t->seed }, 3, 1);
    opt = bed_optim(&b, "sgd lr=1", NULL);
    config.clip_value = 0.5;
    by_setting = bed_optim(&s, "sgd lr=1", &config);
    CHECK_OK(zro_optim_step(by_setting, NULL));
    CHECK_OK(zro_clip_grad_value(opt, 0.5));
    for (size_t i = 0; i < b.n; i++)
        for (size_t e = 0; e < b.count[i]; e++) {
            double was = bed_get(s.params[i].grad, ZRO_F32, e), is = bed_get(b.params[i].grad, ZRO_F32, e);

            CHECK(isnan(was) ? isnan(is) : is == fmin(fmax(was, -0.5), 0.5));
        }
    CHECK_OK(zro_optim_step(opt, NULL));
    CHECK(bed_equal(&b, &s));
    CHECK_STATUS(zro_clip_grad_value(opt, 0), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_clip_grad_value(opt, NAN), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_clip_grad_norm(opt, -1, 2, NULL), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_clip_grad_norm(opt, 1, 0, NULL), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_clip_grad_norm(opt, 1, NAN, NULL), ZRO_ERR_INVALID);
    zro_optim_destroy(opt);
    zro_optim_destroy(by_setting);
    bed_free(&b);
    bed_free(&s);
}

/* A norm that is not finite goes into the gradients as in PyTorch: infinity makes zeros and NaN, NaN makes NaN. */
static void clips_non_finite(zt_rank *t)
{
    double norm;
    zro_optim *opt;
    bed b;

    bed_init(&b, ZRO_F32, ZRO_F32, sizes, N);
    opt = bed_optim(&b, "sgd", NULL);
    bed_gradients(&b, &t->random, 1, 0);
    bed_set(b.params[0].grad, ZRO_F32, 0, INFINITY);
    CHECK_OK(zro_clip_grad_norm(opt, 1, 2, &norm));
    CHECK(isinf(norm) && isnan(bed_get(b.params[0].grad, ZRO_F32, 0)) && bed_get(b.params[1].grad, ZRO_F32, 5) == 0);
    bed_gradients(&b, &t->random, 1, 0);
    bed_set(b.params[0].grad, ZRO_F32, 0, NAN);
    CHECK_OK(zro_clip_grad_norm(opt, 1, INFINITY, &norm));
    CHECK(isnan(norm) && isnan(bed_get(b.params[1].grad, ZRO_F32, 5)));
    bed_gradients(&b, &t->random, 1, 0);
    bed_set(b.params[0].grad, ZRO_F32, 0, INFINITY);
    CHECK_OK(zro_clip_grad_norm(opt, INFINITY, 2, &norm));
    CHECK(isinf(norm) && isnan(bed_get(b.params[1].grad, ZRO_F32, 5)));
    b.params[0].grad_present = b.params[1].grad_present = 0; /* what is absent now does not count any more */
    bed_gradients(&b, &t->random, 1, 0);
    CHECK_OK(zro_clip_grad_norm(opt, 100, 2, &norm));
    CHECK(isfinite(norm) && fabs(norm - plain_norm(&b, 2)) <= 1e-12 * norm);
    zro_optim_destroy(opt);
    bed_free(&b);
}

/* Centered RMSprop where the average of squares is beyond the range of the type: the element keeps its value, as in PyTorch,
 * and later ones are computed as if nothing had happened; an infinite gradient makes NaN. */
static void centered_overflow(zt_rank *t)
{
    static const char *const rules[] = { "rmsprop centered=1", "rmsprop centered=1 momentum=0.9 alpha=0.3" };
    static const struct {
        zro_dtype dtype;
        double grad;
    } cases[] = { { ZRO_F32, 3e38 }, { ZRO_F32, -3e21 }, { ZRO_F64, 1e308 }, { ZRO_F64, -1e160 } };

    (void)t;
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        const zro_dtype dtype = cases[i / 2].dtype;
        zro_optim *opt;
        bed b;

        bed_init(&b, dtype, dtype, (const size_t[]){ 3 }, 1);
        opt = bed_optim(&b, rules[i % 2], NULL);
        for (size_t k = 0; k < 3; k++) {
            bed_set(b.params[0].data, dtype, k, 1.5);
            bed_set(b.params[0].grad, dtype, k, k == 0 ? cases[i / 2].grad : k == 1 ? 0.5 : INFINITY);
        }
        CHECK_OK(zro_optim_step(opt, NULL));
        CHECK(bed_get(b.params[0].data, dtype, 0) == 1.5 && bed_get(b.params[0].data, dtype, 1) < 1.5);
        CHECK(isnan(bed_get(b.params[0].data, dtype, 2)));
        bed_set(b.params[0].grad, dtype, 0, 0.25);
        CHECK_OK(zro_optim_step(opt, NULL));
        CHECK(bed_get(b.params[0].data, dtype, 0) == 1.5);
        zro_optim_destroy(opt);
        bed_free(&b);
    }
}

/* ---- 16 bits ---- */

/* Small updates of bf16 parameters: lost without masters, kept with them, equal to the f32 run rounded. */
static void masters(zt_rank *t)
{
    static const size_t count = 2000;
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    bed narrow, wide, alone;
    zro_optim *x, *y, *z;
    zro_slot slot;
    int differ = 0;

    bed_init(&narrow, ZRO_BF16, ZRO_F32, &count, 1);
    bed_init(&wide, ZRO_F32, ZRO_F32, &count, 1);
    bed_init(&alone, ZRO_BF16, ZRO_F32, &count, 1);
    bed_fill(&narrow, &t->random);
    for (size_t e = 0; e < count; e++) {
        bed_set(wide.params[0].data, ZRO_F32, e, bed_get(narrow.params[0].data, ZRO_BF16, e));
        bed_set(alone.params[0].data, ZRO_BF16, e, bed_get(narrow.params[0].data, ZRO_BF16, e));
    }
    x = bed_optim(&narrow, "adam lr=1e-4", NULL);
    y = bed_optim(&wide, "adam lr=1e-4", NULL);
    config.masters = ZRO_OFF;
    z = bed_optim(&alone, "adam lr=1e-4", &config);
    CHECK_OK(zro_optim_slot(x, 0, "master", &slot));
    CHECK(!slot.present);
    for (int s = 0; s < 50; s++) {
        bed_gradients(&wide, &t->random, 1, 0);
        memcpy(narrow.params[0].grad, wide.params[0].grad, count * sizeof(float));
        memcpy(alone.params[0].grad, wide.params[0].grad, count * sizeof(float));
        CHECK_OK(zro_optim_step(x, NULL));
        CHECK_OK(zro_optim_step(y, NULL));
        CHECK_OK(zro_optim_step(z, NULL));
    }
    CHECK_OK(zro_optim_slot(x, 0, "master", &slot));
    CHECK(slot.present && slot.dtype == ZRO_F32 && slot.count == count);
    CHECK(memcmp(slot.data, wide.params[0].data, count * sizeof(float)) == 0);
    for (size_t e = 0; e < count; e++) {
        uint16_t rounded[1], was = ((uint16_t *)narrow.params[0].data)[e];

        bed_set(rounded, ZRO_BF16, 0, bed_get(wide.params[0].data, ZRO_F32, e));
        CHECK(rounded[0] == was);
        differ += bed_get(alone.params[0].data, ZRO_BF16, e) != bed_get(narrow.params[0].data, ZRO_BF16, e);
    }
    CHECK(differ > (int)count / 10);
    CHECK(zro_optim_slot(z, 0, "master", &slot) == ZRO_ERR_INVALID);
    zro_optim_destroy(x);
    zro_optim_destroy(y);
    zro_optim_destroy(z);
    bed_free(&narrow);
    bed_free(&wide);
    bed_free(&alone);
}

/* Masters take memory for the parameters that have one, and nothing else does. */
static void masters_bytes(zt_rank *t)
{
    static const size_t large = 100000, small = 8;
    zro_param params[2];
    zro_param_group group = { .params = params, .n = 2 };
    zro_optim *opt;
    bed a, b;

    (void)t;
    bed_init(&a, ZRO_F32, ZRO_F32, &large, 1);
    bed_init(&b, ZRO_BF16, ZRO_BF16, &small, 1);
    params[0] = a.params[0];
    params[1] = b.params[0];
    CHECK_OK(zro_optim_create(NULL, &group, 1, zro_rule_sgd(), NULL, NULL, &opt));
    CHECK_OK(zro_optim_step(opt, NULL));
    CHECK(info_of(opt).state_bytes == 64 + 16); /* one master, in a line of the caches, and a number per slot and parameter */
    zro_optim_destroy(opt);
    bed_free(&a);
    bed_free(&b);
}

/* Updates of a tenth of what bf16 can tell apart add up on average; the same seed gives the same bits, another one others. */
static void stochastic(zt_rank *t)
{
    static const size_t count = 4000;
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    double mean = 0, expected = 1 + 100 * 0x1p-7 / 10;
    uint64_t hash[3];

    (void)t;
    config.masters = ZRO_OFF;
    config.rounding = ZRO_STOCHASTIC;
    for (int run = 0; run < 3; run++) {
        zro_optim *opt;
        bed b;

        config.seed = run == 2 ? 77 : 5;
        config.settings.threads = run == 1 ? 2 : 1;
        bed_init(&b, ZRO_BF16, ZRO_F32, &count, 1);
        for (size_t e = 0; e < count; e++) {
            bed_set(b.params[0].data, ZRO_BF16, e, 1);
            bed_set(b.params[0].grad, ZRO_F32, e, -0x1p-7 / 10);
        }
        opt = bed_optim(&b, "sgd lr=1", &config);
        for (int s = 0; s < 100; s++)
            CHECK_OK(zro_optim_step(opt, NULL));
        CHECK_OK(zro_params_hash(b.params, 1, &hash[run]));
        for (size_t e = 0; e < count && run == 0; e++)
            mean += bed_get(b.params[0].data, ZRO_BF16, e) / (double)count;
        zro_optim_destroy(opt);
        bed_free(&b);
    }
    CHECK(fabs(mean - expected) < 1e-3); /* one run's mean is off by 3.7e-4 as a rule */
    CHECK(hash[0] == hash[1] && hash[0] != hash[2]);
}

/* Chance is for bf16: f16 is rounded to nearest. */
static void stochastic_is_for_bf16(zt_rank *t)
{
    static const size_t count = 100;
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_optim *opt;
    bed a, b;

    config.masters = ZRO_OFF;
    bed_init(&a, ZRO_F16, ZRO_F16, &count, 1);
    bed_fill(&a, &t->random);
    bed_gradients(&a, &t->random, 1, 0);
    bed_split(&b, &a, &count, 1);
    for (int run = 0; run < 2; run++) {
        config.rounding = run == 0 ? ZRO_NEAREST : ZRO_STOCHASTIC;
        opt = bed_optim(run == 0 ? &a : &b, "sgd lr=0.1", &config);
        CHECK_OK(zro_optim_step(opt, NULL));
        zro_optim_destroy(opt);
    }
    CHECK(bed_equal(&a, &b));
    bed_free(&a);
    bed_free(&b);
}

/* ---- hash ---- */

static void hash_tells_apart(zt_rank *t)
{
    const size_t count = 100;
    uint64_t a, b;
    uint32_t nan = 0xffc12345;
    bed x;

    bed_init(&x, ZRO_F32, ZRO_F32, sizes, N);
    bed_fill(&x, &t->random);
    CHECK_OK(zro_params_hash(x.params, N, &a));
    for (size_t e = 0; e < count; e++) { /* every bit of an element matters */
        uint32_t *bits = (uint32_t *)x.params[1].data + zt_below(&t->random, sizes[1]), flip = UINT32_C(1) << e % 32;

        *bits ^= flip;
        CHECK_OK(zro_params_hash(x.params, N, &b));
        CHECK(a != b);
        *bits ^= flip;
    }
    CHECK_OK(zro_params_hash(x.params, N, &b));
    CHECK(a == b);
    bed_set(x.params[0].data, ZRO_F32, 1, NAN);
    CHECK_OK(zro_params_hash(x.params, N, &a));
    memcpy((char *)x.params[0].data + sizeof nan, &nan, sizeof nan);
    CHECK_OK(zro_params_hash(x.params, N, &b));
    CHECK(a == b); /* a NaN is a NaN */
    bed_set(x.params[0].data, ZRO_F32, 1, INFINITY);
    CHECK_OK(zro_params_hash(x.params, N, &b));
    CHECK(a != b);
    bed_set(x.params[0].data, ZRO_F32, 1, -INFINITY);
    CHECK_OK(zro_params_hash(x.params, N, &a));
    CHECK(a != b);
    x.params[1].dtype = (zro_dtype)77;
    CHECK_STATUS(zro_params_hash(x.params, N, &a), ZRO_ERR_INVALID);
    x.params[1].dtype = ZRO_F32;
    x.params[1].n_dims = 9;
    CHECK_STATUS(zro_params_hash(x.params, N, &a), ZRO_ERR_INVALID);
    CHECK_TEXT("parameter 1: its dtype is unknown, or its shape is too large");
    x.params[1].n_dims = 1;
    x.params[0].data = NULL;
    CHECK_STATUS(zro_params_hash(x.params, N, &a), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_params_hash(NULL, 1, &a), ZRO_ERR_INVALID);
    CHECK_OK(zro_params_hash(NULL, 0, &a));
    bed_free(&x);
}

/* The norm alone: the same number as clipping finds, and gradients keep their bits. */
static void norm_alone(zt_rank *t)
{
    static const double types[] = { 1, 2, 3, INFINITY };
    zro_optim *opt;
    bed b;

    bed_init(&b, ZRO_F32, ZRO_F32, sizes, N);
    opt = bed_optim(&b, "sgd", NULL);
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        uint64_t random = t->seed;
        double alone = 0, clipped = 0;
        float before;

        bed_gradients(&b, &random, 1, 0);
        before = ((float *)b.params[1].grad)[7];
        CHECK_OK(zro_optim_grad_norm(opt, types[k], ZRO_ON, &alone));
        CHECK(((float *)b.params[1].grad)[7] == before);
        CHECK_OK(zro_clip_grad_norm(opt, 1e-3, types[k], &clipped));
        CHECK(alone == clipped && alone > 0 && ((float *)b.params[1].grad)[7] != before);
    }
    for (int i = 0; i < 2; i++) {
        double norm = 0;

        ((float *)b.params[1].grad)[7] = i == 0 ? NAN : INFINITY;
        CHECK_STATUS(zro_optim_grad_norm(opt, 2, ZRO_ON, NULL), ZRO_ERR_STATE);
        CHECK_TEXT(i == 0 ? "the norm of all gradients is not a number" : "the norm of all gradients is infinite");
        CHECK_OK(zro_optim_grad_norm(opt, 2, ZRO_OFF, &norm));
        CHECK(!isfinite(norm) && ((float *)b.params[1].grad)[8] == ((float *)b.params[1].grad)[8]);
    }
    CHECK_STATUS(zro_optim_grad_norm(opt, -1, ZRO_OFF, NULL), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_clip_grad_norm(opt, -1, 2, NULL), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_clip_grad_norm(opt, NAN, 2, NULL), ZRO_ERR_INVALID);
    zro_optim_destroy(opt);
    bed_free(&b);
}

const zt_case cases_optim_gradients[] = {
    { "optim_norm_alone", norm_alone, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "S69_loss_scale", loss_scale, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "S69_scaled_is_unscaled", scaled_is_unscaled, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "S69_skips_without_scale", skips_without_scale, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "S60_clips_by_norm", clips_by_norm, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "optim_clips_by_value", clips_by_value, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "optim_clips_non_finite", clips_non_finite, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "optim_centered_overflow", centered_overflow, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "S68_masters", masters, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "optim_masters_bytes", masters_bytes, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "optim_stochastic", stochastic, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "optim_stochastic_is_for_bf16", stochastic_is_for_bf16, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "optim_hash", hash_tells_apart, 0, ZT_BOTH, 0, 0, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
