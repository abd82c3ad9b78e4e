/* Twins: the same parameters twice, one copy under a sharded optimizer and one under the same optimizer alone.
 *
 * Every rank has random gradients of its own; they are averaged by hand, and both copies get the average.  Then whatever is
 * done to both must leave equal bits.  A mode says where the sharded copy's arrays lie and who owns what. */
#ifndef TWIN_H
#define TWIN_H

#include "zt/zt.h"

enum { TWIN_MAX = 32 };

typedef enum twin_place {
    TWIN_OWN,   /* the program's own arrays */
    TWIN_GROUP, /* the program's, in group memory */
    TWIN_ONCE,  /* zro_params_alloc, one array for a machine */
    TWIN_EACH,  /* zro_params_alloc, one array a rank */
    TWIN_VIEWS, /* parameters_as_bucket_view */
    TWIN_PLACES
} twin_place;

typedef struct twin_mode {
    twin_place place;
    zro_partition partition;
    zro_switch shard_buckets;
} twin_mode;

/* All places with all partitions. */
enum { TWIN_PARTITIONS = 5, TWIN_MODES = TWIN_PLACES * TWIN_PARTITIONS };
twin_mode twin_mode_at(int i);

/* The next one to be tried after i (-1: the first; TWIN_MODES: no more): all of them where ranks are few and near or with
 * --long; otherwise each place and each partition once. */
int twin_next_mode(const zt_rank *t, int i);

typedef struct twin_spec {
    size_t count;
    zro_dtype dtype, grad;
    int32_t device;
} twin_spec;

typedef struct twin {
    zt_rank *t;
    twin_mode mode;
    size_t n, n_used; /* parameters; those that the optimizers have */
    zro_param sharded[TWIN_MAX], alone[TWIN_MAX];
    size_t count[TWIN_MAX];
    int32_t owners[TWIN_MAX]; /* of the partition GIVEN */
    zro_optim *optim, *reference;
    zro_memory *memory;
    void *blocks[2 * TWIN_MAX], *copies; /* data alone and gradients of both; the program's own data of the sharded copy */
} twin;

/* Parameters with random values, the same on all ranks; of the sharded copy rank 0 alone has them until twin_create publishes
 * them.  Collective. */
void twin_init(twin *w, zt_rank *t, twin_mode mode, const twin_spec *specs, size_t n);
void twin_free(twin *w); /* the optimizers first, if they are still there */

/* Both optimizers, over the first n_used parameters (0: all); plan, places and settings of `config` (or NULL) are the
 * mode's. */
void twin_create(twin *w, const zro_rule *rule, const void *rule_config, const zro_optim_config *config, size_t n_used);

/* The sharded one's configuration; `plan` is its memory.  A group of parameters [first, first + n). */
zro_optim_config twin_config(const twin *w, const zro_optim_config *config, zro_plan_config *plan);
zro_param_group twin_group_of(const twin *w, zro_param *params, size_t first, size_t n);

/* All parameters not yet used become a group of both. */
void twin_add_rest(twin *w);

/* New gradients, present, equal on both; a step of both and the check. */
void twin_gradients(twin *w, double scale);
void twin_step(twin *w);

/* Equal bits of values; of this rank's part of all slots. */
void twin_check(const twin *w);
void twin_check_slots(const twin *w);

/* Several steps with everything. */
void twin_train(twin *w, int steps);

zro_step_info twin_info(const zro_optim *optim);
zro_stats twin_stats(const zro_optim *optim);

#endif
