/* The settings that groups and optimizers have in common. */
#ifndef ZRO_BASE_SETTINGS_H
#define ZRO_BASE_SETTINGS_H

#include "zro.h"

enum { ZRO__MAX_RANKS = 4096 }; /* the most ranks of a group */

/* Whether all settings are allowed (INVALID) and possible on this processor (UNSUPPORTED); the text names the first that is
 * not. */
zro_status zro__settings_check(const zro_settings *settings);

/* Copies a configuration, which begins with its size, over the defaults in `out`: as much as the caller's version of it has,
 * and that must be at least `least` bytes.  NULL copies nothing.  INVALID names the type. */
zro_status zro__config_take(const char *type, const void *config, size_t least, void *out, size_t bytes);

/* Defines the function type_init of a struct from its initializer. */
#define ZRO__DEFINE_INIT(type, initializer)                                                                                    \
    void type##_init(type *out)                                                                                                \
    {                                                                                                                          \
        static const type init = initializer;                                                                                  \
        if (out != NULL)                                                                                                       \
            *out = init;                                                                                                       \
    }

/* The opposite way: copies a struct of `bytes` bytes to the program, as much as the program's version of it has; the size in
 * `out` stays.  INVALID, with this text: `out` is NULL, or does not begin with a size. */
zro_status zro__config_give(const char *text, const void *from, size_t bytes, void *out);

#endif
