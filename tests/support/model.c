/* The scenarios' model: see model.h. */
#include "model.h"

#include <string.h>

#include "zt/zt.h"

static const char *const names[MODEL_PARAMS] = { "one.weight", "one.bias", "two.weight", "two.bias" };
static const size_t rows[MODEL_PARAMS] = { MODEL_HIDDEN, MODEL_HIDDEN, MODEL_OUT, MODEL_OUT };
static const size_t columns[MODEL_PARAMS] = { MODEL_IN, 0, MODEL_HIDDEN, 0 };

static float unit(uint64_t *random)
{
    return (float)(zt_next(random) >> 40) * 0x1p-23f - 1;
}

static void describe(model *m)
{
    for (int i = 0; i < MODEL_PARAMS; i++) {
        zro_param *p = &m->params[i];

        zro_param_init(p);
        p->name = names[i];
        p->n_dims = columns[i] > 0 ? 2 : 1;
        p->shape[0] = rows[i];
        p->shape[1] = columns[i];
    }
}

static void fill(model *m)
{
    uint64_t random = 1;

    for (int i = 0; i < MODEL_PARAMS; i++)
        for (size_t k = 0; k < zro_param_count(&m->params[i]); k++)
            ((float *)m->params[i].data)[k] = 0.2f * unit(&random);
}

void model_init(model *m)
{
    size_t at = 0;

    memset(m, 0, sizeof *m);
    describe(m);
    for (int i = 0; i < MODEL_PARAMS; i++) {
        m->params[i].data = m->data + at;
        m->params[i].grad = m->grad + at;
        at += zro_param_count(&m->params[i]);
    }
    CHECK(at == MODEL_ELEMENTS);
    fill(m);
}

void model_init_in(model *m, zro_group *group, zro_memory_kind kind)
{
    zro_alloc_config config = ZRO_ALLOC_CONFIG_INIT;

    memset(m, 0, sizeof *m);
    describe(m);
    config.data_kind = kind;
    CHECK_OK(zro_params_alloc(group, m->params, MODEL_PARAMS, &config));
    if (zro_group_rank(group) == 0)
        fill(m);
}

void model_free(model *m)
{
    zro_params_free(m->params, MODEL_PARAMS);
}

zro_param_group model_group(model *m)
{
    return (zro_param_group){ .params = m->params, .n = MODEL_PARAMS };
}

zro_param_group model_weights(model *m)
{
    static const size_t index[] = { MODEL_W1, MODEL_W2 };

    return (zro_param_group){ .params = m->params, .index = index, .n = 2 };
}

zro_param_group model_biases(model *m)
{
    static const size_t index[] = { MODEL_B1, MODEL_B2 };

    return (zro_param_group){ .params = m->params, .index = index, .n = 2 };
}

/* out = w in + b */
static void forward(const float *w, const float *b, const float *in, float *out, size_t n_in, size_t n_out)
{
    for (size_t o = 0; o < n_out; o++) {
        out[o] = b[o];
        for (size_t i = 0; i < n_in; i++)
            out[o] += w[o * n_in + i] * in[i];
    }
}

/* From the gradient of out to those of w, b and, unless NULL, in. */
static void backward(const float *w, const float *in, const float *d_out, float *d_w, float *d_b, float *d_in, size_t n_in,
                     size_t n_out)
{
    for (size_t i = 0; d_in != NULL && i < n_in; i++)
        d_in[i] = 0;
    for (size_t o = 0; o < n_out; o++) {
        d_b[o] = d_out[o];
        for (size_t i = 0; i < n_in; i++) {
            d_w[o * n_in + i] = d_out[o] * in[i];
            if (d_in != NULL)
                d_in[i] += w[o * n_in + i] * d_out[o];
        }
    }
}

double model_run(model *m, int rank, int step)
{
    uint64_t random = zt_mix((uint64_t)rank + 1, (uint64_t)step);
    float x[MODEL_IN], hidden[MODEL_HIDDEN], y[MODEL_OUT], d_y[MODEL_OUT], d_hidden[MODEL_HIDDEN];
    zro_param *p = m->params;
    double loss = 0;

    for (size_t i = 0; i < MODEL_IN; i++)
        x[i] = unit(&random);
    forward(p[MODEL_W1].data, p[MODEL_B1].data, x, hidden, MODEL_IN, MODEL_HIDDEN);
    forward(p[MODEL_W2].data, p[MODEL_B2].data, hidden, y, MODEL_HIDDEN, MODEL_OUT);
    for (size_t o = 0; o < MODEL_OUT; o++) {
        d_y[o] = y[o] - x[o];
        loss += 0.5 * (double)d_y[o] * (double)d_y[o];
    }
    backward(p[MODEL_W2].data, hidden, d_y, p[MODEL_W2].grad, p[MODEL_B2].grad, d_hidden, MODEL_HIDDEN, MODEL_OUT);
    backward(p[MODEL_W1].data, x, d_hidden, p[MODEL_W1].grad, p[MODEL_B1].grad, NULL, MODEL_IN, MODEL_HIDDEN);
    for (int i = 0; i < MODEL_PARAMS; i++)
        zro_param_set_grad(&p[i], p[i].grad);
    return loss;
}

void model_average(model *m, zro_group *group)
{
    for (int i = 0; i < MODEL_PARAMS; i++)
        CHECK_OK(zro_all_reduce(group, m->params[i].grad, zro_param_count(&m->params[i]), ZRO_F32, ZRO_AVG));
}

void model_take_gradients(model *m, const model *from)
{
    for (int i = 0; i < MODEL_PARAMS; i++) {
        memcpy(m->params[i].grad, from->params[i].grad, zro_param_count(&m->params[i]) * sizeof(float));
        m->params[i].grad_present = from->params[i].grad_present;
    }
}

int model_equal(const model *a, const model *b)
{
    int equal = 1;

    for (int i = 0; i < MODEL_PARAMS; i++)
        equal &= memcmp(a->params[i].data, b->params[i].data, zro_param_count(&a->params[i]) * sizeof(float)) == 0;
    return equal;
}

void model_check_ranks(const model *m, zro_group *group)
{
    uint64_t mine, first;

    CHECK_OK(zro_params_hash(m->params, MODEL_PARAMS, &mine));
    first = mine;
    CHECK_OK(zro_broadcast(group, &first, 1, ZRO_I64, 0));
    CHECK(mine == first);
}

void model_step_both(zro_group *group, model *sharded, zro_optim *x, model *alone, zro_optim *y, int step)
{
    float before[MODEL_OUT];

    memcpy(before, alone->params[MODEL_B2].data, sizeof before);
    (void)model_run(sharded, zro_group_rank(group), step);
    model_average(sharded, group);
    model_take_gradients(alone, sharded);
    CHECK_OK(zro_optim_step(x, NULL));
    CHECK_OK(zro_optim_step(y, NULL));
    CHECK(model_equal(sharded, alone));
    CHECK(memcmp(before, alone->params[MODEL_B2].data, sizeof before) != 0);
}
