/* The network between two machines is cut in the middle of the work: every rank, on both sides, has an error in time and its
 * group is broken.  Which machines these are, how to cut them apart and how to mend it is what tests/products/hosts knows:
 * ZRO_TEST_CUT and ZRO_TEST_MEND are commands for the shell of rank 0. */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "zt/list.h"
#include "zt/zt.h"

enum { COUNT = 200000, BEFORE = 20 };

static void run(const char *variable)
{
    char *command = getenv(variable), *argv[] = { "sh", "-c", command, NULL };
    int status = -1;
    pid_t pid;

    CHECK(command != NULL);
    CHECK(posix_spawnp(&pid, "sh", NULL, NULL, argv, environ) == 0);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static void link_cut(zt_rank *t)
{
    float *x = calloc(COUNT, sizeof *x);
    zro_group *copy;
    zro_status st = ZRO_OK;

    CHECK(x != NULL);
    CHECK_OK(zro_group_duplicate(t->group, &copy));
    for (int i = 0; st == ZRO_OK; i++) {
        if (i == BEFORE && t->rank == 0)
            run("ZRO_TEST_CUT");
        CHECK(i < 10000000);
        st = zro_all_reduce(t->group, x, COUNT, ZRO_F32, ZRO_SUM);
    }
    CHECK(st == ZRO_ERR_TIMEOUT || st == ZRO_ERR_LOST);
    CHECK(zro_group_status(t->group) == st);
    /* Another group of the same ranks finds out for itself. */
    st = zro_barrier(copy);
    CHECK(st == ZRO_ERR_TIMEOUT || st == ZRO_ERR_LOST);
    zro_group_destroy(copy);
    free(x);
    zt_meet(t);
    if (t->rank == 0)
        run("ZRO_TEST_MEND");
}

const zt_case cases_fail_link_cut[] = {
    { "link_cut", link_cut, ZT_WORLD(4), ZT_MPI, ZT_HOSTS | ZT_KILLS | ZT_LEAVES, 60, 1000, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
