/* The command line of `zro train`: what can be chosen, and what follows from it without ranks. */
#ifndef GPT_OPTIONS_H
#define GPT_OPTIONS_H

#include <stdio.h>

#include "model.h"

enum { GPT_MOST_VALUES = 16 };

typedef enum gpt_schedule { GPT_CONSTANT = 0, GPT_LINEAR = 1, GPT_COSINE = 2 } gpt_schedule;

typedef struct gpt_options {
    size_t ranks; /* 0: not given */
    const char *data, *tokenizer;
    double val_fraction;
    size_t shuffle; /* a switch, as are sharding, resume and hash */
    const char *model;
    size_t batch, tokens, accumulate, steps; /* tokens 0: the model's context */
    const char *rule;
    double lr; /* 0: the model's */
    size_t schedule;
    size_t warmup, decay_steps;
    double min_lr;
    double weight_decay; /* negative: the rule's */
    zro_value values[GPT_MOST_VALUES];
    size_t n_values;
    double clip;
    size_t precision, partition, overlap, sharding; /* words by their place; overlap as zro_overlap */
    size_t seed, threads;
    size_t eval_every, eval_batches;
    const char *log, *out, *init, *trace;
    size_t save_every, resume, hash;
    size_t sample;
    const char *prompt;
    uint64_t given; /* which options are on the command line, a bit for each in their order */
} gpt_options;

/* Reads the arguments.  Returns 0; or 1 if help was asked for and printed; or 2 with a message on standard error. */
int gpt_options_read(int argc, char **argv, gpt_options *options);

/* All options as one JSON object, by their names without the dashes; those that were left to the program are not in it. */
void gpt_options_json(const gpt_options *options, FILE *f);

/* The options that all ranks must have alike, a line for each: the name, a blank, and the value, or whether it is given. */
void gpt_options_lines(const gpt_options *options, FILE *f);

/* The options that go with a run when it is resumed.  `value`: what the optimizer's groups call it; NULL: it is not in them. */
enum { GPT_KEPT = 10 };
typedef struct gpt_kept_option {
    const char *option, *value;
} gpt_kept_option;
extern const gpt_kept_option gpt_kept[GPT_KEPT];

/* A kept option as a number (of words their place); NaN: it is left to the program. */
double gpt_options_get(const gpt_options *options, const char *option);

/* Sets a kept option to the number with which the run in --out was saved.
 *
 * INVALID  it was given with another value; the text has both */
ZRO_MUST zro_status gpt_options_keep(gpt_options *options, const char *option, double saved);

/* What the options mean: the model with its vocabulary unset, the element type of parameters, the rule, the partition.
 *
 * INVALID  there is no such model or rule, or the rule has no such value; the text says which there are */
typedef struct gpt_choice {
    gpt_config config;
    zro_dtype dtype;
    const zro_rule *rule;
    zro_partition partition;
    zro_value matrix_values[GPT_MOST_VALUES + 2]; /* of the group of matrices; lr and weight_decay among them */
    zro_value vector_values[GPT_MOST_VALUES + 2]; /* of the group of vectors, which do not decay */
    size_t n_values;
    double lr;
    size_t tokens;
    size_t state_per_element; /* bytes of slots and masters */
} gpt_choice;
ZRO_MUST zro_status gpt_options_resolve(const gpt_options *options, gpt_choice *choice);

/* What the learning rate is multiplied with in a step, counted from 0. */
double gpt_lr_factor(const gpt_options *options, double lr, uint64_t step);

#endif
