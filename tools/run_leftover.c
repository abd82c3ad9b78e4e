/* Processes that ranks leave behind: see run_leftover.h.  Who they are is read from /proc. */
#define _GNU_SOURCE
#include "run_leftover.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Whether a process is our child and has not ended; its name. */
static int is_child(pid_t pid, char name[32])
{
    char path[40], line[256], state;
    const char *open, *close;
    FILE *file;
    size_t got;
    int parent;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    file = fopen(path, "re");
    if (file == NULL)
        return 0;
    got = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[got] = '\0';
    /* PID (NAME) STATE PARENT ..., and there may be parentheses and spaces in the name. */
    open = strchr(line, '(');
    close = strrchr(line, ')');
    if (open == NULL || close == NULL || sscanf(close + 1, " %c %d", &state, &parent) != 2)
        return 0;
    snprintf(name, 32, "%.*s", (int)(close - open - 1), open + 1);
    return parent == getpid() && state != 'Z' && state != 'X';
}

static int contains(const pid_t *list, int n, pid_t pid)
{
    for (int i = 0; i < n; i++)
        if (list[i] == pid)
            return 1;
    return 0;
}

/* The next child in a listing of /proc that is none of the strangers; 0: there are no more. */
static pid_t next_child(const run_leftover *l, DIR *proc, char name[32])
{
    struct dirent *entry;

    while ((entry = readdir(proc)) != NULL) {
        pid_t pid = isdigit((unsigned char)entry->d_name[0]) ? atoi(entry->d_name) : 0;

        if (pid > 0 && is_child(pid, name) && !contains(l->stranger, l->n_strangers, pid))
            return pid;
    }
    return 0;
}

void leftover_init(run_leftover *l)
{
    DIR *proc = opendir("/proc");
    char name[32];
    pid_t pid;

    l->n_strangers = 0;
    leftover_next(l);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    while (proc != NULL && l->n_strangers < LEFTOVER_LIST && (pid = next_child(l, proc, name)) != 0)
        l->stranger[l->n_strangers++] = pid;
    if (proc != NULL)
        closedir(proc);
}

void leftover_next(run_leftover *l)
{
    l->n_told = l->refused = 0;
}

/* Tells one to end.  Beyond the end of the list SIGKILL comes without a warning. */
static void tell(run_leftover *l, pid_t pid, const char *name)
{
    if (l->n_told == LEFTOVER_LIST || contains(l->told, l->n_told, pid))
        return;
    if (l->n_told == 0)
        snprintf(l->name, sizeof l->name, "%s", name);
    l->told[l->n_told++] = pid;
    kill(pid, SIGTERM);
    kill(pid, SIGCONT);
}

int leftover_signal(run_leftover *l, int signal)
{
    DIR *proc = opendir("/proc");
    char name[32];
    pid_t pid;
    int n = 0;

    l->refused = 0;
    /* If there were more strangers than we can tell apart, better leave something behind. */
    while (proc != NULL && l->n_strangers < LEFTOVER_LIST && (pid = next_child(l, proc, name)) != 0) {
        n++;
        if (signal != 0)
            tell(l, pid, name);
        l->refused += kill(pid, signal == SIGKILL ? SIGKILL : 0) != 0 && errno == EPERM;
    }
    if (proc != NULL)
        closedir(proc);
    return n;
}
