/* Checks beforehand: see preflight.h. */
#define _GNU_SOURCE
#include "preflight.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "weights.h"

static const double MB = 1e6;

/* ---- memory ---- */

gpt_memory gpt_memory_of_rank(const gpt_options *o, const gpt_choice *c, size_t owned, int sharers)
{
    double elements = (double)gpt_elements(&c->config);

    return (gpt_memory){
        .params = elements * (double)zro_dtype_bytes(c->dtype) / sharers,
        .grads = elements * sizeof(float),
        .state = (double)owned * (double)c->state_per_element,
        .activations = (double)gpt_memory_bytes(&c->config, c->dtype, GPT_TRAIN, o->batch, c->tokens),
    };
}

double gpt_memory_sum(const gpt_memory *m)
{
    return m->params + m->grads + m->state + m->activations;
}

/* A number in a file of the kernel, behind a key if there is one; negative if it is not there. */
static double kernel_number(const char *path, const char *key)
{
    FILE *f = fopen(path, "r");
    char line[256];
    double number = -1;

    if (f == NULL)
        return -1;
    while (number < 0 && fgets(line, sizeof line, f) != NULL)
        if (key == NULL || strncmp(line, key, strlen(key)) == 0)
            if (sscanf(line + (key == NULL ? 0 : strlen(key)), " %lf", &number) != 1)
                number = -1;
    fclose(f);
    return number;
}

/* What this machine, or the control group that we are in, can still give. */
static double memory_left(void)
{
    double left = 1024 * kernel_number("/proc/meminfo", "MemAvailable:");
    double most = kernel_number("/sys/fs/cgroup/memory.max", NULL), used = kernel_number("/sys/fs/cgroup/memory.current", NULL);

    if (most > 0 && used >= 0 && (left < 0 || most - used < left))
        left = most - used;
    return left;
}

static zro_status check_memory(const gpt_options *o, const gpt_choice *c, int ranks)
{
    size_t elements = gpt_elements(&c->config), owned = o->sharding ? elements / (size_t)ranks + 1 : elements;
    gpt_memory m = gpt_memory_of_rank(o, c, owned, o->sharding ? ranks : 1);
    double need = gpt_memory_sum(&m) * ranks, left = memory_left();

    if (left < 0 || need <= left)
        return ZRO_OK;
    return gpt_fail(ZRO_ERR_MEMORY,
                    "%d rank%s of the model %s with batches of %zu x %zu tokens need %.0f MB, and %.0f MB are left: choose a "
                    "smaller --model, --batch or --tokens%s",
                    ranks, ranks == 1 ? "" : "s", o->model, o->batch, c->tokens, need / MB, left / MB,
                    o->sharding ? "" : ", or --sharding on");
}

/* ---- files ---- */

static zro_status path_in_out(const gpt_options *o, const char *name, char path[GPT_PATH_BYTES])
{
    if (snprintf(path, GPT_PATH_BYTES, "%s/%s", o->out, name) < GPT_PATH_BYTES)
        return ZRO_OK;
    return gpt_fail(ZRO_ERR_INVALID, "--out %.100s...: the path is too long", o->out);
}

zro_status gpt_state_path(const gpt_options *o, char path[GPT_PATH_BYTES])
{
    return path_in_out(o, "state.safetensors", path);
}

zro_status gpt_log_path(const gpt_options *o, char path[GPT_PATH_BYTES])
{
    if (o->log == NULL && o->out != NULL)
        return path_in_out(o, "log.jsonl", path);
    if (snprintf(path, GPT_PATH_BYTES, "%s", o->log == NULL ? "" : o->log) < GPT_PATH_BYTES)
        return ZRO_OK;
    return gpt_fail(ZRO_ERR_INVALID, "--log %.100s...: the path is too long", o->log);
}

static int same_file(const char *a, const char *b)
{
    struct stat is, other;

    if (stat(a, &is) != 0)
        return strcmp(a, b) == 0;
    return S_ISREG(is.st_mode) && stat(b, &other) == 0 && is.st_dev == other.st_dev && is.st_ino == other.st_ino;
}

/* That a file which is written over, or appended to, is none of the others that the options name. */
static zro_status check_apart(const gpt_options *o, const char *option, const char *written)
{
    const struct {
        const char *option, *path, *inside;
    } others[] = {
        { "--data", o->data, "" },
        { "--tokenizer", o->tokenizer, "" },
        { "--trace", o->trace, "" },
        { "--init", o->init, "/model.safetensors" },
        { "--init", o->init, "/config.json" },
        { "--out", o->out, "/model.safetensors" },
        { "--out", o->out, "/config.json" },
        { "--out", o->out, "/state.safetensors" },
    };
    char path[GPT_PATH_BYTES];

    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (others[i].path == NULL || strcmp(others[i].option, option) == 0)
            continue;
        snprintf(path, sizeof path, "%s%s", others[i].path, others[i].inside);
        if (same_file(written, path))
            return gpt_fail(ZRO_ERR_INVALID, "%s %s is the same file as %s of %s, which it would destroy: choose another file",
                            option, written, path, others[i].option);
    }
    return ZRO_OK;
}

zro_status gpt_check_files(const gpt_options *o)
{
    char log[GPT_PATH_BYTES];
    zro_status st = gpt_log_path(o, log);

    if (st == ZRO_OK && log[0] != '\0')
        st = check_apart(o, "--log", log);
    if (st == ZRO_OK && o->trace != NULL)
        st = check_apart(o, "--trace", o->trace);
    return st;
}

static zro_status check_log(const char *option, const char *path)
{
    int fd = path == NULL ? -1 : open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);

    if (path != NULL && fd < 0)
        return gpt_fail(ZRO_ERR_SYSTEM, "%s %s cannot be written: %s", option, path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return ZRO_OK;
}

/* A save is written beside the old one. */
static zro_status check_disk(const gpt_options *o, const gpt_choice *c)
{
    double elements = (double)gpt_elements(&c->config), type = (double)zro_dtype_bytes(c->dtype), left;
    double need = elements * (2 * type + (double)c->state_per_element) + 1e6;
    struct statvfs fs;

    if (statvfs(o->out, &fs) != 0)
        return ZRO_OK;
    left = (double)fs.f_bavail * (double)fs.f_frsize;
    if (left >= need)
        return ZRO_OK;
    return gpt_fail(ZRO_ERR_SYSTEM, "--out %s: a save takes %.1f MB, and the disk has %.1f MB left", o->out, need / MB,
                    left / MB);
}

static zro_status check_params(const gpt_choice *c, const char *path)
{
    size_t n = gpt_params(&c->config);
    zro_param *params = calloc(n, sizeof *params);
    char(*names)[GPT_NAME_BYTES] = calloc(n, sizeof *names);
    zro_status st = ZRO_ERR_MEMORY;

    if (params != NULL && names != NULL) {
        gpt_describe(&c->config, c->dtype, params, names);
        st = gpt_weights_check(path, params, n);
    }
    free(params);
    free(names);
    return st;
}

/* A save would replace what is there: a run, or a model that came from elsewhere. */
static zro_status check_unused(const gpt_options *o)
{
    static const char *const names[] = { "state.safetensors", "model.safetensors", "config.json" };
    char path[GPT_PATH_BYTES];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        zro_status st = path_in_out(o, names[i], path);

        if (st != ZRO_OK)
            return st;
        if (access(path, F_OK) != 0)
            continue;
        if (i == 0)
            return gpt_fail(ZRO_ERR_STATE, "--out %s has a run already: --resume goes on with it; or choose another folder",
                            o->out);
        return gpt_fail(ZRO_ERR_STATE,
                        "--out %s has a %s already, which a save would replace: choose another folder (--init %s begins with "
                        "the weights in it)",
                        o->out, names[i], o->out);
    }
    return ZRO_OK;
}

zro_status gpt_find_run(const gpt_options *o, char path[GPT_PATH_BYTES])
{
    zro_status st = gpt_state_path(o, path);

    if (st != ZRO_OK || access(path, F_OK) == 0)
        return st;
    return gpt_fail(ZRO_ERR_SYSTEM, "--resume: there is no run in %s (%s: %s)", o->out, path, strerror(errno));
}

static zro_status check_out(const gpt_options *o, const gpt_choice *c)
{
    char path[GPT_PATH_BYTES];
    zro_status st;
    struct stat is;

    if (mkdir(o->out, 0777) != 0 && errno != EEXIST)
        return gpt_fail(ZRO_ERR_SYSTEM, "--out %s cannot be made: %s", o->out, strerror(errno));
    if (stat(o->out, &is) != 0 || !S_ISDIR(is.st_mode) || access(o->out, W_OK | X_OK) != 0)
        return gpt_fail(ZRO_ERR_SYSTEM, "--out %s is no folder that can be written to", o->out);
    st = o->resume ? gpt_find_run(o, path) : check_unused(o);
    if (st == ZRO_OK && o->resume)
        st = check_params(c, path);
    return st == ZRO_OK ? check_disk(o, c) : st;
}

static zro_status check_init(const gpt_options *o, const gpt_choice *c)
{
    char path[GPT_PATH_BYTES];

    if (snprintf(path, sizeof path, "%s/model.safetensors", o->init) >= (int)sizeof path)
        return gpt_fail(ZRO_ERR_INVALID, "--init %.100s...: the path is too long", o->init);
    return check_params(c, path);
}

/* ---- data ---- */

static zro_status check_data(const gpt_options *o, gpt_choice *c, gpt_data *data)
{
    gpt_split train, val;

    if (c->config.vocab < data->vocab)
        c->config.vocab = data->vocab;
    gpt_data_split(data, o->val_fraction, &train, &val);
    if (gpt_windows(&train, c->tokens) < 1)
        return gpt_fail(ZRO_ERR_INVALID, "%s has %zu tokens, of which %zu are for training: less than one sequence of %zu",
                        data->name, data->count, train.count, c->tokens);
    return ZRO_OK;
}

zro_status gpt_preflight(const gpt_options *o, gpt_choice *c, int ranks_here, gpt_data *data)
{
    zro_status st = gpt_data_open(o->data, data);

    if (st != ZRO_OK)
        return st;
    st = check_data(o, c, data);
    if (st == ZRO_OK)
        st = check_memory(o, c, ranks_here);
    if (st == ZRO_OK && o->init != NULL)
        st = check_init(o, c);
    if (st == ZRO_OK && o->out != NULL)
        st = check_out(o, c);
    if (st == ZRO_OK)
        st = check_log("--log", o->log);
    if (st == ZRO_OK)
        st = check_log("--trace", o->trace);
    if (st != ZRO_OK)
        gpt_data_close(data);
    return st;
}
