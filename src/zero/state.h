/* The container of an optimizer's state, for those who fill it: consolidate, the reader of files, the broadcast.
 *
 * Flat tables: groups, the values of all groups, the parameters of all groups one after another, the slots of all parameters;
 * and schedules, their numbers, the program's numbers.  Rows refer to each other by index and to names by offset, so the tables
 * and the text are the state's one description: a broadcast sends them as they are, and files are written by walking through
 * them.  The values of a group, and the slots of a parameter, are lists of rows in the order in which they were added.
 *
 * The data of a parameter is a row of the slots without a name, which is in no list of slots, so that it gets
 * memory, travels and is written as slots are.  A schedule is a
 * row for itself, followed by those of the schedules that it has taken over, and its numbers are rows that follow each other
 * (state_numbers.c).
 *
 * A slot is first announced (planned), which costs some dozen bytes; zro__state_take then gives memory to all slots that have
 * none yet, in one block.  A slot's bytes never move: slots that are added later get blocks of their own.  In the order in
 * which they were announced, each rounded up to 64 bytes, slots are one sequence of bytes however many blocks there are; that
 * is what the broadcast sends.
 *
 * Nothing here is quadratic in the number of groups, parameters or slots of the state; a group's values and a parameter's slots
 * are searched one by one, and limited in number. */
#ifndef ZRO_ZERO_STATE_H
#define ZRO_ZERO_STATE_H

#include "base/param.h"
#include "zro.h"

enum {
    ZRO__STATE_NAME_BYTES = 512,     /* the longest name, without the 0 at its end */
    ZRO__STATE_MAX_SLOTS = 64,       /* the most slots of a parameter */
    ZRO__STATE_MAX_VALUES = 256,     /* the most values of a group */
    ZRO__STATE_ALIGN = 64,           /* each slot begins at a multiple of this many bytes */
    ZRO__STATE_TEXT_BYTES = 64 << 10 /* the size of a block of text */
};

#define ZRO__STATE_NONE SIZE_MAX /* no row, or no name */

/* Rows of a table that belong together, each of which knows the next. */
typedef struct zro__state_list {
    size_t first, last; /* numbers of rows, NONE in an empty list */
    size_t n;           /* how many rows the list has */
} zro__state_list;

typedef struct zro__state_group {
    size_t first, n; /* its parameters are n rows of their table, from `first` on */
    zro__state_list values;
} zro__state_group;

typedef struct zro__state_value {
    size_t name;  /* where the name begins in the text, as for all names */
    size_t group; /* the group whose value it is */
    size_t next;  /* the next value of the same group, or NONE */
    double value;
    zro_hyper_kind kind; /* ZRO_FLAG: the value is 0 or 1, which a file writes as false or true */
} zro__state_value;

typedef struct zro__state_param {
    size_t name; /* NONE: the parameter is called by its index */
    size_t shape[ZRO_MAX_DIMS];
    size_t count; /* elements */
    zro__state_list slots;
    size_t data; /* the row of its data in the table of slots, or NONE */
    uint32_t n_dims;
    zro_dtype dtype, grad_dtype;
    uint32_t has_data; /* while a file is read it may still be without a row */
} zro__state_param;

typedef struct zro__state_slot {
    size_t name;  /* NONE: it is the data of the parameter */
    size_t param; /* the parameter whose slot it is */
    size_t next;  /* the next slot of the same parameter, or NONE */
    size_t count, bytes;
    void *data; /* NULL until zro__state_take gives it memory */
    zro_dtype dtype;
    uint32_t single; /* it is one number for the whole parameter, and not an array of the parameter's shape */
} zro__state_slot;

/* A number by its name: of a schedule, or of the program. */
typedef struct zro__state_number {
    size_t name;
    double value;
} zro__state_number;

/* A schedule, or one that another schedule has taken over: then it comes after that one and its earlier children. */
typedef struct zro__state_schedule {
    size_t kind; /* where the name of its kind begins in the text */
    size_t n_children;
    size_t first, n; /* its numbers are n rows of their table, from `first` on */
} zro__state_schedule;

/* Memory of slots that got it together. */
typedef struct zro__state_block {
    struct zro__state_block *next;
    char *data; /* follows the block */
    size_t used, bytes;
} zro__state_block;

/* The tables of a state. */
typedef enum zro__state_table {
    ZRO__STATE_GROUPS,
    ZRO__STATE_VALUES,
    ZRO__STATE_PARAMS,
    ZRO__STATE_SLOTS,
    ZRO__STATE_SCHEDULES,
    ZRO__STATE_POSITIONS,
    ZRO__STATE_NUMBERS,
    ZRO__STATE_TEXTS,
    ZRO__STATE_TABLES /* how many there are */
} zro__state_table;

struct zro_state {
    size_t rule;           /* where the rule's name begins in the text; it is empty for a state without a rule */
    const zro_rule *table; /* the library's rule of that name, or NULL */
    zro_progress progress;
    zro__state_group *groups;
    zro__state_value *values; /* of all groups */
    zro__state_param *params;
    zro__state_slot *slots; /* of all parameters, in the order in which they were announced */
    zro__state_schedule *schedules;
    zro__state_number *positions; /* numbers of all schedules */
    zro__state_number *numbers;   /* the program's */
    char **texts;                 /* blocks of names, which never move: a name that was handed out is valid until destroy */
    size_t n_groups, n_values, n_params, n_slots, n_schedules, n_positions, n_numbers, n_texts, n_blocks;
    size_t capacity[ZRO__STATE_TABLES]; /* for how many rows each table has memory */
    size_t text_end;                    /* where the next name will begin */
    size_t n_taken;                     /* how many slots have memory; these are the first ones */
    size_t extent, taken;               /* bytes of all slots, and of those that have memory, each slot rounded up to ALIGN */
    uint64_t bytes;                     /* of all slots, without rounding */
    zro__state_block *first_block, *last_block;
};

/* The check that every call on a state begins with.  STATE: the handle is NULL, so this rank has no state. */
zro_status zro__state_check(const zro_state *state);

/* The text of a name; NULL for NONE. */
const char *zro__state_text(const zro_state *state, size_t name);

/* A parameter of a state in texts. */
#define ZRO__STATE_PARAM_NAME(state, index) ZRO__PARAM_NAME(zro__state_text(state, (state)->params[index].name), index)

/* Whether this can be a name: UTF-8, not empty, not too long.  `what` says in texts whose name it is.  copy: keeps a name that
 * can be one, for as long as the state lives. */
zro_status zro__state_check_name(const char *what, const char *name);
zro_status zro__state_copy_name(zro_state *state, const char *name, size_t *out);

/* Adds an empty block to the text. */
zro_status zro__state_add_text(zro_state *state);

/* Adds n rows to the end of a table; they must not be in the table itself. */
zro_status zro__state_append(zro_state *state, zro__state_table table, const void *rows, size_t n);

/* The rows of a table, *n of them, and how many bytes a row has. */
void *zro__state_rows(const zro_state *state, zro__state_table table, size_t *n, size_t *row_bytes);

/* The index of a value, found by its name or by PyTorch's, in the rule's list; -1 if the rule has none of this name, or is
 * NULL. */
int zro__state_find_hyper(const zro_rule *rule, const char *name);

/* Whether a value of this name says how PyTorch computes, which means nothing here: foreach, fused, and the like. */
int zro__state_is_ignored(const char *name);

/* A value of a group, which must exist; NULL if the group has none of this name. */
zro__state_value *zro__state_find_value(const zro_state *state, size_t group, const char *name);

/* Like zro_state_set_value, with the kind given by the caller. */
zro_status zro__state_set_value(zro_state *state, size_t group, const char *name, double value, zro_hyper_kind kind);

/* Announces a slot.  Checks the same as zro_state_add_slot.  If both the slot and its parameter have one element, the rule's
 * table says whether the slot is `single`; a caller who knows better sets that of the last slot. */
zro_status zro__state_plan_slot(zro_state *state, size_t param, const char *slot, zro_dtype dtype, size_t count);

/* Announces the data of a parameter, which must have none yet. */
zro_status zro__state_plan_data(zro_state *state, size_t param);

/* Makes sure that the last block has so many bytes left: the next zro__state_take of so many cannot fail. */
zro_status zro__state_reserve(zro_state *state, size_t bytes);

/* Gives zeroed memory to all slots that were announced since the last time. */
zro_status zro__state_take(zro_state *state);

/* As zro_state_broadcast.  whole = 0: ranks other than root get a state in which only slots of one element have data; it can be
 * asked, loaded together with the root's (zro__optim_load_from) and destroyed, and nothing may be added to it. */
zro_status zro__state_broadcast(zro_group *group, zro_state **state, int root, int whole);

/* The i-th slot of a parameter; NULL if there is none. */
zro__state_slot *zro__state_slot_at(const zro_state *state, size_t param, size_t i);

/* The row of a parameter's data; NULL if the state does not have it. */
zro__state_slot *zro__state_data(const zro_state *state, size_t param);

/* Adds the next schedule, with as many children to follow; numbers are then added to it. */
zro_status zro__state_add_schedule(zro_state *state, const char *kind, size_t n_children);
zro_status zro__state_add_position(zro_state *state, const char *name, double value);

/* INVALID: the children of a schedule are missing. */
zro_status zro__state_check_schedules(const zro_state *state);

#endif
