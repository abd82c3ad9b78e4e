/* A program's link, as all groups of one rank use it: under one lock, on the threads that it allows. */
#ifndef ZRO_LINK_PROGRAM_LINK_H
#define ZRO_LINK_PROGRAM_LINK_H

#include <pthread.h>
#include <stdatomic.h>

#include "zro.h"

typedef struct zro__program_link {
    zro_link link;
    size_t message_bytes; /* that all ranks' links take */
    pthread_mutex_t lock; /* of everything that the link may write */
    atomic_int want;      /* threads that wait for the lock in order to send or receive: pollers stand back */
    pthread_t thread;     /* that created it */
} zro__program_link;

enum { ZRO__CHANNELS = 4 }; /* of a link that a group has */

/* The state of a request.  A link that serves several creates may set it while it polls for another; then this is what makes the
 * rest of the request visible. */
static inline zro_link_state zro__request_state(const zro_link_request *request)
{
    return __atomic_load_n(&request->state, __ATOMIC_ACQUIRE);
}

static inline int zro__request_is_open(const zro_link_request *request)
{
    return zro__request_state(request) == ZRO_LINK_OPEN;
}

/* Gives up a request that is open; 1 if the link uses its memory no more. */
int zro__request_settle(const zro_link *link, zro_link_request *request);

/* Checks a table that a program passed. */
zro_status zro__program_link_check_table(const zro_link *link);

void zro__program_link_init(zro__program_link *program_link, const zro_link *link, size_t message_bytes);
void zro__program_link_close(zro__program_link *program_link);

/* A number for a new group; UNSUPPORTED if the link has no channels left. */
zro_status zro__program_link_number(zro__program_link *program_link, uint64_t *number);

/* Around every call of the link's functions. */
void zro__program_link_lock(zro__program_link *program_link);
void zro__program_link_unlock(zro__program_link *program_link);

/* Whether this thread is one that the link does not allow; check: STATE then. */
int zro__program_link_is_elsewhere(const zro__program_link *program_link);
zro_status zro__program_link_check_thread(const zro__program_link *program_link);

#endif
