/* The files of gpt/: texts, tokens, weights; and what else of the trainer is a pure function. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "data.h"
#include "generate.h"
#include "options.h"
#include "preflight.h"
#include "progress.h"
#include "resume.h"
#include "tokenizer.h"
#include "weights.h"

static char folder[] = "/tmp/zro-gpt-XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[200];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const void *bytes, size_t n)
{
    FILE *f = fopen(in_folder(name), "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* ---- texts ---- */

static void bytes_are_tokens(void **state)
{
    gpt_data data;
    gpt_split train, val;
    uint32_t inputs[4], targets[4];

    (void)state;
    write_file("text", "abcdefghijklmnopqrst", 20);
    assert_int_equal(gpt_data_open(in_folder("text"), &data), ZRO_OK);
    assert_true(data.count == 20 && data.vocab == 256);
    gpt_data_split(&data, 0.25, &train, &val);
    assert_true(train.count == 15 && val.first == 15 && val.count == 5);
    assert_int_equal(gpt_windows(&train, 4), 3);
    assert_int_equal(gpt_windows(&train, 14), 1);
    assert_int_equal(gpt_windows(&train, 15), 0); /* the last token has no successor */
    gpt_window(&train, 4, 2, inputs, targets);
    assert_true(inputs[0] == 'i' && inputs[3] == 'l' && targets[0] == 'j' && targets[3] == 'm');
    gpt_window(&val, 4, 0, inputs, targets);
    assert_true(inputs[0] == 'p' && targets[3] == 't');
    gpt_data_close(&data);
    assert_int_equal(gpt_data_open(NULL, &data), ZRO_OK);
    assert_true(data.count > 100000 && data.bytes[0] != 0);
    gpt_data_close(&data);
    write_file("empty", "", 0);
    assert_int_equal(gpt_data_open(in_folder("empty"), &data), ZRO_ERR_INVALID);
    assert_int_equal(gpt_data_open(folder, &data), ZRO_ERR_INVALID);
}

static void token_files(void **state)
{
    struct {
        int32_t header[256];
        uint16_t tokens[5];
    } file = { .header = { 20240520, 1, 5 }, .tokens = { 1, 300, 50256, 7, 8 } };
    gpt_data data;

    (void)state;
    write_file("tokens", &file, 1024 + 10);
    assert_int_equal(gpt_data_open(in_folder("tokens"), &data), ZRO_OK);
    assert_true(data.count == 5 && data.vocab == 50257 && data.tokens[2] == 50256);
    gpt_data_close(&data);
    write_file("tokens", &file, 1024 + 8);
    assert_int_equal(gpt_data_open(in_folder("tokens"), &data), ZRO_ERR_FORMAT);
    file.tokens[3] = 50257;
    write_file("tokens", &file, 1024 + 10);
    assert_int_equal(gpt_data_open(in_folder("tokens"), &data), ZRO_ERR_FORMAT);
    assert_non_null(strstr(zro_last_error(), "token 3 is 50257"));
    file.header[1] = 2;
    write_file("tokens", &file, 1024 + 10);
    assert_int_equal(gpt_data_open(in_folder("tokens"), &data), ZRO_ERR_FORMAT);
    assert_non_null(strstr(zro_last_error(), "version 2"));
    file.header[1] = 1;
    file.header[2] = -5;
    write_file("tokens", &file, 1024);
    assert_int_equal(gpt_data_open(in_folder("tokens"), &data), ZRO_ERR_FORMAT);
    assert_non_null(strstr(zro_last_error(), "the header says -5 tokens, must be 0 or more"));
}

/* Ranks compare their data by it: every token counts, also those behind the last whole word. */
static void hashes_tell_texts_apart(void **state)
{
    char text[] = "abcdefghijklmnopqrs";
    gpt_data data;
    uint64_t first, hash;

    (void)state;
    write_file("text", text, 19);
    assert_int_equal(gpt_data_open(in_folder("text"), &data), ZRO_OK);
    first = gpt_data_hash(&data);
    gpt_data_close(&data);
    for (size_t i = 0; i <= 19; i++) {
        if (i < 19)
            text[i]++;
        write_file("text", text, i < 19 ? 19 : 18);
        assert_int_equal(gpt_data_open(in_folder("text"), &data), ZRO_OK);
        hash = gpt_data_hash(&data);
        gpt_data_close(&data);
        assert_true(hash != first);
        if (i < 19)
            text[i]--;
    }
}

/* ---- tokens ---- */

static void tokenizer_files(void **state)
{
    uint8_t file[1024 + 20] = { 0 };
    const int32_t header[4] = { 20240328, 2, 4, 3 };
    const char tokens[] = "\1a\1b\2ab\5<end>";
    gpt_tokenizer t;
    uint32_t out[8];
    uint8_t text[255];
    size_t n = sizeof tokens - 1;

    (void)state;
    memcpy(file, header, sizeof header);
    memcpy(file + 1024, tokens, n);
    write_file("tokenizer", file, 1024 + n);
    assert_int_equal(gpt_tokenizer_open(in_folder("tokenizer"), 4, &t), ZRO_OK);
    assert_int_equal(gpt_text_tokens(&t, "aabb", out, 8), 3);
    assert_true(out[0] == 0 && out[1] == 2 && out[2] == 1);
    assert_true(gpt_text_tokens(&t, "", out, 8) == 1 && out[0] == 3);
    assert_true(gpt_token_text(&t, 3, text) == 5 && memcmp(text, "<end>", 5) == 0);
    assert_int_equal(gpt_token_text(&t, 4, text), 0);
    gpt_tokenizer_close(&t);
    assert_int_equal(gpt_tokenizer_open(in_folder("tokenizer"), 3, &t), ZRO_ERR_INVALID);
    assert_non_null(strstr(zro_last_error(), "has 4 tokens, but the model has 3"));
    file[12] = 4; /* the token that ends a text */
    write_file("tokenizer", file, 1024 + n);
    assert_int_equal(gpt_tokenizer_open(in_folder("tokenizer"), 4, &t), ZRO_ERR_FORMAT);
    assert_non_null(strstr(zro_last_error(), "the token that ends a text is 4, must be below the 4 tokens"));
    file[12] = 3;
    write_file("tokenizer", file, 1024 + n - 1);
    assert_int_equal(gpt_tokenizer_open(in_folder("tokenizer"), 4, &t), ZRO_ERR_FORMAT);
    write_file("tokenizer", file, 900);
    assert_int_equal(gpt_tokenizer_open(in_folder("tokenizer"), 4, &t), ZRO_ERR_FORMAT);
    assert_int_equal(gpt_tokenizer_open(NULL, 256, &t), ZRO_OK);
    assert_true(gpt_text_tokens(&t, "\xc3\xa9", out, 1) == 2 && out[0] == 0xc3);
    gpt_tokenizer_close(&t);
}

/* Probabilities 0.5, 0.3 and 0.2: u decides by their sums. */
static void draws(void **state)
{
    const float logits[3] = { -1.2039728f, -0.6931472f, -1.6094379f };
    const struct {
        double temperature, u;
        size_t top_k, token;
    } cases[] = { { 1, 0, 0, 0 },    { 1, 0.29, 0, 0 }, { 1, 0.31, 0, 1 },  { 1, 0.79, 0, 1 },
                  { 1, 0.81, 0, 2 }, { 0, 0.99, 0, 1 }, { 1, 0.999, 2, 1 }, { 1, 0.37, 2, 0 },
                  { 1, 0.38, 2, 1 }, { 1, 0.0, 1, 1 },  { 1e-3, 0.9, 0, 1 } };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float copy[3];

        memcpy(copy, logits, sizeof copy);
        assert_int_equal(gpt_draw(copy, 3, cases[i].temperature, cases[i].top_k, cases[i].u), cases[i].token);
    }
}

/* ---- weights ---- */

static const gpt_config SMALL = { .vocab = 11, .context = 6, .layers = 2, .heads = 2, .width = 4 };

typedef struct model {
    zro_param params[28];
    char names[28][GPT_NAME_BYTES];
    size_t n;
} model;

static void make(model *m, const gpt_config *config, zro_dtype dtype)
{
    m->n = gpt_params(config);
    assert_int_equal(m->n, 28);
    gpt_describe(config, dtype, m->params, m->names);
    for (size_t i = 0; i < m->n; i++)
        m->params[i].data = calloc(zro_param_count(&m->params[i]), 4);
}

static void drop(model *m)
{
    for (size_t i = 0; i < m->n; i++)
        free(m->params[i].data);
}

static void weights_come_back(void **state)
{
    model m, same, half;
    gpt_config config, other = SMALL;

    (void)state;
    make(&m, &SMALL, ZRO_F32);
    make(&same, &SMALL, ZRO_F32);
    make(&half, &SMALL, ZRO_BF16);
    assert_int_equal(gpt_init(&SMALL, m.params, 3), ZRO_OK);
    assert_int_equal(gpt_weights_write(folder, &SMALL, m.params), ZRO_OK);
    assert_int_equal(gpt_weights_config(folder, &config), ZRO_OK);
    assert_memory_equal(&config, &SMALL, sizeof config);
    assert_int_equal(gpt_weights_read(in_folder("model.safetensors"), same.params, same.n), ZRO_OK);
    assert_int_equal(gpt_weights_read(in_folder("model.safetensors"), half.params, half.n), ZRO_OK);
    for (size_t i = 0; i < m.n; i++) {
        size_t count = zro_param_count(&m.params[i]);
        uint16_t rounded;

        assert_memory_equal(m.params[i].data, same.params[i].data, count * 4);
        assert_int_equal(zro_convert(&rounded, ZRO_BF16, m.params[i].data, ZRO_F32, 1), ZRO_OK);
        assert_int_equal(*(uint16_t *)half.params[i].data, rounded);
    }
    other.width = 8;
    drop(&same);
    make(&same, &other, ZRO_F32);
    assert_int_equal(gpt_weights_check(in_folder("model.safetensors"), same.params, same.n), ZRO_ERR_INVALID);
    assert_non_null(strstr(zro_last_error(), "wte.weight is 11 x 4 there, and 11 x 8"));
    drop(&m);
    drop(&same);
    drop(&half);
}

/* Whatever a file has, the reader stays inside of it, and says what is wrong. */
static void damaged_weights(void **state)
{
    static const char *const headers[] = { "",
                                           "{",
                                           "{}}",
                                           "[]",
                                           "{\"wte.weight\"",
                                           "{\"wte.weight\":{",
                                           "{\"wte.weight\":{\"dtype\":\"F32\",\"shape\":[11,4],\"data_offsets\":[0,176]}",
                                           "{\"wte.weight\":{\"dtype\":\"F32\",\"shape\":[11,4],\"data_offsets\":[0,176]}}",
                                           "{\"wte.weight\":{\"dtype\":\"F32\",\"shape\":[11,4],\"data_offsets\":[8,4]}}",
                                           "{\"wte.weight\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999999]}}",
                                           "{\"__metadata__\":{\"a\":1}}",
                                           "{\"a\\" };
    model m;

    (void)state;
    make(&m, &SMALL, ZRO_F32);
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        char file[300] = { 0 };
        uint64_t length = strlen(headers[i]);

        memcpy(file, &length, 8);
        memcpy(file + 8, headers[i], length);
        write_file("bad", file, 8 + length + 20);
        assert_int_equal(gpt_weights_read(in_folder("bad"), m.params, m.n), ZRO_ERR_FORMAT);
    }
    assert_int_equal(gpt_weights_write(folder, &SMALL, m.params), ZRO_OK);
    assert_int_equal(truncate(in_folder("model.safetensors"), 4000), 0);
    assert_int_equal(gpt_weights_read(in_folder("model.safetensors"), m.params, m.n), ZRO_ERR_FORMAT);
    assert_non_null(strstr(zro_last_error(), "model.safetensors is cut off: "));
    write_file("bad", "\377\377\377\377\377\377\377\377{}", 10);
    assert_int_equal(gpt_weights_read(in_folder("bad"), m.params, m.n), ZRO_ERR_FORMAT);
    write_file("bad", "\2\0\0\0\0\0\0\0{}", 10);
    assert_int_equal(gpt_weights_read(in_folder("bad"), m.params, m.n), ZRO_ERR_INVALID);
    assert_non_null(strstr(zro_last_error(), "there is no wte.weight"));
    drop(&m);
}

/* The number of a layer does not wrap around to 0. */
static void too_many_layers(void **state)
{
    static const char header[] = "{\"wte.weight\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[0,4]},"
                                 "\"wpe.weight\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[0,4]},"
                                 "\"h.0.ln_1.weight\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                                 "\"h.18446744073709551615.ln_1.weight\":{\"dtype\":\"F32\",\"shape\":[1],"
                                 "\"data_offsets\":[0,4]}}";
    char file[500] = { 0 };
    uint64_t length = sizeof header - 1;
    gpt_config config;

    (void)state;
    memcpy(file, &length, 8);
    memcpy(file + 8, header, length);
    write_file("model.safetensors", file, 8 + length + 4);
    write_file("config.json", "{\"n_head\": 1}", 13);
    assert_int_equal(gpt_weights_config(folder, &config), ZRO_ERR_INVALID);
    assert_non_null(strstr(zro_last_error(), "the number of layers of the model is 18446744073709551615, must be"));
}

/* ---- the log ---- */

/* A run that is resumed begins a line of its own, whether the last one is whole or not. */
static void logs_are_not_glued(void **state)
{
    const struct {
        const char *before, *after;
    } cases[] = { { "", "" }, { "whole\n", "whole\n" }, { "cu", "cu\n" } };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gpt_progress p;
        char text[20] = "";
        FILE *f;

        write_file("text", cases[i].before, strlen(cases[i].before));
        assert_int_equal(gpt_progress_open(&p, in_folder("text"), ZRO_ON, 0, 1), ZRO_OK);
        fputs("next", p.log);
        assert_int_equal(gpt_progress_close(&p), ZRO_OK);
        f = fopen(in_folder("text"), "rb");
        assert_non_null(f);
        assert_true(fread(text, 1, sizeof text - 1, f) > 0);
        fclose(f);
        assert_memory_equal(text, cases[i].after, strlen(cases[i].after));
        assert_string_equal(text + strlen(cases[i].after), "next");
    }
}

/* ---- options ---- */

static void learning_rates(void **state)
{
    gpt_options o = { .steps = 100, .warmup = 10, .schedule = GPT_COSINE, .min_lr = 0.1 };

    (void)state;
    assert_true(fabs(gpt_lr_factor(&o, 1, 0) - 0.1) < 1e-12 && gpt_lr_factor(&o, 1, 9) == 1);
    assert_true(fabs(gpt_lr_factor(&o, 1, 55) - 0.55) < 1e-12 && fabs(gpt_lr_factor(&o, 1, 100) - 0.1) < 1e-12);
    o.schedule = GPT_LINEAR;
    o.decay_steps = 50;
    assert_true(fabs(gpt_lr_factor(&o, 1, 30) - 0.55) < 1e-12 && fabs(gpt_lr_factor(&o, 1, 90) - 0.1) < 1e-12);
    o.schedule = GPT_CONSTANT;
    assert_true(gpt_lr_factor(&o, 1, 99) == 1);
}

static void options_mean_what_they_say(void **state)
{
    char *args[] = {
        "zro-train", "--model=nano", "--rule", "sgd", "--value", "momentum=0.9", "--precision", "bf16", "-n", "3"
    };
    char *plain[] = { "zro-train", "--rule", "sgd" };
    gpt_options o;
    gpt_choice c;

    (void)state;
    assert_int_equal(gpt_options_read(10, args, &o), 0);
    assert_int_equal(gpt_options_resolve(&o, &c), ZRO_OK);
    assert_true(o.ranks == 3 && c.config.layers == 3 && c.tokens == 64 && c.dtype == ZRO_BF16);
    assert_int_equal(c.state_per_element, 8); /* momentum and masters */
    free((char *)(uintptr_t)o.values[0].name);
    assert_int_equal(gpt_options_read(3, plain, &o), 0);
    assert_int_equal(gpt_options_resolve(&o, &c), ZRO_OK);
    assert_int_equal(c.state_per_element, 0);
}

/* Whatever a rank would refuse is refused without ranks. */
static void values_out_of_range_are_refused(void **state)
{
    char *value[] = { "zro-train", "--value", "beta1=2" };
    char *above[] = { "zro-train", "--schedule", "cosine", "--lr", "0.1", "--min-lr", "0.2" };
    gpt_options o;
    gpt_choice c;

    (void)state;
    assert_int_equal(gpt_options_read(3, value, &o), 0);
    assert_int_equal(gpt_options_resolve(&o, &c), ZRO_ERR_INVALID);
    assert_non_null(strstr(zro_last_error(), "beta1 = 2"));
    free((char *)(uintptr_t)o.values[0].name);
    assert_int_equal(gpt_options_read(7, above, &o), 0);
    assert_int_equal(gpt_options_resolve(&o, &c), ZRO_ERR_INVALID);
    assert_non_null(strstr(zro_last_error(), "--min-lr 0.2 is above the learning rate of 0.1"));
    o.min_lr = 0.1;
    assert_int_equal(gpt_options_resolve(&o, &c), ZRO_OK);
}

/* Neither a save nor a log replaces a file that somebody else needs. */
static void files_of_others_stay(void **state)
{
    char *args[] = { "zro-train", "--model=nano", "--out", folder };
    char data[200], log[200];
    gpt_options o;
    gpt_choice c;
    gpt_data text;

    (void)state;
    unlink(in_folder("model.safetensors"));
    unlink(in_folder("state.safetensors"));
    write_file("config.json", "{}", 2);
    assert_int_equal(gpt_options_read(4, args, &o), 0);
    assert_int_equal(gpt_options_resolve(&o, &c), ZRO_OK);
    assert_int_equal(gpt_preflight(&o, &c, 1, &text), ZRO_ERR_STATE);
    assert_non_null(strstr(zro_last_error(), "has a config.json already"));
    unlink(in_folder("config.json"));
    assert_int_equal(gpt_preflight(&o, &c, 1, &text), ZRO_OK);
    gpt_data_close(&text);

    write_file("text", "text", 4);
    snprintf(data, sizeof data, "%s", in_folder("text"));
    snprintf(log, sizeof log, "%s", in_folder("log"));
    assert_int_equal(symlink(data, log), 0);
    o.data = data;
    assert_int_equal(gpt_check_files(&o), ZRO_OK);
    o.log = log;
    assert_int_equal(gpt_check_files(&o), ZRO_ERR_INVALID);
    o.log = NULL;
    o.trace = log;
    assert_int_equal(gpt_check_files(&o), ZRO_ERR_INVALID);
    assert_non_null(strstr(zro_last_error(), "of --data, which it would destroy"));
    assert_int_equal(unlink(log), 0);
}

/* What ranks compare: every option that changes what they compute or when they wait for each other. */
static void options_as_lines(void **state)
{
    char *args[] = { "zro-train", "--seed", "7", "--lr=0.1", "--data", "x", "--threads", "3", "--out", "run" };
    gpt_options o;
    char text[2000] = "";
    FILE *f = fmemopen(text, sizeof text, "w");

    (void)state;
    assert_non_null(f);
    assert_int_equal(gpt_options_read(10, args, &o), 0);
    gpt_options_lines(&o, f);
    assert_int_equal(fclose(f), 0);
    assert_non_null(strstr(text, "--seed 7\n"));
    assert_non_null(strstr(text, "--lr 0.1\n"));
    assert_non_null(strstr(text, "--out given\n"));
    assert_non_null(strstr(text, "--save-every not given\n"));
    assert_non_null(strstr(text, "--overlap \"off\"\n"));
    assert_null(strstr(text, "--data"));
    assert_null(strstr(text, "--threads"));
}

/* A state as an earlier version wrote it: it has the values of the rule, but of the numbers only the seed and the step. */
static void write_old_state(void)
{
    const zro_value values[] = { { "lr", 0.1 }, { "betas:0", 0.8 }, { "betas:1", 0.999 }, { "weight_decay", 0.5 } };
    zro_state *state;

    assert_int_equal(zro_state_create("adamw", &state), ZRO_OK);
    assert_int_equal(zro_state_add_group(state, values, 4), ZRO_OK);
    assert_int_equal(zro_state_set_value(state, 0, "initial_lr", 0.2), ZRO_OK);
    assert_int_equal(zro_state_set_number(state, "step", 10), ZRO_OK);
    assert_int_equal(zro_state_set_number(state, "seed", 3), ZRO_OK);
    assert_int_equal(zro_state_write(state, in_folder("state.safetensors")), ZRO_OK);
    zro_state_destroy(state);
}

static void resumed_options(void **state)
{
    char *args[] = { "zro-train", "--out=run", "--resume", "--lr", "0.2", "--clip", "7", "--steps", "20" };
    const zro_rule *rule = zro_rule_find("adamw");
    gpt_options o, first;
    gpt_saved saved, now;
    zro_value list[GPT_NUMBERS];

    (void)state;
    write_old_state();
    assert_int_equal(gpt_saved_read(in_folder("state.safetensors"), rule, &saved), ZRO_OK);
    assert_int_equal(gpt_saved_list(&saved, list), 2);
    assert_true(strcmp(list[0].name, "step") == 0 && list[1].value == 3);
    assert_int_equal(gpt_options_read(9, args, &first), 0);
    o = first;
    assert_int_equal(gpt_saved_take(&saved, rule, &o), ZRO_OK);
    assert_true(o.lr == 0.2 && o.weight_decay == 0.5 && o.seed == 3 && o.clip == 7); /* --clip is not compared */
    assert_true(o.n_values == 1 && strcmp(o.values[0].name, "beta1") == 0 && o.values[0].value == 0.8);
    gpt_saved_make(&o, &now);
    assert_int_equal(gpt_saved_list(&now, list), 7); /* all but --decay-steps, and what the groups have */
    assert_int_equal(gpt_saved_compare(&saved, &now, &o), ZRO_OK);
    saved.numbers[GPT_DATA_TOKENS] = 500;
    now.numbers[GPT_DATA_TOKENS] = 501;
    assert_int_equal(gpt_saved_compare(&saved, &now, &o), ZRO_ERR_INVALID);
    assert_non_null(strstr(zro_last_error(), "tokens of data: 501 now, 500 when the run in run was saved"));

    o = first;
    o.values[o.n_values++] = (zro_value){ "beta1", 0.9 };
    assert_int_equal(gpt_saved_take(&saved, rule, &o), ZRO_ERR_INVALID);
    assert_non_null(strstr(zro_last_error(), "--value beta1=0.9 was given, but the run in run has 0.8"));
    o = first;
    o.lr = 0.1;
    assert_int_equal(gpt_saved_take(&saved, rule, &o), ZRO_ERR_INVALID);
    assert_non_null(strstr(zro_last_error(), "--lr 0.1 was given, but the run in run has 0.2"));
    assert_int_equal(gpt_options_keep(&o, "--schedule", 2), ZRO_OK);
    assert_int_equal(o.schedule, GPT_COSINE);
    assert_int_equal(gpt_options_keep(&o, "--schedule", 3), ZRO_ERR_FORMAT);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

static int drop_folder(void **state)
{
    static const char *const names[] = {
        "text", "empty", "tokens", "tokenizer", "bad", "model.safetensors", "config.json", "state.safetensors"
    };

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlink(in_folder(names[i]));
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_tokens),
        cmocka_unit_test(token_files),
        cmocka_unit_test(hashes_tell_texts_apart),
        cmocka_unit_test(tokenizer_files),
        cmocka_unit_test(draws),
        cmocka_unit_test(weights_come_back),
        cmocka_unit_test(damaged_weights),
        cmocka_unit_test(too_many_layers),
        cmocka_unit_test(logs_are_not_glued),
        cmocka_unit_test(learning_rates),
        cmocka_unit_test(options_mean_what_they_say),
        cmocka_unit_test(values_out_of_range_are_refused),
        cmocka_unit_test(files_of_others_stay),
        cmocka_unit_test(options_as_lines),
        cmocka_unit_test(resumed_options),
    };

    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
