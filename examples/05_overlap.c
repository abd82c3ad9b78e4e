/* Overlap: the step is made during backward, layer by layer, while the layers below still compute their gradients.
 *
 *   cc 05_overlap.c $(pkg-config --cflags --libs zro) && zro run -n 2 -- ./a.out [--trace FILE]
 *
 * The loop is the same in all modes, and so are the parameters, bit for bit: only the field `overlap` differs. */
#include <stdio.h>
#include <string.h>
#include <zro.h>

enum { LAYERS = 8, WIDTH = 256, STEPS = 20 };

/* Layers multiply by a matrix: x[l + 1] = W[l] x[l]; the last one should give what the first one got. */
static float x[LAYERS + 1][WIDTH], d[WIDTH], below[WIDTH]; /* d: the gradient of what a layer gives */

static void forward(const float *w, int l)
{
    for (int o = 0; o < WIDTH; o++) {
        x[l + 1][o] = 0;
        for (int i = 0; i < WIDTH; i++)
            x[l + 1][o] += w[o * WIDTH + i] * x[l][i];
    }
}

static void backward(const float *w, float *grad, int l)
{
    memset(below, 0, sizeof below);
    for (int o = 0; o < WIDTH; o++)
        for (int i = 0; i < WIDTH; i++) {
            grad[o * WIDTH + i] = d[o] * x[l][i];
            below[i] += d[o] * w[o * WIDTH + i];
        }
    memcpy(d, below, sizeof d);
}

static uint64_t train(zro_group *ranks, zro_overlap overlap, float *loss)
{
    zro_ddp_config with = ZRO_DDP_CONFIG_INIT;
    zro_optim_config config = ZRO_OPTIM_CONFIG_INIT;
    zro_param_group group = ZRO_PARAM_GROUP_INIT;
    zro_param p[LAYERS];
    zro_ddp *ddp;
    zro_optim *opt;
    uint64_t hash;

    for (int l = 0; l < LAYERS; l++)
        zro_param_make(&p[l], NULL, ZRO_F32, NULL, NULL, 2, (size_t[]){ WIDTH, WIDTH });
    zro_must(zro_params_alloc(ranks, p, LAYERS, NULL));
    for (int l = 0; zro_group_rank(ranks) == 0 && l < LAYERS; l++)
        for (int i = 0; i < WIDTH * WIDTH; i++)
            ((float *)p[l].data)[i] = i % (WIDTH + 1) == 0 ? 0.9f : 0.001f * (float)(i % 7 - 3);
    with.bucket_bytes = sizeof(float) * WIDTH * WIDTH; /* one layer per bucket */
    zro_must(zro_ddp_create(ranks, p, LAYERS, &with, &ddp));
    group.params = p, group.n = LAYERS, config.ddp = ddp;
    config.overlap = overlap; /* that is all */
    zro_must(zro_optim_create(ranks, &group, 1, zro_rule_adam(), NULL, &config, &opt));

    for (int step = 0; step < STEPS; step++) {
        zro_must(zro_ddp_forward(ddp));
        for (int i = 0; i < WIDTH; i++)
            x[0][i] = (float)((i * 7 + step * 3 + zro_group_rank(ranks) * 5) % 11 - 5) / 5;
        for (int l = 0; l < LAYERS; l++)
            forward(p[l].data, l);
        for (int i = 0; i < WIDTH; i++) {
            d[i] = x[LAYERS][i] - x[0][i];
            *loss = (i > 0 ? *loss : 0) + d[i] * d[i] / WIDTH;
        }
        for (int l = LAYERS - 1; l >= 0; l--) {
            uint64_t mark = zro_trace_begin(ranks);
            backward(p[l].data, p[l].grad, l);
            zro_trace_end(ranks, mark, "backward of a layer");
            zro_must(zro_ddp_grad_ready(ddp, (size_t)l)); /* interleaved: from here on zro may update this layer */
        }
        zro_must(zro_ddp_backward_end(ddp));
        zro_must(zro_optim_step(opt, NULL)); /* with overlap, all layers have been updated already */
    }
    zro_must(zro_params_hash(p, LAYERS, &hash));
    zro_optim_destroy(opt);
    zro_ddp_destroy(ddp);
    zro_params_free(p, LAYERS);
    return hash;
}

int main(int argc, char **argv)
{
    static const char *const names[] = { "after backward", "after the last bucket", "interleaved" };
    zro_group_config config = ZRO_GROUP_CONFIG_INIT;
    zro_group *ranks;
    uint64_t hash[3];
    float loss = 1;

    config.trace = argc == 3 && strcmp(argv[1], "--trace") == 0 ? argv[2] : NULL; /* for ui.perfetto.dev */
    zro_must(zro_group_create_env(&config, &ranks));
    for (int mode = ZRO_OVERLAP_OFF; mode <= ZRO_OVERLAP_INTERLEAVED; mode++) {
        hash[mode] = train(ranks, (zro_overlap)mode, &loss);
        printf("rank %d, %s: parameters %016llx\n", zro_group_rank(ranks), names[mode], (unsigned long long)hash[mode]);
    }
    zro_group_destroy(ranks);
    return loss > 0.1f || hash[1] != hash[0] || hash[2] != hash[0];
}
