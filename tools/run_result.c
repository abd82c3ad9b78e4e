/* How a job ended: see run_result.h. */
#define _GNU_SOURCE
#include "run_result.h"

#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "zro.h"

/* Not every libc can tell the names. */
static const char *signal_name(int number)
{
    static const struct {
        int number;
        const char *name;
    } names[] = {
        { SIGHUP, "SIGHUP" },       { SIGINT, "SIGINT" },   { SIGQUIT, "SIGQUIT" }, { SIGILL, "SIGILL" },
        { SIGTRAP, "SIGTRAP" },     { SIGABRT, "SIGABRT" }, { SIGBUS, "SIGBUS" },   { SIGFPE, "SIGFPE" },
        { SIGKILL, "SIGKILL" },     { SIGUSR1, "SIGUSR1" }, { SIGSEGV, "SIGSEGV" }, { SIGUSR2, "SIGUSR2" },
        { SIGPIPE, "SIGPIPE" },     { SIGALRM, "SIGALRM" }, { SIGTERM, "SIGTERM" }, { SIGIO, "SIGIO" },
        { SIGXCPU, "SIGXCPU" },     { SIGXFSZ, "SIGXFSZ" }, { SIGPROF, "SIGPROF" }, { SIGSYS, "SIGSYS" },
        { SIGVTALRM, "SIGVTALRM" },
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].number == number)
            return names[i].name;
    return NULL;
}

/* "SIGSEGV (segmentation fault)" */
static void signal_text(int number, char *text, size_t bytes)
{
    const char *name = signal_name(number), *what = strsignal(number);

    if (name != NULL)
        snprintf(text, bytes, "%s (%c%s)", name, tolower((unsigned char)what[0]), what + 1);
    else
        snprintf(text, bytes, "signal %d (%s)", number, what);
}

void result_text(const run_result *r, char *text, size_t bytes)
{
    char signal[80];

    text[0] = '\0';
    switch (r->kind) {
    case RUN_FAILED:
        if (WIFSIGNALED(r->status)) {
            signal_text(WTERMSIG(r->status), signal, sizeof signal);
            snprintf(text, bytes, "rank %d was killed by %s%s", r->rank, signal,
                     WCOREDUMP(r->status) ? ", and left a core file" : "");
        } else {
            snprintf(text, bytes, "rank %d exited with %d", r->rank, WEXITSTATUS(r->status));
        }
        break;
    case RUN_SIGNALLED:
        signal_text(r->signal, signal, sizeof signal);
        snprintf(text, bytes, "ended by %s", signal);
        break;
    case RUN_TIMEOUT:
        snprintf(text, bytes, "ended, because it took longer than %g s (--timeout)", r->seconds);
        break;
    case RUN_ERROR:
        snprintf(text, bytes, "%s", zro_last_error());
        break;
    case RUN_OK:
        break;
    }
}

int result_code(const run_result *r)
{
    switch (r->kind) {
    case RUN_FAILED:
        return WIFSIGNALED(r->status) ? 128 + WTERMSIG(r->status) : WEXITSTATUS(r->status);
    case RUN_SIGNALLED:
        return 128 + r->signal;
    case RUN_TIMEOUT:
        return EXIT_TIMEOUT;
    case RUN_ERROR:
        return r->code;
    default:
        return 0;
    }
}
