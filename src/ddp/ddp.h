/* The zro_ddp handle, for the modules that make it up.
 *
 * ddp.c makes, compares and destroys it; iteration.c is what a program calls in its loop; hooked.c lets a hook work on a full bucket;
 * join.c lets ranks that have run out of inputs follow the others.
 * The work itself is the cycle's (step/cycle.h): a ddp tells it what happens, and decides what is allowed. */
#ifndef ZRO_DDP_DDP_H
#define ZRO_DDP_DDP_H

#include <stdatomic.h>

#include "base/memory.h"
#include "step/cycle.h"
#include "step/place.h"
#include "zro.h"

struct zro_ddp {
    zro__cycle *cycle; /* first: zro__cycle_of_ddp relies on it */
    zro_group *group;  /* the cycle's: a duplicate of the one that was given */
    zro__account *account;
    zro_ddp_config config;
    zro_param *params; /* the program's */
    size_t n;
    const char **names; /* by parameter: a copy of its name, or NULL */
    void **handed;      /* by parameter: where its gradient must stay, because zro handed it out; NULL: anywhere */
    zro_param *buffers; /* copies of the program's */
    size_t n_buffers;   /* of the model */
    size_t *limits;     /* of buckets, in bytes */
    size_t n_limits;
    zro__views *views;  /* of gradients, or NULL */
    zro_switch no_sync; /* for the next forward */
    double weight;      /* of this rank, for the next forward */
    int has_ended; /* 1: the last iteration synced, and has ended well on this rank; whether it did so on all, its step says */
    uint64_t n_synced; /* iterations that synced and ended well on all ranks, as of the last forward: the same on all of them */
    int leader;        /* the rank whose first iteration counts */
    int regrouped;     /* 1: buckets were formed in the order in which gradients became ready */
    atomic_uint *seen; /* by parameter: how often it became ready in this iteration */
    uint8_t *earlier;  /* by parameter: it became ready in one of the micro-batches since the last iteration that synced */
    uint32_t *learned; /* static graph, by parameter: how often it becomes ready in every iteration */
    size_t *ready;     /* the parameters in the order in which they became ready in the first iteration that syncs */
    atomic_size_t n_ready;
    zro_hook_fn hook; /* or NULL */
    void *hook_user;
    char *packed;      /* with a hook: memory for the largest bucket */
    size_t *first;     /* with a hook: the offsets of a bucket's gradients */
    uint8_t *any;      /* with a hook: which of a bucket's gradients some rank has */
    zro__arena hooked; /* these three */
    zro__arena arena;
};

/* INVALID: the handle is NULL; STATE: this is a forked child, which is no rank. */
zro_status zro__ddp_check(const zro_ddp *ddp, const char *call);

/* Forms buckets anew: in this order (NULL: as they are given, and the list reversed).  Between iterations; local. */
zro_status zro__ddp_form(zro_ddp *ddp, const size_t *order);

/* Brings root's buffers, or its parameters and buffers, to all ranks.  Collective, inside the lane. */
zro_status zro__ddp_send_buffers(zro_ddp *ddp, int root);
zro_status zro__ddp_send_values(zro_ddp *ddp, zro__call call, int root);

/* A whole iteration of a rank that has run out of inputs.  Collective, as far as the others' forward and backward are. */
zro_status zro__ddp_shadow(zro_ddp *ddp, int syncs);

/* Takes the memory that the hook needs for the buckets as they are.  Local. */
zro_status zro__ddp_prepare_hook(zro_ddp *ddp);

/* What the cycle calls for a full bucket: lets the hook work on it.  Collective, inside the lane. */
zro_status zro__ddp_run_hook(void *user, zro__bucket *bucket);

#endif
