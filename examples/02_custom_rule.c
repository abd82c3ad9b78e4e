/* A custom update rule: Lion, which moves by the sign of a blend of momentum and gradient, fits a line to points.
 *
 *   cc 02_custom_rule.c $(pkg-config --cflags --libs zro) && ./a.out */
#include <stdio.h>
#include <zro.h>

/* The rule has three values for every group of parameters, and one array of state. */
enum { LR, BETA1, BETA2, VALUES };
static const zro_hyper values[VALUES] = { { "lr", ZRO_REAL, 0, 1e-2, 0, 10, 0, NULL },
                                          { "beta1", ZRO_REAL, ZRO_OPEN_HIGH, 0.9, 0, 1, 0, NULL },
                                          { "beta2", ZRO_REAL, ZRO_OPEN_HIGH, 0.99, 0, 1, 0, NULL } };
static const zro_slot_spec slots[] = { { "exp_avg", ZRO_SLOT_ARRAY, ZRO_OFF, 0, NULL, NULL } };

/* Called in each step before the loop: computes the scalars that the loop uses. */
static void prepare(zro_rule_step *s)
{
    for (int i = 0; i < VALUES; i++)
        s->scalars[i] = s->values[i];
}

/* The loop.  The library takes care of groups, state, threads, 16-bit types, clipping and schedules. */
static void lion(const zro_rule_tile *t)
{
    const float *c = t->scalars, *g = t->grad;
    float *p = t->data, *m = t->slots[0];

    for (size_t i = 0; i < t->count; i++) {
        float way = c[BETA1] * m[i] + (1 - c[BETA1]) * g[i];

        p[i] -= c[LR] * (float)((way > 0) - (way < 0));
        m[i] = c[BETA2] * m[i] + (1 - c[BETA2]) * g[i];
    }
}

static const zro_rule rule = {
    sizeof rule, "lion", NULL, values, VALUES, slots, 1, 0, ZRO_OFF, NULL, NULL, prepare, lion, NULL
};

int main(void)
{
    float w[2] = { 0, 0 }, grad[2]; /* y = w[0] x + w[1]; the points lie on y = 3 x - 1 */
    zro_param param;
    zro_param_group group = ZRO_PARAM_GROUP_INIT;
    zro_optim *opt;

    zro_param_make(&param, "w", ZRO_F32, w, grad, 1, (size_t[]){ 2 });
    group.params = &param;
    group.n = 1;
    zro_must(zro_optim_create(NULL, &group, 1, &rule, NULL, NULL, &opt));
    for (int step = 0; step < 2000; step++) {
        grad[1] = (w[0] - 3) * (float)(step % 7 - 3) + w[1] + 1;
        grad[0] = grad[1] * (float)(step % 7 - 3);
        zro_must(zro_optim_step(opt, NULL));
    }
    printf("fitted: y = %.2f x %+.2f\n", (double)w[0], (double)w[1]);
    zro_optim_destroy(opt);
    return w[0] < 2.9f || w[0] > 3.1f || w[1] < -1.1f || w[1] > -0.9f;
}
