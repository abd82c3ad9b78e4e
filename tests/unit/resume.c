/* What a state has beside slots: the data of parameters, the positions of schedules, numbers of the program's own.  Schedules of
 * every kind go on from where they were, with the same bits; what does not fit is refused before anything changes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/point.h"
#include "zero/state.h"
#include "zro.h"

#define LENGTH(array) (sizeof(array) / sizeof *(array))
#define OK(call) assert_int_equal(call, ZRO_OK)

#define REFUSED(call, code, words)                                                                                             \
    do {                                                                                                                       \
        assert_int_equal(call, code);                                                                                          \
        if (strstr(zro_last_error(), words) == NULL)                                                                           \
            fail_msg("the text is \"%s\", without \"%s\"", zro_last_error(), words);                                           \
    } while (0)

/* ---- a small training ---- */

enum { GROUPS = 2, MOST = 2 };

typedef struct training {
    zro_param params[GROUPS];
    float data[GROUPS][3], grad[GROUPS][3];
    zro_optim *optim;
    zro_schedule *schedules[MOST];
    size_t n_schedules;
    unsigned warnings;
    char warning[256];
} training;

static void note_line(void *user, zro_log_level level, const char *text)
{
    training *t = user;

    if (level == ZRO_LOG_WARN && (strstr(text, "schedule") != NULL || strstr(text, "number") != NULL)) {
        t->warnings++;
        snprintf(t->warning, sizeof t->warning, "%s", text);
    }
}

/* Two groups with a learning rate each. */
static void begin(training *t, double lr)
{
    static const char *const names[GROUPS] = { "w", "b" };
    const zro_value values[GROUPS] = { { "lr", lr }, { "lr", lr / 3 } };
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_param_group groups[GROUPS];

    memset(t, 0, sizeof *t);
    config.settings.log = note_line;
    config.settings.log_user = t;
    for (size_t i = 0; i < GROUPS; i++) {
        zro_param_make(&t->params[i], names[i], ZRO_F32, t->data[i], t->grad[i], 1, (const size_t[]){ 3 });
        zro_param_group_init(&groups[i]);
        groups[i].params = &t->params[i];
        groups[i].n = 1;
        groups[i].values = &values[i];
        groups[i].n_values = 1;
        t->data[i][0] = 1;
        t->grad[i][1] = 1;
    }
    OK(zro_optim_create(NULL, groups, GROUPS, zro_rule_adam(), NULL, &config, &t->optim));
}

static void end(training *t)
{
    for (size_t i = 0; i < t->n_schedules; i++)
        zro_schedule_destroy(t->schedules[i]);
    zro_optim_destroy(t->optim);
}

/* Getting better, worse, and better than ever, in turns. */
static double metric_at(int step)
{
    static const double metrics[] = { 5, 4, 4.5, 4.2, 4.1, 4.3, 3, 3.5, 3.6, 3.7, -HUGE_VAL, 0, 1 };

    return metrics[step % (int)LENGTH(metrics)];
}

static void step(training *t, int s)
{
    OK(zro_optim_step(t->optim, NULL));
    for (size_t i = 0; i < t->n_schedules; i++) /* one that is stepped the wrong way says so and does nothing */
        if (zro_schedule_step(t->schedules[i]) != ZRO_OK)
            OK(zro_schedule_step_metric(t->schedules[i], metric_at(s)));
}

/* The state with all that there is, through a file's bytes. */
static zro_state *saved(training *t)
{
    zro_state *state, *again;
    void *bytes;
    size_t n;

    OK(zro_optim_consolidate_with_data(t->optim, 0, &state));
    OK(zro_state_set_schedules(state, t->schedules, t->n_schedules));
    OK(zro_state_pack(state, &bytes, &n));
    zro_state_destroy(state);
    OK(zro_state_unpack(bytes, n, &again));
    zro_bytes_free(bytes);
    return again;
}

static void check_same(const training *a, const training *b)
{
    assert_memory_equal(a->data, b->data, sizeof a->data);
    for (size_t g = 0; g < GROUPS; g++) {
        double x[16], y[16];

        OK(zro_optim_get_values(a->optim, g, x, zro_optim_values(a->optim)));
        OK(zro_optim_get_values(b->optim, g, y, zro_optim_values(b->optim)));
        assert_memory_equal(x, y, zro_optim_values(a->optim) * sizeof *x);
    }
}

/* ---- schedules of every kind ---- */

static double by_steps(void *user, size_t group, uint64_t steps)
{
    (void)user;
    return 1 / (1 + (double)group + (double)steps);
}

static void make_step_lr(zro_optim *o, zro_schedule **out)
{
    OK(zro_schedule_step_lr(o, 3, 0.7, out));
}

static void make_multi_step(zro_optim *o, zro_schedule **out)
{
    OK(zro_schedule_multi_step(o, (const uint64_t[]){ 2, 5, 5, 9, UINT64_MAX }, 5, 0.5, out));
}

static void make_exponential(zro_optim *o, zro_schedule **out)
{
    OK(zro_schedule_exponential(o, 0.9, out));
}

static void make_polynomial(zro_optim *o, zro_schedule **out)
{
    OK(zro_schedule_polynomial(o, 12, 1.7, out));
}

static void make_cosine(zro_optim *o, zro_schedule **out)
{
    OK(zro_schedule_cosine(o, 6, 1e-3, out));
}

static void make_restarts(zro_optim *o, zro_schedule **out)
{
    OK(zro_schedule_cosine_restarts(o, 2, 2, 1e-3, out));
}

static void make_far_restarts(zro_optim *o, zro_schedule **out)
{
    OK(zro_schedule_cosine_restarts(o, 3, UINT64_MAX, 1e-3, out));
}

static void make_linear(zro_optim *o, zro_schedule **out)
{
    OK(zro_schedule_linear(o, 0.25, 1, 8, out));
}

static void make_constant(zro_optim *o, zro_schedule **out)
{
    OK(zro_schedule_constant(o, 0.3, 7, out));
}

static void make_one_cycle(zro_optim *o, zro_schedule **out)
{
    zro_one_cycle_config config = ZRO_ONE_CYCLE_CONFIG_INIT;

    config.max_lr = 0.5;
    config.total_steps = 40;
    config.three_phase = ZRO_ON;
    OK(zro_schedule_one_cycle(o, &config, out));
}

static void make_plateau(zro_optim *o, zro_schedule **out)
{
    zro_plateau_config config = ZRO_PLATEAU_CONFIG_INIT;

    config.factor = 0.5;
    config.patience = 2;
    config.cooldown = 2;
    OK(zro_schedule_plateau(o, &config, out));
}

static void make_lambda(zro_optim *o, zro_schedule **out)
{
    OK(zro_schedule_lambda(o, by_steps, NULL, out));
}

static void make_chained(zro_optim *o, zro_schedule **out)
{
    zro_schedule *parts[2];

    make_constant(o, &parts[0]);
    make_exponential(o, &parts[1]);
    OK(zro_schedule_chained(parts, 2, out));
}

/* A tree of three levels, whose parts begin at different steps. */
static void make_sequential(zro_optim *o, zro_schedule **out)
{
    zro_schedule *parts[4];

    make_linear(o, &parts[0]);
    make_chained(o, &parts[1]);
    make_restarts(o, &parts[2]);
    make_lambda(o, &parts[3]);
    OK(zro_schedule_sequential(parts, 4, (const uint64_t[]){ 4, 9, 14 }, out));
}

typedef void (*make_fn)(zro_optim *optim, zro_schedule **out);

static const struct {
    const char *kind;
    make_fn make;
} kinds[] = {
    { "step_lr", make_step_lr },         { "multi_step", make_multi_step },
    { "exponential", make_exponential }, { "polynomial", make_polynomial },
    { "cosine", make_cosine },           { "cosine_restarts", make_restarts },
    { "linear", make_linear },           { "cosine_restarts", make_far_restarts },
    { "constant", make_constant },       { "one_cycle", make_one_cycle },
    { "plateau", make_plateau },         { "lambda", make_lambda },
    { "chained", make_chained },         { "sequential", make_sequential },
};

static void add(training *t, make_fn make)
{
    make(t->optim, &t->schedules[t->n_schedules++]);
}

/* Saved after `at` steps and put into another training, whose optimizer began otherwise, both go on alike. */
static void goes_on(make_fn make, make_fn second, int at)
{
    zro_state *state;
    training a, b;

    begin(&a, 0.1);
    begin(&b, 0.7);
    add(&a, make);
    if (second != NULL)
        add(&a, second);
    for (int s = 0; s < at; s++)
        step(&a, s);
    state = saved(&a);
    assert_int_equal(zro_state_schedules(state), a.n_schedules);
    add(&b, make);
    if (second != NULL)
        add(&b, second);
    OK(zro_optim_load(b.optim, state));
    OK(zro_schedules_load(b.schedules, b.n_schedules, state));
    zro_state_destroy(state);
    check_same(&a, &b);
    for (int s = at; s < at + 12; s++) {
        step(&a, s);
        step(&b, s);
        check_same(&a, &b);
    }
    assert_int_equal(b.warnings, 0);
    end(&a);
    end(&b);
}

static void S93_every_kind_goes_on(void **state)
{
    (void)state;
    for (size_t k = 0; k < LENGTH(kinds); k++)
        for (int at = 0; at < 16; at++)
            goes_on(kinds[k].make, NULL, at);
}

static void S93_two_go_on(void **state)
{
    (void)state;
    for (int at = 0; at < 16; at += 3) {
        goes_on(make_sequential, make_plateau, at);
        goes_on(make_plateau, make_cosine, at);
    }
}

/* ---- what is refused ---- */

static double lr_of(const training *t)
{
    double lr;

    OK(zro_optim_get_value(t->optim, 0, "lr", &lr));
    return lr;
}

/* A training whose state has an exponential and a step_lr schedule after 3 steps. */
static zro_state *two_schedules(training *a)
{
    begin(a, 0.1);
    add(a, make_exponential);
    add(a, make_step_lr);
    for (int s = 0; s < 3; s++)
        step(a, s);
    return saved(a);
}

static void S93_others_are_refused(void **state)
{
    zro_schedule *parts[2], *whole;
    training a, b;
    zro_state *s = two_schedules(&a);

    (void)state;
    begin(&b, 0.1);
    REFUSED(zro_schedules_load(NULL, 2, s), ZRO_ERR_INVALID, "the list of 2 schedules is NULL");
    REFUSED(zro_schedules_load(b.schedules, 1, s), ZRO_ERR_INVALID, "schedules[0] is NULL");
    REFUSED(zro_schedules_load(b.schedules, 0, s), ZRO_ERR_INVALID, "positions of 2 schedules, but there are 0");
    REFUSED(zro_schedules_load(b.schedules, 0, NULL), ZRO_ERR_STATE, "no state");
    add(&b, make_step_lr);
    add(&b, make_exponential);
    REFUSED(zro_schedules_load(b.schedules, 2, s), ZRO_ERR_INVALID, "schedule_step_lr: in its place the state has exponential");
    end(&b);
    begin(&b, 0.1);
    OK(zro_schedule_exponential(b.optim, 0.9, &parts[0]));
    OK(zro_schedule_step_lr(b.optim, 4, 0.7, &parts[1]));
    REFUSED(zro_schedules_load(parts, 2, s), ZRO_ERR_INVALID, "schedule_step_lr: step_size = 3 in the state, 4 here");
    OK(zro_schedule_step(parts[0])); /* which is where it was: at its first step */
    assert_true(lr_of(&b) == 0.1 * 0.9);
    OK(zro_schedule_chained(parts, 2, &whole));
    REFUSED(zro_schedules_load(parts, 2, s), ZRO_ERR_INVALID, "a chained schedule has taken over");
    REFUSED(zro_state_set_schedules(s, parts, 1), ZRO_ERR_INVALID, "a chained schedule has taken over");
    REFUSED(zro_schedules_load(&whole, 1, s), ZRO_ERR_INVALID, "positions of 2 schedules, but there are 1");
    assert_int_equal(zro_state_schedules(s), 2); /* as it was */
    OK(zro_state_set_schedules(s, &whole, 1));
    assert_int_equal(zro_state_schedules(s), 1);
    OK(zro_schedules_load(&whole, 1, s));
    zro_schedule_destroy(whole);
    OK(zro_state_set_schedules(s, NULL, 0));
    assert_int_equal(zro_state_schedules(s), 0);
    OK(zro_schedules_load(NULL, 0, s));
    end(&b);
    end(&a);
    zro_state_destroy(s);
}

/* Numbers of a file that a resume does not ask for are named, those that it asks for are not. */
static void S93_numbers_left_out_are_told(void **state)
{
    static const char *const expected[] = {
        "optim_resume: the file has 2 numbers that the program did not ask for: epoch, seed; list what it saves in "
        "zro_save_config.numbers when it resumes, too",
        "optim_resume: the file has 1 number that the program did not ask for: seed; list what it saves in "
        "zro_save_config.numbers when it resumes, too",
        "",
    };
    zro_value numbers[2] = { { "epoch", 3 }, { "seed", 7 } };
    zro_save_config with = ZRO_SAVE_CONFIG_INIT;
    char path[] = "/tmp/zro-unit-resume-XXXXXX";
    const int fd = mkstemp(path);
    training t;

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    begin(&t, 0.1);
    with.numbers = numbers;
    with.n_numbers = 2;
    OK(zro_optim_save(t.optim, path, &with));
    for (size_t n = 0; n <= 2; n++) {
        t.warning[0] = '\0';
        with.n_numbers = n;
        OK(zro_optim_resume(t.optim, path, &with));
        assert_string_equal(t.warning, expected[n]);
        assert_int_equal(t.warnings, n < 2 ? n + 1 : 2);
    }
    assert_int_equal(unlink(path), 0);
    end(&t);
}

/* Children and groups are counted. */
static void S93_other_trees_are_refused(void **state)
{
    zro_schedule *parts[3], *of_two, *of_three;
    float more = 0;
    zro_param param;
    zro_param_group group = ZRO_PARAM_GROUP_INIT;
    training a, b;
    zro_state *s;

    (void)state;
    begin(&a, 0.1);
    begin(&b, 0.1);
    make_exponential(a.optim, &parts[0]);
    make_exponential(a.optim, &parts[1]);
    OK(zro_schedule_chained(parts, 2, &of_two));
    a.schedules[a.n_schedules++] = of_two;
    s = saved(&a);
    for (int i = 0; i < 3; i++)
        make_exponential(b.optim, &parts[i]);
    OK(zro_schedule_chained(parts, 3, &of_three));
    REFUSED(zro_schedules_load(&of_three, 1, s), ZRO_ERR_INVALID, "it has taken over 2 schedules in the state, 3 here");
    zro_schedule_destroy(of_three);
    zro_param_make(&param, "more", ZRO_F32, &more, NULL, 0, NULL);
    group.params = &param;
    group.n = 1;
    OK(zro_optim_add_param_group(b.optim, &group));
    make_exponential(b.optim, &parts[0]);
    make_exponential(b.optim, &parts[1]);
    OK(zro_schedule_chained(parts, 2, &of_two));
    REFUSED(zro_schedules_load(&of_two, 1, s), ZRO_ERR_INVALID, "n_groups = 2 in the state, 3 here");
    zro_schedule_destroy(of_two);
    zro_state_destroy(s);
    end(&a);
    end(&b);
}

/* Every argument of every kind is compared, and every number of a position must be there. */
static void S93_every_number_counts(void **state)
{
    size_t compared = 0;

    (void)state;
    for (size_t k = 0; k < LENGTH(kinds); k++) {
        zro_state *s;
        training t;

        begin(&t, 0.1);
        add(&t, kinds[k].make);
        step(&t, 0);
        s = saved(&t);
        for (size_t i = 0; i < s->n_positions; i++) {
            const double before = s->positions[i].value;
            char *name = s->texts[s->positions[i].name / ZRO__STATE_TEXT_BYTES] + s->positions[i].name % ZRO__STATE_TEXT_BYTES;

            s->positions[i].value = NAN; /* neither an argument nor a position */
            REFUSED(zro_schedules_load(t.schedules, 1, s), ZRO_ERR_INVALID, name);
            s->positions[i].value = before;
            name[0]++;
            REFUSED(zro_schedules_load(t.schedules, 1, s), ZRO_ERR_INVALID, "the state does not have its ");
            name[0]--;
            compared++;
        }
        OK(zro_schedules_load(t.schedules, 1, s));
        zro_state_destroy(s);
        end(&t);
    }
    assert_true(compared > 100);
}

static void set_position(zro_state *s, const char *name, double value)
{
    for (size_t i = 0; i < s->n_positions; i++)
        if (strcmp(zro__state_text(s, s->positions[i].name), name) == 0)
            s->positions[i].value = value;
}

static void S93_positions_that_cannot_be(void **state)
{
    static const struct {
        make_fn make;
        const char *name;
        double value;
        const char *words;
    } cases[] = {
        { make_cosine, "steps", -1, "steps = -1 in the state, must be an integer" },
        { make_cosine, "steps", 0.5, "steps = 0.5 in the state, must be an integer" },
        { make_cosine, "steps", HUGE_VAL, "steps = inf in the state, must be an integer" },
        { make_one_cycle, "steps", 41, "must be at most total_steps = 40" },
        { make_restarts, "cycle_length", 0, "must be below cycle_length = 0" },
        { make_restarts, "cycle_steps", 2, "must be below cycle_length = 2" },
        { make_restarts, "cycle_length", 1, "and that at least t_0" },
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        zro_state *s;
        training t;

        begin(&t, 0.1);
        add(&t, cases[i].make);
        s = saved(&t);
        set_position(s, cases[i].name, cases[i].value);
        REFUSED(zro_schedules_load(t.schedules, 1, s), ZRO_ERR_INVALID, cases[i].words);
        zro_state_destroy(s);
        end(&t);
    }
}

/* ---- schedules from before the load ---- */

/* What is loaded over a schedule without its position says so once; what is as it must be says nothing. */
static void S93_an_old_schedule_warns(void **state)
{
    training a, b;
    zro_state *s;

    (void)state;
    begin(&a, 0.1);
    add(&a, make_cosine);
    for (int i = 0; i < 3; i++)
        step(&a, i);
    s = saved(&a);
    begin(&b, 0.1);
    add(&b, make_cosine);
    OK(zro_optim_load(b.optim, s));
    assert_int_equal(b.warnings, 0);
    step(&b, 0);
    step(&b, 1);
    assert_int_equal(b.warnings, 1);
    assert_non_null(strstr(b.warning, "schedule_cosine was made before a state was loaded"));
    assert_non_null(strstr(b.warning, "its position is from before the load"));
    assert_non_null(strstr(b.warning, "zro_schedules_load"));
    end(&b);
    begin(&b, 0.1); /* stepped there by the program */
    add(&b, make_cosine);
    for (int i = 0; i < 3; i++)
        OK(zro_schedule_step(b.schedules[0]));
    OK(zro_optim_load(b.optim, s));
    step(&b, 3);
    assert_int_equal(b.warnings, 0);
    end(&b);
    begin(&b, 0.2); /* the same, but it began from another lr */
    add(&b, make_cosine);
    for (int i = 0; i < 3; i++)
        OK(zro_schedule_step(b.schedules[0]));
    OK(zro_optim_load(b.optim, s));
    step(&b, 3);
    assert_int_equal(b.warnings, 1);
    assert_non_null(strstr(b.warning, "its first lr is from before the load"));
    end(&b);
    begin(&b, 0.1); /* made after the load */
    OK(zro_optim_load(b.optim, s));
    add(&b, make_exponential);
    step(&b, 3);
    assert_int_equal(b.warnings, 0);
    end(&b);
    zro_state_destroy(s);
    end(&a);
}

/* ---- data and numbers ---- */

static zro_param shaped(const char *name, zro_dtype dtype, uint32_t n_dims, size_t a, size_t b)
{
    zro_param p = ZRO_PARAM_INIT;

    p.name = name;
    p.dtype = dtype;
    p.n_dims = n_dims;
    p.shape[0] = a;
    p.shape[1] = b;
    return p;
}

/* Parameters of many shapes and types; every second one, and the last, has data. */
static zro_state *with_data(void)
{
    const zro_param params[] = {
        shaped("w", ZRO_F32, 2, 2, 3),        shaped(NULL, ZRO_BF16, 1, 5, 0),  shaped("scalar", ZRO_F64, 0, 0, 0),
        shaped("i", ZRO_I8, 1, 7, 0),         shaped("none", ZRO_F32, 2, 0, 5), shaped("x:0:y", ZRO_F32, 1, 1, 0),
        shaped("step:0:i", ZRO_F16, 1, 3, 0),
    };
    unsigned char bytes[64];
    zro_state *s;

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 5 + 1);
    OK(zro_state_create("mine", &s));
    OK(zro_state_add_group(s, NULL, 0));
    for (size_t i = 0; i < LENGTH(params); i++) {
        OK(zro_state_add_param(s, &params[i]));
        if (i % 2 == 1)
            OK(zro_state_add_slot(s, i, "exp_avg", ZRO_F32, NULL, 1));
        if (i % 2 == 0)
            OK(zro_state_add_data(s, i, bytes + i));
    }
    return s;
}

static void check_data(const zro_state *a, const zro_state *b)
{
    assert_int_equal(zro_state_bytes(a), zro_state_bytes(b));
    for (size_t i = 0; i < zro_state_params(a); i++) {
        zro_param p, q;

        OK(zro_state_param(a, i, &p));
        OK(zro_state_param(b, i, &q));
        assert_int_equal(p.data != NULL, i % 2 == 0);
        assert_int_equal(q.data != NULL, i % 2 == 0);
        if (p.data != NULL && zro_param_count(&p) > 0)
            assert_memory_equal(p.data, q.data, zro_param_count(&p) * zro_dtype_bytes(p.dtype));
        assert_int_equal(zro_state_slots(a, i), zro_state_slots(b, i));
    }
}

static void data_and_numbers_go_round(void **state)
{
    static const double numbers[] = { 3, -0.0, 0.1, 1e300, 9007199254740993.0, HUGE_VAL, -HUGE_VAL, NAN };
    zro_state *s = with_data(), *t;
    void *bytes, *again;
    size_t n, m;
    char name[40];

    (void)state;
    for (size_t i = 0; i < LENGTH(numbers); i++) {
        snprintf(name, sizeof name, "number %zu: \"\\", i);
        OK(zro_state_set_number(s, name, 7));
        OK(zro_state_set_number(s, name, numbers[i]));
    }
    OK(zro_state_pack(s, &bytes, &n));
    OK(zro_state_unpack(bytes, n, &t));
    check_data(s, t);
    for (size_t i = 0; i < LENGTH(numbers); i++) {
        double value = 1;

        snprintf(name, sizeof name, "number %zu: \"\\", i);
        OK(zro_state_get_number(t, name, &value));
        assert_true(isnan(numbers[i]) ? isnan(value) : memcmp(&value, &numbers[i], sizeof value) == 0);
    }
    OK(zro_state_pack(t, &again, &m));
    assert_int_equal(n, m);
    assert_memory_equal(bytes, again, n);
    zro_bytes_free(bytes);
    zro_bytes_free(again);
    zro_state_destroy(s);
    zro_state_destroy(t);
}

static int contains(const char *bytes, size_t n, const char *text)
{
    for (size_t i = 0; i + strlen(text) <= n; i++)
        if (memcmp(bytes + i, text, strlen(text)) == 0)
            return 1;
    return 0;
}

/* Readers of models find a parameter under its name. */
static void the_file_is_one_of_a_model(void **state)
{
    zro_state *s = with_data();
    void *bytes;
    size_t n;

    (void)state;
    OK(zro_state_pack(s, &bytes, &n));
    assert_true(contains(bytes, n, "\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],"));
    assert_true(contains(bytes, n, "\"scalar\":{\"dtype\":\"F64\",\"shape\":[],"));
    assert_true(contains(bytes, n, "\"exp_avg:0:1\":{"));
    zro_bytes_free(bytes);
    zro_state_destroy(s);
}

static void what_cannot_be_added(void **state)
{
    zro_state *s = with_data();
    zro_param p = shaped("exp_avg:0:w", ZRO_F32, 1, 2, 0);
    double value;
    void *bytes;
    size_t n;
    char name[16];

    (void)state;
    REFUSED(zro_state_add_data(s, 0, NULL), ZRO_ERR_INVALID, "has the data of parameter w already");
    REFUSED(zro_state_add_data(s, 7, NULL), ZRO_ERR_INVALID, "parameter = 7, the state has 7");
    REFUSED(zro_state_add_data(NULL, 0, NULL), ZRO_ERR_STATE, "no state");
    REFUSED(zro_state_get_number(s, "epoch", &value), ZRO_ERR_INVALID, "no number named \"epoch\"");
    REFUSED(zro_state_get_number(s, NULL, &value), ZRO_ERR_INVALID, "name is NULL");
    REFUSED(zro_state_get_number(s, "epoch", NULL), ZRO_ERR_INVALID, "value is NULL");
    REFUSED(zro_state_get_number(NULL, "epoch", &value), ZRO_ERR_STATE, "no state");
    REFUSED(zro_state_set_number(s, "", 1), ZRO_ERR_INVALID, "the name of a number is empty");
    REFUSED(zro_state_set_number(NULL, "epoch", 1), ZRO_ERR_STATE, "no state");
    REFUSED(zro_state_set_schedules(NULL, NULL, 0), ZRO_ERR_STATE, "no state");
    for (int i = 0; i < 256; i++) {
        snprintf(name, sizeof name, "%d", i);
        OK(zro_state_set_number(s, name, i));
    }
    OK(zro_state_set_number(s, "7", 8));
    REFUSED(zro_state_set_number(s, "epoch", 1), ZRO_ERR_INVALID, "at most 256 numbers");
    OK(zro_state_add_param(s, &p)); /* without data it is fine: there is no tensor of this name */
    OK(zro_state_add_slot(s, 0, "exp_avg", ZRO_F32, NULL, 6));
    OK(zro_state_pack(s, &bytes, &n));
    zro_bytes_free(bytes);
    OK(zro_state_add_data(s, 7, NULL));
    REFUSED(zro_state_pack(s, &bytes, &n), ZRO_ERR_INVALID, "two tensors would be named exp_avg:0:w");
    zro_state_destroy(s);
    s = with_data();
    p.name = "__metadata__";
    OK(zro_state_add_param(s, &p));
    OK(zro_state_pack(s, &bytes, &n));
    zro_bytes_free(bytes);
    OK(zro_state_add_data(s, 7, NULL));
    REFUSED(zro_state_pack(s, &bytes, &n), ZRO_ERR_INVALID, "no tensor can be named __metadata__");
    zro_state_destroy(s);
}

/* ---- files ---- */

/* A file with this metadata, in which ' stands for ", these tensors, and zeros as data. */
static zro_status unpack(const char *json, const char *tensors, size_t data_bytes, zro_state **out)
{
    static char bytes[8192];
    size_t n = 8 + (size_t)snprintf(bytes + 8, sizeof bytes - 8, "{\"__metadata__\":{\"zro\":\"");

    memset(bytes, 0, 8);
    for (; *json != '\0'; json++) {
        if (*json == '\'')
            bytes[n++] = '\\';
        bytes[n++] = *json == '\'' ? '"' : *json;
    }
    n += (size_t)snprintf(bytes + n, sizeof bytes - n, "\"}%s}", tensors);
    bytes[0] = (char)((n - 8) & 0xff);
    bytes[1] = (char)((n - 8) >> 8);
    memset(bytes + n, 0, data_bytes);
    return zro_state_unpack(bytes, n + data_bytes, out);
}

#define WITH(data, more)                                                                                                       \
    "{'format':1,'rule':'adam','groups':[{'lr':1,'params':[0]}],'params':[{'name':'w','shape':[2,3],'dtype':'f32'" data        \
    "}]" more "}"
#define W(dtype, shape, bytes) ",\"w\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[0," bytes "]}"

static void broken_files_are_named(void **state)
{
    static const struct {
        const char *json, *tensors;
        size_t data_bytes;
        const char *words; /* NULL: good */
    } cases[] = {
        { WITH(",'data':true", ""), W("F32", "[2,3]", "24"), 24, NULL },
        { WITH(",'data':false", ""), "", 0, NULL },
        { WITH("", ",'schedules':[],'numbers':{}"), "", 0, NULL },
        { WITH("", ",'schedules':[{'kind':'mine','a':[1,'inf'],'b':2.5}],'numbers':{'x':'nan','y':1}"), "", 0, NULL },
        { WITH("", ",'schedules':[{'kind':'a','children':2},{'kind':'b','children':1},{'kind':'c'},{'kind':'d'}]"), "", 0,
          NULL },
        { WITH(",'data':true", ""), "", 0, "tensor w, with the data of the parameter, is missing" },
        { WITH(",'data':1", ""), "", 0, "parameter 0: data is an integer, must be true or false" },
        { WITH("", ""), W("F32", "[2,3]", "24"), 24, "must be <slot>:0:<parameter>" },
        { WITH(",'data':true", ""), W("F32", "[3,2]", "24"), 24, "tensor w: its shape is not that of its parameter" },
        { WITH(",'data':true", ""), W("F32", "[]", "4"), 4, "tensor w: its shape is not that of its parameter" },
        { WITH(",'data':true", ""), W("I32", "[2,3]", "24"), 24, "tensor w: its type is i32, its parameter's f32" },
        { WITH(",'data':true", ""), W("F32", "[2,3]", "24"), 23, "but there are 23 bytes" },
        { WITH("", ",'schedules':{}"), "", 0, "schedules is an object, must be a list" },
        { WITH("", ",'schedules':[7]"), "", 0, "schedule 0: kind is missing" },
        { WITH("", ",'schedules':[{'kind':1}]"), "", 0, "schedule 0: kind is an integer" },
        { WITH("", ",'schedules':[{'kind':''}]"), "", 0, "the name of a schedule's kind is empty" },
        { WITH("", ",'schedules':[{'kind':'a','x':true}]"), "", 0, "schedule 0: x is true, must be a number" },
        { WITH("", ",'schedules':[{'kind':'a','x':['1']}]"), "", 0, "schedule 0: x:0 is a text, must be a number" },
        { WITH("", ",'schedules':[{'kind':'a','x:0':1}]"), "", 0, "schedule 0: the name x:0 must not contain ':'" },
        { WITH("", ",'schedules':[{'kind':'a','':1}]"), "", 0, "the name of a schedule's number is empty" },
        { WITH("", ",'schedules':[{'kind':'a','children':-1}]"), "", 0, "children must be an integer" },
        { WITH("", ",'schedules':[{'kind':'a','children':1}]"), "", 0, "are missing after the last of 1" },
        { WITH("", ",'schedules':[{'kind':'a','children':2},{'kind':'b'}]"), "", 0, "are missing after the last of 2" },
        { WITH("", ",'schedules':[{'kind':'a','children':2147483647},{'kind':'b','children':2147483647}]"), "", 0, "missing" },
        { WITH("", ",'numbers':[]"), "", 0, "numbers is a list, must be an object" },
        { WITH("", ",'numbers':{'a':null}"), "", 0, "numbers: a is null, must be a number" },
        { WITH("", ",'numbers':{'':1}"), "", 0, "the name of a number is empty" },
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        zro_state *s = NULL;
        zro_status st = unpack(cases[i].json, cases[i].tensors, cases[i].data_bytes, &s);

        if (cases[i].words == NULL) {
            assert_int_equal(st, ZRO_OK);
            zro_state_destroy(s);
            continue;
        }
        REFUSED(st, ZRO_ERR_FORMAT, cases[i].words);
        assert_null(s);
    }
}

/* A file from before schedules and data were in it: it loads, and leaves the parameters alone. */
static void S93_a_state_without_more_loads(void **state)
{
    training a, b;
    zro_state *s, *t;
    void *bytes;
    size_t n;

    (void)state;
    begin(&a, 0.1);
    step(&a, 0);
    OK(zro_optim_consolidate(a.optim, 0, &s));
    OK(zro_state_pack(s, &bytes, &n));
    assert_false(contains(bytes, n, "schedules"));
    assert_false(contains(bytes, n, "numbers"));
    assert_false(contains(bytes, n, "data\\\""));
    OK(zro_state_unpack(bytes, n, &t));
    begin(&b, 0.7);
    OK(zro_optim_load(b.optim, t));
    assert_true(b.data[0][0] == 1 && b.data[0][1] == 0 && lr_of(&b) == 0.1);
    zro_bytes_free(bytes);
    zro_state_destroy(s);
    zro_state_destroy(t);
    end(&a);
    end(&b);
}

#ifdef ZRO__POINTS

/* Of any allocation that fails; the state is as before. */
static void memory_that_runs_out(void **state)
{
    zro__point_plan plan = { .name = "memory.alloc", .action = ZRO__POINT_FAIL };
    zro_state *s, *t = NULL;
    zro_status st = ZRO_ERR_MEMORY;
    training a;
    void *bytes;
    size_t n;

    (void)state;
    begin(&a, 0.1);
    add(&a, make_sequential);
    for (plan.nth = 1; st != ZRO_OK; plan.nth++) { /* everything, from a new state on */
        bytes = NULL;
        s = with_data();
        zro__point_plan_set(&plan);
        atomic_store(&plan.hits, 0);
        st = zro_state_set_schedules(s, a.schedules, 1);
        if (st == ZRO_OK)
            st = zro_state_set_number(s, "epoch", 1);
        if (st == ZRO_OK)
            st = zro_state_add_data(s, 1, NULL);
        if (st == ZRO_OK)
            st = zro_state_pack(s, &bytes, &n);
        if (st == ZRO_OK)
            st = zro_state_unpack(bytes, n, &t);
        zro__point_plan_set(NULL);
        assert_true(st == ZRO_OK || st == ZRO_ERR_MEMORY);
        zro_state_destroy(s);
        zro_bytes_free(bytes);
    }
    assert_true(plan.nth > 8);
    assert_int_equal(zro_state_schedules(t), 1);
    OK(zro_schedules_load(a.schedules, 1, t));
    zro_state_destroy(t);
    end(&a);
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(S93_every_kind_goes_on),         cmocka_unit_test(S93_two_go_on),
        cmocka_unit_test(S93_others_are_refused),         cmocka_unit_test(S93_other_trees_are_refused),
        cmocka_unit_test(S93_numbers_left_out_are_told),  cmocka_unit_test(S93_every_number_counts),
        cmocka_unit_test(S93_positions_that_cannot_be),   cmocka_unit_test(S93_an_old_schedule_warns),
        cmocka_unit_test(data_and_numbers_go_round),      cmocka_unit_test(the_file_is_one_of_a_model),
        cmocka_unit_test(what_cannot_be_added),           cmocka_unit_test(broken_files_are_named),
        cmocka_unit_test(S93_a_state_without_more_loads),
#ifdef ZRO__POINTS
        cmocka_unit_test(memory_that_runs_out),
#endif
    };

    return cmocka_run_group_tests_name("resume", tests, NULL, NULL);
}
