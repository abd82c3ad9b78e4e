/* The fault loop: ranks run a random script of collective calls, sums of gradients, steps of a sharded optimizer, alone or attached
 * to a ddp with its whole iteration, and creates, and at a random moment something goes wrong on one of them.
 *
 * Whatever it is: every result with OK is right, every call of every other rank ends soon after its deadline, errors name the
 * rank at fault, groups without that rank work, and nothing is left behind.  All ranks go on with the script after a failure, so
 * they stay in step: calls on a broken group return its verdict, calls on others work.
 *
 * Ranks write down what they got; the supervisor judges it when all have ended.  A rank that could not run for a while, because
 * the machine had other things to do, says so, and then a deadline may have passed for that reason. */
#define _GNU_SOURCE
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/point.h"
#include "rig.h"
#include "trials.h"
#include "twin.h"
#include "zero/optim.h"
#include "zt/job.h"
#include "zt/list.h"
#include "zt/zt.h"

enum { MOST_RANKS = 5, MOST_OPS = 20, BASE_MS = 60000, GRACE_MS = 2000, AFTERWARDS = 3 };
enum { ELEMENTS = 120000, MANY_ELEMENTS = 1200000 }; /* of all ranks' arrays together */

/* ---- what goes wrong ---- */

typedef enum fault {
    KILL,
    STOP,        /* until the others are through; then it is killed, */
    STOP_LONG,   /* or goes on */
    PAUSE,       /* for less or a little more than the deadline */
    EXIT,        /* without destroying anything */
    QUIT,        /* by _exit */
    EXEC,        /* another program */
    CHILD_CALLS, /* a forked child goes on and calls the library */
    CHILD_LIVES, /* a forked child lives on for a while, and the rank is killed */
    CLOSE,       /* of all descriptors that are not standard */
    FEW_FILES,   /* limits, as long as a call of the library runs */
    FEW_PAGES,   /* ... address space */
    FEW_BYTES,   /* ... length of files; the signal is ignored */
    FATAL_BYTES, /* ... the signal kills */
    OTHER_CALL,  /* than the others */
    OTHER_COUNT,
    OTHER_ROOT,
    OTHER_TYPE,
    DESTROY_GROUP,
    DESTROY_OPTIM, /* and the ddp, if there is one, ... */
    DESTROY_DDP,   /* ... in the middle of an iteration */
    FAULTS
} fault;

enum {
    DIES = 1,
    HOLDS = 2,
    CREATES = 4
}; /* what follows from it: the rank is gone; it does not come back in time; creates fail */

/* What survivors may get besides OK, and what the last calls on the group and on the optimizer must be; -1: any of these. */
static const struct {
    const char *name;
    unsigned flags, allowed;
    int last_call, last_step;
} faults[FAULTS] = {
#define ONE(status) (1u << ZRO_ERR_##status)
    [KILL] = { "killed", DIES, ONE(LOST), ZRO_ERR_LOST, ZRO_ERR_LOST },
    [STOP] = { "stopped, later killed", HOLDS, ONE(TIMEOUT), ZRO_ERR_TIMEOUT, ZRO_ERR_TIMEOUT },
    [STOP_LONG] = { "stopped, later continued", HOLDS, ONE(TIMEOUT), ZRO_ERR_TIMEOUT, ZRO_ERR_TIMEOUT },
    [PAUSE] = { "paused", 0, ONE(TIMEOUT), -1, -1 },
    [EXIT] = { "exits", DIES, ONE(LOST), ZRO_ERR_LOST, ZRO_ERR_LOST },
    [QUIT] = { "calls _exit", DIES, ONE(LOST), ZRO_ERR_LOST, ZRO_ERR_LOST },
    [EXEC] = { "becomes another program", DIES, ONE(LOST), ZRO_ERR_LOST, ZRO_ERR_LOST },
    [CHILD_CALLS] = { "forks a child that calls the library", 0, 0, ZRO_OK, ZRO_OK },
    [CHILD_LIVES] = { "is killed and leaves a child", DIES, ONE(LOST), ZRO_ERR_LOST, ZRO_ERR_LOST },
    [CLOSE] = { "closes all descriptors", CREATES, ONE(PEER) | ONE(SYSTEM) | ONE(MEMORY) | ONE(STATE), -1, -1 },
    [FEW_FILES] = { "may open no file", CREATES, ONE(PEER) | ONE(SYSTEM) | ONE(MEMORY), -1, -1 },
    [FEW_PAGES] = { "may map no memory", CREATES, ONE(PEER) | ONE(SYSTEM) | ONE(MEMORY), -1, -1 },
    [FEW_BYTES] = { "may make no file longer", CREATES, ONE(PEER) | ONE(SYSTEM) | ONE(MEMORY), -1, -1 },
    [FATAL_BYTES] = { "dies if it makes a file longer", CREATES, ONE(PEER) | ONE(SYSTEM) | ONE(MEMORY) | ONE(LOST), -1, -1 },
    [OTHER_CALL] = { "makes another call", 0, ONE(MISMATCH), ZRO_ERR_MISMATCH, ZRO_OK },
    [OTHER_COUNT] = { "passes another count", 0, ONE(MISMATCH), ZRO_ERR_MISMATCH, ZRO_OK },
    [OTHER_ROOT] = { "passes another root", 0, ONE(MISMATCH), ZRO_ERR_MISMATCH, ZRO_OK },
    [OTHER_TYPE] = { "passes another type", 0, ONE(MISMATCH), ZRO_ERR_MISMATCH, ZRO_OK },
    [DESTROY_GROUP] = { "destroys the group", 0, ONE(LOST), ZRO_ERR_LOST, ZRO_OK },
    [DESTROY_OPTIM] = { "destroys the optimizer", 0, ONE(LOST), ZRO_OK, ZRO_ERR_LOST },
    [DESTROY_DDP] = { "destroys the ddp in an iteration", 0, ONE(LOST), ZRO_OK, ZRO_ERR_LOST },
#undef ONE
};

typedef enum op { CALL, SUBMITTED, STEP, AVERAGE, DUPLICATE, MEMORY, OPTIMIZER, OPS } op;
static const char *const op_names[] = { "call",      "submitted call", "step",        "params_all_reduce",
                                        "duplicate", "memory_alloc",   "optim_create" };

/* What one rank got from one operation. */
typedef struct outcome {
    int32_t op, status;
    int32_t named; /* the text has the number of the rank at fault */
    int32_t ms;    /* how long it took, without the time in which it wanted to run and could not */
    char what[40], text[360];
} outcome;

typedef struct record {
    outcome of[MOST_RANKS][MOST_OPS];
    atomic_uint slow; /* a rank could not run for a good part of the deadline */
} record;

typedef struct trial {
    uint64_t number, random; /* the same on all ranks */
    fault fault;
    int ranks, culprit;
    int ops, at;    /* operations of the script; the one at which it happens */
    uint64_t ms;    /* the deadline */
    int at_a_point; /* death or stop: at a point, not at any time */
    size_t most;    /* elements */
    twin_place place;
    int uses_ddp; /* the optimizer is attached to a ddp */
    record *record;
    zt_shared *tally;
} trial;

/* Flags: the culprit is at it; it was stopped or killed; it is through; how many survivors are through; a culprit that was held is
 * through or dead; meetings. */
enum { BEGUN, SIGNALLED, CULPRIT_DONE, SURVIVORS_DONE, HOLD_OVER, MEET_SURVIVORS, MEET_LIVING };
enum { PROCESS, HAPPENED = 0, CALLS_OK, CALLS_FAILED }; /* numbers; the last three on the page of the case */

typedef struct state {
    zro_group *group, *others; /* the one that is used, with the short deadline; the survivors' */
    zro_memory *memory[2];
    twin twin;
    rig rig; /* instead of the twin, with a ddp */
    zt_job job;
    int has_group, has_optim;
    zro__point_plan plan;
} state;

/* ---- time ---- */

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static void nap(long ms)
{
    struct timespec pause = { ms / 1000, ms % 1000 * 1000000 };

    nanosleep(&pause, NULL);
}

/* How long the threads of this process have been ready to run and had no processor. */
static uint64_t delayed_ns(void)
{
    DIR *dir = opendir("/proc/self/task");
    struct dirent *entry;
    uint64_t sum = 0;

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        unsigned long long delay = 0;
        char path[300];
        FILE *file;

        snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", entry->d_name);
        file = entry->d_name[0] != '.' ? fopen(path, "re") : NULL;
        if (file == NULL)
            continue;
        if (fscanf(file, "%*u %llu", &delay) == 1)
            sum += delay;
        fclose(file);
    }
    if (dir != NULL)
        closedir(dir);
    return sum;
}

static void meet(zt_rank *t, int flag, int n)
{
    unsigned arrived = atomic_fetch_add(&t->shared->flag[flag], 1);

    zt_await(t, &t->shared->flag[flag], (arrived / (unsigned)n + 1) * (unsigned)n);
}

/* ---- limits ---- */

static int limit_of(fault f)
{
    return f == FEW_FILES                       ? (int)RLIMIT_NOFILE
           : f == FEW_PAGES                     ? (int)RLIMIT_AS
           : f >= FEW_BYTES && f <= FATAL_BYTES ? (int)RLIMIT_FSIZE
                                                : -1;
}

static void set_limit(fault f, int on)
{
    static rlim_t before;
    const int which = limit_of(f);
    unsigned long pages = 0;
    struct rlimit limit;
    FILE *file;

    if (which < 0)
        return;
    CHECK(getrlimit((__rlimit_resource_t)which, &limit) == 0);
    if (!on) {
        limit.rlim_cur = before;
        CHECK(setrlimit((__rlimit_resource_t)which, &limit) == 0);
        return;
    }
    before = limit.rlim_cur;
    limit.rlim_cur = f == FEW_FILES ? 3 : 0;
    if (f == FEW_PAGES) {
        file = fopen("/proc/self/statm", "re");
        CHECK(file != NULL && fscanf(file, "%lu", &pages) == 1);
        fclose(file);
        limit.rlim_cur = (pages + 16) * (rlim_t)sysconf(_SC_PAGESIZE);
    }
    if (f == FEW_BYTES)
        signal(SIGXFSZ, SIG_IGN);
    CHECK(setrlimit((__rlimit_resource_t)which, &limit) == 0);
}

/* ---- the script ---- */

/* Operation i, for all ranks alike.  The last two are a call and a step. */
static op op_at(const trial *x, int i)
{
    uint64_t random = zt_mix(x->random, 1000 + (uint64_t)i), n;

    if (i >= x->ops - 2)
        return i == x->ops - 2 ? CALL : STEP;
    if (i == x->at && x->fault >= OTHER_CALL && x->fault <= OTHER_TYPE)
        return CALL;
    if (i == x->at && x->fault == DESTROY_DDP)
        return STEP;
    n = zt_below(&random, 20);
    if ((faults[x->fault].flags & CREATES) != 0 && n < 10)
        return (op)(DUPLICATE + n % 3);
    return n < 9 ? CALL : n < 11 ? SUBMITTED : n < 14 ? STEP : n < 17 ? AVERAGE : (op)(DUPLICATE + n - 17);
}

static void make_job(zt_rank *t, const trial *x, state *s, int i, zro_group *group, uint64_t salt)
{
    static const zt_call comparable[] = { ZT_ALL_REDUCE, ZT_BROADCAST, ZT_REDUCE_SCATTER, ZT_ALL_GATHER };
    uint64_t random = zt_mix(x->random, salt + (uint64_t)i), own = t->random;
    zt_job *job = &s->job;

    memset(job, 0, sizeof *job);
    job->group = group;
    zt_job_random(job, &random, &own, x->most);
    if (i == x->at && x->fault >= OTHER_CALL && x->fault <= OTHER_TYPE && salt == 0) {
        job->call = x->fault == OTHER_ROOT ? ZT_BROADCAST : comparable[zt_below(&random, 4)];
        job->count += 2;
        job->dtype = x->fault == OTHER_TYPE ? ZRO_F32 : job->dtype;
        job->op = x->fault == OTHER_TYPE ? ZRO_SUM : job->op;
        job->in_place = 0; /* with another count the own piece would lie elsewhere, which is refused */
    }
    if (zt_below(&random, 2) == 0)
        job->in_room = zro_memory_data(s->memory[0]);
    if (zt_below(&random, 2) == 0)
        job->out_room = zro_memory_data(s->memory[1]);
    zt_job_prepare(job);
}

static zro_status call_job(zt_rank *t, const trial *x, state *s, int submitted)
{
    zro_work *work = NULL;
    zro_status st;

    (void)t;
    (void)x;
    if (!submitted)
        return zt_job_call(&s->job);
    st = zro_submit(s->group, zt_job_call, &s->job, &work);
    if (st == ZRO_OK)
        st = zro_work_wait(work);
    zro_work_destroy(work);
    return st;
}

/* Gradients are the same on all ranks, as if they had been averaged. */
static void make_gradients(const trial *x, twin *w, int i)
{
    uint64_t random = zt_mix(x->random, 5000 + (uint64_t)i);

    for (size_t k = 0; k < w->n; k++) {
        float *grad = w->sharded[k].grad;

        for (size_t j = 0; j < w->count[k]; j++)
            grad[j] = (float)((double)(zt_next(&random) >> 11) * 0x1p-52 - 1);
        memcpy(w->alone[k].grad, grad, w->count[k] * sizeof *grad);
        zro_param_set_grad(&w->sharded[k], grad);
        zro_param_set_grad(&w->alone[k], w->alone[k].grad);
    }
    CHECK_OK(zro_optim_step(w->reference, NULL));
}

/* What a program does before each step, here with sums, which are exact: the gradients of three parameters, one of them present
 * on rank 0 alone and without memory that peers could reach. */
static zro_status reduce_gradients(const trial *x, state *s)
{
    const size_t counts[] = { 7, x->most / 2 + 1, 1500 };
    const int n = zro_group_size(s->group), me = zro_group_rank(s->group);
    float *room = zro_memory_data(s->memory[0]), own[1500];
    zro_param params[3];
    zro_status st;

    for (size_t i = 0; i < 3; i++) {
        float *grad = i == 2 ? own : room;

        zro_param_make(&params[i], NULL, ZRO_F32, NULL, grad, 1, &counts[i]);
        params[i].grad_present = i != 2 || me == 0;
        for (size_t k = 0; k < counts[i]; k++)
            grad[k] = (float)((i + k) % 100 * (size_t)(me + 1));
        room += i == 2 ? 0 : counts[i];
    }
    st = zro_params_all_reduce(s->group, params, 3, ZRO_SUM);
    for (size_t i = 0; i < 3 && st == ZRO_OK; i++) {
        const size_t sum = i == 2 ? 1 : (size_t)n * (size_t)(n + 1) / 2;

        CHECK(params[i].grad_present == 1);
        for (size_t k = 0; k < counts[i]; k++)
            CHECK(((const float *)params[i].grad)[k] == (float)((i + k) % 100 * sum));
    }
    return st;
}

static zro_status duplicate(state *s)
{
    zro_group *group;
    zro_status st = zro_group_duplicate(s->group, &group);

    if (st != ZRO_OK)
        return st;
    st = zro_barrier(group);
    zro_group_destroy(group);
    return st;
}

static zro_status allocate(const trial *x, state *s, int i)
{
    const int n = zro_group_size(s->group), me = zro_group_rank(s->group), once = i % 2;
    const size_t count = 5000;
    zro_memory *memory;
    zro_status st = zro_memory_alloc(s->group, once ? ZRO_MEMORY_ONCE : ZRO_MEMORY_EACH, count * sizeof(int64_t), &memory);
    int64_t *data;

    (void)x;
    if (st != ZRO_OK)
        return st;
    data = zro_memory_data(memory);
    for (size_t k = 0; k < count && !once; k++)
        data[k] = (int64_t)k * (me + 1);
    st = zro_all_reduce(s->group, data, once ? 0 : count, ZRO_I64, ZRO_SUM);
    for (size_t k = 0; k < count && st == ZRO_OK && !once; k++)
        CHECK(data[k] == (int64_t)k * n * (n + 1) / 2);
    zro_memory_free(memory);
    return st;
}

static zro_status make_optimizer(state *s)
{
    float values[3000] = { 0 };
    zro_param param = ZRO_PARAM_INIT;
    zro_param_group group = { .params = &param, .n = 1 };
    zro_optim *optim;
    zro_status st;

    param.shape[0] = 3000;
    param.data = values;
    st = zro_optim_create(s->group, &group, 1, zro_rule_adam(), NULL, NULL, &optim);
    zro_optim_destroy(optim);
    return st;
}

/* ---- the faults ---- */

static void announce(zt_rank *t)
{
    atomic_store(&t->shared->number[PROCESS], (unsigned long long)getpid());
    atomic_store(&t->shared->flag[BEGUN], 1);
}

/* Nothing of it is there any more. */
static void destroy_training(state *s)
{
    zro_optim_destroy(s->twin.optim);
    zro_optim_destroy(s->rig.optim[0]);
    zro_ddp_destroy(s->rig.ddp);
    s->twin.optim = s->rig.optim[0] = NULL;
    s->rig.ddp = NULL;
    s->has_optim = 0;
}

/* Its peers wait for its buckets, or in their step for its gradients. */
static void leave_iteration(state *s, uint64_t random)
{
    zro_status st = zro_ddp_forward(s->rig.ddp);

    for (size_t i = 0; st == ZRO_OK && i < random % (s->rig.n + 1); i++) {
        memset(s->rig.params[i].grad, 0, s->rig.count[i] * sizeof(float));
        st = zro_ddp_grad_ready(s->rig.ddp, i);
    }
    CHECK_OK(st);
    if (random >> 20 & 1) {
        zro_optim_destroy(s->rig.optim[0]);
        s->rig.optim[0] = NULL;
    }
    zro_ddp_destroy(s->rig.ddp);
    s->rig.ddp = NULL;
    destroy_training(s);
}

static _Noreturn void child_calls(state *s)
{
    zro_optim *optim = s->rig.optim[0] != NULL ? s->rig.optim[0] : s->twin.optim;
    zro_memory *memory;
    zro_group *group;
    float x = 1;
    int ok = zro_barrier(s->group) == ZRO_ERR_STATE && zro_all_reduce(s->group, &x, 1, ZRO_F32, ZRO_SUM) == ZRO_ERR_STATE;

    ok &= zro_optim_step(optim, NULL) == ZRO_ERR_STATE && zro_optim_publish(optim) == ZRO_ERR_STATE;
    ok &= s->rig.ddp == NULL
          || (zro_ddp_forward(s->rig.ddp) == ZRO_ERR_STATE && zro_ddp_backward_end(s->rig.ddp) == ZRO_ERR_STATE);
    ok &= zro_group_duplicate(s->group, &group) == ZRO_ERR_STATE;
    ok &= zro_memory_alloc(s->group, ZRO_MEMORY_EACH, 100, &memory) == ZRO_ERR_STATE;
    destroy_training(s);
    zro_memory_free(s->memory[0]);
    zro_group_destroy(s->group);
    _exit(ok ? 0 : 1);
}

static void leave_child(void)
{
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid == 0) {
        nap(300);
        _exit(0);
    }
}

static void change_job(const trial *x, zt_job *job)
{
    const int n = zro_group_size(job->group);

    if (x->fault == OTHER_CALL)
        job->call = ZT_BARRIER;
    else if (x->fault == OTHER_COUNT)
        job->count /= 2;
    else if (x->fault == OTHER_ROOT)
        job->root = (job->root + 1) % n;
    else if (x->fault == OTHER_TYPE)
        job->dtype = ZRO_I32;
}

/* What the culprit does at the operation of the fault, before it. */
static void go_wrong(zt_rank *t, const trial *x, state *s)
{
    uint64_t random = zt_mix(x->random, 21);
    int status = 1;
    pid_t pid;

    atomic_fetch_add(&x->tally->number[HAPPENED], 1);
    if (x->at_a_point) {
        s->plan.action = x->fault == KILL ? ZRO__POINT_KILL : ZRO__POINT_STOP;
        s->plan.nth = 1 + (long)zt_below(&random, 25);
        zro__point_plan_set(&s->plan);
    }
    announce(t);
    switch (x->fault) {
    case EXIT:
        exit((int)zt_below(&random, 2) * 3);
    case QUIT:
        _exit((int)zt_below(&random, 2) * 3);
    case EXEC:
        execl("/bin/sleep", "sleep", "0.3", (char *)NULL);
        zt_fail(__FILE__, __LINE__, "there is no /bin/sleep");
        break;
    case CHILD_CALLS:
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            child_calls(s);
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
        break;
    case CHILD_LIVES:
        leave_child();
        raise(SIGKILL);
        break;
    case CLOSE:
        closefrom(3);
        break;
    case DESTROY_GROUP:
        zro_group_destroy(s->group);
        s->group = NULL;
        s->has_group = 0;
        break;
    case DESTROY_OPTIM:
        destroy_training(s);
        break;
    case DESTROY_DDP:
        leave_iteration(s, zt_next(&random));
        break;
    default:
        break;
    }
}

/* ---- a rank ---- */

static size_t room_bytes(const zt_rank *t, const trial *x)
{
    return (x->most + 2) * (size_t)t->size * 8 + 2 * ZT_ROOM_MARGIN;
}

/* Parameters and gradients handed out, or the program's own. */
static rig_mode rig_of(const trial *x)
{
    uint64_t random = zt_mix(x->random, 51);
    rig_mode mode = { .memory = (rig_memory)zt_below(&random, RIG_MEMORIES), .optimizers = 1, .bucket_bytes = 20000 };

    mode.leaves = (int)zt_below(&random, 2);
    mode.clip_norm = zt_below(&random, 4) == 0 ? 1 : 0;
    mode.hook = zt_below(&random, 6) == 0 ? rig_hook : NULL;
    return mode;
}

/* An iteration. */
static zro_status train(rig *g)
{
    zro_status st = rig_backward(g);

    return st == ZRO_OK ? rig_rest(g) : st;
}

static void set_up(zt_rank *t, const trial *x, state *s)
{
    const twin_spec specs[] = { { 5, ZRO_F32, ZRO_F32, 0 },
                                { 3000, ZRO_F32, ZRO_F32, 0 },
                                { x->most / 4 + 1, ZRO_F32, ZRO_F32, 0 } };
    const size_t lengths[] = { specs[0].count, specs[1].count, specs[2].count };
    twin_mode mode = { x->place, ZRO_PARTITION_FLAT, ZRO_OFF };
    int others[MOST_RANKS], n = 0;

    memset(s, 0, sizeof *s);
    CHECK_OK(zro_group_duplicate(t->group, &s->group));
    for (int i = 0; i < 2; i++)
        CHECK_OK(zro_memory_alloc(s->group, ZRO_MEMORY_EACH, room_bytes(t, x), &s->memory[i]));
    for (int r = 0; r < t->size; r++)
        if (r != x->culprit)
            others[n++] = r;
    CHECK_OK(zro_group_create_sub(t->group, others, n, &s->others));
    if (x->uses_ddp) {
        rig_init(&s->rig, t, t->group, rig_of(x), lengths, 3, x->random);
        rig_create(&s->rig);
    } else {
        twin_init(&s->twin, t, mode, specs, 3);
        twin_create(&s->twin, zro_rule_adam(), NULL, NULL, 0);
    }
    s->has_group = s->has_optim = 1;
    zt_meet(t);
    trials_set_timeout(s->group, x->ms);
    if (x->uses_ddp)
        rig_set_timeout(&s->rig, x->ms);
    else
        trials_set_timeout(s->twin.optim->group, x->ms);
}

static void tear_down(state *s)
{
    zro_group_destroy(s->group);
    zro_group_destroy(s->others);
    twin_free(&s->twin);
    rig_free(&s->rig);
    zro_memory_free(s->memory[0]);
    zro_memory_free(s->memory[1]);
}

static zro_status carry_out(zt_rank *t, const trial *x, state *s, int i, op what)
{
    if (what == STEP)
        return x->uses_ddp ? train(&s->rig) : zro_optim_step(s->twin.optim, NULL);
    if (what == AVERAGE)
        return reduce_gradients(x, s);
    if (what == DUPLICATE)
        return duplicate(s);
    if (what == MEMORY)
        return allocate(x, s, i);
    if (what == OPTIMIZER)
        return make_optimizer(s);
    return call_job(t, x, s, what == SUBMITTED);
}

/* Whether the text has "rank N", or N among those that it calls missing. */
static int names(const char *text, int rank)
{
    const char *p = strstr(text, "missing: ");
    char name[32];
    int n, used;

    snprintf(name, sizeof name, "rank %d", rank);
    if (strstr(text, name) != NULL)
        return 1;
    for (p = p != NULL ? p + strlen("missing: ") : ""; sscanf(p, "%d%n", &n, &used) == 1; p += strspn(p, ", ")) {
        if (n == rank)
            return 1;
        p += used;
    }
    return 0;
}

static void note_outcome(zt_rank *t, const trial *x, const state *s, int i, op what, zro_status st, uint64_t took,
                         uint64_t delayed)
{
    outcome *o = &x->record->of[t->rank][i];

    o->op = (int32_t)what;
    o->status = (int32_t)st;
    o->ms = (int32_t)((took > delayed ? took - delayed : 0) / 1000000);
    snprintf(o->what, sizeof o->what, "%s", what <= SUBMITTED ? zt_call_name(s->job.call) : op_names[what]);
    if (delayed / 1000000 > x->ms / 4)
        atomic_store(&x->record->slow, 1);
    atomic_fetch_add(&x->tally->number[st == ZRO_OK ? CALLS_OK : CALLS_FAILED], 1);
    if (st == ZRO_OK)
        return;
    snprintf(o->text, sizeof o->text, "%s", zro_last_error());
    o->named = names(zro_last_error(), x->culprit);
}

/* One operation of the script.  What a rank computes by itself counts as slow if it takes long. */
static void run_op(zt_rank *t, const trial *x, state *s, int i, uint64_t *ended)
{
    const int wrong = t->rank == x->culprit && i >= x->at,
              changed = wrong && i == x->at && x->fault >= OTHER_CALL && x->fault <= OTHER_TYPE;
    const op what = op_at(x, i);
    uint64_t began, delayed;
    zro_status st;

    if (what <= SUBMITTED && (s->has_group || t->rank != x->culprit))
        make_job(t, x, s, i, s->group, 0);
    if (what == STEP && !x->uses_ddp)
        make_gradients(x, &s->twin, i);
    if (changed)
        change_job(x, &s->job);
    if (t->rank == x->culprit && i == x->at)
        go_wrong(t, x, s);
    if (what == STEP ? !s->has_optim : !s->has_group)
        return;
    began = now_ns();
    if ((began - *ended) / 1000000 > x->ms / 4 && !wrong)
        atomic_store(&x->record->slow, 1);
    delayed = delayed_ns();
    if (wrong)
        set_limit(x->fault, 1);
    st = carry_out(t, x, s, i, what);
    if (wrong)
        set_limit(x->fault, 0);
    *ended = now_ns();
    delayed = delayed_ns() - delayed;
    note_outcome(t, x, s, i, what, st, *ended - began, (int64_t)delayed > 0 ? delayed : 0);
    if (wrong && i == x->at) {
        zro__point_plan_set(NULL);
        if (x->at_a_point && x->fault != PAUSE && atomic_load(&s->plan.hits) < s->plan.nth)
            raise(x->fault == KILL ? SIGKILL : SIGSTOP); /* it has passed fewer points */
        if (x->fault <= PAUSE && !x->at_a_point)
            zt_await(t, &t->shared->flag[SIGNALLED], 1);
    }
    if (st == ZRO_OK && what == STEP && x->uses_ddp) {
        rig_check_gradients(&s->rig, 0, (size_t)s->rig.mode.leaves);
        rig_step_reference(&s->rig);
        rig_check(&s->rig);
    } else if (st == ZRO_OK && what == STEP) {
        twin_check(&s->twin);
    }
    if (st == ZRO_OK && what <= SUBMITTED && !changed)
        zt_job_check(&s->job);
    if (what <= SUBMITTED)
        zt_job_free(&s->job);
}

/* A call of the survivors. */
static void call_without(zt_rank *t, const trial *x, state *s, int i, int may_refuse)
{
    zro_status st;
    char name[32];
    int slow;

    make_job(t, x, s, i, s->others, 7000);
    meet(t, MEET_SURVIVORS, t->size - 1);
    slow = (int)atomic_load(&x->record->slow);
    st = zt_job_call(&s->job);
    if (st == ZRO_OK) {
        zt_job_check(&s->job);
    } else {
        snprintf(name, sizeof name, "rank %d", x->culprit);
        CHECK((may_refuse || slow) && (st == ZRO_ERR_STATE || st == ZRO_ERR_PEER));
        if (st == ZRO_ERR_STATE && !slow) /* PEER names the rank that refuses; any rank may be late on a slow machine */
            CHECK_TEXT(name);
    }
    zt_job_free(&s->job);
}

/* Groups without the culprit work.  Arrays that it may still write are refused, with its number, and not for ever: once more when
 * it has left, because they may have been filled before that. */
static void go_on_without(zt_rank *t, const trial *x, state *s)
{
    const int held = (faults[x->fault].flags & HOLDS) != 0;

    for (int i = 0; i < AFTERWARDS; i++)
        call_without(t, x, s, i, held);
    atomic_fetch_add(&t->shared->flag[SURVIVORS_DONE], 1);
    if (held)
        zt_await(t, &t->shared->flag[HOLD_OVER], 1);
    for (int i = 0; i < 4; i++) {
        zro_status st = zro_all_reduce(s->others, zro_memory_data(s->memory[i % 2]), room_bytes(t, x), ZRO_U8, ZRO_SUM);

        CHECK(st == ZRO_OK || (i < 2 && (st == ZRO_ERR_STATE || st == ZRO_ERR_PEER)));
    }
    for (int i = 0; i < AFTERWARDS; i++)
        call_without(t, x, s, AFTERWARDS + i, 0);
    CHECK_OK(zro_group_status(s->others));
}

static void one_rank(zt_rank *t)
{
    const trial *x = t->user;
    const int is_culprit = t->rank == x->culprit,
              stays_away = (faults[x->fault].flags & (DIES | HOLDS)) != 0 || x->fault == FATAL_BYTES;
    state *s = malloc(sizeof *s);
    zt_held before = zt_held_now();
    uint64_t ended;

    CHECK(s != NULL);
    set_up(t, x, s);
    if (is_culprit && (x->fault == KILL || x->fault == STOP || x->fault == CHILD_LIVES))
        zt_expect_lost(t, t->rank);
    if (is_culprit && (x->fault == EXIT || x->fault == QUIT || x->fault == EXEC || x->fault == FATAL_BYTES))
        zt_expect_anything(t, t->rank);
    ended = now_ns();
    for (int i = 0; i < x->ops; i++)
        run_op(t, x, s, i, &ended);
    if (is_culprit && (x->fault == KILL || x->fault == STOP))
        zt_await(t, &t->shared->flag[CULPRIT_DONE], 1); /* never: it comes from outside */
    if (!is_culprit)
        go_on_without(t, x, s);
    /* Who destroys a group leaves it: not before all have what they want of it. */
    if (!stays_away)
        meet(t, MEET_LIVING, t->size);
    else if (!is_culprit)
        meet(t, MEET_LIVING, t->size - 1);
    tear_down(s);
    free(s);
    if (!(is_culprit && x->fault == CLOSE))
        CHECK_HELD(before);
    if (is_culprit)
        atomic_store(&t->shared->flag[CULPRIT_DONE], 1);
}

/* ---- the process that stops and kills ---- */

static void continue_it(zt_rank *t, pid_t pid)
{
    while (atomic_load(&t->shared->flag[CULPRIT_DONE]) == 0 && !atomic_load(&t->shared->failed) && kill(pid, SIGCONT) == 0)
        nap(1);
}

/* It is not there, or waits for its parent to look, and its last thread has ended: the one that holds its life word may be later
 * than the first. */
static int is_dead(pid_t pid)
{
    char path[64], line[512] = "", *end, now = 'Z';
    long threads = 0;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    file = fopen(path, "re");
    if (file == NULL)
        return 1;
    end = fgets(line, sizeof line, file) != NULL ? strrchr(line, ')') : NULL;
    fclose(file);
    if (end == NULL)
        return 1;
    CHECK(sscanf(end + 2, "%c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld", &now, &threads) == 2);
    return (now == 'Z' || now == 'X') && threads <= 1;
}

static _Noreturn void signaller(zt_rank *t, const trial *x)
{
    uint64_t random = zt_mix(x->random, 31), until;
    pid_t pid;

    zt_await(t, &t->shared->flag[BEGUN], 1);
    pid = (pid_t)atomic_load(&t->shared->number[PROCESS]);
    until = now_ns() + zt_below(&random, zt_below(&random, 2) == 0 ? 300000 : 4000000);
    if (!x->at_a_point) {
        while (now_ns() < until) {
        }
        kill(pid, x->fault == KILL ? SIGKILL : SIGSTOP);
        atomic_store(&t->shared->flag[SIGNALLED], 1);
    }
    if (x->fault == PAUSE) {
        nap((long)zt_below(&random, 2 * x->ms));
        continue_it(t, pid);
    }
    if (x->fault == STOP || x->fault == STOP_LONG)
        zt_await(t, &t->shared->flag[SURVIVORS_DONE], (unsigned)x->ranks - 1);
    if (x->fault == STOP) {
        kill(pid, SIGKILL);
        while (!is_dead(pid))
            nap(1);
    }
    if (x->fault == STOP_LONG)
        continue_it(t, pid);
    atomic_store(&t->shared->flag[HOLD_OVER], 1);
    _exit(0);
}

/* ---- the judge ---- */

/* What all ranks got from each operation, then the accusation. */
static _Noreturn void accuse(const trial *x, int rank, int i, const char *why)
{
    const outcome *o = &x->record->of[rank][i];

    for (int k = 0; k < x->ops; k++) {
        printf("    operation %d, %s:", k, op_names[op_at(x, k)]);
        for (int r = 0; r < x->ranks; r++) {
            const outcome *other = &x->record->of[r][k];

            printf(" %s %s", other->what, other->what[0] != '\0' ? zro_status_name((zro_status)other->status) : "-");
            if (r == x->culprit && other->status != ZRO_OK)
                printf(" (%s)", other->text);
        }
        printf("\n");
    }
    fflush(stdout);
    zt_fail(__FILE__, __LINE__,
            "fault %llu: rank %d of %d %s at operation %d of %d; deadline %d ms%s: %s\n    rank %d, operation %d: %s is %s "
            "after %d ms: %s",
            (unsigned long long)x->number, x->culprit, x->ranks, faults[x->fault].name, x->at, x->ops, (int)x->ms,
            atomic_load(&x->record->slow) ? ", slow" : "", why, rank, i, o->what, zro_status_name((zro_status)o->status),
            (int)o->ms, o->text);
}

/* The culprit could not start the group's thread, which is a refusal on that rank alone: then it is an operation behind. */
static int is_behind(const trial *x, int i)
{
    for (int k = x->at; k <= i; k++)
        if (op_at(x, k) == SUBMITTED && x->record->of[x->culprit][k].status == ZRO_ERR_SYSTEM)
            return (faults[x->fault].flags & CREATES) != 0;
    return 0;
}

static void judge(const trial *x)
{
    const int slow = (int)atomic_load(&x->record->slow);

    for (int r = 0; r < x->ranks; r++)
        for (int i = 0; i < x->ops && r != x->culprit; i++) {
            const outcome *o = &x->record->of[r][i];
            const int behind = is_behind(x, i);
            unsigned allowed = faults[x->fault].allowed;
            int due = i == x->ops - 2 ? faults[x->fault].last_call : i == x->ops - 1 ? faults[x->fault].last_step : -1;

            if ((uint64_t)o->ms > x->ms + GRACE_MS)
                accuse(x, r, i, "the call took too long");
            if (slow)
                allowed |= 1u << ZRO_ERR_TIMEOUT;
            if (behind)
                allowed |= 1u << ZRO_ERR_MISMATCH | 1u << ZRO_ERR_TIMEOUT;
            if (o->op == STEP && (allowed & (1u << ZRO_ERR_LOST | 1u << ZRO_ERR_TIMEOUT)) != 0)
                allowed |= 1u << ZRO_ERR_STATE; /* torn */
            if (o->status != ZRO_OK && (allowed >> o->status & 1) == 0)
                accuse(x, r, i, "this is not what can come of it");
            /* Whoever is slow to return from the operation before hears of it there. */
            if (o->status != ZRO_OK && i < x->at - 1 && !slow)
                accuse(x, r, i, "nothing had happened yet");
            if (o->status != ZRO_OK && !o->named && !behind
                && !(slow && (o->status == ZRO_ERR_TIMEOUT || o->status == ZRO_ERR_STATE)))
                accuse(x, r, i, "the rank at fault is not named");
            if (due >= 0 && o->status != due && !slow && !(o->op == STEP && due != ZRO_OK && o->status == ZRO_ERR_STATE))
                accuse(x, r, i, "the group should know by now");
        }
}

static void one_fault(zt_rank *t, uint64_t number)
{
    static const twin_place places[] = { TWIN_OWN, TWIN_GROUP, TWIN_ONCE, TWIN_EACH, TWIN_VIEWS };
    uint64_t random = zt_mix(number, 41);
    trial x = { .number = number, .random = zt_next(&random), .tally = t->user };
    zro_group_config config = zt_config();
    zt_held before;
    int status;
    pid_t pid;

    x.fault = (fault)zt_below(&random, FAULTS);
    if (ZT_SANITIZED && x.fault == FEW_PAGES)
        x.fault = FEW_FILES; /* the sanitizer needs pages itself */
    x.ranks = 2 + (int)zt_below(&random, MOST_RANKS - 1);
    x.culprit = (int)zt_below(&random, (uint64_t)x.ranks);
    x.ops = 8 + (int)zt_below(&random, MOST_OPS - 7);
    x.at = 1 + (int)zt_below(&random, (uint64_t)x.ops - 3);
    x.ms = 300 + zt_below(&random, 201);
    x.at_a_point = (x.fault <= PAUSE ? (int)zt_below(&random, 2) : 1) && x.fault <= PAUSE;
    x.most = (zt_below(&random, 8) == 0 ? MANY_ELEMENTS : ELEMENTS) / (size_t)x.ranks;
    if (x.most * (size_t)x.ranks > zt_opt.max_count)
        x.most = zt_opt.max_count / (size_t)x.ranks;
    x.place = places[zt_below(&random, 5)];
    x.uses_ddp = x.fault == DESTROY_DDP || zt_below(&random, 2) == 0;
    x.record = mmap(NULL, sizeof *x.record, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(x.record != MAP_FAILED);
    printf("fault %llu: rank %d of %d %s at operation %d of %d%s\n", (unsigned long long)number, x.culprit, x.ranks,
           faults[x.fault].name, x.at, x.ops, x.uses_ddp ? ", with a ddp" : "");
    config.timeout_ms = BASE_MS;
    before = zt_held_now();
    pid = x.fault <= PAUSE ? trials_fork() : -1;
    if (pid == 0)
        signaller(t, &x);
    zt_ranks(t, ZT_LOCAL, &config, x.ranks, one_rank, &x);
    if (pid > 0)
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK_HELD(before);
    judge(&x);
}

static void fault_loop(zt_rank *t)
{
#ifndef ZRO__POINTS
    zt_skip(t, "the library was built without ZRO__POINTS");
#endif
    trials_run(t, "faults", one_fault, (int)t->arg);
    zt_note(t, "%llu faults; the ranks' calls: %llu OK, %llu not", atomic_load(&t->shared->number[HAPPENED]),
            atomic_load(&t->shared->number[CALLS_OK]), atomic_load(&t->shared->number[CALLS_FAILED]));
}

const zt_case cases_fail_faults[] = {
    { "faults", fault_loop, 0, ZT_LOCAL, ZT_KILLS, 120, 0, 20 },
    { "faults_more", fault_loop, 0, ZT_LOCAL, ZT_KILLS | ZT_REST, 600, 0, 300 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
