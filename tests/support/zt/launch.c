/* Launches: see launch.h. */
#define _GNU_SOURCE
#include "zt/launch.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_PROCESSES = 4096, MOST_ARGUMENTS = 128, GRACE_MS = 3000 };

static const struct launcher {
    int backend;
    const char *variable, *launcher, *program; /* the launcher's name is the variable's value, if it is set */
    const char *options[8], *survivors[4];
} launchers[] = {
    { ZT_OPENMPI,
      "ZRO_TEST_MPIRUN_OPENMPI",
      "mpirun.openmpi",
      "zro-tests_openmpi",
      { "--allow-run-as-root", "--oversubscribe", "--bind-to", "none" },
      { "--mca", "orte_abort_on_non_zero_status", "0" } },
    { ZT_MPICH, "ZRO_TEST_MPIRUN_MPICH", "mpirun.mpich", "zro-tests_mpich", { NULL }, { "-disable-auto-cleanup" } },
};

static const struct launcher *launcher_of(int backend)
{
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
        if (launchers[i].backend == backend)
            return &launchers[i];
    return NULL;
}

static const char *name_of(const struct launcher *l)
{
    const char *name = getenv(l->variable);

    return name != NULL && name[0] != '\0' ? name : l->launcher;
}

/* The test program of a backend stands beside this one. */
static void program_path(const struct launcher *l, char *path, size_t bytes)
{
    ssize_t n = readlink("/proc/self/exe", path, bytes - 1);
    char *slash;

    path[n > 0 ? n : 0] = '\0';
    slash = strrchr(path, '/');
    if (slash != NULL)
        snprintf(slash + 1, bytes - (size_t)(slash + 1 - path), "%s", l->program);
}

static int is_on_path(const char *name)
{
    const char *p = getenv("PATH");
    char path[4096];

    if (strchr(name, '/') != NULL)
        return access(name, X_OK) == 0;
    for (; p != NULL && *p != '\0'; p += strcspn(p, ":"), p += *p == ':') {
        snprintf(path, sizeof path, "%.*s/%s", (int)strcspn(p, ":"), p, name);
        if (access(path, X_OK) == 0)
            return 1;
    }
    return 0;
}

const char *zt_launch_missing(int backend)
{
    const struct launcher *l = launcher_of(backend);
    static char text[4400];
    char path[4096];

    program_path(l, path, sizeof path);
    if (access(path, X_OK) != 0)
        snprintf(text, sizeof text, "this build has no %s", l->program);
    else if (!is_on_path(name_of(l)))
        snprintf(text, sizeof text, "there is no %s", name_of(l));
    else
        return NULL;
    return text;
}

/* ---- the supervisor ---- */

/* All processes as pairs of pid and parent. */
static int list_processes(pid_t (*all)[2], int most)
{
    DIR *dir = opendir("/proc");
    struct dirent *entry;
    int n = 0;

    while (dir != NULL && (entry = readdir(dir)) != NULL && n < most) {
        char path[300], line[512] = "", *end;
        int parent = 0;
        FILE *stat;

        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
        stat = fopen(path, "re");
        if (stat == NULL)
            continue;
        if (fgets(line, sizeof line, stat) != NULL && (end = strrchr(line, ')')) != NULL
            && sscanf(end + 1, " %*c %d", &parent) == 1) {
            all[n][0] = (pid_t)atoi(entry->d_name);
            all[n++][1] = (pid_t)parent;
        }
        fclose(stat);
    }
    if (dir != NULL)
        closedir(dir);
    return n;
}

/* What descends from this process. */
static int list_descendants(pid_t *found, int most)
{
    static pid_t all[MOST_PROCESSES][2];
    int n = list_processes(all, MOST_PROCESSES), count = 0;

    for (int parent = -1; parent < count; parent++)
        for (int i = 0; i < n && count < most; i++)
            if (all[i][1] == (parent < 0 ? getpid() : found[parent]))
                found[count++] = all[i][0];
    return count;
}

static void reap(pid_t launcher, int *status, int *is_over)
{
    pid_t pid;
    int got;

    while ((pid = waitpid(-1, &got, WNOHANG)) > 0)
        if (pid == launcher) {
            *status = got;
            *is_over = 1;
        }
}

/* Names what is there and ends it.  A process may fork while it is looked at, so this goes on until nobody is left. */
static _Noreturn void end_all(const char *why, int code)
{
    static const struct timespec pause = { 0, 2000000 };
    pid_t found[MOST_PROCESSES];
    int n = list_descendants(found, MOST_PROCESSES);

    dprintf(STDERR_FILENO, "%s:", why);
    for (int i = 0; i < n; i++)
        dprintf(STDERR_FILENO, " %d", (int)found[i]);
    dprintf(STDERR_FILENO, "\n");
    for (; n > 0; n = list_descendants(found, MOST_PROCESSES)) {
        for (int i = 0; i < n; i++)
            kill(found[i], SIGKILL);
        while (waitpid(-1, NULL, WNOHANG) > 0) {
        }
        nanosleep(&pause, NULL);
    }
    _exit(code);
}

/* The runner has blocked its signals. */
static _Noreturn void supervise(char **argv, const sigset_t *mask)
{
    static const struct timespec tick = { 0, 50000000 };
    int status = 0, is_over = 0, waited_ms = 0;
    sigset_t awaited;
    pid_t launcher;

    sigemptyset(&awaited);
    sigaddset(&awaited, SIGCHLD);
    sigaddset(&awaited, SIGTERM);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    launcher = fork();
    if (launcher == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        sigprocmask(SIG_SETMASK, mask, NULL);
        execvp(argv[0], argv);
        dprintf(STDERR_FILENO, "%s: %s\n", argv[0], strerror(errno));
        _exit(127);
    }
    if (launcher < 0)
        _exit(126);
    for (;;) {
        int got = sigtimedwait(&awaited, NULL, &tick);

        if (got == SIGTERM)
            end_all("ended", ZT_LAUNCH_ENDED);
        reap(launcher, &status, &is_over);
        if (is_over && waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD)
            _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
        waited_ms += is_over && got < 0 ? 50 : 0;
        if (waited_ms > GRACE_MS)
            end_all("left by the launcher", ZT_LAUNCH_LEFT);
    }
}

/* ---- the runner's side ---- */

static int open_files(zt_launch *l)
{
    const char *where = getenv("TMPDIR");
    char path[128];
    int fd;

    if (where == NULL || strlen(where) > 32 || where[0] != '/')
        where = "/tmp";
    snprintf(l->folder, sizeof l->folder, "%s/zro-tests-XXXXXX", where);
    if (mkdtemp(l->folder) == NULL) {
        l->folder[0] = '\0';
        return -1;
    }
    snprintf(path, sizeof path, "%s/output", l->folder);
    l->output = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    snprintf(path, sizeof path, "%s/page", l->folder);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (l->output < 0 || fd < 0 || ftruncate(fd, sizeof *l->page) != 0)
        return -1;
    l->page = mmap(NULL, sizeof *l->page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return l->page != MAP_FAILED ? 0 : -1;
}

static void add(char **words, int *n, const char *const *more)
{
    for (; *more != NULL && *n < MOST_ARGUMENTS - 1; more++)
        words[(*n)++] = (char *)*more;
    words[*n] = NULL;
}

int zt_launch_begin(zt_launch *l, int backend, int size, int survivors, char **argv, const sigset_t *mask)
{
    const struct launcher *how = launcher_of(backend);
    char path[4096], count[16], *words[MOST_ARGUMENTS] = { (char *)name_of(how) };
    int n = 1;

    memset(l, 0, sizeof *l);
    l->output = -1;
    if (open_files(l) != 0)
        return -1;
    program_path(how, path, sizeof path);
    snprintf(count, sizeof count, "%d", size);
    add(words, &n, how->options);
    if (survivors)
        add(words, &n, how->survivors);
    add(words, &n, (const char *[]){ "-n", count, path, "--worker", l->folder, NULL });
    add(words, &n, (const char *const *)argv);
    l->pid = fork();
    if (l->pid == 0) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (freopen("/dev/null", "r", stdin) == NULL || dup2(l->output, STDOUT_FILENO) < 0
            || dup2(l->output, STDERR_FILENO) < 0)
            _exit(1);
        supervise(words, mask);
    }
    return l->pid > 0 ? 0 : -1;
}

void zt_launch_order(zt_launch *l, int table, int row)
{
    if (table >= 0)
        memset(&l->page->shared, 0, sizeof l->page->shared);
    l->page->table = table;
    l->page->row = row;
    atomic_fetch_add(&l->page->orders, 1);
}

void zt_launch_forget(zt_launch *l)
{
    static const char *const files[] = { "page", "output" };
    char path[128];

    if (l->folder[0] == '\0')
        return;
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", l->folder, files[i]);
        unlink(path);
    }
    rmdir(l->folder);
    l->folder[0] = '\0';
}

void zt_launch_free(zt_launch *l)
{
    zt_launch_forget(l);
    if (l->page != NULL && l->page != MAP_FAILED)
        munmap(l->page, sizeof *l->page);
    if (l->output >= 0)
        close(l->output);
    memset(l, 0, sizeof *l);
    l->output = -1;
}
