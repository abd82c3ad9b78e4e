/* Starting a rank: see run_start.h.
 *
 * Why fork and not posix_spawn: a rank must not outlive zro run even if that is killed by SIGKILL, and only the child itself
 * can ask the kernel for that (PR_SET_PDEATHSIG).  A pipe that exec closes tells whether the program could be started.
 *
 * Ranks stay in our process group.  So a terminal sees one job: it stops and continues as a whole, may be put into the
 * background, and rank 0 can read from the terminal. */
#define _GNU_SOURCE
#include "run_start.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/status.h"
#include "run_result.h"

/* ---- in the child ---- */

static void set_variable(const char *name, int value, int replace)
{
    char text[16];

    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, replace);
}

static void set_variables(const run_start *s, int rank, int threads)
{
    static const char *const thread_variables[] = { "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS" };

    set_variable("ZRO_RANK", rank, 1);
    set_variable("ZRO_SIZE", s->size, 1);
    set_variable("ZRO_LOCAL_RANK", rank, 1);
    set_variable("ZRO_LOCAL_SIZE", s->size, 1);
    set_variable("ZRO_RESTART", s->restart, 1);
    set_variable("ZRO_MEET", s->meet, 1);
    for (size_t i = 0; i < sizeof thread_variables / sizeof *thread_variables; i++)
        set_variable(thread_variables[i], threads, 0);
    if (s->is_dumb) {
        setenv("TERM", "dumb", 1);
        setenv("NO_COLOR", "1", 1);
    }
}

/* Binds the rank to its share.  How many threads it should have: with fewer processors than ranks, one. */
static int take_share(const run_start *s, int rank)
{
    cpu_set_t set;
    int n = cpus_share(&s->cpus, s->size, rank, &set);

    if (n > 0 && s->bind)
        sched_setaffinity(0, sizeof set, &set); /* part of what we may use ourselves: cannot fail but by a change just now */
    return n > 0 ? n : 1;
}

/* Only one rank can read what comes from outside; which one must not be a matter of luck. */
static int set_descriptors(const run_start *s, int rank, const int *ends)
{
    if (rank != 0) {
        int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

        if (null < 0 || dup2(null, STDIN_FILENO) < 0)
            return -1;
    }
    if (ends != NULL && (dup2(ends[0], STDOUT_FILENO) < 0 || dup2(ends[1], STDERR_FILENO) < 0))
        return -1;
    return fcntl(s->meet, F_SETFD, 0);
}

/* What cannot be done is written into the pipe: errno of exec, or, negative, of what comes before. */
static _Noreturn void become_rank(const run_start *s, int rank, const int *ends, pid_t parent, int report)
{
    int err, ready;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1); /* zro run died in between */
    set_variables(s, rank, take_share(s, rank));
    ready = set_descriptors(s, rank, ends) == 0;
    if (ready) {
        setrlimit(RLIMIT_NOFILE, &s->files);
        sigaction(SIGPIPE, &s->pipe_action, NULL);
        sigprocmask(SIG_SETMASK, &s->mask, NULL);
        execvp(s->argv[0], s->argv);
    }
    err = ready ? errno : -errno;
    if (write(report, &err, sizeof err) < 0)
        _exit(EXIT_NOT_EXECUTABLE);
    _exit(EXIT_NOT_FOUND);
}

/* ---- in zro run ---- */

/* The errors of exec say little about some usual mistakes. */
static zro_status cannot_start(const char *program, int err, int *code)
{
    const char *hint = "";
    struct stat s;

    *code = err == ENOENT || err == ENOTDIR ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
    if (err == ENOENT && strchr(program, ' ') != NULL)
        hint = " (a program and its arguments are separate words; a command of the shell is: sh -c \"...\")";
    else if (strchr(program, '/') == NULL)
        hint = " (looked for in PATH; a file here is ./NAME)";
    else if (stat(program, &s) == 0 && S_ISDIR(s.st_mode))
        err = EISDIR;
    else if (err == ENOENT && stat(program, &s) == 0)
        hint = " (it is there, but not the interpreter or loader that it names)";
    else if (err == EACCES && stat(program, &s) == 0 && (s.st_mode & 0111) == 0)
        hint = " (it is not marked as executable: chmod +x)";
    return zro__fail_errno(ZRO_ERR_SYSTEM, err, "cannot start \"%s\"%s", program, hint);
}

static zro_status no_process(const run_start *s, int rank, int err)
{
    return zro__fail_errno(ZRO_ERR_SYSTEM, err, "cannot start a process for rank %d of %d", rank, s->size);
}

zro_status start_rank(const run_start *s, int rank, const int *ends, pid_t *pid, int *code)
{
    pid_t parent = getpid();
    int report[2], err = 0;
    ssize_t got;

    *pid = 0;
    *code = 1;
    if (pipe2(report, O_CLOEXEC) != 0)
        return zro__fail_errno(ZRO_ERR_SYSTEM, errno, "cannot make a pipe to rank %d", rank);
    *pid = fork();
    if (*pid == 0)
        become_rank(s, rank, ends, parent, report[1]);
    err = errno;
    close(report[1]);
    if (*pid < 0) {
        close(report[0]);
        *pid = 0;
        return no_process(s, rank, err);
    }
    do
        got = read(report[0], &err, sizeof err);
    while (got < 0 && errno == EINTR);
    close(report[0]);
    if (got <= 0)
        return ZRO_OK;
    while (waitpid(*pid, NULL, 0) < 0 && errno == EINTR) {
    }
    *pid = 0;
    return err < 0 ? no_process(s, rank, -err) : cannot_start(s->argv[0], err, code);
}
