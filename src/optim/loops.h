/* Makes loops for two types: included by a file rule_*.c once, after it has defined SELF as its own name (by lbfgs.c with that
 * of its loops); includes that file for f32 and for f64, with
 *
 *   REAL     the type of elements in registers    real   the same in memory, at any address
 *   NAME(x)  the functions' names                 sqrt, fabs, LARGER  in that type; LARGER propagates NaN
 *
 *   GRADIENT(x)  the gradient of element i in a loop that has sign, grad, decays and decay, with the decay of x if there is one
 *   CASESn(f, a, ..., t)  calls f(t, a != 0, ...) with n conditions as constants, so that the compiler makes one loop for each
 *                         case
 *   LOOP(cases)           defines NAME(loop)(t), which a rule must have, by such a call; c are the scalars of the tile
 */
#include <tgmath.h>

#define INLINE ZRO__INLINE

#define LARGER(a, b) ((((a) > (b)) | ((a) != (a))) ? (a) : (b))

#define GRADIENT(x) (decays ? sign * grad[i] + decay * (x) : sign * grad[i])

#define CASES1(f, a, ...) ((a) != 0 ? f(__VA_ARGS__, 1) : f(__VA_ARGS__, 0))
#define CASES2(f, a, b, ...) ((a) != 0 ? CASES1(f, b, __VA_ARGS__, 1) : CASES1(f, b, __VA_ARGS__, 0))
#define CASES3(f, a, b, c, ...) ((a) != 0 ? CASES2(f, b, c, __VA_ARGS__, 1) : CASES2(f, b, c, __VA_ARGS__, 0))

#define LOOP(cases)                                                                                                            \
    static void NAME(loop)(const zro_rule_tile *t)                                                                             \
    {                                                                                                                          \
        const REAL *c = t->scalars;                                                                                            \
        cases;                                                                                                                 \
    }

#define REAL float
#define real zro__f32
#define NAME(x) x##_f32
#include SELF
#undef REAL
#undef real
#undef NAME

#define REAL double
#define real zro__f64
#define NAME(x) x##_f64
#include SELF
#undef REAL
#undef real
#undef NAME
