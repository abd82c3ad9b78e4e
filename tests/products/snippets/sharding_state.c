/* A model that is trained for two epochs, and then resumed for none: the numbers say that two are done.  ranks: 2 */
#include <stdio.h>
#include <stdlib.h>
#include <zro.h>

int main(void)
{
    static float w[5000], grad[5000];
    const int epochs = 2;
    zro_plateau_config config = ZRO_PLATEAU_CONFIG_INIT;
    zro_param_group group = ZRO_PARAM_GROUP_INIT;
    zro_group *ranks;
    zro_param p;

    zro_param_make(&p, "w", ZRO_F32, w, grad, 1, (size_t[]){ 5000 });
    group.params = &p;
    group.n = 1;
    zro_must(zro_group_create_env(NULL, &ranks));
    for (int resuming = 0; resuming < 2; resuming++) {
        zro_schedule *warmup_then_cosine, *plateau;
        zro_optim *opt;

        zro_must(zro_optim_create(ranks, &group, 1, zro_rule_adamw(), NULL, NULL, &opt));
        zro_must(zro_schedule_cosine(opt, 100, 0, &warmup_then_cosine));
        zro_must(zro_schedule_plateau(opt, &config, &plateau));
        /* SNIPPET */
        zro_must(zro_optim_step(opt, NULL));
        if (numbers[0].value != 2)
            return 1;
        zro_schedule_destroy(warmup_then_cosine);
        zro_schedule_destroy(plateau);
        zro_optim_destroy(opt);
    }
    zro_group_destroy(ranks);
    return 0;
}
