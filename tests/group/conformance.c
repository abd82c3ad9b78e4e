/* Conformance: every collective call, against the pure reference, over the product of what can differ.
 *
 *     call x element type x operator x size x called/submitted x in place or not x memory
 *     x cells x machines x threads x fast x world x backend
 *
 * The normal run takes, in each world and backend, a sample in which every pair of values of two factors occurs (sizes up to
 * 65537), and 8 Mi elements with each value of each factor, spread over all instances (over links in the full run alone).  The
 * full run adds 2,000 cases drawn from the seed.  A group is made once for each setting that the cases of an instance have. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pairs.h"
#include "zt/job.h"
#include "zt/zt.h"

enum factor { CALL, DTYPE, OP, SIZE, SUBMITTED, IN_PLACE, MEMORY, CELLS, MACHINE, THREADS, FAST, FACTORS };
enum { MOST_CASES = 1024, RANDOM_CASES = 200, LARGE_CASES = 24, LARGE_LEVEL = 5 };
enum memory { OWN, EACH, MIXED, ONCE };

static const int levels[FACTORS] = { ZT_CALLS, ZT_DTYPES, ZT_OPS, LARGE_LEVEL, 2, 2, 4, 2, 3, 2, 2 };
static const size_t sizes[] = { 0, 1, 3, 1000, 65537, 8u << 20 };
static const int world_sizes[] = { 1, 2, 3, 4, 7 };

typedef struct combination {
    pairs_point level;
    size_t size; /* elements, before --max-count */
} combination;

typedef struct sample {
    combination of[MOST_CASES];
    int count;
    uint64_t state;
} sample;

static int is_allowed(const unsigned char *level)
{
    zt_call call = (zt_call)level[CALL];

    if (level[DTYPE] >= ZRO_I8 && level[OP] == ZRO_AVG)
        return 0;
    /* What exists once can be read by a call, but not be every rank's output. */
    return level[MEMORY] != ONCE || (zt_call_is_apart(call) && !level[IN_PLACE]);
}

static const pairs_space space = { FACTORS, levels, is_allowed };

static void add_pairwise(sample *s)
{
    pairs_point points[MOST_CASES];
    int n = pairs_sample(&space, &s->state, points, MOST_CASES - s->count);

    for (int i = 0; i < n; i++) {
        combination *c = &s->of[s->count++];

        memcpy(c->level, points[i], sizeof c->level);
        c->size = sizes[c->level[SIZE]];
    }
}

/* Every call twice, with each level of each other factor; each case belongs to one world and backend. */
static void add_large(sample *s, int world, int threads)
{
    uint64_t state = 8; /* the same in all instances */

    for (int k = 0; k < LARGE_CASES; k++) {
        combination c;

        do {
            pairs_draw(&space, &state, c.level);
            c.level[CALL] = (unsigned char)(k % levels[CALL]);
            c.level[DTYPE] = (unsigned char)(k % levels[DTYPE]);
            c.level[MACHINE] = (unsigned char)(k % levels[MACHINE]);
            c.level[MEMORY] = (unsigned char)(k / 3 % levels[MEMORY]);
        } while (!is_allowed(c.level));
        c.size = sizes[LARGE_LEVEL];
        if (world_sizes[k % 5] == world && k / 5 % 2 == threads && c.level[CALL] != ZT_BARRIER)
            s->of[s->count++] = c;
    }
}

static void add_random(sample *s, int count)
{
    while (count > 0) {
        combination c;
        uint64_t r;

        pairs_draw(&space, &s->state, c.level);
        r = zt_below(&s->state, 100);
        c.size = zt_below(&s->state, UINT64_C(1) << zt_below(&s->state, 18));
        if (r < 40)
            c.size = sizes[c.level[SIZE]];
        if (r == 99)
            c.size = sizes[LARGE_LEVEL];
        if (!is_allowed(c.level))
            continue;
        s->of[s->count++] = c;
        count--;
    }
}

static int setting_of(const combination *c)
{
    return ((c->level[CELLS] * levels[MACHINE] + c->level[MACHINE]) * levels[THREADS] + c->level[THREADS]) * levels[FAST]
           + c->level[FAST];
}

/* A group of one setting, and its group memory. */
typedef struct place {
    zro_group *group;
    int32_t cells[ZT_MAX_RANKS]; /* that hold, whether given or by machine */
    int machine[ZT_MAX_RANKS];   /* the first rank of each rank's machine */
    int is_apart, has_sent;      /* no two ranks are on one machine; this one had something to send */
    zro_memory *in, *out, *once;
} place;

static void make_place(zt_rank *t, place *p, const combination *c, uint64_t seed, size_t room)
{
    zro_group_config config = zt_config();
    zt_machines machines = (zt_machines)c->level[MACHINE];

    memset(p, 0, sizeof *p);
    if (machines == ZT_ONE || (machines == ZT_TWO && zt_opt.hosts)) /* on two hosts nobody can pretend these two */
        machines = t->machines;
    else
        config.machine = 100 + zt_machine(t, machines, t->rank);
    p->is_apart = machines == ZT_OWN && t->size > 1;
    for (int r = 0; r < t->size; r++) {
        int machine = zt_machine(t, machines, r);

        p->machine[r] = 0;
        while (zt_machine(t, machines, p->machine[r]) != machine)
            p->machine[r]++;
        p->cells[r] = c->level[CELLS] ? (int32_t)zt_below(&seed, 4) - 1 : machine;
    }
    if (c->level[CELLS])
        config.cells = p->cells;
    config.settings.threads = zt_opt.threads + c->level[THREADS];
    if (c->level[FAST])
        config.settings.fast = ZRO_OFF;
    p->group = zt_group_with(t, &config);
    CHECK_OK(zro_memory_alloc(p->group, ZRO_MEMORY_EACH, room, &p->in));
    CHECK_OK(zro_memory_alloc(p->group, ZRO_MEMORY_EACH, room, &p->out));
    CHECK_OK(zro_memory_alloc(p->group, ZRO_MEMORY_ONCE, room, &p->once));
}

/* Between machines everything goes by link. */
static void check_ways(const place *p)
{
    zro_stats stats = ZRO_STATS_INIT;

    CHECK_OK(zro_group_stats(p->group, &stats));
    CHECK(!p->is_apart || (stats.direct_bytes == 0 && (stats.link_bytes > 0 || !p->has_sent)));
}

/* Handles go in an order that differs between ranks. */
static void drop_place(zt_rank *t, place *p)
{
    check_ways(p);
    if (zt_next(&t->random) % 2 == 0)
        zro_group_destroy(p->group);
    else
        p->once = (zro_memory_free(p->once), NULL);
    zro_memory_free(p->in);
    zro_memory_free(p->out);
    if (p->once != NULL)
        zro_memory_free(p->once);
    else
        zro_group_destroy(p->group);
}

static void make_job(zt_job *job, const combination *c, int world, uint64_t seed)
{
    size_t size = c->size < zt_opt.max_count ? c->size : zt_opt.max_count;

    memset(job, 0, sizeof *job);
    job->call = (zt_call)c->level[CALL];
    job->dtype = (zro_dtype)c->level[DTYPE];
    job->op = (zro_op)c->level[OP];
    job->seed = zt_next(&seed);
    job->root = (int)zt_below(&seed, (uint64_t)world);
    job->in_place = c->level[IN_PLACE];
    /* Large sizes are those of the whole, so that seven ranks fit into memory. */
    job->count = size;
    if (size > 1000000 && (job->call == ZT_REDUCE_SCATTER || job->call == ZT_GATHER || job->call == ZT_ALL_GATHER))
        job->count = size / (size_t)world;
    zt_counts_random(&seed, job->counts, world, size);
    job->in_shift = (unsigned)zt_below(&seed, 8);
}

static void run_case(zt_rank *t, place *p, const combination *c, uint64_t seed, const char *context)
{
    uint64_t own = zt_mix(seed, (uint64_t)t->rank + 100);
    int memory = c->level[MEMORY];
    zt_job job;

    make_job(&job, c, t->size, seed);
    job.group = p->group;
    job.context = context;
    job.out_shift = (unsigned)zt_below(&own, 8);
    memcpy(job.cells, p->cells, sizeof job.cells);
    for (int r = 0; r < t->size; r++)
        job.stream[r] = memory == ONCE ? p->machine[r] : r;
    if (memory == ONCE) {
        job.once = 1;
        job.in_room = zro_memory_data(p->once);
        job.keeps_input = p->machine[t->rank] != t->rank;
    } else {
        job.in_shift = (unsigned)zt_below(&own, 8);
        if (memory == EACH || (memory == MIXED && zt_below(&own, 2) == 0))
            job.in_room = zro_memory_data(p->in);
    }
    if (memory == EACH || memory == ONCE || (memory == MIXED && zt_below(&own, 2) == 0))
        job.out_room = zro_memory_data(p->out);
    if (memory == ONCE) {
        CHECK_OK(zro_barrier(p->group)); /* nobody reads the last case's input any more */
        zt_job_prepare(&job);
        CHECK_OK(zro_barrier(p->group));
        zt_job_free(&job);
        job.keeps_input = 1;
    }
    zt_job_run(&job, c->level[SUBMITTED]);
    p->has_sent |= (job.call == ZT_ALL_REDUCE || job.call == ZT_ALL_GATHER) && job.count > 0;
}

static void describe(const combination *c, int world, int number, char *text, size_t bytes)
{
    static const char *const memories[] = { "own", "each", "mixed", "once" }, *const machines[] = { "one", "rank%2", "rank" };

    snprintf(text, bytes,
             "case %d in a world of %d, --seed %" PRIu64 ": %s, memory %s, cells %s, machine %s, threads %d, fast %s", number,
             world, zt_opt.seed, c->level[SUBMITTED] ? "submitted" : "called", memories[c->level[MEMORY]],
             c->level[CELLS] ? "random" : "NULL", machines[c->level[MACHINE]], (int)zt_opt.threads + c->level[THREADS],
             c->level[FAST] ? "off" : "as asked");
}

static void run_sample(zt_rank *t, const sample *s)
{
    int settings = levels[CELLS] * levels[MACHINE] * levels[THREADS] * levels[FAST];
    char context[256];

    for (int setting = 0; setting < settings; setting++) {
        size_t room = 0;
        place p = { 0 };

        for (int i = 0; i < s->count; i++) {
            zt_job job;

            make_job(&job, &s->of[i], t->size, zt_mix(t->seed, (uint64_t)i + 1000));
            if (setting_of(&s->of[i]) == setting && zt_job_room(&job, t->size) > room)
                room = zt_job_room(&job, t->size);
        }
        for (int i = 0; i < s->count; i++) {
            if (setting_of(&s->of[i]) != setting)
                continue;
            if (p.group == NULL)
                make_place(t, &p, &s->of[i], zt_mix(t->seed, (uint64_t)setting), room);
            describe(&s->of[i], t->size, i, context, sizeof context);
            run_case(t, &p, &s->of[i], zt_mix(t->seed, (uint64_t)i + 1000), context);
        }
        if (p.group != NULL)
            drop_place(t, &p);
    }
    if (t->rank == 0)
        zt_note(t, "%d cases, seed %" PRIu64, s->count, zt_opt.seed);
}

static sample *new_sample(zt_rank *t)
{
    sample *s = calloc(1, sizeof *s);

    CHECK(s != NULL);
    s->state = zt_mix(t->seed, (uint64_t)t->size * 2 + (uint64_t)t->threads);
    return s;
}

static void conformance(zt_rank *t)
{
    sample *s = new_sample(t);

    add_pairwise(s);
    run_sample(t, s);
    free(s);
}

static void conformance_large(zt_rank *t)
{
    sample *s = new_sample(t);

    add_large(s, t->size, t->threads);
    run_sample(t, s);
    free(s);
}

static void conformance_random(zt_rank *t)
{
    sample *s = new_sample(t);

    add_random(s, RANDOM_CASES);
    run_sample(t, s);
    free(s);
}

/* Pieces about as long as those that travel with an arrival, though some of these are read in place where that is possible. */
static void conformance_payloads(zt_rank *t)
{
    static const size_t around[] = { 512, 513, 1000, 1024, 1025 };
    enum { N = sizeof around / sizeof *around };
    sample *s = new_sample(t);

    for (int call = 0; call < ZT_CALLS; call++)
        for (int i = 0; i < 3 * N; i++) {
            combination *c = &s->of[s->count++];

            c->level[CALL] = (unsigned char)call;
            c->level[DTYPE] = ZRO_F32;
            c->level[MEMORY] = (unsigned char)(i / N); /* OWN, EACH, MIXED */
            c->level[CELLS] = (unsigned char)(i % 2);
            c->level[IN_PLACE] = (unsigned char)(i / 2 % 2);
            c->size = around[i % N];
        }
    run_sample(t, s);
    free(s);
}

/* Many ranks per core, at small sizes and few settings. */
static void conformance_many(zt_rank *t)
{
    sample *s = new_sample(t);

    add_random(s, 48);
    for (int i = 0; i < s->count; i++) {
        s->of[i].level[CELLS] = (unsigned char)(i % 2);
        s->of[i].level[MACHINE] = s->of[i].level[THREADS] = 0;
        s->of[i].level[FAST] = (unsigned char)(i % 2);
        s->of[i].size %= 1001;
    }
    run_sample(t, s);
    free(s);
}

static uint64_t control_bytes(const zro_group *group)
{
    zro_stats stats = ZRO_STATS_INIT;

    CHECK_OK(zro_group_stats(group, &stats));
    return stats.control_bytes;
}

/* Small calls with many roots, whose messages go to everybody.  What they took is given back but for a little per rank, which does
 * not grow with the number of peers that a rank had messages for. */
static void check_small_calls(zt_rank *t)
{
    enum { ROOTS = 10, COUNT = 1024, MOST_PER_RANK = 100000 };
    uint64_t made = control_bytes(t->group);
    float in[COUNT] = { 0 }, out[COUNT];

    zt_meet(t);
    for (int root = 0; root < ROOTS; root++) {
        CHECK_OK(zro_broadcast(t->group, in, COUNT, ZRO_F32, root));
        CHECK_OK(zro_reduce(t->group, in, out, COUNT, ZRO_F32, ZRO_SUM, root));
    }
    zt_meet(t);
    CHECK(control_bytes(t->group) - made <= (uint64_t)t->size / 2 * MOST_PER_RANK);
}

/* Over links, in a group that is so large that payloads do not travel with their headers any more; what the group holds does not
 * grow with the buffers that pairs of ranks would need. */
static void conformance_many_far(zt_rank *t)
{
    CHECK(control_bytes(t->group) < UINT64_C(5000000));
    check_small_calls(t);
    conformance_many(t);
}

static const size_t BIG = (UINT64_C(1) << 31) + 12345;

static uint8_t big_value(size_t i, int rank)
{
    return (uint8_t)((i * 2654435761u >> 13) + (size_t)rank * 31);
}

static void fill_big(uint8_t *data, int rank)
{
    for (size_t i = 0; i < BIG; i++)
        data[i] = big_value(i, rank);
}

static void big_broadcast(zt_rank *t)
{
    uint8_t *data = malloc(BIG);

    CHECK(data != NULL);
    if (t->rank == 1)
        fill_big(data, 1);
    CHECK_OK(zro_broadcast(t->group, data, BIG, ZRO_U8, 1));
    for (size_t i = 0; i < BIG; i++)
        CHECK(data[i] == big_value(i, 1));
    free(data);
}

static void big_all_reduce(zt_rank *t)
{
    zro_memory *memory;
    uint8_t *data;

    CHECK_OK(zro_memory_alloc(t->group, ZRO_MEMORY_EACH, BIG, &memory));
    data = zro_memory_data(memory);
    fill_big(data, t->rank);
    CHECK_OK(zro_all_reduce(t->group, data, BIG, ZRO_U8, ZRO_SUM));
    for (size_t i = 0; i < BIG; i++)
        CHECK(data[i] == (uint8_t)(big_value(i, 0) + big_value(i, 1)));
    zro_memory_free(memory);
}

#define WORLDS (ZT_WORLD(1) | ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4) | ZT_WORLD(7))

const zt_case cases_group_conformance[] = {
    { "conformance", conformance, WORLDS, ZT_BOTH | ZT_MPI, 0, 240, 0, 0 },
    { "S86_conformance", conformance, WORLDS, ZT_FOREIGN, 0, 240, 0, 0 },
    { "conformance_large", conformance_large, WORLDS, ZT_BOTH, 0, 240, 0, 0 },
    { "conformance_large", conformance_large, WORLDS, ZT_LINKS, ZT_LONG, 240, 0, 0 },
    { "conformance_payloads", conformance_payloads, WORLDS, ZT_BOTH | ZT_MPI, 0, 120, 0, 0 },
    { "conformance_many", conformance_many, ZT_WORLD(32), ZT_BOTH, 0, 120, 0, 0 },
    { "conformance_many_far", conformance_many_far, ZT_WORLD(40), ZT_FOREIGN, ZT_TWO_MACHINES, 240, 0, 0 },
    { "conformance_random", conformance_random, WORLDS, ZT_ALL, ZT_LONG, 300, 0, 0 },
    { "big_broadcast", big_broadcast, ZT_WORLD(2), ZT_BOTH, ZT_BIG, 300, 0, 0 },
    { "big_all_reduce", big_all_reduce, ZT_WORLD(2), ZT_BOTH, ZT_BIG, 300, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
