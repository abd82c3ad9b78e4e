/* Placement: where the data and gradients of parameters live.
 *
 * By default they lie where the program put them, and zro never moves them.  zro_params_alloc hands out group memory before the
 * model is built; bucket views move data that is there already, and move it back.  Both lay arrays out one after another at
 * borders of 64 bytes, so that neighbours travel together, and note in each parameter whose memory it is: that memory, a place,
 * lives as long as the parameters or any handle uses it. */
#ifndef ZRO_STEP_PLACE_H
#define ZRO_STEP_PLACE_H

#include <stdatomic.h>

#include "base/memory.h"
#include "group/slot.h"
#include "zro.h"

typedef struct zro__place {
    atomic_int refs;
    zro_memory *data, *grads; /* NULL: not handed out */
    zro_memory_kind kind;     /* of data */
    int is_view;              /* an optimizer's, which puts back what was there */
} zro__place;

void zro__place_retain(zro__place *place);
void zro__place_release(zro__place *place); /* takes NULL */

/* The place that has a parameter's data; NULL: the program itself. */
zro__place *zro__param_place(const zro_param *param);

/* Data that was moved into group memory, for the way back. */
typedef struct zro__views {
    struct zro__views *next;
    zro__place *place;
    size_t n;
    struct zro__view_of {
        zro_param *param;
        void *own, *view; /* the program's array; where its data is now */
        size_t at, bytes; /* in the place's */
    } of[];
} zro__views;

/* Moves the data of n parameters, in this order, into one array a rank; those that zro handed out stay.  Nothing is
 * changed yet: *out has the copies.  Collective; `st` is voted on.  Then show: parameters point there. */
zro_status zro__views_make(zro_group *group, zro__account *account, zro_param *const *params, size_t n, zro__call call,
                           zro_status st, zro__views **out);
void zro__views_show(zro__views *views);

/* Copies the data back to where it was, and forgets the views: of all in the list.  Takes NULL.  is_alive = 0: in a forked
 * child, where nothing shared may be touched. */
void zro__views_undo(zro__views *views, int is_alive);

#endif
