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
#include "board/slot.h"
#include "zro.h"

/* One of the two arrays of a parameter. */
typedef enum zro__side { ZRO__DATA, ZRO__GRADS } zro__side;

/* The type of such an array, and where the parameter has it. */
zro_dtype zro__side_type(const zro_param *param, zro__side side);
void **zro__side_array(zro_param *param, zro__side side);

/* Puts an array behind those before it, at a border; 0 if the sum does not fit into a size_t. */
int zro__place_put(size_t bytes, size_t *total, size_t *offset);

typedef struct zro__place {
    atomic_int refs;          /* parameters and handles that use the place */
    zro_memory *data, *grads; /* NULL: not handed out */
    zro_memory_kind kind;     /* whether data exists once per rank or once per machine */
    int is_view;              /* it belongs to an optimizer, which moves the data back in the end */
} zro__place;

void zro__place_retain(zro__place *place);
void zro__place_release(zro__place *place); /* takes NULL */

/* The place that has a parameter's data; NULL: the data are in the program's own memory. */
zro__place *zro__param_place(const zro_param *param);

/* Data, or gradients, that were moved into group memory, for the way back. */
typedef struct zro__views {
    struct zro__views *next;
    zro__side side;
    zro__place *place;
    size_t n;
    struct zro__view_of {
        zro_param *param;
        void *own;        /* the program's array; of a gradient it may be NULL */
        void *view;       /* where the array is now */
        size_t at, bytes; /* where the view begins in the memory of the place, and how long it is */
    } of[];
} zro__views;

/* Moves the data, or the gradients, of n parameters, in this order, into one array per rank; those that zro handed out stay.
 * Collective; `st` is voted on.  On failure nothing has changed. */
zro_status zro__views_make(zro_group *group, zro__account *account, zro__side side, zro_param *const *params, size_t n,
                           zro__call call, zro_status st, zro__views **out);

/* Copies the arrays of all views in the list back to where they were, and frees the list.  Takes NULL.  is_alive = 0: the caller
 * is a forked child, in which shared memory must not be touched, and nothing is copied. */
void zro__views_undo(zro__views *views, int is_alive);

#endif
