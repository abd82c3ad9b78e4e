/* The list of codes, and the text of the calling thread's last failure.  The text is the library's only mutable global, and
 * it is thread-local: ranks may be threads. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local char last_error[ZRO__TEXT_BYTES];

static const struct {
    const char *name, *text;
} codes[] = {
    [ZRO_OK] = { "OK", "no error" },
    [ZRO_ERR_INVALID] = { "INVALID", "a value that is not allowed" },
    [ZRO_ERR_STATE] = { "STATE", "not at this moment" },
    [ZRO_ERR_MEMORY] = { "MEMORY", "out of memory" },
    [ZRO_ERR_SYSTEM] = { "SYSTEM", "the operating system refused" },
    [ZRO_ERR_FORMAT] = { "FORMAT", "malformed bytes" },
    [ZRO_ERR_UNSUPPORTED] = { "UNSUPPORTED", "not possible here" },
    [ZRO_ERR_MISMATCH] = { "MISMATCH", "the ranks disagree" },
    [ZRO_ERR_PEER] = { "PEER", "failed on another rank" },
    [ZRO_ERR_LOST] = { "LOST", "a rank is gone" },
    [ZRO_ERR_TIMEOUT] = { "TIMEOUT", "a rank did not come in time" },
};

static int is_known(zro_status status)
{
    return (size_t)status < sizeof codes / sizeof *codes;
}

const char *zro_status_name(zro_status status)
{
    return is_known(status) ? codes[status].name : "UNKNOWN";
}

const char *zro_status_text(zro_status status)
{
    return is_known(status) ? codes[status].text : "an unknown status";
}

const char *zro_last_error(void)
{
    return last_error;
}

/* The arguments may point into the text itself (one error wrapped into another), so it is built beside it first. */
static void set_text(const char *format, va_list args, const char *reason)
{
    char text[ZRO__TEXT_BYTES];
    int n = vsnprintf(text, sizeof text, format, args);

    if (reason != NULL && n >= 0 && (size_t)n < sizeof text)
        snprintf(text + n, sizeof text - (size_t)n, ": %s", reason);
    memcpy(last_error, text, sizeof text);
}

zro_status zro__fail(zro_status code, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    set_text(format, args, NULL);
    va_end(args);
    return code;
}

void zro_must(zro_status status)
{
    if (status == ZRO_OK)
        return;
    fprintf(stderr, "zro: %s: %s\n", zro_status_name(status), zro_last_error());
    exit(1);
}

zro_status zro_error_set(zro_status status, const char *text)
{
    return zro__fail(status, "%s", text == NULL ? zro_status_text(status) : text);
}

zro_status zro__fail_errno(zro_status code, int errno_value, const char *format, ...)
{
    char reason[128];
    va_list args;

    va_start(args, format);
    /* The POSIX strerror_r; see -D_POSIX_C_SOURCE in the build. */
    if (strerror_r(errno_value, reason, sizeof reason) != 0)
        snprintf(reason, sizeof reason, "error %d", errno_value);
    set_text(format, args, reason);
    va_end(args);
    return code;
}
