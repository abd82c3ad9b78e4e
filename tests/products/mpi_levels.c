/* A program that brings its own MPI, with as much thread support as it asks for: levels single|funneled|serialized|multiple.
 *
 * What zro must leave alone: the program's communicators with their error handlers and attributes, Init and Finalize.  Every
 * rank pretends a machine of its own, so that MPI carries everything. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zro_mpi.h>

#define CHECK(condition)                                                                                                       \
    ((condition) ? (void)0                                                                                                     \
                 : (printf("%s:%d: %s: \"%s\"\n", __FILE__, __LINE__, #condition, zro_last_error()),                           \
                    MPI_Abort(MPI_COMM_WORLD, 1), (void)0))

enum { COUNT = 300000 };

static float x[COUNT], y[COUNT];

static void sum(zro_group *group)
{
    for (int i = 0; i < COUNT; i++)
        x[i] = 1;
    CHECK(zro_all_reduce(group, x, COUNT, ZRO_F32, ZRO_SUM) == ZRO_OK);
    CHECK(x[0] == (float)zro_group_size(group) && x[COUNT - 1] == x[0]);
}

static zro_status sum_submitted(void *group)
{
    zro_status st = ZRO_OK;

    for (int round = 0; round < 20 && st == ZRO_OK; round++) {
        for (int i = 0; i < COUNT; i++)
            y[i] = 2;
        st = zro_all_reduce(group, y, COUNT, ZRO_F32, ZRO_SUM);
    }
    return st;
}

/* ---- a ddp ---- */

enum { PARAMS = 3, ELEMENTS = 1000 };

static pthread_t caller;
static int calls_here, calls_elsewhere;

/* The average, and on which thread it is made. */
static zro_status average_and_note(void *user, zro_bucket *bucket)
{
    pthread_equal(pthread_self(), caller) ? calls_here++ : calls_elsewhere++;
    return zro_hook_all_reduce(user, bucket);
}

/* Buckets are averaged by the library's thread, or, where MPI is for the main thread alone, by the caller of backward_end. */
static void train(zro_group *group, int level, zro_hook_fn hook)
{
    static float data[PARAMS][ELEMENTS], grad[PARAMS][ELEMENTS];
    const size_t shape = ELEMENTS;
    const float size = (float)zro_group_size(group), rank = (float)zro_group_rank(group);
    zro_ddp_config config = ZRO_DDP_CONFIG_INIT;
    zro_optim_config attached = ZRO_OPTIM_CONFIG_INIT;
    zro_sgd_config sgd = ZRO_SGD_CONFIG_INIT;
    zro_param params[PARAMS];
    zro_param_group all = { .params = params, .n = PARAMS };
    zro_optim *optim;
    zro_ddp *ddp;

    caller = pthread_self();
    calls_here = calls_elsewhere = 0;
    for (int i = 0; i < PARAMS; i++) {
        for (int k = 0; k < ELEMENTS; k++)
            data[i][k] = rank == 0 ? 1 : 0;
        zro_param_make(&params[i], NULL, ZRO_F32, data[i], grad[i], 1, &shape);
        params[i].grad_present = 0;
    }
    config.bucket_bytes = 1;
    config.hook = hook;
    CHECK(zro_ddp_create(group, params, PARAMS, &config, &ddp) == ZRO_OK);
    sgd.lr = 1;
    attached.ddp = ddp;
    CHECK(zro_optim_create(group, &all, 1, zro_rule_sgd(), &sgd, &attached, &optim) == ZRO_OK);
    for (int round = 1; round <= 4; round++) {
        CHECK(zro_ddp_forward(ddp) == ZRO_OK);
        for (size_t i = PARAMS; i-- > 0;) {
            for (int k = 0; k < ELEMENTS; k++)
                grad[i][k] = 2 * rank; /* the average is size - 1 */
            CHECK(zro_ddp_grad_ready(ddp, i) == ZRO_OK);
        }
        CHECK(zro_ddp_backward_end(ddp) == ZRO_OK);
        CHECK(zro_optim_step(optim, NULL) == ZRO_OK);
        for (int i = 0; i < PARAMS; i++)
            CHECK(data[i][0] == 1 - (float)round * (size - 1) && data[i][ELEMENTS - 1] == data[i][0]);
    }
    CHECK(zro_ddp_check(ddp) == ZRO_OK);
    CHECK(hook == NULL || calls_here + calls_elsewhere == 4 * PARAMS);
    CHECK((level < MPI_THREAD_SERIALIZED && size > 1 ? calls_elsewhere : calls_here) == 0);
    zro_optim_destroy(optim);
    zro_ddp_destroy(ddp);
}

/* The error handler and an attribute of a communicator, as the program set them. */
typedef struct own {
    MPI_Comm comm;
    MPI_Errhandler handler;
    int key;
    char value;
} own;

static void own_handler(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    printf("the program's error handler was called: %d\n", *code);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void prepare(own *o, MPI_Comm comm)
{
    o->comm = comm;
    CHECK(MPI_Comm_create_errhandler(own_handler, &o->handler) == MPI_SUCCESS);
    CHECK(MPI_Comm_set_errhandler(comm, o->handler) == MPI_SUCCESS);
    CHECK(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &o->key, NULL) == MPI_SUCCESS);
    CHECK(MPI_Comm_set_attr(comm, o->key, &o->value) == MPI_SUCCESS);
}

static void check_untouched(const own *o)
{
    MPI_Errhandler now;
    void *value = NULL;
    int found = 0, done = 1, one = 1, all = 0, size;

    CHECK(MPI_Comm_get_errhandler(o->comm, &now) == MPI_SUCCESS && now == o->handler);
    MPI_Errhandler_free(&now);
    CHECK(MPI_Comm_get_attr(o->comm, o->key, &value, &found) == MPI_SUCCESS && found && value == &o->value);
    CHECK(MPI_Finalized(&done) == MPI_SUCCESS && !done);
    CHECK(MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, o->comm) == MPI_SUCCESS);
    CHECK(MPI_Comm_size(o->comm, &size) == MPI_SUCCESS && all == size);
}

/* With less than SERIALIZED a group that has links is for the main thread alone. */
static void check_submit(zro_group *group, int level)
{
    zro_work *work = (zro_work *)1;
    zro_status st = zro_submit(group, sum_submitted, group, &work);
    int one = 1, all = 0, done = 0;

    if (level < MPI_THREAD_SERIALIZED && zro_group_size(group) > 1) {
        CHECK(st == ZRO_ERR_UNSUPPORTED || st == ZRO_ERR_STATE);
        CHECK(work == NULL && strstr(zro_last_error(), "MPI_THREAD_SERIALIZED") != NULL);
        CHECK(zro_group_status(group) == ZRO_OK);
        return;
    }
    CHECK(st == ZRO_OK);
    /* With MULTIPLE the program may talk meanwhile. */
    while (level == MPI_THREAD_MULTIPLE && !done) {
        CHECK(MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS);
        CHECK(zro_work_test(work, &done) == ZRO_OK);
        /* All ranks leave the loop together. */
        CHECK(MPI_Allreduce(MPI_IN_PLACE, &done, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD) == MPI_SUCCESS);
    }
    CHECK(zro_work_wait(work) == ZRO_OK);
    CHECK(y[0] == 2 * (float)zro_group_size(group));
    zro_work_destroy(work);
}

/* Ranks of one machine share memory, and there any level will do. */
static void check_shared(void)
{
    zro_group *group;
    zro_work *work;

    CHECK(zro_mpi_group_create(NULL, MPI_COMM_WORLD, &group) == ZRO_OK);
    CHECK(zro_submit(group, sum_submitted, group, &work) == ZRO_OK);
    CHECK(zro_work_wait(work) == ZRO_OK);
    zro_work_destroy(work);
    zro_group_destroy(group);
}

int main(int argc, char **argv)
{
    static const char *const names[] = { "single", "funneled", "serialized", "multiple" };
    static const int levels[] = { MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE };
    zro_group_config config = ZRO_GROUP_CONFIG_INIT;
    zro_group *group, *second;
    MPI_Comm comm;
    own world, mine;
    int asked = 0, level, rank;

    while (asked < 3 && argc > 1 && strcmp(argv[1], names[asked]) != 0)
        asked++;
    CHECK(zro_mpi_group_create(&config, MPI_COMM_WORLD, &group) == ZRO_ERR_STATE && group == NULL); /* before Init */
    if (asked == 0)
        MPI_Init(&argc, &argv);
    else
        MPI_Init_thread(&argc, &argv, levels[asked], &level);
    MPI_Query_thread(&level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    prepare(&world, MPI_COMM_WORLD);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    prepare(&mine, comm);
    config.machine = rank;
    config.timeout_ms = 30000;
    CHECK(zro_mpi_group_create(&config, comm, &group) == ZRO_OK);
    check_untouched(&mine);
    CHECK(zro_mpi_group_create(&config, comm, &second) == ZRO_OK);
    MPI_Comm_free(&comm); /* zro has its own */
    sum(group);
    sum(second);
    check_submit(group, level);
    train(group, level, NULL);
    train(group, level, average_and_note);
    sum(second);
    sum(group);
    zro_group_destroy(second);
    sum(group);
    zro_group_destroy(group);
    check_shared();
    check_untouched(&world);
    MPI_Errhandler_free(&mine.handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Finalize();
    CHECK(zro_mpi_group_create(&config, MPI_COMM_WORLD, &group) == ZRO_ERR_STATE && group == NULL); /* after Finalize */
    if (rank == 0)
        printf("%s passed\n", names[asked]);
    return 0;
}
