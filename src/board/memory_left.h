/* How much memory this process may still take: the machine's, and that of every control group above it. */
#ifndef ZRO_BOARD_MEMORY_LEFT_H
#define ZRO_BOARD_MEMORY_LEFT_H

#include <stddef.h>
#include <stdint.h>

typedef struct zro__memory_left {
    uint64_t bytes;  /* UINT64_MAX where nothing is known */
    char where[256]; /* "the machine" or the control group that is the tightest */
} zro__memory_left;

/* `root` is prefixed to /proc and /sys/fs/cgroup; "" outside of tests. */
void zro__memory_left_get(const char *root, zro__memory_left *out);

#endif
