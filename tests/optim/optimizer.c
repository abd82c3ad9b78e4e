/* The optimizer's handle on one rank: what it refuses, groups and values, state as memory, the program's own rules. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/point.h"
#include "bed.h"
#include "zt/list.h"
#include "zt/zt.h"

static const size_t two[] = { 5, 70 };

static zro_param_group group_of(bed *b)
{
    zro_param_group group = { .params = b->params, .n = b->n };

    return group;
}

static double value(const zro_optim *opt, size_t group, const char *name)
{
    double v;

    CHECK_OK(zro_optim_get_value(opt, group, name, &v));
    return v;
}

static zro_slot slot(const zro_optim *opt, size_t param, const char *name)
{
    zro_slot s;

    CHECK_OK(zro_optim_slot(opt, param, name, &s));
    return s;
}

static double number(const zro_optim *opt, size_t param, const char *name)
{
    zro_slot s = slot(opt, param, name);

    CHECK(s.present && s.count == 1 && s.dtype == ZRO_F64);
    return *(double *)s.data;
}

/* ---- creation ---- */

static zro_status try_group(const zro_param_group *group)
{
    zro_optim *opt = (zro_optim *)group;
    zro_status st = zro_optim_create(NULL, group, 1, zro_rule_adam(), NULL, NULL, &opt);

    CHECK(st == ZRO_OK || opt == NULL);
    zro_optim_destroy(opt);
    return st;
}

static void refuses_parameters(zt_rank *t)
{
    static const size_t twice[] = { 0, 1, 0 };
    zro_param_group group;
    zro_optim *opt;
    bed b;

    (void)t;
    bed_init(&b, ZRO_F32, ZRO_F32, two, 2);
    group = group_of(&b);
    CHECK_STATUS(zro_optim_create(NULL, NULL, 1, zro_rule_adam(), NULL, NULL, &opt), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_optim_create(NULL, &group, 0, zro_rule_adam(), NULL, NULL, &opt), ZRO_ERR_INVALID);
    CHECK_TEXT("no parameter groups");
    group.n = 0;
    CHECK_STATUS(try_group(&group), ZRO_ERR_INVALID);
    CHECK_TEXT("none of the 1 parameter groups has parameters");
    group = group_of(&b);
    group.params = NULL;
    CHECK_STATUS(try_group(&group), ZRO_ERR_INVALID);
    group = group_of(&b);
    group.index = twice;
    group.n = 3;
    CHECK_STATUS(try_group(&group), ZRO_ERR_INVALID);
    CHECK_TEXT("parameter 0 is there twice");
    group = group_of(&b);
    b.params[1].name = "wte";
    b.params[1].layout = ZRO_LAYOUT_SPARSE;
    CHECK_STATUS(try_group(&group), ZRO_ERR_INVALID);
    CHECK_TEXT("wte");
    CHECK_TEXT("sparse");
    b.params[1].layout = ZRO_LAYOUT_STRIDED;
    CHECK_STATUS(try_group(&group), ZRO_ERR_INVALID);
    b.params[1].layout = ZRO_LAYOUT_DENSE;
    b.params[1].dtype = ZRO_I32;
    CHECK_STATUS(try_group(&group), ZRO_ERR_UNSUPPORTED);
    CHECK_TEXT("i32");
    b.params[1].dtype = (zro_dtype)77;
    CHECK_STATUS(try_group(&group), ZRO_ERR_INVALID);
    b.params[1].dtype = ZRO_F32;
    b.params[1].n_dims = 9;
    CHECK_STATUS(try_group(&group), ZRO_ERR_INVALID);
    b.params[1].n_dims = 2;
    b.params[1].shape[0] = b.params[1].shape[1] = SIZE_MAX / 2;
    CHECK_STATUS(try_group(&group), ZRO_ERR_INVALID);
    b.params[1].n_dims = 1;
    b.params[1].shape[0] = two[1];
    CHECK_STATUS(try_group(&group), ZRO_ERR_INVALID);
    CHECK_TEXT("wte: shape[1] = 9223372036854775807, but n_dims = 1"); /* n_dims forgotten */
    b.params[1].shape[1] = 0;
    b.params[1].shape[0] = 0; /* the shape forgotten */
    CHECK_STATUS(try_group(&group), ZRO_ERR_INVALID);
    CHECK_TEXT("wte: it has data, but its shape has no elements");
    b.params[1].shape[0] = two[1];
    b.params[1].data = NULL;
    CHECK_STATUS(try_group(&group), ZRO_ERR_INVALID);
    CHECK_TEXT("wte: data is NULL");
    b.params[1].shape[0] = 0; /* nothing is nowhere */
    b.params[1].grad = NULL;
    CHECK_OK(try_group(&group));
    bed_free(&b);
}

/* Every value of every rule: NaN, infinities and what lies beyond its bounds, at creation and later, with name and value. */
static void refuses_values(zt_rank *t)
{
    static const char *const names[] = { "sgd",     "adam",  "adamw", "adagrad", "adadelta", "adamax",
                                         "rmsprop", "rprop", "asgd",  "nadam",   "radam" };
    char text[64];
    bed b;

    (void)t;
    bed_init(&b, ZRO_F32, ZRO_F32, two, 2);
    for (size_t r = 0; r < sizeof names / sizeof *names; r++) {
        const zro_rule *rule = zro_rule_find(names[r]);
        zro_optim *opt = bed_optim(&b, names[r], NULL), *none;

        CHECK(rule != NULL && rule == zro_rule_find(rule->torch));
        for (size_t h = 0; h < rule->n_hypers; h++) {
            const zro_hyper *hyper = &rule->hypers[h];
            double bad[] = { NAN,
                             INFINITY,
                             -INFINITY,
                             hyper->low > -1e300 ? hyper->low - 1 : NAN,
                             hyper->high < 1e300 ? hyper->high + 1 : NAN,
                             hyper->open & ZRO_OPEN_LOW ? hyper->low : NAN,
                             hyper->open & ZRO_OPEN_HIGH ? hyper->high : NAN,
                             hyper->kind == ZRO_FLAG ? 0.5 : NAN };

            CHECK(value(opt, 0, hyper->name) == hyper->init);
            for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
                zro_value v = { hyper->name, bad[i] };
                zro_param_group group = group_of(&b);

                group.values = &v;
                group.n_values = 1;
                CHECK_STATUS(zro_optim_create(NULL, &group, 1, rule, NULL, NULL, &none), ZRO_ERR_INVALID);
                snprintf(text, sizeof text, "%s = %g", hyper->name, bad[i]);
                CHECK_TEXT(text);
                CHECK_STATUS(zro_optim_set_value(opt, 0, hyper->name, bad[i]), ZRO_ERR_INVALID);
                CHECK_TEXT(text);
                CHECK(value(opt, 0, hyper->name) == hyper->init);
            }
        }
        CHECK_STATUS(zro_optim_set_value(opt, 0, "nonsense", 1), ZRO_ERR_INVALID);
        CHECK_TEXT("nonsense");
        CHECK_STATUS(zro_optim_set_value(opt, 0, NULL, 1), ZRO_ERR_INVALID);
        CHECK_STATUS(zro_optim_set_value(opt, 1, "lr", 1), ZRO_ERR_INVALID);
        zro_optim_destroy(opt);
    }
    bed_free(&b);
}

/* The structs are a way to write values: the initializers agree with the tables, and one of another rule is refused. */
static void refuses_configs(zt_rank *t)
{
    zro_adamw_config adamw = ZRO_ADAMW_CONFIG_INIT, by_function;
    zro_sgd_config sgd = ZRO_SGD_CONFIG_INIT;
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_alloc_config alloc = ZRO_ALLOC_CONFIG_INIT;
    zro_param_group group;
    zro_optim *opt;
    bed b;

    (void)t;
    bed_init(&b, ZRO_F32, ZRO_F32, two, 2);
    group = group_of(&b);
    memset(&by_function, 0x55, sizeof by_function);
    zro_adamw_config_init(&by_function);
    CHECK(strcmp(by_function.rule, adamw.rule) == 0);
    by_function.rule = adamw.rule; /* the same text, but perhaps elsewhere */
    CHECK(memcmp(&by_function, &adamw, sizeof adamw) == 0);
    adamw.weight_decay = 0.25;
    adamw.amsgrad = ZRO_ON;
    CHECK_OK(zro_optim_create(NULL, &group, 1, zro_rule_adamw(), &adamw, NULL, &opt));
    CHECK(value(opt, 0, "weight_decay") == 0.25 && value(opt, 0, "amsgrad") == 1 && value(opt, 0, "beta2") == 0.999);
    zro_optim_destroy(opt);
    CHECK_STATUS(zro_optim_create(NULL, &group, 1, zro_rule_adamw(), &sgd, NULL, &opt), ZRO_ERR_INVALID);
    CHECK_TEXT("rule sgd");
    adamw.struct_size = offsetof(zro_adamw_config, amsgrad); /* an older one, which ends before that field */
    CHECK_OK(zro_optim_create(NULL, &group, 1, zro_rule_adamw(), &adamw, NULL, &opt));
    CHECK(value(opt, 0, "weight_decay") == 0.25 && value(opt, 0, "amsgrad") == 0);
    zro_optim_destroy(opt);
    adamw.struct_size = sizeof(size_t);
    CHECK_STATUS(zro_optim_create(NULL, &group, 1, zro_rule_adamw(), &adamw, NULL, &opt), ZRO_ERR_INVALID);
    CHECK_TEXT("adamw: the struct of values has struct_size = 8; begin with its initializer");
    adamw.struct_size = 4097;
    CHECK_STATUS(zro_optim_create(NULL, &group, 1, zro_rule_adamw(), &adamw, NULL, &opt), ZRO_ERR_INVALID);
    CHECK_TEXT("adamw: the struct of values has struct_size = 4097; begin with its initializer");
    adamw.struct_size = sizeof adamw;
    adamw.rule = NULL;
    CHECK_STATUS(zro_optim_create(NULL, &group, 1, zro_rule_adamw(), &adamw, NULL, &opt), ZRO_ERR_INVALID);
    CHECK_TEXT("adamw: the struct of values is that of rule (null)");
    /* Structs that are no rule's: where the name of the rule should be stands anything. */
    CHECK_STATUS(zro_optim_create(NULL, &group, 1, zro_rule_adamw(), &config, NULL, &opt), ZRO_ERR_INVALID);
    CHECK_TEXT("adamw: the struct of values is none");
    CHECK_STATUS(zro_optim_create(NULL, &group, 1, zro_rule_adamw(), &alloc, NULL, &opt), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_optim_create(NULL, &group, 1, zro_rule_find("adamv"), NULL, NULL, &opt), ZRO_ERR_INVALID);
    CHECK_TEXT("zro_rule_none");
    CHECK_STATUS(zro_optim_create(NULL, &group, 1, zro_rule_none(), &sgd, NULL, &opt), ZRO_ERR_INVALID);
    CHECK_TEXT("without a rule there are no values");
    group.n_values = 1;
    CHECK_STATUS(zro_optim_create(NULL, &group, 1, zro_rule_adamw(), NULL, NULL, &opt), ZRO_ERR_INVALID);
    CHECK_TEXT("adamw: values is NULL, but n_values = 1");
    group.n_values = 0;
    sgd.nesterov = ZRO_ON;
    CHECK_STATUS(zro_optim_create(NULL, &group, 1, zro_rule_sgd(), &sgd, NULL, &opt), ZRO_ERR_INVALID);
    CHECK_TEXT("nesterov");
    config.settings.threads = 0;
    CHECK_STATUS(zro_optim_create(NULL, &group, 1, zro_rule_sgd(), NULL, &config, &opt), ZRO_ERR_INVALID);
    zro_optim_config_init(&config);
    config.clip_norm = -1;
    CHECK_STATUS(zro_optim_create(NULL, &group, 1, zro_rule_sgd(), NULL, &config, &opt), ZRO_ERR_INVALID);
    CHECK_TEXT("clip_norm = -1");
    config.clip_norm = 1;
    config.clip_norm_type = 0;
    CHECK_STATUS(zro_optim_create(NULL, &group, 1, zro_rule_sgd(), NULL, &config, &opt), ZRO_ERR_INVALID);
    CHECK_TEXT("clip_norm_type = 0, must be > 0");
    config.clip_norm = 0; /* what is not used is not looked at */
    config.scale_init = config.growth_interval = 0;
    CHECK_OK(zro_optim_create(NULL, &group, 1, zro_rule_sgd(), NULL, &config, &opt));
    zro_optim_destroy(opt);
    config.loss_scale = ZRO_ON;
    config.scale_init = 0x1p-150; /* is 0 in f32 */
    CHECK_STATUS(zro_optim_create(NULL, &group, 1, zro_rule_sgd(), NULL, &config, &opt), ZRO_ERR_INVALID);
    CHECK_TEXT("scale_init = 7.00649e-46");
    config.scale_init = 0x1.ffffffp127; /* is infinite in f32 */
    CHECK_STATUS(zro_optim_create(NULL, &group, 1, zro_rule_sgd(), NULL, &config, &opt), ZRO_ERR_INVALID);
    CHECK_TEXT("scale_init = 3.40282e+38");
    config.scale_init = 0x1.fffffep127;
    CHECK_STATUS(zro_optim_create(NULL, &group, 1, zro_rule_sgd(), NULL, &config, &opt), ZRO_ERR_INVALID);
    CHECK_TEXT("growth_interval = 0");
    zro_optim_config_init(&config);
    config.loss_scale = ZRO_ON;
    config.scale_backoff = 1;
    CHECK_STATUS(zro_optim_create(NULL, &group, 1, zro_rule_sgd(), NULL, &config, &opt), ZRO_ERR_INVALID);
    CHECK_TEXT("scale_backoff = 1");
    zro_optim_config_init(&config);
    config.rounding = ZRO_STOCHASTIC;
    CHECK_STATUS(zro_optim_create(NULL, &group, 1, zro_rule_sgd(), NULL, &config, &opt), ZRO_ERR_INVALID);
    CHECK_TEXT("masters");
    config.struct_size = 1;
    CHECK_STATUS(zro_optim_create(NULL, &group, 1, zro_rule_sgd(), NULL, &config, &opt), ZRO_ERR_INVALID);
    bed_free(&b);
}

/* A gradient that is said to be there and is not: named, and nothing has changed. */
static void refuses_missing_gradient(zt_rank *t)
{
    float before[5];
    zro_optim *opt;
    bed b;

    bed_init(&b, ZRO_F32, ZRO_F32, two, 2);
    bed_fill(&b, &t->random);
    bed_gradients(&b, &t->random, 1, 0);
    opt = bed_optim(&b, "adam", NULL);
    memcpy(before, b.params[0].data, sizeof before);
    b.params[1].grad = NULL;
    CHECK_STATUS(zro_optim_step(opt, NULL), ZRO_ERR_INVALID);
    CHECK_TEXT("parameter 1");
    CHECK(memcmp(before, b.params[0].data, sizeof before) == 0 && !slot(opt, 0, "step").present);
    b.params[1].grad_present = 0;
    CHECK_OK(zro_optim_step(opt, NULL));
    CHECK(number(opt, 0, "step") == 1 && !slot(opt, 1, "step").present);
    b.params[0].data = NULL;
    CHECK_STATUS(zro_optim_step(opt, NULL), ZRO_ERR_INVALID);
    CHECK_TEXT("parameter 0 has a gradient, but its data is NULL");
    zro_optim_destroy(opt);
    b.params[0].shape[0] = 0; /* what has no elements needs no memory */
    b.params[0].grad = NULL;
    opt = bed_optim(&b, "adam", NULL);
    CHECK_OK(zro_optim_step(opt, NULL));
    zro_optim_destroy(opt);
    bed_free(&b);
}

/* What two parameters have in common would be updated twice, also if one comes later; neighbours have nothing in common. */
static void refuses_shared_memory(zt_rank *t)
{
    zro_param_group group;
    zro_optim *opt;
    bed b;

    (void)t;
    bed_init(&b, ZRO_F32, ZRO_F32, two, 2);
    group = group_of(&b);
    b.params[0].name = "head";
    b.params[0].data = (float *)b.params[1].data + two[1] - 1;
    CHECK_STATUS(try_group(&group), ZRO_ERR_INVALID);
    CHECK_TEXT("parameters 1 and head share memory");
    group.n = 1;
    CHECK_OK(zro_optim_create(NULL, &group, 1, zro_rule_adam(), NULL, NULL, &opt));
    group.params = &b.params[1];
    CHECK_STATUS(zro_optim_add_param_group(opt, &group), ZRO_ERR_INVALID);
    CHECK(zro_optim_params(opt) == 1);
    b.params[1].shape[0]--;
    CHECK_OK(zro_optim_add_param_group(opt, &group));
    zro_optim_destroy(opt);
    bed_free(&b);
}

/* Names are copied: a text may need one that the program has freed. */
static void copies_names(zt_rank *t)
{
    char name[] = "wte";
    zro_optim *opt;
    bed b;

    (void)t;
    bed_init(&b, ZRO_F32, ZRO_F32, two, 2);
    b.params[1].name = name;
    opt = bed_optim(&b, "adam", NULL);
    memset(name, 'x', 3);
    b.params[1].name = NULL;
    b.params[1].grad = NULL;
    CHECK_STATUS(zro_optim_step(opt, NULL), ZRO_ERR_INVALID);
    CHECK_TEXT("parameter wte");
    zro_optim_destroy(opt);
    bed_free(&b);
}

/* More parameters than a word has bits, every third without a gradient. */
static void many_absent(zt_rank *t)
{
    enum { MANY = 200 };
    float data[MANY], grad[MANY];
    zro_param params[MANY];
    zro_param_group group = { .params = params, .n = MANY };
    zro_step_info info = ZRO_STEP_INFO_INIT;
    zro_optim *opt;

    (void)t;
    for (int i = 0; i < MANY; i++) {
        zro_param_init(&params[i]);
        params[i].n_dims = 0;
        params[i].data = &data[i];
        zro_param_set_grad(&params[i], &grad[i]);
        data[i] = 0;
        grad[i] = 1;
    }
    CHECK_OK(zro_optim_create(NULL, &group, 1, zro_rule_sgd(), NULL, NULL, &opt));
    CHECK_OK(zro_optim_set_value(opt, 0, "lr", 1));
    CHECK_OK(zro_optim_step(opt, NULL));
    for (int i = 0; i < MANY; i += 3)
        params[i].grad_present = 0;
    CHECK_OK(zro_optim_step(opt, NULL));
    for (int i = 0; i < MANY; i++)
        CHECK(data[i] == (i % 3 == 0 ? -1 : -2));
    CHECK_OK(zro_optim_info(opt, &info));
    CHECK(info.n_updated == MANY - (MANY + 2) / 3 && info.n_steps == 2);
    zro_optim_destroy(opt);
}

/* Thousands of parameters, each of which has its first gradient in another step than its neighbours: every one is as if it were
 * alone. */
static void many_counts(zt_rank *t)
{
    enum { MANY = 5000, CLASSES = 100 };
    zro_param *params = calloc(MANY + CLASSES, sizeof *params), *alone = params + MANY;
    float *data = calloc(MANY + CLASSES, sizeof *data), *grad = calloc(MANY + CLASSES, sizeof *grad);
    zro_param_group group = { .params = params, .n = MANY };
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_optim *all, *one[CLASSES];

    (void)t;
    CHECK(params != NULL && data != NULL && grad != NULL);
    for (int i = 0; i < MANY + CLASSES; i++) {
        zro_param_init(&params[i]);
        params[i].n_dims = 0;
        params[i].data = &data[i];
        params[i].grad = &grad[i];
    }
    config.settings.threads = 2;
    CHECK_OK(zro_optim_create(NULL, &group, 1, zro_rule_adam(), NULL, &config, &all));
    group.n = 1;
    for (int c = 0; c < CLASSES; c++) {
        group.params = &alone[c];
        CHECK_OK(zro_optim_create(NULL, &group, 1, zro_rule_adam(), NULL, NULL, &one[c]));
    }
    for (int s = 0; s < CLASSES; s++) {
        for (int i = 0; i < MANY + CLASSES; i++) {
            grad[i] = (float)(1 + (s * 7 + i % CLASSES) % 13) - 6;
            params[i].grad_present = i % CLASSES <= s;
        }
        CHECK_OK(zro_optim_step(all, NULL));
        for (int c = 0; c < CLASSES; c++)
            CHECK_OK(zro_optim_step(one[c], NULL));
    }
    for (int i = 0; i < MANY; i++)
        CHECK(data[i] == data[MANY + i % CLASSES] && number(all, (size_t)i, "step") == CLASSES - i % CLASSES);
    zro_optim_destroy(all);
    for (int c = 0; c < CLASSES; c++)
        zro_optim_destroy(one[c]);
    free(params);
    free(data);
    free(grad);
}

static void count_idle(void *user, zro_log_level level, const char *text)
{
    *(int *)user += level == ZRO_LOG_WARN && strstr(text, "updated nothing") != NULL;
}

/* Threads do not survive a fork: a child is told so, and one without threads may step. */
static void forked_child(zt_rank *t)
{
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    int idle = 0, status;
    zro_optim *alone, *pool;
    pid_t child;
    bed b;

    (void)t;
    config.settings.log = count_idle;
    config.settings.log_user = &idle;
    bed_init(&b, ZRO_F32, ZRO_F32, two, 2);
    alone = bed_optim(&b, "sgd", &config);
    config.settings.threads = 2;
    pool = bed_optim(&b, "sgd", &config);
    child = fork();
    if (child == 0) {
        int wrong = zro_optim_step(alone, NULL) != ZRO_OK || zro_optim_step(pool, NULL) != ZRO_ERR_STATE
                    || zro_optim_zero_grad(pool, ZRO_ZERO_CLEAR) != ZRO_ERR_STATE;

        zro_optim_destroy(pool); /* which does not wait for threads that are not there */
        _exit(wrong);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK_OK(zro_optim_step(pool, NULL));
    CHECK_OK(zro_optim_zero_grad(pool, ZRO_ZERO_LEAVE));
    for (int i = 0; i < 3; i++) /* said once */
        CHECK_OK(zro_optim_step(pool, NULL));
    CHECK(idle == 1);
    zro_optim_destroy(alone);
    zro_optim_destroy(pool);
    bed_free(&b);
}

/* ---- groups ---- */

/* Two groups at once, one added later, and each in an optimizer of its own: the same. */
static void groups_apart(zt_rank *t)
{
    static const size_t first[] = { 0 }, second[] = { 1 };
    zro_value decay = { "weight_decay", 0.5 };
    bed a, b, c;
    zro_param_group ga[2], gb[2], gc[2];
    zro_optim *at_once, *later, *apart[2];

    bed_init(&a, ZRO_F32, ZRO_F32, two, 2);
    bed_init(&b, ZRO_F32, ZRO_F32, two, 2);
    bed_init(&c, ZRO_F32, ZRO_F32, two, 2);
    for (int i = 0; i < 2; i++) {
        ga[i] = group_of(&a);
        gb[i] = group_of(&b);
        gc[i] = group_of(&c);
        ga[i].n = gb[i].n = gc[i].n = 1;
        ga[i].index = gb[i].index = gc[i].index = i == 0 ? first : second;
        ga[i].values = gb[i].values = gc[i].values = &decay;
        ga[i].n_values = gb[i].n_values = gc[i].n_values = i == 1;
    }
    CHECK_OK(zro_optim_create(NULL, ga, 2, zro_rule_adamw(), NULL, NULL, &at_once));
    CHECK_OK(zro_optim_create(NULL, gb, 1, zro_rule_adamw(), NULL, NULL, &later));
    CHECK_STATUS(zro_optim_add_param_group(later, gb), ZRO_ERR_INVALID);
    CHECK_TEXT("twice");
    CHECK_OK(zro_optim_add_param_group(later, &gb[1]));
    for (int i = 0; i < 2; i++)
        CHECK_OK(zro_optim_create(NULL, &gc[i], 1, zro_rule_adamw(), NULL, NULL, &apart[i]));
    CHECK(zro_optim_groups(later) == 2 && zro_optim_params(later) == 2 && value(later, 1, "weight_decay") == 0.5);
    for (int s = 0; s < 5; s++) {
        uint64_t x = t->seed + (uint64_t)s, y = x, z = x;

        if (s == 3) {
            CHECK_OK(zro_optim_set_value(at_once, 1, "lr", 0.1));
            CHECK_OK(zro_optim_set_value(later, 1, "lr", 0.1));
            CHECK_OK(zro_optim_set_value(apart[1], 0, "lr", 0.1));
        }
        bed_gradients(&a, &x, 1, 0);
        bed_gradients(&b, &y, 1, 0);
        bed_gradients(&c, &z, 1, 0);
        CHECK_OK(zro_optim_step(at_once, NULL));
        CHECK_OK(zro_optim_step(later, NULL));
        CHECK_OK(zro_optim_step(apart[0], NULL));
        CHECK_OK(zro_optim_step(apart[1], NULL));
        CHECK(bed_equal(&a, &b) && bed_equal(&a, &c));
    }
    CHECK(bed_get(a.params[1].data, ZRO_F32, 0) != 0);
    zro_optim_destroy(at_once);
    zro_optim_destroy(later);
    zro_optim_destroy(apart[0]);
    zro_optim_destroy(apart[1]);
    bed_free(&a);
    bed_free(&b);
    bed_free(&c);
}

static void values_as_array(zt_rank *t)
{
    double values[16];
    size_t n;
    zro_optim *opt;
    bed b;

    (void)t;
    bed_init(&b, ZRO_F32, ZRO_F32, two, 2);
    opt = bed_optim(&b, "adam", NULL);
    n = zro_optim_values(opt);
    CHECK(n == 8 && strcmp(zro_optim_value_name(opt, 1), "beta1") == 0 && zro_optim_value_name(opt, n) == NULL);
    CHECK_OK(zro_optim_get_values(opt, 0, values, n));
    CHECK(values[0] == 1e-3 && values[2] == 0.999);
    values[0] = 0.5;
    values[2] = 1; /* not allowed: none of them is set */
    CHECK_STATUS(zro_optim_set_values(opt, 0, values, n), ZRO_ERR_INVALID);
    CHECK(value(opt, 0, "lr") == 1e-3);
    values[2] = 0.5;
    CHECK_OK(zro_optim_set_values(opt, 0, values, n));
    CHECK(value(opt, 0, "lr") == 0.5 && value(opt, 0, "beta2") == 0.5);
    CHECK_STATUS(zro_optim_set_values(opt, 0, values, n - 1), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_optim_get_values(opt, 0, values, n + 1), ZRO_ERR_INVALID);
    zro_optim_destroy(opt);
    bed_free(&b);
}

/* ---- scenarios ---- */

/* New memory for everything, with the data and `like`'s gradients in it; the old memory is gone. */
static void move(bed *b, const bed *like)
{
    for (size_t i = 0; i < b->n; i++) {
        size_t bytes = b->count[i] * b->size;
        void *data = malloc(bytes), *grad = malloc(bytes);

        CHECK(data != NULL && grad != NULL);
        memcpy(data, b->params[i].data, bytes);
        memcpy(grad, like->params[i].grad, bytes);
        memset(b->params[i].data, 0x55, bytes);
        free(b->blocks[2 * i]);
        free(b->blocks[2 * i + 1]);
        b->params[i].data = b->blocks[2 * i] = data;
        b->blocks[2 * i + 1] = grad;
        zro_param_set_grad(&b->params[i], like->params[i].grad_present ? grad : NULL);
    }
}

/* Arrays that move before each step, some gradients absent: equal to those that stay. */
static void repointed(zt_rank *t)
{
    bed fixed, moving;
    zro_optim *x, *y;

    bed_init(&fixed, ZRO_F32, ZRO_F32, two, 2);
    bed_init(&moving, ZRO_F32, ZRO_F32, two, 2);
    x = bed_optim(&fixed, "adamw", NULL);
    y = bed_optim(&moving, "adamw", NULL);
    for (int s = 0; s < 6; s++) {
        bed_gradients(&fixed, &t->random, 1, 0);
        fixed.params[0].grad_present = s % 3 != 1;
        move(&moving, &fixed);
        CHECK_OK(zro_optim_step(x, NULL));
        CHECK_OK(zro_optim_step(y, NULL));
        CHECK(bed_equal(&fixed, &moving));
    }
    CHECK(number(y, 0, "step") == 4 && number(y, 1, "step") == 6);
    zro_optim_destroy(x);
    zro_optim_destroy(y);
    bed_free(&fixed);
    bed_free(&moving);
}

/* A parameter in one call, and gradients that are all there. */
static void made_in_one_call(zt_rank *t)
{
    float data[6] = { 0 }, grad[6] = { 0 };
    zro_param p, bare, expected = ZRO_PARAM_INIT;
    zro_param_group group, empty = ZRO_PARAM_GROUP_INIT;

    (void)t;
    memset(&p, 0x55, sizeof p);
    zro_param_make(&p, "w", ZRO_BF16, data, grad, 2, (const size_t[]){ 2, 3 });
    expected.name = p.name;
    expected.dtype = ZRO_BF16;
    expected.data = data;
    expected.grad = grad;
    expected.grad_present = 1;
    expected.n_dims = 2;
    expected.shape[0] = 2;
    expected.shape[1] = 3;
    CHECK(memcmp(&p, &expected, sizeof p) == 0 && strcmp(p.name, "w") == 0);
    zro_param_make(&bare, NULL, ZRO_F32, NULL, NULL, 0, NULL);
    CHECK(bare.grad_present == 0 && zro_param_count(&bare) == 1);
    zro_param_make(&bare, NULL, ZRO_F32, NULL, NULL, 9, (const size_t[9]){ 1, 1, 1, 1, 1, 1, 1, 1, 1 });
    CHECK(zro_param_count(&bare) == SIZE_MAX); /* refused by whoever takes it */
    p.grad_present = 0;
    zro_params_mark_grads(&p, 1);
    zro_params_mark_grads(&bare, 1);
    zro_params_mark_grads(NULL, 1);
    CHECK(p.grad_present == 1 && bare.grad_present == 0);
    memset(&group, 0x55, sizeof group);
    zro_param_group_init(&group);
    CHECK(memcmp(&group, &empty, sizeof group) == 0);
}

/* Without a rule: the program updates, publish is the step; equal to the same arithmetic as a rule; any type. */
static void without_rule(zt_rank *t)
{
    bed a, b;
    zro_param_group group;
    zro_optim *with, *without;
    zro_slot s;

    bed_init(&a, ZRO_F32, ZRO_F32, two, 2);
    bed_init(&b, ZRO_F32, ZRO_F32, two, 2);
    with = bed_optim(&a, "sgd lr=0.5", NULL);
    group = group_of(&b);
    CHECK_OK(zro_optim_create(NULL, &group, 1, zro_rule_none(), NULL, NULL, &without));
    for (int k = 0; k < 3; k++) {
        uint64_t x = t->seed + (uint64_t)k, y = x;

        bed_gradients(&a, &x, 1, 0);
        bed_gradients(&b, &y, 1, 0);
        CHECK_OK(zro_optim_step(with, NULL));
        for (size_t i = 0; i < b.n; i++)
            for (size_t e = 0; e < b.count[i]; e++)
                ((float *)b.params[i].data)[e] -= 0.5f * ((float *)b.params[i].grad)[e];
        CHECK_OK(zro_optim_step(without, NULL));
        CHECK_OK(zro_optim_publish(without));
        CHECK(bed_equal(&a, &b));
    }
    CHECK(zro_optim_slots(without) == 0 && zro_optim_values(without) == 0 && zro_optim_params(without) == 2);
    CHECK_STATUS(zro_optim_slot(without, 0, "step", &s), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_optim_set_value(without, 0, "lr", 1), ZRO_ERR_INVALID);
    zro_optim_destroy(without);
    b.params[0].dtype = b.params[0].grad_dtype = ZRO_I32;
    CHECK_OK(zro_optim_create(NULL, &group, 1, zro_rule_none(), NULL, NULL, &without));
    CHECK_OK(zro_optim_step(without, NULL));
    zro_optim_destroy(without);
    zro_optim_destroy(with);
    bed_free(&a);
    bed_free(&b);
}

/* Slots are memory at an address that stays; they appear with the first step, or when a value needs them. */
static void state_is_memory(zt_rank *t)
{
    static const size_t one[] = { 9 };
    zro_param_group more;
    zro_slot s, avg, sum;
    bed b, c;
    zro_optim *opt, *sgd, *adagrad, *asgd;

    bed_init(&b, ZRO_F32, ZRO_F32, two, 2);
    bed_init(&c, ZRO_F32, ZRO_F32, one, 1);
    bed_gradients(&b, &t->random, 1, 0);
    opt = bed_optim(&b, "adam", NULL);
    s = slot(opt, 0, "exp_avg");
    CHECK(!s.present && s.data == NULL);
    CHECK(!slot(opt, 0, "max_exp_avg_sq").present && !slot(opt, 0, "step").present);
    CHECK_STATUS(zro_optim_slot(opt, 0, "momentum_buffer", &s), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_optim_slot(opt, 2, "exp_avg", &s), ZRO_ERR_INVALID);
    CHECK_OK(zro_optim_step(opt, NULL));
    avg = slot(opt, 1, "exp_avg");
    CHECK(avg.present && avg.count == two[1] && avg.first == 0 && avg.dtype == ZRO_F32);
    ((float *)avg.data)[3] = 100; /* what the program writes is what the next step reads */
    more = group_of(&c);
    CHECK_OK(zro_optim_add_param_group(opt, &more));
    b.params[0].requires_grad = 0;
    memset(b.params[1].grad, 0, two[1] * sizeof(float));
    CHECK_OK(zro_optim_step(opt, NULL));
    CHECK(slot(opt, 1, "exp_avg").data == avg.data && fabs((double)((float *)avg.data)[3] - 90) < 1e-4);
    CHECK(number(opt, 1, "step") == 2 && number(opt, 0, "step") == 1);
    *(double *)slot(opt, 1, "step").data = 1000;
    CHECK_OK(zro_optim_set_value(opt, 0, "amsgrad", 1));
    CHECK(!slot(opt, 1, "max_exp_avg_sq").present);
    CHECK_OK(zro_optim_step(opt, NULL));
    CHECK(slot(opt, 1, "max_exp_avg_sq").present && number(opt, 1, "step") == 1001);
    sgd = bed_optim(&b, "sgd", NULL);
    CHECK_OK(zro_optim_step(sgd, NULL));
    CHECK(!slot(sgd, 1, "momentum_buffer").present);
    CHECK_OK(zro_optim_set_value(sgd, 0, "momentum", 0.9));
    bed_gradients(&b, &t->random, 1, 0);
    CHECK_OK(zro_optim_step(sgd, NULL));
    s = slot(sgd, 1, "momentum_buffer"); /* its first step copies the gradient */
    CHECK(s.present && memcmp(s.data, b.params[1].grad, two[1] * sizeof(float)) == 0);
    adagrad = bed_optim(&b, "adagrad initial_accumulator_value=0.25", NULL);
    sum = slot(adagrad, 1, "sum");
    CHECK(sum.present && ((float *)sum.data)[two[1] - 1] == 0.25f && number(adagrad, 1, "step") == 0);
    asgd = bed_optim(&b, "asgd lr=0.1", NULL); /* a single number is rounded to the type of the arrays */
    CHECK_OK(zro_optim_step(asgd, NULL));
    CHECK(number(asgd, 1, "eta") == (double)(float)number(asgd, 1, "eta") && number(asgd, 1, "eta") < 0.1);
    zro_optim_destroy(opt);
    zro_optim_destroy(sgd);
    zro_optim_destroy(adagrad);
    zro_optim_destroy(asgd);
    bed_free(&b);
    bed_free(&c);
}

/* ---- gradients and closures ---- */

static void zero_grad(zt_rank *t)
{
    zro_optim *opt;
    bed b;

    bed_init(&b, ZRO_F32, ZRO_F32, two, 2);
    opt = bed_optim(&b, "sgd", NULL);
    bed_gradients(&b, &t->random, 1, 0);
    CHECK_OK(zro_optim_zero_grad(opt, ZRO_ZERO_LEAVE));
    CHECK(bed_get(b.params[1].grad, ZRO_F32, 69) != 0 && b.params[1].grad_present == 0);
    b.params[1].grad_present = 1;
    CHECK_OK(zro_optim_zero_grad(opt, ZRO_ZERO_KEEP));
    for (size_t i = 0; i < two[1]; i++)
        CHECK(bed_get(b.params[1].grad, ZRO_F32, i) == 0);
    CHECK(b.params[1].grad_present == 1 && b.params[0].grad_present == 0);
    bed_gradients(&b, &t->random, 1, 0);
    b.params[1].grad_present = 0; /* what is absent is filled, too: the next backward adds to it */
    CHECK_OK(zro_optim_zero_grad(opt, ZRO_ZERO_CLEAR));
    for (size_t i = 0; i < two[1]; i++)
        CHECK(bed_get(b.params[1].grad, ZRO_F32, i) == 0);
    CHECK(b.params[1].grad_present == 0);
    CHECK_STATUS(zro_optim_zero_grad(opt, (zro_zero_grad)3), ZRO_ERR_INVALID);
    zro_optim_destroy(opt);
    bed_free(&b);
}

static zro_status closure(void *user, double *loss)
{
    bed *b = user;

    if (b->params[0].name != NULL)
        return zro_error_set(ZRO_ERR_SYSTEM, "no data today");
    for (size_t i = 0; i < b->n; i++)
        for (size_t e = 0; e < b->count[i]; e++)
            bed_set(b->params[i].grad, ZRO_F32, e, 2);
    *loss = 1.25;
    return ZRO_OK;
}

static void closures(zt_rank *t)
{
    double loss = 0;
    zro_optim *opt;
    bed b;

    (void)t;
    bed_init(&b, ZRO_F32, ZRO_F32, two, 2);
    opt = bed_optim(&b, "sgd lr=0.5", NULL);
    CHECK_OK(zro_optim_step_closure(opt, closure, &b, NULL, &loss));
    CHECK(loss == 1.25 && bed_get(b.params[1].data, ZRO_F32, 7) == -1);
    CHECK_OK(zro_optim_step_closure(opt, closure, &b, NULL, NULL));
    b.params[0].name = "stop";
    CHECK_STATUS(zro_optim_step_closure(opt, closure, &b, NULL, &loss), ZRO_ERR_SYSTEM);
    CHECK_TEXT("no data today");
    CHECK(bed_get(b.params[1].data, ZRO_F32, 7) == -2);
    CHECK_STATUS(zro_optim_step_closure(opt, NULL, &b, NULL, &loss), ZRO_ERR_INVALID);
    zro_optim_destroy(opt);
    bed_free(&b);
}

/* ---- rules of the program ---- */

typedef struct lion_config {
    size_t struct_size;
    const char *rule;
    double lr, beta;
} lion_config;

enum { LION_LR, LION_BETA, LION_SEEN };

static const zro_hyper lion_values[] = {
    { "lr", ZRO_REAL, 0, 0.5, 0, 10, offsetof(lion_config, lr), NULL },
    { "beta", ZRO_REAL, ZRO_OPEN_HIGH, 0.5, 0, 1, offsetof(lion_config, beta), NULL },
    { "seen", ZRO_REAL, 0, 0, 0, 1e9, 0, NULL }, /* a key of the rule's own, which no struct has */
};

static const zro_slot_spec lion_slots[] = { { "avg", ZRO_SLOT_ARRAY, ZRO_OFF, 0, NULL, NULL } };

static void lion_begin(double *values, size_t group, void *user)
{
    values[LION_SEEN] += user != NULL ? *(double *)user + (double)group : 0;
}

static void lion_prepare(zro_rule_step *s)
{
    s->scalars[0] = s->values[LION_LR];
    s->scalars[1] = s->values[LION_BETA];
}

static void lion_f32(const zro_rule_tile *t)
{
    const float *c = t->scalars, *g = t->grad;
    float *p = t->data, *m = t->slots[0];

    for (size_t i = 0; i < t->count; i++) {
        m[i] = c[1] * m[i] + (1 - c[1]) * g[i];
        p[i] -= c[0] * (float)((m[i] > 0) - (m[i] < 0));
    }
}

static void plus_f32(const zro_rule_tile *t)
{
    for (size_t i = 0; t->slots[0] != NULL && i < t->count; i++)
        ((float *)t->slots[0])[i] += 1;
}

static zro_rule lion(void)
{
    zro_rule rule = { sizeof(zro_rule), "lion", NULL,       lion_values,  3,        lion_slots, 1, sizeof(lion_config),
                      ZRO_OFF,          NULL,   lion_begin, lion_prepare, lion_f32, NULL };

    return rule;
}

static void own_rule(zt_rank *t)
{
    lion_config config = { sizeof config, "lion", 0.25, 0 };
    double user = 3;
    zro_rule rule = lion();
    zro_param_group group;
    zro_optim *opt;
    bed b, d;

    bed_init(&b, ZRO_F32, ZRO_F32, two, 2);
    bed_init(&d, ZRO_F64, ZRO_F64, two, 2);
    bed_gradients(&b, &t->random, 1, 0);
    bed_set(b.params[0].grad, ZRO_F32, 0, -4);
    group = group_of(&b);
    CHECK_OK(zro_optim_create(NULL, &group, 1, &rule, &config, NULL, &opt));
    CHECK_OK(zro_optim_step(opt, &user));
    CHECK_OK(zro_optim_step(opt, &user));
    CHECK(value(opt, 0, "seen") == 6 && bed_get(b.params[0].data, ZRO_F32, 0) == 0.5);
    CHECK_OK(zro_optim_step(opt, NULL));
    CHECK(value(opt, 0, "seen") == 6 && slot(opt, 1, "avg").present);
    user = 1e10; /* the rule leaves its own bounds: refused before anything has changed */
    CHECK_STATUS(zro_optim_step(opt, &user), ZRO_ERR_INVALID);
    CHECK_TEXT("seen");
    CHECK(value(opt, 0, "seen") == 6 && bed_get(b.params[0].data, ZRO_F32, 0) == 0.75);
    zro_optim_destroy(opt);
    group = group_of(&d);
    CHECK_STATUS(zro_optim_create(NULL, &group, 1, &rule, NULL, NULL, &opt), ZRO_ERR_UNSUPPORTED);
    CHECK_TEXT("f64");
    bed_free(&b);
    bed_free(&d);
}

/* Doubles "lr" of every group, and switches the state of the last on. */
static void doubling_begin(double *values, size_t group, void *user)
{
    values[LION_LR] *= 2;
    values[LION_SEEN] = group == 1 && user != NULL ? *(double *)user : 0;
}

/* What a rule changes is taken for all groups or for none, and not in a step that is skipped. */
static void rule_changes_values(zt_rank *t)
{
    static const size_t first[] = { 0 }, second[] = { 1 };
    zro_slot_spec slots[] = { { "avg", ZRO_SLOT_ARRAY, ZRO_OFF, 0, NULL, "seen" } };
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_rule rule = lion();
    zro_param_group groups[2];
    double user = 1e10;
    zro_optim *opt;
    bed b;

    (void)t;
    bed_init(&b, ZRO_F32, ZRO_F32, two, 2);
    groups[0] = groups[1] = group_of(&b);
    groups[0].n = groups[1].n = 1;
    groups[0].index = first;
    groups[1].index = second;
    rule.begin = doubling_begin;
    rule.slots = slots;
    rule.f32 = plus_f32;
    config.skip_non_finite = ZRO_ON;
    CHECK_OK(zro_optim_create(NULL, groups, 2, &rule, NULL, &config, &opt));
    CHECK_STATUS(zro_optim_step(opt, &user), ZRO_ERR_INVALID);
    CHECK(value(opt, 0, "lr") == 0.5 && value(opt, 1, "lr") == 0.5);
    bed_set(b.params[0].grad, ZRO_F32, 0, NAN);
    user = 1;
    CHECK_OK(zro_optim_step(opt, &user));
    CHECK(value(opt, 0, "lr") == 0.5 && !slot(opt, 1, "avg").present);
    bed_set(b.params[0].grad, ZRO_F32, 0, 0);
    CHECK_OK(zro_optim_step(opt, &user));
    CHECK(value(opt, 1, "lr") == 1 && slot(opt, 1, "avg").present && !slot(opt, 0, "avg").present);
    CHECK(bed_get(slot(opt, 1, "avg").data, ZRO_F32, 69) == 1);
    zro_optim_destroy(opt);
    bed_free(&b);
}

/* Divides by the largest gradient of the parameter: it must see all of it at once. */
static void whole_f32(const zro_rule_tile *t)
{
    const float *g = t->grad;
    float *p = t->data, most = 0;

    for (size_t i = 0; i < t->count; i++)
        most = fabsf(g[i]) > most ? fabsf(g[i]) : most;
    for (size_t i = 0; i < t->count; i++)
        p[i] -= g[i] / most;
}

static void whole_rule(zt_rank *t)
{
    static const size_t large[] = { 3, 5000 };
    zro_rule rule = lion();
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_param_group group;
    zro_optim *opt;
    bed b, h;

    rule.whole = ZRO_ON;
    rule.f32 = whole_f32;
    config.settings.threads = 3;
    bed_init(&b, ZRO_F32, ZRO_F32, large, 2);
    bed_init(&h, ZRO_BF16, ZRO_F32, large, 2);
    for (size_t i = 0; i < large[1]; i++) {
        bed_set(b.params[1].grad, ZRO_F32, i, (double)i);
        bed_set(h.params[1].grad, ZRO_F32, i, (double)i);
    }
    b.params[0].grad_present = h.params[0].grad_present = 0;
    group = group_of(&b);
    CHECK_OK(zro_optim_create(NULL, &group, 1, &rule, NULL, &config, &opt));
    CHECK_OK(zro_optim_step(opt, NULL));
    CHECK(bed_get(b.params[1].data, ZRO_F32, 4999) == -1 && bed_get(b.params[1].data, ZRO_F32, 10) == (double)(-10.f / 4999));
    zro_optim_destroy(opt);
    config.clip_value = 100;
    memset(b.params[1].data, 0, large[1] * sizeof(float));
    CHECK_OK(zro_optim_create(NULL, &group, 1, &rule, NULL, &config, &opt));
    CHECK_OK(zro_optim_step(opt, NULL));
    CHECK(bed_get(b.params[1].data, ZRO_F32, 4999) == -1 && bed_get(b.params[1].data, ZRO_F32, 50) == -0.5);
    zro_optim_destroy(opt);
    group = group_of(&h);
    CHECK_OK(zro_optim_create(NULL, &group, 1, &rule, NULL, &config, &opt));
    CHECK_OK(zro_optim_step(opt, NULL));
    CHECK(bed_get(h.params[1].data, ZRO_BF16, 4999) == -1 && bed_get(h.params[1].data, ZRO_BF16, 50) == -0.5);
    zro_optim_destroy(opt);
    bed_free(&b);
    bed_free(&h);
    (void)t;
}

static void refuses_rules(zt_rank *t)
{
    zro_hyper values[3];
    zro_slot_spec slots[2] = { lion_slots[0], lion_slots[0] };
    zro_param_group group;
    zro_rule rule = lion();
    zro_optim *opt;
    bed b;

    (void)t;
    bed_init(&b, ZRO_F32, ZRO_F32, two, 2);
    group = group_of(&b);
    memcpy(values, lion_values, sizeof values);
    rule.struct_size = 8;
    CHECK_STATUS(zro_optim_create(NULL, &group, 1, &rule, NULL, NULL, &opt), ZRO_ERR_INVALID);
    rule = lion();
    rule.name = NULL;
    CHECK_STATUS(zro_optim_create(NULL, &group, 1, &rule, NULL, NULL, &opt), ZRO_ERR_INVALID);
    rule = lion();
    rule.f32 = NULL;
    CHECK_STATUS(zro_optim_create(NULL, &group, 1, &rule, NULL, NULL, &opt), ZRO_ERR_INVALID);
    CHECK_TEXT("no loop");
    rule = lion();
    rule.hypers = values;
    values[1].name = "lr";
    CHECK_STATUS(zro_optim_create(NULL, &group, 1, &rule, NULL, NULL, &opt), ZRO_ERR_INVALID);
    CHECK_TEXT("two values");
    values[1] = lion_values[1];
    values[1].offset = sizeof(lion_config);
    CHECK_STATUS(zro_optim_create(NULL, &group, 1, &rule, NULL, NULL, &opt), ZRO_ERR_INVALID);
    CHECK_TEXT("outside");
    rule = lion();
    rule.slots = slots;
    rule.n_slots = 2;
    CHECK_STATUS(zro_optim_create(NULL, &group, 1, &rule, NULL, NULL, &opt), ZRO_ERR_INVALID);
    CHECK_TEXT("two slots");
    slots[1].name = "other";
    slots[1].only_with = "momentum";
    CHECK_STATUS(zro_optim_create(NULL, &group, 1, &rule, NULL, NULL, &opt), ZRO_ERR_INVALID);
    CHECK_TEXT("does not exist");
    bed_free(&b);
}

static void refuse_rule(bed *b, const zro_rule *rule, const char *text)
{
    zro_param_group group = group_of(b);
    zro_optim *opt;

    CHECK_STATUS(zro_optim_create(NULL, &group, 1, rule, NULL, NULL, &opt), ZRO_ERR_INVALID);
    CHECK_TEXT(text);
}

/* Every check of a table by itself: but for one field it is good. */
static void refuses_fields_of_rules(zt_rank *t)
{
    zro_hyper values[3];
    zro_slot_spec slots[ZRO_MAX_SLOTS + 1];
    char names[ZRO_MAX_SLOTS + 1][2];
    zro_rule rule = lion();
    bed b;

    (void)t;
    bed_init(&b, ZRO_F32, ZRO_F32, two, 2);
    for (size_t i = 0; i <= ZRO_MAX_SLOTS; i++) {
        slots[i] = lion_slots[0];
        slots[i].name = memcpy(names[i], (char[]){ (char)('a' + i), '\0' }, 2);
    }
    rule.name = "";
    refuse_rule(&b, &rule, "the rule has no name");
    rule = lion();
    rule.hypers = NULL;
    refuse_rule(&b, &rule, "rule lion: its list of values or slots is NULL");
    rule = lion();
    rule.slots = NULL;
    refuse_rule(&b, &rule, "rule lion: its list of values or slots is NULL");
    rule = lion();
    rule.config_bytes = 4;
    refuse_rule(&b, &rule, "rule lion: \"lr\" lies outside of the struct of values");
    rule = lion();
    rule.hypers = values;
    for (int fault = 0; fault < 3; fault++) {
        static const char *const texts[] = { "value 1 has no name", "value \"beta\" is neither a number nor a flag",
                                             "\"beta\" lies outside of the struct of values" };

        memcpy(values, lion_values, sizeof values);
        values[1].name = fault == 0 ? "" : values[1].name;
        values[1].kind = fault == 1 ? (zro_hyper_kind)7 : values[1].kind;
        values[1].offset = fault == 2 ? sizeof(size_t) : values[1].offset;
        refuse_rule(&b, &rule, texts[fault]);
    }
    rule = lion();
    rule.slots = slots;
    rule.n_slots = ZRO_MAX_SLOTS + 1;
    refuse_rule(&b, &rule, "rule lion: 9 slots, at most 8 are possible");
    rule.n_slots = 2;
    slots[1].name = "";
    refuse_rule(&b, &rule, "rule lion: slot 1 has no name of its own");
    slots[1].name = "master";
    refuse_rule(&b, &rule, "rule lion: slot 1 has no name of its own");
    slots[1].name = "b";
    slots[1].kind = (zro_slot_kind)7;
    refuse_rule(&b, &rule, "rule lion: slot \"b\" is no array, number or count");
    slots[1].kind = ZRO_SLOT_ARRAY;
    slots[1].init_value = "gamma";
    refuse_rule(&b, &rule, "rule lion: slot \"b\" refers to a value that does not exist");
    bed_free(&b);
}

/* Values of a rule's own: finite whatever its bounds are, from no struct if it has none, and listed by whole names. */
static void values_of_own_rule(zt_rank *t)
{
    enum { MANY = 8, LENGTH = 60 };
    lion_config config = { sizeof config, "lion", 0.25, 0 };
    zro_hyper values[MANY];
    char names[MANY][LENGTH + 1];
    zro_param_group group;
    zro_rule rule = lion();
    zro_optim *opt;
    bed b;

    (void)t;
    bed_init(&b, ZRO_F32, ZRO_F32, two, 2);
    group = group_of(&b);
    memcpy(values, lion_values, sizeof lion_values);
    for (size_t i = 0; i < 3; i++) {
        values[i].offset = 0;
        values[i].low = -INFINITY;
        values[i].high = INFINITY;
    }
    rule.hypers = values;
    rule.config_bytes = 0;
    CHECK_STATUS(zro_optim_create(NULL, &group, 1, &rule, &config, NULL, &opt), ZRO_ERR_INVALID);
    CHECK_TEXT("lion: the rule has no struct of values");
    CHECK_OK(zro_optim_create(NULL, &group, 1, &rule, NULL, NULL, &opt));
    CHECK_STATUS(zro_optim_set_value(opt, 0, "lr", INFINITY), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_optim_set_value(opt, 0, "lr", -INFINITY), ZRO_ERR_INVALID);
    CHECK_TEXT("lion: lr = -inf, must be finite");
    zro_optim_destroy(opt);
    for (size_t i = 0; i < MANY; i++) {
        values[i] = values[0];
        memset(names[i], (int)('a' + i), LENGTH);
        names[i][LENGTH] = '\0';
        values[i].name = names[i];
    }
    rule.n_hypers = MANY;
    rule.begin = NULL;
    CHECK_OK(zro_optim_create(NULL, &group, 1, &rule, NULL, NULL, &opt));
    CHECK_STATUS(zro_optim_set_value(opt, 0, "lr", 1), ZRO_ERR_INVALID);
    CHECK(strcmp(zro_last_error() + strlen(zro_last_error()) - LENGTH, names[3]) == 0); /* as many as fit */
    zro_optim_destroy(opt);
    bed_free(&b);
}

static void sparing_prepare(zro_rule_step *s)
{
    if (s->user != NULL)
        s->scalars[0] = 1;
}

static void sparing_f32(const zro_rule_tile *t)
{
    const float *c = t->scalars;

    plus_f32(t);
    for (size_t i = 0; i < t->count; i++)
        ((float *)t->data)[i] += c[0];
}

/* What the header promises to rules: scalars that are not set are 0, arrays that the values do not need are NULL, also after a
 * group that needs them, and numbers that exist from creation on begin with their first values. */
static void rules_find_nothing_old(zt_rank *t)
{
    static const size_t first[] = { 0 }, second[] = { 1 };
    const zro_slot_spec slots[] = { { "avg", ZRO_SLOT_ARRAY, ZRO_OFF, 0, NULL, "seen" },
                                    { "level", ZRO_SLOT_NUMBER, ZRO_ON, 3, NULL, NULL } };
    const zro_value on = { "seen", 1 };
    zro_rule rule = lion();
    zro_param_group groups[2];
    zro_optim *opt;
    bed b;

    bed_init(&b, ZRO_F32, ZRO_F32, two, 2);
    groups[0] = groups[1] = group_of(&b);
    groups[0].n = groups[1].n = 1;
    groups[0].index = second;
    groups[1].index = first;
    groups[0].values = &on;
    groups[0].n_values = 1;
    rule.begin = NULL;
    rule.prepare = sparing_prepare;
    rule.f32 = sparing_f32;
    rule.slots = slots;
    rule.n_slots = 2;
    CHECK_OK(zro_optim_create(NULL, groups, 2, &rule, NULL, NULL, &opt));
    CHECK(number(opt, 0, "level") == 3);
    CHECK_OK(zro_optim_step(opt, t));
    CHECK_OK(zro_optim_step(opt, NULL));
    CHECK(bed_get(b.params[0].data, ZRO_F32, 0) == 1 && bed_get(slot(opt, 0, "avg").data, ZRO_F32, 0) == 2);
    zro_optim_destroy(opt);
    bed_free(&b);
}

/* A slot that the values need no more is a part of the state, is loaded, and goes on where it was. */
static void loads_slots_that_rest(zt_rank *t)
{
    zro_optim *opt[2];
    zro_state *state;
    bed a, b;

    bed_init(&a, ZRO_F32, ZRO_F32, two + 1, 1);
    bed_fill(&a, &t->random);
    bed_gradients(&a, &t->random, 1, 0);
    opt[0] = bed_optim(&a, "adam amsgrad=1", NULL);
    CHECK_OK(zro_optim_step(opt[0], NULL));
    CHECK_OK(zro_optim_set_value(opt[0], 0, "amsgrad", 0));
    CHECK_OK(zro_optim_consolidate(opt[0], ZRO_ALL, &state));
    bed_split(&b, &a, two + 1, 1);
    opt[1] = bed_optim(&b, "adam", NULL);
    CHECK_OK(zro_optim_load(opt[1], state));
    zro_state_destroy(state);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(zro_optim_set_value(opt[i], 0, "amsgrad", 1));
        memset(i == 0 ? a.params[0].grad : b.params[0].grad, 0, two[1] * sizeof(float)); /* the largest stays the first one */
        CHECK_OK(zro_optim_step(opt[i], NULL));
    }
    CHECK(bed_equal(&a, &b));
    CHECK(bed_equal_arrays(slot(opt[0], 0, "max_exp_avg_sq").data, slot(opt[1], 0, "max_exp_avg_sq").data, ZRO_F32, two[1]));
    zro_optim_destroy(opt[0]);
    zro_optim_destroy(opt[1]);
    bed_free(&a);
    bed_free(&b);
}

/* One group of parameters of all types, in turn, computes what groups of each type do. */
static void types_in_one_group(zt_rank *t)
{
    enum { TYPES = 4, EACH = 2 };
    static const zro_dtype types[TYPES] = { ZRO_F32, ZRO_F64, ZRO_BF16, ZRO_F16 };
    static const size_t counts[EACH] = { 70, 70 };
    zro_param mixed[TYPES * EACH];
    zro_param_group group = { .params = mixed, .n = TYPES * EACH };
    bed alone[TYPES], together[TYPES];
    zro_optim *opt;

    for (size_t k = 0; k < TYPES; k++) {
        bed_init(&alone[k], types[k], types[k], counts, EACH);
        bed_fill(&alone[k], &t->random);
        bed_gradients(&alone[k], &t->random, 1, 0);
        bed_init(&together[k], types[k], types[k], counts, EACH);
        for (size_t i = 0; i < EACH; i++) {
            memcpy(together[k].params[i].data, alone[k].params[i].data, counts[i] * alone[k].size);
            memcpy(together[k].params[i].grad, alone[k].params[i].grad, counts[i] * alone[k].grad_size);
            mixed[i * TYPES + k] = together[k].params[i];
        }
        opt = bed_optim(&alone[k], "adam", NULL);
        CHECK_OK(zro_optim_step(opt, NULL));
        CHECK_OK(zro_optim_step(opt, NULL));
        zro_optim_destroy(opt);
    }
    CHECK_OK(zro_optim_create(NULL, &group, 1, zro_rule_adam(), NULL, NULL, &opt));
    CHECK_OK(zro_optim_step(opt, NULL));
    CHECK_OK(zro_optim_step(opt, NULL));
    zro_optim_destroy(opt);
    for (size_t k = 0; k < TYPES; k++) {
        CHECK(bed_equal(&alone[k], &together[k]));
        bed_free(&alone[k]);
        bed_free(&together[k]);
    }
}

/* ---- memory ---- */

/* The nth allocation fails, for every n: an error, nothing is left (the sanitizers look), and what existed is as it was. */
static void allocations_fail(zt_rank *t)
{
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    static const size_t one[] = { 300 };
    zro_param_group groups[2];
    bed b, c;
    int done = 0;

    config.settings.threads = 2;
    bed_init(&b, ZRO_BF16, ZRO_F32, two, 2);
    bed_init(&c, ZRO_F32, ZRO_F32, one, 1);
    groups[0] = group_of(&b);
    groups[1] = group_of(&c);
    for (long n = 1; !done; n++) {
        zro__point_plan plan = { .name = "memory.alloc", .action = ZRO__POINT_FAIL, .nth = n };
        zro_optim *opt;
        zro_status st;
        size_t had;

        zro__point_plan_set(&plan);
        st = zro_optim_create(NULL, groups, 1, zro_rule_adam(), NULL, &config, &opt);
        if (st == ZRO_OK) {
            st = zro_optim_add_param_group(opt, &groups[1]);
            had = zro_optim_groups(opt);
            CHECK(st == ZRO_OK ? had == 2 : had == 1);
            if (st == ZRO_OK)
                st = zro_optim_set_value(opt, 0, "amsgrad", 1);
            CHECK(value(opt, 0, "amsgrad") == (st == ZRO_OK));
        }
        done = st == ZRO_OK;
        zro__point_plan_set(NULL);
        if (st != ZRO_OK)
            CHECK(st == ZRO_ERR_MEMORY && strstr(zro_last_error(), "out of memory") != NULL);
        if (opt != NULL)
            CHECK_OK(zro_optim_step(opt, NULL));
        zro_optim_destroy(opt);
        CHECK(n < 200);
    }
    bed_free(&b);
    bed_free(&c);
    (void)t;
}

static void count_point(void *user, const char *name)
{
    *(long *)user += strcmp(name, "memory.alloc") == 0;
}

static void step_allocates_nothing(zt_rank *t)
{
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    long allocations = 0;
    zro__point_plan plan = { .action = ZRO__POINT_LIST, .seen = count_point, .user = &allocations };
    zro_optim *opt;
    bed b;

    config.loss_scale = ZRO_ON;
    config.clip_norm = 1;
    bed_init(&b, ZRO_BF16, ZRO_F32, two, 2);
    bed_gradients(&b, &t->random, 1, 0);
    opt = bed_optim(&b, "adam amsgrad=1", &config);
    zro__point_plan_set(&plan);
    for (int s = 0; s < 3; s++)
        CHECK_OK(zro_optim_step(opt, NULL));
    CHECK_OK(zro_optim_zero_grad(opt, ZRO_ZERO_CLEAR));
    CHECK_OK(zro_optim_set_value(opt, 0, "lr", 0.5));
    zro__point_plan_set(NULL);
    CHECK(allocations == 0);
    zro_optim_destroy(opt);
    bed_free(&b);
}

static void null_handles(zt_rank *t)
{
    zro_step_info info = ZRO_STEP_INFO_INIT;
    double v;

    (void)t;
    zro_optim_destroy(NULL);
    CHECK_STATUS(zro_optim_step(NULL, NULL), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_optim_publish(NULL), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_optim_zero_grad(NULL, ZRO_ZERO_CLEAR), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_optim_get_value(NULL, 0, "lr", &v), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_optim_info(NULL, &info), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_clip_grad_value(NULL, 1), ZRO_ERR_INVALID);
    CHECK(zro_optim_groups(NULL) == 0 && zro_optim_params(NULL) == 0 && zro_optim_values(NULL) == 0
          && zro_optim_slots(NULL) == 0);
    CHECK(zro_rule_find(NULL) == NULL && zro_rule_find("Adafactor") == NULL);
}

const zt_case cases_optim_optimizer[] = {
    { "S07_refuses_parameters", refuses_parameters, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "optim_refuses_values", refuses_values, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "optim_refuses_configs", refuses_configs, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "optim_refuses_missing_gradient", refuses_missing_gradient, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "optim_refuses_shared_memory", refuses_shared_memory, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "optim_copies_names", copies_names, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "optim_many_absent", many_absent, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "optim_many_counts", many_counts, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "optim_forked_child", forked_child, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "S14_groups_apart", groups_apart, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "optim_values_as_array", values_as_array, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "S54_repointed", repointed, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "optim_made_in_one_call", made_in_one_call, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "S55_without_rule", without_rule, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "S56_state_is_memory", state_is_memory, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "S06_zero_grad", zero_grad, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "optim_closures", closures, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "S03_own_rule", own_rule, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "optim_rule_changes_values", rule_changes_values, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "optim_whole_rule", whole_rule, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "optim_refuses_rules", refuses_rules, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "optim_refuses_fields_of_rules", refuses_fields_of_rules, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "optim_values_of_own_rule", values_of_own_rule, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "optim_rules_find_nothing_old", rules_find_nothing_old, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "optim_loads_slots_that_rest", loads_slots_that_rest, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "optim_types_in_one_group", types_in_one_group, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "optim_allocations_fail", allocations_fail, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "optim_step_allocates_nothing", step_allocates_nothing, 0, ZT_BOTH, 0, 0, 0, 0 },
    { "optim_null_handles", null_handles, 0, ZT_BOTH, 0, 0, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
