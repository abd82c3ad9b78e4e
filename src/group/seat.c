/* A seat: see seat.h. */
#include "group/seat.h"

#include <sys/mman.h>

void zro__seat_retain(zro__seat *seat)
{
    atomic_fetch_add(&seat->refs, 1);
}

void zro__seat_release(zro__seat *seat)
{
    if (seat == NULL || atomic_fetch_sub(&seat->refs, 1) != 1)
        return;
    zro__trace_close(seat->trace);
    if (seat->program_link != NULL)
        zro__program_link_close(seat->program_link);
    zro__life_release(&seat->holder);
    pthread_mutex_destroy(&seat->boards.lock);
    zro__view_drop(seat->view, seat->sharers);
    if (seat->meet != NULL)
        munmap(seat->meet, seat->meet_bytes);
    zro__free(seat);
}
