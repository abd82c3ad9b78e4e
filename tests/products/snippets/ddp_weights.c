/* Rank 0 has 1 sample with gradient 1, rank 1 has 3 with gradient 5: the average is 4.  ranks: 2; prints: average 4 */
#include <stdio.h>
#include <stdlib.h>
#include <zro.h>

int main(void)
{
    static float w[1500], grad[1500];
    zro_group *ranks;
    zro_param p;
    zro_ddp *ddp;
    double samples;
    int rank;

    zro_param_make(&p, "w", ZRO_F32, w, grad, 1, (size_t[]){ 1500 });
    zro_must(zro_group_create_env(NULL, &ranks));
    rank = zro_group_rank(ranks);
    samples = rank == 0 ? 1 : 3;
    /* SNIPPET */
    for (int i = 0; i < 1500; i++)
        grad[i] = rank == 0 ? 1 : 5;
    zro_must(zro_ddp_grad_ready(ddp, 0));
    zro_must(zro_ddp_backward_end(ddp));
    printf("average %g\n", (double)grad[1499]);
    zro_ddp_destroy(ddp);
    zro_group_destroy(ranks);
    return grad[0] != 4 || grad[1499] != 4;
}
