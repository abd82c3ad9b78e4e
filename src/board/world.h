/* The world's memory: one sparse memfd, as each process sees it.
 *
 * view: the memfd in one process, with its mappings.  Each region is mapped once per process, however many of its ranks
 * (threads) use it: so ranks that are threads see each other's words at the same addresses, as the thread sanitizer needs.
 * region: a range of the memfd, for the world's table, for one group's control block or for one array.  Regions are never
 * reused; when its last user is gone a region is punched out of the file, which gives the memory back.
 *
 * A child that a rank forks has none of this: `alive` reads 0 there (zro__view_is_alive), and nothing shared may be touched. */
#ifndef ZRO_BOARD_WORLD_H
#define ZRO_BOARD_WORLD_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/memory.h"
#include "board/life.h"
#include "board/slot.h"

/* The world's table: the region at the start of the memfd. */
typedef struct zro__world {
    unsigned char nonce[16]; /* the same as in the ticket through which the memfd was found */
    zro__word noticed;       /* 1: `notice` is written */
    zro__notice notice;      /* where the first group's region is (group/create.c) */
    zro__word came;          /* number of ranks that have read the notice, or given up waiting for it */
    _Atomic uint64_t next;   /* offset of the first byte that belongs to no region yet */
    zro__life lives[];       /* one per rank */
} zro__world;

typedef struct zro__mapping zro__mapping;
struct zro__late_note;

/* In pages of its own, which the kernel wipes in a forked child. */
typedef struct zro__view {
    int alive; /* 1; 0 in a forked child */
    unsigned char nonce[16];
    int fd;                 /* the memfd */
    uint64_t device, inode; /* which file fd was opened as: a program that closes all descriptors may reuse its number */
    zro__world *world;
    pthread_mutex_t opening;               /* held by the rank of this process that adopts a world; protects the next two */
    int opened;                            /* 1: a rank has tried that */
    zro_status failure;                    /* how it went */
    pthread_mutex_t lock;                  /* protects the fields below */
    zro__mapping *mappings;                /* a list of all regions that are mapped here */
    int n_borrowed;                        /* how many of them are mapped by zro__address alone */
    uint64_t n_addresses;                  /* how often such a mapping was asked for */
    _Atomic(struct zro__late_note *) late; /* a list of arrays that a late rank may still write (late.h) */
    int sharers;                           /* how many ranks of this process use the view */
    int dropped;                           /* how many ranks of this process use the view no more */
    int pinned;                            /* 1: the view is never freed (zro__pin) */
    int used;                              /* 1: a create has used the ticket of this view; written by that rank alone */
    struct zro__view *next;                /* in the list of all views of this process */
} zro__view;

/* A region that is mapped. */
typedef struct zro__map {
    char *base;      /* NULL: there is none */
    size_t bytes;    /* of the region */
    uint64_t offset; /* of the region in the memfd */
} zro__map;

/* The view of this process that was created with this nonce; NULL if there is none, or no more. */
zro__view *zro__view_find(const unsigned char *nonce);

/* create: a view of a new, empty memfd.  make_world: makes it a world for `size` ranks.  adopt: replaces the memfd and its world, if
 * there is one, by the world in the memfd `fd`, which then belongs to the view (FORMAT if that has another nonce). */
zro_status zro__view_create(zro__view **out);
zro_status zro__view_make_world(zro__view *view, int size);
zro_status zro__view_adopt(zro__view *view, int size, int fd, const unsigned char *nonce);

/* Each of the `sharers` ranks that use the view calls this once; the last one frees everything. */
void zro__view_drop(zro__view *view, int sharers);

/* 0 in a child that a rank has forked. */
int zro__view_is_alive(const zro__view *view);

/* MEMORY if the machine, a control group or a limit of this process cannot give so many bytes; `file_end` is where the memfd
 * would end. */
zro_status zro__check_memory_left(size_t bytes, uint64_t file_end, const char *what);

/* Takes a region, after comparing its size with what the machine can give.  With `reserve` all its pages are taken now, else
 * none yet.  punch gives the pages back. */
zro_status zro__region_take(zro__view *view, size_t bytes, int reserve, const char *what, uint64_t *offset);
void zro__region_punch(zro__view *view, uint64_t offset, size_t bytes);

/* Maps a region; whoever gets it with OK unmaps it once.  On failure `out` is empty. */
zro_status zro__map_region(zro__view *view, uint64_t offset, size_t bytes, zro__map *out);
void zro__unmap_region(zro__view *view, zro__map *map);

/* The same under the view's lock.  hold: for the region that an address is in, which is mapped already. */
void zro__map_hold_locked(zro__view *view, const void *address, zro__map *out);
void zro__unmap_region_locked(zro__view *view, zro__map *map);

/* Gets the pages of [base, base + bytes) now, so that a lack of memory is an error here and not a SIGBUS at first touch. */
zro_status zro__populate(void *base, size_t bytes, int write, const char *what);

/* locate: where an array of the program lies in the memfd, or NOWHERE.  address: the reverse; returns NULL if the array cannot be
 * mapped.  An array of a group that this rank is not in is borrowed: *borrowed is its mapping, to be unmapped after use, or
 * empty.  Some borrowed mappings are kept for the next time. */
uint64_t zro__locate(zro__view *view, const void *data, size_t bytes);
void *zro__address(zro__view *view, uint64_t offset, size_t bytes, zro__map *borrowed);

/* Under the view's lock: the next of the mapped regions (*at is NULL at first) in which some of [data, data + bytes) lies, and where
 * that is in the memfd; 0 if there is none. */
int zro__map_next_locked(zro__view *view, zro__mapping **at, const void *data, size_t bytes, uint64_t *begin, uint64_t *end);

/* Keeps the region that an address is in mapped, and the view alive, until the process ends. */
void zro__pin(zro__view *view, const void *address);

#endif
