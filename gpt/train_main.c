/* zro-train: the command line, and how its ranks are started.
 *
 * With --ranks, and nobody having started ranks yet, the options are checked here, and then this process becomes `zro run`, which
 * starts this program again on each rank.  So whatever is wrong with the options is said once, before anything is started. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "preflight.h"
#include "tokenizer.h"
#include "train.h"

static volatile int stop_wanted;

static void want_to_stop(int signal)
{
    (void)signal;
    stop_wanted = 1;
}

static int fail(void)
{
    fprintf(stderr, "zro train: %s\n", zro_last_error());
    return 1;
}

/* Whether `zro run` or an MPI launcher has started this process. */
static int is_rank(void)
{
    static const char *const names[] = { "ZRO_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "SLURM_STEP_NUM_TASKS" };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]) != NULL && *getenv(names[i]) != '\0')
            return 1;
    return 0;
}

/* Everything that can be checked without ranks. */
static zro_status check(const gpt_options *o, gpt_choice *choice)
{
    gpt_data data;
    gpt_tokenizer tokenizer;
    zro_status st = gpt_preflight(o, choice, (int)o->ranks, &data);

    if (st != ZRO_OK)
        return st;
    gpt_data_close(&data);
    st = gpt_tokenizer_open(o->tokenizer, choice->config.vocab, &tokenizer);
    gpt_tokenizer_close(&tokenizer);
    return st;
}

/* Becomes `zro run -n RANKS -- this program and its arguments`; returns only if that fails. */
static int start_ranks(const gpt_options *o, int argc, char **argv)
{
    char self[PATH_MAX], zro[PATH_MAX + 8], ranks[32];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    char **args = calloc((size_t)argc + 10, sizeof *args);
    int n = 0;

    if (length < 0 || args == NULL) {
        fprintf(stderr, "zro train: cannot start ranks: %s\n", strerror(errno));
        return 1;
    }
    self[length] = '\0';
    snprintf(zro, sizeof zro, "%.*s/zro", (int)(strrchr(self, '/') - self), self);
    snprintf(ranks, sizeof ranks, "%zu", o->ranks);
    char *const head[] = { zro, "run", "-n", ranks, "--no-prefix", "--grace", "600", "--", self };

    for (size_t i = 0; i < sizeof head / sizeof *head; i++)
        args[n++] = head[i];
    for (int i = 1; i < argc; i++)
        args[n++] = argv[i];
    execv(zro, args);
    fprintf(stderr, "zro train: %s cannot be started: %s; without it, give no --ranks\n", zro, strerror(errno));
    free(args);
    return 1;
}

/* What was ignored when we were started (nohup) stays ignored. */
static void catch_signals(void)
{
    static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
    struct sigaction action = { .sa_handler = want_to_stop, .sa_flags = SA_RESTART }, now;

    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (sigaction(signals[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            sigaction(signals[i], &action, NULL);
}

static int train(const gpt_options *o)
{
    zro_group_config config = ZRO_GROUP_CONFIG_INIT;
    zro_group *group;
    zro_status st;

    catch_signals();
    if (o->threads > 0)
        config.settings.threads = (uint32_t)o->threads;
    config.trace = o->trace;
    if (zro_group_create_env(&config, &group) != ZRO_OK)
        return fail();
    st = gpt_train_run(group, o, &stop_wanted);
    if (st != ZRO_OK && st != ZRO_ERR_PEER) /* PEER: another rank says it */
        fprintf(stderr, "zro train: rank %d: %s\n", zro_group_rank(group), zro_last_error());
    zro_group_destroy(group);
    return st == ZRO_OK ? 0 : 1;
}

int main(int argc, char **argv)
{
    gpt_options options;
    gpt_choice choice;
    int bad = gpt_options_read(argc, argv, &options);

    if (bad)
        return bad == 1 ? 0 : bad;
    if (gpt_options_resolve(&options, &choice) != ZRO_OK || gpt_check_files(&options) != ZRO_OK) {
        fail();
        fputs("Try `zro train --help`.\n", stderr);
        return 2;
    }
    if (options.ranks > 0 && !is_rank())
        return check(&options, &choice) == ZRO_OK ? start_ranks(&options, argc, argv) : fail();
    return train(&options);
}
