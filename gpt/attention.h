/* Causal attention of all heads, in tiles of query rows.
 *
 * The scores of one tile against all earlier keys, at most GPT_TILE x T numbers, live in a scratch array that stays in the cache;
 * no T x T matrix exists.  Forward keeps one number per row and head, the logarithm of the softmax's sum, from which backward
 * computes the scores again, which is faster than to store and load them.
 *
 * qkv [batch][T][3 width]: q, k and v of a row one after another; the heads are consecutive slices of width / heads. */
#ifndef GPT_ATTENTION_H
#define GPT_ATTENTION_H

#include <stddef.h>

enum { GPT_TILE = 64 };

typedef struct gpt_attention {
    size_t batch, tokens, heads, width;
    const float *qkv; /* [batch][tokens][3 width] */
    float *out;       /* [batch][tokens][width] */
    float *lse;       /* [batch][heads][tokens] */
    float *scores;    /* scratch, gpt_attention_scratch() elements */
} gpt_attention;

/* How many elements of scratch attention over so many tokens needs; forward uses the first half. */
size_t gpt_attention_scratch(size_t tokens);

/* Computes rows [first, tokens) of `out` and `lse`, of each sequence. */
void gpt_attention_forward(const gpt_attention *a, size_t first);

/* The gradient dqkv, shaped like qkv, for the gradient dout of `out`. */
void gpt_attention_backward(const gpt_attention *a, float *dqkv, const float *dout);

#endif
