/* All tests, in the order in which they run. */
#include "zt/list.h"

#include <stddef.h>

const zt_case *const zt_tables[] = { cases_calls,
                                     cases_conformance,
                                     cases_S43,
                                     cases_S53,
                                     cases_S85,
                                     cases_groups,
                                     cases_cut,
                                     cases_kill,
                                     cases_stop,
                                     cases_mismatch,
                                     cases_alloc,
                                     cases_places,
                                     cases_S91,
                                     cases_create,
                                     cases_optim,
                                     cases_optim_bits,
                                     cases_optim_gradients,
                                     NULL };

const zt_command zt_commands[] = { { "stranger", command_stranger }, { NULL, NULL } };
