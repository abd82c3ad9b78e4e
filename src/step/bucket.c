/* Buckets: see bucket.h. */
#include "step/bucket.h"

#include "group/group.h"
#include "step/cycle.h"

/* ---- questions ---- */

int zro__bucket_is_last(const zro__bucket *b)
{
    return b->index + 1 == b->cycle->n_buckets;
}

/* Updates that overlap with backward end in the last bucket, whatever that has. */
int zro__bucket_meets(const zro__bucket *b)
{
    return b->cycle->hook != NULL || b->to_all != NULL || b->to_owners != NULL || b->shares != NULL;
}

int zro__bucket_has_work(const zro__bucket *b)
{
    return zro__bucket_meets(b) || (b->cycle->overlaps && zro__bucket_is_last(b));
}

int zro__bucket_merges(const zro__bucket *b, const zro__updater *u)
{
    const zro__cycle *c = b->cycle;
    const zro__event update = zro__cycle_row(c, u)->update;
    const int at_last = update == ZRO__AT_LAST && zro__bucket_is_last(b) && !zro__updater_measures_first(u);

    return (update == ZRO__AT_BUCKET || at_last) && c->hook == NULL && c->group->ranks.fast == ZRO_ON
           && u->update.shard.rule->whole == ZRO_OFF;
}

/* ---- lists ---- */

void zro__lists_free(zro__cycle *c)
{
    for (size_t k = 0; k < c->n_buckets; k++) {
        zro__bucket *b = &c->buckets[k];

        zro__batches_free(b->to_all);
        zro__batches_free(b->to_owners);
        for (zro__share *s = b->shares; s != NULL; s = s->next) {
            zro__batches_free(s->fused);
            zro__batches_free(s->publish);
        }
        b->to_all = b->to_owners = NULL;
        b->shares = NULL;
    }
    zro__arena_free(&c->shares);
}

/* Ranges of parameters and their owners, while lists are made. */
typedef struct owners {
    zro__staged_ranges by_param; /* of parameters that attached updaters consume */
    zro__updater **updater;      /* by parameter: who consumes it, or NULL */
    size_t *numbers;             /* by parameter: its index in its optimizer */
    size_t *index;               /* of a bucket: what no updater consumes */
    zro_range *cut;              /* the same, cut evenly; or the ranges of a share */
    zro__owned *owned;           /* of one list */
    zro__share *share;           /* the next one */
    zro__arena arena;
} owners;

/* Goes through the ranges of each attached updater: twice, once to count and once to fill in, which moves first[p + 1] from where
 * the ranges of p begin to where they end. */
static void list_ranges(const zro__cycle *c, owners *o, int counts)
{
    for (zro__updater *u = c->updaters; u != NULL; u = u->next)
        for (const zro__batches *l = u->average; l != NULL; l = l->next)
            for (size_t k = 0; k < l->n; k++)
                for (size_t i = 0; i < l->list[k].n_parts; i++) {
                    const zro__batch_item *item = &l->list[k].items[i];
                    const zro__part *part = &l->list[k].parts[i];
                    const size_t p = zro__cycle_index(c, item->param);

                    o->updater[p] = u;
                    o->numbers[p] = item->index;
                    if (counts)
                        o->by_param.first[p + 2]++;
                    else
                        o->by_param.ranges[o->by_param.first[p + 1]++] =
                            (zro_range){ .param = p, .first = item->first, .count = part->count, .owner = part->owner };
                }
}

static zro_status find_owners(zro__cycle *c, owners *o)
{
    const size_t n = c->n_params, ranks = (size_t)c->group->ranks.board.size;
    size_t total = 0, n_updaters = 0;
    zro_status st;

    for (zro__updater *u = c->updaters; u != NULL; u = u->next, n_updaters++)
        for (const zro__batches *l = u->average; l != NULL; l = l->next)
            total += zro__batches_count(l);
    st = zro__arena_arrays(&o->by_param.arena, c->account, "who owns the parameters of a ddp",
                           (const zro__array[]){ { &o->by_param.first, n + 2, sizeof *o->by_param.first },
                                                 { &o->by_param.ranges, total, sizeof *o->by_param.ranges } },
                           2);
    if (st == ZRO_OK)
        st = zro__arena_arrays(&o->arena, c->account, "who owns the parameters of a ddp",
                               (const zro__array[]){ { &o->updater, n, sizeof *o->updater },
                                                     { &o->numbers, n, sizeof *o->numbers },
                                                     { &o->index, n, sizeof *o->index },
                                                     { &o->cut, total + n + ranks, sizeof *o->cut },
                                                     { &o->owned, total + n + ranks, sizeof *o->owned } },
                               5);
    if (st == ZRO_OK)
        st = zro__arena_arrays(&c->shares, c->account, "what is updated in buckets",
                               (const zro__array[]){ { &o->share, c->n_buckets * n_updaters, sizeof *o->share } }, 1);
    if (st != ZRO_OK)
        return st;
    list_ranges(c, o, 1);
    for (size_t i = 0; i < n; i++)
        o->by_param.first[i + 2] += o->by_param.first[i + 1];
    list_ranges(c, o, 0);
    return ZRO_OK;
}

/* What no updater consumes, cut evenly over the ranks. */
static size_t list_even(const zro__cycle *c, const zro__bucket *b, owners *o)
{
    size_t n = 0;

    for (size_t i = 0; i < b->n; i++)
        if (o->updater[b->params[i]] == NULL)
            o->index[n++] = b->params[i];
    n = zro__cut_ranges(c->params, o->index, n, c->group->ranks.board.size, o->cut);
    for (size_t i = 0; i < n; i++)
        o->owned[i] = (zro__owned){ &c->params[o->cut[i].param], c->names[o->cut[i].param], &o->cut[i] };
    return n;
}

/* What is reduced for owners, without being updated in the same pass. */
static size_t list_owned(const zro__cycle *c, const zro__bucket *b, owners *o)
{
    size_t n = 0;

    for (size_t i = 0; i < b->n; i++) {
        const size_t p = b->params[i];
        const zro__updater *u = o->updater[p];

        if (u == NULL || zro__cycle_row(c, u)->reduce != ZRO__AT_BUCKET || zro__bucket_merges(b, u))
            continue;
        for (size_t r = o->by_param.first[p]; r < o->by_param.first[p + 1]; r++)
            o->owned[n++] = (zro__owned){ &c->params[p], c->names[p], &o->by_param.ranges[r] };
    }
    return n;
}

/* What an updater has of a bucket, by the parameters' indices in its optimizer. */
static size_t list_share(const zro__cycle *c, const zro__bucket *b, const zro__updater *u, owners *o)
{
    size_t n = 0;

    for (size_t i = 0; i < b->n; i++) {
        const size_t p = b->params[i];

        for (size_t r = o->by_param.first[p]; o->updater[p] == u && r < o->by_param.first[p + 1]; r++, n++) {
            o->cut[n] = o->by_param.ranges[r];
            o->cut[n].param = o->numbers[p];
            o->owned[n] = (zro__owned){ &c->params[p], c->names[p], &o->cut[n] };
        }
    }
    return n;
}

/* lends: peers read staged gradients, as in every transfer of what an updater consumes. */
static zro_status make_list(zro__cycle *c, const owners *o, zro__side from, zro__side to, size_t n, int lends,
                            zro__batches **out)
{
    zro_status st = zro__batches_make(c->group, c->account, from, to, o->owned, n, out);

    if (st == ZRO_OK && lends)
        st = zro__batches_lend(*out, c->account, c->staging);
    return zro__batches_compare(c->group, *out, ZRO__CALL_DDP_FORWARD, st);
}

static zro_status make_share(zro__cycle *c, zro__bucket *b, zro__updater *u, owners *o)
{
    const size_t n = list_share(c, b, u, o);
    zro__share *s = o->share++;
    zro_status st;

    if (n == 0)
        return ZRO_OK;
    *s = (zro__share){ .next = b->shares, .updater = u };
    b->shares = s;
    st = make_list(c, o, ZRO__GRADS, ZRO__DATA, n, 1, &s->fused);
    return st == ZRO_OK ? make_list(c, o, ZRO__DATA, ZRO__DATA, n, 0, &s->publish) : st;
}

static zro_status make_of_bucket(zro__cycle *c, zro__bucket *b, owners *o)
{
    size_t n = c->hook == NULL ? list_even(c, b, o) : 0; /* a hook reduces everything */
    zro_status st = ZRO_OK;

    if (n > 0)
        st = make_list(c, o, ZRO__GRADS, ZRO__GRADS, n, 0, &b->to_all);
    n = c->hook == NULL ? list_owned(c, b, o) : 0;
    if (st == ZRO_OK && n > 0)
        st = make_list(c, o, ZRO__GRADS, ZRO__GRADS, n, 1, &b->to_owners);
    for (zro__updater *u = c->updaters; st == ZRO_OK && u != NULL; u = u->next)
        if (zro__updater_overlaps(u) && !zro__updater_measures_first(u))
            st = make_share(c, b, u, o);
    return st;
}

zro_status zro__lists_make(zro__cycle *c)
{
    owners o = { 0 };
    zro_status st;

    zro__lists_free(c);
    st = find_owners(c, &o);
    c->overlaps = 0;
    for (const zro__updater *u = c->updaters; u != NULL; u = u->next) {
        c->overlaps |= zro__updater_overlaps(u);
        if (st == ZRO_OK)
            st = zro__batches_lend(u->average, c->account, c->staging);
        if (st == ZRO_OK)
            st = zro__batches_lend(u->fused, c->account, c->staging);
    }
    st = zro__cycle_vote(c, ZRO__CALL_DDP_FORWARD, st);
    for (size_t k = 0; st == ZRO_OK && k < c->n_buckets; k++)
        st = make_of_bucket(c, &c->buckets[k], &o);
    if (st == ZRO_OK && c->staging != NULL)
        zro__staging_own(c->staging, &o.by_param);
    zro__arena_free(&o.by_param.arena);
    zro__arena_free(&o.arena);
    c->stale = st != ZRO_OK;
    return st;
}
