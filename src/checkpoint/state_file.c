/* A state as a safetensors file, or as its bytes.
 *
 * Tensors are named "<slot>:0:<parameter>" (0: the first element; a parameter without a name is called by its index); arrays
 * have their parameter's shape, single numbers the shape [].  Everything else is one JSON text under the metadata's key "zro"
 * (state_json.c).
 *
 * Reading makes the state without slots first, announces a slot for each tensor in the order of the data, takes one block, and
 * reads the data straight into it: the file exists once in memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/param.h"
#include "base/status.h"
#include "checkpoint/file.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/state_json.h"
#include "zero/state.h"

#define METADATA_KEY "zro"

/* ---- names ---- */

/* A parameter as files call it. */
typedef struct label {
    const char *name;
    size_t param;
    char number[ZRO__NAME_BYTES]; /* the name of one that has none */
} label;

static int by_name(const void *a, const void *b)
{
    const label *p = *(label *const *)a, *q = *(label *const *)b;

    return strcmp(p->name, q->name);
}

/* Labels by parameter, and references to them by name. */
typedef struct labels {
    label *list;
    label **sorted;
} labels;

static void labels_free(labels *l)
{
    zro__free(l->list);
    zro__free(l->sorted);
}

/* `code` and `where` are for two that have one name. */
static zro_status labels_make(const zro_state *s, zro_status code, const char *where, labels *l)
{
    *l = (labels){ zro__alloc_array(NULL, ZRO__KIND_HANDLE, s->n_params, sizeof *l->list),
                   zro__alloc_array(NULL, ZRO__KIND_HANDLE, s->n_params, sizeof *l->sorted) };
    if (l->list == NULL || l->sorted == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: names of %zu parameters", s->n_params);
    for (size_t i = 0; i < s->n_params; i++) {
        l->list[i].param = i;
        l->list[i].name = zro__param_name(s->params[i].name, i, l->list[i].number);
        l->sorted[i] = &l->list[i];
    }
    qsort(l->sorted, s->n_params, sizeof *l->sorted, by_name);
    for (size_t i = 1; i < s->n_params; i++)
        if (strcmp(l->sorted[i - 1]->name, l->sorted[i]->name) == 0)
            return zro__fail(code, "%s: two parameters are named %s", where, l->sorted[i]->name);
    return ZRO_OK;
}

/* ---- writing ---- */

/* What a file is made of. */
typedef struct image {
    labels labels;
    zro__tensor *tensors;
    char *keys;
    char *header;
    size_t n, header_bytes, data_bytes;
} image;

static void image_free(image *im)
{
    labels_free(&im->labels);
    zro__free(im->tensors);
    zro__free(im->keys);
    zro__free(im->header);
}

static size_t key_bytes(const zro__state_slot *slot, const label *of)
{
    return strlen(slot->name) + sizeof ":0:" + strlen(of->name);
}

static void describe_slot(const zro__state_slot *slot, const zro__state_param *p, zro__tensor *t)
{
    *t = (zro__tensor){ .data = slot->data, .bytes = slot->bytes, .dtype = slot->dtype };
    if (slot->single)
        return;
    t->n_dims = p->n_dims;
    memcpy(t->shape, p->shape, sizeof t->shape);
}

static zro_status list_tensors(const zro_state *s, image *im)
{
    size_t bytes = 0;
    char *key;

    for (size_t p = 0; p < s->n_params; p++)
        for (size_t i = s->params[p].first_slot; i != ZRO__STATE_NONE; i = s->slots[i].next)
            bytes += key_bytes(&s->slots[i], &im->labels.list[p]);
    im->keys = key = zro__alloc(NULL, ZRO__KIND_HANDLE, bytes);
    im->tensors = zro__alloc_array(NULL, ZRO__KIND_HANDLE, s->n_slots, sizeof *im->tensors);
    if (im->keys == NULL || im->tensors == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a list of %zu slots", s->n_slots);
    for (size_t p = 0; p < s->n_params; p++)
        for (size_t i = s->params[p].first_slot; i != ZRO__STATE_NONE; i = s->slots[i].next) {
            zro__tensor *t = &im->tensors[im->n++];
            size_t room = key_bytes(&s->slots[i], &im->labels.list[p]);

            describe_slot(&s->slots[i], &s->params[p], t);
            snprintf(key, room, "%s:0:%s", s->slots[i].name, im->labels.list[p].name);
            t->name = key;
            key += room;
        }
    zro__tensors_sort(im->tensors, im->n);
    return ZRO_OK;
}

static zro_status make_text(const zro_state *s, char **text)
{
    const size_t flags = JSON_COMPACT | JSON_REAL_PRECISION(17);
    json_t *json;
    zro_status st = zro__state_to_json(s, &json);
    size_t bytes;

    *text = NULL;
    if (st != ZRO_OK)
        return st;
    bytes = json_dumpb(json, NULL, 0, flags);
    *text = bytes > 0 ? zro__alloc(NULL, ZRO__KIND_BUFFER, bytes + 1) : NULL;
    if (*text == NULL)
        st = zro__fail(ZRO_ERR_MEMORY, "out of memory: a description of %zu parameters", s->n_params);
    else
        json_dumpb(json, *text, bytes, flags);
    json_decref(json);
    return st;
}

static zro_status make_header(const zro_state *s, image *im)
{
    char *text;
    zro_status st = make_text(s, &text);

    if (st == ZRO_OK)
        st = zro__tensors_header(im->tensors, im->n, METADATA_KEY, text, &im->header, &im->header_bytes, &im->data_bytes);
    zro__free(text);
    return st;
}

static zro_status image_make(const zro_state *s, const char *call, image *im)
{
    zro_status st = zro__state_check(s);

    *im = (image){ 0 };
    if (st == ZRO_OK)
        st = labels_make(s, ZRO_ERR_INVALID, call, &im->labels);
    if (st == ZRO_OK)
        st = list_tensors(s, im);
    return st == ZRO_OK ? make_header(s, im) : st;
}

static zro_status image_write(const image *im, zro__sink *sink)
{
    zro_status st = zro__sink_write(sink, im->header, im->header_bytes);

    for (size_t i = 0; i < im->n && st == ZRO_OK; i++)
        st = zro__sink_write(sink, im->tensors[i].data, im->tensors[i].bytes);
    return st;
}

zro_status zro_state_write(const zro_state *s, const char *path)
{
    zro__sink sink = { 0 };
    image im;
    zro_status st;

    if (path == NULL || path[0] == '\0')
        return zro__fail(ZRO_ERR_INVALID, "state_write: path is %s", path == NULL ? "NULL" : "empty");
    st = image_make(s, "state_write", &im);
    if (st == ZRO_OK)
        st = zro__sink_open_file(&sink, path);
    if (st == ZRO_OK)
        st = image_write(&im, &sink);
    if (st == ZRO_OK)
        st = zro__sink_commit_file(&sink);
    zro__sink_close(&sink);
    image_free(&im);
    return st;
}

zro_status zro_state_pack(const zro_state *s, void **bytes, size_t *n)
{
    zro__sink sink = { 0 };
    image im;
    zro_status st;

    if (bytes == NULL || n == NULL)
        return zro__fail(ZRO_ERR_INVALID, "state_pack: %s is NULL", bytes == NULL ? "bytes" : "n");
    *bytes = NULL;
    *n = 0;
    st = image_make(s, "state_pack", &im);
    if (st == ZRO_OK)
        st = zro__sink_open_memory(&sink, im.header_bytes + im.data_bytes);
    if (st == ZRO_OK)
        st = image_write(&im, &sink);
    if (st == ZRO_OK) {
        *n = sink.size;
        *bytes = zro__sink_commit_memory(&sink);
    }
    zro__sink_close(&sink);
    image_free(&im);
    return st;
}

/* ---- reading ---- */

/* The parameter of a tensor and, written into `slot`, the name of its slot. */
static zro_status split_name(const char *where, const char *name, const zro_state *s, const labels *l, char *slot,
                             size_t *param)
{
    const char *colon = strchr(name, ':');
    size_t bytes = colon != NULL ? (size_t)(colon - name) : 0;
    label key, *wanted = &key, **found;

    if (colon == NULL || bytes > ZRO__STATE_NAME_BYTES || strncmp(colon, ":0:", 3) != 0)
        return zro__fail(ZRO_ERR_FORMAT, "%s: tensor %s: its name must be <slot>:0:<parameter>", where, name);
    memcpy(slot, name, bytes);
    slot[bytes] = '\0';
    key.name = colon + 3;
    found = bsearch(&wanted, l->sorted, s->n_params, sizeof *l->sorted, by_name);
    if (found == NULL)
        return zro__fail(ZRO_ERR_FORMAT, "%s: tensor %s: there is no parameter %s", where, name, key.name);
    *param = (*found)->param;
    return ZRO_OK;
}

static zro_status plan_tensor(const char *where, const zro__tensor *t, const labels *l, zro_state *s)
{
    char slot[ZRO__STATE_NAME_BYTES + 1], text[ZRO__TEXT_BYTES];
    const zro__state_param *p;
    size_t param = 0;
    zro_status st = split_name(where, t->name, s, l, slot, &param);
    int whole;

    if (st != ZRO_OK)
        return st;
    p = &s->params[param];
    whole = t->n_dims == p->n_dims && memcmp(t->shape, p->shape, t->n_dims * sizeof *t->shape) == 0;
    if (!whole && t->n_dims != 0)
        return zro__fail(ZRO_ERR_FORMAT, "%s: tensor %s: its shape is neither its parameter's nor []", where, t->name);
    st = zro__state_plan_slot(s, param, slot, t->dtype, whole ? p->count : 1);
    if (st == ZRO_OK && p->n_dims > 0)
        zro__state_set_single(s, !whole);
    if (st != ZRO_ERR_INVALID)
        return st;
    snprintf(text, sizeof text, "%s", zro_last_error());
    return zro__fail(ZRO_ERR_FORMAT, "%s: %s", where, text);
}

static zro_status read_slots(zro__source *source, const zro__tensors *tensors, zro_state *s)
{
    labels l;
    zro_status st = labels_make(s, ZRO_ERR_FORMAT, source->name, &l);

    for (size_t i = 0; i < tensors->n && st == ZRO_OK; i++)
        st = plan_tensor(source->name, &tensors->list[i], &l, s);
    labels_free(&l);
    if (st == ZRO_OK)
        st = zro__state_take(s);
    for (size_t i = 0; i < tensors->n && st == ZRO_OK; i++)
        st = zro__tensors_read(tensors, source, &tensors->list[i], s->slots[i].data);
    return st;
}

static zro_status read_json(const zro__source *source, const zro__tensors *tensors, zro_state **out)
{
    const char *text = zro__tensors_metadata(tensors, METADATA_KEY);
    char where[256];
    json_t *json;
    zro_status st;

    if (text == NULL)
        return zro__fail(ZRO_ERR_FORMAT, "%s: no state of zro: its metadata has no \"" METADATA_KEY "\"", source->name);
    snprintf(where, sizeof where, "%.200s: metadata", source->name);
    st = zro__json_parse(where, text, strlen(text), &json);
    if (st == ZRO_OK)
        st = zro__state_from_json(where, json, out);
    json_decref(json);
    return st;
}

static zro_status read_state(zro__source *source, zro_state **out)
{
    zro_state *s = NULL;
    zro__tensors tensors;
    zro_status st = zro__tensors_open(&tensors, source);

    if (st == ZRO_OK)
        st = read_json(source, &tensors, &s);
    if (st == ZRO_OK)
        st = read_slots(source, &tensors, s);
    zro__tensors_close(&tensors);
    if (st != ZRO_OK) {
        zro_state_destroy(s);
        return st;
    }
    *out = s;
    return ZRO_OK;
}

zro_status zro_state_read(const char *path, zro_state **out)
{
    zro__source source;
    zro_status st;

    if (out == NULL)
        return zro__fail(ZRO_ERR_INVALID, "state_read: out is NULL");
    *out = NULL;
    if (path == NULL)
        return zro__fail(ZRO_ERR_INVALID, "state_read: path is NULL");
    st = zro__source_open_file(&source, path);
    if (st != ZRO_OK)
        return st;
    st = read_state(&source, out);
    zro__source_close(&source);
    return st;
}

zro_status zro_state_unpack(const void *bytes, size_t n, zro_state **out)
{
    zro__source source;

    if (out == NULL)
        return zro__fail(ZRO_ERR_INVALID, "state_unpack: out is NULL");
    *out = NULL;
    if (bytes == NULL)
        return zro__fail(ZRO_ERR_INVALID, "state_unpack: bytes is NULL");
    zro__source_open_memory(&source, bytes, n);
    return read_state(&source, out);
}
