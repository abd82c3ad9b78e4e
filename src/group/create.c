/* How groups are formed.
 *
 * The first of the near ranks makes the region and writes a notice: where the region is, or why there is none.  The others wait
 * for the notice.  For the first group of a world the notice lies in the world's table (create_first.c).  For a group that is made from
 * a parent it lies in the slot that its writer has in the parent, and carries a hash of the members, by which those who wait
 * recognise it; where there are far members, the first of all members also gives out the group's number on the link, in its
 * notice to near members and in a message to far ones.  So only members take part; forming a group is not an
 * operation of the parent and takes no number there.
 *
 * Then all build their handles and vote (group.c).  Whatever goes wrong before that is brought to the vote; only a rank that
 * cannot even map the region makes the near ranks wait until they time out. */
#include "group/create.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/hash.h"
#include "base/point.h"

enum { MEMBERS_PER_VOTE = 500 };

/* ---- notices ---- */

/* The word and the notices by which a member tells others about the group. */
static zro__word *noticed_by(const zro__formation *f, int rank)
{
    return f->parent != NULL ? zro__noticed_of(&f->parent->ranks.board, f->ranks[rank]) : &f->view->world->noticed;
}

static zro__notice *notice_by(const zro__formation *f, int rank, uint64_t number)
{
    return f->parent != NULL ? zro__notice_of(&f->parent->ranks.board, f->ranks[rank], number) : &f->view->world->notice;
}

static uint64_t own_notices(const zro__formation *f)
{
    return atomic_load_explicit(&noticed_by(f, f->rank)->value, memory_order_relaxed);
}

static int is_first_of_machine(const zro__formation *f, int rank)
{
    int r = 0;

    while (f->member(f, r).machine != f->member(f, rank).machine)
        r++;
    return r == rank;
}

/* Tells the near members where the region is, and the first of all members tells the far ones the group's number; or why there
 * is no region.  The atomics pair with those in `hear`. */
static void tell(const zro__formation *f, zro_status st)
{
    uint64_t number = own_notices(f) + 1;
    zro__notice *notice = notice_by(f, f->rank, number);
    const char *text = st == ZRO_OK ? "" : zro_last_error();

    atomic_store(&notice->number, 0);
    atomic_store(&notice->key, f->key);
    atomic_store(&notice->offset, f->map.offset);
    atomic_store(&notice->channel, f->number);
    atomic_store(&notice->code, (int32_t)st);
    snprintf(notice->text, sizeof notice->text, "%s", text);
    atomic_store(&notice->number, number);
    (void)ZRO__POINT("create.notice");
    zro__post(noticed_by(f, f->rank), number);
    for (int r = 0; r < f->size && f->parent != NULL && f->rank == 0; r++)
        if (!f->member(f, r).is_near && is_first_of_machine(f, r))
            zro__far_notice(f->parent->far, ~zro__slot_index(f->parent->ranks.board.control, f->ranks[r]), f->key, f->number,
                            st, text);
}

/* A member whose notice is waited for. */
typedef struct teller {
    const zro__formation *formation;
    int rank;
    char name[64];
} teller;

/* Ends the wait for a notice.  It does not break the parent, whose operations are not concerned. */
static zro_status check_teller(void *user, uint64_t waited_ms)
{
    teller *t = user;
    const zro__formation *f = t->formation;
    const zro__board *parent = f->parent != NULL ? &f->parent->ranks.board : NULL;
    zro_status st = parent != NULL ? zro__verdict_get(parent->control) : ZRO_OK;
    int is_gone;

    if (st != ZRO_OK)
        return st;
    is_gone = parent != NULL ? zro__gone(parent, f->ranks[t->rank]) != NULL : zro__life_is_dead(&f->lives[t->rank]);
    if (is_gone || (parent != NULL && zro__has_left(parent, f->ranks[t->rank]))) {
        zro__meet_lost(f->meet, f->member(f, t->rank).label, is_gone);
        return zro__fail(ZRO_ERR_LOST, "%s: %s %s", f->call, t->name, is_gone ? "is gone" : "has destroyed the parent group");
    }
    if (waited_ms > f->timeout_ms)
        return zro__fail(ZRO_ERR_TIMEOUT, "%s: %s did not come within %" PRIu64 " ms%s", f->call, t->name, f->timeout_ms,
                         parent != NULL ? " with these members" : "");
    return ZRO_OK;
}

/* Waits for the notice of this group by its member `rank`: the group's number, and where the region of those near that member
 * is. */
static zro_status hear(zro__formation *f, int rank, uint64_t *offset)
{
    zro__board *parent = f->parent != NULL ? &f->parent->ranks.board : NULL;
    teller t = { .formation = f, .rank = rank };
    uint64_t none = 0, *met = parent != NULL ? &f->parent->met[f->ranks[rank]] : &none;

    if (parent != NULL)
        zro__rank_name(parent, f->ranks[rank], t.name, sizeof t.name);
    else
        snprintf(t.name, sizeof t.name, "rank %d", rank);
    for (;;) {
        uint64_t number = *met + 1, channel;
        zro__notice *notice;
        zro_status st = parent != NULL ? zro__board_wait(parent, noticed_by(f, rank), number, check_teller, &t)
                                       : zro__word_wait(noticed_by(f, rank), number, check_teller, &t, NULL, NULL);
        int32_t code;
        int is_ours;

        if (st != ZRO_OK)
            return st;
        *met = number;
        notice = notice_by(f, rank, number);
        is_ours = atomic_load(&notice->number) == number && atomic_load(&notice->key) == f->key;
        *offset = atomic_load(&notice->offset);
        channel = atomic_load(&notice->channel);
        code = atomic_load(&notice->code);
        if (!is_ours || atomic_load(&notice->number) != number)
            continue; /* it is for others, or overwritten: then it was not ours, for its writer waits for all members of a group */
        if (code != ZRO_OK)
            return zro__fail(ZRO_ERR_PEER, "%s: %s: %s", t.name, zro_status_name((zro_status)code), notice->text);
        f->number = channel;
        return ZRO_OK;
    }
}

/* ---- the region ---- */

static void measure(zro__formation *f)
{
    int n_near = 0;

    for (int r = f->size - 1; r >= 0; r--)
        if (f->member(f, r).is_near) {
            f->first_near = r;
            n_near++;
        }
    zro__group_layout(f->size, n_near, f->program_link != NULL ? f->program_link->message_bytes : SIZE_MAX, &f->layout);
}

/* The group's number on the link, for the first of the near ranks: the first of all members takes one and tells the others. */
static zro_status get_number(zro__formation *f)
{
    uint64_t unused;

    if (f->parent == NULL || f->layout.n_near == f->size)
        return ZRO_OK;
    return f->rank == 0 ? zro__program_link_number(f->program_link, &f->number) : hear(f, 0, &unused);
}

/* A new region, with who the members are, as ranks of the world, and where their slots lie. */
static zro_status make_region(zro__formation *f)
{
    uint64_t offset;
    zro_status st = zro__region_take(f->view, f->layout.bytes, 1, "the slots of a group", &offset);
    zro__control *control;
    int32_t near = 0, far = 0;

    if (st == ZRO_OK)
        st = zro__map_region(f->view, offset, f->layout.bytes, &f->map);
    if (st != ZRO_OK)
        return st;
    control = (zro__control *)(void *)f->map.base;
    control->size = f->size;
    for (int r = 0; r < f->size; r++) {
        zro__member m = f->member(f, r);

        control->member[r] = m.label;
        control->member[f->size + r] = m.is_near ? near++ : ~far++;
    }
    return ZRO_OK;
}

static int32_t far_label(void *formation, int rank)
{
    const zro__formation *f = formation;
    zro__member m = f->member(f, rank);

    return m.is_near ? -1 : m.label;
}

zro_status zro__form_region(zro__formation *f, zro_status st)
{
    uint64_t offset;

    measure(f);
    if (f->rank == f->first_near) {
        if (st == ZRO_OK && (st = get_number(f)) == ZRO_ERR_TIMEOUT)
            return st; /* the near members have the same deadline */
        if (st == ZRO_OK)
            st = make_region(f);
        tell(f, st);
    } else if (st == ZRO_OK) {
        st = hear(f, f->first_near, &offset);
        if (st == ZRO_OK)
            st = zro__map_region(f->view, offset, f->layout.bytes, &f->map);
    }
    /* Far ranks may be in the vote already; but they know if this rank has told them, or heard of the failure itself. */
    if (st != ZRO_OK && f->layout.n_near < f->size && f->number != ZRO__NO_NUMBER && st != ZRO_ERR_PEER
        && (f->parent == NULL || f->rank != 0))
        zro__far_refuse(f->program_link, f->number, f->size, far_label, f, f->rank, st);
    return st;
}

/* The last near member gives the memory back.  A member that comes later reads in the notice why the group failed; but if the
 * group failed because that member was late, the notice is withdrawn, for the member must not take it for that of a new group. */
void zro__form_give_up(zro__formation *f, zro_status st)
{
    if (f->parent != NULL && f->rank == f->first_near && (st == ZRO_ERR_TIMEOUT || st == ZRO_ERR_LOST))
        atomic_store(&notice_by(f, f->rank, own_notices(f))->key, 0);
    if (f->map.base == NULL)
        return;
    zro__region_leave(f->view, &f->map, &f->layout);
    zro__unmap_region(f->view, &f->map);
}

zro_status zro__form_group(zro__formation *f, zro_status st, zro_group **out)
{
    st = zro__group_build(f, st, out);
    if (st != ZRO_OK)
        zro__form_give_up(f, st);
    return st;
}

/* ---- from a parent ---- */

static zro__member member_of_parent(const zro__formation *f, int rank)
{
    const zro_group *parent = f->parent;
    int r = f->ranks[rank];

    return (zro__member){ .label = parent->ranks.board.control->member[r],
                          .cell = parent->cell[r],
                          .machine = parent->ranks.machine[r],
                          .is_near = zro__is_near(&parent->ranks.board, r) };
}

/* Checks that the ranks are different ranks of the parent.  The formation's rank is -1 if the caller is not among them. */
static zro_status begin(zro_group *parent, const int *ranks, int n, zro__formation *f)
{
    int size = parent->ranks.board.size;

    *f = (zro__formation){ .call = "sub-group",
                           .parent = parent,
                           .ranks = ranks,
                           .member = member_of_parent,
                           .rank = -1,
                           .size = n,
                           .number = ZRO__NO_NUMBER,
                           .seat = parent->seat,
                           .program_link = parent->seat->program_link,
                           .view = parent->seat->view,
                           .lives = parent->ranks.board.lives,
                           .meet = parent->ranks.board.meet,
                           .settings = parent->settings,
                           .timeout_ms = parent->ranks.board.timeout_ms };
    if (ranks == NULL || n < 1 || n > size)
        return zro__fail(ZRO_ERR_INVALID, "sub-group: n = %d, must be 1 to %d, with a list of ranks", n, size);
    for (int i = 0; i < n; i++) {
        if (ranks[i] < 0 || ranks[i] >= size)
            return zro__fail(ZRO_ERR_INVALID, "sub-group: ranks[%d] = %d is no rank of a group of %d", i, ranks[i], size);
        for (int k = 0; k < i; k++)
            if (ranks[k] == ranks[i])
                return zro__fail(ZRO_ERR_INVALID, "sub-group: rank %d is listed twice", ranks[i]);
        if (ranks[i] == parent->ranks.board.rank)
            f->rank = i;
    }
    f->key = zro__hash(ZRO__HASH_START, ranks, (size_t)n * sizeof *ranks);
    return ZRO_OK;
}

static zro_status create_members(zro_group *parent, const int *ranks, int n, zro_group **out)
{
    zro__formation f;
    zro_status st = begin(parent, ranks, n, &f);

    if (st == ZRO_OK && f.rank < 0)
        st = zro__fail(ZRO_ERR_INVALID, "group_create_members: rank %d calls, but is not among the members",
                       parent->ranks.board.rank);
    parent->is_expected = 0; /* this is no operation of the parent */
    if (st == ZRO_OK)
        st = zro__form_region(&f, ZRO_OK);
    return st != ZRO_OK ? st : zro__form_group(&f, ZRO_OK, out);
}

/* Compares the lists of all ranks of the parent, which are too long for one vote if there are many.  All ranks that go on after
 * the first vote have lists of the same length, and so the same number of votes. */
static zro_status agree_on_members(zro__formation *f, zro_status st)
{
    char text[4096];
    uint64_t number = 0;
    int next = 0;

    do {
        size_t at = (size_t)snprintf(text, sizeof text, "%d ranks:", f->size);

        for (int i = 0; i < MEMBERS_PER_VOTE && next < f->size && st == ZRO_OK; i++)
            at += (size_t)snprintf(text + at, sizeof text - at, i == 0 ? " %d" : ", %d", f->ranks[next++]);
        st = zro__agree(&f->parent->ranks.board, ZRO__CALL_CREATE, "the members of a sub-group", text, &number, st);
    } while (st == ZRO_OK && next < f->size);
    return st;
}

/* The parent's ranks vote on the list of members, then on whether all members have the region, then on the group. */
static zro_status create_sub(zro_group *parent, const int *ranks, int n, zro_group **out)
{
    zro__formation f;
    zro_status st = begin(parent, ranks, n, &f);

    st = agree_on_members(&f, st);
    if (st != ZRO_OK)
        return st;
    if (f.rank >= 0)
        st = zro__form_region(&f, ZRO_OK);
    st = zro__vote(&parent->ranks.board, ZRO__CALL_CREATE, st);
    if (st != ZRO_OK) {
        zro__form_give_up(&f, st);
        return st;
    }
    if (f.rank >= 0)
        st = zro__form_group(&f, ZRO_OK, out);
    st = zro__vote(&parent->ranks.board, ZRO__CALL_CREATE, st);
    if (st != ZRO_OK) {
        zro_group_destroy(*out);
        *out = NULL;
    }
    return st;
}

/* What the three calls have in common. */
static zro_status enter(const char *name, zro_status (*create)(zro_group *, const int *, int, zro_group **), zro_group *parent,
                        const int *ranks, int n, zro_group **out)
{
    zro_status st;

    if (out == NULL)
        return zro__fail(ZRO_ERR_INVALID, "%s: out is NULL", name);
    *out = NULL;
    st = zro__enter(parent);
    return st != ZRO_OK ? st : zro__leave(parent, create(parent, ranks, n, out));
}

zro_status zro_group_create_members(zro_group *parent, const int *ranks, int n, zro_group **out)
{
    return enter("group_create_members", create_members, parent, ranks, n, out);
}

zro_status zro_group_create_sub(zro_group *parent, const int *ranks, int n, zro_group **out)
{
    return enter("group_create_sub", create_sub, parent, ranks, n, out);
}

zro_status zro_group_duplicate(zro_group *g, zro_group **out)
{
    return enter("group_duplicate", create_sub, g, g != NULL ? g->everybody : NULL, zro_group_size(g), out);
}
