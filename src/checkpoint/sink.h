/* The file that the bytes of a checkpoint go to.
 *
 * A sink is a file that is written from the first byte to the last, synced, and renamed over its place when it is committed:
 * whatever fails before that, the old file stays as it was and nothing is left behind.  How it gets there stands at the head of
 * sink.c. */
#ifndef ZRO_CHECKPOINT_SINK_H
#define ZRO_CHECKPOINT_SINK_H

#include <stddef.h>

#include "zro.h"

typedef struct zro__sink {
    const char *path;   /* what the caller asked for, for texts */
    char name[256];     /* the name that the file will have in its folder */
    char temporary[48]; /* the name that it has until it is committed; "": it has none */
    int fd, folder;     /* the file, and the folder that it is in */
    char *buffer;       /* small writes go through it */
    size_t buffered;    /* how many bytes wait in the buffer */
} zro__sink;

/* Opens a sink for so many bytes.  close takes one that failed.
 *
 * INVALID  the path is a folder, a device, a pipe or a socket
 * SYSTEM   there can be no such file here, or not of so many bytes */
zro_status zro__sink_open(zro__sink *sink, const char *path, size_t bytes);
zro_status zro__sink_write(zro__sink *sink, const void *bytes, size_t n);

/* Makes the file durable and puts it in its place. */
zro_status zro__sink_commit(zro__sink *sink);

/* Undoes what was not committed.  Takes one that was never opened, if it was zeroed. */
void zro__sink_close(zro__sink *sink);

#endif
