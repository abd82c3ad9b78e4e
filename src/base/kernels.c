/* Picks the table of kernels that is asked for: see kernels.h.  The tables themselves are made by kernels_isa.c. */
#include "base/kernels.h"

#include "base/cpu.h"

const zro__kernels *zro__kernels_get(zro_kernels which)
{
    zro_kernels best = zro__cpu_best();

    if (which == ZRO_KERNELS_AUTO)
        which = best;
    return which <= best ? ZRO__ISA_PICK(zro__kernels, which) : NULL;
}
