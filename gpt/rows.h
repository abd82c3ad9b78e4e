/* The loops over rows of the model: everything but the matrix products.
 *
 * rows.c is compiled once per instruction set (-DGPT_ISA=base, avx2 or avx512) into one table each; gpt_rows() returns the best
 * one for this processor.  Sums run in 16 lanes and then over the lanes, whatever the address and the instruction set; so equal
 * inputs give equal bits on one machine.  (Between machines, fused multiply-adds and the BLAS make bits differ anyhow.)
 *
 * All arrays are f32 and row-major.  `rows` rows of `width` elements lie one after another unless a stride is given.  Where a
 * function adds to a gradient, the caller has filled it with zeros before the first micro-batch. */
#ifndef GPT_ROWS_H
#define GPT_ROWS_H

#include <stddef.h>
#include <stdint.h>

typedef struct gpt_rows_table {
    /* out = (x - mean) * rstd * w + b for each row; stats [rows][2] gets mean and rstd. */
    void (*norm)(float *out, float *stats, const float *x, const float *w, const float *b, size_t rows, size_t width);

    /* The same from stats that are known. */
    void (*norm_again)(float *out, const float *stats, const float *x, const float *w, const float *b, size_t rows,
                       size_t width);

    /* dx = keep * dx + the gradient of the input; adds to dw and db.  `dout` may be `dx` itself if keep is 0. */
    void (*norm_backward)(float *dx, float keep, float *dw, float *db, const float *dout, const float *stats, const float *x,
                          const float *w, size_t rows, size_t width);

    /* out = in + bias, or bias alone if `in` is NULL. */
    void (*add_bias)(float *out, const float *in, const float *bias, size_t rows, size_t width);

    /* h += bias; out = gelu(h). */
    void (*bias_gelu)(float *out, float *h, const float *bias, size_t rows, size_t width);

    /* out = gelu(h) as it was; h becomes the derivative there. */
    void (*gelu_again)(float *out, float *h, size_t count);

    /* x *= by; adds the sum of the rows to `sum`. */
    void (*multiply_sum)(float *x, const float *by, float *sum, size_t rows, size_t width);

    /* Adds the sum of the rows to `sum`. */
    void (*sum_rows)(float *sum, const float *x, size_t rows, size_t width);

    /* to += from. */
    void (*add)(float *to, const float *from, size_t count);

    /* Row i of a tile of scores has first + i + 1 keys: s = softmax(scale * s) over them, and 0 behind them up to `width`.
     * lse[i] gets the logarithm of the sum, for softmax_again. */
    void (*softmax)(float *s, float *lse, float scale, size_t first, size_t rows, size_t width, size_t stride);

    /* The same tile again in s, by lse; and in dp, which is the gradient of the softmax, the gradient of the scores before it.
     * The sum over a row of p * dp is that of dout * out, rows of `size` elements with strides of their own. */
    void (*softmax_backward)(float *s, float *dp, const float *lse, const float *dout, size_t dout_stride, const float *out,
                             size_t out_stride, size_t size, float scale, size_t first, size_t rows, size_t width,
                             size_t stride);

    /* Returns the cross-entropy of one row of logits; they become its gradient times `scale`.  With 0 they
     * are used up. */
    float (*cross_entropy)(float *logits, size_t vocab, size_t target, float scale);
} gpt_rows_table;

const gpt_rows_table *gpt_rows(void);

#endif
