/* A course: parameters under a ddp and an optimizer in one of several modes, and beside them what must come out.
 *
 * Gradients follow from (seed, rank, batch) alone, so every rank computes what the others have.  The pure reference averages them, and
 * an optimizer that is not sharded applies the averages to a copy of the parameters.  Whatever the mode, the course's parameters and that
 * copy have equal bits after every step. */
#ifndef COURSE_H
#define COURSE_H

#include "zt/zt.h"

enum { COURSE_MAX = 12, COURSE_RANKS = 8, COURSE_ELEMENTS = 2200 };

typedef enum course_mode {
    COURSE_ALONE,    /* the optimizer is neither sharded nor attached */
    COURSE_SHARDED,  /* sharded, and not attached */
    COURSE_IN_PLACE, /* attached; all arrays are the program's */
    COURSE_HANDED,   /* attached; zro handed out data and gradients */
    COURSE_VIEWS,    /* attached; gradient_as_bucket_view */
    COURSE_HOOK,     /* attached; a hook averages */
    COURSE_MODES
} course_mode;

typedef struct course {
    zt_rank *t;
    course_mode mode;
    size_t n;
    zro_param params[COURSE_MAX], copy[COURSE_MAX]; /* the course's own, and those of the reference */
    zro_ddp_config config; /* of the ddp; buckets of 1 KiB unless a test sets others before course_create */
    zro_ddp *ddp;
    zro_optim *optim, *reference;
    int batch;                                    /* the next one's number */
    size_t order[COURSE_MAX];                     /* in which gradients become ready: at first from the last to the first */
    unsigned char uses[COURSE_RANKS][COURSE_MAX]; /* what the next batch of a rank uses; at first everything */
    int samples[COURSE_RANKS];          /* how many a rank's batch has, of which its gradient is the average; at first 1 */
    unsigned char joined[COURSE_RANKS]; /* 1: the rank has run out of inputs: it has no gradients and no weight */
    int divides_by_rest;                /* averages are divided by the number of the ranks that have not */
    unsigned char has[COURSE_RANKS][COURSE_MAX]; /* gradients since the last step */
    void *sum[COURSE_RANKS][COURSE_MAX];
    void *memory;
} course;

/* n parameters; of the course's own only rank 0 has values until course_create.  config may be changed in between.  Collective. */
void course_init(course *r, zt_rank *t, course_mode mode, size_t n);

/* The ddp, and optimizers made with "rule name=value ..."; `config` may be NULL, and its ddp is the mode's.  Collective. */
void course_create(course *r, const char *setting, const zro_optim_config *config);
void course_free(course *r);

int course_attaches(const course *r);

/* The value of a sample's gradient: in [-1, 1). */
double course_sample(const course *r, int rank, int batch, int sample, size_t param, size_t element);

/* The parts of an iteration.  batch: computes the gradients of the next batch on top of those that are there; ready: says so of all
 * that this rank uses, in order; expect: gives the copy the average. */
void course_batch(course *r);
void course_ready(course *r);
void course_expect(course *r);

/* forward, batch, ready and backward_end. */
void course_backward(course *r);

/* A step of both optimizers and the check; the gradients of both are absent then. */
void course_step(course *r);

/* course_backward, course_expect and course_step, so many times. */
void course_train(course *r, int iterations);

/* Equal bits of all values, and of this rank's part of all slots. */
void course_check(const course *r);

#endif
