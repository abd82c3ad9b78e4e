/* A model of three parameters that learn to be 3, on ranks whose targets are 2 and 4, updated during backward.  ranks: 2; prints: w = 3.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <zro.h>

enum { n = 3, n_groups = 1, COUNT = 2000 };
static int rank;

static void backward(zro_param *p, size_t i)
{
    const float *w = p[i].data;
    float *grad = p[i].grad;

    for (size_t k = 0; k < COUNT; k++)
        grad[k] = w[k] - (float)(rank == 0 ? 2 : 4);
}

int main(void)
{
    const int steps = 5000;
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_param_group groups[n_groups] = { ZRO_PARAM_GROUP_INIT };
    zro_group *ranks;
    zro_param p[n];
    zro_ddp *ddp;
    zro_optim *opt;
    float w;

    for (int i = 0; i < n; i++)
        zro_param_make(&p[i], NULL, ZRO_F32, NULL, NULL, 1, (size_t[]){ COUNT });
    groups[0].params = p;
    groups[0].n = n;
    zro_must(zro_group_create_env(NULL, &ranks));
    rank = zro_group_rank(ranks);
    zro_must(zro_params_alloc(ranks, p, n, NULL));
    for (size_t i = 0; rank == 0 && i < n * COUNT; i++)
        ((float *)p[i / COUNT].data)[i % COUNT] = 2;
    zro_must(zro_ddp_create(ranks, p, n, NULL, &ddp));
    /* SNIPPET */
    for (int step = 0; step < steps; step++) {
        zro_must(zro_ddp_forward(ddp));
        for (size_t i = n; i-- > 0;) {
            backward(p, i);
            zro_must(zro_ddp_grad_ready(ddp, i));
        }
        zro_must(zro_ddp_backward_end(ddp));
        zro_must(zro_optim_step(opt, NULL));
    }
    w = ((float *)p[2].data)[COUNT - 1];
    printf("w = %.1f\n", (double)w);
    zro_optim_destroy(opt);
    zro_ddp_destroy(ddp);
    zro_params_free(p, n);
    zro_group_destroy(ranks);
    return fabsf(w - 3) > 0.05f;
}
