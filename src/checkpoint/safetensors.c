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
 * The functions that check say what is wrong, as INVALID; zro__blame makes it FORMAT and adds in which file.
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
#include "base/text.h"

enum { LENGTH_BYTES = 8, MAX_HEADER = 100000000, MAX_DEPTH = 16, PADDING = 8 };

#define METADATA ZRO__TENSORS_METADATA

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "data is little-endian; build with ZRO_CHECKPOINT=OFF elsewhere");
_Static_assert(sizeof(size_t) == 8, "offsets of a file are sizes in memory");

static const char *const types[] = {
    [ZRO_F32] = "F32", [ZRO_F64] = "F64", [ZRO_BF16] = "BF16", [ZRO_F16] = "F16",
    [ZRO_I8] = "I8",   [ZRO_U8] = "U8",   [ZRO_I32] = "I32",   [ZRO_I64] = "I64",
};

enum { TYPES = sizeof types / sizeof *types };

/* ---- JSON ---- */

/* The parser is recursive: deep nesting would exhaust the stack. */
static int is_deep(const char *text, size_t bytes)
{
    int depth = 0, in_string = 0;

    for (size_t i = 0; i < bytes && depth <= MAX_DEPTH; i++) {
        const char c = text[i];

        if (c == '"')
            in_string = !in_string;
        else if (in_string)
            i += c == '\\';
        else
            depth += (c == '{' || c == '[') - (c == '}' || c == ']');
    }
    return depth > MAX_DEPTH;
}

zro_status zro__json_parse(const char *text, size_t bytes, json_t **out)
{
    json_error_t error;

    *out = NULL;
    if (is_deep(text, bytes))
        return zro__fail(ZRO_ERR_INVALID, "nested more than %d deep", MAX_DEPTH);
    *out = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (*out == NULL && json_error_code(&error) == json_error_out_of_memory)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: JSON of %zu bytes", bytes);
    if (*out == NULL)
        return zro__fail(ZRO_ERR_INVALID, "byte %d: %s", error.position, error.text);
    return ZRO_OK;
}

zro_status zro__blame(const char *file, const char *part, zro_status st)
{
    char text[ZRO__TEXT_BYTES];

    if (st != ZRO_ERR_INVALID)
        return st;
    snprintf(text, sizeof text, "%s", zro_last_error());
    return zro__fail(ZRO_ERR_FORMAT, "%s: %s%s", file, part, text);
}

/* ---- reading ---- */

static zro_status read_length(zro__source *source, size_t *length)
{
    unsigned char bytes[LENGTH_BYTES];
    uint64_t n = 0;
    zro_status st;

    if (source->size == 0)
        return zro__fail(ZRO_ERR_INVALID, "empty, no safetensors file");
    if (source->size < LENGTH_BYTES)
        return zro__fail(ZRO_ERR_INVALID, "%zu bytes, too few for a safetensors file", source->size);
    st = zro__source_read(source, 0, bytes, sizeof bytes);
    if (st != ZRO_OK)
        return st;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--)
        n = n << 8 | bytes[i];
    if (n > MAX_HEADER)
        return zro__fail(ZRO_ERR_INVALID, "no safetensors file: its header would have %" PRIu64 " bytes, more than %d", n,
                         MAX_HEADER);
    if (n > source->size - LENGTH_BYTES)
        return zro__fail(ZRO_ERR_INVALID, "its header has %" PRIu64 " bytes, but only %zu follow", n,
                         source->size - LENGTH_BYTES);
    *length = (size_t)n;
    return ZRO_OK;
}

static zro_status read_header(zro__source *source, zro__tensors *t)
{
    size_t length = 0;
    char *text;
    zro_status st = read_length(source, &length);

    if (st != ZRO_OK)
        return st;
    text = zro__alloc(NULL, ZRO__KIND_BUFFER, length);
    if (text == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a header of %zu bytes of %s", length, source->name);
    st = zro__source_read(source, LENGTH_BYTES, text, length);
    if (st == ZRO_OK && (length == 0 || text[0] != '{'))
        st = zro__fail(ZRO_ERR_INVALID, "does not begin with '{'");
    if (st == ZRO_OK)
        st = zro__json_parse(text, length, &t->header);
    zro__free(text);
    t->data_first = LENGTH_BYTES + length;
    return zro__blame(source->name, "header: ", st);
}

static zro_status read_dtype(const zro__tensor *t, const json_t *json, zro_dtype *dtype)
{
    const char *text = json_string_value(json);

    for (int i = 0; text != NULL && i < TYPES; i++)
        if (strcmp(types[i], text) == 0) {
            *dtype = (zro_dtype)i;
            return ZRO_OK;
        }
    return zro__fail(ZRO_ERR_INVALID, "tensor %s: dtype is %.40s, which zro does not have", t->name,
                     text != NULL ? text : "no text");
}

/* The i-th number of a list; 0 if there is none that is a size. */
static int size_at(const json_t *list, size_t i, size_t *out)
{
    const json_t *json = json_array_get(list, i);
    json_int_t n = json_integer_value(json);

    *out = (size_t)n;
    return json_is_integer(json) && n >= 0;
}

zro_status zro__json_shape(const char *of, const json_t *json, size_t *shape, uint32_t *n_dims)
{
    size_t n = json_array_size(json);

    if (!json_is_array(json))
        return zro__fail(ZRO_ERR_INVALID, "%s: shape must be a list", of);
    if (n > ZRO_MAX_DIMS)
        return zro__fail(ZRO_ERR_INVALID, "%s: %zu dimensions, at most %d are possible", of, n, ZRO_MAX_DIMS);
    for (size_t i = 0; i < n; i++)
        if (!size_at(json, i, &shape[i]))
            return zro__fail(ZRO_ERR_INVALID, "%s: shape[%zu] must be an integer >= 0", of, i);
    *n_dims = (uint32_t)n;
    return ZRO_OK;
}

/* The bytes that a tensor's shape and type take; 0 if they do not fit into a size_t. */
static int shape_bytes(const zro__tensor *t, size_t *bytes)
{
    zro_param p = ZRO_PARAM_INIT;
    size_t count;

    p.n_dims = t->n_dims;
    memcpy(p.shape, t->shape, sizeof p.shape);
    count = zro_param_count(&p);
    return count != SIZE_MAX && zro__size_mul(count, zro_dtype_bytes(t->dtype), bytes);
}

static zro_status read_offsets(zro__tensor *t, const json_t *json, size_t data_bytes)
{
    size_t end, expected;

    if (!json_is_array(json) || json_array_size(json) != 2 || !size_at(json, 0, &t->begin) || !size_at(json, 1, &end))
        return zro__fail(ZRO_ERR_INVALID, "tensor %s: data_offsets must be two integers >= 0", t->name);
    if (t->begin > end)
        return zro__fail(ZRO_ERR_INVALID, "tensor %s: begins at %zu, after its end %zu", t->name, t->begin, end);
    if (end > data_bytes)
        return zro__fail(ZRO_ERR_INVALID, "tensor %s: ends at %zu, but there are %zu bytes of data", t->name, end, data_bytes);
    t->bytes = end - t->begin;
    if (!shape_bytes(t, &expected))
        return zro__fail(ZRO_ERR_INVALID, "tensor %s: its shape has more elements than memory can hold", t->name);
    if (t->bytes != expected)
        return zro__fail(ZRO_ERR_INVALID, "tensor %s: has %zu bytes, its shape and type have %zu", t->name, t->bytes, expected);
    return ZRO_OK;
}

static zro_status read_tensor(zro__tensor *t, const json_t *json, size_t data_bytes)
{
    const json_t *dtype = json_object_get(json, "dtype"), *shape = json_object_get(json, "shape");
    const json_t *offsets = json_object_get(json, "data_offsets");
    char name[ZRO__TEXT_BYTES];
    zro_status st;

    if (!json_is_object(json) || dtype == NULL || shape == NULL || offsets == NULL || json_object_size(json) != 3)
        return zro__fail(ZRO_ERR_INVALID, "tensor %s: must have dtype, shape, data_offsets and nothing else", t->name);
    st = read_dtype(t, dtype, &t->dtype);
    snprintf(name, sizeof name, "tensor %s", t->name);
    if (st == ZRO_OK)
        st = zro__json_shape(name, shape, t->shape, &t->n_dims);
    return st == ZRO_OK ? read_offsets(t, offsets, data_bytes) : st;
}

static zro_status check_metadata(json_t *json)
{
    const char *name;
    json_t *value;

    if (json != NULL && !json_is_object(json))
        return zro__fail(ZRO_ERR_INVALID, METADATA " must be an object");
    json_object_foreach(json, name, value)
    {
        if (!json_is_string(value))
            return zro__fail(ZRO_ERR_INVALID, METADATA ": %.100s must be a text", name);
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

static zro_status check_cover(const zro__tensors *t, size_t data_bytes)
{
    size_t at = 0;

    for (size_t i = 0; i < t->n; i++) {
        const zro__tensor *x = &t->list[i];

        if (x->begin < at)
            return zro__fail(ZRO_ERR_INVALID, "tensors %s and %s overlap", t->list[i - 1].name, x->name);
        if (x->begin > at)
            return zro__fail(ZRO_ERR_INVALID, "bytes %zu to %zu of the data, before tensor %s, belong to no tensor", at,
                             x->begin, x->name);
        at = x->begin + x->bytes;
    }
    if (at != data_bytes)
        return zro__fail(ZRO_ERR_INVALID, "%zu bytes follow the last tensor", data_bytes - at);
    return ZRO_OK;
}

static zro_status read_list(zro__source *source, zro__tensors *t)
{
    json_t *metadata = json_object_get(t->header, METADATA), *json;
    size_t data_bytes = source->size - t->data_first;
    zro_status st = check_metadata(metadata);
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
        st = read_tensor(&t->list[t->n++], json, data_bytes);
        if (st != ZRO_OK)
            return st;
    }
    qsort(t->list, t->n, sizeof *t->list, by_place);
    return check_cover(t, data_bytes);
}

zro_status zro__tensors_open(zro__tensors *t, zro__source *source)
{
    zro_status st;

    *t = (zro__tensors){ 0 };
    st = read_header(source, t);
    if (st == ZRO_OK)
        st = read_list(source, t);
    return zro__blame(source->name, "", st);
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

/* ---- writing ---- */

static int by_size_and_name(const void *a, const void *b)
{
    const zro__tensor *p = a, *q = b;
    size_t x = zro_dtype_bytes(p->dtype), y = zro_dtype_bytes(q->dtype);

    return x != y ? (x < y) - (x > y) : strcmp(p->name, q->name);
}

/* Writes a text between quotes, with the escapes that JSON asks for. */
static void put_string(zro__text *t, const char *string)
{
    zro__text_add(t, "\"");
    for (const char *from = string; *from != '\0';) {
        size_t n = 0;

        while ((unsigned char)from[n] >= ' ' && from[n] != '"' && from[n] != '\\')
            n++;
        zro__text_add(t, "%.*s", (int)n, from);
        from += n;
        if (*from != '\0')
            zro__text_add(t, (unsigned char)*from < ' ' ? "\\u%04x" : "\\%c", *from);
        from += *from != '\0';
    }
    zro__text_add(t, "\"");
}

/* Measured first and then written: a tree of JSON for 100,000 tensors would take seconds and hundreds of megabytes. */
static void put_header(zro__text *t, const zro__tensor *list, size_t n, const char *key, const char *value)
{
    zro__text_add(t, "{\"" METADATA "\":{");
    put_string(t, key);
    zro__text_add(t, ":");
    put_string(t, value);
    zro__text_add(t, "}");
    for (size_t i = 0; i < n; i++) {
        zro__text_add(t, ",");
        put_string(t, list[i].name);
        zro__text_add(t, ":{\"dtype\":\"%s\",\"shape\":[", types[list[i].dtype]);
        for (uint32_t d = 0; d < list[i].n_dims; d++)
            zro__text_add(t, "%s%zu", d > 0 ? "," : "", list[i].shape[d]);
        zro__text_add(t, "],\"data_offsets\":[%zu,%zu]}", list[i].begin, list[i].begin + list[i].bytes);
    }
    zro__text_add(t, "}");
}

zro_status zro__tensors_header(zro__tensor *list, size_t n, const char *key, const char *value, char **header,
                               size_t *header_bytes, size_t *data_bytes)
{
    zro__text measured = { NULL, 0, 0 }, t = { NULL, 0, LENGTH_BYTES };
    size_t padded;

    if (n > 1)
        qsort(list, n, sizeof *list, by_size_and_name);
    *data_bytes = 0;
    for (size_t i = 0; i < n; i++) {
        list[i].begin = *data_bytes;
        *data_bytes += list[i].bytes;
    }
    put_header(&measured, list, n, key, value);
    padded = (measured.at + PADDING - 1) / PADDING * PADDING;
    if (padded > MAX_HEADER)
        return zro__fail(ZRO_ERR_UNSUPPORTED, "the header would have %zu bytes, more than %d: too many or too long names",
                         padded, MAX_HEADER);
    t.bytes = LENGTH_BYTES + padded + 1; /* texts end with a 0 */
    *header = t.data = zro__alloc(NULL, ZRO__KIND_BUFFER, t.bytes);
    if (t.data == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a header of %zu bytes", padded);
    for (int i = 0; i < LENGTH_BYTES; i++)
        t.data[i] = (char)(padded >> 8 * i & 0xff);
    put_header(&t, list, n, key, value);
    memset(t.data + t.at, ' ', padded - measured.at);
    *header_bytes = LENGTH_BYTES + padded;
    return ZRO_OK;
}
