/* Tickets: what a rank tells the others about itself so that they can share memory with it. */
#ifndef ZRO_GROUP_TICKET_H
#define ZRO_GROUP_TICKET_H

#include "group/memory.h"

typedef struct zro__ticket {
    char magic[8];
    int32_t rank, size;
    uint64_t boot;                    /* of the machine: a hash of the kernel's boot id */
    uint64_t pid_ns, net_ns, user_ns; /* inodes of the namespaces */
    uint32_t uid, gid;
    int32_t pid; /* as /proc shows it, which getpid() need not be */
    int32_t fd;  /* its memfd, and what that is: while they agree, the view is there */
    uint32_t dumpable;
    unsigned char nonce[16];
    uint64_t device, inode;
    uint64_t view; /* an address, for ranks of the same process */
    int64_t machine;
    uint64_t cells;         /* a hash; 0 for NULL */
    uint64_t message_bytes; /* of the link; 0: there is none */
    uint64_t number;        /* the first rank's: the group's on the link */
    uint64_t sum;           /* hash of all the above: last */
} zro__ticket;

_Static_assert(sizeof(zro__ticket) <= ZRO_TICKET_BYTES, "a ticket fits");

void zro__ticket_write(const zro__view *view, int rank, int size, const zro_group_config *config, uint64_t number,
                       zro__ticket *out);

/* The view of a ticket that was written by this process and neither used nor dropped; else NULL. */
zro__view *zro__ticket_view(const zro__ticket *t);

/* Tickets as the program brings them are ZRO_TICKET_BYTES apart and not aligned: this is the r-th. */
zro__ticket zro__ticket_get(const void *tickets, int r);

/* Checks `size` tickets as rank `rank` got them: what they are, that they belong together, that all ranks can share memory or
 * have a link.
 * Everything but the last look (is the own ticket of this process) is the same on all ranks. */
zro_status zro__tickets_check(const void *tickets, int rank, int size);

/* The lowest rank that `rank` shares memory with, in which everybody near it meets.  Without a link that is rank 0. */
int zro__ticket_first_near(const void *tickets, int rank);

/* The lowest near rank of the same process. */
int zro__ticket_first_of_process(const void *tickets, int rank);

/* The longest message that all ranks' links take. */
size_t zro__tickets_message_bytes(const void *tickets, int size);

/* Process numbers mean the same to all ranks near this one. */
int zro__tickets_one_pid_ns(const void *tickets, int rank, int size);

/* What a ticket has of `config.cells`. */
uint64_t zro__cells_hash(const int32_t *cells, int size);

/* On the first near rank: gives its memfd to those who cannot open it.  On the others: a descriptor of that rank's memfd. */
zro_status zro__ticket_serve(const void *tickets, int rank, int size, uint64_t timeout_ms);
zro_status zro__ticket_open(const void *tickets, int rank, uint64_t timeout_ms, int *fd);

#endif
