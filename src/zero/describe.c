/* What an optimizer tells about itself: stages, owners, where parameters lie, what a step delivers. */
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "group/group.h"
#include "zero/optim.h"

enum { RANKS_SHOWN = 16 };

static double mib(double bytes)
{
    return bytes / 0x1p20;
}

static void describe_ranks(const zro_optim *opt, zro__text *p)
{
    const int ranks = zro__optim_ranks(opt);
    size_t least = SIZE_MAX, most = 0;

    for (int r = 0; r < ranks; r++) {
        size_t elements = zro_plan_elements(opt->plan, r), n;

        least = elements < least ? elements : least;
        most = elements > most ? elements : most;
        if (r >= RANKS_SHOWN)
            continue;
        (void)zro__plan_owned(opt->plan, r, &n);
        zro__text_add(p, "rank %d owns %zu elements in %zu ranges", r, elements, n);
        if (r == zro__optim_rank(opt))
            zro__text_add(p, ", %.1f MiB of state here", mib((double)zro__shard_bytes(zro__optim_shard(opt))));
        zro__text_add(p, "\n");
    }
    if (ranks > 1)
        zro__text_add(p, "shards have %zu to %zu elements\n", least, most);
}

static const char *way_of(const zro__batch *batch)
{
    if (batch->exists_once)
        return "exist once: not delivered";
    if (batch->place != NULL)
        return batch->place->kind == ZRO_MEMORY_ONCE ? "exist once per machine" : "group memory, written in place";
    return "the program's own arrays, in messages unless they are group memory";
}

static void describe_batches(const zro_optim *opt, zro__text *p)
{
    size_t deliveries = 0;
    double bytes = 0;

    for (const zro__batches *l = opt->updater.publish; l != NULL; l = l->next)
        for (size_t k = 0; k < l->n; k++) {
            const zro__batch *batch = &l->list[k];
            double size = (double)batch->count * (double)zro_dtype_bytes(batch->out_type);

            zro__text_add(p, "%s, device %d: %.1f MiB in %zu parts of %zu owners; %s\n", zro_dtype_name(batch->out_type),
                          (int)batch->device, mib(size), batch->n_parts, batch->n_owners, way_of(batch));
            deliveries += batch->exists_once ? 0 : batch->n_owners;
            bytes += batch->exists_once ? 0 : size;
        }
    if (zro__optim_ranks(opt) > 1)
        zro__text_add(p, "a step makes %zu deliveries, %.1f MiB\n", deliveries, mib(bytes));
}

static void describe(const zro_optim *opt, zro__text *p)
{
    const zro__updater *u = &opt->updater;
    const int asks = zro__updater_measures_first(u);

    zro__text_add(p, "optimizer %s, rank %d of %d: %zu parameters in %zu groups, %zu elements\n",
                  opt->rule != NULL ? opt->rule->name : "without a rule", zro__optim_rank(opt), zro__optim_ranks(opt),
                  opt->n_params, zro_optim_groups(opt), zro_plan_elements(opt->plan, ZRO_ALL));
    zro__text_add(p, "stages: %s: %s%s\n", u->is_attached ? "attached to a ddp" : "optimizer alone: nothing is reduced",
                  zro__cycle_row(opt->cycle, u)->name,
                  asks ? ", after one exchange about all gradients (norm, loss scale, skip)" : "");
    zro__text_add(p, "passes over gradients: %d; kernels %s, threads %u\n", 1 + asks, u->update.kernels->name,
                  (unsigned)opt->settings.threads);
    if (u->is_attached && opt->cycle->staging != NULL)
        zro__text_add(p, "gradients are staged as they become ready: %.1f MiB of group memory per rank\n",
                      mib((double)opt->cycle->staging->bytes));
    zro__text_add(p, "partition %s, %zu buckets\n", zro__partition_name(opt->plan), zro_plan_buckets(opt->plan));
    describe_ranks(opt, p);
    describe_batches(opt, p);
}

size_t zro_optim_describe(const zro_optim *opt, char *text, size_t bytes)
{
    zro__text p = { text, text != NULL ? bytes : 0, 0 };

    if (p.bytes > 0)
        text[0] = '\0';
    if (opt != NULL)
        describe(opt, &p);
    return p.at;
}

/* Rank 0 tells about all ranks, the others about themselves. */
void zro__optim_say_plan(const zro_optim *opt)
{
    const zro__shard *shard = zro__optim_shard(opt);
    const int rank = zro__optim_rank(opt);
    char text[8192], *line = text, *end;

    if (opt->settings.log_level < ZRO_LOG_INFO)
        return;
    zro__log(&opt->settings, ZRO_LOG_INFO, "rank %d: %zu of %zu elements, %.1f MiB of state", rank,
             zro_plan_elements(opt->plan, rank), zro_plan_elements(opt->plan, ZRO_ALL), mib((double)zro__shard_bytes(shard)));
    if (rank != 0)
        return;
    zro_optim_describe(opt, text, sizeof text);
    for (; (end = strchr(line, '\n')) != NULL; line = end + 1)
        zro__log(&opt->settings, ZRO_LOG_INFO, "%.*s", (int)(end - line), line);
}
