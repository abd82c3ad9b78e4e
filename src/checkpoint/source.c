/* Sources: see source.h. */
#include "checkpoint/source.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/point.h"
#include "base/status.h"

enum { BUFFER_BYTES = 256 << 10, PIECE_BYTES = 64 << 20 /* at most, per system call */ };

zro_status zro__source_open_file(zro__source *source, const char *path)
{
    struct stat info;
    zro_status st = ZRO_OK;

    *source = (zro__source){ .name = path, .fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) };
    if (source->fd < 0 || fstat(source->fd, &info) != 0)
        st = zro__fail_errno(ZRO_ERR_SYSTEM, errno, "cannot open %s", path);
    else if (!S_ISREG(info.st_mode))
        st = zro__fail(ZRO_ERR_FORMAT, "%s is %s, must be a regular file", path,
                       S_ISDIR(info.st_mode) ? "a folder" : "a device or a pipe");
    else if ((source->buffer = zro__alloc(NULL, ZRO__KIND_BUFFER, BUFFER_BYTES)) == NULL)
        st = zro__fail(ZRO_ERR_MEMORY, "out of memory: a buffer of %d bytes to read %s", BUFFER_BYTES, path);
    else
        source->size = (size_t)info.st_size;
    if (st != ZRO_OK)
        zro__source_close(source);
    return st;
}

void zro__source_open_memory(zro__source *source, const void *bytes, size_t n)
{
    *source = (zro__source){ .name = "the bytes", .bytes = bytes, .fd = -1, .size = n };
}

/* Reads at least `least` bytes and at most `most`; *got says how many. */
static zro_status read_file(zro__source *source, size_t at, char *to, size_t least, size_t most, size_t *got)
{
    *got = 0;
    while (*got < least) {
        const size_t wanted = most - *got < PIECE_BYTES ? most - *got : PIECE_BYTES;
        ssize_t n =
            ZRO__POINT("checkpoint.read") ? (errno = EIO, -1) : pread(source->fd, to + *got, wanted, (off_t)(at + *got));

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return zro__fail_errno(ZRO_ERR_SYSTEM, errno, "cannot read %s at byte %zu", source->name, at + *got);
        if (n == 0)
            return zro__fail(ZRO_ERR_FORMAT, "%s ends at byte %zu, but had %zu when it was opened", source->name, at + *got,
                             source->size);
        *got += (size_t)n;
    }
    return ZRO_OK;
}

static zro_status read_buffered(zro__source *source, size_t at, void *to, size_t n)
{
    zro_status st = ZRO_OK;

    if (at < source->buffer_at || at - source->buffer_at > source->buffered
        || source->buffered - (at - source->buffer_at) < n) {
        st = read_file(source, at, source->buffer, n, BUFFER_BYTES, &source->buffered);
        source->buffer_at = at;
    }
    if (st == ZRO_OK)
        memcpy(to, source->buffer + (at - source->buffer_at), n);
    return st;
}

zro_status zro__source_read(zro__source *source, size_t at, void *to, size_t n)
{
    size_t got;

    if (n == 0)
        return ZRO_OK;
    if (source->bytes == NULL)
        return n <= BUFFER_BYTES / 4 ? read_buffered(source, at, to, n) : read_file(source, at, to, n, n, &got);
    memcpy(to, source->bytes + at, n);
    return ZRO_OK;
}

void zro__source_close(zro__source *source)
{
    if (source->name != NULL && source->bytes == NULL && source->fd >= 0)
        close(source->fd);
    zro__free(source->buffer);
    *source = (zro__source){ .fd = -1 };
}
