/* For files that are compiled once per instruction set, with -DZRO__ISA=base, avx2 or avx512 and the compiler's flags for it:
 * what they define is named by it, and chosen among at run time (base/kernels.h).
 *
 * Such a file is plain C that the compiler vectorises: the instruction set decides how many elements an instruction takes,
 * never what is computed.  -ffp-contract=off keeps products and sums apart; -fno-trapping-math allows selects instead of
 * branches. */
#ifndef ZRO_BASE_ISA_H
#define ZRO_BASE_ISA_H

#include <float.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__FAST_MATH__)
#error "the order and the rounding of additions are part of the interface: do not build with -ffast-math or -Ofast"
#endif
#if FLT_EVAL_METHOD != 0
#error "f32 must be computed in f32: build with SSE2 arithmetic"
#endif

#ifndef ZRO__ISA
#define ZRO__ISA base
#endif
#define ZRO__PASTE_(a, b) a##b
#define ZRO__PASTE(a, b) ZRO__PASTE_(a, b)
#define ZRO__OF_ISA(name) ZRO__PASTE(name, ZRO__ISA) /* name_ becomes name_avx2 */

#define ZRO__INLINE inline __attribute__((always_inline))

/* Brings the lines of [from, to) bytes behind `base` into the caches.  Always inlined: gcc takes a function that only
 * prefetches for one without effects, and leaves out calls of it.  `write` is a constant. */
static ZRO__INLINE void zro__prefetch(const void *base, size_t from, size_t to, int write)
{
    for (size_t b = from; b < to; b += 64)
        if (write)
            __builtin_prefetch((const char *)base + b, 1, 3);
        else
            __builtin_prefetch((const char *)base + b, 0, 3);
}

/* Elements in memory: at any address, whatever the program declared them to be. */
#define ZRO__ELEMENT __attribute__((aligned(1), may_alias))
typedef float zro__f32 ZRO__ELEMENT;
typedef double zro__f64 ZRO__ELEMENT;
typedef uint16_t zro__h16 ZRO__ELEMENT;

#endif
