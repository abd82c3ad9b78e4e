/* The model of gpt/: its gradients against finite differences, its parts against each other, its loops against f64. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "blas.h"
#include "model.h"
#include "random.h"
#include "rows.h"

/* ---- models ---- */

typedef struct rig {
    gpt_config config;
    size_t n, batch, tokens;
    zro_param *params;
    char (*names)[GPT_NAME_BYTES];
    uint32_t *inputs, *targets;
    gpt_model *model;
} rig;

/* All parameters random, biases and norms, too, so that no gradient is small by symmetry. */
static void fill(rig *r, uint64_t seed)
{
    for (size_t i = 0; i < r->n; i++) {
        size_t count = zro_param_count(&r->params[i]);
        double deviation = r->params[i].n_dims == 2 ? 0.15 : 0.3, mean = strstr(r->names[i], "ln_") != NULL ? 1 : 0;

        for (size_t j = 0; j < count; j++)
            ((float *)r->params[i].data)[j] = (float)(mean + deviation * gpt_normal(seed, i, j));
    }
    for (size_t i = 0; i < r->batch * r->tokens; i++) {
        r->inputs[i] = (uint32_t)(gpt_random(seed, 1000, i) % r->config.vocab);
        r->targets[i] = (uint32_t)(gpt_random(seed, 1001, i) % r->config.vocab);
    }
}

static rig make(gpt_config config, size_t batch, size_t tokens, gpt_use use, uint64_t seed)
{
    rig r = { .config = config, .n = gpt_params(&config), .batch = batch, .tokens = tokens };

    r.params = calloc(r.n, sizeof *r.params);
    r.names = calloc(r.n, GPT_NAME_BYTES);
    r.inputs = calloc(batch * tokens, sizeof *r.inputs);
    r.targets = calloc(batch * tokens, sizeof *r.targets);
    gpt_describe(&config, ZRO_F32, r.params, r.names);
    for (size_t i = 0; i < r.n; i++) {
        size_t count = zro_param_count(&r.params[i]);

        r.params[i].data = calloc(count, sizeof(float));
        r.params[i].grad = malloc(count * sizeof(float));
        memset(r.params[i].grad, 0xff, count * sizeof(float)); /* NaNs: what is replaced must not be read */
    }
    fill(&r, seed);
    assert_int_equal(gpt_create(&config, r.params, use, batch, tokens, &r.model), ZRO_OK);
    return r;
}

static void drop(rig *r)
{
    gpt_destroy(r->model);
    for (size_t i = 0; i < r->n; i++) {
        free(r->params[i].data);
        free(r->params[i].grad);
    }
    free(r->params);
    free(r->names);
    free(r->inputs);
    free(r->targets);
}

static double train(rig *r, gpt_grads grads, double scale)
{
    double loss = NAN;

    assert_int_equal(gpt_train(r->model, r->inputs, r->targets, grads, scale, NULL, NULL, &loss), ZRO_OK);
    return loss;
}

static const gpt_config SMALL = { .vocab = 19, .context = 9, .layers = 2, .heads = 2, .width = 12 };
static const gpt_config TILED = { .vocab = 37, .context = 160, .layers = 2, .heads = 3, .width = 48 };

/* ---- gradients ---- */

/* Moves a parameter along a random direction by h, and back. */
static double slope(rig *r, size_t i, double h)
{
    float *data = r->params[i].data;
    size_t count = zro_param_count(&r->params[i]);
    float *old = malloc(count * sizeof *old);
    double side[2] = { 0, 0 };

    memcpy(old, data, count * sizeof *old);
    for (int s = 0; s < 2; s++) {
        for (size_t j = 0; j < count; j++)
            data[j] = (float)((double)old[j] + (s == 0 ? -h : h) * gpt_normal(99, i, j));
        assert_int_equal(gpt_loss(r->model, r->inputs, r->targets, &side[s]), ZRO_OK);
    }
    memcpy(data, old, count * sizeof *old);
    free(old);
    return (side[1] - side[0]) / (2 * h);
}

/* For each parameter the slope of the loss along a random direction is the gradient times that direction. */
static void check_slopes(gpt_config config, size_t batch, size_t tokens)
{
    rig r = make(config, batch, tokens, GPT_TRAIN, 5);

    train(&r, GPT_REPLACE, 1);
    for (size_t i = 0; i < r.n; i++) {
        const float *g = r.params[i].grad;
        double along = 0, size = 0, got = slope(&r, i, 2e-3);

        for (size_t j = 0; j < zro_param_count(&r.params[i]); j++) {
            along += (double)g[j] * gpt_normal(99, i, j);
            size += (double)g[j] * (double)g[j];
        }
        if (!(fabs(got - along) <= 0.01 * fabs(along) + 0.01 * sqrt(size) + 2e-4))
            fail_msg("%s: the loss changes by %g, its gradient says %g", r.names[i], got, along);
    }
    drop(&r);
}

static void gradients_are_slopes(void **state)
{
    (void)state;
    check_slopes(SMALL, 3, 7);
    check_slopes(TILED, 4, 150); /* several tiles of attention, the last one cut; two pieces of the head */
}

/* A batch in two micro-batches gives the gradients of the whole. */
static void gradients_add_up(void **state)
{
    rig whole = make(SMALL, 4, 6, GPT_TRAIN, 7), half = make(SMALL, 2, 6, GPT_TRAIN, 7);
    double loss = train(&whole, GPT_REPLACE, 1), sum = 0;

    (void)state;
    for (size_t part = 0; part < 2; part++) {
        memcpy(half.inputs, whole.inputs + part * 12, 12 * sizeof *half.inputs);
        memcpy(half.targets, whole.targets + part * 12, 12 * sizeof *half.targets);
        sum += train(&half, part == 0 ? GPT_REPLACE : GPT_ADD, 0.5) / 2;
    }
    assert_true(fabs(sum - loss) < 1e-6 * loss);
    for (size_t i = 0; i < whole.n; i++)
        for (size_t j = 0; j < zro_param_count(&whole.params[i]); j++) {
            double x = (double)((float *)whole.params[i].grad)[j], y = (double)((float *)half.params[i].grad)[j];

            if (!(fabs(x - y) <= 1e-4 * fabs(x) + 1e-6))
                fail_msg("%s[%zu]: %g in one batch, %g in two", whole.names[i], j, x, y);
        }
    drop(&whole);
    drop(&half);
}

/* ---- readiness ---- */

typedef struct watch {
    rig *r;
    float **grads; /* as they were when they became ready */
    size_t *order, n;
} watch;

/* From here on the parameter is not needed, so NaNs in it change nothing. */
static zro_status note_ready(void *user, const size_t *index, size_t n)
{
    watch *w = user;

    for (size_t i = 0; i < n; i++) {
        zro_param *p = &w->r->params[index[i]];
        size_t bytes = zro_param_count(p) * sizeof(float);

        assert_null(w->grads[index[i]]);
        w->grads[index[i]] = malloc(bytes);
        memcpy(w->grads[index[i]], p->grad, bytes);
        memset(p->data, 0xff, bytes);
        w->order[w->n++] = index[i];
    }
    return ZRO_OK;
}

static zro_status refuse(void *user, const size_t *index, size_t n)
{
    (void)index;
    (void)n;
    ++*(int *)user;
    return zro_error_set(ZRO_ERR_STATE, "not today");
}

static void ready_means_final_and_unused(void **state)
{
    rig r = make(SMALL, 2, 5, GPT_TRAIN, 3), same = make(SMALL, 2, 5, GPT_TRAIN, 3);
    watch w = { .r = &r, .grads = calloc(r.n, sizeof *w.grads), .order = calloc(r.n, sizeof *w.order) };
    double loss;
    int calls = 0;

    (void)state;
    train(&same, GPT_REPLACE, 1);
    assert_int_equal(gpt_train(r.model, r.inputs, r.targets, GPT_REPLACE, 1, note_ready, &w, &loss), ZRO_OK);
    assert_int_equal(w.n, r.n);
    assert_int_equal(w.order[0], gpt_param_index(&r.config, GPT_LNFW, 0));
    for (size_t i = 2; i + 2 < w.n; i++) /* layer by layer, from the last on */
        assert_true((w.order[i] - GPT_LN1W) / GPT_PER_LAYER == (i < 2 + GPT_PER_LAYER ? 1 : 0));
    assert_true(w.order[w.n - 2] == GPT_WTE && w.order[w.n - 1] == GPT_WPE);
    for (size_t i = 0; i < r.n; i++) {
        size_t bytes = zro_param_count(&r.params[i]) * sizeof(float);

        assert_memory_equal(w.grads[i], same.params[i].grad, bytes);
        assert_memory_equal(r.params[i].grad, same.params[i].grad, bytes);
        free(w.grads[i]);
    }
    assert_int_equal(gpt_train(same.model, same.inputs, same.targets, GPT_REPLACE, 1, refuse, &calls, &loss), ZRO_ERR_STATE);
    assert_int_equal(calls, 1);
    free(w.grads);
    free(w.order);
    drop(&r);
    drop(&same);
}

/* ---- logits ---- */

/* Reading a text piece by piece gives the logits that reading it at once gives. */
static void text_can_be_read_piecewise(void **state)
{
    const size_t pieces[] = { 1, 70, 1, 1, 40, 37 };
    enum { T = 150 };
    rig r = make(TILED, 1, T, GPT_TRAIN, 11);
    size_t V = TILED.vocab, at = 0;
    float *all = malloc(T * V * sizeof *all), *last = malloc(V * sizeof *last);
    gpt_model *reader;

    (void)state;
    assert_int_equal(gpt_logits(r.model, r.inputs, all), ZRO_OK);
    assert_int_equal(gpt_create(&r.config, r.params, GPT_GENERATE, 1, T, &reader), ZRO_OK);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        assert_int_equal(gpt_read(reader, r.inputs, at, pieces[i], last), ZRO_OK);
        at += pieces[i];
        for (size_t v = 0; v < V; v++)
            assert_true(fabsf(last[v] - all[(at - 1) * V + v]) < 1e-4f);
    }
    assert_int_equal(at, T);
    assert_int_equal(gpt_read(reader, r.inputs, T, 1, last), ZRO_ERR_STATE);
    assert_int_equal(gpt_loss(reader, r.inputs, r.targets, &(double){ 0 }), ZRO_ERR_STATE);
    gpt_destroy(reader);
    free(all);
    free(last);
    drop(&r);
}

/* bf16 parameters give the bits of f32 parameters with the same values. */
static void bf16_is_widened(void **state)
{
    rig r = make(SMALL, 2, 5, GPT_TRAIN, 13), half = make(SMALL, 2, 5, GPT_TRAIN, 13);

    (void)state;
    gpt_destroy(half.model);
    for (size_t i = 0; i < r.n; i++) {
        zro_param *p = &half.params[i];
        size_t count = zro_param_count(p);

        p->dtype = ZRO_BF16;
        assert_int_equal(zro_convert(p->data, ZRO_BF16, r.params[i].data, ZRO_F32, count), ZRO_OK);
        assert_int_equal(zro_convert(r.params[i].data, ZRO_F32, p->data, ZRO_BF16, count), ZRO_OK);
    }
    assert_int_equal(gpt_create(&half.config, half.params, GPT_TRAIN, 2, 5, &half.model), ZRO_OK);
    assert_true(train(&r, GPT_REPLACE, 1) == train(&half, GPT_REPLACE, 1));
    for (size_t i = 0; i < r.n; i++)
        assert_memory_equal(r.params[i].grad, half.params[i].grad, zro_param_count(&r.params[i]) * sizeof(float));
    drop(&r);
    drop(&half);
}

/* ---- configurations and parameters ---- */

static void gpt2_is_gpt2(void **state)
{
    gpt_config config;
    zro_param params[148];
    char names[148][GPT_NAME_BYTES];

    (void)state;
    assert_true(gpt_preset("gpt2", &config) && !gpt_preset("gpt3", &config));
    assert_int_equal(gpt_params(&config), 148);
    assert_int_equal(gpt_elements(&config), 124439808);
    gpt_describe(&config, ZRO_F32, params, names);
    assert_string_equal(params[0].name, "wte.weight");
    assert_string_equal(params[gpt_param_index(&config, GPT_QKVW, 11)].name, "h.11.attn.c_attn.weight");
    assert_int_equal(params[gpt_param_index(&config, GPT_QKVW, 11)].shape[1], 3 * 768);
    assert_string_equal(params[147].name, "ln_f.bias");
    assert_true(gpt_memory_bytes(&config, ZRO_F32, GPT_TRAIN, 4, 64) > 12u * 10 * 768 * 256 * 4);
    assert_true(gpt_memory_bytes(&config, ZRO_F32, GPT_GENERATE, 1, 64) < gpt_memory_bytes(&config, ZRO_F32, GPT_TRAIN, 1, 64));
}

static void first_values(void **state)
{
    gpt_config config = { .vocab = 500, .context = 20, .layers = 8, .heads = 2, .width = 40 };
    rig r = make(config, 1, 2, GPT_TRAIN, 1);
    const float *wte = r.params[GPT_WTE].data, *proj = r.params[gpt_param_index(&config, GPT_FCPROJW, 3)].data;
    double of_wte = 0, of_proj = 0, mean = 0;
    float first;

    (void)state;
    assert_int_equal(gpt_init(&config, r.params, 17), ZRO_OK);
    first = wte[7];
    for (size_t i = 0; i < 20000; i++) {
        of_wte += (double)wte[i] * (double)wte[i] / 20000;
        mean += (double)wte[i] / 20000;
    }
    for (size_t i = 0; i < 6400; i++)
        of_proj += (double)proj[i] * (double)proj[i] / 6400;
    assert_true(fabs(sqrt(of_wte) / 0.02 - 1) < 0.02 && fabs(mean) < 0.0006);
    assert_true(fabs(sqrt(of_proj) / (0.02 / 4) - 1) < 0.04);
    assert_true(*(float *)r.params[GPT_LN1W].data == 1 && *(float *)r.params[GPT_LN1B].data == 0);
    assert_int_equal(gpt_init(&config, r.params, 18), ZRO_OK);
    assert_true(wte[7] != first);
    assert_int_equal(gpt_init(&config, r.params, 17), ZRO_OK);
    assert_true(wte[7] == first);
    drop(&r);
}

static void wrong_sizes_and_tokens_are_refused(void **state)
{
    rig r = make(SMALL, 2, 5, GPT_TRAIN, 3);
    gpt_config odd = SMALL;
    gpt_model *model;
    double loss;

    (void)state;
    odd.heads = 5;
    assert_int_equal(gpt_create(&odd, r.params, GPT_TRAIN, 1, 1, &model), ZRO_ERR_INVALID);
    assert_non_null(strstr(zro_last_error(), "width of the model is 12"));
    odd.heads = 0;
    assert_int_equal(gpt_config_check(&odd), ZRO_ERR_INVALID);
    assert_int_equal(gpt_create(&SMALL, r.params, GPT_TRAIN, 1, 10, &model), ZRO_ERR_INVALID);
    assert_non_null(strstr(zro_last_error(), "context of 9"));
    assert_int_equal(gpt_create(&SMALL, r.params, GPT_TRAIN, 0, 5, &model), ZRO_ERR_INVALID);
    assert_int_equal(gpt_create(&SMALL, r.params, GPT_GENERATE, 2, 5, &model), ZRO_ERR_INVALID);
    assert_null(model);
    r.targets[9] = 19;
    assert_int_equal(gpt_train(r.model, r.inputs, r.targets, GPT_REPLACE, 1, NULL, NULL, &loss), ZRO_ERR_INVALID);
    assert_non_null(strstr(zro_last_error(), "token 9 of the targets is 19"));
    drop(&r);
}

/* ---- loops ---- */

extern const gpt_rows_table gpt_rows_base;
#if defined(__x86_64__)
extern const gpt_rows_table gpt_rows_avx2;
#endif

enum { ROWS = 3, WIDTH = 53 }; /* no multiple of the lanes */

static void randomise(float *x, size_t n, uint64_t stream, double deviation)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(deviation * gpt_normal(23, stream, i));
}

static void check_near(const char *what, float got, double x)
{
    if (!(fabs((double)got - x) <= 3e-6 * fabs(x) + 3e-6))
        fail_msg("%s is %.9g, must be %.9g", what, (double)got, x);
}

static void check_gelu(const gpt_rows_table *loops)
{
    float h[ROWS * WIDTH], out[ROWS * WIDTH], again[ROWS * WIDTH], bias[WIDTH];

    randomise(h, ROWS * WIDTH, 1, 4);
    randomise(bias, WIDTH, 2, 1);
    h[0] = -30, h[1] = 30;
    loops->bias_gelu(out, h, bias, ROWS, WIDTH);
    for (size_t i = 0; i < ROWS * WIDTH; i++) {
        double v = (double)h[i], t = tanh(0.7978845608028654 * (v + 0.044715 * v * v * v));

        check_near("gelu", out[i], 0.5 * v * (1 + t));
        loops->gelu_again(again + i, h + i, 1);
        check_near("gelu again", again[i], 0.5 * v * (1 + t));
        check_near("gelu's derivative", h[i],
                   0.5 * (1 + t) + 0.5 * v * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * v * v));
    }
}

static void check_softmax(const gpt_rows_table *loops)
{
    float s[ROWS * 64], lse[ROWS], old[ROWS * 64];

    randomise(s, ROWS * 64, 3, 30);
    memcpy(old, s, sizeof s);
    loops->softmax(s, lse, 0.5f, 40, ROWS, 50, 64);
    for (size_t r = 0; r < ROWS; r++) {
        double total = 0;

        for (size_t i = 0; i < 41 + r; i++)
            total += exp(0.5 * (double)old[r * 64 + i]);
        check_near("lse", lse[r], log(total));
        for (size_t i = 0; i < 50; i++)
            check_near("softmax", s[r * 64 + i], i < 41 + r ? exp(0.5 * (double)old[r * 64 + i]) / total : 0);
    }
}

static void check_cross_entropy(const gpt_rows_table *loops)
{
    float x[WIDTH], old[WIDTH], loss;
    double total = 0;

    randomise(x, WIDTH, 4, 10);
    memcpy(old, x, sizeof x);
    for (size_t i = 0; i < WIDTH; i++)
        total += exp((double)x[i]);
    loss = loops->cross_entropy(x, WIDTH, 17, 0.25f);
    check_near("cross-entropy", loss, log(total) - (double)old[17]);
    for (size_t i = 0; i < WIDTH; i++)
        check_near("its gradient", x[i], 0.25 * (exp((double)old[i]) / total - (i == 17)));
    check_near("cross-entropy", loops->cross_entropy(old, WIDTH, 17, 0), (double)loss);
}

static void loops_compute_what_they_say(void **state)
{
    const gpt_rows_table *tables[3] = { gpt_rows(), &gpt_rows_base };
    size_t n = 2;

    (void)state;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        tables[n++] = &gpt_rows_avx2;
#endif
    for (size_t i = 0; i < n; i++) {
        check_gelu(tables[i]);
        check_softmax(tables[i]);
        check_cross_entropy(tables[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_slopes),
        cmocka_unit_test(gradients_add_up),
        cmocka_unit_test(ready_means_final_and_unused),
        cmocka_unit_test(text_can_be_read_piecewise),
        cmocka_unit_test(bf16_is_widened),
        cmocka_unit_test(gpt2_is_gpt2),
        cmocka_unit_test(first_values),
        cmocka_unit_test(wrong_sizes_and_tokens_are_refused),
        cmocka_unit_test(loops_compute_what_they_say),
    };

    gpt_blas_threads(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
