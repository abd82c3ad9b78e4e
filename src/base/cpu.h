/* What depends on the processor: which instruction set the kernels use, how far they prefetch, the floating-point mode. */
#ifndef ZRO_BASE_CPU_H
#define ZRO_BASE_CPU_H

#include <stddef.h>

#include "zro.h"

/* The best instruction set that this processor and this build have: AVX512, AVX2 or BASE. */
zro_kernels zro__cpu_best(void);

/* How many elements ahead loops over memory prefetch; 0: not at all.  Changes no bits.  fused: the pass that adds up gradients and
 * updates parameters, which reads the most arrays and computes the most for each element. */
size_t zro__cpu_prefetch(void);
size_t zro__cpu_prefetch_fused(void);

/* Lets the other thread of a core work while this one spins. */
static inline void zro__cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* The floating-point mode of the calling thread.  Programs linked with -Ofast run with subnormals flushed to zero, and a
 * program may have changed the rounding: either would change bits.  `enter` saves the mode and sets the default (to nearest,
 * subnormals kept, no traps); `leave` restores it, the exception flags included.  Arithmetic between the two belongs into a
 * function of its own that is not inlined, since compilers move it across these calls otherwise. */
#if defined(__x86_64__) || defined(__i386__)
typedef struct zro__fpmode {
    unsigned mxcsr;
} zro__fpmode;
#else
#include <fenv.h>
typedef struct zro__fpmode {
    fenv_t env;
} zro__fpmode;
#endif

void zro__fpmode_enter(zro__fpmode *saved);
void zro__fpmode_leave(const zro__fpmode *saved);

#endif
