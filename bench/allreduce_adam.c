/* The step of a data-parallel training as a program with nothing but an MPI has it: an all-reduce of the gradients in place, then
 * Adam over all parameters on every rank.  A library for step_ranks.py, built with each MPI that is compared.
 *
 * Gradients are one array per rank.  The average is taken inside the loop of Adam, so it costs no pass of its own; the loop is
 * plain C that the compiler vectorises, with PyTorch's order of operations. */
#include <math.h>
#include <mpi.h>
#include <stddef.h>

/* Returns this process's rank. */
int mpi_start(void)
{
    int rank;

    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

void mpi_finish(void)
{
    MPI_Finalize();
}

/* `name` has room for MPI_MAX_LIBRARY_VERSION_STRING, at most 8192 bytes. */
void mpi_name(char *name)
{
    int n;

    MPI_Get_library_version(name, &n);
}

static void adam(float *restrict p, const float *restrict g, float *restrict m, float *restrict v, size_t n, int ranks,
                 int step)
{
    const float beta1 = 0.9F, beta2 = 0.999F, eps = 1e-8F, share = 1 / (float)ranks;
    const float rate = (float)(1e-3 / (1 - pow(0.9, step))), root = (float)sqrt(1 - pow(0.999, step));

    for (size_t i = 0; i < n; i++) {
        float x = g[i] * share;

        m[i] += (x - m[i]) * (1 - beta1);
        v[i] = v[i] * beta2 + x * x * (1 - beta2);
        p[i] -= rate * m[i] / (sqrtf(v[i]) / root + eps);
    }
}

/* The `step`-th step, counted from 1, of n elements; an all-reduce has at most `bucket` of them.  0, or MPI's error. */
int mpi_step(float *p, float *g, float *m, float *v, size_t n, size_t bucket, int step)
{
    int ranks;

    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (size_t at = 0; at < n; at += bucket) {
        int count = (int)(n - at < bucket ? n - at : bucket);
        int error = MPI_Allreduce(MPI_IN_PLACE, g + at, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);

        if (error != MPI_SUCCESS)
            return error;
    }
    adam(p, g, m, v, n, ranks, step);
    return 0;
}
