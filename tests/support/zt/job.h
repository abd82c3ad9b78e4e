/* One collective call with known inputs, and the check of its result against the pure reference.
 *
 * Inputs follow from (seed, rank), so every rank computes what any other had, and expected results are local.  Data are
 * streamed through chunks: a check needs little memory at any size.
 *
 *     zt_job job = { .group = g, .call = ZT_REDUCE, ... };
 *     zt_job_prepare(&job);      arrays: own memory, or `in_room` and `out_room`; inputs; guards around arrays
 *     st = zt_job_call(&job);    on any thread
 *     zt_job_check(&job);        result, inputs left as they were, guards; fails the test with a description of the call
 *     zt_job_free(&job); */
#ifndef ZT_JOB_H
#define ZT_JOB_H

#include "zt/zt.h"

typedef enum zt_call {
    ZT_BARRIER,
    ZT_ALL_REDUCE,
    ZT_ALL_REDUCE_INTO,
    ZT_REDUCE,
    ZT_REDUCE_SCATTER,
    ZT_REDUCE_SCATTER_V,
    ZT_BROADCAST,
    ZT_BROADCAST_BYTES,
    ZT_GATHER,
    ZT_GATHER_V,
    ZT_ALL_GATHER,
    ZT_ALL_GATHER_V,
    ZT_CALLS
} zt_call;

enum { ZT_DTYPES = 8, ZT_OPS = 4, ZT_ROOM_MARGIN = 256 };

typedef struct zt_job {
    zro_group *group;
    zt_call call;
    zro_dtype dtype;
    zro_op op;
    int root;
    size_t count; /* of the call; with the _v calls it means nothing */
    size_t counts[ZT_MAX_RANKS];
    int in_place;
    uint64_t seed;                /* equal on all ranks */
    int32_t cells[ZT_MAX_RANKS];  /* of the group's ranks */
    int stream[ZT_MAX_RANKS];     /* whose inputs a rank has: its own, or those of the first on its machine */
    int once;                     /* `in_room` is one for several ranks, of whom this one ... */
    int keeps_input;              /* ... finds its input written */
    void *in_room, *out_room;     /* group memory, zt_job_room bytes; NULL: own memory */
    unsigned in_shift, out_shift; /* elements by which arrays are moved off their alignment, < 8 */
    const char *context;          /* what to print with a failure, or NULL */
    /* made by prepare */
    void *in, *out;
    size_t in_count, out_count; /* elements here */
    struct {
        void *own, *array; /* what to free; what lies between guards */
        size_t count;
    } laid[2];
    int made_bytes; /* `out` is zro_broadcast_bytes' */
} zt_job;

/* Whether a call sums, takes separate input and output, is rooted, has a count for each rank; its name. */
int zt_call_reduces(zt_call call);
int zt_call_is_apart(zt_call call);
int zt_call_is_rooted(zt_call call);
int zt_call_is_uneven(zt_call call);
const char *zt_call_name(zt_call call);

/* Fills dtype, op, root, count(s) up to `most` elements a rank, in_place and shifts with numbers of `state`, which all ranks
 * have alike; `own` may differ by rank.  cells become 0, streams the ranks' own. */
void zt_job_random(zt_job *job, uint64_t *state, uint64_t *own, size_t most);

/* Sets the cells that ranks have by their machines, where the harness chose those: call it after zt_job_random. */
void zt_job_cells(zt_job *job, const zt_rank *t);

/* Splits `total` elements over n ranks, some of which get none. */
void zt_counts_random(uint64_t *state, size_t *counts, int n, size_t total);

/* Bytes that a room needs, on any of `ranks` ranks. */
size_t zt_job_room(const zt_job *job, int ranks);

void zt_job_prepare(zt_job *job);
zro_status zt_job_call(void *job); /* a zro_work_fn */
void zt_job_check(const zt_job *job);
void zt_job_free(zt_job *job);

/* All of these: called, or submitted and waited for. */
void zt_job_run(zt_job *job, int submitted);

#endif
