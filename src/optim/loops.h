/* Makes a rule's loops: included by a file rule_*.c once, after it has defined SELF as its own name; includes that file again
 * for f32 and for f64, with
 *
 *   REAL     the type of elements in registers    real   the same in memory, at any address
 *   NAME(x)  the functions' names                 SQRT, ABS, LARGER  in that type; LARGER propagates NaN
 *
 * and expects from it each time a function NAME(loop). */
#define INLINE ZRO__INLINE

#define LARGER(a, b) ((((a) > (b)) | ((a) != (a))) ? (a) : (b))

#define REAL float
#define real zro__f32
#define NAME(x) x##_f32
#define SQRT sqrtf
#define ABS fabsf
#include SELF
#undef REAL
#undef real
#undef NAME
#undef SQRT
#undef ABS

#define REAL double
#define real zro__f64
#define NAME(x) x##_f64
#define SQRT sqrt
#define ABS fabs
#include SELF
#undef REAL
#undef real
#undef NAME
#undef SQRT
#undef ABS
