/* Charts of `zro report`: axes are round, and thinned lines keep what one sees. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../tools/report_chart.h"

enum { STEPS = 50000 };

/* Draws n steps of one series; free() the result. */
static char *drawn(const double *x, const double *y, size_t n)
{
    chart_series series = { "y", y, CHART_LINE };
    chart c = { .title = "y", .unit = "", .x = x, .n = n, .series = &series, .n_series = 1, .width = 500, .height = 240 };
    char *text = NULL;
    size_t length;
    FILE *f = open_memstream(&text, &length);

    assert_non_null(f);
    chart_draw(f, &c);
    assert_int_equal(fclose(f), 0);
    return text;
}

/* The points of the line: how many, and the least and greatest place from above. */
static size_t points(const char *svg, double *top, double *bottom)
{
    const char *at = strstr(svg, " d=\"");
    double x, y, before = -1;
    size_t n = 0;
    int length;

    assert_non_null(at);
    *top = INFINITY;
    *bottom = -INFINITY;
    for (at += 4; *at != '"'; at += length) {
        assert_int_equal(sscanf(at, "%*1[ML]%lf %lf%n", &x, &y, &length), 2);
        assert_true(x >= before);
        before = x;
        *top = fmin(*top, y);
        *bottom = fmax(*bottom, y);
        n++;
    }
    return n;
}

static void long_lines_are_thinned_and_keep_their_spikes(void **state)
{
    double *x = calloc(STEPS, sizeof *x), *y = calloc(STEPS, sizeof *y), top, bottom;
    char *svg;

    (void)state;
    assert_true(x != NULL && y != NULL);
    for (size_t i = 0; i < STEPS; i++) {
        x[i] = (double)i + 1;
        y[i] = 5 + sin((double)i) * 0.1;
    }
    for (size_t at = 10; at < STEPS; at += STEPS / 7) {
        y[at] = 10;
        y[at + 1] = 0;
        svg = drawn(x, y, STEPS);
        assert_true(points(svg, &top, &bottom) <= 4 * 500);
        assert_true(top == 44.0 && bottom == 200.0); /* the whole height of the chart: both spikes are there */
        free(svg);
        y[at] = y[at + 1] = 5;
    }
    free(x);
    free(y);
}

static void lines_have_gaps_where_nothing_was_measured(void **state)
{
    const double x[] = { 1, 2, 3, 4, 5 }, y[] = { 1, 2, NAN, 2, 1 }, none[] = { NAN, NAN, NAN, NAN, NAN };
    char *svg = drawn(x, y, 5);
    const char *line = strstr(svg, " d=\"");
    int begun = 0;

    (void)state;
    assert_non_null(line);
    for (line += 4; *line != '"'; line++)
        begun += *line == 'M';
    assert_int_equal(begun, 2);
    free(svg);
    svg = drawn(x, none, 5);
    assert_string_equal(svg, "");
    free(svg);
}

/* Whatever the values are, labels are 1, 2 or 5 times a power of ten apart, few, and around the values. */
static void axes_are_round(void **state)
{
    static const double ranges[][2] = { { 0, 1 }, { 1.2, 5.5 },   { -3, 7e-5 },  { 3, 3 },
                                        { 0, 0 }, { 1e-9, 2e-9 }, { 0, 9.9e12 }, { 1e99, 2e99 } };
    const double x[] = { 1, 2 };

    (void)state;
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        char *svg = drawn(x, ranges[i], 2);
        double top, bottom;
        int labels = 0;

        assert_int_equal(points(svg, &top, &bottom), 2);
        assert_true(top >= 44 && bottom <= 200);
        for (const char *at = svg; (at = strstr(at, "text-anchor=\"end\">")) != NULL; at += 18)
            labels++;
        assert_in_range(labels, 2, 8);
        assert_null(strstr(svg, "nan"));
        free(svg);
    }
}

static void numbers_are_as_people_write_them(void **state)
{
    (void)state;
    assert_string_equal(chart_number(0).text, "0");
    assert_string_equal(chart_number(999).text, "999");
    assert_string_equal(chart_number(1000).text, "1,000");
    assert_string_equal(chart_number(1234567).text, "1,234,567");
    assert_string_equal(chart_number(0.0005).text, "0.0005");
    assert_string_equal(chart_bytes(999).text, "999 bytes");
    assert_string_equal(chart_bytes(33798656).text, "33.8 MB");
    assert_string_equal(chart_bytes(2.5e11).text, "250 GB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_lines_are_thinned_and_keep_their_spikes),
        cmocka_unit_test(lines_have_gaps_where_nothing_was_measured),
        cmocka_unit_test(axes_are_round),
        cmocka_unit_test(numbers_are_as_people_write_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
