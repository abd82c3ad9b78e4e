/* Tokens and text: see tokenizer.h. */
#include "tokenizer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

enum { HEADER_BYTES = 1024, MAGIC = 20240328, MOST_TOKENS = 1 << 20, MOST_BYTES = 1 << 28, GPT2_END = 50256 };

static zro_status read_file(const char *path, uint8_t **bytes, size_t *n)
{
    FILE *f = fopen(path, "rb");
    long size = -1;

    *bytes = NULL;
    if (f != NULL && fseek(f, 0, SEEK_END) == 0)
        size = ftell(f);
    if (size < 0 || size > MOST_BYTES || fseek(f, 0, SEEK_SET) != 0)
        goto fail;
    *n = (size_t)size;
    *bytes = malloc(*n + 1);
    if (*bytes == NULL || fread(*bytes, 1, *n, f) != *n)
        goto fail;
    fclose(f);
    return ZRO_OK;
fail:
    gpt_fail(ZRO_ERR_SYSTEM, "%s cannot be read: %s", path, errno != 0 ? strerror(errno) : "it is no tokenizer file");
    if (f != NULL)
        fclose(f);
    free(*bytes);
    return ZRO_ERR_SYSTEM;
}

static zro_status parse(const char *path, gpt_tokenizer *t, size_t bytes)
{
    int32_t header[4] = { 0 };
    size_t at = HEADER_BYTES;

    if (bytes >= HEADER_BYTES)
        memcpy(header, t->file, sizeof header);
    if (header[0] != MAGIC || (header[1] != 1 && header[1] != 2) || header[2] < 1 || header[2] > MOST_TOKENS)
        return gpt_fail(ZRO_ERR_FORMAT, "%s is no tokenizer file of llm.c", path);
    t->count = (size_t)header[2];
    t->end = header[1] == 2 ? (uint32_t)header[3] : GPT2_END;
    t->text = calloc(t->count, sizeof *t->text);
    t->length = calloc(t->count, 1);
    if (t->text == NULL || t->length == NULL)
        return gpt_fail(ZRO_ERR_MEMORY, "the table of %zu tokens", t->count);
    for (size_t i = 0; i < t->count; i++) {
        if (at >= bytes || at + 1 + t->file[at] > bytes)
            return gpt_fail(ZRO_ERR_FORMAT, "%s ends in token %zu of %zu: it is damaged", path, i, t->count);
        t->length[i] = t->file[at];
        t->text[i] = t->file + at + 1;
        at += 1 + (size_t)t->length[i];
    }
    if (at != bytes)
        return gpt_fail(ZRO_ERR_FORMAT, "%s has %zu bytes, must have %zu: it is damaged", path, bytes, at);
    if (t->end >= t->count)
        return gpt_fail(ZRO_ERR_FORMAT, "%s: the token that ends a text is %u, must be below the %zu tokens: it is damaged",
                        path, t->end, t->count);
    return ZRO_OK;
}

zro_status gpt_tokenizer_open(const char *path, size_t vocab, gpt_tokenizer *tokenizer)
{
    gpt_tokenizer t = { .end = '\n', .count = 256 };
    size_t bytes;
    zro_status st = ZRO_OK;

    memset(tokenizer, 0, sizeof *tokenizer);
    if (path != NULL) {
        st = read_file(path, &t.file, &bytes);
        if (st == ZRO_OK)
            st = parse(path, &t, bytes);
        if (st == ZRO_OK && t.count > vocab)
            st = gpt_fail(ZRO_ERR_INVALID, "--tokenizer %s has %zu tokens, but the model has %zu: it is not that of its data",
                          path, t.count, vocab);
    }
    if (st != ZRO_OK)
        gpt_tokenizer_close(&t);
    else
        *tokenizer = t;
    return st;
}

void gpt_tokenizer_close(gpt_tokenizer *t)
{
    free(t->file);
    free(t->text);
    free(t->length);
    memset(t, 0, sizeof *t);
}

size_t gpt_token_text(const gpt_tokenizer *t, uint32_t token, uint8_t *out)
{
    if (token >= t->count)
        return 0;
    if (t->file == NULL) {
        out[0] = (uint8_t)token;
        return 1;
    }
    memcpy(out, t->text[token], t->length[token]);
    return t->length[token];
}

/* The longest token with which a text begins. */
static uint32_t longest(const gpt_tokenizer *t, const char *text, size_t *length)
{
    size_t left = strlen(text);
    uint32_t best = t->end;

    *length = 0;
    for (size_t i = 0; i < t->count; i++)
        if (t->length[i] > *length && t->length[i] <= left && memcmp(t->text[i], text, t->length[i]) == 0) {
            *length = t->length[i];
            best = (uint32_t)i;
        }
    return best;
}

size_t gpt_text_tokens(const gpt_tokenizer *t, const char *text, uint32_t *out, size_t room)
{
    size_t n = 0, length = 1;

    while (*text != '\0' || n == 0) {
        uint32_t token = t->end;

        if (*text != '\0')
            token = t->file == NULL ? (uint8_t)*text : longest(t, text, &length);
        if (n < room)
            out[n] = token;
        n++;
        if (*text != '\0')
            text += length > 0 ? length : 1;
    }
    return n;
}
