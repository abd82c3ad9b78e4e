/* `zro bench step`: the training step of a data-parallel program against the limit of the machine.
 *
 * What is timed on each rank: zro_ddp_forward, zro_ddp_grad_ready for all parameters, the last one first, zro_ddp_backward_end and
 * zro_optim_step of an attached optimizer; that is, everything but the program's own forward and backward.  Samples are taken as
 * bench_sample.h says, by all ranks together.  With staged gradients zro_ddp_grad_ready copies them while they are in the caches: in that
 * mode each gradient is written, as a backward would, right before it becomes ready, and the time of these calls is reported by itself.
 *
 * The limit is the fastest loop (limit.h) that reads the gradients of all ranks and reads and writes the parameter and the arrays
 * of state, each rank what it owns by the optimizer's plan.  With Adam on two ranks that is five values read and three written per
 * element.  It runs on memory of its own, of the same sizes and laid out in the same way: parameters handed out once per machine,
 * gradients handed out per rank, state on the owner's heap.  It is the same for all modes: where arrays are the program's own, the limit tells
 * what the step would take if they had been handed out.
 *
 * A mode is measured with its memory and its limit's and gives back both before the next one.  The ranks decide everything from
 * times that all of them have, so that they decide alike. */
#define _GNU_SOURCE
#include "bench.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/kernels.h"
#include "base/memory.h"
#include "base/status.h"
#include "bench_model.h"
#include "bench_sample.h"
#include "board/memory_left.h"
#include "limit.h"
#include "step/place.h"
#include "tool.h"
#include "zro.h"

enum {
    DEFAULT_RANKS = 2,
    SAMPLES = 31, /* of each loop; the step is sampled twice as often */
    QUICK_SAMPLES = 11,
    MAX_BATCH = 2000, /* steps in a sample */
    FIRSTS = 3,       /* how often a first step is timed */
    WARM_STEPS = 8,   /* buckets are formed anew in the second; RAdam takes its final form in the sixth */
    LINE_FLOATS = 16
};

static const double SAMPLE_US = 200; /* that a sample should take at least */

static const tool self = { "bench step", NULL, NULL, NULL };

/* ---- what is measured ---- */

typedef struct mode {
    const char *key;        /* in JSON; NULL: its results are those of the whole */
    const char *name;       /* in the table */
    zro_switch data, grads; /* ON: zro hands them out; OFF: they are the program's own memory */
    double clip_norm;
    zro_switch staged; /* ON: stage_grads, whose copies are timed apart */
} mode;

static const mode modes[] = {
    { NULL, "handed out", ZRO_ON, ZRO_ON, 0, ZRO_OFF },
    { "clip", "handed out, clip_norm", ZRO_ON, ZRO_ON, 1, ZRO_OFF },
    { "private_grads", "own gradients", ZRO_ON, ZRO_OFF, 0, ZRO_OFF },
    { "staged_grads", "own gradients, staged", ZRO_ON, ZRO_OFF, 0, ZRO_ON },
    { "in_place", "own", ZRO_OFF, ZRO_OFF, 0, ZRO_OFF },
};

enum { MODES = sizeof modes / sizeof *modes };

typedef struct options {
    int ranks, cores, params, json, quick;
    const contender *rule;
} options;

/* Per steady step, unless it says otherwise. */
typedef struct row {
    turns turns;
    double passes;
    double allocations; /* of the rank that had the most */
    double faults;      /* page faults of all ranks together: the median over samples */
    double first_us;    /* of the first step after creation: the median */
    double ready_us;    /* of zro_ddp_grad_ready, where gradients are staged: the median over samples */
} row;

/* Parameters in the order of the model; those without elements are left out. */
typedef struct list {
    zro_param params[GPT2_TENSORS];
    size_t n;
} list;

/* What the loops of the limit work on. */
typedef struct limit_memory {
    list list;
    zro__arena arena;
    const void **grads; /* per range and rank */
    limit_param *shapes;
    float *state[LIMIT_ARRAYS];
    limit_step step;
} limit_memory;

/* What one rank knows. */
typedef struct bench {
    const options *options;
    zro_group *group;
    int rank, size;
    const mode *mode; /* the one that is being measured */
    list list;
    zro_ddp *ddp;
    zro_optim *optim;
    limit_memory limit;
    int64_t faults;             /* page faults of this rank in steps */
    uint64_t steps;             /* steps so far */
    int64_t ready_ns, apart_ns; /* staged: of zro_ddp_grad_ready on this rank, and the same with the writing of gradients */
    uint64_t now;               /* the latest time that all ranks know */
    double *counted;            /* page faults per step, for each sample of steps */
    double *ready;              /* microseconds of zro_ddp_grad_ready per step, for each sample of steps */
    int n_counted;
    sample *samples;
    row rows[MODES];
} bench;

/* ---- parameters ---- */

static void name_list(list *l, size_t elements)
{
    size_t sizes[GPT2_TENSORS];

    l->n = 0;
    model_sizes(sizes, elements);
    for (size_t i = 0; i < GPT2_TENSORS; i++)
        if (sizes[i] > 0) {
            zro_param_init(&l->params[l->n]);
            l->params[l->n++].shape[0] = sizes[i];
        }
}

/* Takes what zro does not hand out, each array on its own, as programs have them. */
static zro_status take_own(list *l, zro_switch data, zro_switch grads)
{
    for (size_t i = 0; i < l->n; i++) {
        zro_param *p = &l->params[i];

        if (!data)
            p->data = zro__alloc_array(NULL, ZRO__KIND_BUFFER, p->shape[0], sizeof(float));
        if (!grads)
            p->grad = zro__alloc_array(NULL, ZRO__KIND_BUFFER, p->shape[0], sizeof(float));
        if (p->data == NULL || p->grad == NULL)
            return zro__fail(ZRO_ERR_MEMORY, "out of memory: a parameter of %zu elements", p->shape[0]);
    }
    return ZRO_OK;
}

static void free_list(list *l, zro_switch data, zro_switch grads)
{
    zro_params_free(l->params, l->n);
    for (size_t i = 0; i < l->n; i++) {
        if (!data)
            zro__free(l->params[i].data);
        if (!grads)
            zro__free(l->params[i].grad);
    }
    l->n = 0;
}

/* Memory and values: those of parameters that exist once are written by rank 0, before anybody reads them. */
static zro_status take_list(bench *b, list *l, zro_switch data, zro_switch grads)
{
    zro_alloc_config config = ZRO_ALLOC_CONFIG_INIT;
    uint32_t value = 1, gradient = 2 + (uint32_t)b->rank;
    zro_status st = ZRO_OK;

    name_list(l, (size_t)b->options->params);
    config.data = data;
    config.grads = grads;
    if (data || grads)
        st = zro_params_alloc(b->group, l->params, l->n, &config);
    if (st == ZRO_OK)
        st = take_own(l, data, grads);
    for (size_t i = 0; i < l->n && st == ZRO_OK; i++) {
        if (!data || b->rank == 0)
            model_fill(l->params[i].data, ZRO_F32, l->params[i].shape[0], &value);
        model_fill(l->params[i].grad, ZRO_F32, l->params[i].shape[0], &gradient);
    }
    return st == ZRO_OK ? zro_barrier(b->group) : st;
}

/* ---- the limit ---- */

static void free_limit(limit_memory *m)
{
    for (int k = 0; k < LIMIT_ARRAYS; k++)
        zro__free(m->state[k]);
    zro__arena_free(&m->arena);
    free_list(&m->list, ZRO_ON, ZRO_ON);
    memset(m, 0, sizeof *m);
}

/* Where each range of this rank lies in the gradients of all ranks, in the parameter, and in the state. */
static void make_shapes(bench *b, const zro_range *ranges, size_t n, int slots)
{
    limit_memory *m = &b->limit;
    size_t kept = 0;

    for (size_t i = 0; i < n; i++) {
        const zro_range *g = &ranges[i];
        const zro_param *p = &m->list.params[g->param];
        const zro_memory *grads = zro__param_place(p)->grads;
        size_t at = (size_t)((char *)p->grad - (char *)zro_memory_data(grads)) + g->first * sizeof(float);
        const void **of_ranks = &m->grads[i * (size_t)b->size];
        limit_param *shape = &m->shapes[i];

        for (int r = 0; r < b->size; r++)
            of_ranks[r] = (char *)zro_memory_peer(grads, r) + at;
        *shape = (limit_param){ .count = g->count, .grads = of_ranks };
        shape->arrays[0] = (float *)p->data + g->first;
        for (int k = 0; k < slots; k++)
            shape->arrays[1 + k] = m->state[k] + kept;
        kept += (g->count + LINE_FLOATS - 1) / LINE_FLOATS * LINE_FLOATS;
    }
    m->step = (limit_step){ .type = ZRO_F32, .n_arrays = 1 + slots, .n_grads = b->size, .params = m->shapes, .n_params = n };
}

/* The optimizer says how the parameters are divided. */
static zro_status take_limit(bench *b)
{
    const int slots = b->options->rule->slots;
    limit_memory *m = &b->limit;
    const zro_range *ranges;
    size_t n, kept = 0;
    uint32_t random = 1;
    zro_status st = zro_plan_ranges(zro_optim_plan(b->optim), b->rank, &ranges, &n);

    if (st == ZRO_OK)
        st = take_list(b, &m->list, ZRO_ON, ZRO_ON);
    if (st == ZRO_OK)
        st = zro__arena_arrays(
            &m->arena, NULL, "tables of the limit",
            (zro__array[]){ { &m->grads, n * (size_t)b->size, sizeof *m->grads }, { &m->shapes, n, sizeof *m->shapes } }, 2);
    for (size_t i = 0; i < n && st == ZRO_OK; i++)
        kept += (ranges[i].count + LINE_FLOATS - 1) / LINE_FLOATS * LINE_FLOATS;
    for (int k = 0; k < slots && st == ZRO_OK; k++) {
        m->state[k] = zro__alloc_array(NULL, ZRO__KIND_BUFFER, kept, sizeof(float));
        if (m->state[k] == NULL)
            st = zro__fail(ZRO_ERR_MEMORY, "out of memory: state of %zu elements", kept);
        else
            model_fill(m->state[k], ZRO_F32, kept, &random);
    }
    if (st == ZRO_OK)
        make_shapes(b, ranges, n, slots);
    return st;
}

/* ---- samples ---- */

/* A gradient becomes ready while it is in the caches. */
static zro_status write_and_ready(bench *b, size_t i)
{
    float *grad = b->list.params[i].grad;
    const uint64_t begun = zro__now_ns();
    uint64_t written;
    zro_status st;

    for (size_t k = 0; k < b->list.params[i].shape[0]; k++)
        grad[k] = -grad[k];
    written = zro__now_ns();
    st = zro_ddp_grad_ready(b->ddp, i);
    b->ready_ns += (int64_t)(zro__now_ns() - written);
    b->apart_ns += (int64_t)(zro__now_ns() - begun);
    return st;
}

static zro_status step(bench *b)
{
    zro_status st = zro_ddp_forward(b->ddp);

    for (size_t i = b->list.n; i-- > 0 && st == ZRO_OK;)
        st = b->mode->staged == ZRO_ON ? write_and_ready(b, i) : zro_ddp_grad_ready(b->ddp, i);
    if (st == ZRO_OK)
        st = zro_ddp_backward_end(b->ddp);
    return st == ZRO_OK ? zro_optim_step(b->optim, NULL) : st;
}

static int64_t page_faults(void)
{
    struct rusage usage;

    return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_minflt + usage.ru_majflt : 0;
}

static zro_status run_once(void *user, int loop)
{
    bench *b = user;
    zro_status st = ZRO_OK;

    if (loop == SIDE_ITSELF) {
        int64_t before = page_faults();

        st = step(b);
        b->faults += page_faults() - before;
        b->steps++;
    } else {
        limit_step_run(loop, &b->limit.step, NULL);
    }
    return st;
}

static zro_status take_sample(void *user, const side *s, sample *out)
{
    bench *b = user;
    int64_t apart[2];
    zro_status st;

    b->faults = b->ready_ns = b->apart_ns = 0;
    st = sample_ranks(b->group, s, run_once, b, out, &b->now);
    out->switches = sample_lost(out->switches, out->us * s->batch);
    if (st != ZRO_OK || s->loop != SIDE_ITSELF)
        return st;
    st = zro_all_reduce(b->group, &b->faults, 1, ZRO_I64, ZRO_SUM);
    apart[0] = b->ready_ns;
    apart[1] = b->apart_ns;
    if (st == ZRO_OK)
        st = zro_all_reduce(b->group, apart, 2, ZRO_I64, ZRO_MAX);
    out->us -= (double)apart[1] / 1e3 / s->batch; /* of the rank that the others have waited for */
    b->ready[b->n_counted] = (double)apart[0] / 1e3 / s->batch;
    b->counted[b->n_counted++] = (double)b->faults / s->batch;
    return st;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, by_value);
    return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

/* ---- a mode ---- */

static void free_mode(bench *b)
{
    free_limit(&b->limit);
    zro_optim_destroy(b->optim);
    zro_ddp_destroy(b->ddp);
    b->optim = NULL;
    b->ddp = NULL;
    free_list(&b->list, b->mode->data, b->mode->grads);
}

static zro_status make_mode(bench *b)
{
    const contender *rule = b->options->rule;
    zro_param_group params = ZRO_PARAM_GROUP_INIT;
    zro_ddp_config ddp = ZRO_DDP_CONFIG_INIT;
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_status st = take_list(b, &b->list, b->mode->data, b->mode->grads);

    ddp.stage_grads = b->mode->staged;
    if (st == ZRO_OK)
        st = zro_ddp_create(b->group, b->list.params, b->list.n, &ddp, &b->ddp);
    params.params = b->list.params;
    params.n = b->list.n;
    params.values = &rule->value;
    params.n_values = rule->value.name != NULL;
    config.clip_norm = b->mode->clip_norm;
    config.ddp = b->ddp;
    if (st == ZRO_OK)
        st = zro_optim_create(b->group, &params, 1, zro_rule_find(rule->name), NULL, &config, &b->optim);
    return st;
}

/* The first step of several optimizers one after another; the last one stays. */
static zro_status time_first(bench *b, row *r)
{
    const int n = b->mode == modes && !b->options->quick ? FIRSTS : 1;
    const side once = { .loop = SIDE_ITSELF, .batch = 1 };
    double us[FIRSTS] = { 0 };
    zro_status st = ZRO_OK;

    for (int i = 0; i < n && st == ZRO_OK; i++) {
        sample first = { 0 };

        if (i > 0)
            free_mode(b);
        st = make_mode(b);
        b->n_counted = 0;
        if (st == ZRO_OK)
            st = take_sample(b, &once, &first);
        us[i] = first.us;
    }
    r->first_us = median(us, n);
    return st;
}

static zro_status measure_steady(bench *b, row *r)
{
    const sampler p = { b, take_sample, NULL, limit_step_loops(), SAMPLE_US };
    zro_stats before = ZRO_STATS_INIT, after = ZRO_STATS_INIT;
    uint64_t first_step = b->steps;
    double per_step[2];
    zro_status st = zro_ddp_stats(b->ddp, &before);

    b->n_counted = 0;
    if (st == ZRO_OK)
        st = sample_turns(&p, b->options->quick ? QUICK_SAMPLES : SAMPLES, MAX_BATCH, b->samples, &r->turns);
    if (st == ZRO_OK)
        st = zro_ddp_stats(b->ddp, &after);
    if (st != ZRO_OK)
        return st;
    per_step[0] = (double)(after.passes - before.passes) / (double)(b->steps - first_step);
    per_step[1] = (double)(after.allocations - before.allocations) / (double)(b->steps - first_step);
    st = zro_all_reduce(b->group, per_step, 2, ZRO_F64, ZRO_MAX);
    r->passes = per_step[0];
    r->allocations = per_step[1];
    r->faults = median(b->counted, b->n_counted);
    r->ready_us = median(b->ready, b->n_counted);
    r->turns.disturbed &= b->size <= b->options->cores; /* with more ranks than processors that is how it is */
    return st;
}

static zro_status measure_mode(bench *b, row *r)
{
    zro_status st = time_first(b, r);

    for (int i = 1; i < WARM_STEPS && st == ZRO_OK; i++)
        st = step(b);
    if (st == ZRO_OK)
        st = take_limit(b);
    if (st == ZRO_OK)
        st = zro_barrier(b->group);
    if (st == ZRO_OK)
        st = measure_steady(b, r);
    free_mode(b);
    return st;
}

/* ---- results ---- */

static double share(const row *r)
{
    return r->turns.limit.median / r->turns.itself.median;
}

static void print_row_json(const row *r)
{
    printf("\"share\": %.4f, \"passes\": %.4g, \"median_ms\": %.4f, \"limit_ms\": %.4f, \"limit\": \"%s\", \"disturbed\": %s",
           share(r), r->passes, r->turns.itself.median / 1e3, r->turns.limit.median / 1e3, limit_step_name(r->turns.loop),
           r->turns.disturbed ? "true" : "false");
}

static void print_json(const bench *b)
{
    const row *whole = &b->rows[0];

    bench_print_json_head(b->options->cores);
    printf(", \"ranks\": %d, \"params\": %d, \"rule\": \"%s\", \"kernels\": \"%s\",\n ", b->size, b->options->params,
           b->options->rule->name, zro__kernels_get(ZRO_KERNELS_AUTO)->name);
    print_row_json(whole);
    printf(",\n \"faults_per_step\": %.4g, \"allocations_per_step\": %.4g, \"first_over_steady\": %.4f", whole->faults,
           whole->allocations, whole->first_us / whole->turns.itself.median);
    for (int i = 1; i < MODES; i++) {
        printf(",\n \"%s\": {", modes[i].key);
        print_row_json(&b->rows[i]);
        if (modes[i].staged == ZRO_ON)
            printf(", \"ready_ms\": %.4f", b->rows[i].ready_us / 1e3);
        putchar('}');
    }
    puts("}");
}

static void print_table(const bench *b)
{
    const row *whole = &b->rows[0];
    char processor[128], date[32];
    int disturbed = 0;

    bench_machine(processor, sizeof processor);
    bench_date(date, sizeof date);
    printf("zro %s, %d rank%s, %s, %d parameters, %s, %d processor%s, %s kernels, %s\n\n", zro_version(), b->size,
           b->size == 1 ? "" : "s", b->options->rule->name, b->options->params, processor, b->options->cores,
           b->options->cores == 1 ? "" : "s", zro__kernels_get(ZRO_KERNELS_AUTO)->name, date);
    printf("%-22s %10s %-19s %9s %7s  %6s  %s\n", "memory", "median ms", " (quartiles)", "limit ms", "share", "passes",
           "limit is");
    for (int i = 0; i < MODES; i++) {
        const turns *t = &b->rows[i].turns;

        printf("%-22s %10.3f  (%7.3f-%7.3f)  %9.3f %7.3f%c %6.4g  %s\n", modes[i].name, t->itself.median / 1e3,
               t->itself.low / 1e3, t->itself.high / 1e3, t->limit.median / 1e3, share(&b->rows[i]), t->disturbed ? '*' : ' ',
               b->rows[i].passes, limit_step_name(t->loop));
        disturbed += t->disturbed;
    }
    printf("\nHanded out, per steady step: %.4g page faults, %.4g allocations.  The first step took %.2f times as long.\n",
           whole->faults, whole->allocations, whole->first_us / whole->turns.itself.median);
    for (int i = 0; i < MODES; i++)
        if (modes[i].staged == ZRO_ON)
            printf("Own gradients, staged: the copies took another %.3f ms, inside backward.\n", b->rows[i].ready_us / 1e3);
    puts("share: limit / time; 1 is as fast as the memory allows.  The limit is that of memory handed out, in every row.");
    if (disturbed > 0)
        printf("* In %d of %d rows, ranks kept losing their processors to other programs: do not trust these rows.\n",
               disturbed, MODES);
}

/* ---- the ranks ---- */

static zro_status measure_all(bench *b)
{
    zro_status st = ZRO_OK;

    for (int i = 0; i < MODES && st == ZRO_OK; i++) {
        b->mode = &modes[i];
        if (b->rank == 0)
            bench_progress("%s", modes[i].name);
        st = measure_mode(b, &b->rows[i]);
        if (st == ZRO_OK)
            st = zro_barrier(b->group); /* all have freed their memory */
    }
    if (b->rank == 0)
        bench_progress(NULL);
    return st;
}

static int run_rank(void *user, zro_group *group)
{
    const options *o = user;
    bench *b = zro__alloc(NULL, ZRO__KIND_HANDLE, sizeof *b);
    zro__arena arena = { 0 };
    zro_status st;

    if (b == NULL) {
        tool_say(&self, "out of memory");
        return 1;
    }
    b->options = o;
    b->group = group;
    b->rank = zro_group_rank(group);
    b->size = zro_group_size(group);
    if (b->size <= o->cores)
        tool_pin(b->rank);
    st = zro__arena_arrays(&arena, NULL, "tables of the benchmark",
                           (zro__array[]){ { &b->samples, SAMPLES_PER_TURN * SAMPLES, sizeof *b->samples },
                                           { &b->counted, SAMPLES_PER_TURN * SAMPLES, sizeof *b->counted },
                                           { &b->ready, SAMPLES_PER_TURN * SAMPLES, sizeof *b->ready } },
                           3);
    if (st == ZRO_OK)
        st = measure_all(b);
    if (st != ZRO_OK)
        tool_say(&self, "rank %d: %s", b->rank, zro_last_error());
    else if (b->rank == 0)
        o->json ? print_json(b) : print_table(b);
    zro__arena_free(&arena);
    zro__free(b);
    return st != ZRO_OK;
}

/* Values per element that a mode keeps at most: parameters and gradients of each rank and what gradients travel through, state;
 * and the limit beside it. */
static zro_status check_room(const options *o)
{
    const uint64_t n = (uint64_t)o->ranks, slots = (uint64_t)o->rule->slots, spare = (uint64_t)64 << 20;
    uint64_t need = (uint64_t)o->params * sizeof(float) * (3 * n + slots + n + 1 + slots);
    zro__memory_left left;

    need += need / 16 + spare;
    zro__memory_left_get("", &left);
    if (need <= left.bytes)
        return ZRO_OK;
    return zro__fail(ZRO_ERR_MEMORY, "%d parameters on %d ranks need %" PRIu64 " MB; %s has %" PRIu64 " MB: try --params",
                     o->params, o->ranks, need >> 20, left.where, left.bytes >> 20);
}

/* ---- the command line ---- */

static int read_params(const char *text, int *params)
{
    *params = GPT2_PARAMS;
    if (strcmp(text, "gpt2") == 0)
        return 0;
    if (text[0] < '0' || text[0] > '9')
        return tool_usage(&self, "--params = \"%s\", must be gpt2 or a whole number", text);
    return tool_integer(&self, "--params", text, 1000, INT32_MAX, params);
}

static int read_rule(const char *text, const contender **rule)
{
    for (int i = 0; i < CONTENDERS; i++)
        if (strcmp(contenders[i].name, text) == 0) {
            *rule = &contenders[i];
            return 0;
        }
    return tool_usage(&self, "--rule: there is no \"%s\"", text);
}

static int read_options(int argc, char **argv, options *o, int *help)
{
    enum { JSON = 256, QUICK, PARAMS, RULE };
    static const struct option known[] = {
        { "ranks", required_argument, NULL, 'n' },
        { "params", required_argument, NULL, PARAMS },
        { "rule", required_argument, NULL, RULE },
        { "json", no_argument, NULL, JSON },
        { "quick", no_argument, NULL, QUICK },
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };
    int c, bad = 0;

    opterr = 0;
    while (!bad && !*help && (c = getopt_long(argc, argv, ":n:h", known, NULL)) != -1) {
        switch (c) {
        case 'n':
            bad = tool_integer(&self, "-n (--ranks)", optarg, 1, LIMIT_GRADS, &o->ranks);
            break;
        case PARAMS:
            bad = read_params(optarg, &o->params);
            break;
        case RULE:
            bad = read_rule(optarg, &o->rule);
            break;
        case JSON:
            o->json = 1;
            break;
        case QUICK:
            o->quick = 1;
            break;
        case 'h':
            *help = 1;
            break;
        default:
            bad = tool_bad_option(&self, c, argv);
        }
    }
    if (!bad && !*help && optind < argc)
        return tool_usage(&self, "\"%s\" is one argument too many", argv[optind]);
    return bad;
}

int bench_step(int argc, char **argv)
{
    options o = { .ranks = DEFAULT_RANKS, .cores = tool_cores(), .rule = &contenders[0] };
    int help = 0, bad = read_options(argc, argv, &o, &help);

    if (bad)
        return bad;
    if (help)
        return tool_help(&tool_bench);
    if (o.params == 0)
        o.params = o.quick ? GPT2_PARAMS / 4 : GPT2_PARAMS;
    if (check_room(&o) == ZRO_OK && zro_spawn(NULL, o.ranks, run_rank, &o) == ZRO_OK)
        return 0;
    tool_say(&self, "%s", zro_last_error());
    return 1;
}
