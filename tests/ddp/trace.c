/* Traces of ranks: what is in the file, or the files where ranks share no memory, after a training; after a rank was killed; that
 * training computes the same and allocates nothing in a step; and a path that one rank alone cannot write. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "course.h"
#include "zt/list.h"
#include "zt/zt.h"

enum { PARAMS = 6, STEPS = 6, MOST_BYTES = 4 << 20, VICTIM = 1 };

/* A path that all ranks know. */
static const char *path_of(zt_rank *t)
{
    if (t->rank == 0)
        snprintf(t->shared->text[0], sizeof t->shared->text[0], "/tmp/zro-trace-%ld-%lx", (long)getpid(),
                 (long)(uintptr_t)t & 0xffffff);
    zt_meet(t);
    return t->shared->text[0];
}

static zro_group *traced_group(zt_rank *t, const char *path)
{
    zro_group_config config = zt_config();

    config.timeout_ms = 30000;
    config.trace = path;
    return zt_group_with(t, &config);
}

/* The file that begins with a rank, checked line by line, and removed.  NULL: there is none. */
static char *take_file(const char *path, int rank)
{
    char name[80], *text;
    size_t n;
    FILE *f;

    snprintf(name, sizeof name, rank == 0 ? "%s" : "%s.%d", path, rank);
    f = fopen(name, "r");
    if (f == NULL)
        return NULL;
    text = malloc(MOST_BYTES);
    n = fread(text, 1, MOST_BYTES - 1, f);
    fclose(f);
    unlink(name);
    text[n] = '\0';
    CHECK(n > 6 && strncmp(text, "[\n{", 3) == 0 && strcmp(text + n - 4, "}\n]\n") == 0);
    for (const char *line = strchr(text + 3, '\n') + 1; strcmp(line, "]\n") != 0; line = strchr(line, '\n') + 1)
        CHECK(strncmp(line, ",{\"name\":\"", 10) == 0 && strchr(line, '\n')[-1] == '}');
    return text;
}

/* How many lines of all files begin with this, for a rank. */
static int count_lines(char *const *files, int size, const char *name, const char *kind, int rank)
{
    char what[128];
    int n = 0;

    snprintf(what, sizeof what, "\n,{\"name\":\"%s\",\"ph\":\"%s\",\"pid\":%d,", name, kind, rank);
    for (int i = 0; i < size; i++)
        for (const char *at = files[i]; at != NULL && (at = strstr(at, what)) != NULL; at++)
            n++;
    return n;
}

/* On the first rank, when all have written. */
static void check_names(char *const *files, int size)
{
    for (int r = 0; r < size; r++) {
        CHECK(count_lines(files, size, "process_name", "M", r) == 1);
        CHECK(count_lines(files, size, "thread_name", "M", r) >= 1);
    }
}

static int take_files(const char *path, int size, char **files)
{
    int n = 0;

    for (int r = 0; r < size; r++) {
        files[r] = take_file(path, r);
        n += files[r] != NULL;
    }
    return n;
}

static void free_files(char **files, int size)
{
    for (int r = 0; r < size; r++)
        free(files[r]);
}

/* ---- a training ---- */

/* Equal numbers of allocations, with a trace and without one: of STEPS steps after the first ones. */
static void train(zt_rank *t, zro_group *group, course_mode mode)
{
    zt_rank own = *t;
    zro_stats before = ZRO_STATS_INIT, after = ZRO_STATS_INIT;
    course r;

    own.group = group;
    course_init(&r, &own, mode, PARAMS);
    course_create(&r, "adamw lr=0.01", NULL);
    for (int step = 0; step < 2 * STEPS; step++) {
        uint64_t mark;

        if (step == STEPS)
            CHECK_OK(zro_group_stats(group, &before));
        mark = zro_trace_begin(group);
        course_backward(&r);
        zro_trace_end(group, mark, "backward");
        course_expect(&r);
        course_step(&r);
    }
    CHECK_OK(zro_group_stats(group, &after));
    CHECK(after.allocations == before.allocations);
    course_free(&r);
}

static void check_training(char *const *files, int size, course_mode mode)
{
    check_names(files, size);
    for (int r = 0; r < size; r++) {
        CHECK(count_lines(files, size, "backward", "X", r) == 2 * STEPS);
        CHECK(count_lines(files, size, "ddp_forward", "X", r) == 2 * STEPS);
        CHECK(count_lines(files, size, "ddp_backward_end", "X", r) == 2 * STEPS);
        CHECK(count_lines(files, size, "step", "X", r) == 2 * STEPS);
        CHECK(count_lines(files, size, "bucket", "X", r) >= 2 * STEPS || mode != COURSE_HOOK);
        CHECK(count_lines(files, size, "reduce+update+publish", "X", r) + count_lines(files, size, "update", "X", r)
              == 2 * STEPS);
        CHECK(count_lines(files, size, "all_gather", "X", r) == 1);
    }
}

static void trace_training(zt_rank *t)
{
    static const course_mode modes[] = { COURSE_HANDED, COURSE_IN_PLACE, COURSE_HOOK };
    const char *path = path_of(t);
    int64_t numbers[ZT_MAX_RANKS], number = t->rank;
    char *files[ZT_MAX_RANKS];

    for (int i = 0; i < 3; i++) {
        zro_group *group = traced_group(t, path);

        train(t, group, modes[i]);
        CHECK_OK(zro_all_gather(group, &number, numbers, 1, ZRO_I64));
        CHECK_OK(zro_trace_flush(group));
        zro_group_destroy(group);
        zt_meet(t);
        if (t->rank == 0) {
            int n = take_files(path, t->size, files);

            CHECK(files[0] != NULL && n == (t->machines == ZT_OWN ? t->size : n));
            check_training(files, t->size, modes[i]);
            free_files(files, t->size);
        }
        zt_meet(t);
    }
    CHECK(zro_trace_begin(t->group) == 0); /* without a path there is no trace */
    zro_trace_end(t->group, 0, "nothing");
    CHECK_OK(zro_trace_flush(t->group));
    train(t, t->group, COURSE_IN_PLACE);
    CHECK(access(path, F_OK) != 0);
}

/* ---- death ---- */

/* The survivors have written what they did when they get their verdict, without destroying anything.  What the victim had written
 * before is there; a line cut in two as by a death inside a write is not.  The survivor that finds the death was inside the second
 * barrier; another one may come to it after the verdict, is refused at once, and then has no second slice. */
static void trace_killed(zt_rank *t)
{
    const char *path = path_of(t);
    zro_group *group = traced_group(t, path);
    uint64_t mark = zro_trace_begin(group);
    char *files[ZT_MAX_RANKS];
    int n_barriers = 0; /* of all survivors */
    FILE *f;

    zro_trace_end(group, mark, "before");
    CHECK_OK(zro_barrier(group));
    if (t->rank == VICTIM) {
        CHECK_OK(zro_trace_flush(group));
        f = fopen(path, "r+");
        CHECK(f != NULL && fseek(f, -3, SEEK_END) == 0 && fputs("\n,{\"name\":\"cut", f) > 0 && fclose(f) == 0);
        zt_expect_lost(t, VICTIM);
        zt_die(t);
    }
    mark = zro_trace_begin(group);
    CHECK_STATUS(zro_barrier(group), ZRO_ERR_LOST);
    CHECK_TEXT("rank 1");
    atomic_fetch_add(&t->shared->flag[0], 1);
    if (t->rank == 0) {
        zt_await(t, &t->shared->flag[0], (unsigned)t->size - 1);
        CHECK(take_files(path, t->size, files) == 1);
        check_names(files, t->size);
        CHECK(strstr(files[0], "\"cut") == NULL);
        for (int r = 0; r < t->size; r++) {
            CHECK(count_lines(files, t->size, "before", "X", r) == 1);
            if (r == VICTIM)
                CHECK(count_lines(files, t->size, "barrier", "X", r) == 1);
            else
                n_barriers += count_lines(files, t->size, "barrier", "X", r);
        }
        CHECK(n_barriers > t->size - 1 && n_barriers <= 2 * (t->size - 1));
        free_files(files, t->size);
    }
    zro_group_destroy(group);
}

/* ---- a path ---- */

static void create_refused(zt_rank *t)
{
    zro_group_config config = zt_config();
    unsigned char ticket[ZRO_TICKET_BYTES], tickets[ZT_MAX_RANKS][ZRO_TICKET_BYTES];
    zro_group *group = t->group; /* anything */

    config.trace = t->rank == t->size - 1 ? "/nonexistent/trace" : NULL;
    CHECK_OK(zro_group_ticket(&config, t->rank, t->size, ticket));
    zt_exchange(t, ticket, sizeof ticket, tickets);
    CHECK_STATUS(zro_group_create_tickets(&config, t->rank, t->size, tickets, &group),
                 t->rank == t->size - 1 ? ZRO_ERR_SYSTEM : ZRO_ERR_PEER);
    CHECK_TEXT("trace: /nonexistent/trace cannot be opened: No such file or directory");
    CHECK(group == NULL);
    CHECK_OK(zro_barrier(t->group));
}

const zt_case cases_ddp_trace[] = {
    { "trace_training", trace_training, ZT_WORLD(1) | ZT_WORLD(2) | ZT_WORLD(3), ZT_ALL, 0, 0, 0, 0 },
    { "trace_killed", trace_killed, ZT_WORLD(2) | ZT_WORLD(3), ZT_LOCAL, ZT_KILLS, 0, 0, 0 },
    { "trace_refused", create_refused, ZT_WORLD(2) | ZT_WORLD(3), ZT_BOTH, 0, 0, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
