/* partition.json: PyTorch's partition, whole parameters to the rank with the fewest elements; a pure function. */
#include <string.h>

#include "golden.h"

typedef struct partition {
    int world_size;
    golden_count_lists sizes;  /* of each group's parameters; the last is the one that is added, if there is one */
    size_t n_added;            /* 1 or 0 */
    golden_count_lists owner;  /* by group */
    golden_count_lists *order; /* by rank and group */
} partition;

static void read_partition(golden_case *c, partition *p)
{
    json_t *order = golden_list(c, c->json, "order");
    size_t n;

    p->world_size = golden_world_size(c, c->json);
    p->sizes = golden_read_count_lists(c, c->json, "groups");
    if (golden_given(c->json, "added")) {
        golden_counts *all = golden_alloc(c, (p->sizes.n + 1) * sizeof *all);

        memcpy(all, p->sizes.at, p->sizes.n * sizeof *all);
        all[p->sizes.n] = golden_read_counts(c, "added", golden_list(c, c->json, "added"));
        p->sizes = (golden_count_lists){ all, p->sizes.n + 1 };
        p->n_added = 1;
    }
    p->owner = golden_read_count_lists(c, c->json, "owner");
    n = json_array_size(order);
    p->order = golden_alloc(c, n * sizeof *p->order);
    for (size_t r = 0; r < n; r++) {
        json_t *groups = json_array_get(order, r);

        p->order[r] =
            (golden_count_lists){ golden_alloc(c, json_array_size(groups) * sizeof(golden_counts)), json_array_size(groups) };
        for (size_t g = 0; g < p->order[r].n; g++)
            p->order[r].at[g] = golden_read_counts(c, "order", json_array_get(groups, g));
    }
    if (golden_ok(c) && n != (size_t)p->world_size)
        golden_fail(c, "\"order\" has %zu ranks, must have %d", n, p->world_size);
}

/* Whether owner and order have as many groups as there are, and owner as many parameters. */
static void check_lengths(golden_case *c, const partition *p)
{
    if (p->owner.n != p->sizes.n)
        golden_fail(c, "\"owner\" has %zu groups, must have %zu", p->owner.n, p->sizes.n);
    for (size_t g = 0; golden_ok(c) && g < p->sizes.n; g++)
        if (p->owner.at[g].n != p->sizes.at[g].n)
            golden_fail(c, "\"owner\" has %zu parameters in group %zu, must have %zu", p->owner.at[g].n, g, p->sizes.at[g].n);
    for (int r = 0; golden_ok(c) && r < p->world_size; r++)
        if (p->order[r].n != p->sizes.n)
            golden_fail(c, "\"order\" has %zu groups of rank %d, must have %zu", p->order[r].n, r, p->sizes.n);
}

static zro_param_group make_group(golden_case *c, const golden_counts *sizes)
{
    zro_param_group group = { .params = golden_alloc(c, sizes->n * sizeof *group.params), .n = sizes->n };

    for (size_t i = 0; i < sizes->n; i++) {
        zro_param_init(&group.params[i]);
        group.params[i].shape[0] = sizes->at[i];
    }
    return group;
}

static zro_plan *make_plan(golden_case *c, const partition *p)
{
    size_t n = p->sizes.n - p->n_added;
    zro_param_group *groups = golden_alloc(c, p->sizes.n * sizeof *groups);
    zro_plan_config config = ZRO_PLAN_CONFIG_INIT;
    zro_plan *plan = NULL;

    config.partition = ZRO_PARTITION_GREEDY;
    for (size_t g = 0; g < p->sizes.n; g++)
        groups[g] = make_group(c, &p->sizes.at[g]);
    if (golden_call(c, "zro_plan_create", zro_plan_create(groups, n, p->world_size, &config, &plan)) && p->n_added > 0)
        golden_call(c, "zro_plan_add_group", zro_plan_add_group(plan, &groups[n]));
    return plan;
}

static void check_owners(golden_case *c, const partition *p, const zro_plan *plan)
{
    c->param = 0;
    for (size_t g = 0; g < p->sizes.n; g++)
        for (size_t i = 0; i < p->sizes.at[g].n; i++, c->param++) {
            size_t size = p->sizes.at[g].at[i];
            int first = -1, last = -1;

            if (!golden_call(c, "zro_plan_owner", zro_plan_owner(plan, c->param, 0, &first))
                || !golden_call(c, "zro_plan_owner", zro_plan_owner(plan, c->param, size > 0 ? size - 1 : 0, &last)))
                return;
            golden_exact(c, "the owner", first, (double)p->owner.at[g].at[i]);
            golden_exact(c, "the owner of the last element", last, first);
        }
    c->param = GOLDEN_NOWHERE;
}

static void check_order(golden_case *c, const partition *p, const zro_plan *plan, int rank)
{
    const zro_range *ranges = NULL;
    size_t n = 0, k = 0;

    c->rank = (size_t)rank;
    if (!golden_call(c, "zro_plan_ranges", zro_plan_ranges(plan, rank, &ranges, &n)))
        return;
    for (size_t g = 0; g < p->sizes.n; g++)
        for (size_t i = 0; i < p->order[rank].at[g].n; i++, k++) {
            size_t x = p->order[rank].at[g].at[i];

            if (k < n && (ranges[k].param != x || ranges[k].group != g))
                golden_fail(c, "its range %zu is parameter %zu of group %zu, must be %zu of %zu", k, ranges[k].param,
                            ranges[k].group, x, g);
            if (k < n && (ranges[k].first != 0 || ranges[k].owner != rank))
                golden_fail(c, "its range %zu begins at %zu and is owned by %d", k, ranges[k].first, (int)ranges[k].owner);
        }
    if (k != n)
        golden_fail(c, "it has %zu ranges, must have %zu", n, k);
    c->rank = GOLDEN_NOWHERE;
}

/* What the owners' ranges add up to is all there is. */
static void check_elements(golden_case *c, const partition *p, const zro_plan *plan)
{
    for (int r = 0; r < p->world_size; r++) {
        size_t elements = 0;

        for (size_t g = 0; g < p->sizes.n; g++)
            for (size_t i = 0; i < p->sizes.at[g].n; i++)
                elements += p->owner.at[g].at[i] == (size_t)r ? p->sizes.at[g].at[i] : 0;
        c->rank = (size_t)r;
        golden_exact(c, "the number of elements", (double)zro_plan_elements(plan, r), (double)elements);
    }
    c->rank = GOLDEN_NOWHERE;
}

void golden_partition(golden_case *c)
{
    partition p = { 0 };
    zro_plan *plan;

    if (!golden_keys(c, "the case", c->json, "world_size groups added owner order", ""))
        return;
    read_partition(c, &p);
    if (golden_ok(c))
        check_lengths(c, &p);
    if (!golden_ok(c))
        return;
    golden_about(c, "%d ranks, %zu groups", p.world_size, p.sizes.n);
    plan = make_plan(c, &p);
    if (golden_ok(c)) {
        check_owners(c, &p, plan);
        for (int r = 0; r < p.world_size; r++)
            check_order(c, &p, plan, r);
        check_elements(c, &p, plan);
    }
    zro_plan_destroy(plan);
}
