/* Samples of a product of factors in which every pair of levels of two factors occurs. */
#ifndef PAIRS_H
#define PAIRS_H

#include <stdint.h>

enum { PAIRS_FACTORS = 12, PAIRS_LEVELS = 32 }; /* at most */

typedef unsigned char pairs_point[PAIRS_FACTORS]; /* a level of each factor */

typedef struct pairs_space {
    int factors;
    const int *levels;                             /* how many each has */
    int (*is_allowed)(const unsigned char *point); /* NULL: all are */
} pairs_space;

/* Any point of the product, allowed or not. */
void pairs_draw(const pairs_space *space, uint64_t *random, pairs_point out);

/* Writes the sample, the same for the same random numbers, and returns how many points it has; more than `room` is a failed
 * check.  Pairs that no allowed point has are left out. */
int pairs_sample(const pairs_space *space, uint64_t *random, pairs_point *out, int room);

#endif
