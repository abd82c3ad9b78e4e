/* What an average is made of: several batches on a rank, batches of different sizes, and calls between backward and step. */
#include <math.h>
#include <string.h>

#include "bed.h"
#include "course.h"
#include "reference.h"
#include "zt/list.h"

static const char momentum[] = "sgd lr=0.1 momentum=0.9 weight_decay=0.01";

/* ---- S70 ---- */

/* The copy's gradients are those of one batch that has all samples of `n` batches, divided by `divisor`. */
static void check_big_batch(const course *r, int first, int n, const int *samples, double divisor)
{
    for (size_t i = 0; i < r->n; i++)
        for (size_t k = 0; k < zro_param_count(&r->params[i]); k++) {
            double sum = 0;

            for (int rank = 0; rank < r->t->size; rank++)
                for (int b = first; b < first + n; b++)
                    for (int s = 0; s < samples[rank]; s++)
                        sum += course_sample(r, rank, b, s, i, k);
            sum /= divisor;
            CHECK(fabs(bed_get(r->copy[i].grad, r->copy[i].dtype, k) - sum) <= 1e-5 * fabs(sum) + 1e-6);
        }
}

/* k batches under no_sync, also before the first average and across the second forward, which forms other buckets. */
static void accumulates(zt_rank *t)
{
    for (int mode = 0; mode < COURSE_MODES; mode++)
        for (int s = 0; s < 2; s++) {
            course r;

            course_init(&r, t, (course_mode)mode, COURSE_MAX);
            r.config.static_graph = (zro_switch)s;
            course_create(&r, momentum, NULL);
            for (int k = 0; k < 4; k++) {
                const int first = r.batch;

                CHECK_OK(zro_ddp_no_sync(r.ddp, ZRO_ON));
                for (int m = 0; m < k; m++)
                    course_backward(&r);
                CHECK_OK(zro_ddp_no_sync(r.ddp, ZRO_OFF));
                course_backward(&r);
                course_expect(&r);
                check_big_batch(&r, first, k + 1, r.samples, t->size);
                course_step(&r);
            }
            course_free(&r);
        }
}

/* A rank that used a parameter in one of its batches has its gradient. */
static void accumulates_union(zt_rank *t)
{
    for (int mode = 0; mode < COURSE_MODES; mode++) {
        course r;

        course_init(&r, t, (course_mode)mode, COURSE_MAX);
        r.config.find_unused = ZRO_ON;
        course_create(&r, momentum, NULL);
        for (int k = 0; k < 3; k++) {
            CHECK_OK(zro_ddp_no_sync(r.ddp, ZRO_ON));
            memset(r.uses, 0, sizeof r.uses);
            for (int rank = 0; rank < t->size; rank++)
                r.uses[rank][(size_t)(rank + k) % r.n] = 1;
            course_backward(&r);
            CHECK_OK(zro_ddp_no_sync(r.ddp, ZRO_OFF));
            for (int rank = 0; rank < t->size; rank++)
                r.uses[rank][(size_t)(2 * rank + k + 1) % r.n] = 1;
            course_backward(&r);
            course_expect(&r);
            course_step(&r);
        }
        course_free(&r);
    }
}

/* ---- S71 ---- */

static void weighted(zt_rank *t)
{
    for (int mode = 0; mode < COURSE_HOOK; mode++) { /* what a hook does is not weighted */
        course r;

        course_init(&r, t, (course_mode)mode, COURSE_MAX);
        r.config.weighted = ZRO_ON;
        course_create(&r, "adamw", NULL);
        CHECK_STATUS(zro_ddp_set_weight(r.ddp, -1), ZRO_ERR_INVALID);
        CHECK_TEXT("weight = -1");
        CHECK_STATUS(zro_ddp_set_weight(r.ddp, (double)NAN), ZRO_ERR_INVALID);
        CHECK_STATUS(zro_ddp_set_weight(r.ddp, 1e31), ZRO_ERR_INVALID); /* in f32 it would not have a finite sum */
        CHECK_STATUS(zro_ddp_set_weight(r.ddp, 1e-31), ZRO_ERR_INVALID);
        CHECK_TEXT("weight = 1e-31, must be 0 or from 1e-30 to 1e+30");
        for (int k = 0; k < 3; k++) {
            int all = 0;

            for (int rank = 0; rank < t->size; rank++)
                all += r.samples[rank] = 1 + (3 * rank + 2 * k) % 5;
            CHECK_OK(zro_ddp_set_weight(r.ddp, r.samples[t->rank]));
            course_backward(&r);
            course_expect(&r);
            check_big_batch(&r, r.batch - 1, 1, r.samples, all);
            course_step(&r);
        }
        course_free(&r);
    }
}

/* Weights of which nothing can be made: on all ranks, and the next iteration works. */
static void weights_of_zero(zt_rank *t)
{
    for (int mode = COURSE_ALONE; mode < COURSE_HOOK; mode++) {
        zro_status st;
        course r;

        course_init(&r, t, (course_mode)mode, COURSE_MAX);
        r.config.weighted = ZRO_ON;
        course_create(&r, "adamw", NULL);
        course_train(&r, 1);
        CHECK_OK(zro_ddp_set_weight(r.ddp, 0));
        CHECK_OK(zro_ddp_forward(r.ddp));
        course_batch(&r);
        course_ready(&r);
        st = zro_ddp_backward_end(r.ddp);
        if (st == ZRO_OK)
            st = zro_optim_step(r.optim, NULL);
        CHECK_STATUS(st, ZRO_ERR_INVALID);
        CHECK_TEXT("weight");
        CHECK_OK(zro_optim_zero_grad(r.optim, ZRO_ZERO_LEAVE));
        memset(r.has, 0, sizeof r.has);
        CHECK_OK(zro_ddp_set_weight(r.ddp, 1));
        course_train(&r, 2);
        CHECK_OK(zro_barrier(t->group));
        course_free(&r);
    }
}

/* ---- average ---- */

/* Between backward and step: all ranks have what the reference has, and the step has the same bits as without. */
static void averages(zt_rank *t)
{
    for (int mode = 0; mode < COURSE_MODES; mode++) {
        zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
        double norm = 0;
        course r;

        course_init(&r, t, (course_mode)mode, COURSE_MAX);
        r.config.find_unused = ZRO_ON;
        config.clip_norm = INFINITY; /* only measured */
        course_create(&r, "adam weight_decay=0.1", mode % 2 == 0 ? &config : NULL);
        CHECK_STATUS(zro_ddp_average(r.ddp), ZRO_ERR_STATE);
        for (int k = 0; k < 4; k++) {
            for (int rank = 0; rank < t->size; rank++) {
                r.uses[rank][2] = (unsigned char)(rank == k % t->size);
                r.uses[rank][6] = 0;
            }
            course_backward(&r);
            course_expect(&r);
            if (k % 2 == 0)
                CHECK_OK(zro_ddp_average(r.ddp));
            for (size_t i = 0; k % 2 == 0 && i < r.n; i++) {
                CHECK(r.params[i].grad_present == (i != 6));
                CHECK(i == 6
                      || reference_same(r.copy[i].dtype, r.params[i].grad, r.copy[i].grad, zro_param_count(&r.copy[i]), NULL));
            }
            if (k == 2) { /* twice is once; and then clipping is a call as for any other optimizer */
                CHECK_OK(zro_ddp_average(r.ddp));
                CHECK_OK(zro_clip_grad_norm(r.optim, 0.5, 2, &norm));
                CHECK_OK(zro_clip_grad_norm(r.reference, 0.5, 2, NULL));
                CHECK(norm > 0.5);
            }
            course_step(&r);
        }
        course_free(&r);
    }
}

#define WORLDS (ZT_WORLD(1) | ZT_WORLD(2) | ZT_WORLD(3) | ZT_WORLD(4))

const zt_case cases_ddp_batches[] = {
    { "S70_accumulates", accumulates, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "S70_accumulates_two", accumulates, ZT_WORLD(4), ZT_ALL, ZT_TWO_MACHINES, 0, 0, 0 },
    { "S70_accumulates_union", accumulates_union, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "S71_weighted", weighted, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "S71_weights_of_zero", weights_of_zero, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { "ddp_average", averages, WORLDS, ZT_ALL, 0, 0, 0, 0 },
    { NULL, NULL, 0, 0, 0, 0, 0, 0 },
};
