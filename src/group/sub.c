/* Groups made from a group: of some of its ranks, or of all again.
 *
 * The first member near makes the region and writes a notice, with a hash of the members, into its slot of the parent; the
 * others wait for a notice with that hash.  Where there are far members, the first of all members gives out the group's number
 * on the link, in its notice to near ones and in a message to far ones.  So only members take part, and nothing is written to
 * the parent's order of operations.
 *
 * Then all build their handles and vote (group.c).  Whatever goes wrong before that is brought to the vote; only a rank that
 * cannot even map the region leaves the others to their deadline. */
#include <inttypes.h>
#include <stdio.h>

#include "base/point.h"
#include "group/group.h"

typedef struct from_parent {
    const zro_group *parent;
    const int *ranks;
} from_parent;

static int near_in_parent(void *user, int rank)
{
    from_parent *from = user;

    return zro__is_near(&from->parent->board, from->ranks[rank]);
}

static int32_t member_in_parent(void *user, int rank)
{
    from_parent *from = user;

    return from->parent->board.control->member[from->ranks[rank]];
}

static int64_t machine_in_parent(void *user, int rank)
{
    from_parent *from = user;

    return from->parent->machine[from->ranks[rank]];
}

static int32_t cell_in_parent(void *user, int rank)
{
    from_parent *from = user;

    return from->parent->cell[from->ranks[rank]];
}

/* A group that is being made from a parent, as one of its members sees it. */
typedef struct birth {
    zro_group *parent;
    const int *ranks;
    int n, mine;
    int first_near; /* the first member near this one: it makes the region */
    uint64_t key, number;
    zro__layout layout;
    zro__map map;
} birth;

static birth prepare_birth(zro_group *parent, const int *ranks, int n, int mine)
{
    from_parent from = { parent, ranks };
    birth b = { .parent = parent, .ranks = ranks, .n = n, .mine = mine };
    size_t message_bytes = parent->seat->trunk != NULL ? parent->seat->trunk->message_bytes : SIZE_MAX;

    b.key = zro__hash(ZRO__HASH_START, ranks, (size_t)n * sizeof *ranks);
    while (!near_in_parent(&from, b.first_near))
        b.first_near++;
    zro__group_layout(n, zro__count_near(n, near_in_parent, &from), message_bytes, &b.layout);
    return b;
}

/* The ranks are different ranks of the parent; *mine is the caller's place among them, or -1. */
static zro_status check_members(const zro_group *parent, const int *ranks, int n, int *mine)
{
    *mine = -1;
    if (ranks == NULL || n < 1 || n > parent->board.size)
        return zro__fail(ZRO_ERR_INVALID, "sub-group: n = %d, must be 1 to %d, with a list of ranks", n, parent->board.size);
    for (int i = 0; i < n; i++) {
        if (ranks[i] < 0 || ranks[i] >= parent->board.size)
            return zro__fail(ZRO_ERR_INVALID, "sub-group: ranks[%d] = %d is no rank of a group of %d", i, ranks[i],
                             parent->board.size);
        for (int k = 0; k < i; k++)
            if (ranks[k] == ranks[i])
                return zro__fail(ZRO_ERR_INVALID, "sub-group: rank %d is listed twice", ranks[i]);
        if (ranks[i] == parent->board.rank)
            *mine = i;
    }
    return ZRO_OK;
}

static zro_status map_new_region(birth *b)
{
    from_parent from = { b->parent, b->ranks };
    zro__view *view = b->parent->seat->view;
    uint64_t offset;
    zro_status st = zro__region_take(view, b->layout.bytes, 1, "the slots of a group", &offset);

    if (st == ZRO_OK)
        st = zro__map_region(view, offset, b->layout.bytes, &b->map);
    if (b->map.base != NULL)
        zro__control_fill(&b->map, b->n, member_in_parent, near_in_parent, &from);
    return st;
}

/* This rank's newest notice; `next`: the place of the one after it. */
static zro__notice *own_notice(zro_group *parent, int next)
{
    zro__slot *slot = zro__slot_of(&parent->board, parent->board.rank);
    uint64_t number = atomic_load_explicit(&slot->noticed.value, memory_order_relaxed);

    return &slot->notices[(number + (uint64_t)next) % ZRO__NOTICES];
}

static int is_first_of_machine(const birth *b, int i)
{
    const int64_t *machine = b->parent->machine;
    int k = 0;

    while (machine[b->ranks[k]] != machine[b->ranks[i]])
        k++;
    return k == i;
}

/* Tells the near members where the region is and, first of all members, the far ones of its number; or why there is none.
 * Atomics pair with await_notice. */
static void give_notice(birth *b, zro_status st)
{
    zro_group *parent = b->parent;
    zro__slot *slot = zro__slot_of(&parent->board, parent->board.rank);
    uint64_t number = atomic_load_explicit(&slot->noticed.value, memory_order_relaxed) + 1;
    zro__notice *notice = own_notice(parent, 1);
    int made = b->map.base != NULL;

    atomic_store(&notice->number, 0);
    atomic_store(&notice->key, b->key);
    atomic_store(&notice->offset, b->map.offset);
    atomic_store(&notice->channel, b->number);
    atomic_store(&notice->code, made ? ZRO_OK : (int32_t)st);
    if (!made)
        snprintf(notice->text, sizeof notice->text, "%s", zro_last_error());
    atomic_store(&notice->number, number);
    (void)ZRO__POINT("create.notice");
    zro__post(&slot->noticed, number);
    for (int i = 0; i < b->n && b->mine == 0; i++)
        if (!zro__is_near(&parent->board, b->ranks[i]) && is_first_of_machine(b, i))
            zro__wire_notice(parent->board.wire, ~zro__place_of(parent->board.control, b->ranks[i]), b->key, b->number,
                             made ? ZRO_OK : st, made ? "" : zro_last_error());
}

typedef struct await {
    const zro_group *parent;
    int leader;
} await;

/* Ends the wait for a notice without breaking the parent, whose operations are not concerned. */
static zro_status check_leader(void *user, uint64_t waited_ms)
{
    await *a = user;
    const zro__board *board = &a->parent->board;
    char name[64];
    zro_status st = zro__verdict_get(board->control);

    if (st != ZRO_OK)
        return st;
    zro__rank_name(board, a->leader, name, sizeof name);
    if (zro__gone(board, a->leader) != NULL)
        return zro__fail(ZRO_ERR_LOST, "sub-group: %s, its first member, is gone", name);
    if (atomic_load_explicit(&zro__slot_of(board, a->leader)->left, memory_order_acquire)) /* pairs with zro_group_destroy */
        return zro__fail(ZRO_ERR_LOST, "sub-group: %s, its first member, has destroyed the parent group", name);
    if (waited_ms > board->timeout_ms)
        return zro__fail(ZRO_ERR_TIMEOUT,
                         "sub-group: %s, its first member, did not come within %" PRIu64 " ms with these members", name,
                         board->timeout_ms);
    return ZRO_OK;
}

/* Waits for the notice of this group by rank `leader` of the parent. */
static zro_status await_notice(birth *b, int leader, uint64_t *offset, uint64_t *channel)
{
    zro_group *parent = b->parent;
    zro__slot *slot = zro__slot_of(&parent->board, leader);
    await a = { parent, leader };

    for (;;) {
        uint64_t number = parent->met[leader] + 1;
        zro__notice *notice = &slot->notices[number % ZRO__NOTICES];
        char name[64];
        int32_t code;
        int mine;
        zro_status st = zro__board_wait(&parent->board, &slot->noticed, number, check_leader, &a);

        if (st != ZRO_OK)
            return st;
        parent->met[leader] = number;
        mine = atomic_load(&notice->number) == number && atomic_load(&notice->key) == b->key;
        *offset = atomic_load(&notice->offset);
        *channel = atomic_load(&notice->channel);
        code = atomic_load(&notice->code);
        if (!mine || atomic_load(&notice->number) != number)
            continue; /* for others, or overwritten since: the first member does not go on before it has all members of a group */
        if (code != ZRO_OK)
            return zro__fail(ZRO_ERR_PEER, "%s: %s: %s", zro__rank_name(&parent->board, leader, name, sizeof name),
                             zro_status_name((zro_status)code), notice->text);
        return ZRO_OK;
    }
}

/* The group's number, if it needs one, and its region: from whoever makes them, or made here. */
static zro_status map_member_region(birth *b)
{
    zro_group *parent = b->parent;
    int makes = b->mine == b->first_near;
    uint64_t offset = 0;
    zro_status st = ZRO_OK;

    if (b->mine == 0 && b->layout.n_near < b->n)
        st = zro__trunk_number(parent->seat->trunk, &b->number);
    else if (makes && b->first_near != 0) /* the first member is far */
        st = await_notice(b, b->ranks[0], &offset, &b->number);
    if (!makes) {
        st = await_notice(b, b->ranks[b->first_near], &offset, &b->number);
        return st != ZRO_OK ? st : zro__map_region(parent->seat->view, offset, b->layout.bytes, &b->map);
    }
    if (st == ZRO_ERR_TIMEOUT)
        return st;
    if (st == ZRO_OK)
        st = map_new_region(b);
    give_notice(b, st);
    if (b->map.base == NULL && b->mine != 0) /* far members have the first one's word that the group is being made */
        zro__wire_refuse(parent->seat->trunk, b->number, b->n, member_in_parent, near_in_parent,
                         &(from_parent){ parent, b->ranks }, b->mine, st);
    return st;
}

/* Gives up a group that did not come about: the last near member gives the memory back.  Who comes later finds the notice, and
 * there why the group failed; but not if it failed because of the late one itself, who must not take it for a new one. */
static void drop_member_region(birth *b, zro_status st)
{
    zro_group *parent = b->parent;

    if (b->mine == b->first_near && (st == ZRO_ERR_TIMEOUT || st == ZRO_ERR_LOST))
        atomic_store(&own_notice(parent, 0)->key, 0);
    if (b->map.base == NULL)
        return;
    zro__region_leave(parent->seat->view, &b->map, &b->layout);
    zro__unmap_region(parent->seat->view, &b->map);
}

/* Builds on a mapped region; takes it in any case. */
static zro_status build_from_parent(birth *born, zro_status st, zro_group **out)
{
    zro_group *parent = born->parent;
    from_parent from = { parent, born->ranks };
    zro__blueprint b = { .seat = parent->seat,
                         .trunk = parent->seat->trunk,
                         .view = parent->seat->view,
                         .lives = parent->board.lives,
                         .map = born->map,
                         .layout = born->layout,
                         .number = born->number,
                         .rank = born->mine,
                         .size = born->n,
                         .settings = parent->settings,
                         .timeout_ms = parent->board.timeout_ms,
                         .machine_of = machine_in_parent,
                         .cell_of = cell_in_parent,
                         .user = &from };

    st = zro__group_build(&b, st, out);
    if (st != ZRO_OK)
        drop_member_region(born, st);
    return st;
}

static zro_status create_members(zro_group *parent, const int *ranks, int n, zro_group **out)
{
    birth b;
    int mine;
    zro_status st = check_members(parent, ranks, n, &mine);

    if (st == ZRO_OK && mine < 0)
        st =
            zro__fail(ZRO_ERR_INVALID, "group_create_members: rank %d calls, but is not among the members", parent->board.rank);
    if (st != ZRO_OK)
        return st;
    b = prepare_birth(parent, ranks, n, mine);
    st = map_member_region(&b);
    return b.map.base == NULL ? st : build_from_parent(&b, st, out);
}

zro_status zro_group_create_members(zro_group *parent, const int *ranks, int n, zro_group **out)
{
    zro_status st;

    if (out == NULL)
        return zro__fail(ZRO_ERR_INVALID, "group_create_members: out is NULL");
    *out = NULL;
    st = zro__enter(parent);
    return st != ZRO_OK ? st : zro__leave(parent, create_members(parent, ranks, n, out));
}

static void list_members(const int *ranks, int n, char *text, size_t bytes)
{
    size_t at = (size_t)snprintf(text, bytes, "%d ranks (%016" PRIx64 "):", n,
                                 zro__hash(ZRO__HASH_START, ranks, (size_t)n * sizeof *ranks));

    for (int i = 0; i < n && at + 16 < bytes; i++)
        at += (size_t)snprintf(text + at, bytes - at, " %d", ranks[i]);
}

/* Three votes on the parent: on the members, on their having the region, on the group. */
static zro_status create_sub(zro_group *parent, const int *ranks, int n, zro_group **out)
{
    birth b;
    char text[512] = "";
    uint64_t number = 0;
    int mine;
    zro_status st = check_members(parent, ranks, n, &mine);

    if (st == ZRO_OK)
        list_members(ranks, n, text, sizeof text);
    st = zro__agree(&parent->board, ZRO__CALL_CREATE, "the members of a sub-group", text, &number, st);
    if (st != ZRO_OK)
        return st;
    if (mine >= 0) {
        b = prepare_birth(parent, ranks, n, mine);
        st = map_member_region(&b);
    }
    st = zro__vote(&parent->board, ZRO__CALL_CREATE, st);
    if (st != ZRO_OK) {
        if (mine >= 0)
            drop_member_region(&b, st);
        return st;
    }
    if (mine >= 0)
        st = build_from_parent(&b, ZRO_OK, out);
    st = zro__vote(&parent->board, ZRO__CALL_CREATE, st);
    if (st != ZRO_OK) {
        zro_group_destroy(*out);
        *out = NULL;
    }
    return st;
}

zro_status zro_group_create_sub(zro_group *parent, const int *ranks, int n, zro_group **out)
{
    zro_status st;

    if (out == NULL)
        return zro__fail(ZRO_ERR_INVALID, "group_create_sub: out is NULL");
    *out = NULL;
    st = zro__enter(parent);
    return st != ZRO_OK ? st : zro__leave(parent, create_sub(parent, ranks, n, out));
}

zro_status zro_group_duplicate(zro_group *g, zro_group **out)
{
    zro_status st;

    if (out == NULL)
        return zro__fail(ZRO_ERR_INVALID, "group_duplicate: out is NULL");
    *out = NULL;
    st = zro__check_group(g);
    return st != ZRO_OK ? st : zro_group_create_sub(g, g->everybody, g->board.size, out);
}
