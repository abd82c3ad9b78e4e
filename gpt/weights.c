/* Weights as files: see weights.h.
 *
 * A safetensors file is the length of a header (u64), the header (JSON: for each tensor "name": {"dtype", "shape",
 * "data_offsets": [begin, end)}, perhaps "__metadata__"), and the bytes of the tensors.  The file is mapped; the header is read by
 * the few functions below, which never look behind its end. */
#define _GNU_SOURCE
#include "weights.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, NAME_BYTES = 256, MOST_HEADER = 100 << 20, MOST_DEPTH = 16 };

typedef struct tensor {
    char name[NAME_BYTES];
    char dtype[16];
    size_t shape[8], n_dims;
    uint64_t begin, end; /* of its bytes, behind the header */
} tensor;

typedef struct file {
    const char *path;
    const char *map;
    size_t bytes;
    const char *at, *header_end; /* what is left of the header */
    const char *data;
    size_t data_bytes;
} file;

/* ---- the header ---- */

static zro_status damaged(const file *f)
{
    return gpt_fail(ZRO_ERR_FORMAT, "%s is damaged, or no safetensors file: its header is wrong at byte %zu", f->path,
                    (size_t)(f->at - f->map));
}

static int peek(file *f)
{
    while (f->at < f->header_end && strchr(" \t\r\n", *f->at) != NULL && *f->at != '\0')
        f->at++;
    return f->at < f->header_end ? *f->at : -1;
}

static int accept(file *f, char c)
{
    if (peek(f) != c)
        return 0;
    f->at++;
    return 1;
}

/* A string, cut to its room; what is escaped is not needed and stays escaped. */
static int read_string(file *f, char *out, size_t room)
{
    size_t n = 0;

    if (!accept(f, '"'))
        return 0;
    for (; f->at < f->header_end && *f->at != '"'; f->at++) {
        int pair = *f->at == '\\' && f->at + 1 < f->header_end ? 2 : 1;

        for (; pair > 0; pair--) {
            if (n + 1 < room)
                out[n++] = *f->at;
            f->at += pair > 1;
        }
    }
    out[n] = '\0';
    return accept(f, '"');
}

static int read_number(file *f, uint64_t *out)
{
    *out = 0;
    if (peek(f) < '0' || peek(f) > '9')
        return 0;
    for (; f->at < f->header_end && *f->at >= '0' && *f->at <= '9'; f->at++) {
        if (*out > UINT64_MAX / 10 - 1)
            return 0;
        *out = 10 * *out + (uint64_t)(*f->at - '0');
    }
    return 1;
}

static int read_numbers(file *f, uint64_t *out, size_t room, size_t *n)
{
    *n = 0;
    if (!accept(f, '['))
        return 0;
    if (accept(f, ']'))
        return 1;
    do {
        if (*n == room || !read_number(f, &out[(*n)++]))
            return 0;
    } while (accept(f, ','));
    return accept(f, ']');
}

/* "__metadata__": an object of strings, which nobody here needs. */
static int skip_metadata(file *f)
{
    char text[NAME_BYTES];

    if (!accept(f, '{'))
        return 0;
    if (accept(f, '}'))
        return 1;
    do {
        if (!read_string(f, text, sizeof text) || !accept(f, ':') || !read_string(f, text, sizeof text))
            return 0;
    } while (accept(f, ','));
    return accept(f, '}');
}

static int read_tensor(file *f, tensor *t)
{
    uint64_t numbers[8];
    char key[NAME_BYTES];
    size_t n;

    t->n_dims = 0;
    t->begin = t->end = 0;
    t->dtype[0] = '\0';
    if (!accept(f, '{'))
        return 0;
    do {
        if (!read_string(f, key, sizeof key) || !accept(f, ':'))
            return 0;
        if (strcmp(key, "dtype") == 0) {
            if (!read_string(f, t->dtype, sizeof t->dtype))
                return 0;
            continue;
        }
        if (!read_numbers(f, numbers, 8, &n))
            return 0;
        if (strcmp(key, "shape") == 0) {
            t->n_dims = n;
            for (size_t i = 0; i < n; i++)
                t->shape[i] = (size_t)numbers[i];
        } else if (strcmp(key, "data_offsets") == 0 && n == 2) {
            t->begin = numbers[0];
            t->end = numbers[1];
        }
    } while (accept(f, ','));
    return accept(f, '}') && t->begin <= t->end;
}

/* The header is well-formed, but the bytes that it promises may be missing, as in a download that was broken off. */
static zro_status check_end(const file *f, const tensor *t)
{
    if (t->end <= f->data_bytes)
        return ZRO_OK;
    return gpt_fail(ZRO_ERR_FORMAT, "%s is cut off: %s ends at byte %llu of the tensors, of which the file has %zu", f->path,
                    t->name, (unsigned long long)t->end, f->data_bytes);
}

/* The next tensor; *more is 0 behind the last. */
static zro_status next_tensor(file *f, tensor *t, int *more)
{
    for (;;) {
        *more = 0;
        if (accept(f, '}') && peek(f) == -1)
            return ZRO_OK;
        if (!accept(f, ',') && !accept(f, '{'))
            return damaged(f);
        if (peek(f) == '}')
            continue;
        if (!read_string(f, t->name, sizeof t->name) || !accept(f, ':'))
            return damaged(f);
        *more = 1;
        if (strcmp(t->name, "__metadata__") == 0) {
            if (!skip_metadata(f))
                return damaged(f);
            continue;
        }
        return read_tensor(f, t) ? check_end(f, t) : damaged(f);
    }
}

static void close_file(file *f)
{
    if (f->map != NULL)
        munmap((void *)(uintptr_t)f->map, f->bytes);
    f->map = NULL;
}

static zro_status open_file(const char *path, file *f)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    uint64_t header = 0;
    void *map = MAP_FAILED;

    memset(f, 0, sizeof *f);
    f->path = path;
    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 8) {
        f->bytes = (size_t)st.st_size;
        map = mmap(NULL, f->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    }
    if (map == MAP_FAILED) {
        zro_status code = fd < 0 ? gpt_fail(ZRO_ERR_SYSTEM, "%s cannot be read: %s", path, strerror(errno))
                                 : gpt_fail(ZRO_ERR_FORMAT, "%s is no safetensors file", path);

        if (fd >= 0)
            close(fd);
        return code;
    }
    close(fd);
    f->map = f->at = map;
    memcpy(&header, map, sizeof header);
    if (header < 2 || header > MOST_HEADER || header > f->bytes - 8) {
        zro_status code = damaged(f);

        close_file(f);
        return code;
    }
    f->at = f->map + 8;
    f->header_end = f->at + header;
    f->data = f->header_end;
    f->data_bytes = f->bytes - 8 - (size_t)header;
    return ZRO_OK;
}

/* ---- tensors and parameters ---- */

static const struct {
    const char *name;
    zro_dtype dtype;
} dtypes[] = { { "F32", ZRO_F32 }, { "BF16", ZRO_BF16 }, { "F16", ZRO_F16 }, { "F64", ZRO_F64 } };

/* Its element type; -2 if it is none of numbers with a fraction. */
static int dtype_of(const tensor *t)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(dtypes[i].name, t->dtype) == 0)
            return (int)dtypes[i].dtype;
    return -2;
}

static const char *name_of(zro_dtype dtype)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (dtypes[i].dtype == dtype)
            return dtypes[i].name;
    return NULL;
}

static const char *own_name(const tensor *t)
{
    static const char prefix[] = "transformer.";

    return strncmp(t->name, prefix, strlen(prefix)) == 0 ? t->name + strlen(prefix) : t->name;
}

static void shape_text(char *out, size_t bytes, const size_t *shape, size_t n)
{
    size_t at = 0;

    out[0] = '\0';
    for (size_t i = 0; i < n && at < bytes; i++)
        at += (size_t)snprintf(out + at, bytes - at, "%s%zu", i == 0 ? "" : " x ", shape[i]);
}

/* That a tensor can be the values of a parameter. */
static zro_status fits(const file *f, const tensor *t, const zro_param *p)
{
    char is[120], wanted[120];
    int dtype = dtype_of(t);

    if (t->n_dims != p->n_dims || memcmp(t->shape, p->shape, p->n_dims * sizeof *t->shape) != 0) {
        shape_text(is, sizeof is, t->shape, t->n_dims);
        shape_text(wanted, sizeof wanted, p->shape, p->n_dims);
        return gpt_fail(ZRO_ERR_INVALID, "%s has another model: %s is %s there, and %s in the model asked for", f->path,
                        p->name, is, wanted);
    }
    if (dtype < 0 || t->end - t->begin != zro_param_count(p) * zro_dtype_bytes((zro_dtype)dtype))
        return gpt_fail(ZRO_ERR_FORMAT, "%s: %s has type %s and %zu bytes, which does not go with its shape", f->path, p->name,
                        t->dtype, (size_t)(t->end - t->begin));
    return ZRO_OK;
}

static zro_status take(const file *f, const tensor *t, zro_param *p)
{
    zro_dtype dtype = (zro_dtype)dtype_of(t);
    const char *from = f->data + t->begin;

    if (dtype == p->dtype) {
        memcpy(p->data, from, (size_t)(t->end - t->begin));
        return ZRO_OK;
    }
    return zro_convert(p->data, p->dtype, from, dtype, zro_param_count(p));
}

/* Goes through the tensors of a file, and checks that each parameter is among them; `data` says whether to read them, too. */
static zro_status match(const char *path, zro_param *params, size_t n, zro_switch data)
{
    char *found = calloc(n, 1);
    file f;
    tensor t;
    int more = 1;
    zro_status st = found == NULL ? gpt_fail(ZRO_ERR_MEMORY, "a list of %zu parameters", n) : open_file(path, &f);

    if (st != ZRO_OK) {
        free(found);
        return st;
    }
    while (st == ZRO_OK && (st = next_tensor(&f, &t, &more)) == ZRO_OK && more)
        for (size_t i = 0; i < n; i++)
            if (strcmp(params[i].name, own_name(&t)) == 0) {
                found[i] = 1;
                st = fits(&f, &t, &params[i]);
                if (st == ZRO_OK && data == ZRO_ON)
                    st = take(&f, &t, &params[i]);
                break;
            }
    for (size_t i = 0; i < n && st == ZRO_OK; i++)
        if (!found[i])
            st = gpt_fail(ZRO_ERR_INVALID, "%s has another model: there is no %s in it", path, params[i].name);
    close_file(&f);
    free(found);
    return st;
}

zro_status gpt_weights_check(const char *path, const zro_param *params, size_t n)
{
    return match(path, (zro_param *)(uintptr_t)params, n, ZRO_OFF);
}

zro_status gpt_weights_read(const char *path, zro_param *params, size_t n)
{
    zro_status st = match(path, params, n, ZRO_OFF); /* everything is checked before anything is read */

    return st == ZRO_OK ? match(path, params, n, ZRO_ON) : st;
}

/* ---- configurations ---- */

static zro_status in_folder(char *out, const char *folder, const char *name)
{
    if (snprintf(out, PATH_BYTES, "%s/%s", folder, name) < PATH_BYTES)
        return ZRO_OK;
    return gpt_fail(ZRO_ERR_INVALID, "the path of the folder %.100s... is too long", folder);
}

/* The number of heads is the one thing that shapes do not tell. */
static zro_status read_heads(const char *folder, size_t *heads)
{
    char path[PATH_BYTES], text[65536];
    zro_status st = in_folder(path, folder, "config.json");
    const char *at;
    FILE *f;
    size_t n;

    if (st != ZRO_OK)
        return st;
    f = fopen(path, "rb");
    if (f == NULL)
        return gpt_fail(ZRO_ERR_SYSTEM, "%s cannot be read: %s", path, strerror(errno));
    n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    at = strstr(text, "\"n_head\"");
    at = at == NULL ? NULL : strchr(at, ':');
    *heads = at == NULL ? 0 : strtoul(at + 1, NULL, 10);
    if (*heads == 0)
        return gpt_fail(ZRO_ERR_FORMAT, "%s has no \"n_head\"", path);
    return ZRO_OK;
}

static void note_sizes(const tensor *t, gpt_config *c)
{
    const char *name = own_name(t);
    unsigned long layer;
    char *rest;

    if (strcmp(name, "wte.weight") == 0 && t->n_dims == 2) {
        c->vocab = t->shape[0];
        c->width = t->shape[1];
    }
    if (strcmp(name, "wpe.weight") == 0 && t->n_dims == 2)
        c->context = t->shape[0];
    if (strncmp(name, "h.", 2) != 0)
        return;
    layer = strtoul(name + 2, &rest, 10); /* ULONG_MAX if it is larger than that; no config has so many layers */
    if (strcmp(rest, ".ln_1.weight") == 0 && layer >= c->layers)
        c->layers = layer < ULONG_MAX ? layer + 1 : layer;
}

zro_status gpt_weights_config(const char *folder, gpt_config *config)
{
    char path[PATH_BYTES];
    file f;
    tensor t;
    int more = 1;
    zro_status st = in_folder(path, folder, "model.safetensors");

    memset(config, 0, sizeof *config);
    if (st == ZRO_OK)
        st = open_file(path, &f);
    if (st != ZRO_OK)
        return st;
    while (st == ZRO_OK && (st = next_tensor(&f, &t, &more)) == ZRO_OK && more)
        note_sizes(&t, config);
    close_file(&f);
    if (st == ZRO_OK && (config->vocab == 0 || config->context == 0 || config->layers == 0))
        st = gpt_fail(ZRO_ERR_FORMAT, "%s is not a GPT-2: it has no wte.weight, wpe.weight or h.0.ln_1.weight", path);
    if (st == ZRO_OK)
        st = read_heads(folder, &config->heads);
    return st == ZRO_OK ? gpt_config_check(config) : st;
}

/* ---- writing ---- */

static void write_header(FILE *f, const zro_param *params, size_t n)
{
    char *text = NULL;
    size_t bytes = 0, at = 0;
    uint64_t length;
    FILE *header = open_memstream(&text, &bytes);

    if (header == NULL)
        return;
    fputs("{\"__metadata__\":{\"format\":\"pt\"}", header); /* without it, transformers refuses the file */
    for (size_t i = 0; i < n; i++) {
        size_t size = zro_param_count(&params[i]) * zro_dtype_bytes(params[i].dtype);

        fprintf(header, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%zu", params[i].name, name_of(params[i].dtype),
                params[i].shape[0]);
        if (params[i].n_dims == 2)
            fprintf(header, ",%zu", params[i].shape[1]);
        fprintf(header, "],\"data_offsets\":[%zu,%zu]}", at, at + size);
        at += size;
    }
    fputc('}', header);
    while (ftell(header) % 8 != 0)
        fputc(' ', header);
    fclose(header);
    length = bytes;
    fwrite(&length, sizeof length, 1, f);
    fwrite(text, 1, bytes, f);
    free(text);
}

static void write_weights(FILE *f, const gpt_config *config, const zro_param *params)
{
    size_t n = gpt_params(config);

    write_header(f, params, n);
    for (size_t i = 0; i < n; i++)
        fwrite(params[i].data, zro_dtype_bytes(params[i].dtype), zro_param_count(&params[i]), f);
}

static void write_config(FILE *f, const gpt_config *c, const zro_param *params)
{
    const char *ends = c->vocab > 50256 ? "50256" : "null"; /* GPT-2's token between texts; bytes have none */

    (void)params;
    fprintf(f,
            "{\n  \"model_type\": \"gpt2\",\n  \"architectures\": [\"GPT2LMHeadModel\"],\n  \"vocab_size\": %zu,\n"
            "  \"n_positions\": %zu,\n  \"n_ctx\": %zu,\n  \"n_embd\": %zu,\n  \"n_layer\": %zu,\n  \"n_head\": %zu,\n"
            "  \"activation_function\": \"gelu_new\",\n  \"layer_norm_epsilon\": 1e-05,\n  \"tie_word_embeddings\": true,\n"
            "  \"attn_pdrop\": 0.0,\n  \"embd_pdrop\": 0.0,\n  \"resid_pdrop\": 0.0,\n"
            "  \"bos_token_id\": %s,\n  \"eos_token_id\": %s\n}\n",
            c->vocab, c->context, c->context, c->width, c->layers, c->heads, ends, ends);
}

/* Makes a rename last when the machine fails.  Returns 0, or the errno; some file systems cannot sync a folder: EINVAL. */
static int sync_folder(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), reason = 0;

    if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL))
        reason = errno;
    if (fd >= 0)
        close(fd);
    return reason;
}

/* Writes a file beside its place, syncs it, renames it, and syncs the folder. */
static zro_status replace_file(const char *folder, const char *name, const gpt_config *config, const zro_param *params,
                               void (*write)(FILE *, const gpt_config *, const zro_param *))
{
    char path[PATH_BYTES], beside[PATH_BYTES + 8];
    zro_status st = in_folder(path, folder, name);
    int reason = 0;
    FILE *f;

    if (st != ZRO_OK)
        return st;
    snprintf(beside, sizeof beside, "%s.new", path);
    f = fopen(beside, "wb");
    if (f == NULL)
        return gpt_fail(ZRO_ERR_SYSTEM, "%s cannot be written: %s", beside, strerror(errno));
    errno = 0;
    write(f, config, params);
    if (ferror(f) || fflush(f) != 0 || fsync(fileno(f)) != 0)
        reason = errno != 0 ? errno : EIO;
    if (fclose(f) != 0 && reason == 0)
        reason = errno;
    if (reason == 0 && rename(beside, path) != 0)
        reason = errno;
    if (reason != 0) {
        unlink(beside);
        return gpt_fail(ZRO_ERR_SYSTEM, "%s cannot be written: %s", path, strerror(reason));
    }
    reason = sync_folder(folder);
    if (reason != 0)
        return gpt_fail(ZRO_ERR_SYSTEM, "%s is written, but may be lost if the machine fails: its folder cannot be synced: %s",
                        path, strerror(reason));
    return ZRO_OK;
}

zro_status gpt_weights_write(const char *folder, const gpt_config *config, const zro_param *params)
{
    zro_status st = replace_file(folder, "config.json", config, params, write_config);

    return st == ZRO_OK ? replace_file(folder, "model.safetensors", config, params, write_weights) : st;
}
