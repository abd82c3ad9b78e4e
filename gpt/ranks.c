/* Agreement of ranks: see ranks.h.  Rank 0 tells what it has, every rank compares, and a vote ends all if one differs. */
#include "ranks.h"

#include <stdlib.h>
#include <string.h>

zro_status gpt_vote(zro_group *group, zro_status mine)
{
    int rank = zro_group_rank(group), size = zro_group_size(group);
    int32_t lowest = mine != ZRO_OK ? rank : size;
    zro_status st = zro_all_reduce(group, &lowest, 1, ZRO_I32, ZRO_MIN);

    if (st != ZRO_OK)
        return mine != ZRO_OK ? mine : st;
    if (lowest == rank)
        return mine;
    return lowest < size ? gpt_fail(ZRO_ERR_PEER, "rank %d failed", lowest) : ZRO_OK;
}

/* The lines of gpt_options_lines; free() them. */
static zro_status make_lines(const gpt_options *o, char **lines)
{
    size_t length;
    FILE *f = open_memstream(lines, &length);

    if (f != NULL) {
        gpt_options_lines(o, f);
        if (fclose(f) == 0)
            return ZRO_OK;
        free(*lines);
    }
    *lines = NULL;
    return gpt_fail(ZRO_ERR_MEMORY, "out of memory: the list of options");
}

static zro_status compare_lines(const char *first, const char *mine, int rank)
{
    while (*first != '\0' && *mine != '\0') {
        int a = (int)strcspn(first, "\n"), b = (int)strcspn(mine, "\n"), name = (int)strcspn(mine, " ");

        if (a != b || memcmp(first, mine, (size_t)a) != 0)
            return gpt_fail(ZRO_ERR_MISMATCH,
                            "%.*s is %.*s on rank 0, but %.*s on rank %d: start all ranks with the same options", name, mine,
                            a - name - 1, first + name + 1, b - name - 1, mine + name + 1, rank);
        first += a + 1;
        mine += b + 1;
    }
    return ZRO_OK;
}

zro_status gpt_same_options(zro_group *group, const gpt_options *o)
{
    char *mine = NULL;
    void *first = NULL;
    size_t bytes;
    zro_status st = gpt_vote(group, make_lines(o, &mine));

    if (st == ZRO_OK)
        st = zro_broadcast_bytes(group, mine, strlen(mine) + 1, 0, &first, &bytes);
    if (st == ZRO_OK)
        st = gpt_vote(group, compare_lines(first, mine, zro_group_rank(group)));
    zro_bytes_free(first);
    free(mine);
    return st;
}

zro_status gpt_same_data(zro_group *group, const gpt_data *data)
{
    int64_t mine[2] = { (int64_t)data->count }, first[2];
    int rank = zro_group_rank(group);
    zro_status st;

    if (zro_group_size(group) == 1)
        return ZRO_OK;
    mine[1] = (int64_t)gpt_data_hash(data);
    memcpy(first, mine, sizeof first);
    st = zro_broadcast(group, first, 2, ZRO_I64, 0);
    if (st != ZRO_OK)
        return st;
    if (first[0] != mine[0])
        st = gpt_fail(ZRO_ERR_MISMATCH,
                      "--data has %lld tokens on rank 0, but %lld on rank %d (%s): give all ranks the same data",
                      (long long)first[0], (long long)mine[0], rank, data->name);
    else if (first[1] != mine[1])
        st = gpt_fail(
            ZRO_ERR_MISMATCH,
            "--data has %lld tokens on rank 0 and on rank %d (%s), but not the same ones: give all ranks the same data",
            (long long)first[0], rank, data->name);
    return gpt_vote(group, st);
}
