/* A hook of the program's own: one byte per gradient travels between the ranks instead of four.
 *
 *   cc 07_hook.c $(pkg-config --cflags --libs zro) -lm && zro run -n 2 -- ./a.out
 *
 * A hook gets each full bucket of gradients, and what it leaves there is used instead of the average.  This one makes two
 * reductions with work between them: the ranks agree on the largest gradient, each rounds its gradients to whole parts of that,
 * and these are added up.  The model is linear: y = w x + b. */
#include <math.h>
#include <stdio.h>
#include <zro.h>

enum { FEATURES = 50, BATCH = 16, STEPS = 400 };

typedef struct quantiser {
    int8_t bytes[FEATURES + 1]; /* what travels: room for all gradients */
    size_t sent;                /* how many bytes so far */
} quantiser;

/* Runs on a thread of the library, for one bucket after another, in the same order on all ranks. */
static zro_status quantise(void *user, zro_bucket *bucket)
{
    quantiser *q = user;
    zro_group *ranks = zro_bucket_group(bucket);
    size_t count;
    zro_dtype dtype;
    float *grad = zro_bucket_buffer(bucket, &count, &dtype), largest = 0, unit;
    zro_status st;

    if (dtype != ZRO_F32 || count > sizeof q->bytes)
        return zro_error_set(ZRO_ERR_UNSUPPORTED, "quantise: it is made for the gradients of this program alone");
    for (size_t i = 0; i < count; i++)
        largest = fmaxf(largest, fabsf(grad[i]));
    st = zro_all_reduce(ranks, &largest, 1, ZRO_F32, ZRO_MAX); /* the first reduction */
    if (st != ZRO_OK || largest == 0)
        return st;
    unit = largest / (float)(127 / zro_group_size(ranks)); /* so that the sum fits into a byte */
    for (size_t i = 0; i < count; i++)
        q->bytes[i] = (int8_t)lrintf(grad[i] / unit);
    st = zro_all_reduce(ranks, q->bytes, count, ZRO_I8, ZRO_SUM); /* the second one */
    for (size_t i = 0; i < count; i++)
        grad[i] = (float)q->bytes[i] * unit / (float)zro_group_size(ranks); /* the result: the same bits on all ranks */
    q->sent += count;
    return st;
}

/* One batch of samples of y = sum of k x[k] / 10, plus 3. */
static void backward(const float *w, float b, float *w_grad, float *b_grad, unsigned *random)
{
    *b_grad = 0;
    for (int k = 0; k < FEATURES; k++)
        w_grad[k] = 0;
    for (int s = 0; s < BATCH; s++) {
        float x[FEATURES], error = b - 3;

        for (int k = 0; k < FEATURES; k++) {
            *random = *random * 1664525u + 1013904223u;
            x[k] = (float)(*random >> 8) / 8388608.0f - 1;
            error += (w[k] - (float)k / 10) * x[k];
        }
        *b_grad += 2 * error / BATCH;
        for (int k = 0; k < FEATURES; k++)
            w_grad[k] += 2 * error * x[k] / BATCH;
    }
}

int main(void)
{
    float w[FEATURES] = { 0 }, w_grad[FEATURES], b = 0, b_grad;
    quantiser q = { { 0 }, 0 };
    zro_ddp_config config = ZRO_DDP_CONFIG_INIT;
    zro_sgd_config sgd = ZRO_SGD_CONFIG_INIT;
    zro_param_group group = ZRO_PARAM_GROUP_INIT;
    zro_param p[2];
    zro_group *ranks;
    zro_ddp *ddp;
    zro_optim *opt;
    unsigned random;

    zro_must(zro_group_create_env(NULL, &ranks));
    random = 100 + (unsigned)zro_group_rank(ranks);
    zro_param_make(&p[0], "w", ZRO_F32, w, w_grad, 1, (size_t[]){ FEATURES });
    zro_param_make(&p[1], "b", ZRO_F32, &b, &b_grad, 1, (size_t[]){ 1 });
    config.hook = quantise, config.hook_user = &q;
    zro_must(zro_ddp_create(ranks, p, 2, &config, &ddp));
    group.params = p, group.n = 2, sgd.lr = 0.1;
    zro_must(zro_optim_create(ranks, &group, 1, zro_rule_sgd(), &sgd, NULL, &opt));
    for (int step = 0; step < STEPS; step++) {
        zro_must(zro_ddp_forward(ddp));
        backward(w, b, w_grad, &b_grad, &random);
        zro_must(zro_ddp_grads_ready(ddp, (size_t[]){ 0, 1 }, 2));
        zro_must(zro_ddp_backward_end(ddp)); /* the gradients are what the hook has made of them */
        zro_must(zro_optim_step(opt, NULL));
    }
    printf("rank %d: b = %.3f, w[30] = %.3f; %zu bytes travelled\n", zro_group_rank(ranks), (double)b, (double)w[30], q.sent);
    zro_optim_destroy(opt);
    zro_ddp_destroy(ddp);
    zro_group_destroy(ranks);
    return fabsf(b - 3) > 0.01f || fabsf(w[30] - 3) > 0.01f;
}
