/* Pairwise samples: see pairs.h.  For each pair not met yet the best of some random points that have it is taken. */
#include "pairs.h"

#include <stdlib.h>
#include <string.h>

#include "zt/zt.h"

typedef struct sampler {
    const pairs_space *space;
    unsigned char met[PAIRS_FACTORS][PAIRS_FACTORS][PAIRS_LEVELS][PAIRS_LEVELS];
} sampler;

void pairs_draw(const pairs_space *space, uint64_t *random, pairs_point out)
{
    memset(out, 0, sizeof(pairs_point));
    for (int f = 0; f < space->factors; f++)
        out[f] = (unsigned char)zt_below(random, (uint64_t)space->levels[f]);
}

/* Pairs that the point would add to those met; adds them if asked to. */
static int new_pairs(sampler *s, const unsigned char *point, int add)
{
    int n = 0;

    for (int f = 0; f < s->space->factors; f++)
        for (int g = f + 1; g < s->space->factors; g++) {
            unsigned char *met = &s->met[f][g][point[f]][point[g]];

            n += !*met;
            *met |= (unsigned char)add;
        }
    return n;
}

/* Finds the best of some points that have levels a and b of f and g; 0 if that pair is not allowed. */
static int cover(sampler *s, uint64_t *random, int f, int g, int a, int b, pairs_point best)
{
    int most = 0;

    for (int tries = 0; tries < 400 && (tries < 40 || most == 0); tries++) {
        pairs_point point;
        int n;

        pairs_draw(s->space, random, point);
        point[f] = (unsigned char)a;
        point[g] = (unsigned char)b;
        n = s->space->is_allowed == NULL || s->space->is_allowed(point) ? new_pairs(s, point, 0) : 0;
        if (n > most) {
            most = n;
            memcpy(best, point, sizeof point);
        }
    }
    return most > 0;
}

int pairs_sample(const pairs_space *space, uint64_t *random, pairs_point *out, int room)
{
    sampler *s = calloc(1, sizeof *s);
    int n = 0;

    CHECK(s != NULL && space->factors <= PAIRS_FACTORS);
    s->space = space;
    for (int f = 0; f < space->factors; f++)
        CHECK(space->levels[f] <= PAIRS_LEVELS);
    for (int f = 0; f < space->factors; f++)
        for (int g = f + 1; g < space->factors; g++)
            for (int a = 0; a < space->levels[f]; a++)
                for (int b = 0; b < space->levels[g]; b++) {
                    if (s->met[f][g][a][b])
                        continue;
                    CHECK(n < room);
                    if (cover(s, random, f, g, a, b, out[n]))
                        new_pairs(s, out[n++], 1);
                }
    free(s);
    return n;
}
