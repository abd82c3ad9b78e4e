/* The loops over rows: see rows.h.
 *
 * Loops without sums are plain C, which compilers vectorise.  Sums over a row are written with vectors of 16 lanes, because a
 * compiler may not reorder them by itself. */
#include "rows.h"

#include <math.h>
#include <string.h>

#ifndef GPT_ISA
#define GPT_ISA base
#endif
#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#define TABLE PASTE(gpt_rows_, GPT_ISA)

enum { LANES = 16 };
typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));
typedef int32_t mask __attribute__((vector_size(LANES * sizeof(int32_t)))); /* of lanes: all bits where a comparison holds */

#define AT(p, i) (*(const lanes *)((p) + (i)))

static const float NORM_EPS = 1e-5f;

static inline float sum_lanes(const lanes *v)
{
    float s[8];

    for (int i = 0; i < 8; i++)
        s[i] = (*v)[i] + (*v)[i + 8];
    return ((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7]));
}

static inline float dot(const float *a, const float *b, size_t n)
{
    lanes v = { 0 };
    float tail = 0;
    size_t i = 0;

    for (; i + LANES <= n; i += LANES)
        v += AT(a, i) * AT(b, i);
    for (; i < n; i++)
        tail += a[i] * b[i];
    return sum_lanes(&v) + tail;
}

static inline float sum(const float *a, size_t n)
{
    lanes v = { 0 };
    float tail = 0;
    size_t i = 0;

    for (; i + LANES <= n; i += LANES)
        v += AT(a, i);
    for (; i < n; i++)
        tail += a[i];
    return sum_lanes(&v) + tail;
}

static inline float largest(const float *a, size_t n)
{
    float most = a[0];
    size_t i = 0;

    if (n >= LANES) {
        lanes v = AT(a, 0);

        for (i = LANES; i + LANES <= n; i += LANES) {
            lanes next = AT(a, i);
            mask larger = next > v;

            v = (lanes)(((mask)next & larger) | ((mask)v & ~larger));
        }
        for (int j = 0; j < LANES; j++)
            most = v[j] > most ? v[j] : most;
    }
    for (; i < n; i++)
        most = a[i] > most ? a[i] : most;
    return most;
}

/* e^x to about one unit in the last place, without branches, so that loops with it are vectorised: 2^n times a polynomial in
 * what remains of x.  Adding and subtracting 1.5 * 2^23 rounds to a whole number. */
static inline float exp_fast(float x)
{
    const float ROUND = 12582912.0f;
    float n, r, p, power;
    int32_t bits;

    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    n = (x * 1.44269504f + ROUND) - ROUND;
    r = x - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    bits = ((int32_t)n + 127) * (1 << 23);
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

/* ---- layer norm ---- */

static inline void norm_row(float *restrict out, const float *restrict x, float mean, float rstd, const float *restrict w,
                            const float *restrict b, size_t width)
{
    for (size_t i = 0; i < width; i++)
        out[i] = (x[i] - mean) * rstd * w[i] + b[i];
}

static void norm(float *out, float *stats, const float *x, const float *w, const float *b, size_t rows, size_t width)
{
    for (size_t r = 0; r < rows; r++, x += width, out += width, stats += 2) {
        float mean = sum(x, width) / (float)width, tail = 0, rstd;
        lanes v = { 0 };
        size_t i = 0;

        for (; i + LANES <= width; i += LANES) {
            lanes d = AT(x, i) - mean;

            v += d * d;
        }
        for (; i < width; i++)
            tail += (x[i] - mean) * (x[i] - mean);
        rstd = 1.0f / sqrtf((sum_lanes(&v) + tail) / (float)width + NORM_EPS);
        norm_row(out, x, mean, rstd, w, b, width);
        stats[0] = mean;
        stats[1] = rstd;
    }
}

static void norm_again(float *out, const float *stats, const float *x, const float *w, const float *b, size_t rows,
                       size_t width)
{
    for (size_t r = 0; r < rows; r++)
        norm_row(out + r * width, x + r * width, stats[2 * r], stats[2 * r + 1], w, b, width);
}

/* With g = dout * w and the normalised row z: dx = rstd * (g - mean(g) - z * mean(g * z)). */
static void norm_backward(float *dx, float keep, float *dw, float *db, const float *dout, const float *stats, const float *x,
                          const float *w, size_t rows, size_t width)
{
    float *restrict to_w = dw, *restrict to_b = db;

    for (size_t r = 0; r < rows; r++, dx += width, dout += width, x += width) {
        float mean = stats[2 * r], rstd = stats[2 * r + 1], sum_g = 0, sum_gz = 0;
        lanes g = { 0 }, gz = { 0 };
        size_t i = 0;

        for (; i + LANES <= width; i += LANES) {
            lanes one = AT(dout, i) * AT(w, i);

            g += one;
            gz += one * ((AT(x, i) - mean) * rstd);
        }
        for (; i < width; i++) {
            sum_g += dout[i] * w[i];
            sum_gz += dout[i] * w[i] * ((x[i] - mean) * rstd);
        }
        sum_g = (sum_g + sum_lanes(&g)) / (float)width;
        sum_gz = (sum_gz + sum_lanes(&gz)) / (float)width;
        for (i = 0; i < width; i++) {
            float d = dout[i], z = (x[i] - mean) * rstd, old = keep != 0 ? dx[i] : 0;

            to_w[i] += d * z;
            to_b[i] += d;
            dx[i] = old + rstd * (d * w[i] - sum_g - z * sum_gz);
        }
    }
}

/* ---- bias and gelu ---- */

static void add_bias(float *out, const float *in, const float *bias, size_t rows, size_t width)
{
    for (size_t r = 0; r < rows; r++) {
        float *restrict o = out + r * width;
        const float *restrict x = in + (in != NULL ? r * width : 0), *restrict b = bias;

        if (in == NULL) {
            memcpy(o, b, width * sizeof *o);
            continue;
        }
        for (size_t i = 0; i < width; i++)
            o[i] = x[i] + b[i];
    }
}

/* gelu(h) = h * s with s = 1 / (1 + e^-2u) and u = sqrt(2 / pi) (h + 0.044715 h^3), which is h (1 + tanh u) / 2. */
static const float GELU_A = 1.5957691216f, GELU_B = 0.0713548163f; /* 2 sqrt(2 / pi), and that times 0.044715 */

static void bias_gelu(float *out, float *h, const float *bias, size_t rows, size_t width)
{
    for (size_t r = 0; r < rows; r++) {
        float *restrict o = out + r * width, *restrict in = h + r * width;
        const float *restrict b = bias;

        for (size_t i = 0; i < width; i++) {
            float v = in[i] + b[i], u2 = v * (GELU_A + GELU_B * v * v);

            in[i] = v;
            o[i] = v / (1.0f + exp_fast(-u2));
        }
    }
}

static void gelu_again(float *out, float *h, size_t count)
{
    float *restrict o = out, *restrict in = h;

    for (size_t i = 0; i < count; i++) {
        float v = in[i], s = 1.0f / (1.0f + exp_fast(-v * (GELU_A + GELU_B * v * v)));

        o[i] = v * s;
        in[i] = s + v * s * (1.0f - s) * (GELU_A + 3.0f * GELU_B * v * v);
    }
}

static void multiply_sum(float *x, const float *by, float *sums, size_t rows, size_t width)
{
    float *restrict to = sums;

    for (size_t r = 0; r < rows; r++) {
        float *restrict v = x + r * width;
        const float *restrict f = by + r * width;

        for (size_t i = 0; i < width; i++) {
            float p = v[i] * f[i];

            v[i] = p;
            to[i] += p;
        }
    }
}

static void sum_rows(float *sums, const float *x, size_t rows, size_t width)
{
    float *restrict to = sums;
    size_t r = 0;

    for (; r + 4 <= rows; r += 4) {
        const float *restrict a = x + r * width, *restrict b = a + width, *restrict c = b + width, *restrict d = c + width;

        for (size_t i = 0; i < width; i++)
            to[i] += (a[i] + b[i]) + (c[i] + d[i]);
    }
    for (; r < rows; r++) {
        const float *restrict a = x + r * width;

        for (size_t i = 0; i < width; i++)
            to[i] += a[i];
    }
}

static void add(float *to, const float *from, size_t count)
{
    float *restrict t = to;
    const float *restrict f = from;

    for (size_t i = 0; i < count; i++)
        t[i] += f[i];
}

/* ---- softmax ---- */

static void softmax(float *s, float *lse, float scale, size_t first, size_t rows, size_t width, size_t stride)
{
    for (size_t r = 0; r < rows; r++) {
        float *restrict row = s + r * stride;
        size_t keys = first + r + 1;
        float most = largest(row, keys), total, by;

        for (size_t i = 0; i < keys; i++)
            row[i] = exp_fast((row[i] - most) * scale);
        total = sum(row, keys);
        by = 1.0f / total;
        for (size_t i = 0; i < keys; i++)
            row[i] *= by;
        for (size_t i = keys; i < width; i++)
            row[i] = 0;
        lse[r] = most * scale + logf(total);
    }
}

static void softmax_backward(float *s, float *dp, const float *lse, const float *dout, size_t dout_stride, const float *out,
                             size_t out_stride, size_t size, float scale, size_t first, size_t rows, size_t width,
                             size_t stride)
{
    for (size_t r = 0; r < rows; r++) {
        float *restrict p = s + r * stride, *restrict d = dp + r * stride;
        float mean = dot(dout + r * dout_stride, out + r * out_stride, size), log_sum = lse[r];
        size_t keys = first + r + 1;

        for (size_t i = 0; i < keys; i++) {
            float e = exp_fast(p[i] * scale - log_sum);

            p[i] = e;
            d[i] = e * (d[i] - mean) * scale;
        }
        for (size_t i = keys; i < width; i++)
            p[i] = d[i] = 0;
    }
}

static float cross_entropy(float *logits, size_t vocab, size_t target, float scale)
{
    float *restrict row = logits;
    float most = largest(row, vocab), wanted = row[target], total, by;

    for (size_t i = 0; i < vocab; i++)
        row[i] = exp_fast(row[i] - most);
    total = sum(row, vocab);
    if (scale != 0) {
        by = scale / total;
        for (size_t i = 0; i < vocab; i++)
            row[i] *= by;
        row[target] -= scale;
    }
    return logf(total) + most - wanted;
}

extern const gpt_rows_table TABLE;
const gpt_rows_table TABLE = { norm,         norm_again, norm_backward, add_bias, bias_gelu,        gelu_again,
                               multiply_sum, sum_rows,   add,           softmax,  softmax_backward, cross_entropy };
