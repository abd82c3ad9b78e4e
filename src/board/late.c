/* Late ranks: see late.h. */
#include "board/late.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/memory.h"

enum {
    SETTLE_MS = 500,
    ARRAYS = 8 /* of a group's own, and used; of more, a note means all that lies between the last of them */
};

/* A rank that was touching memory when it was last looked at. */
typedef struct late_rank {
    zro__slot *slot;
    zro__life *life;
    int label; /* its rank in the first group */
} late_rank;

typedef struct extent {
    uint64_t begin, end; /* offsets in the memfd */
} extent;

/* Protected by the view's lock. */
struct zro__late_note {
    zro__late_note *next;
    zro__map region; /* keeps the slots mapped, as long as somebody is late */
    int listed;      /* 1: the note is in the view's list */
    int dropped;     /* 1: the group is gone, and whoever takes the note from the list frees it */
    int label;       /* of a rank that was late */
    int n_arrays, n_late;
    extent arrays[ARRAYS]; /* the group's own, and those of a transfer that failed */
    extent *refused;       /* what is refused; NULL if the note is not listed */
    size_t n_refused, capacity;
    late_rank late[];
};

/* ---- touching ---- */

/* The store is sequentially consistent, and so are the caller's look after it, giving up, and the looks of those who settle: either
 * this rank sees that it must not touch anything, or they see that it touches memory. */
void zro__touch_begin(zro__board *board)
{
    zro__slot *slot = zro__slot_of(board, board->rank);

    assert(!zro__reached(&slot->done, board->number)); /* once per operation: else nobody would see it */
    atomic_store_explicit(&slot->touching, board->number, memory_order_seq_cst);
    /* What this rank writes next the others have read: it comes back while this rank works.  (Its next arrival, too, would come too
     * early: others that are ahead read that already.) */
    __builtin_prefetch(&slot->done, 1, 3);
}

void zro__touch_end(zro__board *board)
{
    zro__post(&zro__slot_of(board, board->rank)->done, board->number);
}

/* Operations only grow, so the first that is given up is the largest ~number.  Sequentially consistent: who has read what a program
 * wrote after it was told sees this, too. */
void zro__give_up(zro__board *board)
{
    uint64_t mine = ~board->number, old = atomic_load(&board->control->given_up);

    while (old < mine && !atomic_compare_exchange_weak(&board->control->given_up, &old, mine)) {
    }
}

int zro__is_given_up(const zro__board *board)
{
    return atomic_load(&board->control->given_up) >= ~board->number;
}

static int touches(const late_rank *r)
{
    uint64_t number = atomic_load_explicit(&r->slot->touching, memory_order_seq_cst);

    return !zro__reached(&r->slot->done, number) && !zro__life_is_dead(r->life)
           && !atomic_load_explicit(&r->slot->left, memory_order_acquire); /* pairs with zro_group_destroy */
}

/* ---- notes ---- */

zro_status zro__late_make(int size, zro__late_note **out)
{
    zro__late_note *note = zro__alloc(NULL, ZRO__KIND_HANDLE, sizeof *note + (size_t)size * sizeof(late_rank));

    *out = note;
    if (note != NULL && zro__grow(NULL, &note->refused, &note->capacity, ARRAYS, sizeof *note->refused))
        return ZRO_OK;
    return zro__fail(ZRO_ERR_MEMORY, "out of memory: a group's note of late ranks");
}

static void free_note(zro__late_note *note)
{
    zro__free(note->refused);
    zro__free(note);
}

/* Under the lock.  Whoever looks at the list without it looks for NULL alone, and a program that could need the answer has got it
 * from a call that took the lock: so relaxed accesses are enough. */
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
        free_note(note);
}

void zro__late_drop(zro__view *view, zro__late_note *note)
{
    int listed;

    if (note == NULL)
        return;
    pthread_mutex_lock(&view->lock);
    listed = note->listed;
    note->dropped = 1;
    pthread_mutex_unlock(&view->lock);
    if (!listed)
        free_note(note);
}

void zro__late_free_all(zro__view *view)
{
    for (zro__late_note *note = atomic_load(&view->late), *next; note != NULL; note = next) {
        next = note->next;
        if (note->dropped)
            free_note(note);
    }
    atomic_store(&view->late, NULL);
}

/* Under the lock. */
static void add_array(zro__late_note *note, extent e)
{
    extent *last = &note->arrays[ARRAYS - 1];

    if (note->n_arrays < ARRAYS) {
        note->arrays[note->n_arrays++] = e;
        return;
    }
    last->begin = e.begin < last->begin ? e.begin : last->begin;
    last->end = e.end > last->end ? e.end : last->end;
}

/* Under the lock: every part of [data, data + bytes) that is group memory. */
static void add_memory(zro__view *view, zro__late_note *note, const void *data, size_t bytes)
{
    extent e;

    for (zro__mapping *m = NULL; zro__map_next_locked(view, &m, data, bytes, &e.begin, &e.end);)
        add_array(note, e);
}

void zro__late_own(zro__view *view, zro__late_note *note, const void *data, size_t bytes)
{
    pthread_mutex_lock(&view->lock);
    add_memory(view, note, data, bytes);
    pthread_mutex_unlock(&view->lock);
}

void zro__late_used(zro__view *view, zro__late_note *note, const void *data, size_t bytes)
{
    pthread_mutex_lock(&view->lock);
    if (!note->listed)
        add_memory(view, note, data, bytes);
    pthread_mutex_unlock(&view->lock);
}

/* ---- refusing ---- */

/* Under the lock.  Forgets who has left; 1 if nobody is late any more. */
static int is_over(zro__late_note *note)
{
    int n = 0;

    for (int i = 0; i < note->n_late; i++)
        if (touches(&note->late[i]))
            note->late[n++] = note->late[i];
    note->n_late = n;
    return n == 0;
}

/* Under the lock: takes [begin, end) out of an extent, the rest of which stays.  Without memory for two rests it stays whole. */
static void cut_out(zro__late_note *note, size_t i, extent cut)
{
    extent e = note->refused[i];

    if (cut.begin > e.begin && cut.end < e.end
        && !zro__grow(NULL, &note->refused, &note->capacity, note->n_refused + 1, sizeof *note->refused))
        return;
    note->refused[i] = note->refused[--note->n_refused];
    if (cut.begin > e.begin)
        note->refused[note->n_refused++] = (extent){ e.begin, cut.begin };
    if (cut.end < e.end)
        note->refused[note->n_refused++] = (extent){ cut.end, e.end };
}

/* Under the lock: whether the note refuses something of an extent.  Once nobody is late any more, that is forgotten. */
static int refuses(zro__late_note *note, extent e, int over)
{
    int found = 0;

    for (size_t i = note->n_refused; i-- > 0;) {
        if (e.begin >= note->refused[i].end || note->refused[i].begin >= e.end)
            continue;
        found = 1;
        if (over)
            cut_out(note, i, e);
    }
    return found;
}

/* Under the lock.  *label is that of a rank that may still write, or of one that may have written, or -1; *has_left says which. */
static void look_at_notes(zro__view *view, extent e, int *label, int *has_left)
{
    for (zro__late_note *note = atomic_load_explicit(&view->late, memory_order_relaxed), *next; note != NULL; note = next) {
        int over = is_over(note);

        next = note->next;
        if (over && note->region.base != NULL)
            zro__unmap_region_locked(view, &note->region);
        if (refuses(note, e, over) && (*label < 0 || !over)) {
            *label = over ? note->label : note->late[0].label;
            *has_left = over;
        }
        if (over && note->n_refused == 0)
            take_from_list(view, note);
    }
}

/* An array is refused once more when the late rank has left: the program may have filled it before that. */
zro_status zro__late_find(zro__view *view, const void *data, size_t bytes)
{
    int label = -1, has_left = 0;
    extent e;

    if (data == NULL || bytes == 0)
        return ZRO_OK;
    pthread_mutex_lock(&view->lock);
    for (zro__mapping *m = NULL; zro__map_next_locked(view, &m, data, bytes, &e.begin, &e.end);)
        look_at_notes(view, e, &label, &has_left);
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

/* Under the view's lock: the arrays of the note are refused from now on. */
static void refuse_arrays(zro__board *board, zro__view *view, zro__late_note *note)
{
    for (int i = 0; i < note->n_arrays; i++)
        note->refused[note->n_refused++] = note->arrays[i];
    note->label = note->late[0].label;
    zro__map_hold_locked(view, board->control, &note->region);
    put_in_list(view, note);
}

void zro__settle(zro__board *board, zro__view *view, zro__late_note *note)
{
    settling s = { .before_ms = 0 };

    if (atomic_exchange(&board->settled, 1))
        return;
    for (int r = 0; r < board->size; r++) {
        if (r == board->rank || !zro__is_near(board, r))
            continue;
        s.rank = find_rank(board, r);
        if (touches(&s.rank))
            (void)zro__word_wait(&s.rank.slot->done, atomic_load(&s.rank.slot->touching), check_settled, &s, NULL, NULL);
        s.before_ms += s.now_ms;
        s.now_ms = 0;
    }
    pthread_mutex_lock(&view->lock);
    if (find_late(board, note) > 0 && note->n_arrays > 0)
        refuse_arrays(board, view, note);
    pthread_mutex_unlock(&view->lock);
}
