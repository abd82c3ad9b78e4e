/* What sharding saves, measured: each rank has its part of the state and no more; parameters that exist once are the same
 * pages in all ranks; and an optimizer says who owns what. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "twin.h"
#include "zt/list.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { BLOCK = 1024 };

static const twin_spec specs[] = {
    { 5, ZRO_F32, ZRO_F32, 0 },    { 12000, ZRO_F32, ZRO_F32, 0 }, { 1, ZRO_F32, ZRO_F32, 0 },
    { 1024, ZRO_F32, ZRO_F32, 0 }, { 3000, ZRO_F32, ZRO_F32, 0 },  { 2500, ZRO_F32, ZRO_F32, 1 },
};

enum { N = COUNT(specs), BUCKETS = 2, ELEMENTS = 5 + 12000 + 1 + 1024 + 3000 + 2500 };

/* Adam in f32: two moments an element, and a count for each part of a parameter. */
static uint64_t least_bytes(const twin *w)
{
    return zro_plan_elements(zro_optim_plan(w->optim), w->t->rank) * 2 * sizeof(float);
}

/* Slots begin at borders of 64 bytes, and single numbers are there once for each parameter. */
static uint64_t most_bytes(const twin *w)
{
    return least_bytes(w) + (uint64_t)N * (3 * 64 + sizeof(double));
}

static void check_state(const twin *w)
{
    const uint64_t alone = (uint64_t)ELEMENTS * 2 * sizeof(float), share = alone / (uint64_t)w->t->size;
    const uint64_t bytes = twin_stats(w->optim).state_bytes;

    CHECK(bytes >= least_bytes(w) && bytes <= most_bytes(w));
    CHECK(twin_info(w->optim).state_bytes >= bytes && twin_info(w->optim).state_bytes <= most_bytes(w));
    if (w->mode.partition != ZRO_PARTITION_FLAT)
        return;
    CHECK(bytes <= share + (uint64_t)BUCKETS * BLOCK * 2 * sizeof(float) + most_bytes(w) - least_bytes(w));
    CHECK(bytes + (uint64_t)BUCKETS * BLOCK * 2 * sizeof(float) >= share);
}

static void state_is_divided(zt_rank *t)
{
    for (int k = -1; (k = twin_next_mode(t, k)) < TWIN_MODES;) {
        zro_stats before = ZRO_STATS_INIT, after = ZRO_STATS_INIT;
        twin w;

        twin_init(&w, t, twin_mode_at(k), specs, N);
        CHECK_OK(zro_group_stats(t->group, &before));
        CHECK(before.state_bytes == 0);
        twin_create(&w, zro_rule_adam(), NULL, NULL, 0);
        check_state(&w);
        twin_train(&w, 2);
        check_state(&w);
        zro_optim_destroy(w.optim);
        w.optim = NULL;
        CHECK_OK(zro_group_stats(t->group, &after));
        CHECK(after.state_bytes == 0 && after.heap_bytes == before.heap_bytes && after.shared_bytes == before.shared_bytes);
        CHECK_OK(zro_barrier(t->group));
        twin_free(&w);
    }
}

/* A step takes no memory. */
static void steps_take_nothing(zt_rank *t)
{
    for (int place = 0; place < TWIN_PLACES; place++) {
        twin_mode mode = { (twin_place)place, ZRO_PARTITION_FLAT, ZRO_OFF };
        zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
        zro_stats before, after;
        twin w;

        config.clip_norm = 1;
        config.loss_scale = ZRO_ON;
        twin_init(&w, t, mode, specs, N);
        twin_create(&w, zro_rule_adam(), NULL, &config, 0);
        before = twin_stats(w.optim);
        twin_train(&w, 3);
        after = twin_stats(w.optim);
        CHECK(after.heap_bytes == before.heap_bytes && after.shared_bytes == before.shared_bytes);
        CHECK(after.heap_peak_bytes == before.heap_peak_bytes);
        twin_free(&w);
    }
}

/* ---- pages ---- */

typedef struct pages {
    uint64_t size_kib, rss_kib, pss_kib;
} pages;

/* What the system says of the mapping that has this address. */
static pages pages_at(const void *address)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    uintptr_t low, high;
    int inside = 0;
    char line[512];
    pages p = { 0 };

    CHECK(file != NULL);
    while (fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &low, &high) == 2)
            inside = (uintptr_t)address >= low && (uintptr_t)address < high;
        if (!inside)
            continue;
        (void)sscanf(line, "Size: %" SCNu64, &p.size_kib);
        (void)sscanf(line, "Rss: %" SCNu64, &p.rss_kib);
        (void)sscanf(line, "Pss: %" SCNu64, &p.pss_kib);
    }
    fclose(file);
    return p;
}

/* 4 MiB of parameters: in each rank's table, and 1/N of each page is this rank's; or each has its own. */
static void pages_exist_once(zt_rank *t)
{
    static const twin_spec large[] = { { 1000000, ZRO_F32, ZRO_F32, 0 }, { 48576, ZRO_F32, ZRO_F32, 0 } };
    const uint64_t kib = 1048576 * sizeof(float) / 1024;
    twin_mode mode = { (twin_place)t->arg, ZRO_PARTITION_FLAT, ZRO_OFF };
    uint64_t sharers = t->arg == TWIN_ONCE ? (uint64_t)t->size : 1;
    zro_stats before = ZRO_STATS_INIT, after = ZRO_STATS_INIT;
    int64_t all, taken;
    pages p;
    twin w;

    if (zt_opt.max_count < large[0].count)
        zt_skip(t, "4 MiB of parameters are more than --max-count allows");
    CHECK_OK(zro_group_stats(t->group, &before));
    twin_init(&w, t, mode, large, COUNT(large));
    CHECK_OK(zro_group_stats(t->group, &after));
    for (size_t i = 0; i < COUNT(large); i++)
        for (size_t e = 0; e < large[i].count; e += 256)
            (void)((volatile float *)w.sharded[i].data)[e]; /* so that the page is in this rank's table */
    CHECK_OK(zro_barrier(t->group));
    p = pages_at(w.sharded[0].data);
    CHECK_OK(zro_barrier(t->group));
    all = taken = (int64_t)(after.shared_bytes - before.shared_bytes);
    CHECK_OK(zro_all_reduce(t->group, &all, 1, ZRO_I64, ZRO_SUM));
    CHECK(taken < (int64_t)(kib * 1024 / sharers + (1 << 20)));
    CHECK(all >= (int64_t)(kib * 1024 * (uint64_t)t->size / sharers));
    CHECK(p.rss_kib >= kib);
    /* The mapping may have more than the parameters, but its pages are shared alike. */
    if (t->arg == TWIN_ONCE)
        CHECK(p.pss_kib <= p.rss_kib / (uint64_t)t->size + p.rss_kib / 16);
    if (t->rank == 0)
        zt_note(t, "%" PRIu64 " KiB mapped and present, %" PRIu64 " KiB this rank's share", p.rss_kib, p.pss_kib);
    twin_free(&w);
}

/* ---- telling ---- */

typedef struct lines {
    char text[16384];
    size_t at;
    int n;
} lines;

static void note_line(void *user, zro_log_level level, const char *text)
{
    lines *l = user;

    if (level != ZRO_LOG_INFO || l->at + strlen(text) + 2 > sizeof l->text)
        return;
    l->at += (size_t)sprintf(l->text + l->at, "%s\n", text);
    l->n++;
}

/* Rank 0 has the table of owners, the others their own line. */
static void owners_are_told(zt_rank *t)
{
    zro_group_config config = zt_config();
    lines *l = calloc(1, sizeof *l);
    char part[64], text[4096];
    zt_rank u = *t;
    size_t n = 0;
    twin w;

    CHECK(l != NULL);
    config.settings.log = note_line;
    config.settings.log_user = l;
    config.settings.log_level = ZRO_LOG_INFO;
    u.group = zt_group_with(t, &config);
    twin_init(&w, &u, twin_mode_at(0), specs, N);
    l->n = 0;
    l->at = 0;
    twin_create(&w, zro_rule_adam(), NULL, NULL, 0);
    for (int r = 0; r < t->size; r++) {
        size_t elements = zro_plan_elements(zro_optim_plan(w.optim), r);

        snprintf(part, sizeof part, "rank %d owns %zu elements", r, elements);
        CHECK((strstr(l->text, part) != NULL) == (t->rank == 0));
        n = zro_optim_describe(w.optim, text, sizeof text);
        CHECK(n < sizeof text && n == strlen(text) && strstr(text, part) != NULL);
    }
    snprintf(part, sizeof part, "rank %d: %zu of %d elements", t->rank, zro_plan_elements(zro_optim_plan(w.optim), t->rank),
             ELEMENTS);
    CHECK(strstr(l->text, part) != NULL);
    CHECK(strstr(text, "partition flat") != NULL && strstr(text, "adam") != NULL);
    CHECK(zro_optim_describe(w.optim, NULL, 0) == n && zro_optim_describe(w.optim, part, 8) == n && strlen(part) == 7);
    twin_free(&w);
    zro_group_destroy(u.group);
    free(l);
}

#define WORLDS (ZT_WORLD(1) | ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4) | ZT_WORLD(7))
#define SEVERAL (ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4))

const zt_case cases_zero_memory[] = {
    { "zero_state_is_divided", state_is_divided, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { "zero_steps_take_nothing", steps_take_nothing, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { "zero_pages_exist_once", pages_exist_once, SEVERAL, ZT_LOCAL, 0, 60, 0, TWIN_ONCE },
    { "zero_pages_each", pages_exist_once, ZT_WORLD(3), ZT_LOCAL, 0, 60, 0, TWIN_EACH },
    { "zero_owners_are_told", owners_are_told, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
