/* sampler.json: PyTorch's DistributedSampler without shuffling; a pure function. */
#include "golden.h"

static void check_rank(golden_case *c, size_t n, int size, int rank, const zro_sample_config *config, const golden_counts *x)
{
    const size_t count = zro_sample_count(n, size, config->drop_last);
    size_t *got = golden_alloc(c, (count + 1) * sizeof *got);

    golden_about(c, "%zu samples, rank %d of %d, drop_last %s", n, rank, size, config->drop_last == ZRO_ON ? "on" : "off");
    golden_exact(c, "the number of samples", (double)count, (double)x->n);
    if (!golden_ok(c) || !golden_call(c, "zro_sample_indices", zro_sample_indices(n, rank, size, config, 0, count, got)))
        return;
    for (size_t i = 0; golden_ok(c) && i < count; i++)
        golden_exact(c, "a sample", (double)got[i], (double)x->at[i]);
}

void golden_sampler(golden_case *c)
{
    zro_sample_config config = ZRO_SAMPLE_CONFIG_INIT;
    json_t *indices;
    size_t n;
    int size;

    if (!golden_keys(c, "the case", c->json, "n world_size drop_last indices", ""))
        return;
    n = golden_count(c, c->json, "n", 0);
    size = golden_world_size(c, c->json);
    config.drop_last = golden_flag(c, c->json, "drop_last", ZRO_OFF);
    indices = golden_list(c, c->json, "indices");
    if (golden_ok(c) && json_array_size(indices) != (size_t)size)
        golden_fail(c, "\"indices\" has %zu ranks, must have %d", json_array_size(indices), size);
    for (int r = 0; golden_ok(c) && r < size; r++) {
        golden_counts x = golden_read_counts(c, "indices", json_array_get(indices, (size_t)r));

        if (golden_ok(c))
            check_rank(c, n, size, r, &config, &x);
    }
}
