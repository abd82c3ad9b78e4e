/* ddp_buckets.json: PyTorch's buckets of gradients; a pure function.
 *
 * Each case is computed twice: with the parameters in the order in which they are taken, and with parameters that are numbered
 * from the last to the first, whose order is given. */
#include <string.h>

#include "golden.h"

typedef struct bucketing {
    golden_counts sizes;        /* elements of each parameter */
    zro_dtype *dtypes;          /* one per parameter */
    golden_counts limits;       /* in bytes */
    golden_count_lists buckets; /* indices of parameters */
    golden_counts bucket_limits;
} bucketing;

static void read_dtypes(golden_case *c, bucketing *b)
{
    json_t *list = golden_list(c, c->json, "dtypes");

    if (golden_ok(c) && json_array_size(list) != b->sizes.n)
        golden_fail(c, "\"dtypes\" has %zu types, must have %zu", json_array_size(list), b->sizes.n);
    b->dtypes = golden_alloc(c, b->sizes.n * sizeof *b->dtypes);
    for (size_t i = 0; golden_ok(c) && i < b->sizes.n; i++) {
        const char *name = json_string_value(json_array_get(list, i));

        if (name == NULL || (strcmp(name, "float32") != 0 && strcmp(name, "float64") != 0))
            golden_fail(c, "\"dtypes\" has in place %zu \"%s\", must be float32 or float64", i, name != NULL ? name : "");
        else
            b->dtypes[i] = strcmp(name, "float32") == 0 ? ZRO_F32 : ZRO_F64;
    }
}

static void read_bucketing(golden_case *c, bucketing *b)
{
    b->sizes = golden_read_counts(c, "sizes", golden_list(c, c->json, "sizes"));
    read_dtypes(c, b);
    b->limits = golden_read_counts(c, "limits", golden_list(c, c->json, "limits"));
    b->buckets = golden_read_count_lists(c, c->json, "buckets");
    b->bucket_limits = golden_read_counts(c, "bucket_limits", golden_list(c, c->json, "bucket_limits"));
}

/* The index of the parameter that is taken as the k-th; and, being its own inverse, the place of a parameter. */
static size_t mirror(const bucketing *b, int is_reversed, size_t k)
{
    return is_reversed && k < b->sizes.n ? b->sizes.n - 1 - k : k;
}

static void check_bucket(golden_case *c, const bucketing *b, int is_reversed, size_t bucket, const size_t *params,
                         size_t length)
{
    const golden_counts *must = &b->buckets.at[bucket];

    if (length != must->n)
        golden_fail(c, "bucket %zu has %zu parameters, must have %zu", bucket, length, must->n);
    for (size_t i = 0; i < length && i < must->n; i++)
        if (mirror(b, is_reversed, params[i]) != must->at[i])
            golden_fail(c, "bucket %zu has parameter %zu in place %zu, must have %zu", bucket,
                        mirror(b, is_reversed, params[i]), i, must->at[i]);
}

static void form(golden_case *c, const bucketing *b, int is_reversed)
{
    const size_t n = b->sizes.n;
    zro_param *params = golden_alloc(c, n * sizeof *params);
    size_t *order = golden_alloc(c, n * sizeof *order), *members = golden_alloc(c, n * sizeof *members);
    size_t *lengths = golden_alloc(c, n * sizeof *lengths), *limits = golden_alloc(c, n * sizeof *limits);
    size_t n_buckets = 0;

    c->how = is_reversed ? "numbered from the last" : NULL;
    for (size_t k = 0; k < n; k++) {
        order[k] = mirror(b, is_reversed, k);
        zro_param_init(&params[order[k]]);
        params[order[k]].shape[0] = b->sizes.at[k];
        params[order[k]].dtype = b->dtypes[k];
    }
    if (!golden_call(c, "zro_buckets_form",
                     zro_buckets_form(params, is_reversed ? order : NULL, n, b->limits.at, b->limits.n, members, lengths,
                                      limits, &n_buckets)))
        return;
    if (n_buckets != b->buckets.n)
        golden_fail(c, "there are %zu buckets, must be %zu", n_buckets, b->buckets.n);
    for (size_t i = 0, at = 0; i < n_buckets && i < b->buckets.n; at += lengths[i++]) {
        check_bucket(c, b, is_reversed, i, members + at, lengths[i]);
        if (limits[i] != b->bucket_limits.at[i])
            golden_fail(c, "bucket %zu has the limit %zu, must have %zu", i, limits[i], b->bucket_limits.at[i]);
    }
}

void golden_ddp_buckets(golden_case *c)
{
    bucketing b = { 0 };

    if (!golden_keys(c, "the case", c->json, "sizes dtypes limits buckets bucket_limits", ""))
        return;
    read_bucketing(c, &b);
    if (golden_ok(c))
        golden_about(c, "%zu parameters, %zu limits", b.sizes.n, b.limits.n);
    if (golden_ok(c) && b.bucket_limits.n != b.buckets.n)
        golden_fail(c, "\"bucket_limits\" has %zu numbers, must have %zu", b.bucket_limits.n, b.buckets.n);
    if (!golden_ok(c))
        return;
    form(c, &b, 0);
    form(c, &b, 1);
}
