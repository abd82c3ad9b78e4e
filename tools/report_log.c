/* The log of a training: see report_log.h. */
#include "report_log.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const keys[REPORT_COLUMNS] = {
    [REPORT_LOSS] = "loss", [REPORT_VAL_LOSS] = "val_loss",  [REPORT_NORM] = "norm", [REPORT_LR] = "lr",
    [REPORT_MS] = "ms",     [REPORT_SPEED] = "tokens_per_s", [REPORT_COMM] = "comm",
};

/* A number; what is none, or so large that differences would overflow, is not measured. */
static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    double x = json_is_number(value) ? json_number_value(value) : NAN;

    return fabs(x) < 1e100 ? x : NAN;
}

static int make_room(report_log *log)
{
    size_t room = log->room == 0 ? 1024 : 2 * log->room;
    double **arrays[REPORT_COLUMNS + 1] = { &log->steps };

    if (log->n < log->room)
        return 0;
    for (int c = 0; c < REPORT_COLUMNS; c++)
        arrays[c + 1] = &log->columns[c];
    for (int i = 0; i <= REPORT_COLUMNS; i++) {
        double *more = realloc(*arrays[i], room * sizeof *more);

        if (more == NULL)
            return 1;
        *arrays[i] = more;
    }
    log->room = room;
    return 0;
}

/* Takes a line: 0, or -1 if it is no step, or 1 without memory. */
static int take(report_log *log, const json_t *line)
{
    double step = number(line, "step");
    json_t *run = json_object_get(line, "run");

    if (!(step >= 1 && step < 1e15) || json_object_get(line, "loss") == NULL)
        return -1;
    if (make_room(log))
        return 1;
    while (log->n > 0 && log->steps[log->n - 1] >= step)
        log->n--;
    log->steps[log->n] = step;
    for (int c = 0; c < REPORT_COLUMNS; c++)
        log->columns[c][log->n] = number(line, keys[c]);
    log->columns[REPORT_COMM][log->n] *= 100;
    log->n++;
    log->bytes = fmax(0, number(line, "bytes"));
    log->bytes_unsharded = fmax(0, number(line, "bytes_unsharded"));
    if (json_is_object(run)) {
        json_decref(log->run);
        log->run = json_incref(run);
    }
    return 0;
}

static int read_lines(report_log *log, FILE *f, size_t *lines)
{
    char *text = NULL;
    size_t room = 0;
    ssize_t length;
    int bad = 0;

    for (*lines = 0; bad != 1 && (length = getline(&text, &room, f)) > 0;) {
        json_t *line = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, NULL);

        ++*lines;
        bad = take(log, line);
        json_decref(line);
        if (bad == -1 && log->damaged++ == 0)
            log->first_damaged = *lines;
    }
    free(text);
    return bad == 1 || (ferror(f) && errno == ENOMEM);
}

static void warn(const tool *t, const char *path, const report_log *log, size_t lines)
{
    if (log->damaged == 1 && log->first_damaged == lines)
        tool_say(t, "%s: the last line is not whole and left out (was the run killed?)", path);
    else if (log->damaged > 0)
        tool_say(t, "%s: %zu of %zu lines are damaged and left out, the first is line %zu", path, log->damaged, lines,
                 log->first_damaged);
}

int report_log_read(const tool *t, const char *path, report_log *log)
{
    FILE *f = fopen(path, "r");
    size_t lines = 0;
    int no_memory, failure;

    *log = (report_log){ 0 };
    if (f == NULL) {
        tool_say(t, "%s cannot be read: %s", path, strerror(errno));
        return 1;
    }
    no_memory = read_lines(log, f, &lines);
    failure = ferror(f) ? errno : 0;
    fclose(f);
    if (no_memory)
        tool_say(t, "no memory for the %zu lines of %s", lines, path);
    else if (failure != 0)
        tool_say(t, "%s cannot be read: %s", path, strerror(failure));
    else if (lines == 0)
        tool_say(t, "%s is empty: the run has made no step yet", path);
    else if (log->n == 0)
        tool_say(t, "%s is no log of zro train: none of its %zu lines is a step; give the folder of the run, or its log.jsonl",
                 path, lines);
    else {
        warn(t, path, log, lines);
        return 0;
    }
    return 1;
}

void report_log_destroy(report_log *log)
{
    free(log->steps);
    for (int c = 0; c < REPORT_COLUMNS; c++)
        free(log->columns[c]);
    json_decref(log->run);
}
