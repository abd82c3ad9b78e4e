/* The monotonic clock, in nanoseconds. */
#ifndef ZRO_BASE_CLOCK_H
#define ZRO_BASE_CLOCK_H

#include <stdint.h>

uint64_t zro__now_ns(void);

#endif
