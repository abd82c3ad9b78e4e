/* Rules and parameters of the benchmarks: see bench_model.h. */
#include "bench_model.h"

#include <string.h>

#include "base/kernels.h"

const contender contenders[CONTENDERS] = {
    { "adam", { NULL, 0 }, 2 },    { "adamw", { NULL, 0 }, 2 },          { "sgd", { "momentum", 0.9 }, 1 },
    { "adagrad", { NULL, 0 }, 1 }, { "adadelta", { NULL, 0 }, 2 },       { "adamax", { NULL, 0 }, 2 },
    { "rmsprop", { NULL, 0 }, 1 }, { "rprop", { "step_max", 1e-2 }, 2 }, { "asgd", { "t0", 0 }, 1 },
    { "nadam", { NULL, 0 }, 2 },   { "radam", { NULL, 0 }, 2 },
};

const char *contender_name(int i)
{
    return contenders[i].name;
}

/* Embeddings, twelve layers, the last norm. */
static void gpt2_sizes(size_t *sizes)
{
    enum { WIDTH = 768, LAYERS = 12, VOCABULARY = 50257, CONTEXT = 1024, INNER = 4 * WIDTH, QKV = 3 * WIDTH };
    static const size_t layer[] = { WIDTH, WIDTH, WIDTH * QKV,   QKV,   WIDTH * WIDTH, WIDTH,
                                    WIDTH, WIDTH, WIDTH * INNER, INNER, INNER * WIDTH, WIDTH };
    size_t n = 0;

    sizes[n++] = (size_t)VOCABULARY * WIDTH;
    sizes[n++] = CONTEXT * WIDTH;
    for (size_t l = 0; l < LAYERS; l++, n += sizeof layer / sizeof *layer)
        memcpy(&sizes[n], layer, sizeof layer);
    sizes[n++] = WIDTH;
    sizes[n] = WIDTH;
}

void model_sizes(size_t *sizes, size_t elements)
{
    uint64_t before = 0, old = 0;

    gpt2_sizes(sizes);
    for (size_t i = 0; i < GPT2_TENSORS; i++) {
        uint64_t now;

        before += sizes[i];
        now = before * elements / GPT2_PARAMS;
        sizes[i] = (size_t)(now - old);
        old = now;
    }
}

void model_fill(void *to, zro_dtype dtype, size_t count, uint32_t *random)
{
    enum { STEP = 1024 };
    const zro__kernels *kernels = zro__kernels_get(ZRO_KERNELS_AUTO);
    float values[STEP];

    for (size_t done = 0, n; done < count; done += n) {
        n = count - done < STEP ? count - done : STEP;
        for (size_t i = 0; i < n; i++) {
            *random = *random * 1664525 + 1013904223;
            values[i] = 0x1p-7F + (float)(*random >> 8) * 0x1p-30F;
        }
        kernels->convert((char *)to + done * zro_dtype_bytes(dtype), dtype, values, ZRO_F32, n);
    }
}
