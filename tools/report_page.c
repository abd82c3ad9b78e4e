/* The page: see report_page.h.
 *
 * Charts are SVG inside it, there is no script, and all texts of the log are escaped.  Colours are those of Okabe and Ito, which
 * people who see few colours can tell apart, lighter ones where the reader prefers dark pages; and no line is told by its colour
 * alone. */
#include "report_page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report_chart.h"

enum { WIDE = 1000, NARROW = 490, BARS_MOST = 9 };

static const char style[] =
    ":root{color-scheme:light dark;--back:#fff;--card:#f6f7f9;--text:#1b1f24;--soft:#59636e;--grid:#dde1e6;"
    "--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#cc79a7}\n"
    "@media(prefers-color-scheme:dark){:root{--back:#14171b;--card:#1c2026;--text:#e8eaed;--soft:#a0a8b3;--grid:#343a43;"
    "--c0:#56b4e9;--c1:#ff9d4d;--c2:#2fc79a;--c3:#e3a0c8}}\n"
    "body{margin:0 auto;max-width:1064px;padding:24px 16px;background:var(--back);color:var(--text);"
    "font:15px/1.5 system-ui,-apple-system,\"Segoe UI\",\"DejaVu Sans\",sans-serif}\n"
    "h1{margin:0;font-size:26px}h2{margin:28px 0 8px;font-size:16px}p{margin:4px 0 16px;color:var(--soft)}\n"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(126px,1fr));gap:12px;margin:0 0 12px}\n"
    ".tiles div{background:var(--card);border-radius:8px;padding:10px 12px}.tiles b{display:block;font-size:20px}"
    ".tiles span{color:var(--soft);font-size:13px;white-space:nowrap}\n"
    ".charts{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:12px}figure{margin:0;background:var(--card);"
    "border-radius:8px;padding:8px}.wide{grid-column:1/-1}svg{display:block;width:100%;height:auto}\n"
    "@media(max-width:760px){.charts{grid-template-columns:minmax(0,1fr)}}\n"
    "svg text{fill:var(--text);font-size:13px}svg .title{font-size:15px;font-weight:600}svg .unit{font-size:13px;"
    "font-weight:400;fill:var(--soft)}svg .tick{fill:var(--soft);font-size:12px}svg .total{font-weight:600}\n"
    ".grid{stroke:var(--grid)}.axis{stroke:var(--soft)}path{fill:none;stroke-linejoin:round}"
    ".line{stroke-width:2}.faint{stroke-width:1;opacity:.35}.mark{stroke-width:2}circle.mark{fill:var(--card)}\n"
    ".s0{stroke:var(--c0)}.s1{stroke:var(--c1)}.b0{fill:var(--c0)}.b1{fill:var(--c2)}.b2{fill:var(--c1)}.b3{fill:var(--c3)}"
    ".bar{stroke:var(--card);stroke-width:1}\n"
    "dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(300px,1fr));gap:0 24px;margin:0;font-size:14px}"
    "dl div{display:flex;justify-content:space-between;gap:12px;border-bottom:1px solid var(--grid);padding:3px 0}"
    "dt{color:var(--soft)}dd{margin:0;text-align:right;overflow-wrap:anywhere}\n"
    "@media print{body{max-width:none}figure{break-inside:avoid}}\n";

static const char *const part_names[4] = { "parameters", "gradients", "optimizer", "activations" };

/* ---- what the log says ---- */

static double member(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    return json_is_number(value) ? json_number_value(value) : NAN;
}

static chart_bar bar_of(const json_t *memory)
{
    chart_bar b = { "", { 0 } };

    for (int i = 0; i < 4; i++) {
        double bytes = member(memory, part_names[i]);

        b.parts[i] = bytes > 0 && bytes < 1e18 ? bytes : 0;
    }
    return b;
}

static double bar_sum(const json_t *memory)
{
    chart_bar b = bar_of(memory);

    return b.parts[0] + b.parts[1] + b.parts[2] + b.parts[3];
}

static double bytes_saved(const report_log *log)
{
    const json_t *ranks = json_object_get(log->run, "memory"), *rank;
    double whole = bar_sum(json_object_get(log->run, "memory_unsharded")), saved = 0;
    size_t i;

    json_array_foreach(ranks, i, rank) saved += whole - bar_sum(rank);
    return fmax(0, saved);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(const double *values, size_t n)
{
    double *sorted = malloc((n + 1) * sizeof *sorted), result = NAN;
    size_t points = 0;

    for (size_t i = 0; sorted != NULL && i < n; i++)
        if (isfinite(values[i]))
            sorted[points++] = values[i];
    if (points > 0) {
        qsort(sorted, points, sizeof *sorted, compare);
        result = sorted[points / 2];
    }
    free(sorted);
    return result;
}

report_summary report_summarize(const report_log *log)
{
    report_summary s = { .first_loss = log->columns[REPORT_LOSS][0],
                         .last_loss = log->columns[REPORT_LOSS][log->n - 1],
                         .val_loss = NAN,
                         .speed = median(log->columns[REPORT_SPEED], log->n),
                         .bytes_saved = bytes_saved(log) };

    for (size_t i = 0; i < log->n; i++) {
        if (isfinite(log->columns[REPORT_VAL_LOSS][i]))
            s.val_loss = log->columns[REPORT_VAL_LOSS][i];
        if (isfinite(log->columns[REPORT_MS][i]))
            s.seconds += log->columns[REPORT_MS][i] / 1e3;
    }
    return s;
}

/* ---- texts ---- */

static void put_escaped(FILE *f, const char *text)
{
    for (; *text != '\0'; text++)
        switch (*text) {
        case '&':
            fputs("&amp;", f);
            break;
        case '<':
            fputs("&lt;", f);
            break;
        case '>':
            fputs("&gt;", f);
            break;
        case '"':
            fputs("&quot;", f);
            break;
        default:
            putc(*text, f);
        }
}

static void put_value(FILE *f, const json_t *value)
{
    const char *key;
    json_t *inner;

    if (json_is_string(value))
        put_escaped(f, json_string_value(value));
    else if (json_is_number(value))
        fputs(chart_number(json_number_value(value)).text, f);
    else if (json_is_boolean(value))
        fputs(json_is_true(value) ? "on" : "off", f);
    else
        json_object_foreach((json_t *)value, key, inner)
        {
            put_escaped(f, key);
            fprintf(f, " %s ", chart_number(json_number_value(inner)).text);
        }
}

/* Rows of the settings; not those that `shown` has already, nor what is empty. */
static void put_settings(FILE *f, const json_t *object, const json_t *shown)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)object, key, value)
    {
        if (strncmp(key, "memory", 6) == 0 || strcmp(key, "options") == 0 || json_object_get(shown, key) != NULL)
            continue;
        if ((json_is_object(value) && json_object_size(value) == 0) || json_is_array(value) || json_is_null(value)
            || (json_is_string(value) && *json_string_value(value) == '\0'))
            continue;
        fputs("<div><dt>", f);
        for (const char *c = key; *c != '\0'; c++) {
            char letter[2] = { *c == '_' || *c == '-' ? ' ' : *c, '\0' };

            put_escaped(f, letter);
        }
        fputs("</dt><dd>", f);
        put_value(f, value);
        fputs("</dd></div>\n", f);
    }
}

static void put_tile(FILE *f, const char *name, const char *text)
{
    fprintf(f, "<div><span>%s</span><b>%s</b></div>\n", name, text);
}

static void put_loss(FILE *f, const char *name, double loss)
{
    char text[32];

    snprintf(text, sizeof text, "%.3f", loss);
    if (isfinite(loss))
        put_tile(f, name, text);
}

/* Large numbers in short. */
static void put_count(FILE *f, const char *name, double count)
{
    char text[40];

    if (count < 1e6) {
        put_tile(f, name, chart_number(count).text);
        return;
    }
    snprintf(text, sizeof text, count < 1e9 ? "%.1f M" : "%.1f G", count / (count < 1e9 ? 1e6 : 1e9));
    put_tile(f, name, text);
}

static void put_tiles(FILE *f, const report_log *log, const report_summary *s)
{
    double per_step = member(log->run, "tokens_per_step");
    char text[64];

    fputs("<div class=\"tiles\">\n", f);
    put_tile(f, "steps", chart_number(log->steps[log->n - 1]).text);
    put_loss(f, "training loss", s->last_loss);
    put_loss(f, "validation loss", s->val_loss);
    if (isfinite(s->speed))
        put_tile(f, "tokens/s, median", chart_number(round(s->speed)).text);
    if (per_step > 0)
        put_count(f, "tokens", per_step * log->steps[log->n - 1]);
    snprintf(text, sizeof text, "%d:%02d", (int)fmin(s->seconds / 60, 1e9), (int)fmod(s->seconds, 60));
    put_tile(f, "minutes", text);
    if (s->bytes_saved > 0)
        put_tile(f, "saved on all ranks", chart_bytes(s->bytes_saved).text);
    else if (log->bytes > 0)
        put_tile(f, "memory, largest rank", chart_bytes(log->bytes).text);
    fputs("</div>\n", f);
}

static const char *text_or(const json_t *object, const char *key, const char *otherwise)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text != NULL ? text : otherwise;
}

static void put_head(FILE *f, const report_log *log)
{
    const json_t *run = log->run, *options = json_object_get(run, "options");
    double ranks = member(run, "ranks"), parameters = member(run, "parameters");

    fputs("<h1>", f);
    put_escaped(f, text_or(options, "model", "A training"));
    if (ranks >= 1)
        fprintf(f, " on %.0f rank%s", ranks, ranks == 1 ? "" : "s");
    fputs("</h1>\n<p>", f);
    if (parameters > 0)
        fprintf(f, "%s parameters, ", chart_number(parameters).text);
    fputs("trained on ", f);
    put_escaped(f, text_or(run, "data", "data that the log does not name"));
    fputs(" with ", f);
    put_escaped(f, text_or(options, "rule", "zro"));
    if (strcmp(text_or(options, "sharding", ""), "on") == 0 && ranks > 1)
        fputs(", the optimizer's state divided over the ranks", f);
    else if (strcmp(text_or(options, "sharding", ""), "off") == 0)
        fputs(", not sharded", f);
    fputs("</p>\n", f);
}

/* ---- charts ---- */

static void put_chart(FILE *f, const report_log *log, const char *title, const char *unit, report_column column,
                      chart_style how)
{
    chart_series series = { title, log->columns[column], how };
    chart c = { .title = title,
                .unit = unit,
                .x = log->steps,
                .n = log->n,
                .series = &series,
                .n_series = 1,
                .width = NARROW,
                .height = 240,
                .from_zero = 1 };

    chart_draw(f, &c);
}

static void put_losses(FILE *f, const report_log *log)
{
    const chart_series series[] = { { "training", log->columns[REPORT_LOSS], CHART_NOISY },
                                    { "validation", log->columns[REPORT_VAL_LOSS], CHART_MARKS } };
    chart c = { .title = "Loss",
                .unit = "nats per token",
                .x = log->steps,
                .n = log->n,
                .series = series,
                .n_series = 2,
                .width = WIDE,
                .height = 340 };

    fputs("<div class=\"wide\">", f);
    chart_draw(f, &c);
    fputs("</div>\n", f);
}

/* The first ranks and the last one, and what each would have without sharding. */
static void put_memory(FILE *f, const report_log *log)
{
    const json_t *ranks = json_object_get(log->run, "memory"), *rank;
    chart_bar bars[BARS_MOST + 1];
    size_t n = 0, i;

    json_array_foreach(ranks, i, rank)
    {
        if (i >= BARS_MOST - 1 && i + 1 < json_array_size(ranks))
            continue;
        bars[n] = bar_of(rank);
        snprintf(bars[n++].name, sizeof bars->name, "rank %zu", i);
    }
    bars[n] = bar_of(json_object_get(log->run, "memory_unsharded"));
    snprintf(bars[n++].name, sizeof bars->name, "without sharding");
    fputs("<div class=\"wide\">", f);
    chart_bars(f, "Memory per rank", part_names, bars, n, WIDE);
    fputs("</div>\n", f);
}

void report_page(FILE *f, const report_log *log)
{
    report_summary summary = report_summarize(log);
    const json_t *options = json_object_get(log->run, "options");

    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<link rel=\"icon\" "
          "href=\"data:,\">\n<title>zro: ",
          f);
    put_escaped(f, text_or(options, "model", "a training"));
    fprintf(f, ", %.0f steps</title>\n<style>\n%s</style>\n</head>\n<body>\n", log->steps[log->n - 1], style);
    put_head(f, log);
    put_tiles(f, log, &summary);
    fputs("<div class=\"charts\">\n", f);
    put_losses(f, log);
    put_chart(f, log, "Learning rate", "", REPORT_LR, CHART_LINE);
    put_chart(f, log, "Gradient norm", "", REPORT_NORM, CHART_NOISY);
    put_chart(f, log, "Speed", "tokens/s", REPORT_SPEED, CHART_NOISY);
    put_chart(f, log, "Communication", "% of the step", REPORT_COMM, CHART_NOISY);
    put_memory(f, log);
    fputs("</div>\n", f);
    if (log->run != NULL) {
        fputs("<h2>Settings</h2>\n<dl>\n", f);
        put_settings(f, log->run, NULL);
        put_settings(f, options, log->run);
        fputs("</dl>\n", f);
    }
    fputs("</body>\n</html>\n", f);
}
