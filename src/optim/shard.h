/* A shard: what a rank keeps and updates, and the state beside it.
 *
 * It has the parameter groups of the optimizer, each with its values and its pieces.  A piece is what the rank owns of one
 * parameter; pieces are in the order of parameters.  A slot is one array for all pieces of a group.  It is taken when the
 * group's values first need it and stays until the end: a step allocates nothing (unless the rule itself changes a value so
 * that it needs another slot), and addresses do not change.  Single numbers ("step") are doubles beside the pieces.
 *
 * Work is divided by blocks of 1024 elements, counted piece by piece; a piece has at least one. */
#ifndef ZRO_OPTIM_SHARD_H
#define ZRO_OPTIM_SHARD_H

#include "base/memory.h"
#include "zro.h"

enum { ZRO__MASTER = ZRO_MAX_SLOTS }; /* the index of masters (f32 copies of narrower parameters), after the rule's slots */

typedef struct zro__piece {
    zro_param *param;
    size_t index;        /* the number of the parameter in the optimizer */
    size_t first, count; /* the elements of the parameter that this rank owns */
    size_t offset;       /* bytes from the beginning of each array slot of the group to the piece's elements */
    size_t master;       /* the same for the group's masters; SIZE_MAX if the piece has none */
    size_t block;        /* number of its first block, counted over all parameters of the optimizer, whoever owns them */
    const char *name;    /* the caller's copy of the parameter's name, or NULL */
    uint32_t present;    /* bit s: slot s has its first values */
    uint32_t set;        /* in a step: which of the prepared scalars hold for the piece */
    zro_dtype type;      /* the type of the rule's loop and of the slots: F32 or F64 */
    zro_dtype data_type, grad_type;
} zro__piece;

typedef struct zro__shard_group {
    double *values;      /* in the order of the rule's list */
    double *next_values; /* in a step: what the rule wants them to become */
    size_t first_index;  /* the number of the group's first parameter in the optimizer */
    double first_lr;     /* the learning rate before any schedule changed it; NaN as long as none has */
    zro__piece *pieces;
    size_t n;                       /* pieces */
    double *numbers;                /* numbers[i * rule->n_slots + s]: slot s of piece i, if that is a single number */
    size_t *blocks;                 /* blocks[i]: the shard's blocks before piece i; blocks[n]: those before the next group */
    uint64_t *active;               /* bit i: piece i has a gradient, and the step under way updates it */
    size_t bytes;                   /* size of each array slot */
    size_t master_bytes;            /* size of all masters */
    void *slots[ZRO_MAX_SLOTS + 1]; /* arrays; NULL for single numbers and for what the values have never needed */
    zro__arena arena;
} zro__shard_group;

typedef struct zro__shard {
    const zro_rule *rule; /* NULL: there is no state, and nothing is updated */
    zro__account *account;
    zro_switch masters;
    zro__shard_group **groups;
    size_t n_groups;
    size_t capacity; /* groups that the list is long enough for */
    size_t n_blocks; /* blocks of all pieces */
    size_t n_active; /* pieces for which the last scan found a gradient */
} zro__shard;

/* A range of a parameter that this rank owns, for a new group. */
typedef struct zro__owned_range {
    zro_param *param;
    size_t index, first, count;
    size_t block;     /* number of its first block, counted over all parameters of the optimizer */
    const char *name; /* or NULL; must be valid until the shard is freed */
} zro__owned_range;

/* How many blocks `count` elements make; a piece without elements counts as one block. */
size_t zro__blocks_of(size_t count);

/* Adds a group, whose parameters have indices from first_index on; on failure nothing has changed.  `values` have been
 * checked; they are copied.  In the default floating-point mode. */
zro_status zro__shard_add(zro__shard *shard, const double *values, size_t first_index, const zro__owned_range *ranges,
                          size_t n);

/* Removes the group that was added last. */
void zro__shard_drop(zro__shard *shard);

/* Takes memory for the slots that the group would need with these values, and for the slots whose bits are set in `more`. */
zro_status zro__shard_ensure(zro__shard *shard, size_t group, const double *values, uint32_t more);

/* Takes half-built shards. */
void zro__shard_free(zro__shard *shard);

/* Address of a piece's array slot (or ZRO__MASTER), NULL if there is no memory for it. */
void *zro__shard_slot(const zro__shard_group *group, const zro__piece *piece, size_t slot);

/* This rank's piece of a parameter, NULL if it has none; *group is set. */
zro__piece *zro__shard_find(const zro__shard *shard, size_t index, zro__shard_group **group);

uint64_t zro__shard_bytes(const zro__shard *shard);

/* Finds out which pieces have a gradient now.  INVALID: the gradient of one is said to be present, but its pointer is NULL.
 * The same for some of them: scan_none, then scan_one for the index of each parameter of which this rank has a piece. */
zro_status zro__shard_scan(zro__shard *shard);
void zro__shard_scan_none(zro__shard *shard);
zro_status zro__shard_scan_one(zro__shard *shard, size_t index);

static inline int zro__piece_is_active(const zro__shard_group *group, size_t i)
{
    return (group->active[i / 64] >> i % 64 & 1) != 0;
}

/* Calls fn for each active piece that has elements in the shard's blocks [first, last): they are [from, to) of the piece. */
typedef void (*zro__walk_fn)(void *ctx, zro__shard_group *group, zro__piece *piece, size_t from, size_t to);
void zro__shard_walk(const zro__shard *shard, size_t first, size_t last, zro__walk_fn fn, void *ctx);

#endif
