/* The tables and commands that the test files define, for list.c. */
#ifndef ZT_LIST_H
#define ZT_LIST_H

#include "zt/zt.h"

extern const zt_case cases_calls[], cases_conformance[], cases_S43[], cases_S53[], cases_S85[], cases_groups[], cases_cut[],
    cases_kill[], cases_stop[], cases_mismatch[], cases_alloc[], cases_places[], cases_S91[], cases_create[], cases_optim[],
    cases_optim_bits[], cases_optim_gradients[];
extern const zt_case cases_S01[], cases_S02[], cases_S03[], cases_S06[], cases_S07[], cases_S09[], cases_S15[], cases_S16[],
    cases_S19[];
extern const zt_case cases_S44[], cases_S48[], cases_S52[], cases_S56[], cases_S60[], cases_S61[], cases_S87[],
    cases_zero_memory[], cases_zero_agree[], cases_zero_fail[], cases_zero_bits[];

int command_stranger(int argc, char **argv);

#endif
