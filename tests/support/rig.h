/* A rig: parameters under a ddp and an optimizer in one of several modes, and beside them what must come out.
 *
 * Gradients follow from (seed, rank, batch) alone, so every rank computes what the others have.  The pure reference averages them, and
 * an optimizer that is not sharded applies the averages to a copy of the parameters.  Whatever the mode, the rig's parameters and that
 * copy have equal bits after every step. */
#ifndef RIG_H
#define RIG_H

#include "zt/zt.h"

enum { RIG_MAX = 12, RIG_RANKS = 8, RIG_ELEMENTS = 2200 };

typedef enum rig_mode {
    RIG_ALONE,    /* the optimizer is neither sharded nor attached */
    RIG_SHARDED,  /* sharded, and not attached */
    RIG_IN_PLACE, /* attached; all arrays are the program's */
    RIG_HANDED,   /* attached; zro handed out data and gradients */
    RIG_VIEWS,    /* attached; gradient_as_bucket_view */
    RIG_HOOK,     /* attached; a hook averages */
    RIG_MODES
} rig_mode;

typedef struct rig {
    zt_rank *t;
    rig_mode mode;
    size_t n;
    zro_param params[RIG_MAX], copy[RIG_MAX]; /* the rig's own, and those of the reference */
    zro_ddp_config config;                    /* of the ddp; buckets of 1 KiB unless a test sets others before rig_create */
    zro_ddp *ddp;
    zro_optim *optim, *reference;
    int batch;                              /* the next one's number */
    size_t order[RIG_MAX];                  /* in which gradients become ready: at first from the last to the first */
    unsigned char uses[RIG_RANKS][RIG_MAX]; /* what the next batch of a rank uses; at first everything */
    int samples[RIG_RANKS];                 /* how many a rank's batch has, of which its gradient is the average; at first 1 */
    unsigned char has[RIG_RANKS][RIG_MAX];  /* gradients since the last step */
    void *sum[RIG_RANKS][RIG_MAX];
    void *memory;
} rig;

/* n parameters; of the rig's own only rank 0 has values until rig_create.  config may be changed in between.  Collective. */
void rig_init(rig *r, zt_rank *t, rig_mode mode, size_t n);

/* The ddp, and optimizers made with "rule name=value ..."; `config` may be NULL, and its ddp is the mode's.  Collective. */
void rig_create(rig *r, const char *setting, const zro_optim_config *config);
void rig_free(rig *r);

int rig_attaches(const rig *r);

/* The value of a sample's gradient: in [-1, 1). */
double rig_sample(const rig *r, int rank, int batch, int sample, size_t param, size_t element);

/* The parts of an iteration.  batch: computes the gradients of the next batch on top of those that are there; ready: says so of all
 * that this rank uses, in order; expect: gives the copy the average. */
void rig_batch(rig *r);
void rig_ready(rig *r);
void rig_expect(rig *r);

/* forward, batch, ready and backward_end. */
void rig_backward(rig *r);

/* A step of both optimizers and the check; the gradients of both are absent then. */
void rig_step(rig *r);

/* rig_backward, rig_expect and rig_step, so many times. */
void rig_train(rig *r, int iterations);

/* Equal bits of all values, and of this rank's part of all slots. */
void rig_check(const rig *r);

#endif
