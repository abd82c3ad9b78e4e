/* What a model is trained on: a text as numbers, cut into windows.
 *
 * Any file is a text of bytes, each of which is a token; a file that begins with llm.c's header is a text of GPT-2's tokens:
 * 256 int32 (20240520, 1, the number of tokens, zeros), then one uint16 per token, little-endian.  Without a file there is a text
 * that is compiled in. */
#ifndef GPT_DATA_H
#define GPT_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "zro.h"

typedef struct gpt_data {
    const char *name;       /* the path, or what the built-in text is called */
    const uint8_t *bytes;   /* a text of bytes; NULL: one of tokens */
    const uint16_t *tokens; /* a text of GPT-2's tokens */
    size_t count;           /* of tokens */
    size_t vocab;           /* tokens are below this: 256 or 50257 */
    void *map;              /* the mapped file; NULL: the built-in text */
    size_t map_bytes;
} gpt_data;

/* path NULL: the built-in text.
 *
 * SYSTEM  the file cannot be read
 * FORMAT  it begins as llm.c's token files do, but is not whole, or of another version, or has a token that GPT-2 has not */
ZRO_MUST zro_status gpt_data_open(const char *path, gpt_data *data);
void gpt_data_close(gpt_data *data);

/* A number made of all tokens, by which ranks compare what they read. */
uint64_t gpt_data_hash(const gpt_data *data);

/* Consecutive tokens of a text. */
typedef struct gpt_split {
    const gpt_data *data;
    size_t first, count;
} gpt_split;

/* Cuts off the last `fraction` of a text for validation. */
void gpt_data_split(const gpt_data *data, double fraction, gpt_split *train, gpt_split *val);

/* How many windows of so many tokens (and the one behind them) a split has. */
size_t gpt_windows(const gpt_split *split, size_t tokens);

/* The i-th window: `tokens` inputs, and for each the token that follows. */
void gpt_window(const gpt_split *split, size_t tokens, size_t i, uint32_t *inputs, uint32_t *targets);

#endif
