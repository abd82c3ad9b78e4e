/* Status codes and the error text.
 *
 * zro__fail is the only way to raise an error: it writes the calling thread's text and returns the code, and callers pass the
 * code up untouched.  A text that was made on another thread or rank is set with the same call ("%s"). */
#ifndef ZRO_BASE_STATUS_H
#define ZRO_BASE_STATUS_H

#include "zro.h"

enum { ZRO__TEXT_BYTES = 1024 }; /* the longest error text, its NUL included; longer ones are cut */

/* Formats the thread's error text, logs nothing, returns `code`. */
zro_status zro__fail(zro_status code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same with ": <reason of errno_value>" at the end. */
zro_status zro__fail_errno(zro_status code, int errno_value, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
