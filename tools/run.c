/* `zro run`: N ranks of any program on this machine.
 *
 * Ranks inherit one descriptor, a memfd with the table at which they meet, and learn its number from the environment.  zro run
 * waits for them; it marks whoever has ended in the table, so that others do not wait for a rank that never comes, and when
 * one fails it ends the others.
 *
 * Why fork and not posix_spawn: a rank must not outlive zro run even if that is killed by SIGKILL, and only the child itself
 * can ask the kernel for that (PR_SET_PDEATHSIG).  A pipe that exec closes tells whether the program could be started.
 *
 * Which failure was the first.  Processes are not seen to end in the order in which they begin to: the kernel first takes
 * their memory back, which can take longer than it takes a peer to hear of the loss and to exit with an error.  So all that
 * failed are looked at when all have ended: a signal that cannot be an answer to the failure of another (SIGKILL, SIGSEGV, ...)
 * comes before exit codes and SIGABRT, and among equals the one seen first. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "group/meet.h"
#include "tool.h"

#define GRACE_NS UINT64_C(5000000000) /* from SIGTERM to SIGKILL */

enum { CANNOT_START = 127 };

typedef struct job {
    int size, left;
    pid_t *pid; /* by rank; 0: not started or ended */
    zro__meet *meet;
    int fd;
    sigset_t old_mask;
    int ended_by;      /* the signal that ended zro run, 0 if none did */
    uint64_t kill_at;  /* when the grace is over; 0: nobody has been told to end */
    int killed;        /* it was over */
    int bad_rank;      /* whose failure to tell about; -1: none */
    int bad, is_cause; /* as of waitpid; it cannot be an answer to the failure of another */
} job;

/* ---- starting ---- */

static zro_status make_table(job *j)
{
    size_t bytes = zro__meet_bytes(j->size);
    void *base;

    j->fd = memfd_create("zro-meet", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (j->fd < 0 || ftruncate(j->fd, (off_t)bytes) != 0)
        return zro__fail_errno(ZRO_ERR_SYSTEM, errno, "a table for %d ranks", j->size);
    /* A rank that cut the table off would take all others, and us, with it. */
    if (fcntl(j->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        return zro__fail_errno(ZRO_ERR_SYSTEM, errno, "sealing the table");
    base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, j->fd, 0);
    if (base == MAP_FAILED)
        return zro__fail_errno(ZRO_ERR_MEMORY, errno, "a table for %d ranks", j->size);
    j->meet = base;
    zro__meet_init(j->meet, j->size);
    return ZRO_OK;
}

static void set_variable(const char *name, int value)
{
    char text[16];

    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

/* In the child.  What cannot be done is written into the pipe: errno. */
static _Noreturn void become_rank(const job *j, int rank, pid_t parent, int pipe_fd, char **argv)
{
    int err;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1); /* zro run died in between */
    set_variable("ZRO_RANK", rank);
    set_variable("ZRO_SIZE", j->size);
    set_variable("ZRO_LOCAL_RANK", rank);
    set_variable("ZRO_MEET", j->fd);
    fcntl(j->fd, F_SETFD, 0);
    sigprocmask(SIG_SETMASK, &j->old_mask, NULL);
    execvp(argv[0], argv);
    err = errno;
    if (write(pipe_fd, &err, sizeof err) < 0)
        _exit(CANNOT_START - 1);
    _exit(CANNOT_START);
}

static zro_status start_rank(job *j, int rank, char **argv)
{
    pid_t parent = getpid(), pid;
    int ends[2], err = 0;
    ssize_t got;

    if (pipe2(ends, O_CLOEXEC) != 0)
        return zro__fail_errno(ZRO_ERR_SYSTEM, errno, "a pipe to rank %d", rank);
    pid = fork();
    if (pid == 0)
        become_rank(j, rank, parent, ends[1], argv);
    close(ends[1]);
    if (pid < 0) {
        err = errno;
        close(ends[0]);
        return zro__fail_errno(ZRO_ERR_SYSTEM, err, "rank %d cannot be started", rank);
    }
    j->pid[rank] = pid;
    j->left++;
    do
        got = read(ends[0], &err, sizeof err);
    while (got < 0 && errno == EINTR);
    close(ends[0]);
    return got <= 0 ? ZRO_OK
                    : zro__fail_errno(ZRO_ERR_SYSTEM, err, "cannot start \"%s\"%s", argv[0],
                                      strchr(argv[0], '/') == NULL ? " (looked for in PATH; a file here is ./NAME)" : "");
}

/* ---- ending ---- */

static void signal_all(const job *j, int signal)
{
    for (int r = 0; r < j->size; r++)
        if (j->pid[r] > 0)
            kill(j->pid[r], signal);
}

static void end_all(job *j, int signal)
{
    signal_all(j, signal);
    signal_all(j, SIGCONT); /* a stopped rank would hear of it only when it is killed */
    if (j->kill_at == 0)
        j->kill_at = zro__now_ns() + GRACE_NS;
}

/* How unlikely it is that an end was caused by the failure of another rank, or by us. */
static int is_cause(const job *j, int status)
{
    if (!WIFSIGNALED(status))
        return 0;
    switch (WTERMSIG(status)) {
    case SIGKILL:
        return j->killed ? 0 : 2;
    case SIGABRT:
        return 1;
    case SIGPIPE:
    case SIGTERM:
    case SIGINT:
    case SIGHUP:
    case SIGQUIT:
        return 0;
    default:
        return 2;
    }
}

static void note_end(job *j, int rank, int status)
{
    int cause = is_cause(j, status);

    j->pid[rank] = 0;
    j->left--;
    zro__meet_gone(j->meet, rank);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return;
    if (j->bad_rank < 0 ? j->kill_at == 0 : cause > j->is_cause) {
        j->bad_rank = rank;
        j->bad = status;
        j->is_cause = cause;
    }
    if (j->kill_at == 0)
        end_all(j, SIGTERM);
}

static void reap(job *j)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (int r = 0; r < j->size; r++)
            if (j->pid[r] == pid)
                note_end(j, r, status);
}

/* Blocks what wait_for_all waits for.  What was ignored when we were started (nohup, a shell's &) stays ignored. */
static void block_signals(job *j, sigset_t *set)
{
    static const int ending[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };
    struct sigaction now;

    signal(SIGCHLD, SIG_DFL);
    sigemptyset(set);
    sigaddset(set, SIGCHLD);
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++)
        if (sigaction(ending[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            sigaddset(set, ending[i]);
    sigprocmask(SIG_BLOCK, set, &j->old_mask);
}

static void wait_for_all(job *j, const sigset_t *set)
{
    while (reap(j), j->left > 0) {
        uint64_t now = zro__now_ns(), left = j->kill_at > now ? j->kill_at - now : 0;
        struct timespec limit = { (time_t)(left / 1000000000), (long)(left % 1000000000) };
        siginfo_t info;
        int got;

        if (j->kill_at != 0 && left == 0) {
            j->killed = 1;
            signal_all(j, SIGKILL);
        }
        got = sigtimedwait(set, &info, j->kill_at == 0 || j->killed ? NULL : &limit);
        if (got <= 0 || got == SIGCHLD)
            continue;
        if (j->ended_by == 0)
            j->ended_by = got;
        /* What a terminal sends reaches the ranks, which are of our process group, without us. */
        end_all(j, info.si_code == SI_KERNEL ? 0 : got);
    }
}

/* ---- the command ---- */

static int tell(const job *j)
{
    if (j->bad_rank >= 0 && WIFSIGNALED(j->bad)) {
        int signal = WTERMSIG(j->bad);

        tool_say(&tool_run, "rank %d was killed by signal %d (%s)", j->bad_rank, signal, strsignal(signal));
        return 128 + signal;
    }
    if (j->bad_rank >= 0) {
        tool_say(&tool_run, "rank %d exited with %d", j->bad_rank, WEXITSTATUS(j->bad));
        return WEXITSTATUS(j->bad);
    }
    if (j->ended_by != 0) {
        tool_say(&tool_run, "ended by signal %d (%s)", j->ended_by, strsignal(j->ended_by));
        return 128 + j->ended_by;
    }
    return 0;
}

static int run(int size, char **argv)
{
    job j = { .size = size, .fd = -1, .bad_rank = -1 };
    zro_status st = ZRO_OK;
    sigset_t set;

    j.pid = zro__alloc_array(NULL, ZRO__KIND_HANDLE, (size_t)size, sizeof *j.pid);
    if (j.pid == NULL)
        st = zro__fail(ZRO_ERR_MEMORY, "out of memory: a table for %d ranks", size);
    if (st == ZRO_OK)
        st = make_table(&j);
    if (st != ZRO_OK) {
        tool_say(&tool_run, "%s", zro_last_error());
        zro__free(j.pid);
        return 1;
    }
    block_signals(&j, &set);
    for (int r = 0; r < size && st == ZRO_OK && j.kill_at == 0; r++) {
        st = start_rank(&j, r, argv);
        reap(&j);
    }
    if (st != ZRO_OK) {
        tool_say(&tool_run, "%s", zro_last_error());
        end_all(&j, SIGTERM);
    }
    wait_for_all(&j, &set);
    munmap(j.meet, zro__meet_bytes(size));
    close(j.fd);
    zro__free(j.pid);
    return st != ZRO_OK ? CANNOT_START : tell(&j);
}

static int run_main(int argc, char **argv)
{
    static const struct option options[] = { { "ranks", required_argument, NULL, 'n' },
                                             { "help", no_argument, NULL, 'h' },
                                             { NULL, 0, NULL, 0 } };
    int size = tool_cores(), bad, c;

    opterr = 0;
    while ((c = getopt_long(argc, argv, "+:n:h", options, NULL)) != -1) {
        switch (c) {
        case 'n':
            bad = tool_integer(&tool_run, "--ranks", optarg, 1, ZRO__MAX_RANKS, &size);
            if (bad)
                return bad;
            break;
        case 'h':
            return tool_help(&tool_run);
        default:
            return tool_bad_option(&tool_run, c, argv);
        }
    }
    if (optind == argc)
        return tool_usage(&tool_run, "no program to run");
    return run(size, argv + optind);
}

const tool tool_run = {
    "run",
    "start N ranks of a program on this machine",
    "usage: zro run [-n N] [--] PROGRAM [ARGUMENTS]\n"
    "\n"
    "Starts N ranks of PROGRAM, which find each other by zro_group_create_env(), and waits for them.  When a rank fails, the\n"
    "others get SIGTERM and, 5 seconds later, SIGKILL.  So they do when zro run gets SIGINT, SIGTERM, SIGHUP or SIGQUIT.\n"
    "\n"
    "  -n, --ranks N   number of ranks; default: the processors that may be used\n"
    "  -h, --help\n"
    "\n"
    "Exit status: 0; that of the first rank to fail, 128 + signal if it was killed; 128 + the signal that ended zro run; 127 "
    "if\n"
    "PROGRAM cannot be started; 2 if the command line is wrong.\n",
    run_main,
};
