/* Blame: see blame.h. */
#include "board/blame.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "board/meet.h"

enum { NAME_BYTES = 64, OPERATION_BYTES = 160, TOLD = 3 /* missing ranks of which a text says what they do */ };

/* ---- words ---- */

static const char *const call_names[ZRO__CALL_COUNT] = {
    [ZRO__CALL_NONE] = "nothing",
    [ZRO__CALL_CREATE] = "group_create",
    [ZRO__CALL_MEMORY] = "memory_alloc",
    [ZRO__CALL_BARRIER] = "barrier",
    [ZRO__CALL_ALL_REDUCE] = "all_reduce",
    [ZRO__CALL_REDUCE] = "reduce",
    [ZRO__CALL_REDUCE_SCATTER] = "reduce_scatter",
    [ZRO__CALL_BROADCAST] = "broadcast",
    [ZRO__CALL_BROADCAST_BYTES] = "broadcast_bytes",
    [ZRO__CALL_GATHER] = "gather",
    [ZRO__CALL_ALL_GATHER] = "all_gather",
    [ZRO__CALL_STOP_REQUESTED] = "stop_requested",
    [ZRO__CALL_TRANSFER] = "transfer",
    [ZRO__CALL_PARAMS_ALLOC] = "params_alloc",
    [ZRO__CALL_PARAMS_ALL_REDUCE] = "params_all_reduce",
    [ZRO__CALL_OPTIM_CREATE] = "optim_create",
    [ZRO__CALL_ADD_PARAM_GROUP] = "optim_add_param_group",
    [ZRO__CALL_STEP] = "optim_step",
    [ZRO__CALL_NORM] = "norm of gradients",
    [ZRO__CALL_PUBLISH] = "optim_publish",
    [ZRO__CALL_CONSOLIDATE] = "optim_consolidate",
    [ZRO__CALL_LOAD] = "optim_load",
    [ZRO__CALL_DDP_CREATE] = "ddp_create",
    [ZRO__CALL_DDP_FORWARD] = "ddp_forward",
    [ZRO__CALL_DDP_BUCKET] = "a bucket of a ddp",
    [ZRO__CALL_DDP_AVERAGE] = "ddp_average",
    [ZRO__CALL_DDP_CHECK] = "ddp_check",
    [ZRO__CALL_JOIN] = "a turn of a join",
    [ZRO__CALL_SAVE] = "optim_save",
    [ZRO__CALL_RESUME] = "optim_resume",
};

static const char *const op_names[] = { [ZRO_SUM] = "sum", [ZRO_AVG] = "avg", [ZRO_MIN] = "min", [ZRO_MAX] = "max" };

const char *zro__call_name(zro__call call)
{
    return call_names[call];
}

const char *zro__header_text(const zro__header *h, char *text, size_t bytes)
{
    const char *type = zro_dtype_name((zro_dtype)h->dtype);
    int reduces = h->call == ZRO__CALL_ALL_REDUCE || h->call == ZRO__CALL_REDUCE || h->call == ZRO__CALL_REDUCE_SCATTER;
    int n = 0;

    if (h->number == 0)
        return "nothing yet";
    n = snprintf(text, bytes, "operation %" PRIu64 ": %s", h->number, h->call < ZRO__CALL_COUNT ? call_names[h->call] : "?");
    if (h->handle != 0 && n > 0 && (size_t)n < bytes)
        n += snprintf(text + n, bytes - (size_t)n, " (attached optimizer %d)", h->handle - 1);
    if (type != NULL && h->call >= ZRO__CALL_ALL_REDUCE && h->call != ZRO__CALL_STOP_REQUESTED && n > 0 && (size_t)n < bytes)
        n += snprintf(text + n, bytes - (size_t)n, " of %" PRIu64 " %s%s%s", h->count, type, reduces ? ", " : "",
                      reduces && h->op <= ZRO_MAX ? op_names[h->op] : "");
    if (h->root >= 0 && n > 0 && (size_t)n < bytes)
        snprintf(text + n, bytes - (size_t)n, ", root %d", (int)h->root);
    return text;
}

const char *zro__rank_name(const zro__board *board, int rank, char *text, size_t bytes)
{
    int label = board->control->member[rank];

    if (label == rank)
        snprintf(text, bytes, "rank %d", rank);
    else
        snprintf(text, bytes, "rank %d (%d of the first group)", rank, label);
    return text;
}

/* Of a far rank there is no ring, but nobody writes its mirror while this rank makes up a text. */
static const zro__header *last_header_of(const zro__board *board, int rank)
{
    uint64_t number = zro__arrived_of(board, rank);

    return zro__is_near(board, rank) ? &zro__slot_of(board, rank)->ring[number % ZRO__RING]
                                     : &zro__arrivals_of(board, rank)[number % 2].header;
}

/* ---- other groups ---- */

/* The rank of this board with that number in the first group, or -1. */
static int find_label(const zro__board *board, int label)
{
    for (int r = 0; r < board->size; r++)
        if (board->control->member[r] == label)
            return r;
    return -1;
}

/* Says in which other group `rank` has begun an operation that this rank has not begun: that is where it waits.  1 if there is
 * one. */
static int tell_elsewhere(const zro__board *board, int rank, char *text, size_t bytes)
{
    char name[NAME_BYTES], what[OPERATION_BYTES];
    int found = 0;

    if (board->boards == NULL)
        return 0;
    pthread_mutex_lock(&board->boards->lock);
    for (zro__board *other = board->boards->first; other != NULL && !found; other = other->next) {
        int there = find_label(other, board->control->member[rank]);

        if (other->control == board->control || there < 0)
            continue;
        if (other->far != NULL) /* what it sent may have come, and nobody have looked */
            other->far->poller.poll(other->far->poller.self);
        found = zro__arrived_of(other, there) > zro__arrived_of(other, other->rank);
        if (found) {
            const zro__header *last = last_header_of(other, there), *mine = zro__header_of(board, board->rank);

            snprintf(text, bytes, "; %s called another group, which this rank is in too%s: %s",
                     zro__rank_name(board, rank, name, sizeof name),
                     last->call >= ZRO__CALL_OPTIM_CREATE   ? " (an optimizer's own)"
                     : mine->call >= ZRO__CALL_OPTIM_CREATE ? " (this one is an optimizer's own)"
                                                            : "",
                     zro__header_text(last, what, sizeof what));
        }
    }
    pthread_mutex_unlock(&board->boards->lock);
    return found;
}

/* "; its last was operation 3: barrier", or what it does elsewhere. */
static const char *what_it_does(const zro__board *board, int rank, char *text, size_t bytes)
{
    char name[NAME_BYTES], what[OPERATION_BYTES];

    if (!tell_elsewhere(board, rank, text, bytes))
        snprintf(text, bytes, "; the last of %s was %s", zro__rank_name(board, rank, name, sizeof name),
                 zro__header_text(last_header_of(board, rank), what, sizeof what));
    return text;
}

/* ---- verdicts ---- */

/* Which others are lost, too, as far as there is room.  A far rank that hears of a loss often ends because of it, and then its word of
 * that may not get through: so the first one that is found need not be the one with which it began. */
static const char *who_else(const zro__board *board, int rank, char *text, size_t bytes)
{
    char name[NAME_BYTES];

    text[0] = '\0';
    if (board->far != NULL) /* what happened before may be seen only now */
        board->far->poller.poll(board->far->poller.self);
    for (int r = 0, told = 0; r < board->size && told < TOLD; r++) {
        size_t at = strlen(text);

        if (r == rank || r == board->rank || zro__has_left(board, r) || zro__gone(board, r) == NULL)
            continue;
        snprintf(text + at, bytes - at, "; %s is lost, too", zro__rank_name(board, r, name, sizeof name));
        told++;
    }
    return text;
}

zro_status zro__blame_lost(zro__board *board, int rank, const char *why)
{
    char name[NAME_BYTES], others[TOLD * (NAME_BYTES + 16)], mine[OPERATION_BYTES], doing[2 * OPERATION_BYTES];

    zro__fail(ZRO_ERR_LOST, "%s %s%.300s%s; this was %s%s", zro__rank_name(board, rank, name, sizeof name),
              *why == '\0' ? "is gone" : "cannot be reached: ", why, who_else(board, rank, others, sizeof others),
              zro__header_text(zro__header_of(board, board->rank), mine, sizeof mine),
              what_it_does(board, rank, doing, sizeof doing));
    zro__meet_lost(board->meet, board->control->member[rank], *why == '\0');
    return zro__break(board, ZRO_ERR_LOST, rank);
}

zro_status zro__blame_deserted(zro__board *board, int rank)
{
    char name[NAME_BYTES], mine[OPERATION_BYTES], doing[2 * OPERATION_BYTES];

    zro__fail(ZRO_ERR_LOST, "%s has destroyed this group; this was %s%s", zro__rank_name(board, rank, name, sizeof name),
              zro__header_text(zro__header_of(board, board->rank), mine, sizeof mine),
              what_it_does(board, rank, doing, sizeof doing));
    zro__meet_lost(board->meet, board->control->member[rank], 0);
    return zro__break(board, ZRO_ERR_LOST, rank);
}

/* Appends the numbers of the ranks that have (not) arrived at this rank's operation; returns how many there are. */
static int list_ranks(const zro__board *board, int arrived, char *text, size_t bytes)
{
    size_t at = 0;
    int n = 0;

    text[0] = '\0';
    for (int r = 0; r < board->size; r++) {
        if ((zro__arrived_of(board, r) >= board->number) != arrived)
            continue;
        if (at + 16 < bytes)
            at += (size_t)snprintf(text + at, bytes - at, "%s%d", n == 0 ? "" : ", ", r);
        else if (at + 4 < bytes)
            at += (size_t)snprintf(text + at, bytes - at, " ...") + bytes;
        n++;
    }
    return n;
}

/* Who keeps everybody waiting: of a rank that has arrived, whoever that one waits for, and so on. */
static int find_culprit(const zro__board *board, int rank)
{
    for (int n = 0; n < board->size; n++) {
        int next = -1;

        if (zro__is_near(board, rank) && zro__arrived_of(board, rank) >= board->number)
            next = atomic_load_explicit(&zro__slot_of(board, rank)->waits_for, memory_order_relaxed) - 1;
        if (next < 0 || next >= board->size || next == board->rank)
            return rank;
        rank = next;
    }
    return rank;
}

/* What the culprit does, and what other missing ranks do elsewhere. */
static const char *what_they_do(const zro__board *board, int culprit, char *text, size_t bytes)
{
    size_t at = 0;

    (void)what_it_does(board, culprit, text, bytes);
    for (int r = 0, told = 1; r < board->size && told < TOLD; r++) {
        at += strlen(text + at);
        if (r != culprit && zro__arrived_of(board, r) < board->number)
            told += tell_elsewhere(board, r, text + at, bytes - at);
    }
    return text;
}

/* "rank 1", or "rank 1, for which rank 0 waits,". */
static const char *name_culprit(const zro__board *board, int culprit, int rank, char *text, size_t bytes)
{
    char name[NAME_BYTES], waiter[NAME_BYTES];

    zro__rank_name(board, culprit, name, sizeof name);
    if (culprit == rank)
        snprintf(text, bytes, "%s", name);
    else
        snprintf(text, bytes, "%s, for which %s waits,", name, zro__rank_name(board, rank, waiter, sizeof waiter));
    return text;
}

zro_status zro__blame_silent(zro__board *board, int rank)
{
    char name[2 * NAME_BYTES + 32], mine[OPERATION_BYTES], here[160], missing[160], doing[1200];
    int n_missing = list_ranks(board, 0, missing, sizeof missing), culprit = find_culprit(board, rank);

    list_ranks(board, 1, here, sizeof here);
    zro__fail(ZRO_ERR_TIMEOUT, "%s: no answer from %s within %" PRIu64 " ms; arrived: %s; missing: %s%s",
              zro__header_text(zro__header_of(board, board->rank), mine, sizeof mine),
              name_culprit(board, culprit, rank, name, sizeof name), board->timeout_ms, here,
              n_missing == 0 ? "none (it has not finished its part)" : missing,
              what_they_do(board, culprit, doing, sizeof doing));
    return zro__break(board, ZRO_ERR_TIMEOUT, culprit);
}

void zro__blame_warn(const zro__board *board, int rank, uint64_t waited_ms)
{
    char mine[OPERATION_BYTES], own[NAME_BYTES], name[2 * NAME_BYTES + 32], doing[1200];
    int culprit = find_culprit(board, rank);

    zro__log(board->settings, ZRO_LOG_WARN, "%s: %s has waited %" PRIu64 " ms for %s%s; it gives up after %" PRIu64 " ms",
             zro__rank_name(board, board->rank, own, sizeof own),
             zro__header_text(zro__header_of(board, board->rank), mine, sizeof mine), waited_ms,
             name_culprit(board, culprit, rank, name, sizeof name), what_they_do(board, culprit, doing, sizeof doing),
             board->timeout_ms);
}
