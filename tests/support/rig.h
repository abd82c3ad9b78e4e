/* Rigs: a model that is trained by a ddp, and the same model trained by one optimizer alone.
 *
 * Gradients are numbers that every rank can compute for all ranks, so each rank knows the average by the pure reference, and nobody
 * talks to a peer besides the ddp itself.  They are small multiples of 1/64, whose sums are exact.  A mode says where the arrays lie,
 * who consumes the gradients, and how the ddp is set. */
#ifndef RIG_H
#define RIG_H

#include "zt/zt.h"

enum { RIG_MAX = 24 };

typedef enum rig_memory {
    RIG_OWN,    /* the program's arrays */
    RIG_ONCE,   /* zro_params_alloc: data once per machine, gradients per rank */
    RIG_EACH,   /* zro_params_alloc: both per rank */
    RIG_DATA,   /* zro_params_alloc: data once per machine; gradients are the program's */
    RIG_VIEWS,  /* gradient_as_bucket_view; data is the program's */
    RIG_STAGED, /* as RIG_DATA, with stage_grads */
    RIG_MEMORIES
} rig_memory;

typedef struct rig_mode {
    rig_memory memory;
    int optimizers; /* attached ones, none to two; two divide the parameters */
    int leaves;     /* so many of the first parameters no optimizer consumes */
    double clip_norm;
    size_t bucket_bytes;
    zro_switch find_unused, static_graph;
    zro_hook_fn hook;
    zro_overlap overlap[2]; /* of each optimizer */
    zro_switch loss_scale;
} rig_mode;

typedef struct rig {
    zt_rank *t;
    zro_group *group; /* of all ranks; borrowed */
    rig_mode mode;
    size_t n;
    size_t count[RIG_MAX];
    zro_param params[RIG_MAX], alone[RIG_MAX];
    zro_ddp *ddp;
    zro_optim *optim[2], *reference[2];
    uint64_t seed;
    uint64_t iteration;                           /* that rig_gradient is asked for */
    float *sum[RIG_MAX];                          /* by parameter: size * count elements, what each rank has added up so far */
    unsigned char present[RIG_MAX][ZT_MAX_RANKS]; /* by parameter and rank */
    float *average[RIG_MAX];                      /* what it must become */
    void *blocks[5 * RIG_MAX];                    /* all arrays that the rig owns */
} rig;

/* Parameters with random values, of which rank 0 alone has the ones that count.  Collective, over `group`. */
void rig_init(rig *r, zt_rank *t, zro_group *group, rig_mode mode, const size_t *counts, size_t n, uint64_t seed);
void rig_free(rig *r); /* handles first, if they are there */

/* The ddp and the optimizers; adam, if there are any. */
void rig_create(rig *r);
zro_status rig_create_ddp(rig *r, zro_ddp **out);
zro_status rig_create_optim(rig *r, int k, zro_optim **out);
void rig_create_reference(rig *r);

/* Element k of a rank's gradient of parameter i in this iteration. */
float rig_gradient(const rig *r, int rank, size_t i, size_t k);

/* Whoever has a gradient of parameter i in this iteration, by rank: adds it to what each rank has.  write: this rank's own, as its
 * backward writes it: any thread. */
void rig_add(rig *r, size_t i, const unsigned char *uses);
void rig_write(rig *r, size_t i);

/* Whether some rank has parameter i's gradient. */
int rig_has(const rig *r, size_t i);

/* The gradients of parameters that nobody consumes, or of all: the average, and present if some rank had them. */
void rig_check_gradients(rig *r, size_t first, size_t end);

/* Steps of the optimizers alone with the average; the values of both models are equal; nobody has gradients any more. */
void rig_step_reference(rig *r);
void rig_check(const rig *r);
void rig_forget(rig *r);

/* An iteration in which all ranks have all gradients: backward begins one, up to the last grad_ready; rest ends it, and steps.  What
 * they return is what the ddp or the optimizer said; nothing is compared. */
zro_status rig_backward(rig *r);
zro_status rig_rest(rig *r);

/* Several of them, compared with the reference. */
void rig_train(rig *r, int iterations);

/* The deadline of the ddp and of the optimizers that are attached to it. */
void rig_set_timeout(rig *r, uint64_t ms);

/* A hook in the shape of PowerSGD: two reductions with work between them; the result is the average. */
zro_status rig_hook(void *user, zro_bucket *bucket);

#endif
