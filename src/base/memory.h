/* The only allocator.
 *
 * Every block belongs to an account, which knows the bytes in use, the peak, and how many bytes of each kind there are.  Each rank
 * has one account, shared by its groups (a handle without a group has its own), so ranks that are threads do not mix.  A NULL account
 * counts nothing; it serves what belongs to a process and not to a rank.
 *
 * Long-lived handles compute their size first and take one arena.  Nothing is allocated inside a transfer. */
#ifndef ZRO_BASE_MEMORY_H
#define ZRO_BASE_MEMORY_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "zro.h"

typedef enum zro__kind {
    ZRO__KIND_HANDLE, /* handles, tables, texts */
    ZRO__KIND_BUFFER, /* data that was handed to the program */
    ZRO__KIND_STATE,  /* slots and masters of an optimizer */
    ZRO__KIND_COPY,   /* copies of them, for the program */
    ZRO__KIND_COUNT
} zro__kind;

typedef struct zro__account {
    atomic_size_t bytes[ZRO__KIND_COUNT];
    atomic_size_t in_use, peak;
    atomic_size_t allocations; /* so far */
} zro__account;

/* Zeroed memory, aligned to 64 bytes; NULL if there is none.  `account` must outlive the block. */
void *zro__alloc(zro__account *account, zro__kind kind, size_t bytes);

/* count * bytes, NULL also if that overflows. */
void *zro__alloc_array(zro__account *account, zro__kind kind, size_t count, size_t bytes);

/* Takes NULL. */
void zro__free(void *block);

/* Gives a block its pages now, so that its first use does not wait for them; where the system cannot, nothing happens. */
void zro__populate_block(void *block, size_t bytes);

/* Makes an array long enough for `need` elements: `array` is the address of the pointer to it (NULL at first), *capacity the
 * number of elements that it is long enough for (0 at first), `bytes` the size of an element.  The array may move; its elements
 * are kept.  It at least doubles, so that adding one at a time is cheap.  0, and nothing has changed, if there is no memory. */
int zro__grow(zro__account *account, void *array, size_t *capacity, size_t need, size_t bytes);

/* Sums and products of sizes: 1 and the result in *out, or 0 if it does not fit. */
int zro__size_add(size_t a, size_t b, size_t *out);
int zro__size_mul(size_t a, size_t b, size_t *out);

/* Rounds up to a multiple of a power of two: 1 and the result in *out, or 0 if it does not fit. */
int zro__size_round(size_t a, size_t power_of_two, size_t *out);

/* An arena: one block for all arrays of a handle. */
typedef struct zro__arena {
    char *base;
    int overflow; /* 1: a size that its user computed does not fit into a size_t */
} zro__arena;

/* One of those arrays. */
typedef struct zro__array {
    void *pointer; /* the address of the pointer to it, which is set */
    size_t count, bytes;
} zro__array;

/* Takes an arena for the arrays in a list, each aligned to 64 bytes and zeroed, and sets the pointer to each of them. */
zro_status zro__arena_arrays(zro__arena *arena, zro__account *account, const char *what, const zro__array *arrays, size_t n);
void zro__arena_free(zro__arena *arena);

#endif
