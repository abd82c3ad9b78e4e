/* The group handle, for the modules that make up a group.
 *
 * group.c builds and destroys it; create.c and create_first.c bring the ranks together for that, by tickets (ticket.c), by the
 * environment (env.c) or by starting them (spawn.c).  lane.c is the order in which a group does things, calls.c the collective
 * calls, group_memory.c the arrays that ranks share, seat.c what all groups of a rank have in common. */
#ifndef ZRO_GROUP_GROUP_H
#define ZRO_GROUP_GROUP_H

#include "board/meet.h"
#include "board/vote.h"
#include "group/lane.h"
#include "group/seat.h"
#include "link/far_ranks.h"
#include "link/rings.h"
#include "xfer/xfer.h"

/* Where things lie in a group's region: control block and slots, rings between near ranks, then what each near rank has for
 * its far ranks. */
typedef struct zro__layout {
    int n_near;       /* how many ranks share the region */
    size_t chunk;     /* bytes of the longest message */
    size_t rings;     /* offset of the rings */
    size_t fars;      /* offset of the first near rank's messages to far ranks */
    size_t far_bytes; /* from there to those of the next near rank */
    size_t bytes;     /* of the region */
} zro__layout;

/* Pure.  message_bytes: the longest message that the program's link takes, SIZE_MAX without a link. */
void zro__group_layout(int size, int n_near, size_t message_bytes, zro__layout *out);

struct zro_group {
    zro__ranks ranks; /* what transfers need, the board among it */
    zro__seat *seat;
    zro__map map; /* the region */
    zro__layout layout;
    zro_settings settings;
    zro__lane *lane;
    zro__rings rings;
    zro__far *far;       /* the messages to far ranks; NULL if all ranks are near */
    atomic_int calls[2]; /* how many calls have entered and not left: of the program, and of the lane's thread */
    int is_expected;     /* 1: zro_group_create_env made it, so a program that destroys it unused has forgotten it */
    zro__arena arena;
    int32_t *cell;  /* per rank: its cell; ranks with equal numbers are added up first */
    int *everybody; /* 0, 1, ...: the ranks that a duplicate is made of */
    uint64_t *met;  /* per rank: how many of its notices this rank has read */
};

/* Checks that a call on the group may run now and waits for its turn in the lane.  Fails with STATE in a forked child.
 * Whoever got OK leaves with its result, which is returned: a destroy by another thread waits for that. */
zro_status zro__enter(zro_group *group);
zro_status zro__leave(zro_group *group, zro_status st);

/* If the group is broken: until nobody touches this rank's memory any more, or it is noted who may (board/late.h).  Everything that
 * returns a verdict to the program passes here: enter, leave, and the checks of an optimizer. */
void zro__group_settle(zro_group *group);

/* Where a rank's slices go; NULL without a trace, and for NULL. */
static inline zro__trace *zro__trace_of(const zro_group *group)
{
    return group == NULL ? NULL : group->ranks.board.trace;
}

/* Refuses a NULL group, a child's call, a broken group; does not wait. */
zro_status zro__check_group(const zro_group *group);

/* Checks what every config has: struct_size, ranges.  `out`, another one, gets the config, or the defaults for NULL. */
zro_status zro__config_read(const zro_group_config *config, zro_group_config *out);

/* This rank uses a group's region no more; the last near rank to say so gives the memory back. */
void zro__region_leave(zro__view *view, const zro__map *map, const zro__layout *layout);

/* A member of a group that is being formed. */
typedef struct zro__member {
    int32_t label; /* its rank in the world */
    int32_t cell;
    int64_t machine; /* the same number for all members of one machine */
    int is_near;     /* whether it shares memory with this rank */
} zro__member;

#define ZRO__NO_NUMBER UINT64_MAX

/* A group that is being formed (create.c), as one of its members sees it. */
typedef struct zro__formation {
    const char *call;     /* the call that error texts name */
    zro_group *parent;    /* the group that the members are in; NULL for the first group of a world */
    const int *ranks;     /* with a parent: the members, as ranks of the parent */
    const void *tickets;  /* without a parent: the members' tickets */
    const int32_t *cells; /* without a parent: the cells of the config, or NULL */
    zro__member (*member)(const struct zro__formation *f, int rank); /* describes a member */
    int rank, size;
    int first_near;                  /* the first member near this one, which makes the region */
    uint64_t key;                    /* with a parent: hash of `ranks`, by which members recognise the notice of the region */
    uint64_t number;                 /* the group's number on the link; ZRO__NO_NUMBER until it is known */
    zro__seat *seat;                 /* NULL: none yet, or it could not be taken */
    zro__program_link *program_link; /* NULL without a link */
    zro__view *view;
    zro__life *lives;
    zro__meet *meet; /* NULL, or the table at which `zro run` learns who was lost */
    zro__layout layout;
    zro__map map; /* the region, once this rank has it */
    zro_settings settings;
    uint64_t timeout_ms;
    const char *trace; /* without a parent: the path of the config, or NULL */
} zro__formation;

/* Builds the handle and votes; `st` is this rank's result so far.  On success the group takes the map and a hold on
 * the seat; on failure nothing is taken.  Collective. */
zro_status zro__group_build(const zro__formation *f, zro_status st, zro_group **out);

/* zro_all_gather under another name in texts.  An average over the ranks with this divisor, 0 being their number.  Collective. */
zro_status zro__all_gather_as(zro_group *group, zro__call call, const void *in, void *out, size_t count, zro_dtype dtype);
zro_status zro__all_average(zro_group *group, void *data, size_t count, zro_dtype dtype, double divisor);

/* For a rank that is a thread (spawn.c).  die: the thread ends before the rank's function has returned; marks the rank as dead, and
 * destroys its group.  end: the function has returned; the same if the rank leaves other groups behind, for example an optimizer's,
 * in which nobody would come any more, otherwise destroys its group. */
void zro__group_die(zro_group *group);
void zro__group_end(zro_group *group);

#endif
