/* The cycle: the stages that gradients go through, and at which event each of them happens.
 *
 * A ddp and the optimizers attached to it share one cycle, which works on a group of its own; an optimizer alone has one to itself.
 * Gradients become READY (backward has finished them), REDUCED (owners, or all ranks, have the average) and STEPPED (the rule has
 * been applied and all ranks have the parameters).  At which event that happens is a row of a table (rows in cycle.c):
 *
 *                                              reduced at                     updated and published at
 *   a ddp, for what no optimizer consumes      bucket ready, for all ranks    never
 *   an optimizer alone                         never                          step
 *   attached, ranks of one machine             step                           step: both in one pass over memory
 *   attached, otherwise                        bucket ready, for owners       step
 *   attached, overlap after last               bucket ready, for owners       last bucket ready
 *   attached, overlap interleaved              bucket ready                   bucket ready: both in one pass
 *
 * Otherwise: ranks of several machines, FAST off, a hook, or a rule that wants whole parameters.
 *
 * What must be known of all gradients first (norm, loss scale, skipping) comes between: then the pass that reduces also measures, and
 * a second one updates; with overlap this is at the last bucket.  A hook replaces the reduction of every bucket.
 *
 * Buckets are issued in their order on all ranks, each when it and all before it are full, on the group's lane; whichever thread
 * completes one.  What a rank finds wrong refuses the next transfer on all ranks, and with it the iteration.
 *
 * An owner says that it has begun before its first write, and that it has published when everything has arrived; in between a lost
 * rank tears the parameters.  With overlap that is from the first bucket that is updated to the last one.  If a rank refuses in
 * between, the buckets before have been updated on all ranks alike, and the others have not. */
#ifndef ZRO_STEP_CYCLE_H
#define ZRO_STEP_CYCLE_H

#include <pthread.h>
#include <stdatomic.h>

#include "step/batch.h"
#include "step/bucket.h"
#include "step/claim.h"
#include "step/turn.h"
#include "step/updater.h"

/* The last bucket is an event of its own: all others have come before it. */
typedef enum zro__event { ZRO__NEVER, ZRO__AT_BUCKET, ZRO__AT_LAST, ZRO__AT_STEP } zro__event;

typedef struct zro__row {
    const char *name; /* for texts */
    zro__event reduce, update;
} zro__row;

extern const zro__row zro__row_ddp, zro__row_alone, zro__row_one_pass, zro__row_attached, zro__row_after_last,
    zro__row_interleaved;

/* What holds for one iteration. */
typedef struct zro__iteration {
    uint64_t number;    /* iterations begun; 0: there was none */
    int is_open;        /* between forward and the end of backward */
    int syncs;          /* gradients travel in it */
    double weight;      /* of this rank in averages */
    double divisor;     /* of averages without weights; 0: the number of ranks */
    int is_shadow;      /* this rank has run out of inputs, and has no gradients */
    int has_shadows;    /* some rank does so */
    int lowest;         /* the lowest rank that is not a shadow */
    size_t refuse_from; /* from this bucket on this rank refuses; SIZE_MAX: it does not */
    zro_status refusal; /* why */
    zro_status failed;  /* OK, or what the iteration has failed with on this rank */
    size_t n_updated;   /* buckets, or shares of them, that were updated before the step */
    char text[ZRO__TEXT_BYTES];
} zro__iteration;

/* A hook: what is done with a full bucket instead of averaging it.  Runs inside the lane. */
typedef zro_status (*zro__bucket_fn)(void *user, zro__bucket *bucket);

typedef struct zro__cycle {
    atomic_int refs;
    zro_group *group; /* only this cycle uses it; NULL: there is one owner, and no ddp */
    zro__account *account;
    int depth;                 /* how often the thread that is inside has entered: a hook's calls enter once more */
    zro__fpmode mode;          /* of that thread, before it entered first */
    uint64_t begun, published; /* how many updates have begun and have been published; they differ while one is under way */

    zro__join *join;  /* or NULL */
    int32_t joinable; /* the index of the handle in the join's list */
    int is_closed;    /* the ddp, or the optimizer that it was made for, is gone */

    /* Of a ddp: */
    zro_param *params;
    const char *const *names;
    size_t n_params; /* 0: there is none */
    int weighted;
    zro__staging *staging; /* of gradients that attached updaters consume; NULL: they are not copied.  The ddp's */
    zro__bucket_fn hook;   /* or NULL */
    void *hook_user;
    zro__updater *updaters; /* attached ones */
    int32_t n_attached;     /* how many there have been, and were refused; the same on all ranks */
    size_t *order;          /* the parameters bucket after bucket */
    size_t *lengths;        /* of the buckets */
    size_t *bucket_of;      /* by parameter */
    uint8_t *awaited;       /* by parameter: its bucket waits for it in this iteration, at whose begin it was not frozen */
    zro__bucket *buckets;
    size_t n_buckets;
    zro__arena shares; /* of all buckets */
    int stale;         /* the lists of the buckets' transfers must be made anew */
    int overlaps;      /* an updater updates before its step; as of when the lists were made */
    zro__iteration now;
    pthread_mutex_t lock; /* of `next` */
    size_t next;          /* the first bucket that was not issued */
    zro__arena arena;
} zro__cycle;

/* create takes the group, which may be NULL, unless it fails.  A cycle lives until everybody has released it. */
zro_status zro__cycle_create(zro_group *group, zro__account *account, zro__cycle **out);
void zro__cycle_retain(zro__cycle *c);
void zro__cycle_release(zro__cycle *c); /* takes NULL */

/* Whether there are several ranks.  vote: they vote on `st`, which is also a barrier; one rank alone keeps its `st`. */
int zro__cycle_is_shared(const zro__cycle *c);
zro_status zro__cycle_vote(const zro__cycle *c, zro__call call, zro_status st);

/* OK, or why no step is possible any more: the verdict of the group or, if an update was not published everywhere, STATE: the
 * parameters are torn.  Local. */
zro_status zro__cycle_check(const zro__cycle *c);

/* Every call enters and leaves the cycle here: enter checks the group, takes its lane and sets the floating-point mode. */
zro_status zro__cycle_enter(zro__cycle *c, const zro__updater *u);
zro_status zro__cycle_leave(zro__cycle *c, zro_status st);

/* Until the cycle is left, what is done is done for this updater: ranks that step different optimizers of one ddp make different
 * calls.  NULL: for none.  enter does it, too.  Inside the lane. */
void zro__cycle_serve(zro__cycle *c, const zro__updater *u);

/* Under a join: the ranks' turn for a collective call, of an updater or, if that is NULL, of the ddp; `turn` needs no joinable.  A rank
 * that follows the others takes none.  Errors as in zro__join_turn. */
zro_status zro__cycle_turn(zro__cycle *c, const zro__updater *u, zro__turn turn);

/* The attached updater with this number, or NULL. */
zro__updater *zro__cycle_find(const zro__cycle *c, int32_t number);

/* An average over the ranks as this iteration makes it. */
zro__reduction zro__cycle_reduction(const zro__cycle *c, zro__call call, int to);

/* ---- what an optimizer does ---- */

/* The cycle of a ddp; NULL for NULL. */
zro__cycle *zro__cycle_of_ddp(const zro_ddp *ddp);

/* Attaches an updater whose parameters are the ddp's and whose lists are complete, or which has got more of them; a new one between iterations.  detach takes one that was
 * never attached, too; where any updater overlaps, it cancels an iteration that is open. */
void zro__cycle_attach(zro__cycle *c, zro__updater *u);
void zro__cycle_detach(zro__cycle *c, zro__updater *u);

/* The index of a parameter in the ddp's list; SIZE_MAX if it is not there. */
size_t zro__cycle_index(const zro__cycle *c, const zro_param *param);

/* The row that holds for an updater now. */
const zro__row *zro__cycle_row(const zro__cycle *c, const zro__updater *u);

/* A step.  `st` is what the caller has found already; `claim` says what all ranks must have in common.  publishes = 0: without
 * bringing the parameters to all ranks.  Collective.  Nothing has changed if it fails, unless a rank was lost.  An updater that
 * overlaps has made it already; then nothing is done, and it is local.
 *
 * STATE     the updater is attached, and there are no gradients to consume
 * MISMATCH  the ranks' claims differ */
zro_status zro__cycle_step(zro__cycle *c, zro__updater *u, const zro__claim *claim, zro_status st, void *user, int publishes);

/* Finds out where the parameters are now, votes, and publishes.  Collective. */
zro_status zro__cycle_publish(zro__cycle *c, zro__updater *u, zro_status st);

/* The gradients of an attached updater will not be consumed.  Waits for the lane. */
void zro__cycle_drop(zro__cycle *c, zro__updater *u);

/* Whether an optimizer may be used and changed, as far as an update on the lane is concerned: STATE if it overlaps, and an iteration is
 * open.  after_step: also between its end and the step.  Local. */
zro_status zro__cycle_check_idle(const zro__updater *u, const char *call, int after_step);

/* Whether gradients are what a rule would get: STATE with an attached updater before they are averaged. */
zro_status zro__cycle_check_reduced(const zro__updater *u, const char *call);

/* ---- what a ddp does ---- */

/* Gives the cycle its parameters, which must outlive it, and its buckets: `order` has the indices bucket after bucket.  form may be
 * called again between iterations.  Local. */
zro_status zro__cycle_form(zro__cycle *c, zro_param *params, const char *const *names, size_t n, const size_t *order,
                           const size_t *lengths, size_t n_buckets);

/* This rank leaves in the middle of an iteration, if one is open: the others, who wait for its buckets, are told that it destroyed
 * `what`.  Local. */
void zro__cycle_cancel(zro__cycle *c, const char *what);

/* The ddp is gone: waits for what is under way, and forgets its parameters.  Attached updaters can only be asked from now on. */
void zro__cycle_close(zro__cycle *c);

/* Whether an iteration can begin: the verdict of a group that is broken; STATE if an iteration is under way, or the gradients of the
 * last were not consumed.  Local. */
zro_status zro__cycle_check_open(const zro__cycle *c);

/* An iteration begins, after its turn.  Of a shadow no gradient is present, and its weight is 0.  Collective if it syncs. */
zro_status zro__cycle_open(zro__cycle *c, int syncs, double weight);

/* Parameter i is ready.  Any thread; local. */
zro_status zro__cycle_ready(zro__cycle *c, size_t i);

/* Everything that is not ready is absent, or, if `st` is not OK, the reason why this rank refuses.  Waits for all buckets; returns
 * what the iteration has failed with. */
zro_status zro__cycle_end(zro__cycle *c, zro_status st);

/* The average on all ranks, of what attached updaters have not consumed yet.  Collective. */
zro_status zro__cycle_average(zro__cycle *c);

#endif
