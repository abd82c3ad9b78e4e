/* The settings that groups and optimizers have in common. */
#ifndef ZRO_BASE_SETTINGS_H
#define ZRO_BASE_SETTINGS_H

#include "zro.h"

/* Whether they are allowed, and possible here.  INVALID or UNSUPPORTED names the first that is not. */
zro_status zro__settings_check(const zro_settings *settings);

#endif
