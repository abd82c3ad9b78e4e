/* The names that lines of C in README.md and docs/ use: scripts/docs puts these lines here, and compiles. */
#include <zro.h>

extern zro_group *ranks, *sub;
extern zro_group_config group_config;
extern int members[], n_members, rank, label, owner, last;
extern zro_param p[], *buffers;
extern size_t i, n, index, bytes, out_bytes, count, elements, n_groups, n_buckets, n_ranges, n_values, n_limits, n_delayed,
    n_joinables;
extern size_t limits[], delayed[], order_out[], lengths_out[];
extern const size_t *bucket_params, *bucket_lengths;
extern zro_param_group groups[], group;
extern int32_t owners[];
extern zro_value values[];
extern double all_values[], value, loss, norm, samples, divisor;
extern const zro_rule *rule;
extern zro_adamw_config adamw_config;
extern zro_optim_config optim_config;
extern zro_plan_config plan_config;
extern zro_ddp_config ddp_config;
extern zro_optim *opt;
extern zro_ddp *ddp, *other;
extern zro_plan *made;
extern const zro_plan *plan;
extern const zro_range *ranges;
extern zro_state *state;
extern zro_slot slot;
extern zro_step_info step_info;
extern zro_stats stats;
extern zro_schedule *schedule;
extern zro_join *join;
extern zro_join_config join_config;
extern zro_join_info join_info;
extern zro_joinable joinables[], joinable;
extern zro_shadow_fn shadow;
extern zro_post_fn post;
extern zro_closure_fn closure;
extern zro_hook_fn hook;
extern zro_hook_inner inner;
extern zro_bucket *bucket;
extern zro_dtype dtype;
extern zro_status status;
extern void *user, *closure_user, *data, *out;
extern const void *in;
extern float counter[];
extern uint32_t present;
extern char text[1024];

void lines(void);
void lines(void)
{
    LINES
}
