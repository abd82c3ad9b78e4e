/* Joins: ranks run out of inputs one after another, and what comes out has the bits of the pure reference, which knows who had inputs
 * when.
 *
 *     S42_pairs   where gradients lie and who consumes them x unused parameters x clipping, loss scale x accumulation x divisor x
 *                 schedules x partitions x who runs out when x overlap: all pairs, two epochs each
 *     S18_own     a sharded optimizer alone, and a joinable of the program's own that sets its gradients
 *     S82_pipe    inputs come from pipes, and how many there are follows from the training itself
 *     S51_join    two optimizers, stepped in any order, with clipping and with a hook
 *
 * and what a program may do besides, or do wrong. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "course.h"
#include "model.h"
#include "pairs.h"
#include "rig.h"
#include "zt/list.h"
#include "zt/zt.h"

enum { MODE, GRAPH, FIRST, ACCUMULATES, DIVIDES, SCHEDULED, PARTITION, INPUTS, OVERLAP, FACTORS };
enum { PLAIN_GRAPH, FIND_UNUSED, STATIC_GRAPH };
enum { NOTHING_FIRST, CLIPS, SCALES };
enum { INITIAL, REMAINING, WEIGHTED };
enum { UP, DOWN, NOT_THE_FIRST, ONLY_THE_LAST, EVEN, PATTERNS };

/* How many inputs a rank has in an epoch. */
static int count_inputs(const zt_rank *t, int pattern, int rank)
{
    const int counts[] = { 2 + rank, 1 + t->size - rank, rank == 0 && t->size > 1 ? 0 : 3, rank == t->size - 1 ? 4 : 0, 3 };

    return counts[pattern];
}

static int most_inputs(const zt_rank *t, int pattern)
{
    int most = 0;

    for (int r = 0; r < t->size; r++)
        most = count_inputs(t, pattern, r) > most ? count_inputs(t, pattern, r) : most;
    return most;
}

typedef struct epoch {
    course *c;
    const unsigned char *point;
    int pattern;
    zro_schedule *schedule, *expected; /* or NULL */
} epoch;

/* Whether a step comes after this input. */
static int is_step(const epoch *e, int input)
{
    return e->point[ACCUMULATES] == 0 || input % 2 == 1;
}

/* Who has an input, and what it uses. */
static void set_uses(const epoch *e, int input)
{
    course *c = e->c;

    for (int r = 0; r < c->t->size; r++) {
        c->joined[r] = input >= count_inputs(c->t, e->pattern, r);
        memset(c->uses[r], !c->joined[r], sizeof c->uses[r]);
        if (e->point[GRAPH] == FIND_UNUSED)
            c->uses[r][(size_t)(input + r) % c->n] = 0;
        if (e->point[GRAPH] == STATIC_GRAPH)
            c->uses[r][1] = 0;
        if (e->point[DIVIDES] == WEIGHTED)
            c->samples[r] = 1 + (r + input) % 3;
    }
}

static void set_frozen(const epoch *e, int input)
{
    if (e->point[GRAPH] == PLAIN_GRAPH && e->point[ACCUMULATES] == 0)
        e->c->params[2].requires_grad = input % 3 != 1;
}

static void step_reference(const epoch *e)
{
    course_expect(e->c);
    CHECK_OK(zro_optim_step(e->c->reference, NULL));
    CHECK_OK(zro_optim_zero_grad(e->c->reference, ZRO_ZERO_LEAVE));
    if (e->expected != NULL)
        CHECK_OK(zro_schedule_step(e->expected));
    memset(e->c->has, 0, sizeof e->c->has);
}

static void step(const epoch *e)
{
    course *c = e->c;

    CHECK_OK(zro_optim_step(c->optim, NULL));
    if (!course_attaches(c))
        CHECK_OK(zro_optim_zero_grad(c->optim, ZRO_ZERO_LEAVE));
    if (e->schedule != NULL)
        CHECK_OK(zro_schedule_step(e->schedule));
    step_reference(e);
    course_check(c);
}

static void train_on(const epoch *e, int input)
{
    course *c = e->c;

    set_uses(e, input);
    set_frozen(e, input);
    CHECK_OK(zro_ddp_no_sync(c->ddp, is_step(e, input) ? ZRO_OFF : ZRO_ON));
    if (e->point[DIVIDES] == WEIGHTED)
        CHECK_OK(zro_ddp_set_weight(c->ddp, c->samples[c->t->rank]));
    course_backward(c);
    if (is_step(e, input))
        step(e);
}

/* What the reference does meanwhile. */
static void catch_up(const epoch *e, int input)
{
    set_uses(e, input);
    set_frozen(e, input);
    course_batch(e->c);
    if (is_step(e, input))
        step_reference(e);
}

static void check_values(const epoch *e)
{
    double mine, expected;

    for (size_t i = 0; i < zro_optim_values(e->c->optim); i++) {
        const char *name = zro_optim_value_name(e->c->optim, i);

        CHECK_OK(zro_optim_get_value(e->c->optim, 0, name, &mine));
        CHECK_OK(zro_optim_get_value(e->c->reference, 0, name, &expected));
        CHECK(mine == expected);
    }
}

/* The program's loop over inputs, and what follows it.  A micro-batch that no step came after is lost at the end of an epoch. */
static void run_epoch(epoch *e, zro_join *join)
{
    course *c = e->c;
    const int mine = count_inputs(c->t, e->pattern, c->t->rank);

    for (int i = 0; i < mine; i++)
        train_on(e, i);
    CHECK_OK(zro_join_run(join));
    for (int i = mine; i < most_inputs(c->t, e->pattern); i++)
        catch_up(e, i);
    memset(c->has, 0, sizeof c->has);
    CHECK_OK(zro_optim_zero_grad(c->optim, ZRO_ZERO_LEAVE));
    course_check(c);
    check_values(e);
}

static void create(course *c, zt_rank *t, const unsigned char *point)
{
    static const zro_partition partitions[] = { ZRO_PARTITION_FLAT, ZRO_PARTITION_GREEDY, ZRO_PARTITION_BUCKETS };
    zro_plan_config plan = ZRO_PLAN_CONFIG_INIT;
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;

    course_init(c, t, (course_mode)point[MODE], 8);
    c->config.find_unused = point[GRAPH] == FIND_UNUSED ? ZRO_ON : ZRO_OFF;
    c->config.static_graph = point[GRAPH] == STATIC_GRAPH ? ZRO_ON : ZRO_OFF;
    c->config.weighted = point[DIVIDES] == WEIGHTED ? ZRO_ON : ZRO_OFF;
    c->divides_by_rest = point[DIVIDES] == REMAINING;
    plan.partition = partitions[point[PARTITION]];
    config.plan = &plan;
    config.clip_norm = point[FIRST] == CLIPS ? 1.5 : 0;
    config.loss_scale = point[FIRST] == SCALES ? ZRO_ON : ZRO_OFF;
    config.growth_interval = 2;
    config.overlap = (zro_overlap)point[OVERLAP];
    course_create(c, "adam lr=0.01", &config);
}

static zro_join *create_join(const zt_rank *t, const course *c, zro_divide_by divide_by)
{
    zro_join_config config = ZRO_JOIN_CONFIG_INIT;
    zro_joinable list[2];
    zro_join *join;

    config.divide_by = divide_by;
    CHECK_OK(zro_ddp_joinable(c->ddp, &list[0]));
    CHECK_OK(zro_optim_joinable(c->optim, &list[1]));
    CHECK_OK(zro_join_create(t->group, list, 2, &config, &join));
    return join;
}

static void train_point(zt_rank *t, const unsigned char *point)
{
    course *c = malloc(sizeof *c);
    epoch e = { .c = c, .point = point };
    zro_join *join;

    CHECK(c != NULL);
    create(c, t, point);
    if (point[SCHEDULED]) {
        CHECK_OK(zro_schedule_cosine(c->optim, 7, 1e-4, &e.schedule));
        CHECK_OK(zro_schedule_cosine(c->reference, 7, 1e-4, &e.expected));
    }
    join = create_join(t, c, point[DIVIDES] == REMAINING ? ZRO_REMAINING_RANKS : ZRO_INITIAL_RANKS);
    for (int k = 0; k < 2; k++) {
        e.pattern = (point[INPUTS] + k) % PATTERNS;
        run_epoch(&e, join);
    }
    zro_join_destroy(join);
    zro_schedule_destroy(e.schedule);
    zro_schedule_destroy(e.expected);
    CHECK_OK(zro_barrier(t->group));
    course_free(c);
    free(c);
}

static int is_allowed(const unsigned char *point)
{
    const int attaches = point[MODE] != COURSE_ALONE && point[MODE] != COURSE_SHARDED;

    return (point[DIVIDES] != WEIGHTED || point[MODE] != COURSE_HOOK) /* hooks see gradients without weights */
           && (attaches || point[OVERLAP] == ZRO_OVERLAP_OFF);
}

static void S42_pairs(zt_rank *t)
{
    static const int levels[FACTORS] = { COURSE_MODES, 3, 3, 2, 3, 2, 3, PATTERNS, 3 };
    const pairs_space space = { FACTORS, levels, is_allowed };
    uint64_t random = t->seed;
    pairs_point points[100];
    const int n = pairs_sample(&space, &random, points, 100);

    for (int i = 0; i < n; i++) {
        if (zt_opt.verbose && t->rank == 0)
            printf("mode %d graph %d first %d accumulates %d divides %d scheduled %d partition %d inputs %d "
                   "overlap %d\n",
                   points[i][0], points[i][1], points[i][2], points[i][3], points[i][4], points[i][5], points[i][6],
                   points[i][7], points[i][8]);
        train_point(t, points[i]);
    }
    if (t->rank == 0)
        zt_note(t, "%d points", n);
}

/* ---- programs with a model of their own ---- */

/* A model under a ddp with an optimizer; rank r has 2 + r inputs unless a test says otherwise. */
typedef struct trainee {
    model m;
    float running[4]; /* a buffer of the model */
    zro_param buffer;
    zro_ddp *ddp;
    zro_optim *optim;
} trainee;

enum { ATTACHED, SHARDED, UNSHARDED, AFTER_LAST, INTERLEAVED };

static int is_attached(int kind)
{
    return kind != SHARDED && kind != UNSHARDED;
}

static void trainee_init(trainee *e, zt_rank *t, int kind)
{
    zro_ddp_config config = ZRO_DDP_CONFIG_INIT;
    zro_optim_config c = ZRO_OPTIM_CONFIG_INIT;
    zro_param_group group;

    memset(e, 0, sizeof *e);
    model_init(&e->m);
    zro_param_init(&e->buffer);
    e->buffer.data = e->running;
    e->buffer.shape[0] = 4;
    config.buffers = &e->buffer;
    config.n_buffers = 1;
    CHECK_OK(zro_ddp_create(t->group, e->m.params, MODEL_PARAMS, &config, &e->ddp));
    c.ddp = is_attached(kind) ? e->ddp : NULL;
    c.overlap = kind == AFTER_LAST ? ZRO_OVERLAP_AFTER_LAST : kind == INTERLEAVED ? ZRO_OVERLAP_INTERLEAVED : ZRO_OVERLAP_OFF;
    group = model_group(&e->m);
    CHECK_OK(zro_optim_create(kind == UNSHARDED ? NULL : t->group, &group, 1, zro_rule_adam(), NULL, &c, &e->optim));
}

static void trainee_free(trainee *e)
{
    zro_optim_destroy(e->optim);
    zro_ddp_destroy(e->ddp);
}

static zro_join *join_over(zt_rank *t, trainee *e, const zro_join_config *config)
{
    zro_joinable list[2];
    zro_join *join;

    CHECK_OK(zro_ddp_joinable(e->ddp, &list[0]));
    CHECK_OK(zro_optim_joinable(e->optim, &list[1]));
    CHECK_OK(zro_join_create(t->group, list, 2, config, &join));
    return join;
}

static zro_status iterate(trainee *e, zt_rank *t, int input)
{
    zro_status st = zro_ddp_forward(e->ddp);

    if (st != ZRO_OK)
        return st;
    (void)model_run(&e->m, t->rank, input);
    for (size_t i = MODEL_PARAMS; i-- > 0;)
        CHECK_OK(zro_ddp_grad_ready(e->ddp, i));
    st = zro_ddp_backward_end(e->ddp);
    if (st == ZRO_OK)
        st = zro_optim_step(e->optim, NULL);
    return st == ZRO_OK ? zro_optim_zero_grad(e->optim, ZRO_ZERO_LEAVE) : st;
}

/* ---- S18 ---- */

/* Sets the gradients of a sharded optimizer: the average of what the ranks have. */
typedef struct setter {
    model *m;
    zro_group *group;
    int shadowed, posts, was_last;
    int32_t n_active;
} setter;

static zro_status set_gradients(void *user, const zro_join_info *info)
{
    setter *s = user;

    s->shadowed++;
    s->n_active = info->n_active;
    CHECK(info->is_active == 0 && info->ranks == zro_group_size(s->group) && info->settings == s->group);
    for (size_t i = 0; i < MODEL_PARAMS; i++)
        s->m->params[i].grad_present = 0;
    return zro_params_all_reduce(s->group, s->m->params, MODEL_PARAMS, ZRO_AVG);
}

static zro_status after(void *user, const zro_join_info *info, int is_last)
{
    setter *s = user;

    CHECK(info->n_active == 0 && info->is_active == is_last && info->highest == zro_group_size(s->group) - 1);
    s->posts++;
    s->was_last = is_last;
    return ZRO_OK;
}

static void S18_own(zt_rank *t)
{
    trainee *truth = malloc(sizeof *truth);
    model *m = malloc(sizeof *m);
    setter s = { .m = m, .group = t->group };
    zro_joinable list[2] = { ZRO_JOINABLE_INIT };
    zro_join_config config = ZRO_JOIN_CONFIG_INIT;
    zro_param_group group;
    zro_optim *optim;
    zro_join *join;

    CHECK(truth != NULL && m != NULL);
    trainee_init(truth, t, UNSHARDED);
    join = join_over(t, truth, NULL);
    for (int i = 0; i < 2 + t->rank; i++)
        CHECK_OK(iterate(truth, t, i));
    CHECK_OK(zro_join_run(join));
    zro_join_destroy(join);

    model_init(m);
    group = model_group(m);
    CHECK_OK(zro_optim_create(t->group, &group, 1, zro_rule_adam(), NULL, NULL, &optim));
    list[0].shadow = set_gradients;
    list[0].post = after;
    list[0].user = &s;
    config.settings = t->group;
    CHECK_OK(zro_optim_joinable(optim, &list[1]));
    CHECK_OK(zro_join_create(t->group, list, 2, &config, &join));
    for (int i = 0; i < 2 + t->rank; i++) {
        CHECK_OK(zro_join_notify(join, 0));
        (void)model_run(m, t->rank, i);
        CHECK_OK(zro_params_all_reduce(t->group, m->params, MODEL_PARAMS, ZRO_AVG));
        CHECK_OK(zro_optim_step(optim, NULL));
    }
    CHECK_OK(zro_join_run(join));
    CHECK(s.shadowed == t->size - 1 - t->rank && s.posts == 1 && s.was_last == (t->rank == t->size - 1));
    CHECK(s.shadowed == 0 || s.n_active == 1);
    CHECK(model_equal(m, &truth->m));
    model_check_ranks(m, t->group);
    zro_join_destroy(join);
    zro_optim_destroy(optim);
    trainee_free(truth);
    free(truth);
    free(m);
}

/* ---- S82 ---- */

/* Whether there is another input follows from the parameters after the step, which nobody knows before all gradients were there. */
static int has_more(const trainee *e, const zt_rank *t, int inputs)
{
    uint64_t hash;

    CHECK_OK(zro_params_hash(e->m.params, MODEL_PARAMS, &hash));
    return inputs < 12 && zt_mix(hash, (uint64_t)t->rank) % 4 != 0;
}

static void feed(int pipe, int input)
{
    CHECK(write(pipe, &input, sizeof input) == sizeof input);
}

static int train_from_pipe(trainee *e, zt_rank *t, zro_join *join)
{
    int ends[2], input, inputs = 0;

    CHECK(pipe(ends) == 0);
    feed(ends[1], 0);
    while (read(ends[0], &input, sizeof input) == sizeof input) {
        CHECK(input == inputs++);
        CHECK_OK(iterate(e, t, input));
        if (has_more(e, t, inputs))
            feed(ends[1], inputs);
        else
            close(ends[1]);
    }
    close(ends[0]);
    CHECK_OK(zro_join_run(join));
    return inputs;
}

/* The same with one that is not sharded, now that the numbers are known. */
static void check_replay(const trainee *e, zt_rank *t, int inputs)
{
    trainee *truth = malloc(sizeof *truth);
    zro_join *join;

    CHECK(truth != NULL);
    trainee_init(truth, t, UNSHARDED);
    join = join_over(t, truth, NULL);
    for (int i = 0; i < inputs; i++)
        CHECK_OK(iterate(truth, t, i));
    CHECK_OK(zro_join_run(join));
    CHECK(model_equal(&e->m, &truth->m));
    zro_join_destroy(join);
    trainee_free(truth);
    free(truth);
}

static void S82_pipe(zt_rank *t)
{
    trainee *e = malloc(sizeof *e);
    int inputs, all[ZT_MAX_RANKS], differ = 0;
    zro_join *join;

    CHECK(e != NULL);
    trainee_init(e, t, ATTACHED);
    join = join_over(t, e, NULL);
    inputs = train_from_pipe(e, t, join);
    zro_join_destroy(join);
    model_check_ranks(&e->m, t->group);
    check_replay(e, t, inputs);
    zt_exchange(t, &inputs, sizeof inputs, all);
    for (int r = 0; r < t->size; r++)
        differ |= all[r] != all[0];
    CHECK(differ || t->size == 1);
    trainee_free(e);
    free(e);
}

/* ---- buffers, values, calls ---- */

static void fill_running(trainee *e, float value)
{
    for (int k = 0; k < 4; k++)
        e->running[k] = value;
}

static void check_running(const trainee *e, float value)
{
    for (int k = 0; k < 4; k++)
        CHECK(e->running[k] == value);
}

/* Rank r has size - r inputs: the highest ones run out first, and rank 0 last. */
static void buffers_and_last(zt_rank *t)
{
    trainee *e = malloc(sizeof *e);
    zro_join *join;

    CHECK(e != NULL);
    trainee_init(e, t, ATTACHED);
    join = join_over(t, e, NULL);
    for (int i = 0; i < t->size - t->rank; i++) {
        fill_running(e, (float)(100 * i + t->rank));
        CHECK_OK(iterate(e, t, i));
        check_running(e, (float)(100 * i + t->size - 1 - i)); /* of the highest that has inputs */
    }
    fill_running(e, (float)(1000 + t->rank));
    e->m.data[0] += (float)t->rank; /* in the end all ranks have what the last one has */
    CHECK_OK(zro_join_run(join));
    check_running(e, 1000);
    model_check_ranks(&e->m, t->group);
    zro_join_destroy(join);
    trainee_free(e);
    free(e);
}

/* What ranks do besides forward, backward and step: values that change before the step, an average that is clipped by calls, an
 * iteration that is dropped, two halves of a step. */
static void act(trainee *e, zt_rank *t, int input, int kind)
{
    double norm;

    CHECK_OK(zro_ddp_forward(e->ddp));
    (void)model_run(&e->m, t->rank, input);
    for (size_t i = MODEL_PARAMS; i-- > 0;)
        CHECK_OK(zro_ddp_grad_ready(e->ddp, i));
    CHECK_OK(zro_ddp_backward_end(e->ddp));
    if (input == 1) {
        CHECK_OK(zro_optim_zero_grad(e->optim, ZRO_ZERO_CLEAR));
        return;
    }
    CHECK_OK(zro_optim_set_value(e->optim, 0, "lr", 0.01 / (1 + input)));
    if (input == 2) {
        if (kind == ATTACHED)
            CHECK_OK(zro_ddp_average(e->ddp));
        CHECK_OK(zro_optim_grad_norm(e->optim, 2, ZRO_OFF, &norm));
        CHECK_OK(zro_clip_grad_norm(e->optim, norm / 2, 2, NULL));
        CHECK_OK(zro_clip_grad_value(e->optim, norm / 100)); /* some gradients are larger, and others are not */
    }
    if (input == 3) {
        CHECK_OK(zro_optim_step_local(e->optim, NULL));
        CHECK_OK(zro_optim_publish(e->optim));
    } else
        CHECK_OK(zro_optim_step(e->optim, NULL));
    CHECK_OK(zro_optim_zero_grad(e->optim, ZRO_ZERO_CLEAR));
}

static void other_calls(zt_rank *t)
{
    trainee *e[3];
    zro_state *state;

    for (int kind = 0; kind < 3; kind++) {
        trainee *it = e[kind] = malloc(sizeof **e);
        zro_join *join;

        CHECK(it != NULL);
        trainee_init(it, t, kind);
        join = join_over(t, it, NULL);
        for (int i = 0; i < 3 * t->rank; i++) {
            act(it, t, i, kind);
            if (i == 2) { /* rank 0 has no inputs, and does not save */
                CHECK_STATUS(zro_optim_consolidate(it->optim, ZRO_ALL, &state), ZRO_ERR_STATE);
                CHECK_TEXT("rank 0 has run out of inputs");
                CHECK_TEXT("zro_join_run");
                CHECK_STATUS(zro_ddp_check(it->ddp), ZRO_ERR_STATE);
            }
        }
        CHECK_OK(zro_join_run(join));
        CHECK_OK(zro_ddp_check(it->ddp));
        CHECK_OK(zro_optim_consolidate(it->optim, ZRO_ALL, &state));
        zro_state_destroy(state);
        zro_join_destroy(join);
        if (kind > 0)
            CHECK(model_equal(&it->m, &e[0]->m));
    }
    for (int kind = 0; kind < 3; kind++) {
        trainee_free(e[kind]);
        free(e[kind]);
    }
}

/* Rank 0 has no inputs: buckets are formed anew in the order of rank 1, from the first parameter to the last. */
static void regroups(zt_rank *t)
{
    zro_ddp_config config = ZRO_DDP_CONFIG_INIT;
    model *m = malloc(sizeof *m);
    const size_t *order, *lengths;
    zro_joinable joinable;
    zro_join *join;
    zro_ddp *ddp;
    size_t n;

    CHECK(m != NULL);
    model_init(m);
    config.bucket_bytes = 1;
    CHECK_OK(zro_ddp_create(t->group, m->params, MODEL_PARAMS, &config, &ddp));
    CHECK_OK(zro_ddp_joinable(ddp, &joinable));
    CHECK_OK(zro_join_create(t->group, &joinable, 1, NULL, &join));
    for (int i = 0; i < 2 && t->rank > 0; i++) {
        CHECK_OK(zro_ddp_forward(ddp));
        (void)model_run(m, t->rank, i);
        for (size_t k = 0; k < MODEL_PARAMS; k++)
            CHECK_OK(zro_ddp_grad_ready(ddp, k));
        CHECK_OK(zro_ddp_backward_end(ddp));
    }
    CHECK_OK(zro_join_run(join));
    CHECK_OK(zro_ddp_buckets(ddp, &order, &lengths, &n));
    CHECK(n == MODEL_PARAMS);
    for (size_t k = 0; k < n; k++)
        CHECK(lengths[k] == 1 && order[k] == k);
    zro_join_destroy(join);
    zro_ddp_destroy(ddp);
    free(m);
}

/* ---- several optimizers ---- */

/* Two attached ones, which the ranks step in another order in every other iteration; a hook that needs the divisor. */
static zro_status average_by_hand(void *user, zro_bucket *bucket)
{
    zro_dtype dtype;
    size_t count;
    float *buffer = zro_bucket_buffer(bucket, &count, &dtype);
    zro_status st = zro_all_reduce(zro_bucket_group(bucket), buffer, count, dtype, ZRO_SUM);

    (void)user;
    for (size_t i = 0; st == ZRO_OK && i < count; i++)
        buffer[i] /= (float)zro_bucket_divisor(bucket);
    return st;
}

/* An iteration in which rank r takes part if it has an input; of a rank that has none, what the reference does. */
static void iterate_two(rig *g, zt_rank *t, int input)
{
    const int is_active = input < 2 + t->rank;
    unsigned char uses[ZT_MAX_RANKS] = { 0 };

    for (int r = 0; r < t->size; r++)
        uses[r] = input < 2 + r;
    if (is_active)
        CHECK_OK(zro_ddp_forward(g->ddp));
    g->iteration++;
    memset(g->present, 0, sizeof g->present);
    for (size_t i = g->n; i-- > 0;) {
        rig_add(g, i, uses);
        if (!is_active)
            continue;
        rig_write(g, i);
        CHECK_OK(zro_ddp_grad_ready(g->ddp, i));
    }
    if (is_active) {
        CHECK_OK(zro_ddp_backward_end(g->ddp));
        CHECK_OK(zro_optim_step(g->optim[input % 2], NULL));
        CHECK_OK(zro_optim_step(g->optim[1 - input % 2], NULL));
    }
    rig_step_reference(g);
}

static void S51_two(zt_rank *t)
{
    static const size_t counts[] = { 5, 3000, 64, 1024, 0, 70, 1 };
    static const rig_mode modes[] = {
        { .memory = RIG_EACH, .optimizers = 2, .bucket_bytes = 1024 },
        { .memory = RIG_OWN, .optimizers = 2, .bucket_bytes = 4096, .clip_norm = 1 },
        { .memory = RIG_VIEWS, .optimizers = 2, .bucket_bytes = 4096, .hook = average_by_hand },
    };

    for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
        rig *g = malloc(sizeof *g);
        zro_joinable joinable;
        zro_join *join;

        CHECK(g != NULL);
        rig_init(g, t, t->group, modes[m], counts, sizeof counts / sizeof *counts, t->seed);
        rig_create(g);
        CHECK_OK(zro_ddp_joinable(g->ddp, &joinable));
        CHECK_OK(zro_join_create(t->group, &joinable, 1, NULL, &join));
        for (int i = 0; i < 2 + t->rank; i++) {
            iterate_two(g, t, i);
            rig_check(g);
        }
        CHECK_OK(zro_join_run(join));
        for (int i = 2 + t->rank; i < 1 + t->size; i++)
            iterate_two(g, t, i);
        rig_check(g);
        zro_join_destroy(join);
        rig_free(g);
        free(g);
    }
}

/* ---- what goes wrong ---- */

/* The first rank that runs out ends all; without the join the ddp can be used afterwards. */
static void early_termination(zt_rank *t)
{
    trainee *e = malloc(sizeof *e);
    zro_join_config config = ZRO_JOIN_CONFIG_INIT;
    zro_join *join;

    CHECK(e != NULL);
    trainee_init(e, t, ATTACHED);
    config.throw_on_early_termination = ZRO_ON;
    join = join_over(t, e, &config);
    for (int k = 0; k < 2; k++) { /* ranks that run out at the same time do not end early */
        for (int i = 0; i < 3; i++)
            CHECK_OK(iterate(e, t, i));
        CHECK_OK(zro_join_run(join));
    }
    for (int i = 0; i < 2; i++)
        CHECK_OK(iterate(e, t, i));
    if (t->rank == 1)
        CHECK_STATUS(zro_join_run(join), ZRO_ERR_STATE);
    else
        CHECK_STATUS(zro_ddp_forward(e->ddp), ZRO_ERR_STATE);
    CHECK_TEXT("rank 1 has run out of inputs after 2 iterations");
    CHECK_TEXT("throw_on_early_termination");
    zro_join_destroy(join);
    CHECK_OK(iterate(e, t, 2));
    model_check_ranks(&e->m, t->group);
    trainee_free(e);
    free(e);
}

static void disabled(zt_rank *t)
{
    trainee *e = malloc(sizeof *e);
    zro_join_config config = ZRO_JOIN_CONFIG_INIT;
    zro_stats before = ZRO_STATS_INIT, after_all = ZRO_STATS_INIT;
    zro_join *join;

    CHECK(e != NULL);
    trainee_init(e, t, ATTACHED);
    config.enable = ZRO_OFF;
    join = join_over(t, e, &config);
    for (int i = 0; i < 3; i++)
        CHECK_OK(iterate(e, t, i));
    CHECK_OK(zro_ddp_stats(e->ddp, &before));
    CHECK_OK(zro_join_run(join));
    CHECK_OK(zro_ddp_stats(e->ddp, &after_all));
    CHECK(before.operations == after_all.operations);
    CHECK_OK(zro_ddp_check(e->ddp));
    zro_join_destroy(join);
    trainee_free(e);
    free(e);
}

static zro_status do_nothing(void *user, const zro_join_info *info)
{
    (void)user, (void)info;
    return ZRO_OK;
}

static void wrong_arguments(zt_rank *t)
{
    const int odd[] = { 1, 0 };
    trainee *e = malloc(sizeof *e);
    zro_joinable list[3] = { ZRO_JOINABLE_INIT, ZRO_JOINABLE_INIT, ZRO_JOINABLE_INIT };
    zro_join_config config = ZRO_JOIN_CONFIG_INIT;
    zro_group *turned;
    zro_join *join, *second;

    CHECK(e != NULL);
    trainee_init(e, t, ATTACHED);
    CHECK_STATUS(zro_join_create(t->group, list, 0, NULL, &join), ZRO_ERR_INVALID);
    CHECK_TEXT("there are no joinables");
    CHECK_STATUS(zro_join_create(t->group, NULL, 1, NULL, &join), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_join_create(t->group, list, 1, NULL, &join), ZRO_ERR_INVALID);
    CHECK_TEXT("joinable 0 has no function that shadows");
    CHECK_STATUS(zro_join_create(NULL, list, 1, NULL, &join), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_join_create(t->group, list, 1, NULL, NULL), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_ddp_joinable(NULL, &list[0]), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_ddp_joinable(e->ddp, NULL), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_optim_joinable(NULL, &list[0]), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_optim_joinable(e->optim, NULL), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_join_run(NULL), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_join_notify(NULL, 0), ZRO_ERR_INVALID);
    CHECK_TEXT("the join is NULL");
    zro_join_destroy(NULL);

    CHECK_OK(zro_optim_joinable(e->optim, &list[0]));
    CHECK_STATUS(zro_join_create(t->group, list, 1, NULL, &join), ZRO_ERR_INVALID);
    CHECK_TEXT("list the ddp");
    CHECK_OK(zro_ddp_joinable(e->ddp, &list[0]));
    CHECK_OK(zro_group_create_sub(t->group, odd, 2, &turned));
    list[1].shadow = do_nothing;
    CHECK_STATUS(zro_join_create(turned, list, 2, NULL, &join), ZRO_ERR_INVALID);
    CHECK_TEXT("joinable 0, a ddp, has other ranks than the join");
    zro_group_destroy(turned);
    config.divide_by = (zro_divide_by)7;
    CHECK_STATUS(zro_join_create(t->group, list, 1, &config, &join), ZRO_ERR_INVALID);
    CHECK_TEXT("ZRO_REMAINING_RANKS");
    config.divide_by = ZRO_INITIAL_RANKS;
    config.enable = (zro_switch)2;
    CHECK_STATUS(zro_join_create(t->group, list, 1, &config, &join), ZRO_ERR_INVALID);
    CHECK_TEXT("enable");

    CHECK_OK(zro_join_create(t->group, list, 2, NULL, &join));
    CHECK_STATUS(zro_join_create(t->group, list, 2, NULL, &second), ZRO_ERR_STATE);
    CHECK_TEXT("joinable 0, a ddp, is in another join");
    CHECK_STATUS(zro_join_notify(join, 2), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_join_notify(join, 0), ZRO_ERR_STATE);
    CHECK_TEXT("which notifies by itself");
    CHECK_OK(zro_ddp_forward(e->ddp));
    CHECK_STATUS(zro_join_run(join), ZRO_ERR_STATE);
    CHECK_TEXT("in the middle of an iteration of joinable 0: call zro_ddp_backward_end");
    (void)model_run(&e->m, t->rank, 0);
    CHECK_OK(zro_ddp_grads_ready(e->ddp, (size_t[]){ 0, 1, 2, 3 }, MODEL_PARAMS));
    CHECK_OK(zro_ddp_backward_end(e->ddp));
    CHECK_OK(zro_optim_step(e->optim, NULL));
    CHECK_OK(zro_join_run(join));
    zro_join_destroy(join);
    trainee_free(e);
    free(e);
}

/* An attached optimizer may stand in the list before its ddp, which follows and finishes all the same. */
static void any_order(zt_rank *t)
{
    trainee *e = malloc(sizeof *e);
    zro_join_info info = ZRO_JOIN_INFO_INIT;
    zro_joinable list[2];
    zro_join *join;

    CHECK(e != NULL);
    trainee_init(e, t, ATTACHED);
    CHECK_OK(zro_optim_joinable(e->optim, &list[0]));
    CHECK_OK(zro_ddp_joinable(e->ddp, &list[1]));
    CHECK_OK(zro_join_create(t->group, list, 2, NULL, &join));
    for (int i = 0; i < (t->rank == 0 ? 3 : 0); i++)
        CHECK_OK(iterate(e, t, i));
    CHECK_OK(zro_join_get_info(join, &info));
    CHECK(info.iterations == (t->rank == 0 ? 3 : 0));
    CHECK_OK(zro_join_run(join));
    zro_join_destroy(join);
    model_check_ranks(&e->m, t->group);
    trainee_free(e);
    free(e);
}

/* Ranks that pass other joinables or settings, and ranks that make other calls: told to all, and everything can be used afterwards. */
static void ranks_disagree(zt_rank *t)
{
    trainee *e = malloc(sizeof *e);
    zro_joinable list[2];
    zro_join_config config = ZRO_JOIN_CONFIG_INIT;
    zro_join *join;

    CHECK(e != NULL);
    trainee_init(e, t, SHARDED);
    CHECK_OK(zro_ddp_joinable(e->ddp, &list[0]));
    CHECK_OK(zro_optim_joinable(e->optim, &list[1]));
    CHECK_STATUS(zro_join_create(t->group, list, t->rank == 1 ? 1 : 2, NULL, &join), ZRO_ERR_MISMATCH);
    CHECK_TEXT("1 joinables");
    config.divide_by = t->rank == 1 ? ZRO_REMAINING_RANKS : ZRO_INITIAL_RANKS;
    CHECK_STATUS(zro_join_create(t->group, list, 2, &config, &join), ZRO_ERR_MISMATCH);
    CHECK_TEXT("divide_by the remaining ranks");
    config.divide_by = ZRO_INITIAL_RANKS;
    config.throw_on_early_termination = t->rank == 1 ? ZRO_ON : ZRO_OFF;
    CHECK_STATUS(zro_join_create(t->group, list, 2, &config, &join), ZRO_ERR_MISMATCH);
    CHECK_TEXT("throw_on_early_termination on");
    config.throw_on_early_termination = ZRO_OFF;
    config.enable = t->rank == 1 ? ZRO_OFF : ZRO_ON;
    CHECK_STATUS(zro_join_create(t->group, list, 2, &config, &join), ZRO_ERR_MISMATCH);
    CHECK_TEXT("enable off");
    if (t->rank == 1)
        CHECK_OK(zro_optim_joinable(e->optim, &list[0]));
    CHECK_STATUS(zro_join_create(t->group, list, 2, NULL, &join), ZRO_ERR_MISMATCH);
    CHECK_TEXT("joinable 0: optimizer");
    CHECK_OK(zro_ddp_joinable(e->ddp, &list[0]));
    CHECK_STATUS(zro_join_create(t->group, list, t->rank == 1 ? 0 : 2, NULL, &join),
                 t->rank == 1 ? ZRO_ERR_INVALID : ZRO_ERR_PEER);
    CHECK_TEXT("there are no joinables");
    CHECK_OK(zro_join_create(t->group, list, 2, NULL, &join));
    CHECK_OK(iterate(e, t, 0));
    CHECK_OK(zro_ddp_no_sync(e->ddp, t->rank == 1 ? ZRO_ON : ZRO_OFF));
    CHECK_STATUS(zro_ddp_forward(e->ddp), ZRO_ERR_MISMATCH);
    CHECK_TEXT("rank 0 ddp_forward (joinable 0)");
    CHECK_TEXT("rank 1 ddp_forward under no_sync (joinable 0)");
    CHECK_OK(zro_ddp_no_sync(e->ddp, ZRO_OFF));
    if (t->rank == 1)
        CHECK_STATUS(zro_optim_step(e->optim, NULL), ZRO_ERR_MISMATCH);
    else
        CHECK_STATUS(zro_ddp_forward(e->ddp), ZRO_ERR_MISMATCH);
    CHECK_TEXT("rank 1 optim_step (joinable 1)");
    CHECK_OK(iterate(e, t, 1));
    CHECK_OK(zro_join_run(join));
    zro_join_destroy(join);
    model_check_ranks(&e->m, t->group);
    trainee_free(e);
    free(e);
}

/* Rank 1 leaves because of an error, without shadowing: before its first input, between two, in the middle of one, or before its step.
 * Rank 0 has run out before; with throw_on_early_termination, where that would end all, it has inputs. */
enum { FIRST_THING, BETWEEN, IN_THE_MIDDLE, BEFORE_THE_STEP, WITH_THROW = 10 };

static void leave(zt_rank *t, trainee *e, zro_join *join, int when)
{
    if (when > FIRST_THING)
        CHECK_OK(iterate(e, t, 0));
    if (when >= IN_THE_MIDDLE) {
        CHECK_OK(zro_ddp_forward(e->ddp));
        CHECK_OK(zro_ddp_grad_ready(e->ddp, 0));
    }
    if (when == BEFORE_THE_STEP) {
        CHECK_OK(zro_ddp_grads_ready(e->ddp, (size_t[]){ 1, 2, 3 }, 3));
        CHECK_OK(zro_ddp_backward_end(e->ddp));
    }
    zro_join_destroy(join);
}

static void leaves_early(zt_rank *t)
{
    const int when = (int)t->arg % WITH_THROW, throws = t->arg >= WITH_THROW;
    trainee *e = malloc(sizeof *e);
    zro_join_config config = ZRO_JOIN_CONFIG_INIT;
    zro_status st = ZRO_OK;
    zro_join *join;

    CHECK(e != NULL);
    trainee_init(e, t, ATTACHED);
    config.throw_on_early_termination = throws ? ZRO_ON : ZRO_OFF;
    join = join_over(t, e, &config);
    if (t->rank == 1)
        leave(t, e, join, when);
    else if (t->rank == 0 && !throws)
        st = zro_join_run(join);
    else
        for (int i = 0; i < 10 && st == ZRO_OK; i++)
            st = iterate(e, t, i);
    if (t->rank != 1) {
        CHECK_STATUS(st, ZRO_ERR_LOST);
        CHECK_TEXT("rank 1");
        if (when == IN_THE_MIDDLE) /* in a bucket, or in the turn of the step */
            CHECK(strstr(zro_last_error(), "destroyed its join in the middle of an iteration") != NULL
                  || strstr(zro_last_error(), "left a join before its end") != NULL);
        else if (when != FIRST_THING)
            CHECK_TEXT("left a join before its end");
        CHECK_STATUS(zro_join_run(join), ZRO_ERR_LOST);
        CHECK_TEXT("rank 1");
        zro_join_destroy(join);
    }
    if (when < IN_THE_MIDDLE) /* between iterations nothing else is broken */
        CHECK_OK(zro_ddp_check(e->ddp));
    trainee_free(e);
    free(e);
}

/* All ranks but rank 0, which has run out of inputs, make the same mistakes.  They are told so, as without a join; rank 0 does not
 * hear of it, and the training goes on. */
static void in_the_middle(trainee *e, zt_rank *t, zro_join *join)
{
    CHECK_OK(zro_ddp_forward(e->ddp));
    (void)model_run(&e->m, t->rank, 1);
    CHECK_OK(zro_ddp_grad_ready(e->ddp, MODEL_B2));
    CHECK_STATUS(zro_optim_step(e->optim, NULL), ZRO_ERR_STATE);
    CHECK_STATUS(zro_ddp_average(e->ddp), ZRO_ERR_STATE);
    CHECK_TEXT("ddp_average: call it after zro_ddp_backward_end");
    CHECK_STATUS(zro_optim_publish(e->optim), ZRO_ERR_STATE);
    CHECK_STATUS(zro_join_notify(join, 2), ZRO_ERR_STATE);
    CHECK_TEXT("in the middle of an iteration (of joinable 0)");
    CHECK_OK(zro_ddp_grads_ready(e->ddp, (size_t[]){ MODEL_W1, MODEL_B1, MODEL_W2 }, 3));
    CHECK_OK(zro_ddp_backward_end(e->ddp));
}

static void make_mistakes(trainee *e, zt_rank *t, zro_join *join)
{
    in_the_middle(e, t, join);
    CHECK_STATUS(zro_clip_grad_norm(e->optim, 1, 2, NULL), ZRO_ERR_STATE); /* they are not averaged, or consumed */
    CHECK_OK(zro_optim_zero_grad(e->optim, ZRO_ZERO_CLEAR));
    if (t->arg == ATTACHED) { /* now they were dropped */
        CHECK_STATUS(zro_optim_step(e->optim, NULL), ZRO_ERR_STATE);
        CHECK_STATUS(zro_optim_step_local(e->optim, NULL), ZRO_ERR_STATE);
    } else
        CHECK_OK(zro_optim_step(e->optim, NULL));
    CHECK_STATUS(zro_optim_step(e->optim, NULL), ZRO_ERR_STATE);
    CHECK_TEXT("there are no gradients to consume");
    CHECK_OK(zro_ddp_no_sync(e->ddp, ZRO_ON));
    CHECK_OK(zro_ddp_forward(e->ddp));
    CHECK_OK(zro_ddp_backward_end(e->ddp));
    CHECK_STATUS(zro_optim_step(e->optim, NULL), ZRO_ERR_STATE);
    CHECK_STATUS(zro_ddp_average(e->ddp), ZRO_ERR_STATE);
    CHECK_TEXT("under no_sync");
    CHECK_OK(zro_ddp_no_sync(e->ddp, ZRO_OFF));
    if (t->arg != ATTACHED)
        return;
    CHECK_OK(zro_ddp_forward(e->ddp));
    (void)model_run(&e->m, t->rank, 2);
    CHECK_OK(zro_ddp_grads_ready(e->ddp, (size_t[]){ 0, 1, 2, 3 }, MODEL_PARAMS));
    CHECK_OK(zro_ddp_backward_end(e->ddp));
    CHECK_OK(zro_ddp_average(e->ddp));
    CHECK_STATUS(zro_clip_grad_norm(e->optim, -2, 2, NULL), ZRO_ERR_INVALID);
    CHECK_TEXT("clip_grad_norm: max_norm = -2, must not be negative");
    if (t->size > 2) { /* of one alone */
        CHECK_STATUS(zro_clip_grad_norm(e->optim, t->rank == 1 ? -2 : 1, 2, NULL),
                     t->rank == 1 ? ZRO_ERR_INVALID : ZRO_ERR_PEER);
        CHECK_TEXT(t->rank == 1 ? "max_norm = -2" : "rank 1: INVALID: clip_grad_norm: max_norm = -2");
    }
    CHECK_OK(zro_optim_step(e->optim, NULL));
}

static void mistakes(zt_rank *t)
{
    trainee *e = malloc(sizeof *e);
    zro_joinable list[3] = { ZRO_JOINABLE_INIT, ZRO_JOINABLE_INIT, ZRO_JOINABLE_INIT };
    zro_join *join;

    CHECK(e != NULL);
    trainee_init(e, t, (int)t->arg);
    CHECK_OK(zro_ddp_joinable(e->ddp, &list[0]));
    CHECK_OK(zro_optim_joinable(e->optim, &list[1]));
    list[2].shadow = do_nothing;
    CHECK_OK(zro_join_create(t->group, list, 3, NULL, &join));
    CHECK_OK(iterate(e, t, 0));
    if (t->rank > 0)
        make_mistakes(e, t, join);
    for (int i = 3; i < 3 + t->rank; i++)
        CHECK_OK(iterate(e, t, i));
    CHECK_OK(zro_join_run(join));
    model_check_ranks(&e->m, t->group);
    zro_join_destroy(join);
    trainee_free(e);
    free(e);
}

/* On rank 1 a parameter never becomes ready.  Its backward_end says so, and the others', or the next call of theirs; rank 0, which has
 * run out of inputs, goes on following. */
static void refuses(zt_rank *t)
{
    trainee *e = malloc(sizeof *e);
    zro_status st = ZRO_OK;
    zro_join *join;

    CHECK(e != NULL);
    trainee_init(e, t, (int)t->arg);
    join = join_over(t, e, NULL);
    CHECK_OK(iterate(e, t, 0));
    for (int k = 0; t->rank > 0 && k < 2; k++) {
        CHECK_OK(zro_ddp_forward(e->ddp));
        (void)model_run(&e->m, t->rank, 1 + k);
        for (size_t i = MODEL_PARAMS; i-- > 0;)
            e->m.params[i].grad_present = 0;
        CHECK_OK(zro_ddp_grads_ready(e->ddp, (size_t[]){ 3, 2, 1, 0 }, t->rank == 1 ? 3 : 4));
        st = zro_ddp_backward_end(e->ddp);
        if (t->rank > 1 && st == ZRO_OK)
            st = zro_optim_step(e->optim, NULL);
        CHECK_STATUS(st, t->rank == 1 ? ZRO_ERR_STATE : ZRO_ERR_PEER);
        CHECK_TEXT("on rank 1 it never became ready in this iteration");
        CHECK_STATUS(zro_optim_step(e->optim, NULL), ZRO_ERR_STATE);
        CHECK_TEXT("because the iteration failed");
        CHECK_TEXT("on rank 1 it never became ready in this iteration");
        CHECK_OK(iterate(e, t, 3 + k));
    }
    CHECK_OK(zro_join_run(join));
    model_check_ranks(&e->m, t->group);
    zro_join_destroy(join);
    trainee_free(e);
    free(e);
}

/* A handle that is gone cannot follow: of an optimizer by itself, and of a ddp. */
static void destroyed(zt_rank *t)
{
    for (int kind = 0; kind < 2; kind++) {
        trainee *e = malloc(sizeof *e);
        zro_join *join;

        CHECK(e != NULL);
        trainee_init(e, t, SHARDED);
        join = join_over(t, e, NULL);
        CHECK_OK(iterate(e, t, 0));
        if (kind == 0) {
            zro_ddp_destroy(e->ddp);
            e->ddp = NULL;
        } else {
            zro_optim_destroy(e->optim);
            e->optim = NULL;
        }
        CHECK_STATUS(zro_join_run(join), ZRO_ERR_STATE);
        CHECK_TEXT(kind == 0 ? "joinable 0, a ddp, was destroyed on this rank" : "joinable 1, an optimizer, was destroyed");
        zro_join_destroy(join);
        trainee_free(e);
        free(e);
    }
}

static void attach_anew(zt_rank *t, trainee *e, zro_param *params, zro_status expected)
{
    zro_optim_config c = ZRO_OPTIM_CONFIG_INIT;
    zro_param_group group = model_group(&e->m);

    c.ddp = e->ddp;
    group.params = params;
    CHECK_STATUS(zro_optim_create(t->group, &group, 1, zro_rule_adam(), NULL, &c, &e->optim), expected);
}

/* An attached optimizer is destroyed: on all ranks, which may; on rank 1 alone, before any rank has run out or when it has itself.  All
 * ranks are told, nothing is broken, and when the others have destroyed it, too, all go on.  One that was refused has no
 * number, wherever that was. */
static void destroyed_alone(zt_rank *t)
{
    trainee *e = malloc(sizeof *e);
    zro_param elsewhere[MODEL_PARAMS];
    zro_join *join;

    CHECK(e != NULL);
    trainee_init(e, t, ATTACHED);
    memcpy(elsewhere, e->m.params, sizeof elsewhere);
    join = join_over(t, e, NULL);
    CHECK_OK(iterate(e, t, 0));
    zro_optim_destroy(e->optim);
    attach_anew(t, e, t->rank == 1 ? elsewhere : e->m.params, t->rank == 1 ? ZRO_ERR_INVALID : ZRO_ERR_PEER);
    attach_anew(t, e, e->m.params, ZRO_OK);
    for (int i = 1; i < 2 + t->rank; i++)
        CHECK_OK(iterate(e, t, i));
    CHECK_OK(zro_join_run(join));
    if (t->rank == 1) {
        zro_optim_destroy(e->optim);
        e->optim = NULL;
    }
    if (t->rank == 0 && t->arg == 1)
        CHECK_STATUS(iterate(e, t, 5), ZRO_ERR_MISMATCH);
    else
        CHECK_STATUS(zro_join_run(join), ZRO_ERR_MISMATCH);
    CHECK_TEXT("rank 0 has attached optimizer 1 of joinable 0; rank 1 has destroyed attached optimizer 1 of joinable 0");
    CHECK_TEXT("on all ranks alike, or after zro_join_run");
    zro_optim_destroy(e->optim);
    e->optim = NULL;
    CHECK_OK(zro_join_run(join));
    zro_join_destroy(join);
    CHECK_OK(zro_ddp_check(e->ddp));
    trainee_free(e);
    free(e);
}

/* ---- what a joinable's functions may not do, or only in part ---- */

typedef struct meddler {
    zro_join *join;
    trainee *e;
    int runs, destroys, destroys_ddp; /* what its functions do to the join; to the ddp */
    int n;                            /* how often they were called */
} meddler;

static zro_status meddle(meddler *it)
{
    it->n++;
    if (it->runs) {
        CHECK_STATUS(zro_join_run(it->join), ZRO_ERR_STATE);
        CHECK_TEXT("join_run: this rank is in zro_join_run already");
    }
    if (it->destroys)
        zro_join_destroy(it->join);
    if (it->destroys_ddp) {
        zro_ddp_destroy(it->e->ddp);
        it->e->ddp = NULL;
    }
    return ZRO_OK;
}

static zro_status meddling_shadow(void *user, const zro_join_info *info)
{
    (void)info;
    return meddle(user);
}

static zro_status meddling_post(void *user, const zro_join_info *info, int is_last)
{
    (void)info, (void)is_last;
    return meddle(user);
}

static void meddler_init(meddler *it, zt_rank *t, int posts)
{
    zro_joinable list[2] = { ZRO_JOINABLE_INIT, ZRO_JOINABLE_INIT };

    memset(it, 0, sizeof *it);
    it->e = malloc(sizeof *it->e);
    CHECK(it->e != NULL);
    trainee_init(it->e, t, ATTACHED);
    list[0].shadow = meddling_shadow;
    list[0].post = posts ? meddling_post : NULL;
    list[0].user = it;
    CHECK_OK(zro_ddp_joinable(it->e->ddp, &list[1]));
    CHECK_OK(zro_join_create(t->group, list, 2, NULL, &it->join));
}

static void meddler_free(meddler *it)
{
    trainee_free(it->e);
    free(it->e);
}

/* It is STATE to run the join again, and everything else goes on. */
static void run_inside(zt_rank *t)
{
    meddler it;

    meddler_init(&it, t, 1);
    it.runs = 1;
    for (int i = 0; t->rank == 0 && i < 2; i++) {
        CHECK_OK(iterate(it.e, t, i));
        CHECK_OK(zro_join_notify(it.join, 0));
    }
    CHECK_OK(zro_join_run(it.join));
    CHECK(it.n == (t->rank == 0 ? 1 : 3));
    model_check_ranks(&it.e->m, t->group);
    zro_join_destroy(it.join);
    meddler_free(&it);
}

/* When all ranks have run out, the join may be destroyed before it has returned. */
static void destroyed_after(zt_rank *t)
{
    meddler it;

    meddler_init(&it, t, 1);
    for (int i = 0; i < 1 + t->rank; i++)
        CHECK_OK(iterate(it.e, t, i));
    it.destroys = 1;
    CHECK_OK(zro_join_run(it.join));
    CHECK(it.n == 1);
    model_check_ranks(&it.e->m, t->group);
    CHECK_OK(iterate(it.e, t, 9)); /* without a join */
    meddler_free(&it);
}

/* Rank 1 leaves from inside of a function: the join is destroyed there or, because the ddp was, afterwards. */
static void destroyed_inside(zt_rank *t)
{
    const int destroys_ddp = (int)t->arg;
    zro_status st = ZRO_OK;
    meddler it;

    meddler_init(&it, t, 0);
    it.destroys = t->rank == 1 && !destroys_ddp;
    it.destroys_ddp = t->rank == 1 && destroys_ddp;
    if (t->rank == 0) {
        CHECK_OK(iterate(it.e, t, 0));
        CHECK_OK(zro_join_notify(it.join, 0));
        st = iterate(it.e, t, 1);
    } else
        st = zro_join_run(it.join);
    CHECK_STATUS(st, t->rank == 1 ? ZRO_ERR_STATE : ZRO_ERR_LOST);
    if (t->rank != 1)
        CHECK_TEXT("rank 1 left a join before its end");
    else if (destroys_ddp)
        CHECK_TEXT("joinable 1, a ddp, was destroyed on this rank");
    else
        CHECK_TEXT("has destroyed the join before all ranks had run out of inputs");
    if (!it.destroys)
        zro_join_destroy(it.join);
    if (!destroys_ddp)
        CHECK_OK(zro_ddp_check(it.e->ddp)); /* nothing but the join is broken */
    meddler_free(&it);
}

static void count_line(void *user, zro_log_level level, const char *line)
{
    if (level == ZRO_LOG_WARN && strstr(line, "ran out of inputs 1000 iterations ago") != NULL)
        atomic_fetch_add((atomic_int *)user, 1);
}

static void skew_warns(zt_rank *t)
{
    zro_group_config config = zt_config();
    zro_joinable own = ZRO_JOINABLE_INIT;
    atomic_int lines = 0;
    zro_group *group;
    zro_join *join;

    config.settings.log = count_line;
    config.settings.log_user = &lines;
    config.settings.log_level = ZRO_LOG_WARN;
    group = zt_group_with(t, &config);
    own.shadow = do_nothing;
    CHECK_OK(zro_join_create(group, &own, 1, NULL, &join));
    for (int k = 0; k < 2; k++) {
        for (int i = 0; t->rank == 0 && i < 1000 + k; i++)
            CHECK_OK(zro_join_notify(join, 0));
        CHECK_OK(zro_join_run(join));
        CHECK(atomic_load(&lines) == (t->rank != 0 && k > 0));
    }
    for (int i = 0; t->rank == 0 && i < 1001; i++)
        CHECK_OK(zro_join_notify(join, 0));
    CHECK_OK(zro_join_run(join));
    CHECK(atomic_load(&lines) == (t->rank != 0)); /* once */
    zro_join_destroy(join);
    zro_group_destroy(group);
}

#define WORLDS (ZT_WORLD(1) | ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4))
#define PLACES (ZT_BOTH | ZT_FOREIGN)

const zt_case cases_ddp_join[] = {
    { "S42_pairs", S42_pairs, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "S42_pairs_two", S42_pairs, ZT_WORLD(4), ZT_ALL, ZT_TWO_MACHINES, 0, 0, 0 },
    { "S18_own", S18_own, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "S82_pipe", S82_pipe, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "S51_join_two", S51_two, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "join_buffers", buffers_and_last, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "join_regroups", regroups, ZT_WORLD(2), ZT_ALL, 0, 0, 0, 0 },
    { "join_other_calls", other_calls, ZT_WORLD(2) | ZT_WORLD(3), ZT_ALL, 0, 0, 0, 0 },
    { "join_early_termination", early_termination, ZT_WORLD(2) | ZT_WORLD(3), ZT_ALL, 0, 0, 0, 0 },
    { "join_disabled", disabled, ZT_WORLD(2), ZT_ALL, 0, 0, 0, 0 },
    { "join_arguments", wrong_arguments, ZT_WORLD(2), ZT_ALL, 0, 0, 0, 0 },
    { "join_any_order", any_order, ZT_WORLD(2) | ZT_WORLD(3), ZT_ALL, 0, 0, 0, 0 },
    { "join_disagree", ranks_disagree, ZT_WORLD(2) | ZT_WORLD(3), ZT_ALL, 0, 0, 0, 0 },
    { "join_leaves_first", leaves_early, ZT_WORLD(3), PLACES, 0, 0, 0, FIRST_THING },
    { "join_leaves_between", leaves_early, ZT_WORLD(3), PLACES, 0, 0, 0, BETWEEN },
    { "join_leaves_between_throws", leaves_early, ZT_WORLD(3), PLACES, 0, 0, 0, WITH_THROW + BETWEEN },
    { "join_leaves_middle_throws", leaves_early, ZT_WORLD(3), PLACES, 0, 0, 0, WITH_THROW + IN_THE_MIDDLE },
    { "join_leaves_middle", leaves_early, ZT_WORLD(3), PLACES, 0, 0, 0, IN_THE_MIDDLE },
    { "join_leaves_before_step", leaves_early, ZT_WORLD(3), PLACES, 0, 0, 0, BEFORE_THE_STEP },
    { "join_mistakes", mistakes, ZT_WORLD(2) | ZT_WORLD(3), ZT_ALL, 0, 0, 0, ATTACHED },
    { "join_mistakes_after_last", mistakes, ZT_WORLD(2) | ZT_WORLD(3), ZT_ALL, 0, 0, 0, AFTER_LAST },
    { "join_mistakes_interleaved", mistakes, ZT_WORLD(2) | ZT_WORLD(3), ZT_ALL, 0, 0, 0, INTERLEAVED },
    { "join_refuses", refuses, ZT_WORLD(2) | ZT_WORLD(3), ZT_ALL, 0, 0, 0, ATTACHED },
    { "join_refuses_after_last", refuses, ZT_WORLD(3), ZT_ALL, 0, 0, 0, AFTER_LAST },
    { "join_refuses_interleaved", refuses, ZT_WORLD(3), ZT_ALL, 0, 0, 0, INTERLEAVED },
    { "join_destroyed", destroyed, ZT_WORLD(2), ZT_ALL, 0, 0, 0, 0 },
    { "join_destroyed_alone", destroyed_alone, ZT_WORLD(2) | ZT_WORLD(3), ZT_ALL, 0, 0, 0, 0 },
    { "join_destroyed_alone_active", destroyed_alone, ZT_WORLD(2) | ZT_WORLD(3), ZT_ALL, 0, 0, 0, 1 },
    { "join_destroyed_inside", destroyed_inside, ZT_WORLD(2) | ZT_WORLD(3), PLACES, 0, 0, 0, 0 },
    { "join_destroyed_inside_ddp", destroyed_inside, ZT_WORLD(3), PLACES, 0, 0, 0, 1 },
    { "join_destroyed_after", destroyed_after, ZT_WORLD(2), ZT_ALL, 0, 0, 0, 0 },
    { "join_run_inside", run_inside, ZT_WORLD(2) | ZT_WORLD(3), ZT_ALL, 0, 0, 0, 0 },
    { "join_skew", skew_warns, ZT_WORLD(2), ZT_BOTH, 0, 0, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
