/* `zro report`: the log of a training as one page.
 *
 * The page is made in memory and put into its place whole, so that whatever fails, an older page stays as it was. */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "checkpoint/sink.h"
#include "report_chart.h"
#include "report_log.h"
#include "report_page.h"
#include "zro.h"

/* Where things are; free() both. */
typedef struct places {
    char *log, *page;
} places;

static int no_memory(void)
{
    tool_say(&tool_report, "no memory");
    return 1;
}

static int is_folder(const char *path)
{
    struct stat is;

    return stat(path, &is) == 0 && S_ISDIR(is.st_mode);
}

/* The page stands in the folder of the run, or beside the log with another suffix. */
static int find_places(const char *run, const char *output, places *p)
{
    const char *slash = strrchr(run, '/'), *name = slash == NULL ? run : slash + 1, *dot = strrchr(name, '.');
    int stem = dot == NULL || dot == name ? (int)strlen(run) : (int)(dot - run), n;

    if (asprintf(&p->log, is_folder(run) ? "%s/log.jsonl" : "%s", run) < 0) {
        p->log = NULL;
        return no_memory();
    }
    if (output != NULL)
        n = asprintf(&p->page, "%s", output);
    else if (is_folder(run))
        n = asprintf(&p->page, "%s/report.html", run);
    else
        n = asprintf(&p->page, "%.*s.html", stem, run);
    if (n < 0) {
        p->page = NULL;
        return no_memory();
    }
    return 0;
}

/* A page must not take the place of its log. */
static int same_file(const char *a, const char *b)
{
    struct stat x, y;

    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static int write_page(const char *path, const char *page, size_t length)
{
    zro__sink sink = { 0 };
    zro_status st;

    if (strcmp(path, "-") == 0)
        return fwrite(page, 1, length, stdout) != length; /* the command tells what is wrong with standard output */
    st = zro__sink_open(&sink, path, length);
    if (st == ZRO_OK)
        st = zro__sink_write(&sink, page, length);
    if (st == ZRO_OK)
        st = zro__sink_commit(&sink);
    zro__sink_close(&sink);
    if (st != ZRO_OK)
        tool_say(&tool_report, "%s", zro_last_error());
    return st != ZRO_OK;
}

static int make_page(const report_log *log, const char *path)
{
    char *page = NULL;
    size_t length = 0;
    FILE *f = open_memstream(&page, &length);
    int bad = f == NULL;

    if (!bad) {
        report_page(f, log);
        bad = ferror(f);
        bad = fclose(f) != 0 || bad;
    }
    bad = bad ? no_memory() : write_page(path, page, length);
    free(page);
    return bad;
}

static void tell(const report_log *log, const char *page)
{
    report_summary s = report_summarize(log);

    printf("%s steps, loss %.3f to %.3f", chart_number(log->steps[log->n - 1]).text, s.first_loss, s.last_loss);
    if (isfinite(s.val_loss))
        printf(", validation %.3f", s.val_loss);
    if (isfinite(s.speed))
        printf(", %s tokens/s", chart_number(round(s.speed)).text);
    if (s.bytes_saved > 0)
        printf(", %s saved by sharding", chart_bytes(s.bytes_saved).text);
    printf("\nthe picture: %s\n", page);
}

static int report(const places *p)
{
    report_log log = { 0 };
    int bad = report_log_read(&tool_report, p->log, &log) || make_page(&log, p->page);

    if (!bad && strcmp(p->page, "-") != 0)
        tell(&log, p->page);
    report_log_destroy(&log);
    return bad;
}

static int report_main(int argc, char **argv)
{
    static const struct option options[] = { { "output", required_argument, NULL, 'o' },
                                             { "help", no_argument, NULL, 'h' },
                                             { NULL, 0, NULL, 0 } };
    const char *output = NULL;
    places p = { 0 };
    int c, bad;

    opterr = 0;
    while ((c = getopt_long(argc, argv, ":o:h", options, NULL)) != -1) {
        if (c == 'h')
            return tool_help(&tool_report);
        if (c != 'o')
            return tool_bad_option(&tool_report, c, argv);
        output = optarg;
    }
    if (optind + 1 != argc)
        return optind == argc ? tool_usage(&tool_report, "which run? its folder or log is missing")
                              : tool_usage(&tool_report, "\"%s\": only one run", argv[optind + 1]);
    bad = find_places(argv[optind], output, &p);
    if (!bad && same_file(p.log, p.page))
        bad = tool_usage(&tool_report,
                         output != NULL ? "%s is the log itself: choose another file by -o"
                                        : "%s would be log and page at once: give the folder of the run, or its log.jsonl",
                         p.page);
    if (!bad)
        bad = report(&p);
    free(p.log);
    free(p.page);
    return bad;
}

const tool tool_report = {
    "report",
    "make a page of a training's log",
    "usage: zro report [-o FILE] RUN\n"
    "\n"
    "Makes one page of HTML that shows a training: loss, learning rate, norm of the gradients, speed, memory per rank with "
    "and\n"
    "without sharding, settings.  It needs nothing else: no network, no script.\n"
    "\n"
    "RUN is the log of zro train (--log), or its folder (--out).\n"
    "\n"
    "  -o, --output FILE   where the page goes; - is standard output; default: report.html in the folder,\n"
    "                      or the log's name with .html\n"
    "  -h, --help\n"
    "\n"
    "Lines that are damaged, as the last one of a killed run may be, are left out with a warning.\n",
    report_main,
};
