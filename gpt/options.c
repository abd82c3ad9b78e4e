/* The command line: see options.h.  One row per option says how it is read and what help prints. */
#include "options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "record.h"

typedef enum kind { TEXT, COUNT, REAL, WORD, FLAG, VALUE } kind;

typedef struct row {
    const char *name, *argument, *help;
    kind kind;
    size_t offset;     /* of the field */
    double low, high;  /* of COUNT and REAL */
    const char *words; /* of WORD: separated by |, by their place */
} row;

#define FIELD(name) offsetof(gpt_options, name)

static const double BIG = 1e15;

static const row rows[] = {
    { "--ranks", "N", "start N local ranks; without it, join those of zro run or mpirun, or train alone", COUNT, FIELD(ranks),
      1, 1024, NULL },
    { "--model", "NAME", "nano, micro, mini or gpt2 (124M); default: micro", TEXT, FIELD(model), 0, 0, NULL },
    { "--data", "FILE", "any file as bytes, or llm.c's token file; default: a text that is compiled in", TEXT, FIELD(data), 0,
      0, NULL },
    { "--tokenizer", "FILE", "llm.c's tokenizer file, to print samples of GPT-2's tokens", TEXT, FIELD(tokenizer), 0, 0, NULL },
    { "--val-fraction", "X", "the last part of the data, for validation; default: 0.1", REAL, FIELD(val_fraction), 0, 0.9,
      NULL },
    { "--shuffle", "on|off", "windows of the data in random order, or one after another; default: on", WORD, FIELD(shuffle), 0,
      0, "off|on" },
    { "--init", "DIR", "begin with the weights in DIR (Hugging Face's GPT-2, or --out of another run)", TEXT, FIELD(init), 0, 0,
      NULL },
    { "--steps", "N", "train until step N; default: 200", COUNT, FIELD(steps), 1, BIG, NULL },
    { "--batch", "N", "sequences per rank and micro-batch; default: 8", COUNT, FIELD(batch), 1, 1 << 20, NULL },
    { "--accumulate", "N", "micro-batches per step; default: 1", COUNT, FIELD(accumulate), 1, 1 << 20, NULL },
    { "--tokens", "N", "tokens per sequence; default: the model's context", COUNT, FIELD(tokens), 1, 1 << 20, NULL },
    { "--rule", "NAME", "update rule: adamw (default), adam, sgd, ...", TEXT, FIELD(rule), 0, 0, NULL },
    { "--lr", "X", "learning rate; default: the model's", REAL, FIELD(lr), 1e-12, 1e6, NULL },
    { "--weight-decay", "X", "of matrices (vectors do not decay); default: the rule's", REAL, FIELD(weight_decay), 0, 1e6,
      NULL },
    { "--value", "NAME=X", "another value of the rule, such as beta2=0.95; may be given several times", VALUE, 0, 0, 0, NULL },
    { "--schedule", "NAME", "constant (default), linear or cosine", WORD, FIELD(schedule), 0, 0, "constant|linear|cosine" },
    { "--warmup", "N", "steps in which the learning rate rises; default: 0", COUNT, FIELD(warmup), 0, BIG, NULL },
    { "--decay-steps", "N", "the step at which linear and cosine have come to --min-lr; default: --steps", COUNT,
      FIELD(decay_steps), 1, BIG, NULL },
    { "--min-lr", "X", "default: 0", REAL, FIELD(min_lr), 0, 1e6, NULL },
    { "--clip", "X", "largest norm of the gradients; 0: no clipping, and the norm is not measured; default: 1", REAL,
      FIELD(clip), 0, 1e9, NULL },
    { "--precision", "f32|bf16", "of parameters; bf16 ones have f32 masters; default: f32", WORD, FIELD(precision), 0, 0,
      "f32|bf16" },
    { "--partition", "NAME", "how state is divided: flat (default), greedy or buckets", WORD, FIELD(partition), 0, 0,
      "flat|greedy|buckets" },
    { "--overlap", "NAME", "updates during backward: off (default), after-last or interleaved", WORD, FIELD(overlap), 0, 0,
      "off|after-last|interleaved" },
    { "--sharding", "on|off", "off: each rank keeps all of the optimizer's state; default: on", WORD, FIELD(sharding), 0, 0,
      "off|on" },
    { "--seed", "N", "of first values and of the order of the data; default: 1", COUNT, FIELD(seed), 0, BIG, NULL },
    { "--threads", "N", "per rank; default: the rank's share of the processors", COUNT, FIELD(threads), 1, 256, NULL },
    { "--eval-every", "N", "steps between validations; 0: only at the end; default: 100", COUNT, FIELD(eval_every), 0, BIG,
      NULL },
    { "--eval-batches", "N", "batches per rank of a validation; 0: none; default: 4", COUNT, FIELD(eval_batches), 0, 1e9,
      NULL },
    { "--log", "FILE", "one JSON object per step, for zro report; default: log.jsonl in --out", TEXT, FIELD(log), 0, 0, NULL },
    { "--trace", "FILE", "what every rank did when, for ui.perfetto.dev", TEXT, FIELD(trace), 0, 0, NULL },
    { "--out", "DIR", "write weights and state there at the end", TEXT, FIELD(out), 0, 0, NULL },
    { "--save-every", "N", "and every N steps", COUNT, FIELD(save_every), 1, BIG, NULL },
    { "--resume", NULL, "go on with the run in --out", FLAG, FIELD(resume), 0, 0, NULL },
    { "--hash", NULL, "the hash of all parameters in every line", FLAG, FIELD(hash), 0, 0, NULL },
    { "--sample", "N", "at the end let the model write N tokens", COUNT, FIELD(sample), 0, 1e6, NULL },
    { "--prompt", "TEXT", "what the sample begins with", TEXT, FIELD(prompt), 0, 0, NULL },
};
enum { N_ROWS = sizeof rows / sizeof *rows };
_Static_assert(N_ROWS <= 64, "gpt_options.given has a bit for each");

/* Options that rank 0 alone uses, or of which each rank may have its own. */
static const char *const may_differ[] = { "--ranks", "--data",  "--tokenizer", "--init",   "--threads",
                                          "--log",   "--trace", "--hash",      "--sample", "--prompt" };

const gpt_kept_option gpt_kept[GPT_KEPT] = {
    { "--val-fraction", NULL }, { "--shuffle", NULL },
    { "--seed", NULL },         { "--schedule", NULL },
    { "--warmup", NULL },       { "--decay-steps", NULL },
    { "--min-lr", NULL },       { "--clip", NULL },
    { "--lr", "initial_lr" },   { "--weight-decay", "weight_decay" },
};

static int usage(const char *format, const char *a, const char *b)
{
    fputs("zro train: ", stderr);
    fprintf(stderr, format, a, b);
    fputs("\nTry `zro train --help`.\n", stderr);
    return 2;
}

static int help(void)
{
    puts("usage: zro train [OPTIONS]\n"
         "\n"
         "Trains a GPT on local ranks, the optimizer's state divided over them.  Ctrl-C ends all ranks after the step, and "
         "saves.\n");
    for (size_t i = 0; i < N_ROWS; i++)
        printf("  %-15s %-9s %s\n", rows[i].name, rows[i].argument == NULL ? "" : rows[i].argument, rows[i].help);
    puts(
        "  -n              N         the same as --ranks\n"
        "\n"
        "A step takes ranks x batch x accumulate sequences.  --resume needs --model, --rule, --data, --tokens and --precision\n"
        "of the first run, and takes over how it learns; another number of ranks is fine if that product stays.\n"
        "Exit status: 0 if all went well, also after a signal; 1 if not; 2 if the options are wrong.\n"
        "\n"
        "More: man zro-train");
    return 1;
}

static int read_number(const row *r, const char *text, double *out)
{
    char range[120];
    char *end;

    errno = 0;
    *out = strtod(text, &end);
    if (errno == 0 && end != text && *end == '\0' && *out >= r->low && *out <= r->high
        && (r->kind == REAL || *out == floor(*out)))
        return 0;
    snprintf(range, sizeof range, "%s: must be a %snumber from %g to %g", r->name, r->kind == COUNT ? "whole " : "", r->low,
             r->high);
    return usage("%2$s, not \"%1$s\"", text, range);
}

/* The place of a word among words that are separated by |. */
static int read_word(const row *r, const char *text, size_t *out)
{
    const char *at = r->words;
    size_t length = strlen(text);
    char choices[120];

    for (*out = 0; at != NULL; ++*out) {
        const char *next = strchr(at, '|');

        if (length > 0 && strncmp(at, text, length) == 0 && (at[length] == '\0' || at[length] == '|'))
            return 0;
        at = next == NULL ? NULL : next + 1;
    }
    snprintf(choices, sizeof choices, "%s: must be one of %s", r->name, r->words);
    return usage("%2$s, not \"%1$s\"", text, choices);
}

/* NAME=NUMBER; the name is copied. */
static int read_value(gpt_options *o, const char *text)
{
    const char *equals = strchr(text, '=');
    char *name, *end;
    double number;

    if (equals == NULL || equals == text || o->n_values == GPT_MOST_VALUES)
        return usage("--value: must be NAME=NUMBER, at most 16 times, not \"%s\"%s", text, "");
    number = strtod(equals + 1, &end);
    if (end == equals + 1 || *end != '\0')
        return usage("--value: \"%s\" has no number behind the =%s", text, "");
    name = strndup(text, (size_t)(equals - text)); /* as long as the program */
    if (name == NULL)
        return usage("no memory for %s%s", text, "");
    o->values[o->n_values++] = (zro_value){ name, number };
    return 0;
}

static int read_row(const row *r, const char *text, gpt_options *o)
{
    char *field = (char *)o + r->offset;
    double number;
    int bad;

    switch (r->kind) {
    case TEXT:
        *(const char **)(void *)field = text;
        if (*text == '\0' && r->offset != FIELD(prompt))
            return usage("%s: must not be empty%s", r->name, "");
        return 0;
    case WORD:
        return read_word(r, text, (size_t *)(void *)field);
    case FLAG:
        *(size_t *)(void *)field = 1;
        return 0;
    case VALUE:
        return read_value(o, text);
    default:
        bad = read_number(r, text, &number);
        if (!bad && r->kind == COUNT)
            *(size_t *)(void *)field = (size_t)number;
        else if (!bad)
            *(double *)(void *)field = number;
        return bad;
    }
}

/* The row of an option; *text is what stands behind its "=", or NULL. */
static const row *find_row(const char *argument, const char **text)
{
    size_t length = strcspn(argument, "=");

    *text = argument[length] == '=' ? argument + length + 1 : NULL;
    if (strcmp(argument, "-n") == 0)
        return &rows[0];
    for (size_t i = 0; i < N_ROWS; i++)
        if (strlen(rows[i].name) == length && strncmp(rows[i].name, argument, length) == 0)
            return &rows[i];
    return NULL;
}

static int check_together(const gpt_options *o)
{
    if (o->resume && o->out == NULL)
        return usage("--resume needs --out, the folder of the run%s%s", "", "");
    if (o->save_every > 0 && o->out == NULL)
        return usage("--save-every needs --out, the folder to save in%s%s", "", "");
    if (o->resume && o->init != NULL)
        return usage("--resume and --init: a run goes on, or begins with other weights%s%s", "", "");
    if (o->overlap != ZRO_OVERLAP_OFF && !o->sharding)
        return usage("--overlap needs --sharding on: only a sharded optimizer updates during backward%s%s", "", "");
    if (o->decay_steps > 0 && o->schedule == GPT_CONSTANT && !o->resume)
        return usage("--decay-steps needs --schedule linear or cosine%s%s", "", "");
    return 0;
}

int gpt_options_read(int argc, char **argv, gpt_options *o)
{
    *o = (gpt_options){ .model = "micro",
                        .val_fraction = 0.1,
                        .shuffle = 1,
                        .steps = 200,
                        .batch = 8,
                        .accumulate = 1,
                        .rule = "adamw",
                        .weight_decay = -1,
                        .clip = 1,
                        .sharding = 1,
                        .seed = 1,
                        .eval_every = 100,
                        .eval_batches = 4,
                        .prompt = "" };
    for (int i = 1; i < argc; i++) {
        const char *text;
        const row *r = find_row(argv[i], &text);
        int bad;

        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return help();
        if (r == NULL)
            return usage("there is no option \"%s\"%s", argv[i], "");
        if (r->kind == FLAG && text != NULL)
            return usage("%s has no value%s", r->name, "");
        if (r->kind != FLAG && text == NULL) {
            if (i + 1 == argc)
                return usage("%s needs a value%s", argv[i], "");
            text = argv[++i];
        }
        bad = read_row(r, text, o);
        if (bad)
            return bad;
        o->given |= UINT64_C(1) << (r - rows);
    }
    return check_together(o);
}

/* ---- for the log ---- */

/* The fewest digits, of 15 or 17, that give the same number again. */
static void put_real(double value, FILE *f)
{
    char text[40];

    snprintf(text, sizeof text, "%.15g", value);
    if (strtod(text, NULL) != value)
        snprintf(text, sizeof text, "%.17g", value);
    fputs(isfinite(value) ? text : "null", f);
}

/* The values that were given one by one. */
static void put_values(const gpt_options *o, FILE *f)
{
    for (size_t i = 0; i < o->n_values; i++) {
        fputs(i == 0 ? "{" : ",", f);
        gpt_json_string(f, o->values[i].name);
        putc(':', f);
        put_real(o->values[i].value, f);
    }
    fputs(o->n_values == 0 ? "{}" : "}", f);
}

/* Whether an option has a value; where the program chooses, numbers are out of their range. */
static int is_set(const row *r, const gpt_options *o)
{
    const void *field = (const char *)o + r->offset;
    double number;

    if (r->kind == TEXT)
        return *(const char *const *)field != NULL;
    if (r->kind != COUNT && r->kind != REAL)
        return 1;
    number = r->kind == REAL ? *(const double *)field : (double)*(const size_t *)field;
    return number >= r->low && number <= r->high;
}

static void put_option(const row *r, const gpt_options *o, FILE *f)
{
    const void *field = (const char *)o + r->offset;
    const char *word = r->words;

    switch (r->kind) {
    case TEXT:
        gpt_json_string(f, *(const char *const *)field);
        break;
    case COUNT:
        fprintf(f, "%zu", *(const size_t *)field);
        break;
    case REAL:
        put_real(*(const double *)field, f);
        break;
    case WORD:
        for (size_t i = *(const size_t *)field; i > 0; i--)
            word = strchr(word, '|') + 1;
        fprintf(f, "\"%.*s\"", (int)strcspn(word, "|"), word);
        break;
    case FLAG:
        fputs(*(const size_t *)field ? "true" : "false", f);
        break;
    case VALUE:
        put_values(o, f);
        break;
    }
}

void gpt_options_json(const gpt_options *o, FILE *f)
{
    const char *before = "{";

    for (size_t i = 0; i < N_ROWS; i++) {
        if (!is_set(&rows[i], o))
            continue;
        fprintf(f, "%s\"%s\":", before, rows[i].name + 2);
        put_option(&rows[i], o, f);
        before = ",";
    }
    putc('}', f);
}

/* ---- for other ranks ---- */

static int is_compared(const row *r)
{
    for (size_t i = 0; i < sizeof may_differ / sizeof *may_differ; i++)
        if (strcmp(may_differ[i], r->name) == 0)
            return 0;
    return 1;
}

void gpt_options_lines(const gpt_options *o, FILE *f)
{
    for (size_t i = 0; i < N_ROWS; i++) {
        if (!is_compared(&rows[i]))
            continue;
        fprintf(f, "%s ", rows[i].name);
        if (!is_set(&rows[i], o))
            fputs("not given", f);
        else if (rows[i].offset == FIELD(out)) /* rank 0 alone writes there */
            fputs("given", f);
        else
            put_option(&rows[i], o, f);
        putc('\n', f);
    }
}

/* ---- for a run that goes on ---- */

double gpt_options_get(const gpt_options *o, const char *option)
{
    const char *text;
    const row *r = find_row(option, &text);
    const void *field = (const char *)o + r->offset;

    if (!is_set(r, o))
        return NAN;
    return r->kind == REAL ? *(const double *)field : (double)*(const size_t *)field;
}

/* Puts a number into the field of a COUNT, REAL or WORD. */
static void set_number(const row *r, gpt_options *o, double number)
{
    char *field = (char *)o + r->offset;

    if (r->kind == REAL)
        *(double *)(void *)field = number;
    else
        *(size_t *)(void *)field = (size_t)number;
}

/* A number as the command line has it. */
static void number_text(const row *r, double number, char *text, size_t bytes)
{
    const char *word = r->words;

    if (r->kind != WORD) {
        snprintf(text, bytes, "%.10g", number);
        return;
    }
    for (size_t i = (size_t)number; i > 0; i--)
        word = strchr(word, '|') + 1;
    snprintf(text, bytes, "%.*s", (int)strcspn(word, "|"), word);
}

/* A number that a damaged file may have, and no command line. */
static int is_possible(const row *r, double number)
{
    double last = 0;

    if (r->kind == REAL)
        return number >= 0 && number <= BIG;
    if (number != floor(number) || number < 0)
        return 0;
    for (const char *at = r->words; r->kind == WORD && (at = strchr(at, '|')) != NULL; at++)
        last++;
    return number <= (r->kind == WORD ? last : BIG);
}

zro_status gpt_options_keep(gpt_options *o, const char *option, double saved)
{
    const char *unused;
    const row *r = find_row(option, &unused);
    double now = gpt_options_get(o, option);
    char text[2][40];

    if (!is_possible(r, saved))
        return gpt_fail(ZRO_ERR_FORMAT, "--resume: the state in %s says that %s was %g, which cannot be: it is damaged", o->out,
                        option, saved);
    if ((o->given >> (r - rows) & 1) != 0 && now != saved) {
        number_text(r, now, text[0], sizeof text[0]);
        number_text(r, saved, text[1], sizeof text[1]);
        return gpt_fail(ZRO_ERR_INVALID,
                        "--resume: %s %s was given, but the run in %s has %s: leave the option out, or begin another run",
                        option, text[0], o->out, text[1]);
    }
    set_number(r, o, saved);
    return ZRO_OK;
}

/* ---- what they mean ---- */

/* Learning rates of AdamW with which the presets learn well. */
static double usual_lr(const char *model)
{
    static const struct {
        const char *model;
        double lr;
    } usual[] = { { "nano", 3e-3 }, { "micro", 2e-3 }, { "mini", 1e-3 }, { "gpt2", 6e-4 } };

    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (strcmp(usual[i].model, model) == 0)
            return usual[i].lr;
    return 1e-3;
}

/* Whether a value of the rule has an option of its own. */
static int has_option(const char *value)
{
    return strcmp(value, "lr") == 0 || strcmp(value, "weight_decay") == 0;
}

static int has_value(const zro_rule *rule, const char *name)
{
    for (size_t i = 0; i < rule->n_hypers; i++)
        if (strcmp(rule->hypers[i].name, name) == 0)
            return 1;
    return 0;
}

/* The values that --value can set, for a text: " beta1 beta2". */
static const char *settable_values(const zro_rule *rule, char *text, size_t bytes)
{
    text[0] = '\0';
    for (size_t i = 0; i < rule->n_hypers && strlen(text) + 64 < bytes; i++)
        if (!has_option(rule->hypers[i].name))
            snprintf(text + strlen(text), bytes - strlen(text), " %.60s", rule->hypers[i].name);
    return text;
}

static zro_status choose_values(const gpt_options *o, gpt_choice *c)
{
    const zro_value lr = { "lr", c->lr }, decay = { "weight_decay", o->weight_decay }, none = { "weight_decay", 0 };
    char known[256];
    size_t n = 0;

    c->matrix_values[n] = c->vector_values[n] = lr;
    n++;
    for (size_t i = 0; i < o->n_values; i++) {
        if (has_option(o->values[i].name))
            return gpt_fail(ZRO_ERR_INVALID, "--value %s: has an option of its own, --%s", o->values[i].name,
                            strcmp(o->values[i].name, "lr") == 0 ? "lr" : "weight-decay");
        if (!has_value(c->rule, o->values[i].name))
            return gpt_fail(ZRO_ERR_INVALID, "--value %s: %s has no such value; it has:%s", o->values[i].name, c->rule->name,
                            settable_values(c->rule, known, sizeof known));
        c->matrix_values[n] = c->vector_values[n] = o->values[i];
        n++;
    }
    if (o->weight_decay >= 0 && !has_value(c->rule, "weight_decay"))
        return gpt_fail(ZRO_ERR_INVALID, "--weight-decay: the rule %s has none", c->rule->name);
    c->n_values = n;
    if (!has_value(c->rule, "weight_decay"))
        return ZRO_OK;
    for (size_t i = 0; i < c->rule->n_hypers; i++)
        if (strcmp(c->rule->hypers[i].name, "weight_decay") == 0)
            c->matrix_values[n] = o->weight_decay >= 0 ? decay : (zro_value){ "weight_decay", c->rule->hypers[i].init };
    c->vector_values[n] = none;
    c->n_values++;
    return ZRO_OK;
}

/* Whether a slot is there with these values. */
static int slot_is_needed(const gpt_choice *c, const zro_slot_spec *slot)
{
    double value = 0;

    if (slot->only_with == NULL)
        return 1;
    for (size_t i = 0; i < c->rule->n_hypers; i++)
        if (strcmp(c->rule->hypers[i].name, slot->only_with) == 0)
            value = c->rule->hypers[i].init;
    for (size_t i = 0; i < c->n_values; i++)
        if (strcmp(c->matrix_values[i].name, slot->only_with) == 0)
            value = c->matrix_values[i].value;
    return value != 0;
}

/* Whether the rule takes these values: an optimizer of one element says so before anything is started. */
static zro_status try_values(const gpt_options *o, const gpt_choice *c)
{
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_param_group group = ZRO_PARAM_GROUP_INIT;
    zro_param param;
    zro_optim *optim;
    float data = 0, grad = 0;
    zro_status st;

    zro_param_make(&param, "one", ZRO_F32, &data, &grad, 1, (size_t[]){ 1 });
    group.params = &param;
    group.n = 1;
    group.values = c->matrix_values;
    group.n_values = c->n_values;
    config.clip_norm = o->clip;
    st = zro_optim_create(NULL, &group, 1, c->rule, NULL, &config, &optim);
    zro_optim_destroy(optim);
    return st;
}

zro_status gpt_options_resolve(const gpt_options *o, gpt_choice *c)
{
    static const zro_partition partitions[] = { ZRO_PARTITION_FLAT, ZRO_PARTITION_GREEDY, ZRO_PARTITION_BUCKETS };
    zro_status st;

    memset(c, 0, sizeof *c);
    if (!gpt_preset(o->model, &c->config))
        return gpt_fail(ZRO_ERR_INVALID, "--model: must be %s, not \"%s\"", gpt_preset_names(), o->model);
    c->tokens = o->tokens > 0 ? o->tokens : c->config.context;
    if (c->tokens > c->config.context)
        return gpt_fail(ZRO_ERR_INVALID, "--tokens %zu: the model %s has a context of %zu", c->tokens, o->model,
                        c->config.context);
    c->rule = zro_rule_find(o->rule);
    if (c->rule == NULL || c->rule == zro_rule_none())
        return gpt_fail(ZRO_ERR_INVALID,
                        "--rule: must be adamw, adam, sgd, adagrad, adadelta, adamax, rmsprop, rprop, asgd, nadam or radam, "
                        "not \"%s\"",
                        o->rule);
    c->dtype = o->precision == 1 ? ZRO_BF16 : ZRO_F32;
    c->partition = partitions[o->partition];
    c->lr = o->lr > 0 ? o->lr : usual_lr(o->model);
    if (o->min_lr > c->lr && !(o->resume && o->lr == 0)) /* which a resumed run takes from its state */
        return gpt_fail(ZRO_ERR_INVALID, "--min-lr %g is above the learning rate of %g: the schedule would raise it", o->min_lr,
                        c->lr);
    st = choose_values(o, c);
    if (st == ZRO_OK)
        st = try_values(o, c);
    if (st != ZRO_OK)
        return st;
    for (size_t i = 0; i < c->rule->n_slots; i++)
        if (c->rule->slots[i].kind == ZRO_SLOT_ARRAY && slot_is_needed(c, &c->rule->slots[i]))
            c->state_per_element += sizeof(float);
    if (c->dtype == ZRO_BF16)
        c->state_per_element += sizeof(float);
    return ZRO_OK;
}

double gpt_lr_factor(const gpt_options *o, double lr, uint64_t step)
{
    const double PI = 3.14159265358979323846;
    double least = o->min_lr / lr, end = (double)(o->decay_steps > 0 ? o->decay_steps : o->steps), part;

    if (step < o->warmup)
        return (double)(step + 1) / (double)o->warmup;
    part = ((double)step - (double)o->warmup) / fmax(1, end - (double)o->warmup);
    part = fmin(1, part);
    if (o->schedule == GPT_LINEAR)
        return least + (1 - least) * (1 - part);
    if (o->schedule == GPT_COSINE)
        return least + (1 - least) * 0.5 * (1 + cos(PI * part));
    return 1;
}
