/* Charts as SVG: see report_chart.h. */
#include "report_chart.h"

#include <math.h>
#include <string.h>

enum { LEFT = 64, RIGHT = 30, TOP = 44, BOTTOM = 40, ROW = 26 };

/* ---- numbers ---- */

chart_text chart_number(double value)
{
    chart_text plain, grouped;
    size_t digits, at = 0;

    snprintf(plain.text, sizeof plain.text, fabs(value) >= 1e5 && fabs(value) < 1e15 ? "%.0f" : "%.6g", value);
    digits = strspn(plain.text, "0123456789");
    if (plain.text[digits] != '\0' || digits < 4)
        return plain;
    for (size_t i = 0; i <= digits; i++) {
        grouped.text[at++] = plain.text[i];
        if (i + 1 < digits && (digits - i - 1) % 3 == 0)
            grouped.text[at++] = ',';
    }
    return grouped;
}

/* The power of 1000 that `bytes` are told in, and its name. */
static double unit_of(double bytes, const char **name)
{
    static const char *const names[] = { "bytes", "kB", "MB", "GB", "TB" };
    double unit = 1;
    int i = 0;

    for (; i < 4 && bytes >= 1000 * unit; i++)
        unit *= 1000;
    *name = names[i];
    return unit;
}

chart_text chart_bytes(double bytes)
{
    const char *name;
    double unit = unit_of(bytes, &name);
    chart_text out;

    snprintf(out.text, sizeof out.text, bytes / unit >= 99.95 || unit == 1 ? "%.0f %s" : "%.1f %s", bytes / unit, name);
    return out;
}

/* ---- axes ---- */

/* From `low` to `high` in steps that are 1, 2 or 5 times a power of ten: at most `most` of them; at least one. */
typedef struct axis {
    double low, high, step;
} axis;

static axis round_axis(double low, double high, int most)
{
    double raw, power;
    axis a;

    if (!(high > low))
        high = low + (low == 0 ? 1 : fabs(low) * 0.1);
    raw = (high - low) / most;
    power = pow(10, floor(log10(raw)));
    raw /= power;
    a.step = power * (raw <= 1 ? 1 : raw <= 2 ? 2 : raw <= 5 ? 5 : 10);
    a.low = a.step * floor(low / a.step + 1e-9);
    a.high = a.step * ceil(high / a.step - 1e-9);
    return a;
}

typedef struct plot {
    const chart *c;
    axis x, y;
    double width, height; /* of what is between the axes */
} plot;

static double place_x(const plot *p, double x)
{
    return LEFT + p->width * (x - p->x.low) / (p->x.high - p->x.low);
}

static double place_y(const plot *p, double y)
{
    return TOP + p->height * (p->y.high - y) / (p->y.high - p->y.low);
}

/* Whole multiples of the step, because sums of it would drift. */
static double tick(const axis *a, int i)
{
    double value = a->low + i * a->step;

    return fabs(value) < a->step * 1e-6 ? 0 : value;
}

static void draw_axes(FILE *f, const plot *p)
{
    double bottom = TOP + p->height, right = LEFT + p->width;

    for (int i = 0; tick(&p->y, i) <= p->y.high + p->y.step * 1e-6; i++) {
        double y = place_y(p, tick(&p->y, i));

        fprintf(f, "<line class=\"grid\" x1=\"%d\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\"/>", LEFT, right, y, y);
        fprintf(f, "<text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", LEFT - 8, y + 4,
                chart_number(tick(&p->y, i)).text);
    }
    for (int i = 0; tick(&p->x, i) <= p->x.high + p->x.step * 1e-6; i++) {
        double x = place_x(p, tick(&p->x, i));

        if (x > right + 1)
            break;
        fprintf(f, "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.0f\" y2=\"%.0f\"/>", x, x, bottom, bottom + 4);
        fprintf(f, "<text class=\"tick\" x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\">%s</text>\n", x, bottom + 17,
                chart_number(tick(&p->x, i)).text);
    }
    fprintf(f, "<line class=\"axis\" x1=\"%d\" x2=\"%.0f\" y1=\"%.0f\" y2=\"%.0f\"/>", LEFT, right, bottom, bottom);
    fprintf(f, "<text class=\"tick\" x=\"%.0f\" y=\"%.0f\" text-anchor=\"middle\">step</text>\n", LEFT + p->width / 2,
            bottom + 34);
}

/* ---- lines ---- */

/* The points of one column of pixels, by their places in the series. */
typedef struct column {
    size_t first, least, greatest, last;
} column;

typedef struct pencil {
    FILE *f;
    const plot *p;
    int down; /* the line goes on */
} pencil;

static void put_point(pencil *pen, size_t i, double y)
{
    fprintf(pen->f, "%c%.1f %.1f", pen->down ? 'L' : 'M', place_x(pen->p, pen->p->c->x[i]), place_y(pen->p, y));
    pen->down = 1;
}

/* In the order of the steps, and no point twice. */
static void put_column(pencil *pen, const double *y, const column *k)
{
    size_t inner[2] = { k->least < k->greatest ? k->least : k->greatest, k->least < k->greatest ? k->greatest : k->least };

    put_point(pen, k->first, y[k->first]);
    for (int i = 0; i < 2; i++)
        if (inner[i] != k->first && inner[i] != k->last && (i == 0 || inner[1] != inner[0]))
            put_point(pen, inner[i], y[inner[i]]);
    if (k->last != k->first)
        put_point(pen, k->last, y[k->last]);
}

/* One path; where there is no number, the line is interrupted, unless `over_gaps`. */
static void draw_line(FILE *f, const plot *p, const double *y, const char *class, int series, int over_gaps)
{
    pencil pen = { f, p, 0 };
    column k = { 0 };
    int open = 0;

    fprintf(f, "<path class=\"%s s%d\" d=\"", class, series);
    for (size_t i = 0; i < p->c->n; i++) {
        int ends = open && floor(place_x(p, p->c->x[i])) > floor(place_x(p, p->c->x[k.first]));

        if (!isfinite(y[i]) && over_gaps)
            continue;
        if (open && (ends || !isfinite(y[i]))) {
            put_column(&pen, y, &k);
            open = 0;
        }
        if (!isfinite(y[i])) {
            pen.down = 0;
            continue;
        }
        if (!open)
            k = (column){ i, i, i, i };
        open = 1;
        k.last = i;
        if (y[i] < y[k.least])
            k.least = i;
        if (y[i] > y[k.greatest])
            k.greatest = i;
    }
    if (open)
        put_column(&pen, y, &k);
    fputs("\"/>\n", f);
}

/* The points of a mean. */
static size_t window_of(const chart *c)
{
    return c->n / 50;
}

/* The mean in a window that moves, at a point per two pixels.  Where a run begins, the window shrinks on both sides alike, because
 * values fall fast there; where it ends, only its right side is cut, because values are noisy. */
static void draw_mean(FILE *f, const plot *p, const double *y, int series)
{
    size_t n = p->c->n, half = window_of(p->c) / 2, hop = n / (size_t)(p->width / 2) + 1;
    pencil pen = { f, p, 0 };

    fprintf(f, "<path class=\"line s%d\" d=\"", series);
    for (size_t i = 0; i < n; i = i + hop < n || i == n - 1 ? i + hop : n - 1) {
        size_t reach = i < half ? i : half, end = i + reach < n ? i + reach : n - 1, points = 0;
        double sum = 0;

        for (size_t k = i - reach; k <= end; k++)
            if (isfinite(y[k])) {
                sum += y[k];
                points++;
            }
        if (points > 0)
            put_point(&pen, i, sum / (double)points);
        else
            pen.down = 0;
    }
    fputs("\"/>\n", f);
}

static void draw_marks(FILE *f, const plot *p, const chart_series *s, int series)
{
    size_t n = 0, every;

    for (size_t i = 0; i < p->c->n; i++)
        n += isfinite(s->y[i]) ? 1 : 0;
    every = n / 100 + 1;
    n = 0;
    for (size_t i = 0; i < p->c->n; i++)
        if (isfinite(s->y[i]) && n++ % every == 0)
            fprintf(
                f,
                "<circle class=\"mark s%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"><title>%s %.4f at step %.0f</title></circle>\n",
                series, place_x(p, p->c->x[i]), place_y(p, s->y[i]), s->name, s->y[i], p->c->x[i]);
}

static int is_noisy(const chart *c, const chart_series *s)
{
    return s->style == CHART_NOISY && window_of(c) >= 4;
}

static void draw_series(FILE *f, const plot *p, int i)
{
    const chart_series *s = &p->c->series[i];

    draw_line(f, p, s->y, is_noisy(p->c, s) ? "faint" : "line", i, s->style == CHART_MARKS);
    if (is_noisy(p->c, s))
        draw_mean(f, p, s->y, i);
    if (s->style == CHART_MARKS)
        draw_marks(f, p, s, i);
}

/* ---- a chart ---- */

static int has_points(const chart *c, const chart_series *s)
{
    for (size_t i = 0; i < c->n; i++)
        if (isfinite(s->y[i]))
            return 1;
    return 0;
}

static int range_of(const chart *c, double *low, double *high)
{
    *low = c->from_zero ? 0 : INFINITY;
    *high = -INFINITY;
    for (int s = 0; s < c->n_series; s++)
        for (size_t i = 0; i < c->n; i++)
            if (isfinite(c->series[s].y[i])) {
                *low = fmin(*low, c->series[s].y[i]);
                *high = fmax(*high, c->series[s].y[i]);
            }
    return *high >= *low;
}

/* Letters of the font are about this wide. */
static double text_width(const char *text)
{
    return 6.6 * (double)strlen(text);
}

static double draw_key(FILE *f, double x, int series, const char *class, const char *name)
{
    fprintf(f, "<line class=\"%s s%d\" x1=\"%.0f\" x2=\"%.0f\" y1=\"18\" y2=\"18\"/>", class, series, x, x + 18);
    if (strcmp(class, "line mark") == 0)
        fprintf(f, "<circle class=\"mark s%d\" cx=\"%.0f\" cy=\"18\" r=\"3.5\"/>", series, x + 9);
    fprintf(f, "<text class=\"key\" x=\"%.0f\" y=\"22\">%s</text>\n", x + 24, name);
    return x + 24 + text_width(name) + 16;
}

static void draw_legend(FILE *f, const chart *c)
{
    double x = LEFT + 8.5 * (double)(strlen(c->title) + strlen(c->unit)) + 24;
    char mean[80];

    for (int i = 0; i < c->n_series; i++) {
        const chart_series *s = &c->series[i];

        if (!has_points(c, s))
            continue;
        snprintf(mean, sizeof mean, "%s%smean of %zu steps", c->n_series > 1 ? s->name : "", c->n_series > 1 ? ", " : "",
                 window_of(c) / 2 * 2 + 1);
        if (is_noisy(c, s))
            x = draw_key(f, x, i, "line", mean);
        else if (c->n_series > 1)
            x = draw_key(f, x, i, s->style == CHART_MARKS ? "line mark" : "line", s->name);
    }
}

static void begin(FILE *f, const char *title, const char *unit, int width, int height)
{
    fprintf(f, "<figure><svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n", width, height, title);
    fprintf(f, "<text class=\"title\" x=\"%d\" y=\"23\">%s<tspan class=\"unit\">%s%s</tspan></text>\n", LEFT, title,
            *unit != '\0' ? "  " : "", unit);
}

void chart_draw(FILE *f, const chart *c)
{
    plot p = { .c = c, .width = c->width - LEFT - RIGHT, .height = c->height - TOP - BOTTOM };
    double low, high;

    if (c->n == 0 || !range_of(c, &low, &high))
        return;
    p.y = round_axis(low, high, 5);
    p.x = round_axis(c->x[0] <= c->x[c->n - 1] / 10 ? 0 : c->x[0], c->x[c->n - 1], c->width / 100);
    p.x.high = fmin(p.x.high, fmax(c->x[c->n - 1], p.x.low + p.x.step)); /* the line fills the chart, labels stay round */
    begin(f, c->title, c->unit, c->width, c->height);
    draw_legend(f, c);
    draw_axes(f, &p);
    for (int i = 0; i < c->n_series; i++)
        if (has_points(c, &c->series[i]))
            draw_series(f, &p, i);
    fputs("</svg></figure>\n", f);
}

/* ---- bars ---- */

static double sum_of(const chart_bar *b)
{
    return b->parts[0] + b->parts[1] + b->parts[2] + b->parts[3];
}

static void draw_bar(FILE *f, const chart_bar *b, const char *const names[4], double left, double y, double scale)
{
    double x = left;

    fprintf(f, "<text class=\"key\" x=\"%.0f\" y=\"%.0f\" text-anchor=\"end\">%s</text>", left - 8, y + 14, b->name);
    for (int i = 0; i < 4; i++) {
        double width = b->parts[i] * scale;

        if (width > 0)
            fprintf(
                f,
                "<rect class=\"bar b%d\" x=\"%.1f\" y=\"%.0f\" width=\"%.1f\" height=\"%d\"><title>%s, %s: %s</title></rect>\n",
                i, x, y, width, ROW - 7, b->name, names[i], chart_bytes(b->parts[i]).text);
        x += width;
    }
    fprintf(f, "<text class=\"total\" x=\"%.0f\" y=\"%.0f\">%s</text>\n", x + 8, y + 14, chart_bytes(sum_of(b)).text);
}

void chart_bars(FILE *f, const char *title, const char *const names[4], const chart_bar *bars, size_t n, int width)
{
    double most = 0, left = 130, right = 90, key = left, unit;
    const char *unit_name;
    axis x;

    for (size_t i = 0; i < n; i++)
        most = fmax(most, sum_of(&bars[i]));
    if (!(most > 0))
        return;
    unit = unit_of(most, &unit_name);
    x = round_axis(0, most / unit, 6);
    begin(f, title, "", width, TOP + 24 + (int)n * ROW + BOTTOM);
    for (int i = 0; i < 4; i++) {
        fprintf(f, "<rect class=\"bar b%d\" x=\"%.0f\" y=\"36\" width=\"12\" height=\"12\"/>", i, key);
        fprintf(f, "<text class=\"key\" x=\"%.0f\" y=\"46\">%s</text>\n", key + 18, names[i]);
        key += 18 + text_width(names[i]) + 20;
    }
    for (int i = 0; tick(&x, i) <= x.high + x.step * 1e-6; i++) {
        double at = left + (width - left - right) * tick(&x, i) / x.high, bottom = TOP + 20 + (double)n * ROW;

        fprintf(f, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%.0f\"/>", at, at, TOP + 16, bottom);
        fprintf(f, "<text class=\"tick\" x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\">%s</text>\n", at, bottom + 16,
                chart_number(tick(&x, i)).text);
    }
    fprintf(f, "<text class=\"tick\" x=\"%.0f\" y=\"%.0f\" text-anchor=\"middle\">%s</text>\n",
            left + (width - left - right) / 2, TOP + 20 + (double)n * ROW + 33, unit_name);
    for (size_t i = 0; i < n; i++)
        draw_bar(f, &bars[i], names, left, TOP + 20 + (double)i * ROW, (width - left - right) / (x.high * unit));
    fputs("</svg></figure>\n", f);
}
