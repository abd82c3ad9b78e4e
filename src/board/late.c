/* Late ranks: see late.h. */
#include "board/late.h"

#include <inttypes.h>
#include <string.h>

#include "base/memory.h"

enum { SETTLE_MS = 500, EXTENTS = 64 /* that a note has room for */ };

/* A rank that was touching memory when it was last looked at. */
typedef struct late_rank {
    zro__slot *slot;
    zro__life *life;
    int label; /* its rank in the first group */
} late_rank;

typedef struct extent {
    uint64_t begin, end; /* offsets in the memfd */
} extent;

/* Protected by the view's lock while it is in the view's list. */
struct zro__late_note {
    zro__late_note *next;
    zro__map region; /* keeps the slots mapped, as long as somebody is late */
    int listed;      /* 1: the note is in the view's list */
    int dropped;     /* 1: the group is gone, and whoever takes the note from the list frees it */
    int label;       /* of a rank that was late */
    int n_arrays, n_late;
    extent arrays[EXTENTS]; /* at most ZRO__LATE_ARRAYS at first; more when parts of them are forgotten */
    late_rank late[];
};

/* ---- touching ---- */

/* The store and the look at the verdict are sequentially consistent, and so are the breaking of a group and the looks of those
 * who settle: either this rank sees the verdict, or they see that it touches memory. */
zro_status zro__touch_begin(zro__board *board)
{
    atomic_store_explicit(&zro__slot_of(board, board->rank)->touching, board->number, memory_order_seq_cst);
    return zro__is_broken(board->control) ? zro__verdict_get(board->control) : ZRO_OK;
}

void zro__touch_end(zro__board *board)
{
    zro__post(&zro__slot_of(board, board->rank)->done, board->number);
}

static int touches(const late_rank *r)
{
    uint64_t number = atomic_load_explicit(&r->slot->touching, memory_order_seq_cst);

    return !zro__reached(&r->slot->done, number) && !zro__life_is_dead(r->life)
           && !atomic_load_explicit(&r->slot->left, memory_order_acquire);
}

/* ---- notes ---- */

zro_status zro__late_make(int size, zro__late_note **out)
{
    *out = zro__alloc(NULL, ZRO__KIND_HANDLE, sizeof **out + (size_t)size * sizeof(late_rank));
    return *out != NULL ? ZRO_OK : zro__fail(ZRO_ERR_MEMORY, "out of memory: a group's note of late ranks");
}

/* Under the lock. */
static void put_in_list(zro__view *view, zro__late_note *note)
{
    note->listed = 1;
    note->next = atomic_load_explicit(&view->late, memory_order_relaxed);
    atomic_store_explicit(&view->late, note, memory_order_relaxed);
}

/* Under the lock. */
static void take_from_list(zro__view *view, zro__late_note *note)
{
    zro__late_note *at = atomic_load_explicit(&view->late, memory_order_relaxed);

    if (at == note)
        atomic_store_explicit(&view->late, note->next, memory_order_relaxed);
    for (; at != NULL; at = at->next)
        if (at->next == note)
            at->next = note->next;
    note->listed = 0;
    if (note->dropped)
        zro__free(note);
}

void zro__late_drop(zro__view *view, zro__late_note *note)
{
    int noted;

    if (note == NULL)
        return;
    pthread_mutex_lock(&view->lock);
    noted = note->listed;
    note->dropped = 1;
    pthread_mutex_unlock(&view->lock);
    if (!noted)
        zro__free(note);
}

void zro__late_free_all(zro__view *view)
{
    for (zro__late_note *note = atomic_load(&view->late), *next; note != NULL; note = next) {
        next = note->next;
        if (note->dropped)
            zro__free(note);
    }
    atomic_store(&view->late, NULL);
}

/* Forgets who has left; 1 if nobody is late any more. */
static int is_over(zro__late_note *note)
{
    int n = 0;

    for (int i = 0; i < note->n_late; i++)
        if (touches(&note->late[i]))
            note->late[n++] = note->late[i];
    note->n_late = n;
    return n == 0;
}

static void add_array(zro__late_note *note, uint64_t begin, uint64_t end)
{
    extent *last = &note->arrays[ZRO__LATE_ARRAYS - 1];

    if (note->n_arrays < ZRO__LATE_ARRAYS) {
        note->arrays[note->n_arrays++] = (extent){ begin, end };
        return;
    }
    last->begin = begin < last->begin ? begin : last->begin;
    last->end = end > last->end ? end : last->end;
}

/* Under the lock: takes [begin, end) out of an extent, the rest of which stays.  Without room for two rests it stays whole. */
static void cut_out(zro__late_note *note, int i, uint64_t begin, uint64_t end)
{
    extent e = note->arrays[i];

    if (begin > e.begin && end < e.end && note->n_arrays == EXTENTS)
        return;
    note->arrays[i] = note->arrays[--note->n_arrays];
    if (begin > e.begin)
        note->arrays[note->n_arrays++] = (extent){ e.begin, begin };
    if (end < e.end)
        note->arrays[note->n_arrays++] = (extent){ end, e.end };
}

/* Under the lock: whether the note has something of [begin, end).  Once nobody is late any more, that is forgotten. */
static int has_array(zro__late_note *note, uint64_t begin, uint64_t end, int over)
{
    int found = 0;

    for (int i = note->n_arrays - 1; i >= 0; i--) {
        if (begin >= note->arrays[i].end || note->arrays[i].begin >= end)
            continue;
        found = 1;
        if (over)
            cut_out(note, i, begin, end);
    }
    return found;
}

/* An array is refused once more when the late rank has left: the program may have filled it before that. */
zro_status zro__late_check(zro__view *view, const void *data, size_t bytes)
{
    int label = -1, has_left = 0;
    uint64_t begin;

    if (atomic_load_explicit(&view->late, memory_order_relaxed) == NULL || data == NULL || bytes == 0)
        return ZRO_OK;
    begin = zro__locate(view, data, bytes);
    if (begin == ZRO__NOWHERE)
        return ZRO_OK;
    pthread_mutex_lock(&view->lock);
    for (zro__late_note *note = atomic_load_explicit(&view->late, memory_order_relaxed), *next; note != NULL; note = next) {
        int over = is_over(note);

        next = note->next;
        if (over && note->region.base != NULL)
            zro__unmap_region_locked(view, &note->region);
        if (has_array(note, begin, begin + bytes, over)) {
            label = note->label;
            has_left = over;
        }
        if (note->n_arrays == 0)
            take_from_list(view, note);
    }
    pthread_mutex_unlock(&view->lock);
    if (label < 0)
        return ZRO_OK;
    return has_left
               ? zro__fail(ZRO_ERR_STATE,
                           "rank %d of the first group may have written into this array until now: it was left behind in a "
                           "call of a group that broke, and has left it since; fill the array again, and call again",
                           label)
               : zro__fail(ZRO_ERR_STATE,
                           "rank %d of the first group may still write into this array: it was left behind in a call of a "
                           "group that broke; use another array until that rank has returned from its call or has ended",
                           label);
}

/* ---- settling ---- */

static late_rank find_rank(const zro__board *board, int rank)
{
    int label = board->control->member[rank];

    return (late_rank){ zro__slot_of(board, rank), &board->lives[label], label };
}

/* Under the view's lock: who is late; returns how many are. */
static int find_late(const zro__board *board, zro__late_note *note)
{
    note->n_late = 0;
    for (int r = 0; r < board->size; r++) {
        if (r == board->rank || !zro__is_near(board, r))
            continue;
        note->late[note->n_late] = find_rank(board, r);
        note->n_late += touches(&note->late[note->n_late]);
    }
    return note->n_late;
}

typedef struct settling {
    late_rank rank;
    uint64_t before_ms, now_ms; /* what the waits for other ranks took, and this one */
} settling;

/* The statuses only end the wait: no text is written. */
static zro_status check_settled(void *user, uint64_t waited_ms)
{
    settling *s = user;

    s->now_ms = waited_ms;
    return !touches(&s->rank) || s->before_ms + waited_ms > SETTLE_MS ? ZRO_ERR_TIMEOUT : ZRO_OK;
}

void zro__settle(zro__board *board, zro__view *view, zro__late_note *note, const void *data, size_t bytes)
{
    settling s = { .before_ms = board->settled ? SETTLE_MS : 0 };
    uint64_t begin = data != NULL && bytes > 0 ? zro__locate(view, data, bytes) : ZRO__NOWHERE;

    for (int r = 0; r < board->size; r++) {
        if (r == board->rank || !zro__is_near(board, r))
            continue;
        s.rank = find_rank(board, r);
        if (touches(&s.rank))
            (void)zro__word_wait(&s.rank.slot->done, atomic_load(&s.rank.slot->touching), check_settled, &s, NULL, NULL);
        s.before_ms += s.now_ms;
        s.now_ms = 0;
    }
    board->settled = 1;
    if (begin == ZRO__NOWHERE)
        return;
    pthread_mutex_lock(&view->lock);
    if (find_late(board, note) > 0) {
        add_array(note, begin, begin + bytes);
        note->label = note->late[0].label;
        if (note->region.base == NULL)
            zro__map_hold_locked(view, board->control, &note->region);
        if (!note->listed)
            put_in_list(view, note);
    }
    pthread_mutex_unlock(&view->lock);
}
