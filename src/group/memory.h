/* The world's memory: one sparse memfd, as each process sees it, and a rank's seat in it.
 *
 * view: the memfd in one process, with its mappings, each made once however many ranks of the process (threads) use it: so
 * that thread ranks see each other's words at the same addresses, as the thread sanitizer needs.
 * seat: what one rank has in a world: its account, its view, its life word.  Groups and arrays of a rank share its seat and
 * keep it alive.
 * region: a range of the memfd, for one group's control block or one array.  Regions are never reused; when its last user is
 * gone a region is punched out of the file, which gives the memory back.
 *
 * A child that a rank forks has none of this: `alive` reads 0 there (zro__view_is_alive), and nothing shared may be touched. */
#ifndef ZRO_GROUP_MEMORY_H
#define ZRO_GROUP_MEMORY_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/memory.h"
#include "group/life.h"
#include "group/slot.h"
#include "group/trunk.h"

/* At the start of the memfd; then the first group's region. */
typedef struct zro__world {
    unsigned char nonce[16];
    int32_t size;
    int32_t code;               /* when `made` is 1: whether the first group's region is there, */
    char text[ZRO__TEXT_BYTES]; /* and why not */
    zro__word made;
    _Atomic int32_t refused; /* ranks that have read why not */
    _Atomic uint64_t next;   /* first byte that no region has */
    zro__life lives[];       /* size of them */
} zro__world;

typedef struct zro__mapping zro__mapping;

typedef struct zro__view {
    unsigned char nonce[16];
    int fd;
    uint64_t device, inode; /* of fd, which a program that closes all descriptors may have made something else */
    uint32_t *alive;        /* a page that the kernel wipes in a forked child */
    zro__world *world;
    size_t world_bytes;
    pthread_mutex_t lock; /* of the fields below */
    pthread_cond_t opened_or_failed;
    zro_status opening; /* OK: `world` is there; STATE: not yet; else why not */
    zro__mapping *mappings;
    int dropped; /* ranks of this process that use it no more */
    int pinned;
    int used; /* its ticket was used: by this rank's create alone */
} zro__view;

/* A mapped region; `base` is NULL for none. */
typedef struct zro__map {
    char *base;
    size_t bytes;
    uint64_t offset;
    zro__mapping *mapping; /* NULL: mapped for this user alone */
} zro__map;

/* A view of an empty memfd.  Then found: a new world for `size` ranks; and, perhaps after that, adopt: instead of it the world in
 * the memfd `fd`, which it takes (FORMAT if that has another nonce). */
zro_status zro__view_create(zro__view **out);
zro_status zro__view_found(zro__view *view, int size);
zro_status zro__view_adopt(zro__view *view, int size, int fd, const unsigned char *nonce);

/* Where the first group's region is, once its first near rank has made it there. */
uint64_t zro__world_region(int size);

/* For the other ranks of the process: waits until the view is open. */
zro_status zro__view_await(zro__view *view, uint64_t timeout_ms);
void zro__view_opened(zro__view *view, zro_status st);

/* Each sharer calls it once; the last one frees everything. */
void zro__view_drop(zro__view *view, int sharers);

int zro__view_is_alive(const zro__view *view);

/* MEMORY if the machine, a control group or a limit of this process cannot give so many bytes. */
zro_status zro__check_room(size_t bytes, uint64_t file_end, const char *what);

/* Takes a region, after comparing it with what the machine can give.  reserve: all its pages now, otherwise none yet. */
zro_status zro__region_take(zro__view *view, size_t bytes, int reserve, const char *what, uint64_t *offset);
void zro__region_punch(zro__view *view, uint64_t offset, size_t bytes);

/* Maps a region.  Out of memory for the bookkeeping, it is mapped all the same (so that its user can vote) and MEMORY. */
zro_status zro__map_region(zro__view *view, uint64_t offset, size_t bytes, zro__map *out);
void zro__unmap_region(zro__view *view, zro__map *map);

/* The pages of [base, base + bytes): errors instead of a SIGBUS at first touch. */
zro_status zro__populate(void *base, size_t bytes, int write, const char *what);

/* Where an array of the program lies in the memfd, or NOWHERE; and back, mapping it if this process has not yet (NULL: failed). */
uint64_t zro__locate(zro__view *view, const void *data, size_t bytes);
void *zro__address(zro__view *view, uint64_t offset, size_t bytes);

/* Keeps the mapping that an address is in, and the view, for good. */
void zro__pin(zro__view *view, const void *address);

typedef struct zro__seat {
    zro__account account;
    zro__view *view;
    zro__trunk *trunk; /* to far ranks; NULL: there is no link */
    int sharers;
    int rank; /* in the world */
    zro__life *life;
    zro__holder holder;
    atomic_int refs;
    _Atomic uint64_t shared_bytes; /* of arrays, this rank's share */
} zro__seat;

void zro__seat_retain(zro__seat *seat);
void zro__seat_release(zro__seat *seat); /* takes NULL */

#endif
