/* The hash of bytes: see hash.h. */
#include "base/hash.h"

#include <string.h>

uint64_t zro__hash(uint64_t hash, const void *bytes, size_t n)
{
    const char *p = bytes;
    uint64_t word;
    size_t at = 0;

    hash ^= n;
    for (; n - at >= sizeof word; at += sizeof word) {
        memcpy(&word, p + at, sizeof word);
        hash = zro__hash_word(hash, word);
    }
    for (; at < n; at++)
        hash = zro__hash_word(hash, (unsigned char)p[at]);
    return hash;
}
