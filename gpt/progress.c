/* Lines, bar and log: see progress.h. */
#include "progress.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "model.h"

double gpt_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A full disk may have cut the last line of an earlier run: the next one must not be glued to it. */
static void end_last_line(FILE *log)
{
    int last = fseek(log, -1, SEEK_END) == 0 ? getc(log) : '\n';

    fseek(log, 0, SEEK_END); /* between reading and writing */
    if (last != '\n')
        putc('\n', log);
}

zro_status gpt_progress_open(gpt_progress *p, const char *log, zro_switch append, uint64_t first, uint64_t steps)
{
    const char *term = getenv("TERM");

    *p = (gpt_progress){ .first = first, .steps = steps, .began = gpt_now() };
    p->bar = isatty(1) && term != NULL && strcmp(term, "dumb") != 0;
    if (*log == '\0')
        return ZRO_OK;
    p->log = fopen(log, append == ZRO_ON ? "a+" : "w");
    if (p->log == NULL)
        return gpt_fail(ZRO_ERR_SYSTEM, "--log %s cannot be written: %s", log, strerror(errno));
    setvbuf(p->log, NULL, _IOLBF, 0);
    if (append == ZRO_ON)
        end_last_line(p->log);
    return ZRO_OK;
}

/* ---- the log ---- */

/* Numbers of a file never follow the locale, and this program sets none. */
static void log_number(FILE *f, const char *name, double value, int digits)
{
    if (isfinite(value))
        fprintf(f, ",\"%s\":%.*g", name, digits, value);
    else
        fprintf(f, ",\"%s\":null", name);
}

/* The first line of a run has one key more than the others, and so every line is a step. */
static void log_step(gpt_progress *p, const gpt_step *s)
{
    FILE *f = p->log;

    fprintf(f, "{\"step\":%llu", (unsigned long long)s->step);
    log_number(f, "loss", s->loss, 9);
    log_number(f, "val_loss", s->val_loss, 9);
    log_number(f, "norm", s->norm, 9);
    log_number(f, "lr", s->lr, 17);
    log_number(f, "ms", s->ms, 6);
    log_number(f, "tokens_per_s", s->tokens_per_s, 6);
    log_number(f, "comm", s->comm, 4);
    log_number(f, "beyond_ms", s->beyond_ms, 6);
    log_number(f, "bytes", s->bytes, 17);
    log_number(f, "bytes_unsharded", s->bytes_unsharded, 17);
    if (s->has_hash)
        fprintf(f, ",\"hash\":\"%016llx\"", (unsigned long long)s->hash);
    if (p->run != NULL)
        fprintf(f, ",\"run\":%s", p->run);
    free(p->run);
    p->run = NULL;
    fputs("}\n", f);
}

/* ---- lines ---- */

/* Appends to a text that has room for `bytes`. */
static void add(char *text, size_t bytes, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void add(char *text, size_t bytes, const char *format, ...)
{
    size_t at = strlen(text);
    va_list args;

    va_start(args, format);
    vsnprintf(text + at, bytes - at, format, args);
    va_end(args);
}

static void step_text(char *text, size_t bytes, const gpt_progress *p, const gpt_step *s)
{
    text[0] = '\0';
    add(text, bytes, "step %llu/%llu  loss %.4f", (unsigned long long)s->step, (unsigned long long)p->steps, s->loss);
    if (isfinite(s->val_loss))
        add(text, bytes, "  val %.4f", s->val_loss);
    if (isfinite(s->norm))
        add(text, bytes, "  norm %.3f", s->norm);
    add(text, bytes, "  lr %.2e  %.*f ms  %.0f tok/s  comm %.1f%%", s->lr, s->ms < 100 ? 1 : 0, s->ms, s->tokens_per_s,
        100 * s->comm);
    if (s->has_hash)
        add(text, bytes, "  %016llx", (unsigned long long)s->hash);
}

static void draw_bar(const gpt_progress *p, const gpt_step *s, const char *text)
{
    enum { WIDTH = 24 };
    double part = (double)s->step / (double)p->steps, made = (double)(s->step - p->first);
    double left = (gpt_now() - p->began) / made * (double)(p->steps - s->step);
    int full = (int)(part * WIDTH);

    printf("\r\033[K[%.*s%.*s] %s  ETA %d:%02d", full, "########################", WIDTH - full, "........................",
           text, (int)(left / 60), (int)left % 60);
    fflush(stdout);
}

void gpt_progress_step(gpt_progress *p, const gpt_step *s)
{
    char text[300];

    if (p->log != NULL)
        log_step(p, s);
    step_text(text, sizeof text, p, s);
    if (!p->bar)
        puts(text);
    else if (isfinite(s->val_loss)) /* one that stays */
        printf("\r\033[K%s\n", text);
    else
        draw_bar(p, s, text);
    fflush(stdout);
}

void gpt_progress_say(gpt_progress *p, const char *format, ...)
{
    va_list args;

    if (p->bar)
        fputs("\r\033[K", stdout);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

zro_status gpt_progress_close(gpt_progress *p)
{
    int bad;

    if (p->bar)
        fputs("\r\033[K", stdout);
    fflush(stdout);
    free(p->run);
    p->run = NULL;
    if (p->log == NULL)
        return ZRO_OK;
    bad = ferror(p->log);
    bad = fclose(p->log) != 0 || bad;
    p->log = NULL;
    return bad ? gpt_fail(ZRO_ERR_SYSTEM, "the log could not be written: %s", strerror(errno)) : ZRO_OK;
}
