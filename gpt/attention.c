/* Causal attention in tiles: see attention.h. */
#include "attention.h"

#include <math.h>
#include <string.h>

#include "blas.h"
#include "rows.h"

/* Rows of scores begin at borders of cache lines. */
static size_t score_stride(size_t tokens)
{
    return (tokens + 15) / 16 * 16;
}

size_t gpt_attention_scratch(size_t tokens)
{
    return 2 * GPT_TILE * score_stride(tokens);
}

/* One tile of one head: `rows` queries from `first` on, which see `keys` keys. */
typedef struct tile {
    size_t first, rows, keys;
    const float *q, *k, *v; /* [rows][size], [keys][size], [keys][size]; stride 3 width */
} tile;

static tile tile_at(const gpt_attention *a, size_t b, size_t h, size_t first)
{
    size_t size = a->width / a->heads, left = a->tokens - first;
    const float *base = a->qkv + b * a->tokens * 3 * a->width + h * size;
    tile t = { .first = first, .rows = left < GPT_TILE ? left : GPT_TILE };

    t.keys = first + t.rows;
    t.q = base + first * 3 * a->width;
    t.k = base + a->width;
    t.v = base + 2 * a->width;
    return t;
}

void gpt_attention_forward(const gpt_attention *a, size_t first)
{
    const gpt_rows_table *rows = gpt_rows();
    size_t size = a->width / a->heads, stride = score_stride(a->tokens), row = 3 * a->width;
    float scale = 1.0f / sqrtf((float)size);

    for (size_t b = 0; b < a->batch; b++)
        for (size_t h = 0; h < a->heads; h++)
            for (size_t at = first; at < a->tokens; at += GPT_TILE) {
                tile t = tile_at(a, b, h, at);
                float *out = a->out + (b * a->tokens + at) * a->width + h * size;
                float *lse = a->lse + (b * a->heads + h) * a->tokens + at;

                gpt_gemm(GPT_AS_IS, GPT_TRANSPOSED, t.rows, t.keys, size, t.q, row, t.k, row, 0, a->scores, stride);
                rows->softmax(a->scores, lse, scale, at, t.rows, t.keys, stride);
                gpt_gemm(GPT_AS_IS, GPT_AS_IS, t.rows, size, t.keys, a->scores, stride, t.v, row, 0, out, a->width);
            }
}

void gpt_attention_backward(const gpt_attention *a, float *dqkv, const float *dout)
{
    const gpt_rows_table *rows = gpt_rows();
    size_t size = a->width / a->heads, stride = score_stride(a->tokens), row = 3 * a->width;
    float scale = 1.0f / sqrtf((float)size), *p = a->scores, *ds = a->scores + GPT_TILE * stride;

    for (size_t b = 0; b < a->batch; b++)
        for (size_t h = 0; h < a->heads; h++)
            /* From the last tile on, which sees all keys, so that it can set what the others add to. */
            for (size_t n = (a->tokens + GPT_TILE - 1) / GPT_TILE; n-- > 0;) {
                tile t = tile_at(a, b, h, n * GPT_TILE);
                size_t place = (b * a->tokens + t.first) * a->width + h * size;
                const float *o = a->out + place, *d = dout + place;
                const float *lse = a->lse + (b * a->heads + h) * a->tokens + t.first;
                float *dq = dqkv + (t.q - a->qkv), *dk = dqkv + (t.k - a->qkv), *dv = dqkv + (t.v - a->qkv);
                float keep = t.keys == a->tokens ? 0 : 1;

                gpt_gemm(GPT_AS_IS, GPT_TRANSPOSED, t.rows, t.keys, size, t.q, row, t.k, row, 0, p, stride);
                gpt_gemm(GPT_AS_IS, GPT_TRANSPOSED, t.rows, t.keys, size, d, a->width, t.v, row, 0, ds, stride);
                rows->softmax_backward(p, ds, lse, d, a->width, o, a->width, size, scale, t.first, t.rows, t.keys, stride);
                gpt_gemm(GPT_AS_IS, GPT_AS_IS, t.rows, size, t.keys, ds, stride, t.k, row, 0, dq, row);
                gpt_gemm(GPT_TRANSPOSED, GPT_AS_IS, t.keys, size, t.rows, ds, stride, t.q, row, keep, dk, row);
                gpt_gemm(GPT_TRANSPOSED, GPT_AS_IS, t.keys, size, t.rows, p, stride, d, a->width, keep, dv, row);
            }
}
