/* Sorting, and a search in a sorted list. */
#ifndef ZRO_BASE_SEARCH_H
#define ZRO_BASE_SEARCH_H

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* The index of the last of n elements whose number is at most x; 0 if there is none.  `first` is the address of the first
 * element's number, a size_t; from each number to the next there are `stride` bytes, and numbers never decrease. */
static inline size_t zro__find_last(const void *first, size_t stride, size_t n, size_t x)
{
    size_t low = 0, high = n, number;

    while (high > low + 1) {
        size_t mid = low + (high - low) / 2;

        memcpy(&number, (const char *)first + mid * stride, sizeof number);
        if (number <= x)
            low = mid;
        else
            high = mid;
    }
    return low;
}

/* qsort of n elements, which costs one pass if they are sorted already: lists in the order of memory often are. */
static inline void zro__sort(void *list, size_t n, size_t bytes, int (*compare)(const void *, const void *))
{
    size_t i = 1;

    while (i < n && compare((char *)list + (i - 1) * bytes, (char *)list + i * bytes) <= 0)
        i++;
    if (i < n)
        qsort(list, n, bytes, compare);
}

#endif
