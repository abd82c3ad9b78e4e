/* Matrix products, and how fast the BLAS makes them. */
#ifndef GPT_BLAS_H
#define GPT_BLAS_H

#include <stddef.h>

typedef enum gpt_transpose { GPT_AS_IS = 0, GPT_TRANSPOSED = 1 } gpt_transpose;

/* c = a b + keep * c, where c is m x n and a, b are m x k and k x n after transposing; row-major, each with its stride. */
void gpt_gemm(gpt_transpose ta, gpt_transpose tb, size_t m, size_t n, size_t k, const float *a, size_t a_stride, const float *b,
              size_t b_stride, float keep, float *c, size_t c_stride);

/* How many threads products use from now on, where the BLAS can be told; returns how many they really use, 0 if unknown. */
int gpt_blas_threads(int threads);

/* What the BLAS calls its kernels, such as "SkylakeX"; "unknown" where it does not tell. */
const char *gpt_blas_kernels(void);

#endif
