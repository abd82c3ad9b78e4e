/* The record of a run: see record.h. */
#include "record.h"

#include <stdlib.h>
#include <string.h>

/* The length of the UTF-8 sequence at `s`; 0: there is none. */
static size_t sequence(const unsigned char *s)
{
    size_t n = *s < 0x80 ? 1 : *s < 0xc2 ? 0 : *s < 0xe0 ? 2 : *s < 0xf0 ? 3 : *s < 0xf5 ? 4 : 0;

    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if (n < 3)
        return n;
    /* Too long for what they say, halves of UTF-16, and what is beyond Unicode. */
    if ((*s == 0xe0 && s[1] < 0xa0) || (*s == 0xed && s[1] > 0x9f) || (*s == 0xf0 && s[1] < 0x90)
        || (*s == 0xf4 && s[1] > 0x8f))
        return 0;
    return n;
}

void gpt_json_string(FILE *f, const char *text)
{
    putc('"', f);
    for (const unsigned char *s = (const unsigned char *)text; *s != '\0';) {
        size_t n = sequence(s);

        if (n == 0)
            putc('?', f);
        else if (*s < ' ' || *s == '"' || *s == '\\')
            fprintf(f, "\\u%04x", *s);
        else
            fwrite(s, 1, n, f);
        s += n == 0 ? 1 : n;
    }
    putc('"', f);
}

static void put_count(FILE *f, const char *name, size_t value)
{
    fprintf(f, ",\"%s\":%zu", name, value);
}

static void put_memory(FILE *f, const gpt_memory *m)
{
    fprintf(f, "{\"parameters\":%.0f,\"gradients\":%.0f,\"optimizer\":%.0f,\"activations\":%.0f}", m->params, m->grads,
            m->state, m->activations);
}

static void put_record(FILE *f, const gpt_record *r)
{
    const gpt_config *m = &r->choice->config;

    fprintf(f, "{\"version\":\"%s\"", zro_version());
    put_count(f, "ranks", (size_t)r->ranks);
    put_count(f, "threads", (size_t)r->threads);
    put_count(f, "parameters", gpt_elements(m));
    put_count(f, "layers", m->layers);
    put_count(f, "heads", m->heads);
    put_count(f, "width", m->width);
    put_count(f, "context", m->context);
    put_count(f, "vocabulary", m->vocab);
    fputs(",\"data\":", f);
    gpt_json_string(f, r->data);
    put_count(f, "train_tokens", r->train_tokens);
    put_count(f, "val_tokens", r->val_tokens);
    put_count(f, "tokens_per_step", (size_t)r->ranks * r->options->batch * r->options->accumulate * r->choice->tokens);
    fprintf(f, ",\"lr\":%.17g,\"options\":", r->choice->lr);
    gpt_options_json(r->options, f);
    fputs(",\"memory\":[", f);
    for (int i = 0; i < r->ranks; i++) {
        fputs(i == 0 ? "" : ",", f);
        put_memory(f, &r->memory[i]);
    }
    fputs("],\"memory_unsharded\":", f);
    put_memory(f, &r->unsharded);
    putc('}', f);
}

char *gpt_record_json(const gpt_record *r)
{
    char *text = NULL;
    size_t length;
    FILE *f = open_memstream(&text, &length);
    int bad;

    if (f == NULL)
        return NULL;
    put_record(f, r);
    bad = ferror(f);
    if (fclose(f) == 0 && !bad)
        return text;
    free(text);
    return NULL;
}
