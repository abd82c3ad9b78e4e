/* Trains and saves in the first round, and in the second one resumes what is done already.  ranks: 2 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zro.h>

int main(void)
{
    static float w[5000], grad[5000];
    zro_param_group group = ZRO_PARAM_GROUP_INIT;
    zro_group *ranks;
    zro_param p;

    zro_param_make(&p, "w", ZRO_F32, w, grad, 1, (size_t[]){ 5000 });
    group.params = &p;
    group.n = 1;
    zro_must(zro_group_create_env(NULL, &ranks));
    for (int round = 0; round < 2; round++) {
        zro_step_info info = ZRO_STEP_INFO_INIT;
        zro_optim *opt;

        zro_must(zro_optim_create(ranks, &group, 1, zro_rule_adamw(), NULL, NULL, &opt));
        /* SNIPPET */
        zro_must(zro_optim_info(opt, &info));
        if (info.n_steps != 300 || step.value != 300)
            return 1;
        zro_must(zro_barrier(ranks));
        zro_optim_destroy(opt);
    }
    zro_group_destroy(ranks);
    return 0;
}
