/* The `zro` command: a table of subcommands, one file each. */
#include <stdio.h>
#include <string.h>

#include "tool.h"
#include "zro.h"

static const tool *const tools[] = { &tool_run, &tool_train, &tool_sample, &tool_report, &tool_bench };

enum { N_TOOLS = sizeof tools / sizeof *tools };

static int overview(void)
{
    puts("usage: zro COMMAND [ARGUMENTS]\n");
    for (int i = 0; i < N_TOOLS; i++)
        printf("  %-8s %s\n", tools[i]->name, tools[i]->line);
    puts("  help     describe a command: zro help COMMAND\n"
         "\n"
         "  --help, --version");
    return 0;
}

static const tool *find(const char *name)
{
    for (int i = 0; i < N_TOOLS; i++)
        if (strcmp(tools[i]->name, name) == 0)
            return tools[i];
    fprintf(stderr, "zro: there is no command \"%s\"\nTry `zro help`.\n", name);
    return NULL;
}

/* `zro help bench group` means bench: its help tells about all that it can measure. */
static int help(int argc, char **argv)
{
    const tool *t;

    if (argc < 2 || strcmp(argv[1], "help") == 0)
        return overview();
    t = find(argv[1]);
    return t == NULL ? EXIT_USAGE : tool_help(t);
}

static int dispatch(int argc, char **argv)
{
    const tool *t;

    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return overview();
    if (strcmp(argv[1], "--version") == 0) {
        printf("zro %s\n", zro_version());
        return 0;
    }
    if (strcmp(argv[1], "help") == 0)
        return help(argc - 1, argv + 1);
    t = find(argv[1]);
    return t == NULL ? EXIT_USAGE : t->main(argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
    int code = dispatch(argc, argv);

    /* A full disk must not pass for success. */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("zro: standard output");
        return code == 0 ? 1 : code;
    }
    return code;
}
