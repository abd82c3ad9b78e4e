/* A trainer of the kind that docs/existing-trainer.md shards: a network whose parameters and gradients are one block each, with
 * pointers into them that are kept.  It must have the losses of the same training on one rank alone, with an AdamW of its own.
 * ranks: 1 2; prints: the losses are those of one rank */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zro.h>

enum { IN = 4, WIDTH = 300, STEPS = 20 };

typedef struct model {
    float *params_memory, *grads_memory; /* one block each; the gradients' is made by the first backward */
    float *w, *b, *v, *dw, *db, *dv;     /* (WIDTH, IN), (WIDTH), (WIDTH), in the blocks */
    float h[WIDTH], inputs[4][IN], mean_loss;
    size_t num_parameters;
    int batch;
} model;

static float *block(float **w, float **b, float **v)
{
    float *memory = calloc(WIDTH * IN + 2 * WIDTH, sizeof(float));

    *w = memory, *b = *w + WIDTH * IN, *v = *b + WIDTH;
    return memory;
}

static void model_build(model *m)
{
    memset(m, 0, sizeof *m);
    m->num_parameters = WIDTH * IN + 2 * WIDTH;
    m->params_memory = block(&m->w, &m->b, &m->v);
    for (size_t i = 0; i < m->num_parameters; i++)
        m->params_memory[i] = 0.1f * sinf((float)i);
}

static float output(model *m, const float *x)
{
    float y = 0;

    for (int o = 0; o < WIDTH; o++) {
        float sum = m->b[o];

        for (int i = 0; i < IN; i++)
            sum += m->w[o * IN + i] * x[i];
        m->h[o] = tanhf(sum);
        y += m->v[o] * m->h[o];
    }
    return y;
}

static float wrong_by(model *m, const float *x)
{
    return output(m, x) - x[0] * x[1];
}

/* Of the B * size samples of a step this rank takes B. */
static void next_batch(model *m, int step, int B, int rank, int size)
{
    m->batch = B;
    for (int k = 0; k < B; k++)
        for (int i = 0; i < IN; i++)
            m->inputs[k][i] = sinf((float)((step * B * size + rank * B + k) * IN + i));
}

static void model_forward(model *m)
{
    m->mean_loss = 0;
    for (int k = 0; k < m->batch; k++)
        m->mean_loss += powf(wrong_by(m, m->inputs[k]), 2) / (float)m->batch;
}

static void model_backward(model *m)
{
    if (m->grads_memory == NULL)
        m->grads_memory = block(&m->dw, &m->db, &m->dv);
    memset(m->grads_memory, 0, m->num_parameters * sizeof(float));
    for (int k = 0; k < m->batch; k++) {
        float dy = 2 * wrong_by(m, m->inputs[k]) / (float)m->batch;

        for (int o = 0; o < WIDTH; o++) {
            float dh = dy * m->v[o] * (1 - m->h[o] * m->h[o]);

            m->dv[o] += dy * m->h[o];
            m->db[o] += dh;
            for (int i = 0; i < IN; i++)
                m->dw[o * IN + i] += dh * m->inputs[k][i];
        }
    }
}

/* The trainer's own update, with m and v of all parameters. */
static void model_update(model *m, float *exp_avg, float *exp_avg_sq, int t)
{
    for (size_t i = 0; i < m->num_parameters; i++) {
        float g = m->grads_memory[i];

        exp_avg[i] = 0.9f * exp_avg[i] + 0.1f * g;
        exp_avg_sq[i] = 0.999f * exp_avg_sq[i] + 0.001f * g * g;
        m->params_memory[i] -=
            1e-3f * (exp_avg[i] / (1 - powf(0.9f, (float)t))) / (sqrtf(exp_avg_sq[i] / (1 - powf(0.999f, (float)t))) + 1e-8f);
    }
}

static void model_free(model *m)
{
    free(m->params_memory);
    free(m->grads_memory);
}

static void train_alone(float *losses)
{
    model m;
    float *state;

    model_build(&m);
    state = calloc(2 * m.num_parameters, sizeof *state);
    for (int step = 0; step < STEPS; step++) {
        next_batch(&m, step, 4, 0, 1);
        model_forward(&m);
        model_backward(&m);
        model_update(&m, state, state + m.num_parameters, step + 1);
        losses[step] = m.mean_loss;
    }
    free(state);
    model_free(&m);
}

static float expected[STEPS];

static void report(int step, float loss)
{
    if (fabsf(loss - expected[step]) > 1e-5f * expected[step]) {
        fprintf(stderr, "step %d: loss %.9g, and %.9g on one rank\n", step, (double)loss, (double)expected[step]);
        exit(1);
    }
}

static void train(void)
{
    /* SNIPPET */
}

int main(void)
{
    train_alone(expected);
    if (expected[STEPS - 1] > 0.9f * expected[0])
        return 1;
    train();
    fprintf(stderr, "the losses are those of one rank\n");
    return 0;
}
