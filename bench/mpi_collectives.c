/* zro's collective calls side by side with those of the MPI that the program runs under:  mpirun -n 2 mpi_collectives
 *
 * Times on a shared machine are not comparable from one second to the next.  So in each repetition every contender ("side")
 * makes the same call once, beginning with another side each time, and what counts is the ratio of two times of the same
 * repetition: its median, with quartiles, stands beside the median time.
 *
 * Fresh data: before each turn every rank writes its inputs anew, untimed, so all sides find their inputs where a program that
 * has just computed them would have them: in the caches of their rank as far as they fit.  What fits is called several times in
 * a turn, on as many different arrays, all of them just written.  Then comes MPI's barrier, and the turn's time is that of the
 * slowest rank, divided by the calls.  The first turn is not timed; its results are compared with what they must be.
 *
 * Only the public headers are used. */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zro_mpi.h>

enum { ROOT = 0, FRESH_BYTES = 512 << 10, MAX_CALLS = 64, MAX_SIZES = 32, SMALL_BYTES = 4 << 20, SMALL_TIMES = 9 };

/* ---- who competes ---- */

typedef enum world { LOCAL, MACHINES, WORLDS, MPI = WORLDS, CCL } world;
typedef enum memory { OF_LOCAL, OF_MACHINES, OWN, MEMORIES } memory;

typedef struct side {
    const char *name;
    world world;
    memory memory;
    int in_place;
} side;

/* "links": ranks that pretend to be on different machines, so that everything goes through MPI.  oneCCL takes part if ccl.cpp was
 * linked, too. */
static const side sides[] = {
    { "zro group memory", LOCAL, OF_LOCAL, 1 },
    { "zro own memory", LOCAL, OWN, 1 },
    { "links group memory", MACHINES, OF_MACHINES, 1 },
    { "links own memory", MACHINES, OWN, 1 },
    { "oneCCL", CCL, OWN, 1 },
    { "MPI in place", MPI, OWN, 1 },
    { "MPI", MPI, OWN, 0 },
};

enum { SIDES = sizeof sides / sizeof *sides, CCL_SIDE = SIDES - 3, MPI_IN_PLACE_SIDE = SIDES - 2, MPI_SIDE = SIDES - 1 };

/* The rivals: what the quartiles of zro's ratio to them are called in JSON, and above a column. */
static const struct rival {
    int side;
    const char *key, *title;
} rivals[] = { { MPI_IN_PLACE_SIDE, "mpi_in_place", "x MPI in place" },
               { MPI_SIDE, "mpi", "x MPI" },
               { CCL_SIDE, "oneccl", "x oneCCL" } };

enum { RIVALS = sizeof rivals / sizeof *rivals };

/* In ccl.cpp, which need not be there.  A sum in place over all ranks; 0: done. */
__attribute__((weak)) int ccl_start(int rank, int ranks);
__attribute__((weak)) int ccl_all_reduce(float *x, size_t n);
__attribute__((weak)) const char *ccl_name(void);

typedef struct options {
    unsigned ops, sides; /* bits */
    size_t sizes[MAX_SIZES];
    int n_sizes, reps, json, bind;
} options;

typedef struct bench {
    const options *o;
    int rank, ranks;
    zro_group *groups[WORLDS];
    size_t bytes, count, each; /* of an array, in elements, and of a rank's piece */
    size_t stride;             /* bytes from one call's array to the next one's */
    int calls;                 /* in a turn */
    zro_memory *held[MEMORIES][2];
    char *arrays[MEMORIES][2]; /* `calls` arrays each: inputs and outputs */
    double *us[SIDES];         /* by repetition, while a row is measured */
    int n_rows;
} bench;

static void stop(const bench *b, const char *what, const char *text)
{
    fprintf(stderr, "mpi_collectives: rank %d: %s: %s\n", b->rank, what, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

/* ---- the calls ---- */

/* A call of one side on one pair of arrays. */
typedef struct call {
    const bench *b;
    zro_group *g; /* NULL: MPI, or oneCCL */
    world world;
    float *in, *out;
    int in_place;
} call;

static int run_all_reduce(const call *c)
{
    int n = (int)c->b->count;

    if (c->g != NULL)
        return (int)zro_all_reduce(c->g, c->in, c->b->count, ZRO_F32, ZRO_SUM);
    if (c->world == CCL)
        return ccl_all_reduce(c->in, c->b->count);
    return c->in_place ? MPI_Allreduce(MPI_IN_PLACE, c->in, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD)
                       : MPI_Allreduce(c->in, c->out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static int run_broadcast(const call *c)
{
    if (c->g != NULL)
        return (int)zro_broadcast(c->g, c->in, c->b->count, ZRO_F32, ROOT);
    return MPI_Bcast(c->in, (int)c->b->count, MPI_FLOAT, ROOT, MPI_COMM_WORLD);
}

static int run_reduce(const call *c)
{
    if (c->g != NULL)
        return (int)zro_reduce(c->g, c->in, c->out, c->b->count, ZRO_F32, ZRO_SUM, ROOT);
    return MPI_Reduce(c->in, c->out, (int)c->b->count, MPI_FLOAT, MPI_SUM, ROOT, MPI_COMM_WORLD);
}

static int run_reduce_scatter(const call *c)
{
    if (c->g != NULL)
        return (int)zro_reduce_scatter(c->g, c->in, c->out, c->b->each, ZRO_F32, ZRO_SUM);
    return MPI_Reduce_scatter_block(c->in, c->out, (int)c->b->each, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static int run_gather(const call *c)
{
    int n = (int)c->b->each;

    if (c->g != NULL)
        return (int)zro_gather(c->g, c->in, c->out, c->b->each, ZRO_F32, ROOT);
    return MPI_Gather(c->in, n, MPI_FLOAT, c->out, n, MPI_FLOAT, ROOT, MPI_COMM_WORLD);
}

static int run_all_gather(const call *c)
{
    int n = (int)c->b->each;

    if (c->g != NULL)
        return (int)zro_all_gather(c->g, c->in, c->out, c->b->each, ZRO_F32);
    return MPI_Allgather(c->in, n, MPI_FLOAT, c->out, n, MPI_FLOAT, MPI_COMM_WORLD);
}

static int run_barrier(const call *c)
{
    return c->g != NULL ? (int)zro_barrier(c->g) : MPI_Barrier(MPI_COMM_WORLD);
}

typedef enum extent { NOTHING, PIECE, WHOLE } extent;

/* Which part of the input a rank writes, where the result is and who has it. */
typedef struct operation {
    const char *name;
    int (*run)(const call *c);
    extent in, out;
    int sums;     /* otherwise the result is that of the rank that wrote it */
    int in_input; /* the result overwrites the input, unless the side is not in place */
    int at_root;  /* it is at the root alone */
} operation;

static const operation operations[] = {
    { "all_reduce", run_all_reduce, WHOLE, WHOLE, 1, 1, 0 }, { "broadcast", run_broadcast, WHOLE, WHOLE, 0, 1, 0 },
    { "reduce", run_reduce, WHOLE, WHOLE, 1, 0, 1 },         { "reduce_scatter", run_reduce_scatter, WHOLE, PIECE, 1, 0, 0 },
    { "gather", run_gather, PIECE, WHOLE, 0, 0, 1 },         { "all_gather", run_all_gather, PIECE, WHOLE, 0, 0, 0 },
    { "barrier", run_barrier, NOTHING, NOTHING, 0, 0, 0 },
};

enum { OPERATIONS = sizeof operations / sizeof *operations, ALL_REDUCE = 0, BROADCAST = 1 };

/* Only all-reduce has two ways at MPI's, and is compared with oneCCL's. */
static int takes_part(const bench *b, int op, int s)
{
    if (s == CCL_SIDE && ccl_start == NULL)
        return 0;
    return (b->o->sides >> s & 1) && ((s != MPI_IN_PLACE_SIDE && s != CCL_SIDE) || op == ALL_REDUCE);
}

static call make_call(const bench *b, const side *s, int i)
{
    size_t at = (size_t)i * b->stride;

    return (call){ b,
                   s->world < WORLDS ? b->groups[s->world] : NULL,
                   s->world,
                   (float *)(void *)(b->arrays[s->memory][0] + at),
                   (float *)(void *)(b->arrays[s->memory][1] + at),
                   s->in_place };
}

/* ---- data ---- */

/* Small whole numbers: their sums are exact in any order. */
static float value_of(int rank, size_t i)
{
    return (float)((int)(i & 1023) + rank);
}

static size_t length_of(const bench *b, extent e)
{
    return e == WHOLE ? b->count : e == PIECE ? b->each : 0;
}

static void write_inputs(const bench *b, const operation *op, const side *s)
{
    size_t n = length_of(b, op->in);

    for (int i = 0; i < b->calls; i++) {
        float *in = make_call(b, s, i).in;

        for (size_t k = 0; k < n; k++)
            in[k] = value_of(b->rank, k);
    }
}

static float wanted(const bench *b, const operation *op, size_t k)
{
    size_t at = op->in == WHOLE && op->out == PIECE ? (size_t)b->rank * b->each + k : k;
    float sum = 0;

    if (op->in == PIECE)
        return value_of((int)(k / b->each), k % b->each);
    if (!op->sums)
        return value_of(ROOT, k);
    for (int r = 0; r < b->ranks; r++)
        sum += value_of(r, at);
    return sum;
}

static void check_results(const bench *b, const operation *op, const side *s)
{
    size_t n = op->at_root && b->rank != ROOT ? 0 : length_of(b, op->out);

    /* Gathered pieces are all that a count that does not divide evenly leaves. */
    if (op->in == PIECE)
        n = n < b->each * (size_t)b->ranks ? n : b->each * (size_t)b->ranks;
    for (int i = 0; i < b->calls; i++) {
        call c = make_call(b, s, i);
        const float *result = op->in_input && (c.in_place || op == &operations[BROADCAST]) ? c.in : c.out;

        for (size_t k = 0; k < n; k++)
            if (result[k] != wanted(b, op, k))
                stop(b, s->name, "wrong result");
    }
}

static void take_arrays(bench *b)
{
    size_t bytes;

    b->stride = (b->bytes + 63) & ~(size_t)63;
    b->calls = b->stride < FRESH_BYTES / MAX_CALLS ? MAX_CALLS : b->stride < FRESH_BYTES ? (int)(FRESH_BYTES / b->stride) : 1;
    bytes = b->stride * (size_t)b->calls + 64;
    for (int i = 0; i < 2; i++) {
        for (int w = 0; w < WORLDS; w++) {
            memory m = w == LOCAL ? OF_LOCAL : OF_MACHINES;

            if (b->groups[w] == NULL)
                continue;
            if (zro_memory_alloc(b->groups[w], ZRO_MEMORY_EACH, bytes, &b->held[m][i]) != ZRO_OK)
                stop(b, "memory", zro_last_error());
            b->arrays[m][i] = zro_memory_data(b->held[m][i]);
        }
        b->arrays[OWN][i] = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);
        if (b->arrays[OWN][i] == NULL)
            stop(b, "memory", strerror(ENOMEM));
        memset(b->arrays[OWN][i], 0, bytes);
    }
}

static void free_arrays(bench *b)
{
    for (int i = 0; i < 2; i++) {
        for (int m = 0; m < OWN; m++) {
            zro_memory_free(b->held[m][i]);
            b->held[m][i] = NULL;
        }
        free(b->arrays[OWN][i]);
    }
}

/* ---- a row ---- */

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* One turn of one side; the time of a call. */
static double take_turn(const bench *b, const operation *op, const side *s)
{
    call calls[MAX_CALLS];
    double start, us;
    int bad = 0;

    for (int i = 0; i < b->calls; i++)
        calls[i] = make_call(b, s, i);
    write_inputs(b, op, s);
    MPI_Barrier(MPI_COMM_WORLD);
    start = now_us();
    for (int i = 0; i < b->calls; i++)
        bad |= op->run(&calls[i]);
    us = now_us() - start;
    if (bad)
        stop(b, s->name, s->world < WORLDS ? zro_last_error() : "failed");
    MPI_Allreduce(MPI_IN_PLACE, &us, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return us / b->calls;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Quartiles of n values, which it sorts. */
typedef struct spread {
    double low, median, high;
} spread;

static spread spread_of(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_value);
    return (spread){ v[n / 4], n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2, v[n - 1 - n / 4] };
}

static spread ratio(const bench *b, int of, int to, int reps)
{
    double v[reps];

    for (int i = 0; i < reps; i++)
        v[i] = b->us[of][i] / b->us[to][i];
    return spread_of(v, reps);
}

static void print_side(bench *b, int op, int s, int reps)
{
    double v[reps];
    spread us;

    memcpy(v, b->us[s], sizeof v);
    us = spread_of(v, reps);
    if (b->o->json)
        printf("%s\n  {\"op\": \"%s\", \"bytes\": %zu, \"side\": \"%s\", \"us\": [%.4f, %.4f, %.4f]", b->n_rows == 0 ? "" : ",",
               operations[op].name, b->bytes, sides[s].name, us.low, us.median, us.high);
    else
        printf("%-15s %10zu  %-19s %12.2f", operations[op].name, b->bytes, sides[s].name, us.median);
    for (int i = 0; i < RIVALS; i++) {
        spread x = { NAN, NAN, NAN };
        int has = takes_part(b, op, rivals[i].side) && sides[s].world < WORLDS;

        if (has)
            x = ratio(b, rivals[i].side, s, reps);
        if (b->o->json && has)
            printf(", \"%s\": [%.3f, %.3f, %.3f]", rivals[i].key, x.low, x.median, x.high);
        else if (!b->o->json && has)
            printf("  %7.2f [%.2f-%.2f]", x.median, x.low, x.high);
        else if (!b->o->json)
            printf("  %7s%12s", "", "");
    }
    printf("%s", b->o->json ? "}" : "\n");
    fflush(stdout);
    b->n_rows++;
}

static void measure(bench *b, int op)
{
    int reps = b->bytes <= SMALL_BYTES ? b->o->reps * SMALL_TIMES : b->o->reps;

    for (int s = 0; s < SIDES; s++) {
        b->us[s] = malloc((size_t)reps * sizeof *b->us[s]);
        if (b->us[s] == NULL)
            stop(b, "memory", strerror(ENOMEM));
        if (!takes_part(b, op, s))
            continue;
        take_turn(b, &operations[op], &sides[s]);
        check_results(b, &operations[op], &sides[s]);
    }
    for (int i = 0; i < reps; i++)
        for (int k = 0; k < SIDES; k++) {
            int s = (i + k) % SIDES;

            if (takes_part(b, op, s))
                b->us[s][i] = take_turn(b, &operations[op], &sides[s]);
        }
    for (int s = 0; s < SIDES; s++) {
        if (b->rank == 0 && takes_part(b, op, s))
            print_side(b, op, s, reps);
    }
    for (int s = 0; s < SIDES; s++)
        free(b->us[s]);
}

static void measure_size(bench *b, size_t bytes)
{
    b->bytes = bytes;
    b->count = bytes / sizeof(float);
    b->each = b->count / (size_t)b->ranks;
    take_arrays(b);
    for (int op = 0; op < OPERATIONS; op++)
        if ((b->o->ops >> op & 1) && (operations[op].in == NOTHING) == (bytes == 0))
            measure(b, op);
    free_arrays(b);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* ---- the ranks ---- */

static void pin(int rank)
{
    cpu_set_t allowed, one;
    size_t cpu = 0;
    int nth;

    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    nth = rank % CPU_COUNT(&allowed);
    while (!CPU_ISSET(cpu, &allowed) || nth-- > 0)
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    (void)sched_setaffinity(0, sizeof one, &one);
}

static void make_groups(bench *b)
{
    for (int w = 0; w < WORLDS; w++) {
        zro_group_config config = ZRO_GROUP_CONFIG_INIT;
        int needed = 0;

        for (int s = 0; s < SIDES; s++)
            needed |= (b->o->sides >> s & 1) && sides[s].world == (world)w;
        if (!needed)
            continue;
        if (w == MACHINES)
            config.machine = b->rank;
        if (zro_mpi_group_create(&config, MPI_COMM_WORLD, &b->groups[w]) != ZRO_OK)
            stop(b, w == LOCAL ? "group" : "group of pretended machines", zro_last_error());
    }
}

static void print_head(const bench *b)
{
    char mpi[MPI_MAX_LIBRARY_VERSION_STRING], date[32];
    time_t now = time(NULL);
    struct tm tm;
    int n;

    MPI_Get_library_version(mpi, &n);
    for (char *p = mpi; *p != '\0'; p++)
        if (*p == '\t' || *p == '"')
            *p = ' ';
    mpi[strcspn(mpi, ",\n")] = '\0';
    strftime(date, sizeof date, "%Y-%m-%d", gmtime_r(&now, &tm));
    if (ccl_name != NULL)
        snprintf(mpi, sizeof mpi, "%s", ccl_name());
    if (b->o->json)
        printf("{\"zro\": \"%s\", \"mpi\": \"%s\", \"ranks\": %d, \"date\": \"%s\", \"rows\": [", zro_version(), mpi, b->ranks,
               date);
    else
        printf("zro %s, %s, %d ranks, %s\n\n%-15s %10s  %-19s %12s  %-19s  %-19s  %s\n", zro_version(), mpi, b->ranks, date,
               "call", "bytes", "", "median us", rivals[0].title, rivals[1].title, ccl_start != NULL ? rivals[2].title : "");
}

static void run(bench *b)
{
    if (b->o->bind)
        pin(b->rank);
    make_groups(b);
    if (ccl_start != NULL && ccl_start(b->rank, b->ranks) != 0)
        stop(b, "oneCCL", "cannot start");
    if (b->rank == 0)
        print_head(b);
    measure_size(b, 0);
    for (int i = 0; i < b->o->n_sizes; i++)
        measure_size(b, b->o->sizes[i]);
    if (b->rank == 0)
        puts(b->o->json ? "\n]}" : "\nx: MPI's time / zro's, both of the same repetition: median [quartiles].");
    for (int w = 0; w < WORLDS; w++)
        zro_group_destroy(b->groups[w]);
}

/* ---- the command line ---- */

static const char help[] =
    "usage: mpirun -n N mpi_collectives [OPTIONS]\n"
    "\n"
    "  --sizes LIST   of bytes, with K, M or G; default: 1K,64K,1M,32M,512M\n"
    "  --ops LIST     of all_reduce, broadcast, reduce, reduce_scatter, gather, all_gather, barrier; default: all\n"
    "  --reps N       repetitions, nine times as many up to 4 MB; default: 11\n"
    "  --no-links     without the ranks that pretend to be on different machines\n"
    "  --json         {\"rows\": [{\"op\", \"bytes\", \"side\", \"us\", \"mpi_in_place\", \"mpi\", \"oneccl\"}, ...]}; "
    "quartiles\n"
    "  --no-bind      do not pin rank r to the r-th processor\n"
    "  --help\n";

static int read_sizes(char *list, options *o)
{
    o->n_sizes = 0;
    for (char *rest = NULL, *item = strtok_r(list, ",", &rest); item != NULL; item = strtok_r(NULL, ",", &rest)) {
        char *end;
        unsigned long long n = strtoull(item, &end, 10);
        int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;

        end += shift != 0;
        if (*end != '\0' || end == item || o->n_sizes == MAX_SIZES || n == 0 || n > (UINT64_C(8) << 30 >> shift)
            || (n << shift) / sizeof(float) > INT32_MAX)
            return 0;
        o->sizes[o->n_sizes++] = (size_t)(n << shift) / sizeof(float) * sizeof(float);
    }
    return o->n_sizes > 0;
}

static int read_ops(char *list, options *o)
{
    o->ops = 0;
    for (char *rest = NULL, *name = strtok_r(list, ",", &rest); name != NULL; name = strtok_r(NULL, ",", &rest)) {
        int i = 0;

        while (i < OPERATIONS && strcmp(operations[i].name, name) != 0)
            i++;
        if (i == OPERATIONS)
            return 0;
        o->ops |= 1U << i;
    }
    return o->ops != 0;
}

/* 0: go on; otherwise what to exit with, plus 1. */
static int read_options(int argc, char **argv, options *o)
{
    enum { SIZES = 256, OPS, REPS, NO_LINKS, JSON, NO_BIND };
    static const struct option known[] = {
        { "sizes", required_argument, NULL, SIZES }, { "ops", required_argument, NULL, OPS },
        { "reps", required_argument, NULL, REPS },   { "no-links", no_argument, NULL, NO_LINKS },
        { "json", no_argument, NULL, JSON },         { "no-bind", no_argument, NULL, NO_BIND },
        { "help", no_argument, NULL, 'h' },          { NULL, 0, NULL, 0 },
    };
    int c, good = 1;

    while (good && (c = getopt_long(argc, argv, "h", known, NULL)) != -1) {
        switch (c) {
        case SIZES:
            good = read_sizes(optarg, o);
            break;
        case OPS:
            good = read_ops(optarg, o);
            break;
        case REPS:
            o->reps = atoi(optarg);
            good = o->reps >= 1 && o->reps <= 10000;
            break;
        case NO_LINKS:
            for (int s = 0; s < SIDES; s++)
                o->sides &= ~((unsigned)(sides[s].world == MACHINES) << s);
            break;
        case JSON:
            o->json = 1;
            break;
        case NO_BIND:
            o->bind = 0;
            break;
        default:
            fputs(help, c == 'h' ? stdout : stderr);
            return c == 'h' ? 1 : 3;
        }
    }
    if (good && optind == argc)
        return 0;
    fprintf(stderr, "mpi_collectives: \"%s\" cannot be right\n%s", optind < argc ? argv[optind] : argv[argc - 1], help);
    return 3;
}

int main(int argc, char **argv)
{
    options o = { .ops = (1U << OPERATIONS) - 1,
                  .sides = (1U << SIDES) - 1,
                  .sizes = { 1 << 10, 64 << 10, 1 << 20, 32 << 20, 512 << 20 },
                  .n_sizes = 5,
                  .reps = 11,
                  .bind = 1 };
    bench b = { .o = &o };
    int end = read_options(argc, argv, &o);

    if (end != 0)
        return end - 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &b.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &b.ranks);
    run(&b);
    MPI_Finalize();
    return 0;
}
