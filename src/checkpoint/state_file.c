/* A state as a safetensors file, or as its bytes.
 *
 * Tensors of slots are named "<slot>:0:<parameter>" (0: the first element; a parameter without a name is called by its index);
 * arrays have their parameter's shape, single numbers the shape [].  The tensor of a parameter's data has the parameter's name
 * alone, as in files of models.  Everything else is one JSON text under the metadata's key "zro" (state_json.c), which also says
 * of which parameters there is data: so a tensor is never taken for something else, whatever the names are.
 *
 * Reading makes the state without slots first, announces a slot for each tensor in the order of the data, takes one block, and
 * reads the data straight into it: the file exists once in memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/param.h"
#include "base/status.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/sink.h"
#include "checkpoint/source.h"
#include "checkpoint/state_json.h"
#include "zero/state.h"

#define METADATA_KEY "zro"

/* ---- names ---- */

/* A parameter as files call it. */
typedef struct label {
    const char *name; /* NULL: the parameter has none and is called by its number */
    size_t param;
    char number[ZRO__NAME_BYTES];
} label;

static const char *text_of(const label *l)
{
    return l->name != NULL ? l->name : l->number;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(text_of(a), text_of(b));
}

/* The labels of all parameters, sorted by name, to be freed by zro__free.  INVALID: two parameters have the same name. */
static zro_status labels_make(const zro_state *s, label **out)
{
    label *l = *out = zro__alloc_array(NULL, ZRO__KIND_HANDLE, s->n_params, sizeof *l);

    if (l == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: names of %zu parameters", s->n_params);
    for (size_t i = 0; i < s->n_params; i++) {
        l[i] = (label){ .name = zro__state_text(s, s->params[i].name), .param = i };
        snprintf(l[i].number, sizeof l[i].number, "%zu", i);
    }
    qsort(l, s->n_params, sizeof *l, by_name);
    for (size_t i = 1; i < s->n_params; i++)
        if (by_name(&l[i - 1], &l[i]) == 0)
            return zro__fail(ZRO_ERR_INVALID, "two parameters are named %s; give each a name of its own", text_of(&l[i]));
    return ZRO_OK;
}

static const label *find_label(const zro_state *s, const label *labels, const char *name)
{
    const label key = { .name = name };

    return bsearch(&key, labels, s->n_params, sizeof *labels, by_name);
}

/* ---- writing ---- */

/* What a file is made of. */
typedef struct image {
    zro__tensor *tensors; /* their names are in the arena, too */
    zro__arena arena;
    char *header;
    size_t n, header_bytes, data_bytes;
} image;

static void image_free(image *im)
{
    zro__arena_free(&im->arena);
    zro__free(im->header);
}

/* Writes the name of a slot's tensor, or of one with a parameter's data, into a buffer, or measures it if there is none; returns
 * its bytes, the 0 included. */
static size_t put_key(const zro_state *s, const zro__state_slot *slot, char *key, size_t bytes)
{
    const char *param = ZRO__STATE_PARAM_NAME(s, slot->param);

    if (slot->name == ZRO__STATE_NONE)
        return 1 + (size_t)snprintf(key, bytes, "%s", param);
    return 1 + (size_t)snprintf(key, bytes, "%s:0:%s", zro__state_text(s, slot->name), param);
}

static zro_status list_tensors(const zro_state *s, image *im)
{
    size_t bytes = 0;
    char *key;
    zro_status st;

    for (size_t i = 0; i < s->n_slots; i++)
        bytes += put_key(s, &s->slots[i], NULL, 0);
    st = zro__arena_arrays(&im->arena, NULL, "a list of slots",
                           (const zro__array[]){ { &im->tensors, s->n_slots, sizeof *im->tensors }, { &key, bytes, 1 } }, 2);
    for (size_t i = 0; st == ZRO_OK && i < s->n_slots; i++) {
        const zro__state_slot *slot = &s->slots[i];
        const zro__state_param *p = &s->params[slot->param];
        const size_t used = put_key(s, slot, key, bytes);
        zro__tensor *t = &im->tensors[im->n++];

        *t = (zro__tensor){ .name = key, .data = slot->data, .bytes = slot->bytes, .dtype = slot->dtype };
        t->n_dims = slot->single ? 0 : p->n_dims;
        memcpy(t->shape, p->shape, t->n_dims * sizeof *t->shape);
        key += used;
        bytes -= used;
    }
    return st;
}

/* Finds a tensor of data that has the name of another tensor.  That of a slot ends with the name of its parameter, so only a
 * parameter whose own name is "<slot>:0:<parameter>" can have it. */
static zro_status check_names(const zro_state *s, const label *labels)
{
    for (size_t i = 0; i < s->n_params; i++) {
        const char *name = text_of(&labels[i]);
        const size_t bytes = strcspn(name, ":");
        const label *of = strncmp(name + bytes, ":0:", 3) == 0 ? find_label(s, labels, name + bytes + 3) : NULL;

        if (!s->params[labels[i].param].has_data)
            continue;
        if (strcmp(name, ZRO__TENSORS_METADATA) == 0)
            return zro__fail(ZRO_ERR_INVALID, "no tensor can be named %s, as the data of a parameter of this name would be",
                             name);
        for (size_t k = of != NULL ? s->params[of->param].slots.first : ZRO__STATE_NONE; k != ZRO__STATE_NONE;
             k = s->slots[k].next) {
            const char *slot = zro__state_text(s, s->slots[k].name);

            if (strlen(slot) == bytes && memcmp(slot, name, bytes) == 0)
                return zro__fail(
                    ZRO_ERR_INVALID,
                    "two tensors would be named %s: the data of this parameter, and slot %s of parameter %s; rename "
                    "the first one",
                    name, slot, text_of(of));
        }
    }
    return ZRO_OK;
}

static zro_status image_make(const zro_state *s, image *im)
{
    label *labels = NULL;
    char *text = NULL;
    zro_status st = zro__state_check(s);

    *im = (image){ 0 };
    if (st == ZRO_OK)
        st = labels_make(s, &labels);
    if (st == ZRO_OK)
        st = check_names(s, labels);
    zro__free(labels); /* made to see that no two are the same */
    if (st == ZRO_OK)
        st = list_tensors(s, im);
    if (st == ZRO_OK)
        st = zro__state_to_json(s, &text);
    if (st == ZRO_OK)
        st = zro__tensors_header(im->tensors, im->n, METADATA_KEY, text, &im->header, &im->header_bytes, &im->data_bytes);
    zro__free(text);
    return st;
}

zro_status zro_state_write(const zro_state *s, const char *path)
{
    zro__sink sink = { 0 };
    image im;
    zro_status st;

    if (path == NULL || path[0] == '\0')
        return zro__fail(ZRO_ERR_INVALID, "state_write: path is %s", path == NULL ? "NULL" : "empty");
    st = image_make(s, &im);
    if (st == ZRO_OK)
        st = zro__sink_open(&sink, path, im.header_bytes + im.data_bytes);
    if (st == ZRO_OK)
        st = zro__sink_write(&sink, im.header, im.header_bytes);
    for (size_t i = 0; i < im.n && st == ZRO_OK; i++)
        st = zro__sink_write(&sink, im.tensors[i].data, im.tensors[i].bytes);
    if (st == ZRO_OK)
        st = zro__sink_commit(&sink);
    zro__sink_close(&sink);
    image_free(&im);
    return st;
}

zro_status zro_state_pack(const zro_state *s, void **bytes, size_t *n)
{
    image im;
    zro_status st;
    char *at = NULL;

    if (bytes == NULL || n == NULL)
        return zro__fail(ZRO_ERR_INVALID, "state_pack: %s is NULL", bytes == NULL ? "bytes" : "n");
    *bytes = NULL;
    *n = 0;
    st = image_make(s, &im);
    if (st == ZRO_OK && (at = zro__alloc(NULL, ZRO__KIND_BUFFER, im.header_bytes + im.data_bytes)) == NULL)
        st = zro__fail(ZRO_ERR_MEMORY, "out of memory: a state packed into %zu bytes", im.header_bytes + im.data_bytes);
    if (st == ZRO_OK) {
        *n = im.header_bytes + im.data_bytes;
        *bytes = memcpy(at, im.header, im.header_bytes);
        for (size_t i = 0; i < im.n; i++)
            if (im.tensors[i].bytes > 0)
                memcpy(at + im.header_bytes + im.tensors[i].begin, im.tensors[i].data, im.tensors[i].bytes);
    }
    image_free(&im);
    return st;
}

/* ---- reading ---- */

/* The parameter of a tensor and, written into `slot`, the name of its slot. */
static zro_status split_name(const char *name, const zro_state *s, const label *labels, char *slot, size_t *param)
{
    const size_t bytes = strcspn(name, ":");
    const label *found;

    if (bytes > ZRO__STATE_NAME_BYTES || strncmp(name + bytes, ":0:", 3) != 0)
        return zro__fail(ZRO_ERR_INVALID, "tensor %s: its name must be <slot>:0:<parameter>", name);
    memcpy(slot, name, bytes);
    slot[bytes] = '\0';
    found = find_label(s, labels, name + bytes + 3);
    if (found == NULL)
        return zro__fail(ZRO_ERR_INVALID, "tensor %s: there is no parameter %s", name, name + bytes + 3);
    *param = found->param;
    return ZRO_OK;
}

static int has_shape(const zro__tensor *t, const zro__state_param *p)
{
    return t->n_dims == p->n_dims && memcmp(t->shape, p->shape, t->n_dims * sizeof *t->shape) == 0;
}

static zro_status plan_data(const zro__tensor *t, size_t param, zro_state *s)
{
    const zro__state_param *p = &s->params[param];

    if (!has_shape(t, p))
        return zro__fail(ZRO_ERR_INVALID, "tensor %s: its shape is not that of its parameter", t->name);
    if (t->dtype != p->dtype)
        return zro__fail(ZRO_ERR_INVALID, "tensor %s: its type is %s, its parameter's %s", t->name, zro_dtype_name(t->dtype),
                         zro_dtype_name(p->dtype));
    return zro__state_plan_data(s, param);
}

static zro_status plan_tensor(const zro__tensor *t, const label *labels, zro_state *s)
{
    const label *named = find_label(s, labels, t->name);
    char slot[ZRO__STATE_NAME_BYTES + 1];
    const zro__state_param *p;
    size_t param = 0;
    zro_status st;
    int whole;

    if (named != NULL && s->params[named->param].has_data)
        return plan_data(t, named->param, s);
    st = split_name(t->name, s, labels, slot, &param);
    if (st != ZRO_OK)
        return st;
    p = &s->params[param];
    whole = has_shape(t, p);
    if (!whole && t->n_dims != 0)
        return zro__fail(ZRO_ERR_INVALID, "tensor %s: its shape is neither its parameter's nor []", t->name);
    st = zro__state_plan_slot(s, param, slot, t->dtype, whole ? p->count : 1);
    if (st == ZRO_OK)
        s->slots[s->n_slots - 1].single = !whole;
    return st;
}

static zro_status check_data(const zro_state *s)
{
    for (size_t i = 0; i < s->n_params; i++)
        if (s->params[i].has_data && s->params[i].data == ZRO__STATE_NONE)
            return zro__fail(ZRO_ERR_INVALID, "tensor %s, with the data of the parameter, is missing",
                             ZRO__STATE_PARAM_NAME(s, i));
    return ZRO_OK;
}

static zro_status read_slots(zro__source *source, const zro__tensors *tensors, zro_state *s)
{
    label *labels = NULL;
    zro_status st = labels_make(s, &labels);

    for (size_t i = 0; i < tensors->n && st == ZRO_OK; i++)
        st = plan_tensor(&tensors->list[i], labels, s);
    zro__free(labels);
    if (st == ZRO_OK)
        st = check_data(s);
    if (st == ZRO_OK)
        st = zro__state_take(s);
    for (size_t i = 0; i < tensors->n && st == ZRO_OK; i++)
        st = zro__source_read(source, tensors->data_first + tensors->list[i].begin, s->slots[i].data, tensors->list[i].bytes);
    return zro__blame(source->name, "", st);
}

static zro_status read_json(const zro__source *source, const zro__tensors *tensors, zro_state **out)
{
    const char *text = zro__tensors_metadata(tensors, METADATA_KEY);
    json_t *json;
    zro_status st;

    if (text == NULL)
        return zro__fail(ZRO_ERR_FORMAT, "%s: no state of zro: its metadata has no \"" METADATA_KEY "\"", source->name);
    st = zro__json_parse(text, strlen(text), &json);
    if (st == ZRO_OK)
        st = zro__state_from_json(json, out);
    json_decref(json);
    return zro__blame(source->name, "metadata: ", st);
}

/* Reads the source, which has been opened with `st`, and closes it. */
static zro_status read_state(zro__source *source, zro_status st, zro_state **out)
{
    zro_state *s = NULL;
    zro__tensors tensors;

    if (st != ZRO_OK)
        return st;
    st = zro__tensors_open(&tensors, source);
    if (st == ZRO_OK)
        st = read_json(source, &tensors, &s);
    if (st == ZRO_OK)
        st = read_slots(source, &tensors, s);
    zro__tensors_close(&tensors);
    zro__source_close(source);
    if (st == ZRO_OK)
        *out = s;
    else
        zro_state_destroy(s);
    return st;
}

/* Sets *out to NULL. */
static zro_status check_arguments(const char *call, const char *what, const void *from, zro_state **out)
{
    if (out != NULL)
        *out = NULL;
    return out != NULL && from != NULL ? ZRO_OK
                                       : zro__fail(ZRO_ERR_INVALID, "%s: %s is NULL", call, out == NULL ? "out" : what);
}

zro_status zro_state_read(const char *path, zro_state **out)
{
    zro_status st = check_arguments("state_read", "path", path, out);
    zro__source source;

    return st == ZRO_OK ? read_state(&source, zro__source_open_file(&source, path), out) : st;
}

zro_status zro_state_unpack(const void *bytes, size_t n, zro_state **out)
{
    zro_status st = check_arguments("state_unpack", "bytes", bytes, out);
    zro__source source;

    if (st != ZRO_OK)
        return st;
    zro__source_open_memory(&source, bytes, n);
    return read_state(&source, ZRO_OK, out);
}
