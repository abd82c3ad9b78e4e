/* `zro bench overlap`: what a step costs that is made during backward.
 *
 * An iteration is a backward that only computes, in registers, so that the bandwidth of memory is free: after each share of it, in
 * proportion to the elements, a parameter becomes ready, the last one first.  Then come zro_ddp_backward_end and zro_optim_step.  The
 * same is done without overlap, after the last bucket, interleaved, and as backward alone; each has its own ddp, optimizer and memory, and
 * they take turns.  Backward takes twenty times as long as a step.
 *
 * hidden_share: how much of what a step adds to backward disappears when it is interleaved.  On one processor per rank the library's thread
 * and backward share it, so that nothing can disappear but waiting. */
#define _GNU_SOURCE
#include "bench.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>

#include "base/memory.h"
#include "base/status.h"
#include "bench_model.h"
#include "bench_sample.h"
#include "tool.h"
#include "zro.h"

enum {
    DEFAULT_RANKS = 2,
    MOST_RANKS = 64,
    DEFAULT_PARAMS = GPT2_PARAMS / 8,
    SAMPLES = 31,
    QUICK_SAMPLES = 5,
    WARM = 3,     /* iterations of each before the first sample; buckets are formed anew in the second */
    COMPUTE = 20, /* backward takes so many times as long as a step */
    LANES = 16
};

static const tool self = { "bench overlap", NULL, NULL, NULL };

typedef enum mode { PLAIN, AFTER_LAST, INTERLEAVED, ALONE, MODES } mode;

static const struct {
    const char *key, *name;
    zro_overlap overlap;
} modes[MODES] = { [PLAIN] = { "plain_ms", "plain", ZRO_OVERLAP_OFF },
                   [AFTER_LAST] = { "after_last_ms", "after the last bucket", ZRO_OVERLAP_AFTER_LAST },
                   [INTERLEAVED] = { "interleaved_ms", "interleaved", ZRO_OVERLAP_INTERLEAVED },
                   [ALONE] = { "backward_ms", "backward alone", ZRO_OVERLAP_OFF } };

typedef struct options {
    int ranks, cores, params, json, quick;
} options;

/* What one way of stepping has on a rank. */
typedef struct way {
    zro_param params[GPT2_TENSORS];
    zro_ddp *ddp;
    zro_optim *optim;
} way;

typedef struct bench {
    const options *options;
    zro_group *group;
    way ways[ALONE]; /* backward alone needs none */
    size_t n;        /* parameters */
    double rounds;   /* of arithmetic per element of a parameter */
    float lanes[LANES];
    sample samples[MODES][SAMPLES];
    times times[MODES];
    int disturbed;
    uint64_t now;
} bench;

/* ---- an iteration ---- */

/* Multiplications and additions of a few numbers, which stay finite. */
static void compute(bench *b, size_t elements)
{
    const size_t rounds = (size_t)(b->rounds * (double)elements);

    for (size_t r = 0; r < rounds; r++)
        for (int i = 0; i < LANES; i++)
            b->lanes[i] = b->lanes[i] * 0.5f + 1;
}

static zro_status iterate(void *user, int which)
{
    bench *b = user;
    way *w = &b->ways[which % ALONE];
    const int steps = which != ALONE;
    zro_status st = steps ? zro_ddp_forward(w->ddp) : ZRO_OK;

    for (size_t i = b->n; i-- > 0 && st == ZRO_OK;) {
        compute(b, zro_param_count(&w->params[i]));
        if (steps)
            st = zro_ddp_grad_ready(w->ddp, i);
    }
    if (st == ZRO_OK && steps)
        st = zro_ddp_backward_end(w->ddp);
    return st == ZRO_OK && steps ? zro_optim_step(w->optim, NULL) : st;
}

/* ---- making ---- */

static zro_status make_way(bench *b, way *w, zro_overlap overlap)
{
    zro_param_group group = { .params = w->params, .n = b->n };
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_ddp_config ddp = ZRO_DDP_CONFIG_INIT;
    uint32_t random = 1;
    size_t sizes[GPT2_TENSORS];
    zro_status st;

    model_sizes(sizes, (size_t)b->options->params);
    for (size_t i = 0; i < b->n; i++) {
        zro_param_init(&w->params[i]);
        w->params[i].shape[0] = sizes[i];
    }
    st = zro_params_alloc(b->group, w->params, b->n, NULL);
    for (size_t i = 0; i < b->n && st == ZRO_OK; i++) {
        if (zro_group_rank(b->group) == 0)
            model_fill(w->params[i].data, ZRO_F32, sizes[i], &random);
        model_fill(w->params[i].grad, ZRO_F32, sizes[i], &random);
    }
    ddp.bucket_bytes = (size_t)b->options->params * sizeof(float) / 14; /* as many buckets as GPT-2 has with PyTorch's limits */
    if (st == ZRO_OK)
        st = zro_ddp_create(b->group, w->params, b->n, &ddp, &w->ddp);
    config.ddp = w->ddp;
    config.overlap = overlap;
    return st == ZRO_OK ? zro_optim_create(b->group, &group, 1, zro_rule_adam(), NULL, &config, &w->optim) : st;
}

static void free_way(bench *b, way *w)
{
    zro_optim_destroy(w->optim);
    zro_ddp_destroy(w->ddp);
    zro_params_free(w->params, b->n);
}

static zro_status take_sample(bench *b, mode m, sample *out)
{
    const side s = { .loop = (int)m, .batch = 1 };

    return sample_ranks(b->group, &s, iterate, b, out, &b->now);
}

/* The arithmetic per element that makes backward as long as it should be; the ranks have the same times. */
static zro_status calibrate(bench *b)
{
    sample step = { 0, 0 }, backward = { 0, 0 };
    zro_status st = ZRO_OK;

    for (int i = 0; i < 3 && st == ZRO_OK; i++)
        st = take_sample(b, PLAIN, &step);
    b->rounds = 1;
    for (int i = 0; i < 2 && st == ZRO_OK; i++)
        st = take_sample(b, ALONE, &backward);
    b->rounds = COMPUTE * step.us / fmax(backward.us, 1e-3);
    return st;
}

static zro_status measure(bench *b)
{
    const int n = b->options->quick ? QUICK_SAMPLES : SAMPLES;
    zro_status st = ZRO_OK;
    sample unused;

    b->n = GPT2_TENSORS;
    for (int m = 0; m < ALONE && st == ZRO_OK; m++)
        st = make_way(b, &b->ways[m], modes[m].overlap);
    for (int i = 0; i < WARM * ALONE && st == ZRO_OK; i++)
        st = iterate(b, i % ALONE);
    if (st == ZRO_OK)
        st = calibrate(b);
    for (int m = 0; m < MODES && st == ZRO_OK; m++)
        st = take_sample(b, (mode)m, &unused);
    for (int i = 0; i < n * MODES && st == ZRO_OK; i++)
        st = take_sample(b, (mode)(i % MODES), &b->samples[i % MODES][i / MODES]);
    for (int m = 0; m < MODES && st == ZRO_OK; m++) {
        side s = { .loop = m, .samples = b->samples[m], .n = n, .clean = n };

        b->times[m] = sample_times(&s, n, &b->disturbed);
    }
    for (int m = 0; m < ALONE; m++)
        free_way(b, &b->ways[m]);
    return st;
}

/* ---- results ---- */

static double hidden_share(const bench *b)
{
    const double adds = b->times[PLAIN].median - b->times[ALONE].median;

    return adds > 0 ? (b->times[PLAIN].median - b->times[INTERLEAVED].median) / adds : 0;
}

static int cores_per_rank(const options *o)
{
    return o->cores >= o->ranks ? o->cores / o->ranks : 1;
}

static void print_json(const bench *b)
{
    const options *o = b->options;

    bench_print_json_head(o->cores);
    printf(", \"ranks\": %d, \"params\": %d,\n ", o->ranks, o->params);
    for (int m = 0; m < MODES; m++)
        printf("\"%s\": %.4f, ", modes[m].key, b->times[m].median / 1e3);
    printf("\"hidden_share\": %.4f, \"cores_per_rank\": %d}\n", hidden_share(b), cores_per_rank(o));
}

static void print_table(const bench *b)
{
    const options *o = b->options;
    char processor[128], date[32];

    bench_machine(processor, sizeof processor);
    bench_date(date, sizeof date);
    printf("zro %s, %d rank%s, adam, %d parameters, %s, %d processor%s per rank, %s\n\n", zro_version(), o->ranks,
           o->ranks == 1 ? "" : "s", o->params, processor, cores_per_rank(o), cores_per_rank(o) == 1 ? "" : "s", date);
    printf("%-22s %10s %-21s %9s\n", "an iteration", "median ms", " (quartiles)", "of plain");
    for (int m = 0; m < MODES; m++)
        printf("%-22s %10.3f  (%8.3f-%8.3f)  %9.3f\n", modes[m].name, b->times[m].median / 1e3, b->times[m].low / 1e3,
               b->times[m].high / 1e3, b->times[m].median / b->times[PLAIN].median);
    printf("\nOf what a step adds to backward, %.0f %% disappear when it is interleaved.\n", 100 * hidden_share(b));
}

/* ---- the ranks ---- */

static int run_rank(void *user, zro_group *group)
{
    const options *o = user;
    bench *b = zro__alloc(NULL, ZRO__KIND_HANDLE, sizeof *b);
    zro_status st;

    if (b == NULL) {
        tool_say(&self, "out of memory");
        return 1;
    }
    b->options = o;
    b->group = group;
    if (o->ranks <= o->cores && cores_per_rank(o) == 1)
        tool_pin(zro_group_rank(group));
    st = measure(b);
    if (st != ZRO_OK)
        tool_say(&self, "rank %d: %s", zro_group_rank(group), zro_last_error());
    else if (zro_group_rank(group) == 0)
        o->json ? print_json(b) : print_table(b);
    zro__free(b);
    return st != ZRO_OK;
}

/* ---- the command line ---- */

static int read_options(int argc, char **argv, options *o, int *help)
{
    enum { JSON = 256, QUICK, PARAMS };
    static const struct option known[] = {
        { "ranks", required_argument, NULL, 'n' }, { "params", required_argument, NULL, PARAMS },
        { "json", no_argument, NULL, JSON },       { "quick", no_argument, NULL, QUICK },
        { "help", no_argument, NULL, 'h' },        { NULL, 0, NULL, 0 },
    };
    int c, bad = 0;

    opterr = 0;
    while (!bad && !*help && (c = getopt_long(argc, argv, ":n:h", known, NULL)) != -1) {
        if (c == 'n')
            bad = tool_integer(&self, "-n (--ranks)", optarg, 1, MOST_RANKS, &o->ranks);
        else if (c == PARAMS)
            bad = tool_integer(&self, "--params", optarg, 1000, INT32_MAX, &o->params);
        else if (c == JSON)
            o->json = 1;
        else if (c == QUICK)
            o->quick = 1;
        else if (c == 'h')
            *help = 1;
        else
            bad = tool_bad_option(&self, c, argv);
    }
    if (!bad && !*help && optind < argc)
        return tool_usage(&self, "\"%s\" is one argument too many", argv[optind]);
    return bad;
}

int bench_overlap(int argc, char **argv)
{
    options o = { .ranks = DEFAULT_RANKS, .cores = tool_cores() };
    int help = 0, bad = read_options(argc, argv, &o, &help);

    if (bad)
        return bad;
    if (help)
        return tool_help(&tool_bench);
    if (o.params == 0)
        o.params = o.quick ? DEFAULT_PARAMS / 8 : DEFAULT_PARAMS;
    if (zro_spawn(NULL, o.ranks, run_rank, &o) == ZRO_OK)
        return 0;
    tool_say(&self, "%s", zro_last_error());
    return 1;
}
