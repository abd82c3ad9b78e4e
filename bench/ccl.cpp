/* oneCCL's all-reduce for mpi_collectives.c, which is linked with it where oneCCL is compared.  MPI has been initialised before. */
#include <mpi.h>
#include <cstdio>
#include <oneapi/ccl.hpp>

static ccl::communicator *everybody;

extern "C" int ccl_start(int rank, int ranks)
{
    ccl::kvs::address_type address;
    ccl::shared_ptr_class<ccl::kvs> store;

    ccl::init();
    if (rank == 0) {
        store = ccl::create_main_kvs();
        address = store->get_address();
    }
    MPI_Bcast(address.data(), static_cast<int>(address.size()), MPI_BYTE, 0, MPI_COMM_WORLD);
    if (rank != 0)
        store = ccl::create_kvs(address);
    everybody = new ccl::communicator(ccl::create_communicator(ranks, rank, store));
    return 0;
}

extern "C" int ccl_all_reduce(float *x, size_t n)
{
    ccl::allreduce(x, x, n, ccl::reduction::sum, *everybody).wait();
    return 0;
}

extern "C" const char *ccl_name(void)
{
    static char name[64];
    ccl::library_version version = ccl::get_library_version();

    std::snprintf(name, sizeof name, "oneCCL %u.%u.%u", version.major, version.minor, version.update);
    return name;
}
