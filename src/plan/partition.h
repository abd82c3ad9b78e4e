/* Partitions: how parameters are divided over ranks.  Pure but for the memory that a division works in.
 *
 * A division takes the parameters of a create, or of a group that was added later; forms buckets; and then writes ranges in
 * packing order, that is, such that a rank's list is what it owns of them in this order, and that the ranges of a parameter
 * follow each other by first element.  Indices inside a division begin with 0; ranges have those of the plan. */
#ifndef ZRO_PLAN_PARTITION_H
#define ZRO_PLAN_PARTITION_H

#include "base/memory.h"
#include "zro.h"

/* What a plan knows of a parameter. */
typedef struct zro__plan_param {
    const char *name; /* or NULL; valid until the plan is destroyed or the group undone */
    size_t count;     /* elements */
    size_t group, bucket;
    size_t first_range; /* in the list of all ranges */
    zro_dtype dtype;
    int32_t device;
} zro__plan_param;

typedef struct zro__sized {
    size_t size, index;
} zro__sized;

typedef struct zro__division {
    int ranks;
    size_t first_param, first_bucket; /* the numbers that its first parameter and its first bucket have in the plan */
    zro__plan_param *params;
    size_t n;
    size_t *members; /* n: parameters, bucket after bucket */
    size_t *firsts;  /* n_buckets + 1: where each bucket begins in members */
    size_t n_buckets;
    size_t *loads; /* ranks: how many elements each rank has; each range that is written adds its own */
    zro_range *ranges;
    size_t n_ranges;

    /* Scratch memory. */
    zro__sized *sized;            /* n: what is sorted by size */
    size_t *starts;               /* n + 1: where each parameter of a bucket begins in it */
    size_t *borders, *low, *high; /* ranks + 1: see cut_stream */
    int32_t *heap;                /* ranks: the lightest first */
    int32_t *owners;              /* n: the owner of each member of the buckets */
    zro__arena arena;
} zro__division;

/* Takes memory for dividing n parameters; ranks, first_param and first_bucket have been set.  Free takes half-built ones. */
zro_status zro__division_init(zro__division *division, zro__account *account, size_t n);
void zro__division_free(zro__division *division);

/* One bucket for each type and device tag, in the order of their first parameters. */
void zro__division_form(zro__division *division);

/* An upper bound for the number of ranges that will be written. */
size_t zro__division_most(const zro__division *division, zro_partition partition);

/* Each bucket in ranks consecutive shards, cut at blocks, which differ by at most one block. */
void zro__divide_flat(zro__division *division);

/* Parameters [first, last), which are a group: largest first, each to the rank with the least load. */
void zro__divide_greedy(zro__division *division, size_t first, size_t last);

/* Whole buckets, by their number in the plan. */
void zro__divide_buckets(zro__division *division);

/* Buckets cut between parameters, in increasing size: a piece ends before the parameter with which it would reach an even share
 * of everything, and goes to the rank with the least load that has nothing of this bucket; the last one gets the rest. */
void zro__divide_pieces(zro__division *division);

/* Parameters [first, last) to the owners in the list. */
void zro__divide_given(zro__division *division, size_t first, size_t last, const int32_t *owners);

#endif
