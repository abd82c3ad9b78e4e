/* Lines of the log: see log.h. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

void zro__log(const zro_settings *settings, zro_log_level level, const char *format, ...)
{
    static const char *const names[] = { "off", "warning", "info", "debug" };
    char text[1024];
    va_list args;

    if (level > settings->log_level)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (settings->log != NULL)
        settings->log(settings->log_user, level, text);
    else
        fprintf(stderr, "zro %s: %s\n", names[level], text);
}
