/* The state of an optimizer on one rank, taken out and loaded: x = 1, gradient 1, SGD with momentum; then what states of PyTorch
 * bring along. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bed.h"
#include "zt/list.h"
#include "zt/zt.h"

typedef struct scalar {
    float x, grad;
    zro_param param;
} scalar;

static zro_optim *make(zro_group *g, scalar *s, double lr, double momentum)
{
    zro_sgd_config sgd = ZRO_SGD_CONFIG_INIT;
    zro_param_group group = { .params = &s->param, .n = 1 };
    zro_optim *opt;

    zro_param_init(&s->param);
    s->grad = 1;
    s->param.shape[0] = 1;
    s->param.data = &s->x;
    zro_param_set_grad(&s->param, &s->grad);
    sgd.lr = lr;
    sgd.momentum = momentum;
    CHECK_OK(zro_optim_create(g, &group, 1, zro_rule_sgd(), &sgd, NULL, &opt));
    return opt;
}

static float buffer_of(const zro_optim *opt)
{
    zro_slot slot;

    CHECK_OK(zro_optim_slot(opt, 0, "momentum_buffer", &slot));
    CHECK(slot.present && slot.count == 1 && slot.dtype == ZRO_F32);
    return *(float *)slot.data;
}

static double value_of(const zro_state *state, const char *name)
{
    double value = NAN;

    CHECK_OK(zro_state_get_value(state, 0, name, &value));
    return value;
}

/* Its groups are the optimizer's, value by value. */
static void check_groups(const zro_state *state, const zro_optim *opt)
{
    size_t first, n, n_values;

    CHECK(zro_state_groups(state) == 1 && zro_state_params(state) == 1);
    CHECK_OK(zro_state_group(state, 0, &first, &n, &n_values));
    CHECK(first == 0 && n == 1 && n_values >= zro_optim_values(opt));
    for (size_t i = 0; i < zro_optim_values(opt); i++) {
        double mine;

        CHECK_OK(zro_optim_get_value(opt, 0, zro_optim_value_name(opt, i), &mine));
        CHECK(value_of(state, zro_optim_value_name(opt, i)) == mine);
    }
    CHECK(value_of(state, "lr") == 0.1 && value_of(state, "momentum") == 0.9 && value_of(state, "nesterov") == 0);
    CHECK(value_of(state, "weight_decay") == 0 && value_of(state, "dampening") == 0);
}

static void check_slot(const zro_state *state)
{
    zro_progress progress;
    zro_slot slot;

    CHECK(strcmp(zro_state_rule(state), "sgd") == 0);
    CHECK_OK(zro_state_slot(state, 0, "momentum_buffer", &slot));
    CHECK(slot.present && slot.count == 1 && slot.dtype == ZRO_F32 && *(float *)slot.data == 1);
    CHECK_OK(zro_state_get_progress(state, &progress));
    CHECK(progress.steps == 1);
}

static void load_into(zro_group *g, const zro_state *state, double momentum)
{
    scalar s = { .x = 0.9f };
    zro_optim *opt = make(g, &s, 0.01, momentum);
    double lr;

    CHECK_OK(zro_optim_load(opt, state));
    CHECK_OK(zro_optim_get_value(opt, 0, "lr", &lr));
    CHECK(buffer_of(opt) == 1 && lr == 0.1);
    CHECK_OK(zro_optim_step(opt, NULL));
    CHECK(fabs((double)s.x - 0.71) < 1e-6 && fabs((double)buffer_of(opt) - 1.9) < 1e-6);
    zro_optim_destroy(opt);
}

static void S01_state_dict(zt_rank *t)
{
    zro_group *const of[] = { t->group, NULL };

    for (int i = 0; i < 2; i++) {
        scalar s = { .x = 1 };
        zro_optim *opt = make(of[i], &s, 0.1, 0.9);
        zro_state *state;

        CHECK_OK(zro_optim_step(opt, NULL));
        CHECK(s.x == 0.9f && buffer_of(opt) == 1);
        CHECK_OK(zro_optim_consolidate(opt, 0, &state));
        check_groups(state, opt);
        check_slot(state);
        zro_optim_destroy(opt); /* the state is a copy */
        load_into(t->group, state, 0.9);
        load_into(NULL, state, 0.9);
        load_into(t->group, state, 0); /* momentum comes with the state */
        check_slot(state);             /* which loading leaves as it is */
        zro_state_destroy(state);
    }
}

/* ---- what PyTorch's users expect of a load ---- */

/* A copy of a state with one parameter and no lists but betas, without one of its values; the state is destroyed. */
static zro_state *without_value(zro_state *state, const char *name)
{
    size_t first, n, n_values;
    zro_state *copy;
    zro_param param;
    zro_value value;

    CHECK_OK(zro_state_create(zro_state_rule(state), &copy));
    CHECK_OK(zro_state_add_group(copy, NULL, 0));
    CHECK_OK(zro_state_group(state, 0, &first, &n, &n_values));
    for (size_t i = 0; i < n_values; i++) {
        CHECK_OK(zro_state_value(state, 0, i, &value));
        if (strcmp(value.name, name) != 0)
            CHECK_OK(zro_state_set_value(copy, 0, value.name, value.value));
    }
    CHECK_OK(zro_state_param(state, 0, &param));
    CHECK_OK(zro_state_add_param(copy, &param));
    for (size_t i = 0; i < zro_state_slots(state, 0); i++) {
        const char *slot_name = zro_state_slot_name(state, 0, i);
        zro_slot slot;

        CHECK_OK(zro_state_slot(state, 0, slot_name, &slot));
        CHECK_OK(zro_state_add_slot(copy, 0, slot_name, slot.dtype, slot.data, slot.count));
    }
    zro_state_destroy(state);
    return copy;
}

typedef struct heard {
    int warnings;
    char text[400];
} heard;

static void hear(void *user, zro_log_level level, const char *text)
{
    heard *h = user;

    if (level != ZRO_LOG_WARN)
        return;
    h->warnings++;
    snprintf(h->text, sizeof h->text, "%s", text);
}

static zro_optim *listening(bed *b, const char *rule, heard *h, const zro_optim_config *like)
{
    zro_optim_config config = like != NULL ? *like : (zro_optim_config)ZRO_OPTIM_CONFIG_INIT;

    *h = (heard){ 0 };
    config.settings.log = hear;
    config.settings.log_user = h;
    return bed_optim(b, rule, &config);
}

/* adam takes every state of adamw, adamw those of adam that say decoupled_weight_decay; the next steps are the same bits. */
static void adam_takes_adamw(zt_rank *t)
{
    static const size_t counts[] = { 40 };
    static const struct {
        const char *from, *to;
        int removed; /* the state does not say which it is, but by its rule's name */
        zro_status st;
    } cases[] = {
        { "adamw weight_decay=0.1", "adam", 0, ZRO_OK },
        { "adam weight_decay=0.1 decoupled_weight_decay=1", "adamw", 0, ZRO_OK },
        { "adam weight_decay=0.1", "adamw", 0, ZRO_ERR_INVALID },
        { "adamw weight_decay=0.1", "adam", 1, ZRO_OK },
        { "adam weight_decay=0.1", "adamw", 1, ZRO_ERR_INVALID },
        { "adam", "nadam", 0, ZRO_ERR_INVALID },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        zro_optim *x, *y;
        zro_state *state;
        heard h;
        bed a, b;

        bed_init(&a, ZRO_F32, ZRO_F32, counts, 1);
        bed_init(&b, ZRO_F32, ZRO_F32, counts, 1);
        bed_fill(&a, &t->random);
        x = bed_optim(&a, cases[i].from, NULL);
        y = listening(&b, cases[i].to, &h, NULL);
        bed_gradients(&a, &t->random, 1, 0);
        CHECK_OK(zro_optim_step(x, NULL));
        memcpy(b.params[0].data, a.params[0].data, 40 * sizeof(float));
        memcpy(b.params[0].grad, a.params[0].grad, 40 * sizeof(float));
        CHECK_OK(zro_optim_consolidate(x, 0, &state));
        if (cases[i].removed)
            state = without_value(state, "decoupled_weight_decay");
        CHECK_STATUS(zro_optim_load(y, state), cases[i].st);
        if (cases[i].st != ZRO_OK)
            CHECK_TEXT("the state is that of rule adam");
        CHECK_OK(zro_optim_step(x, NULL));
        CHECK_OK(zro_optim_step(y, NULL));
        CHECK(bed_equal(&a, &b) == (cases[i].st == ZRO_OK) && h.warnings == 0);
        zro_state_destroy(state);
        zro_optim_destroy(x);
        zro_optim_destroy(y);
        bed_free(&a);
        bed_free(&b);
    }
}

/* Values that no rule of zro has are left out with one warning; those that schedules leave, without. */
static void leaves_values_out(zt_rank *t)
{
    static const size_t counts[] = { 3 };
    zro_optim *opt;
    zro_state *state;
    double lr;
    heard h;
    bed b;

    (void)t;
    bed_init(&b, ZRO_F32, ZRO_F32, counts, 1);
    opt = listening(&b, "adam", &h, NULL);
    CHECK_OK(zro_optim_consolidate(opt, 0, &state));
    CHECK_OK(zro_state_set_value(state, 0, "lr", 0.5));
    CHECK_OK(zro_state_set_value(state, 0, "max_lr", 1));
    CHECK_OK(zro_optim_load(opt, state));
    CHECK(h.warnings == 0);
    CHECK_OK(zro_state_set_value(state, 0, "lr_scale", 0.25));
    CHECK_OK(zro_state_set_value(state, 0, "swa_lr", 0.125));
    CHECK_OK(zro_optim_load(opt, state));
    CHECK(h.warnings == 1 && strstr(h.text, "value lr_scale of parameter group 0 of the state (and 1 others)") != NULL);
    CHECK_OK(zro_optim_get_value(opt, 0, "lr", &lr));
    CHECK(lr == 0.5);
    zro_state_destroy(state);
    zro_optim_destroy(opt);
    bed_free(&b);
}

/* The number of skipped steps goes into a state, into its bytes, and into the optimizer that takes it. */
static void skipped_steps_stay(zt_rank *t)
{
    static const size_t counts[] = { 3 };
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_step_info info = ZRO_STEP_INFO_INIT;
    zro_optim *x, *y;
    zro_state *state, *again;
    zro_progress progress;
    void *bytes;
    size_t n;
    heard h;
    bed b;

    config.skip_non_finite = ZRO_ON;
    bed_init(&b, ZRO_F32, ZRO_F32, counts, 1);
    x = listening(&b, "adam", &h, &config);
    for (int k = 0; k < 5; k++) {
        bed_gradients(&b, &t->random, 1, 0);
        if (k < 3)
            bed_set(b.params[0].grad, ZRO_F32, 1, NAN);
        CHECK_OK(zro_optim_step(x, NULL));
    }
    CHECK_OK(zro_optim_consolidate(x, 0, &state));
    CHECK_OK(zro_state_pack(state, &bytes, &n));
    CHECK_OK(zro_state_unpack(bytes, n, &again));
    zro_bytes_free(bytes);
    CHECK_OK(zro_state_get_progress(again, &progress));
    CHECK(progress.steps == 5 && progress.n_skipped == 3);
    y = listening(&b, "adam", &h, &config);
    CHECK_OK(zro_optim_load(y, again));
    CHECK_OK(zro_optim_info(y, &info));
    CHECK(info.n_steps == 5 && info.n_skipped == 3);
    progress.n_skipped = 6;
    CHECK_STATUS(zro_state_set_progress(again, &progress), ZRO_ERR_INVALID);
    CHECK_TEXT("n_skipped = 6, must be at most steps, 5");
    zro_state_destroy(state);
    zro_state_destroy(again);
    zro_optim_destroy(x);
    zro_optim_destroy(y);
    bed_free(&b);
}

static float master_of(const zro_optim *opt, size_t i)
{
    zro_slot slot;

    CHECK_OK(zro_optim_slot(opt, 0, "master", &slot));
    CHECK(slot.present);
    return ((float *)slot.data)[i];
}

/* After a load a program publishes its parameters: masters stay, but for the elements that it has changed. */
static void masters_stay(zt_rank *t)
{
    static const size_t counts[] = { 700 };
    static const zro_dtype types[] = { ZRO_BF16, ZRO_F16 };

    for (size_t k = 0; k < 2; k++) {
        zro_optim *x, *y;
        zro_state *state;
        int kept = 0;
        bed b;

        bed_init(&b, types[k], types[k], counts, 1);
        bed_fill(&b, &t->random);
        x = bed_optim(&b, "adam", NULL);
        for (int i = 0; i < 3; i++) {
            bed_gradients(&b, &t->random, 1, 0);
            CHECK_OK(zro_optim_step(x, NULL));
        }
        CHECK_OK(zro_optim_consolidate(x, 0, &state));
        y = bed_optim(&b, "adam", NULL);
        CHECK_OK(zro_optim_load(y, state));
        bed_set(b.params[0].data, types[k], 300, 8);
        CHECK_OK(zro_param_publish(y, ZRO_ALL_PARAMS, 0));
        for (size_t i = 0; i < 700; i++) {
            CHECK(master_of(y, i) == (i == 300 ? 8 : master_of(x, i)));
            kept += (double)master_of(y, i) != bed_get(b.params[0].data, types[k], i);
        }
        CHECK(kept > 600);
        zro_state_destroy(state);
        zro_optim_destroy(x);
        zro_optim_destroy(y);
        bed_free(&b);
    }
}

const zt_case cases_zero_state_dict[] = {
    { "state_adam_takes_adamw", adam_takes_adamw, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "state_leaves_values_out", leaves_values_out, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "state_skipped_steps", skipped_steps_stay, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "state_masters_stay", masters_stay, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "S01_state_dict", S01_state_dict, ZT_WORLD(1), ZT_ALL, 0, 0, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
