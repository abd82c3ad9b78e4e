/* What ranks write, passed on line by line: see run_output.h.
 *
 * A stream is what a rank writes into: a pipe or a pseudo-terminal; a sink is where we write.  Standard output and standard error are two sinks, or one if both
 * are the same terminal or pipe: a line that went out only in part must not be followed by one of the other sink.
 *
 * Invariants.  What waits in a sink are whole lines, the first of them perhaps written in part.  While something waits, no
 * stream of that sink is read: that bounds memory, and full streams hold the ranks back.  The stream whose lines did not all fit
 * is `busy` and comes first again.
 *
 * A sink has its own set of streams (epoll), so waiting for it means waiting for one descriptor: that set, or, while lines
 * wait, the sink itself. */
#define _GNU_SOURCE
#include "run_output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "run_pty.h"
#include "tool.h"

enum {
    PREFIX_BYTES = 32,
    SINK_BYTES = OUTPUT_LINE_BYTES + PREFIX_BYTES + 1, /* the longest line with a prefix and an end */
    READS = 64                                         /* of one pump: signals must be taken in between */
};

typedef struct stream {
    int fd; /* -1: not open, or at its end */
    int rank, is_error;
    int is_terminal; /* a pseudo-terminal, not a pipe: see run_pty.c */
    size_t from, to; /* what of text is not passed on yet */
    char *text;      /* OUTPUT_LINE_BYTES */
} stream;

typedef struct sink {
    const char *name;
    int fd, epoll;
    int is_own;      /* fd was opened by us and does not block */
    int careful;     /* writing might block: poll first, and write little */
    int colour;      /* prefixes are coloured */
    int broken;      /* not 0: the errno because of which nothing can be written any more */
    stream *busy;    /* the stream whose lines did not all fit; NULL: none */
    size_t from, to; /* what of text is not written yet */
    char *text;      /* SINK_BYTES */
} sink;

struct run_output {
    int size, sinks;
    int terminals; /* standard output of ranks shall be a terminal */
    const pid_t *pid;
    sink sink[2];
    stream *stream; /* two per rank */
    char *texts;    /* the texts of all streams; pages that were never written take no memory */
    size_t texts_bytes;
};

static sink *sink_of(run_output *o, const stream *s)
{
    return &o->sink[s->is_error && o->sinks == 2];
}

/* ---- creation ---- */

/* To make a descriptor that we were given non-blocking would make it so for the shell and everybody else who has it.  Opening
 * the same pipe or terminal anew does not; where that is not possible, writing is done in small pieces, after asking. */
static void open_sink(sink *k, int fd, const char *name)
{
    const char *no_colour = getenv("NO_COLOR"), *term = getenv("TERM");
    char path[32];
    struct stat s;

    k->name = name;
    k->fd = fd;
    k->colour = isatty(fd) && (no_colour == NULL || *no_colour == '\0') && term != NULL && strcmp(term, "dumb") != 0;
    if (fstat(fd, &s) != 0 || S_ISREG(s.st_mode))
        return;
    k->careful = 1;
    if (!S_ISFIFO(s.st_mode) && !isatty(fd))
        return;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return;
    k->fd = fd;
    k->is_own = 1;
    k->careful = 0;
}

static int same_reader(int a, int b)
{
    struct stat x, y;

    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && !S_ISREG(x.st_mode) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static zro_status init_streams(run_output *o)
{
    int n = 2 * o->size;

    o->texts_bytes = (size_t)n * OUTPUT_LINE_BYTES;
    o->texts = mmap(NULL, o->texts_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (o->texts != MAP_FAILED)
        o->stream = zro__alloc_array(NULL, ZRO__KIND_HANDLE, (size_t)n, sizeof *o->stream);
    if (o->stream == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: the output of %d ranks", o->size);
    for (int i = 0; i < n; i++)
        o->stream[i] = (stream){ .fd = -1, .rank = i / 2, .is_error = i % 2, .text = o->texts + (size_t)i * OUTPUT_LINE_BYTES };
    return ZRO_OK;
}

static zro_status init(run_output *o)
{
    o->sinks = same_reader(STDOUT_FILENO, STDERR_FILENO) ? 1 : 2;
    for (int i = 0; i < 2; i++)
        o->sink[i].epoll = o->sink[i].fd = -1;
    for (int i = 0; i < o->sinks; i++) {
        sink *k = &o->sink[i];

        open_sink(k, i == 0 ? STDOUT_FILENO : STDERR_FILENO, i == 0 ? "standard output" : "standard error");
        k->epoll = epoll_create1(EPOLL_CLOEXEC);
        if (k->epoll < 0)
            return zro__fail_errno(ZRO_ERR_SYSTEM, errno, "cannot pass on the ranks' output");
        k->text = zro__alloc(NULL, ZRO__KIND_HANDLE, SINK_BYTES);
        if (k->text == NULL)
            return zro__fail(ZRO_ERR_MEMORY, "out of memory: the ranks' output");
    }
    return init_streams(o);
}

zro_status output_create(int size, const pid_t *pid, int terminals, run_output **out)
{
    run_output *o = *out = zro__alloc(NULL, ZRO__KIND_HANDLE, sizeof *o);
    zro_status st;

    if (o == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: the ranks' output");
    o->texts = MAP_FAILED;
    o->size = size;
    o->pid = pid;
    o->terminals = terminals;
    st = init(o);
    if (st != ZRO_OK) {
        output_destroy(o);
        *out = NULL;
    }
    return st;
}

/* Where no terminal can be had, the job can still run. */
static int open_terminal(run_output *o, int rank, int ends[2])
{
    if (pty_open(ends) == 0)
        return 1;
    o->terminals = 0;
    tool_say(&tool_run,
             "no pseudo-terminal for rank %d (%s): pipes are used as with --pipe, so programs may hold their output back", rank,
             strerror(errno));
    return 0;
}

static zro_status open_stream(run_output *o, stream *s, int *end)
{
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = s };
    int ends[2], err;

    s->is_terminal = o->terminals && !s->is_error && open_terminal(o, s->rank, ends);
    if (!s->is_terminal && pipe2(ends, O_CLOEXEC) != 0)
        return zro__fail_errno(ZRO_ERR_SYSTEM, errno, "cannot make a pipe for the output of rank %d (--no-prefix needs none)",
                               s->rank);
    if (fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0 || epoll_ctl(sink_of(o, s)->epoll, EPOLL_CTL_ADD, ends[0], &event) != 0) {
        err = errno;
        close(ends[0]);
        close(ends[1]);
        return zro__fail_errno(ZRO_ERR_SYSTEM, err, "cannot pass on the output of rank %d", s->rank);
    }
    s->fd = ends[0];
    *end = ends[1];
    return ZRO_OK;
}

zro_status output_open(run_output *o, int rank, int ends[2])
{
    zro_status st = open_stream(o, &o->stream[2 * rank], &ends[0]);

    if (st != ZRO_OK)
        return st;
    st = open_stream(o, &o->stream[2 * rank + 1], &ends[1]);
    if (st != ZRO_OK)
        close(ends[0]);
    return st;
}

/* ---- passing on ---- */

static void close_stream(stream *s)
{
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
    s->from = s->to = 0;
}

/* Nobody reads us: ranks that go on writing shall get SIGPIPE as if they had written there themselves.  A pipe does that when
 * it is closed; terminals stay open for refuse(). */
static void break_sink(run_output *o, sink *k, int err)
{
    k->broken = err;
    k->from = k->to = 0;
    k->busy = NULL;
    for (int i = 0; i < 2 * o->size; i++)
        if (sink_of(o, &o->stream[i]) == k && !o->stream[i].is_terminal)
            close_stream(&o->stream[i]);
}

static int would_block(const sink *k)
{
    struct pollfd p = { k->fd, POLLOUT, 0 };

    return k->careful && poll(&p, 1, 0) == 0;
}

/* 1: nothing waits any more. */
static int flush(run_output *o, sink *k)
{
    while (k->from < k->to) {
        size_t n = k->to - k->from;
        ssize_t done;

        if (would_block(k))
            return 0;
        done = write(k->fd, k->text + k->from, k->careful && n > PIPE_BUF ? PIPE_BUF : n);
        if (done < 0 && errno == EAGAIN)
            return 0;
        if (done < 0 && errno != EINTR)
            break_sink(o, k, errno);
        else if (done > 0)
            k->from += (size_t)done;
    }
    k->from = k->to = 0;
    return 1;
}

static int prefix(const sink *k, int rank, char text[PREFIX_BYTES])
{
    /* Green, yellow, blue, magenta, cyan; red is for errors, and black and white are somebody's background. */
    return k->colour ? snprintf(text, PREFIX_BYTES, "\033[3%dm[%d]\033[0m ", 2 + rank % 5, rank)
                     : snprintf(text, PREFIX_BYTES, "[%d] ", rank);
}

/* Length of the next line to pass on, 0 if there is none yet.  What fills the buffer counts as one. */
static size_t next_line(const stream *s)
{
    const char *line = s->text + s->from, *end = memchr(line, '\n', s->to - s->from);

    if (end != NULL)
        return (size_t)(end - line) + 1;
    return s->to - s->from == OUTPUT_LINE_BYTES ? OUTPUT_LINE_BYTES : 0;
}

/* Moves lines to the sink and writes them.  0: some wait. */
static int pass_on(run_output *o, sink *k, stream *s)
{
    char head[PREFIX_BYTES];
    size_t n_head = (size_t)prefix(k, s->rank, head), n;

    while ((n = next_line(s)) > 0) {
        if (k->to + n_head + n + 1 > SINK_BYTES && !flush(o, k)) {
            k->busy = s;
            return 0;
        }
        if (k->broken)
            return 1;
        memcpy(k->text + k->to, head, n_head);
        memcpy(k->text + k->to + n_head, s->text + s->from, n);
        k->to += n_head + n;
        s->from += n;
        if (k->text[k->to - 1] != '\n')
            k->text[k->to++] = '\n';
    }
    memmove(s->text, s->text + s->from, s->to - s->from);
    s->to -= s->from;
    s->from = 0;
    k->busy = NULL;
    return flush(o, k);
}

/* The last line ends here, though it has no end. */
static void end_line(stream *s)
{
    if (s->from < s->to && s->to < OUTPUT_LINE_BYTES && s->text[s->to - 1] != '\n')
        s->text[s->to++] = '\n';
}

/* Closing alone would not do: a child that has not called exec yet has the pipe too. */
static void end_stream(const sink *k, stream *s)
{
    epoll_ctl(k->epoll, EPOLL_CTL_DEL, s->fd, NULL);
    close(s->fd);
    s->fd = -1;
}

/* A stream that has something or is at its end, of a broken sink.  The signal comes first: a rank that waits in its write must
 * not see the error of a terminal that is closed. */
static void refuse(const run_output *o, const sink *k, stream *s)
{
    ssize_t got = read(s->fd, s->text, OUTPUT_LINE_BYTES);

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got > 0 && o->pid[s->rank] > 0)
        kill(o->pid[s->rank], SIGPIPE);
    end_stream(k, s);
}

/* One read, of a stream that has something or is at its end. */
static void read_stream(run_output *o, sink *k, stream *s)
{
    ssize_t got = read(s->fd, s->text + s->to, OUTPUT_LINE_BYTES - s->to);

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got > 0) {
        s->to += (size_t)got;
    } else {
        end_stream(k, s);
        end_line(s);
    }
    pass_on(o, k, s);
}

/* 1: there is nothing more to pass on. */
static int pump(run_output *o, sink *k)
{
    struct epoll_event event;

    for (int i = 0;; i++) {
        if (!flush(o, k) || (k->busy != NULL && !pass_on(o, k, k->busy)) || i == READS)
            return 0;
        if (epoll_wait(k->epoll, &event, 1, 0) <= 0)
            return 1;
        if (k->broken)
            refuse(o, k, event.data.ptr);
        else
            read_stream(o, k, event.data.ptr);
    }
}

void output_polls(const run_output *o, struct pollfd polls[OUTPUT_POLLS])
{
    for (int i = 0; i < OUTPUT_POLLS; i++) {
        const sink *k = &o->sink[i];
        int waits = k->from < k->to;

        polls[i] = (struct pollfd){ i >= o->sinks ? -1 : waits ? k->fd : k->epoll, waits ? POLLOUT : POLLIN, 0 };
    }
}

void output_pump(run_output *o)
{
    for (int i = 0; i < o->sinks; i++)
        pump(o, &o->sink[i]);
}

int output_finish(run_output *o)
{
    int done = 1;

    for (int i = 0; i < o->sinks; i++)
        done &= pump(o, &o->sink[i]);
    for (int i = 0; i < 2 * o->size && done; i++) {
        stream *s = &o->stream[i];
        sink *k = sink_of(o, s);

        end_line(s);
        done = k->broken || pass_on(o, k, s);
    }
    return done;
}

int output_say(run_output *o, const char *text)
{
    sink *k = &o->sink[o->sinks - 1];
    size_t n = strlen(text);

    if (k->broken)
        return 1;
    if (k->busy != NULL || k->to + n + 1 > SINK_BYTES)
        return 0;
    memcpy(k->text + k->to, text, n);
    k->text[k->to + n] = '\n';
    k->to += n + 1;
    flush(o, k);
    return 1;
}

zro_status output_check(const run_output *o)
{
    for (int i = 0; i < o->sinks; i++)
        if (o->sink[i].broken != 0 && o->sink[i].broken != EPIPE)
            return zro__fail_errno(ZRO_ERR_SYSTEM, o->sink[i].broken, "%s", o->sink[i].name);
    return ZRO_OK;
}

void output_destroy(run_output *o)
{
    if (o == NULL)
        return;
    for (int i = 0; o->stream != NULL && i < 2 * o->size; i++)
        close_stream(&o->stream[i]);
    for (int i = 0; i < o->sinks; i++) {
        if (o->sink[i].epoll >= 0)
            close(o->sink[i].epoll);
        if (o->sink[i].is_own)
            close(o->sink[i].fd);
        zro__free(o->sink[i].text);
    }
    if (o->texts != MAP_FAILED)
        munmap(o->texts, o->texts_bytes);
    zro__free(o->stream);
    zro__free(o);
}
