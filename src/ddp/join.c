/* Joins: training on inputs that end on some ranks before they end on others.
 *
 * What happens in a turn is step/turn.h's.  Here is the handle: the list of joinables, which all ranks have in the same order; the
 * loop of a rank that has run out, which follows the others until all have; and what all ranks do then.
 *
 * A rank that leaves in the middle does not let the others wait: it breaks the groups in which they may wait for it. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/bounds.h"
#include "base/log.h"
#include "base/point.h"
#include "base/settings.h"
#include "base/status.h"
#include "ddp/ddp.h"
#include "group/group.h"

enum { SKEW = 1000 }; /* iterations that a rank shadows before it says that the inputs are far from even */

struct zro_join {
    zro__join base;
    zro_join_config config;
    zro_joinable *list; /* copies of the program's */
    int said_skew;
    int is_doomed; /* a function that zro_join_run called has destroyed the join, which ends with that call */
    zro__arena arena;
};

ZRO__DEFINE_INIT(zro_joinable, ZRO_JOINABLE_INIT)
ZRO__DEFINE_INIT(zro_join_config, ZRO_JOIN_CONFIG_INIT)
ZRO__DEFINE_INIT(zro_join_info, ZRO_JOIN_INFO_INIT)

static const zro__joiner *joiner_of(const zro_joinable *j)
{
    return j->joiner;
}

/* ---- a ddp ---- */

static zro__cycle *cycle_of(void *handle)
{
    return ((zro_ddp *)handle)->cycle;
}

/* An updater that the others have, this rank has, too: the turn has compared them. */
static zro_status follow_ddp(void *handle, const zro__turn *turn)
{
    zro_ddp *d = handle;
    const zro__updater *u = zro__cycle_find(d->cycle, turn->updater);

    if (turn->deed == ZRO__FORWARD)
        return zro__ddp_shadow(d, turn->syncs);
    if (turn->deed == ZRO__AVERAGE)
        return zro_ddp_average(d);
    if (turn->deed == ZRO__OTHER)
        return ZRO_OK;
    assert(u != NULL);
    return u->joiner->follow(u->optim, turn);
}

static zro_status finish_ddp(void *handle, int root)
{
    zro_ddp *d = handle;
    zro_status st = zro__enter(d->group);

    if (st == ZRO_OK)
        st = zro__leave(d->group, zro__ddp_send_values(d, ZRO__CALL_JOIN, root));
    for (int32_t k = 0; st == ZRO_OK && k < d->cycle->n_attached; k++) {
        const zro__updater *u = zro__cycle_find(d->cycle, k);

        if (u != NULL)
            st = u->joiner->finish(u->optim, root);
    }
    return st;
}

static const zro__joiner ddp_joiner = { "ddp", cycle_of, follow_ddp, finish_ddp };

zro_status zro_ddp_joinable(zro_ddp *d, zro_joinable *out)
{
    zro_status st = zro__ddp_check(d, "ddp_joinable");

    if (st == ZRO_OK && out == NULL)
        st = zro__fail(ZRO_ERR_INVALID, "ddp_joinable: out is NULL");
    if (st != ZRO_OK)
        return st;
    zro_joinable_init(out);
    out->user = d;
    out->joiner = &ddp_joiner;
    return ZRO_OK;
}

/* ---- create ---- */

static int has_same_ranks(const zro_group *a, const zro_group *b)
{
    int same = zro_group_size(a) == zro_group_size(b);

    for (int r = 0; same && r < zro_group_size(a); r++)
        same = zro_group_label(a, r) == zro_group_label(b, r);
    return same;
}

static zro_status check_joinable(const zro_join *j, size_t i)
{
    const zro_joinable *it = &j->list[i];
    const zro__cycle *cycle = joiner_of(it) != NULL ? joiner_of(it)->cycle(it->user) : NULL;

    if (cycle == NULL && it->shadow == NULL)
        return zro__fail(ZRO_ERR_INVALID,
                         "join_create: joinable %zu has no function that shadows; fill it by zro_ddp_joinable or "
                         "zro_optim_joinable, or set `shadow`",
                         i);
    if (cycle != NULL && cycle->group != NULL && !has_same_ranks(cycle->group, j->base.group))
        return zro__fail(
            ZRO_ERR_INVALID,
            "join_create: joinable %zu, a%s %s, has other ranks than the join; pass the group that it was made with", i,
            joiner_of(it)->kind[0] == 'o' ? "n" : "", joiner_of(it)->kind);
    if (cycle != NULL && cycle->join != NULL)
        return zro__fail(ZRO_ERR_STATE, "join_create: joinable %zu, a%s %s, is in another join: destroy that one first", i,
                         joiner_of(it)->kind[0] == 'o' ? "n" : "", joiner_of(it)->kind);
    return ZRO_OK;
}

/* An attached optimizer is part of its ddp: whoever lists both lists that once. */
static zro_status check_attached(const zro_join *j, size_t i)
{
    int found = j->base.cycles[i] == NULL || j->base.cycles[i]->n_params == 0 || joiner_of(&j->list[i]) == &ddp_joiner;

    for (size_t k = 0; !found && k < j->base.n; k++)
        found = j->base.cycles[k] == j->base.cycles[i] && joiner_of(&j->list[k]) == &ddp_joiner;
    return found ? ZRO_OK
                 : zro__fail(ZRO_ERR_INVALID,
                             "join_create: joinable %zu is an optimizer that is attached to a ddp: list the ddp", i);
}

static zro_status check(const zro_join *j)
{
    const zro__bound bounds[] = {
        { "enable", (double)j->config.enable, 0, 1, ZRO__SWITCH },
        { "throw_on_early_termination", (double)j->config.throw_on_early_termination, 0, 1, ZRO__SWITCH },
    };
    zro_status st = zro__bounds_check("zro_join_config", bounds, sizeof bounds / sizeof *bounds);

    if (st == ZRO_OK && j->config.divide_by != ZRO_INITIAL_RANKS && j->config.divide_by != ZRO_REMAINING_RANKS)
        st = zro__fail(ZRO_ERR_INVALID, "zro_join_config: divide_by must be ZRO_INITIAL_RANKS or ZRO_REMAINING_RANKS");
    for (size_t i = 0; st == ZRO_OK && i < j->base.n; i++)
        st = check_joinable(j, i);
    return st;
}

static zro_status build(zro_join *j, const zro_joinable *list, size_t n, const zro_join_config *config)
{
    zro_status st;

    j->base.n = n;
    zro_join_config_init(&j->config);
    st = zro__config_take("zro_join_config", config, offsetof(zro_join_config, settings), &j->config, sizeof j->config);

    if (st == ZRO_OK)
        st = zro__arena_arrays(&j->arena, &j->base.group->seat->account, "a join",
                               (const zro__array[]){
                                   { &j->base.turns, (size_t)zro_group_size(j->base.group), sizeof *j->base.turns },
                                   { &j->list, j->base.n, sizeof *j->list },
                                   { &j->base.cycles, j->base.n, sizeof(zro__cycle *) },
                               },
                               3);
    if (st != ZRO_OK)
        return st;
    memcpy(j->list, list, j->base.n * sizeof *list);
    st = check(j);
    for (size_t i = 0; st == ZRO_OK && i < j->base.n; i++)
        if (joiner_of(&list[i]) != NULL) {
            j->base.cycles[i] = joiner_of(&list[i])->cycle(list[i].user);
            zro__cycle_retain(j->base.cycles[i]);
        }
    for (size_t i = 0; st == ZRO_OK && i < j->base.n; i++)
        st = check_attached(j, i);
    j->base.throws = j->config.throw_on_early_termination == ZRO_ON;
    j->base.divides_by_rest = j->config.divide_by == ZRO_REMAINING_RANKS;
    return st;
}

enum { SETTINGS = 4 };

/* The number of joinables, which must come first (claim.h), the settings, the joinables. */
static void describe(const void *user, size_t i, char *text, size_t bytes)
{
    const zro_join *j = user;
    const char *const on_off[] = { "off", "on" };

    if (i == 0)
        snprintf(text, bytes, "%zu joinables", j->base.n);
    else if (i == 1)
        snprintf(text, bytes, "enable %s", on_off[j->config.enable]);
    else if (i == 2)
        snprintf(text, bytes, "throw_on_early_termination %s", on_off[j->config.throw_on_early_termination]);
    else if (i == 3)
        snprintf(text, bytes, "divide_by the %s ranks", j->base.divides_by_rest ? "remaining" : "initial");
    else
        snprintf(text, bytes, "joinable %zu: %s", i - SETTINGS,
                 joiner_of(&j->list[i - SETTINGS]) != NULL ? joiner_of(&j->list[i - SETTINGS])->kind : "the program's own");
}

static zro_status agree(const zro_join *j, zro_status st)
{
    zro__claim claim = { .what = "the ranks' arguments of join_create",
                         .n = SETTINGS + j->base.n,
                         .describe = describe,
                         .user = j,
                         .otherwise = "the ranks' arguments of join_create differ" };

    return zro__claim_agree_texts(j->base.group, ZRO__CALL_JOIN, &claim, st);
}

/* All ranks are active.  Before there was a turn all of them are the last ones, too. */
static void begin(zro_join *j)
{
    const int size = zro_group_size(j->base.group);

    j->base.is_under_way = j->base.follows = 0;
    j->base.is_active = 1;
    j->base.n_active = size;
    j->base.lowest = 0;
    j->base.highest = size - 1;
    j->base.n_begun = j->base.n_shadowed = 0;
}

/* From now on the handles take turns.  Of several that share a cycle the first gives it its number. */
static void start(zro_join *j)
{
    begin(j);
    for (size_t i = 0; i < j->base.n && j->config.enable == ZRO_ON; i++)
        if (j->base.cycles[i] != NULL && j->base.cycles[i]->join == NULL) {
            j->base.cycles[i]->join = &j->base;
            j->base.cycles[i]->joinable = (int32_t)i;
        }
}

zro_status zro_join_create(zro_group *group, const zro_joinable *joinables, size_t n, const zro_join_config *config,
                           zro_join **out)
{
    zro_join none = { 0 }, *j = zro__alloc(NULL, ZRO__KIND_HANDLE, sizeof *j);
    zro_group *own = NULL;
    zro_status st = zro_group_duplicate(group, &own);

    if (out != NULL)
        *out = NULL;
    if (st != ZRO_OK) {
        zro__free(j);
        return st;
    }
    none.base.group = own;
    if (j != NULL)
        j->base.group = own;
    if (out == NULL)
        st = zro__fail(ZRO_ERR_INVALID, "join_create: out is NULL");
    else if (j == NULL)
        st = zro__fail(ZRO_ERR_MEMORY, "out of memory: a join");
    else if (joinables == NULL || n == 0)
        st = zro__fail(ZRO_ERR_INVALID, "join_create: there are no joinables");
    if (st == ZRO_OK)
        st = build(j, joinables, n, config);
    st = agree(j != NULL ? j : &none, st);
    if (st == ZRO_OK) {
        start(j);
        *out = j;
        return ZRO_OK;
    }
    if (j == NULL)
        zro_group_destroy(own);
    zro_join_destroy(j);
    return st;
}

/* ---- the end ---- */

/* The others wait for this rank in a turn or, where it has begun an iteration, in a bucket.  Nothing else is broken: they may still be
 * ending a step that this rank has ended. */
static void desert(zro_join *j)
{
    zro__board *board = &j->base.group->ranks.board;
    char name[64];

    for (size_t i = 0; i < j->base.n; i++)
        if (j->base.cycles[i] != NULL && !j->base.cycles[i]->is_closed && j->base.cycles[i]->group != NULL)
            zro__cycle_cancel(j->base.cycles[i], "its join");
    zro__fail(ZRO_ERR_LOST, "%s left a join before its end: it called zro_join_destroy before zro_join_run had returned",
              zro__rank_name(board, board->rank, name, sizeof name));
    (void)zro__break(board, ZRO_ERR_LOST, board->rank);
}

void zro_join_destroy(zro_join *j)
{
    zro__seat *seat;
    int is_alive;

    if (j == NULL)
        return;
    if (j->base.follows) { /* a function that run has called does this, and run needs the join when that returns */
        j->is_doomed = 1;
        return;
    }
    seat = j->base.group->seat;
    is_alive = zro__view_is_alive(seat->view);
    if (is_alive && j->base.is_under_way)
        desert(j);
    if (is_alive)
        zro__seat_retain(seat); /* its account counts what is freed here */
    for (size_t i = 0; j->base.cycles != NULL && i < j->base.n; i++) {
        if (j->base.cycles[i] != NULL && j->base.cycles[i]->join == &j->base)
            j->base.cycles[i]->join = NULL;
        zro__cycle_release(j->base.cycles[i]);
    }
    if (is_alive)
        zro_group_destroy(j->base.group);
    zro__arena_free(&j->arena);
    zro__free(j);
    if (is_alive)
        zro__seat_release(seat);
}

/* ---- what a program calls ---- */

static zro_status check_handle(const zro_join *j, const char *call)
{
    if (j == NULL)
        return zro__fail(ZRO_ERR_INVALID, "%s: the join is NULL", call);
    if (!zro__view_is_alive(j->base.group->seat->view))
        return zro__fail(ZRO_ERR_STATE, "%s: a child forked by a rank is not a rank", call);
    return ZRO_OK;
}

static zro_join_info info_of(const zro_join *j)
{
    return (zro_join_info){ .struct_size = sizeof(zro_join_info),
                            .iterations = j->base.n_begun,
                            .ranks = zro_group_size(j->base.group),
                            .n_active = j->base.n_active,
                            .lowest = j->base.lowest,
                            .highest = j->base.highest,
                            .is_active = j->base.is_active,
                            .divide_by = j->config.divide_by,
                            .settings = j->config.settings };
}

zro_status zro_join_get_info(const zro_join *j, zro_join_info *out)
{
    zro_status st = check_handle(j, "join_get_info");
    zro_join_info info;

    if (st != ZRO_OK)
        return st;
    info = info_of(j);
    return zro__config_give("zro_join_info: begin with ZRO_JOIN_INFO_INIT", &info, sizeof info, out);
}

zro_status zro_join_notify(zro_join *j, size_t joinable)
{
    zro__turn turn = { .deed = ZRO__NOTIFY, .joinable = (int32_t)joinable, .updater = -1 };
    zro_status st = check_handle(j, "join_notify");

    if (st == ZRO_OK && joinable >= j->base.n)
        st = zro__fail(ZRO_ERR_INVALID, "join_notify: there is no joinable %zu, only %zu of them", joinable, j->base.n);
    if (st == ZRO_OK && joiner_of(&j->list[joinable]) != NULL)
        st = zro__fail(ZRO_ERR_STATE, "join_notify: joinable %zu is the library's %s, which notifies by itself", joinable,
                       joiner_of(&j->list[joinable])->kind);
    if (st != ZRO_OK || j->config.enable == ZRO_OFF || j->base.follows)
        return st;
    return zro__join_turn(&j->base, &turn, &turn);
}

/* Who acts for a handle: the ddp, for an optimizer that is attached to it, wherever in the list each of them stands. */
static const zro_joinable *actor_of(const zro_join *j, size_t i)
{
    for (size_t k = 0; j->base.cycles[i] != NULL && k < j->base.n; k++)
        if (j->base.cycles[k] == j->base.cycles[i] && joiner_of(&j->list[k]) == &ddp_joiner)
            return &j->list[k];
    return &j->list[i];
}

static zro_status follow(zro_join *j, const zro__turn *turn)
{
    const size_t i = (size_t)turn->joinable;
    const zro_joinable *it = actor_of(j, i);
    const zro_join_info info = info_of(j);

    (void)ZRO__POINT("join.follow");
    if (joiner_of(it) != NULL)
        return joiner_of(it)->follow(it->user, turn);
    return it->shadow(it->user, &info);
}

/* What has failed on other ranks is theirs to tell and to mend, as long as nothing is broken. */
static int goes_on(const zro_join *j, const zro__turn *turn, zro_status st)
{
    const zro__cycle *cycle = j->base.cycles[turn->joinable];

    return (st == ZRO_ERR_PEER || st == ZRO_ERR_MISMATCH) && cycle != NULL && zro__cycle_check(cycle) == ZRO_OK;
}

static void say_skew(zro_join *j)
{
    if (j->base.n_shadowed <= SKEW || j->said_skew)
        return;
    j->said_skew = 1;
    zro__log(
        &j->base.group->settings, ZRO_LOG_WARN,
        "this rank ran out of inputs %d iterations ago, and others still have some: give all ranks about the same number, or "
        "most of the work is wasted",
        SKEW);
}

/* A handle that is gone cannot follow; and in the middle of an iteration the others wait for this rank's gradients, and would not come
 * to a turn.  Functions that run calls can make it so, too. */
static zro_status check_handles(const zro_join *j)
{
    for (size_t i = 0; i < j->base.n; i++) {
        const zro__cycle *cycle = j->base.cycles[i];

        if (cycle != NULL && cycle->is_closed)
            return zro__fail(ZRO_ERR_STATE,
                             "join_run: joinable %zu, a%s %s, was destroyed on this rank, which cannot follow the others any "
                             "more: destroy it after zro_join_run, or call zro_join_destroy instead",
                             i, joiner_of(&j->list[i])->kind[0] == 'o' ? "n" : "", joiner_of(&j->list[i])->kind);
        if (cycle != NULL && cycle->now.is_open)
            return zro__fail(ZRO_ERR_STATE,
                             "join_run: this rank is in the middle of an iteration of joinable %zu: call zro_ddp_backward_end "
                             "before, or zro_join_destroy instead",
                             i);
    }
    return ZRO_OK;
}

static zro_status finish(zro_join *j)
{
    const int root = j->base.highest, is_last = j->base.is_active;
    const zro_join_info info = info_of(j);
    zro_status st = ZRO_OK;

    for (size_t i = 0; st == ZRO_OK && i < j->base.n; i++) {
        const zro_joinable *it = &j->list[i];
        const int is_first = j->base.cycles[i] != NULL && j->base.cycles[i]->joinable == (int32_t)i;

        (void)ZRO__POINT("join.finish");
        st = check_handles(j);
        if (st == ZRO_OK && is_first)
            st = joiner_of(actor_of(j, i))->finish(actor_of(j, i)->user, root);
        if (st == ZRO_OK && it->post != NULL)
            st = it->post(it->user, &info, is_last);
    }
    return st;
}

/* Until all ranks have run out. */
static zro_status follow_all(zro_join *j)
{
    const zro__turn mine = { .deed = ZRO__RAN_OUT };
    zro__turn turn;
    zro_status st;

    while (!j->is_doomed) {
        (void)ZRO__POINT("join.turn");
        st = check_handles(j);
        if (st == ZRO_OK)
            st = zro__join_turn(&j->base, &mine, &turn);
        if (st == ZRO_ERR_PEER) /* a rank that has inputs refuses its iteration: theirs to tell and to mend, too */
            continue;
        if (st != ZRO_OK)
            return st;
        if (j->base.n_active == 0)
            return finish(j);
        st = follow(j, &turn);
        if (st != ZRO_OK && !goes_on(j, &turn, st))
            return st;
        say_skew(j);
    }
    return zro__fail(ZRO_ERR_STATE,
                     "join_run: a function that it called (of a joinable, a hook or a rule) has destroyed the join "
                     "before all ranks had run out of inputs: this rank follows the others no more");
}

/* Destroys the join that was destroyed inside of run.  Its end may have a text for the others, which is not this rank's. */
static zro_status end_doomed(zro_join *j, zro_status st)
{
    char why[ZRO__TEXT_BYTES];

    snprintf(why, sizeof why, "%s", st != ZRO_OK ? zro_last_error() : "");
    zro_join_destroy(j);
    return st != ZRO_OK ? zro__fail(st, "%s", why) : ZRO_OK;
}

zro_status zro_join_run(zro_join *j)
{
    zro_status st = check_handle(j, "join_run");

    if (st == ZRO_OK && j->base.follows)
        st = zro__fail(ZRO_ERR_STATE,
                       "join_run: this rank is in zro_join_run already, and a function that it called (of a joinable, a hook "
                       "or a rule) calls it again: return from that function, and the first call follows the others");
    if (st != ZRO_OK || j->config.enable == ZRO_OFF)
        return st;
    j->base.follows = 1;
    st = follow_all(j);
    j->base.follows = 0;
    if (st == ZRO_OK)
        begin(j);
    return j->is_doomed ? end_doomed(j, st) : st;
}
