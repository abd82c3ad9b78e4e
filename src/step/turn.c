/* Turns: see turn.h. */
#include "step/turn.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/hash.h"
#include "base/status.h"
#include "group/group.h"
#include "step/cycle.h"

static const char *const names[] = { "nothing, it has run out of inputs",
                                     "ddp_forward",
                                     "ddp_average",
                                     "optim_step",
                                     "optim_step_closure",
                                     "optim_step_local",
                                     "optim_publish",
                                     "clip_grad_norm",
                                     "optim_grad_norm",
                                     "clip_grad_value",
                                     "join_notify",
                                     "nothing, it refuses the iteration",
                                     "a call in which all ranks must take part" };

static void describe(const zro__turn *t, char *text, size_t bytes)
{
    char which[40] = "";

    if (t->updater >= 0)
        snprintf(which, sizeof which, ", attached optimizer %d", (int)t->updater);
    snprintf(text, bytes, "%s%s (joinable %d%s)", names[t->deed], t->deed == ZRO__FORWARD && !t->syncs ? " under no_sync" : "",
             (int)t->joinable, which);
}

static int is_same(const zro__turn *a, const zro__turn *b)
{
    return a->deed == b->deed && a->joinable == b->joinable && a->updater == b->updater && a->syncs == b->syncs;
}

/* What the ranks have said in a turn. */
typedef struct answers {
    int odd;     /* the first active rank that is about to do something else than the lowest; -1: there is none */
    int refusal; /* the lowest rank that refuses; -1: none does */
    int alike;   /* all have the same attached optimizers */
} answers;

/* Finds that, and who is active. */
static answers look(zro__join *j)
{
    const zro__board *board = &j->group->ranks.board;
    int n = 0, lowest = 0, highest = 0;
    answers a = { -1, -1, 1 };

    for (int r = 0; r < board->size; r++) {
        a.alike &= j->turns[r].attached == j->turns[0].attached;
        if (j->turns[r].deed == ZRO__RAN_OUT)
            continue;
        lowest = n++ == 0 ? r : lowest;
        highest = r;
        if (a.odd < 0 && !is_same(&j->turns[r], &j->turns[lowest]))
            a.odd = r;
        if (a.refusal < 0 && j->turns[r].deed == ZRO__REFUSE)
            a.refusal = r;
    }
    j->n_active = n;
    if (n == 0)
        return a;
    j->lowest = lowest;
    j->highest = highest;
    j->is_active = j->turns[board->rank].deed != ZRO__RAN_OUT;
    return a;
}

static zro_status disagree(const zro__join *j, int odd)
{
    const zro__board *board = &j->group->ranks.board;
    char a[64], b[64], mine[160], theirs[160];

    describe(&j->turns[j->lowest], mine, sizeof mine);
    describe(&j->turns[odd], theirs, sizeof theirs);
    return zro__fail(
        ZRO_ERR_MISMATCH,
        "ranks under a join make different calls: %s %s, %s %s; all ranks that have inputs must make the same calls "
        "in the same order",
        zro__rank_name(board, j->lowest, a, sizeof a), mine, zro__rank_name(board, odd, b, sizeof b), theirs);
}

/* The lowest rank that has run out. */
static const char *name_shadow(const zro__join *j, char *name, size_t bytes)
{
    int rank = 0;

    while (j->turns[rank].deed != ZRO__RAN_OUT)
        rank++;
    return zro__rank_name(&j->group->ranks.board, rank, name, bytes);
}

static zro_status end_early(zro__join *j)
{
    char name[64];

    j->is_under_way = 0;
    return zro__fail(ZRO_ERR_STATE,
                     "%s has run out of inputs after %" PRIu64
                     " iterations, and others have not; throw_on_early_termination ends "
                     "all ranks then",
                     name_shadow(j, name, sizeof name), j->n_begun);
}

static int begins_iteration(const zro__turn *t)
{
    const int begins = t->deed == ZRO__FORWARD || t->deed == ZRO__STEP || t->deed == ZRO__STEP_LOCAL || t->deed == ZRO__NOTIFY;

    return begins && t->joinable == 0 && t->updater < 0;
}

/* A rank that has run out does a whole iteration at once, and comes to the next turn when all its gradients have travelled. */
static zro_status check_between(const zro__join *j)
{
    for (size_t i = 0; !j->follows && i < j->n; i++)
        if (j->cycles[i] != NULL && j->cycles[i]->now.is_open && j->cycles[i]->now.syncs)
            return zro__fail(ZRO_ERR_STATE,
                             "under a join this call cannot be made in the middle of an iteration (of joinable %zu), because "
                             "ranks that have run out of inputs cannot follow it: make it before zro_ddp_forward, or after "
                             "zro_ddp_backward_end",
                             i);
    return ZRO_OK;
}

/* ---- attached optimizers ---- */

static uint64_t hash_attached(const zro__join *j)
{
    uint64_t hash = ZRO__HASH_START;

    for (size_t i = 0; i < j->n; i++)
        for (const zro__updater *u = j->cycles[i] != NULL ? j->cycles[i]->updaters : NULL; u != NULL; u = u->next)
            hash = zro__hash_word(hash, (uint64_t)i << 32 | (uint32_t)u->number);
    return hash;
}

/* How many optimizers have been attached to a joinable, whether they are alive or not. */
static size_t count_attached(const zro__join *j, size_t joinable)
{
    return j->cycles[joinable] != NULL ? (size_t)j->cycles[joinable]->n_attached : 0;
}

/* The i-th of those of all joinables. */
static void describe_attached(const void *user, size_t i, char *text, size_t bytes)
{
    const zro__join *j = user;
    size_t at = 0;

    for (; i >= count_attached(j, at); at++)
        i -= count_attached(j, at);
    snprintf(text, bytes, "%sattached optimizer %zu of joinable %zu",
             zro__cycle_find(j->cycles[at], (int32_t)i) != NULL ? "" : "destroyed ", i, at);
}

/* All ranks have seen that their hashes differ, and find the optimizer. */
static zro_status compare_attached(zro__join *j)
{
    zro__claim claim = {
        .what = "under a join attached optimizers must be destroyed on all ranks alike, or after zro_join_run, and "
                "they",
        .hash = hash_attached(j),
        .describe = describe_attached,
        .user = j,
        .otherwise = "different optimizers are attached to the ddps of a join on different ranks"
    };
    zro_status st = zro__enter(j->group);

    for (size_t i = 0; i < j->n; i++)
        claim.n += count_attached(j, i);
    return st == ZRO_OK ? zro__leave(j->group, zro__claim_agree(&j->group->ranks.board, ZRO__CALL_JOIN, &claim, ZRO_OK)) : st;
}

/* ---- turns ---- */

static zro_status vote(zro__join *j, zro_status st)
{
    zro_status entered = zro__enter(j->group);

    return entered == ZRO_OK ? zro__leave(j->group, zro__vote(&j->group->ranks.board, ZRO__CALL_JOIN, st)) : entered;
}

/* `st`: what this rank refuses with, or OK. */
static zro_status turn(zro__join *j, zro__turn mine, zro_status st, zro__turn *out)
{
    char why[ZRO__TEXT_BYTES], name[64];
    zro_status met;
    answers a;

    snprintf(why, sizeof why, "%s", st != ZRO_OK ? zro_last_error() : "");
    mine.attached = hash_attached(j);
    met = zro__all_gather_as(j->group, ZRO__CALL_JOIN, &mine, j->turns, sizeof mine, ZRO_U8);
    if (met != ZRO_OK)
        return met;
    a = look(j);
    *out = j->turns[a.refusal >= 0 ? a.refusal : j->lowest];
    j->is_under_way |= out->deed != ZRO__OTHER;
    if (a.refusal >= 0)
        return vote(j, st == ZRO_OK ? ZRO_OK : zro__fail(st, "%s", why));
    if (!a.alike)
        return compare_attached(j);
    if (j->n_active == 0)
        return ZRO_OK;
    if (a.odd >= 0)
        return disagree(j, a.odd);
    if (zro__join_has_shadows(j) && j->throws)
        return end_early(j);
    if (begins_iteration(out)) {
        j->n_begun++;
        j->n_shadowed += !j->is_active;
    }
    if (out->deed == ZRO__OTHER && zro__join_has_shadows(j) && j->is_active)
        return zro__fail(ZRO_ERR_STATE,
                         "%s has run out of inputs, and this call needs all ranks: make it before the loop, or after "
                         "zro_join_run",
                         name_shadow(j, name, sizeof name));
    return ZRO_OK;
}

zro_status zro__join_turn(zro__join *j, const zro__turn *mine, zro__turn *out)
{
    zro_status st = check_between(j);

    return st == ZRO_OK ? turn(j, *mine, ZRO_OK, out) : st;
}

zro_status zro__join_refuse(zro__join *j, int32_t joinable, zro_status st)
{
    const zro__turn mine = { .deed = ZRO__REFUSE, .joinable = joinable, .updater = -1 };
    zro__turn out;

    return turn(j, mine, st, &out);
}

int zro__join_has_shadows(const zro__join *j)
{
    return j->n_active < j->group->ranks.board.size;
}
