/* zro-sample: lets a model that was trained write. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "generate.h"
#include "weights.h"

typedef struct options {
    const char *folder, *tokenizer;
    gpt_generate_config how;
} options;

static int usage(const char *text, const char *what)
{
    fprintf(stderr, "zro sample: %s%s\nTry `zro sample --help`.\n", text, what);
    return 2;
}

static int help(void)
{
    puts("usage: zro sample [OPTIONS] DIR\n"
         "\n"
         "Lets the model in DIR write: --out of `zro train`, or any folder with model.safetensors and config.json of a GPT-2.\n"
         "\n"
         "  --prompt TEXT      what it begins with; default: nothing\n"
         "  --tokens N         how many tokens it adds; default: 256\n"
         "  --temperature X    0: always the most likely token; default: 0.8\n"
         "  --top-k N          draws among the N most likely tokens; 0: among all; default: 40\n"
         "  --seed N           of the draws; default: 1\n"
         "  --tokenizer FILE   llm.c's tokenizer file, for models of GPT-2's tokens; without it, tokens are bytes\n"
         "\n"
         "More: man zro-sample");
    return 1;
}

static int read_number(const char *name, const char *text, double most, int whole, double *out)
{
    char *end;

    errno = 0;
    *out = strtod(text, &end);
    if (errno == 0 && end != text && *end == '\0' && *out >= 0 && *out <= most && (!whole || *out == floor(*out)))
        return 0;
    fprintf(stderr, "zro sample: %s: must be a %snumber from 0 to %g, not \"%s\"\nTry `zro sample --help`.\n", name,
            whole ? "whole " : "", most, text);
    return 2;
}

static int read_option(options *o, const char *name, const char *text)
{
    const struct {
        const char *name;
        double most;
        int whole;
    } numbers[] = { { "--tokens", 1e9, 1 }, { "--temperature", 100, 0 }, { "--top-k", 1e9, 1 }, { "--seed", 1e15, 1 } };
    double value;

    if (strcmp(name, "--prompt") == 0 || strcmp(name, "--tokenizer") == 0) {
        *(strcmp(name, "--prompt") == 0 ? &o->how.prompt : &o->tokenizer) = text;
        return 0;
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (strcmp(name, numbers[i].name) != 0)
            continue;
        if (read_number(name, text, numbers[i].most, numbers[i].whole, &value) != 0)
            return 2;
        if (i == 0)
            o->how.tokens = (size_t)value;
        else if (i == 1)
            o->how.temperature = value;
        else if (i == 2)
            o->how.top_k = (size_t)value;
        else
            o->how.seed = (uint64_t)value;
        return 0;
    }
    return usage("there is no option ", name);
}

static int read_options(int argc, char **argv, options *o)
{
    for (int i = 1; i < argc; i++) {
        int bad;

        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return help();
        if (argv[i][0] != '-') {
            if (o->folder != NULL)
                return usage("one folder is enough: ", argv[i]);
            o->folder = argv[i];
            continue;
        }
        if (i + 1 == argc)
            return usage("no value behind ", argv[i]);
        bad = read_option(o, argv[i], argv[i + 1]);
        if (bad)
            return bad;
        i++;
    }
    return o->folder == NULL ? usage("no folder with a model", "") : 0;
}

/* Parameters in memory of their own. */
static zro_status load(const char *folder, const gpt_config *config, zro_param *params, char (*names)[GPT_NAME_BYTES],
                       float **memory)
{
    char path[4096];
    float *at = calloc(gpt_elements(config), sizeof *at);

    *memory = at;
    if (at == NULL)
        return gpt_fail(ZRO_ERR_MEMORY, "out of memory: the model in %s has %zu parameters, which take %.0f MB", folder,
                        gpt_elements(config), (double)gpt_elements(config) * sizeof *at / 1e6);
    gpt_describe(config, ZRO_F32, params, names);
    for (size_t i = 0; i < gpt_params(config); i++) {
        params[i].data = at;
        at += zro_param_count(&params[i]);
    }
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    return gpt_weights_read(path, params, gpt_params(config));
}

/* The model is a folder, of which one may have named a file. */
static zro_status check_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    int length = slash == NULL || slash == path ? 1 : (int)(slash - path);
    struct stat is;

    if (stat(path, &is) != 0 || S_ISDIR(is.st_mode)) /* what is missing is said when it is read */
        return ZRO_OK;
    return gpt_fail(ZRO_ERR_INVALID, "%s is a file: give the folder of the model, such as %.*s", path, length,
                    slash == NULL ? "." : path);
}

static zro_status sample(const options *o)
{
    gpt_config config;
    gpt_tokenizer tokenizer = { 0 };
    zro_param *params = NULL;
    char(*names)[GPT_NAME_BYTES] = NULL;
    float *memory = NULL;
    zro_status st = check_folder(o->folder);

    if (st == ZRO_OK)
        st = gpt_weights_config(o->folder, &config);
    if (st == ZRO_OK)
        st = gpt_tokenizer_open(o->tokenizer, config.vocab, &tokenizer);
    if (st == ZRO_OK && config.vocab > 256 && o->tokenizer == NULL)
        fprintf(stderr, "zro sample: the model has %zu tokens; without --tokenizer only bytes are printed\n", config.vocab);
    if (st == ZRO_OK) {
        params = calloc(gpt_params(&config), sizeof *params);
        names = calloc(gpt_params(&config), sizeof *names);
        st = params == NULL || names == NULL ? gpt_fail(ZRO_ERR_MEMORY, "out of memory: the list of parameters")
                                             : load(o->folder, &config, params, names, &memory);
    }
    if (st == ZRO_OK)
        st = gpt_generate(&config, params, &tokenizer, &o->how, stdout);
    if (st == ZRO_OK)
        putchar('\n');
    gpt_tokenizer_close(&tokenizer);
    free(params);
    free(names);
    free(memory);
    return st;
}

int main(int argc, char **argv)
{
    options o = { .how = { .prompt = "", .tokens = 256, .temperature = 0.8, .top_k = 40, .seed = 1 } };
    int bad = read_options(argc, argv, &o);

    if (bad)
        return bad == 1 ? 0 : bad;
    if (sample(&o) != ZRO_OK) {
        fprintf(stderr, "zro sample: %s\n", zro_last_error());
        return 1;
    }
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    fprintf(stderr, "zro sample: standard output cannot be written to: %s\n", strerror(errno));
    return 1;
}
