/* Ordinary behaviour of the calls, and arguments that they refuse: INVALID or UNSUPPORTED on the rank that passed them, before
 * anything is issued, so the group stays whole. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "zt/job.h"
#include "zt/list.h"
#include "zt/zt.h"

/* ---- without ranks ---- */

static void names(zt_rank *t)
{
    static const char *const status[] = { "OK",          "INVALID",  "STATE", "MEMORY", "SYSTEM", "FORMAT",
                                          "UNSUPPORTED", "MISMATCH", "PEER",  "LOST",   "TIMEOUT" };
    static const char *const dtype[] = { "f32", "f64", "bf16", "f16", "i8", "u8", "i32", "i64" };
    static const size_t bytes[] = { 4, 8, 2, 2, 1, 1, 4, 8 };

    (void)t;
    for (int s = 0; s <= ZRO_ERR_TIMEOUT; s++) {
        CHECK(strcmp(zro_status_name((zro_status)s), status[s]) == 0);
        CHECK(strlen(zro_status_text((zro_status)s)) > 0);
    }
    CHECK(strcmp(zro_status_name((zro_status)11), "UNKNOWN") == 0);
    CHECK(strcmp(zro_status_name((zro_status)-1), "UNKNOWN") == 0);
    CHECK(zro_status_text((zro_status)4711) != NULL);
    for (int d = 0; d < ZT_DTYPES; d++) {
        CHECK(zro_dtype_bytes((zro_dtype)d) == bytes[d]);
        CHECK(strcmp(zro_dtype_name((zro_dtype)d), dtype[d]) == 0);
    }
    CHECK(zro_dtype_bytes((zro_dtype)8) == 0 && zro_dtype_name((zro_dtype)8) == NULL);
    CHECK(zro_dtype_bytes((zro_dtype)-1) == 0 && zro_dtype_name((zro_dtype)-1) == NULL);
    CHECK(strcmp(zro_version(), ZRO_VERSION) == 0);
    CHECK(strcmp(zro_last_error(), "") == 0);
}

static void abi(zt_rank *t)
{
    static const zro_abi_entry expected[] = { { "zro_abi_entry", sizeof(zro_abi_entry) },
                                              { "zro_settings", sizeof(zro_settings) },
                                              { "zro_group_config", sizeof(zro_group_config) },
                                              { "zro_stats", sizeof(zro_stats) } };
    zro_group_config by_constant = ZRO_GROUP_CONFIG_INIT, by_function;
    zro_stats stats_by_constant = ZRO_STATS_INIT, stats_by_function;
    size_t count = 0, found = 0;
    const zro_abi_entry *entries = zro_abi(&count);

    (void)t;
    for (size_t e = 0; e < sizeof expected / sizeof *expected; e++)
        for (size_t i = 0; i < count; i++)
            if (strcmp(entries[i].name, expected[e].name) == 0) {
                CHECK(entries[i].bytes == expected[e].bytes);
                found++;
            }
    CHECK(found >= sizeof expected / sizeof *expected - 1); /* an entry for the entries themselves is not asked for */
    zro_group_config_init(&by_function);
    CHECK(by_function.struct_size == by_constant.struct_size && by_function.timeout_ms == by_constant.timeout_ms
          && by_function.cells == NULL && by_function.machine == ZRO_MACHINE_AUTO
          && by_function.settings.threads == by_constant.settings.threads
          && by_function.settings.fast == by_constant.settings.fast
          && by_function.settings.log_level == by_constant.settings.log_level && by_function.settings.log == NULL);
    zro_stats_init(&stats_by_function);
    CHECK(memcmp(&stats_by_function, &stats_by_constant, sizeof stats_by_constant) == 0);
}

static void null_handles(zt_rank *t)
{
    (void)t;
    zro_group_destroy(NULL);
    zro_work_destroy(NULL);
    zro_memory_free(NULL);
    zro_bytes_free(NULL);
}

static int do_nothing(void *user, zro_group *group)
{
    (void)group;
    return user != NULL;
}

/* A refusal of create_env names its variable. */
static void refuse_variable(const char *name, const char *value)
{
    zro_group *group = (zro_group *)1;

    CHECK(setenv(name, value, 1) == 0);
    CHECK_STATUS(zro_group_create_env(NULL, &group), ZRO_ERR_INVALID);
    CHECK(group == NULL);
    CHECK_TEXT(name);
    unsetenv(name);
}

static void accept_variable(const char *name, const char *value)
{
    zro_group *group;

    CHECK(setenv(name, value, 1) == 0);
    CHECK_OK(zro_group_create_env(NULL, &group));
    CHECK(zro_group_size(group) == 1 && zro_group_rank(group) == 0);
    CHECK_OK(zro_barrier(group));
    zro_group_destroy(group);
    unsetenv(name);
}

static void environment(zt_rank *t)
{
    static const char *const bad[][2] = {
        { "ZRO_THREADS", "0" },
        { "ZRO_THREADS", "257" },
        { "ZRO_THREADS", "two" },

        { "ZRO_THREADS", "-1" },
        { "ZRO_THREADS", "1x" },
        { "ZRO_KERNELS", "sse" },
        { "ZRO_KERNELS", "avx" },
        { "ZRO_KERNELS", "autos" },
        { "ZRO_CELLS", "," },

        { "ZRO_FAST", "maybe" },
        { "ZRO_FAST", "1" },
        { "ZRO_LOG", "loud" },
        { "ZRO_CELLS", "a" },
        { "ZRO_CELLS", "0,1" },
        { "ZRO_CELLS", "0," },
        { "ZRO_MACHINE", "here" },
        { "ZRO_MACHINE", "-7" },
        { "ZRO_TIMEOUT_MS", "0" },
        { "ZRO_TIMEOUT_MS", "-5" },
        { "ZRO_TIMEOUT_MS", "1s" },

        { "ZRO_CELLS", "99999999999999" },
        { "ZRO_TIMEOUT_MS", "99999999999999999999999" },
    };
    static const char *const good[][2] = {
        { "ZRO_THREADS", "2" }, { "ZRO_KERNELS", "base" },    { "ZRO_KERNELS", "auto" }, { "ZRO_FAST", "off" },
        { "ZRO_FAST", "on" },   { "ZRO_LOG", "off" },         { "ZRO_LOG", "debug" },    { "ZRO_CELLS", "-3" },
        { "ZRO_MACHINE", "7" }, { "ZRO_TIMEOUT_MS", "5000" },
    };
    zro_group *group;

    (void)t;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refuse_variable(bad[i][0], bad[i][1]);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        accept_variable(good[i][0], good[i][1]);
    refuse_variable("ZRO_RANK", "0"); /* without a size */
    refuse_variable("ZRO_SIZE", "2"); /* without a rank */
    refuse_variable("ZRO_SIZE", "0");
    refuse_variable("ZRO_SIZE", "many");
    CHECK(setenv("ZRO_SIZE", "2", 1) == 0);
    refuse_variable("ZRO_RANK", "2");
    refuse_variable("ZRO_RANK", "-1");
    refuse_variable("ZRO_RANK", "x");
    unsetenv("ZRO_SIZE");
    CHECK(setenv("OMPI_COMM_WORLD_SIZE", "2", 1) == 0);
    CHECK_STATUS(zro_group_create_env(NULL, &group), ZRO_ERR_UNSUPPORTED);
    CHECK(group == NULL);
    unsetenv("OMPI_COMM_WORLD_SIZE");
    CHECK(setenv("PMI_SIZE", "3", 1) == 0);
    CHECK_STATUS(zro_group_create_env(NULL, &group), ZRO_ERR_UNSUPPORTED);
    CHECK(setenv("PMI_SIZE", "1", 1) == 0);
    CHECK_OK(zro_group_create_env(NULL, &group));
    zro_group_destroy(group);
    unsetenv("PMI_SIZE");
    CHECK(setenv("SLURM_STEP_NUM_TASKS", "2", 1) == 0);
    CHECK_STATUS(zro_group_create_env(NULL, &group), ZRO_ERR_UNSUPPORTED);
    CHECK_TEXT("SLURM_STEP_NUM_TASKS = 2");
    CHECK_STATUS(zro_spawn(NULL, 1, do_nothing, NULL), ZRO_ERR_STATE);
    CHECK_TEXT("MPI launcher (SLURM_STEP_NUM_TASKS)");
    unsetenv("SLURM_STEP_NUM_TASKS");
    CHECK(setenv("PMIX_RANK", "0", 1) == 0); /* it does not say how many there are */
    CHECK_STATUS(zro_group_create_env(NULL, &group), ZRO_ERR_UNSUPPORTED);
    CHECK_TEXT("PMIX_RANK");
    unsetenv("PMIX_RANK");
}

/* What the program sets itself is not overridden. */
static void environment_and_config(zt_rank *t)
{
    static const char *const names[] = { "ZRO_TIMEOUT_MS", "ZRO_THREADS", "ZRO_KERNELS", "ZRO_FAST",
                                         "ZRO_LOG",        "ZRO_MACHINE", "ZRO_CELLS" };
    zro_group_config config = ZRO_GROUP_CONFIG_INIT;
    int32_t cell = 3;
    zro_group *group;

    (void)t;
    config.timeout_ms = 1234;
    config.settings.threads = 2;
    config.settings.kernels = ZRO_KERNELS_BASE;
    config.settings.fast = ZRO_OFF;
    config.settings.log_level = ZRO_LOG_INFO;
    config.machine = 5;
    config.cells = &cell;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        CHECK(setenv(names[i], "nonsense", 1) == 0); /* it is not even read */
    CHECK_OK(zro_group_create_env(&config, &group));
    zro_group_destroy(group);
}

static void keep_line(void *user, zro_log_level level, const char *text)
{
    (void)level;
    snprintf(user, 256, "%s", text);
}

/* What the environment says is what the group has; seen in its debug line. */
static void environment_takes_effect(zt_rank *t)
{
    zro_group_config config = ZRO_GROUP_CONFIG_INIT;
    char line[256] = "";
    zro_group *group;

    (void)t;
    config.settings.log = keep_line;
    config.settings.log_user = line;
    CHECK(setenv("ZRO_LOG", "debug", 1) == 0);
    CHECK(setenv("ZRO_THREADS", "3", 1) == 0);
    CHECK(setenv("ZRO_KERNELS", "base", 1) == 0);
    CHECK_OK(zro_group_create_env(&config, &group));
    zro_group_destroy(group);
    CHECK(strstr(line, "kernels base, threads 3") != NULL);
    config.settings.threads = 2; /* the program's own choice wins */
    CHECK_OK(zro_group_create_env(&config, &group));
    zro_group_destroy(group);
    CHECK(strstr(line, "kernels base, threads 2") != NULL);
}

static void refuse_config(zro_group_config config, const char *text)
{
    unsigned char ticket[ZRO_TICKET_BYTES];
    zro_group *group = (zro_group *)1;

    CHECK_STATUS(zro_group_ticket(&config, 0, 1, ticket), ZRO_ERR_INVALID);
    CHECK_TEXT(text);
    CHECK_STATUS(zro_group_create_env(&config, &group), ZRO_ERR_INVALID);
    CHECK_TEXT(text);
    CHECK(group == NULL);
}

static void configs(zt_rank *t)
{
    zro_group_config c = zt_config();
    zt_held before = zt_held_now();

    (void)t;
    c.timeout_ms = 0;
    refuse_config(c, "timeout_ms");
    c = zt_config();
    c.settings.threads = 0;
    refuse_config(c, "threads");
    c.settings.threads = 257;
    refuse_config(c, "threads");
    c = zt_config();
    c.settings.kernels = (zro_kernels)9;
    refuse_config(c, "kernels");
    c = zt_config();
    c.settings.fast = (zro_switch)2;
    refuse_config(c, "fast");
    c = zt_config();
    c.struct_size = 3;
    refuse_config(c, "struct_size");
    c = zt_config();
    c.machine = ZRO_MACHINE_AUTO - 1;
    refuse_config(c, "machine");
    CHECK_HELD(before);
}

/* A ticket that is not used after all is given back. */
static void ticket_dropped(zt_rank *t)
{
    unsigned char ticket[ZRO_TICKET_BYTES];
    zt_held before = zt_held_now();

    (void)t;
    for (int rank = 0; rank < 2; rank++) {
        CHECK_OK(zro_group_ticket(NULL, rank, 2, ticket));
        zro_group_ticket_drop(ticket);
        CHECK_HELD(before);
    }
    zro_group_ticket_drop(NULL);
    memset(ticket, 0, sizeof ticket);
    zro_group_ticket_drop(ticket);
}

/* A create that refuses the tickets of others has used up its own. */
static void ticket_refused(zt_rank *t)
{
    unsigned char tickets[2 * ZRO_TICKET_BYTES] = { 0 };
    zt_held before = zt_held_now();
    zro_group *group;

    (void)t;
    CHECK_OK(zro_group_ticket(NULL, 0, 2, tickets));
    CHECK_STATUS(zro_group_create_tickets(NULL, 0, 2, tickets, &group), ZRO_ERR_INVALID);
    CHECK_TEXT("tickets[1]");
    CHECK_HELD(before);
}

/* A link that does nothing but count how often it was closed. */
static void send_nothing(void *self, int peer, uint64_t channel, const void *data, size_t bytes, zro_switch held,
                         zro_link_request *request)
{
    (void)self, (void)peer, (void)channel, (void)data, (void)bytes, (void)held, (void)request;
}

static void receive_nothing(void *self, int peer, uint64_t channel, void *data, size_t bytes, zro_link_request *request)
{
    (void)self, (void)peer, (void)channel, (void)data, (void)bytes, (void)request;
}

static void poll_nothing(void *self)
{
    (void)self;
}

static void cancel_nothing(void *self, zro_link_request *request)
{
    (void)self, (void)request;
}

static uint64_t number_nothing(void *self)
{
    (void)self;
    return 1;
}

static void count_close(void *self)
{
    ++*(int *)self;
}

/* A create closes the link that it was given, once, whatever is wrong. */
static void link_is_closed(zt_rank *t)
{
    unsigned char with[2 * ZRO_TICKET_BYTES] = { 0 }, without[ZRO_TICKET_BYTES];
    zro_group_config config = zt_config();
    int closed = 0;
    zro_link link = ZRO_LINK_INIT;
    zro_group *group;

    (void)t;
    CHECK_OK(zro_group_ticket(&config, 0, 1, without));
    link.self = &closed;
    link.channels = UINT64_MAX;
    link.send = send_nothing;
    link.recv = receive_nothing;
    link.poll = poll_nothing;
    link.cancel = cancel_nothing;
    link.number = number_nothing;
    link.close = count_close;
    config.link = &link;
    CHECK_STATUS(zro_group_create_tickets(&config, 1, 1, without, &group), ZRO_ERR_INVALID);
    CHECK(closed == 1);
    CHECK_STATUS(zro_group_create_tickets(&config, 0, 1, without, &group), ZRO_ERR_INVALID);
    CHECK_TEXT("the ticket was written without a link");
    CHECK(closed == 2);
    CHECK_OK(zro_group_ticket(&config, 0, 2, with));
    CHECK_STATUS(zro_group_create_tickets(&config, 0, 2, with, &group), ZRO_ERR_INVALID);
    CHECK(closed == 3);
    CHECK_OK(zro_group_ticket(&config, 0, 1, with));
    CHECK_OK(zro_group_create_tickets(&config, 0, 1, with, &group));
    CHECK(closed == 3);
    zro_group_destroy(group);
    CHECK(closed == 4);
    CHECK_STATUS(zro_spawn(&config, 1, do_nothing, NULL), ZRO_ERR_INVALID);
    CHECK_TEXT("config.link is one rank's");
}

/* A ticket works once, whatever a program does with it afterwards. */
static void ticket_twice(zt_rank *t)
{
    unsigned char ticket[ZRO_TICKET_BYTES];
    zt_held before = zt_held_now();
    zro_group *group, *other;

    (void)t;
    CHECK_OK(zro_group_ticket(NULL, 0, 1, ticket));
    CHECK_OK(zro_group_create_tickets(NULL, 0, 1, ticket, &group));
    CHECK_STATUS(zro_group_create_tickets(NULL, 0, 1, ticket, &other), ZRO_ERR_STATE);
    CHECK_TEXT("used before, or dropped");
    zro_group_ticket_drop(ticket);
    CHECK_OK(zro_barrier(group));
    zro_group_destroy(group);
    CHECK_STATUS(zro_group_create_tickets(NULL, 0, 1, ticket, &other), ZRO_ERR_STATE);
    zro_group_ticket_drop(ticket);
    CHECK_HELD(before);
    CHECK_OK(zro_group_ticket(NULL, 0, 1, ticket));
    zro_group_ticket_drop(ticket);
    CHECK_STATUS(zro_group_create_tickets(NULL, 0, 1, ticket, &other), ZRO_ERR_STATE);
    CHECK_HELD(before);
}

static void tickets(zt_rank *t)
{
    unsigned char ticket[2 * ZRO_TICKET_BYTES] = { 0 }, changed[2 * ZRO_TICKET_BYTES];
    zro_group_config config = zt_config();
    zt_held before = zt_held_now();
    zro_group *group = (zro_group *)1;

    CHECK_STATUS(zro_group_ticket(&config, 2, 2, ticket), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_group_ticket(&config, -1, 2, ticket), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_group_ticket(&config, 0, 0, ticket), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_group_ticket(&config, 0, 4097, ticket), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_group_ticket(&config, 0, 1, NULL), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_group_create_tickets(&config, 0, 1, NULL, &group), ZRO_ERR_INVALID);
    CHECK(group == NULL);
    CHECK_STATUS(zro_group_create_tickets(&config, 0, 2, ticket, &group), ZRO_ERR_INVALID);
    CHECK(group == NULL);
    CHECK_HELD(before);
    /* Each byte of the own ticket changed, one at a time: refused, or of no consequence; never a crash or a hang. */
    config.timeout_ms = 2000;
    for (size_t b = 0; b < ZRO_TICKET_BYTES; b += 1 + zt_below(&t->random, 3)) {
        zro_status st;

        CHECK_OK(zro_group_ticket(&config, 0, 1, ticket));
        memcpy(changed, ticket, sizeof changed);
        changed[b] ^= (unsigned char)(1 + zt_below(&t->random, 255));
        st = zro_group_create_tickets(&config, 0, 1, changed, &group);
        CHECK((st == ZRO_OK) == (group != NULL));
        zro_group_destroy(group);
        if (st != ZRO_OK) { /* the ticket that was written is still good */
            CHECK_OK(zro_group_create_tickets(&config, 0, 1, ticket, &group));
            zro_group_destroy(group);
        }
    }
    CHECK_HELD(before);
    /* The same ticket for two ranks. */
    CHECK_OK(zro_group_ticket(&config, 0, 2, ticket));
    memcpy(ticket + ZRO_TICKET_BYTES, ticket, ZRO_TICKET_BYTES);
    CHECK_STATUS(zro_group_create_tickets(&config, 0, 2, ticket, &group), ZRO_ERR_INVALID);
}

static void group_of_one(zt_rank *t)
{
    zro_group *group, *copy, *sub;
    zro_memory *memory;
    int zero = 0;

    (void)t;
    CHECK_OK(zro_group_create_env(NULL, &group));
    CHECK(zro_group_size(group) == 1 && zro_group_rank(group) == 0 && zro_group_label(group, 0) == 0);
    CHECK_OK(zro_group_duplicate(group, &copy));
    CHECK_OK(zro_group_create_sub(copy, &zero, 1, &sub));
    CHECK_OK(zro_memory_alloc(sub, ZRO_MEMORY_ONCE, 100, &memory));
    for (int j = 0; j < 20; j++) {
        uint64_t state = (uint64_t)j;
        zt_job job = { .group = j % 2 == 0 ? sub : copy };

        zt_job_random(&job, &state, &t->random, 1000);
        zt_job_run(&job, j % 3 == 0);
    }
    zro_group_destroy(group);
    zro_group_destroy(copy);
    zro_memory_free(memory);
    CHECK_OK(zro_barrier(sub));
    zro_group_destroy(sub);
}

static int return_7(void *user, zro_group *group)
{
    (void)user;
    return zro_group_rank(group) == 1 ? 7 : 0;
}

static void spawn_results(zt_rank *t)
{
    zro_group_config config = zt_config();
    zt_held before = zt_held_now();

    (void)t;
    for (int threads = 0; threads < 2; threads++) {
        zro_status (*spawn)(const zro_group_config *, int, zro_rank_fn, void *) = threads ? zro_spawn_threads : zro_spawn;

        CHECK_OK(spawn(NULL, 1, do_nothing, NULL));
        CHECK_OK(spawn(&config, 4, do_nothing, NULL));
        CHECK_STATUS(spawn(&config, 3, return_7, NULL), ZRO_ERR_PEER);
        CHECK_TEXT("rank 1");
        CHECK_TEXT("7");
        CHECK_STATUS(spawn(&config, 0, do_nothing, NULL), ZRO_ERR_INVALID);
        CHECK_STATUS(spawn(&config, -3, do_nothing, NULL), ZRO_ERR_INVALID);
        CHECK_STATUS(spawn(&config, 2, NULL, NULL), ZRO_ERR_INVALID);
        config.timeout_ms = 0;
        CHECK_STATUS(spawn(&config, 2, do_nothing, NULL), ZRO_ERR_INVALID);
        config = zt_config();
        CHECK_HELD(before);
    }
}

/* Rank 1 leaves a group behind; the other one hears of it there, and need not wait for the deadline. */
static int leave_behind(void *user, zro_group *group)
{
    zro_group **duplicates = user;
    zro_status st;

    if (zro_group_duplicate(group, &duplicates[zro_group_rank(group)]) != ZRO_OK)
        return 1;
    if (zro_group_rank(group) == 1)
        return 0;
    st = zro_barrier(duplicates[0]);
    return st == ZRO_ERR_LOST && strstr(zro_last_error(), "rank 1") != NULL ? 0 : 1;
}

static void left_behind(zt_rank *t)
{
    zro_group_config config = zt_config();
    zro_group *duplicates[2];
    zt_held before;

    (void)t;
    config.timeout_ms = 20000;
    CHECK_OK(zro_spawn_threads(&config, 2, do_nothing, NULL)); /* sanitizers start a thread of their own with the first */
    before = zt_held_now();
    CHECK_OK(zro_spawn_threads(&config, 2, leave_behind, duplicates));
    zro_group_destroy(duplicates[0]);
    zro_group_destroy(duplicates[1]);
    CHECK_HELD(before);
}

static int write_rank(void *file, zro_group *group)
{
    fprintf(file, "rank %d\n", zro_group_rank(group)); /* it stays in the buffer */
    return 0;
}

/* What a program or a rank has not written out yet is written once. */
static void buffered_output(zt_rank *t)
{
    FILE *file = tmpfile();
    char line[32];
    int own = 0, ranks = 0;

    (void)t;
    CHECK(file != NULL);
    fprintf(file, "before\n");
    CHECK_OK(zro_spawn(NULL, 2, write_rank, file));
    rewind(file);
    while (fgets(line, sizeof line, file) != NULL) {
        own += strcmp(line, "before\n") == 0;
        ranks += strncmp(line, "rank ", 5) == 0;
    }
    CHECK(own == 1 && ranks == 2);
    fclose(file);
}

static int spawn_inside(void *user, zro_group *group)
{
    (void)user;
    (void)group;
    return zro_spawn(NULL, 2, do_nothing, NULL) == ZRO_ERR_STATE ? 0 : 1;
}

/* A process with several threads cannot fork ranks. */
static void spawn_with_threads(zt_rank *t)
{
    (void)t;
    CHECK_OK(zro_spawn_threads(NULL, 2, spawn_inside, NULL));
}

/* ---- with ranks ---- */

static void arguments(zt_rank *t)
{
    zro_group *g = t->group, *made = (zro_group *)1;
    float x[8] = { 0 }, y[64] = { 0 };
    size_t counts[ZT_MAX_RANKS], too_many[ZT_MAX_RANKS], bytes;
    int twice[] = { 0, 0 }, beyond[ZT_MAX_RANKS] = { t->size }, negative[] = { -1 };
    const size_t huge = SIZE_MAX / 2;
    zro_memory *memory = (zro_memory *)1;
    zro_work *work = (zro_work *)1;
    void *out;

    for (int r = 0; r < t->size; r++) {
        counts[r] = 1;
        too_many[r] = SIZE_MAX / 4;
    }
    CHECK_STATUS(zro_all_reduce(g, x, 8, (zro_dtype)8, ZRO_SUM), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_all_reduce(g, x, 8, (zro_dtype)-1, ZRO_SUM), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_all_reduce(g, x, 8, ZRO_F32, (zro_op)4), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_all_reduce(g, NULL, 8, ZRO_F32, ZRO_SUM), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_all_reduce(g, x, huge, ZRO_F64, ZRO_SUM), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_all_reduce_into(g, NULL, x, 8, ZRO_F32, ZRO_SUM), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_all_reduce_into(g, x, NULL, 8, ZRO_F32, ZRO_SUM), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_all_reduce_into(g, x, x + 1, 4, ZRO_F32, ZRO_SUM), ZRO_ERR_INVALID);
    CHECK_OK(zro_all_reduce_into(g, x, x + 4, 4, ZRO_F32, ZRO_SUM)); /* neighbours do not overlap */
    CHECK_OK(zro_all_reduce_into(g, x + 4, x, 4, ZRO_F32, ZRO_SUM));
    CHECK_TEXT("overlap");
    CHECK_STATUS(zro_all_gather(g, (char *)x + 1, x, 1, ZRO_F32), ZRO_ERR_INVALID);
    CHECK_TEXT("overlap");
    CHECK_STATUS(zro_reduce_scatter(g, x, (char *)x + 1, 1, ZRO_F32, ZRO_SUM), ZRO_ERR_INVALID);
    CHECK_TEXT("overlap");
    for (int d = ZRO_I8; d <= ZRO_I64; d++) {
        CHECK_STATUS(zro_all_reduce(g, x, 1, (zro_dtype)d, ZRO_AVG), ZRO_ERR_UNSUPPORTED);
        CHECK_STATUS(zro_reduce(g, x, y, 1, (zro_dtype)d, ZRO_AVG, 0), ZRO_ERR_UNSUPPORTED);
        CHECK_STATUS(zro_reduce_scatter(g, y, x, 1, (zro_dtype)d, ZRO_AVG), ZRO_ERR_UNSUPPORTED);
    }
    CHECK_STATUS(zro_reduce(g, x, y, 8, ZRO_F32, ZRO_SUM, t->size), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_reduce(g, x, y, 8, ZRO_F32, ZRO_SUM, -1), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_reduce(g, NULL, y, 8, ZRO_F32, ZRO_SUM, 0), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_reduce(g, x, NULL, 8, ZRO_F32, ZRO_SUM, t->rank), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_reduce_scatter(g, y, NULL, 1, ZRO_F32, ZRO_SUM), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_reduce_scatter(g, NULL, x, 1, ZRO_F32, ZRO_SUM), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_reduce_scatter(g, y, x, huge, ZRO_F32, ZRO_SUM), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_reduce_scatter_v(g, y, x, NULL, ZRO_F32, ZRO_SUM), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_reduce_scatter_v(g, NULL, x, counts, ZRO_F32, ZRO_SUM), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_reduce_scatter_v(g, y, x, too_many, ZRO_F32, ZRO_SUM), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_broadcast(g, x, 8, ZRO_F32, t->size), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_broadcast(g, x, 8, ZRO_F32, -1), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_broadcast(g, NULL, 8, ZRO_F32, 0), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_broadcast(g, x, 8, (zro_dtype)77, 0), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_broadcast_bytes(g, x, 8, t->size, &out, &bytes), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_broadcast_bytes(g, NULL, 8, t->rank, &out, &bytes), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_broadcast_bytes(g, x, 8, 0, NULL, &bytes), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_broadcast_bytes(g, x, 8, 0, &out, NULL), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_gather(g, x, y, 1, ZRO_F32, t->size), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_gather(g, x, NULL, 1, ZRO_F32, t->rank), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_gather(g, NULL, y, 1, ZRO_F32, 0), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_gather_v(g, x, y, NULL, ZRO_F32, 0), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_all_gather(g, x, NULL, 1, ZRO_F32), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_all_gather(g, NULL, y, 1, ZRO_F32), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_all_gather(g, x, y, huge, ZRO_F64), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_all_gather_v(g, x, y, NULL, ZRO_F32), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_all_gather_v(g, x, y, too_many, ZRO_F32), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_submit(g, NULL, NULL, &work), ZRO_ERR_INVALID);
    CHECK(work == NULL);
    CHECK_STATUS(zro_group_create_sub(g, twice, 2, &made), ZRO_ERR_INVALID);
    CHECK(made == NULL);
    CHECK_STATUS(zro_group_create_sub(g, beyond, 1, &made), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_group_create_sub(g, negative, 1, &made), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_group_create_sub(g, twice, 0, &made), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_group_create_sub(g, NULL, 1, &made), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_group_create_members(g, twice, 2, &made), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_group_create_members(g, beyond, 1, &made), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_memory_alloc(g, (zro_memory_kind)2, 64, &memory), ZRO_ERR_INVALID);
    CHECK(memory == NULL);
    CHECK_STATUS(zro_group_duplicate(g, NULL), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_memory_alloc(g, ZRO_MEMORY_EACH, 64, NULL), ZRO_ERR_INVALID);
    CHECK_OK(zro_group_status(g));
    CHECK_OK(zro_all_reduce(g, NULL, 0, ZRO_F32, ZRO_SUM)); /* nothing needs no place */
    CHECK_OK(zro_all_reduce(g, x, 8, ZRO_F32, ZRO_SUM));
    CHECK_OK(zro_barrier(g));
}

/* One rank alone passes something wrong: it is refused there, and the call with the right arguments works for all. */
static void wrong_on_one_rank(zt_rank *t)
{
    float x = 1;

    if (t->rank == t->size - 1)
        CHECK_STATUS(zro_all_reduce(t->group, &x, 1, ZRO_F32, (zro_op)17), ZRO_ERR_INVALID);
    CHECK_OK(zro_all_reduce(t->group, &x, 1, ZRO_F32, ZRO_SUM));
    CHECK(x == (float)t->size);
}

/* A member that is not in the list, or somebody outside it. */
static void not_a_member(zt_rank *t)
{
    int zero = 0;
    zro_group *sub;

    if (t->rank == 0)
        CHECK_OK(zro_group_create_members(t->group, &zero, 1, &sub));
    else
        CHECK_STATUS(zro_group_create_members(t->group, &zero, 1, &sub), ZRO_ERR_INVALID);
    CHECK((sub != NULL) == (t->rank == 0));
    zro_group_destroy(sub);
    CHECK_OK(zro_barrier(t->group));
}

static void too_much_memory(zt_rank *t)
{
    zro_stats before = ZRO_STATS_INIT, after = ZRO_STATS_INIT;
    zro_memory *memory = (zro_memory *)1;

    CHECK_OK(zro_group_stats(t->group, &before));
    for (int kind = ZRO_MEMORY_EACH; kind <= ZRO_MEMORY_ONCE; kind++)
        for (int shift = 44; shift < 64; shift += 3) {
            /* One rank looks for all. */
            zro_status st = zro_memory_alloc(t->group, (zro_memory_kind)kind, (size_t)1 << shift, &memory);

            CHECK(st == ZRO_ERR_MEMORY || (st == ZRO_ERR_PEER && strstr(zro_last_error(), "MEMORY") != NULL));
            CHECK(memory == NULL);
        }
    CHECK_STATUS(zro_memory_alloc(t->group, ZRO_MEMORY_EACH, SIZE_MAX, &memory), ZRO_ERR_MEMORY);
    CHECK_OK(zro_group_stats(t->group, &after));
    CHECK(after.shared_bytes == before.shared_bytes && after.heap_bytes == before.heap_bytes);
    CHECK_OK(zro_memory_alloc(t->group, ZRO_MEMORY_EACH, 4096, &memory));
    CHECK_OK(zro_barrier(t->group));
    zro_memory_free(memory);
}

static void memory_kinds(zt_rank *t)
{
    unsigned char *mine, *peer;
    zro_memory *each, *once, *none;
    const size_t bytes = 100001;
    zro_stats stats = ZRO_STATS_INIT;
    uint64_t share, all = 0;

    CHECK_OK(zro_memory_alloc(t->group, ZRO_MEMORY_ONCE, bytes, &once));
    CHECK_OK(zro_group_stats(t->group, &stats));
    share = stats.shared_bytes; /* what exists once is shared out */
    CHECK_OK(zro_memory_alloc(t->group, ZRO_MEMORY_EACH, bytes, &each));
    CHECK_OK(zro_group_stats(t->group, &stats));
    CHECK(stats.shared_bytes == share + bytes);
    CHECK_OK(zro_all_reduce_into(t->group, &share, &all, 1, ZRO_I64, ZRO_SUM));
    CHECK(all == bytes);
    CHECK_OK(zro_memory_alloc(t->group, ZRO_MEMORY_EACH, 0, &none));
    mine = zro_memory_data(each);
    CHECK((uintptr_t)mine % 64 == 0 && (uintptr_t)zro_memory_data(once) % 64 == 0);
    for (size_t i = 0; i < bytes; i++)
        CHECK(mine[i] == 0 && ((unsigned char *)zro_memory_data(once))[i] == 0);
    CHECK_OK(zro_barrier(t->group));
    memset(mine, t->rank + 1, bytes);
    if (t->rank == t->size - 1)
        memset(zro_memory_data(once), 77, bytes);
    CHECK_OK(zro_barrier(t->group));
    for (int r = 0; r < t->size; r++) {
        peer = zro_memory_peer(each, r);
        CHECK(peer != NULL && peer[0] == r + 1 && peer[bytes - 1] == r + 1);
        peer = zro_memory_peer(once, r);
        CHECK(peer != NULL && peer[0] == 77 && peer[bytes - 1] == 77);
    }
    CHECK(zro_memory_peer(each, -1) == NULL && zro_memory_peer(each, t->size) == NULL);
    CHECK_OK(zro_barrier(t->group));
    zro_memory_free(each);
    zro_memory_free(none);
    zro_memory_free(once);
}

/* Ranks of other machines cannot be reached. */
static void memory_of_machines(zt_rank *t)
{
    zro_group_config config = zt_config();
    zro_group *group;
    zro_memory *each, *once;

    config.machine = t->rank % 2;
    group = zt_group_with(t, &config);
    CHECK_OK(zro_memory_alloc(group, ZRO_MEMORY_EACH, 64, &each));
    CHECK_OK(zro_memory_alloc(group, ZRO_MEMORY_ONCE, 64, &once));
    for (int r = 0; r < t->size; r++) {
        CHECK((zro_memory_peer(each, r) != NULL) == (r % 2 == t->rank % 2));
        CHECK((zro_memory_peer(once, r) != NULL) == (r % 2 == t->rank % 2));
    }
    if (t->rank < 2)
        memset(zro_memory_data(once), 10 + t->rank, 64);
    CHECK_OK(zro_barrier(group));
    CHECK(*(unsigned char *)zro_memory_data(once) == 10 + t->rank % 2);
    CHECK_OK(zro_barrier(group));
    zro_memory_free(each);
    zro_memory_free(once);
    zro_group_destroy(group);
}

/* Memory comes back when all have freed it, and is zero again when it is handed out the next time. */
static void memory_again_and_again(zt_rank *t)
{
    const size_t bytes = (size_t)2 << 20;
    zt_held before;
    zro_memory *memory;
    char *data;

    CHECK_OK(zro_barrier(t->group));
    before = zt_held_now();
    for (int i = 0; i < 100; i++) {
        CHECK_OK(zro_memory_alloc(t->group, i % 2 == 0 ? ZRO_MEMORY_EACH : ZRO_MEMORY_ONCE, bytes, &memory));
        data = zro_memory_data(memory);
        CHECK(data[0] == 0 && data[bytes / 2] == 0 && data[bytes - 1] == 0);
        CHECK_OK(zro_barrier(t->group));
        if (i % 2 == 0 || t->rank == 0)
            data[0] = data[bytes / 2] = data[bytes - 1] = 1;
        zro_memory_free(memory);
    }
    if (!t->threads)
        CHECK_HELD(before);
    zt_meet(t); /* nobody has left the link yet */
}

static void stats_grow(zt_rank *t)
{
    zro_stats s[4] = { ZRO_STATS_INIT, ZRO_STATS_INIT, ZRO_STATS_INIT, ZRO_STATS_INIT }, small;
    static float own[50000];
    zro_memory *memory;
    zro_group *copy;

    CHECK_OK(zro_memory_alloc(t->group, ZRO_MEMORY_EACH, sizeof own, &memory));
    CHECK_OK(zro_group_stats(t->group, &s[0]));
    for (int i = 0; i < 5; i++)
        CHECK_OK(zro_all_reduce(t->group, zro_memory_data(memory), 50000, ZRO_F32, ZRO_SUM));
    CHECK_OK(zro_group_stats(t->group, &s[1]));
    for (int i = 0; i < 5; i++)
        CHECK_OK(zro_all_reduce(t->group, own, 50000, ZRO_F32, ZRO_SUM));
    CHECK_OK(zro_group_stats(t->group, &s[2]));
    CHECK(s[1].operations == s[0].operations + 5 && s[2].operations == s[1].operations + 5);
    if (t->size > 1 && zt_opt.fast == ZRO_ON) {
        CHECK(s[1].direct_bytes > s[0].direct_bytes && s[1].link_bytes == s[0].link_bytes);
        CHECK(s[2].link_bytes > s[1].link_bytes && s[2].link_messages > s[1].link_messages);
    }
    if (t->size > 1 && zt_opt.fast == ZRO_OFF)
        CHECK(s[1].link_bytes > s[0].link_bytes && s[1].direct_bytes == s[0].direct_bytes);
    CHECK(s[0].shared_bytes >= sizeof own && s[0].control_bytes > 0 && s[0].heap_peak_bytes >= s[0].heap_bytes);
    CHECK_OK(zro_group_duplicate(t->group, &copy));
    zro_group_destroy(copy);
    zro_memory_free(memory);
    CHECK_OK(zro_group_stats(t->group, &s[3]));
    CHECK(s[3].heap_bytes <= s[0].heap_bytes && s[3].shared_bytes + sizeof own <= s[0].shared_bytes);
    CHECK(s[3].waits >= s[0].waits && s[3].sleeps <= s[3].waits);
    /* A program built against an older header has a shorter struct. */
    memset(&small, 0xee, sizeof small);
    small.struct_size = offsetof(zro_stats, link_bytes);
    CHECK_OK(zro_group_stats(t->group, &small));
    CHECK(small.operations >= s[3].operations && small.link_bytes == UINT64_C(0xeeeeeeeeeeeeeeee));
}

static zro_status wait_for_itself(void *user)
{
    zro_work *const *work = user;
    zro_status st = zro_work_wait(*work);

    return st == ZRO_ERR_STATE ? ZRO_OK : ZRO_ERR_FORMAT;
}

static zro_status fail_with_text(void *user)
{
    float x;

    return zro_all_reduce(user, &x, 1, ZRO_F32, (zro_op)99);
}

typedef struct numbered {
    zro_group *group;
    int *next, expected;
} numbered;

static zro_status in_order(void *user)
{
    numbered *n = user;
    int x = 1;
    zro_status st = zro_all_reduce(n->group, &x, 1, ZRO_I32, ZRO_SUM);

    if (st == ZRO_OK && ((*n->next)++ != n->expected || x != zro_group_size(n->group)))
        return ZRO_ERR_FORMAT;
    return st;
}

/* Work runs in the order of issue; a call comes after all of it; a failure arrives with its text. */
static void submitted_order(zt_rank *t)
{
    numbered n[50];
    zro_work *work[50], *late;
    int next = 0, done = 0;

    for (int i = 0; i < 50; i++) {
        n[i] = (numbered){ t->group, &next, i };
        CHECK_OK(zro_submit(t->group, in_order, &n[i], &work[i]));
    }
    CHECK_OK(zro_barrier(t->group));
    CHECK(next == 50);
    for (int i = 49; i >= 0; i--) {
        CHECK_STATUS(zro_work_test(work[i], NULL), ZRO_ERR_INVALID);
        CHECK_OK(zro_work_test(work[i], &done));
        CHECK(done);
        CHECK_OK(zro_work_wait(work[i]));
        CHECK_OK(zro_work_wait(work[i])); /* as often as one likes */
        zro_work_destroy(work[i]);
    }
    CHECK_OK(zro_submit(t->group, fail_with_text, t->group, &late));
    CHECK_STATUS(zro_work_wait(late), ZRO_ERR_INVALID);
    CHECK(strlen(zro_last_error()) > 0);
    zro_work_destroy(late);
    CHECK_OK(zro_barrier(t->group));
}

static zro_status after_flag(void *user)
{
    zt_rank *t = user;

    zt_await(t, &t->shared->flag[t->rank], 1);
    return ZRO_OK;
}

/* The caller goes on while its work runs; inside, waiting for something later is STATE. */
static void submitted_overlaps(zt_rank *t)
{
    zro_work *first, *second;
    int done = 1;

    CHECK_OK(zro_submit(t->group, after_flag, t, &first));
    CHECK_OK(zro_submit(t->group, wait_for_itself, &second, &second));
    CHECK_OK(zro_work_test(first, &done));
    CHECK(!done);
    atomic_store(&t->shared->flag[t->rank], 1);
    CHECK_OK(zro_work_wait(second));
    CHECK_OK(zro_work_wait(first));
    zro_work_destroy(first);
    zro_work_destroy(second);
    /* A destroyed handle does not end its work. */
    atomic_store(&t->shared->flag[t->rank], 0);
    CHECK_OK(zro_submit(t->group, after_flag, t, &first));
    zro_work_destroy(first);
    atomic_store(&t->shared->flag[t->rank], 1);
    CHECK_OK(zro_barrier(t->group));
}

/* Sub-groups in any order, side by side; labels are those of the first group. */
static void sub_groups(zt_rank *t)
{
    int members[ZT_MAX_RANKS], n = 0, mine = -1;
    zro_group *sub, *inner, *alone;

    for (int r = t->size - 1; r >= 0; r -= 2)
        members[n++] = r;
    for (int i = 0; i < n; i++)
        if (members[i] == t->rank)
            mine = i;
    CHECK_OK(zro_group_create_sub(t->group, members, n, &sub));
    CHECK((sub != NULL) == (mine >= 0));
    CHECK_OK(zro_group_create_members(t->group, &t->rank, 1, &alone));
    CHECK(zro_group_size(alone) == 1 && zro_group_label(alone, 0) == t->rank);
    CHECK(zro_group_label(alone, 1) == -1 && zro_group_label(alone, -1) == -1);
    if (sub != NULL) {
        uint64_t state = t->seed;
        int last = n - 1;

        CHECK(zro_group_rank(sub) == mine && zro_group_size(sub) == n);
        for (int i = 0; i < n; i++)
            CHECK(zro_group_label(sub, i) == members[i]);
        for (int j = 0; j < 12; j++) {
            zt_job job = { .group = sub };

            zt_job_random(&job, &state, &t->random, 700);
            zt_job_cells(&job, t);
            zt_job_run(&job, j % 2);
        }
        CHECK_OK(zro_group_create_sub(sub, &last, 1, &inner));
        CHECK((inner != NULL) == (mine == last));
        if (inner != NULL)
            CHECK(zro_group_label(inner, 0) == t->rank);
        zro_group_destroy(inner);
    }
    zro_group_destroy(alone);
    zro_group_destroy(sub);
}

/* All hear that one rank wants to stop, whichever it is; nobody hears it when nobody does. */
static void stop_requested(zt_rank *t)
{
    int any = 7;

    for (int who = -1; who < t->size; who++) {
        CHECK_OK(zro_group_stop_requested(t->group, t->rank == who, &any));
        CHECK(any == (who >= 0));
    }
    CHECK_OK(zro_group_stop_requested(t->group, -5, &any)); /* any number but 0 */
    CHECK(any);
    CHECK_OK(zro_group_stop_requested(t->group, 256, &any));
    CHECK(any == 1);
    CHECK_STATUS(zro_group_stop_requested(t->group, 1, NULL), ZRO_ERR_INVALID);
    CHECK_OK(zro_barrier(t->group));
}

/* A rank that has come back from a call owes the others nothing: they come back, too, while it stays away from zro. */
static void owes_nothing(zt_rank *t)
{
    static const size_t counts[] = { 30, 1500, 300000 }; /* within a header's message, filling it, and many messages */

    for (int call = 0; call < ZT_CALLS; call++)
        for (int i = 0; i < 3; i++) {
            uint64_t state = zt_mix(t->seed, (uint64_t)(call * 3 + i));
            zt_job job = { .group = t->group };

            zt_job_random(&job, &state, &t->random, counts[i]);
            zt_job_cells(&job, t);
            job.call = (zt_call)call;
            job.dtype = ZRO_F32;
            job.op = ZRO_SUM;
            job.count = counts[i];
            zt_job_prepare(&job);
            CHECK_OK(zt_job_call(&job));
            zt_meet(t);
            zt_job_check(&job);
            zt_job_free(&job);
        }
}

/* Bytes whose number only the root knows, none and many. */
static void bytes_of_any_number(zt_rank *t)
{
    static const size_t lengths[] = { 0, 1, 7, 4096, 1000003 };

    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        int root = (int)i % t->size;
        unsigned char *in = t->rank == root ? malloc(lengths[i] + 1) : NULL;
        size_t bytes = 99;
        void *out;

        for (size_t b = 0; in != NULL && b < lengths[i]; b++)
            in[b] = (unsigned char)(b * 7 + i);
        CHECK_OK(zro_broadcast_bytes(t->group, in, in != NULL ? lengths[i] : 12345, root, &out, &bytes));
        CHECK(bytes == lengths[i] && (out != NULL || bytes == 0));
        for (size_t b = 0; b < bytes; b++)
            CHECK(((unsigned char *)out)[b] == (unsigned char)(b * 7 + i));
        zro_bytes_free(out);
        free(in);
    }
}

#define WORLDS (ZT_WORLD(1) | ZT_WORLD(2) | ZT_WORLD(3))

const zt_case cases_group_calls[] = {
    { "names", names, 0, ZT_LOCAL, 0, 0, 0, 0 },
    { "abi", abi, 0, ZT_LOCAL, 0, 0, 0, 0 },
    { "null_handles", null_handles, 0, ZT_LOCAL, 0, 0, 0, 0 },
    { "environment", environment, 0, ZT_LOCAL, 0, 0, 0, 0 },
    { "environment_and_config", environment_and_config, 0, ZT_LOCAL, 0, 0, 0, 0 },
    { "environment_takes_effect", environment_takes_effect, 0, ZT_LOCAL, 0, 0, 0, 0 },
    { "configs", configs, 0, ZT_LOCAL, 0, 0, 0, 0 },
    { "tickets", tickets, 0, ZT_LOCAL, 0, 60, 0, 0 },
    { "ticket_dropped", ticket_dropped, 0, ZT_LOCAL, 0, 60, 0, 0 },
    { "ticket_refused", ticket_refused, 0, ZT_LOCAL, 0, 0, 0, 0 },
    { "link_is_closed", link_is_closed, 0, ZT_LOCAL, 0, 0, 0, 0 },
    { "ticket_twice", ticket_twice, 0, ZT_LOCAL, 0, 60, 0, 0 },
    { "group_of_one", group_of_one, 0, ZT_LOCAL, 0, 0, 0, 0 },
    { "spawn_results", spawn_results, 0, ZT_LOCAL, 0, 0, 0, 0 },
    { "buffered_output", buffered_output, 0, ZT_LOCAL, 0, 0, 0, 0 },
    { "spawn_with_threads", spawn_with_threads, 0, ZT_THREADS, 0, 0, 0, 0 },
    { "spawn_left_behind", left_behind, 0, ZT_THREADS, 0, 0, 0, 0 },
    { "arguments", arguments, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "wrong_on_one_rank", wrong_on_one_rank, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "not_a_member", not_a_member, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "too_much_memory", too_much_memory, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "memory_kinds", memory_kinds, WORLDS, ZT_BOTH | ZT_MPI, 0, 0, 0, 0 },
    { "memory_of_machines", memory_of_machines, WORLDS | ZT_WORLD(4), ZT_ALL, 0, 0, 0, 0 },
    { "memory_again", memory_again_and_again, ZT_WORLD(2), ZT_ALL, 0, 0, 0, 0 },
    { "stats", stats_grow, WORLDS, ZT_LOCAL, 0, 0, 0, 0 },
    { "submitted_order", submitted_order, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "submitted_overlaps", submitted_overlaps, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "sub_groups", sub_groups, WORLDS | ZT_WORLD(7), ZT_ALL, 0, 0, 0, 0 },
    { "sub_groups_machines", sub_groups, ZT_WORLD(3) | ZT_WORLD(7), ZT_THREADS | ZT_MPI, ZT_OWN_MACHINES, 0, 0, 0 },
    { "stop_requested", stop_requested, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "stop_requested_machines", stop_requested, WORLDS, ZT_THREADS | ZT_MPI, ZT_OWN_MACHINES, 0, 0, 0 },
    { "owes_nothing", owes_nothing, WORLDS, ZT_ALL, 0, 0, 10000, 0 },
    { "owes_nothing_machines", owes_nothing, WORLDS, ZT_THREADS | ZT_MPI, ZT_OWN_MACHINES, 0, 10000, 0 },
    { "bytes_machines", bytes_of_any_number, WORLDS, ZT_THREADS | ZT_MPI, ZT_OWN_MACHINES, 0, 0, 0 },
    { "bytes_of_any_number", bytes_of_any_number, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
