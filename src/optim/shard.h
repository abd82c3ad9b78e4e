/* A shard: what a rank keeps and updates, and the state beside it.
 *
 * It has the parameter groups of the optimizer, each with its values and with pieces: runs of elements of one parameter, in the
 * order of parameters.  A slot is one array for all pieces of a group, taken when the group's values first need it, and then
 * there until the end: a step allocates nothing (unless the rule itself makes a value need more), and addresses stay.  Single
 * numbers ("step") are doubles beside the pieces.
 *
 * Blocks of 1024 elements, counted piece by piece, are what work is divided by; a piece has at least one. */
#ifndef ZRO_OPTIM_SHARD_H
#define ZRO_OPTIM_SHARD_H

#include "base/memory.h"
#include "zro.h"

enum { ZRO__MASTER = ZRO_MAX_SLOTS }; /* the slot behind the rule's own */

typedef struct zro__piece {
    zro_param *param;
    size_t index;        /* of the parameter in the optimizer */
    size_t first, count; /* elements */
    size_t offset;       /* bytes: of its part of the group's slots */
    size_t master;       /* of its part of the group's masters; SIZE_MAX: it has none */
    size_t block;     /* its first one among the blocks of all parameters, whoever owns them: where its part of a norm stands */
    const char *name; /* the caller's copy, or NULL */
    uint32_t present; /* bits: slots that have begun */
    uint32_t set;     /* which of the prepared scalars are for it, in a step */
    zro_dtype type;   /* of the rule's loop and of slots: F32 or F64 */
    zro_dtype data_type, grad_type;
} zro__piece;

typedef struct zro__part_group {
    double *values;
    size_t first_index; /* of its parameters */
    double first_lr;    /* before any schedule changed it; NaN: none has */
    zro__piece *pieces;
    size_t n;
    double *numbers;            /* n times the rule's number of slots */
    size_t *blocks;             /* n + 1: blocks before each piece, from the shard's first on */
    uint64_t *active;           /* bits: pieces that the step under way updates */
    size_t bytes, master_bytes; /* of an array slot; of masters */
    void *slots[ZRO_MAX_SLOTS + 1];
    zro__arena arena;
} zro__part_group;

typedef struct zro__shard {
    const zro_rule *rule; /* or NULL: no state, nothing is updated */
    zro__account *account;
    zro_switch masters;
    zro__part_group **groups;
    size_t n_groups, room;     /* room: for groups in the list */
    size_t n_blocks, n_active; /* active: pieces that the last look found a gradient for */
} zro__shard;

/* A run of elements for a new group. */
typedef struct zro__run_of {
    zro_param *param;
    size_t index, first, count;
    size_t block;     /* the first one's number among those of all parameters */
    const char *name; /* or NULL; stays until the shard is freed */
} zro__run_of;

/* How many blocks so many elements are; a parameter without elements counts as one. */
size_t zro__blocks_of(size_t count);

/* Adds a group, whose parameters have indices from first_index on; on failure nothing has changed.  `values` have been
 * checked; they are copied.  In the default floating-point mode. */
zro_status zro__shard_add(zro__shard *shard, const double *values, size_t first_index, const zro__run_of *runs, size_t n);

/* Removes the group that was added last. */
void zro__shard_drop(zro__shard *shard);

/* Takes memory for the slots that the group would need with these values, and for those of the bits besides. */
zro_status zro__shard_ensure(zro__shard *shard, size_t group, const double *values, uint32_t more);

/* Takes half-built ones. */
void zro__shard_free(zro__shard *shard);

/* Address of a piece's array slot (or ZRO__MASTER), NULL if there is no memory for it. */
void *zro__shard_slot(const zro__part_group *group, const zro__piece *piece, size_t slot);

/* This rank's piece of a parameter, NULL if it has none; *group is set. */
zro__piece *zro__shard_find(const zro__shard *shard, size_t index, zro__part_group **group);

uint64_t zro__shard_bytes(const zro__shard *shard);

/* Which pieces have a gradient now.  INVALID, before anything has changed: one that is said to be there has a NULL pointer. */
zro_status zro__shard_look(zro__shard *shard);

static inline int zro__piece_is_active(const zro__part_group *group, size_t i)
{
    return (group->active[i / 64] >> i % 64 & 1) != 0;
}

/* Calls fn for the elements [from, to) of active pieces in the blocks [first, last); block is the number of the first of
 * them. */
typedef void (*zro__walk_fn)(void *ctx, zro__part_group *group, zro__piece *piece, size_t from, size_t to, size_t block);
void zro__shard_walk(const zro__shard *shard, size_t first, size_t last, zro__walk_fn fn, void *ctx);

#endif
