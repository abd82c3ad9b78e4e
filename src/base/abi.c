/* What bindings ask: the version, and the sizes of the public structs as this library was built. */
#include "zro.h"

const char *zro_version(void)
{
    return ZRO_VERSION;
}

#define SIZE(type)                                                                                                             \
    {                                                                                                                          \
#type, sizeof(type)                                                                                                    \
    }

const zro_abi_entry *zro_abi(size_t *count)
{
    static const zro_abi_entry entries[] = {
        SIZE(zro_abi_entry),      SIZE(zro_settings),       SIZE(zro_link_request),    SIZE(zro_link),
        SIZE(zro_group_config),   SIZE(zro_param),          SIZE(zro_alloc_config),    SIZE(zro_range),
        SIZE(zro_plan_config),    SIZE(zro_move),           SIZE(zro_sgd_config),      SIZE(zro_adam_config),
        SIZE(zro_adamw_config),   SIZE(zro_adagrad_config), SIZE(zro_adadelta_config), SIZE(zro_adamax_config),
        SIZE(zro_rmsprop_config), SIZE(zro_rprop_config),   SIZE(zro_asgd_config),     SIZE(zro_nadam_config),
        SIZE(zro_radam_config),   SIZE(zro_value),          SIZE(zro_param_group),     SIZE(zro_optim_config),
        SIZE(zro_slot),           SIZE(zro_progress),       SIZE(zro_step_info),       SIZE(zro_one_cycle_config),
        SIZE(zro_plateau_config), SIZE(zro_save_config),    SIZE(zro_lbfgs_config),    SIZE(zro_stats),
        SIZE(zro_hyper),          SIZE(zro_slot_spec),      SIZE(zro_rule_step),       SIZE(zro_rule_tile),
        SIZE(zro_rule),           SIZE(zro_hook_inner),     SIZE(zro_ddp_config),      SIZE(zro_join_info),
        SIZE(zro_joinable),       SIZE(zro_join_config),    SIZE(zro_sample_config),
    };

    if (count != NULL)
        *count = sizeof entries / sizeof *entries;
    return entries;
}
