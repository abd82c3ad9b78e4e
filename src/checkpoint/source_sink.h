/* Where the bytes of a checkpoint come from, a file or memory, and the file that they go to.
 *
 * A source is read at any place; it says how many bytes it has when it is opened, and a file that has fewer when they are read
 * is an error.  Only regular files are sources: opening a pipe or a device never waits.
 *
 * A sink is a file that is written from the first byte to the last, beside its place, synced, and renamed over it when it is
 * committed: whatever fails before that, the old file stays as it was and nothing is left behind. */
#ifndef ZRO_CHECKPOINT_SOURCE_SINK_H
#define ZRO_CHECKPOINT_SOURCE_SINK_H

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

typedef struct zro__sink {
    const char *path;
    char temporary[40]; /* the file's name in its folder until it is committed; "": there is no such file */
    int fd, folder;     /* the file, and the folder that it is in */
    char *buffer;       /* small writes go through it */
    size_t buffered;    /* how many bytes wait in the buffer */
} zro__sink;

/* close takes one that failed. */
zro_status zro__sink_open(zro__sink *sink, const char *path);
zro_status zro__sink_write(zro__sink *sink, const void *bytes, size_t n);

/* Makes the file durable and puts it in its place. */
zro_status zro__sink_commit(zro__sink *sink);

/* Undoes what was not committed.  Takes one that was never opened, if it was zeroed. */
void zro__sink_close(zro__sink *sink);

#endif
