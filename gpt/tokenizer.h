/* Tokens as text, and text as tokens.
 *
 * Bytes stand for themselves.  For GPT-2's tokens there is llm.c's tokenizer file: 256 int32 (20240328, version 1 or 2, the number
 * of tokens, in version 2 the token that ends a text, zeros), then for each token one byte with its length, and its bytes.  The
 * file has no merges, so a text becomes tokens by taking the longest one that fits, which is not always what GPT-2 does. */
#ifndef GPT_TOKENIZER_H
#define GPT_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "zro.h"

typedef struct gpt_tokenizer {
    uint8_t *file;        /* NULL: tokens are bytes */
    const uint8_t **text; /* of each token */
    uint8_t *length;
    size_t count;
    uint32_t end; /* the token that ends a text, and begins one */
} gpt_tokenizer;

/* path NULL: tokens are bytes.  vocab: how many tokens the model has; it may have more than the file, as padded models do.
 *
 * SYSTEM   the file cannot be read
 * FORMAT   it is no tokenizer file, or not whole
 * INVALID  it has more tokens than the model */
ZRO_MUST zro_status gpt_tokenizer_open(const char *path, size_t vocab, gpt_tokenizer *tokenizer);
void gpt_tokenizer_close(gpt_tokenizer *tokenizer);

/* The bytes of a token, into `out` (at most 255); returns how many. */
size_t gpt_token_text(const gpt_tokenizer *tokenizer, uint32_t token, uint8_t *out);

/* Writes at most `room` tokens; returns how many the text has.  An empty text is the token that ends one (bytes: a newline). */
size_t gpt_text_tokens(const gpt_tokenizer *tokenizer, const char *text, uint32_t *out, size_t room);

#endif
