/* Ranks for the cases that need them: see golden.h.
 *
 * Each rank has a case of its own and leaves its result in a place of its own: in memory that processes share, or, under MPI,
 * in an array that is gathered on all ranks of the launch.  So all of them know what has failed and go the same way afterwards.
 *
 * A rank that fails leaves; the others hear that it is lost, which is an echo and counts only if nobody says more. */
#define _DEFAULT_SOURCE
#include <math.h>
#include <string.h>
#include <sys/mman.h>

#include "golden.h"

typedef struct job {
    const golden_case *c;
    golden_rank_fn fn;
    const void *user;
    golden_result *results; /* one a rank */
} job;

zro_group_config golden_group_config(const golden_options *options)
{
    zro_group_config config = ZRO_GROUP_CONFIG_INIT;

    config.settings = options->settings;
    config.timeout_ms = GOLDEN_TIMEOUT_MS;
    return config;
}

int golden_world_size(golden_case *c, json_t *object)
{
    uint32_t size = golden_count(c, object, "world_size", 0);

    if (size >= 1 && size <= GOLDEN_MAX_RANKS)
        return (int)size;
    golden_fail(c, "\"world_size\" is %u, must be 1 to %d", (unsigned)size, GOLDEN_MAX_RANKS);
    return 1;
}

static void take(golden_case *c, const golden_result *result)
{
    if (golden_ok(c)) {
        c->result.failed = 1;
        memcpy(c->result.text, result->text, sizeof c->result.text);
    }
}

/* `status` is what `call`, which ran the ranks, returned. */
static void merge(golden_case *c, const golden_result *results, int n, const char *call, zro_status status)
{
    for (int i = 0; i < n; i++) {
        c->result.worst = fmax(c->result.worst, results[i].worst);
        if (results[i].failed && !results[i].echo)
            take(c, &results[i]);
    }
    golden_call(c, call, status);
    for (int i = 0; i < n; i++)
        if (results[i].failed)
            take(c, &results[i]);
}

static int run_rank(void *user, zro_group *group)
{
    const job *j = user;
    int rank = zro_group_rank(group);
    golden_case own;

    golden_begin(&own, j->c->options, j->c->json);
    own.rank = (size_t)rank;
    j->fn(&own, group, j->user);
    golden_end(&own);
    j->results[rank] = own.result;
    return 0;
}

static void spawn(golden_case *c, int size, job *j)
{
    int in_threads = c->options->backend == GOLDEN_THREADS;
    zro_group_config config = golden_group_config(c->options);
    size_t bytes = (size_t)size * sizeof *j->results;
    zro_status status;

    j->results = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (j->results == MAP_FAILED) {
        golden_fail(c, "no memory for %d ranks", size);
        return;
    }
    status = (in_threads ? zro_spawn_threads : zro_spawn)(&config, size, run_rank, j);
    merge(c, j->results, size, in_threads ? "zro_spawn_threads" : "zro_spawn", status);
    munmap(j->results, bytes);
}

/* The first `size` ranks of the launch; the others wait for what comes out. */
static void run_in_world(golden_case *c, int size, job *j)
{
    zro_group *world = c->options->world, *group = NULL;
    int n = zro_group_size(world), ranks[GOLDEN_MAX_RANKS];
    golden_result *mine = golden_alloc(c, (size_t)(n + 1) * sizeof *mine), *all = mine + 1;
    zro_status status;

    if (size > n) {
        golden_fail(c, "it needs %d ranks, the launch has %d", size, n);
        return;
    }
    for (int i = 0; i < size; i++)
        ranks[i] = i;
    if (!golden_call(c, "zro_group_create_sub", zro_group_create_sub(world, ranks, size, &group)))
        return;
    j->results = mine - (group != NULL ? zro_group_rank(group) : 0);
    if (group != NULL)
        run_rank(j, group);
    zro_group_destroy(group);
    status = zro_all_gather(world, mine, all, sizeof *mine, ZRO_U8);
    merge(c, all, status == ZRO_OK ? size : 0, "zro_all_gather", status);
}

void golden_on_ranks(golden_case *c, int size, golden_rank_fn fn, const void *user)
{
    job j = { c, fn, user, NULL };

    if (!golden_ok(c))
        return;
    if (c->options->world != NULL)
        run_in_world(c, size, &j);
    else
        spawn(c, size, &j);
}
