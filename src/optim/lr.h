/* Learning-rate schedules as numbers: arguments, a state, the first and the present lr in; the next lr out.
 *
 * Most kinds are recursive, as PyTorch's are: the next lr is the present one times a factor, so that several schedules and a
 * program's own changes multiply up.  The closed forms would forget them.
 *
 * A state begins at t = 0 (zro__schedule_begin), where lr is asked for once, and then goes on one step at a time
 * (zro__schedule_next), where it is asked for again.  Lambda, chained and sequential have no numbers of their own here but the
 * count of steps; zero/schedule.c, which has the handles, does them. */
#ifndef ZRO_OPTIM_LR_H
#define ZRO_OPTIM_LR_H

#include "base/bounds.h"
#include "zro.h"

typedef enum zro__schedule_kind {
    ZRO__SCHEDULE_STEP_LR,
    ZRO__SCHEDULE_MULTI_STEP,
    ZRO__SCHEDULE_EXPONENTIAL,
    ZRO__SCHEDULE_POLYNOMIAL,
    ZRO__SCHEDULE_COSINE,
    ZRO__SCHEDULE_COSINE_RESTARTS,
    ZRO__SCHEDULE_LINEAR,
    ZRO__SCHEDULE_CONSTANT,
    ZRO__SCHEDULE_ONE_CYCLE,
    ZRO__SCHEDULE_PLATEAU,
    ZRO__SCHEDULE_LAMBDA,
    ZRO__SCHEDULE_CHAINED,
    ZRO__SCHEDULE_SEQUENTIAL
} zro__schedule_kind;

/* The kind and its arguments, by their names in zro.h; those of other kinds are not read. */
typedef struct zro__schedule_args {
    zro__schedule_kind kind;
    uint64_t step_size, total_iters, t_max, t_0, t_mult;
    double gamma, power, eta_min, factor, start_factor, end_factor;
    const uint64_t *milestones; /* borrowed, never decreasing */
    size_t n_milestones;
    zro_one_cycle_config one_cycle;
    zro_plateau_config plateau;
    zro_lr_fn fn; /* of a lambda schedule, which zero/schedule.c calls */
    void *user;
} zro__schedule_args;

/* How a schedule comes to t = 0, which PyTorch computes in three ways. */
typedef enum zro__schedule_start {
    ZRO__START_MADE,    /* it has just been made: factors per step begin with the next step */
    ZRO__START_ANEW,    /* its turn in a sequence has come: the closed form, at the first lr */
    ZRO__START_STEPPED, /* it is in a combination that begins a sequence, and is stepped to get there: factors count */
} zro__schedule_start;

typedef struct zro__schedule_state {
    uint64_t t;                /* steps so far */
    uint64_t t_cur;            /* cosine_restarts: steps since the last restart */
    uint64_t t_i;              /* cosine_restarts: steps from the last restart to the next */
    double best;               /* plateau: the best metric so far */
    uint64_t bad;              /* plateau: how many steps in a row were not better */
    uint64_t cooldown;         /* plateau: for how many more steps bad ones are not counted */
    int reduce;                /* plateau: this step makes lr smaller */
    zro__schedule_start start; /* read at t = 0 alone */
} zro__schedule_state;

/* As in the calls' names: "step_lr", ... */
const char *zro__schedule_name(zro__schedule_kind kind);

/* The i-th argument of the schedule's kind, milestones aside: its name, its value and the interval that it must lie in.  0: the
 * kind has fewer. */
int zro__schedule_argument(const zro__schedule_args *args, size_t i, zro__bound *out);

/* INVALID with the argument's name and value. */
zro_status zro__schedule_check(const zro__schedule_args *args);

/* The state of a schedule that has just been made. */
void zro__schedule_begin(const zro__schedule_args *args, zro__schedule_state *state);

/* One step on; `metric` is plateau's.  STATE, and nothing has changed, if one_cycle is over. */
zro_status zro__schedule_next(const zro__schedule_args *args, zro__schedule_state *state, double metric);

/* The lr that a state which has just begun or gone on brings; `base` is the group's first lr, `lr` the present one. */
double zro__schedule_lr(const zro__schedule_args *args, const zro__schedule_state *state, double base, double lr);

/* one_cycle's momentum. */
double zro__schedule_momentum(const zro__schedule_args *args, const zro__schedule_state *state);

/* How many milestones have been reached at t; in a sequential schedule, the index of the schedule that is in charge. */
size_t zro__schedule_reached(const zro__schedule_args *args, uint64_t t);

#endif
