/* zro_group_create_env: the group that the environment describes.
 *
 * `zro run` sets ZRO_RANK, ZRO_SIZE and ZRO_MEET, the number of an inherited descriptor: a memfd with the meeting table.  Without
 * ZRO_SIZE, an MPI launcher's variables, or a program that has initialised MPI itself, lead to libzro_mpi if the program is
 * linked with it: its two functions are weak references here.  Under `zro run` MPI is not even asked.
 * Settings are read where the config has its default, so a program's own choice wins over the user's environment. */
#define _GNU_SOURCE
#include "group/env.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "group/create.h"
#include "group/group.h"

/* ---- variables ---- */

/* 1 and *out, 0 if it is not set or empty, -1 with an error if it is no number in [low, high]. */
static int read_integer(const char *name, int64_t low, int64_t high, int64_t *out)
{
    const char *text = getenv(name);
    char *end;
    long long value;

    if (text == NULL || *text == '\0')
        return 0;
    errno = 0;
    value = strtoll(text, &end, 10);
    if (errno != 0 || *end != '\0' || value < low || value > high) {
        zro__fail(ZRO_ERR_INVALID, "%s = \"%s\", must be a number from %" PRId64 " to %" PRId64, name, text, low, high);
        return -1;
    }
    *out = value;
    return 1;
}

/* The same for one of several words. */
static int read_word(const char *name, const char *const *words, int n, int *out)
{
    const char *text = getenv(name);
    char list[128] = "";

    if (text == NULL || *text == '\0')
        return 0;
    for (int i = 0; i < n; i++) {
        if (strcmp(text, words[i]) == 0) {
            *out = i;
            return 1;
        }
        strcat(strcat(list, i == 0 ? "" : ", "), words[i]);
    }
    zro__fail(ZRO_ERR_INVALID, "%s = \"%s\", must be one of: %s", name, text, list);
    return -1;
}

/* "0,0,1,1": exactly `size` numbers. */
static int read_cells(int size, int32_t **out)
{
    const char *name = "ZRO_CELLS", *text = getenv(name), *at = text;

    if (text == NULL || *text == '\0')
        return 0;
    *out = zro__alloc_array(NULL, ZRO__KIND_HANDLE, (size_t)size, sizeof **out);
    if (*out == NULL) {
        zro__fail(ZRO_ERR_MEMORY, "out of memory: %s", name);
        return -1;
    }
    for (int r = 0; r < size; r++) {
        char *end;
        long value = strtol(at, &end, 10);

        if (end == at || value < INT32_MIN || value > INT32_MAX || *end != (r == size - 1 ? '\0' : ',')) {
            zro__fail(ZRO_ERR_INVALID, "%s = \"%s\", must be %d numbers with commas, one a rank", name, text, size);
            return -1;
        }
        (*out)[r] = (int32_t)value;
        at = end + 1;
    }
    return 1;
}

static const char *const kernel_words[] = { "auto", "base", "avx2", "avx512" };
static const char *const switch_words[] = { "off", "on" };
static const char *const level_words[] = { "off", "warn", "info", "debug" };

static int read_settings(zro_settings *s)
{
    const zro_settings d = ZRO_SETTINGS_INIT;
    int64_t n = 0;
    int word = 0, found;

    found = s->threads == d.threads ? read_integer("ZRO_THREADS", 1, 256, &n) : 0;
    if (found > 0)
        s->threads = (uint32_t)n;
    if (found >= 0)
        found = s->kernels == d.kernels ? read_word("ZRO_KERNELS", kernel_words, 4, &word) : 0;
    if (found > 0)
        s->kernels = (zro_kernels)word;
    if (found >= 0)
        found = s->fast == d.fast ? read_word("ZRO_FAST", switch_words, 2, &word) : 0;
    if (found > 0)
        s->fast = (zro_switch)word;
    if (found >= 0)
        found = s->log_level == d.log_level ? read_word("ZRO_LOG", level_words, 4, &word) : 0;
    if (found > 0) {
        s->log_level = (zro_log_level)word;
        if (s->log == NULL)
            s->log = zro__log_stderr;
    }
    return found;
}

/* Fills what the config left at its defaults, and checks the result; *cells is to be freed. */
static zro_status read_config(zro_group_config *c, int size, int32_t **cells)
{
    const zro_group_config d = ZRO_GROUP_CONFIG_INIT;
    zro_group_config checked;
    int64_t n = 0;
    int found = read_settings(&c->settings);

    if (found >= 0 && c->timeout_ms == d.timeout_ms && (found = read_integer("ZRO_TIMEOUT_MS", 1, INT64_MAX, &n)) > 0)
        c->timeout_ms = (uint64_t)n;
    if (found >= 0 && c->machine == d.machine && (found = read_integer("ZRO_MACHINE", 0, INT64_MAX, &n)) > 0)
        c->machine = n;
    if (found >= 0 && c->cells == NULL && (found = read_cells(size, cells)) > 0)
        c->cells = *cells;
    return found < 0 ? ZRO_ERR_INVALID : zro__config_read(c, &checked);
}

int zro__env_mpi_tasks(const char **name)
{
    /* Slurm's, of a job step, means nothing to what a launcher started inside the step. */
    static const char *const sizes[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS" };

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const char *text = getenv(sizes[i]);
        long tasks = text == NULL ? 0 : strtol(text, NULL, 10);

        *name = sizes[i];
        if (tasks > 0)
            return (int)tasks;
    }
    *name = "PMIX_RANK";
    return getenv(*name) == NULL;
}

/* ---- the ranks ---- */

/* The group of one, with a meeting table of its own. */
static zro_status create_alone(const zro_group_config *c, zro_status st, zro_group **out)
{
    zro__meet *meet;

    if (st != ZRO_OK)
        return st;
    meet = zro__alloc(NULL, ZRO__KIND_HANDLE, zro__meet_bytes(1));
    if (meet == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: a group of one");
    zro__meet_init(meet, 1);
    st = zro__group_create_at(meet, c, 0, 1, ZRO__LIFE_OF_PROCESS, ZRO_OK, out);
    zro__free(meet);
    return st;
}

static zro_status map_meet(int fd, int size, zro__meet **meet, size_t *bytes)
{
    struct stat s;
    void *base;

    if (fstat(fd, &s) != 0 || s.st_size < (off_t)sizeof(size_t))
        return zro__fail(ZRO_ERR_INVALID,
                         "ZRO_MEET = %d is no descriptor of `zro run`; was it closed or is it from another run?", fd);
    *bytes = (size_t)s.st_size;
    base = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return zro__fail_errno(ZRO_ERR_INVALID, errno, "ZRO_MEET = %d cannot be mapped", fd);
    if (!zro__meet_check(base, size, *bytes)) {
        munmap(base, *bytes);
        return zro__fail(ZRO_ERR_INVALID, "ZRO_MEET = %d is no meeting table for %d ranks", fd, size);
    }
    *meet = base;
    return ZRO_OK;
}

/* A config that was refused here is brought to the others, who would wait otherwise. */
static zro_status create_met(const zro_group_config *c, int rank, int size, int fd, zro_status before, zro_group **out)
{
    char text[ZRO__TEXT_BYTES] = "";
    zro__meet *meet = NULL;
    size_t bytes = 0;
    zro_status st;

    memcpy(text, zro_last_error(), strnlen(zro_last_error(), sizeof text - 1));
    st = map_meet(fd, size, &meet, &bytes);
    if (st != ZRO_OK)
        return st;
    st = zro__meet_claim(meet, rank);
    if (st == ZRO_OK && before != ZRO_OK)
        zro__fail(before, "%s", text);
    if (st == ZRO_OK)
        st = zro__group_create_at(meet, c, rank, size, ZRO__LIFE_OF_PROCESS, before, out);
    munmap(meet, bytes);
    return st;
}

/* Defined where libzro_mpi is part of the program (zro_mpi.h, which includes what this layer must not see). */
ZRO_MUST zro_status zro_mpi_start(zro_switch launched, int *size) __attribute__((weak));
ZRO_MUST zro_status zro_mpi_create_world(const zro_group_config *config, zro_status before, zro_group **out)
    __attribute__((weak));

/* How many ranks MPI has started; 0 where it has no part in this. */
static zro_status ask_mpi(int *ranks)
{
    const char *name = NULL;
    int tasks = zro__env_mpi_tasks(&name);
    zro_status st;

    *ranks = 0;
    if (zro_mpi_start == NULL)
        return tasks == 1 ? ZRO_OK
                          : zro__fail(ZRO_ERR_UNSUPPORTED,
                                      "started by an MPI launcher (%s = %s), but this program is not linked with zro's MPI "
                                      "library (zro::mpi); use `zro run` on one machine, or set ZRO_SIZE=1 for groups of one",
                                      name, getenv(name));
    st = zro_mpi_start(tasks == 1 ? ZRO_OFF : ZRO_ON, ranks);
    if (st == ZRO_OK && *ranks == 1 && tasks > 1)
        return zro__fail(
            ZRO_ERR_UNSUPPORTED,
            "the launcher started %d tasks (%s), but MPI says that this is the only one: the program is linked with "
            "another MPI than the launcher's; use that MPI's mpirun (srun: see --mpi), or set ZRO_SIZE=1 for groups "
            "of one",
            tasks, name);
    return st;
}

/* What `zro run` tells; size is 0 if it was not there. */
typedef struct run {
    int64_t size, rank, meet;
} run;

static zro_status read_run(run *r)
{
    int size = read_integer("ZRO_SIZE", 1, ZRO__MAX_RANKS, &r->size), found;

    if (size < 0)
        return ZRO_ERR_INVALID;
    if (size == 0)
        return read_integer("ZRO_RANK", 0, INT32_MAX, &r->rank) == 0
                   ? ZRO_OK
                   : zro__fail(ZRO_ERR_INVALID, "ZRO_RANK is set, but not ZRO_SIZE; start the program with `zro run`");
    found = read_integer("ZRO_RANK", 0, r->size - 1, &r->rank);
    if (found > 0)
        found = read_integer("ZRO_MEET", 0, INT32_MAX, &r->meet);
    if (found == 0 && r->size > 1)
        return zro__fail(ZRO_ERR_INVALID,
                         "ZRO_SIZE = %d is set, but not ZRO_RANK and ZRO_MEET; start the program with `zro run`", (int)r->size);
    return found < 0 ? ZRO_ERR_INVALID : ZRO_OK;
}

zro_status zro_group_create_env(const zro_group_config *config, zro_group **out)
{
    run r = { .size = 0, .rank = 0, .meet = -1 };
    zro_group_config c;
    int32_t *cells = NULL;
    int ranks = 0;
    zro_status st;

    if (out == NULL)
        return zro__fail(ZRO_ERR_INVALID, "group_create_env: out is NULL");
    *out = NULL;
    st = read_run(&r);
    if (st == ZRO_OK && r.size == 0)
        st = ask_mpi(&ranks);
    if (st != ZRO_OK)
        return st;
    st = zro__config_read(config, &c);
    if (st == ZRO_OK)
        st = read_config(&c, ranks > 1 ? ranks : r.size > 1 ? (int)r.size : 1, &cells);
    if (ranks > 1)
        st = zro_mpi_create_world(&c, st, out);
    else if (r.meet >= 0)
        st = create_met(&c, (int)r.rank, (int)r.size, (int)r.meet, st, out);
    else
        st = create_alone(&c, st, out);
    zro__free(cells);
    return st;
}
