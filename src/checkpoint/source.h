/* Where the bytes of a checkpoint come from: a file, or memory.
 *
 * A source is read at any place; it says how many bytes it has when it is opened, and a file that has fewer when they are read
 * is an error.  Only regular files are sources: opening a pipe or a device never waits. */
#ifndef ZRO_CHECKPOINT_SOURCE_H
#define ZRO_CHECKPOINT_SOURCE_H

#include <stddef.h>

#include "zro.h"

typedef struct zro__source {
    const char *name;  /* in texts: the path, or what the memory is */
    const char *bytes; /* NULL: a file */
    int fd;
    size_t size;
    char *buffer; /* small reads of a file go through it; it holds bytes [buffer_at, buffer_at + buffered) */
    size_t buffer_at, buffered;
} zro__source;

/* FORMAT: not a regular file.  SYSTEM: it cannot be opened. */
zro_status zro__source_open_file(zro__source *source, const char *path);
void zro__source_open_memory(zro__source *source, const void *bytes, size_t n);

/* Reads n bytes, all of which must lie within the size. */
zro_status zro__source_read(zro__source *source, size_t at, void *to, size_t n);

/* Takes one that was never opened, if it was zeroed. */
void zro__source_close(zro__source *source);

#endif
