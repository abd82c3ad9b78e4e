/* The group handle, for the modules that make up a group. */
#ifndef ZRO_GROUP_GROUP_H
#define ZRO_GROUP_GROUP_H

#include "base/kernels.h"
#include "base/memory.h"
#include "base/pool.h"
#include "group/lane.h"
#include "group/link.h"
#include "group/local.h"
#include "group/memory.h"
#include "group/wire.h"
#include "group/xfer.h"

/* Where things lie in a group's region: control block and slots, rings between near ranks, a wire for each of them. */
typedef struct zro__layout {
    int n_near;
    size_t chunk; /* of a message */
    size_t rings, wires, wire_bytes;
    size_t bytes;
} zro__layout;

/* Pure.  message_bytes: of the trunk, SIZE_MAX without one. */
void zro__group_layout(int size, int n_near, size_t message_bytes, zro__layout *out);

/* What a transfer needs besides its description; made with the group, so that nothing is allocated in a step. */
typedef struct zro__scratch {
    zro__part *parts;         /* size: for the named calls and for spread owners */
    zro__cursor *send, *recv; /* by owner */
    zro__cursor *post;        /* by owner: whose results a link expects */
    char **in_of, **out_of;   /* by rank: its arrays where this rank reaches them in place, else NULL */
    const char **message;     /* by rank: the rest of its current message */
    char **room;              /* by rank: the rest of the current message to it */
    int *twin;                /* by rank: the lowest one whose array of results is the same memory */
    double *weight;           /* in the order of addition */
    const void **src;         /* (1 + threads) x size */
    void **dst;               /* (1 + threads) x size */
} zro__scratch;

struct zro_group {
    zro__board board;
    zro__counters counters;
    zro__seat *seat;
    zro__map map; /* the region */
    zro__layout layout;
    zro_settings settings;
    const zro__kernels *kernels;
    zro__pool *pool;
    zro__lane *lane;
    zro__local local;
    zro__link near_link, far_link;
    atomic_int calls; /* entered and not left */
    zro__arena arena;
    int64_t *machine; /* by rank; ranks of one number share memory */
    int one_machine;
    int32_t *cell;        /* by rank */
    int *order, *cell_of; /* ranks in the order of addition; the lengths of the cells in it */
    int n_cells;
    int *everybody; /* 0, 1, ...: the ranks of a duplicate */
    uint64_t *met;  /* by rank: its notices that this rank has read */
    zro__scratch scratch;
};

/* Checks that a call on the group may run now and waits for its turn in the lane: STATE in a forked child.  Whoever got OK
 * leaves with its result, which is returned: a destroy by another thread waits for that. */
zro_status zro__enter(zro_group *group);
zro_status zro__leave(zro_group *group, zro_status st);

/* Whether all ranks passed the same number.  Collective. */
zro_status zro__is_same(zro_group *group, uint64_t number, int *same);

/* Refuses a NULL group, a child's call, a broken group; does not wait. */
zro_status zro__check_group(const zro_group *group);

/* Checks what every config has: struct_size, ranges.  `out`, another one, gets the config, or the defaults for NULL. */
zro_status zro__config_read(const zro_group_config *config, zro_group_config *out);

/* This rank uses a group's region no more: the last near one gives the memory back. */
void zro__region_leave(zro__view *view, const zro__map *map, const zro__layout *layout);

/* Of a new region: says who the members are, as ranks of the world, and where their slots lie; counts the near ones. */
void zro__control_fill(const zro__map *map, int size, int32_t (*member)(void *, int), int (*is_near)(void *, int), void *user);
int zro__count_near(int size, int (*is_near)(void *, int), void *user);

/* What a handle is built from. */
typedef struct zro__blueprint {
    zro__seat *seat;   /* NULL only with a failure */
    zro__trunk *trunk; /* where there are far ranks */
    zro__view *view;
    zro__life *lives;
    zro__map map; /* the group's region; its control block has the members and their places */
    zro__layout layout;
    uint64_t number; /* on the trunk */
    int rank, size;
    zro_settings settings;
    uint64_t timeout_ms;
    int64_t (*machine_of)(void *user, int rank);
    int32_t (*cell_of)(void *user, int rank); /* NULL: the machine */
    void *user;
} zro__blueprint;

/* Builds the handle and votes; `st` is what this rank brings from before.  On success the group takes the map and a hold on
 * the seat; on failure nothing is taken.  Collective. */
zro_status zro__group_build(const zro__blueprint *b, zro_status st, zro_group **out);

/* Ends the part of a rank whose thread ends in the middle of things (spawn.c): the rank is dead. */
void zro__group_die(zro_group *group);

#endif
