/* Sinks: see sink.h.
 *
 * The new file has no name while it is written (O_TMPFILE), so that a writer that is killed leaves nothing.  Since linkat
 * cannot replace a file, it gets a temporary name when all of it is synced, and is renamed at once.  Where there are no files
 * without a name, it has the temporary name from the start.
 *
 * Leftovers.  A writer that is killed while its file has a temporary name leaves that file, and the next writer to the same
 * place removes it: the name begins with ".zro-", a hash of the place's name and "-".  Writers that live hold a lock (flock) on
 * their file until it is renamed, and who cannot get that lock does not remove the file.  A lock goes when its writer goes,
 * which a process id in the name cannot tell, because processes in other containers and on other machines may have the same
 * one.  Where the file system has no locks, nothing is removed.
 *
 * The name of a file that is made with its name is there before it is locked.  Should another writer take it for a leftover in
 * between, then either the lock is taken or the file has no name any more when the lock is there; both are seen, and the file
 * is made anew. */
#define _GNU_SOURCE

#include "checkpoint/sink.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/point.h"
#include "base/status.h"

enum { BUFFER_BYTES = 256 << 10, PIECE_BYTES = 64 << 20 /* at most, per system call */, TRIES = 100, MAX_LINKS = 40 };

/* ---- the place ---- */

static const char *kind_of(const struct stat *info)
{
    return S_ISDIR(info->st_mode)    ? "a folder"
           : S_ISFIFO(info->st_mode) ? "a pipe"
           : S_ISSOCK(info->st_mode) ? "a socket"
                                     : "a device";
}

/* Looks at what is there, without opening it; a pipe would wait for a reader.  *old is zeroed if there is nothing. */
static zro_status check_place(const char *path, size_t bytes, struct stat *old)
{
    struct rlimit limit;

    if (stat(path, old) != 0) {
        *old = (struct stat){ 0 }; /* nothing, or nothing that can be reached: find_place says which */
    } else if (!S_ISREG(old->st_mode)) {
        return zro__fail(ZRO_ERR_INVALID, "cannot write %s: it is %s, must be a regular file or a new name", path,
                         kind_of(old));
    } else if (faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) != 0) { /* rename would not ask */
        return zro__fail_errno(ZRO_ERR_SYSTEM, errno, "cannot write %s", path);
    }
    /* Who exceeds this limit gets a signal, which ends the process. */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && bytes > limit.rlim_cur)
        return zro__fail(ZRO_ERR_SYSTEM,
                         "cannot write %s: its %zu bytes exceed the limit on file sizes (%" PRIu64 " bytes, see ulimit -f)",
                         path, bytes, (uint64_t)limit.rlim_cur);
    return ZRO_OK;
}

/* Divides a path, which is overwritten, into a folder, which is opened, and a name.  A relative path begins in the folder that
 * was open before. */
static zro_status enter_folder(zro__sink *sink, char *path)
{
    char *slash = strrchr(path, '/');
    const int from = sink->folder;

    if ((size_t)snprintf(sink->name, sizeof sink->name, "%s", slash != NULL ? slash + 1 : path) >= sizeof sink->name)
        return zro__fail_errno(ZRO_ERR_SYSTEM, ENAMETOOLONG, "cannot write %s", sink->path);
    if (slash == NULL)
        strcpy(path, ".");
    else
        slash[slash == path] = '\0'; /* "/" stays */
    sink->folder = openat(from >= 0 ? from : AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (from >= 0)
        close(from);
    if (sink->folder < 0)
        return zro__fail_errno(ZRO_ERR_SYSTEM, errno, "cannot write %s: cannot open its folder", sink->path);
    return ZRO_OK;
}

/* Finds the folder and the name of the file.  Links are followed one by one to the last, whether it leads to a file or to
 * nothing, because rename would replace the link.  The buffer, which is still empty, holds paths for the moment. */
static zro_status find_place(zro__sink *sink)
{
    snprintf(sink->buffer, BUFFER_BYTES, "%s", sink->path);
    for (int links = 0; links <= MAX_LINKS; links++) {
        zro_status st = enter_folder(sink, sink->buffer);
        ssize_t n = st == ZRO_OK ? readlinkat(sink->folder, sink->name, sink->buffer, BUFFER_BYTES - 1) : -1;

        if (st != ZRO_OK)
            return st;
        if (n < 0 && (errno == EINVAL || errno == ENOENT)) /* no link, or nothing */
            return ZRO_OK;
        if (n < 0)
            return zro__fail_errno(ZRO_ERR_SYSTEM, errno, "cannot write %s", sink->path);
        sink->buffer[n] = '\0';
    }
    return zro__fail_errno(ZRO_ERR_SYSTEM, ELOOP, "cannot write %s", sink->path);
}

/* ---- the new file ---- */

/* The beginning of the temporary names of all writers to this place. */
static int put_prefix(const zro__sink *sink, char *to, size_t bytes)
{
    return snprintf(to, bytes, ".zro-%016" PRIx64 "-", zro__hash(ZRO__HASH_START, sink->name, strlen(sink->name)));
}

static void remove_if_left(const zro__sink *sink, const char *name)
{
    int fd = openat(sink->folder, name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0)
        return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        unlinkat(sink->folder, name, 0);
    close(fd);
}

/* Removes what killed writers have left.  A failure is no reason not to write. */
static void remove_leftovers(const zro__sink *sink)
{
    char prefix[sizeof sink->temporary];
    const size_t length = (size_t)put_prefix(sink, prefix, sizeof prefix);
    int fd = openat(sink->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;

    if (list == NULL && fd >= 0)
        close(fd);
    for (struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;)
        if (strncmp(entry->d_name, prefix, length) == 0)
            remove_if_left(sink, entry->d_name);
    if (list != NULL)
        closedir(list);
}

/* A temporary name that nobody has, at the nth try. */
static void choose_name(zro__sink *sink, uint64_t nth)
{
    const uint64_t unique = zro__now_ns() ^ ((uint64_t)getpid() << 40) ^ (uint64_t)(uintptr_t)sink;
    const int n = put_prefix(sink, sink->temporary, sizeof sink->temporary);

    snprintf(sink->temporary + n, sizeof sink->temporary - (size_t)n, "%016" PRIx64 ".tmp", unique + nth);
}

/* A file that gets its name through /proc when it is whole; -1 if there is no such thing here. */
static int open_nameless(zro__sink *sink, mode_t mode)
{
    char proc[40];
    int fd = ZRO__POINT("checkpoint.nameless") ? -1 : openat(sink->folder, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);

    snprintf(proc, sizeof proc, "/proc/self/fd/%d", fd);
    if (fd >= 0 && access(proc, F_OK) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Whether the file is locked and still has its name: see the head. */
static int lock_named(int fd)
{
    struct stat info;

    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        return errno != EWOULDBLOCK; /* a file system without locks */
    return fstat(fd, &info) == 0 && info.st_nlink > 0;
}

/* A file with the temporary name, or -1. */
static int open_named(zro__sink *sink, mode_t mode)
{
    int fd = openat(sink->folder, sink->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);

    if (fd < 0 || lock_named(fd))
        return fd;
    close(fd);
    errno = EBUSY; /* another writer has it: see the head */
    return -1;
}

/* Gives the file that has no name the temporary one; 0, or -1. */
static int link_nameless(const zro__sink *sink)
{
    char proc[40];

    snprintf(proc, sizeof proc, "/proc/self/fd/%d", sink->fd);
    return linkat(AT_FDCWD, proc, sink->folder, sink->temporary, AT_SYMLINK_FOLLOW);
}

/* Makes a file with a temporary name that nobody has or, if there is a file without a name, gives it one. */
static zro_status take_name(zro__sink *sink, mode_t mode)
{
    const int is_open = sink->fd >= 0;
    int error = EBUSY;

    for (uint64_t i = 0; i < TRIES && (error == EEXIST || error == EINTR || error == EBUSY); i++) {
        choose_name(sink, i);
        if (is_open ? ZRO__POINT("checkpoint.link") : ZRO__POINT("checkpoint.open"))
            error = EIO;
        else if ((is_open ? link_nameless(sink) : (sink->fd = open_named(sink, mode))) >= 0)
            return ZRO_OK;
        else
            error = errno;
    }
    sink->temporary[0] = '\0'; /* close must not remove another writer's file */
    return zro__fail_errno(ZRO_ERR_SYSTEM, error, "cannot write %s: cannot make a file in its folder", sink->path);
}

/* What replaces a file has its mode and, as far as this process may give files away, its owner and group.  The members of
 * another group get no more than others. */
static zro_status keep_mode(zro__sink *sink, const struct stat *old)
{
    mode_t mode = old->st_mode & 0777;
    struct stat new;

    if (fstat(sink->fd, &new) != 0)
        return zro__fail_errno(ZRO_ERR_SYSTEM, errno, "cannot write %s: cannot look at the new file", sink->path);
    if ((new.st_uid != old->st_uid || new.st_gid != old->st_gid) && fchown(sink->fd, old->st_uid, old->st_gid) != 0
        && fchown(sink->fd, (uid_t)-1, old->st_gid) != 0)
        mode &= ~(mode_t)070 | (mode & 07) << 3;
    if (mode != (new.st_mode & 0777) && fchmod(sink->fd, mode) != 0)
        return zro__fail_errno(ZRO_ERR_SYSTEM, errno, "cannot write %s: cannot give the new file its mode", sink->path);
    return ZRO_OK;
}

zro_status zro__sink_open(zro__sink *sink, const char *path, size_t bytes)
{
    struct stat old;
    mode_t mode;
    zro_status st;

    *sink = (zro__sink){ .path = path, .fd = -1, .folder = -1, .buffer = zro__alloc(NULL, ZRO__KIND_BUFFER, BUFFER_BYTES) };
    if (sink->buffer == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a buffer of %d bytes to write %s", BUFFER_BYTES, path);
    st = check_place(path, bytes, &old);
    if (st == ZRO_OK)
        st = find_place(sink);
    if (st != ZRO_OK)
        return st;
    remove_leftovers(sink);
    mode = old.st_mode == 0 ? 0666 : 0600; /* a private file is never seen by others, not even while it is written */
    sink->fd = open_nameless(sink, mode);
    if (sink->fd >= 0)
        flock(sink->fd, LOCK_EX | LOCK_NB);
    else
        st = take_name(sink, mode);
    return st == ZRO_OK && old.st_mode != 0 ? keep_mode(sink, &old) : st;
}

/* ---- its bytes ---- */

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

zro_status zro__sink_commit(zro__sink *sink)
{
    zro_status st = flush(sink);

    if (st != ZRO_OK)
        return st;
    if (ZRO__POINT("checkpoint.sync") ? (errno = EIO, 1) : fsync(sink->fd) != 0)
        return zro__fail_errno(ZRO_ERR_SYSTEM, errno, "cannot write %s: cannot sync it", sink->path);
    if (sink->temporary[0] == '\0')
        st = take_name(sink, 0);
    if (st != ZRO_OK)
        return st;
    if (ZRO__POINT("checkpoint.rename") ? (errno = EIO, 1)
                                        : renameat(sink->folder, sink->temporary, sink->folder, sink->name) != 0)
        return zro__fail_errno(ZRO_ERR_SYSTEM, errno, "cannot write %s: cannot rename the new file", sink->path);
    sink->temporary[0] = '\0';
    /* Some file systems cannot sync a folder, and say so with EINVAL. */
    if (ZRO__POINT("checkpoint.sync_folder") ? (errno = EIO, 1) : fsync(sink->folder) != 0 && errno != EINVAL)
        return zro__fail_errno(ZRO_ERR_SYSTEM, errno,
                               "%s is written, but may be lost if the machine fails: cannot sync its folder", sink->path);
    return ZRO_OK;
}

/* The file is closed last, because its lock goes with it. */
void zro__sink_close(zro__sink *sink)
{
    if (sink->temporary[0] != '\0')
        unlinkat(sink->folder, sink->temporary, 0);
    if (sink->path != NULL && sink->folder >= 0)
        close(sink->folder);
    if (sink->path != NULL && sink->fd >= 0)
        close(sink->fd);
    zro__free(sink->buffer);
    *sink = (zro__sink){ .fd = -1, .folder = -1 };
}
