/* Arrays of a model.  ranks: 1 */
#include <stdio.h>
#include <stdlib.h>
#include <zro.h>

int main(void)
{
    static float w[50], w_grad[50], b[5], b_grad[5];

    for (int i = 0; i < 50; i++)
        w_grad[i] = b_grad[i / 10] = 1;
    /* SNIPPET */
    zro_optim_destroy(opt);
    return w[49] == 0 || b[4] == 0;
}
