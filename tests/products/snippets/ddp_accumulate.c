/* Three micro-batches, whose gradients are 1 on rank 0 and 2 on rank 1: the average of the sums is 4.5.  ranks: 2 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zro.h>

enum { n = 2, COUNT = 1500 };
static int rank;

static void backward(zro_param *p, size_t i)
{
    for (size_t k = 0; k < COUNT; k++)
        ((float *)p[i].grad)[k] += (float)(1 + rank);
}

int main(void)
{
    static float w[n][COUNT], grad[n][COUNT];
    const int micro_batches = 3;
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_sgd_config sgd = ZRO_SGD_CONFIG_INIT;
    zro_param_group group = ZRO_PARAM_GROUP_INIT;
    zro_group *ranks;
    zro_param p[n];
    zro_ddp *ddp;
    zro_optim *opt;

    for (int i = 0; i < n; i++) {
        zro_param_make(&p[i], NULL, ZRO_F32, w[i], grad[i], 1, (size_t[]){ COUNT });
        p[i].grad_present = 0;
    }
    group.params = p;
    group.n = n;
    zro_must(zro_group_create_env(NULL, &ranks));
    rank = zro_group_rank(ranks);
    zro_must(zro_ddp_create(ranks, p, n, NULL, &ddp));
    config.ddp = ddp;
    sgd.lr = 1;
    zro_must(zro_optim_create(ranks, &group, 1, zro_rule_sgd(), &sgd, &config, &opt));
    for (int step = 0; step < 2; step++) {
        /* SNIPPET */
    }
    zro_optim_destroy(opt);
    zro_ddp_destroy(ddp);
    zro_group_destroy(ranks);
    return w[0][0] != -9 || w[1][COUNT - 1] != -9;
}
