/* What the subcommands of `zro` share.
 *
 * A subcommand is a row: its name, one line for the overview, its help, and a function that gets the arguments from its own
 * name on and returns the exit status.  Statuses: 0, 1 (it failed), 2 (the command line is wrong), or what the help says. */
#ifndef ZRO_TOOLS_TOOL_H
#define ZRO_TOOLS_TOOL_H

typedef struct tool {
    const char *name; /* as typed: "run", "bench group" */
    const char *line;
    const char *help;
    int (*main)(int argc, char **argv);
} tool;

extern const tool tool_run, tool_bench, tool_train, tool_sample, tool_report;

enum { EXIT_USAGE = 2 };

/* Writes "zro NAME: <text>" to standard error. */
void tool_say(const tool *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same, followed by where to find help; returns EXIT_USAGE. */
int tool_usage(const tool *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* What is wrong with an option for which getopt_long returned ':' or '?'.  Options without a short form have values from 256
 * on, and of the others that have no value there is -h alone. */
int tool_bad_option(const tool *t, int returned, char **argv);

/* Reads the value of an option: 0 and *out, or, with a message, EXIT_USAGE. */
int tool_integer(const tool *t, const char *option, const char *text, int low, int high, int *out);
int tool_seconds(const tool *t, const char *option, const char *text, double low, double high, double *out);

/* Prints the help to standard output; returns 0. */
int tool_help(const tool *t);

/* The number of processors that this process may use.  pin: stays on the i-th of them from now on. */
int tool_cores(void);
void tool_pin(int i);

#endif
