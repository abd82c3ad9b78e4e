/* Charts as SVG: lines over the steps of a run, and bars of memory.
 *
 * Colours and strokes are classes (s0, s1, ... for series), which the style of the page gives; sizes are in the units of the
 * view box.  Lines of more points than the chart has pixels are thinned: each column of pixels keeps its first, least, greatest
 * and last point, so that no spike is lost and the picture is the same. */
#ifndef ZRO_TOOLS_REPORT_CHART_H
#define ZRO_TOOLS_REPORT_CHART_H

#include <stddef.h>
#include <stdio.h>

typedef enum chart_style {
    CHART_LINE,  /* a line */
    CHART_NOISY, /* faint, and over it the mean of neighbours */
    CHART_MARKS  /* few points: a line with circles */
} chart_style;

typedef struct chart_series {
    const char *name; /* in the legend, if there are several */
    const double *y;  /* [n of the chart]; NaN: no point */
    chart_style style;
} chart_series;

typedef struct chart {
    const char *title, *unit; /* unit: of y, or "" */
    const double *x;          /* [n], ascending: steps */
    size_t n;
    const chart_series *series;
    int n_series;
    int width, height;
    int from_zero; /* y begins with 0 */
} chart;

/* Draws a chart; nothing if there is no point in it. */
void chart_draw(FILE *out, const chart *c);

/* Bars that lie: `parts` numbers of bytes per row, beside each other. */
typedef struct chart_bar {
    char name[32];
    double parts[4];
} chart_bar;
void chart_bars(FILE *out, const char *title, const char *const names[4], const chart_bar *bars, size_t n, int width);

/* A number as people write it: 1,234,567 or 0.0015. */
typedef struct chart_text {
    char text[40];
} chart_text;
chart_text chart_number(double value);

/* Bytes in the largest unit that leaves a number above 1: "12.3 MB". */
chart_text chart_bytes(double bytes);

#endif
