/* A sharded optimizer when something goes wrong.
 *
 * A rank dies at each ZRO__POINT that it passes in a step: the survivors are told LOST; if parameters may be torn between
 * two steps, everything that would go on with them says so from then on, and otherwise they are all as before or all as
 * after the step.  An allocation fails on one rank: an error on all, nothing left and nothing changed.  Arrays that are not
 * where they should be; forked children; handles that end in any order; parameters frozen in between. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/point.h"
#include "twin.h"
#include "zt/list.h"

static const twin_spec specs[] = {
    { 5, ZRO_F32, ZRO_F32, 0 },    { 3000, ZRO_F32, ZRO_F32, 0 }, { 2050, ZRO_BF16, ZRO_F32, 0 },
    { 1024, ZRO_F32, ZRO_F32, 0 }, { 70, ZRO_F32, ZRO_F32, 0 },   { 1, ZRO_F64, ZRO_F64, 0 },
};

enum { N = sizeof specs / sizeof *specs, FIRST = 4, ROOM = 4096 };

static uint64_t hash_of(const twin *w)
{
    uint64_t hash;

    CHECK_OK(zro_params_hash(w->sharded, w->n_used, &hash));
    return hash;
}

/* ---- death in a step ---- */

enum { VICTIM = 1, RANKS = 3, HASHES = 128, TORN = 1, WHOLE = 2 };

typedef struct run {
    twin_place place;
    const char *point; /* NULL: list the points */
    long nth;
} run;

static void die_now(void *user)
{
    (void)user;
    raise(SIGKILL);
}

static void victim(zt_rank *t, const run *r, twin *w)
{
    zro__point_plan plan = { .action = ZRO__POINT_LIST, .seen = zt_note_point, .user = t->shared };

    if (r->point != NULL) {
        plan.name = r->point;
        plan.action = ZRO__POINT_KILL;
        plan.nth = r->nth;
        plan.kill_rank = die_now;
        zt_expect_lost(t, t->rank);
    }
    zro__point_plan_set(&plan);
    CHECK_OK(zro_optim_step(w->optim, NULL));
    if (r->point != NULL)
        die_now(t); /* some points depend on time */
    zro__point_plan_set(NULL);
}

/* Everything that would go on says the same. */
static int check_refused(const zt_rank *t, twin *w)
{
    zro_status st = zro_optim_step(w->optim, NULL);
    zro_state *state;

    CHECK(st == ZRO_ERR_LOST || st == ZRO_ERR_STATE);
    if (st == ZRO_ERR_STATE) /* what a far rank has published cannot be seen */
        CHECK_TEXT(t->machines == ZT_ONE ? "torn: rank 1 has published" : "torn");
    CHECK_TEXT("rank 1");
    CHECK_STATUS(zro_optim_publish(w->optim), st);
    CHECK_TEXT(st == ZRO_ERR_STATE ? "torn" : "rank 1");
    CHECK_STATUS(zro_optim_consolidate(w->optim, 0, &state), st);
    CHECK_TEXT(st == ZRO_ERR_STATE ? "torn" : "rank 1");
    CHECK(state == NULL);
    return st == ZRO_ERR_STATE ? TORN : WHOLE;
}

/* What it had before, what it should have after, what it has, and what it was told, for the supervisor. */
static void survivor(zt_rank *t, const run *r, twin *w)
{
    atomic_ullong *mine = &t->shared->number[HASHES + 4 * t->rank];
    uint64_t after;
    zro_status st;

    atomic_store(&mine[0], hash_of(w));
    CHECK_OK(zro_optim_step(w->reference, NULL));
    CHECK_OK(zro_params_hash(w->alone, w->n_used, &after));
    atomic_store(&mine[1], after);
    st = zro_optim_step(w->optim, NULL);
    if (r->point == NULL) {
        CHECK_OK(st);
        return;
    }
    if (st != ZRO_OK)
        CHECK_STATUS(st, ZRO_ERR_LOST);
    else /* it could end without the victim; the next cannot, and the other survivor may have found out before */
        CHECK(zro_optim_step(w->optim, NULL) != ZRO_OK);
    atomic_store(&mine[3], (unsigned)check_refused(t, w));
    atomic_store(&mine[2], hash_of(w));
}

static void one_run(zt_rank *t)
{
    const run *r = t->user;
    twin_mode mode = { r->place, ZRO_PARTITION_FLAT, ZRO_OFF };
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    twin w;

    config.clip_norm = 1;
    config.skip_non_finite = ZRO_ON;
    twin_init(&w, t, mode, specs, N);
    twin_create(&w, zro_rule_adam(), NULL, &config, 0);
    twin_train(&w, 1);
    twin_gradients(&w, 1);
    CHECK_OK(zro_barrier(t->group));
    if (t->rank == VICTIM)
        victim(t, r, &w);
    else
        survivor(t, r, &w);
    twin_free(&w);
}

/* Whether a death there must tear the parameters: between its own first write and the end of its delivery. */
static int is_torn_at(const char *point, int *known)
{
    *known = strcmp(point, "cycle.measured") == 0 || strcmp(point, "cycle.begun") == 0 || strcmp(point, "cycle.updated") == 0
             || strcmp(point, "deliver.batch") == 0;
    return strcmp(point, "cycle.measured") != 0;
}

/* Who shares no memory knows only what it has itself: one survivor may have everything while another has not. */
static void check_survivors(zt_rank *t, const run *r, int backend, int *n_torn)
{
    int known, torn = is_torn_at(r->point, &known);
    unsigned long long now[RANKS], told[RANKS];

    for (int i = 0; i < RANKS; i += 2) {
        atomic_ullong *a = &t->shared->number[HASHES + 4 * i];

        now[i] = atomic_load(&a[2]);
        told[i] = atomic_load(&a[3]);
        CHECK(told[i] == TORN || told[i] == WHOLE);
        if (known && (backend == ZT_LOCAL || !torn))
            CHECK((told[i] == TORN) == torn);
        if (told[i] == WHOLE)
            CHECK(now[i] == atomic_load(&a[0]) || now[i] == atomic_load(&a[1]));
    }
    if (known && torn)
        CHECK(told[0] == TORN || told[2] == TORN);
    CHECK(told[0] == told[2] || backend == ZT_FOREIGN);
    if (told[0] == WHOLE && told[2] == WHOLE)
        CHECK(now[0] == now[2]);
    *n_torn += told[0] == TORN || told[2] == TORN;
}

static void kill_in_step(zt_rank *t)
{
    zro_group_config config = zt_config();
    const int backend = t->arg >= 100 ? ZT_FOREIGN : ZT_LOCAL;
    run r = { (twin_place)(t->arg % 100), NULL, 0 };
    int runs = 0, points = 0, torn = 0;
    zt_held before;
    char name[64];

#ifndef ZRO__POINTS
    zt_skip(t, "the library was built without ZRO__POINTS");
#endif
    config.timeout_ms = 60000;
    before = zt_held_now();
    zt_ranks(t, backend, &config, RANKS, one_run, &r);
    for (int p = 0; p < ZT_MAX_POINTS && t->shared->text[p][0] != '\0'; p++) {
        long passings = (long)atomic_load(&t->shared->passings[p]);

        snprintf(name, sizeof name, "%s", t->shared->text[p]);
        r.point = name;
        for (r.nth = 1; r.nth <= passings; r.nth += passings < 3 ? 1 : passings / 2, runs++) {
            printf("killed at %s, passing %ld of %ld\n", name, r.nth, passings);
            zt_ranks(t, backend, &config, RANKS, one_run, &r);
            check_survivors(t, &r, backend, &torn);
        }
        points++;
    }
    CHECK_HELD(before);
    CHECK(torn > 0 && torn < runs);
    zt_note(t, "%d kills at %d points, %d of them tore the parameters", runs, points, torn);
}

/* Between steps nothing is torn. */
static void check_gone(const zt_rank *t, zro_status st)
{
    if (t->machines != ZT_OWN || st != ZRO_ERR_TIMEOUT)
        CHECK_STATUS(st, ZRO_ERR_LOST);
    CHECK(strstr(zro_last_error(), "torn") == NULL);
}

static void killed_between(zt_rank *t)
{
    zro_state *state;
    twin w;

    twin_init(&w, t, twin_mode_at((int)t->arg * TWIN_PARTITIONS), specs, N);
    twin_create(&w, zro_rule_adam(), NULL, NULL, 0);
    twin_train(&w, 2);
    CHECK_OK(zro_barrier(t->group));
    if (t->rank == VICTIM)
        zt_die(t);
    check_gone(t, zro_optim_step(w.optim, NULL));
    check_gone(t, zro_optim_publish(w.optim));
    check_gone(t, zro_optim_consolidate(w.optim, ZRO_ALL, &state));
    twin_check(&w);
    twin_free(&w);
}

/* ---- allocations ---- */

typedef enum making { CREATE, ADD, CONSOLIDATE, LOAD, CLIP } making;

static int any(zt_rank *t, int mine)
{
    int all[ZT_MAX_RANKS], result = 0;

    zt_exchange(t, &mine, sizeof mine, all);
    for (int r = 0; r < t->size; r++)
        result |= all[r];
    return result;
}

/* What fails, and what it made if it did not. */
static zro_status make(twin *w, making what, zro_state *state, zro_optim **opt, zro_state **made)
{
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT, c;
    zro_plan_config plan;
    zro_param_group group = twin_group_of(w, w->sharded, 0, FIRST), rest = twin_group_of(w, w->sharded, FIRST, N - FIRST);

    config.clip_norm = 1;
    c = twin_config(w, &config, &plan);
    switch (what) {
    case CREATE:
        return zro_optim_create(w->t->group, &group, 1, zro_rule_adam(), NULL, &c, opt);
    case ADD:
        return zro_optim_add_param_group(w->optim, &rest);
    case CONSOLIDATE:
        return zro_optim_consolidate(w->optim, ZRO_ALL, made);
    case LOAD:
        return zro_optim_load(w->optim, state);
    case CLIP:
        return zro_clip_grad_norm(w->optim, 1e9, 2, NULL);
    }
    return ZRO_ERR_STATE;
}

static void check_told(zt_rank *t, int odd, zro_status st)
{
    char rank[32];

    if (t->rank == odd) {
        CHECK(st == ZRO_ERR_MEMORY || st == ZRO_ERR_SYSTEM);
        return;
    }
    CHECK_STATUS(st, ZRO_ERR_PEER);
    snprintf(rank, sizeof rank, "rank %d", odd);
    CHECK_TEXT(rank);
}

typedef struct trial {
    making what;
    int odd;
    const char *point;
    int refused;
} trial;

/* The nth passing of a point fails on one rank; 1 if there was one.  Whatever was refused has changed nothing. */
static int fail_once(twin *w, trial *x, long nth, zro_state *state)
{
    zro__point_plan plan = { .name = x->point, .action = ZRO__POINT_FAIL, .nth = nth };
    zro_stats before = ZRO_STATS_INIT, after = ZRO_STATS_INIT;
    void *data = w->sharded[0].data, *last = w->sharded[N - 1].data;
    zro_optim *opt = NULL;
    zro_state *made = NULL;
    zt_rank *t = w->t;
    zro_status st;
    int failed;

    CHECK_OK(zro_group_stats(t->group, &before));
    if (t->rank == x->odd)
        zro__point_plan_set(&plan);
    st = make(w, x->what, state, &opt, &made);
    zro__point_plan_set(NULL);
    failed = any(t, t->rank == x->odd && atomic_load(&plan.hits) >= nth);
    if (any(t, st != ZRO_OK)) {
        CHECK(failed && opt == NULL && made == NULL);
        check_told(t, x->odd, st);
        x->refused++;
        CHECK_OK(zro_group_stats(t->group, &after));
        /* Adding may keep room for the next time. */
        CHECK(after.heap_bytes <= before.heap_bytes + (x->what == ADD ? ROOM : 0) && after.shared_bytes == before.shared_bytes);
        CHECK(w->sharded[0].data == data && w->sharded[N - 1].data == last);
        CHECK(w->optim == NULL || (zro_optim_params(w->optim) == w->n_used && zro_optim_groups(w->optim) == 1));
    }
    CHECK_OK(zro_barrier(t->group));
    zro_optim_destroy(opt);
    zro_state_destroy(made);
    CHECK_OK(zro_barrier(t->group));
    return failed;
}

static void set_up(twin *w, zt_rank *t, making what, twin_place place, zro_state **state)
{
    twin_mode mode = { place, ZRO_PARTITION_FLAT, ZRO_OFF };
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;

    twin_init(w, t, mode, specs, N);
    *state = NULL;
    config.clip_norm = what == CLIP ? 0 : 1;
    if (what == CREATE)
        return;
    twin_create(w, zro_rule_adam(), NULL, &config, FIRST);
    twin_train(w, 1);
    if (what == LOAD)
        CHECK_OK(zro_optim_consolidate(w->optim, ZRO_ALL, state));
    if (what == LOAD) /* to be seen: a step more */
        twin_train(w, 1);
}

static void failing(zt_rank *t)
{
    static const char *const points[] = { "memory.alloc", "memory.region", "memory.populate" };
    trial x = { .what = (making)(t->arg % 10) };
    zro_stats before = ZRO_STATS_INIT, after = ZRO_STATS_INIT;
    zro_state *state;
    int failures = 0;
    twin w;

#ifndef ZRO__POINTS
    zt_skip(t, "the library was built without ZRO__POINTS");
#endif
    for (x.odd = 0; x.odd < 2; x.odd++)
        for (size_t p = 0; p < sizeof points / sizeof *points; p++) {
            x.point = points[p];
            CHECK_OK(zro_group_stats(t->group, &before));
            set_up(&w, t, x.what, (twin_place)(t->arg / 10), &state);
            for (long n = 1;; n++) {
                CHECK(n < 500);
                if (!fail_once(&w, &x, n, state))
                    break;
                failures++;
                if (w.optim == NULL || zro_optim_groups(w.optim) > 1 || x.what == LOAD || x.what == CLIP)
                    continue; /* it may have done without, or cannot be told from what it would have done */
                twin_gradients(&w, 1);
                twin_step(&w);
            }
            zro_state_destroy(state);
            twin_free(&w);
            CHECK_OK(zro_group_stats(t->group, &after));
            CHECK(after.heap_bytes == before.heap_bytes && after.shared_bytes == before.shared_bytes);
        }
    CHECK(x.refused > 0);
    if (t->rank == 0)
        zt_note(t, "%d failures, %d refusals", failures, x.refused);
}

/* A load that is refused has changed nothing: the state is that of before, and the step after it is that of the twin. */
static void failing_load(zt_rank *t)
{
    trial x = { .what = LOAD, .odd = 1, .point = "memory.alloc" };
    zro_state *state;

#ifndef ZRO__POINTS
    zt_skip(t, "the library was built without ZRO__POINTS");
#endif
    for (long n = 1;; n++) {
        const int refused = x.refused;
        int failed;
        twin w;

        set_up(&w, t, LOAD, (twin_place)t->arg, &state);
        failed = fail_once(&w, &x, n, state);
        if (x.refused == refused)
            CHECK_OK(zro_optim_load(w.reference, state));
        twin_check_slots(&w);
        twin_train(&w, 1);
        zro_state_destroy(state);
        twin_free(&w);
        if (!failed)
            break;
        CHECK(n < 500);
    }
}

/* ---- arrays that are not where they should be ---- */

/* The owner of a parameter's first element, the only one whose gradient counts. */
static int owner_of(const twin *w, size_t param)
{
    int owner;

    CHECK_OK(zro_plan_owner(zro_optim_plan(w->optim), param, 0, &owner));
    return owner;
}

static void check_one_refused(twin *w, int odd, zro_status mine, const char *text)
{
    zro_status st = zro_optim_step(w->optim, NULL);
    char rank[32];

    CHECK_STATUS(st, w->t->rank == odd ? mine : ZRO_ERR_PEER);
    CHECK_TEXT("layer.weight");
    CHECK_TEXT(text);
    if (w->t->rank != odd) {
        snprintf(rank, sizeof rank, "rank %d", odd);
        CHECK_TEXT(rank);
    }
    CHECK_OK(zro_group_status(w->t->group));
}

static void misplaced(zt_rank *t)
{
    for (int k = -1; (k = twin_next_mode(t, k)) < TWIN_MODES;) {
        zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
        void *data, *grad;
        int odd;
        twin w;

        config.clip_norm = k % 2 == 0 ? 1 : 0;
        twin_init(&w, t, twin_mode_at(k), specs, N);
        w.sharded[3].name = "layer.weight";
        twin_create(&w, zro_rule_adam(), NULL, &config, 0);
        twin_train(&w, 1);
        twin_gradients(&w, 1);
        data = w.sharded[3].data;
        grad = w.sharded[3].grad;
        odd = (k + 1) % t->size;
        if (t->rank == odd)
            w.sharded[3].data = w.mode.place <= TWIN_GROUP ? NULL : w.alone[3].data;
        check_one_refused(&w, odd, w.mode.place <= TWIN_GROUP ? ZRO_ERR_INVALID : ZRO_ERR_STATE,
                          w.mode.place <= TWIN_GROUP ? "NULL" : "moved");
        w.sharded[3].data = data;
        odd = owner_of(&w, 3);
        if (t->rank == odd)
            w.sharded[3].grad = NULL;
        check_one_refused(&w, odd, ZRO_ERR_INVALID, "NULL");
        w.sharded[3].grad = grad;
        twin_check(&w);
        twin_step(&w); /* as if nothing had been */
        twin_check_slots(&w);
        twin_free(&w);
    }
}

/* ---- ends ---- */

static void child_uses(const twin *w)
{
    zro_state *state;
    int ok = zro_optim_step(w->optim, NULL) == ZRO_ERR_STATE;

    ok &= zro_optim_publish(w->optim) == ZRO_ERR_STATE;
    ok &= zro_optim_consolidate(w->optim, 0, &state) == ZRO_ERR_STATE;
    zro_optim_destroy(w->optim);
    zro_group_destroy(w->t->group);
    _exit(ok ? 0 : 1);
}

/* A child has no part in the group: what it does ends nobody. */
static void forked_child(zt_rank *t)
{
    for (int place = 0; place < TWIN_PLACES; place++) {
        twin_mode mode = { (twin_place)place, ZRO_PARTITION_FLAT, ZRO_OFF };
        int status = 1;
        pid_t child;
        twin w;

        twin_init(&w, t, mode, specs, N);
        twin_create(&w, zro_rule_adam(), NULL, NULL, 0);
        twin_train(&w, 1);
        child = fork();
        if (child == 0)
            child_uses(&w);
        CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
        twin_train(&w, 1);
        twin_free(&w);
    }
}

/* The optimizer has a group of its own, and memory lives as long as anybody uses it. */
static void end_in_order(zt_rank *t, twin_place place, int order)
{
    twin_mode mode = { place, ZRO_PARTITION_FLAT, ZRO_OFF };
    zt_rank u = *t;
    void *own[N];
    twin w;

    CHECK_OK(zro_group_duplicate(t->group, &u.group));
    twin_init(&w, &u, mode, specs, N);
    for (size_t i = 0; i < N; i++)
        own[i] = w.sharded[i].data;
    twin_create(&w, zro_rule_adam(), NULL, NULL, 0);
    twin_train(&w, 1);
    twin_gradients(&w, 1);
    if (order == 0) {
        zro_group_destroy(u.group);
        u.group = NULL;
        twin_step(&w);
    }
    if (order == 1 && (place == TWIN_ONCE || place == TWIN_EACH)) {
        zro_params_free(w.sharded, N);
        CHECK(w.sharded[1].data == NULL && w.sharded[1].memory == NULL);
        CHECK(zro_optim_step(w.optim, NULL) != ZRO_OK);
        CHECK_OK(zro_group_status(t->group));
    }
    zro_optim_destroy(w.optim);
    w.optim = NULL;
    if (order == 0 || place == TWIN_OWN || place == TWIN_VIEWS) {
        for (size_t i = 0; i < N; i++)
            CHECK(w.sharded[i].data == own[i]);
        twin_check(&w);
    }
    CHECK_OK(zro_barrier(t->group)); /* where data exists once, others still compare */
    twin_free(&w);
    zro_group_destroy(u.group);
}

static void any_order(zt_rank *t)
{
    zt_held before = zt_held_now();

    for (int place = 0; place < TWIN_PLACES; place++)
        for (int order = 0; order < 3; order++)
            end_in_order(t, (twin_place)place, order);
    CHECK_OK(zro_barrier(t->group));
    if (!t->threads)
        CHECK_HELD(before);
    zt_meet(t);
}

/* ---- freezing ---- */

typedef struct heard {
    int frozen, freed;
} heard;

static void hear(void *user, zro_log_level level, const char *text)
{
    heard *h = user;

    h->frozen += level == ZRO_LOG_WARN && strstr(text, "layer.weight was frozen") != NULL;
    h->freed += level == ZRO_LOG_WARN && strstr(text, "layer.weight is trained again") != NULL;
}

static void freeze(twin *w, uint32_t trains)
{
    w->sharded[1].requires_grad = w->alone[1].requires_grad = trains;
}

static void freeze_once(zt_rank *t, int k, heard *h)
{
    char *before = malloc(specs[1].count * sizeof(float));
    void *data;
    twin w;

    CHECK(before != NULL);
    *h = (heard){ 0, 0 };
    twin_init(&w, t, twin_mode_at(k), specs, N);
    w.sharded[1].name = "layer.weight";
    twin_create(&w, zro_rule_adam(), NULL, NULL, 0);
    twin_train(&w, 2);
    data = w.sharded[1].data;
    memcpy(before, data, specs[1].count * sizeof(float));
    freeze(&w, 0);
    twin_train(&w, 3);
    CHECK(h->frozen == 1 && h->freed == 0 && w.sharded[1].data == data);
    CHECK(memcmp(before, data, specs[1].count * sizeof(float)) == 0);
    freeze(&w, 1);
    twin_train(&w, 2);
    CHECK(h->frozen == 1 && h->freed == 1 && w.sharded[1].data == data);
    CHECK(memcmp(before, data, specs[1].count * sizeof(float)) != 0);
    freeze(&w, 0);
    twin_train(&w, 1);
    CHECK(h->frozen == 2 && h->freed == 1);
    twin_free(&w);
    free(before);
}

/* Said once for each change; value, address and state stay; equal to the same alone. */
static void freezing(zt_rank *t)
{
    zro_group_config config = zt_config();
    zt_rank u = *t;
    heard h;

    config.settings.log = hear;
    config.settings.log_user = &h;
    config.settings.log_level = ZRO_LOG_WARN;
    u.group = zt_group_with(t, &config);
    for (int k = -1; (k = twin_next_mode(t, k)) < TWIN_MODES;)
        freeze_once(&u, k, &h);
    zro_group_destroy(u.group);
}

#define WORLDS (ZT_WORLD(1) | ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4) | ZT_WORLD(7))
#define SEVERAL (ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4))
#define FEW (ZT_WORLD(2) | ZT_WORLD(3))

const zt_case cases_fail_zero[] = {
    { "zero_kill_own", kill_in_step, 0, ZT_LOCAL, ZT_KILLS, 120, 0, TWIN_OWN },
    { "zero_kill_once", kill_in_step, 0, ZT_LOCAL, ZT_KILLS, 120, 0, TWIN_ONCE },
    { "zero_kill_views", kill_in_step, 0, ZT_LOCAL, ZT_KILLS, 120, 0, TWIN_VIEWS },
    { "zero_kill_far", kill_in_step, 0, ZT_FOREIGN, ZT_KILLS, 120, 0, 100 + TWIN_OWN },
    { "zero_killed_between", killed_between, SEVERAL, ZT_ALL, ZT_KILLS, 0, 0, TWIN_OWN },
    { "zero_killed_between_views", killed_between, SEVERAL, ZT_BOTH, ZT_KILLS, 0, 0, TWIN_VIEWS },
    { "zero_killed_between_once", killed_between, SEVERAL, ZT_BOTH, ZT_KILLS, 0, 0, TWIN_ONCE },
    { "zero_alloc_create", failing, FEW, ZT_BOTH, 0, 60, 0, 10 * TWIN_OWN + CREATE },
    { "zero_alloc_create_views", failing, FEW, ZT_BOTH, 0, 60, 0, 10 * TWIN_VIEWS + CREATE },
    { "zero_alloc_add", failing, FEW, ZT_BOTH, 0, 60, 0, 10 * TWIN_OWN + ADD },
    { "zero_alloc_add_views", failing, FEW, ZT_BOTH, 0, 60, 0, 10 * TWIN_VIEWS + ADD },
    { "zero_alloc_consolidate", failing, FEW, ZT_BOTH, 0, 60, 0, 10 * TWIN_OWN + CONSOLIDATE },
    { "zero_alloc_load", failing, FEW, ZT_BOTH, 0, 60, 0, 10 * TWIN_OWN + LOAD },
    { "zero_alloc_load_changes_nothing", failing_load, FEW, ZT_BOTH, 0, 60, 0, TWIN_OWN },
    { "zero_alloc_clip", failing, FEW, ZT_BOTH, 0, 60, 0, 10 * TWIN_OWN + CLIP },
    { "zero_misplaced", misplaced, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { "zero_forked_child", forked_child, SEVERAL, ZT_LOCAL | ZT_FOREIGN, 0, 60, 0, 0 },
    { "zero_any_order", any_order, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { "zero_freezing", freezing, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
