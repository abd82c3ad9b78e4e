/* Texts: see text.h. */
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>

void zro__text_add(zro__text *t, const char *format, ...)
{
    const size_t left = t->at < t->bytes ? t->bytes - t->at : 0;
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(left > 0 ? t->data + t->at : NULL, left, format, args);
    va_end(args);
    t->at += n > 0 ? (size_t)n : 0;
}
