/* ranks: 1 2; prints: w = 3 */
#include <stdio.h>
#include <zro.h>

enum { N = 3000, STEPS = 4000 };
static float w[N], grad[N];

/* The gradient of (w - 2.9 - rank / 5)^2; two ranks' average is that of (w - 3)^2. */
static void backward(const float *at, float *to, int rank)
{
    for (int i = 0; i < N; i++)
        to[i] = 2 * (at[i] - 2.9f - 0.2f * (float)rank);
}

int main(void)
{
    /* SNIPPET */
    printf("w = %.0f\n", (double)w[N - 1]);
    return w[0] == w[N - 1] ? 0 : 1;
}
