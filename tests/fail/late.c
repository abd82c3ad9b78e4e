/* A rank that is late: it is stopped, held or overtaken inside a call in which it touches its peers' arrays, the others give up,
 * and then it goes on.
 *
 * Whatever it does then, no call that returns OK may have a wrong element because of it: not its own, and not those of other
 * groups on the same arrays.  In each trial the victim is stopped, held or killed at a point, or stopped or killed at any time, in
 * one call on group memory.  The survivors then fill the same arrays with known numbers and add them up in a group of their own:
 * while the victim is away, while it comes back, and afterwards.  A sum may be refused with STATE, which must name the late rank,
 * until that rank's call has returned; a sum that is OK is compared element by element. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/point.h"
#include "ddp/ddp.h"
#include "rig.h"
#include "trials.h"
#include "twin.h"
#include "zero/optim.h"
#include "zt/job.h"
#include "zt/list.h"
#include "zt/zt.h"

enum { MOST_RANKS = 5, MOST_ARRAYS = 4, TRIAL_MS = 60000, SHORT_MS = 60, ROUNDS = 2 };
enum { SMALL = 1500, MIDDLE = 100000, BIG = 1000000, HUGE = 4000000 }; /* elements of an array, if they have 4 bytes */

/* Flags on the shared page: the victim is in its call, and out of it; survivors that are out of theirs; the victim may go on;
 * meetings of the survivors and of all. */
enum { BEGUN, RETURNED, GAVE_UP, GO_ON, MEET, MEET_ALL };

/* Numbers: the victim's process; how long its call takes; from there on, what each rank got; and on the page of the case: sums with
 * OK, sums that were refused, calls that broke. */
enum { PROCESS, DURATION, FOUND, SUMS = 0, REFUSED, BROKEN };

typedef enum way { STOP_AT, KILL_AT, HOLD_AT, STOP_SOMETIME, KILL_SOMETIME, KILL_AND_HOLD, WAYS } way;
static const char *const ways[] = {
    "stopped at", "killed at", "held at", "stopped some time after", "killed some time after", "killed, another held, at"
};

/* What the victim is doing: a collective call on arrays in group memory, a call on an optimizer whose parameters are there, or the
 * step of an optimizer that is attached to a ddp, or the end of backward of a ddp, whose gradients are there, too. */
typedef enum deed { STEP, PUBLISH, CONSOLIDATE, DEEDS } deed;
static const zt_call calls[] = { ZT_ALL_REDUCE, ZT_ALL_REDUCE_INTO, ZT_REDUCE,   ZT_REDUCE_SCATTER, ZT_REDUCE_SCATTER_V,
                                 ZT_BROADCAST,  ZT_GATHER,          ZT_GATHER_V, ZT_ALL_GATHER,     ZT_ALL_GATHER_V };
static const twin_place places[] = { TWIN_GROUP, TWIN_ONCE, TWIN_EACH, TWIN_VIEWS };
static const struct {
    const char *name;
    rig_mode mode;
} ddps[] = {
    { "one pass, memory ONCE", { .memory = RIG_ONCE, .optimizers = 1 } },
    { "one pass, memory EACH", { .memory = RIG_EACH, .optimizers = 1 } },
    { "two passes, memory ONCE", { .memory = RIG_ONCE, .optimizers = 1, .clip_norm = 1 } },
    { "two passes, memory EACH", { .memory = RIG_EACH, .optimizers = 1, .clip_norm = 1 } },
    { "buckets", { .memory = RIG_EACH } },
};
enum { CALLS = sizeof calls / sizeof *calls, PLACES = sizeof places / sizeof *places, OPTIMIZERS = CALLS + DEEDS * PLACES };
enum { THINGS = OPTIMIZERS + sizeof ddps / sizeof *ddps };

typedef struct trial {
    uint64_t random; /* the same on all ranks */
    int thing, ranks, victim;
    way way;
    size_t bytes;        /* of an array */
    int beforehand;      /* the survivors' group is made before, not after */
    int filled;          /* the survivors fill their arrays before it comes back, and add them up when it has */
    int point;           /* its index in the order in which they are passed; -1: any */
    const char *name;    /* of the point, whatever its index; or NULL */
    const char *earlier; /* the point that does if it does not pass that one */
} trial;

typedef struct array {
    float *data;
    size_t count;
    int once; /* one for all ranks */
} array;

typedef struct doing {
    zro_group *group;  /* the one that breaks */
    zro_group *others; /* the survivors' */
    zt_job job;
    zro_memory *memory[2];
    twin twin;
    rig rig;
    array arrays[MOST_ARRAYS];
    int n_arrays;
    float *scratch;
    uint64_t rounds; /* so far, in the survivors' group */
    uint32_t salt;   /* of the numbers that the arrays have */
} doing;

static int is_call(const trial *x)
{
    return x->thing < CALLS;
}

static int is_ddp(const trial *x)
{
    return x->thing >= OPTIMIZERS;
}

static deed deed_of(const trial *x)
{
    return (deed)((x->thing - CALLS) % DEEDS);
}

static twin_place place_of(const trial *x)
{
    return places[(x->thing - CALLS) / DEEDS];
}

static int is_once(const trial *x)
{
    if (is_ddp(x))
        return ddps[x->thing - OPTIMIZERS].mode.memory == RIG_ONCE;
    return !is_call(x) && place_of(x) == TWIN_ONCE;
}

/* Whether a signal comes at any time, and from which point on. */
static int is_sometime(const trial *x)
{
    return x->way == STOP_SOMETIME || x->way == KILL_SOMETIME;
}

static int is_killed(const trial *x)
{
    return x->way == KILL_AT || x->way == KILL_SOMETIME || x->way == KILL_AND_HOLD;
}

/* The rank that is held while another is dead. */
static int overtaken(const trial *x)
{
    return x->way == KILL_AND_HOLD ? (x->victim + 1) % x->ranks : -1;
}

static void describe(const trial *x, char *text, size_t bytes)
{
    static const char *const deeds[] = { "step", "publish", "consolidate" };
    static const char *const where[] = { "own memory", "group memory", "memory ONCE", "memory EACH", "views" };

    if (is_call(x))
        snprintf(text, bytes, "%s", zt_call_name(calls[x->thing]));
    else if (is_ddp(x))
        snprintf(text, bytes, "ddp: %s", ddps[x->thing - OPTIMIZERS].name);
    else
        snprintf(text, bytes, "%s in %s", deeds[deed_of(x)], where[place_of(x)]);
}

static void nap(long us)
{
    struct timespec pause = { us / 1000000, us % 1000000 * 1000 };

    nanosleep(&pause, NULL);
}

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static void meet(zt_rank *t, int flag, int n)
{
    unsigned arrived = atomic_fetch_add(&t->shared->flag[flag], 1);

    zt_await(t, &t->shared->flag[flag], (arrived / (unsigned)n + 1) * (unsigned)n);
}

/* ---- what is done ---- */

static void add_array(doing *d, void *data, size_t count, int once)
{
    d->arrays[d->n_arrays++] = (array){ data, count, once };
    CHECK(d->n_arrays <= MOST_ARRAYS);
}

static void set_up_job(zt_rank *t, const trial *x, doing *d)
{
    zt_job *job = &d->job;
    uint64_t random = x->random;
    size_t bytes;

    CHECK_OK(zro_group_duplicate(t->group, &d->group));
    job->group = d->group;
    zt_job_random(job, &random, &t->random, 1);
    job->call = calls[x->thing];
    if (zro_dtype_bytes(job->dtype) < 4 && x->bytes > 4 * MIDDLE)
        job->dtype = ZRO_F32; /* or checks would take long */
    job->count = x->bytes / zro_dtype_bytes(job->dtype);
    if (job->call >= ZT_GATHER || job->call == ZT_REDUCE_SCATTER || job->call == ZT_REDUCE_SCATTER_V)
        job->count /= (size_t)t->size;
    zt_counts_random(&random, job->counts, t->size, job->count * (size_t)t->size);
    bytes = zt_job_room(job, t->size);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(zro_memory_alloc(t->group, ZRO_MEMORY_EACH, bytes, &d->memory[i]));
        add_array(d, zro_memory_data(d->memory[i]), bytes / sizeof(float), 0);
    }
    job->in_room = d->arrays[0].data;
    job->out_room = d->arrays[1].data;
}

static void set_up_twin(zt_rank *t, const trial *x, doing *d)
{
    const twin_spec specs[] = { { x->bytes / 8, ZRO_F32, ZRO_F32, 0 },
                                { 77, ZRO_F32, ZRO_F32, 0 },
                                { x->bytes / 16, ZRO_F32, ZRO_F32, 0 } };
    twin_mode mode = { place_of(x), x->random % 2 == 0 ? ZRO_PARTITION_FLAT : ZRO_PARTITION_GREEDY, ZRO_OFF };

    twin_init(&d->twin, t, mode, specs, 3);
    twin_create(&d->twin, zro_rule_adam(), NULL, NULL, 0);
    d->group = d->twin.optim->group;
    for (size_t i = 0; i < 3; i++)
        add_array(d, d->twin.sharded[i].data, d->twin.count[i], is_once(x));
}

static void set_up_rig(zt_rank *t, const trial *x, doing *d)
{
    const size_t counts[] = { x->bytes / 8, 77 };

    rig_init(&d->rig, t, t->group, ddps[x->thing - OPTIMIZERS].mode, counts, 2, x->random);
    rig_create(&d->rig);
    d->group = d->rig.ddp->group;
    for (size_t i = 0; i < 2; i++) {
        add_array(d, d->rig.params[i].data, d->rig.count[i], is_once(x));
        add_array(d, d->rig.params[i].grad, d->rig.count[i], 0);
    }
}

static void set_up(zt_rank *t, const trial *x, doing *d)
{
    size_t most = 0;
    int members[MOST_RANKS], n = 0;

    memset(d, 0, sizeof *d);
    if (is_call(x))
        set_up_job(t, x, d);
    else if (is_ddp(x))
        set_up_rig(t, x, d);
    else
        set_up_twin(t, x, d);
    for (int k = 0; k < d->n_arrays; k++)
        most = d->arrays[k].count > most ? d->arrays[k].count : most;
    d->scratch = malloc((most + 1) * sizeof(float));
    CHECK(d->scratch != NULL);
    for (int r = 0; r < t->size; r++)
        if (r != x->victim)
            members[n++] = r;
    if (x->beforehand)
        CHECK_OK(zro_group_create_sub(t->group, members, n, &d->others));
}

static void tear_down(const trial *x, doing *d)
{
    zro_group_destroy(d->others);
    if (is_call(x)) {
        zt_job_free(&d->job);
        zro_group_destroy(d->group);
    } else if (is_ddp(x)) {
        rig_free(&d->rig);
    } else {
        twin_free(&d->twin);
    }
    zro_memory_free(d->memory[0]);
    zro_memory_free(d->memory[1]);
    free(d->scratch);
}

/* Inputs for the next call. */
static void prepare(const trial *x, doing *d)
{
    if (is_call(x)) {
        d->job.seed++;
        zt_job_prepare(&d->job);
        return;
    }
    if (is_ddp(x)) { /* buckets are the call; or all of it but the step is before */
        unsigned char uses[ZT_MAX_RANKS];

        memset(uses, 1, sizeof uses);
        CHECK_OK(zro_ddp_forward(d->rig.ddp));
        d->rig.iteration++;
        rig_forget(&d->rig);
        for (size_t i = 0; i < 2; i++) {
            rig_add(&d->rig, i, uses);
            rig_write(&d->rig, i);
        }
        if (d->rig.mode.optimizers > 0) {
            CHECK_OK(zro_ddp_grads_ready(d->rig.ddp, (const size_t[]){ 0, 1 }, 2));
            CHECK_OK(zro_ddp_backward_end(d->rig.ddp));
        }
        rig_step_reference(&d->rig);
        return;
    }
    twin_gradients(&d->twin, 1);
    CHECK_OK(zro_optim_step(d->twin.reference, NULL));
    if (deed_of(x) == PUBLISH)
        CHECK_OK(zro_optim_step_local(d->twin.optim, NULL));
    if (deed_of(x) == CONSOLIDATE)
        CHECK_OK(zro_optim_step(d->twin.optim, NULL));
}

static void check_state(const twin *w, const zro_state *state)
{
    for (size_t i = 0; i < w->n_used; i++)
        for (size_t k = 0; k < zro_optim_slots(w->reference); k++) {
            const char *name = zro_optim_slot_name(w->reference, k);
            zro_slot mine, other;

            CHECK_OK(zro_optim_slot(w->reference, i, name, &other));
            if (!other.present)
                continue;
            CHECK_OK(zro_state_slot(state, i, name, &mine));
            CHECK(mine.present && mine.count == other.count && mine.dtype == other.dtype);
            CHECK(memcmp(mine.data, other.data, mine.count * zro_dtype_bytes(mine.dtype)) == 0);
        }
}

/* The call.  A result with OK is checked at once; where the data is one for all, others may write it by then, unless nobody has
 * given up. */
static zro_status carry_out(const trial *x, doing *d, int nobody_else_writes)
{
    zro_state *state;
    zro_status st;

    if (is_call(x)) {
        st = zt_job_call(&d->job);
        if (st == ZRO_OK)
            zt_job_check(&d->job);
        return st;
    }
    if (is_ddp(x) && d->rig.mode.optimizers == 0) {
        st = zro_ddp_grads_ready(d->rig.ddp, (const size_t[]){ 0, 1 }, 2);
        if (st == ZRO_OK)
            st = zro_ddp_backward_end(d->rig.ddp);
        if (st == ZRO_OK)
            rig_check_gradients(&d->rig, 0, 2);
        return st;
    }
    if (is_ddp(x)) {
        st = zro_optim_step(d->rig.optim[0], NULL);
        if (st == ZRO_OK && (nobody_else_writes || !is_once(x)))
            rig_check(&d->rig);
        return st;
    }
    if (deed_of(x) == CONSOLIDATE) {
        st = zro_optim_consolidate(d->twin.optim, ZRO_ALL, &state);
        if (st == ZRO_OK)
            check_state(&d->twin, state);
        zro_state_destroy(state);
        return st;
    }
    st = deed_of(x) == STEP ? zro_optim_step(d->twin.optim, NULL) : zro_optim_publish(d->twin.optim);
    if (st == ZRO_OK && (nobody_else_writes || !is_once(x)))
        twin_check(&d->twin);
    return st;
}

/* ---- sums in another group ---- */

/* Small whole numbers, so that sums are exact. */
static float value_of(size_t i, uint32_t salt)
{
    return (float)(((uint32_t)i * UINT32_C(2654435761) ^ salt) >> 20 & 1023);
}

static void fill(const array *a, uint32_t salt, int rank)
{
    for (size_t i = 0; i < a->count; i++)
        a->data[i] = value_of(i, salt) + (float)rank;
}

static void check_sum(const char *when, const array *a, const float *sum, uint32_t salt, int n)
{
    const float ranks = a->once ? 0 : (float)(n * (n - 1) / 2);
    size_t wrong = 0, first = 0;

    for (size_t i = 0; i < a->count; i++)
        if (sum[i] != (float)n * value_of(i, salt) + ranks) {
            first = wrong++ == 0 ? i : first;
        }
    if (wrong > 0)
        zt_fail(__FILE__, __LINE__, "%s: %zu of %zu elements of a sum with OK are wrong, the first is %zu: %g, not %g", when,
                wrong, a->count, first, (double)sum[first], (double)((float)n * value_of(first, salt) + ranks));
}

/* When a sum may be refused.  ONCE: an array that somebody was late with is refused once more when that rank has left it, because it
 * may have been filled before; on a busy machine any rank may have been late. */
typedef enum refusal { NEVER, ONCE, NAMED } refusal;

/* All members got the same, and a refusal has left the group whole. */
static void check_refusal(zt_rank *t, const trial *x, zro_group *group, int flag, zro_status st, refusal may_refuse,
                          const char *when)
{
    const int n = zro_group_size(group);
    char name[32];

    atomic_store(&t->shared->number[FOUND + t->rank], (unsigned)st);
    meet(t, flag, n);
    for (int r = 0; r < n; r++) {
        const unsigned long long other = atomic_load(&t->shared->number[FOUND + zro_group_label(group, r)]);

        if ((other == ZRO_OK) != (st == ZRO_OK))
            zt_fail(__FILE__, __LINE__, "%s: %s here, %s on another rank", when, zro_status_name(st),
                    zro_status_name((zro_status)other));
    }
    meet(t, flag, n);
    if (st == ZRO_OK)
        return;
    if (may_refuse == NEVER || (st != ZRO_ERR_STATE && st != ZRO_ERR_PEER))
        zt_fail(__FILE__, __LINE__, "%s: a sum of other ranks is %s", when, zro_status_name(st));
    snprintf(name, sizeof name, "rank %d", x->victim);
    if (st == ZRO_ERR_STATE) /* PEER names the rank that refuses; another rank that was late has left the array meanwhile */
        CHECK_TEXT(may_refuse == NAMED && strstr(zro_last_error(), "has left it since") == NULL ? name : "rank ");
    CHECK_OK(zro_group_status(group));
}

static void fill_all(zt_rank *t, const trial *x, doing *d, zro_group *group, int flag)
{
    const int n = zro_group_size(group), me = zro_group_rank(group);

    meet(t, flag, n); /* others may still look at what exists once */
    d->salt = (uint32_t)zt_mix(x->random, flag == MEET ? d->rounds++ : UINT64_MAX);
    for (int k = 0; k < d->n_arrays; k++)
        if (!d->arrays[k].once || me == 0)
            fill(&d->arrays[k], d->salt + (uint32_t)k, d->arrays[k].once ? 0 : me);
    meet(t, flag, n);
}

static void add_up_all(zt_rank *t, const trial *x, doing *d, zro_group *group, int flag, refusal may_refuse, const char *when)
{
    zt_shared *tally = t->user;
    const int n = zro_group_size(group), me = zro_group_rank(group);

    for (int k = 0; k < d->n_arrays; k++) {
        const array *a = &d->arrays[k];
        zro_status st = a->once ? zro_all_reduce_into(group, a->data, d->scratch, a->count, ZRO_F32, ZRO_SUM)
                                : zro_all_reduce(group, a->data, a->count, ZRO_F32, ZRO_SUM);

        if (st == ZRO_OK)
            check_sum(when, a, a->once ? d->scratch : a->data, d->salt + (uint32_t)k, n);
        check_refusal(t, x, group, flag, st, may_refuse, when);
        if (me == 0)
            atomic_fetch_add(&tally->number[st == ZRO_OK ? SUMS : REFUSED], 1);
    }
}

/* Fills all arrays and adds them up over the group, whose members meet on `flag`. */
static void add_up(zt_rank *t, const trial *x, doing *d, zro_group *group, int flag, refusal may_refuse, const char *when)
{
    fill_all(t, x, d, group, flag);
    add_up_all(t, x, d, group, flag, may_refuse, when);
}

/* ---- the ranks ---- */

typedef struct held {
    zt_rank *t;
    int until; /* a flag */
} held;

static void announce(void *user)
{
    atomic_store(&((zt_rank *)user)->shared->flag[BEGUN], 1);
}

static void hold(void *user)
{
    const held *h = user;

    zt_await(h->t, &h->t->shared->flag[h->until], 1);
}

/* The point and the passing at which it happens, out of those that the first call has passed; 0 if there is no such point. */
static int choose_point(zt_rank *t, const trial *x, zro__point_plan *plan)
{
    uint64_t random = zt_mix(x->random, 5);
    int n = 0, p;

    while (n < ZT_MAX_POINTS && t->shared->text[n][0] != '\0')
        n++;
    p = x->point < 0 && n > 0 ? (int)zt_below(&random, (uint64_t)n) : x->point;
    for (int i = 0; i < n && x->earlier != NULL; i++)
        p = strcmp(t->shared->text[i], x->earlier) == 0 ? i : p;
    for (int i = 0; i < n && x->name != NULL; i++)
        p = strcmp(t->shared->text[i], x->name) == 0 ? i : p;
    if (p < 0 || p >= n)
        return 0;
    plan->name = t->shared->text[p];
    plan->nth = 1 + (long)zt_below(&random, x->name != NULL ? 1 : atomic_load(&t->shared->passings[p]));
    plan->action = x->way == STOP_AT ? ZRO__POINT_STOP : ZRO__POINT_KILL;
    return 1;
}

static void run_victim(zt_rank *t, const trial *x, doing *d, zro__point_plan *plan)
{
    held h = { t, GO_ON };
    zro_status st;

    if (x->way == HOLD_AT) {
        plan->kill_rank = hold;
        plan->user = &h;
    }
    if (is_killed(x))
        zt_expect_lost(t, t->rank);
    atomic_store(&t->shared->number[PROCESS], (unsigned long long)getpid());
    if (is_sometime(x)) {
        plan->kill_rank = announce;
        plan->user = t;
    } else {
        announce(t);
    }
    zro__point_plan_set(plan);
    st = carry_out(x, d, 0);
    zro__point_plan_set(NULL);
    announce(t); /* some points depend on time */
    if (is_killed(x) && x->way != KILL_SOMETIME)
        zt_die(t);
    if (x->way == KILL_SOMETIME)
        zt_await(t, &t->shared->flag[GO_ON], 1); /* never: death comes before */
    if (st != ZRO_OK && st != ZRO_ERR_STATE)
        CHECK(st == ZRO_ERR_TIMEOUT || st == ZRO_ERR_LOST);
    atomic_store(&t->shared->flag[RETURNED], 1);
}

static void run_survivor(zt_rank *t, const trial *x, doing *d)
{
    zro__point_plan plan = { .name = "xfer.own", .action = ZRO__POINT_KILL, .nth = 1, .kill_rank = hold };
    zt_shared *tally = t->user;
    held h = { t, GAVE_UP };
    int members[MOST_RANKS], n = 0, back = 0;
    zro_status st;

    if (t->rank == overtaken(x)) {
        plan.user = &h;
        zro__point_plan_set(&plan);
    }
    st = carry_out(x, d, 0);
    zro__point_plan_set(NULL);
    if (st != ZRO_OK && st != ZRO_ERR_STATE) /* torn parameters are STATE */
        CHECK(st == ZRO_ERR_TIMEOUT || st == ZRO_ERR_LOST);
    if (st != ZRO_OK)
        atomic_fetch_add(&tally->number[BROKEN], 1);
    atomic_fetch_add(&t->shared->flag[GAVE_UP], 1);
    for (int r = 0; r < t->size; r++)
        if (r != x->victim)
            members[n++] = r;
    if (d->others == NULL)
        CHECK_OK(zro_group_create_members(t->group, members, n, &d->others));
    for (int k = 0; k < ROUNDS; k++)
        add_up(t, x, d, d->others, MEET, k == 0 ? ONCE : is_killed(x) ? NEVER : NAMED, "while it is away");
    if (is_killed(x))
        return;
    if (x->filled) { /* what it writes when it comes back is added up after that */
        fill_all(t, x, d, d->others, MEET);
        atomic_store(&t->shared->flag[GO_ON], 1);
        zt_await(t, &t->shared->flag[RETURNED], 1);
        add_up_all(t, x, d, d->others, MEET, NAMED, "filled before it came back");
        back = 1;
    }
    atomic_store(&t->shared->flag[GO_ON], 1);
    while (!back) {
        add_up(t, x, d, d->others, MEET, NAMED, "while it comes back");
        CHECK_OK(zro_group_stop_requested(d->others, (int)atomic_load(&t->shared->flag[RETURNED]), &back));
    }
    for (int k = 0; k < ROUNDS; k++)
        add_up(t, x, d, d->others, MEET, k == 0 ? ONCE : NEVER, "after it has come back");
}

static void one_trial(zt_rank *t)
{
    const trial *x = ((void **)t->user)[0];
    zro__point_plan plan = { .action = ZRO__POINT_LIST, .seen = zt_note_point, .user = t->shared };
    doing *d = malloc(sizeof *d);
    uint64_t began;
    char text[96];
    int no_point;

    CHECK(d != NULL);
    t->user = ((void **)t->user)[1];
    set_up(t, x, d);
    prepare(x, d);
    zt_meet(t);
    began = now_ns();
    if (t->rank == x->victim)
        zro__point_plan_set(&plan);
    CHECK_OK(carry_out(x, d, 1));
    zro__point_plan_set(NULL);
    plan = (zro__point_plan){ .name = NULL };
    if (t->rank == x->victim) {
        atomic_store(&t->shared->number[DURATION], now_ns() - began);
        if (!choose_point(t, x, &plan))
            atomic_store(&t->shared->flag[RETURNED], 1);
        describe(x, text, sizeof text);
        printf("rank %d of %d %s %s, passing %ld, in %s of %zu bytes\n", x->victim, t->size, ways[x->way],
               plan.name != NULL ? plan.name : "nothing", plan.nth, text, x->bytes);
    }
    zt_meet(t);
    no_point = (int)atomic_load(&t->shared->flag[RETURNED]); /* once they have met the victim may really have returned */
    prepare(x, d);
    trials_set_timeout(d->group, SHORT_MS);
    zt_meet(t);
    if (no_point)
        atomic_store(&t->shared->flag[BEGUN], 1);
    else if (t->rank == x->victim)
        run_victim(t, x, d, &plan);
    else
        run_survivor(t, x, d);
    for (int k = 0; k < ROUNDS && !is_killed(x); k++)
        add_up(t, x, d, t->group, MEET_ALL, k == 0 ? ONCE : NEVER, "all ranks together");
    tear_down(x, d);
    free(d);
}

/* ---- the process that stops and continues ---- */

static _Noreturn void signaller(zt_rank *t, const trial *x)
{
    uint64_t random = zt_mix(x->random, 7), until;
    pid_t pid;

    while (atomic_load(&t->shared->flag[BEGUN]) == 0 && !atomic_load(&t->shared->failed))
        sched_yield();
    pid = (pid_t)atomic_load(&t->shared->number[PROCESS]); /* 0: nothing happens */
    if (is_sometime(x) && pid > 0) {
        until = now_ns() + zt_below(&random, atomic_load(&t->shared->number[DURATION]));
        while (now_ns() < until) {
        }
        kill(pid, x->way == STOP_SOMETIME ? SIGSTOP : SIGKILL);
    }
    if (!is_killed(x) && pid > 0)
        while (atomic_load(&t->shared->flag[RETURNED]) == 0 && !atomic_load(&t->shared->failed)) {
            if (atomic_load(&t->shared->flag[GO_ON]) != 0)
                kill(pid, SIGCONT); /* it may come before the stop that it is meant for */
            nap(1000);
        }
    if (!is_killed(x) && pid > 0)
        kill(pid, SIGCONT); /* the stop may have come after the call */
    _exit(0);
}

static void run_trial(zt_rank *t, const trial *x, int backend)
{
    zro_group_config config = zt_config();
    void *user[2] = { (void *)(uintptr_t)x, t->user };
    int status = 0;
    pid_t pid = 0;

    config.timeout_ms = TRIAL_MS;
    if (backend == ZT_LOCAL)
        pid = trials_fork();
    if (pid == 0 && backend == ZT_LOCAL)
        signaller(t, x);
    zt_ranks(t, backend, &config, x->ranks, one_trial, user);
    if (backend == ZT_LOCAL)
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static size_t limited(size_t count)
{
    return count > zt_opt.max_count ? zt_opt.max_count : count;
}

/* ---- cases ---- */

/* Any of everything. */
static void any_trial(zt_rank *t, uint64_t number)
{
    static const size_t counts[] = { SMALL, MIDDLE, MIDDLE, BIG };
    uint64_t random = zt_mix(number, 11);
    trial x = { .random = zt_next(&random), .point = -1 };

    x.thing = (int)(zt_below(&random, 3) > 0 ? zt_below(&random, CALLS) : CALLS + zt_below(&random, THINGS - CALLS));
    x.ranks = 3 + (int)zt_below(&random, MOST_RANKS - 2);
    x.victim = (int)zt_below(&random, (uint64_t)x.ranks);
    x.way = (way)zt_below(&random, WAYS);
    x.bytes = 4 * limited(counts[zt_below(&random, 4)]);
    if (is_sometime(&x)) {
        x.bytes = 4 * limited(is_call(&x) && x.ranks == 3 ? HUGE : BIG);
        x.name = !is_call(&x) ? NULL : zt_below(&random, 4) > 0 ? "xfer.own" : "slot.arrived";
    }
    x.beforehand = (int)zt_below(&random, 2);
    x.filled = (int)zt_below(&random, 2);
    run_trial(t, &x, ZT_LOCAL);
}

/* Every point of every call: stopped and killed. */
static void point_trial(zt_rank *t, uint64_t number)
{
    uint64_t n = number - 1;
    trial x = { .random = zt_mix(number, 12), .ranks = 3, .bytes = 4 * limited(MIDDLE) };

    x.thing = (int)(n % THINGS);
    x.way = n / THINGS % 2 == 0 ? STOP_AT : KILL_AT;
    x.point = (int)(n / THINGS / 2);
    x.victim = (int)(x.random % 3);
    x.beforehand = (int)(x.random >> 8 & 1);
    x.filled = (int)(x.random >> 9 & 1);
    run_trial(t, &x, ZT_LOCAL);
}

static void note(zt_rank *t)
{
    zt_note(t, "%llu calls broke, then %llu sums were right and %llu refused", atomic_load(&t->shared->number[BROKEN]),
            atomic_load(&t->shared->number[SUMS]), atomic_load(&t->shared->number[REFUSED]));
}

static void need_points(zt_rank *t)
{
#ifndef ZRO__POINTS
    zt_skip(t, "the library was built without ZRO__POINTS");
#endif
    (void)t;
}

static void late_any(zt_rank *t)
{
    need_points(t);
    trials_run(t, "late", any_trial, (int)t->arg);
    note(t);
}

static void late_points(zt_rank *t)
{
    need_points(t);
    trials_run(t, "late_points", point_trial, (int)t->arg);
    note(t);
}

/* Held where it is about to touch its peers' arrays, or parameters that are theirs too: the same every time. */
static void held_trial(zt_rank *t, uint64_t number)
{
    static const struct {
        int thing;
        const char *point;
    } all[] = { { 0 /* all_reduce */, "owner.write" },
                { 5 /* broadcast */, "owner.write" },
                { 8 /* all_gather */, "owner.write" },
                { CALLS + STEP /* in group memory */, "owner.write" },
                { CALLS + DEEDS + STEP /* in memory ONCE */, "cycle.begun" },
                { OPTIMIZERS /* a ddp, one pass, ONCE */, "cycle.fused" },
                { OPTIMIZERS + 1 /* EACH */, "owner.write" },
                { OPTIMIZERS + 2 /* two passes, ONCE */, "cycle.begun" },
                { OPTIMIZERS + 4 /* buckets */, "owner.write" } };
    const uint64_t n = number / 2 % (sizeof all / sizeof *all);
    trial x = { .random = 3, .ranks = 3, .victim = 2, .way = HOLD_AT, .bytes = 4 * limited(MIDDLE), .thing = all[n].thing };

    /* Past the last look at the verdict the late rank does write, and only the refusal keeps that apart from what others do. */
    if (ZT_SEES_RACES && is_once(&x))
        return;
    x.name = ZT_SEES_RACES ? NULL : all[n].point;
    x.earlier = "xfer.own";
    x.filled = number % 2 == 0;
    run_trial(t, &x, (int)t->arg);
    CHECK(atomic_load(&((zt_shared *)t->user)->number[BROKEN]) > 0);
}

static void late_held(zt_rank *t)
{
    need_points(t);
    trials_run(t, t->arg == ZT_LOCAL ? "late_held" : "late_held_threads", held_trial, 18);
    note(t);
}

const zt_case cases_fail_late[] = {
    { "late_held", late_held, 0, ZT_LOCAL, ZT_KILLS, 120, 0, ZT_LOCAL },
    { "late_held_threads", late_held, 0, ZT_THREADS, 0, 120, 0, ZT_THREADS },
    { "late", late_any, 0, ZT_LOCAL, ZT_KILLS, 120, 0, 16 },
    { "late_points", late_points, 0, ZT_LOCAL, ZT_KILLS | ZT_REST, 400, 0, THINGS * 2 * 16 },
    { "late_more", late_any, 0, ZT_LOCAL, ZT_KILLS | ZT_REST, 400, 0, 150 },
    { "late_long", late_any, 0, ZT_LOCAL, ZT_KILLS | ZT_LONG, 4000, 0, 4000 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
