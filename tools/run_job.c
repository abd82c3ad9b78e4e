/* A job: see run_job.h.
 *
 * Ranks inherit one descriptor, a memfd with the table at which they meet, and learn its number from the environment.  The job
 * marks whoever has ended in the table, so that others do not wait for a rank that never comes, and when one fails it ends the
 * others: SIGTERM, a grace, SIGKILL.
 *
 * One loop waits for everything: signals (SIGCHLD among them) through a descriptor, output of ranks, the next deadline.
 * It goes on until no rank lives, no process that one left behind lives, and all output is written.
 *
 * Which failure was the first.  Processes are not seen to end in the order in which they begin to: the kernel first takes
 * their memory back, which can take longer than it takes a peer to hear of the loss and to exit with an error.  But a rank
 * whose group breaks because another was lost notes that in the table before anybody can fail because of it.  So the ranks
 * that are noted when the first failure is seen are suspects: of those that fail, the one that was noted first is the cause.
 * A suspect that is dead is waited for, however long the kernel takes; one that has only left a group gets a second to end by
 * itself before it is told to.
 *
 * Without such notes all that failed are compared when all have ended, or a second after the first: a signal that cannot be
 * an answer to the failure of another (SIGKILL, SIGSEGV, ...) comes before exit codes and SIGABRT, and among equals the one
 * seen first. */
#define _GNU_SOURCE
#include "run_job.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "tool.h"

#define SECOND UINT64_C(1000000000)
#define TELL_NS SECOND           /* after the first failure: how long a likelier cause of it is waited for */
#define PATIENCE_NS (SECOND / 2) /* how long processes that ranks left behind may take to end by themselves */
#define DRAIN_NS SECOND          /* how long the reader of our output is waited for, besides the grace */
#define POLL_NS (SECOND / 20)    /* how often /proc is read: a process left behind becomes our child without a signal */
#define NO_SUSPECT UINT32_MAX
#define SAME_INTERRUPT_NS (SECOND / 5) /* timeout(1) and others signal a process and then its group: that counts as once */

static uint64_t nanoseconds(double seconds)
{
    return (uint64_t)(seconds * 1e9);
}

static void wake(job *j, uint64_t at)
{
    if (at < j->wake_at)
        j->wake_at = at;
}

/* ---- ending ---- */

/* The place of a rank among the suspects, from 1; NO_SUSPECT is behind all of them. */
static uint32_t place_of(const job *j, int rank)
{
    int is_dead;
    uint32_t place = j->losses == 0 ? 0 : zro__meet_loss(j->meet, rank, &is_dead);

    return place == 0 || place > j->losses || !(is_dead || j->spares) ? NO_SUSPECT : place;
}

/* A signal says more than an exit code, but not about a rank whose loss the others have noted: theirs may be an answer to it. */
static int is_likelier(const job *j, uint32_t place, int cause)
{
    int is_dead;

    return place < j->bad_place
           || (place == j->bad_place && cause > j->is_cause && zro__meet_loss(j->meet, j->bad_rank, &is_dead) == 0);
}

/* A stopped rank would hear of a signal only when it is killed. */
static void end_rank(const job *j, int rank, int signal)
{
    if (j->pid[rank] <= 0)
        return;
    kill(j->pid[rank], signal);
    kill(j->pid[rank], SIGCONT);
}

/* Tells all ranks to end, but those that are spared; the grace begins, unless it has begun already. */
static void end_all(job *j, int signal)
{
    for (int r = 0; r < j->config->size; r++)
        if (!j->spares || place_of(j, r) == NO_SUSPECT)
            end_rank(j, r, signal);
    if (j->kill_at == 0)
        j->kill_at = zro__now_ns() + nanoseconds(j->config->grace);
}

/* From now on only those suspects count that are dead, to which a signal does nothing. */
static void end_suspects(job *j)
{
    for (int r = 0; r < j->config->size; r++)
        if (place_of(j, r) != NO_SUSPECT)
            end_rank(j, r, SIGTERM);
    j->spares = 0;
}

/* Whether a rank that is a likelier cause than the one known so far is about to end. */
static int awaits_cause(const job *j)
{
    for (int r = 0; r < j->config->size; r++)
        if (j->pid[r] > 0 && place_of(j, r) < j->bad_place)
            return 1;
    return 0;
}

/* A rank that has become another user's cannot be killed; it is not waited for any more, and counts as left behind. */
static void kill_all(job *j)
{
    j->killed = 1;
    for (int r = 0; r < j->config->size; r++) {
        if (j->pid[r] <= 0 || kill(j->pid[r], SIGKILL) == 0 || errno != EPERM)
            continue;
        j->pid[r] = 0;
        j->left--;
    }
}

/* How sure it is that an end was not caused by the failure of another rank, or by us: 0, 1 or 2. */
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
    int is_first = j->kill_at == 0, cause = is_cause(j, status);
    uint32_t place;

    j->pid[rank] = 0;
    j->left--;
    zro__meet_gone(j->meet, rank);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        j->well++;
        return;
    }
    if (is_first) {
        j->losses = zro__meet_losses(j->meet);
        j->spares = j->losses > 0;
        j->tell_at = zro__now_ns() + TELL_NS;
        end_all(j, SIGTERM);
    }
    place = place_of(j, rank);
    if (j->bad_rank < 0 ? is_first : !j->told && is_likelier(j, place, cause)) {
        j->bad_rank = rank;
        j->bad = status;
        j->bad_place = place;
        j->is_cause = cause;
    }
}

/* ---- signals ---- */

/* A terminal sends to all of a process group; but a rank may have left ours, and a hang-up is sent to the leader of the
 * session alone. */
static int has_got_it(pid_t pid, const struct signalfd_siginfo *s)
{
    return s->ssi_code == SI_KERNEL && getpgid(pid) == getpgrp() && !(s->ssi_signo == SIGHUP && getsid(0) == getpid());
}

static void forward(const job *j, const struct signalfd_siginfo *s)
{
    for (int r = 0; r < j->config->size; r++)
        if (j->pid[r] > 0 && !has_got_it(j->pid[r], s))
            kill(j->pid[r], (int)s->ssi_signo);
}

/* Stops zro run the way it would have been without taking the signal, so that the shell sees it. */
static void stop_here(void)
{
    sigset_t stop;

    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    raise(SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &stop, NULL);
    sigprocmask(SIG_BLOCK, &stop, NULL);
}

static void end_by(job *j, const struct signalfd_siginfo *s)
{
    uint64_t now = zro__now_ns();
    int is_interrupt = s->ssi_signo == SIGINT;

    if (is_interrupt && j->interrupted_at != 0 && (s->ssi_code == SI_KERNEL || now - j->interrupted_at > SAME_INTERRUPT_NS)) {
        j->kill_at = now;
        j->hurry = 1;
        return;
    }
    if (is_interrupt && j->interrupted_at == 0)
        j->interrupted_at = now;
    if (j->ended_by == 0)
        j->ended_by = (int)s->ssi_signo;
    forward(j, s);
    end_all(j, 0);
}

static void take_signals(job *j)
{
    struct signalfd_siginfo s;

    while (read(j->signals, &s, sizeof s) == sizeof s) {
        switch (s.ssi_signo) {
        case SIGCHLD:
            break;
        case SIGUSR1:
        case SIGUSR2:
        case SIGCONT:
            forward(j, &s);
            break;
        case SIGTSTP:
            forward(j, &s);
            stop_here();
            break;
        default:
            end_by(j, &s);
        }
    }
}

/* What was ignored when we were started (nohup, a shell's &) stays ignored, by us and by the ranks. */
static zro_status block_signals(job *j)
{
    static const int taken[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT };
    struct sigaction now, ignore = { .sa_handler = SIG_IGN };
    sigset_t set;

    signal(SIGCHLD, SIG_DFL);
    sigaction(SIGPIPE, &ignore, &j->start.pipe_action);
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (sigaction(taken[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            sigaddset(&set, taken[i]);
    sigprocmask(SIG_BLOCK, &set, &j->start.mask);
    j->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return j->signals >= 0 ? ZRO_OK : zro__fail_errno(ZRO_ERR_SYSTEM, errno, "cannot open a descriptor for signals");
}

/* ---- supervision ---- */

/* A signal to all of us, and what it does to a rank, can be seen in this order only if they are asked for in this order: else a
 * rank that ends by Ctrl-C would pass for one that failed.  Until then the rank keeps its number, so that no signal of ours can
 * reach another process. */
static void reap(job *j)
{
    siginfo_t ended = { 0 };
    int status, failed;

    while ((failed = waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT)) == 0 && ended.si_pid > 0) {
        take_signals(j);
        if (waitpid(ended.si_pid, &status, 0) == ended.si_pid)
            for (int r = 0; r < j->config->size; r++)
                if (j->pid[r] == ended.si_pid)
                    note_end(j, r, status);
        ended.si_pid = 0;
    }
    j->childless = failed && errno == ECHILD;
}

static run_result result_of(const job *j)
{
    run_result r = {
        .kind = RUN_OK, .rank = j->bad_rank, .status = j->bad, .signal = j->ended_by, .seconds = j->config->timeout
    };

    if (j->timed_out)
        r.kind = RUN_TIMEOUT;
    else if (j->bad_rank >= 0)
        r.kind = RUN_FAILED;
    else if (j->ended_by != 0 && (j->well < j->config->size || j->dropped))
        r.kind = RUN_SIGNALLED;
    return r;
}

/* Tells the failure while ranks still live: a long grace should not keep it secret. */
static void tell_early(job *j)
{
    run_result r = result_of(j);
    char text[256], line[300];

    result_text(&r, text, sizeof text);
    snprintf(line, sizeof line, "zro run: %s", text);
    if (j->output == NULL)
        tool_say(&tool_run, "%s", text);
    else if (!output_say(j->output, line))
        return;
    j->told = 1;
}

static void keep_deadlines(job *j, uint64_t now)
{
    if (j->timeout_at != 0 && j->kill_at == 0 && now >= j->timeout_at) {
        j->timed_out = 1;
        end_all(j, SIGTERM);
    }
    if (j->kill_at != 0 && !j->killed && now >= j->kill_at)
        kill_all(j);
    if (j->spares && now >= j->tell_at)
        end_suspects(j);
    if (j->bad_rank >= 0 && !j->told && now >= j->tell_at && j->left > 0 && !awaits_cause(j))
        tell_early(j);
    if (j->timeout_at != 0 && j->kill_at == 0)
        wake(j, j->timeout_at);
    if (j->kill_at != 0 && !j->killed)
        wake(j, j->kill_at);
    if (j->bad_rank >= 0 && !j->told)
        wake(j, now >= j->tell_at ? now + POLL_NS : j->tell_at);
}

/* No rank lives.  Whether something that they left behind does. */
static int has_leftovers(job *j, uint64_t now)
{
    int signal = 0, n;

    if (j->childless)
        return 0;
    if (j->alone_at == 0)
        j->alone_at = now;
    if (j->kill_at == 0 && now >= j->alone_at + PATIENCE_NS)
        end_all(j, SIGTERM);
    if (j->kill_at != 0)
        signal = j->killed ? SIGKILL : SIGTERM;
    n = leftover_signal(&j->leftover, signal);
    wake(j, now + POLL_NS);
    return j->killed ? n > j->leftover.refused : n > 0;
}

/* Nobody lives.  Whether output has to be waited for: as long as its reader likes, unless the job was told to end. */
static int has_output(job *j, uint64_t now)
{
    if (j->output == NULL || output_finish(j->output))
        return 0;
    if (j->kill_at != 0 && j->drain_by == 0)
        j->drain_by = now + DRAIN_NS + nanoseconds(j->config->grace);
    j->dropped = j->hurry || (j->drain_by != 0 && now >= j->drain_by);
    if (j->drain_by != 0)
        wake(j, j->drain_by);
    return !j->dropped;
}

static int is_over(job *j, uint64_t now)
{
    return j->left == 0 && !has_leftovers(j, now) && !has_output(j, now);
}

static void wait_for_event(const job *j, uint64_t now)
{
    struct pollfd polls[1 + OUTPUT_POLLS] = { { j->signals, POLLIN, 0 } };
    uint64_t left = j->wake_at > now ? j->wake_at - now : 0;
    struct timespec limit = { (time_t)(left / SECOND), (long)(left % SECOND) };

    if (j->output != NULL)
        output_polls(j->output, polls + 1);
    ppoll(polls, j->output != NULL ? 1 + OUTPUT_POLLS : 1, j->wake_at == UINT64_MAX ? NULL : &limit, NULL);
}

static void supervise(job *j)
{
    for (;;) {
        uint64_t now;

        reap(j); /* first: it makes deadlines */
        now = zro__now_ns();
        j->wake_at = UINT64_MAX;
        keep_deadlines(j, now);
        if (is_over(j, now))
            return;
        wait_for_event(j, now);
        take_signals(j);
        if (j->output != NULL)
            output_pump(j->output);
    }
}

/* ---- starting ---- */

static zro_status make_table(job *j)
{
    int size = j->config->size, fd;
    size_t bytes = zro__meet_bytes(size);
    void *base;

    fd = j->start.meet = memfd_create("zro-meet", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0)
        return zro__fail_errno(ZRO_ERR_SYSTEM, errno, "cannot make the table through which %d ranks meet", size);
    /* A rank that cut the table off would take all others, and us, with it. */
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        return zro__fail_errno(ZRO_ERR_SYSTEM, errno, "cannot seal the table through which ranks meet");
    base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return zro__fail_errno(ZRO_ERR_MEMORY, errno, "no memory for the table through which %d ranks meet", size);
    j->meet = base;
    zro__meet_init(j->meet, size);
    return ZRO_OK;
}

static zro_status start_one(job *j, int rank, int *code)
{
    int ends[2] = { -1, -1 };
    zro_status st = j->output != NULL ? output_open(j->output, rank, ends) : ZRO_OK;

    if (st != ZRO_OK)
        return st;
    st = start_rank(&j->start, rank, j->output != NULL ? ends : NULL, &j->pid[rank], code);
    j->left += st == ZRO_OK;
    for (int i = 0; i < 2; i++)
        if (ends[i] >= 0)
            close(ends[i]);
    return st;
}

/* Stops at the first that cannot be started, fails, or when we are told to end. */
static zro_status start_all(job *j, int *code)
{
    zro_status st = make_table(j);

    if (st == ZRO_OK && j->config->prefix)
        st = output_create(j->config->size, j->pid, !j->config->pipe, &j->output);
    for (int r = 0; r < j->config->size && st == ZRO_OK && j->kill_at == 0; r++) {
        st = start_one(j, r, code);
        take_signals(j);
        reap(j);
    }
    return st;
}

static void forget(job *j)
{
    output_destroy(j->output);
    j->output = NULL;
    if (j->meet != NULL)
        munmap(j->meet, zro__meet_bytes(j->config->size));
    j->meet = NULL;
    if (j->start.meet >= 0)
        close(j->start.meet);
    j->start.meet = -1;
}

/* What a program does that was never told about its peers looks right: it ends well, once per rank.  After a failure, though,
 * ranks may just not have come so far. */
static int is_apart(const job *j, const run_result *r)
{
    return j->config->size > 1 && r->kind != RUN_FAILED && r->kind != RUN_ERROR && !zro__meet_used(j->meet);
}

static void tell(const job *j, const run_result *r)
{
    const run_leftover *l = &j->leftover;
    char text[ZRO__TEXT_BYTES];

    result_text(r, text, sizeof text);
    if (r->kind != RUN_OK && !j->told)
        tool_say(&tool_run, "%s", text);
    if (l->n_told > l->refused)
        tool_say(&tool_run, "ended %d process%s that ranks had left behind (%s%s)", l->n_told - l->refused,
                 l->n_told - l->refused > 1 ? "es" : "", l->name, l->n_told > 1 ? ", ..." : "");
    if (l->refused > 0)
        tool_say(&tool_run, "%d process%s of another user cannot be ended (%s%s)", l->refused, l->refused > 1 ? "es" : "",
                 l->name, l->n_told > 1 ? ", ..." : "");
    if (is_apart(j, r))
        tool_say(&tool_run,
                 "none of the %d ranks made a group, so each ran alone; to work together, they call zro_group_create_env(), in "
                 "Python zro.Group() (is the program linked with zro?); a program of MPI is started by mpirun, one of PyTorch "
                 "by torchrun",
                 j->config->size);
}

static void reset(job *j, int restart)
{
    j->left = j->well = j->timed_out = j->ended_by = j->killed = j->told = j->hurry = j->dropped = j->spares = 0;
    j->losses = 0;
    j->interrupted_at = j->alone_at = j->tell_at = j->kill_at = j->drain_by = 0;
    j->bad_rank = -1;
    j->start.restart = restart;
    leftover_next(&j->leftover);
}

/* Our own errors come before what followed from them: ranks get SIGPIPE when we cannot write. */
static run_result conclude(const job *j, zro_status st, const char *text, int code)
{
    run_result r = result_of(j);
    int is_pipe = r.kind == RUN_FAILED && WIFSIGNALED(r.status) && WTERMSIG(r.status) == SIGPIPE;

    if (st != ZRO_OK)
        zro__fail(st, "%s", text);
    else if (j->output != NULL && (r.kind == RUN_OK || is_pipe))
        st = output_check(j->output);
    return st == ZRO_OK ? r : (run_result){ .kind = RUN_ERROR, .code = code };
}

run_result job_run(job *j, int restart)
{
    char text[ZRO__TEXT_BYTES] = "";
    int code = 1;
    run_result result;
    zro_status st;

    reset(j, restart);
    st = start_all(j, &code);
    if (st != ZRO_OK) {
        snprintf(text, sizeof text, "%s", zro_last_error());
        end_all(j, SIGTERM);
    }
    supervise(j);
    result = conclude(j, st, text, code);
    tell(j, &result);
    forget(j);
    return result;
}

/* ---- the process ---- */

/* Streams of ranks must not become 0, 1 or 2. */
static void open_standard(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

/* Two streams per rank may be more than is usually allowed; ranks get the old limit. */
static void raise_limit(job *j)
{
    struct rlimit files;
    rlim_t need = (rlim_t)j->config->size * 2 + 64;

    getrlimit(RLIMIT_NOFILE, &j->start.files);
    files = j->start.files;
    if (files.rlim_cur >= need)
        return;
    files.rlim_cur = need < files.rlim_max ? need : files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
}

zro_status job_init(job *j, const run_config *config)
{
    memset(j, 0, sizeof *j);
    j->config = config;
    j->start.argv = config->argv;
    j->start.size = config->size;
    j->start.bind = config->bind;
    j->start.is_dumb = config->prefix && !config->pipe && !isatty(STDOUT_FILENO);
    j->start.meet = j->signals = -1;
    open_standard();
    raise_limit(j);
    cpus_read(&j->start.cpus);
    j->pid = zro__alloc_array(NULL, ZRO__KIND_HANDLE, (size_t)config->size, sizeof *j->pid);
    if (j->pid == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a table for %d ranks", config->size);
    leftover_init(&j->leftover);
    if (config->timeout > 0)
        j->timeout_at = zro__now_ns() + nanoseconds(config->timeout);
    return block_signals(j);
}

void job_free(job *j)
{
    if (j->signals >= 0)
        close(j->signals);
    zro__free(j->pid);
}
