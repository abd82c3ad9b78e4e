/* Uneven inputs: ranks read samples until they have none left, and nobody knows beforehand how many there are.
 *
 *   cc 06_uneven_inputs.c $(pkg-config --cflags --libs zro) && zro run -n 3 -- ./a.out a.txt b.txt c.txt
 *
 * Rank r reads its samples, "x y" per line, from the r-th file, or without files from standard input, which rank 0 has under zro run.
 * A rank that has run out follows the others: it has no gradients any more, and still updates the part that it owns.  In the end all
 * ranks have the same line y = a x + b. */
#include <stdio.h>
#include <zro.h>

enum { A, B, N };

int main(int argc, char **argv)
{
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_param_group group = ZRO_PARAM_GROUP_INIT;
    zro_sgd_config sgd = ZRO_SGD_CONFIG_INIT;
    zro_join_config how = ZRO_JOIN_CONFIG_INIT;
    float value[N] = { 0 }, grad[N], x, y;
    zro_joinable joinable;
    zro_param p[N];
    zro_group *ranks;
    zro_ddp *ddp;
    zro_optim *opt;
    zro_join *join;
    uint64_t hash;
    int rank, inputs = 0;
    FILE *in = stdin;

    zro_must(zro_group_create_env(NULL, &ranks));
    rank = zro_group_rank(ranks);
    if (argc > 1)
        in = rank + 1 < argc ? fopen(argv[rank + 1], "r") : NULL; /* NULL: this rank has no samples at all */
    zro_param_make(&p[A], "a", ZRO_F32, &value[A], &grad[A], 1, (size_t[]){ 1 });
    zro_param_make(&p[B], "b", ZRO_F32, &value[B], &grad[B], 1, (size_t[]){ 1 });
    zro_must(zro_ddp_create(ranks, p, N, NULL, &ddp));
    group.params = p, group.n = N, config.ddp = ddp, sgd.lr = 0.1;
    zro_must(zro_optim_create(ranks, &group, 1, zro_rule_sgd(), &sgd, &config, &opt));

    how.divide_by = ZRO_REMAINING_RANKS; /* ranks without samples do not make the steps smaller */
    zro_must(zro_ddp_joinable(ddp, &joinable));
    zro_must(zro_join_create(ranks, &joinable, 1, &how, &join));
    for (; in != NULL && fscanf(in, "%f %f", &x, &y) == 2; inputs++) {
        float error;

        zro_must(zro_ddp_forward(ddp));
        error = value[A] * x + value[B] - y;
        grad[A] = 2 * error * x;
        grad[B] = 2 * error;
        zro_must(zro_ddp_grads_ready(ddp, (size_t[]){ A, B }, N));
        zro_must(zro_ddp_backward_end(ddp));
        zro_must(zro_optim_step(opt, NULL));
    }
    zro_must(zro_join_run(join)); /* until all ranks have run out */

    zro_must(zro_params_hash(p, N, &hash));
    printf("rank %d: %d samples, y = %.2f x + %.2f, parameters %016llx\n", rank, inputs, (double)value[A], (double)value[B],
           (unsigned long long)hash);
    zro_join_destroy(join);
    zro_optim_destroy(opt);
    zro_ddp_destroy(ddp);
    zro_group_destroy(ranks);
    return 0;
}
