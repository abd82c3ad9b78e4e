/* Buckets: see buckets.h. */
#include "plan/buckets.h"

#include <stdint.h>

#include "base/hash.h"
#include "base/param.h"
#include "base/status.h"

/* What parameters must have in common in order to share a bucket, and the last bucket of that kind. */
typedef struct kind {
    zro_dtype grad_type, dtype;
    int32_t device;
    int is_open;      /* whether that bucket takes more */
    size_t bucket;    /* its number */
    size_t limit;     /* its limit */
    size_t bytes;     /* of its gradients; SIZE_MAX if there are more */
    size_t n_buckets; /* how many buckets this kind has */
} kind;

/* Forming the buckets of n parameters: what is given, what is written, and scratch memory.  Device tags are the program's, so
 * there may be as many kinds as parameters, and they are found in a hash table. */
typedef struct forming {
    const zro_param *params;
    const size_t *order; /* n, or NULL */
    size_t n;
    const size_t *limits;
    size_t n_limits;

    size_t *bucket_params, *bucket_lengths;
    size_t *bucket_limits; /* or NULL */
    size_t n_buckets;

    size_t *seen;      /* n: for each parameter its place in the order plus 1, or 0 */
    size_t *bucket_of; /* n: for each place in the order the number of its bucket */
    size_t *next;      /* n: for each bucket where its next parameter goes in bucket_params */
    kind *kinds;       /* n, of which n_kinds are used */
    size_t n_kinds;
    size_t *table;  /* indices of kinds plus 1, or 0 */
    size_t n_table; /* its size, a power of two above n */
    zro__arena arena;
} forming;

/* ---- checks ---- */

static zro_status check_arguments(const forming *f, const size_t *n_buckets)
{
    const char *null = n_buckets == NULL                       ? "n_buckets"
                       : f->n > 0 && f->params == NULL         ? "params"
                       : f->n > 0 && f->bucket_params == NULL  ? "bucket_params"
                       : f->n > 0 && f->bucket_lengths == NULL ? "bucket_lengths"
                                                               : NULL;

    if (null != NULL)
        return zro__fail(ZRO_ERR_INVALID, "buckets_form: %s is NULL, with n = %zu parameters", null, f->n);
    if (f->limits == NULL || f->n_limits == 0)
        return zro__fail(ZRO_ERR_INVALID, "buckets_form: %s; pass at least one limit, in bytes",
                         f->n_limits == 0 ? "n_limits is 0" : "limits is NULL");
    return ZRO_OK;
}

/* Whether the size of each gradient can be computed. */
static zro_status check_params(const forming *f)
{
    zro_status st = ZRO_OK;

    for (size_t i = 0; st == ZRO_OK && i < f->n; i++) {
        st = zro__param_check_shape(&f->params[i], i);
        if (st == ZRO_OK)
            st = zro__param_check_types(&f->params[i], i);
    }
    return st;
}

/* Whether each parameter is in the order, which has as many entries, once. */
static zro_status check_order(forming *f)
{
    for (size_t k = 0; f->order != NULL && k < f->n; k++) {
        const size_t i = f->order[k];

        if (i >= f->n)
            return zro__fail(ZRO_ERR_INVALID, "buckets_form: order[%zu] = %zu, but there are only %zu parameters", k, i, f->n);
        if (f->seen[i] != 0)
            return zro__param_fail(ZRO_ERR_INVALID, f->params[i].name, i,
                                   "buckets_form has it twice: order[%zu] and order[%zu] are %zu", f->seen[i] - 1, k, i);
        f->seen[i] = k + 1;
    }
    return ZRO_OK;
}

/* ---- forming ---- */

static zro_status take_memory(forming *f, zro__account *account)
{
    const zro__array arrays[] = {
        { &f->seen, f->order != NULL ? f->n : 0, sizeof *f->seen },
        { &f->bucket_of, f->n, sizeof *f->bucket_of },
        { &f->next, f->n, sizeof *f->next },
        { &f->kinds, f->n, sizeof *f->kinds },
        { &f->table, f->n_table, sizeof *f->table },
    };

    return zro__arena_arrays(&f->arena, account, "forming buckets", arrays, sizeof arrays / sizeof *arrays);
}

/* The parameter at a place in the order. */
static size_t param_at(const forming *f, size_t k)
{
    return f->order != NULL ? f->order[k] : k;
}

/* The kind of a parameter, which is new if there was none before it. */
static kind *find_kind(forming *f, const zro_param *p)
{
    const zro_dtype grad_type = zro__param_grad_type(p);
    const uint64_t types = (uint64_t)grad_type << 32 | (uint64_t)p->dtype;
    size_t at = (size_t)zro__hash_word(zro__hash_word(ZRO__HASH_START, types), (uint64_t)p->device) & (f->n_table - 1);

    for (;; at = (at + 1) & (f->n_table - 1)) {
        kind *k;

        if (f->table[at] == 0) {
            f->kinds[f->n_kinds] = (kind){ .grad_type = grad_type, .dtype = p->dtype, .device = p->device };
            f->table[at] = ++f->n_kinds;
        }
        k = &f->kinds[f->table[at] - 1];
        if (k->grad_type == grad_type && k->dtype == p->dtype && k->device == p->device)
            return k;
    }
}

static void open_bucket(forming *f, kind *k)
{
    k->is_open = 1;
    k->bucket = f->n_buckets++;
    k->limit = f->limits[k->n_buckets < f->n_limits ? k->n_buckets : f->n_limits - 1];
    k->bytes = 0;
    k->n_buckets++;
    f->bucket_lengths[k->bucket] = 0;
    if (f->bucket_limits != NULL)
        f->bucket_limits[k->bucket] = k->limit;
}

/* Puts a parameter into the open bucket of its kind, and returns the number of that bucket. */
static size_t put(forming *f, const zro_param *p)
{
    const size_t bytes = zro_param_count(p) * zro_dtype_bytes(zro__param_grad_type(p)); /* fits: the shape was checked */
    kind *k = find_kind(f, p);

    if (!k->is_open)
        open_bucket(f, k);
    if (!zro__size_add(k->bytes, bytes, &k->bytes))
        k->bytes = SIZE_MAX;
    k->is_open = k->bytes < k->limit;
    f->bucket_lengths[k->bucket]++;
    return k->bucket;
}

/* Parameters bucket after bucket: sorted by counting. */
static void list_params(forming *f)
{
    size_t sum = 0;

    for (size_t b = 0; b < f->n_buckets; b++) {
        f->next[b] = sum;
        sum += f->bucket_lengths[b];
    }
    for (size_t k = 0; k < f->n; k++)
        f->bucket_params[f->next[f->bucket_of[k]]++] = param_at(f, k);
}

/* Everything that can fail comes before the lists are written. */
zro_status zro__buckets_form(zro__account *account, const zro_param *params, const size_t *order, size_t n,
                             const size_t *limits, size_t n_limits, size_t *bucket_params, size_t *bucket_lengths,
                             size_t *bucket_limits, size_t *n_buckets)
{
    forming f = { .params = params,
                  .order = order,
                  .n = n,
                  .limits = limits,
                  .n_limits = n_limits,
                  .bucket_params = bucket_params,
                  .bucket_lengths = bucket_lengths,
                  .bucket_limits = bucket_limits,
                  .n_table = 2 };
    zro_status st;

    if (n_buckets != NULL)
        *n_buckets = 0;
    st = check_arguments(&f, n_buckets);
    if (st == ZRO_OK)
        st = check_params(&f);
    if (st != ZRO_OK || n == 0)
        return st;
    while (f.n_table <= n)
        f.n_table *= 2;
    st = take_memory(&f, account);
    if (st == ZRO_OK)
        st = check_order(&f);
    if (st == ZRO_OK) {
        for (size_t k = 0; k < n; k++)
            f.bucket_of[k] = put(&f, &params[param_at(&f, k)]);
        list_params(&f);
        *n_buckets = f.n_buckets;
    }
    zro__arena_free(&f.arena);
    return st;
}

zro_status zro_buckets_form(const zro_param *params, const size_t *order, size_t n, const size_t *limits, size_t n_limits,
                            size_t *bucket_params, size_t *bucket_lengths, size_t *bucket_limits, size_t *n_buckets)
{
    return zro__buckets_form(NULL, params, order, n, limits, n_limits, bucket_params, bucket_lengths, bucket_limits, n_buckets);
}

/* ---- what PyTorch does with it ---- */

size_t zro__bucket_limits(size_t bucket_bytes, size_t limits[2])
{
    const size_t mib = (size_t)1 << 20;

    limits[0] = bucket_bytes != 0 ? bucket_bytes : mib;
    limits[1] = bucket_bytes != 0 ? bucket_bytes : 25 * mib;
    return bucket_bytes != 0 ? 1 : 2;
}

static void reverse(size_t *list, size_t n)
{
    for (size_t i = 0; i < n / 2; i++) {
        size_t x = list[i];

        list[i] = list[n - 1 - i];
        list[n - 1 - i] = x;
    }
}

/* All parameters in reverse, and then those of each bucket once more. */
void zro__buckets_reverse(size_t *bucket_params, size_t *bucket_lengths, size_t n_buckets)
{
    size_t n = 0;

    for (size_t b = 0; b < n_buckets; b++)
        n += bucket_lengths[b];
    reverse(bucket_params, n);
    reverse(bucket_lengths, n_buckets);
    for (size_t b = 0, first = 0; b < n_buckets; first += bucket_lengths[b++])
        reverse(bucket_params + first, bucket_lengths[b]);
}
