/* A training: see train.h.
 *
 * All ranks go through the same calls; what one rank alone does (printing, writing the weights) is followed by a vote, so that a
 * failure there ends all of them.  Parameters exist once per machine if the optimizer is sharded. */
#define _GNU_SOURCE
#include "train.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "blas.h"
#include "generate.h"
#include "preflight.h"
#include "progress.h"
#include "ranks.h"
#include "record.h"
#include "resume.h"
#include "weights.h"

typedef struct trainer {
    gpt_options options; /* a resumed run takes some of them from its state */
    const gpt_options *o;
    gpt_choice c;
    zro_group *group;
    int rank, size;
    int here; /* ranks on this machine */
    int threads;

    gpt_data data;
    gpt_split train, val;
    uint32_t *inputs, *targets; /* [batch][tokens] */

    size_t n; /* parameters */
    zro_param *params;
    char (*names)[GPT_NAME_BYTES];
    size_t *matrices, *vectors; /* indices of parameters */
    gpt_model *model;
    zro_ddp *ddp;
    zro_optim *optim;
    zro_schedule *schedule;

    uint64_t step; /* steps made */
    double in_zro; /* seconds of this step in calls of zro */
    double bytes, bytes_unsharded;
    gpt_progress progress;
} trainer;

/* ---- ranks ---- */

/* Follows what one rank does alone: see gpt_vote. */
static zro_status vote(trainer *t, zro_status mine)
{
    return gpt_vote(t->group, mine);
}

static int number_in_environment(const char *const *names, int otherwise)
{
    for (; *names != NULL; names++)
        if (getenv(*names) != NULL && atoi(getenv(*names)) > 0)
            return atoi(getenv(*names));
    return otherwise;
}

/* The processors of a rank: those that it is bound to, or its share of those of the machine. */
static int share_of_cores(int ranks_here)
{
    cpu_set_t set;
    int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    static const char *const given[] = { "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", NULL };
    int share = cores / ranks_here > 1 ? cores / ranks_here : 1;

    return number_in_environment(given, share);
}

static void find_place(trainer *t)
{
    static const char *const local[] = { "ZRO_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", NULL };

    t->rank = zro_group_rank(t->group);
    t->size = zro_group_size(t->group);
    t->here = number_in_environment(local, t->size);
    t->threads = t->o->threads > 0 ? (int)t->o->threads : share_of_cores(t->here);
    gpt_blas_threads(t->threads);
}

/* ---- making it ---- */

static zro_status make_arrays(trainer *t)
{
    size_t rows = t->o->batch * t->c.tokens;

    t->n = gpt_params(&t->c.config);
    t->params = calloc(t->n, sizeof *t->params);
    t->names = calloc(t->n, sizeof *t->names);
    t->matrices = calloc(t->n, sizeof *t->matrices);
    t->vectors = calloc(t->n, sizeof *t->vectors);
    t->inputs = calloc(rows, sizeof *t->inputs);
    t->targets = calloc(rows, sizeof *t->targets);
    if (t->params == NULL || t->names == NULL || t->matrices == NULL || t->vectors == NULL || t->inputs == NULL
        || t->targets == NULL)
        return gpt_fail(ZRO_ERR_MEMORY, "lists of %zu parameters and %zu tokens", t->n, rows);
    gpt_describe(&t->c.config, t->c.dtype, t->params, t->names);
    return ZRO_OK;
}

/* Only rank 0's values count: zro_ddp_create copies them to all. */
static zro_status first_values(trainer *t)
{
    char path[GPT_PATH_BYTES];

    if (t->rank != 0 || t->o->resume)
        return ZRO_OK;
    if (t->o->init == NULL)
        return gpt_init(&t->c.config, t->params, t->o->seed);
    snprintf(path, sizeof path, "%s/model.safetensors", t->o->init);
    return gpt_weights_read(path, t->params, t->n);
}

static zro_status make_optim(trainer *t)
{
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_plan_config plan = ZRO_PLAN_CONFIG_INIT;
    zro_param_group groups[2] = { ZRO_PARAM_GROUP_INIT, ZRO_PARAM_GROUP_INIT };

    for (size_t i = 0; i < t->n; i++)
        if (t->params[i].n_dims == 2)
            t->matrices[groups[0].n++] = i;
        else
            t->vectors[groups[1].n++] = i;
    groups[0].params = groups[1].params = t->params;
    groups[0].index = t->matrices;
    groups[1].index = t->vectors;
    groups[0].values = t->c.matrix_values;
    groups[1].values = t->c.vector_values;
    groups[0].n_values = groups[1].n_values = t->c.n_values;
    plan.partition = t->c.partition;
    config.plan = &plan;
    config.clip_norm = t->o->clip;
    config.settings.threads = (uint32_t)t->threads;
    if (t->o->sharding) {
        config.ddp = t->ddp;
        config.overlap = (zro_overlap)t->o->overlap;
    }
    return zro_optim_create(t->o->sharding ? t->group : NULL, groups, 2, t->c.rule, NULL, &config, &t->optim);
}

static double lr_of_step(void *user, size_t group, uint64_t step)
{
    const trainer *t = user;

    (void)group;
    return gpt_lr_factor(t->o, t->c.lr, step);
}

static zro_status make_all(trainer *t)
{
    zro_alloc_config alloc = ZRO_ALLOC_CONFIG_INIT;
    zro_status st = vote(t, make_arrays(t));

    alloc.data_kind = t->o->sharding ? ZRO_MEMORY_ONCE : ZRO_MEMORY_EACH;
    if (st == ZRO_OK)
        st = zro_params_alloc(t->group, t->params, t->n, &alloc);
    if (st == ZRO_OK)
        st = vote(t, first_values(t));
    if (st == ZRO_OK)
        st = vote(t, gpt_create(&t->c.config, t->params, GPT_TRAIN, t->o->batch, t->c.tokens, &t->model));
    if (st == ZRO_OK)
        st = zro_ddp_create(t->group, t->params, t->n, NULL, &t->ddp);
    if (st == ZRO_OK)
        st = make_optim(t);
    if (st == ZRO_OK)
        st = zro_schedule_lambda(t->optim, lr_of_step, t, &t->schedule);
    return st;
}

static void drop_all(trainer *t)
{
    zro_schedule_destroy(t->schedule);
    zro_optim_destroy(t->optim);
    zro_ddp_destroy(t->ddp);
    gpt_destroy(t->model);
    if (t->params != NULL)
        zro_params_free(t->params, t->n);
    free(t->params);
    free(t->names);
    free(t->matrices);
    free(t->vectors);
    free(t->inputs);
    free(t->targets);
    gpt_data_close(&t->data);
}

/* ---- save and resume ---- */

/* What is saved beside the optimizer, as it is now. */
static void fill_saved(const trainer *t, gpt_saved *saved)
{
    gpt_saved_make(t->o, saved);
    saved->numbers[GPT_STEP] = (double)t->step;
    saved->numbers[GPT_SEQUENCES] = (double)(t->o->batch * t->o->accumulate * (size_t)t->size);
    saved->numbers[GPT_TOKENS] = (double)t->c.tokens;
    saved->numbers[GPT_DATA_TOKENS] = (double)t->data.count;
}

/* Options that were not given become those of the saved run.  Rank 0 reads them. */
static zro_status take_over(trainer *t, gpt_saved *saved)
{
    const zro_rule *rule = zro_rule_find(t->o->rule);
    char path[GPT_PATH_BYTES];
    zro_status st = ZRO_OK;

    if (t->rank == 0)
        st = gpt_find_run(t->o, path);
    if (st == ZRO_OK && t->rank == 0)
        st = gpt_saved_read(path, rule, saved);
    st = vote(t, st);
    if (st == ZRO_OK)
        st = zro_broadcast(t->group, saved, GPT_SAVED_DOUBLES, ZRO_F64, 0);
    return st == ZRO_OK ? vote(t, gpt_saved_take(saved, rule, &t->options)) : st;
}

static zro_status resume(trainer *t, const gpt_saved *saved)
{
    zro_save_config config = ZRO_SAVE_CONFIG_INIT;
    zro_value numbers[GPT_NUMBERS];
    char path[GPT_PATH_BYTES];
    zro_status st = gpt_state_path(t->o, path);

    config.schedules = &t->schedule;
    config.n_schedules = 1;
    config.numbers = numbers;
    config.n_numbers = gpt_saved_list(saved, numbers);
    t->step = (uint64_t)saved->numbers[GPT_STEP];
    return st == ZRO_OK ? zro_optim_resume(t->optim, path, &config) : st;
}

static zro_status save(trainer *t)
{
    zro_save_config config = ZRO_SAVE_CONFIG_INIT;
    gpt_saved now;
    zro_value numbers[GPT_NUMBERS];
    char path[GPT_PATH_BYTES];
    zro_status st = gpt_state_path(t->o, path);

    fill_saved(t, &now);
    config.schedules = &t->schedule;
    config.n_schedules = 1;
    config.numbers = numbers;
    config.n_numbers = gpt_saved_list(&now, numbers);
    if (st == ZRO_OK && (t->o->sharding || t->rank == 0)) /* unsharded, every rank has the whole state: one writes it */
        st = zro_optim_save(t->optim, path, &config);
    if (st == ZRO_OK && t->rank == 0)
        st = gpt_weights_write(t->o->out, &t->c.config, t->params);
    return vote(t, st);
}

/* ---- a step ---- */

/* How many windows an epoch has: whole steps, if there are that many, so that epochs end alike on any number of ranks. */
static size_t windows_of_epoch(const trainer *t)
{
    size_t n = gpt_windows(&t->train, t->c.tokens), per_step = t->o->batch * t->o->accumulate * (size_t)t->size;

    return n < per_step ? n : n - n % per_step;
}

/* The k-th sequence of this rank since the training began.  The ranks take turns, so a step takes the same sequences on any number
 * of ranks. */
static zro_status load_sequence(trainer *t, uint64_t k, size_t row)
{
    zro_sample_config config = ZRO_SAMPLE_CONFIG_INIT;
    size_t n = windows_of_epoch(t), of_rank = zro_sample_count(n, t->size, ZRO_OFF), i = 0;
    zro_status st;

    config.shuffle = t->o->shuffle ? ZRO_ON : ZRO_OFF;
    config.seed = t->o->seed;
    config.epoch = k / of_rank;
    st = zro_sample_indices(n, t->rank, t->size, &config, (size_t)(k % of_rank), 1, &i);
    if (st == ZRO_OK)
        gpt_window(&t->train, t->c.tokens, i, t->inputs + row * t->c.tokens, t->targets + row * t->c.tokens);
    return st;
}

static zro_status gradients_ready(void *user, const size_t *index, size_t n)
{
    trainer *t = user;
    double began = gpt_now();
    zro_status st = zro_ddp_grads_ready(t->ddp, index, n);

    t->in_zro += gpt_now() - began;
    return st;
}

static zro_status micro_batch(trainer *t, size_t a, double *loss)
{
    size_t A = t->o->accumulate, B = t->o->batch;
    gpt_grads grads = a == 0 ? GPT_REPLACE : GPT_ADD;
    zro_status st = ZRO_OK;
    double began;
    uint64_t mark;

    for (size_t b = 0; b < B && st == ZRO_OK; b++)
        st = load_sequence(t, (t->step * A + a) * B + b, b);
    began = gpt_now();
    if (st == ZRO_OK && A > 1)
        st = zro_ddp_no_sync(t->ddp, a + 1 < A ? ZRO_ON : ZRO_OFF);
    if (st == ZRO_OK)
        st = zro_ddp_forward(t->ddp);
    t->in_zro += gpt_now() - began;
    mark = zro_trace_begin(t->group);
    if (st == ZRO_OK)
        st = gpt_train(t->model, t->inputs, t->targets, grads, 1 / (double)A, gradients_ready, t, loss);
    zro_trace_end(t->group, mark, "forward and backward");
    began = gpt_now();
    if (st == ZRO_OK)
        st = zro_ddp_backward_end(t->ddp);
    t->in_zro += gpt_now() - began;
    return st;
}

static zro_status update(trainer *t, gpt_step *s)
{
    zro_step_info info = ZRO_STEP_INFO_INIT;
    double began = gpt_now();
    zro_status st = zro_optim_get_value(t->optim, 0, "lr", &s->lr);

    if (st == ZRO_OK)
        st = zro_optim_step(t->optim, NULL);
    if (st == ZRO_OK && !t->o->sharding) /* an attached step does that itself */
        st = zro_optim_zero_grad(t->optim, ZRO_ZERO_LEAVE);
    t->in_zro += gpt_now() - began;
    if (st == ZRO_OK)
        st = zro_optim_info(t->optim, &info);
    if (st == ZRO_OK)
        st = zro_schedule_step(t->schedule);
    s->norm = t->o->clip > 0 ? info.norm : NAN;
    return st;
}

/* The largest of all ranks' numbers. */
static zro_status largest(trainer *t, double *number)
{
    return zro_all_reduce(t->group, number, 1, ZRO_F64, ZRO_MAX);
}

/* The loss of all ranks, and whether one of them wants to stop. */
static zro_status exchange(trainer *t, double *loss, int mine, int *stop)
{
    double numbers[2] = { *loss, mine != 0 };
    zro_status st = zro_all_reduce(t->group, numbers, 2, ZRO_F64, ZRO_SUM);

    *loss = numbers[0] / t->size;
    *stop = numbers[1] != 0;
    return st;
}

static zro_status one_step(trainer *t, int stop_here, gpt_step *s, int *stop)
{
    size_t A = t->o->accumulate;
    double began = gpt_now(), loss = 0, compute, slowest, seconds;
    zro_status st = ZRO_OK;

    t->in_zro = 0;
    s->loss = 0;
    for (size_t a = 0; a < A && st == ZRO_OK; a++) {
        st = micro_batch(t, a, &loss);
        s->loss += loss / (double)A;
    }
    if (st == ZRO_OK)
        st = update(t, s);
    compute = slowest = gpt_now() - began - t->in_zro;
    if (st == ZRO_OK)
        st = exchange(t, &s->loss, stop_here, stop);
    if (st == ZRO_OK)
        st = largest(t, &slowest);
    seconds = gpt_now() - began;
    t->step++;
    s->step = t->step;
    s->ms = 1e3 * seconds;
    s->tokens_per_s = (double)(A * t->o->batch * t->c.tokens * (size_t)t->size) / seconds;
    s->comm = 1 - compute / seconds;
    s->beyond_ms = 1e3 * (seconds - slowest);
    s->bytes = t->bytes;
    s->bytes_unsharded = t->bytes_unsharded;
    return st;
}

static zro_status validate(trainer *t, double *loss)
{
    size_t n = gpt_windows(&t->val, t->c.tokens), B = t->o->batch;
    double sum = 0, one = 0;
    int stop;
    zro_status st = ZRO_OK;

    *loss = NAN;
    if (n == 0 || t->o->eval_batches == 0)
        return ZRO_OK;
    for (size_t k = 0; k < t->o->eval_batches && st == ZRO_OK; k++) {
        for (size_t b = 0; b < B; b++)
            gpt_window(&t->val, t->c.tokens, ((k * B + b) * (size_t)t->size + (size_t)t->rank) % n, t->inputs + b * t->c.tokens,
                       t->targets + b * t->c.tokens);
        st = gpt_loss(t->model, t->inputs, t->targets, &one);
        sum += one / (double)t->o->eval_batches;
    }
    if (st == ZRO_OK)
        st = exchange(t, &sum, 0, &stop);
    *loss = sum;
    return st;
}

/* ---- numbers that are not finite ---- */

/* Looks for a parameter that is NaN or infinite, and returns that; 0: all are finite.  f32 and bf16 have the same exponent. */
static double find_not_finite(const trainer *t)
{
    for (size_t i = 0; i < t->n; i++) {
        const zro_param *p = &t->params[i];
        size_t count = zro_param_count(p);

        for (size_t k = 0; k < count; k++) {
            uint32_t bits = p->dtype == ZRO_BF16 ? (uint32_t)((uint16_t *)p->data)[k] << 16 : ((uint32_t *)p->data)[k];

            if ((bits & 0x7f800000) == 0x7f800000)
                return (bits & 0x007fffff) != 0 ? NAN : INFINITY;
        }
    }
    return 0;
}

/* A training that has left the finite numbers does not come back, and must not replace its last good save. */
static zro_status diverged(const trainer *t, const char *what, double value)
{
    return gpt_fail(ZRO_ERR_STATE,
                    "step %llu: %s is %s, and must be a finite number: the run ends%s%s%s; try a smaller --lr than %g%s",
                    (unsigned long long)t->step, what, isnan(value) ? "not a number" : "infinite",
                    t->o->out != NULL ? ", and an earlier save in " : "", t->o->out != NULL ? t->o->out : "",
                    t->o->out != NULL ? " stays" : "", t->c.lr, t->o->clip > 0 ? " or a longer --warmup" : " or --clip 1");
}

/* The loss and, where it is measured, the norm.  All ranks have the same ones, but rank 0 alone speaks. */
static zro_status check_step(trainer *t, const gpt_step *s)
{
    int loss = !isfinite(s->loss), norm = t->o->clip > 0 && !isfinite(s->norm);

    if (!loss && !norm)
        return ZRO_OK;
    return vote(t,
                t->rank == 0 ? diverged(t, loss ? "the loss" : "the norm of the gradients", loss ? s->loss : s->norm) : ZRO_OK);
}

/* Before a save: the loss and the norm are those of the parameters before the last update. */
static zro_status check_params(trainer *t)
{
    double value = t->rank == 0 ? find_not_finite(t) : 0;

    return vote(t, value != 0 ? diverged(t, "a parameter", value) : ZRO_OK);
}

/* A step, and what is due after it. */
static zro_status step_and_tell(trainer *t, volatile const int *wanted, int *stop)
{
    gpt_step s = { .val_loss = NAN, .norm = NAN };
    const gpt_options *o = t->o;
    zro_status st = one_step(t, *wanted, &s, stop);
    int last = t->step == o->steps || *stop;

    if (st == ZRO_OK && (last || (o->eval_every > 0 && t->step % o->eval_every == 0)))
        st = validate(t, &s.val_loss);
    if (st == ZRO_OK && o->hash && t->rank == 0) {
        st = zro_params_hash(t->params, t->n, &s.hash);
        s.has_hash = 1;
    }
    if (st == ZRO_OK && t->rank == 0)
        gpt_progress_step(&t->progress, &s);
    if (st == ZRO_OK)
        st = check_step(t, &s);
    if (st != ZRO_OK || o->out == NULL || last || o->save_every == 0 || t->step % o->save_every != 0)
        return st;
    st = check_params(t);
    if (st != ZRO_OK)
        return st;
    st = save(t);
    if (st == ZRO_OK || zro_group_status(t->group) != ZRO_OK)
        return st;
    if (t->rank == 0) /* the old files are still there, and the training is worth more than this save */
        gpt_progress_say(&t->progress, "zro train: not saved: %s", zro_last_error());
    return ZRO_OK;
}

/* ---- what is told ---- */

/* What too little data leads to.  It is no error, but the lines of the steps do not show why it is so. */
static void print_shortage(const trainer *t)
{
    size_t windows = gpt_windows(&t->train, t->c.tokens), per_step = t->o->batch * t->o->accumulate * (size_t)t->size;

    if (windows < per_step)
        printf("           the training part has %zu sequences of the %zu that a step takes: it takes some more than once\n",
               windows, per_step);
    if (t->o->val_fraction > 0 && t->o->eval_batches > 0 && gpt_windows(&t->val, t->c.tokens) == 0)
        printf("           no validation: its part must have at least %zu tokens (a sequence and the token behind it)\n",
               t->c.tokens + 1);
}

static void print_settings(const trainer *t)
{
    static const char *const schedules[] = { "constant", "linear", "cosine" };
    static const char *const partitions[] = { "flat", "greedy", "buckets" };
    static const char *const overlaps[] = { "off", "after-last", "interleaved" };
    const gpt_options *o = t->o;
    const gpt_config *m = &t->c.config;

    printf("model      %s: %zu layers, %zu heads, width %zu, context %zu, vocabulary %zu; %.1f M parameters in %s\n", o->model,
           m->layers, m->heads, m->width, m->context, m->vocab, (double)gpt_elements(m) / 1e6, zro_dtype_name(t->c.dtype));
    printf("data       %s: %zu tokens, %zu for training, %zu for validation\n", t->data.name, t->data.count, t->train.count,
           t->val.count);
    print_shortage(t);
    printf("step       %d ranks x %zu sequences x %zu micro-batches x %zu tokens = %zu tokens\n", t->size, o->batch,
           o->accumulate, t->c.tokens, (size_t)t->size * o->batch * o->accumulate * t->c.tokens);
    printf("optimizer  %s, lr %g (%s, warm-up %zu), clip %g, sharding %s", t->c.rule->name, t->c.lr, schedules[o->schedule],
           o->warmup, o->clip, o->sharding ? "on" : "off");
    if (o->sharding)
        printf(", partition %s, overlap %s", partitions[o->partition], overlaps[o->overlap]);
    printf("\nprocessor  %d thread%s per rank, BLAS kernels %s%s\n", t->threads, t->threads == 1 ? "" : "s", gpt_blas_kernels(),
           getenv("OPENBLAS_CORETYPE") != NULL ? " (chosen by OPENBLAS_CORETYPE)" : "");
}

static void print_memory_row(const char *name, const gpt_memory *m)
{
    printf("%-10s %10.1f %10.1f %10.1f %12.1f %10.1f\n", name, m->params / 1e6, m->grads / 1e6, m->state / 1e6,
           m->activations / 1e6, gpt_memory_sum(m) / 1e6);
}

/* The record is for the log; without memory for it, the log does without. */
static void keep_record(trainer *t, const gpt_memory *memory, const gpt_memory *unsharded)
{
    gpt_record record = { .options = t->o,
                          .choice = &t->c,
                          .data = t->data.name,
                          .train_tokens = t->train.count,
                          .val_tokens = t->val.count,
                          .ranks = t->size,
                          .threads = t->threads,
                          .memory = memory,
                          .unsharded = *unsharded };

    if (t->rank == 0 && t->progress.log != NULL && memory != NULL)
        t->progress.run = gpt_record_json(&record);
}

/* Also sets what every line of the log says about memory. */
static void tell_memory(trainer *t)
{
    const zro_plan *plan = zro_optim_plan(t->optim);
    gpt_memory *ranks = calloc((size_t)t->size, sizeof *ranks);
    gpt_memory m, whole = gpt_memory_of_rank(t->o, &t->c, gpt_elements(&t->c.config), 1);
    char name[24];

    t->bytes_unsharded = gpt_memory_sum(&whole);
    if (t->rank == 0)
        printf("memory/MB  parameters  gradients  optimizer  activations      total\n");
    for (int r = 0; r < t->size; r++) {
        m = gpt_memory_of_rank(t->o, &t->c, zro_plan_elements(plan, t->o->sharding ? r : ZRO_ALL),
                               t->o->sharding ? t->here : 1);
        t->bytes = fmax(t->bytes, gpt_memory_sum(&m));
        if (ranks != NULL)
            ranks[r] = m;
        snprintf(name, sizeof name, "rank %d", r);
        if (t->rank == 0 && (r < 8 || r == t->size - 1))
            print_memory_row(name, &m);
    }
    if (t->rank == 0) {
        print_memory_row("unsharded", &whole);
        printf("\n");
        fflush(stdout);
    }
    keep_record(t, ranks, &whole);
    free(ranks);
}

static zro_status finish(trainer *t, const gpt_tokenizer *tokenizer)
{
    gpt_generate_config how = {
        .prompt = t->o->prompt, .tokens = t->o->sample, .temperature = 0.8, .top_k = 40, .seed = t->o->seed
    };
    double saved = (t->bytes_unsharded - t->bytes) * t->size;
    zro_status st = ZRO_OK;

    if (t->rank != 0)
        return ZRO_OK;
    if (t->o->sharding && t->size > 1)
        printf("sharding saved %.1f MB on all ranks together: %.1f instead of %.1f MB per rank\n", saved / 1e6, t->bytes / 1e6,
               t->bytes_unsharded / 1e6);
    if (t->o->out != NULL)
        printf("saved in %s at step %llu\n", t->o->out, (unsigned long long)t->step);
    if (t->o->sample > 0 && !ferror(stdout)) {
        printf("\n");
        st = gpt_generate(&t->c.config, t->params, tokenizer, &how, stdout);
        printf("\n");
    }
    if ((fflush(stdout) != 0 || ferror(stdout)) && st == ZRO_OK)
        st = gpt_fail(ZRO_ERR_SYSTEM, "standard output could not be written to: the lines of this run are not whole; %s%s",
                      t->o->out != NULL ? "the run itself is saved in " : "the run itself went well",
                      t->o->out != NULL ? t->o->out : "");
    return st;
}

/* ---- the whole ---- */

static zro_status prepare(trainer *t, gpt_tokenizer *tokenizer)
{
    char log[GPT_PATH_BYTES];
    gpt_saved saved, now;
    zro_status st = gpt_same_options(t->group, t->o);

    if (st == ZRO_OK && t->o->resume)
        st = take_over(t, &saved);
    if (st != ZRO_OK)
        return st;
    st = gpt_options_resolve(t->o, &t->c);
    if (st == ZRO_OK && t->o->ranks > 0 && (int)t->o->ranks != t->size)
        st = gpt_fail(ZRO_ERR_INVALID, "--ranks %zu, but %d ranks were started", t->o->ranks, t->size);
    if (st == ZRO_OK)
        st = gpt_preflight(t->o, &t->c, t->here, &t->data);
    if (st == ZRO_OK)
        st = gpt_tokenizer_open(t->o->tokenizer, t->c.config.vocab, tokenizer);
    fill_saved(t, &now);
    if (st == ZRO_OK && t->o->resume)
        st = gpt_saved_compare(&saved, &now, t->o);
    st = vote(t, st);
    if (st == ZRO_OK)
        st = gpt_same_data(t->group, &t->data);
    if (st != ZRO_OK)
        return st;
    gpt_data_split(&t->data, t->o->val_fraction, &t->train, &t->val);
    st = make_all(t);
    if (st == ZRO_OK && t->o->resume)
        st = vote(t, resume(t, &saved));
    if (st == ZRO_OK)
        st = gpt_log_path(t->o, log);
    if (st == ZRO_OK && t->rank == 0)
        st = gpt_progress_open(&t->progress, log, t->o->resume ? ZRO_ON : ZRO_OFF, t->step, t->o->steps);
    return vote(t, st);
}

zro_status gpt_train_run(zro_group *group, const gpt_options *options, volatile const int *wanted)
{
    trainer t = { .options = *options, .group = group };
    gpt_tokenizer tokenizer = { 0 };
    int stop = 0;
    zro_status st, closed = ZRO_OK;

    t.o = &t.options;
    find_place(&t);
    st = prepare(&t, &tokenizer);
    if (st == ZRO_OK && t.rank == 0)
        print_settings(&t);
    if (st == ZRO_OK)
        tell_memory(&t);
    while (st == ZRO_OK && !stop && t.step < options->steps)
        st = step_and_tell(&t, wanted, &stop);
    if (t.rank == 0)
        closed = gpt_progress_close(&t.progress);
    if (st == ZRO_OK && options->out != NULL)
        st = check_params(&t);
    if (st == ZRO_OK && options->out != NULL)
        st = save(&t);
    if (st == ZRO_OK)
        st = vote(&t, closed);
    if (st == ZRO_OK)
        st = finish(&t, &tokenizer);
    gpt_tokenizer_close(&tokenizer);
    drop_all(&t);
    return st;
}
