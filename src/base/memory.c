/* The only allocator: see memory.h.  Each block is preceded by one line that remembers its account and size. */
#include "base/memory.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/point.h"
#include "base/status.h"

enum { ALIGN = 64, PAGE = 4096, HUGE = 2 << 20 };

typedef struct block_head {
    void *start; /* as the C library gave it */
    zro__account *account;
    size_t bytes;
    zro__kind kind;
} block_head;

_Static_assert(sizeof(block_head) <= ALIGN, "the head fits into the line before a block");

int zro__size_add(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

int zro__size_mul(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

int zro__size_round(size_t a, size_t power_of_two, size_t *out)
{
    size_t sum;

    if (!zro__size_add(a, power_of_two - 1, &sum))
        return 0;
    *out = sum & ~(power_of_two - 1);
    return 1;
}

static void count_up(zro__account *account, zro__kind kind, size_t bytes)
{
    size_t now, peak;

    atomic_fetch_add_explicit(&account->bytes[kind], bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&account->allocations, 1, memory_order_relaxed);
    now = atomic_fetch_add_explicit(&account->in_use, bytes, memory_order_relaxed) + bytes;
    peak = atomic_load_explicit(&account->peak, memory_order_relaxed);
    while (now > peak
           && !atomic_compare_exchange_weak_explicit(&account->peak, &peak, now, memory_order_relaxed, memory_order_relaxed)) {
    }
}

/* Tells the kernel about the whole pages, of `page` bytes, in a block.  Where it cannot do what is advised nothing happens. */
static void advise(void *block, size_t bytes, size_t page, int advice)
{
    char *from = (char *)(((uintptr_t)block + page - 1) & ~(uintptr_t)(page - 1));
    char *to = (char *)(((uintptr_t)block + bytes) & ~(uintptr_t)(page - 1));

    if (from < to)
        (void)madvise(from, (size_t)(to - from), advice);
}

void *zro__alloc(zro__account *account, zro__kind kind, size_t bytes)
{
    block_head *head;
    char *start;
    size_t total;

    if (ZRO__POINT("memory.alloc") || !zro__size_add(bytes, 2 * ALIGN, &total))
        return NULL;
    start = calloc(1, total); /* large blocks are fresh pages, which nobody has to touch before they are used */
    if (start == NULL)
        return NULL;
    /* Huge pages are faster to walk through, but a system may take seconds per GB to find them: not for what is read once. */
    if (total >= 2 * HUGE && kind != ZRO__KIND_COPY)
        advise(start, total, HUGE, MADV_HUGEPAGE);
    head = (block_head *)(void *)(((uintptr_t)start + ALIGN - 1) & ~(uintptr_t)(ALIGN - 1));
    *head = (block_head){ start, account, bytes, kind };
    if (account != NULL)
        count_up(account, kind, bytes);
    return (char *)head + ALIGN;
}

void zro__populate_block(void *block, size_t bytes)
{
#ifdef MADV_POPULATE_WRITE
    advise(block, bytes, PAGE, MADV_POPULATE_WRITE);
#else
    (void)block, (void)bytes;
#endif
}

void *zro__alloc_array(zro__account *account, zro__kind kind, size_t count, size_t bytes)
{
    size_t total;

    return zro__size_mul(count, bytes, &total) ? zro__alloc(account, kind, total) : NULL;
}

void zro__free(void *block)
{
    block_head *head;

    if (block == NULL)
        return;
    head = (block_head *)(void *)((char *)block - ALIGN);
    if (head->account != NULL) {
        atomic_fetch_sub_explicit(&head->account->bytes[head->kind], head->bytes, memory_order_relaxed);
        atomic_fetch_sub_explicit(&head->account->in_use, head->bytes, memory_order_relaxed);
    }
    free(head->start);
}

int zro__grow(zro__account *account, void *array, size_t *capacity, size_t need, size_t bytes)
{
    size_t more = need > 2 * *capacity ? need : 2 * *capacity;
    void *old, *longer;

    if (need <= *capacity)
        return 1;
    longer = zro__alloc_array(account, ZRO__KIND_HANDLE, more, bytes);
    if (longer == NULL)
        return 0;
    memcpy(&old, array, sizeof old);
    if (old != NULL)
        memcpy(longer, old, *capacity * bytes);
    zro__free(old);
    memcpy(array, &longer, sizeof longer);
    *capacity = more;
    return 1;
}

zro_status zro__arena_arrays(zro__arena *arena, zro__account *account, const char *what, const zro__array *arrays, size_t n)
{
    size_t total = 0, size;
    int fits = !arena->overflow;
    char *next;

    for (size_t i = 0; i < n; i++)
        fits &= zro__size_mul(arrays[i].count, arrays[i].bytes, &size) && zro__size_round(size, ALIGN, &size)
                && zro__size_add(total, size, &total);
    next = arena->base = fits ? zro__alloc(account, ZRO__KIND_HANDLE, total) : NULL;
    if (next == NULL)
        return zro__fail(ZRO_ERR_MEMORY, "out of memory: %zu bytes for %s", total, what);
    for (size_t i = 0; i < n; i++) {
        memcpy(arrays[i].pointer, &next, sizeof next);
        next += (arrays[i].count * arrays[i].bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    }
    return ZRO_OK;
}

void zro__arena_free(zro__arena *arena)
{
    zro__free(arena->base);
    memset(arena, 0, sizeof *arena);
}
