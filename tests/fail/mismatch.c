/* Ranks that call different things: MISMATCH on every rank at this operation or at its next, with both calls in the text;
 * never a wrong sum.  The group is broken; another group of the same ranks stays whole. */
#include <stdlib.h>
#include <string.h>

#include "zt/job.h"
#include "zt/list.h"
#include "zt/zt.h"

typedef zro_status (*call_fn)(zro_group *group, void *in, void *out);

enum { MANY = 1000 };

#define CALL(name, expression)                                                                                                 \
    static zro_status name(zro_group *g, void *in, void *out)                                                                  \
    {                                                                                                                          \
        (void)in;                                                                                                              \
        (void)out;                                                                                                             \
        return expression;                                                                                                     \
    }

static const size_t even_counts[] = { 10, 10, 10, 10 }, uneven_counts[] = { 11, 9, 10, 10 };

CALL(meet, zro_barrier(g))
CALL(sum, zro_all_reduce(g, in, MANY, ZRO_F32, ZRO_SUM))
CALL(sum_fewer, zro_all_reduce(g, in, MANY - 1, ZRO_F32, ZRO_SUM))
CALL(sum_none, zro_all_reduce(g, in, 0, ZRO_F32, ZRO_SUM))
CALL(sum_i32, zro_all_reduce(g, in, MANY, ZRO_I32, ZRO_SUM))
CALL(sum_f64, zro_all_reduce(g, in, MANY / 2, ZRO_F64, ZRO_SUM))
CALL(max, zro_all_reduce(g, in, MANY, ZRO_F32, ZRO_MAX))
CALL(from_0, zro_broadcast(g, in, MANY, ZRO_F32, 0))
CALL(from_1, zro_broadcast(g, in, MANY, ZRO_F32, 1))
CALL(to_0, zro_reduce(g, in, out, MANY, ZRO_F32, ZRO_SUM, 0))
CALL(to_1, zro_reduce(g, in, out, MANY, ZRO_F32, ZRO_SUM, 1))
CALL(scatter, zro_reduce_scatter(g, in, out, 10, ZRO_F32, ZRO_SUM))
CALL(scatter_even, zro_reduce_scatter_v(g, in, out, even_counts, ZRO_F32, ZRO_SUM))
CALL(scatter_uneven, zro_reduce_scatter_v(g, in, out, uneven_counts, ZRO_F32, ZRO_SUM))
CALL(collect, zro_all_gather(g, in, out, 10, ZRO_F32))
CALL(collect_even, zro_all_gather_v(g, in, out, even_counts, ZRO_F32))
CALL(collect_uneven, zro_all_gather_v(g, in, out, uneven_counts, ZRO_F32))
CALL(collect_at_0, zro_gather(g, in, out, 10, ZRO_F32, 0))
CALL(collect_at_1, zro_gather(g, in, out, 10, ZRO_F32, 1))

static zro_status tell(zro_group *g, void *in, int root)
{
    void *got;
    size_t bytes;
    zro_status st = zro_broadcast_bytes(g, in, 100, root, &got, &bytes);

    zro_bytes_free(got);
    return st;
}
CALL(tell_0, tell(g, in, 0))
CALL(tell_1, tell(g, in, 1))

static zro_status allocate(zro_group *g)
{
    zro_memory *memory;
    zro_status st = zro_memory_alloc(g, ZRO_MEMORY_EACH, 4096, &memory);

    zro_memory_free(memory);
    return st;
}
CALL(alloc, allocate(g))

static zro_status duplicate(zro_group *g)
{
    zro_group *copy;
    zro_status st = zro_group_duplicate(g, &copy);

    zro_group_destroy(copy);
    return st;
}
CALL(copy_group, duplicate(g))

static const struct {
    call_fn common, odd;
    const char *common_text, *odd_text;
} pairs[] = {
    { sum, from_0, "all_reduce of 1000 f32, sum", "broadcast of 1000 f32, root 0" },
    { sum, meet, "all_reduce", "barrier" },
    { meet, sum, "barrier", "all_reduce" },
    { sum, sum_fewer, "1000 f32", "999 f32" },
    { sum, sum_none, "1000 f32", "of 0 f32" },
    { sum, sum_i32, "1000 f32", "1000 i32" },
    { sum, sum_f64, "1000 f32", "500 f64" },
    { sum, max, "sum", "max" },
    { from_0, from_1, "root 0", "root 1" },
    { to_0, to_1, "root 0", "root 1" },
    { to_0, sum, "reduce", "all_reduce" },
    { scatter_even, scatter_uneven, "reduce_scatter", "reduce_scatter" },
    { scatter, collect, "reduce_scatter", "all_gather" },
    { collect_even, collect_uneven, "all_gather", "all_gather" },
    { collect_at_0, collect_at_1, "root 0", "root 1" },
    { collect_at_0, collect, "gather", "all_gather" },
    { tell_0, tell_1, "root 0", "root 1" },
    { tell_0, meet, "broadcast_bytes", "barrier" },
    { alloc, meet, "memory_alloc", "barrier" },
    { copy_group, sum, "operation", "all_reduce" },
    { meet, alloc, "barrier", "memory_alloc" },
};
enum { PAIRS = sizeof pairs / sizeof *pairs };

typedef struct submitted {
    call_fn call;
    zro_group *group;
    void *in, *out;
} submitted;

static zro_status run_submitted(void *user)
{
    submitted *s = user;

    return s->call(s->group, s->in, s->out);
}

static void mismatch(zt_rank *t)
{
    static const size_t bytes = MANY * 8;
    void *in = calloc(1, bytes), *out = calloc(1, bytes);

    CHECK(in != NULL && out != NULL);
    for (int p = 0; p < PAIRS; p++)
        for (int odd = 0; odd < t->size; odd++) {
            submitted s = { t->rank == odd ? pairs[p].odd : pairs[p].common, NULL, in, out };
            zro_group *broken;
            zro_work *work;
            zro_status st;

            CHECK_OK(zro_group_duplicate(t->group, &broken));
            s.group = broken;
            if (t->arg) {
                CHECK_OK(zro_submit(broken, run_submitted, &s, &work));
                st = zro_work_wait(work);
                zro_work_destroy(work);
            } else {
                st = s.call(broken, in, out);
            }
            if (st == ZRO_OK)
                st = zro_barrier(broken);
            CHECK_STATUS(st, ZRO_ERR_MISMATCH);
            CHECK_TEXT(pairs[p].common_text);
            CHECK_TEXT(pairs[p].odd_text);
            CHECK_TEXT("rank 0");
            CHECK_STATUS(zro_barrier(broken), ZRO_ERR_MISMATCH);
            CHECK_STATUS(zro_group_status(broken), ZRO_ERR_MISMATCH);
            CHECK_OK(zro_barrier(t->group));
            zro_group_destroy(broken);
        }
    free(in);
    free(out);
}

/* Creates compare the ranks before anything is issued: MISMATCH is a refusal, and the group stays whole. */
static void refusals(zt_rank *t)
{
    int is_odd = t->rank == t->size - 1;
    int members[] = { is_odd, !is_odd };
    zro_group *sub;
    zro_memory *memory;

    CHECK_STATUS(zro_memory_alloc(t->group, ZRO_MEMORY_EACH, is_odd ? 4096 : 8192, &memory), ZRO_ERR_MISMATCH);
    CHECK(memory == NULL);
    CHECK_OK(zro_barrier(t->group));
    CHECK_STATUS(zro_memory_alloc(t->group, is_odd ? ZRO_MEMORY_EACH : ZRO_MEMORY_ONCE, 4096, &memory), ZRO_ERR_MISMATCH);
    CHECK(memory == NULL);
    CHECK_OK(zro_barrier(t->group));
    CHECK_STATUS(zro_group_create_sub(t->group, members, 2, &sub), ZRO_ERR_MISMATCH);
    CHECK(sub == NULL);
    CHECK_STATUS(zro_group_create_sub(t->group, members, 1 + is_odd, &sub), ZRO_ERR_MISMATCH);
    CHECK(sub == NULL);
    CHECK_OK(zro_barrier(t->group));
}

/* Ranks that bring other sizes or cells do not become a group. */
static void refused_groups(zt_rank *t)
{
    unsigned char mine[ZRO_TICKET_BYTES], all[ZT_MAX_RANKS * ZRO_TICKET_BYTES];
    int32_t cells[ZT_MAX_RANKS] = { 0 };
    zro_group_config config = zt_config();
    zro_group *group;

    cells[0] = t->rank == 1;
    config.cells = cells;
    CHECK_OK(zro_group_ticket(&config, t->rank, t->size, mine));
    zt_exchange(t, mine, sizeof mine, all);
    CHECK_STATUS(zro_group_create_tickets(&config, t->rank, t->size, all, &group), ZRO_ERR_MISMATCH);
    CHECK(group == NULL);
    CHECK_TEXT("cells");
    CHECK_OK(zro_barrier(t->group));
}

#define WORLDS (ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4))

const zt_case cases_fail_mismatch[] = {
    { "mismatch", mismatch, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { "mismatch_machines", mismatch, ZT_WORLD(3), ZT_THREADS, ZT_OWN_MACHINES, 60, 0, 0 },
    { "mismatch_machines", mismatch, WORLDS, ZT_MPI, ZT_OWN_MACHINES, 60, 0, 0 },
    { "mismatch_two", mismatch, ZT_WORLD(4), ZT_ALL, ZT_TWO_MACHINES, 60, 0, 0 },
    { "mismatch_submitted", mismatch, ZT_WORLD(2), ZT_ALL, 0, 60, 0, 1 },
    { "mismatch_refused", refusals, ZT_WORLD(2) | ZT_WORLD(3), ZT_ALL, 0, 0, 0, 0 },
    { "mismatch_refused_machines", refusals, ZT_WORLD(3), ZT_THREADS | ZT_MPI, ZT_OWN_MACHINES, 0, 0, 0 },
    { "mismatch_groups", refused_groups, ZT_WORLD(2) | ZT_WORLD(3), ZT_BOTH, 0, 0, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
