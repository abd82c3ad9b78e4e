/* What a program can get wrong: each has its text on the right ranks, and the ddp can be used afterwards. */
#include <math.h>
#include <string.h>

#include "course.h"
#include "reference.h"
#include "rig.h"
#include "zt/list.h"

static const char momentum[] = "sgd lr=0.1 momentum=0.9 weight_decay=0.01";

/* ---- calls in the wrong place ---- */

static void calls_without_ddp(void)
{
    CHECK_STATUS(zro_ddp_forward(NULL), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_ddp_grad_ready(NULL, 0), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_ddp_backward_end(NULL), ZRO_ERR_INVALID);
    CHECK_STATUS(zro_ddp_average(NULL), ZRO_ERR_INVALID);
    CHECK_TEXT("the ddp is NULL");
    zro_ddp_destroy(NULL);
}

static void wrong_calls(zt_rank *t)
{
    static const size_t beyond[] = { 0, COURSE_MAX };

    calls_without_ddp();
    for (int mode = 0; mode < COURSE_MODES; mode++) {
        course r;

        course_init(&r, t, (course_mode)mode, COURSE_MAX);
        course_create(&r, momentum, NULL);
        for (int k = 0; k < 3; k++) {
            CHECK_STATUS(zro_ddp_backward_end(r.ddp), ZRO_ERR_STATE);
            CHECK_TEXT("zro_ddp_forward");
            CHECK_STATUS(zro_ddp_grad_ready(r.ddp, 0), ZRO_ERR_STATE);
            CHECK_TEXT("parameter a: it became ready outside of an iteration");
            CHECK_STATUS(zro_ddp_no_sync(r.ddp, (zro_switch)7), ZRO_ERR_INVALID);
            CHECK_STATUS(zro_ddp_set_weight(r.ddp, 1), ZRO_ERR_STATE);
            CHECK_TEXT("weighted");
            r.params[1].requires_grad = k == 1 ? 0 : 1;
            CHECK_OK(zro_ddp_forward(r.ddp));
            CHECK_STATUS(zro_ddp_forward(r.ddp), ZRO_ERR_STATE);
            CHECK_TEXT("zro_ddp_backward_end");
            course_batch(&r);
            if (t->rank == 0) { /* the others have buckets under way */
                CHECK_STATUS(zro_ddp_set_hook(r.ddp, zro_hook_none, NULL), ZRO_ERR_STATE);
                CHECK_TEXT("zro_ddp_backward_end");
            }
            CHECK_STATUS(zro_ddp_grad_ready(r.ddp, COURSE_MAX), ZRO_ERR_INVALID);
            CHECK_TEXT("there is no parameter 12");
            CHECK_STATUS(zro_ddp_grads_ready(r.ddp, NULL, 1), ZRO_ERR_INVALID);
            CHECK_STATUS(zro_ddp_unused(r.ddp, 0), ZRO_ERR_STATE);
            CHECK_TEXT("find_unused");
            if (k == 1) {
                CHECK_STATUS(zro_ddp_grad_ready(r.ddp, 1), ZRO_ERR_STATE);
                CHECK_TEXT("parameter b: it became ready although it is frozen");
            }
            for (size_t i = COURSE_MAX - 1; i > 0; i--)
                if (r.params[i].requires_grad != 0)
                    CHECK_OK(zro_ddp_grads_ready(r.ddp, &i, 1));
            CHECK_STATUS(zro_ddp_grads_ready(r.ddp, beyond, 2), ZRO_ERR_INVALID);
            CHECK_STATUS(zro_ddp_grad_ready(r.ddp, 0), ZRO_ERR_STATE);
            CHECK_TEXT("parameter a: it became ready twice");
            CHECK_OK(zro_ddp_backward_end(r.ddp));
            course_expect(&r);
            course_step(&r);
        }
        course_free(&r);
    }
}

/* ---- attached optimizers ---- */

static void forget(course *r)
{
    CHECK_OK(zro_optim_zero_grad(r->optim, ZRO_ZERO_LEAVE));
    memset(r->has, 0, sizeof r->has);
}

/* Before the gradients are averaged, and when they are not consumed. */
static void wrong_steps_of(course *r)
{
    CHECK_STATUS(zro_optim_step(r->optim, NULL), ZRO_ERR_STATE);
    CHECK_TEXT("no gradients to consume");
    CHECK_OK(zro_ddp_forward(r->ddp));
    CHECK_STATUS(zro_ddp_average(r->ddp), ZRO_ERR_STATE);
    CHECK_TEXT("zro_ddp_backward_end");
    CHECK_STATUS(zro_optim_step(r->optim, NULL), ZRO_ERR_STATE);
    CHECK_TEXT("zro_ddp_backward_end");
    course_batch(r);
    course_ready(r);
    CHECK_OK(zro_ddp_backward_end(r->ddp));
    CHECK_STATUS(zro_clip_grad_norm(r->optim, 1, 2, NULL), ZRO_ERR_STATE);
    CHECK_TEXT("zro_ddp_average");
    CHECK_STATUS(zro_clip_grad_value(r->optim, 1), ZRO_ERR_STATE);
    CHECK_STATUS(zro_optim_grad_norm(r->optim, 2, ZRO_OFF, NULL), ZRO_ERR_STATE);
    CHECK_TEXT("zro_ddp_average");
    CHECK_STATUS(zro_ddp_forward(r->ddp), ZRO_ERR_STATE);
    CHECK_TEXT("zro_optim_step");
    CHECK_TEXT("zro_ddp_average");
    CHECK_TEXT("zro_optim_zero_grad");
    course_expect(r);
    course_step(r);
    CHECK_STATUS(zro_optim_step(r->optim, NULL), ZRO_ERR_STATE);
    course_backward(r); /* dropped */
    forget(r);
    CHECK_STATUS(zro_optim_step(r->optim, NULL), ZRO_ERR_STATE);
    course_train(r, 1);
    course_backward(r); /* averaged, and not consumed: that is the program's business */
    CHECK_OK(zro_ddp_average(r->ddp));
    CHECK_OK(zro_ddp_forward(r->ddp));
    CHECK_OK(zro_ddp_no_sync(r->ddp, ZRO_OFF));
    forget(r);
    course_batch(r);
    course_ready(r);
    CHECK_OK(zro_ddp_backward_end(r->ddp));
    course_expect(r);
    course_step(r);
}

static void wrong_after_no_sync(course *r)
{
    course_train(r, 1);
    CHECK_OK(zro_ddp_no_sync(r->ddp, ZRO_ON));
    course_backward(r);
    CHECK_STATUS(zro_optim_step(r->optim, NULL), ZRO_ERR_STATE);
    CHECK_TEXT("no_sync");
    CHECK_STATUS(zro_ddp_average(r->ddp), ZRO_ERR_STATE);
    CHECK_TEXT("no_sync");
    CHECK_OK(zro_ddp_no_sync(r->ddp, ZRO_OFF));
    course_train(r, 1);
}

/* What zro handed out must stay; what is the program's may move between iterations. */
static void wrong_places(course *r)
{
    const int handed = r->mode == COURSE_HANDED || r->mode == COURSE_VIEWS;
    static _Thread_local float elsewhere[COURSE_ELEMENTS];
    void *grad = r->params[2].grad;

    CHECK_OK(zro_ddp_forward(r->ddp));
    r->params[2].grad = elsewhere;
    if (handed) {
        CHECK_STATUS(zro_ddp_grad_ready(r->ddp, 2), ZRO_ERR_STATE);
        CHECK_TEXT("parameter c: its gradient was moved");
        r->params[2].grad = grad;
    }
    course_batch(r);
    course_ready(r);
    CHECK_OK(zro_ddp_backward_end(r->ddp));
    course_expect(r);
    course_step(r);
    CHECK_OK(zro_ddp_forward(r->ddp));
    r->params[2].grad = NULL;
    CHECK_STATUS(zro_ddp_grad_ready(r->ddp, 2), ZRO_ERR_INVALID);
    CHECK_TEXT("parameter c: it became ready, but its grad is NULL");
    r->params[2].grad = grad;
    course_batch(r);
    course_ready(r);
    CHECK_OK(zro_ddp_backward_end(r->ddp));
    course_expect(r);
    course_step(r);
}

static void wrong_steps(zt_rank *t)
{
    for (int mode = COURSE_IN_PLACE; mode < COURSE_MODES; mode++) {
        course r;

        course_init(&r, t, (course_mode)mode, COURSE_MAX);
        course_create(&r, momentum, NULL);
        wrong_steps_of(&r);
        wrong_after_no_sync(&r);
        wrong_places(&r);
        course_free(&r);
    }
}

/* Ranks whose values differ: nothing has happened, and the step can be made again. */
static void different_values(zt_rank *t)
{
    for (int mode = COURSE_IN_PLACE; mode < COURSE_MODES; mode++)
        for (int clips = 0; clips < 2; clips++) {
            zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
            course r;

            config.clip_norm = clips ? 0.5 : 0;
            course_init(&r, t, (course_mode)mode, COURSE_MAX);
            course_create(&r, momentum, &config);
            for (int k = 0; k < 3; k++) {
                course_backward(&r);
                course_expect(&r);
                if (t->rank == t->size - 1)
                    CHECK_OK(zro_optim_set_value(r.optim, 0, "lr", 0.5));
                CHECK_STATUS(zro_optim_step(r.optim, NULL), ZRO_ERR_MISMATCH);
                CHECK_TEXT("lr = 0.5");
                CHECK_TEXT("lr = 0.1");
                CHECK_OK(zro_optim_set_value(r.optim, 0, "lr", 0.1));
                course_step(&r);
            }
            course_free(&r);
        }
}

/* ---- creation ---- */

enum {
    NUMBER,
    NAME,
    SHAPE,
    TYPE,
    DEVICE,
    BYTES,
    UNUSED,
    STATIC,
    WEIGHTED,
    HOOK,
    BUFFERS,
    BUFFER,
    VIEWS,
    STAGED,
    LIMITS,
    LIMIT,
    DIFFERENCES
};

/* What one rank passes, and the parts of the text that all of them get. */
static void differ(course *r, int what, zro_param *buffer, const char **one, const char **other)
{
    static const char *const texts[DIFFERENCES][2] = {
        [NUMBER] = { "12 parameters", "11 parameters" },
        [NAME] = { "parameter c:", "parameter other:" },
        [SHAPE] = { "parameter b: shape 5;", "parameter b: shape 5x1" },
        [TYPE] = { "parameter h:", "bf16" },
        [DEVICE] = { "parameter k:", "device 3" },
        [BYTES] = { "bucket_bytes 1024", "bucket_bytes 99" },
        [UNUSED] = { "find_unused off", "find_unused on" },
        [STATIC] = { "static_graph off", "static_graph on" },
        [WEIGHTED] = { "weighted off", "weighted on" },
        [HOOK] = { "hook off", "hook on" },
        [BUFFERS] = { "1 buffers", "0 buffers" },
        [BUFFER] = { "buffer running", "buffer walking" },
        [VIEWS] = { "gradient_as_bucket_view off", "gradient_as_bucket_view on" },
        [STAGED] = { "stage_grads off", "stage_grads on" },
        [LIMITS] = { "2 bucket_limits", "1 bucket_limits" },
        [LIMIT] = { "bucket_limits[1] = 200", "bucket_limits[1] = 300" },
    };

    static const size_t limits[] = { 100, 200 }, other_limits[] = { 100, 300 };

    *one = texts[what][0];
    *other = texts[what][1];
    r->config.bucket_bytes = what < LIMITS ? 1024 : 0;
    r->config.bucket_limits = limits;
    r->config.n_bucket_limits = what < LIMITS ? 0 : 2;
    if (r->t->rank != r->t->size - 1)
        return;
    r->n -= what == NUMBER;
    r->params[2].name = what == NAME ? "other" : "c";
    r->params[1].n_dims = what == SHAPE ? 2 : 1;
    r->params[1].shape[1] = what == SHAPE ? 1 : 0;
    r->params[7].dtype = what == TYPE ? ZRO_BF16 : ZRO_F32;
    r->params[10].device = what == DEVICE ? 3 : 0;
    r->config.bucket_bytes = what == BYTES ? 99 : r->config.bucket_bytes;
    r->config.n_bucket_limits -= what == LIMITS;
    r->config.bucket_limits = what == LIMIT ? other_limits : limits;
    r->config.find_unused = what == UNUSED ? ZRO_ON : ZRO_OFF;
    r->config.static_graph = what == STATIC ? ZRO_ON : ZRO_OFF;
    r->config.weighted = what == WEIGHTED ? ZRO_ON : ZRO_OFF;
    r->config.hook = what == HOOK ? zro_hook_none : NULL;
    r->config.n_buffers = what == BUFFERS ? 0 : 1;
    buffer->name = what == BUFFER ? "walking" : "running";
    r->config.gradient_as_bucket_view = what == VIEWS ? ZRO_ON : ZRO_OFF;
    r->config.stage_grads = what == STAGED ? ZRO_ON : ZRO_OFF;
}

static void different_arguments(zt_rank *t)
{
    const int is_last = t->rank == t->size - 1;
    zro_param buffer = ZRO_PARAM_INIT;
    float running = 1;
    course r;

    buffer.data = &running;
    buffer.shape[0] = 1;
    buffer.name = "running";
    course_init(&r, t, COURSE_SHARDED, COURSE_MAX);
    r.config.buffers = &buffer;
    r.config.n_buffers = 1;
    for (int what = 0; what < DIFFERENCES; what++) {
        const char *one, *other;

        differ(&r, what, &buffer, &one, &other);
        CHECK_STATUS(zro_ddp_create(t->group, r.params, r.n, &r.config, &r.ddp), ZRO_ERR_MISMATCH);
        CHECK(r.ddp == NULL);
        CHECK_TEXT(one);
        CHECK_TEXT(other);
        r.n = COURSE_MAX;
    }
    differ(&r, HOOK, &buffer, &(const char *){ NULL }, &(const char *){ NULL });
    r.config.hook = NULL;
    CHECK_STATUS(zro_ddp_create(t->group, is_last ? NULL : r.params, r.n, &r.config, &r.ddp),
                 is_last ? ZRO_ERR_INVALID : ZRO_ERR_PEER);
    CHECK_TEXT("no parameters");
    course_create(&r, momentum, NULL);
    course_train(&r, 2);
    course_free(&r);
}

/* ---- attaching ---- */

static zro_status attach(course *r, zro_group *group, zro_param *params, zro_optim **out)
{
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_param_group all = ZRO_PARAM_GROUP_INIT;

    all.params = params;
    all.n = r->n;
    config.ddp = r->ddp;
    return zro_optim_create(group, &all, 1, zro_rule_adam(), NULL, &config, out);
}

static void wrong_attachments(zt_rank *t)
{
    for (int mode = COURSE_ALONE; mode <= COURSE_SHARDED; mode++) {
        const int is_last = t->rank == t->size - 1;
        int turned[COURSE_RANKS];
        zro_param others[COURSE_MAX];
        zro_group *group = NULL;
        zro_optim *opt;
        course r;

        for (int k = 0; k < t->size; k++)
            turned[k] = t->size - 1 - k;
        CHECK_OK(zro_group_create_sub(t->group, turned, t->size, &group));
        course_init(&r, t, (course_mode)mode, COURSE_MAX);
        course_create(&r, momentum, NULL);
        memcpy(others, r.params, sizeof others);
        course_train(&r, 1);

        CHECK_STATUS(attach(&r, t->group, others, &opt), ZRO_ERR_INVALID);
        CHECK(opt == NULL);
        CHECK_TEXT("is not among the parameters of the ddp");
        course_train(&r, 1);
        CHECK_STATUS(attach(&r, t->group, is_last ? others : r.params, &opt), is_last ? ZRO_ERR_INVALID : ZRO_ERR_PEER);
        CHECK(opt == NULL);
        CHECK_TEXT("is not among the parameters of the ddp");
        course_train(&r, 1);
        CHECK_STATUS(attach(&r, NULL, r.params, &opt), ZRO_ERR_INVALID);
        CHECK_TEXT("pass the group that the ddp was made with");
        if (t->size > 1)
            CHECK_STATUS(attach(&r, group, r.params, &opt), ZRO_ERR_INVALID);
        CHECK(opt == NULL);
        course_train(&r, 1);
        course_free(&r);
        zro_group_destroy(group);
    }
}

/* ---- several optimizers ---- */

enum { PARAMS = 4, ELEMENTS = 3000, CALLS = 6 };

/* Parameters that only their order tells apart, and two optimizers of half of them each. */
static void make_pair(rig *r, zt_rank *t, rig_memory memory)
{
    const size_t counts[PARAMS] = { ELEMENTS, ELEMENTS, ELEMENTS, ELEMENTS };

    rig_init(r, t, t->group, (rig_mode){ .memory = memory, .optimizers = 2 }, counts, PARAMS, 5);
    rig_create(r);
    rig_train(r, 1);
    CHECK_OK(rig_backward(r));
    CHECK_OK(zro_ddp_backward_end(r->ddp));
}

/* A call on one of them, and the call's name in texts. */
static zro_status call_one(rig *r, int which, int k, const char **name)
{
    zro_optim *opt = r->optim[k];
    zro_param_group more = ZRO_PARAM_GROUP_INIT;
    zro_state *state = NULL;
    double norm;
    zro_status st = ZRO_OK;

    if (which != 0 && which != 4) /* they need no gradients, which would be left over */
        CHECK_OK(zro_optim_zero_grad(r->optim[0], ZRO_ZERO_LEAVE));
    switch (which) {
    case 0:
        *name = "optim_step";
        return zro_optim_step(opt, NULL);
    case 1:
        *name = "optim_consolidate";
        st = zro_optim_consolidate(opt, ZRO_ALL, &state);
        zro_state_destroy(state);
        return st;
    case 2:
        *name = "optim_publish";
        return zro_optim_publish(opt);
    case 3:
        *name = "optim_publish";
        return zro_param_publish(opt, 0, 0);
    case 4:
        *name = "norm of gradients";
        CHECK_OK(zro_ddp_average(r->ddp));
        return zro_clip_grad_norm(opt, 1, 2, &norm);
    default:
        *name = "optim_add_param_group";
        return zro_optim_add_param_group(opt, &more);
    }
}

/* One rank calls something on another optimizer of the ddp than its peers do: both are named, and nothing has changed. */
static void other_optimizers(zt_rank *t)
{
    const int k = t->rank == t->size - 1;

    for (int trial = 0; trial < RIG_MEMORIES + CALLS - 1; trial++) {
        const int is_step = trial < RIG_MEMORIES;
        const char *name = NULL;
        rig r;

        make_pair(&r, t, (rig_memory)(trial % RIG_MEMORIES));
        CHECK_STATUS(call_one(&r, is_step ? 0 : trial - RIG_MEMORIES + 1, k, &name), ZRO_ERR_MISMATCH);
        CHECK_TEXT("(attached optimizer 0)");
        CHECK_TEXT("(attached optimizer 1)");
        CHECK_TEXT(name);
        rig_check(&r);
        rig_free(&r);
    }
}

/* The same, while a third rank refuses the call: it hears of the difference as the others do. */
static void other_optimizers_refused(zt_rank *t)
{
    zro_state *state;
    rig r;

    make_pair(&r, t, RIG_OWN);
    CHECK_OK(zro_optim_zero_grad(r.optim[0], ZRO_ZERO_LEAVE));
    CHECK_STATUS(zro_optim_consolidate(r.optim[t->rank % 2], t->rank == 2 ? t->size : ZRO_ALL, &state), ZRO_ERR_MISMATCH);
    CHECK_TEXT("(attached optimizer 0)");
    CHECK_TEXT("(attached optimizer 1)");
    rig_free(&r);
}

/* Ranks that attach other parameters of the ddp, which have no names, and the same shape. */
static void other_params(zt_rank *t)
{
    const size_t counts[2] = { ELEMENTS, ELEMENTS };
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_param_group one = ZRO_PARAM_GROUP_INIT;
    zro_optim *opt;
    rig r;

    rig_init(&r, t, t->group, (rig_mode){ 0 }, counts, 2, 5);
    CHECK_OK(rig_create_ddp(&r, &r.ddp));
    config.ddp = r.ddp;
    one.params = &r.params[t->rank == t->size - 1];
    one.n = 1;
    CHECK_STATUS(zro_optim_create(t->group, &one, 1, zro_rule_sgd(), NULL, &config, &opt), ZRO_ERR_MISMATCH);
    CHECK(opt == NULL);
    CHECK_TEXT("number 0 of the ddp's");
    CHECK_TEXT("number 1 of the ddp's");
    rig_free(&r);
}

/* ---- what is ready ---- */

/* A parameter that is unfrozen in the middle of an iteration takes part from the next one on. */
static void unfrozen_late(zt_rank *t)
{
    for (int mode = 0; mode < COURSE_MODES; mode++) {
        course r;

        course_init(&r, t, (course_mode)mode, COURSE_MAX);
        course_create(&r, momentum, NULL);
        course_train(&r, 2);
        r.params[1].requires_grad = r.copy[1].requires_grad = 0;
        for (int rank = 0; rank < t->size; rank++)
            r.uses[rank][1] = 0;
        CHECK_OK(zro_ddp_forward(r.ddp));
        r.params[1].requires_grad = 1;
        CHECK_STATUS(zro_ddp_grad_ready(r.ddp, 1), ZRO_ERR_STATE);
        CHECK_TEXT("parameter b: it became ready, but was frozen at zro_ddp_forward");
        course_batch(&r);
        course_ready(&r);
        CHECK_OK(zro_ddp_backward_end(r.ddp));
        course_expect(&r);
        course_step(&r);
        r.copy[1].requires_grad = 1;
        for (int rank = 0; rank < t->size; rank++)
            r.uses[rank][1] = 1;
        course_train(&r, 2);
        course_free(&r);
    }
}

/* A parameter that never becomes ready is found in the first iteration, although its gradient was there before the ddp, and in a later
 * one, although its gradient of the iteration before was not dropped; not if an earlier micro-batch has made it ready. */
static void never_ready(zt_rank *t)
{
    float data[2][8] = { { 0 } }, grad[2][8] = { { 0 } };
    zro_param p[2];
    zro_ddp *ddp;

    for (int i = 0; i < 2; i++)
        zro_param_make(&p[i], i == 0 ? "first" : "second", ZRO_F32, data[i], grad[i], 1, (size_t[]){ 8 });
    CHECK(p[0].grad_present == 1);
    CHECK_OK(zro_ddp_create(t->group, p, 2, NULL, &ddp));
    CHECK(p[0].grad_present == 0);
    for (int k = 0; k < 6; k++) {
        const int is_complete = k % 2 == 1;

        if (k == 3) {
            CHECK_OK(zro_ddp_no_sync(ddp, ZRO_ON));
            CHECK_OK(zro_ddp_forward(ddp));
            CHECK_OK(zro_ddp_grad_ready(ddp, 0));
            CHECK_OK(zro_ddp_backward_end(ddp));
            CHECK_OK(zro_ddp_no_sync(ddp, ZRO_OFF));
        }
        CHECK_OK(zro_ddp_forward(ddp));
        CHECK_OK(zro_ddp_grad_ready(ddp, 1));
        if (is_complete && k != 3)
            CHECK_OK(zro_ddp_grad_ready(ddp, 0));
        CHECK_STATUS(zro_ddp_backward_end(ddp), is_complete ? ZRO_OK : ZRO_ERR_STATE);
        if (!is_complete)
            CHECK_TEXT("parameter first: on rank");
    }
    zro_ddp_destroy(ddp);
}

/* ---- the end ---- */

/* The ddp first: the optimizer can still be asked.  The optimizer first: the ddp averages for all ranks from then on. */
static void destroys_in_any_order(zt_rank *t)
{
    for (int mode = COURSE_IN_PLACE; mode < COURSE_MODES; mode++) {
        zro_state *state = NULL;
        course r;

        course_init(&r, t, (course_mode)mode, COURSE_MAX);
        course_create(&r, momentum, NULL);
        course_train(&r, 1);
        course_backward(&r);
        zro_ddp_destroy(r.ddp);
        r.ddp = NULL;
        CHECK_STATUS(zro_optim_step(r.optim, NULL), ZRO_ERR_STATE);
        CHECK_TEXT("was destroyed");
        CHECK_OK(zro_optim_consolidate(r.optim, ZRO_ALL, &state));
        CHECK(zro_state_params(state) == r.n);
        zro_state_destroy(state);
        course_check(&r);
        course_free(&r);

        course_init(&r, t, (course_mode)mode, COURSE_MAX);
        course_create(&r, momentum, NULL);
        course_train(&r, 1);
        course_backward(&r);
        zro_optim_destroy(r.optim);
        r.optim = NULL;
        memset(r.has, 0, sizeof r.has);
        course_backward(&r);
        course_expect(&r);
        for (size_t i = 0; i < r.n; i++)
            CHECK(reference_same(r.copy[i].dtype, r.params[i].grad, r.copy[i].grad, zro_param_count(&r.copy[i]), NULL));
        course_free(&r);
    }
}

/* In the middle of an iteration the others learn it, on this ddp alone. */
static void destroys_in_an_iteration(zt_rank *t)
{
    for (int mode = COURSE_SHARDED; mode < COURSE_MODES; mode++) {
        const int last = t->size - 1;
        zro_status st = ZRO_OK;
        course r;

        course_init(&r, t, (course_mode)mode, COURSE_MAX);
        course_create(&r, momentum, NULL);
        course_train(&r, mode % 2);
        CHECK_OK(zro_ddp_forward(r.ddp));
        course_batch(&r);
        if (t->rank == last) {
            for (size_t i = r.n - 1; i > 4; i--)
                CHECK_OK(zro_ddp_grad_ready(r.ddp, i));
            zro_ddp_destroy(r.ddp);
            r.ddp = NULL;
            CHECK(!course_attaches(&r) || zro_optim_step(r.optim, NULL) != ZRO_OK);
        } else {
            course_ready(&r);
            st = zro_ddp_backward_end(r.ddp);
            if (st == ZRO_OK && course_attaches(&r))
                st = zro_optim_step(r.optim, NULL);
            CHECK_STATUS(st, ZRO_ERR_LOST);
            CHECK_TEXT("destroyed its ddp in the middle of an iteration");
            CHECK(zro_ddp_forward(r.ddp) == ZRO_ERR_LOST);
        }
        CHECK_OK(zro_barrier(t->group));
        course_free(&r);
        course_init(&r, t, (course_mode)mode, COURSE_MAX);
        course_create(&r, momentum, NULL);
        course_train(&r, 1);
        course_free(&r);
    }
}

#define SEVERAL (ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4))
#define WORLDS (ZT_WORLD(1) | SEVERAL)

const zt_case cases_ddp_misuse[] = {
    { "ddp_wrong_calls", wrong_calls, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "ddp_wrong_steps", wrong_steps, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "ddp_wrong_attachments", wrong_attachments, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "ddp_other_optimizers", other_optimizers, SEVERAL, ZT_ALL, 0, 0, 0, 0 },
    { "ddp_other_optimizers_refused", other_optimizers_refused, ZT_WORLD(3), ZT_ALL, 0, 0, 0, 0 },
    { "ddp_other_params", other_params, SEVERAL, ZT_ALL, 0, 0, 0, 0 },
    { "ddp_unfrozen_late", unfrozen_late, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "ddp_never_ready", never_ready, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "ddp_different_values", different_values, SEVERAL, ZT_ALL, 0, 0, 0, 0 },
    { "ddp_different_arguments", different_arguments, SEVERAL, ZT_ALL, 0, 0, 0, 0 },
    { "ddp_destroys_in_any_order", destroys_in_any_order, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "ddp_destroys_in_an_iteration", destroys_in_an_iteration, SEVERAL, ZT_ALL, 0, 0, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
