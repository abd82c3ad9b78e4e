/* The model's passes: see model.h.
 *
 * Letters for shapes: B sequences of T tokens make N = B T rows; C the width, H the heads, L the layers, V the vocabulary.
 *
 * One block:  m = x + attproj(attention(qkv(norm(x))));  y = m + fcproj(gelu(fc(norm(m)))).
 *
 * What backward needs is kept per layer: x, m, qkv, the attention's output and its logarithms of sums, and fc before gelu, 10 C
 * numbers per row.  Norms and gelu are computed again, which costs a pass over rows and saves 6 C.  Every product is one call over
 * all N rows.  The head is done in pieces of rows: logits, their loss, their gradient in the same array, and what that gives for
 * the norm and for wte; so the N x V logits never exist at once, and the head's backward has happened when forward ends.
 *
 * bf16 parameters are widened into f32 when a block, or the head, begins. */
#define _GNU_SOURCE
#include "model.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "attention.h"
#include "blas.h"
#include "rows.h"

enum { HEAD_ROWS = 512, LINE = 16 /* elements to which arrays and rows of logits are aligned */ };

struct gpt_model {
    gpt_config config;
    zro_param *params;
    zro_dtype dtype;
    gpt_use use;
    size_t batch, tokens, rows; /* B, T, N */
    size_t saved;               /* layers whose activations are kept: L for TRAIN, 1 for GENERATE */
    const gpt_rows_table *loops;
    void *memory;
    size_t bytes;

    float *x;     /* [saved + 1][N][C] the residual stream before each block and behind the last; GENERATE uses both in turn */
    float *mid;   /* [saved][N][C] the residual stream between attention and mlp */
    float *stats; /* [saved][2][N][2] mean and 1 / deviation of both norms */
    float *qkv;   /* [L][N][3 C] */
    float *att;   /* [saved][N][C] the attention's output */
    float *lse;   /* [saved][B][H][T] */
    float *fch;   /* [saved][N][4 C] fc before gelu; in backward the derivative of gelu there */

    float *norm;       /* [N][C] output of a norm, and in backward gradients of that shape */
    float *wide;       /* [N][4 C] gelu, and in backward gradients of gelu, fc and qkv */
    float *dx;         /* [N][C] TRAIN: the gradient of the residual stream */
    float *stats_f;    /* [N][2] of the last norm */
    float *scores;     /* scratch of the attention */
    float *logits;     /* [HEAD_ROWS][V, rounded up to LINE] */
    float *layer_data; /* bf16: the parameters of one layer in f32 */
    float *head_data;  /* bf16: wte, lnfw and lnfb in f32 */
};

/* The parameters of one layer, or (w[GPT_WTE], w[GPT_LNFW], w[GPT_LNFB]) of the head, in f32. */
typedef struct weights {
    const float *w[GPT_TENSORS];
} weights;

/* ---- memory ---- */

static size_t round_up(size_t n)
{
    return (n + LINE - 1) / LINE * LINE;
}

/* Takes n elements; without a base it only counts. */
static void take(float *base, size_t *at, float **array, size_t n)
{
    *array = base == NULL ? NULL : base + *at;
    *at += round_up(n);
}

static size_t elements_of_layer(const gpt_config *c)
{
    return 12 * c->width * c->width + 13 * c->width + GPT_PER_LAYER * LINE; /* with room for alignment */
}

static size_t head_rows(const gpt_model *m)
{
    return m->rows < HEAD_ROWS ? m->rows : HEAD_ROWS;
}

/* Gives every array its place and returns how many elements there are; the only list of the arrays' sizes. */
static size_t lay_out(gpt_model *m, float *base)
{
    const gpt_config *c = &m->config;
    size_t N = m->rows, C = c->width, S = m->saved, at = 0;

    take(base, &at, &m->x, (S + 1) * N * C);
    take(base, &at, &m->mid, S * N * C);
    take(base, &at, &m->stats, S * 4 * N);
    take(base, &at, &m->qkv, c->layers * N * 3 * C);
    take(base, &at, &m->att, S * N * C);
    take(base, &at, &m->lse, S * N * c->heads);
    take(base, &at, &m->fch, S * N * 4 * C);
    take(base, &at, &m->norm, N * C);
    take(base, &at, &m->wide, N * 4 * C);
    take(base, &at, &m->dx, m->use == GPT_TRAIN ? N * C : 0);
    take(base, &at, &m->stats_f, 2 * N);
    take(base, &at, &m->scores, gpt_attention_scratch(m->tokens));
    take(base, &at, &m->logits, head_rows(m) * round_up(c->vocab));
    if (m->dtype != ZRO_F32) {
        take(base, &at, &m->layer_data, elements_of_layer(c));
        take(base, &at, &m->head_data, (c->vocab + 2) * C + 3 * LINE);
    }
    return at;
}

static void set_sizes(gpt_model *m, const gpt_config *config, zro_dtype dtype, gpt_use use, size_t batch, size_t tokens)
{
    m->config = *config;
    m->dtype = dtype;
    m->use = use;
    m->batch = batch;
    m->tokens = tokens;
    m->rows = batch * tokens;
    m->saved = use == GPT_TRAIN ? config->layers : 1;
}

size_t gpt_memory_bytes(const gpt_config *config, zro_dtype dtype, gpt_use use, size_t batch, size_t tokens)
{
    gpt_model m = { 0 };

    set_sizes(&m, config, dtype, use, batch, tokens);
    return lay_out(&m, NULL) * sizeof(float);
}

static zro_status check_sizes(const gpt_config *config, const zro_param *params, gpt_use use, size_t batch, size_t tokens)
{
    zro_status st = gpt_config_check(config);

    if (st != ZRO_OK)
        return st;
    if (tokens < 1 || tokens > config->context)
        return gpt_fail(ZRO_ERR_INVALID, "sequences have %zu tokens, must be from 1 to the model's context of %zu", tokens,
                        config->context);
    if (batch < 1 || batch > ((size_t)1 << 24) / tokens || (use == GPT_GENERATE && batch != 1))
        return gpt_fail(ZRO_ERR_INVALID, "the batch has %zu sequences of %zu tokens, must be from 1 to %zu", batch, tokens,
                        use == GPT_GENERATE ? 1 : ((size_t)1 << 24) / tokens);
    if (params[0].dtype != ZRO_F32 && params[0].dtype != ZRO_BF16)
        return gpt_fail(ZRO_ERR_UNSUPPORTED, "parameters are %s, must be f32 or bf16", zro_dtype_name(params[0].dtype));
    return ZRO_OK;
}

/* Memory in large pages, where the system has them: activations are touched from end to end in every pass. */
static zro_status allocate(gpt_model *m)
{
    const size_t LARGE_PAGE = (size_t)2 << 20;

    m->bytes = (lay_out(m, NULL) * sizeof(float) + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
    if (posix_memalign(&m->memory, LARGE_PAGE, m->bytes) != 0) {
        m->memory = NULL;
        return gpt_fail(ZRO_ERR_MEMORY, "%zu bytes for activations of %zu x %zu tokens: make the batch smaller", m->bytes,
                        m->batch, m->tokens);
    }
    madvise(m->memory, m->bytes, MADV_HUGEPAGE);
    lay_out(m, m->memory);
    return ZRO_OK;
}

zro_status gpt_create(const gpt_config *config, zro_param *params, gpt_use use, size_t batch, size_t tokens, gpt_model **out)
{
    gpt_model *m;
    zro_status st = check_sizes(config, params, use, batch, tokens);

    *out = NULL;
    if (st != ZRO_OK)
        return st;
    m = calloc(1, sizeof *m);
    if (m == NULL)
        return gpt_fail(ZRO_ERR_MEMORY, "the handle of a model");
    set_sizes(m, config, params[0].dtype, use, batch, tokens);
    m->params = params;
    m->loops = gpt_rows();
    st = allocate(m);
    if (st != ZRO_OK) {
        gpt_destroy(m);
        return st;
    }
    *out = m;
    return ZRO_OK;
}

void gpt_destroy(gpt_model *m)
{
    if (m == NULL)
        return;
    free(m->memory);
    free(m);
}

/* ---- parameters ---- */

/* A tensor in f32: itself, or widened to `*room`, which moves on. */
static const float *widened(const gpt_model *m, gpt_tensor t, size_t layer, float **room)
{
    const zro_param *p = &m->params[gpt_param_index(&m->config, t, layer)];
    float *to = *room;
    size_t n = zro_param_count(p);

    if (p->dtype == ZRO_F32)
        return p->data;
    zro_must(zro_convert(to, ZRO_F32, p->data, p->dtype, n));
    *room += round_up(n);
    return to;
}

static weights weights_of_layer(const gpt_model *m, size_t layer)
{
    float *room = m->layer_data;
    weights ws = { { NULL } };

    for (int t = GPT_LN1W; t <= GPT_FCPROJB; t++)
        ws.w[t] = widened(m, (gpt_tensor)t, layer, &room);
    return ws;
}

static weights weights_of_head(const gpt_model *m)
{
    float *room = m->head_data;
    weights ws = { { NULL } };

    ws.w[GPT_WTE] = widened(m, GPT_WTE, 0, &room);
    ws.w[GPT_LNFW] = widened(m, GPT_LNFW, 0, &room);
    ws.w[GPT_LNFB] = widened(m, GPT_LNFB, 0, &room);
    return ws;
}

static float *gradient(const gpt_model *m, gpt_tensor t, size_t layer)
{
    return m->params[gpt_param_index(&m->config, t, layer)].grad;
}

/* The gradient of a vector, which rows are added to: zeros at first, if gradients are replaced. */
static float *gradient_sum(const gpt_model *m, gpt_grads grads, gpt_tensor t, size_t layer)
{
    const zro_param *p = &m->params[gpt_param_index(&m->config, t, layer)];

    if (grads == GPT_REPLACE)
        memset(p->grad, 0, zro_param_count(p) * sizeof(float));
    return p->grad;
}

/* ---- forward ---- */

static float *x_of(const gpt_model *m, size_t layer)
{
    return m->x + (m->use == GPT_TRAIN ? layer : layer % 2) * m->rows * m->config.width;
}

/* The arrays of one layer. */
typedef struct layer_arrays {
    float *x, *mid, *out, *stats1, *stats2, *fch;
    gpt_attention attention;
} layer_arrays;

static layer_arrays arrays_of(const gpt_model *m, size_t layer, size_t tokens)
{
    size_t N = m->rows, C = m->config.width, s = m->use == GPT_TRAIN ? layer : 0;

    return (layer_arrays){
        .x = x_of(m, layer),
        .mid = m->mid + s * N * C,
        .out = x_of(m, layer + 1),
        .stats1 = m->stats + s * 4 * N,
        .stats2 = m->stats + s * 4 * N + 2 * N,
        .fch = m->fch + s * N * 4 * C,
        .attention = { .batch = m->batch,
                       .tokens = tokens,
                       .heads = m->config.heads,
                       .width = C,
                       .qkv = m->qkv + layer * N * 3 * C,
                       .out = m->att + s * N * C,
                       .lse = m->lse + s * N * m->config.heads,
                       .scores = m->scores },
    };
}

/* Rows [first, first + n) of x = wte[token] + wpe[place]. */
static void embed(const gpt_model *m, const uint32_t *tokens, size_t first, size_t n)
{
    size_t C = m->config.width;
    const zro_param *wte = &m->params[GPT_WTE], *wpe = &m->params[GPT_WPE];
    size_t bytes = zro_dtype_bytes(m->dtype) * C;

    for (size_t i = first; i < first + n; i++) {
        float *x = m->x + i * C;

        zro_must(zro_convert(x, ZRO_F32, (const char *)wte->data + tokens[i] * bytes, m->dtype, C));
        zro_must(zro_convert(m->norm, ZRO_F32, (const char *)wpe->data + i % m->tokens * bytes, m->dtype, C));
        m->loops->add(x, m->norm, C);
    }
}

/* Rows [first, first + n) of a block.  `tokens` are in each sequence. */
static void block_forward(const gpt_model *m, size_t layer, size_t tokens, size_t first, size_t n)
{
    const gpt_rows_table *loops = m->loops;
    size_t C = m->config.width;
    layer_arrays a = arrays_of(m, layer, tokens);
    weights ws = weights_of_layer(m, layer);
    const float *const *w = ws.w;
    float *x = a.x + first * C, *mid = a.mid + first * C, *out = a.out + first * C, *fch = a.fch + first * 4 * C;
    float *qkv = m->qkv + (layer * m->rows + first) * 3 * C, *att = a.attention.out + first * C;

    loops->norm(m->norm, a.stats1 + 2 * first, x, w[GPT_LN1W], w[GPT_LN1B], n, C);
    loops->add_bias(qkv, NULL, w[GPT_QKVB], n, 3 * C);
    gpt_gemm(GPT_AS_IS, GPT_AS_IS, n, 3 * C, C, m->norm, C, w[GPT_QKVW], 3 * C, 1, qkv, 3 * C);
    gpt_attention_forward(&a.attention, m->use == GPT_TRAIN ? 0 : first);
    loops->add_bias(mid, x, w[GPT_ATTPROJB], n, C);
    gpt_gemm(GPT_AS_IS, GPT_AS_IS, n, C, C, att, C, w[GPT_ATTPROJW], C, 1, mid, C);

    loops->norm(m->norm, a.stats2 + 2 * first, mid, w[GPT_LN2W], w[GPT_LN2B], n, C);
    gpt_gemm(GPT_AS_IS, GPT_AS_IS, n, 4 * C, C, m->norm, C, w[GPT_FCW], 4 * C, 0, fch, 4 * C);
    loops->bias_gelu(m->wide, fch, w[GPT_FCB], n, 4 * C);
    loops->add_bias(out, mid, w[GPT_FCPROJB], n, C);
    gpt_gemm(GPT_AS_IS, GPT_AS_IS, n, C, 4 * C, m->wide, 4 * C, w[GPT_FCPROJW], C, 1, out, C);
}

static zro_status check_tokens(const gpt_model *m, const char *what, const uint32_t *tokens, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (tokens[i] >= m->config.vocab)
            return gpt_fail(ZRO_ERR_INVALID, "token %zu of the %s is %u, must be below the vocabulary of %zu", i, what,
                            tokens[i], m->config.vocab);
    return ZRO_OK;
}

/* All blocks for rows [first, first + n), and their last norm in m->norm [n][C]. */
static void forward(const gpt_model *m, const weights *head, const uint32_t *inputs, size_t tokens, size_t first, size_t n)
{
    size_t L = m->config.layers, C = m->config.width;

    embed(m, inputs, first, n);
    for (size_t l = 0; l < L; l++)
        block_forward(m, l, tokens, first, n);
    m->loops->norm(m->norm, m->stats_f + 2 * first, x_of(m, L) + first * C, head->w[GPT_LNFW], head->w[GPT_LNFB], n, C);
}

/* ---- the head ---- */

/* Logits of `n` rows of the last norm from `row` on. */
static void head_logits(const gpt_model *m, const weights *head, size_t row, size_t n, float *logits, size_t stride)
{
    size_t C = m->config.width;

    gpt_gemm(GPT_AS_IS, GPT_TRANSPOSED, n, m->config.vocab, C, m->norm + row * C, C, head->w[GPT_WTE], C, 0, logits, stride);
}

/* The mean loss; with scale other than 0 also the gradients of wte and, in dx, of the last norm's output. */
static double head_pass(const gpt_model *m, const weights *head, const uint32_t *targets, gpt_grads grads, double scale)
{
    size_t C = m->config.width, V = m->config.vocab, stride = round_up(V), step = head_rows(m);
    float each = (float)(scale / (double)m->rows), *dwte = gradient(m, GPT_WTE, 0);
    double total = 0;

    for (size_t row = 0; row < m->rows; row += step) {
        size_t n = m->rows - row < step ? m->rows - row : step;

        head_logits(m, head, row, n, m->logits, stride);
        for (size_t i = 0; i < n; i++)
            total += (double)m->loops->cross_entropy(m->logits + i * stride, V, targets[row + i], each);
        if (scale == 0)
            continue;
        gpt_gemm(GPT_AS_IS, GPT_AS_IS, n, C, V, m->logits, stride, head->w[GPT_WTE], C, 0, m->dx + row * C, C);
        gpt_gemm(GPT_TRANSPOSED, GPT_AS_IS, V, C, n, m->logits, stride, m->norm + row * C, C,
                 row == 0 && grads == GPT_REPLACE ? 0 : 1, dwte, C);
    }
    return total / (double)m->rows;
}

/* ---- backward ---- */

/* The mlp half of a block: from dx behind it to dx before it. */
static void mlp_backward(const gpt_model *m, size_t layer, const layer_arrays *a, const float *const *w, gpt_grads grads)
{
    const gpt_rows_table *loops = m->loops;
    size_t N = m->rows, C = m->config.width;
    float keep = grads == GPT_ADD ? 1 : 0;

    loops->gelu_again(m->wide, a->fch, N * 4 * C);
    gpt_gemm(GPT_TRANSPOSED, GPT_AS_IS, 4 * C, C, N, m->wide, 4 * C, m->dx, C, keep, gradient(m, GPT_FCPROJW, layer), C);
    loops->sum_rows(gradient_sum(m, grads, GPT_FCPROJB, layer), m->dx, N, C);
    gpt_gemm(GPT_AS_IS, GPT_TRANSPOSED, N, 4 * C, C, m->dx, C, w[GPT_FCPROJW], C, 0, m->wide, 4 * C);
    loops->multiply_sum(m->wide, a->fch, gradient_sum(m, grads, GPT_FCB, layer), N, 4 * C);

    loops->norm_again(m->norm, a->stats2, a->mid, w[GPT_LN2W], w[GPT_LN2B], N, C);
    gpt_gemm(GPT_TRANSPOSED, GPT_AS_IS, C, 4 * C, N, m->norm, C, m->wide, 4 * C, keep, gradient(m, GPT_FCW, layer), 4 * C);
    gpt_gemm(GPT_AS_IS, GPT_TRANSPOSED, N, C, 4 * C, m->wide, 4 * C, w[GPT_FCW], 4 * C, 0, m->norm, C);
    loops->norm_backward(m->dx, 1, gradient_sum(m, grads, GPT_LN2W, layer), gradient_sum(m, grads, GPT_LN2B, layer), m->norm,
                         a->stats2, a->mid, w[GPT_LN2W], N, C);
}

/* The attention half. */
static void attention_backward(const gpt_model *m, size_t layer, const layer_arrays *a, const float *const *w, gpt_grads grads)
{
    const gpt_rows_table *loops = m->loops;
    size_t N = m->rows, C = m->config.width;
    float keep = grads == GPT_ADD ? 1 : 0;

    gpt_gemm(GPT_TRANSPOSED, GPT_AS_IS, C, C, N, a->attention.out, C, m->dx, C, keep, gradient(m, GPT_ATTPROJW, layer), C);
    loops->sum_rows(gradient_sum(m, grads, GPT_ATTPROJB, layer), m->dx, N, C);
    gpt_gemm(GPT_AS_IS, GPT_TRANSPOSED, N, C, C, m->dx, C, w[GPT_ATTPROJW], C, 0, m->norm, C);
    gpt_attention_backward(&a->attention, m->wide, m->norm);
    loops->sum_rows(gradient_sum(m, grads, GPT_QKVB, layer), m->wide, N, 3 * C);

    loops->norm_again(m->norm, a->stats1, a->x, w[GPT_LN1W], w[GPT_LN1B], N, C);
    gpt_gemm(GPT_TRANSPOSED, GPT_AS_IS, C, 3 * C, N, m->norm, C, m->wide, 3 * C, keep, gradient(m, GPT_QKVW, layer), 3 * C);
    gpt_gemm(GPT_AS_IS, GPT_TRANSPOSED, N, C, 3 * C, m->wide, 3 * C, w[GPT_QKVW], 3 * C, 0, m->norm, C);
    loops->norm_backward(m->dx, 1, gradient_sum(m, grads, GPT_LN1W, layer), gradient_sum(m, grads, GPT_LN1B, layer), m->norm,
                         a->stats1, a->x, w[GPT_LN1W], N, C);
}

/* wte has the head's gradient already. */
static void embed_backward(const gpt_model *m, const uint32_t *inputs, gpt_grads grads)
{
    size_t C = m->config.width;
    float *dwte = gradient(m, GPT_WTE, 0), *dwpe = gradient_sum(m, grads, GPT_WPE, 0);

    for (size_t i = 0; i < m->rows; i++) {
        m->loops->add(dwte + inputs[i] * C, m->dx + i * C, C);
        m->loops->add(dwpe + i % m->tokens * C, m->dx + i * C, C);
    }
}

/* Says that tensors `from` to `to` of a layer are ready. */
static zro_status say_ready(const gpt_model *m, gpt_ready_fn ready, void *user, gpt_tensor from, gpt_tensor to, size_t layer)
{
    size_t index[GPT_PER_LAYER], n = (size_t)(to - from) + 1;

    if (ready == NULL)
        return ZRO_OK;
    for (size_t i = 0; i < n; i++)
        index[i] = gpt_param_index(&m->config, (gpt_tensor)((size_t)from + i), layer);
    return ready(user, index, n);
}

static zro_status backward(const gpt_model *m, const weights *head, const uint32_t *inputs, gpt_grads grads, gpt_ready_fn ready,
                           void *user)
{
    size_t L = m->config.layers, N = m->rows, C = m->config.width;
    zro_status st;

    m->loops->norm_backward(m->dx, 0, gradient_sum(m, grads, GPT_LNFW, 0), gradient_sum(m, grads, GPT_LNFB, 0), m->dx,
                            m->stats_f, x_of(m, L), head->w[GPT_LNFW], N, C);
    st = say_ready(m, ready, user, GPT_LNFW, GPT_LNFB, 0);
    for (size_t l = L; l-- > 0 && st == ZRO_OK;) {
        layer_arrays a = arrays_of(m, l, m->tokens);
        weights ws = weights_of_layer(m, l);

        mlp_backward(m, l, &a, ws.w, grads);
        st = say_ready(m, ready, user, GPT_LN2W, GPT_FCPROJB, l);
        if (st != ZRO_OK)
            return st;
        attention_backward(m, l, &a, ws.w, grads);
        st = say_ready(m, ready, user, GPT_LN1W, GPT_ATTPROJB, l);
    }
    if (st != ZRO_OK)
        return st;
    embed_backward(m, inputs, grads);
    return say_ready(m, ready, user, GPT_WTE, GPT_WPE, 0);
}

/* ---- what programs call ---- */

static zro_status check_batch(const gpt_model *m, const uint32_t *inputs, const uint32_t *targets)
{
    zro_status st;

    if (m->use != GPT_TRAIN)
        return gpt_fail(ZRO_ERR_STATE, "the model was made to generate text, not for batches");
    st = check_tokens(m, "inputs", inputs, m->rows);
    if (st == ZRO_OK && targets != NULL)
        st = check_tokens(m, "targets", targets, m->rows);
    return st;
}

zro_status gpt_train(gpt_model *m, const uint32_t *inputs, const uint32_t *targets, gpt_grads grads, double scale,
                     gpt_ready_fn ready, void *user, double *loss)
{
    zro_status st = check_batch(m, inputs, targets);
    weights head;

    if (st != ZRO_OK)
        return st;
    if (!(scale > 0))
        return gpt_fail(ZRO_ERR_INVALID, "the scale of the loss is %g, must be above 0", scale);
    head = weights_of_head(m);
    forward(m, &head, inputs, m->tokens, 0, m->rows);
    *loss = head_pass(m, &head, targets, grads, scale);
    return backward(m, &head, inputs, grads, ready, user);
}

zro_status gpt_loss(gpt_model *m, const uint32_t *inputs, const uint32_t *targets, double *loss)
{
    zro_status st = check_batch(m, inputs, targets);
    weights head;

    if (st != ZRO_OK)
        return st;
    head = weights_of_head(m);
    forward(m, &head, inputs, m->tokens, 0, m->rows);
    *loss = head_pass(m, &head, targets, GPT_REPLACE, 0);
    return ZRO_OK;
}

zro_status gpt_logits(gpt_model *m, const uint32_t *inputs, float *logits)
{
    zro_status st = check_batch(m, inputs, NULL);
    weights head;

    if (st != ZRO_OK)
        return st;
    head = weights_of_head(m);
    forward(m, &head, inputs, m->tokens, 0, m->rows);
    head_logits(m, &head, 0, m->rows, logits, m->config.vocab);
    return ZRO_OK;
}

zro_status gpt_read(gpt_model *m, const uint32_t *tokens, size_t first, size_t count, float *logits)
{
    size_t end = first + count;
    zro_status st;
    weights head;

    if (m->use != GPT_GENERATE || count < 1 || end > m->tokens)
        return gpt_fail(ZRO_ERR_STATE, "tokens %zu to %zu, but the model was made to read up to %zu", first, end,
                        m->use == GPT_GENERATE ? m->tokens : 0);
    st = check_tokens(m, "text", tokens + first, count);
    if (st != ZRO_OK)
        return st;
    head = weights_of_head(m);
    forward(m, &head, tokens, end, first, count);
    head_logits(m, &head, count - 1, 1, logits, m->config.vocab);
    return ZRO_OK;
}
