/* Two parameters that have no memory yet.  ranks: 2 */
#include <stdio.h>
#include <stdlib.h>
#include <zro.h>

int main(void)
{
    enum { n = 2 };
    zro_adamw_config values = ZRO_ADAMW_CONFIG_INIT;
    zro_step_info info = ZRO_STEP_INFO_INIT;
    zro_param_group group = ZRO_PARAM_GROUP_INIT;
    zro_param p[n];
    zro_group *ranks;
    zro_optim *opt;

    zro_param_make(&p[0], "weight", ZRO_F32, NULL, NULL, 2, (size_t[]){ 300, 10 });
    zro_param_make(&p[1], "bias", ZRO_F32, NULL, NULL, 1, (size_t[]){ 10 });
    group.params = p;
    group.n = n;
    /* SNIPPET */
    zro_must(zro_optim_info(opt, &info));
    zro_optim_destroy(opt);
    zro_params_free(p, n);
    zro_group_destroy(ranks);
    return info.n_steps != 1;
}
