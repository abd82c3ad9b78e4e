/* Writing: see generate.h. */
#include "generate.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

static size_t most_likely(const float *logits, size_t vocab)
{
    size_t best = 0;

    for (size_t i = 1; i < vocab; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

static int descending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x < y) - (x > y);
}

/* The k-th largest of the logits; without memory for a copy, all count. */
static float threshold(const float *logits, size_t vocab, size_t k)
{
    float *sorted = malloc(vocab * sizeof *sorted), result = -INFINITY;

    if (sorted == NULL)
        return result;
    memcpy(sorted, logits, vocab * sizeof *sorted);
    qsort(sorted, vocab, sizeof *sorted, descending);
    result = sorted[k - 1];
    free(sorted);
    return result;
}

uint32_t gpt_draw(float *logits, size_t vocab, double temperature, size_t top_k, double u)
{
    size_t best = most_likely(logits, vocab), last = best;
    float least = top_k > 0 && top_k < vocab ? threshold(logits, vocab, top_k) : -INFINITY, most = logits[best];
    double total = 0, sum = 0;

    if (temperature == 0)
        return (uint32_t)best;
    for (size_t i = 0; i < vocab; i++) {
        logits[i] = logits[i] < least ? 0 : (float)exp((double)(logits[i] - most) / temperature);
        total += (double)logits[i];
    }
    for (size_t i = 0; i < vocab; i++) {
        if (logits[i] == 0)
            continue;
        last = i;
        sum += (double)logits[i];
        if (u * total < sum)
            break;
    }
    return (uint32_t)last;
}

typedef struct writer {
    gpt_model *model;
    uint32_t *tokens; /* [context] what the model has in view */
    float *logits;    /* [vocab] */
    size_t n, read;   /* tokens in view, and how many of them the model has read */
} writer;

static void print_token(const gpt_tokenizer *tokenizer, uint32_t token, FILE *out)
{
    uint8_t text[255];

    fwrite(text, 1, gpt_token_text(tokenizer, token, text), out);
    fflush(out);
}

static zro_status write_on(writer *w, const gpt_config *config, const gpt_tokenizer *tokenizer, const gpt_generate_config *how,
                           FILE *out)
{
    for (size_t i = 0; i < how->tokens; i++) {
        zro_status st;

        if (w->n == config->context) {
            memmove(w->tokens, w->tokens + w->n / 2, (w->n - w->n / 2) * sizeof *w->tokens);
            w->n -= w->n / 2;
            w->read = 0;
        }
        st = gpt_read(w->model, w->tokens, w->read, w->n - w->read, w->logits);
        if (st != ZRO_OK)
            return st;
        w->read = w->n;
        w->tokens[w->n] = gpt_draw(w->logits, config->vocab, how->temperature, how->top_k, gpt_uniform(how->seed, 0, i));
        print_token(tokenizer, w->tokens[w->n], out);
        w->n++;
        if (ferror(out))
            return gpt_fail(ZRO_ERR_SYSTEM, "the text of the model cannot be written: %s", strerror(errno));
    }
    return ZRO_OK;
}

/* The prompt, or what fits of its end. */
static zro_status read_prompt(writer *w, const gpt_config *config, const gpt_tokenizer *tokenizer, const char *prompt)
{
    size_t n = gpt_text_tokens(tokenizer, prompt, NULL, 0), room = config->context - 1;
    uint32_t *all = malloc(n * sizeof *all);

    if (all == NULL)
        return gpt_fail(ZRO_ERR_MEMORY, "a prompt of %zu tokens", n);
    gpt_text_tokens(tokenizer, prompt, all, n);
    w->n = n < room ? n : room;
    memcpy(w->tokens, all + (n - w->n), w->n * sizeof *all);
    free(all);
    return ZRO_OK;
}

zro_status gpt_generate(const gpt_config *config, zro_param *params, const gpt_tokenizer *tokenizer,
                        const gpt_generate_config *how, FILE *out)
{
    writer w = { .tokens = malloc(config->context * sizeof *w.tokens), .logits = malloc(config->vocab * sizeof *w.logits) };
    zro_status st;

    if (config->context < 2)
        st = gpt_fail(ZRO_ERR_INVALID, "a model with a context of %zu token cannot write a text", config->context);
    else if (w.tokens == NULL || w.logits == NULL)
        st = gpt_fail(ZRO_ERR_MEMORY, "the logits of %zu tokens", config->vocab);
    else
        st = gpt_create(config, params, GPT_GENERATE, 1, config->context, &w.model);
    if (st == ZRO_OK)
        st = read_prompt(&w, config, tokenizer, how->prompt);
    if (st == ZRO_OK) {
        fputs(how->prompt, out);
        st = write_on(&w, config, tokenizer, how, out);
    }
    gpt_destroy(w.model);
    free(w.tokens);
    free(w.logits);
    return st;
}
