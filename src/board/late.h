/* Late ranks: what happens to memory that ranks touch in each other when their group breaks.
 *
 * A rank that touches memory of others says so before and after (its slot's `touching` and `done`).  A rank that cannot finish a
 * transfer because the group broke gives it up, and says that before it returns.  Owners look for that in between, at least after
 * every ZRO__TOUCH_BYTES; so the live ranks leave soon, and a call that returns the verdict waits for that first (zro__settle):
 * nobody writes into arrays that the program uses again.  Who finds nothing given up ends well, though the group may have broken in
 * a later operation.
 *
 * A rank that is stopped does not leave.  It is late, and cannot be waited for.  The arrays that it may still write are noted in
 * the process's view, and calls in all groups refuse them (zro__late_check) until that rank has left, or died; and once more after
 * that, because the program may have filled an array before the late rank wrote into it.
 *
 * Each group has a note, made with it, so that breaking needs no memory.  It knows the group's own arrays: memory that exists once
 * for several ranks, and that an optimizer updates outside of transfers.  It outlives the group as long as it is needed. */
#ifndef ZRO_BOARD_LATE_H
#define ZRO_BOARD_LATE_H

#include "board/slot.h"
#include "board/world.h"

enum { ZRO__TOUCH_BYTES = 256 << 10 }; /* how much of an array an owner touches between two looks, at most */

typedef struct zro__late_note zro__late_note;

/* Around all accesses to memory that others use, in one operation.  After begin, and now and then later, the caller looks whether it
 * may (still) touch anything: in a transfer while nobody has given that up, elsewhere while the group is whole. */
void zro__touch_begin(zro__board *board);
void zro__touch_end(zro__board *board);

/* Says that this rank gives up its operation, and will return to its program, which may change its arrays then; before touch_end.
 * is_given_up: whether a rank has given up this one.  If not, after the accesses, they found all arrays as they should be. */
void zro__give_up(zro__board *board);
int zro__is_given_up(const zro__board *board);

/* Makes a note for a group of `size` ranks; MEMORY.  drop: at the end of the group; takes NULL. */
zro_status zro__late_make(int size, zro__late_note **out);
void zro__late_drop(zro__view *view, zro__late_note *note);

/* Says that ranks of the group touch [data, data + bytes): own, outside of transfers too, for as long as the group lives; used, in
 * the transfer that has failed. */
void zro__late_own(zro__view *view, zro__late_note *note, const void *data, size_t bytes);
void zro__late_used(zro__view *view, zro__late_note *note, const void *data, size_t bytes);

/* After a verdict: waits, but not for long and only once, until no live rank touches memory of others.  If one does even then, the
 * arrays above are noted, as far as they are group memory.  The error text stays. */
void zro__settle(zro__board *board, zro__view *view, zro__late_note *note);

/* STATE if a late rank may still write into [data, data + bytes), or may have written since; the text names it.  find: looks at the
 * notes, of which there are hardly ever any. */
zro_status zro__late_find(zro__view *view, const void *data, size_t bytes);
static inline zro_status zro__late_check(zro__view *view, const void *data, size_t bytes)
{
    return atomic_load_explicit(&view->late, memory_order_relaxed) == NULL ? ZRO_OK : zro__late_find(view, data, bytes);
}

/* For the end of a view: frees the notes that are left. */
void zro__late_free_all(zro__view *view);

#endif
