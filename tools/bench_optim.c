/* `zro bench optim`: steps of the optimizers against the limit of the machine.
 *
 * Samples are taken as bench_sample.h says.
 *
 * The limit is the fastest loop (limit.h) that reads and writes what the step must at least read and write: the gradient read,
 * the parameter and each array of state read and written; 16-bit parameters, which have masters, written.  The loops run on the
 * optimizer's own state, which is nonsense then, but finite and positive like gradients and parameters, so that neither side
 * meets numbers that are slow to compute with.
 *
 * Beside it stands the speed on arrays that fit into the second-level cache: what the step would do if memory cost nothing. */
#define _GNU_SOURCE
#include "bench.h"

#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/kernels.h"
#include "base/memory.h"
#include "base/status.h"
#include "bench_model.h"
#include "bench_sample.h"
#include "board/memory_left.h"
#include "limit.h"
#include "tool.h"
#include "zro.h"

enum {
    DEFAULT_SAMPLES = 31,
    MAX_SAMPLES = 1000,
    MAX_BATCH = 2000, /* steps in a sample */
    MAX_THREADS = 256,
    WARM_STEPS = 8, /* RAdam takes its final form in the sixth */
    MAX_KERNELS = ZRO_KERNELS_AVX512 + 1
};

static const double SAMPLE_US = 200; /* that a sample should take at least */

static const tool self = { "bench optim", NULL, NULL, NULL };

/* ---- what is measured ---- */

enum { QUICK_CONTENDERS = 3 };

static const zro_dtype dtypes[] = { ZRO_F32, ZRO_F64, ZRO_BF16, ZRO_F16 };

enum { DTYPES = sizeof dtypes / sizeof *dtypes };

typedef struct options {
    unsigned rules;  /* bit i: contenders[i] is measured */
    unsigned dtypes; /* bit i: dtypes[i] is measured */
    zro_kernels kernels[MAX_KERNELS];
    int n_kernels, cores, threads, params, samples, json, quick;
} options;

typedef struct row {
    const contender *rule;
    zro_dtype dtype;
    zro_kernels kernels;
    times step, roof;
    int loop;          /* the loop that was the limit */
    int disturbed;     /* in too many samples a thread lost its processor */
    double bytes;      /* that a step must read and write */
    double cached_gbs; /* GB/s on arrays that fit into the second-level cache */
} row;

typedef struct list {
    zro_param params[GPT2_TENSORS];
    size_t n, elements;
} list;

typedef struct bench {
    const options *options;
    zro__pool *pool; /* of the limit's loops; NULL with one thread */
    list list, small;
    limit_param shapes[GPT2_TENSORS];
    row *rows;
    int n_rows;
} bench;

/* ---- parameters ---- */

static void free_list(list *l)
{
    for (size_t i = 0; i < l->n; i++) {
        zro__free(l->params[i].data);
        zro__free(l->params[i].grad);
    }
    l->n = l->elements = 0;
}

/* Each array on its own, as programs have them. */
static zro_status take_list(list *l, zro_dtype dtype, const size_t *sizes, size_t n)
{
    uint32_t random = 1;

    for (size_t i = 0; i < n; i++) {
        zro_param *p = &l->params[i];

        zro_param_init(p);
        p->dtype = dtype;
        p->shape[0] = sizes[i];
        l->n = i + 1;
        l->elements += sizes[i];
        if (sizes[i] == 0) /* of fewer elements than parameters */
            continue;
        p->data = zro__alloc_array(NULL, ZRO__KIND_BUFFER, sizes[i], zro_dtype_bytes(dtype));
        p->grad = zro__alloc_array(NULL, ZRO__KIND_BUFFER, sizes[i], zro_dtype_bytes(dtype));
        if (p->data == NULL || p->grad == NULL)
            return zro__fail(ZRO_ERR_MEMORY, "out of memory: a parameter of %zu elements", sizes[i]);
        model_fill(p->data, dtype, sizes[i], &random);
        model_fill(p->grad, dtype, sizes[i], &random);
        p->grad_present = 1;
    }
    return ZRO_OK;
}

static int has_halves(zro_dtype dtype)
{
    return zro_dtype_bytes(dtype) == 2;
}

/* Of memory, for each element: gradient, parameter, state, master. */
static size_t bytes_kept(const contender *c, zro_dtype dtype)
{
    size_t size = zro_dtype_bytes(dtype), wide = has_halves(dtype) ? sizeof(float) : size;

    return 2 * size + (size_t)c->slots * wide + (has_halves(dtype) ? sizeof(float) : 0);
}

/* ---- the shape of the limit ---- */

static zro_status find_array(const zro_optim *optim, size_t param, const char *name, limit_param *r, int *n)
{
    zro_slot slot;
    zro_status st = zro_optim_slot(optim, param, name, &slot);

    if (st == ZRO_OK && slot.present)
        r->arrays[(*n)++] = slot.data;
    return st;
}

/* What a step of the optimizer reads and writes, which has been stepped, so that its state is there. */
static zro_status make_shape(bench *b, const zro_optim *optim, const zro_rule *rule, zro_dtype dtype, limit_step *s)
{
    zro_status st = ZRO_OK;

    s->halves = has_halves(dtype);
    s->type = s->halves ? ZRO_F32 : dtype;
    s->n_grads = 1;
    s->params = b->shapes;
    s->n_params = b->list.n;
    for (size_t i = 0; i < b->list.n && st == ZRO_OK; i++) {
        const zro_param *p = &b->list.params[i];
        limit_param *r = &b->shapes[i];
        int n = 0;

        *r = (limit_param){ .count = p->shape[0], .grads = (const void *const *)&p->grad };
        if (s->halves) {
            r->output = p->data;
            st = find_array(optim, i, "master", r, &n);
        } else {
            r->arrays[n++] = p->data;
        }
        for (size_t k = 0; k < rule->n_slots && st == ZRO_OK; k++)
            if (rule->slots[k].kind == ZRO_SLOT_ARRAY)
                st = find_array(optim, i, rule->slots[k].name, r, &n);
        s->n_arrays = n;
    }
    return st;
}

/* ---- samples ---- */

/* What is timed: a step, or a loop of its shape. */
typedef struct subject {
    zro_optim *optim;
    const limit_step *shape;
    zro__pool *pool;
} subject;

static zro_status run_once(const subject *u, int loop)
{
    if (loop == SIDE_ITSELF)
        return zro_optim_step(u->optim, NULL);
    limit_step_run(loop, u->shape, u->pool);
    return ZRO_OK;
}

static zro_status take_sample(void *user, const side *s, sample *out)
{
    int64_t before = sample_switches(RUSAGE_SELF);
    uint64_t start = zro__now_ns();
    zro_status st = ZRO_OK;
    double us;

    for (int i = 0; i < s->batch && st == ZRO_OK; i++)
        st = run_once(user, s->loop);
    us = (double)(zro__now_ns() - start) / 1e3;
    *out = (sample){ us / s->batch, sample_lost(sample_switches(RUSAGE_SELF) - before, us) };
    return st;
}

static zro_status make_optim(const bench *b, list *l, const row *r, zro_optim **out)
{
    zro_param_group group = {
        .params = l->params, .n = l->n, .values = &r->rule->value, .n_values = r->rule->value.name != NULL
    };
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_status st;

    config.settings.threads = (uint32_t)b->options->threads;
    config.settings.kernels = r->kernels;
    st = zro_optim_create(NULL, &group, 1, zro_rule_find(r->rule->name), NULL, &config, out);
    for (int i = 0; i < WARM_STEPS && st == ZRO_OK; i++)
        st = zro_optim_step(*out, NULL);
    return st;
}

static zro_status measure_step(bench *b, row *r, sample *samples)
{
    limit_step shape = { 0 };
    subject u = { .shape = &shape, .pool = b->pool };
    const sampler p = { &u, take_sample, NULL, limit_step_loops(), SAMPLE_US };
    turns t;
    zro_status st = make_optim(b, &b->list, r, &u.optim);

    if (st == ZRO_OK)
        st = make_shape(b, u.optim, zro_rule_find(r->rule->name), r->dtype, &shape);
    if (st == ZRO_OK)
        st = sample_turns(&p, b->options->samples, MAX_BATCH, samples, &t);
    if (st == ZRO_OK) {
        r->loop = t.loop;
        r->step = t.itself;
        r->roof = t.limit;
        r->disturbed = t.disturbed;
        r->bytes = (double)limit_step_bytes(&shape) * (double)b->list.elements;
    }
    zro_optim_destroy(u.optim);
    return st;
}

/* The same rule on one parameter of which each thread's part, with its state, takes half of a second-level cache. */
static zro_status measure_cached(bench *b, row *r, sample *samples)
{
    const double per_element = r->bytes / (double)b->list.elements;
    const int enough = b->options->samples;
    long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
    size_t count = (size_t)b->options->threads * (size_t)(cache > 0 ? cache : 256 << 10) / 2 / bytes_kept(r->rule, r->dtype);
    subject u = { 0 };
    const sampler p = { .user = &u, .take = take_sample, .sample_us = SAMPLE_US };
    side step = { .loop = SIDE_ITSELF, .max_batch = MAX_BATCH, .samples = samples };
    int ignored = 0;
    double us;
    zro_status st = take_list(&b->small, r->dtype, &count, 1);

    if (st == ZRO_OK)
        st = make_optim(b, &b->small, r, &u.optim);
    if (st == ZRO_OK)
        st = sample_try(&p, &step, &us);
    while (st == ZRO_OK && (step.n < enough || (step.clean < enough && step.n < 4 * enough)))
        st = sample_keep(&p, &step);
    if (st == ZRO_OK)
        r->cached_gbs = per_element * (double)count / sample_times(&step, enough, &ignored).median / 1e3;
    zro_optim_destroy(u.optim);
    free_list(&b->small);
    return st;
}

/* ---- results ---- */

static double gbs(const row *r, double us)
{
    return r->bytes / us / 1e3;
}

static void print_json(const bench *b)
{
    bench_print_json_head(b->options->cores);
    printf(", \"params\": %d, \"rows\": [", b->options->params);
    for (int i = 0; i < b->n_rows; i++) {
        const row *r = &b->rows[i];

        printf("%s\n  {\"rule\": \"%s\", \"dtype\": \"%s\", \"kernels\": \"%s\", \"threads\": %d, ", i == 0 ? "" : ",",
               r->rule->name, zro_dtype_name(r->dtype), zro__kernels_get(r->kernels)->name, b->options->threads);
        printf("\"gbs\": %.3f, \"share\": %.4f, ", gbs(r, r->step.median), r->roof.median / r->step.median);
        printf("\"gbs_q1\": %.3f, \"gbs_q3\": %.3f, ", gbs(r, r->step.high), gbs(r, r->step.low));
        printf("\"roof_gbs\": %.3f, \"roof_q1\": %.3f, \"roof_q3\": %.3f, \"roof\": \"%s\", ", gbs(r, r->roof.median),
               gbs(r, r->roof.high), gbs(r, r->roof.low), limit_step_name(r->loop));
        printf("\"compute_gbs\": %.3f, \"median_us\": %.3f, \"disturbed\": %s}", r->cached_gbs, r->step.median,
               r->disturbed ? "true" : "false");
    }
    puts("\n]}");
}

static void print_table(const bench *b)
{
    char processor[128], date[32];
    int disturbed = 0;

    bench_machine(processor, sizeof processor);
    bench_date(date, sizeof date);
    printf("zro %s, %d parameters, %d thread%s, %s, %d processors, %s\n\n", zro_version(), b->options->params,
           b->options->threads, b->options->threads == 1 ? "" : "s", processor, b->options->cores, date);
    printf("%-9s %-5s %-7s %10s  %-22s %-22s %-7s %-12s %s\n", "rule", "dtype", "kernels", "median ms", "GB/s (quartiles)",
           "limit GB/s", "share", "limit is", "in cache GB/s");
    for (int i = 0; i < b->n_rows; i++) {
        const row *r = &b->rows[i];

        printf("%-9s %-5s %-7s %10.3f ", r->rule->name, zro_dtype_name(r->dtype), zro__kernels_get(r->kernels)->name,
               r->step.median / 1e3);
        printf("%7.2f (%6.2f-%6.2f) ", gbs(r, r->step.median), gbs(r, r->step.high), gbs(r, r->step.low));
        printf("%7.2f (%6.2f-%6.2f) ", gbs(r, r->roof.median), gbs(r, r->roof.high), gbs(r, r->roof.low));
        printf("%6.3f%c %-12s %8.2f\n", r->roof.median / r->step.median, r->disturbed ? '*' : ' ', limit_step_name(r->loop),
               r->cached_gbs);
        disturbed += r->disturbed;
    }
    puts("\nGB/s: bytes that the rule must read and write / time.  share: GB/s / limit GB/s; 1 is as fast as the memory "
         "allows.");
    if (disturbed > 0)
        printf("* In %d of %d rows, threads kept losing their processors to other programs: do not trust these rows.\n",
               disturbed, b->n_rows);
}

/* ---- rows ---- */

/* All rows must fit into memory, so that a run does not end in the middle. */
static zro_status check_room(const options *o)
{
    uint64_t need = 0, spare = (uint64_t)64 << 20;
    zro__memory_left left;

    for (int d = 0; d < DTYPES; d++)
        for (int i = 0; i < CONTENDERS; i++)
            if ((o->dtypes >> d & 1) && (o->rules >> i & 1)) {
                uint64_t bytes = (uint64_t)o->params * bytes_kept(&contenders[i], dtypes[d]);

                need = bytes > need ? bytes : need;
            }
    zro__memory_left_get("", &left);
    if (need + need / 16 + spare <= left.bytes)
        return ZRO_OK;
    return zro__fail(ZRO_ERR_MEMORY, "%d parameters and their state need %" PRIu64 " MB; %s has %" PRIu64 " MB: try --params",
                     o->params, (need + need / 16 + spare) >> 20, left.where, left.bytes >> 20);
}

static zro_status measure_dtype(bench *b, zro_dtype dtype, sample *samples)
{
    const options *o = b->options;
    size_t sizes[GPT2_TENSORS];
    zro_status st;

    model_sizes(sizes, (size_t)o->params);
    st = take_list(&b->list, dtype, sizes, GPT2_TENSORS);
    for (int i = 0; i < CONTENDERS; i++)
        for (int k = 0; k < o->n_kernels && st == ZRO_OK && (o->rules >> i & 1); k++) {
            row *r = &b->rows[b->n_rows++];

            *r = (row){ .rule = &contenders[i], .dtype = dtype, .kernels = o->kernels[k] };
            bench_progress("%s, %s, %s", r->rule->name, zro_dtype_name(dtype), zro__kernels_get(r->kernels)->name);
            st = measure_step(b, r, samples);
            if (st == ZRO_OK)
                st = measure_cached(b, r, samples);
        }
    free_list(&b->list);
    return st;
}

static zro_status measure_all(bench *b)
{
    const options *o = b->options;
    sample *samples = zro__alloc_array(NULL, ZRO__KIND_HANDLE, (size_t)o->samples, SAMPLES_PER_TURN * sizeof *samples);
    zro_status st = check_room(o);

    b->rows = zro__alloc_array(NULL, ZRO__KIND_HANDLE, (size_t)(DTYPES * CONTENDERS * MAX_KERNELS), sizeof *b->rows);
    if (samples == NULL || b->rows == NULL)
        st = zro__fail(ZRO_ERR_MEMORY, "out of memory: tables of the benchmark");
    if (st == ZRO_OK && o->threads > 1)
        st = zro__pool_create(NULL, (uint32_t)o->threads, &b->pool);
    else
        tool_pin(0);
    for (int d = 0; d < DTYPES && st == ZRO_OK; d++)
        if (o->dtypes >> d & 1)
            st = measure_dtype(b, dtypes[d], samples);
    bench_progress(NULL);
    zro__pool_destroy(b->pool);
    zro__free(samples);
    return st;
}

static int run(const options *o)
{
    bench *b = zro__alloc(NULL, ZRO__KIND_HANDLE, sizeof *b);
    zro_status st;

    if (b == NULL) {
        tool_say(&self, "out of memory");
        return 1;
    }
    b->options = o;
    st = measure_all(b);
    if (st != ZRO_OK)
        tool_say(&self, "%s", zro_last_error());
    else
        o->json ? print_json(b) : print_table(b);
    zro__free(b->rows);
    zro__free(b);
    return st != ZRO_OK;
}

/* ---- the command line ---- */

static const char *dtype_name(int i)
{
    return zro_dtype_name(dtypes[i]);
}

static int read_kernels(const char *text, options *o)
{
    static const char *const names[] = { "auto", "base", "avx2", "avx512" };
    int i = 0;

    o->n_kernels = 0;
    if (strcmp(text, "all") == 0) {
        for (i = ZRO_KERNELS_BASE; i < MAX_KERNELS; i++)
            if (zro__kernels_get((zro_kernels)i) != NULL)
                o->kernels[o->n_kernels++] = (zro_kernels)i;
        return 0;
    }
    while (i < MAX_KERNELS && strcmp(names[i], text) != 0)
        i++;
    if (i == MAX_KERNELS)
        return tool_usage(&self, "--kernels = \"%s\", must be auto, base, avx2, avx512 or all", text);
    if (zro__kernels_get((zro_kernels)i) == NULL)
        return tool_usage(&self, "--kernels = \"%s\": this processor does not have them", text);
    o->kernels[o->n_kernels++] = zro__kernels_get((zro_kernels)i)->which;
    return 0;
}

static int read_options(int argc, char **argv, options *o, int *help)
{
    enum { JSON = 256, RULES, TYPES, KERNELS, THREADS, PARAMS, SAMPLES, QUICK };
    static const struct option known[] = {
        { "json", no_argument, NULL, JSON },
        { "rules", required_argument, NULL, RULES },
        { "dtypes", required_argument, NULL, TYPES },
        { "kernels", required_argument, NULL, KERNELS },
        { "threads", required_argument, NULL, THREADS },
        { "params", required_argument, NULL, PARAMS },
        { "samples", required_argument, NULL, SAMPLES },
        { "quick", no_argument, NULL, QUICK },
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };
    int c, bad = read_kernels("auto", o);

    opterr = 0;
    while (!bad && !*help && (c = getopt_long(argc, argv, ":h", known, NULL)) != -1) {
        switch (c) {
        case JSON:
            o->json = 1;
            break;
        case RULES:
            bad = bench_read_list(&self, "--rules", optarg, contender_name, CONTENDERS, &o->rules);
            break;
        case TYPES:
            bad = bench_read_list(&self, "--dtypes", optarg, dtype_name, DTYPES, &o->dtypes);
            break;
        case KERNELS:
            bad = read_kernels(optarg, o);
            break;
        case THREADS:
            bad = tool_integer(&self, "--threads", optarg, 1, MAX_THREADS, &o->threads);
            break;
        case PARAMS:
            bad = tool_integer(&self, "--params", optarg, 1000, INT32_MAX, &o->params);
            break;
        case SAMPLES:
            bad = tool_integer(&self, "--samples", optarg, 1, MAX_SAMPLES, &o->samples);
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

int bench_optim(int argc, char **argv)
{
    options o = { .cores = tool_cores(), .threads = 1, .samples = DEFAULT_SAMPLES };
    int help = 0, bad = read_options(argc, argv, &o, &help);

    if (bad)
        return bad;
    if (help)
        return tool_help(&tool_bench);
    if (o.rules == 0)
        o.rules = (1U << (o.quick ? QUICK_CONTENDERS : CONTENDERS)) - 1;
    if (o.dtypes == 0)
        o.dtypes = 1;
    if (o.params == 0)
        o.params = o.quick ? GPT2_PARAMS / 4 : GPT2_PARAMS;
    return run(&o);
}
