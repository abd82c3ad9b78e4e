/* Where the bytes of a checkpoint come from and go to: a file, or memory.
 *
 * A source is read at any place; it says how many bytes it has when it is opened, and a file that has fewer when they are read
 * is an error.  Only regular files are sources: opening a pipe or a device never waits.
 *
 * A sink is written from the first byte to the last.  A file is written beside its place, synced, and renamed over it when it
 * is committed: whatever fails before that, the old file stays as it was and nothing is left behind. */
#ifndef ZRO_CHECKPOINT_FILE_H
#define ZRO_CHECKPOINT_FILE_H

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

/* All of the n bytes, which must lie within the size. */
zro_status zro__source_read(zro__source *source, size_t at, void *to, size_t n);

/* Takes one that was never opened, if it was zeroed. */
void zro__source_close(zro__source *source);

typedef struct zro__sink {
    const char *path; /* NULL: memory */
    char *temporary;  /* the file's name for now */
    int fd, folder;   /* the file, and the folder that it is in */
    char *memory;
    size_t at, size; /* of the memory */
    char *buffer;    /* small writes to a file go through it */
    size_t buffered;
} zro__sink;

/* size: how many bytes will be written. */
zro_status zro__sink_open_file(zro__sink *sink, const char *path);
zro_status zro__sink_open_memory(zro__sink *sink, size_t size);

zro_status zro__sink_write(zro__sink *sink, const void *bytes, size_t n);

/* A file: makes it durable and puts it in its place.  Memory: hands it over, to be freed by zro__free. */
zro_status zro__sink_commit_file(zro__sink *sink);
void *zro__sink_commit_memory(zro__sink *sink);

/* Undoes what was not committed.  Takes one that was never opened, if it was zeroed. */
void zro__sink_close(zro__sink *sink);

#endif
