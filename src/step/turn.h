/* Turns: how ranks that have run out of inputs follow the others.
 *
 * Nobody knows beforehand how many inputs a rank has.  So under a join every collective call on one of its handles begins with a
 * turn: on a group of the join's own, each rank says what it is about to do, or that it has run out.  The ranks that go on must say
 * the same; the others then do that, too, with nothing of their own to add: they shadow.  So a rank that has run out takes part in
 * everything, in the order in which the others do it, and still owns, reduces and updates what it owned before.  When all have run
 * out the join is over.
 *
 * Each rank also says which optimizers are attached to the ddps of the join, since all of them take part in every iteration and in the
 * end of the join.  One that only some ranks have destroyed is found in the next turn.
 *
 * What a rank may change by itself between two calls (values of parameter groups, loss scale, requires_grad) shadows take from the
 * lowest rank that is active. */
#ifndef ZRO_STEP_TURN_H
#define ZRO_STEP_TURN_H

#include "zro.h"

/* What a rank is about to do. */
typedef enum zro__deed {
    ZRO__RAN_OUT, /* whatever the others do */
    ZRO__FORWARD, /* of a ddp, and backward with it */
    ZRO__AVERAGE,
    ZRO__STEP,    /* from here on of an optimizer */
    ZRO__CLOSURE, /* the vote on one, before a step that was made during backward */
    ZRO__STEP_LOCAL,
    ZRO__PUBLISH,
    ZRO__CLIP_NORM,
    ZRO__MEASURE_NORM,
    ZRO__CLIP_VALUE,
    ZRO__NOTIFY, /* of a joinable of the program's own */
    ZRO__REFUSE, /* nothing: its iteration is wrong, and the others' next call fails with the reason */
    ZRO__OTHER   /* something that only all ranks can do together */
} zro__deed;

typedef struct zro__turn {
    zro__deed deed;
    int32_t joinable;  /* the index of the handle in the list of the join */
    int32_t updater;   /* of an attached optimizer its number; -1: of none */
    int32_t syncs;     /* FORWARD: gradients travel */
    double numbers[2]; /* CLIP_NORM, CLIP_VALUE: the largest norm, or value; CLIP_NORM, MEASURE_NORM: which norm that is */
    uint64_t attached; /* a hash of the attached optimizers that this rank has not destroyed; set by the turn */
} zro__turn;

#define ZRO__TURN_OF_ALL ((zro__turn){ .deed = ZRO__OTHER })

/* What the handles of a join know about it. */
typedef struct zro__join {
    zro_group *group;           /* a duplicate of the one that the joinables have */
    struct zro__cycle **cycles; /* per joinable: of a handle of the library, retained; NULL: it is the program's own */
    size_t n;                   /* joinables */
    zro__turn *turns;           /* of all ranks, in the last exchange */
    int throws;                 /* the first rank that runs out is an error on all */
    int divides_by_rest;        /* averages are divided by the number of active ranks */
    int is_under_way;           /* ranks have begun to train since the join began, or began anew */
    int follows;                /* this rank is doing what the last turn said, and takes no other turn meanwhile */
    int is_active;              /* whether this rank was active in the last turn in which any rank was */
    int n_active;               /* how many ranks were, in the last turn */
    int lowest, highest;        /* the lowest and the highest of them; of the last that there were */
    uint64_t n_begun;           /* iterations that the first joinable has begun */
    uint64_t n_shadowed;        /* how many of them this rank has shadowed */
} zro__join;

/* What a handle of the library does in a join. */
typedef struct zro__joiner {
    const char *kind;                                          /* "ddp", "optimizer": for texts */
    struct zro__cycle *(*cycle)(void *handle);                 /* that it works on */
    zro_status (*follow)(void *handle, const zro__turn *turn); /* does what the others do */
    zro_status (*finish)(void *handle, int root);              /* all ranks get what root has */
} zro__joiner;

/* One turn: *out is what is done.  Collective.
 *
 * STATE     this rank is in the middle of an iteration that syncs, where ranks that have run out would not come to the turn: local; or a
 *           rank has run out, and that ends the join, or only all ranks can do this together
 * MISMATCH  the ranks are about to do different things, or only some of them have destroyed an attached optimizer; on all ranks
 * PEER      another rank refuses the iteration that *out names: nothing is done */
zro_status zro__join_turn(zro__join *join, const zro__turn *mine, zro__turn *out);

/* A turn in which this rank refuses the iteration of a joinable with `st`.  Collective with the others' next turn.  Returns `st`,
 * unless a rank was lost. */
zro_status zro__join_refuse(zro__join *join, int32_t joinable, zro_status st);

/* Whether some rank shadows in what the last turn said. */
int zro__join_has_shadows(const zro__join *join);

#endif
