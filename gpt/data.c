/* Texts: see data.h. */
#define _GNU_SOURCE
#include "data.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model.h"
#include "random.h"
#include "text.h"

enum { HEADER_INTS = 256, HEADER_BYTES = 4 * HEADER_INTS, MAGIC = 20240520, VERSION = 1, GPT2_VOCAB = 50257 };

static zro_status map_file(const char *path, gpt_data *d)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), reason;
    struct stat st;

    if (fd < 0 || fstat(fd, &st) != 0) {
        reason = errno;
        goto fail;
    }
    if (!S_ISREG(st.st_mode) || st.st_size == 0) {
        close(fd);
        return gpt_fail(ZRO_ERR_INVALID, "%s is %s", path, S_ISREG(st.st_mode) ? "empty" : "not a file");
    }
    d->map_bytes = (size_t)st.st_size;
    d->map = mmap(NULL, d->map_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (d->map == MAP_FAILED) {
        reason = errno;
        d->map = NULL;
        goto fail;
    }
    close(fd);
    return ZRO_OK;
fail:
    if (fd >= 0)
        close(fd);
    return gpt_fail(ZRO_ERR_SYSTEM, "%s cannot be read: %s", path, strerror(reason));
}

/* The file begins with the magic number. */
static zro_status read_tokens(gpt_data *d)
{
    const int32_t *header = d->map;
    size_t count;

    if (d->map_bytes < HEADER_BYTES)
        return gpt_fail(ZRO_ERR_FORMAT, "%s: a token file of %zu bytes, but its header alone has %d", d->name, d->map_bytes,
                        HEADER_BYTES);
    if (header[1] != VERSION)
        return gpt_fail(ZRO_ERR_FORMAT, "%s: a token file of version %d, must be %d", d->name, header[1], VERSION);
    if (header[2] < 0)
        return gpt_fail(ZRO_ERR_FORMAT, "%s: the header says %d tokens, must be 0 or more: it is damaged", d->name, header[2]);
    count = (size_t)header[2];
    if (d->map_bytes != HEADER_BYTES + 2 * count)
        return gpt_fail(ZRO_ERR_FORMAT, "%s: the header says %d tokens, but the file has %zu bytes, not %zu: it is damaged",
                        d->name, header[2], d->map_bytes, HEADER_BYTES + 2 * count);
    d->tokens = (const uint16_t *)d->map + HEADER_BYTES / 2;
    d->count = count;
    d->vocab = GPT2_VOCAB;
    for (size_t i = 0; i < count; i++)
        if (d->tokens[i] >= GPT2_VOCAB)
            return gpt_fail(ZRO_ERR_FORMAT, "%s: token %zu is %u, must be below %d: it is damaged", d->name, i, d->tokens[i],
                            GPT2_VOCAB);
    return ZRO_OK;
}

zro_status gpt_data_open(const char *path, gpt_data *data)
{
    gpt_data d = { .name = path };
    zro_status st = ZRO_OK;
    int32_t magic = 0;

    *data = d;
    if (path == NULL) {
        d.name = "the built-in text";
        d.bytes = gpt_text(&d.count);
        d.vocab = 256;
        *data = d;
        return ZRO_OK;
    }
    st = map_file(path, &d);
    if (st != ZRO_OK)
        return st;
    if (d.map_bytes >= sizeof magic)
        memcpy(&magic, d.map, sizeof magic);
    if (magic == MAGIC) {
        st = read_tokens(&d);
    } else {
        d.bytes = d.map;
        d.count = d.map_bytes;
        d.vocab = 256;
    }
    if (st != ZRO_OK)
        gpt_data_close(&d);
    else
        *data = d;
    return st;
}

void gpt_data_close(gpt_data *data)
{
    if (data->map != NULL)
        munmap(data->map, data->map_bytes);
    memset(data, 0, sizeof *data);
}

uint64_t gpt_data_hash(const gpt_data *d)
{
    const uint8_t *at = d->bytes != NULL ? d->bytes : (const uint8_t *)d->tokens;
    size_t left = d->count * (d->bytes != NULL ? sizeof *d->bytes : sizeof *d->tokens);
    uint64_t hash = left, word;

    for (; left > 0; at += sizeof word, left -= left < sizeof word ? left : sizeof word) {
        word = 0;
        memcpy(&word, at, left < sizeof word ? left : sizeof word);
        hash = gpt_mix(hash ^ word);
    }
    return hash;
}

void gpt_data_split(const gpt_data *data, double fraction, gpt_split *train, gpt_split *val)
{
    size_t n = (size_t)((double)data->count * fraction);

    *train = (gpt_split){ data, 0, data->count - n };
    *val = (gpt_split){ data, data->count - n, n };
}

size_t gpt_windows(const gpt_split *split, size_t tokens)
{
    return split->count < 1 ? 0 : (split->count - 1) / tokens;
}

void gpt_window(const gpt_split *split, size_t tokens, size_t i, uint32_t *inputs, uint32_t *targets)
{
    const gpt_data *d = split->data;
    size_t at = split->first + i * tokens;

    for (size_t t = 0; t <= tokens; t++) {
        uint32_t token = d->bytes != NULL ? d->bytes[at + t] : d->tokens[at + t];

        if (t < tokens)
            inputs[t] = token;
        if (t > 0)
            targets[t - 1] = token;
    }
}
