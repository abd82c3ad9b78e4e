/* Rank 0 counts errors in 1 batch, rank 1 in 3.  ranks: 2; prints: 8 of 40 */
#include <stdio.h>
#include <stdlib.h>
#include <zro.h>

/* SNIPPET */

int main(void)
{
    zro_joinable joinable = ZRO_JOINABLE_INIT;
    float all[2] = { 0, 0 };
    zro_group *ranks;
    zro_join *join;
    int rank;

    zro_must(zro_group_create_env(NULL, &ranks));
    rank = zro_group_rank(ranks);
    joinable.shadow = shadow;
    joinable.user = ranks;
    zro_must(zro_join_create(ranks, &joinable, 1, NULL, &join));
    for (int batch = 0; batch < 1 + 2 * rank; batch++) {
        float sums[2] = { 2, 10 };

        zro_must(count_errors(join, ranks, sums));
        all[0] += sums[0];
        all[1] += sums[1];
    }
    zro_must(zro_join_run(join));
    if (rank == 1)
        printf("%g of %g\n", (double)all[0], (double)all[1]);
    zro_join_destroy(join);
    zro_group_destroy(ranks);
    return rank == 1 && all[0] != 8;
}
