/* Hello: the sum of all ranks' numbers, on every rank.
 *
 *     ./01_hello                        a group of one
 *     zro run -n 4 -- ./01_hello        four processes */
#include <stdio.h>
#include <zro.h>

int main(void)
{
    zro_group *group;
    float x[2];

    zro_must(zro_group_create_env(NULL, &group));
    x[0] = (float)zro_group_rank(group);
    x[1] = 1;
    zro_must(zro_all_reduce(group, x, 2, ZRO_F32, ZRO_SUM));
    printf("rank %d of %d: the sum of all ranks is %g, and %g of us say hello\n", zro_group_rank(group), zro_group_size(group),
           (double)x[0], (double)x[1]);
    zro_group_destroy(group);
    return 0;
}
