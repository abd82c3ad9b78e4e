/* What a run is made of, for those who read its log later. */
#ifndef GPT_RECORD_H
#define GPT_RECORD_H

#include <stdio.h>

#include "preflight.h"

typedef struct gpt_record {
    const gpt_options *options;
    const gpt_choice *choice;
    const char *data; /* its name */
    size_t train_tokens, val_tokens;
    int ranks, threads;       /* threads per rank */
    const gpt_memory *memory; /* [ranks] */
    gpt_memory unsharded;     /* what each rank would have without sharding */
} gpt_record;

/* One JSON object in one line; free() it.  NULL if there is no memory. */
char *gpt_record_json(const gpt_record *record);

/* A string of JSON; bytes that are no UTF-8 become question marks. */
void gpt_json_string(FILE *f, const char *text);

#endif
