/* A program as it was compiled with the header of 0.1.0: its structs are written out here, shorter than those of today, and so are
 * their first values.  It must run with the shared library of every later 0.x whose changelog does not say otherwise.
 *
 * Two ranks train one parameter with a ddp and an attached optimizer, and check the result.  Behind each struct lie bytes that the
 * library must not take for fields. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct old_settings {
    uint32_t threads;
    int kernels, fast, log_level;
    void *log, *log_user;
    uint64_t warn_ms, reserved[3];
} old_settings;

typedef struct old_group_config {
    size_t struct_size;
    old_settings settings;
    uint64_t timeout_ms;
    const int32_t *cells;
    int64_t machine;
    const void *link;
} old_group_config;

typedef struct old_param {
    void *data, *grad;
    uint32_t grad_present, requires_grad;
    int dtype, grad_dtype, device, layout;
    uint32_t n_dims, reserved32;
    const char *name;
    size_t shape[8];
    void *memory;
    uint64_t reserved[3];
} old_param;

typedef struct old_param_group {
    old_param *params;
    const size_t *index;
    size_t n;
    const void *config, *values;
    size_t n_values;
    const int32_t *owners;
    uint64_t reserved[3];
} old_param_group;

typedef struct old_ddp_config {
    size_t struct_size, bucket_bytes;
    int find_unused, static_graph, gradient_as_bucket_view, broadcast, broadcast_buffers, weighted;
    const old_param *buffers;
    size_t n_buffers;
    void *hook, *hook_user;
} old_ddp_config;

typedef struct old_optim_config {
    size_t struct_size;
    old_settings settings;
    int masters, rounding;
    uint64_t seed;
    double clip_norm, clip_norm_type, clip_value;
    int skip_non_finite, loss_scale;
    double scale_init, scale_growth, scale_backoff;
    uint32_t growth_interval;
    const void *plan;
    int parameters_as_bucket_view;
    void *ddp;
} old_optim_config;

extern const char *zro_version(void), *zro_last_error(void);
extern const void *zro_rule_adamw(void);
extern int zro_group_create_env(const old_group_config *, void **), zro_group_rank(const void *), zro_group_size(const void *);
extern int zro_ddp_create(void *, old_param *, size_t, const old_ddp_config *, void **), zro_ddp_forward(void *);
extern int zro_ddp_grad_ready(void *, size_t), zro_ddp_backward_end(void *), zro_optim_step(void *, void *);
extern int zro_optim_create(void *, const old_param_group *, size_t, const void *, const void *, const old_optim_config *,
                            void **);
extern int zro_optim_set_value(void *, size_t, const char *, double);
extern void zro_param_make(old_param *, const char *, int, void *, void *, uint32_t, const size_t *);
extern void zro_optim_destroy(void *), zro_ddp_destroy(void *), zro_group_destroy(void *);

static const old_settings SETTINGS = { .threads = 1, .fast = 1, .log_level = 1, .warn_ms = 10000 };
enum { TRAP = 0x5a }; /* what lies behind a config: as a pointer or a number it would be refused, or crash */

static int failed(const char *what)
{
    printf("%s: %s\n", what, zro_last_error());
    return 1;
}

/* AdamW on (w - 3 - rank)^2: the average of the two gradients is that of (w - 3.5)^2. */
static int train(void *group)
{
    struct {
        old_ddp_config config;
        char behind[64];
    } ddp_with;
    struct {
        old_optim_config config;
        char behind[64];
    } optim_with;
    float w = 0, grad = 0;
    old_param param;
    old_param_group params = { .params = &param, .n = 1 };
    void *ddp = NULL, *optim = NULL;
    int bad = 0;

    memset(&ddp_with, TRAP, sizeof ddp_with);
    memset(&optim_with, TRAP, sizeof optim_with);
    ddp_with.config = (old_ddp_config){ .struct_size = sizeof(old_ddp_config), .broadcast = 1, .broadcast_buffers = 1 };
    zro_param_make(&param, "w", 0, &w, &grad, 1, (size_t[]){ 1 });
    if (zro_ddp_create(group, &param, 1, &ddp_with.config, &ddp) != 0)
        return failed("zro_ddp_create");
    optim_with.config = (old_optim_config){ .struct_size = sizeof(old_optim_config),
                                            .settings = SETTINGS,
                                            .masters = 1,
                                            .clip_norm_type = 2,
                                            .scale_init = 65536,
                                            .scale_growth = 2,
                                            .scale_backoff = 0.5,
                                            .growth_interval = 2000,
                                            .ddp = ddp };
    if (zro_optim_create(group, &params, 1, zro_rule_adamw(), NULL, &optim_with.config, &optim) != 0
        || zro_optim_set_value(optim, 0, "lr", 0.1) != 0)
        bad = failed("zro_optim_create");
    for (int step = 0; step < 200 && !bad; step++) {
        bad = zro_ddp_forward(ddp) != 0;
        grad = 2 * (w - 3 - (float)zro_group_rank(group));
        bad = bad || zro_ddp_grad_ready(ddp, 0) != 0 || zro_ddp_backward_end(ddp) != 0 || zro_optim_step(optim, NULL) != 0;
        if (bad)
            failed("a step");
    }
    zro_optim_destroy(optim);
    zro_ddp_destroy(ddp);
    if (!bad && fabsf(w - 3.5f) > 0.1f)
        bad = printf("w = %g, must be about 3.5\n", (double)w);
    return bad;
}

int main(void)
{
    struct {
        old_group_config config;
        char behind[64];
    } with;
    void *group = NULL;
    int bad;

    memset(&with, TRAP, sizeof with);
    with.config =
        (old_group_config){ .struct_size = sizeof(old_group_config), .settings = SETTINGS, .timeout_ms = 60000, .machine = -1 };
    if (zro_group_create_env(&with.config, &group) != 0)
        return failed("zro_group_create_env");
    if (zro_group_size(group) != 2) {
        printf("there are %d ranks, must be 2\n", zro_group_size(group));
        return 1;
    }
    bad = train(group);
    zro_group_destroy(group);
    if (!bad)
        printf("compiled with 0.1.0, runs with %s\n", zro_version());
    return bad != 0;
}
