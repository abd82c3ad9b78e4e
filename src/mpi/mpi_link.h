/* The MPI link: messages of groups on a duplicate of the program's communicator.
 *
 * There is one duplicate for each communicator from which groups were made, found again by an attribute of it.  It is held by
 * that attribute and by every group, so either may go first. */
#ifndef ZRO_MPI_MPI_LINK_H
#define ZRO_MPI_MPI_LINK_H

#include <stdatomic.h>

#include "zro_mpi.h"

typedef struct zro__mpi_open {
    MPI_Request handle;
    zro_link_request *request; /* NULL: MPI is done with it */
    int is_receive;            /* 0: it is a send */
    int is_cancelled;          /* 1: MPI_Cancel was called */
} zro__mpi_open;

typedef struct zro__mpi_link {
    struct zro__mpi_link *next; /* in the list of all links of the process */
    MPI_Comm comm;              /* the duplicate */
    int rank, size;             /* this rank in the communicator; how many ranks it has */
    uint64_t channels;          /* how many tags this MPI has */
    atomic_int refs;            /* one for the attribute, one for each create */
    int busy;                   /* 1: a create is using it, or never came to its end */
    int used;                   /* 1: a message was sent or expected */
    uint64_t numbers;           /* how many group numbers this rank has given out */
    MPI_Request last;           /* the barrier in MPI_Finalize */

    zro__mpi_open *opens; /* the open requests */
    int n;                /* how many there are */
    int capacity;         /* for how many there is memory */

    char text[MPI_MAX_ERROR_STRING]; /* of the last request that failed */
} zro__mpi_link;

/* One lock per process for everything that calls MPI, which is itself one per process.  Nobody waits for a peer while holding
 * it.  What MPI calls with locks of its own held (the end of an attribute) must not take it. */
void zro__mpi_lock(void);
void zro__mpi_unlock(void);

/* The link of `comm`, with a reference and busy: an old one, or a new one, whose duplication *making is then to be driven to
 * its end.  STATE if another create is busy with it.  Under the lock. */
zro_status zro__mpi_link_get(MPI_Comm comm, zro__mpi_link **out, MPI_Request *making);

/* Once the duplicate is there.  Under the lock. */
zro_status zro__mpi_link_ready(zro__mpi_link *link);

/* The table of the link for one create, which takes over the reference. */
void zro__mpi_link_table(zro__mpi_link *link, zro_switch one_thread, zro_link *table);

/* Whether MPI has nothing left to do for us: no group lives, and no request stayed open in spite of a second of polling. */
int zro__mpi_is_quiet(void);

/* Raises `code` of MPI as SYSTEM with its text. */
zro_status zro__mpi_fail(int code, const char *what);

/* Raises an error; the text is formatted. */
zro_status zro__mpi_error(zro_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
