/* A seat: what one rank has in a world: its account, its view of the world's memory, its life word, its link to far ranks.
 * Groups and arrays of a rank share its seat and keep it alive. */
#ifndef ZRO_GROUP_SEAT_H
#define ZRO_GROUP_SEAT_H

#include "base/memory.h"
#include "base/trace.h"
#include "board/life.h"
#include "board/meet.h"
#include "board/world.h"
#include "link/program_link.h"

typedef struct zro__seat {
    zro__account account;
    zro__view *view;
    zro__program_link *program_link; /* to far ranks: NULL, or `own_link` */
    zro__program_link own_link;
    zro__meet *meet; /* the table of `zro run`, which is unmapped with the seat; NULL: there is none */
    size_t meet_bytes;
    int sharers;                   /* how many ranks of this process use the view */
    zro__life *life;               /* this rank's life word */
    zro__holder holder;            /* the thread that holds it; none if the rank is a thread itself */
    atomic_int refs;               /* how many groups and arrays use the seat */
    _Atomic uint64_t shared_bytes; /* this rank's share of all group memory */
    zro__boards boards;            /* of the rank's groups */
    zro__trace *trace;             /* NULL: the rank is not traced */
} zro__seat;

void zro__seat_retain(zro__seat *seat);
void zro__seat_release(zro__seat *seat); /* takes NULL */

#endif
