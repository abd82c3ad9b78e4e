/* The first group of some ranks, for those who bring ranks together (env.c, spawn.c). */
#ifndef ZRO_GROUP_CREATE_FIRST_H
#define ZRO_GROUP_CREATE_FIRST_H

#include "board/meet.h"

/* What a rank's death is: that of its process, or the end of its thread, which then says so itself (zro__group_die). */
typedef enum zro__life_kind { ZRO__LIFE_OF_PROCESS, ZRO__LIFE_OF_THREAD } zro__life_kind;

/* Makes the group of the ranks that meet at a table; `st` is what this rank brings from before.  Collective. */
zro_status zro__group_create_at(zro__meet *meet, const zro_group_config *config, int rank, int size, zro__life_kind kind,
                                zro_status st, zro_group **out);

#endif
