/* The same kind of trainer with a ddp, on one parameter that learns to be 3.  ranks: 1 2; prints: w = 3.0 */
#include <stdio.h>
#include <stdlib.h>
#include <zro.h>

enum { COUNT = 3000, STEPS = 2000 };
static struct {
    float *params_memory, *grads_memory;
    size_t num_parameters;
} m = { NULL, NULL, COUNT };

static void model_forward(void *unused)
{
    (void)unused;
}

static void model_backward(void *unused)
{
    (void)unused;
    if (m.grads_memory == NULL)
        m.grads_memory = malloc(COUNT * sizeof(float));
    for (size_t i = 0; i < COUNT; i++)
        m.grads_memory[i] = m.params_memory[i] - 3;
}

int main(void)
{
    zro_group *ranks;
    zro_param all;
    zro_value values[] = { { "lr", 0.01 }, { "weight_decay", 0 } };
    zro_param_group group = { .params = &all, .n = 1, .values = values, .n_values = 2 };

    m.params_memory = calloc(COUNT, sizeof(float));
    zro_must(zro_group_create_env(NULL, &ranks));
    zro_param_make(&all, "model", ZRO_F32, m.params_memory, NULL, 1, &m.num_parameters);
    /* SNIPPET */
    fprintf(stderr, "w = %.1f\n", (double)m.params_memory[COUNT - 1]);
    zro_group_destroy(ranks);
    free(m.params_memory);
    free(m.grads_memory);
    return 0;
}
