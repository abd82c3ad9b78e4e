/* `zro bench group`: the collective calls against the limit of the machine.
 *
 * Times on a shared or virtual machine are not comparable from one second to the next, so samples of a call and of its limit
 * take turns, on the same arrays, and the share is the ratio of their medians.  A sample begins for all ranks at a barrier and
 * lasts from the first rank's beginning to the last one's end; small calls are repeated in it.  Of samples in which a rank lost
 * its processor only as many count as are needed to have enough, the least disturbed first.
 *
 * The limit of a call is the fastest loop (limit.h) for what the call must at least read and write, divided over the ranks:
 * after a trial of all loops the best two take turns with the call, and the faster one counts.  On group memory the loop runs
 * on the very arrays of the call, the peers' included.  Own memory is out of the peers' reach; there the loop has the same
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
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/kernels.h"
#include "base/memory.h"
#include "base/status.h"
#include "group/limits.h"
#include "group/slot.h"
#include "limit.h"
#include "tool.h"
#include "zro.h"

enum {
    ROOT = 0,
    SIDES = 3, /* that take turns: the call and two loops */
    MIN_SAMPLES = 11,
    MAX_SAMPLES = 401,
    MAX_BATCH = 1024, /* calls in a sample */
    FIRST_SIZE = 10,  /* 1 KB to 512 MB, as powers of two */
    LAST_SIZE = 29,
    WARM_SIZE = 26, /* up to here a call finds something in the caches, so that both sides need a call before the timed ones */
    ALIGN = 16      /* elements: pieces begin at lines of the caches */
};

static const double SAMPLE_US = 50; /* that a sample should take at least */

static const tool self = { "bench group", NULL, NULL, NULL };

/* ---- what is measured ---- */

typedef struct bench bench;

typedef enum who { ALL, ONE_ROOT, OTHERS, MYSELF } who;

/* A call, and its shape: whose first arrays are read, whose arrays are written, which.  An array that is not `cut` holds the
 * piece alone. */
typedef struct operation {
    const char *name;
    zro_status (*call)(bench *b);
    who from, to;
    int to_second;
    int from_cut, to_cut;
} operation;

typedef enum place { GROUP, OWN, PLACES } place;

static const char *const place_names[] = { "group", "own" };

typedef struct options {
    int ranks, cores, json, quick;
    double seconds;
    unsigned ops; /* bits */
    int places[PLACES];
} options;

typedef struct sample {
    double us;        /* a call */
    int64_t switches; /* how often a rank lost its processor in it */
} sample;

typedef struct row {
    int op, place, log_bytes;
    int loop;      /* that was the limit */
    int disturbed; /* not enough samples without losing a processor */
    double us, limit_us;
} row;

/* One rank's view of the size under way. */
struct bench {
    const options *options;
    zro_group *group;
    int rank, size;
    place place;
    size_t count, each; /* elements of a buffer; of one rank's piece of it */
    size_t bytes;
    zro_memory *memory[2];
    float *array[2];
    limit_shape shape;
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
    if (b->place == OWN)
        return b->array[array] + (cut ? (size_t)k * b->each : 0);
    return (float *)zro_memory_peer(b->memory[array], k) + (cut ? (size_t)b->rank * b->each : 0);
}

static void make_shape(bench *b, const operation *op)
{
    limit_shape *s = &b->shape;
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

enum { OPERATION = -1 }; /* instead of the number of a loop */

/* What takes turns, and how often a sample repeats it: the operation, and the two fastest loops. */
typedef struct side {
    int loop, batch;
} side;

/* Sums in place grow with each call; the limit, whose loop multiplies anyway, takes that back, so that values neither overflow
 * nor vanish. */
static zro_status run_once(bench *b, const operation *op, int loop)
{
    float by = 1;

    if (loop == OPERATION)
        return op->call(b);
    if (b->shape.in_place)
        by = powf((float)b->size, -1 - (float)b->grown);
    b->grown = 0;
    limit_run(loop, &b->shape, by);
    return ZRO_OK;
}

static int64_t switches(void)
{
    struct rusage usage;

    return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

static zro_status take_sample(bench *b, const operation *op, int loop, int batch, sample *out)
{
    int64_t seen[3], before, start; /* maxima over ranks: end, -start, switches */
    zro_status st = ZRO_OK;

    if (b->bytes <= (size_t)1 << WARM_SIZE)
        st = run_once(b, op, loop);
    if (st == ZRO_OK)
        st = zro_barrier(b->group);
    before = switches();
    start = (int64_t)zro__now_ns();
    for (int i = 0; i < batch && st == ZRO_OK; i++)
        st = run_once(b, op, loop);
    seen[0] = (int64_t)zro__now_ns();
    seen[1] = -start;
    seen[2] = switches() - before;
    if (st == ZRO_OK)
        st = zro_all_reduce(b->group, seen, 3, ZRO_I64, ZRO_MAX);
    b->now = (uint64_t)seen[0];
    *out = (sample){ (double)(seen[0] + seen[1]) / 1e3 / batch, seen[2] };
    return st;
}

/* How many calls make a sample; sums in place must not grow out of range in it. */
static int batch_for(const bench *b, double us, int grows)
{
    double most = grows && b->size > 1 ? 60 / log2(b->size) : MAX_BATCH, wanted = ceil(SAMPLE_US / fmax(us, 1e-3));

    return (int)fmax(1, fmin(wanted, fmin(most, MAX_BATCH)));
}

/* The best of a few samples of one call each and, if that is too short to be measured, of several. */
static zro_status try_few(bench *b, const operation *op, int loop, double *best)
{
    zro_status st = ZRO_OK;
    int batch = 1;
    sample s;

    *best = INFINITY;
    for (int i = 0; i < 4 && st == ZRO_OK; i++) {
        st = take_sample(b, op, loop, batch, &s);
        if (s.us < *best)
            *best = s.us;
        if (i == 1 && *best < SAMPLE_US) {
            batch = batch_for(b, *best, loop == OPERATION && b->shape.in_place);
            *best = INFINITY;
        }
    }
    return st;
}

/* A trial of all loops: the two best go on. */
static zro_status find_loops(bench *b, const operation *op, side *sides)
{
    double us, best[SIDES] = { 0, INFINITY, INFINITY };
    zro_status st = ZRO_OK;

    for (int l = 0; l < limit_loops() && st == ZRO_OK; l++) {
        int64_t fits = limit_fits(l, &b->shape);

        st = zro_all_reduce(b->group, &fits, 1, ZRO_I64, ZRO_MIN);
        if (st != ZRO_OK || !fits)
            continue;
        st = try_few(b, op, l, &us);
        if (us < best[1]) {
            best[2] = best[1];
            sides[2] = sides[1];
        }
        if (us < best[2]) {
            int at = us < best[1] ? 1 : 2;

            best[at] = us;
            sides[at] = (side){ l, batch_for(b, us, 0) };
        }
    }
    return st;
}

static int by_time(const void *a, const void *b)
{
    const sample *x = a, *y = b;

    return (x->us > y->us) - (x->us < y->us);
}

static int by_switches(const void *a, const void *b)
{
    const sample *x = a, *y = b;

    return (x->switches > y->switches) - (x->switches < y->switches);
}

/* Of the undisturbed samples or, if they are too few, of the least disturbed ones. */
static double median(sample *s, int n, int *disturbed)
{
    int kept = 0;

    qsort(s, (size_t)n, sizeof *s, by_switches);
    while (kept < n && (kept < MIN_SAMPLES || s[kept].switches == 0))
        kept++;
    *disturbed |= s[kept - 1].switches != 0;
    qsort(s, (size_t)kept, sizeof *s, by_time);
    return kept % 2 ? s[kept / 2].us : (s[kept / 2 - 1].us + s[kept / 2].us) / 2;
}

static zro_status measure(bench *b, const operation *op, row *r)
{
    side sides[SIDES] = { { OPERATION, 1 }, { 0, 1 }, { 0, 1 } };
    uint64_t end, again = (uint64_t)(b->options->seconds * 1e9);
    int n = 0, clean = 0;
    double us;
    zro_status st;

    make_shape(b, op);
    st = find_loops(b, op, sides);
    if (st == ZRO_OK)
        st = try_few(b, op, OPERATION, &us);
    if (st != ZRO_OK)
        return st;
    sides[0].batch = batch_for(b, us, b->shape.in_place);
    end = b->now + again;
    /* Where others use the processors too, clean samples get as much time again. */
    while (n < MAX_SAMPLES && (n < MIN_SAMPLES || b->now < end || (clean < MIN_SAMPLES && b->now < end + again))) {
        int64_t lost = 0;

        for (int i = 0; i < SIDES && st == ZRO_OK; i++) {
            st = take_sample(b, op, sides[i].loop, sides[i].batch, &b->samples[i][n]);
            lost += b->samples[i][n].switches;
        }
        if (st != ZRO_OK)
            return st;
        clean += lost == 0;
        n++;
    }
    r->us = median(b->samples[0], n, &r->disturbed);
    r->limit_us = INFINITY;
    for (int i = 1; i < SIDES; i++) {
        us = median(b->samples[i], n, &r->disturbed);
        if (us < r->limit_us) {
            r->limit_us = us;
            r->loop = sides[i].loop;
        }
    }
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

        if (b->place == GROUP) {
            st = zro_memory_alloc(b->group, ZRO_MEMORY_EACH, b->bytes, &b->memory[i]);
            b->array[i] = zro_memory_data(b->memory[i]);
        } else {
            own = mmap(NULL, b->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
            b->array[i] = own == MAP_FAILED ? NULL : own;
            if (own == MAP_FAILED)
                st = zro__fail_errno(ZRO_ERR_MEMORY, errno, "%zu bytes", b->bytes);
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
        if (b->place == OWN && b->array[i] != NULL)
            munmap(b->array[i], b->bytes);
        b->memory[i] = NULL;
        b->array[i] = NULL;
    }
}

/* Whether the arrays fit into memory; rank 0 says so if they do not. */
static zro_status check_room(bench *b, int *fits)
{
    uint64_t need = (uint64_t)b->bytes * (uint64_t)b->size * (uint64_t)(1 + needs_second(b->options)), spare = need / 16;
    zro__room room;
    int64_t enough;
    zro_status st = zro_barrier(b->group); /* all have freed the last ones */

    if (st != ZRO_OK)
        return st;
    zro__room_get("", &room);
    enough = need + spare + (64 << 20) <= room.bytes;
    st = zro_all_reduce(b->group, &enough, 1, ZRO_I64, ZRO_MIN);
    *fits = (int)enough;
    if (st == ZRO_OK && !enough && b->rank == 0)
        tool_say(&self, "left out: %zu MB in %s memory, which needs %" PRIu64 " MB in all; %s has %" PRIu64 " MB",
                 b->bytes >> 20, place_names[b->place], need >> 20, room.where, room.bytes >> 20);
    return st;
}

/* ---- results ---- */

/* Numbers do not follow the locale, since the command never sets one. */
static void print_json(const bench *b, const char *processor, const char *date)
{
    printf("{\"zro\": \"%s\", \"machine\": \"", zro_version());
    bench_print_text(processor);
    printf("\", \"cores\": %d, \"date\": \"%s\", \"ranks\": %d, \"kernels\": \"%s\", \"rows\": [", b->options->cores, date,
           b->size, zro__kernels_get(ZRO_KERNELS_AUTO)->name);
    for (int i = 0; i < b->n_rows; i++) {
        const row *r = &b->rows[i];

        printf("%s\n  {\"op\": \"%s\", \"bytes\": %" PRIu64 ", \"memory\": \"%s\", ", i == 0 ? "" : ",", operations[r->op].name,
               (uint64_t)1 << r->log_bytes, place_names[r->place]);
        printf("\"median_us\": %.4f, \"limit_us\": %.4f, \"share\": %.3f}", r->us, r->limit_us, r->limit_us / r->us);
    }
    puts("\n]}");
}

static void print_table(const bench *b, const char *processor, const char *date)
{
    int disturbed = 0;

    printf("zro %s, %d rank%s, %s, %d processor%s, %s kernels, %s\n\n", zro_version(), b->size, b->size == 1 ? "" : "s",
           processor, b->options->cores, b->options->cores == 1 ? "" : "s", zro__kernels_get(ZRO_KERNELS_AUTO)->name, date);
    printf("%-15s %-6s %8s %12s %8s %12s %7s  %s\n", "op", "memory", "bytes", "median us", "GB/s", "limit us", "share",
           "limit is");
    for (int i = 0; i < b->n_rows; i++) {
        const row *r = &b->rows[i];
        uint64_t bytes = (uint64_t)1 << r->log_bytes;

        printf("%-15s %-6s %5" PRIu64 " %s %12.2f %8.2f %12.2f %6.2f%c  %s\n", operations[r->op].name, place_names[r->place],
               bytes >> (bytes >> 20 ? 20 : 10), bytes >> 20 ? "MB" : "KB", r->us, (double)bytes / r->us / 1e3, r->limit_us,
               r->limit_us / r->us, r->disturbed ? '*' : ' ', limit_name(r->loop));
        disturbed += r->disturbed;
    }
    puts("\nshare: limit / time; 1 is as fast as the memory allows.  Small calls are all meeting: look at their time.");
    if (disturbed > 0)
        printf("* Ranks lost their processors to others all the time, in %d of %d rows: do not trust these.\n", disturbed,
               b->n_rows);
}

static void print_rows(const bench *b)
{
    char processor[128], date[32];

    bench_machine(processor, sizeof processor);
    bench_date(date, sizeof date);
    if (b->options->json)
        print_json(b, processor, date);
    else
        print_table(b, processor, date);
}

static int compare_rows(const void *a, const void *b)
{
    const row *x = a, *y = b;

    if (x->place != y->place)
        return x->place - y->place;
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
        *r = (row){ .op = i, .place = (int)b->place, .log_bytes = log_bytes };
        if (b->rank == 0 && isatty(STDERR_FILENO))
            fprintf(stderr, "\r%s, %zu KB, %s memory\033[K", operations[i].name, b->bytes >> 10, place_names[b->place]);
        st = measure(b, &operations[i], r);
        b->n_rows++;
    }
    free_arrays(b);
    return st;
}

static zro_status measure_all(bench *b)
{
    zro_status st = ZRO_OK;

    for (int p = 0; p < PLACES; p++) {
        b->place = (place)p;
        for (int s = FIRST_SIZE; s <= LAST_SIZE && st == ZRO_OK && b->options->places[p]; s++)
            if (is_wanted(b->options, s))
                st = measure_size(b, s);
    }
    if (b->rank == 0 && isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
    return st;
}

static int run_rank(void *user, zro_group *group)
{
    enum { MAX_ROWS = PLACES * N_OPERATIONS * (LAST_SIZE - FIRST_SIZE + 1) };
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
    zro__arena_plan(&arena, (size_t)b->size, sizeof *b->shape.src);
    zro__arena_plan(&arena, (size_t)b->size, sizeof *b->shape.dst);
    zro__arena_plan(&arena, MAX_ROWS, sizeof *b->rows);
    st = zro__arena_init(&arena, NULL, "tables of the benchmark");
    if (st == ZRO_OK) {
        b->shape.src = zro__arena_take(&arena, (size_t)b->size, sizeof *b->shape.src);
        b->shape.dst = zro__arena_take(&arena, (size_t)b->size, sizeof *b->shape.dst);
        b->rows = zro__arena_take(&arena, MAX_ROWS, sizeof *b->rows);
        st = measure_all(b);
    }
    if (st != ZRO_OK) {
        tool_say(&self, "rank %d: %s", b->rank, zro_last_error());
    } else if (b->rank == 0) {
        qsort(b->rows, (size_t)b->n_rows, sizeof *b->rows, compare_rows);
        print_rows(b);
    }
    zro__arena_free(&arena);
    zro__free(b);
    return st != ZRO_OK;
}

/* ---- the command line ---- */

static int read_ops(char *list, unsigned *ops)
{
    *ops = 0;
    for (char *rest = NULL, *name = strtok_r(list, ",", &rest); name != NULL; name = strtok_r(NULL, ",", &rest)) {
        int i = 0;

        while (i < N_OPERATIONS && strcmp(operations[i].name, name) != 0)
            i++;
        if (i == N_OPERATIONS)
            return tool_usage(&self, "--ops: there is no \"%s\"", name);
        *ops |= 1U << i;
    }
    return *ops == 0 ? tool_usage(&self, "--ops: the list is empty") : 0;
}

static int read_memory(const char *text, int *places)
{
    places[GROUP] = strcmp(text, "group") == 0 || strcmp(text, "both") == 0;
    places[OWN] = strcmp(text, "own") == 0 || strcmp(text, "both") == 0;
    return places[GROUP] || places[OWN] ? 0 : tool_usage(&self, "--memory = \"%s\", must be group, own or both", text);
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
    options o = { .ranks = tool_cores(), .cores = tool_cores(), .seconds = 0.3, .places = { 1, 1 } };
    int c, bad = 0;

    opterr = 0;
    while (!bad && (c = getopt_long(argc, argv, ":n:h", known, NULL)) != -1) {
        switch (c) {
        case 'n':
            bad = tool_integer(&self, "--ranks", optarg, 1, ZRO__MAX_RANKS, &o.ranks);
            break;
        case JSON:
            o.json = 1;
            break;
        case QUICK:
            o.quick = 1;
            break;
        case OPS:
            bad = read_ops(optarg, &o.ops);
            break;
        case MEMORY:
            bad = read_memory(optarg, o.places);
            break;
        case SECONDS:
            bad = tool_number(&self, "--seconds", optarg, 0, 3600, &o.seconds);
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
