/* A program's link, as all groups of one rank use it: under one lock, on the threads that it allows. */
#ifndef ZRO_GROUP_TRUNK_H
#define ZRO_GROUP_TRUNK_H

#include <pthread.h>
#include <stdatomic.h>

#include "zro.h"

typedef struct zro__trunk {
    zro_link link;
    size_t message_bytes; /* that all ranks' links take */
    pthread_mutex_t lock; /* of everything that the link may write */
    atomic_int want;      /* threads that wait for the lock in order to send or receive: pollers stand back */
    pthread_t thread;     /* that created it */
} zro__trunk;

enum { ZRO__CHANNELS = 4 }; /* of a link that a group has */

/* Checks a table that a program passed. */
zro_status zro__link_check(const zro_link *link);

void zro__trunk_init(zro__trunk *trunk, const zro_link *link, size_t message_bytes);
void zro__trunk_close(zro__trunk *trunk);

/* A number for a new group; UNSUPPORTED if the link has no channels left. */
zro_status zro__trunk_number(zro__trunk *trunk, uint64_t *number);

/* Around every call of the link's functions. */
void zro__trunk_lock(zro__trunk *trunk);
void zro__trunk_unlock(zro__trunk *trunk);

/* Whether this thread is one that the link does not allow; check: STATE then. */
int zro__trunk_is_elsewhere(const zro__trunk *trunk);
zro_status zro__trunk_check_thread(const zro__trunk *trunk);

#endif
