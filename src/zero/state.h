/* The container of an optimizer's state, for those who fill it: consolidate, the reader of files, the broadcast.
 *
 * Groups hold values and, one after another, parameters; parameters hold slots.  A slot is first announced (planned), which
 * costs some dozen bytes; zro__state_take then gives memory to all slots that have none yet, in one block.  A slot's bytes
 * never move: slots that are added later get blocks of their own.  In the order in which they were announced, each rounded up
 * to 64 bytes, slots are one sequence of bytes however many blocks there are; that is what the broadcast sends.
 *
 * Nothing here is quadratic in the number of groups, parameters or slots of the state; a group's values and a parameter's slots
 * are searched one by one, and limited in number. */
#ifndef ZRO_ZERO_STATE_H
#define ZRO_ZERO_STATE_H

#include "zro.h"

enum {
    ZRO__STATE_NAME_BYTES = 512, /* of a name, without the 0 */
    ZRO__STATE_MAX_SLOTS = 64,   /* of a parameter */
    ZRO__STATE_MAX_VALUES = 256, /* of a group */
    ZRO__STATE_ALIGN = 64
};

#define ZRO__STATE_NONE SIZE_MAX

typedef struct zro__state_value {
    const char *name;
    double value;
    zro_hyper_kind kind; /* FLAG: 0 or 1, true or false in a file */
} zro__state_value;

typedef struct zro__state_group {
    size_t first, n; /* parameters */
    zro__state_value *values;
    size_t n_values, room;
} zro__state_group;

typedef struct zro__state_slot {
    const char *name;
    void *data; /* NULL until taken */
    size_t count, bytes;
    size_t next; /* of the same parameter, or NONE */
    zro_dtype dtype;
    uint32_t single; /* a number for the parameter, and not an array of its shape that has one element */
} zro__state_slot;

typedef struct zro__state_param {
    const char *name; /* NULL: its index */
    size_t shape[ZRO_MAX_DIMS];
    size_t count;
    size_t first_slot, last_slot; /* or NONE */
    uint32_t n_dims, n_slots;
    zro_dtype dtype, grad_dtype;
} zro__state_param;

/* Bytes of slots that were taken together. */
typedef struct zro__state_block {
    struct zro__state_block *next;
    char *data;
    size_t used, bytes;
} zro__state_block;

typedef struct zro__state_texts zro__state_texts;

struct zro_state {
    const char *rule;      /* "": there is none */
    const zro_rule *table; /* the library's rule of that name, or NULL */
    zro_progress progress;
    zro__state_group *groups;
    zro__state_param *params;
    zro__state_slot *slots; /* of all parameters, as they were announced */
    size_t n_groups, n_params, n_slots;
    size_t groups_room, params_room, slots_room;
    size_t n_taken;       /* slots that have data: the first ones */
    size_t extent, taken; /* bytes of all slots and of those, rounded */
    uint64_t bytes;       /* of all slots, not rounded */
    zro__state_block *first_block, *last_block;
    zro__state_texts *texts;
    const char *recent[16]; /* names that were used lately: most of them come again */
    unsigned next_recent;
};

/* What every call on a state begins with.  STATE: this rank has none. */
zro_status zro__state_check(const zro_state *state);

/* Whether a value of this name says how PyTorch computes, which means nothing here: foreach, fused, and the like. */
int zro__state_is_ignored(const char *name);

/* zro_state_set_value of a kind that the caller knows. */
zro_status zro__state_set_value(zro_state *state, size_t group, const char *name, double value, zro_hyper_kind kind);

/* Announces a slot.  Checks the same as zro_state_add_slot.  Whether one that has one element of a parameter that has one is
 * a single number says the rule's table; set_single overrules it for the slot announced last. */
zro_status zro__state_plan_slot(zro_state *state, size_t param, const char *slot, zro_dtype dtype, size_t count);
void zro__state_set_single(zro_state *state, int single);

/* Gives zeroed memory to all slots that were announced since the last time. */
zro_status zro__state_take(zro_state *state);

/* The i-th slot of a parameter; NULL if there is none.  data: its bytes, NULL before they were taken. */
zro__state_slot *zro__state_slot_at(const zro_state *state, size_t param, size_t i);
void *zro__state_data(const zro_state *state, size_t param, size_t i);

#endif
