/* The same kind of trainer with a ddp, on one parameter that learns the mean of four samples.  ranks: 1 2; prints: w = 3.0, loss 5.0 */
#include <stdio.h>
#include <stdlib.h>
#include <zro.h>

enum { COUNT = 3000, STEPS = 2000 };
static struct {
    float *params_memory, *grads_memory;
    size_t num_parameters;
    float samples[4], mean_loss;
    int batch;
} m = { NULL, NULL, COUNT, { 0 }, 0, 0 };
static float last_loss;

/* All steps have the samples 0, 2, 4 and 6; this rank takes B of them. */
static void next_batch(void *unused, int step, int B, int rank, int size)
{
    (void)unused, (void)step, (void)size;
    m.batch = B;
    for (int k = 0; k < B; k++)
        m.samples[k] = 2.0f * (float)(rank * B + k);
}

static void model_forward(void *unused)
{
    (void)unused;
    m.mean_loss = 0;
    for (int k = 0; k < m.batch; k++) {
        float wrong_by = m.params_memory[0] - m.samples[k];

        m.mean_loss += wrong_by * wrong_by / (float)m.batch;
    }
}

static void model_backward(void *unused)
{
    (void)unused;
    if (m.grads_memory == NULL)
        m.grads_memory = malloc(COUNT * sizeof(float));
    for (size_t i = 0; i < COUNT; i++) {
        m.grads_memory[i] = 0;
        for (int k = 0; k < m.batch; k++)
            m.grads_memory[i] += 2 * (m.params_memory[i] - m.samples[k]) / (float)m.batch;
    }
}

static void report(int step, float loss)
{
    (void)step;
    last_loss = loss;
}

int main(void)
{
    zro_group *ranks;
    zro_param all;
    zro_value values[] = { { "lr", 0.01 }, { "weight_decay", 0 } };
    zro_param_group group = { .params = &all, .n = 1, .values = values, .n_values = 2 };

    m.params_memory = calloc(COUNT, sizeof(float));
    zro_must(zro_group_create_env(NULL, &ranks));
    int rank = zro_group_rank(ranks), size = zro_group_size(ranks);
    int B = 4 / size;
    zro_param_make(&all, "model", ZRO_F32, m.params_memory, NULL, 1, &m.num_parameters);
    /* SNIPPET */
    fprintf(stderr, "w = %.1f, loss %.1f\n", (double)m.params_memory[COUNT - 1], (double)last_loss);
    zro_group_destroy(ranks);
    free(m.params_memory);
    free(m.grads_memory);
    return 0;
}
