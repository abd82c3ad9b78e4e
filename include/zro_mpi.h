/* zro over MPI: groups from communicators.
 *
 * A program that links libzro_mpi (CMake: zro::mpi; there is one build for each MPI) needs nothing of this: then
 * zro_group_create_env makes the group of all ranks that the MPI launcher started.  This header is for programs that use MPI
 * themselves, or want a group of some other communicator.
 *
 * Ranks of one machine share memory; MPI carries what goes between machines.  Whoever waits for a peer drives MPI; no thread of
 * the library's own sits in it.  MPI_THREAD_SERIALIZED suffices where the program makes no MPI calls while it is in zro or has
 * work submitted, MPI_THREAD_MULTIPLE is needed where it does; after plain MPI_Init, and with MPI_THREAD_FUNNELED, groups that
 * span machines can be used from the main thread alone and nothing can be submitted to them. */
#ifndef ZRO_MPI_H
#define ZRO_MPI_H

/* The C++ bindings that some MPIs still bring would have to be linked, too. */
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif

#include <mpi.h>

#include "zro.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The group of the ranks of `comm`, in their order.  The environment (ZRO_THREADS, ...) is not read.  Collective over `comm`, which is not used afterwards and may be freed;
 * the library works on a duplicate of it, with an error handler of its own.  MPI must have been initialised; it is neither
 * initialised nor finalised here.  Groups must be destroyed before MPI_Finalize.
 *
 * INVALID      config.link is set: MPI is the link
 * STATE        MPI is not initialised, or finalised already; not the main thread, where MPI allows no other; an earlier create on
 *              `comm` ended with TIMEOUT
 * UNSUPPORTED  an intercommunicator
 * TIMEOUT      not all ranks came within config.timeout_ms
 * SYSTEM       MPI reported an error; the text has its words
 * and what zro_group_create_tickets gives. */
ZRO_MUST zro_status zro_mpi_group_create(const zro_group_config *config, MPI_Comm comm, zro_group **out);

/* The two halves of zro_group_create_env under an MPI launcher, called by the library itself.
 *
 * zro_mpi_start: `size` gets the number of ranks.  If MPI is not initialised it is initialised, and finalised at exit, where
 * `launched` is ON; otherwise it is left alone and `size` is 0.
 * zro_mpi_create_world: the group of MPI_COMM_WORLD.  `before` is what this rank brings: if it is not OK, the create fails with
 * it here, and as PEER with the text of zro_last_error elsewhere. */
ZRO_MUST zro_status zro_mpi_start(zro_switch launched, int *size);
ZRO_MUST zro_status zro_mpi_create_world(const zro_group_config *config, zro_status before, zro_group **out);

#ifdef __cplusplus
}
#endif

#endif
