/* Late ranks: what happens to memory that ranks touch in each other when their group breaks.
 *
 * A rank that touches memory of others says so before and after (its slot's `touching` and `done`), and looks at the verdict in
 * between, at least after every ZRO__TOUCH_BYTES.  So when a group breaks the live ranks leave soon, and whoever returns to its
 * program waits for that first (zro__settle): nobody writes into arrays that the program uses again.
 *
 * A rank that is stopped does not leave.  It is late, and cannot be waited for.  The arrays that it may still write are noted in
 * the process's view, and calls in all groups refuse them (zro__late_check) until that rank has left, or died; and once more after
 * that, because the program may have filled an array before the late rank wrote into it.
 *
 * A note is made with its group, so that breaking needs no memory.  It outlives the group as long as it is needed. */
#ifndef ZRO_BOARD_LATE_H
#define ZRO_BOARD_LATE_H

#include "board/slot.h"
#include "board/world.h"

enum {
    ZRO__TOUCH_BYTES = 256 << 10, /* how much of an array is touched between two looks at the verdict, at most */
    ZRO__LATE_ARRAYS = 8          /* that a note has room for; of more, it means all that lies between them */
};

typedef struct zro__late_note zro__late_note;

/* Around all accesses to memory that others use, in one operation.  begin fails with the verdict of a broken group; then nothing
 * may be touched.  end is called in any case.  A rank that ends before it has done its part has seen a verdict: so whoever sees
 * the end, and after that a whole group, knows that the part is done. */
zro_status zro__touch_begin(zro__board *board);
void zro__touch_end(zro__board *board);

/* Makes a note for a group of `size` ranks; MEMORY.  drop: at the end of the group; takes NULL. */
zro_status zro__late_make(int size, zro__late_note **out);
void zro__late_drop(zro__view *view, zro__late_note *note);

/* After a verdict: waits, but not for long, until no live rank touches memory of others.  If one does even then, [data, data +
 * bytes) is noted, if it is group memory.  May be called several times.  The error text stays. */
void zro__settle(zro__board *board, zro__view *view, zro__late_note *note, const void *data, size_t bytes);

/* STATE if a late rank may still write into [data, data + bytes), or may have written since; the text names it. */
zro_status zro__late_check(zro__view *view, const void *data, size_t bytes);

/* For the end of a view: frees the notes that are left. */
void zro__late_free_all(zro__view *view);

#endif
