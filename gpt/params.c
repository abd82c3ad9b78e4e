/* Configurations and parameters of the model: see model.h. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "model.h"
#include "random.h"

zro_status gpt_fail(zro_status status, const char *format, ...)
{
    char text[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return zro_error_set(status, text);
}

/* ---- presets ---- */

static const struct {
    const char *name;
    gpt_config config;
} presets[] = {
    { "nano", { 256, 64, 3, 4, 64 } },
    { "micro", { 256, 128, 4, 4, 128 } },
    { "mini", { 256, 256, 6, 6, 384 } },
    { "gpt2", { 50257, 1024, 12, 12, 768 } },
};

int gpt_preset(const char *name, gpt_config *config)
{
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        if (strcmp(presets[i].name, name) == 0) {
            *config = presets[i].config;
            return 1;
        }
    return 0;
}

const char *gpt_preset_names(void)
{
    return "nano, micro, mini or gpt2";
}

zro_status gpt_config_check(const gpt_config *c)
{
    const struct {
        const char *name;
        size_t value, most;
    } fields[] = {
        { "vocabulary", c->vocab, (size_t)1 << 24 }, { "context", c->context, (size_t)1 << 20 },
        { "number of layers", c->layers, 1024 },     { "number of heads", c->heads, 1024 },
        { "width", c->width, (size_t)1 << 16 },
    };

    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (fields[i].value < 1 || fields[i].value > fields[i].most)
            return gpt_fail(ZRO_ERR_INVALID, "the %s of the model is %zu, must be from 1 to %zu", fields[i].name,
                            fields[i].value, fields[i].most);
    if (c->width % c->heads != 0)
        return gpt_fail(ZRO_ERR_INVALID, "the width of the model is %zu, must be a multiple of its %zu heads", c->width,
                        c->heads);
    return ZRO_OK;
}

/* ---- tensors ---- */

/* Sizes of dimensions. */
typedef enum dim { NONE, VOCAB, CONTEXT, WIDTH, WIDTH_3, WIDTH_4 } dim;

typedef enum first_values { ZEROS, ONES, NORMAL, NORMAL_RESIDUAL } first_values;

static const struct {
    const char *name, *path; /* llm.c's, and Hugging Face's, behind "h.<layer>." if it is layered */
    dim dims[2];
    first_values init;
} tensors[GPT_TENSORS] = {
    { "wte", "wte.weight", { VOCAB, WIDTH }, NORMAL },
    { "wpe", "wpe.weight", { CONTEXT, WIDTH }, NORMAL },
    { "ln1w", "ln_1.weight", { WIDTH, NONE }, ONES },
    { "ln1b", "ln_1.bias", { WIDTH, NONE }, ZEROS },
    { "qkvw", "attn.c_attn.weight", { WIDTH, WIDTH_3 }, NORMAL },
    { "qkvb", "attn.c_attn.bias", { WIDTH_3, NONE }, ZEROS },
    { "attprojw", "attn.c_proj.weight", { WIDTH, WIDTH }, NORMAL_RESIDUAL },
    { "attprojb", "attn.c_proj.bias", { WIDTH, NONE }, ZEROS },
    { "ln2w", "ln_2.weight", { WIDTH, NONE }, ONES },
    { "ln2b", "ln_2.bias", { WIDTH, NONE }, ZEROS },
    { "fcw", "mlp.c_fc.weight", { WIDTH, WIDTH_4 }, NORMAL },
    { "fcb", "mlp.c_fc.bias", { WIDTH_4, NONE }, ZEROS },
    { "fcprojw", "mlp.c_proj.weight", { WIDTH_4, WIDTH }, NORMAL_RESIDUAL },
    { "fcprojb", "mlp.c_proj.bias", { WIDTH, NONE }, ZEROS },
    { "lnfw", "ln_f.weight", { WIDTH, NONE }, ONES },
    { "lnfb", "ln_f.bias", { WIDTH, NONE }, ZEROS },
};

static size_t size_of(const gpt_config *c, dim d)
{
    switch (d) {
    case VOCAB:
        return c->vocab;
    case CONTEXT:
        return c->context;
    case WIDTH:
        return c->width;
    case WIDTH_3:
        return 3 * c->width;
    case WIDTH_4:
        return 4 * c->width;
    default:
        return 1;
    }
}

size_t gpt_params(const gpt_config *c)
{
    return (GPT_TENSORS - GPT_PER_LAYER) + c->layers * GPT_PER_LAYER;
}

size_t gpt_elements(const gpt_config *c)
{
    size_t total = 0;

    for (int t = 0; t < GPT_TENSORS; t++)
        total += size_of(c, tensors[t].dims[0]) * size_of(c, tensors[t].dims[1])
                 * (gpt_tensor_is_layered((gpt_tensor)t) ? c->layers : 1);
    return total;
}

const char *gpt_tensor_name(gpt_tensor tensor)
{
    return tensors[tensor].name;
}

int gpt_tensor_is_layered(gpt_tensor tensor)
{
    return tensor >= GPT_LN1W && tensor <= GPT_FCPROJB;
}

size_t gpt_param_index(const gpt_config *c, gpt_tensor tensor, size_t layer)
{
    if (tensor < GPT_LN1W)
        return tensor;
    if (gpt_tensor_is_layered(tensor))
        return GPT_LN1W + layer * GPT_PER_LAYER + (tensor - GPT_LN1W);
    return GPT_LN1W + c->layers * GPT_PER_LAYER + (tensor - GPT_LNFW);
}

/* The tensor that the i-th parameter is, and its layer. */
static gpt_tensor tensor_of(const gpt_config *c, size_t i, size_t *layer)
{
    size_t inner = i < GPT_LN1W ? 0 : i - GPT_LN1W;

    *layer = 0;
    if (i < GPT_LN1W)
        return (gpt_tensor)i;
    if (inner >= c->layers * GPT_PER_LAYER)
        return (gpt_tensor)(GPT_LNFW + (inner - c->layers * GPT_PER_LAYER));
    *layer = inner / GPT_PER_LAYER;
    return (gpt_tensor)(GPT_LN1W + inner % GPT_PER_LAYER);
}

void gpt_describe(const gpt_config *c, zro_dtype dtype, zro_param *params, char (*names)[GPT_NAME_BYTES])
{
    for (size_t i = 0; i < gpt_params(c); i++) {
        size_t layer, shape[2];
        gpt_tensor t = tensor_of(c, i, &layer);
        uint32_t n_dims = tensors[t].dims[1] == NONE ? 1 : 2;

        if (gpt_tensor_is_layered(t))
            snprintf(names[i], GPT_NAME_BYTES, "h.%zu.%s", layer, tensors[t].path);
        else
            snprintf(names[i], GPT_NAME_BYTES, "%s", tensors[t].path);
        shape[0] = size_of(c, tensors[t].dims[0]);
        shape[1] = size_of(c, tensors[t].dims[1]);
        zro_param_make(&params[i], names[i], dtype, NULL, NULL, n_dims, shape);
        params[i].grad_dtype = ZRO_F32;
    }
}

zro_status gpt_init(const gpt_config *c, zro_param *params, uint64_t seed)
{
    double residual = 0.02 / sqrt(2.0 * (double)c->layers);
    zro_status st = ZRO_OK;

    for (size_t i = 0; i < gpt_params(c) && st == ZRO_OK; i++) {
        size_t layer, count = zro_param_count(&params[i]), size = zro_dtype_bytes(params[i].dtype);
        first_values how = tensors[tensor_of(c, i, &layer)].init;

        for (size_t at = 0; at < count && st == ZRO_OK;) {
            float piece[1024];
            size_t n = count - at < 1024 ? count - at : 1024;

            for (size_t j = 0; j < n; j++)
                if (how == NORMAL || how == NORMAL_RESIDUAL)
                    piece[j] = (float)((how == NORMAL ? 0.02 : residual) * gpt_normal(seed, i, at + j));
                else
                    piece[j] = how == ONES ? 1 : 0;
            st = zro_convert((char *)params[i].data + at * size, params[i].dtype, piece, ZRO_F32, n);
            at += n;
        }
    }
    return st;
}
