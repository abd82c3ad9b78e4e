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

#include "base/settings.h"
#include "group/create_first.h"
#include "group/group.h"

/* ---- variables ---- */

/* NULL if it is not set or empty. */
static const char *variable(const char *name)
{
    const char *text = getenv(name);

    return text == NULL || *text == '\0' ? NULL : text;
}

/* The number in a variable, if it is set and `value` is the one that stands for "not chosen"; otherwise `value`.  Once *st is a
 * failure nothing is read. */
static int64_t read_integer(zro_status *st, const char *name, int64_t value, int64_t unset, int64_t low, int64_t high)
{
    const char *text = *st == ZRO_OK && value == unset ? variable(name) : NULL;
    char *end;
    int64_t number;

    if (text == NULL)
        return value;
    errno = 0;
    number = strtoll(text, &end, 10);
    if (errno == 0 && *end == '\0' && number >= low && number <= high)
        return number;
    *st = zro__fail(ZRO_ERR_INVALID, "%s = \"%s\", must be a number from %" PRId64 " to %" PRId64, name, text, low, high);
    return value;
}

/* The same for one of several words, which are separated by ", ": its number among them. */
static int64_t read_word(zro_status *st, const char *name, int64_t value, int64_t unset, const char *words)
{
    const char *text = *st == ZRO_OK && value == unset ? variable(name) : NULL;
    const char *word = words;

    for (int64_t i = 0; text != NULL; i++) {
        size_t length = strcspn(word, ",");

        if (strlen(text) == length && memcmp(text, word, length) == 0)
            return i;
        if (word[length] == '\0') {
            *st = zro__fail(ZRO_ERR_INVALID, "%s = \"%s\", must be one of: %s", name, text, words);
            break;
        }
        word += length + 2;
    }
    return value;
}

/* "0,0,1,1": one number per rank; *cells is to be freed. */
static zro_status read_cells(int size, int32_t **cells)
{
    const char *name = "ZRO_CELLS", *text = variable(name), *at = text;

    if (text == NULL)
        return ZRO_OK;
    *cells = zro__alloc_array(NULL, ZRO__KIND_HANDLE, (size_t)size, sizeof **cells);
    if (*cells == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: %s", name);
    for (int r = 0; r < size; r++) {
        char *end;
        long value = strtol(at, &end, 10);

        if (end == at || value < INT32_MIN || value > INT32_MAX || *end != (r == size - 1 ? '\0' : ','))
            return zro__fail(ZRO_ERR_INVALID, "%s = \"%s\", must be %d numbers with commas, one per rank", name, text, size);
        (*cells)[r] = (int32_t)value;
        at = end + 1;
    }
    return ZRO_OK;
}

/* Fills what the config left at its defaults, and checks the result; *cells is to be freed. */
static zro_status read_config(zro_group_config *c, int size, int32_t **cells)
{
    const zro_group_config d = ZRO_GROUP_CONFIG_INIT;
    zro_settings *s = &c->settings;
    zro_group_config checked;
    zro_status st = ZRO_OK;

    s->threads = (uint32_t)read_integer(&st, "ZRO_THREADS", s->threads, d.settings.threads, 1, 256);
    s->kernels = (zro_kernels)read_word(&st, "ZRO_KERNELS", s->kernels, d.settings.kernels, "auto, base, avx2, avx512");
    s->fast = (zro_switch)read_word(&st, "ZRO_FAST", s->fast, d.settings.fast, "off, on");
    s->log_level = (zro_log_level)read_word(&st, "ZRO_LOG", s->log_level, d.settings.log_level, "off, warn, info, debug");
    c->timeout_ms = (uint64_t)read_integer(&st, "ZRO_TIMEOUT_MS", (int64_t)c->timeout_ms, (int64_t)d.timeout_ms, 1, INT64_MAX);
    c->machine = read_integer(&st, "ZRO_MACHINE", c->machine, d.machine, 0, INT64_MAX);
    if (c->trace == NULL)
        c->trace = variable("ZRO_TRACE");
    if (st == ZRO_OK && c->cells == NULL) {
        st = read_cells(size, cells);
        c->cells = *cells;
    }
    return st != ZRO_OK ? st : zro__config_read(c, &checked);
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

/* A group of one rank. */
static zro_status create_alone(const zro_group_config *c, zro_group **out)
{
    unsigned char ticket[ZRO_TICKET_BYTES];
    zro_status st = zro_group_ticket(c, 0, 1, ticket);

    return st == ZRO_OK ? zro_group_create_tickets(c, 0, 1, ticket, out) : st;
}

/* A config that was refused `before` is brought to the others, who would wait otherwise. */
static zro_status create_met(const zro_group_config *c, int rank, int size, int fd, zro_status before, zro_group **out)
{
    struct stat s;
    size_t bytes;
    void *meet;
    zro_status st;

    if (fstat(fd, &s) != 0 || s.st_size == 0)
        return zro__fail(ZRO_ERR_INVALID,
                         "ZRO_MEET = %d is no descriptor of `zro run`; was it closed or is it from another run?", fd);
    bytes = (size_t)s.st_size;
    meet = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (meet == MAP_FAILED)
        return zro__fail_errno(ZRO_ERR_INVALID, errno, "ZRO_MEET = %d cannot be mapped", fd);
    st = zro__meet_check(meet, rank, size, bytes);
    if (st == ZRO_ERR_INVALID)
        st = zro__fail(ZRO_ERR_INVALID, "ZRO_MEET = %d is no meeting table for %d ranks", fd, size);
    if (st == ZRO_OK) {
        fcntl(fd, F_SETFD, FD_CLOEXEC); /* programs that a rank starts are no ranks: they have no business at the table */
        st = zro__meet_claim(meet, rank);
    }
    if (st == ZRO_OK)
        st = zro__group_create_at(meet, c, rank, size, ZRO__LIFE_OF_PROCESS, before, out);
    if (st != ZRO_OK) {
        munmap(meet, bytes);
        return st;
    }
    (*out)->seat->meet = meet;
    (*out)->seat->meet_bytes = bytes;
    return ZRO_OK;
}

/* Defined where libzro_mpi is part of the program (zro_mpi.h, which includes what this layer must not see). */
ZRO_MUST zro_status zro_mpi_start(zro_switch launched, int *size) __attribute__((weak));
ZRO_MUST zro_status zro_mpi_create_world(const zro_group_config *config, zro_status before, zro_group **out)
    __attribute__((weak));

/* How many ranks MPI has started; 0 if this program is not run by MPI. */
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

/* What `zro run` tells, or 0 ranks. */
typedef struct run {
    int64_t size, rank, meet;
} run;

static zro_status read_run(run *r)
{
    const char *how = "start the program with `zro run`";
    zro_status st = ZRO_OK;

    r->size = read_integer(&st, "ZRO_SIZE", 0, 0, 1, ZRO__MAX_RANKS);
    if (st == ZRO_OK && r->size == 0 && variable("ZRO_RANK") != NULL)
        st = zro__fail(ZRO_ERR_INVALID, "ZRO_RANK is set, but not ZRO_SIZE; %s", how);
    if (st != ZRO_OK || r->size == 0)
        return st;
    r->rank = read_integer(&st, "ZRO_RANK", 0, 0, 0, r->size - 1);
    if (variable("ZRO_RANK") != NULL)
        r->meet = read_integer(&st, "ZRO_MEET", -1, -1, 0, INT32_MAX);
    if (st == ZRO_OK && r->meet < 0 && r->size > 1)
        st = zro__fail(ZRO_ERR_INVALID, "ZRO_SIZE = %d is set, but not ZRO_RANK and ZRO_MEET; %s", (int)r->size, how);
    return st;
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
    else if (st == ZRO_OK)
        st = create_alone(&c, out);
    zro__free(cells);
    if (st == ZRO_OK)
        (*out)->is_expected = 1;
    return st;
}
