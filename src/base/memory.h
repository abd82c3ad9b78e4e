/* The only allocator.
 *
 * Every block belongs to an account, which knows the bytes in use, the peak, and by kind what they are for.  A rank has one
 * account, shared by its groups (a handle without a group has its own), so ranks that are threads do not mix.  A NULL account
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
    ZRO__KIND_COUNT
} zro__kind;

typedef struct zro__account {
    atomic_size_t bytes[ZRO__KIND_COUNT];
    atomic_size_t in_use, peak;
} zro__account;

/* Zeroed memory, aligned to 64 bytes; NULL if there is none.  `account` must outlive the block. */
void *zro__alloc(zro__account *account, zro__kind kind, size_t bytes);

/* count * bytes, NULL also if that overflows. */
void *zro__alloc_array(zro__account *account, zro__kind kind, size_t count, size_t bytes);

/* Takes NULL. */
void zro__free(void *block);

/* Sums and products of sizes: 1 and *out, or 0 if it does not fit. */
int zro__size_add(size_t a, size_t b, size_t *out);
int zro__size_mul(size_t a, size_t b, size_t *out);

/* Rounds up to a multiple of a power of two; 0 or *out. */
int zro__size_round(size_t a, size_t power_of_two, size_t *out);

/* An arena: sizes are announced (planned), then one block is taken, then the same sizes are handed out. */
typedef struct zro__arena {
    char *base;
    size_t used, bytes;
    int overflow; /* a planned size did not fit into a size_t */
} zro__arena;

void zro__arena_plan(zro__arena *arena, size_t count, size_t bytes);
zro_status zro__arena_init(zro__arena *arena, zro__account *account, const char *what);
void *zro__arena_take(zro__arena *arena, size_t count, size_t bytes);
void zro__arena_free(zro__arena *arena);

#endif
