/* Tickets: what a rank tells the others about itself so that they can share memory with it. */
#ifndef ZRO_GROUP_TICKET_H
#define ZRO_GROUP_TICKET_H

#include "base/build.h"
#include "board/world.h"

typedef struct zro__ticket {
    zro__build build;
    int32_t rank, size;               /* of the group that is to be made */
    uint64_t boot;                    /* a hash of the kernel's boot id, which differs between machines */
    uint64_t pid_ns, net_ns, user_ns; /* inodes of the process's namespaces */
    uint32_t uid, gid;                /* the effective ones */
    int32_t pid;                      /* as /proc shows it, which getpid() need not be */
    int32_t fd;                       /* descriptor of the rank's memfd, in its own process */
    uint32_t dumpable;                /* 1: other processes of the user can open that descriptor */
    unsigned char nonce[16];          /* stands at the start of the memory too */
    uint64_t device, inode;           /* of the memfd */
    int64_t machine;                  /* as in the config */
    uint64_t cells;                   /* hash of the cells in the config; 0: there are none */
    uint64_t message_bytes;           /* the longest message of the link; 0: there is no link */
    uint64_t number;                  /* the group's number on the link; 0 on all ranks but rank 0 */
    uint64_t sum;                     /* hash of all the above */
} zro__ticket;

_Static_assert(sizeof(zro__ticket) <= ZRO_TICKET_BYTES, "a ticket fits");

zro_status zro__ticket_write(const zro__view *view, int rank, int size, const zro_group_config *config, zro__ticket *out);

/* The view of a ticket that was written by this process and neither used nor dropped; else NULL. */
zro__view *zro__ticket_view(const zro__ticket *t);

/* Tickets as the program brings them are ZRO_TICKET_BYTES apart and not aligned: this is the r-th. */
zro__ticket zro__ticket_get(const void *tickets, int r);

/* Checks `size` tickets as rank `rank` got them: what they are, that they belong together, that all ranks can share memory or
 * have a link.  All ranks come to the same result, except for the last two checks, which concern the rank's own ticket. */
zro_status zro__tickets_check(const void *tickets, int rank, int size);

/* What two ranks can have in common.  Near ranks share memory: all of them without a link. */
typedef enum zro__common { ZRO__NEAR, ZRO__MACHINE, ZRO__PROCESS } zro__common;

/* Whether two ranks have it in common; the lowest rank that `rank` has it in common with.  All near ranks use the world of the
 * lowest of them; ranks of one process are near. */
int zro__ticket_has(const void *tickets, zro__common what, int rank, int other);
int zro__ticket_first(const void *tickets, zro__common what, int rank);

/* The longest message that all ranks' links take. */
size_t zro__tickets_message_bytes(const void *tickets, int size);

/* The hash of `config.cells` in a ticket. */
uint64_t zro__cells_hash(const int32_t *cells, int size);

/* On the first near rank: passes its memfd to the ranks that cannot open it.  On the others: gets a descriptor of it. */
zro_status zro__ticket_serve(const void *tickets, int rank, int size, uint64_t timeout_ms);
zro_status zro__ticket_open(const void *tickets, int rank, uint64_t timeout_ms, int *fd);

#endif
