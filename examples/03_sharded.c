/* A training loop, and the lines that shard it: a small network learns y = sin(a) cos(b) on every rank's own samples, while the
 * state of AdamW exists once instead of once per rank.
 *
 *   cc 03_sharded.c $(pkg-config --cflags --libs zro) -lm && zro run -n 2 -- ./a.out
 *
 * Linked with zro-mpi-openmpi it also runs under mpirun -n 2 ./a.out; started by itself it is one rank.
 *
 * Without the lines marked "sharded" it would be a program for one process, with malloc for the arrays and NULL for the group.
 * 04_ddp.c leaves averaging to the data-parallel layer. */
#include <math.h>
#include <stdio.h>
#include <zro.h>

enum { IN = 2, WIDTH = 256, BATCH = 16, STEPS = 300, PARAMS = 6 };

static float random_in(unsigned *state, float low, float high)
{
    *state = *state * 1664525u + 1013904223u;
    return low + (high - low) * (float)(*state >> 8) / 16777216.0f;
}

/* One dense layer y = x W + b for one sample, and its gradients. */
static void forward(const zro_param *w, const float *x, int n_in, int n_out, float *y)
{
    for (int o = 0; o < n_out; o++)
        y[o] = ((float *)w[1].data)[o];
    for (int i = 0; i < n_in; i++)
        for (int o = 0; o < n_out; o++)
            y[o] += x[i] * ((float *)w[0].data)[i * n_out + o];
}

static void backward(zro_param *w, const float *x, const float *dy, int n_in, int n_out, float *dx)
{
    for (int o = 0; o < n_out; o++)
        ((float *)w[1].grad)[o] += dy[o];
    for (int i = 0; i < n_in; i++) {
        dx[i] = 0;
        for (int o = 0; o < n_out; o++) {
            ((float *)w[0].grad)[i * n_out + o] += x[i] * dy[o];
            dx[i] += ((float *)w[0].data)[i * n_out + o] * dy[o];
        }
    }
}

/* The mean loss of a batch; gradients are added up. */
static float train_on(zro_param *p, unsigned *random)
{
    float x[IN], h1[WIDTH], h2[WIDTH], y, dy, d1[WIDTH], d2[WIDTH], dx[IN], loss = 0;

    for (int k = 0; k < BATCH; k++) {
        x[0] = random_in(random, -2, 2);
        x[1] = random_in(random, -2, 2);
        forward(&p[0], x, IN, WIDTH, h1);
        for (int i = 0; i < WIDTH; i++)
            h1[i] = tanhf(h1[i]);
        forward(&p[2], h1, WIDTH, WIDTH, h2);
        for (int i = 0; i < WIDTH; i++)
            h2[i] = tanhf(h2[i]);
        forward(&p[4], h2, WIDTH, 1, &y);
        dy = y - sinf(x[0]) * cosf(x[1]);
        loss += dy * dy / BATCH;
        dy *= 2.0f / BATCH;
        backward(&p[4], h2, &dy, WIDTH, 1, d2);
        for (int i = 0; i < WIDTH; i++)
            d2[i] *= 1 - h2[i] * h2[i];
        backward(&p[2], h1, d2, WIDTH, WIDTH, d1);
        for (int i = 0; i < WIDTH; i++)
            d1[i] *= 1 - h1[i] * h1[i];
        backward(&p[0], x, d1, IN, WIDTH, dx);
    }
    return loss;
}

int main(void)
{
    static const size_t shapes[PARAMS][2] = { { IN, WIDTH }, { WIDTH, 1 }, { WIDTH, WIDTH },
                                              { WIDTH, 1 },  { WIDTH, 1 }, { 1, 1 } };
    zro_adamw_config adamw = ZRO_ADAMW_CONFIG_INIT;
    zro_step_info info = ZRO_STEP_INFO_INIT;
    zro_param p[PARAMS];
    zro_param_group group = ZRO_PARAM_GROUP_INIT;
    zro_group *ranks;
    zro_optim *opt;
    unsigned random;
    int rank, size;
    uint64_t hash;
    double total, mine;
    float loss = 0;

    for (int i = 0; i < PARAMS; i++)
        zro_param_make(&p[i], NULL, ZRO_F32, NULL, NULL, 2, shapes[i]);
    group.params = p;
    group.n = PARAMS;
    zro_must(zro_group_create_env(NULL, &ranks));       /* sharded */
    rank = zro_group_rank(ranks);                       /* sharded */
    size = zro_group_size(ranks);                       /* sharded */
    zro_must(zro_params_alloc(ranks, p, PARAMS, NULL)); /* sharded: parameters exist once per machine */
    random = 1;
    for (int i = 0; rank == 0 && i < PARAMS; i++) /* sharded: one rank writes them */
        for (size_t k = 0; k < zro_param_count(&p[i]); k++)
            ((float *)p[i].data)[k] = random_in(&random, -1, 1) / sqrtf((float)p[i].shape[0]);

    zro_must(zro_optim_create(ranks, &group, 1, zro_rule_adamw(), &adamw, NULL, &opt)); /* sharded: `ranks` instead of NULL */
    zro_must(zro_param_publish(opt, ZRO_ALL_PARAMS, 0)); /* sharded: all ranks get rank 0's values */

    random = 100 + (unsigned)rank;
    for (int step = 0; step < STEPS; step++) {
        loss = train_on(p, &random);
        zro_params_mark_grads(p, PARAMS);
        zro_must(zro_params_all_reduce(ranks, p, PARAMS, ZRO_AVG)); /* sharded */
        zro_must(zro_optim_step(opt, NULL));
        zro_must(zro_optim_zero_grad(opt, ZRO_ZERO_CLEAR));
        zro_must(zro_all_reduce(ranks, &loss, 1, ZRO_F32, ZRO_AVG)); /* sharded */
        if (rank == 0 && (step % 75 == 0 || step == STEPS - 1))
            printf("step %3d  loss %.5f\n", step, (double)loss);
    }

    zro_must(zro_params_hash(p, PARAMS, &hash));
    zro_must(zro_optim_info(opt, &info));
    total = mine = (double)info.state_bytes;
    zro_must(zro_all_reduce(ranks, &total, 1, ZRO_F64, ZRO_SUM));
    printf("rank %d: parameters %016llx; keeps %.0f of %.0f bytes of optimizer state\n", rank, (unsigned long long)hash, mine,
           total);
    zro_must(zro_barrier(ranks));
    if (rank == 0 && size > 1)
        printf(
            "%d ranks without sharding would keep %.0f bytes; saved: %.0f (%.0f %%), and %d of %d copies of the parameters\n",
            size, size * total, (size - 1) * total, 100.0 * (size - 1) / size, size - 1, size);
    zro_optim_destroy(opt);
    zro_params_free(p, PARAMS);
    zro_group_destroy(ranks);
    return loss > 0.05f;
}
