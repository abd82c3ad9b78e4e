/* Sources and sinks: see file.h. */
#include "checkpoint/file.h"

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

enum { BUFFER_BYTES = 256 << 10, PIECE_BYTES = 64 << 20 /* of one system call */, TRIES = 100 };

/* ---- sources ---- */

static zro_status check_regular(zro__source *source)
{
    struct stat info;

    if (fstat(source->fd, &info) != 0)
        return zro__fail_errno(ZRO_ERR_SYSTEM, errno, "cannot look at %s", source->name);
    if (S_ISDIR(info.st_mode))
        return zro__fail(ZRO_ERR_FORMAT, "%s is a folder, must be a file", source->name);
    if (!S_ISREG(info.st_mode))
        return zro__fail(ZRO_ERR_FORMAT, "%s is no regular file", source->name);
    source->size = (size_t)info.st_size;
    return ZRO_OK;
}

zro_status zro__source_open_file(zro__source *source, const char *path)
{
    zro_status st;

    *source = (zro__source){ .name = path, .fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) };
    if (source->fd < 0)
        return zro__fail_errno(ZRO_ERR_SYSTEM, errno, "cannot open %s", path);
    st = check_regular(source);
    if (st == ZRO_OK && (source->buffer = zro__alloc(NULL, ZRO__KIND_BUFFER, BUFFER_BYTES)) == NULL)
        st = zro__fail(ZRO_ERR_MEMORY, "out of memory: a buffer of %d bytes to read %s", BUFFER_BYTES, path);
    if (st != ZRO_OK)
        zro__source_close(source);
    return st;
}

void zro__source_open_memory(zro__source *source, const void *bytes, size_t n)
{
    *source = (zro__source){ .name = "the bytes", .bytes = bytes, .fd = -1, .size = n };
}

static ssize_t read_some(int fd, void *to, size_t n, size_t at)
{
    if (ZRO__POINT("checkpoint.read")) {
        errno = EIO;
        return -1;
    }
    return pread(fd, to, n < PIECE_BYTES ? n : PIECE_BYTES, (off_t)at);
}

/* At least `least` bytes and at most `most`; *got is how many. */
static zro_status read_file(zro__source *source, size_t at, char *to, size_t least, size_t most, size_t *got)
{
    *got = 0;
    while (*got < least) {
        ssize_t n = read_some(source->fd, to + *got, most - *got, at + *got);

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

/* `folder` has room for the path, and becomes the folder that it is in. */
static zro_status open_folder(zro__sink *sink, char *folder)
{
    char *slash;

    strcpy(folder, sink->path);
    slash = strrchr(folder, '/');
    if (slash == NULL)
        strcpy(folder, ".");
    else
        slash[slash == folder] = '\0';
    sink->folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (sink->folder < 0)
        return zro__fail_errno(ZRO_ERR_SYSTEM, errno, "cannot write %s: cannot open its folder", sink->path);
    return ZRO_OK;
}

/* A new file, named so that two writers to one folder do not meet, and one that was left by a crash is in nobody's way. */
static zro_status open_temporary(zro__sink *sink, const char *folder, size_t room)
{
    for (int i = 0; i < TRIES && sink->fd < 0; i++) {
        uint64_t unique = zro__now_ns() ^ ((uint64_t)getpid() << 40) ^ (uint64_t)(uintptr_t)sink;

        snprintf(sink->temporary, room, "%s/.zro-%016" PRIx64 ".tmp", folder, unique + (uint64_t)i);
        sink->fd = ZRO__POINT("checkpoint.open") ? (errno = EIO, -1)
                                                 : open(sink->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (sink->fd < 0 && errno != EEXIST && errno != EINTR)
            break;
    }
    if (sink->fd < 0) {
        sink->temporary[0] = '\0';
        return zro__fail_errno(ZRO_ERR_SYSTEM, errno, "cannot write %s: cannot make a file beside it", sink->path);
    }
    return ZRO_OK;
}

zro_status zro__sink_open_file(zro__sink *sink, const char *path)
{
    size_t length = strlen(path), room = length + 64;
    char *folder = zro__alloc(NULL, ZRO__KIND_HANDLE, length + 2);
    zro_status st = ZRO_OK;

    *sink = (zro__sink){ .path = path, .fd = -1, .folder = -1 };
    sink->temporary = zro__alloc(NULL, ZRO__KIND_HANDLE, room);
    sink->buffer = zro__alloc(NULL, ZRO__KIND_BUFFER, BUFFER_BYTES);
    if (folder == NULL || sink->temporary == NULL || sink->buffer == NULL)
        st = zro__fail(ZRO_ERR_MEMORY, "out of memory: a buffer of %d bytes to write %s", BUFFER_BYTES, path);
    if (st == ZRO_OK)
        st = open_folder(sink, folder);
    if (st == ZRO_OK)
        st = open_temporary(sink, folder, room);
    zro__free(folder);
    if (st != ZRO_OK)
        zro__sink_close(sink);
    return st;
}

zro_status zro__sink_open_memory(zro__sink *sink, size_t size)
{
    *sink = (zro__sink){ .fd = -1, .folder = -1, .size = size };
    sink->memory = zro__alloc(NULL, ZRO__KIND_BUFFER, size);
    if (sink->memory == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a state packed into %zu bytes", size);
    return ZRO_OK;
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

static zro_status write_memory(zro__sink *sink, const void *bytes, size_t n)
{
    if (n > sink->size - sink->at)
        return zro__fail(ZRO_ERR_STATE, "a state packed into %zu bytes has more", sink->size);
    memcpy(sink->memory + sink->at, bytes, n);
    sink->at += n;
    return ZRO_OK;
}

zro_status zro__sink_write(zro__sink *sink, const void *bytes, size_t n)
{
    zro_status st = ZRO_OK;

    if (n == 0)
        return ZRO_OK;
    if (sink->path == NULL)
        return write_memory(sink, bytes, n);
    if (n > BUFFER_BYTES - sink->buffered)
        st = flush(sink);
    if (st != ZRO_OK || n > BUFFER_BYTES)
        return st != ZRO_OK ? st : write_file(sink, bytes, n);
    memcpy(sink->buffer + sink->buffered, bytes, n);
    sink->buffered += n;
    return ZRO_OK;
}

static zro_status sync_file(zro__sink *sink)
{
    int failed = ZRO__POINT("checkpoint.sync") ? (errno = EIO, 1) : fsync(sink->fd) != 0;

    if (!failed) {
        failed = close(sink->fd) != 0; /* whatever it returns, the descriptor is gone */
        sink->fd = -1;
    }
    return failed ? zro__fail_errno(ZRO_ERR_SYSTEM, errno, "cannot write %s: cannot sync it", sink->path) : ZRO_OK;
}

/* Some file systems cannot sync a folder, and say so. */
static zro_status sync_folder(const zro__sink *sink)
{
    int failed = ZRO__POINT("checkpoint.sync_folder") ? (errno = EIO, 1) : fsync(sink->folder) != 0 && errno != EINVAL;

    return failed ? zro__fail_errno(ZRO_ERR_SYSTEM, errno,
                                    "%s is written, but may be lost if the machine fails: cannot sync its folder", sink->path)
                  : ZRO_OK;
}

zro_status zro__sink_commit_file(zro__sink *sink)
{
    zro_status st = flush(sink);
    int failed;

    if (st == ZRO_OK)
        st = sync_file(sink);
    if (st != ZRO_OK)
        return st;
    failed = ZRO__POINT("checkpoint.rename") ? (errno = EIO, 1) : rename(sink->temporary, sink->path) != 0;
    if (failed)
        return zro__fail_errno(ZRO_ERR_SYSTEM, errno, "cannot write %s: cannot rename the new file", sink->path);
    sink->temporary[0] = '\0';
    return sync_folder(sink);
}

void *zro__sink_commit_memory(zro__sink *sink)
{
    void *memory = sink->memory;

    sink->memory = NULL;
    return memory;
}

void zro__sink_close(zro__sink *sink)
{
    if (sink->path != NULL) {
        if (sink->fd >= 0)
            close(sink->fd);
        if (sink->temporary != NULL && sink->temporary[0] != '\0')
            unlink(sink->temporary);
        if (sink->folder >= 0)
            close(sink->folder);
    }
    zro__free(sink->temporary);
    zro__free(sink->buffer);
    zro__free(sink->memory);
    *sink = (zro__sink){ .fd = -1, .folder = -1 };
}
