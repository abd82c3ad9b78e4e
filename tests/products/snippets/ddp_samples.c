/* Two ranks see each of 22 samples once in an epoch.  ranks: 2; prints: ok */
#include <stdint.h>
#include <stdio.h>
#include <zro.h>

enum { n_samples = 22 };
static int32_t seen[n_samples];

static void train_on(const size_t *batch, size_t count)
{
    for (size_t i = 0; i < count; i++)
        seen[batch[i]]++;
}

int main(void)
{
    const uint64_t epoch = 3;
    int once = 1;
    zro_group *ranks;

    zro_must(zro_group_create_env(NULL, &ranks));
    /* SNIPPET */
    zro_must(zro_all_reduce(ranks, seen, n_samples, ZRO_I32, ZRO_SUM));
    for (int i = 0; i < n_samples; i++)
        once &= seen[i] == 1;
    printf("%s\n", once ? "ok" : "wrong");
    zro_group_destroy(ranks);
    return 0;
}
