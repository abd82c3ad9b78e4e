/* All tests, by room. */
#include "zt/list.h"

#include <stddef.h>

#define ROW(room, file) { #room, cases_##room##_##file },

const zt_table zt_tables[] = { ZT_TABLES(ROW){ NULL, NULL } };

const zt_command zt_commands[] = { { "stranger", command_stranger },
                                   { "hashes", command_hashes },
                                   { "launched", command_launched },
                                   { "has_nothing", command_has_nothing },
                                   { NULL, NULL } };
