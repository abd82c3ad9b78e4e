/* `zro bench group`: the collective calls against the limit of the machine.
 *
 * Samples are taken as bench_sample.h says, by all ranks together.
 *
 * The limit of a call is the fastest loop (limit.h) for what the call must at least read and write, divided over the ranks.  On
 * group memory the loop runs on the very arrays of the call, the peers' included.  Own memory is out of the peers' reach; there the loop has the same
 * sources, destinations and bytes, but piece r of rank k's array is replaced by piece k of rank r's own: the limit tells what
 * the call would take if the ranks could reach each other's memory.
 *
 * The ranks decide everything (how many repetitions, which loop, when to stop) from times that all of them have, so that they
 * decide alike. */
#define _GNU_SOURCE
#include "bench.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/kernels.h"
#include "base/memory.h"
#include "base/settings.h"
#include "base/status.h"
#include "bench_sample.h"
#include "board/memory_left.h"
#include "board/slot.h"
#include "limit.h"
#include "tool.h"
#include "zro.h"

enum {
    ROOT = 0,
    SIDES = 3, /* the call and two loops */
    MIN_SAMPLES = 11,
    MAX_SAMPLES = 401,
    MAX_BATCH = 1024, /* calls in a sample */
    FIRST_SIZE = 10,  /* 1 KB to 512 MB, as powers of two */
    LAST_SIZE = 29,
    WARM_SIZE = 26, /* up to here a call finds something in the caches, so that both sides need a call before the timed ones */
    ALIGN = 16      /* elements: pieces begin at lines of the caches */
};

static const tool self = { "bench group", NULL, NULL, NULL };

/* ---- what is measured ---- */

typedef struct bench bench;

typedef enum who { ALL, ONE_ROOT, OTHERS, MYSELF } who;

/* A call, and what it reads and writes.  Each rank has two arrays. */
typedef struct operation {
    const char *name;
    zro_status (*call)(bench *b);
    who from;      /* whose first arrays are read */
    who to;        /* whose arrays are written */
    int to_second; /* their second arrays; else the first */
    int from_cut;  /* arrays that are read hold a piece for each rank; else one piece */
    int to_cut;    /* the same of arrays that are written */
} operation;

typedef enum memory { GROUP, OWN, MEMORIES } memory;

static const char *const memory_names[] = { "group", "own" };

typedef struct options {
    int ranks, cores, json, quick;
    double seconds;
    unsigned ops;           /* bit i: operations[i] is measured */
    int memories[MEMORIES]; /* which are measured */
} options;

typedef struct row {
    int op, memory, log_bytes;
    int loop;      /* the loop that was the limit */
    int disturbed; /* in too many samples a rank lost its processor */
    double us, limit_us;
} row;

/* What one rank knows; most of it is about the size that is being measured. */
struct bench {
    const options *options;
    zro_group *group;
    int rank, size;
    memory where; /* which memory the arrays are in */
    size_t count; /* elements of an array */
    size_t each;  /* elements of one rank's piece of it */
    size_t bytes; /* of an array */
    zro_memory *memory[2];
    float *array[2];
    const operation *operation; /* the one that is being measured */
    limit_call shape;
    int grown;    /* all-reduces in place since the values were made small again */
    uint64_t now; /* the latest time that all ranks know */
    sample samples[SIDES][MAX_SAMPLES];
    int n_rows;
    row *rows;
};

static zro_status call_all_reduce(bench *b)
{
    b->grown++;
    return zro_all_reduce(b->group, b->array[0], b->count, ZRO_F32, ZRO_SUM);
}

static zro_status call_broadcast(bench *b)
{
    return zro_broadcast(b->group, b->array[0], b->count, ZRO_F32, ROOT);
}

static zro_status call_reduce(bench *b)
{
    return zro_reduce(b->group, b->array[0], b->array[1], b->count, ZRO_F32, ZRO_SUM, ROOT);
}

static zro_status call_reduce_scatter(bench *b)
{
    return zro_reduce_scatter(b->group, b->array[0], b->array[1], b->each, ZRO_F32, ZRO_SUM);
}

static zro_status call_gather(bench *b)
{
    return zro_gather(b->group, b->array[0], b->array[1], b->each, ZRO_F32, ROOT);
}

static zro_status call_all_gather(bench *b)
{
    return zro_all_gather(b->group, b->array[0], b->array[1], b->each, ZRO_F32);
}

static const operation operations[] = {
    { "all_reduce", call_all_reduce, ALL, ALL, 0, 1, 1 }, { "broadcast", call_broadcast, ONE_ROOT, OTHERS, 0, 1, 1 },
    { "reduce", call_reduce, ALL, ONE_ROOT, 1, 1, 1 },    { "reduce_scatter", call_reduce_scatter, ALL, MYSELF, 1, 1, 0 },
    { "gather", call_gather, MYSELF, ONE_ROOT, 1, 0, 1 }, { "all_gather", call_all_gather, MYSELF, ALL, 1, 0, 1 },
};

enum { N_OPERATIONS = sizeof operations / sizeof *operations };

/* ---- the shape of the limit ---- */

static int belongs(who set, int rank, int me)
{
    return set == ALL || (set == ONE_ROOT && rank == ROOT) || (set == OTHERS && rank != ROOT) || (set == MYSELF && rank == me);
}

/* This rank's piece of an array of rank k, or what stands for it where that is out of reach. */
static float *piece_of(const bench *b, int array, int k, int cut)
{
    if (b->where == OWN)
        return b->array[array] + (cut ? (size_t)k * b->each : 0);
    return (float *)zro_memory_peer(b->memory[array], k) + (cut ? (size_t)b->rank * b->each : 0);
}

static void make_shape(bench *b, const operation *op)
{
    limit_call *s = &b->shape;
    int even = op->from_cut && op->to_cut;

    s->n_src = s->n_dst = 0;
    for (int k = 0; k < b->size; k++) {
        if (belongs(op->from, k, b->rank))
            s->src[s->n_src++] = piece_of(b, 0, k, op->from_cut);
        if (belongs(op->to, k, b->rank))
            s->dst[s->n_dst++] = piece_of(b, op->to_second, k, op->to_cut);
    }
    /* Where no rank has a piece of its own the last one takes what is left over. */
    s->count = even && b->rank == b->size - 1 ? b->count - (size_t)b->rank * b->each : b->each;
    s->in_place = op->from == ALL && op->to == ALL;
}

/* ---- samples ---- */

/* Sums in place grow with each call; the limit, whose loop multiplies anyway, takes that back, so that values neither overflow
 * nor vanish. */
static zro_status run_once(void *user, int loop)
{
    bench *b = user;
    float by = 1;

    if (loop == SIDE_ITSELF)
        return b->operation->call(b);
    if (b->shape.in_place)
        by = powf((float)b->size, -1 - (float)b->grown);
    b->grown = 0;
    limit_call_run(loop, &b->shape, by);
    return ZRO_OK;
}

static zro_status take_sample(void *user, const side *s, sample *out)
{
    bench *b = user;
    zro_status st = ZRO_OK;

    if (b->bytes <= (size_t)1 << WARM_SIZE)
        st = run_once(b, s->loop);
    return st == ZRO_OK ? sample_ranks(b->group, s, run_once, b, out, &b->now) : st;
}

/* Whether all ranks can run a loop. */
static zro_status all_fit(void *user, int loop, int *fits)
{
    bench *b = user;
    int64_t all = limit_call_fits(loop, &b->shape);
    zro_status st = zro_all_reduce(b->group, &all, 1, ZRO_I64, ZRO_MIN);

    *fits = (int)all;
    return st;
}

static zro_status measure(bench *b, const operation *op, row *r)
{
    const sampler p = { b, take_sample, all_fit, limit_call_loops(), 50 };
    side sides[SIDES];
    uint64_t end, again = (uint64_t)(b->options->seconds * 1e9);
    int n, clean = 0;
    double us;
    times limit;
    zro_status st;

    b->operation = op;
    make_shape(b, op);
    for (int i = 0; i < SIDES; i++)
        sides[i] = (side){ .loop = i == 0 ? SIDE_ITSELF : 0, .batch = 1, .max_batch = MAX_BATCH, .samples = b->samples[i] };
    if (b->shape.in_place && b->size > 1)
        sides[0].max_batch = (int)(60 / log2(b->size)); /* sums in place must not grow out of range in a sample */
    st = sample_find_loops(&p, &sides[1]);
    if (st == ZRO_OK)
        st = sample_try(&p, &sides[0], &us);
    end = b->now + again;
    /* Where others use the processors too, clean samples get as much time again. */
    for (n = 0; st == ZRO_OK && n < MAX_SAMPLES; n++) {
        int64_t lost = 0;

        if (n >= MIN_SAMPLES && b->now >= end && (clean >= MIN_SAMPLES || b->now >= end + again))
            break;
        for (int i = 0; i < SIDES && st == ZRO_OK; i++) {
            st = sample_keep(&p, &sides[i]);
            lost += sides[i].samples[n].switches;
        }
        clean += lost == 0;
    }
    if (st != ZRO_OK)
        return st;
    r->us = sample_times(&sides[0], MIN_SAMPLES, &r->disturbed).median;
    r->loop = sample_limit(&sides[1], MIN_SAMPLES, &r->disturbed, &limit)->loop;
    r->limit_us = limit.median;
    r->disturbed &= b->size <= b->options->cores; /* with more ranks than processors that is how it is */
    return ZRO_OK;
}

/* ---- arrays ---- */

static int needs_second(const options *o)
{
    for (int i = 0; i < N_OPERATIONS; i++)
        if ((o->ops >> i & 1) && operations[i].to_second)
            return 1;
    return 0;
}

static zro_status take_arrays(bench *b)
{
    zro_status st = ZRO_OK;

    for (int i = 0; i < 1 + needs_second(b->options) && st == ZRO_OK; i++) {
        void *own;

        if (b->where == GROUP) {
            st = zro_memory_alloc(b->group, ZRO_MEMORY_EACH, b->bytes, &b->memory[i]);
            b->array[i] = zro_memory_data(b->memory[i]);
        } else {
            own = mmap(NULL, b->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
            b->array[i] = own == MAP_FAILED ? NULL : own;
            if (own == MAP_FAILED)
                st = zro__fail_errno(ZRO_ERR_MEMORY, errno, "no memory for an array of %zu bytes", b->bytes);
        }
        for (size_t k = 0; st == ZRO_OK && k < b->bytes / sizeof(float); k++)
            b->array[i][k] = 1;
    }
    b->grown = 0;
    return st;
}

static void free_arrays(bench *b)
{
    for (int i = 0; i < 2; i++) {
        zro_memory_free(b->memory[i]);
        if (b->where == OWN && b->array[i] != NULL)
            munmap(b->array[i], b->bytes);
        b->memory[i] = NULL;
        b->array[i] = NULL;
    }
}

/* Whether the arrays fit into memory; rank 0 says so if they do not. */
static zro_status check_room(bench *b, int *fits)
{
    uint64_t need = (uint64_t)b->bytes * (uint64_t)b->size * (uint64_t)(1 + needs_second(b->options)), spare = need / 16;
    zro__memory_left left;
    int64_t enough;
    zro_status st = zro_barrier(b->group); /* all have freed the last ones */

    if (st != ZRO_OK)
        return st;
    zro__memory_left_get("", &left);
    enough = need + spare + (64 << 20) <= left.bytes;
    st = zro_all_reduce(b->group, &enough, 1, ZRO_I64, ZRO_MIN);
    *fits = (int)enough;
    if (st == ZRO_OK && !enough && b->rank == 0)
        tool_say(&self, "left out: %zu MB in %s memory, which needs %" PRIu64 " MB in all; %s has %" PRIu64 " MB",
                 b->bytes >> 20, memory_names[b->where], need >> 20, left.where, left.bytes >> 20);
    return st;
}

/* ---- results ---- */

static void print_json(const bench *b)
{
    bench_print_json_head(b->options->cores);
    printf(", \"ranks\": %d, \"kernels\": \"%s\", \"rows\": [", b->size, zro__kernels_get(ZRO_KERNELS_AUTO)->name);
    for (int i = 0; i < b->n_rows; i++) {
        const row *r = &b->rows[i];

        printf("%s\n  {\"op\": \"%s\", \"bytes\": %" PRIu64 ", \"memory\": \"%s\", ", i == 0 ? "" : ",", operations[r->op].name,
               (uint64_t)1 << r->log_bytes, memory_names[r->memory]);
        printf("\"median_us\": %.4f, \"limit_us\": %.4f, \"share\": %.3f}", r->us, r->limit_us, r->limit_us / r->us);
    }
    puts("\n]}");
}

static void print_table(const bench *b)
{
    char processor[128], date[32];
    int disturbed = 0;

    bench_machine(processor, sizeof processor);
    bench_date(date, sizeof date);
    printf("zro %s, %d rank%s, %s, %d processor%s, %s kernels, %s\n\n", zro_version(), b->size, b->size == 1 ? "" : "s",
           processor, b->options->cores, b->options->cores == 1 ? "" : "s", zro__kernels_get(ZRO_KERNELS_AUTO)->name, date);
    printf("%-15s %-6s %8s %12s %8s %12s %7s  %s\n", "op", "memory", "bytes", "median us", "GB/s", "limit us", "share",
           "limit is");
    for (int i = 0; i < b->n_rows; i++) {
        const row *r = &b->rows[i];
        uint64_t bytes = (uint64_t)1 << r->log_bytes;

        printf("%-15s %-6s %5" PRIu64 " %s %12.2f %8.2f %12.2f %6.2f%c  %s\n", operations[r->op].name, memory_names[r->memory],
               bytes >> (bytes >> 20 ? 20 : 10), bytes >> 20 ? "MB" : "KB", r->us, (double)bytes / r->us / 1e3, r->limit_us,
               r->limit_us / r->us, r->disturbed ? '*' : ' ', limit_call_name(r->loop));
        disturbed += r->disturbed;
    }
    puts("\nshare: limit / time; 1 is as fast as the memory allows.  Small calls mostly wait for other ranks: look at their "
         "time.");
    if (disturbed > 0)
        printf("* In %d of %d rows, ranks kept losing their processors to other programs: do not trust these rows.\n",
               disturbed, b->n_rows);
}

static int compare_rows(const void *a, const void *b)
{
    const row *x = a, *y = b;

    if (x->memory != y->memory)
        return x->memory - y->memory;
    return x->op != y->op ? x->op - y->op : x->log_bytes - y->log_bytes;
}

/* ---- the ranks ---- */

static int is_wanted(const options *o, int log_bytes)
{
    return !o->quick || log_bytes == 10 || log_bytes == 16 || log_bytes == 20 || log_bytes == 25;
}

static zro_status measure_size(bench *b, int log_bytes)
{
    zro_status st;
    int fits;

    b->bytes = (size_t)1 << log_bytes;
    b->count = b->bytes / sizeof(float);
    b->each = b->count / (size_t)b->size;
    if (b->each >= ALIGN)
        b->each -= b->each % ALIGN;
    st = check_room(b, &fits);
    if (st != ZRO_OK || !fits)
        return st;
    st = take_arrays(b);
    for (int i = 0; i < N_OPERATIONS && st == ZRO_OK; i++) {
        row *r = &b->rows[b->n_rows];

        if (!(b->options->ops >> i & 1))
            continue;
        *r = (row){ .op = i, .memory = (int)b->where, .log_bytes = log_bytes };
        if (b->rank == 0)
            bench_progress("%s, %zu KB, %s memory", operations[i].name, b->bytes >> 10, memory_names[b->where]);
        st = measure(b, &operations[i], r);
        b->n_rows++;
    }
    free_arrays(b);
    return st;
}

static zro_status measure_all(bench *b)
{
    zro_status st = ZRO_OK;

    for (int p = 0; p < MEMORIES; p++) {
        b->where = (memory)p;
        for (int s = FIRST_SIZE; s <= LAST_SIZE && st == ZRO_OK && b->options->memories[p]; s++)
            if (is_wanted(b->options, s))
                st = measure_size(b, s);
    }
    if (b->rank == 0)
        bench_progress(NULL);
    return st;
}

static int run_rank(void *user, zro_group *group)
{
    enum { MAX_ROWS = MEMORIES * N_OPERATIONS * (LAST_SIZE - FIRST_SIZE + 1) };
    const options *o = user;
    bench *b = zro__alloc(NULL, ZRO__KIND_HANDLE, sizeof *b);
    zro__arena arena = { 0 };
    zro_status st = ZRO_OK;

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
                           (zro__array[]){ { &b->shape.src, (size_t)b->size, sizeof *b->shape.src },
                                           { &b->shape.dst, (size_t)b->size, sizeof *b->shape.dst },
                                           { &b->rows, MAX_ROWS, sizeof *b->rows } },
                           3);
    if (st == ZRO_OK)
        st = measure_all(b);
    if (st != ZRO_OK) {
        tool_say(&self, "rank %d: %s", b->rank, zro_last_error());
    } else if (b->rank == 0) {
        qsort(b->rows, (size_t)b->n_rows, sizeof *b->rows, compare_rows);
        o->json ? print_json(b) : print_table(b);
    }
    zro__arena_free(&arena);
    zro__free(b);
    return st != ZRO_OK;
}

/* ---- the command line ---- */

static const char *operation_name(int i)
{
    return operations[i].name;
}

static int read_memory(const char *text, int *memories)
{
    memories[GROUP] = strcmp(text, "group") == 0 || strcmp(text, "both") == 0;
    memories[OWN] = strcmp(text, "own") == 0 || strcmp(text, "both") == 0;
    return memories[GROUP] || memories[OWN] ? 0 : tool_usage(&self, "--memory = \"%s\", must be group, own or both", text);
}

int bench_group(int argc, char **argv)
{
    enum { JSON = 256, QUICK, OPS, MEMORY, SECONDS };
    static const struct option known[] = {
        { "ranks", required_argument, NULL, 'n' },
        { "json", no_argument, NULL, JSON },
        { "quick", no_argument, NULL, QUICK },
        { "ops", required_argument, NULL, OPS },
        { "memory", required_argument, NULL, MEMORY },
        { "seconds", required_argument, NULL, SECONDS },
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };
    options o = { .ranks = tool_cores(), .cores = tool_cores(), .seconds = 0.3, .memories = { 1, 1 } };
    int c, bad = 0;

    opterr = 0;
    while (!bad && (c = getopt_long(argc, argv, ":n:h", known, NULL)) != -1) {
        switch (c) {
        case 'n':
            bad = tool_integer(&self, "-n (--ranks)", optarg, 1, ZRO__MAX_RANKS, &o.ranks);
            break;
        case JSON:
            o.json = 1;
            break;
        case QUICK:
            o.quick = 1;
            break;
        case OPS:
            bad = bench_read_list(&self, "--ops", optarg, operation_name, N_OPERATIONS, &o.ops);
            break;
        case MEMORY:
            bad = read_memory(optarg, o.memories);
            break;
        case SECONDS:
            bad = tool_seconds(&self, "--seconds", optarg, 0, 3600, &o.seconds);
            break;
        case 'h':
            return tool_help(&tool_bench);
        default:
            bad = tool_bad_option(&self, c, argv);
        }
    }
    if (bad)
        return bad;
    if (optind < argc)
        return tool_usage(&self, "\"%s\" is one argument too many", argv[optind]);
    if (o.ops == 0)
        o.ops = o.quick ? 3 : (1U << N_OPERATIONS) - 1;
    if (zro_spawn(NULL, o.ranks, run_rank, &o) == ZRO_OK)
        return 0;
    tool_say(&self, "%s", zro_last_error());
    return 1;
}
