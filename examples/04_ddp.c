/* Data-parallel training: every rank computes gradients on its own samples, and says of each layer when its gradient is final.
 *
 *   cc 04_ddp.c $(pkg-config --cflags --libs zro) -lm && zro run -n 2 -- ./a.out
 *
 * The optimizer is attached to the ddp: its step averages, updates and publishes in one pass over memory, and its state is
 * divided over the ranks.  The network learns y = sin(a) cos(b). */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <zro.h>

enum { LAYERS = 3, WIDTH = 64, BATCH = 16, STEPS = 400 };
static const size_t width[LAYERS + 1] = { 2, WIDTH, WIDTH, 1 };
static float x[LAYERS + 1][BATCH][WIDTH], d[LAYERS + 1][BATCH][WIDTH]; /* what layers get and give; the gradients of that */

static float random_in(unsigned *state, float low, float high)
{
    *state = *state * 1664525u + 1013904223u;
    return low + (high - low) * (float)(*state >> 8) / 16777216.0f;
}

/* Layer l multiplies by a matrix, which is parameter l; all but the last apply tanh then. */
static void forward(const float *w, int l)
{
    for (int k = 0; k < BATCH; k++)
        for (size_t o = 0; o < width[l + 1]; o++) {
            float sum = 0;

            for (size_t i = 0; i < width[l]; i++)
                sum += w[o * width[l] + i] * x[l][k][i];
            x[l + 1][k][o] = l < LAYERS - 1 ? tanhf(sum) : sum;
        }
}

static void backward(const float *w, float *grad, int l)
{
    memset(grad, 0, width[l] * width[l + 1] * sizeof *grad);
    memset(d[l], 0, sizeof d[l]);
    for (int k = 0; k < BATCH; k++)
        for (size_t o = 0; o < width[l + 1]; o++) {
            float dy = d[l + 1][k][o] * (l < LAYERS - 1 ? 1 - x[l + 1][k][o] * x[l + 1][k][o] : 1);

            for (size_t i = 0; i < width[l]; i++) {
                grad[o * width[l] + i] += dy * x[l][k][i];
                d[l][k][i] += dy * w[o * width[l] + i];
            }
        }
}

int main(void)
{
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_param_group group = ZRO_PARAM_GROUP_INIT;
    zro_param p[LAYERS];
    zro_group *ranks;
    zro_ddp *ddp;
    zro_optim *opt;
    unsigned random = 1;
    uint64_t hash;
    float loss = 0;

    zro_must(zro_group_create_env(NULL, &ranks));
    for (int l = 0; l < LAYERS; l++)
        zro_param_make(&p[l], NULL, ZRO_F32, NULL, NULL, 2, (size_t[]){ width[l + 1], width[l] });
    zro_must(
        zro_params_alloc(ranks, p, LAYERS, NULL)); /* parameters once per machine, gradients where all ranks can read them */
    for (int l = 0; zro_group_rank(ranks) == 0 && l < LAYERS; l++)
        for (size_t i = 0; i < zro_param_count(&p[l]); i++)
            ((float *)p[l].data)[i] = random_in(&random, -1, 1) / sqrtf((float)width[l]);
    zro_must(zro_ddp_create(ranks, p, LAYERS, NULL, &ddp)); /* all ranks have the values of rank 0 from here on */
    group.params = p, group.n = LAYERS, config.ddp = ddp;
    zro_must(zro_optim_create(ranks, &group, 1, zro_rule_adamw(), NULL, &config, &opt));

    random = 100 + (unsigned)zro_group_rank(ranks); /* each rank has samples of its own */
    for (int step = 0; step < STEPS; step++) {
        uint64_t mark;

        zro_must(zro_ddp_forward(ddp));
        mark = zro_trace_begin(ranks); /* with ZRO_TRACE=FILE forward and backward are seen in it, beside what zro does */
        for (int k = 0; k < BATCH; k++)
            x[0][k][0] = random_in(&random, -2, 2), x[0][k][1] = random_in(&random, -2, 2);
        for (int l = 0; l < LAYERS; l++)
            forward(p[l].data, l);
        zro_trace_end(ranks, mark, "forward");
        mark = zro_trace_begin(ranks);
        for (int k = 0; k < BATCH; k++)
            d[LAYERS][k][0] = 2.0f / BATCH * (x[LAYERS][k][0] - sinf(x[0][k][0]) * cosf(x[0][k][1]));
        for (int l = LAYERS - 1; l >= 0; l--) {
            backward(p[l].data, p[l].grad, l);
            zro_must(zro_ddp_grad_ready(ddp, (size_t)l)); /* until the step is done, nobody touches this layer */
        }
        zro_trace_end(ranks, mark, "backward");
        zro_must(zro_ddp_backward_end(ddp));
        zro_must(zro_optim_step(opt, NULL));
    }
    for (int k = 0; k < BATCH; k++)
        loss += d[LAYERS][k][0] * d[LAYERS][k][0] * BATCH / 4; /* of the last batch */
    zro_must(zro_params_hash(p, LAYERS, &hash));
    printf("rank %d: loss %.5f, parameters %016llx\n", zro_group_rank(ranks), (double)loss, (unsigned long long)hash);
    zro_optim_destroy(opt);
    zro_ddp_destroy(ddp);
    zro_params_free(p, LAYERS);
    zro_group_destroy(ranks);
    return loss > 0.1f;
}
