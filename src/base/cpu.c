/* What depends on the processor: see cpu.h. */
#include "base/cpu.h"

#include "base/kernels.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <stdatomic.h>

/* Conversions of f16, which the kernels for AVX2 use.  Older compilers have no name for it in __builtin_cpu_supports.  Asked once:
 * in a virtual machine the host answers, which takes as long as a small call. */
static int has_f16c(void)
{
    enum { UNKNOWN, NO, YES };
    static atomic_int answer = UNKNOWN; /* relaxed: whoever asks gets the same one */
    unsigned a, b, c = 0, d;

    if (atomic_load_explicit(&answer, memory_order_relaxed) == UNKNOWN) {
        const int has = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;

        atomic_store_explicit(&answer, has ? YES : NO, memory_order_relaxed);
    }
    return atomic_load_explicit(&answer, memory_order_relaxed) == YES;
}

#endif

zro_kernels zro__cpu_best(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init(); /* a constructor of the program may be what calls us, before the compiler's own has run */
    if (!has_f16c())
        return ZRO_KERNELS_BASE;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")
        && __builtin_cpu_supports("avx512vl"))
        return ZRO_KERNELS_AVX512;
    if (__builtin_cpu_supports("avx2"))
        return ZRO_KERNELS_AVX2;
#endif
    return ZRO_KERNELS_BASE;
}

/* On Intel a core's outstanding misses limit a stream, and prefetching is worth 5 to 10 %; on AMD the bus does, and it is
 * worth nothing or less. */
size_t zro__cpu_prefetch(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_is("intel"))
        return 512;
#endif
    return 0;
}

/* On AMD's processors with AVX-512 the pass is fastest if it prefetches just the next tile: with nothing ahead it is up to 5 % slower
 * where the memory is fast, with 512 elements ahead 10 to 15 % (Zen 4; on Zen 5, 512 were measured to be 1 to 3 % better than
 * nothing, and the next tile was not tried). */
size_t zro__cpu_prefetch_fused(void)
{
    const size_t ahead = zro__cpu_prefetch();

    return ahead == 0 && zro__cpu_best() == ZRO_KERNELS_AVX512 ? ZRO__TILE : ahead;
}

#if defined(__x86_64__) || defined(__i386__)

enum {
    MXCSR_FLAGS = 0x003f,  /* exceptions seen so far */
    MXCSR_DEFAULT = 0x1f80 /* all exceptions masked, round to nearest, neither FTZ nor DAZ */
};

void zro__fpmode_enter(zro__fpmode *saved)
{
    saved->mxcsr = __builtin_ia32_stmxcsr();
    if ((saved->mxcsr & ~(unsigned)MXCSR_FLAGS) != MXCSR_DEFAULT)
        __builtin_ia32_ldmxcsr(MXCSR_DEFAULT);
}

void zro__fpmode_leave(const zro__fpmode *saved)
{
    if (__builtin_ia32_stmxcsr() != saved->mxcsr)
        __builtin_ia32_ldmxcsr(saved->mxcsr);
}

#else

void zro__fpmode_enter(zro__fpmode *saved)
{
    fegetenv(&saved->env);
    fesetenv(FE_DFL_ENV);
}

void zro__fpmode_leave(const zro__fpmode *saved)
{
    fesetenv(&saved->env);
}

#endif
