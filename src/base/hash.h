/* A hash of bytes, with which ranks compare what they have and tables of names are searched.  It is not meant to withstand an
 * attacker, and its value may differ between versions of the library. */
#ifndef ZRO_BASE_HASH_H
#define ZRO_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Adds one word: what all hashes are made of. */
static inline uint64_t zro__hash_word(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

/* Hashes of several pieces are chained: the result of one call is the `hash` of the next.  The first is ZRO__HASH_START. */
#define ZRO__HASH_START UINT64_C(14695981039346656037)
uint64_t zro__hash(uint64_t hash, const void *bytes, size_t n);

#endif
