/* Lines to the program's log callback. */
#ifndef ZRO_BASE_LOG_H
#define ZRO_BASE_LOG_H

#include "zro.h"

/* Says a line if `settings` has a callback and lets `level` through.  Keeps the thread's error text. */
void zro__log(const zro_settings *settings, zro_log_level level, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* A callback that writes to standard error; `user` is not used. */
void zro__log_stderr(void *user, zro_log_level level, const char *text);

#endif
