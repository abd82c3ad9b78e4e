/* Parameters that an iteration does not use, and graphs that stay the same. */
#include <stdlib.h>
#include <string.h>

#include "course.h"
#include "settings.h"
#include "zt/list.h"

static const char momentum[] = "sgd lr=0.1 momentum=0.9 weight_decay=0.01";

static void name_of(int rank, char *text)
{
    memcpy(text, "rank ?", 7);
    text[5] = (char)('0' + rank);
}

/* The iteration has failed on all ranks: here with `mine`, or because of a peer.  What was computed is dropped. */
static void fails(course *r, zro_status mine, const char *part, int culprit)
{
    zro_status st = zro_ddp_backward_end(r->ddp);
    char rank[8];

    if (st == ZRO_OK && course_attaches(r))
        st = zro_optim_step(r->optim, NULL);
    CHECK_STATUS(st, r->t->rank == culprit ? mine : ZRO_ERR_PEER);
    CHECK_TEXT(part);
    name_of(culprit, rank);
    CHECK_TEXT(rank);
    CHECK(!course_attaches(r) || zro_optim_step(r->optim, NULL) == ZRO_ERR_STATE);
    CHECK_OK(zro_optim_zero_grad(r->optim, ZRO_ZERO_LEAVE));
    memset(r->has, 0, sizeof r->has);
}

/* ---- S72 ---- */

/* One that nobody uses, one that a single rank uses, one that all but one use; in every second iteration ranks say so early. */
static void unused(zt_rank *t)
{
    for (int mode = 0; mode < COURSE_MODES; mode++) {
        course r;

        course_init(&r, t, (course_mode)mode, COURSE_MAX);
        r.config.find_unused = ZRO_ON;
        course_create(&r, momentum, NULL);
        for (int k = 0; k < 6; k++) {
            for (int rank = 0; rank < t->size; rank++) {
                r.uses[rank][k == 3 ? 0 : 1] = 0;
                r.uses[rank][k == 3 ? 1 : 0] = 1;
                r.uses[rank][2] = (unsigned char)(rank == k % t->size);
                r.uses[rank][10] = (unsigned char)(rank != k % t->size);
            }
            CHECK_OK(zro_ddp_forward(r.ddp));
            course_batch(&r);
            for (size_t i = 0; k % 2 == 1 && i < r.n; i++)
                if (!r.uses[t->rank][i])
                    CHECK_OK(zro_ddp_unused(r.ddp, i));
            course_ready(&r);
            CHECK_OK(zro_ddp_backward_end(r.ddp));
            course_expect(&r);
            for (size_t i = 0; !course_attaches(&r) && i < r.n; i++)
                CHECK(r.params[i].grad_present == r.copy[i].grad_present);
            course_step(&r);
        }
        course_free(&r);
    }
}

/* Without find_unused that is an error on the rank on which it is missing, and on all others because of it; also in the very first
 * iteration, and twice in a row.  The group stays whole. */
static void missing(zt_rank *t)
{
    for (int mode = 0; mode < COURSE_MODES; mode++) {
        const int last = t->size - 1;
        course r;

        course_init(&r, t, (course_mode)mode, COURSE_MAX);
        course_create(&r, momentum, NULL);
        for (int k = 0; k < 4; k++) {
            if (k == 2)
                course_train(&r, 2);
            r.uses[last][2] = 0;
            CHECK_OK(zro_ddp_forward(r.ddp));
            course_batch(&r);
            course_ready(&r);
            fails(&r, ZRO_ERR_STATE, "parameter c", last);
            r.uses[last][2] = 1;
        }
        course_train(&r, 2);
        CHECK_OK(zro_ddp_check(r.ddp));
        CHECK_OK(zro_barrier(t->group));
        course_free(&r);
    }
}

/* ---- a rank without an input ---- */

static void shadow_fails(course *r, int who)
{
    zro_status st;

    memset(r->uses[who], 0, sizeof r->uses[who]);
    if (r->t->rank != who)
        CHECK_OK(zro_ddp_forward(r->ddp));
    course_batch(r);
    course_ready(r);
    st = r->t->rank == who ? zro_ddp_shadow(r->ddp) : zro_ddp_backward_end(r->ddp);
    if (st == ZRO_OK && course_attaches(r))
        st = zro_optim_step(r->optim, NULL);
    CHECK_STATUS(st, r->t->rank == who ? ZRO_ERR_STATE : ZRO_ERR_PEER);
    CHECK_TEXT("the graph is static, and this is the first iteration");
    CHECK_OK(zro_optim_zero_grad(r->optim, ZRO_ZERO_LEAVE));
    memset(r->has, 0, sizeof r->has);
    memset(r->uses[who], 1, sizeof r->uses[who]);
}

/* The last rank, and later the first, has no gradients in an iteration and says so in one call, although parameters must not be
 * unused; old presence bits do not count.  In the first iteration of a static graph it is an error on all ranks. */
static void shadows(zt_rank *t)
{
    for (int mode = 0; mode < COURSE_MODES; mode++)
        for (int is_static = 0; is_static < 2; is_static++) {
            course r;

            course_init(&r, t, (course_mode)mode, COURSE_MAX);
            r.config.static_graph = is_static ? ZRO_ON : ZRO_OFF;
            course_create(&r, momentum, NULL);
            if (is_static) {
                shadow_fails(&r, t->size - 1);
                course_train(&r, 1);
            }
            for (int k = 0; k < 4; k++) {
                const int who = k < 2 ? t->size - 1 : 0;

                memset(r.uses[who], 0, sizeof r.uses[who]);
                if (t->rank == who) {
                    for (size_t i = 0; i < r.n; i++)
                        r.params[i].grad_present = 1;
                    course_batch(&r);
                    CHECK_OK(zro_ddp_shadow(r.ddp));
                } else
                    course_backward(&r);
                course_expect(&r);
                for (size_t i = 0; !course_attaches(&r) && i < r.n; i++)
                    CHECK(r.params[i].grad_present == r.copy[i].grad_present);
                course_step(&r);
                memset(r.uses[who], 1, sizeof r.uses[who]);
                course_train(&r, 1);
            }
            course_free(&r);
        }
}

/* ---- S89 ---- */

enum { KEPT = 2, BYTES = COURSE_ELEMENTS * 8 };

/* A parameter's value and this rank's part of its slots. */
typedef struct kept {
    char value[BYTES], slots[8][BYTES];
} kept;

static void keep(const course *r, kept *k)
{
    memset(k, 0, sizeof *k);
    memcpy(k->value, r->params[KEPT].data, zro_param_count(&r->params[KEPT]) * zro_dtype_bytes(r->params[KEPT].dtype));
    CHECK(zro_optim_slots(r->optim) <= 8);
    for (size_t i = 0; i < zro_optim_slots(r->optim); i++) {
        zro_slot slot;

        CHECK_OK(zro_optim_slot(r->optim, KEPT, zro_optim_slot_name(r->optim, i), &slot));
        if (slot.present)
            memcpy(k->slots[i], slot.data, slot.count * zro_dtype_bytes(slot.dtype));
    }
}

static void keeps_one(zt_rank *t, course_mode mode, const char *text)
{
    kept *before = malloc(sizeof *before), *after = malloc(sizeof *after);
    course r;

    CHECK(before != NULL && after != NULL);
    course_init(&r, t, mode, 4);
    r.config.find_unused = ZRO_ON;
    course_create(&r, text, NULL);
    course_train(&r, 2);
    keep(&r, before);
    for (int rank = 0; rank < t->size; rank++)
        r.uses[rank][KEPT] = 0;
    course_train(&r, 2);
    keep(&r, after);
    CHECK(memcmp(before, after, sizeof *before) == 0);
    memset(r.uses, 1, sizeof r.uses);
    course_train(&r, 1);
    keep(&r, after);
    CHECK(memcmp(before->value, after->value, sizeof before->value) != 0);
    course_free(&r);
    free(before);
    free(after);
}

/* Every rule in every mode where ranks are few and near; elsewhere the modes take turns. */
static void absent_stays(zt_rank *t)
{
    int n = 0;

    for (int s = 0; s < SETTINGS; s++) {
        const size_t length = strcspn(settings[s], " ");

        if (s + 1 < SETTINGS && strcspn(settings[s + 1], " ") == length && strncmp(settings[s], settings[s + 1], length) == 0)
            continue; /* the last of each rule */
        n++;
        for (int mode = 0; mode < COURSE_MODES; mode++)
            if ((t->size <= 2 && (t->backend & ZT_BOTH) != 0) || (n + t->size) % COURSE_MODES == mode)
                keeps_one(t, (course_mode)mode, settings[s]);
    }
    CHECK(n == 11);
}

/* ---- S88 ---- */

/* Parameter 1 becomes ready before its gradient is what it will be. */
static void half_ready(course *r)
{
    const zro_param *p = &r->params[1];
    const size_t bytes = zro_param_count(p) * zro_dtype_bytes(p->dtype);
    char final[COURSE_ELEMENTS * 8];

    memcpy(final, p->grad, bytes);
    memset(p->grad, 0x3f, bytes);
    CHECK_OK(zro_ddp_grad_ready(r->ddp, 1));
    memcpy(p->grad, final, bytes);
}

/* Parameter b is used twice, and c never; so many times b becomes ready, and c. */
static void tied_ready(course *r, int b, int c)
{
    for (int k = 1; k < b; k++)
        half_ready(r);
    if (b == 0)
        r->uses[r->t->rank][1] = 0;
    course_ready(r);
    r->uses[r->t->rank][1] = 1;
    for (int k = 0; k < c; k++)
        CHECK_OK(zro_ddp_grad_ready(r->ddp, 2));
}

/* With stage_grads a gradient is copied by the call that makes it final. */
static void tied_begins(course *r, zt_rank *t, course_mode mode, zro_switch stages)
{
    course_init(r, t, mode, COURSE_MAX);
    r->config.static_graph = ZRO_ON;
    r->config.stage_grads = stages;
    course_create(r, momentum, NULL);
    for (int rank = 0; rank < t->size; rank++)
        r->uses[rank][2] = 0;
}

static void tied_train(course *r, int iterations)
{
    for (int k = 0; k < iterations; k++) {
        CHECK_OK(zro_ddp_forward(r->ddp));
        course_batch(r);
        tied_ready(r, 2, 0);
        CHECK_OK(zro_ddp_backward_end(r->ddp));
        course_expect(r);
        course_step(r);
    }
}

static void static_graph(zt_rank *t)
{
    for (int mode = 0; mode <= COURSE_MODES; mode++) {
        const int stages = mode == COURSE_MODES;
        course r;

        tied_begins(&r, t, stages ? COURSE_IN_PLACE : (course_mode)mode, stages ? ZRO_ON : ZRO_OFF);
        tied_train(&r, 4);
        CHECK_OK(zro_ddp_no_sync(r.ddp, ZRO_ON)); /* batches that do not travel may do as they like */
        course_backward(&r);
        CHECK_OK(zro_ddp_no_sync(r.ddp, ZRO_OFF));
        tied_train(&r, 2);
        course_free(&r);
    }
}

/* Once too few, once too many (which is refused at once, and has no effect), and one that was not there in the first. */
static void departs(zt_rank *t)
{
    for (int mode = 0; mode < COURSE_MODES; mode++) {
        const int last = t->size - 1;
        course r;

        tied_begins(&r, t, (course_mode)mode, ZRO_OFF);
        tied_train(&r, 2);
        CHECK_OK(zro_ddp_forward(r.ddp));
        course_batch(&r);
        tied_ready(&r, t->rank == last ? 1 : 2, 0);
        fails(&r, ZRO_ERR_STATE, "parameter b", last);
        tied_train(&r, 1);

        CHECK_OK(zro_ddp_forward(r.ddp));
        course_batch(&r);
        tied_ready(&r, 2, 0);
        CHECK_STATUS(zro_ddp_grad_ready(r.ddp, 1), ZRO_ERR_STATE);
        CHECK_TEXT("parameter b");
        CHECK_TEXT("2 times");
        if (t->rank == last) {
            CHECK_STATUS(zro_ddp_grad_ready(r.ddp, 2), ZRO_ERR_STATE);
            CHECK_TEXT("parameter c");
            CHECK(r.params[2].grad_present == 0);
        }
        CHECK_OK(zro_ddp_backward_end(r.ddp));
        course_expect(&r);
        course_step(&r);
        tied_train(&r, 1);
        course_free(&r);
    }
}

/* ---- S73 ---- */

static void check_finds(zt_rank *t)
{
    float running[3] = { 1, 2, 3 };
    zro_param buffer = ZRO_PARAM_INIT;
    const int last = t->size - 1;
    char rank[8];
    course r;

    name_of(last, rank);
    buffer.name = "running";
    buffer.data = running;
    buffer.shape[0] = 3;
    course_init(&r, t, COURSE_IN_PLACE, COURSE_MAX);
    r.config.buffers = &buffer;
    r.config.n_buffers = 1;
    course_create(&r, momentum, NULL);
    course_train(&r, 2);
    CHECK_OK(zro_ddp_check(r.ddp));
    for (int k = 0; t->size > 1 && k < 2; k++) {
        float *changed = k == 0 ? (float *)r.params[10].data + 999 : &running[2], value = *changed;

        if (t->rank == last)
            *changed = 77;
        CHECK_STATUS(zro_ddp_check(r.ddp), ZRO_ERR_MISMATCH);
        CHECK_TEXT(k == 0 ? "parameter k" : "buffer running");
        CHECK_TEXT(rank);
        *changed = value;
        CHECK_OK(zro_ddp_check(r.ddp));
    }
    course_train(&r, 1);
    course_free(&r);
}

#define WORLDS (ZT_WORLD(1) | ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4))

const zt_case cases_ddp_unused[] = {
    { "S72_unused", unused, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "S72_unused_two", unused, ZT_WORLD(4), ZT_ALL, ZT_TWO_MACHINES, 0, 0, 0 },
    { "S72_missing", missing, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "S72_missing_two", missing, ZT_WORLD(4), ZT_ALL, ZT_TWO_MACHINES, 0, 0, 0 },
    { "ddp_shadow", shadows, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "S73_check", check_finds, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "S88_static_graph", static_graph, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "S88_departs", departs, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "S89_absent_stays", absent_stays, WORLDS, ZT_ALL, 0, 60, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
