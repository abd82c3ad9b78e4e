/* Votes: see vote.h.  A vote is one operation of the board, whose payload is the ballot. */
#include "board/vote.h"

#include <stdio.h>
#include <string.h>

#include "board/blame.h"

enum { BALLOT_VOTE = 1, BALLOT_AGREE = 2, BALLOT_NUMBER = 3 }; /* tags of headers: ranks that vote differently are told apart */

/* A ballot is the payload of an arrival: the error text and the description, both ended by a zero byte, then the number.  The status of a
 * rank that fails stands in its header, as that of any rank that refuses an operation. */
enum { DESCRIPTION_BYTES = 4096 };

_Static_assert(ZRO__TEXT_BYTES + DESCRIPTION_BYTES + sizeof(uint64_t) <= ZRO__PAYLOAD_BYTES, "a ballot is a payload");

static const char *description_of(const char *ballot)
{
    return ballot + strlen(ballot) + 1;
}

static uint64_t number_of(const char *ballot)
{
    const char *description = description_of(ballot);
    uint64_t number;

    memcpy(&number, description + strlen(description) + 1, sizeof number);
    return number;
}

static zro_status cast_ballots(zro__board *board, zro__call call, uint64_t tag, zro_status mine, const char *description,
                               uint64_t number)
{
    zro__header header = { .call = (uint8_t)call, .dtype = ZRO__HEADER_NO_DTYPE, .root = -1, .tag = tag };
    char *ballot = zro__payload(board), *end;
    zro_status st = zro__verdict_get(board->control);

    if (st != ZRO_OK) /* peers may still read the payload that this rank wrote two operations ago */
        return st;
    if (mine != ZRO_OK) {
        header.flags = ZRO__HEADER_REFUSES;
        header.weight = (double)mine;
    }
    snprintf(ballot, ZRO__TEXT_BYTES, "%s", mine == ZRO_OK ? "" : zro_last_error());
    end = ballot + strlen(ballot) + 1;
    snprintf(end, DESCRIPTION_BYTES, "%s", description);
    end += strlen(end) + 1;
    memcpy(end, &number, sizeof number);
    st = zro__arrive(board, &header, (size_t)(end - ballot) + sizeof number);
    return st != ZRO_OK ? st : zro__gather_arrivals(board, 0);
}

/* After cast_ballots: what the lowest failing rank says. */
static zro_status count_ballots(zro__board *board, zro_status mine)
{
    char name[64];

    for (int r = 0; r < board->size; r++) {
        const zro_status code = zro__refusal_of(board, r);

        if (code == ZRO_OK)
            continue;
        if (mine != ZRO_OK) /* a failing rank keeps its own status; its text stands in its own ballot */
            return zro__fail(mine, "%s", (const char *)zro__payload_of(board, board->rank));
        return zro__fail(code == ZRO_ERR_MISMATCH ? ZRO_ERR_MISMATCH : ZRO_ERR_PEER, "%s: %s: %s",
                         zro__rank_name(board, r, name, sizeof name), zro_status_name(code),
                         (const char *)zro__payload_of(board, r));
    }
    return ZRO_OK;
}

zro_status zro__vote(zro__board *board, zro__call call, zro_status mine)
{
    zro_status st = cast_ballots(board, call, BALLOT_VOTE, mine, "", 0);

    return st != ZRO_OK ? st : count_ballots(board, mine);
}

/* Where a description differs from another: the item, ended by a comma, in which the difference is, and all after it; before
 * that the description's heading, which ends with a colon, if it has one. */
static const char *difference(const char *mine, const char *other, char *text, size_t bytes)
{
    const char *colon = strchr(mine, ':');
    size_t same = 0, from = 0;

    while (mine[same] != '\0' && mine[same] == other[same])
        same++;
    for (size_t i = 0; i + 1 < same; i++)
        from = mine[i] == ',' && mine[i + 1] == ' ' ? i + 2 : from;
    if (colon != NULL && (size_t)(colon - mine) < from)
        snprintf(text, bytes, "%.*s: %.200s", (int)(colon - mine < 150 ? colon - mine : 150), mine, mine + from);
    else
        snprintf(text, bytes, "%.300s", mine + from);
    return text;
}

zro_status zro__agree(zro__board *board, zro__call call, const char *what, const char *description, uint64_t *number,
                      zro_status mine)
{
    const char *first, *other;
    char name[64], zero[64], left[400], right[400];
    zro_status st = cast_ballots(board, call, BALLOT_AGREE, mine, description, *number);

    if (st == ZRO_OK)
        st = count_ballots(board, mine);
    if (st != ZRO_OK)
        return st;
    *number = number_of(zro__payload_of(board, zro__first_near(board)));
    first = description_of(zro__payload_of(board, 0));
    for (int r = 1; r < board->size; r++) {
        other = description_of(zro__payload_of(board, r));
        if (strcmp(first, other) != 0)
            return zro__fail(ZRO_ERR_MISMATCH, "%s differ: %s has %s; %s has %s", what,
                             zro__rank_name(board, 0, zero, sizeof zero), difference(first, other, left, sizeof left),
                             zro__rank_name(board, r, name, sizeof name), difference(other, first, right, sizeof right));
    }
    return ZRO_OK;
}

zro_status zro__is_same(zro__board *board, zro__call call, uint64_t number, int *same)
{
    zro_status st = cast_ballots(board, call, BALLOT_NUMBER, ZRO_OK, "", number);

    *same = st == ZRO_OK;
    for (int r = 0; r < board->size && *same; r++)
        *same = number_of(zro__payload_of(board, r)) == number;
    return st;
}
