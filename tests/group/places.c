/* Unfriendly places: a tiny /dev/shm, a user without privileges; and no trace in either. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <grp.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "zt/job.h"
#include "zt/list.h"
#include "zt/zt.h"

enum { NOBODY = 65534 };

static void work(zt_rank *t)
{
    uint64_t state = t->seed;
    zro_memory *memory;
    float *data;

    CHECK_OK(zro_memory_alloc(t->group, ZRO_MEMORY_EACH, 8 << 20, &memory));
    data = zro_memory_data(memory);
    for (size_t i = 0; i < (8 << 20) / sizeof *data; i++)
        data[i] = 1;
    CHECK_OK(zro_all_reduce(t->group, data, (8 << 20) / sizeof *data, ZRO_F32, ZRO_SUM));
    CHECK(data[0] == (float)t->size && data[(8 << 20) / sizeof *data - 1] == (float)t->size);
    for (int j = 0; j < 10; j++) {
        zt_job job = { .group = t->group };

        zt_job_random(&job, &state, &t->random, 20000);
        zt_job_run(&job, j % 2);
    }
    zro_memory_free(memory);
}

static int entries_of_shm(void)
{
    DIR *dir = opendir("/dev/shm");
    int n = 0;

    while (dir != NULL && readdir(dir) != NULL)
        n++;
    if (dir != NULL)
        closedir(dir);
    return n;
}

static void tiny_shm(zt_rank *t)
{
    zro_group_config config = zt_config();
    int entries;

    if (geteuid() != 0)
        zt_skip(t, "needs root, to mount a /dev/shm of 1 MiB");
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0
        || mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=1m") != 0)
        zt_skip(t, "may not mount a /dev/shm of 1 MiB in a namespace of its own");
    entries = entries_of_shm();
    zt_ranks(t, ZT_LOCAL, &config, 3, work, NULL);
    zt_ranks(t, ZT_THREADS, &config, 3, work, NULL);
    CHECK(entries_of_shm() == entries);
}

static void unprivileged(zt_rank *t)
{
    zro_group_config config = zt_config();

    if (geteuid() == 0) {
        CHECK(setgroups(0, NULL) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
        /* A program that this user started would be dumpable; a change of user takes it away. */
        CHECK(prctl(PR_SET_DUMPABLE, 1) == 0);
    }
    zt_ranks(t, ZT_LOCAL, &config, 3, work, NULL);
    zt_ranks(t, ZT_THREADS, &config, 3, work, NULL);
}

const zt_case cases_group_places[] = {
    { "tiny_shm", tiny_shm, 0, ZT_LOCAL, 0, 0, 0, 0 },
    { "unprivileged", unprivileged, 0, ZT_LOCAL, 0, 0, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
