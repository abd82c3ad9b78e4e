/* A text that is put together piece by piece, in a buffer that may be too small for it. */
#ifndef ZRO_BASE_TEXT_H
#define ZRO_BASE_TEXT_H

#include <stddef.h>

typedef struct zro__text {
    char *data;   /* ended by a 0; NULL: the text is only measured */
    size_t bytes; /* size of the buffer, 0 if there is none */
    size_t at;    /* length of the whole text, also of what did not fit */
} zro__text;

void zro__text_add(zro__text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
