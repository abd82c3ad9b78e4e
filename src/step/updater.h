/* An updater: how one optimizer takes the gradients of what this rank owns to parameters on all ranks.
 *
 * Its stages are: reduce (the average over ranks; of an updater that is attached to a ddp), decide (what must be known of all
 * gradients first: norm, loss scale, whether to skip), update (the rule, by owners), publish (to all ranks).  The cycle says when
 * each of them happens, and calls them inside the group's lane.
 *
 * With a group of ranks, what one of them finds wrong is told to all before anybody has changed anything; that meeting is also what
 * owners wait for before they write where others may still read. */
#ifndef ZRO_STEP_UPDATER_H
#define ZRO_STEP_UPDATER_H

#include "base/cpu.h"
#include "optim/factors.h"
#include "optim/update.h"
#include "step/batch.h"
#include "step/claim.h"
#include "step/norms.h"
#include "step/turn.h"

/* What has become of an iteration's gradients. */
typedef enum zro__stage {
    ZRO__EMPTY,    /* there are none, or they were consumed */
    ZRO__READY,    /* each rank has its own */
    ZRO__REDUCED,  /* owners have the average */
    ZRO__AVERAGED, /* all ranks have it */
    ZRO__STEPPED   /* they were consumed during backward, and the program has not called the step yet */
} zro__stage;

typedef struct zro__updater {
    struct zro__cycle *cycle;
    struct zro__updater *next; /* in the cycle's list of attached ones */
    int is_attached;
    int32_t number;            /* attached: how many were attached before it */
    const zro__joiner *joiner; /* what its handle does in a join */
    zro__update update;
    zro__batches *publish; /* data to data */
    zro__batches *average; /* attached: gradients to gradients, by owners */
    zro__batches *fused;   /* attached: gradients to data, by owners */
    int merges;            /* all ranks share memory, and may reduce, update and publish in one pass */
    zro__norms norms;
    double clip_norm;  /* the largest norm; 0: no clipping by norm */
    double clip_type;  /* which norm that is */
    double clip_value; /* the largest value; 0: no clipping by value */
    zro_switch skips;  /* steps whose gradients are not finite are skipped */
    zro_switch scales; /* there is a loss scale */
    zro__scaler scaler;
    double norm;      /* the norm of all gradients in the last step; NaN if it was not asked for */
    uint32_t skipped; /* whether the last step was skipped */
    uint64_t n_skipped, n_steps;
    uint64_t n_active; /* parameters, or parts of them, that had a gradient in the last step */
    zro__stage stage;  /* attached: of the gradients */
    zro_overlap overlap;
    zro_status (*open)(void *optim, zro__claim *claim); /* checks an optimizer, and says what all ranks must have in common */
    void *optim;
    void *user; /* handed to the rule, unless a step has another one */

    /* The step under way, which may be made in parts, bucket by bucket: */
    zro__claim claim; /* compared when the ranks first meet */
    void *rule_user;  /* handed to the rule */
    int has_met;      /* the ranks have voted in this step, and compared their claims */
    int has_begun;    /* the rule may have changed values: the first part was made, or is being made */
    int passes;       /* over memory, besides those of reductions */
} zro__updater;

/* Takes the settings, which have been checked.  `u` is zeroed but for the cycle and update. */
void zro__updater_init(zro__updater *u, const zro_optim_config *config);
void zro__updater_free(zro__updater *u);

/* What a rank owns. */
static inline zro__shard *zro__updater_shard(const zro__updater *u)
{
    return &((zro__updater *)(uintptr_t)u)->update.shard;
}

/* Whether parameters are updated during backward, before the step; the word for a setting. */
static inline int zro__updater_overlaps(const zro__updater *u)
{
    return u->overlap != ZRO_OVERLAP_OFF;
}

const char *zro__overlap_name(zro_overlap overlap);

/* Whether a step asks for the norm of all gradients, for which norms must have been reserved; whether it asks for anything of all
 * gradients before it uses any of them. */
int zro__updater_measures_norm(const zro__updater *u);
int zro__updater_measures_first(const zro__updater *u);

/* A step begins with what this rank claims, and what the rule gets.  Local. */
void zro__updater_open(zro__updater *u, const zro__claim *claim, void *user);

/* Everything below is collective and runs inside the lane.
 *
 * step: decides and updates; owners have the average already.  reduce_and_step: the same from READY gradients, which are measured on the
 * way if anything depends on that.  fuse: reduces, updates and publishes READY gradients in one pass; not where something must be
 * known of all gradients first.  average: brings the average to all ranks.  deliver: publishes, after a step or an inspection that
 * the ranks have met over. */
zro_status zro__updater_step(zro__updater *u, zro_status st);
zro_status zro__updater_reduce_and_step(zro__updater *u, zro_status st);
zro_status zro__updater_fuse(zro__updater *u, zro_status st);
zro_status zro__updater_average(zro__updater *u);
zro_status zro__updater_deliver(zro__updater *u);
void zro__updater_begin(const zro__updater *u); /* says that from here on parameters change, until they are delivered; local */
zro_status zro__updater_publish(zro__updater *u, zro_status st);

/* A step in parts, each of which has the ranges of these lists; not where something must be known of all gradients first.
 *
 * fuse_part: reduces, updates and publishes in one pass.  step_part: updates and publishes what owners have the average of.
 * end_parts: all were made; local. */
zro_status zro__updater_fuse_part(zro__updater *u, zro__batches *fused, const zro__batches *publish, zro_status st);
zro_status zro__updater_step_part(zro__updater *u, const zro__batches *fused, zro__batches *publish, zro_status st);
void zro__updater_end_parts(zro__updater *u);

/* Clip the gradients of this rank's shard.  norm: by the norm over all shards, which is returned in *norm unless that is NULL;
 * with a negative `max` it is only measured; norms must have been reserved; outside the lane.  value: local. */
zro_status zro__updater_clip_norm(zro__updater *u, double max, double p, zro_status st, double *norm);
zro_status zro__updater_clip_value(zro__updater *u, double max);

#endif
