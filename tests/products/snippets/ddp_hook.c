/* Gradients of 1 and 9, clipped to 1 and 2 on their ranks: the average is 1.5.  ranks: 2; prints: average 1.5 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <zro.h>

/* SNIPPET */

int main(void)
{
    static float w[1500], grad[1500];
    zro_ddp_config config = ZRO_DDP_CONFIG_INIT;
    float limit = 2;
    zro_group *ranks;
    zro_param p;
    zro_ddp *ddp;

    zro_param_make(&p, "w", ZRO_F32, w, grad, 1, (size_t[]){ 1500 });
    zro_must(zro_group_create_env(NULL, &ranks));
    config.hook = clip_and_average, config.hook_user = &limit;
    zro_must(zro_ddp_create(ranks, &p, 1, &config, &ddp));
    zro_must(zro_ddp_forward(ddp));
    for (int i = 0; i < 1500; i++)
        grad[i] = zro_group_rank(ranks) == 0 ? 1 : 9;
    zro_must(zro_ddp_grad_ready(ddp, 0));
    zro_must(zro_ddp_backward_end(ddp));
    printf("average %g\n", (double)grad[1499]);
    zro_ddp_destroy(ddp);
    zro_group_destroy(ranks);
    return grad[0] != 1.5f || grad[1499] != 1.5f;
}
