/* The safetensors format: see safetensors.h.
 *
 *   8 bytes        N, little-endian: the length of the header
 *   N bytes        the header, JSON: {"__metadata__": {text: text, ...},
 *                                     name: {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...}
 *                  it begins with '{' and may end with spaces
 *   to the end     the data: each tensor's elements, little-endian, row-major, at [begin, end) counted from its start
 *
 * A file is read only if all of this holds: N is at most 100 MB and within the file; nesting is at most 16; no key is there
 * twice; each tensor has these three keys and no other, a type that zro has, at most 8 dimensions, begin <= end, and as many
 * bytes as its shape says; the tensors, in any order, cover the data without overlap, hole or rest; metadata are texts.  So
 * whatever the bytes are, no more memory is taken than the file has, but for what the parser needs for the header.
 *
 * A file is written with its tensors by element size descending, then by name, and its header padded to 8 bytes, so that each
 * tensor is aligned to its elements. */
#include "checkpoint/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"

enum { LENGTH_BYTES = 8, MAX_HEADER = 100000000, MAX_DEPTH = 16, PADDING = 8 };

#define METADATA "__metadata__"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "data is little-endian; build with ZRO_CHECKPOINT=OFF elsewhere");
_Static_assert(sizeof(size_t) == 8, "offsets of a file are sizes in memory");

static const char *const types[] = {
    [ZRO_F32] = "F32", [ZRO_F64] = "F64", [ZRO_BF16] = "BF16", [ZRO_F16] = "F16",
    [ZRO_I8] = "I8",   [ZRO_U8] = "U8",   [ZRO_I32] = "I32",   [ZRO_I64] = "I64",
};

enum { TYPES = sizeof types / sizeof *types };

/* ---- JSON ---- */

/* The parser is recursive. */
static int is_deep(const char *text, size_t bytes)
{
    int depth = 0, in_string = 0;

    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];

        if (in_string) {
            i += c == '\\';
            in_string = c != '"';
            continue;
        }
        in_string = c == '"';
        if (c == '{' || c == '[')
            depth++;
        else if (c == '}' || c == ']')
            depth--;
        if (depth > MAX_DEPTH)
            return 1;
    }
    return 0;
}

zro_status zro__json_parse(const char *what, const char *text, size_t bytes, json_t **out)
{
    json_error_t error;

    *out = NULL;
    if (is_deep(text, bytes))
        return zro__fail(ZRO_ERR_FORMAT, "%s: nested more than %d deep", what, MAX_DEPTH);
    *out = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (*out == NULL && json_error_code(&error) == json_error_out_of_memory)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: %s of %zu bytes", what, bytes);
    if (*out == NULL)
        return zro__fail(ZRO_ERR_FORMAT, "%s: byte %d: %s", what, error.position, error.text);
    return ZRO_OK;
}

/* ---- reading ---- */

static zro_status read_length(zro__source *source, size_t *length)
{
    unsigned char bytes[LENGTH_BYTES];
    uint64_t n = 0;
    zro_status st;

    if (source->size == 0)
        return zro__fail(ZRO_ERR_FORMAT, "%s: empty, no safetensors file", source->name);
    if (source->size < LENGTH_BYTES)
        return zro__fail(ZRO_ERR_FORMAT, "%s: %zu bytes, too few for a safetensors file", source->name, source->size);
    st = zro__source_read(source, 0, bytes, sizeof bytes);
    if (st != ZRO_OK)
        return st;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--)
        n = n << 8 | bytes[i];
    if (n > MAX_HEADER)
        return zro__fail(ZRO_ERR_FORMAT, "%s: no safetensors file: its header would have %" PRIu64 " bytes, more than %d",
                         source->name, n, MAX_HEADER);
    if (n > source->size - LENGTH_BYTES)
        return zro__fail(ZRO_ERR_FORMAT, "%s: its header has %" PRIu64 " bytes, but only %zu follow", source->name, n,
                         source->size - LENGTH_BYTES);
    *length = (size_t)n;
    return ZRO_OK;
}

static zro_status read_header(zro__source *source, zro__tensors *t)
{
    char what[256];
    size_t length = 0;
    char *text;
    zro_status st = read_length(source, &length);

    if (st != ZRO_OK)
        return st;
    text = zro__alloc(NULL, ZRO__KIND_BUFFER, length);
    if (text == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a header of %zu bytes of %s", length, source->name);
    snprintf(what, sizeof what, "%.200s: header", source->name);
    st = zro__source_read(source, LENGTH_BYTES, text, length);
    if (st == ZRO_OK && (length == 0 || text[0] != '{'))
        st = zro__fail(ZRO_ERR_FORMAT, "%s: does not begin with '{'", what);
    if (st == ZRO_OK)
        st = zro__json_parse(what, text, length, &t->header);
    zro__free(text);
    t->data_first = LENGTH_BYTES + length;
    return st;
}

static zro_status read_dtype(const char *where, const zro__tensor *t, const json_t *json, zro_dtype *dtype)
{
    const char *text = json_string_value(json);

    if (text == NULL)
        return zro__fail(ZRO_ERR_FORMAT, "%s: tensor %s: dtype must be a text", where, t->name);
    for (int i = 0; i < TYPES; i++)
        if (strcmp(types[i], text) == 0) {
            *dtype = (zro_dtype)i;
            return ZRO_OK;
        }
    return zro__fail(ZRO_ERR_FORMAT, "%s: tensor %s: dtype %.40s is none that zro has", where, t->name, text);
}

/* The i-th number of a list; 0 if it is not one that is a size. */
static int size_at(const json_t *list, size_t i, size_t *out)
{
    const json_t *json = json_array_get(list, i);
    json_int_t n = json_integer_value(json);

    *out = (size_t)n;
    return json_is_integer(json) && n >= 0;
}

static zro_status read_shape(const char *where, zro__tensor *t, const json_t *json)
{
    size_t n = json_array_size(json);

    if (!json_is_array(json))
        return zro__fail(ZRO_ERR_FORMAT, "%s: tensor %s: shape must be a list", where, t->name);
    if (n > ZRO_MAX_DIMS)
        return zro__fail(ZRO_ERR_FORMAT, "%s: tensor %s: %zu dimensions, at most %d are possible", where, t->name, n,
                         ZRO_MAX_DIMS);
    for (size_t i = 0; i < n; i++)
        if (!size_at(json, i, &t->shape[i]))
            return zro__fail(ZRO_ERR_FORMAT, "%s: tensor %s: shape[%zu] must be an integer >= 0", where, t->name, i);
    t->n_dims = (uint32_t)n;
    return ZRO_OK;
}

/* Bytes as its shape says; 0 if that does not fit. */
static int shape_bytes(const zro__tensor *t, size_t *bytes)
{
    zro_param p = ZRO_PARAM_INIT;
    size_t count;

    p.n_dims = t->n_dims;
    memcpy(p.shape, t->shape, sizeof p.shape);
    count = zro_param_count(&p);
    return count != SIZE_MAX && zro__size_mul(count, zro_dtype_bytes(t->dtype), bytes);
}

static zro_status read_offsets(const char *where, zro__tensor *t, const json_t *json, size_t data_bytes)
{
    size_t end, expected;

    if (!json_is_array(json) || json_array_size(json) != 2 || !size_at(json, 0, &t->begin) || !size_at(json, 1, &end))
        return zro__fail(ZRO_ERR_FORMAT, "%s: tensor %s: data_offsets must be two integers >= 0", where, t->name);
    if (t->begin > end)
        return zro__fail(ZRO_ERR_FORMAT, "%s: tensor %s: begins at %zu, after its end %zu", where, t->name, t->begin, end);
    if (end > data_bytes)
        return zro__fail(ZRO_ERR_FORMAT, "%s: tensor %s: ends at %zu, but there are %zu bytes of data", where, t->name, end,
                         data_bytes);
    t->bytes = end - t->begin;
    if (!shape_bytes(t, &expected))
        return zro__fail(ZRO_ERR_FORMAT, "%s: tensor %s: its shape has more elements than memory can hold", where, t->name);
    if (t->bytes != expected)
        return zro__fail(ZRO_ERR_FORMAT, "%s: tensor %s: has %zu bytes, its shape and type have %zu", where, t->name, t->bytes,
                         expected);
    return ZRO_OK;
}

static zro_status read_tensor(const char *where, zro__tensor *t, const json_t *json, size_t data_bytes)
{
    const json_t *dtype = json_object_get(json, "dtype"), *shape = json_object_get(json, "shape");
    const json_t *offsets = json_object_get(json, "data_offsets");
    zro_status st;

    if (!json_is_object(json) || dtype == NULL || shape == NULL || offsets == NULL || json_object_size(json) != 3)
        return zro__fail(ZRO_ERR_FORMAT, "%s: tensor %s: must have dtype, shape, data_offsets and nothing else", where,
                         t->name);
    st = read_dtype(where, t, dtype, &t->dtype);
    if (st == ZRO_OK)
        st = read_shape(where, t, shape);
    return st == ZRO_OK ? read_offsets(where, t, offsets, data_bytes) : st;
}

static zro_status check_metadata(const char *where, json_t *json)
{
    const char *name;
    json_t *value;

    if (json != NULL && !json_is_object(json))
        return zro__fail(ZRO_ERR_FORMAT, "%s: " METADATA " must be an object", where);
    json_object_foreach(json, name, value)
    {
        if (!json_is_string(value))
            return zro__fail(ZRO_ERR_FORMAT, "%s: " METADATA ": %.100s must be a text", where, name);
    }
    return ZRO_OK;
}

static int by_place(const void *a, const void *b)
{
    const zro__tensor *p = a, *q = b;

    if (p->begin != q->begin)
        return p->begin < q->begin ? -1 : 1;
    return (p->bytes > q->bytes) - (p->bytes < q->bytes); /* those without elements first */
}

static zro_status check_cover(const char *where, const zro__tensors *t, size_t data_bytes)
{
    size_t at = 0;

    for (size_t i = 0; i < t->n; i++) {
        const zro__tensor *x = &t->list[i];

        if (x->begin < at)
            return zro__fail(ZRO_ERR_FORMAT, "%s: tensors %s and %s overlap", where, t->list[i - 1].name, x->name);
        if (x->begin > at)
            return zro__fail(ZRO_ERR_FORMAT, "%s: nobody owns bytes %zu to %zu of the data, before tensor %s", where, at,
                             x->begin, x->name);
        at = x->begin + x->bytes;
    }
    if (at != data_bytes)
        return zro__fail(ZRO_ERR_FORMAT, "%s: %zu bytes follow the last tensor", where, data_bytes - at);
    return ZRO_OK;
}

static zro_status read_list(zro__source *source, zro__tensors *t)
{
    json_t *metadata = json_object_get(t->header, METADATA), *json;
    size_t data_bytes = source->size - t->data_first;
    zro_status st = check_metadata(source->name, metadata);
    const char *name;

    if (st != ZRO_OK)
        return st;
    t->list = zro__alloc_array(NULL, ZRO__KIND_HANDLE, json_object_size(t->header), sizeof *t->list);
    if (t->list == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a list of the %zu tensors of %s", json_object_size(t->header),
                         source->name);
    json_object_foreach(t->header, name, json)
    {
        if (json == metadata)
            continue;
        t->list[t->n].name = name;
        st = read_tensor(source->name, &t->list[t->n++], json, data_bytes);
        if (st != ZRO_OK)
            return st;
    }
    qsort(t->list, t->n, sizeof *t->list, by_place);
    return check_cover(source->name, t, data_bytes);
}

zro_status zro__tensors_open(zro__tensors *t, zro__source *source)
{
    zro_status st;

    *t = (zro__tensors){ 0 };
    st = read_header(source, t);
    return st == ZRO_OK ? read_list(source, t) : st;
}

void zro__tensors_close(zro__tensors *t)
{
    json_decref(t->header);
    zro__free(t->list);
    *t = (zro__tensors){ 0 };
}

const char *zro__tensors_metadata(const zro__tensors *t, const char *name)
{
    return json_string_value(json_object_get(json_object_get(t->header, METADATA), name));
}

zro_status zro__tensors_read(const zro__tensors *t, zro__source *source, const zro__tensor *tensor, void *to)
{
    return zro__source_read(source, t->data_first + tensor->begin, to, tensor->bytes);
}

/* ---- writing ---- */

static int by_size_and_name(const void *a, const void *b)
{
    const zro__tensor *p = a, *q = b;
    size_t x = zro_dtype_bytes(p->dtype), y = zro_dtype_bytes(q->dtype);

    return x != y ? (x < y) - (x > y) : strcmp(p->name, q->name);
}

void zro__tensors_sort(zro__tensor *list, size_t n)
{
    if (n > 1)
        qsort(list, n, sizeof *list, by_size_and_name);
}

/* A text that is counted first (data NULL) and written in a second pass: a tree of JSON for 100,000 tensors would take seconds
 * and hundreds of megabytes. */
typedef struct text {
    char *data;
    size_t at;
} text;

static void put(text *t, const char *bytes, size_t n)
{
    if (t->data != NULL)
        memcpy(t->data + t->at, bytes, n);
    t->at += n;
}

static void put_word(text *t, const char *word)
{
    put(t, word, strlen(word));
}

/* Between quotes, as JSON has it. */
static void put_string(text *t, const char *string)
{
    char escaped[8];

    put(t, "\"", 1);
    for (const char *from = string; *from != '\0';) {
        size_t n = 0;

        while ((unsigned char)from[n] >= ' ' && from[n] != '"' && from[n] != '\\')
            n++;
        put(t, from, n);
        from += n;
        if (*from == '\0')
            break;
        snprintf(escaped, sizeof escaped, (unsigned char)*from < ' ' ? "\\u%04x" : "\\%c", *from);
        put_word(t, escaped);
        from++;
    }
    put(t, "\"", 1);
}

static void put_sizes(text *t, const size_t *sizes, size_t n)
{
    char number[24];

    for (size_t i = 0; i < n; i++) {
        snprintf(number, sizeof number, "%s%zu", i > 0 ? "," : "", sizes[i]);
        put_word(t, number);
    }
}

static void put_header(text *t, const zro__tensor *list, size_t n, const char *key, const char *value)
{
    put_word(t, "{\"" METADATA "\":{");
    put_string(t, key);
    put_word(t, ":");
    put_string(t, value);
    put_word(t, "}");
    for (size_t i = 0; i < n; i++) {
        put_word(t, ",");
        put_string(t, list[i].name);
        put_word(t, ":{\"dtype\":\"");
        put_word(t, types[list[i].dtype]);
        put_word(t, "\",\"shape\":[");
        put_sizes(t, list[i].shape, list[i].n_dims);
        put_word(t, "],\"data_offsets\":[");
        put_sizes(t, (size_t[]){ list[i].begin, list[i].begin + list[i].bytes }, 2);
        put_word(t, "]}");
    }
    put_word(t, "}");
}

zro_status zro__tensors_header(zro__tensor *list, size_t n, const char *key, const char *value, char **header,
                               size_t *header_bytes, size_t *data_bytes)
{
    text count = { NULL, 0 }, t = { NULL, LENGTH_BYTES };
    size_t padded;

    *data_bytes = 0;
    for (size_t i = 0; i < n; i++) {
        list[i].begin = *data_bytes;
        *data_bytes += list[i].bytes;
    }
    put_header(&count, list, n, key, value);
    padded = (count.at + PADDING - 1) / PADDING * PADDING;
    if (padded > MAX_HEADER)
        return zro__fail(ZRO_ERR_UNSUPPORTED, "the header would have %zu bytes, more than %d: too many or too long names",
                         padded, MAX_HEADER);
    *header = t.data = zro__alloc(NULL, ZRO__KIND_BUFFER, LENGTH_BYTES + padded);
    if (t.data == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a header of %zu bytes", padded);
    for (int i = 0; i < LENGTH_BYTES; i++)
        t.data[i] = (char)(padded >> 8 * i & 0xff);
    put_header(&t, list, n, key, value);
    memset(t.data + t.at, ' ', padded - count.at);
    *header_bytes = LENGTH_BYTES + padded;
    return ZRO_OK;
}
