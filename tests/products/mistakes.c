/* The mistakes of docs/mistakes.md, each made by two ranks:  zro run -n 2 -- mistakes NUMBER
 *
 * tests/products/mistakes.sh runs them all and looks for the text that the page shows. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zro.h>

enum { N = 3000 };

static float w[N], grad[N], other[N];
static zro_group *ranks;
static zro_optim *opt;
static zro_param param;
static zro_param_group list = ZRO_PARAM_GROUP_INIT;
static int rank;

/* A program without a mistake, as far as the mistakes need one. */
static void begin(void)
{
    zro_must(zro_group_create_env(NULL, &ranks));
    rank = zro_group_rank(ranks);
    zro_param_make(&param, "w", ZRO_F32, w, grad, 1, (size_t[]){ N });
    list.params = &param;
    list.n = 1;
}

static void make(void)
{
    zro_must(zro_optim_create(ranks, &list, 1, zro_rule_adamw(), NULL, NULL, &opt));
}

static void step(void)
{
    zro_must(zro_optim_step(opt, NULL));
}

static void no_group(void)
{
    printf("trained\n");
    exit(0);
}

static void no_presence(void)
{
    zro_param_set_grad(&param, NULL);
    make();
    step();
}

static void no_average(void)
{
    grad[5] = (float)rank;
    make();
    step();
}

static void other_shapes(void)
{
    param.shape[0] = rank == 0 ? N : N - 1;
    make();
}

static void other_lr(void)
{
    make();
    zro_must(zro_optim_set_value(opt, 0, "lr", rank == 0 ? 0.1 : 0.01));
    step();
}

static void other_first_values(void)
{
    w[7] = (float)rank;
    make();
    step();
}

static void other_presence(void)
{
    make();
    if (rank == 1)
        param.grad_present = 0;
    step();
}

static void alone_in_a_call(void)
{
    make();
    if (rank == 0)
        step();
    else
        zro_must(zro_barrier(ranks));
}

static void other_calls(void)
{
    zro_must(rank == 0 ? zro_all_reduce(ranks, w, N, ZRO_F32, ZRO_SUM) : zro_barrier(ranks));
}

static void other_counts(void)
{
    zro_must(zro_all_reduce(ranks, w, rank == 0 ? N : N - 1, ZRO_F32, ZRO_SUM));
}

static void early_exit(void)
{
    if (rank == 1)
        exit(0);
    zro_must(zro_barrier(ranks));
}

static void wrong_struct(void)
{
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;

    zro_must(zro_optim_create(ranks, &list, 1, zro_rule_adamw(), &config, NULL, &opt));
}

static void other_struct(void)
{
    zro_sgd_config config = ZRO_SGD_CONFIG_INIT;

    zro_must(zro_optim_create(ranks, &list, 1, zro_rule_adamw(), &config, NULL, &opt));
}

static void no_initializer(void)
{
    zro_adamw_config config;

    memset(&config, 0, sizeof config);
    zro_must(zro_optim_create(ranks, &list, 1, zro_rule_adamw(), &config, NULL, &opt));
}

static void misspelt_rule(void)
{
    zro_must(zro_optim_create(ranks, &list, 1, zro_rule_find("AdmaW"), NULL, NULL, &opt));
}

static void forgotten_n_dims(void)
{
    zro_param_init(&param);
    param.shape[0] = 60;
    param.shape[1] = 50;
    param.data = w;
    make();
}

static void forgotten_shape(void)
{
    zro_param_init(&param);
    param.data = w;
    make();
}

static void no_data(void)
{
    param.data = NULL;
    make();
}

static void value_out_of_range(void)
{
    zro_adamw_config config = ZRO_ADAMW_CONFIG_INIT;

    config.beta1 = 1.5;
    zro_must(zro_optim_create(ranks, &list, 1, zro_rule_adamw(), &config, NULL, &opt));
}

static void moved_data(void)
{
    param.data = param.grad = NULL;
    zro_must(zro_params_alloc(ranks, &param, 1, NULL));
    make();
    param.data = other;
    step();
}

static void two_at_once(void)
{
    zro_param two[2] = { param, param };

    list.params = two;
    list.n = 2;
    make();
}

static void forked_child(void)
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        zro_must(zro_barrier(ranks));
        _exit(0);
    }
    waitpid(pid, &status, 0);
}

static void missing_file(void)
{
    zro_state *state;

    zro_must(zro_state_read("nowhere.safetensors", &state));
}

static void average_of_integers(void)
{
    int32_t x = 1;

    zro_must(zro_all_reduce(ranks, &x, 1, ZRO_I32, ZRO_AVG));
}

static void no_group_initializer(void)
{
    zro_param_group group;

    memset(&group, 0xa5, sizeof group); /* what may be on the stack */
    group.params = &param;
    group.n = 1;
    zro_must(zro_optim_create(ranks, &group, 1, zro_rule_adamw(), NULL, NULL, &opt));
}

static void equal_names(void)
{
    zro_param two[2] = { param, param };

    zro_param_make(&two[1], "w", ZRO_F32, other, NULL, 1, (size_t[]){ N });
    list.params = two;
    list.n = 2;
    make();
}

static void shared_gradients(void)
{
    zro_param two[2] = { param, param };

    zro_param_make(&two[1], "v", ZRO_F32, other, grad, 1, (size_t[]){ N });
    list.params = two;
    list.n = 2;
    make();
}

static void save_on_one_rank(void)
{
    make();
    if (rank == 0)
        zro_must(zro_optim_save(opt, "run.safetensors", NULL));
    else
        step();
}

static void numbers_not_asked_for(void)
{
    zro_value epoch = { "epoch", 3 };
    zro_save_config with = ZRO_SAVE_CONFIG_INIT;

    make();
    with.numbers = &epoch;
    with.n_numbers = 1;
    zro_must(zro_optim_save(opt, "run.safetensors", &with));
    zro_must(zro_optim_resume(opt, "run.safetensors", NULL));
}

static void average_forgotten_later(void)
{
    make();
    for (int i = 0; i < 12; i++) {
        grad[N / 2] = (float)(rank + i);
        if (i == 0)
            zro_must(zro_params_all_reduce(ranks, &param, 1, ZRO_AVG));
        step();
    }
}

static void group_not_given(void)
{
    zro_must(zro_optim_create(NULL, &list, 1, zro_rule_adamw(), NULL, NULL, &opt));
    step();
    zro_optim_destroy(opt);
    zro_group_destroy(ranks);
}

static void zeroed_parameter(void)
{
    param = (zro_param){ .data = w, .grad = grad, .grad_present = 1, .name = "w", .n_dims = 1, .shape = { N } };
    make();
}

/* A ddp with an attached optimizer, in its first iteration. */
static zro_ddp *begin_iteration(void)
{
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_ddp *ddp;

    zro_must(zro_ddp_create(ranks, &param, 1, NULL, &ddp));
    config.ddp = ddp;
    zro_must(zro_optim_create(ranks, &list, 1, zro_rule_adamw(), NULL, &config, &opt));
    zro_must(zro_optim_zero_grad(opt, ZRO_ZERO_CLEAR));
    return ddp;
}

static void never_ready(void)
{
    zro_ddp *ddp = begin_iteration();

    zro_must(zro_ddp_forward(ddp));
    if (rank == 0)
        zro_must(zro_ddp_grad_ready(ddp, 0));
    zro_must(zro_ddp_backward_end(ddp));
    step();
}

static void ready_twice(void)
{
    zro_ddp *ddp = begin_iteration();

    zro_must(zro_ddp_forward(ddp));
    zro_must(zro_ddp_grad_ready(ddp, 0));
    zro_must(zro_ddp_grad_ready(ddp, 0));
}

static void step_under_no_sync(void)
{
    zro_ddp *ddp = begin_iteration();

    zro_must(zro_ddp_no_sync(ddp, ZRO_ON));
    zro_must(zro_ddp_forward(ddp));
    zro_must(zro_ddp_grad_ready(ddp, 0));
    zro_must(zro_ddp_backward_end(ddp));
    step();
}

static void no_step(void)
{
    zro_ddp *ddp = begin_iteration();

    for (int iteration = 0; iteration < 2; iteration++) {
        zro_must(zro_ddp_forward(ddp));
        zro_must(zro_ddp_grad_ready(ddp, 0));
        zro_must(zro_ddp_backward_end(ddp));
    }
}

typedef void (*mistake)(void);
static const mistake mistakes[] = {
    no_group,
    no_presence,
    no_average,
    other_shapes,
    other_lr,
    other_first_values,
    other_presence,
    alone_in_a_call,
    other_calls,
    other_counts,
    early_exit,
    wrong_struct,
    other_struct,
    no_initializer,
    misspelt_rule,
    forgotten_n_dims,
    forgotten_shape,
    no_data,
    value_out_of_range,
    moved_data,
    two_at_once,
    forked_child,
    missing_file,
    average_of_integers,
    no_group_initializer,
    equal_names,
    shared_gradients,
    save_on_one_rank,
    numbers_not_asked_for,
    average_forgotten_later,
    group_not_given,
    zeroed_parameter,
    never_ready,
    ready_twice,
    step_under_no_sync,
    no_step,
};

int main(int argc, char **argv)
{
    size_t i = argc > 1 ? strtoul(argv[1], NULL, 10) - 1 : SIZE_MAX;

    if (i >= sizeof mistakes / sizeof *mistakes)
        return 2;
    if (mistakes[i] != no_group)
        begin();
    mistakes[i]();
    return 0;
}
