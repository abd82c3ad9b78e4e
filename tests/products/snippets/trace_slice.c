/* A slice of a program's own.  ranks: 2; prints: ok */
#include <stdint.h>
#include <stdio.h>
#include <zro.h>

static void backward(float *grad)
{
    *grad = 1;
}

int main(void)
{
    zro_group *ranks;
    float p[1] = { 0 };

    zro_must(zro_group_create_env(NULL, &ranks));
    /* SNIPPET */
    zro_must(zro_barrier(ranks));
    printf("%s\n", p[0] == 1 ? "ok" : "wrong");
    zro_group_destroy(ranks);
    return 0;
}
