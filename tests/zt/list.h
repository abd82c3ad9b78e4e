/* The tables and commands that the test files define, for list.c. */
#ifndef ZT_LIST_H
#define ZT_LIST_H

#include "zt/zt.h"

extern const zt_case cases_calls[], cases_conformance[], cases_S43[], cases_S53[], cases_S85[], cases_groups[], cases_cut[],
    cases_kill[], cases_stop[], cases_mismatch[], cases_alloc[], cases_places[], cases_S91[], cases_create[], cases_optim[],
    cases_optim_bits[], cases_optim_gradients[];

int command_stranger(int argc, char **argv);

#endif
