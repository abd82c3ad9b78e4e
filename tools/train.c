/* `zro train` and `zro sample`: other programs, beside this one.  They stand on the public header and a BLAS, which this command
 * does without. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tool.h"

/* Which MPI's launcher has started this process; "" if none has. */
static const char *launcher(void)
{
    if (getenv("ZRO_SIZE") != NULL)
        return "";
    if (getenv("OMPI_COMM_WORLD_SIZE") != NULL)
        return "_openmpi";
    return getenv("PMI_SIZE") != NULL ? "_mpich" : "";
}

/* Executes a program that lies beside this one; returns only if that fails. */
static int become(const tool *t, const char *mpi, char **argv)
{
    char self[PATH_MAX], path[PATH_MAX + 32];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);

    if (length < 0) {
        tool_say(t, "/proc/self/exe: %s", strerror(errno));
        return 1;
    }
    self[length] = '\0';
    snprintf(path, sizeof path, "%.*s/zro-%s%s", (int)(strrchr(self, '/') - self), self, t->name, mpi);
    execv(path, argv);
    if (errno == ENOENT)
        tool_say(
            t,
            "there is no %s: this zro was built without a BLAS (Debian: libopenblas-dev)%s, or is that of the Python package, "
            "which has no trainer; `make` in the repository builds one",
            path, *mpi != '\0' ? ", or without this MPI" : "");
    else
        tool_say(t, "%s: %s", path, strerror(errno));
    return 1;
}

static int train_main(int argc, char **argv)
{
    (void)argc;
    return become(&tool_train, launcher(), argv);
}

static int sample_main(int argc, char **argv)
{
    (void)argc;
    return become(&tool_sample, "", argv);
}

const tool tool_train = {
    "train",
    "train a GPT on local ranks",
    "usage: zro train [OPTIONS]\n"
    "\n"
    "Trains a GPT, the optimizer's state divided over the ranks.  All options: zro train --help, or man zro-train.\n"
    "\n"
    "  zro train --ranks 2 --model micro --steps 200 --out run --sample 300\n",
    train_main,
};

const tool tool_sample = {
    "sample",
    "let a trained GPT write",
    "usage: zro sample [OPTIONS] DIR\n"
    "\n"
    "Lets the model in DIR write.  All options: zro sample --help, or man zro-sample.\n"
    "\n"
    "  zro sample run --prompt 'static int '\n",
    sample_main,
};
