/* zro over MPI: groups from communicators.
 *
 * A program that is linked with libzro_mpi (CMake: zro::mpi; there is one build for each MPI) does not need this header: its
 * zro_group_create_env makes the group of all ranks that the MPI launcher started.  This header is for programs that use MPI
 * themselves, or want a group of some other communicator.
 *
 * Ranks of one machine share memory; MPI carries what goes between machines.  The thread that waits for a peer drives MPI; no
 * thread of the library's own sits in it.  MPI_THREAD_SERIALIZED suffices if the program makes no MPI calls while it is in zro
 * or has work submitted; otherwise MPI_THREAD_MULTIPLE is needed.  After plain MPI_Init, and with MPI_THREAD_FUNNELED, groups
 * that span machines can be used from the main thread alone, and nothing can be submitted to them. */
#ifndef ZRO_MPI_H
#define ZRO_MPI_H

/* Some MPIs still have C++ bindings, which would have to be linked, too. */
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

/* Makes a group of the ranks of `comm`, in their order.  The environment (ZRO_THREADS, ...) is not read.  Collective over
 * `comm`, which is not used afterwards and may be freed; the library works on a duplicate of it, with an error handler of its
 * own.  MPI must have been initialised; it is neither initialised nor finalised here.  Groups must be destroyed before
 * MPI_Finalize.
 *
 * INVALID      config.link is set, but MPI is the link
 * STATE        MPI is not initialised, or already finalised; this is not the main thread, and MPI allows no other; or an
 *              earlier create on `comm` ended with TIMEOUT
 * UNSUPPORTED  `comm` is an intercommunicator
 * TIMEOUT      not all ranks came within config.timeout_ms
 * SYSTEM       MPI reported an error; the text has its words
 * and what zro_group_create_tickets gives. */
ZRO_MUST zro_status zro_mpi_group_create(const zro_group_config *config, MPI_Comm comm, zro_group **out);

/* The two halves of zro_group_create_env under an MPI launcher, called by the library itself.
 *
 * zro_mpi_start: *size becomes the number of ranks.  If MPI is not initialised and `launched` is ON, MPI is initialised, and
 * finalised at exit.  If it is not initialised and `launched` is OFF, MPI is left alone and *size is 0.
 * zro_mpi_create_world: makes the group of MPI_COMM_WORLD.  `before` is the status of this rank so far: if it is not OK, the
 * create fails with it on this rank, and on the others with PEER and the text of this rank's zro_last_error. */
ZRO_MUST zro_status zro_mpi_start(zro_switch launched, int *size);
ZRO_MUST zro_status zro_mpi_create_world(const zro_group_config *config, zro_status before, zro_group **out);

#ifdef __cplusplus
}
#endif

#endif
