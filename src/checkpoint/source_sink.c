/* Sources and sinks: see source_sink.h. */
#include "checkpoint/source_sink.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/point.h"
#include "base/status.h"

enum { BUFFER_BYTES = 256 << 10, PIECE_BYTES = 64 << 20 /* at most, per system call */, TRIES = 100 };

/* ---- sources ---- */

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

/* ---- sinks ---- */

/* Opens the folder that the path is in; the buffer, which is still empty, holds its name for the moment. */
static zro_status open_folder(zro__sink *sink)
{
    const char *slash = strrchr(sink->path, '/');
    const size_t length = slash != NULL ? (size_t)(slash - sink->path) : 0;

    snprintf(sink->buffer, BUFFER_BYTES, "%.*s", (int)length, sink->path);
    if (length == 0)
        strcpy(sink->buffer, slash != NULL ? "/" : ".");
    sink->folder = open(sink->buffer, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (sink->folder < 0)
        return zro__fail_errno(ZRO_ERR_SYSTEM, errno, "cannot write %s: cannot open its folder", sink->path);
    return ZRO_OK;
}

/* A new file, named so that two writers to one folder do not meet, and one that was left by a crash is in nobody's way. */
static zro_status open_temporary(zro__sink *sink)
{
    const uint64_t unique = zro__now_ns() ^ ((uint64_t)getpid() << 40) ^ (uint64_t)(uintptr_t)sink;

    for (uint64_t i = 0; i < TRIES; i++) {
        snprintf(sink->temporary, sizeof sink->temporary, ".zro-%016" PRIx64 ".tmp", unique + i);
        sink->fd = ZRO__POINT("checkpoint.open")
                       ? (errno = EIO, -1)
                       : openat(sink->folder, sink->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (sink->fd >= 0)
            return ZRO_OK;
        if (errno != EEXIST && errno != EINTR)
            break;
    }
    sink->temporary[0] = '\0'; /* close must not remove another writer's file */
    return zro__fail_errno(ZRO_ERR_SYSTEM, errno, "cannot write %s: cannot make a file beside it", sink->path);
}

zro_status zro__sink_open(zro__sink *sink, const char *path)
{
    zro_status st;

    *sink = (zro__sink){ .path = path, .fd = -1, .folder = -1, .buffer = zro__alloc(NULL, ZRO__KIND_BUFFER, BUFFER_BYTES) };
    if (sink->buffer == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a buffer of %d bytes to write %s", BUFFER_BYTES, path);
    st = open_folder(sink);
    return st == ZRO_OK ? open_temporary(sink) : st;
}

static zro_status write_file(zro__sink *sink, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t done =
            ZRO__POINT("checkpoint.write") ? (errno = ENOSPC, -1) : write(sink->fd, bytes, n < PIECE_BYTES ? n : PIECE_BYTES);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return zro__fail_errno(ZRO_ERR_SYSTEM, errno, "cannot write %s", sink->path);
        bytes += done;
        n -= (size_t)done;
    }
    return ZRO_OK;
}

static zro_status flush(zro__sink *sink)
{
    size_t n = sink->buffered;

    sink->buffered = 0;
    return write_file(sink, sink->buffer, n);
}

zro_status zro__sink_write(zro__sink *sink, const void *bytes, size_t n)
{
    zro_status st = ZRO_OK;

    if (n == 0)
        return ZRO_OK;
    if (n > BUFFER_BYTES - sink->buffered)
        st = flush(sink);
    if (st != ZRO_OK || n > BUFFER_BYTES)
        return st != ZRO_OK ? st : write_file(sink, bytes, n);
    memcpy(sink->buffer + sink->buffered, bytes, n);
    sink->buffered += n;
    return ZRO_OK;
}

/* Whatever close returns, the descriptor is gone. */
static int sync_and_close(zro__sink *sink)
{
    const int fd = sink->fd;

    if (fsync(fd) != 0)
        return -1;
    sink->fd = -1;
    return close(fd);
}

zro_status zro__sink_commit(zro__sink *sink)
{
    zro_status st = flush(sink);

    if (st != ZRO_OK)
        return st;
    if (ZRO__POINT("checkpoint.sync") ? (errno = EIO, 1) : sync_and_close(sink) != 0)
        return zro__fail_errno(ZRO_ERR_SYSTEM, errno, "cannot write %s: cannot sync it", sink->path);
    if (ZRO__POINT("checkpoint.rename") ? (errno = EIO, 1) : renameat(sink->folder, sink->temporary, AT_FDCWD, sink->path) != 0)
        return zro__fail_errno(ZRO_ERR_SYSTEM, errno, "cannot write %s: cannot rename the new file", sink->path);
    sink->temporary[0] = '\0';
    /* Some file systems cannot sync a folder, and say so with EINVAL. */
    if (ZRO__POINT("checkpoint.sync_folder") ? (errno = EIO, 1) : fsync(sink->folder) != 0 && errno != EINVAL)
        return zro__fail_errno(ZRO_ERR_SYSTEM, errno,
                               "%s is written, but may be lost if the machine fails: cannot sync its folder", sink->path);
    return ZRO_OK;
}

void zro__sink_close(zro__sink *sink)
{
    if (sink->path != NULL && sink->fd >= 0)
        close(sink->fd);
    if (sink->temporary[0] != '\0')
        unlinkat(sink->folder, sink->temporary, 0);
    if (sink->path != NULL && sink->folder >= 0)
        close(sink->folder);
    zro__free(sink->buffer);
    *sink = (zro__sink){ .fd = -1, .folder = -1 };
}
