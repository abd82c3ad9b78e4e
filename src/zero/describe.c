/* What an optimizer tells about itself: stages, owners, where parameters lie, what a step delivers. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "group/group.h"
#include "zero/optim.h"

enum { RANKS_SHOWN = 16 };

/* A text that may be longer than its room. */
typedef struct page {
    char *text;
    size_t bytes, at;
} page;

static void say(page *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(page *p, const char *format, ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(p->at < p->bytes ? p->text + p->at : NULL, p->at < p->bytes ? p->bytes - p->at : 0, format, args);
    va_end(args);
    p->at += n > 0 ? (size_t)n : 0;
}

static double mib(double bytes)
{
    return bytes / 0x1p20;
}

static const char *partition_name(const zro_plan *plan)
{
    static const char *const names[] = { "auto", "flat", "greedy", "buckets", "given" };

    return names[zro__plan_partition(plan)];
}

static void describe_ranks(const zro_optim *opt, page *p)
{
    const int ranks = zro__optim_ranks(opt);
    size_t least = SIZE_MAX, most = 0;

    for (int r = 0; r < ranks; r++) {
        size_t elements = zro_plan_elements(opt->plan, r), n = 0;
        const zro_range *ranges;

        least = elements < least ? elements : least;
        most = elements > most ? elements : most;
        if (r >= RANKS_SHOWN || zro_plan_ranges(opt->plan, r, &ranges, &n) != ZRO_OK)
            continue;
        say(p, "rank %d owns %zu elements in %zu ranges", r, elements, n);
        if (r == zro__optim_rank(opt))
            say(p, ", %.1f MiB of state here", mib((double)zro__shard_bytes(&opt->cycle.update.shard)));
        say(p, "\n");
    }
    if (ranks > 1)
        say(p, "shards have %zu to %zu elements\n", least, most);
}

static const char *way_of(const zro__lot *lot)
{
    if (lot->once)
        return "exist once: not delivered";
    if (lot->place != NULL)
        return lot->place->kind == ZRO_MEMORY_ONCE ? "exist once a machine" : "group memory, written in place";
    return "the program's own arrays, in messages unless they are group memory";
}

static void describe_lots(const zro_optim *opt, page *p)
{
    size_t deliveries = 0;
    double bytes = 0;

    for (const zro__lots *l = opt->cycle.lots; l != NULL; l = l->next)
        for (size_t k = 0; k < l->n; k++) {
            const zro__lot *lot = &l->lots[k];
            double size = (double)lot->count * (double)zro_dtype_bytes(lot->type);

            say(p, "%s, device %d: %.1f MiB in %zu parts of %zu owners; %s\n", zro_dtype_name(lot->type), (int)lot->device,
                mib(size), lot->n_parts, lot->n_owners, way_of(lot));
            deliveries += lot->once ? 0 : lot->n_owners;
            bytes += lot->once ? 0 : size;
        }
    if (zro__optim_ranks(opt) > 1)
        say(p, "a step makes %zu deliveries, %.1f MiB\n", deliveries, mib(bytes));
}

static void describe(const zro_optim *opt, page *p)
{
    const zro__cycle *c = &opt->cycle;

    say(p, "optimizer %s, rank %d of %d: %zu parameters in %zu groups, %zu elements\n",
        opt->rule != NULL ? opt->rule->name : "without a rule", zro__optim_rank(opt), zro__optim_ranks(opt), opt->n_params,
        zro_optim_groups(opt), zro_plan_elements(opt->plan, ZRO_ALL));
    say(p, "stages: optimizer alone: nothing is reduced; update and publish at step%s\n",
        c->clip_norm != 0 || c->skips == ZRO_ON ? ", after one exchange about all gradients (norm, loss scale, skip)" : "");
    say(p, "passes over gradients: %d; kernels %s, threads %u\n", 1 + (c->clip_norm != 0) + (c->skips == ZRO_ON),
        c->update.kernels->name, (unsigned)opt->settings.threads);
    say(p, "partition %s, %zu buckets\n", partition_name(opt->plan), zro_plan_buckets(opt->plan));
    describe_ranks(opt, p);
    describe_lots(opt, p);
}

size_t zro_optim_describe(const zro_optim *opt, char *text, size_t bytes)
{
    page p = { text, text != NULL ? bytes : 0, 0 };

    if (p.bytes > 0)
        text[0] = '\0';
    if (opt != NULL)
        describe(opt, &p);
    return p.at;
}

/* Rank 0 tells about all ranks, the others about themselves. */
void zro__optim_say_plan(const zro_optim *opt)
{
    const zro__shard *shard = &opt->cycle.update.shard;
    const int rank = zro__optim_rank(opt);
    char text[8192], *line = text, *end;

    if (opt->settings.log == NULL || opt->settings.log_level < ZRO_LOG_INFO)
        return;
    zro__log(&opt->settings, ZRO_LOG_INFO, "rank %d: %zu of %zu elements, %.1f MiB of state", rank,
             zro_plan_elements(opt->plan, rank), zro_plan_elements(opt->plan, ZRO_ALL), mib((double)zro__shard_bytes(shard)));
    if (rank != 0)
        return;
    zro_optim_describe(opt, text, sizeof text);
    for (; (end = strchr(line, '\n')) != NULL; line = end + 1)
        zro__log(&opt->settings, ZRO_LOG_INFO, "%.*s", (int)(end - line), line);
}
