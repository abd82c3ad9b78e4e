/* The zro_optim handle, for the modules that make it up and for what stands on it.
 *
 * optim.c makes and destroys it, extend.c adds parameter groups, compare.c compares the ranks, step.c steps and publishes,
 * values.c is what a program may ask for and change, describe.c tells about it, consolidate.c takes its state out, load.c puts
 * it back. */
#ifndef ZRO_ZERO_OPTIM_H
#define ZRO_ZERO_OPTIM_H

#include <stdatomic.h>
#include <sys/types.h>

#include "base/memory.h"
#include "step/cycle.h"
#include "step/place.h"
#include "step/plan.h"
#include "zro.h"

/* A parameter as it was when it came: name, size and types do not change. */
typedef struct zro__entry {
    zro_param *param;
    size_t count;
    size_t block;       /* its first one among the blocks of all parameters */
    const void *handed; /* its data, which zro handed out and must not be moved; NULL: it is the program's */
    const char *name;   /* or NULL */
    zro_dtype dtype, grad_dtype;
    uint32_t trains; /* requires_grad, as of the last step */
} zro__entry;

/* Names of some parameters, one after another. */
typedef struct zro__names {
    struct zro__names *next;
    char text[];
} zro__names;

struct zro_optim {
    zro__account own;      /* of a handle without a group of ranks; */
    zro__account *account; /* that of the rank otherwise */
    atomic_int refs;
    const zro_rule *rule;    /* or NULL */
    double *defaults, *room; /* values of groups that say nothing else; room for a group's */
    zro_settings settings;
    zro__pool *pool; /* the group's, or */
    pid_t process;   /* of the process that has its threads */
    int said_idle;   /* that a step found nothing to do */
    zro_plan *plan;
    zro_switch bucket_views;
    zro__views *views;
    zro__cycle cycle;
    zro__entry *params; /* by index */
    size_t n_params, n_room, n_blocks;
    size_t *cut; /* parameters with several owners, who must agree whether there is a gradient */
    size_t n_cut;
    zro__names *names;
};

/* A handle that was destroyed lives until the last of those who retained it has released it. */
void zro__optim_retain(zro_optim *optim);
void zro__optim_release(zro_optim *optim);

zro__account *zro__optim_account(zro_optim *optim);

/* Where schedules keep a group's learning rate as it was before the first of them; NaN before that. */
double *zro__optim_first_lr(zro_optim *optim, size_t group);

/* INVALID: the handle is NULL; STATE: it is sharded or has threads, and this is a forked child, which is no rank and has none.
 * */
zro_status zro__optim_check(const zro_optim *optim);
zro_status zro__optim_check_threads(const zro_optim *optim);

/* Around collective calls: whether the group of ranks, if there is one, is whole, and its lane. */
zro_status zro__optim_enter(zro_optim *optim);
zro_status zro__optim_leave(zro_optim *optim, zro_status st);

/* This rank, and how many there are: 0 of 1 without a group. */
int zro__optim_rank(const zro_optim *optim);
int zro__optim_ranks(const zro_optim *optim);

/* Adds parameter groups, in a handle that is complete but for them; `optim` is NULL if this rank has none, and `st` says why.
 * Collective over `group`, which may be NULL; on failure nothing has changed. */
zro_status zro__optim_extend(zro_optim *optim, zro_group *group, const zro_param_group *groups, size_t n_groups,
                             const zro_plan_config *plan, zro__call call, zro_status st);

/* Compares what the ranks have added: the parameters from `first` on, their groups and the settings.  Collective. */
zro_status zro__optim_compare(const zro_optim *optim, zro_group *group, size_t first, zro__call call, zro_status st);

/* Room for the norms of all parameters.  Collective. */
zro_status zro__optim_reserve_norms(zro_optim *optim);

/* The index of a slot's name among the rule's, ZRO__MASTER for masters, or -1. */
int zro__optim_find_slot(const zro_optim *optim, const char *name);

/* Says in the log who owns what. */
void zro__optim_say_plan(const zro_optim *optim);

#endif
