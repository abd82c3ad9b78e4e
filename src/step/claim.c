/* Claims: see claim.h. */
#include "step/claim.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/status.h"
#include "group/group.h"

enum { MOST_TEXTS = 1 << 30 };

/* The hash of the texts [first, end), as far as there are any. */
static uint64_t hash_texts(const void *user, size_t first, size_t end)
{
    const zro__claim *claim = user;
    uint64_t hash = ZRO__HASH_START;
    char text[ZRO__CLAIM_BYTES];

    for (size_t i = first; i < end && i < claim->n; i++) {
        text[0] = '\0';
        claim->describe(claim->user, i, text, sizeof text);
        hash = zro__hash(hash, text, strlen(text) + 1);
    }
    return hash;
}

/* The index of the first of n items that differs, or of the last one. */
static zro_status find_difference(zro__board *board, zro__call call, size_t n,
                                  uint64_t (*hash)(const void *user, size_t first, size_t end), const void *user, size_t *out)
{
    size_t first = 0, end = n;
    zro_status st = ZRO_OK;

    while (st == ZRO_OK && end - first > 1) {
        size_t middle = first + (end - first) / 2;
        int same = 0;

        st = zro__is_same(board, call, hash(user, first, middle), &same);
        first = same ? middle : first;
        end = same ? end : middle;
    }
    *out = first;
    return st;
}

zro_status zro__find_odd(zro_group *group, zro__call call, size_t n,
                         uint64_t (*hash)(const void *user, size_t first, size_t end), const void *user, size_t *item,
                         int32_t *odd)
{
    zro__board *board = &group->ranks.board;
    int64_t mine, first;
    int same;
    zro_status st = zro__is_same(board, call, hash(user, 0, n), &same);

    *odd = board->size;
    if (st != ZRO_OK || same)
        return st;
    st = find_difference(board, call, n, hash, user, item);
    mine = first = (int64_t)hash(user, *item, *item + 1);
    if (st == ZRO_OK)
        st = zro_broadcast(group, &first, 1, ZRO_I64, 0);
    *odd = mine == first ? board->size : board->rank;
    return st == ZRO_OK ? zro_all_reduce(group, odd, 1, ZRO_I32, ZRO_MIN) : st;
}

zro_status zro__claim_agree(zro__board *board, zro__call call, const zro__claim *claim, zro_status mine)
{
    char text[ZRO__CLAIM_BYTES];
    uint64_t number = 0;
    size_t i = 0;
    int same;
    zro_status st;

    snprintf(text, sizeof text, "%016" PRIx64, mine == ZRO_OK ? claim->hash : 0);
    st = zro__agree(board, call, "the ranks", text, &number, mine);
    if (st != ZRO_ERR_MISMATCH)
        return st;
    /* All ranks come here.  The MISMATCH may also be the failure of one rank, or the verdict of a broken group: then the next
     * vote fails in the same way. */
    st = zro__vote(board, call, mine);
    if (st == ZRO_OK)
        st = zro__is_same(board, call, claim->n, &same);
    if (st == ZRO_OK) /* where ranks have different numbers of texts, nobody knows the largest one */
        st = find_difference(board, call, same ? claim->n : (size_t)MOST_TEXTS, hash_texts, claim, &i);
    if (st != ZRO_OK)
        return st;
    text[0] = '\0';
    if (i < claim->n)
        claim->describe(claim->user, i, text, sizeof text);
    st = zro__agree(board, call, claim->what, text, &number, mine);
    return st != ZRO_OK ? st : zro__fail(ZRO_ERR_MISMATCH, "%s", claim->otherwise);
}

zro_status zro__claim_agree_texts(zro_group *group, zro__call call, zro__claim *claim, zro_status mine)
{
    zro_status st = zro__enter(group);

    if (st != ZRO_OK)
        return st;
    claim->hash = mine == ZRO_OK ? hash_texts(claim, 0, claim->n) : 0;
    return zro__leave(group, zro__claim_agree(&group->ranks.board, call, claim, mine));
}
