/* The BLAS: see blas.h.  What is OpenBLAS's own is referred to weakly, so that any CBLAS will do. */
#include "blas.h"

#include <cblas.h>

extern void openblas_set_num_threads(int n) __attribute__((weak));
extern int openblas_get_num_threads(void) __attribute__((weak));
extern char *openblas_get_corename(void) __attribute__((weak));

void gpt_gemm(gpt_transpose ta, gpt_transpose tb, size_t m, size_t n, size_t k, const float *a, size_t a_stride, const float *b,
              size_t b_stride, float keep, float *c, size_t c_stride)
{
    cblas_sgemm(CblasRowMajor, ta == GPT_TRANSPOSED ? CblasTrans : CblasNoTrans,
                tb == GPT_TRANSPOSED ? CblasTrans : CblasNoTrans, (int)m, (int)n, (int)k, 1.0f, a, (int)a_stride, b,
                (int)b_stride, keep, c, (int)c_stride);
}

int gpt_blas_threads(int threads)
{
    if (openblas_set_num_threads != NULL)
        openblas_set_num_threads(threads);
    return openblas_get_num_threads != NULL ? openblas_get_num_threads() : 0;
}

const char *gpt_blas_kernels(void)
{
    return openblas_get_corename != NULL ? openblas_get_corename() : "unknown";
}
