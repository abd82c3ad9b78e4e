/* `zro run`: N ranks of any program on this machine.  The command line and restarts.
 *
 * The modules: run_job supervises the ranks, run_start starts one, run_output passes on what they write, run_pty makes the
 * pseudo-terminals for that, run_cpus divides the processors, run_leftover finds processes that ranks left behind, run_result
 * says how the job ended. */
#define _GNU_SOURCE
#include <getopt.h>
#include <signal.h>
#include <string.h>

#include "base/settings.h"
#include "run_job.h"
#include "tool.h"

enum { OPTION_BIND = 256, OPTION_GRACE, OPTION_NO_PREFIX, OPTION_PIPE, OPTION_RESTARTS, OPTION_TIMEOUT };

static const double LONGEST = 1e9; /* seconds */

/* A shell whose script is interrupted goes on with it unless the command died of the signal, too. */
static void die_of_interrupt(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    signal(SIGINT, SIG_DFL);
    raise(SIGINT);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static int run(const run_config *config)
{
    static job j;
    run_result r = { .kind = RUN_ERROR, .code = 1 };

    if (job_init(&j, config) == ZRO_OK)
        r = job_run(&j, 0);
    else
        tool_say(&tool_run, "%s", zro_last_error());
    for (int i = 1; i <= config->restarts && r.kind == RUN_FAILED && r.signal == 0; i++) {
        tool_say(&tool_run, "starting again, restart %d of %d", i, config->restarts);
        r = job_run(&j, i);
    }
    job_free(&j);
    if (r.kind == RUN_SIGNALLED && r.signal == SIGINT)
        die_of_interrupt();
    return result_code(&r);
}

/* ---- the command line ---- */

static int read_bind(const char *text, int *bind)
{
    if (strcmp(text, "core") != 0 && strcmp(text, "none") != 0)
        return tool_usage(&tool_run, "--bind = \"%s\", must be core or none", text);
    *bind = strcmp(text, "core") == 0;
    return 0;
}

static int read_option(run_config *c, int option, char **argv)
{
    switch (option) {
    case 'n':
        return tool_integer(&tool_run, "-n (--ranks)", optarg, 1, ZRO__MAX_RANKS, &c->size);
    case OPTION_BIND:
        return read_bind(optarg, &c->bind);
    case OPTION_GRACE:
        return tool_seconds(&tool_run, "--grace", optarg, 0, LONGEST, &c->grace);
    case OPTION_NO_PREFIX:
        c->prefix = 0;
        return 0;
    case OPTION_PIPE:
        c->pipe = 1;
        return 0;
    case OPTION_RESTARTS:
        return tool_integer(&tool_run, "--restarts", optarg, 0, 1000000, &c->restarts);
    case OPTION_TIMEOUT:
        return tool_seconds(&tool_run, "--timeout", optarg, 1e-3, LONGEST, &c->timeout);
    default:
        return tool_bad_option(&tool_run, option, argv);
    }
}

static int run_main(int argc, char **argv)
{
    static const struct option options[] = { { "ranks", required_argument, NULL, 'n' },
                                             { "bind", required_argument, NULL, OPTION_BIND },
                                             { "grace", required_argument, NULL, OPTION_GRACE },
                                             { "no-prefix", no_argument, NULL, OPTION_NO_PREFIX },
                                             { "pipe", no_argument, NULL, OPTION_PIPE },
                                             { "restarts", required_argument, NULL, OPTION_RESTARTS },
                                             { "timeout", required_argument, NULL, OPTION_TIMEOUT },
                                             { "help", no_argument, NULL, 'h' },
                                             { NULL, 0, NULL, 0 } };
    int cores = tool_cores(), bad, c;
    run_config config = { .size = cores, .bind = -1, .prefix = 1, .grace = 5 };

    opterr = 0;
    while ((c = getopt_long(argc, argv, "+:n:h", options, NULL)) != -1) {
        if (c == 'h')
            return tool_help(&tool_run);
        bad = read_option(&config, c, argv);
        if (bad)
            return bad;
    }
    if (optind == argc)
        return tool_usage(&tool_run, "no program to run");
    if (config.bind == 1 && config.size > cores)
        return tool_usage(&tool_run, "--bind core: %d ranks, but only %d processors may be used (--bind none, or fewer ranks)",
                          config.size, cores);
    config.bind = config.bind < 0 ? config.size <= cores : config.bind;
    config.argv = argv + optind;
    return run(&config);
}

const tool tool_run = {
    "run",
    "start N ranks of a program on this machine",
    "usage: zro run [OPTIONS] [--] PROGRAM [ARGUMENTS]\n"
    "\n"
    "Starts PROGRAM N times at once and waits for all of these processes, the ranks.  In the program, zro_group_create_env()\n"
    "makes the group of all ranks; without it, each of them runs alone.  Their lines of output begin with \"[RANK] \".\n"
    "\n"
    "When a rank fails, the first failure is reported; the others get SIGTERM and, after a grace, SIGKILL.  Ctrl-C, SIGTERM,\n"
    "SIGHUP and SIGQUIT are passed on to the ranks, and the grace begins, too; a second Ctrl-C kills at once.  SIGUSR1 and\n"
    "SIGUSR2 are passed on.\n"
    "\n"
    "  -n, --ranks N        number of ranks; default: the number of processors that may be used\n"
    "      --bind WHAT      core: each rank runs on its own equal share of the processors, the default if there are enough;\n"
    "                       none: ranks run anywhere\n"
    "      --no-prefix      ranks write directly to where zro run writes, and nothing is put before their lines\n"
    "      --pipe           standard output of ranks is a pipe, not a pseudo-terminal: programs may hold their lines back\n"
    "      --timeout S      end the job, as after a failure, when it has taken S seconds, restarts included\n"
    "      --grace S        seconds from SIGTERM to SIGKILL; default: 5\n"
    "      --restarts K     when a rank has failed and all have ended, start all of them again, up to K times; default: 0\n"
    "  -h, --help\n"
    "\n"
    "Each rank finds ZRO_RANK, ZRO_SIZE, ZRO_LOCAL_RANK, ZRO_LOCAL_SIZE, ZRO_RESTART (0 at first) and, unless you have set\n"
    "them, OMP_NUM_THREADS, OPENBLAS_NUM_THREADS and MKL_NUM_THREADS; also TERM=dumb and NO_COLOR=1 if the output of zro run\n"
    "does not go to a terminal.  Rank 0 has the standard input, the others have none.\n"
    "\n"
    "Exit status: 0 if all went well; that of the first rank to fail, or 128 + signal if it was killed; 128 + the signal that\n"
    "ended zro run; 124 after the timeout; 127 if PROGRAM is not found, 126 if it cannot be started; 2 if the command line is\n"
    "wrong; 1 if zro run itself failed.\n"
    "\n"
    "More: man zro-run\n",
    run_main,
};
