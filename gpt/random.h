/* Random numbers that are a pure function of a seed, a stream and a counter: no state, so any part of a sequence can be made by
 * any rank, in any order, and a run that is resumed goes on with the numbers that it would have had. */
#ifndef GPT_RANDOM_H
#define GPT_RANDOM_H

#include <math.h>
#include <stdint.h>

/* The finalizer of splitmix64, a bijection that mixes every bit into every other. */
static inline uint64_t gpt_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static inline uint64_t gpt_random(uint64_t seed, uint64_t stream, uint64_t counter)
{
    const uint64_t STEP = UINT64_C(0x9e3779b97f4a7c15);

    return gpt_mix(gpt_mix(gpt_mix(seed + STEP) + stream * STEP) + (counter + 1) * STEP);
}

/* In [0, 1), with 53 bits. */
static inline double gpt_uniform(uint64_t seed, uint64_t stream, uint64_t counter)
{
    return (double)(gpt_random(seed, stream, counter) >> 11) * 0x1p-53;
}

/* Normal with mean 0 and deviation 1, by Box and Muller. */
static inline double gpt_normal(uint64_t seed, uint64_t stream, uint64_t counter)
{
    double u = 1 - gpt_uniform(seed, stream, 2 * counter), v = gpt_uniform(seed, stream, 2 * counter + 1);

    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

#endif
