/* What the subcommands share: see tool.h. */
#define _GNU_SOURCE
#include "tool.h"

#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void say(const tool *t, const char *format, va_list args)
{
    fprintf(stderr, "zro %s: ", t->name);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
}

void tool_say(const tool *t, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    say(t, format, args);
    va_end(args);
}

int tool_usage(const tool *t, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    say(t, format, args);
    va_end(args);
    fprintf(stderr, "Try `zro help %s`.\n", t->name);
    return EXIT_USAGE;
}

int tool_bad_option(const tool *t, int returned, char **argv)
{
    if (returned == ':')
        return tool_usage(t, "%s needs a value", argv[optind - 1]);
    if (optopt >= 256 || optopt == 'h')
        return tool_usage(t, "%s: this option has no value", argv[optind - 1]);
    if (optopt > 0)
        return tool_usage(t, "there is no option -%c", optopt);
    return tool_usage(t, "there is no option %s", argv[optind - 1]);
}

int tool_integer(const tool *t, const char *option, const char *text, int low, int high, int *out)
{
    char *end;
    long value;

    errno = 0;
    value = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < low || value > high)
        return tool_usage(t, "%s = \"%s\", must be a whole number from %d to %d", option, text, low, high);
    *out = (int)value;
    return 0;
}

int tool_seconds(const tool *t, const char *option, const char *text, double low, double high, double *out)
{
    char *end;
    double value;

    errno = 0;
    value = strtod(text, &end);
    if (errno != 0 || end == text || *end != '\0' || !(value >= low && value <= high))
        return tool_usage(t, "%s = \"%s\", must be a number of seconds from %g to %g", option, text, low, high);
    *out = value;
    return 0;
}

int tool_help(const tool *t)
{
    fputs(t->help, stdout);
    return 0;
}

int tool_cores(void)
{
    cpu_set_t set;

    /* Fails only where a machine has more processors than the set has bits. */
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

void tool_pin(int i)
{
    cpu_set_t all, one;

    if (sched_getaffinity(0, sizeof all, &all) != 0)
        return;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all) || i-- > 0)
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        sched_setaffinity(0, sizeof one, &one);
        return;
    }
}
