/* Rank 0 has 2 inputs in each epoch, rank 1 has 4: together they learn 3.  ranks: 2; prints: w = 3.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <zro.h>

enum { n = 1, COUNT = 1500 };
static zro_ddp *ddp;
static int rank, inputs;

static int next_input(float *x)
{
    *x = 3;
    inputs = inputs < 2 + 2 * rank ? inputs + 1 : 0;
    return inputs > 0;
}

static void backward(zro_param *p, size_t count, const float *x)
{
    for (size_t k = 0; k < COUNT; k++)
        ((float *)p[0].grad)[k] = ((float *)p[0].data)[k] - *x;
    (void)count;
    zro_must(zro_ddp_grad_ready(ddp, 0));
}

int main(void)
{
    static float w[COUNT], grad[COUNT];
    const int epochs = 30;
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_sgd_config sgd = ZRO_SGD_CONFIG_INIT;
    zro_param_group group = ZRO_PARAM_GROUP_INIT;
    zro_joinable joinable;
    zro_schedule *schedule;
    zro_group *ranks;
    zro_param p[n];
    zro_optim *opt;
    zro_join *join;
    float x;

    zro_param_make(&p[0], "w", ZRO_F32, w, grad, 1, (size_t[]){ COUNT });
    group.params = p;
    group.n = n;
    zro_must(zro_group_create_env(NULL, &ranks));
    rank = zro_group_rank(ranks);
    zro_must(zro_ddp_create(ranks, p, n, NULL, &ddp));
    config.ddp = ddp;
    sgd.lr = 0.2;
    zro_must(zro_optim_create(ranks, &group, 1, zro_rule_sgd(), &sgd, &config, &opt));
    zro_must(zro_schedule_exponential(opt, 0.999, &schedule));
    /* SNIPPET */
    printf("w = %.1f\n", (double)w[COUNT - 1]);
    zro_schedule_destroy(schedule);
    zro_optim_destroy(opt);
    zro_ddp_destroy(ddp);
    zro_group_destroy(ranks);
    return fabsf(w[0] - 3) > 0.01f;
}
