/* The bits of all numbers that optimizers compute, pinned by hashes that stand in hashes.h.
 *
 * Golden vectors are compared with a tolerance, so they do not see another order of operations; here that is another hash.
 * Every option that changes numbers occurs in a row, with values for which it matters in f32: an eps of 1e-8 is lost in it.
 * Rows of rules have one hash for each of the element types in settings.c, other rows one for f32 and one for f64, or one.
 * The same hashes must come out of every instruction set, of one thread and of two, and of every compiler.  Two threads cost a
 * switch between them at every step where the machine is busy, so one element type in each row has them; bits.c has more.
 *
 * Who changes numbers on purpose lets the golden vectors pass first and then writes the new table:
 *   build/bin/zro-tests --command hashes >build/hashes.h && mv build/hashes.h tests/optim/ && scripts/format */
#include "hashes.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kernels.h"
#include "bed.h"
#include "optim/lr.h"
#include "optim/wolfe.h"
#include "settings.h"
#include "zt/list.h"
#include "zt/zt.h"

enum { STEPS = 8, LR_CHANGES = 4, WILD = 5, FIRST = 1100, SECOND = 37 };

/* What the 26 settings leave out.  Behind a bar stand fields of zro_optim_config. */
static const char *const more[] = {
    "sgd lr=0.1 weight_decay=0.03",
    "sgd lr=0.1 weight_decay=0.03 maximize=1",
    "sgd lr=0.1 momentum=0.7 dampening=0.3 weight_decay=0.03",
    "sgd lr=0.1 momentum=0.7 nesterov=1 weight_decay=0.03 maximize=1",
    "adam lr=0.03 eps=0.01 beta1=0.7 beta2=0.9",
    "adam lr=0.03 eps=0.01 beta1=0.5 beta2=0.9 amsgrad=1",
    "adam lr=0.03 eps=0.01 amsgrad=1 weight_decay=0.1 maximize=1",
    "adam lr=0.03 eps=0.01 weight_decay=0.1 decoupled_weight_decay=1",
    "adamw lr=0.03 eps=0.01 weight_decay=0.1 maximize=1",
    "adamw lr=0.03 eps=0.01 beta1=0.4 beta2=0.7 weight_decay=0.1 amsgrad=1",
    "adagrad lr=0.03 eps=0.01 maximize=1",
    "adagrad lr=0.03 eps=0.01 lr_decay=0.1 weight_decay=0.1 initial_accumulator_value=0.3",
    "adadelta lr=0.3 rho=0.7 eps=0.01 maximize=1",
    "adadelta lr=0.3 rho=0.3 eps=0.01 weight_decay=0.1",
    "adamax lr=0.03 beta1=0.4 beta2=0.7 eps=0.01",
    "adamax lr=0.03 eps=0.01 weight_decay=0.1",
    "rmsprop lr=0.03 alpha=0.4 eps=0.01 maximize=1",
    "rmsprop lr=0.03 alpha=0.5 eps=0.01 centered=1 weight_decay=0.1",
    "rmsprop lr=0.03 alpha=0.7 eps=0.01 momentum=0.7",
    "rmsprop lr=0.03 alpha=0.7 eps=0.01 momentum=0.7 centered=1 weight_decay=0.1 maximize=1",
    "rprop lr=0.03 eta_minus=0.4 eta_plus=1.3 step_min=0.02 step_max=0.05 maximize=1",
    "asgd lr=0.3 lambd=0.03 alpha=0.6 t0=1 maximize=1",
    "asgd lr=0.3 lambd=0.03 alpha=0.6 t0=2 weight_decay=0.1",
    "nadam lr=0.03 eps=0.01 momentum_decay=0.3 weight_decay=0.1",
    "nadam lr=0.03 eps=0.01 beta1=0.4 beta2=0.7 maximize=1",
    "radam lr=0.03 eps=0.01 beta2=0.9 weight_decay=0.1 decoupled_weight_decay=1",
    "radam lr=0.03 eps=0.01 beta1=0.4 beta2=0.8 maximize=1",
    "sgd lr=0.1 | clip_norm=3",
    "sgd lr=0.1 | clip_norm=100 clip_norm_type=1",
    "sgd lr=0.1 | clip_norm=0.3 clip_norm_type=inf",
    "sgd lr=0.1 | clip_norm=1 clip_norm_type=3",
    "sgd lr=0.1 momentum=0.9 | clip_value=0.3",
    "sgd lr=0.1 momentum=0.9 | scale_init=3 scale_growth=1.7 scale_backoff=0.3 growth_interval=2",
    "adamw lr=0.03 eps=0.01 | scale_init=3 scale_growth=1.7 growth_interval=2 clip_norm=1 clip_value=0.1",
    "adam lr=0.03 eps=0.01 | seed=7",
    "sgd lr=0.1 | seed=8",
};

enum { MORE = sizeof more / sizeof *more };

/* ---- hashing ---- */

/* All NaNs are equal. */
static uint64_t add_number(uint64_t hash, double x)
{
    uint64_t bits = 1;

    if (!isnan(x))
        memcpy(&bits, &x, sizeof bits);
    return zt_mix(hash, bits);
}

static uint64_t add_array(uint64_t hash, const void *data, zro_dtype dtype, size_t n)
{
    for (size_t i = 0; i < n; i++)
        hash = add_number(hash, bed_get(data, dtype, i));
    return hash;
}

/* ---- rules ---- */

/* What all rows of an element type begin with, and their gradients, step by step. */
typedef struct inputs {
    const element_type *type;
    bed start, grads[STEPS];
} inputs;

static const size_t lengths[] = { FIRST, SECOND };

/* Gradients of different sizes, so that eps matters in some steps; one step has infinities, NaNs and subnormals. */
static void make_inputs(inputs *in, const element_type *type)
{
    static const double scale[STEPS] = { 1, 0.01, 20, 0.3, 1, 1, 0.001, 2 };
    uint64_t random = 1;

    in->type = type;
    bed_init(&in->start, type->dtype, type->grad, lengths, 2);
    bed_fill(&in->start, &random);
    for (int s = 0; s < STEPS; s++) {
        bed_init(&in->grads[s], type->dtype, type->grad, lengths, 2);
        bed_gradients(&in->grads[s], &random, scale[s], s == WILD);
    }
}

static void free_inputs(inputs *in)
{
    bed_free(&in->start);
    for (int s = 0; s < STEPS; s++)
        bed_free(&in->grads[s]);
}

/* Takes the fields behind the bar into the configuration, and returns what stands before it. */
static const char *split(const char *row, char *text, zro_optim_config *config)
{
    struct {
        const char *name;
        double *field;
    } fields[] = {
        { "clip_norm", &config->clip_norm },       { "clip_norm_type", &config->clip_norm_type },
        { "clip_value", &config->clip_value },     { "scale_init", &config->scale_init },
        { "scale_growth", &config->scale_growth }, { "scale_backoff", &config->scale_backoff },
    };
    char *word, *rest = strcpy(text, row);
    const char *rule = strtok_r(rest, "|", &rest);

    while ((word = strtok_r(NULL, " ", &rest)) != NULL) {
        char *equals = strchr(word, '=');
        size_t i = 0;

        CHECK(equals != NULL);
        *equals = '\0';
        while (i < sizeof fields / sizeof *fields && strcmp(fields[i].name, word) != 0)
            i++;
        if (i < sizeof fields / sizeof *fields)
            *fields[i].field = strtod(equals + 1, NULL);
        else if (strcmp(word, "growth_interval") == 0)
            config->growth_interval = (uint32_t)strtoul(equals + 1, NULL, 10);
        else
            config->seed = strtoull(equals + 1, NULL, 10);
        if (strcmp(word, "scale_init") == 0)
            config->loss_scale = ZRO_ON;
    }
    return rule;
}

static void set_arrays(bed *b, const inputs *in, int step)
{
    for (size_t i = 0; i < b->n; i++) {
        if (step == 0)
            memcpy(b->params[i].data, in->start.params[i].data, b->count[i] * b->size);
        memcpy(b->params[i].grad, in->grads[step].params[i].grad, b->count[i] * b->grad_size);
    }
}

/* Parameters and all of the state. */
static uint64_t hash_state(const zro_optim *opt, const bed *b)
{
    uint64_t hash = 0;

    for (size_t i = 0; i < b->n; i++) {
        hash = add_array(hash, b->params[i].data, b->params[i].dtype, b->count[i]);
        for (size_t s = 0; s < zro_optim_slots(opt); s++) {
            zro_slot slot;

            CHECK_OK(zro_optim_slot(opt, i, zro_optim_slot_name(opt, s), &slot));
            hash = zt_mix(hash, slot.present);
            if (slot.present)
                hash = add_array(hash, slot.data, slot.dtype, slot.count);
        }
    }
    return hash;
}

static uint64_t hash_rule(const char *row, const inputs *in, zro_kernels kernels, uint32_t threads)
{
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    char text[256];
    const char *rule = split(row, text, &config);
    zro_optim *opt;
    uint64_t hash;
    double lr;
    bed b;

    config.masters = in->type->masters;
    config.rounding = in->type->rounding;
    config.settings.kernels = kernels;
    config.settings.threads = threads;
    bed_init(&b, in->type->dtype, in->type->grad, lengths, 2);
    opt = bed_optim(&b, rule, &config);
    for (int s = 0; s < STEPS; s++) {
        set_arrays(&b, in, s);
        if (s == LR_CHANGES) {
            CHECK_OK(zro_optim_get_value(opt, 0, "lr", &lr));
            CHECK_OK(zro_optim_set_value(opt, 0, "lr", 0.7 * lr));
        }
        CHECK_OK(zro_optim_step(opt, NULL));
    }
    hash = hash_state(opt, &b);
    zro_optim_destroy(opt);
    bed_free(&b);
    return hash;
}

/* ---- schedules ---- */

#define ONE_CYCLE(...) .kind = ZRO__SCHEDULE_ONE_CYCLE, .one_cycle = { 0, 0.7, 23, __VA_ARGS__, 7, 1e3 }
#define PLATEAU(...) .kind = ZRO__SCHEDULE_PLATEAU, .plateau = { 0, __VA_ARGS__ }

static const uint64_t milestones[] = { 0, 3, 3, 11, 17 };

static const struct {
    const char *name;
    zro__schedule_args args;
} schedules[] = {
    { "schedule step_lr", { .kind = ZRO__SCHEDULE_STEP_LR, .step_size = 3, .gamma = 0.7 } },
    { "schedule multi_step", { .kind = ZRO__SCHEDULE_MULTI_STEP, .gamma = 0.7, .milestones = milestones, .n_milestones = 5 } },
    { "schedule exponential", { .kind = ZRO__SCHEDULE_EXPONENTIAL, .gamma = 0.93 } },
    { "schedule polynomial", { .kind = ZRO__SCHEDULE_POLYNOMIAL, .total_iters = 17, .power = 1.7 } },
    { "schedule cosine", { .kind = ZRO__SCHEDULE_COSINE, .t_max = 7, .eta_min = 0.013 } },
    { "schedule cosine_restarts", { .kind = ZRO__SCHEDULE_COSINE_RESTARTS, .t_0 = 5, .t_mult = 2, .eta_min = 0.013 } },
    { "schedule linear", { .kind = ZRO__SCHEDULE_LINEAR, .total_iters = 17, .start_factor = 0.3, .end_factor = 0.9 } },
    { "schedule linear to zero", { .kind = ZRO__SCHEDULE_LINEAR, .total_iters = 17, .start_factor = 0.7 } },
    { "schedule constant", { .kind = ZRO__SCHEDULE_CONSTANT, .total_iters = 7, .factor = 0.11 } },
    { "schedule constant zero", { .kind = ZRO__SCHEDULE_CONSTANT, .total_iters = 7 } },
    { "schedule one_cycle", { ONE_CYCLE(0.3, ZRO_OFF, ZRO_OFF, ZRO_ON, 0.8, 0.93) } },
    { "schedule one_cycle linear", { ONE_CYCLE(0.3, ZRO_ON, ZRO_OFF, ZRO_ON, 0.8, 0.93) } },
    { "schedule one_cycle three_phase", { ONE_CYCLE(0.4, ZRO_OFF, ZRO_ON, ZRO_ON, 0.8, 0.93) } },
    { "schedule one_cycle linear three_phase", { ONE_CYCLE(0.4, ZRO_ON, ZRO_ON, ZRO_ON, 0.8, 0.93) } },
    { "schedule plateau", { PLATEAU(ZRO_OFF, 0.7, 1, 0.1, ZRO_OFF, 2, 0.05, 1e-8) } },
    { "schedule plateau maximize", { PLATEAU(ZRO_ON, 0.7, 1, 0.1, ZRO_OFF, 2, 0.05, 1e-8) } },
    { "schedule plateau absolute", { PLATEAU(ZRO_OFF, 0.7, 0, 0.1, ZRO_ON, 0, 0.03, 0.02) } },
    { "schedule plateau maximize absolute", { PLATEAU(ZRO_ON, 0.7, 0, 0.1, ZRO_ON, 0, 0.03, 1e-8) } },
};

enum { SCHEDULES = sizeof schedules / sizeof *schedules };

static uint64_t hash_schedule(const zro__schedule_args *args)
{
    const double base = 0.3;
    double lr = base, metric = 1;
    uint64_t hash = 0, random = 1;
    zro__schedule_state state;

    CHECK_OK(zro__schedule_check(args));
    zro__schedule_begin(args, &state);
    for (;;) {
        lr = zro__schedule_lr(args, &state, base, lr);
        hash = add_number(hash, lr);
        if (args->kind == ZRO__SCHEDULE_ONE_CYCLE)
            hash = add_number(hash, zro__schedule_momentum(args, &state));
        metric += ((double)zt_below(&random, 1000) - 500) / 2000;
        if (state.t == 40 || (args->kind == ZRO__SCHEDULE_ONE_CYCLE && state.t == args->one_cycle.total_steps))
            return hash;
        CHECK_OK(zro__schedule_next(args, &state, metric));
    }
}

/* ---- L-BFGS ---- */

static const struct {
    const char *name;
    double lr;
    uint32_t max_iter, max_eval, history_size;
    zro_switch strong_wolfe;
} searches[] = {
    { "lbfgs", 0.01, 7, 0, 100, ZRO_OFF },
    { "lbfgs history_size=3", 0.3, 7, 5, 3, ZRO_OFF },
    { "lbfgs strong_wolfe", 1, 20, 0, 100, ZRO_ON },
    { "lbfgs strong_wolfe history_size=3", 0.03, 9, 40, 3, ZRO_ON },
    { "lbfgs strong_wolfe lr=30", 30, 3, 30, 10, ZRO_ON },
};

enum { SEARCHES = sizeof searches / sizeof *searches };

/* Rosenbrock's function of the elements of both parameters, computed in f64. */
static zro_status rosenbrock(void *user, double *loss)
{
    bed *b = user;

    *loss = 0;
    for (size_t p = 0; p < b->n; p++) {
        const zro_dtype type = b->params[p].dtype;
        double left = 0;

        for (size_t i = 0; i < b->count[p]; i++) {
            double x = bed_get(b->params[p].data, type, i);
            double d = i + 1 < b->count[p] ? bed_get(b->params[p].data, type, i + 1) - x * x : 0, e = 1 - x;

            *loss += 100 * d * d + e * e;
            bed_set(b->params[p].grad, type, i, left - 400 * d * x - 2 * e);
            left = 200 * d;
        }
    }
    return ZRO_OK;
}

static uint64_t hash_search(size_t row, zro_dtype dtype)
{
    zro_lbfgs_config config = ZRO_LBFGS_CONFIG_INIT;
    uint64_t hash = 0, random = 1;
    zro_lbfgs *lbfgs;
    double loss;
    bed b;

    config.lr = searches[row].lr;
    config.max_iter = searches[row].max_iter;
    config.max_eval = searches[row].max_eval;
    config.history_size = searches[row].history_size;
    config.strong_wolfe = searches[row].strong_wolfe;
    bed_init(&b, dtype, dtype, lengths, 2);
    bed_fill(&b, &random);
    CHECK_OK(zro_lbfgs_create(b.params, b.n, &config, &lbfgs));
    for (int s = 0; s < 4; s++) {
        CHECK_OK(zro_lbfgs_step(lbfgs, rosenbrock, &b, &loss));
        hash = zt_mix(add_number(hash, loss), zro_lbfgs_evaluations(lbfgs));
        for (size_t i = 0; i < b.n; i++)
            hash = add_array(hash, b.params[i].data, dtype, b.count[i]);
    }
    zro_lbfgs_destroy(lbfgs);
    bed_free(&b);
    return hash;
}

/* A polynomial up to a wall, where interpolation ends at the other end of the interval.  Its values are rounded, so that points
 * are often equally high. */
typedef struct curve {
    double c[5], step, wall;
    uint64_t hash;
} curve;

static zro_status look_at_curve(void *user, zro__wolfe_point *p)
{
    curve *k = user;

    p->f = p->slope = 0;
    for (int i = 4; i >= 0; i--)
        p->f = p->f * p->t + k->c[i];
    for (int i = 4; i > 0; i--)
        p->slope = p->slope * p->t + i * k->c[i];
    p->f += p->t > k->wall ? 1e30 : 0;
    p->f = k->step > 0 ? floor(p->f / k->step) * k->step : p->f;
    k->hash = zt_mix(add_number(k->hash, p->t), (uint64_t)p->buffer);
    return ZRO_OK;
}

/* The points that the line search looks at, and what it finds. */
static uint64_t hash_wolfe(zro_dtype dtype)
{
    uint64_t random = 1;
    curve k = { .hash = 0 };

    for (int i = 0; i < 1000; i++) {
        zro__wolfe w = { look_at_curve, &k, 1, 1 + zt_below(&random, 12), dtype };
        zro__wolfe_point start = { 0, 0, 0, 0 }, found;

        for (int c = 0; c < 5; c++)
            k.c[c] = ((double)zt_below(&random, 2000) - 1000) / 100;
        k.c[1] = -fabs(k.c[1]) - 0.01;
        k.step = (double)zt_below(&random, 3) / 4;
        k.wall = (1 + (double)zt_below(&random, 100)) / 30;
        CHECK_OK(look_at_curve(&k, &start));
        CHECK_OK(zro__wolfe_search(&w, &start, (1 + (double)zt_below(&random, 100)) / 30, &found));
        k.hash = add_number(add_number(k.hash, found.t), found.f);
    }
    return k.hash;
}

/* ---- the table ---- */

/* Another C library may have another pow and cos, which are not exact; then the rows that use them say nothing. */
static uint64_t hash_library(void)
{
    volatile double x, y, near_1 = 0.999; /* volatile, lest the compiler compute what the library should */
    uint64_t hash = 0;

    for (int i = 1; i < 100; i++)
        for (int k = 1; k < 40; k++) {
            x = 0.01 * i;
            y = k % 2 == 0 ? k : 0.11 * k;
            hash = add_number(add_number(add_number(hash, pow(x, y)), pow(near_1, k)), cos(x * y));
        }
    return hash;
}

static int uses_library(const char *name)
{
    return strstr(name, "adam") != NULL || strstr(name, "asgd") != NULL || strstr(name, "norm_type=3") != NULL
           || strstr(name, "schedule") != NULL;
}

enum { ROWS = 2 + SETTINGS + MORE + SCHEDULES + SEARCHES, HASHES_BYTES = ELEMENT_TYPES * 9 + 1 };

typedef struct table {
    const char *names[ROWS];
    char hashes[ROWS][HASHES_BYTES];
    size_t n;
} table;

static size_t row_of(table *t, const char *name)
{
    size_t row = 0;

    while (row < t->n && t->names[row] != name)
        row++;
    CHECK(row < ROWS);
    if (row == t->n)
        t->names[t->n++] = name;
    return row;
}

static void add_hash(table *t, const char *name, uint64_t hash)
{
    char *to = t->hashes[row_of(t, name)];
    size_t at = strlen(to);

    snprintf(to + at, HASHES_BYTES - at, "%s%08" PRIx32, at > 0 ? " " : "", (uint32_t)(hash ^ hash >> 32));
}

static void make_table(table *t, zro_kernels kernels)
{
    static const char line_searches[] = "line searches on polynomials";

    memset(t, 0, sizeof *t);
    add_hash(t, "pow and cos of the C library", hash_library());
    for (size_t type = 0; type < ELEMENT_TYPES; type++) {
        inputs in;

        make_inputs(&in, &element_types[type]);
        for (size_t r = 0; r < SETTINGS + MORE; r++) {
            const char *row = r < SETTINGS ? settings[r] : more[r - SETTINGS];
            uint32_t threads = kernels != ZRO_KERNELS_BASE && r % ELEMENT_TYPES == type ? 2 : 1;

            add_hash(t, row, hash_rule(row, &in, kernels, threads));
        }
        free_inputs(&in);
    }
    for (size_t i = 0; i < SCHEDULES; i++)
        add_hash(t, schedules[i].name, hash_schedule(&schedules[i].args));
    for (size_t i = 0; i < SEARCHES; i++) {
        add_hash(t, searches[i].name, hash_search(i, ZRO_F32));
        add_hash(t, searches[i].name, hash_search(i, ZRO_F64));
    }
    add_hash(t, line_searches, hash_wolfe(ZRO_F32));
    add_hash(t, line_searches, hash_wolfe(ZRO_F64));
}

int command_hashes(int argc, char **argv)
{
    table t;

    (void)argc;
    (void)argv;
    make_table(&t, ZRO_KERNELS_BASE);
    printf("/* Hashes of what every rule, schedule and line search computes: see hashes.c, which also writes this file. */\n");
    printf("static const struct {\n    const char *name, *hashes;\n} expected[] = {\n");
    for (size_t i = 0; i < t.n; i++)
        printf("    { \"%s\",\n      \"%s\" },\n", t.names[i], t.hashes[i]);
    printf("};\n");
    return 0;
}

/* Compares with the table in the tree, and returns how many rows were left out. */
static int compare(const table *t, const char *kernels)
{
    int has_library = strcmp(t->hashes[0], expected[0].hashes) == 0, left_out = 0;

    if (t->n != sizeof expected / sizeof *expected)
        zt_fail(__FILE__, __LINE__, "%zu rows, and hashes.h has %zu: zro-tests --command hashes prints the table", t->n,
                sizeof expected / sizeof *expected);
    for (size_t i = 1; i < t->n; i++) {
        if (strcmp(t->names[i], expected[i].name) != 0)
            zt_fail(__FILE__, __LINE__,
                    "row %zu is \"%s\", and in hashes.h \"%s\": zro-tests --command hashes prints the table", i, t->names[i],
                    expected[i].name);
        if (!has_library && uses_library(t->names[i]))
            left_out++;
        else if (strcmp(t->hashes[i], expected[i].hashes) != 0)
            zt_fail(__FILE__, __LINE__,
                    "\"%s\" computes other bits with %s kernels; one hash for each of the element types in settings.c:\n"
                    "    now      %s\n    expected %s\n"
                    "    If that is on purpose: zro-tests --command hashes prints the new table, and the head of hashes.c says "
                    "what to do with it",
                    t->names[i], kernels, t->hashes[i], expected[i].hashes);
    }
    return left_out;
}

static void hashes(zt_rank *t)
{
    static const zro_kernels all[] = { ZRO_KERNELS_BASE, ZRO_KERNELS_AVX2, ZRO_KERNELS_AVX512 };
    uint64_t sum = 0;
    int left_out = 0;
    table got;

    for (size_t k = 0; k < sizeof all / sizeof *all && zro__kernels_get(all[k]) != NULL; k++) {
        make_table(&got, all[k]);
        left_out = compare(&got, zro__kernels_get(all[k])->name);
    }
    for (size_t i = 0; i < got.n; i++)
        for (const char *p = got.hashes[i]; *p != '\0'; p++)
            sum = zt_mix(sum, (unsigned char)*p);
    if (left_out > 0)
        zt_note(t, "%016" PRIx64 ", %d rows left out: this C library has another pow or cos", sum, left_out);
    else
        zt_note(t, "%016" PRIx64, sum);
}

const zt_case cases_optim_hashes[] = {
    { "optim_hashes", hashes, 0, ZT_BOTH, 0, 60, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
