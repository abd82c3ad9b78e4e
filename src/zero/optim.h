/* The zro_optim handle, for the modules that make it up and for what stands on it.
 *
 * optim.c makes and destroys it, extend.c adds parameter groups, compare_ranks.c compares the ranks, step.c steps and publishes,
 * join.c follows ranks that have inputs left, access.c is what a program may ask for and change, describe.c tells about it, state_consolidate.c takes its state out,
 * state_load.c puts it back. */
#ifndef ZRO_ZERO_OPTIM_H
#define ZRO_ZERO_OPTIM_H

#include <stdatomic.h>
#include <sys/types.h>

#include "base/memory.h"
#include "base/param.h"
#include "plan/plan.h"
#include "step/cycle.h"
#include "step/place.h"
#include "zro.h"

/* A parameter as it was when it was added: its name, size and types do not change. */
typedef struct zro__entry {
    zro_param *param;
    size_t count;
    size_t block;       /* the number of its first block; blocks are counted over all parameters */
    const void *handed; /* the address at which its data must stay, because zro handed it out; NULL: the program's own memory */
    const char *name;   /* the plan's copy, or NULL */
    zro_dtype dtype, grad_dtype;
    uint32_t trains; /* requires_grad as it was in the last step */
} zro__entry;

/* A parameter of an optimizer in texts. */
#define ZRO__OPTIM_PARAM_NAME(optim, index) ZRO__PARAM_NAME((optim)->params[index].name, index)

struct zro_optim {
    zro__account own;      /* the account of a handle without a group of ranks */
    zro__account *account; /* `own`, or the rank's account */
    atomic_int refs;
    const zro_rule *rule; /* or NULL */
    double *defaults;     /* the values of groups that do not set their own */
    double *scratch;      /* the values of a group, while they are being changed */
    zro_settings settings;
    zro__pool *pool;       /* the group's, or the handle's own if there is no group; NULL: one thread */
    pid_t process;         /* the process that made the handle and has the threads of the pool */
    int said_idle;         /* 1: the log has been told that a step found nothing to do */
    int clipped;           /* 1: owners have clipped their gradients since the last step, which so may differ */
    int said_first;        /* 1: the ranks' first values and gradients have been compared */
    int said_gradients;    /* 1: the log has been told that gradients differ between ranks */
    uint64_t n_loads;      /* how many states have been loaded */
    uint64_t loaded_steps; /* the steps that the last of them had made */
    zro_plan *plan;
    zro_switch bucket_views;
    zro__views *views;
    zro__cycle *cycle;
    zro_group *group; /* the cycle's: a duplicate of the one that was given, or that of the ddp; NULL: not sharded */
    zro__updater updater;
    int attaches;              /* 1: it is attached to a ddp, whose cycle it has */
    zro__entry *params;        /* by index */
    size_t n_params, capacity; /* capacity: how many entries have memory */
    size_t n_blocks;           /* of all parameters together */
    zro_schedule *schedules;   /* those made on it, the last one first */
};

/* What this rank owns, with its state. */
static inline zro__shard *zro__optim_shard(const zro_optim *optim)
{
    return zro__updater_shard(&optim->updater);
}

/* A handle that was destroyed lives until the last of those who retained it has released it. */
void zro__optim_retain(zro_optim *optim);
void zro__optim_release(zro_optim *optim);

/* INVALID: the handle is NULL; STATE: it is sharded or has threads, and this is a forked child, which is no
 * rank and has no threads. */
zro_status zro__optim_check(const zro_optim *optim);
zro_status zro__optim_check_threads(const zro_optim *optim);

/* Around collective calls.  enter: checks that the group of ranks, if there is one, is whole, takes the turn under a join, and waits
 * for the lane; leave: frees the lane and returns `st`. */
zro_status zro__optim_enter(zro_optim *optim, zro__turn turn);
zro_status zro__optim_leave(zro_optim *optim, zro_status st);

/* This rank, and how many there are: 0 of 1 without a group. */
int zro__optim_rank(const zro_optim *optim);
int zro__optim_ranks(const zro_optim *optim);

/* Adds parameter groups, in a handle that is complete but for them; `optim` is NULL if this rank has none, and `st` says why.
 * Collective over `group`, which may be NULL; on failure nothing has changed. */
zro_status zro__optim_extend(zro_optim *optim, zro_group *group, const zro_param_group *groups, size_t n_groups,
                             const zro_plan_config *plan, zro__call call, zro_status st);

/* Whether parameters [first, end) have their data, where zro has put it if it was zro.  INVALID, STATE. */
zro_status zro__optim_check_data(const zro_optim *optim, size_t first, size_t end);

enum { ZRO__EVERY_RANK = -1 }; /* each rank has the whole state */

/* As zro_optim_load, part of `call`; unless `root` is ZRO__EVERY_RANK, rank `root` alone has the whole state, and the others have what
 * zro__state_broadcast gives them.  Arrays go from there to their owners, so that no other rank takes more memory than for its
 * shard. */
zro_status zro__optim_load_from(zro_optim *optim, const zro_state *state, int root, zro__call call);

/* As zro_optim_consolidate or, with_data = 1, as zro_optim_consolidate_with_data, part of `call`. */
zro_status zro__optim_gather_to(zro_optim *optim, zro__call call, int to, int with_data, zro_state **out);

/* Compares what the ranks have added: the parameters from `first` on, their groups and the settings.  Collective. */
zro_status zro__optim_compare(zro_optim *optim, zro_group *group, size_t first, zro__call call, zro_status st);

/* Before the first step: warns of parameters whose values or gradients differ between ranks; of gradients also before step 10,
 * 100 and so on.  Collective. */
zro_status zro__optim_compare_first_arrays(zro_optim *optim);

/* What all ranks must have in common in a step. */
zro__claim zro__optim_claim_step(const zro_optim *optim);

/* The zro__updater.open of an optimizer: what is checked, and will be compared, before a step. */
zro_status zro__optim_open_step(void *optim, zro__claim *claim);

/* Whether what each rank has done by itself, as part of `call`, has succeeded on all ranks.  Collective. */
zro_status zro__optim_vote(zro_optim *optim, zro__deed deed, zro__call call, zro_status st);

/* Under a join: ranks that have run out of inputs get the groups' values and the loss scale of the lowest rank that has not.
 * Collective if there are any. */
zro_status zro__optim_take_values(zro_optim *optim);

/* What an optimizer does in a join. */
extern const zro__joiner zro__optim_joiner;

/* Memory for the norms of all parameters.  Collective. */
zro_status zro__optim_reserve_norms(zro_optim *optim);

/* The index of a slot's name among the rule's, ZRO__MASTER for masters, or -1; and back. */
int zro__optim_find_slot(const zro_optim *optim, const char *name);
const char *zro__slot_name(const zro_optim *optim, size_t slot);

/* Whether a slot is an array of its parameter's elements, and its type, which may depend on the parameter's; those that are no
 * arrays are single doubles, each beside its piece. */
int zro__slot_is_array(const zro_optim *optim, size_t slot);
zro_dtype zro__slot_type(const zro_optim *optim, size_t slot, zro_dtype param);
double *zro__slot_number(const zro_optim *optim, const zro__shard_group *group, const zro__piece *piece, size_t slot);

/* Says in the log who owns what. */
void zro__optim_say_plan(const zro_optim *optim);

#endif
