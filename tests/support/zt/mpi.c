/* The life of a rank under an MPI launcher: it runs what the runner orders, on the page that they share (launch.h).
 *
 * MPI is initialised once for all the cases of a launch, and finalised unless a rank was lost.  While it waits for an order
 * a rank naps and makes no MPI call: ranks may be more than cores. */
#define _GNU_SOURCE
#include "zt/launch.h"

#ifdef ZRO_TEST_MPI

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "zro_mpi.h"

#ifdef OPEN_MPI
enum { BACKEND = ZT_OPENMPI };
#else
enum { BACKEND = ZT_MPICH };
#endif

zro_group *zt_mpi_group(const zro_group_config *config)
{
    zro_group *group;

    CHECK_OK(zro_mpi_group_create(config, MPI_COMM_WORLD, &group));
    return group;
}

static zt_page *open_page(const char *folder)
{
    char path[512];
    zt_page *page;
    int fd;

    snprintf(path, sizeof path, "%s/output", folder);
    fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0)
        return NULL;
    close(fd);
    snprintf(path, sizeof path, "%s/page", folder);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return page != MAP_FAILED ? page : NULL;
}

static void await_order(const zt_page *page, unsigned number)
{
    static const struct timespec pause = { 0, 500000 };

    while (atomic_load(&page->orders) < number)
        nanosleep(&pause, NULL);
}

int zt_worker(const char *folder)
{
    zt_page *page;
    int rank, size, level;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    page = open_page(folder);
    if (page == NULL || MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS) {
        fprintf(stderr, "zro-tests: no page in %s, or no MPI\n", folder);
        return 1;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    atomic_fetch_or(&page->here, 1ULL << rank);
    for (unsigned number = 1;; number++) {
        await_order(page, number);
        if (page->table < 0)
            break;
        zt_run_rank(&zt_tables[page->table].cases[page->row], BACKEND, rank, size, &page->shared);
    }
    fflush(NULL);
    if (page->table == ZT_LEAVE_AT_ONCE)
        _exit(0);
    return MPI_Finalize() == MPI_SUCCESS ? 0 : 1;
}

#else

zro_group *zt_mpi_group(const zro_group_config *config)
{
    (void)config;
    zt_fail(__FILE__, __LINE__, "built without MPI");
}

int zt_worker(const char *folder)
{
    (void)folder;
    return 1;
}

#endif
