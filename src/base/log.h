/* Lines to the program's log callback. */
#ifndef ZRO_BASE_LOG_H
#define ZRO_BASE_LOG_H

#include "zro.h"

/* Passes a line to the callback of the settings, if there is one and the level is let through.  The thread's error text stays. */
void zro__log(const zro_settings *settings, zro_log_level level, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* A callback that writes to standard error; `user` is not used. */
void zro__log_stderr(void *user, zro_log_level level, const char *text);

#endif
