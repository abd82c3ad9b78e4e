/* Random numbers as a function: of a seed, a step, a parameter and an element, so that they do not depend on who computes
 * them, in which order, or how often.  Mixing by xor-shifts and multiplications; the second half works on 32 bits, so that it
 * vectorises. */
#ifndef ZRO_OPTIM_RANDOM_H
#define ZRO_OPTIM_RANDOM_H

#include <stdint.h>

static inline uint64_t zro__mix64(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static inline uint32_t zro__mix32(uint32_t x)
{
    x = (x ^ x >> 16) * UINT32_C(0x7feb352d);
    x = (x ^ x >> 15) * UINT32_C(0x846ca68b);
    return x ^ x >> 16;
}

/* The key of one parameter in one step. */
static inline uint64_t zro__random_key(uint64_t seed, uint64_t step, uint64_t param)
{
    return zro__mix64(zro__mix64(zro__mix64(seed + UINT64_C(0x9e3779b97f4a7c15)) + step) + param);
}

/* 32 bits for an element. */
static inline uint32_t zro__random_at(uint64_t key, uint64_t element)
{
    uint32_t low = zro__mix32((uint32_t)element + (uint32_t)key);

    return zro__mix32(low ^ (uint32_t)(key >> 32) ^ (uint32_t)(element >> 32) * UINT32_C(0x9e3779b9));
}

#endif
