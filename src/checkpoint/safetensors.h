/* The safetensors format: named arrays in one file.  The format stands at the head of safetensors.c. */
#ifndef ZRO_CHECKPOINT_SAFETENSORS_H
#define ZRO_CHECKPOINT_SAFETENSORS_H

#include <jansson.h>

#include "checkpoint/source.h"
#include "zro.h"

#define ZRO__TENSORS_METADATA "__metadata__" /* the key of the header that is no tensor */

typedef struct zro__tensor {
    const char *name;
    const void *data; /* to be written; unused by the reader */
    size_t bytes;
    size_t begin; /* where it begins, counted from the start of the data */
    size_t shape[ZRO_MAX_DIMS];
    uint32_t n_dims;
    zro_dtype dtype;
} zro__tensor;

/* What a header says.  The tensors' names are the header's own. */
typedef struct zro__tensors {
    json_t *header;
    zro__tensor *list; /* in the order in which they lie in the data */
    size_t n;
    size_t data_first; /* where the data begins */
} zro__tensors;

/* Reads and checks everything but the data.  close takes one that failed.
 *
 * FORMAT  it is not what it should be; the text says where */
zro_status zro__tensors_open(zro__tensors *tensors, zro__source *source);
void zro__tensors_close(zro__tensors *tensors);

/* A text of the metadata; NULL if there is none of this name. */
const char *zro__tensors_metadata(const zro__tensors *tensors, const char *name);

/* The first bytes of a file with this list of tensors, of different names in UTF-8, and one text of metadata.  Puts the list in
 * the order of the file, by element size descending, then by name, and sets `begin` of all.  To be freed by zro__free;
 * *data_bytes is what must follow: the tensors in the order of the list. */
zro_status zro__tensors_header(zro__tensor *list, size_t n, const char *key, const char *value, char **header,
                               size_t *header_bytes, size_t *data_bytes);

/* A shape, that is, a list of at most ZRO_MAX_DIMS sizes.  INVALID says what is wrong, and of what it is the shape. */
zro_status zro__json_shape(const char *of, const json_t *json, size_t *shape, uint32_t *n_dims);

/* Parses JSON whose nesting and keys are checked.  To be freed by json_decref; *out is NULL on failure.
 *
 * INVALID  it is no JSON, is nested too deep or has a key twice */
zro_status zro__json_parse(const char *text, size_t bytes, json_t **out);

/* What is INVALID while a file is read is the file's fault: FORMAT, with the file and the part of it before the text.  Passes
 * on every other status. */
zro_status zro__blame(const char *file, const char *part, zro_status st);

#endif
