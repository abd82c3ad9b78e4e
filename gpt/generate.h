/* A model writes: one token after another, each drawn by temperature and top-k from what the model expects. */
#ifndef GPT_GENERATE_H
#define GPT_GENERATE_H

#include <stdio.h>

#include "model.h"
#include "tokenizer.h"

typedef struct gpt_generate_config {
    const char *prompt; /* what the text begins with; "" begins a new one */
    size_t tokens;      /* how many are written behind the prompt */
    double temperature; /* > 0; 0: always the most likely token */
    size_t top_k;       /* only the k most likely tokens are drawn; 0: all of them */
    uint64_t seed;
} gpt_generate_config;

/* Writes the prompt and what the model adds to it.  If the context is full, the model goes on from the second half of it.
 *
 * SYSTEM  the text cannot be written to `out` */
ZRO_MUST zro_status gpt_generate(const gpt_config *config, zro_param *params, const gpt_tokenizer *tokenizer,
                                 const gpt_generate_config *how, FILE *out);

/* Draws one token from logits, which are used up.  u in [0, 1) decides; a pure function of its arguments. */
uint32_t gpt_draw(float *logits, size_t vocab, double temperature, size_t top_k, double u);

#endif
