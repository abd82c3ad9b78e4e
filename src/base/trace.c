/* A trace: see trace.h. */
#include "base/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/point.h"
#include "base/status.h"
#include "base/text.h"

enum {
    SLICES = 1024,
    THREADS = 16,       /* those after them are shown as the last */
    NAME_BYTES = 32,    /* of a name, its NUL included */
    LINE_BYTES = 320,   /* no line is longer */
    WRITE_BYTES = 65536 /* the longest write, so the most that a rank which is killed in it leaves behind */
};

#define TAIL "\n]\n"
enum { TAIL_BYTES = sizeof TAIL - 1, PATIENCE_MS = 1000 };

typedef struct slice {
    uint64_t begin_ns, end_ns, bytes;
    int32_t index;
    int32_t thread; /* its place among the threads */
    char name[NAME_BYTES];
} slice;

typedef struct thread {
    pid_t id;
    char name[NAME_BYTES];
} thread;

struct zro__trace {
    pthread_mutex_t lock; /* of everything below */
    int fd;
    int rank;
    int has_failed; /* 1: nothing is written any more */
    uint64_t job, clock_ns;
    zro_settings settings; /* for the warning */
    const char *path;
    thread threads[THREADS]; /* the first is the one that opened */
    int n_threads, n_named;  /* known; whose names are in the file */
    size_t n_slices;
    slice slices[SLICES];
    char text[WRITE_BYTES];
};

/* ---- the file ---- */

/* Locks the file.  EWOULDBLOCK after so many ms: another rank has it. */
static int lock_file(const zro__trace *t, int patience_ms)
{
    for (int waited = 0; flock(t->fd, LOCK_EX | LOCK_NB) != 0; waited++) {
        if (errno != EINTR && (errno != EWOULDBLOCK || waited >= patience_ms))
            return errno;
        nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
    }
    return 0;
}

/* 0, or why not all of it was written. */
static int write_at(const zro__trace *t, const char *text, size_t bytes, off_t at)
{
    if (ZRO__POINT("trace.write"))
        return ENOSPC;
    while (bytes > 0) {
        ssize_t n = pwrite(t->fd, text, bytes, at);

        if (n <= 0 && errno != EINTR)
            return n == 0 ? EIO : errno;
        if (n > 0) {
            text += n;
            bytes -= (size_t)n;
            at += n;
        }
    }
    return 0;
}

/* The beginning of this job's file; returns its length. */
static int write_head(const zro__trace *t, char *head, size_t bytes)
{
    return snprintf(head, bytes, "[\n{\"args\":{\"job\":\"%016" PRIx64 "\",\"clock_ns\":\"", t->job);
}

/* Whether the file is this job's; then sets the clock. */
static int is_ours(zro__trace *t)
{
    char head[128], found[128] = "";
    const int bytes = write_head(t, head, sizeof head);
    ssize_t n = pread(t->fd, found, sizeof found - 1, 0);

    if (n <= bytes || memcmp(found, head, (size_t)bytes) != 0)
        return 0;
    return sscanf(found + bytes, "%" SCNu64, &t->clock_ns) == 1;
}

/* Begins the file anew. */
static int begin_file(zro__trace *t)
{
    char text[512];
    struct stat s;
    struct timespec day;
    int n = write_head(t, text, sizeof text);

    if (fstat(t->fd, &s) != 0 || (s.st_size > 0 && ftruncate(t->fd, 0) != 0))
        return errno;
    clock_gettime(CLOCK_REALTIME, &day);
    t->clock_ns = zro__now_ns();
    n += snprintf(text + n, sizeof text - (size_t)n,
                  "%" PRIu64 "\",\"unix_ns\":\"%" PRId64 "%09ld\"},\"name\":\"zro_job\",\"ph\":\"M\",\"pid\":%d}" TAIL,
                  t->clock_ns, (int64_t)day.tv_sec, day.tv_nsec, t->rank);
    return write_at(t, text, (size_t)n, 0);
}

/* Where the next line goes: behind the last whole one.  What a killed rank has left behind it is cut off.  0: there is none. */
static off_t find_end(zro__trace *t)
{
    off_t size = lseek(t->fd, 0, SEEK_END), first = size > WRITE_BYTES ? size - WRITE_BYTES : 0;
    ssize_t n = pread(t->fd, t->text, WRITE_BYTES, first);

    for (ssize_t i = n - 1; i > 0; i--)
        if (t->text[i] == '\n' && t->text[i - 1] == '}') {
            off_t at = first + i;

            return size == at + TAIL_BYTES || ftruncate(t->fd, at) == 0 ? at : 0;
        }
    return 0;
}

/* ---- lines ---- */

static void add_us(zro__text *text, const char *key, uint64_t ns)
{
    zro__text_add(text, ",\"%s\":%" PRIu64 ".%03u", key, ns / 1000, (unsigned)(ns % 1000));
}

static void add_slice(const zro__trace *t, zro__text *text, const slice *s)
{
    zro__text_add(text, "\n,{\"name\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d", s->name, t->rank, s->thread + 1);
    add_us(text, "ts", s->begin_ns > t->clock_ns ? s->begin_ns - t->clock_ns : 0);
    add_us(text, "dur", s->end_ns - s->begin_ns);
    if (s->index >= 0 && s->bytes > 0)
        zro__text_add(text, ",\"args\":{\"index\":%d,\"bytes\":%" PRIu64 "}}", (int)s->index, s->bytes);
    else if (s->index >= 0)
        zro__text_add(text, ",\"args\":{\"index\":%d}}", (int)s->index);
    else if (s->bytes > 0)
        zro__text_add(text, ",\"args\":{\"bytes\":%" PRIu64 "}}", s->bytes);
    else
        zro__text_add(text, "}");
}

static void add_names(zro__trace *t, zro__text *text)
{
    if (t->n_named == 0)
        zro__text_add(text, "\n,{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"rank %d\"}}", t->rank,
                      t->rank);
    for (; t->n_named < t->n_threads; t->n_named++)
        zro__text_add(text, "\n,{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s\"}}",
                      t->rank, t->n_named + 1, t->threads[t->n_named].name);
}

/* Everything, in writes of at most WRITE_BYTES, each of which leaves a whole file; so does one that fails.  The file is locked. */
static int write_lines(zro__trace *t)
{
    size_t next = 0;
    int error = 0;

    while (error == 0 && (next < t->n_slices || t->n_named < t->n_threads)) {
        zro__text text = { t->text, WRITE_BYTES, 0 };
        off_t at = is_ours(t) ? find_end(t) : 0;

        if (at == 0)
            return ESTALE;
        add_names(t, &text);
        while (next < t->n_slices && text.at < WRITE_BYTES - LINE_BYTES)
            add_slice(t, &text, &t->slices[next++]);
        zro__text_add(&text, TAIL);
        error = write_at(t, t->text, text.at, at);
        if (error != 0 && ftruncate(t->fd, at) == 0)
            (void)write_at(t, TAIL, TAIL_BYTES, at);
    }
    return error;
}

/* Under the lock.  Whether this rank still traces.  A buffer that is not written although there was patience for it is lost.  Leaves
 * the thread's error text alone. */
static int flush(zro__trace *t, int patience_ms)
{
    int error;

    if (t->has_failed || (t->n_slices == 0 && t->n_named == t->n_threads))
        return !t->has_failed;
    error = lock_file(t, patience_ms);
    if (error == EWOULDBLOCK && patience_ms == 0)
        return 1;
    if (error == 0) {
        error = write_lines(t);
        flock(t->fd, LOCK_UN);
    }
    t->has_failed = error != 0;
    if (error != 0)
        zro__log(&t->settings, ZRO_LOG_WARN, "rank %d is traced no more, and its last %zu slices are lost: %s: %s", t->rank,
                 t->n_slices, t->path,
                 error == ESTALE ? "another job writes to the file, or it was changed by hand" : strerror(error));
    t->n_slices = 0;
    return error == 0;
}

/* ---- recording ---- */

/* What would end a string in JSON, or is no ASCII, becomes a "_". */
static void copy_name(char *to, const char *name)
{
    size_t i = 0;

    for (; i < NAME_BYTES - 1 && name[i] != '\0'; i++)
        to[i] = name[i] < ' ' || name[i] > '~' || name[i] == '"' || name[i] == '\\' ? '_' : name[i];
    to[i] = '\0';
}

/* Under the lock: the calling thread's place, which gets this name if it has none yet. */
static int find_thread(zro__trace *t, const char *name)
{
    const pid_t id = (pid_t)syscall(SYS_gettid);

    for (int i = 0; i < t->n_threads; i++)
        if (t->threads[i].id == id)
            return i;
    if (t->n_threads == THREADS)
        return THREADS - 1;
    t->threads[t->n_threads].id = id;
    copy_name(t->threads[t->n_threads].name, name);
    return t->n_threads++;
}

void zro__trace_thread(zro__trace *t, const char *name)
{
    if (t == NULL)
        return;
    pthread_mutex_lock(&t->lock);
    (void)find_thread(t, name);
    pthread_mutex_unlock(&t->lock);
}

void zro__trace_record(zro__trace *t, uint64_t begun, const char *name, int64_t index, uint64_t bytes)
{
    const uint64_t now = zro__now_ns();
    slice *s;

    pthread_mutex_lock(&t->lock);
    s = &t->slices[t->n_slices++];
    s->begin_ns = begun;
    s->end_ns = now;
    s->bytes = bytes;
    s->index = index > INT32_MAX ? INT32_MAX : (int32_t)index;
    s->thread = find_thread(t, "thread");
    copy_name(s->name, name);
    if (t->has_failed)
        t->n_slices = 0;
    else if (t->n_slices == SLICES || (t->n_slices >= SLICES / 2 && s->thread == 0))
        (void)flush(t, t->n_slices == SLICES ? PATIENCE_MS : 0);
    pthread_mutex_unlock(&t->lock);
}

int zro__trace_flush(zro__trace *t)
{
    int traces;

    if (t == NULL)
        return 1;
    pthread_mutex_lock(&t->lock);
    traces = flush(t, PATIENCE_MS);
    pthread_mutex_unlock(&t->lock);
    return traces;
}

const char *zro__trace_path(const zro__trace *t)
{
    return t->path;
}

/* ---- open and close ---- */

static zro_status open_file(zro__trace *t)
{
    int error;

    t->fd = open(t->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (t->fd < 0)
        return zro__fail_errno(ZRO_ERR_SYSTEM, errno, "trace: %s cannot be opened", t->path);
    error = lock_file(t, PATIENCE_MS);
    if (error != 0)
        return zro__fail_errno(ZRO_ERR_SYSTEM, error, "trace: %s cannot be locked", t->path);
    error = is_ours(t) ? 0 : begin_file(t);
    flock(t->fd, LOCK_UN);
    return error == 0 ? ZRO_OK : zro__fail_errno(ZRO_ERR_SYSTEM, error, "trace: %s cannot be written", t->path);
}

zro_status zro__trace_open(zro__account *account, const zro_settings *settings, const char *path, uint64_t job, int rank,
                           zro__trace **out)
{
    const size_t bytes = strlen(path) + 1;
    zro__trace *t = *out = zro__alloc(account, ZRO__KIND_HANDLE, sizeof *t + bytes);
    zro_status st;

    if (t == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: the trace of a rank");
    t->path = memcpy(t + 1, path, bytes);
    t->settings = *settings;
    t->job = job;
    t->rank = rank;
    st = open_file(t);
    if (st != ZRO_OK) {
        if (t->fd >= 0)
            close(t->fd);
        zro__free(t);
        *out = NULL;
        return st;
    }
    pthread_mutex_init(&t->lock, NULL);
    (void)find_thread(t, "program");
    return ZRO_OK;
}

void zro__trace_close(zro__trace *t)
{
    if (t == NULL)
        return;
    (void)zro__trace_flush(t);
    close(t->fd);
    pthread_mutex_destroy(&t->lock);
    zro__free(t);
}
