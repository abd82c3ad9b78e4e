/* Lines of the log: warnings, and more if the settings ask for it.  They go to the program's callback or, without one, to
 * standard error.  Nothing else of the library prints. */
#ifndef ZRO_BASE_LOG_H
#define ZRO_BASE_LOG_H

#include "zro.h"

/* Says a line, if the settings let its level through.  The thread's error text stays.  Whoever warns sees to it that the same
 * thing is said once. */
void zro__log(const zro_settings *settings, zro_log_level level, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
