/* Lines to the program's log callback; the library itself prints nothing.  The one callback of its own, to standard error,
 * is installed by zro_group_create_env alone, when ZRO_LOG asks for it. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

void zro__log(const zro_settings *settings, zro_log_level level, const char *format, ...)
{
    char text[1024];
    va_list args;

    if (settings->log == NULL || level > settings->log_level)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    settings->log(settings->log_user, level, text);
}

void zro__log_stderr(void *user, zro_log_level level, const char *text)
{
    static const char *const names[] = { "off", "warn", "info", "debug" };

    (void)user;
    fprintf(stderr, "zro %s: %s\n", names[level], text);
}
