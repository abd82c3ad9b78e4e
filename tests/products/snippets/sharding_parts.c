/* An optimizer that has made a step.  ranks: 2 */
#include <stdio.h>
#include <stdlib.h>
#include <zro.h>

int main(void)
{
    static float w[5000], grad[5000];
    zro_param_group group = ZRO_PARAM_GROUP_INIT;
    zro_param p;
    zro_group *ranks;
    zro_optim *opt;
    int rank;

    zro_param_make(&p, "w", ZRO_F32, w, grad, 1, (size_t[]){ 5000 });
    group.params = &p;
    group.n = 1;
    zro_must(zro_group_create_env(NULL, &ranks));
    rank = zro_group_rank(ranks);
    zro_must(zro_optim_create(ranks, &group, 1, zro_rule_adamw(), NULL, NULL, &opt));
    zro_must(zro_optim_step(opt, NULL));
    /* SNIPPET */
    zro_must(zro_optim_step(opt, NULL));
    zro_optim_destroy(opt);
    zro_group_destroy(ranks);
    return 0;
}
