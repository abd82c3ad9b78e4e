/* The settings that groups and optimizers have in common. */
#ifndef ZRO_BASE_SETTINGS_H
#define ZRO_BASE_SETTINGS_H

#include "zro.h"

/* Whether they are allowed, and possible here.  INVALID or UNSUPPORTED names the first that is not. */
zro_status zro__settings_check(const zro_settings *settings);

/* Copies a configuration, which begins with its size, over the defaults in `out`: as much as the caller's version of it has,
 * and that must be at least `least` bytes.  NULL copies nothing.  INVALID names the type. */
zro_status zro__config_take(const char *type, const void *config, size_t least, void *out, size_t bytes);

#endif
