/* Three parameters learn to be 3, on ranks whose targets are 2 and 4.  ranks: 2; prints: w = 3.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zro.h>

enum { n = 3, COUNT = 1500 };
static float arrays[n][2][COUNT]; /* data and gradients */
static float target;

static void make_model(zro_param *p, size_t count)
{
    for (size_t i = 0; i < count; i++)
        zro_param_make(&p[i], NULL, ZRO_F32, arrays[i][0], arrays[i][1], 1, (size_t[]){ COUNT });
}

static void forward(zro_param *p, size_t count, uint64_t step)
{
    (void)p, (void)count, (void)step;
}

static void backward(zro_param *p, size_t i)
{
    for (size_t k = 0; k < COUNT; k++)
        ((float *)p[i].grad)[k] = ((float *)p[i].data)[k] - target;
}

int main(void)
{
    const uint64_t steps = 6000;
    zro_adamw_config values = ZRO_ADAMW_CONFIG_INIT;
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_param_group group = ZRO_PARAM_GROUP_INIT;
    zro_schedule *schedule;
    zro_group *ranks;
    zro_optim *opt;
    zro_param p[n];
    zro_ddp *ddp;

    target = atoi(getenv("ZRO_RANK")) == 0 ? 2 : 4;
    /* SNIPPET */
    printf("w = %.1f\n", (double)arrays[2][0][COUNT - 1]);
    return fabsf(arrays[2][0][COUNT - 1] - 3) > 0.05f || (target < 3 && unlink("run.safetensors") != 0);
}
