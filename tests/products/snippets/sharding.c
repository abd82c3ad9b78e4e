/* Parameters of two groups that have no memory yet.  ranks: 2 */
#include <stdio.h>
#include <stdlib.h>
#include <zro.h>

int main(void)
{
    enum { n = 2, n_groups = 2 };
    zro_adamw_config values = ZRO_ADAMW_CONFIG_INIT;
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_step_info info = ZRO_STEP_INFO_INIT;
    zro_param_group groups[n_groups] = { ZRO_PARAM_GROUP_INIT, ZRO_PARAM_GROUP_INIT };
    zro_param p[n];
    zro_group *ranks;
    zro_optim *opt;

    for (int i = 0; i < n; i++) {
        zro_param_make(&p[i], NULL, ZRO_F32, NULL, NULL, 1, (size_t[]){ 5000 });
        groups[i].params = &p[i];
        groups[i].n = 1;
    }
    zro_must(zro_group_create_env(NULL, &ranks));
    /* SNIPPET */
    zro_must(zro_optim_info(opt, &info));
    zro_optim_destroy(opt);
    zro_params_free(p, n);
    zro_group_destroy(ranks);
    return info.n_steps != 1;
}
